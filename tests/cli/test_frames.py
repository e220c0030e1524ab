"""A run that repeats actions, from its training to reports and plots: all of them count frames."""

import numpy as np
import pytest

from minerva_acme import plotting, results
from minerva_acme.cli import main
from minerva_acme.plotting import figure

TASK = "dm_control/cheetah/run"
DECISIONS = [0, 100, 200]
TINY = """
    --batch-size 8 --min-replay-size 20 --samples-per-insert 2 --policy-layer-sizes 8 --critic-layer-sizes 8 8
    --num-samples 4 --retrace-mc-actions 2 --evaluation-episodes 1 --log csv --replay memory
"""


@pytest.fixture(scope="module")
def repeated(tmp_path_factory, short_tasks):
    """The folder of a run of 200 decisions, of two frames each."""
    directory = tmp_path_factory.mktemp("frames") / "run"
    words = f"train mpo --env {TASK}/repeat=2 --num-env-steps 200 --evaluation-period 100 --directory"
    assert main([*words.split(), str(directory), *TINY.split()]) == 0
    return directory


@pytest.fixture
def drawn(monkeypatch):
    """Everything that is drawn: panels and the label of their horizontal axis."""
    found = []
    draw = figure.draw

    def note(panels, **more):
        picture = draw(panels, **more)
        found.append((panels, picture.axes[0].get_xlabel()))
        return picture

    monkeypatch.setattr(figure, "draw", note)
    return found


def assert_is_over_the_published_curve(panel, returns):
    """Checks that two frames a decision stand on the axis of the base task's published curve."""
    assert panel.title == "Cheetah run"
    (group,) = panel.groups
    (run,) = group.runs
    np.testing.assert_array_equal(run.x, [0, 200, 400])
    np.testing.assert_allclose(run.values, returns, rtol=1e-6)
    (mpo,) = plotting.published_curves(TASK, ["mpo"])
    ((_, curve),) = panel.published
    np.testing.assert_array_equal(curve.x, mpo.curve.x)
    np.testing.assert_array_equal(curve.values, mpo.curve.values)


def test_a_run_that_repeats_actions_is_reported_at_frames_of_its_task(
    repeated, tmp_path, call, drawn, unpainted
):
    unpainted()
    logged = plotting.read_curve(repeated, "evaluator/episode_return")
    np.testing.assert_array_equal(logged.x, DECISIONS)  # as its flags and logs count

    out = tmp_path / "results"
    assert call("collect", repeated, "--output", out, "--name", "tiny")[0] == 0
    (experiment,) = results.read(out / "tiny+repeat=2.csv")
    assert experiment.action_repeat == 2 and experiment.decisions == {TASK: 200}
    (steps,) = (row.value for row in experiment.rows if row.metric == "learner_steps")
    assert experiment.updates_per_frame == pytest.approx(steps / 400, rel=5e-3)
    returns = {row.env_step: row.value for row in experiment.rows if row.metric == "avg_return"}
    assert returns.keys() == {0, 200, 400}

    status, shown, _ = call("report", out, "--against", "mpo", "--output", tmp_path / "report")
    assert status == 0 and "Scores on 1 environment at 400 frames" in shown
    assert "The action repeats differ: 1 of MPO; 2 of tiny+repeat=2." in shown
    ((panel,), label) = drawn.pop()
    assert label == "Frames"
    assert_is_over_the_published_curve(panel, list(returns.values()))

    assert call("plot", repeated, "--published", "mpo", "--output", tmp_path / "curve.svg")[0] == 0
    ((panel,), label) = drawn.pop()
    assert label == "Frames"
    assert_is_over_the_published_curve(panel, logged.values)


def test_scores_are_compared_at_frames(repeated, tmp_path, call, unpainted):
    unpainted()
    arguments = (repeated, "--against", "none", "--output", tmp_path / "report")
    status, shown, _ = call("report", *arguments, "--step", 300)  # beyond the 200 decisions
    assert status == 0 and "at 300 frames" in shown
    status, _, err = call("report", *arguments, "--step", 401)
    assert status == 2 and "no value at 401 frames" in err
