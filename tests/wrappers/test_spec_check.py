import collections
import logging

import dm_env
import numpy as np
import pytest
from dm_env import specs

from minerva_acme import wrappers
from minerva_acme.specs import SpecError
from minerva_acme.wrappers import spec_check

NEST = {
    "arm": (specs.Array((2,), np.float32), specs.BoundedArray((), np.int32, 0, 3)),
    "eye": specs.Array((), bool),
}


ONE, OPEN = np.int32(1), np.bool_(True)


def observation(first=(0.0, 0.0), second=ONE, eye=OPEN, **others):
    return {"arm": (np.float32(first), second), "eye": eye, **others}


def checked(scripted, seen=None, **settings):
    settings.setdefault("action_spec", {"hand": specs.BoundedArray((2,), np.float32, -1, 1)})
    inner = scripted(seen if seen is not None else observation(), NEST, **settings)
    return inner, wrappers.SpecCheckWrapper(inner)


ACTION = {"hand": np.zeros(2, np.float32)}


def test_what_conforms_goes_through_as_it_is(scripted):
    inner, environment = checked(scripted)
    assert environment.reset().observation is inner.observation
    timesteps = [environment.step(ACTION) for _ in range(3)]
    assert [timestep.step_type.name for timestep in timesteps] == ["MID", "LAST", "FIRST"]
    assert inner.actions[0] is ACTION


def test_lists_of_numbers_become_arrays_unless_the_check_is_strict(scripted):
    spec = {"a": specs.BoundedArray((2,), np.float64, -1, 1), "b": specs.Array((1, 2), np.int64)}
    seen, reward = {"a": [0.5, 3.0], "b": [[1, 2]]}, [0.25, 0.5]
    inner = scripted(seen, spec, reward=reward, reward_spec=specs.Array((2,), np.float64))
    for strict in (False, True):
        environment = wrappers.SpecCheckWrapper(inner, strict=strict)
        if strict:
            inner.observation["a"][1] = 1.0
        timesteps = environment.reset(), environment.step(np.zeros(1))
        for timestep in timesteps:
            kinds = {type(leaf) for leaf in timestep.observation.values()}
            assert kinds == ({list} if strict else {np.ndarray})
        np.testing.assert_array_equal(timesteps[1].observation["b"], [[1, 2]])
        np.testing.assert_array_equal(timesteps[1].reward, reward)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            observation(first=[0.0]),
            r"`observation\['arm'\]\[0\]` must be float32 of shape \(2,\), got .* \(1,\)\. Make it",
        ),
        (
            observation(first=[0, np.nan]),
            r"`observation\['arm'\]\[0\]` must be finite, got nan at index \(1,\)\. Look for",
        ),
        (
            observation(second=np.int32(4)),
            r"`observation\['arm'\]\[1\]` must be in \[0, 3\], .* got 4\.",
        ),
        (
            observation(second=np.int64(1)),
            r"`observation\['arm'\]\[1\]` must be int32 .*got int64 of shape \(\)\. Cast it, or wrap",
        ),
        (observation(eye=1.0), r"`observation\['eye'\]` must be bool of shape \(\), got 1\.0"),
        (
            observation(nose=1.0),
            r"`observation` must have the fields \['arm', 'eye'\], got .*'nose'\]",
        ),
        ({"arm": observation()["arm"]}, r"must have the fields \['arm', 'eye'\], got the fields \['arm'\]"),
        (
            observation() | {"arm": list(observation()["arm"])},
            r"`observation\['arm'\]` must have 2 elements in a tuple, got 2 elements in a list",
        ),
    ],
)
def test_an_observation_that_breaks_its_spec_is_told_by_leaf_at_reset_and_step(scripted, wrong, message):
    _, environment = checked(scripted, wrong)
    with pytest.raises(ValueError, match=message):
        environment.reset()
    inner, environment = checked(scripted)
    environment.reset()
    inner.observation = wrong
    with pytest.raises(ValueError, match=message):
        environment.step(ACTION)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"hand": np.float32([0, 2])},
            r"`action\['hand'\]` must be in \[-1, 1\], .* got 2\.0 at index \(1,\)\. Correct it",
        ),
        ({"hand": np.zeros(2)}, r"`action\['hand'\]` must be float32 of .*got float64"),
        (np.zeros(2, np.float32), r"`action` must have the fields \['hand'\], got float32 of"),
    ],
)
def test_an_action_that_breaks_its_spec_is_told_before_the_environment_takes_it(scripted, wrong, message):
    inner, environment = checked(scripted)
    environment.reset()
    with pytest.raises(ValueError, match=message):
        environment.step(wrong)
    assert inner.actions == []


def test_an_action_that_is_ignored_is_not_looked_at(scripted):
    _, environment = checked(scripted)
    assert environment.step("nonsense").first()
    environment.step(ACTION)
    environment.step(ACTION)
    assert environment.step("nonsense").first()


def test_a_reward_or_discount_that_breaks_its_spec_is_told(scripted):
    nest = {"run": specs.Array((), np.float32)}
    _, environment = checked(scripted, reward={"run": 0.5}, reward_spec=nest)
    environment.reset()
    with pytest.raises(ValueError, match=r"`reward\['run'\]` must be float32 of shape \(\), got 0\.5\. Make"):
        environment.step(ACTION)

    class Growing(scripted):
        def step(self, action):
            return super().step(action)._replace(discount=1.5)

    _, environment = checked(Growing)
    environment.reset()
    with pytest.raises(
        ValueError, match=r"`discount` must be in \[0, 1\], the bounds of its spec, got 1\.5\. Correct"
    ):
        environment.step(ACTION)


def test_the_form_of_a_first_timestep_is_checked(scripted):
    class Eager(scripted):
        def reset(self):
            return super().reset()._replace(reward=0.0)

    _, environment = checked(Eager)
    with pytest.raises(ValueError, match=r"`reward` of a FIRST timestep must be None, got 0\.0"):
        environment.reset()

    class Late(scripted):
        def reset(self):
            return super().reset()._replace(step_type=dm_env.StepType.MID)

    _, environment = checked(Late)
    with pytest.raises(ValueError, match="`reset` must return a FIRST timestep, got MID"):
        environment.reset()


STAY = np.int64(0)


class Played(dm_env.Environment):
    """Plays the rewards that it is given, in episodes of three steps, and shows the observation."""

    def __init__(self, rewards=(0.5,) * 9, observation=None, observation_spec=None, reward_spec=None):
        self.observation = np.zeros(3) if observation is None else observation
        self._observation_spec = observation_spec or specs.Array((3,), np.float64)
        self._reward_spec = reward_spec or specs.Array((), np.float64)
        self._rewards, self._steps = iter(rewards), 3

    def reset(self):
        self._steps = 0
        return dm_env.restart(self.observation)

    def step(self, action):
        if self._steps == 3:
            return self.reset()
        self._steps += 1
        kind = dm_env.StepType.LAST if self._steps == 3 else dm_env.StepType.MID
        reward = next(self._rewards)
        if isinstance(reward, Exception):
            raise reward
        return dm_env.TimeStep(kind, reward, 1.0, self.observation)

    def observation_spec(self):
        return self._observation_spec

    def reward_spec(self):
        return self._reward_spec

    def action_spec(self):
        return specs.DiscreteArray(2, dtype=np.int64)


@pytest.fixture
def told(caplog, monkeypatch):
    """The warnings of checks from now on."""
    monkeypatch.setattr(spec_check, "_seen", collections.Counter())
    caplog.set_level(logging.WARNING)
    return lambda: [record.getMessage() for record in caplog.records]


def trained_in(*arguments, **settings):
    inner = Played(*arguments, **settings)
    return inner, wrappers.SpecCheckWrapper(inner, name="Played-v0", strict=False)


def play(environment, number):
    return [environment.step(STAY) for _ in range(number)]


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (None, r"`reward` is None at a MID timestep\. Only FIRST has none"),
        (np.nan, r"`reward` must be finite, got nan\. Look for a simulation"),
        (-np.inf, r"`reward` must be finite, got -inf"),
        (np.zeros(2), r"`reward` must be float64 of shape \(\), got float64 of shape \(2,\)\. Make"),
        ("1", r"`reward` must be float64 of shape \(\), got '1'\. Make it"),
        ({"run": 1.0}, r"`reward` must be float64 of shape \(\), got a dict of \['run'\]\. Make it"),
    ],
)
@pytest.mark.parametrize("strict", [False, True])
def test_a_wrong_reward_is_told_by_environment_step_and_episode(reward, message, strict):
    inner = Played([0.5] * 4 + [reward])
    environment = wrappers.SpecCheckWrapper(inner, name="Played-v0", strict=strict)
    play(environment, 6)
    with pytest.raises(SpecError, match=r"^Played-v0, step 2 of episode 2: .*" + message):
        environment.step(STAY)


@pytest.mark.promise("A timestep of wrong structure")
def test_a_wrong_observation_is_told_by_environment_step_and_episode():
    inner, environment = trained_in()
    play(environment, 5)
    inner.observation = np.zeros(4)
    with pytest.raises(
        SpecError, match=r"^Played-v0, step 1 of episode 2: `observation` must be float64 of shape \(3,\)"
    ):
        environment.step(STAY)
    with pytest.raises(
        SpecError, match=r"^Played-v0, step 0 of episode 3: `observation` must be float64 of shape \(3,\)"
    ):
        environment.reset()
    inner.observation = np.zeros(3, np.float32)
    with pytest.raises(SpecError, match=r"^Played-v0, step 0 of episode 4: `observation` .*got float32"):
        environment.reset()


@pytest.mark.parametrize("missing", [{"discount": None}, {"discount": 1.5}, {"discount": np.nan}])
def test_a_discount_is_held_to_its_bounds_in_training_too(missing):
    class Discounted(Played):
        def step(self, action):
            return super().step(action)._replace(**missing)

    environment = wrappers.SpecCheckWrapper(Discounted(), strict=False)
    environment.reset()
    with pytest.raises(SpecError, match="Discounted, step 1 of episode 1: `discount` "):
        environment.step(STAY)


def test_a_name_is_by_default_that_of_the_type():
    environment = wrappers.SpecCheckWrapper(Played([None]))
    environment.reset()
    with pytest.raises(SpecError, match="^Played, step 1"):
        environment.step(STAY)


@pytest.mark.parametrize("reward", [1, True, np.int64(1), np.float32(1), np.float64(1), np.array(1.0)])
def test_any_number_is_a_reward_in_training_and_comes_as_it_is(told, reward):
    _, environment = trained_in([reward] * 3)
    assert all(timestep.reward is reward for timestep in play(environment, 4)[1:])
    assert told() == []


def test_an_observation_that_leaves_its_bounds_is_warned_of_once_for_each_field(told):
    spec = {
        "a": specs.BoundedArray((2,), np.float64, -1, [1, np.inf]),
        "b": specs.BoundedArray((), np.float64, 0, 1),
    }
    inner, environment = trained_in(observation={"a": np.array([0.0, 9.0]), "b": 0.5}, observation_spec=spec)
    play(environment, 3)
    assert told() == []
    inner.observation = {"a": np.array([1.25, 9.0]), "b": 0.5}
    play(environment, 6)
    assert [message.partition(" Its")[0] for message in told()] == [
        "Played-v0, step 3 of episode 1: `observation['a']` must be BoundedArray(2,) float64 in [-1, 1], "
        "[-1, inf], got 1.25."
    ]
    # Another of that name says nothing anew, the other field does.
    _, other = trained_in(observation={"a": np.array([1.25, 9.0]), "b": -1.0}, observation_spec=spec)
    play(other, 3)
    assert len(told()) == 2
    assert told()[1].startswith("Played-v0, step 0 of episode 1: `observation['b']` must be")


def test_bounds_that_were_left_are_not_looked_at_again_and_everything_else_is(told):
    spec = specs.BoundedArray((3,), np.float64, -1, 1)
    inner, environment = trained_in(observation=np.full(3, 2.0), observation_spec=spec)
    play(environment, 2)
    examined = []
    environment._check._examine = examined.append
    play(environment, 2)
    assert examined == []
    del environment._check._examine
    inner.observation = np.array([2.0, np.nan, 2.0])
    with pytest.raises(SpecError, match="must be finite"):
        environment.step(STAY)


def test_a_reward_that_leaves_its_bounds_is_warned_of(told):
    _, environment = trained_in([0.5, 3, 4.0], reward_spec=specs.BoundedArray((), np.float64, 0, 1))
    play(environment, 4)
    assert len(told()) == 1 and "step 2 of episode 1: `reward` must be" in told()[0] and "got 3" in told()[0]


def test_what_is_huge_is_counted_and_told_at_the_powers_of_ten_with_a_clip(told):
    _, environment = trained_in([1.0, 9e14, 1.0] + [-1e13] * 11)
    play(environment, 3)
    assert told()[0].startswith("Played-v0, step 2 of episode 1: `reward` reaches 9e+14. ")
    assert "Clip or rescale it in a wrapper, such as gymnasium.wrappers.ClipReward" in told()[0]
    play(environment, 15)
    assert len(told()) == 2
    assert "`reward` reaches 1e+13, the 10th time. " in told()[1]


def test_a_huge_observation_is_told_by_field_in_single_precision_too(told):
    spec = (specs.Array((2,), np.float32), specs.BoundedArray((), np.int64, 0, 2**62))
    seen = np.array([0, 9e14], np.float32), np.int64(2**60)
    _, environment = trained_in(observation=seen, observation_spec=spec)
    environment.reset()
    assert [message.partition(". ")[0] for message in told()] == [
        "Played-v0, step 0 of episode 1: `observation[0]` reaches 9e+14"
    ]
    assert "ObservationTransformWrapper" in told()[0]


@pytest.mark.parametrize("reward", [1e30, np.float32(-1e19), np.float64(1.1e15)])
def test_what_no_learner_takes_is_refused_with_its_place_while_it_is_known(told, reward):
    _, environment = trained_in([1.0, reward])
    with pytest.raises(ValueError, match=r"^Played-v0, step 2 of episode 1: `reward` must be .* ±1e\+15"):
        play(environment, 3)
    assert not told()


def test_what_is_as_it_should_be_is_not_looked_at_twice(told):
    spec = {
        "image": specs.BoundedArray((2, 2, 3), np.uint8, 0, 255),
        "pair": (specs.Array((), np.float64), specs.BoundedArray((1,), np.int32, 0, 3)),
        "on": specs.Array((), bool),
    }
    seen = {"image": np.full((2, 2, 3), 255, np.uint8), "pair": (1e11, np.int32([3])), "on": np.bool_(True)}
    for strict in (False, True):
        environment = wrappers.SpecCheckWrapper(
            Played(observation=seen, observation_spec=spec), strict=strict
        )
        environment._check._examine = None  # which cannot be called
        assert len(play(environment, 9)) == 9


@pytest.mark.promise("An environment's error, or its `sys.exit()`, carries a note")
def test_what_an_environment_raises_has_a_note_of_where_that_was():
    _, environment = trained_in([1.0] * 4 + [KeyError("hinge")])
    environment.set_index(3)
    play(environment, 6)
    with pytest.raises(KeyError, match="hinge") as raised:
        environment.step(STAY)
    assert raised.value.__notes__ == [
        "Raised by Played-v0, environment 3, in the call after step 1 of episode 2."
    ]
