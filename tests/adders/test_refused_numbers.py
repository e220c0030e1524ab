"""Numbers that no adder takes: what learners could not read is refused by name, at the step it comes with."""

import dm_env
import numpy as np
import pytest
import tree

from minerva_acme import adders, specs
from minerva_acme.replay import layouts

WIDE_SPEC = specs.EnvironmentSpec(
    observations=specs.Array((1,), np.float64),
    actions=specs.Array((1,), np.float32),
    rewards=specs.Array((), np.float64),
    discounts=specs.Array((), np.float64),
)
ONE = np.float64(1)


def sequences(kind):
    def make(make_store, spec):
        layout = layouts.TrajectoryLayout(spec, 3)
        store = make_store(layout.signature)
        settings = {} if kind is adders.EpisodeAdder else {"period": 1}
        return store, layout, kind(client=store.client, table="table", layout=layout, **settings)

    return make


def rollout(make_store, spec):
    layout = layouts.RolloutLayout(spec, 3)
    store = make_store(layout.signature)
    return (
        store,
        layout,
        adders.RolloutAdder(client=store.client, table="table", layout=layout, discount=0.5),
    )


def transitions(make_store, spec):
    layout = layouts.TransitionLayout(spec)
    store = make_store(layout.signature)
    adder = adders.NStepTransitionAdder(
        client=store.client, table="table", layout=layout, n_step=3, discount=1.0
    )
    return store, layout, adder


def forking(make_store, spec):
    store, layout, adder = sequences(adders.SequenceAdder)(make_store, spec)
    _, _, other = transitions(make_store, spec)
    return store, layout, adders.ForkingAdder([other, adder])


def filtering(make_store, spec):
    store, layout, adder = sequences(adders.SequenceAdder)(make_store, spec)
    return store, layout, adders.ExtrasFilter(adder, keep=[])


EVERY_ADDER = pytest.mark.parametrize(
    "make_adder",
    [
        pytest.param(sequences(adders.SequenceAdder), id="sequence"),
        pytest.param(sequences(adders.ContinuingSequenceAdder), id="continuing"),
        pytest.param(sequences(adders.EpisodeAdder), id="episode"),
        *(pytest.param(make, id=make.__name__) for make in (rollout, transitions, forking, filtering)),
    ],
)


def step(last=False, reward=ONE, discount=ONE, observation=0.0):
    step_type = dm_env.StepType.LAST if last else dm_env.StepType.MID
    return dm_env.TimeStep(step_type, reward, discount, np.array([observation]))


def play(adder, *timesteps, refused=None, message=""):
    """Plays an episode of timesteps; before each of them `refused` is, with the message."""
    adder.add_first(dm_env.restart(np.zeros(1)))
    for timestep in timesteps:
        if refused is not None:
            with pytest.raises(ValueError) as raised:
                adder.add(np.zeros(1, np.float32), refused._replace(step_type=timestep.step_type))
            assert str(raised.value) == message
        adder.add(np.zeros(1, np.float32), timestep)
    adder.close()


@EVERY_ADDER
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"reward": np.float64(1e39)},
            "`reward` must be within ±1e+15, got 1e+39. Clip it or scale it down in a wrapper of the "
            "environment.",
        ),
        (
            {"reward": np.float64(-1e300)},
            "`reward` must be within ±1e+15, got -1e+300. Clip it or scale it down in a wrapper of "
            "the environment.",
        ),
        (
            {"discount": np.float64(1e39)},
            "`discount` must be within ±1e+15, got 1e+39. Clip it or scale it down in a wrapper of the "
            "environment.",
        ),
        (
            {"reward": np.float64(-1.1e15)},  # float32 holds it
            "`reward` must be within ±1e+15, got -1100000000000000.0. Clip it or scale it down in a wrapper "
            "of the environment.",
        ),
        (
            {"reward": np.float64(np.nan)},
            "`reward` must be finite, got nan. Look for a simulation or a policy that has diverged.",
        ),
    ],
)
def test_what_float32_cannot_reckon_with_is_refused_and_changes_nothing(
    make_memory_store, make_adder, changes, message
):
    timesteps = [step(reward=np.float64(0.1 * t), last=t == 3) for t in range(4)]
    untouched, _, expected = make_adder(make_memory_store, WIDE_SPEC)
    play(expected, *timesteps[1:])
    store, layout, adder = make_adder(make_memory_store, WIDE_SPEC)
    play(adder, *timesteps[1:], refused=step(**changes), message=message)
    found, wanted = store.items(layout), untouched.items(layout)
    assert found
    tree.map_structure(np.testing.assert_array_equal, found, wanted)


@EVERY_ADDER
def test_wide_signals_are_stored_in_float32_and_wide_observations_as_they_are(make_memory_store, make_adder):
    store, layout, adder = make_adder(make_memory_store, WIDE_SPEC)
    # 1e300 in an observation is no mistake: nothing makes it smaller on its way to the learner.
    play(adder, *(step(reward=np.float64(0.1), observation=1e300, last=t == 2) for t in range(3)))
    for item in store.items(layout):
        assert item.reward.dtype == item.discount.dtype == np.float32
        assert item.observation.dtype == np.float64
        assert np.max(item.observation) in (0.0, 1e300)
        assert np.isin(item.reward, [np.float32(0), np.float32(0.1), np.float32(0.2), np.float32(0.3)]).all()
    # Nothing but observations is wide in a row, which holds one of a trajectory, else two.
    num_observations = 1 if isinstance(layout, layouts.TrajectoryLayout) else 2
    assert layout.signature.columns["float64"].shape == (num_observations,)


BOUNDED_SPEC = WIDE_SPEC._replace(discounts=specs.BoundedArray((), np.float64, 0, 1))


@EVERY_ADDER
@pytest.mark.parametrize("discount", [1.5, np.nextafter(1.0, 2.0), -0.25])
def test_a_discount_outside_its_bounds_is_refused_by_every_adder_and_changes_nothing(
    make_memory_store, make_adder, discount
):
    timesteps = [step(discount=np.float64(d), last=d == 0) for d in (1, 0.5, 0)]
    untouched, _, expected = make_adder(make_memory_store, BOUNDED_SPEC)
    play(expected, *timesteps)
    store, layout, adder = make_adder(make_memory_store, BOUNDED_SPEC)
    message = (
        f"`discount` must be in [0, 1], the bounds of its spec, got {np.float64(discount)}. Correct the "
        "environment, or its `discount_spec`."
    )
    play(adder, *timesteps, refused=step(discount=np.float64(discount)), message=message)
    found, wanted = store.items(layout), untouched.items(layout)
    assert found
    tree.map_structure(np.testing.assert_array_equal, found, wanted)


@EVERY_ADDER
def test_a_discount_without_bounds_may_be_any_number(make_memory_store, make_adder):
    store, layout, adder = make_adder(make_memory_store, WIDE_SPEC)
    play(adder, *(step(discount=np.float64(1.5), last=t == 2) for t in range(3)))
    discounts = np.concatenate([np.ravel(item.discount) for item in store.items(layout)])
    assert discounts.max() == (1.5**3 if isinstance(layout, layouts.TransitionLayout) else 1.5)


@EVERY_ADDER
def test_bounds_that_leave_out_0_are_those_of_steps_alone(make_memory_store, make_adder):
    # The row of FIRST, padding and the boundary of episodes hold discount 0, with which nothing came.
    spec = WIDE_SPEC._replace(discounts=specs.BoundedArray((), np.float64, 0.5, 1))
    store, layout, adder = make_adder(make_memory_store, spec)
    play(adder, *(step(last=t == 2) for t in range(3)))
    assert store.items(layout)


def test_discounts_in_a_nest_are_refused_by_the_name_of_the_leaf_and_the_element(make_memory_store):
    bounded = specs.BoundedArray((2,), np.float32, [0, 0], [1, 0.5])
    spec = WIDE_SPEC._replace(discounts={"slow": specs.Array((), np.float32), "fast": bounded})
    _, _, adder = sequences(adders.SequenceAdder)(make_memory_store, spec)
    adder.add_first(dm_env.restart(np.zeros(1)))
    good = {"slow": np.float32(7), "fast": np.float32([1, 0.5])}
    adder.add(np.zeros(1, np.float32), step(discount=good))
    with pytest.raises(ValueError) as raised:
        adder.add(np.zeros(1, np.float32), step(discount={**good, "fast": np.float32([1, 0.75])}))
    assert str(raised.value) == (
        "`discount['fast']` must be in [0, 0.5], the bounds of its spec, got 0.75 at index (1,). Correct the "
        "environment, or its `discount_spec`."
    )


@EVERY_ADDER
def test_the_bounds_of_observations_rewards_and_actions_are_left_to_the_spec_check(
    make_memory_store, make_adder
):
    spec = specs.EnvironmentSpec(
        observations=specs.BoundedArray((1,), np.float64, -1, 1),
        actions=specs.BoundedArray((1,), np.float32, -1, 1),
        rewards=specs.BoundedArray((), np.float64, 0, 1),
        discounts=specs.BoundedArray((), np.float64, 0, 1),
    )
    store, layout, adder = make_adder(make_memory_store, spec)
    adder.add_first(dm_env.restart(np.zeros(1)))
    wild = [step(observation=9.0, reward=np.float64(9), last=t == 2) for t in range(3)]
    for timestep in wild:
        adder.add(np.float32([9]), timestep)
    adder.close()
    assert all(item.action[0] == 9 for item in store.items(layout))
    for name, value, leaf in [
        ("observation", wild[0].observation, spec.observations),
        ("action", np.float32([9]), spec.actions),
        ("reward", wild[0].reward, spec.rewards),
    ]:
        with pytest.raises(ValueError, match=f"`{name}` must be in "):
            specs.check_conforms(name, value, leaf)


def test_rewards_that_sum_to_too_much_are_refused_before_the_sum_is_due(make_memory_store):
    # Of 3 steps; when the second comes nothing is due, but a `reset` would write the sum of both.
    store, layout, adder = transitions(make_memory_store, WIDE_SPEC)
    large = step(reward=np.float64(9e14))
    adder.add_first(dm_env.restart(np.zeros(1)))
    adder.add(np.zeros(1, np.float32), large)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"sum to .* beyond 1e\+15. Clip them"):
            adder.add(np.zeros(1, np.float32), large)
    adder.add(np.zeros(1, np.float32), step(reward=np.float64(-9e14)))
    with pytest.raises(ValueError, match=r"sum to .* beyond 1e\+15. Clip them"):
        # The first two cancel out, the second and third do not.
        adder.add(np.zeros(1, np.float32), step(reward=np.float64(-9e14)))
    adder.reset()
    play(adder, step(last=True))
    rewards = [item.reward for item in store.items(layout)]
    np.testing.assert_array_equal(rewards, np.float32([0, -9e14, 1]))
