"""The trials of a search: chosen by the seed, pruned, and the same after the process was killed."""

import json
import math
import os
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from minerva_acme.cli import search_space
from minerva_acme.constraints import Range

pytest.importorskip("optuna")
from minerva_acme.cli import study as studies

SPACE = search_space.Space(
    {
        "epochs": search_space.Dimension(Range(1, 9), is_whole=True),
        "rate": search_space.Dimension(Range(1e-5, 1e-2, log=True)),
        "torso": search_space.Dimension(
            None, choices={f"--torso {name}": ("--torso", name) for name in ("tanh", "relu")}
        ),
    },
    (),
)
NUM_STEPS = 100


def open_study(
    folder: pathlib.Path,
    *,
    seed: int = 0,
    identity: dict[str, Any] | None = None,
) -> studies.Study:
    return studies.Study(
        folder / "study.json",
        SPACE,
        identity=identity or {"env": "a"},
        seed=seed,
        num_steps=NUM_STEPS,
    )


def objective(params: search_space.Params) -> float:
    return -abs(math.log(float(params["rate"])) - math.log(1e-3)) + (params["torso"] == "--torso tanh")


def finish(study: studies.Study, trial: studies.Trial) -> None:
    value = objective(trial.params)
    study.add(trial, "complete", value, {50: value - 1.0, 100: value})


def search(folder: pathlib.Path, num_trials: int, at_once: int = 2, **settings: Any) -> list[Any]:
    study = open_study(folder, **settings)
    while len(study.finished) < num_trials:
        for trial in study.next_trials(at_once):
            finish(study, trial)
    return study.finished


def test_the_seed_decides_what_is_tried(tmp_path: pathlib.Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    first, again, other = (
        search(folder, 14, seed=seed) for folder, seed in zip(folders, (0, 0, 1), strict=True)
    )
    assert first == again
    assert len({trial.params["rate"] for trial in first}) == 14
    assert [trial.params for trial in first] != [trial.params for trial in other]
    for trial in first:
        assert trial.params["epochs"] in range(1, 10) and isinstance(trial.params["epochs"], int)
        assert 1e-5 <= trial.params["rate"] <= 1e-2
        assert trial.params["torso"] in SPACE.dimensions["torso"].choices
        assert (trial.state, trial.value) == ("complete", objective(trial.params))


def test_a_killed_search_goes_on_as_if_it_had_not_been(tmp_path: pathlib.Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    expected = search(whole, 16, at_once=3)
    for kill_after in (1, 2, 5, 13):  # also between two trials that ran at once, and beyond the random ones
        study = open_study(killed)
        while len(study.finished) < kill_after:
            finish(study, study.next_trials(3)[0])
        trials = study.next_trials(3)  # these run when it is killed
        assert open_study(killed).next_trials(3) == trials
        assert open_study(killed).next_trials(1) == trials  # also if fewer are to run at once
        assert [trial.number for trial in trials] == list(range(kill_after, kill_after + len(trials)))
    assert search(killed, 16, at_once=3) == expected


def test_another_search_in_the_folder_is_refused(tmp_path: pathlib.Path) -> None:
    open_study(tmp_path, identity={"env": "a", "seeds": (0, 1), "discount": 0.9})
    open_study(tmp_path, identity={"env": "a", "seeds": (0, 1), "discount": 0.9})
    with pytest.raises(ValueError) as caught:
        open_study(tmp_path, identity={"env": "b", "seeds": (0,), "discount": 0.9})
    assert (
        "holds another search: env is 'a' there, 'b' here; seeds is [0, 1] there, [0] here. Choose another "
        "--directory." in str(caught.value)
    )


def add(study: studies.Study, value: float, state: str = "complete") -> None:
    (trial,) = study.next_trials(1)
    values = {step: value for step in (10, 25, 50, 100)}
    study.add(trial, state, None if state == "failed" else value, values)


def test_a_study_of_an_older_version_goes_on_and_is_then_known(
    tmp_path: pathlib.Path,
) -> None:
    open_study(tmp_path)
    open_study(tmp_path, identity={"env": "a", "replay": "memory"})
    with pytest.raises(ValueError, match="another search: replay is 'memory' there, 'auto' here"):
        open_study(tmp_path, identity={"env": "a", "replay": "auto"})


def test_a_trial_is_pruned_where_it_is_worse_than_the_median_of_those_before(tmp_path: pathlib.Path) -> None:
    study = open_study(tmp_path)
    for value in (10.0, 20.0, 30.0, 40.0):
        add(study, value)
    add(study, -1.0, "failed")  # the failed do not count
    add(study, 50.0, "pruned")  # nor do the pruned
    (trial,) = study.next_trials(1)
    assert not study.should_prune(trial, {50: 0.0})  # four are too few
    study.add(trial, "complete", 50.0, {50: 50.0})
    first, second = study.next_trials(2)
    assert study.should_prune(first, {50: 29.0})  # the median of 10, 20, 30, 40 and 50
    assert not study.should_prune(first, {50: 30.0})
    assert not study.should_prune(first, {10: 0.0})  # the first quarter of the steps
    assert not study.should_prune(
        first, {40: 31.0, 50: 0.0}
    )  # the best so far counts, since returns are noisy
    assert not study.should_prune(first, {60: 0.0})  # nothing to compare with there
    # What ends meanwhile does not change what is pruned.
    study.add(first, "complete", 0.0, {50: 0.0})
    assert study.should_prune(second, {50: 29.0})
    assert open_study(tmp_path).next_trials(2) == [second]


def test_states_and_values_are_stored(tmp_path: pathlib.Path) -> None:
    study = open_study(tmp_path)
    add(study, 3.0)
    add(study, 2.0, "pruned")
    add(study, 1.0, "failed")
    found = open_study(tmp_path).finished
    assert [(trial.number, trial.state) for trial in found] == [(0, "complete"), (1, "pruned"), (2, "failed")]
    assert [trial.value for trial in found] == [3.0, 2.0, None]


WORDS = "--torso tanh --env evil_module:Evil-v0"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda study: study["running"][0].update(torso=WORDS), "`torso` of a trial must be one of --torso"),
        (
            lambda study: study["running"][0].update(rate=WORDS),
            "`rate` of a trial must be one of 1e-05..0.01",
        ),
        (lambda study: study["running"][0].update(rate=True), "got True"),
        (lambda study: study["running"][0].update(rate=0.5), "got 0.5"),
        (lambda study: study["running"][0].update(rate=math.nan), "its numbers must be finite, got nan"),
        (lambda study: study["running"][0].update(rate=math.inf), "got inf"),
        (lambda study: study["running"][0].update(rate=[1e-3, "--env", "evil_module:Evil-v0"]), "got [0.001"),
        (lambda study: study["running"][0].update(epochs=1.5), "got 1.5"),
        (lambda study: study["running"][0].update(env="evil_module:Evil-v0"), "must have values of epochs,"),
        (lambda study: study["running"][0].pop("rate"), "must have values of epochs,"),
        (lambda study: study.update(running={"env": "evil_module:Evil-v0"}), "must have values of epochs,"),
        (lambda study: study.update(first=-1), "must be one of them, got -1"),
        (lambda study: study.update(first="0"), "must be one of them, got '0'"),
        (lambda study: study["trials"][0]["params"].update(torso=WORDS), "`torso` of a trial must be one of"),
        (lambda study: study["trials"][0].update(state="done"), "must be one of complete, pruned, failed"),
        (lambda study: study["trials"][0].update(value=None), "a finite number, got None"),
        (lambda study: study["trials"][0].update(value="1"), "a finite number, got '1'"),
        (lambda study: study["trials"][0].update(values=[[50, math.inf]]), "a finite number, got inf"),
        (lambda study: study["trials"][0].update(values=[["50", 1.0]]), "a whole number >= 0, got '50'"),
        (lambda study: study["trials"][0].update(values=5), "not iterable"),
        (lambda study: study.update(trials={"a": 1}), "string indices"),
        (lambda study: study.update(search=5), "not iterable"),
        (lambda study: study.update(format=2), "its format must be 1, got 2"),
        (lambda study: study.pop("trials"), "'trials' is missing"),
    ],
)
def test_a_study_with_other_values_is_refused_in_one_line(
    tmp_path: pathlib.Path, change: Callable[[Any], object], message: str
) -> None:
    study = open_study(tmp_path)
    finish(study, study.next_trials(1)[0])
    study.next_trials(1)
    path = tmp_path / "study.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError) as caught:
        open_study(tmp_path)
    said = str(caught.value)
    assert said.startswith(f"{path} must hold the trials of this search, but cannot be read as such: ")
    assert message in said and said.endswith("not repeated.") and "\n" not in said


def test_a_damaged_study_or_something_in_its_place_is_refused_in_one_line(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "study.json"
    for content in (b"", b"{", b"SQLite format 3\0", b"[" * 100_000, b"[1]", b"\xff"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="must hold the trials of this search"):
            open_study(tmp_path)
        assert path.read_bytes() == content
    path.unlink()
    path.mkdir()
    with pytest.raises(ValueError, match="Is a directory"):
        open_study(tmp_path)
    path.rmdir()
    os.mkfifo(path)
    with pytest.raises(ValueError, match="not a regular file"):
        open_study(tmp_path)


def test_a_value_that_is_not_finite_is_not_stored(tmp_path: pathlib.Path) -> None:
    study = open_study(tmp_path)
    (trial,) = study.next_trials(1)
    study.add(trial, "pruned", math.nan, {10: 1.0, 25: math.nan, 50: math.inf})
    assert study.finished == open_study(tmp_path).finished
    assert (study.finished[0].value, study.finished[0].values) == (None, {10: 1.0})
