"""The learning rates of optimisers of one's own fall as those of the agent's do."""

import pytest
import torch

from minerva_acme import testing

pytestmark = pytest.mark.promise("Every agent trains only with its builder's optimisers")


def test_the_learning_rate_of_an_optimiser_of_ones_own_falls_from_where_it_starts(
    agent, make_learner, continuous_spec
):
    class Own(agent.builder_class):
        def make_optimizer(self, name, parameters):
            return torch.optim.SGD([{**group, "lr": 0.5} for group in parameters])

    builder = Own(agent.config(anneal_learning_rate=True))
    learner, _, rows = make_learner(builder, continuous_spec, num_env_steps=16 * 4)
    learner.run(num_steps=2)
    state = testing.through_a_file(learner.save())
    learner.step()
    other, _, other_rows = make_learner(Own(builder.config), continuous_spec, num_env_steps=16 * 4)
    other.restore(state)
    other.step()
    assert [row["learning_rate"] for row in rows] == [0.5, 0.375, 0.25]
    assert other_rows[-1]["learning_rate"] == 0.25
