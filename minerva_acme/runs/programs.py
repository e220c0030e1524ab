"""Policies as programs for other software, and their comparison with the policy in whole episodes.

A program acts for B environments at once. Without memory it maps observations [B, ...] to actions. With
memory it also takes and returns a state; see `builders.AgentPolicy.as_module`.
"""

import contextlib
import functools
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import dm_env
import numpy as np
import torch
import tree
from torch import nn

from minerva_acme import builders, environments, specs, types, wrappers
from minerva_acme.environments import task_actions
from minerva_acme.wrappers import float_observation

Interface: TypeAlias = Literal["agent", "task"]
"""`agent`: the observations and actions of training; `task`: those of the environment inside its wrappers."""
Program: TypeAlias = Callable[..., Any]
"""Maps arrays to actions or, with memory, to actions and the next state."""

LIMIT = 1e-5
"""The largest allowed difference of a program's action from the policy's, relative to the action's range."""

_BATCH_SIZES = (1, 7)
_OF_TRAINING = (
    wrappers.CanonicalActionWrapper,
    wrappers.ConcatObservationWrapper,
    wrappers.CriticObservationWrapper,
    wrappers.FlatActionWrapper,
    wrappers.FloatObservationWrapper,
    wrappers.SinglePrecisionWrapper,
    wrappers.SpecCheckWrapper,
)


class Comparison(NamedTuple):
    """The difference between the actions of a program and of its policy, in whole episodes."""

    largest: float  # relative to the range of the action
    num_steps: int  # environment steps
    num_episodes: int


class Recorder(wrappers.EnvironmentWrapper):
    """Keeps the newest observation and action of an environment."""

    observation: types.NestedArray = None
    action: types.NestedArray = None

    def __init__(
        self,
        environment: dm_env.Environment,
        critic_observations: Sequence[str] = (),
        to_own: Callable[[types.NestedArray], types.NestedArray] = lambda action: action,
    ) -> None:
        """Takes the environment, the entries of its observations that only the critic sees, and the change
        of its actions to those that are kept."""
        super().__init__(environment)
        self._critic_observations = critic_observations
        self._to_own = to_own

    def shown(self, observations: Any) -> Any:
        """Returns the part of observations, or of their specs, that a program takes."""
        return specs.without(observations, self._critic_observations)

    def step(self, action: types.NestedArray) -> dm_env.TimeStep:
        self.action = self._to_own(action)
        return super().step(action)

    def _convert(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        self.observation = self.shown(timestep.observation)
        return timestep


def record(
    environment: dm_env.Environment, interface: Interface, critic_observations: Sequence[str] = ()
) -> tuple[dm_env.Environment, Recorder]:
    """Returns an environment wrapped as in training, with a recorder at the interface of a program.

    Args:
        environment: The environment, wrapped as in training.
        interface: The interface: around all wrappers, or inside the wrappers of training.
        critic_observations: The entries of the agent's observations that only the critic sees.

    Raises:
        ValueError: It is a vector or batch, or a wrapper outside of those of training hides the task.
    """
    if not isinstance(environment, dm_env.Environment):
        raise ValueError(
            "A program is compared with its policy in a single environment, whose task `--actions task` also "
            f"needs, got a {type(environment).__name__}. Export it with `--actions agent --episodes 0`."
        )
    if interface == "agent":
        recorder = Recorder(environment, critic_observations)
        return recorder, recorder
    task: Any = environment
    names: Sequence[str] = ()
    concatenates = False
    while isinstance(task, _OF_TRAINING):
        concatenates |= isinstance(
            task, wrappers.ConcatObservationWrapper | wrappers.CriticObservationWrapper
        )
        if isinstance(task, wrappers.CriticObservationWrapper):
            names = task.critic_observations
        task = task.environment
    own = task_actions.of_bare(task)
    recorder = Recorder(task, names, functools.partial(task_actions.to_own, own, task.action_spec()))
    wrapped = environments.make_training_environment(
        recorder, critic_observations=names, concatenate=concatenates or bool(names)
    )
    if task_actions.find(environment) != own or wrapped.observation_spec() != environment.observation_spec():
        raise ValueError(
            "The task's observations and actions must be inside the wrappers of `make_training_environment`, "
            f"but {type(task).__name__} also converts them. Apply it to the bare environment, before "
            "`make_training_environment`, or export with `--actions agent`."
        )
    return wrapped, recorder


def make_inputs(policy: builders.AgentPolicy, observations: types.NestedSpec) -> tuple[Any, ...]:
    """Returns arrays like a program's inputs, for two environments: with one, torch would fix the size."""
    observations = policy.seen(observations)
    shown = tree.map_structure(lambda leaf: np.zeros((2, *leaf.shape), leaf.dtype), observations)
    if not (state := policy.initial_state(2)):
        return (shown,)
    return shown, state, np.ones(2, bool)


def from_task(module: nn.Module, task: types.NestedSpec, agent: types.NestedSpec) -> nn.Module:
    """Returns a module that takes the task's observations instead of the agent's.

    Args:
        module: The module, which takes the agent's observations.
        task: The spec of the task's observations.
        agent: The spec of the agent's observations.

    Raises:
        ValueError: The wrappers of training do more than concatenate and cast.
    """
    others = [
        specs.leaf_name("observation", path)
        for path, leaf in tree.flatten_with_path(task)
        if float_observation.becomes_float(leaf)
    ]
    if others:
        raise ValueError(
            f"The task's observations must be floats or images, but {', '.join(others)} became floats in "
            "training. Export with `--actions agent`, and convert them as `FloatObservationWrapper` does."
        )
    return _FromTask(module, task, agent)


class _FromTask(nn.Module):
    """Converts observations as `ConcatObservationWrapper` and `SinglePrecisionWrapper` do, then acts."""

    def __init__(self, module: nn.Module, task: types.NestedSpec, agent: types.NestedSpec) -> None:
        super().__init__()
        self._module = module
        part = agent["policy"] if isinstance(agent, Mapping) and {*agent} == {"policy"} else agent
        self._is_vector = isinstance(part, specs.Array) and len(part.shape) == 1
        self._dtypes = [torch.from_numpy(np.empty(0, leaf.dtype)).dtype for leaf in tree.flatten(agent)]
        self._agent = agent

    def forward(self, observations: types.NestedTensor, state: Any = (), start: Any = None) -> Any:
        leaves = tree.flatten(observations)
        if self._is_vector:
            leaves = [
                torch.cat([leaf.flatten(1) if leaf.ndim > 1 else leaf[:, None] for leaf in leaves], dim=1)
            ]
        leaves = [leaf.to(dtype) for leaf, dtype in zip(leaves, self._dtypes, strict=True)]
        observations = tree.unflatten_as(self._agent, leaves)
        return self._module(observations) if start is None else self._module(observations, state, start)


def export(module: nn.Module, inputs: tuple[Any, ...]) -> torch.export.ExportedProgram:
    """Makes a program of `torch.export` for any batch size; `inputs` are those of `make_inputs`."""
    example = tree.map_structure(torch.from_numpy, inputs)
    with _quiet():
        return torch.export.export(module, example, dynamic_shapes=_any_batch(example))


def load(file: str) -> Program:
    """Loads a program of `torch.export` as a function of arrays."""
    module = torch.export.load(file).module()

    def run(*inputs: Any) -> Any:
        with torch.no_grad():
            return tree.map_structure(
                torch.Tensor.numpy, module(*tree.map_structure(torch.from_numpy, inputs))
            )

    return run


def write_onnx(module: nn.Module, inputs: tuple[Any, ...], file: str, metadata: str) -> None:
    """Writes a module as one ONNX file.

    The inputs are `observation`, or `observation/<path>` for each array of a nest; with memory also
    `state/<index>` and `start`. The outputs are `action`, or `action/<path>`, and with memory also
    `next_state/<index>`.

    Args:
        module: The module.
        inputs: The inputs of `make_inputs`.
        file: The path of the file.
        metadata: The content of run.json.
    """
    example = tuple(map(torch.from_numpy, tree.flatten(inputs)))
    names = ["/".join(map(str, ("observation", *path))) for path, _ in tree.flatten_with_path(inputs[0])]
    num_states = len(tree.flatten(inputs[1])) if len(inputs) > 1 else 0
    if num_states:
        names += [*(f"state/{index}" for index in range(num_states)), "start"]
    with _quiet(), torch.no_grad():
        outputs = module(*tree.map_structure(torch.from_numpy, inputs))
        action = outputs[0] if num_states else outputs
        outs = ["/".join(map(str, ("action", *path))) for path, _ in tree.flatten_with_path(action)]
        written = torch.onnx.export(
            _Flat(module, inputs).eval(),
            example,
            input_names=names,
            output_names=[*outs, *(f"next_state/{index}" for index in range(num_states))],
            dynamic_shapes=(_any_batch(example),),
            dynamo=True,
            verbose=False,
        )
    assert written is not None
    for node in written.model.graph.all_nodes():  # they name the files of this machine
        node.metadata_props.clear()
    written.model.metadata_props["minerva_acme"] = metadata
    written.save(file, external_data=False)


def load_onnx(file: str) -> Program:
    """Loads an ONNX file as a function of arrays, computed by onnxruntime on the CPU.

    Of a nest of actions, the function returns the arrays in their order.
    """
    import onnxruntime

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    kinds = [each.name.split("/", 1)[0] for each in session.get_outputs()]
    is_nest = session.get_outputs()[0].name != "action"

    def run(*inputs: Any) -> Any:
        outputs = session.run(None, dict(zip(names, tree.flatten(inputs), strict=True)))
        actions = tuple(each for kind, each in zip(kinds, outputs, strict=True) if kind == "action")
        state = tuple(outputs[len(actions) :])
        action = actions if is_nest else actions[0]
        return (action, state) if state else action

    return run


class _Flat(nn.Module):
    """A module of single tensors, for one of nests."""

    def __init__(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        super().__init__()
        self._module = module
        self._inputs = inputs

    def forward(self, *leaves: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(tree.flatten(self._module(*tree.unflatten_as(self._inputs, leaves))))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides what torch's exporters warn of: their own calls, torch's recurrent layers, torchvision."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _any_batch(example: Any) -> Any:
    batch = torch.export.Dim("batch", min=1)
    return tree.map_structure(lambda leaf: {0: batch}, example)


def compare(
    program: Program,
    policy: builders.AgentPolicy,
    make_environment: Callable[[int], dm_env.Environment],
    interface: Interface,
    num_episodes: int,
) -> Comparison:
    """Plays whole episodes with a policy, and compares the actions of its program at every step.

    It plays 1 environment, then 7 at once, whose episodes start and end independently.

    Args:
        program: The program.
        policy: The policy for evaluation, which acts as in training.
        make_environment: Makes an environment from a seed, wrapped as in training.
        interface: The observations and actions of the program.
        num_episodes: The number of episodes of each environment, >= 1.

    Raises:
        ValueError: A difference is larger than `LIMIT`, or `num_episodes` is below 1.
    """
    if num_episodes < 1:
        raise ValueError(f"`num_episodes` must be >= 1 to compare a program, got {num_episodes}.")
    largest, num_steps = 0.0, 0
    for size in _BATCH_SIZES:
        with contextlib.ExitStack() as stack:
            hidden = policy.critic_observations
            played = [record(make_environment(seed), interface, hidden) for seed in range(size)]
            for environment, _ in played:
                stack.callback(environment.close)
            recorders = [recorder for _, recorder in played]
            shown = played[0][0].observation_spec()
            given = recorders[0].shown(recorders[0].observation_spec())
            actions = recorders[0].action_spec()
            timesteps = [environment.reset() for environment, _ in played]
            left, start = [num_episodes] * size, np.ones(size, bool)
            initial = state = policy.initial_state(size)
            # Where an episode starts, a program must not use the state that it is given.
            kept = tree.map_structure(np.ones_like, initial)
            while max(left) > 0:
                state = tree.map_structure(functools.partial(_where, start), initial, state)
                output, state = policy.step(_stack(shown, [step.observation for step in timesteps]), state)
                observations = _stack(given, [recorder.observation for recorder in recorders])
                if initial:
                    found, kept = program(observations, kept, start)
                else:
                    found = program(observations)
                for index, (environment, _) in enumerate(played):
                    row = tree.map_structure(lambda leaf, index=index: leaf[index], output.action)
                    timesteps[index] = environment.step(row)
                expected = _stack(actions, [recorder.action for recorder in recorders])
                largest = np.maximum(largest, _difference(found, expected, actions))  # keeps NaN
                num_steps += size
                start = np.array([timestep.last() for timestep in timesteps])
                for index in np.flatnonzero(start):
                    left[index] -= 1
                    timesteps[index] = played[index][0].reset()
    if not largest <= LIMIT:
        raise ValueError(
            f"The program's actions must differ from the policy's by at most {LIMIT:g} of their range, but "
            f"they differ by {largest:.2g} in {num_steps:,} steps, so it is not written. Without the "
            "comparison (`--episodes 0`) it is; discrete actions may differ where two are equally good."
        )
    return Comparison(float(largest), num_steps, num_episodes * sum(_BATCH_SIZES))


def _where(start: np.ndarray, new: np.ndarray, old: np.ndarray) -> np.ndarray:
    return np.where(start.reshape(-1, *[1] * (new.ndim - 1)), new, old)


def _stack(spec: types.NestedSpec, rows: list[types.NestedArray]) -> types.NestedArray:
    leaves = zip(*map(tree.flatten, rows), strict=True)
    stacked = [
        np.stack(leaf).astype(part.dtype) for leaf, part in zip(leaves, tree.flatten(spec), strict=True)
    ]
    return tree.unflatten_as(spec, stacked)


def _difference(found: types.NestedArray, expected: types.NestedArray, spec: types.NestedSpec) -> float:
    """Returns the largest difference of two batches of actions, relative to the range of each number."""
    largest = [0.0]
    for one, other, leaf in zip(*map(tree.flatten, (found, expected, spec)), strict=True):
        size: Any = 1.0
        if isinstance(leaf, specs.BoundedArray):
            low, high = (bound.astype(np.float64) for bound in specs.bounds(leaf))
            size = np.where(high > low, high - low, 1.0)
        largest.append(np.abs((one.astype(np.float64) - other) / size).max())
    return float(np.max(largest))
