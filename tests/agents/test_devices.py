"""A learner's update keeps to its device, and reads it through one function alone.

Torch's meta device shows that on any machine: its tensors have no numbers, so that nothing can be read, and
refuse to be mixed with those of a CPU.
"""

import dataclasses

import pytest
import torch

from minerva_acme import learners
from minerva_acme.agents.mpo import targets
from minerva_acme.learners import finite

from . import transition_scene
from .mpo import scene as mpo_scene

META = torch.device("meta")


@pytest.fixture(autouse=True)
def reads(monkeypatch):
    """Every number that is read from the device is 1: all is finite, and each step of a rollout its last."""
    shapes = []

    def read(tensor):
        assert tensor.device == META
        shapes.append(tuple(tensor.shape))
        return torch.ones(tensor.shape, dtype=tensor.dtype).tolist()

    monkeypatch.setattr(finite, "read", read)
    monkeypatch.setattr(learners, "read", read)
    return shapes


@pytest.fixture
def descents(monkeypatch):
    """The names of the groups that make a step, whose gradients are read: optimisers here are not fused."""
    names, descend = [], learners.Updates.descend
    monkeypatch.setattr(
        learners.Updates, "descend", lambda self, name: names.append(name) or descend(self, name)
    )
    return names


def to_meta(batch):
    return torch.utils._pytree.tree_map(lambda leaf: leaf.to(META), batch)


def assert_steps_stay_on_the_device(learner, rows, num_steps=1):
    learner.run(num_steps=num_steps)
    assert len(rows) == num_steps
    tensors = {name: value for name, value in rows[-1].items() if isinstance(value, torch.Tensor)}
    assert {"loss/policy", "loss/q_network"} & tensors.keys()
    assert {name: value.device for name, value in tensors.items() if value.device != META} == {}
    state = learner.save()
    in_modules = [tensor for module in state["modules"].values() for tensor in module.values()]
    moments = [
        value
        for optimizer in state["updates"]["optimizers"].values()
        for moments in optimizer["state"].values()
        for name, value in moments.items()
        if name != "step"  # which torch keeps on the CPU where kernels are not fused
    ]
    assert in_modules and moments
    assert {tensor.device for tensor in in_modules + moments} == {META}


TARGETS = {
    "retrace": targets.retrace(lambda_=0.95, num_actions=3),
    "n_step": targets.n_step(num_actions=3),
    "one_step": targets.one_step(num_actions=3),
}


@pytest.mark.parametrize("target", TARGETS)
def test_mpo_with_each_target_keeps_to_the_device(continuous_spec, target, reads, descents):
    config = dataclasses.replace(mpo_scene.SMALL, critic_loss_steps="all")
    learner, rows = mpo_scene.make_learner(
        continuous_spec,
        mpo_scene.repeat(to_meta(mpo_scene.make_trajectory())),
        config,
        TARGETS[target],
        device=META,
    )
    assert_steps_stay_on_the_device(learner, rows, num_steps=2)
    assert descents == 2 * ["critic", "duals", "policy"]
    assert len(reads) == 2 + len(descents)  # what goes in, each step, and gradients


def test_the_policy_improved_in_all_states_takes_one_more_read(continuous_spec, reads, descents):
    learner, rows = mpo_scene.make_learner(
        continuous_spec,
        mpo_scene.repeat(to_meta(mpo_scene.make_trajectory())),
        dataclasses.replace(mpo_scene.SMALL, policy_loss_steps="all"),
        device=META,
    )
    assert_steps_stay_on_the_device(learner, rows)
    assert len(reads) == 2 + len(descents)  # and how many states there are


@pytest.mark.parametrize(
    "options",
    [
        {"action_penalty": True, "m_steps": 2, "per_dimension_constraint": False, "optimizer": "sgd"},
        {"target_precision": "bfloat16", "target_policy_update_period": 1, "target_critic_update_period": 1},
        {"acceleration": "off"},
    ],
    ids=str,
)
def test_mpo_with_other_options_keeps_to_the_device(continuous_spec, options):
    learner, rows = mpo_scene.make_learner(
        continuous_spec,
        mpo_scene.repeat(to_meta(mpo_scene.make_trajectory())),
        dataclasses.replace(mpo_scene.SMALL, **options),
        device=META,
    )
    assert_steps_stay_on_the_device(learner, rows, num_steps=2)  # the targets are copied before the second


def on_policy_learner(agent, make_rollout, make_learner, spec, **options):
    fewer = {"minibatch_size": 8, "num_epochs": 1} if agent.name == "ppo" else {}
    builder = agent.builder(**{**fewer, **options})
    network = builder.make_networks(spec, torch.Generator().manual_seed(0))
    rollout = to_meta(make_rollout(builder, network, spec))
    learner, _, rows = make_learner(builder, spec, [rollout] * 2, device=META, num_env_steps=160)
    return learner, rows


def test_on_policy_agents_keep_to_the_device(agent, make_rollout, make_learner, spec):
    learner, rows = on_policy_learner(agent, make_rollout, make_learner, spec)
    assert_steps_stay_on_the_device(learner, rows, num_steps=2)


@pytest.mark.parametrize(
    "options",
    [
        {"squash_actions": True, "advantage_estimator": "dae"},
        {"advantage_estimator": "returns", "squash_actions": False, "state_dependent_stddev": True},
        {"shared_torso": True, "torso": "layer_norm"},
        {"scale_rewards": False, "normalize_observations": False, "normalize_advantages": False},
        {"num_environments": 4, "acceleration": "off"},
    ],
    ids=str,
)
def test_on_policy_agents_with_other_options_keep_to_the_device(
    agent, make_rollout, make_learner, continuous_spec, options
):
    learner, rows = on_policy_learner(agent, make_rollout, make_learner, continuous_spec, **options)
    assert_steps_stay_on_the_device(learner, rows)


@pytest.mark.parametrize("name", transition_scene.AGENTS)
@pytest.mark.parametrize("critic_head", ["scalar", "c51"])
def test_agents_over_transitions_keep_to_the_device(name, critic_head, reads, descents):
    agent = transition_scene.AGENTS[name]
    batch = to_meta(transition_scene.make_batch(agent.spec))
    builder = agent.make(critic_head=critic_head)
    learner, _, rows = transition_scene.make_learner(builder, agent.spec, [batch] * 2, device=META)
    assert_steps_stay_on_the_device(learner, rows, num_steps=2)  # TD3 trains its policy every other time
    assert len(descents) >= 2 and len(reads) == 2 + len(descents)


def test_ppo_looks_at_its_kl_bound_through_the_same_function(
    ppo_agent, make_rollout, make_learner, continuous_spec
):
    learner, rows = on_policy_learner(
        ppo_agent, make_rollout, make_learner, continuous_spec, target_kl=0.5, num_epochs=3
    )
    assert_steps_stay_on_the_device(learner, rows)
    assert rows[-1]["epochs"] == 1  # 1 was read


def test_the_device_refuses_a_tensor_of_the_cpu(continuous_spec):
    """Or else the tests above would prove nothing."""

    def mistaken(trajectory, discount_t, policy, critic, generator):
        return trajectory.reward + torch.zeros(4, 5)

    learner, _ = mpo_scene.make_learner(
        continuous_spec,
        mpo_scene.repeat(to_meta(mpo_scene.make_trajectory())),
        critic_target=mistaken,
        device=META,
    )
    with pytest.raises(RuntimeError, match="meta"):
        learner.step()
