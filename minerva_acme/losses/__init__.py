"""Targets and losses as pure functions, and the dual variables beside them. They need torch alone."""

from minerva_acme.losses.critic import critic_loss
from minerva_acme.losses.duals import DualVariable, MPODuals
from minerva_acme.losses.mpo import (
    DecoupledKLs,
    EStep,
    PolicyLosses,
    action_penalty_values,
    alpha_loss,
    decoupled_kls,
    decoupled_policy_losses,
    e_step,
    kl_penalty,
)
from minerva_acme.losses.n_step import n_step_targets, one_step_targets
from minerva_acme.losses.retrace import retrace_targets
from minerva_acme.losses.shapes import check_shapes

__all__ = [
    "DecoupledKLs",
    "DualVariable",
    "EStep",
    "MPODuals",
    "PolicyLosses",
    "action_penalty_values",
    "alpha_loss",
    "check_shapes",
    "critic_loss",
    "decoupled_kls",
    "decoupled_policy_losses",
    "e_step",
    "kl_penalty",
    "n_step_targets",
    "one_step_targets",
    "retrace_targets",
]
