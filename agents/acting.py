"""How agents act: by a sample of the policy while training, by its mode while evaluating."""

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
import tree
from torch import nn

from minerva_acme import acceleration, actors, builders, core, networks, specs, types
from minerva_acme.agents import actions


class BehaviourExtras(NamedTuple):
    """What the learner needs to know of how an action was chosen."""

    log_prob: types.NestedArray
    """[] log-probability or log-density of `raw_action` under the behaviour policy, nats: an importance ratio
    is exp(log_prob of `raw_action` under another policy - this). Of a squashed action, the density of what
    was executed is another; its Jacobian leaves every ratio."""
    raw_action: types.NestedArray
    """[D] what the policy drew before it was brought into the bounds; [] of one discrete action."""
    parameters: types.NestedArray = ()
    """The behaviour policy itself, its distribution at the observation; () if not asked for."""
    state: types.NestedArray = ()
    """What the policy remembered of the episode before this step, [H] each leaf; () if it has no memory."""


def extras_spec(
    spec: specs.EnvironmentSpec, record_parameters: bool = False, state: types.NestedSpec = ()
) -> BehaviourExtras:
    """The specs of `BehaviourExtras` in an environment. Args: state: of what the policy remembers."""
    kind = actions.raw_actions(spec.actions, squash=False)
    return BehaviourExtras(
        log_prob=specs.Array((), np.float32, name="log_prob_of_raw_action"),
        raw_action=kind.raw_spec,
        parameters=kind.policy_spec if record_parameters else (),
        state=state,
    )


class _Acting(builders.AgentPolicy):
    """A network of its own, on the CPU, whose weights and statistics come from a variable source."""

    def __init__(
        self,
        *,
        network: nn.Module,
        raw_actions: actions.RawActions,
        generator: torch.Generator,
        acceleration: acceleration.Acceleration,
        record_parameters: bool = False,
    ) -> None:
        """Makes the policy.

        Args:
            network: a policy or an `ActorCritic`; copied.
            raw_actions: the way from what the policy draws to the environment's actions.
            generator: draws the actions.
            acceleration: chooses how the network is computed.
            record_parameters: whether extras hold the policy's parameters.
        """
        self._network = copy.deepcopy(network).to("cpu").requires_grad_(False).eval()
        self._parameters = self._network.state_dict()
        self._policy = acceleration.acting(self._network, generator)
        self._raw_actions = raw_actions
        self._record_parameters = record_parameters

    def set_variables(self, values: list[types.NestedArray]) -> None:
        """Sets weights and statistics.

        Args:
            values: one state dict of arrays by name.
        """
        _set_parameters(self._parameters, values)

    def save(self) -> core.State:
        return self._policy.save()

    def restore(self, state: core.State) -> None:
        self._policy.restore(state)


class BehaviourPolicy(_Acting):
    """Samples the policy and records how."""

    def __init__(self, *, noise_repeat: int = 1, **parts: Any) -> None:
        """Makes the policy.

        Args:
            noise_repeat: steps for which the noise stays the same, while the policy moves on. The recorded
                density is that of the policy, as if the noise were new.
            **parts: those of `_Acting`.
        """
        super().__init__(**parts)
        self._noise_repeat = noise_repeat
        self._num_steps = 0
        self._noise: core.State = None  # as it was before the first of these steps

    def batch(self, observations: types.NestedArray) -> actors.PolicyOutput:
        """Args: observations, leaves [E, ...]. Returns actions, [E, D] or [E], and `BehaviourExtras`."""
        if self._noise_repeat > 1:
            self._repeat_noise()
        raw, log_prob, parameters = self._policy.sample(observations)
        action = self._raw_actions.to_environment(raw)
        recorded = tree.map_structure(np.asarray, parameters) if self._record_parameters else ()
        return actors.PolicyOutput(action, BehaviourExtras(log_prob, raw, recorded))

    def _repeat_noise(self) -> None:
        """Draws what was drawn before, but every so many steps."""
        if self._num_steps % self._noise_repeat:
            self._policy.restore(self._noise)
        else:
            self._noise = self._policy.save()
        self._num_steps += 1

    def save(self) -> core.State:
        if self._noise_repeat == 1:
            return super().save()
        return {"policy": super().save(), "num_steps": self._num_steps, "noise": self._noise}

    def restore(self, state: core.State) -> None:
        if self._noise_repeat > 1:
            self._num_steps, self._noise, state = state["num_steps"], state["noise"], state["policy"]
        super().restore(state)


class GreedyPolicy(_Acting):
    """Executes the mode: the mean, or the most probable action."""

    def batch(self, observations: types.NestedArray) -> actors.PolicyOutput:
        """Args: observations, leaves [E, ...]. Returns actions, [E, D] or [E]."""
        return actors.PolicyOutput(self._raw_actions.to_environment(self._policy.mode(observations)))

    def as_module(self) -> nn.Module:
        return _Greedy(self._network, self._raw_actions)


class _Greedy(nn.Module):
    """What `GreedyPolicy` computes, on tensors."""

    def __init__(self, network: nn.Module, raw_actions: actions.RawActions) -> None:
        super().__init__()
        self._network = network
        self._raw_actions = raw_actions

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        network = self._network
        policy = network.policy if isinstance(network, networks.ActorCritic) else network
        return self._raw_actions.execute(policy(observations).mode())


class RecurrentPolicy(builders.AgentPolicy):
    """Another policy, of what a network's memory makes of the observations."""

    def __init__(
        self,
        network: networks.ActorCritic,
        make_policy: Callable[[networks.ActorCritic], builders.AgentPolicy],
    ) -> None:
        """Makes the policy.

        Args:
            network: one with a memory; copied.
            make_policy: makes a `BehaviourPolicy` or a `GreedyPolicy` of the rest of the network.
        """
        self._network = copy.deepcopy(network).to("cpu").requires_grad_(False).eval()
        self._parameters = self._network.state_dict()
        self._policy = make_policy(self._network.without_memory())

    @torch.no_grad()
    def initial_state(self, num_environments: int) -> types.NestedArray:
        assert self._network.memory is not None
        return tree.map_structure(torch.Tensor.numpy, self._network.memory.initial_state(num_environments))

    @torch.no_grad()
    def step(
        self, observations: types.NestedArray, state: types.NestedArray
    ) -> tuple[actors.PolicyOutput, types.NestedArray]:
        """Chooses E actions, [E, D] or [E], and takes the observations in; extras hold the state before."""
        tensors = tree.map_structure(torch.from_numpy, (observations, state))
        features, state_after = self._network.remember(*tensors)
        action, extras = self._policy.batch(features.numpy())
        if isinstance(extras, BehaviourExtras):
            extras = extras._replace(state=state)
        return actors.PolicyOutput(action, extras), tree.map_structure(torch.Tensor.numpy, state_after)

    def as_module(self) -> nn.Module:
        raise ValueError(
            "A policy with memory cannot be exported as a program, which maps observations to actions and "
            "remembers nothing between calls. Export the weights (safetensors) and load them with "
            "`minerva_acme.load_policy`."
        )

    def set_variables(self, values: list[types.NestedArray]) -> None:
        """Sets weights and statistics. Args: values: one state dict of arrays by name."""
        _set_parameters(self._parameters, values)
        self._policy.set_variables(values)

    def save(self) -> core.State:
        return self._policy.save()

    def restore(self, state: core.State) -> None:
        self._policy.restore(state)


def _set_parameters(parameters: Mapping[str, torch.Tensor], values: list[types.NestedArray]) -> None:
    (state,) = values
    for name, parameter in parameters.items():
        parameter.copy_(torch.from_numpy(state[name]))
