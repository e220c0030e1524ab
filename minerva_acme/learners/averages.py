"""Averages of networks over the learner's steps."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from minerva_acme.learners import parts, targets


class Averages(parts.Part):
    """Averages the weights of some of a learner's modules over its steps, each as a module `average_NAME`.

        average <- average + max(rate, 1 / n) (weights - average)    after step n

    So it is the plain mean of the first 1 / `rate` steps, and then forgets older weights at this rate.
    Buffers, such as running statistics, are copied. Training does not depend on it.

    Source: Polyak and Juditsky 1992, "Acceleration of stochastic approximation by averaging".
    """

    def __init__(self, names: Sequence[str], rate: float) -> None:
        """Takes the names of modules, and a rate in [0, 1]: with 0, nothing is ever forgotten.

        `add_modules` raises a KeyError if the learner has no module of such a name.
        """
        self._names = names
        self._rate = rate
        self._pairs: list[tuple[nn.Module, nn.Module]] = []

    def add_modules(self, modules: Mapping[str, nn.Module]) -> Mapping[str, nn.Module]:
        self._pairs = [(targets.make_target(modules[name]), modules[name]) for name in self._names]
        return {average_of(name): slow for name, (slow, _) in zip(self._names, self._pairs, strict=True)}

    def after(self, batch: Any, metrics: Mapping[str, Any], num_steps: int) -> None:
        rate = max(self._rate, 1.0 / (num_steps + 1))
        for slow, fast in self._pairs:
            targets.update_target(slow, fast, num_steps, rate=rate)


def average_of(name: str) -> str:
    """Returns the name of the average of a module."""
    return f"average_{name}"
