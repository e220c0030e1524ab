"""The target critic gives the critic's values, by whatever way."""

import copy

import pytest
import torch
from torch import nn

from minerva_acme import learners, networks
from minerva_acme.acceleration import cpu, fused, kernels, target_critic
from tests.closeness import assert_close_to_norm

BOUNDS = (-torch.ones(2), torch.ones(2))
TORSOS = {"mlp": (networks.LayerNormMLP, (64, 48, 32)), "simba": (networks.SimBa, (32, 32))}
TORSOS["batch_norm"] = (networks.BatchNormMLP, (64, 48, 32))


def make_critic(bias=0.0, torso="mlp"):
    make_torso, sizes = TORSOS[torso]
    generator = torch.Generator().manual_seed(0)
    torso = make_torso(6, sizes, generator=generator)
    critic = networks.Critic(torso, networks.ScalarHead(sizes[-1], generator=generator), bounds=BOUNDS)
    critic.requires_grad_(False).eval()
    disturb_statistics(critic, seed=4)
    nn.init.normal_(critic.head.weight, std=0.3, generator=torch.Generator().manual_seed(1))
    nn.init.constant_(critic.head.bias, bias)
    return critic


def disturb_statistics(critic, seed):
    """Moves the running statistics of batch norm, and what follows them, far from where they begin."""
    generator = torch.Generator().manual_seed(seed)
    for norm in critic.modules():
        if isinstance(norm, nn.BatchNorm1d):
            for tensor in (norm.running_mean, norm.weight.data, norm.bias.data):
                tensor.add_(torch.randn(tensor.shape, generator=generator), alpha=0.5)
            norm.running_var.mul_(0.1 + 3.0 * torch.rand(norm.running_var.shape, generator=generator))


@pytest.fixture
def pairs():
    generator = torch.Generator().manual_seed(2)
    return torch.randn(50, 4, generator=generator), 2.0 * torch.randn(50, 2, generator=generator)


@pytest.fixture(autouse=True)
def multiplies_bfloat16(monkeypatch):
    """As if the CPU had instructions for bfloat16: torch emulates them where it has none."""
    monkeypatch.setattr(cpu, "multiplies_bfloat16", lambda: True)


@pytest.fixture(params=[False, True], ids=["as it is", "fused"])
def fuses(request, monkeypatch):
    if request.param and not fused.works(torch.bfloat16):
        pytest.skip("this torch or CPU fuses nothing in bfloat16")
    monkeypatch.setattr(fused, "pays", lambda dtype: request.param)
    monkeypatch.setattr(target_critic, "_MIN_FUSED_SIZE", 1)
    graphs = []
    make_graph = fused._make_graph
    monkeypatch.setattr(fused, "_make_graph", lambda *args: graphs.append(make_graph(*args)) or graphs[-1])
    yield
    assert bool(graphs) == request.param and None not in graphs


@pytest.mark.parametrize("torso", TORSOS)
def test_float32_values_are_the_critics(fuses, pairs, torso):
    critic = make_critic(torso=torso)
    fast = target_critic.TargetCritic(critic, precision="float32")
    torch.testing.assert_close(fast(*pairs), critic(*pairs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("torso", TORSOS)
def test_bfloat16_values_err_by_little_of_their_spread_whatever_the_offset(fuses, pairs, torso):
    for bias in (0.0, 100.0):
        critic = make_critic(bias, torso)
        fast = target_critic.TargetCritic(critic, precision="bfloat16")
        expected, actual = critic(*pairs).mean(), fast(*pairs).mean()
        assert actual.dtype == torch.float32
        error = (actual - expected).std() / expected.std()
        assert 1e-5 < error < 0.02  # all in bfloat16 it would be 0.3 at an offset of 100
    assert fast(pairs[0].view(5, 10, 4), pairs[1].view(5, 10, 2)).mean().shape == (5, 10)


@pytest.mark.parametrize("torso", TORSOS)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_weights_are_those_of_the_last_copy(fuses, pairs, precision, torso):
    critic = make_critic(torso=torso)
    fast = target_critic.TargetCritic(critic, precision=precision)
    before = fast(*pairs)
    with torch.no_grad():
        for layer in critic.torso.modules():
            if isinstance(layer, nn.Linear):
                layer.weight.mul_(1.5)
    fast.refresh()
    assert not torch.equal(fast(*pairs).value, before.value)
    torch.testing.assert_close(fast(*pairs), critic(*pairs), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("torso", TORSOS)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_weights_that_moved_a_part_of_the_way_are_those_that_values_come_from(fuses, pairs, precision, torso):
    critic, online = make_critic(torso=torso), make_critic(bias=2.0, torso=torso)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in online.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.3)
    disturb_statistics(online, seed=5)
    fast = target_critic.TargetCritic(critic, precision=precision)
    fast(*pairs)  # What might be kept from here on would be another critic's.
    for num_steps in (1, 2, 3):
        before = critic(*pairs).mean()
        learners.update_target(critic, online, num_steps, rate=0.2)
        fast.refresh()
        expected, found = critic(*pairs).mean(), fast(*pairs).mean()
        moved = (expected - before).norm()
        assert (found - expected).norm() < (1e-4 if precision == "float32" else 0.1) * moved
        assert moved > 0.03 * expected.norm()


def make_critic_with_head(seed, torso, scale=None):
    make_torso, sizes = TORSOS[torso]
    generator = torch.Generator().manual_seed(seed)
    features = make_torso(6, sizes, generator=generator)
    head = networks.CategoricalCriticHead(
        sizes[-1], vmin=-2.0, vmax=2.0, num_bins=7, projection="two_hot", scale=scale, generator=generator
    )
    nn.init.normal_(head.weight, std=0.3, generator=generator)
    critic = networks.Critic(features, head, bounds=BOUNDS).requires_grad_(False).eval()
    disturb_statistics(critic, seed)
    return critic


@pytest.mark.parametrize("torso", TORSOS)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_predictions_are_those_of_the_head(fuses, pairs, precision, torso):
    critic = make_critic_with_head(0, torso)
    fast = target_critic.TargetCritic(critic, precision=precision)
    expected, actual = critic(*pairs), fast(*pairs)
    assert type(actual) is type(expected)
    assert actual.logits.dtype == torch.float32
    error = (actual.logits - expected.logits).std() / expected.logits.std()
    assert error < 1e-5 if precision == "float32" else 1e-5 < error < 0.02
    states, actions = pairs[0][:10], torch.randn(3, 10, 2)
    assert fast(states, actions).logits.shape == (3, 10, 7)


@pytest.mark.parametrize("torso", ["simba", "batch_norm"])
@pytest.mark.parametrize("rule", ["mean", "min"])
def test_each_critic_of_an_ensemble_is_evaluated_and_they_speak_as_one(fuses, pairs, rule, torso):
    members = [make_critic_with_head(seed, torso) for seed in (0, 1)]
    ensemble = networks.Ensemble(members, rule=rule)
    fast = target_critic.TargetCritic(ensemble)
    expected, actual = ensemble(*pairs), fast(*pairs)
    torch.testing.assert_close(actual.mean(), expected.mean(), rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(actual.members, expected.members, strict=True):
        torch.testing.assert_close(ours.logits, theirs.logits, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(expected.members[0].logits, expected.members[1].logits)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_heads_that_share_a_scale_of_returns_are_called_as_they_are(fuses, pairs, precision, said):
    scale = networks.ReturnScale(2.0)
    ensemble = networks.Ensemble(
        [make_critic_with_head(seed, "simba", scale) for seed in (0, 1)], rule="mean"
    ).requires_grad_(False)
    fast = target_critic.TargetCritic(ensemble, precision=precision)
    for seed in range(3):  # The learner moves the scale at every step.
        scale.update(torch.randn(64, 1, generator=torch.Generator().manual_seed(seed)) * 5.0**seed)
        expected, actual = ensemble(*pairs).mean(), fast(*pairs).mean()
        error = (actual - expected).norm() / expected.norm()
        assert error < 1e-5 if precision == "float32" else 1e-5 < error < 0.02
    assert [line.split(",")[0] for line in said()] == [f"target critic: {precision}"]


def share_weights(first, second):
    second.torso[0].weight = first.torso[0].weight


def share_a_layer(first, second):
    second.torso[0] = first.torso[0]


def share_the_head(first, second):
    second.head = first.head


@pytest.mark.parametrize("share", [share_weights, share_a_layer, share_the_head])
def test_layers_that_are_read_and_share_weights_are_left_to_the_critic(pairs, share, said):
    ensemble = networks.Ensemble([make_critic(bias) for bias in (0.0, 1.0)], rule="mean")
    share(*ensemble.members)
    assert torch.equal(target_critic.TargetCritic(ensemble)(*pairs).mean(), ensemble(*pairs).mean())
    assert said() == ["target critic: plain torch, float32: layers share weights"]


def test_small_parts_are_not_worth_compiling(pairs, monkeypatch):
    monkeypatch.setattr(fused, "pays", lambda dtype: True)
    monkeypatch.setattr(fused, "_make_graph", lambda *args: pytest.fail("compiled"))
    target_critic.TargetCritic(make_critic(), precision="float32")(*pairs)


@pytest.mark.usefixtures("threads_are_given_back")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_values_do_not_hang_on_the_number_of_threads(fuses, precision):
    generator = torch.Generator().manual_seed(3)
    pairs = torch.randn(5000, 4, generator=generator), torch.randn(5000, 2, generator=generator)
    critic = make_critic()
    fast = target_critic.TargetCritic(critic, precision=precision)
    values = []
    for num_threads in (1, 2, 3):
        torch.set_num_threads(num_threads)
        values.append(fast(*pairs).mean())
    for value in values:
        assert_close_to_norm(value, values[0])
        torch.testing.assert_close(value, critic(*pairs).mean(), rtol=0.03, atol=0.03)


def test_any_number_of_rows_makes_few_shapes_that_are_compiled(monkeypatch):
    """With more than fit, which ones are compiled would differ after a resume, and so would rounding."""
    if not fused.works(torch.float32):
        pytest.skip("this torch or CPU fuses nothing in float32")
    monkeypatch.setattr(fused, "pays", lambda dtype: True)
    monkeypatch.setattr(target_critic, "_MIN_FUSED_SIZE", 1)
    shapes, make_graph = [], fused._make_graph

    def make(function, tensors):
        shapes.append(tensors[0].shape)
        return make_graph(function, tensors)

    monkeypatch.setattr(fused, "_make_graph", make)
    critic, generator = make_critic(), torch.Generator().manual_seed(5)
    fast = target_critic.TargetCritic(critic)
    for num_rows in (*range(1, 1000, 50), 256, 512):
        pairs = torch.randn(num_rows, 4, generator=generator), torch.randn(num_rows, 2, generator=generator)
        torch.testing.assert_close(fast(*pairs).mean(), critic(*pairs).mean(), rtol=1e-5, atol=1e-5)
    assert shapes and {*shapes} <= {(256 * i, 6) for i in range(1, 5)}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_edit_that_shows_with_other_weights_alone_is_found(fuses, pairs, precision, monkeypatch, said):
    forward = networks.Critic.forward

    def edited(self, observation, action):
        return networks.ScalarPrediction(forward(self, observation, action).value.clamp(-10.0, 10.0))

    monkeypatch.setattr(networks.Critic, "forward", edited)
    critic = make_critic()
    fast = target_critic.TargetCritic(critic, precision=precision)
    assert fast(*pairs).mean().abs().max() < 10.0
    assert "times the weights differ" in said()[-1]
    with torch.no_grad():
        critic.head.weight.mul_(100.0)
    fast.refresh()
    assert fast(*pairs).mean().abs().max() == 10.0


class Doubled(networks.Critic):
    def forward(self, observation, action):
        return networks.ScalarPrediction(2.0 * super().forward(observation, action).value)


def other_torso():
    return networks.Critic(networks.TanhMLP(6, (8,)), networks.ScalarHead(8), bounds=BOUNDS)


def discrete():
    torso = networks.LayerNormMLP(4, (8,))
    return networks.Critic(torso, networks.ScalarHead(8, num_actions=3), bounds=None)


def other_block():
    critic = make_critic(torso="simba")
    critic.torso[1].norm = nn.Identity()
    return critic


def hooked():
    critic = make_critic()
    critic.torso.register_forward_hook(lambda *_: None)
    return critic


def other_layers():
    critic = make_critic()
    critic.torso[4] = nn.ReLU()
    return critic


def hooked_inside():
    critic = make_critic()
    critic.torso[3].register_forward_hook(lambda module, args, output: output + 1.0)
    return critic


def with_another_forward():
    critic = make_critic()
    critic.head.forward = lambda features: networks.ScalarPrediction(features.sum(dim=-1, keepdim=True))
    return critic


def training():
    return make_critic(torso="batch_norm").train()


def without_statistics():
    critic = make_critic(torso="batch_norm")
    critic.torso[2] = nn.BatchNorm1d(64, track_running_stats=False).eval()
    return critic


def with_a_bias():
    critic = make_critic(torso="batch_norm")
    critic.torso[4] = nn.Linear(64, 48)
    return critic


# Makes each critic, and says why it is not known.
UNKNOWN = {
    "another module": (lambda: nn.Bilinear(4, 2, 1), "Bilinear is not a networks.Critic"),
    "a subclass": (
        lambda: Doubled(networks.LayerNormMLP(6, (8,)), networks.ScalarHead(8), bounds=BOUNDS),
        "Doubled is not a networks.Critic",
    ),
    "hooks": (hooked, "it has hooks"),
    "a hook on an inner layer": (hooked_inside, "it has hooks"),
    "a function in place of forward": (with_another_forward, "it has hooks"),
    "another torso": (other_torso, "its torso, TanhMLP, is not supported"),
    "another layer in a block": (other_block, "its layers were changed"),
    "other layers": (other_layers, "its layers were changed"),
    "batch norm in training mode": (training, "its batch norm is in training mode"),
    "batch norm without running statistics": (without_statistics, "its layers were changed"),
    "a bias before batch norm": (with_a_bias, "its layers were changed"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_critics_are_called_as_they_are_and_the_log_says_why(name, pairs, said):
    make, reason = UNKNOWN[name]
    critic = make()
    fast = target_critic.TargetCritic(critic)
    assert said() == [f"target critic: plain torch, float32: {reason}"]
    torch.testing.assert_close(fast(*pairs), critic(*pairs), rtol=0.0, atol=0.0)


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_critics_are_refused_in_bfloat16(name):
    make, reason = UNKNOWN[name]
    with pytest.raises(
        ValueError, match=f"needs a critic of continuous actions.*{reason}. Set .* to float32"
    ):
        target_critic.TargetCritic(make(), precision="bfloat16")


def test_without_acceleration_the_critic_itself_is_called(pairs, said):
    critic, calls = make_critic(), []
    slow = target_critic.TargetCritic(critic, accelerated=False)
    assert said() == ["target critic: plain torch, float32: acceleration is off"]
    expected = critic(*pairs)
    critic.register_forward_hook(lambda *_: calls.append(1))
    assert torch.equal(slow(*pairs).value, expected.value)
    assert calls == [1]


@pytest.mark.parametrize(("pays", "how"), [(True, "fused by oneDNN"), (False, "layer by layer")])
def test_the_log_says_once_which_way_is_taken(monkeypatch, said, pays, how):
    monkeypatch.setattr(fused, "pays", lambda dtype: pays)
    for _ in range(2):
        target_critic.TargetCritic(make_critic())
    target_critic.TargetCritic(make_critic(), precision="bfloat16")
    assert said() == [
        f"target critic: float32, {how}, rows shared between threads",
        f"target critic: bfloat16, {how}, rows shared between threads",
    ]


def test_layers_with_fast_kernels_are_known(pairs, said):
    critic = make_critic()
    expected = critic(*pairs)
    kernels.use_kernels(critic)
    torch.testing.assert_close(target_critic.TargetCritic(critic)(*pairs), expected, rtol=1e-5, atol=1e-5)
    assert "plain torch" not in said()[0]


@pytest.mark.parametrize("how", [False, True], ids=["as it is", "fused"])
def test_without_instructions_bfloat16_is_float32_bit_for_bit_and_a_warning_says_so(
    monkeypatch, pairs, caplog, said, how
):
    monkeypatch.setattr(fused, "pays", lambda dtype: how and fused.works(dtype))
    monkeypatch.setattr(target_critic, "_MIN_FUSED_SIZE", 1)
    critic = make_critic()
    rounded = target_critic.TargetCritic(critic, precision="bfloat16")(*pairs)
    monkeypatch.setattr(cpu, "multiplies_bfloat16", lambda: False)
    caplog.clear()
    fallen_back = [target_critic.TargetCritic(critic, precision="bfloat16") for _ in range(2)]
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [
        "target critic: float32: this CPU has no instructions for bfloat16, and emulating them would be "
        "several times slower"
    ]
    exact = target_critic.TargetCritic(critic)
    for fast in fallen_back:
        fast.refresh()
        assert torch.equal(fast(*pairs).value, exact(*pairs).value)
    assert not torch.equal(rounded.value, exact(*pairs).value)
    assert [line for line in said() if line.startswith("target critic: bfloat16")] == []


def test_several_actions_of_a_state_are_valued_without_copies_of_it_being_given(fuses, pairs):
    critic = make_critic()
    fast = target_critic.TargetCritic(critic)
    observation = pairs[0]
    actions = torch.randn(7, 50, 2, generator=torch.Generator().manual_seed(5))
    expected = torch.stack([critic(observation, action).mean() for action in actions])
    torch.testing.assert_close(fast(observation, actions).mean(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(critic(observation, actions).mean(), expected)


def test_critics_of_other_kinds_give_what_they_give(pairs, said):
    prediction = target_critic.TargetCritic(discrete())(pairs[0])
    assert said() == ["target critic: plain torch, float32: it evaluates all discrete actions at once"]
    assert prediction.mean().shape == (50, 3)
    assert not prediction.mean().requires_grad


# Of a critic with batch norm, after its values have been computed in the faster way.
CHANGES = {
    "training mode": lambda critic: critic.train(),
    "the epsilon": lambda critic: setattr(critic.torso[2], "eps", 0.5),
    "other statistics": lambda critic: setattr(critic.torso[2], "running_mean", torch.linspace(-1, 1, 64)),
    "no statistics": lambda critic: [
        setattr(critic.torso[5], f"running_{name}", None) for name in ("mean", "var")
    ],
    "the numbers of statistics": lambda critic: critic.torso[2].running_var.mul_(3.0),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_batch_norm_is_seen_at_the_next_call(fuses, pairs, name):
    critic = make_critic(torso="batch_norm")
    fast = target_critic.TargetCritic(critic)
    before = fast(*pairs).value
    CHANGES[name](critic)
    same = copy.deepcopy(critic)
    found, expected = fast(*pairs).value, same(*pairs).value
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert (found - before).norm() > 0.01 * before.norm()
    for name, tensor in critic.state_dict().items():  # In training mode, a call moves them once.
        torch.testing.assert_close(tensor, same.state_dict()[name], rtol=0.0, atol=0.0)
