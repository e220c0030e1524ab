"""The evaluations of a run: played, logged, filmed and remembered."""

import contextlib
import datetime
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import dm_env
import torch
import tree

from minerva_acme import actors, core, counting, environments, loggers, specs, types
from minerva_acme.environments import scene
from minerva_acme.experiments import seeds as run_seeds
from minerva_acme.experiments import signals
from minerva_acme.names import readable
from minerva_acme.runs import config as experiment_config
from minerva_acme.runs import evaluation

_logger = logging.getLogger(__name__)

_MANY_EPISODES = 100  # of an evaluation; fewer are not measured beforehand
_MEASURED_SECONDS = 1.0
_LONG_SECONDS = 3600.0


class UnknownMetric(ValueError):
    """The run's `metric` is none that its first evaluation has."""


class EvaluationLogs(Protocol):
    """The logs of evaluations."""

    @property
    def evaluator(self) -> loggers.Logger:
        """The logger that gets a row for each evaluation."""

    def write_film(self, gif: bytes, *, step: int) -> None:
        """Logs the video of an evaluation, an animated GIF, at a step of the run."""


class EvaluatedRun(Protocol):
    """The parts of a run that an evaluator needs; `Parts` is an implementation."""

    @property
    def config(self) -> experiment_config.ExperimentConfig:
        """The run's config."""

    @property
    def spec(self) -> specs.EnvironmentSpec:
        """The spec of the training environments."""

    @property
    def seeds(self) -> run_seeds.Seeds:
        """The run's seeds."""

    @property
    def steps(self) -> int:
        """The number of steps made so far."""

    @property
    def counter(self) -> counting.Counter:
        """The run's counts, to log."""

    @property
    def logs(self) -> EvaluationLogs:
        """The logs of evaluations."""

    def make_evaluation_actor(
        self, environment: experiment_config.Environment | None = None
    ) -> evaluation.Actor:
        """Makes an actor for an environment, None for a single one, with the policy for evaluation."""


class Evaluator(evaluation.Evaluations):
    """Evaluates policies in new environments.

    The environments, the policy's randomness and the global generators are seeded by the current step. So
    nothing of an evaluation needs to be saved, and evaluations do not affect training.
    """

    def __init__(self, run: EvaluatedRun) -> None:
        """Prepares; evaluates nothing yet.

        Args:
            run: The run, which makes the actors.
        """
        self._run = run
        self.metric = run.config.metric
        self._clock = _Clock()
        self._random_actor = None
        try:
            self._random_actor = actors.RandomActor(run.spec.actions, seed=run.seeds.number("random"))
        except ValueError as error:
            _logger.info("no random actions are evaluated for comparison: %s", error)

    def evaluate_before_training(self, stop: signals.StopRequest) -> None:
        """Evaluates random actions and the untrained policy, unless that was done or training has begun.

        If the evaluations of the whole run will take long, a warning says how long before the first begins.

        Raises:
            UnknownMetric: They do not have the run's `metric`.
        """
        if self.before is not None or self._run.steps:
            return
        self._warn_if_long(stop)
        if self._random_actor is not None:
            self.random = self._play_random(stop)
        self.before = self._play_policy(stop)
        if self.before is not None:
            self._publish(self.before, stop)

    def is_due(self) -> bool:
        """Returns whether a period has ended since the last evaluation."""
        config = self._run.config
        period = config.evaluation_period if config.evaluation_episodes else 0
        return period > 0 and self._run.steps // period > max(self.logged_until, 0) // period

    def evaluate(self, stop: signals.StopRequest) -> bool:
        """Evaluates the policy, unless it was already evaluated at this step.

        Returns:
            Whether there is a new evaluation; False also if a stop request interrupted it.

        Raises:
            UnknownMetric: It is the first, and does not have the run's `metric`.
        """
        if self.latest is not None and self.latest[0] == self._run.steps:
            return False
        result = self._play_policy(stop)
        if result is None:
            return False
        self.note(self._run.steps, result)
        self._publish(result, stop)
        return True

    def save(self) -> core.State:
        self.walltime = self._clock.read()
        return super().save()

    def restore(self, state: core.State) -> None:
        super().restore(state)
        self.check_metric(self._run.config.metric)
        self._clock = _Clock(*self.walltime)

    def _warn_if_long(self, stop: signals.StopRequest) -> None:
        """Plays a few episodes, and logs a warning if all evaluations will take long."""
        config = self._run.config
        if stop or config.evaluation_episodes < _MANY_EPISODES:
            return
        with self._prepare(self._run.make_evaluation_actor, self._num_environments) as (environment, actor):
            clock = _Limit(stop)
            num_played = 0
            while not clock:
                if self._evaluate(environment, actor, self._num_environments, lambda: bool(clock)):
                    num_played += self._num_environments
        # An episode that has not ended takes longer, so that this is the least.
        per_episode = clock.seconds / max(1, num_played)
        num_evaluations = count_evaluations(config)
        seconds = num_evaluations * config.evaluation_episodes * per_episode
        if seconds >= _LONG_SECONDS:
            _logger.warning(
                "The evaluations of this run will take %s %s: %d of %s, each of %.2g s, as the untrained "
                "policy has just played. Lower `evaluation_episodes`, or raise `evaluation_period` or "
                "`evaluation_environments`.",
                "about" if num_played else "at least",
                datetime.timedelta(seconds=round(seconds)),
                num_evaluations,
                readable.count(config.evaluation_episodes, "episode"),
                per_episode,
            )

    @property
    def _num_environments(self) -> int:
        config = self._run.config
        return min(config.evaluation_environments, config.evaluation_episodes)

    def _play_policy(self, stop: signals.StopRequest) -> evaluation.Evaluation | None:
        return self._play(self._run.make_evaluation_actor, stop, self._num_environments)

    def _play_random(self, stop: signals.StopRequest) -> evaluation.Evaluation | None:
        actor = self._random_actor
        assert actor is not None

        def make_actor(environment: experiment_config.Environment) -> evaluation.Actor:
            played = scene.of(environment)
            if not played.has_timesteps:
                seed = self._run.seeds.number("random")
                return actors.BatchedFeedForwardActor(policy=_RandomBatch(played.environment, seed))
            return _Everywhere(actor) if played.holds_several else actor

        return self._play(make_actor, stop, 1)

    def _play(
        self,
        make_actor: Callable[[experiment_config.Environment], evaluation.Actor],
        stop: signals.StopRequest,
        num_environments: int,
    ) -> evaluation.Evaluation | None:
        if stop or not self._run.config.evaluation_episodes:
            return None
        with self._prepare(make_actor, num_environments) as (environment, actor):
            num_episodes = self._run.config.evaluation_episodes
            result = self._evaluate(environment, actor, num_episodes, lambda: bool(stop))
        if result is not None and self.metric not in (seen := result.metrics()):
            if self.best is None:
                raise UnknownMetric(
                    "`metric` must be a number that evaluations have for every episode, got "
                    f"{self.metric!r}. This one had {', '.join(seen)}. Of a number in the environment's "
                    "`info`, /last, /mean, /min, /max or /sum may be named, such as info/success/max; "
                    "`evaluation_observers` (in Python) measure others."
                )
            _logger.warning(
                "not every episode of the evaluation at %d steps had '%s': it is not compared",
                self._run.steps,
                self.metric,
            )
        return result

    def _evaluate(
        self,
        environment: experiment_config.Environment,
        actor: evaluation.Actor,
        num_episodes: int,
        should_stop: Callable[[], bool],
    ) -> evaluation.Evaluation | None:
        return evaluation.evaluate(
            environment,
            actor,
            num_episodes,
            should_stop,
            observers=self._run.config.evaluation_observers,
            metric=self.metric,
        )

    @contextlib.contextmanager
    def _prepare(
        self, make_actor: Callable[[experiment_config.Environment], evaluation.Actor], num_environments: int
    ) -> Iterator[tuple[experiment_config.Environment, evaluation.Actor]]:
        """Gives the environment of an evaluation and its actor, with generators of their own."""
        with self._own_generators():
            made = self._make_environment(0)
            if num_environments > 1 and not scene.of(made).holds_several:
                others = (self._make_environment(index) for index in range(1, num_environments))
                made = environments.InProcessVectorEnvironment([made, *others])  # type: ignore[list-item]
            with contextlib.closing(made) as environment:
                actor = make_actor(environment)
                actor.update(wait=True)
                yield environment, actor

    def _own_generators(self) -> contextlib.AbstractContextManager[None]:
        """Seeds the global generators for an evaluation; their states are restored for training."""
        run = self._run
        return run_seeds.GlobalGenerators(run.config.torch_device).seeded(run.seeds, "evaluation", run.steps)

    def _make_environment(self, index: int) -> experiment_config.Environment:
        config, trained_in = self._run.config, self._run.spec
        environment = (config.evaluation_environment_factory or config.environment_factory)(self._seed(index))
        spec = specs.make_environment_spec(environment)
        for name in ("observations", "actions"):
            expected, found = getattr(trained_in, name), getattr(spec, name)
            if found != expected:
                environment.close()
                raise ValueError(
                    f"`evaluation_environment_factory` must make environments with the {name} of training, "
                    f"{expected}, got {found}. Wrap them in the same way; rewards and lengths may differ."
                )
        return environment

    def _seed(self, index: int = 0) -> int:
        purpose = f"evaluation {index}" if index else "evaluation"
        return self._run.seeds.number(purpose, self._run.steps)

    def _publish(self, result: evaluation.Evaluation, stop: signals.StopRequest) -> None:
        """Logs an evaluation and, if configured, films its first episode, which is played again."""
        run = self._run
        wall, cpu = self._clock.read()
        spent = {"wall_seconds": wall, "cpu_seconds": cpu}
        counts = {run.config.steps_key: 0, **run.counter.get_counts()}
        # The counts come first, and no metric replaces them.
        run.logs.evaluator.write({**counts, **result.metrics(), **counts, **spent})
        episodes = readable.count(len(result.returns), "episode")
        described = f"return {result.mean:.1f} ± {result.std:.1f} over {episodes}"
        _logger.info("%d steps: %s", run.steps, described)
        if not run.config.evaluation_video or stop:
            return
        assert run.config.film_episode is not None
        with self._own_generators():
            actor = run.make_evaluation_actor()
            assert isinstance(actor, core.Actor)
            actor.update(wait=True)
            try:
                gif = run.config.film_episode(actor, self._seed(), lambda: bool(stop))
            except (OSError, ValueError) as error:  # drawing worked before training: no reason to stop
                _logger.warning("no video of the evaluation at %d steps: %s", run.steps, error)
                return
        if gif is not None:
            run.logs.write_film(gif, step=run.steps)


class _Everywhere(core.VectorActor):
    """Applies a stateless actor to each environment of a vector."""

    def __init__(self, actor: core.Actor) -> None:
        self._actor = actor

    def select_action(self, observations: Sequence[types.NestedArray]) -> list[types.NestedArray]:
        return [self._actor.select_action(observation) for observation in observations]

    def observe_first(self, index: int, timestep: dm_env.TimeStep) -> None:
        pass

    def observe(self, index: int, action: types.NestedArray, next_timestep: dm_env.TimeStep) -> None:
        pass

    def update(self, wait: bool = False) -> None:
        pass


class _RandomBatch:
    """Draws random actions for a batched environment."""

    def __init__(self, environment: environments.BatchedEnvironment, seed: int) -> None:
        def of_all(spec: specs.BoundedArray) -> specs.BoundedArray:
            shape = (environment.num_environments, *spec.shape)
            return specs.BoundedArray(shape, spec.dtype, spec.minimum, spec.maximum)

        action_specs = tree.map_structure(of_all, environment.action_spec())
        self._actor = actors.RandomActor(action_specs, seed=seed)
        self._device = environment.device

    def batch(self, observations: types.NestedTensor) -> actors.PolicyOutput:
        drawn = self._actor.select_action(())
        on_device = tree.map_structure(lambda leaf: torch.from_numpy(leaf).to(self._device), drawn)
        return actors.PolicyOutput(on_device)


def count_evaluations(config: experiment_config.ExperimentConfig, made: int = 0) -> int:
    """Returns the number of evaluations of a run: two before training, one per period, the last at the end.

    Args:
        config: The run's config.
        made: The steps that it has made already.
    """
    periods = math.ceil((config.num_steps - made) / (config.evaluation_period or config.num_steps))
    return (2 * (made == 0) + periods) * (config.evaluation_episodes > 0)


class _Limit:
    """Is true once some time has passed since it was first asked, or a stop is requested."""

    def __init__(self, stop: signals.StopRequest) -> None:
        self._stop = stop
        self._began_at: float | None = None

    @property
    def seconds(self) -> float:
        """The seconds that have passed."""
        return 0.0 if self._began_at is None else time.monotonic() - self._began_at

    def __bool__(self) -> bool:
        if self._began_at is None:
            self._began_at = time.monotonic()
        return bool(self._stop) or self.seconds > _MEASURED_SECONDS


class _Clock:
    """Measures the time that a run has taken, in this session and the earlier ones."""

    def __init__(self, wall: float = 0.0, cpu: float = 0.0) -> None:
        """Starts the clock.

        Args:
            wall: The wall time of the earlier sessions, in seconds.
            cpu: The CPU time of the earlier sessions, in seconds.
        """
        self._began = wall - time.monotonic(), cpu - _cpu_seconds()

    def read(self) -> tuple[float, float]:
        """Returns the wall time, and the CPU time of this process and its children that have ended."""
        return self._began[0] + time.monotonic(), self._began[1] + _cpu_seconds()


def _cpu_seconds() -> float:
    return sum(os.times()[:4])
