import numpy as np
import pytest

from minerva_acme import loggers, plotting

RETURN = "evaluator/episode_return"


def curve(steps, values=None):
    steps = np.asarray(steps, float)
    return plotting.Curve(steps, steps * 2.0 if values is None else np.asarray(values, float))


def write(directory, rows, label="evaluator"):
    with loggers.CSVLogger(directory, label) as logger:
        for row in rows:
            logger.write(row)
    return directory


def as_lists(read):
    return read.x.tolist(), read.values.tolist()


def test_a_metric_is_read_by_its_file_and_column(tmp_path):
    write(tmp_path, [{"actor_steps": 0, "episode_return": 1.5}, {"actor_steps": 10, "episode_return": 2.5}])
    write(tmp_path, [{"actor_steps": 4, "loss/total": 9.0}], "learner")
    assert as_lists(plotting.read_curve(tmp_path, RETURN)) == ([0, 10], [1.5, 2.5])
    assert as_lists(plotting.read_curve(tmp_path, "learner/loss/total")) == ([4], [9])


def test_what_a_resumed_run_played_again_counts_once(tmp_path):
    rows = [(0, 1.0), (10, 2.0), (20, 3.0), (10, 5.0), (20, 6.0), (30, 7.0)]
    write(tmp_path, [{"actor_steps": step, "episode_return": value} for step, value in rows])
    assert as_lists(plotting.read_curve(tmp_path, RETURN)) == ([0, 10, 20, 30], [1.0, 5.0, 6.0, 7.0])


def test_rows_at_one_step_are_averaged(tmp_path):
    write(tmp_path, [{"actor_steps": 8, "episode_return": value} for value in (1.0, 2.0, 6.0)], "actor")
    assert as_lists(plotting.read_curve(tmp_path, "actor/episode_return")) == ([8], [3])


def test_rows_without_a_finite_number_are_left_out(tmp_path):
    (tmp_path / "evaluator.csv").write_text("actor_steps,episode_return\n0,1\n5,\n6,nan\n7,inf\n8,x\n9,4\n1")
    assert as_lists(plotting.read_curve(tmp_path, RETURN)) == ([0, 9], [1, 4])


def test_numbers_that_cannot_be_drawn_are_left_out_with_a_warning(tmp_path, caplog):
    rows = [(0, 1.0), (10, 1e308), (20, -1e308), (1e308, 2.0), (30, 3.0)]
    write(tmp_path, [{"actor_steps": step, "episode_return": value} for step, value in rows])
    assert as_lists(plotting.read_curve(tmp_path, RETURN)) == ([0, 30], [1.0, 3.0])
    assert "evaluator.csv: 3 rows with a number beyond 1e+30 are left out" in caplog.text


def test_a_run_that_has_only_begun_has_an_empty_curve(tmp_path):
    write(tmp_path, [{"actor_steps": 1, "episode_return": 1.0}], "actor")
    (tmp_path / "evaluator.csv").touch()
    assert as_lists(plotting.read_curve(tmp_path, RETURN)) == ([], [])


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("evaluator/episode_retrun", "no metric 'evaluator/episode_retrun'. Did you mean .*episode_return"),
        ("episode_return", r"no metric 'episode_return'. Did you mean evaluator/episode_return"),
        ("learner/loss", "no metric 'learner/loss'. .*evaluator/episode_return"),
    ],
)
def test_a_metric_that_is_not_there_is_told_with_the_near_ones(tmp_path, metric, message):
    write(tmp_path, [{"actor_steps": 0, "episode_return": 1.5}])
    with pytest.raises(ValueError, match=message):
        plotting.read_curve(tmp_path, metric)


def test_a_folder_without_any_numbers_says_so(tmp_path):
    with pytest.raises(ValueError, match="has no logs yet. Wait for its first evaluation, or"):
        plotting.read_curve(tmp_path, RETURN)


def test_curves_with_the_same_steps_stay_as_they_are():
    common = plotting.at_common_steps([curve([0, 7, 20], [1, 2, 3]), curve([0, 7, 20], [4, 5, 6])])
    np.testing.assert_array_equal(common.x, [0, 7, 20])
    np.testing.assert_array_equal(common.values, [[1, 2, 3], [4, 5, 6]])


def test_common_steps_go_nowhere_that_one_of_the_curves_has_not_been():
    common = plotting.at_common_steps([curve([0, 10, 20, 30]), curve([5, 25]), curve([0, 40])])
    np.testing.assert_array_equal(common.x, [5, 10, 20, 25])
    np.testing.assert_allclose(common.values, [[10, 20, 40, 50]] * 3)  # all are 2 x steps


def test_a_long_log_is_averaged_and_not_picked_from():
    alternating = curve(np.arange(1000), np.tile([0.0, 10.0], 500))
    common = plotting.at_common_steps([alternating], max_points=50)
    assert common.x.shape == (50,)
    np.testing.assert_allclose(common.values, 5.0)
    np.testing.assert_allclose(np.diff(common.x), 20.0)


@pytest.mark.parametrize("num_points", [1, 49, 50, 51, 99, 1234])
def test_thinning_keeps_the_mean_of_a_curve_and_its_order(num_points):
    steps = np.arange(num_points)
    thinned = plotting.thin(curve(steps), max_points=50)
    assert len(thinned.x) == min(num_points, 50)
    assert np.all(np.diff(thinned.x) > 0)
    np.testing.assert_allclose(thinned.values, 2.0 * thinned.x)


@pytest.mark.parametrize(
    ("curves", "max_points", "message"),
    [
        ([], 50, "`curves` must be curves with points"),
        ([curve([])], 50, "`curves` must be curves with points"),
        ([curve([0, 1])], 1, "`max_points` must be >= 2, got 1"),
        ([curve([0, 1]), curve([2, 3])], 50, "`curves` must have steps in common, got 0-1, 2-3. Train the"),
    ],
)
def test_curves_that_cannot_be_brought_together_are_told(curves, max_points, message):
    with pytest.raises(ValueError, match=message):
        plotting.at_common_steps(curves, max_points)


def test_published_curves_are_those_of_the_task():
    found = {curve.algorithm: curve for curve in plotting.published_curves("dm_control/walker/walk")}
    of_anchors = {"mpo", "dmpo", "d4pg", "ddpg", "ppo_acme_fixhp", "sac_1024"}
    of_2025 = {"sac", "sac_simba", "simba_v2", "bro_utd2", "bro_utd10", "dr_q", "fog", "xqc"}
    other_updates = {f"{agent}_utd{updates}" for agent in ("sac_simba", "simba_v2") for updates in (1, 4, 8)}
    assert set(found) == of_anchors | of_2025 | other_updates
    steps, means = found["mpo"].curve
    assert found["mpo"].num_seeds == 10
    assert np.all(np.diff(steps) > 0) and 400_000 in steps
    assert means.min() >= 0.0 and means.max() <= 1000.0


def test_the_published_curves_have_the_aggregate_that_is_known_of_them():
    # Mean over the tasks of the means over seeds, at 500k steps; the interquartile means are 0.757 and 0.797.
    suite = ["cartpole/swingup", "cheetah/run", "walker/run", "walker/walk", "reacher/hard", "finger/spin"]
    for algorithm in ("mpo", "dmpo"):
        curves = [plotting.published_curves(f"dm_control/{task}", [algorithm])[0].curve for task in suite]
        at_500k = [np.interp(500_000, *curve) for curve in curves]
        assert 700 < np.mean(at_500k) < 900


def test_nothing_was_published_of_gymnasiums_environments():
    assert plotting.published_curves("CartPole-v1", ["mpo"]) == []
    assert plotting.published_curves("dm_control/no/task") == []


def test_an_algorithm_that_nobody_published_is_told():
    with pytest.raises(ValueError, match="`published` must be among mpo, dmpo, .* bro_utd2, .* got 'mp'"):
        plotting.published_curves("dm_control/walker/walk", ["mp"])


def test_logs_that_are_no_text_give_what_numbers_they_hold(tmp_path):
    (tmp_path / "evaluator.csv").write_bytes(b"actor_steps,return\n1,5\n\xff,\x80\n2,7\n")
    (tmp_path / "noise.csv").write_bytes(b"\xff\xfe\n")
    curve = plotting.read_curve(tmp_path, "evaluator/return")
    np.testing.assert_array_equal(curve.values, [5, 7])
    (tmp_path / "noise.csv").write_bytes(b"x" * 200_000 + b"\n")
    with pytest.raises(ValueError, match="noise.csv must be a CSV file with a comma as delimiter: "):
        plotting.read_curve(tmp_path, "evaluator/return")


def test_a_curve_is_made_of_rows_as_it_is_read_from_a_file(tmp_path):
    rows = [
        {"actor_steps": 0, "episode_return": 0},
        {"actor_steps": 10, "episode_return": 5.0},
        {"actor_steps": 20, "episode_return": 9.0},
        {"actor_steps": 10, "episode_return": 6.0, "loss": 1.0},  # resumed there
        {"actor_steps": 30, "episode_return": None},
        {"actor_steps": 40, "episode_return": float("nan")},
    ]
    assert as_lists(plotting.make_curve(iter(rows), "episode_return")) == ([0, 10], [0, 6])
    text = [{name: str(value) for name, value in row.items()} for row in rows]
    assert as_lists(plotting.make_curve(text, "episode_return")) == ([0, 10], [0, 6])
    assert as_lists(plotting.read_curve(str(write(tmp_path, rows[:3])), RETURN)) == ([0, 10, 20], [0, 5, 9])


def test_rows_may_count_something_else():
    rows = [{"epoch": 1, "loss": 4.0}, {"epoch": 2, "loss": 3.0}]
    assert as_lists(plotting.make_curve(rows, "loss", "epoch")) == ([1, 2], [4, 3])
    for metric, x, missing in (("q", "epoch", "q"), ("loss", "actor_steps", "actor_steps")):
        with pytest.raises(ValueError, match=f"`rows` must have the column '{missing}', got epoch, loss"):
            plotting.make_curve(rows, metric, x)
    with pytest.raises(ValueError, match="must have the column 'loss', got no row"):
        plotting.make_curve([], "loss")


def test_rows_that_cannot_be_drawn_are_named_in_the_warning(caplog):
    plotting.make_curve([{"actor_steps": 1, "loss": 1e35}], "loss")
    plotting.make_curve([{"actor_steps": 1, "loss": 1e35}], "loss", source="my.csv")
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["the rows", "my.csv"]
