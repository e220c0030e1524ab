"""Schedules of a run without environment steps end with its learner steps."""

import pytest

from minerva_acme import experiments, learners, testing
from minerva_acme.runs import checkpointing

from . import table
from . import transition_scene as scene

NUM_STEPS = 5


def offline(builder_class, batch, batch_size, made):
    """The builder's class with one batch for its dataset; the learners that it makes are noted in `made`."""

    class Offline(builder_class):
        def make_dataset(self, client, spec, device):
            return testing.RepeatedBatch(batch, batch_size)

        def make_learner(self, parts):
            made.append(super().make_learner(parts))
            return made[-1]

    return Offline


def train(run, builder, spec, *callbacks, directory=None, **options):
    def make_environment(seed):
        return testing.FakeEnvironment(
            observation_spec=spec.observations, action_spec=spec.actions, seed=seed, episode_length=2
        )

    options |= {} if directory is None else {"directory": directory}
    options = {"num_env_steps": 0, "num_learner_steps": NUM_STEPS, "replay": "memory", **options}
    num_env_steps = options.pop("num_env_steps")
    return run(builder, make_environment, num_env_steps, *callbacks, **options)


def stop_at(step):
    def callback(progress):
        if progress.learner_steps == step:
            raise experiments.StopRun("enough")

    return callback


ANNEALED = {"mpo": {"final_learning_rate": 0.0}, "ppo": {"anneal_learning_rate": True}}


@pytest.fixture(params=ANNEALED)
def annealed(request):
    """Makes a builder of an agent whose learning rates fall to 0, and says which optimisers these are of."""
    scene = table.Scene(request.param, ANNEALED[request.param])
    config, batch = scene.builder().config, scene.make_batch()
    names = ["policy", "critic"] if scene.name == "mpo" else ["network"]
    return scene, lambda made: offline(type(scene.builder()), batch, 4, made)(config), names


def rates_after_each_step(learner, names):
    groups = [group for name in names for group in learner.updates.groups[name].optimizer.param_groups]
    return [group["lr"] for group in groups]


def decay_of(learner):
    (decay,) = (part for part in learner._parts if isinstance(part, learners.LinearDecay))
    return decay


def test_learning_rates_of_an_offline_run_fall_to_their_end_in_its_steps(run, annealed):
    agent, make, names = annealed
    made, seen = [], {}

    def note(progress):
        if progress.phase == "train":
            seen[progress.learner_steps] = rates_after_each_step(made[0], names)

    result = train(run, make(made), agent.spec, note)
    assert result.learner_steps == NUM_STEPS and sorted(seen) == [1, 2, 3, 4, 5]
    first = seen[1]  # the whole rates: no step had been made
    for step, rates in seen.items():
        assert rates == pytest.approx([rate * (1 - (step - 1) / NUM_STEPS) for rate in first])
    decay_of(made[0]).set(NUM_STEPS)  # for the step behind the run's last
    assert rates_after_each_step(made[0], names) == [0.0] * len(first)


def test_an_offline_run_that_is_stopped_and_resumed_is_the_uninterrupted_one(run, annealed, tmp_path):
    agent, make, _ = annealed
    states = []
    for name, callbacks in (("straight", [()]), ("stopped", [(stop_at(2),), ()])):
        for each in callbacks:
            train(run, make([]), agent.spec, *each, directory=tmp_path / name)
        states.append(checkpointing.load_state(checkpointing.find(tmp_path / name))["learner"])
    testing.assert_nests_equal(states[0], states[1], "A resumed offline run must be the uninterrupted one.")


def test_beta_of_an_offline_run_is_1_at_its_end_also_once_it_was_resumed(run, tmp_path):
    agent = scene.AGENTS["sac"]
    builder = agent.make(prioritized=True, importance_exponent=0.4)
    made, states = [], []
    batch = scene.make_batch(agent.spec)
    for folder, callbacks in (("straight", [()]), ("stopped", [(stop_at(2),), ()])):
        for each in callbacks:
            own = offline(agent.builder, batch, 8, made)(builder.config)
            train(run, own, agent.spec, *each, directory=tmp_path / folder)
        states.append(checkpointing.load_state(checkpointing.find(tmp_path / folder))["learner"])
    testing.assert_nests_equal(states[0], states[1], "A resumed offline run must be the uninterrupted one.")
    for learner in made:
        beta = learner._priorities._importance_exponent
        assert [beta(step) for step in (0, NUM_STEPS)] == [0.4, 1.0]


def test_beta_of_a_played_run_is_1_after_its_learner_steps(run):
    agent, made = scene.AGENTS["sac"], []

    class Noted(agent.builder):
        def make_learner(self, parts):
            made.append((round(1 / parts.share_done(1)), super().make_learner(parts)))
            return made[-1][1]

    builder = Noted(agent.make(prioritized=True, importance_exponent=0.4).config)
    result = train(run, builder, agent.spec, num_env_steps=20, num_learner_steps=0)
    [(num_learner_steps, learner)] = made
    assert num_learner_steps == builder.learner_steps_due(20) and result.learner_steps > 0
    assert learner._priorities._importance_exponent(num_learner_steps) == 1.0
