import dataclasses
import json
import shlex

import pytest

from minerva_acme import loggers, results
from minerva_acme.agents import registry
from minerva_acme.cli import parsing
from minerva_acme.runs import checkpointing, provenance, run_folder, run_names, run_results

SESSION = {"version": "0.1.0", "commit": "abc", "packages": {"torch": "2.13.0"}, "machine": "a laptop"}


@pytest.fixture
def make_run(tmp_path, monkeypatch):
    """Returns a function that makes the folder of a run, evaluated at 0, 100 and 200 steps."""
    monkeypatch.setattr(provenance, "describe", lambda: SESSION)

    def make(
        name, agent="mpo", preset="control", env="gymnasium/Pendulum-v1", seed=0, options=None, **changes
    ):
        directory = tmp_path / name
        config = dataclasses.replace(registry.AGENTS[agent].presets[preset], **changes)
        run_folder.RunDescription(
            agent=agent,
            environment=env,
            seed=seed,
            hyperparameters=dataclasses.asdict(config),
            options={"num_env_steps": 200, "replay": "auto", **(options or {})},
        ).write(directory)
        provenance.note(directory)
        with loggers.CSVLogger(directory, "evaluator") as logger:
            for steps in (0, 100, 200):
                logger.write(
                    {
                        "actor_steps": steps,
                        "episode_return": steps / 7 + seed,
                        "learner_steps": steps / 4,
                        "wall_seconds": steps / 10,
                    }
                )
        return directory

    return make


def test_a_run_becomes_rows_of_its_evaluations_and_of_what_it_had_cost_at_the_end(make_run):
    directory = make_run("a", seed=3)
    saver = checkpointing.Checkpointer(directory / "checkpoints")
    saver.save(5, {"random": ([-30.0, -50.0], [5, 5])})
    (experiment,) = run_results.collect([directory])
    place = "mpo_control", "Pendulum-v1", 3
    assert sorted(experiment.rows) == sorted(
        [
            results.Row(*place, "avg_return", 0, 3.0),
            results.Row(*place, "avg_return", 100, 100 / 7 + 3),
            results.Row(*place, "avg_return", 200, 200 / 7 + 3),
            results.Row(*place, "learner_steps", 200, 50.0),
            results.Row(*place, "wall_seconds", 200, 20.0),
            results.Row(*place, "random_return", 0, -40.0),
        ]
    )
    assert (experiment.updates_per_frame, experiment.action_repeat) == (0.25, 1)
    assert experiment.contexts == (results.Context(frozenset({place[1:]}), **SESSION),)


@pytest.mark.parametrize(
    ("env", "env_name", "action_repeat"),
    [
        ("dm_control/cartpole/swingup", "dm_control/cartpole/swingup", 1),
        ("dm_control/cartpole/swingup/repeat=4", "dm_control/cartpole/swingup", 4),
        ("dm_control/cartpole/swingup/pixels", "dm_control/cartpole/swingup/pixels", 2),
        (
            "dm_control/cartpole/swingup/pixels,size=64,repeat=8",
            "dm_control/cartpole/swingup/pixels,size=64",
            8,
        ),
        ("ALE/Pong-v5", "ALE/Pong-v5", 1),
    ],
)
def test_rows_count_frames_of_the_base_task(make_run, env, env_name, action_repeat):
    (experiment,) = run_results.collect([make_run("a", env=env)])
    assert experiment.action_repeat == action_repeat
    suffix = f"+repeat={action_repeat}" if action_repeat > 1 else ""
    assert experiment.exp_name == f"mpo_control{suffix}"
    assert {(row.exp_name, row.env_name) for row in experiment.rows} == {(experiment.exp_name, env_name)}
    assert [row.env_step for row in experiment.rows if row.metric == "avg_return"] == [
        decisions * action_repeat for decisions in (0, 100, 200)
    ]
    spent = {row.metric: row.env_step for row in experiment.rows if row.metric != "avg_return"}
    assert spent == dict.fromkeys(("learner_steps", "wall_seconds"), 200 * action_repeat)
    assert experiment.decisions == {env_name: 200}
    # Over its number of frames; 50 learner steps.
    assert experiment.updates_per_frame == pytest.approx(0.25 / action_repeat, rel=1e-2)
    # The command trains it again: its id and steps are those of the run.
    words = experiment.commands[env_name].split()
    assert words[words.index("--env") + 1] == env
    assert words[words.index("--num-env-steps") + 1] == "200"


@pytest.mark.parametrize(
    "named", [{"environment_factory": "m:make"}, {"unknown": {"environment": "a lambda"}}]
)
def test_where_code_makes_the_environment_the_repeat_is_unknown(make_run, named):
    directory = make_run("a", env="m:make")
    path = directory / run_folder.FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | named))
    (experiment,) = run_results.collect([directory])
    assert (experiment.action_repeat, experiment.exp_name) == (None, "mpo_control")
    assert max(row.env_step for row in experiment.rows) == 200


def test_runs_at_different_repeats_of_a_task_are_different_experiments_named_or_not(make_run):
    directories = [
        make_run(name, env=f"dm_control/cartpole/swingup{settings}", noise_repeat=3)
        for name, settings in (("a", ""), ("b", "/repeat=2"), ("c", "/repeat=4"))
    ]
    for name, expected in (
        ("", ["mpo_control+noise_repeat=3", *(f"mpo_control+noise_repeat=3+repeat={n}" for n in (2, 4))]),
        ("x", ["x", "x+repeat=2", "x+repeat=4"]),
    ):
        found = run_results.collect(directories, name=name)
        assert [one.exp_name for one in found] == expected
        assert {one.trainings[0] for one in found} == {("dm_control/cartpole/swingup", 0)}


def test_runs_of_one_experiment_are_together_and_others_apart(make_run):
    directories = [
        make_run("a"),
        make_run("b", seed=1),
        make_run("c", env="CartPole-v1"),
        make_run("d", critic_target="one_step"),
        make_run("e", agent="ppo", preset="default"),
    ]
    found = {one.exp_name: one.trainings for one in run_results.collect(directories)}
    assert found == {
        "mpo_control": [("Pendulum-v1", 0), ("Pendulum-v1", 1), ("CartPole-v1", 0)],
        "mpo_control+critic_target=one_step": [("Pendulum-v1", 0)],
        "ppo_default": [("Pendulum-v1", 0)],
    }


def test_the_command_of_a_run_trains_another_seed_likewise(make_run):
    changes = {"critic_target": "n_step", "policy_layer_sizes": (32, 16), "action_penalty": True}
    options = {"replay": "memory", "evaluation_period": 70}
    options |= {"demonstrations": "data/some", "demonstration_share": 0.25, "final_demonstration_share": 0.0}
    directory = make_run("a", options=options, **changes)
    (experiment,) = run_results.collect([directory])
    words = shlex.split(experiment.commands["Pendulum-v1"].replace("{seed}", "5"))
    command = parsing.parse(words[1:])
    config = dataclasses.replace(registry.AGENTS["mpo"].presets["control"], **changes)
    assert command.hyperparameters == config and command.preset == "control"
    assert command.run.seed == 5 and command.run.num_env_steps == 200
    assert {name: getattr(command.run, name) for name in options} == options


def test_a_run_of_an_older_version_has_what_is_known(make_run):
    directory = make_run("a")
    (directory / provenance.FILE).unlink()
    description = run_folder.read(directory)
    del description.hyperparameters["critic_target"]
    (experiment,) = run_results.collect([directory], name="old")
    assert experiment.contexts[0].version is None
    assert run_names.exp_name(description) == "mpo_control"


def test_a_run_can_be_named(make_run):
    (experiment,) = run_results.collect(
        [make_run("a"), make_run("b", agent="ppo", preset="default", seed=1)], name="x"
    )
    assert {row.exp_name for row in experiment.rows} == {"x"}


def test_runs_of_ones_own_agent_with_other_settings_are_no_one_experiment(make_run):
    directories = [make_run("a"), make_run("b", seed=1, discount=0.9)]
    for directory in directories:
        content = json.loads((directory / run_folder.FILE).read_text())
        content |= {"agent": "my_package:Mine", "config": "my_package:Config"}
        (directory / run_folder.FILE).write_text(json.dumps(content))
    message = "runs of Mine must have the same settings, got `discount` 0.99 in .*a and 0.9 in .*b.*--name"
    with pytest.raises(ValueError, match=message):
        run_results.collect(directories)
    assert len(run_results.collect(directories, name="both")) == 1


@pytest.mark.parametrize("options", [{"demonstrations": "data/a"}, {"from_run": "runs/a"}])
def test_runs_of_ones_own_agent_with_other_data_are_no_one_experiment(make_run, options):
    directories = [make_run("a"), make_run("b", seed=1, options=options)]
    for directory in directories:
        content = json.loads((directory / run_folder.FILE).read_text())
        (directory / run_folder.FILE).write_text(json.dumps(content | {"agent": "m:Mine", "config": "m:C"}))
    with pytest.raises(ValueError, match=f"must have the same settings, got `{next(iter(options))}`"):
        run_results.collect(directories)


def test_a_setting_that_is_no_number_is_the_runs_own(make_run):
    directory = make_run("a")
    content = json.loads((directory / run_folder.FILE).read_text())
    content |= {"agent": "m:Mine", "config": "m:C", "hyperparameters": {"clip": float("nan")}}
    (directory / run_folder.FILE).write_text(json.dumps(content))
    (experiment,) = run_results.collect([directory])
    assert len(experiment.trainings) == 1


def test_runs_that_stop_at_other_returns_are_no_one_experiment(make_run):
    directories = [make_run("a"), make_run("b", seed=1, options={"stop_at": 5.0})]
    with pytest.raises(ValueError, match="must have the same settings, got `stop_at` None in"):
        run_results.collect(directories)


def test_two_runs_of_one_seed_are_refused(make_run):
    with pytest.raises(ValueError, match="a and .*b are both mpo_control on Pendulum-v1 with seed 0.*--name"):
        run_results.collect([make_run("a"), make_run("b")])


def test_a_run_without_an_evaluation_of_training_is_refused(make_run):
    directory = make_run("a")
    (directory / "evaluator.csv").write_text("actor_steps,episode_return\n0,1\n")
    with pytest.raises(ValueError, match="a has no evaluation after its first step yet"):
        run_results.collect([directory])


@pytest.mark.parametrize("rows", ["actor_steps,episode_return\n0,1\n", None])
def test_a_run_without_an_evaluation_of_training_is_left_out_of_several(make_run, rows, caplog):
    failed, trained = make_run("a"), make_run("b")
    (failed / "evaluator.csv").unlink()
    if rows:
        (failed / "evaluator.csv").write_text(rows)
    (experiment,) = run_results.collect([failed, trained])
    assert experiment == run_results.collect([trained])[0]
    (record,) = caplog.records
    assert record.levelname == "WARNING" and f"{failed} has no evaluation" in record.getMessage()
    assert record.getMessage().endswith("Until then it is left out.")


def test_agents_of_others_are_named_by_their_builder(make_run):
    description = run_folder.RunDescription(
        agent="my_package.sac:SACBuilder",
        environment="a",
        seed=0,
        hyperparameters={"rate": 0.1},
        config="m:C",
    )
    assert run_names.exp_name(description) == "SACBuilder"
    assert "--rate 0.1" in run_results._command(description)
    repeated = dataclasses.replace(description, environment="dm_control/cheetah/run/repeat=2")
    assert run_names.exp_name(repeated) == "SACBuilder+repeat=2"
