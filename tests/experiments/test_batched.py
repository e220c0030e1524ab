"""Whole runs in batched environments: every agent learns and resumes exactly, and bad pairs are refused."""

import dataclasses

import dm_env
import numpy as np
import pytest
import torch

from minerva_acme import builders, core, environments, experiments, observers, runs, specs, testing
from minerva_acme.agents import sac
from minerva_acme.runs import checkpointing
from tests.environments import test_batched_brax

from . import test_exact_resume as exact

B = 4
CPU = torch.device("cpu")


def make_fakes(seed, number=B, **settings):
    return testing.FakeBatchedEnvironment(number, generator=torch.Generator().manual_seed(seed), **settings)


def make_late(seed):
    return make_fakes(seed, resets_in_next_step=True)


def make_walks(seed):
    return test_batched_brax.make(seed, test_batched_brax.PlainWalk(), B)


class DiscretePendulum(environments.BatchedEnvironment, core.Saveable):
    """Pendulums that are pushed to the left, not at all, or to the right."""

    def __init__(self, seed, device="cpu"):
        self.inner = environments.BatchedPendulum(
            B,
            generator=torch.Generator().manual_seed(seed) if device == "cpu" else None,
            device=device,
            time_limit=7,
            staggered=True,
        )
        spec = specs.make_environment_spec(self.inner)
        super().__init__(B, spec._replace(actions=specs.DiscreteArray(3)), device)

    def reset(self):
        return self.inner.reset()

    def step(self, actions):
        self.check_actions(actions)
        assert actions.dtype == torch.int32
        return self.inner.step(actions[:, None] - 1.0)

    def save(self):
        return self.inner.save()

    def restore(self, state):
        self.inner.restore(state)


def of(builder, **changes):
    return type(builder)(dataclasses.replace(builder.config, num_environments=B, **changes))


SCALED = {"critic_head": "two_hot", "vmin": -5.0, "vmax": 5.0, "num_bins": 101, "scale_returns": True}
CASES = {
    "mpo": (of(exact.MPO, sequence_length=3, noise_repeat=3, **SCALED), make_fakes),
    "sac": (of(exact.SAC), make_late),
    "sac, by JAX": (of(exact.SAC), make_walks),
    "d4pg": (of(exact.D4PG, n_step=3), make_fakes),
    "dqn": (of(exact.DQN, prioritized=False), DiscretePendulum),
    "ppo": (exact.make_ppo(B), make_fakes),
}


def make_config(directory, builder, factory, **overrides):
    return exact.make_config(
        directory,
        builder,
        **{
            "environment_factory": factory,
            "observers": [],
            "num_env_steps": 36 * B,
            "evaluation_period": 20 * B,
            "evaluation_episodes": 6,
            "checkpoint_period": 9,
            "device": "cpu",
            **overrides,
        },
    )


@pytest.mark.parametrize("case", CASES)
@pytest.mark.promise("A run in a batch resumes bit for bit if the environment can be saved")
def test_a_run_that_is_killed_becomes_the_run_that_was_not(tmp_path, case):
    builder, factory = CASES[case]
    straight = tmp_path / "straight"
    kills = exact.Kills(straight, tmp_path, lags=(4,))
    result = experiments.run_experiment(make_config(straight, builder, factory), kills)
    assert (result.env_steps, result.learner_steps > 3) == (36 * B, True)
    assert [len(each.returns) for each in (result.random, result.before, result.after)] == [6, 6, 6]
    folder = kills.folders[len(kills.folders) // 2]
    resumed = experiments.run_experiment(make_config(folder, builder, factory))
    assert resumed.best == result.best
    exact.assert_equal(folder, straight, builder.for_batches(CPU), factory)


def test_the_learner_steps_that_are_due_follow_each_step_of_the_batch(tmp_path):
    builder = of(exact.SAC, n_step=1, samples_per_insert=2.0)  # B items with a step, in batches of 4
    made = []
    experiments.run_experiment(
        make_config(tmp_path, builder, make_fakes, evaluation_period=0, checkpoint_period=0),
        lambda progress: (
            made.append((progress.env_steps, progress.learner_steps)) if progress.phase == "train" else None
        ),
    )
    due = [0] * 4 + [1 + 2 * number for number in range(32)]  # from `min_replay_size` on, which is 5 B
    assert made == [(number * B, steps) for number, steps in enumerate(due, start=1)]


class CannotBeSaved(environments.BatchedEnvironment):
    """Has no `save`."""

    def __init__(self, seed):
        self.inner = make_fakes(seed)
        super().__init__(B, specs.make_environment_spec(self.inner), CPU)

    def reset(self):
        return self.inner.reset()

    def step(self, actions):
        return self.inner.step(actions)


def test_a_batch_that_cannot_be_saved_says_so_once_and_ends_its_episodes(tmp_path, caplog):
    saved_at = []

    def note(progress):
        if progress.phase == "save":
            saved_at.append(progress.env_steps // B)

    config = make_config(tmp_path, of(exact.SAC), CannotBeSaved, evaluation_period=0, num_env_steps=60 * B)
    experiments.run_experiment(config, note)
    not_saved = "the random state of the environment is not saved"
    assert sum(not_saved in message for message in caplog.messages) == 1
    folder = checkpointing.replay_folder(checkpointing.Checkpointer(tmp_path / "checkpoints").latest())
    arrays = np.load(folder / "memory.npz")
    (last,), (discount,) = (
        [array for name, array in arrays.items() if name.endswith(f"/{field}")]
        for field in ("last", "discount")
    )
    assert last.shape == (60, B)
    before = np.array(saved_at) - 1  # the rows after which a checkpoint was made
    assert len(before) >= 3 and last[before].all()
    assert (discount[before] > 0.0).any(axis=1).all()
    assert not np.delete(last, before, axis=0).all(axis=1).any()
    resumed = experiments.run_experiment(dataclasses.replace(config, num_env_steps=62 * B))
    assert resumed.env_steps == 62 * B
    assert sum("has no random state of the environment" in message for message in caplog.messages) == 1


def test_an_evaluation_is_filmed_in_a_single_environment_by_the_policy_for_arrays(tmp_path):
    acted = []

    def film_episode(actor, seed, should_stop):
        assert isinstance(actor, core.Actor) and not should_stop()
        actor.observe_first(dm_env.restart(np.zeros(3, np.float32)))
        acted.append(actor.select_action(np.zeros(3, np.float32)))
        return b"GIF89a" + bytes([64, 1, 240, 0])

    film = {"evaluation_video": True, "film_episode": film_episode, "tensorboard": True}
    config = make_config(tmp_path, of(exact.SAC), make_fakes, checkpoint_period=0, **film)
    experiments.run_experiment(config)
    assert [action.shape for action in acted] == [(2,)] * 3  # before, at 20 steps of the batch, and after
    policy = runs.load_policy(tmp_path, config.builder)
    np.testing.assert_allclose(acted[-1], policy(np.zeros(3, np.float32)).action, rtol=1e-5)


class Counts(core.BatchedActor):
    """Acts by zeros, and notes what it is asked."""

    def __init__(self):
        self.calls = []

    def select_action(self, observations):
        self.calls.append(("select", observations))
        return torch.zeros(len(observations), 2)

    def observe_first(self, timestep):
        self.calls.append(("first", timestep.newest))

    def observe(self, actions, next_timestep):
        self.calls.append(("observe", next_timestep))

    def update(self, wait=False):
        self.calls.append(("update", None))


@pytest.mark.parametrize("factory", [make_fakes, make_late])
def test_episodes_have_one_result_in_a_hundred_steps_of_their_means(factory):
    actor, logger = Counts(), testing.FakeLogger()
    loop = environments.BatchedEnvironmentLoop(factory(0), actor, logger=logger)
    found = [loop.step() for _ in range(100)]
    assert [len(results) for results in found] == [0] * 99 + [1]
    loop.run(num_steps=30 * B)
    loop.reset()
    loop.step()
    returns, lengths, ended = np.zeros(B), np.zeros(B), []
    timesteps = [timestep for name, timestep in actor.calls if name == "observe"]
    for number, (step_type, reward, *_) in enumerate(timesteps[:130]):
        returns, lengths = returns + reward.double().numpy(), lengths + (step_type != 0).numpy()
        for index in np.flatnonzero(step_type == 2):
            ended.append((number >= 100, returns[index], lengths[index]))
            returns[index] = lengths[index] = 0.0
    assert len(logger.rows) == 2
    for later, row in enumerate(logger.rows):
        numbers = np.array([each[1:] for each in ended if each[0] == later])
        np.testing.assert_allclose((row["episode_return"], row["episode_length"]), numbers.mean(0))
    last = logger.rows[-1]
    assert (last["steps"], last["episodes"]) == (130 * B, len(ended))
    assert last["steps_per_second"] > 0.0 and last["seconds/environment_step"] > 0.0
    names = [name for name, _ in actor.calls]
    assert names == ["first", *["select", "observe", "update"] * 130, "first", "select", "observe", "update"]
    # It acts on what the environments show now, which is the next episode where one has ended.
    seen = [observations for name, observations in actor.calls if name == "select"]
    assert all(one is other.newest for one, other in zip(seen[1:130], timesteps, strict=False))


def test_a_loop_counts_the_episodes_that_have_ended_not_their_rows():
    loop = environments.BatchedEnvironmentLoop(
        make_fakes(0), Counts(), logger=(logger := testing.FakeLogger())
    )
    loop.run(num_episodes=3)
    assert len(logger.rows) == 1 and logger.rows[0]["episodes"] >= 3


class Poisoned(testing.FakeBatchedEnvironment):
    """Environment 2 gives a reward that is no number in its 12th step."""

    num_calls = 0

    def step(self, actions):
        timestep = super().step(actions)
        self.num_calls += 1
        if self.num_calls != 12:
            return timestep
        index = torch.arange(self.num_environments)
        return timestep._replace(reward=timestep.reward.masked_fill(index == 2, float("nan")))


@pytest.mark.parametrize("checkpoint_period", [0, 20 * B])
@pytest.mark.promise("A wrong step in a batch ends the run with its place")
def test_a_run_ends_by_a_wrong_step_and_saves_nothing_that_may_hold_it(tmp_path, caplog, checkpoint_period):
    builder, _ = CASES["sac"]
    periods = {"checkpoint_period": checkpoint_period, "evaluation_episodes": 0, "evaluation_period": 0}
    config = make_config(tmp_path, builder, lambda seed: Poisoned(B), num_env_steps=200 * B, **periods)
    with pytest.raises(specs.SpecError, match="^Poisoned, environment 2, step 12: `reward` must be finite"):
        experiments.run_experiment(config)
    assert "so nothing is saved" in caplog.text
    assert not checkpointing.Checkpointer(tmp_path / "checkpoints").steps()


def test_an_evaluation_takes_the_first_episodes_of_each_environment():
    for number, num_episodes in ((4, 6), (4, 3), (3, 9)):
        with make_late(1) if number == 4 else make_fakes(1, number) as environment:
            found = runs.evaluate(environment, Counts(), num_episodes)
        again = make_late(1) if number == 4 else make_fakes(1, number)
        again.reset()
        returns = [[0.0] for _ in range(number)]
        for _ in range(200):
            timestep = again.step(torch.zeros(number, 2))
            for index in range(number):
                returns[index][-1] += float(timestep.reward[index])
                if timestep.step_type[index] == 2:
                    returns[index].append(0.0)
        in_turns = [each[turn] for turn in range(3) for each in returns]
        np.testing.assert_allclose(found.returns, in_turns[:num_episodes])
        assert all(1 <= length <= 6 for length in found.lengths)


def make_blind(seed):
    environment = make_fakes(seed)
    environment.gives_last_observation = False
    return environment


REFUSED = {
    "another number": ({"builder": exact.SAC}, r"batch of the agent's 1 environments, got one of 4\. Set"),
    "last observations that are lost": ({"factory": make_blind}, "SACBuilder bootstraps .* is False"),
    "observers": ({"observers": [observers.ActionNorm()]}, "`observers` must be left out in a batched"),
    "observers of evaluations": (
        {"evaluation_observers": [observers.ActionNorm()]},
        "`evaluation_observers` must be left out in a batched",
    ),
    "recording": ({"record": "elsewhere"}, "`record` must be left out in a batched"),
    "priorities": (
        {"builder": of(exact.TD3)},
        "holds batched steps, whose items have no priorities.*`prioritized` False",
    ),
    "rollouts of resets in the next step": (
        {"builder": exact.make_ppo(B), "factory": make_late},
        r"PPOBuilder learns from rollouts.*FakeBatchedEnvironment reset in the next step",
    ),
    "memory": ({"builder": of(exact.R2D2)}, "`memory` of R2D2 must be none in a batched environment"),
    "stacked frames": ({"builder": of(exact.SAC, frame_stack=2)}, "`frame_stack` of SAC must be 1"),
    "another device": (
        {"factory": lambda seed: testing.FakeBatchedEnvironment(B, device="meta")},
        "must be on the device of the run, cpu, got FakeBatchedEnvironment on meta. Set `device` to 'meta'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_go_with_a_batched_environment_is_refused_beforehand(tmp_path, case):
    changes, message = REFUSED[case]
    changes = {"builder": of(exact.SAC), "factory": make_fakes, **changes}
    with pytest.raises(ValueError, match=message):
        experiments.run_experiment(make_config(tmp_path / "run", **changes))
    assert not list(tmp_path.iterdir())


def test_a_batch_is_evaluated_by_returns_and_lengths_alone(tmp_path):
    changes = {"evaluation_observers": [observers.ActionNorm()], "evaluation_environment_factory": make_fakes}
    config = make_config(tmp_path / "one", of(exact.SAC), make_fakes, **changes)
    with pytest.raises(ValueError, match="Observers must be left out in the evaluation of a batched"):
        experiments.run_experiment(config)
    config = make_config(tmp_path / "two", of(exact.SAC), make_fakes, metric="info/x/last")
    with pytest.raises(ValueError, match="This one had episode_return, .*, episode_length. Of"):
        experiments.run_experiment(config)
    config = make_config(tmp_path / "three", of(exact.SAC), make_fakes, metric="episode_length", stop_at=1.0)
    assert experiments.run_experiment(config).stopped_by.startswith("the evaluation episode_length of ")


def test_a_builder_that_says_nothing_of_batches_is_refused_by_name(tmp_path):
    class Plain(sac.SACBuilder):
        for_batches = builders.AgentBuilder.for_batches

    with pytest.raises(ValueError, match="Plain must define `for_batches` to be trained in a batched"):
        experiments.run_experiment(make_config(tmp_path, Plain(CASES["sac"][0].config), make_fakes))
    with pytest.raises(ValueError, match="SACBuilder must define `make_batched_adder` next to"):
        builders.AgentBuilder.make_batched_adder(exact.SAC, None, None)


def test_a_checkpoint_is_evaluated_in_a_batch_by_its_policy(tmp_path):
    builder, factory = CASES["sac"]
    experiments.run_experiment(make_config(tmp_path, builder, factory, evaluation_episodes=0))
    with make_fakes(3, number=2) as environment:
        found = runs.evaluate_checkpoint(tmp_path, builder, environment, 2)
    policy, environment = runs.load_policy(tmp_path, builder), make_fakes(3, number=2)
    timestep, returns, num_ended = environment.reset(), np.zeros(2), np.zeros(2)
    while not num_ended.all():
        actions = np.stack([policy(observation).action for observation in timestep.newest.numpy()])
        timestep = environment.step(torch.from_numpy(actions))
        returns += (num_ended == 0) * timestep.reward.numpy()
        num_ended += (timestep.step_type == 2).numpy()
    np.testing.assert_allclose(found.returns, returns, rtol=1e-5)
