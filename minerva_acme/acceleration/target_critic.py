"""Evaluates a target critic without gradient, some rows at a time.

Shapes: O observation size, D action dimensions, F features, R rows; `...` any leading axes.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import nn

from minerva_acme import networks
from minerva_acme.acceleration import cpu, notes, parallel
from minerva_acme.acceleration.agreement import is_called_as_written

Precision = Literal["float32", "bfloat16"]

# 512 units of this many rows are 4 MB. Fewer rows make products slower; all at once would leave the caches.
_MAX_ROWS = 2048
# The number of multiplications from which several threads gain more than they lose by waiting for each other:
# a step of MPO took 0.94 of the time with 2**28.6 and 2**29, and 1.1 with 2**27.
_LARGE = 2**28

_PART = "target critic"

_CRITIC, _ENSEMBLE = networks.Critic.forward, networks.Ensemble.forward


class TargetCritic:
    """A critic without gradient.

    On a CPU with AVX-512, the torso of a `networks.Critic`, or of each one in an `Ensemble`, is called with
    rows that fit into the CPU's cache; if there is much to compute, by threads that each compute alone. A
    critic of another class, one with hooks, and one in training mode are called as a whole.

    In bfloat16, torch rounds the factors of all products, and sums and stores results in float32. So values
    near 100 are not rounded to halves: the E-step depends only on differences of values.
    """

    def __init__(
        self, critic: nn.Module, *, precision: Precision = "float32", accelerated: bool = True
    ) -> None:
        """Takes the critic.

        Args:
            critic: (observation [..., O], action [..., D]) -> prediction [...], or a critic of another form;
                it is kept, not copied.
            precision: The precision of products. If the critic is not on a CPU with instructions for
                bfloat16, it stays float32, and a warning says so.
            accelerated: Whether a way other than calling the critic may be taken.
        """
        self._critic = critic
        on_cpu = next(critic.parameters()).device.type == "cpu"
        # On a Zen 3, without AVX-512, a step of MPO took 1.05 to 1.1 times as long with parts.
        self._reason = "" if on_cpu and cpu.has_avx512() else "parts are faster only on CPUs with AVX-512"
        if not accelerated:
            self._reason = "acceleration is off"
        if precision == "bfloat16" and not (on_cpu and cpu.multiplies_bfloat16()):
            notes.warn(
                _PART,
                "float32: bfloat16 needs a CPU with instructions for it; emulating them would be several "
                "times slower",
            )
            precision = "float32"
        self._precision: Precision = precision
        reason = self._why_whole(critic)
        notes.say(
            _PART, f"{precision}, " + (f"as a whole: {reason}" if reason else "rows shared between threads")
        )

    @torch.no_grad()
    def __call__(self, observation: torch.Tensor, *action: torch.Tensor) -> Any:
        """Evaluates the critic, without gradient.

        Args:
            observation: The observations, [..., O].
            *action: The actions, [..., D], or [N, ..., D] for N actions in each state. Left out for discrete
                actions: such a critic evaluates all of them at once.

        Returns:
            The critic's prediction, with the leading axes of the action, or of the observation without one.
        """
        with _products_in(self._precision):
            return self._evaluate(self._critic, observation, *action)

    def _evaluate(self, critic: Any, observation: torch.Tensor, *action: torch.Tensor) -> Any:
        if self._why_whole(critic):
            return critic(observation, *action)
        if isinstance(critic, networks.Ensemble):
            members = tuple(self._evaluate(member, observation, *action) for member in critic.members)
            return networks.EnsemblePrediction(members, critic.rule)
        inputs = critic.inputs(observation, *action)
        rows_RI = inputs.reshape(-1, inputs.shape[-1])
        is_large = parallel.size(critic.torso.parameters(), len(rows_RI)) >= _LARGE
        features_RF = parallel.map_rows(
            critic.torso, rows_RI, max_rows=_MAX_ROWS, num_threads=None if is_large else 1
        )
        return critic.head(features_RF.view(*inputs.shape[:-1], features_RF.shape[-1]))

    def _why_whole(self, critic: nn.Module) -> str:
        """Explains why a critic is called as a whole; empty if its torso may see some rows at a time."""
        if self._reason:
            return self._reason
        if not isinstance(critic, networks.Critic | networks.Ensemble):
            return f"{type(critic).__name__} is not a networks.Critic"
        if type(critic).forward not in (_CRITIC, _ENSEMBLE):
            return f"{type(critic).__name__} has another forward"
        if not is_called_as_written(critic):
            return "it has hooks"
        if any(part.training for part in critic.modules()):
            return "it is in training mode"  # Batch norm would normalise each part by itself.
        return ""


@contextlib.contextmanager
def _products_in(precision: Precision) -> Iterator[None]:
    """Makes torch's float32 products on the CPU round their factors to `precision` within the block."""
    if precision == "float32":
        yield
        return
    backend: Any = torch.backends.mkldnn
    setting = backend.matmul
    before = setting.fp32_precision
    setting.fp32_precision = "bf16"
    try:
        yield
    finally:
        setting.fp32_precision = before
