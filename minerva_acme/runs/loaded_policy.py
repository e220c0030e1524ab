"""The policy that `load_policy` returns. It checks its observations and can act in the task's own bounds."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import tree
from torch import nn

from minerva_acme import actors, builders, core, specs, types
from minerva_acme.environments import task_actions, task_observations
from minerva_acme.names import readable
from minerva_acme.wrappers import flat_action

_AS_IN_TRAINING = (
    "Take observations from an environment that is wrapped as in training: "
    "environments.make_training_environment(...)."
)

_NUMBERS = (
    "Convert it as in training (an image stays uint8 in [0, 255], for example), or look for a sensor or a "
    "simulation that has failed: the policy does not act on such numbers."
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
        self._checker = _checker(self._spec)
        self._task_checker = _checker(() if from_task is None else from_task.spec)
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
        action, extras = self._policy(self._conform(observation))
        return actors.PolicyOutput(action if self._to_task is None else self._to_task(action), extras)

    def batch(self, observations: types.NestedArray) -> actors.PolicyOutput:
        """Chooses the actions for E observations: everything has a leading axis E.

        Raises:
            SpecError: They are not E observations as in training.
            ValueError: The policy is recurrent.
        """
        return self._acted(self._policy.batch(self._conform(observations, is_batch=True)))

    def initial_state(self, num_environments: int) -> types.NestedArray:
        return self._policy.initial_state(num_environments)

    def step(
        self, observations: types.NestedArray, state: types.NestedArray
    ) -> tuple[actors.PolicyOutput, types.NestedArray]:
        """Does as `batch`, with the policy's recurrent state.

        Raises:
            SpecError: They are not E observations as in training, or `state` is not for E environments.
        """
        observations = self._conform(observations, is_batch=True)
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

    def _conform(self, value: types.NestedArray, *, is_batch: bool = False) -> types.NestedArray:
        """Converts observations of training, or of the task.

        Raises:
            SpecError: They are neither; the message says what those of training are.
        """
        seen, from_task = self.seen(value), self._from_task
        sizes: tuple[None, ...] = (None,) if is_batch else ()
        if self._checker.resembles(seen, len(sizes)):
            return self._checker.conform(seen, sizes)
        if from_task is not None and self._task_checker.resembles(
            own := from_task.without_critics(value), len(sizes)
        ):
            own = self._task_checker.conform(own, sizes)
            return _each_row(from_task, own) if is_batch else from_task(own)
        return _checker(self._spec, _hint(seen, self._checker, is_batch)).conform(seen, sizes)

    def _acted(self, output: actors.PolicyOutput) -> actors.PolicyOutput:
        if self._to_task is None:
            return output
        return actors.PolicyOutput(_each_row(self._to_task, output.action), output.extras)


def _each_row(convert: Callable[[Any], Any], nest: types.NestedArray) -> types.NestedArray:
    """Converts the rows of a batch one by one."""
    rows = [
        convert(tree.map_structure(lambda leaf, row=row: leaf[row], nest))
        for row in range(len(tree.flatten(nest)[0]))
    ]
    return tree.map_structure(lambda *leaves: np.stack(leaves), *rows)


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


def _checker(spec: types.NestedSpec, way_out: str = _NUMBERS) -> specs.Checker:
    return specs.Checker(spec, "observation", converts="numbers", bounded=(), axes=("row",), way_out=way_out)


def _hint(value: Any, checker: specs.Checker, is_batch: bool) -> str:
    """Returns the way out for observations of the wrong structure or shapes."""
    if is_batch and checker.resembles(value):
        return "That is one observation: call `policy(observation)`, or give it a leading axis."
    if not is_batch and checker.resembles(value, 1):
        return "For several observations call `policy.batch(observations)`, or `policy.step` if recurrent."
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], Mapping):
        return "Gymnasium's `reset` returns (observation, info): pass the first."
    if isinstance(value, Mapping) and len(checker.leaves) == 1:
        return (
            "If training concatenated its parts (wrappers.ConcatObservationWrapper), do so too. "
            + _AS_IN_TRAINING
        )
    return _AS_IN_TRAINING
