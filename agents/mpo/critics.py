"""One interface to MPO's critics, for both kinds of actions and any kind of prediction.

Shapes: F features; D action dimensions; K discrete actions; N actions in each state; J rewards that are
objectives; `...` leading axes.
"""

import abc
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from minerva_acme import distributions, networks, specs


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
    action_spec: specs.BoundedArray,
    has_objectives: bool = False,
    device: torch.device | None = None,
) -> Critic:
    """Makes the critic for the spec's kind of actions, on a device, by default the CPU."""
    if isinstance(action_spec, specs.DiscreteArray):
        return DiscreteCritic(module, has_objectives)
    low, high = (torch.from_numpy(bound).to(device) for bound in specs.bounds(action_spec))
    return ContinuousCritic(module, has_objectives, low=low, high=high)


def has_batch_norm(module: nn.Module) -> bool:
    """Returns whether the module normalises some features by the statistics of a batch."""
    kinds = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm
    return any(isinstance(part, kinds) for part in module.modules())


def without_padding(mask: torch.Tensor, *of_steps: torch.Tensor) -> list[torch.Tensor]:
    """Replaces what masked steps hold by what the last step before them holds that is not masked.

    Steps are counted through the whole batch; before the first one, its own values are taken. So batch norm
    sees true pairs alone. Without it, no step has an effect on the results for another one.

    Args:
        mask: 0 at steps that did not happen, [B, T].
        *of_steps: Tensors of [B, T, ...].
    """
    happened = mask.flatten() > 0
    index = torch.arange(len(happened), device=mask.device)
    index = index.where(happened, happened.int().argmax()).cummax(dim=0).values
    return [x.flatten(0, 1)[index].view(x.shape) for x in of_steps]


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
