"""Makes the parts of PPO."""

from collections.abc import Iterator
from typing import Any

import torch

from minerva_acme import core, counting, loggers, networks, specs
from minerva_acme.agents import on_policy
from minerva_acme.agents.ppo import config as ppo_config
from minerva_acme.agents.ppo import learner
from minerva_acme.replay import base as replay


class PPOBuilder(on_policy.OnPolicyBuilder[ppo_config.PPOConfig]):
    """PPO over rollouts. Every part can be swapped by overriding its `make_` method."""

    @property
    def name(self) -> str:
        return "PPO"

    @property
    def learner_step(self) -> str:
        config = self._config
        times = f"at most {config.num_epochs:,} times over it in minibatches of {config.minibatch_size:,}"
        return f"{super().learner_step}, {times}"

    @property
    def _records_parameters(self) -> bool:
        return False

    def make_learner(
        self,
        *,
        networks: networks.ActorCritic,
        dataset: Iterator[Any],
        client: replay.ReplayClient | None = None,
        spec: specs.EnvironmentSpec,
        counter: counting.Counter,
        logger: loggers.Logger,
        generator: torch.Generator,
        device: torch.device,
        num_learner_steps: int | None = None,
    ) -> core.Learner:
        network = networks.to(device)
        return learner.PPOLearner(
            network=network,
            dataset=dataset,
            preparer=self._preparer(network, spec, device),
            config=self._config,
            num_updates=num_learner_steps,
            make_optimizer=self.make_optimizer,
            counter=counter,
            logger=logger,
            generator=generator,
        )
