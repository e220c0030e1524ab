"""A compiled loss trains as the plain one does, or leaves it to that: the loss itself, then learners of it.

Compiled by `aot_eager`, which traces and differentiates as inductor does but writes no C++. Each program
takes a second or more: `make test` compiles one that agrees and one that does not, `make test-compile` all.
"""

import copy
import itertools
from typing import NamedTuple

import pytest
import torch
from torch import nn

from minerva_acme import acceleration, learners, testing
from minerva_acme.acceleration import compiled

PART = "part"


class Output(NamedTuple):
    """What a loss returns: as of learners, some of it no tensor."""

    value: torch.Tensor
    metrics: dict
    priorities: torch.Tensor | None = None


class Net(nn.Module):
    """Two layers, a buffer that each call changes, a parameter that nothing depends on."""

    def __init__(self, seed=0):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.layers = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
            self.unused = nn.Parameter(torch.ones(2))
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x):
        self.total += x.detach().sum()
        return self.layers(x)


def noisy_loss(net, x, generator):
    noise = torch.randn(x.shape, generator=generator)
    y = net(x + noise) * torch.rand((), generator=generator)
    return Output(y.square().mean(), {"mean": y.detach().mean(), "rows": len(x)}, y.detach().abs().amax(1))


def make(loss=noisy_loss, net=None, backend="aot_eager"):
    """A loss to be compiled, and its network."""
    net = net or Net()

    def plain(*inputs):
        output = loss(*inputs)
        learners.differentiate(output.value, [*net.parameters()])
        return output

    accelerated = acceleration.Acceleration("off" if backend is None else "compile", backend=backend)
    return net, accelerated.loss(
        PART, loss=loss, plain=plain, modules=[net], parameters=lambda: [*net.parameters()]
    )


def batch(seed, size=5):
    return torch.randn(size, 3, generator=torch.Generator().manual_seed(seed))


def gradients(net):
    return {name: None if p.grad is None else p.grad.clone() for name, p in net.named_parameters()}


def outcome(net, loss, x, generator):
    """What computing a loss gives and leaves behind."""
    output = loss(net, x.clone(), generator)
    return {
        "output": [output.value.detach(), output.metrics, output.priorities],
        "gradients": gradients(net),
        "buffers": dict(copy.deepcopy(net).named_buffers()),
        "draws": generator.get_state(),
        "default draws": torch.get_rng_state(),
    }


def assert_same(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def both_ways(loss, edit=lambda net, step: None, num_steps=3, net=Net, size=lambda step: 5):
    """Steps of descent by a loss to be compiled, each compared with that of its plain twin."""
    ways = [make(loss, net()), make(loss, net(), backend=None)]
    generators = [torch.Generator().manual_seed(7) for _ in ways]
    for step in range(num_steps):
        outcomes = []
        for (network, compute), generator in zip(ways, generators, strict=True):
            edit(network, step)
            outcomes.append(outcome(network, compute, batch(step, size(step)), generator))
            with torch.no_grad():
                for parameter in network.parameters():
                    if parameter.grad is not None:
                        parameter -= 0.1 * parameter.grad
        assert_same(*outcomes)
    return ways[0][1]


def test_a_compiled_loss_gives_and_leaves_behind_what_the_plain_one_does(said):
    """The first batch counts as compiled, and later ones are not computed twice."""
    calls = []

    def loss(net, x, generator):
        if not torch.compiler.is_compiling():
            calls.append("plain")
        return noisy_loss(net, x, generator)

    compute = both_ways(loss)
    assert said() == [f"{PART}: compiled by torch's aot_eager"]
    assert compute.save() == "compiled"
    assert len(calls) == 1 + 3  # of the compiled one and of the plain one


@pytest.mark.compile
def test_a_parameter_without_a_gradient_has_none():
    net, compute = make()
    for seed in range(2):
        compute(net, batch(seed), torch.Generator())
        assert net.unused.grad is None


@pytest.mark.compile
def test_gradients_lie_in_memory_of_their_own_as_their_parameters_do():
    class Vectors(nn.Module):
        def __init__(self):
            super().__init__()
            self.own = nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))
            self.of_data = nn.Parameter(torch.ones(5, 3))
            self.left, self.right = (nn.Parameter(torch.ones(5, 3)) for _ in range(2))
            self.transposed = nn.Parameter(torch.ones(3, 5).T)

    def loss(net, x):
        total = 0.5 * net.own.square().sum() + (net.of_data * x).sum()
        return Output(total + (net.left + net.right).exp().sum() + (net.transposed * x.exp()).sum(), {})

    net, compute = make(loss, Vectors())
    x = batch(0)
    for _ in range(2):
        compute(net, x)
        parameters = dict(net.named_parameters())
        places = {parameter.grad.data_ptr() for parameter in parameters.values()}
        assert len(places - {x.data_ptr(), *(p.data_ptr() for p in parameters.values())}) == len(parameters)
        assert all(p.grad.stride() == p.stride() for p in parameters.values())
        torch.testing.assert_close(net.own.grad, net.own.detach())
        torch.testing.assert_close(net.of_data.grad, x)


class Heads(nn.Module):
    """A body with two heads, of which the second one changes buffers, too."""

    def __init__(self):
        super().__init__()
        self.body, self.first = seeded_linear(3, 4), seeded_linear(4, 1)
        self.second = nn.Sequential(seeded_linear(4, 2), nn.BatchNorm1d(2))


def seeded_linear(size_in, size_out):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(size_out)
        return nn.Linear(size_in, size_out)


class TwoLosses:
    """The loss of one head, or of both, as one of a researcher's own may switch on after a while."""

    uses_both = False

    def __call__(self, net, x, generator):
        features = net.body(x + 0.1 * torch.randn(x.shape, generator=generator)).tanh()
        loss = (net.first(features) - 1.0).square().mean()
        if self.uses_both:
            loss = loss + (net.second(features) - 0.5).square().mean()
        return Output(loss, {})


@pytest.mark.compile
@pytest.mark.parametrize("has_generator", [True, False])
def test_a_part_of_a_loss_that_is_switched_on_and_off_during_training_is_what_trains(has_generator, said):
    outcomes = []
    for backend in ("aot_eager", None):
        torch.manual_seed(3)
        generator = torch.Generator().manual_seed(7)
        loss = TwoLosses()
        net, compute = make(loss, Heads(), backend)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
        steps = []
        for step in range(8):
            loss.uses_both = step in (2, 3, 6)
            output = compute(net, batch(step), generator if has_generator else None)
            steps.append([output.value.detach(), gradients(net)])
            optimizer.step()
        outcomes.append([steps, net.state_dict(), generator.get_state(), torch.get_rng_state()])
    assert_same(*outcomes)
    assert said() == [f"{PART}: compiled by torch's aot_eager"]


def freeze(net, step):
    """Frozen at first, then trained, then frozen in another place."""
    net.layers[0].requires_grad_(step > 0)
    net.layers[2].requires_grad_(step < 2)


@pytest.mark.compile
def test_parameters_may_be_frozen_before_and_during_training():
    assert both_ways(noisy_loss, freeze, num_steps=4).save() == "compiled"


def test_where_all_is_frozen_nothing_is_compiled(said):
    both_ways(noisy_loss, lambda net, step: net.requires_grad_(False), num_steps=2)
    assert said() == [f"{PART}: plain torch: all parameters that it trains are frozen"]


def later(edit):
    return lambda net, step: edit(net) if step == 1 else None


def halved(x):
    return 0.5 * torch.relu(x)


class TwiceLinear(nn.Linear):
    def forward(self, input):
        return 2.0 * super().forward(input)


EDITS = {
    "another layer": lambda net: setattr(net.layers, "1", nn.ELU()),
    "a subclass": lambda net: setattr(net.layers[2], "__class__", TwiceLinear),
    "a forward of an instance": lambda net: setattr(net.layers[1], "forward", halved),
    "weights as other data": lambda net: setattr(net.layers[0].weight, "data", 2 * net.layers[0].weight.data),
    "a replaced parameter": lambda net: setattr(net.layers[2], "bias", nn.Parameter(torch.ones(2))),
    "tied weights": lambda net: setattr(net.layers[2], "bias", net.unused),
}


@pytest.mark.compile
@pytest.mark.parametrize("name", EDITS)
def test_what_a_researcher_edits_during_training_is_what_trains(name, said):
    assert both_ways(noisy_loss, later(EDITS[name])).save() == "compiled"
    assert said() == [f"{PART}: compiled by torch's aot_eager"]


class Scaled(Net):
    def scale(self, y):
        return y

    def forward(self, x):
        return self.scale(super().forward(x))


class Weighed:
    """A loss whose methods a researcher may replace in the class."""

    def weight(self, y):
        return y.square()

    def __call__(self, net, x, generator):
        return Output(self.weight(net(x)).mean(), {})


@pytest.mark.compile
@pytest.mark.parametrize(("owner", "name"), [(Scaled, "scale"), (Weighed, "weight")])
def test_a_method_that_is_replaced_in_its_class_during_training_is_what_trains(
    owner, name, monkeypatch, said
):
    def edit(net, step):
        if step in (2, 4):
            monkeypatch.setattr(owner, name, lambda self, y: (step - 1.0) * y.exp())

    assert both_ways(Weighed(), edit, num_steps=6, net=Scaled).save() == "compiled"
    assert said() == [f"{PART}: compiled by torch's aot_eager"]


def doubled(parameter):
    parameter.grad.mul_(2.0)


HOOKS = {
    "of a layer": lambda net: net.layers[1].register_forward_hook(lambda *args: 2.0 * args[-1]),
    "of a parameter": lambda net: net.layers[0].weight.register_hook(lambda gradient: 2.0 * gradient),
    "behind a gradient": lambda net: net.layers[0].weight.register_post_accumulate_grad_hook(doubled),
}


@pytest.mark.compile
@pytest.mark.parametrize("name", HOOKS)
def test_hooks_fire_for_they_are_left_to_plain_torch(name, said):
    both_ways(noisy_loss, later(HOOKS[name]))
    assert said() == [f"{PART}: compiled by torch's aot_eager", f"{PART}: plain torch: it has hooks"]


@pytest.mark.compile
def test_batches_of_other_shapes_are_compared_and_many_left_to_plain_torch(said, monkeypatch):
    monkeypatch.setattr(compiled, "_MAX_KINDS", 2)
    compute = both_ways(noisy_loss, num_steps=4, size=lambda step: 2 + step)
    assert compute.save() == "compiled"
    assert said()[-1] == f"{PART}: plain torch for new batches: batches or networks have changed too often"


def other_if_compiled(net, x, generator):
    output = noisy_loss(net, x, generator)
    return output._replace(value=(1.01 if torch.compiler.is_compiling() else 1.0) * output.value)


def draws_more_if_compiled(net, x, generator):
    output = noisy_loss(net, x, generator)
    if torch.compiler.is_compiling():
        return output._replace(value=output.value + 1e-9 * torch.rand((), generator=generator))
    return output


def counts_twice_if_compiled(net, x, generator):
    if torch.compiler.is_compiling():
        net.total += 1.0
    return noisy_loss(net, x, generator)


def writes_into_its_batch(net, x, generator):
    output = noisy_loss(net, x.mul_(2.0), generator)
    return output._replace(value=(1.01 if torch.compiler.is_compiling() else 1.0) * output.value)


def draws_elsewhere(net, x, generator):
    return noisy_loss(net, nn.functional.dropout(x), generator)


DISAGREEING = {
    "outputs": other_if_compiled,
    "draws": draws_more_if_compiled,
    "buffers": counts_twice_if_compiled,
    "a batch that is written to": writes_into_its_batch,
    "two generators": draws_elsewhere,
}


@pytest.mark.parametrize(
    "name",
    [name if name == "outputs" else pytest.param(name, marks=pytest.mark.compile) for name in DISAGREEING],
)
def test_a_program_that_gives_something_else_is_left_with_one_warning(name, said):
    torch.manual_seed(3)
    loss, state = DISAGREEING[name], torch.get_rng_state()
    ways = [make(loss), make(loss, backend=None)]
    results = []
    for net, compute in ways:
        torch.set_rng_state(state)
        generator = torch.Generator().manual_seed(7)
        results.append([outcome(net, compute, batch(seed), generator) for seed in range(3)])
    testing.assert_nests_equal(*results, "What was compared left a trace.")
    assert ways[0][1].save() == "plain"
    (line,) = said()
    assert line.startswith(f"{PART}: plain torch from now on, because ")
    assert ("gave other results" in line) == (name != "a batch that is written to")


def test_a_loss_that_cannot_be_compiled_runs_plainly_which_is_said_in_one_line(said, caplog):
    def loss(net, x, generator):
        scale = x.abs().max().item()
        return noisy_loss(net, x / (2.0 if scale > 1e-3 else 1.0), generator)

    assert both_ways(loss).save() == "plain"
    (line,) = said()
    assert line.startswith(f"{PART}: plain torch from now on, because it cannot be compiled: ")
    assert "\n" not in line and caplog.records[-1].levelname == "WARNING"


@pytest.fixture
def without_compiler():
    """A backend as inductor is on a machine without a C++ compiler."""

    def raises(graph, inputs):
        raise RuntimeError("No working C++ compiler found\nin any\nplace")

    name = "without_compiler"
    if name not in torch._dynamo.list_backends(()):
        torch._dynamo.register_backend(raises, name)
    return name


def test_without_a_compiler_everything_runs_plainly(without_compiler, said):
    generators = [torch.Generator().manual_seed(7) for _ in range(2)]
    ways = [make(backend=without_compiler), make(backend=None)]
    for seed in range(2):
        assert_same(*(outcome(*way, batch(seed), g) for way, g in zip(ways, generators, strict=True)))
    assert said() == [
        f"{PART}: plain torch from now on, because it cannot be compiled: RuntimeError: "
        "No working C++ compiler found in any"
    ]


@pytest.mark.compile
def test_a_batch_that_is_not_finite_is_no_disagreement(said):
    net, compute = make()
    generator, twin = (torch.Generator().manual_seed(7) for _ in range(2))
    noisy_loss(Net(), batch(0), twin)
    output = compute(net, batch(0) * torch.inf, generator)
    assert not output.value.isfinite()
    assert torch.equal(generator.get_state(), twin.get_state()) and compute.save() == ""
    net.total.zero_()
    compute(net, batch(1), generator)
    assert said() == [f"{PART}: compiled by torch's aot_eager"]


def test_a_resumed_loss_stays_plain_or_says_that_it_is_no_longer_compiled(without_compiler, said):
    net, compute = make()
    compute.restore("plain")
    compute(net, batch(0), torch.Generator())
    assert compute.save() == "plain"
    assert said() == [f"{PART}: plain torch, as before the run was resumed"]
    net, compute = make(backend=without_compiler)
    compute.restore("compiled")
    compute(net, batch(0), torch.Generator())
    assert said()[-1].endswith(
        "compiled before the run was resumed, so the run continues with other rounding"
    )


@pytest.mark.compile
@pytest.mark.timeout(1200)
def test_by_inductor_a_loss_gives_and_leaves_behind_what_the_plain_one_does(said):
    ways = [make(backend="inductor"), make(backend=None)]
    generators = [torch.Generator().manual_seed(7) for _ in ways]
    for seed in range(3):
        assert_same(*(outcome(*way, batch(seed), g) for way, g in zip(ways, generators, strict=True)))
    assert said() == [f"{PART}: compiled by torch's inductor"]


# Learners.


class Networks(NamedTuple):
    critic: nn.Module
    target: nn.Module


class Sample(NamedTuple):
    data: torch.Tensor


def critic_loss(nets, batch, generator):
    noise = torch.randn(batch.data.shape, generator=generator)
    error = (nets.critic(batch.data + noise) - 0.5 * nets.target(batch.data) - 1.0).squeeze(-1)
    loss = (batch.weights * error.square()).mean()
    return learners.Loss(loss, {"q/mean": error.detach().mean()}, error.detach().abs())


class Weights:
    """Priorities without a table: weights of each batch, and what was written."""

    def __init__(self):
        self.written = []

    def weights(self, info, learner_steps):
        return torch.linspace(0.1, 1.0, 8) * (1 + learner_steps)

    def update(self, info, priorities):
        self.written.append(priorities.tolist())


def make_learner(mode, priorities=None, batches=None, loss=critic_loss):
    from minerva_acme import counting

    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        critic = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    nets = Networks(critic, copy.deepcopy(critic).requires_grad_(False))
    logger = testing.FakeLogger()
    return learners.LossLearner(
        networks=nets,
        losses={"critic": loss},
        groups={"critic": learners.Group(torch.optim.Adam(critic.parameters(), lr=0.1), 0.1)},
        periods={},
        update_targets=lambda nets, n: learners.update_target(nets.target, nets.critic, n, rate=0.1),
        dataset=batches or (Sample(batch(seed, 8)) for seed in itertools.count()),
        priorities=priorities,
        max_skipped_batches=1,
        acceleration=acceleration.Acceleration(mode, backend="aot_eager"),
        counter=counting.Counter(),
        logger=logger,
        generator=generator,
    ), logger.rows


def without_ways(state):
    return {name: value for name, value in state.items() if name != "ways"}


def without_time(rows):
    return [{name: float(x) for name, x in row.items() if name != "walltime"} for row in rows]


@pytest.mark.compile
def test_a_compiled_learner_does_beside_its_losses_what_a_plain_one_does():
    results = []
    for mode in ("compile", "auto"):
        weights = Weights()
        batches = [batch(seed, 8) for seed in range(5)]
        batches[2] = batches[2] * torch.nan
        samples = (replaced(x) for x in batches)
        learner, rows = make_learner(mode, weights, samples)
        learner.run(num_steps=5)
        assert [row["skipped_batches"] for row in rows] == [0, 0, 1, 1, 1]
        state = learner.save()
        assert state.get("ways") == ({"critic": "compiled"} if mode == "compile" else None)
        results.append([weights.written, without_time(rows), without_ways(state)])
    assert_same(*results)


class InfoSample(NamedTuple):
    data: torch.Tensor
    info: object


def replaced(x):
    import numpy as np

    from minerva_acme import replay

    size = len(x)
    info = replay.SampleInfo(
        key=np.arange(size, dtype=np.uint64),
        probability=np.ones(size),
        table_size=np.ones(size),
        priority=np.ones(size),
        times_sampled=np.ones(size, np.int32),
    )
    return InfoSample(x, info)


@pytest.mark.compile
def test_a_resumed_compiled_learner_is_the_uninterrupted_one_bit_for_bit():
    whole, _ = make_learner("compile")
    whole.run(num_steps=2)
    state = testing.through_a_file(whole.save())
    whole.run(num_steps=2)
    second, _ = make_learner("compile", batches=(Sample(batch(seed, 8)) for seed in itertools.count(2)))
    second.restore(state)
    second.run(num_steps=2)
    testing.assert_nests_equal(second.save(), whole.save(), "The resumed learner is another.")


@pytest.mark.compile
def test_the_backend_is_the_environments_where_none_is_given(monkeypatch, said):
    monkeypatch.setenv("MINERVA_COMPILE_BACKEND", "eager")
    net = Net()
    compute = acceleration.Acceleration("compile").loss(
        PART, loss=noisy_loss, plain=make(net=net, backend=None)[1], modules=[net], parameters=net.parameters
    )
    compute(net, batch(0), torch.Generator())
    assert said() == [f"{PART}: compiled by torch's eager"]
