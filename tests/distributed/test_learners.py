"""Several learners side by side, in threads of this process."""

import contextlib
import pathlib

import pytest
import torch

from minerva_acme import counting, distributed, learners, specs, testing
from minerva_acme.experiments import parts, seeds
from minerva_acme.runs import checkpointing
from tests import side_by_side
from tests.distributed import small

pytestmark = [pytest.mark.reverb, pytest.mark.timeout(120), pytest.mark.usefixtures("looks_often")]


@pytest.mark.parametrize(
    "builder",
    [small.sac_builder(), small.ppo_builder(), small.impala_builder()],
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


def test_a_learner_that_does_not_average_its_gradients_is_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small.SavingBuilder, "make_dataset", lambda *_: iter(()))
    builder = small.saving_builder(lambda: None)  # its learner hides the one that has the ranks
    config, spec = small.experiment(tmp_path, builder), specs.make_environment_spec(small.Ramp(0))

    def make(ranks: learners.Ranks) -> None:
        with contextlib.ExitStack() as resources:
            parts.make_learner(
                config,
                checkpointing.Player(1),
                networks=builder.make_networks(spec, torch.Generator()),
                spec=spec,
                client=None,
                run_seeds=seeds.Seeds(0),
                counter=counting.Counter(),
                logger=testing.FakeLogger(),
                resources=resources,
                ranks=ranks,
            )

    for result in side_by_side.together(tmp_path / "ranks", make, may_fail=True):
        with pytest.raises(ValueError, match="`make_learner` of SavingBuilder must give the `ranks`"):
            raise result
