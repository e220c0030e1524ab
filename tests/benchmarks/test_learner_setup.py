"""The benchmarks of learners can be made for every agent that they measure."""

import copy
from typing import Any, cast

import pytest

from minerva_acme import testing
from tests.benchmarks import learner_setup, registry

AGENTS = [name.removesuffix("_learner") for name in registry.names() if name.endswith("_learner")]


@pytest.mark.parametrize("agent", sorted({*AGENTS} - {"mpo"}))
@pytest.mark.parametrize("mode", ["off", "auto"])
def test_a_learner_takes_steps(agent: str, mode: str) -> None:
    settings = {"rollout_steps": 32, "minibatch_size": 16, "num_epochs": 1} if agent == "ppo" else {}
    step = learner_setup.make_step(agent, mode, **settings)
    learner = cast(Any, step).__self__
    before = copy.deepcopy(learner.save())
    step()
    with pytest.raises(AssertionError):  # It has learned.
        testing.assert_nests_equal(learner.save(), before)
