"""For the tests of your own parts: fakes of the others, and each contract as tests to inherit."""

from minerva_acme.specs import check_conforms
from minerva_acme.testing.checks import assert_nests_equal, check_timestep, through_a_file
from minerva_acme.testing.conformance import (
    ActorConformance,
    AdderConformance,
    LearnerConformance,
    VariableSourceConformance,
)
from minerva_acme.testing.fakes import FakeActor, FakeEnvironment, FakeLearner, FakeLogger

__all__ = [
    "ActorConformance",
    "AdderConformance",
    "FakeActor",
    "FakeEnvironment",
    "FakeLearner",
    "FakeLogger",
    "LearnerConformance",
    "VariableSourceConformance",
    "assert_nests_equal",
    "check_conforms",
    "check_timestep",
    "through_a_file",
]
