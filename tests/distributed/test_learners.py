"""Several learners side by side, in threads of this process."""

import pathlib

import pytest

from minerva_acme import distributed
from minerva_acme.runs import checkpointing
from tests.distributed import small

pytestmark = [pytest.mark.reverb, pytest.mark.timeout(120)]


@pytest.mark.parametrize(
    "builder",
    [
        small.sac_builder(),
        small.ppo_builder(),
        small.impala_builder(),
    ],
    ids=["sac", "ppo", "impala"],
)
def test_two_learners_make_the_steps_of_one(tmp_path: pathlib.Path, builder) -> None:
    config = small.experiment(tmp_path, builder, num_env_steps=320)
    result = distributed.run_distributed_experiment(config, num_actors=2, num_learners=2, engine="inline")
    state = checkpointing.load_state(checkpointing.find(tmp_path))
    due = builder.for_actors(2).num_learner_steps(result.env_steps)
    assert result.learner_steps == state["learner"]["num_steps"] == state["counter"]["learner_steps"]
    assert abs(result.learner_steps - due) <= max(2, 0.2 * due)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".learners")]
