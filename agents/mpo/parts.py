"""The parts of MPO's learner: what moves the targets, and what updates the scale of the returns."""

from collections.abc import Iterator

from torch import nn

from minerva_acme import learners, networks
from minerva_acme.agents.mpo import optimizers
from minerva_acme.agents.mpo.config import MPOConfig
from minerva_acme.agents.mpo.networks import MPONetworks


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


def return_statistics(critic: nn.Module, config: MPOConfig) -> Iterator[learners.Part]:
    """Yields the part that updates the running scale of the returns, if the critic has one."""
    for part in critic.modules():
        if isinstance(part, networks.ReturnScale):
            yield learners.ReturnStatistics(part, burn_in=config.burn_in)
            return
