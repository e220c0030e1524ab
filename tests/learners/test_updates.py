"""Each step is made as a whole or not at all."""

import copy

import pytest
import torch
from torch import nn

from minerva_acme import learners, testing
from minerva_acme.learners import finite

NAN = float("nan")


class Scene:
    """Two small networks, each in a group of its own, and statistics that no optimiser has."""

    def __init__(self, kind="adam", max_skipped_batches=2, max_norm=1e6, dtype=torch.float32):
        generator = torch.Generator().manual_seed(0)
        self.modules = {name: nn.Linear(3, 1, dtype=dtype) for name in ("critic", "policy")}
        for module in self.modules.values():
            for parameter in module.parameters():
                nn.init.normal_(parameter, generator=generator)
        self.statistics = nn.BatchNorm1d(3, affine=False, dtype=dtype)

        def make_optimizer(parameters):
            if kind == "torch":  # which a GPU has
                return torch.optim.Adam(parameters, lr=0.1, fused=True)
            return learners.make_optimizer([{"params": parameters, "lr": 0.1}], kind=kind, sgd_momentum=0.9)

        self.groups = {
            name: learners.Group(make_optimizer([*module.parameters()]), max_norm)
            for name, module in self.modules.items()
        }
        self.updates = learners.Updates(
            self.groups,
            modules=[*self.modules.values(), self.statistics],
            max_skipped_batches=max_skipped_batches,
        )

    def loss(self, name, x):
        return self.modules[name](x).square().mean()

    def learn(self, x, step=0, policy_x=None):
        """Both groups' steps and the statistics'; returns the metrics."""
        with self.updates.guarded(step) as metrics:
            metrics["norm"] = self.updates.minimise("critic", self.loss("critic", x))
            self.statistics(x)
            self.updates.minimise("policy", self.loss("policy", x if policy_x is None else policy_x))
        with self.updates.completing():
            return metrics

    def state(self):
        modules = {**self.modules, "statistics": self.statistics}
        return copy.deepcopy(
            {
                "modules": {name: module.state_dict() for name, module in modules.items()},
                "optimizers": self.updates.save()["optimizers"],
            }
        )


def batch(seed, dtype=torch.float32):
    return torch.randn(8, 3, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("adam", torch.float32), ("sgd", torch.float32), ("sgd", torch.float64), ("torch", torch.float64)],
    ids=["adam", "sgd", "sgd, read from the device", "adam, decided on the device"],
)
@pytest.mark.parametrize("num_before", [0, 2])  # optimisers without state yet, and with
@pytest.mark.parametrize("value", [NAN, 1e30])
def test_a_gradient_that_is_not_finite_makes_no_step(kind, dtype, num_before, value, caplog):
    scene, other = Scene(kind, dtype=dtype), Scene(kind, dtype=dtype)
    for seed in range(num_before):
        scene.learn(batch(seed, dtype))
        other.learn(batch(seed, dtype))
    before = scene.state()
    # The statistics have seen the rows by then.
    metrics = scene.learn(batch(5, dtype), step=7, policy_x=torch.full((8, 3), value, dtype=dtype))
    assert metrics["skipped_batches"] == 1
    after = scene.state()  # for which the host looks at what a device has decided
    steps = "1 of the last 100 learner steps" if kind == "torch" else "learner step 7"
    assert f"{steps} skipped: the gradients of the policy are" in caplog.text
    assert kind == "torch" or metrics.keys() == {"skipped_batches"}
    assert (before["modules"]["critic"]["weight"] != after["modules"]["critic"]["weight"]).any()
    testing.assert_nests_equal(moments(after), moments(before), "What is not finite must leave no trace.")
    for name in ("policy", "statistics"):
        testing.assert_nests_equal(after["modules"][name], before["modules"][name], "It must be as it was.")
    with other.updates.guarded(7):
        other.updates.minimise("critic", other.loss("critic", batch(5, dtype)))
    scene.learn(batch(6, dtype))
    other.learn(batch(6, dtype))
    testing.assert_nests_equal(scene.state(), other.state(), "The next batch must be learned as ever.")


@pytest.fixture
def reads(monkeypatch):
    """What is read from the device."""
    tensors, read = [], finite.read
    monkeypatch.setattr(finite, "read", lambda tensor: tensors.append(tensor) or read(tensor))
    return tensors


def learn_from(scene, target, step):
    """A step of both groups, in float64 as on a GPU, from rows that are finite; returns the metrics."""
    rows = batch(0, torch.float64)
    with scene.updates.guarded(step) as metrics:
        scene.updates.require_finite({"targets": target})
        scene.statistics(rows)
        for name in scene.modules:
            scene.updates.minimise(name, scene.loss(name, rows))
    with scene.updates.completing():
        return metrics


@pytest.mark.parametrize(("kind", "num_reads"), [("torch", [1, 0, 0, 1]), ("sgd", [3, 3, 3, 3])])
def test_a_device_whose_optimisers_decide_themselves_is_read_in_every_100th_step(kind, num_reads, reads):
    scene, found = Scene(kind, dtype=torch.float64), []
    for step in (0, 1, 99, 100):
        reads.clear()
        learn_from(scene, torch.ones(8, dtype=torch.float64), step)
        found.append(len(reads))
    assert found == num_reads


def test_a_device_makes_no_step_from_bad_numbers_and_the_host_learns_of_it_later(reads, caplog):
    scene, other = (Scene("torch", dtype=torch.float64, max_skipped_batches=3) for _ in range(2))
    good, bad = (torch.full((8,), value, dtype=torch.float64) for value in (1.0, NAN))
    reads.clear()
    metrics = [
        learn_from(scene, rows, step)["skipped_batches"] for step, rows in enumerate((good, bad, bad), 1)
    ]
    assert not reads
    assert metrics == [0, 1, 2]
    learn_from(other, good, 1)
    assert "skipped" not in caplog.text
    testing.assert_nests_equal(scene.state(), other.state(), "What is not finite must leave no trace.")
    assert "2 of the last 100 learner steps skipped: the targets are not finite. Clip extreme" in caplog.text
    for step, rows in enumerate((good, bad, good), 3):
        assert learn_from(scene, rows, step)["skipped_batches"] == (2 if step == 3 else 3)
    assert scene.updates.save()["skipped"] == [3, 0]
    for step in range(6, 9):
        learn_from(scene, bad, step)
    restored = Scene("torch", dtype=torch.float64, max_skipped_batches=3)
    restored.updates.restore(scene.updates.save())
    learn_from(restored, bad, 99)  # the fourth in a row
    with pytest.raises(FloatingPointError, match=r"the targets are not finite, 4 learner steps in a row"):
        learn_from(restored, good, 100)


def moments(state):
    """What the policy's optimiser keeps, but for a state that is new and still zero."""
    kept = state["optimizers"]["policy"]["state"].values()
    return [tensor for each in kept for tensor in each.values() if tensor is not None and tensor.any()]


class Adaptive(torch.optim.Optimizer):
    """Keeps what it has found in its groups, as Prodigy and schedule-free optimisers do, and in lists.

    As with Prodigy, its steps add to its groups, make a tensor of a number, and keep slices and counts.
    """

    def __init__(self, parameters):
        super().__init__(
            parameters, {"size": 1e-3, "num": torch.zeros(()), "history": [], "d": 1.0, "beta": None}
        )

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["num"] += 1
            group["history"].append(group["size"])
            group["d"], group["beta"] = torch.full((1,), 2.0), 0.5
            group["d_denom"] = group.get("d_denom", torch.zeros(1)) + 1
            for parameter in group["params"]:
                group["size"] = max(group["size"], parameter.grad.norm().item())
                state = self.state[parameter]
                state.setdefault("last", [torch.zeros_like(parameter)])[0].copy_(parameter)
                state["step"] = state.get("step", 0) + 1
                state["slice"] = parameter.flatten()[::2].clone()
                parameter -= 1e-3 * group["size"] * group["d_denom"] * parameter.grad


def make_adaptive(scene):
    """Gives the critic of a scene this optimiser."""
    scene.groups["critic"] = learners.Group(Adaptive(scene.modules["critic"].parameters()), 1e30)
    scene.updates = learners.Updates(
        scene.groups, modules=[*scene.modules.values(), scene.statistics], max_skipped_batches=2
    )
    return scene


def test_an_optimiser_that_adds_to_its_groups_goes_on_as_it_was():
    scene, resumed = make_adaptive(Scene()), make_adaptive(Scene())
    scene.learn(batch(0))
    scene.learn(batch(1))
    state = testing.through_a_file({**scene.state(), "updates": scene.updates.save()})
    for name, module in resumed.modules.items():
        module.load_state_dict(state["modules"][name])
    resumed.statistics.load_state_dict(state["modules"]["statistics"])
    resumed.updates.restore(state["updates"])
    for each in (scene, resumed):
        each.learn(batch(2))
    testing.assert_nests_equal(resumed.state(), scene.state(), "A resumed step must be the same.")
    with pytest.raises(ValueError, match="'critic' must come from the same kind .* got another `beta`"):
        resumed.updates.restore(Scene().updates.save())  # of Adam
    with pytest.raises(ValueError, match="'critic' must come from the same kind .* got another `amsgrad`"):
        Scene().updates.restore(scene.updates.save())


SCHEDULES = {
    "cosine": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 7),
    "function": lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step),
    "milestones": lambda optimizer: torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4], 0.1),
    "one cycle": lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, 20),
    "several": lambda optimizer: torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3),
            torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5),
        ],
        milestones=[3],
    ),
}


def with_schedule(schedule):
    """A scene whose critic's learning rate a scheduler sets."""
    scene = Scene()
    optimizer = scene.groups["critic"].optimizer
    assert learners.scheduled(optimizer, SCHEDULES[schedule](optimizer)) is optimizer
    return scene


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_scheduler_goes_on_where_it_was(schedule):
    scene = with_schedule(schedule)
    rates = []
    for seed in range(9):
        if seed in (2, 4, 6):
            state = testing.through_a_file({**scene.state(), "updates": scene.updates.save()})
            scene = with_schedule(schedule)
            for name, module in scene.modules.items():
                module.load_state_dict(state["modules"][name])
            scene.updates.restore(state["updates"])
        rates.append(scene.groups["critic"].optimizer.param_groups[0]["lr"])
        scene.learn(batch(seed))
        bad = scene.learn(torch.full((8, 3), NAN))  # which is skipped, and moves no scheduler
        assert set(bad) == {"skipped_batches"}
    adam = torch.optim.Adam([nn.Parameter(torch.zeros(1))], lr=0.1)
    plain, expected = SCHEDULES[schedule](adam), []
    for _ in range(9):
        expected.append(adam.param_groups[0]["lr"])
        adam.step()
        plain.step()
    assert rates == expected and len(set(rates)) > 2


def test_the_state_of_other_schedulers_is_refused():
    one, other, none = with_schedule("cosine"), with_schedule("milestones"), Scene()
    for saved, restored in ((one, other), (one, none), (none, one)):
        with pytest.raises(ValueError, match="schedulers of the optimiser 'critic' must come from the same"):
            restored.updates.restore(saved.updates.save())


def test_a_scheduler_that_cannot_be_stepped_with_its_optimiser_is_refused():
    optimizer, other = (scene.groups["critic"].optimizer for scene in (Scene(), Scene()))
    with pytest.raises(ValueError, match="must be schedulers of this optimiser, got LambdaLR of another"):
        learners.scheduled(optimizer, SCHEDULES["function"](other))
    with pytest.raises(ValueError, match="must step without a metric, got ReduceLROnPlateau"):
        learners.scheduled(optimizer, torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer))


def test_a_state_can_be_restored_more_than_once():
    scene, *others = Scene(), Scene(), Scene()
    scene.learn(batch(0))
    state = copy.deepcopy(scene.updates.save())
    before = copy.deepcopy(state)
    for other in others:
        other.updates.restore(state)
        other.learn(batch(1))
    testing.assert_nests_equal(state, before, "A state that was restored must stay as it is.")
    one, other = (each.updates.save() for each in others)
    testing.assert_nests_equal(one, other, "What is restored from one state must be equal.")


def test_what_is_found_before_the_first_step_is_skipped_alike(caplog):
    scene = Scene()
    before = scene.state()
    with scene.updates.guarded(3) as metrics:
        metrics["loss"] = 1.0
        scene.statistics(batch(0))
        learners.require_finite({"rewards": torch.tensor([NAN])})
        pytest.fail("it went on")
    assert metrics == {"skipped_batches": 1}
    assert "learner step 3 skipped: the rewards are not finite" in caplog.text
    testing.assert_nests_equal(scene.state(), before, "A skipped batch must leave no trace.")


def test_the_first_gradient_that_is_not_finite_is_named(caplog):
    scene = Scene()
    with scene.updates.guarded(0):
        scene.updates.minimise("critic", scene.loss("critic", batch(0)))
        for name in ("policy", "critic"):
            scene.updates.minimise(name, scene.loss(name, torch.full((8, 3), NAN)))
    assert "the gradients of the policy are not finite" in caplog.text


def test_each_of_several_steps_of_a_group_is_looked_at():
    scene, other = Scene(), Scene()
    with scene.updates.guarded(0) as metrics:
        for x in (torch.full((8, 3), NAN), batch(0)):
            scene.updates.minimise("critic", scene.loss("critic", x))
    with other.updates.guarded(0):
        other.updates.minimise("critic", other.loss("critic", batch(0)))
    assert metrics == {"skipped_batches": 1}
    testing.assert_nests_equal(scene.state(), other.state(), "The step that is finite must be made.")


def test_the_statistics_of_a_layer_that_was_replaced_are_as_before_too():
    scene = Scene()
    scene.modules["critic"] = nn.Sequential(nn.Linear(3, 3))
    scene.updates = learners.Updates(scene.groups, modules=[*scene.modules.values()], max_skipped_batches=2)
    scene.modules["critic"][0] = nn.BatchNorm1d(3)
    with scene.updates.guarded(0):
        scene.modules["critic"](batch(0))
        learners.require_finite({"rewards": torch.tensor([NAN])})
    assert scene.modules["critic"][0].num_batches_tracked == 0


def test_other_errors_are_not_taken_for_batches():
    scene = Scene()
    with pytest.raises(ArithmeticError, match="a mistake"), scene.updates.guarded(0):
        raise ArithmeticError("a mistake")
    assert scene.learn(batch(0))["skipped_batches"] == 0


def test_skipped_batches_are_counted_in_all_and_in_a_row():
    scene = Scene(max_skipped_batches=2)
    bad = torch.full((8, 3), NAN)
    assert [scene.learn(x)["skipped_batches"] for x in (bad, bad, batch(0), bad, bad)] == [1, 2, 2, 3, 4]
    before = scene.state()
    with pytest.raises(
        FloatingPointError,
        match=r"the gradients of the critic are not finite, 3 learner steps in a row "
        r"\(`max_skipped_batches` is 2\). Training has diverged: lower the learning rates",
    ):
        scene.learn(bad)
    testing.assert_nests_equal(scene.state(), before, "The last batch must leave no trace either.")


def test_without_patience_the_first_skipped_batch_is_an_error():
    with pytest.raises(FloatingPointError, match="1 learner steps in a row"):
        Scene(max_skipped_batches=0).learn(torch.full((8, 3), NAN))


def test_optimisers_and_counts_are_restored():
    scene, restored = Scene(max_skipped_batches=1), Scene(max_skipped_batches=1)
    scene.learn(batch(0))
    scene.learn(torch.full((8, 3), NAN))
    restored.updates.restore(testing.through_a_file(scene.updates.save()))
    testing.assert_nests_equal(restored.updates.save(), scene.updates.save(), "Restored must be equal.")
    with pytest.raises(FloatingPointError, match="2 learner steps in a row"):
        restored.learn(torch.full((8, 3), NAN))


def test_a_scheduler_whose_place_no_checkpoint_holds_is_warned_of(caplog):
    scene = Scene()
    state = scene.updates.save()
    scene.updates.restore(state)
    assert not caplog.text
    torch.optim.lr_scheduler.LambdaLR(scene.groups["critic"].optimizer, lambda step: 1.0 / (1.0 + step))
    scene.learn(batch(0))
    other = Scene()
    torch.optim.lr_scheduler.LambdaLR(other.groups["critic"].optimizer, lambda step: 1.0 / (1.0 + step))
    other.updates.restore(scene.updates.save())
    assert "a scheduler sets the learning rate of 'critic'" in caplog.text
    assert "'policy'" not in caplog.text


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state["state"][0].update(exp_avg=torch.zeros(2)) or "exp_avg` of parameter 0",
        lambda state: state["state"][0].update(step=torch.zeros(0)) or "step` of parameter 0",
        lambda state: state["state"][0].update(exp_avg_sq=5) or "exp_avg_sq` of parameter 0",
        lambda state: state["param_groups"][0].update(weight_decay="") or "weight_decay`",
        lambda state: state["param_groups"][0].pop("eps") and "eps`",
        lambda state: state["param_groups"][0].update(momentum=0.0) or "momentum`",
    ],
)
def test_an_optimisers_state_of_other_shapes_or_kinds_is_refused(change):
    scene, other = Scene(), Scene()
    scene.learn(batch(0))
    state = scene.updates.save()
    other.updates.restore(state)
    name = change(state["optimizers"]["critic"])
    with pytest.raises(ValueError, match=f"'critic' must come from the same kind .* got another `{name}"):
        other.updates.restore(state)


def test_a_setting_may_be_saved_as_a_whole_number():
    scene, other = Scene(), Scene()
    scene.groups["critic"].optimizer.param_groups[0]["weight_decay"] = 0
    other.updates.restore(scene.updates.save())
    assert other.groups["critic"].optimizer.param_groups[0]["weight_decay"] == 0


def test_the_state_of_torchs_own_adam_which_a_gpu_has_is_restored():
    scene, other = Scene(), Scene()
    scene.learn(batch(0))
    adam = torch.optim.Adam([*scene.modules["critic"].parameters()], weight_decay=0.0, fused=True)
    adam.step()
    state = scene.updates.save()
    state["optimizers"]["critic"] = adam.state_dict()
    other.updates.restore(state)
    testing.assert_nests_equal(other.updates.save(), state, "Restored must be equal.")


def test_gradients_are_clipped_by_their_global_norm_and_reported_before():
    scene = Scene("sgd", max_norm=0.5)
    before = [parameter.detach().clone() for parameter in scene.modules["critic"].parameters()]
    norm = scene.learn(100.0 * batch(0))["norm"]
    assert norm > 1.0
    moved = [
        (parameter - old).detach()
        for parameter, old in zip(scene.modules["critic"].parameters(), before, strict=True)
    ]
    torch.testing.assert_close(torch.cat([part.flatten() for part in moved]).norm(), torch.tensor(0.1 * 0.5))


@pytest.mark.parametrize("max_norm", [1e-3, 1e3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])  # The second goes the way of a GPU.
def test_gradients_are_clipped_as_torch_clips_them(max_norm, dtype):
    scene = Scene("sgd", max_norm=max_norm, dtype=dtype)
    parameters = [*scene.modules["critic"].parameters()]
    with scene.updates.guarded(0):
        norm = scene.updates.minimise("critic", scene.loss("critic", batch(0).to(dtype)))
        clipped = [parameter.grad.clone() for parameter in parameters]
    other = Scene("sgd", max_norm=max_norm, dtype=dtype)
    others = [*other.modules["critic"].parameters()]
    other.loss("critic", batch(0).to(dtype)).backward()
    assert torch.equal(norm, nn.utils.clip_grad_norm_(others, max_norm))
    for gradient, parameter in zip(clipped, others, strict=True):
        assert torch.equal(gradient, parameter.grad)


@pytest.mark.parametrize("frozen", [["bias"], ["weight", "bias"]])
def test_frozen_parameters_stay_and_the_others_move(frozen):
    scene = Scene()
    critic = scene.modules["critic"]
    for name in frozen:
        critic.get_parameter(name).requires_grad_(False)
    before = {name: parameter.detach().clone() for name, parameter in critic.named_parameters()}
    with scene.updates.guarded(0):
        norm = scene.updates.minimise("critic", scene.loss("critic", batch(0)))
    moved = {
        name for name, parameter in critic.named_parameters() if not torch.equal(parameter, before[name])
    }
    assert moved == before.keys() - {*frozen}
    assert (norm > 0.0) == bool(moved)


def test_a_loss_of_nothing_that_is_trained_changes_nothing():
    scene = Scene("sgd")
    before = scene.state()["modules"]["critic"]
    with scene.updates.guarded(0):
        norm = scene.updates.minimise("critic", scene.loss("policy", batch(0)))
    assert norm == 0.0
    testing.assert_nests_equal(
        dict(scene.modules["critic"].state_dict()), dict(before), "Nothing of it was in the loss."
    )


def test_a_group_is_trained_by_its_own_losses_alone():
    scene = Scene()
    before = scene.state()["modules"]["policy"]
    with scene.updates.guarded(0):
        loss = scene.loss("critic", batch(0)) + scene.loss("policy", batch(0))
        scene.updates.minimise("critic", loss)
    testing.assert_nests_equal(
        dict(scene.modules["policy"].state_dict()), dict(before), "Of another group nothing may move."
    )


def test_no_gradient_is_computed_for_what_is_not_trained():
    scene = Scene()
    x = batch(0)
    loss = (scene.modules["policy"](x) * scene.modules["critic"](x)).square().mean()
    with scene.updates.guarded(0):
        scene.updates.minimise("policy", loss)
    assert all(parameter.grad is None for parameter in scene.modules["critic"].parameters())
    assert all(parameter.grad is not None for parameter in scene.modules["policy"].parameters())
