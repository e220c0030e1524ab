"""Learner steps of MPO against those of `reference.py`, parameter by parameter and number by number.

Three steps are made, from a state in which nothing is special: online and target networks differ, and the
behaviour from both; policies and values depend on the state; multipliers differ between dimensions. No target
is updated before the first step, one before the second, the other before the third.

The noise of sampled actions is the one thing that both share: the reference draws it from a generator in the
learner's state, in the learner's order and shapes.
"""

import copy
import dataclasses
from typing import NamedTuple

import numpy as np
import pytest
import torch
import tree

from minerva_acme import builders, counting, specs, testing, types
from minerva_acme.agents import mpo

from . import reference

LOW, HIGH = [-0.6, -1.0], [1.0, 0.3]

CONFIG = mpo.MPOConfig(
    policy_layer_sizes=(8, 8),
    critic_layer_sizes=(8, 8, 8),
    batch_size=6,
    min_replay_size=1,
    num_samples=5,
    retrace_mc_actions=3,
    retrace_lambda=0.8,
    discount=0.9,
    epsilon=0.2,
    epsilon_mean=0.05,
    epsilon_stddev=0.01,
    epsilon_penalty=0.03,
    policy_learning_rate=0.02,
    critic_learning_rate=0.05,
    temperature_learning_rate=0.03,
    alpha_learning_rate=0.07,
    # Of the gradients' size: with a small one a first step would show their signs alone.
    adam_epsilon=3.0,
    max_grad_norm=1e3,
    target_policy_update_period=2,
    target_critic_update_period=3,
)
FIRST_STEP = 1  # neither period divides it
NUM_UPDATES = 9
NUM_STEPS = 3

# A masked row is padding at the end and the boundary between two episodes elsewhere, as of
# `ContinuingSequenceAdder`.
MASKS = [
    [1, 1, 1, 1, 1],
    [1, 1, 0, 1, 1],
    [1, 1, 1, 0, 0],
    [0, 1, 1, 0, 1],
    [1, 0, 0, 0, 0],
    [1, 0, 1, 1, 1],
]


# Until they are merged: a return that ends where a run of steps does, from draws at all states; and entropies
# of both kinds of weights, each under a name of its own.
class Sample(NamedTuple):
    data: types.Trajectory


@pytest.fixture
def spec():
    return specs.EnvironmentSpec(
        observations=specs.Array((3,), np.float32, name="observation"),
        actions=specs.BoundedArray((2,), np.float32, LOW, HIGH, name="action"),
        rewards=specs.Array((), np.float32, name="reward"),
        discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount"),
    )


def make_trajectory(target_policy, seed):
    """Random sequences of a behaviour around the target policy; what masked rows hold is random, too."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.tensor(MASKS, dtype=torch.float32)
    batch_size, length = mask.shape
    observation = torch.randn(batch_size, length + 1, 3, generator=generator)
    for b in range(batch_size):
        last = int(mask[b].nonzero().max()) + 1
        observation[b, last:] = observation[b, last]
    mean, stddev = reference.policy_of(target_policy, observation[:, :-1])
    behaviour = torch.distributions.Normal(
        mean + 0.4 * stddev * torch.randn(mean.shape, generator=generator),
        (0.7 + 0.8 * torch.rand(mean.shape, generator=generator)) * stddev,
    )
    raw_action = behaviour.mean + behaviour.stddev * torch.randn(mean.shape, generator=generator)
    kinds = torch.tensor([1.0, 1.0, 1.0, 0.6, 0.0])
    return types.Trajectory(
        observation=observation,
        action=raw_action.clamp(torch.tensor(LOW), torch.tensor(HIGH)),
        reward=torch.randn(batch_size, length, generator=generator),
        discount=kinds[torch.randint(len(kinds), mask.shape, generator=generator)],
        mask=mask,
        extras=mpo.BehaviourExtras(
            log_prob=behaviour.log_prob(raw_action).sum(dim=-1), raw_action=raw_action
        ),
    )


def randomised(modules, seed=0):
    """Other parameters: targets far from what is made at the start, online ones some way from them."""
    generator = torch.Generator().manual_seed(seed)

    def normal(tensor, scale):
        return scale * torch.randn(tensor.shape, generator=generator)

    modules = copy.deepcopy(modules)
    for name in ("policy", "critic"):
        online, target = modules[name], modules[f"target_{name}"]
        for key, tensor in target.items():
            if key.endswith(("low", "high")) or tensor.ndim == 0:
                continue
            if key.endswith("bias"):
                target[key] = normal(tensor, 0.3)
            elif tensor.ndim == 1:
                target[key] = 1.0 + normal(tensor, 0.3)
            else:
                gain = 0.5 if key.startswith("log_std") else 1.5
                target[key] = normal(tensor, gain / tensor.shape[1] ** 0.5)
        if name == "policy":
            target["log_std_head.bias"] -= 0.5
        else:
            # Half of the last units are large and take their offset back in the head.
            offset = torch.tensor([16.0, 0.0] * 4)
            last = max(key for key in target if key.startswith("torso.") and key.endswith("bias"))
            target[last] += offset
            target["head.bias"] -= target["head.weight"] @ offset
        for key, tensor in target.items():
            noise = 0 if key.endswith(("low", "high")) or tensor.ndim == 0 else normal(tensor, 0.1)
            online[key] = tensor + noise
    for key, tensor in modules["duals"].items():
        modules["duals"][key] = 0.2 + torch.rand(tensor.shape, generator=generator)
    return modules


def in_float64(trajectory):
    return tree.map_structure(torch.Tensor.double, trajectory)


class Case:
    """A learner and references in the same state."""

    reference_class = reference.Reference
    builder_class = mpo.MPOBuilder

    def __init__(self, spec, config):
        generator = torch.Generator().manual_seed(0)
        builder = self.builder_class(config)
        self.batches = []
        self.logger = testing.FakeLogger()
        self.learner = builder.make_learner(
            builders.LearnerParts(
                networks=builder.make_networks(spec, generator),
                dataset=(Sample(batch) for batch in self.batches),
                spec=spec,
                counter=counting.Counter(),
                logger=self.logger,
                generator=generator,
                device=torch.device("cpu"),
                share_done=lambda step: step / NUM_UPDATES,
            )
        )
        state = self.learner.save()
        self.before = self.randomised(state["modules"])
        self.batches += [self.make_trajectory(config, seed) for seed in range(NUM_STEPS)]
        self.learner.restore({**state, "modules": self.as_learned(self.before), "num_steps": FIRST_STEP})
        self.config = config
        self.generator_state = generator.get_state()

    def randomised(self, modules):
        return randomised(modules)

    def make_trajectory(self, config, seed):
        return make_trajectory(self.before["target_policy"], seed)

    def as_learned(self, modules):
        """The reference's modules as the learner has them."""
        return modules

    def learned(self):
        """The learner's modules as the reference has them."""
        return self.learner.save()["modules"]

    def make_reference(self, **overrides):
        return self.reference_class(
            self.before,
            config=dataclasses.replace(self.config, **overrides),
            num_steps=FIRST_STEP,
            num_updates=NUM_UPDATES,
            generator=torch.Generator().set_state(self.generator_state),
        )


def movements(modules, before):
    """How far each parameter has moved."""
    return {
        (module, name): modules[module][name].double() - tensor.double()
        for module, weights in before.items()
        for name, tensor in weights.items()
    }


def largest(tensor):
    return tensor.abs().max().item()


def check_steps(spec, config, case_class=Case):
    """Compares all parameters and all logged numbers after each step; returns the rows.

    A step may be off by a ten thousandth, some twenty times what float32 leaves of it on one machine.
    """
    case = case_class(spec, config)
    expected = case.make_reference()
    for step, batch in enumerate(case.batches):
        case.learner.step()
        metrics = expected.step(in_float64(batch))

        row = dict(case.logger.rows[-1])
        assert (row.pop("steps"), row.pop("skipped_batches")) == (step + 1, 0)
        del row["walltime"]
        assert row.keys() == metrics.keys()
        for name, value in metrics.items():
            bound = 1e-4 * abs(value) + 1e-5
            assert abs(float(row[name]) - value) <= bound, f"{name} of step {step}: {row[name]}, not {value}"

        moved = movements(case.learned(), case.before)
        for (module, name), movement in movements(expected.modules, case.before).items():
            bound = 1e-4 * largest(movement) + 1e-7 * largest(case.before[module][name])
            error = largest(moved[module, name] - movement)
            assert error <= bound, (
                f"{module}/{name} has moved by {largest(movement):.3g} after step {step}, {error:.2g} off"
            )
    return case.logger.rows


@pytest.mark.parametrize(
    ("critic_target", "critic_loss_steps"),
    [("retrace", "first"), ("retrace", "all"), ("n_step", "all"), ("one_step", "first")],
)
@pytest.mark.promise("Checked maths")
def test_steps_are_those_of_the_reference(spec, critic_target, critic_loss_steps):
    rows = check_steps(
        spec,
        dataclasses.replace(
            CONFIG,
            critic_target=critic_target,
            critic_loss_steps=critic_loss_steps,
            action_penalty=False,
        ),
    )
    assert max(float(row["grad_norm/critic"]) for row in rows) < CONFIG.max_grad_norm


_AS_IN_ACME = {"temperature": "learned", "bounded_mean": False}
OPTIONS = {
    "learned temperature, penalty": {"temperature": "learned", "action_penalty": True},
    "temperature at its floor": {"temperature_floor": 0.5},
    "policy every other time": {"policy_period": 2},
    "SGD": {
        "optimizer": "sgd",
        "sgd_momentum": 0.7,
        "policy_learning_rate": 1e-4,
        "critic_learning_rate": 3e-4,
    },
    "the critic's target first": {
        "target_policy_update_period": 3,
        "target_critic_update_period": 2,
    },
    "targets that move": {"target_rate": 0.2, **_AS_IN_ACME},
    "batch norm of unit norm": {
        "critic_torso": "batch_norm",
        "unit_norm_weights": True,
        "weight_decay": 0.7,
        "critic_loss_steps": "all",
    },
    "unit norms, targets that move": {
        "torso": "simba",
        "critic_torso": "batch_norm",
        "unit_norm_weights": True,
        "critic_loss_steps": "all",
        "target_rate": 0.2,
    },
    "policy in all states": {"policy_loss_steps": "all", "m_steps": 2},
    "all of the frontier at once": {
        "torso": "simba",
        "unit_norm_weights": True,
        "weight_decay": 0.7,
        "final_learning_rate": 0.0,
        "critic_loss_steps": "all",
        "m_steps": 2,
    },
    "all at once": {
        "m_steps": 2,
        "per_dimension_constraint": False,
        "optimizer": "sgd",
        "max_grad_norm": 0.3,
        "action_penalty": True,
        "critic_loss_steps": "all",
    },
}


@pytest.mark.parametrize("overrides", OPTIONS.values(), ids=OPTIONS)
def test_steps_with_other_options_are_those_of_the_reference(spec, overrides):
    check_steps(spec, dataclasses.replace(CONFIG, **overrides))


def test_clipped_steps_are_those_of_the_reference(spec):
    rows = check_steps(spec, dataclasses.replace(CONFIG, max_grad_norm=0.5))
    assert min(float(row["grad_norm/critic"]) for row in rows) > 0.5
    assert min(float(row["grad_norm/policy"]) for row in rows) > 0.5


def test_the_steps_vary_in_all_that_they_are_to_show(spec):
    case = Case(spec, CONFIG)
    modules = case.make_reference().modules
    for batch in map(in_float64, case.batches):
        happened = batch.mask > 0
        old = reference.policy_of(modules["target_policy"], batch.observation)
        new = reference.policy_of(modules["policy"], batch.observation)
        q = reference.critic_of(modules["target_critic"], batch.observation[:, :-1], batch.action)
        # Differences between states, and between online and target networks.
        assert min(old[0].flatten(0, 1).std(dim=0)) > 0.3
        assert min(old[1].flatten(0, 1).std(dim=0)) > 0.05
        assert q.std() > 0.3
        assert all((b - a).abs().mean() > 0.02 for a, b in zip(old, new, strict=True))
        # Importance weights on both sides of 1, where traces pass.
        policy = torch.distributions.Normal(old[0][:, :-1], old[1][:, :-1])
        log_ratio = policy.log_prob(batch.extras.raw_action).sum(dim=-1) - batch.extras.log_prob
        traced = happened[:, 1:] & happened[:, :-1] & (batch.discount[:, :-1] > 0)
        assert min((log_ratio[:, 1:][traced] > 0.1).sum(), (log_ratio[:, 1:][traced] < -0.1).sum()) >= 2
        # All kinds of discounts, and raw actions beyond each of the bounds.
        assert batch.discount[happened].unique().tolist() == pytest.approx([0.0, 0.6, 1.0])
        raw_action = batch.extras.raw_action
        assert (raw_action < torch.tensor(LOW)).any(dim=(0, 1)).all()
        assert (raw_action > torch.tensor(HIGH)).any(dim=(0, 1)).all()
