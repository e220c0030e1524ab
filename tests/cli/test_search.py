"""`minerva sweep --optuna`: trials are run, pruned, stored and continued."""

import contextlib
import csv
import json
import pathlib
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from minerva_acme.cli import main, parsing, processes, search, search_space, sweep, sweep_plan
from minerva_acme.constraints import Range
from minerva_acme.runs import run_lock

pytest.importorskip("optuna")
from minerva_acme.cli import study as studies

SEARCH = (
    "sweep ppo --env CartPole-v1 --num-env-steps 16 --rollout-steps 16 --minibatch-size 4 --num-envs 1 "
    "--policy-layer-sizes 4 --value-layer-sizes 4 --log csv --replay memory --evaluation-episodes 1 "
    "--evaluation-period 16 --torso tanh --search learning-rate num-epochs=1..2"
)


def _pretend(job: processes.Job) -> int:
    """Stands for a training: leaves an evaluation of its own in the folder."""
    value = zlib.crc32("/".join(job.log.parts[-5:]).encode()) % 1000
    (job.log.parent / "evaluator.csv").write_text(f"actor_steps,episode_return\n16,{value}\n")
    return 0


class Runner:
    """Stands for `processes.run_all`: does jobs in this process, one after the other."""

    def __init__(self) -> None:
        self.do: Callable[[processes.Job], int] = _pretend
        self.started: list[str] = []  # the folders of the runs
        self.stop_after: int | None = None  # a number of runs, after which a signal comes
        self.fail = ""  # what fails: a part of the folder

    def __call__(
        self, jobs: Any, *, at_once: int, watcher: Any, start: Any, unwanted: set[int]
    ) -> str | None:
        for index, job in enumerate(jobs):
            if len(self.started) == self.stop_after:
                return "SIGTERM"
            if index in unwanted:
                continue
            self.started.append("/".join(job.log.parts[-5:-1]))
            watcher.started(index)
            job.log.parent.mkdir(parents=True, exist_ok=True)
            with open(job.log, "a") as log, contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
                if self.fail and self.fail in str(job.log):
                    print("out of luck")
                    status = 1
                else:
                    status = self.do(job)
            watcher.tick()
            watcher.ended(index, status)
        return None

    @property
    def trials(self) -> list[str]:
        return [f"{folder.split('/')[0]} {folder.split('/')[-1]}" for folder in self.started]


def last_returns(folder: pathlib.Path) -> list[float]:
    """The last evaluation of each run in a folder."""
    paths = sorted(folder.glob("**/evaluator.csv"))
    return [
        float(list(csv.DictReader(path.read_text().splitlines()))[-1]["episode_return"]) for path in paths
    ]


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> Runner:
    """Trains."""
    made = Runner()
    made.do = lambda job: main(job.words)
    monkeypatch.setattr(processes, "run_all", made)
    return made


@pytest.fixture
def runner(training: Runner, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """Pretends to train: what a run leaves is read by its evaluation alone."""
    training.do = _pretend
    is_done = lambda run: (run.directory / "evaluator.csv").exists()  # noqa: E731
    monkeypatch.setattr(sweep, "find_state", lambda run: sweep.State(16 * is_done(run), is_done(run)))
    monkeypatch.setattr(search, "_last_mean", lambda directory: last_returns(directory)[0])
    return training


def table(out: str) -> dict[int, float]:
    """The returns of the trials as printed when each ended."""
    return {int(n): float(value) for n, value in re.findall(r"trial (\d+) is complete: (-?[\d.]+),", out)}


@pytest.mark.promise("A search for settings")
def test_a_search_runs_its_trials_shows_the_best_and_goes_on(
    tmp_path: pathlib.Path, call: Any, training: Runner
) -> None:
    # Evaluated twice in training.
    words = SEARCH.replace("--num-env-steps 16", "--num-env-steps 32").split()
    base = [*words, "--directory", str(tmp_path), "--seeds", "0", "1"]
    status, out, err = call(*base, "--optuna", "2")
    assert status == 0, err
    assert training.trials == [f"trial{n:04d} seed{seed}" for n in range(2) for seed in range(2)]
    assert "2 trials: 2 complete, 0 pruned, 0 failed" in out
    values = table(out)
    assert len(values) == 2
    # The best one's command trains with its settings and a seed that the search has not seen.
    command = re.search(r"a new seed: minerva (train .*) --seed 2", out)
    assert command is not None
    train = parsing.parse(command[1].split())
    best = max(values, key=lambda number: values[number])
    (run, _) = sorted(tmp_path.glob(f"trial{best:04d}/**/run.json"))
    there = json.loads(run.read_text())["hyperparameters"]
    assert there["learning_rate"] == train.hyperparameters.learning_rate
    assert there["torso"] == "tanh" and there["num_epochs"] in (1, 2)
    # The objective is the mean over seeds of the last evaluation.
    last = last_returns(tmp_path / f"trial{best:04d}")
    assert len(last) == 2 and values[best] == pytest.approx(sum(last) / 2, abs=0.051)

    status, again, _ = call(*base, "--optuna", "2")
    assert status == 0 and len(training.started) == 4 and "2 trials: 2 complete" in again
    status, more, _ = call(*base, "--optuna", "3")
    assert status == 0 and training.trials[4:] == ["trial0002 seed0", "trial0002 seed1"]
    assert "3 trials: 3 complete" in more

    base[base.index("32")] = "64"
    status, _, err = call(*base, "--optuna", "3", "--discount", "0.9")
    assert status == 2 and len(training.started) == 6
    assert "holds another search: discount is 0.99 there, 0.9 here; num_env_steps is 32 there, 64 here" in err


def test_a_search_in_another_environment_or_with_other_data_is_another_search(
    tmp_path: pathlib.Path, call: Any, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    base = [*SEARCH.split(), "--optuna", "1"]
    assert call(*base, "--directory", "here")[0] == 0
    other = [word if word != "memory" else "auto" for word in base]
    status, _, err = call(*other, "--directory", "here", "--env-kwargs", "sutton_barto_reward=true")
    assert status == 2 and len(runner.started) == 1
    assert "env_kwargs is {} there, {'sutton_barto_reward': True} here" in err
    assert "replay is 'memory' there, 'auto' here" in err
    # By default each has a folder of its own.
    for words in ([], ["--env-kwargs", "sutton_barto_reward=true"]):
        assert call(*base, *words)[0] == 0
    names = [path.name for path in sorted(pathlib.Path("runs/sweeps").iterdir())]
    assert names == ["ppo-CartPole-v1+sutton_barto_reward=true-optuna", "ppo-CartPole-v1-optuna"]
    assert len(runner.started) == 3


def test_a_stopped_search_continues_its_trials(tmp_path: pathlib.Path, call: Any, runner: Runner) -> None:
    base = [*SEARCH.split(), "--seeds", "0", "1", "--jobs", "4", "--optuna", "3"]
    status, whole, _ = call(*base, "--directory", tmp_path / "whole")
    assert status == 0
    runner.started.clear()
    runner.stop_after = 3
    status, out, _ = call(*base, "--directory", tmp_path / "stopped")
    assert status == 0 and "Stopped by SIGTERM. To continue, repeat the same command." in out
    assert table(out) == {}  # two trials run at once: both wait for the fourth run
    runner.stop_after = None
    status, out, _ = call(*base, "--directory", tmp_path / "stopped")
    assert status == 0 and runner.trials[3:] == ["trial0001 seed1", "trial0002 seed0", "trial0002 seed1"]
    assert table(out) == table(whole) and len(table(out)) == 3
    assert (
        out[out.index("3 trials:") : out.index("To train")]
        == whole[whole.index("3 trials:") : whole.index("To train")]
    )


def test_a_pruned_trial_is_not_run_further_and_counts_as_done(
    tmp_path: pathlib.Path, call: Any, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def should_prune(study: studies.Study, trial: studies.Trial, values: dict[int, float]) -> bool:
        return trial.number == 1 and len(values) == 1

    monkeypatch.setattr(studies.Study, "should_prune", should_prune)
    base = [*SEARCH.split(), "--directory", str(tmp_path), "--seeds", "0", "1", "--optuna", "3"]
    status, out, _ = call(*base)
    assert status == 0
    assert runner.trials == [
        *("trial0000 seed0", "trial0000 seed1", "trial0001 seed0"),
        *("trial0002 seed0", "trial0002 seed1"),
    ]
    assert "trial 1 is pruned: " in out and "3 trials: 2 complete, 1 pruned, 0 failed" in out
    assert call(*base)[0] == 0 and len(runner.started) == 5
    status, out, _ = call(*[word for word in base if word != str(tmp_path)], tmp_path / "all", "--no-prune")
    assert status == 2  # the folder's flag has lost its value
    base[base.index(str(tmp_path))] = str(tmp_path / "all")
    base[base.index("3")] = "2"
    status, out, _ = call(*base, "--no-prune")
    assert status == 0 and "2 trials: 2 complete, 0 pruned" in out


def test_a_failed_trial_is_told_and_the_search_goes_on(
    tmp_path: pathlib.Path, call: Any, runner: Runner
) -> None:
    base = [*SEARCH.split(), "--directory", str(tmp_path), "--seeds", "0", "1", "--optuna", "2"]
    runner.fail = "trial0000"
    status, out, _ = call(*base)
    assert status == 0 and runner.trials == ["trial0000 seed0", "trial0001 seed0", "trial0001 seed1"]
    assert "trial 0 is failed: trial 0, seed 0 failed with status 1: out of luck (" in out
    assert "train.log" in out and "2 trials: 1 complete, 0 pruned, 1 failed" in out
    runner.fail = "trial"
    base[base.index(str(tmp_path))] = str(tmp_path / "none")
    status, out, _ = call(*base)
    assert status == 1 and "2 trials: 0 complete, 0 pruned, 2 failed" in out and "trial*/**/train.log" in out


def test_a_run_in_use_does_not_fail_its_trial(
    tmp_path: pathlib.Path, call: Any, training: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_all(jobs: Any, **settings: Any) -> str | None:
        with run_lock.hold(jobs[0].log.parent):
            return training(jobs, **settings)

    monkeypatch.setattr(sweep, "_SAVING_SECONDS", 0.0)
    base = [*SEARCH.split(), "--directory", str(tmp_path), "--optuna", "1"]
    with monkeypatch.context() as patch:
        patch.setattr(processes, "run_all", run_all)
        status, out, _ = call(*base)
    assert status == 1 and "it is in use by process" in out
    assert "Trial 0 was stopped. To continue, repeat the same command." in out
    status, out, _ = call(*base)
    assert status == 0 and "1 trials: 1 complete, 0 pruned, 0 failed" in out


@pytest.mark.promise("A search or sweep that is killed is continued by the same command")
def test_a_killed_search_continues_its_trial_once_the_run_it_left_has_saved(
    tmp_path: pathlib.Path, call: Any, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        """Nothing of the search goes on."""

    left: list[processes.Job] = []

    def run_all(jobs: Any, **_: Any) -> None:
        left.extend(jobs)
        raise Killed

    base = [*SEARCH.split(), "--directory", str(tmp_path), "--optuna", "1"]
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(processes, "run_all", run_all)
        call(*base)
    (job,) = left
    runner.do = lambda again: _pretend(again) if again == job else 1  # with the same settings
    with contextlib.ExitStack() as saving:
        saving.enter_context(run_lock.hold(job.log.parent))  # by its process, which the kill interrupted
        monkeypatch.setattr(sweep.time, "sleep", lambda seconds: saving.close())
        status, out, _ = call(*base)
    assert status == 0 and "seed 0 is in use; waiting up to 60 seconds" in out
    assert "1 trials: 1 complete, 0 pruned, 0 failed" in out and len(runner.started) == 1


def test_values_that_are_invalid_together_fail_alone(
    tmp_path: pathlib.Path, call: Any, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan_trial(command: Any, space: Any, number: int, params: Any) -> Any:
        if number == 1:
            raise ValueError("these do not go together")
        return plan(command, space, number, params)

    plan = search_space.plan_trial
    monkeypatch.setattr(search_space, "plan_trial", plan_trial)
    status, out, _ = call(*SEARCH.split(), "--directory", tmp_path, "--optuna", "2")
    assert status == 0 and "trial 1 is failed: these do not go together" in out
    assert runner.trials == ["trial0000 seed0"]


MISTAKES = [
    ("--optuna 0", "`optuna` must be >= 1 trial, got 0"),
    ("--optuna 2 --env CartPole-v1 Acrobot-v1", "`env` must be one environment with --optuna, got 2"),
    ("--optuna 2 --jobs 0", "`jobs` must be >= 1, got 0"),
    ("--optuna 2 --stop-after-minutes 3", "`stop_after_minutes` must not be given with --optuna"),
    ("--optuna 2 --env NoSuch-v0", "Nothing is trained, .* NoSuch-v0: `environment_id` must be"),
    ("--optuna 2 --search discount=0.9..1.5", r"`discount` must be in \[0, 1\], got 1.5"),
    ("--optuna 2 --seeds 0 0", "got the same run twice"),
    ("", "`search` is only for a search of settings. Add its number of trials: --optuna 30"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_a_mistake_is_told_before_anything_is_trained(
    tmp_path: pathlib.Path, call: Any, runner: Runner, arguments: str, message: str
) -> None:
    status, _, err = call(*SEARCH.split(), "--directory", tmp_path / "new", *arguments.split())
    assert status == 2 and re.search(message, err), err
    assert runner.started == [] and not (tmp_path / "new").exists()


def test_a_dry_run_shows_what_is_searched_and_writes_nothing(
    tmp_path: pathlib.Path, call: Any, runner: Runner
) -> None:
    status, out, _ = call(*SEARCH.split(), "--directory", tmp_path / "new", "--optuna", "2", "--dry-run")
    assert status == 0 and not (tmp_path / "new").exists()
    assert "learning_rate 1e-05..0.003:log" in out and "num_epochs 1..2" in out
    assert "2 trials of 1 runs each" in out and "Each trial: minerva train ppo --env CartPole-v1" in out


def test_without_optuna_one_sentence_says_how_to_install_it(
    tmp_path: pathlib.Path, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from minerva_acme import cli

    monkeypatch.delitem(sys.modules, "minerva_acme.cli.study")
    monkeypatch.delattr(cli, "study", raising=False)
    monkeypatch.setitem(sys.modules, "optuna", None)
    status, _, err = call(*SEARCH.split(), "--directory", tmp_path / "new", "--optuna", "2")
    assert status == 2
    assert err.endswith(
        "`minerva sweep --optuna` needs 'optuna', which is not installed: pip install 'minerva-acme[optuna]'"
    )


# The values of a trial, by which it is pruned.


@pytest.fixture
def write_runs(tmp_path: pathlib.Path) -> Iterator[Callable[..., tuple[sweep_plan.PlannedRun, ...]]]:
    def write(*texts: str) -> tuple[sweep_plan.PlannedRun, ...]:
        words = SEARCH.replace("--num-env-steps 16", "--num-env-steps 100").replace(
            "-period 16", "-period 40"
        )
        words += f" --directory {tmp_path} --optuna 1"
        command = parsing.parse([*words.split(), "--seeds", *map(str, range(len(texts)))])
        discount = search_space.Dimension(Range(0.9, 0.99))
        space = search_space.Space({"discount": discount}, command.settings)
        runs = search_space.plan_trial(command, space, 0, {"discount": 0.95})
        for run, text in zip(runs, texts, strict=True):
            run.directory.mkdir(parents=True)
            rows = [row.split(":") for row in text.split()]
            lines = ["actor_steps,episode_return", *(f"{step},{value}" for step, value in rows)]
            (run.directory / "evaluator.csv").write_text("\n".join([*lines, ""]))
        return runs

    yield write


def test_seeds_count_one_after_another_with_the_mean_of_those_before(write_runs: Any) -> None:
    runs = write_runs("0:1 40:2 80:4 100:6", "0:1 41:10 80:20")
    assert search.read_values(runs) == {40: 2.0, 80: 4.0, 100: 6.0, 140: 8.0, 180: 13.0}


def test_a_seed_that_is_ahead_waits_for_the_one_before(write_runs: Any) -> None:
    assert search.read_values(write_runs("0:1 40:2", "0:1 40:10 80:20 100:30")) == {40: 2.0}


def test_the_last_evaluation_counts_at_the_number_of_steps(write_runs: Any) -> None:
    assert search.read_values(write_runs("47:2 103:4")) == {40: 2.0, 100: 4.0}


def test_a_run_that_has_not_begun_has_no_values(write_runs: Any) -> None:
    (run,) = write_runs("40:2")
    (run.directory / "evaluator.csv").unlink()
    assert search.read_values([run]) == {}
