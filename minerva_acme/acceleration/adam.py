"""Adam and AdamW with torch's fused kernel, without torch's overhead at every step.

On a CPU a step of six small tensors is ten microseconds of arithmetic inside a hundred of checks and sorting
by device. In addition, torch imports its compiler before the first step, which takes more than a second. The
numbers equal torch's bit for bit, so there is no switch and no log line. If a group has settings that the
kernel does not support, such as `amsgrad`, torch's own step runs.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import nn
from torch.optim import optimizer


def first_state(parameter: nn.Parameter) -> dict[str, torch.Tensor]:
    """Returns the state that fused Adam keeps for a parameter before its first step."""
    zeros = torch.zeros_like(parameter, requires_grad=False)
    return {"step": torch.zeros((), device=parameter.device), "exp_avg": zeros, "exp_avg_sq": zeros.clone()}


_NUMBERS = ("lr", "weight_decay", "eps")
_OFF = ("amsgrad", "capturable", "differentiable")  # settings that must be off for the kernel to be used
_OF_NO_CONSEQUENCE = ("params", "foreach", "fused")
_DECOUPLED = "decoupled_weight_decay"
_KINDS = [(int, float)] * (len(_NUMBERS) + 2)  # of these numbers and the betas
_SETTINGS = {*_NUMBERS, *_OFF, *_OF_NO_CONSEQUENCE, "betas", "maximize", _DECOUPLED}


def is_known(optimizer: torch.optim.Optimizer) -> bool:
    """Returns whether `apply` obeys every current setting of each of an optimiser's groups."""
    if not optimizer.defaults.keys() <= _SETTINGS:  # A later version of torch may have more.
        return False
    if "found_inf" in vars(optimizer) or "grad_scale" in vars(optimizer):  # from torch's GradScaler
        return False
    for group in optimizer.param_groups:
        numbers = [*map(group.__getitem__, _NUMBERS), *group["betas"]]
        if any(map(group.__getitem__, _OFF)) or not all(map(isinstance, numbers, _KINDS)):
            return False
    return True


def apply(
    optimizer: torch.optim.Optimizer,
    group: Mapping[str, Any],
    parameters: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor | None],
    states: Sequence[Mapping[str, torch.Tensor]],
) -> None:
    """Makes a step of Adam, or of AdamW if the group's decay is decoupled, with torch's fused kernel.

    Args:
        optimizer: The optimiser, which `is_known` has approved.
        group: One of its groups, for the settings.
        parameters: Dense tensors on one device, changed in place.
        gradients: Their gradients.
        states: The states of the parameters, as made by `first_state`, changed in place.
    """
    num_steps = [state["step"] for state in states]
    torch._foreach_add_(num_steps, 1)
    beta1, beta2 = group["betas"]
    is_decoupled = isinstance(optimizer, torch.optim.AdamW)
    if _DECOUPLED in optimizer.defaults:  # It became a setting in PyTorch 2.7.
        is_decoupled = group[_DECOUPLED]
    kernel: Any = torch._fused_adamw_ if is_decoupled else torch._fused_adam_
    kernel(
        parameters,
        gradients,
        [state["exp_avg"] for state in states],
        [state["exp_avg_sq"] for state in states],
        [],
        num_steps,
        lr=group["lr"],
        beta1=beta1,
        beta2=beta2,
        weight_decay=group["weight_decay"],
        eps=group["eps"],
        amsgrad=False,
        maximize=group["maximize"],
    )


class _Direct(torch.optim.Optimizer):
    """An optimiser with torch's steps and state, bit for bit, for dense float32 parameters on one device."""

    _torchs_step: ClassVar[Callable[[Any], Any]]

    # Torch's decorator that excludes these methods from compilation imports the compiler.
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
        # Torch's wrapper around every step takes as long as the step.
        is_watched = (
            self._optimizer_step_pre_hooks
            or self._optimizer_step_post_hooks
            or optimizer._global_optimizer_pre_hooks
            or optimizer._global_optimizer_post_hooks
            or torch.autograd._profiler_enabled()  # type: ignore[attr-defined]
        )
        return self._watched_step(closure) if is_watched else self._make_step(closure)

    step.hooked = True  # type: ignore[attr-defined]  # Torch wraps only methods without this mark.

    def _make_step(self, closure: Callable[[], Any] | None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            if is_known(self) and all(group["fused"] for group in self.param_groups):
                for group in self.param_groups:
                    self._step(group)
            else:
                self._torchs_step()
        return loss

    _watched_step = torch.optim.Optimizer.profile_hook_step(_make_step)

    def _step(self, group: dict[str, Any]) -> None:
        parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
        if not parameters:
            return
        states = [self.state[parameter] for parameter in parameters]
        for parameter, state in zip(parameters, states, strict=True):
            if not state:
                state.update(first_state(parameter))
        apply(self, group, parameters, [parameter.grad for parameter in parameters], states)


class Adam(_Direct, torch.optim.Adam):
    """`torch.optim.Adam(fused=True)`.

    Source: Kingma and Ba 2015, "Adam: a method for stochastic optimization".
    """

    # Without the hooks, which have already been called.
    _torchs_step = inspect.unwrap(torch.optim.Adam.step)


class AdamW(_Direct, torch.optim.AdamW):
    """`torch.optim.AdamW(fused=True)`.

    Source: Loshchilov and Hutter 2019, "Decoupled weight decay regularization".
    """

    _torchs_step = inspect.unwrap(torch.optim.AdamW.step)
