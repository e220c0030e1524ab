"""Targets and losses as pure functions, together with the dual variables. They need only torch."""

from minerva_acme.losses.categorical import (
    c51_projection,
    categorical_loss,
    hl_gauss,
    symexp,
    symlog,
    two_hot,
)
from minerva_acme.losses.critic import critic_loss
from minerva_acme.losses.diagnostics import explained_variance, spread_within_states
from minerva_acme.losses.dpg import dpg_loss
from minerva_acme.losses.duals import DualVariable, MPODuals, VMPODuals
from minerva_acme.losses.expectile import expectile_loss
from minerva_acme.losses.importance import importance_weights
from minerva_acme.losses.mixture import mixture_log_prob, mixture_loss
from minerva_acme.losses.mpo import (
    EStep,
    action_penalty_values,
    alpha_loss,
    decoupled_kls,
    decoupled_policy_losses,
    e_step,
    kl_penalty,
    solved_temperature,
)
from minerva_acme.losses.n_step import n_step_targets, one_step_targets
from minerva_acme.losses.policy_gradient import PolicyGradientLosses, policy_gradient_loss
from minerva_acme.losses.ppo import (
    PPOLosses,
    normalize_advantages,
    ppo_loss,
)
from minerva_acme.losses.r2d2 import (
    sequence_loss,
    sequence_priorities,
    signed_hyperbolic,
    signed_parabolic,
    transformed_n_step_targets,
)
from minerva_acme.losses.regression import (
    action_error,
    binary_weights,
    exponential_weights,
    td3_bc_loss,
    weighted_likelihood_loss,
)
from minerva_acme.losses.retrace import retrace_targets
from minerva_acme.losses.returns import (
    RolloutTargets,
    discounted_returns,
    gae,
    lambda_returns,
    one_step_advantages,
    return_advantages,
)
from minerva_acme.losses.shapes import check_shapes
from minerva_acme.losses.vmpo import (
    VMPOEStep,
    value_loss,
    vmpo_e_step,
    vmpo_kls,
    vmpo_policy_loss,
)
from minerva_acme.losses.vtrace import vtrace
from minerva_acme.losses.wpo import wpo_loss

__all__ = [
    "DualVariable",
    "EStep",
    "MPODuals",
    "PPOLosses",
    "PolicyGradientLosses",
    "RolloutTargets",
    "VMPODuals",
    "VMPOEStep",
    "action_error",
    "action_penalty_values",
    "alpha_loss",
    "binary_weights",
    "c51_projection",
    "categorical_loss",
    "check_shapes",
    "critic_loss",
    "decoupled_kls",
    "decoupled_policy_losses",
    "discounted_returns",
    "dpg_loss",
    "e_step",
    "expectile_loss",
    "explained_variance",
    "exponential_weights",
    "gae",
    "hl_gauss",
    "importance_weights",
    "kl_penalty",
    "lambda_returns",
    "mixture_log_prob",
    "mixture_loss",
    "n_step_targets",
    "normalize_advantages",
    "one_step_advantages",
    "one_step_targets",
    "policy_gradient_loss",
    "ppo_loss",
    "retrace_targets",
    "return_advantages",
    "sequence_loss",
    "sequence_priorities",
    "signed_hyperbolic",
    "signed_parabolic",
    "solved_temperature",
    "spread_within_states",
    "symexp",
    "symlog",
    "td3_bc_loss",
    "transformed_n_step_targets",
    "two_hot",
    "value_loss",
    "vmpo_e_step",
    "vmpo_kls",
    "vmpo_policy_loss",
    "vtrace",
    "weighted_likelihood_loss",
    "wpo_loss",
]
