import dm_env
import gymnasium
import numpy as np
import pytest
import tree
from dm_env import specs
from gymnasium import spaces

from minerva_acme import environments, testing
from minerva_acme.environments import GymnasiumEnvironment
from minerva_acme.specs import SpecError, check_conforms


class Tape(gymnasium.Env):
    """Plays (observation, reward, terminated, truncated) from a list and remembers the actions."""

    def __init__(self, tape=(), observation_space=None, action_space=None):
        self.observation_space = observation_space or spaces.Box(-9, 9, (1,), np.float32)
        self.action_space = action_space or spaces.Box(-1, 1, (1,), np.float32)
        self.tape = list(tape)
        self.actions = []
        self.seeds = []
        self.first = np.zeros(1, np.float32)
        self.closed = False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        return self.first, {"episode": len(self.seeds)}

    def step(self, action):
        self.actions.append(action)
        observation, reward, terminated, truncated = self.tape.pop(0)
        return observation, reward, terminated, truncated, {"left": len(self.tape)}

    def close(self):
        self.closed = True


def ends_with(terminated, truncated):
    environment = GymnasiumEnvironment(
        Tape([(np.float32([1]), 1, False, False), (np.float32([2]), 2, terminated, truncated)])
    )
    environment.reset()
    return environment.step(np.zeros(1, np.float32)), environment.step(np.zeros(1, np.float32))


def test_a_terminated_episode_ends_with_discount_zero():
    middle, last = ends_with(terminated=True, truncated=False)
    assert middle.mid() and (middle.reward, middle.discount) == (1.0, 1.0)
    assert last.last() and (last.reward, last.discount) == (2.0, 0.0)


def test_a_truncated_episode_ends_with_discount_one_and_its_true_last_observation():
    _, last = ends_with(terminated=False, truncated=True)
    assert last.last() and (last.reward, last.discount) == (2.0, 1.0)
    np.testing.assert_array_equal(last.observation, [2])


def test_terminated_outweighs_truncated_in_the_same_step():
    _, last = ends_with(terminated=True, truncated=True)
    assert last.last() and last.discount == 0.0


def test_a_time_limit_of_gymnasium_is_no_terminal():
    environment = GymnasiumEnvironment("Pendulum-v1", seed=0, max_episode_steps=3)
    environment.reset()
    timesteps = [environment.step(np.zeros(1, np.float32)) for _ in range(4)]
    assert [timestep.step_type for timestep in timesteps] == [
        dm_env.StepType.MID, dm_env.StepType.MID, dm_env.StepType.LAST, dm_env.StepType.FIRST,
    ]  # fmt: skip
    assert timesteps[2].discount == 1.0


def test_a_step_before_reset_and_after_the_end_resets_and_ignores_its_action():
    inner = Tape([(np.float32([1]), 1.0, True, False)])
    environment = GymnasiumEnvironment(inner)
    assert environment.step(np.ones(1)).first()
    assert inner.actions == []
    assert environment.step(np.ones(1)).last()
    first = environment.step(np.ones(1))
    assert first.first() and first.reward is None and first.discount is None
    assert len(inner.actions) == 1 and len(inner.seeds) == 2


def test_the_seed_is_for_the_first_reset_only():
    inner = Tape()
    environment = GymnasiumEnvironment(inner, seed=5)
    environment.reset()
    environment.reset()
    assert inner.seeds == [5, None]


def test_the_first_episode_is_that_of_gymnasium_with_the_same_seed():
    expected, _ = gymnasium.make("Pendulum-v1").reset(seed=11)
    np.testing.assert_array_equal(GymnasiumEnvironment("Pendulum-v1", seed=11).reset().observation, expected)


def test_info_close_and_the_environment_are_reachable():
    inner = Tape([(np.float32([1]), 1.0, False, False)])
    environment = GymnasiumEnvironment(inner)
    assert environment.get_info() == {}
    environment.reset()
    assert environment.get_info() == {"episode": 1}
    environment.step(np.zeros(1))
    assert environment.get_info() == {"left": 0}
    assert environment.environment is inner
    environment.close()
    assert inner.closed


def test_render_returns_what_gymnasium_renders():
    class Rendered(Tape):
        render_mode = "rgb_array"

        def render(self):
            return np.full((2, 2, 3), 9, np.uint8)

    assert GymnasiumEnvironment(Rendered()).render().shape == (2, 2, 3)


def test_render_without_a_render_mode_says_how_to_get_one():
    with pytest.raises(ValueError, match="`render_mode` must be set .*got None. Make the environment with"):
        GymnasiumEnvironment("Pendulum-v1").render()


def test_rewards_are_float64_scalars_whatever_the_environment_returns():
    for reward in (1, np.float32(1), np.array(1.0)):
        environment = GymnasiumEnvironment(Tape([(np.float32([1]), reward, False, False)]))
        environment.reset()
        environment.reward_spec().validate(environment.step(np.zeros(1)).reward)


def test_a_reward_of_none_is_not_made_a_number():
    environment = GymnasiumEnvironment(Tape([(np.float32([1]), None, False, False)]))
    environment.reset()
    assert environment.step(np.zeros(1)).reward is None


@pytest.mark.parametrize(
    ("result", "found"),
    [
        (
            (np.zeros(1), 0.0, False, {}),
            r"4 values\. Gym returned \(observation, reward, done, info\) before",
        ),
        (np.zeros(5), r"a ndarray\. Return that"),
        (None, r"a NoneType\. Return that"),
    ],
)
def test_an_environment_of_another_interface_is_told_what_to_return(result, found):
    class Old(Tape):
        def step(self, action):
            return result

    environment = GymnasiumEnvironment(Old())
    environment.reset()
    message = rf"`step` .* must return \(observation, reward, terminated, truncated, info\), got {found}"
    with pytest.raises(SpecError, match=message):
        environment.step(np.zeros(1))

    class Bare(Tape):
        def reset(self, *, seed=None, options=None):
            return np.zeros(2)  # which would unpack

    with pytest.raises(SpecError, match=r"`reset` .* must return \(observation, info\), got a ndarray\."):
        GymnasiumEnvironment(Bare()).reset()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_observations_get_the_dtype_of_their_space_and_memory_of_their_own(dtype):
    inner = Tape()
    inner.first = np.zeros(1, dtype)
    environment = GymnasiumEnvironment(inner)
    observation = environment.reset().observation
    environment.observation_spec().validate(observation)
    inner.first[:] = 1
    np.testing.assert_array_equal(observation, [0])


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (spaces.Box(-1, 2, (3,), np.float32), specs.BoundedArray((3,), np.float32, -1, 2)),
        (spaces.Box(-np.inf, np.inf, (3,), np.float64), specs.Array((3,), np.float64)),
        (spaces.Box(0, 255, (4, 4, 3), np.uint8), specs.BoundedArray((4, 4, 3), np.uint8, 0, 255)),
        (spaces.Discrete(5, start=2), specs.DiscreteArray(5, dtype=np.int64)),
        (spaces.MultiDiscrete([2, 3], start=[1, 0]), specs.BoundedArray((2,), np.int64, [1, 0], [2, 2])),
        (spaces.MultiBinary(3), specs.BoundedArray((3,), np.int8, 0, 1)),
        (
            spaces.Dict(b=spaces.Discrete(2), a=spaces.Tuple((spaces.MultiBinary(1), spaces.Discrete(3)))),
            {
                "b": specs.DiscreteArray(2, dtype=np.int64),
                "a": (specs.BoundedArray((1,), np.int8, 0, 1), specs.DiscreteArray(3, dtype=np.int64)),
            },
        ),
    ],
)
def test_a_space_becomes_the_spec_that_its_samples_conform_to(space, expected):
    environment = GymnasiumEnvironment(Tape(observation_space=space, action_space=space))
    for found in (environment.observation_spec(), environment.action_spec()):
        tree.assert_same_structure(found, expected)
        for found_leaf, expected_leaf in zip(tree.flatten(found), tree.flatten(expected), strict=True):
            assert type(found_leaf) is type(expected_leaf)
            assert found_leaf == expected_leaf
    space.seed(0)
    for _ in range(10):
        environment.environment.first = space.sample()
        observation = environment.reset().observation
        tree.map_structure(
            lambda spec, leaf: spec.validate(leaf), environment.observation_spec(), observation
        )


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 2, (3,), np.float32),
        spaces.Discrete(5, start=2),
        spaces.MultiDiscrete([2, 3], start=[1, 0]),
        spaces.Dict(b=spaces.Discrete(2, start=-1), a=spaces.Tuple((spaces.MultiBinary(1),))),
    ],
)
def test_an_action_that_conforms_to_its_spec_lies_in_the_space(space):
    inner = Tape([(np.float32([0]), 0.0, False, False)] * 2, action_space=space)
    environment = GymnasiumEnvironment(inner)
    environment.reset()
    spec = environment.action_spec()
    for action in (
        tree.map_structure(lambda leaf: np.full(leaf.shape, leaf.minimum, leaf.dtype), spec),
        tree.map_structure(lambda leaf: np.full(leaf.shape, leaf.maximum, leaf.dtype), spec),
    ):
        environment.step(action)
        assert space.contains(inner.actions[-1])


def test_a_discrete_action_is_counted_from_the_start_of_its_space():
    inner = Tape([(np.float32([0]), 0.0, False, False)], action_space=spaces.Discrete(5, start=2))
    environment = GymnasiumEnvironment(inner)
    environment.reset()
    environment.step(np.int32(3))
    assert inner.actions == [5]


def test_a_space_without_a_spec_is_refused_at_construction():
    graph = spaces.Graph(spaces.Box(-1, 1), None)
    with pytest.raises(ValueError, match=r"`observation/net` space must be made of .*got Graph.*wrapper"):
        GymnasiumEnvironment(Tape(observation_space=spaces.Dict(net=graph)))


def test_environments_and_spaces_of_the_old_gym_are_named_as_such_with_the_way_out():
    class OldSpace:
        def __repr__(self):
            return "Discrete(3)"

    class OldEnv:
        observation_space = action_space = OldSpace()

    OldSpace.__module__, OldEnv.__module__ = "gym.spaces.discrete", "gym.core"
    with pytest.raises(ValueError, match=r"got OldEnv of the old package `gym`.*shimmy\[gym-v21\]"):
        GymnasiumEnvironment(OldEnv())
    with pytest.raises(ValueError, match=r"`action` space must be .* got Discrete\(3\) of the old package"):
        GymnasiumEnvironment(Tape(action_space=OldSpace()))


def test_words_are_strings_of_a_string_array():
    words = spaces.Dict(words=spaces.Text(5), number=spaces.Discrete(3))
    environment = GymnasiumEnvironment(Tape([({"words": "go", "number": 1}, 0.0, False, False)], words))
    environment.reset = lambda: setattr(environment, "_reset_next_step", False)
    environment.reset()
    observation = environment.step(np.zeros(1)).observation
    check_conforms("observation", observation, environment.observation_spec())
    assert observation["words"].item() == "go"


def test_settings_for_make_are_refused_with_a_made_environment():
    with pytest.raises(ValueError, match=r"`make_kwargs` must be empty .*\['max_episode_steps'\]"):
        GymnasiumEnvironment(Tape(), max_episode_steps=3)


@pytest.mark.parametrize(("metadata", "seconds"), [({"render_fps": 50}, 0.02), ({}, 1 / 30)])
def test_the_control_timestep_is_that_of_the_frames(metadata, seconds):
    inner = Tape()
    inner.metadata = metadata
    assert GymnasiumEnvironment(inner).control_timestep() == pytest.approx(seconds)


def test_a_seed_given_later_is_for_the_next_episode_which_comes_at_once():
    inner = Tape([(np.float32([0]), 0.0, False, False)])
    environment = GymnasiumEnvironment(inner, seed=5)
    environment.reset()
    environment.seed(6)
    assert environment.step(np.zeros(1)).first()
    assert inner.seeds == [5, 6] and inner.actions == []


class Drawing(gymnasium.Env):
    """Shows numbers from a generator of the kind that `make` makes; each episode is two steps."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Box(-1, 1, (1,), np.float32)
    render_mode = None
    np_random = None

    def __init__(self, make, made_at_reset=False):
        self.make = make
        self.made_at_reset = made_at_reset
        if not made_at_reset:
            self.np_random = make(None)

    def reset(self, *, seed=None, options=None):
        if seed is not None or self.np_random is None:
            self.np_random = self.make(seed)
        self.left = 2
        return self.draw(), {}

    def step(self, action):
        self.left -= 1
        return self.draw(), 0.0, False, self.left == 0, {}

    def draw(self):
        return self.np_random.normal(size=2)


class NoEnv:
    """Has a Gymnasium environment's methods without being one, and so no `unwrapped`."""

    def __init__(self, inner):
        self.inner = inner
        self.observation_space, self.action_space = inner.observation_space, inner.action_space

    @property
    def np_random(self):
        return self.inner.np_random

    def reset(self, *, seed=None, options=None):
        return self.inner.reset(seed=seed)

    def step(self, action):
        return self.inner.step(action)


def episode(environment):
    timesteps = [environment.reset()]
    while not timesteps[-1].last():
        timesteps.append(environment.step(np.zeros(environment.action_spec().shape, np.float32)))
    return timesteps


def assert_goes_on_from_a_saved_state(make):
    original = make(3)
    episode(original)
    state = testing.through_a_file(original.save())
    expected = [episode(original), episode(original)]
    for seed in (3, 4):  # of one that has not begun, or plays
        restored = make(seed)
        if seed == 4:
            restored.reset()
        restored.restore(state)
        testing.assert_nests_equal([episode(restored), episode(restored)], expected)


KINDS = {
    "RandomState": np.random.RandomState,
    "Generator": np.random.default_rng,
    "MT19937": lambda seed: np.random.Generator(np.random.MT19937(seed)),
    "RandomState of PCG64": lambda seed: np.random.RandomState(np.random.PCG64(seed)),
}


@pytest.mark.parametrize("made_at_reset", [False, True])
@pytest.mark.parametrize("wrap", [lambda environment: environment, gymnasium.wrappers.OrderEnforcing, NoEnv])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_either_of_numpys_generators_goes_on_from_a_saved_state(kind, wrap, made_at_reset):
    assert_goes_on_from_a_saved_state(
        lambda seed: GymnasiumEnvironment(wrap(Drawing(kind, made_at_reset)), seed=seed)
    )


def test_shimmys_dm_control_goes_on_from_a_saved_state():
    pytest.importorskip("dm_control")
    environments.make("dm_control/cartpole/swingup")  # settles how to draw, before shimmy imports it
    pytest.importorskip("shimmy")
    assert_goes_on_from_a_saved_state(
        lambda seed: environments.make_training_environment(
            "shimmy:dm_control/cartpole-swingup-v0", seed, max_episode_steps=3
        )
    )


class Unknown:
    """A generator that is none of numpy's."""

    def __init__(self, seed):
        self.generator = np.random.default_rng(seed)

    def normal(self, size):
        return self.generator.normal(size=size)


def test_a_generator_that_is_none_of_numpys_leaves_no_state():
    environment = GymnasiumEnvironment(Drawing(Unknown), seed=0)
    environment.reset()
    assert environment.save() is None
    environment.restore(None)
    assert environment.step(np.zeros(1, np.float32)).first()


def test_a_state_of_another_kind_of_generator_is_refused():
    state = GymnasiumEnvironment(Drawing(np.random.RandomState)).save()
    with pytest.raises(ValueError, match="`np_random` of Drawing must be of the kind .*, got a Generator"):
        GymnasiumEnvironment(Drawing(np.random.default_rng)).restore(state)
