"""The critic's regression targets: one function per choice, all with the same signature.

Shapes: B batch, T transitions, M actions in each state, F features of an observation, D action dimensions,
an axis that discrete actions lack; J rewards that are objectives. Time: `_t` is for t = 0..T-1, `_tp1` for
t + 1 = 1..T.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from minerva_acme import distributions, losses, networks, types
from minerva_acme.agents.mpo.critics import Critic

# Indices into [B, T + 1]: the states where steps begin, and the states that follow.
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
        """Returns values or distributions of the return, [B, T]; entries at masked steps are not used.

        With objectives, rewards are [B, T, J], values [..., J], and so are the targets.

        Args:
            trajectory: A batch of sequences with features instead of observations, [B, T + 1, F]; extras are
                `BehaviourExtras` with axes [B, T].
            discount_t: The environment's discount times gamma, [B, T].
            policy: The target policy at every state, [B, T + 1].
            critic: The target critic, (features [..., F], action [..., D] or [M, ..., D]) -> q of each;
                its `mixture` gives the distribution of the return.
            generator: Draws the actions for state values, if they are sampled.
        """


def sampled_values(
    observation: torch.Tensor,
    policy: distributions.Distribution,
    critic: Critic,
    num_actions: int,
    generator: torch.Generator,
) -> torch.Tensor:
    """Estimates V(s): the mean of Q(s, a) over sampled actions or, if discrete, sum_a pi(a | s) Q(s, a).

    Args:
        observation: The states' features, [..., F].
        policy: The policy at these states, [...].
        critic: (features [..., F], action [M, ..., D]) -> q [M, ...]; it clips actions to their bounds.
        num_actions: The number of actions, M, if they are sampled.
        generator: Draws the actions.

    Returns:
        The values, [...], or with objectives [..., J].
    """
    points = policy.points(generator, num_actions)
    return points.mean(critic(observation, points.actions))


def _bootstrapped(num_actions: int, combine: Callable[..., torch.Tensor]) -> CriticTarget:
    """Makes a target that calls `combine` with V at the state after every step, and with its other inputs."""

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
    """Makes Retrace(lambda) targets; see `losses.retrace_targets`."""

    def combine(
        trajectory: types.Trajectory,
        discount_t: torch.Tensor,
        v_tp1: torch.Tensor,
        policy: distributions.Distribution,
        critic: Critic,
    ) -> torch.Tensor:
        # The first value cancels: target_0 = q_0 + (r_0 + .. - q_0) + .. It is not computed.
        q_after_0 = critic(trajectory.observation[:, 1:-1], trajectory.action[:, 1:])
        return _of_each(
            functools.partial(losses.retrace_targets, lambda_=lambda_),
            torch.cat([torch.zeros_like(v_tp1[:, :1]), q_after_0], dim=1),
            v_tp1,
            trajectory.reward,
            shared=(
                discount_t,
                # At the raw action: the behaviour policy's density was recorded there too.
                policy.at(_T).log_prob(trajectory.extras.raw_action),
                trajectory.extras.log_prob,
                trajectory.mask,
            ),
        )

    return _bootstrapped(num_actions, combine)


def n_step(*, num_actions: int, num_returns: int | None = None) -> CriticTarget:
    """Makes targets of the return up to the last unmasked step in a row, bootstrapped there.

    They are not corrected for off-policy data. Each step bootstraps from the state after the last step of its
    own run of unmasked steps, so a sequence may hold parts of several episodes; see `losses.n_step_targets`.
    Values are computed at every state, which costs T times as much as one bootstrap state per sequence: only
    the device knows where the runs end, and reading it would make the host wait.

    Args:
        num_actions: The number of sampled actions, M.
        num_returns: None for values; a number for distributions, of that many returns if they are sampled.
    """
    return _folded(num_actions, num_returns, losses.n_step_targets)


def one_step(*, num_actions: int, num_returns: int | None = None) -> CriticTarget:
    """Makes targets r_t + discount_t V(s_{t+1}), or distributions of r_t + discount_t z; see `n_step`."""
    return _folded(
        num_actions,
        num_returns,
        lambda z_tp1, r_t, discount_t, _: losses.one_step_targets(z_tp1, r_t, discount_t),
    )


def _folded(num_actions: int, num_returns: int | None, fold: Callable[..., torch.Tensor]) -> CriticTarget:
    """Makes targets that apply `fold` to values or returns; see `n_step` and `_distributions`."""
    if num_returns is not None:
        return _distributions(num_actions, num_returns, fold)
    return _bootstrapped(
        num_actions,
        lambda trajectory, discount_t, v_tp1, *_: _of_each(
            fold, v_tp1, trajectory.reward, shared=(discount_t, trajectory.mask)
        ),
    )


def _of_each(
    fold: Callable[..., torch.Tensor], *own: torch.Tensor, shared: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Applies a target of one return to each of several returns: of J rewards, or N possible ones.

    Args:
        fold: Computes targets [B, T] from tensors of [B, T]: first `own`, then `shared`.
        *own: What differs between returns, [B, T, J]; or [B, T] if there is one.
        shared: What is the same for all, such as Retrace's traces, [B, T].

    Returns:
        The targets, with the shape of `own`.
    """
    if own[0].ndim == 2:
        return fold(*own, *shared)
    num = own[0].shape[-1]
    rows = [x.movedim(-1, 0).flatten(0, 1) for x in own]  # [J B, T]
    targets = fold(*rows, *(x.repeat(num, 1) for x in shared))
    return targets.unflatten(0, (num, -1)).movedim(0, -1)


def _distributions(num_actions: int, num_returns: int, fold: Callable[..., torch.Tensor]) -> CriticTarget:
    """Makes targets that apply `fold` to each possible return z of the next states, and keep its probability.

    Args:
        num_actions: The number of sampled actions, M.
        num_returns: The number of returns, N, if they are sampled.
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

        def of_each(x: torch.Tensor, *signals: torch.Tensor) -> torch.Tensor:
            return _of_each(fold, x, shared=(*signals, trajectory.mask))

        return networks.ReturnDistribution(
            values=of_each(returns.values, trajectory.reward, discount_t),
            # Weights move along with their returns: `fold` with reward 0 and discount 1.
            weights=of_each(returns.weights, torch.zeros_like(discount_t), torch.ones_like(discount_t)),
        )

    return target
