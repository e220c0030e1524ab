"""Torch's meta device stands in for a GPU: its tensors have shapes, but no numbers that could be read."""

import functools

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

META = torch.device("meta")


def to_meta(batch):
    return pytree.tree_map(lambda leaf: leaf.to(META), batch)


def is_object(x):
    """True of a generator, say, which is described by where it lies."""
    return isinstance(x, torch.Generator | torch.ScriptObject)


# Makes the results of operations, by their inputs: torch infers them in Python, which takes most of a step's
# time.
RESULTS = {}


def described(x):
    return (x.shape, x.stride(), x.dtype, x.device) if isinstance(x, torch.Tensor) else x


def maker_of(found):
    """Returns a function that makes tensors like this one."""
    return functools.partial(torch.empty_strided, found.shape, found.stride(), dtype=found.dtype, device=META)


class Watch(TorchDispatchMode):
    """Notes each operation with its inputs, tensors by their shapes, and mixes of devices.

    An operation that was seen before, on the same inputs, is not inferred again.
    """

    def __init__(self):
        super().__init__()
        self.operations, self.copies = [], []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        inputs = [x for x in pytree.tree_leaves((args, kwargs)) if not is_object(x)]
        operation = f"{function} {[described(x) for x in inputs]}"
        self.operations.append(operation)
        if operation in RESULTS:
            return pytree.tree_map(lambda make: make(), RESULTS[operation])
        found = function(*args, **(kwargs or {}))
        outputs = pytree.tree_leaves(found)
        devices = {x.device for x in (*inputs, *outputs) if isinstance(x, torch.Tensor)}
        if len(devices) > 1:
            self.copies.append(str(function))
        schema = function._schema
        is_new = not schema.is_mutable and all(each.alias_info is None for each in schema.returns)
        if is_new and devices == {META} and all(isinstance(x, torch.Tensor) for x in outputs):
            RESULTS[operation] = pytree.tree_map(maker_of, found)
        return found
