"""Conversion of samples from a user's own dataset to the form that learners take.

Shapes: B batch; T steps; E environments.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import tree
from torch import nn

from minerva_acme import specs, types
from minerva_acme.replay import base as replay
from minerva_acme.replay import dataset as datasets

_AXES: dict[type[Any], str] = {types.Transition: "[B]", types.Trajectory: "[B, T]", types.Rollout: "[T, E]"}
_ROUNDING = 1e-5
_NUM_AXES = {kind: 1 + axes.count(",") for kind, axes in _AXES.items()}

_OF_BATCHES = "Give each item of a batch what the environment gives or takes."
_IN_BOUNDS = "Scale or clip the actions of a batch to what the agent executes."


class Kind(NamedTuple):
    """The kind of data that a learner takes."""

    kind: type[Any] | None = None  # its class; None: any
    layout: str = ""  # the name of the layout that packs and unpacks it, for messages
    extras: Sequence[str] = ()  # the names that its `extras` must have


ANY = Kind()


def checked_samples(
    dataset: Iterator[Any],
    *,
    modules: Iterable[nn.Module],
    device: torch.device | None = None,
    kind: type[Any] | None = None,
    layout: str = "",
    extras: Sequence[str] = (),
    needs_info: bool = False,
    spec: specs.EnvironmentSpec | None = None,
) -> Iterator[Any]:
    """Returns a dataset whose samples have the form that learners take, wherever they come from.

    The first sample is checked. If it is complete, later ones pass unchanged; if not, each one is completed:
    arrays become tensors on `device`, float64 becomes the dtype of the networks, and bare data is wrapped in
    a sample. A `replay.dataset.Dataset`, whose samples are complete, is returned itself.

    Args:
        dataset: An iterator of samples with `data`, or of bare `types.Transition`, `Trajectory` or `Rollout`.
        modules: The networks that receive the data; their first floating-point parameter sets the dtype.
        device: The device of the learner, or None to use the device of the networks.
        kind: The class that the data must have; None for any.
        layout: The name of the layout that packs and unpacks the kind, for the message.
        extras: The names that the data's `extras` must have.
        needs_info: Whether a sample must have the `replay.SampleInfo` of its items.
        spec: The environment's spec, whose shapes and bounds of actions the data must have; None if unknown.

    Raises:
        TypeError: `dataset` is not an iterator, or (with the first sample) holds data that cannot be learned
            from. The message says what the data should be and how to write it.
        ValueError: With the first sample: its leading axes do not match each other, a discount is not in
            [0, 1], or a field does not fit the spec.
    """
    if not hasattr(dataset, "__next__"):
        raise TypeError(
            f"`dataset` must be an endless iterator of batches, got {type(dataset).__name__}. Return "
            "`itertools.cycle(dataset)` from `make_dataset`, or a generator that yields its batches."
        )
    if isinstance(dataset, datasets.Dataset):
        return dataset
    modules = list(modules)
    if device is None:
        device = next(parameter.device for module in modules for parameter in module.parameters())
    return _CheckedSamples(dataset, modules, device, kind, layout, extras, needs_info, spec)


def check_kind(data: Any, kind: type[Any], layout: str) -> None:
    """Checks that a batch has the class that a learner takes.

    Raises:
        TypeError: It has another class, for example from a table that was written for another learner.
    """
    if not isinstance(data, kind):
        raise TypeError(
            f"`dataset` must give batches of {kind.__name__}, got {type(data).__name__}. "
            f"Write and unpack them with a {layout}."
        )


def data_of(sample: Any) -> Any:
    """Returns the data of a sample, or the sample itself if it is bare data.

    Raises:
        TypeError: It is neither.
    """
    if isinstance(sample, tuple(_AXES)):
        return sample
    # Arrays and tensors also have a `data` attribute, with a different meaning.
    if hasattr(sample, "data") and not isinstance(sample, np.ndarray | np.generic | torch.Tensor):
        return sample.data
    way_out = "Yield types.Transition(observation=..., ...), or replay.dataset.ReplaySample(info, data)."
    if isinstance(sample, dict) and "observation" in sample:
        way_out = "Yield types.Transition(**batch), types.Trajectory(**batch) or types.Rollout(**batch)."
    raise TypeError(
        "`dataset` must give samples with `data`, or bare Transitions, Trajectories or Rollouts, got "
        f"{_describe(sample)}. {way_out}"
    )


class _CheckedSamples(Iterator[Any]):
    """The dataset that `checked_samples` returns."""

    def __init__(
        self,
        dataset: Iterator[Any],
        modules: Sequence[nn.Module],
        device: torch.device,
        kind: type[Any] | None,
        layout: str,
        extras: Sequence[str],
        needs_info: bool,
        spec: specs.EnvironmentSpec | None,
    ) -> None:
        self._dataset = dataset
        self._modules = modules
        self._device = device
        self._kind = kind
        self._layout = layout
        self._extras = extras
        self._needs_info = needs_info
        self._spec = spec
        self._dtype: torch.dtype | None = None  # that replaces float64; None keeps it
        self._is_checked = False
        self._passes = False  # whether samples arrive complete

    def __next__(self) -> Any:
        sample = next(self._dataset)
        if self._passes:
            return sample
        if self._is_checked:
            return self._completed(sample)
        if self._kind is not None:
            check_kind(data_of(sample), self._kind, self._layout)
        self._dtype = _dtype(self._modules)
        completed = self._completed(sample)
        self._check(completed)
        self._passes = _is_complete(sample, completed)
        self._is_checked = True
        return completed

    def _completed(self, sample: Any) -> Any:
        data = tree.map_structure_with_path(self._tensor, data_of(sample))
        info: Any = getattr(sample, "info", None)
        return datasets.ReplaySample(info, data)

    def _tensor(self, path: tuple[Any, ...], leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            if not hasattr(leaf, "__array__"):
                if path and path[0] == "extras":
                    return leaf  # Any value that a user's own loss can use.
                raise TypeError(
                    f"`{_name(path)}` of a batch must be a tensor or an array, got {_describe(leaf)}. Stack "
                    "the values of its items: np.asarray(values, np.float32)."
                )
            leaf = _from_array(path, np.asarray(leaf))
        dtype = self._dtype if leaf.dtype == torch.float64 else None
        return leaf.to(self._device, dtype)  # the same tensor if nothing changes

    def _check(self, sample: Any) -> None:
        data = sample.data
        if not all(tree.flatten(getattr(data.extras, name, ())) for name in self._extras):
            names = ", ".join(f"`{name}`" for name in self._extras)
            given = ", ".join(f"{name}=..." for name in self._extras)
            raise TypeError(
                f"`extras` of a batch must have {names}, which the policy that acted records, got "
                f"{_describe(data.extras)}. Yield extras=acting.BehaviourExtras({given}), from "
                "`minerva_acme.agents`."
            )
        if self._needs_info and not isinstance(sample.info, replay.SampleInfo):
            raise TypeError(
                "`dataset` must give samples with an `info`, the `replay.SampleInfo` of their items, for "
                f"prioritized replay, got {_describe(sample.info)}. Set `prioritized` to False."
            )
        for kind in _AXES:
            if isinstance(data, kind):
                _check_axes(data, kind)
                _check_discounts(data)
                if self._spec is not None:
                    _check_fits(data, kind, self._spec)


def _check_axes(data: Any, kind: type[Any]) -> None:
    """Checks that all leaves of a batch have the same leading axes as its discounts.

    Raises:
        ValueError: A leaf does not; the message names it.
    """
    num_axes = _NUM_AXES[kind]
    for name, meaning in (
        ("discount", "0 where the episode ended, 1 elsewhere"),
        ("mask", "1 where the step happened, 0 where it is padding"),
    ):
        found = getattr(data, name, None)
        leaf = next(iter(tree.flatten(found)), None)
        if hasattr(data, name) and not isinstance(leaf, torch.Tensor):
            raise ValueError(
                f"`{name}` of a batch must be {_AXES[kind]}, got {_describe(found)}. Give one number to each "
                f"step: {meaning}."
            )
    discount = tree.flatten(data.discount)[0]
    for path, leaf in tree.flatten_with_path(data):
        if not isinstance(leaf, torch.Tensor):
            continue
        fitting = list(discount.shape[:num_axes])
        if kind is types.Trajectory and path[0] == "observation" and len(fitting) == 2:
            fitting[1] += 1  # [B, T + 1]
        if kind is types.Trajectory and path[0] == "state":
            fitting = fitting[:1]  # one for each sequence
        # An extra axis of size 1 would be broadcast against the others and silently change every number.
        is_number = path[0] in ("reward", "discount", "mask", "first", "last", "return_so_far")
        if is_number and list(leaf.shape) == [*fitting, 1]:
            raise ValueError(
                f"`{_name(path)}` of a batch must be {_AXES[kind]}, got the shape {list(leaf.shape)}. Remove "
                "its last axis: values.squeeze(-1)."
            )
        if discount.ndim < num_axes or list(leaf.shape[: len(fitting)]) != fitting:
            raise ValueError(
                f"`{_name(path)}` of a batch must begin with the axes {fitting}, got the shape "
                f"{list(leaf.shape)}. The discounts of a {kind.__name__} are {_AXES[kind]}, here "
                f"{list(discount.shape)}: stack the items of a batch along these axes."
            )


def _check_discounts(data: Any) -> None:
    """Checks that the discounts of all steps that happened are in [0, 1].

    Raises:
        ValueError: One is not.
    """
    discount = tree.flatten(data.discount)[0]
    if discount.is_meta:  # without values
        return
    happened = _happened(data, discount)
    if ((happened < -_ROUNDING) | (happened > 1.0 + _ROUNDING)).any():
        raise ValueError(
            "`discount` of a batch must be in [0, 1], got numbers from "
            f"{float(happened.min()):g} to {float(happened.max()):g}. It is 0 where the episode ended, and "
            "elsewhere the factor of what follows."
        )


def _happened(data: Any, leaf: torch.Tensor) -> torch.Tensor:
    """Returns the rows of a leaf whose steps happened, [N, ...]; all of them, as they are, without a mask."""
    mask = getattr(data, "mask", None)
    return leaf if mask is None else leaf[mask > 0]


def _check_fits(data: Any, kind: type[Any], spec: specs.EnvironmentSpec) -> None:
    """Checks that a batch has the entries, shapes and bounds of actions of an environment's spec.

    Raises:
        ValueError: A field does not; the message names it.
    """
    of_spec = {
        "observation": spec.observations,
        "action": spec.actions,
        "reward": spec.rewards,
        "discount": spec.discounts,
        "next_observation": spec.observations,
    }
    for field, nest in of_spec.items():
        found = getattr(data, field, ())
        if not tree.flatten(found):  # () stands for what a loss does not use
            continue
        checker = specs.Checker(nest, field, converts="digits", way_out=_OF_BATCHES)
        for leaf, value in zip(checker.leaves, checker.flatten(found), strict=True):
            own = list(leaf.shape)
            if not isinstance(value, torch.Tensor) or list(value.shape)[_NUM_AXES[kind] :] != own:
                raise ValueError(
                    f"`{leaf.name}` of a batch must have the shape {_AXES[kind]} + {own}, by the "
                    f"environment's spec, got a {_describe(value)}. {_OF_BATCHES}"
                )
            if field == "action" and isinstance(leaf.spec, specs.BoundedArray) and not value.is_meta:
                # NumPy has no bfloat16. Whole numbers stay whole: they have no rounding.
                numbers = _happened(data, value).detach().cpu()
                numbers = numbers.double() if numbers.is_floating_point() else numbers
                specs.check_bounds(leaf.name, numbers.numpy(), leaf.spec, way_out=_IN_BOUNDS)


def _from_array(path: tuple[Any, ...], array: np.ndarray) -> torch.Tensor:
    """Makes a tensor that shares the memory of an array if possible.

    Raises:
        TypeError: Torch has no such dtype.
    """
    # Torch supports only native byte order and positive strides, and warns about read-only memory.
    if not (array.dtype.isnative and array.flags.writeable and array.flags.c_contiguous):
        array = np.array(array, array.dtype.newbyteorder("="))
    try:
        return torch.from_numpy(array)
    except TypeError as error:
        raise TypeError(
            f"`{_name(path)}` of a batch must be an array of numbers, got the dtype {array.dtype}. Convert "
            "it: np.asarray(values, np.float32)."
        ) from error


def _dtype(modules: Sequence[nn.Module]) -> torch.dtype | None:
    """Returns the dtype of the first floating-point parameter, or None without one."""
    parameters = (parameter for module in modules for parameter in module.parameters())
    return next((x.dtype for x in parameters if x.is_floating_point()), None)


def _is_complete(sample: Any, completed: Any) -> bool:
    """Returns whether a sample needed no changes."""
    before = getattr(sample, "data", None)
    if before is None or not hasattr(sample, "_replace"):
        return False
    pairs = zip(tree.flatten(before), tree.flatten(completed.data), strict=False)
    return all(old is new for old, new in pairs)


def _name(path: tuple[Any, ...]) -> str:
    """Returns the name of a leaf in a batch, like `observation['arm']`; `data` if the batch is a leaf."""
    return specs.leaf_name(str(path[0]), path[1:]) if path else "data"


def _describe(value: Any) -> str:
    """Describes a value for a message: its type, and its shape or the type of its elements."""
    if isinstance(value, np.ndarray | torch.Tensor):
        return f"{type(value).__name__} of shape {list(value.shape)}"
    if isinstance(value, dict):
        return f"dict of {sorted(map(str, value))}"
    if isinstance(value, list | tuple) and value and not hasattr(value, "_fields"):
        return f"{type(value).__name__} of {type(value[0]).__name__}"
    return repr(value) if value is None or value == () else type(value).__name__
