"""The agents that can be chosen by name."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from minerva_acme import builders
from minerva_acme.agents import mpo, ppo, vmpo


class AgentEntry(NamedTuple):
    """An agent by name."""

    config: type[Any]  # its frozen config dataclass
    presets: Mapping[str, Any]  # configs by name; "default" is one of them
    builder: Callable[[Any], builders.AgentBuilder[Any]]  # takes a config


AGENTS: Mapping[str, AgentEntry] = MappingProxyType(
    {
        "mpo": AgentEntry(config=mpo.MPOConfig, presets=mpo.PRESETS, builder=mpo.MPOBuilder),
        "vmpo": AgentEntry(config=vmpo.VMPOConfig, presets=vmpo.PRESETS, builder=vmpo.VMPOBuilder),
        "ppo": AgentEntry(config=ppo.PPOConfig, presets=ppo.PRESETS, builder=ppo.PPOBuilder),
    }
)
