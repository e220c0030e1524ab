"""The environment in which a trained policy plays: the run's own, or the one on the command line."""

import dataclasses
from collections.abc import Callable
from typing import Any

import dm_env
import tree

from minerva_acme import networks, specs, types
from minerva_acme.cli import commands
from minerva_acme.runs import env_kwargs, run_folder


def choose(
    description: run_folder.RunDescription, command: commands.Played
) -> tuple[run_folder.RunDescription, Callable[..., dm_env.Environment]]:
    """Returns the description with the chosen environment, and a function that makes it from a seed.

    `--env` replaces the environment, and may name code; `--env-kwargs` changes single arguments of it. The
    code that the run's folder names is imported only with `--import-code`.

    Raises:
        ValueError: See `RunDescription.make_environment_factory`.
    """
    settings = env_kwargs.read(command.env_kwargs)
    if command.env is not None:
        unknown = {name: why for name, why in description.unknown.items() if name != "environment"}
        changes: dict[str, Any] = {"environment": command.env, "environment_factory": "", "unknown": unknown}
    elif settings and (description.environment_factory or "environment" in description.unknown):
        raise ValueError(
            "`--env-kwargs` must be given with --env: the environment of this run, "
            f"{description.environment}, is made by a function that takes only a seed."
        )
    else:
        changes, settings = {}, {**description.environment_settings, **settings}
    chosen = dataclasses.replace(description, **changes, environment_settings=settings)
    import_code = command.import_code or command.env is not None
    make = chosen.make_environment_factory(import_code=import_code)
    if command.env is None or not description.environment_specs:  # a run of an older version has none
        return chosen, make
    expected = description.make_specs()
    # A policy acts without what only the critic sees.
    hidden = networks.critic_entries(
        expected.observations, description.hyperparameters.get("critic_observations", ())
    )

    def make_fitting(*arguments: Any, **settings: Any) -> dm_env.Environment:
        environment = make(*arguments, **settings)
        found = specs.make_environment_spec(environment)
        for name in ("observations", "actions"):
            wanted, given = (specs.without(getattr(each, name), hidden) for each in (expected, found))
            if _forms(wanted) != _forms(given):
                environment.close()
                raise ValueError(
                    f"`--env` must have the run's {name}, {specs.describe(wanted)}, got {command.env} with "
                    f"{specs.describe(given)}. Leave it out, or name another environment with these."
                )
        return environment

    return chosen, make_fitting


def _forms(nest: types.NestedSpec) -> list[Any]:
    return [(path, specs.form(spec)) for path, spec in tree.flatten_with_path(nest)]
