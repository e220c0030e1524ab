"""Playing in the training environments."""

import functools
from collections.abc import Sequence
from typing import Any

import dm_env

from minerva_acme import builders, core, counting, environments, loggers
from minerva_acme.experiments import config as experiment_config
from minerva_acme.experiments import seeds


class Player(core.Saveable):
    """An actor in one environment or several, with an adder for each. Its state is that of the adders."""

    def __init__(
        self,
        config: experiment_config.ExperimentConfig,
        environment: dm_env.Environment | environments.VectorEnvironment,
        *,
        policy: builders.AgentPolicy,
        variable_source: core.VariableSource,
        adders: Sequence[core.Adder],
        counter: counting.Counter,
        logger: loggers.Logger,
    ) -> None:
        """Plays nothing yet.

        Args:
            config: of the run.
            environment: where to play.
            policy: selects the actions.
            variable_source: has the policy's newest weights.
            adders: one for each environment; the caller closes them.
            counter: counts steps and episodes.
            logger: receives each episode's row.
        """
        self._adders = adders
        self._actor: core.Actor | core.VectorActor
        self._loop: environments.EnvironmentLoop | environments.VectorEnvironmentLoop
        shared: dict[str, Any] = {"counter": counter, "logger": logger, "observers": config.observers}
        if isinstance(environment, environments.VectorEnvironment):
            self._actor = config.builder.make_vector_actor(policy, variable_source, adders)
            self._loop = environments.VectorEnvironmentLoop(
                environment=environment, actor=self._actor, **shared
            )
        else:
            self._actor = config.builder.make_actor(policy, variable_source, adders[0])
            self._loop = environments.EnvironmentLoop(environment=environment, actor=self._actor, **shared)

    @property
    def num_environments(self) -> int:
        """How many environments are played at once."""
        return len(self._adders)

    @property
    def num_inserted(self) -> int:
        """Items created since construction, by all adders together."""
        return sum(adder.num_inserted for adder in self._adders)

    def step(self) -> list[environments.EpisodeResult]:
        """Steps every environment; returns the episodes that ended."""
        result = self._loop.step()
        if isinstance(result, list):
            return result
        return [] if result is None else [result]

    def update_weights(self, wait: bool = False) -> None:
        """Takes the newest weights if they are due; with `wait`, in any case."""
        self._actor.update(wait)

    def flush(self) -> None:
        """Returns once everything that was written can be sampled."""
        for adder in self._adders:
            adder.flush()

    def end_episodes(self) -> None:
        """Ends the open episodes where they stand, as a time limit would, losing no transition."""
        for adder in self._adders:
            adder.reset()

    def save(self) -> core.State:
        return [adder.save() if isinstance(adder, core.Saveable) else None for adder in self._adders]

    def restore(self, state: core.State) -> None:
        """Restores the adders, and ends the episodes that were open: the environments begin new ones."""
        for adder, adder_state in zip(self._adders, state, strict=True):
            if isinstance(adder, core.Saveable):
                adder.restore(adder_state)
        self.end_episodes()


def make_environment(
    config: experiment_config.ExperimentConfig, run_seeds: seeds.Seeds
) -> dm_env.Environment | environments.VectorEnvironment:
    """Makes the training environment, or as many as the builder asks for behind one."""
    factories = [
        functools.partial(config.environment_factory, run_seeds.number("environment", index))
        for index in range(config.builder.num_environments)
    ]
    if len(factories) == 1 and not config.environment_processes:
        return factories[0]()
    return environments.make_vector(factories, processes=config.environment_processes)
