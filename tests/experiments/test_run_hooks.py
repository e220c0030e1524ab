"""What a user can hang into a run, and the runs that only that makes possible."""

import csv
import itertools
import logging

import numpy as np
import pytest

from minerva_acme import actors, builders, core, environments, experiments, loggers, runs, specs, testing
from minerva_acme.agents import mpo, ppo
from minerva_acme.replay import base as replay
from minerva_acme.runs import checkpointing, run_results

CONFIG = ppo.PPOConfig(
    num_environments=1,
    rollout_steps=8,
    minibatch_size=4,
    num_epochs=1,
    policy_layer_sizes=(4,),
    value_layer_sizes=(4,),
)


def make_environment(seed):
    return testing.FakeEnvironment(seed=seed)  # episodes of 5 steps, which return 15


def make_config(directory, num_env_steps=40, **overrides):
    return experiments.ExperimentConfig(
        **{
            "builder": ppo.PPOBuilder(CONFIG),
            "environment_factory": make_environment,
            "directory": directory,
            "num_env_steps": num_env_steps,
            "evaluation_period": 0,
            "evaluation_episodes": 2,
            "checkpoint_period": 0,
            "log_period_seconds": 0.0,
            "tensorboard": False,
            "replay": "memory",
            **overrides,
        }
    )


def rows(directory, label):
    with open(directory / f"{label}.csv", newline="") as file:
        return list(csv.DictReader(file))


def stop_at(env_steps, phase="train"):
    def callback(progress):
        if progress.env_steps >= env_steps and progress.phase == phase:
            raise experiments.StopRun(f"{env_steps} are enough")

    return callback


@pytest.mark.promise("Callbacks")
def test_a_callback_stops_the_run_which_is_evaluated_and_saved_and_can_be_resumed(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    result = experiments.run_experiment(make_config(tmp_path), stop_at(12))
    assert (result.stopped_by, result.interrupted_by, result.env_steps) == ("12 are enough", None, 12)
    assert result.after is not None and result.after is result.best[1]
    assert [float(row["actor_steps"]) for row in rows(tmp_path, "evaluator")] == [0.0, 12.0]
    assert checkpointing.env_steps(checkpointing.find(tmp_path)) == 12
    assert "stopped at 12 steps: 12 are enough" in caplog.text

    again = experiments.run_experiment(make_config(tmp_path), stop_at(12))
    assert (again.stopped_by, again.env_steps, again.after) == ("12 are enough", 13, again.best[1])
    resumed = experiments.run_experiment(make_config(tmp_path))
    assert (resumed.stopped_by, resumed.env_steps) == (None, 40)


def test_a_callback_that_is_content_before_training_lets_it_make_no_step(tmp_path):
    result = experiments.run_experiment(make_config(tmp_path), stop_at(0, "evaluate"))
    assert (result.env_steps, result.learner_steps, result.stopped_by) == (0, 0, "0 are enough")
    assert result.after is not None


def test_all_callbacks_see_the_step_at_which_one_ends_the_run(tmp_path):
    seen = []

    def watch(progress):
        seen.append((progress.phase, progress.env_steps))
        return True

    result = experiments.run_experiment(make_config(tmp_path), stop_at(9), stop_at(9), watch)
    assert result.stopped_by == "9 are enough"
    assert [steps for phase, steps in seen if phase == "train"] == [*range(1, 10)]
    assert seen[-1] == ("save", 9)


def test_a_factory_makes_loggers_that_get_the_rows_of_the_files_and_are_closed(tmp_path):
    made = {}

    def make(label):
        assert label not in made
        made[label] = loggers.InMemoryLogger()
        return made[label]

    experiments.run_experiment(make_config(tmp_path, logger_factory=make))
    assert made.keys() == {"actor", "learner", "evaluator"}
    for label, logger in made.items():
        with pytest.raises(ValueError, match="The logger is closed"):
            logger.write({"steps": 0})
        written = rows(tmp_path, label)
        assert [
            float(row["episode_return" if label != "learner" else "loss/network"]) for row in written
        ] == [
            pytest.approx(row["episode_return" if label != "learner" else "loss/network"])
            for row in logger.rows
        ]
        assert len(written) >= 2


def test_evaluations_are_played_in_an_environment_of_ones_own(tmp_path):
    made = []

    def make(seed):
        made.append(testing.FakeEnvironment(episode_length=3, seed=seed))
        return made[-1]

    result = experiments.run_experiment(make_config(tmp_path, evaluation_environment_factory=make))
    assert result.after.lengths == result.before.lengths == result.random.lengths == (3, 3)
    assert len(made) == 3
    assert {float(row["episode_length"]) for row in rows(tmp_path, "actor")} == {5.0}


def test_an_evaluation_environment_that_the_agent_cannot_act_in_is_refused(tmp_path):
    config = make_config(
        tmp_path, evaluation_environment_factory=lambda seed: testing.FakeEnvironment.discrete()
    )
    said = "`evaluation_environment_factory` must make environments with the observations of training"
    with pytest.raises(ValueError, match=said):
        experiments.run_experiment(config)


class Growing(testing.FakeEnvironment):
    """Its first episode has `length` steps, and each later one a step more."""

    def __init__(self, length, **settings):
        super().__init__(episode_length=length, **settings)

    def step(self, action):
        timestep = super().step(action)
        self._episode_length += timestep.last()
        return timestep


@pytest.mark.parametrize("num_episodes", [1, 2, 5])
def test_each_of_several_environments_plays_its_first_episodes_however_long(num_episodes):
    class Actor(actors.FeedForwardVectorActor):
        num_calls = 0

        def select_action(self, observations):
            self.num_calls += 1
            return [np.zeros(2, np.float32) for _ in observations]

    vector = environments.InProcessVectorEnvironment([Growing(2), Growing(20)])
    actor = Actor(policy=None)
    result = runs.evaluate(vector, actor, num_episodes)
    # The short one alone would have ended all of them.
    assert sorted(result.lengths) == {1: [2], 2: [2, 20], 5: [2, 3, 4, 20, 21]}[num_episodes]
    assert actor.num_calls <= 2 + max(20 if num_episodes > 1 else 2, 41 if num_episodes == 5 else 0)
    assert sorted(result.returns) == [length * (length + 1) / 2 for length in sorted(result.lengths)]


def test_an_evaluation_in_several_environments_asks_the_policy_once_for_all(tmp_path, monkeypatch):
    sizes, seeds = [], []
    make_policy = ppo.PPOBuilder.make_policy

    def spy(self, networks, spec, generator, evaluation=False, **others):
        policy = make_policy(self, networks, spec, generator, evaluation=evaluation, **others)
        batch = policy.batch
        if evaluation:
            policy.batch = lambda observations: (sizes.append(len(observations)), batch(observations))[1]
        return policy

    def make(seed):
        seeds.append(seed)
        return make_environment(seed)

    monkeypatch.setattr(ppo.PPOBuilder, "make_policy", spy)
    options = {"evaluation_environments": 3, "evaluation_environment_factory": make}
    result = experiments.run_experiment(make_config(tmp_path, evaluation_episodes=6, **options))
    assert result.after == runs.Evaluation((15.0,) * 6, (5,) * 6)
    # 2 evaluations of 2 episodes each of 5 steps in each environment, after one call that begins them.
    assert set(sizes) == {3} and len(sizes) <= 2 * 11
    assert len(set(seeds)) == 6  # of the two evaluations; random actions are drawn in the first's first
    assert len(seeds) == 1 + 3 + 3


class NestedRewards(testing.FakeEnvironment):
    def __init__(self, seed):
        reward_spec = {"task": specs.Array((), np.float32), "effort": [specs.Array((2,), np.float32)]}
        super().__init__(seed=seed, episode_length=3, reward_spec=reward_spec)


class Counting(builders.AgentBuilder):
    """An agent that learns to count, and acts at random; whatever the environment."""

    def __init__(self, dataset=None):
        self.dataset = dataset

    def check_spec(self, spec):
        pass

    def make_networks(self, spec, generator):
        return None

    def make_replay_tables(self, spec):
        return []

    def make_adder(self, client, spec):
        return Nowhere()

    def make_dataset(self, client, spec, device):
        return itertools.count() if self.dataset is None else self.dataset

    def make_learner(self, parts):
        return CountingLearner(parts.dataset, parts.counter)

    def make_policy(self, networks, spec, generator, evaluation=False, **others):
        return Zero(spec)

    policy_variables = ("policy",)
    variable_update_period = 1

    def learner_steps_due(self, num_inserted):
        return num_inserted


class CountingLearner(testing.FakeLearner):
    def __init__(self, dataset, counter):
        super().__init__(dataset)
        self._counter = counter

    def step(self):
        super().step()
        self._counter.increment(steps=1)


class Nowhere(testing.FakeLogger):
    """An adder that writes nothing."""

    num_inserted = 0

    def add_first(self, timestep):
        pass

    def add(self, action, next_timestep, extras=()):
        self.num_inserted += 1

    def flush(self):
        pass

    def reset(self):
        pass


class Zero(builders.AgentPolicy):
    def __init__(self, spec):
        self._spec = spec.actions

    def batch(self, observations):
        return actors.PolicyOutput(np.zeros((1, *self._spec.shape), self._spec.dtype))

    def set_variables(self, values):
        pass

    def save(self):
        return None

    def restore(self, state):
        pass


def test_nested_rewards_are_summed_for_the_best_and_told_by_leaf(tmp_path):
    config = make_config(tmp_path, 6, builder=Counting(), environment_factory=NestedRewards)
    seen = []
    result = experiments.run_experiment(config, seen.append)
    assert result.after.returns == (18.0, 18.0) and result.best[1].mean == 18.0
    assert result.after.leaf_returns == {
        "effort/0/0": (6.0, 6.0),
        "effort/0/1": (6.0, 6.0),
        "task": (6.0, 6.0),
    }
    assert seen[-1].last_episode_return == 18.0
    for label in ("actor", "evaluator"):
        row = rows(tmp_path, label)[-1]
        assert [float(row[name]) for name in ("episode_return", "episode_return/task")] == [18.0, 6.0]
    (collected,) = run_results.collect([tmp_path], name="mine")
    assert collected.exp_name == "mine" and {row.exp_name for row in collected.rows} == {"mine"}
    last = {row.metric: row.value for row in collected.rows if row.env_step == 6}
    assert (last["avg_return"], last["avg_return/task"], last["avg_return/effort/0/1"]) == (18.0, 6.0, 6.0)
    again = experiments.run_experiment(config)  # from its checkpoint
    assert again.after == result.after and again.before.leaf_returns == result.before.leaf_returns


def test_without_bounds_of_actions_a_run_has_no_random_baseline(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    config = make_config(
        tmp_path,
        6,
        builder=Counting(),
        environment_factory=lambda seed: testing.FakeEnvironment.continuous(seed=seed),
    )
    result = experiments.run_experiment(config)
    assert result.random is None and result.before is not None and result.after is not None
    assert "no random actions are evaluated for comparison: RandomActor needs `action_spec`" in caplog.text


def test_a_run_without_environment_steps_learns_from_its_dataset_alone(tmp_path):
    options = {"num_learner_steps": 10, "evaluation_period": 4, "checkpoint_period": 3, "checkpoint_keep": 9}
    seen = []
    result = experiments.run_experiment(make_config(tmp_path, 0, builder=Counting(), **options), seen.append)
    assert (result.env_steps, result.learner_steps) == (0, 10)
    evaluated = [int(float(row["learner_steps"])) for row in rows(tmp_path, "evaluator")]
    assert evaluated == [0, 4, 8, 10] and result.after is not None and result.random is not None
    assert checkpointing.Checkpointer(tmp_path / "checkpoints").steps() == [3, 6, 9, 10]
    assert (seen[-1].steps, seen[-1].num_steps) == (10, 10)
    assert rows(tmp_path, "actor") == []

    options["num_learner_steps"] = 12
    resumed = experiments.run_experiment(make_config(tmp_path, 0, builder=Counting(), **options))
    assert resumed.learner_steps == 12
    variables = checkpointing.load_state(checkpointing.find(tmp_path))["policy_variables"]
    assert variables[0]["steps"].tolist() == [12.0, 12.0]
    with pytest.raises(ValueError, match=r"`num_environments` must be 0 .* got 1 \(0 for a run without"):
        experiments.run_experiment(make_config(tmp_path, 5, builder=Counting()))


class ForgetfulBuilder(Counting):
    def make_learner(self, parts):
        return testing.FakeLearner(parts.dataset)  # which counts nothing in the run's counter


def test_the_steps_of_a_learner_that_counts_none_are_counted_for_it(tmp_path):
    turns = []

    def watch(progress):
        turns.append(progress.learner_steps)
        if len(turns) > 60:
            raise experiments.StopRun("it goes on for ever")

    options = {"builder": ForgetfulBuilder(), "num_learner_steps": 20, "evaluation_period": 10}
    result = experiments.run_experiment(make_config(tmp_path, 0, **options), watch)
    assert (result.learner_steps, result.stopped_by) == (20, None)
    evaluated = [int(float(row["learner_steps"])) for row in rows(tmp_path, "evaluator")]
    assert evaluated == [0, 10, 20]
    options["num_learner_steps"] = 25
    assert experiments.run_experiment(make_config(tmp_path, 0, **options), watch).learner_steps == 25


def test_a_stopped_offline_run_makes_each_step_once(tmp_path):
    def stop(progress):
        if progress.steps == 5:
            raise experiments.StopRun("half of them")

    config = make_config(tmp_path, 0, builder=Counting(), num_learner_steps=10)
    assert experiments.run_experiment(config, stop).learner_steps == 5
    assert experiments.run_experiment(config).learner_steps == 10


class Tally(core.Saveable):
    """Counts the batches that go through it."""

    def __init__(self, dataset=()):
        self.dataset, self.count = iter(dataset), 0

    def __iter__(self):
        return self

    def __next__(self):
        self.count += 1
        return next(self.dataset)

    def save(self):
        return {"count": self.count}

    def restore(self, state):
        self.count = state["count"]


class WithCurriculum(Counting):
    """Wraps its dataset, and raises its level with every learner step that is due."""

    def __init__(self):
        super().__init__()
        self.saveables = {"curriculum": Tally(itertools.count())}

    def make_dataset(self, client, spec, device):
        self.dataset = Tally(super().make_dataset(client, spec, device))
        return self.dataset

    def make_learner(self, parts):
        learner = super().make_learner(parts)
        step = learner.step
        learner.step = lambda: (
            step(),
            next(self.saveables["curriculum"]),
            next(self.saveables["curriculum"]),
        )
        return learner


def test_a_dataset_around_a_dataset_and_what_a_builder_names_go_on_where_they_were(tmp_path):
    for num_steps in (3, 7):
        builder = WithCurriculum()
        experiments.run_experiment(make_config(tmp_path, 0, builder=builder, num_learner_steps=num_steps))
        assert (builder.dataset.count, builder.saveables["curriculum"].count) == (num_steps, 2 * num_steps)


@pytest.mark.parametrize("dataset", [iter([1, 2, 3, 4, 5]), (number for number in range(5)), iter(range(5))])
def test_any_iterator_is_a_dataset(tmp_path, dataset):
    result = experiments.run_experiment(
        make_config(tmp_path, 0, builder=Counting(dataset), num_learner_steps=4)
    )
    assert result.learner_steps == 4


def test_a_dataset_that_ends_too_early_is_named(tmp_path):
    config = make_config(tmp_path, 0, builder=Counting(iter([1, 2])), num_learner_steps=3)
    with pytest.raises(ValueError, match="got one that ended after 2 batches"):
        experiments.run_experiment(config)


def test_an_agent_that_waits_for_a_replay_nobody_fills_says_that_nothing_is_played(tmp_path, monkeypatch):
    monkeypatch.setattr("minerva_acme.replay.waiting.SLICE_SECONDS", 0.05)
    monkeypatch.setattr("minerva_acme.replay.waiting._STILL_SECONDS", 0.2)
    agent = mpo.MPOBuilder(mpo.MPOConfig(policy_layer_sizes=(4,), critic_layer_sizes=(4,)))
    with pytest.raises(replay.ReplayDeadlock, match=r"The run does not play \(`num_env_steps` 0\)"):
        experiments.run_experiment(make_config(tmp_path, 0, builder=agent, num_learner_steps=3))


@pytest.mark.parametrize(
    ("builder", "num_env_steps", "too_short"),
    [
        (ppo.PPOBuilder(CONFIG), 7, "makes 7 environment steps, and the first learner step needs 8 at least"),
        (ppo.PPOBuilder(CONFIG), 8, None),
        (
            mpo.MPOBuilder(mpo.MPOConfig(min_replay_size=1000)),
            10,
            "makes 10 environment steps, and the first learner step needs 1,000 at least",
        ),
    ],
)
def test_a_run_in_which_nothing_can_be_learned_is_warned_of(
    tmp_path, caplog, builder, num_env_steps, too_short
):
    result = experiments.run_experiment(make_config(tmp_path, num_env_steps, builder=builder))
    assert (result.learner_steps == 0) is (too_short is not None)
    assert ("Nothing will be learned" in caplog.text) is (too_short is not None)
    assert too_short is None or too_short in caplog.text


def test_what_is_made_of_objects_is_not_known_to_the_folder(tmp_path):
    config = make_config(
        tmp_path,
        8,
        logger_factory=lambda label: testing.FakeLogger(),
        evaluation_environment_factory=make_environment,
    )
    experiments.run_experiment(config)
    from minerva_acme.runs import run_folder

    unknown = run_folder.read(tmp_path).unknown
    assert unknown.keys() == {"logger_factory", "evaluation_environment_factory"}
