"""The one entry: chooses between the plain way to compute something and a faster one."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import torch
from torch import nn

from minerva_acme.acceleration import acting, array_ppo, kernels, notes, parallel, target_critic
from minerva_acme.acceleration.agreement import Agreement

Mode = Literal["auto", "off"]
Network = TypeVar("Network", bound=nn.Module)

# Multiplications of a forward pass below which torch's threads lose more by waiting for each other
# than they gain: the update of such a network is left to one.
_SMALL_UPDATE = 2**28


# What makes an update, the network that it trains, and the rows of its forward pass.
Update = tuple[Callable[[], Any], nn.Module, int]


class Acceleration:
    """Makes parts that compute what the plain ones do, faster where the machine and the part allow it.

    With mode "off" everything is computed by plain torch, which is the reference.
    """

    def __init__(self, mode: Mode) -> None:
        """Notes the choice.

        Raises:
            ValueError: the mode is unknown.
        """
        if mode not in ("auto", "off"):
            raise ValueError(f"`acceleration` must be auto or off, got '{mode}'.")
        self._is_on = mode == "auto"

    def network(self, name: str, network: Network) -> Network:
        """Gives the layers of a network faster kernels, in place; parameters and hooks stay.

        Args:
            name: for the log.
            network: to be trained.
        """
        if not any(True for _ in network.parameters()):
            return network  # Nothing to compute, nothing to say.
        if not self._is_on:
            notes.say(name, "plain torch: acceleration is off")
        elif not kernels.uses_onednn():
            notes.say(name, "plain torch: its kernels are the fast ones on this CPU")
        else:
            changed = kernels.use_kernels(network)
            notes.say(name, f"oneDNN for {changed} layers" if changed else "plain torch: no layer is known")
        return network

    def acting(self, module: nn.Module, generator: torch.Generator) -> acting.Acting:
        """A module to act by; see `acting.Acting`."""
        return acting.Acting(module, generator, accelerated=self._is_on)

    def target_critic(
        self, critic: nn.Module, precision: target_critic.Precision
    ) -> target_critic.TargetCritic:
        """A critic without gradient; see `target_critic.TargetCritic`."""
        if self._is_on:
            _keep_freed_memory()
        return target_critic.TargetCritic(critic, precision=precision, accelerated=self._is_on)

    def side_by_side(self, *updates: Update) -> list[Any]:
        """Makes updates at once, each by one thread, if all are small and on a CPU; else one by one.

        Args:
            *updates: they must not touch each other's data.

        Returns:
            What they return, in order.
        """
        small = [self._is_on and _is_small(update) for update in updates]
        reason = self._why_one_by_one(updates, all(small))
        if not reason:
            notes.say("updates", "side by side, by one thread each")
            return parallel.run_together(*(make for make, _, _ in updates))
        notes.say("updates", f"one by one: {reason}")
        results = []
        for (make, _, _), is_small in zip(updates, small, strict=True):
            with parallel.one_thread() if is_small else contextlib.nullcontext():
                results.append(make())
        return results

    def _why_one_by_one(self, updates: Sequence[Update], are_small: bool) -> str:
        if not self._is_on:
            return "acceleration is off"
        if not are_small:
            return "they are large, or not on a CPU"
        if _share_parameters(updates):
            return "they share parameters"
        return "torch has one thread" if torch.get_num_threads() == 1 else ""

    def ppo_step(
        self,
        plain: array_ppo.Step,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        agreement: Agreement,
        **settings: Any,
    ) -> contextlib.AbstractContextManager[array_ppo.Step]:
        """Gradient steps of PPO on minibatches; see `array_ppo.make_step`."""
        if self._is_on:
            return array_ppo.make_step(plain, network, optimizer, agreement=agreement, **settings)
        notes.say("PPO's updates", "autograd: acceleration is off")
        return contextlib.nullcontext(plain)


def _is_small(update: Update) -> bool:
    _, network, num_rows = update
    parameters = [*network.parameters()]
    size = num_rows * sum(parameter.numel() for parameter in parameters)
    return parameters[0].device.type == "cpu" and size < _SMALL_UPDATE


def _share_parameters(updates: Sequence[Update]) -> bool:
    parameters = [{id(parameter) for parameter in network.parameters()} for _, network, _ in updates]
    return len(set().union(*parameters)) < sum(map(len, parameters))


def _keep_freed_memory() -> None:
    """Makes glibc keep twice 31 MB of freed memory, instead of asking the kernel for it again.

    It learns from the largest block that was freed, up to 32 MB. Otherwise it returns the pages after each
    part of a step and touches them anew, which costs a sixth of a learner step's CPU time.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8)
