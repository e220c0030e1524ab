import copy
import io
import math
from typing import Any

import pytest
import torch
from torch import nn

from minerva_acme import networks

CONTINUOUS: dict[str, Any] = {"action_size": 2}
DISCRETE: dict[str, Any] = {"num_actions": 3}
STATE_DEPENDENT: dict[str, Any] = {"action_size": 2, "state_dependent_std": True}


def make(seed: int = 0, **changes: Any) -> networks.ActorCritic:
    size = changes["encoder"].output_size if "encoder" in changes else changes.pop("observation_size", 5)
    normalizes = changes.pop("normalize_observations", True)
    arguments: dict[str, Any] = {
        "normalizer": networks.RunningNorm(size) if normalizes else None,
        "encoder": networks.IdentityEncoder(size),
        "encoder_loss": "both",
        "layer_sizes": (32, 16),
        "value_layer_sizes": (32, 16),
        "torso": "tanh",
        "shared_torso": False,
        "state_dependent_std": False,
        "initial_stddev": 0.5,
        "policy_gain": 0.01,
        "generator": torch.Generator().manual_seed(seed),
    }
    return networks.make_actor_critic(**(arguments | changes))


def trained(seed: int = 0, **changes: Any) -> networks.ActorCritic:
    """One with statistics, and with parameters that are none of them zero."""
    network, generator = make(seed, **changes), torch.Generator().manual_seed(seed)
    if network.normalizer is not None:
        network.normalizer.update(3.0 * torch.randn(100, 5, generator=generator) + 1.0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return network


VARIANTS = [
    kind | {"torso": torso, "shared_torso": shared, "normalize_observations": shared}
    for kind in (CONTINUOUS, DISCRETE, STATE_DEPENDENT)
    for torso in ("tanh", "layer_norm")
    for shared in (False, True)
]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join(map(str, v.values())))
def test_policy_and_value_alone_are_bit_for_bit_those_of_forward(variant: dict[str, Any]) -> None:
    network = trained(**variant)
    for leading in ((), (1,), (7,), (4, 3)):
        observation = torch.randn(*leading, 5)
        policy, value = network(observation)
        assert value.shape == leading
        size = variant.get("action_size") or variant["num_actions"]
        for ours, theirs in zip(policy, network.policy(observation), strict=True):
            assert ours.shape == (*leading, size)
            assert torch.equal(ours, theirs)
        assert torch.equal(value, network.value(observation))
        again = network.from_normalized(network.normalize(observation))
        assert torch.equal(value, again.value)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join(map(str, v.values())))
def test_row_in_a_batch_is_evaluated_as_the_row_alone(variant: dict[str, Any]) -> None:
    network, observation = trained(**variant), torch.randn(6, 5)
    policy, value = network(observation)
    for i in range(6):
        alone = network(observation[i])
        for ours, theirs in zip(alone.policy, policy, strict=True):
            torch.testing.assert_close(ours, theirs[i])
        torch.testing.assert_close(alone.value, value[i])


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join(map(str, v.values())))
def test_every_parameter_gets_a_gradient(variant: dict[str, Any]) -> None:
    network, observation = trained(**variant), torch.randn(8, 5)
    policy, value = network(observation)
    action = policy.sample(torch.Generator().manual_seed(0)).detach()
    (policy.log_prob(action).sum() + value.square().sum()).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max().item() > 0.0, name


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("encoder_loss", "trained_by"),
    [("both", (True, True)), ("policy", (True, False)), ("value", (False, True))],
)
def test_the_encoder_is_trained_by_the_losses_that_are_named(
    encoder_loss: str, trained_by: tuple[bool, bool], shared: bool
) -> None:
    encoder = networks.ImageEncoder((3, 3), generator=torch.Generator().manual_seed(0))
    settings = CONTINUOUS | {"normalizer": None, "encoder": encoder, "shared_torso": shared}
    network, plain = make(**settings, encoder_loss=encoder_loss), make(**settings)
    observation = torch.randint(0, 256, (6, 3, 3), dtype=torch.uint8)
    policy, value = network(observation)
    assert torch.equal(policy.mean, plain(observation).policy.mean)
    assert torch.equal(value, plain(observation).value)
    parameters = [*encoder.parameters()]
    for output, is_trained in zip((policy.mean.sum(), value.sum()), trained_by, strict=True):
        gradients = torch.autograd.grad(output, parameters, allow_unused=True, retain_graph=True)
        assert all((gradient is not None and bool(gradient.any())) == is_trained for gradient in gradients)


def test_numbers_are_those_derived_by_hand() -> None:
    network = make(observation_size=1, layer_sizes=(1,), value_layer_sizes=(1,), action_size=1)
    assert network.normalizer is not None
    network.normalizer.mean.fill_(1.0)
    network.normalizer.var.fill_(4.0)
    with torch.no_grad():
        for module, weight, bias in (
            (network.policy_torso[0], 2.0, 0.5),
            (network.policy_head.mean_head, 3.0, -1.0),
            (network.value_torso[0], -1.0, 0.0),
            (network.value_head, 4.0, 1.0),
        ):
            module.weight.fill_(weight)
            module.bias.fill_(bias)
    policy, value = network(torch.tensor([[2.0]]))  # normalised: 1/2
    torch.testing.assert_close(policy.mean, torch.tensor([[3.0 * math.tanh(1.5) - 1.0]]))
    torch.testing.assert_close(policy.log_std, torch.tensor([[math.log(0.5)]]))
    torch.testing.assert_close(value, torch.tensor([4.0 * math.tanh(-0.5) + 1.0]))


class Counted(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.calls = 0

    def forward(self, x: torch.Tensor) -> Any:
        self.calls += 1
        return self.module(x)


def counted(shared: bool) -> tuple[networks.ActorCritic, list[Counted]]:
    encoder = Counted(nn.Identity())
    policy_torso, value_torso = Counted(nn.Linear(5, 4)), Counted(nn.Linear(5, 4))
    policy_head = Counted(networks.CategoricalHead(4, 3, gain=1.0))
    value_head = Counted(nn.Linear(4, 1))
    network = networks.ActorCritic(
        normalizer=None,
        encoder=encoder,
        encoder_loss="both",
        policy_torso=policy_torso,
        value_torso=None if shared else value_torso,
        policy_head=policy_head,
        value_head=value_head,
    )
    return network, [encoder, policy_torso, value_torso, policy_head, value_head]


@pytest.mark.parametrize(
    ("method", "shared", "expected"),
    [
        ("forward", False, [1, 1, 1, 1, 1]),
        ("forward", True, [1, 1, 0, 1, 1]),
        ("policy", False, [1, 1, 0, 1, 0]),
        ("policy", True, [1, 1, 0, 1, 0]),
        ("value", False, [1, 0, 1, 0, 1]),
        ("value", True, [1, 1, 0, 0, 1]),
    ],
)
def test_nothing_is_computed_that_is_not_asked_for(method: str, shared: bool, expected: list[int]) -> None:
    network, parts = counted(shared)
    getattr(network, method)(torch.randn(2, 5))
    assert [part.calls for part in parts] == expected


def test_separate_torsos_keep_the_gradients_of_policy_and_value_apart() -> None:
    network = trained(**CONTINUOUS)
    network(torch.randn(8, 5)).value.sum().backward()
    with_gradient = {
        name.partition(".")[0] for name, parameter in network.named_parameters() if parameter.grad is not None
    }
    assert with_gradient == {"value_torso", "value_head"}


def test_shared_torso_has_one_set_of_parameters() -> None:
    names = {name.partition(".")[0] for name, _ in make(shared_torso=True, **CONTINUOUS).named_parameters()}
    assert names == {"policy_torso", "policy_head", "value_head"}


def test_evaluating_never_changes_the_statistics() -> None:
    network = trained(**CONTINUOUS).train()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    for method in (network, network.policy, network.value):
        method(torch.randn(4, 5))
    torch.testing.assert_close(dict(network.state_dict()), before, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join(map(str, v.values())))
def test_state_dict_and_copy_carry_everything(variant: dict[str, Any]) -> None:
    network, loaded, observation = trained(**variant), make(seed=1, **variant), torch.randn(7, 5)
    saved = io.BytesIO()
    torch.save(network.state_dict(), saved)
    saved.seek(0)
    loaded.load_state_dict(torch.load(saved, weights_only=True))
    policy, value = network(observation)
    for other in (loaded, copy.deepcopy(network)):
        again = other(observation)
        assert torch.equal(again.value, value)
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(again.policy, policy, strict=True))
    if network.normalizer is not None:
        assert loaded.state_dict()["normalizer.count"].item() == pytest.approx(100.0, abs=1e-3)


def test_seed_reproduces_the_network_without_the_global_generator() -> None:
    state = torch.get_rng_state()
    for variant in VARIANTS:
        torch.testing.assert_close(make(3, **variant).state_dict(), make(3, **variant).state_dict())
        assert not torch.equal(make(3, **variant).value_head.weight, make(4, **variant).value_head.weight)
    assert torch.equal(torch.get_rng_state(), state)


def test_heads_start_orthogonal_with_their_gains_and_zero_bias() -> None:
    gaussian = make(policy_gain=0.1, **STATE_DEPENDENT)
    categorical = make(policy_gain=0.1, **DISCRETE)
    for head, gain in (
        (gaussian.policy_head.mean_head, 0.1),
        (categorical.policy_head.logits, 0.1),
        (gaussian.value_head, 1.0),
    ):
        gram = head.weight @ head.weight.T
        torch.testing.assert_close(gram, gain**2 * torch.eye(len(gram)), rtol=1e-4, atol=1e-6)
        assert head.bias.abs().max().item() == 0.0


@pytest.mark.parametrize("variant", [CONTINUOUS, STATE_DEPENDENT])
def test_untrained_gaussian_has_its_stddev_and_nearly_no_mean_in_every_state(variant: dict[str, Any]) -> None:
    policy = make(**variant).policy(10.0 * torch.randn(100, 5))
    torch.testing.assert_close(policy.log_std.exp(), torch.full((100, 2), 0.5), rtol=0.05, atol=0.0)
    assert policy.mean.abs().max().item() < 0.1


def test_untrained_categorical_is_nearly_uniform_in_every_state() -> None:
    entropy = make(**DISCRETE).policy(10.0 * torch.randn(100, 5)).entropy()
    torch.testing.assert_close(entropy, torch.full((100,), math.log(3.0)), rtol=1e-3, atol=0.0)


@pytest.mark.parametrize("variant", [CONTINUOUS, STATE_DEPENDENT])
def test_log_std_is_clamped(variant: dict[str, Any]) -> None:
    network = make(**variant)
    head = network.policy_head
    parameter = head.log_std if head.log_std is not None else head.log_std_head.bias
    for value, expected in ((100.0, 2.0), (-100.0, -7.0)):
        nn.init.constant_(parameter, value)
        torch.testing.assert_close(network.policy(torch.randn(3, 5)).log_std, torch.full((3, 2), expected))


def test_log_std_of_its_own_is_the_same_in_every_state() -> None:
    network = trained(**CONTINUOUS)
    log_std = network.policy(torch.randn(4, 3, 5)).log_std
    assert torch.equal(log_std, network.policy_head.log_std.expand(4, 3, 2))
    assert network.policy(torch.randn(4, 3, 5)).entropy().shape == (4, 3)
    dependent = trained(**STATE_DEPENDENT).policy(torch.randn(4, 5)).log_std
    assert not torch.equal(dependent[0], dependent[1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "Exactly one of `num_actions` and `action_size` must be given, got None and None"),
        (CONTINUOUS | DISCRETE, "Exactly one of `num_actions` and `action_size` must be given, got 3 and 2"),
        ({"action_size": 0}, "`action_size` must be >= 1, got 0"),
        ({"num_actions": 0}, "`num_actions` must be >= 1, got 0"),
        (CONTINUOUS | {"torso": "relu"}, "`torso` must be one of layer_norm, tanh, got relu"),
        (
            CONTINUOUS | {"shared_torso": True, "value_layer_sizes": (8,)},
            r"`value_layer_sizes` must equal `layer_sizes` with `shared_torso`, got \(8,\) and \(32, 16\)",
        ),
        (CONTINUOUS | {"layer_sizes": ()}, "`layer_sizes` must hold at least one size, all >= 1, got"),
        (CONTINUOUS | {"value_layer_sizes": ()}, "`layer_sizes` must hold at least one size, all >= 1, got"),
        (CONTINUOUS | {"initial_stddev": 0.0}, r"`initial_stddev` must be in \[0.000912, 7.39\], .* got 0"),
        (CONTINUOUS | {"initial_stddev": math.nan}, r"`initial_stddev` must be in .*, got nan"),
        (STATE_DEPENDENT | {"initial_stddev": 1e-4}, r"`initial_stddev` must be in .*, got 0.0001"),
    ],
)
def test_arguments_that_make_no_network_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**changes)
