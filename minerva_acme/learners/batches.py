"""What a learner takes from its dataset."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import torch
import tree

from minerva_acme import types
from minerva_acme.learners import samples
from minerva_acme.replay import dataset as datasets

Batch = TypeVar("Batch")


def next_sample(dataset: Iterator[Any], kind: type[Any], layout: str) -> Any:
    """A dataset's next sample: its `data`, and the `info` of its items, or None where it has none.

    Arguments and errors as of `next_batch`.
    """
    sample = next(dataset)
    data = samples.data_of(sample)
    samples.check_kind(data, kind, layout)
    info: Any = getattr(sample, "info", None)
    return datasets.ReplaySample(info, data)


def next_batch(dataset: Iterator[Any], kind: type[Batch], layout: str) -> Batch:
    """The data of a dataset's next sample.

    Args:
        dataset: Yields samples with `data`, or bare data.
        kind: The class that the data must have: Trajectory, Rollout, ...
        layout: The name of the layout that packs and unpacks it, for the message.

    Raises:
        TypeError: It has another, for example from a table that was written for another learner.
    """
    data: Batch = next_sample(dataset, kind, layout).data
    return data


def at(nest: Any, index: Any) -> Any:
    """A nest of tensors at some of their indices: `leaf[index]` of each."""
    return tree.map_structure(lambda leaf: leaf[index], nest)


def where_unmasked(mask: torch.Tensor, nest: Any) -> Any:
    """A nest of [B, T, *] with 0 for the floats at masked steps, [B, T], where anything may stand.

    For `require_finite`, to which integers are nothing to look at: they stay.
    """

    def of_leaf(x: torch.Tensor) -> torch.Tensor:
        happened = (mask > 0).view(*mask.shape, *[1] * (x.ndim - mask.ndim))
        return x.where(happened, 0.0) if x.is_floating_point() else x

    return tree.map_structure(of_leaf, nest)


def checked_fields(batch: Any) -> Mapping[str, types.NestedTensor]:
    """What must be finite of a batch, by name in the plural, for `require_finite`.

    Not what stands at masked steps of a `Trajectory`, nor extras: what a behaviour policy recorded may be
    infinite and right.
    """
    if isinstance(batch, types.Trajectory):
        begun = torch.nn.functional.pad(batch.mask, (1, 0), value=1.0)  # [B, T + 1]  of states
        batch = batch._replace(
            observation=where_unmasked(begun, batch.observation),
            **{
                name: where_unmasked(batch.mask, getattr(batch, name))
                for name in ("action", "reward", "discount")
            },
        )
    if not hasattr(batch, "_asdict"):
        return {"batches": batch}
    return {f"{name.replace('_', ' ')}s": x for name, x in batch._asdict().items() if name != "extras"}
