"""One process: act, add, learn, evaluate, save."""

import contextlib
import dataclasses
import functools
import logging
import pathlib
import shutil
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import dm_env
import numpy as np
import torch
import tree

from minerva_acme import actors, builders, core, counting, environments, loggers, specs
from minerva_acme.experiments import checkpointing, evaluation, signals
from minerva_acme.experiments import config as experiment_config
from minerva_acme.replay import backends

_logger = logging.getLogger(__name__)

_MIN_METRICS_SECONDS = 0.5  # asking a replay server for its state takes about a millisecond


class Progress(NamedTuple):
    """Where a run stands."""

    env_steps: int
    num_env_steps: int  # how many it will be
    learner_steps: int
    last_episode_return: float | None  # of the last training episode
    last_evaluation: evaluation.Evaluation | None
    phase: str  # "train", "evaluate" or "save"
    num_episodes: int = 0  # training episodes that ended
    # The learner's newest logged row and the state of replay, read every `log_period_seconds`.
    metrics: Mapping[str, float] = types.MappingProxyType({})


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentResult:
    """What a run came to."""

    directory: pathlib.Path
    env_steps: int
    learner_steps: int
    random: evaluation.Evaluation | None
    """Uniformly random actions; None if the run was interrupted before they were judged."""
    before: evaluation.Evaluation | None
    """The policy before training; None likewise."""
    after: evaluation.Evaluation | None
    """The policy at the end; None if the run was interrupted."""
    best: tuple[int, evaluation.Evaluation] | None
    """The evaluation with the highest mean of those while and after training, and its environment step."""
    interrupted_by: str | None
    """The signal that stopped the run early, or None."""


class _Updates(Protocol):
    """An actor, for one environment or several, that takes newer weights."""

    def update(self, wait: bool = False) -> None: ...


class _Seeds:
    """Independent seeds for the parts of a run, by name, so that adding a part changes no other's."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def number(self, purpose: str, index: int = 0) -> int:
        sequence = np.random.SeedSequence([self._seed, index, *purpose.encode()])
        return int(sequence.generate_state(1)[0])

    def generator(self, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
        return torch.Generator(device).manual_seed(self.number(purpose))


def run_experiment(
    config: experiment_config.ExperimentConfig,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> ExperimentResult:
    """Trains an agent in this process, with its replay server, and evaluates it.

    Acting and learning take turns: after each environment step the learner makes the steps that the
    builder says are due. The first SIGINT or SIGTERM saves a checkpoint and returns; the same call
    resumes from the newest checkpoint in the run's directory.

    Args:
        config: the experiment.
        on_progress: called often, from this thread, with where the run stands.

    Raises:
        ValueError: the agent cannot handle the environment.
    """
    with contextlib.ExitStack() as resources:
        return _Run(config, resources, on_progress).run()


class _Run:
    def __init__(
        self,
        config: experiment_config.ExperimentConfig,
        resources: contextlib.ExitStack,
        on_progress: Callable[[Progress], None],
    ) -> None:
        self._config = config
        self._on_progress = on_progress
        self._directory = pathlib.Path(config.directory)
        self._seeds = _Seeds(config.seed)
        builder = config.builder
        device = config.torch_device

        # The environment comes first: an agent that cannot play in it says so before anything starts.
        self._environment = self._make_environment()
        resources.callback(self._environment.close)
        # An environment and several of them tell their specs alike.
        spec = self._spec = specs.make_environment_spec(self._environment)  # type: ignore[arg-type]
        builder.check_spec(spec)

        self._checkpointer = checkpointing.Checkpointer(self._directory / "checkpoints")
        checkpoint = self._checkpointer.latest()
        replay_files = checkpointing.replay_folder(checkpoint) if checkpoint else None
        # Where the server writes its part of a checkpoint, which is then moved into it.
        scratch = self._directory / ".replay"
        shutil.rmtree(scratch, ignore_errors=True)
        resources.callback(shutil.rmtree, scratch, ignore_errors=True)
        tables = builder.make_replay_tables(spec)
        server = resources.enter_context(
            backends.make_server(
                tables,
                config.replay,
                seed=self._seeds.number("replay"),
                device=str(device),
                checkpoint_directory=str(scratch),
                restore_from=str(replay_files) if replay_files else None,
            )
        )
        self._client = resources.enter_context(server.client())
        self._tables = [table.name for table in tables]

        self._counter = counting.Counter()
        self._newest_row = loggers.NewestRow()
        self._metrics: dict[str, float] = {}
        self._metrics_due = loggers.EverySeconds(max(config.log_period_seconds, _MIN_METRICS_SECONDS))
        if config.tensorboard and config.description:
            loggers.write_description(self._directory / "tensorboard", config.description)
        self._wandb = None
        if config.wandb:
            self._wandb = resources.enter_context(
                loggers.WandbRun(self._directory, config=dict(config.description))
            )
        self._evaluation_events = None
        if config.tensorboard:
            self._evaluation_events = loggers.TensorBoardLogger(
                self._directory / "tensorboard",
                "evaluator",
                "actor_steps",
                group="evaluator",
                hyperparameters=_hyperparameters(config.description),
            )
        self._loggers = {
            label: resources.enter_context(self._make_logger(label, steps_key))
            for label, steps_key in (
                ("actor", "actor_steps"),
                ("learner", "learner_steps"),
                ("evaluator", "actor_steps"),
            )
        }
        networks = builder.make_networks(spec, self._seeds.generator("networks"))
        dataset = builder.make_dataset(self._client, spec, device)
        resources.callback(dataset.close)  # type: ignore[attr-defined]
        self._learner = builder.make_learner(
            networks=networks,
            dataset=dataset,
            spec=spec,
            counter=counting.Counter(self._counter, "learner"),
            logger=self._loggers["learner"],
            generator=self._seeds.generator("learner", device),
            device=device,
            num_env_steps=config.num_env_steps,
        )
        self._policy = builder.make_policy(networks, spec, self._seeds.generator("policy"))
        self._greedy_policy = builder.make_policy(
            networks, spec, self._seeds.generator("evaluation"), evaluation=True
        )
        self._film_policy = None
        if config.evaluation_video:
            self._film_policy = builder.make_policy(
                networks, spec, self._seeds.generator("film"), evaluation=True
            )
        self._adders = [
            resources.enter_context(builder.make_adder(self._client, spec))
            for _ in range(builder.num_environments)
        ]
        self._actor, self._play_step = self._make_loop()

        # What was written to the replay that now exists, and learned from it: a resumed run whose
        # checkpoint holds no replay fills a new one first.
        self._inserted_before = 0
        self._learned = 0
        self._sampling = False
        self._random: evaluation.Evaluation | None = None
        self._before: evaluation.Evaluation | None = None
        self._latest: tuple[int, evaluation.Evaluation] | None = None  # with its env_steps
        self._best: tuple[int, evaluation.Evaluation] | None = None  # likewise
        self._episode_return: float | None = None
        if checkpoint:
            self._restore(checkpoint, with_replay=replay_files is not None)

    def run(self) -> ExperimentResult:
        with signals.stop_request_on_signals() as stop:
            if self._before is None:
                self._evaluate_before(stop)
            saved_at = self._train(stop)
            evaluated = self._latest
            if not stop:
                self._evaluate(stop)
            if self._env_steps != saved_at or self._latest is not evaluated or stop:
                self._save(stopping=True)
        return ExperimentResult(
            directory=self._directory,
            env_steps=self._env_steps,
            learner_steps=self._learner_steps,
            random=self._random,
            before=self._before,
            after=self._latest[1] if self._latest and not stop else None,
            best=self._best,
            interrupted_by=stop.signal_name,
        )

    @property
    def _env_steps(self) -> int:
        return int(self._counter.get_counts().get("actor_steps", 0))

    @property
    def _learner_steps(self) -> int:
        return int(self._counter.get_counts().get("learner_steps", 0))

    @property
    def _inserted(self) -> int:
        return self._inserted_before + sum(adder.num_inserted for adder in self._adders)

    def _make_environment(self) -> dm_env.Environment | environments.VectorEnvironment:
        config, count = self._config, self._config.builder.num_environments
        seeds = [self._seeds.number("environment", index) for index in range(count)]
        if count == 1 and not config.environment_processes:
            return config.environment_factory(seeds[0])
        return environments.make_vector(
            [functools.partial(config.environment_factory, seed) for seed in seeds],
            processes=config.environment_processes,
        )

    def _make_loop(self) -> tuple[_Updates, Callable[[], list[environments.EpisodeResult]]]:
        """Returns the actor, and what steps every environment and returns the episodes that ended."""
        config, environment = self._config, self._environment
        common: dict[str, Any] = {
            "counter": counting.Counter(self._counter, "actor"),
            "logger": self._loggers["actor"],
            "observers": config.observers,
        }
        if isinstance(environment, environments.VectorEnvironment):
            vector_actor = config.builder.make_vector_actor(self._policy, self._learner, self._adders)
            vector_loop = environments.VectorEnvironmentLoop(
                environment=environment, actor=vector_actor, **common
            )
            return vector_actor, vector_loop.step
        actor = config.builder.make_actor(self._policy, self._learner, self._adders[0])
        loop = environments.EnvironmentLoop(environment=environment, actor=actor, **common)

        def step() -> list[environments.EpisodeResult]:
            result = loop.step()
            return [] if result is None else [result]

        return actor, step

    def _train(self, stop: signals.StopRequest) -> int:
        """Plays and learns to the end or to the stop; returns the steps at the last save."""
        config = self._config
        saved_at = steps = self._env_steps
        # A run that was stopped may have written something that it did not learn from any more. Before
        # the next step is made, so that on-policy agents make it with the newest weights.
        if steps < config.num_env_steps:
            self._learn(stop)
        while steps < config.num_env_steps and not stop:
            episodes = self._play_step()
            self._learn(stop)
            if episodes:
                self._episode_return = float(episodes[-1]["episode_return"])
            self._report("train")
            before, steps = steps, self._env_steps
            period = config.evaluation_period
            if period and steps // period > before // period:
                self._evaluate(stop)
            # Saved when no episode is open, a resumed run plays on as an uninterrupted one would; but
            # that is not waited for longer than another whole period.
            unsaved = steps - saved_at
            if config.checkpoint_period and unsaved >= config.checkpoint_period:
                between = len(episodes) == len(self._adders)
                if between or unsaved >= 2 * config.checkpoint_period:
                    self._save(stopping=False)
                    saved_at = steps
        return saved_at

    def _learn(self, stop: signals.StopRequest) -> None:
        due = self._config.builder.learner_steps_due(self._inserted)
        if self._learned >= due:
            return
        if not self._sampling:
            # The limiter counts what has arrived; what is still on its way would be waited for
            # in vain, since nobody but this thread can send it.
            for adder in self._adders:
                adder.flush()
            self._sampling = True
        while self._learned < due and not stop:
            self._learner.step()
            self._learned += 1
        self._actor.update()

    def _evaluate_before(self, stop: signals.StopRequest) -> None:
        actor = actors.RandomActor(self._spec.actions, seed=self._seeds.number("random"))
        self._random = self._play(actor, stop)
        if self._random is not None:
            self._before = self._play(self._actor_of(self._greedy_policy), stop)
        if self._before is not None:
            self._log_evaluation(self._before)
            self._film(stop)

    def _evaluate(self, stop: signals.StopRequest) -> None:
        if self._latest is not None and self._latest[0] == self._env_steps:
            return
        result = self._play(self._actor_of(self._greedy_policy), stop)
        if result is not None:
            self._latest = (self._env_steps, result)
            if self._best is None or result.mean > self._best[1].mean:
                self._best = self._latest
            self._log_evaluation(result)
            self._film(stop)
            self._report("evaluate")

    def _actor_of(self, policy: builders.AgentPolicy) -> core.Actor:
        actor = self._config.builder.make_actor(policy, self._learner)
        actor.update(wait=True)
        return actor

    def _play(self, actor: core.Actor, stop: signals.StopRequest) -> evaluation.Evaluation | None:
        self._report("evaluate")
        # A fresh environment, seeded by the step it is for: nothing of it needs to be saved, and
        # nothing that it does touches training.
        environment = self._config.environment_factory(self._evaluation_seed)
        with contextlib.closing(environment):
            return evaluation.evaluate(
                environment, actor, self._config.evaluation_episodes, should_stop=lambda: bool(stop)
            )

    @property
    def _evaluation_seed(self) -> int:
        return self._seeds.number("evaluation", self._env_steps)

    def _film(self, stop: signals.StopRequest) -> None:
        """Films the first episode of the evaluation that was just made.

        It is played once more, in an environment and with a policy of its own, so that a run with films
        is, bit for bit, the one without.
        """
        if self._film_policy is None or stop:
            return
        assert self._config.film_episode is not None
        actor = self._actor_of(self._film_policy)
        try:
            gif = self._config.film_episode(actor, self._evaluation_seed, lambda: bool(stop))
        except (OSError, ValueError) as error:  # that it can be drawn was seen before: no reason to stop
            _logger.warning("no film of the evaluation at %d steps: %s", self._env_steps, error)
            return
        if gif is None:
            return
        if self._evaluation_events is not None:
            self._evaluation_events.write_film("evaluation/video", gif, step=self._env_steps)
        if self._wandb is not None:
            self._wandb.write_film(
                "evaluation/video", gif, steps_key="evaluator/actor_steps", step=self._env_steps
            )

    def _log_evaluation(self, result: evaluation.Evaluation) -> None:
        counts = self._counter.get_counts()
        self._loggers["evaluator"].write({"actor_steps": 0, **counts, **result.metrics()})
        _logger.info(
            "%d environment steps: return %.1f +- %.1f over %d episodes",
            self._env_steps,
            result.mean,
            result.std,
            len(result.returns),
        )

    def _report(self, phase: str) -> None:
        self._on_progress(
            Progress(
                env_steps=self._env_steps,
                num_env_steps=self._config.num_env_steps,
                learner_steps=self._learner_steps,
                last_episode_return=self._episode_return,
                last_evaluation=self._latest[1] if self._latest else None,
                phase=phase,
                num_episodes=int(self._counter.get_counts().get("actor_episodes", 0)),
                metrics=self._read_metrics(),
            )
        )

    def _read_metrics(self) -> Mapping[str, float]:
        if self._metrics_due({}):
            infos = [self._client.table_info(table) for table in self._tables]
            inserted = sum(info.inserted for info in infos)
            self._metrics = {
                **{name: v for name, v in self._newest_row.row.items() if not isinstance(v, str)},
                "replay/size": sum(info.size for info in infos),
                "replay/max_size": sum(info.max_size for info in infos),
                "replay/samples_per_insert": sum(info.sampled for info in infos) / max(inserted, 1),
            }
        return self._metrics

    def _save(self, stopping: bool) -> None:
        self._report("save")
        if stopping:
            # The resumed run begins a new episode, so the open one ends here: its transitions stay.
            for adder in self._adders:
                adder.reset()
        for adder in self._adders:
            adder.flush()
        # A resumed run starts with the newest weights, so this one goes on with them.
        self._actor.update(wait=True)
        state = {
            "counter": self._counter.save(),
            "learner": self._learner.save(),
            "policy": self._policy.save(),
            "policy_variables": self._policy_variables(),
            "environment": self._environment.save() if hasattr(self._environment, "save") else None,
            "adders": [adder.save() if isinstance(adder, core.Saveable) else None for adder in self._adders],
            "inserted": self._inserted,
            "learned": self._learned,
            "random": _pack(self._random),
            "before": _pack(self._before),
            "latest": self._latest and (self._latest[0], _pack(self._latest[1])),
            "best": self._best and (self._best[0], _pack(self._best[1])),
        }
        replay_files = self._client.checkpoint() if self._config.checkpoint_replay else None
        self._checkpointer.save(self._env_steps, state, replay_files)

    def _policy_variables(self) -> list[Any]:
        values = self._learner.get_variables(self._config.builder.policy_variables)
        return [tree.map_structure(torch.from_numpy, value) for value in values]

    def _restore(self, checkpoint: pathlib.Path, with_replay: bool) -> None:
        state = checkpointing.load_state(checkpoint, str(self._config.torch_device))
        if len(state["adders"]) != len(self._adders):
            raise ValueError(
                f"`num_environments` must be {len(state['adders'])} as in {checkpoint}, got "
                f"{len(self._adders)}. Change it back, or choose another `directory`."
            )
        with checkpointing.explain_misfit(checkpoint):
            self._counter.restore(state["counter"])
            self._learner.restore(state["learner"])
            self._policy.restore(state["policy"])
            if state["environment"] is not None:
                # dm_env has no such method; those of `environments.make` do.
                self._environment.restore(state["environment"])  # type: ignore[union-attr]
            for adder, adder_state in zip(self._adders, state["adders"], strict=True):
                if isinstance(adder, core.Saveable):
                    adder.restore(adder_state)
                    adder.reset()  # The environment begins anew.
        if with_replay:
            self._inserted_before = state["inserted"]
            self._learned = state["learned"]
        self._random = _unpack(state["random"])
        self._before = _unpack(state["before"])
        dated: list[Any] = [
            packed and (packed[0], _unpack(packed[1])) for packed in (state["latest"], state["best"])
        ]
        self._latest, self._best = dated
        self._actor.update(wait=True)
        _logger.info("resumed %s at %d environment steps", checkpoint, self._env_steps)

    def _make_logger(self, label: str, steps_key: str) -> loggers.Logger:
        return loggers.make_default_logger(
            self._directory,
            label,
            steps_key=steps_key,
            terminal=False,
            tensorboard=self._config.tensorboard and label != "evaluator",
            others=self._other_loggers(label, steps_key),
            # Every episode and evaluation is a row; of learner steps there are too many.
            time_delta=self._config.log_period_seconds if label == "learner" else 0.0,
        )

    def _other_loggers(self, label: str, steps_key: str) -> list[loggers.Logger]:
        others: list[loggers.Logger] = [self._newest_row] if label == "learner" else []
        if label == "evaluator" and self._evaluation_events is not None:
            others.append(self._evaluation_events)
        if self._wandb is not None:
            others.append(self._wandb.make_logger(label, steps_key))
        return others


def _hyperparameters(description: Mapping[str, Any]) -> dict[str, Any]:
    """What tells a run from others, by short names; the options may change when it goes on."""
    values = {
        name: value for name, value in description.items() if name not in ("hyperparameters", "options")
    }
    return {**values, **description.get("hyperparameters", {})}


def _pack(result: evaluation.Evaluation | None) -> Any:
    return None if result is None else (list(result.returns), list(result.lengths))


def _unpack(packed: Any) -> evaluation.Evaluation | None:
    return None if packed is None else evaluation.Evaluation(tuple(packed[0]), tuple(packed[1]))
