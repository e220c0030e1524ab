"""Acting by any module, and how actions are chosen from what it says.

Shapes: E environments; K actions.
"""

import copy
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
import tree
from torch import nn

from minerva_acme import acceleration, actors, builders, core, counting, specs, types
from minerva_acme.agents.off_policy.schedules import Schedule

Choose: TypeAlias = Callable[[Any, torch.Generator, int], Any]
"""Chooses the actions [E, ...] from what a module says of E observations.

It is given a generator for what it draws, and how many environment steps the run has made so far, for
schedules. Actions need not be within their bounds: the policy clips them.
"""


def sample(output: Any, generator: torch.Generator, env_steps: int) -> torch.Tensor:
    """A sample of the distribution that the module returns."""
    return output.sample(generator)


def mode(output: Any, generator: torch.Generator, env_steps: int) -> torch.Tensor:
    """The mode of the distribution that the module returns; the action, where it returns that."""
    return output if isinstance(output, torch.Tensor) else output.mode()


def argmax(output: Any, generator: torch.Generator, env_steps: int) -> torch.Tensor:
    """The action with the highest value of a module that returns values [E, K], the first of several.

    In the place of values it may return a `networks.Prediction` of them.
    """
    return _values(output).argmax(dim=-1)


def epsilon_greedy(epsilon: Schedule) -> Choose:
    """`argmax`, or with probability `epsilon` one of all K actions, each as likely."""

    def choose(output: Any, generator: torch.Generator, env_steps: int) -> torch.Tensor:
        best = argmax(output, generator, env_steps)
        share = epsilon(env_steps)
        chances = torch.rand(len(best), generator=generator)
        if min(chances.tolist()) >= share:  # the usual case; the rest takes longer than this
            return best
        drawn = torch.randint(_values(output).shape[-1], best.shape, generator=generator)
        return torch.where(chances < share, drawn, best)

    return choose


def _values(output: Any) -> torch.Tensor:
    values: torch.Tensor = output if isinstance(output, torch.Tensor) else output.mean()
    return values


def gaussian_noise(stddev: Schedule, scale: torch.Tensor | float = 1.0) -> Choose:
    """`mode` and Gaussian noise.

    Args:
        stddev: its standard deviation, in units of `scale`.
        scale: for each dimension, such as half the range of the action, [D]; 1.0: units of the action.
    """

    def choose(output: Any, generator: torch.Generator, env_steps: int) -> torch.Tensor:
        action = mode(output, generator, env_steps)
        return action + stddev(env_steps) * scale * torch.randn(action.shape, generator=generator)

    return choose


def half_range(action_spec: specs.BoundedArray) -> torch.Tensor:
    """Half the way from the smallest to the largest action, [D]: noise in these units suits any bounds."""
    low, high = specs.bounds(action_spec)
    return torch.from_numpy(0.5 * (high - low))


def random_at_first(num_steps: int, action_spec: specs.BoundedArray, choose: Choose) -> Choose:
    """Actions uniform within their finite bounds for so many environment steps, then as `choose` says."""
    low, high = (torch.from_numpy(bound) for bound in specs.bounds(action_spec))

    def explore(output: Any, generator: torch.Generator, env_steps: int) -> torch.Tensor:
        action: torch.Tensor = choose(output, generator, env_steps)
        if env_steps >= num_steps:
            return action
        return low + (high - low) * torch.rand(action.shape, generator=generator)

    return explore


class ModulePolicy(builders.AgentPolicy):
    """Acts by a module from observations [E, ...], any nest, to a distribution, an action or values.

    It has a copy of the module, on the CPU, whose weights come from a variable source.
    """

    def __init__(
        self,
        *,
        module: nn.Module,
        choose: Choose,
        action_spec: types.NestedSpec,
        generator: torch.Generator,
        counter: counting.Counter | None,
        mode: acceleration.Mode = "auto",
    ) -> None:
        """Makes the policy.

        Args:
            module: what to act by; copied.
            choose: how actions are chosen from what it says.
            action_spec: gives the actions their dtype and bounds.
            generator: for `choose`; saved.
            counter: of the run; None: `choose` sees 0 steps always.
            mode: whether arrays may compute what the module says.
        """
        module = copy.deepcopy(module).to("cpu").requires_grad_(False).eval()
        self._weights = module.state_dict()
        self._call = acceleration.Acceleration(mode).acting_module(module)
        self._choose = choose
        # What each leaf of an action must be, once: a spec makes its bounds anew each time it is asked.
        self._conforming = tree.map_structure(_conformer, action_spec)
        self._generator = generator
        self._counter = counter

    @torch.no_grad()
    def batch(self, observations: types.NestedArray) -> actors.PolicyOutput:
        """Args: observations, [E, ...] each leaf. Returns actions, [E, ...] each leaf."""
        env_steps = 0 if self._counter is None else int(self._counter.get_counts().get("actor_steps", 0))
        actions = self._choose(self._call(observations), self._generator, env_steps)
        if callable(self._conforming):
            return actors.PolicyOutput(self._conforming(actions))
        return actors.PolicyOutput(tree.map_structure(lambda f, x: f(x), self._conforming, actions))

    def set_variables(self, values: list[types.NestedArray]) -> None:
        """Sets the weights. Args: values: one state dict of arrays by name."""
        (state,) = values
        for name, weight in self._weights.items():
            weight.copy_(torch.from_numpy(state[name]))

    def save(self) -> core.State:
        return {"generator": self._generator.get_state()}

    def restore(self, state: core.State) -> None:
        self._generator.set_state(state["generator"].cpu())


def _conformer(spec: specs.Array) -> Callable[[torch.Tensor], np.ndarray]:
    """Makes a function that gives actions [E, ...] the dtype and the bounds of their spec."""
    bounds = specs.bounds(spec) if isinstance(spec, specs.BoundedArray) else None

    def conforming(action: torch.Tensor) -> np.ndarray:
        array: np.ndarray = action.numpy().astype(spec.dtype, copy=False)
        return array if bounds is None else array.clip(*bounds)

    return conforming
