import csv
import pathlib
import shutil
from collections.abc import Iterator

import pytest

# By the name that the processes know it by.
from tests.endurance import __main__ as command
from tests.endurance import soak, stops, storm


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[storm.Result, pathlib.Path]]:
    folder = tmp_path_factory.mktemp("storm") / "training"
    storm.begin_processes(["memory"])
    try:
        yield storm.run("mpo", "memory", folder, num_kills=2, seed=0), folder
    finally:
        storm.end_processes()


def trainings(folder: pathlib.Path) -> tuple[storm.Training, storm.Training]:
    one, other = (storm.Training("mpo", "memory", folder / name, 400) for name in ("storm", "straight"))
    return one, other


@pytest.mark.promise("After 20 kills at random moments")
def test_a_training_that_is_killed_twice_comes_out_as_one_that_is_not(killed):
    result, folder = killed
    assert result.faults == []
    assert len(result.kills) == 2
    assert len(result.resume_seconds) >= 1
    # Something was lost each time, and less than two intervals.
    assert all(0 <= kill.made_steps - kill.kept_steps < 200 for kill in result.kills)
    assert storm.compare(*trainings(folder), is_seeded=True) == []
    assert "| mpo/memory | 2 |" in storm.table([result])


def repeat_last_row(run):
    text = (run / "learner.csv").read_text()
    (run / "learner.csv").write_text(text + text.splitlines(keepends=True)[-1])


def lose_a_row(run):
    lines = (run / "actor.csv").read_text().splitlines(keepends=True)
    (run / "actor.csv").write_text("".join(lines[:2] + lines[3:]))


def change_a_number(run):
    with open(run / "evaluator.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    rows[0]["episode_return"] = "1.0"
    with open(run / "evaluator.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def leave_half_a_checkpoint(run):
    (run / "checkpoints/.unfinished-000000001").mkdir()


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (repeat_last_row, "row 92 of learner.csv"),
        (lose_a_row, "the number of the actor's rows"),
        (change_a_number, "every number of evaluator.csv"),
        (leave_half_a_checkpoint, "files"),
    ],
)
def test_what_a_resume_did_wrong_is_found(killed, tmp_path, damage, fault):
    _, folder = killed
    shutil.copytree(folder, tmp_path / "copy")
    damage(tmp_path / "copy/storm/run")
    faults = storm.compare(*trainings(tmp_path / "copy"), is_seeded=True)
    assert faults
    assert all(found.startswith((fault, "every number of")) for found in faults)


def report(*counts):
    return storm.Report(0.0, "train", *counts)


def test_counts_below_those_of_the_checkpoint_are_found():
    saved = {"actor_steps": 100, "learner_steps": 20, "actor_episodes": 2}
    attempts = {
        "as saved": [report(100, 20, 2), report(101, 20, 2)],
        "not as saved": [report(100, 19, 2)],
        "backwards": [report(100, 20, 2), report(101, 19, 2)],
    }
    faults = {
        name: len(storm.check_resumed(saved, storm.Attempt(-9, 0.0, reports)))
        for name, reports in attempts.items()
    }
    assert faults == {"as saved": 0, "not as saved": 1, "backwards": 1}


def test_a_signal_while_a_training_takes_long_loses_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(stops, "_SECONDS", (1.0, 1.0))
    monkeypatch.setattr(stops, "_STEPS", 50)
    monkeypatch.setattr(stops, "_SLOW", ("stop",))
    storm.begin_processes(["memory"])
    try:
        result = stops.run("mpo/memory", tmp_path / "training", num_signals=1, seed=0)
    finally:
        storm.end_processes()
    assert result.faults == []
    ((name, _, seconds, made, kept),) = result.stops
    assert name == "SIGINT" and seconds > 0.0 and made == kept > 0
    assert "| mpo/memory | 1 | 1, 0, 0 | 1 | 1.0 | 1.0 |" in stops.table([result])


def test_a_stop_that_loses_steps_or_ends_badly_is_found(tmp_path, monkeypatch):
    attempt = storm.Attempt(130, 0.0, [report(7, 0, 0)])
    monkeypatch.setattr(storm.Training, "attempt", lambda *words: attempt)
    faults = stops.run("mpo/memory", tmp_path / "training", num_signals=1, seed=0).faults
    assert len(faults) == 4
    for words in ("as in the checkpoint", "ended with 130", "of step 0, 7 were made", "is not whole"):
        assert any(words in fault for fault in faults)


def samples(*, resident=lambda second: 1e8, threads=lambda second: 3, files=lambda second: 16):
    return [
        soak.Sample(second, second, second, resident(second), threads(second), files(second))
        for second in range(300)
    ]


@pytest.mark.parametrize(
    ("grows", "faults"),
    [
        ({}, []),
        ({"resident": lambda second: 1e8 * min(1.0, second / 99 + 0.1)}, []),  # while it warms up
        ({"resident": lambda second: 1e8 * (1 + 0.02 * second / 300)}, []),  # by less than 2 % after that
        ({"resident": lambda second: 1e8 * (1 + 0.06 * second / 300)}, ["resident memory"]),
        ({"threads": lambda second: 3 + (second > 250)}, ["threads"]),
        ({"files": lambda second: 16 + second // 100}, ["open_files"]),
    ],
)
def test_what_grows_after_warm_up_is_found(grows, faults):
    result = soak.judge("a training", samples(**grows))
    assert len(result.faults) == len(faults)
    assert all(word in found for word, found in zip(faults, result.faults, strict=True))
    assert "| a training | 5.0 |" in soak.table([result])


@pytest.mark.promise("After a warm-up, memory grows by less than 2")
def test_a_short_soak_measures_the_process(tmp_path):
    result = soak.run("ppo", "memory", tmp_path / "training", seconds=5.0)
    assert result.warm[-1].learner_steps > 0
    # Torch alone takes more than that; this process holds at least its three streams and its journal.
    assert result.warm[-1].resident_bytes > 100 * 2**20
    assert result.warm[-1].open_files > 3


def test_an_unknown_training_is_refused(capsys):
    with pytest.raises(SystemExit):
        command.main(["storm", "mpo/disk"])
    assert "must be like mpo/memory, got mpo/disk" in capsys.readouterr().err


def test_a_line_that_is_half_written_is_left_for_later_and_dropped_with_its_process(tmp_path):
    whole = storm.Training("mpo", "memory", tmp_path, 400)
    journal = tmp_path / "journal.txt"
    first, second = b"1.5 act 100 10 2\n", b"2.5 act 200 20 4\n"
    journal.write_bytes(first + second[:9])
    reports, place = whole._read(0)
    assert [report.env_steps for report in reports] == [100]
    assert place == len(first)
    journal.write_bytes(first + second)
    assert [report.env_steps for report in whole._read(place)[0]] == [200]
    journal.write_bytes(first + second[:9])
    assert whole._drop_half_line() == len(first)
    assert journal.read_bytes() == first
