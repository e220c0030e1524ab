"""How much memory tables take when they are full, told before anything is written."""

import logging
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from minerva_acme import machine_memory
from minerva_acme.replay import base

_logger = logging.getLogger(__name__)

_MUCH = 0.1  # of the free memory


class FullSize(NamedTuple):
    """The memory of full tables, before compression; Reverb compresses rows."""

    least: int  # bytes, where each item adds one row to every column, as overlapping windows do
    most: int  # bytes, where no two items share a row


def full_size(tables: Sequence[base.TableConfig], item_bytes: int) -> FullSize:
    """Returns what the rows and items of full tables take.

    Args:
        tables: of one server; what is written to several of them is counted for each.
        item_bytes: what the store keeps of an item, without its rows.
    """
    least = most = item_bytes * sum(table.max_size for table in tables)
    for table in tables:
        for column, spec in table.signature.columns.items():
            lengths = [field.length for field in table.signature.fields.values() if field.column == column]
            row_bytes = math.prod(spec.shape) * np.dtype(spec.dtype).itemsize
            least += table.max_size * row_bytes
            most += table.max_size * row_bytes * sum(lengths)
    return FullSize(least, most)


def describe(tables: Sequence[base.TableConfig], item_bytes: int) -> str:
    """Says how much memory full tables take, and how much there is."""
    least, most = map(machine_memory.describe, full_size(tables, item_bytes))
    num_items = sum(table.max_size for table in tables)
    free, total = machine_memory.free_bytes(), machine_memory.total_bytes()
    return (
        f"Replay of {num_items:,} items takes {least if least == most else f'{least} to {most}'} when it is "
        f"full; {machine_memory.describe(free)} of this machine's {machine_memory.describe(total)} are free"
    )


def report(tables: Sequence[base.TableConfig], item_bytes: int) -> None:
    """Logs how much memory full tables take if it is much; a warning where there is not so much.

    It is no error, since a run may end before its tables are full.
    """
    share = full_size(tables, item_bytes).least / max(1, machine_memory.free_bytes())
    if share > 1.0:
        _logger.warning(
            "%s. A longer run does not fit: lower `max_size` (an agent's `max_replay_size`), or store "
            "smaller observations.",
            describe(tables, item_bytes),
        )
    elif share > _MUCH:
        _logger.info("%s.", describe(tables, item_bytes))
