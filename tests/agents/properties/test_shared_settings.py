"""Settings that every agent over replay has: what each means, whoever the agent is."""

import itertools

import pytest
import torch

from minerva_acme import learners, networks
from minerva_acme.agents import registry
from tests.closeness import assert_close_to_norm

from .. import table

AGENTS = [
    name for name in registry.AGENTS if name not in table.ON_ROLLOUTS
]  # whose settings have other names
KINDS = [name for name in AGENTS if name not in ("crr", "wpo", "d4pg")]  # whose parts have others' names
# The same with the other paths that observations take through the kit.
VARIANTS = {
    "sac, shared encoder": table.Scene("sac", {"shared_encoder": True}),
    "td3, memory": table.Scene(
        "td3", {"memory": "lstm", "sequence_length": 4, "sequence_period": 2, "burn_in": 2, "batch_size": 4}
    ),
    "mpo, memory": table.Scene("mpo", {"memory": "gru", "burn_in": 2, "critic_loss_steps": "all"}),
}
CASES = {**{name: table.Scene(name) for name in AGENTS}, **VARIANTS}
LARGE = {"normalize_observations": True, "discount": 0.5}


def run(scene, builder, num_steps=3, scale=1.0, shift=0.0, **parts):
    """A learner after steps on batches with observations of this scale around this number."""

    def make_batch(seed):
        batch = scene.make_batch(seed, **LARGE)
        names = {"observation", "next_observation"} & {*batch._fields}
        return batch._replace(**{name: shift + scale * getattr(batch, name) for name in names})

    nets = scene.networks(builder)
    learner, rows = scene.make(
        map(make_batch, itertools.count()), builder=builder, parts={"networks": nets, **parts}
    )
    learner.run(num_steps=num_steps)
    return learner, nets, rows, make_batch


@pytest.mark.parametrize("name", CASES)
def test_normalised_observations_may_have_any_scale(name):
    """Numbers around 5,000 are learned from as numbers around 0 are, by every network and its target."""
    scene, builder = CASES[name], CASES[name].builder(**LARGE)
    _, near, rows, _ = run(scene, builder)
    _, far, far_rows, _ = run(scene, builder, scale=64.0, shift=4096.0)
    for one, other in zip(rows, far_rows, strict=True):
        assert one.keys() == other.keys()
        for key in one.keys() - {"walltime"}:
            assert float(other[key]) == pytest.approx(float(one[key]), rel=0.02, abs=1e-3), key
    assert rows[-1]["skipped_batches"] == 0
    for one, other in zip(near, far, strict=True):
        if isinstance(one, torch.nn.Module):
            for ours, theirs in zip(one.parameters(), other.parameters(), strict=True):
                assert_close_to_norm(ours, theirs, relative=0.02)


@pytest.mark.parametrize("name", CASES)
def test_statistics_are_those_of_the_first_states_that_were_drawn(name):
    builder = CASES[name].builder(**LARGE)
    _, nets, _, make_batch = run(CASES[name], builder, num_steps=2, scale=3.0, shift=7.0)
    burn_in = getattr(builder.config, "burn_in", 0)
    seen = []
    for seed in range(2):
        observation = make_batch(seed).observation
        seen.append(observation if observation.ndim == 2 else observation[:, burn_in])
    rows = torch.cat(seen)
    trained = [part for module in nets if isinstance(module, torch.nn.Module) for part in module.modules()]
    norms = [part for part in trained if isinstance(part, networks.RunningNorm)]
    online = [norm for norm in norms if float(norm.count) > 1.5 * len(seen[0])]
    assert online
    for norm in online:
        torch.testing.assert_close(norm.mean, rows.mean(dim=0), rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(norm.var, rows.var(dim=0, correction=0), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", CASES)
def test_targets_have_statistics_from_the_first_step_on(name):
    learner, *_ = run(CASES[name], CASES[name].builder(**LARGE), num_steps=1, shift=7.0)
    counts = {
        f"{name}.{key}": float(value)
        for name, module in learner.save()["modules"].items()
        for key, value in module.items()
        if key.endswith(".count")
    }
    assert any("target" in name for name in counts) == (name != "bc")
    assert all(count > 1.0 for count in counts.values())


def recorded(kind):
    """Makes optimisers of this kind, and keeps them and their first rates by name."""

    class Recording:
        def __init__(self, config):
            super().__init__(config)
            self.made, self.rates = {}, {}

        def make_optimizer(self, name, parameters):
            self.rates[name] = [group["lr"] for group in parameters]
            self.made[name] = kind(parameters)
            return self.made[name]

    return Recording


TRAINED = {"duals": False}  # the multipliers of MPO have no decay


def trained(builder):
    names = [each for each in builder.made if TRAINED.get(each, True)]
    assert names
    return names


@pytest.mark.parametrize("name", KINDS)
def test_learning_rates_fall_linearly(name):
    builder = CASES[name].builder(recorded(torch.optim.SGD), final_learning_rate=0.2)
    run(CASES[name], builder, num_steps=3, share_done=lambda step: step / 4)
    for each in trained(builder):
        rates = [group["lr"] for group in builder.made[each].param_groups]
        assert rates == pytest.approx([rate * (1.0 - 0.8 * 2 / 4) for rate in builder.rates[each]])


@pytest.mark.parametrize("name", [*KINDS, "impala"])
def test_weights_decay_and_nothing_else_does(name):
    scene = table.Scene(name)
    builder = scene.builder(recorded(torch.optim.AdamW), weight_decay=0.25)
    run(scene, builder, num_steps=1)
    for each in trained(builder):
        groups = builder.made[each].param_groups
        decays = [(p.ndim > 1, g["weight_decay"]) for g in groups for p in g["params"]]
        assert {is_weight for is_weight, _ in decays} == {True, False}
        assert all(decay == (0.25 if is_weight else 0.0) for is_weight, decay in decays)


@pytest.mark.parametrize("name", KINDS)
def test_gradients_are_clipped_to_a_global_norm(name):
    """A step of plain gradient descent is as long as the gradient that it gets."""
    builder = CASES[name].builder(recorded(torch.optim.SGD), max_grad_norm=1e-3)
    learner, _, rows, _ = run(CASES[name], builder, num_steps=0)
    names, made = trained(builder), builder.made
    parameters = {each: [p for g in made[each].param_groups for p in g["params"]] for each in names}
    before = {each: [p.detach().clone() for p in own] for each, own in parameters.items()}
    learner.run(num_steps=2)  # TD3's policy makes every other step
    for each in names:
        (rate,) = {group["lr"] for group in made[each].param_groups}
        assert all(float(row[f"grad_norm/{each}"]) > 1e-3 for row in rows if f"grad_norm/{each}" in row)
        moved = [p.detach() - old for p, old in zip(parameters[each], before[each], strict=True)]
        num_steps = sum(f"grad_norm/{each}" in row for row in rows)
        length = float(torch.cat([x.flatten() for x in moved]).norm())
        assert 0.0 < length <= num_steps * rate * 1e-3 * 1.001


def test_networks_that_see_observations_as_they_are_cannot_be_normalised():
    class Own:
        def make_networks(self, spec, generator):
            return (
                super()
                .make_networks(spec, generator)
                ._replace(**{name: torch.nn.Linear(3, 3) for name in ("q_network", "target_network")})
            )

    scene = table.Scene("dqn")
    with pytest.raises(ValueError, match="`normalize_observations` of Own must be False.*whole_encoder"):
        scene.make(builder=scene.builder(Own, normalize_observations=True))


def test_the_parts_of_a_step_come_in_their_order():
    """Before the losses, in the order given; after the targets have moved, with the metrics."""
    seen = []

    class Noting(learners.Part):
        def __init__(self, name):
            self.name = name

        def before(self, batch, num_steps):
            seen.append((self.name, "before", num_steps))

        def after(self, batch, metrics, num_steps):
            seen.append((self.name, "after", num_steps, "loss/q_network" in metrics))

    scene = table.Scene("dqn")

    class Learner(learners.LossLearner):
        def __init__(self, **arguments):
            super().__init__(**{**arguments, "parts": [Noting("a"), Noting("b")]})

    class Own:
        learner_class = Learner

        def update_targets(self, networks, num_steps):
            seen.append(("targets", num_steps))

    learner, _ = scene.make(builder=scene.builder(Own))
    learner.step()
    assert seen == [
        ("a", "before", 0),
        ("b", "before", 0),
        ("targets", 1),
        ("a", "after", 0, True),
        ("b", "after", 0, True),
    ]
