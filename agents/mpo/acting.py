"""How MPO acts: a sample of the policy while training, its mean while evaluating."""

from typing import NamedTuple

import numpy as np
import torch

from minerva_acme import actors, builders, core, specs, types
from minerva_acme.acceleration import acting
from minerva_acme.agents.mpo import networks as mpo_networks


class BehaviourExtras(NamedTuple):
    """What the learner needs to know of how an action was chosen."""

    log_prob: types.NestedArray  # []  log-density of the raw action under the behaviour policy
    raw_action: types.NestedArray  # [D]  the sample before it was clipped to the action bounds


def extras_spec(spec: specs.EnvironmentSpec) -> BehaviourExtras:
    """The specs of `BehaviourExtras` in an environment."""
    return BehaviourExtras(
        log_prob=specs.Array((), np.float32, name="log_prob"),
        raw_action=specs.Array(spec.actions.shape, np.float32, name="raw_action"),
    )


class _GaussianActing(builders.AgentPolicy):
    """A policy network of its own, on the CPU, whose weights come from a variable source."""

    def __init__(
        self,
        *,
        networks: mpo_networks.MPONetworks,
        spec: specs.EnvironmentSpec,
        generator: torch.Generator,
    ) -> None:
        self._network = networks.copy().policy.to("cpu").eval()
        self._parameters = self._network.state_dict()
        self._policy = acting.make_acting_policy(self._network, generator)
        self._low, self._high = specs.bounds(spec.actions)

    def set_variables(self, values: list[types.NestedArray]) -> None:
        """Takes over the policy's weights.

        Args:
            values: one state dict of arrays by parameter name.
        """
        (state,) = values
        for name, parameter in self._parameters.items():
            parameter.copy_(torch.from_numpy(state[name]))

    def save(self) -> core.State:
        return self._policy.save()

    def restore(self, state: core.State) -> None:
        self._policy.restore(state)

    def _clip(self, raw_action: np.ndarray) -> np.ndarray:
        # np.clip takes several times as long for a few numbers.
        action: np.ndarray = np.minimum(np.maximum(raw_action, self._low), self._high)
        return action


class BehaviourPolicy(_GaussianActing):
    """Samples the Gaussian and executes the sample clipped to the action bounds."""

    def batch(self, observations: types.NestedArray) -> actors.PolicyOutput:
        """Args: observations, float32 [E, O]. Returns actions, float32 [E, D], and `BehaviourExtras`."""
        raw_action, log_prob, _ = self._policy.sample(observations)
        return actors.PolicyOutput(self._clip(raw_action), BehaviourExtras(log_prob, raw_action))


class GreedyPolicy(_GaussianActing):
    """Executes the mean, clipped to the action bounds."""

    def batch(self, observations: types.NestedArray) -> actors.PolicyOutput:
        """Args: observations, float32 [E, O]. Returns actions, float32 [E, D]."""
        return actors.PolicyOutput(self._clip(self._policy.mode(observations)))
