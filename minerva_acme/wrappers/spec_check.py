"""An environment and an agent that are held to the specs."""

import collections
import logging
from typing import Any, NamedTuple

import dm_env
import numpy as np
import tree

from minerva_acme import specs, types
from minerva_acme.wrappers import base, calls

_LOG = logging.getLogger(__name__)
_HUGE = 1e12
"""In single precision the next number is 65,536 away: a sum or a mean with it loses what is of size 1."""

_seen: collections.Counter[tuple[str, str, str]] = collections.Counter()
"""How often this process saw what it warns of, by environment, field and kind."""


class SpecCheck:
    """Checks the timesteps of one environment, in the order in which they come, against its specs.

        found                                          strict      otherwise
        wrong structure, shape or dtype                error       error; of a reward any number is taken
        not finite, or beyond 1e15                     error       error
        no reward, or no discount, where one is due    error       error
        discount out of bounds                         error       error
        observation or reward out of bounds            error       warning, once for each field
        beyond 1e12                                    -           warning, at the 1st, 10th, 100th... time

    A message names the environment, the step, the episode and the field. Steps count from an episode's
    start, episodes from when the check was made. Environments of one name share their warnings in a process.

    A timestep with nothing to tell takes 1.6 us of CPU time where the observation is one array, 3.5 us where
    that has bounds, and 4.6 us where it is a dict of five.
    """

    def __init__(self, environment_spec: specs.EnvironmentSpec, *, name: str, strict: bool) -> None:
        """Args: environment_spec: what to hold to. name: of the environment. strict: see the table."""
        self._specs = environment_spec
        self._name, self._index = name, ""
        self._strict = strict
        self._step = self._episode = 0
        self._make_checkers()

    def _make_checkers(self) -> None:
        observations, _, rewards, discounts = self._specs
        self._first = specs.Checker(observations, "observation", largest=_HUGE)
        self._later = specs.Checker(
            _Outcome(observations, rewards, discounts),
            any_number=() if self._strict else ("reward", "discount"),
            largest=_HUGE,
        )

    def set_index(self, index: int) -> None:
        """Says which of a vector's environments it is."""
        self._index = f", environment {index}"

    def describe_place(self) -> str:
        """Where the newest timestep came from."""
        return f"{self._name}{self._index}, step {self._step} of episode {self._episode}"

    def __call__(self, timestep: dm_env.TimeStep) -> None:
        """Checks a timestep.

        Raises:
            SpecError: as in the table.
        """
        if timestep.first():
            self._step = 0
            self._episode += 1
            is_bare = timestep.reward is None and timestep.discount is None
            fits = self._first.fits(timestep.observation) if is_bare else None
        else:
            self._step += 1
            fits = self._later.fits((timestep.observation, timestep.reward, timestep.discount))
        if fits is None:
            self._examine(timestep)

    def _examine(self, timestep: dm_env.TimeStep) -> None:
        """Says what is wrong with a timestep, if something is."""
        unbounded = () if self._strict else ("observation", "reward")
        try:
            if timestep.first():
                self._first.explain(timestep.observation, unbounded=unbounded)
                specs.check_first(timestep)
            else:
                for name in ("reward", "discount"):
                    if getattr(timestep, name) is None:
                        raise specs.SpecError(
                            f"`{name}` is None at a {timestep.step_type.name} timestep. Only FIRST has none."
                        )
                outcome = _Outcome(timestep.observation, timestep.reward, timestep.discount)
                self._later.explain(outcome, unbounded=unbounded)
        except specs.SpecError as error:
            raise specs.SpecError(f"{self.describe_place()}: {error}") from error
        if self._strict:
            return
        self._warn("observation", timestep.observation)
        if not timestep.first():
            self._warn("reward", timestep.reward)

    def _warn(self, name: str, nest: types.NestedArray) -> None:
        nested_spec = getattr(self._specs, f"{name}s")
        for (path, spec), value in zip(tree.flatten_with_path(nested_spec), tree.flatten(nest), strict=True):
            field = specs.leaf_name(name, path)
            if spec.dtype.kind == "f" and np.size(value) and (largest := np.abs(value).max()) > _HUGE:
                count = self._count(field, "size")
                if str(count).strip("0") == "1":
                    is_reward = name == "reward"
                    _LOG.warning(
                        "%s: `%s` reaches %g%s. Beside that, single precision loses what is of size 1. Clip "
                        "or rescale it in a wrapper, such as %s.",
                        self.describe_place(),
                        field,
                        largest,
                        f", the {count:,}th time" if count > 1 else "",
                        "gymnasium.wrappers.ClipReward" if is_reward else "ObservationTransformWrapper",
                    )
            elif isinstance(spec, specs.BoundedArray):
                low, high = specs.bounds(spec)
                is_outside = np.ravel((value < low) | (value > high))
                if is_outside.any():
                    if self._count(field, "bounds") == 1:
                        _LOG.warning(
                            "%s: `%s` must be %s, got %g. This is not checked any more. Clip it, or correct "
                            "the spec.",
                            self.describe_place(),
                            field,
                            specs.describe(spec),
                            np.ravel(value)[is_outside][0],
                        )
                    self._forget_bounds(name, path)

    def _count(self, field: str, kind: str) -> int:
        key = (self._name, field, kind)
        _seen[key] += 1
        return _seen[key]

    def _forget_bounds(self, name: str, path: tuple[Any, ...]) -> None:
        """What is known to leave its bounds costs no more time."""
        spec = tree.map_structure_with_path(
            lambda other, leaf: specs.Array(leaf.shape, leaf.dtype, leaf.name) if other == path else leaf,
            getattr(self._specs, f"{name}s"),
        )
        self._specs = self._specs._replace(**{f"{name}s": spec})
        self._make_checkers()


class SpecCheckWrapper(base.EnvironmentWrapper):
    """Checks every timestep that comes out as `SpecCheck` does, and if `strict` every action that goes in.

    What the environment raises gets a note that says where that was. An action that the environment
    ignores, before the first reset and after LAST, is not looked at.
    """

    def __init__(
        self, environment: dm_env.Environment, *, name: str | None = None, strict: bool = True
    ) -> None:
        """Initialises the wrapper with the specs as they are now.

        Args:
            environment: what to check.
            name: for messages; None: that of its type.
            strict: as in `SpecCheck`; for those who write environments. Otherwise for training.
        """
        super().__init__(environment)
        self._action = specs.Checker(environment.action_spec(), "action") if strict else None
        self._check = SpecCheck(
            specs.make_environment_spec(environment), name=name or type(environment).__name__, strict=strict
        )
        self._reset_next_step = True

    def set_index(self, index: int) -> None:
        """Says which of a vector's environments it is, for messages."""
        self._check.set_index(index)

    def reset(self) -> dm_env.TimeStep:
        """Starts an episode.

        Raises:
            SpecError: the timestep is not FIRST or breaks a spec; the message names the leaf.
        """
        try:
            timestep = self._environment.reset()
            calls.check(timestep, self._environment, "reset")
        except (Exception, SystemExit) as error:
            self._note(error, "reset")
            raise
        if not timestep.first():
            raise specs.SpecError(f"`reset` must return a FIRST timestep, got {timestep.step_type.name}.")
        self._check(timestep)
        self._reset_next_step = False
        return timestep

    def step(self, action: types.NestedArray) -> dm_env.TimeStep:
        """Makes a step.

        Raises:
            SpecError: the action or the timestep breaks a spec; the message names the leaf.
        """
        if self._action is not None and not self._reset_next_step and self._action.fits(action) is None:
            self._action.explain(action)
        try:
            timestep = self._environment.step(action)
            if not isinstance(timestep, dm_env.TimeStep):
                calls.check(timestep, self._environment, "step")
        except (Exception, SystemExit) as error:
            self._note(error, "step")
            raise
        if self._action is not None:
            self._reset_next_step = timestep.last()
        self._check(timestep)
        return timestep

    def _note(self, error: BaseException, method: str) -> None:
        """Notes in an error where it came from; a SystemExit is raised as what `calls.call` makes of it."""
        note = f"Raised after {self._check.describe_place()}."
        if not isinstance(error, SystemExit):
            error.add_note(note)
            return
        told = calls.exit_error(self._environment, method, error)
        told.add_note(note)
        raise told from error


class _Outcome(NamedTuple):
    """What a step led to; named as in messages."""

    observation: types.NestedArray
    reward: types.NestedArray
    discount: types.NestedArray
