import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from rich.console import Console

from minerva_acme import results
from minerva_acme.cli import main, parsing, processes, sweep, sweep_plan
from minerva_acme.distributed import jobs as distributed_jobs
from minerva_acme.machine import threads
from minerva_acme.runs import checkpointing, run_lock
from tests.distributed import killing

TINY = (
    "--rollout-steps 16 --minibatch-size 4 --num-epochs 1 --num-envs 1 --policy-layer-sizes 4 "
    "--value-layer-sizes 4 --log csv --replay memory --evaluation-episodes 1 --evaluation-period 0"
)


def plan(text):
    return sweep_plan.make_plan(parsing.parse(["sweep", *text.split()]))


def test_a_plan_is_the_product_of_settings_environments_and_seeds():
    runs = plan(
        "mpo --env dm_control/cartpole/swingup Pendulum-v1 --seeds 3 4 --preset control --num-env-steps 9 "
        "--discount 0.9 0.99 --critic-target=retrace --policy-layer-sizes 64,32 8 --jobs 2 --directory here"
    )
    assert len(runs) == len({run.directory for run in runs}) == len({run.title for run in runs}) == 16
    sizes = [run.train.hyperparameters.policy_layer_sizes for run in runs]
    assert sizes == ([(64, 32)] * 4 + [(8,)] * 4) * 2
    assert [run.train.run.seed for run in runs] == [3, 4] * 8
    assert [run.train.hyperparameters.discount for run in runs] == [0.9] * 8 + [0.99] * 8
    first = runs[0]
    assert first.experiment == "mpo_control+discount=0.9+policy_layer_sizes=64-32"  # it has retrace itself
    assert runs[-1].experiment == "mpo_control+policy_layer_sizes=8"
    assert first.directory.parts == ("here", first.experiment, "dm_control-cartpole-swingup", "seed3")
    assert first.title == "discount=0.9, policy_layer_sizes=64-32, dm_control/cartpole/swingup, seed 3"
    # Its words alone give the same run.
    parsed = parsing.parse(first.words)
    assert vars(parsed) == vars(first.train) and parsed.run.num_env_steps == 9


def test_more_values_environments_and_seeds_leave_the_folders_of_before():
    few = plan("ppo --env CartPole-v1 --num-env-steps 9 --discount 0.9")
    many = plan(
        "ppo --env Acrobot-v1 CartPole-v1 --seeds 1 0 --num-env-steps 99 --discount 0.5 0.9 --log csv"
    )
    assert {run.directory for run in few} < {run.directory for run in many}


def test_switches_presets_and_options_of_the_run_can_be_swept_too():
    runs = plan(
        "ppo --env Pendulum-v1 --preset default control --num-env-steps 100 200 --squash-actions "
        "--no-squash-actions --replay memory"
    )
    assert len(runs) == 8
    assert runs[0].experiment == "ppo_default+num_env_steps=100+squash_actions=true"
    assert runs[-1].experiment == "ppo_control+num_env_steps=200"  # whose actions are not squashed
    assert [run.train.hyperparameters.squash_actions for run in runs] == [True, False] * 4
    assert plan("ppo --env Pendulum-v1 --preset control --num-env-steps 9")[0].experiment == "ppo_control"
    by_task = plan("ppo --env CartPole-v1 Hopper-v5 --preset task")
    assert {run.experiment for run in by_task} == {"ppo_task"}
    assert by_task[0].train.run.num_env_steps != by_task[1].train.run.num_env_steps


def test_a_setting_is_named_by_what_differs_from_its_preset_however_it_was_given(tmp_path):
    (tmp_path / "settings.toml").write_text("clip_ratio = 0.3\ndiscount = 0.99")
    base = "ppo --env CartPole-v1 --num-env-steps 9"
    (run,) = plan(f"{base} --config {tmp_path}/settings.toml")
    assert run.experiment == "ppo_default+clip_ratio=0.3"
    (same,) = plan(f"{base} --clip-ratio 0.30 --log csv --evaluation-period 3")
    assert same.directory == run.directory
    (other,) = plan(f"{base} --discount 0.990")
    assert other.experiment == "ppo_default"


def test_names_that_are_long_or_no_folders_are_cut_and_still_differ():
    sizes = ",".join(["111"] * 30)
    runs = plan(f"ppo --env gymnasium/CartPole-v1 --num-env-steps 9 --value-layer-sizes {sizes},1 {sizes},2")
    names = [run.experiment for run in runs]
    assert len(set(names)) == 2 and max(map(len, names)) < 121
    assert all(results.check_name(name) for name in names)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "--discount 0.9 0.90",
            r"The runs of a sweep must all differ, got .* twice: .*0\.9 .* and .*0\.90 .*Leave one",
        ),
        ("--seeds 1 1", "got the same run twice"),
        ("--env CartPole-v1 gymnasium/CartPole-v1", "got the same run twice"),
        ("--seeds 0 -1", "`seeds` must be >= 0, got -1"),
        ("--seed 1", "`minerva sweep ppo` has no flag --seed. Did you mean '--seeds'"),
        ("--discont 0.9", "`minerva sweep ppo` has no flag --discont. Did you mean '--discount'"),
        ("--discount high", "`--discount` must be a number, got 'high'"),
        ("--discount 0.9 9", r"`discount` must be in \[0, 1\], got 9.0"),
        ("--discount --jobs 2", "`--discount` must have one or more values to try, got none"),
        ("--jobs 0", "`jobs` must be >= 1, got 0"),
        ("--address auto", "`address` is only for a sweep on Ray. Add --distributed ray"),
        ("--distributed inline", "`--distributed` must be one of ray, got 'inline'"),
        ("--num-actors 2", "`minerva sweep ppo` has no flag --num-actors"),
        ("", "The range of returns of CartPole-v1 must be known, .* --range CartPole-v1=LOWEST:HIGHEST"),
        ("--range CartPole-v1=0:1 --against nonsense", "`against` must be among .* or none, got 'nonsense'"),
        ("--range CartPole-v1=1", "`range` must be ENVIRONMENT=LOWEST:HIGHEST"),
    ],
)
def test_a_mistake_is_told_before_anything_is_trained(tmp_path, call, arguments, message):
    directory = tmp_path / "sweep"
    base = f"sweep ppo --env CartPole-v1 --num-env-steps 9 --directory {directory}"
    status, _, err = call(*base.split(), *arguments.split())
    assert status == 2 and re.search(message, err)
    assert not directory.exists()


def test_a_dry_run_shows_runs_and_commands_and_writes_nothing(tmp_path, call):
    directory = tmp_path / "sweep"
    status, out, _ = call(
        *f"sweep ppo --env CartPole-v1 --seeds 0 1 --num-env-steps 9 --directory {directory}".split(),
        *("--dry-run", "--no-report"),
    )
    assert status == 0 and f"2 runs in {directory}, 0 of them done, 1 at a time" in out
    assert out.count("minerva train ppo --env CartPole-v1 --num-env-steps 9 --seed") == 2
    assert not directory.exists()


@pytest.fixture
def started(monkeypatch):
    """Runs jobs in this process, one after the other; gives the words of those of each sweep."""
    words = []

    def run_all(jobs, *, at_once, watcher, start):
        words.append([job.words for job in jobs])
        for index, job in enumerate(jobs):
            watcher.started(index)
            job.log.parent.mkdir(parents=True, exist_ok=True)
            with open(job.log, "a") as log, contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
                status = main(job.words)
            watcher.tick()
            watcher.ended(index, status)

    monkeypatch.setattr(processes, "run_all", run_all)
    return words


def test_a_sweep_trains_reports_goes_on_and_skips_what_is_done(
    tmp_path, call, started, monkeypatch, unpainted
):
    unpainted()
    base = f"sweep ppo --env CartPole-v1 --discount 0.9 0.99 --directory {tmp_path} {TINY}"
    base += " --range CartPole-v1=0:500 --jobs 2"
    status, out, err = call(*base.split(), "--num-env-steps", "32")
    assert status == 0, out + err
    assert len(started[-1]) == 2 and "0 of them done" in out
    assert "Scores on 1 environment" in out and "Probability of" not in out  # of a single seed each
    assert (tmp_path / "report" / "index.html").exists()
    (found,) = results.read(next((tmp_path / "results").glob("*discount=0.9+*.csv")))
    assert found.trainings == [("CartPole-v1", 0)]

    (run,) = tmp_path.glob("*discount=0.9+*/CartPole-v1/seed0")
    assert "after 32 environment" in (run / "train.log").read_text()
    status, out, _ = call(*base.split(), "--num-env-steps", "32")
    assert status == 0 and started[-1] == [] and "2 of them done" in out
    with monkeypatch.context() as patch:  # a checkpoint amid the last evaluation is not the end
        patch.setattr(checkpointing, "is_light", lambda checkpoint: True)
        assert "0 of them done" in call(*base.split(), "--num-env-steps", "32", "--dry-run")[1]

    # Another run in its place is refused. And one whose checkpoint is behind goes on.
    content = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**content, "seed": 7}))
    status, _, err = call(*base.split(), "--num-env-steps", "32")
    assert status == 2 and "holds another run: seed is 7 there, 0 here" in err
    (run / "run.json").write_text(json.dumps(content))
    status, out, _ = call(*base.split(), "--num-env-steps", "48", "--dry-run")
    assert status == 0 and re.search(r"48\s+32", out) and "0 of them done" in out


def test_a_failed_run_leaves_the_others_alone_and_is_told_with_its_log(tmp_path, call, started):
    base = (
        f"sweep ppo --env Acrobot-v1 CartPole-v1 --num-env-steps 16 --directory {tmp_path} {TINY} --no-report"
    )
    run = plan(base.removeprefix("sweep "))[0]
    run.directory.mkdir(parents=True)
    (run.directory / "checkpoints").write_text("in the way")
    status, out, _ = call(*base.split())
    assert status == 1
    assert "1 of 2 runs are not done. To retry, repeat the same command." in out
    assert str(run.directory / "train.log") in out
    assert "failed with status 1: minerva: Cannot write checkpoints to" in out
    assert "1 runs read, 1 now in" in out


def test_without_evaluations_nothing_is_reported(tmp_path, call, started):
    words = f"sweep ppo --env CartPole-v1 --num-env-steps 16 --directory {tmp_path} {TINY}"
    words = words.replace("--evaluation-episodes 1", "--evaluation-episodes 0")
    status, out, err = call(*words.split())
    assert status == 0, err
    assert "There is nothing to report: no run that is done has evaluations." in out
    assert not (tmp_path / "results").exists()
    status, _, err = call("collect", tmp_path)
    assert status == 2 and "has no evaluation after its first step yet. Wait for it" in err


def test_a_report_is_of_the_environments_of_the_sweep(tmp_path, call, started, unpainted):
    unpainted()
    base = f"sweep ppo --num-env-steps 16 --directory {tmp_path} {TINY}".split()
    assert call(*base, "--env", "CartPole-v1", "--range", "CartPole-v1=0:500")[0] == 0
    # The rows of both are in one file; the range of the first is not known here.
    status, out, err = call(*base, "--env", "Acrobot-v1", "--range", "Acrobot-v1=-500:0")
    assert status == 0 and "1 runs read, 2 now in" in out, err
    (rows,) = (tmp_path / "report" / "rows").glob("*.csv")
    assert "CartPole-v1" not in rows.read_text()


def test_failed_runs_are_told_also_if_there_can_be_no_report(tmp_path, call, started):
    base = f"--env CartPole-v1 --seeds 0 1 --num-env-steps 16 --directory {tmp_path} {TINY}"
    base += " --range CartPole-v1=0:500"
    run = plan(f"ppo {base}")[0]
    run.directory.mkdir(parents=True)
    (run.directory / "checkpoints").write_text("in the way")
    (tmp_path / "report").write_text("in the way")
    status, out, err = call("sweep", "ppo", *base.split())
    assert status == 1 and "report" in err
    assert "failed with status 1: minerva: Cannot write checkpoints to" in out
    assert "1 of 2 runs are not done. To retry, repeat the same command." in out


def test_a_run_that_is_still_being_saved_is_waited_for(tmp_path, call, started, monkeypatch):
    words = f"ppo --env CartPole-v1 --num-env-steps 16 --directory {tmp_path} {TINY} --no-report"
    (run,) = plan(words)
    with contextlib.ExitStack() as saving:
        saving.enter_context(run_lock.hold(run.directory))
        monkeypatch.setattr(sweep.time, "sleep", lambda seconds: saving.close())
        status, out, _ = call("sweep", *words.split())
    assert status == 0 and "CartPole-v1, seed 0 is in use; waiting up to 60 seconds for it to end" in out


def test_a_run_that_another_process_goes_on_with_fails_alone(tmp_path, call, started, monkeypatch):
    monkeypatch.setattr(sweep, "_SAVING_SECONDS", 0.0)
    words = f"ppo --env CartPole-v1 --seeds 0 1 --num-env-steps 16 --directory {tmp_path} {TINY} --no-report"
    with run_lock.hold(plan(words)[1].directory):
        status, out, _ = call("sweep", *words.split())
    assert status == 1 and "1 of 2 runs are not done" in out and "it is in use by process" in out


def test_a_terminal_shows_where_each_run_stands_by_the_last_line_of_its_log(tmp_path):
    runs = plan(f"ppo --env CartPole-v1 --seeds 0 1 --num-env-steps 9 --directory {tmp_path}")
    for run in runs:
        run.directory.mkdir(parents=True)
        (run.directory / "train.log").write_text(f"begun\n   5/9 steps [of {run.train.run.seed}]\n\n")
    text = io.StringIO()
    with sweep.Display(runs, Console(file=text, force_terminal=True, width=80, highlight=False)) as display:
        display.started(0)
        display.started(1)
        display.tick()
        display.ended(1, 2)
        display.ended(0, 0)
    shown = text.getvalue()
    assert "CartPole-v1, seed 0  5/9 steps [of 0]" in shown and "seed 1  5/9 steps [of 1]" in shown
    assert "2/2  CartPole-v1, seed 1: ended with status 2 after 0:00:00" in shown
    assert "1/2  CartPole-v1, seed 0: ended after 0:00:00" in shown
    assert display.statuses == {1: 2, 0: 0}


def test_a_stopped_sweep_says_which_runs_have_not_saved(tmp_path, call, monkeypatch):
    def stop(jobs, *, at_once, watcher, start):
        for index, status in enumerate([0, 130]):  # the third has not begun
            watcher.started(index)
            watcher.ended(index, status)
        return "SIGTERM"

    monkeypatch.setattr(processes, "run_all", stop)
    base = f"sweep ppo --env CartPole-v1 --seeds 0 1 2 --num-env-steps 9 --directory {tmp_path} --no-report"
    status, out, _ = call(*base.split())
    assert status == 130 and "Stopped by SIGTERM; 0 of 3 runs are done." in out
    assert out.count("without saving") == 1 and "CartPole-v1, seed 1 ended without saving" in out


class Tape:
    """A watcher that notes what it is told, and what ran at once."""

    def __init__(self, on_start=lambda: None):
        self.told, self.running, self.most = [], set(), 0
        self._on_start = on_start

    def started(self, index):
        self.running.add(index)
        self.most = max(self.most, len(self.running))
        self._on_start()

    def ended(self, index, status):
        self.running.remove(index)
        self.told.append((index, status))

    def tick(self):
        pass


def make_jobs(tmp_path, monkeypatch, code, number):
    monkeypatch.setattr(distributed_jobs, "_OPTIONS", ("-S",))
    monkeypatch.setattr(processes, "_CODE", code)
    return [processes.Job((str(index),), tmp_path / str(index) / "log") for index in range(number)]


@pytest.mark.promise("Several runs at once")
def test_processes_run_some_at_a_time_and_a_failure_stops_no_other(tmp_path, monkeypatch):
    code = "import sys; print('run', sys.argv[1]); sys.exit(sys.argv[1] == '1')"
    jobs = make_jobs(tmp_path, monkeypatch, code, 4)
    tape = Tape()
    for _ in range(2):  # the log is added to
        assert processes.run_all(jobs, at_once=2, watcher=tape) is None
    assert sorted(tape.told) == [(0, 0), (0, 0), (1, 1), (1, 1), (2, 0), (2, 0), (3, 0), (3, 0)]
    assert tape.most == 2
    assert jobs[3].log.read_text() == "run 3\nrun 3\n"


def test_an_unwanted_job_is_interrupted_once_or_not_started(tmp_path, monkeypatch):
    code = (
        "import pathlib, sys, time\n"
        "try:\n pathlib.Path(sys.argv[1]).touch()\n time.sleep(60)\n"
        "except KeyboardInterrupt:\n time.sleep(0.3)\n sys.exit(7)"  # saves; a second one would end this
    )
    monkeypatch.chdir(tmp_path)
    jobs = make_jobs(tmp_path / "logs", monkeypatch, code, 3)
    unwanted = {1}
    tape = Tape()

    def tick():
        if (tmp_path / "0").exists():
            unwanted.add(0)
        if (tmp_path / "2").exists():
            unwanted.add(2)

    tape.tick = tick
    assert processes.run_all(jobs, at_once=1, watcher=tape, unwanted=unwanted) is None
    assert tape.told == [(0, 7), (2, 7)] and not (tmp_path / "1").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_passed_on_and_nothing_else_is_started(tmp_path, monkeypatch, number):
    code = (
        "import sys, time\ntry:\n print('runs', flush=True)\n time.sleep(60)\n"
        "except KeyboardInterrupt:\n sys.exit(7)"
    )
    jobs = make_jobs(tmp_path, monkeypatch, code, 5)
    tape, sent = Tape(), []

    def tick():
        if not sent and all(job.log.read_text() for job in jobs[:2]):
            sent.append(number)
            os.kill(os.getpid(), number)

    tape.tick = tick
    before = signal.getsignal(number)
    assert processes.run_all(jobs, at_once=2, watcher=tape) == signal.Signals(number).name
    assert sorted(tape.told) == [(0, 7), (1, 7)]
    assert signal.getsignal(number) is before


def test_an_error_of_the_sweep_itself_leaves_no_process(tmp_path, monkeypatch):
    code = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(60)"
    monkeypatch.chdir(tmp_path)
    jobs = make_jobs(tmp_path, monkeypatch, code, 1)

    def fail_once_it_runs():
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            time.sleep(0.01)
        raise OSError("no more room")

    with pytest.raises(OSError, match="no more room"):
        processes.run_all(jobs, at_once=1, watcher=Tape(fail_once_it_runs))
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's end")
def test_a_child_whose_parent_is_killed_is_interrupted_and_may_save(tmp_path):
    code = (
        "import sys, time\nprint('running', sys.argv, flush=True)\n"
        "try:\n time.sleep(60)\nexcept KeyboardInterrupt:\n print('saved')"
    )
    start = "import pathlib, sys; from minerva_acme.distributed import jobs; "
    start += "jobs.start(sys.argv[1], ('a', 'b'), pathlib.Path(sys.argv[2])).wait()"
    log = tmp_path / "log"
    parent = subprocess.Popen([sys.executable, "-c", start, code, str(log)])
    try:
        killing.wait_until(lambda: log.exists() and "running" in log.read_text(), 60.0)
        assert "['-c', 'a', 'b']" in log.read_text()
    finally:
        parent.kill()
        parent.wait()
    killing.wait_until(lambda: "saved" in log.read_text(), 20.0)


def test_ctrl_c_ends_a_sweep_whose_run_saves(tmp_path, call, monkeypatch):
    sent = []

    def tick(display):
        if not sent and any(path.stat().st_size for path in tmp_path.rglob("actor.csv")):
            sent.append(True)
            os.kill(os.getpid(), signal.SIGINT)  # this process alone: the run is told by the sweep

    monkeypatch.setattr(sweep.Display, "tick", tick)
    words = f"sweep ppo --env CartPole-v1 --seeds 0 1 --num-env-steps 10000000 --directory {tmp_path} {TINY}"
    status, out, _ = call(*words.split(), "--no-report")
    assert status == 0
    assert "Stopped by SIGINT; 0 of 2 runs are done. To continue, repeat the same command." in out
    (checkpoints,) = tmp_path.rglob("checkpoints")  # the second has not begun
    assert list(checkpoints.iterdir())


def test_of_several_jobs_each_has_one_thread_unless_the_user_has_said_how_many(monkeypatch):
    setting = threads.Setting("OMP_NUM_THREADS", "2", is_default=True, is_late=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr(threads, "describe", lambda: [setting])
    given = [processes._environment(at_once)["OMP_NUM_THREADS"] for at_once in (1, 3)]
    monkeypatch.setattr(threads, "describe", lambda: [setting._replace(is_default=False)])
    given.append(processes._environment(3)["OMP_NUM_THREADS"])
    assert given == ["2", "1", "2"]


def test_a_run_that_has_reached_its_return_is_done_and_one_out_of_time_is_not(tmp_path):
    def find_state(goal, minutes):
        settings = TINY.replace("--evaluation-period 0", "--evaluation-period 16")
        (run,) = plan(
            f"ppo --env CartPole-v1 --num-env-steps 32 {settings} --stop-at {goal} "
            f"--stop-after-minutes {minutes} --directory {tmp_path / goal}"
        )
        assert main(run.words) == 0
        return sweep.find_state(run)

    assert find_state("1", "9") == sweep.State(16, True)
    state = find_state("1000", "1e-9")
    assert state.made < 32 and not state.is_done
