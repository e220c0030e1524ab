"""The parts that a run is made of."""

import contextlib
import functools
import logging
import pathlib
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import dm_env

from minerva_acme import builders, core, counting, environments, loggers, specs
from minerva_acme.adders import acme_shaped
from minerva_acme.environments import loop, multi_agent
from minerva_acme.experiments import checkpointing, provenance, run_folder, run_lock, run_logs, seeds
from minerva_acme.experiments import config as experiment_config
from minerva_acme.replay import backends
from minerva_acme.replay import base as replay

_logger = logging.getLogger(__name__)


class Parts:
    """Makes the parts of a run, in the order in which data flows, and holds them."""

    def __init__(self, config: experiment_config.ExperimentConfig, resources: contextlib.ExitStack) -> None:
        """Makes all parts.

        Args:
            config: of the run.
            resources: closes them.

        Raises:
            ValueError: the agent cannot handle the environment, the folder holds another run, or that run
                is going on.
        """
        builder, device = config.builder, config.torch_device
        self.config = config
        self.seeds = seeds.Seeds(config.seed)
        self.counter = counting.Counter()
        # Before any part is made, for what is made may draw from them; given back when all parts are closed.
        self.generators = seeds.GlobalGenerators(device)
        resources.enter_context(self.generators.seeded(self.seeds))

        # First, so that an agent that cannot act in the environment says so before anything is written.
        self.environment = make_environment(config, lambda index: self.seeds.number("environment", index))
        resources.callback(self.environment.close)
        # An environment and a vector of them tell their specs alike.
        self.spec = specs.make_environment_spec(self.environment)
        builder.check_spec(self.spec)

        # Before anything is written, and until all that writes is closed.
        resources.enter_context(run_lock.hold(config.directory))
        description = run_folder.describe(config, self.environment)
        description.write(pathlib.Path(config.directory))
        provenance.note(pathlib.Path(config.directory))
        for reason in description.unknown.values():
            _logger.warning("%s cannot be continued from its folder alone: %s", config.directory, reason)
        self.checkpoint = checkpointing.find_to_resume(config.directory, config.resume_from)
        self.checkpointer = checkpointing.Checkpointer(
            pathlib.Path(config.directory, "checkpoints"),
            config.checkpoint_keep,
            keep_best=config.checkpoint_best,
        )
        self.tables = builder.make_replay_tables(self.spec)
        self.client = self._open_replay(resources)

        self.logs = run_logs.RunLogs(config, description.summary(), resources)
        self._networks = builder.make_networks(self.spec, self.seeds.generator("networks"))
        dataset = builder.make_dataset(self.client, self.spec, device)
        if hasattr(dataset, "close"):
            resources.callback(dataset.close)
        self.learner = builder.make_learner(
            networks=self._networks,
            dataset=dataset,
            client=self.client,
            spec=self.spec,
            counter=counting.Counter(self.counter, "learner"),
            logger=self.logs.learner,
            generator=self.seeds.generator("learner", device),
            device=device,
            num_learner_steps=num_learner_steps(config),
        )
        self.policy = builder.make_policy(
            self._networks, self.spec, self.seeds.generator("policy"), counter=self.counter
        )
        self.adders = [
            resources.enter_context(acme_shaped.complete(builder.make_adder(self.client, self.spec)))
            for _ in range(builder.num_environments if config.num_env_steps else 0)
        ]
        self.actor, self._loop = make_actor_and_loop(
            config,
            environment=self.environment,
            policy=self.policy,
            variable_source=self.learner,
            adders=self.adders,
            counter=self.counter,
            logger=self.logs.actor,
        )

    def play_step(self) -> list[environments.EpisodeResult]:
        """Steps every environment, if the run plays; returns the episodes that ended."""
        return self._loop.step() if self.config.num_env_steps else []

    def end_episodes(self) -> None:
        """Ends open episodes where they stand, as a time limit would; the next step begins new ones.

        They keep their transitions, but have no result and are not counted.
        """
        for adder in self.adders:
            adder.reset()
        self._loop.reset()

    @property
    def steps(self) -> int:
        """Steps made so far, by what the run is measured in: environment steps, or else learner steps."""
        return self.count(self.config.steps_key)

    @property
    def env_steps(self) -> int:
        """Environment steps made so far."""
        return self.count("actor_steps")

    def count(self, name: str) -> int:
        """Returns one of the run's counts, such as `learner_steps`."""
        return int(self.counter.get_counts().get(name, 0))

    def make_evaluation_actor(self, in_vector: bool = False) -> core.Actor | core.VectorActor:
        """Makes an actor with the policy for evaluation, seeded by the step; `in_vector`: a vector actor."""
        builder, generator = self.config.builder, self.seeds.generator("evaluation", index=self.steps)
        policy = builder.make_policy(self._networks, self.spec, generator, evaluation=True)
        make = builder.make_vector_actor if in_vector else builder.make_actor
        return make(policy, self.learner)

    def _open_replay(self, resources: contextlib.ExitStack) -> replay.ReplayClient:
        """Starts the replay server with what the checkpoint holds, and returns a client."""
        # Where the server writes its part of a checkpoint, which is then moved into it: on the same disk.
        scratch = self.checkpointer.directory / ".replay"
        shutil.rmtree(scratch, ignore_errors=True)
        resources.callback(shutil.rmtree, scratch, ignore_errors=True)
        files = checkpointing.replay_folder(self.checkpoint) if self.checkpoint else None
        try:
            server = backends.make_server(
                self.tables,
                self.config.replay if self.tables else "memory",
                seed=self.seeds.number("replay"),
                device=str(self.config.torch_device),
                checkpoint_directory=str(scratch),
                restore_from=str(files) if files else None,
            )
        except replay.ReplayError:
            if files is not None and self.checkpoint is not None:  # its tables may be those of several actors
                checkpointing.check_of_one_process(self.checkpoint, checkpointing.load_state(self.checkpoint))
            raise
        return resources.enter_context(resources.enter_context(server).client())


def num_learner_steps(config: experiment_config.ExperimentConfig) -> int:
    """The learner steps of the whole run: its own number, or where it plays, the agent's."""
    return config.num_learner_steps or config.builder.num_learner_steps(config.num_env_steps)


def make_environment(
    config: experiment_config.ExperimentConfig, seed: Callable[[int], int]
) -> dm_env.Environment | environments.VectorEnvironment:
    """Makes the environments that an actor plays in: one, or a vector of as many as the agent has.

    Args:
        config: of the run.
        seed: gives the seed of each by its index.

    Raises:
        ValueError: the agent cannot be trained in the vector that came.
    """
    factories: list[Callable[[], Any]] = [
        functools.partial(config.environment_factory, seed(index))
        for index in range(config.builder.num_environments)
    ]
    if config.environment_processes:
        made: dm_env.Environment | environments.VectorEnvironment = environments.make_vector(
            factories, processes=True
        )
    else:
        made = factories[0]()
        _check_environment(made)
        if len(factories) > 1 and not isinstance(made, environments.VectorEnvironment):
            first = made
            made = environments.make_vector([lambda: first, *factories[1:]], processes=False)
    try:
        _check_vector(made, config.builder)
    except ValueError:
        made.close()
        raise
    return made


def make_actor_and_loop(
    config: experiment_config.ExperimentConfig,
    *,
    environment: dm_env.Environment | environments.VectorEnvironment,
    policy: builders.AgentPolicy,
    variable_source: core.VariableSource,
    adders: Sequence[core.Adder],
    counter: counting.Counter,
    logger: loggers.Logger,
) -> tuple[core.Actor | core.VectorActor, loop.Loop[Any, Any]]:
    """Makes the actor, and the loop that it plays in."""
    builder = config.builder
    actor: core.Actor | core.VectorActor
    make_loop: Any  # both loops take the same
    if isinstance(environment, environments.VectorEnvironment):
        actor = builder.make_vector_actor(policy, variable_source, adders)
        make_loop = environments.VectorEnvironmentLoop
    else:
        actor = builder.make_actor(policy, variable_source, *adders)
        make_loop = environments.EnvironmentLoop
    return actor, make_loop(
        environment=environment,
        actor=actor,
        counter=counting.Counter(counter, "actor"),
        logger=logger,
        observers=config.observers,
    )


def _check_environment(environment: Any) -> None:
    """Raises ValueError unless it can tell what is observed, as dm_env's do."""
    if hasattr(environment, "observation_spec"):
        return
    multi_agent.check_is_of_one_agent(environment)
    name = type(environment).__name__
    if hasattr(environment, "observation_space"):
        raise ValueError(
            f"`environment_factory` must return an environment of dm_env, got one of Gymnasium's, {name}. "
            "Wrap it: environments.make_training_environment(...) takes it as it is."
        )
    raise ValueError(
        f"`environment_factory` must return an environment, got {name}. Return what it made, a "
        "`dm_env.Environment` or a `VectorEnvironment`."
    )


def _check_vector(
    environment: dm_env.Environment | environments.VectorEnvironment, builder: builders.AgentBuilder[Any]
) -> None:
    """Checks that an agent can be trained in environments that came as a vector.

    Raises:
        ValueError: they are not as many as the agent plays, or cannot give what it bootstraps from.
    """
    if not isinstance(environment, environments.VectorEnvironment):
        return
    found, expected = environment.num_environments, builder.num_environments
    if found != expected:
        raise ValueError(
            f"`environment_factory` must make a vector of the agent's {expected} environments, got one of "
            f"{found}. Set `num_environments` of the agent's config to {found}, or make another vector."
        )
    if builder.bootstraps and not environment.gives_last_observation:
        raise ValueError(
            f"{type(builder).__name__} bootstraps from the last observation of an episode, which "
            f"{type(environment).__name__} does not give (`gives_last_observation` is False): it would learn "
            "from that of another state. Reset in the next step, add `final_obs` to the infos, or train an "
            "agent whose builder says `bootstraps` False."
        )
