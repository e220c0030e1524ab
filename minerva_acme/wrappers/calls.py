"""Calls of an environment's `reset` and `step`, checked against dm_env's requirements."""

from typing import Any

import dm_env

from minerva_acme import specs


class EnvironmentExit(RuntimeError):
    """An environment called `sys.exit`, which would have ended the program without an error."""


def call(environment: Any, method: str, *arguments: Any) -> dm_env.TimeStep:
    """Calls `reset` or `step` of an environment and returns its timestep.

    Args:
        environment: The environment.
        method: "reset" or "step".
        *arguments: The action, for "step".

    Raises:
        EnvironmentExit: The environment called `sys.exit`. This is an ordinary error, which is handled,
            logged and recovered from like any other.
        SpecError: It did not return a `dm_env.TimeStep`.
        Exception: Any other exception of the environment, unchanged.
    """
    try:
        timestep: dm_env.TimeStep = getattr(environment, method)(*arguments)
    except SystemExit as error:
        raise exit_error(environment, method, error) from error
    if not isinstance(timestep, dm_env.TimeStep):
        check(timestep, environment, method)
    return timestep


def exit_error(environment: Any, method: str, error: SystemExit) -> EnvironmentExit:
    """Makes the error to raise instead of an environment's SystemExit."""
    code = "" if error.code is None else repr(error.code)
    return EnvironmentExit(
        f"`{method}` of {class_name(environment)} called sys.exit({code}), which would end the run without "
        "saving it. An environment that cannot continue must raise an exception that says why. The traceback "
        "of the SystemExit shows where it was called."
    )


def check(timestep: Any, environment: Any, method: str) -> None:
    """Checks that the result of `reset` or `step` is a timestep.

    The environment's own class will do, as long as it has the fields of `dm_env.TimeStep`.

    Raises:
        SpecError: It is not a timestep.
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
                "Gymnasium's environments return that: make yours a `gymnasium.Env` with spaces, which "
                f"`environments.make_training_environment` takes, or return a timestep. {advice}"
            )
    raise specs.SpecError(
        f"`{method}` of {class_name(environment)} must return a `dm_env.TimeStep`, got {found}. {advice}"
    )


def class_name(environment: Any) -> str:
    """Returns the name of the class inside all wrappers, which the user wrote."""
    while isinstance(inner := getattr(environment, "environment", None), dm_env.Environment):
        environment = inner
    return type(environment).__name__
