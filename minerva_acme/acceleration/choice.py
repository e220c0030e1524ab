"""The single entry point, which chooses between the plain way to compute something and a faster one."""

import contextlib
import os
import pickle
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import nn

from minerva_acme.acceleration import acting, array_ppo, compiled, kernels, notes, parallel, target_critic
from minerva_acme.acceleration.agreement import Agreement

Mode = Literal["auto", "off", "compile"]
Network = TypeVar("Network", bound=nn.Module)
Output = TypeVar("Output", bound=tuple[Any, ...])

# The number of multiplications in a forward pass below which torch's threads lose more time by waiting for
# each other than they gain: one thread computes each operation then. On two cores of a Xeon, two threads took
# 1.84 times as long as one for SAC (2**25), 1.07 for four times its batch (2**27) and 0.82 for eight (2**29).
_SMALL_UPDATE = 2**28
# The same number below which even whole updates lose more by waiting for each other than they gain.
_TINY_UPDATE = 2**26

# Read the states of the generators that all threads share.
_GENERATORS: tuple[Callable[[], Any], ...] = (
    lambda: bytes(torch.default_generator.get_state().numpy()),
    random.getstate,
    lambda: pickle.dumps(np.random.get_state(legacy=False)),
)

# The function that makes an update, the parameters that it trains, and the rows of its forward pass.
Update = tuple[Callable[[], Any], Sequence[nn.Parameter], int]


class Acceleration:
    """Makes parts that compute the same as the plain ones, faster if the machine and the part allow it.

    With mode "off", everything is computed by plain torch, which is the reference. With "compile", losses and
    their gradients are compiled; everything else is as with "auto".
    """

    def __init__(self, mode: Mode, *, backend: str | None = None) -> None:
        """Stores the mode and the backend.

        Args:
            mode: The mode.
            backend: The backend of torch.compile; None uses the environment variable
                MINERVA_COMPILE_BACKEND or, if it is not set, inductor.

        Raises:
            ValueError: The mode is unknown.
        """
        if mode not in ("auto", "off", "compile"):
            raise ValueError(f"`acceleration` must be auto, off or compile, got '{mode}'.")
        self._is_on = mode != "off"
        self._updates_draw: bool | None = None  # from a generator of all threads; None: not yet seen
        backend = backend or os.environ.get("MINERVA_COMPILE_BACKEND") or "inductor"
        self._backend = backend if mode == "compile" else None

    @property
    def compiles(self) -> bool:
        """True if losses are compiled."""
        return self._backend is not None

    def loss(
        self,
        part: str,
        *,
        loss: Callable[..., Output],
        plain: Callable[..., Output],
        modules: Iterable[nn.Module],
        parameters: Callable[[], Sequence[nn.Parameter]],
        why_plain: str = "",
    ) -> compiled.DifferentiatedLoss[Output]:
        """Makes a loss with its gradients; see `compiled.DifferentiatedLoss`.

        With a reason `why_plain`, it is not compiled.
        """
        if self.compiles and why_plain:
            notes.say(part, f"plain torch: {why_plain}")
        backend = None if why_plain else self._backend
        return compiled.DifferentiatedLoss(
            part, loss=loss, plain=plain, modules=modules, parameters=parameters, backend=backend
        )

    def network(self, name: str, network: Network) -> Network:
        """Gives the layers of a network faster kernels, in place; parameters and hooks stay.

        Args:
            name: The network's name, for the log.
            network: The network, which will be trained.
        """
        if not any(True for _ in network.parameters()):
            return network  # Nothing to compute, nothing to log.
        if not self._is_on:
            notes.say(name, "plain torch: acceleration is off")
        elif not kernels.uses_onednn():
            notes.say(name, "plain torch: its kernels are the faster ones on this CPU")
        else:
            changed = kernels.use_kernels(network)
            notes.say(name, f"oneDNN for {changed} layers" if changed else "plain torch: no supported layer")
        return network

    def acting(self, module: nn.Module, generator: torch.Generator) -> acting.Acting:
        """Makes a module to act with; see `acting.Acting`."""
        return acting.Acting(module, generator, accelerated=self._is_on)

    def target_critic(
        self, critic: nn.Module, precision: target_critic.Precision
    ) -> target_critic.TargetCritic:
        """Makes a critic without gradient; see `target_critic.TargetCritic`."""
        if self._is_on:
            _keep_freed_memory()
        return target_critic.TargetCritic(critic, precision=precision, accelerated=self._is_on)

    def step(
        self, parameters: Sequence[nn.Parameter], num_rows: int
    ) -> contextlib.AbstractContextManager[None]:
        """Makes torch use one thread for each operation of a small learner step, within the block.

        Threads that spin while they wait (OMP_WAIT_POLICY=ACTIVE) lose no time, so they stay. The result
        depends on sizes and settings alone, so that a seed gives the same numbers again.

        Args:
            parameters: The parameters of the largest update.
            num_rows: The rows of its forward pass.
        """
        if torch.get_num_threads() == 1 or parallel.size(parameters, num_rows) >= _SMALL_UPDATE:
            return contextlib.nullcontext()
        if os.environ.get("OMP_WAIT_POLICY", "").upper() == "ACTIVE":
            return contextlib.nullcontext()
        notes.say("threads", "one for each operation, since learner steps are small")
        return parallel.one_thread()

    def side_by_side(self, *updates: Update, in_order: bool = False) -> list[Any]:
        """Makes updates at the same time, each on one thread, if all are small and on a CPU; else one by one.

        Updates that draw random numbers from a generator of all threads would get them in any order. So the
        first ones are made one by one, and all are if a number was drawn. So are those within a mode of torch
        that other threads do not have, such as autocast.

        Args:
            *updates: The updates, which must not touch each other's data.
            in_order: True if they must be made one by one, because several learners make each together.

        Returns:
            Their results, in order.
        """
        sizes = [parallel.size(parameters, num_rows) for _, parameters, num_rows in updates]
        small = [self._is_on and size < _SMALL_UPDATE for size in sizes]
        reason = self._why_one_by_one(updates, max(sizes), in_order)
        if reason:
            notes.say("updates", f"one by one: {reason}")
            return _one_by_one(updates, small)
        # Only the first time also NumPy's and Python's, whose states take a tenth of a millisecond to read.
        generators = _GENERATORS if self._updates_draw is None else _GENERATORS[:1]
        before = [read() for read in generators]
        if self._updates_draw is None:
            results = _one_by_one(updates, small)
        else:
            notes.say("updates", "side by side, one thread each")
            results = parallel.run_together(*(make for make, _, _ in updates))
        self._updates_draw = [read() for read in generators] != before
        return results

    def _why_one_by_one(self, updates: Sequence[Update], largest: float, in_order: bool) -> str:
        if not self._is_on:
            return "acceleration is off"
        if largest >= _SMALL_UPDATE:
            return "they are large, or not on a CPU"
        if largest < _TINY_UPDATE:
            return "they are too small to wait for each other"
        if _share_parameters(updates):
            return "they share parameters"
        if in_order:
            return "several learners make them together"
        if self.compiles:
            return "they are compiled"
        if self._updates_draw:
            return "they draw random numbers"
        if parallel.has_mode():
            return "a mode of torch is active in this thread alone, such as autocast"
        return "torch has one thread" if parallel.available() == 1 else ""

    def ppo_step(
        self,
        plain: array_ppo.Step,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        agreement: Agreement,
        alone: bool = True,
        **settings: Any,
    ) -> contextlib.AbstractContextManager[array_ppo.Step]:
        """Makes PPO's gradient steps on minibatches; see `array_ppo.make_step`.

        With several learners, which average their gradients (`alone` is False), the steps are the plain ones.
        """
        if self.compiles:
            return contextlib.nullcontext(plain)
        if not alone:
            notes.say("PPO's updates", "autograd: several learners average their gradients")
            return contextlib.nullcontext(plain)
        if self._is_on:
            return array_ppo.make_step(plain, network, optimizer, agreement=agreement, **settings)
        notes.say("PPO's updates", "autograd: acceleration is off")
        return contextlib.nullcontext(plain)


def _one_by_one(updates: Sequence[Update], are_small: Sequence[bool]) -> list[Any]:
    results = []
    for (make, _, _), is_small in zip(updates, are_small, strict=True):
        with parallel.one_thread() if is_small else contextlib.nullcontext():
            results.append(make())
    return results


def _share_parameters(updates: Sequence[Update]) -> bool:
    every = [{*map(id, parameters)} for _, parameters, _ in updates]
    return len(set().union(*every)) < sum(map(len, every))


def _keep_freed_memory() -> None:
    """Makes glibc keep up to 62 MB of freed memory, instead of asking the kernel for it again.

    glibc learns from the largest freed block, up to 32 MB, and keeps twice its size. Otherwise it returns the
    pages after each part of a step and maps them again, which costs a sixth of a learner step's CPU time.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8)
