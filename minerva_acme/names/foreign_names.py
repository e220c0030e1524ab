"""Names that other libraries use for arguments, flags and functions, with their equivalents here.

`foreign_names.toml` has them. `docs/migrating.md` compares the fields of Acme's configs and their defaults.
"""

import functools
import inspect
import pathlib
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, ParamSpec, Self, TypeVar

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


@functools.cache
def table(name: Literal["elsewhere", "advice", "flag_advice", "short_flags", "nearest"]) -> Mapping[str, Any]:
    """Returns the table of that name in the file, with an entry for each of the names that a key lists."""
    import tomllib  # which takes longer than all else here, and only a wrong name needs it

    tables = tomllib.loads(pathlib.Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return types.MappingProxyType(
        {one: entry for names, entry in tables[name].items() for one in names.split()}
    )


def refuse(taker: Callable[..., Any], given: Collection[str]) -> None:
    """Explains the names of other libraries among the named arguments of a call.

    Args:
        taker: The class or function that is called.
        given: The names of the arguments.

    Raises:
        TypeError: Some of these are names of another library, and `taker` has no such parameters. The message
            has a line for each, with the equivalent.
    """
    known = _parameters(taker)
    unknown = [name for name in given if name not in known]
    if not unknown or any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        return
    lines = [
        f"`{taker.__name__}` takes no `{name}`. {_way_out(name, taker.__name__, known)}"
        for name in unknown
        if name in table("elsewhere") or name in table("advice")
    ]
    if lines:
        raise TypeError("\n".join([*lines, "For all of Acme's names: docs/migrating.md"]))


@functools.cache
def _parameters(taker: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(taker).parameters


def _way_out(name: str, taker: str, known: Collection[str]) -> str:
    """Returns the equivalent of a name, as a sentence.

    Args:
        name: Another library's name.
        taker: The name of the class or function that is called.
        known: Its parameters.
    """
    parts = [entry.partition(" ") for entry in table("elsewhere").get(name, ())]
    ours = {f"`{own}`{space}{remark}": own for own, space, remark in parts}
    here = [text for text, own in ours.items() if own in known]
    if here:
        return f"Here it is {_either(here)}."
    advice = table("advice").get(name)
    return advice or f"Here it is {_either([*ours])}, which `{taker}` does not take either."


def _either(names: Sequence[str]) -> str:
    """Joins names by commas, and the last two by "or"."""
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


class Translated:
    """A base class whose subclasses explain the names of other libraries in their constructors' arguments.

    A subclass must have an `__init__`, as a dataclass has.
    """

    def __new__(cls, *args: Any, **named: Any) -> Self:
        refuse(cls, named)
        return super().__new__(cls)


def translated(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Returns the function with a check that explains the names of other libraries; see `refuse`."""

    @functools.wraps(function)
    def call(*args: _Parameters.args, **named: _Parameters.kwargs) -> _Result:
        refuse(function, named)
        return function(*args, **named)

    return call
