"""Whether weights still reach the score that was noted beside them."""

import contextlib
import math
import os
import pathlib
from typing import NamedTuple

from minerva_acme.runs import evaluation, policies, run_results

STANDARD_ERRORS = 3.0
"""By how many standard errors of their difference two scores may differ."""

ARITHMETIC = 0.005
"""By what share of its size a score may differ besides, since another CPU rounds otherwise: an environment
makes much of little."""


class Verdict(NamedTuple):
    """What weights were said to reach, and what they reach."""

    stored: policies.Score
    played: evaluation.Evaluation
    tolerance: float  # of the return
    is_same: bool


def score(
    run: str | os.PathLike[str],
    file: str | os.PathLike[str],
    num_episodes: int,
    *,
    import_code: bool = False,
) -> policies.Score:
    """Plays a file that was exported from a run, and notes the score in it.

    The run's own weights play the same episodes, whose initial states were not seen in training. So it is
    known what rounding the weights has changed.

    Args:
        run: its folder, or that of the checkpoint that was exported.
        file: what `export_policy` wrote; it is replaced as a whole.
        num_episodes: >= 2.
        import_code: as for `load_policy`.

    Raises:
        ValueError: there are too few episodes, or as of `load_policy`.
    """
    if num_episodes < 2:
        raise ValueError(
            f"`episodes` must be >= 2, got {num_episodes}. One episode says nothing about the spread."
        )
    found, path = policies.find(run), pathlib.Path(file)
    seed = run_results.UNSEEN_SEED + found.description.seed
    exported = _play(policies.find(path), num_episodes, seed, import_code)
    own = _play(found, num_episodes, seed, import_code)
    result = policies.Score(
        exported.mean, exported.std, num_episodes, seed, rounding=abs(exported.mean - own.mean)
    )
    policies.note_score(path, result)
    return result


def verify(
    file: str | os.PathLike[str], *, num_episodes: int | None = None, seed: int | None = None
) -> Verdict:
    """Plays weights and compares their mean return with the noted one.

    They may differ by `STANDARD_ERRORS` of their difference, by what rounding the weights had changed when
    the score was noted, and by the share `ARITHMETIC` of it.

    Args:
        file: weights with a score, or the name of such that are installed with the library.
        num_episodes: to play, >= 2; by default as many as the score is of.
        seed: of the initial states; by default the score's.

    Raises:
        ValueError: there is no such file, or it has no score.
        ImportError: the environment needs a package that is not installed.
    """
    found = policies.find(file)
    stored = found.score
    if stored is None:
        raise ValueError(
            f"{file} must have a score to be compared with, but has none. Note it when the file is written: "
            "minerva export RUN --episodes 10"
        )
    num_episodes = stored.num_episodes if num_episodes is None else num_episodes
    if num_episodes < 2:
        raise ValueError(
            f"`episodes` must be >= 2, got {num_episodes}. One episode says nothing about the spread."
        )
    played = _play(found, num_episodes, stored.seed if seed is None else seed)
    error = math.hypot(
        stored.std / math.sqrt(stored.num_episodes - 1), played.std / math.sqrt(num_episodes - 1)
    )
    tolerance = STANDARD_ERRORS * error + stored.rounding + ARITHMETIC * abs(stored.mean)
    return Verdict(stored, played, tolerance, abs(played.mean - stored.mean) <= tolerance)


def _play(
    found: policies.Found, num_episodes: int, seed: int, import_code: bool = False
) -> evaluation.Evaluation:
    builder = found.description.make_builder(import_code=import_code)
    make_environment = found.description.make_environment_factory(import_code=import_code)
    with contextlib.closing(make_environment(seed)) as environment:
        return evaluation.evaluate_checkpoint(found.path, builder, environment, num_episodes)
