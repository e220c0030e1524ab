"""Stores that break their contract are found, and named."""

import numpy as np
import pytest

from minerva_acme import replay
from tests.replay import contract


class Sampler(replay.Sampler):
    """A sampler whose batches are spoiled."""

    def __init__(self, sampler, spoil):
        self.sampler, self.spoil = sampler, spoil

    def sample_batch(self, batch_size, timeout_seconds=None):
        info, fields = self.sampler.sample_batch(batch_size, timeout_seconds)
        return info, self.spoil(fields)

    def close(self):
        self.sampler.close()


class Spoils(replay.MemoryClient):
    spoil = staticmethod(dict)

    def sampler(self, table):
        return Sampler(super().sampler(table), self.spoil)


class Widens(Spoils):
    @staticmethod
    def spoil(fields):
        return {name: field.astype(np.float64) for name, field in fields.items()}


class DropsTheLengthAxis(Spoils):
    @staticmethod
    def spoil(fields):
        return {name: field[:, 0] if field.shape[1] == 1 else field for name, field in fields.items()}


class LosesAField(Spoils):
    @staticmethod
    def spoil(fields):
        return {name: field for name, field in fields.items() if name != "image"}


class PadsWithOnes(Spoils):
    @staticmethod
    def spoil(fields):
        return {name: np.where(field == 0, field.dtype.type(1), field) for name, field in fields.items()}


class Freezes(Spoils):
    @staticmethod
    def spoil(fields):
        for field in fields.values():
            field.flags.writeable = False
        return fields


class Reverses(Spoils):
    @staticmethod
    def spoil(fields):
        return {name: field[::-1].copy() for name, field in fields.items()}


class WritesAnywhere(replay.MemoryClient):
    def writer(self, max_window, narrow_columns=()):
        return super().writer(100)


class LosesCheckpoints(replay.MemoryClient):
    def checkpoint(self):
        return "/nowhere"


class IgnoresPriorities(replay.MemoryClient):
    def update_priorities(self, table, keys, priorities):
        pass


class KnowsEveryTable(replay.MemoryClient):
    def table_info(self, table):
        return replay.TableInfo(table, 0, 0, 0, 0, 0)


class ClosesOnce(replay.MemoryClient):
    closed = False

    def close(self):
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True


class Store(contract.ReplayContract):
    part = replay.MemoryClient

    def make_server(self, tables, checkpoint_directory=None, restore_from=None):
        server = replay.MemoryServer(
            tables, seed=0, checkpoint_directory=checkpoint_directory, restore_from=restore_from
        )
        make_client = server.client

        def client(*arguments, **options):
            made = make_client(*arguments, **options)
            made.__class__ = self.part
            return made

        server.client = client
        return server


def case(part, test, message):
    return pytest.param(part, test, message, id=part.__name__)


@pytest.mark.parametrize(
    ("part", "test", "message"),
    [
        case(
            Widens,
            "rows_come_back_as_they_were_written",
            "`sample_batch` must return 'number' as [B, length, *row], expected float32 (4, 3, 2), "
            "got float64 (4, 3, 2).",
        ),
        case(
            DropsTheLengthAxis,
            "rows_come_back_as_they_were_written",
            "`sample_batch` must return 'count' as [B, length, *row], expected int64 (4, 1), got int64 (4,).",
        ),
        case(
            LosesAField,
            "rows_come_back_as_they_were_written",
            "`sample_batch` must return the field 'image', got ['count', 'number'].",
        ),
        case(
            PadsWithOnes,
            "shorter_items_of_a_variable_field_end_in_rows_of_zero",
            "`sample_batch` must return items of a variable field with rows of 0 behind the shorter "
            "ones, expected [[[1.0, -1.0], [0.0, 0.0], [0.0, 0.0]],",
        ),
        case(
            Freezes,
            "a_batch_is_writable_and_nobody_elses",
            "`sample_batch` must return writable arrays, got a read-only one.",
        ),
        case(
            Reverses,
            "a_batch_larger_than_a_queue_is_collected_while_it_is_written",
            "A batch of 30 items of a queue with room for 4 must be collected bit by bit, expected [0, 1,",
        ),
        case(
            WritesAnywhere,
            "misuse_is_refused",
            "Expected ValueError '`max_window`', got None.",
        ),
        case(
            LosesCheckpoints,
            "misuse_is_refused",
            "Expected ReplayError 'checkpoint', got None.",
        ),
        case(
            IgnoresPriorities,
            "items_are_selected_by_their_priorities",
            "`update_priorities` must take items of priority 0 out of the draw, expected [1], got [0, 1, 2].",
        ),
        case(
            KnowsEveryTable,
            "an_unknown_table_is_refused_and_the_known_ones_listed",
            "`table_info` of an unknown table must raise ReplayError, got no error.",
        ),
        case(
            ClosesOnce,
            "everything_may_be_closed_twice",
            "The second `close` of ClosesOnce must do no harm, got RuntimeError('closed already').",
        ),
    ],
)
def test_a_broken_store_is_found_and_named(part, test, message):
    broken = type("Broken", (Store,), {"part": part})()
    with pytest.raises(AssertionError) as caught:
        getattr(broken, f"test_{test}")()
    assert str(caught.value).startswith(message)
