"""MPO from replay that fades and is drawn by priority: which priorities, which weights, and whole runs."""

import dataclasses
import functools

import numpy as np
import pytest
import torch

from minerva_acme import (
    distributed,
    experiments,
    learners,
    networks,
    replay,
    testing,
)
from minerva_acme.agents import mpo, off_policy
from minerva_acme.agents.mpo import critics
from minerva_acme.replay import backends, dataset
from minerva_acme.runs import checkpointing

from .. import transition_scene
from .scene import SMALL, make_learner, make_trajectory

LAP = dataclasses.replace(SMALL, prioritized=True)
SWITCHES = {
    "fading with LAP": {"replay_fading": 0.9, "prioritized": True, "min_priority": 0.01},
    "targets that move": {"target_rate": 0.05},
}


@pytest.mark.parametrize("name", mpo.PRESETS)
def test_presets_draw_all_sequences_alike_and_copy_their_targets(spec, name):
    config = mpo.PRESETS[name]
    (table,) = mpo.MPOBuilder(config).make_replay_tables(spec)
    assert table.sampler == replay.Uniform()
    assert config.target_rate == 1.0


def test_the_switches_are_those_of_dr_q_and_lap(spec):
    config = dataclasses.replace(LAP, replay_fading=0.9999)
    builder = mpo.MPOBuilder(config)
    (table,) = builder.make_replay_tables(spec)
    assert table.sampler == replay.Prioritized(0.4, 0.9999, 0.1, "largest")
    assert config.min_priority == 1.0
    info = info_of(np.array([0.5, 0.1, 0.4]))
    weights = builder.make_priorities(FakeClient(), 100).weights(info, 50)
    assert weights.tolist() == [1.0, 1.0, 1.0]


def info_of(probability):
    size = len(probability)
    return replay.SampleInfo(
        key=np.arange(10, 10 + size, dtype=np.uint64),
        probability=probability,
        table_size=np.full(size, 100),
        priority=np.ones(size),
        times_sampled=np.ones(size, np.int32),
    )


class FakeClient:
    """Keeps the priorities that it is given."""

    def __init__(self):
        self.updates = []

    def update_priorities(self, table, keys, priorities):
        self.updates.append((table, keys, priorities))


def priorities_of(client, exponent=0.0):
    return learners.Priorities(client=client, table="replay", importance_exponent=lambda steps: exponent)


def constant_target(values, *arguments):
    return values


def make_prioritized(spec, config, trajectory, targets, **options):
    client = FakeClient()
    info = info_of(np.array([0.1, 0.2, 0.4, 0.8]))
    samples = iter([dataset.ReplaySample(info, trajectory)])
    learner, rows = make_learner(
        spec,
        samples,
        config,
        critic_target=functools.partial(constant_target, targets),
        priorities=priorities_of(client, **options),
    )
    return learner, rows, client


@pytest.mark.parametrize("num_critics", [1, 2])
@pytest.mark.parametrize("loss_steps", ["first", "all"])
def test_new_priorities_are_the_errors_of_the_first_steps_at_least_1(spec, num_critics, loss_steps):
    config = dataclasses.replace(LAP, num_critics=num_critics, critic_loss_steps=loss_steps)
    trajectory = make_trajectory()
    # Of two sequences the error is below 1.
    targets = torch.tensor([3.0, 0.2, -40.0, 0.1])[:, None] + torch.arange(5.0) * 100.0
    learner, _, client = make_prioritized(spec, config, trajectory, targets)
    critic = learner.networks.online.critic
    with torch.no_grad():
        prediction = critic(trajectory.observation[:, 0], trajectory.action[:, 0])
    members = prediction.members if num_critics == 2 else [prediction]
    errors = torch.stack([(member.mean() - targets[:, 0]).abs() for member in members]).amax(dim=0)
    learner.step()
    ((table, keys, found),) = client.updates
    assert (table, keys.tolist()) == ("replay", [10, 11, 12, 13])
    np.testing.assert_allclose(found, errors.clamp(min=1.0), rtol=1e-5)
    assert found[0] > 2.0 and found[2] > 30.0 and found[1] == found[3] == 1.0


@pytest.mark.parametrize("critic_torso", ["same", "batch_norm"])
def test_a_sequence_whose_first_step_did_not_happen_gets_the_least_priority(spec, critic_torso):
    """As one that begins before its episode does, with a memory: what its first row holds is no error."""
    config = dataclasses.replace(LAP, min_priority=0.5, critic_loss_steps="all", critic_torso=critic_torso)
    trajectory = make_trajectory()
    trajectory = trajectory._replace(mask=trajectory.mask.index_fill(1, torch.tensor([0]), 0.0))
    trajectory.mask[2, 0] = 1.0
    targets = torch.full((4, 5), 30.0)
    targets[0, 0] = torch.nan
    learner, rows, client = make_prioritized(spec, config, trajectory, targets)
    learner.step()
    assert rows[-1]["skipped_batches"] == 0
    ((_, _, found),) = client.updates
    assert found[2] > 20.0 and [found[0], found[1], found[3]] == [0.5, 0.5, 0.5]


def test_the_error_of_two_critics_is_the_larger_of_their_means():
    members = (torch.tensor([[1.0], [5.0]]), torch.tensor([[4.0], [6.0]]))
    prediction = networks.EnsemblePrediction(tuple(map(networks.ScalarPrediction, members)), "min")
    target = networks.ReturnDistribution(
        values=torch.tensor([[0.0, 4.0], [6.0, 10.0]]), weights=torch.tensor([[0.5, 0.5], [0.75, 0.25]])
    )  # of means 2 and 7
    assert critics.td_errors(prediction, target).tolist() == [2.0, 2.0]


def test_importance_weights_scale_the_critics_loss_of_each_sequence(spec):
    trajectory = make_trajectory()
    targets = torch.randn(4, 5, generator=torch.Generator().manual_seed(5)) * 3.0
    config = dataclasses.replace(LAP, critic_loss_steps="all")
    learner, rows, _ = make_prioritized(spec, config, trajectory, targets, exponent=1.0)
    with torch.no_grad():
        q = learner.networks.online.critic(trajectory.observation[:, :-1], trajectory.action).mean()
    learner.step()
    # (100 P)^-1 over the largest: 1, 1/2, 1/4, 1/8.
    weights = torch.tensor([1.0, 0.5, 0.25, 0.125])[:, None]
    expected = (weights * (q - targets).square()).mean()
    torch.testing.assert_close(torch.as_tensor(rows[-1]["loss/critic"]), expected)


def test_a_batch_that_is_skipped_sets_no_priorities(spec):
    trajectory = make_trajectory()
    learner, rows, client = make_prioritized(spec, LAP, trajectory, torch.full((4, 5), float("nan")))
    learner.step()
    assert rows[-1]["skipped_batches"] == 1 and not client.updates


def test_a_builder_asks_for_the_client_that_takes_priorities(spec):
    with pytest.raises(
        ValueError, match="must have the replay's `client`, since items are drawn by priority"
    ):
        transition_scene.make_learner(mpo.MPOBuilder(LAP), spec, [])


def make_config(directory, *, store="memory", **changes):
    config = dataclasses.replace(
        SMALL, min_replay_size=20, samples_per_insert=4.0, variable_update_period=5, **changes
    )
    return experiments.ExperimentConfig(
        builder=mpo.MPOBuilder(config),
        environment_factory=lambda seed: testing.FakeEnvironment.bounded(seed=seed),
        directory=directory,
        num_env_steps=30,
        evaluation_period=0,
        evaluation_episodes=1,
        tensorboard=False,
        replay=store,
    )


def trained(directory, **changes):
    result = experiments.run_experiment(make_config(directory, **changes))
    state = checkpointing.load_state(checkpointing.latest(directory / "checkpoints"))
    return result, state["learner"]["modules"]


def differ(one, other):
    return any(not torch.equal(tensor, other[name][key]) for name in one for key, tensor in one[name].items())


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("usual"))[1]


@pytest.mark.parametrize("changes", SWITCHES.values(), ids=SWITCHES)
def test_a_run_with_a_switch_is_another_one_and_the_same_for_the_same_seed(tmp_path, usual, changes):
    result, once = trained(tmp_path / "once", **changes)
    _, twice = trained(tmp_path / "twice", **changes)
    assert result.learner_steps == 11
    assert all(torch.isfinite(tensor).all() for module in once.values() for tensor in module.values())
    assert not differ(once, twice)
    assert differ(once, usual)


@pytest.mark.parametrize("changes", [{"replay_fading": 0.9999}, {"prioritized": True}])
def test_on_reverb_it_is_refused_before_anything_is_written(tmp_path, monkeypatch, changes):
    monkeypatch.setattr(backends, "is_reverb_installed", lambda: True)
    with pytest.raises(replay.ReplayError, match="--replay memory, in Python replay='memory'"):
        experiments.run_experiment(make_config(tmp_path / "one", store="reverb", **changes))
    with pytest.raises(replay.ReplayError, match="in a run of one process: --replay memory"):
        distributed.run_distributed_experiment(
            make_config(tmp_path / "many", store="auto", **changes), num_actors=1, engine="inline"
        )
    assert not list(tmp_path.glob("*/*"))


def test_the_table_of_the_kit_has_the_name_that_priorities_go_to(spec):
    client = FakeClient()
    priorities = mpo.MPOBuilder(LAP).make_priorities(client, None)
    priorities.update(info_of(np.ones(2)), torch.tensor([1.0, 2.0]))
    assert client.updates[0][0] == off_policy.TABLE
