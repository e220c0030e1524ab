"""What the kit makes of a config and of the few methods that a user writes."""

import dataclasses
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from minerva_acme import adders, learners, replay, specs, testing, types
from minerva_acme.agents import mpo, off_policy

from .. import transition_scene
from . import scene

SPEC = specs.make_environment_spec(scene.Doors())


class Sequences(off_policy.SequenceBuilder):
    config_class = off_policy.SequenceConfig

    def make_networks(self, spec, generator):
        raise AssertionError


class Transitions(off_policy.TransitionBuilder):
    config_class = off_policy.TransitionConfig

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


FADING = {"replay_fading": 0.9, "replay_fading_floor": 0.2}


@pytest.mark.parametrize(
    ("builder", "sampler"),
    [
        (Transitions(off_policy.TransitionConfig(**FADING)), replay.Prioritized(0.0, 0.9, 0.2)),
        (scene.QBuilder(scene.QConfig(**FADING)), replay.Prioritized(0.6, 0.9, 0.2)),
        (
            scene.QBuilder(scene.QConfig(**FADING, new_priority="largest")),
            replay.Prioritized(0.6, 0.9, 0.2, "largest"),
        ),
        (scene.QBuilder(scene.QConfig(**FADING, prioritized=False)), replay.Prioritized(0.0, 0.9, 0.2)),
        # A sequence is written every third step, in which the weights of older ones fade three times.
        (
            Sequences(off_policy.SequenceConfig(sequence_length=4, sequence_period=3, **FADING)),
            replay.Prioritized(0.0, 0.9**3, 0.2),
        ),
    ],
)
def test_a_config_that_fades_makes_a_table_that_does_by_environment_steps(builder, sampler):
    (table,) = builder.make_replay_tables(SPEC)
    assert table.sampler == sampler


def test_a_prioritised_config_draws_all_alike_where_it_is_switched_off():
    builder = scene.QBuilder(scene.QConfig(prioritized=False))
    (table,) = builder.make_replay_tables(SPEC)
    assert table.sampler == replay.Uniform()
    assert builder.make_priorities(None, 100) is None


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


def test_a_run_gives_its_policy_the_count_of_its_environment_steps(run):
    seen = []

    class Watched(scene.QBuilder):
        def make_choice(self, spec, evaluation):
            choose = super().make_choice(spec, evaluation)

            def watch(output, generator, env_steps):
                if not evaluation:
                    seen.append(env_steps)
                return choose(output, generator, env_steps)

            return watch

    run(Watched(scene.QConfig()), lambda seed: scene.Doors(), 6)
    assert seen == [0, 1, 2, 3, 4, 5]


class Parts(NamedTuple):
    q_network: nn.Module
    model: nn.Module
    target: nn.Module


class PartsBuilder(scene.QBuilder):
    """Networks with a model; a test says what is trained."""

    objectives: Any = {"q_network": off_policy.Objective(scene.q_loss, 0.1)}
    freezes_model = False

    def make_networks(self, spec, generator):
        q_network, target = super().make_networks(spec, generator)
        return Parts(q_network, nn.Linear(2, 2).requires_grad_(not self.freezes_model), target)

    def make_objectives(self, spec):
        return self.objectives


def make_parts_learner(builder):
    learner, *_ = transition_scene.make_learner(builder, SPEC, [])
    return learner


@pytest.mark.parametrize(
    ("objectives", "message"),
    [
        (
            {"q_netwrk": off_policy.Objective(scene.q_loss, 0.1)},
            r"The objective 'q_netwrk' of PartsBuilder must name modules of the networks \(q_network, model, "
            r"target\), got 'q_netwrk'\. Did you mean 'q_network'\?",
        ),
        (
            {"q_network": off_policy.Objective(scene.q_loss, 0.1, modules=["q_network", "encoder"])},
            r"The objective 'q_network' of .*, got 'encoder'\. Use one of those names",
        ),
        (
            {"q_network": off_policy.Objective(scene.q_loss, 0.1)},
            r"must have an objective, but 'model' of PartsBuilder's networks has none: there are objectives "
            r"for q_network\. .*freeze it \(requires_grad_\(False\)\) .* name it target_model",
        ),
        (
            {"model": off_policy.Objective(scene.q_loss, 0.1)},
            "but 'q_network' of PartsBuilder's networks has none: there are objectives for model",
        ),
        ({}, "but 'q_network' of PartsBuilder's networks has none: there are objectives for nothing"),
        (
            {
                "q_network": off_policy.Objective(scene.q_loss, 0.1, modules=["q_network", "model"]),
                "model": off_policy.Objective(scene.q_loss, 0.1),
            },
            "The objective 'model' of PartsBuilder must train something, but each parameter of model",
        ),
    ],
)
def test_an_objective_and_a_module_that_do_not_belong_together_are_refused_by_name(objectives, message):
    builder = PartsBuilder(scene.QConfig(prioritized=False))
    builder.objectives = objectives
    with pytest.raises(ValueError, match=message):
        make_parts_learner(builder)


def test_a_policy_that_is_no_module_is_refused_by_name():
    class Own(scene.QBuilder):
        policy_variables = ("policy",)

    message = (
        r"`policy_variables` of Own must name modules of the networks \(q_network, target\), got 'policy'"
    )
    with pytest.raises(ValueError, match=message):
        make_parts_learner(Own(scene.QConfig(prioritized=False)))


@pytest.mark.parametrize(
    ("objectives", "error", "message"),
    [
        ([], TypeError, "`make_objectives` of PartsBuilder must return a dict, got list"),
        ({"q_network": (scene.q_loss, 0.1)}, TypeError, "must be an `off_policy.Objective` .* got tuple"),
        ({"q_network": off_policy.Objective(0.1, 0.1)}, TypeError, "of a loss function, got float"),
        (
            {"q_network": off_policy.Objective(scene.q_loss, -1e-3)},
            ValueError,
            r"`learning_rate` of the objective 'q_network' of PartsBuilder must be .* >= 0, got -0\.001",
        ),
        ({"q_network": off_policy.Objective(scene.q_loss, "1e-3")}, ValueError, "got '1e-3'"),
        (
            {"q_network": off_policy.Objective(scene.q_loss, 0.1, -1.0)},
            ValueError,
            "`max_grad_norm` of .* -1",
        ),
        (
            {"q_network": off_policy.Objective(scene.q_loss, 0.1, period=0)},
            ValueError,
            "`period` of the objective 'q_network' of PartsBuilder must be a whole number >= 1, got 0",
        ),
    ],
)
def test_an_objective_that_cannot_be_minimised_is_refused(objectives, error, message):
    builder = PartsBuilder(scene.QConfig(prioritized=False))
    builder.freezes_model, builder.objectives = True, objectives
    with pytest.raises(error, match=message):
        make_parts_learner(builder)


@pytest.mark.parametrize("change", [lambda nets: nets._asdict(), lambda nets: nets.q_network, tuple])
def test_networks_that_are_no_named_tuple_are_refused(change):
    class Own(scene.QBuilder):
        def make_networks(self, spec, generator):
            return change(super().make_networks(spec, generator))

    with pytest.raises(TypeError, match="`make_networks` of Own must return a named tuple of modules, got "):
        make_parts_learner(Own(scene.QConfig(prioritized=False)))


def test_a_target_that_is_the_trained_network_is_refused():
    class Own(scene.QBuilder):
        def make_networks(self, spec, generator):
            nets = super().make_networks(spec, generator)
            return nets._replace(target=nets.q_network)

    with pytest.raises(
        ValueError, match="The target network 'target' of Own must have parameters of its own"
    ):
        make_parts_learner(Own(scene.QConfig(prioritized=False)))


def test_a_target_that_nothing_moves_is_refused_unless_somebody_may_move_it():
    class Unmoved(scene.QBuilder):
        update_targets = off_policy.OffPolicyBuilder.update_targets

        def update_target(self, networks, num_steps):
            raise AssertionError

    with pytest.raises(ValueError, match="Unmoved must define `update_targets`, .* target network 'target'"):
        make_parts_learner(Unmoved(scene.QConfig(prioritized=False)))

    class MovesIt(learners.LossLearner):
        def step(self):
            raise AssertionError

    class Moved(Unmoved):
        learner_class = MovesIt

    assert make_parts_learner(Moved(scene.QConfig(prioritized=False)))


@pytest.mark.parametrize(
    ("freezes_model", "modules", "num_trained"),
    [(True, ["q_network"], 1), (True, ["q_network", "model"], 3), (False, ["q_network", "model"], 3)],
)
def test_a_module_may_be_frozen_or_be_trained_by_the_loss_of_another(freezes_model, modules, num_trained):
    builder = PartsBuilder(scene.QConfig(prioritized=False))
    builder.freezes_model = freezes_model
    builder.objectives = {"q_network": off_policy.Objective(scene.q_loss, 0.1, modules=modules)}
    learner = make_parts_learner(builder)
    assert len(learner.updates.groups["q_network"].parameters()) == num_trained


def test_a_policy_that_shares_the_parameters_of_a_trained_module_needs_no_objective():
    class Shared(PartsBuilder):
        def make_networks(self, spec, generator):
            q_network, _, target = super().make_networks(spec, generator)
            return Parts(q_network, nn.Sequential(q_network), target)

        policy_variables = ("model",)

    assert make_parts_learner(Shared(scene.QConfig(prioritized=False))).get_variables(["model"])


@pytest.mark.parametrize("change", [{"n_step": 3}, {"discount": 0.5}])
@pytest.mark.promise("Replay made with another `n_step` or `discount` is refused by name")
def test_the_replay_of_a_run_with_another_n_step_or_discount_is_not_read(run, change):
    def train(config, num_env_steps, **options):
        return run(scene.QBuilder(config), lambda seed: scene.Doors(), num_env_steps, **options)

    checkpoint = next((train(scene.QConfig(), 6).directory / "checkpoints").glob("0*"))
    [(name, value)] = change.items()
    before = getattr(scene.QConfig(), name)
    with pytest.raises(replay.ReplayError, match=f"`{name}` {before:g} against {value:g}. Use the settings"):
        train(scene.QConfig(**change), 9, resume_from=checkpoint)
    assert train(scene.QConfig(), 9, resume_from=checkpoint).env_steps == 9


def test_tables_tell_what_their_items_were_made_with():
    config = off_policy.TransitionConfig(n_step=5, discount=0.9)
    (table,) = Transitions(config).make_replay_tables(SPEC)
    assert table.contents == {"n_step": 5, "discount": 0.9}
    (table,) = Sequences(off_policy.SequenceConfig(sequence_length=2)).make_replay_tables(SPEC)
    assert table.contents == {}  # sequences hold the environment's own rewards and discounts
