"""What `replay.base` promises, as tests that your own store can inherit.

class TestMyStore(testing.ReplayConformance):
    def make_server(self, tables, checkpoint_directory=None, restore_from=None):
        return MyServer(tables, checkpoint_directory, restore_from)
"""

import abc
import functools
import pathlib
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from minerva_acme import replay

_WINDOW = 3

# At every step a row of two floats and an integer; an image at every second step.
_SIGNATURE = replay.ItemSignature(
    columns={
        "count": replay.ColumnSpec((), np.dtype(np.int64)),
        "image": replay.ColumnSpec((2, 2, 1), np.dtype(np.uint8)),
        "number": replay.ColumnSpec((2,), np.dtype(np.float32)),
    },
    fields={
        "count": replay.FieldSpec("count", 1),
        "image": replay.FieldSpec("image", 1),
        "number": replay.FieldSpec("number", _WINDOW),
    },
)


class ReplayConformance(abc.ABC):
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
        with self._fifo() as server, server.client() as client:
            self._write(client, range(10, 14))
            _, fields = self._sample(client, 4)
        for name, expected in _expected(range(10, 14)).items():
            found = fields.get(name)
            assert found is not None, f"`sample_batch` must return the field '{name}', got {sorted(fields)}."
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype), (
                f"`sample_batch` must return '{name}' as [B, length, *row], expected {expected.dtype} "
                f"{expected.shape}, got {found.dtype} {found.shape}."
            )
            assert np.array_equal(found, expected), (
                f"`sample_batch` must return the rows of '{name}' as they were written, expected "
                f"{expected.tolist()}, got {found.tolist()}."
            )

    def test_shorter_items_of_a_variable_field_end_in_rows_of_zero(self) -> None:
        field = replay.FieldSpec("number", _WINDOW, variable=True)
        signature = replay.ItemSignature({"number": _SIGNATURE.columns["number"]}, {"number": field})
        settings = {"signature": signature, "sampler": replay.Fifo(), "max_times_sampled": 1}
        with self._serve(**settings) as server, server.client() as client, client.writer(_WINDOW) as writer:
            for number in range(1, _WINDOW + 1):
                writer.append({"number": np.array([number, -number], np.float32)})
                writer.create_item("table", 1.0, {"number": replay.Window("number", 0, number)})
            writer.end_episode()
            _, fields = self._sample(client, _WINDOW)
        rows = np.tril(np.tile(np.arange(1, _WINDOW + 1, dtype=np.float32), (_WINDOW, 1)))  # [B, W]
        expected = np.stack([rows, 0 - rows], axis=-1)
        assert np.array_equal(fields["number"], expected), (
            "`sample_batch` must return items of a variable field with rows of 0 behind the shorter ones, "
            f"expected {expected.tolist()}, got {fields['number'].tolist()}."
        )

    def test_windows_count_from_the_start_of_their_episode(self) -> None:
        with self._fifo() as server, server.client() as client, client.writer(_WINDOW) as writer:
            for first in (10, 100, 1000):
                _write_items(writer, range(first, first + 2))
                writer.end_episode()
            found = self._numbers(client, 6)
        assert found == [10, 11, 100, 101, 1000, 1001], (
            "`end_episode` must let windows count from 0 again, expected items that start with "
            f"[10, 11, 100, 101, 1000, 1001], got {found}."
        )

    def test_flushed_items_can_be_sampled_and_are_counted(self) -> None:
        with self._fifo() as server, server.client() as client, client.writer(_WINDOW) as writer:
            _write_items(writer, range(5))
            writer.flush()
            before = client.table_info("table")
            self._sample(client, 2)
            after = client.table_info("table")
        assert (before.name, before.size, before.inserted) == ("table", 5, 5), (
            "`flush` must return once every item is in its table, expected size 5 and 5 inserted in "
            f"'table', got {before}."
        )
        assert after.sampled >= 2 and before.sampled == 0, (
            f"`table_info` must count the samples taken, expected 0 and then >= 2, got {before.sampled} and "
            f"{after.sampled}."
        )

    def test_the_order_of_a_table_is_its_samplers(self) -> None:
        for sampler, expected in ((replay.Fifo(), [0, 1, 2]), (replay.Lifo(), [2, 1, 0])):
            with self._serve(sampler=sampler, max_times_sampled=1) as server, server.client() as client:
                self._write(client, range(3))
                found = self._numbers(client, 3)
            assert found == expected, (
                f"`sample_batch` of a {type(sampler).__name__} table must return the items {expected}, got "
                f"{found}."
            )

    def test_items_are_selected_by_their_priorities(self) -> None:
        with self._serve(sampler=replay.Prioritized(1.0)) as server, server.client() as client:
            self._write(client, range(3))
            with client.sampler("table") as sampler:
                info, fields = sampler.sample_batch(50, self.timeout_seconds)
            keys = dict(zip(fields["count"][:, 0].tolist(), info.key.tolist(), strict=True))
            assert set(keys) == {0, 1, 2}, (
                "`sample_batch` must select items by their priorities, expected each of 3 equal ones among "
                f"50 samples, got {sorted(keys)}."
            )
            client.update_priorities(
                "table", np.array([keys[0], keys[2]], np.uint64), np.zeros(2, np.float64)
            )
            found = set(self._numbers(client, 20))
        assert found == {1}, (
            "`update_priorities` must take items of priority 0 out of the draw, expected {1} alone, got "
            f"{sorted(found)}."
        )

    def test_uniform_selection_reaches_every_item_equally(self) -> None:
        num_items, num_samples = 10, 2000
        with self._serve() as server, server.client() as client:
            self._write(client, range(num_items))
            info, fields = self._sample(client, num_samples)
        counts = np.bincount(fields["count"][:, 0], minlength=num_items)
        expected = num_samples / num_items
        assert np.all(np.abs(counts - expected) < 6 * expected**0.5), (
            f"`sample_batch` of a Uniform table must select all items alike, expected about {expected:g} "
            f"of each among {num_samples} samples, got {counts.tolist()}."
        )
        assert np.allclose(info.probability, 1 / num_items), (
            f"`SampleInfo.probability` of {num_items} items must be {1 / num_items:g}, got "
            f"{set(info.probability.tolist())}."
        )

    def test_prioritised_selection_follows_priority_to_the_exponent(self) -> None:
        priorities, num_samples = [1.0, 0.0, 2.0, 3.0], 3000
        weights = np.square(priorities)
        with self._serve(sampler=replay.Prioritized(2.0)) as server, server.client() as client:
            self._write(client, range(4), priorities)
            info, fields = self._sample(client, num_samples)
        numbers = fields["count"][:, 0]
        counts, expected = np.bincount(numbers, minlength=4), num_samples * weights / weights.sum()
        assert np.all(np.abs(counts - expected) <= 6 * expected**0.5), (
            f"`sample_batch` of items of priority {priorities} with exponent 2 must select them about "
            f"{expected.round().tolist()} times of {num_samples}, got {counts.tolist()}."
        )
        assert np.allclose(info.probability, (weights / weights.sum())[numbers]), (
            "`SampleInfo.probability` must be priority ** exponent over the sum of all, expected "
            f"{(weights / weights.sum()).tolist()}, got {sorted(set(info.probability.tolist()))}."
        )
        assert np.array_equal(info.priority, np.array(priorities)[numbers]), (
            f"`SampleInfo.priority` must be the items' priorities {priorities}, got "
            f"{sorted(set(info.priority.tolist()))}."
        )

    def test_items_of_priority_0_alone_are_selected_alike(self) -> None:
        with self._serve(sampler=replay.Prioritized(0.5)) as server, server.client() as client:
            self._write(client, range(3), [0.0, 0.0, 0.0])
            _, fields = self._sample(client, 300)
        counts = np.bincount(fields["count"][:, 0], minlength=3)
        assert counts.min() > 40, (
            f"`sample_batch` must select items of priority 0 where there are no others, expected about 100 "
            f"of each, got {counts.tolist()}."
        )

    def test_priorities_of_items_that_are_gone_are_ignored(self) -> None:
        settings = {"sampler": replay.Prioritized(1.0), "max_size": 3}
        with self._serve(**settings) as server, server.client() as client:
            self._write(client, range(3))
            with client.sampler("table") as sampler:
                info, _ = sampler.sample_batch(30, self.timeout_seconds)
                old = np.unique(info.key)
                self._write(client, range(3, 6))
                client.update_priorities("table", old, np.full(len(old), 5.0))
                info, fields = sampler.sample_batch(600, self.timeout_seconds)
        late = info.table_size == 3  # else drawn ahead
        found = set(info.priority[late & np.isin(fields["count"][:, 0], [3, 4, 5])].tolist())
        assert found <= {1.0}, (
            "`update_priorities` of items that have left the table must change nothing, expected priority 1 "
            f"of those that came later, got {found}."
        )

    def test_priorities_that_are_none_are_refused(self) -> None:
        with self._serve() as server, server.client() as client:
            for wrong in (np.nan, np.inf, -1.0):
                self.check_refused(
                    ValueError,
                    "`priorities` must be finite and >= 0",
                    functools.partial(
                        client.update_priorities, "table", np.ones(1, np.uint64), np.array([wrong])
                    ),
                )
                self.check_refused(
                    ValueError,
                    f"`priority` must be finite and >= 0, got {wrong}.",
                    functools.partial(self._write, client, range(1), [wrong]),
                )
            size = client.table_info("table").size
        assert size == 0, f"`create_item` that is refused must create nothing, expected size 0, got {size}."

    def test_a_full_table_drops_what_its_remover_chooses(self) -> None:
        settings = {"max_size": 3, "sampler": replay.Fifo(), "max_times_sampled": 1}
        with self._serve(**settings) as server, server.client() as client:
            self._write(client, range(5))
            size = client.table_info("table").size
            found = self._numbers(client, 3)
        assert (size, found) == (3, [2, 3, 4]), (
            f"`create_item` beyond `max_size` 3 must drop the oldest, expected items [2, 3, 4], got {found} "
            f"and a size of {size}."
        )

    def test_removers_choose_who_leaves(self) -> None:
        # Written are 0 to 4, of which 2 alone has a priority; 3 places.
        for remover, expected in (
            (replay.Lifo(), [{0, 1, 2}]),
            (replay.Prioritized(1.0), [{0, 1, 3}, {0, 1, 4}, {0, 3, 4}, {1, 3, 4}]),
            (replay.Uniform(), None),
        ):
            settings = {"max_size": 3, "sampler": replay.Fifo(), "max_times_sampled": 1, "remover": remover}
            with self._serve(**settings) as server, server.client() as client:
                self._write(client, range(5), [0.0, 0.0, 1.0, 0.0, 0.0])
                found = self._numbers(client, 3)
            assert found == sorted(set(found)) and set(found) <= set(range(5)), (
                f"A table with remover {remover} must keep 3 of the items 0 to 4 in order, got {found}."
            )
            assert expected is None or set(found) in expected, (
                f"A table with remover {remover} must keep one of {expected}, got {found}."
            )

    def test_an_item_goes_out_twice_where_it_may(self) -> None:
        settings = {"sampler": replay.Fifo(), "max_times_sampled": 2}
        with self._serve(**settings) as server, server.client() as client:
            self._write(client, range(3))
            info, fields = self._sample(client, 5)
            left = client.table_info("table").size
        found = (fields["count"][:, 0].tolist(), info.times_sampled.tolist(), info.table_size.tolist(), left)
        expected = ([0, 0, 1, 1, 2], [1, 2, 1, 2, 1], [3, 3, 2, 2, 1], 1)
        assert found == expected, (
            "`sample_batch` of a Fifo table with `max_times_sampled` 2 must return items, times, sizes and "
            f"leave {expected}, got {found}."
        )

    def test_items_selected_uniformly_go_out_once_each_where_they_may_once(self) -> None:
        with self._serve(max_times_sampled=1) as server, server.client() as client:
            self._write(client, range(20))
            found = self._numbers(client, 15) + self._numbers(client, 5)
        assert sorted(found) == list(range(20)) and found != list(range(20)), (
            "`sample_batch` of a Uniform table with `max_times_sampled` 1 must return each item once, in any "
            f"order, got {found}."
        )

    def test_each_item_of_a_queue_comes_once_and_in_order_while_it_is_written(self) -> None:
        found = []
        with self._queue(40) as server, server.client() as client, client.sampler("table") as sampler:
            for first in range(0, 400, 40):
                self._write(client, range(first, first + 40))
                for batch_size in (7, 32, 1):
                    found += sampler.sample_batch(batch_size, self.timeout_seconds)[1]["count"][:, 0].tolist()
            left = client.table_info("table").size
        assert (found, left) == (list(range(400)), 0), (
            f"A queue must give each of 400 items once and in order, got {found} and {left} left."
        )

    def test_a_batch_larger_than_a_queue_is_collected_while_it_is_written(self) -> None:
        with (
            self._queue(4) as server,
            server.client(self.timeout_seconds) as client,
            client.sampler("table") as sampler,
        ):
            thread = threading.Thread(target=lambda: self._write(client, range(30)), daemon=True)
            thread.start()
            found = sampler.sample_batch(30, self.timeout_seconds)[1]["count"][:, 0].tolist()
            thread.join(self.timeout_seconds)
        assert found == list(range(30)), (
            f"A batch of 30 items of a queue with room for 4 must be collected bit by bit, got {found}."
        )

    def test_a_full_queue_holds_its_writer_back_and_nothing_is_lost(self) -> None:
        with (
            self._queue(5) as server,
            server.client(timeout_seconds=0.3) as client,
            client.writer(_WINDOW) as writer,
        ):
            start = time.monotonic()
            self.check_refused(
                replay.ReplayTimeout,
                "Table 'table' holds inserts back: 5 inserted, 0 sampled, 5 stored. Sample from it, or let "
                "its rate limiter allow more.",
                lambda: _write_items(writer, range(100)),
            )
            self._check_time(start, 0.3)
            # What the writer had to wait for is let in as soon as there is room.
            found = [number for _ in range(2) for number in self._numbers(client, 5)]
        assert found == list(range(10)), (
            f"A queue that was full must lose nothing and keep the order, expected 0 to 9, got {found}."
        )

    def test_a_held_back_writer_goes_on_when_another_thread_samples(self) -> None:
        with self._queue(5) as server, server.client(self.timeout_seconds) as client:
            found: list[int] = []

            def read() -> None:
                time.sleep(0.2)
                with client.sampler("table") as sampler:
                    while len(found) < 100:
                        batch = sampler.sample_batch(5, self.timeout_seconds)[1]
                        found.extend(batch["count"][:, 0].tolist())

            thread = threading.Thread(target=read, daemon=True)
            thread.start()
            self._write(client, range(100))
            thread.join(self.timeout_seconds)
        assert found == list(range(100)), f"A queue must pass 100 items on in order, got {found}."

    def test_too_few_items_hold_a_sampler_back(self) -> None:
        with self._serve(rate_limiter=replay.MinSize(10)) as server, server.client() as client:
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
        assert info.table_size.tolist() == [10, 10], (
            f"A sampler must go on when there are 10 items, got sizes {info.table_size.tolist()}."
        )

    def test_the_ratio_holds_samplers_back(self) -> None:
        limiter = replay.SampleToInsertRatio(samples_per_insert=2.0, min_size=2, error_buffer=4.0)
        with self._serve(rate_limiter=limiter) as server, server.client() as client:
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
        assert found == 6, f"A sampler must go on when more was written, expected 6 items, got {found}."

    def test_the_ratio_holds_writers_back(self) -> None:
        limiter = replay.SampleToInsertRatio(samples_per_insert=1.0, min_size=2, error_buffer=4.0)
        with (
            self._serve(rate_limiter=limiter) as server,
            server.client(timeout_seconds=0.3) as client,
            client.writer(_WINDOW) as writer,
        ):
            self.check_refused(
                replay.ReplayTimeout,
                "Table 'table' holds inserts back: 6 inserted, 0 sampled, 6 stored. Sample from it, or let "
                "its rate limiter allow more.",
                lambda: _write_items(writer, range(100)),
            )
            with client.sampler("table") as sampler:
                sampler.sample_batch(6, self.timeout_seconds)
                deadline = time.monotonic() + self.timeout_seconds
                while (inserted := client.table_info("table").inserted) < 7 and time.monotonic() < deadline:
                    time.sleep(0.01)
        assert inserted >= 7, (
            f"What a writer had to wait for must be taken when there were samples, got {inserted} inserted."
        )

    def test_inserting_is_free_below_the_minimum(self) -> None:
        limiter = replay.SampleToInsertRatio(samples_per_insert=4.0, min_size=3, error_buffer=4.0)
        settings = {"sampler": replay.Fifo(), "max_times_sampled": 1, "rate_limiter": limiter}
        found = []
        with self._serve(**settings) as server, server.client(timeout_seconds=2.0) as client:
            self._write(client, range(3))
            with client.sampler("table") as sampler:
                for number in range(3, 13):
                    # One sample leaves too few, so one more may be written, whatever the ratio is.
                    found += sampler.sample_batch(1, self.timeout_seconds)[1]["count"][:, 0].tolist()
                    self._write(client, range(number, number + 1))
        assert found == list(range(10)), (
            "A table with fewer items than `min_size` must take more, whatever the ratio, expected 0 to 9 to "
            f"come out, got {found}."
        )

    def test_an_item_goes_out_so_many_times_at_most(self) -> None:
        with self._fifo() as server, server.client() as client:
            self._write(client, range(3))
            found = self._numbers(client, 3)
            left = client.table_info("table").size
            assert (found, left) == ([0, 1, 2], 0), (
                "`sample_batch` with `max_times_sampled` 1 must give each item once, expected [0, 1, 2] and "
                f"none left, got {found} and {left} left."
            )

    def test_a_batch_is_writable_and_nobody_elses(self) -> None:
        with self._serve() as server, server.client() as client:
            self._write(client, range(1))
            with client.sampler("table") as sampler:
                for field in sampler.sample_batch(2, self.timeout_seconds)[1].values():
                    assert field.flags.writeable, (
                        "`sample_batch` must return writable arrays, got a read-only one."
                    )
                    field[:] = 99
                _, fields = sampler.sample_batch(2, self.timeout_seconds)
        expected = _expected([0, 0])["number"]
        assert np.array_equal(fields["number"], expected), (
            "`sample_batch` must return fresh arrays, expected the rows as written, got what was done to an "
            f"earlier batch: {fields['number'].tolist()}."
        )

    def test_sampling_too_early_times_out_with_a_reason_and_loses_no_item(self) -> None:
        with self._fifo() as server, server.client() as client, client.sampler("table") as sampler:
            self._write(client, range(2))
            try:
                sampler.sample_batch(3, timeout_seconds=0.2)
            except replay.ReplayTimeout as error:
                message = str(error)
            else:
                raise AssertionError(
                    "`sample_batch` of 3 items where there are 2 must raise ReplayTimeout, got a batch."
                )
            assert "table" in message, (
                f"ReplayTimeout must name the table that was waited for, expected 'table' in: {message}"
            )
            self._write(client, range(2, 3))
            found = sampler.sample_batch(3, self.timeout_seconds)[1]["count"][:, 0].tolist()
        assert found == [0, 1, 2], (
            f"`sample_batch` must lose no item by a timeout, expected [0, 1, 2], got {found}."
        )

    def test_an_unknown_table_is_refused_and_the_known_ones_listed(self) -> None:
        with self._serve() as server, server.client() as client:
            for method in (client.sampler, client.table_info):
                try:
                    method("nowhere")
                except replay.ReplayError as error:
                    message = str(error)
                else:
                    raise AssertionError(
                        f"`{method.__name__}` of an unknown table must raise ReplayError, got no error."
                    )
                assert "'table'" in message, (
                    f"`{method.__name__}` must list the tables there are, expected 'table' in: {message}"
                )

    def test_what_does_not_fit_is_refused_and_the_writer_goes_on(self) -> None:
        fits = {
            "number": replay.Window("number", 0, _WINDOW),
            "count": replay.Window("count", 0, 1),
            "image": replay.Window("image", 0, 1),
        }
        misfit = "The item does not fit table 'table', whose fields are count, image, number: "
        reach = "Ask for a writer with a larger `max_window`, or create items sooner."
        cases: list[tuple[dict[str, replay.Window], str]] = [
            ({"number": fits["number"]}, f"{misfit}`count` is missing; `image` is missing."),
            (fits | {"more": fits["count"]}, f"{misfit}`more` is unknown."),
            (
                fits | {"number": replay.Window("number", 1, 2)},
                f"{misfit}`number` must be float32 of shape (3, 2), got float32 of shape (2, 2).",
            ),
            (
                fits | {"count": replay.Window("image", 0, 1)},
                f"{misfit}`count` must be int64 of shape (1,), got uint8 of shape (1, 2, 2, 1).",
            ),
            (
                fits | {"number": replay.Window("number", 1, _WINDOW)},
                "`number` must be a window of the rows 0 to 2 of column 'number', which are kept, got 3 rows "
                f"from 1 on. {reach}",
            ),
            (
                fits | {"count": replay.Window("count", 0, 0)},
                "`count` must be a window of the rows 0 to 2 of column 'count', which are kept, got 0 rows "
                f"from 0 on. {reach}",
            ),
            (
                fits | {"count": replay.Window("other", 0, 1)},
                "`count` must be a window of a column that has rows ('number', 'count', 'image'), got "
                "'other'.",
            ),
        ]
        with self._fifo() as server, server.client() as client, client.writer(_WINDOW) as writer:
            _write_items(writer, range(1))
            for fields, message in cases:
                self.check_refused(
                    replay.ReplayError,
                    message,
                    functools.partial(writer.create_item, "table", 1.0, fields),
                )
            writer.end_episode()
            _write_items(writer, range(7, 8))
            writer.end_episode()
            found = self._numbers(client, 2)
        assert found == [0, 7], f"A refused item must leave the others, expected [0, 7], got {found}."

    def test_a_window_behind_the_writers_reach_is_refused(self) -> None:
        # A table that the item fits but for its reach.
        signature = replay.ItemSignature(
            columns={"number": _SIGNATURE.columns["number"]}, fields={"number": _SIGNATURE.fields["number"]}
        )
        with (
            self._serve(signature=signature) as server,
            server.client() as client,
            client.writer(_WINDOW) as writer,
        ):
            for number in range(5):
                writer.append({"number": np.full(2, number, np.float32)})
            self.check_refused(
                replay.ReplayError,
                "`number` must be a window of the rows 2 to 4 of column 'number', which are kept, got 3 rows "
                "from 1 on. Ask for a writer with a larger `max_window`, or create items sooner.",
                lambda: writer.create_item("table", 1.0, {"number": replay.Window("number", 1, _WINDOW)}),
            )

    def test_a_row_unlike_those_before_it_is_refused(self) -> None:
        with self._serve() as server, server.client() as client, client.writer(_WINDOW) as writer:
            writer.append({"number": np.zeros(2, np.float32)})
            self.check_refused(
                replay.ReplayError,
                "A row of column 'number' must be float32 of shape (2,) as those before it, got float64 of "
                "shape (2,).",
                lambda: writer.append({"number": np.zeros(2, np.float64)}),
            )

    def test_sizes_that_are_none_are_refused(self) -> None:
        with self._serve() as server, server.client() as client, client.sampler("table") as sampler:
            self.check_refused(
                ValueError, "`batch_size` must be >= 1 item, got 0.", lambda: sampler.sample_batch(0)
            )
            self.check_refused(ValueError, "`max_window` must be >= 1 row, got 0.", lambda: client.writer(0))
            self.check_refused(
                ValueError, "`timeout_seconds` must be > 0, got 0.", lambda: server.client(timeout_seconds=0)
            )

    def test_what_is_closed_says_so(self) -> None:
        with self._serve() as server, server.client() as client:
            sampler, writer = client.sampler("table"), client.writer(_WINDOW)
            sampler.close()
            writer.close()
            self.check_refused(
                replay.ReplayError,
                "The sampler of table 'table' is closed. Make a new one with `client.sampler`.",
                lambda: sampler.sample_batch(1),
            )
            self.check_refused(
                replay.ReplayError,
                "The writer is closed. Make a new one with `client.writer`.",
                lambda: writer.append({"count": np.array(1)}),
            )

    def test_a_blocked_writer_closes_at_once(self) -> None:
        with self._queue(5) as server, server.client(timeout_seconds=0.2) as client:
            writer = client.writer(_WINDOW)
            self.check_refused(
                replay.ReplayTimeout, "Table 'table' holds inserts", lambda: _write_items(writer, range(20))
            )
            start = time.monotonic()
            writer.close()
            self._check_time(start, 0.0)
            found = self._numbers(client, 5)
        assert found == list(range(5)), f"What was taken before must stay, expected 0 to 4, got {found}."

    def test_rows_are_shared_by_tables_and_each_has_its_own_order(self) -> None:
        table = {"signature": _SIGNATURE, "max_size": 100, "rate_limiter": replay.MinSize(1)}
        tables = [
            replay.TableConfig(name="old", sampler=replay.Fifo(), max_times_sampled=1, **table),  # type: ignore[arg-type]
            replay.TableConfig(name="new", sampler=replay.Lifo(), max_times_sampled=1, **table),  # type: ignore[arg-type]
        ]
        with self.make_server(tables) as server, server.client() as client:
            with client.writer(_WINDOW) as writer:
                _write_items(writer, range(6), tables=("old", "new"))
                writer.end_episode()
            found = {}
            for name in ("old", "new"):
                with client.sampler(name) as sampler:
                    found[name] = sampler.sample_batch(6, self.timeout_seconds)[1]
        for name, numbers in (("old", range(6)), ("new", range(5, -1, -1))):
            first = np.array(numbers)
            expected = first[:, None] + np.arange(_WINDOW)
            assert np.array_equal(found[name]["number"][..., 0], expected), (
                f"Table '{name}' must give its items in its own order, expected {expected.tolist()}, got "
                f"{found[name]['number'][..., 0].tolist()}."
            )

    def test_writers_and_samplers_in_threads_see_whole_items(self) -> None:
        num_writers, num_items = 3, 150
        with self._serve(max_size=50) as server, server.client() as client:
            threads = [
                threading.Thread(
                    target=self._write, args=(client, range(1000 * i, 1000 * i + num_items)), daemon=True
                )
                for i in range(num_writers)
            ]
            for thread in threads:
                thread.start()
            with client.sampler("table") as sampler:
                while any(thread.is_alive() for thread in threads):
                    fields = sampler.sample_batch(16, self.timeout_seconds)[1]
                    rows = fields["number"][..., 0]  # [B, W]
                    assert np.all(np.diff(rows, axis=1) == 1) and np.all(
                        rows[:, 0] == fields["count"][:, 0]
                    ), (
                        "`sample_batch` while others write must return rows of one writer that follow each "
                        f"other, got {rows.tolist()}."
                    )
            info = client.table_info("table")
        expected = (50, num_writers * num_items)
        assert (info.size, info.inserted) == expected, (
            f"3 writers must have inserted 450 items of which 50 stay, expected {expected}, got {info}."
        )

    def test_a_checkpoint_brings_everything_back(self, tmp_path: pathlib.Path) -> None:
        settings = {"sampler": replay.Prioritized(1.0), "max_size": 8}
        config = self._config(**settings)
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
        assert restored == counts, f"`restore_from` must bring the counts back, {counts}, got {restored}."
        assert len(before) == 8 and after == before, (
            f"`restore_from` must bring every item back, key, priority and rows, expected {sorted(before)}, "
            f"got {sorted(after)}."
        )
        assert len(later) == 8 and len(later.keys() & before.keys()) == 7, (
            "A restored table must go on: the oldest item leaves for a new one, expected 7 of the old keys, "
            f"got {len(later.keys() & before.keys())} of {len(later)}."
        )

    def test_a_checkpoint_that_cannot_be_restored_is_refused(self, tmp_path: pathlib.Path) -> None:
        nowhere = tmp_path / "nowhere"
        self.check_refused(
            replay.ReplayError,
            "`restore_from` must be a finished checkpoint, as `client.checkpoint()` returned it, got "
            f"'{nowhere}'",
            lambda: self.make_server([self._config()], restore_from=str(nowhere)),
        )
        with (
            self.make_server([self._config()], checkpoint_directory=str(tmp_path)) as server,
            server.client() as client,
        ):
            self._write(client, range(2))
            path = client.checkpoint()
        other = self._config(name="other")
        self.check_refused(
            replay.ReplayError,
            f"The checkpoint '{path}' must hold the tables ['other', 'table'], but holds ['table'].",
            lambda: self.make_server([self._config(), other], restore_from=path),
        )
        self.check_refused(
            replay.ReplayError,
            f"Table 'table' in checkpoint '{path}' differs from the one expected: `max_size` 100 against 7; "
            "`sampler` Uniform against Fifo. Use the settings that it was made with, or begin with an empty "
            "one.",
            lambda: self.make_server([self._config(max_size=7, sampler=replay.Fifo())], restore_from=path),
        )

    def test_a_server_without_a_folder_writes_no_checkpoint(self) -> None:
        with self._serve() as server, server.client() as client:
            self.check_refused(
                replay.ReplayError,
                "wrote no checkpoint: there is no folder for it. Start it with a `checkpoint_directory`.",
                client.checkpoint,
            )

    def test_tables_that_cannot_be_are_refused(self) -> None:
        self.check_refused(
            ValueError,
            "`tables` must be one or more tables of different names, got ['table', 'table'].",
            lambda: self.make_server([self._config(), self._config()]),
        )
        column = replay.ColumnSpec((), np.dtype(np.complex64))
        odd = replay.ItemSignature({"field": column}, {"field": replay.FieldSpec("field", 1)})
        self.check_refused(
            ValueError,
            "`field` must be of a dtype that can be stored",
            lambda: self.make_server([self._config(signature=odd)]),
        )

    def test_close_from_another_thread_ends_a_wait(self) -> None:
        with self._serve() as server, server.client() as client:
            sampler = client.sampler("table")
            caught: list[BaseException] = []

            def wait() -> None:
                try:
                    sampler.sample_batch(1)
                except replay.ReplayError as error:
                    caught.append(error)

            thread = threading.Thread(target=wait, daemon=True)
            thread.start()
            time.sleep(0.1)
            sampler.close()
            thread.join(self.timeout_seconds)
            assert not thread.is_alive(), (
                f"`close` must end a `sample_batch` that waits, got one that still waits after "
                f"{self.timeout_seconds:g} seconds."
            )
            assert caught, "`sample_batch` must raise ReplayError when it is closed, got no error."

    def test_everything_may_be_closed_twice(self) -> None:
        server = self._serve()
        client = server.client()
        for part in (client.writer(_WINDOW), client.sampler("table"), client, server):
            for attempt in ("first", "second"):
                error = _error_of(part.close)
                assert error is None, (
                    f"The {attempt} `close` of {type(part).__name__} must do no harm, got {error!r}."
                )

    def _fifo(self) -> replay.ReplayServer:
        return self._serve(sampler=replay.Fifo(), max_times_sampled=1)

    def _queue(self, capacity: int) -> replay.ReplayServer:
        limiter = replay.Queue(capacity)
        return self._serve(sampler=replay.Fifo(), max_times_sampled=1, rate_limiter=limiter)

    def _serve(self, **settings: object) -> replay.ReplayServer:
        return self.make_server([self._config(**settings)])

    def _config(self, **settings: object) -> replay.TableConfig:
        table = {"name": "table", "signature": _SIGNATURE, "max_size": 100, "rate_limiter": replay.MinSize(1)}
        return replay.TableConfig(**(table | settings))  # type: ignore[arg-type]

    def _write(
        self, client: replay.ReplayClient, numbers: range, priorities: Sequence[float] | None = None
    ) -> None:
        with client.writer(_WINDOW) as writer:
            _write_items(writer, numbers, priorities)
            writer.end_episode()

    def _items(self, client: replay.ReplayClient) -> dict[int, tuple[float, list[bytes]]]:
        """The items that are sampled, by their keys."""
        info, fields = self._sample(client, 1000)
        items = zip(info.key.tolist(), info.priority.tolist(), *fields.values(), strict=True)
        return {key: (priority, [field.tobytes() for field in item]) for key, priority, *item in items}

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

    def _sample(
        self, client: replay.ReplayClient, batch_size: int
    ) -> tuple[replay.SampleInfo, dict[str, np.ndarray]]:
        with client.sampler("table") as sampler:
            return sampler.sample_batch(batch_size, self.timeout_seconds)

    def _numbers(self, client: replay.ReplayClient, batch_size: int) -> list[int]:
        counts = self._sample(client, batch_size)[1]["count"]  # [B, 1]
        return [int(count) for count in counts[:, 0]]


def _error_of(do: Callable[[], object]) -> Exception | None:
    try:
        do()
    except Exception as error:
        return error
    return None


def _write_items(
    writer: replay.Writer,
    numbers: range,
    priorities: Sequence[float] | None = None,
    tables: Sequence[str] = ("table",),
) -> None:
    """Writes an item for each number, which is the number of its first row."""
    for t in range(len(numbers) + _WINDOW - 1):
        number = numbers.start + t
        rows: dict[str, np.ndarray] = {
            "number": np.array([number, -number], np.float32),
            "count": np.array(number, np.int64),
        }
        if t % 2 == 0:
            rows["image"] = np.full((2, 2, 1), number % 256, np.uint8)
        writer.append(rows)
        start = t - _WINDOW + 1
        if start >= 0:
            windows = {
                "number": replay.Window("number", start, _WINDOW),
                "count": replay.Window("count", start, 1),
                "image": replay.Window("image", t // 2, 1),
            }
            for table in tables:
                writer.create_item(table, 1.0 if priorities is None else priorities[start], windows)


def _expected(numbers: Sequence[int]) -> dict[str, np.ndarray]:
    """The fields of the items of these numbers, written as one episode or each as its first."""
    first = np.array(numbers)[:, None]  # [B, 1]
    rows = first + np.arange(_WINDOW)  # [B, W]
    last = rows[:, -1]
    images = last - (last - first[0, 0]) % 2
    return {
        "number": np.stack([rows, -rows], axis=-1).astype(np.float32),
        "count": first.astype(np.int64),
        "image": np.broadcast_to(images[:, None, None, None, None], (len(first), 1, 2, 2, 1)).astype(
            np.uint8
        ),
    }
