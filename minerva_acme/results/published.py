"""Published learning curves: means over seeds, with their sources.

Unlike `rows`, these results only have the mean and standard deviation over the seeds, at a few steps. A
number is what the seeds log at its step, or around it if they log training episodes: none is interpolated,
and no curve begins before its source does.
"""

import csv
import functools
import importlib.resources
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from minerva_acme.machine import reading


class PublishedPoint(NamedTuple):
    """The return in one environment at one step, over the seeds."""

    env_step: int  # frames: the environment's own steps, before action repeat
    num_seeds: int
    mean: float  # return
    std: float  # of the return, over the seeds


class PublishedResult(NamedTuple):
    """The results of an agent that others have published."""

    exp_name: str
    title: str  # for display
    source: str  # the public repository
    commit: str
    path: str  # path of the raw data in the repository
    licence: str
    action_repeat: int | None  # None: different between tasks, or unknown
    updates_per_frame: float | None  # learner steps per frame; None: different between tasks, or unknown
    log_period: int | None  # frames between the points of the source; None: it logs each training episode
    notes: str
    points: Mapping[str, tuple[PublishedPoint, ...]]  # by environment, in order of steps


@functools.cache
def load_published() -> Mapping[str, PublishedResult]:
    """Returns all published results that are installed with this library, by name."""
    folder = importlib.resources.files("minerva_acme.results")
    points: dict[str, dict[str, list[PublishedPoint]]] = {}
    text = (folder / "published.csv").read_text(encoding="utf-8")
    for cells in csv.DictReader(text.splitlines()):
        point = PublishedPoint(
            int(cells["env_step"]), int(cells["num_seeds"]), float(cells["mean"]), float(cells["std"])
        )
        env_name = f"dm_control/{cells['task']}"  # every row is of this suite
        points.setdefault(cells["exp_name"], {}).setdefault(env_name, []).append(point)
    sources = reading.json_text((folder / "published.json").read_bytes())
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
