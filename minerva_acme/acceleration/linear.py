"""A linear layer that is fast on CPUs that MKL is slow on.

Shapes: R rows; `...` any leading axes.

Torch multiplies float32 matrices on x86 with Intel's MKL, which keeps its best kernels for Intel's
own CPUs. The oneDNN that torch also carries has no such preference: on an AMD EPYC with AVX-512, one
thread, [10240, 256] x [256, 256] took 7.4 ms instead of 15.7. Torch offers no switch, so the layer
calls oneDNN's kernel itself where MKL is slow. The results differ by float32 rounding.

The choice hangs on the CPU and never on a timing, so that a seed gives the same numbers twice. The
environment variable `MINERVA_LINEAR`, read when this module is imported, makes it: `torch` or
`onednn`.
"""

import math
import os
import pathlib
import platform
from typing import Any, cast

import torch
from torch import nn

_VARIABLE = "MINERVA_LINEAR"

# Multiply-adds from which on oneDNN wins: 32 rows through 256 x 256. Below, its cost per call does
# not pay, and a single observation (acting) is 10 microseconds faster through torch.
_MIN_SIZE = 2**21


class Linear(nn.Linear):
    """`torch.nn.Linear`, state dict included, with other kernels and a generator for its weights.

    Weights and bias start uniform in +-1 / sqrt(in_features), as torch's do. The bias is not left at
    zero: in front of a LayerNorm the layer would be blind to the scale of its input.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        # Torch draws weights of its own here, which must not move the global generator.
        with torch.random.fork_rng(devices=[]):
            super().__init__(in_features, out_features, bias)
        bound = 1.0 / math.sqrt(in_features)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """x W^T + b, [..., in_features] -> [..., out_features]."""
        return linear(input, self.weight, self.bias)


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """`torch.nn.functional.linear` by the faster kernel, differentiable as often as that.

    Args:
        x: [..., I].
        weight: [O, I].
        bias: [O], or None.

    Returns:
        x W^T + b, [..., O].
    """
    if not (_USE_ONEDNN and _suits_onednn(x, weight)):
        return nn.functional.linear(x, weight, bias)
    # Rows that lie apart would go through a kernel a hundred times slower, now or as the transposed
    # factor of the weights' gradient.
    rows_RI = x.reshape(-1, x.shape[-1]).contiguous()
    # Without gradients the autograd function would cost some 10 microseconds for nothing.
    function = _OneDNNLinear.apply if torch.is_grad_enabled() else _onednn_linear
    output_RO: torch.Tensor = function(rows_RI, weight, bias)
    # As torch's own does: activations in place would be slow to differentiate behind a plain view.
    output: torch.Tensor = torch.ops.aten._unsafe_view(output_RO, [*x.shape[:-1], weight.shape[0]])
    return output


def uses_onednn() -> bool:
    """Whether large float32 products on this CPU go through oneDNN."""
    return _USE_ONEDNN


def _suits_onednn(x: torch.Tensor, weight: torch.Tensor) -> bool:
    return (
        x.numel() * weight.shape[0] >= _MIN_SIZE
        and x.shape[-1] == weight.shape[1]  # or else torch's own error, which names the sizes
        and x.dtype == weight.dtype == torch.float32
        and x.device.type == weight.device.type == "cpu"
        # Autocast and the compilers know torch's own operator and would not see through this one.
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


class _OneDNNLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x_RI: torch.Tensor, weight_OI: torch.Tensor, bias_O: torch.Tensor | None
    ) -> torch.Tensor:
        ctx.save_for_backward(x_RI, weight_OI)
        return _onednn_linear(x_RI, weight_OI, bias_O)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (grad_RO,) = grad_outputs
        x_RI, weight_OI = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        # Products by `linear` again, which makes second derivatives right.
        return (
            linear(grad_RO, weight_OI.T, None) if needs_x else None,
            linear(grad_RO.T, x_RI.T, None) if needs_weight else None,
            grad_RO.sum(dim=0) if needs_bias else None,
        )


def _onednn_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return cast(torch.Tensor, torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], ""))


def _onednn_works() -> bool:
    """Whether this build of torch has the operator, which is private, with the meaning it has today."""
    x, weight, bias = torch.arange(6.0).view(2, 3), torch.arange(12.0).view(4, 3), torch.arange(4.0)
    try:
        result = _onednn_linear(x, weight, bias)
    except (AttributeError, RuntimeError, TypeError):
        return False
    return torch.equal(result, x @ weight.T + bias)


def _mkl_is_slow() -> bool:
    """Whether torch multiplies by MKL on an x86 CPU of another maker. Known on Linux alone."""
    has_mkl: bool = torch.backends.mkl.is_available()
    if platform.machine() != "x86_64" or not has_mkl:
        return False
    try:
        return "GenuineIntel" not in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False


def _choose_onednn() -> bool:
    choice = os.environ.get(_VARIABLE, "")
    if choice not in ("", "torch", "onednn"):
        raise ValueError(
            f"`{_VARIABLE}` must be `torch` or `onednn`, got `{choice}`. Unset it and the CPU decides."
        )
    if choice == "onednn" and not _onednn_works():
        raise ValueError(
            f"`{_VARIABLE}` must not be `onednn` with torch {torch.__version__}, which has no such kernel. "
            "Unset it."
        )
    return choice == "onednn" or (choice == "" and _mkl_is_slow() and _onednn_works())


_USE_ONEDNN = _choose_onednn()
