"""Verifies that weights still reach the score that is stored with them."""

import math
import os
import pathlib
from typing import NamedTuple

import numpy as np

from minerva_acme.runs import evaluation, options, policies, run_results

STANDARD_ERRORS = 3.0
"""The allowed difference of two scores, in standard errors of that difference."""

ARITHMETIC = 0.005
"""An additional allowed difference, relative to the score: CPUs round differently, and environments amplify
small differences."""


class Verdict(NamedTuple):
    """The stored score of weights, and the score that they reach now."""

    stored: policies.Score
    played: evaluation.Evaluation
    mean: float  # of the stored score's metric
    tolerance: float  # the allowed difference of the means
    is_same: bool


def score(
    run: str | os.PathLike[str],
    file: str | os.PathLike[str],
    num_episodes: int,
    *,
    import_code: bool = False,
) -> policies.Score:
    """Plays the weights in a file that was exported from a run, and stores their score in it.

    The score is of the run's `metric`, if the episodes have it, or else of the return. The run's own weights
    play the same episodes, whose initial states were not seen in training. This shows the effect of rounding
    the weights.

    Args:
        run: The folder of the run, or of the checkpoint that was exported.
        file: The file that `export_policy` wrote; it is replaced as a whole.
        num_episodes: The number of episodes to play, >= 2.
        import_code: As for `load_policy`.

    Raises:
        ValueError: There are too few episodes, or as for `load_policy`.
    """
    _check_number(num_episodes)
    found, path = policies.find(run), pathlib.Path(file)
    seed = run_results.UNSEEN_SEED + found.description.seed
    metric = found.description.options.get("metric", options.RETURN)
    exported = evaluation.play(policies.find(path), num_episodes, seed, import_code, metric)
    own = evaluation.play(found, num_episodes, seed, import_code, metric)
    if not (exported.values(metric) and own.values(metric)):  # measured by observers, in Python alone
        metric = options.RETURN
    mean, std = exported.score(metric), float(np.std(exported.values(metric)))
    result = policies.Score(mean, std, num_episodes, seed, abs(mean - own.score(metric)), metric)
    policies.note_score(path, result)
    return result


def verify(
    file: str | os.PathLike[str],
    *,
    num_episodes: int | None = None,
    seed: int | None = None,
    import_code: bool = False,
) -> Verdict:
    """Plays weights and compares their mean score with the stored one.

    The tolerance is the sum of `STANDARD_ERRORS` standard errors of the difference, the effect of rounding
    the weights when the score was stored, and the fraction `ARITHMETIC` of the score.

    Args:
        file: A file of weights with a score, or the name of such weights installed with the library.
        num_episodes: The number of episodes to play, >= 2; by default the same as for the stored score.
        seed: The seed of the initial states; by default the same as for the stored score.
        import_code: Whether code that is not part of this library may be imported.

    Raises:
        ValueError: There is no such file, it has no score, or there are too few episodes.
        ImportError: The environment needs a package that is not installed.
    """
    found = policies.find(file)
    stored = found.score
    if stored is None:
        raise ValueError(
            f"{file} must have a score to compare with, but has none. Store it when writing the file: "
            "minerva export RUN --episodes 10"
        )
    num_episodes = stored.num_episodes if num_episodes is None else num_episodes
    _check_number(num_episodes)
    seed = stored.seed if seed is None else seed
    played = evaluation.play(found, num_episodes, seed, import_code, stored.metric)
    scores = played.values(stored.metric)
    if not scores:
        raise ValueError(
            f"The environment of {file} must report '{stored.metric}', of which the score is, in every "
            "episode, but does not. Use the version of it that the weights were exported with."
        )
    mean, std = played.score(stored.metric), float(np.std(scores))
    error = math.hypot(stored.std / math.sqrt(stored.num_episodes - 1), std / math.sqrt(num_episodes - 1))
    tolerance = STANDARD_ERRORS * error + stored.rounding + ARITHMETIC * abs(stored.mean)
    return Verdict(stored, played, mean, tolerance, abs(mean - stored.mean) <= tolerance)


def _check_number(num_episodes: int) -> None:
    if num_episodes < 2:
        raise ValueError(
            f"`episodes` must be >= 2, got {num_episodes}. One episode says nothing about the spread."
        )
