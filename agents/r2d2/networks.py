"""The networks that R2D2 trains.

Shapes: B sequences; T transitions; b burn-in steps; K discrete actions.
"""

from typing import NamedTuple

from torch import nn

from minerva_acme.names import readable


class R2D2Networks(NamedTuple):
    """R2D2's network and target network: any modules with this signature and a memory, see `ModulePolicy`.

    q_network(networks.Sequences of B x (T + 1) observations) -> networks.Prediction [B, T + 1 - b, K]
    """

    q_network: nn.Module
    target_network: nn.Module

    def __repr__(self) -> str:
        return readable.of_modules(self)
