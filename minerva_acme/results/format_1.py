"""Files of format 1: steps counted decisions, and the action repeat was in an environment's name.

These files do not state their format. Since format 2, steps count frames, an environment's name is that of
the base task, and an experiment has one action repeat.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from minerva_acme import task_settings
from minerva_acme.results import names
from minerva_acme.results.rows import Row

_WITH_REPEAT = re.compile(r"dm_control/.*[/,]repeat=\d+")


def is_of_format_1(rows: Sequence[Row]) -> bool:
    """Returns whether rows without a JSON file are of format 1: an environment's name has a repeat."""
    return any(_WITH_REPEAT.match(row.env_name) for row in rows)


def convert(
    content: Mapping[str, Any], rows: Sequence[Row]
) -> Iterator[tuple[dict[str, Any], tuple[Row, ...]]]:
    """Yields the experiments of format 2 that one of format 1 becomes: one for each action repeat.

    Args:
        content: The contents of the JSON file.
        rows: The experiment's rows.

    Raises:
        ValueError: The settings in an environment's name cannot be read, or two names are the same task with
            the same repeat.
    """
    tasks = {name: task_settings.split_repeat(name) for name in dict.fromkeys(row.env_name for row in rows)}
    if len({*tasks.values()}) < len(tasks):
        raise ValueError(f"Two of {', '.join(tasks)} are the same task with the same action repeat.")
    # For an environment without settings in its name, the file has the repeat.
    repeats = {
        name: content.get("action_repeat") if task == (name, 1) else task.action_repeat
        for name, task in tasks.items()
    }
    for repeat in dict.fromkeys(repeats.values()):
        of_repeat = {name: task for name, task in tasks.items() if repeats[name] == repeat}
        factors = {name: task.action_repeat or 1 for name, task in of_repeat.items()}
        new = {name: value for name, value in content.items() if name != "updates_per_step"}
        new["exp_name"] = names.with_repeat(content["exp_name"], repeat)
        new["commands"] = _of(of_repeat, content.get("commands", {}))
        contexts = [{**one, "trainings": _of(of_repeat, one["trainings"])} for one in content["contexts"]]
        new["contexts"] = [context for context in contexts if context["trainings"]]
        new["action_repeat"] = repeat
        if (updates := content.get("updates_per_step")) is not None:
            new["updates_per_frame"] = updates / max(factors.values())
        yield (
            new,
            tuple(
                row._replace(
                    exp_name=names.with_repeat(row.exp_name, repeat),
                    env_name=of_repeat[row.env_name].env_name,
                    env_step=row.env_step * factors[row.env_name],
                )
                for row in rows
                if row.env_name in of_repeat
            ),
        )


def _of(tasks: Mapping[str, task_settings.BaseTask], by_name: Mapping[str, Any]) -> dict[str, Any]:
    return {tasks[name].env_name: value for name, value in by_name.items() if name in tasks}
