import pytest
import torch
from torch import nn

from minerva_acme import networks
from minerva_acme.agents import mpo
from minerva_acme.agents.mpo import learning, target_critic


def make_critic(bias=0.0):
    critic = networks.Critic(
        4, -torch.ones(2), torch.ones(2), (64, 48, 32), generator=torch.Generator().manual_seed(0)
    )
    critic.requires_grad_(False)
    nn.init.normal_(critic.head.weight, std=0.3, generator=torch.Generator().manual_seed(1))
    nn.init.constant_(critic.head.bias, bias)
    return critic


@pytest.fixture
def pairs():
    generator = torch.Generator().manual_seed(2)
    return torch.randn(50, 4, generator=generator), 2.0 * torch.randn(50, 2, generator=generator)


@pytest.fixture(params=[False, True], ids=["plain linear", "packed"])
def packs(request, monkeypatch):
    if request.param and not target_critic._PACKS:
        pytest.skip("this torch or CPU has no bfloat16 products with packed weights")
    monkeypatch.setattr(target_critic, "_PACKS", request.param)


def test_float32_values_are_the_critics(pairs):
    critic = make_critic()
    fast = target_critic.TargetCritic(critic, precision="float32", compile=False)
    torch.testing.assert_close(fast(*pairs), critic(*pairs), rtol=1e-5, atol=1e-5)


def test_bfloat16_values_err_by_little_of_their_spread_whatever_the_offset(packs, pairs):
    for bias in (0.0, 100.0):
        critic = make_critic(bias)
        fast = target_critic.TargetCritic(critic, precision="bfloat16", compile=False)
        expected, actual = critic(*pairs), fast(*pairs)
        assert actual.dtype == torch.float32
        error = (actual - expected).std() / expected.std()
        assert 1e-5 < error < 0.02  # all in bfloat16 it would be 0.3 at an offset of 100
    assert fast(pairs[0].view(5, 10, 4), pairs[1].view(5, 10, 2)).shape == (5, 10)


def test_weights_are_those_of_the_last_copy(packs, pairs):
    critic = make_critic()
    fast = target_critic.TargetCritic(critic, precision="bfloat16", compile=False)
    before = fast(*pairs)
    with torch.no_grad():
        for layer in critic.torso:
            if isinstance(layer, nn.Linear):
                layer.weight.mul_(1.5)
    fast.copy_weights()
    assert not torch.equal(fast(*pairs), before)
    torch.testing.assert_close(fast(*pairs), critic(*pairs), rtol=0.05, atol=0.05)


def test_what_is_compiled_computes_the_same(pairs):
    x = torch.randn(20, 16, generator=torch.Generator().manual_seed(0)) * 3.0
    torch.testing.assert_close(target_critic._elu(x), nn.functional.elu(x), rtol=0.0, atol=1e-6)
    norm = nn.LayerNorm(16)
    actual = target_critic._norm_and_tanh(x, norm.weight, norm.bias, norm.eps, torch.float32)
    torch.testing.assert_close(actual, torch.tanh(norm(x)), rtol=0.0, atol=1e-6)


def test_unknown_critics_are_refused():
    with pytest.raises(ValueError, match=r"need a critic that is a `networks.Critic`.*got Linear"):
        target_critic.TargetCritic(nn.Linear(1, 1), precision="bfloat16", compile=False)


def test_spread_is_measured_within_states_and_against_their_values():
    offsets = torch.tensor([[90.0], [110.0]])
    q = offsets + torch.tensor([[-1.0, 1.0], [-1.0, 1.0]])
    torch.testing.assert_close(learning.spread_within_states(q), torch.tensor(0.01))
    assert learning.spread_within_states(torch.zeros(2, 3)) == 0.0


def test_config_says_which_precision():
    with pytest.raises(ValueError, match="`target_precision` must be one of .*'bfloat16'.*got 'float16'"):
        mpo.MPOConfig(target_precision="float16")
