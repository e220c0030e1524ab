"""Observers, which add metrics to the result of an `EnvironmentLoop`'s episode."""

from minerva_acme.observers.base import SummarisingObserver
from minerva_acme.observers.environment_info import EnvironmentInfo
from minerva_acme.observers.measurement import Measure, Measurement
from minerva_acme.observers.norms import ActionNorm, ObservationNorm
from minerva_acme.observers.statistics import ActionStatistics, ObservationStatistics

__all__ = [
    "ActionNorm",
    "ActionStatistics",
    "EnvironmentInfo",
    "Measure",
    "Measurement",
    "ObservationNorm",
    "ObservationStatistics",
    "SummarisingObserver",
]
