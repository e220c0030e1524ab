"""The target critic gives the critic's values, whatever way it takes."""

import pytest
import torch
from torch import nn

from minerva_acme import networks
from minerva_acme.acceleration import cpu, kernels, parallel, target_critic
from tests.closeness import assert_close_to_norm

BOUNDS = (-torch.ones(2), torch.ones(2))
TORSOS = {"mlp": (networks.LayerNormMLP, (64, 48, 32)), "simba": (networks.SimBa, (32, 32))}
TORSOS["batch_norm"] = (networks.BatchNormMLP, (64, 48, 32))


def make_critic(torso="mlp", head="scalar", seed=0, bias=0.0):
    make_torso, sizes = TORSOS[torso]
    generator = torch.Generator().manual_seed(seed)
    features = make_torso(6, sizes, generator=generator)
    if head == "scalar":
        made = networks.ScalarHead(sizes[-1], generator=generator)
    else:
        made = networks.CategoricalCriticHead(
            sizes[-1], vmin=-2.0, vmax=2.0, num_bins=7, projection="two_hot", generator=generator
        )
    nn.init.normal_(made.weight, std=0.3, generator=generator)
    nn.init.constant_(made.bias, bias)
    critic = networks.Critic(features, made, bounds=BOUNDS)
    for norm in critic.modules():
        if isinstance(norm, nn.BatchNorm1d):  # Far from where they begin.
            norm.running_mean.add_(torch.randn(norm.running_mean.shape, generator=generator))
            norm.running_var.mul_(0.1 + 3.0 * torch.rand(norm.running_var.shape, generator=generator))
    return critic.requires_grad_(False).eval()


def make_ensemble(torso="simba", rule="mean"):
    return networks.Ensemble([make_critic(torso, seed=seed) for seed in (0, 1)], rule=rule).eval()


def discrete():
    torso = networks.LayerNormMLP(4, (8,))
    return networks.Critic(torso, networks.ScalarHead(8, num_actions=3), bounds=None).eval()


def make_pairs(num_rows=50):
    generator = torch.Generator().manual_seed(2)
    return torch.randn(num_rows, 4, generator=generator), 2.0 * torch.randn(num_rows, 2, generator=generator)


@pytest.fixture
def pairs():
    return make_pairs()


@pytest.fixture(autouse=True)
def avx512(monkeypatch):
    """As if this CPU had AVX-512."""
    monkeypatch.setattr(cpu, "has_avx512", lambda: True)


@pytest.fixture
def few_rows(monkeypatch):
    monkeypatch.setattr(target_critic, "_MAX_ROWS", 16)


def assert_same(found, expected):
    assert type(found) is type(expected)
    for ours, theirs in zip(*(torch.utils._pytree.tree_leaves(x) for x in (found, expected)), strict=True):
        if torch.is_tensor(ours):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
        else:
            assert ours == theirs


KNOWN = {
    **{torso: lambda torso=torso: make_critic(torso) for torso in TORSOS},
    "bins": lambda: make_critic(head="bins"),
    "the mean of two": make_ensemble,
    "the smaller of two": lambda: make_ensemble(rule="min"),
}


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("name", KNOWN)
def test_predictions_are_the_critics_and_rows_go_in_parts(name, pairs, said):
    critic, sizes = KNOWN[name](), []
    fast = target_critic.TargetCritic(critic)
    assert said() == ["target critic: float32, rows shared between threads"]
    expected = critic(*pairs)
    torso = getattr(critic, "torso", None) or critic.members[1].torso
    torso.register_forward_hook(lambda module, args, output: sizes.append(len(output)))
    assert_same(fast(*pairs), expected)
    assert len(sizes) > 1 and max(sizes) <= 16 and sum(sizes) == 50
    actions = torch.randn(3, 50, 2, generator=torch.Generator().manual_seed(1))
    assert_same(fast(pairs[0], actions), critic(pairs[0], actions))


def test_all_discrete_actions_are_evaluated_at_once(few_rows, pairs):
    critic = discrete().requires_grad_(True)
    prediction = target_critic.TargetCritic(critic)(pairs[0])
    assert_same(prediction, critic(pairs[0]))
    assert prediction.mean().shape == (50, 3) and not prediction.value.requires_grad


@pytest.mark.usefixtures("threads_are_given_back")
def test_values_do_not_hang_on_the_number_of_threads():
    pairs, critic = make_pairs(5000), make_critic()
    fast = target_critic.TargetCritic(critic)
    values = []
    for num_threads in (1, 2, 3):
        torch.set_num_threads(num_threads)
        values.append(fast(*pairs).mean())
    for value in values:
        assert_close_to_norm(value, critic(*pairs).mean())


def test_layers_with_fast_kernels_are_called_too(few_rows, pairs):
    critic = make_critic()
    expected = critic(*pairs)
    assert kernels.use_kernels(critic) == 3
    assert_same(target_critic.TargetCritic(critic)(*pairs), expected)


class Doubled(networks.Critic):
    def forward(self, observation, action):
        return networks.ScalarPrediction(2.0 * super().forward(observation, action).value)


def become_doubled(critic):
    critic.__class__ = Doubled


def add_hook(critic):
    critic.register_forward_hook(lambda module, args, output: output._replace(value=2.0 * output.value))


def set_forward(critic):
    critic.forward = lambda observation, action: networks.ScalarPrediction(observation.sum(dim=-1))


# What is done to a critic with batch norm, and why it is called as a whole then; "" if it is not.
EDITS = {
    "a subclass": (become_doubled, "Doubled has another forward"),
    "a hook": (add_hook, "it has hooks"),
    "a function in place of forward": (set_forward, "it has hooks"),
    "training mode": (lambda critic: critic.train(), "it is in training mode"),
    "a layer in training mode": (lambda critic: critic.torso[2].train(), "it is in training mode"),
    "a hook on a layer": (
        lambda critic: critic.torso[3].register_forward_hook(lambda module, args, output: output + 1.0),
        "",
    ),
    "another layer": (lambda critic: critic.torso.__setitem__(3, nn.Identity().eval()), ""),
    "other weights": (lambda critic: setattr(critic.head, "weight", nn.Parameter(torch.ones(1, 32))), ""),
    "an epsilon": (lambda critic: setattr(critic.torso[2], "eps", 0.5), ""),
    "other bounds": (lambda critic: setattr(critic, "low", torch.full((2,), -0.1)), ""),
}


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("name", EDITS)
def test_an_edited_critic_gives_what_it_gives_from_the_next_call_on(name, later, pairs, said):
    edit, reason = EDITS[name]
    critic = make_critic("batch_norm")
    before = critic(*pairs).value
    if not later:
        edit(critic)
    fast = target_critic.TargetCritic(critic)
    if later:
        fast(*pairs)
        edit(critic)
    else:
        way = f"as a whole: {reason}" if reason else "rows shared between threads"
        assert said() == [f"target critic: float32, {way}"]
    found = fast(*pairs)
    # In training mode, each call moves the statistics, but normalises by the batch's.
    torch.testing.assert_close(found, critic(*pairs), rtol=1e-5, atol=1e-5)
    assert (found.value - before).norm() > 0.01 * before.norm()


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("kind", [networks.Critic, networks.LayerNormMLP])
def test_an_edited_class_is_what_values(kind, later, pairs, monkeypatch):
    def edit():
        forward = nn.Sequential.forward if kind is networks.LayerNormMLP else kind.forward
        monkeypatch.setattr(
            kind,
            "forward",
            lambda self, *args: torch.utils._pytree.tree_map(lambda x: 2.0 * x, forward(self, *args)),
        )

    critic = make_critic()
    before = critic(*pairs).value
    if not later:
        edit()
    fast = target_critic.TargetCritic(critic)
    if later:
        fast(*pairs)
        edit()
    assert_same(fast(*pairs), critic(*pairs))
    assert (fast(*pairs).value - before).norm() > 0.1 * before.norm()


def test_another_module_is_called_as_it_is(pairs, said):
    critic = nn.Bilinear(4, 2, 1)
    fast = target_critic.TargetCritic(critic)
    assert said() == ["target critic: float32, as a whole: Bilinear is not a networks.Critic"]
    assert torch.equal(fast(*pairs), critic(*pairs))


@pytest.mark.parametrize("accelerated", [False, True])
def test_without_acceleration_or_avx512_the_critic_itself_is_called(
    accelerated, few_rows, pairs, said, monkeypatch
):
    critic = make_critic()
    monkeypatch.setattr(target_critic.parallel, "map_rows", lambda *_, **__: pytest.fail("in parts"))
    monkeypatch.setattr(cpu, "has_avx512", lambda: not accelerated)
    fast = target_critic.TargetCritic(critic, accelerated=accelerated)
    assert torch.equal(fast(*pairs).value, critic(*pairs).value)
    reason = "parts are faster only on CPUs with AVX-512" if accelerated else "acceleration is off"
    assert said() == [f"target critic: float32, as a whole: {reason}"]


@pytest.mark.parametrize("torso", TORSOS)
def test_bfloat16_errs_by_little_of_the_spread_whatever_the_offset(torso):
    if not cpu.multiplies_bfloat16():
        pytest.skip("this CPU has no instructions for bfloat16")
    pairs = make_pairs(2000)
    for bias in (0.0, 100.0):
        critic = make_critic(torso, bias=bias)
        expected = critic(*pairs).value
        found = target_critic.TargetCritic(critic, precision="bfloat16")(*pairs).value
        assert found.dtype == torch.float32
        error = (found - expected).std() / expected.std()
        assert 1e-5 < error < 0.02  # with results in bfloat16 it would be 0.3 at an offset of 100
        assert torch.equal(critic(*pairs).value, expected)  # The setting of torch is as before.


def test_without_instructions_bfloat16_is_float32_and_a_warning_says_so(monkeypatch, caplog, said):
    monkeypatch.setattr(cpu, "multiplies_bfloat16", lambda: False)
    pairs, critic = make_pairs(2000), make_critic()
    rounded = target_critic.TargetCritic(critic, precision="bfloat16")
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [
        "target critic: float32: bfloat16 needs a CPU with instructions for it; emulating them would be "
        "several times slower"
    ]
    assert torch.equal(rounded(*pairs).value, target_critic.TargetCritic(critic)(*pairs).value)


@pytest.mark.parametrize(("more", "threads"), [(0, [None]), (1, [1])])
def test_threads_share_the_rows_where_there_is_much_to_compute(more, threads, monkeypatch):
    critic, seen = make_critic(), []
    size = 6 * sum(parameter.numel() for parameter in critic.torso.parameters())
    monkeypatch.setattr(target_critic, "_LARGE", size + more)
    map_rows = parallel.map_rows
    monkeypatch.setattr(
        parallel, "map_rows", lambda *rows, **how: seen.append(how["num_threads"]) or map_rows(*rows, **how)
    )
    target_critic.TargetCritic(critic)(torch.zeros(2, 3, 4), torch.zeros(2, 3, 2))
    assert seen == threads
