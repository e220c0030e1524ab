import collections
import functools
import itertools
import multiprocessing
import os
import pathlib
import signal
import sys
import textwrap
import threading
import time

import dm_env
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces, vector

from minerva_acme import environments, specs, testing
from minerva_acme.agents import ppo
from minerva_acme.environments import (
    EnvironmentWorkerError,
    GymnasiumEnvironment,
    GymnasiumVectorEnvironment,
    origin,
    process_vector,
)
from minerva_acme.wrappers import SinglePrecisionWrapper, spec_check

MODES = list(vector.AutoresetMode)
NUM_STEPS = 45

PRELOADED = [__name__]
pytestmark = pytest.mark.usefixtures("fork_server")


def cart_pole():
    # Random actions end about half of these episodes, the time limit the others.
    return gymnasium.make("CartPole-v1", max_episode_steps=16, disable_env_checker=True)


def make_sync(mode, make=cart_pole, number=2, **settings):
    return GymnasiumVectorEnvironment(
        vector.SyncVectorEnv([make] * number, autoreset_mode=mode, **settings), seed=7
    )


def make_async(mode, make=cart_pole, number=2, **settings):
    workers = vector.AsyncVectorEnv([make] * number, autoreset_mode=mode, context="forkserver", **settings)
    return GymnasiumVectorEnvironment(workers, seed=7)


def play(environment, num_steps=NUM_STEPS):
    """Plays with actions that depend on environment and time; returns each environment's steps.

    A step is (observation, action, timestep); what arrived has to be as `VectorEnvironment` says.
    """
    randoms = [np.random.default_rng(index) for index in range(environment.num_environments)]
    newest = environment.reset()
    steps = [[] for _ in newest]
    for _ in range(num_steps):
        actions = [None] * len(newest)
        for index, random in enumerate(randoms):
            # An environment that only resets gets an action that must not be used.
            actions[index] = np.int64(0) if newest[index].last() else random.integers(2)
        arrived = environment.step(actions)
        testing.vector_conformance.assert_step_types("step", newest, arrived)
        for index, timesteps in enumerate(arrived):
            if not timesteps[0].first():
                steps[index].append((newest[index].observation, actions[index], timesteps[0]))
            newest[index] = timesteps[-1]
    return steps


def play_alone(index, number):
    environment = SinglePrecisionWrapper(GymnasiumEnvironment(cart_pole(), seed=7 + index))
    random = np.random.default_rng(index)
    timestep, steps = environment.reset(), []
    while len(steps) < number:
        action = random.integers(2)
        following = environment.step(action)
        steps.append((timestep.observation, action, following))
        timestep = environment.reset() if following.last() else following
    return steps


def assert_plays_as_alone(environment, num_steps=NUM_STEPS):
    ends = set()
    for index, steps in enumerate(play(environment, num_steps)):
        testing.assert_nests_equal(steps, play_alone(index, len(steps)))
        ends |= {(step[2].discount, step[2].reward) for step in steps if step[2].last()}
    assert ends == {(0.0, 1.0), (1.0, 1.0)}, "the test should see terminations and truncations"


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_transitions_are_those_of_single_environments_in_every_mode(mode, copy):
    with make_sync(mode, number=4, copy=copy) as environment:
        assert_plays_as_alone(environment)


@pytest.mark.parametrize("mode", MODES)
def test_transitions_are_those_of_single_environments_in_processes_too(mode):
    # Without copies the observations are those of the shared memory, which the next step writes into.
    with make_async(mode, copy=mode == vector.AutoresetMode.SAME_STEP) as environment:
        assert_plays_as_alone(environment)
    assert not multiprocessing.active_children()


def test_a_vector_environment_with_a_batch_of_its_own_is_played_too():
    native = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="vector_entry_point")
    with GymnasiumVectorEnvironment(native, seed=0) as environment:
        steps = play(environment)
    for own in steps:
        assert sum(step[2].last() for step in own) >= 1
        for before, after in itertools.pairwise(own):
            if not before[2].last():
                np.testing.assert_array_equal(before[2].observation, after[0])


def test_a_wrapped_vector_environment_is_played_as_it_is():
    inner = vector.SyncVectorEnv([cart_pole] * 2, autoreset_mode=vector.AutoresetMode.SAME_STEP)
    with GymnasiumVectorEnvironment(vector.VectorWrapper(inner), seed=7) as environment:
        assert_plays_as_alone(environment)
    assert inner.closed


class TestNextStep(testing.VectorEnvironmentConformance):
    def make_environment(self):
        return make_sync(vector.AutoresetMode.NEXT_STEP)


class TestSameStep(testing.VectorEnvironmentConformance):
    def make_environment(self):
        return make_sync(vector.AutoresetMode.SAME_STEP, copy=False)


class TestSharedGenerator(testing.VectorEnvironmentConformance):
    num_steps = 120
    kind = GymnasiumVectorEnvironment

    def make_environment(self):
        made = gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="vector_entry_point")
        return self.kind(made, seed=0)


class Swaps(GymnasiumVectorEnvironment):
    def step(self, actions):
        return super().step([actions[1], actions[0], actions[2]])


def test_swapped_actions_are_found_although_the_environments_share_a_generator():
    broken = type("Broken", (TestSharedGenerator,), {"kind": Swaps})()
    with pytest.raises(AssertionError, match="its own action, but environment 0 did not behave"):
        broken.test_each_action_reaches_its_own_environment()


class TestDisabled(testing.VectorEnvironmentConformance):
    def make_environment(self):
        return make_sync(vector.AutoresetMode.DISABLED)


class Nested(gymnasium.Env):
    """Episodes of three steps, whose observations tell what was done; it reuses its arrays."""

    observation_space = spaces.Dict(
        {
            "speed": spaces.Box(-1, 1, (2,), np.float32),
            "gear": spaces.Discrete(5, start=-2),
            "lights": spaces.Tuple([spaces.MultiBinary(3), spaces.Box(0, 9, (), np.float64)]),
        }
    )
    action_space = spaces.Dict(
        {"turn": spaces.Box(-1, 1, (2,), np.float32), "gear": spaces.Discrete(5, start=-2)}
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_number = 0
        self.speed = np.zeros(2, np.float32)
        return self.observe(-2), {"resets": 1}

    def step(self, action):
        assert action in self.action_space
        self.step_number += 1
        self.speed[:] = action["turn"]
        return self.observe(action["gear"]), 0.5, self.step_number == 3, False, {"step": self.step_number}

    def observe(self, gear):
        lights = (np.eye(3, dtype=np.int8)[self.step_number % 3], np.float64(self.step_number))
        return {"speed": self.speed, "gear": gear, "lights": lights}


@pytest.mark.parametrize("mode", MODES)
def test_nests_come_and_go_in_the_structure_and_dtype_of_their_specs(mode):
    environment = make_sync(mode, make=Nested)
    single = SinglePrecisionWrapper(GymnasiumEnvironment(Nested()))
    assert specs.make_environment_spec(environment) == specs.make_environment_spec(single)
    actions = [{"turn": np.full(2, sign * 0.5, np.float32), "gear": np.int32(3)} for sign in (1, -1)]
    streams = [[timestep] for timestep in environment.reset()]
    for _ in range(5):
        for stream, timesteps in zip(streams, environment.step(actions), strict=True):
            stream += timesteps
    for stream, action in zip(streams, actions, strict=True):
        expected = [single.reset()]
        while len(expected) < len(stream):
            expected.append(single.reset() if expected[-1].last() else single.step(action))
        testing.assert_nests_equal(stream, expected)
        dtypes = [leaf.dtype for leaf in (stream[1].observation["gear"], *stream[1].observation["lights"])]
        assert dtypes == [np.int32, np.int8, np.float32]
        assert stream[1].observation["gear"] == 3
    environment.close()


@pytest.mark.parametrize("mode", MODES)
def test_infos_are_those_of_the_timesteps(mode):
    environment = make_sync(mode, make=Nested)
    environment.reset()
    actions = [environment_action() for _ in range(2)]
    assert environment.get_infos(1) == ({"resets": 1},)
    infos = [environment.step(actions) and environment.get_infos(1) for _ in range(4)]
    if mode == vector.AutoresetMode.NEXT_STEP:
        ends = [({"step": 3},), ({"resets": 1},)]
    else:
        ends = [({"step": 3}, {"resets": 1}), ({"step": 1},)]
    assert infos == [({"step": 1},), ({"step": 2},), *ends]


def environment_action():
    return {"turn": np.zeros(2, np.float32), "gear": np.int64(0)}


class Ending(gymnasium.Env):
    """Episodes of two steps, in double precision; the end is a true terminal, or that of a time limit."""

    observation_space = spaces.Box(-1, 1, (2,), np.float64)
    action_space = spaces.Box(-1, 1, (1,), np.float64)

    def __init__(self, terminates):
        self.terminates = terminates

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_number = 0
        return np.zeros(2), {}

    def step(self, action):
        self.step_number += 1
        ends = self.step_number == 2
        return np.full(2, 0.5), 0.25, ends and self.terminates, ends and not self.terminates, {}


SINGLE_SPEC = specs.EnvironmentSpec(
    observations=specs.BoundedArray((2,), np.float32, -1, 1, name="observation"),
    actions=specs.BoundedArray((1,), np.float32, -1, 1, name="action"),
    rewards=specs.Array((), np.float32, name="reward"),
    discounts=specs.BoundedArray((), np.float32, 0, 1, name="discount"),
)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [vector.SyncVectorEnv, vector.AsyncVectorEnv])
def test_a_true_terminal_has_discount_0_and_a_time_limit_1(kind, mode):
    makers = [functools.partial(Ending, terminates) for terminates in (True, False)]
    settings = {} if kind is vector.SyncVectorEnv else {"context": "forkserver"}
    inner = kind(makers, autoreset_mode=mode, **settings)
    with GymnasiumVectorEnvironment(inner) as environment:
        assert specs.make_environment_spec(environment) == SINGLE_SPEC
        environment.reset()
        steps = [environment.step([np.float32([0.5])] * 2) for _ in range(2)]
    discounts = [[timesteps[0].discount for timesteps in arrived] for arrived in steps]
    assert discounts == [[1, 1], [0, 1]]
    timesteps = [arrived[0] for arrived in itertools.chain(*steps)]
    assert [timestep.step_type.name for timestep in timesteps] == ["MID", "MID", "LAST", "LAST"]
    for timestep in timesteps:
        for name, value, spec in zip(
            ("reward", "discount", "observation"),
            (timestep.reward, timestep.discount, timestep.observation),
            (SINGLE_SPEC.rewards, SINGLE_SPEC.discounts, SINGLE_SPEC.observations),
            strict=True,
        ):
            assert value.dtype == np.float32, name
            specs.check_conforms(name, value, spec)


@pytest.mark.parametrize("make", [cart_pole, functools.partial(Ending, True)], ids=["discrete", "double"])
def test_agents_take_the_specs_of_a_vector_as_they_are(make):
    with make_sync(vector.AutoresetMode.SAME_STEP, make=make) as environment:
        ppo.PPOBuilder(ppo.PPOConfig()).check_spec(specs.make_environment_spec(environment))


def test_an_integer_that_single_precision_cannot_hold_is_refused():
    class Large(Ending):
        observation_space = spaces.Box(0, 2**40, (1,), np.int64)

        def reset(self, **arguments):
            super().reset(**arguments)
            return np.array([2**40]), {}

    environment = make_sync(vector.AutoresetMode.SAME_STEP, make=functools.partial(Large, True))
    with pytest.raises(ValueError, match=r"An int64 value .* does not fit int32: .*1099511627776"):
        environment.reset()
    environment.close()


def test_a_vector_environment_that_does_not_say_when_it_resets_is_refused():
    inner = vector.SyncVectorEnv([cart_pole])
    inner.metadata = {}
    with pytest.raises(
        ValueError, match=r"must have `metadata\['autoreset_mode'\]`, .* when it resets, got none"
    ):
        GymnasiumVectorEnvironment(inner)


def test_processes_that_would_reset_twice_are_refused():
    workers = vector.AsyncVectorEnv([cart_pole], context="forkserver", shared_memory=False)
    with pytest.raises(ValueError, match="must share memory in the mode NEXT_STEP, got shared_memory=False"):
        GymnasiumVectorEnvironment(workers)
    workers.close()


def test_after_an_exception_the_next_step_begins_every_episode_anew():
    environment = make_sync(vector.AutoresetMode.NEXT_STEP)
    environment.reset()
    with pytest.raises(AssertionError):
        environment.step([np.int64(0), np.int64(9)])
    assert all(timestep.first() for (timestep,) in environment.step([np.int64(0)] * 2))
    environment.close()


def make_processes(*factories):
    return environments.make_vector(factories, processes=True)


def test_dm_env_environments_in_processes_are_played_as_in_this_one():
    factories = [
        functools.partial(testing.FakeEnvironment.nested, episode_length=n, seed=n, truncates=n == 2)
        for n in (2, 3)
    ]
    expected = environments.make_vector(factories, processes=False)
    action = {"arm": np.array([0.5, -0.25], np.float32), "grip": np.int32(2)}
    with make_processes(*factories) as environment:
        assert specs.make_environment_spec(environment) == specs.make_environment_spec(expected)
        assert_same(environment.reset(), expected.reset())
        for _ in range(7):
            assert_same(environment.step([action] * 2), expected.step([action] * 2))
    assert not multiprocessing.active_children()


def assert_same(found, expected):
    testing.assert_nests_equal(found, expected)
    for timestep, wanted in zip(flat(found), flat(expected), strict=True):
        if not timestep.first():
            assert timestep.reward.dtype == wanted.reward.dtype
            assert timestep.discount.dtype == wanted.discount.dtype
        assert timestep.observation["gear"].dtype == wanted.observation["gear"].dtype


def flat(timesteps):
    return [t for part in timesteps for t in ([part] if isinstance(part, dm_env.TimeStep) else part)]


def test_discounts_between_0_and_1_are_kept():
    def make():
        class Discounting(testing.FakeEnvironment):
            def step(self, action):
                timestep = super().step(action)
                return timestep._replace(discount=np.float32(timestep.reward / 4))

        return Discounting(episode_length=3)

    with make_processes(make) as environment:
        environment.reset()
        timesteps = [environment.step([np.zeros(2, np.float32)])[0][0] for _ in range(3)]
    assert [(t.step_type.name, t.discount) for t in timesteps] == [
        ("MID", 0.25),
        ("MID", 0.5),
        ("LAST", 0.75),
    ]


@pytest.mark.parametrize("environment_id", ["Pendulum-v1", "dm_control/cartpole/swingup"])
def test_wrapped_environments_by_id_play_and_go_on_from_a_saved_state_in_processes(environment_id):
    factories = [
        functools.partial(environments.make_training_environment, environment_id, seed) for seed in (1, 2)
    ]
    here = environments.make_vector(factories, processes=False)
    actions = [np.full(1, number, np.float32) for number in (0.5, -0.25)]
    with make_processes(*factories) as environment:
        assert origin.of(environment) == origin.of(here) is not None
        testing.assert_nests_equal(environment.reset(), here.reset())
        state = testing.through_a_file(environment.save())
        assert state == here.save()
        for _ in range(3):
            testing.assert_nests_equal(environment.step(actions), here.step(actions))
        expected = [(timestep,) for timestep in here.reset()]
        testing.assert_nests_equal([(timestep,) for timestep in environment.reset()], expected)
        environment.restore(state)
        testing.assert_nests_equal(environment.step(actions), expected)
        with pytest.raises(ValueError, match="`state` must hold 2 environments, got 1"):
            environment.restore(state[:1])


class Telling(testing.FakeEnvironment):
    """Rewards and discounts are nests; the info counts the timesteps."""

    def __init__(self):
        scalar = specs.Array((), np.float32)
        super().__init__(
            episode_length=2, reward_spec={"arm": scalar, "leg": scalar}, discount_spec={"arm": scalar}
        )

    def get_info(self):
        return {"num_timesteps": len(self.timesteps)}


def test_an_info_that_cannot_leave_its_process_is_named():
    class Unpicklable(testing.FakeEnvironment):
        def get_info(self):
            return {"is_ok": True, "lock": threading.Lock()}

    message = (
        r"TypeError: `info\['lock'\]` must be something that can be pickled.* got a lock: .*"
        "Leave it out in a wrapper of the environment"
    )
    with (
        make_processes(Unpicklable) as environment,
        pytest.raises(environments.EnvironmentWorkerError, match=message),
    ):
        environment.reset()


def test_nests_of_rewards_and_infos_come_from_processes_as_they_are():
    here = environments.make_vector([Telling] * 2, processes=False)
    with make_processes(Telling, Telling) as environment:
        testing.assert_nests_equal(environment.reset(), here.reset())
        assert environment.get_infos(1) == ({"num_timesteps": 1},)
        for infos in [({"num_timesteps": 2},), ({"num_timesteps": 3}, {"num_timesteps": 4})]:
            arrived = environment.step(ACTIONS)
            testing.assert_nests_equal(arrived, here.step(ACTIONS))
            assert environment.get_infos(1) == here.get_infos(1) == infos
    assert arrived[0][0].reward == {"arm": 2.0, "leg": 2.0}


def test_a_process_that_does_not_end_by_itself_is_killed(monkeypatch):
    monkeypatch.setattr("minerva_acme.environments.process_vector.GRACE_SECONDS", 0.2)

    def make():
        class Stubborn(testing.FakeEnvironment):
            def close(self):
                time.sleep(60)

        return Stubborn()

    environment = make_processes(make)
    environment.close()
    assert not multiprocessing.active_children()


def test_an_interrupt_while_processes_are_awaited_leaves_none(monkeypatch):
    environment = make_processes(testing.FakeEnvironment, testing.FakeEnvironment)
    process = environment._workers[0].process
    join = process.join

    def interrupted(*arguments):
        monkeypatch.setattr(process, "join", join)
        raise KeyboardInterrupt

    monkeypatch.setattr(process, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        environment.close()
    assert not multiprocessing.active_children()


def failing_in_step(how):
    """A factory; its class is local, so that the processes get it by value."""

    def make():
        class Failing(testing.FakeEnvironment):
            def step(self, action):
                if len(self.timesteps) == 3:
                    how()
                return super().step(action)

        return Failing()

    return make


def raise_error():
    raise OverflowError("the arm flew away")


ACTIONS = [np.zeros(2, np.float32)] * 2


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            raise_error,
            r"Environment 1 failed in its process: OverflowError: the arm flew away\.\nTraceback(?s:.)*"
            "in raise_error(?s:.)*All processes have ended; make the vector environment again",
        ),
        (
            functools.partial(os._exit, 5),
            "The process of environment 1 ended with exit code 5. Its output .* All processes",
        ),
    ],
)
def test_a_failure_in_a_process_is_told_and_ends_all_of_them(how, message):
    environment = make_processes(testing.FakeEnvironment, failing_in_step(how))
    environment.reset()
    for _ in range(2):
        environment.step(ACTIONS)
    with pytest.raises(EnvironmentWorkerError, match=message):
        environment.step(ACTIONS)
    assert not multiprocessing.active_children()
    with pytest.raises(EnvironmentWorkerError, match="The vector environment is closed"):
        environment.step(ACTIONS)
    environment.close()


def test_a_wrong_timestep_in_a_process_is_told_by_the_index_of_its_environment():
    def make():
        class Broken(testing.FakeEnvironment):
            def step(self, action):
                return super().step(action)._replace(reward=None)

        return environments.make_training_environment(Broken())

    environment = make_processes(
        lambda: environments.make_training_environment(testing.FakeEnvironment()), make
    )
    environment.reset()
    message = (
        "Environment 1 failed in its process: SpecError: Broken, environment 1, step 1 of episode 1: `reward`"
    )
    with pytest.raises(EnvironmentWorkerError, match=message):
        environment.step(ACTIONS)


class Poisoned(gymnasium.Wrapper):
    """Gives rewards that are not those of the environment, from the third step on."""

    num_steps = 0

    def __init__(self, environment, reward):
        super().__init__(environment)
        self._reward = reward

    def step(self, action):
        self.num_steps += 1
        observation, reward, *rest = super().step(action)
        return observation, self._reward if self.num_steps == 3 else reward, *rest


def step_poisoned(mode, reward):
    makers = [cart_pole, lambda: Poisoned(cart_pole(), reward)]
    inner = vector.SyncVectorEnv(makers, autoreset_mode=mode)
    with GymnasiumVectorEnvironment(inner, seed=7) as environment:
        environment.reset()
        return [environment.step([np.int64(step % 2)] * 2) for step in range(4)]


@pytest.mark.parametrize("mode", MODES)
def test_a_poisoned_number_is_told_by_the_index_of_its_environment(mode, caplog, monkeypatch):
    monkeypatch.setattr(spec_check, "_seen", collections.Counter())
    place = "SyncVectorEnv, environment 1, step 3 of episode 1: `reward` "
    with pytest.raises(specs.SpecError, match=place + "must be finite, got nan"):
        step_poisoned(mode, np.nan)
    with pytest.raises(specs.SpecError, match=place + r"must be within ±1e\+15, got 1e\+30"):
        step_poisoned(mode, 1e30)
    assert len(step_poisoned(mode, 9e14)) == 4
    (record,) = caplog.records
    assert record.getMessage().startswith(place + "reaches 9e+14. ")


def test_an_error_that_cannot_be_pickled_is_not_waited_for(monkeypatch):
    monkeypatch.setattr("minerva_acme.environments.gymnasium_vector._GRACE_SECONDS", 0.5)

    def make():
        class Unpicklable(Exception):
            def __reduce__(self):
                raise TypeError("no")

        class Failing(gymnasium.Env):
            observation_space = action_space = gymnasium.spaces.Discrete(2)

            def reset(self, **arguments):
                raise Unpicklable

        return Failing()

    environment = make_async(vector.AutoresetMode.SAME_STEP, make=make, number=1)
    with pytest.raises(EnvironmentWorkerError, match="with an error that cannot be sent to this process"):
        environment.reset()
    assert not multiprocessing.active_children()


@pytest.mark.filterwarnings("ignore:.*ERROR:UserWarning")  # Gymnasium says it with a warning too
def test_an_error_of_gymnasiums_own_workers_is_told_and_ends_all_of_them():
    environment = make_async(vector.AutoresetMode.DISABLED)
    environment.reset()
    with pytest.raises(EnvironmentWorkerError, match="An environment failed in its process: AssertionError"):
        environment.step([np.int64(0), np.int64(9)])
    assert not multiprocessing.active_children()


def test_a_process_that_cannot_be_started_leaves_none_behind():
    def make():
        if multiprocessing.parent_process() is not None:
            sys.exit(4)
        return testing.FakeEnvironment()

    with pytest.raises(EnvironmentWorkerError, match="The process of environment 1 ended with exit code 4"):
        make_processes(testing.FakeEnvironment, make)
    assert not multiprocessing.active_children()


def test_another_ctrl_c_while_processes_are_killed_spares_none():
    calls = []

    class Process:
        def __init__(self, name):
            self.name = name

        def kill(self):
            calls.append(f"kill {self.name}")
            raise KeyboardInterrupt  # as `os.kill` does, which handles signals that have arrived

        def join(self):
            calls.append(f"join {self.name}")

    with pytest.raises(KeyboardInterrupt):
        process_vector._kill([Process("a"), Process("b")])
    assert calls == ["kill b", "kill a", "join b", "join a"]


def test_specs_that_differ_are_refused_and_leave_no_process_behind():
    precise = functools.partial(testing.FakeEnvironment, reward_spec=specs.Array((), np.float64))
    message = r"same reward_spec, got .*float64.* of environment 1 and .*float32"
    with pytest.raises(ValueError, match=message) as raised:
        make_processes(testing.FakeEnvironment, precise)
    # Nothing is left to the garbage collector: the error still holds all that was made.
    assert raised.traceback and not multiprocessing.active_children()
    with pytest.raises(ValueError, match="`environments` must hold at least one environment, got none"):
        make_processes()
    assert not multiprocessing.active_children()


SCRIPT = textwrap.dedent(
    """
    import functools, signal, sys
    import numpy as np
    from minerva_acme import environments

    if __name__ == "__main__":
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell's children ignore it
        make = functools.partial(environments.make, "Pendulum-v1")
        with environments.make_vector([make] * 2, processes=True) as environment:
            environment.reset()
            try:
                print("playing", flush=True)
                while True:
                    environment.step([np.zeros(1, np.float32)] * 2)
            except KeyboardInterrupt:
                environment.close()
                sys.exit(3)
    """
)


def group_members(group):
    """The processes of a group that have not ended."""
    members = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of_group = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:  # ended meanwhile
            continue
        if int(of_group) == group and state != "Z":
            members.append(path.parent.name)
    return members


@pytest.mark.skipif(not pathlib.Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_processes_end_with_their_parent(nursery, ending):
    parent = nursery.start(SCRIPT)
    assert parent.stdout.readline() == "playing\n"
    if ending == signal.SIGINT:
        os.killpg(parent.pid, ending)  # as a terminal does
    else:
        parent.send_signal(ending)
    status = parent.wait(20.0)
    with parent.stdout:
        assert (status, parent.stdout.read()) == (3 if ending == signal.SIGINT else -ending, "")
    deadline = time.monotonic() + 10
    while group_members(parent.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert group_members(parent.pid) == []


NEVER_CLOSED = textwrap.dedent(
    """
    import functools, os, signal, sys, time
    import numpy as np
    from minerva_acme import environments

    if __name__ == "__main__":
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        environment = environments.make_vector(
            [functools.partial(environments.make, "Pendulum-v1")] * 2, processes=True
        )
        environment.reset()
        for number in (signal.SIGTERM, signal.SIGHUP):
            os.killpg(0, number)
        environment.step([np.zeros(1, np.float32)] * 2)
        print("stepped", flush=True)
    """
)


def test_processes_outlive_signals_to_the_group_and_end_with_the_program(nursery):
    parent = nursery.start(NEVER_CLOSED)
    with parent.stdout:
        assert (parent.wait(60.0), parent.stdout.read()) == (0, "stepped\n")
    deadline = time.monotonic() + 10
    while group_members(parent.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert group_members(parent.pid) == []


class GivesTheNextEpisodes(vector.VectorWrapper):
    """`final_obs` is what the next episode begins with."""

    def step(self, actions):
        observations, *result, infos = self.env.step(actions)
        if "final_obs" in infos:
            final = [None if last is None else observations[i] for i, last in enumerate(infos["final_obs"])]
            infos = {**infos, "final_obs": np.array([*final, None], object)[:-1]}
        return (observations, *result, infos)


class RepeatsTheOneBefore(vector.VectorWrapper):
    def step(self, actions):
        newest = getattr(self, "newest", None)
        observations, *result, infos = self.env.step(actions)
        if "final_obs" in infos and newest is not None:
            final = [None if last is None else newest[i] for i, last in enumerate(infos["final_obs"])]
            infos = {**infos, "final_obs": np.array([*final, None], object)[:-1]}
        self.newest = observations.copy()
        return (observations, *result, infos)


class Loses(GymnasiumVectorEnvironment):
    def __init__(self, inner, **settings):
        super().__init__(inner, loses_final_obs=True, **settings)


@pytest.mark.parametrize(
    ("wrap", "make", "message"),
    [
        (GivesTheNextEpisodes, GymnasiumVectorEnvironment, "got the one that the next episode begins with"),
        (RepeatsTheOneBefore, GymnasiumVectorEnvironment, "got the previous one again, in every episode"),
        (vector.VectorWrapper, Loses, "must return the true observation at LAST, but says that it does not"),
    ],
)
def test_the_conformance_class_says_so_of_a_vector_without_true_last_observations(wrap, make, message):
    class Suite(testing.VectorEnvironmentConformance):
        def make_environment(self):
            return make(wrap(vector.SyncVectorEnv([cart_pole] * 2, autoreset_mode=MODES[1])), seed=7)

    assert MODES[1] == vector.AutoresetMode.SAME_STEP
    with pytest.raises(AssertionError, match=message):
        Suite().test_the_last_observation_is_that_of_the_episode_that_ends()
