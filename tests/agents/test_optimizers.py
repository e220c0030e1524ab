"""Every agent trains with the optimisers that its builder makes, and with no other."""

import itertools

import pytest
import torch

from minerva_acme import builders, counting, testing
from minerva_acme.agents import mpo

from .mpo import scene as mpo_scene


class Frozen:
    """Makes optimisers of one's own, that do not move anything, and keeps them."""

    def __init__(self, config):
        super().__init__(config)
        self.made = {}

    def make_optimizer(self, name, parameters):
        self.made[name] = [group["lr"] for group in parameters]
        return torch.optim.RMSprop([{**group, "lr": 0.0} for group in parameters])


def weights(learner):
    return {
        name: parameter.detach().clone()
        for module_name, module in learner._modules.items()
        for name, parameter in module.named_parameters(prefix=module_name)
    }


def check_nothing_moves(learner):
    before = weights(learner)
    assert before
    learner.run(num_steps=2)
    testing.assert_nests_equal(weights(learner), before, "Nothing but the builder's optimisers may train.")


def test_mpo_takes_the_optimisers_of_its_builder(continuous_spec):
    config = mpo_scene.SMALL
    builder = type("Own", (Frozen, mpo.MPOBuilder), {})(config)
    learner = builder.make_learner(
        builders.LearnerParts(
            networks=builder.make_networks(continuous_spec, torch.Generator().manual_seed(0)),
            dataset=(mpo_scene.Sample(mpo_scene.make_trajectory(seed=seed)) for seed in itertools.count()),
            spec=continuous_spec,
            counter=counting.Counter(),
            logger=testing.FakeLogger(),
            generator=torch.Generator().manual_seed(0),
            device=torch.device("cpu"),
        )
    )
    assert builder.made == {
        "policy": [config.policy_learning_rate],
        "critic": [config.critic_learning_rate],
        "duals": [config.temperature_learning_rate, config.alpha_learning_rate],
    }
    check_nothing_moves(learner)


@pytest.mark.parametrize("anneal", [True, False])
def test_on_policy_agents_take_the_optimisers_and_learning_rates_of_their_builder(
    agent, make_learner, continuous_spec, anneal
):
    config = agent.config(anneal_learning_rate=anneal)
    builder = type("Own", (Frozen, agent.builder_class), {})(config)
    learner, _, rows = make_learner(builder, continuous_spec, num_env_steps=16 * 4)
    made = {"network": [config.learning_rate]}
    if agent.name == "vmpo":
        made |= {"temperature": [config.temperature_learning_rate], "alphas": [config.alpha_learning_rate]}
    assert builder.made == made
    check_nothing_moves(learner)
    assert [row["learning_rate"] for row in rows] == [0.0, 0.0]


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
