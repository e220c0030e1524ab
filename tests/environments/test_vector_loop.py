import time

import dm_env
import numpy as np
import pytest

from minerva_acme import actors, core, counting, environments, observers, specs, testing

ACTION = np.zeros(2, np.float32)
LENGTHS = (2, 3, 5)


def make_environments(lengths=LENGTHS, **settings):
    return [
        testing.FakeEnvironment(episode_length=length, seed=seed, truncates=seed == 1, **settings)
        for seed, length in enumerate(lengths)
    ]


class Policy:
    """Acts by the observation, and numbers its calls."""

    def __init__(self):
        self.num_calls = 0

    def __call__(self, observation):
        action, extras = self.batch(observation[None])
        return actors.PolicyOutput(action[0], {"call": extras["call"][0]})

    def batch(self, observations):
        self.num_calls += 1
        action = np.tanh(observations[:, :2])
        return actors.PolicyOutput(action, {"call": np.full(len(observations), self.num_calls)})


class Adder(core.Adder):
    """Writes the calls it gets on a tape; as the real ones it refuses a second open episode."""

    num_inserted = 0

    def __init__(self):
        self.tape = []
        self.is_open = False

    def add_first(self, timestep):
        if self.is_open:
            raise ValueError("an episode is still open")
        self.is_open = True
        self.tape.append((timestep,))

    def add(self, action, next_timestep, extras=()):
        self.is_open = not next_timestep.last()
        self.tape.append((action, next_timestep, extras))

    def flush(self):
        pass

    def reset(self):
        self.is_open = False

    def close(self):
        pass


class TapedEnvironment(environments.InProcessVectorEnvironment):
    def __init__(self, tape, inner):
        super().__init__(inner)
        self.tape = tape

    def reset(self):
        self.tape.append("reset")
        return super().reset()

    def step(self, actions):
        self.tape.append("step")
        return super().step(actions)


class TapedActor(core.VectorActor):
    def __init__(self, tape):
        self.tape = tape

    def select_action(self, observations):
        self.tape.append(f"select_action of {len(observations)}")
        return [ACTION] * len(observations)

    def observe_first(self, index, timestep):
        assert timestep.first()
        self.tape.append(f"observe_first {index}")

    def observe(self, index, action, next_timestep):
        assert action is ACTION
        self.tape.append(f"observe {index} {next_timestep.step_type.name}")

    def update(self, wait=False):
        self.tape.append("update")


def make_loop(inner=None, policy=None, **options):
    inner = inner if inner is not None else make_environments()
    adders = [Adder() for _ in inner]
    actor = actors.FeedForwardVectorActor(policy=policy or Policy(), adders=adders)
    environment = environments.InProcessVectorEnvironment(inner)
    loop = environments.VectorEnvironmentLoop(environment=environment, actor=actor, **options)
    return loop, adders


def test_the_calls_of_a_step_come_in_this_order():
    tape = []
    loop = environments.VectorEnvironmentLoop(
        environment=TapedEnvironment(tape, make_environments([1, 2])), actor=TapedActor(tape)
    )
    loop.step()
    first = ["reset", "observe_first 0", "observe_first 1"]
    one = ["select_action of 2", "step", "observe 0 LAST", "observe 1 MID", "update", "observe_first 0"]
    assert tape == first + one
    del tape[:]
    loop.step()
    two = ["select_action of 2", "step", "observe 0 LAST", "observe 1 LAST", "update"]
    assert tape == [*two, "observe_first 0", "observe_first 1"]


def test_one_environment_is_played_exactly_as_by_the_environment_loop():
    loop, (adder,) = make_loop(make_environments([3]))
    loop.run(num_steps=10)
    expected = Adder()
    (environment,) = make_environments([3])
    actor = actors.FeedForwardActor(policy=Policy(), adder=expected)
    environments.EnvironmentLoop(environment=environment, actor=actor).run(num_steps=10)
    testing.assert_nests_equal(adder.tape, expected.tape)
    assert len(adder.tape) == 10 + 4


def test_each_environment_is_played_exactly_as_by_a_loop_of_its_own():
    loop, adders = make_loop()
    loop.run(num_steps=3 * 11)
    for adder, environment in zip(adders, make_environments(), strict=True):
        expected = Adder()
        actor = actors.FeedForwardActor(policy=Policy(), adder=expected)
        environments.EnvironmentLoop(environment=environment, actor=actor).run(num_steps=11)
        tape = adder.tape[: len(expected.tape)]
        testing.assert_nests_equal(tape, expected.tape)
        # The next FIRST is there already where an episode has just ended.
        assert len(adder.tape) - len(tape) == int(expected.tape[-1][1].last())


def test_a_step_calls_the_policy_once():
    policy = Policy()
    loop, _ = make_loop(policy=policy)
    loop.run(num_steps=3 * 7)
    assert policy.num_calls == 7


def test_results_hold_what_those_of_the_environment_loop_hold_and_the_environment():
    logger = testing.FakeLogger()
    root = counting.Counter()
    loop, _ = make_loop(counter=counting.Counter(root, "actor"), logger=logger)
    loop.run(num_steps=3 * 6)
    (environment,) = make_environments([2])
    alone = environments.EnvironmentLoop(
        environment=environment, actor=testing.FakeActor(ACTION), counter=counting.Counter(root, "actor")
    ).run_episode()
    assert all(set(row) == {"environment", *alone} for row in logger.rows)
    keys = ("environment", "episode_length", "episode_return", "actor_steps", "actor_episodes")
    assert [tuple(row[key] for key in keys) for row in logger.rows] == [
        (0, 2, 3, 6, 1),
        (1, 3, 6, 9, 2),
        (0, 2, 3, 12, 3),
        (2, 5, 15, 15, 4),
        (0, 2, 3, 18, 6),
        (1, 3, 6, 18, 6),
    ]


def test_a_step_returns_the_results_of_the_episodes_that_ended_in_it():
    loop, _ = make_loop(make_environments([1, 2, 1]))
    assert [result["environment"] for result in loop.step()] == [0, 2]
    assert [result["environment"] for result in loop.step()] == [0, 1, 2]


def test_timings_of_an_episode_are_those_of_the_loop_meanwhile(monkeypatch):
    now = 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)

    class SlowPolicy(Policy):
        def batch(self, observations):
            nonlocal now
            now += 2.0
            return super().batch(observations)

    loop, _ = make_loop(policy=SlowPolicy())
    results = [result for _ in range(6) for result in loop.step()]
    timings = [(r["environment"], r["seconds/select_action"], r["steps_per_second"]) for r in results]
    expected = [(0, 4.0), (1, 6.0), (0, 4.0), (2, 10.0), (0, 4.0), (1, 6.0)]
    assert timings == [(index, seconds, 0.5) for index, seconds in expected]


class ScriptedEnvironment(environments.VectorEnvironment):
    """Hands out what a script says: a string of step types for each environment and call."""

    def __init__(self, script):
        super().__init__(2, specs.make_environment_spec(testing.FakeEnvironment()))
        self.script = script
        self.actions = []
        self._number = 0

    def reset(self):
        return [self._make("F"), self._make("F")]

    def step(self, actions):
        self.actions.append(actions)
        return [tuple(map(self._make, types)) for types in self.script.pop(0)]

    def _make(self, letter):
        self._number += 1
        observation = np.full(3, self._number, np.float32)
        match letter:
            case "F":
                return dm_env.restart(observation)
            case "M":
                return dm_env.transition(1.0, observation)
        return dm_env.truncation(1.0, observation)

    def close(self):
        pass


def test_the_action_of_a_step_that_only_resets_is_not_observed_nor_the_step_counted():
    counter = counting.Counter()
    adders = [Adder(), Adder()]
    policy = Policy()
    loop = environments.VectorEnvironmentLoop(
        environment=ScriptedEnvironment([("M", "L"), ("M", "F"), ("L", "M"), ("F", "L"), ("M", "F")]),
        actor=actors.FeedForwardVectorActor(policy=policy, adders=adders),
        counter=counter,
    )
    lengths = [[result["episode_length"] for result in loop.step()] for _ in range(5)]
    assert lengths == [[1], [], [3], [2], []]
    assert counter.get_counts() == {"steps": 7, "episodes": 3}
    tapes = [[entry[2]["call"] if len(entry) == 3 else "first" for entry in adder.tape] for adder in adders]
    assert tapes == [["first", 1, 2, 3, "first", 5], ["first", 1, "first", 3, 4, "first"]]


def test_the_newest_observations_are_acted_on():
    seen = []

    class Watching(Policy):
        def batch(self, observations):
            seen.append(observations[:, 0].tolist())
            return super().batch(observations)

    loop = environments.VectorEnvironmentLoop(
        environment=ScriptedEnvironment([("M", "LF"), ("L", "M"), ("F", "M"), ("M", "M")]),
        actor=actors.FeedForwardVectorActor(policy=Watching()),
    )
    loop.run(num_steps=6)
    # Numbers count all timesteps: 4 is the LAST and 5 the FIRST of the second environment.
    assert seen == [[1, 2], [3, 5], [6, 7], [8, 9]]


class Looking:
    """Notes what it sees of an environment."""

    def __init__(self):
        self.seen = []

    def observe_first(self, environment, timestep):
        assert timestep.first()
        self.seen = [environment.get_info()["num_timesteps"]]

    def observe(self, environment, timestep, action):
        assert specs.make_environment_spec(environment).actions == environment.action_spec()
        self.seen.append(environment.get_info()["num_timesteps"])

    def get_metrics(self):
        return {"seen": self.seen}


def test_an_observer_follows_the_episodes_of_each_environment_by_itself(telling):
    inner = [telling(episode_length=length) for length in LENGTHS]
    looking = Looking()
    loop, _ = make_loop(inner, observers=[looking])
    results = [result for _ in range(5) for result in loop.step()]
    assert [(result["environment"], result["seen"]) for result in results] == [
        (0, [1, 2, 3]),
        (1, [1, 2, 3, 4]),
        (0, [4, 5, 6]),
        (2, [1, 2, 3, 4, 5, 6]),
    ]
    assert looking.seen == []


def test_the_projects_observers_can_look_on(telling):
    loop, _ = make_loop(
        [telling(episode_length=2) for _ in range(2)],
        observers=[observers.EnvironmentInfo(), observers.ActionNorm()],
    )
    loop.step()
    for result in loop.step():
        assert result["info/num_timesteps/last"] == 3
        assert result["action_norm/max"] > 0


def test_an_observer_may_not_step_the_environment(telling):
    class Stepping(Looking):
        def observe(self, environment, timestep, action):
            environment.step(action)

    loop, _ = make_loop([telling()], observers=[Stepping()])
    with pytest.raises(
        TypeError, match="`environment` may only be looked at by an observer, got a call of `step`"
    ):
        loop.step()


def test_after_an_exception_the_next_step_begins_new_episodes(failing):
    counter = counting.Counter()
    inner = [testing.FakeEnvironment(), failing()]
    loop, adders = make_loop(inner, counter=counter)
    loop.step()
    inner[1].fails = True
    with pytest.raises(RuntimeError, match="a joint broke"):
        loop.step()
    inner[1].fails = False
    assert counter.get_counts()["steps"] == 2
    with pytest.raises(ValueError, match="an episode is still open"):
        loop.step()
    for adder in adders:
        adder.reset()
    loop.run(num_episodes=2)
    assert [len(entry) for entry in adders[0].tape] == [1, 3, 1, 3, 3, 3, 3, 3, 1]
    assert counter.get_counts() == {"steps": 12, "episodes": 2}


def test_episodes_that_are_left_have_no_result_and_others_begin():
    counter = counting.Counter()
    inner = make_environments()
    loop, adders = make_loop(inner, counter=counter)
    loop.run(num_steps=3 * 3)  # the second of two steps has ended its first episode, the third of three too
    for adder in adders:
        adder.reset()
    loop.reset()
    assert loop.step() == []
    assert [environment.timesteps[-2].step_type.name for environment in inner] == ["FIRST"] * 3
    assert counter.get_counts() == {"steps": 12, "episodes": 2}


@pytest.mark.parametrize(("where", "num_counted"), [("adder", 1), ("observer", 2)])
def test_the_steps_that_the_actor_has_observed_are_counted_whatever_fails_after_them(
    telling, where, num_counted
):
    calls = []

    class Failing(Looking):
        def observe(self, environment, timestep, action):
            calls.append(1)
            if len(calls) == 2:
                raise RuntimeError("broken")

    def fail(*unused):
        raise RuntimeError("broken")

    counter = counting.Counter()
    loop, adders = make_loop([telling() for _ in LENGTHS], counter=counter, observers=[Failing()])
    if where == "adder":
        adders[1].add = fail
    with pytest.raises(RuntimeError, match="broken"):
        loop.step()
    assert counter.get_counts()["steps"] == num_counted


def test_a_run_stops_with_the_step_that_reaches_its_budget():
    counter = counting.Counter()
    loop, _ = make_loop(counter=counter)
    loop.run(num_steps=4)
    assert counter.get_counts()["steps"] == 6
    loop.run(num_episodes=3)
    assert counter.get_counts() == {"steps": 15, "episodes": 4}
    loop.run(num_steps=0)
    loop.run(num_episodes=0)
    assert counter.get_counts()["steps"] == 15


def test_a_budget_that_makes_no_sense_is_refused():
    loop, _ = make_loop()
    with pytest.raises(
        ValueError, match="Only one of `num_episodes` and `num_steps` may be given, got 1 and 2"
    ):
        loop.run(num_episodes=1, num_steps=2)
    with pytest.raises(ValueError, match="`num_steps` must be >= 0, got -1"):
        loop.run(num_steps=-1)


def test_an_actor_that_should_not_update_does_not():
    for should_update in (True, False):
        tape = []
        environments.VectorEnvironmentLoop(
            environment=TapedEnvironment(tape, make_environments()),
            actor=TapedActor(tape),
            should_update=should_update,
        ).run(num_steps=6)
        assert tape.count("update") == (2 if should_update else 0)
