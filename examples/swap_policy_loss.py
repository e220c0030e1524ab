"""MPO with the policy loss of a recent paper; the other parts are unchanged.

    python examples/swap_policy_loss.py --num-env-steps 20000

The loss is Wasserstein policy optimisation's [Pfau et al. 2025, arXiv:2505.00663]: samples of the policy
follow the gradient of Q by the action. Networks, critic, Retrace targets, KL bounds with their multipliers,
replay and acting are MPO's. There is no E-step. The agent `wpo` has the paper's other parts as well.
"""

import torch
import tyro

from minerva_acme import environments, experiments, losses
from minerva_acme.agents import mpo


def wpo(states: mpo.States, duals: losses.MPODuals, config: mpo.MPOConfig) -> mpo.Improvement:
    """Computes the gradient of Q at the target policy's actions, which the policy follows in each M-step."""
    actions_NBD = states.actions.transpose(0, 1).detach().requires_grad_()
    (dq_da_NBD,) = torch.autograd.grad(states.q_function(actions_NBD).sum(), actions_NBD)
    return mpo.Improvement(
        loss=lambda policy: losses.wpo_loss(policy, actions_NBD, dq_da_NBD).mean(),
        metrics={"policy/dq_da": dq_da_NBD.norm(dim=-1).mean()},
    )


class WPOBuilder(mpo.MPOBuilder):
    """MPO with another loss of the policy."""

    def make_policy_loss(self) -> mpo.PolicyLoss:
        return wpo


def main(
    env: str = "dm_control/cartpole/swingup",
    num_env_steps: int = 20_000,
    directory: str = "runs/wpo",
    seed: int = 0,
    config: mpo.MPOConfig = mpo.PRESETS["control"],
) -> experiments.ExperimentResult:
    """Trains like `minerva train mpo`, except for the policy's loss."""
    return experiments.run_experiment(
        experiments.ExperimentConfig(
            builder=WPOBuilder(config),
            environment_factory=lambda seed: environments.make_training_environment(env, seed=seed),
            directory=directory,
            num_env_steps=num_env_steps,
            seed=seed,
        )
    )


if __name__ == "__main__":
    result = tyro.cli(main)
    print(result.random, result.before, result.after, sep="\n")
