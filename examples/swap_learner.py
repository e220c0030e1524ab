"""The MPO experiment with its learner swapped for one's own; the other parts do not notice.

    python examples/swap_learner.py --num-env-steps 20000

This learner is that of AWAC [Nair et al. 2020]: the critic regresses to MPO's Retrace targets, the policy
to the actions in replay, weighted by the exponential of their advantage. No duals, no E-step.
"""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import tyro

from minerva_acme import core, distributions, environments, experiments, learners, losses, types
from minerva_acme.agents import mpo
from minerva_acme.agents.mpo import targets


class AWACLearner(core.Learner):
    """Advantage-weighted regression on MPO's networks and MPO's sequences."""

    def __init__(
        self,
        networks: mpo.MPONetworks,
        dataset: Iterator[Any],
        critic_target: mpo.CriticTarget,
        config: mpo.MPOConfig,
        log: learners.StepLog,
        generator: torch.Generator,
    ) -> None:
        self._online, self._target = networks, networks.copy()
        self._optimizers = {
            "policy": torch.optim.Adam(networks.policy.parameters(), lr=config.policy_learning_rate),
            "critic": torch.optim.Adam(networks.critic.parameters(), lr=config.critic_learning_rate),
        }
        self._dataset, self._critic_target, self._config = dataset, critic_target, config
        self._log, self._generator = log, generator
        self._num_steps = 0

    def step(self) -> None:
        if self._num_steps % self._config.target_critic_update_period == 0:
            for slow, fast in zip(self._target, self._online, strict=True):
                slow.load_state_dict(fast.state_dict())
        batch: types.Trajectory = next(self._dataset).data  # [B, T + 1] observations, [B, T] the rest
        first, action = batch.observation[:, 0], batch.action[:, 0]
        policy = self._online.policy(batch.observation)
        policy_0 = distributions.DiagonalGaussian(policy.mean[:, 0], policy.log_std[:, 0])
        with torch.no_grad():
            discount_t = batch.discount * self._config.discount
            target = self._critic_target(batch, discount_t, policy, self._target.critic, self._generator)
            value = targets.sampled_values(first, policy_0, self._target.critic, 8, self._generator)
            advantage = self._target.critic(first, action) - value
            weight = (advantage / advantage.std().clamp(min=1e-6)).exp().clamp(max=20.0)

        q = self._online.critic(first, action)
        critic_loss = losses.critic_loss(q[:, None], target[:, :1], batch.mask[:, :1])
        policy_loss = -(weight * policy_0.log_prob(batch.extras.raw_action[:, 0])).mean()
        for name, loss in (("critic", critic_loss), ("policy", policy_loss)):
            self._optimizers[name].zero_grad()
            loss.backward()
            self._optimizers[name].step()
        self._num_steps += 1
        self._log.write({"loss/q": critic_loss.detach(), "loss/policy": policy_loss.detach()})

    def get_variables(self, names: Sequence[str]) -> list[types.NestedArray]:
        return learners.variables_of(self._online._asdict(), names)

    def save(self) -> core.State:
        state = {"num_steps": self._num_steps, "generator": self._generator.get_state()}
        return copy.deepcopy(state | {"parts": [part.state_dict() for part in self._parts()]})

    def restore(self, state: core.State) -> None:
        self._num_steps = state["num_steps"]
        self._generator.set_state(state["generator"].cpu())
        for part, saved in zip(self._parts(), state["parts"], strict=True):
            part.load_state_dict(saved)

    def _parts(self) -> list[Any]:
        return [*self._online, *self._target, *self._optimizers.values()]


class AWACBuilder(mpo.MPOBuilder):
    """MPO's tables, adder, dataset, policies and schedule, and a learner of one's own."""

    def make_learner(
        self, *, networks: mpo.MPONetworks, counter: Any, logger: Any, **parts: Any
    ) -> core.Learner:
        return AWACLearner(
            networks=networks,
            dataset=parts["dataset"],
            critic_target=self.make_critic_target(),
            config=self.config,
            log=learners.StepLog(counter, logger),
            generator=parts["generator"],
        )


def main(
    env: str = "dm_control/cartpole/swingup",
    num_env_steps: int = 20_000,
    directory: str = "runs/awac",
    config: mpo.MPOConfig = mpo.PRESETS["control"],
) -> experiments.ExperimentResult:
    """Trains as `minerva train mpo` does, with the other learner."""
    return experiments.run_experiment(
        experiments.ExperimentConfig(
            builder=AWACBuilder(config),  # mpo.MPOBuilder(config) is the experiment as it was
            environment_factory=lambda seed: environments.make_training_environment(env, seed=seed),
            directory=directory,
            num_env_steps=num_env_steps,
        )
    )


if __name__ == "__main__":
    result = tyro.cli(main)
    print(result.random, result.before, result.after, sep="\n")
