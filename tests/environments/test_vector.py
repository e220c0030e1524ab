import functools

import dm_env
import numpy as np
import pytest
import tree

from minerva_acme import environments, specs, testing

ACTION = np.zeros(2, np.float32)
LENGTHS = (2, 3, 5)


def make(lengths=LENGTHS, kind=testing.FakeEnvironment, **settings):
    return [
        kind(episode_length=length, seed=seed, truncates=seed % 2 == 1, **settings)
        for seed, length in enumerate(lengths)
    ]


def play_alone(environment, actions):
    """The timesteps of an environment by itself, which resets in the step after LAST."""
    timesteps = [environment.reset()]
    for action in actions:
        timesteps.append(environment.step(action))
        if timesteps[-1].last():
            timesteps.append(environment.reset())
    return timesteps


def play_together(environment, actions):
    streams = [[timestep] for timestep in environment.reset()]
    for action in actions:
        for stream, timesteps in zip(streams, environment.step([action] * len(streams)), strict=True):
            stream += timesteps
    return streams


class ShowsActions(testing.FakeEnvironment):
    """Adds to the reward what the action sums up to."""

    def step(self, action):
        timestep = super().step(action)
        if timestep.first():
            return timestep
        return timestep._replace(reward=np.float32(timestep.reward + sum(map(np.sum, tree.flatten(action)))))


class TestFakes(testing.VectorEnvironmentConformance):
    def make_environment(self):
        return environments.InProcessVectorEnvironment(make(kind=ShowsActions))


class TestNests(testing.VectorEnvironmentConformance):
    def make_environment(self):
        inner = [ShowsActions.nested(episode_length=n) for n in (1, 4)]
        return environments.InProcessVectorEnvironment(inner)


class TestOne(testing.VectorEnvironmentConformance):
    def make_environment(self):
        return environments.InProcessVectorEnvironment(make([3]))


def test_each_stream_is_that_of_its_environment_alone():
    actions = [np.full(2, 0.1 * k, np.float32) for k in range(9)]
    together = make()
    streams = play_together(environments.InProcessVectorEnvironment(together), actions)
    for stream, inner, alone in zip(streams, together, make(), strict=True):
        testing.assert_nests_equal(stream, play_alone(alone, actions))
        testing.assert_nests_equal(inner.actions, actions)


def test_each_environment_gets_its_own_action():
    inner = make()
    environment = environments.InProcessVectorEnvironment(inner)
    environment.reset()
    actions = [np.full(2, 0.1 * k, np.float32) for k in range(3)]
    environment.step(actions)
    testing.assert_nests_equal([one.actions for one in inner], [[action] for action in actions])


def test_last_and_the_first_after_it_come_in_one_call():
    environment = environments.InProcessVectorEnvironment(make())
    environment.reset()
    types = [
        [
            tuple(timestep.step_type.name for timestep in timesteps)
            for timesteps in environment.step([ACTION] * 3)
        ]
        for _ in range(3)
    ]
    mid, end = ("MID",), ("LAST", "FIRST")
    assert types == [[mid, mid, mid], [end, mid, mid], [mid, end, mid]]


def test_termination_and_truncation_keep_their_discount_and_their_last_observation():
    inner = make([1, 1])
    environment = environments.InProcessVectorEnvironment(inner)
    environment.reset()
    (terminated, _), (truncated, _) = environment.step([ACTION] * 2)
    assert (terminated.discount, truncated.discount) == (0.0, 1.0)
    assert terminated is inner[0].timesteps[1]
    assert truncated is inner[1].timesteps[1]


def test_the_specs_are_those_of_one_environment():
    inner = testing.FakeEnvironment.nested()
    assert specs.make_environment_spec(
        environments.InProcessVectorEnvironment([inner])
    ) == specs.make_environment_spec(inner)


def test_environments_that_cannot_be_batched_are_refused():
    with pytest.raises(ValueError, match="`environments` must hold at least one environment, got none"):
        environments.InProcessVectorEnvironment([])
    different = [testing.FakeEnvironment.continuous(action_size=size) for size in (2, 2, 3)]
    message = (
        r"same action_spec, got Array\(shape=\(3,\).* of environment 2 and Array\(shape=\(2,\).*Wrap them"
    )
    with pytest.raises(ValueError, match=message):
        environments.InProcessVectorEnvironment(different)
    with pytest.raises(ValueError, match="`environments` must be separate objects, got one twice"):
        environments.InProcessVectorEnvironment(different[:1] * 2)


def test_after_an_exception_the_next_step_begins_every_episode_anew(failing):
    inner = make(kind=failing)
    environment = environments.InProcessVectorEnvironment(inner)
    environment.reset()
    inner[1].fails = True
    with pytest.raises(RuntimeError, match="a joint broke"):
        environment.step([ACTION] * 3)
    inner[1].fails = False
    assert all(timestep.first() for (timestep,) in environment.step([ACTION] * 3))
    assert [timesteps[0].reward for timesteps in environment.step([ACTION] * 3)] == [1, 1, 1]


def test_the_info_of_last_is_that_before_the_reset(telling):
    environment = environments.InProcessVectorEnvironment(make([1, 2], kind=telling))
    environment.reset()
    assert environment.get_infos(1) == ({"num_timesteps": 1},)
    environment.step([ACTION] * 2)
    at_last, at_first = environment.get_infos(0)
    assert (at_last["num_timesteps"], at_first["num_timesteps"]) == (2, 3)
    assert environment.get_infos(1) == ({"num_timesteps": 2},)
    silent = environments.InProcessVectorEnvironment(make())
    silent.reset()
    assert silent.get_infos(0) == ({},)


def make_by_id(*environment_ids):
    factories = [
        functools.partial(environments.make, name, seed) for seed, name in enumerate(environment_ids)
    ]
    return environments.make_vector(factories, processes=False)


def test_saved_random_states_give_the_episodes_that_would_have_followed():
    original = make_by_id("Pendulum-v1", "Pendulum-v1")
    original.reset()
    state = testing.through_a_file(original.save())
    expected = original.reset()
    restored = make_by_id("Pendulum-v1", "Pendulum-v1")
    restored.reset()
    restored.restore(state)
    actions = [np.zeros(1, np.float32)] * 2
    testing.assert_nests_equal([timestep for (timestep,) in restored.step(actions)], expected)


def test_an_environment_without_a_state_is_left_out_of_it():
    environment = environments.InProcessVectorEnvironment(make())
    assert environment.save() == [None] * 3
    environment.reset()
    environment.restore([None] * 3)
    assert all(timestep.first() for (timestep,) in environment.step([ACTION] * 3))


def test_the_state_of_another_number_of_environments_is_refused():
    environment = environments.InProcessVectorEnvironment(make())
    message = "`state` must hold 3 environments, got 2. Resume with the same number"
    with pytest.raises(ValueError, match=message):
        environment.restore([None] * 2)


def test_closing_closes_each_environment_once():
    closed = []
    inner = make()
    for number, environment in enumerate(inner):
        environment.close = functools.partial(closed.append, number)
    with environments.InProcessVectorEnvironment(inner) as environment:
        pass
    environment.close()
    assert closed == [0, 1, 2]


class Broken(environments.InProcessVectorEnvironment):
    """Breaks the promise it is told to."""

    def __init__(self, promise):
        super().__init__(make(kind=ShowsActions))
        self.promise = promise

    def reset(self):
        timesteps = super().reset()
        return timesteps[1:] if self.promise == "all reset" else timesteps

    def step(self, actions):
        if self.promise == "count":
            actions = (list(actions) * 2)[:3]
        if self.promise == "own actions":
            actions = [actions[1], actions[0], actions[2]]
        arrived = super().step(actions)
        match self.promise:
            case "reset":
                return [timesteps[:1] for timesteps in arrived]
            case "phantom":
                return [timesteps[-1:] for timesteps in arrived]
            case "rewards":
                for index, timesteps in enumerate(arrived):
                    self.rewards[index] = timesteps[0].reward
                    arrived[index] = (
                        timesteps[0]._replace(reward=self.rewards[index : index + 1]),
                        *timesteps[1:],
                    )
            case "arrays":
                for timesteps in arrived:
                    self.timestep.observation[:] = 0
                    self.timestep = timesteps[-1]
        return arrived

    timestep = dm_env.restart(np.zeros(1))
    rewards = np.zeros(3, np.float32)

    def reward_spec(self):
        shape = (1,) if self.promise == "rewards" else ()
        return specs.Array(shape, np.float32)


@pytest.mark.parametrize(
    ("promise", "test", "message"),
    [
        (
            "all reset",
            "reset_returns_a_first_timestep_of_every_environment",
            "`reset` must return 3 entries, got 2",
        ),
        (
            "phantom",
            "a_step_hands_out_one_timestep_or_last_and_first",
            "newest timestep was MID, got 'FIRST'",
        ),
        (
            "reset",
            "a_step_hands_out_one_timestep_or_last_and_first",
            r"must return one of \['FIRST'\] .* was LAST, got 'MID'",
        ),
        (
            "arrays",
            "timesteps_conform_to_the_specs_and_are_not_written_into_later",
            "must return fresh arrays",
        ),
        (
            "rewards",
            "timesteps_conform_to_the_specs_and_are_not_written_into_later",
            "must return fresh arrays",
        ),
        (
            "own actions",
            "each_action_reaches_its_own_environment",
            "`step` must give each environment its own action, but environment 0 did not behave as when",
        ),
        ("count", "another_number_of_actions_is_refused", "`step` with 2 actions must raise ValueError"),
    ],
)
def test_the_conformance_class_names_a_broken_promise(promise, test, message):
    class Tests(testing.VectorEnvironmentConformance):
        def make_environment(self):
            return Broken(promise)

    with pytest.raises(AssertionError, match=message):
        getattr(Tests(), f"test_{test}")()


class Unrewarding(testing.FakeEnvironment):
    def step(self, action):
        timestep = super().step(action)
        return timestep if timestep.first() else timestep._replace(reward=None)


def test_a_wrong_timestep_is_told_by_the_index_of_its_environment():
    kinds = (testing.FakeEnvironment, Unrewarding)
    inner = [environments.make_training_environment(kind(episode_length=9)) for kind in kinds]
    environment = environments.InProcessVectorEnvironment(inner)
    environment.reset()
    with pytest.raises(
        specs.SpecError, match=r"^Unrewarding, environment 1, step 1 of episode 1: `reward` is None"
    ):
        environment.step([ACTION] * 2)
