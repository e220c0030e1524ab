"""Learning curves of several runs at common steps, and published curves."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from minerva_acme import results
from minerva_acme.runs.run_curves import Curve

_MAX_POINTS = 200


class PublishedCurve(NamedTuple):
    """Results published by others: means over their seeds."""

    algorithm: str
    title: str  # for display
    num_seeds: int  # the smallest number at any point
    curve: Curve


def at_common_steps(curves: Sequence[Curve], max_points: int = _MAX_POINTS) -> Curve:
    """Interpolates curves to common steps, never beyond the steps of any of them.

    Curves with the same steps are unchanged. Otherwise the steps are those of the curve with the most
    points, from the latest first step to the earliest last step, and values between two points are
    interpolated linearly. In a curve with more than `max_points`, such as one of training episodes,
    neighbouring points are averaged first.

    Args:
        curves: S curves, at least one, each with at least one point.
        max_points: The maximum number of points of a curve, >= 2.

    Returns:
        The common steps [K] and the values [S, K].

    Raises:
        ValueError: An argument is out of range, or the curves have no steps in common.
    """
    if not curves or any(len(curve.x) == 0 for curve in curves):
        raise ValueError(f"`curves` must be curves with points, got {[len(c.x) for c in curves]}.")
    if max_points < 2:
        raise ValueError(f"`max_points` must be >= 2, got {max_points}.")
    curves = [thin(curve, max_points) for curve in curves]
    first = max(curve.x[0] for curve in curves)
    last = min(curve.x[-1] for curve in curves)
    if first > last:
        spans = ", ".join(f"{curve.x[0]:.0f}-{curve.x[-1]:.0f}" for curve in curves)
        raise ValueError(f"`curves` must have steps in common, got {spans}. Train the short runs for longer.")
    finest = max(curves, key=lambda curve: len(curve.x)).x
    steps = np.unique(np.clip(finest, first, last))
    return Curve(steps, np.stack([np.interp(steps, curve.x, curve.values) for curve in curves]))


def have_common_steps(curves: Sequence[Curve]) -> bool:
    """Returns whether `at_common_steps` has a step for these curves; each has at least one point."""
    thinned = list(map(thin, curves))
    return bool(max(curve.x[0] for curve in thinned) <= min(curve.x[-1] for curve in thinned))


def thin(curve: Curve, max_points: int = _MAX_POINTS) -> Curve:
    """Averages neighbouring points, steps and values alike, until there are at most `max_points`."""
    if len(curve.x) <= max_points:
        return curve
    ends = np.linspace(0, len(curve.x), max_points + 1).astype(int)
    return Curve(*(np.add.reduceat(array, ends[:-1]) / np.diff(ends) for array in curve))


def published_curves(environment_id: str, algorithms: Sequence[str] | None = None) -> list[PublishedCurve]:
    """Returns published curves of a dm_control task: mean return over seeds at frames.

    The curves come from `results.load_published`. Frames are the environment's own steps, before action
    repeat.

    Args:
        environment_id: The id `dm_control/<domain>/<task>`, without a repeat; other environments have no
            published curves.
        algorithms: The names of the published results, or None for all.

    Raises:
        ValueError: There is no published result with this name.
    """
    published = results.load_published()
    found = []
    for algorithm in published if algorithms is None else algorithms:
        if algorithm not in published:
            raise ValueError(f"`published` must be among {', '.join(published)}, got '{algorithm}'.")
        if points := published[algorithm].points.get(environment_id):
            steps, num_seeds, means, _ = np.array(points, float).T
            curve = Curve(steps, means)
            found.append(PublishedCurve(algorithm, published[algorithm].title, int(num_seeds.min()), curve))
    return found
