"""Bad batches for all learners: nothing that a learner holds may become infinite or nan.

A case is a learner of random networks and settings, and a bad batch. Whatever is in it, and whether it was
skipped or learned from, all that the learner would save is finite, and a good batch is learned from next.

Shapes: B sequences of T steps, or T steps of each of E environments; O, D as everywhere.
"""

import collections
import copy
import functools
import itertools
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import tree

from minerva_acme import builders, counting, distributions, specs, testing, types
from minerva_acme.agents import acting, mpo, ppo, vmpo

COUNT = 10_000
_CASES_OF_A_LEARNER = 10  # To make one takes as long as several steps.

T, E = 4, 2  # so that a PPO rollout has two minibatches
_OBSERVATION_SIZE, _NUM_ACTIONS = 3, 4
_LOW, _HIGH = [-2.0, -0.5], [1.0, 3.0]  # of actions
_NUMBERS = [
    *(float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1.0, -1.0, 1e-40),
    *(
        sign * size
        for size in (1e2, 1e5, 1e8, 1e12, 9e14, 1.1e15, 9e17, 1e19, 1e20, 1e30, 3e38)
        for sign in (1, -1)
    ),
]
_ON_POLICY: dict[str, list[Any]] = {
    "torso": ["tanh", "layer_norm"],
    "shared_torso": [False, True],
    "state_dependent_stddev": [True, True, False],
    "squash_actions": [False, True],
    "advantage_estimator": ["gae", "dae", "returns"],
    "normalize_advantages": [True, False],
    "normalize_observations": [True, False],
    "scale_rewards": [True, False],
    "discount": [0.0, 0.9, 1.0],
    "max_grad_norm": [0.5, 1e30],
    "acceleration": ["auto", "off"],
}
_SETTINGS: dict[str, dict[str, list[Any]]] = {
    "mpo": {
        "critic_target": ["retrace", "n_step", "one_step"],
        "critic_loss_steps": ["first", "all"],
        "per_dimension_constraint": [True, False],
        "action_penalty": [False, True],
        "m_steps": [1, 2],
        "optimizer": ["adam", "sgd"],
        "max_grad_norm": [1.0, 1e30],
        "acceleration": ["auto", "off"],
    },
    "ppo": {
        **_ON_POLICY,
        "clip_value": [False, True],
        "entropy_coef": [0.0, 0.01],
        "target_kl": [None, 0.02],
    },
    "vmpo": {**_ON_POLICY, "m_steps": [1, 2], "top_k_fraction": [0.5, 1.0]},
}
_FIXED: dict[str, dict[str, Any]] = {
    "mpo": {
        "policy_layer_sizes": (6,),
        "critic_layer_sizes": (6,),
        "num_samples": 3,
        "retrace_mc_actions": 2,
        "batch_size": E,
        "sequence_length": T,
        "target_policy_update_period": 2,
        "target_critic_update_period": 2,
    },
    "ppo": {"minibatch_size": 4, "num_epochs": 2},
    "vmpo": {},
}
_BUILDERS = {
    "mpo": (mpo.MPOBuilder, mpo.MPOConfig),
    "ppo": (ppo.PPOBuilder, ppo.PPOConfig),
    "vmpo": (vmpo.VMPOBuilder, vmpo.VMPOConfig),
}


class Sample(NamedTuple):
    data: Any


class _Scene(NamedTuple):
    """A learner that has learned from one good batch."""

    settings: str  # in words
    learner: Any
    feed: Callable[[Any], int]  # lets it meet a batch; how many it has skipped since its beginning
    good: Any
    state: Any  # of the learner, to go back to


def check(seed: int) -> str:
    """Tries one case.

    Raises:
        AssertionError: something that the learner holds is not finite, or the good batch is not learned from
            any more.
    """
    scene, rng = _make_scene(seed // _CASES_OF_A_LEARNER), random.Random(seed)
    learner = scene.learner
    learner.restore(copy.deepcopy(scene.state))
    bad, damage = _spoil(scene.good, rng)
    case = f"{scene.settings}: {damage}"
    was_skipped = scene.feed(bad) == 1
    _assert_finite(learner.save(), case)
    assert scene.feed(scene.good) == was_skipped, f"{case}: the good batch is not learned from any more"
    _assert_finite(learner.save(), case)
    return "skipped" if was_skipped else "learned from"


@functools.lru_cache(maxsize=1)
def _make_scene(seed: int) -> _Scene:
    """A learner of random settings, whose networks say something else in every state."""
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    agent = rng.choice(["mpo", "ppo", "vmpo"])
    is_discrete = agent != "mpo" and rng.random() < 0.4
    settings = {name: rng.choice(values) for name, values in _SETTINGS[agent].items()}
    fixed = {"max_skipped_batches": 1, **_FIXED[agent]}
    if agent != "mpo":
        fixed |= {"policy_layer_sizes": (6,), "value_layer_sizes": (6,), "num_environments": E}
        fixed |= {"rollout_steps": T * E, "anneal_learning_rate": False}
    make_builder, make_config = _BUILDERS[agent]
    builder = make_builder(make_config(**fixed, **settings))
    spec = specs.EnvironmentSpec(
        observations=specs.Array((_OBSERVATION_SIZE,), np.float32, name="observation"),
        actions=specs.DiscreteArray(_NUM_ACTIONS, name="action")
        if is_discrete
        else specs.BoundedArray((2,), np.float32, _LOW, _HIGH, name="action"),
        rewards=specs.Array((), np.float32, name="reward"),
        discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount"),
    )
    networks: Any = builder.make_networks(spec, generator)
    with torch.no_grad():
        for module in networks if agent == "mpo" else [networks]:
            for parameter in module.parameters():
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.add_(noise / parameter.shape[-1] ** 0.5)
    logger, batches = testing.FakeLogger(), collections.deque[Any]()
    learner = builder.make_learner(
        builders.LearnerParts(
            networks=networks,
            dataset=(Sample(batches.popleft()) for _ in itertools.count()),
            spec=spec,
            counter=counting.Counter(),
            logger=logger,
            generator=generator,
            device=torch.device("cpu"),
        )
    )

    def feed(batch: Any) -> int:
        batches.append(batch)
        learner.step()
        return int(logger.rows[-1]["skipped_batches"])

    good = (_make_trajectory if agent == "mpo" else _make_rollout)(generator, is_discrete)
    words = f"{agent}, {'discrete' if is_discrete else 'continuous'}, {settings}"
    assert feed(good) == 0, f"{words}: the good batch is skipped"
    return _Scene(words, learner, feed, good, learner.save())


def _make_trajectory(generator: torch.Generator, is_discrete: bool) -> types.Trajectory:
    """E sequences for MPO, the second of which ends before its last step."""
    assert not is_discrete
    raw_action = torch.randn(E, T, 2, generator=generator)
    mask = torch.ones(E, T)
    mask[1, -1] = 0.0
    return types.Trajectory(
        observation=torch.randn(E, T + 1, _OBSERVATION_SIZE, generator=generator),
        action=raw_action.clamp(min=torch.tensor(_LOW), max=torch.tensor(_HIGH)),
        reward=torch.randn(E, T, generator=generator),
        discount=mask.clone(),
        mask=mask,
        extras=acting.BehaviourExtras(torch.randn(E, T, generator=generator) - 2.0, raw_action),
    )


def _make_rollout(generator: torch.Generator, is_discrete: bool) -> types.Rollout:
    """A rollout for PPO and V-MPO, in which an episode ends."""
    observation = torch.randn(T + 1, E, _OBSERVATION_SIZE, generator=generator)
    parameters: Any
    if is_discrete:
        raw_action = torch.randint(_NUM_ACTIONS, (T, E), generator=generator)
        action = raw_action.clone()
        parameters = distributions.Categorical(torch.randn(T, E, _NUM_ACTIONS, generator=generator))
    else:
        raw_action = torch.randn(T, E, 2, generator=generator)
        action = raw_action.clamp(min=torch.tensor(_LOW), max=torch.tensor(_HIGH))
        parameters = distributions.DiagonalGaussian(
            torch.randn(T, E, 2, generator=generator), 0.3 * torch.randn(T, E, 2, generator=generator)
        )
    reward = torch.randn(T, E, generator=generator)
    last = torch.zeros(T, E)
    last[-1] = last[1, 0] = 1.0
    return types.Rollout(
        observation=observation[:-1],
        action=action,
        reward=reward,
        discount=1.0 - last * (torch.arange(T) < T - 1)[:, None],
        next_observation=observation[1:].clone(),
        first=torch.cat([torch.ones(1, E), last[:-1]]),
        last=last,
        return_so_far=reward.cumsum(dim=0),
        extras=acting.BehaviourExtras(
            log_prob=torch.randn(T, E, generator=generator) - 2.0,
            raw_action=raw_action,
            parameters=parameters,
        ),
    )


def _spoil(batch: Any, rng: random.Random) -> tuple[Any, str]:
    """The batch with one to three of its fields spoilt, and what was done."""
    leaves = dict(tree.flatten_with_path(batch))
    done = []
    for _ in range(rng.randint(1, 3)):
        path = rng.choice([path for path, leaf in leaves.items() if leaf.is_floating_point()])
        spoilt, number = leaves[path].clone(), rng.choice(_numbers(path[-1]))
        where = rng.choice(["a number", "a row", "everything", "some"])
        if where == "a number":
            spoilt.view(-1)[rng.randrange(spoilt.numel())] = number
        elif where == "a row":
            spoilt[rng.randrange(len(spoilt))] = number
        elif where == "everything":
            spoilt.fill_(number)
        else:
            spoilt[torch.tensor([rng.random() < 0.3 for _ in range(spoilt.numel())]).view(spoilt.shape)] = (
                number
            )
        leaves[path] = spoilt
        done.append(f"{'.'.join(map(str, path))}: {where} is {number:g}")
    return tree.unflatten_as(batch, list(leaves.values())), "; ".join(done)


def _numbers(field: str) -> list[float]:
    """What a field is spoilt with: often numbers that are wrong for it in particular."""
    own = {
        "mask": [0.0] * 20,
        "last": [0.0, 1.0] * 10,
        "discount": [-1.0, 1.5, 10.0, 0.0] * 5,
        "log_prob": [-float("inf"), -1e3, 1e3, 88.0] * 5,
        "log_std": [-float("inf"), -100.0, -30.0, 100.0] * 5,  # standard deviations of 0 and infinity
        "logits": [-float("inf"), 1e4] * 10,
    }
    return _NUMBERS + own.get(field, [])


def _assert_finite(state: Any, case: str) -> None:
    for path, leaf in tree.flatten_with_path(state):
        if isinstance(leaf, torch.Tensor):
            assert torch.isfinite(leaf).all(), f"{case}: {path} is not finite"
