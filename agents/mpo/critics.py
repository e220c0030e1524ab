"""One interface to MPO's critics, for both kinds of actions and any kind of prediction.

Shapes: F features; D action dimensions; K discrete actions; N actions in each state; J rewards that are
objectives; `...` leading axes.
"""

import abc
from collections.abc import Callable
from typing import Any

import torch
import tree
from torch import nn

from minerva_acme import distributions, learners, networks, specs
from minerva_acme.agents import actions


class Critic(abc.ABC):
    """A critic of `MPONetworks` as a function of features and actions.

    Called with features [..., F] and actions, it returns their values. Continuous actions are [..., D] or
    [N, ..., D], and are clipped to their bounds; discrete ones are [...] or [N, ...]. With objectives,
    predictions and values have J as another axis behind these.
    """

    def __init__(self, module: Callable[..., Any], has_objectives: bool = False) -> None:
        """Takes the critic.

        Args:
            module: A critic, or a function that computes the same.
            has_objectives: True if it predicts the returns of several rewards.
        """
        self._module = module
        self._has_objectives = has_objectives

    @abc.abstractmethod
    def predict(self, features: torch.Tensor, action: torch.Tensor) -> networks.Prediction:
        """Predicts for one action in each state: features [..., F], action [..., D] or [...]."""

    @abc.abstractmethod
    def mixture(self, features: torch.Tensor, points: distributions.Points) -> networks.Prediction:
        """Predicts for the states, [...], as a weighted mixture over the points' actions, [N, ...]."""

    @abc.abstractmethod
    def __call__(self, features: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Returns the values of actions."""

    def _prediction(self, *inputs: torch.Tensor) -> networks.Prediction:
        output: networks.Prediction = self._module(*inputs)
        if isinstance(output, torch.Tensor):
            raise ValueError(
                "A critic of `MPONetworks` must return a `networks.Prediction`, got a tensor of shape "
                f"{list(output.shape)}. Return `networks.ScalarPrediction(q.unsqueeze(-1))`, and give the "
                "critic a `loss`, such as `networks.ScalarHead`'s."
            )
        return output


class ContinuousCritic(Critic):
    """A critic from a module that takes features [..., F] and actions [..., D]."""

    def __init__(
        self,
        module: Callable[..., Any],
        has_objectives: bool = False,
        *,
        low: torch.Tensor | None = None,
        high: torch.Tensor | None = None,
    ) -> None:
        """Takes the critic, and the bounds [D] to which actions are clipped, or None if it clips itself."""
        super().__init__(module, has_objectives)
        self._low, self._high = low, high

    def _prediction(self, *inputs: torch.Tensor) -> networks.Prediction:
        features, action = inputs
        features = features.expand(*action.shape[:-1], features.shape[-1])
        if self._low is not None:
            action = action.clamp(self._low, self._high)
        return super()._prediction(features, action)

    def predict(self, features: torch.Tensor, action: torch.Tensor) -> networks.Prediction:
        return self._prediction(features, action)

    def mixture(self, features: torch.Tensor, points: distributions.Points) -> networks.Prediction:
        weights = None if points.log_weights is None else points.log_weights.exp()
        return self._prediction(features, points.actions).mixture(dim=0, weights=weights)

    def __call__(self, features: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return self._prediction(features, action).mean()


class DiscreteCritic(Critic):
    """A critic from a module of features that predicts for all K actions: it is evaluated once per state."""

    def predict(self, features: torch.Tensor, action: torch.Tensor) -> networks.Prediction:
        action = action.unsqueeze(-1) if self._has_objectives else action
        return self._prediction(features).select(action)

    def mixture(self, features: torch.Tensor, points: distributions.Points) -> networks.Prediction:
        assert points.log_weights is not None
        return self._prediction(features).mixture(dim=-1, weights=points.log_weights.exp().movedim(0, -1))

    def __call__(self, features: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        q = self._prediction(features).mean()  # [..., K], or [..., J, K]
        if self._has_objectives:
            action = action.unsqueeze(-1).expand(*action.shape, q.shape[-2])
        q = q.expand(*action.shape, q.shape[-1])
        return q.gather(-1, action.long().unsqueeze(-1)).squeeze(-1)


def make_critic(
    module: Callable[..., Any],
    action_spec: Any,
    has_objectives: bool = False,
    device: torch.device | None = None,
) -> Critic:
    """Makes the critic for the spec's kind of actions, on a device, by default the CPU."""
    if isinstance(action_spec, specs.DiscreteArray):
        return DiscreteCritic(module, has_objectives)
    low, high = (torch.from_numpy(bound).to(device) for bound in actions.bounds(action_spec))
    if specs.is_hybrid(action_spec):
        return ContinuousCritic(
            _with_one_hot(module, action_spec, device), has_objectives, low=low, high=high
        )
    return ContinuousCritic(module, has_objectives, low=low, high=high)


def _with_one_hot(
    module: Callable[..., Any], action_spec: Any, device: torch.device | None
) -> Callable[..., Any]:
    one_hot = actions.OneHot(action_spec, device)
    return lambda features, action: module(features, one_hot(action))


def has_batch_norm(module: nn.Module) -> bool:
    """Returns whether the module normalises some features by the statistics of a batch."""
    kinds = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm
    return any(isinstance(part, kinds) for part in module.modules())


def predict_true_pairs(
    critic: Critic, mask: torch.Tensor, features: torch.Tensor, action: torch.Tensor
) -> networks.Prediction:
    """Predicts for the steps that happened, each once, and for no other: so batch norm sees true pairs alone.

    Their number is read from the device, once. Neither copies in place of padding nor weights would do: of
    copies some pairs have more than others, and weighted statistics take torch's own kernel away, with up to
    four fifths more time for a critic's gradient on a CPU.

    Args:
        critic: The critic, in training mode.
        mask: 0 at steps that did not happen, [B, T].
        features: [B, T, F].
        action: [B, T, D], or [B, T] if discrete.

    Returns:
        The predictions, [B, T]; at a masked step, that for the last true pair before it, or for the first.
    """
    happened = mask.flatten() > 0
    count = learners.read(happened.count_nonzero())
    rows = torch.nonzero_static(happened, size=max(count, 1), fill_value=0).squeeze(-1)
    if count < 2:  # of which there would be no variance
        rows = rows.repeat(2)
    prediction = critic.predict(features.flatten(0, 1)[rows], action.flatten(0, 1)[rows])
    places = (happened.cumsum(dim=0) - 1).clamp(min=0).view(mask.shape)  # among `rows`

    def at_places(leaf: Any) -> Any:
        return leaf[places] if isinstance(leaf, torch.Tensor) else leaf

    spread: networks.Prediction = tree.map_structure(at_places, prediction)
    return spread


def critic_loss(
    module: Any, prediction: networks.Prediction, target: Any, mask: torch.Tensor
) -> torch.Tensor:
    """Computes a critic's own `loss`, [], from its prediction, target and mask [...].

    With objectives, prediction and target are [..., J], and the losses of the J heads are summed.
    """
    num_heads = 1
    if isinstance(target, torch.Tensor) and target.ndim > mask.ndim:
        num_heads, mask = target.shape[-1], mask.unsqueeze(-1).expand_as(target)
    loss: torch.Tensor = module.loss(prediction, target, mask)  # the mean over steps and heads
    return loss if num_heads == 1 else num_heads * loss


@torch.no_grad()
def td_errors(prediction: networks.Prediction, target: Any) -> torch.Tensor:
    """Returns the absolute errors of predicted values, [...]; of several critics the largest, as in DR.Q.

    With objectives they are [..., J].
    """
    values = target.mean() if isinstance(target, networks.ReturnDistribution) else target
    members = getattr(prediction, "members", (prediction,))
    return torch.stack([(member.mean() - values).abs() for member in members]).amax(dim=0)
