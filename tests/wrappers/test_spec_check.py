import dm_env
import numpy as np
import pytest
from dm_env import specs

from minerva_acme import wrappers

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


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            observation(first=[0.0]),
            r"`observation\['arm'\]\[0\]` must be Array\(2,\) float32, got array\(\[0\.",
        ),
        (observation(first=[0, np.nan]), r"`observation\['arm'\]\[0\]` must be .* and finite, got .*nan"),
        (observation(second=np.int32(4)), r"`observation\['arm'\]\[1\]` must be .* in \[0, 3\], got 4"),
        (observation(second=np.int64(1)), r"`observation\['arm'\]\[1\]` must be .* int32 .*got 1:.*int64"),
        (observation(eye=1.0), r"`observation\['eye'\]` must be Array\(\) bool, got 1\.0"),
        (observation(nose=1.0), r"structure .* with `observation\['nose'\]`, which has no spec"),
        ({"arm": observation()["arm"]}, r"structure .* without `observation\['eye'\]`\."),
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
            r"`action\['hand'\]` must be .* in \[-1, 1\], got array\(\[0\., 2\.\]",
        ),
        ({"hand": np.zeros(2)}, r"`action\['hand'\]` must be .* float32 .*float64"),
        (np.zeros(2, np.float32), r"`action` must have the structure \{'hand': .*got array"),
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
    with pytest.raises(ValueError, match=r"`reward\['run'\]` must be Array\(\) float32, got 0\.5"):
        environment.step(ACTION)

    class Growing(scripted):
        def step(self, action):
            return super().step(action)._replace(discount=1.5)

    _, environment = checked(Growing)
    environment.reset()
    with pytest.raises(
        ValueError, match=r"`discount` must be BoundedArray\(\) float64 in \[0, 1\], got 1\.5"
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
