"""Stacks of frames: replay holds each frame once, and `unpack` gives what `FrameStackWrapper` gave."""

import functools

import dm_env
import numpy as np
import pytest
import torch
import tree

from minerva_acme import adders, replay, specs, testing, wrappers
from minerva_acme.replay import layouts
from minerva_acme.replay.dataset import Dataset

TABLE = "table"
FRAME = {
    "pixels": specs.Array((4, 5, 2), np.uint8),
    "grey": specs.BoundedArray((3, 3), np.uint8, 0, 255),
    "pose": (specs.Array((2,), np.float32), specs.Array((), np.float32)),
    "gear": specs.DiscreteArray(5),
}
ACTION = specs.BoundedArray((2,), np.float32, -1.0, 1.0)


def make_environment(num_frames, episode_length, seed):
    fake = testing.FakeEnvironment(
        observation_spec=FRAME, action_spec=ACTION, episode_length=episode_length, seed=seed
    )
    return wrappers.FrameStackWrapper(fake, num_frames=num_frames)


def play(adders_, num_frames, seed):
    """Random episodes, ended by the environment or by `reset`, to all adders alike."""
    random = np.random.default_rng(seed)
    for episode in range(4):
        length = int(random.integers(1, 9))
        environment = make_environment(num_frames, length, seed=seed * 100 + episode)
        is_reset = random.random() < 0.4
        timestep = environment.reset()
        for adder in adders_:
            adder.add_first(timestep)
        for _ in range(length - is_reset):
            action = random.uniform(-1, 1, ACTION.shape).astype(np.float32)
            timestep = environment.step(action)
            for adder in adders_:
                adder.add(action, timestep)
        if is_reset:
            for adder in adders_:
                adder.reset()


def sequences(length, period, variable_length=False, at_end=adders.pad_every_start):
    def make(spec, frame_stack, client_of):
        layout = layouts.TrajectoryLayout(
            spec, length, variable_length=variable_length, frame_stack=frame_stack
        )
        client = client_of(layout.signature)
        adder = adders.SequenceAdder(
            client=client, table=TABLE, layout=layout, period=period, at_end=at_end, priority=_priority
        )
        return layout, adder

    return make


def episodes(spec, frame_stack, client_of):
    layout = layouts.TrajectoryLayout(spec, 9, frame_stack=frame_stack)
    return layout, adders.EpisodeAdder(
        client=client_of(layout.signature), table=TABLE, layout=layout, priority=_priority
    )


def continuing(spec, frame_stack, client_of):
    layout = layouts.TrajectoryLayout(spec, 5, frame_stack=frame_stack)
    return layout, adders.ContinuingSequenceAdder(
        client=client_of(layout.signature), table=TABLE, layout=layout, period=2, priority=_priority
    )


def transitions(n_step, shorter_at_start=False):
    def make(spec, frame_stack, client_of):
        layout = layouts.TransitionLayout(spec, frame_stack=frame_stack)
        adder = adders.NStepTransitionAdder(
            client=client_of(layout.signature),
            table=TABLE,
            layout=layout,
            n_step=n_step,
            discount=0.9,
            shorter_at_start=shorter_at_start,
            priority=_priority,
        )
        return layout, adder

    return make


def _priority(item):
    """Depends on every frame of every stack in the item."""
    weighted = [
        leaf.astype(np.float64).ravel() @ np.arange(leaf.size) for leaf in tree.flatten(item.observation)
    ]
    return 1.0 + abs(float(np.sum(weighted)))


KINDS = {
    "sequences": sequences(3, 1),
    "sequences that overlap in part": sequences(4, 3),
    "short sequences, stored short": sequences(4, 4, variable_length=True, at_end=adders.write_short),
    "sequences shifted back": sequences(3, 2, at_end=adders.shift_back),
    "sequences without padding": sequences(2, 2, variable_length=True),
    "episodes": episodes,
    "across episodes": continuing,
    "transitions": transitions(1),
    "over three steps": transitions(3),
    "over one to three steps": transitions(3, shorter_at_start=True),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_back_is_what_comes_back_of_whole_stacks(make_memory_store, kind):
    for seed, num_frames in enumerate((2, 4)):
        spec = specs.make_environment_spec(make_environment(num_frames, 1, 0))
        stores = []

        def client_of(signature, stores=stores):
            stores.append(make_memory_store(signature))
            return stores[-1].client

        (whole, writes_whole), (framed, writes_frames) = (
            KINDS[kind](spec, frame_stack, client_of) for frame_stack in (1, num_frames)
        )
        play([writes_whole, writes_frames], num_frames, seed)
        writes_whole.close()
        writes_frames.close()
        expected, expected_priorities = stores[0].items_and_priorities(whole)
        items, priorities = stores[1].items_and_priorities(framed)
        assert len(items) == len(expected) > 0
        for item, other in zip(items, expected, strict=True):
            testing.assert_nests_equal(item, other, "Stacks must be those of the wrapper.")
        assert priorities == expected_priorities


@pytest.mark.parametrize("backend", ["memory", pytest.param("reverb", marks=pytest.mark.reverb)])
@pytest.mark.parametrize("kind", ["sequences", "transitions"])
def test_a_batch_of_either_store_holds_the_stacks_that_the_agent_saw(backend, kind):
    num_frames, num_steps = 3, 7
    environment = make_environment(num_frames, num_steps, seed=0)
    spec = specs.make_environment_spec(environment)
    resources = []

    def client_of(signature):
        table = replay.TableConfig(
            name=TABLE,
            signature=signature,
            max_size=100,
            rate_limiter=replay.MinSize(1),
            sampler=replay.Fifo(),
            max_times_sampled=1,
        )
        server = replay.make_server([table], backend, seed=0)
        resources.extend([server, server.client()])
        return resources[-1]

    layout, adder = KINDS[kind](spec, num_frames, client_of)
    seen = [environment.reset()]
    adder.add_first(seen[0])
    for _ in range(num_steps):
        seen.append(environment.step(np.zeros(2, np.float32)))
        adder.add(np.zeros(2, np.float32), seen[-1])
    adder.close()
    with Dataset(resources[-1].sampler(TABLE), layout.unpack, batch_size=num_steps, prefetch=0) as dataset:
        batch = next(dataset).data
    for resource in reversed(resources):
        resource.close()
    for t in range(num_steps):
        observation = tree.map_structure(lambda leaf, t=t: leaf[t], batch.observation)
        if kind == "sequences":
            observation = tree.map_structure(lambda leaf: leaf[0], observation)
        testing.assert_nests_equal(
            tree.map_structure(torch.Tensor.numpy, observation), seen[t].observation, f"At step {t}."
        )


@pytest.mark.parametrize(
    "make_layout", [functools.partial(layouts.TrajectoryLayout, sequence_length=3), layouts.TransitionLayout]
)
def test_the_table_holds_single_frames_of_images(make_layout):
    spec = specs.make_environment_spec(make_environment(4, 1, 0))
    columns = make_layout(spec, frame_stack=4).signature.columns
    assert columns["observation/pixels"].shape == (4, 5, 2)
    assert make_layout(spec).signature.columns["observation/pixels"].shape == (4, 4, 5, 2)
    signature = layouts.TrajectoryLayout(spec, 3, frame_stack=4).signature
    assert signature.columns["uint8"].shape == (9,)
    assert {field.length for field in signature.fields.values()} == {3 + 1 + 3}


def timestep_of(stack, t):
    """Time t of an episode of frames 0, 1, 2, ..., of which `stack` says which are stacked."""
    kind = dm_env.StepType.MID if t else dm_env.StepType.FIRST
    frames = np.asarray(stack(t), np.float32)
    image = np.broadcast_to(frames[:, None, None], (3, 2, 2)).astype(np.uint8)
    return dm_env.TimeStep(kind, np.float32(0.0), np.float32(1.0), {"frames": frames, "image": image})


def last_three(t):
    return [max(t - age, 0) for age in (2, 1, 0)]


@pytest.mark.parametrize(
    "kind", ["sequences", "episodes", "across episodes", "transitions", "over three steps"]
)
@pytest.mark.parametrize(
    ("stack", "refused_at"),
    [
        (last_three, None),
        (lambda t: [max(t - age, 0) for age in (0, 1, 2)], 1),  # newest first
        (lambda t: [t - 2 if t > 1 else 7, t - 1 if t else 7, t], 0),  # padded by something else
        (lambda t: [max(t - 2 * age, 0) for age in (2, 1, 0)], 2),  # of every other frame
    ],
)
def test_stacks_that_frames_do_not_rebuild_are_refused_before_anything_is_written(
    make_memory_store, kind, stack, refused_at
):
    spec = specs.EnvironmentSpec(
        {"frames": specs.Array((3,), np.float32), "image": specs.Array((3, 2, 2), np.uint8)},
        specs.Array((), np.float32),
        specs.Array((), np.float32),
        specs.Array((), np.float32),
    )
    _, adder = KINDS[kind](spec, 3, lambda signature: make_memory_store(signature).client)
    for _ in range(2):
        for t in range(5):
            call = functools.partial(adder.add, np.float32(0.0)) if t else adder.add_first
            if t == refused_at:
                with pytest.raises(
                    ValueError, match=r"frames, got another stack. Apply FrameStackWrapper after"
                ):
                    call(timestep_of(stack, t))
            call(timestep_of(last_three if t == refused_at else stack, t))
            if t == refused_at:
                break
        adder.reset()
    adder.close()


@pytest.mark.parametrize(
    "make_layout", [functools.partial(layouts.TrajectoryLayout, sequence_length=3), layouts.TransitionLayout]
)
def test_observations_that_are_no_stacks_are_refused_by_leaf(make_layout):
    spec = specs.make_environment_spec(make_environment(4, 1, 0))
    with pytest.raises(ValueError, match=r"`frame_stack` must be >= 1 frame, got 0"):
        make_layout(spec, frame_stack=0)
    with pytest.raises(
        ValueError, match=r"`observation\['gear'\]` must have the 3 frames of `frame_stack` as"
    ):
        make_layout(spec, frame_stack=3)
