"""`minerva init`: a working folder with an own agent, an environment and their tests."""

import importlib.util
import keyword
import pathlib
import re
from collections.abc import Mapping
from importlib import resources

from minerva_acme.agents import registry
from minerva_acme.cli import commands

_STANDS_FOR = "my_dqn"  # the agent's name in the templates
_FILES = {
    f"{_STANDS_FOR}.py": "agent.txt",
    f"{_STANDS_FOR}_environment.py": "environment.txt",
    f"test_{_STANDS_FOR}.py": "tests.txt",
    "pyproject.toml": "pyproject.txt",
    "README.md": "readme.txt",
}


def run(command: commands.Init) -> int:
    """Writes the folder and shows what to do next; returns the exit status.

    Raises:
        ValueError: The name cannot be a module's, or is taken.
        OSError: The folder cannot be written.
    """
    _check_name(command.name)
    directory = pathlib.Path(command.name)
    directory.mkdir()
    files = render(command.name)
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
    print(f"{directory}/ has {', '.join(files)}. Next:")
    print(f"    cd {directory}")
    (commands_of_readme,) = re.findall(r"```\n(.*?)```", files["README.md"], re.DOTALL)
    for line in commands_of_readme.splitlines():
        print(f"    {line}")
    return 0


def render(name: str) -> Mapping[str, str]:
    """Returns the contents of the files by their names."""
    templates = resources.files("minerva_acme.cli").joinpath("templates")
    named = {_STANDS_FOR: name, _STANDS_FOR.replace("_", "-"): name.replace("_", "-")}
    return {
        file.replace(_STANDS_FOR, name): re.sub(
            "|".join(named), lambda match: named[match[0]], templates.joinpath(template).read_text("utf-8")
        )
        for file, template in _FILES.items()
    }


def _check_name(name: str) -> None:
    if not re.fullmatch("[A-Za-z](?:[A-Za-z0-9_]*[A-Za-z0-9])?", name) or keyword.iskeyword(name):
        raise ValueError(
            "`name` must be the name of a Python module, of ASCII letters, digits and _ between them, and no "
            f"keyword, got '{name}'. For example: minerva init my_agent"
        )
    if name in registry.entries():
        raise ValueError(f"`name` must be new, but there is an agent {name}. Choose another.")
    if pathlib.Path(name).exists():
        raise ValueError(f"`name` must be new, but {name} exists here. Choose another, or remove it.")
    for module in (name, f"{name}_environment"):
        if found := importlib.util.find_spec(module):
            raise ValueError(
                f"`name` must be new, but Python already has a module {module} ({found.origin}), which would "
                "be imported instead of yours. Choose another."
            )
