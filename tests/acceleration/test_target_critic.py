import pytest
import torch
import torch._inductor.config as inductor_config
from torch import nn

from minerva_acme import networks
from minerva_acme.acceleration import fused, target_critic
from minerva_acme.agents import mpo
from minerva_acme.agents.mpo import learner


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


def test_float32_values_are_the_critics(fuses, pairs):
    critic = make_critic()
    fast = target_critic.TargetCritic(critic, precision="float32", compile=False)
    torch.testing.assert_close(fast(*pairs), critic(*pairs), rtol=1e-5, atol=1e-5)


def test_bfloat16_values_err_by_little_of_their_spread_whatever_the_offset(fuses, pairs):
    for bias in (0.0, 100.0):
        critic = make_critic(bias)
        fast = target_critic.TargetCritic(critic, precision="bfloat16", compile=False)
        expected, actual = critic(*pairs), fast(*pairs)
        assert actual.dtype == torch.float32
        error = (actual - expected).std() / expected.std()
        assert 1e-5 < error < 0.02  # all in bfloat16 it would be 0.3 at an offset of 100
    assert fast(pairs[0].view(5, 10, 4), pairs[1].view(5, 10, 2)).shape == (5, 10)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_weights_are_those_of_the_last_copy(fuses, pairs, precision):
    critic = make_critic()
    fast = target_critic.TargetCritic(critic, precision=precision, compile=False)
    before = fast(*pairs)
    with torch.no_grad():
        for layer in critic.torso:
            if isinstance(layer, nn.Linear):
                layer.weight.mul_(1.5)
    fast.copy_weights()
    assert not torch.equal(fast(*pairs), before)
    torch.testing.assert_close(fast(*pairs), critic(*pairs), rtol=0.05, atol=0.05)


def test_weights_are_copied_to_where_they_were():
    # A CUDA graph goes on reading there.
    fast = target_critic.TargetCritic(make_critic(), precision="bfloat16", compile=False)
    places = [weight.data_ptr() for weight in fast._weights]
    fast.copy_weights()
    assert [weight.data_ptr() for weight in fast._weights] == places


def test_small_parts_are_not_worth_compiling(pairs, monkeypatch):
    monkeypatch.setattr(fused, "pays", lambda dtype: True)
    monkeypatch.setattr(fused, "_make_graph", lambda *args: pytest.fail("compiled"))
    target_critic.TargetCritic(make_critic(), precision="float32", compile=False)(*pairs)


@pytest.mark.usefixtures("threads_are_given_back")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_values_do_not_hang_on_the_number_of_threads(fuses, precision):
    generator = torch.Generator().manual_seed(3)
    pairs = torch.randn(5000, 4, generator=generator), torch.randn(5000, 2, generator=generator)
    critic = make_critic()
    fast = target_critic.TargetCritic(critic, precision=precision, compile=False)
    values = []
    for num_threads in (1, 2, 3):
        torch.set_num_threads(num_threads)
        values.append(fast(*pairs))
    for value in values:
        torch.testing.assert_close(value, values[0], rtol=0.0, atol=1e-6)
        torch.testing.assert_close(value, critic(*pairs), rtol=0.03, atol=0.03)


@pytest.fixture
def compiler(monkeypatch, tmp_path):
    if not target_critic.has_compiler():
        pytest.skip("torch.compile needs a C++ compiler on a CPU, and there is none")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    with inductor_config.patch(compile_threads=1):  # more are processes that stay
        yield
    torch.compiler.reset()


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch's own, while it compiles
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_compiled_values_are_those_of_eager(precision, pairs, compiler):
    critic = make_critic()
    eager, compiled = (
        target_critic.TargetCritic(critic, precision=precision, compile=compile) for compile in (False, True)
    )
    tolerance = {"float32": 1e-6, "bfloat16": 0.02}[precision]
    torch.testing.assert_close(compiled(*pairs), eager(*pairs), rtol=tolerance, atol=tolerance)


def test_what_is_compiled_computes_the_same():
    x = torch.randn(20, 16, generator=torch.Generator().manual_seed(0)) * 3.0
    torch.testing.assert_close(target_critic._elu_(x.clone()), nn.functional.elu(x), rtol=0.0, atol=1e-6)
    torch.testing.assert_close(target_critic._tanh(x.clone()), torch.tanh(x), rtol=0.0, atol=1e-6)


class Doubled(networks.Critic):
    def forward(self, observation, action):
        return 2.0 * super().forward(observation, action)


def hooked():
    critic = make_critic()
    critic.torso.register_forward_hook(lambda *_: None)
    return critic


def other_layers():
    critic = make_critic()
    critic.torso[4] = nn.ReLU()
    return critic


UNKNOWN = {
    "another module": lambda: nn.Bilinear(4, 2, 1),
    "a subclass": lambda: Doubled(4, -torch.ones(2), torch.ones(2), (8,)),
    "hooks": hooked,
    "other layers": other_layers,
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_critics_are_called_as_they_are(name, pairs):
    critic = UNKNOWN[name]()
    evaluate = learner.make_target_critic(critic, mpo.MPOConfig())
    assert not isinstance(evaluate, target_critic.TargetCritic)
    expected = critic(*pairs)
    torch.testing.assert_close(evaluate(*pairs), expected.view(50) if expected.ndim > 1 else expected)
    assert isinstance(learner.make_target_critic(make_critic(), mpo.MPOConfig()), target_critic.TargetCritic)


def test_without_a_compiler_compiling_is_refused_at_once(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ValueError, match=r"`compile` needs a C\+\+ compiler .* or leave `compile` False"):
        target_critic.TargetCritic(make_critic(), precision="float32", compile=True)


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_critics_are_refused(name):
    with pytest.raises(ValueError, match=r"need a critic that is a `networks.Critic`.*got [A-Z]"):
        target_critic.TargetCritic(UNKNOWN[name](), precision="bfloat16", compile=False)


def test_spread_is_measured_within_states_and_against_their_values():
    offsets = torch.tensor([[90.0], [110.0]])
    q = offsets + torch.tensor([[-1.0, 1.0], [-1.0, 1.0]])
    torch.testing.assert_close(learner.spread_within_states(q), torch.tensor(0.01))
    assert learner.spread_within_states(torch.zeros(2, 3)) == 0.0


def test_config_says_which_precision():
    with pytest.raises(ValueError, match="`target_precision` must be one of .*'bfloat16'.*got 'float16'"):
        mpo.MPOConfig(target_precision="float16")
