"""Data of one spec in an environment of another: what fits, and what is converted."""

import dm_env
import numpy as np
import pytest

from minerva_acme import datasets, environments, specs, testing
from tests.datasets.conftest import DISCRETE, SPEC

pytest.importorskip("h5py", reason="h5py is not installed: pip install 'minerva-acme[datasets]'")


NESTED = {"a": SPEC.observations, "b": (SPEC.rewards, DISCRETE.actions)}


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (
            {"a": SPEC.observations},
            r"`observation` must have the fields \['a', 'b'\], got the fields \['a'\]\. Correct",
        ),
        (SPEC.observations, r"`observation` must have the fields \['a', 'b'\], got Array\(2,\)"),
        ({**NESTED, "b": (SPEC.rewards,)}, r"`observation\['b'\]` must have 2 elements, got 1 elements"),
        ({**NESTED, "b": SPEC.rewards}, r"`observation\['b'\]` must have 2 elements, got Array"),
        ({**NESTED, "a": specs.Array((3,), np.float32)}, r"`observation\['a'\]` of the data .* Array\(3,\)"),
        ({**NESTED, "a": {"c": SPEC.rewards}}, r"`observation\['a'\]` of the data .* Array\(2,\) .*'c'"),
        ({**NESTED, "a": specs.Array((2,), np.int32)}, r"`observation\['a'\]` of the data .* int32"),
        (
            {**NESTED, "b": (SPEC.rewards, specs.DiscreteArray(4))},
            r"`observation\['b'\]\[1\]` of the data must be DiscreteArray with 3 values.* with 4 values",
        ),
        (
            {**NESTED, "b": (SPEC.rewards, specs.BoundedArray((), np.int32, 0, 2))},
            r"`observation\['b'\]\[1\]` of the data must be DiscreteArray with 3 values",
        ),
    ],
)
def test_the_spec_of_data_is_compared_leaf_by_leaf(found, message):
    expected = SPEC._replace(observations=NESTED)
    datasets.check_spec(expected, expected)
    with pytest.raises(specs.SpecError, match=message):
        datasets.check_spec(SPEC._replace(observations=found), expected)


def test_the_spec_of_wide_data_fits_an_environment_in_single_precision():
    wide = DISCRETE._replace(
        observations=specs.BoundedArray((2,), np.float64, -0.1, np.inf),
        actions=specs.DiscreteArray(3, dtype=np.int64),
    )
    narrow = DISCRETE._replace(observations=specs.BoundedArray((2,), np.float32, -0.1, np.inf))
    datasets.check_spec(wide, narrow)


def test_bounds_of_observations_may_differ_and_those_of_actions_must_be_finite():
    bounded = specs.BoundedArray((2,), np.float32, -1, 1)
    datasets.check_spec(SPEC._replace(observations=bounded), SPEC)
    datasets.check_spec(SPEC._replace(actions=specs.BoundedArray((1,), np.float64, -2, 1)), SPEC)
    for wrong in (
        specs.Array((1,), np.float32),
        specs.BoundedArray((1,), np.float32, -2, np.inf),
        specs.BoundedArray((1,), np.float32, 1, 1),
        specs.BoundedArray((2,), np.float32, -1, 1),
        specs.BoundedArray((1,), np.int32, -1, 1),
    ):
        with pytest.raises(specs.SpecError, match=r"`action` of the data must be .* in \[-1, 1\].* got "):
            datasets.check_spec(SPEC._replace(actions=wrong), SPEC)
    counts = [SPEC._replace(actions=specs.BoundedArray((1,), np.int32, 0, high)) for high in (3, 4)]
    with pytest.raises(specs.SpecError, match=r"`action` of the data must be .* in \[0, 4\]"):
        datasets.check_spec(*counts)


class Lake(specs.SpecMethods, dm_env.Environment):
    """Shows one of four places, and takes forces in [-2, 6]."""

    def __init__(self):
        self._specs = specs.EnvironmentSpec(
            specs.DiscreteArray(4, dtype=np.int64),
            specs.BoundedArray((1,), np.float64, -2.0, 6.0),
            specs.Array((), np.float64),
            SPEC.discounts,
        )
        self._random = np.random.default_rng(0)

    def reset(self):
        return dm_env.restart(self._random.integers(4))

    def step(self, action):
        return dm_env.transition(float(action[0]), self._random.integers(4))


class Tape:
    """Notes what it is given."""

    def __init__(self):
        self.steps = []

    def add_first(self, timestep):
        self.steps.append(timestep.observation)

    def add(self, action, next_timestep, extras=()):
        self.steps.append((action, next_timestep.observation, next_timestep.reward))

    def flush(self):
        pass


def test_data_of_the_bare_environment_is_played_as_if_recorded_in_that_of_training(tmp_path):
    bare = Lake()
    training = environments.make_training_environment(Lake())
    spec = specs.make_environment_spec(training)
    assert (spec.observations.shape, spec.actions.minimum) == ((4,), [-1])
    # Exact in either unit.
    actions = np.random.default_rng(1).integers(-64, 65, (10, 1)).astype(np.float32) / 64
    episodes = {}
    for name, environment, scaled in (
        ("bare", bare, 2 + 4 * actions.astype(float)),
        ("own", training, actions),
    ):
        steps = [(None, environment.reset())]
        steps += [(action, environment.step(action)) for action in scaled]
        episodes[name] = steps
        datasets.write(tmp_path / name, [steps], specs.make_environment_spec(environment))
    tapes = {name: Tape() for name in episodes}
    for name, tape in tapes.items():
        datasets.play(datasets.read(tmp_path / name), tape, spec=spec)
    assert len(tapes["bare"].steps) == 11
    testing.assert_nests_equal(tapes["bare"].steps, tapes["own"].steps)
    assert tapes["bare"].steps[0].sum() == 1.0
    # A list of the same episodes has no spec.
    recorded, tape = datasets.read(tmp_path / "bare"), Tape()
    datasets.play(list(recorded), tape, spec=spec, recorded_spec=recorded.spec)
    testing.assert_nests_equal(tape.steps, tapes["own"].steps)


@pytest.mark.parametrize("extras", ["log_prob", "raw_action"])
def test_actions_with_what_is_in_their_units_are_not_scaled(tmp_path, make_episode, extras):
    wide = SPEC._replace(actions=specs.BoundedArray((1,), np.float32, -2, 2))
    datasets.write(tmp_path / "data", [make_episode(), make_episode(**{extras: np.zeros(5)})], wide)
    with pytest.raises(
        specs.SpecError, match=rf"data, episode 1: `extras\['{extras}'\]` must not be recorded"
    ):
        datasets.play(datasets.read(tmp_path / "data"), Tape(), spec=SPEC)


def test_data_out_of_its_own_bounds_is_not_converted(tmp_path, make_episode):
    wide = SPEC._replace(actions=specs.BoundedArray((1,), np.float32, -2, 2))
    datasets.write(tmp_path / "data", [make_episode()], wide)

    class Tampered(datasets.Recording):
        def __iter__(self):
            return (each._replace(action=each.action + 3) for each in super().__iter__())

    with pytest.raises(specs.SpecError, match=r"`action` must be in \[-2, 2\], the bounds of its spec"):
        datasets.play(Tampered(tmp_path / "data"), Tape(), spec=SPEC)
