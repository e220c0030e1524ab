"""Everyday spaces: what `make_training_environment` makes of them."""

import logging

import dm_env
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from minerva_acme import environments, specs, testing
from minerva_acme.agents import mpo, ppo, vmpo


class Everyday(gymnasium.Env):
    """Samples whatever spaces it is given; the third step ends the episode."""

    def __init__(self, observation_space, action_space=None):
        self.observation_space = observation_space
        self.observation_space.seed(0)
        self.action_space = action_space or spaces.Discrete(3)
        self.actions = []
        self.observations = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observe(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.actions.append(action)
        self.steps += 1
        return self.observe(), 1.0, self.steps == 3, False, {}

    def observe(self):
        self.observations.append(self.observation_space.sample())
        return self.observations[-1]


BUILDERS = (
    mpo.MPOBuilder(mpo.MPOConfig()),
    ppo.PPOBuilder(ppo.PPOConfig()),
    vmpo.VMPOBuilder(vmpo.VMPOConfig()),
)
IMAGE = spaces.Box(0, 255, (5, 5, 3), np.uint8)
OBSERVATIONS = {
    "discrete": (spaces.Discrete(16), 16),
    "multi-discrete": (spaces.MultiDiscrete([2, 3, 4]), 9),
    "multi-binary": (spaces.MultiBinary(4), 4),
    "tuple of discrete": (spaces.Tuple([spaces.Discrete(32), spaces.Discrete(11), spaces.Discrete(2)]), 45),
    "bytes": (spaces.Box(0, 255, (128,), np.uint8), 128),
    "booleans": (spaces.Box(0, 1, (6,), bool), 6),
    "dict": (
        spaces.Dict(a=spaces.Discrete(3), b=spaces.Box(-1, 1, (2,), np.float64), words=spaces.Text(9)),
        5,
    ),
    "integers": (spaces.Box(-100, 10_000, (2,), np.int64), 2),
}


def play(environment):
    """Plays an episode with each timestep checked; returns its timesteps."""
    spec = specs.make_environment_spec(environment)
    timesteps = [environment.reset()]
    while not timesteps[-1].last():
        timesteps.append(environment.step(spec.actions.generate_value()))
    for timestep in timesteps:
        specs.check_timestep(timestep, spec)
    return timesteps


@pytest.mark.parametrize(("space", "size"), OBSERVATIONS.values(), ids=OBSERVATIONS)
def test_what_has_no_image_becomes_one_float32_vector_that_every_agent_takes(space, size):
    inner = Everyday(space)
    environment = environments.make_training_environment(inner)
    assert environment.observation_spec() == specs.Array((size,), np.float32)
    timesteps = play(environment)
    # As Gymnasium itself flattens them, but for words and bytes.
    for timestep, shown in zip(timesteps, inner.observations, strict=True):
        if isinstance(space, spaces.Dict):
            shown = {name: shown[name] for name in ("a", "b")}
            expected = spaces.flatten(spaces.Dict({name: space[name] for name in ("a", "b")}), shown)
        else:
            expected = spaces.flatten(space, shown) / (255.0 if space.dtype == np.uint8 else 1.0)
        np.testing.assert_allclose(timestep.observation, expected, rtol=1e-6)
    spec = specs.make_environment_spec(environment)
    for builder in BUILDERS:
        assert builder.check_spec(spec) is None


def test_beside_an_image_the_parts_stay_apart_for_an_encoder():
    grid = spaces.Box(0, 1, (3, 3, 2), bool)
    space = spaces.Dict(image=IMAGE, direction=spaces.Discrete(4), mission=spaces.Text(50), grid=grid)
    environment = environments.make_training_environment(Everyday(space))
    shapes = {name: (spec.shape, spec.dtype) for name, spec in environment.observation_spec().items()}
    assert shapes == {
        "image": ((5, 5, 3), np.uint8),
        "direction": ((4,), np.float32),
        "grid": ((3, 3, 2), np.uint8),
    }
    play(environment)


def test_what_is_not_to_be_concatenated_keeps_its_parts_and_their_shapes():
    space = spaces.Dict(points=spaces.Box(-1, 1, (5, 3), np.float64), gear=spaces.Discrete(4))
    environment = environments.make_training_environment(Everyday(space), concatenate=False)
    shapes = {name: (spec.shape, spec.dtype) for name, spec in environment.observation_spec().items()}
    assert shapes == {"points": ((5, 3), np.float32), "gear": ((4,), np.float32)}
    play(environment)
    matrix = environments.make_training_environment(Everyday(space["points"]), concatenate=False)
    assert matrix.observation_spec().shape == (5, 3)
    for wrong in ({"concatenate": "no"}, {"concatenate": False, "critic_observations": ("gear",)}):
        with pytest.raises(ValueError, match="`concatenate` must be True or False, and True with"):
            environments.make_training_environment(Everyday(space), **wrong)


def test_a_mission_of_a_space_of_its_own_is_text_too():
    class Mission(spaces.Space):
        def __init__(self):
            super().__init__(dtype=str)

        def sample(self, mask=None, probability=None):
            return "go to the door"

    space = spaces.Dict(image=IMAGE, mission=Mission())
    environment = environments.make_training_environment(Everyday(space))
    assert list(environment.observation_spec()) == ["image"]
    play(environment)


def test_what_is_done_with_the_spaces_is_logged_once_with_the_names_of_the_parts(caplog):
    class Named(Everyday):
        pass

    space = spaces.Dict(gear=spaces.Discrete(3), words=spaces.Text(5), x=spaces.Box(-1, 1, (2,)))
    with caplog.at_level(logging.INFO, "minerva_acme"):
        for _ in range(2):
            gymnasium.register("EverydayWords-v0", entry_point=lambda: Named(space))
            environments.make_training_environment("EverydayWords-v0", seed=0)
            del gymnasium.registry["EverydayWords-v0"]
    assert caplog.messages == [
        "EverydayWords-v0: left out, since it holds no numbers: observation['words'] (StringArray() object)",
        "EverydayWords-v0: turned into float32: observation['gear'] (DiscreteArray with 3 values)",
        "EverydayWords-v0: concatenated to one vector: observation['gear'] (BoundedArray(3,) float32 in "
        "[0, 1]), observation['x'] (BoundedArray(2,) float32 in [-1, 1])",
    ]


def test_several_choices_are_for_ppo_and_vmpo_and_mpo_says_so():
    inner = Everyday(spaces.Discrete(4), spaces.MultiDiscrete([3, 2], start=[1, 0]))
    environment = environments.make_training_environment(inner)
    spec = specs.make_environment_spec(environment)
    of_mpo, *others = BUILDERS
    assert [builder.check_spec(spec) for builder in others] == [None, None]
    with pytest.raises(
        ValueError, match=r"MPO needs .* got several discrete choices, .*Choose an on-policy agent"
    ):
        of_mpo.check_spec(spec)
    play(environment)
    np.testing.assert_array_equal(inner.actions[0], [1, 0])


def test_a_gymnasium_environment_and_the_adapter_around_it_are_taken_alike():
    space = spaces.Discrete(4)
    bare, adapted = Everyday(space), environments.GymnasiumEnvironment(Everyday(space))
    made = [environments.make_training_environment(environment) for environment in (bare, adapted)]
    assert made[0].observation_spec() == made[1].observation_spec()
    assert isinstance(made[0], dm_env.Environment)


def test_an_observation_of_very_many_values_is_left_to_the_encoder():
    environment = environments.make_training_environment(Everyday(spaces.Discrete(5000)))
    assert environment.observation_spec() == specs.DiscreteArray(5000, np.int32)
    play(environment)


def test_a_flat_environment_is_given_as_before():
    inner = testing.FakeEnvironment.bounded()
    environment = environments.make_training_environment(inner)
    first = environment.reset()
    np.testing.assert_array_equal(first.observation, inner.timesteps[0].observation)
    environment.step(np.ones(2, np.float32))
    np.testing.assert_array_equal(inner.actions[0], inner.action_spec().maximum)
