"""Rules for choosing actions from a module's output for an observation.

Shapes: E environments; K actions; D action dimensions.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from minerva_acme import specs
from minerva_acme.agents.schedules import Schedule

Choose: TypeAlias = Callable[[Any, torch.Generator, int], Any]
"""Chooses the actions [E, ...] from a module's output for E observations.

It is given a generator to draw from, and the number of environment steps that the run has made so far, for
schedules. Actions need not be within their bounds: the policy clips them.
"""


def sample(output: Any, generator: torch.Generator, env_steps: int) -> torch.Tensor:
    """Draws a sample of the distribution that the module returns."""
    return output.sample(generator)


def mode(output: Any, generator: torch.Generator, env_steps: int) -> torch.Tensor:
    """Returns the mode of the distribution that the module returns, or the action if it returns one."""
    return output if isinstance(output, torch.Tensor) else output.mode()


def argmax(output: Any, generator: torch.Generator, env_steps: int) -> torch.Tensor:
    """Returns the action with the highest value, or the first of several, for a module of values [E, K].

    The module may also return a `networks.Prediction` of the values.
    """
    return _values(output).argmax(dim=-1)


def epsilon_greedy(epsilon: Schedule) -> Choose:
    """Returns a rule that chooses by `argmax` or, with probability `epsilon`, uniformly among K actions."""

    def choose(output: Any, generator: torch.Generator, env_steps: int) -> torch.Tensor:
        best = argmax(output, generator, env_steps)
        share = epsilon(env_steps)
        chances = torch.rand(len(best), generator=generator, device=best.device)
        # The usual case; the rest takes longer than this. Another device is not waited for.
        if best.device.type == "cpu" and min(chances.tolist()) >= share:
            return best
        drawn = _draw(output, best, generator)
        return torch.where(chances < share, drawn, best)

    return choose


def epsilon_greedy_each(epsilons: Sequence[float]) -> Choose:
    """Returns the rule of `epsilon_greedy` with a share, in [0, 1], for each environment.

    If it acts in more environments than there are shares, it begins again with the first share.
    """
    all_shares = torch.tensor([*epsilons])

    def choose(output: Any, generator: torch.Generator, env_steps: int) -> torch.Tensor:
        best = argmax(output, generator, env_steps)
        drawn = _draw(output, best, generator)
        chances = torch.rand(best.shape, generator=generator, device=best.device)
        shares = all_shares  # [E]
        if len(best) != len(shares):
            shares = shares[torch.arange(len(best)) % len(shares)]
        return torch.where(chances < shares.to(best.device, non_blocking=True), drawn, best)

    return choose


def _draw(output: Any, best: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Draws actions uniformly, [E] like `best`."""
    return torch.randint(_values(output).shape[-1], best.shape, generator=generator, device=best.device)


def _values(output: Any) -> torch.Tensor:
    values: torch.Tensor = output if isinstance(output, torch.Tensor) else output.mean()
    return values


def gaussian_noise(stddev: Schedule, scale: torch.Tensor | float = 1.0) -> Choose:
    """Returns a rule that adds Gaussian noise to `mode`.

    Args:
        stddev: The noise's standard deviation, in units of `scale`.
        scale: The unit of each dimension, [D], such as half the range of the action; 1.0 is the action's own.
    """

    def choose(output: Any, generator: torch.Generator, env_steps: int) -> torch.Tensor:
        action = mode(output, generator, env_steps)
        noise = torch.randn(action.shape, generator=generator, device=action.device)
        unit = scale.to(action.device, non_blocking=True) if isinstance(scale, torch.Tensor) else scale
        return action + stddev(env_steps) * unit * noise

    return choose


def half_range(action_spec: specs.BoundedArray) -> torch.Tensor:
    """Returns half the range from the smallest to the largest action, [D], a unit of noise for any bounds."""
    low, high = specs.bounds(action_spec)
    return torch.from_numpy(0.5 * (high - low))


def random_at_first(num_steps: int, action_spec: specs.BoundedArray, choose: Choose) -> Choose:
    """Returns a rule of uniform random actions for the first `num_steps` environment steps, then `choose`.

    Args:
        num_steps: The number of environment steps.
        action_spec: The spec of the actions, with finite bounds.
        choose: Chooses the actions afterwards. It is called from the first step on.
    """
    low, high = (torch.from_numpy(bound) for bound in specs.bounds(action_spec))

    def explore(output: Any, generator: torch.Generator, env_steps: int) -> torch.Tensor:
        action: torch.Tensor = choose(output, generator, env_steps)
        if env_steps >= num_steps:
            return action
        share = torch.rand(action.shape, generator=generator, device=action.device)
        least, extent = (x.to(action.device, non_blocking=True) for x in (low, high - low))
        return least + extent * share

    return explore
