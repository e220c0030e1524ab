"""Evaluating a policy: the returns and other metrics of a few episodes."""

import contextlib
import copy
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self, cast, overload

import dm_env
import numpy as np
import torch
import tree

from minerva_acme import actors, builders, core, environments, specs, types
from minerva_acme.environments import batched_check, batched_loop, loop, scene
from minerva_acme.observers import environment_info
from minerva_acme.runs import config as experiment_config
from minerva_acme.runs import options, policies

Actor = core.Actor | core.VectorActor | core.BatchedActor

_LEAF = "episode_return/"
_RETURNS, _LENGTHS = options.RETURN, "episode_length"
_FIRST, _LAST = int(dm_env.StepType.FIRST), int(dm_env.StepType.LAST)
_MERGED: Mapping[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "last": lambda before, number: number,
    "sum": torch.add,
    "mean": torch.add,
    "max": torch.maximum,
    "min": torch.minimum,
}
_STEPS_BETWEEN_READS = 20  # of a batched environment's device, to see whether enough episodes have ended


class Evaluation(NamedTuple):
    """The returns of a few episodes, and what else was measured in them."""

    returns: tuple[float, ...]  # undiscounted sums of rewards; if the reward is a nest, over all its leaves
    lengths: tuple[int, ...]  # environment steps
    leaf_returns: Mapping[str, tuple[float, ...]] = {}  # if the reward is a nest: returns by leaf path
    measured: Mapping[str, tuple[float, ...]] = {}  # by name: the numbers that observers gave every episode

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        """The standard deviation of the return over the episodes."""
        return float(np.std(self.returns))

    def __str__(self) -> str:
        shortest, longest, num_episodes = min(self.lengths), max(self.lengths), len(self.lengths)
        spread = f" ± {self.std:,.1f}, {num_episodes} episodes" if num_episodes > 1 else ", 1 episode"
        steps = f"{shortest:,}" if shortest == longest else f"{shortest:,} to {longest:,}"
        return f"return {self.mean:,.1f}{spread} of {steps} steps"

    def __repr__(self) -> str:
        return f"Evaluation({self})"

    def metrics(self) -> dict[str, float]:
        """Returns the evaluation as a row of a log."""
        returns = {
            _RETURNS: self.mean,
            "episode_return_std": self.std,
            "episode_return_min": min(self.returns),
            "episode_return_max": max(self.returns),
        }
        return returns | {name: float(np.mean(values)) for name, values in self._by_episode().items()}

    def beside_return(self, metric: str = options.RETURN) -> dict[str, float]:
        """Returns the means of a metric and of all that was measured, for display beside the return."""
        names = dict.fromkeys((metric, *self.measured))
        return {name: self.score(name) for name in names if name != options.RETURN}

    def score(self, metric: str) -> float:
        """Returns one of the `metrics`, by which evaluations are compared; nan if it was not measured."""
        return self.metrics().get(metric, math.nan)

    def values(self, metric: str) -> tuple[float, ...]:
        """Returns the number of each episode of which a metric is the mean; () if it was not measured."""
        return tuple(map(float, self._by_episode().get(metric, ())))

    def _by_episode(self) -> dict[str, tuple[float, ...]]:
        leaves = {f"{_LEAF}{path}": values for path, values in self.leaf_returns.items()}
        return {_RETURNS: self.returns, **leaves, _LENGTHS: self.lengths, **self.measured}

    def with_negative(self, metric: str) -> Self:
        """Returns the same with the negative of a metric measured too, if a metric has a minus before it."""
        values = self.values(metric.removeprefix("-"))
        if not metric.startswith("-") or not values:
            return self
        return self._replace(measured={**self.measured, metric: tuple(-value for value in values)})


class Evaluations(core.Saveable):
    """The evaluations of a run that its checkpoints keep."""

    random: Evaluation | None = None
    """The evaluation of uniformly random actions before training, or None if the actions are unbounded."""
    before: Evaluation | None = None
    """The evaluation of the policy before training."""
    latest: tuple[int, Evaluation] | None = None
    """The last evaluation during or after training, and its step."""
    best: tuple[int, Evaluation] | None = None
    """The evaluation with the highest score during or after training, and its step."""
    metric: str = options.RETURN
    """The metric that is the score."""
    walltime: tuple[float, ...] = ()
    """The run's wall time and CPU time in seconds; empty if unknown."""

    @classmethod
    def of(cls, state: core.State) -> Self:
        """Returns the evaluations in a checkpoint's state."""
        made = cls()
        made.restore(state)
        return made

    @property
    def logged_until(self) -> int:
        """The step of the last logged evaluation, or -1 before the first."""
        if self.latest is not None:
            return self.latest[0]
        return -1 if self.before is None else 0

    def note(self, step: int, result: Evaluation) -> None:
        """Records the newest evaluation, also as the best one if it is."""
        self.latest = (step, result)
        if self.best is None or _rank(result.score(self.metric)) > _rank(self.best[1].score(self.metric)):
            self.best = self.latest

    def score_at(self, step: int) -> float | None:
        """Returns the score of the evaluation at a step; None if there is none or it is not finite."""
        if self.latest is None or self.latest[0] != step:
            return None
        score = self.latest[1].score(self.metric)
        return score if math.isfinite(score) else None

    def save(self) -> core.State:
        return {
            "random": self.random and tuple(self.random),
            "before": self.before and tuple(self.before),
            "latest": self.latest and (self.latest[0], tuple(self.latest[1])),
            "best": self.best and (self.best[0], tuple(self.best[1])),
            "metric": self.metric,
            "walltime": self.walltime,
        }

    def restore(self, state: core.State) -> None:
        """Restores the state that `save` returned; missing entries keep their defaults."""
        self.random, self.before = _unpack(state.get("random")), _unpack(state.get("before"))
        self.latest, self.best = _unpack_dated(state.get("latest")), _unpack_dated(state.get("best"))
        self.metric = str(state.get("metric", options.RETURN))
        self.walltime = tuple(state.get("walltime", ()))

    def check_metric(self, expected: str) -> None:
        """Checks that a run is resumed with the metric that its best evaluation was chosen by.

        Raises:
            ValueError: There is a best evaluation, which was chosen by another one.
        """
        if self.best is not None and self.metric != expected:
            raise ValueError(
                f"`metric` must be {self.metric!r}, by which the run has chosen its best checkpoint so far, "
                f"got {expected!r}. Change it back, or choose another `directory`."
            )
        self.metric = expected


def in_words(metric: str, score: float) -> str:
    """Returns a metric and its value for display, such as "return of 475.0"."""
    return f"return of {score:.1f}" if metric == options.RETURN else f"{metric} of {score:.4g}"


def _rank(score: float) -> float:
    return -math.inf if math.isnan(score) else score


def _unpack(packed: Any) -> Evaluation | None:
    if packed is None:
        return None
    returns, lengths, *named = packed
    by_name = ({str(name): tuple(map(float, values)) for name, values in each.items()} for each in named)
    return Evaluation(tuple(map(float, returns)), tuple(map(int, lengths)), *by_name)


def _unpack_dated(packed: Any) -> tuple[int, Evaluation] | None:
    result = _unpack(packed[1]) if packed else None
    return None if result is None else (int(packed[0]), result)


@overload
def evaluate(
    environment: experiment_config.Environment,
    actor: Actor,
    num_episodes: int,
    *,
    observers: Sequence[environments.Observer] = ...,
    metric: str = ...,
) -> Evaluation: ...


@overload
def evaluate(
    environment: experiment_config.Environment,
    actor: Actor,
    num_episodes: int,
    should_stop: Callable[[], bool] = ...,
    *,
    observers: Sequence[environments.Observer] = ...,
    metric: str = ...,
) -> Evaluation | None: ...


def evaluate(
    environment: experiment_config.Environment,
    actor: Actor,
    num_episodes: int,
    should_stop: Callable[[], bool] = lambda: False,
    *,
    observers: Sequence[environments.Observer] = (),
    metric: str = options.RETURN,
) -> Evaluation | None:
    """Plays whole episodes. Returns None if `should_stop` ended them early.

    The actor must have no adder. It usually acts with the policy for evaluation, without exploration. A
    vector of environments is played by a vector actor, a batched environment by a batched actor, with one
    policy call for all of them. Each environment contributes its first few episodes: counting whichever end
    first would favour short ones.

    Copies of the observers watch the episodes. If the environment has a `get_info()`, as Gymnasium's have, an
    `EnvironmentInfo` watches it too, unless there is one among them: it reports each number of the last info
    of an episode, as `info/<key>/last`. What an observer reports counts if it is a number, in every episode.
    The `get_info()` of a batched environment is reported in the same way.

    Args:
        environment: The environment, or several in a vector or batch.
        actor: The actor.
        num_episodes: The number of episodes, at least 1.
        should_stop: Called before each step.
        observers: The observers; a batched environment takes none.
        metric: A metric that is needed. If it is another statistic of the info than the last number, such as
            `info/success/max`, this statistic is reported of every number too. If it is the negative of
            another, such as `-info/energy/sum`, it is measured as well.

    Raises:
        ValueError: `num_episodes` is below 1, there are observers of a batched environment, or the metrics of
            two observers have the same name.
    """
    if num_episodes < 1:
        raise ValueError(f"`num_episodes` must be >= 1, got {num_episodes}. A return needs a whole episode.")
    played = scene.of(environment)
    if not played.has_timesteps:
        if observers:
            raise ValueError(
                "Observers must be left out in the evaluation of a batched environment, which has no "
                f"timesteps of single environments, got {len(observers)}. Leave them out, or evaluate in a "
                "single environment (`evaluation_environment_factory`)."
            )
        result = _evaluate_batch(
            played.environment, cast(core.BatchedActor, actor), num_episodes, should_stop, metric
        )
        return result and result.with_negative(metric)
    num_environments = played.num_environments
    own = copy.deepcopy(list(observers))  # nothing of an evaluation reaches the next one
    if played.has_info and not any(isinstance(one, environment_info.EnvironmentInfo) for one in own):
        own.append(_InfoAtTheEnd(metric))
    playing = played.make_loop(actor, observers=own)
    left = [len(range(index, num_episodes, num_environments)) for index in range(num_environments)]
    episodes: list[environments.EpisodeResult] = []
    while max(left) > 0:
        if should_stop():
            return None
        for episode in playing.step():
            index = episode.get("environment", 0)
            if left[index] > 0:
                left[index] -= 1
                episodes.append(episode)
    return Evaluation(
        tuple(float(episode["episode_return"]) for episode in episodes),
        tuple(int(episode["episode_length"]) for episode in episodes),
        {
            name.removeprefix(_LEAF): tuple(float(episode[name]) for episode in episodes)
            for name in episodes[0]
            if name.startswith(_LEAF)
        },
        {
            name: tuple(float(episode[name]) for episode in episodes)
            for name in episodes[0]
            if not loop.is_of_loops(name) and all(_is_number(episode.get(name)) for episode in episodes)
        },
    ).with_negative(metric)


class _InfoAtTheEnd(environment_info.EnvironmentInfo):
    """Reports the last number of each key, and the statistic that a metric names."""

    def __init__(self, metric: str) -> None:
        super().__init__()
        self.statistics = tuple(name for name in self.statistics if name in _statistics(metric))

    def measure(
        self, environment: dm_env.Environment, timestep: dm_env.TimeStep, action: types.NestedArray
    ) -> dict[str, float]:
        if self.statistics == ("last",) and not timestep.last():  # up to 25 us that nobody asked for
            return {}
        return super().measure(environment, timestep, action)


def _statistics(metric: str) -> list[str]:
    """Returns the statistics of an episode's infos to report: the last number, and what a metric names."""
    named = metric.rpartition("/")[2] if metric.removeprefix("-").startswith("info/") else "last"
    return [*dict.fromkeys(name for name in ("last", named) if name in _MERGED)]


class _OpenInfos:
    """The statistics of the infos of the open episodes of B environments, on their device."""

    def __init__(self, metric: str, first: torch.Tensor) -> None:
        """Args: metric: The metric that is needed. first: The step types, [B], which give the device."""
        self._statistics = _statistics(metric)
        self._length = torch.zeros_like(first, dtype=torch.float64)
        self._so_far: dict[str, torch.Tensor] = {}

    def add(self, info: Mapping[str, torch.Tensor], step_type: torch.Tensor) -> dict[str, torch.Tensor]:
        """Adds a step; returns the statistics of its episodes by name, each [B]."""
        is_step = step_type != _FIRST  # otherwise the info is of a reset
        is_new, self._length = self._length == 0, self._length + is_step
        for key, values in info.items():
            number = values.double()
            for statistic in self._statistics:
                before = self._so_far.get(name := f"info/{key}/{statistic}", number)
                merged = torch.where(is_new, number, _MERGED[statistic](before, number))
                self._so_far[name] = torch.where(is_step, merged, before)
        found = {
            name: values / self._length if name.endswith("/mean") else values
            for name, values in self._so_far.items()
        }
        self._length = self._length.masked_fill(step_type == _LAST, 0.0)
        return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number | np.bool_)


def _evaluate_batch(
    environment: environments.BatchedEnvironment,
    actor: core.BatchedActor,
    num_episodes: int,
    should_stop: Callable[[], bool],
    metric: str,
) -> Evaluation | None:
    """Plays whole episodes in a batched environment; their numbers stay on its device until the end."""
    number, device = environment.num_environments, environment.device
    wanted = torch.tensor([len(range(index, num_episodes, number)) for index in range(number)], device=device)
    most = -(-num_episodes // number)
    check = batched_check.BatchedSpecCheck(environment)
    timestep = environment.reset()
    check.first(timestep)
    actor.observe_first(timestep)
    episodes, infos = batched_loop.OpenEpisodes(timestep), _OpenInfos(metric, timestep.step_type)
    num_ended = torch.zeros_like(wanted)  # [B]
    # By environment and number of its episode; the last column takes the rest.
    stored: dict[str, torch.Tensor] = {}
    while bool((num_ended < wanted).any()):
        for _ in range(_STEPS_BETWEEN_READS):
            if should_stop():
                return None
            actions = actor.select_action(timestep.newest)
            timestep = environment.step(actions)
            check.add(timestep)
            actor.observe(actions, timestep)
            ended = episodes.add(timestep)
            column = num_ended.clamp(max=most)[:, None]
            found = infos.add(environment.get_info(), timestep.step_type)
            for name, values in {_RETURNS: ended.returns, _LENGTHS: ended.lengths, **found}.items():
                if name not in stored:
                    stored[name] = torch.zeros(number, most + 1, dtype=torch.float64, device=device)
                stored[name].scatter_(1, column, values[:, None])
            num_ended = num_ended + ended.has_ended
        check.read()
    # The first episodes of all environments, then their second ones.
    in_order = {
        name: tuple(numbers[:, :most].T.reshape(-1)[:num_episodes].tolist())
        for name, numbers in stored.items()
    }
    returns, lengths = in_order.pop(_RETURNS), in_order.pop(_LENGTHS)
    return Evaluation(returns, tuple(map(int, lengths)), measured=in_order)


def evaluate_checkpoint(
    path: str | os.PathLike[str],
    builder: builders.AgentBuilder[Any],
    environment: experiment_config.Environment,
    num_episodes: int,
    seed: int = 0,
    explore: bool = False,
    *,
    observers: Sequence[environments.Observer] = (),
    metric: str = options.RETURN,
) -> Evaluation:
    """Plays episodes with the policy that a run has learned.

    Args:
        path: The folder of a run, whose newest checkpoint is used, or of a checkpoint.
        builder: The builder of the trained agent, with its config.
        environment: An environment wrapped as in training, a vector of such environments, or a batched one.
        num_episodes: The number of episodes to play, >= 1.
        seed: The seed of the policy's randomness, if it has any.
        explore: Whether to explore as in training.
        observers: As for `evaluate`.
        metric: As for `evaluate`.

    Raises:
        ValueError: As for `load_policy` and `evaluate`.
    """
    spec = specs.make_environment_spec(environment)
    policy = policies.load_policy(path, builder, spec, seed=seed, explore=explore)
    played, actor = scene.of(environment), None
    if played.has_timesteps:
        actor = played.make_actor(builder, policy)
    else:
        actor = actors.BatchedFeedForwardActor(policy=_OnHost(policy, played.device))
    return evaluate(environment, actor, num_episodes, observers=observers, metric=metric)


def play(
    found: policies.Found, num_episodes: int, seed: int, import_code: bool, metric: str = options.RETURN
) -> Evaluation:
    """Plays episodes with a learned policy, without exploration, in the environment of its run.

    Args:
        found: The policy.
        num_episodes: The number of episodes to play, >= 1.
        seed: The seed of the environment.
        import_code: Whether code that is not part of this library may be imported.
        metric: As for `evaluate`.

    Raises:
        ValueError: As for `load_policy` and `evaluate`.
    """
    builder = found.description.make_builder(import_code=import_code)
    make_environment = found.description.make_environment_factory(import_code=import_code)
    with contextlib.closing(make_environment(seed)) as environment:
        return evaluate_checkpoint(found.path, builder, environment, num_episodes, metric=metric)


class _OnHost:
    """A policy for tensors that acts by one for arrays."""

    def __init__(self, policy: builders.AgentPolicy, device: torch.device) -> None:
        self._policy = policy
        self._device = device

    def batch(self, observations: types.NestedTensor) -> actors.PolicyOutput:
        actions, _ = self._policy.batch(tree.map_structure(lambda leaf: leaf.cpu().numpy(), observations))
        return actors.PolicyOutput(
            tree.map_structure(lambda leaf: torch.as_tensor(leaf, device=self._device), actions)
        )
