"""Losses of transitions, computed over sequences by networks with a memory.

Shapes: B batch of sequences; b burn-in and T learned transitions.
"""

import torch

from minerva_acme import learners, losses, networks, types

_MAX_PRIORITY_SHARE = 0.9  # of the largest error; Kapturowski et al. 2019, "Recurrent experience replay ..."


def over_sequences(loss: learners.LossFunction, *, burn_in: int, discount: float) -> learners.LossFunction:
    """Returns a loss of sequences, by a loss of single-step transitions whose networks have a memory.

    The transitions of a sequence are a `types.Transition` [B, T]. Its two observations are
    `networks.Sequences`, which the networks' encoders turn into features [B, T, F]: of the states that the
    steps begin with, and of those that they end with. Steps that did not happen have weight 0, see
    `learners.Batch.mean`. A sequence's priority is computed as in R2D2, see `losses.sequence_priorities`.

    Args:
        loss: The loss of a batch of transitions, [B] or [B, T].
        burn_in: The number of first steps of each sequence that only warm up the memory, b.
        discount: Gamma, multiplied with the environment's own discount.
    """

    def of_sequences(nets: object, batch: learners.Batch, generator: torch.Generator | None) -> learners.Loss:
        steps = as_transitions(batch, burn_in=burn_in, discount=discount)
        assert steps.mask is not None
        computed = loss(nets, steps, generator)
        if computed.priorities is None:
            return computed
        priorities = losses.sequence_priorities(computed.priorities, steps.mask, _MAX_PRIORITY_SHARE)
        return computed._replace(priorities=priorities)

    return of_sequences


def as_transitions(batch: learners.Batch, *, burn_in: int, discount: float) -> learners.Batch:
    """Returns a batch of sequences as their transitions; see `over_sequences`."""
    data = batch.data
    steps = networks.sequences(data, burn_in)
    action, reward, given, mask, extras = learners.at(
        (data.action, data.reward, data.discount, data.mask, data.extras), (slice(None), slice(burn_in, None))
    )
    weights = mask * (batch.weights[:, None] if isinstance(batch.weights, torch.Tensor) else batch.weights)
    begins = networks.Sequences(
        learners.at(steps.observation, (slice(None), slice(-1))),
        steps.past._replace(start=steps.past.start[:-1]),
    )
    ends = steps._replace(past=steps.past._replace(burn_in=burn_in + 1))  # no gradient flows through targets
    transitions = types.Transition(begins, action, reward, discount * given, ends, extras)
    return learners.Batch(transitions, weights, mask)
