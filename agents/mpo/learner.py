"""The MPO learner.

Shapes: B batch, T transitions of a sequence, N sampled actions, O observation size, D action
dimensions.
"""

import contextlib
import copy
import functools
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import tree
from torch import nn

from minerva_acme import (
    core,
    counting,
    cuda_graphs,
    distributions,
    learners,
    loggers,
    losses,
    specs,
    types,
)
from minerva_acme.acceleration import parallel, target_critic
from minerva_acme.agents.mpo import config as mpo_config
from minerva_acme.agents.mpo import networks as mpo_networks
from minerva_acme.agents.mpo import targets

_logger = logging.getLogger(__name__)

Metrics = dict[str, torch.Tensor]

# Multiplications of a forward pass below which torch's threads lose more by waiting for each other
# than they gain: the update of such a network is left to one.
_SMALL_UPDATE = 2**28

# Learner steps between looks at what a CUDA graph has left on the device: each look waits for it.
_GRAPH_READ_PERIOD = 10

# What bfloat16 needs: below, rounding changes which of a state's sampled actions seem good.
_MIN_Q_SPREAD = 0.002
_SPREAD_PERIOD = 1000  # learner steps between looks at it


class Evaluation(NamedTuple):
    """What the target networks say of a batch; nothing here carries a gradient."""

    critic_targets: torch.Tensor  # [B, T]
    policy: distributions.DiagonalGaussian  # [B, D]  at the first state of each sequence
    actions: torch.Tensor  # [B, N, D]  raw samples of it
    q_values: torch.Tensor  # [B, N]  of those actions, clipped to the bounds


class Optimizers(NamedTuple):
    """One optimiser for each group of parameters that is trained by its own loss."""

    policy: torch.optim.Optimizer
    critic: torch.optim.Optimizer
    duals: torch.optim.Optimizer


class FiniteChecks:
    """What a step needs to be finite. Looked at on the device; the host reads all of it at once."""

    def __init__(self, device: torch.device) -> None:
        self.failed = torch.zeros((), device=device)
        """[] 1 as soon as something was not finite, else 0."""
        self._names: list[str] = []
        self._failed: list[torch.Tensor] = []
        self._branches: list[FiniteChecks] = []

    def add(self, name: str, tensor: torch.Tensor) -> None:
        """Notes whether all elements are finite."""
        failed = 1.0 - torch.isfinite(tensor.detach()).all().float()
        self.failed = torch.maximum(self.failed, failed)
        self._names.append(name)
        self._failed.append(failed)

    def branch(self) -> "FiniteChecks":
        """Checks of what follows from the finiteness of all this, and of nothing in another branch."""
        branch = FiniteChecks(self.failed.device)
        branch.failed = self.failed
        self._branches.append(branch)
        return branch

    @property
    def names(self) -> list[str]:
        """What was looked at, here and then in the branches."""
        return [name for checks in (self, *self._branches) for name in checks._names]

    @property
    def failures(self) -> torch.Tensor:
        """[C] 1 for each of `names` that was not finite, else 0."""
        return torch.stack([failed for checks in (self, *self._branches) for failed in checks._failed])


class MPOLearner(core.Learner):
    """Maximum a posteriori policy optimisation with an off-policy critic.

    Sources: Abdolmaleki et al. 2018, "Maximum a posteriori policy optimisation" and "Relative
    entropy regularized policy iteration". Each loss trains one group of parameters:

        critic loss              -> critic
        temperature, alpha loss  -> duals
        policy losses, KL        -> policy

    The duals step first, and the policy pays for its KL by the multipliers after their step.

    Variables: `policy`, `critic`, `target_policy`, `target_critic`, each a dict of arrays.
    """

    def __init__(
        self,
        *,
        networks: mpo_networks.MPONetworks,
        duals: losses.MPODuals,
        dataset: Iterator[Any],
        critic_target: targets.CriticTarget,
        config: mpo_config.MPOConfig,
        action_spec: specs.BoundedArray,
        counter: counting.Counter,
        logger: loggers.Logger,
        generator: torch.Generator,
        device: torch.device,
    ) -> None:
        """Takes over the parts.

        Args:
            networks: trained in place, moved to `device`; the targets start as copies of them.
            duals: the Lagrange multipliers, moved to `device`.
            dataset: yields samples whose `data` is a `Trajectory` on `device`, extras being
                `BehaviourExtras`.
            critic_target: computes what the critic regresses to.
            config: hyperparameters.
            action_spec: bounds of the action.
            counter: counts `steps` and `walltime`.
            logger: receives a row of diagnostics a step.
            generator: on `device`, draws the sampled actions.
            device: where to compute.

        Raises:
            ValueError: the config asks for a CUDA graph and the device is not CUDA, or for a precision or
                compiling and the critic is not a `networks.Critic`.
        """
        if device.type == "cpu":
            _keep_freed_memory()
        self._online = mpo_networks.MPONetworks(*(module.to(device) for module in networks))
        self._nothing_is_shared = not (
            {id(parameter) for parameter in self._online.policy.parameters()}
            & {id(parameter) for parameter in self._online.critic.parameters()}
        )
        self._target = self._online.copy()
        self._target_critic = make_target_critic(self._target.critic, config)
        self._duals = duals.to(device)
        self._optimizers = make_optimizers(self._online, self._duals, config)
        self._dataset = dataset
        self._critic_target = critic_target
        self._config = config
        self._low, self._high = (torch.from_numpy(bound).to(device) for bound in specs.bounds(action_spec))
        self._generator = generator
        self._device = device
        self._num_steps = 0
        self._read_period = _GRAPH_READ_PERIOD if config.cuda_graph else 1
        self._compute = self._make_compute()
        self._check_names: list[str] = []
        self._unread_failures: list[torch.Tensor] = []
        self._skipped = learners.SkippedBatches(config.max_skipped_batches)
        self._log = learners.StepLog(counter, logger)

    def step(self) -> None:
        """One round of critic, E-step, duals and policy on one batch."""
        trajectory = learners.next_batch(self._dataset, types.Trajectory, "TrajectoryLayout")
        self._sync_targets()
        metrics, failures = self._compute(trajectory)
        # Copied: a graph's replay overwrites what it returned.
        self._unread_failures.append(failures.clone())
        self._num_steps += 1
        if len(self._unread_failures) < self._read_period:
            self._log.count()
        else:
            self._read(metrics)

    def _make_compute(self) -> Callable[[types.Trajectory], tuple[Metrics, torch.Tensor]]:
        if not self._config.cuda_graph:
            return self._compute_eagerly
        if self._device.type != "cuda":
            raise ValueError(f"`cuda_graph` needs a CUDA device, got {self._device}. Leave it False.")
        return cuda_graphs.Captured(self._compute_eagerly, device=self._device, generators=[self._generator])

    def _compute_eagerly(self, trajectory: types.Trajectory) -> tuple[Metrics, torch.Tensor]:
        """All of a step that happens on the device: diagnostics, and failures of finite checks, [C]."""
        checks = FiniteChecks(self._device)
        evaluation = self._evaluate(trajectory, checks)
        metrics = self._update(trajectory, evaluation, checks)
        self._check_names = checks.names
        return metrics, checks.failures

    def _read(self, metrics: Metrics) -> None:
        """Reads what the steps since the last time have left on the device, and logs the last one."""
        if self._read_failures():
            metrics = {}
        self._warn_of_small_spread(metrics)
        # Copied for the same reason, where the logger keeps them for later.
        kept = metrics if self._read_period == 1 else tree.map_structure(torch.clone, metrics)
        self._log.write({**kept, "skipped_batches": self._skipped.total})

    def _read_failures(self) -> bool:
        """Counts the steps that were skipped; returns whether the last one was."""
        rows, self._unread_failures = self._unread_failures, []
        failed: list[str] = []
        for step, row in enumerate(torch.stack(rows).tolist() if rows else [], self._num_steps - len(rows)):
            failed = [name for name, failed in zip(self._check_names, row, strict=True) if failed]
            if failed:
                self._skipped.skipped(step, learners.NonFinite(f"the {failed[0]} are not finite"))
            else:
                self._skipped.used()
        return bool(failed)

    def _update(self, trajectory: types.Trajectory, evaluation: Evaluation, checks: FiniteChecks) -> Metrics:
        """Both updates, neither of which sees what the other one does. Small ones share the cores."""
        critic = functools.partial(self._update_critic, trajectory, evaluation, checks.branch())
        policy = functools.partial(self._update_duals_and_policy, trajectory, evaluation, checks.branch())
        num_states = trajectory.mask.shape[0]
        critic_is_small = self._is_small(
            self._online.critic, num_states * self._num_critic_loss_steps(trajectory)
        )
        policy_is_small = self._is_small(self._online.policy, num_states)
        if critic_is_small and policy_is_small and self._nothing_is_shared:
            critic_metrics, policy_metrics = parallel.run_together(critic, policy)
        else:
            with parallel.one_thread() if critic_is_small else contextlib.nullcontext():
                critic_metrics = critic()
            with parallel.one_thread() if policy_is_small else contextlib.nullcontext():
                policy_metrics = policy()
        return critic_metrics | policy_metrics

    def _is_small(self, network: nn.Module, num_rows: int) -> bool:
        size = num_rows * sum(parameter.numel() for parameter in network.parameters())
        return self._device.type == "cpu" and size < _SMALL_UPDATE

    def _num_critic_loss_steps(self, trajectory: types.Trajectory) -> int:
        return 1 if self._config.critic_loss_steps == "first" else trajectory.action.shape[1]

    def _warn_of_small_spread(self, metrics: Metrics) -> None:
        spread = metrics.get("q/spread_rel")
        is_due = (self._num_steps - 1) % _SPREAD_PERIOD < self._read_period
        if spread is not None and is_due and spread < _MIN_Q_SPREAD:
            _logger.warning(
                "learner step %d: values within a state differ by %.2g of their size, too little for "
                "bfloat16, which blurs them below %g. Set `target_precision` to float32.",
                self._num_steps - 1,
                spread.item(),
                _MIN_Q_SPREAD,
            )

    def _sync_targets(self) -> None:
        config = self._config
        if self._num_steps % config.target_policy_update_period == 0:
            self._target.policy.load_state_dict(self._online.policy.state_dict())
        if self._num_steps % config.target_critic_update_period == 0:
            self._target.critic.load_state_dict(self._online.critic.state_dict())
            self._copy_target_weights()

    def _copy_target_weights(self) -> None:
        if isinstance(self._target_critic, target_critic.TargetCritic):
            self._target_critic.copy_weights()

    @torch.no_grad()
    def _evaluate(self, trajectory: types.Trajectory, checks: FiniteChecks) -> Evaluation:
        policy = self._target.policy(trajectory.observation)  # [B, T + 1, D]
        critic = self._target_critic
        critic_targets = self._critic_target(
            trajectory, trajectory.discount * self._config.discount, policy, critic, self._generator
        )
        first = distributions.DiagonalGaussian(policy.mean[:, 0], policy.log_std[:, 0])
        observation = trajectory.observation[:, 0]
        actions_NBD = first.sample(self._generator, self._config.num_samples)
        q_NB = critic(observation.expand(self._config.num_samples, *observation.shape), actions_NBD)
        # Masked steps are padding: whatever stands there is never used.
        checks.add("critic targets", critic_targets.where(trajectory.mask > 0, 0.0))
        checks.add("Q values", q_NB)
        return Evaluation(critic_targets, first, actions_NBD.transpose(0, 1), q_NB.T)

    def _update_critic(
        self, trajectory: types.Trajectory, evaluation: Evaluation, checks: FiniteChecks
    ) -> Metrics:
        num_steps = self._num_critic_loss_steps(trajectory)
        q_t = self._online.critic(trajectory.observation[:, :num_steps], trajectory.action[:, :num_steps])
        loss = losses.critic_loss(
            q_t, evaluation.critic_targets[:, :num_steps], trajectory.mask[:, :num_steps]
        )
        grad_norm = minimise("critic", loss, self._optimizers.critic, self._config.max_grad_norm, checks)
        metrics = {}
        if self._config.target_precision == "bfloat16":
            metrics["q/spread_rel"] = spread_within_states(evaluation.q_values)
        return metrics | {
            "loss/q": loss.detach(),
            "q/min": evaluation.q_values.min(),
            "q/max": evaluation.q_values.max(),
            "grad_norm/critic": grad_norm,
        }

    def _update_duals_and_policy(
        self, trajectory: types.Trajectory, evaluation: Evaluation, checks: FiniteChecks
    ) -> Metrics:
        config, duals = self._config, self._duals
        e_step = losses.e_step(evaluation.q_values, duals.temperature(), config.epsilon)
        weights, temperature_loss = e_step.weights, e_step.temperature_loss
        metrics = {}
        if duals.penalty_temperature is not None:
            penalties = losses.action_penalty_values(evaluation.actions, self._low, self._high)
            penalty = losses.e_step(penalties, duals.penalty_temperature(), config.epsilon_penalty)
            weights = weights + penalty.weights
            temperature_loss = temperature_loss + penalty.temperature_loss
            metrics["penalty_temperature"] = duals.penalty_temperature().detach()
            metrics["kl/penalty_rel"] = penalty.kl_to_uniform / config.epsilon_penalty
            metrics["policy/entropy_penalty_weights"] = entropy_of_weights(penalty.weights)

        for m_step in range(config.m_steps):
            online = self._online.policy(trajectory.observation[:, 0])
            kls = losses.decoupled_kls(online, evaluation.policy, config.per_dimension_constraint)
            if m_step == 0:
                alpha_mean_loss = losses.alpha_loss(duals.alpha_mean(), config.epsilon_mean, kls.mean)
                alpha_stddev_loss = losses.alpha_loss(duals.alpha_stddev(), config.epsilon_stddev, kls.stddev)
                dual_loss = temperature_loss + alpha_mean_loss + alpha_stddev_loss
                minimise("duals", dual_loss, self._optimizers.duals, math.inf, checks)
                metrics |= {
                    "kl/mean_rel": kls.mean.detach().mean() / config.epsilon_mean,
                    "kl/stddev_rel": kls.stddev.detach().mean() / config.epsilon_stddev,
                }
            likelihood = losses.decoupled_policy_losses(
                weights, evaluation.actions, online, evaluation.policy
            )
            penalty_loss = losses.kl_penalty(kls, duals.alpha_mean(), duals.alpha_stddev())
            policy_loss = likelihood.mean + likelihood.stddev + penalty_loss
            grad_norm = minimise("policy", policy_loss, self._optimizers.policy, config.max_grad_norm, checks)

        stddev = evaluation.policy.log_std.exp()
        raw_action = trajectory.extras.raw_action[:, 0]
        return metrics | {
            "loss/policy": policy_loss.detach(),
            "loss/temperature": temperature_loss.detach(),
            "loss/alpha_mean": alpha_mean_loss.detach(),
            "loss/alpha_stddev": alpha_stddev_loss.detach(),
            "kl/q_rel": e_step.kl_to_uniform / config.epsilon,
            "temperature": duals.temperature().detach(),
            "alpha/mean": duals.alpha_mean().detach().mean(),
            "alpha/stddev": duals.alpha_stddev().detach().mean(),
            "policy/stddev_min": stddev.min(),
            "policy/stddev_max": stddev.max(),
            "policy/entropy_weights": entropy_of_weights(e_step.weights),
            "policy/clipped_actions": ((raw_action < self._low) | (raw_action > self._high)).float().mean(),
            "grad_norm/policy": grad_norm,
        }

    def get_variables(self, names: Sequence[str]) -> list[types.NestedArray]:
        return learners.variables_of(self._modules(), names)

    def poll_variables(
        self, names: Sequence[str], newer_than: int | None = None
    ) -> core.VersionedVariables | None:
        if newer_than == self._num_steps:
            return None
        return core.VersionedVariables(self._num_steps, self.get_variables(names))

    def _modules(self) -> dict[str, nn.Module]:
        return {
            "policy": self._online.policy,
            "critic": self._online.critic,
            "target_policy": self._target.policy,
            "target_critic": self._target.critic,
        }

    def save(self) -> core.State:
        self._read_failures()
        modules = {**self._modules(), "duals": self._duals}
        return copy.deepcopy(
            {
                "modules": {name: module.state_dict() for name, module in modules.items()},
                "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
                "generator": self._generator.get_state(),
                "num_steps": self._num_steps,
                "skipped": self._skipped.save(),
            }
        )

    def restore(self, state: core.State) -> None:
        modules = {**self._modules(), "duals": self._duals}
        for name, module in modules.items():
            module.load_state_dict(state["modules"][name])
        for optimizer, optimizer_state in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(optimizer_state)
        self._generator.set_state(state["generator"].cpu())
        self._num_steps = state["num_steps"]
        self._skipped.restore(state["skipped"])
        self._unread_failures = []
        # The optimisers' state now lies elsewhere: a graph recorded before would go on with the old one.
        self._compute = self._make_compute()
        self._copy_target_weights()


def make_target_critic(critic: nn.Module, config: mpo_config.MPOConfig) -> targets.Critic:
    """Evaluates the critic without gradient, as `target_precision` and `compile` ask."""
    if config.target_precision == "float32" and not config.compile and not target_critic.knows(critic):
        # One part after the other: any critic may have state.
        return functools.partial(target_critic.by_rows, critic, num_threads=1)
    return target_critic.TargetCritic(critic, precision=config.target_precision, compile=config.compile)


def entropy_of_weights(weights_BN: torch.Tensor) -> torch.Tensor:
    """Entropy of an E-step's weights, nats, mean over B: []; log N where they are uniform."""
    return -torch.xlogy(weights_BN, weights_BN).sum(dim=1).mean()


def spread_within_states(q_BN: torch.Tensor) -> torch.Tensor:
    """Standard deviation of Q over the actions of a state, as a share of |Q|, both mean over B: []."""
    size = q_BN.abs().mean().clamp(min=torch.finfo(q_BN.dtype).tiny)
    return q_BN.std(dim=1, correction=0).mean() / size


def minimise(
    name: str,
    loss: torch.Tensor,
    optimizer: torch.optim.Optimizer,
    max_norm: float,
    checks: FiniteChecks,
) -> torch.Tensor:
    """One gradient step, clipped by global norm, unless something before it or its gradient is not finite.

    Returns:
        The norm before clipping, [].
    """
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    norm = nn.utils.clip_grad_norm_(parameters, max_norm)
    checks.add(f"gradients of the {name}", norm)
    # How gradient scalers tell torch's fused optimisers to leave a step out, without asking the host.
    optimizer.found_inf = checks.failed  # type: ignore[attr-defined]
    optimizer.step()
    return norm


def make_optimizers(
    networks: mpo_networks.MPONetworks, duals: losses.MPODuals, config: mpo_config.MPOConfig
) -> Optimizers:
    """Makes one fused optimiser each for policy, critic and duals, as `minimise` needs them."""

    def make(groups: Any) -> torch.optim.Optimizer:
        if config.optimizer == "adam":
            return torch.optim.Adam(groups, eps=config.adam_epsilon, fused=True, capturable=config.cuda_graph)
        sgd = torch.optim.SGD(groups, momentum=config.sgd_momentum, fused=True)
        # Torch would leave momenta uninitialised, should the very first step be left out.
        for parameter in (parameter for group in sgd.param_groups for parameter in group["params"]):
            sgd.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        return sgd

    temperatures = [duals.temperature, duals.penalty_temperature]
    return Optimizers(
        policy=make(
            # The M-steps share one step's worth of learning rate.
            [{"params": [*networks.policy.parameters()], "lr": config.policy_learning_rate / config.m_steps}]
        ),
        critic=make([{"params": [*networks.critic.parameters()], "lr": config.critic_learning_rate}]),
        duals=make(
            [
                {
                    "params": [p for dual in temperatures if dual is not None for p in dual.parameters()],
                    "lr": config.temperature_learning_rate,
                },
                {
                    "params": [*duals.alpha_mean.parameters(), *duals.alpha_stddev.parameters()],
                    "lr": config.alpha_learning_rate,
                },
            ]
        ),
    )


def _keep_freed_memory() -> None:
    """Makes glibc keep twice 31 MB of freed memory, where a step would ask the kernel for it anew.

    It learns from the largest block that was freed, up to 32 MB. The pages that it would otherwise
    return after every chunk, and touch again, cost a sixth of a step's CPU time.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8)
