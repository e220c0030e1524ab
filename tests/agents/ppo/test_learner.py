import dataclasses

import pytest
import torch

from minerva_acme import learners
from minerva_acme.agents import on_policy
from minerva_acme.agents.ppo import learner as ppo_learner

from .. import table


# The settings of a loss go one way, and the number of epochs another.
@pytest.mark.parametrize("change", [{"entropy_coef": 10.0}, {"num_epochs": 1}])
@pytest.mark.parametrize("acceleration", ["auto", "off"])
def test_a_config_that_is_replaced_during_a_run_is_the_one_that_trains(
    ppo_agent, make_learner, continuous_spec, acceleration, change
):
    def weights(*changes):
        builder = ppo_agent.builder(acceleration=acceleration, num_epochs=2, minibatch_size=4)
        learner, network, _ = make_learner(builder, continuous_spec)
        for each in changes:
            learner.config = dataclasses.replace(learner.config, **each)
            learner.step()
        return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])

    assert not torch.allclose(weights({}, change), weights({}, {}), rtol=1e-3, atol=1e-5)


def test_an_epoch_beyond_the_kl_bound_is_the_last(ppo_agent, make_learner, continuous_spec):
    for target_kl, expected in ((1e-9, 1), (1e9, 6), (0.0, 6), (None, 6)):
        builder = ppo_agent.builder(target_kl=target_kl, num_epochs=6, learning_rate=1e-2)
        learner, _, rows = make_learner(builder, continuous_spec)
        learner.step()
        assert rows[0]["epochs"] == expected
        assert float(rows[0]["policy/approx_kl"]) > 1e-9


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (ppo_learner.PPOLearner, "_step_on"),
        (on_policy.RolloutLearner, "normalized"),
        (learners.Updates, "descend"),
    ],
)
def test_a_method_that_is_replaced_in_its_class_is_what_runs(owner, name, monkeypatch, said):
    scene = table.Scene("ppo")
    learner, _ = scene.make([scene.make_batch(0), scene.make_batch(1)])
    learner.step()
    assert said()[-1] == "PPO's updates: arrays, with hand-written gradients"
    written, calls = getattr(owner, name), []
    monkeypatch.setattr(owner, name, lambda *args: calls.append(1) or written(*args))
    learner.step()
    assert calls and said()[-1] == f"PPO's updates: autograd: {name} was replaced"


def test_the_group_is_the_one_that_steps_and_cannot_be_replaced():
    scene = table.Scene("ppo")
    learner, _ = scene.make([scene.make_batch(0)])
    assert learner.group is learner.updates.groups["network"]
    with pytest.raises(AttributeError):
        learner.group = None
