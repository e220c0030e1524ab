"""Decides whether a faster twin may replace the plain way.

The formula in the source is the one that runs, unless a faster twin was seen to agree with it, and no part
that both compute with was replaced since.
"""

import copy
import inspect
import math
import operator
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
import tree
from torch import nn
from torch.nn.modules import module as torch_module

from minerva_acme.acceleration import notes

_ROUNDING = 1e-3  # of the largest of several norms; a difference of a thousandth of this is rounding
_TINY = 1e-30  # avoids a division of 0 by 0
_FAR = (30.0, -30.0)  # factors of weights

_FORWARD = operator.attrgetter("forward")
# Attributes of all modules, whose dicts are watched separately, and sizes that no layer computes with.
_OF_NO_CONSEQUENCE = frozenset(vars(nn.Module())) | {"in_features", "out_features", "output_size"}


class Watch:
    """Checks in a few microseconds whether modules are still made of the same parts.

    These are: the same layers, parameters and buffers, in the same memory; equal attributes, such as an ELU's
    alpha; the same classes with the same `forward`; no hooks, and no methods set on an instance. Of training
    and evaluation mode, only batch norm's matters.
    """

    def __init__(self, root: nn.Module, parts: Iterable[nn.Module] | None = None) -> None:
        """Records the parts to watch.

        Args:
            root: The module.
            parts: The modules in it that matter; None for all of them.
        """
        self._parts = parts = [*(root.modules() if parts is None else parts)]
        holders = [d for part in parts for d in (part._parameters, part._buffers, part._modules)]
        held = [(d, name, x) for d in holders for name, x in d.items() if isinstance(x, torch.Tensor)]
        self._tensors = [x for _, _, x in held]
        self._matrices = [x for x in self._tensors if x.ndim > 1]  # Other tensors have only one layout.
        # Dicts with another tensor of equal numbers compare as equal if the tensor has a single element.
        self._single = [(d, name) for d, name, x in held if x.numel() == 1]
        # With the classes that they derive from, whose `forward` their own may call.
        kinds = dict.fromkeys(kind for part in parts for kind in type(part).__mro__)
        self._kinds = [kind for kind in kinds if kind is not nn.Module and hasattr(kind, "forward")]
        self._forwards = [*map(_FORWARD, self._kinds)]
        self._batch_norms = [part for part in parts if isinstance(part, nn.modules.batchnorm._BatchNorm)]
        self._attributes = [vars(part) for part in parts]
        self._own = [
            (attributes, operator.itemgetter(*names))
            for attributes in self._attributes
            if (names := [name for name in attributes if name not in _OF_NO_CONSEQUENCE])
        ]
        self._holders = [holder for holder in holders if holder]
        self._empty = [holder for holder in holders if not holder]
        self._empty += [hooks for part in parts for hooks in hooks_of(part)]
        self._seen_holders = [dict(holder) for holder in self._holders]
        self._seen = self._look()

    def is_unchanged(self, is_shared: bool = True) -> bool:
        """Returns whether nothing was replaced, inserted or changed, except the numbers in the tensors.

        Args:
            is_shared: Whether other code can access the modules, so that all of them must be checked, and not
                only their classes.
        """
        if [*map(_FORWARD, self._kinds)] != self._forwards or any(_GLOBAL_HOOKS):
            return False
        if not is_shared:
            return True
        if any(self._empty):
            return False
        try:
            return self._holders == self._seen_holders and self._look() == self._seen
        # Tensors, or attributes that are tensors or arrays, have been replaced; or an attribute is gone.
        except (KeyError, RuntimeError, ValueError):
            return False

    def _look(self) -> list[Any]:
        # Mostly without Python loops, since this is called for each action.
        return [
            [*map(type, self._parts)],
            [*map(len, self._attributes)],
            [own(attributes) for attributes, own in self._own],
            [id(holder[name]) for holder, name in self._single],
            [part.training for part in self._batch_norms],
            [*map(torch.Tensor.data_ptr, self._tensors)],
            [*map(torch.Tensor.stride, self._matrices)],
        ]


class Originals:
    """The functions and methods in whose place a twin computes, as they were when it was written.

    A twin asks at each of its steps whether one of them was replaced: then the replacement is what runs.
    """

    def __init__(self, *places: tuple[Any, str]) -> None:
        """Records what is in each place: a module or a class, and a name that it has or inherits.

        Raises:
            AttributeError: A place has no such name.
        """
        for owner, name in places:
            getattr(owner, name)  # which also loads what is loaded lazily
        self._holders = [(vars(owner), name) for owner, name in places]
        self._written = [holder.get(name) for holder, name in self._holders]

    def replaced(self) -> str:
        """Returns the name of the first that was replaced; empty if all are as written."""
        found = [holder.get(name) for holder, name in self._holders]
        if found == self._written:
            return ""
        pairs = zip(self._holders, found, self._written, strict=True)
        return next(name for (_, name), now, before in pairs if now is not before)


def methods_of(*objects: Any) -> Originals:
    """Returns the methods of objects, of their classes and those that these derive from, as they are now."""
    kinds = dict.fromkeys(kind for each in objects for kind in type(each).__mro__)
    own = [kind for kind in kinds if kind is not object and kind is not nn.Module]
    return Originals(
        *((kind, name) for kind in own for name, value in vars(kind).items() if inspect.isfunction(value))
    )


class Pair(NamedTuple):
    """The results of a twin and of the plain way: tensors, or nests with tensors of the same shapes."""

    found: Any
    wanted: Any
    tolerance: float = 1e-3  # the largest difference, relative to the norm of each tensor

    def is_finite(self) -> bool:
        """Returns whether the plain way's results are finite."""
        return all(x.is_meta or bool(x.isfinite().all()) for x in _tensors(self.wanted))

    def difference(self) -> float:
        """Returns the largest difference of a tensor, relative to its norm; infinite if shapes differ."""
        found, wanted = _tensors(self.found), _tensors(self.wanted)
        if [x.shape for x in found] != [x.shape for x in wanted]:
            return math.inf
        norms = [_norm(x) for x in wanted]
        # A tensor that is small compared to the largest one may be nothing but rounding.
        floor = _ROUNDING * max(norms, default=0.0) + _TINY
        differences = [_norm(x.detach() - y.detach()) for x, y in zip(found, wanted, strict=True)]
        return max(
            (difference / (norm + floor) for difference, norm in zip(differences, norms, strict=True)),
            key=lambda share: (math.isnan(share), share),
            default=0.0,
        )


@torch.no_grad()
def far_weights(what: str, module: nn.Module, compare: Callable[[Any], Pair]) -> dict[str, Pair]:
    """Compares where numbers are clipped, which is far from the weights of a new network.

    Args:
        what: The name of what is compared.
        module: The module.
        compare: Computes the pair of a copy of the module, whose weights are multiplied by a factor, which
            also replaces zeros.

    Returns:
        The finite pairs, by name.
    """
    pairs = {}
    far = copy.deepcopy(module)
    for factor in _FAR:
        for near, parameter in zip(module.parameters(), far.parameters(), strict=True):
            parameter.copy_((factor * near).masked_fill(near == 0.0, factor))
        found, wanted, tolerance = compare(far)
        # The results may share the memory of the weights, which the next factor changes.
        found, wanted = tree.map_structure(_kept, (found, wanted))
        pairs[f"{what} of {factor:g} times the weights"] = Pair(found, wanted, tolerance)
    # From far away, results that are not finite decide nothing.
    return {name: pair for name, pair in pairs.items() if pair.is_finite()}


class Agreement:
    """A record of whether a faster twin of one part was seen to give the same results as the plain way.

        if agreement.holds():                  # compared, and nothing was replaced since
            return fast(x)
        found, wanted = fast(x), plain(x)
        return found if agreement.settle(network, outputs=Pair(found, wanted)) else wanted

    A disagreement is logged in one warning, and is permanent: `is_broken`.
    """

    def __init__(self, part: str) -> None:
        """Starts without a comparison; `part` is the part's name, for the log."""
        self._part = part
        self.is_broken = False
        self.holds: Callable[..., bool] = _never
        """Returns whether the twin may compute uncompared; for `is_shared` see `Watch.is_unchanged`."""

    def forget(self) -> None:
        """Makes the next call a comparison, for example after a restore."""
        self.holds = _never

    def settle(self, network: nn.Module | Watch, **pairs: Pair) -> bool:
        """Compares the results of the twin with the results of the plain way.

        Args:
            network: The module that both compute, or a `Watch` of it made together with the twin; replacing a
                part of it makes the agreement void.
            **pairs: The results of the twin and of the plain way, by name.

        Returns:
            Whether the twin's results may be used. If the plain ones are not finite, nothing is decided, and
            the next call is a comparison again.
        """
        wanted = [x for pair in pairs.values() for x in _tensors(pair.wanted)]
        if any(x.is_meta for x in wanted):  # without numbers there is nothing to compare
            return True
        if not all(pair.is_finite() for pair in pairs.values()):
            return False
        for name, pair in pairs.items():
            difference = pair.difference()
            if not difference <= pair.tolerance:  # also if it is NaN
                self.is_broken = True
                notes.warn(
                    self._part,
                    "plain torch from now on, because the faster way gave other results: "
                    f"{name} differ by {difference:.2g} of their norm",
                )
                return False
        # The watch's own method: one call fewer for each action.
        self.holds = (network if isinstance(network, Watch) else Watch(network)).is_unchanged
        return True


def _never(is_shared: bool = True) -> bool:
    return False


def hooks_of(module: nn.Module) -> list[Any]:
    """Returns the hooks that run when a module is called, by kind: empty dicts fill as hooks are added."""
    return [
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    ]


_GLOBAL_HOOKS: list[Any] = [  # of all modules
    torch_module._global_forward_hooks,
    torch_module._global_forward_pre_hooks,
    torch_module._global_backward_hooks,
    torch_module._global_backward_pre_hooks,
]


def has_hooks(root: nn.Module) -> bool:
    """Returns whether calling a module runs a hook of the module or of a part of it."""
    return any(_GLOBAL_HOOKS) or any(any(hooks_of(part)) for part in root.modules())


def is_called_as_written(module: nn.Module) -> bool:
    """Returns whether calling a module runs only methods of its class: no hooks, no methods set on it."""
    if any(hooks_of(module)) or any(_GLOBAL_HOOKS):
        return False
    kind = type(module)
    return not any(callable(value) and hasattr(kind, name) for name, value in vars(module).items())


def _kept(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf


def _norm(x: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(x.detach().double()))


def _tensors(nest: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree.flatten(nest) if isinstance(leaf, torch.Tensor)]
