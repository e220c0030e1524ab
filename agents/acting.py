"""Acting: a policy made of any module and a rule for choosing actions, and what it records of each choice."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import tree
from torch import nn

from minerva_acme import acceleration, actors, builders, core, counting, networks, specs, types
from minerva_acme.agents import acting_on_tensors, actions, choosing, schedules
from minerva_acme.names import readable


class BehaviourExtras(NamedTuple):
    """The record of how an action was chosen, for the learner."""

    log_prob: types.NestedArray = ()
    """[] Log-probability or log-density of `raw_action` under the behaviour policy, in nats. An importance
    ratio is exp(log_prob of `raw_action` under another policy - this). The density of an executed, squashed
    action differs from this one, but its Jacobian cancels in every ratio. () if not recorded."""
    raw_action: types.NestedArray = ()
    """[D] The policy's sample, before it was brought into the bounds; [] for one discrete action. () if not
    recorded."""
    parameters: types.NestedArray = ()
    """The behaviour policy itself: its distribution at the observation. () if not recorded."""
    state: types.NestedArray = ()
    """The policy's recurrent state before this step, [H] each leaf; () if not recorded."""
    running_return: types.NestedArray = ()
    """[] The discounted sum of the episode's rewards up to and with this step's, which
    `adders.RunningReturnAdder` records; () if not recorded."""
    age: types.NestedArray = ()
    """[] The number of learner steps by which the weights that chose the action are older than the learner's;
    () if not known. A queue of rollouts adds it when the learner takes them."""


def extras_spec(
    spec: specs.EnvironmentSpec,
    record_parameters: bool = False,
    state: types.NestedSpec = (),
    running_return: bool = False,
) -> BehaviourExtras:
    """Returns the specs of `BehaviourExtras` for an environment.

    Args:
        spec: The environment's spec.
        record_parameters: Whether the policy's parameters are recorded.
        state: The spec of the policy's recurrent state, for one environment.
        running_return: Whether an `adders.RunningReturnAdder` records the sum of rewards.
    """
    raw_action, policy = actions.raw_specs(spec.actions)
    return BehaviourExtras(
        log_prob=specs.Array((), np.float32, name="log_prob_of_raw_action"),
        raw_action=raw_action,
        parameters=policy if record_parameters else (),
        state=state,
        running_return=specs.Array((), np.float32, name="running_return") if running_return else (),
    )


def state_spec(module: nn.Module) -> types.NestedSpec:
    """Returns the specs of a module's recurrent state for one environment; () for a module without memory."""
    memory = networks.memory_of(module)
    if memory is None:
        return ()
    return tree.map_structure(
        lambda part: specs.Array(part.shape[1:], part.numpy().dtype), memory.initial_state(1)
    )


def _check_memory(module: nn.Module) -> None:
    """Raises ValueError if a memory, or an encoder with one, has hooks: acting makes single steps without."""
    for name, part in (("memory", networks.memory_of(module)), ("encoder", getattr(module, "encoder", None))):
        holds_memory = name == "memory" or isinstance(part, networks.RecurrentEncoder)
        if part is not None and holds_memory and any(acceleration.hooks_of(part)):
            raise ValueError(
                f"`{name}` must not have hooks of its own, which acting does not call, got a "
                f"{type(part).__name__} with hooks. Give them to its parts, such as `memory.rnn`, or "
                "override `unroll` of the memory."
            )


class ModulePolicy(builders.AgentPolicy):
    """A policy that acts by a module, from observations [E, ...] to a distribution, an action or values.

    Observations may be any nest. The policy holds a copy of the module on the CPU, whose weights and
    statistics come from a variable source. An `ActorCritic` acts by its policy. For a batched environment,
    the copy is on the environment's `device`, and observations, actions and extras are tensors there.

    A module with memory, including your own, needs these three attributes. `networks.ActorCritic` has them,
    and so have `networks.EncodedPolicy` and `EncodedCritic` with a `networks.RecurrentEncoder`:

        memory                                       a `networks.Memory`, or None for no memory
        remember(observations, state)                features [E, F] and the state after the step
        without_memory()                             the module from these features to its output
    """

    def __init__(
        self,
        *,
        module: nn.Module,
        choose: choosing.Choose,
        raw_actions: Any,
        generator: torch.Generator,
        acceleration: acceleration.Acceleration,
        counter: counting.Counter | None = None,
        evaluation: bool = False,
        record: Literal["nothing", "choice", "parameters"] = "nothing",
        record_state: bool = False,
        noise_repeat: int = 1,
        noise_scale: schedules.Schedule | None = None,
        random_steps: int = 0,
        critic_observations: Sequence[str] = (),
        device: torch.device | None = None,
    ) -> None:
        """Makes the policy.

        Args:
            module: The module to act by; copied.
            choose: Chooses raw actions from the module's output.
            raw_actions: The `actions.RawActions` that bring them into the environment's spec, or a nest of
                them where actions are a nest.
            generator: The source of randomness in a choice. Its state is saved.
            acceleration: Chooses how the module is computed.
            counter: The run's counter, whose `actor_steps` is the number of steps given to `choose`. With
                None that number is 0.
            evaluation: Whether this is the policy for evaluation, which can be exported as a program.
            record: The extras. "choice": `BehaviourExtras`; "parameters": with the policy's parameters. Both
                need `choosing.sample`.
            record_state: Whether the extras are `BehaviourExtras` with the recurrent state before each step;
                no effect if the module has no memory.
            noise_repeat: The number of steps that use the same noise, each with the policy's new output. The
                recorded density is the policy's, as if the noise were new.
            noise_scale: The factor of the standard deviation, > 0, by the number of environment steps; None
                for 1. It needs "choice" as `record`, and a module that returns a `DiagonalGaussian`.
            random_steps: The number of environment steps with uniformly random actions, before the module
                acts. It needs "choice" as `record`, a module that returns a `DiagonalGaussian`, and
                `raw_actions` with bounds.
            critic_observations: The entries of a dict of observations that the module must not get.
            device: The device of a batched environment, on which `generator` draws; None to act on arrays.

        Raises:
            ValueError: `record` is not "nothing" and `choose` is not `choosing.sample`; a module with memory
                is to act in a batched environment; or its memory has hooks.
        """
        if record != "nothing" and choose is not choosing.sample:
            raise ValueError(
                f"`choose` must be `choosing.sample` where `record` is '{record}', got {choose}: only for a "
                "sample is the recorded density right. Record nothing, or define `batch` in a subclass."
            )
        _check_memory(module)
        self._acting: Any
        if device is None:
            self._acting = acceleration.acting(module, generator)
        else:
            self._acting = acting_on_tensors.ActingOnTensors(module, generator, device)
            raw_actions = tree.map_structure(lambda kind: kind.on(device), raw_actions)
        self._is_on_tensors = device is not None
        self._remembers = self._acting.remembers
        self._choose = choose
        self._raw_actions = raw_actions
        self._counter = counter
        self._evaluation = evaluation
        self._record = record
        self._record_state = record_state
        self._noise_repeat = noise_repeat
        self._noise_scale = noise_scale
        self._random_steps = random_steps
        self.critic_observations = tuple(critic_observations)
        self._num_steps = 0
        self._noise: core.State = None  # its state before the first of the steps that repeat it

    def batch(self, observations: types.NestedArray) -> actors.PolicyOutput:
        """Chooses E actions.

        Args:
            observations: The observations, [E, ...] each leaf.

        Returns:
            The actions, [E, ...] each leaf, and extras, `BehaviourExtras` or ().

        Raises:
            ValueError: The policy has a memory, and so acts by `step`.
        """
        return super().batch(observations) if self._remembers else self._act(self.seen(observations))

    def initial_state(self, num_environments: int) -> types.NestedArray:
        return self._acting.initial_state(num_environments)

    def step(
        self, observations: types.NestedArray, state: types.NestedArray
    ) -> tuple[actors.PolicyOutput, types.NestedArray]:
        """Chooses as `batch` does, and updates the state."""
        if not self._remembers:
            return self.batch(observations), state
        features, state_after = self._acting.remember(observations, state)
        return self._act(features, state if self._record_state else ()), state_after

    def _act(self, observations: types.NestedArray, state: types.NestedArray = ()) -> actors.PolicyOutput:
        """Chooses actions from observations, or from the memory's features of them."""
        if self._noise_repeat > 1:
            self._repeat_noise()
        if self._record == "nothing":
            with torch.no_grad():
                raw = self._choose(self._acting(observations), self._acting.generator, self._env_steps())
            return actors.PolicyOutput(
                self._to_environment(raw), BehaviourExtras(state=state) if state else ()
            )
        raw, log_prob, policy = self._acting.sample(observations)
        if self._random_steps and self._env_steps() < self._random_steps:
            raw, log_prob = self._raw_actions.uniform(raw, policy)
        elif self._noise_scale is not None and (scale := self._noise_scale(self._env_steps())) != 1.0:
            raw, log_prob = self._raw_actions.spread(raw, log_prob, policy, scale)
        recorded = policy if self._record == "parameters" else ()
        if self._is_on_tensors:
            action = self._raw_actions.execute(raw)
        else:
            action, recorded = self._raw_actions.to_environment(raw), tree.map_structure(np.asarray, recorded)
        return actors.PolicyOutput(action, BehaviourExtras(log_prob, raw, recorded, state))

    def _to_environment(self, raw: types.NestedTensor) -> types.NestedArray:
        if self._is_on_tensors:
            return tree.map_structure(lambda kind, x: kind.execute(x), self._raw_actions, raw)
        if isinstance(self._raw_actions, actions.RawActions):  # the usual case, ten times as fast
            return self._raw_actions.to_environment(raw.numpy())
        return tree.map_structure(lambda kind, x: kind.to_environment(x.numpy()), self._raw_actions, raw)

    def _env_steps(self) -> int:
        return 0 if self._counter is None else int(self._counter.get_count("actor_steps"))

    def _repeat_noise(self) -> None:
        """Repeats the previous noise, except in every `noise_repeat`-th step, which draws new noise."""
        if self._num_steps % self._noise_repeat:
            self._acting.noise = self._noise
        else:
            self._noise = self._acting.noise
        self._num_steps += 1

    def __repr__(self) -> str:
        purpose = "for evaluation" if self._evaluation else "exploring"
        return f"{type(self).__name__}({readable.of_module(self.module)}, {purpose})"

    @property
    def module(self) -> nn.Module:
        """The policy's copy of the module. Changes to it take effect at the next action."""
        return self._acting.module

    def as_module(self) -> nn.Module:
        if not self._evaluation:
            raise ValueError(
                "Only a policy for evaluation can be exported as a program, but this one explores. Make it "
                "with evaluation=True, or load it with explore=False."
            )
        rule = self._choose, self._raw_actions, self._env_steps()
        module: Any = self.module
        if not self._remembers:
            return _Program(module, *rule)
        initial = tree.map_structure(torch.from_numpy, self.initial_state(1))
        return _RecurrentProgram(module, _Program(module.without_memory(), *rule), initial)

    def set_variables(self, values: list[types.NestedArray]) -> None:
        """Sets weights and statistics.

        Args:
            values: A list of one state dict: arrays by name.
        """
        (state,) = values
        self._acting.set_variables(state)

    def save(self) -> core.State:
        if self._noise_repeat == 1:
            return self._acting.noise
        return {"policy": self._acting.noise, "num_steps": self._num_steps, "noise": self._noise}

    def restore(self, state: core.State) -> None:
        if self._noise_repeat > 1:
            self._num_steps, self._noise, state = state["num_steps"], state["noise"], state["policy"]
        self._acting.restore(state)


class _Program(nn.Module):
    """A module from observations to the actions that a policy executes, on tensors."""

    def __init__(self, module: nn.Module, choose: choosing.Choose, raw_actions: Any, env_steps: int) -> None:
        super().__init__()
        self._module = module
        self._choose = choose
        self._raw_actions = raw_actions
        self._env_steps = env_steps

    def forward(self, observations: types.NestedTensor) -> types.NestedTensor:
        output = networks.policy_of(self._module)(observations)
        raw = self._choose(output, torch.default_generator, self._env_steps)
        return tree.map_structure(lambda kind, x: kind.execute(x), self._raw_actions, raw)


class _RecurrentProgram(nn.Module):
    """A module from observations, a state and where episodes start to actions and the next state."""

    def __init__(self, module: nn.Module, program: _Program, initial: tuple[torch.Tensor, ...]) -> None:
        """Takes the parts.

        Args:
            module: The module with memory.
            program: Acts on the memory's features.
            initial: The state at the start of an episode, [1, ...] each.
        """
        super().__init__()
        self._module: Any = module
        self._program = program
        self._initial = nn.ParameterList(nn.Parameter(part, requires_grad=False) for part in initial)

    def forward(
        self, observations: types.NestedTensor, state: tuple[torch.Tensor, ...], start: torch.Tensor
    ) -> tuple[types.NestedTensor, tuple[torch.Tensor, ...]]:
        state = tuple(
            torch.where(start.view(-1, *[1] * (kept.ndim - 1)), new, kept)
            for new, kept in zip(self._initial, state, strict=True)
        )
        features, state = self._module.remember(observations, state)
        return self._program(features), state
