"""Tools to test your own parts: fakes of the other parts, and each contract as tests to inherit."""

from minerva_acme.specs import check_conforms, check_timestep
from minerva_acme.testing.batched import BatchedEnvironmentConformance, FakeBatchedEnvironment
from minerva_acme.testing.checks import assert_nests_equal, read_items, through_a_file
from minerva_acme.testing.conformance import (
    ActorConformance,
    AdderConformance,
    LearnerConformance,
    VariableSourceConformance,
)
from minerva_acme.testing.dataset_conformance import DatasetConformance
from minerva_acme.testing.environment_conformance import EnvironmentConformance, WrapperConformance
from minerva_acme.testing.fakes import FakeActor, FakeEnvironment, FakeLearner, FakeLogger, RepeatedBatch
from minerva_acme.testing.logger_conformance import LoggerConformance
from minerva_acme.testing.observer_conformance import ObserverConformance
from minerva_acme.testing.selector_conformance import SelectorConformance
from minerva_acme.testing.vector_conformance import VectorEnvironmentConformance

__all__ = [
    "ActorConformance",
    "AdderConformance",
    "BatchedEnvironmentConformance",
    "DatasetConformance",
    "EnvironmentConformance",
    "FakeActor",
    "FakeBatchedEnvironment",
    "FakeEnvironment",
    "FakeLearner",
    "FakeLogger",
    "LearnerConformance",
    "LoggerConformance",
    "ObserverConformance",
    "RepeatedBatch",
    "SelectorConformance",
    "VariableSourceConformance",
    "VectorEnvironmentConformance",
    "WrapperConformance",
    "assert_nests_equal",
    "check_conforms",
    "check_timestep",
    "read_items",
    "through_a_file",
]
