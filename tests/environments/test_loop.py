import time

import dm_env
import numpy as np
import pytest

from minerva_acme import core, counting, environments, testing

ACTION = np.zeros(2, np.float32)


class TapedEnvironment(testing.FakeEnvironment):
    def __init__(self, tape, **options):
        super().__init__(**options)
        self.tape = tape

    def reset(self):
        self.tape.append("reset")
        return super().reset()

    def step(self, action):
        self.tape.append("step")
        return super().step(action)


class TapedActor(core.Actor):
    def __init__(self, tape):
        self.tape = tape

    def select_action(self, observation):
        self.tape.append("select_action")
        return ACTION

    def observe_first(self, timestep):
        self.tape.append("observe_first")

    def observe(self, action, next_timestep):
        self.tape.append("observe")

    def update(self, wait=False):
        self.tape.append("update")


class TapedObserver:
    def __init__(self, tape):
        self.tape = tape

    def observe_first(self, environment, timestep):
        assert timestep.first()
        self.tape.append("observer.observe_first")

    def observe(self, environment, timestep, action):
        assert action is ACTION
        self.tape.append("observer.observe")

    def get_metrics(self):
        self.tape.append("observer.get_metrics")
        return {"observed": 42.0}


def make_loop(episode_length=3, **options):
    environment = testing.FakeEnvironment(episode_length=episode_length)
    actor = testing.FakeActor(ACTION)
    return (
        environments.EnvironmentLoop(environment=environment, actor=actor, **options),
        environment,
        actor,
    )


FIRST = ["reset", "observe_first", "observer.observe_first"]
STEP = ["select_action", "step", "observe", "observer.observe", "update"]


def test_the_calls_of_an_episode_come_in_this_order():
    tape = []
    loop = environments.EnvironmentLoop(
        environment=TapedEnvironment(tape, episode_length=2),
        actor=TapedActor(tape),
        observers=[TapedObserver(tape)],
    )
    assert loop.step() == []
    assert tape == FIRST + STEP
    assert len(loop.step()) == 1
    assert tape == FIRST + STEP + STEP + ["observer.get_metrics"]
    loop.step()
    assert tape == FIRST + STEP + STEP + ["observer.get_metrics"] + FIRST + STEP


def test_an_actor_that_should_not_update_does_not():
    loop, _, actor = make_loop(should_update=False)
    loop.run_episode()
    assert actor.num_updates == 0


def test_the_actor_observes_what_the_environment_gave_and_took():
    loop, environment, actor = make_loop()
    loop.run(num_episodes=2)
    assert all(a is b for a, b in zip(actor.timesteps, environment.timesteps, strict=True))
    assert len(actor.actions) == len(environment.actions) == 6


def test_the_actor_is_asked_at_the_newest_observation():
    asked = []

    class Asked(testing.FakeActor):
        def select_action(self, observation):
            asked.append(observation)
            return super().select_action(observation)

    environment = testing.FakeEnvironment(episode_length=3)
    environments.EnvironmentLoop(environment=environment, actor=Asked(ACTION)).run(num_episodes=2)
    assert len(asked) == 6
    testing.assert_nests_equal(
        asked, [timestep.observation for timestep in environment.timesteps if not timestep.last()]
    )


def test_a_result_holds_return_length_counts_timings_and_metrics():
    root = counting.Counter()
    root.increment(learner_steps=7)
    loop, *_ = make_loop(counter=counting.Counter(root, "actor"), observers=[TapedObserver([])])
    result = loop.run_episode()
    phases = ("reset", "select_action", "environment_step", "observe", "update")
    assert set(result) == {
        "episode_return",
        "episode_length",
        "steps_per_second",
        *(f"seconds/{phase}" for phase in phases),
        "actor_steps",
        "actor_episodes",
        "learner_steps",
        "observed",
    }
    assert (result["episode_return"], result["episode_length"]) == (1 + 2 + 3, 3)
    assert (result["actor_steps"], result["actor_episodes"], result["learner_steps"]) == (3, 1, 7)
    assert result["observed"] == 42.0


def test_timings_are_those_of_their_phase(monkeypatch):
    now = 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)

    def takes(seconds, method):
        def slow(*arguments, **named):
            nonlocal now
            now += seconds
            return method(*arguments, **named)

        return slow

    loop, environment, actor = make_loop(episode_length=2)
    environment.reset = takes(1.0, environment.reset)
    environment.step = takes(2.0, environment.step)
    actor.select_action = takes(4.0, actor.select_action)
    actor.observe_first = takes(8.0, actor.observe_first)
    actor.observe = takes(16.0, actor.observe)
    actor.update = takes(32.0, actor.update)
    loop.step()
    now += 100.0  # what the caller does between the steps
    (result,) = loop.step()
    assert result["seconds/reset"] == 1.0
    assert result["seconds/select_action"] == 2 * 4.0
    assert result["seconds/environment_step"] == 2 * 2.0
    assert result["seconds/observe"] == 8.0 + 2 * 16.0
    assert result["seconds/update"] == 2 * 32.0
    assert result["steps_per_second"] == 2 / (100.0 + 1.0 + 8.0 + 2 * (2.0 + 4.0 + 16.0 + 32.0))


def test_each_episode_is_logged_once():
    logger = testing.FakeLogger()
    loop, *_ = make_loop(logger=logger)
    results = [loop.run_episode(), loop.run_episode()]
    loop.step()
    assert logger.rows == results
    assert [row["episodes"] for row in logger.rows] == [1, 2]
    assert [row["steps"] for row in logger.rows] == [3, 6]


def test_steps_are_counted_as_they_are_made():
    counter = counting.Counter()
    loop, *_ = make_loop(counter=counter)
    seen = []
    for _ in range(4):
        loop.step()
        seen.append(counter.get_counts())
    assert seen == [{"steps": 1}, {"steps": 2}, {"steps": 3, "episodes": 1}, {"steps": 4, "episodes": 1}]


def test_run_makes_exactly_the_steps_it_is_told_and_an_open_episode_goes_on():
    loop, environment, _ = make_loop(episode_length=3)
    for num_steps, steps, resets in ((2, 2, 1), (0, 2, 1), (3, 5, 2), (1, 6, 2), (1, 7, 3)):
        loop.run(num_steps=num_steps)
        assert len(environment.actions) == steps
        assert sum(timestep.first() for timestep in environment.timesteps) == resets


def test_an_episode_that_is_left_has_no_result_and_the_next_step_begins_another():
    logger = testing.FakeLogger()
    loop, environment, _ = make_loop(episode_length=3, logger=logger)
    loop.run(num_steps=2)
    loop.reset()
    loop.run(num_steps=3)
    assert [timestep.step_type.name[0] for timestep in environment.timesteps] == list("FMMFMML")
    assert [(row["episode_length"], row["steps"], row["episodes"]) for row in logger.rows] == [(3, 5, 1)]


def test_run_finishes_the_open_episode_as_the_first():
    loop, environment, _ = make_loop(episode_length=3)
    loop.run(num_steps=1)
    loop.run(num_episodes=2)
    assert len(environment.actions) == 6
    loop.run(num_episodes=0)
    assert len(environment.actions) == 6


def test_run_without_a_number_goes_on_until_something_stops_it():
    loop, environment, actor = make_loop(episode_length=3)

    def update(wait=False):
        if len(environment.actions) == 50:
            raise KeyboardInterrupt

    actor.update = update
    with pytest.raises(KeyboardInterrupt):
        loop.run()
    assert len(environment.actions) == 50


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        (
            {"num_episodes": 1, "num_steps": 2},
            "Only one of `num_episodes` and `num_steps` may be given, got 1 and 2",
        ),
        ({"num_episodes": -1}, "`num_episodes` must be >= 0, got -1"),
        ({"num_steps": -1}, "`num_steps` must be >= 0, got -1"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(numbers, message):
    loop, environment, _ = make_loop()
    with pytest.raises(ValueError, match=message):
        loop.run(**numbers)
    assert environment.timesteps == []


@pytest.mark.parametrize("where", ["select_action", "observe", "update"])
def test_an_exception_passes_through_and_the_next_step_begins_an_episode(where):
    loop, environment, actor = make_loop()
    loop.step()
    kept = getattr(actor, where)

    def fail(*unused, **named):
        raise RuntimeError("broken")

    setattr(actor, where, fail)
    with pytest.raises(RuntimeError, match="broken"):
        loop.step()
    setattr(actor, where, kept)
    loop.step()
    assert [timestep.step_type.name for timestep in environment.timesteps[-2:]] == ["FIRST", "MID"]


@pytest.mark.parametrize(("length", "counts"), [(1, {"steps": 1, "episodes": 1}), (3, {"steps": 1})])
@pytest.mark.parametrize("where", ["observer", "update"])
def test_a_step_that_the_actor_has_observed_is_counted_whatever_fails_after_it(length, counts, where):
    def fail(*unused, **named):
        raise RuntimeError("broken")

    counter, observer = counting.Counter(), TapedObserver([])
    loop, _, actor = make_loop(episode_length=length, counter=counter, observers=[observer])
    if where == "observer":
        observer.observe = fail
    else:
        actor.update = fail
    with pytest.raises(RuntimeError, match="broken"):
        loop.step()
    assert counter.get_counts() == counts


def rewarding(*rewards):
    """An environment with one episode of these rewards."""
    steps = [dm_env.transition(reward, np.zeros(3)) for reward in rewards]
    steps[-1] = steps[-1]._replace(step_type=dm_env.StepType.LAST)
    environment = testing.FakeEnvironment()
    environment.step = lambda action: steps.pop(0)
    return environment


def play(environment):
    loop = environments.EnvironmentLoop(environment=environment, actor=testing.FakeActor(ACTION))
    return loop.run_episode()


def test_single_precision_rewards_are_summed_in_double_precision():
    result = play(rewarding(np.float32(2**24), *[np.float32(1.0)] * 4))
    assert result["episode_return"] == 2**24 + 4


def test_a_nest_of_rewards_gives_a_return_for_each():
    rewards = [{"left": np.float32(k), "right": (np.array([k, 10.0 * k]),)} for k in (1, 2)]
    result = play(rewarding(*rewards))
    returns = {name: value for name, value in result.items() if name.startswith("episode_return")}
    assert returns == {
        "episode_return": 36.0,
        "episode_return/left": 3.0,
        "episode_return/right/0/0": 3.0,
        "episode_return/right/0/1": 30.0,
    }


def test_the_rewards_of_the_environment_are_left_as_they_are():
    rewards = [np.array([1.0, 2.0]) for _ in range(3)]
    result = play(rewarding(*rewards))
    np.testing.assert_array_equal(rewards, [[1.0, 2.0]] * 3)
    assert result["episode_return/1"] == 6.0


def test_rewards_whose_returns_would_have_one_name_are_refused():
    reward = {"a": {"b": np.float32(1)}, "a/b": np.float32(2)}
    with pytest.raises(
        ValueError, match="`episode_return/a/b` must be the name of one number, got several i"
    ):
        play(rewarding(reward, reward))


def test_environment_actor_counter_and_logger_may_come_by_position():
    environment, logger = testing.FakeEnvironment(episode_length=3), testing.FakeLogger()
    counter = counting.Counter()
    actor = testing.FakeActor(np.zeros(2, np.float32))
    loop = environments.EnvironmentLoop(environment, actor, counter, logger)
    loop.run(num_episodes=2)
    assert counter.get_counts() == {"steps": 6, "episodes": 2}
    assert [row["episode_return"] for row in logger.rows] == [6.0, 6.0]
    with pytest.raises(TypeError, match="positional"):
        environments.EnvironmentLoop(environment, actor, counter, logger, [])
