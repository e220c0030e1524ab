"""MPO through an encoder: what trains it, how often it is computed, images and nests from end to end."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from minerva_acme import networks, specs, testing, wrappers
from minerva_acme.agents import mpo
from minerva_acme.runs import checkpointing

from .scene import SMALL, make_learner, make_trajectory, repeat

CONFIG = dataclasses.replace(
    SMALL, critic_loss_steps="all", target_policy_update_period=2, target_critic_update_period=2
)


class Halves(networks.Encoder):
    """A linear layer of an observation that is a dict of two parts."""

    same_in_training = True

    def __init__(self, generator):
        super().__init__()
        self.linear = nn.Linear(3, 4)
        nn.init.normal_(self.linear.weight, generator=generator)
        nn.init.zeros_(self.linear.bias)
        self.output_size = 4
        self.calls = []

    def forward(self, observation):
        features = self.linear(torch.cat([observation["a"], observation["b"]], dim=-1))
        self.calls.append((features.shape, features.requires_grad))
        return features


def as_nest(trajectory):
    observation = trajectory.observation
    return trajectory._replace(observation={"a": observation[..., :1], "b": observation[..., 1:]})


def make(spec, config, batches=None):
    generator = torch.Generator().manual_seed(0)
    spec_of_features = spec._replace(observations=specs.Array((4,), np.float32))
    parts = mpo.make_networks(spec_of_features, config, generator)._replace(encoder=Halves(generator))
    batches = batches or repeat(as_nest(make_trajectory()))
    halves = {"a": specs.Array((1,), np.float32), "b": specs.Array((2,), np.float32)}
    return (*make_learner(spec._replace(observations=halves), batches, config, networks=parts), parts)


@pytest.mark.parametrize("m_steps", [1, 2])
@pytest.mark.parametrize(
    ("encoder_loss", "trained_by"),
    [("critic", {"critic"}), ("policy", {"policy"}), ("both", {"critic", "policy"})],
)
def test_the_config_says_which_losses_train_the_encoder(spec, encoder_loss, trained_by, m_steps):
    config = dataclasses.replace(CONFIG, encoder_loss=encoder_loss, m_steps=m_steps)
    learner, _, parts = make(spec, config)
    moved = set()
    descend = learner.updates.descend

    def spy(name):
        before = parts.encoder.linear.weight.detach().clone()
        norm = descend(name)
        if not torch.equal(before, parts.encoder.linear.weight):
            moved.add(name)
        return norm

    learner.updates.descend = spy
    for _ in range(3):
        learner.step()
    assert moved == trained_by


def test_a_state_is_encoded_once_however_many_actions_are_valued_there(spec):
    learner, _, parts = make(spec, CONFIG)
    target_calls = learner.networks.target.encoder.calls
    parts.encoder.calls.clear()
    target_calls.clear()
    learner.step()
    # Four sequences of five steps: the targets see all six states, the losses those that steps begin in.
    assert target_calls == [((4, 6, 4), False)]
    assert parts.encoder.calls == [((4, 5, 4), True)]


def test_an_encoder_that_does_not_say_that_it_is_the_same_is_asked_as_it_acts_too(spec, monkeypatch):
    monkeypatch.setattr(Halves, "same_in_training", False)
    learner, _, parts = make(spec, CONFIG)
    parts.encoder.calls.clear()
    learner.step()
    assert len(parts.encoder.calls) == 2


def test_the_policys_loss_leaves_the_encoder_alone_and_learns_from_its_features(spec):
    learner, rows, parts = make(spec, dataclasses.replace(CONFIG, critic_learning_rate=1e-12))
    before = [
        {name: value.clone() for name, value in module.state_dict().items()}
        for module in (parts.encoder, parts.policy)
    ]
    for _ in range(3):
        learner.step()
    encoder, policy = before
    assert all(
        torch.allclose(encoder[name], value, atol=1e-6) for name, value in parts.encoder.state_dict().items()
    )
    assert any(not torch.equal(policy[name], value) for name, value in parts.policy.state_dict().items())
    assert rows[-1]["skipped_batches"] == 0


def test_the_target_encoder_is_copied_with_the_target_critic(spec):
    config = dataclasses.replace(CONFIG, target_policy_update_period=100, target_critic_update_period=3)
    learner, _, parts = make(spec, config)
    equal = []
    for _ in range(4):
        learner.step()
        equal.append(torch.equal(learner.networks.target.encoder.linear.weight, parts.encoder.linear.weight))
        if len(equal) == 3:
            online = parts.encoder.linear.weight.detach().clone()
    assert equal == [False] * 4  # each step ends with the online one ahead
    assert torch.equal(learner.networks.target.encoder.linear.weight, online)


def test_actors_get_the_policy_with_its_encoder(spec):
    learner, _, parts = make(spec, CONFIG)
    for _ in range(2):
        learner.step()
    generator = torch.Generator().manual_seed(0)
    builder = mpo.MPOBuilder(CONFIG)
    actor = builder.make_policy(parts.copy(), spec, generator, evaluation=True)
    observation = {"a": np.ones(1, np.float32), "b": np.zeros(2, np.float32)}
    for name, networks_of in (
        ("policy", learner.networks.online),
        ("target_policy", learner.networks.target),
    ):
        actor.set_variables(learner.get_variables([name]))
        tensors = {key: torch.from_numpy(value) for key, value in observation.items()}
        expected = networks_of.policy(networks_of.encoder(tensors)).mean.clamp(-1.0, 1.0)
        np.testing.assert_allclose(actor(observation).action, expected.detach(), rtol=1e-5)


class Scaled(networks.IdentityEncoder):
    def forward(self, observation):
        return 100.0 * observation


def make_scaled():
    encoder = networks.IdentityEncoder(3)
    encoder.register_forward_hook(lambda module, inputs, output: 100.0 * output)
    return encoder


@pytest.mark.parametrize("make_encoder", [lambda: Scaled(3), make_scaled], ids=["a subclass", "a hook"])
def test_actors_get_an_encoder_that_is_an_identity_only_by_its_base(spec, make_encoder):
    class Builder(mpo.MPOBuilder):
        def make_encoder(self, spec, generator):
            return make_encoder()

    builder = Builder(SMALL)
    made = builder.make_networks(spec, torch.Generator().manual_seed(0))
    policy = builder.make_policy(made, spec, torch.Generator().manual_seed(0), evaluation=True)
    observations = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    expected = made.policy(100.0 * torch.from_numpy(observations)).mean.clamp(-1.0, 1.0)
    np.testing.assert_allclose(policy.batch(observations).action, expected.detach(), rtol=1e-5)


class Inside(networks.Encoder):
    """An encoder with statistics of numbers that no learner sees."""

    def __init__(self):
        super().__init__()
        self.output_size = 3
        self.norm = networks.NormalizedEncoder(networks.RunningNorm(3), networks.IdentityEncoder(3))

    def forward(self, observation):
        return self.norm(1000.0 * observation + 5000.0)


def test_statistics_inside_an_encoder_are_left_alone_with_a_warning(spec, caplog):
    made = mpo.make_networks(spec, SMALL, torch.Generator().manual_seed(0), Inside())
    learner, _ = make_learner(spec, repeat(make_trajectory()), SMALL, networks=made)
    learner.step()
    assert float(made.encoder.norm.normalizer.count) < 1.0
    assert "the `NormalizedEncoder` at `policy.encoder.norm` are empty, and this learner" in caplog.text
    caplog.clear()
    made.encoder.norm.normalizer.update(torch.randn(10, 3))
    make_learner(spec, repeat(make_trajectory()), SMALL, networks=made)
    whole = dataclasses.replace(SMALL, normalize_observations=True)
    made = mpo.make_networks(spec, whole, torch.Generator().manual_seed(0))
    learner, _ = make_learner(spec, repeat(make_trajectory()), whole, networks=made)
    learner.step()
    assert float(made.encoder.normalizer.count) > 1.0
    assert not caplog.text


def test_a_flat_observation_has_no_encoder_in_what_is_served(spec):
    learner, _ = make_learner(spec, repeat(make_trajectory()))
    (policy,) = learner.get_variables(["policy"])
    assert policy.keys() == mpo.make_networks(spec, SMALL, torch.Generator()).policy.state_dict().keys()


def test_the_log_says_that_acting_leaves_its_fast_path_behind_an_encoder(spec, said):
    parts = make(spec, CONFIG)[2]
    mpo.MPOBuilder(CONFIG).make_policy(parts, spec, torch.Generator().manual_seed(0))
    assert said()[-1] == "acting: torch: Halves is not supported"


# From end to end: the better action is seen in an image, or in one part of a dict.


class Show(testing.FakeEnvironment):
    """One step an episode: reward 1 for the action whose side is shown, bright pixels or a sign."""

    def __init__(self, kind, discrete, seed):
        self._kind, self._discrete = kind, discrete
        self._random = np.random.default_rng(seed)
        self._side = 0

    def _observe(self):
        image = np.zeros((8, 8, 1), np.uint8)
        image[:, 4 * self._side : 4 * self._side + 4] = 255
        sign = np.full(1, 2.0 * self._side - 1.0, np.float32)
        return image if self._kind == "image" else {"sign": sign, "noise": image[:2, :2, 0] * 0}

    def reset(self):
        import dm_env

        self._side = int(self._random.integers(2))
        return dm_env.restart(self._observe())

    def step(self, action):
        import dm_env

        side = int(action) if self._discrete else int(action[0] > 0)
        reward = np.float32(side == self._side)
        return dm_env.TimeStep(dm_env.StepType.LAST, reward, np.float32(0.0), self._observe())

    def observation_spec(self):
        if self._kind == "image":
            return specs.BoundedArray((8, 8, 1), np.uint8, 0, 255, name="image")
        return {
            "noise": specs.BoundedArray((2, 2), np.uint8, 0, 255, name="noise"),
            "sign": specs.Array((1,), np.float32, name="sign"),
        }

    def action_spec(self):
        if self._discrete:
            return specs.DiscreteArray(2, name="action")
        return specs.BoundedArray((1,), np.float32, -1.0, 1.0, name="action")

    def reward_spec(self):
        return specs.Array((), np.float32, name="reward")

    def discount_spec(self):
        return specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount")


@pytest.mark.parametrize(
    ("kind", "discrete"),
    [
        ("image", True),
        pytest.param("image", False, marks=pytest.mark.learning),
        pytest.param("dict", True, marks=pytest.mark.learning),
        pytest.param("dict", False, marks=pytest.mark.learning),
    ],
)
def test_images_and_dicts_are_learned_from(run, kind, discrete):
    config = mpo.MPOConfig(
        policy_layer_sizes=(32,),
        critic_layer_sizes=(32,),
        critic_target="one_step",
        sequence_length=1,
        batch_size=32,
        min_replay_size=64,
        samples_per_insert=16.0,
        policy_learning_rate=3e-3,
        critic_learning_rate=3e-3,
        epsilon_mean=0.1,
        epsilon_stddev=1e-3,
        init_log_temperature=-2.0,
        init_log_alpha_mean=-2.0,
        target_policy_update_period=5,
        target_critic_update_period=5,
    )
    num_env_steps = 500 if kind == "image" and not discrete else 250  # slowest by far
    result = run(
        mpo.MPOBuilder(config), lambda seed: Show(kind, discrete, seed), num_env_steps, evaluation_episodes=30
    )
    assert result.random.mean < 0.7
    assert result.after.mean > 0.9


def test_a_run_on_single_frames_is_the_run_on_whole_stacks_bit_for_bit(run):
    def make_environment(seed):
        frame = specs.BoundedArray((4, 4), np.uint8, 0, 255)
        fake = testing.FakeEnvironment(observation_spec={"it": frame}, seed=seed)
        return wrappers.FrameStackWrapper(fake, num_frames=3)

    config = dataclasses.replace(
        SMALL, sequence_length=2, batch_size=4, min_replay_size=8, max_replay_size=40, samples_per_insert=2.0
    )
    states, shapes = [], []
    for frame_stack in (1, 3):
        builder = mpo.MPOBuilder(dataclasses.replace(config, frame_stack=frame_stack))
        (table,) = builder.make_replay_tables(specs.make_environment_spec(make_environment(0)))
        shapes.append({name: column.shape for name, column in table.signature.columns.items()})
        result = run(builder, make_environment, 30)
        assert result.learner_steps > 5
        state = checkpointing.load_state(checkpointing.find(result.directory))
        states.append(state["learner"]["modules"])
    assert shapes == [
        {"observation/it": (3, 4, 4), "float32": shapes[0]["float32"]},
        {"uint8": (16,), "float32": (shapes[0]["float32"][0] + 1,)},
    ]
    testing.assert_nests_equal(*states, "Stacks from replay must be those of the wrapper.")
