"""Published learning curves: means over seeds, with where they are from.

They are results of another kind than `rows`: of each only the mean and the standard deviation over the seeds
at a few steps is kept.
"""

import csv
import functools
import importlib.resources
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class PublishedPoint(NamedTuple):
    """What the seeds of one environment had reached at one step."""

    env_step: int  # frames: the environment's own steps, whatever the action repeat
    num_seeds: int
    mean: float  # return
    std: float  # of the return, over the seeds


class PublishedResult(NamedTuple):
    """What somebody else's agent reached."""

    exp_name: str
    title: str  # as people write it
    source: str  # the public repository
    commit: str
    path: str  # of the raw data in it
    licence: str
    action_repeat: int | None  # None: it differs between tasks, or is not known
    updates_per_frame: float | None  # learner steps; None: it differs, or is not known
    notes: str
    points: Mapping[str, tuple[PublishedPoint, ...]]  # by environment, in order of steps


@functools.cache
def load_published() -> Mapping[str, PublishedResult]:
    """Returns all that are installed with this library, by name."""
    folder = importlib.resources.files("minerva_acme.results")
    points: dict[str, dict[str, list[PublishedPoint]]] = {}
    text = (folder / "published.csv").read_text(encoding="utf-8")
    for cells in csv.DictReader(text.splitlines()):
        point = PublishedPoint(
            int(cells["env_step"]), int(cells["num_seeds"]), float(cells["mean"]), float(cells["std"])
        )
        points.setdefault(cells["exp_name"], {}).setdefault(cells["env_name"], []).append(point)
    sources = json.loads((folder / "published.json").read_text(encoding="utf-8"))
    return MappingProxyType(
        {
            name: PublishedResult(
                name,
                **source,
                points=MappingProxyType({env: tuple(sorted(found)) for env, found in points[name].items()}),
            )
            for name, source in sources.items()
        }
    )
