"""Calls of an environment's `reset` and `step`, held to what dm_env asks of both."""

from typing import Any

import dm_env

from minerva_acme import specs


class EnvironmentExit(RuntimeError):
    """An environment called `sys.exit`, which would have ended the program as if all was well."""


def call(environment: Any, method: str, *arguments: Any) -> dm_env.TimeStep:
    """Calls `reset` or `step` of an environment and returns its timestep.

    Args:
        environment: The environment.
        method: "reset" or "step".
        *arguments: The action, for "step".

    Raises:
        EnvironmentExit: The environment called `sys.exit`. As an ordinary error it is handled, logged and
            recovered from like any other.
        SpecError: It returned something else than a `dm_env.TimeStep`.
        Exception: Whatever else the environment raised, as it is.
    """
    timestep: dm_env.TimeStep = call_unchecked(environment, method, *arguments)
    if not isinstance(timestep, dm_env.TimeStep):
        check(timestep, environment, method)
    return timestep


def call_unchecked(environment: Any, method: str, *arguments: Any) -> Any:
    """Calls a method of an environment, or of a vector of them, and returns whatever it returns.

    Raises:
        EnvironmentExit: As `call`.
        Exception: As `call`.
    """
    try:
        return getattr(environment, method)(*arguments)
    except SystemExit as error:
        raise exit_error(environment, method, error) from error


def exit_error(environment: Any, method: str, error: SystemExit) -> EnvironmentExit:
    """Makes the error to raise in the place of a SystemExit of an environment."""
    code = "" if error.code is None else repr(error.code)
    return EnvironmentExit(
        f"`{method}` of {_name(environment)} called sys.exit({code}), which would end the run without saving "
        "it. An environment that cannot continue must raise an exception that says why. The traceback of the "
        "SystemExit shows what called it."
    )


def check(timestep: Any, environment: Any, method: str) -> None:
    """Checks that what `reset` or `step` returned is a timestep.

    A class of the environment's own will do, as long as it has the fields of `dm_env.TimeStep`.

    Raises:
        SpecError: It is none.
    """
    if all(hasattr(timestep, name) for name in dm_env.TimeStep._fields):
        return
    makers = "restart(observation)"
    if method == "step":
        makers = "transition(reward, observation)`, `dm_env.termination` or `dm_env.truncation"
    advice = f"Make it with `dm_env.{makers}`."
    found = repr(timestep) if timestep is None else f"a {type(timestep).__name__}"
    if timestep is None:
        advice = f"Its `return` may be missing. {advice}"
    elif isinstance(timestep, tuple):
        found = f"a tuple of {len(timestep)} values"
        if len(timestep) == (2 if method == "reset" else 5):
            advice = (
                "That is what an environment of Gymnasium's returns: make it a `gymnasium.Env` with spaces, "
                f"which `environments.make_training_environment` takes, or a timestep. {advice}"
            )
    raise specs.SpecError(
        f"`{method}` of {_name(environment)} must return a `dm_env.TimeStep`, got {found}. {advice}"
    )


def _name(environment: Any) -> str:
    """The class that a user wrote, within wrappers."""
    while isinstance(inner := getattr(environment, "environment", None), dm_env.Environment):
        environment = inner
    return type(environment).__name__
