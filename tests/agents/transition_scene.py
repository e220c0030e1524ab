"""Agents that learn from transitions, tiny, and batches for them."""

import itertools
from typing import Any, NamedTuple

import numpy as np
import torch

from minerva_acme import builders, counting, learners, replay, specs, testing, types
from minerva_acme.agents import off_policy, registry
from tests.fields import of_fields

LOW, HIGH = [-0.6, -1.0], [1.0, 0.3]
NUM_ACTIONS = 3
TINY: dict[str, Any] = {"batch_size": 8, "samples_per_insert": 8.0, "min_replay_size": 8}
CONTINUOUS = {**TINY, "policy_layer_sizes": (8,), "critic_layer_sizes": (8, 8)}


class Agent(NamedTuple):
    builder: type[off_policy.TransitionBuilder]
    config: type[off_policy.TransitionConfig]
    tiny: dict[str, Any]
    discrete: bool = False

    def make(self, **overrides):
        """A builder with small networks."""
        return self.builder(self.config(**{**self.tiny, **overrides}))

    @property
    def spec(self):
        return make_spec(self.discrete)


# All of the registry that learn from transitions by critics.
AGENTS = {
    name: Agent(
        entry.builder,
        entry.config,
        of_fields(entry.config, {**CONTINUOUS, "num_samples": 4}),
        discrete=entry.builder.takes_actions == "discrete",
    )
    for name, entry in registry.AGENTS.items()
    if issubclass(entry.config, off_policy.CriticConfig)
    and issubclass(entry.builder, off_policy.TransitionBuilder)
}


def make_spec(discrete=False):
    """Three numbers as observation; two numbers with bounds of their own, or one of three, as action."""
    return specs.EnvironmentSpec(
        observations=specs.Array((3,), np.float32, name="observation"),
        actions=specs.DiscreteArray(NUM_ACTIONS, name="action")
        if discrete
        else specs.BoundedArray((2,), np.float32, LOW, HIGH, name="action"),
        rewards=specs.Array((), np.float32, name="reward"),
        discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount"),
    )


def make_batch(spec, seed=0, batch_size=8, dtype=torch.float32):
    """Random transitions, some of which end an episode."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(batch_size, *shape, generator=generator, dtype=dtype)

    if isinstance(spec.actions, specs.DiscreteArray):
        action = torch.randint(NUM_ACTIONS, (batch_size,), generator=generator, dtype=torch.int32)
    else:
        low, high = torch.tensor(LOW, dtype=dtype), torch.tensor(HIGH, dtype=dtype)
        action = low + (high - low) * torch.rand(batch_size, 2, generator=generator, dtype=dtype)
    kinds = torch.tensor([0.9, 0.9, 0.5, 0.0], dtype=dtype)
    discount = kinds[torch.arange(batch_size) % len(kinds)]
    return types.Transition(normal(3), action, normal(), discount, normal(3))


class Sample(NamedTuple):
    data: types.Transition | types.Trajectory
    info: replay.SampleInfo | None = None


def make_learner(builder, spec, batches=None, networks=None, seed=0, **parts):
    """Returns the learner, its networks and the rows that it logs."""
    generator = torch.Generator().manual_seed(seed)
    networks = networks or builder.make_networks(spec, generator)
    logger = testing.FakeLogger()
    if batches is None:
        batches = (make_batch(spec, seed) for seed in itertools.count())
    learner = builder.make_learner(
        builders.LearnerParts(
            **{
                "networks": networks,
                "dataset": (Sample(batch) for batch in batches),
                "client": None,
                "spec": spec,
                "counter": counting.Counter(),
                "logger": logger,
                "generator": generator,
                "device": torch.device("cpu"),
                **parts,
            }
        )
    )
    return learner, networks, logger.rows


def shaken(modules, seed=0, scale=0.3):
    """The modules in float64, each weight moved at random: targets differ from what they are copies of."""
    generator = torch.Generator().manual_seed(seed)
    for module in modules:
        module.double()
        with torch.no_grad():
            for weight in module.parameters():
                noise = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
                weight += scale / max(weight.shape[-1] if weight.ndim > 1 else 1, 1) ** 0.5 * noise
    return modules


def with_descent(builder_class):
    """The builder, training by plain gradient descent: unlike Adam's, its steps show the gradient itself."""

    class Descending(builder_class):
        def make_optimizer(self, name, parameters):
            return torch.optim.SGD(parameters)

    return Descending


def make_sample(spec, seed):
    """Random transitions in float64."""
    return Sample(make_batch(spec, seed, dtype=torch.float64))


def make_sample_at_bounds(spec, seed):
    """Some of its actions are at their bounds, as those of a policy whose samples are clipped are."""
    sample = make_sample(spec, seed)
    action = sample.data.action.clone()
    low, high = (
        torch.tensor(LOW, dtype=torch.float32),
        torch.tensor(HIGH, dtype=torch.float32),
    )  # as in the spec
    action[0, 0], action[1, 1] = low[0], high[1]
    return Sample(sample.data._replace(action=action))


def check_steps(builder, spec, make_reference, num_steps=4, make_sample=make_sample, client=None):
    """Compares each step on float64 batches with that of a reference: all weights, and what is logged.

    Args:
        make_reference: of the networks' weights and a generator in the learner's state, an object with
            `modules` by name and `step(batch)`, which returns what is to be logged.
        make_sample: of the spec and a seed, a `Sample`.
        client: takes the new priorities, if the builder's table has any.
    """
    networks = shaken(builder.make_networks(spec, torch.Generator().manual_seed(0)))
    generator = torch.Generator().manual_seed(7)
    samples = [make_sample(spec, seed) for seed in range(num_steps)]
    learner, _, rows = make_learner(
        builder, spec, networks=networks, generator=generator, dataset=iter(samples), client=client
    )
    before = {name: dict(module.state_dict()) for name, module in networks._asdict().items()}
    before = {name: {key: x.clone() for key, x in weights.items()} for name, weights in before.items()}
    expected = make_reference({**before}, torch.Generator().set_state(generator.get_state()))
    for step, sample in enumerate(samples):
        learner.step()
        metrics = {key: float(value.detach()) for key, value in expected.step(sample.data).items()}
        row = {key: float(value) for key, value in rows[-1].items()}
        assert row.pop("steps") == step + 1 and row.pop("skipped_batches") == 0
        del row["walltime"]
        assert row.keys() == metrics.keys()
        for name, value in metrics.items():
            assert abs(row[name] - value) <= 1e-9 * (1.0 + abs(value)), (step, name)
        for name, module in networks._asdict().items():
            for key, x in module.state_dict().items():
                torch.testing.assert_close(x, expected.modules[name][key], rtol=1e-9, atol=1e-9)
    moved = [
        name
        for name, weights in before.items()
        if any(not torch.equal(x, expected.modules[name][key]) for key, x in weights.items())
    ]
    assert moved == [*before]  # all of them, so that all were compared with something


def state_of(learner: learners.LossLearner):
    """All that a learner step changes but for the counts and what was drawn."""
    state = learner.save()
    return {"modules": state["modules"], "optimizers": state["updates"]["optimizers"]}
