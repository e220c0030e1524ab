"""Agents behind one name, tiny, and small environments to train them in."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch

from minerva_acme import builders, counting, experiments, specs, testing, types
from minerva_acme.agents import impala, on_policy, ppo, registry, vmpo

from . import table


class Sample(NamedTuple):
    data: types.Rollout


@dataclasses.dataclass(frozen=True)
class Agent:
    """An on-policy agent."""

    name: str
    builder_class: type[on_policy.OnPolicyBuilder]
    config_class: type[on_policy.OnPolicyConfig]

    def config(self, **overrides):
        return self.config_class(**{**table.SETTINGS[self.name], **overrides})

    def builder(self, **overrides):
        return self.builder_class(self.config(**overrides))

    def recording(self, *mixins: type, **overrides):
        """A builder that keeps its learner, what this reported and the rollouts that it was given."""
        return type("Recording", (*mixins, _Recording, self.builder_class), {})(self.config(**overrides))


PPO = Agent("ppo", ppo.PPOBuilder, ppo.PPOConfig)
VMPO = Agent("vmpo", vmpo.VMPOBuilder, vmpo.VMPOConfig)
IMPALA = Agent("impala", impala.IMPALABuilder, impala.IMPALAConfig)


BOTH = pytest.mark.parametrize("agent", [PPO, VMPO], indirect=True, ids=["ppo", "vmpo"])


@pytest.fixture
def agent(request):
    """PPO if nothing else is said: V-MPO has the same networks, actors and preparation."""
    return getattr(request, "param", PPO)


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
    return table.make_rollout


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


@pytest.fixture(params=registry.AGENTS)
def learner_scene(request):
    """Every agent, tiny: see `table`."""
    return table.Scene(request.param)


@pytest.fixture
def run(tmp_path):
    """Runs an experiment; without evaluations, in a folder of its own."""
    numbers = itertools.count()

    def run(builder, environment_factory, num_env_steps, on_progress=lambda progress: None, **overrides):
        options = {
            "directory": tmp_path / f"run-{next(numbers)}",
            "evaluation_period": 0,
            "evaluation_episodes": 0,
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
