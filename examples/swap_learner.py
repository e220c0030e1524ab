"""The MPO experiment with your own learner; the other parts are unchanged.

    python examples/swap_learner.py --num-env-steps 20000

The learner is AWAC [Nair et al. 2020]. Its critic regresses to MPO's Retrace targets. Its policy regresses to
the actions in replay, weighted by the exponential of their advantage. There are no duals and no E-step.
"""

from collections.abc import Iterator
from typing import Any

import torch
import tyro

from minerva_acme import (
    builders,
    core,
    counting,
    environments,
    experiments,
    learners,
    loggers,
    losses,
    types,
)
from minerva_acme.agents import mpo
from minerva_acme.agents.mpo import critics, targets


class AWACLearner(learners.ModuleLearner):
    """Advantage-weighted regression on MPO's networks and sequences.

    `ModuleLearner` serves the variables, saves, restores, counts and logs; only `step` is left to write.
    """

    def __init__(
        self,
        networks: mpo.MPONetworks,
        dataset: Iterator[Any],
        critic_target: mpo.CriticTarget,
        config: mpo.MPOConfig,
        counter: counting.Counter,
        logger: loggers.Logger,
        generator: torch.Generator,
    ) -> None:
        self._online, self._target = networks, networks.copy()
        self._q, self._target_q = map(critics.ContinuousCritic, (networks.critic, self._target.critic))
        self._dataset, self._critic_target, self._config = dataset, critic_target, config
        rates = {"policy": config.policy_learning_rate, "critic": config.critic_learning_rate}
        modules = {"policy": networks.policy, "critic": networks.critic}
        optimizers = {name: torch.optim.Adam(modules[name].parameters(), lr=rates[name]) for name in rates}
        super().__init__(
            modules=modules | {"target_policy": self._target.policy, "target_critic": self._target.critic},
            variables=["policy", "critic"],
            updates=learners.Updates(
                {name: learners.Group(adam, config.max_grad_norm) for name, adam in optimizers.items()},
                modules=list(networks),
                max_skipped_batches=config.max_skipped_batches,
            ),
            counter=counter,
            logger=logger,
            generator=generator,
        )

    def step(self) -> None:
        batch = learners.next_batch(self._dataset, types.Trajectory, "TrajectoryLayout")
        first, action = batch.observation[:, 0], batch.action[:, 0]
        with self.updates.guarded(self.num_steps, batch) as metrics:  # a bad batch is skipped
            if self.num_steps % self._config.target_critic_update_period == 0:
                for slow, fast in zip(self._target, self._online, strict=True):
                    slow.load_state_dict(fast.state_dict())
            policy = self._online.policy(batch.observation)
            policy_0 = policy.at((slice(None), 0))
            with torch.no_grad():
                discount_t = batch.discount * self._config.discount
                target = self._critic_target(batch, discount_t, policy, self._target_q, self.generator)
                value = targets.sampled_values(first, policy_0, self._target_q, 8, self.generator)
                advantage = self._target_q(first, action) - value
                weight = (advantage / advantage.std().clamp(min=1e-6)).exp().clamp(max=20.0)
            q = self._q(first, action)
            critic_loss = losses.critic_loss(q, learners.at(target, (slice(None), 0)), batch.mask[:, 0])
            policy_loss = -(weight * policy_0.log_prob(batch.extras.raw_action[:, 0])).mean()
            for name, loss in (("critic", critic_loss), ("policy", policy_loss)):
                metrics[f"grad_norm/{name}"] = self.updates.minimise(name, loss)
            metrics |= {"loss/critic": critic_loss.detach(), "loss/policy": policy_loss.detach()}
        self.finish_step(metrics)


class AWACBuilder(mpo.MPOBuilder):
    """MPO's tables, adder, dataset, policies and schedule, with another learner."""

    def make_learner(self, parts: builders.LearnerParts[mpo.MPONetworks]) -> core.Learner:
        return AWACLearner(
            networks=parts.networks,
            dataset=parts.dataset,
            critic_target=self.make_critic_target(),
            config=self.config,
            counter=parts.counter,
            logger=parts.logger,
            generator=parts.generator,
        )


def main(
    env: str = "dm_control/cartpole/swingup",
    num_env_steps: int = 20_000,
    directory: str = "runs/awac",
    from_run: str | None = None,
    config: mpo.MPOConfig = mpo.PRESETS["control"],
) -> experiments.ExperimentResult:
    """Trains like `minerva train mpo`, but with the AWAC learner."""
    return experiments.run_experiment(
        experiments.ExperimentConfig(
            builder=AWACBuilder(config),  # with mpo.MPOBuilder(config) it is plain MPO
            environment_factory=lambda seed: environments.make_training_environment(env, seed=seed),
            directory=directory,
            num_env_steps=num_env_steps,
            from_run=from_run,  # such as a run of MPO: networks and replay fit, the duals are left
        )
    )


if __name__ == "__main__":
    result = tyro.cli(main)
    print(result.random, result.before, result.after, sep="\n")
