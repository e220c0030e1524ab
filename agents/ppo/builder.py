"""Makes the parts of PPO."""

from minerva_acme.agents import on_policy
from minerva_acme.agents.ppo import config as ppo_config
from minerva_acme.agents.ppo import learner


class PPOBuilder(on_policy.OnPolicyBuilder[ppo_config.PPOConfig]):
    """PPO over rollouts. Every part can be swapped by overriding its `make_` method."""

    config_class = ppo_config.PPOConfig
    learner_class = learner.PPOLearner

    @property
    def learner_step(self) -> str:
        config = self.config
        times = f"at most {config.num_epochs:,} times over it in minibatches of {config.minibatch_size:,}"
        return f"{super().learner_step}, {times}"
