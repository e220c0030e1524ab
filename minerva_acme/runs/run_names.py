"""The names of experiments and of runs' folders: agent, preset, and what differs from the preset."""

import dataclasses
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from minerva_acme import results
from minerva_acme.agents import registry
from minerva_acme.results import names
from minerva_acme.runs import options, run_folder

_DEFAULTS = {field.name: field.default for field in dataclasses.fields(options.RunOptions)}


def nearest_preset(
    hyperparameters: Mapping[str, Any], presets: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Returns the preset with the fewest differences, the first of several, and these differences.

    Args:
        hyperparameters: The fields of an agent's config.
        presets: The agent's configs by name.
    """
    values = _plain(hyperparameters)
    by_preset = {
        name: {key: value for key, value in values.items() if key not in preset or preset[key] != value}
        for name, preset in ((name, _plain(dataclasses.asdict(config))) for name, config in presets.items())
    }
    return min(by_preset.items(), key=lambda found: len(found[1]))


def preset_of(description: run_folder.RunDescription) -> tuple[str | None, dict[str, Any]]:
    """Returns a run's nearest preset and the differences from it.

    For an agent that is not part of this library, whose code may not be imported, these are None and all
    hyperparameters.
    """
    if description.agent not in registry.AGENTS:
        return None, description.hyperparameters
    presets = registry.AGENTS[description.agent].presets
    # A run of an older version lacks the newer hyperparameters.
    values = {**dataclasses.asdict(presets["default"]), **description.hyperparameters}
    return nearest_preset(values, presets)


def exp_name(description: run_folder.RunDescription) -> str:
    """Returns the name of a run's experiment: its agent's nearest preset, and the differences from it."""
    preset, changes = preset_of(description)
    if preset is None:
        name = re.sub(r"\W+", "_", description.title)
    else:
        name = results.make_name(description.agent, preset, {**changes, **_data(description)})
    return results.with_repeat(name, description.base_task.action_repeat)


def setting_name(
    agent: str, hyperparameters: Mapping[str, Any], presets: Mapping[str, Any], **options: Any
) -> str:
    """Returns the name of an agent's setting, such as mpo_control+discount=0.98.

    Args:
        agent: The agent's name, or the `module:name` of its builder.
        hyperparameters: The fields of its config.
        presets: The configs that the hyperparameters may be described by, by name.
        **options: Other values that the name is to contain.
    """
    preset, changes = nearest_preset(hyperparameters, presets)
    return results.make_name(agent.rpartition(":")[2], preset, {**changes, **options})


def environment_name(environment: str, settings: Mapping[str, Any] | None = None) -> str:
    """Returns an environment's id as the name of a folder, such as dm_control-cartpole-swingup.

    Args:
        environment: The id, or the `module:name` of what makes the environment.
        settings: The arguments with which it is made, which become part of the name.
    """
    return names.with_changes(re.sub("[/:]", "-", environment).replace(",", "+"), settings or {})


def default_directory(description: run_folder.RunDescription, presets: Mapping[str, Any]) -> pathlib.Path:
    """Returns the folder of a run for which none was chosen: runs/<environment>/<setting>-seed<seed>.

    It depends on exactly the values that a resumed run must not change.

    Args:
        description: The run.
        presets: The configs of its agent by name.
    """
    setting = setting_name(description.agent, description.hyperparameters, presets, **_data(description))
    environment = environment_name(description.environment, description.environment_settings)
    return pathlib.Path("runs", environment, f"{setting}-seed{description.seed}")


def _data(description: run_folder.RunDescription) -> dict[str, Any]:
    return {name: value for name, value in description.data().items() if value != _DEFAULTS[name]}


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values as read back from JSON."""
    found: dict[str, Any] = json.loads(json.dumps(values))
    return found
