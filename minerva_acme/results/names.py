"""The names of experiments: agent and preset, then the differences from the preset."""

import re
from collections.abc import Mapping
from typing import Any

_NAME = re.compile(r"[A-Za-z0-9][\w.+=-]{0,120}")
_BEFORE_A_CHANGE = re.compile(r"\+(?=[A-Za-z_])")  # and not within 1e+06


def make_name(agent: str, preset: str, changes: Mapping[str, Any]) -> str:
    """Returns the name of an experiment, such as mpo_control+critic_target=one_step.

    Args:
        agent: The agent's name.
        preset: The name of the agent's preset.
        changes: The settings that differ from the preset.
    """
    parts = [f"{name}={_plain(value)}" for name, value in sorted(changes.items())]
    return "+".join([f"{agent}_{preset}", *parts])


def with_repeat(exp_name: str, action_repeat: int | None) -> str:
    """Adds an action repeat to an experiment's name, unless it is 1 or unknown, or the name already has it.

    Steps count frames, so runs of one task at different repeats have the same environment. Their names tell
    them apart: mpo_demo+noise_repeat=4 becomes mpo_demo+noise_repeat=4+repeat=2.

    Args:
        exp_name: The experiment's name.
        action_repeat: The number of frames for which a decision of the agent lasts, or None if it is unknown.
    """
    head, *changes = _BEFORE_A_CHANGE.split(exp_name)
    added = f"repeat={action_repeat}"
    if action_repeat in (None, 1) or added in changes:
        return exp_name
    return "+".join([head, *sorted([*changes, added], key=lambda change: change.partition("=")[0])])


def check_name(exp_name: str) -> str:
    """Returns the name if it can be the name of a file.

    Raises:
        ValueError: The name is too long, or contains other characters.
    """
    if not _NAME.fullmatch(exp_name):
        raise ValueError(
            "The name of an experiment must be at most 121 letters, digits and _ . + = -, beginning with a "
            f"letter or digit, got '{exp_name}'. Set it with --name"
        )
    return exp_name


def _plain(value: Any) -> str:
    if isinstance(value, tuple | list):
        return "-".join(map(_plain, value))
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
