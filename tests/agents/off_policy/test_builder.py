"""What the kit makes of a config and of the few methods that a user writes."""

import dataclasses

import pytest
import torch

from minerva_acme import adders, experiments, replay, specs, testing, types
from minerva_acme.agents import mpo, off_policy

from . import scene

SPEC = specs.make_environment_spec(scene.Doors())


class Sequences(off_policy.SequenceBuilder):
    def make_networks(self, spec, generator):
        raise AssertionError


class Transitions(off_policy.TransitionBuilder):
    def make_networks(self, spec, generator):
        raise AssertionError


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrioritizedSequences(off_policy.SequenceConfig, off_policy.PrioritizedConfig):
    pass


def test_the_table_is_as_large_as_the_config_says_and_waits_for_the_first_items():
    config = off_policy.TransitionConfig(max_replay_size=70, min_replay_size=30)
    (table,) = Transitions(config).make_replay_tables(SPEC)
    assert (table.name, table.max_size, table.rate_limiter) == (off_policy.TABLE, 70, replay.MinSize(30))
    assert table.sampler == replay.Uniform() and table.remover == replay.Fifo()


@pytest.mark.parametrize(
    "config",
    [PrioritizedSequences(sequence_length=2, priority_exponent=0.7), scene.QConfig(priority_exponent=0.7)],
)
def test_a_prioritised_config_makes_a_prioritised_table_whatever_its_items_are(config):
    builder = Sequences(config) if hasattr(config, "sequence_length") else scene.QBuilder(config)
    (table,) = builder.make_replay_tables(SPEC)
    assert table.sampler == replay.Prioritized(0.7)


def test_a_prioritised_config_draws_all_alike_where_it_is_switched_off():
    builder = scene.QBuilder(scene.QConfig(prioritized=False))
    (table,) = builder.make_replay_tables(SPEC)
    assert table.sampler == replay.Uniform()
    assert builder._priorities(None, 100) is None


def write_and_read(builder, num_episodes, batch_size):
    environment = testing.FakeEnvironment(episode_length=3, action_spec=specs.DiscreteArray(2))
    spec = specs.make_environment_spec(environment)
    with (
        replay.make_server(builder.make_replay_tables(spec), "memory", seed=0) as server,
        server.client() as client,
        builder.make_adder(client, spec) as adder,
        builder.make_dataset(client, spec, torch.device("cpu")) as dataset,
    ):
        for _ in range(num_episodes):
            timestep = environment.reset()
            adder.add_first(timestep)
            while not timestep.last():
                action = spec.actions.generate_value()
                timestep = environment.step(action)
                adder.add(action, timestep)
        adder.flush()
        data = next(dataset).data
        assert len(data.reward) == batch_size
        return data, type(adder), adder.num_inserted


def test_transitions_are_folded_over_n_steps_with_the_configs_discount():
    config = off_policy.TransitionConfig(n_step=2, discount=0.5, batch_size=64, min_replay_size=1)
    data, adder, num_inserted = write_and_read(Transitions(config), num_episodes=1, batch_size=64)
    assert isinstance(data, types.Transition) and adder is adders.NStepTransitionAdder and num_inserted == 3
    # Rewards 1, 2, 3: 1 + 2 / 2, 2 + 3 / 2, 3; the last two end at the terminal.
    assert set(zip(data.reward.tolist(), data.discount.tolist(), strict=True)) == {
        (2.0, 0.25),
        (3.5, 0.0),
        (3.0, 0.0),
    }


def test_sequences_have_the_configs_length_and_period():
    config = off_policy.SequenceConfig(sequence_length=2, sequence_period=2, batch_size=32, min_replay_size=1)
    data, adder, num_inserted = write_and_read(Sequences(config), num_episodes=1, batch_size=32)
    assert isinstance(data, types.Trajectory) and adder is adders.SequenceAdder and num_inserted == 2
    assert {tuple(row) for row in data.reward.tolist()} == {(1.0, 2.0), (3.0, 0.0)}


@pytest.mark.parametrize(
    ("num_inserted", "due"), [(0, 0), (9, 0), (10, 1), (13, 1), (14, 2), (17, 2), (18, 3)]
)
def test_a_learner_step_is_due_every_batch_size_over_samples_per_insert_items(num_inserted, due):
    config = off_policy.TransitionConfig(min_replay_size=10, batch_size=8, samples_per_insert=2.0)
    assert Transitions(config).learner_steps_due(num_inserted) == due


def test_the_agents_name_is_in_what_is_said_of_a_spec_that_it_cannot_handle():
    spec = SPEC._replace(rewards=specs.Array((2,), "float32"))
    with pytest.raises(ValueError, match="Q needs rewards that are one float32 number"):
        scene.QBuilder(scene.QConfig()).check_spec(spec)


def test_a_builder_without_objectives_says_what_is_missing():
    class Empty(scene.QBuilder):
        make_objectives = off_policy.OffPolicyBuilder.make_objectives

    with pytest.raises(NotImplementedError, match="Empty must define `make_objectives`, or `make_learner`"):
        Empty(scene.QConfig()).make_objectives(SPEC)


def test_mpo_is_made_of_the_sequence_kit():
    assert issubclass(mpo.MPOBuilder, off_policy.SequenceBuilder)
    assert issubclass(mpo.MPOConfig, off_policy.SequenceConfig)


def test_a_run_gives_its_policy_the_count_of_its_environment_steps(tmp_path):
    seen = []

    class Watched(scene.QBuilder):
        def make_choice(self, spec, evaluation):
            choose = super().make_choice(spec, evaluation)

            def watch(output, generator, env_steps):
                if not evaluation:
                    seen.append(env_steps)
                return choose(output, generator, env_steps)

            return watch

    experiments.run_experiment(
        experiments.ExperimentConfig(
            builder=Watched(scene.QConfig()),
            environment_factory=lambda seed: scene.Doors(),
            directory=tmp_path,
            num_env_steps=6,
            evaluation_episodes=1,
            evaluation_period=0,
            tensorboard=False,
            replay="memory",
        )
    )
    assert seen == [0, 1, 2, 3, 4, 5]
