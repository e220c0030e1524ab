"""A sweep's environments, agents and settings are checked before the first run."""

import pathlib
from typing import Any

import pytest

from minerva_acme.cli import parsing, processes, sweep_checks, sweep_plan
from minerva_acme.environments import factories


def plan(text: str) -> tuple[sweep_plan.PlannedRun, ...]:
    return sweep_plan.make_plan(parsing.parse(["sweep", *text.split()]))


def test_all_that_is_not_possible_is_told_at_once_and_nothing_is_trained(
    tmp_path: pathlib.Path, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_all(*arguments: Any, **settings: Any) -> None:
        raise AssertionError("a run was started")

    monkeypatch.setattr(processes, "run_all", run_all)
    words = "sweep sac --env NoSuch-v0 Pendulum-v1 CartPole-v1 --num-env-steps 9 --no-report"
    status, _, err = call(*words.split(), "--directory", tmp_path / "new", "--seeds", "0", "1")
    assert status == 2
    assert "Nothing is trained, since some runs are not possible." in err
    assert err.count("NoSuch-v0: `environment_id` must be") == 1  # not for each seed
    assert err.count("CartPole-v1, seed 0: ") == 1 and "Pendulum-v1, seed" not in err
    assert not (tmp_path / "new").exists()


def test_each_setting_is_checked_with_each_environment() -> None:
    runs = plan("dqn --env CartPole-v1 Pendulum-v1 --num-env-steps 9 --replay memory --discount 0.9 0.99")
    with pytest.raises(ValueError) as caught:
        sweep_checks.check(runs)
    lines = str(caught.value).splitlines()[1:]
    assert [line.partition(":")[0] for line in lines] == [
        "discount=0.9, Pendulum-v1, seed 0",
        "discount=0.99, Pendulum-v1, seed 0",
    ]


def test_a_store_that_cannot_sample_as_asked_is_told() -> None:
    runs = plan("dqn --env CartPole-v1 --num-env-steps 9 --replay reverb --replay-fading 0.999")
    with pytest.raises(ValueError, match=r"CartPole-v1, seed 0: .*memory"):
        sweep_checks.check(runs)


def test_whatever_an_environment_raises_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, seed: int) -> None:
        raise OSError("no licence")

    monkeypatch.setattr(factories, "make_for_run", fail)
    with pytest.raises(ValueError, match="CartPole-v1: OSError: no licence"):
        sweep_checks.check(plan("ppo --env CartPole-v1 --num-env-steps 9"))


def test_an_environment_is_made_once_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    made, closed = [], []

    def make(name: str, seed: int) -> Any:
        environment = make_for_run(name, seed)
        monkeypatch.setattr(environment, "close", lambda: closed.append(name))
        made.append(name)
        return environment

    make_for_run = factories.make_for_run
    monkeypatch.setattr(factories, "make_for_run", make)
    sweep_checks.check(
        plan("ppo --env CartPole-v1 Pendulum-v1 --num-env-steps 9 --seeds 0 1 --discount 0.9 0.8")
    )
    assert made == closed == ["CartPole-v1", "Pendulum-v1"]


def test_several_runs_cannot_record_into_one_folder() -> None:
    sweep_checks.check(plan("ppo --env CartPole-v1 --num-env-steps 9 --record data"))
    with pytest.raises(ValueError, match="another folder for each run of a sweep, got data for several"):
        sweep_checks.check(plan("ppo --env CartPole-v1 --num-env-steps 9 --record data --seeds 0 1"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("bc --num-learner-steps 9 --dataset DATA NONE", "NONE must be a folder of recorded episodes"),
        ("bc --num-learner-steps 9 --env CartPole-v1 --dataset DATA", "CartPole-v1, seed 0: .*`observation`"),
        ("td3 --num-env-steps 9 --demonstrations NONE", "NONE must be a folder of recorded episodes"),
        ("ppo --num-env-steps 9 --demonstrations DATA", "Demonstrations need an agent that replays items"),
        ("td3 --num-env-steps 9 --from NONE", "NONE must be a run's folder"),
    ],
)
def test_data_and_weights_that_cannot_be_used_are_told(
    tmp_path: pathlib.Path, call: Any, trained: pathlib.Path, words: str, message: str
) -> None:
    data = tmp_path / "data"
    assert call("dataset", trained, "--output", data, "--episodes", 1)[0] == 0
    if "--env" not in words:
        words += " --env Pendulum-v1"
    words = words.replace("DATA", str(data)).replace("NONE", str(tmp_path / "none"))
    with pytest.raises(ValueError, match=message.replace("NONE", str(tmp_path / "none"))) as caught:
        sweep_checks.check(plan(words))
    assert len(str(caught.value).splitlines()) == 2  # of one run
