"""SAC and TD3 with a memory: losses of transitions, computed over sequences; and a user's own agent."""

import copy
import dataclasses
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from minerva_acme import learners, networks, runs, testing, types
from minerva_acme.agents import acting, off_policy, registry

from .. import transition_scene as scene

B, BURN_IN, T = 3, 2, 4
MEMORY = {
    "memory": "lstm",
    "memory_size": 5,
    "burn_in": BURN_IN,
    "sequence_length": T,
    "sequence_period": 2,
    "batch_size": 4,
    "samples_per_insert": 4.0,
    "min_replay_size": 4,
    "n_step": 1,
}
SPEC = scene.make_spec()
PADDED = [[0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 0]]


@pytest.fixture(
    params=[
        name for name, agent in scene.AGENTS.items() if issubclass(agent.config, off_policy.ActorCriticConfig)
    ]
)
def agent(request):
    return scene.AGENTS[request.param]


def make_networks(builder, seed=0):
    """Networks whose targets are not copies."""
    made = builder.make_networks(SPEC, torch.Generator().manual_seed(seed))
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for module in made:
            for parameter in module.parameters():
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return made


def make_batch(builder, mask, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mask = torch.tensor(mask, dtype=torch.float32)
    size = mask.shape

    def normal(*shape):
        return torch.randn(len(mask), *shape, generator=generator)

    low, high = torch.tensor(scene.LOW), torch.tensor(scene.HIGH)
    return types.Trajectory(
        observation=normal(size[1] + 1, 3),
        action=low + (high - low) * torch.rand(*size, 2, generator=generator),
        reward=normal(size[1]),
        discount=(torch.rand(size, generator=generator) < 0.8).float(),
        mask=mask,
        extras=acting.BehaviourExtras(),
        state=tuple(normal(*spec.shape) for spec in builder.state_spec(SPEC)),
    )


def compute(builder, nets, data, weights=1.0):
    """Each loss by its name, with the gradients of all modules that have one."""
    results = {}
    for name, objective in builder.make_objectives(SPEC).items():
        loss = off_policy.over_sequences(objective.loss, burn_in=BURN_IN, discount=builder.config.discount)(
            nets, learners.Batch(data, weights), torch.Generator().manual_seed(5)
        )
        parameters = [p for module in nets for p in module.parameters() if p.requires_grad]
        gradients = torch.autograd.grad(loss.value, parameters, allow_unused=True)
        results[name] = loss, gradients
    return results


class Row(NamedTuple):
    """Which states: those that the steps of sequences begin with, or end with."""

    shift: int


class OfRows(nn.Module):
    """A module with memory, for states whose features it computes one step after the other."""

    def __init__(self, module, data):
        super().__init__()
        self.module, self.data = module, data

    def features(self, row):
        state, found = self.data.state or self.module.memory.initial_state(B), []
        for t in range(BURN_IN + T + 1):
            features, state = self.module.remember(self.data.observation[:, t], state)
            found.append(features)
        return torch.stack(found, dim=1)[:, BURN_IN + row.shift :][:, :T].flatten(0, 1)

    def forward(self, row, *action):
        return self.module.without_memory()(self.features(row), *action)

    def first(self, row, *action):
        return self.module.without_memory().first(self.features(row), *action)

    def loss(self, *arguments):
        return self.module.loss(*arguments)


def test_losses_are_those_of_the_transitions_between_what_an_actor_remembers(agent):
    builder = agent.make(**MEMORY)
    nets = make_networks(builder)
    data = make_batch(builder, [[1] * (BURN_IN + T)] * B)
    weights = torch.tensor([0.2, 1.0, 0.5])
    plain = type(nets)(*(OfRows(module, data) if hasattr(module, "remember") else module for module in nets))
    late = (slice(None), slice(BURN_IN, None))
    steps = [
        x[late].flatten(0, 1) for x in (data.action, data.reward, builder.config.discount * data.discount)
    ]
    batch = learners.Batch(types.Transition(Row(0), *steps, Row(1)), weights.repeat_interleave(T))
    for name, (loss, _) in compute(builder, nets, data, weights).items():
        expected = builder.make_objectives(SPEC)[name].loss(plain, batch, torch.Generator().manual_seed(5))
        torch.testing.assert_close(loss.value, expected.value)
        for key, value in expected.metrics.items():
            torch.testing.assert_close(loss.metrics[key], value)
        if expected.priorities is not None:
            errors = expected.priorities.view(B, T)
            priorities = 0.9 * errors.amax(dim=1) + 0.1 * errors.mean(dim=1)
            torch.testing.assert_close(loss.priorities, priorities)


def test_padding_may_hold_anything_and_burn_in_is_in_no_loss(agent):
    builder = agent.make(**MEMORY)
    nets = make_networks(builder)
    data, other = make_batch(builder, PADDED), make_batch(builder, PADDED, seed=1)
    used = nn.functional.pad(data.mask, (1, 0)) + nn.functional.pad(data.mask, (0, 1)) > 0
    happened = data.mask > 0
    learned = happened & (torch.arange(BURN_IN + T) >= BURN_IN)
    changed = data._replace(
        observation=torch.where(used[..., None], data.observation, other.observation),
        action=torch.where(learned[..., None], data.action, other.action),
        reward=torch.where(learned, data.reward, other.reward),
        discount=torch.where(learned, data.discount, other.discount),
        state=tuple(
            torch.where(happened[:, :1], one, two) for one, two in zip(data.state, other.state, strict=True)
        ),
    )
    one, two = (compute(builder, nets, each) for each in (data, changed))
    for name, (loss, gradients) in one.items():
        same, same_gradients = two[name]
        torch.testing.assert_close(loss.value, same.value)
        torch.testing.assert_close(loss.priorities, same.priorities)
        torch.testing.assert_close(dict(loss.metrics), dict(same.metrics))
        for gradient, other_gradient in zip(gradients, same_gradients, strict=True):
            torch.testing.assert_close(gradient, other_gradient)
    warm = data._replace(observation=data.observation + torch.eye(BURN_IN + T + 1)[1][:, None])
    assert compute(builder, nets, warm)["critic"][0].value != one["critic"][0].value


def test_policy_and_critic_share_a_memory_that_the_critics_loss_trains(agent):
    builder = agent.make(**MEMORY)
    nets = builder.make_networks(SPEC, torch.Generator().manual_seed(0))
    assert networks.memory_of(nets.policy) is networks.memory_of(nets.critic)
    assert networks.memory_of(nets.target_critic) is not networks.memory_of(nets.critic)
    data = make_batch(builder, PADDED)
    learner, _, rows = scene.make_learner(builder, SPEC, [data] * 4, nets)
    memory = networks.memory_of(nets.policy)
    before = [parameter.detach().clone() for parameter in memory.parameters()]
    learner.step()
    assert all(not torch.equal(x, y) for x, y in zip(before, memory.parameters(), strict=True))
    learner.step()
    assert rows[-1]["skipped_batches"] == 0 and rows[-1]["grad_norm/policy"] > 0
    # The losses are minimised over sequences by the learner too.
    assert "memory" in dict(nets.policy.named_modules())["encoder"]._modules


def test_items_are_transitions_without_a_memory_and_sequences_with_one(agent):
    (table,) = agent.make().make_replay_tables(SPEC)
    assert {field.length for field in table.signature.fields.values()} == {1}
    assert table.contents == {"n_step": agent.make().config.n_step, "discount": 0.99}
    builder = agent.make(**MEMORY)
    (table,) = builder.make_replay_tables(SPEC)
    fields = table.signature.fields
    assert fields["float32"].length == BURN_IN + T + 1
    # Recorded data has no states.
    assert ("state/float32" in fields) is not builder.config.needs_recorded_data
    assert all(field.length == 1 for name, field in fields.items() if name.startswith("state/"))
    assert (builder.steps_per_item, agent.make().steps_per_item, table.contents) == (2, 1, {})
    assert builder.num_learner_steps(2 * 4 + 20) == 11
    without = agent.make(**MEMORY, stored_state=False)
    assert "state/float32" not in without.make_layout(SPEC).signature.columns
    assert without.extras_spec(SPEC) == agent.make().extras_spec(SPEC) == ()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (MEMORY | {"n_step": 3}, "`n_step` must be 1 with `memory`, got 3. Set it to 1"),
        ({**MEMORY, "sequence_period": 9}, "`sequence_period` must be <= `sequence_length` 4, got 9"),
        ({"burn_in": 2}, "`burn_in` must be 0 without `memory`, got 2.*set `memory` to lstm or gru"),
        ({"memory": "rnn"}, "`memory` must be one of .*, got 'rnn'"),
        ({**MEMORY, "memory_size": 0}, "`memory_size` must be >= 1, got 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(agent, overrides, message):
    with pytest.raises(ValueError, match=message):
        agent.config(**overrides)


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_the_preset_memory_has_one(name):
    preset = registry.find(name).presets["memory"]
    assert preset.has_memory and not registry.find(name).presets["default"].has_memory
    # At most 40 steps, and an update every 2.
    assert preset.burn_in + preset.sequence_length <= 40
    assert preset.inserts_per_learner_step * preset.sequence_period == 2.0


# A user's own agent, without private names.


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnConfig(off_policy.SequenceConfig, off_policy.MemoryConfig):
    sequence_length: int = 6
    memory: str = "gru"


class OwnNetworks(NamedTuple):
    q_network: nn.Module
    target_network: nn.Module


class OwnBuilder(off_policy.SequenceBuilder[OwnNetworks, OwnConfig]):
    """Q-learning over sequences, with a memory."""

    config_class = OwnConfig

    def make_networks(self, spec, generator):
        encoder = self.whole_encoder(spec, generator)
        head = networks.orthogonal_linear(encoder.output_size, spec.actions.num_values, 1.0, generator)
        q_network = networks.EncodedPolicy(encoder, head)
        return OwnNetworks(q_network, copy.deepcopy(q_network).requires_grad_(False))

    def make_objectives(self, spec):
        return {"q_network": off_policy.Objective(self.loss, learning_rate=1e-2)}

    def loss(self, nets, batch, generator):
        data, burn_in = batch.data, self.config.burn_in
        steps = networks.sequences(data, burn_in)
        action, reward, discount, mask = learners.at(
            (data.action.long(), data.reward, data.discount, data.mask), (slice(None), slice(burn_in, None))
        )
        q = nets.q_network(steps)[:, :-1].gather(-1, action[..., None]).squeeze(-1)
        target = reward + 0.9 * discount * nets.target_network(steps)[:, 1:].amax(dim=-1)
        return learners.Loss(((q - target).square() * mask).sum() / mask.sum())

    def update_targets(self, nets, num_steps):
        learners.update_target(nets.target_network, nets.q_network, num_steps, rate=0.1)

    def make_choice(self, spec, evaluation):
        return off_policy.argmax if evaluation else off_policy.epsilon_greedy(off_policy.constant(0.3))

    @property
    def policy_variables(self):
        return ["q_network"]


def make_own_environment(seed):
    spec = scene.make_spec(discrete=True)
    return testing.FakeEnvironment(
        observation_spec=spec.observations, action_spec=spec.actions, episode_length=3 + seed % 4
    )


def make_environment(seed):
    return testing.FakeEnvironment(
        observation_spec=SPEC.observations, action_spec=SPEC.actions, episode_length=3 + seed % 4
    )


CASES = {
    "sac": (scene.AGENTS["sac"].make(**MEMORY, prioritized=True, stored_state=False), make_environment),
    "td3": (scene.AGENTS["td3"].make(**{**MEMORY, "memory": "gru"}, num_environments=2), make_environment),
    "own": (
        OwnBuilder(OwnConfig(burn_in=2, batch_size=4, samples_per_insert=4.0, min_replay_size=4)),
        make_own_environment,
    ),
}


@pytest.mark.parametrize(
    ("case", "backend"),
    [("sac", "memory"), pytest.param("td3", "reverb", marks=pytest.mark.reverb), ("own", "memory")],
)
def test_an_experiment_is_made_with_a_memory(run, case, backend):
    builder, factory = CASES[case]
    result = run(builder, factory, 30, replay=backend)
    assert result.learner_steps > 5
    policy = runs.load_policy(result.directory, builder=builder)
    observation = np.ones(3, np.float32)
    first = [policy(observation).action for _ in range(4)]
    policy.reset()
    np.testing.assert_array_equal([policy(observation).action for _ in range(4)], first)
    if case != "own":  # that of a random network may be one action
        assert len(np.unique(first, axis=0)) > 1


@pytest.mark.parametrize("name", ["encoder", "memory"])
def test_hooks_that_acting_would_not_call_are_refused(agent, name):
    builder = agent.make(**MEMORY)
    nets = make_networks(builder)
    part = nets.policy.encoder if name == "encoder" else nets.policy.encoder.memory
    part.register_forward_hook(lambda *_: None)
    with pytest.raises(
        ValueError, match=f"`{name}` must not have hooks of its own, which acting does not call"
    ):
        builder.make_policy(nets, SPEC, torch.Generator().manual_seed(0))
