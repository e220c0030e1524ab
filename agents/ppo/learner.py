"""The PPO learner.

Shapes: n samples of a rollout; with a memory, n after the burn-in of T steps of E environments, time first.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import tree

from minerva_acme import acceleration, core, learners, losses, networks, types
from minerva_acme.agents import on_policy
from minerva_acme.agents.ppo.config import PPOConfig

_APPROX_KL, _NORM = losses.PPOLosses._fields.index("approx_kl"), -1  # columns of a step's result


class Samples(NamedTuple):
    """The inputs of the loss from a rollout, or from a minibatch of it."""

    observation: types.NestedTensor  # leaves [n, ...], normalised; [T * E, ...] with a memory
    raw_action: torch.Tensor  # [n, D], or [n] if discrete
    raw_log_prob: torch.Tensor  # [n] of the raw action under the behaviour policy
    value: torch.Tensor  # [n] before the update
    advantage: torch.Tensor  # [n]
    weight: torch.Tensor  # [n] of the advantage, after it is normalised
    target: torch.Tensor  # [n]
    past: networks.Past | tuple[()] = ()  # of a memory


class PPOLearner(on_policy.RolloutLearner[PPOConfig]):
    """A learner of proximal policy optimisation: a few epochs of clipped policy gradients on each rollout.

    Source: Schulman et al. 2017, "Proximal policy optimization algorithms". One loss, of policy, value
    and entropy, trains the whole network; observation and reward statistics are updated once a rollout. The
    generator shuffles the samples.
    """

    def __init__(self, **arguments: Any) -> None:
        """Makes the learner from the other arguments of `RolloutLearner`."""
        super().__init__(losses={"network": self.loss}, **arguments)
        self._agreement = acceleration.Agreement("PPO's updates")

    def restore(self, state: core.State) -> None:
        super().restore(state)
        self._agreement.forget()

    def step_rows(self, data: types.Rollout) -> int:
        return min(super().step_rows(data), self.config.minibatch_size)

    def minimise(
        self, batch: learners.Batch, num_rows: Mapping[str, int]
    ) -> Sequence[tuple[str, learners.Loss]]:
        """Makes a few epochs of gradient steps on shuffled minibatches."""
        rollout: on_policy.RolloutBatch = batch.estimates
        config = self.config
        samples = Samples(
            observation=rollout.observation,
            raw_action=rollout.raw_action,
            # The Jacobian of a squashed action does not change in an update: it cancels in the ratio.
            raw_log_prob=rollout.log_prob,
            value=rollout.value,
            advantage=rollout.advantage,
            weight=rollout.weight,
            target=rollout.target,
            past=rollout.past,
        )
        num_samples = len(tree.flatten(samples.observation)[0])
        num_minibatches = num_samples // config.minibatch_size
        if not num_minibatches:
            raise ValueError(
                f"A rollout must have at least `minibatch_size` ({config.minibatch_size:,}) samples, got "
                f"{num_samples:,}. Lower `minibatch_size`, or learn from longer rollouts."
            )
        rows: list[torch.Tensor] = []
        with self.acceleration.ppo_step(
            self._step_on,
            self.network,
            self.group.optimizer,
            self._agreement,
            alone=self.ranks is None,
            minibatch_size=config.minibatch_size,
            normalize_advantages=config.normalize_advantages,
            max_grad_norm=self.group.max_norm,
            largest_norm=learners.LARGEST,
            written=_WRITTEN,
            **self._loss_settings(),
        ) as step_on:
            for _ in range(config.num_epochs):
                minibatches = (_whole_environments if samples.past else _shuffled)(
                    samples, num_minibatches, self.generator
                )
                rows += [step_on(minibatch) for minibatch in minibatches]
                self.updates.require_finite({"gradients": torch.stack(rows)[:, _NORM]})
                if config.target_kl and self._last_kl(rows) > config.target_kl:
                    break
        mean = dict(zip([*losses.PPOLosses._fields, "grad_norm"], torch.stack(rows).mean(dim=0), strict=True))
        metrics = {
            "loss/policy": mean["policy"],
            "loss/value": mean["value"],
            "policy/entropy": mean["entropy"],
            "policy/approx_kl": rows[-1][_APPROX_KL],  # of the last minibatch
            "policy/approx_kl_first": rows[0][_APPROX_KL],  # 0 except for rounding: nothing has changed yet
            "policy/clip_fraction": mean["clip_fraction"],
            "grad_norm/network": mean["grad_norm"],
            "epochs": len(rows) // num_minibatches,
            **rollout.metrics,
            **rollout.value_metrics(),
        }
        if config.target_kl:
            metrics["kl/approx_rel"] = rows[-1][_APPROX_KL] / config.target_kl
        return [("network", learners.Loss(mean["total"], metrics))]

    def _last_kl(self, rows: list[torch.Tensor]) -> Any:
        """Returns the approximate KL of the last minibatch, of all learners."""
        if self.ranks is not None:
            self.ranks.average_([rows[-1]])
        return learners.read(rows[-1][_APPROX_KL])

    def _step_on(self, minibatch: Samples) -> torch.Tensor:
        """Makes one gradient step; returns `PPOLosses` and the norm of the gradient before clipping, [7]."""
        batch = learners.Batch(minibatch, 1.0, estimates=minibatch)
        loss = self.differentiated["network"](self.networks, batch, None)
        grad_norm = self.updates.descend("network")
        return torch.stack([*loss.metrics.values(), grad_norm]).detach()

    def loss(
        self, nets: networks.ActorCritic, batch: learners.Batch, generator: torch.Generator | None
    ) -> learners.Loss:
        """Computes the loss of a minibatch; its metrics are `losses.PPOLosses`."""
        samples: Samples = batch.estimates
        advantages = samples.weight * self.normalized(samples.advantage)
        policy, value = nets.from_normalized(samples.observation, samples.past)
        loss = losses.ppo_loss(
            log_prob=policy.log_prob(samples.raw_action),
            behaviour_log_prob=samples.raw_log_prob,
            advantages=advantages,
            targets=samples.target,
            value=value,
            behaviour_value=samples.value,
            entropy=policy.entropy(),
            **self._loss_settings(),
        )
        return learners.Loss(loss.total, loss._asdict())

    def _loss_settings(self) -> dict[str, Any]:
        config = self.config
        return {
            "clip_ratio": config.clip_ratio,
            "clip_value": config.clip_value,
            "entropy_coef": config.entropy_coef,
            "value_coef": config.value_coef,
        }


# The methods that a plain step calls; `acceleration` watches the functions of networks and losses.
_WRITTEN = acceleration.Originals(
    (PPOLearner, "_step_on"),
    (on_policy.RolloutLearner, "normalized"),
    (learners.Updates, "descend"),
)


def _shuffled(samples: Samples, num_minibatches: int, generator: torch.Generator) -> Iterator[Samples]:
    """Yields minibatches of samples in random order."""
    order = torch.randperm(len(samples.value), generator=generator, device=samples.value.device)
    columns = [leaf[order].tensor_split(num_minibatches) for leaf in tree.flatten(samples)]
    for parts in zip(*columns, strict=True):
        yield tree.unflatten_as(samples, parts)


def _whole_environments(
    samples: Samples, num_minibatches: int, generator: torch.Generator
) -> Iterator[Samples]:
    """Yields minibatches of all steps of some environments in their order in time, for a memory."""
    assert samples.past
    state, start, burn_in = samples.past
    num_environments = start.shape[1]
    order = torch.randperm(num_environments, generator=generator, device=start.device)
    for chosen in order.tensor_split(num_minibatches):

        def of_chosen(leaf: torch.Tensor, chosen: torch.Tensor = chosen) -> torch.Tensor:
            return leaf.unflatten(0, (-1, num_environments))[:, chosen].flatten(0, 1)

        past = networks.Past(tuple(part[chosen] for part in state), start[:, chosen], burn_in)
        yield tree.map_structure(of_chosen, samples._replace(past=()))._replace(past=past)
