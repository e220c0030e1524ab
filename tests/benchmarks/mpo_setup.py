"""The learner and the plain update, for comparison: equal weights, equal settings, the same noise."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
import tree

from minerva_acme import builders, counting, learners, specs, types
from minerva_acme.agents import mpo

from . import plain_mpo

SEED = 1


class Sample(NamedTuple):
    """A sample of a dataset."""

    data: types.Trajectory


class Silent:
    """A logger that keeps the last row."""

    def __init__(self) -> None:
        self.row: dict[str, Any] = {}

    def write(self, values: Any) -> None:
        self.row = dict(values)


def make_spec(observation_size: int = 17, action_size: int = 6) -> specs.EnvironmentSpec:
    """Makes a spec, by default with the sizes of dm_control's cheetah."""
    return specs.EnvironmentSpec(
        observations=specs.Array((observation_size,), np.float32, name="observation"),
        actions=specs.BoundedArray((action_size,), np.float32, -1.0, 1.0, name="action"),
        rewards=specs.Array((), np.float32, name="reward"),
        discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount"),
    )


PLAIN_CONFIG = mpo.MPOConfig(temperature="learned", bounded_mean=False)
"""The settings of the plain update."""


def make_batch(spec: specs.EnvironmentSpec, config: mpo.MPOConfig, seed: int) -> types.Trajectory:
    """Makes sequences of noise: off-policy log-densities, some true ends, no padding."""
    generator = torch.Generator().manual_seed(seed)
    sizes = config.batch_size, config.sequence_length

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    raw_action = normal(*sizes, spec.actions.shape[0])
    return types.Trajectory(
        observation=normal(sizes[0], sizes[1] + 1, spec.observations.shape[0]),
        action=raw_action.clamp(-1.0, 1.0),
        reward=normal(*sizes),
        discount=(torch.rand(*sizes, generator=generator) > 0.1).float(),
        mask=torch.ones(*sizes),
        extras=mpo.BehaviourExtras(
            log_prob=-0.5 * raw_action.square().sum(dim=-1) - spec.actions.shape[0] * 0.919,
            raw_action=raw_action,
        ),
    )


def make_learner(
    spec: specs.EnvironmentSpec,
    config: mpo.MPOConfig,
    batches: list[types.Trajectory],
    ranks: learners.Ranks | None = None,
    device: str = "cpu",
) -> learners.LossLearner:
    """Makes the library's learner on these batches, in a cycle; `ranks` if it is one of several learners."""
    on_device = [Sample(tree.map_structure(lambda leaf: leaf.to(device), batch)) for batch in batches]
    dataset: Iterator[Sample] = itertools.cycle(on_device)
    networks = mpo.make_networks(spec, config, torch.Generator().manual_seed(SEED))
    learner = mpo.MPOBuilder(config).make_learner(
        builders.LearnerParts(
            networks=networks,
            dataset=dataset,
            spec=spec,
            counter=counting.Counter(),
            logger=Silent(),
            generator=torch.Generator(device).manual_seed(SEED),
            device=torch.device(device),
            ranks=ranks,
        )
    )
    assert isinstance(learner, learners.LossLearner)
    return learner


def make_plain(spec: specs.EnvironmentSpec, config: mpo.MPOConfig, seed: int = SEED) -> plain_mpo.PlainMPO:
    """Makes the plain update, with the initial weights of `make_learner`."""
    networks = mpo.make_networks(spec, config, torch.Generator().manual_seed(seed))
    observation_size, action_size = spec.observations.shape[0], spec.actions.shape[0]
    policy = plain_mpo.Policy(observation_size, action_size, config.policy_layer_sizes)
    low, high = (torch.from_numpy(bound.copy()) for bound in specs.bounds(spec.actions))
    critic = plain_mpo.Critic(observation_size, low, high, config.critic_layer_sizes)
    policy.load_state_dict(networks.policy.state_dict())
    critic.load_state_dict(networks.critic.state_dict())
    duals = plain_mpo.Duals(
        action_size, config.init_log_temperature, config.init_log_alpha_mean, config.init_log_alpha_stddev
    )
    settings = {
        field: getattr(config, field)
        for field in plain_mpo.PlainConfig.__dataclass_fields__
        if field != "target_update_period"
    }
    plain_config = plain_mpo.PlainConfig(target_update_period=config.target_policy_update_period, **settings)
    return plain_mpo.PlainMPO(policy, critic, duals, plain_config, torch.Generator().manual_seed(seed))


def make_step(settings: Mapping[str, Any] | None) -> Callable[[], object]:
    """Makes a learner step at the benchmarks' sizes: ours with these settings, or the plain one for None."""
    spec, config = make_spec(), PLAIN_CONFIG
    batches = [make_batch(spec, config, seed) for seed in range(4)]
    if settings is not None:
        return make_learner(spec, dataclasses.replace(config, **settings), batches).step
    plain = make_plain(spec, config)
    plain_batches = itertools.cycle([plain_batch(batch) for batch in batches])
    return lambda: plain.update(next(plain_batches))


def plain_batch(batch: types.Trajectory) -> plain_mpo.PlainTrajectory:
    """Converts a batch for the plain update."""
    return plain_mpo.PlainTrajectory(
        observation=batch.observation,
        action=batch.action,
        reward=batch.reward,
        discount=batch.discount,
        raw_action=batch.extras.raw_action,
        log_prob=batch.extras.log_prob,
    )
