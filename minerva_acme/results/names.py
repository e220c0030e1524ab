"""The names of experiments: agent and preset, then the differences from the preset."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

_NAME = re.compile(r"[A-Za-z0-9][\w.+=-]{0,120}")
_MAX_LENGTH = 100  # characters of a name; longer ones are cut
_BEFORE_A_CHANGE = re.compile(r"\+(?=[A-Za-z_])")  # and not within 1e+06


def make_name(agent: str, preset: str, changes: Mapping[str, Any]) -> str:
    """Returns the name of an experiment, such as mpo_control+critic_target=one_step.

    The name can be the name of a file, see `to_file_name`.

    Args:
        agent: The agent's name.
        preset: The name of the agent's preset.
        changes: The settings that differ from the preset.
    """
    return with_changes(f"{agent}_{preset}", changes)


def with_changes(name: str, changes: Mapping[str, Any]) -> str:
    """Returns the name of a file: a name and values, sorted, such as mpo_control+critic_target=one_step."""
    parts = [f"{key}={format_value(value)}" for key, value in sorted(changes.items())]
    return to_file_name("+".join([name, *parts]))


def to_file_name(text: str) -> str:
    """Returns a text as the name of a file or folder, which is also valid for an experiment.

    Characters other than letters, digits and _ . + = - are replaced, those at the beginning are removed, and
    the name is cut after 100 characters. A name that is not the text itself ends in a hash of the text, so
    that different texts have different names.
    """
    valid = re.sub(r"[^\w.+=-]", "_", text, flags=re.ASCII)
    valid = re.sub(r"^[^A-Za-z0-9]+", "", valid)[:_MAX_LENGTH]
    return valid if valid == text != "" else f"{valid or 'x'}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


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


def format_value(value: Any) -> str:
    """Returns a setting as part of a name, such as 64-64, true or 0.98."""
    if isinstance(value, tuple | list):
        return "-".join(map(format_value, value))
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    return str(value)
