import io
import logging
import sys
import types

import pytest
from rich import console as rich_console

from minerva_acme import experiments, runs, testing
from minerva_acme.agents import ppo
from minerva_acme.cli import main  # noqa: F401 -- the function, whose module is not reached through it
from minerva_acme.replay import base as replay
from minerva_acme.replay import waiting

SMALL_PPO = ppo.PPOConfig(num_environments=1, rollout_steps=8, minibatch_size=8, num_epochs=1)
METRICS = {
    "loss/temperature": 0.7621,
    "loss/critic": 1946.2,
    "loss/policy": -0.01234,
    "loss/alpha_mean": 0.0196,
    "loss/alpha_stddev": 3.0,
    "kl/mean_rel": 0.981,
    "kl/stddev_rel": 0.4,
    "kl/q_rel": 1.012,
    "q/max": 5.0,
    "replay/size": 12_345,
    "replay/max_size": 1_000_000,
    "replay/samples_per_insert": 63.84,
}


def make_progress(**changes):
    values = {
        "env_steps": 12_345,
        "num_env_steps": 30_000,
        "learner_steps": 2_837,
        "last_episode_return": 512.34,
        "last_evaluation": None,
        "phase": "train",
        "num_episodes": 12,
        "metrics": METRICS,
    }
    return experiments.Progress(**{**values, **changes})


class Clock:
    """Seconds that pass when they are told to."""

    now = 0.0

    def __call__(self):
        return self.now


def show(width, is_terminal=True, **changes):
    """What a display shows after 10 s with 950 environment and 240 learner steps."""
    console = rich_console.Console(
        file=io.StringIO(), width=width, record=True, force_terminal=is_terminal, color_system=None
    )
    clock = Clock()
    display = experiments.ProgressDisplay(console, clock=clock)
    evaluation = runs.Evaluation((443.1, 467.3), (1000, 1000))
    display(
        make_progress(
            env_steps=11_395,
            learner_steps=2_597,
            last_evaluation=evaluation,
            last_episode_return=484.0,
            num_episodes=11,
        )
    )
    clock.now = 16.0 if not is_terminal else 10.0
    last = make_progress(last_evaluation=evaluation, **changes)
    display(last)
    if is_terminal:
        console.export_text()  # what was shown so far
        console.print(display.block(last))
    return console.export_text()


@pytest.mark.promise("Progress")
def test_the_block_of_a_terminal_looks_like_this():
    assert [line.rstrip() for line in show(80).splitlines()] == [
        "train      ━━━━━━━━━━━━━━                      12,345/30,000 steps  0:03:06 left",
        "speed      95 environment steps/s, 24 learner steps/s, 2,837 made",
        "returns    last 512.3, mean of the last 2: 498.2, episode 12",
        "evaluation 455.2 ± 12.1 at 11,395 steps, best 455.2",
        "losses     policy -0.0123  critic 1,946  temperature 0.762  alpha_mean 0.0196",
        "KL/bound   mean 0.98  stddev 0.40  q 1.01",
        "replay     12,345 of 1,000,000 items, 63.8 samples per insert",
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_of_the_block_is_wider_than_80_columns_or_the_terminal(width):
    huge = dict.fromkeys(METRICS, -123_456_789.123)
    out = show(
        width, env_steps=999_999_999, num_env_steps=1_000_000_000, last_episode_return=-1e9, metrics=huge
    )
    assert len(out.splitlines()) == 7
    assert max(map(len, out.splitlines())) <= min(width, 80)


def test_a_pipe_gets_plain_lines():
    assert show(80, is_terminal=False).splitlines() == [
        "   11,395 steps: evaluation return    455.2 ± 12.1",
        "   12,345/30,000 steps, 59 steps/s, 2,837 learner steps, 0:04:57 left, return 512.3, "
        "policy loss -0.0123, critic loss 1,946, temperature loss 0.762, alpha_mean loss 0.0196, "
        "KL mean/bound 0.981, KL stddev/bound 0.4, KL q/bound 1.01, replay 12,345",
    ]


def test_a_pipe_gets_a_line_every_15_seconds_and_no_escape_codes():
    file = io.StringIO()
    clock = Clock()
    console = rich_console.Console(file=file, width=80)
    with experiments.ProgressDisplay(console, clock=clock) as display:
        for step in range(60):
            clock.now = float(step)
            display(make_progress(env_steps=step, num_episodes=0, last_episode_return=None, metrics={}))
    assert len(file.getvalue().splitlines()) == 3
    assert "\x1b" not in file.getvalue()


def test_what_is_not_known_yet_takes_no_row():
    out = show(80, metrics={}, last_episode_return=None)
    labels = [line.split()[0] for line in out.splitlines()]
    assert labels == ["train", "speed", "returns", "evaluation"]


def test_a_run_with_a_clock_has_no_more_time_left_than_that():
    clock = Clock()
    console = rich_console.Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    display = experiments.ProgressDisplay(console, seconds=70.0, clock=clock)
    display(make_progress(env_steps=11_395))
    assert "0:01:10 left" in display.line(make_progress(env_steps=11_395))  # no speed is known yet
    clock.now = 10.0
    display(make_progress())
    assert "0:01:00 left" in display.line(make_progress())  # by its speed 186 s
    assert "0:00:01 left" in display.line(make_progress(env_steps=29_950))


def test_the_time_left_is_told_after_some_seconds_of_training_with_learning():
    clock = Clock()
    console = rich_console.Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    display = experiments.ProgressDisplay(console, clock=clock)
    display(make_progress(env_steps=0, learner_steps=0, phase="evaluate"))
    lines = []
    for seconds, env_steps, learner_steps in [(60, 1, 0), (64, 400, 100), (66, 600, 0), (66, 600, 150)]:
        clock.now = seconds
        progress = make_progress(env_steps=env_steps, learner_steps=learner_steps)
        display(progress)
        lines.append(display.line(progress))
    assert ["-:--:-- left" in line for line in lines] == [True, True, True, False]
    assert "0:04:54 left" in lines[-1]  # 599 steps in 6 s, not in 66


def test_every_episode_counts_also_if_returns_are_equal():
    clock = Clock()
    console = rich_console.Console(file=io.StringIO(), width=80, record=True, color_system=None)
    display = experiments.ProgressDisplay(console, clock=clock)
    for episode, episode_return in enumerate([100.0, 200.0, 200.0, 200.0], start=1):
        display(make_progress(num_episodes=episode, last_episode_return=episode_return))
    console.print(display.block(make_progress(num_episodes=4)))
    assert "last 200.0, mean of the last 4: 175.0, episode 4" in console.export_text()


def test_what_a_wait_is_for_is_shown_above_the_live_block(monkeypatch):
    monkeypatch.setattr(waiting, "_REPORT_SECONDS", 0.0)
    shown = io.StringIO()
    console = rich_console.Console(file=shown, width=100, force_terminal=True, color_system=None)
    handler = logging.StreamHandler(sys.modules["minerva_acme.cli.main"]._Stderr())
    logging.getLogger("minerva_acme").addHandler(handler)
    try:
        with experiments.ProgressDisplay(console) as display:
            display(make_progress())
            waiting.Wait().go_on(replay.ReplayTimeout("Waiting for 20 items in table 'replay', has 0."))
    finally:
        logging.getLogger("minerva_acme").removeHandler(handler)
    assert "Waiting for 20 items in table 'replay', has 0. Waited 0 s so far." in shown.getvalue()


class Notebook(types.ModuleType):
    """Stands for IPython.display in a notebook; keeps what its cell shows."""

    def __init__(self):
        super().__init__("IPython.display")
        self.shown = []
        self.num_outputs = 0

    def display(self, content, *, raw, display_id):
        assert raw and display_id is True
        self.num_outputs += 1
        self.shown.append(content)
        return self

    def update(self, content, *, raw):
        assert raw
        self.shown[-1] = content


@pytest.fixture
def notebook(monkeypatch):
    """A notebook in which this code runs, as rich sees it."""
    module = Notebook()
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr(rich_console, "_is_jupyter", lambda: True)
    return module


def run_shortly(directory, *callbacks, **arguments):
    """Trains for a few steps, which takes milliseconds."""
    config = experiments.ExperimentConfig(
        builder=ppo.PPOBuilder(SMALL_PPO),
        environment_factory=lambda seed: testing.FakeEnvironment(seed=seed),
        directory=directory,
        num_env_steps=16,
        evaluation_period=0,
        evaluation_episodes=1,
        tensorboard=False,
        replay="memory",
    )
    return experiments.run_experiment(config, *callbacks, **arguments)


def test_a_notebook_shows_one_block_that_is_updated(notebook, tmp_path, capsys):
    run_shortly(tmp_path)
    assert notebook.num_outputs == 1
    (content,) = notebook.shown
    assert [*content] == ["text/plain"]
    lines = content["text/plain"].splitlines()
    assert lines[0].split()[0] == "save" and " 16/16 steps " in lines[0]
    assert max(map(len, lines)) <= 80 and lines == [line.rstrip() for line in lines]
    assert "\x1b" not in content["text/plain"]
    assert capsys.readouterr().out.startswith("Replay of 4 items takes")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_the_block_of_a_run_in_python(tmp_path, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    seen = []
    run_shortly(tmp_path, seen.append)
    assert " 16/16 steps " in terminal.getvalue() and "environment steps/s" in terminal.getvalue()
    assert {progress.phase for progress in seen} == {"evaluate", "train", "save"}


@pytest.mark.parametrize("colour", [None, "1"])
@pytest.mark.parametrize("progress", ["auto", None])
def test_nothing_is_printed_elsewhere(tmp_path, monkeypatch, capfd, colour, progress):
    if colour:
        monkeypatch.setenv("FORCE_COLOR", colour)
    run_shortly(tmp_path, progress=progress)
    assert capfd.readouterr().out == ""


def test_none_is_silent_on_a_terminal_too(tmp_path, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    run_shortly(tmp_path, progress=None)
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("stdout", [None, object()])
def test_a_process_without_a_stdout_trains(tmp_path, monkeypatch, stdout):
    monkeypatch.setattr(sys, "stdout", stdout)
    assert run_shortly(tmp_path).env_steps == 16


def test_a_display_of_ones_own_also_prints_to_a_pipe(tmp_path):
    file = io.StringIO()
    display = experiments.ProgressDisplay(rich_console.Console(file=file, width=80))
    run_shortly(tmp_path, progress=display)
    assert "16 steps: evaluation return" in file.getvalue()


def test_another_kind_of_progress_is_refused_before_anything_begins(tmp_path):
    with pytest.raises(ValueError, match=r"`progress` must be 'auto', None .* got True\. .*config, callback"):
        run_shortly(tmp_path / "run", progress=True)
    assert not (tmp_path / "run").exists()


def test_metrics_stand_beside_the_return_and_the_best_is_by_the_runs_own():
    console = rich_console.Console(file=io.StringIO(), width=80, record=True, color_system=None)
    display = experiments.ProgressDisplay(console, clock=Clock())
    for step, success in ((10, 0.9), (20, 0.5)):
        measured = {"info/energy/last": (2_000.0,), "info/success/last": (success,)}
        last = make_progress(
            env_steps=step,
            last_evaluation=runs.Evaluation((7.0 + step,), (9,), {}, measured),
            metric="info/success/last",
        )
        display(last)
    said = "20 steps: evaluation return     27.0 ± 0.0, info/success/last 0.5, info/energy/last 2,000"
    assert said in console.export_text()
    console.print(display.block(last))
    shown = console.export_text()
    assert "evaluation 27.0 ± 0.0 at 20 steps, best info/success/last 0.9" in shown
    assert "metrics    info/success/last 0.5  info/energy/last 2,000" in shown
