"""A learner takes batches of any origin: what is unambiguous is converted, and the rest is named at once."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
import tree
from torch import nn

from minerva_acme import learners, replay, specs, types
from minerva_acme.agents import acting
from minerva_acme.replay import dataset as datasets

B, T = 4, 3
CPU = torch.device("cpu")
NETWORK = nn.Linear(2, 1)


class Sample(NamedTuple):
    data: object


def transition(seed=0, **fields):
    rng = np.random.default_rng(seed)
    numbers = {
        "observation": {"arm": rng.normal(size=(B, 2)), "camera": rng.integers(0, 256, (B, 5), np.uint8)},
        "action": rng.normal(size=(B, 1)),
        "reward": rng.normal(size=B),
        "discount": np.ones(B),
    }
    return types.Transition(**{**numbers, "next_observation": numbers["observation"], **fields})


def trajectory(**fields):
    numbers = {
        "observation": torch.zeros(B, T + 1, 2),
        "action": torch.zeros(B, T, 1),
        "reward": torch.zeros(B, T),
        "discount": torch.ones(B, T),
        "mask": torch.ones(B, T),
    }
    return types.Trajectory(**{**numbers, **fields})


def as_tensors(nest, dtype=torch.float32):
    def convert(leaf):
        tensor = torch.from_numpy(np.array(leaf, leaf.dtype.newbyteorder("=")))
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    return tree.map_structure(convert, nest)


def check(dataset, network=NETWORK, device=CPU, **expected):
    return learners.checked_samples(dataset, modules=[network], device=device, **expected)


def assert_same(found, expected):
    tree.assert_same_structure(found, expected)
    for one, other in zip(tree.flatten(found), tree.flatten(expected), strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("wrap", [lambda data: data, Sample, lambda data: datasets.ReplaySample(None, data)])
def test_arrays_float64_and_bare_data_become_what_learners_take(wrap):
    batches = [transition(seed) for seed in range(3)]
    samples = check(iter([wrap(batch) for batch in batches]))
    for batch in batches:
        sample = next(samples)
        assert_same(sample.data, as_tensors(batch))
        assert sample.info is None and sample._replace(data=1).data == 1
        assert sample.data.observation["camera"].dtype == torch.uint8


def test_float64_stays_where_the_networks_have_it():
    samples = check(iter([transition()]), network=nn.Linear(2, 1).double())
    assert_same(next(samples).data, as_tensors(transition(), torch.float64))


def test_tensors_go_to_the_learners_device():
    samples = check(iter([transition()]), device=torch.device("meta"))
    assert {leaf.device.type for leaf in tree.flatten(next(samples).data)} == {"meta"}


@pytest.mark.parametrize(
    "change",
    [
        lambda array: np.asfortranarray(array[::-1]),
        lambda array: array.astype(array.dtype.newbyteorder(">")),
        lambda array: np.broadcast_to(array, array.shape),  # can only be read
    ],
)
def test_arrays_of_any_memory_layout_are_taken(change):
    batch = transition()
    changed = tree.map_structure(change, batch)
    assert_same(next(check(iter([changed]))).data, as_tensors(tree.map_structure(np.array, changed)))


def test_complete_samples_are_passed_on_untouched_and_looked_at_once(monkeypatch):
    given = [Sample(as_tensors(transition(seed))) for seed in range(3)]
    samples = check(iter(given))
    first = next(samples)
    assert all(
        one is other for one, other in zip(tree.flatten(first.data), tree.flatten(given[0].data), strict=True)
    )

    def refuse(*arguments):
        raise AssertionError("a later sample was looked at")

    monkeypatch.setattr(type(samples), "_completed", refuse)
    assert next(samples) is given[1] and next(samples) is given[2]


def test_a_dataset_over_replay_is_not_wrapped():
    class Sampler(replay.Sampler):
        def sample_batch(self, batch_size, timeout_seconds=None):
            raise NotImplementedError

        def close(self):
            pass

    with datasets.Dataset(Sampler(), lambda fields: fields, batch_size=1) as dataset:
        assert check(dataset) is dataset


@pytest.mark.parametrize(
    ("dataset", "found"), [([transition()], "list"), (None, "NoneType"), (range(3), "range")]
)
def test_what_is_no_iterator_is_refused_at_once(dataset, found):
    with pytest.raises(TypeError, match=rf"must be an endless iterator of batches, got {found}\. .*cycle"):
        check(dataset)


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (np.zeros((B, 2)), r"got ndarray of shape \[4, 2\]\. Yield types\.Transition\(observation="),
        (torch.zeros(B), r"got Tensor of shape \[4\]\."),
        ([np.zeros(B), np.zeros(B)], r"got list of ndarray\. Yield types\.Transition\(observation=\.\.\."),
        (None, r"got None\."),
        (transition()._asdict(), r"got dict of \['action', .*Yield types\.Transition\(\*\*batch\)"),
        (
            transition(reward=[0.0] * B),
            r"`reward\[0\]` of a batch must be a tensor or an array, got float\. .*np\.asar",
        ),
        (
            transition(reward=np.array(["a"] * B)),
            r"`reward` of a batch must be an array of numbers, got the dtype <U1",
        ),
        (transition(discount=None), r"`discount` of a batch must be a tensor or an array, got None\."),
        (Sample({"x": "text"}), r"`x` of a batch must be a tensor or an array, got str\."),
    ],
)
def test_what_cannot_be_learned_from_is_named_with_the_way_out(sample, message):
    with pytest.raises(TypeError, match=message):
        next(check(iter([sample])))


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (
            transition(reward=np.zeros((B, 1))),
            r"`reward` of a batch must be \[B\], got the shape \[4, 1\]\. .*squeeze",
        ),
        (
            transition(action=np.zeros((B - 1, 1))),
            r"`action` of a batch must begin with the axes \[4\], got .* \[3, 1\]",
        ),
        (
            transition(discount=np.ones(())),
            r"`observation\['arm'\]` of a batch must begin with the axes \[\]",
        ),
        (
            trajectory(observation=torch.zeros(B, T, 2)),
            r"`observation` of a batch must begin with the axes \[4, 4\]",
        ),
        (
            trajectory(mask=torch.ones(B, T + 1)),
            r"`mask` of a batch must begin with the axes \[4, 3\], got .*\[4, 4\]",
        ),
        (trajectory(reward=torch.ones(B, T, 1)), r"`reward` of a batch must be \[B, T\]"),
    ],
)
def test_leading_axes_that_do_not_fit_are_named(sample, message):
    with pytest.raises(ValueError, match=message):
        next(check(iter([Sample(sample)])))


def test_extras_that_a_learner_needs_are_named():
    needed = {"kind": types.Trajectory, "layout": "TrajectoryLayout", "extras": ("raw_action",)}
    with pytest.raises(
        TypeError, match=r"`extras` of a batch must have `raw_action`, .* got \(\)\. Yield extras=acting"
    ):
        next(check(iter([trajectory()]), **needed))
    extras = acting.BehaviourExtras(torch.zeros(B, T), torch.zeros(B, T, 1))
    assert next(check(iter([trajectory(extras=extras)]), **needed)).data.extras is not None
    with pytest.raises(TypeError, match="must give batches of Trajectory, got Transition"):
        next(check(iter([transition()]), **needed))


def test_priorities_need_the_info_of_the_items():
    with pytest.raises(
        TypeError,
        match=r"with an `info`, the `replay.SampleInfo` of their items, .* got None\. Set `prioritized`",
    ):
        next(check(iter([transition()]), needs_info=True))


def test_extras_of_ones_own_may_be_anything():
    sample = next(check(iter([transition(extras={"episode": "seventh"})])))
    assert sample.data.extras == {"episode": "seventh"}


def test_next_batch_takes_bare_data_too():
    batch = trajectory()
    assert learners.next_batch(iter([batch]), types.Trajectory, "TrajectoryLayout") is batch


OWN_SPEC = specs.EnvironmentSpec(
    observations={"arm": specs.Array((2,), np.float32), "camera": specs.Array((5,), np.uint8)},
    actions=specs.BoundedArray((1,), np.float32, -4.0, 4.0),
    rewards=specs.Array((), np.float32),
    discounts=specs.BoundedArray((), np.float32, 0.0, 1.0),
)


def test_what_fits_the_spec_is_taken_and_only_the_first_sample_is_checked():
    beyond = transition(action=np.full((B, 1), 7.0))
    unused = transition(next_observation=())
    samples = check(iter([transition(1), beyond]), spec=OWN_SPEC)
    assert [float(next(samples).data.action.max()) < 4.0 for _ in range(2)] == [True, False]
    assert next(check(iter([unused]), spec=OWN_SPEC)).data.next_observation == ()
    rounded = transition(action=np.full((B, 1), 4.0 + 1e-6), discount=np.linspace(0.0, 1.0, B))
    assert next(check(iter([rounded]), spec=OWN_SPEC))


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (transition(discount=()), r"`discount` of a batch must be \[B\], got \(\)"),
        (transition(discount=np.linspace(-1.0, 3.0, B)), r"`discount` .* in \[0, 1\], got .* from -1 to 3"),
        (transition(action=np.zeros((B, 2))), r"`action` .* the shape \[B\] \+ \[1\], .* got .* \[4, 2\]"),
        (
            transition(action=np.full((B, 1), 7.0)),
            r"`action` must be in .*, the bounds of its spec, got 7\.0 at index \(0, 0\)\. Scale or clip",
        ),
        (
            transition(observation={"arm": np.zeros((B, 2))}),
            r"`observation` must have the fields .* got the fields \['arm'\]\. Give each item",
        ),
        (
            transition(next_observation={"arm": np.zeros((B, 3)), "camera": np.zeros((B, 5))}),
            r"`next_observation\['arm'\]` .* \[B\] \+ \[2\], .* got .* \[4, 3\]",
        ),
    ],
)
def test_what_does_not_fit_the_spec_is_named(sample, message):
    with pytest.raises(ValueError, match=message):
        next(check(iter([Sample(sample)]), spec=OWN_SPEC))


@pytest.mark.parametrize(
    ("action", "spec"),
    [
        (np.full(B, 5003), specs.DiscreteArray(5000)),
        (np.full(B, 500_000), specs.DiscreteArray(500_000)),
        (np.full((B, 1), -5.0), specs.BoundedArray((1,), np.float32, 0.0, np.inf)),
        (np.full((B, 1), 1.001), specs.BoundedArray((1,), np.float32, -1.0, 1.0)),
    ],
)
def test_actions_may_be_out_of_bounds_by_rounding_alone(action, spec):
    spec = OWN_SPEC._replace(actions=spec)
    with pytest.raises(ValueError, match="`action` must be in .*, the bounds of its spec, got"):
        next(check(iter([Sample(transition(action=action))]), spec=spec))


def test_a_discount_may_be_1_up_to_rounding():
    assert next(check(iter([transition(discount=np.full(B, 1.0 + 1e-7))])))


def test_padding_may_be_out_of_the_bounds_of_actions():
    spec = OWN_SPEC._replace(
        observations=specs.Array((2,), np.float32), actions=specs.BoundedArray((1,), np.float32, 1.0, 2.0)
    )
    action = torch.ones(B, T, 1)
    action[1, 2:] = 0.0
    mask = torch.ones(B, T)
    with pytest.raises(ValueError, match="`action` must be in .*, the bounds of its spec, got"):
        next(check(iter([trajectory(action=action, mask=mask)]), spec=spec))
    mask[1, 2:] = 0.0
    assert next(check(iter([trajectory(action=action, mask=mask)]), spec=spec))
