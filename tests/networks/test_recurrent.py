"""Encoders with a memory: where it starts, what the burn-in does, and that padding does nothing."""

import numpy as np
import pytest
import torch

from minerva_acme import networks, specs, types
from minerva_acme.agents import acting

B, T, SIZE, F, H = 5, 6, 3, 4, 2
KINDS = pytest.mark.parametrize("kind", ["lstm", "gru"])


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def make_encoder(kind, seed=0):
    """An encoder of a nest, with a memory whose biases are not 0."""
    spec = {"a": specs.Array((SIZE,), np.float32), "b": specs.DiscreteArray(F - SIZE)}
    encoder = networks.make_encoder(spec, generator=generator(seed))
    memory = networks.make_memory(kind, encoder.output_size, H, generator=generator(seed))
    with torch.no_grad():
        for parameter in memory.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator(seed + 1))
    return networks.RecurrentEncoder(encoder, memory)


def make_trajectory(encoder, mask, seed=0, stored=True):
    """Any sequences with this mask, [B, T]."""
    draw = generator(seed)
    batch, steps = mask.shape
    observation = {
        "a": torch.randn(batch, steps + 1, SIZE, generator=draw),
        "b": torch.zeros(batch, steps + 1, dtype=torch.int32),
    }
    state = tuple(torch.randn(part.shape, generator=draw) for part in encoder.memory.initial_state(batch))
    rest = torch.randn(batch, steps, generator=draw)
    return types.Trajectory(observation, rest, rest, rest, mask, (), state if stored else ())


def at(observation, b, t):
    return {name: leaf[b : b + 1, t] for name, leaf in observation.items()}


MASKS = {
    "whole": [1, 1, 1, 1, 1, 1],
    "begins late": [0, 0, 1, 1, 1, 1],
    "ends early": [1, 1, 1, 0, 0, 0],
    "both": [0, 1, 1, 1, 1, 0],
    "two episodes": [1, 1, 0, 1, 1, 1],
}


@KINDS
@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("burn_in", [0, 1, 3])
def test_features_are_those_of_an_actor_that_plays_the_steps(kind, stored, burn_in):
    encoder = make_encoder(kind)
    mask = torch.tensor([*MASKS.values()], dtype=torch.float32)
    trajectory = make_trajectory(encoder, mask, stored=stored)
    features = encoder(networks.sequences(trajectory, burn_in))
    assert features.shape == (B, T + 1 - burn_in, H)
    for b in range(B):
        initial = encoder.memory.initial_state(1)
        state = tuple(part[b : b + 1] for part in trajectory.state) if stored else initial
        for t in range(T + 1):
            if 0 < t < T and mask[b, t - 1] == 0:  # after a masked step an episode begins
                state = initial
            expected, state = encoder.remember(at(trajectory.observation, b, t), state)
            follows_a_step = t > 0 and mask[b, t - 1] > 0
            if t >= burn_in and ((t < T and mask[b, t] > 0) or follows_a_step):
                torch.testing.assert_close(features[b, t - burn_in], expected[0])


@KINDS
@pytest.mark.parametrize("burn_in", [0, 3])
def test_whatever_padding_holds_changes_nothing(kind, burn_in):
    encoder = make_encoder(kind)
    mask = torch.tensor([*MASKS.values()], dtype=torch.float32)
    trajectory, other = (make_trajectory(encoder, mask, seed) for seed in (0, 1))
    used = torch.nn.functional.pad(mask, (1, 0)) + torch.nn.functional.pad(mask, (0, 1)) > 0  # [B, T + 1]
    mixed = torch.where(used[..., None], trajectory.observation["a"], 1e3 * other.observation["a"])
    # The state before an episode that begins in the sequence.
    begins = mask[:, :1] == 0
    state = tuple(
        torch.where(begins, two, one) for one, two in zip(trajectory.state, other.state, strict=True)
    )
    changed = trajectory._replace(observation={**trajectory.observation, "a": mixed}, state=state)
    gradients = []
    for data in (trajectory, changed):
        features = encoder(networks.sequences(data, burn_in))
        learned = features[used[:, burn_in:]]
        encoder.zero_grad()
        learned.square().sum().backward()
        gradients.append([learned.detach(), *(p.grad for p in encoder.parameters())])
    for one, two in zip(*gradients, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-7)
    assert not torch.equal(mixed, trajectory.observation["a"])


@KINDS
def test_no_gradient_flows_through_the_burn_in_but_it_warms_up_the_memory(kind):
    encoder = make_encoder(kind)
    trajectory = make_trajectory(encoder, torch.ones(B, T))
    observation = trajectory.observation["a"].requires_grad_()
    features = encoder(networks.sequences(trajectory, 2))
    (gradient,) = torch.autograd.grad(features.sum(), observation)
    assert (gradient[:, :2] == 0).all()
    assert (gradient[:, 2:] != 0).any(dim=-1).all()
    changed = observation.detach().clone()
    changed[:, 0] += 1.0
    warmed = trajectory._replace(observation={**trajectory.observation, "a": changed})
    assert (encoder(networks.sequences(warmed, 2))[:, 0] != features[:, 0]).all()


def test_without_burn_in_and_with_one_the_same_state_is_reached():
    encoder = make_encoder("lstm")
    trajectory = make_trajectory(encoder, torch.ones(B, T))
    whole = encoder(networks.sequences(trajectory))
    torch.testing.assert_close(encoder(networks.sequences(trajectory, 4)), whole[:, 4:])


@pytest.mark.parametrize("burn_in", [-1, T, T + 1])
def test_a_burn_in_of_all_steps_is_refused(burn_in):
    trajectory = make_trajectory(make_encoder("gru"), torch.ones(B, T))
    with pytest.raises(ValueError, match=f"`burn_in` must be >= 0 and < the 6 steps .* got {burn_in}."):
        networks.sequences(trajectory, burn_in)


@KINDS
@pytest.mark.parametrize("make", [networks.EncodedPolicy, networks.EncodedCritic])
def test_a_policy_or_critic_with_such_an_encoder_has_its_memory(kind, make):
    encoder, body = make_encoder(kind), torch.nn.Linear(H, 2)
    module = make(encoder, body)
    assert networks.memory_of(module) is encoder.memory
    assert [part.shape for part in acting.state_spec(module)] == [(H,)] * len(encoder.memory.initial_state(1))
    trajectory = make_trajectory(encoder, torch.ones(B, T))
    features, state = module.remember(at(trajectory.observation, 0, 0), encoder.memory.initial_state(1))
    after = encoder.remember(at(trajectory.observation, 0, 0), encoder.memory.initial_state(1))
    torch.testing.assert_close((features, state), after)
    torch.testing.assert_close(module.without_memory()(features), body(features))
    plain = make(encoder.encoder, body)
    assert networks.memory_of(plain) is None and acting.state_spec(plain) == ()


@pytest.mark.parametrize("make", [networks.EncodedPolicy, networks.EncodedCritic])
def test_what_a_subclass_overrides_holds_behind_the_memory(make):
    class Edited(make):
        def forward(self, observation):
            return 2.0 * super().forward(observation)

    encoder, body = make_encoder("lstm"), torch.nn.Linear(H, 2)
    module = Edited(encoder, body)
    features = torch.ones(1, H)
    torch.testing.assert_close(module.without_memory()(features), 2.0 * body(features))
    assert networks.memory_of(module) is encoder.memory
