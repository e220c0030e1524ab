"""What the learners of on-policy agents have in common."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from minerva_acme import acceleration, learners, losses, networks, types
from minerva_acme.agents.on_policy import batch as on_policy_batch
from minerva_acme.agents.on_policy import config as on_policy_config

Config = TypeVar("Config", bound=on_policy_config.OnPolicyConfig)


class RolloutLearner(learners.LossLearner, Generic[Config]):
    """A `learners.LossLearner` of rollouts, each of which is learned from once.

    A subclass passes its losses. They find the prepared rollout, an `on_policy.RolloutBatch`, in
    `batch.estimates`, and the network in `self.network`.

    Variables: `network`, a dict of arrays, the observation statistics among them.

    Attributes:
        config: The hyperparameters. You may replace it during a run, as to lower `entropy_coef`; what the
            optimiser has, such as its rate, and `max_grad_norm` are read once.
        network: The network.
    """

    def __init__(
        self,
        *,
        networks: networks.ActorCritic,
        losses: Mapping[str, learners.LossFunction],
        preparer: on_policy_batch.RolloutPreparer,
        config: Config,
        extras: Sequence[str] = ("log_prob", "raw_action"),
        parts: Sequence[learners.Part] = (),
        modules: Mapping[str, nn.Module] = MappingProxyType({}),
        **arguments: Any,
    ) -> None:
        """Makes the learner.

        Args:
            networks: The network, trained in place.
            losses: The losses, in the order in which they are minimised; see `learners.LossLearner`.
            preparer: Turns rollouts into batches, with this network's values; the first of the parts.
            config: The hyperparameters.
            extras: The fields of `BehaviourExtras` that rollouts must have.
            parts: The parts that act after the preparer.
            modules: Further modules to save, besides the network and what the parts add.
            **arguments: The other arguments of `learners.LossLearner`. The dataset yields samples whose
                `data` is a `Rollout` on the network's device, with `BehaviourExtras` as extras.

        Raises:
            ValueError: The network overrides `forward` or has hooks of its own, which nothing calls.
        """
        _check_network(networks)
        self.config = config
        self.network = networks
        self._preparer = preparer
        super().__init__(
            networks=networks,
            losses=losses,
            estimate=self._prepare,
            parts=[preparer, *parts],
            modules={"network": networks, **modules},
            variables=["network"],
            takes=learners.Kind(types.Rollout, "RolloutLayout", extras),
            **arguments,
        )

    @property
    def group(self) -> learners.Group:
        """The optimiser of the network, with its bound on the gradient."""
        return self.updates.groups["network"]

    def step(self) -> None:
        """Learns from one rollout.

        Raises:
            ValueError: The network has got hooks of its own, which nothing calls.
        """
        _check_network(self.network)
        super().step()

    def finish_step(self, metrics: Mapping[str, Any]) -> None:
        super().finish_step({**metrics, "learning_rate": self.group.optimizer.param_groups[0]["lr"]})

    def _prepare(
        self, nets: networks.ActorCritic, batch: learners.Batch, generator: torch.Generator
    ) -> learners.Estimated:
        return learners.Estimated(self.estimate(self._preparer.prepare(batch.data)))

    def estimate(self, rollout: on_policy_batch.RolloutBatch) -> Any:
        """Returns what the losses of a rollout share: the rollout, to which a subclass may add."""
        return rollout

    def normalized(self, advantages: torch.Tensor) -> torch.Tensor:
        """Returns advantages, [n]; if the config says so, normalised over the rows of all learners."""
        if not self.config.normalize_advantages:
            return advantages
        if self.ranks is None:
            return losses.normalize_advantages(advantages, unbiased=True)
        return self.ranks.apply(lambda rows: losses.normalize_advantages(rows, unbiased=True), advantages)


def _check_network(network: nn.Module) -> None:
    if type(network).forward is not networks.ActorCritic.forward or any(acceleration.hooks_of(network)):
        raise ValueError(
            "`network` must not override `forward` or have hooks of its own, which neither learners nor "
            f"actors call, got such a {type(network).__name__}. Override `from_normalized`, `policy` and "
            "`value`, or give the hooks to its parts."
        )
