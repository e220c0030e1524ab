"""Critic heads, which predict the return and compute the loss of the prediction, and ensembles of critics.

Shapes: F features of a torso; K bins; C components; N returns; A discrete actions; J objectives; `...` any
leading axes, such as [B, T], which end in J if the head was given `num_objectives`, then in A if it was given
`num_actions`.

A head is one linear layer. `head(features)` is a prediction, `prediction.mean()` the values [...], and
`head.loss(prediction, target, mask)` the loss for a target, which is a tensor of values [...] or a
`ReturnDistribution`:

    target critic's prediction     one for each action that a policy would take in the next state
      .mixture()                   one for the state: the distribution of the return under the policy
      .returns(...)                a `ReturnDistribution`
      .bootstrapped(r, discount)   the target: the distribution of r + discount z

Your own critic can be any module whose forward returns a prediction and that has such a `loss`. A critic that
predicts only values q returns `ScalarPrediction(q.unsqueeze(-1))` and sets `loss = ScalarHead.loss`.

Cost per state and forward pass, in addition to the torso: scalar 2 F FLOPs, categorical 2 F K, mixture 6 F C;
the loss adds about 6 K for a value and 6 N K for a distribution (categorical), or 10 N C (mixture).
"""

import functools
import math
import operator
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import torch
from torch import nn

from minerva_acme import losses
from minerva_acme.distributions import Categorical
from minerva_acme.networks.linear import initialize_uniform
from minerva_acme.networks.return_scale import ReturnScale

_HEAD_STD = 0.01  # values start near zero, so that early targets are rewards and not noise
_MIN_SCALE = 1e-4  # for a mixture's components, as in Acme: the density stays bounded

P = TypeVar("P", bound="Prediction")


class ReturnDistribution(NamedTuple):
    """Returns and their probabilities: the target of a distributional critic."""

    values: torch.Tensor  # [..., N]
    weights: torch.Tensor  # [..., N]  probabilities, summing to 1 over N

    def mean(self) -> torch.Tensor:
        """Computes the expected return, [...]."""
        return (self.weights * self.values).sum(dim=-1)

    def bootstrapped(self, r_t: torch.Tensor, discount_t: torch.Tensor) -> "ReturnDistribution":
        """Returns the distribution of r + discount z; both are [...], over one step or several."""
        return self._replace(values=r_t.unsqueeze(-1) + discount_t.unsqueeze(-1) * self.values)


Target = torch.Tensor | ReturnDistribution


class Prediction(Protocol):
    """A head's prediction of the return at every leading index."""

    def mean(self) -> torch.Tensor:
        """Computes the expected return, [...]."""

    def returns(self, *, generator: torch.Generator | None, num_samples: int) -> ReturnDistribution:
        """Returns a finite set of returns with probabilities that represents the prediction.

        Args:
            generator: The generator for samples, used if the prediction has no finite support.
            num_samples: The number of samples.

        Returns:
            The bins themselves (categorical), samples (mixture), or the one value (scalar).
        """

    def mixture(self: P, *, dim: int = 0, weights: torch.Tensor | None = None) -> P:
        """Returns the distribution of the return if an index of one leading axis is drawn at random.

        Args:
            dim: The axis of [...], counted from the front or, if negative, from the end; the result lacks it.
            weights: The probabilities of the axis's indices, [...], for example of discrete actions. None
                weights all equally, for example for sampled actions.
        """

    def select(self: P, action: torch.Tensor) -> P:
        """Returns the prediction for the taken action: [..., A] -> [...], for integers [...]."""


class ScalarPrediction(NamedTuple):
    """A prediction of the expected return alone."""

    value: torch.Tensor  # [..., 1]

    def mean(self) -> torch.Tensor:
        return self.value.squeeze(-1)

    def returns(self, *, generator: torch.Generator | None, num_samples: int) -> ReturnDistribution:
        return ReturnDistribution(self.value, torch.ones_like(self.value))

    def mixture(self, *, dim: int = 0, weights: torch.Tensor | None = None) -> "ScalarPrediction":
        if weights is None:
            return ScalarPrediction(self.value.mean(dim=_axis(dim)))
        return ScalarPrediction((weights.unsqueeze(-1) * self.value).sum(dim=_axis(dim)))

    def select(self, action: torch.Tensor) -> "ScalarPrediction":
        return ScalarPrediction(_select(self.value, action))


class CategoricalPrediction(NamedTuple):
    """A prediction as probabilities of fixed returns."""

    logits: torch.Tensor  # [..., K]
    atoms: torch.Tensor  # [..., K]

    def mean(self) -> torch.Tensor:
        return (self.logits.softmax(dim=-1) * self.atoms).sum(dim=-1)

    def returns(self, *, generator: torch.Generator | None, num_samples: int) -> ReturnDistribution:
        return ReturnDistribution(self.atoms, self.logits.softmax(dim=-1))

    def mixture(self, *, dim: int = 0, weights: torch.Tensor | None = None) -> "CategoricalPrediction":
        log_probs = self.logits.log_softmax(dim=-1) + _log_weights(self.logits, dim, weights)
        return CategoricalPrediction(log_probs.logsumexp(dim=_axis(dim)), self.atoms.select(_axis(dim), 0))

    def select(self, action: torch.Tensor) -> "CategoricalPrediction":
        return CategoricalPrediction(_select(self.logits, action), _select(self.atoms, action))


class MixturePrediction(NamedTuple):
    """A prediction as a mixture of Gaussians."""

    logits: torch.Tensor  # [..., C]  of the components' weights
    loc: torch.Tensor  # [..., C]
    scale: torch.Tensor  # [..., C]  standard deviations

    def mean(self) -> torch.Tensor:
        return (self.logits.softmax(dim=-1) * self.loc).sum(dim=-1)

    def returns(self, *, generator: torch.Generator | None, num_samples: int) -> ReturnDistribution:
        size = (*self.loc.shape[:-1], num_samples)
        logits = self.logits.unsqueeze(-2).expand(*size, -1)
        component = Categorical(logits).sample(generator)  # [..., N]
        noise = torch.randn(size, generator=generator, dtype=self.loc.dtype, device=self.loc.device)
        samples = self.loc.gather(-1, component) + self.scale.gather(-1, component) * noise
        return ReturnDistribution(samples, torch.full_like(samples, 1.0 / num_samples))

    def mixture(self, *, dim: int = 0, weights: torch.Tensor | None = None) -> "MixturePrediction":
        log_probs = self.logits.log_softmax(dim=-1) + _log_weights(self.logits, dim, weights)
        return MixturePrediction(
            *(x.movedim(_axis(dim), -2).flatten(-2) for x in (log_probs, self.loc, self.scale))
        )

    def select(self, action: torch.Tensor) -> "MixturePrediction":
        return MixturePrediction(*(_select(x, action) for x in self))


class EnsemblePrediction(NamedTuple):
    """The predictions of an ensemble's critics, whose heads are all of one kind and size."""

    members: tuple[Any, ...]  # predictions
    rule: Literal["mean", "min"]

    def combined(self) -> Any:
        """Returns one prediction of the members' kind: their mixture, or the least mean's at each index."""
        if len(self.members) == 1:
            return self.members[0]
        stacked = type(self.members[0])(*(torch.stack(x) for x in zip(*self.members, strict=True)))
        if self.rule == "mean":
            return stacked.mixture()
        smallest = stacked.mean().min(dim=0).indices[None, ..., None]  # argmin takes ten times as long
        return type(stacked)(*(x.gather(0, smallest.expand(1, *x.shape[1:])).squeeze(0) for x in stacked))

    def mean(self) -> torch.Tensor:
        mean: torch.Tensor = self.combined().mean()
        return mean

    def returns(self, *, generator: torch.Generator | None, num_samples: int) -> ReturnDistribution:
        returns: ReturnDistribution = self.combined().returns(generator=generator, num_samples=num_samples)
        return returns

    def mixture(self, *, dim: int = 0, weights: torch.Tensor | None = None) -> Any:
        return self.combined().mixture(dim=dim, weights=weights)

    def select(self, action: torch.Tensor) -> "EnsemblePrediction":
        return self._replace(members=tuple(member.select(action) for member in self.members))


class _LinearHead(nn.Linear):
    """A linear layer of several numbers for each value, with outputs that start near zero."""

    def __init__(
        self,
        features: int,
        num_outputs: int,
        *,
        num_actions: int | None,
        generator: torch.Generator | None,
        num_objectives: int | None = None,
    ) -> None:
        axes = {"num_objectives": num_objectives, "num_actions": num_actions}
        shape = {name: size for name, size in axes.items() if size is not None}
        for name, size in {"features": features, **shape}.items():
            if size < 1:
                raise ValueError(f"`{name}` must be >= 1, got {size}.")
        super().__init__(features, num_outputs * math.prod(shape.values()))
        self.num_objectives = num_objectives
        self._shape = (*shape.values(), num_outputs)
        initialize_uniform(self, generator)
        nn.init.trunc_normal_(
            self.weight, std=_HEAD_STD, a=-2.0 * _HEAD_STD, b=2.0 * _HEAD_STD, generator=generator
        )
        nn.init.zeros_(self.bias)

    def reset_parameters(self) -> None:
        """Draws nothing: torch's own initial weights would advance its global generator."""

    def _outputs(self, features: torch.Tensor) -> torch.Tensor:
        """Computes [..., F] -> [..., num_outputs], or [..., J, A, num_outputs]."""
        return super().forward(features).unflatten(-1, self._shape)


class ScalarHead(_LinearHead):
    """The expected return, trained by the squared error to the target, or to a target distribution's mean."""

    def __init__(
        self,
        features: int,
        *,
        num_actions: int | None = None,
        generator: torch.Generator | None = None,
        num_objectives: int | None = None,
    ) -> None:
        """Makes the layer.

        Args:
            features: The number of features, F.
            num_actions: The number of discrete actions, A; None makes a head without an axis for actions.
            generator: The generator for the initial weights; None uses torch's global generator.
            num_objectives: The number of returns, J, each of another reward; None makes a head without an
                axis for them.

        Raises:
            ValueError: A size is below 1.
        """
        super().__init__(
            features, 1, num_actions=num_actions, generator=generator, num_objectives=num_objectives
        )

    def forward(self, features: torch.Tensor) -> ScalarPrediction:  # type: ignore[override]
        """Predicts the return, [..., F] -> [...]."""
        return ScalarPrediction(self._outputs(features))

    def loss(self, prediction: ScalarPrediction, target: Target, mask: torch.Tensor) -> torch.Tensor:
        """Computes `losses.critic_loss`."""
        return losses.critic_loss(prediction.mean(), _as_values(target), mask)


class CategoricalCriticHead(_LinearHead):
    """Probabilities of returns in bins, trained by cross-entropy.

    Returns below vmin or above vmax count as vmin or vmax, so choose these as the smallest and largest
    discounted return. (`CategoricalHead` is a policy head.) With a scale, the bins hold scaled returns, for
    tasks whose returns are of unknown or changing size; predictions and targets keep the task's units.
    """

    CONSTANTS = ("atoms", "edges")
    """The buffers that only the arguments determine; nothing trains them."""

    atoms: torch.Tensor  # [K]
    edges: torch.Tensor  # [K + 1]

    def __init__(
        self,
        features: int,
        *,
        vmin: float,
        vmax: float,
        num_bins: int,
        projection: Literal["c51", "two_hot", "hl_gauss"],
        sigma_ratio: float = 0.75,
        symlog: bool = False,
        scale: ReturnScale | None = None,
        num_actions: int | None = None,
        generator: torch.Generator | None = None,
        num_objectives: int | None = None,
    ) -> None:
        """Makes the layer.

        Args:
            features: The number of features, F.
            vmin: The smallest return: the first atom, or with hl_gauss the first bin's lower edge.
            vmax: The largest return: the last atom, or with hl_gauss the last bin's upper edge.
            num_bins: The number of bins, K.
            projection: The way in which a target becomes probabilities: `c51` projects a whole distribution;
                `two_hot` and `hl_gauss` encode a value, or the mean of a distribution. See `losses` for each.
            sigma_ratio: The standard deviation of hl_gauss's Gaussian, in bin widths. Farebrother et al. 2024
                use 0.75.
            symlog: Whether atoms are evenly spaced in symlog, for returns of unknown and varying size
                (Hafner et al. 2023, DreamerV3, with 255 bins); not with hl_gauss.
            scale: The scale by which returns are divided, also in the meaning of `vmin` and `vmax`; the heads
                of an ensemble share one, which the learner updates. None leaves returns as they are.
            num_actions: The number of discrete actions, A; None makes a head without an axis for actions.
            generator: The generator for the initial weights; None uses torch's global generator.
            num_objectives: The number of returns, J, each of another reward and all in the same bins; None
                makes a head without an axis for them.

        Raises:
            ValueError: A size is below 1 (bins: 2), a range is empty or not finite, or settings conflict.
        """
        if projection not in ("c51", "two_hot", "hl_gauss"):
            raise ValueError(f"`projection` must be c51, two_hot or hl_gauss, got {projection}.")
        if num_bins < 2:
            raise ValueError(f"`num_bins` must be >= 2, got {num_bins}.")
        if not float("-inf") < vmin < vmax < float("inf"):
            raise ValueError(f"`vmin` and `vmax` must be finite, vmin < vmax, got {vmin} and {vmax}.")
        if not 0.0 < sigma_ratio < float("inf"):
            raise ValueError(f"`sigma_ratio` must be > 0, got {sigma_ratio}.")
        if symlog and projection == "hl_gauss":
            raise ValueError(
                "`symlog` needs projection c51 or two_hot, got hl_gauss, whose Gaussian has the same width "
                "for all bins. Choose c51 or two_hot, or set symlog=False."
            )
        super().__init__(
            features, num_bins, num_actions=num_actions, generator=generator, num_objectives=num_objectives
        )
        self._projection = projection
        self.scale = scale
        bounds = torch.tensor([vmin, vmax], dtype=torch.float64)
        low, high = (losses.symlog(bounds) if symlog else bounds).tolist()
        if projection == "hl_gauss":
            edges = torch.linspace(low, high, num_bins + 1, dtype=torch.float64)
            atoms = 0.5 * (edges[1:] + edges[:-1])
            self._sigma = sigma_ratio * (vmax - vmin) / num_bins
            self.register_buffer("edges", edges.float())
        else:
            atoms = torch.linspace(low, high, num_bins, dtype=torch.float64)
            atoms = losses.symexp(atoms) if symlog else atoms
        self.register_buffer("atoms", atoms.float())

    def forward(self, features: torch.Tensor) -> CategoricalPrediction:  # type: ignore[override]
        """Predicts the return, [..., F] -> [...]."""
        logits = self._outputs(features)
        atoms = self.atoms if self.scale is None else self.atoms * self.scale.value
        return CategoricalPrediction(logits, atoms.expand_as(logits))

    def project(self, target: Target) -> torch.Tensor:
        """Returns the target as probabilities of the bins, [..., K]."""
        if self._projection == "hl_gauss":
            return losses.hl_gauss(self._scaled(_as_values(target)), self.edges, self._sigma)
        if self._projection == "c51" and isinstance(target, ReturnDistribution):
            return losses.c51_projection(self._scaled(target.values), target.weights, self.atoms)
        return losses.two_hot(self._scaled(_as_values(target)), self.atoms)

    def _scaled(self, returns: torch.Tensor) -> torch.Tensor:
        return returns if self.scale is None else self.scale(returns)

    def loss(self, prediction: CategoricalPrediction, target: Target, mask: torch.Tensor) -> torch.Tensor:
        """Computes `losses.categorical_loss`."""
        return losses.categorical_loss(prediction.logits, self.project(target), mask)


class MixtureOfGaussiansHead(_LinearHead):
    """A mixture of Gaussians, trained by cross-entropy with returns of the target distribution.

        scale = softplus(output) init_scale / log 2 + 1e-4

    A target of values is treated as deterministic returns. Source: Shahriari et al. 2022; the scale as in
    Acme's `UnivariateGaussianMixture`. The head needs no bounds, but returns should be about the size of
    `init_scale`: a return far from all components gives a large gradient, so scale rewards or clip gradients.
    """

    def __init__(
        self,
        features: int,
        *,
        num_components: int,
        init_scale: float,
        num_actions: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        """Makes the layer.

        Args:
            features: The number of features, F.
            num_components: The number of components, C; Acme uses 5.
            init_scale: The initial standard deviation of the components, in units of the return.
            num_actions: The number of discrete actions, A; None makes a head without an axis for actions.
            generator: The generator for the initial weights; None uses torch's global generator.

        Raises:
            ValueError: A size is below 1, or `init_scale` is not above 0.
        """
        if num_components < 1:
            raise ValueError(f"`num_components` must be >= 1, got {num_components}.")
        if not 0.0 < init_scale < float("inf"):
            raise ValueError(f"`init_scale` must be > 0, got {init_scale}.")
        super().__init__(features, 3 * num_components, num_actions=num_actions, generator=generator)
        self._scale_factor = init_scale / nn.functional.softplus(torch.zeros(())).item()

    def forward(self, features: torch.Tensor) -> MixturePrediction:  # type: ignore[override]
        """Predicts the return, [..., F] -> [...]."""
        logits, loc, raw_scale = self._outputs(features).chunk(3, dim=-1)
        scale = self._scale_factor * nn.functional.softplus(raw_scale) + _MIN_SCALE
        return MixturePrediction(logits, loc, scale)

    def loss(self, prediction: MixturePrediction, target: Target, mask: torch.Tensor) -> torch.Tensor:
        """Computes `losses.mixture_loss`."""
        if not isinstance(target, ReturnDistribution):
            target = ReturnDistribution(target.unsqueeze(-1), torch.ones_like(target).unsqueeze(-1))
        return losses.mixture_loss(
            returns=target.values, weights=target.weights, mask=mask, **prediction._asdict()
        )


class Ensemble(nn.Module):
    """Critics, or heads on shared features, that are trained towards one target and combined into one.

    With rule `mean`, values are the members' average and distributions their mixture. With `min`, they come
    from the member with the smallest value, chosen at each state and action separately. Source of `min`:
    Fujimoto et al. 2018, "Addressing function approximation error in actor-critic methods" (TD3), algorithm
    1, clipped double Q. Deviation: for distributions the member is chosen by its mean.
    """

    def __init__(self, members: Iterable[nn.Module], *, rule: Literal["mean", "min"]) -> None:
        """Takes the members.

        Args:
            members: The critics, modules with one signature, `loss` included; heads of one kind and size.
            rule: The rule that combines the members, `mean` or `min`.

        Raises:
            ValueError: There is no member, the rule is unknown, or categorical heads have different bins.
        """
        super().__init__()
        self.members = nn.ModuleList(members)
        if not self.members:
            raise ValueError("`members` must hold at least one critic, got none.")
        if rule not in ("mean", "min"):
            raise ValueError(f"`rule` must be mean or min, got {rule}.")
        categorical = [head for head in self.modules() if isinstance(head, CategoricalCriticHead)]
        if any(not torch.equal(head.atoms, categorical[0].atoms) for head in categorical):
            raise ValueError(
                "`members` must have the same bins, since their probabilities are averaged. Give all heads "
                "the same vmin, vmax, num_bins, projection and symlog."
            )
        self.rule: Literal["mean", "min"] = rule

    def forward(self, *inputs: Any) -> EnsemblePrediction:
        """Returns all members' predictions for the same inputs; `.members[0].mean()` is the first's value."""
        return EnsemblePrediction(tuple(member(*inputs) for member in self.members), self.rule)

    def loss(self, prediction: EnsemblePrediction, target: Target, mask: torch.Tensor) -> torch.Tensor:
        """Returns the sum of the members' losses: each member learns as it would alone."""
        members: Iterable[Any] = self.members
        pairs = zip(members, prediction.members, strict=True)
        return functools.reduce(operator.add, [member.loss(own, target, mask) for member, own in pairs])


def _axis(dim: int) -> int:
    """Converts an axis of [...] to one of a tensor with one more axis at the end."""
    return dim if dim >= 0 else dim - 1


def _log_weights(logits: torch.Tensor, dim: int, weights: torch.Tensor | None) -> torch.Tensor | float:
    if weights is None:
        return -math.log(logits.shape[_axis(dim)])
    return weights.log().unsqueeze(-1)


def _select(x: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Selects [..., A, C] -> [..., C]."""
    return x.take_along_dim(action.long()[..., None, None], dim=-2).squeeze(-2)


def _as_values(target: Target) -> torch.Tensor:
    return target.mean() if isinstance(target, ReturnDistribution) else target
