"""Settings that every agent over replay has: what each means, whoever the agent is."""

import itertools

import pytest
import torch

from minerva_acme import learners, networks, types
from minerva_acme.agents import acting, bc, mpo, off_policy, r2d2
from tests.closeness import assert_close_to_norm

from .. import transition_scene as scene

SEQUENCES = {**scene.TINY, "batch_size": 4, "samples_per_insert": 4.0, "sequence_length": 4}
R2D2 = {**SEQUENCES, "memory_size": 4, "layer_sizes": (8,), "burn_in": 2, "sequence_period": 2}
R2D2["prioritized"] = False
AGENTS = {
    **scene.AGENTS,
    "bc": scene.Agent(bc.BCBuilder, bc.BCConfig, {**scene.TINY, "policy_layer_sizes": (8,)}),
    "r2d2": scene.Agent(r2d2.R2D2Builder, r2d2.R2D2Config, R2D2, discrete=True),
    "mpo": scene.Agent(mpo.MPOBuilder, mpo.MPOConfig, {**scene.CONTINUOUS, **SEQUENCES}),
}
# The same with the other paths that observations take through the kit.
VARIANTS = {
    "sac, shared encoder": ("sac", {"shared_encoder": True}),
    "td3, memory": ("td3", {"memory": "lstm", "sequence_length": 4, "sequence_period": 2, "burn_in": 2}),
    "mpo, memory": ("mpo", {"memory": "gru", "burn_in": 2, "critic_loss_steps": "all"}),
}
CASES = {**{name: (name, {}) for name in AGENTS}, **VARIANTS}
LARGE = {"normalize_observations": True, "discount": 0.5}


def make_batch(builder, spec, seed, scale=1.0, shift=0.0):
    """Transitions or sequences, with observations of this scale around this number."""
    batch = scene.make_batch(spec, seed)
    if builder.config_steps is None:
        observations = batch.observation, batch.next_observation
        observation, after = (shift + scale * each for each in observations)
        return batch._replace(observation=observation, next_observation=after)
    generator = torch.Generator().manual_seed(seed)
    steps = builder.config_steps
    action = torch.stack([scene.make_batch(spec, 100 * seed + step).action[:4] for step in range(steps)], 1)
    state = tuple(torch.randn(4, *each.shape, generator=generator) for each in builder.state_spec(spec) or ())
    return types.Trajectory(
        observation=shift + scale * torch.randn(4, steps + 1, 3, generator=generator),
        action=action,
        reward=torch.randn(4, steps, generator=generator),
        discount=torch.ones(4, steps),
        mask=torch.ones(4, steps),
        extras=acting.BehaviourExtras(torch.zeros(4, steps), action) if action.ndim == 3 else (),
        state=state,
    )


def make(name, settings=None, **overrides):
    """A builder of the case, which knows how many steps an item has (None: it is a transition)."""
    agent, changes = CASES[name]
    agent = AGENTS[agent]
    builder = agent.make(**{**changes, **(settings or {}), **overrides})
    config = builder.config
    is_sequence = getattr(config, "sequence_length", None) and (
        not isinstance(builder, off_policy.TransitionBuilder) or config.has_memory
    )
    builder.config_steps = config.sequence_length + config.burn_in if is_sequence else None
    return builder, agent.spec


def run(builder, spec, num_steps=3, num_learner_steps=None, **batches):
    learner, nets, rows = scene.make_learner(
        builder,
        spec,
        (make_batch(builder, spec, seed, **batches) for seed in itertools.count()),
        share_done=num_learner_steps and (lambda step: min(1.0, step / num_learner_steps)),
    )
    learner.run(num_steps=num_steps)
    return learner, nets, rows


@pytest.mark.parametrize("name", CASES)
def test_normalised_observations_may_have_any_scale(name):
    """Numbers around 5,000 are learned from as numbers around 0 are, by every network and its target."""
    builder, spec = make(name, LARGE)
    _, near, rows = run(builder, spec)
    _, far, far_rows = run(builder, spec, scale=64.0, shift=4096.0)
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
    builder, spec = make(name, LARGE)
    _, nets, _ = run(builder, spec, num_steps=2, scale=3.0, shift=7.0)
    burn_in = getattr(builder.config, "burn_in", 0)
    seen = []
    for seed in range(2):
        observation = make_batch(builder, spec, seed, scale=3.0, shift=7.0).observation
        seen.append(observation if builder.config_steps is None else observation[:, burn_in])
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
    builder, spec = make(name, LARGE)
    learner, _, _ = run(builder, spec, num_steps=1, shift=7.0)
    counts = {
        f"{name}.{key}": float(value)
        for name, module in learner.save()["modules"].items()
        for key, value in module.items()
        if key.endswith(".count")
    }
    assert any("target" in name for name in counts) == (name != "bc")
    assert all(count > 1.0 for count in counts.values())


def with_recorded_optimizers(builder, kind=torch.optim.SGD):
    """The builder, with optimisers of torch, and what they are made of by name."""
    made = {}

    class Recording(type(builder)):
        def make_optimizer(self, name, parameters):
            made[name] = kind(parameters)
            return made[name]

    recording = Recording(builder.config)
    recording.config_steps = builder.config_steps
    return recording, made


TRAINED = {"duals": False}  # the multipliers of MPO have no decay


@pytest.mark.parametrize("name", AGENTS)
def test_learning_rates_fall_linearly(name):
    builder, spec = make(name, final_learning_rate=0.2)
    builder, made = with_recorded_optimizers(builder)
    first = {}

    class Watching(type(builder)):
        def make_optimizer(self, name, parameters):
            first[name] = [group["lr"] for group in parameters]
            return super().make_optimizer(name, parameters)

    watching = Watching(builder.config)
    watching.config_steps = builder.config_steps
    run(watching, spec, num_steps=3, num_learner_steps=4)
    names = [each for each in made if TRAINED.get(each, True)]
    assert names
    for each in names:
        rates = [group["lr"] for group in made[each].param_groups]
        assert rates == pytest.approx([rate * (1.0 - 0.8 * 2 / 4) for rate in first[each]])


@pytest.mark.parametrize("name", AGENTS)
def test_weights_decay_and_nothing_else_does(name):
    builder, spec = make(name, weight_decay=0.25)
    builder, made = with_recorded_optimizers(builder, torch.optim.AdamW)
    run(builder, spec, num_steps=1)
    names = [each for each in made if TRAINED.get(each, True)]
    for each in names:
        decays = [(p.ndim > 1, g["weight_decay"]) for g in made[each].param_groups for p in g["params"]]
        assert {is_weight for is_weight, _ in decays} == {True, False}
        assert all(decay == (0.25 if is_weight else 0.0) for is_weight, decay in decays)
    assert names


@pytest.mark.parametrize("name", AGENTS)
def test_gradients_are_clipped_to_a_global_norm(name):
    """A step of plain gradient descent is as long as the gradient that it gets."""
    builder, spec = make(name, max_grad_norm=1e-3)
    builder, made = with_recorded_optimizers(builder)
    generator = torch.Generator().manual_seed(0)
    nets = builder.make_networks(spec, generator)
    learner, _, rows = scene.make_learner(
        builder, spec, (make_batch(builder, spec, seed) for seed in itertools.count()), networks=nets
    )
    names = [each for each in made if TRAINED.get(each, True)]
    parameters = {each: [p for g in made[each].param_groups for p in g["params"]] for each in names}
    before = {each: [p.detach().clone() for p in own] for each, own in parameters.items()}
    learner.run(num_steps=2)  # TD3's policy makes every other step
    assert names
    for each in names:
        (rate,) = {group["lr"] for group in made[each].param_groups}
        assert all(float(row[f"grad_norm/{each}"]) > 1e-3 for row in rows if f"grad_norm/{each}" in row)
        moved = [p.detach() - old for p, old in zip(parameters[each], before[each], strict=True)]
        num_steps = sum(f"grad_norm/{each}" in row for row in rows)
        length = float(torch.cat([x.flatten() for x in moved]).norm())
        assert 0.0 < length <= num_steps * rate * 1e-3 * 1.001


def test_networks_that_see_observations_as_they_are_cannot_be_normalised():
    class Own(type(AGENTS["dqn"].make())):
        def make_networks(self, spec, generator):
            return (
                super()
                .make_networks(spec, generator)
                ._replace(**{name: torch.nn.Linear(3, 3) for name in ("q_network", "target_network")})
            )

    builder = Own(AGENTS["dqn"].make(normalize_observations=True).config)
    spec = AGENTS["dqn"].spec
    with pytest.raises(ValueError, match="`normalize_observations` of Own must be False.*whole_encoder"):
        scene.make_learner(builder, spec)


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

    agent = AGENTS["dqn"]

    class Learner(learners.LossLearner):
        def __init__(self, **arguments):
            super().__init__(**{**arguments, "parts": [Noting("a"), Noting("b")]})

    class Own(agent.builder):
        learner_class = Learner

        def update_targets(self, networks, num_steps):
            seen.append(("targets", num_steps))

    learner, _, _ = scene.make_learner(Own(agent.make().config), agent.spec)
    learner.step()
    assert seen == [
        ("a", "before", 0),
        ("b", "before", 0),
        ("targets", 1),
        ("a", "after", 0, True),
        ("b", "after", 0, True),
    ]
