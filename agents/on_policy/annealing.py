"""How the learning rate falls over a run."""

from collections.abc import Sequence

import torch

from minerva_acme.agents.on_policy import config as on_policy_config


def anneal_learning_rate(
    optimizer: torch.optim.Optimizer,
    first_rates: Sequence[float],
    config: on_policy_config.OnPolicyConfig,
    num_steps: int,
    num_updates: int | None,
) -> float:
    """Sets an optimiser's learning rate for its next step: linear, 0 at the end of the run.

    Args:
        optimizer: of policy and value.
        first_rates: the learning rate that each of its groups was made with.
        config: says whether it falls.
        num_steps: learner steps made so far.
        num_updates: learner steps of the whole run; None: nobody knows, and the learning rate stays.

    Returns:
        The learning rate, of its first group.
    """
    left = 1.0
    if config.anneal_learning_rate and num_updates:
        left = max(0.0, 1.0 - num_steps / num_updates)
    for group, first_rate in zip(optimizer.param_groups, first_rates, strict=True):
        group["lr"] = left * first_rate
    return left * first_rates[0]
