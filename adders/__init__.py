"""Adders, which turn timesteps into replay items."""

if __name__ != "minerva_acme.adders":
    # Imported by its folder's name, from the repository's root. Every class would then exist twice.
    raise ImportError(
        f"`{__name__}` is installed as `minerva_acme.adders`: write `from minerva_acme.adders import ...`."
    )

from minerva_acme.adders.base import BaseAdder, Priority, Step
from minerva_acme.adders.batched import BatchedAdder
from minerva_acme.adders.continuing import ContinuingSequenceAdder
from minerva_acme.adders.episode import EpisodeAdder
from minerva_acme.adders.forking import ExtrasFilter, ForkingAdder
from minerva_acme.adders.n_step import NStepTransitionAdder
from minerva_acme.adders.rollout import RolloutAdder
from minerva_acme.adders.running_return import RunningReturnAdder
from minerva_acme.adders.sequence import (
    AtEnd,
    EndedEpisode,
    SequenceAdder,
    drop_short,
    pad_every_start,
    shift_back,
    write_short,
)

__all__ = [
    "AtEnd",
    "BaseAdder",
    "BatchedAdder",
    "ContinuingSequenceAdder",
    "EndedEpisode",
    "EpisodeAdder",
    "ExtrasFilter",
    "ForkingAdder",
    "NStepTransitionAdder",
    "Priority",
    "RolloutAdder",
    "RunningReturnAdder",
    "SequenceAdder",
    "Step",
    "drop_short",
    "pad_every_start",
    "shift_back",
    "write_short",
]
