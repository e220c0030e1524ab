"""Every agent has the same hooks, and an override takes effect: its encoder and the class of its learner."""

import dataclasses

import pytest
import torch
from torch import nn

from minerva_acme import learners, networks, specs, testing
from minerva_acme.agents import bc, dqn, impala, ppo, r2d2, registry, vmpo

from .conftest import TINY as TINY_ROLLOUTS
from .mpo import scene as mpo_scene
from .transition_scene import AGENTS as OF_TRANSITIONS
from .transition_scene import TINY as TINY_REPLAY
from .transition_scene import TINY as TINY_TRANSITIONS

CONFIGS = {
    "mpo": dataclasses.replace(mpo_scene.SMALL, samples_per_insert=4.0),
    "ppo": ppo.PPOConfig(**TINY_ROLLOUTS, minibatch_size=4, num_epochs=2),
    "bc": bc.BCConfig(**TINY_TRANSITIONS, policy_layer_sizes=(8,)),
    "vmpo": vmpo.VMPOConfig(**TINY_ROLLOUTS, m_steps=2),
    "impala": impala.IMPALAConfig(**TINY_ROLLOUTS),
    **{name: agent.make().config for name, agent in OF_TRANSITIONS.items()},
    "r2d2": r2d2.R2D2Config(
        memory_size=4,
        layer_sizes=(8,),
        burn_in=1,
        sequence_length=3,
        sequence_period=1,
        num_environments=1,
        stored_state=False,  # or its size is read from networks that are made for it alone
        **{name: TINY_REPLAY[name] for name in ("batch_size", "samples_per_insert", "min_replay_size")},
    ),
}
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


def make_builder(name, **members):
    """An agent's builder with members of its own, which keeps its learner as `learner`."""
    agent = registry.AGENTS[name].builder

    class Own(agent):
        def make_learner(self, parts):
            self.learner = super().make_learner(parts)
            return self.learner

    for member, value in members.items():
        setattr(Own, member, value)
    return Own(CONFIGS[name])


def train(run, builder):
    action_spec = specs.DiscreteArray(3) if isinstance(builder, dqn.DQNBuilder | r2d2.R2D2Builder) else None
    actions = {} if action_spec is None else {"action_spec": action_spec}
    run(builder, lambda seed: testing.FakeEnvironment(seed=seed, **actions), 32, replay="memory")
    assert builder.learner.num_steps > 0


def test_there_is_a_config_for_every_agent():
    assert CONFIGS.keys() == registry.AGENTS.keys()


@pytest.mark.parametrize("name", registry.AGENTS)
def test_a_learner_of_ones_own_class_trains_an_encoder_of_ones_own_that_is_acted_by(name, run):
    agent, made = registry.AGENTS[name].builder, []
    assert issubclass(agent.learner_class, learners.ModuleLearner)

    class Mine(agent.learner_class):
        def finish_step(self, metrics):
            super().finish_step({**metrics, "mine": 1.0})

    def make_encoder(self, spec, generator):
        made.append(Features(spec, generator))
        return made[-1]

    builder = make_builder(name, make_encoder=make_encoder, learner_class=Mine)
    train(run, builder)
    assert type(builder.learner) is Mine
    served = {key for module in builder.learner.get_variables(builder.policy_variables) for key in module}
    assert any(key.endswith("mine.weight") for key in served)
    is_trained = [not torch.equal(encoder.mine.weight, encoder.before) for encoder in made]
    # With a memory, more networks are made, for the spec of their state alone.
    assert any(is_trained) if name == "r2d2" else made and all(is_trained)


@pytest.mark.parametrize("name", ["sac", "td3", "d4pg", "crr", "iql"])
@pytest.mark.parametrize("shared", [False, True])
def test_policy_and_critics_share_an_encoder_of_ones_own_where_the_config_says_so(name, shared):
    made = []

    def make_encoder(self, spec, generator):
        made.append(Features(spec, generator))
        return made[-1]

    builder = make_builder(name, make_encoder=make_encoder)
    own = type(builder)(dataclasses.replace(builder.config, shared_encoder=shared))
    nets = own.make_networks(OF_TRANSITIONS[name].spec, torch.Generator().manual_seed(0))
    values = {nets.value.encoder} if name == "iql" else set()  # shared with nobody
    assert len(made) == (1 if shared else 2) + len(values)
    assert {nets.policy.encoder, nets.critic.encoder} | values == set(made)
