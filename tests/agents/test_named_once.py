"""Whoever adds an agent writes its folder, and a line of registry, agents/__init__.py and setup.cfg."""

import ast
import pathlib
import re
from collections.abc import Iterator

from minerva_acme import agents
from minerva_acme.agents import registry

# Formulas have the name of the paper that they are from, and so has the fast twin of one.
FORMULAS = (
    "minerva_acme/losses/",
    "minerva_acme/acceleration/__init__.py",
    "minerva_acme/acceleration/array_ppo.py",
    "minerva_acme/acceleration/choice.py",
)
# What people are shown as commands to type.
COMMANDS = {f"minerva_acme/cli/{name}.py" for name in ("demo", "guide", "init", "list_runs", "parsing")}
NAMES = "|".join(map(re.escape, registry.AGENTS))
WORD = re.compile(rf"(?<![a-z])({NAMES})(builder|config|learner|networks)?(?![a-z])")


def words(source: str) -> Iterator[str]:
    """Yields the identifiers and strings of a file, but not what it says in comments and docstrings."""
    tree = ast.parse(source)
    said = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
    }  # docstrings, also those below fields
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str) and id(node) not in said:
                yield node.value
            continue
        for name in ("id", "attr", "arg", "name", "asname", "module"):
            if isinstance(found := getattr(node, name, None), str):
                yield found


def names_an_agent(source: str) -> bool:
    return any(WORD.search(word.lower().replace("v-mpo", "vmpo")) for word in words(source))


def test_two_files_outside_their_own_folders_name_agents(
    repository: pathlib.Path, source_files: dict[str, pathlib.Path]
) -> None:
    naming = set()
    for path in source_files.values():
        file = path.relative_to(repository).as_posix()
        own = any(file.startswith(f"agents/{name}/") for name in registry.AGENTS)
        if not own and not file.startswith(FORMULAS) and names_an_agent(path.read_text()):
            naming.add(file)
    assert naming - COMMANDS == {"agents/registry.py", "agents/__init__.py"}


def test_every_agent_has_one_entry_there_and_one_line_in_the_package_list(repository: pathlib.Path) -> None:
    registered = (repository / "agents" / "registry.py").read_text()
    packages = (repository / "setup.cfg").read_text()
    for name, entry in registry.AGENTS.items():
        assert name in dir(agents)
        assert len(re.findall(rf'^    _own\(\s*"{entry.title}"', registered, re.MULTILINE)) == 1
        assert packages.count(f"minerva_acme.agents.{name}\n") == 1
        assert (repository / "agents" / name / "__init__.py").exists()
        assert entry.package == f"minerva_acme.agents.{name}"


def test_a_file_that_names_an_agent_is_found() -> None:
    for source in (
        "from minerva_acme.agents import ppo",
        "import minerva_acme.agents.mpo.losses",
        "isinstance(builder, VMPOBuilder)",
        "if agent == 'mpo': pass",
        "title = 'V-MPO and others'",
        "step(ppo_config=1)",
        "f'the {x} of MPO'",
    ):
        assert names_an_agent(source), source
    for source in ("'''Of MPO.'''", "x = 1  # as in PPO", "compo, dmpo2 = 'Tempo'"):
        assert not names_an_agent(source), source
