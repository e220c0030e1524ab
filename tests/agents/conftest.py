"""Agents behind one name, tiny, and small environments to train them in."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import dm_env
import numpy as np
import pytest
import torch

from minerva_acme import builders, counting, experiments, specs, testing, types
from minerva_acme.agents import impala, on_policy, ppo, vmpo

from .mpo import scene as mpo_scene

TINY: dict[str, Any] = {
    "policy_layer_sizes": (8,),
    "value_layer_sizes": (8,),
    "num_environments": 1,
    "rollout_steps": 16,
}


class Sample(NamedTuple):
    data: types.Rollout


@dataclasses.dataclass(frozen=True)
class Agent:
    """An on-policy agent."""

    name: str
    builder_class: type[on_policy.OnPolicyBuilder]
    config_class: type[on_policy.OnPolicyConfig]
    tiny: dict[str, Any]

    def config(self, **overrides):
        return self.config_class(**{**TINY, **self.tiny, **overrides})

    def builder(self, **overrides):
        return self.builder_class(self.config(**overrides))

    def recording(self, *mixins: type, **overrides):
        """A builder that keeps its learner, what this reported and the rollouts that it was given."""
        return type("Recording", (*mixins, _Recording, self.builder_class), {})(self.config(**overrides))


PPO = Agent("ppo", ppo.PPOBuilder, ppo.PPOConfig, {"minibatch_size": 4, "num_epochs": 2, "target_kl": None})
VMPO = Agent("vmpo", vmpo.VMPOBuilder, vmpo.VMPOConfig, {"m_steps": 2})
IMPALA = Agent("impala", impala.IMPALABuilder, impala.IMPALAConfig, {})


@pytest.fixture(params=[PPO, VMPO], ids=lambda agent: agent.name)
def agent(request):
    """PPO, then V-MPO."""
    return request.param


@pytest.fixture
def ppo_agent():
    return PPO


@pytest.fixture
def vmpo_agent():
    return VMPO


@pytest.fixture
def impala_agent():
    return IMPALA


class _Recording:
    def __init__(self, config):
        super().__init__(config)
        self.rollouts: list[types.Rollout] = []
        self.rows = testing.FakeLogger().rows
        self.learner = None

    def on_rollout(self, rollout):
        """Called with each rollout, before the learner has it."""
        self.rollouts.append(rollout)

    def make_dataset(self, client, spec, device):
        return _Tee(super().make_dataset(client, spec, device), self.on_rollout)

    def make_learner(self, parts):
        logger = testing.FakeLogger()
        self.rows = logger.rows
        self.learner = super().make_learner(dataclasses.replace(parts, logger=logger))
        return self.learner


class _Tee:
    """A dataset that shows every batch to somebody else first."""

    def __init__(self, dataset, look: Callable[[types.Rollout], None]) -> None:
        self.dataset = dataset
        self.look = look

    def __iter__(self):
        return self

    def __next__(self):
        sample = next(self.dataset)
        self.look(sample.data)
        return sample

    def close(self):
        self.dataset.close()


@pytest.fixture
def continuous_spec():
    return specs.make_environment_spec(testing.FakeEnvironment())


@pytest.fixture
def discrete_spec():
    return specs.make_environment_spec(
        testing.FakeEnvironment(action_spec=specs.DiscreteArray(4, name="action"))
    )


@pytest.fixture(params=["continuous", "discrete"])
def spec(request, continuous_spec, discrete_spec):
    """Three numbers as observation; two numbers in [-1, 1], then one of four, as action."""
    return {"continuous": continuous_spec, "discrete": discrete_spec}[request.param]


@pytest.fixture
def make_rollout():
    """Makes the rollout that the policy of `builder` collects from random observations."""

    def make(builder, network, spec, seed=0, **overrides):
        config = builder.config
        num_steps, num_environments = config.rollout_length, config.num_environments
        shape = (num_steps, num_environments)
        generator = torch.Generator().manual_seed(seed)
        policy = builder.make_policy(network, spec, generator)
        observation = torch.randn(*shape, 3, generator=generator)
        outputs = [policy.batch(row.numpy()) for row in observation]
        reward = torch.randn(shape, generator=generator)
        last = torch.zeros(shape)
        last[-1] = 1.0
        fields = {
            "observation": observation,
            "action": torch.from_numpy(np.stack([output.action for output in outputs])),
            "reward": reward,
            "discount": torch.ones(shape),
            "next_observation": torch.cat(
                [observation[1:], torch.randn(1, *shape[1:], 3, generator=generator)]
            ),
            "first": torch.cat([torch.ones(1, num_environments), last[:-1]]),
            "last": last,
            "return_so_far": reward.cumsum(dim=0),
            "extras": _stack([output.extras for output in outputs]),
        }
        return types.Rollout(**{**fields, **overrides})

    return make


def _stack(extras):
    import tree

    return tree.map_structure(lambda *leaves: torch.from_numpy(np.stack(leaves)), *extras)


@pytest.fixture
def make_learner(make_rollout):
    """Makes a learner from `builder` on rollouts of its first policy, all different unless given.

    Returns the learner, its network and the rows that it logs.
    """

    def make(builder, spec, rollouts=None, seed=0, num_env_steps=None, device="cpu"):
        network = builder.make_networks(spec, torch.Generator().manual_seed(seed))
        logger = testing.FakeLogger()
        if rollouts is None:
            rollouts = (make_rollout(builder, network, spec, seed) for seed in itertools.count())
        learner = builder.make_learner(
            builders.LearnerParts(
                networks=network,
                dataset=(Sample(rollout) for rollout in rollouts),
                spec=spec,
                counter=counting.Counter(),
                logger=logger,
                generator=torch.Generator().manual_seed(seed),
                device=torch.device(device),
                share_done=num_env_steps
                and (lambda step: min(1.0, step / builder.num_learner_steps(num_env_steps))),
            )
        )
        return learner, network, logger.rows

    return make


class LearnerScene(NamedTuple):
    """A small learner of one of the agents, and batches for it."""

    name: str
    make_batch: Callable[..., Any]  # (seed) -> Trajectory or Rollout
    make: Callable[..., tuple[Any, list[dict[str, Any]]]]  # (batches, device, **config) -> learner, rows


@pytest.fixture(params=["mpo", "ppo", "vmpo"])
def learner_scene(request, make_rollout, make_learner, continuous_spec):
    """MPO, then PPO, then V-MPO."""
    if request.param == "mpo":

        def make_mpo(batches, device="cpu", **config):
            return mpo_scene.make_learner(
                continuous_spec,
                (mpo_scene.Sample(batch) for batch in batches),
                dataclasses.replace(mpo_scene.SMALL, **config),
                device=torch.device(device),
            )

        return LearnerScene("mpo", lambda seed: mpo_scene.make_trajectory(seed=seed), make_mpo)
    agent = {"ppo": PPO, "vmpo": VMPO}[request.param]

    def make_batch(seed):
        builder = agent.builder()
        network = builder.make_networks(continuous_spec, torch.Generator().manual_seed(0))
        return make_rollout(builder, network, continuous_spec, seed)

    def make(batches, device="cpu", **config):
        learner, _, rows = make_learner(agent.builder(**config), continuous_spec, batches, device=device)
        return learner, rows

    return LearnerScene(agent.name, make_batch, make)


@pytest.fixture
def run(tmp_path):
    """Runs an experiment; without evaluations but the first and the last, in a folder of its own."""
    numbers = itertools.count()

    def run(builder, environment_factory, num_env_steps, on_progress=lambda progress: None, **overrides):
        options = {
            "directory": tmp_path / f"run-{next(numbers)}",
            "evaluation_period": 0,
            "evaluation_episodes": 1,
            "checkpoint_period": 0,
            "log_period_seconds": 0.0,
            "tensorboard": False,
            "replay": "memory",  # seeded, so that a run's result is always the same
            **overrides,
        }
        config = experiments.ExperimentConfig(
            builder=builder, environment_factory=environment_factory, num_env_steps=num_env_steps, **options
        )
        return experiments.run_experiment(config, on_progress)

    return run


class Bandit(dm_env.Environment):
    """Episodes of one step. Of four actions the third pays 1; a continuous one pays 1 - (a - 0.5)^2."""

    def __init__(self, discrete: bool) -> None:
        self._discrete = discrete

    def reset(self):
        return dm_env.restart(np.ones(1, np.float32))

    def step(self, action):
        reward = float(action == 2) if self._discrete else 1.0 - (float(action[0]) - 0.5) ** 2
        return dm_env.TimeStep(
            dm_env.StepType.LAST, np.float32(reward), np.float32(0.0), np.ones(1, np.float32)
        )

    def observation_spec(self):
        return specs.Array((1,), np.float32, name="observation")

    def action_spec(self):
        if self._discrete:
            return specs.DiscreteArray(4, name="action")
        return specs.BoundedArray((1,), np.float32, -1.0, 1.0, name="action")

    def reward_spec(self):
        return specs.Array((), np.float32, name="reward")

    def discount_spec(self):
        return specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount")


@pytest.fixture(params=["discrete", "continuous"])
def bandit(request):
    """Makes the environment from a seed."""
    return lambda seed: Bandit(discrete=request.param == "discrete")
