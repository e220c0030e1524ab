import csv
import logging
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from minerva_acme import loggers


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_each_row_is_with_the_system_when_write_returns(tmp_path):
    with loggers.CSVLogger(tmp_path / "new" / "folder", "actor") as logger:
        for step in range(3):
            logger.write({"steps": step, "loss": step / 3})
            expected = [{"steps": str(k), "loss": str(k / 3)} for k in range(step + 1)]
            assert rows(tmp_path / "new/folder/actor.csv") == expected


def test_the_rows_of_a_killed_process_are_all_there(tmp_path):
    code = f"""
import os, signal
from minerva_acme import loggers
logger = loggers.CSVLogger({str(tmp_path)!r}, "learner")
for step in range(100):
    logger.write({{"steps": step}})
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    assert [row["steps"] for row in rows(tmp_path / "learner.csv")] == [str(k) for k in range(100)]


def test_numbers_are_read_out_and_keep_their_precision(tmp_path):
    with loggers.CSVLogger(tmp_path, "log") as logger:
        logger.write(
            {
                "float": 0.1 + 0.2,
                "numpy": np.float64(1.0) / 3.0,
                "integer": np.int64(2**53 + 1),
                "tensor": torch.tensor([0.5], requires_grad=True),
                "infinite": float("inf"),
            }
        )
    (row,) = rows(tmp_path / "log.csv")
    assert list(row.values()) == [str(0.1 + 0.2), str(1 / 3), str(2**53 + 1), "0.5", "inf"]


def test_a_continued_file_keeps_its_rows_and_its_columns(tmp_path):
    for step in range(3):
        with loggers.CSVLogger(tmp_path, "log") as logger:
            logger.write({"loss": 0.5, "steps": step} if step else {"steps": step, "loss": 0.5})
    assert (tmp_path / "log.csv").read_text() == "steps,loss\n0,0.5\n1,0.5\n2,0.5\n"


def test_new_columns_widen_the_file_and_missing_ones_are_empty(tmp_path):
    with loggers.CSVLogger(tmp_path, "log") as logger:
        logger.write({"steps": 1})
        logger.write({"steps": 2, "note": "two\nlines, quoted"})
        logger.write({"loss": 0.5})
    assert rows(tmp_path / "log.csv") == [
        {"steps": "1", "note": "", "loss": ""},
        {"steps": "2", "note": "two\nlines, quoted", "loss": ""},
        {"steps": "", "note": "", "loss": "0.5"},
    ]
    assert os.listdir(tmp_path) == ["log.csv"]


def test_a_file_that_cannot_be_widened_stays_as_it_is(tmp_path, monkeypatch):
    with loggers.CSVLogger(tmp_path, "log") as logger:
        logger.write({"steps": 1})

        def fail(source, destination):
            raise OSError("no space left")

        with monkeypatch.context() as patch, pytest.raises(OSError, match="no space left"):
            patch.setattr(os, "replace", fail)
            logger.write({"steps": 2, "loss": 0.5})
        logger.write({"steps": 3})
        logger.write({"steps": 4, "loss": 0.5})
    assert [row["steps"] for row in rows(tmp_path / "log.csv")] == ["1", "3", "4"]


@pytest.mark.parametrize(
    "text", ["a,b", 'say "so"', "two\nlines", '"', '",\n"', "", " padded ", "1,\n2,\n", "é 🙂"]
)
def test_any_text_comes_back_as_it_was(tmp_path, text):
    for _ in range(2):  # the second one reads what the first one wrote
        with loggers.CSVLogger(tmp_path, "log") as logger:
            logger.write({"steps": 1, text: text})
    with loggers.CSVLogger(tmp_path, "log") as logger:
        logger.write({"more": 2})
    expected = {"steps": "1", text: text, "more": ""}
    assert rows(tmp_path / "log.csv") == [expected, expected, {"steps": "", text: "", "more": "2"}]


def test_carriage_returns_become_line_feeds(tmp_path):
    with loggers.CSVLogger(tmp_path, "log") as logger:
        logger.write({"note": "one\rtwo"})
    assert rows(tmp_path / "log.csv") == [{"note": "one\ntwo"}]


def test_wherever_a_kill_cut_the_file_the_whole_rows_stay(tmp_path, caplog):
    path = tmp_path / "log.csv"
    with loggers.CSVLogger(tmp_path, "log") as logger:
        logger.write({"steps": 1, "note": "a"})
        logger.write({"steps": 2, "note": 'b\n"c",'})
    whole = path.read_bytes()
    lengths = [len(b"steps,note\n"), len(b"steps,note\n1,a\n"), len(whole)]
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        caplog.clear()
        with caplog.at_level(logging.WARNING), loggers.CSVLogger(tmp_path, "log") as logger:
            logger.write({"steps": 3, "note": "d"})
        kept = sum(length <= cut for length in lengths[1:])
        assert [row["steps"] for row in rows(path)] == [*["1", "2"][:kept], "3"]
        lost = cut - max([0, *(length for length in lengths if length <= cut)])
        assert [record.args[1] for record in caplog.records] == ([lost] if lost else [])


def test_a_closed_logger_refuses_rows(tmp_path):
    logger = loggers.CSVLogger(tmp_path, "log")
    logger.close()
    logger.close()
    with pytest.raises(ValueError, match=r"The logger of .*log\.csv is closed"):
        logger.write({"steps": 1})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros(3), r"`loss` must be one number or a string to be logged, got ndarray of shape \(3,\)"),
        (torch.zeros(2, 2), r"`loss` must be .*, got Tensor of shape \(2, 2\)"),
        (None, "`loss` must be .*, got NoneType"),
        ({"q": 1.0}, "`loss` must be .*, got dict"),
        (1j, "`loss` must be .*, got complex"),
    ],
)
def test_a_value_that_is_not_one_number_is_refused_by_name(tmp_path, value, message):
    with loggers.CSVLogger(tmp_path, "log") as logger:
        with pytest.raises(ValueError, match=message):
            logger.write({"steps": 1, "loss": value})
        logger.write({"steps": 2})
    assert rows(tmp_path / "log.csv") == [{"steps": "2"}]


def test_rows_above_a_step_are_cut_and_the_others_stay_byte_for_byte(tmp_path):
    kept = b'steps,"note"\r\n 1 ,"two\nlines, \xff"\n,no number\n3\n2.0,short of the next\n'
    cut = b'4,"not\nthis"\n1e3,nor this\n'
    (tmp_path / "log.csv").write_bytes(kept + cut + b"2,again\n" + cut + b"9,hal")
    with loggers.CSVLogger(tmp_path, "log") as logger:
        assert logger.cut("steps", 3) == 4
        assert (tmp_path / "log.csv").read_bytes() == kept + b"2,again\n"
        assert logger.cut("steps", 3) == 0
        logger.write({"steps": 4})
    assert (tmp_path / "log.csv").read_bytes() == kept + b"2,again\n4,\n"
    assert os.listdir(tmp_path) == ["log.csv"]


def test_a_file_without_the_column_loses_no_row(tmp_path):
    with loggers.CSVLogger(tmp_path, "log") as logger:
        assert logger.cut("steps", 3) == 0  # nor one without rows
        logger.write({"loss": 7})
        assert logger.cut("steps", 3) == 0
    assert rows(tmp_path / "log.csv") == [{"loss": "7"}]


def test_a_file_that_cannot_be_cut_stays_as_it_is(tmp_path, monkeypatch):
    with loggers.CSVLogger(tmp_path, "log") as logger:
        logger.write({"steps": 1})
        logger.write({"steps": 2})

        def fail(source, destination):
            raise OSError("no space left")

        with monkeypatch.context() as patched, pytest.raises(OSError, match="no space left"):
            patched.setattr(os, "replace", fail)
            logger.cut("steps", 1)
        logger.write({"steps": 3})
    assert [row["steps"] for row in rows(tmp_path / "log.csv")] == ["1", "2", "3"]


def test_a_file_that_is_no_text_is_continued_and_one_that_is_no_table_refused(tmp_path):
    (tmp_path / "log.csv").write_bytes(b"steps,\xff\x80\n1,\xff\n")
    with loggers.CSVLogger(tmp_path, "log") as logger:
        logger.write({"steps": 2})
    assert (tmp_path / "log.csv").read_bytes().endswith(b"1,\xff\n2,\n")
    (tmp_path / "log.csv").write_bytes(b"x" * 200_000 + b"\n")
    with pytest.raises(
        ValueError, match="log.csv must begin with the names of its columns, but .* Move it away"
    ):
        loggers.CSVLogger(tmp_path, "log")


def test_a_row_that_the_disk_has_no_room_for_is_an_error_and_not_half_there(tmp_path, disk_that_ends_at):
    logger = loggers.CSVLogger(tmp_path, "actor")
    logger.write({"steps": 1, "note": "short"})
    before = logger.path.read_bytes()
    with disk_that_ends_at(len(before) + 20):
        with pytest.raises(OSError, match=r"actor\.csv cannot be written: .* are free there"):
            logger.write({"steps": 2, "note": "x" * 100})
        with pytest.raises(OSError, match=r"actor\.csv cannot be written"):  # another column: a new file
            logger.write({"steps": 2, "more" * 10: "x"})
    assert logger.path.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["actor.csv"]
    logger.write({"steps": 3, "note": "again"})
    logger.close()
    assert logger.path.read_bytes() == before + b"3,again\n"
