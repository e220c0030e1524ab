"""What our two stores say to misuse, word for word. Another store may say it in other words."""

import functools
import pathlib

import numpy as np
import pytest

from minerva_acme import replay
from tests.replay.contract import (
    ONCE_IN_ORDER,
    SIGNATURE,
    WINDOW,
    ReplayContract,
    check_equal,
    write_items,
)


class StoreTests(ReplayContract):
    """The contract of any store, and the words of ours."""

    def test_priorities_that_are_none_are_refused(self) -> None:
        with self._open() as client:
            for wrong in (np.nan, np.inf, -1.0):
                update = functools.partial(
                    client.update_priorities, "table", np.ones(1, np.uint64), np.array([wrong])
                )
                self.check_refused(ValueError, "`priorities` must be finite and >= 0", update)
                write = functools.partial(self._write, client, range(1), [wrong])
                self.check_refused(ValueError, f"`priority` must be finite and >= 0, got {wrong}", write)
            size = client.table_info("table").size
        check_equal(size, 0, "A table must stay empty when every item is refused")

    def test_what_does_not_fit_is_refused_and_the_writer_stays_usable(self) -> None:
        fits = {
            "number": replay.Window("number", 0, WINDOW),
            "count": replay.Window("count", 0, 1),
            "image": replay.Window("image", 0, 1),
        }
        misfit = "The item does not fit table 'table', whose fields are count, image, number: "
        kept = "must be a window of the rows 0 to 2 of column"
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
                fits | {"number": replay.Window("number", 1, WINDOW)},
                f"`number` {kept} 'number', which are kept, got 3 rows from 1 on. {reach}",
            ),
            (
                fits | {"count": replay.Window("count", 0, 0)},
                f"`count` {kept} 'count', which are kept, got 0 rows from 0 on. {reach}",
            ),
            (
                fits | {"count": replay.Window("other", 0, 1)},
                "`count` must be a window of a column that has rows ('number', 'count', 'image'), got "
                "'other'.",
            ),
        ]
        with self._open(**ONCE_IN_ORDER) as client, client.writer(WINDOW) as writer:
            write_items(writer, range(1))
            for fields, message in cases:
                create = functools.partial(writer.create_item, "table", 1.0, fields)
                self.check_refused(replay.ReplayError, message, create)
            writer.end_episode()
            write_items(writer, range(7, 8))
            writer.end_episode()
            found = self._numbers(client, 2)
        check_equal(found, [0, 7], "A refused item must leave the others")

    def test_a_window_behind_the_writers_reach_is_refused(self) -> None:
        # A table that the item fits but for its reach.
        signature = replay.ItemSignature(
            columns={"number": SIGNATURE.columns["number"]}, fields={"number": SIGNATURE.fields["number"]}
        )
        with self._open(signature=signature) as client, client.writer(WINDOW) as writer:
            for number in range(5):
                writer.append({"number": np.full(2, number, np.float32)})
            self.check_refused(
                replay.ReplayError,
                "`number` must be a window of the rows 2 to 4 of column 'number', which are kept, got 3 rows "
                "from 1 on. Ask for a writer with a larger `max_window`, or create items sooner.",
                lambda: writer.create_item("table", 1.0, {"number": replay.Window("number", 1, WINDOW)}),
            )

    def test_a_row_unlike_those_before_it_is_refused(self) -> None:
        with self._open() as client, client.writer(WINDOW) as writer:
            writer.append({"number": np.zeros(2, np.float32)})
            self.check_refused(
                replay.ReplayError,
                "A row of column 'number' must be float32 of shape (2,) like the rows before it, got float64 "
                "of shape (2,).",
                lambda: writer.append({"number": np.zeros(2, np.float64)}),
            )

    def test_sizes_that_are_none_are_refused(self) -> None:
        with self._serve() as server, server.client() as client, client.sampler("table") as sampler:
            for message, call in (
                ("`batch_size` must be >= 1 item, got 0.", lambda: sampler.sample_batch(0)),
                ("`max_window` must be >= 1 row, got 0.", lambda: client.writer(0)),
                ("`timeout_seconds` must be > 0, got 0.", lambda: server.client(timeout_seconds=0)),
            ):
                self.check_refused(ValueError, message, call)

    def test_what_is_closed_says_so(self) -> None:
        with self._open() as client:
            sampler, writer = client.sampler("table"), client.writer(WINDOW)
            sampler.close()
            writer.close()
            for message, call in (
                (
                    "The sampler of table 'table' is closed. Make a new one with `client.sampler`.",
                    lambda: sampler.sample_batch(1),
                ),
                (
                    "The writer is closed. Make a new one with `client.writer`.",
                    lambda: writer.append({"count": np.array(1)}),
                ),
            ):
                self.check_refused(replay.ReplayError, message, call)

    def test_a_checkpoint_that_cannot_be_restored_is_refused(self, tmp_path: pathlib.Path) -> None:
        with (
            self.make_server([self._config()], checkpoint_directory=str(tmp_path)) as server,
            server.client() as client,
        ):
            self._write(client, range(2))
            path = client.checkpoint()
        nowhere = str(tmp_path / "nowhere")
        for restore_from, tables, message in (
            (
                nowhere,
                [self._config()],
                "`restore_from` must be a finished checkpoint, as `client.checkpoint()` returned it, got "
                f"'{nowhere}'",
            ),
            (
                path,
                [self._config(), self._config(name="other")],
                f"The checkpoint '{path}' must hold the tables ['other', 'table'], but holds ['table'].",
            ),
            (
                path,
                [self._config(max_size=7, sampler=replay.Fifo())],
                f"Table 'table' in checkpoint '{path}' differs from the one expected: `max_size` 100 against "
                "7; `sampler` Uniform against Fifo. Use the settings that it was made with, or begin with an "
                "empty one.",
            ),
        ):
            restore = functools.partial(self.make_server, tables, restore_from=restore_from)
            self.check_refused(replay.ReplayError, message, restore)

    def test_a_table_whose_items_were_made_with_other_settings_is_refused_by_their_names(
        self, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        contents = {"n_step": 3, "discount": 0.99, "scale": 1.0}
        with (
            self.make_server([self._config(contents=contents)], checkpoint_directory=str(tmp_path)) as server,
            server.client() as client,
        ):
            self._write(client, range(2))
            path = client.checkpoint()
            client.check_table(self._config(contents={**contents, "scale": 1}))
            with pytest.raises(
                replay.ReplayError, match="`discount` 0.99 against 0.9.*begin with an empty one"
            ):
                client.check_table(self._config(contents={**contents, "discount": 0.9}))
        other = self._config(contents={"n_step": 1, "discount": 0.99})
        with pytest.raises(
            replay.ReplayError, match=r"in checkpoint .* differs .*: `n_step` 3 against 1\. Use the"
        ):
            self.make_server([other], restore_from=path)
        with (
            self.make_server([self._config(contents=contents)], restore_from=path) as server,
            server.client() as client,
        ):
            assert client.table_info("table").size > 0
            client.check_table(self._config(contents=contents))
        assert not [record for record in caplog.records if record.levelname == "WARNING"]

    def test_a_table_that_does_not_tell_its_settings_is_read_with_one_warning(
        self, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        with (
            self.make_server([self._config()], checkpoint_directory=str(tmp_path)) as server,
            server.client() as client,
        ):
            self._write(client, range(2))
            path = client.checkpoint()
        with self.make_server([self._config(contents={"n_step": 3, "discount": 0.99})], restore_from=path):
            pass
        (warning,) = [record for record in caplog.records if record.levelname == "WARNING"]
        assert (
            "does not record the `n_step` and `discount` of its items, so this is not" in warning.getMessage()
        )

    def test_a_server_without_a_folder_writes_no_checkpoint(self) -> None:
        with self._open() as client:
            self.check_refused(
                replay.ReplayError,
                "wrote no checkpoint: it has no folder for them. Start it with a `checkpoint_directory`.",
                client.checkpoint,
            )

    def test_tables_that_cannot_be_are_refused(self) -> None:
        column = replay.ColumnSpec((), np.dtype(np.complex64))
        odd = replay.ItemSignature({"field": column}, {"field": replay.FieldSpec("field", 1)})
        for tables, message in (
            (
                [self._config(), self._config()],
                "`tables` must be one or more tables with different names, got ['table', 'table'].",
            ),
            ([self._config(signature=odd)], "`field` must have a dtype that can be stored"),
        ):
            self.check_refused(ValueError, message, functools.partial(self.make_server, tables))
