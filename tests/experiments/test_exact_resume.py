"""A run that is killed or stopped, and resumed, is bit for bit the run that was not."""

import copy
import csv
import dataclasses
import random
import shutil
import signal

import dm_env
import numpy as np
import pytest
import torch
import tree
from torch import nn

from minerva_acme import environments, experiments, learners, observers, specs, types, wrappers
from minerva_acme.agents import d4pg, dqn, impala, mpo, off_policy, ppo, r2d2, sac, td3, vmpo
from minerva_acme.replay import dataset, memory
from minerva_acme.runs import checkpointing
from minerva_acme.wrappers import random_state

pytestmark = pytest.mark.promise("So does one that is stopped where it saves anyway")

NUM_STEPS = 40  # of each environment
SMALL = {"policy_layer_sizes": (8,), "value_layer_sizes": (8,)}
MPO = mpo.MPOBuilder(
    mpo.MPOConfig(
        policy_layer_sizes=(8,),
        critic_layer_sizes=(8,),
        batch_size=4,
        min_replay_size=20,
        samples_per_insert=1.0,
        num_samples=2,
        retrace_mc_actions=2,
        variable_update_period=7,
    )
)

MPO_OF_THREE = mpo.MPOBuilder(
    dataclasses.replace(
        MPO.config,
        num_environments=3,
        torso="simba",
        normalize_observations=True,
        weight_decay=0.01,
        noise_repeat=3,
        random_steps=25,
        policy_period=2,
        variable_update_period=2,
    )
)


MPO_OF_TODAY = mpo.MPOBuilder(
    dataclasses.replace(
        MPO.config,
        replay_fading=0.97,
        prioritized=True,
        min_priority=0.1,
        target_rate=0.1,
        max_replay_size=30,
    )
)


def make_ppo(num_environments):
    return ppo.PPOBuilder(
        ppo.PPOConfig(
            **SMALL, num_environments=num_environments, rollout_steps=12, minibatch_size=6, num_epochs=3
        )
    )


def make_vmpo(num_environments):
    return vmpo.VMPOBuilder(
        vmpo.VMPOConfig(**SMALL, num_environments=num_environments, rollout_steps=12, m_steps=2)
    )


SMALL_STEPS = {"critic_layer_sizes": (8,), "batch_size": 4, "min_replay_size": 20, "samples_per_insert": 1.0}
SAC = sac.SACBuilder(sac.SACConfig(**SMALL_STEPS, policy_layer_sizes=(8,), random_steps=25, n_step=2))
TD3 = td3.TD3Builder(td3.TD3Config(**SMALL_STEPS, policy_layer_sizes=(8,), random_steps=25, prioritized=True))
DQN = dqn.DQNBuilder(dqn.DQNConfig(**SMALL_STEPS, epsilon_steps=30, prioritized=True))
D4PG = d4pg.D4PGBuilder(d4pg.D4PGConfig(**SMALL_STEPS, policy_layer_sizes=(8,)))


OVER_SEQUENCES = {
    "memory": "lstm",
    "memory_size": 4,
    "burn_in": 2,
    "sequence_length": 5,
    "sequence_period": 2,
    "batch_size": 4,
    "min_replay_size": 10,
    "samples_per_insert": 2.0,
}
R2D2 = r2d2.R2D2Builder(r2d2.R2D2Config(**OVER_SEQUENCES, layer_sizes=(8,), num_environments=3))
TD3_WITH_MEMORY = td3.TD3Builder(dataclasses.replace(TD3.config, **OVER_SEQUENCES, n_step=1))


def with_memory(builder, kind):
    """Rollouts or sequences of a few steps, which begin within episodes too."""
    own = {ppo.PPOConfig: {"minibatch_size": 6}, mpo.MPOConfig: {"critic_loss_steps": "all"}}
    settings = {"memory": kind, "memory_size": 4, "burn_in": 1, **own.get(type(builder.config), {})}
    config = dataclasses.replace(builder.config, **settings)
    return type(builder)(config)


class Wanderer(specs.SpecMethods, dm_env.Environment):
    """Wanders at random, faster by some actions; ends where it leaves a circle or time is up.

    The time limit depends on the seed, so that episodes of several environments do not end together.
    """

    def __init__(self, seed, discrete=False, limit=None, radius=1.0):
        self._random = np.random.default_rng(seed)
        self._limit = seed % 13 + 8 if limit is None else limit
        self._radius = radius
        self._discrete = discrete
        action = (
            specs.DiscreteArray(3, name="action")
            if discrete
            else specs.BoundedArray((2,), np.float32, -1.0, 1.0, name="action")
        )
        self._specs = specs.EnvironmentSpec(
            specs.Array((2,), np.float32, name="observation"),
            action,
            specs.Array((), np.float32, name="reward"),
            specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount"),
        )

    def reset(self):
        self._length = 0
        self._place = self._random.uniform(-0.5, 0.5, 2).astype(np.float32)
        return dm_env.restart(self._place.copy())

    def step(self, action):
        self._length += 1
        push = np.float32(int(action) - 1) if self._discrete else np.asarray(action)
        noise = self._random.normal(0.0, 0.1, 2).astype(np.float32)
        self._place = self._place + np.float32(0.05) * push + noise
        reward = np.float32(-np.abs(self._place).sum())
        if np.linalg.norm(self._place) > self._radius:
            return dm_env.termination(reward, self._place.copy())._replace(discount=np.float32(0))
        if self._length == self._limit:
            return dm_env.truncation(reward, self._place.copy(), discount=np.float32(1))
        return dm_env.transition(reward, self._place.copy(), discount=np.float32(1))

    def save(self):
        return random_state.to_plain(self._random.bit_generator.state)

    def restore(self, state):
        self._random.bit_generator.state = random_state.to_numpy(state)


def make_discrete(seed):
    return Wanderer(seed, discrete=True)


def make_long(seed):
    return Wanderer(seed, limit=NUM_STEPS + 10, radius=np.inf)


def make_timed(seed):
    return Wanderer(seed, radius=np.inf)


class HybridWanderer(Wanderer):
    """Pushes in the direction of its gear: back, not at all, or forward."""

    def __init__(self, seed):
        super().__init__(seed)
        self._specs = self._specs._replace(
            actions={"push": self._specs.actions, "gear": specs.DiscreteArray(3, name="gear")}
        )

    def step(self, action):
        return super().step(action["push"] * np.float32(action["gear"] - 1))


def make_hybrid(seed):
    return wrappers.FlatActionWrapper(HybridWanderer(seed))


def make_cartpole(seed):
    return environments.make_training_environment("CartPole-v1", seed=seed)


def make_reacher(seed):
    # Draws where its target is, within the model of the physics.
    environment = environments.make_training_environment("dm_control/reacher/easy", seed=seed)
    return wrappers.StepLimitWrapper(environment, max_steps=20)


class Explores(ppo.PPOBuilder):
    """Explores when it is evaluated, too."""

    def make_policy(self, *parts, evaluation=False, **others):
        return super().make_policy(*parts, **others)


class AlwaysDrops(nn.Module):
    """Dropout that is left on where the policy acts and is evaluated."""

    def forward(self, x):
        return nn.functional.dropout(x, 0.2, training=True)


class DrawsGlobally(dqn.DQNBuilder):
    """An agent as anybody may write it: whatever it draws comes from torch, numpy and Python themselves."""

    def make_networks(self, spec, generator):
        network = nn.Sequential(
            nn.Linear(2, 8), nn.ReLU(), AlwaysDrops(), nn.Linear(8, spec.actions.num_values)
        )
        return dqn.DQNNetworks(network, copy.deepcopy(network))

    def make_objectives(self, spec):
        return {"q_network": off_policy.Objective(self.loss, learning_rate=0.01)}

    def update_targets(self, networks, num_steps):
        pass

    def make_choice(self, spec, evaluation):
        def choose(values, generator, env_steps):
            best = values.argmax(dim=-1)
            if evaluation:
                return best
            explores = torch.from_numpy(np.random.uniform(size=len(best)) < 0.3)
            return best.where(~explores, random.randrange(3))

        return choose

    @staticmethod
    def loss(nets, batch, generator):
        q = nets.q_network(batch.data.observation).gather(1, batch.data.action[:, None].long())[:, 0]
        return learners.Loss((q - batch.data.reward - 0.1 * torch.randn(len(q))).square().mean(), {})


class WandersGlobally(Wanderer):
    """Draws from numpy's global generator too, which is the run's to save."""

    def __init__(self, seed):
        super().__init__(seed, discrete=True)
        self._random = np.random

    def save(self):
        return {}

    def restore(self, state):
        pass


DRAWS_GLOBALLY = DrawsGlobally(DQN.config)


class Kills:
    """Copies the folder of a run at several moments, as `kill -9` would leave it behind."""

    def __init__(self, run, copies, *, lags=(0, 1, 9)):
        self._run, self._copies, self._lags = run, copies, lags
        self._played = None  # reports of playing since the last save
        self.folders = []
        self.saved_at = []

    def __call__(self, progress):
        if progress.phase == "save":
            self._played = 0
            self.saved_at.append(progress.env_steps)
        if progress.phase == "train" and self._played is not None:
            self._played += 1
            # A light checkpoint, of the best evaluation, is resumed from only where there is no other.
            if self._played - 1 in self._lags and not checkpointing.is_light(
                checkpointing.latest(self._run / "checkpoints")
            ):
                self.folders.append(self._copies / f"at_{progress.env_steps:06d}")
                shutil.copytree(self._run, self.folders[-1])


def make_config(directory, builder, **overrides):
    return experiments.ExperimentConfig(
        **{
            "builder": builder,
            "environment_factory": Wanderer,
            "directory": directory,
            "num_env_steps": NUM_STEPS * builder.num_environments,
            "replay": "memory",
            "evaluation_period": 20 * builder.num_environments,
            "evaluation_episodes": 1,
            "checkpoint_period": 14,
            "log_period_seconds": 0.0,
            "tensorboard": False,
            "observers": [observers.ActionNorm()],
            **overrides,
        }
    )


def leaves(run, builder, factory):
    """Every leaf of the newest checkpoint but the times, and what its replay holds and draws next."""
    checkpoint = checkpointing.Checkpointer(run / "checkpoints").latest()
    state = checkpointing.load_state(checkpoint)
    found = {"/".join(map(str, path)): leaf for path, leaf in tree.flatten_with_path(state)}
    tables = builder.make_replay_tables(specs.make_environment_spec(factory(0)))
    folder = checkpointing.replay_folder(checkpoint)
    with memory.MemoryServer(tables, seed=0, restore_from=folder) as server, server.client() as client:
        for table in tables:
            info = client.table_info(table.name)
            found |= {f"{table.name}/{name}": value for name, value in info._asdict().items()}
            # Rows lie elsewhere in a store that was loaded, so it is asked for items.
            if info.size:
                batch = client.sampler(table.name).sample_batch(info.size)
                drawn = tree.flatten_with_path(batch)
                found |= {"/".join(map(str, (table.name, *path))): leaf for path, leaf in drawn}
    return {name: leaf for name, leaf in found.items() if "walltime" not in name}


def learned_from(run):
    """How many items the run has written and how many learner steps it has made, by its newest checkpoint."""
    state = checkpointing.load_state(checkpointing.Checkpointer(run / "checkpoints").latest())
    return state["inserted"], state["learned"]


def as_bits(leaf):
    if isinstance(leaf, torch.Tensor | np.ndarray):
        array = np.asarray(leaf)
        return array.dtype.str, array.shape, array.tobytes()
    return repr(leaf)


def rows(run, label):
    """A log without its columns of time."""
    with open(run / f"{label}.csv", newline="") as file:
        read = list(csv.DictReader(file))
    return [
        {name: value for name, value in row.items() if "second" not in name and "walltime" not in name}
        for row in read
    ]


def assert_equal(run, straight, builder, factory):
    one, other = (
        # Where the recorded episodes are in their file may differ: those of steps made again stay in it.
        {
            name: leaf
            for name, leaf in leaves(each, builder, factory).items()
            if not name.startswith("recording/")
        }
        for each in (run, straight)
    )
    assert len(one) > 50
    assert one.keys() == other.keys()
    assert [name for name in one if as_bits(one[name]) != as_bits(other[name])] == []
    for label in ("actor", "learner", "evaluator"):
        assert rows(run, label) == rows(straight, label)


CASES = {
    "mpo, amid episodes": (MPO, make_long),
    "ppo, 4 cartpoles": (make_ppo(4), make_cartpole),
    "ppo, 2 environments, explores when evaluated": (Explores(make_ppo(2).config), Wanderer),
    "v-mpo, 4 environments": (make_vmpo(4), Wanderer),
    "v-mpo, 2 reachers": (make_vmpo(2), make_reacher),
    "impala, 4 environments": (
        impala.IMPALABuilder(impala.IMPALAConfig(**SMALL, num_environments=4, rollout_steps=12)),
        Wanderer,
    ),
    "sac, n-step": (SAC, Wanderer),
    "d4pg, amid episodes": (D4PG, make_long),
    "dqn, prioritised": (DQN, make_discrete),
    "an agent that draws from global generators in 3 environments": (
        DrawsGlobally(dataclasses.replace(DQN.config, num_environments=3)),
        WandersGlobally,
    ),
    "ppo, 2 environments with memory amid episodes": (with_memory(make_ppo(2), "gru"), make_long),
    "r2d2, 3 environments": (R2D2, make_discrete),
    "td3 with memory, prioritised": (TD3_WITH_MEMORY, Wanderer),
    "mpo, 3 environments with memory": (with_memory(MPO_OF_THREE, "lstm"), Wanderer),
    "mpo, with memory amid episodes by fading priority with targets that move": (
        with_memory(MPO_OF_TODAY, "gru"),
        make_long,
    ),
    "mpo, 3 environments with hybrid actions": (MPO_OF_THREE, make_hybrid),
}


# Those that others have too, one by one: the agent, the environment and what replay holds.
NOTHING_OF_THEIR_OWN = {"ppo, 4 cartpoles", "v-mpo, 4 environments", "sac, n-step"}


@pytest.mark.parametrize("case", [case for case in CASES if case not in NOTHING_OF_THEIR_OWN])
@pytest.mark.promise("A run that is killed and resumed equals an uninterrupted one bit for")
def test_a_run_that_is_killed_anywhere_becomes_the_run_that_was_not(tmp_path, case):
    builder, factory = CASES[case]
    straight = tmp_path / "straight"
    kills = Kills(straight, tmp_path)
    changes = {
        "environment_factory": factory,
        "evaluation_observers": [observers.ActionNorm()],
        "metric": "action_norm/continuous/mean" if factory is make_hybrid else "action_norm/mean",
    }
    result = experiments.run_experiment(make_config(straight, builder, **changes), kills)
    assert result.learner_steps >= 5
    assert result.best is not None
    # Each second case early and the others in the middle: resuming is most of the time that a case takes.
    folder = kills.folders[list(CASES).index(case) % 2 * (len(kills.folders) // 2)]
    resumed = experiments.run_experiment(make_config(folder, builder, **changes))
    assert resumed.best == result.best
    assert_equal(folder, straight, builder, factory)


def draw_globally():
    """The next numbers of the global generators, and what they were before."""
    before = torch.get_rng_state(), np.random.get_state(), random.getstate()
    drawn = torch.rand(2).tolist(), np.random.uniform(size=2).tolist(), random.random()
    torch.set_rng_state(before[0])
    np.random.set_state(before[1])
    random.setstate(before[2])
    return drawn


@pytest.mark.promise("A seed also reproduces draws from torch's")
def test_a_seed_reproduces_an_agent_that_draws_from_global_generators(tmp_path):
    results = {}
    for name, seed in (("first", 1), ("second", 1), ("other", 2)):
        torch.rand(3), np.random.uniform(), random.random()
        before = draw_globally()
        config = make_config(
            tmp_path / name, DRAWS_GLOBALLY, environment_factory=WandersGlobally, seed=seed, num_env_steps=60
        )
        results[name] = experiments.run_experiment(config)
        assert draw_globally() == before
    assert results["first"].before == results["second"].before != results["other"].before
    assert results["first"].after == results["second"].after != results["other"].after
    assert_equal(tmp_path / "first", tmp_path / "second", DRAWS_GLOBALLY, WandersGlobally)


def test_evaluations_that_draw_from_global_generators_leave_training_alone(tmp_path):
    def film_episode(actor, seed, should_stop):
        random.random()
        actor.select_action(np.zeros(2, np.float32))

    base = {"environment_factory": WandersGlobally, "checkpoint_best": False, "evaluation_period": 0}
    film = {"evaluation_video": True, "film_episode": film_episode, "tensorboard": True}
    often = {**base, **film, "evaluation_period": 7}
    for name, config in (("never", base), ("often", often)):
        experiments.run_experiment(make_config(tmp_path / name, DRAWS_GLOBALLY, **config))
    never, often = (
        checkpointing.load_state(checkpointing.find(tmp_path / name)) for name in ("never", "often")
    )
    assert rows(tmp_path / "never", "actor") == rows(tmp_path / "often", "actor")
    for part in ("learner", "generators", "policy", "policy_variables"):
        one, other = (tree.flatten(state[part]) for state in (never, often))
        assert [*map(as_bits, one)] == [*map(as_bits, other)]


class LearnsFromNoise(DrawsGlobally):
    """Learns from a dataset that draws from numpy itself, without playing."""

    def make_replay_tables(self, spec):
        return []

    def make_dataset(self, client, spec, device):
        while True:
            noise = np.random.normal(size=(2, 4, 2)).astype(np.float32)
            observation, following = torch.from_numpy(noise)
            zeros = torch.zeros(4)
            batch = types.Transition(observation, zeros.long(), zeros + 1.0, zeros, following)
            yield dataset.ReplaySample(info=None, data=batch)


def test_an_offline_run_that_draws_from_global_generators_is_continued_bit_for_bit(tmp_path):
    config = {"environment_factory": WandersGlobally, "num_env_steps": 0, "checkpoint_best": False}
    builder = LearnsFromNoise(dataclasses.replace(DQN.config, prioritized=False))
    for name, parts in (("straight", [20]), ("continued", [10, 20])):
        for steps in parts:
            experiments.run_experiment(
                make_config(tmp_path / name, builder, num_learner_steps=steps, **config)
            )
    straight, continued = (
        checkpointing.load_state(checkpointing.find(tmp_path / name)) for name in ("straight", "continued")
    )
    for part in ("learner", "generators"):
        one, other = (tree.flatten(state[part]) for state in (straight, continued))
        assert [*map(as_bits, one)] == [*map(as_bits, other)]


@pytest.fixture(scope="module", params=["mpo, amid episodes", "v-mpo, 4 environments"])
def saved(request, tmp_path_factory):
    """A case, the options of a run of it, its folder and the steps at which it has saved first."""
    builder, factory = CASES[request.param]
    folder = tmp_path_factory.mktemp("saved")
    saved_at = []

    def find(progress):
        if progress.phase == "save":
            saved_at.append(progress.env_steps)
            raise experiments.StopRun("found")

    config = {"environment_factory": factory, "evaluation_period": 0}
    experiments.run_experiment(make_config(folder / "found", builder, **config), find)
    # An evaluation is due at the first checkpoint, and a stop before it cuts it short.
    config["evaluation_period"] = saved_at[0]
    experiments.run_experiment(make_config(folder / "straight", builder, **config))
    return builder, config, folder / "straight", saved_at[0]


@pytest.mark.parametrize("phase", ["save", "train"])
def test_a_run_that_is_stopped_where_it_saves_becomes_the_run_that_was_not(tmp_path, saved, phase):
    builder, config, straight, saved_at = saved
    signals = iter([signal.SIGINT])

    def stop(progress):
        if progress.phase == phase and progress.env_steps == saved_at:
            for number in signals:  # once
                signal.raise_signal(number)

    first = experiments.run_experiment(make_config(tmp_path, builder, **config), stop)
    assert (first.interrupted_by, first.env_steps) == ("SIGINT", saved_at)
    experiments.run_experiment(make_config(tmp_path, builder, **config))
    assert_equal(tmp_path, straight, builder, config["environment_factory"])


@pytest.mark.reverb
@pytest.mark.parametrize("builder", [MPO_OF_THREE, make_ppo(4)], ids=["mpo, 3", "ppo, 4"])
@pytest.mark.promise("With Reverb, a resumed run has the same counts")
def test_with_reverb_a_run_that_is_killed_comes_to_the_same_counts(tmp_path, builder):
    # What Reverb samples, and so what is played, differs from run to run. The counts do not where the lengths
    # of episodes depend on time alone, and nothing is evaluated.
    config = {"environment_factory": make_timed, "replay": "reverb", "evaluation_period": 0}
    straight = tmp_path / "straight"
    kills = Kills(straight, tmp_path)
    result = experiments.run_experiment(make_config(straight, builder, **config), kills)
    killed = kills.folders[len(kills.folders) // 2]
    resumed = experiments.run_experiment(make_config(killed, builder, **config))
    assert (resumed.env_steps, resumed.learner_steps) == (result.env_steps, result.learner_steps)
    assert learned_from(killed) == learned_from(straight)
    # One item starts at each step of MPO; a rollout has 12 steps of all environments.
    inserted, learned = learned_from(killed)
    assert inserted == (result.env_steps if builder is MPO_OF_THREE else result.env_steps // 12 * 4)
    assert learned == result.learner_steps


@pytest.mark.promise("Resuming")
def test_a_run_that_is_made_longer_is_the_long_one(tmp_path):
    # Without a learning rate that ends with the run.
    config = dataclasses.replace(make_ppo(4).config, anneal_learning_rate=False)
    builder, factory = ppo.PPOBuilder(config), Wanderer
    straight, longer = tmp_path / "straight", tmp_path / "longer"
    kills = Kills(straight, tmp_path, lags=())
    # Evaluated at no other steps, for a run is also evaluated where it ends.
    config = {"evaluation_period": 56, "evaluation_episodes": 1, "checkpoint_best": False}
    experiments.run_experiment(make_config(straight, builder, **config), kills)
    assert kills.saved_at[0] % 56 == 0
    experiments.run_experiment(make_config(longer, builder, **config | {"num_env_steps": kills.saved_at[0]}))
    experiments.run_experiment(make_config(longer, builder, **config))
    assert_equal(longer, straight, builder, factory)


@pytest.mark.usefixtures("fork_server")
@pytest.mark.parametrize("was_in_processes", [False, True])
@pytest.mark.parametrize("num_environments", [1, 2])
def test_environments_in_processes_resume_as_those_in_this_one(tmp_path, num_environments, was_in_processes):
    builder = make_ppo(num_environments)
    straight = tmp_path / "straight"
    kills = Kills(straight, tmp_path)

    def make(seed):  # pickled whole: the processes do not import this module, and so not torch
        return environments.make_training_environment("CartPole-v1", seed=seed)

    def run(folder, in_processes, *callbacks):
        options = {"environment_factory": make, "environment_processes": in_processes}
        return experiments.run_experiment(make_config(folder, builder, **options), *callbacks)

    run(straight, was_in_processes, kills)
    resumed = run(kills.folders[0], not was_in_processes)
    assert resumed.env_steps == NUM_STEPS * num_environments
    if num_environments > 1:  # one in a process of its own begins the episode after the last earlier
        assert_equal(kills.folders[0], straight, builder, make_cartpole)


@pytest.mark.promise("A checkpoint ends open episodes as a time limit would")
def test_an_episode_that_a_checkpoint_cuts_is_learned_from_but_not_logged(tmp_path):
    builder = make_ppo(4)
    kills = Kills(tmp_path / "run", tmp_path, lags=())
    result = experiments.run_experiment(
        make_config(tmp_path / "run", builder, environment_factory=make_timed), kills
    )
    logged = rows(tmp_path / "run", "actor")
    lengths = {}
    for row in logged:
        lengths.setdefault(row["environment"], set()).add(float(row["episode_length"]))
    # All of an environment's last as long; those that were cut are missing.
    assert [len(each) for each in lengths.values()] == [1] * 4
    finished = sum(float(row["episode_length"]) for row in logged)
    assert finished < result.env_steps - result.env_steps / 10 / 4
    assert result.learner_steps == result.env_steps // 12
