"""Torch's Adam and AdamW, without the import of torch's compiler.

Torch decorates an optimiser's methods so that its compiler leaves them alone, and each decorator imports the
compiler before the first step: two seconds of CPU time and 70 MB. The steps are torch's own, so there is no
switch and no log line.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch

_STEP = inspect.unwrap(torch.optim.Adam.step)


class _WithoutCompiler(torch.optim.Optimizer):
    """An optimiser with torch's steps and state."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)

    def __init__(self, groups: list[dict[str, Any]], *, eps: float, fused: bool = True) -> None:
        """Makes the optimiser.

        Args:
            groups: The groups of parameters, each with its learning rate and its `weight_decay`, 0 if left
                out.
            eps: Adam's epsilon.
            fused: Whether to use torch's fused kernel, which needs contiguous parameters.

        Raises:
            ValueError: A learning rate, a decay or `eps` is negative.
        """
        # AdamW's own default is not 0.
        super().__init__(groups, eps=eps, weight_decay=0.0, fused=fused)  # type: ignore[call-arg]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Makes a step; returns the closure's result, if given. The closure may recompute the gradients."""
        with torch.no_grad():
            return _STEP(self, closure)


class Adam(_WithoutCompiler, torch.optim.Adam):
    """`torch.optim.Adam(fused=True)`.

    Source: Kingma and Ba 2015, "Adam: a method for stochastic optimization".
    """


class AdamW(_WithoutCompiler, torch.optim.AdamW):
    """`torch.optim.AdamW(fused=True)`.

    Source: Loshchilov and Hutter 2019, "Decoupled weight decay regularization".
    """
