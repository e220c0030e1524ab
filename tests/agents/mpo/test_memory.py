"""MPO with a memory: what actors remembered is what the learner remembers, and every step is learned from."""

import dataclasses
import logging

import numpy as np
import pytest
import torch

from minerva_acme import acceleration, learners, networks, testing
from minerva_acme.agents import mpo

from ..on_policy.test_memory import Recall
from .scene import SMALL, make_learner, make_trajectory, repeat

EPISODE_LENGTH = 5
TINY = dataclasses.replace(
    SMALL,
    memory="lstm",
    memory_size=6,
    burn_in=3,
    sequence_length=4,
    sequence_period=2,
    num_environments=2,
    batch_size=16,
    min_replay_size=16,
    critic_loss_steps="all",
)


class Recording(mpo.MPOBuilder):
    """Keeps the first networks, and the batches that its learner is given."""

    def make_learner(self, parts):
        self.first, self.batches = parts.networks.copy(), []
        return super().make_learner(dataclasses.replace(parts, dataset=self.recorded(parts.dataset)))

    def recorded(self, dataset):
        for sample in dataset:
            self.batches.append(sample.data)
            yield sample


def make_episodes(seed):
    return testing.FakeEnvironment(episode_length=EPISODE_LENGTH, seed=seed)


def differences(nets, batch, burn_in):
    """How far densities that the actor recorded are from those that the learner computes."""
    late = learners.at(batch._replace(state=()), (slice(None), slice(burn_in, None)))
    features = nets.encoder(networks.sequences(batch, burn_in))
    found = nets.policy(features[:, :-1]).log_prob(late.extras.raw_action)
    return (found - late.extras.log_prob)[late.mask > 0].abs()


# With as much burn-in as there are steps before, the whole episode is remembered.
@pytest.mark.parametrize(
    "overrides",
    [{}, {"memory": "gru", "burn_in": 0}, {"stored_state": False, "burn_in": EPISODE_LENGTH}],
    ids=str,
)
def test_the_learner_remembers_what_the_actor_did(run, overrides):
    builder = Recording(dataclasses.replace(TINY, **overrides))
    run(builder, make_episodes, 2 * 20)
    batch, burn_in = builder.batches[0], builder.config.burn_in
    assert differences(builder.first, batch, burn_in).max() < 2e-5
    if burn_in == 0:  # sequences begin within episodes too
        assert differences(builder.first, batch._replace(state=()), burn_in).max() > 1e-3


def test_every_step_of_an_episode_shorter_than_the_burn_in_is_learned_from(run):
    builder = Recording(dataclasses.replace(TINY, burn_in=2 * EPISODE_LENGTH))
    run(builder, make_episodes, 2 * 20)
    steps = set()
    for batch in builder.batches:
        late = batch.mask[:, builder.config.burn_in :] > 0
        steps |= {int(reward) for reward in batch.reward[:, builder.config.burn_in :][late]}
    assert steps == {1, 2, 3, 4, 5}  # the reward of a step is its number in the episode


@pytest.mark.learning
@pytest.mark.parametrize("memory", ["none", "gru"])
def test_what_must_be_remembered_is_learned_with_a_memory_alone(run, memory):
    config = dataclasses.replace(
        SMALL,
        memory=memory,
        memory_size=16,
        burn_in=0 if memory == "none" else 2,
        sequence_length=3,
        batch_size=32,
        samples_per_insert=16.0,
        min_replay_size=64,
        critic_loss_steps="all",
        policy_learning_rate=3e-3,
        critic_learning_rate=3e-3,
        epsilon_mean=0.1,
        init_log_temperature=0.0,
        init_log_alpha_mean=0.0,
        discount=0.9,
        target_policy_update_period=10,
        target_critic_update_period=10,
    )
    num_env_steps = 400 if memory == "none" else 700
    result = run(mpo.MPOBuilder(config), Recall, num_env_steps, evaluation_episodes=20)
    # At most 4; whoever forgets has the first step right and half of the others, 2.5.
    assert (result.after.mean > 3.5) == (memory != "none")
    assert result.after.mean >= 4.0 or result.after.mean < 3.5


def learned(spec, change, **overrides):
    """The state of a learner after one step on a batch that `change` has changed."""
    config = dataclasses.replace(TINY, **overrides)
    generator = torch.Generator().manual_seed(5)
    batch = make_trajectory(
        length=config.burn_in + 4,
        state=tuple(torch.rand(4, 6, generator=generator) for _ in range(2)),
    )
    batch.mask[0, :2] = batch.mask[1, 6:] = 0.0
    learner, rows = make_learner(spec, repeat(change(batch)), config)
    learner.step()
    return learner.save(), rows[-1]


def changed(name, index, by=1.0):
    def change(batch):
        part, _, name_of_extra = name.partition(".")
        leaf = getattr(batch.extras, name_of_extra) if name_of_extra else getattr(batch, part)
        leaf = leaf.clone()
        leaf[index] += by
        extras = batch.extras._replace(**{name_of_extra: leaf}) if name_of_extra else leaf
        return batch._replace(**{part: extras})

    return change


def test_a_number_that_is_not_finite_in_the_burn_in_skips_the_batch(spec):
    for change in (changed("observation", (2, 1), torch.nan), _with_infinite_state):
        state, row = learned(spec, change)
        assert row["skipped_batches"] == 1
    del state


def _with_infinite_state(batch):
    hidden, cell = batch.state
    return batch._replace(state=(hidden, cell * torch.inf))


@pytest.mark.parametrize(
    ("encoder_loss", "policy_loss_steps"), [("critic", "first"), ("both", "first"), ("policy", "all")]
)
def test_the_memory_is_trained_by_the_losses_that_train_the_encoder(spec, encoder_loss, policy_loss_steps):
    rates = {"critic_learning_rate": 1e-12, "policy_learning_rate": 1e-2}
    changes = {"encoder_loss": encoder_loss, "policy_loss_steps": policy_loss_steps}
    state, _ = learned(spec, lambda batch: batch, **changes, **rates)
    weights = {
        name: state["modules"][name]["encoder.memory.rnn.weight_ih_l0"]
        for name in ("policy", "target_policy")
    }
    moved = (weights["policy"] - weights["target_policy"]).abs().max()
    assert moved < 1e-6 if encoder_loss == "critic" else moved > 1e-3


def test_a_memory_that_one_step_would_train_is_refused():
    with pytest.raises(ValueError, match="`critic_loss_steps` must be all with `memory` gru, got first"):
        mpo.MPOConfig(memory="gru")
    with pytest.raises(
        ValueError, match="`encoder_loss` must be critic or both with `memory` gru, got policy"
    ):
        mpo.MPOConfig(memory="gru", critic_loss_steps="all", encoder_loss="policy")


def test_critic_and_policy_behind_the_memory_are_computed_as_fast_as_without_it(spec, caplog, monkeypatch):
    monkeypatch.setattr(acceleration.notes, "_said", set())
    with caplog.at_level(logging.INFO, "minerva_acme.acceleration"):
        learned(spec, lambda batch: batch)
        builder = mpo.MPOBuilder(TINY)
        policy = builder.make_policy(
            builder.make_networks(spec, torch.Generator()), spec, torch.Generator(), evaluation=True
        )
        policy.step(np.ones((2, 3), np.float32), policy.initial_state(2))
    assert "acting: arrays" in caplog.messages
    assert any(message.startswith("target critic: float32, ") for message in caplog.messages)


class Doubled(networks.Memory):
    """Remembers the features of the last step."""

    def __init__(self, input_size):
        super().__init__()
        self.input_size, self.output_size = input_size, 2 * input_size

    def initial_state(self, num_environments):
        return (torch.zeros(num_environments, self.input_size),)

    def unroll(self, features, state):
        before = torch.cat([state[0][None], features[:-1]])
        return torch.cat([features, before], dim=-1), (features[-1],)


def test_a_memory_of_your_own_is_stored_and_learned_with(run):
    class Builder(Recording):
        def make_memory(self, input_size, generator):
            return Doubled(input_size)

    builder = Builder(TINY)
    run(builder, make_episodes, 2 * 20)
    assert [part.shape for part in builder.batches[0].state] == [(16, 3)]
    assert differences(builder.first, builder.batches[0], 3).max() < 2e-5
