"""The front of two rewards, from rows to the report."""

import dataclasses
import itertools

import numpy as np
import pytest

from minerva_acme import plotting, results
from minerva_acme.plotting import report_figures

WALKER = "dm_control/walker/walk"
MEANS = {"a": (9.0, 1.0), "b": (6.0, 4.0), "c": (5.0, 3.0), "d": (2.0, 6.0), "e": (9.0, 0.5)}


def experiment(name, x, y):
    """Two seeds, one by 1 above the mean and one below, and an earlier evaluation that does not count."""
    rows = []
    for seed, offset in enumerate((-1.0, 1.0)):
        for step, factor in ((0, 7.0), (1000, 1.0)):
            values = {"": x + y, "/return": x + offset, "/cost": y + offset}
            rows += [
                results.Row(name, WALKER, seed, f"avg_return{of}", step, factor * value)
                for of, value in values.items()
            ]
    return results.Experiment(exp_name=name, rows=tuple(rows), action_repeat=1)


EXPERIMENTS = [experiment(name, *means) for name, means in MEANS.items()]


def test_the_hypervolume_is_the_area_that_is_dominated():
    random = np.random.default_rng(0)
    points = [tuple(map(int, point)) for point in random.integers(0, 12, size=(9, 2))]
    reference = (2, 3)
    cells = itertools.product(range(2, 12), range(3, 12))  # of side 1, each by its lower corner
    area = sum(any(x > left and y > low for x, y in points) for left, low in cells)
    assert plotting.hypervolume(points, reference) == area > 0
    assert plotting.hypervolume([], reference) == plotting.hypervolume([(2, 9)], reference) == 0.0


def test_means_over_seeds_of_the_last_evaluation_are_compared():
    (front,) = plotting.make_fronts(EXPERIMENTS)
    assert (front.env_name, front.x_name, front.y_name) == (WALKER, "cost", "return")
    assert {point.label: (point.y, point.x) for point in front.points} == MEANS
    assert [point.label for point in front.points if point.is_dominated] == ["c", "e"]
    assert {point.num_seeds for point in front.points} == {2}
    assert front.reference == (-0.5, 1.0)
    # Steps of 1.5, 3 and 2 above -0.5, as far as 9, 6 and 2 from 1.
    assert front.hypervolume == pytest.approx(1.5 * 8 + 3 * 5 + 2 * 1)


def test_the_report_has_the_front_as_a_table_and_a_figure():
    made = plotting.make_report(EXPERIMENTS)
    (found,) = (table for table in made.tables if table.title.startswith("Trade-off on Walker walk"))
    assert found.figure == "front_0" and "Hypervolume 29" in found.note
    assert dict(zip(found.columns, found.rows[2], strict=True)) == {
        "": "c",
        "seeds": "2",
        "cost": "3.0",
        "return": "5.0",
        "dominated": "yes",
    }
    figure = report_figures.draw_front(made.fronts[0])
    lines = [line.get_xydata().tolist() for line in figure.axes[0].get_lines()]
    assert lines[0] == [[1.0, 9.0], [4.0, 6.0], [6.0, 2.0]] and len(lines) == 6


def test_runs_that_are_left_out_of_a_report_are_in_none_of_its_parts():
    """Neither in its fronts, nor among what produced it."""
    elsewhere = [
        dataclasses.replace(
            one, rows=(*one.rows, *(row._replace(env_name="dm_control/cheetah/run") for row in more))
        )
        for one in EXPERIMENTS
        for more in [[row for row in one.rows if row.seed == 0]]
    ]
    made = plotting.make_report(elsewhere, min_seeds=2)
    assert made.fronts == plotting.make_fronts(EXPERIMENTS)
    assert [table.title for table in made.tables if "Trade-off" in table.title] == [
        "Trade-off on Walker walk: cost and return"
    ]
    (produced,) = (table for table in made.tables if table.title == "What produced them")
    assert [row[1:3] for row in produced.rows] == [["2", "Walker walk 1,000"]] * len(MEANS)
    assert len(plotting.make_report(elsewhere).fronts) == 2


def test_without_several_rewards_there_is_no_front():
    rows = [row for row in EXPERIMENTS[0].rows if row.metric != "avg_return/cost"]
    assert plotting.make_fronts([results.Experiment(exp_name="a", rows=tuple(rows), action_repeat=1)]) == []
    without = [
        row._replace(seed=row.seed + 5 * (row.metric == "avg_return/cost")) for row in EXPERIMENTS[0].rows
    ]
    assert (
        plotting.make_fronts([results.Experiment(exp_name="a", rows=tuple(without), action_repeat=1)]) == []
    )
