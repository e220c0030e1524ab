"""Where batches come from, and what steps are made by."""

import copy
from typing import NamedTuple

import pytest
import torch
from torch import nn

from minerva_acme import acceleration, learners, types


class Sample(NamedTuple):
    data: object


def test_the_data_of_the_next_sample_is_taken():
    batches = [types.Rollout(*[index] * len(types.Rollout._fields)) for index in range(2)]
    dataset = iter([Sample(batch) for batch in batches])
    assert learners.next_batch(dataset, types.Rollout, "RolloutLayout") is batches[0]
    assert learners.next_batch(dataset, types.Rollout, "RolloutLayout") is batches[1]


def test_data_of_another_learners_table_is_refused():
    with pytest.raises(
        TypeError,
        match="`dataset` must give batches of Trajectory, got dict. "
        "Write and unpack them with a TrajectoryLayout",
    ):
        learners.next_batch(iter([Sample({})]), types.Trajectory, "TrajectoryLayout")


@pytest.mark.parametrize(("device", "fused"), [("cpu", True), ("meta", False)])
@pytest.mark.parametrize("kind", ["adam", "sgd"])
def test_optimisers_are_fused_where_the_device_has_the_kernels(kind, device, fused):
    layer = nn.Linear(2, 1).to(device)
    optimizer = learners.make_optimizer(
        [{"params": [*layer.parameters()], "lr": 0.3}], kind=kind, adam_epsilon=1e-3, sgd_momentum=0.9
    )
    adam = acceleration.Adam if device == "cpu" else torch.optim.Adam
    assert type(optimizer) is {"adam": adam, "sgd": torch.optim.SGD}[kind]
    (group,) = optimizer.param_groups
    assert group["lr"] == 0.3 and group["fused"] is fused and len(group["params"]) == 2
    assert group["eps"] == 1e-3 if kind == "adam" else group["momentum"] == 0.9


def check_that_a_slice_is_trained_and_nothing_beside_it(kind, decay, device="cpu"):
    """Torch's fused kernels take memory as it lies."""
    generator = torch.Generator(device).manual_seed(0)
    wide = torch.randn(4, 6, generator=generator, device=device)
    sliced, whole = nn.Parameter(wide[:, :3]), nn.Parameter(wide[:, :3].clone())
    before = wide.clone()
    for parameter in (sliced, whole):
        groups = [{"params": [parameter], "lr": 0.1, "weight_decay": decay}]
        optimizer = learners.make_optimizer(groups, kind=kind)
        for step in range(3):
            generator = torch.Generator(device).manual_seed(step)
            parameter.grad = torch.randn(4, 3, generator=generator, device=device)
            optimizer.step()
    torch.testing.assert_close(sliced, whole, rtol=1e-5, atol=1e-6)
    assert torch.equal(wide[:, 3:], before[:, 3:]) and (wide[:, :3] != before[:, :3]).all()


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["adam", "sgd"])
def test_a_slice_of_a_wider_tensor_is_trained_and_nothing_beside_it(kind, decay):
    check_that_a_slice_is_trained_and_nothing_beside_it(kind, decay)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_every_device_has_the_same_settings_and_no_decay_where_a_group_leaves_it_out(decay):
    found = []
    for device in ("cpu", "meta"):  # The second has torch's own Adam, as a GPU does.
        layer = nn.Linear(2, 1).to(device)
        groups = [
            {"params": [layer.weight], "lr": 0.1, **({"weight_decay": decay} if decay else {})},
            {"params": [layer.bias], "lr": 0.1},
        ]
        made = learners.make_optimizer(groups).param_groups
        found.append([{**group, "params": None, "fused": None} for group in made])
        assert [group["weight_decay"] for group in made] == [decay, 0.0]
    # Not by == alone: a state is restored only if its settings have the same types.
    assert repr(found[0]) == repr(found[1])


def test_groups_have_learning_rates_of_their_own():
    layer = nn.Linear(2, 1)
    optimizer = learners.make_optimizer(
        [{"params": [layer.weight], "lr": 0.1}, {"params": [layer.bias], "lr": 0.2}]
    )
    assert [(group["params"], group["lr"]) for group in optimizer.param_groups] == [
        ([layer.weight], 0.1),
        ([layer.bias], 0.2),
    ]


def trajectory(**spoilt):
    mask = torch.tensor([[1.0, 1.0], [1.0, 0.0]])
    fields = {"observation": torch.ones(2, 3, 2), "action": torch.ones(2, 2, 1)}
    fields |= {
        "reward": torch.ones(2, 2),
        "discount": torch.ones(2, 2),
        "mask": mask,
        "extras": torch.ones(2),
    }
    for name, index in spoilt.items():
        fields[name][index] = float("nan")
    return types.Trajectory(**fields)


@pytest.mark.parametrize(
    ("name", "index", "plural"),
    [
        ("observation", (1, 1, 0), "observations"),
        ("action", (1, 0), "actions"),
        ("reward", (0, 1), "rewards"),
        ("discount", (0, 0), "discounts"),
    ],
)
def test_every_field_of_a_batch_is_checked_by_its_name(name, index, plural):
    with pytest.raises(learners.NonFinite, match=f"the {plural} are not finite"):
        learners.require_finite(learners.checked_fields(trajectory(**{name: index})))


@pytest.mark.parametrize(
    ("name", "index"),
    [("observation", (1, 2)), ("action", (1, 1)), ("reward", (1, 1)), ("discount", (1, 1)), ("extras", 0)],
)
def test_what_stands_at_masked_steps_and_what_was_recorded_may_be_anything(name, index):
    fields = learners.checked_fields(trajectory(**{name: index}))
    learners.require_finite(fields)
    assert [*fields] == ["observations", "actions", "rewards", "discounts", "masks", "states"]


def test_fields_of_transitions_are_called_as_people_call_them():
    fields = learners.checked_fields(types.Transition(*[torch.ones(1)] * 6))
    assert list(fields) == ["observations", "actions", "rewards", "discounts", "next observations"]
    assert list(learners.checked_fields(torch.ones(2))) == ["batches"]


@pytest.mark.parametrize("decays", [(0.1, 0.0), (0.0, 0.1)])
def test_weight_decay_of_any_group_shrinks_its_weights_and_no_others(decays):
    groups = [{"params": [nn.Parameter(torch.ones(3))], "lr": 0.5, "weight_decay": decay} for decay in decays]
    optimizer = learners.make_optimizer(groups)
    for group in groups:
        group["params"][0].grad = torch.zeros(3)
    optimizer.step()
    for group, decay in zip(groups, decays, strict=True):
        torch.testing.assert_close(group["params"][0].detach(), torch.full((3,), 1.0 - 0.5 * decay))


def over(num_steps):
    return lambda step: min(step / num_steps, 1.0)


def test_learning_rates_fall_to_their_share_and_stay_there():
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.5)
    decay = learners.LinearDecay(optimizer, final_share=0.2, share_done=over(10))
    assert [decay.set(step) for step in (0, 5, 10, 11, 40)] == pytest.approx([0.5, 0.3, 0.1, 0.1, 0.1])
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)


def test_rates_that_are_set_and_groups_that_are_added_decay_in_proportion():
    optimizers = [torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=rate) for rate in (0.5, 0.25)]
    decay = learners.LinearDecay(*optimizers, final_share=0.0, share_done=over(10))
    decay.set(5)
    optimizers[0].param_groups[0]["lr"] = 1.0
    optimizers[0].add_param_group({"params": [nn.Parameter(torch.ones(1))], "lr": 0.5})
    decay.set(6)
    rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers]
    assert rates == [pytest.approx([0.8, 0.5]), pytest.approx([0.1])]
    decay.set(8)
    rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers]
    assert rates == [pytest.approx([0.4, 0.25]), pytest.approx([0.05])]


def test_a_rate_that_is_set_after_the_end_of_the_decay_stays():
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.5)
    decay = learners.LinearDecay(optimizer, final_share=0.0, share_done=over(2))
    assert [decay.set(step) for step in range(3)] == [0.5, 0.25, 0.0]
    optimizer.param_groups[0]["lr"] = 0.1
    assert [decay.set(step) for step in (3, 4)] == [0.1, 0.1]


@pytest.mark.parametrize("kind", ["", "set during the run", "of an older version"])
def test_a_decay_that_is_continued_is_the_uninterrupted_one(kind):
    def make():
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.3)
        return optimizer, learners.LinearDecay(optimizer, final_share=0.1, share_done=over(7))

    optimizer, decay = make()
    rates = [decay.set(step) for step in range(3)]
    if kind == "set during the run":
        optimizer.param_groups[0]["lr"] = 0.07
        rates.append(decay.set(3))
    state = copy.deepcopy(optimizer.state_dict())
    if kind == "of an older version":
        del state["param_groups"][0]["decayed_to"]
    continued, its_decay = make()
    continued.load_state_dict(state)
    for step in range(len(rates), 9):
        assert its_decay.set(step) == decay.set(step)


@pytest.mark.parametrize(
    "settings", [{"final_share": 1.0, "share_done": over(10)}, {"final_share": 0.0, "share_done": None}]
)
def test_a_rate_that_does_not_decay_belongs_to_the_user(settings):
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.5)
    decay = learners.LinearDecay(optimizer, **settings)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    before = [*optimizer.param_groups[0]]
    rates = []
    for step in range(3):
        rates.append(decay.set(step))
        optimizer.step()
        schedule.step()
    assert rates == [0.5, 0.25, 0.125]
    assert [*optimizer.param_groups[0]] == before


def test_without_settings_the_optimisers_are_those_of_torch():
    groups = [{"params": [nn.Parameter(torch.ones(3))], "lr": 0.5}]
    assert learners.make_optimizer(groups).param_groups[0]["eps"] == torch.optim.Adam(groups).defaults["eps"]
    assert learners.make_optimizer(groups, kind="sgd").param_groups[0]["momentum"] == 0.0
