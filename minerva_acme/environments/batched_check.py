"""Checks of a batched environment's timesteps, which seldom wait for its device.

Shapes: B environments; K steps since the device was last read.
"""

from typing import Any, NamedTuple

import dm_env
import numpy as np
import torch
import tree

from minerva_acme import constraints, specs, types
from minerva_acme.environments import batched

_FIRST, _LAST = int(dm_env.StepType.FIRST), int(dm_env.StepType.LAST)
_EARLY = 2  # steps after which the device is read for the first time: most mistakes are in every step

LATE = (
    "Its steps are looked at together, from time to time, so that this one may be in replay and learned from "
    "already."
)


class LateSpecError(specs.SpecError):
    """An error in a step that has been observed already, and may have been learned from."""


class _Numbers(NamedTuple):
    """The specs of the numbers of a timestep; field names as in messages."""

    step_type: specs.Array
    reward: specs.Array
    discount: specs.Array


_NUMBERS = _Numbers(
    specs.BoundedArray((), np.uint8, _FIRST, _LAST),
    specs.Array((), np.float32),
    specs.BoundedArray((), np.float32, 0.0, 1.0),
)
_ROW = specs.Checker(_NUMBERS, exact=True)


class _Watched(NamedTuple):
    """The tensors of a timestep, and what they held when it was returned."""

    step: int
    names: list[str]
    leaves: list[torch.Tensor]
    copies: list[torch.Tensor]


class BatchedSpecCheck:
    """Checks the timesteps of B environments, as `wrappers.SpecCheck` does those of one.

        when                                  what
        at `reset`, and in one step a period  structure, shapes, dtypes and devices of all tensors
        in one step a period                  whether the next call writes into its tensors
        all steps, in `read`                  step types and their order; rewards that are not finite or are
                                              beyond 1e15; discounts outside of [0, 1]

    A period is the steps between two calls of `read`, the only method that waits for the device. The first
    one also ends after 2 steps. Until then the numbers of the steps are kept, 9 bytes for each environment
    and step. Observations that are not finite are not looked for: a learner skips batches with them.

    Messages name the environment's index and the step, counted from the creation of the check.
    """

    def __init__(self, environment: batched.BatchedEnvironment) -> None:
        """Begins to check. Args: environment: The environment, of which only the description is used."""
        self._name = type(environment).__name__
        self._number = environment.num_environments
        self._device = environment.device
        self._resets_in_next_step = environment.resets_in_next_step
        observations = environment.observation_spec()
        forms = types.BatchedTimeStep(*_NUMBERS, observations, observations)
        settings: dict[str, Any] = {"device": self._device, "axes": ("environment",)}
        self._forms = specs.Checker(forms, **settings)
        self._number_forms = specs.Checker(_NUMBERS, **settings)
        self._step = 0  # of the last timestep
        self._kept: list[Any] = []  # K step types, rewards and discounts, [B] each
        self._before: torch.Tensor | None = None  # [B] the step types before the kept ones
        self._watched: _Watched | None = None
        self._changed: list[tuple[_Watched, torch.Tensor]] = []  # which have changed, [leaves, B]

    def first(self, timestep: types.BatchedTimeStep) -> None:
        """Checks the timestep of a `reset`.

        Raises:
            SpecError: A tensor has another form.
        """
        self._check_forms(timestep)
        self._kept, self._changed = [], []
        self._before = torch.full_like(timestep.step_type, _FIRST)
        self._watch(timestep)

    def add(self, timestep: types.BatchedTimeStep) -> None:
        """Checks the timestep of a `step`; what its numbers are is checked in `read`.

        Raises:
            SpecError: A tensor has another form.
            LateSpecError: See `read`, which is called after the first 2 steps.
        """
        self._step += 1
        if self._watched is not None:
            self._compare(self._watched)
        if not self._kept:
            self._check_forms(timestep)
            self._watch(timestep)
        self._kept.append(timestep[:3])
        if self._step == _EARLY:
            self.read()

    def read(self) -> None:
        """Checks the numbers of the steps since the last call, and waits for the device.

        Raises:
            SpecError: Tensors have another form.
            LateSpecError: A number or a step type is wrong, or a returned tensor was written to.
        """
        kept, changed = self._kept, self._changed
        self._kept, self._changed = [], []
        if not kept or self._device.type == "meta":
            return
        assert self._before is not None
        start = self._step - len(kept) + 1
        for step, numbers in enumerate(kept, start=start):
            try:
                self._number_forms.explain(numbers, sizes=(self._number,))
            except specs.SpecError as error:
                raise self._error(step, error) from error
        step_types, rewards, discounts = map(torch.stack, zip(*kept, strict=True))  # [K, B] each
        before = torch.cat([self._before[None], step_types[:-1]])
        self._before = step_types[-1]
        must_be_first = (before == _LAST) & self._resets_in_next_step
        wrong = torch.stack(
            [
                step_types > _LAST,
                (step_types == _FIRST) != must_be_first,
                ~(rewards.abs() <= constraints.LARGEST),  # nor is NaN
                ~((discounts >= 0.0) & (discounts <= 1.0)),
            ]
        )  # [4, K, B]
        is_wrong = [wrong.any(), *(each.any() for _, each in changed)]
        if not torch.stack(is_wrong).any():  # the one wait for the device
            return
        for watched, each in changed:
            if each.any():
                leaf, index = each.nonzero()[0].tolist()
                raise self._error(
                    watched.step,
                    f"`{watched.names[leaf]}` must not be written to after it was returned, but the next "
                    "call changed it. Return new tensors in each step.",
                    index,
                )
        step, index = wrong.any(dim=0).nonzero()[0].tolist()  # the earliest one
        row = [numbers[step, index].cpu().numpy() for numbers in (step_types, rewards, discounts)]
        after = int(before[step, index])
        problem: object = (
            f"`step_type` must {'' if after == _LAST and self._resets_in_next_step else 'not '}be FIRST (0) "
            f"after {dm_env.StepType(min(after, _LAST)).name} in an environment whose `resets_in_next_step` "
            f"is {self._resets_in_next_step}, got {row[0]}."
        )
        try:
            _ROW.explain(row)
        except specs.SpecError as error:
            problem = error
        raise self._error(start + step, problem, index)

    def _check_forms(self, timestep: types.BatchedTimeStep) -> None:
        """Checks the structure, shapes, dtypes and devices of a timestep."""
        if not isinstance(timestep, types.BatchedTimeStep):
            found = f"`types.BatchedTimeStep` must be returned, got a {type(timestep).__name__}."
            raise self._error(self._step, found, is_late=False)
        try:
            self._forms.explain(timestep, sizes=(self._number,))
        except specs.SpecError as error:
            raise self._error(self._step, error, is_late=False) from error

    def _error(
        self, step: int, problem: object, index: int | None = None, *, is_late: bool = True
    ) -> specs.SpecError:
        where = "" if index is None else f", environment {index}"
        text = f"{self._name}{where}, {f'step {step}' if step else '`reset`'}: {problem}"
        return LateSpecError(f"{text} {LATE}") if is_late else specs.SpecError(text)

    def _watch(self, timestep: types.BatchedTimeStep) -> None:
        named = [
            (specs.leaf_name(name, path), leaf)
            for name, nest in timestep._asdict().items()
            for path, leaf in tree.flatten_with_path(nest)
        ]
        leaves = [leaf for _, leaf in named]
        copies = [leaf.detach().clone() for leaf in leaves]
        self._watched = _Watched(self._step, [name for name, _ in named], leaves, copies)

    def _compare(self, watched: _Watched) -> None:
        """Notes which tensors of the watched timestep have changed, by environment."""
        self._watched = None
        changed = []
        for leaf, copy in zip(watched.leaves, watched.copies, strict=True):
            differs = leaf != copy
            if leaf.is_floating_point():
                differs &= ~(leaf.isnan() & copy.isnan())
            changed.append(differs.flatten(1).any(dim=1) if differs.ndim > 1 else differs)
        self._changed.append((watched, torch.stack(changed)))
