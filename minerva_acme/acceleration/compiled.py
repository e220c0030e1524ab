"""A loss and its gradients as one program of torch.compile, used after it was seen to agree with autograd.

The program is made from the same loss function that runs without it, over functional parameters:

    torch.compile(grad_and_value(loss), fullgraph=True)
"""

import contextlib
import itertools
import textwrap
import threading
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import torch
import tree
from torch import nn
from torch.utils import _pytree as pytree

from minerva_acme.acceleration import agreement, notes

Output = TypeVar("Output", bound=tuple[Any, ...])

# The number of kinds of batches, by shapes and frozen parameters, that are compiled. It could grow forever.
_MAX_KINDS = 6
_MAX_COMPARISONS = 30  # in case networks are replaced again and again

# With torch's own random numbers, which inductor would otherwise replace. Without worker processes for
# compilation, which would stay until the end of the run.
_OPTIONS: Mapping[str, dict[str, Any]] = {"inductor": {"fallback_random": True, "compile_threads": 1}}

_numbers = itertools.count()  # of programs
_drawing = threading.Lock()  # torch's default generator is shared by all threads


class DifferentiatedLoss(Generic[Output]):
    """Computes a loss and leaves its gradients in each parameter's `.grad`: by autograd, or compiled.

    If compilation is on, the first batch of each kind is computed both ways, and so is the next one after a
    restore, after a part of the networks was replaced, or whenever torch has compiled the loss again, for
    example because a part of it was switched on. If loss, gradients, buffers and random draws agree, the
    program's results are used, as if it alone had computed the batch. Otherwise autograd computes this
    batch and all later ones, with one warning; the same happens if the loss cannot be compiled, for example
    on a machine without a C++ compiler.
    """

    def __init__(
        self,
        part: str,
        *,
        loss: Callable[..., Output],
        plain: Callable[..., Output],
        modules: Iterable[nn.Module],
        parameters: Callable[[], Sequence[nn.Parameter]],
        backend: str | None,
    ) -> None:
        """Stores the settings; the first batch starts the compilation.

        Args:
            part: The loss's name, for the log.
            loss: The function. It returns a named tuple, whose first element, [], is differentiated. A
                `torch.Generator` among its arguments may be None: it then draws from torch's default one.
            plain: A function of the same arguments that returns what `loss` returns and sets `.grad`.
            modules: All modules that the loss depends on.
            parameters: Returns the parameters that the loss trains. Frozen ones get no gradient.
            backend: A backend of torch.compile; None leaves everything to `plain`.
        """
        self._part = part
        self._plain = plain
        self._parameters = parameters
        self._backend = backend
        self._called = _Called(loss, modules)
        self._agreement = agreement.Agreement(part)
        self._program: Callable[..., Any] | None = None
        self._methods = self._methods_now()  # that the program was made of
        self._names: dict[int, str] = {}  # of parameters, by id
        self._places: set[int] = set()  # the memory of parameters and buffers
        self._written: dict[Any, set[str]] = {}  # buffers that the loss changes, by compared kind of batch
        self._unused: dict[int, set[str]] = {}  # parameters without a gradient, by number of a program
        self._num_comparisons = 0
        self._was_compiled = False  # before the run was resumed

    def __call__(self, *inputs: Any) -> Output:
        """Computes the loss for the given inputs of `loss`, and sets each `.grad`."""
        if self._backend is None or self._agreement.is_broken:
            return self._plain(*inputs)
        if self._methods.replaced():  # which torch does not look at in classes
            self._methods, self._program = self._methods_now(), None
            self._agreement.forget()
        if not self._agreement.holds():
            self._written.clear()
            self._unused.clear()
            self._names = {id(parameter): name for name, parameter in self._called.named_parameters()}
            self._places = _places((*self._called.parameters(), *self._called.buffers()))
        trained = {self._names.get(id(p), ""): p for p in self._parameters() if p.requires_grad}
        reason = self._why_plain(trained)
        if reason:
            notes.say(self._part, f"plain torch: {reason}")
            return self._plain(*inputs)
        kind = _kind(trained, inputs)
        if kind in self._written:
            found = self._compute_as_compared(kind, trained, inputs)
            if found is not None:
                return found
            del self._written[kind]
        if len(self._written) == _MAX_KINDS or self._num_comparisons == _MAX_COMPARISONS:
            notes.say(self._part, "plain torch for new batches: batches or networks have changed too often")
            return self._plain(*inputs)
        self._num_comparisons += 1
        return self._compare(kind, trained, inputs)

    def save(self) -> str:
        """Returns the way of the last batches: "compiled" or "plain", or "" before the first one."""
        if self._agreement.is_broken:
            return "plain"
        return "compiled" if self._was_compiled or self._written else ""

    def restore(self, way: str) -> None:
        """Continues in the way that `save` returned. The next batch is compared if compilation is on."""
        self._agreement.forget()
        self._agreement.is_broken = way == "plain"
        self._was_compiled = way == "compiled"
        if way == "plain":
            notes.say(self._part, "plain torch, as before the run was resumed")

    def _methods_now(self) -> agreement.Originals:
        owner = getattr(self._called.loss, "__self__", self._called.loss)
        return agreement.methods_of(*self._called.modules(), owner)

    def _why_plain(self, trained: Mapping[str, nn.Parameter]) -> str:
        if not trained:
            return "all parameters that it trains are frozen"
        if "" in trained:
            return "it trains a parameter that is in none of its modules"
        if any(parameter.device.type not in ("cpu", "cuda") for parameter in trained.values()):
            return "its device is neither a CPU nor a CUDA GPU"
        if any(map(_has_hooks, trained.values())) or (
            not self._written and agreement.has_hooks(self._called)
        ):
            return "it has hooks"
        return ""

    def _compare(self, kind: Any, trained: Mapping[str, nn.Parameter], inputs: Sequence[Any]) -> Output:
        """Computes a loss both ways. Uses the program's result if they agree, else the plain one."""
        changeable = _Changeable(self._called, inputs)
        before = changeable.read()
        wanted = self._plain(*inputs)
        wanted_gradients = {name: parameter.grad for name, parameter in trained.items()}
        after = changeable.read()
        written = after.written(before)
        changeable.write(before)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch's warnings about itself
                computed = self._compute(trained, written, inputs)
        except Exception as error:  # Anything that torch.compile and its backends raise.
            changeable.write(after)
            self._give_up(error)
            return wanted
        computed.write()
        found_after = changeable.read()
        changed = sorted(written | found_after.written(before))
        agrees = self._agreement.settle(
            self._called,
            outputs=agreement.Pair(computed.output, wanted),
            gradients=agreement.Pair(
                [computed.gradients[name] for name in trained],
                [
                    torch.zeros_like(trained[name]) if gradient is None else gradient
                    for name, gradient in wanted_gradients.items()
                ],
            ),
            buffers=agreement.Pair(
                [found_after.values[name] for name in changed], [after.values[name] for name in changed]
            ),
            draws=agreement.Pair(found_after.draws, after.draws, tolerance=0.0),
        )
        if not agrees:
            changeable.write(after)
            return wanted
        notes.say(self._part, f"compiled by torch's {self._backend}")
        self._written[kind] = written
        unused = {name for name, gradient in wanted_gradients.items() if gradient is None}
        self._unused[computed.number] = unused
        self._set_gradients(computed.gradients, trained, unused, inputs)
        return computed.output

    def _compute_as_compared(
        self, kind: Any, trained: Mapping[str, nn.Parameter], inputs: Sequence[Any]
    ) -> Output | None:
        """Computes a loss by a program that was compared; None, without a trace, if torch made another."""
        generators = [x for x in inputs if isinstance(x, torch.Generator)]
        generators = generators or [_default_generator(next(iter(trained.values())).device)]
        draws = [generator.get_state() for generator in generators]
        computed: _Computed[Output] | None = None
        # Compiling again, for example for another constant, may fail; so does the comparison then.
        with contextlib.suppress(Exception):
            computed = self._compute(trained, self._written[kind], inputs)
        if computed is None or computed.number not in self._unused:
            for generator, state in zip(generators, draws, strict=True):
                generator.set_state(state)
            return None
        computed.write()
        self._set_gradients(computed.gradients, trained, self._unused[computed.number], inputs)
        return computed.output

    def _compute(
        self, trained: Mapping[str, nn.Parameter], written: set[str], inputs: Sequence[Any]
    ) -> "_Computed[Output]":
        if self._program is None:
            self._program = _compile(self._called, str(self._backend))
        generators = [x for x in inputs if isinstance(x, torch.Generator)]
        without = tuple(None if isinstance(x, torch.Generator) else x for x in inputs)
        buffers = {name: self._called.get_buffer(name) for name in sorted(written)}
        with _drawing_from(*generators), torch.no_grad():
            output, gradients, values, number = self._program(dict(trained), buffers, without)
        return _Computed(
            output, gradients, [(buffers[name], value) for name, value in values.items()], number
        )

    def _set_gradients(
        self,
        gradients: Mapping[str, torch.Tensor],
        trained: Mapping[str, nn.Parameter],
        unused: set[str],
        inputs: Sequence[Any],
    ) -> None:
        """Sets `.grad` as autograd does: None if no gradient flows, else separate memory, laid out alike."""
        for parameter in self._parameters():
            parameter.grad = None
        # A program may return one of its inputs, or the same tensor twice, which clipping would change twice.
        taken = self._places | _places(_tensors(inputs))
        for name, parameter in trained.items():
            if name in unused:
                continue
            gradient, place = gradients[name], _places([gradients[name]])
            if taken & place or gradient.stride() != parameter.stride():
                gradient = torch.empty_like(parameter).copy_(gradient)
            taken |= place
            parameter.grad = gradient

    def _give_up(self, error: Exception) -> None:
        self._agreement.is_broken = True
        cause = getattr(error, "inner_exception", error)
        # The first line names the error, the second explains it.
        reason = textwrap.shorten(" ".join(str(cause).splitlines()[:2]), 300)
        resumed = ". It was compiled before the run was resumed, so the run continues with other rounding"
        notes.warn(
            self._part,
            f"plain torch from now on, because it cannot be compiled: {type(cause).__name__}: {reason}"
            f"{resumed * self._was_compiled}",
        )


class _Computed(NamedTuple, Generic[Output]):
    """The results of a program, which has changed nothing but generators."""

    output: Output
    gradients: dict[str, torch.Tensor]
    buffers: list[tuple[torch.Tensor, torch.Tensor]]  # those that the loss changes, with their new values
    number: int  # of the program

    def write(self) -> None:
        """Changes the buffers."""
        for buffer, value in self.buffers:
            buffer.copy_(value)


class _Called(nn.Module):
    """A loss as a module, so that its parameters can be replaced by functional ones."""

    def __init__(self, loss: Callable[..., Any], modules: Iterable[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(modules)
        self.loss = loss

    def forward(self, *inputs: Any) -> Any:
        return self.loss(*inputs)


def _compile(called: nn.Module, backend: str) -> Callable[..., Any]:
    """Returns a function of functional parameters, buffers and inputs, whose results `_Computed` takes.

    It makes a program at its first call, and another one whenever none of those that it has made suits.
    """

    # Marked here, not when this module is imported: this imports torch's compiler.
    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
    def number() -> int:
        """Returns the number of a program: called while it is made, a constant in it."""
        return next(_numbers)

    # A transform must not change outside tensors in place, so buffers that a loss writes to are copied.
    def differentiate(
        trained: dict[str, torch.Tensor], buffers: dict[str, torch.Tensor], inputs: tuple[Any, ...]
    ) -> tuple[Any, dict[str, torch.Tensor], dict[str, torch.Tensor], int]:
        rest: list[Any] = []  # everything that is not a tensor

        def value(trained: dict[str, torch.Tensor]) -> tuple[torch.Tensor, Any]:
            copies = {name: buffer.clone() for name, buffer in buffers.items()}
            output = torch.func.functional_call(called, {**trained, **copies}, inputs)
            leaves, structure = pytree.tree_flatten(output)
            are_tensors = [isinstance(leaf, torch.Tensor) for leaf in leaves]
            rest.append((structure, are_tensors, [x for x in leaves if not isinstance(x, torch.Tensor)]))
            return output[0], ([x for x in leaves if isinstance(x, torch.Tensor)], copies)

        gradients, (_, (tensors, copies)) = torch.func.grad_and_value(value, has_aux=True)(trained)
        ((structure, are_tensors, others),) = rest
        found, constants = iter(tensors), iter(others)
        leaves = [next(found) if is_tensor else next(constants) for is_tensor in are_tensors]
        return pytree.tree_unflatten(leaves, structure), gradients, copies, number()

    # torch.compile stores and counts compiled code by code object, so each program gets its own.
    own = types.FunctionType(
        differentiate.__code__.replace(), globals(), "differentiate", None, differentiate.__closure__
    )
    return torch.compile(own, fullgraph=True, dynamic=False, backend=backend, options=_OPTIONS.get(backend))


@contextlib.contextmanager
def _drawing_from(*generators: torch.Generator) -> Iterator[None]:
    """Lets torch's default generator draw the numbers of the given generator; at most one is given."""
    if not generators:
        yield
        return
    (generator,) = generators
    default = _default_generator(generator.device)
    with _drawing:
        before = default.get_state()
        default.set_state(generator.get_state())
        try:
            yield
            generator.set_state(default.get_state())
        finally:
            default.set_state(before)


def _default_generator(device: torch.device) -> torch.Generator:
    if device.type == "cpu":
        return torch.default_generator
    module: Any = torch.get_device_module(device)
    generator: torch.Generator = module.default_generators[device.index or 0]
    return generator


class _State(NamedTuple):
    buffers: dict[str, torch.Tensor]  # the tensors themselves
    values: dict[str, torch.Tensor]  # copies of the buffers
    inputs: list[torch.Tensor]  # copies
    draws: list[torch.Tensor]  # states of generators

    def written(self, before: "_State") -> set[str]:
        """Returns the names of buffers whose values differ from before."""
        return {name for name, x in self.values.items() if not torch.equal(x, before.values[name])}


class _Changeable:
    """Everything that computing a loss may change: buffers, inputs that it writes to, generators."""

    def __init__(self, called: nn.Module, inputs: Sequence[Any]) -> None:
        self._holders = {
            f"{prefix}.{name}": (part._buffers, name)
            for prefix, part in called.named_modules()
            for name, buffer in part._buffers.items()
            if buffer is not None
        }
        self._inputs = _tensors(inputs)
        devices = {x.device: None for x in called.parameters()}
        given = [x for x in inputs if isinstance(x, torch.Generator)]
        self._generators = [*given, *map(_default_generator, devices)]

    def read(self) -> _State:
        buffers: dict[str, Any] = {key: holder[name] for key, (holder, name) in self._holders.items()}
        return _State(
            buffers=buffers,
            values={key: x.detach().clone() for key, x in buffers.items()},
            inputs=[x.detach().clone() for x in self._inputs],
            draws=[x.get_state() for x in self._generators],
        )

    @torch.no_grad()
    def write(self, state: _State) -> None:
        for key, (holder, name) in self._holders.items():
            holder[name] = state.buffers[key].copy_(state.values[key])
        for x, value in zip(self._inputs, state.inputs, strict=True):
            x.copy_(value)
        for generator, draws in zip(self._generators, state.draws, strict=True):
            generator.set_state(draws)


def _kind(trained: Mapping[str, nn.Parameter], inputs: Sequence[Any]) -> Any:
    """Returns the kind that a program is compiled for: the trained parameters, input shapes and constants."""
    leaves = [
        (leaf.shape, leaf.stride(), leaf.dtype, leaf.device)
        if isinstance(leaf, torch.Tensor)
        else leaf
        if isinstance(leaf, int | float | str)
        else type(leaf)
        for leaf in tree.flatten(inputs)
    ]
    return tuple(trained), tuple(leaves)


def _tensors(nest: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree.flatten(nest) if isinstance(leaf, torch.Tensor)]


def _places(tensors: Iterable[torch.Tensor]) -> set[int]:
    return {x.untyped_storage().data_ptr() for x in tensors}


def _has_hooks(parameter: nn.Parameter) -> bool:
    return bool(parameter._backward_hooks or parameter._post_accumulate_grad_hooks)
