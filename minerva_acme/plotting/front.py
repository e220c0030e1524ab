"""Trade-offs between two rewards: the experiments that no other one dominates, and the dominated area."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from minerva_acme import results


class Point(NamedTuple):
    """The mean returns of an experiment by two rewards."""

    label: str
    x: float
    y: float
    num_seeds: int
    is_dominated: bool  # whether another experiment is at least as good by both, and better by one


class Front(NamedTuple):
    """The trade-off of experiments between two rewards in one environment."""

    env_name: str
    x_name: str  # names of the rewards
    y_name: str
    points: Sequence[Point]
    reference: tuple[float, float]  # the lowest return of a run by each reward
    hypervolume: float  # of the points, above the reference


def make_fronts(experiments: Sequence[results.Experiment]) -> list[Front]:
    """Returns the trade-off of each pair of rewards, in each environment with several.

    A run counts with the returns of its last evaluation, an experiment with the mean over its seeds.
    """
    found: dict[tuple[str, str], dict[str, dict[int, tuple[int, float]]]] = {}
    for one in experiments:
        for row in one.rows:
            if row.metric.startswith(results.RETURN_OF):
                name = row.metric.removeprefix(results.RETURN_OF)
                runs = found.setdefault((row.env_name, name), {}).setdefault(one.exp_name, {})
                runs[row.seed] = max(runs.get(row.seed, (-1, 0.0)), (row.env_step, row.value))
    fronts = []
    for (env, x_name), (other_env, y_name) in itertools.combinations(sorted(found), 2):
        if env != other_env:
            continue
        x, y = found[env, x_name], found[env, y_name]
        by_label = {}
        for label in x:
            if seeds := sorted({*x[label]} & {*y.get(label, {})}):
                by_label[label] = np.array([(x[label][seed][1], y[label][seed][1]) for seed in seeds])
        if by_label:
            fronts.append(_make_front(env, x_name, y_name, by_label))
    return fronts


def hypervolume(points: Sequence[tuple[float, float]], reference: tuple[float, float]) -> float:
    """Computes the area that is dominated by at least one point, above a reference.

    Source: Zitzler and Thiele 1998, "Multiobjective optimization using evolutionary algorithms"; here both
    coordinates are to be as large as possible.

    Args:
        points: The points (x, y), in any order.
        reference: The corner below which nothing counts.
    """
    area, reached = 0.0, reference[1]
    for x, y in sorted(points, reverse=True):  # each adds what lies above those to its right
        if x > reference[0] and y > reached:
            area += (x - reference[0]) * (y - reached)
            reached = y
    return area


def _make_front(env: str, x_name: str, y_name: str, by_label: dict[str, np.ndarray]) -> Front:
    means = {label: (float(runs[:, 0].mean()), float(runs[:, 1].mean())) for label, runs in by_label.items()}
    every_run = np.concatenate([*by_label.values()])
    reference = float(every_run[:, 0].min()), float(every_run[:, 1].min())

    def is_dominated(label: str) -> bool:
        x, y = means[label]
        return any(other != (x, y) and other[0] >= x and other[1] >= y for other in means.values())

    points = [Point(label, *means[label], len(runs), is_dominated(label)) for label, runs in by_label.items()]
    return Front(env, x_name, y_name, points, reference, hypervolume([*means.values()], reference))
