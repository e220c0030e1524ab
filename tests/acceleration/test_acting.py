"""Acting by arrays gives the numbers that the module gives."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from minerva_acme import distributions, networks, testing
from minerva_acme.acceleration import acting, array_actor_critic

OBSERVATION_SIZE = 7


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def actor_critic(**settings) -> networks.ActorCritic:
    defaults = {
        "normalizer": networks.RunningNorm(OBSERVATION_SIZE),
        "encoder": networks.IdentityEncoder(OBSERVATION_SIZE),
        "encoder_loss": "both",
        "action_size": 3,
        "layer_sizes": (32, 16),
        "value_layer_sizes": (32, 16),
        "torso": "tanh",
        "shared_torso": False,
        "state_dependent_std": False,
        "initial_stddev": 0.5,
        "policy_gain": 1.0,
        "generator": seeded(),
    }
    return networks.make_actor_critic(**(defaults | settings))


def gaussian_policy(*layer_sizes: int) -> networks.GaussianPolicy:
    return networks.GaussianPolicy(OBSERVATION_SIZE, 3, layer_sizes, generator=seeded())


def with_torso(*layers: nn.Module) -> networks.ActorCritic:
    network = actor_critic(layer_sizes=(16,), value_layer_sizes=(16,))
    network.policy_torso = nn.Sequential(*layers)
    return network


POLICIES = {
    "Gaussian policy": lambda: gaussian_policy(32, 32, 16),
    "SimBa": lambda: networks.GaussianPolicy(
        OBSERVATION_SIZE, 3, (16, 16), generator=seeded(), torso=networks.SimBa
    ),
    "normalised": lambda: networks.EncodedPolicy(
        networks.NormalizedEncoder(
            networks.RunningNorm(OBSERVATION_SIZE), networks.IdentityEncoder(OBSERVATION_SIZE)
        ),
        gaussian_policy(32, 16),
    ),
    "one layer": lambda: gaussian_policy(32),
    "categorical policy": lambda: networks.CategoricalPolicy(
        OBSERVATION_SIZE, 4, (32, 16), generator=seeded()
    ),
    "wide": lambda: gaussian_policy(256, 256, 256),
    "Gaussian, its own log-std": lambda: actor_critic(),
    "Gaussian, log-std of the state": lambda: actor_critic(state_dependent_std=True),
    "categorical": lambda: actor_critic(action_size=None, num_actions=5),
    "two actions": lambda: actor_critic(action_size=None, num_actions=2),
    "layer norm": lambda: actor_critic(torso="layer_norm"),
    "no normaliser": lambda: actor_critic(normalizer=None),
    "shared": lambda: actor_critic(shared_torso=True),
    "torch's own layers": lambda: with_torso(
        nn.Tanh(), nn.Linear(OBSERVATION_SIZE, 16, bias=False), nn.ReLU(), nn.LayerNorm(16), nn.ELU()
    ),
}


@pytest.fixture(params=list(POLICIES))
def network(request):
    network = POLICIES[request.param]().requires_grad_(False)
    # Far from what weights are initially, so that no bias and no scale can be left out.
    generator = seeded(1)
    for name, tensor in network.state_dict().items():
        if name.endswith("count"):
            continue
        noise = torch.randn(tensor.shape, generator=generator)
        size = tensor.shape[1] if tensor.ndim == 2 else 4
        tensor.copy_(noise.exp() if name.endswith("var") else tensor + noise / size**0.5)
    return network


def module_policy(network):
    return network.policy if isinstance(network, networks.ActorCritic) else network


def observations(scale: float, num_rows: int) -> np.ndarray:
    return scale * np.random.default_rng(3).standard_normal((num_rows, OBSERVATION_SIZE), np.float32)


def assert_same_numbers(found, expected, rounding: float = 0.0) -> None:
    for array, tensor in zip(found, expected, strict=True):
        assert array.dtype == np.float32
        bound = 1e-6 * max(1.0, float(tensor.abs().max())) + rounding
        np.testing.assert_allclose(array, tensor.numpy(), rtol=0.0, atol=bound)


def rounding_of(network, rows: np.ndarray) -> float:
    """How far the module itself is from its numbers in double precision."""
    single = module_policy(network)(torch.from_numpy(rows.copy()))
    double = module_policy(copy.deepcopy(network).double())(torch.from_numpy(rows).double())
    return max(float((a - b).abs().max()) for a, b in zip(single, double, strict=True))


@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 30.0, 1e4])
def test_arrays_give_what_the_module_gives(network, scale):
    forward = acting.compile_policy(network)
    rows = observations(scale, 16)
    kept = rows.copy()
    expected = module_policy(network)(torch.from_numpy(rows.copy()))
    rounding = rounding_of(network, rows)
    assert rounding < 1e-3
    assert_same_numbers(forward(rows), expected, rounding)
    for row in range(len(rows)):
        assert_same_numbers(
            forward(rows[row : row + 1]), [part[row : row + 1] for part in expected], rounding
        )
    np.testing.assert_array_equal(rows, kept)


def test_what_is_drawn_has_the_density_that_the_learner_gives_it(network):
    policy = acting.make_acting_policy(network, seeded())
    for rows in observations(1.0, 16), observations(1.0, 1):
        choice = policy.sample(rows)
        distribution = module_policy(network)(torch.from_numpy(rows))
        expected = distribution.log_prob(torch.from_numpy(choice.raw)).numpy()
        assert choice.log_prob.dtype == np.float32
        # What rounding does to a mean weighs the more in a density the smaller the deviation is.
        weight = 1.0
        if isinstance(distribution, distributions.DiagonalGaussian):
            weight = float(((1.0 + distribution.mean.abs()) * torch.exp(-distribution.log_std)).sum(-1).max())
        assert (np.abs(choice.log_prob - expected) <= 1e-6 * (weight + np.abs(expected))).all()
        np.testing.assert_allclose(policy.mode(rows), distribution.mode(), rtol=1e-6, atol=1e-5)
        assert_same_numbers(choice.parameters, distribution)


@pytest.mark.parametrize("torso", ["tanh", "layer_norm"])
@pytest.mark.parametrize("observation_scale", [0.1, 1.0, 10.0])
def test_both_densities_agree_at_the_smallest_deviation(torso, observation_scale):
    # A standard deviation that training has driven to nothing, in as many dimensions as a humanoid has.
    network = actor_critic(torso=torso, action_size=21, layer_sizes=(256, 256), normalizer=None)
    network.requires_grad_(False).policy_head.log_std.fill_(-100.0)
    rows = observations(observation_scale, 2048)
    choice = acting.make_acting_policy(network, seeded()).sample(rows)
    learners = network.policy(torch.from_numpy(rows)).log_prob(torch.from_numpy(choice.raw)).numpy()
    difference = choice.log_prob - learners
    assert np.isfinite(difference).all()
    # Nats, and so a ratio's distance to 1. PPO clips ratios beyond 0.2.
    assert np.sqrt(np.square(difference).mean()) < 2e-3
    assert np.abs(difference).max() < 0.01
    if torso == "tanh":
        arrays = array_actor_critic.ArrayActorCritic(network.requires_grad_()).forward(rows, choice.raw)
        assert np.sqrt(np.square(arrays.log_prob - choice.log_prob).mean()) < 2e-3


def test_the_noise_is_that_of_the_distribution():
    rows = np.repeat(observations(1.0, 1), 20_000, axis=0)
    gaussian = acting.make_acting_policy(gaussian_policy(8), seeded()).sample(rows)
    z = (gaussian.raw - gaussian.parameters.mean) / np.exp(gaussian.parameters.log_std)
    np.testing.assert_allclose(z.mean(axis=0), 0.0, atol=0.03)
    np.testing.assert_allclose(np.cov(z.T), np.eye(3), atol=0.03)

    network = actor_critic(action_size=None, num_actions=4, policy_gain=3.0)
    category = acting.make_acting_policy(network, seeded()).sample(rows)
    expected = network.policy(torch.from_numpy(rows[:1])).logits.softmax(-1)[0].detach()
    found = np.bincount(category.raw, minlength=4) / len(rows)
    assert expected.max() > 2 * expected.min()
    np.testing.assert_allclose(found, expected, atol=0.015)


def test_new_weights_are_acted_on_at_once(network):
    policy = acting.make_acting_policy(network, seeded())
    row = observations(1.0, 1)
    before = policy.sample(row).parameters
    for tensor in network.state_dict().values():
        tensor *= 1.25
    after = policy.sample(row).parameters
    assert not np.allclose(before[0], after[0])
    assert_same_numbers(after, module_policy(network)(torch.from_numpy(row)))


def test_a_choice_stays_as_it_is_while_others_follow(network):
    policy = acting.make_acting_policy(network, seeded())
    rows = observations(1.0, 5)
    first = policy.sample(rows[:1])
    kept = np.array(first.raw), np.array(first.log_prob), np.array(first.parameters[0])
    for row in rows:
        policy.sample(row[None])
    np.testing.assert_array_equal(first.raw, kept[0])
    np.testing.assert_array_equal(first.log_prob, kept[1])
    np.testing.assert_array_equal(first.parameters[0], kept[2])


class Doubling(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2.0 * super().forward(input)


class UserPolicy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = gaussian_policy(8)

    def forward(self, observation: torch.Tensor) -> distributions.DiagonalGaussian:
        return self.inner(observation)


def hooked() -> nn.Module:
    network = gaussian_policy(8)
    network.torso[0].register_forward_hook(lambda module, args, output: output + 1.0)
    return network


def double_precision() -> nn.Module:
    network = gaussian_policy(8)
    network.mean_head.double()
    return network


# Makes each network, and says why it is not known.
UNKNOWN = {
    "a policy of the user's": (UserPolicy, "UserPolicy is not known"),
    "a layer of the user's": (lambda: with_torso(Doubling(OBSERVATION_SIZE, 16)), "Doubling is not known"),
    "an unknown layer": (
        lambda: with_torso(nn.Linear(OBSERVATION_SIZE, 16), nn.Dropout(0.0)),
        "Dropout is not known",
    ),
    "a torso of another kind": (
        lambda: with_torso(nn.Sequential(nn.Linear(OBSERVATION_SIZE, 16), nn.GELU())),
        "GELU is not known",
    ),
    "another ELU": (
        lambda: with_torso(nn.Linear(OBSERVATION_SIZE, 16), nn.ELU(alpha=0.5)),
        "an ELU of another alpha is not known",
    ),
    "a LayerNorm without weights": (
        lambda: with_torso(nn.Linear(OBSERVATION_SIZE, 16), nn.LayerNorm(16, elementwise_affine=False)),
        "a LayerNorm without weights is not known",
    ),
    "hooks": (hooked, "Linear has hooks"),
    "double precision": (double_precision, "a parameter is not float32 on the CPU"),
}


@pytest.mark.parametrize(("make", "reason"), UNKNOWN.values(), ids=UNKNOWN)
def test_what_is_not_known_is_left_to_the_module_and_the_log_says_why(make, reason, said):
    with pytest.raises(acting.UnknownPolicy, match=f"^{reason}$"):
        acting.compile_policy(make())
    assert isinstance(acting.make_acting_policy(make(), seeded()), acting._TorchPolicy)
    assert said() == [f"acting: torch: {reason}"]


@pytest.mark.parametrize("kind", ["a policy of the user's", "a layer of the user's", "hooks"])
def test_a_users_network_acts_by_its_module(kind):
    network = UNKNOWN[kind][0]()
    policy, again = (acting.make_acting_policy(network, seeded()) for _ in range(2))
    assert isinstance(policy, acting._TorchPolicy)
    rows = observations(1.0, 4)
    choice = policy.sample(rows)
    distribution = module_policy(network)(torch.from_numpy(rows))
    np.testing.assert_array_equal(choice.parameters.mean, distribution.mean.detach())
    np.testing.assert_array_equal(
        choice.log_prob, distribution.log_prob(torch.from_numpy(choice.raw)).detach()
    )
    np.testing.assert_array_equal(policy.mode(rows), distribution.mode().detach())
    np.testing.assert_array_equal(choice.raw, again.sample(rows).raw)


def test_arrays_that_do_not_agree_are_not_used(monkeypatch, said):
    monkeypatch.setattr(nn.Tanh, "forward", lambda self, x: x.sin())
    assert isinstance(acting.make_acting_policy(gaussian_policy(8), seeded()), acting._TorchPolicy)
    assert said() == ["acting: torch: arrays do not give what GaussianPolicy gives"]


@pytest.mark.parametrize("make", [lambda: gaussian_policy(8), UserPolicy], ids=["arrays", "module"])
def test_the_noise_can_be_seeded_saved_and_restored(make):
    network, row = make(), observations(1.0, 1)
    policy, again, other = (acting.make_acting_policy(network, seeded(seed)) for seed in (0, 0, 1))
    first = policy.sample(row).raw
    np.testing.assert_array_equal(first, again.sample(row).raw)
    assert (first != other.sample(row).raw).any()
    state = testing.through_a_file(policy.save())
    drawn = [policy.sample(row).raw for _ in range(3)]
    again.sample(row)
    again.restore(state)
    np.testing.assert_array_equal(drawn, [again.sample(row).raw for _ in range(3)])
