"""A learner step of MPO with a memory, written out by hand: what `reference.py` does, on remembered features.

The memory is gone through row by row and sequence by sequence, with its gates in full.

Shapes: B batch, T transitions that are learned from, K rows of burn-in before them, O observation size, H
units of the memory.
"""

import torch

from . import reference
from .reference import Weights

State = tuple[torch.Tensor, ...]  # [H] each


def lstm(memory: Weights, x: torch.Tensor, state: State) -> State:
    """Hochreiter and Schmidhuber's cell with a forget gate, [O] -> hidden and cell; gates: i, f, g, o."""
    hidden, cell = state
    gates = memory["weight_ih"] @ x + memory["bias_ih"] + memory["weight_hh"] @ hidden + memory["bias_hh"]
    i, f, g, o = gates.chunk(4)
    cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cell), cell


def gru(memory: Weights, x: torch.Tensor, state: State) -> State:
    """Cho et al.'s cell, with the reset gate behind the product as in cuDNN; gates: r, z, n."""
    (hidden,) = state
    r, z, n = (memory["weight_ih"] @ x + memory["bias_ih"]).chunk(3)
    r_h, z_h, n_h = (memory["weight_hh"] @ hidden + memory["bias_hh"]).chunk(3)
    z = torch.sigmoid(z + z_h)
    return ((1.0 - z) * torch.tanh(n + torch.sigmoid(r + r_h) * n_h) + z * hidden,)


CELLS = {"lstm": lstm, "gru": gru}


def memory_of(weights: Weights) -> Weights:
    """The memory's own weights, by the short names of the cells, among those of a network."""
    return {name.split("rnn.")[1].removesuffix("_l0"): w for name, w in weights.items() if "rnn." in name}


def remembered(
    weights: Weights, observation: torch.Tensor, state: State, begins: list[bool], burn_in: int, kind: str
) -> torch.Tensor:
    """Features of the rows after the burn-in of one sequence, [K + T + 1, O] -> [T + 1, H].

    No gradient flows back to the rows of the burn-in.
    """
    memory, features = memory_of(weights), []
    for t, x in enumerate(observation):
        if begins[t]:
            state = tuple(torch.zeros_like(part) for part in state)
        state = CELLS[kind](memory, x, state)
        if t < burn_in:
            state = tuple(part.detach() for part in state)
        else:
            features.append(state[0])
    return torch.stack(features)


class Reference(reference.Reference):
    """The learner's parameters in float64, with the memory's among the critic's, and a step on them."""

    def step(self, batch) -> dict[str, float]:
        """A step on a `Trajectory` of K + T transitions, as `reference.Reference.step` makes it."""
        self.sync_targets()
        self._whole = batch
        burn_in = self._config.burn_in
        late = batch._replace(
            **{name: getattr(batch, name)[:, burn_in:] for name in ("action", "reward", "discount", "mask")},
            extras=type(batch.extras)(
                log_prob=batch.extras.log_prob[:, burn_in:], raw_action=batch.extras.raw_action[:, burn_in:]
            ),
        )
        with torch.no_grad():
            of_target = self.features(self.modules["target_critic"], batch)
            of_online = self.features(self.modules["critic"], batch)
        evaluation = self.evaluate(late._replace(observation=of_target))
        # The policy is improved on the features that the memory had before the critic's step.
        return self.learn(late._replace(observation=of_online), evaluation)

    def features(self, weights: Weights, batch) -> torch.Tensor:
        """Remembered features of the rows after the burn-in, [B, T + 1, H]."""
        del batch  # of features, once it is prepared
        whole, config = self._whole, self._config
        no_state = (torch.zeros(config.memory_size).double(),) * {"lstm": 2, "gru": 1}[config.memory]
        sequences = []
        for b, observation in enumerate(whole.observation):
            # An episode begins in the row behind a step that did not happen.
            begins = [False, *(step == 0.0 for step in whole.mask[b])]
            state = tuple(part[b] for part in whole.state) or no_state
            sequences.append(remembered(weights, observation, state, begins, config.burn_in, config.memory))
        return torch.stack(sequences)
