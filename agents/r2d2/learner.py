"""R2D2's loss, which `learners.LossLearner` minimises on each batch.

Shapes: B batch of sequences; b burn-in and T learned transitions; K actions.
"""

import dataclasses

import torch

from minerva_acme import learners, losses, networks
from minerva_acme.agents.r2d2.config import R2D2Config
from minerva_acme.agents.r2d2.networks import R2D2Networks


@dataclasses.dataclass(frozen=True)
class R2D2Losses:
    """The loss of Q-learning over sequences, with a memory.

    Source: Kapturowski et al. 2019, "Recurrent experience replay in distributed reinforcement learning".
    """

    config: R2D2Config

    def q_network(
        self, nets: R2D2Networks, batch: learners.Batch, generator: torch.Generator | None
    ) -> learners.Loss:
        """Computes the loss by which the taken actions' values regress to n-step targets.

            J = mean_b w_b 1/2 sum_t (Q(s_t, a_t) - y_t)^2
            y_t = h(r_t + d_t r_{t+1} + .. + d_t .. d_{t+n-1} h^-1(Q'(s_{t+n}, a*)))
            a* = argmax Q'(s_{t+n}, .), or with `double` argmax Q(s_{t+n}, .)

        Both networks start from the stored state and warm up on the burn-in. Both predict compressed values,
        h(return), see `losses.signed_hyperbolic`. Errors and priorities are differences of these.
        """
        config, data = self.config, batch.data  # a `types.Trajectory` of b + T steps
        steps = networks.sequences(data, config.burn_in)
        action, reward, discount, mask = (
            column[:, config.burn_in :] for column in (data.action, data.reward, data.discount, data.mask)
        )
        prediction = nets.q_network(steps).mean()  # [B, T + 1, K]
        with torch.no_grad():
            target_q = nets.target_network(steps).mean()[:, 1:]
            chooser = prediction[:, 1:] if config.double else target_q
            best_q = _select(target_q, chooser.argmax(dim=-1))
            target = losses.transformed_n_step_targets(
                best_q, reward, discount * config.discount, mask, config.n_step
            )
        q = _select(prediction[:, :-1], action)
        td_error = target - q
        learned = batch._replace(mask=mask)
        value = losses.sequence_loss(td_error, mask, torch.ones_like(mask[:, 0]) * batch.weights)
        return learners.Loss(
            value,
            {"q/mean": learned.mean(q.detach()), "q/target": learned.mean(target)},
            losses.sequence_priorities(td_error, mask, config.max_priority_share),
        )


def _select(q: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Selects [B, T, K] -> [B, T]."""
    return q.gather(-1, action.long().unsqueeze(-1)).squeeze(-1)
