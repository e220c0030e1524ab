"""Environments that are named by the code that makes them, `module:attribute`.

The attribute is a class or a function, and what it makes is an environment of dm_env or Gymnasium, or a
batched environment. If it has an argument `seed`, it gets the seed; otherwise Gymnasium's first reset or the
environment's method `seed`.
"""

import difflib
import inspect
import logging
import os
import re
import reprlib
import sys
import traceback
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import dm_env

from minerva_acme import wrappers
from minerva_acme.environments import importing, multi_agent, vector
from minerva_acme.names import readable

_LOG = logging.getLogger(__name__)
_DM_CONTROL, _GYMNASIUM = "dm_control/", "gymnasium/"
_MODULE = re.compile(r"\w+(\.\w+)*")
_NOT_THE_USERS = (os.path.dirname(os.path.dirname(__file__)), os.path.dirname(os.__file__), "<")
_unseeded: set[str] = set()  # of which it was said


def find(environment_id: str) -> Callable[..., Any] | None:
    """Imports the module of `module:attribute` and returns the attribute, a class or function.

    Returns:
        The attribute; or None if the id is of another form, or the module has no attribute of this name: it
        may have registered it in Gymnasium.

    Raises:
        ValueError: The module does not exist or cannot be imported, or the attribute cannot be called.
    """
    name = environment_id.removeprefix(_GYMNASIUM)
    module_name, colon, attribute = name.partition(":")
    if not colon or name.startswith(_DM_CONTROL):
        return None
    found: Any = _import(name, module_name)
    for part in attribute.split("."):
        if name != environment_id or not hasattr(found, part):
            return None
        found = getattr(found, part)
    if not callable(found):
        what = reprlib.repr(found)
        if isinstance(found, dm_env.Environment) or hasattr(found, "observation_space"):
            what = "an environment, but training and evaluation each make their own"
        raise ValueError(f"`{name}` must be a class or function that makes an environment, got {what}.")
    return found


def make(name: str, maker: Callable[..., Any], seed: int | None, arguments: Mapping[str, Any]) -> Any:
    """Makes an environment: one of dm_env, or a `BatchedEnvironment`.

    Args:
        name: Its name, `module:attribute`, for messages.
        maker: What `find` returned.
        seed: The seed of the episodes, or None for a new one.
        arguments: Arguments for `maker`, other than the seed.

    Raises:
        ValueError: The arguments do not fit, `maker` raised an error, or it made something else.
    """
    takes_seed = "seed" in _parameters(maker)
    arguments = {**arguments, "seed": seed} if takes_seed else arguments
    _check_arguments(name, maker, arguments)
    try:
        made = maker(**arguments)
    except Exception as error:  # whatever the user's code raises
        raise ValueError(f"`{name}` could not be made: {_describe(error)}") from error
    if isinstance(made, vector.VectorEnvironment) or hasattr(made, "num_envs"):
        raise ValueError(
            f"`{name}` must make one environment, got a {type(made).__name__} of several. Make one, and set "
            "`num_environments` of the agent (--num-environments); or train from Python."
        )
    multi_agent.check_is_of_one_agent(made)
    if hasattr(made, "observation_space"):
        from minerva_acme.environments import gymnasium_adapter

        return gymnasium_adapter.GymnasiumEnvironment(made, seed=seed)
    if not isinstance(made, dm_env.Environment) and not _is_batched(made):
        raise ValueError(
            f"`{name}` must make a dm_env or Gymnasium environment, got {reprlib.repr(made)}. Return one, or "
            "let the class inherit from `dm_env.Environment` or `gymnasium.Env`."
        )
    is_of_dm_control = any(kind.__module__.startswith("dm_control.") for kind in type(made).__mro__)
    if is_of_dm_control and not hasattr(made, "save"):
        made = wrappers.DmControlRandomState(made)
    if takes_seed or seed is None:
        return made
    if callable(set_seed := getattr(made, "seed", None)):
        set_seed(seed)
    elif name not in _unseeded:
        _unseeded.add(name)
        _LOG.warning("`%s` takes no `seed`: its episodes cannot be repeated. Add that argument.", name)
    return made


def _is_batched(made: Any) -> bool:
    from minerva_acme.environments import batched  # which imports torch

    return isinstance(made, batched.BatchedEnvironment)


def is_seeded(environment_id: str, environment: dm_env.Environment) -> bool:
    """Returns whether an environment that was made from an id and a seed has received the seed."""
    maker = find(environment_id)
    return maker is None or "seed" in _parameters(maker) or callable(getattr(environment, "seed", None))


def accepts(environment_id: str, argument: str) -> bool:
    """Returns whether the class or function behind an id may take an argument; always True for other ids."""
    maker = find(environment_id)
    return maker is None or any(
        name == argument or one.kind is one.VAR_KEYWORD for name, one in _parameters(maker).items()
    )


def unknown(name: str) -> ValueError:
    """Makes the error for a name that is neither an attribute of the module nor an id that it registered."""
    import gymnasium

    module_name, _, attribute = name.partition(":")
    module = sys.modules[module_name]
    registered = [key for key, spec in gymnasium.registry.items() if module_name in str(spec.entry_point)]
    hint = readable.of_names_in(module, attribute, registered)
    place = getattr(module, "__file__", None) or "built into Python"
    return ValueError(
        f"The module {module_name} ({place}) has no '{attribute}', and has registered no id of that name in "
        f"Gymnasium. {hint}"
    )


def _import(name: str, module_name: str) -> ModuleType:
    try:
        if not _MODULE.fullmatch(module_name):
            raise ModuleNotFoundError(name=module_name)
        return importing.import_with_renderer(module_name)
    except ModuleNotFoundError as error:
        if f"{module_name}.".startswith(f"{error.name}."):
            raise ValueError(_no_module(name, module_name)) from error
        raise ValueError(
            f"`{name}` cannot be imported: it needs the module "
            f"{readable.missing(error, 'install its package')}."
        ) from error
    except Exception as error:  # whatever the user's code raises
        raise ValueError(f"`{name}` cannot be imported: {_describe(error)}") from error


def _no_module(name: str, module_name: str) -> str:
    import gymnasium

    attribute = name.partition(":")[2]
    hint = readable.of_modules_like(module_name, attribute)
    if attribute in gymnasium.registry and not module_name.endswith(".py"):
        hint = f"Gymnasium has {attribute} without a module before it."
    return f"There is no module '{module_name}', which `{name}` names. {hint}"


def _parameters(maker: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(maker).parameters
    except (TypeError, ValueError):  # unknown, as for some functions in C
        return {"arguments": inspect.Parameter("arguments", inspect.Parameter.VAR_KEYWORD)}


def _check_arguments(name: str, maker: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    parameters = _parameters(maker)
    try:
        inspect.Signature(list(parameters.values())).bind(**arguments)
    except TypeError as error:
        known = [key for key, one in parameters.items() if one.kind is not one.VAR_KEYWORD]
        wrong = [key for key in arguments if key not in known]
        if not wrong:
            raise ValueError(
                f"`{name}` needs more arguments: {error}. Give it with --env-kwargs NAME=VALUE, in Python as "
                "a keyword argument."
            ) from error
        near = difflib.get_close_matches(wrong[0], known, n=1)
        hint = f"Did you mean '{near[0]}'?" if near else f"It has {', '.join(known) or 'none'}."
        raise ValueError(f"`{name}` has no argument '{wrong[0]}'. {hint}") from error


def _describe(error: Exception) -> str:
    """Returns an error in one sentence, with its place in the user's code and the way out."""
    return f"{describe_error(error)}. Correct that; --debug shows the whole traceback."


def describe_error(error: Exception) -> str:
    """Returns an error of a user's environment with its place in the user's code, if it is from there."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_NOT_THE_USERS) and "site-packages" not in frame.filename
    ]
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    text = " ".join(str(error).split()).removesuffix(".")
    return f"{type(error).__name__}: {text}{place}"
