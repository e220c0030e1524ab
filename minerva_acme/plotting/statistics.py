"""The interquartile mean over a few seeds, and how uncertain it is.

    S seeds of a task, T tasks, N scores of all tasks together, K steps of the curves.

Source: Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (2021),
sections 4.1 (stratified bootstrap) and 4.3 (interquartile mean).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_TRIMMED = 0.25  # of the scores, at either end


class Interval(NamedTuple):
    """A confidence interval at each step."""

    low: np.ndarray  # [K]
    high: np.ndarray  # [K]


def interquartile_mean(scores: np.ndarray) -> np.ndarray:
    """Averages the middle half of the scores: less noisy than a median, unmoved by a few outliers.

    Of N scores floor(N / 4) are left out at each end; of fewer than four, none.

    Args:
        scores: [..., N], seeds and tasks together, N >= 1.

    Returns:
        [...].

    Raises:
        ValueError: there are no scores.
    """
    scores = np.asarray(scores, np.float64)
    if scores.ndim == 0 or scores.shape[-1] == 0:
        raise ValueError(f"`scores` must have shape [..., N] with N >= 1, got {list(scores.shape)}.")
    num_scores = scores.shape[-1]
    cut = int(_TRIMMED * num_scores)
    # It matters which scores are in the middle half, not their order there.
    parted = np.partition(scores, sorted({cut, num_scores - cut - 1}), axis=-1)
    return parted[..., cut : num_scores - cut].mean(axis=-1)


def bootstrap_interval(
    scores_by_task: Sequence[np.ndarray],
    *,
    generator: np.random.Generator,
    confidence: float = 0.95,
    num_resamples: int = 2000,
) -> Interval | None:
    """Returns the stratified percentile bootstrap interval of the interquartile mean.

    A resample draws S seeds of each task with replacement, the same ones at every step, since a seed is a
    whole curve. The interval holds the middle `confidence` of the resamples' interquartile means over
    seeds and tasks. With few seeds it is too narrow: see `nominal_coverage`.

    Args:
        scores_by_task: T arrays [S, K]; S may differ from task to task.
        generator: draws the resamples.
        confidence: in (0, 1).
        num_resamples: >= 1.

    Returns:
        The interval, or None if every task has a single seed, which says nothing about the spread.

    Raises:
        ValueError: an argument is out of its range, or the arrays' shapes do not fit.
    """
    scores_by_task = [np.asarray(scores, np.float64) for scores in scores_by_task]
    shapes = [list(scores.shape) for scores in scores_by_task]
    if not shapes or any(len(shape) != 2 or shape[0] == 0 or shape[1] != shapes[0][1] for shape in shapes):
        raise ValueError(
            f"`scores_by_task` must be arrays [seeds, steps] with the same steps, got shapes {shapes}."
        )
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"`confidence` must be in (0, 1), got {confidence}. 0.95 is usual.")
    if num_resamples < 1:
        raise ValueError(f"`num_resamples` must be >= 1, got {num_resamples}. 2000 is usual.")
    if all(len(scores) == 1 for scores in scores_by_task):
        return None
    scores = np.concatenate(scores_by_task)  # [N, K]
    sizes = [len(task) for task in scores_by_task]
    drawn = [generator.integers(size, size=(num_resamples, size)) for size in sizes]
    first_rows = np.cumsum([0, *sizes[:-1]])
    rows = np.concatenate([first + task for first, task in zip(first_rows, drawn, strict=True)], axis=-1)
    tail = (1.0 - confidence) / 2.0
    # One step at a time: all at once would need gigabytes.
    means = [interquartile_mean(column[rows]) for column in scores.T]  # K times [num_resamples]
    return Interval(*np.quantile(np.reshape(means, (-1, num_resamples)), [tail, 1.0 - tail], axis=-1))


def nominal_coverage(num_seeds: int) -> float | None:
    """Returns how often the 95 % bootstrap interval of one task's two or three seeds holds the median.

    With so few, the interval is the range from the lowest to the highest seed. It misses the median over
    all seeds only if the given ones are all on the same side of it, so it holds it with 1 - 2 / 2^S.

    Returns:
        0.5 for two seeds, 0.75 for three; None for other numbers, which have no such formula.
    """
    return 1.0 - 2.0 / 2.0**num_seeds if num_seeds in (2, 3) else None
