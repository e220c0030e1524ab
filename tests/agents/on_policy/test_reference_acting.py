"""What actors record is what the reference says of their actions, and what the scene is built on."""

import pytest
import torch

from ..conftest import BOTH
from . import reference, scene


@pytest.fixture(params=scene.ACTIONS)
def actions(request):
    return request.param


@pytest.fixture(params=scene.NETWORKS)
def options(request, actions):
    return scene.OPTIONS | scene.NETWORKS[request.param] | scene.ACTIONS[actions]


def make(builder, spec):
    generator = torch.Generator().manual_seed(0)
    network = builder.make_networks(spec, generator)
    scene.vary(network, generator)
    rollout = scene.collect(builder, spec, network, generator)
    plain = reference.OnPolicyReference(
        state=network.state_dict(), spec=spec, config=builder.config, num_updates=None
    )
    observation = plain.network.normalize(rollout.observation.flatten(0, 1).double(), plain.seen)
    return plain, rollout, observation


@BOTH
def test_actions_and_their_densities_are_the_plain_ones(agent, actions, options):
    plain, rollout, observation = make(agent.builder(**options), scene.make_spec(actions))
    extras = rollout.extras
    raw = extras.raw_action.flatten(0, 1)
    if actions != "categorical":
        raw = raw.double()
        assert (raw.std(dim=0) > 0.5).all()
    policy = plain.network.policy(observation)
    executed = plain.actions.executed(raw)
    torch.testing.assert_close(rollout.action.flatten(0, 1), executed, rtol=0.0, atol=1e-5, check_dtype=False)
    log_prob = policy.log_prob(raw)
    torch.testing.assert_close(extras.log_prob.flatten().double(), log_prob, rtol=1e-4, atol=1e-4)
    if agent.name == "ppo":
        assert extras.parameters == ()
    elif actions == "categorical":
        logits = extras.parameters.logits.flatten(0, 1).double()
        torch.testing.assert_close(logits.log_softmax(dim=1), policy.logits, rtol=1e-4, atol=1e-4)
    else:
        mean, log_std = (part.flatten(0, 1).double() for part in extras.parameters)
        torch.testing.assert_close(mean, policy.base_dist.loc, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(log_std.exp(), policy.base_dist.scale, rtol=1e-4, atol=1e-4)


def test_the_scenes_networks_say_something_else_in_every_state(ppo_agent, actions, options):
    plain, _, observation = make(ppo_agent.builder(**options), scene.make_spec(actions))
    policy, value = plain.network.policy(observation), plain.network.value(observation)
    assert value.std() > 0.3
    if actions == "categorical":
        assert policy.probs.std(dim=0).mean() > 0.05
        return
    assert policy.base_dist.loc.std(dim=0).mean() > 0.3
    deviation = policy.base_dist.scale.log().std(dim=0).mean()
    assert deviation > 0.1 if options["state_dependent_stddev"] else deviation == 0.0
