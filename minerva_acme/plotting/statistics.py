"""Statistics of an agent's scores over a few seeds of several tasks, with their uncertainty.

    S seeds of a task, T tasks, N scores of all tasks together, K steps of the curves, R resamples.

Source: Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (2021),
sections 4.1 (stratified bootstrap), 4.2 (performance profiles) and 4.3 (interquartile mean, probability of
improvement).
"""

from collections.abc import Callable, Sequence, Sized
from typing import NamedTuple

import numpy as np

NUM_RESAMPLES = 2000
"""The default number of resamples of a bootstrap."""

_TRIMMED = 0.25  # share of the scores, at each end
_ROUNDING = 1e-9  # of a weight


class Interval(NamedTuple):
    """A confidence interval at each step."""

    low: np.ndarray  # [K]
    high: np.ndarray  # [K]


def interquartile_mean(scores: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Averages the middle half of the scores: less noisy than a median, and robust to a few outliers.

    Of N scores, floor(N / 4) are left out at each end; of fewer than four, none. With weights, the share
    floor(N / 4) / N of their sum is left out at each end, and a score at the edge counts with the part of its
    weight that is inside. With 1 / S for each run of a task with S seeds, all tasks count alike; if their
    numbers of seeds are equal, this is the mean without weights.

    Args:
        scores: The scores of all seeds and tasks together, [..., N], N >= 1.
        weights: The weights of the scores, [N], > 0, or None for equal ones. Only their ratios matter.

    Returns:
        The means, [...].

    Raises:
        ValueError: There are no scores, or the weights are not one positive number for each.
    """
    scores = np.asarray(scores, np.float64)
    if scores.ndim == 0 or scores.shape[-1] == 0:
        raise ValueError(f"`scores` must have shape [..., N] with N >= 1, got {list(scores.shape)}.")
    num_scores = scores.shape[-1]
    weights = np.ones(num_scores) if weights is None else np.asarray(weights, np.float64)
    if weights.shape != (num_scores,) or not np.all(weights > 0.0):
        raise ValueError(f"`weights` must be {num_scores} numbers > 0, one for each score, got {weights}.")
    cut = int(_TRIMMED * num_scores)
    order = np.argsort(scores, axis=-1)
    sizes = (weights / weights.mean())[order]  # N in all
    ends = sizes.cumsum(axis=-1)
    kept = np.minimum(ends, num_scores - cut) - np.maximum(ends - sizes, cut)
    ordered = np.take_along_axis(scores, order, axis=-1)
    # What is left out, up to rounding, is not multiplied by 0: it may be infinite.
    inside = np.multiply(ordered, kept, out=np.zeros_like(kept), where=kept > _ROUNDING)
    means: np.ndarray = inside.sum(axis=-1) / (num_scores - 2 * cut)
    return means


def task_weights(by_task: Sequence[Sized]) -> np.ndarray:
    """Returns the weights [N] of the scores of T tasks, one task after the other, with which all count alike.

    Each of the S scores of a task has the weight N / (T S): 1 if all tasks have equally many.
    """
    num_scores = sum(map(len, by_task))
    return np.concatenate([np.full(len(task), num_scores / (len(by_task) * len(task))) for task in by_task])


def bootstrap_interval(
    scores_by_task: Sequence[np.ndarray],
    *,
    generator: np.random.Generator,
    statistic: Callable[[np.ndarray, np.ndarray], np.ndarray] = interquartile_mean,
    confidence: float = 0.95,
    num_resamples: int = NUM_RESAMPLES,
) -> Interval | None:
    """Returns the stratified percentile bootstrap interval of a statistic of all scores.

    A resample draws S seeds of each task with replacement, the same ones at every step, since a seed is a
    whole curve. The interval contains the middle `confidence` of the resamples' statistics over seeds and
    tasks, which all have equal weight. With few seeds it is too narrow: see `nominal_coverage`.

    Args:
        scores_by_task: The scores of T tasks, arrays [S, K]; S may differ from task to task.
        generator: The random generator of the resamples.
        statistic: A function from scores [..., N] and their weights [N] to [...]. The weights of a task's
            scores are equal, those of all tasks together too, and their mean is 1.
        confidence: The confidence level, in (0, 1).
        num_resamples: The number of resamples, >= 1.

    Returns:
        The interval, or None if every task has a single seed, which says nothing about the variance.

    Raises:
        ValueError: An argument is out of range, or the arrays' shapes do not match.
    """
    scores_by_task = _as_arrays("scores_by_task", scores_by_task)
    tail = _tail(confidence, num_resamples)
    if all(len(scores) == 1 for scores in scores_by_task):
        return None
    scores = np.concatenate(scores_by_task)  # [N, K]
    sizes = [len(task) for task in scores_by_task]
    first_rows = np.cumsum([0, *sizes[:-1]])
    drawn = [
        first + generator.integers(size, size=(num_resamples, size))
        for first, size in zip(first_rows, sizes, strict=True)
    ]
    rows = np.concatenate(drawn, axis=-1)  # [R, N]
    # One step at a time: all at once would need gigabytes.
    weights = task_weights(scores_by_task)
    values = [statistic(column[rows], weights) for column in scores.T]  # K times [R]
    return Interval(*np.quantile(np.reshape(values, (-1, num_resamples)), [tail, 1.0 - tail], axis=-1))


class Profile(NamedTuple):
    """The share of runs above each of K scores."""

    thresholds: np.ndarray  # [K]
    shares: np.ndarray  # [K], in [0, 1], decreasing
    interval: Interval | None  # None if every task has one seed


def performance_profile(
    scores_by_task: Sequence[np.ndarray], thresholds: np.ndarray, *, generator: np.random.Generator
) -> Profile:
    """Returns the run-score distribution: the share of runs above each threshold.

        F(tau) = 1 / T  sum_t  1 / S_t  sum_s  [score_ts > tau]

    (section 4.2), with its pointwise 95 % bootstrap interval. A curve that is above another one everywhere is
    better in every sense. All tasks have equal weight, even if their numbers of seeds differ.

    Args:
        scores_by_task: The scores of T tasks on one scale, arrays [S].
        thresholds: The thresholds, [K].
        generator: The random generator of the bootstrap.

    Raises:
        ValueError: The shapes do not match.
    """
    by_task = _as_arrays("scores_by_task", [np.asarray(scores)[..., None] for scores in scores_by_task])
    thresholds = np.asarray(thresholds, np.float64)
    above = [(task > thresholds).astype(np.float64) for task in by_task]

    def mean(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
        found: np.ndarray = (values * weights).mean(axis=-1)
        return found

    interval = bootstrap_interval(above, generator=generator, statistic=mean)
    return Profile(thresholds, mean(np.concatenate(above).T, task_weights(above)), interval)


class Improvement(NamedTuple):
    """The probability that a run of one agent is better than a run of another, on a random task."""

    probability: float
    interval: tuple[float, float] | None  # None if every task has one seed of each agent


def probability_of_improvement(
    scores_by_task: Sequence[np.ndarray],
    others_by_task: Sequence[np.ndarray],
    *,
    generator: np.random.Generator,
    confidence: float = 0.95,
    num_resamples: int = NUM_RESAMPLES,
) -> Improvement:
    """Returns the probability that X is better than Y, averaged over tasks.

        P(X > Y) = 1 / T  sum_t  1 / (S_t S'_t)  sum_s  sum_s'  ([x_ts > y_ts'] + [x_ts = y_ts'] / 2)

    (section 4.3): for each task the Mann-Whitney U statistic, divided by the number of pairs. The bootstrap
    resamples the seeds of each agent in each task independently. The result does not depend on the size of
    the differences.

    Args:
        scores_by_task: The scores of X in T tasks, arrays [S].
        others_by_task: The scores of Y in the same tasks, arrays [S'].
        generator: The random generator of the bootstrap.
        confidence: The confidence level, in (0, 1).
        num_resamples: The number of resamples, >= 1.

    Raises:
        ValueError: An argument is out of range, or the numbers of tasks differ.
    """
    ours, others = (
        [task[:, 0] for task in _as_arrays(name, [np.asarray(scores)[..., None] for scores in by_task])]
        for name, by_task in (("scores_by_task", scores_by_task), ("others_by_task", others_by_task))
    )
    tail = _tail(confidence, num_resamples)
    if len(ours) != len(others):
        raise ValueError(
            f"`others_by_task` must have the tasks of `scores_by_task`, got {len(others)} and {len(ours)}."
        )
    # One array [S, S'] per task.
    wins = [np.heaviside(x[:, None] - y, 0.5) for x, y in zip(ours, others, strict=True)]
    probability = float(np.mean([task.mean() for task in wins]))
    if all(task.size == 1 for task in wins):
        return Improvement(probability, None)
    resamples = np.zeros(num_resamples)
    for task in wins:
        rows, columns = (generator.integers(size, size=(num_resamples, size)) for size in task.shape)
        resamples += task[rows[:, :, None], columns[:, None, :]].mean(axis=(1, 2)) / len(wins)
    low, high = np.quantile(resamples, [tail, 1.0 - tail])
    return Improvement(probability, (float(low), float(high)))


def nominal_coverage(num_seeds: int) -> float | None:
    """Returns how often the 95 % bootstrap interval of two or three seeds of one task contains the median.

    With so few seeds, the interval is the range from the lowest to the highest one. It misses the median over
    all seeds only if the given ones are all on the same side of it, so it contains the median with
    probability 1 - 2 / 2^S.

    Returns:
        0.5 for two seeds, 0.75 for three; None for other numbers, which have no such formula.
    """
    return 1.0 - 2.0 / 2.0**num_seeds if num_seeds in (2, 3) else None


def _as_arrays(name: str, by_task: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Returns arrays [S, K], all with the same K.

    Raises:
        ValueError: The shapes are different; the message has the argument's name.
    """
    arrays = [np.asarray(scores, np.float64) for scores in by_task]
    shapes = [list(scores.shape) for scores in arrays]
    if not shapes or any(len(shape) != 2 or shape[0] == 0 or shape[1] != shapes[0][1] for shape in shapes):
        raise ValueError(f"`{name}` must be arrays [seeds, steps] with the same steps, got shapes {shapes}.")
    return arrays


def _tail(confidence: float, num_resamples: int) -> float:
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"`confidence` must be in (0, 1), got {confidence}. 0.95 is common.")
    if num_resamples < 1:
        raise ValueError(f"`num_resamples` must be >= 1, got {num_resamples}. {NUM_RESAMPLES} is common.")
    return (1.0 - confidence) / 2.0
