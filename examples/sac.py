"""Soft actor-critic on the off-policy kit: networks, three losses and a builder.

    python examples/sac.py --env Pendulum-v1 --num-env-steps 20000

Source: Haarnoja et al. 2018, "Soft actor-critic algorithms and applications". The torsos are this library's
(LayerNorm after the first layer), not two layers of ReLU.
"""

import dataclasses
from typing import Any, NamedTuple

import torch
import tyro
from torch import nn

from minerva_acme import distributions, environments, experiments, learners, networks, specs
from minerva_acme.agents import off_policy


@dataclasses.dataclass(frozen=True, kw_only=True)
class SACConfig(off_policy.TransitionConfig):
    """The kit's settings for replay, and SAC's own."""

    layer_sizes: tuple[int, ...] = (256, 256)
    """Units of each layer."""
    learning_rate: float = 3e-4
    """Learning rate of policy, critics and temperature."""
    target_rate: float = 0.005
    """Share of the way that the target critics move towards the critics in each step."""


class Policy(nn.Module):
    def __init__(
        self, spec: specs.EnvironmentSpec, config: SACConfig, generator: torch.Generator | None
    ) -> None:
        super().__init__()
        low, high = (torch.from_numpy(bound) for bound in specs.bounds(spec.actions))
        size = spec.observations.shape[0]
        self.raw = networks.GaussianPolicy(size, len(low), config.layer_sizes, generator=generator)
        self.squash = distributions.TanhSquash(low, high)

    def forward(self, observation: torch.Tensor) -> distributions.SquashedGaussian:
        return distributions.SquashedGaussian(self.raw(observation), self.squash)


class TwinCritic(nn.Module):
    def __init__(
        self, spec: specs.EnvironmentSpec, config: SACConfig, generator: torch.Generator | None
    ) -> None:
        super().__init__()
        low, high = (torch.from_numpy(bound) for bound in specs.bounds(spec.actions))
        size = spec.observations.shape[0] + len(low)

        def make_critic() -> networks.Critic:
            torso = networks.LayerNormMLP(size, config.layer_sizes, generator=generator)
            head = networks.ScalarHead(torso.output_size, generator=generator)
            return networks.Critic(torso, head, bounds=(low, high))

        self.critics = nn.ModuleList(make_critic() for _ in range(2))

    def forward(self, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return torch.stack([critic(observation, action).mean() for critic in self.critics])  # [2, B]


class Temperature(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.zeros(()))

    def forward(self) -> torch.Tensor:
        return self.log.exp()


class SACNetworks(NamedTuple):
    policy: Policy
    critic: TwinCritic
    target_critic: TwinCritic
    temperature: Temperature


def critic_loss(nets: SACNetworks, batch: learners.Batch, generator: torch.Generator | None) -> learners.Loss:
    """Computes the loss by which both critics regress to the smaller target critic's soft value."""
    data = batch.data  # a `types.Transition`; its discount is 0 at a terminal
    with torch.no_grad():
        action, log_prob = nets.policy(data.next_observation).sample_and_log_prob(generator)
        q = nets.target_critic(data.next_observation, action).amin(dim=0)
        target = data.reward + data.discount * (q - nets.temperature() * log_prob)
    error = nets.critic(data.observation, data.action) - target
    return learners.Loss(error.square().mean(dim=1).sum(), {"q/mean": target.mean()})


def policy_loss(nets: SACNetworks, batch: learners.Batch, generator: torch.Generator | None) -> learners.Loss:
    """Computes the loss by which the policy follows the smaller critic and keeps its entropy."""
    observation = batch.data.observation
    action, log_prob = nets.policy(observation).sample_and_log_prob(generator)
    q = nets.critic(observation, action).amin(dim=0)
    loss = (nets.temperature().detach() * log_prob - q).mean()
    return learners.Loss(loss, {"policy/entropy": -log_prob.detach().mean()})


def temperature_loss(
    nets: SACNetworks, batch: learners.Batch, generator: torch.Generator | None
) -> learners.Loss:
    """Computes the loss by which the temperature keeps the entropy at -1 nat per action dimension."""
    with torch.no_grad():
        _, log_prob = nets.policy(batch.data.observation).sample_and_log_prob(generator)
        error = -log_prob.mean() + batch.data.action.shape[-1]  # entropy above its target
    return learners.Loss(nets.temperature.log * error, {"temperature": nets.temperature().detach()})


class SACBuilder(off_policy.TransitionBuilder[SACNetworks, SACConfig]):
    """The parts of SAC that the kit needs."""

    config_class = SACConfig
    takes_actions = "continuous"

    def make_networks(self, spec: specs.EnvironmentSpec, generator: torch.Generator | None) -> SACNetworks:
        critic = TwinCritic(spec, self.config, generator)
        target = learners.make_target(critic)
        return SACNetworks(Policy(spec, self.config, generator), critic, target, Temperature())

    def make_objectives(self, spec: specs.EnvironmentSpec) -> dict[str, off_policy.Objective]:
        losses: dict[str, Any] = {
            "critic": critic_loss,
            "policy": policy_loss,
            "temperature": temperature_loss,
        }
        rate = self.config.learning_rate
        return {name: off_policy.Objective(loss, rate) for name, loss in losses.items()}

    def update_targets(self, networks: SACNetworks, num_steps: int) -> None:
        learners.update_target(
            networks.target_critic, networks.critic, num_steps, rate=self.config.target_rate
        )


def main(
    env: str = "Pendulum-v1",
    num_env_steps: int = 20_000,
    directory: str = "runs/sac",
    seed: int = 0,
    config: SACConfig = SACConfig(),
) -> experiments.ExperimentResult:
    """Trains and evaluates; with replay in memory, runs with the same seed are equal."""
    return experiments.run_experiment(
        experiments.ExperimentConfig(
            builder=SACBuilder(config),
            environment_factory=lambda seed: environments.make_training_environment(env, seed=seed),
            directory=directory,
            num_env_steps=num_env_steps,
            seed=seed,
            replay="memory",
        )
    )


if __name__ == "__main__":
    result = tyro.cli(main)
    print(result.random, result.before, result.after, sep="\n")
