import csv
import dataclasses
import json
import os
import re
import runpy
import shutil
import signal
import sys

import pytest
import tyro

from minerva_acme import experiments, runs
from minerva_acme.agents import registry
from minerva_acme.cli import choices, commands, flags, main, output, parsing, report, training, video
from minerva_acme.runs import checkpointing, run_folder, run_lock

cli = sys.modules["minerva_acme.cli.main"]


@pytest.mark.parametrize(("best_at", "is_shown"), [(40, True), (60, False)])
def test_the_best_evaluation_is_shown_where_it_is_not_the_last(tmp_path, capsys, best_at, is_shown):
    def evaluation(value):
        return runs.Evaluation(returns=(value, value), lengths=(10, 10))

    result = experiments.ExperimentResult(
        directory=tmp_path,
        env_steps=60,
        learner_steps=6,
        random=evaluation(1.0),
        before=evaluation(2.0),
        after=evaluation(3.0),
        best=(best_at, evaluation(4.0)),
        interrupted_by=None,
    )
    description = run_folder.RunDescription(agent="ppo", environment="a:B", seed=0, hyperparameters={})
    training._show(output.Console(), result, description, "minerva resume here")
    out = " ".join(capsys.readouterr().out.split())
    assert ("best checkpoint, after 40 steps │ 4.0 ± 0.0" in out) == is_shown
    assert f"To evaluate it again: minerva eval {tmp_path} --import-code" in out  # since `a:B` is code


def test_training_shows_what_was_learned_and_where_it_lies(tmp_path, train, capsys):
    assert train(tmp_path / "run") == 0
    out = " ".join(capsys.readouterr().out.split())
    for words in (
        "random actions",
        "before training",
        "after 60 environment",
        f"minerva eval {tmp_path / 'run'}",
    ):
        assert words in out, out
    description = json.loads((tmp_path / "run" / "run.json").read_text())
    assert description["environment"] == "Pendulum-v1"
    assert description["hyperparameters"]["critic_layer_sizes"] == [8, 8]
    assert description["options"]["replay"] == "memory"
    assert not (tmp_path / "run" / "tensorboard").exists()  # --log csv


def test_a_trained_run_can_be_evaluated(trained, call):
    status, out, _ = call("eval", trained, "--episodes", 2)
    assert status == 0
    assert out.count("episode ") == 2
    assert "mpo on Pendulum-v1, 60 environment steps: return -" in out


def test_the_same_command_resumes_and_other_settings_are_refused(tmp_path, trained, train, capsys):
    shutil.copytree(trained, tmp_path / "run")
    assert train(tmp_path / "run") == 0
    capsys.readouterr()
    assert train(tmp_path / "run", "--discount", "0.5") == 2
    out, err = capsys.readouterr()
    assert "holds another run: discount is 0.99 there, 0.5 here" in err
    assert out == ""  # above all not that it has made all its steps


def test_a_run_is_resumed_from_its_folder_alone_and_for_longer(tmp_path, trained, call):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    before = json.loads((run / "run.json").read_text())
    status, out, _ = call("resume", run, "--num-env-steps", 90)
    assert status == 0
    assert "Resuming at 60 steps" in out
    assert re.search(
        r"Replay of [\d,]+ items takes .* when it is full; .* of this machine's .* are free", out
    )
    assert "after 90 environment" in out
    after = json.loads((run / "run.json").read_text())
    assert after["options"].pop("num_env_steps") == 90
    assert before["options"].pop("num_env_steps") == 60
    assert after == before


def test_a_run_that_made_its_steps_is_not_resumed_without_more_of_them(trained, call):
    status, _, err = call("resume", trained)
    assert status == 2
    assert f"`num_env_steps` must be greater than the 60 steps that {trained} has made, got 60." in err
    assert f"minerva resume {trained} --num-env-steps 120" in err
    status, _, err = call("resume", trained, "--num-env-steps", 10)
    assert (status, err.endswith(f"minerva resume {trained} --num-env-steps 120")) == (2, True), err


CHOICES = """
import gymnasium

class Choices(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,))
    action_space = gymnasium.spaces.Discrete(2)
"""


@pytest.mark.parametrize(
    ("name", "differs"), [("CartPole-v1", "observations"), ("some_choices:Choices", "actions")]
)
def test_another_environment_must_fit_the_run(tmp_path, monkeypatch, trained, call, name, differs):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "some_choices.py").write_text(CHOICES)
    for command in (("eval",), ("dataset", "--output", "data", "--episodes", 1)):
        status, _, err = call(*command, trained, "--env", name)
        assert status == 2 and f"`--env` must have the run's {differs}, " in err, err
        assert f"got {name} with " in err and "MPO needs" not in err


HINTS = """
import gymnasium
import numpy as np

class Deployed(gymnasium.Env):
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    parts = {"place": 3, "speed": 1}

    def __init__(self):
        boxes = {name: gymnasium.spaces.Box(-1.0, 1.0, (size,)) for name, size in self.parts.items()}
        self.observation_space = gymnasium.spaces.Dict(boxes)

    def _observe(self):
        return {name: np.full(size, 0.5, np.float32) for name, size in self.parts.items()}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 3
        return self._observe(), {}

    def step(self, action):
        self.left -= 1
        return self._observe(), float(action[0]), self.left == 0, False, {}

class Simulated(Deployed):
    parts = {"hint": 2, "place": 3, "speed": 1}

class Other(Deployed):
    parts = {"place": 4, "speed": 1}
"""


def test_a_run_is_evaluated_where_what_only_the_critic_sees_is_unknown(
    tmp_path, monkeypatch, call, own_modules_are_forgotten
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hints.py").write_text(HINTS)
    flags = """
        --num-env-steps 24 --batch-size 4 --min-replay-size 8 --samples-per-insert 1 --random-steps 0
        --policy-layer-sizes 8 --critic-layer-sizes 8 --evaluation-episodes 0 --log csv --replay memory
        --directory run
    """
    train = ("train", "sac", "--critic-observations", "hint", *flags.split())
    assert call(*train, "--env", "hints:Simulated")[0] == 0
    for name in ("hints:Simulated", "hints:Deployed"):
        status, out, err = call("eval", "run", "--env", name, "--episodes", 2)
        assert status == 0 and "over 2 episodes" in out, err
    for command in (("eval",), ("dataset", "--output", "data")):
        status, _, err = call(*command, "run", "--env", "hints:Other", "--episodes", 1)
        assert status == 2 and "`--env` must have the run's observations, " in err, err
    status, _, err = call(*train[:-1], "other", "--env", "hints:Deployed")
    assert status == 2 and "SAC: the environment must have hint for the critic" in err, err


def test_a_run_that_was_planned_for_more_steps_than_it_made_is_resumed_as_it_is(tmp_path, trained, call):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    content = json.loads((run / "run.json").read_text())
    content["options"]["num_env_steps"] = 50_000
    (run / "run.json").write_text(json.dumps(content))
    status, _, err = call("resume", run, "--num-env-steps", 10)
    assert (status, err.endswith(f"To train for longer: minerva resume {run}")) == (2, True), err


def test_a_process_that_is_refused_does_not_say_that_it_resumes(tmp_path, trained, call):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    with run_lock.hold(run):
        status, out, _ = call("resume", run, "--num-env-steps", 90)
    assert (status, "Resuming" in out) == (2, False)


def test_a_run_that_has_reached_its_return_is_resumed_with_a_higher_one_or_none(
    tmp_path, train, call, capsys
):
    run = tmp_path / "run"
    assert train(run, "--stop-at", "-1e6", "--evaluation-period", "20") == 0
    status, _, err = call("resume", run)
    assert status == 2
    assert f"that {run} has reached after 20 steps, got -1e+06." in err
    assert f"minerva resume {run} --stop-at inf" in err
    assert train(run, "--stop-at", "-1e6", "--evaluation-period", "20") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Resuming" not in out and "This run has reached the return of -" in out
    assert f"after 20 steps. To train until the last step: minerva resume {run} --stop-at inf" in out
    status, out, _ = call("resume", run, "--stop-at", "1e6", "--stop-after-minutes", "1e-9")
    assert (status, "the time is up, with `stop_after_minutes` 1e-09" in out) == (0, True)
    options = json.loads((run / "run.json").read_text())["options"]
    assert (options["stop_at"], options["stop_after_minutes"]) == (1e6, 1e-9)
    status, out, _ = call("resume", run, "--stop-at", "inf", "--stop-after-minutes", "inf")
    assert (status, "after 60 environment" in out, "Stopped early" in out) == (0, True, False)
    options = json.loads((run / "run.json").read_text())["options"]
    assert (options["stop_at"], options["stop_after_minutes"]) == (None, None)


def test_a_checkpoint_is_chosen_by_its_step_as_the_best_or_by_its_folder(tmp_path, train, call, caplog):
    run = tmp_path / "run"
    assert train(run, "--evaluation-period", "20", "--checkpoint-period", "10", "--checkpoint-keep", "9") == 0
    with open(run / "evaluator.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if float(row["actor_steps"]) > 0]
    best = max(rows, key=lambda row: float(row["episode_return"]))["actor_steps"]
    folder = checkpointing.find(run, 20)
    for which, steps in ((40, "40"), ("best", f"{float(best):.0f}"), (folder, "20"), ("latest", "60")):
        status, out, _ = call("eval", run, "--episodes", 1, "--checkpoint", which)
        assert (status, f"Pendulum-v1, {steps} environment steps" in out) == (0, True), (which, out)
    for command in ("eval", "resume", "video"):
        status, _, err = call(command, run, "--checkpoint", "30")
        assert (status, "or the folder of a checkpoint, got '30'" in err) == (2, True), err

    status, out, _ = call("resume", run, "--checkpoint", 20, "--num-env-steps", 30)
    assert status == 0
    assert "Resuming at 20 steps" in out
    assert "after 30 environment" in out
    assert "the next save removes the later ones at steps 40, 60, except the best" in caplog.text
    assert call("resume", run, "--num-env-steps", 30)[0] == 2  # made


def test_a_run_whose_checkpoints_are_all_damaged_fails_in_a_sentence(tmp_path, trained, call):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    (checkpointing.find(run) / "state.pt").write_bytes(b"")
    for command in (("eval",), ("resume", "--num-env-steps", 90)):
        status, out, err = call(command[0], run, *command[1:])
        assert (status, out) == (1, "")
        assert err.startswith("minerva: ")
        assert "/state.pt is damaged: its 0 bytes differ from the" in err
        assert f"No other checkpoint is left in {run}: copy one there" in err


def test_a_run_without_a_checkpoint_is_not_resumed_from_the_beginning(tmp_path, trained, call):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    shutil.rmtree(run / "checkpoints")
    logged = {path: path.read_bytes() for path in run.glob("*.csv")}
    status, out, err = call("resume", run, "--num-env-steps", 90)
    assert (status, out) == (2, "")
    assert "must have a checkpoint to be resumed, but has none, and logs until step 60: it was stopped" in err
    assert logged and logged == {path: path.read_bytes() for path in logged}


def test_a_run_without_noted_options_asks_how_long_to_train(tmp_path, trained, call):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    description = json.loads((run / "run.json").read_text())
    del description["options"]
    (run / "run.json").write_text(json.dumps(description))
    status, _, err = call("resume", run)
    assert status == 2
    assert f"To set it: minerva resume {run} --num-env-steps ..." in err


def test_a_stop_saves_exits_with_0_and_says_how_to_resume(tmp_path, train, monkeypatch, capsys):
    shown = experiments.ProgressDisplay.__call__

    def stop(self, now):
        shown(self, now)
        if now.env_steps == 30 and now.phase == "train":
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(experiments.ProgressDisplay, "__call__", stop)
    assert train(tmp_path / "run") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"Stopped by SIGTERM and saved. To resume: minerva resume {tmp_path / 'run'}" in out
    assert [path.name.lstrip("0") for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["30"]


def test_a_preset_gives_the_defaults_of_the_flags(tmp_path, train):
    assert train(tmp_path / "run", "--preset", "minerva") == 0
    hyperparameters = json.loads((tmp_path / "run" / "run.json").read_text())["hyperparameters"]
    assert hyperparameters["discount"] == 0.98  # The preset's,
    assert hyperparameters["batch_size"] == 8  # unless a flag says otherwise.


def parse(text):
    return parsing.parse(text.split())


@pytest.mark.parametrize("agent", ["ppo", "mpo"])
def test_num_envs_is_the_agents_number_of_environments(agent):
    command = parse(f"train {agent} --env CartPole-v1 --num-env-steps 9 --num-envs 4 --device cpu --seed 3")
    assert command.hyperparameters.num_environments == 4
    assert (command.run.device, command.run.seed) == ("cpu", 3)


def test_commas_separate_the_logs_and_underscores_are_dashes():
    command = parse("train ppo --env CartPole-v1 --num_env_steps=9 --log=tensorboard,csv,wandb")
    assert command.log == ("tensorboard", "csv", "wandb")
    assert command.run.num_env_steps == 9


def test_the_parser_gets_what_is_typed_alone_and_the_result_is_that_of_all_flags(monkeypatch):
    parsers, parse = [], tyro.cli
    monkeypatch.setattr(tyro, "cli", lambda kind, **more: parsers.append(kind) or parse(kind, **more))
    words = (
        "mpo --env Pendulum-v1 --seed 3 --log csv --num-envs 2 --no-checkpoint-best --policy-layer-sizes 4 5"
    )
    found = parsing.parse(["train", *words.split()])
    (typed,) = parsers
    own = ["agent", "env", "log", "checkpoint_best", "seed", "num_environments", "policy_layer_sizes"]
    assert sorted(field.name for field in dataclasses.fields(typed)) == sorted(own)
    of_all = parsing.train_command("mpo", words.split())
    arguments = words.replace("envs", "environments").split()
    wanted = parse(of_all, args=arguments, config=(tyro.conf.OmitArgPrefixes,))
    assert vars(found) == vars(wanted) and found.hyperparameters.policy_layer_sizes == (4, 5)


def test_the_agent_may_stand_behind_its_flags():
    command = parse("train --env CartPole-v1 --num-env-steps 9 --clip-ratio 0.1 ppo")
    assert (command.agent, command.hyperparameters.clip_ratio) == ("ppo", 0.1)


def test_no_two_flags_of_an_agent_have_one_name():
    # They have no prefixes: `--discount` is the agent's, `--seed` the run's.
    for agent in registry.AGENTS:
        names = [flag for flag, _ in flags.of(parsing.train_command(agent))]
        assert len(names) == len(set(names)) > 30


@pytest.mark.parametrize("command", ["train mpo", *(name for name in commands.COMMANDS if name != "train")])
def test_every_command_has_help_for_every_flag(command, call):
    status, out, _ = call(*command.split(), "--help")
    assert status == 0
    kind = parsing.train_command("mpo") if command == "train mpo" else commands.COMMANDS[command]
    for flag, _ in flags.of(kind):
        assert flag in out, flag


def test_help_is_the_words_of_the_config(call):
    _, out, _ = call("train", "mpo", "--help")
    assert "Lambda of Retrace: 0 is one-step" in out


def test_video_and_plot_get_what_was_typed(monkeypatch, tmp_path, call):
    calls = []
    monkeypatch.setattr(video, "run", lambda command: calls.append(command) or 0)
    monkeypatch.setattr(report, "plot", lambda command: calls.append(command) or 1)
    assert call("video", tmp_path, "--format", "gif,mp4", "--camera", "1", "--episodes", 2)[0] == 0
    assert call("plot", tmp_path, tmp_path, "--published", "mpo,dmpo", "--group", "agent,discount")[0] == 1
    film, plot = calls
    assert film == commands.Video(directory=tmp_path, format=("gif", "mp4"), camera="1", episodes=2)
    assert plot == commands.Plot(
        directories=(tmp_path, tmp_path), published=("mpo", "dmpo"), group="agent,discount"
    )


def test_bench_lists_or_runs_in_the_repository_and_says_where_there_is_none(tmp_path, monkeypatch, capfd):
    from minerva_acme.cli import bench

    with pytest.raises(ValueError, match=r"`minerva bench` needs a clone of the repo.*pip install -e"):
        bench.run(commands.Bench(), repository=tmp_path)
    package = tmp_path / "tests" / "benchmarks"
    package.mkdir(parents=True)
    (package / "__main__.py").write_text("import sys; print(sys.argv[1:]); sys.exit(len(sys.argv) > 3)")
    (package / "bench_mpo.py").write_text('"""A step of MPO.\n\nAnd more."""\n')
    assert bench.run(commands.Bench(), repository=tmp_path) == 0
    assert capfd.readouterr().out.startswith("mpo  A step of MPO.\nTo run some: minerva bench NAME...\n")
    assert bench.run(commands.Bench(names=("mpo",)), repository=tmp_path) == 0
    assert bench.run(commands.Bench(names=("mpo",), seconds=1.5), repository=tmp_path) == 1
    assert bench.run(commands.Bench(names=("all",)), repository=tmp_path) == 0
    assert capfd.readouterr().out.splitlines() == ["['mpo']", "['mpo', '--seconds', '1.5']", "[]"]
    with pytest.raises(ValueError, match="There is no benchmark 'mpp'; there are mpo, all. Did you mean 'm"):
        bench.run(commands.Bench(names=("mpp",)), repository=tmp_path)
    with pytest.raises(ValueError, match="`--seconds` must .*: minerva bench all --seconds 2"):
        bench.run(commands.Bench(seconds=2.0), repository=tmp_path)
    (package / "profile_step.py").write_text("print('parts')")
    assert bench.run(commands.Bench(profile=True), repository=tmp_path) == 0
    assert capfd.readouterr().out == "parts\n"
    with pytest.raises(ValueError, match="`--profile` must be the only argument, got names or seco"):
        bench.run(commands.Bench(names=("mpo",), profile=True), repository=tmp_path)


MISTAKES = [
    (
        "trian mpo",
        "There is no command 'trian'; there are demo, train, sweep, resume, eval, video, dataset, plot,",
    ),
    ("trian mpo", "Did you mean 'train'?"),
    (
        "train mpoo",
        f"There is no agent 'mpoo'; there are {', '.join(registry.AGENTS)}. Did you mean 'mpo'?",
    ),
    (
        "train mpo --preset controll --env Pendulum-v1 --num-env-steps 1",
        "There is no preset 'controll'; there are default, control, memory, modern, offline, simba, demo, "
        "dmpo, dmpo_mixture, two_hot, minerva, task. Did you mean 'control'?",
    ),
    ("train mpo --env Pendulum-v11 --num-env-steps 1", "Pendulum-v1"),
    ("train mpo --env dm_control/cartpole/swing_up --num-env-steps 1", "dm_control/cartpole/swingup"),
    (
        "train mpo --env Pendulum-v1 --num-env-steps 0",
        "`num_env_steps` must be >= 1, or 0 with `num_learner_steps` >= 1",
    ),
    ("train mpo --env Pendulum-v1 --num-env-steps 1 --discount 2", "`discount` must be in [0, 1], got 2.0."),
    (
        "train ppo --env Pendulum-v1 --num-env-stps 1",
        "`minerva train ppo` has no flag --num-env-stps. Did you mean '--num-env-steps'",
    ),
    ("train mpo --env Pendulum-v1 --num-env-steps 1 --tensorboard", "has no flag --tensorboard."),
    ("train mpo --env Pendulum-v1 --num-env-steps 1 --log csv,tensorbord", "Did you mean 'tensorboard'?"),
    ("train mpo --env Pendulum-v1 --num-env-steps many", "many"),
    ("train mpo", "--env"),
    ("train mpo --env Pendulum-v1 --num-env-steps 1 --device gpu", "`device` must be like 'cpu', 'cuda'"),
    (
        "train mpo --env Pendulum-v1 --num-env-steps 1 --replay disk",
        "must be one of auto, reverb, memory, got 'disk'.",
    ),
    *(
        (
            name,
            f"minerva: `minerva {name.split()[0]}` must have the folder of a run, got none. Those that "
            "are here: minerva list runs",
        )
        for name in ("eval", "resume", "export", "video", "publish", "dataset --output data --episodes 1")
    ),
    (
        "dataset run",
        "`minerva dataset` must have --episodes, got none. For all arguments: minerva dataset --help",
    ),
    ("completion", "`minerva completion` must have SHELL, got none."),
    ("eval nowhere", "There is no run in nowhere: run.json is missing."),
    ("eval nowhere --episode 3", "`minerva eval` has no flag --episode. Did you mean '--episodes'"),
    ("resume nowhere", "There is no run in nowhere: run.json is missing."),
    ("video nowhere", "There is no run in nowhere: run.json is missing."),
    ("plot nowhere", "There is no run in nowhere: run.json is missing."),
    (
        "list agnets",
        "There is no list of 'agnets'; there are agents, environments, presets, tasks, runs. Did you mean",
    ),
    ("", "train"),
]


@pytest.mark.parametrize(("command", "message"), MISTAKES)
def test_a_mistake_is_told_with_the_way_out(tmp_path, monkeypatch, call, command, message):
    monkeypatch.chdir(tmp_path)
    status, _, err = call(*command.split())
    assert status == 2
    assert message in err
    assert not list(tmp_path.iterdir())


def test_a_folder_that_describes_no_run_is_told(tmp_path, trained, call):
    shutil.copytree(trained / "checkpoints", tmp_path / "checkpoints")
    (tmp_path / "run.json").write_text('{"agent": "mpo", "colour": 1}')
    status, _, err = call("eval", tmp_path)
    assert status == 2
    assert f"{tmp_path / 'run.json'} does not describe a run that this version can read" in err
    content = {"agent": "trpo", "environment": "CartPole-v1", "seed": 0, "hyperparameters": {}}
    (tmp_path / "run.json").write_text(json.dumps(content))
    known = ", ".join(registry.AGENTS)
    assert (
        f"There is no agent 'trpo'; there are {known}. Install the package that has it."
        in call("eval", tmp_path)[2]
    )


def test_lists_show_what_there_is_and_a_word_filters_them(call):
    status, out, _ = call("list", "agents")
    assert status == 0
    assert out.startswith("mpo Hyperparameters of MPO") or out.startswith("mpo ")
    _, out, _ = call("list", "presets", "control")
    assert out.startswith("mpo control ")
    assert "critic_loss_steps=all" in out
    _, out, _ = call("list", "environments", "cartpole")
    assert {"CartPole-v1", "dm_control/cartpole/swingup"} <= set(out.split())
    assert "Pendulum-v1" not in out


def test_a_word_that_is_a_name_finds_what_has_this_name_alone(capsys):
    assert main(["list", "presets", "mpo"]) == 0
    *lines, _, _ = capsys.readouterr().out.splitlines()
    begun = {line[:8].strip() for line in lines} - {""}
    assert begun == {"mpo"}  # neither V-MPO's, nor R2D2's with `importance_exponent`
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if line.count("(") != line.count(")")]  # no value is broken
    assert main(["list", "presets", "importance"]) == 0
    assert "importance_exponent" in capsys.readouterr().out


def test_a_word_that_nothing_contains_suggests_similar_names(call):
    status, out, err = call("list", "environments", "CartPol-v1")
    assert (status, out) == (1, "")
    assert "nothing contains 'CartPol-v1'. Did you mean 'CartPole-v1'" in err


def test_similar_names_are_suggested_and_others_are_not():
    assert choices.near("swingupp", ["swingup", "balance"]) == "Did you mean 'swingup'?"
    assert choices.near("xyz", ["swingup", "balance"]) == ""


def test_main_is_what_the_package_offers_and_what_python_m_runs(monkeypatch, capsys):
    assert main is cli.main
    monkeypatch.setattr(sys, "argv", ["minerva", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("minerva_acme", run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("minerva-acme ")
