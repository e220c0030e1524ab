import io
import logging
import sys

import pytest
from rich import console as rich_console

from minerva_acme import experiments, runs
from minerva_acme.cli import main  # noqa: F401 -- the function, whose module is not reached through it
from minerva_acme.cli import progress as cli_progress
from minerva_acme.replay import base as replay
from minerva_acme.replay import waiting

METRICS = {
    "loss/temperature": 0.7621,
    "loss/q": 1946.2,
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
    display = cli_progress.ProgressDisplay(console, clock=clock)
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


def test_the_block_of_a_terminal_looks_like_this():
    assert [line.rstrip() for line in show(80).splitlines()] == [
        "train      ━━━━━━━━━━━━━━                      12,345/30,000 steps  0:03:06 left",
        "speed      95 environment steps/s, 24 learner steps/s, 2,837 made",
        "returns    last 512.3, mean of the last 2: 498.2, episode 12",
        "evaluation 455.2 +- 12.1 at 11,395 steps, best 455.2",
        "losses     policy -0.0123  q 1,946  temperature 0.762  alpha_mean 0.0196",
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
        "   11,395 steps: evaluation return    455.2 +- 12.1",
        "   12,345/30,000 steps, 59 steps/s, 2,837 learner steps, 0:04:57 left, return 512.3, "
        "policy loss -0.0123, q loss 1,946, temperature loss 0.762, alpha_mean loss 0.0196, "
        "KL mean/bound 0.981, KL stddev/bound 0.4, KL q/bound 1.01, replay 12,345",
    ]


def test_a_pipe_gets_a_line_every_15_seconds_and_no_escape_codes():
    file = io.StringIO()
    clock = Clock()
    console = rich_console.Console(file=file, width=80)
    with cli_progress.ProgressDisplay(console, clock=clock) as display:
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
    display = cli_progress.ProgressDisplay(console, seconds=70.0, clock=clock)
    display(make_progress(env_steps=11_395))
    assert "0:01:10 left" in display.line(make_progress(env_steps=11_395))  # no speed is known yet
    clock.now = 10.0
    display(make_progress())
    assert "0:01:00 left" in display.line(make_progress())  # by its speed 186 s
    assert "0:00:01 left" in display.line(make_progress(env_steps=29_950))


def test_every_episode_counts_also_if_returns_are_equal():
    clock = Clock()
    console = rich_console.Console(file=io.StringIO(), width=80, record=True, color_system=None)
    display = cli_progress.ProgressDisplay(console, clock=clock)
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
        with cli_progress.ProgressDisplay(console) as display:
            display(make_progress())
            waiting.Wait().go_on(replay.ReplayTimeout("Waiting for 20 items in table 'replay', has 0."))
    finally:
        logging.getLogger("minerva_acme").removeHandler(handler)
    assert "Waiting for 20 items in table 'replay', has 0. Waited 0 s so far." in shown.getvalue()
