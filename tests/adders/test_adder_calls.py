"""What adders have in common: the order of calls, refusals, and when things reach the table."""

import dm_env
import numpy as np
import pytest

from minerva_acme import specs
from minerva_acme.adders import NStepTransitionAdder, RolloutAdder, SequenceAdder
from minerva_acme.replay import base as replay
from minerva_acme.replay import layouts

SPEC = specs.EnvironmentSpec(
    observations={"position": specs.Array((3,), np.float32), "pixels": specs.Array((2, 2, 1), np.uint8)},
    actions=specs.BoundedArray((2,), np.float32, -1, 1),
    rewards=specs.Array((), np.float32),
    discounts=specs.BoundedArray((), np.float32, 0, 1),
)
EXTRAS_SPEC = {"log_prob": specs.Array((), np.float32)}

GOOD = dict(
    position=np.float32([1, 2, 3]),
    pixels=np.zeros((2, 2, 1), np.uint8),
    action=np.float32([0.1, 0.2]),
    reward=np.float32(1),
    discount=np.float32(1),
    extras={"log_prob": np.float32(-1)},
)


@pytest.fixture(params=["sequence", "n_step", "rollout"])
def layout(request):
    if request.param == "sequence":
        return layouts.TrajectoryLayout(SPEC, 2, EXTRAS_SPEC)
    if request.param == "rollout":
        return layouts.RolloutLayout(SPEC, 1, EXTRAS_SPEC)
    return layouts.TransitionLayout(SPEC, EXTRAS_SPEC)


def make_adder(client, layout, **kwargs):
    if isinstance(layout, layouts.TrajectoryLayout):
        return SequenceAdder(client=client, table="table", layout=layout, period=1, **kwargs)
    if isinstance(layout, layouts.RolloutLayout):
        return RolloutAdder(client=client, table="table", layout=layout, discount=0.5, **kwargs)
    return NStepTransitionAdder(client=client, table="table", layout=layout, n_step=2, discount=0.5, **kwargs)


def add(adder, step_type=dm_env.StepType.MID, **changes):
    """Adds a step that is good but for `changes`; `observation` replaces the whole of it."""
    values = {**GOOD, **changes}
    observation = {"position": values["position"], "pixels": values["pixels"]}
    timestep = dm_env.TimeStep(
        step_type, values["reward"], values["discount"], values.get("observation", observation)
    )
    adder.add(values["action"], timestep, values["extras"])


def add_first(adder, **changes):
    values = {**GOOD, **changes}
    observation = {"position": values["position"], "pixels": values["pixels"]}
    adder.add_first(dm_env.restart(values.get("observation", observation)))


REFUSALS = {
    "float64 observation": (
        dict(position=np.zeros(3)),
        "`observation['position']` must be float32 of shape (3,), got float64 of shape (3,). "
        "Cast it, or wrap the environment in SinglePrecisionWrapper.",
    ),
    "shape of the observation": (
        dict(position=np.float32([1, 2])),
        "`observation['position']` must be float32 of shape (3,), got float32 of shape (2,). "
        "Make it agree with its spec.",
    ),
    "missing observation": (
        dict(observation={"position": GOOD["position"]}),
        "`observation` must have the fields ['pixels', 'position'], got the fields ['position'].",
    ),
    "array where a dict belongs": (
        dict(observation=GOOD["position"]),
        "`observation` must have the fields ['pixels', 'position'], got float32 of shape (3,).",
    ),
    "Python number": (
        dict(reward=1.0),
        "`reward` must be float32 of shape (), got 1.0. Make it a numpy array or scalar, "
        "as SinglePrecisionWrapper does for an environment.",
    ),
    "infinite action": (
        dict(action=np.float32([-np.inf, 0])),
        "`action` must be finite, got -inf at index (0,).",
    ),
    "nan discount": (dict(discount=np.float32(np.nan)), "`discount` must be finite, got nan."),
    "missing extras": (
        dict(extras=()),
        "`extras` must have the fields ['log_prob'], got 0 elements.",
    ),
    "nan in extras": (
        dict(extras={"log_prob": np.float32(np.nan)}),
        "`extras['log_prob']` must be finite, got nan.",
    ),
}


def play_good_episode(adder):
    add_first(adder)
    add(adder)
    add(adder, action=np.float32([0.3, 0.4]))
    add(adder, dm_env.StepType.LAST, reward=np.float32(5))


@pytest.mark.parametrize(("changes", "message"), REFUSALS.values(), ids=REFUSALS)
def test_a_wrong_field_is_refused_by_name_and_changes_nothing(make_memory_store, layout, changes, message):
    untouched, store = make_memory_store(layout.signature), make_memory_store(layout.signature)
    play_good_episode(make_adder(untouched.client, layout))

    adder = make_adder(store.client, layout)
    add_first(adder)
    refused = []
    for step_type in (dm_env.StepType.MID, dm_env.StepType.LAST):
        with pytest.raises(ValueError) as error:
            add(adder, step_type, **changes)
        refused.append(str(error.value))
    add(adder)
    with pytest.raises(ValueError):
        add(adder, **changes)
    add(adder, action=np.float32([0.3, 0.4]))
    add(adder, dm_env.StepType.LAST, reward=np.float32(5))

    assert all(text.startswith(message) for text in refused), refused
    expected, found = untouched.read(), store.read()
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name])


def test_a_refused_field_leaves_a_reverb_writer_usable(make_store, make_memory_store, layout):
    untouched, store = make_memory_store(layout.signature), make_store(layout.signature)
    play_good_episode(make_adder(untouched.client, layout))
    with make_adder(store.client, layout) as adder:
        with pytest.raises(ValueError, match="position"):
            add_first(adder, position=np.zeros(3))
        add_first(adder)
        add(adder)
        for changes, _ in REFUSALS.values():
            with pytest.raises(ValueError, match="must"):
                add(adder, **changes)
        add(adder, action=np.float32([0.3, 0.4]))
        add(adder, dm_env.StepType.LAST, reward=np.float32(5))
        expected, found = untouched.read(), store.read()
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name])


def test_a_wrong_first_observation_is_refused_and_the_episode_not_opened(make_memory_store, layout):
    store = make_memory_store(layout.signature)
    adder = make_adder(store.client, layout)
    with pytest.raises(ValueError, match=r"`observation\['position'\]` must be float32"):
        add_first(adder, position=np.zeros(3))
    play_good_episode(adder)
    assert len(store.items(layout)) == 3


def test_reset_without_an_open_episode_does_nothing(make_memory_store, layout):
    store = make_memory_store(layout.signature)
    adder = make_adder(store.client, layout)
    adder.reset()
    play_good_episode(adder)
    adder.reset()
    assert adder.num_inserted == len(store.items(layout)) == 3
    # To the store, rollouts are one endless episode.
    is_endless = isinstance(layout, layouts.RolloutLayout)
    assert store.client.writers[0].num_episodes == (0 if is_endless else 1)


def test_close_ends_the_open_episode_and_sends_everything(make_memory_store, layout):
    store = make_memory_store(layout.signature)
    adder = make_adder(store.client, layout)
    add_first(adder)
    add(adder)
    adder.close()
    adder.close()
    (writer,) = store.client.writers
    assert writer.closed
    assert writer.flushed_items == adder.num_inserted == 1
    with pytest.raises(ValueError, match="The adder is closed"):
        add_first(adder)


def test_nothing_is_asked_of_the_client_before_the_first_episode(make_memory_store, layout):
    store = make_memory_store(layout.signature)
    with make_adder(store.client, layout) as adder:
        adder.flush()
        adder.reset()
    assert not store.client.writers


def test_after_a_flush_within_an_episode_what_was_created_can_be_sampled(make_store, layout):
    store = make_store(layout.signature)
    with make_adder(store.client, layout) as adder:
        add_first(adder)
        add(adder)
        add(adder)
        adder.flush()
        num_items = 2 if isinstance(layout, layouts.RolloutLayout) else 1  # the others take two steps
        assert adder.num_inserted == len(store.items(layout)) == num_items


def test_items_get_the_priority_asked_for(make_memory_store, layout):
    store = make_memory_store(layout.signature)
    play_good_episode(make_adder(store.client, layout, priority=2.5))
    assert store.client.writers[0].priorities == [2.5] * 3


@pytest.mark.parametrize("failing_item", [0, 1, 2])
def test_no_item_is_lost_where_the_writer_runs_out_of_time(make_memory_store, layout, failing_item):
    untouched, store = make_memory_store(layout.signature), make_memory_store(layout.signature)
    play_good_episode(make_adder(untouched.client, layout))

    adder = make_adder(store.client, layout)
    add_first(adder)
    (writer,) = store.client.writers
    create_item = writer.create_item

    def create_item_late(*args):
        create_item(*args)  # It stays pending, as the contract says.
        if len(writer.items) == failing_item + 1:
            raise replay.ReplayTimeout("the table holds inserts back")

    writer.create_item = create_item_late
    timeouts = 0
    for step_type, changes in [
        (dm_env.StepType.MID, {}),
        (dm_env.StepType.MID, dict(action=np.float32([0.3, 0.4]))),
        (dm_env.StepType.LAST, dict(reward=np.float32(5))),
    ]:
        try:
            add(adder, step_type, **changes)
        except replay.ReplayTimeout:
            timeouts += 1
    adder.reset()
    assert timeouts == 1
    assert adder.num_inserted == 3
    expected, found = untouched.read(), store.read()
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name])
