"""Taking batches from a learner's dataset, and checking them."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import torch
import tree

from minerva_acme import types
from minerva_acme.learners import samples
from minerva_acme.replay import dataset as datasets

Batch = TypeVar("Batch")


def next_sample(dataset: Iterator[Any], kind: type[Any], layout: str) -> Any:
    """Returns a dataset's next sample: its `data`, and the `info` of its items, or None if it has none.

    Arguments and errors are those of `next_batch`.
    """
    sample = next(dataset)
    data = samples.data_of(sample)
    samples.check_kind(data, kind, layout)
    info: Any = getattr(sample, "info", None)
    return datasets.ReplaySample(info, data)


def next_batch(dataset: Iterator[Any], kind: type[Batch], layout: str) -> Batch:
    """Returns the data of a dataset's next sample.

    Args:
        dataset: The dataset, which yields samples with `data`, or bare data.
        kind: The class that the data must have: Trajectory, Rollout, ...
        layout: The name of the layout that packs and unpacks it, for the message.

    Raises:
        TypeError: The data has another class, for example from a table that was written for another learner.
    """
    data: Batch = next_sample(dataset, kind, layout).data
    return data


def at(nest: Any, index: Any) -> Any:
    """Returns a nest of tensors at some of their indices: `leaf[index]` for each leaf."""
    return tree.map_structure(lambda leaf: leaf[index], nest)


def where_unmasked(mask: torch.Tensor, nest: Any) -> Any:
    """Returns a nest of [B, T, *] with floats set to 0 at masked steps, [B, T], where they may hold anything.

    It is meant for `require_finite`. Integers are always finite, so they stay unchanged.
    """

    def of_leaf(x: torch.Tensor) -> torch.Tensor:
        happened = (mask > 0).view(*mask.shape, *[1] * (x.ndim - mask.ndim))
        return x.where(happened, 0.0) if x.is_floating_point() else x

    return tree.map_structure(of_leaf, nest)


def checked_fields(batch: Any) -> Mapping[str, types.NestedTensor]:
    """Returns the fields of a batch that must be finite, by name in the plural, for `require_finite`.

    Masked steps of a `Trajectory` are not checked, nor are extras: what a behaviour policy recorded may
    rightly be infinite. Of the returns of a `Rollout` only statistics are made, which leave extremes out.
    """
    if isinstance(batch, types.Trajectory):
        # [B, T + 1]  the states that a step begins or ends with
        begun = torch.maximum(*(torch.nn.functional.pad(batch.mask, pad) for pad in ((1, 0), (0, 1))))
        batch = batch._replace(
            observation=where_unmasked(begun, batch.observation),
            **{
                name: where_unmasked(batch.mask, getattr(batch, name))
                for name in ("action", "reward", "discount")
            },
        )
    if not hasattr(batch, "_asdict"):
        return {"batches": batch}
    checked = {name: x for name, x in batch._asdict().items() if name not in ("extras", "return_so_far")}
    return {f"{name.replace('_', ' ')}s": x for name, x in checked.items()}
