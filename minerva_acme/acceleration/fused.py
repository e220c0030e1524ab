"""Tensor functions whose products and activations oneDNN fuses, for passes without gradient on a CPU.

An activation after a product is computed while the product's results are still in registers, instead of in
a separate pass over memory; a LayerNorm and a tanh become one pass. `docs/performance.md` has numbers.

Torch offers this only behind TorchScript, which is deprecated but has no successor for it (torch.compile
fuses activations with each other, not with products). So its presence is tested, and nothing depends on it.
"""

import functools
import logging
import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch

from minerva_acme.acceleration import kernels

_logger = logging.getLogger(__name__)

_MAX_GRAPHS = 16  # A function called with ever new shapes would be compiled forever.

# Fusing is switched on for all of TorchScript at once, so one graph is made at a time.
_making = threading.Lock()


class Fused:
    """A function, compiled once for each set of shapes and number of threads.

    The first call with some shapes gives the same numbers as later ones; they differ from the function's own
    numbers by rounding. It may be called from several threads at once.
    """

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        """Stores the function; the first call compiles it.

        Args:
            function: A function of tensors only, all contiguous and on a CPU, made of torch operations that
                depend only on their shapes.
        """
        self._function = function
        self._graphs: dict[Any, Callable[..., torch.Tensor] | None] = {}

    @torch.no_grad()
    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Computes the function's result, without gradient.

        Args:
            *tensors: The arguments of the function, contiguous and on a CPU, of any shapes that it accepts.

        Raises:
            Exception: Any exception that the function raises.
        """
        key = (torch.get_num_threads(), *(tensor.shape for tensor in tensors))
        if key not in self._graphs and len(self._graphs) < _MAX_GRAPHS:
            with _making:
                if key not in self._graphs:  # Another thread may have made it in the meantime.
                    self._graphs[key] = _make_graph(self._function, tensors)
        evaluate = self._graphs.get(key) or self._function
        return evaluate(*tensors)


def pays(dtype: torch.dtype) -> bool:
    """Returns whether fusing pays off: it works and, for float32, oneDNN's products are faster here."""
    return (dtype != torch.float32 or kernels.uses_onednn()) and works(dtype)


@functools.cache
def works(dtype: torch.dtype) -> bool:
    """Returns whether this torch, on this CPU, correctly fuses a product and an activation of the dtype."""
    x = torch.linspace(-1.0, 1.0, 256).view(16, 16).to(dtype)

    def product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.elu(torch.nn.functional.linear(x, weight))

    try:
        if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return False
        with torch.no_grad(), _making:
            graph = _make_graph(product, (x, x))
        return graph is not None and torch.allclose(graph(x, x), product(x, x), rtol=0.02, atol=1e-4)
    except (AttributeError, NotImplementedError, RuntimeError):
        return False


def _make_graph(
    function: Callable[..., torch.Tensor], tensors: tuple[torch.Tensor, ...]
) -> Callable[..., torch.Tensor] | None:
    """Returns the compiled function, or None if nothing in it could be fused."""
    before = torch.jit.onednn_fusion_enabled()
    torch.jit.enable_onednn_fusion(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            graph: Any = torch.jit.trace(lambda *args: function(*args), tensors, check_trace=False)
        for _ in range(2):  # The first call records the shapes, the second compiles for them.
            graph(*tensors)
        compiled = str(graph.graph_for(*tensors))
    except RuntimeError as error:  # It misinterprets an operation.
        _logger.info("Nothing is fused, which is slower but just as correct: %s", error)
        return None
    finally:
        torch.jit.enable_onednn_fusion(before)
    return graph if "oneDNNFusionGuard" in compiled else None
