"""Environments that write into their action, exit, or return something else than a timestep."""

import contextlib
import sys

import dm_env
import numpy as np
import pytest
import tree

from minerva_acme import environments, specs, testing, wrappers
from minerva_acme.wrappers import calls

VECTOR = specs.BoundedArray((2,), np.float32, -1.0, 1.0, name="action")
SPECS = {
    "array": VECTOR,
    "dict": {"arm": VECTOR, "grip": specs.DiscreteArray(3, name="grip")},
    "tuple": (VECTOR, (specs.BoundedArray((), np.float32, -1.0, 1.0, name="turn"),)),
}


def make_action(spec):
    return tree.map_structure(lambda leaf: np.full(leaf.shape, 0.5, leaf.dtype), spec)


class Meddling(testing.FakeEnvironment):
    """Writes into its action, and into the one before, which it has kept."""

    kept = ()

    def step(self, action):
        timestep = super().step(action)
        for leaf in (*tree.flatten(action), *self.kept):
            leaf[...] = 99
        self.kept = tree.flatten(action)
        return timestep


class SameAction(testing.FakeActor):
    """For a vector of two environments; observes each action as it was when it was selected."""

    def select_action(self, observations):
        return [self._action, self._action]

    def observe_first(self, index, timestep):
        super().observe_first(timestep)

    def observe(self, index, action, next_timestep):
        super().observe(action, next_timestep)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.promise("Whatever an environment does to its action array")
def test_an_environment_that_writes_into_its_action_leaves_the_actors_as_it_is(spec, repeats):
    inner = Meddling(episode_length=12, action_spec=spec)
    environment = wrappers.ActionRepeatWrapper(inner, num_repeats=repeats)
    actor = testing.FakeActor(make_action(spec))
    environments.EnvironmentLoop(environment=environment, actor=actor).run(num_episodes=2)
    testing.assert_nests_equal(actor.actions, [make_action(spec)] * (24 // repeats))
    testing.assert_nests_equal(inner.actions, [make_action(spec)] * 24)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_environments_that_write_into_their_actions_leave_the_actors_alone(spec):
    inner = [Meddling(episode_length=length, action_spec=spec) for length in (3, 5)]
    actor = SameAction(make_action(spec))
    vector = environments.InProcessVectorEnvironment(inner)
    environments.VectorEnvironmentLoop(environment=vector, actor=actor).run(num_steps=20)
    assert len(actor.actions) >= 20
    testing.assert_nests_equal(actor.actions, [make_action(spec)] * len(actor.actions))


def test_a_vector_of_a_users_own_may_write_into_its_actions():
    class Own(environments.InProcessVectorEnvironment):
        def step(self, actions):
            arrived = super().step(actions)
            for action in actions:
                action *= 2
            return arrived

    vector = Own([testing.FakeEnvironment(episode_length=length) for length in (3, 5)])
    actor = SameAction(make_action(VECTOR))
    environments.VectorEnvironmentLoop(environment=vector, actor=actor).run(num_steps=20)
    testing.assert_nests_equal(actor.actions, [make_action(VECTOR)] * len(actor.actions))


def test_an_action_given_through_gymnasium_stays_as_it_is():
    environment = environments.GymnasiumFromDmEnv(Meddling(episode_length=9))
    environment.reset()
    action = make_action(VECTOR)
    environment.step(action)
    testing.assert_nests_equal(action, make_action(VECTOR))


class Misbehaving(testing.FakeEnvironment):
    """Does something else than its duty in one of its methods, from then on that `begin` is called."""

    method, do = "", None

    def begin(self, method, do):
        self.method, self.do = method, do

    def reset(self):
        return self.do() if self.method == "reset" else super().reset()

    def step(self, action):
        return self.do() if self.method == "step" else super().step(action)


def bare(environment):
    return environment


WRAPPERS = [bare, wrappers.SinglePrecisionWrapper, environments.make_training_environment]


def play(wrap, method, do, seed=0):
    inner = Misbehaving(episode_length=3, seed=seed)
    environment = wrap(inner)
    actor = testing.FakeActor(np.zeros(2, np.float32))
    loop = environments.EnvironmentLoop(environment=environment, actor=actor)
    loop.run(num_steps=5)
    inner.begin(method, do)
    with contextlib.suppress(StopIteration):
        loop.run(num_episodes=2)


def play_vector(wrap, method, do):
    inner = [Misbehaving(episode_length=3, seed=seed) for seed in range(2)]
    vector = environments.InProcessVectorEnvironment([wrap(each) for each in inner])
    loop = environments.VectorEnvironmentLoop(environment=vector, actor=SameAction(np.zeros(2, np.float32)))
    loop.run(num_steps=4)
    inner[1].begin(method, do)
    loop.run(num_episodes=4)


@pytest.mark.parametrize("code", [0, None, 3, "no licence"])
@pytest.mark.parametrize("method", ["step", "reset"])
@pytest.mark.parametrize("wrap", WRAPPERS)
def test_an_environment_that_exits_is_an_error_that_names_it(wrap, method, code):
    with pytest.raises(calls.EnvironmentExit) as raised:
        play(wrap, method, lambda: sys.exit(code))
    found = "" if code is None else repr(code)
    assert f"`{method}` of Misbehaving called sys.exit({found})" in str(raised.value)
    assert isinstance(raised.value.__cause__, SystemExit)
    if wrap is environments.make_training_environment:
        assert raised.value.__notes__[0].startswith("Raised by Misbehaving, in the call after step ")


@pytest.mark.parametrize("method", ["step", "reset"])
@pytest.mark.parametrize("wrap", WRAPPERS)
def test_one_of_a_vector_that_exits_is_an_error_that_names_it_by_its_index(wrap, method):
    with pytest.raises(calls.EnvironmentExit, match=rf"`{method}` of Misbehaving called") as raised:
        play_vector(wrap, method, lambda: sys.exit(0))
    assert "environment 1" in str(raised.value) + "".join(getattr(raised.value, "__notes__", ()))


class Exiting(testing.FakeActor):
    def select_action(self, observation):
        sys.exit(3)

    def observe_first(self, index, timestep=None):
        del index, timestep


@pytest.mark.parametrize("vector", [False, True])
def test_an_actor_that_exits_is_not_blamed_on_the_environment(vector):
    inner, actor = testing.FakeEnvironment(), Exiting(np.zeros(2, np.float32))
    if vector:
        inner = environments.InProcessVectorEnvironment([inner])
    kind = environments.VectorEnvironmentLoop if vector else environments.EnvironmentLoop
    with pytest.raises(SystemExit) as raised:
        kind(environment=inner, actor=actor).step()
    assert raised.value.code == 3


def test_a_vector_of_a_users_own_that_exits_is_an_error_that_names_it():
    class Own(environments.InProcessVectorEnvironment):
        def step(self, actions):
            sys.exit(0)

    loop = environments.VectorEnvironmentLoop(
        environment=Own([testing.FakeEnvironment(), testing.FakeEnvironment()]),
        actor=SameAction(np.zeros(2, np.float32)),
    )
    with pytest.raises(calls.EnvironmentExit, match=r"`step` of Own called sys\.exit\(0\)"):
        loop.step()


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_ctrl_c_in_an_environment_stays_what_it_is(wrap):
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play(wrap, "step", interrupt)


GYMNASIUM = "Gymnasium's environments return that: make yours a `gymnasium.Env`"
STEP = "Make it with `dm_env.transition(reward, observation)`, `dm_env.termination` or `dm_env.truncation`."
RESET = "Make it with `dm_env.restart(observation)`."
ZEROS = np.zeros(3, np.float32)


@pytest.mark.parametrize(
    ("method", "value", "found", "advice"),
    [
        ("step", None, "got None", f"Its `return` may be missing. {STEP}"),
        ("reset", None, "got None", f"Its `return` may be missing. {RESET}"),
        ("step", (ZEROS, 0.0, False, False, {}), "got a tuple of 5 values", GYMNASIUM),
        ("reset", (ZEROS, {}), "got a tuple of 2 values", GYMNASIUM),
        ("step", (ZEROS, 0.0, False), "got a tuple of 3 values", STEP),
        ("reset", ZEROS, "got a ndarray", RESET),
    ],
)
@pytest.mark.parametrize("wrap", WRAPPERS)
def test_what_is_no_timestep_is_told_by_environment_and_method(wrap, method, value, found, advice):
    with pytest.raises(specs.SpecError) as raised:
        play(wrap, method, lambda: value)
    assert f"`{method}` of Misbehaving must return a `dm_env.TimeStep`, {found}." in str(raised.value)
    assert advice in str(raised.value)
    with pytest.raises(specs.SpecError) as raised:
        play_vector(wrap, method, lambda: value)
    assert f"must return a `dm_env.TimeStep`, {found}." in str(raised.value)
    assert "environment 1" in str(raised.value) + "".join(getattr(raised.value, "__notes__", ()))


@pytest.mark.parametrize(
    "wrapper",
    [
        lambda environment: wrappers.StepLimitWrapper(environment, max_steps=9),
        lambda environment: wrappers.ActionRepeatWrapper(environment, num_repeats=2),
        lambda environment: wrappers.FrameStackWrapper(environment, num_frames=2),
        lambda environment: wrappers.DelayedRewardWrapper(environment, period=None),
        wrappers.SinglePrecisionWrapper,
    ],
)
def test_every_wrapper_leaves_that_error_as_it_is(wrapper):
    for method in ("step", "reset"):
        with pytest.raises(specs.SpecError, match=f"`{method}` of Misbehaving must return"):
            play(wrapper, method, lambda: None)


def test_a_timestep_of_the_environments_own_class_will_do():
    class Extended(tuple):
        step_type = dm_env.StepType.MID
        reward = discount = 1.0
        observation = ZEROS
        first = mid = last = lambda self: False

    environment = Misbehaving()
    environment.begin("step", Extended)
    environment.reset()
    assert isinstance(calls.call(environment, "step", None), Extended)


@pytest.mark.parametrize(
    ("arrived", "message"),
    [
        (None, "`step` of Own must return a list of 2 tuples of timesteps, .* got a NoneType"),
        ([], "`step` of Own must return a list of 2 tuples of timesteps, .* got 0"),
        ([None, None], "`step` of Own must return a `dm_env.TimeStep`, got None"),
        ([(None,), (None,)], "`step` of Own must return a `dm_env.TimeStep`, got None"),
    ],
)
def test_what_a_vector_of_a_users_own_returns_is_checked(arrived, message):
    class Own(environments.InProcessVectorEnvironment):
        def step(self, actions):
            return arrived

    loop = environments.VectorEnvironmentLoop(
        environment=Own([testing.FakeEnvironment(), testing.FakeEnvironment()]),
        actor=SameAction(np.zeros(2, np.float32)),
    )
    with pytest.raises(specs.SpecError, match=message):
        loop.step()
