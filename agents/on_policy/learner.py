"""What the learners of on-policy agents have in common."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from minerva_acme import acceleration, counting, learners, loggers, losses, networks, specs, types
from minerva_acme.agents.on_policy import batch as on_policy_batch
from minerva_acme.agents.on_policy import config as on_policy_config

Config = TypeVar("Config", bound=on_policy_config.OnPolicyConfig)


class RolloutLearner(learners.LossLearner, Generic[Config]):
    """A `learners.LossLearner` of rollouts, each of which is learned from once.

    A subclass passes its losses. They find the prepared rollout, an `on_policy.RolloutBatch`, in
    `batch.estimates`, and the network in `self.network`. The observation statistics include a rollout only
    after the step, and the learning rate of the network may fall to 0 over the run.

    Variables: `network`, a dict of arrays, the observation statistics among them.

    Attributes:
        config: The hyperparameters. You may replace it during a run, as to lower `entropy_coef`; what the
            optimiser has, such as its rate, and `max_grad_norm` are read once.
        network: The network, as `acceleration` lets it be used.
        acceleration: Which faster implementations are used.
    """

    def __init__(
        self,
        *,
        network: networks.ActorCritic,
        losses: Mapping[str, learners.LossFunction],
        dataset: Iterator[Any],
        preparer: on_policy_batch.RolloutPreparer,
        config: Config,
        share_done: Callable[[int], float] | None,
        make_optimizer: learners.OptimizerFactory,
        counter: counting.Counter,
        logger: loggers.Logger,
        generator: torch.Generator,
        extras: Sequence[str] = ("log_prob", "raw_action"),
        modules: Mapping[str, nn.Module] = MappingProxyType({}),
        groups: Mapping[str, learners.Group] = MappingProxyType({}),
        ranks: learners.Ranks | None = None,
        spec: specs.EnvironmentSpec | None = None,
        **options: Any,
    ) -> None:
        """Makes the learner.

        Args:
            network: The network, trained in place.
            losses: The losses, in the order in which they are minimised; see `learners.LossLearner`.
            dataset: Yields samples whose `data` is a `Rollout` on the network's device, with
                `BehaviourExtras` as extras.
            preparer: Turns rollouts into batches, with this network's values.
            config: The hyperparameters.
            share_done: The share of the run that is done after a number of learner steps, by which the
                learning rate is annealed if the config says so, or None to keep it constant.
            make_optimizer: Makes the optimiser of `network`.
            counter: Counts `steps` and `walltime`.
            logger: Receives one row of diagnostics per step.
            generator: The generator for random numbers of a step, on the network's device; it is saved.
            extras: The fields of `BehaviourExtras` that rollouts must have.
            modules: Modules other than the network that are saved, by name.
            groups: The optimisers of these modules, by name.
            ranks: The learners that make the same steps, each from its share of the rollouts, or None.
            spec: The environment's spec, by which the first rollout is checked, or None.
            **options: Other arguments of `learners.LossLearner`.

        Raises:
            ValueError: The network overrides `forward` or has hooks of its own, which nothing calls.
        """
        _check_network(network)
        self.config = config
        self.acceleration = acceleration.Acceleration(config.acceleration)
        self.network = self.acceleration.network("network", network)
        parameters = [*network.parameters()], config.learning_rate, config.weight_decay
        optimizer = make_optimizer("network", learners.parameter_groups(*parameters))
        group = learners.Group(optimizer, config.max_grad_norm)
        final_share = 0.0 if config.anneal_learning_rate else 1.0
        decay = learners.LinearDecay(optimizer, final_share=final_share, share_done=share_done)
        self._preparer = preparer
        preparer.statistics.ranks = ranks
        super().__init__(
            networks=network,
            losses=losses,
            groups={"network": group, **groups},
            periods={},
            update_targets=lambda networks, num_steps: None,
            dataset=dataset,
            priorities=None,
            max_skipped_batches=config.max_skipped_batches,
            acceleration=self.acceleration,
            counter=counter,
            logger=logger,
            generator=generator,
            ranks=ranks,
            spec=spec,
            estimate=self._prepare,
            parts=[decay, _Observations(preparer)],
            modules={"network": network, **modules, **preparer.modules},
            variables=["network"],
            takes=learners.Kind(types.Rollout, "RolloutLayout", extras),
            **options,
        )
        preparer.require_finite = self.updates.require_finite

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


class _Observations(learners.Part):
    """Updates the statistics of observations with each rollout, after it was learned from."""

    def __init__(self, preparer: on_policy_batch.RolloutPreparer) -> None:
        self._preparer = preparer

    def after(self, batch: learners.Batch, metrics: Mapping[str, Any], num_steps: int) -> None:
        self._preparer.update_observation_statistics(batch.data)


def _check_network(network: nn.Module) -> None:
    if type(network).forward is not networks.ActorCritic.forward or any(acceleration.hooks_of(network)):
        raise ValueError(
            "`network` must not override `forward` or have hooks of its own, which neither learners nor "
            f"actors call, got such a {type(network).__name__}. Override `from_normalized`, `policy` and "
            "`value`, or give the hooks to its parts."
        )
