"""Parts are exchanged by flags, as the table of docs/composing.md says."""

import dataclasses
import itertools
import pathlib
import re

import numpy as np
import pytest
import torch

from minerva_acme import builders, counting, learners, replay, specs, testing, wrappers
from minerva_acme.agents import mpo, off_policy, registry, td3

from . import transition_scene as scene
from .table import VECTORS

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "composing.md"
COLUMNS = "| policy improvement | critic head | critic target | replay |"
SMALL = {"critic_layer_sizes": (8,), "batch_size": 4, "min_replay_size": 4, "vmin": -5.0, "vmax": 5.0}


def settings(word):
    """`a=1 b=x` -> {"a": 1, "b": "x"}."""
    pairs = (setting.split("=") for setting in word.split())
    return {name: {"True": True, "False": False}.get(x, int(x) if x.isdigit() else x) for name, x in pairs}


def table():
    """Yields the agent and the settings of each combination, and whether it is one of those that learn.

    Every agent learns with each part, and every pair of parts is learned with by an agent of each row.
    """
    lines = PAGE.read_text().split(COLUMNS)[1].splitlines()[2:]
    for line in itertools.takewhile(lambda line: line.startswith("|"), lines):
        agents, *parts = (re.findall(r"`([^`]+)`", cell) for cell in line.strip("|").split("|"))
        for (place, agent), *words in itertools.product(enumerate(agents), *map(enumerate, parts)):
            numbers, words = zip(*words, strict=True)
            head, *others = numbers
            if len(agents) == 1:
                learns = sum(numbers) % 2 == 0
            else:
                learns = others == [(head + place) % 2, (head + place // 2) % 2]
            yield agent, " ".join(words), learns


COMBINATIONS = list(table())


def make_environment(agent, image=None):
    """Observations are vectors, or images of that shape."""
    discrete = agent == "dqn"
    spec = scene.make_spec(discrete)
    pixels = image and specs.BoundedArray(image, np.uint8, 0, 255, name="observation")
    return testing.FakeEnvironment(
        observation_spec=pixels or spec.observations,
        action_spec=spec.actions,
        episode_length=4,
        truncates=True,
    )


def step_once(builder, environment):
    """Plays until there is a batch, and makes a learner step; returns its row, and whether weights moved."""
    spec = specs.make_environment_spec(environment)
    builder.check_spec(spec)
    generator, logger = torch.Generator().manual_seed(0), testing.FakeLogger()
    networks = builder.make_networks(spec, generator)
    policy = builder.make_policy(networks, spec, generator)
    with (
        replay.make_server(builder.make_replay_tables(spec), "memory", seed=0) as server,
        server.client() as client,
        builder.make_adder(client, spec) as adder,
        builder.make_dataset(client, spec, torch.device("cpu")) as dataset,
    ):
        learner = builder.make_learner(
            builders.LearnerParts(
                networks=networks,
                dataset=dataset,
                client=client,
                spec=spec,
                counter=counting.Counter(),
                logger=logger,
                generator=generator,
                device=torch.device("cpu"),
            )
        )
        actor = builder.make_actor(policy, adder=adder)
        for _ in range(2):
            timestep = environment.reset()
            actor.observe_first(timestep)
            while not timestep.last():
                action = actor.select_action(timestep.observation)
                timestep = environment.step(action)
                actor.observe(action, timestep)
        adder.flush()
        before = learner.get_variables(builder.policy_variables)
        learner.run(num_steps=2)  # TD3's policy learns in every second one
        (before,), (after,) = before, learner.get_variables(builder.policy_variables)
    return logger.rows[-1], any(not np.array_equal(before[name], after[name]) for name in before)


def make_builder(agent, **changes):
    entry = registry.find(agent)
    small = SMALL if agent == "dqn" else {**SMALL, "policy_layer_sizes": (8,)}
    return entry.builder(dataclasses.replace(entry.presets["default"], **{**small, **changes}))


@pytest.mark.parametrize(("agent", "words"), [each[:2] for each in COMBINATIONS if each[2]])
@pytest.mark.promise("Swapping a part")
def test_the_parts_of_the_table_learn_together(agent, words):
    row, has_moved = step_once(make_builder(agent, **settings(words)), make_environment(agent))
    assert row["skipped_batches"] == 0 and has_moved
    assert row["loss/critic" if agent == "mpo" else next(name for name in row if "loss/" in name)].isfinite()


def test_every_combination_of_the_table_is_built():
    for agent, words, _ in COMBINATIONS:
        spec = specs.make_environment_spec(make_environment(agent))
        assert make_builder(agent, **settings(words)).make_networks(spec, torch.Generator())


def test_every_part_is_learned_with_by_every_agent_and_every_pair_of_them_by_some():
    learned = [(agent, word) for agent, words, learns in COMBINATIONS if learns for word in words.split()]
    assert {*learned} == {(agent, word) for agent, words, _ in COMBINATIONS for word in words.split()}
    pairs = [
        {
            (agent in ("mpo", "dqn") and agent, *pair)
            for agent, words, learns in chosen
            for pair in itertools.combinations(words.split(), 2)
        }
        for chosen in (COMBINATIONS, [each for each in COMBINATIONS if each[2]])
    ]
    assert pairs[0] == pairs[1]


def test_the_table_has_every_agent_over_replay_and_every_head():
    over_replay = {
        name
        for name, entry in registry.AGENTS.items()
        if issubclass(entry.builder, off_policy.OffPolicyBuilder)
        and issubclass(entry.config, off_policy.CriticConfig | mpo.MPOConfig)
    }
    heads = {"scalar", "c51", "two_hot", "hl_gauss", "mixture"}
    found = {(agent, settings(words)["critic_head"]) for agent, words, _ in COMBINATIONS}
    assert found == set(itertools.product(over_replay, heads))


@pytest.mark.parametrize("agent", sorted({agent for agent, *_ in COMBINATIONS}))
def test_any_agent_takes_several_critics_and_another_torso(agent):
    builder = make_builder(agent, num_critics=2, critic_ensemble="mean", torso="simba")
    row, has_moved = step_once(builder, make_environment(agent))
    assert row["skipped_batches"] == 0 and has_moved


IMAGES = {"pixels": (84, 84, 3), "nature": (84, 84, 4), "rainbow": (84, 84, 4), "minatar": (10, 10, 4)}


@pytest.mark.parametrize(
    ("agent", "name"),
    [(a, name) for a in ("dqn", *VECTORS) for name in registry.find(a).presets],
)
def test_every_preset_of_an_agent_over_transitions_learns(agent, name):
    entry = registry.find(agent)
    config = dataclasses.replace(
        entry.presets[name], batch_size=4, min_replay_size=4, max_replay_size=100, samples_per_insert=1.0
    )
    if getattr(config, "memory", "none") != "none":  # over sequences, of which short episodes must give four
        config = dataclasses.replace(config, burn_in=2, sequence_length=2, sequence_period=1)
    environment = make_environment(agent, IMAGES.get(name))
    if config.frame_stack > 1:
        environment = wrappers.FrameStackWrapper(environment, num_frames=config.frame_stack)
    row, has_moved = step_once(entry.builder(config), environment)
    assert row["skipped_batches"] == 0 and has_moved


@pytest.mark.parametrize("name", ["dmpo", "dmpo_mixture", "two_hot"])
def test_the_distributional_presets_of_mpo_are_built_and_learn(name):
    preset = mpo.PRESETS[name]
    assert (preset.sequence_length, preset.retrace_mc_actions, preset.num_samples) == (5, 20, 20)
    if name != "dmpo_mixture":
        assert (preset.num_bins, preset.vmin, preset.vmax) == (51, -150.0, 150.0)
    small = {**SMALL, "policy_layer_sizes": (8,), "vmin": -150.0, "vmax": 150.0}
    row, has_moved = step_once(mpo.MPOBuilder(dataclasses.replace(preset, **small)), make_environment("mpo"))
    assert row["skipped_batches"] == 0 and has_moved


def test_the_page_swaps_one_loss_of_an_agent_for_another():
    (code,) = re.findall(r"^```python swap\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    names = {}
    exec(compile(code, str(PAGE), "exec"), names)
    builder = names["MyTD3"](td3.TD3Config(**SMALL, policy_layer_sizes=(8,)))
    objective = builder.make_objectives(scene.make_spec())["policy"]
    assert objective.loss is names["policy_loss"]
    assert objective.period == builder.config.policy_period > 1
    row, has_moved = step_once(builder, make_environment("td3"))
    assert row["skipped_batches"] == 0 and has_moved


def test_the_swapped_loss_is_of_the_mean_of_all_critics_as_it_says():
    (code,) = re.findall(r"^```python swap\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    names = {}
    exec(compile(code, str(PAGE), "exec"), names)
    builder = names["MyTD3"](td3.TD3Config(**SMALL, policy_layer_sizes=(8,)))
    nets = builder.make_networks(scene.make_spec(), torch.Generator().manual_seed(0))
    batch = learners.Batch(scene.make_batch(scene.make_spec()), 1.0)
    found = names["policy_loss"](nets, batch, None).value
    action = nets.policy(batch.data.observation)
    features = nets.critic.encoder(batch.data.observation)
    members = [each(features, action).mean().mean() for each in nets.critic.critic.members]
    assert len(members) > 1
    torch.testing.assert_close(found, -torch.stack(members).mean())
