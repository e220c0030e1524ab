"""Linear layers with a kernel that is faster on some CPUs.

Shapes: R rows; `...` any leading axes.

Torch multiplies float32 matrices on x86 with Intel's MKL, which keeps its best kernels for Intel's
own CPUs. The oneDNN that torch also includes has no such preference: on an AMD EPYC with AVX-512, one
thread, [10240, 256] x [256, 256] took 7.4 ms instead of 15.7. Torch offers no switch, so oneDNN's
kernel is called directly where MKL is slow. The results differ by float32 rounding.

Without AVX-512 both libraries use the same instructions. On an AMD EPYC of that kind (Zen 3), oneDNN took 1.1
to 2 times as long as MKL for 256 rows and for the gradients of weights. For thousands of rows it was up to a
fifth faster.
"""

import functools
from typing import Any, cast

import torch
from torch import nn

from minerva_acme.acceleration import cpu, notes

MIN_SIZE = 2**21
"""The number of multiply-adds at which oneDNN starts to win: 32 rows through 256 x 256. Below it, its cost
per call is too high, and a single observation (acting) is 10 microseconds faster through torch."""

_MIN_SIZE_OF_AVX2 = 2**28
"""The same on a CPU without AVX-512: 4096 rows through 256 x 256."""


# Torch's own; None if it was replaced before this import.
_FORWARD = nn.Linear.forward if nn.Linear.forward.__module__ == nn.Linear.__module__ else None


class Linear(nn.Linear):
    """`torch.nn.Linear` with the faster kernel."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if nn.Linear.forward is _FORWARD:
            return linear(input, self.weight, self.bias)
        if not torch.compiler.is_compiling():
            _say_that_it_was_replaced()
        output: torch.Tensor = super().forward(input)
        return output


def _say_that_it_was_replaced() -> None:
    notes.say("Linear", "plain torch: its forward was replaced")


def use_kernels(module: nn.Module) -> int:
    """Gives the linear layers of a module the kernel above, in place. Returns the number of changed layers.

    Parameters, state dict and hooks stay. Layers of a subclass, or with their own `forward`, stay too, and so
    do all if the `forward` of `nn.Linear` was replaced.
    """
    layers = [x for x in module.modules() if type(x) is nn.Linear and "forward" not in vars(x)]
    if nn.Linear.forward is not _FORWARD:
        if layers:
            _say_that_it_was_replaced()
        return 0
    for layer in layers:
        layer.__class__ = Linear
    return len(layers)


def plain_type(layer: nn.Module) -> type[nn.Module]:
    """Returns the type of a layer before `use_kernels`."""
    return nn.Linear if type(layer) is Linear else type(layer)


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Computes `torch.nn.functional.linear` with the faster kernel, differentiable any number of times.

    Args:
        x: The inputs, [..., I].
        weight: The weights, [O, I].
        bias: The biases, [O], or None.

    Returns:
        x W^T + b, [..., O].
    """
    if (
        torch.compiler.is_compiling()  # first: a compiler can trace none of the others
        or not (uses_onednn() and _suits_onednn(x, weight))
        or _is_transformed()
    ):
        return nn.functional.linear(x, weight, bias)
    # Rows that are not contiguous would go through a kernel a hundred times slower, here or as the transposed
    # factor of the weights' gradient.
    rows_RI = x.reshape(-1, x.shape[-1]).contiguous()
    # Without gradients the autograd function would waste some 10 microseconds.
    function = _OneDNNLinear.apply if torch.is_grad_enabled() else _onednn_linear
    output_RO: torch.Tensor = function(rows_RI, weight, bias)
    # Like torch's own: activations in place would be slow to differentiate behind a plain view.
    output: torch.Tensor = torch.ops.aten._unsafe_view(output_RO, [*x.shape[:-1], weight.shape[0]])
    return output


@functools.cache
def uses_onednn() -> bool:
    """Returns whether large float32 products on this CPU go through oneDNN."""
    return cpu.mkl_is_slow() and _onednn_works()


def _is_transformed() -> bool:
    """Returns whether torch derives another function from this call, which oneDNN's kernel lacks."""
    return (
        torch._C._are_functorch_transforms_active()  # torch.func: grad, vjp, jvp, vmap, ...
        or torch.autograd.forward_ad._current_level >= 0  # derivatives in forward mode
    )


def _suits_onednn(x: torch.Tensor, weight: torch.Tensor) -> bool:
    return (
        x.numel() * weight.shape[0] >= (MIN_SIZE if cpu.has_avx512() else _MIN_SIZE_OF_AVX2)
        and (cpu.has_avx512() or x.is_contiguous())  # not the gradient of weights
        and x.shape[-1] == weight.shape[1]  # else torch raises its own error, which names the sizes
        and x.dtype == weight.dtype == torch.float32
        and x.device.type == weight.device.type == "cpu"
        # Autocast knows torch's own operator but not this one; nor do the compilers.
        and not torch.is_autocast_enabled("cpu")
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
        # The products use `linear` again, so that second derivatives are right.
        return (
            linear(grad_RO, weight_OI.T, None) if needs_x else None,
            linear(grad_RO.T, x_RI.T, None) if needs_weight else None,
            grad_RO.sum(dim=0) if needs_bias else None,
        )


def _onednn_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return cast(torch.Tensor, torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], ""))


def _onednn_works() -> bool:
    """Returns whether this build of torch has the private operator, with the same meaning as today."""
    x, weight, bias = torch.arange(6.0).view(2, 3), torch.arange(12.0).view(4, 3), torch.arange(4.0)
    try:
        result = _onednn_linear(x, weight, bias)
    except (AttributeError, RuntimeError, TypeError):
        return False
    return torch.equal(result, x @ weight.T + bias)
