"""The MPO learner: its networks, optimisers and losses, put together."""

import functools
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch

from minerva_acme import acceleration, core, counting, learners, loggers, losses, networks, specs, types
from minerva_acme.agents import actions
from minerva_acme.agents.mpo import critics, health, improvement, modes, objectives, optimizers, targets
from minerva_acme.agents.mpo import losses as mpo_losses
from minerva_acme.agents.mpo.config import MPOConfig
from minerva_acme.agents.mpo.networks import MPONetworks


def make_learner(
    *,
    networks: MPONetworks,
    duals: losses.MPODuals,
    dataset: Iterator[Any],
    critic_target: targets.CriticTarget,
    config: MPOConfig,
    action_spec: types.NestedSpec,
    counter: counting.Counter,
    logger: loggers.Logger,
    generator: torch.Generator,
    device: torch.device,
    policy_loss: improvement.PolicyLoss = improvement.e_step,
    critic_loss: mpo_losses.CriticLoss = critics.critic_loss,
    make_optimizer: learners.OptimizerFactory | None = None,
    share_done: Callable[[int], float] | None = None,
    priorities: learners.Priorities | None = None,
    objective_functions: Mapping[str, objectives.ObjectiveFunction] = MappingProxyType({}),
    ranks: learners.Ranks | None = None,
    spec: specs.EnvironmentSpec | None = None,
    learner_class: Callable[..., core.Learner] = learners.LossLearner,
) -> Any:
    """Makes a learner of maximum a posteriori policy optimisation with an off-policy critic.

    Variables: `policy`, `critic`, `target_policy`, `target_critic`, each a dict of arrays. A policy is served
    and saved with its encoder, as `MPONetworks.acting` returns it.

    Args:
        networks: The networks, trained in place and moved to `device`; the targets start as copies.
        duals: The Lagrange multipliers, moved to `device`.
        dataset: Yields a `Trajectory` with `BehaviourExtras`, as `data` or bare; see
            `learners.checked_samples`.
        critic_target: Computes the critic's regression targets.
        config: The hyperparameters.
        action_spec: The spec of the action: its bounds, or that it is discrete or hybrid.
        counter: Counts `steps` and `walltime`.
        logger: Receives one row of diagnostics per step.
        generator: Draws the sampled actions; on `device`.
        device: The device to compute on.
        policy_loss: Computes the policy's improvement on a batch.
        critic_loss: Computes the critic's loss.
        make_optimizer: Makes the optimisers of `policy`, `critic` and `duals`, or None for the config's.
        share_done: The share of the run that is done after a number of learner steps, by which learning
            rates fall if they do, or None if unknown.
        priorities: Weights the critic's loss and receives the new priorities of sequences, or None if the
            table is not sampled by priority.
        objective_functions: The functions that `objectives` of the config may name; the other names are
            rewards.
        ranks: The learners that make the same steps, each from its share of the batch, or None.
        spec: The environment's spec, by which the first batch is checked, or None.
        learner_class: The class of the learner.

    Returns:
        A `learners.LossLearner` of `losses.MPOLosses`, or of the class that is asked for.
    """
    accelerated = acceleration.Acceleration(config.acceleration)
    on_device = [module.to(device) for module in networks]
    online = MPONetworks(*map(accelerated.network, networks._fields, on_device))
    online.critic.eval()  # and so its copy, the target; for training see `MPOLosses.critic`
    duals = duals.to(device)
    trained = optimizers.trained_modules(online, config)
    groups = optimizers.make_groups(trained, duals, config, make_optimizer or optimizers.by_config(config))
    target = online.copy()  # after the projection to unit norm
    target_critic = accelerated.target_critic(target.critic, config.target_precision)
    rewards = [name for name in config.objectives if name not in objective_functions]
    floor = None
    if config.temperature == "solved":
        floor = objectives.TemperatureFloor(config.temperature_floor, len(rewards) or None).to(device)
    as_critic = functools.partial(
        critics.make_critic, action_spec=action_spec, has_objectives=bool(config.objectives), device=device
    )
    low, high = (torch.from_numpy(bound).to(device) for bound in actions.bounds(action_spec))
    of_batch = mpo_losses.MPOLosses(
        config=config,
        online_q=as_critic(online.critic),
        target_q=as_critic(target_critic),
        plain_target_q=as_critic(target.critic),
        critic_target=critic_target,
        policy_loss=policy_loss,
        critic_loss=critic_loss,
        low=low,
        high=high,
        raw_actions=actions.raw_actions(action_spec, squash=False).on(device),
        rewards=rewards,
        functions={
            name: objective_functions[name] for name in config.objectives if name in objective_functions
        },
        for_training=modes.parts_for_training(online.encoder, online.policy),
        ranks=ranks,
    )
    parts = [
        learners.LinearDecay(
            groups["policy"].optimizer,
            groups["critic"].optimizer,
            final_share=config.final_learning_rate,
            share_done=share_done,
        ),
        Targets(online, target, config),
        *_statistics(online, target, config, ranks),
        health.Health(),
    ]
    modules = {
        "policy": online.acting(),
        "critic": online.critic,
        "target_policy": target.acting(),
        "target_critic": target.critic,
        "duals": duals,
    }
    if config.critic_observations:  # The policies' encoders lack the critic's part.
        modules |= {"encoder": online.encoder, "target_encoder": target.encoder}
    if floor is not None:
        modules |= {"temperature_floor": floor}
    why_plain = {
        name: why for name in ("critic", "duals", "policy") if (why := of_batch.why_plain(online, name))
    }
    has_scale = any(isinstance(part, learners.ReturnStatistics) for part in parts)
    return learner_class(
        networks=mpo_losses.MPOModules(online, target, duals, floor),
        losses={"critic": of_batch.critic, "duals": of_batch.duals, "policy": of_batch.policy},
        groups=groups,
        periods={"duals": config.policy_period, "policy": config.policy_period},
        update_targets=lambda networks, num_steps: None,  # see `Targets`
        dataset=dataset,
        priorities=priorities,
        max_skipped_batches=config.max_skipped_batches,
        acceleration=accelerated,
        counter=counter,
        logger=logger,
        generator=generator,
        ranks=ranks,
        spec=spec,
        estimate=of_batch.estimate,
        parts=parts,
        chains=[["critic"], ["duals", *["policy"] * config.m_steps]],
        modules=modules,
        variables=["policy", "critic", "target_policy", "target_critic"],
        takes=learners.Kind(
            types.Trajectory,
            "TrajectoryLayout",
            (
                "raw_action",
                *["log_prob"] * (config.critic_target == "retrace"),
                *["running_return"] * has_scale,
            ),
        ),
        why_plain=why_plain,
    )


class Targets(learners.Part):
    """Copies the networks to their targets before a step if it is time, or moves them part of the way."""

    def __init__(self, online: MPONetworks, target: MPONetworks, config: MPOConfig) -> None:
        """Takes the networks, and the periods or the rate."""
        self._config = config
        self._pairs = (
            (target.policy, online.policy, config.target_policy_update_period),
            (target.encoder, online.encoder, config.target_critic_update_period),
            (target.critic, online.critic, config.target_critic_update_period),
        )

    def before(self, batch: learners.Batch, num_steps: int) -> None:
        for slow, fast, period in self._pairs:
            # At step 0 the targets are copies already, or come from the run that this one starts from.
            if self._config.target_rate < 1.0 or (num_steps and num_steps % period == 0):
                learners.update_target(slow, fast, num_steps, rate=self._config.target_rate)
                optimizers.project_target(slow, fast, self._config)


def _statistics(
    online: MPONetworks, target: MPONetworks, config: MPOConfig, ranks: learners.Ranks | None
) -> Iterator[learners.Part]:
    """Yields the parts that update running statistics, of observations and of returns."""
    encoders = {"encoder": online.encoder, "target_encoder": target.encoder}
    observations = learners.ObservationStatistics(encoders, burn_in=config.burn_in, ranks=ranks)
    if observations.updated_encoders:
        yield observations
    for part in online.critic.modules():
        if isinstance(part, networks.ReturnScale):
            yield learners.ReturnStatistics(part, burn_in=config.burn_in, ranks=ranks)
            return
