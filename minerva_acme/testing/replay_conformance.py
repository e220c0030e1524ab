"""What `replay.base` promises, as tests that your own store can inherit.

class TestMyStore(testing.ReplayConformance):
    def make_server(self, tables):
        return MyServer(tables)
"""

import abc
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
    def make_server(self, tables: Sequence[replay.TableConfig]) -> replay.ReplayServer:
        """Makes a new server with these tables, empty."""

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

    def _serve(self, **settings: object) -> replay.ReplayServer:
        table = {"name": "table", "signature": _SIGNATURE, "max_size": 100, "rate_limiter": replay.MinSize(1)}
        return self.make_server([replay.TableConfig(**(table | settings))])  # type: ignore[arg-type]

    def _write(self, client: replay.ReplayClient, numbers: range) -> None:
        with client.writer(_WINDOW) as writer:
            _write_items(writer, numbers)
            writer.end_episode()

    def _sample(
        self, client: replay.ReplayClient, batch_size: int
    ) -> tuple[replay.SampleInfo, dict[str, np.ndarray]]:
        with client.sampler("table") as sampler:
            return sampler.sample_batch(batch_size, self.timeout_seconds)

    def _numbers(self, client: replay.ReplayClient, batch_size: int) -> list[int]:
        counts = self._sample(client, batch_size)[1]["count"]  # [B, 1]
        return [int(count) for count in counts[:, 0]]


def _error_of(do: Callable[[], None]) -> Exception | None:
    try:
        do()
    except Exception as error:
        return error
    return None


def _write_items(writer: replay.Writer, numbers: range) -> None:
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
            writer.create_item("table", 1.0, windows)


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
