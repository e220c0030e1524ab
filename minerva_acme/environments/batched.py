"""Thousands of environments in tensors: the contract of batched environments, and adapters of simulators.

Shapes: B environments.
"""

import abc
from collections.abc import Callable, Mapping
from typing import Any

import dm_env
import numpy as np
import torch
import tree

from minerva_acme import core, specs, types

_FIRST, _MID, _LAST = (int(step_type) for step_type in dm_env.StepType)


class BatchedEnvironment(specs.SpecMethods, core.Closeable):
    """B environments that step together, whose timesteps are tensors on one device.

    A context manager that closes itself. A call makes no Python object for an environment:

        timestep = environment.reset()                    # FIRST everywhere
        timestep = environment.step(actions)              # actions chosen from `timestep.newest`

    `step` brings each environment one timestep. Its episode continues (MID) or has ended (LAST). Where it has
    ended, the next one has begun in the same call, and `newest` is its first observation. If
    `resets_in_next_step`, it begins in the next call instead, which ignores the action and brings FIRST.

    As in dm_env, the observation of LAST is the true last one, and a time limit leaves its discount at 1.
    Returned tensors are never written to again. The specs describe one environment, whose reward and discount
    are single numbers; a leaf of an observation is [B, *shape] of its spec, with the spec's dtype.

    To run without waiting for a GPU, `step` should not read numbers on the host.
    """

    gives_last_observation: bool = True
    """Whether the observation of LAST is the true one. It is not for a simulator that resets by itself and
    keeps only the next episode's observation: agents that bootstrap refuse such an environment."""

    resets_in_next_step: bool = False
    """Whether an episode begins in the call after the one that ended the last episode."""

    def __init__(
        self, num_environments: int, environment_spec: specs.EnvironmentSpec, device: torch.device | str
    ) -> None:
        """Initialises the environment.

        Args:
            num_environments: The number of environments, B.
            environment_spec: The specs of one environment.
            device: The device of the tensors.

        Raises:
            ValueError: `num_environments` is below 1.
        """
        if num_environments < 1:
            raise ValueError(f"`num_environments` must be >= 1, got {num_environments}.")
        self.num_environments = num_environments
        self.device = torch.device(device)
        self._specs = environment_spec

    @abc.abstractmethod
    def reset(self) -> types.BatchedTimeStep:
        """Begins a new episode in every environment."""

    @abc.abstractmethod
    def step(self, actions: types.NestedTensor) -> types.BatchedTimeStep:
        """Makes one step in every environment.

        Args:
            actions: The actions, [B, *shape] of the action spec, on the environments' device.

        Raises:
            ValueError: The actions have another shape, or `reset` was never called.
        """

    def restart(self, observation: types.NestedTensor) -> types.BatchedTimeStep:
        """Returns FIRST everywhere, with this observation, for `reset`."""
        ones = torch.ones(self.num_environments, device=self.device)
        first = torch.full_like(ones, _FIRST, dtype=torch.uint8)
        return types.BatchedTimeStep(first, torch.zeros_like(ones), ones, observation, observation)

    def check_actions(self, actions: types.NestedTensor, is_open: bool = True) -> None:
        """Checks the shapes of actions, without reading them, for `step`.

        Args:
            actions: The actions.
            is_open: Whether `reset` has begun episodes.

        Raises:
            ValueError: A leaf is not [B, *shape] of its spec, or no episode is open.
        """
        if not is_open:
            raise ValueError("No episode is open. Call `reset` before the first `step`.")
        for (path, spec), leaf in zip(
            tree.flatten_with_path(self._specs.actions), tree.flatten(actions), strict=True
        ):
            expected = (self.num_environments, *spec.shape)
            if tuple(leaf.shape) != expected:
                raise ValueError(
                    f"`{specs.leaf_name('actions', path)}` must hold one action for each of the "
                    f"{self.num_environments} environments, {list(expected)}, got {list(leaf.shape)}."
                )

    def get_info(self) -> Mapping[str, torch.Tensor]:
        """Returns numbers or booleans of the newest step, [B], by name: the same names in every step.

        Evaluations report them as they do the info of single environments, see `runs.evaluate`. Where an
        episode has ended, they are those of its last step.
        """
        return {}

    def close(self) -> None:
        """Does nothing. An environment that holds resources overrides it."""


class SimulatorEnvironment(BatchedEnvironment):
    """A batched simulator with the methods of Gymnasium's vectors. A subclass says how its episodes end:

        simulator.reset() -> observation, infos
        simulator.step(actions) -> observation, reward, terminated, truncated, infos

        MaskedResets         it never resets by itself: it is told which environments to reset
        FinalObservations    it resets in the same step, and keeps the last observations in the infos
        NextStepResets       it resets in the next step

    Isaac Lab, ManiSkill and mjlab have these methods on tensors, Gymnasium and EnvPool on numpy arrays.
    """

    def __init__(
        self,
        simulator: Any,
        environment_spec: specs.EnvironmentSpec,
        *,
        num_environments: int,
        device: torch.device | str = "cpu",
        to_tensor: Callable[[Any], torch.Tensor] | None = None,
        from_tensor: Callable[[torch.Tensor], Any] | None = None,
        info: Callable[[Any], Mapping[str, Any]] = lambda infos: {},
    ) -> None:
        """Takes ownership of the simulator, and closes it in `close` if it can be closed.

        Args:
            simulator: The simulator.
            environment_spec: The specs of one environment, with one number as reward and as discount.
                Observations are converted to their dtypes.
            num_environments: B.
            device: The device of the tensors.
            to_tensor: Converts what the simulator returns, in memory that it never writes to again. None
                copies arrays and tensors; for arrays that cannot change, such as JAX's, `torch.from_dlpack`
                needs no copy.
            from_tensor: Converts actions to what it takes. None leaves them tensors.
            info: Takes from its infos what evaluations report, such as `lambda infos: {"success":
                infos["success"]}`; see `get_info`.
        """
        super().__init__(num_environments, environment_spec, device)
        self.simulator = simulator
        self._to_tensor = to_tensor or self._copy
        self._from_tensor = from_tensor
        self._info = info
        self._newest_info: dict[str, torch.Tensor] = {}
        self._dtypes = tree.map_structure(lambda spec: torch_dtype(spec.dtype), environment_spec.observations)
        self._newest: types.NestedTensor = None  # before the first reset
        self._is_closed = False

    def reset(self) -> types.BatchedTimeStep:
        observation, _ = self.simulator.reset()
        self._newest = self._observation(observation)
        return self.restart(self._newest)

    def step(self, actions: types.NestedTensor) -> types.BatchedTimeStep:
        self.check_actions(actions, self._newest is not None)
        if self._from_tensor is not None:
            actions = tree.map_structure(self._from_tensor, actions)
        observation, reward, terminated, truncated, infos = self.simulator.step(actions)
        self._newest_info = {name: self._number(values) for name, values in self._info(infos).items()}
        terminated, truncated = (self._number(flag).bool() for flag in (terminated, truncated))
        timestep = types.BatchedTimeStep(
            step_type=(terminated | truncated).to(torch.uint8) + _MID,
            reward=self._number(reward),
            discount=1.0 - terminated.float(),
            observation=self._observation(observation),
            newest=(),
        )
        timestep = self._ended(timestep, infos)
        self._newest = timestep.newest
        return timestep

    def get_info(self) -> Mapping[str, torch.Tensor]:
        return self._newest_info

    @abc.abstractmethod
    def _ended(self, timestep: types.BatchedTimeStep, infos: Any) -> types.BatchedTimeStep:
        """Completes a timestep, whose observation is what `step` returned, with the true last and the newest.

        Called once per step; `_newest` is still the newest observation before the step.
        """

    def close(self) -> None:
        if not self._is_closed and hasattr(self.simulator, "close"):
            self.simulator.close()
        self._is_closed = True

    def _observation(self, observation: Any) -> types.NestedTensor:
        return tree.map_structure_up_to(
            self._dtypes, lambda dtype, leaf: self._to_tensor(leaf).to(dtype), self._dtypes, observation
        )

    def _number(self, values: Any) -> torch.Tensor:
        """Returns one number per environment, [B]."""
        return self._to_tensor(values).float().reshape(self.num_environments)

    def _copy(self, values: Any) -> torch.Tensor:
        return torch.as_tensor(values, device=self.device).clone()


class MaskedResets(SimulatorEnvironment):
    """A simulator that never resets by itself, such as mjlab with `auto_reset=False`.

    So it returns the true last observations, and `reset_where` then resets the environments that have ended,
    in the same call.
    """

    def __init__(self, *arguments: Any, reset_where: Callable[[torch.Tensor], Any], **settings: Any) -> None:
        """Initialises the environment.

        Args:
            *arguments: The arguments of `SimulatorEnvironment`.
            reset_where: Resets the environments where a mask [B] is true, and returns the newest observation
                of all. It is called after every step, since only the device knows whether an episode ended.
            **settings: More arguments of `SimulatorEnvironment`.
        """
        super().__init__(*arguments, **settings)
        self._reset_where = reset_where

    def _ended(self, timestep: types.BatchedTimeStep, infos: Any) -> types.BatchedTimeStep:
        newest = self._observation(self._reset_where(timestep.step_type == _LAST))
        return timestep._replace(newest=newest)


class FinalObservations(SimulatorEnvironment):
    """A simulator that resets in the same step, and returns the first observation of the next episode.

    The last ones are in its infos, as with Isaac Lab's `compute_final_obs` or ManiSkill. If they are lost,
    LAST repeats the observation before it, and agents that bootstrap refuse the environment.
    """

    def __init__(
        self, *arguments: Any, final_observation: Callable[[Any], Any] | None, **settings: Any
    ) -> None:
        """Initialises the environment.

        Args:
            *arguments: The arguments of `SimulatorEnvironment`.
            final_observation: Returns the last observations from the infos: leaves [B, ...], which may hold
                anything where no episode ends, or None if none ends at all. For example
                `lambda infos: infos.get("final_obs")`. Give None if the simulator loses them.
            **settings: More arguments of `SimulatorEnvironment`.
        """
        super().__init__(*arguments, **settings)
        self._final_observation = final_observation
        self.gives_last_observation = final_observation is not None

    def _ended(self, timestep: types.BatchedTimeStep, infos: Any) -> types.BatchedTimeStep:
        newest = timestep.observation
        last, has_ended = self._newest, timestep.step_type == _LAST
        if self._final_observation is not None:
            final = self._final_observation(infos)
            if final is None and has_ended.any():
                raise specs.SpecError(
                    "`final_observation` must return the last observations in a step that ends "
                    f"{int(has_ended.sum())} episodes, got None. Let the simulator keep them in its infos, "
                    "or give `final_observation=None` if it loses them."
                )
            last = newest if final is None else self._observation(final)
        return timestep._replace(observation=choose(has_ended, last, newest), newest=newest)


class NextStepResets(SimulatorEnvironment):
    """A simulator that resets in the step after the end of an episode, such as EnvPool or a default Gymnasium
    vector: that step ignores the action, and counts as a step of the run."""

    resets_in_next_step = True

    _had_ended: torch.Tensor | None = None  # [B] in the step before

    def reset(self) -> types.BatchedTimeStep:
        self._had_ended = None
        return super().reset()

    def _ended(self, timestep: types.BatchedTimeStep, infos: Any) -> types.BatchedTimeStep:
        if self._had_ended is not None:
            begins = self._had_ended
            timestep = timestep._replace(
                step_type=timestep.step_type.masked_fill(begins, _FIRST),
                reward=timestep.reward.masked_fill(begins, 0.0),
                discount=timestep.discount.masked_fill(begins, 1.0),
            )
        self._had_ended = timestep.step_type == _LAST
        return timestep._replace(newest=timestep.observation)


def choose(condition: torch.Tensor, one: types.NestedTensor, other: types.NestedTensor) -> types.NestedTensor:
    """Returns a nest with the rows of `one` where `condition` [B] is true, and else those of `other`."""

    def rows(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return torch.where(condition.view(-1, *[1] * (one.ndim - 1)), one, other)

    return tree.map_structure(rows, one, other)


def torch_dtype(dtype: Any) -> torch.dtype:
    """Returns the dtype of tensors for a numpy dtype."""
    return torch.from_numpy(np.empty(0, dtype)).dtype
