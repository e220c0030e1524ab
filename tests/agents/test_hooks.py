"""Every agent has the same hooks, and an override takes effect: its encoder and the class of its learner."""

import pytest
import torch
from torch import nn

from minerva_acme import learners, networks
from minerva_acme.agents import registry

from . import table

pytestmark = pytest.mark.promise("Overriding `make_encoder` and `learner_class` works for every agent")

NUM_FEATURES = 5


class Features(networks.Encoder):
    """An encoder with weights, of a size that nothing else here has."""

    def __init__(self, spec, generator):
        super().__init__()
        self.output_size = NUM_FEATURES
        self.mine = nn.Linear(spec.observations.shape[0], NUM_FEATURES)
        with torch.no_grad():
            for parameter in self.mine.parameters():
                parameter.uniform_(-1.0, 1.0, generator=generator)
        self.before = self.mine.weight.detach().clone()

    def forward(self, observation):
        return torch.tanh(self.mine(observation))


@pytest.mark.parametrize("name", registry.AGENTS)
def test_an_own_learner_class_trains_an_own_encoder_that_is_acted_by(name):
    agent, made = registry.AGENTS[name].builder, []
    assert issubclass(agent.learner_class, learners.ModuleLearner)

    class Mine(agent.learner_class):
        def finish_step(self, metrics):
            super().finish_step({**metrics, "mine": 1.0})

    def make_encoder(self, spec, generator):
        made.append(Features(spec, generator))
        return made[-1]

    # Or the size of r2d2's state is read from networks that are made for it alone.
    scene = table.Scene(name, {"stored_state": False} if name == "r2d2" else {})
    batches = [scene.make_batch(seed) for seed in range(2)]
    own = type("Own", (), dict(make_encoder=make_encoder, learner_class=Mine))
    builder = scene.builder(own)
    policy = scene.policy(builder, evaluation=True)
    made.clear()
    learner, rows = scene.make(batches, builder=builder)
    learner.run(num_steps=2)  # TD3's policy learns in every second one
    assert type(learner) is Mine and rows[-1]["mine"] == 1.0
    is_trained = [not torch.equal(encoder.mine.weight, encoder.before) for encoder in made]
    # With a memory, more networks are made, for the spec of their state alone.
    assert any(is_trained) if name == "r2d2" else made and all(is_trained)
    policy.set_variables(learner.get_variables(builder.policy_variables))
    acted_by = [weight for key, weight in policy.module.state_dict().items() if key.endswith("mine.weight")]
    assert acted_by and all(any(torch.equal(x, encoder.mine.weight) for encoder in made) for x in acted_by)


@pytest.mark.parametrize("name", table.VECTORS)
@pytest.mark.parametrize("shared", [False, True])
def test_policy_and_critics_share_an_encoder_of_ones_own_where_the_config_says_so(name, shared):
    made = []

    def make_encoder(self, spec, generator):
        made.append(Features(spec, generator))
        return made[-1]

    scene = table.Scene(name, {"shared_encoder": shared})
    nets = scene.networks(scene.builder(type("Own", (), {"make_encoder": make_encoder})))
    values = {nets.value.encoder} if hasattr(nets, "value") else set()  # shared with nobody
    assert len(made) == (1 if shared else 2) + len(values)
    assert {nets.policy.encoder, nets.critic.encoder} | values == set(made)
