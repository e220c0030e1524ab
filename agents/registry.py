"""The agents that can be chosen: this library's, installed packages' agents, and builders by `module:name`.

Your own package offers an agent by an entry point, `name = "package.module:Builder"`, in the group
`minerva_acme.agents`. Nothing here imports torch or another package's code before an agent is used.
"""

import dataclasses
import functools
import importlib
import pathlib
import re
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from minerva_acme.names import readable

if TYPE_CHECKING:
    from minerva_acme import builders

GROUP = "minerva_acme.agents"


class AgentEntry(NamedTuple):
    """An agent: its package or module, and the names of its parts there."""

    title: str  # as people write it
    package: str
    config_name: str  # "" for the builder's `config_class`, which can only be read by importing torch
    builder_name: str
    compared_with: tuple[str, ...] = ()  # the published curves that a plot shows behind its own
    use: str = ""  # its purpose, in one line
    source: str = ""  # the installed package that it comes from, with its version; "" for this library
    problem: str = ""  # the reason why it cannot be used, as a sentence

    @property
    def path(self) -> str:
        """The builder's location, `module:name`."""
        return f"{self.package}:{self.builder_name}"

    @property
    def config(self) -> type[Any]:
        """The agent's config dataclass.

        Raises:
            ValueError: The agent cannot be imported, or its builder names no config class.
        """
        if self.config_name:
            return self._load(self.config_name)
        from minerva_acme import builders

        return builders.find_config_class(self.builder)

    @property
    def presets(self) -> Mapping[str, Any]:
        """The agent's configs by name: the ones of its config class in `PRESETS`, in the builder's module.

        They always include "default": if it is not in `PRESETS`, the config class without arguments.

        Raises:
            ValueError: See `config`; or there is no default.
        """
        config = self.config
        found = getattr(importlib.import_module(self.package), "PRESETS", {})
        presets = {name: preset for name, preset in found.items() if type(preset) is config}
        return presets if "default" in presets else {"default": self._make_default(config), **presets}

    @property
    def builder(self) -> "type[builders.AgentBuilder[Any]]":
        """The class of the agent's builder, which is made from a config.

        Raises:
            ValueError: It cannot be imported, or is not a subclass of `AgentBuilder`.
        """
        from minerva_acme import builders

        found = self._load(self.builder_name)
        if not (isinstance(found, type) and issubclass(found, builders.AgentBuilder)):
            advice = ""
            if hasattr(found, "reset") and hasattr(found, "step"):
                advice = f" It looks like an environment: minerva train ppo --env {self.path}"
            raise ValueError(f"`{self.path}` must be a subclass of `AgentBuilder`, got {found!r}.{advice}")
        return found

    def _load(self, name: str) -> Any:
        what = f"The agent '{self.title}' of {self.source}" if self.source else "The agent"
        return load(f"{self.package}:{name}", what)

    def _make_default(self, config: type[Any]) -> Any:
        missing = dataclasses.MISSING
        for field in dataclasses.fields(config):
            if field.init and field.default is missing and field.default_factory is missing:
                raise ValueError(
                    f"`{field.name}` of {config.__name__} must have a default, got none. Give it one, or put "
                    f'`PRESETS = {{"default": {config.__name__}(...)}}` into {self.package}.'
                )
        return config()


def _own(title: str, use: str, *compared_with: str) -> AgentEntry:
    """Returns the entry of an agent of this library, whose names follow from its title."""
    name = title.replace("-", "")
    package = f"minerva_acme.agents.{name.lower()}"
    return AgentEntry(title, package, f"{name}Config", f"{name}Builder", compared_with, use)


_OWN = (
    _own("MPO", "sample-efficient continuous control; also takes discrete and hybrid actions", "mpo", "dmpo"),
    _own(
        "V-MPO",
        "on-policy learning in many parallel environments, with bounded updates; any actions",
        "mpo",
        "ppo_acme_fixhp",
    ),
    _own("WPO", "as MPO, with a policy that follows the critic's gradient by the action", "mpo", "dmpo"),
    _own(
        "PPO",
        "a first try at anything: fast where environment steps are cheap; any actions",
        "ppo_acme_fixhp",
    ),
    _own("IMPALA", "many actors in their own processes that never wait for the learner; any actions"),
    _own("SAC", "few environment steps in continuous control, with exploration by entropy", "sac_1024"),
    _own("TD3", "few environment steps in continuous control, with a deterministic policy", "ddpg"),
    _own("D4PG", "as TD3, with a critic of the return's whole distribution", "d4pg"),
    _own("DQN", "few environment steps with discrete actions; images too"),
    _own("R2D2", "DQN with a recurrent network, for partial observations"),
    _own("BC", "a policy that acts as recorded data does, without rewards; any actions"),
    _own("CRR", "continuous control from recorded data alone: follows its better actions"),
    _own("IQL", "as CRR, with critics that never value an action outside the data"),
)
AGENTS: Mapping[str, AgentEntry] = MappingProxyType(
    {entry.package.rpartition(".")[2]: entry for entry in _OWN}
)
"""This library's own agents."""


def entries() -> Mapping[str, AgentEntry]:
    """Returns all agents that have a name: first this library's, then the installed packages'."""
    return {**AGENTS, **_installed(tuple(sys.path))}


def find(agent: str) -> AgentEntry:
    """Returns an agent. Imports none of its code.

    Args:
        agent: The agent's name, or its builder's `module:name`.

    Raises:
        ValueError: No agent has this name, or it cannot be used.
    """
    module, is_path, name = agent.partition(":")
    if is_path:
        return AgentEntry(name.rpartition(".")[2], module, "", name)
    known = entries()
    if agent not in known:
        raise ValueError(
            f"There is no agent '{agent}'; there are {', '.join(known)}. Install the package that has it."
        )
    if known[agent].problem:
        raise ValueError(known[agent].problem)
    return known[agent]


def load(path: str, what: str) -> Any:
    """Imports the object that `module:name` names.

    Args:
        path: Its location, `module:name`.
        what: Its description, which begins the error message.

    Raises:
        ValueError: The module does not exist, needs a package that is not installed, or has no such name.
    """
    module, _, name = path.partition(":")
    hint = "Install its package, or put the folder of its module into PYTHONPATH."
    try:
        if not re.fullmatch(r"\w[\w.]*:\w[\w.]*", path):
            raise ImportError("it is not of the form module:name")
        found = importlib.import_module(module)
        for part in name.split("."):
            if not hasattr(found, part):
                inside = _inside(found)
                hint = hint if inside else readable.of_names_in(found, part)
                raise ImportError(f"{module} has no {name}{inside}")
            found = getattr(found, part)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            hint = readable.of_modules_like(module, name)
        raise ValueError(f"{what} is `{path}`, which cannot be imported: {error}. {hint}") from error
    return found


def _inside(module: Any) -> str:
    """Says where a module of the same name may be meant: a folder without code is a module too."""
    name = str(getattr(module, "__name__", ""))
    folders = getattr(module, "__path__", ()) if getattr(module, "__file__", None) is None else ()
    found = [folder for folder in folders if (pathlib.Path(folder) / f"{name}.py").is_file()]
    return (
        f", since it is the folder {found[0]}; the module {name} is inside it: cd {found[0]}" if found else ""
    )


@functools.cache
def _installed(path: tuple[str, ...]) -> Mapping[str, AgentEntry]:
    """Returns the installed packages' agents by name. Args: path: Where Python looks for packages."""
    from importlib import metadata  # slow, and needless for help

    found: dict[str, AgentEntry] = {}
    for point in metadata.entry_points(group=GROUP):
        source = f"{point.dist.name} {point.dist.version}" if point.dist else "another package"
        module, _, name = point.value.partition("[")[0].replace(" ", "").partition(":")
        entry = AgentEntry(point.name, module, "", name, source=source)
        other = found.get(entry.title) or AGENTS.get(entry.title)
        if other is not None:
            entry = entry._replace(
                problem=f"Two agents are named '{entry.title}': `{other.path}` of "
                f"{other.source or 'minerva-acme'} and `{entry.path}` of {source}. Uninstall one of them, or "
                f"choose one by its path: --agent {entry.path}"
            )
        found[entry.title] = entry
    return found
