"""The networks that DQN trains.

Shapes: F features; K discrete actions; n numbers for each value (1, or the bins of a distribution); `...`
leading axes.
"""

from typing import NamedTuple

from torch import nn

from minerva_acme.names import readable


class DQNNetworks(NamedTuple):
    """DQN's network and target network: any modules with this signature and a `loss`.

    q_network(observation [..., *]) -> networks.Prediction of all actions, [..., K]
    """

    q_network: nn.Module
    target_network: nn.Module

    def __repr__(self) -> str:
        return readable.of_modules(self)
