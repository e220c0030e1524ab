"""Critics and policies that the kit makes of a config."""

import numpy as np
import pytest
import torch

from minerva_acme import learners, networks, specs
from minerva_acme.agents import off_policy

from .. import transition_scene as scene

SPEC = scene.make_spec()


def make_critic(spec=SPEC, **config):
    config = off_policy.CriticConfig(**{"critic_layer_sizes": (8,), **config})
    return off_policy.make_critic(spec, config, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("head", ["scalar", "c51", "two_hot", "hl_gauss", "mixture"])
@pytest.mark.parametrize("num_critics", [1, 3])
@pytest.mark.parametrize("discrete", [False, True])
def test_a_critic_is_what_its_config_says(head, num_critics, discrete):
    critic = make_critic(scene.make_spec(discrete), critic_head=head, num_critics=num_critics)
    batch = scene.make_batch(scene.make_spec(discrete))
    prediction = critic(batch.observation) if discrete else critic(batch.observation, batch.action)
    assert len(prediction.members) == num_critics
    assert prediction.mean().shape == ((8, scene.NUM_ACTIONS) if discrete else (8,))
    kinds = {"scalar": networks.ScalarHead, "mixture": networks.MixtureOfGaussiansHead}
    for member in critic.critic.members:
        assert type(member.head) is kinds.get(head, networks.CategoricalCriticHead)
        assert isinstance(member.torso, networks.LayerNormMLP)


@pytest.mark.parametrize("head", ["c51", "two_hot", "hl_gauss"])
def test_a_categorical_head_spreads_targets_as_its_name_says(head):
    settings = {"vmin": -2.0, "vmax": 2.0, "num_bins": 9}
    critic = make_critic(critic_head=head, **settings)
    expected = networks.CategoricalCriticHead(8, projection=head, **settings)
    target = networks.ReturnDistribution(torch.tensor([[-1.0, 1.3]]), torch.tensor([[0.75, 0.25]]))
    for member in critic.critic.members:
        torch.testing.assert_close(member.head.project(target), expected.project(target))


def test_members_differ_and_the_rule_combines_them():
    batch = scene.make_batch(SPEC)
    for rule, combine in (("min", torch.amin), ("mean", torch.mean)):
        critic = make_critic(num_critics=2, critic_ensemble=rule)
        prediction = critic(batch.observation, batch.action)
        values = torch.stack([member.mean() for member in prediction.members])
        assert not torch.equal(values[0], values[1])
        torch.testing.assert_close(prediction.mean(), combine(values, dim=0))


@pytest.mark.parametrize("name", off_policy.TORSOS)
def test_the_torso_of_critics_and_policies_is_the_named_one(name):
    kind = off_policy.TORSOS[name]
    critic = make_critic(torso=name, critic_layer_sizes=(8, 8))
    gaussian, deterministic = (
        make(SPEC, (8, 8), torch.Generator().manual_seed(0), kind)
        for make in (off_policy.make_gaussian_policy, off_policy.make_deterministic_policy)
    )
    torsos = [critic.critic.members[0].torso, gaussian.policy.policy.torso, deterministic.policy[0]]
    assert [type(torso) for torso in torsos] == [kind] * 3


def test_actions_of_policies_stay_within_their_bounds_and_begin_in_the_middle():
    generator = torch.Generator().manual_seed(0)
    low, high = torch.tensor(scene.LOW), torch.tensor(scene.HIGH)
    observation = 100.0 * torch.randn(500, 3, generator=generator)
    torso = networks.LayerNormMLP
    action = off_policy.make_deterministic_policy(SPEC, (8,), generator, torso)(observation)
    assert (action - (low + high) / 2).abs().max() < 0.05
    policy = off_policy.make_gaussian_policy(SPEC, (8,), generator, torso)(observation)
    sample = policy.sample(generator)
    assert (sample >= low).all() and (sample <= high).all()
    assert (sample.amax(dim=0) > high - 0.1).all() and (sample.amin(dim=0) < low + 0.1).all()


def test_new_priorities_are_the_errors_of_the_mean_up_to_one():
    critic, batch = make_critic(critic_head="c51", vmin=-9.0, vmax=9.0), scene.make_batch(SPEC)
    prediction = critic(batch.observation, batch.action)
    offset = torch.tensor([0.0, 0.25, -0.25, 0.5, -0.5, 1.0, 3.0, -3.0])
    target = prediction.mean().detach() + offset
    spread = networks.ReturnDistribution(
        torch.stack([target - 1.0, target + 1.0], dim=-1), torch.full((8, 2), 0.5)
    )
    for same in (target, spread):
        loss = off_policy.regress(critic, learners.Batch(batch, 1.0), prediction, same)
        torch.testing.assert_close(loss.priorities, offset.abs().clamp(max=1.0), rtol=0.0, atol=1e-5)
        assert not loss.priorities.requires_grad
        torch.testing.assert_close(loss.metrics["q/target"], target.mean())


def test_images_and_nests_go_through_an_encoder_first():
    spec = SPEC._replace(
        observations={
            "camera": specs.BoundedArray((8, 8, 1), np.uint8, 0, 255),
            "x": specs.Array((2,), "float32"),
        }
    )
    critic = make_critic(spec)
    generator = torch.Generator().manual_seed(0)
    observation = {
        "camera": torch.randint(256, (8, 8, 8, 1), generator=generator, dtype=torch.uint8),
        "x": torch.randn(8, 2, generator=generator),
    }
    action = scene.make_batch(SPEC).action
    value = critic(observation, action).mean()
    for name in observation:
        changed = {**observation, name: observation[name].flip(0)}
        assert not torch.allclose(critic(changed, action).mean(), value)
