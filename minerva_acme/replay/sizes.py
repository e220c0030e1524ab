"""Estimates of the memory that full tables take, reported before anything is written."""

import logging
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from minerva_acme.machine import memory
from minerva_acme.replay import base

_logger = logging.getLogger(__name__)

_MUCH = 0.1  # as a fraction of the free memory
_INFO_BYTES = 40  # of an item in a batch: its key, probability, priority, size of its table, times sampled


class FullSize(NamedTuple):
    """The memory that full tables take, before compression; Reverb compresses rows."""

    least: int  # in bytes, if each item adds one row to every column, as overlapping windows do
    most: int  # in bytes, if no two items share a row


def full_size(
    tables: Sequence[base.TableConfig], item_bytes: int, *, most_items: float = math.inf
) -> FullSize:
    """Returns the memory that the rows and items of full tables take.

    Args:
        tables: The tables of one server; rows written to several of them are counted for each.
        item_bytes: The number of bytes that the store needs for an item, without its rows.
        most_items: The most items that are ever written to a table.
    """
    counts = _count_items(tables, most_items)
    least = most = item_bytes * sum(counts)
    for table, count in zip(tables, counts, strict=True):
        for row_bytes, num_rows in _rows_of_item(table):
            least += count * row_bytes
            most += count * row_bytes * num_rows
    return FullSize(least, most)


def check_batch(
    tables: Sequence[base.TableConfig], item_bytes: int, batch_size: int, *, most_items: float = math.inf
) -> None:
    """Checks that a batch fits into this machine's memory, beside the replay if that does.

    Args:
        tables: The tables of one server, of which the batch is sampled.
        item_bytes: The number of bytes that the store needs for an item, without its rows.
        batch_size: The number of items in a batch.
        most_items: The most items that are ever written to a table.

    Raises:
        ValueError: It does not; the message gives its size.
    """
    largest = max((sum(math.prod(rows) for rows in _rows_of_item(table)) for table in tables), default=0)
    batch, total = batch_size * (largest + _INFO_BYTES), memory.total_bytes()
    full = full_size(tables, item_bytes, most_items=most_items).least
    beside = full if full <= total else 0  # a replay that is too large is warned of, see `report`
    if batch + beside > total:
        room, of_batch, of_replay = map(memory.describe, (total, batch, beside))
        raise ValueError(
            f"`batch_size` must be a number of items that fits into this machine's {room} of memory, got "
            f"{batch_size:,}: a batch takes {of_batch}, and the full replay beside it {of_replay}. Lower it."
        )


def _rows_of_item(table: base.TableConfig) -> Iterator[tuple[int, int]]:
    """Yields, for each column, the bytes of a row and the number of rows in an item."""
    for column, spec in table.signature.columns.items():
        lengths = [field.length for field in table.signature.fields.values() if field.column == column]
        yield math.prod(spec.shape) * np.dtype(spec.dtype).itemsize, sum(lengths)


def describe(tables: Sequence[base.TableConfig], item_bytes: int, *, most_items: float = math.inf) -> str:
    """Describes how much memory full tables take, and how much there is."""
    least, most = map(memory.describe, full_size(tables, item_bytes, most_items=most_items))
    num_items = sum(_count_items(tables, most_items))
    free, total = memory.free_bytes(), memory.total_bytes()
    return (
        f"Replay of {num_items:,} items takes {least if least == most else f'{least} to {most}'} when it is "
        f"full; {memory.describe(free)} of this machine's {memory.describe(total)} are free"
    )


def report(tables: Sequence[base.TableConfig], item_bytes: int) -> None:
    """Logs how much memory full tables take if it is a lot, with a warning if it is more than is free.

    This is not an error, since a run may end before its tables are full.
    """
    share = full_size(tables, item_bytes).least / max(1, memory.free_bytes())
    if share > 1.0:
        _logger.warning(
            "%s. A longer run does not fit: lower `max_size` (an agent's `max_replay_size`), or store "
            "smaller observations.",
            describe(tables, item_bytes),
        )
    elif share > _MUCH:
        _logger.info("%s.", describe(tables, item_bytes))


def _count_items(tables: Sequence[base.TableConfig], most_items: float) -> list[int]:
    """Returns the number of items in each table when it is as full as it gets."""
    return [int(min(table.max_size, most_items)) for table in tables]
