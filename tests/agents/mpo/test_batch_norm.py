"""MPO with a critic of its own torso, above all XQC's with batch norm: what its statistics are of, and when.

That steps are the reference's, with and without unit norms, is held by `test_reference_step.py`.
"""

import copy
import dataclasses
import itertools

import numpy as np
import pytest
import torch
import tree

from minerva_acme import learners, losses, networks, specs
from minerva_acme.agents import mpo
from minerva_acme.agents.mpo import critics, targets
from tests.closeness import assert_close_to_norm

from .scene import SMALL, Sample, losses_of, make_learner, make_trajectory, repeat
from .test_learner import states_equal

BATCH_NORM = dataclasses.replace(SMALL, critic_torso="batch_norm", critic_loss_steps="all")
EVERYTHING = dataclasses.replace(
    BATCH_NORM,
    torso="simba",
    normalize_observations=True,
    unit_norm_weights=True,
    critic_head="two_hot",
    num_critics=2,
    target_critic_update_period=3,
)
MASK = torch.tensor([[1.0, 1, 0, 1, 1], [0, 1, 1, 0, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]])


def batches(first=0, length=5):
    """Different batches, whose observations are far from mean 0 and variance 1."""
    for seed in itertools.count(first):
        batch = make_trajectory(seed=seed, length=length)
        yield Sample(batch._replace(observation=3.0 * batch.observation + 2.0))


def statistics_of(state, name="critic"):
    """All tensors of batch norm but the affine maps'."""
    kinds = ("running_mean", "running_var", "num_batches_tracked")
    return {key: value for key, value in state["modules"][name].items() if key.endswith(kinds)}


@pytest.mark.parametrize(
    ("overrides", "policy", "critic"),
    [
        ({}, networks.LayerNormMLP, networks.LayerNormMLP),
        ({"torso": "simba"}, networks.SimBa, networks.SimBa),
        ({"torso": "simba", "critic_torso": "mlp"}, networks.SimBa, networks.LayerNormMLP),
        ({"critic_torso": "simba"}, networks.LayerNormMLP, networks.SimBa),
        ({"critic_torso": "batch_norm"}, networks.LayerNormMLP, networks.BatchNormMLP),
    ],
)
def test_the_critic_has_the_torso_that_the_config_names(spec, overrides, policy, critic):
    config = dataclasses.replace(SMALL, num_critics=2, **overrides)
    made = mpo.make_networks(spec, config, torch.Generator().manual_seed(0))
    assert [type(made.policy.torso), *(type(each.torso) for each in made.critic.members)] == [
        policy,
        critic,
        critic,
    ]


@pytest.mark.parametrize("loss_steps", ["first", "all"])
def test_statistics_are_of_the_pairs_that_happened_and_of_nothing_else(spec, loss_steps):
    """The first norm's are those of its input: each true pair once."""
    (batch,) = (sample.data for sample in itertools.islice(batches(), 1))
    batch = batch._replace(mask=MASK)
    config = dataclasses.replace(
        BATCH_NORM, critic_loss_steps=loss_steps, target_critic_update_period=2, num_samples=50
    )
    learner, _ = make_learner(spec, repeat(batch), config)
    learner.step()
    num_steps = 1 if loss_steps == "first" else 5
    places = [(b, t) for b in range(4) for t in range(num_steps) if MASK[b, t]]
    rows = torch.stack([torch.cat([batch.observation[place], batch.action[place]]) for place in places])
    found = statistics_of(learner.save())
    torch.testing.assert_close(found["torso.0.running_mean"], 0.01 * rows.mean(dim=0))
    torch.testing.assert_close(found["torso.0.running_var"], 0.99 + 0.01 * rows.var(dim=0))
    assert {int(value) for name, value in found.items() if name.endswith("tracked")} == {1}
    # Nothing else moves them: not the targets' evaluations, not the E-step, and no target but by its copy.
    before = learner.save()
    due = learners.Batch(batch, 1.0, due=frozenset({"critic", "duals", "policy"}))
    losses_of(learner).estimate(learner.networks, due, learner.generator)
    losses_of(learner).plain_target_q(batch.observation[:, 0], torch.zeros(7, 4, 2))
    learner.networks.online.critic(batch.observation[:, 0], batch.action[:, 0])
    assert states_equal(statistics_of(learner.save()), found)
    learner.step()
    assert states_equal(
        statistics_of(learner.save(), "target_critic"), statistics_of(before, "target_critic")
    )
    copied = statistics_of(learner.save())
    learner.step()
    assert states_equal(statistics_of(learner.save(), "target_critic"), copied)


def test_targets_and_e_step_are_those_of_the_running_statistics(spec):
    """Values do not hang on what else is in the batch."""
    learner, _ = make_learner(spec, batches(), BATCH_NORM, targets.one_step(num_actions=3))
    learner.run(num_steps=3)
    state = learner.save()
    whole = next(batches(9)).data
    halves = [tree.map_structure(lambda x, part=part: x[part], whole) for part in (slice(2), slice(2, 4))]
    features = [part.observation[:, 0] for part in (whole, *halves)]
    actions = [part.action[:, 0] for part in (whole, *halves)]
    for critic in (losses_of(learner).target_q, losses_of(learner).plain_target_q):
        together, *apart = [critic(*pairs) for pairs in zip(features, actions, strict=True)]
        torch.testing.assert_close(together, torch.cat(apart))
    assert states_equal(learner.save(), state)


def spoilt(batch, value):
    """The batch with other numbers at the steps that did not happen."""
    changed = {
        name: getattr(batch, name).clone().index_put_((MASK == 0,), torch.tensor(value))
        for name in ("action", "reward", "discount")
    }
    return batch._replace(**changed)


def test_what_stands_in_padding_changes_nothing(spec):
    states = []
    for value in (0.3, 1e6):
        batch = spoilt(make_trajectory()._replace(mask=MASK), value)
        learner, rows = make_learner(spec, repeat(batch), BATCH_NORM)
        learner.run(num_steps=3)
        assert rows[-1]["skipped_batches"] == 0
        states.append(learner.save())
    assert states_equal(*states)


def own_critic(spec, torso):
    """A user's networks, with a critic that the library does not make."""
    made = mpo.make_networks(spec, SMALL, torch.Generator().manual_seed(0))
    bounds = (-torch.ones(2), torch.ones(2))
    return made._replace(critic=networks.Critic(torso, networks.ScalarHead(8), bounds=bounds))


class Flat(torch.nn.Sequential):
    def forward(self, x):
        return super().forward(x.flatten(0, -2)).unflatten(0, x.shape[:-1])


@pytest.mark.parametrize("has_batch_norm", [False, True])
def test_padding_is_left_out_for_critics_with_batch_norm_alone(spec, monkeypatch, has_batch_norm):
    """For others it would change nothing but the rounding of some layouts."""
    layers = [torch.nn.Linear(5, 8), torch.nn.BatchNorm1d(8)] if has_batch_norm else [torch.nn.Linear(5, 8)]
    parts, calls = own_critic(spec, Flat(*layers)), []
    predict = critics.predict_true_pairs
    monkeypatch.setattr(critics, "predict_true_pairs", lambda *args: calls.append(1) or predict(*args))
    states = []
    for value in (0.3, 1e6):
        batch = spoilt(make_trajectory()._replace(mask=MASK), value)
        learner, _ = make_learner(spec, repeat(batch), SMALL, networks=copy.deepcopy(parts))
        learner.run(num_steps=2)
        states.append(learner.save())
    assert states_equal(*states)
    assert bool(calls) == has_batch_norm


def discrete(spec, batch):
    """The spec with three discrete actions, and the batch with such."""
    action = (batch.action[..., 0] > 0).int() + (batch.action[..., 1] > 0).int()
    extras = batch.extras._replace(raw_action=action, log_prob=torch.full(action.shape, -1.1))
    spec = spec._replace(actions=specs.DiscreteArray(3, np.int32, name="action"))
    return spec, batch._replace(action=action, extras=extras)


def make_duals():
    return losses.MPODuals(
        num_dimensions=1,
        init_log_temperature=1.0,
        init_log_alpha_mean=1.0,
        init_log_alpha_stddev=None,
        action_penalty=False,
    )


class Seen:
    """A critic that keeps what it is asked, and whose value is the sum of features and action."""

    def predict(self, features, action):
        self.features, self.action = features, action
        q = (features.sum(dim=-1) + action).unsqueeze(-1)
        return networks.EnsemblePrediction((networks.ScalarPrediction(q),) * 2, "min")


@pytest.mark.parametrize(
    ("mask", "rows", "places"),
    [
        ([[0, 1, 0], [1, 1, 0]], [1, 3, 4], [[1, 1, 1], [3, 4, 4]]),
        ([[1, 1, 1], [1, 0.5, 0.1]], [0, 1, 2, 3, 4, 5], [[0, 1, 2], [3, 4, 5]]),
        ([[0, 0, 0], [0, 1, 0]], [4, 4], [[4, 4, 4], [4, 4, 4]]),
        ([[0, 0, 0], [0, 0, 0]], [0, 0], [[0, 0, 0], [0, 0, 0]]),
    ],
)
def test_each_true_pair_is_predicted_once_and_padding_has_no_gradient(mask, rows, places):
    mask, places = torch.tensor(mask), torch.tensor(places)
    features = torch.randn(2, 3, 4, requires_grad=True)
    critic, action = Seen(), torch.arange(6).view(2, 3)
    prediction = critics.predict_true_pairs(critic, mask, features, action)
    assert critic.action.tolist() == rows
    torch.testing.assert_close(critic.features, features.flatten(0, 1)[rows])
    expected = (features.sum(dim=-1) + action).flatten()[places]
    torch.testing.assert_close(prediction.mean(), expected)
    (prediction.mean() * (mask > 0)).sum().backward()
    torch.testing.assert_close(features.grad, (mask > 0).float().unsqueeze(-1).expand(2, 3, 4))


def test_layers_of_unit_norm_are_those_of_the_critic_and_of_its_bins(spec):
    config = dataclasses.replace(EVERYTHING, torso="mlp", target_rate=0.1, critic_learning_rate=0.05)
    learner, _ = make_learner(spec, batches(), config)
    policy = {name: value.norm(dim=1) for name, value in weights_of(learner.save(), "policy").items()}
    learner.run(num_steps=2)
    critic = weights_of(learner.save(), "critic")
    assert len(critic) == 2 * 3
    for weight in critic.values():
        torch.testing.assert_close(weight.norm(dim=1), torch.ones(len(weight)))
    moved = weights_of(learner.save(), "policy")
    assert all((moved[name].norm(dim=1) - norm).abs().max() < 0.1 for name, norm in policy.items())
    # The targets are averages of networks with norm 1, and are scaled to it too.
    for weight in weights_of(learner.save(), "target_critic").values():
        torch.testing.assert_close(weight.norm(dim=1), torch.ones(len(weight)))
    scalar = mpo.MPOConfig(**{**vars(config), "critic_head": "scalar"})
    learner, _ = make_learner(spec, batches(), scalar)
    assert weights_of(learner.save(), "critic")["members.0.head.weight"].norm() < 0.1


def weights_of(state, name):
    return {key: value for key, value in state["modules"][name].items() if value.ndim == 2}


@pytest.mark.parametrize("head", ["scalar", "two_hot"])
def test_without_acceleration_steps_are_the_same_but_for_rounding(spec, head):
    states = []
    for acceleration in ("auto", "off"):
        config = dataclasses.replace(
            BATCH_NORM,
            critic_head=head,
            acceleration=acceleration,
            target_critic_update_period=2,
            critic_learning_rate=1e-2,
        )
        learner, _ = make_learner(spec, batches(), config)
        learner.run(num_steps=5)
        states.append(learner.save()["modules"]["critic"])
    for name, tensor in states[0].items():
        assert_close_to_norm(tensor.double(), states[1][name].double())


def test_discrete_actions_have_a_critic_of_the_state_with_batch_norm(spec):
    spec, batch = discrete(spec, next(batches()).data._replace(mask=MASK))
    learner, rows = make_learner(spec, repeat(batch), BATCH_NORM, duals=make_duals())
    learner.run(num_steps=3)
    assert rows[-1]["skipped_batches"] == 0
    found = statistics_of(learner.save())
    assert found["torso.0.running_mean"].shape == (3,) and found["torso.0.running_mean"].abs().min() > 0.01


def test_features_of_images_are_normalised_too():
    spec = specs.EnvironmentSpec(
        observations=specs.BoundedArray((3, 10, 10), np.uint8, 0, 255, name="observation"),
        actions=specs.BoundedArray((2,), np.float32, -1.0, 1.0, name="action"),
        rewards=specs.Array((), np.float32, name="reward"),
        discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount"),
    )
    images = torch.randint(0, 256, (4, 6, 3, 10, 10), generator=torch.Generator().manual_seed(0))
    batch = make_trajectory()._replace(observation=images.to(torch.uint8), mask=MASK)
    learner, rows = make_learner(spec, repeat(batch), BATCH_NORM)
    before = learner.save()["modules"]["policy"]
    learner.run(num_steps=2)
    assert rows[-1]["skipped_batches"] == 0
    after = learner.save()["modules"]["policy"]
    encoder = [name for name in before if name.startswith("encoder.")]
    assert encoder and all(not torch.equal(before[name], after[name]) for name in encoder)


@pytest.mark.learning
def test_the_critic_learns_values_that_depend_on_state_and_action(spec):
    """The reward is a product of both, its scale far from 1; new pairs are valued by running statistics."""

    def pairs():
        for seed in itertools.count():
            batch = make_trajectory(batch_size=64, length=1, seed=seed)
            observation = 5.0 * batch.observation + 3.0
            reward = batch.action[..., 0] * batch.observation[:, :1, 1] + batch.action[..., 1]
            yield Sample(batch._replace(observation=observation, reward=reward))

    config = dataclasses.replace(
        BATCH_NORM,
        discount=0.0,
        unit_norm_weights=True,
        critic_layer_sizes=(32, 32),
        critic_learning_rate=3e-3,
        target_critic_update_period=10,
    )
    learner, rows = make_learner(spec, pairs(), config, targets.one_step(num_actions=1))
    learner.run(num_steps=250)
    batch = next(itertools.islice(pairs(), 1000, None)).data
    found = losses_of(learner).target_q(batch.observation[:, 0], batch.action[:, 0])
    errors = found - batch.reward[:, 0]
    assert errors.square().mean() < 0.15 * batch.reward.var()
    assert learners.read(rows[-1]["loss/critic"]) < 0.15 * batch.reward.var()
