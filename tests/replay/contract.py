"""What `replay.base` promises, as tests that each store inherits."""

import abc
import contextlib
import functools
import pathlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from minerva_acme import replay

WINDOW = 3

# At every step a row of two floats and an integer; an image at every second step.
SIGNATURE = replay.ItemSignature(
    columns={
        "count": replay.ColumnSpec((), np.dtype(np.int64)),
        "image": replay.ColumnSpec((2, 2, 1), np.dtype(np.uint8)),
        "number": replay.ColumnSpec((2,), np.dtype(np.float32)),
    },
    fields={
        "count": replay.FieldSpec("count", 1),
        "image": replay.FieldSpec("image", 1),
        "number": replay.FieldSpec("number", WINDOW),
    },
)
ONCE_IN_ORDER: Mapping[str, Any] = {"sampler": replay.Fifo(), "max_times_sampled": 1}


class ReplayContract(abc.ABC):
    """Writes a few items into tables of every kind and samples them."""

    timeout_seconds: float = 10.0
    """What takes longer counts as a wait without end."""

    @abc.abstractmethod
    def make_server(
        self,
        tables: Sequence[replay.TableConfig],
        checkpoint_directory: str | None = None,
        restore_from: str | None = None,
    ) -> replay.ReplayServer:
        """Makes a new server with these tables, empty or as the checkpoint `restore_from` says."""

    def test_rows_come_back_as_they_were_written(self) -> None:
        with self._open(**ONCE_IN_ORDER) as client:
            self._write(client, range(10, 14))
            info, fields = self._sample(client, 4)
        assert [array.dtype.name for array in info] == ["uint64", "float64", "int64", "float64", "int32"]
        assert len(set(info.key.tolist())) == 4
        for name, expected in _expected(range(10, 14)).items():
            found = fields.get(name)
            assert found is not None, f"`sample_batch` must return the field '{name}', got {sorted(fields)}."
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype), (
                f"`sample_batch` must return '{name}' as [B, length, *row], expected {expected.dtype} "
                f"{expected.shape}, got {found.dtype} {found.shape}."
            )
            check_equal(
                found, expected, f"`sample_batch` must return the rows of '{name}' as they were written"
            )

    def test_a_column_of_any_dtype_comes_back_exactly(self) -> None:
        names = [
            "bool",
            "uint8",
            "int8",
            "uint16",
            "int16",
            "uint32",
            "int32",
            "uint64",
            "int64",
            "float16",
            "float32",
            "float64",
        ]
        rows = {name: np.array([[0, 1, 1], [1, 0, 1]]).astype(name) for name in names}
        for name in names:
            if name.startswith("uint"):
                rows[name][1, 1] = np.iinfo(name).max
        signature = replay.ItemSignature(
            columns={name: replay.ColumnSpec((3,), np.dtype(name)) for name in names},
            fields={name: replay.FieldSpec(name, 2) for name in names},
        )
        with self._open(signature=signature) as client:
            with client.writer(2) as writer:
                for t in range(2):
                    writer.append({name: rows[name][t] for name in names})
                writer.create_item("table", 1.0, {name: replay.Window(name, 0, 2) for name in names})
            _, fields = self._sample(client, 1)
        for name in names:
            assert fields[name].dtype == name
            np.testing.assert_array_equal(fields[name][0], rows[name])

    def test_a_row_may_be_changed_after_it_was_appended(self) -> None:
        signature = replay.ItemSignature(
            columns={"number": SIGNATURE.columns["number"]}, fields={"number": SIGNATURE.fields["number"]}
        )
        row = np.zeros(2, np.float32)
        with self._open(signature=signature) as client:
            with client.writer(WINDOW) as writer:
                for number in range(WINDOW):
                    row[:] = number
                    writer.append({"number": row})
                writer.create_item("table", 1.0, {"number": replay.Window("number", 0, WINDOW)})
                row[:] = -1.0
            _, fields = self._sample(client, 1)
        check_equal(fields["number"][0], [[0, 0], [1, 1], [2, 2]], "`append` must copy")

    def test_a_table_of_another_kind_is_refused_with_the_differences(self) -> None:
        with self._open() as client:
            client.check_table(self._config())
            for settings, message in (
                ({"max_size": 7}, "`max_size` 100 against 7"),
                ({"sampler": replay.Fifo()}, "`sampler` Uniform against Fifo"),
                ({"signature": SIGNATURE._replace(fields={"count": SIGNATURE.fields["count"]})}, "`fields`"),
            ):
                check = functools.partial(client.check_table, self._config(**settings))
                self.check_refused(replay.ReplayError, message, check)

    def test_an_unknown_table_is_refused_and_the_known_ones_listed(self) -> None:
        def update(name: str) -> None:
            client.update_priorities(name, np.ones(1, np.uint64), np.ones(1))

        def write(name: str) -> None:
            with client.writer(WINDOW) as writer:
                write_items(writer, range(1), tables=[name])

        with self._open() as client:
            for ask in (client.sampler, client.table_info, update, write):
                for message in ("There is no table 'nowhere'", "'table'"):
                    self.check_refused(replay.ReplayError, message, functools.partial(ask, "nowhere"))

    def test_shorter_items_of_a_variable_field_end_in_rows_of_zero(self) -> None:
        field = replay.FieldSpec("number", WINDOW, variable=True)
        signature = replay.ItemSignature({"number": SIGNATURE.columns["number"]}, {"number": field})
        with self._open(signature=signature, **ONCE_IN_ORDER) as client:
            with client.writer(WINDOW) as writer:
                for number in range(1, WINDOW + 1):
                    writer.append({"number": np.array([number, -number], np.float32)})
                    writer.create_item("table", 1.0, {"number": replay.Window("number", 0, number)})
                writer.end_episode()
            _, fields = self._sample(client, WINDOW)
        rows = np.tril(np.tile(np.arange(1, WINDOW + 1, dtype=np.float32), (WINDOW, 1)))  # [B, W]
        promise = (
            "`sample_batch` must return items of a variable field with rows of 0 behind the shorter ones"
        )
        check_equal(fields["number"], np.stack([rows, 0 - rows], axis=-1), promise)

    def test_windows_count_from_the_start_of_their_episode(self) -> None:
        with self._open(**ONCE_IN_ORDER) as client:
            with client.writer(WINDOW) as writer:
                for first in (10, 100, 1000):
                    write_items(writer, range(first, first + 2))
                    writer.end_episode()
            found = self._numbers(client, 6)
        expected = [10, 11, 100, 101, 1000, 1001]
        check_equal(
            found, expected, "`end_episode` must let windows count from 0 again, in the items that follow"
        )

    def test_flushed_items_can_be_sampled_and_are_counted(self) -> None:
        with self._open(**ONCE_IN_ORDER) as client, client.writer(WINDOW) as writer:
            write_items(writer, range(5))
            writer.flush()
            before = client.table_info("table")
            self._sample(client, 2)
            after = client.table_info("table")
        promise = "`table_info` must count the 5 items that were flushed and no sample yet"
        check_equal((before.name, before.size, before.inserted, before.sampled), ("table", 5, 5, 0), promise)
        assert after.sampled >= 2, f"`table_info` must count the 2 samples taken, got {after.sampled}."

    def test_the_order_of_a_table_is_its_samplers(self) -> None:
        for sampler, expected in ((replay.Fifo(), [0, 1, 2]), (replay.Lifo(), [2, 1, 0])):
            with self._open(sampler=sampler, max_times_sampled=1) as client:
                self._write(client, range(3))
                found = self._numbers(client, 3)
            check_equal(
                found, expected, f"`sample_batch` of a {type(sampler).__name__} table must keep its order"
            )

    def test_items_are_selected_by_their_priorities(self) -> None:
        with self._open(sampler=replay.Prioritized(1.0)) as client:
            self._write(client, range(3))
            info, fields = self._sample(client, 50)
            keys = dict(zip(fields["count"][:, 0].tolist(), info.key.tolist(), strict=True))
            check_equal(sorted(keys), [0, 1, 2], "50 samples must contain each of 3 items of equal priority")
            client.update_priorities(
                "table", np.array([keys[0], keys[2]], np.uint64), np.zeros(2, np.float64)
            )
            found = sorted(set(self._numbers(client, 20)))
        check_equal(found, [1], "`update_priorities` must take items of priority 0 out of the draw")

    def test_of_several_priorities_for_one_item_the_last_counts(self) -> None:
        with self._open(sampler=replay.Prioritized(1.0)) as client:
            self._write(client, range(2))
            info, fields = self._sample(client, 30)
            keys = dict(zip(fields["count"][:, 0].tolist(), info.key.tolist(), strict=True))
            twice = np.array([keys[0], keys[1], keys[0], keys[1]], np.uint64)
            client.update_priorities("table", twice, np.array([0.0, 1.0, 1.0, 0.0]))
            found = sorted(set(self._numbers(client, 20)))
            check_equal(found, [0], "`update_priorities` must keep the last of several priorities of an item")
            client.update_priorities("table", [keys[0], keys[1]], [0, 1])  # type: ignore[arg-type]
            found = sorted(set(self._numbers(client, 20)))
            check_equal(found, [1], "`update_priorities` must take what numpy makes arrays of")

    def test_uniform_selection_reaches_every_item_equally(self) -> None:
        with self._open() as client:
            self._write(client, range(10))
            info, fields = self._sample(client, 2000)
        check_draws("a Uniform table", info, fields, np.ones(10))

    def test_prioritised_selection_follows_priority_to_the_exponent(self) -> None:
        priorities = [1.0, 0.0, 2.0, 3.0]
        with self._open(sampler=replay.Prioritized(2.0)) as client:
            self._write(client, range(4), priorities)
            info, fields = self._sample(client, 3000)
        check_draws(f"items of priority {priorities} with exponent 2", info, fields, np.square(priorities))
        expected = np.array(priorities)[fields["count"][:, 0]]
        check_equal(info.priority, expected, "`SampleInfo.priority` must be the items' priorities")

    def test_items_of_priority_0_alone_are_selected_alike(self) -> None:
        with self._open(sampler=replay.Prioritized(0.5)) as client:
            self._write(client, range(3), [0.0, 0.0, 0.0])
            _, fields = self._sample(client, 300)
        counts = np.bincount(fields["count"][:, 0], minlength=3)
        assert counts.min() > 40, (
            "`sample_batch` must select items of priority 0 where there are no others, expected about 100 "
            f"of each, got {counts.tolist()}."
        )

    def test_priorities_of_items_that_are_gone_are_ignored(self) -> None:
        with self._open(sampler=replay.Prioritized(1.0), max_size=3) as client:
            self._write(client, range(3))
            with client.sampler("table") as sampler:
                info, _ = sampler.sample_batch(30, self.timeout_seconds)
                old = np.unique(info.key)
                self._write(client, range(3, 6))
                client.update_priorities("table", old, np.full(len(old), 5.0))
                info, fields = sampler.sample_batch(600, self.timeout_seconds)
        late = info.table_size == 3  # else drawn ahead
        found = set(info.priority[late & np.isin(fields["count"][:, 0], [3, 4, 5])].tolist())
        promise = (
            "`update_priorities` of items that have left the table must not change those that came later"
        )
        check_equal(sorted(found | {1.0}), [1.0], promise)

    def test_a_full_table_drops_what_its_remover_chooses(self) -> None:
        # Written are 0 to 4, of which 2 alone has a priority; 3 places.
        for remover, expected in (
            (replay.Fifo(), [[2, 3, 4]]),
            (replay.Lifo(), [[0, 1, 2]]),
            (replay.Prioritized(1.0), [[0, 1, 3], [0, 1, 4], [0, 3, 4], [1, 3, 4]]),
            (replay.Uniform(), None),
        ):
            with self._open(max_size=3, remover=remover, **ONCE_IN_ORDER) as client:
                self._write(client, range(5), [0.0, 0.0, 1.0, 0.0, 0.0])
                size = client.table_info("table").size
                found = self._numbers(client, 3)
            check_equal(size, 3, f"A table with remover {remover} must keep `max_size` items")
            assert found == sorted(set(found)) and set(found) <= set(range(5)), (
                f"A table with remover {remover} must keep 3 of the items 0 to 4 in order, got {found}."
            )
            assert expected is None or found in expected, (
                f"A table with remover {remover} must keep one of {expected}, got {found}."
            )

    def test_an_item_goes_out_twice_where_it_may(self) -> None:
        with self._open(sampler=replay.Fifo(), max_times_sampled=2) as client:
            self._write(client, range(3))
            info, fields = self._sample(client, 5)
            left = client.table_info("table").size
        found = (fields["count"][:, 0].tolist(), info.times_sampled.tolist(), info.table_size.tolist(), left)
        promise = (
            "`sample_batch` of a Fifo table with `max_times_sampled` 2 must return items, times, sizes, left"
        )
        check_equal(found, ([0, 0, 1, 1, 2], [1, 2, 1, 2, 1], [3, 3, 2, 2, 1], 1), promise)

    def test_items_selected_uniformly_go_out_once_each_where_they_may_once(self) -> None:
        with self._open(max_times_sampled=1) as client:
            self._write(client, range(20))
            found = self._numbers(client, 15) + self._numbers(client, 5)
        assert sorted(found) == list(range(20)) and found != list(range(20)), (
            "`sample_batch` of a Uniform table with `max_times_sampled` 1 must return each item once, in any "
            f"order, got {found}."
        )

    def test_an_item_goes_out_so_many_times_at_most(self) -> None:
        with self._open(**ONCE_IN_ORDER) as client:
            self._write(client, range(3))
            found = self._numbers(client, 3)
            left = client.table_info("table").size
        check_equal(
            (found, left), ([0, 1, 2], 0), "An item with `max_times_sampled` 1 must go out once and leave"
        )

    def test_each_item_of_a_queue_comes_once_and_in_order_while_it_is_written(self) -> None:
        found = []
        with self._queue(40) as client:
            with client.sampler("table") as sampler:
                for first in range(0, 400, 40):
                    self._write(client, range(first, first + 40))
                    for batch_size in (7, 32, 1):
                        batch = sampler.sample_batch(batch_size, self.timeout_seconds)[1]
                        found += batch["count"][:, 0].tolist()
            left = client.table_info("table").size
        check_equal(
            (found, left), (list(range(400)), 0), "A queue must give each of its items once and in order"
        )

    def test_a_batch_larger_than_a_queue_is_collected_while_it_is_written(self) -> None:
        with self._queue(4) as client, self._writing(client, range(30)):
            found = self._numbers(client, 30)
        promise = "A batch of 30 items of a queue with room for 4 must be collected bit by bit"
        check_equal(found, list(range(30)), promise)

    def test_a_full_queue_holds_its_writer_back_and_nothing_is_lost(self) -> None:
        with self._queue(5, 0.3) as client, client.writer(WINDOW) as writer:
            start = time.monotonic()
            self.check_refused(
                replay.ReplayTimeout,
                "Table 'table' holds inserts back: 5 inserted, 0 sampled, 5 stored. Sample from it, or let "
                "its rate limiter allow more.",
                lambda: write_items(writer, range(100)),
            )
            self._check_time(start, 0.3)
            # What the writer had to wait for is let in as soon as there is room.
            found = [number for _ in range(2) for number in self._numbers(client, 5)]
        check_equal(found, list(range(10)), "A queue that was full must lose nothing and keep the order")

    def test_a_held_back_writer_resumes_when_another_thread_samples(self) -> None:
        found: list[int] = []
        with (
            self._queue(5) as client,
            client.sampler("table") as sampler,
            self._writing(client, range(100)),
        ):
            time.sleep(0.2)
            while len(found) < 100:
                found += sampler.sample_batch(5, self.timeout_seconds)[1]["count"][:, 0].tolist()
        check_equal(found, list(range(100)), "A queue must pass 100 items on in order")

    def test_too_few_items_hold_a_sampler_back(self) -> None:
        with self._open(rate_limiter=replay.MinSize(10)) as client:
            self._write(client, range(3))
            with client.sampler("table") as sampler:
                start = time.monotonic()
                self.check_refused(
                    replay.ReplayTimeout,
                    "Waiting for 10 items in table 'table', has 3.",
                    lambda: sampler.sample_batch(2, timeout_seconds=0.2),
                )
                self._check_time(start, 0.2)
                timer = threading.Timer(0.1, lambda: self._write(client, range(3, 10)))
                timer.start()
                info, _ = sampler.sample_batch(2, self.timeout_seconds)
                timer.join()
        check_equal(
            info.table_size, [10, 10], "A sampler must continue once there are 10 items, by their number"
        )

    def test_the_ratio_holds_samplers_back(self) -> None:
        limiter = replay.SampleToInsertRatio(samples_per_insert=2.0, min_size=2, error_buffer=4.0)
        with self._open(rate_limiter=limiter) as client:
            self._write(client, range(3))
            with client.sampler("table") as sampler:
                sampler.sample_batch(6, self.timeout_seconds)
                self.check_refused(
                    replay.ReplayTimeout,
                    "Table 'table' holds samples back: 3 inserted, 6 sampled, 3 stored. Its rate limiter "
                    "waits for more to be written.",
                    lambda: sampler.sample_batch(6, timeout_seconds=0.3),
                )
                self._write(client, range(3, 6))
                found = len(sampler.sample_batch(6, self.timeout_seconds)[0].key)
        check_equal(found, 6, "A sampler must continue when more was written, by the size of its batch")

    def test_a_ratio_with_an_infinite_buffer_holds_nobody_back(self) -> None:
        limiter = replay.SampleToInsertRatio(samples_per_insert=2.0, min_size=1, error_buffer=float("inf"))
        with self._open(rate_limiter=limiter) as client:
            self._write(client, range(50))
            found = len(self._numbers(client, 300))
        check_equal(found, 300, "A table must be sampled as often as it is asked for, by the number of items")

    def test_the_ratio_holds_writers_back(self) -> None:
        limiter = replay.SampleToInsertRatio(samples_per_insert=1.0, min_size=2, error_buffer=4.0)
        with self._open(0.3, rate_limiter=limiter) as client, client.writer(WINDOW) as writer:
            self.check_refused(
                replay.ReplayTimeout,
                "Table 'table' holds inserts back: 6 inserted, 0 sampled, 6 stored. Sample from it, or let "
                "its rate limiter allow more.",
                lambda: write_items(writer, range(100)),
            )
            self._sample(client, 6)
            deadline = time.monotonic() + self.timeout_seconds
            while (inserted := client.table_info("table").inserted) < 7 and time.monotonic() < deadline:
                time.sleep(0.01)
        assert inserted >= 7, (
            f"What a writer had to wait for must be taken when there were samples, got {inserted} inserted."
        )

    def test_inserting_is_free_below_the_minimum(self) -> None:
        limiter = replay.SampleToInsertRatio(samples_per_insert=4.0, min_size=3, error_buffer=4.0)
        found = []
        with self._open(2.0, rate_limiter=limiter, **ONCE_IN_ORDER) as client:
            self._write(client, range(3))
            with client.sampler("table") as sampler:
                for number in range(3, 13):
                    # One sample leaves too few, so one more may be written, whatever the ratio is.
                    found += sampler.sample_batch(1, self.timeout_seconds)[1]["count"][:, 0].tolist()
                    self._write(client, range(number, number + 1))
        promise = "A table with fewer items than `min_size` must take more, whatever the ratio, in order"
        check_equal(found, list(range(10)), promise)

    def test_a_batch_is_writable_and_nobody_elses(self) -> None:
        with self._open() as client:
            self._write(client, range(1))
            with client.sampler("table") as sampler:
                for field in sampler.sample_batch(2, self.timeout_seconds)[1].values():
                    assert field.flags.writeable, (
                        "`sample_batch` must return writable arrays, got a read-only one."
                    )
                    field[:] = 99
                _, fields = sampler.sample_batch(2, self.timeout_seconds)
        promise = "`sample_batch` must return fresh arrays, whatever was done to an earlier batch"
        check_equal(fields["number"], _expected([0, 0])["number"], promise)

    def test_sampling_too_early_times_out_with_a_reason_and_loses_no_item(self) -> None:
        with self._open(**ONCE_IN_ORDER) as client, client.sampler("table") as sampler:
            self._write(client, range(2))
            self.check_refused(
                replay.ReplayTimeout, "table", lambda: sampler.sample_batch(3, timeout_seconds=0.2)
            )
            self._write(client, range(2, 3))
            found = sampler.sample_batch(3, self.timeout_seconds)[1]["count"]
        check_equal(found, [[0], [1], [2]], "`sample_batch` must lose no item by a timeout")

    def test_a_blocked_writer_closes_at_once(self) -> None:
        with self._queue(5, 0.2) as client:
            writer = client.writer(WINDOW)
            self.check_refused(
                replay.ReplayTimeout, "Table 'table' holds inserts", lambda: write_items(writer, range(20))
            )
            start = time.monotonic()
            writer.close()
            self._check_time(start, 0.0)
            found = self._numbers(client, 5)
        check_equal(found, list(range(5)), "What was taken before must stay")

    def test_rows_are_shared_by_tables_and_each_has_its_own_order(self) -> None:
        samplers = {"old": replay.Fifo(), "new": replay.Lifo()}
        tables = [self._config(name=name, sampler=samplers[name], max_times_sampled=1) for name in samplers]
        found = {}
        with self.make_server(tables) as server, server.client() as client:
            with client.writer(WINDOW) as writer:
                write_items(writer, range(6), tables=("old", "new"))
                writer.end_episode()
            for name in samplers:
                with client.sampler(name) as sampler:
                    found[name] = sampler.sample_batch(6, self.timeout_seconds)[1]
        for name, numbers in (("old", range(6)), ("new", range(5, -1, -1))):
            expected = np.array(numbers)[:, None] + np.arange(WINDOW)
            check_equal(
                found[name]["number"][..., 0],
                expected,
                f"Table '{name}' must give its items in its own order",
            )

    def test_writers_and_samplers_in_threads_see_whole_items(self) -> None:
        with (
            self._open(max_size=50) as client,
            client.sampler("table") as sampler,
            self._writing(client, range(150)),
            self._writing(client, range(1000, 1150)),
            self._writing(client, range(2000, 2150)),
        ):
            deadline = time.monotonic() + self.timeout_seconds
            while (info := client.table_info("table")).inserted < 450 and time.monotonic() < deadline:
                fields = sampler.sample_batch(16, self.timeout_seconds)[1]
                promise = "`sample_batch` while others write must return rows that follow each other"
                check_equal(fields["number"][..., 0], fields["count"] + np.arange(WINDOW), promise)
        promise = "3 writers must have inserted 450 items of which 50 stay"
        check_equal((info.size, info.inserted), (50, 450), promise)

    def test_a_checkpoint_brings_everything_back(self, tmp_path: pathlib.Path) -> None:
        config = self._config(sampler=replay.Prioritized(1.0), max_size=8)
        with (
            self.make_server([config], checkpoint_directory=str(tmp_path)) as server,
            server.client() as client,
        ):
            self._write(client, range(12), [float(number) for number in range(12)])
            before = self._items(client)
            path = pathlib.Path(client.checkpoint())
            counts = client.table_info("table")
        assert path.is_relative_to(tmp_path), f"`checkpoint` must write into {tmp_path}, got {path}."
        moved = path.rename(tmp_path / "moved")
        with self.make_server([config], restore_from=str(moved)) as server, server.client() as client:
            restored = client.table_info("table")
            after = self._items(client)
            self._write(client, range(20, 21), [100.0])
            later = self._items(client)
            beside = pathlib.Path(client.checkpoint())
        assert beside.is_relative_to(tmp_path) and not beside.is_relative_to(moved)
        check_equal(restored, counts, "`restore_from` must bring the counts back")
        assert len(before) == 8 and after == before, (
            f"`restore_from` must bring every item back, key, priority and rows, expected {sorted(before)}, "
            f"got {sorted(after)}."
        )
        promise = "A restored table must drop its oldest item for a new one: items, and how many of the old"
        check_equal((len(later), len(later.keys() & before.keys())), (8, 7), promise)

    def test_a_checkpoint_tells_tables_apart_whose_names_begin_alike(self, tmp_path: pathlib.Path) -> None:
        names = ["table/more", "table", "table/more/start"]
        tables = [self._config(name=name, **ONCE_IN_ORDER) for name in names]
        with (
            self.make_server(tables, checkpoint_directory=str(tmp_path)) as server,
            server.client() as client,
        ):
            for index, name in enumerate(names):
                with client.writer(WINDOW) as writer:
                    write_items(writer, range(10 * index, 10 * index + 3), tables=[name])
            path = client.checkpoint()
        found = {}
        # The tables may be told in another order.
        with self.make_server(tables[::-1], restore_from=path) as server, server.client() as client:
            for name in names:
                with client.sampler(name) as sampler:
                    found[name] = sampler.sample_batch(3, self.timeout_seconds)[1]["count"][:, 0].tolist()
        expected = {name: [10 * index + i for i in range(3)] for index, name in enumerate(names)}
        check_equal(found, expected, "`restore_from` must bring each table's own items back")

    def test_close_from_another_thread_ends_a_wait(self) -> None:
        with self._open() as client:
            sampler = client.sampler("table")
            caught: list[Exception | None] = []
            wait = functools.partial(sampler.sample_batch, 1)
            thread = threading.Thread(target=lambda: caught.append(_error_of(wait)), daemon=True)
            thread.start()
            time.sleep(0.1)
            sampler.close()
            thread.join(self.timeout_seconds)
            assert not thread.is_alive(), (
                f"`close` must end a `sample_batch` that waits, got one that still waits after "
                f"{self.timeout_seconds:g} seconds."
            )
            assert isinstance(caught[0], replay.ReplayError), (
                f"`sample_batch` must raise ReplayError when it is closed, got {caught[0]!r}."
            )

    def test_everything_may_be_closed_twice(self) -> None:
        server = self._serve()
        client = server.client()
        for part in (client.writer(WINDOW), client.sampler("table"), client, server):
            for attempt in ("first", "second"):
                error = _error_of(part.close)
                assert error is None, (
                    f"The {attempt} `close` of {type(part).__name__} must do no harm, got {error!r}."
                )

    def check_refused(self, expected: type[Exception], message: str, call: Callable[[], object]) -> None:
        """Checks that a call raises this error with this in its message."""
        error = _error_of(call)
        assert isinstance(error, expected), f"Expected {expected.__name__} '{message}', got {error!r}."
        assert message in str(error), f"Expected the message '{message}', got '{error}'."

    def _check_time(self, start: float, seconds: float) -> None:
        waited = time.monotonic() - start
        assert seconds <= waited + 0.01 and waited < seconds + self.timeout_seconds, (
            f"A wait of {seconds:g} s must take about as long, got {waited:g} s."
        )

    @contextlib.contextmanager
    def _open(
        self, timeout_seconds: float | None = None, **settings: object
    ) -> Iterator[replay.ReplayClient]:
        """A client of a server with one table."""
        with (
            self._serve(**settings) as server,
            server.client(timeout_seconds=timeout_seconds or self.timeout_seconds) as client,
        ):
            yield client

    def _queue(
        self, capacity: int, timeout_seconds: float | None = None
    ) -> contextlib.AbstractContextManager[replay.ReplayClient]:
        return self._open(timeout_seconds, rate_limiter=replay.Queue(capacity), **ONCE_IN_ORDER)

    def _serve(self, **settings: object) -> replay.ReplayServer:
        return self.make_server([self._config(**settings)])

    def _config(self, **settings: object) -> replay.TableConfig:
        table = {"name": "table", "signature": SIGNATURE, "max_size": 100, "rate_limiter": replay.MinSize(1)}
        return replay.TableConfig(**(table | settings))  # type: ignore[arg-type]

    def _write(
        self, client: replay.ReplayClient, numbers: range, priorities: Sequence[float] | None = None
    ) -> None:
        with client.writer(WINDOW) as writer:
            write_items(writer, numbers, priorities)
            writer.end_episode()

    @contextlib.contextmanager
    def _writing(self, client: replay.ReplayClient, numbers: range) -> Iterator[None]:
        """Writes in another thread meanwhile."""
        thread = threading.Thread(target=self._write, args=(client, numbers), daemon=True)
        thread.start()
        yield
        thread.join(self.timeout_seconds)

    def _items(self, client: replay.ReplayClient) -> dict[int, tuple[float, list[bytes]]]:
        """The items that are sampled, by their keys."""
        info, fields = self._sample(client, 1000)
        items = zip(info.key.tolist(), info.priority.tolist(), *fields.values(), strict=True)
        return {key: (priority, [field.tobytes() for field in item]) for key, priority, *item in items}

    def _sample(
        self, client: replay.ReplayClient, batch_size: int
    ) -> tuple[replay.SampleInfo, dict[str, np.ndarray]]:
        with client.sampler("table") as sampler:
            return sampler.sample_batch(batch_size, self.timeout_seconds)

    def _numbers(self, client: replay.ReplayClient, batch_size: int) -> list[int]:
        counts = self._sample(client, batch_size)[1]["count"]  # [B, 1]
        return [int(count) for count in counts[:, 0]]


def check_equal(found: Any, expected: Any, promise: str) -> None:
    """Checks that what was found is what a promise says; arrays are compared as lists."""
    found, expected = (part.tolist() if isinstance(part, np.ndarray) else part for part in (found, expected))
    assert found == expected, f"{promise}, expected {expected}, got {found}."


def check_draws(
    what: str, info: replay.SampleInfo, fields: dict[str, np.ndarray], weights: np.ndarray
) -> None:
    """Checks that items were drawn in proportion to their weights, and their probabilities."""
    numbers = fields["count"][:, 0]
    probabilities = weights / weights.sum()
    counts, expected = np.bincount(numbers, minlength=len(weights)), len(numbers) * probabilities
    assert np.all(np.abs(counts - expected) <= 6 * expected**0.5), (
        f"`sample_batch` of {what} must select them about {expected.round().tolist()} times of "
        f"{len(numbers)}, got {counts.tolist()}."
    )
    assert np.allclose(info.probability, probabilities[numbers]), (
        f"`SampleInfo.probability` of {what} must be {probabilities.tolist()}, got "
        f"{sorted(set(info.probability.tolist()))}."
    )


def _error_of(do: Callable[[], object]) -> Exception | None:
    try:
        do()
    except Exception as error:
        return error
    return None


def write_items(
    writer: replay.Writer,
    numbers: range,
    priorities: Sequence[float] | None = None,
    tables: Sequence[str] = ("table",),
) -> None:
    """Writes an item for each number, which is the number of its first row."""
    for t in range(len(numbers) + WINDOW - 1):
        number = numbers.start + t
        rows: dict[str, np.ndarray] = {
            "number": np.array([number, -number], np.float32),
            "count": np.array(number, np.int64),
        }
        if t % 2 == 0:
            rows["image"] = np.full((2, 2, 1), number % 256, np.uint8)
        writer.append(rows)
        start = t - WINDOW + 1
        if start >= 0:
            windows = {
                "number": replay.Window("number", start, WINDOW),
                "count": replay.Window("count", start, 1),
                "image": replay.Window("image", t // 2, 1),
            }
            for table in tables:
                writer.create_item(table, 1.0 if priorities is None else priorities[start], windows)


def _expected(numbers: Sequence[int]) -> dict[str, np.ndarray]:
    """The fields of the items of these numbers, written as one episode or each as its first."""
    first = np.array(numbers)[:, None]  # [B, 1]
    rows = first + np.arange(WINDOW)  # [B, W]
    last = rows[:, -1]
    images = last - (last - first[0, 0]) % 2
    return {
        "number": np.stack([rows, -rows], axis=-1).astype(np.float32),
        "count": first.astype(np.int64),
        "image": np.tile(images[:, None, None, None, None], (1, 1, 2, 2, 1)).astype(np.uint8),
    }
