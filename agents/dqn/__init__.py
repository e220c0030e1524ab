"""Deep Q-networks (DQN) and extensions: double, dueling, n-step, prioritised and distributional."""

from typing import TYPE_CHECKING

from minerva_acme.names import lazy

if TYPE_CHECKING:
    from minerva_acme.agents.dqn.builder import DQNBuilder
    from minerva_acme.agents.dqn.config import PRESETS, DQNConfig
    from minerva_acme.agents.dqn.learner import DQNLosses
    from minerva_acme.agents.dqn.networks import DQNNetworks

__all__ = ["DQNBuilder", "DQNConfig", "DQNLosses", "DQNNetworks", "PRESETS"]

__getattr__, __dir__ = lazy.attach(__name__, __file__)
