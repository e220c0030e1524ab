"""What MPO has of today's frontier: normalised observations, and switches of optimisation and exploration.

Networks, weight decay, unit norms and falling rates are held by `test_reference_step.py`.
"""

import dataclasses

import numpy as np
import pytest
import torch
from scipy import stats

from minerva_acme import counting, networks, specs
from minerva_acme.agents import mpo
from tests.closeness import assert_close_to_norm

from .scene import SMALL, Sample, make_learner, make_trajectory, repeat

NORMALIZING = dataclasses.replace(SMALL, normalize_observations=True)


def shifted(trajectory):
    """The same sequences, far from mean 0 and variance 1."""
    scale, mean = torch.tensor([3.0, 0.2, 1.0]), torch.tensor([-2.0, 5.0, 0.5])
    return trajectory._replace(observation=trajectory.observation * scale + mean)


def statistics_of(state, name):
    return {key: state[name][f"encoder.normalizer.{key}"] for key in ("mean", "var", "count")}


def test_before_their_first_copy_targets_have_the_first_good_batchs_statistics(spec):
    batches = [shifted(make_trajectory(seed=seed)) for seed in range(3)]
    bad = batches[0]._replace(reward=torch.full_like(batches[0].reward, float("nan")))
    config = dataclasses.replace(
        NORMALIZING, target_policy_update_period=100, target_critic_update_period=100
    )
    learner, rows = make_learner(spec, map(Sample, [bad, *batches[1:]]), config)
    learner.run(num_steps=3)
    modules = learner.save()["modules"]
    for name, chosen in (("policy", batches[1:]), ("target_policy", batches[1:2])):
        firsts = torch.cat([batch.observation[:, 0] for batch in chosen])
        torch.testing.assert_close(
            statistics_of(modules, name)["mean"], firsts.mean(dim=0), rtol=1e-3, atol=1e-3
        )
    assert rows[1]["kl/mean_rel"] == pytest.approx(0.0, abs=1e-3)  # policy and prior see the same


@pytest.mark.parametrize("target_rate", [1.0, 0.5])
def test_targets_of_another_run_are_kept_in_the_first_step(spec, target_rate):
    config = dataclasses.replace(
        NORMALIZING,
        target_policy_update_period=2,
        target_critic_update_period=2,
        target_rate=target_rate,
    )
    other, _ = make_learner(spec, repeat(shifted(make_trajectory(seed=1))), config)
    other.run(num_steps=3)
    learner, _ = make_learner(spec, repeat(shifted(make_trajectory(seed=2))), config, seed=5)
    learner.restore({**learner.save(), "modules": other.save()["modules"]})
    before = learner.save()["modules"]["target_critic"]
    learner.step()
    found = learner.save()["modules"]["target_critic"]
    assert (target_rate == 1.0) == all(torch.equal(found[name], before[name]) for name in before)


def without_normalizer(state):
    """A learner's state with policies as they are where nothing is normalised."""
    modules = dict(state["modules"])
    for name in ("policy", "target_policy"):
        modules[name] = {
            key.removeprefix("policy."): value
            for key, value in modules[name].items()
            if key.startswith("policy.")
        }
    return {**state, "modules": modules}


def test_a_step_is_that_of_the_plain_learner_on_normalised_observations(spec):
    batch = shifted(make_trajectory(seed=3))
    config = dataclasses.replace(NORMALIZING, target_policy_update_period=1, target_critic_update_period=1)
    learner, _ = make_learner(spec, repeat(batch), config)
    learner.run(num_steps=2)  # The same rows once more leave mean and variance as they are.
    firsts = batch.observation[:, 0]
    mean, std = firsts.mean(dim=0), firsts.std(dim=0, correction=0)
    normalised = batch._replace(observation=(batch.observation - mean) / std)
    assert normalised.observation.abs().max() < networks.normalizer.CLIP
    plain_config = dataclasses.replace(config, normalize_observations=False)
    plain, _ = make_learner(spec, repeat(normalised), plain_config, seed=99)
    plain.restore(without_normalizer(learner.save()))
    before = without_normalizer(learner.save())["modules"]
    learner.step()
    plain.step()
    found, expected = without_normalizer(learner.save())["modules"], plain.save()["modules"]
    for module in expected:
        for name, tensor in expected[module].items():
            torch.testing.assert_close(found[module][name], tensor, rtol=1e-4, atol=1e-5)
    assert not torch.equal(found["policy"]["torso.0.weight"], before["policy"]["torso.0.weight"])


def test_acting_normalises_with_the_statistics_that_it_pulls(spec, said):
    learner, _ = make_learner(spec, repeat(shifted(make_trajectory(seed=5))), NORMALIZING)
    builder = mpo.MPOBuilder(NORMALIZING)
    generator = torch.Generator().manual_seed(0)
    parts = builder.make_networks(spec, generator)
    policy = builder.make_policy(parts, spec, generator, evaluation=True)
    assert said()[-1] == "acting: arrays"
    observation = np.array([-2.5, 5.1, 0.0], np.float32)
    policy(observation)
    learner.run(num_steps=3)
    policy.set_variables(learner.get_variables(builder.policy_variables))
    with torch.no_grad():
        mean = learner.networks.online.acting()(torch.from_numpy(observation)[None]).mean[0]
        raw = learner.networks.online.policy(torch.from_numpy(observation)[None]).mean[0]
    assert_close_to_norm(policy(observation).action, mean.clamp(-1.0, 1.0))
    assert (mean - raw).abs().max() > 1e-3  # so that it tells whether it is normalised


def test_rates_stay_where_nobody_knows_how_long_the_run_is(spec):
    config = dataclasses.replace(SMALL, final_learning_rate=0.0, policy_learning_rate=0.25)
    learner, _ = make_learner(spec, repeat(make_trajectory()), config)
    learner.run(num_steps=3)
    groups = learner.save()["updates"]["optimizers"]["policy"]["param_groups"]
    assert [group["lr"] for group in groups] == [0.25]


def raw_noise(policy, networks_, observations):
    """What the policy added to its mean, in standard deviations, at each observation."""
    noise = []
    for observation in observations:
        raw = policy(observation).extras.raw_action
        mean, log_std = (x.detach().numpy()[0] for x in networks_.policy(torch.from_numpy(observation)[None]))
        noise.append((raw - mean) / np.exp(log_std))
    return np.array(noise)


@pytest.mark.parametrize("acceleration", ["auto", "off"])
def test_noise_is_repeated_while_the_policy_moves_on(spec, acceleration):
    config = dataclasses.replace(SMALL, noise_repeat=3, acceleration=acceleration)
    builder = mpo.MPOBuilder(config)
    generator = torch.Generator().manual_seed(0)
    parts = builder.make_networks(spec, generator)
    policy = builder.make_policy(parts, spec, generator)
    observations = np.random.default_rng(1).standard_normal((9, 3), np.float32)
    first = raw_noise(policy, parts, observations[:4])
    state = policy.save()
    noise = np.concatenate([first, raw_noise(policy, parts, observations[4:])])
    for begin in (0, 3, 6):
        np.testing.assert_allclose(noise[begin : begin + 3], noise[[begin] * 3], rtol=1e-4, atol=1e-4)
    assert np.abs(np.diff(noise[::3], axis=0)).max() > 0.1
    policy.restore(state)  # in the middle of a repetition
    np.testing.assert_allclose(raw_noise(policy, parts, observations[4:]), noise[4:], rtol=1e-4, atol=1e-4)


def test_a_repeated_noise_has_the_density_of_the_policy(spec):
    builder = mpo.MPOBuilder(dataclasses.replace(SMALL, noise_repeat=4))
    generator = torch.Generator().manual_seed(0)
    parts = builder.make_networks(spec, generator)
    policy = builder.make_policy(parts, spec, generator)
    for observation in np.random.default_rng(1).standard_normal((6, 3), np.float32):
        extras = policy(observation).extras
        distribution = parts.policy(torch.from_numpy(observation)[None])
        expected = distribution.log_prob(torch.from_numpy(extras.raw_action)[None])
        np.testing.assert_allclose(extras.log_prob, expected.item(), rtol=1e-5)


def random_actions(acceleration="auto", num_steps=640, **settings):
    """The first actions of a policy whose random steps end after all but the last forty, and their extras."""
    actions = specs.BoundedArray((2,), np.float32, [-1.0, 2.0], [1.0, 6.0], name="action")
    spec = specs.EnvironmentSpec(
        observations=specs.Array((3,), np.float32),
        actions=actions,
        rewards=specs.Array((), np.float32),
        discounts=specs.BoundedArray((), np.float32, 0.0, 1.0),
    )
    config = dataclasses.replace(
        SMALL, random_steps=num_steps - 40, noise_repeat=4, acceleration=acceleration, **settings
    )
    builder, generator = mpo.MPOBuilder(config), torch.Generator().manual_seed(0)
    counter = counting.Counter()
    nets = builder.make_networks(spec, generator)
    policy = builder.make_policy(nets, spec, generator, counter=counter)
    observations = np.random.default_rng(1).standard_normal((num_steps, 3), np.float32)
    found = []
    for observation in observations:
        found.append(policy(observation))
        counter.increment(actor_steps=1)
    return found, nets, observations


@pytest.mark.parametrize("acceleration", ["auto", "off"])
def test_random_steps_are_uniform_and_kept_as_long_as_the_noise(acceleration):
    found, nets, observations = random_actions(acceleration)
    chosen = np.array([output.action for output in found[:-40]])
    np.testing.assert_allclose(chosen.reshape(-1, 4, 2), chosen[::4, None].repeat(4, axis=1), atol=1e-5)
    for samples, low, high in zip(chosen[::4].T, (-1.0, 2.0), (1.0, 6.0), strict=True):
        assert stats.kstest(samples, "uniform", (low, high - low)).pvalue > 0.01
    for output in found[:-40]:
        np.testing.assert_array_equal(output.extras.raw_action, output.action)
        assert output.extras.log_prob == pytest.approx(-np.log(2.0 * 4.0), rel=1e-6)
        assert output.extras.log_prob.dtype == output.extras.raw_action.dtype == np.float32
    for output, observation in zip(found[-40:], observations[-40:], strict=True):  # the policy's own
        distribution = nets.policy(torch.from_numpy(observation)[None])
        expected = distribution.log_prob(torch.from_numpy(output.extras.raw_action)[None])
        assert output.extras.log_prob == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.parametrize("acceleration", ["auto", "off"])
@pytest.mark.parametrize(("num_steps", "scale"), [(0, 3.0), (500, 2.0), (1_000, 1.0), (5_000, 1.0)])
def test_the_noise_narrows_and_the_density_is_of_what_is_drawn(spec, acceleration, num_steps, scale):
    config = dataclasses.replace(
        SMALL,
        **{"initial_noise_scale": 3.0, "noise_scale_steps": 1_000, "init_stddev": 0.3},
        **{"noise_repeat": 2, "acceleration": acceleration},
    )
    builder, generator = mpo.MPOBuilder(config), torch.Generator().manual_seed(0)
    nets, counter = builder.make_networks(spec, generator), counting.Counter()
    counter.increment(actor_steps=num_steps)
    policy = builder.make_policy(nets, spec, torch.Generator().manual_seed(1), counter=counter)
    observation = np.ones(3, np.float32)
    outputs = [policy(observation).extras for _ in range(300)]
    drawn_from = nets.policy(torch.from_numpy(observation)[None])
    drawn_from = drawn_from._replace(log_std=drawn_from.log_std + np.log(scale))
    raw = np.stack([extras.raw_action for extras in outputs])
    expected = drawn_from.log_prob(torch.from_numpy(raw)).detach().numpy()
    np.testing.assert_allclose([extras.log_prob for extras in outputs], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(raw[::2], raw[1::2])  # The noise is held.
    z = (raw - drawn_from.mean.detach().numpy()) / drawn_from.log_std.exp().detach().numpy()
    assert 0.9 < z.std() < 1.1
