"""Behaviour: what is executed, and what is recorded of it."""

import copy

import numpy as np
import pytest
import torch
import tree

from minerva_acme import core, distributions, specs, testing
from tests.closeness import assert_close_to_norm

OBSERVATIONS = np.array([[0.1, -0.2, 0.3], [2.0, 1.0, -1.0]], np.float32)


@pytest.fixture
def bounded_spec():
    # Actions in [-1, 1] and [-2, 3].
    return specs.make_environment_spec(testing.FakeEnvironment.bounded())


def make_policy(builder, spec, evaluation=False):
    generator = torch.Generator().manual_seed(0)
    network = builder.make_networks(spec, generator)
    return builder.make_policy(network, spec, generator, evaluation=evaluation), network


def test_one_observation_is_acted_on_as_a_batch_of_one(agent, spec):
    batched, _ = make_policy(agent.builder(), spec)
    single, _ = make_policy(agent.builder(), spec)
    expected = tree.map_structure(lambda leaf: leaf[0], batched.batch(OBSERVATIONS[:1]))
    testing.assert_nests_equal(single(OBSERVATIONS[0]), expected, "One observation is a batch of one.")
    specs.check_conforms("action", single(OBSERVATIONS[0]).action, spec.actions)


def test_clipped_actions_have_the_density_of_the_raw_one(ppo_agent, bounded_spec):
    policy, network = make_policy(ppo_agent.builder(init_stddev=3.0), bounded_spec)
    distribution = network.policy(torch.from_numpy(OBSERVATIONS))
    clipped = 0
    for _ in range(30):
        action, extras = policy.batch(OBSERVATIONS)
        raw = extras.raw_action
        np.testing.assert_array_equal(action, np.clip(raw, [-1.0, -2.0], [1.0, 3.0]))
        np.testing.assert_allclose(
            extras.log_prob, distribution.log_prob(torch.from_numpy(raw)).detach(), rtol=1e-5
        )
        assert extras.parameters == ()
        clipped += (action != raw).any()
    assert clipped > 0


def test_squashed_actions_are_recorded_with_the_density_of_the_raw_one(vmpo_agent, bounded_spec):
    policy, network = make_policy(vmpo_agent.builder(), bounded_spec)
    mean, log_std = network.policy(torch.from_numpy(OBSERVATIONS))
    squash = torch.distributions.ComposeTransform(
        [
            torch.distributions.TanhTransform(),
            torch.distributions.AffineTransform(torch.tensor([0.0, 0.5]), torch.tensor([1.0, 2.5])),
        ]
    )
    normal = torch.distributions.Normal(mean.detach(), log_std.detach().exp())
    for _ in range(5):
        action, extras = policy.batch(OBSERVATIONS)
        expected = squash(torch.from_numpy(extras.raw_action))
        assert_close_to_norm(action, expected)
        np.testing.assert_allclose(
            extras.log_prob,
            normal.log_prob(torch.from_numpy(extras.raw_action)).sum(dim=1),
            rtol=1e-5,
            atol=1e-5,
        )
        assert_close_to_norm(extras.parameters.mean, mean.detach())
        assert_close_to_norm(extras.parameters.log_std, log_std.detach())


@pytest.mark.parametrize("squashes", [False, True])
@pytest.mark.parametrize("acceleration", ["auto", "off"])
def test_the_natural_ratio_on_policy_is_1(agent, bounded_spec, squashes, acceleration):
    policy, network = make_policy(
        agent.builder(squash_actions=squashes, acceleration=acceleration), bounded_spec
    )
    for _ in range(5):
        _, extras = policy.batch(OBSERVATIONS)
        with torch.no_grad():
            log_prob = network.policy(torch.from_numpy(OBSERVATIONS)).log_prob(
                torch.from_numpy(extras.raw_action)
            )
        np.testing.assert_allclose(np.exp(log_prob.numpy() - extras.log_prob), 1.0, rtol=1e-5)


def test_squashed_actions_never_leave_their_bounds(vmpo_agent):
    # 0.1 + (1.3 - 0.1) is more than 1.3 in float32.
    spec = specs.make_environment_spec(
        testing.FakeEnvironment(action_spec=specs.BoundedArray((1,), np.float32, 0.1, 1.3, name="action"))
    )
    policy, _ = make_policy(vmpo_agent.builder(init_stddev=7.0), spec)
    for _ in range(50):
        action = policy.batch(OBSERVATIONS).action
        specs.check_conforms("action", action[0], spec.actions)
        specs.check_conforms("action", action[1], spec.actions)
    assert action.dtype == np.float32


def test_discrete_actions_have_their_probability(agent, discrete_spec):
    policy, network = make_policy(agent.builder(), discrete_spec)
    probabilities = network.policy(torch.from_numpy(OBSERVATIONS)).logits.softmax(dim=-1).detach().numpy()
    for _ in range(10):
        action, extras = policy.batch(OBSERVATIONS)
        assert action.dtype == discrete_spec.actions.dtype
        np.testing.assert_allclose(np.exp(extras.log_prob), probabilities[[0, 1], action], rtol=1e-5)
        np.testing.assert_array_equal(extras.raw_action, action)


def test_the_greedy_policy_executes_the_mode_and_records_nothing(agent, spec):
    policy, network = make_policy(agent.builder(), spec, evaluation=True)
    distribution = network.policy(torch.from_numpy(OBSERVATIONS))
    action, extras = policy.batch(OBSERVATIONS)
    mode = distribution.mode().detach()
    if isinstance(distribution, distributions.DiagonalGaussian) and agent.name == "vmpo":
        mode = torch.tanh(mode)
    assert_close_to_norm(action, mode)
    assert extras == ()


def test_acting_has_weights_of_its_own(agent, spec):
    policy, network = make_policy(agent.builder(), spec, evaluation=True)
    kept = {key: value.clone() for key, value in policy.module.state_dict().items()}
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 1.0
    assert all(torch.equal(value, kept[key]) for key, value in policy.module.state_dict().items())
    policy.set_variables([{key: value.numpy() for key, value in network.state_dict().items()}])
    for key, value in policy.module.state_dict().items():
        assert torch.equal(value, network.state_dict()[key])


def test_randomness_can_be_saved_and_restored(agent, spec):
    policy, _ = make_policy(agent.builder(), spec)
    state = testing.through_a_file(policy.save())
    first = [policy.batch(OBSERVATIONS) for _ in range(3)]
    policy.restore(state)
    testing.assert_nests_equal(
        [policy.batch(OBSERVATIONS) for _ in range(3)], first, "A restored policy must act alike."
    )


class TestContract(testing.ActorConformance):
    @pytest.fixture(autouse=True, params=["ppo", "vmpo"])
    def _agent(self, request, ppo_agent, vmpo_agent):
        self.agent = {"ppo": ppo_agent, "vmpo": vmpo_agent}[request.param]

    def make_environment(self):
        return testing.FakeEnvironment()

    def make_actor(self):
        return self.make_actor_of(None)

    def make_source(self):
        return Weights(self.make_network())

    def make_actor_with(self, adder):
        return self.make_actor_of(None, adder)

    def make_actor_of(self, source, adder=None):
        policy = self.agent.builder().make_policy(
            self.make_network(),
            specs.make_environment_spec(self.make_environment()),
            torch.Generator().manual_seed(1),
        )
        return self.agent.builder().make_actor(policy, source, adder)

    def make_network(self):
        spec = specs.make_environment_spec(self.make_environment())
        return self.agent.builder().make_networks(spec, torch.Generator().manual_seed(0))


class Weights(core.VariableSource):
    def __init__(self, network):
        self.state = {name: value.numpy() for name, value in network.state_dict().items()}

    def get_variables(self, names):
        return [copy.deepcopy({"network": self.state}[name]) for name in names]
