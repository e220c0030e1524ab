"""Makes the parts of V-MPO."""

from collections.abc import Iterator
from typing import Any

import torch

from minerva_acme import core, counting, loggers, losses, networks, specs
from minerva_acme.agents import on_policy
from minerva_acme.agents.vmpo import config as vmpo_config
from minerva_acme.agents.vmpo import learner
from minerva_acme.replay import base as replay


class VMPOBuilder(on_policy.OnPolicyBuilder[vmpo_config.VMPOConfig]):
    """V-MPO over rollouts. Every part can be swapped by overriding its `make_` method."""

    @property
    def name(self) -> str:
        return "V-MPO"

    @property
    def _records_parameters(self) -> bool:
        return True  # for the KLs

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
        config, network = self._config, networks.to(device)
        return learner.VMPOLearner(
            network=network,
            duals=losses.VMPODuals(init_temperature=config.init_temperature, init_alpha=config.init_alpha).to(
                device
            ),
            dataset=dataset,
            preparer=self._preparer(network, spec, device),
            config=config,
            num_updates=num_learner_steps,
            make_optimizer=self.make_optimizer,
            counter=counter,
            logger=logger,
            generator=generator,
        )
