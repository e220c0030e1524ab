"""A learner step of DQN written out by hand: float64, loops over states, actions and atoms."""

import torch

from .. import plain

NUM_ACTIONS = 3


class Reference:
    """The weights, and a step of plain gradient descent on the loss."""

    def __init__(self, modules, generator, *, config):
        """Takes weights by module; nothing is drawn."""
        self.modules = modules
        self._config = config
        self._num_steps = 0
        self._atoms = torch.linspace(config.vmin, config.vmax, config.num_bins, dtype=torch.float64)

    def outputs(self, weights, observation):
        return plain.outputs_of_actions(weights, observation, NUM_ACTIONS, dueling=self._config.dueling)

    def values(self, outputs):
        """[B, K, n] -> [B, K]."""
        if self._config.critic_head == "scalar":
            return outputs[..., 0]
        return (torch.softmax(outputs, dim=-1) * self._atoms).sum(dim=-1)

    def projected(self, reward, discount, probabilities):
        """Each atom's mass to its neighbours by triangles, [K]."""
        gap = self._atoms[1] - self._atoms[0]
        moved = (reward + discount * self._atoms).clamp(self._atoms[0], self._atoms[-1])
        return torch.stack(
            [(probabilities * (1.0 - (moved - z).abs() / gap).clamp(min=0.0)).sum() for z in self._atoms]
        )

    def step(self, batch):
        self._num_steps += 1
        modules, config = self.modules, self._config
        network = plain.leaves(modules["q_network"])
        with torch.no_grad():
            next_outputs = self.outputs(modules["target_network"], batch.next_observation)
            next_values = self.values(next_outputs)
            chooser = next_values
            if config.double:
                chooser = self.values(self.outputs(network, batch.next_observation))
        outputs = self.outputs(network, batch.observation)
        loss, targets, taken = 0.0, [], []
        for b, action in enumerate(batch.action.tolist()):
            best = max(range(NUM_ACTIONS), key=lambda k, b=b: chooser[b, k].item())
            targets.append(batch.reward[b] + batch.discount[b] * next_values[b, best])
            taken.append(self.values(outputs)[b, action])
            if config.max_td_error is not None:
                value = taken[-1].detach()
                error = (targets[-1] - value).item()
                targets[-1] = value + max(-config.max_td_error, min(config.max_td_error, error))
            if config.critic_head == "scalar":
                loss = loss + (taken[-1] - targets[-1]) ** 2
            else:
                probabilities = torch.softmax(next_outputs[b, best], dim=-1)
                p = self.projected(batch.reward[b], batch.discount[b], probabilities)
                loss = loss - (p * torch.log_softmax(outputs[b, action], dim=-1)).sum()
        loss = loss / len(targets)
        modules["q_network"], norm = plain.descend(network, loss, config.learning_rate, config.max_grad_norm)
        if self._num_steps % config.target_update_period == 0:
            modules["target_network"] = dict(modules["q_network"])
        return {
            "loss/q_network": loss,
            "grad_norm/q_network": norm,
            "q/mean": sum(taken) / len(taken),
            "q/target": sum(targets) / len(targets),
        }
