"""The agents that can be chosen by name. Nothing here imports torch before a builder is used."""

import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from minerva_acme import builders


class AgentEntry(NamedTuple):
    """An agent by name: its package, and what that calls its parts."""

    title: str  # as people write it
    package: str
    config_name: str
    builder_name: str
    compared_with: tuple[str, ...] = ()  # the published curves that a plot shows behind its own

    @property
    def config(self) -> type[Any]:
        """Its frozen config dataclass."""
        return self._load(self.config_name)

    @property
    def presets(self) -> Mapping[str, Any]:
        """Configs by name; "default" is one of them."""
        return self._load("PRESETS")

    @property
    def builder(self) -> "Callable[[Any], builders.AgentBuilder[Any]]":
        """Makes the agent's builder from a config."""
        return self._load(self.builder_name)

    def _load(self, name: str) -> Any:
        return getattr(importlib.import_module(self.package), name)


AGENTS: Mapping[str, AgentEntry] = MappingProxyType(
    {
        "mpo": AgentEntry("MPO", "minerva_acme.agents.mpo", "MPOConfig", "MPOBuilder", ("mpo", "dmpo")),
        "vmpo": AgentEntry(
            "V-MPO", "minerva_acme.agents.vmpo", "VMPOConfig", "VMPOBuilder", ("mpo", "ppo_acme_fixhp")
        ),
        "ppo": AgentEntry("PPO", "minerva_acme.agents.ppo", "PPOConfig", "PPOBuilder", ("ppo_acme_fixhp",)),
    }
)
