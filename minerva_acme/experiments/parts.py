"""The parts of a run."""

import contextlib
import dataclasses
import functools
import pathlib
import shutil
from collections.abc import Callable, Sequence
from typing import Any

from minerva_acme import builders, core, counting, datasets, environments, learners, loggers, specs, types
from minerva_acme.adders import acme_shaped
from minerva_acme.environments import loop, multi_agent, scene, vector
from minerva_acme.experiments import beginning, evaluator, seeds, starting
from minerva_acme.replay import backends
from minerva_acme.replay import base as replay
from minerva_acme.runs import checkpointing, evaluation, run_logs
from minerva_acme.runs import config as experiment_config

RECORDED = "recorded.episodes"
"""The file in a run's folder that holds the episodes that it has recorded."""


class Parts:
    """Makes the parts of a run, in the order in which data flows, and holds them."""

    def __init__(self, config: experiment_config.ExperimentConfig, resources: contextlib.ExitStack) -> None:
        """Makes all parts.

        Args:
            config: The run's config.
            resources: A stack that closes the parts.

        Raises:
            ValueError: The agent cannot handle the environment, the folder holds another run, or another
                process is using it.
        """
        device = config.torch_device
        self.config = config
        self._steps_key = config.steps_key
        self.seeds = seeds.Seeds(config.seed)
        self.counter = counting.Counter()
        # Seeded before any part is made, since making parts may draw from them; restored after all parts are
        # closed.
        self.generators = seeds.GlobalGenerators(device)
        resources.enter_context(self.generators.seeded(self.seeds))

        self.environment = make_environment(config, lambda index: self.seeds.number("environment", index))
        resources.callback(self.environment.close)
        self.scene = scene.of(self.environment)
        if not self.scene.has_timesteps:
            config = _for_batches(config, self.scene)
        builder = config.builder
        self.beginning = beginning.begin(config, self.environment, resources)
        self.spec = self.beginning.spec
        self.checkpointer = make_checkpointer(config, self.beginning.player)
        self.tables = builder.make_replay_tables(self.spec)
        self.has_old_replay = False
        self.client = self._open_replay(resources)

        self.demonstrations = make_demonstrations(self, resources)
        self.recorder = make_recorder(self, resources)

        self.logs = run_logs.RunLogs(config, self.beginning.description.summary(), resources)
        self._networks = builder.make_networks(self.spec, self.seeds.generator("networks"))
        self.learner, self.dataset = make_learner(
            config,
            self.beginning.player,
            networks=self._networks,
            spec=self.spec,
            client=self.demonstrations.mixed_with(self.client) if self.demonstrations else self.client,
            run_seeds=self.seeds,
            counter=self.counter,
            logger=self.logs.learner,
            resources=resources,
        )
        policy = builder.make_policy(
            self._networks,
            self.spec,
            self.seeds.generator("policy", self.scene.device),
            counter=self.counter,
        )
        self.policy = builders.check_made(builder, "make_policy", policy)
        self.adders: list[Any] = []
        if config.num_env_steps:
            self.adders = make_adders(config, self.scene, self.client, self.spec, resources)
        if self.recorder is not None:
            self.adders = [
                resources.enter_context(datasets.RecordingAdder(self.recorder.record, adder))
                for adder in self.adders
            ]
        self.actor, self._loop = make_actor_and_loop(
            config,
            scene=self.scene,
            policy=self.policy,
            variable_source=self.learner,
            adders=self.adders,
            counter=self.counter,
            logger=self.logs.actor,
        )

    def play_step(self) -> list[environments.EpisodeResult]:
        """Steps every environment, if the run makes environment steps. Returns the episodes that ended."""
        return self._loop.step() if self.config.num_env_steps else []

    def is_between_episodes(self, ended: Sequence[environments.EpisodeResult]) -> bool:
        """Returns whether no episode is open after a step that ended these. In a batch that is not known."""
        return self.scene.has_timesteps and len(ended) == len(self.adders)

    def end_episodes(self) -> None:
        """Ends open episodes at their current step, as a time limit would; the next step begins new ones.

        Their transitions are kept, but they have no result and are not counted.
        """
        for adder in self.adders:
            adder.reset()
        self._loop.reset()

    @property
    def steps(self) -> int:
        """The steps made so far: environment steps or, if the run makes none, learner steps."""
        return self.count(self._steps_key)

    @property
    def env_steps(self) -> int:
        """The environment steps made so far."""
        return self.count("actor_steps")

    def count(self, name: str) -> int:
        """Returns one of the run's counts, such as `learner_steps`."""
        return int(self.counter.get_count(name))

    def make_evaluation_actor(
        self, environment: experiment_config.Environment | None = None
    ) -> evaluation.Actor:
        """Makes an actor for evaluation in an environment, None for a single one, seeded by the step."""
        return make_evaluation_actor(self, self._networks, self.learner, environment)

    def _open_replay(self, resources: contextlib.ExitStack) -> replay.ReplayClient:
        """Starts the replay server with the contents of the checkpoint, and returns a client."""
        # The server writes its part of a checkpoint here, on the same disk; then that is moved into the
        # checkpoint.
        scratch = self.checkpointer.directory / ".replay"
        shutil.rmtree(scratch, ignore_errors=True)
        resources.callback(shutil.rmtree, scratch, ignore_errors=True)

        def make(restore_from: str | None) -> replay.ReplayServer:
            self.has_old_replay = restore_from is not None
            return backends.make_server(
                self.tables,
                "memory" if self.config.dataset or not self.tables else self.config.replay,
                seed=self.seeds.number("replay"),
                device=str(self.config.torch_device),
                checkpoint_directory=str(scratch),
                restore_from=restore_from,
            )

        files = self.beginning.replay_files
        is_kept = self.tables and not any(table.max_times_sampled for table in self.tables)
        if self.beginning.is_taken_over:  # its tables may differ
            server = backends.restore_or_begin_empty(make, files)
        elif self.config.from_run and not self.beginning.checkpoint and is_kept and not self.config.dataset:
            server = starting.open_replay(make, self.config.from_run, self.beginning.description)
        else:
            server = make(files)
        return resources.enter_context(resources.enter_context(server).client())


def make_checkpointer(
    config: experiment_config.ExperimentConfig, player: checkpointing.Player
) -> checkpointing.Checkpointer:
    """Makes the checkpointer of a run."""
    return checkpointing.Checkpointer(
        pathlib.Path(config.directory, "checkpoints"),
        config.checkpoint_keep,
        keep_best=config.checkpoint_best,
        player=player,
    )


def make_learner(
    config: experiment_config.ExperimentConfig,
    player: checkpointing.Player,
    *,
    networks: Any,
    spec: specs.EnvironmentSpec,
    client: replay.ReplayClient,
    run_seeds: seeds.Seeds,
    counter: counting.Counter,
    logger: loggers.Logger,
    resources: contextlib.ExitStack,
    ranks: learners.Ranks | None = None,
    share: Callable[[Any], Any] = lambda dataset: dataset,
) -> tuple[core.Learner, Any]:
    """Makes the learner of a run, and the dataset that it learns from.

    Args:
        config: The experiment's config, whose builder is the one for the player's actors.
        player: The run's player.
        networks: The networks that `make_networks` returned.
        spec: The environment's spec.
        client: The client of the run's replay.
        run_seeds: The run's seeds.
        counter: The run's counter.
        logger: The learner's logger.
        resources: A stack that closes the dataset.
        ranks: The learners that share every batch, or None if there is one.
        share: Makes what the learner takes its batches from, of the dataset.

    Raises:
        ValueError: The learner does not use `ranks`.
    """
    builder, device = config.builder, config.torch_device
    if ranks is not None:
        builder = builder.for_learners(ranks.size)
    dataset = builders.check_made(builder, "make_dataset", builder.make_dataset(client, spec, device))
    if hasattr(dataset, "close"):
        resources.callback(dataset.close)
    # The ratio of learner steps to environment steps may differ between players.
    num_env_steps = max(0, config.num_env_steps - player.env_steps)
    num_learner_steps = config.num_learner_steps or (
        player.learner_steps + config.builder.num_learner_steps(num_env_steps)
    )

    def share_done(learner_steps: int) -> float:
        planned = min(1.0, learner_steps / num_learner_steps)
        env_steps = counter.get_count("actor_steps")
        if ranks is not None or not (env_steps and config.num_env_steps):
            return planned  # Several learners do not hear of an environment step at the same time.
        # Short episodes can bring more items, and so more learner steps, than environment steps let expect.
        return min(planned, env_steps / config.num_env_steps)

    learner = builder.make_learner(
        builders.LearnerParts(
            networks=networks,
            dataset=share(dataset),
            client=client,
            spec=spec,
            counter=counting.Counter(counter, "learner"),
            logger=logger,
            generator=run_seeds.generator("learner", device),
            device=device,
            share_done=share_done if num_learner_steps else None,
            ranks=ranks,
        )
    )
    builders.check_made(builder, "make_learner", learner)
    if ranks is not None and getattr(learner, "ranks", None) is not ranks:
        raise ValueError(
            f"`make_learner` of {type(builder).__name__} must give the `ranks` of its `LearnerParts` to "
            f"`learners.Updates`, to make one of {ranks.size} learners, but {type(learner).__name__} has "
            "none. Do so, or train with one learner."
        )
    return learner, dataset


def make_demonstrations(run: Parts, resources: contextlib.ExitStack) -> datasets.Demonstrations | None:
    """Makes the recorded episodes in a run's batches, or None if it has none; `resources` closes them.

    A run with a `dataset` has batches of nothing else.

    Raises:
        ValueError: They cannot be read, do not match the environment, or the agent cannot learn from them.
    """
    config, builder, spec = run.config, run.config.builder, run.spec
    path = config.dataset or config.demonstrations
    if path is None:
        return None
    first, last = config.demonstration_share, config.final_demonstration_share
    if config.dataset:
        first, last = 1.0, None

    def share() -> float:
        if last is None:
            return first
        # By environment steps: how many learner steps these bring depends on the lengths of episodes.
        return first + (last - first) * min(1.0, run.env_steps / config.num_env_steps)

    on_device = config.torch_device.type != "cpu" and run.tables
    return resources.enter_context(
        datasets.Demonstrations(
            datasets.read(path, max_unpacked_gigabytes=config.max_unpacked_gigabytes),
            tables=run.tables,
            make_adder=lambda client: acme_shaped.complete(builder.make_adder(client, spec)),
            spec=spec,
            extras_spec=builder.extras_spec(spec),
            share=share,
            seed=run.seeds.number("demonstrations"),
            device=str(config.torch_device)
            if on_device and (config.dataset or backends.choose(run.tables, config.replay) == "memory")
            else None,
        )
    )


def make_recorder(run: Parts, resources: contextlib.ExitStack) -> datasets.Recorder | None:
    """Makes the recorder of a run's episodes, or None if they are not recorded; `resources` closes it.

    Raises:
        ValueError: The environment's episodes cannot be recorded.
    """
    if run.config.record is None:
        return None
    return resources.enter_context(
        datasets.Recorder(
            run.config.record,
            pathlib.Path(run.config.directory, RECORDED),
            run.spec,
            run.beginning.description.origin(),
        )
    )


def make_adders(
    config: experiment_config.ExperimentConfig,
    scene: scene.Scene,
    client: replay.ReplayClient,
    spec: specs.EnvironmentSpec,
    resources: contextlib.ExitStack,
) -> list[Any]:
    """Makes what an actor writes with, such as an adder for each environment; `resources` closes it."""
    builder = config.builder

    def make_adder() -> core.Adder:
        made = builders.check_made(builder, "make_adder", builder.make_adder(client, spec))
        return acme_shaped.complete(made)

    made = scene.make_adders(builder, client, spec, make_adder)
    return [resources.enter_context(adder) for adder in made]


def make_evaluation_actor(
    run: evaluator.EvaluatedRun,
    networks: Any,
    variable_source: core.VariableSource | None,
    environment: experiment_config.Environment | None,
) -> evaluation.Actor:
    """Makes an actor with the policy for evaluation, seeded by the step.

    Args:
        run: The run.
        networks: The policy's networks.
        variable_source: The source of their weights; None leaves them unchanged.
        environment: The environment, vector or batched environment to act in; None for a single one.
    """
    played = scene.of(environment)
    builder = played.placed(run.config.builder)
    generator = run.seeds.generator("evaluation", played.device, index=run.steps)
    policy = builder.make_policy(networks, run.spec, generator, evaluation=True)
    if variable_source is not None and builder.evaluation_variables != builder.policy_variables:
        variable_source = _ForEvaluation(variable_source, builder)
    return _make_actor(builder, played, policy, variable_source, ())


class _ForEvaluation(core.VariableSource):
    """Serves the variables to evaluate by under the names of those that actors ask for."""

    def __init__(self, source: core.VariableSource, builder: builders.AgentBuilder[Any]) -> None:
        self._source = source
        self._names = dict(zip(builder.policy_variables, builder.evaluation_variables, strict=True))

    def get_variables(self, names: Sequence[str]) -> list[types.NestedArray]:
        found = self.poll_variables(names)
        assert found is not None
        return found.values

    def poll_variables(
        self, names: Sequence[str], newer_than: int | None = None
    ) -> core.VersionedVariables | None:
        return self._source.poll_variables([self._names[name] for name in names], newer_than)


def _make_actor(
    builder: builders.AgentBuilder[Any],
    played: scene.Scene,
    policy: builders.AgentPolicy,
    variable_source: core.VariableSource | None,
    adders: Sequence[Any],
) -> evaluation.Actor:
    actor: evaluation.Actor = played.make_actor(builder, policy, variable_source, adders)
    return builders.check_made(builder, "make_actor", actor)


def make_environment(
    config: experiment_config.ExperimentConfig, seed: Callable[[int], int]
) -> experiment_config.Environment:
    """Makes the environments that an actor plays in: one, or a vector or batch of all the agent's ones.

    Args:
        config: The run's config.
        seed: Returns the seed of an environment by its index.

    Raises:
        ValueError: The factory returned something other than an environment, or a vector or batch that the
            agent cannot be trained in.
    """
    factories: list[Callable[[], Any]] = [
        functools.partial(config.environment_factory, seed(index))
        for index in range(config.builder.num_environments)
    ]
    if config.environment_processes:
        made: experiment_config.Environment = environments.make_vector(factories, processes=True)
    else:
        made = factories[0]()
        _check_environment(made)
        if len(factories) > 1 and not scene.of(made).holds_several:
            first: Any = made
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
    scene: scene.Scene,
    policy: builders.AgentPolicy,
    variable_source: core.VariableSource,
    adders: Sequence[Any],
    counter: counting.Counter,
    logger: loggers.Logger,
) -> tuple[evaluation.Actor, loop.Loop[Any, Any]]:
    """Makes the actor, and the loop that it plays in."""
    actor = _make_actor(config.builder, scene, policy, variable_source, adders)
    own_counter = counting.Counter(counter, "actor")
    return actor, scene.make_loop(actor, counter=own_counter, logger=logger, observers=config.observers)


def _check_environment(environment: Any) -> None:
    """Raises ValueError unless it has the methods of a dm_env environment."""
    if hasattr(environment, "observation_spec"):
        return
    multi_agent.check_is_of_one_agent(environment)
    name = type(environment).__name__
    if hasattr(environment, "num_envs"):
        raise ValueError(
            f"`environment_factory` must return an environment of this library's form, got the vector "
            f"{name}. Wrap it: {vector.VECTORS_OF_GYMNASIUM}"
        )
    if hasattr(environment, "observation_space"):
        raise ValueError(
            f"`environment_factory` must return a dm_env environment, got one of Gymnasium, {name}. "
            "Wrap it: environments.make_training_environment(...) accepts Gymnasium environments."
        )
    raise ValueError(
        f"`environment_factory` must return an environment, got {name}. Return the one that it makes, a "
        "`dm_env.Environment`, a `VectorEnvironment` or a `BatchedEnvironment`."
    )


def _for_batches(
    config: experiment_config.ExperimentConfig, played: scene.Scene
) -> experiment_config.ExperimentConfig:
    """Returns a config whose builder makes parts for a batched environment.

    Raises:
        ValueError: The run needs timesteps of single environments, the environment's tensors are not on its
            device, or the agent cannot be trained in such an environment.
    """
    environment = played.environment
    name = type(environment).__name__
    in_batches = () if config.evaluation_environment_factory else ("evaluation_observers",)
    for option in ("record", "demonstrations", "dataset", "observers", *in_batches):
        if found := getattr(config, option):
            raise ValueError(
                f"`{option}` must be left out in a batched environment, {name}, which has no timesteps of "
                f"single environments, got {found!r}. Leave it out, or play single environments."
            )
    found, expected = played.device, config.torch_device
    if found.type != expected.type or (None not in (found.index, expected.index) and found != expected):
        raise ValueError(
            f"A batched environment must be on the device of the run, {expected}, got {name} on {found}. Set "
            f"`device` to '{found}', or make it on {expected}."
        )
    builder = played.placed(config.builder)
    tables = builder.make_replay_tables(specs.make_environment_spec(environment))
    if environment.resets_in_next_step and not all(table.ring and table.ring.by_episode for table in tables):
        raise ValueError(
            f"{type(builder).__name__} learns from rollouts, in which all environments make the same steps, "
            f"but those of {name} reset in the next step (`resets_in_next_step`). Let the simulator reset in "
            "the same step, or train an agent that learns from replay."
        )
    return dataclasses.replace(config, builder=builder)


def _check_vector(environment: experiment_config.Environment, builder: builders.AgentBuilder[Any]) -> None:
    """Checks that an agent can be trained in a vector of environments, or in a batched environment.

    Raises:
        ValueError: Their number differs from `num_environments`, or they do not return the last observations
            that it bootstraps from.
    """
    played = scene.of(environment)
    if not played.holds_several:
        return
    found, expected = played.num_environments, builder.num_environments
    if found != expected:
        raise ValueError(
            f"`environment_factory` must make a {played.kind} of the agent's {expected} environments, got "
            f"one of {found}. Set `num_environments` in the agent's config to {found}, or make another "
            f"{played.kind}."
        )
    if builder.bootstraps and not played.environment.gives_last_observation:
        raise ValueError(
            f"{type(builder).__name__} bootstraps from the last observation of an episode, which "
            f"{type(environment).__name__} does not return (`gives_last_observation` is False): it would "
            "learn from another state. Reset in the next step, add `final_obs` to the infos, or train an "
            "agent whose builder sets `bootstraps` to False."
        )
