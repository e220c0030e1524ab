"""A learner step of R2D2 written out by hand: float64, loops over sequences, steps and rewards.

Shapes: B sequences of b + T transitions, b of them burn-in; K actions.
"""

import math

import torch

from .. import plain
from ..mpo import reference_memory
from ..transition_scene import NUM_ACTIONS

EPSILON = 1e-3


def compressed(x):
    """Pohlen et al. 2018, proposition A.2."""
    return math.copysign(math.sqrt(abs(x) + 1.0) - 1.0, x) + EPSILON * x


def expanded(x):
    """Its inverse, as the paper writes it."""
    root = math.sqrt(1.0 + 4.0 * EPSILON * (abs(x) + 1.0 + EPSILON))
    return math.copysign(((root - 1.0) / (2.0 * EPSILON)) ** 2 - 1.0, x)


class Reference:
    """The weights, and a step of plain gradient descent on the loss."""

    def __init__(self, modules, generator, *, config, weights):
        """Takes weights by module, and those of the sequences of each batch, [B]; nothing is drawn."""
        self.modules = modules
        self.priorities = []  # [B]  of each step
        self._config = config
        self._weights = weights
        self._num_steps = 0

    def values(self, weights, batch):
        """Compressed values of the states from the first learned one on, [B, T + 1, K]."""
        config, num_parts = self._config, {"lstm": 2, "gru": 1}[self._config.memory]
        rows = []
        for b, observation in enumerate(batch.observation):
            zeros = (torch.zeros(config.memory_size, dtype=torch.float64),) * num_parts
            remembered = reference_memory.remembered(
                weights,
                observation,
                tuple(part[b] for part in batch.state) or zeros,
                [False, *(batch.mask[b] == 0)],  # an episode begins behind a step that did not happen
                config.burn_in,
                config.memory,
            )
            rows.append(
                plain.outputs_of_actions(weights, remembered, NUM_ACTIONS, dueling=config.dueling)[..., 0]
            )
        return torch.stack(rows)

    def target(self, b, t, batch, target_q, q):
        """The target of a step, whose return ends after n steps, with the episode or with the sequence."""
        config, total, product = self._config, 0.0, 1.0
        mask = batch.mask[b].tolist()
        for k in range(t, t + config.n_step):
            row = config.burn_in + k
            total += product * batch.reward[b, row].item()
            product *= config.discount * batch.discount[b, row].item()
            if row + 1 == len(mask) or mask[row + 1] == 0.0:
                break
        chooser = (q if config.double else target_q)[b, k + 1].tolist()
        best = max(range(NUM_ACTIONS), key=lambda action: chooser[action])
        return compressed(total + product * expanded(target_q[b, k + 1, best].item()))

    def step(self, batch):
        modules, config = self.modules, self._config
        network = plain.leaves(modules["q_network"])
        q = self.values(network, batch)
        target_q = self.values(modules["target_network"], batch)
        loss, taken, targets, priorities = 0.0, [], [], []
        for b, weight in enumerate(self._weights[self._num_steps]):
            sizes = [0.0]
            for t in range(batch.mask.shape[1] - config.burn_in):
                if batch.mask[b, config.burn_in + t] == 0.0:
                    continue
                targets.append(self.target(b, t, batch, target_q, q))
                taken.append(q[b, t, batch.action[b, config.burn_in + t].item()])
                error = targets[-1] - taken[-1]
                loss = loss + weight * error**2 / 2.0 / len(batch.mask)
                sizes.append(abs(error.item()))
            share = config.max_priority_share
            priorities.append(share * max(sizes) + (1.0 - share) * sum(sizes) / max(1, len(sizes) - 1))
        self.priorities.append(priorities)
        modules["q_network"], norm = plain.descend(network, loss, config.learning_rate, config.max_grad_norm)
        self._num_steps += 1
        if self._num_steps % config.target_update_period == 0:
            modules["target_network"] = dict(modules["q_network"])
        return {
            "loss/q_network": loss,
            "grad_norm/q_network": norm,
            "q/mean": sum(taken) / len(taken),
            "q/target": torch.tensor(sum(targets) / len(targets), dtype=torch.float64),
        }
