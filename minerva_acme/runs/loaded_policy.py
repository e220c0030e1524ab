"""The policy that `load_policy` returns. It checks its observations and can act in the task's own bounds."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import tree
from torch import nn

from minerva_acme import actors, builders, constraints, core, readable, specs, types
from minerva_acme.environments import task_actions, task_observations
from minerva_acme.wrappers import flat_action

_AS_IN_TRAINING = (
    "Take observations from an environment that is wrapped as in training: "
    "environments.make_training_environment(...)."
)


class LoadedPolicy(builders.AgentPolicy):
    """A policy that checks its observations before another policy acts on them.

    An observation must have the structure, shape and dtype of training, and be finite. Anything that
    `np.asarray` accepts is converted if it loses nothing but digits: lists of numbers, float64 to float32,
    and integers or booleans to floats that hold them exactly. Everything else raises a `SpecError`. What only
    the critic sees (`critic_observations`) may be missing, and is not looked at.

    If the task's own observations are known, such as a dict that was concatenated in training, the policy
    takes these too, and converts them as in training.
    """

    def __init__(
        self,
        policy: builders.AgentPolicy,
        observations: types.NestedSpec,
        to_task: task_actions.TaskActions | None = None,
        from_task: task_observations.TaskObservations | None = None,
        source: str = "",
    ) -> None:
        """Makes the policy.

        Args:
            policy: The policy that acts.
            observations: The spec of one observation.
            to_task: Maps the policy's actions to the task's; None leaves them unchanged.
            from_task: Maps the task's observations to the policy's; None if they are unknown or the same.
            source: The place of the weights, which `repr` shows.
        """
        self._policy = policy
        self.critic_observations = policy.critic_observations
        self._spec = self.seen(observations)
        self._to_task = to_task
        self._from_task = from_task
        self._source = source

    def __repr__(self) -> str:
        task = self._to_task
        return readable.in_lines(
            f"{type(self).__name__} from {self._source}" if self._source else type(self).__name__,
            {
                "policy": self._policy,
                "observations": _describe_spec(self._spec),
                "actions": "as the agent chose them"
                if task is None
                else f"of the task, {_describe_spec(task.spec)}",
            },
        )

    def __call__(self, observation: types.NestedArray) -> actors.PolicyOutput:
        """Chooses the action for one observation, the next one of the episode that `reset` began.

        Raises:
            SpecError: The observation differs from the spec of training. For a batch, call `batch`.
        """
        action, extras = self._policy(self._conform("observation", observation, is_batch=False))
        return actors.PolicyOutput(action if self._to_task is None else self._to_task(action), extras)

    def batch(self, observations: types.NestedArray) -> actors.PolicyOutput:
        """Chooses the actions for E observations: everything has a leading axis E.

        Raises:
            SpecError: They are not E observations as in training.
            ValueError: The policy is recurrent.
        """
        return self._acted(self._policy.batch(self._conform_batch(observations)))

    def initial_state(self, num_environments: int) -> types.NestedArray:
        return self._policy.initial_state(num_environments)

    def step(
        self, observations: types.NestedArray, state: types.NestedArray
    ) -> tuple[actors.PolicyOutput, types.NestedArray]:
        """Does as `batch`, with the policy's recurrent state.

        Raises:
            SpecError: They are not E observations as in training, or `state` is not for E environments.
        """
        observations = self._conform_batch(observations)
        found, given = ({np.shape(leaf)[0] for leaf in tree.flatten(nest)} for nest in (observations, state))
        if given - found:
            raise specs.SpecError(
                f"`state` must be for {min(found)} environments, as `observations` are, got "
                f"{min(given - found)}. Begin with `policy.initial_state({min(found)})`."
            )
        output, state = self._policy.step(observations, state)
        return self._acted(output), state

    def reset(self) -> None:
        self._policy.reset()

    def as_module(self) -> nn.Module:
        """Makes a module from observations [B, ...] to actions, in the bounds of this policy.

        The module checks nothing. For a recurrent policy, see `AgentPolicy.as_module`.

        Raises:
            ValueError: The policy cannot be written as a module.
        """
        module = self._policy.as_module()
        return module if self._to_task is None else _TaskProgram(module, self._to_task)

    def set_variables(self, values: list[types.NestedArray]) -> None:
        self._policy.set_variables(values)

    def save(self) -> core.State:
        return self._policy.save()

    def restore(self, state: core.State) -> None:
        self._policy.restore(state)

    def _conform_batch(self, observations: types.NestedArray) -> types.NestedArray:
        observations = self._conform("observations", observations, is_batch=True)
        _check_sizes(observations)
        return observations

    def _conform(self, name: str, value: types.NestedArray, *, is_batch: bool) -> types.NestedArray:
        """Converts observations of training, or of the task."""
        seen, from_task = self.seen(value), self._from_task
        if from_task is None or _looks_like(seen, self._spec, is_batch):
            return _conform(name, seen, self._spec, is_batch=is_batch)
        own = from_task.without_critics(value)
        if not _looks_like(own, from_task.spec, is_batch):
            return _conform(name, seen, self._spec, is_batch=is_batch)  # which says what is expected
        own = _conform(name, own, from_task.spec, is_batch=is_batch)
        if not is_batch:
            return from_task(own)
        _check_sizes(own)
        rows = [
            from_task(tree.map_structure(lambda leaf, row=row: leaf[row], own))
            for row in range(len(tree.flatten(own)[0]))
        ]
        return tree.map_structure(lambda *leaves: np.stack(leaves), *rows)

    def _acted(self, output: actors.PolicyOutput) -> actors.PolicyOutput:
        if self._to_task is None:
            return output
        num_rows = len(tree.flatten(output.action)[0])
        rows = [
            self._to_task(tree.map_structure(lambda leaf, row=row: leaf[row], output.action))
            for row in range(num_rows)
        ]
        return actors.PolicyOutput(tree.map_structure(lambda *leaves: np.stack(leaves), *rows), output.extras)


def _describe_spec(spec: types.NestedSpec) -> Any:
    return tree.map_structure(specs.describe, spec)


class _TaskProgram(nn.Module):
    """A module that acts, followed by `TaskActions` on tensors."""

    def __init__(self, module: nn.Module, to_task: task_actions.TaskActions) -> None:
        super().__init__()
        self._module = module
        self._nest = to_task.spec
        leaves = tree.flatten(to_task.spec)
        self._places = flat_action.places(leaves)
        self._leaves = nn.ModuleList(
            _TaskLeaf(own, counted, to_task.scales and own.dtype.kind == "f")
            for own, counted in zip(leaves, tree.flatten(to_task.counted), strict=True)
        )

    def forward(self, observations: types.NestedTensor, state: Any = (), start: Any = None) -> Any:
        if start is None:
            return self._to_task(self._module(observations))
        actions, state = self._module(observations, state, start)
        return self._to_task(actions), state

    def _to_task(self, actions: Any) -> Any:
        parts = []
        for leaf, (kind, place) in zip(self._leaves, self._places, strict=True):
            given = actions[kind] if isinstance(actions, Mapping) else actions
            parts.append(leaf(given.reshape(given.shape[0], -1)[:, place]))
        return tree.unflatten_as(self._nest, parts)


class _TaskLeaf(nn.Module):
    """Turns an agent's numbers [B, N] into one array of the task's action, [B, ...]."""

    smallest: torch.Tensor
    minimum: torch.Tensor
    half_range: torch.Tensor
    maximum: torch.Tensor

    def __init__(self, spec: Any, counted: specs.Array, scales: bool) -> None:
        super().__init__()
        self._shape = spec.shape
        self._scales = scales
        self._dtype = torch.from_numpy(np.empty(0, spec.dtype)).dtype
        if not scales:
            # What is added to an action of zeros is added to every action.
            zeros = np.zeros(spec.shape, spec.dtype)
            smallest = np.asarray(task_actions.to_own(spec, counted, zeros), spec.dtype)
            self.register_buffer("smallest", torch.from_numpy(smallest))
        else:
            low, high = specs.bounds(spec)
            for name, value in (("minimum", low), ("half_range", 0.5 * (high - low)), ("maximum", high)):
                self.register_buffer(name, torch.from_numpy(np.asarray(value)))

    def forward(self, actions: torch.Tensor) -> torch.Tensor:
        actions = actions.to(self._dtype).reshape(-1, *self._shape)
        if not self._scales:
            return actions + self.smallest
        # Scaled as by `CanonicalActionWrapper`.
        return ((actions + 1) * self.half_range + self.minimum).clamp(self.minimum, self.maximum)


def _check_sizes(observations: types.NestedArray) -> None:
    if len(sizes := {len(leaf) for leaf in tree.flatten(observations)}) > 1:
        raise specs.SpecError(
            f"All parts of `observations` must have the same leading size, got {sorted(sizes)}."
        )


def _looks_like(value: Any, spec: types.NestedSpec, is_batch: bool) -> bool:
    """Returns whether a value has the structure and the shapes of a spec."""
    if isinstance(spec, Mapping):
        return (
            isinstance(value, Mapping)
            and value.keys() == spec.keys()
            and all(_looks_like(value[name], part, is_batch) for name, part in spec.items())
        )
    if not isinstance(spec, specs.Array):
        return (
            isinstance(value, tuple | list)
            and len(value) == len(spec)
            and all(_looks_like(*pair, is_batch) for pair in zip(value, spec, strict=True))
        )
    try:
        return not isinstance(value, Mapping) and np.shape(value)[int(is_batch) :] == spec.shape
    except ValueError:  # lists of different lengths
        return False


def _conform(name: str, value: Any, spec: types.NestedSpec, *, is_batch: bool) -> Any:
    """Converts a value to the structure, dtypes and shapes of its spec."""
    if isinstance(spec, specs.Array):
        return _conform_leaf(name, value, spec, is_batch)
    if isinstance(spec, Mapping):
        if not isinstance(value, Mapping) or value.keys() != spec.keys():
            found = f"a dict of {sorted(map(str, value))}" if isinstance(value, Mapping) else _describe(value)
            raise specs.SpecError(
                f"`{name}` must be a dict of {sorted(map(str, spec))}, got {found}. {_AS_IN_TRAINING}"
            )
        return {
            key: _conform(f"{name}[{key!r}]", value[key], part, is_batch=is_batch)
            for key, part in spec.items()
        }
    if not isinstance(value, tuple | list) or len(value) != len(spec):
        raise specs.SpecError(
            f"`{name}` must be a tuple of {len(spec)} parts, got {_describe(value)}. {_AS_IN_TRAINING}"
        )
    parts = [
        _conform(f"{name}[{index}]", *pair, is_batch=is_batch)
        for index, pair in enumerate(zip(value, spec, strict=True))
    ]
    return spec._make(parts) if hasattr(spec, "_make") else type(spec)(parts)


def _conform_leaf(name: str, value: Any, spec: specs.Array, is_batch: bool) -> np.ndarray[Any, Any]:
    expected = f"`{name}` must be {specs.describe(spec)}" + (" behind a leading axis" if is_batch else "")
    if isinstance(spec, specs.StringArray):
        return np.asarray(value)
    if isinstance(value, Mapping):
        raise specs.SpecError(
            f"{expected}, got {_describe(value)}. In training its parts were concatenated "
            f"(wrappers.ConcatObservationWrapper). {_AS_IN_TRAINING}"
        )
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], Mapping):
        raise specs.SpecError(
            f"{expected}, got {_describe(value)}. Gymnasium's `reset` returns (observation, info): pass the "
            "first."
        )
    try:
        # A flipped image has negative strides, which torch does not support.
        array = np.asarray(value, order="C")
    except (RuntimeError, TypeError, ValueError) as error:
        raise specs.SpecError(f"{expected}, got {_describe(value)}: {error}") from error
    shape = array.shape[1:] if is_batch else array.shape
    if shape != spec.shape or (is_batch and not (array.ndim and len(array))):
        raise specs.SpecError(f"{expected}, got {_describe(array)}. {_shape_hint(array, spec, is_batch)}")
    if array.dtype != spec.dtype:
        array = _cast(expected, array, spec)
    if array.dtype.kind == "f" and not (is_moderate := specs.is_moderate(array)).all():
        finite = np.isfinite(array).all()
        raise specs.SpecError(
            f"{expected} and {f'within ±{constraints.LARGEST:g}' if finite else 'finite'}, got "
            f"{array[~is_moderate].flat[0]} in it. Look for a sensor or a simulation that has failed; the "
            "policy does not act on such numbers."
        )
    if isinstance(spec, specs.DiscreteArray) and not ((array >= 0) & (array < spec.num_values)).all():
        raise specs.SpecError(f"{expected}, 0 to {spec.num_values - 1}, got {value!r}.")
    return array


def _cast(expected: str, array: np.ndarray[Any, Any], spec: specs.Array) -> np.ndarray[Any, Any]:
    """Converts an array to the dtype of its spec, if only digits of floats are lost."""
    to_float, is_float = (np.dtype(dtype).kind == "f" for dtype in (spec.dtype, array.dtype))
    if array.dtype.kind in "biuf" and np.dtype(spec.dtype).kind in "biuf" and to_float >= is_float:
        with np.errstate(over="ignore"):  # the result is infinite then, and refused
            cast = array.astype(spec.dtype)
        if is_float or (cast == array).all():
            return cast
    raise specs.SpecError(
        f"{expected}, got {_describe(array)}, which that dtype cannot hold. Convert it as in training: an "
        "image stays uint8 in [0, 255], for example."
    )


def _shape_hint(array: np.ndarray[Any, Any], spec: specs.Array, is_batch: bool) -> str:
    if is_batch and array.shape == spec.shape:
        return "That is one observation: call `policy(observation)`, or give it a leading axis."
    if is_batch and array.shape[1:] == spec.shape:
        return "There must be at least one."
    if not is_batch and array.shape[1:] == spec.shape:
        return "For several observations call `policy.batch(observations)`, or `policy.step` if recurrent."
    return _AS_IN_TRAINING


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array {value.shape} {value.dtype}"
    return f"a {type(value).__name__}, {str(value)[:80]}"
