"""The trials of a search: chosen by the seed, pruned, and the same after the process was killed."""

import math
import pathlib
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
        "torso": search_space.Dimension(None, choices=("--torso tanh", "--torso relu")),
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
        folder / "study.db",
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


def test_a_study_of_an_older_version_goes_on_and_is_then_known_by_what_it_did_not_store(
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
