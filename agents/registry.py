"""The agents that can be chosen: this library's, those of installed packages, and builders by where they are.

A package of your own offers an agent by an entry point, `name = "package.module:Builder"`, in the group
`minerva_acme.agents`. Nothing here imports torch, or code of others, before an agent is used.
"""

import dataclasses
import functools
import importlib
import re
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from minerva_acme import builders

GROUP = "minerva_acme.agents"


class AgentEntry(NamedTuple):
    """An agent: its package or module, and what that calls its parts."""

    title: str  # as people write it
    package: str
    config_name: str  # "": that of the builder's `config_class`, which to ask imports torch
    builder_name: str
    compared_with: tuple[str, ...] = ()  # the published curves that a plot shows behind its own
    use: str = ""  # what it is for, in a line
    source: str = ""  # the installed package that it comes from, with its version; "": this library
    problem: str = ""  # why it cannot be used, as a sentence

    @property
    def path(self) -> str:
        """Where its builder is, `module:name`."""
        return f"{self.package}:{self.builder_name}"

    @property
    def config(self) -> type[Any]:
        """Its config dataclass.

        Raises:
            ValueError: the agent cannot be imported, or its builder names no config class.
        """
        if self.config_name:
            return self._load(self.config_name)
        from minerva_acme import builders

        return builders.find_config_class(self.builder)

    @property
    def presets(self) -> Mapping[str, Any]:
        """Configs by name: those in `PRESETS` beside the builder that are of its class.

        "default" is one of them: without arguments, if it is not among these.

        Raises:
            ValueError: as of `config`, or there is no default.
        """
        config = self.config
        found = getattr(importlib.import_module(self.package), "PRESETS", {})
        presets = {name: preset for name, preset in found.items() if type(preset) is config}
        return presets if "default" in presets else {"default": self._make_default(config), **presets}

    @property
    def builder(self) -> "type[builders.AgentBuilder[Any]]":
        """Makes the agent's builder from a config.

        Raises:
            ValueError: it cannot be imported, or is none.
        """
        from minerva_acme import builders

        found = self._load(self.builder_name)
        if not (isinstance(found, type) and issubclass(found, builders.AgentBuilder)):
            raise ValueError(f"`{self.path}` must be a subclass of `AgentBuilder`, got {found!r}.")
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


AGENTS: Mapping[str, AgentEntry] = MappingProxyType(
    {
        "mpo": AgentEntry(
            "MPO",
            "minerva_acme.agents.mpo",
            "MPOConfig",
            "MPOBuilder",
            ("mpo", "dmpo"),
            "the most from each environment step, in continuous control; takes discrete actions too",
        ),
        "vmpo": AgentEntry(
            "V-MPO",
            "minerva_acme.agents.vmpo",
            "VMPOConfig",
            "VMPOBuilder",
            ("mpo", "ppo_acme_fixhp"),
            "many steps of several environments, on-policy, with bounded updates; any actions",
        ),
        "ppo": AgentEntry(
            "PPO",
            "minerva_acme.agents.ppo",
            "PPOConfig",
            "PPOBuilder",
            ("ppo_acme_fixhp",),
            "a first try at anything: fast where environment steps are cheap; any actions",
        ),
        "sac": AgentEntry(
            "SAC",
            "minerva_acme.agents.sac",
            "SACConfig",
            "SACBuilder",
            ("sac_1024",),
            "few environment steps in continuous control, with exploration by entropy",
        ),
        "td3": AgentEntry(
            "TD3",
            "minerva_acme.agents.td3",
            "TD3Config",
            "TD3Builder",
            ("ddpg",),
            "few environment steps in continuous control, with a deterministic policy",
        ),
        "d4pg": AgentEntry(
            "D4PG",
            "minerva_acme.agents.d4pg",
            "D4PGConfig",
            "D4PGBuilder",
            ("d4pg",),
            "as TD3, with a critic of the return's whole distribution",
        ),
        "dqn": AgentEntry(
            "DQN",
            "minerva_acme.agents.dqn",
            "DQNConfig",
            "DQNBuilder",
            use="few environment steps with discrete actions; images too",
        ),
    }
)
"""This library's own."""


def entries() -> Mapping[str, AgentEntry]:
    """Returns all agents that have a name: this library's, then those of installed packages."""
    return {**AGENTS, **_installed(tuple(sys.path))}


def find(agent: str) -> AgentEntry:
    """Returns an agent. Imports none of its code.

    Args:
        agent: its name, or `module:name` of its builder.

    Raises:
        ValueError: there is none of this name, or it cannot be used.
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
    """Imports what `module:name` names.

    Args:
        path: where it is.
        what: whose it is, for the message.

    Raises:
        ValueError: there is no such module, what it needs is not installed, or it has no such name.
    """
    module, _, name = path.partition(":")
    try:
        if not re.fullmatch(r"\w[\w.]*:\w[\w.]*", path):
            raise ImportError("it is not of the form module:name")
        found = importlib.import_module(module)
        for part in name.split("."):
            if not hasattr(found, part):
                raise ImportError(f"{module} has no {name}")
            found = getattr(found, part)
    except ImportError as error:
        raise ValueError(
            f"{what} is `{path}`, which cannot be imported: {error}. Install its package, or put the folder "
            "of its module into PYTHONPATH."
        ) from error
    return found


@functools.cache
def _installed(path: tuple[str, ...]) -> Mapping[str, AgentEntry]:
    """Args: path: where Python looks for packages."""
    from importlib import metadata  # slow, and needless for help

    found: dict[str, AgentEntry] = {}
    for point in metadata.entry_points(group=GROUP):
        source = f"{point.dist.name} {point.dist.version}" if point.dist else "another package"
        module, _, name = point.value.partition("[")[0].replace(" ", "").partition(":")
        entry = AgentEntry(point.name, module, "", name, source=source)
        other = found.get(entry.title) or AGENTS.get(entry.title)
        if other is not None:
            entry = entry._replace(
                problem=f"The name '{entry.title}' must be of one agent, but is of `{other.path}` by "
                f"{other.source or 'minerva-acme'} and of `{entry.path}` by {source}. Uninstall one of them, "
                f"or say which: --agent {entry.path}"
            )
        found[entry.title] = entry
    return found
