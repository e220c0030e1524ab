"""Learner steps of an agent beside those of its reference.

What goes in shows mistakes: networks that differ strongly from state to state, rollouts of another policy
than the one that is trained, episodes that end in all ways in the midst of them, statistics that have
seen other data, an Adam whose steps grow with the gradient. Public entry points alone.

Shapes: T steps of each of E environments, O observation size.
"""

import collections
import itertools
from typing import NamedTuple

import numpy as np
import torch
import tree

from minerva_acme import builders, counting, specs, testing, types

T, E = 10, 4
_OBSERVATION_SIZE = 3
NUM_STEPS = 3  # learner steps in a row
NUM_UPDATES = 5  # of the run that they are the first of

# Of every agent. With so large an epsilon Adam's steps follow the size of the gradient, not its sign alone.
OPTIONS = {
    "num_environments": E,
    "rollout_steps": T * E,
    "discount": 0.9,
    "gae_lambda": 0.7,
    "learning_rate": 3e-2,
    "anneal_learning_rate": False,
    "adam_epsilon": 0.1,
    "max_grad_norm": 1e3,
}
ACTIONS = {
    "clipped": {"squash_actions": False},
    "squashed": {"squash_actions": True},
    "categorical": {},
}
# How far each weight of the behaviour policy is from that of the policy that is trained.
DISTANCE = {"clipped": 0.15, "squashed": 0.15, "categorical": 0.4}
NETWORKS = {
    "two tanh torsos": {
        "torso": "tanh",
        "shared_torso": False,
        "policy_layer_sizes": (8, 6),
        "value_layer_sizes": (7,),
        "state_dependent_stddev": False,
    },
    "one tanh torso": {
        "torso": "tanh",
        "shared_torso": True,
        "policy_layer_sizes": (8, 6),
        "value_layer_sizes": (8, 6),
        "state_dependent_stddev": True,
    },
    "two layer-norm torsos": {
        "torso": "layer_norm",
        "shared_torso": False,
        "policy_layer_sizes": (8, 6, 5),
        "value_layer_sizes": (7, 6),
        "state_dependent_stddev": True,
    },
    "one layer-norm torso": {
        "torso": "layer_norm",
        "shared_torso": True,
        "policy_layer_sizes": (8, 6),
        "value_layer_sizes": (8, 6),
        "state_dependent_stddev": False,
    },
}
# Each kind of actions with torsos apart and in common.
PAIRS = [
    ("clipped", "two tanh torsos"),
    ("clipped", "one tanh torso"),
    ("squashed", "two layer-norm torsos"),
    ("squashed", "one layer-norm torso"),
    ("categorical", "two tanh torsos"),
    ("categorical", "one tanh torso"),
]
# Episodes end by (discount, last) at (t, e). The last row's `last` is 1 whatever it says here.
ENDS = {
    (3, 0): (0.0, 1.0),  # terminations
    (4, 3): (0.0, 1.0),
    (5, 3): (0.0, 1.0),  # of an episode of one step
    (9, 2): (0.0, 1.0),  # with the rollout
    (7, 0): (1.0, 1.0),  # truncations
    (0, 2): (1.0, 1.0),
    (2, 1): (0.5, 0.0),  # an environment's own discount
    (6, 3): (0.75, 0.0),
    (5, 2): (0.25, 1.0),  # the same at a truncation
}


class Sample(NamedTuple):
    data: types.Rollout


def make_spec(actions):
    """Bounds that lie apart from 0 and from each other, or four actions."""
    return specs.EnvironmentSpec(
        observations=specs.Array((_OBSERVATION_SIZE,), np.float32, name="observation"),
        actions=specs.DiscreteArray(4, name="action")
        if actions == "categorical"
        else specs.BoundedArray((2,), np.float32, [-2.0, -0.5], [1.0, 3.0], name="action"),
        rewards=specs.Array((), np.float32, name="reward"),
        discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount"),
    )


@torch.no_grad()
def vary(network, generator):
    """Gives a network weights with which all that it says depends strongly on the state."""
    for name, parameter in network.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        # A log-std that differs much more makes densities that differ beyond all measure.
        scale = 0.4 if "log_std" in name else 1.5
        if parameter.ndim == 2:
            parameter.copy_(scale * noise / parameter.shape[1] ** 0.5)
        else:
            parameter.add_(0.3 * noise)
    statistics = dict(network.named_buffers())
    if statistics:  # of rows of another kind, which weigh nearly as much as a rollout
        statistics["normalizer.mean"].copy_(torch.randn(_OBSERVATION_SIZE, generator=generator))
        statistics["normalizer.var"].copy_(0.5 + 4.0 * torch.rand(_OBSERVATION_SIZE, generator=generator))
        statistics["normalizer.count"].fill_(30.0)


@torch.no_grad()
def make_behaviour(builder, spec, state, distance, generator):
    """A network near that of a state dict, with its statistics."""
    network = builder.make_networks(spec, generator)
    network.load_state_dict({name: torch.as_tensor(value) for name, value in state.items()})
    for parameter in network.parameters():
        parameter.add_(distance * torch.randn(parameter.shape, generator=generator))
    return network


def collect(builder, spec, network, generator, index=0, has_outliers=False):
    """The rollout of `network`'s policy; each `index` has observations and rewards of its own scale."""
    shift, scale, reward_scale = [(0.3, 1.5, 3.0), (-0.2, 1.0, 1.0), (0.1, 0.7, 0.5)][index]
    # Noise of its own, or what is drawn below would depend on when the policy first draws.
    noise = torch.Generator().set_state(generator.get_state())
    policy = builder.make_policy(network, spec, noise)
    torch.randint(2**63 - 1, (), generator=generator)
    reward = 0.2 + reward_scale * torch.randn(T, E, generator=generator)
    discount, last = torch.ones(T, E), torch.zeros(T, E)
    for (t, e), (discount_t, last_t) in ENDS.items():
        # In other environments each time.
        discount[t, (e + index) % E], last[t, (e + index) % E] = discount_t, last_t
    observation = shift + scale * torch.randn(T, E, _OBSERVATION_SIZE, generator=generator)
    if has_outliers and index == NUM_STEPS - 1:
        # The reward ends an episode with the rollout, or else it would be in the returns of several steps.
        observation[4, 1, 2], reward[9, 0] = 60.0, -500.0
    # What an episode's last step led to is seen nowhere else.
    next_observation = shift + scale * torch.randn(T, E, _OBSERVATION_SIZE, generator=generator)
    going_on = (last[:-1] == 0.0)[..., None]
    next_observation[:-1] = torch.where(going_on, observation[1:], next_observation[:-1])
    last[-1] = 1.0
    return_so_far = torch.zeros(T, E)
    for t, e in itertools.product(range(T), range(E)):
        before = return_so_far[t - 1, e] if t and not last[t - 1, e] else 0.0
        return_so_far[t, e] = reward[t, e] + builder.config.discount * before
    outputs = [policy.batch(row.numpy()) for row in observation]
    action, extras = tree.map_structure(lambda *rows: torch.from_numpy(np.stack(rows)), *outputs)[:2]
    return types.Rollout(
        observation=observation,
        action=action,
        reward=reward,
        discount=discount,
        next_observation=next_observation,
        first=torch.cat([torch.ones(1, E), last[:-1]]),
        last=last,
        return_so_far=return_so_far,
        extras=extras,
    )


def check_steps(
    agent, make_reference, actions, options, *, seed=0, has_outliers=False, num_steps=NUM_STEPS
) -> collections.Counter:
    """Makes learner steps in a row and asserts that each does what the reference does.

    Args:
        agent: as the fixtures have it.
        make_reference: makes the reference from `state`, `spec`, `config`, `num_updates` and `generator`.
        actions: a key of `ACTIONS`.
        options: what the agent's config is made of, but for the actions.
        seed: of everything.
        has_outliers: whether the last rollout has an observation and a reward far from all others.
        num_steps: The number of learner steps.

    Returns:
        How often the reference met what it counts.
    """
    builder, spec = agent.builder(**options, **ACTIONS[actions]), make_spec(actions)
    generator = torch.Generator().manual_seed(seed)
    network = builder.make_networks(spec, generator)
    vary(network, generator)
    logger = testing.FakeLogger()
    rollouts: list[types.Rollout] = []
    learner = builder.make_learner(
        builders.LearnerParts(
            networks=network,
            dataset=(Sample(rollouts[index]) for index in itertools.count()),
            spec=spec,
            counter=counting.Counter(),
            logger=logger,
            generator=torch.Generator().manual_seed(seed + 1),
            device=torch.device("cpu"),
            share_done=lambda step: step / NUM_UPDATES,
        )
    )
    reference = make_reference(
        state=_variables(learner),
        spec=spec,
        config=builder.config,
        num_updates=NUM_UPDATES,
        generator=torch.Generator().manual_seed(seed + 1),
    )
    for index in range(num_steps):
        behaviour = make_behaviour(builder, spec, _variables(learner), DISTANCE[actions], generator)
        rollouts.append(collect(builder, spec, behaviour, generator, index, has_outliers))
        before, reference_before = _numbers(learner), reference.numbers()
        learner.step()
        metrics = reference.step(rollouts[-1])
        _assert_moved_alike(before, _numbers(learner), reference_before, reference.numbers())
        _assert_same_metrics(logger.rows[-1], metrics)
    return reference.seen


def _variables(learner):
    (state,) = learner.get_variables(["network"])
    return state


def _numbers(learner):
    """All that a learner step moves, by name, in double precision."""
    modules = learner.save()["modules"]
    numbers = {**_variables(learner), **modules.get("duals", {})}
    statistics = modules.get("return_norm", {})
    numbers |= {f"return_norm.{name}": value for name, value in statistics.items()}
    return {name: torch.as_tensor(value).double().clone() for name, value in numbers.items()}


def _assert_moved_alike(before, after, reference_before, reference_after):
    """Movements differ by less than a thousandth of their own size, each tensor by itself."""
    assert after.keys() == reference_after.keys()
    for name in after:
        moved = after[name] - before[name]
        expected = reference_after[name] - reference_before[name]
        size = expected.abs().max().item()
        error = (moved - expected).abs().max().item()
        assert error <= 3e-4 * size, f"{name} is {error:.2g} off where {size:.2g} is the way it had to go"


def _assert_same_metrics(row, expected):
    assert row.keys() - {"steps", "walltime"} == expected.keys()
    for name, value in expected.items():
        found, wanted = float(row[name]), float(value)
        error = abs(found - wanted)
        assert error <= 1e-4 * abs(wanted) + 1e-5, f"{name} is {found:.6g}, not {wanted:.6g}"
