"""Several discrete choices at once: PPO and V-MPO learn each of them from what they see."""

import dm_env
import numpy as np
import pytest
import torch

from minerva_acme import networks, specs

from ..conftest import PPO, VMPO

NUM_VALUES = (2, 4, 3)
LOW = (0, -1, 5)
ACTION = specs.BoundedArray((3,), np.int32, LOW, np.add(LOW, NUM_VALUES) - 1, name="action")
SETTINGS = {"ppo": {"minibatch_size": 64, "num_epochs": 4}, "vmpo": {"m_steps": 10}}


class Locks(specs.SpecMethods, dm_env.Environment):
    """Shows a number in each of three places, and pays 1/3 for each that is chosen there; five steps."""

    def __init__(self, seed):
        self._specs = specs.EnvironmentSpec(
            specs.Array((sum(NUM_VALUES),), np.float32),
            ACTION,
            specs.Array((), np.float32),
            specs.BoundedArray((), np.float32, 0.0, 1.0),
        )
        self._random = np.random.default_rng(seed)

    def reset(self):
        self._count = 0
        return dm_env.restart(self._show())

    def step(self, action):
        ACTION.validate(action)
        self._count += 1
        reward = np.float32(np.mean(action - LOW == self._places))
        if self._count == 5:
            return dm_env.truncation(reward, self._show(), np.float32(1.0))
        return dm_env.transition(reward, self._show(), np.float32(1.0))

    def _show(self):
        self._places = self._random.integers(NUM_VALUES)
        return np.concatenate([np.eye(n)[k] for n, k in zip(NUM_VALUES, self._places, strict=True)]).astype(
            np.float32
        )


@pytest.mark.parametrize(
    "agent", [pytest.param(PPO, id="ppo"), pytest.param(VMPO, id="vmpo", marks=pytest.mark.learning)]
)
def test_every_choice_is_learned_and_actor_and_learner_agree_on_its_probability(agent, run):
    builder = agent.recording(
        policy_layer_sizes=(64,),
        value_layer_sizes=(64,),
        num_environments=8,
        rollout_steps=256,
        learning_rate=1e-2,
        anneal_learning_rate=False,
        discount=0.0,
        **SETTINGS[agent.name],
    )
    result = run(builder, Locks, 1536, evaluation_episodes=20, replay="memory")
    # At random a third of the choices pay, (1/2 + 1/4 + 1/3) / 3 of 5; two of three at most give 4.2.
    assert result.random.mean < 2.4
    assert result.after.mean > 4.5
    if agent.name == "ppo":
        assert max(row["policy/approx_kl_first"] for row in builder.rows) < 1e-6


def test_values_that_a_choice_does_not_have_are_never_drawn_and_get_no_gradient():
    generator = torch.Generator().manual_seed(0)
    head = networks.MultiCategoricalHead(5, NUM_VALUES, gain=1.0, generator=generator)
    policy = head(torch.randn(4, 5, generator=generator))
    action = policy.sample(generator, 2000)
    assert action.shape == (2000, 4, 3)
    assert action.amax(dim=(0, 1)).tolist() == [1, 3, 2]
    (policy.log_prob(action).sum() + policy.entropy().sum()).backward()
    gradient = head.logits.weight.grad.view(3, 4, 5)
    has_gradient = gradient.abs().sum(dim=-1) > 0
    assert has_gradient.tolist() == [[k < n for k in range(4)] for n in NUM_VALUES]


def test_a_layout_of_choices_starts_near_uniform_over_those_that_there_are():
    head = networks.MultiCategoricalHead(5, NUM_VALUES, gain=0.0, generator=torch.Generator().manual_seed(0))
    entropy = head(torch.ones(5)).entropy()
    torch.testing.assert_close(entropy, torch.tensor(np.log(NUM_VALUES).sum(), dtype=torch.float32))


@pytest.mark.parametrize("num_values", [(), (2, 0)])
def test_choices_without_values_are_refused(num_values):
    with pytest.raises(ValueError, match="must be >= 1, got 0"):
        networks.MultiCategoricalHead(5, num_values, gain=1.0)


def test_a_policy_for_torch_alone_chooses_what_the_actor_does(agent):
    builder = agent.builder(num_environments=1)
    spec = specs.make_environment_spec(Locks(0))
    network = builder.make_networks(spec, torch.Generator().manual_seed(3))
    policy = builder.make_policy(network, spec, torch.Generator(), evaluation=True)
    observations = np.random.default_rng(0).normal(size=(50, sum(NUM_VALUES))).astype(np.float32)
    actions = policy.batch(observations).action
    assert actions.dtype == np.int32 and len(np.unique(actions, axis=0)) > 3
    for action in actions:
        ACTION.validate(action)
    np.testing.assert_array_equal(policy.as_module()(torch.from_numpy(observations)).numpy(), actions)
