"""What the critic regresses to: one function per choice, all with the same signature.

Shapes: B batch, T transitions, M actions in each state, F features of an observation, D action dimensions,
an axis that discrete actions lack. Time: `_t` is for t = 0..T-1, `_tp1` for t + 1 = 1..T.
"""

from collections.abc import Callable
from typing import Any, Protocol

import torch

from minerva_acme import distributions, losses, networks, types
from minerva_acme.agents.mpo.critics import Critic

# Of [B, T + 1]: the states that steps begin in, and those that they lead to.
_T: Any = (slice(None), slice(None, -1))
_TP1: Any = (slice(None), slice(1, None))


class CriticTarget(Protocol):
    """Computes regression targets for Q(s_t, a_t), without gradient."""

    def __call__(
        self,
        trajectory: types.Trajectory,
        discount_t: torch.Tensor,
        policy: distributions.Distribution,
        critic: Critic,
        generator: torch.Generator,
    ) -> torch.Tensor | networks.ReturnDistribution:
        """Returns values or distributions of the return, [B, T]; what stands at masked steps is not used.

        Args:
            trajectory: a batch of sequences with features in the place of observations, [B, T + 1, F]; extras
                are `BehaviourExtras` with axes [B, T].
            discount_t: the environment's discount times gamma, [B, T].
            policy: the target policy at every state, [B, T + 1].
            critic: the target critic, (features [..., F], action [..., D] or [M, ..., D]) -> q of each;
                its `mixture` gives the distribution of the return.
            generator: draws the actions that state values are estimated with, where they are sampled.
        """


def sampled_values(
    observation: torch.Tensor,
    policy: distributions.Distribution,
    critic: Critic,
    num_actions: int,
    generator: torch.Generator,
) -> torch.Tensor:
    """V(s): the mean of Q(s, a) over sampled actions, or where they are discrete sum_a pi(a | s) Q(s, a).

    Args:
        observation: the states' features, [..., F].
        policy: the policy at these states, [...].
        critic: (features [..., F], action [M, ..., D]) -> q [M, ...]; it clips actions to their bounds.
        num_actions: M, where they are sampled.
        generator: draws the actions.

    Returns:
        The values, [...].
    """
    points = policy.points(generator, num_actions)
    return points.mean(critic(observation, points.actions))


def _bootstrapped(num_actions: int, combine: Callable[..., torch.Tensor]) -> CriticTarget:
    """A target from V at every state that follows a step, and `combine` of that and of what it is given."""

    def target(
        trajectory: types.Trajectory,
        discount_t: torch.Tensor,
        policy: distributions.Distribution,
        critic: Critic,
        generator: torch.Generator,
    ) -> torch.Tensor:
        v_tp1 = sampled_values(trajectory.observation[_TP1], policy.at(_TP1), critic, num_actions, generator)
        return combine(trajectory, discount_t, v_tp1, policy, critic)

    return target


def retrace(*, lambda_: float, num_actions: int) -> CriticTarget:
    """Retrace(lambda) targets; see `losses.retrace_targets`."""

    def combine(
        trajectory: types.Trajectory,
        discount_t: torch.Tensor,
        v_tp1: torch.Tensor,
        policy: distributions.Distribution,
        critic: Critic,
    ) -> torch.Tensor:
        # The first value cancels: target_0 = q_0 + (r_0 + .. - q_0) + .. Nothing is computed for it.
        q_after_0 = critic(trajectory.observation[:, 1:-1], trajectory.action[:, 1:])
        return losses.retrace_targets(
            q_t=torch.nn.functional.pad(q_after_0, (1, 0)),
            v_tp1=v_tp1,
            r_t=trajectory.reward,
            discount_t=discount_t,
            # At the raw action: the behaviour policy's density was recorded there too.
            log_prob_t=policy.at(_T).log_prob(trajectory.extras.raw_action),
            behaviour_log_prob_t=trajectory.extras.log_prob,
            mask_t=trajectory.mask,
            lambda_=lambda_,
        )

    return _bootstrapped(num_actions, combine)


def n_step(*, num_actions: int, num_returns: int | None = None) -> CriticTarget:
    """The return to the last step that happened before a masked one or the end, bootstrapped there.

    Not corrected for off-policy data. Each step bootstraps from the state that follows the last step of
    its own run of unmasked ones, so a sequence may hold parts of several episodes; see
    `losses.n_step_targets`. Values are computed at every state, T times what one bootstrap state a sequence
    costs: where the runs end is known on the device alone, and to choose by it would make the host wait.

    Args:
        num_actions: M.
        num_returns: None gives values; a number distributions, of so many returns where they are sampled.
    """
    return _folded(num_actions, num_returns, losses.n_step_targets)


def one_step(*, num_actions: int, num_returns: int | None = None) -> CriticTarget:
    """r_t + discount_t V(s_{t+1}), or the distribution of r_t + discount_t z; arguments as of `n_step`."""
    return _folded(
        num_actions,
        num_returns,
        lambda z_tp1, r_t, discount_t, _: losses.one_step_targets(z_tp1, r_t, discount_t),
    )


def _folded(num_actions: int, num_returns: int | None, fold: Callable[..., torch.Tensor]) -> CriticTarget:
    """`fold` of values, or of returns; arguments as of `n_step` and `_distributions`."""
    if num_returns is not None:
        return _distributions(num_actions, num_returns, fold)
    return _bootstrapped(
        num_actions,
        lambda trajectory, discount_t, v_tp1, *_: fold(v_tp1, trajectory.reward, discount_t, trajectory.mask),
    )


def _distributions(num_actions: int, num_returns: int, fold: Callable[..., torch.Tensor]) -> CriticTarget:
    """`fold` of each return z that the states which follow may have, with the probability of that return.

    Args:
        num_actions: M.
        num_returns: N, where returns are sampled.
        fold: (z_tp1, r_t, discount_t, mask_t), [.., T] each -> targets, linear in z.
    """

    def target(
        trajectory: types.Trajectory,
        discount_t: torch.Tensor,
        policy: distributions.Distribution,
        critic: Critic,
        generator: torch.Generator,
    ) -> networks.ReturnDistribution:
        points = policy.at(_TP1).points(generator, num_actions)
        state = critic.mixture(trajectory.observation[_TP1], points)
        returns = state.returns(generator=generator, num_samples=num_returns)  # of [B, T, N]
        num = returns.values.shape[-1]

        def of_each(x: torch.Tensor, *signals: torch.Tensor) -> torch.Tensor:
            rows = x.movedim(-1, 0).flatten(0, 1)  # [N B, T]
            folded = fold(rows, *(signal.repeat(num, 1) for signal in (*signals, trajectory.mask)))
            return folded.unflatten(0, (num, -1)).movedim(0, -1)

        return networks.ReturnDistribution(
            values=of_each(returns.values, trajectory.reward, discount_t),
            # They stay with their returns: as if nothing were earned and nothing discounted.
            weights=of_each(returns.weights, torch.zeros_like(discount_t), torch.ones_like(discount_t)),
        )

    return target
