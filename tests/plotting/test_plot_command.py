import dataclasses
import pathlib

import numpy as np
import pytest

from minerva_acme import loggers
from minerva_acme import plotting as plotting_api
from minerva_acme.agents import registry
from minerva_acme.cli import commands, report
from minerva_acme.plotting import figure
from minerva_acme.runs import checkpointing, run_folder


@pytest.fixture
def make_run(tmp_path):
    """Returns a function that makes the folder of a run."""

    def make(name, agent="mpo", environment="dm_control/walker/walk", seed=0, returns=None, **changes):
        directory = tmp_path / name
        config = dataclasses.replace(registry.AGENTS[agent].presets["default"], **changes)
        run_folder.RunDescription(
            agent=agent, environment=environment, seed=seed, hyperparameters=dataclasses.asdict(config)
        ).write(directory)
        returns = [10.0, 300.0 + seed, 500.0 + seed] if returns is None else returns
        with loggers.CSVLogger(directory, "evaluator") as logger:
            for index, value in enumerate(returns):
                counts = {"actor_steps": 50_000 * index, "learner_steps": 100 * index}
                spent = {"wall_seconds": 7.5 * index + seed}
                logger.write({**counts, "episode_return": value, "episode_length": 5, **spent})
        return directory

    return make


def plot(directories, **settings):
    return report.plot(commands.Plot(directories=tuple(directories), **settings))


@pytest.fixture
def panels(monkeypatch):
    """What was drawn."""
    drawn = []
    draw = figure.draw
    monkeypatch.setattr(figure, "draw", lambda panels, **more: drawn.extend(panels) or draw(panels, **more))
    return drawn


def test_runs_are_grouped_by_agent_and_environment(make_run, panels, tmp_path, capsys):
    directories = [make_run(f"mpo{seed}", seed=seed) for seed in range(3)]
    directories += [make_run("ppo", "ppo"), make_run("other", environment="CartPole-v1")]
    assert plot(directories, output=tmp_path / "curve") == 0
    shown = {panel.title: {group.label: group.seeds_by_task for group in panel.groups} for panel in panels}
    assert shown == {"CartPole-v1": {"MPO": [1]}, "Walker walk": {"MPO": [3], "PPO": [1]}}
    walker = panels[1]
    np.testing.assert_array_equal(walker.groups[0].mean.values, [10.0, 301.0, 501.0])
    assert [label.split(", published")[0] for label, _ in walker.published] == ["MPO", "DMPO", "PPO of Acme"]
    assert walker.limits == (0.0, 1000.0) and panels[0].limits is None
    assert {"curve.png", "curve.svg"} <= {path.name for path in tmp_path.iterdir()}
    assert "interquartile mean over seeds" in capsys.readouterr().err


def test_a_range_is_of_the_named_environment_or_of_all(make_run, panels, tmp_path):
    directories = [make_run("a"), make_run("b", environment="CartPole-v1")]
    for words, limits in [
        (("CartPole-v1=0:500",), [(0.0, 500.0), (0.0, 1000.0)]),
        (("-1:9",), [(-1.0, 9.0), (-1.0, 9.0)]),
        (("CartPole-v1=0:500", "-1:9"), [(0.0, 500.0), (-1.0, 9.0)]),
    ]:
        panels.clear()
        assert plot(directories, output=tmp_path / "curve.svg", range=words) == 0
        assert [panel.limits for panel in panels] == limits
    with pytest.raises(ValueError, match="`range` must be of CartPole-v1, dm_control/walker/walk, got Pong"):
        plot(directories, range=("Pong=0:1",))
    with pytest.raises(ValueError, match="`range` must increase, got 5:1"):
        plot(directories, range=("5:1",))


def test_a_folder_of_runs_stands_for_its_runs_and_none_counts_twice(make_run, panels, tmp_path):
    directory = make_run("a")
    make_run("b", seed=1)
    plot([tmp_path, directory, directory / ".." / "a"], output=tmp_path / "curve.png")
    assert panels[0].groups[0].seeds_by_task == [2]


def test_hyperparameters_can_tell_the_curves_apart(make_run, panels, tmp_path, capsys):
    directories = [make_run(target, critic_target=target) for target in ("retrace", "n_step")]
    plot(directories, output=tmp_path / "curve.png")
    err = capsys.readouterr().err
    assert "differ in critic_target; --group agent,critic_target gives each its own curve" in err
    panels.clear()
    plot(directories, output=tmp_path / "curve.png", group="agent,critic_target")
    labels = [group.label for group in panels[0].groups]
    assert labels == ["MPO, critic target retrace", "MPO, critic target n-step"]
    assert "differ" not in capsys.readouterr().err


def test_runs_are_drawn_at_frames_in_the_panel_of_their_base_task(make_run, panels, tmp_path, capsys):
    walk = "dm_control/walker/walk"
    directories = [make_run("a"), make_run("b", environment=f"{walk}/repeat=2", seed=1)]
    plot(directories, output=tmp_path / "curve.png", published=["mpo"])
    (panel,) = panels
    assert panel.title == "Walker walk" and len(panel.published) == 1
    (group,) = panel.groups
    frames = {tuple(run.x): run.values[1] for run in group.runs}
    assert frames == {(0, 50_000, 100_000): 300.0, (0, 100_000, 200_000): 301.0}
    assert "differ in repeat; --group agent,repeat gives each its own curve" in capsys.readouterr().err
    panels.clear()
    plot(directories, output=tmp_path / "curve.png", group="agent,repeat")
    assert [group.label for group in panels[0].groups] == ["MPO, repeat 1", "MPO, repeat 2"]
    assert "differ" not in capsys.readouterr().err
    panels.clear()
    plot(directories[1:], output=tmp_path / "curve.png", x="updates")
    np.testing.assert_array_equal(panels[0].groups[0].mean.x, [0, 100, 200])


def test_both_repeats_of_a_task_are_one_task_of_an_aggregate(make_run, panels, tmp_path):
    directories = [
        make_run(f"{task}{seed}", environment=f"dm_control/{task}{'/repeat=2' * seed}", seed=seed)
        for task in ("walker/walk", "cheetah/run")
        for seed in range(2)
    ]
    plot(directories, output=tmp_path / "curve.png", aggregate=True)
    assert panels[0].title == "2 tasks" and panels[0].groups[0].seeds_by_task == [2, 2]
    assert panels[0].groups[0].mean.x[-1] == 100_000  # frames, where the first ends


def test_what_makes_seeds_less_than_independent_and_curves_short_is_said(make_run, tmp_path, capsys):
    directories = [make_run("long"), make_run("short", returns=[1.0, 2.0])]
    plot(directories, output=tmp_path / "curve.png")
    err = capsys.readouterr().err
    assert "have seeds [0, 0]: runs with equal seeds are not independent" in err
    assert "ends at 50,000 frames with" in err and "others continue to 100,000" in err


def test_a_run_without_numbers_is_left_out_with_a_word(make_run, panels, tmp_path, capsys):
    plot([make_run("a"), make_run("b", seed=1, returns=[])], output=tmp_path / "curve.png")
    assert panels[0].groups[0].seeds_by_task == [1]
    assert "b: it has no values of 'evaluator/episode_return' yet" in capsys.readouterr().err


def test_random_actions_are_shown_where_a_checkpoint_knows_them(make_run, panels, tmp_path):
    directory = make_run("a")
    saver = checkpointing.Checkpointer(directory / "checkpoints")
    saver.save(5, {"random": ([30.0, 50.0], [5, 5])})
    plot([directory], output=tmp_path / "curve.png")
    assert panels[0].random == 40.0


def test_plotting_leaves_a_checkpoint_alone_that_is_being_written(make_run, tmp_path):
    directory = make_run("a")
    unfinished = directory / "checkpoints" / ".unfinished-000000005"
    unfinished.mkdir(parents=True)
    plot([directory], output=tmp_path / "curve.png")
    assert unfinished.exists()


def test_the_backdrop_can_be_chosen_or_left_out(make_run, panels, tmp_path):
    directory = make_run("a")
    for published, labels in ((["none"], []), (["sac_1024", "mpo"], ["SAC with 1024 units", "MPO"])):
        panels.clear()
        plot([directory], output=tmp_path / "curve.png", published=published)
        assert [label.split(", published")[0] for label, _ in panels[0].published] == labels


@pytest.mark.parametrize(("x", "places"), [("updates", [0, 100, 200]), ("wall", [1.0, 8.5, 16.0])])
def test_runs_can_be_drawn_against_updates_or_time_and_nothing_published_with_them(
    make_run, panels, tmp_path, x, places
):
    plot([make_run("a", seed=1)], output=tmp_path / "curve.svg", x=x)
    np.testing.assert_array_equal(panels[0].groups[0].mean.x, places)
    assert not panels[0].published
    with pytest.raises(ValueError, match=f"`published` must be none if `x` is {x}, because"):
        plot([tmp_path / "a"], x=x, published=("mpo",))


def test_a_run_of_an_older_version_has_no_time_to_be_drawn_against(make_run, tmp_path):
    directory = make_run("a")
    (directory / "evaluator.csv").write_text("actor_steps,episode_return\n0,1\n10,2\n")
    with pytest.raises(ValueError, match="evaluator.csv has no column 'wall_seconds' for the x-axis"):
        plot([directory], x="wall")


def test_another_metric_has_neither_backdrop_nor_limits(make_run, panels, tmp_path):
    plot([make_run("a")], output=tmp_path / "curve.png", metric="evaluator/episode_length")
    assert not panels[0].published and panels[0].limits is None
    np.testing.assert_array_equal(panels[0].groups[0].mean.values, [5.0] * 3)


def test_tasks_can_be_drawn_as_one(make_run, panels, tmp_path):
    directories = [
        make_run(f"{task}{seed}", environment=f"dm_control/{task}", seed=seed, returns=[value, value + seed])
        for task, value in (("walker/walk", 100.0), ("cheetah/run", 200.0))
        for seed in range(2)
    ]
    plot(directories, output=tmp_path / "curve.png", aggregate=True)
    (panel,) = panels
    (group,) = panel.groups
    assert panel.title == "2 tasks" and group.seeds_by_task == [2, 2]
    # Of 100, 101, 200 and 201 the middle two.
    np.testing.assert_array_equal(group.mean.values, [150.0, 150.5])
    assert group.interval is not None and group.interval.low[1] > 101.0  # each task in every resample
    assert len(panel.published) == 2
    both = [
        plotting_api.published_curves(f"dm_control/{task}", ["mpo"])[0].curve
        for task in ("walker/walk", "cheetah/run")
    ]
    at_100k = np.mean([curve.values[list(curve.x).index(100_000)] for curve in both])
    mpo = panel.published[0][1]
    assert mpo.values[list(mpo.x).index(100_000)] == pytest.approx(at_100k)  # of two, the middle is both


def test_where_a_curve_over_tasks_ends_or_why_there_is_none_is_told(make_run, panels, tmp_path, capsys):
    def make(name, task, agent, steps, seed):
        made = make_run(name, agent, f"dm_control/{task}", seed, returns=[])
        with loggers.CSVLogger(made, "evaluator") as logger:
            for step in steps:
                logger.write({"actor_steps": step, "learner_steps": step, "episode_return": step / 1000})
        return made

    directories = [
        make("long", "walker/walk", "mpo", (0, 70_000, 100_000), 0),
        make("short", "cheetah/run", "mpo", (0, 30_000, 50_000), 1),
        make("early", "walker/walk", "ppo", (0, 40_000), 0),
        make("late", "cheetah/run", "ppo", (45_000, 90_000), 2),
    ]
    plot(directories, output=tmp_path / "curve.png", aggregate=True)
    shown = " ".join(capsys.readouterr().err.split())
    assert [(group.label, group.mean.x[-1]) for group in panels[0].groups] == [("MPO", 50_000)]
    assert (
        f"The curve of MPO on 2 tasks ends at 50,000 frames with dm_control/cheetah/run, {tmp_path}/short; "
        "others continue to 100,000."
    ) in shown
    assert (
        f"There is no curve of PPO on 2 tasks: dm_control/walker/walk, {tmp_path}/early ends at 40,000 "
        f"frames, before dm_control/cheetah/run, {tmp_path}/late begins at 45,000."
    ) in shown
    with pytest.raises(ValueError, match="must have steps in common, got none. Train .* or plot them apart"):
        plot(directories[2:], output=tmp_path / "none.png", aggregate=True)
    assert "There is no curve of PPO" in capsys.readouterr().err and not (tmp_path / "none.png").exists()
    # In a panel of its own, a task is drawn as far as its own runs go.
    panels.clear()
    plot(directories, output=tmp_path / "each.png")
    assert [[group.mean.x[-1] for group in panel.groups] for panel in panels] == [
        [50_000, 90_000],
        [100_000, 40_000],
    ]
    assert "curve of" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [
        ([], {}, "At least one run must be given, got none."),
        ([("a", {"returns": []})], {}, "None of the runs has values of 'evaluator/episode_return' yet"),
        ([("a", {})], {"metric": "evaluator/return"}, "no metric 'evaluator/return'. Did you mean"),
        (
            [("a", {})],
            {"group": "agnet"},
            "`group` must be agent, repeat, dataset, demonstrations, from_run or a hyperparameter of "
            "every run, got 'agnet'",
        ),
        ([("a", {})], {"published": ["acme"]}, "`published` must be among .* got 'acme'"),
        (
            [("a", {})],
            {"output": pathlib.Path("curve.doc")},
            "The `path` of a figure must have the suffix .* got 'curve.doc'",
        ),
        (
            [("a", {}), ("b", {"environment": "CartPole-v1"})],
            {"aggregate": True},
            "`aggregate` must be over tasks of dm_control, .* got CartPole-v1",
        ),
        (
            [("a", {}), ("b", {"agent": "ppo", "environment": "dm_control/cheetah/run"})],
            {"aggregate": True},
            "`aggregate` must be over the same tasks for each curve, got no runs of .* on dm_control/",
        ),
        (
            [("a", {})],
            {"aggregate": True, "metric": "evaluator/episode_length"},
            "`metric` must be a return to be aggregated over tasks",
        ),
    ],
)
def test_a_mistake_is_told_and_nothing_is_written(make_run, tmp_path, monkeypatch, make, settings, message):
    directories = [make_run(name, **more) for name, more in make]
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    with pytest.raises(ValueError, match=message):
        plot(directories, **settings)
    assert not list(pathlib.Path().iterdir())


def test_a_folder_without_a_run_is_told(tmp_path):
    with pytest.raises(ValueError, match="There is no run in .*: run.json is missing"):
        plot([tmp_path])


def test_python_draws_the_same_figure_as_the_command(make_run, panels, tmp_path, caplog):
    directories = [make_run("a"), make_run("b")]
    plot(directories, output=tmp_path / "curve.png", metric="evaluator/episode_length", x="wall")
    drawn = plotting_api.draw_runs(
        [str(directory) for directory in directories], metric="evaluator/episode_length", x="wall"
    )
    by_command, by_python = panels
    np.testing.assert_equal(tuple(by_python.groups[0].mean), tuple(by_command.groups[0].mean))
    assert drawn.axes[0].get_xlabel() == "Wall time (s)" and drawn.axes[0].get_ylabel() == "episode length"
    assert "have seeds [0, 0]" in caplog.text
    panels.clear()
    plotting_api.draw_runs(tmp_path, group="agent,critic_target", published=())
    assert panels[0].groups[0].label == "MPO, critic target retrace" and not panels[0].published
    panels.clear()
    plotting_api.draw_runs(tmp_path, aggregate=True)
    assert panels[0].title == "Walker walk" and panels[0].published
    with pytest.raises(ValueError, match="`x` must be among steps, updates, wall, got 'frames'"):
        plotting_api.draw_runs(tmp_path, x="frames")
