"""Every agent's policy for evaluation is exported as a program, which chooses the actions that it chooses."""

import numpy as np
import pytest
import torch
import tree
from torch import nn

from minerva_acme import acceleration, environments, experiments, runs, specs
from minerva_acme.agents import (
    acting,
    actions,
    choosing,
    dqn,
    mpo,
    off_policy,
    ppo,
    r2d2,
    registry,
    sac,
    td3,
    vmpo,
)
from minerva_acme.runs import programs
from tests.fields import of_fields

VECTOR = specs.Array((5,), np.float32, name="observation")
NEST = {
    "place": specs.Array((2,), np.float32, name="place"),
    "sensors": (specs.Array((3, 2), np.float64, name="sensors"),),
    "kind": specs.DiscreteArray(3, name="kind"),
}
PICTURE = specs.BoundedArray((6, 6, 1), np.uint8, 0, 255, name="pixels")
BOUNDED = specs.BoundedArray((3,), np.float32, [-1.0, -2.0, 0.0], [1.0, 1.5, 0.5], name="action")
DISCRETE = specs.DiscreteArray(4, dtype=np.int64, name="action")
SMALL_DISCRETE = specs.DiscreteArray(3, dtype=np.int32, name="action")
SEVERAL = specs.BoundedArray((2,), np.int32, [1, 0], [3, 4], name="action")

ROLLOUTS = {"policy_layer_sizes": (8,), "value_layer_sizes": (8,)}
REPLAY = {"policy_layer_sizes": (8,), "critic_layer_sizes": (8,)}
VALUES = {"critic_layer_sizes": (8,)}

# A builder, its config, and the action specs that it takes.
AGENTS = {
    "PPO": (ppo.PPOBuilder, ppo.PPOConfig(**ROLLOUTS), [BOUNDED]),
    "PPO, squashed": (ppo.PPOBuilder, ppo.PPOConfig(**ROLLOUTS, squash_actions=True), [BOUNDED]),
    "V-MPO": (vmpo.VMPOBuilder, vmpo.VMPOConfig(**ROLLOUTS), [SEVERAL]),
    "MPO": (mpo.MPOBuilder, mpo.MPOConfig(**REPLAY, action_penalty=False), [BOUNDED, SMALL_DISCRETE]),
    **{
        entry.title: (
            entry.builder,
            entry.config(**of_fields(entry.config, REPLAY)),
            [DISCRETE if entry.builder.takes_actions == "discrete" else BOUNDED],
        )
        for entry in registry.AGENTS.values()
        if issubclass(entry.builder, off_policy.TransitionBuilder)
    },
    "DQN, C51, smallest of two": (
        dqn.DQNBuilder,
        dqn.DQNConfig(**VALUES, num_critics=2, critic_ensemble="min", critic_head="c51", vmin=-1, vmax=1),
        [DISCRETE],
    ),
}
# Their policies have the same modules as those of BC, MPO and TD3.
LIKE_ANOTHER = [registry.AGENTS[name].title for name in ("d4pg", "crr", "iql", "wpo")]
# V-MPO makes its policy as PPO does, and other agents over replay as SAC does.
OBSERVED = {"PPO": NEST, "SAC": NEST, "DQN": PICTURE}
CASES = {
    f"{name}, {np.dtype(action.dtype)}": (name, OBSERVED.get(name, VECTOR), action)
    for name, (_, _, action_specs) in AGENTS.items()
    for action in action_specs
}


def make_spec(observation, action):
    return specs.EnvironmentSpec(
        observations=observation,
        actions=action,
        rewards=specs.Array((), np.float32, name="reward"),
        discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount"),
    )


def make_policy(builder, spec, evaluation=True):
    """A policy far from what its weights are initially, so that its actions differ and reach their bounds."""
    networks = builder.make_networks(spec, torch.Generator().manual_seed(0))
    policy = builder.make_policy(networks, spec, torch.Generator(), evaluation=evaluation)
    generator = torch.Generator().manual_seed(1)
    for parameter in policy.module.parameters():
        if parameter.ndim > 1:
            parameter += torch.randn(parameter.shape, generator=generator) / parameter.shape[1] ** 0.5
    return policy


def export(policy, spec):
    return programs.export(policy.as_module(), programs.make_inputs(policy, spec.observations)).module()


def observations_of(spec, number):
    random = np.random.default_rng(number)

    def draw(leaf):
        size = (number, *leaf.shape)
        if isinstance(leaf, specs.DiscreteArray):
            return random.integers(0, leaf.num_values, size).astype(leaf.dtype)
        if leaf.dtype == np.uint8:
            return random.integers(0, 256, size, dtype=np.uint8)
        return (3.0 * random.standard_normal(size)).astype(leaf.dtype)

    return tree.map_structure(draw, spec)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.promise("An exported program differs from the evaluation policy by at most 1e-5")
def test_a_program_chooses_the_greedy_actions_for_batches_of_any_size(case):
    name, observation, action = CASES[case]
    kind, config, _ = AGENTS[name]
    spec = make_spec(observation, action)
    policy = make_policy(kind(config), spec)
    # What is exported; to export it takes a hundred times as long.
    program = policy.as_module() if name in LIKE_ANOTHER else export(policy, spec)
    chosen = []
    for number in (1, 2, 5, 64):
        observations = observations_of(observation, number)
        expected = policy.batch(observations).action
        found = program(tree.map_structure(torch.from_numpy, observations)).numpy()
        assert (
            (found.shape, found.dtype)
            == (expected.shape, expected.dtype)
            == ((number, *action.shape), action.dtype)
        )
        # Where arrays act, they round differently.
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        for row in found:
            action.validate(row)
        chosen.append(found)
    assert len(np.unique(np.concatenate(chosen), axis=0)) > 1


def test_a_module_of_ones_own_with_nests_of_actions_is_a_program():
    class Drives(nn.Module):
        def forward(self, observation):
            total = observation["place"].sum(dim=1) + observation["sensors"][0].float().sum(dim=(1, 2))
            return {"gas": total[:, None], "gear": observation["kind"]}

    spec = make_spec(
        NEST,
        {
            "gas": specs.BoundedArray((1,), np.float32, -0.5, 0.5, name="gas"),
            "gear": specs.DiscreteArray(3, dtype=np.int32, name="gear"),
        },
    )
    policy = acting.ModulePolicy(
        module=Drives(),
        choose=lambda output, generator, env_steps: output,
        raw_actions=actions.executed(spec.actions),
        generator=torch.Generator(),
        acceleration=acceleration.Acceleration("auto"),
        evaluation=True,
    )
    observations = observations_of(NEST, 7)
    expected = policy.batch(observations).action
    found = export(policy, spec)(tree.map_structure(torch.from_numpy, observations))
    assert np.abs(expected["gas"]).max() == 0.5
    for key in ("gas", "gear"):
        assert found[key].numpy().dtype == expected[key].dtype
        np.testing.assert_allclose(found[key].numpy(), expected[key], rtol=1e-5)


RUNS = {
    "TD3": ("Pendulum-v1", td3.TD3Builder, td3.TD3Config, REPLAY),
    "DQN": ("CartPole-v1", dqn.DQNBuilder, dqn.DQNConfig, VALUES),
}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.usefixtures("short_episodes")
def test_a_run_over_replay_is_exported_in_the_bounds_that_are_asked_for(name, tmp_path):
    environment_id, kind, config, sizes = RUNS[name]
    experiments.run_experiment(
        experiments.ExperimentConfig(
            builder=kind(config(**sizes, batch_size=8, samples_per_insert=8.0, min_replay_size=8)),
            environment_factory=lambda seed: environments.make_training_environment(
                environment_id, seed=seed
            ),
            directory=tmp_path / "run",
            num_env_steps=12,
            evaluation_period=0,
            evaluation_episodes=1,
            replay="memory",
            tensorboard=False,
        )
    )
    spec = runs.load_policy(tmp_path / "run")._spec
    observations = observations_of(spec, 9)
    for bounds in ("agent", "task"):
        file = tmp_path / f"{bounds}.pt2"
        runs.export_policy(tmp_path / "run", file, format="pt2", actions=bounds)
        found = torch.export.load(file).module()(torch.from_numpy(observations)).numpy()
        expected = runs.load_policy(tmp_path / "run", actions=bounds).batch(observations).action
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_a_choice_that_is_no_sample_has_no_density_to_record():
    with pytest.raises(
        ValueError, match="`choose` must be `choosing.sample` where `record` is 'choice', got"
    ):
        acting.ModulePolicy(
            module=nn.Identity(),
            choose=choosing.mode,
            raw_actions=actions.executed(BOUNDED),
            generator=torch.Generator(),
            acceleration=acceleration.Acceleration("auto"),
            record="choice",
        )


# A memory of a module that no agent of the library has: what a recurrent agent over replay needs.


class Remembers(nn.Module):
    """Values of four actions, of a memory of the observations."""

    def __init__(self, memory, head):
        super().__init__()
        self.memory, self.head = memory, head

    def remember(self, observations, state):
        features, state = self.memory.unroll(observations[None], state)
        return features[0], state

    def without_memory(self):
        return self.head


def test_values_behind_a_memory_are_acted_on_by_the_same_policy():
    from minerva_acme import networks

    memory = networks.make_memory("gru", 5, 6, generator=torch.Generator().manual_seed(0))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = Remembers(memory, nn.Linear(6, 4))
    policy = off_policy.ModulePolicy(
        module=module,
        choose=choosing.epsilon_greedy(lambda step: 0.0),
        raw_actions=actions.executed(DISCRETE),
        generator=torch.Generator(),
        acceleration=acceleration.Acceleration("auto"),
    )
    steps = [3.0 * observations_of(VECTOR, 2 + i)[:2] for i in range(8)]
    state = policy.initial_state(2)
    found = []
    for observations in steps:
        output, state = policy.step(observations, state)
        found.append(output.action)
    features, _ = memory.unroll(torch.from_numpy(np.stack(steps)), memory.initial_state(2))
    np.testing.assert_array_equal(np.stack(found), module.head(features).argmax(dim=-1))
    assert len(np.unique(found)) > 1
    with pytest.raises(ValueError, match="ModulePolicy must define `batch`, or be called through `step`"):
        policy.batch(steps[0])
    policy.module.head = nn.Linear(6, 4).requires_grad_(False)
    with torch.no_grad():
        policy.module.head.bias.copy_(torch.tensor([0.0, 0.0, 100.0, 0.0]))
    assert policy.step(steps[0], state)[0].action.tolist() == [2, 2]


OVER_SEQUENCES = {"memory_size": 6, "burn_in": 2, "sequence_length": 4, "sequence_period": 2}
RECURRENT = {
    "R2D2": (r2d2.R2D2Builder, r2d2.R2D2Config(**OVER_SEQUENCES, layer_sizes=(8,)), SMALL_DISCRETE),
    "SAC": (sac.SACBuilder, sac.SACConfig(**REPLAY, **OVER_SEQUENCES, memory="gru"), BOUNDED),
    "TD3": (td3.TD3Builder, td3.TD3Config(**REPLAY, **OVER_SEQUENCES, memory="lstm"), BOUNDED),
}


@pytest.mark.parametrize(
    ("name", "observation"),
    [("R2D2", VECTOR), ("SAC", NEST), ("TD3", VECTOR)],
    ids=["R2D2", "SAC, nest", "TD3"],
)
def test_a_program_of_an_agent_over_replay_takes_and_returns_the_state(name, observation):
    kind, config, action = RECURRENT[name]
    spec = make_spec(observation, action)
    policy = make_policy(kind(config), spec)
    program = export(policy, spec)
    initial = state = policy.initial_state(5)
    kept = tree.map_structure(np.ones_like, state)  # not used where an episode starts
    start, chosen = np.ones(5, bool), []
    for t in range(6):
        observations = observations_of(observation, 5 + t)
        observations = tree.map_structure(lambda leaf: leaf[:5], observations)
        state = tree.map_structure(
            lambda new, old, start=start: np.where(start[:, None], new, old), initial, state
        )
        output, state = policy.step(observations, state)
        found, kept = program(*tree.map_structure(torch.from_numpy, (observations, kept, start)))
        np.testing.assert_allclose(found.numpy(), output.action, rtol=1e-4, atol=1e-4)
        kept = tree.map_structure(torch.Tensor.numpy, kept)
        for one, other in zip(kept, state, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        start = np.array([t == 2, t == 3, False, False, True])
        chosen.append(output.action)
    assert len(np.unique(np.concatenate(chosen), axis=0)) > 1
