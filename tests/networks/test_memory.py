"""Recurrent layers that begin anew with each episode, and an `ActorCritic` that has one."""

import numpy as np
import pytest
import torch
from torch import nn

from minerva_acme import networks, specs

T, E, F, H = 7, 3, 4, 5
KINDS = pytest.mark.parametrize("kind", ["lstm", "gru"])


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def make(kind, seed=0):
    """A memory with biases too, most of which start at zero."""
    memory = networks.make_memory(kind, F, H, generator=generator(seed))
    with torch.no_grad():
        for parameter in memory.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator(seed + 1))
    return memory


def draw(*shape, seed=2):
    return torch.randn(*shape, generator=generator(seed))


def draw_state(memory, num_environments=E, seed=3):
    return tuple(
        draw(*part.shape, seed=seed + i) for i, part in enumerate(memory.initial_state(num_environments))
    )


class Counter(networks.Memory):
    """Remembers how many steps of the episode there were, in a state of several axes."""

    output_size = 1

    def initial_state(self, num_environments):
        return (torch.full((num_environments, 2, 3), 10.0),)

    def unroll(self, features, state):
        (counts,) = state
        steps = counts[:, 0, 0] + torch.arange(1.0, len(features) + 1)[:, None]
        return steps[..., None], (counts + len(features),)


@KINDS
def test_an_episode_without_a_beginning_is_what_torch_computes(kind):
    memory = make(kind)
    plain = {"lstm": nn.LSTM, "gru": nn.GRU}[kind](F, H)
    plain.load_state_dict(memory.rnn.state_dict())
    features, state = draw(T, E, F), draw_state(memory)
    output, after = memory(features, state, torch.zeros(T, E))
    first = tuple(part[None] for part in state) if kind == "lstm" else state[0][None]
    expected, last = plain(features, first)
    torch.testing.assert_close(output, expected)
    last = last if kind == "lstm" else (last,)
    assert len(after) == len(last)
    for found, wanted in zip(after, last, strict=True):
        torch.testing.assert_close(found, wanted[0])


def test_an_lstm_that_is_not_trained_keeps_three_quarters_of_its_cell():
    memory = networks.make_memory("lstm", F, H, generator=generator())
    nothing, (_, cell) = torch.zeros(1, E, F), draw_state(memory)
    _, (_, after) = memory(nothing, (torch.zeros_like(cell), cell), torch.zeros(1, E))
    torch.testing.assert_close(after, torch.sigmoid(torch.tensor(1.0)) * cell)


@KINDS
def test_steps_one_by_one_are_the_steps_together(kind):
    memory = make(kind)
    features, start = draw(T, E, F), (draw(T, E, seed=5) > 0.7).float()
    state = draw_state(memory)
    output, after = memory(features, state, start)
    for t in range(T):
        one, state = memory(features[t : t + 1], state, start[t : t + 1])
        torch.testing.assert_close(one[0], output[t])
    for found, wanted in zip(state, after, strict=True):
        torch.testing.assert_close(found, wanted)


def test_counts_begin_where_episodes_do():
    start = torch.zeros(5, 3)
    start[0, 1] = start[2, 0] = start[2, 1] = start[4, 1] = 1.0
    output, (after,) = Counter()(torch.zeros(5, 3, 1), (torch.full((3, 2, 3), 100.0),), start)
    assert output[..., 0].T.tolist() == [
        [101, 102, 11, 12, 13],
        [11, 12, 11, 12, 11],
        [101, 102, 103, 104, 105],
    ]
    assert after.tolist() == [[[number] * 3] * 2 for number in (13, 11, 105)]


@KINDS
def test_nothing_leaks_from_one_episode_into_the_next(kind):
    memory = make(kind)
    start = torch.zeros(T, E)
    start[4, 1] = 1.0
    features, state = (
        draw(T, E, F).requires_grad_(),
        tuple(part.requires_grad_() for part in draw_state(memory)),
    )
    output, _ = memory(features, state, start)
    gradients = torch.autograd.grad(output[4:, 1].sum(), [features, *state])
    assert all((gradient[:4] == 0).all() for gradient in gradients[:1])
    assert all((gradient == 0).all() for gradient in gradients[1:])
    assert (gradients[0][4:, 1] != 0).all()
    # The others go on.
    gradients = torch.autograd.grad(memory(features, state, start)[0][4:, 0].sum(), [features, *state])
    assert all((gradient[0] != 0).all() for gradient in (gradients[0][:, :1].transpose(0, 1), *gradients[1:]))
    assert all((gradient[1:] == 0).all() for gradient in gradients[1:])


@KINDS
def test_what_is_not_finite_is_forgotten_with_its_episode(kind):
    memory = make(kind)
    state = tuple(torch.full_like(part, torch.nan) for part in memory.initial_state(E))
    start = torch.zeros(T, E)
    start[0, 1] = 1.0
    output, _ = memory(draw(T, E, F), state, start)
    assert output.isfinite().flatten(2).all(dim=(0, 2)).tolist() == [False, True, False]


@KINDS
def test_the_weights_of_each_gate_start_orthogonal_and_come_from_the_generator(kind):
    before = torch.get_rng_state()
    memory = networks.make_memory(kind, F, H, generator=generator())
    assert torch.equal(torch.get_rng_state(), before)
    named = dict(memory.named_parameters())
    for gate in named["rnn.weight_hh_l0"].split(H):
        torch.testing.assert_close(gate @ gate.T, torch.eye(H))
    for gate in named["rnn.weight_ih_l0"].split(H):
        torch.testing.assert_close(gate.T @ gate, torch.eye(F))
    biases = {int(value) for part in ("ih", "hh") for value in named[f"rnn.bias_{part}_l0"]}
    assert biases == ({0, 1} if kind == "lstm" else {0})
    for seed, is_same in ((0, True), (1, False)):
        other = networks.make_memory(kind, F, H, generator=generator(seed)).state_dict()
        assert torch.equal(other["rnn.weight_hh_l0"], named["rnn.weight_hh_l0"]) == is_same


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rnn", 2, 3), "`kind` must be one of lstm, gru, got rnn."),
        (("gru", 0, 3), "`input_size` must be >= 1, got 0."),
        (("lstm", 2, 0), "`size` must be >= 1, got 0."),
    ],
)
def test_a_memory_that_makes_no_sense_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        networks.make_memory(*arguments, generator=None)


# An actor-critic with a memory.


def make_network(kind="lstm", *, encoder_loss="both", shared_torso=False):
    spec = specs.Array((F,), np.float32)
    normalizer = networks.make_normalizer(spec)
    normalizer.update(3.0 + draw(20, F))
    return networks.make_actor_critic(
        normalizer=normalizer,
        encoder=networks.make_encoder(spec, generator=None),
        encoder_loss=encoder_loss,
        memory=make(kind),
        num_actions=3,
        layer_sizes=(6,),
        value_layer_sizes=(6,),
        torso="tanh",
        shared_torso=shared_torso,
        state_dependent_std=False,
        initial_stddev=1.0,
        policy_gain=1.0,
        generator=generator(),
    )


def make_past(network, burn_in=0):
    start = torch.zeros(T, E)
    start[3, 1] = start[5, 2] = 1.0
    return networks.Past(draw_state(network.memory), start, burn_in)


@KINDS
def test_rows_time_first_are_the_steps_of_the_environments(kind):
    network = make_network(kind)
    observation, past = draw(T, E, F), make_past(network)
    (logits,), value = network(observation, past)
    assert (logits.shape, value.shape) == ((T, E, 3), (T, E))
    (flat_logits,), flat_value = network(observation.flatten(0, 1), past)
    torch.testing.assert_close(flat_logits, logits.flatten(0, 1))
    torch.testing.assert_close(flat_value, value.flatten())
    torch.testing.assert_close(network.policy(observation, past).logits, logits)
    torch.testing.assert_close(network.value(observation, past), value)


@KINDS
def test_one_step_and_what_is_behind_the_memory_make_the_policy(kind):
    network = make_network(kind)
    observation, past = draw(T, E, F), make_past(network)
    expected = network.policy(observation, past).logits
    rest, state = network.without_memory(), past.state
    for t in range(T):
        features, state = network.remember(observation[t], state, past.start[t])
        torch.testing.assert_close(rest.policy(features).logits, expected[t])
    going_on, _ = network.remember(observation[0], past.state)
    torch.testing.assert_close(rest.policy(going_on).logits, expected[0])


class Edited(networks.ActorCritic):
    def normalize(self, observation):
        return 3.0 * super().normalize(observation)

    def policy(self, observation, past=()):
        policy = super().policy(observation, past)
        return policy._replace(logits=0.5 * policy.logits)

    def value(self, observation, past=()):
        return super().value(observation, past) - 5.0


@KINDS
def test_what_a_subclass_overrides_holds_behind_the_memory(kind):
    network = make_network(kind)
    network.__class__ = Edited
    observation, past = draw(T, E, F), make_past(network)
    rest, state = network.without_memory(), past.state
    for t in range(T):
        features, state = network.remember(observation[t], state, past.start[t])
        torch.testing.assert_close(rest.policy(features).logits, network.policy(observation, past).logits[t])
        torch.testing.assert_close(rest.value(features), network.value(observation, past)[t])
    assert rest.policy_head is network.policy_head and networks.memory_of(network) is not None


@KINDS
def test_steps_of_the_burn_in_warm_up_and_have_neither_output_nor_gradient(kind):
    network = make_network(kind)
    observation = draw(T, E, F).requires_grad_()
    (whole,), value = network(observation, make_past(network))
    (logits,), late_value = network(observation, make_past(network, burn_in=4))
    torch.testing.assert_close(logits, whole[4:])
    torch.testing.assert_close(late_value, value[4:])
    (gradient,) = torch.autograd.grad(late_value.sum(), observation)
    assert (gradient[:4] == 0).all()
    assert (gradient[4:] != 0).all()


@pytest.mark.parametrize("encoder_loss", ["both", "policy", "value"])
def test_the_loss_that_trains_the_encoder_trains_the_memory(encoder_loss):
    network = make_network(encoder_loss=encoder_loss)
    policy, value = network(draw(T, E, F), make_past(network))
    for name, loss in (("policy", policy.logits.square().sum()), ("value", value.sum())):
        gradients = torch.autograd.grad(
            loss, [*network.memory.parameters()], retain_graph=True, allow_unused=True
        )
        is_trained = [gradient is not None and bool((gradient != 0).any()) for gradient in gradients]
        assert is_trained == [encoder_loss in ("both", name)] * len(gradients)


def test_a_network_with_memory_asks_for_its_past():
    network = make_network()
    for method in (network, network.policy, network.value, network.from_normalized):
        with pytest.raises(
            ValueError, match="`past` must say what the memory holds and where episodes begin"
        ):
            method(draw(T, E, F))
