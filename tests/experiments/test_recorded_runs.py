"""Runs that learn from recorded episodes alone, and runs that start from the weights of another one."""

import contextlib
import csv
import dataclasses
import itertools
import json
import shutil

import numpy as np
import pytest
import torch

from minerva_acme import datasets, experiments, plotting, runs, specs, testing
from minerva_acme.agents import bc, crr, iql, mpo, td3
from minerva_acme.plotting import run_figures
from minerva_acme.runs import checkpointing, recorded_environment, run_folder, run_results
from tests.experiments import test_exact_resume as exact

NUM_STEPS = 6
SMALL = {"policy_layer_sizes": (8,), "batch_size": 4, "prioritized": True}
TD3_BC = td3.TD3Builder(td3.TD3Config(**SMALL, critic_layer_sizes=(8,), bc_alpha=2.5))
BUILDERS = {
    "bc": bc.BCBuilder(bc.BCConfig(policy_layer_sizes=(8,), batch_size=4)),
    "crr": crr.CRRBuilder(crr.CRRConfig(**SMALL, critic_layer_sizes=(8,))),
    "iql": iql.IQLBuilder(iql.IQLConfig(**SMALL, critic_layer_sizes=(8,))),
    "td3": TD3_BC,
    "mpo": exact.MPO_OF_TODAY,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The folder of 20 episodes of random actions, of which the first half has log-probabilities."""
    random = np.random.default_rng(0)
    environment, recorded = exact.Wanderer(0), []
    for index in range(20):
        timestep = environment.reset()
        steps = [(None, timestep)]
        while not timestep.last():
            action = random.uniform(-1.0, 1.0, 2).astype(np.float32)
            timestep = environment.step(action)
            extras = {"log_prob": np.float32(-1.4), "raw_action": action} if index < 10 else {}
            steps.append((action, timestep, *[extras] * bool(extras)))
        recorded.append(steps)
    folder = tmp_path_factory.mktemp("recorded") / "data"
    datasets.write(folder, recorded, specs.make_environment_spec(environment))
    return folder


def make_config(directory, builder, data, **options):
    return experiments.ExperimentConfig(
        **{
            "builder": builder,
            "environment_factory": exact.Wanderer,
            "directory": directory,
            "num_env_steps": 0,
            "num_learner_steps": NUM_STEPS,
            "dataset": data,
            "evaluation_period": 3,
            "evaluation_episodes": 1,
            "checkpoint_period": 2,
            "log_period_seconds": 0.0,
            "tensorboard": False,
            **options,
        }
    )


@pytest.fixture(scope="module")
def learned(data, tmp_path_factory):
    """The folder of a run of each of two agents, by its name."""
    folder = tmp_path_factory.mktemp("learned")
    for name in ("bc", "crr"):
        experiments.run_experiment(make_config(folder / name, BUILDERS[name], data))
    return folder


def stop_at(step):
    def callback(progress):
        if progress.learner_steps == step:
            raise experiments.StopRun("enough")

    return callback


def state_of(directory):
    """All that a later step depends on, but for the times."""
    state = checkpointing.load_state(checkpointing.find(directory))
    names = ("learner", "demonstrations", "generators", "learned")
    return {name: state[name] for name in names}


def check_that_a_stopped_run_becomes_the_run_that_was_not(tmp_path, builder, data, **options):
    for folder, callbacks in (("straight", [()]), ("stopped", [(stop_at(3),), (stop_at(4),), ()])):
        for each in callbacks:
            experiments.run_experiment(make_config(tmp_path / folder, builder, data, **options), *each)
    states = [state_of(tmp_path / folder) for folder in ("straight", "stopped")]
    testing.assert_nests_equal(*states, "A resumed run must be the uninterrupted one.")
    assert states[0]["learned"] == NUM_STEPS
    assert exact.rows(tmp_path / "straight", "learner") == exact.rows(tmp_path / "stopped", "learner")


@pytest.mark.parametrize("name", ["bc", "mpo"])  # transitions and sequences
@pytest.mark.promise("A run on recorded episodes resumes at its place in the data")
def test_a_run_that_is_stopped_and_resumed_goes_on_where_it_was_in_the_data(name, data, tmp_path):
    check_that_a_stopped_run_becomes_the_run_that_was_not(tmp_path, BUILDERS[name], data)


def test_batches_hold_the_data_of_the_file_and_evaluations_alone_are_played(data, tmp_path):
    seen, played = [], []

    class Noted(crr.CRRBuilder):
        def make_dataset(self, client, spec, device):
            for sample in super().make_dataset(client, spec, device):
                seen.append(sample.data)
                yield sample

    class Counted(exact.Wanderer):
        def step(self, action):
            played.append(action)
            return super().step(action)

    config = make_config(
        tmp_path, Noted(BUILDERS["crr"].config), data, environment_factory=Counted, evaluation_period=0
    )
    result = experiments.run_experiment(config)
    assert (result.env_steps, result.learner_steps, len(seen)) == (0, NUM_STEPS, NUM_STEPS)
    episodes = [len(evaluation.returns) for evaluation in (result.random, result.before, result.after)]
    assert episodes == [1, 1, 1] and len(played) < 100
    known = {action.tobytes() for episode in datasets.read(data) for action in episode.action}
    assert {action.numpy().tobytes() for batch in seen for action in batch.action} <= known


def test_a_checkpoint_holds_where_the_data_is_and_not_the_data(data, learned):
    checkpoint = checkpointing.find(learned / "bc")
    state = checkpointing.load_state(checkpoint)["demonstrations"]
    assert (state["path"], state["checksum"]) == (str(data), datasets.read(data).checksum())
    with np.load(checkpointing.replay_folder(checkpoint) / "memory.npz") as arrays:
        assert not [name for name in arrays.files if name.startswith("rows/") and arrays[name].size > 100]


def test_data_that_has_changed_is_told_when_a_run_is_resumed(data, tmp_path):
    copy = tmp_path / "data"
    shutil.copytree(data, copy)
    config = make_config(tmp_path / "run", BUILDERS["bc"], copy)
    experiments.run_experiment(config, stop_at(2))
    shutil.rmtree(copy)
    datasets.write(copy, list(datasets.read(data))[:5], exact.Wanderer(0)._specs)
    with pytest.raises(ValueError, match="must have the checksum"):
        experiments.run_experiment(config)
    shutil.copytree(data, tmp_path / "moved")
    experiments.run_experiment(dataclasses.replace(config, dataset=tmp_path / "moved"))


@pytest.mark.parametrize(
    ("builder", "name"), [(exact.make_ppo(1), "PPO"), (exact.make_vmpo(1), "V-MPO")], ids=["ppo", "vmpo"]
)
def test_agents_that_learn_from_each_step_once_refuse_by_name(builder, name, data, tmp_path):
    with pytest.raises(ValueError, match=f"{name} cannot learn from recorded episodes .* learns once"):
        experiments.run_experiment(make_config(tmp_path / "run", builder, data))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", BUILDERS)
def test_an_agent_that_learns_from_its_own_play_instead_of_data_says_so(name, tmp_path, caplog):
    options = {"dataset": None, "num_env_steps": 5, "num_learner_steps": 0}
    experiments.run_experiment(make_config(tmp_path, BUILDERS[name], None, **options))
    assert ("learns from recorded episodes, but is given none" in caplog.text) == (name != "mpo")


def test_an_agent_with_a_dataset_of_its_own_and_no_play_is_not_said_to_play(data, tmp_path, caplog):
    builder, batches = BUILDERS["crr"], []

    class Own(type(builder)):
        def make_dataset(self, client, spec, device):
            yield from itertools.repeat(batches[0])

    class Taken(type(builder)):
        def make_dataset(self, client, spec, device):
            dataset = super().make_dataset(client, spec, device)
            batches.append(next(dataset))
            return dataset

    options = {"num_env_steps": 0, "num_learner_steps": 1}
    experiments.run_experiment(make_config(tmp_path / "taken", Taken(builder.config), data, **options))
    experiments.run_experiment(
        make_config(tmp_path / "own", Own(builder.config), None, dataset=None, **options)
    )
    assert "learns from its own play" not in caplog.text.replace("\n", " ")


def test_data_in_the_units_of_the_bare_environment_gives_the_same_weights(data, tmp_path):
    spec = specs.make_environment_spec(exact.Wanderer(0))
    wide = spec._replace(
        observations=specs.BoundedArray((2,), np.float32, -3.0, 3.0),
        actions=specs.BoundedArray((2,), np.float32, -2.0, 2.0),
    )
    learned = []
    for name, each, scale in (("own", spec, 1), ("bare", wide, 2)):
        # Few enough digits for rounding to be the same in both units.
        actions = ((np.round(episode.action * 64) / 64, episode) for episode in datasets.read(data))
        episodes = [episode._replace(action=scale * action, extras={}) for action, episode in actions]
        datasets.write(tmp_path / name, episodes, each)
        experiments.run_experiment(
            make_config(tmp_path / f"run_{name}", BUILDERS["bc"], tmp_path / name, evaluation_episodes=0)
        )
        learned.append(state_of(tmp_path / f"run_{name}")["learner"]["modules"])
    testing.assert_nests_equal(*learned)


def test_data_of_another_environment_is_refused(data, tmp_path):
    config = make_config(tmp_path, BUILDERS["td3"], data, environment_factory=exact.make_reacher)
    with pytest.raises(ValueError, match="`observation` of the data must be .* got Array"):
        experiments.run_experiment(config)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_env_steps": 5}, "`dataset` must be None in a run that makes environment steps, here 5"),
        ({"evaluation_episodes": 0, "stop_at": 1.0}, "`stop_at` must be None without eval"),
        ({"evaluation_episodes": 0, "evaluation_video": True}, "`evaluation_video` must be False without"),
        ({"demonstrations": "data"}, "`demonstrations` must be None in a run that makes no environment st"),
    ],
)
def test_options_that_exclude_each_other_are_refused(options, message):
    plain = {
        "num_env_steps": 0,
        "num_learner_steps": 0 if "num_env_steps" in options else 5,
        "dataset": "data",
    }
    with pytest.raises(ValueError, match=message):
        experiments.RunOptions(**{**plain, **options})


def test_a_folder_is_text_or_a_path_and_kept_as_text(tmp_path):
    plain = {"num_env_steps": 0, "num_learner_steps": 5}
    as_paths = experiments.RunOptions(**plain, dataset=tmp_path / "data", from_run=tmp_path)
    as_text = experiments.RunOptions(**plain, dataset=str(tmp_path / "data"), from_run=str(tmp_path))
    assert as_paths == as_text
    assert as_paths.dataset == str(tmp_path / "data")  # the run's description is JSON
    with pytest.raises(ValueError, match="`dataset` must be a path or None, got 3"):
        experiments.RunOptions(**plain, dataset=3)


# Without an environment.


@pytest.fixture(scope="module")
def unplayed(data, tmp_path_factory):
    """The folder of a run that had no environment, and its result."""
    folder = tmp_path_factory.mktemp("recorded") / "unplayed"
    config = make_config(
        folder,
        BUILDERS["bc"],
        data,
        environment_factory=recorded_environment.make_factory(data),
        evaluation_episodes=0,
    )
    return folder, experiments.run_experiment(config)


def test_without_an_environment_the_data_says_what_observations_and_actions_are(unplayed, data):
    folder, result = unplayed
    assert (result.learner_steps, result.random, result.before, result.after) == (NUM_STEPS, None, None, None)
    description = run_folder.read(folder)
    assert description.environment == f"recorded/{data}" and not description.unknown
    expected = specs.make_environment_spec(exact.Wanderer(0))
    assert description.make_specs().observations == expected.observations
    assert description.make_specs().actions == expected.actions
    assert not (folder / "evaluator.csv").exists() or not exact.rows(folder, "evaluator")


def test_what_was_recorded_cannot_be_played(unplayed):
    folder, _ = unplayed
    environment = run_folder.read(folder).make_environment_factory()(0)
    with pytest.raises(ValueError, match="must be given to play in.* --env CartPole-v1; .* --episodes 0"):
        environment.reset()


@pytest.mark.parametrize("is_older", [False, True], ids=["run of today", "older run"])
def test_the_tasks_actions_are_not_those_that_were_recorded(is_older, unplayed, tmp_path):
    folder = shutil.copytree(unplayed[0], tmp_path / "unplayed", symlinks=True)
    content = json.loads((folder / "run.json").read_text())
    assert "task_actions" not in content["environment_specs"]
    if is_older:
        content["environment_specs"]["task_actions"] = content["environment_specs"]["actions"]
        (folder / "run.json").write_text(json.dumps(content))
    with pytest.raises(
        ValueError, match="are recorded episodes, whose actions are the agent's.*Pass the env"
    ):
        runs.load_policy(folder, actions="task")
    with pytest.raises(ValueError, match="with `--actions agent --episodes 0`"):
        runs.export_policy(folder, tmp_path / "x.pt2", format="pt2", actions="task")
    with contextlib.closing(exact.Wanderer(0)) as environment:
        assert runs.load_policy(folder, environment=environment, actions="task")


# What becomes of the results.


def test_the_curve_of_a_run_without_environment_steps_is_by_learner_steps(data, learned, tmp_path):
    options = {"metric": "evaluator/episode_return", "group": "agent", "published": (), "aggregate": False}
    content = run_figures.read_runs([learned / "crr"], x="steps", **options)
    ((group,),) = [panel.groups for panel in content.panels]
    assert content.x_label == "Learner steps" and group.mean.x.tolist() == [0, 3, NUM_STEPS]
    assert plotting.make_caption(*content)
    experiments.run_experiment(
        make_config(
            tmp_path / "played", BUILDERS["crr"], data, dataset=None, num_learner_steps=0, num_env_steps=20
        )
    )
    both = [learned / "crr", tmp_path / "played"]
    with pytest.raises(ValueError, match="`x` must be updates or wall for runs of which some make no env"):
        run_figures.read_runs(both, x="steps", **options)
    assert run_figures.read_runs([tmp_path / "played"], x="steps", **options).x_label != "Learner steps"


def test_a_figure_tells_runs_on_other_data_apart(data, learned, tmp_path):
    other = shutil.copytree(data, tmp_path / "other")
    experiments.run_experiment(make_config(tmp_path / "two", BUILDERS["crr"], other))
    options = {"metric": "evaluator/episode_return", "published": (), "aggregate": False, "x": "steps"}
    both, notes = [learned / "crr", tmp_path / "two"], []
    (panel,) = run_figures.read_runs(both, group="agent", note=notes.append, **options).panels
    assert len(panel.groups) == 1
    assert any("differ in dataset; --group agent,dataset gives each its own curve" in note for note in notes)
    (panel,) = run_figures.read_runs(both, group="agent,dataset", **options).panels
    assert len(panel.groups) == 2


def test_rows_of_results_count_learner_steps_and_say_what_data_they_are_of(data, learned):
    (made,) = run_results.collect([learned / "crr"])
    assert "+dataset=" in made.exp_name
    with open(learned / "crr" / "evaluator.csv", newline="") as file:
        logged = {int(row["learner_steps"]): float(row["episode_return"]) for row in csv.DictReader(file)}
    found = {row.env_step: row.value for row in made.rows if row.metric == "avg_return"}
    assert found == pytest.approx(logged) and sorted(found) == [0, 3, NUM_STEPS]
    (command,) = made.commands.values()
    assert f"--dataset {data}" in command and f"--num-learner-steps {NUM_STEPS}" in command


# From another run's weights.


def test_a_run_goes_on_online_from_the_weights_of_one_on_data(data, tmp_path):
    experiments.run_experiment(make_config(tmp_path / "offline", TD3_BC, data))
    before = checkpointing.load_state(checkpointing.find(tmp_path / "offline"))["learner"]
    online = td3.TD3Builder(
        dataclasses.replace(TD3_BC.config, bc_alpha=None, min_replay_size=5, samples_per_insert=2.0)
    )
    made = []

    class Noted(td3.TD3Builder):
        def make_learner(self, parts):
            made.append(super().make_learner(parts))
            return made[-1]

    def look(progress):
        if progress.phase == "evaluate" and not progress.env_steps:
            seen.append(made[0].save())

    seen = []
    config = make_config(
        tmp_path / "online",
        Noted(online.config),
        data,
        dataset=None,
        num_learner_steps=0,
        num_env_steps=20,
        from_run=tmp_path / "offline",
    )
    result = experiments.run_experiment(config, look)
    testing.assert_nests_equal(seen[0]["modules"], before["modules"])
    assert seen[0]["num_steps"] == 0 and not seen[0]["updates"]["optimizers"]["policy"]["state"]
    assert result.learner_steps > 0
    after = checkpointing.load_state(checkpointing.find(tmp_path / "online"))["learner"]["modules"]
    assert not torch.equal(after["policy"]["policy.1.bias"], before["modules"]["policy"]["policy.1.bias"])
    # Once it has begun it goes on from its own checkpoints, whatever became of the other run.
    shutil.rmtree(tmp_path / "offline")
    longer = experiments.run_experiment(dataclasses.replace(config, num_env_steps=30))
    assert longer.env_steps == 30


def test_mpo_and_its_multipliers_start_from_a_run_too(data, tmp_path):
    experiments.run_experiment(make_config(tmp_path / "first", BUILDERS["mpo"], data))
    config = make_config(
        tmp_path / "second", BUILDERS["mpo"], data, num_learner_steps=1, from_run=tmp_path / "first"
    )
    experiments.run_experiment(config)
    first, second = (
        checkpointing.load_state(checkpointing.find(tmp_path / name))["learner"]
        for name in ("first", "second")
    )
    assert second["num_steps"] == 1
    for name, dual in first["modules"]["duals"].items():
        assert (second["modules"]["duals"][name] - dual).abs().max() < 0.02, name  # a step from there


def test_a_policy_that_starts_from_a_run_acts_by_its_weights(data, learned, tmp_path):
    config = make_config(
        tmp_path / "second",
        BUILDERS["bc"],
        data,
        from_run=learned / "bc",
        # The evaluation before training has the same episodes whatever the run.
        evaluation_environment_factory=lambda seed: exact.Wanderer(3),
    )
    other = dataclasses.replace(config, directory=tmp_path / "third", from_run=None, num_learner_steps=1)
    second, third = experiments.run_experiment(config), experiments.run_experiment(other)
    assert second.before.returns != third.before.returns


def started(config):
    """Returns the modules of a run's learner before its first step, and the number of items in its replay."""
    made, seen = [], []

    class Noted(type(config.builder)):
        def make_learner(self, parts):
            made[:] = super().make_learner(parts), parts.client
            return made[0]

    def look(progress):
        if not seen and progress.phase == "evaluate":
            seen[:] = made[0].save()["modules"], made[1].table_info("replay").size

    experiments.run_experiment(dataclasses.replace(config, builder=Noted(config.builder.config)), look)
    return seen


def learner_of(directory):
    return checkpointing.load_state(checkpointing.find(directory))["learner"]


def test_a_target_network_that_is_not_there_begins_as_the_one_that_it_follows(
    data, learned, tmp_path, caplog
):
    config = make_config(tmp_path, BUILDERS["crr"], data, from_run=learned / "bc", num_learner_steps=1)
    modules, _ = started(config)
    policy = learner_of(learned / "bc")["modules"]["policy"]
    testing.assert_nests_equal(modules["policy"], policy)
    testing.assert_nests_equal(modules["target_policy"], policy)
    testing.assert_nests_equal(modules["critic"], modules["target_critic"])
    assert caplog.messages[-1].splitlines()[1:] == [
        "  policy: taken",
        "  critic: left, since it is missing there",
        "  target_policy: taken from the policy",
        "  target_critic: left, since it is missing there",
    ]


def test_parts_that_fit_are_taken_and_what_only_the_other_run_had_is_named(data, tmp_path, caplog):
    once = {"num_learner_steps": 1, "evaluation_episodes": 1}
    first = dataclasses.replace(BUILDERS["mpo"].config, critic_target="n_step")
    experiments.run_experiment(make_config(tmp_path / "first", mpo.MPOBuilder(first), data, **once))
    values = {"vmin": -100.0, "vmax": 0.0, "num_bins": 10}
    second = dataclasses.replace(first, critic_head="hl_gauss", **values)
    config = make_config(
        tmp_path / "second", mpo.MPOBuilder(second), data, from_run=tmp_path / "first", **once
    )
    modules, _ = started(config)
    before = learner_of(tmp_path / "first")["modules"]
    critic = {name: value for name, value in before["critic"].items() if not name.startswith("head.")}
    testing.assert_nests_equal({name: modules["critic"][name] for name in critic}, critic)
    testing.assert_nests_equal(modules["duals"], before["duals"])
    assert modules["critic"]["head.weight"].shape == (10, 8)
    lines = caplog.messages[-1].splitlines()
    assert "  policy: taken" in lines and "  critic.torso: taken" in lines
    assert "  critic.head: left, since 'head.weight' is (1, 8) there, (10, 8) here" in lines

    # A head behind another torso is of no use, though its shape is the same.
    other = mpo.MPOBuilder(dataclasses.replace(first, critic_layer_sizes=(9, 8)))
    modules, _ = started(make_config(tmp_path / "other", other, data, from_run=tmp_path / "first", **once))
    assert modules["critic"]["head.weight"].shape == before["critic"]["head.weight"].shape
    assert not torch.equal(modules["critic"]["head.weight"], before["critic"]["head.weight"])
    assert "\n  critic.head: left, since it comes behind torso\n" in caplog.text

    config = make_config(
        tmp_path / "third", BUILDERS["bc"], data, from_run=tmp_path / "first", num_learner_steps=1
    )
    with pytest.raises(ValueError, match="but none does .*; critic: left, since it is missing here; "):
        experiments.run_experiment(config)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            bc.BCConfig(policy_layer_sizes=(9,), batch_size=4),
            r"\(policy: left, since 'policy.torso.0.weight' is \(8, 2\) there, \(9, 2\) here",
        ),
        (
            bc.BCConfig(policy_layer_sizes=(8,), batch_size=4, loss="squared_error"),
            r"\(policy: left, since 'policy.0.0.weight' is missing there, \(8, 2\) here",
        ),
    ],
)
def test_a_run_of_which_nothing_fits_is_refused_and_the_folder_stays_free(
    config, message, data, learned, tmp_path
):
    config = make_config(tmp_path, bc.BCBuilder(config), data, from_run=learned / "bc", num_learner_steps=1)
    with pytest.raises(ValueError, match=message):
        experiments.run_experiment(config)
    assert experiments.run_experiment(dataclasses.replace(config, from_run=None)).learner_steps == 1


@pytest.mark.parametrize("critic_head", ["c51", "hl_gauss"])
def test_a_critic_of_other_returns_is_left(critic_head, data, tmp_path, caplog):
    returns = {"vmin": -100.0, "vmax": 0.0, "num_bins": 10}
    first = dataclasses.replace(TD3_BC.config, critic_head=critic_head, **returns)
    once = {"num_learner_steps": 1, "evaluation_episodes": 1}
    experiments.run_experiment(make_config(tmp_path / "first", td3.TD3Builder(first), data, **once))
    second = td3.TD3Builder(dataclasses.replace(first, vmin=-2000.0))
    config = make_config(tmp_path / "second", second, data, from_run=tmp_path / "first", **once)
    modules, _ = started(config)
    before = learner_of(tmp_path / "first")["modules"]
    testing.assert_nests_equal(modules["policy"], before["policy"])
    assert modules["critic"].keys() == before["critic"].keys()
    assert not any(
        torch.equal(value, before["critic"][name])
        for name, value in modules["critic"].items()
        if name.endswith("weight") and "torso.1" not in name  # layer norm
    )
    assert "' is from -100 to 0 there, from -2000 to 0 here" in caplog.text


PLAYING = {"dataset": None, "num_learner_steps": 0, "num_env_steps": 12, "replay": "memory"}
PLAYS = dataclasses.replace(TD3_BC.config, bc_alpha=None, min_replay_size=5, samples_per_insert=1.0)


@pytest.fixture(scope="module")
def played(data, tmp_path_factory):
    """The folder of a run that has played."""
    folder = tmp_path_factory.mktemp("played")
    experiments.run_experiment(make_config(folder, td3.TD3Builder(PLAYS), data, **PLAYING))
    return folder


@pytest.mark.parametrize(
    ("changes", "environment", "num_items", "message"),
    [
        ({}, exact.Wanderer, True, "\n  replay: taken"),
        ({"max_replay_size": 99}, exact.Wanderer, False, "replay begins empty: Table 'replay'"),
        ({}, lambda seed: exact.Wanderer(seed), False, "replay begins empty: the items of"),
    ],
)
def test_replay_is_taken_if_tables_and_environment_are_the_same(
    changes, environment, num_items, message, data, played, tmp_path, caplog
):
    caplog.set_level("INFO")
    builder = td3.TD3Builder(dataclasses.replace(PLAYS, **changes))
    config = make_config(tmp_path, builder, data, **PLAYING, from_run=played, environment_factory=environment)
    _, size = started(config)
    assert bool(size) == num_items
    assert message in caplog.text
    _, resumed = started(dataclasses.replace(config, num_env_steps=14))
    assert resumed > size


def test_weights_that_act_in_other_bounds_are_refused(data, learned, tmp_path):
    class Wide(exact.Wanderer):
        def action_spec(self):
            return self._specs.actions.replace(minimum=-2.0, maximum=2.0)

    changes = {"from_run": str(learned / "bc"), "environment_factory": Wide}
    with pytest.raises(ValueError, match=r"must be .* in \[-1, 1\], as .*bc has learned them, got .*-2, 2"):
        experiments.run_experiment(
            make_config(
                tmp_path / "second",
                BUILDERS["bc"],
                data,
                dataset=None,
                num_learner_steps=0,
                **changes,
                num_env_steps=9,
            )
        )


def test_a_run_that_is_not_there_and_a_learner_without_modules_are_told(data, learned, tmp_path):
    config = make_config(tmp_path / "run", BUILDERS["bc"], data, from_run=tmp_path / "nowhere")
    with pytest.raises(ValueError, match="nowhere"):
        experiments.run_experiment(config)

    class Opaque(bc.BCBuilder):
        def make_learner(self, parts):
            learner = super().make_learner(parts)
            learner.save = lambda: {"secret": 1}
            return learner

    config = make_config(tmp_path / "second", Opaque(BUILDERS["bc"].config), data, from_run=learned / "bc")
    with pytest.raises(ValueError, match="learner of this agent must save its networks as `modules`"):
        experiments.run_experiment(config)


def test_mpo_learns_from_data_of_which_half_has_no_log_probability(data, tmp_path):
    builder = mpo.MPOBuilder(dataclasses.replace(exact.MPO.config, critic_target="retrace"))
    result = experiments.run_experiment(make_config(tmp_path, builder, data))
    assert result.learner_steps == NUM_STEPS
    assert [float(row["skipped_batches"]) for row in exact.rows(tmp_path, "learner")] == [0.0] * NUM_STEPS
