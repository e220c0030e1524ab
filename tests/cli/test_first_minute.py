"""What somebody meets who types `minerva` for the first time."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys

import pytest

from minerva_acme import _version, experiments
from minerva_acme.agents import registry
from minerva_acme.cli import choices, commands, flags, guide, help_pages, output, parsing
from minerva_acme.names import foreign_names
from minerva_acme.runs import run_folder, tasks
from minerva_acme.video import recording


def parse(text):
    return parsing.parse(text.split())


def test_the_first_page_has_every_command_once_in_a_group():
    page = guide.commands_page().splitlines()
    shown = [line.split()[0] for line in page if line.startswith("  ") and line[2] != " "]
    assert [shown.count(name) for name in commands.COMMANDS] == [1] * len(commands.COMMANDS)
    for group, names in guide.GROUPS.items():
        below = page[page.index(f"{group}:") + 1 :][: len(names)]
        assert below[0].split()[0] == names[0]
    assert max(map(len, page)) <= help_pages.WIDTH


def test_the_version_is_told(call):
    assert call("--version")[:2] == (0, f"minerva-acme {_version.__version__}")


@pytest.mark.parametrize("arguments", ["train --help", "train -h", "train --env CartPole-v1 --help"])
def test_without_an_agent_the_help_explains_agents_instead_of_the_flags_of_one(call, arguments):
    status, out, _ = call(*arguments.split())
    if "--env" in arguments:  # an environment is no agent, but a word all the same
        return
    assert status == 0
    for name, entry in registry.AGENTS.items():
        assert f"{name} {' '.join(entry.use.split())}" in out
    assert "--retrace-lambda" not in out
    assert "minerva train mpo --help" in out


def test_an_agents_help_has_its_name_and_the_headings_of_its_config(call):
    _, out, _ = call("train", "mpo", "--help")
    assert out.startswith("usage: minerva train mpo --env TEXT [FLAG ...]")
    headings = ["Flags:", "The run:", "MPO: networks:", "MPO: replay and acting:", "MPO: critic:"]
    assert sorted(headings, key=out.index) == headings
    critic = out.partition("MPO: critic:")[2].partition("MPO: policy improvement:")[0]
    assert "--retrace-lambda" in critic
    assert "--epsilon-mean" not in critic


def test_the_defaults_in_the_help_are_those_of_the_preset(call):
    assert "Gamma, multiplied with the environment's own discount. (default: 0.98)" in " ".join(
        call("train", "mpo", "--preset", "minerva", "--help")[1].split()
    )


@pytest.mark.parametrize("text", ["1e5", "100000", "100_000", "10e4", "1E5"])
def test_whole_numbers_may_have_an_exponent(text):
    assert parse(f"train ppo --env CartPole-v1 --num-env-steps {text}").run.num_env_steps == 100_000


@pytest.mark.parametrize("text", ["64,32", "64 32", "(64,32)", "[64,32]", "64, 32", "6.4e1,32"])
def test_sizes_may_be_separated_by_commas(text):
    command = parse(f"train ppo --env CartPole-v1 --policy-layer-sizes {text} --seed 3")
    assert command.hyperparameters.policy_layer_sizes == (64, 32)
    assert command.run.seed == 3


def test_what_others_call_a_flag_names_one_of_ours_and_never_hides_it():
    of_agents = {agent: dict(flags.of(parsing.train_command(agent))) for agent in registry.AGENTS}
    ours = {flag for of_agent in of_agents.values() for flag in of_agent} | {flags.AGENT, "--config"}
    ours |= {flag for command in commands.COMMANDS.values() for flag, _ in flags.of(command)}
    of_runs = [field.name for field in dataclasses.fields(experiments.ExperimentConfig)]
    ours |= {f"--{name.replace('_', '-')}" for name in of_runs}
    for name, entries in foreign_names.table("elsewhere").items():
        theirs = f"--{name.replace('_', '-')}"
        here = {f"--{entry.split()[0].replace('_', '-')}" for entry in entries}
        assert here <= ours, theirs
        answered = set()  # the answer depends on which of them the agent has
        for agent, of_agent in of_agents.items():
            known = frozenset(here & set(of_agent))
            if theirs not in of_agent and known and known not in answered:
                answered.add(known)
                with pytest.raises(ValueError, match=f"has no flag {theirs}. Here it is --"):
                    parse(f"train {agent} --env CartPole-v1 {theirs} 1")
        if theirs in ours:  # of some agents
            assert here != {theirs}


def test_what_others_have_leads_to_what_is_here():
    here = {*commands.COMMANDS, *registry.AGENTS}
    nearest = foreign_names.table("nearest")
    assert {*nearest.values()} <= here and not here & {*nearest}
    explained = {*foreign_names.table("elsewhere"), *foreign_names.table("flag_advice")}
    assert {*foreign_names.table("short_flags").values()} <= explained


def test_a_beginning_is_suggested_before_what_only_looks_alike():
    assert choices.near("envs", ["agents", "environments"]) == "Did you mean 'environments'?"
    assert choices.near("en", ["environments"]) == ""


@pytest.mark.parametrize(
    ("agent", "environment", "steps", "why"),
    [
        ("ppo", "CartPole-v1", 100_000, "as in ppo's task preset"),
        ("mpo", "dm_control/cartpole/swingup", 50_000, "as in mpo's task preset"),
        ("mpo", "gymnasium/Pendulum-v1", 100_000, "usual for classic control"),
        ("sac", "dm_control/walker/walk", 1_000_000, "usual for dm_control"),
        ("dqn", "ale_py:ALE/Pong-v5", 10_000_000, "usual for Atari"),
        ("ppo", "Whatever-v0", 1_000_000, "usual for the rest"),
    ],
)
def test_the_steps_of_a_training_have_a_default_by_agent_and_environment(agent, environment, steps, why):
    assert tasks.default_num_env_steps(agent, environment) == (steps, why)
    command = parse(f"train {agent} --env {environment}")
    assert (command.run.num_env_steps, command.steps_by_default) == (steps, why)
    command = parse(f"train {agent} --env {environment} --num-env-steps 7")
    assert (command.run.num_env_steps, command.steps_by_default) == (7, "")


def test_learner_steps_alone_mean_no_environment_steps():
    command = parse("train ppo --env CartPole-v1 --num-learner-steps 9")
    assert (command.run.num_env_steps, command.run.num_learner_steps) == (0, 9)


def test_recorded_episodes_mean_no_environment_steps_and_need_no_environment():
    command = parse("train crr --env Pendulum-v1 --dataset data/a")
    assert (command.run.num_env_steps, command.run.num_learner_steps) == (0, 20_000)
    assert (command.run.dataset, command.run.evaluation_episodes) == ("data/a", 10)
    assert command.steps_by_default == "usual for recorded episodes"
    command = parse("train bc --dataset data/a --num-learner-steps 9")
    assert (command.env, command.run.num_learner_steps) == ("recorded/data/a", 9)
    assert (command.run.evaluation_episodes, command.steps_by_default) == (0, "")
    with pytest.raises(ValueError, match="`dataset` must be None in a run that makes environment steps"):
        parse("train bc --env Pendulum-v1 --dataset data/a --num-env-steps 9")


def test_the_weights_of_another_run_have_a_short_flag():
    command = parse("train td3 --env Pendulum-v1 --from runs/offline")
    assert command.run.from_run == "runs/offline" and command.run.num_env_steps > 0


@pytest.fixture
def toml(tmp_path):
    def write(text):
        path = tmp_path / "settings.toml"
        path.write_text(text)
        return path

    return write


SETTINGS = """
agent = "ppo"
env = "CartPole-v1"
preset = "control"
num_env_steps = 1e4
log = ["csv"]
[hyperparameters]
policy_layer_sizes = [32, 16]
normalize_advantages = false
"""


def test_a_file_gives_the_settings_and_flags_override_it(toml):
    path = toml(SETTINGS)
    command = parse(f"train --config {path}")
    assert (command.agent, command.env, command.preset, command.log) == (
        "ppo",
        "CartPole-v1",
        "control",
        ("csv",),
    )
    assert command.run.num_env_steps == 10_000
    assert command.hyperparameters.policy_layer_sizes == (32, 16)
    assert not command.hyperparameters.normalize_advantages
    assert command.hyperparameters.num_environments == 4  # of the preset
    command = parse(
        f"train ppo --config={path} --num-env-steps 5 --policy-layer-sizes 8 --normalize-advantages "
        "--preset minerva"
    )
    assert command.run.num_env_steps == 5
    assert command.hyperparameters.policy_layer_sizes == (8,)
    assert command.hyperparameters.normalize_advantages
    assert command.hyperparameters.num_environments == 1


@pytest.mark.parametrize("order", ["ppo --config {} --seed 3", "--config {} --seed 3 ppo"])
def test_a_file_that_ends_in_several_values_takes_nothing_of_what_is_typed(toml, order):
    path = toml("env = 'CartPole-v1'\nnormalize_advantages = false\npolicy_layer_sizes = [32, 16]\n")
    command = parse(f"train {order.format(path)}")
    assert (command.agent, command.run.seed) == ("ppo", 3)
    assert command.hyperparameters.policy_layer_sizes == (32, 16)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "env = 'CartPole-v1'\nagent = 'ppo'\ndiscont = 0.9",
            "settings.toml: `minerva train ppo` has no flag --discont. Did you mean '--discount'",
        ),
        (
            "env = 'CartPole-v1'\nagent = 'ppo'\n[networks]\nx = 1",
            "settings.toml: `networks` must be a number, a string,",
        ),
        (
            "env = 'CartPole-v1'\nagent = 'ppo'\nseed = {a = 1}",
            "settings.toml: `seed` must be a number, a string, true,",
        ),
        (
            "env = 'CartPole-v1'\nagent = 'ppo'\nseed = 1.5",
            "settings.toml: `seed` must be a whole number, got 1.5.",
        ),
        ("env = CartPole", "`config` must be a TOML file or the run.json of a run, got"),
        ("env = 'CartPole-v1'", "`minerva train` must have an agent, got none"),
        ("env = 'x'\nagent = 'mine:Builder'", "names code, which would be run: mine:Builder."),
    ],
)
def test_what_a_file_has_wrong_is_told_by_name(toml, call, text, message):
    status, _, err = call("train", "--config", toml(text))
    assert status == 2
    assert message in err


def test_a_file_for_another_agent_is_refused(toml, call):
    status, _, err = call("train", "mpo", "--config", toml(SETTINGS))
    assert status == 2
    assert "The agent must be ppo, as in " in err
    assert "settings.toml, got mpo. Leave it out, or use another file." in err


def test_the_file_of_a_run_gives_the_same_run(trained, tmp_path):
    command = parse(f"train --config {trained / 'run.json'} --directory {tmp_path} --seed 7")
    before = json.loads((trained / "run.json").read_text())
    assert (
        json.loads(json.dumps(commands.dataclasses.asdict(command.hyperparameters)))
        == before["hyperparameters"]
    )
    assert (command.agent, command.env, command.log) == ("mpo", "Pendulum-v1", ("csv",))
    assert (command.run.num_env_steps, command.run.replay, command.run.seed) == (60, "memory", 7)
    assert parse(f"train mpo --config {trained}").hyperparameters == command.hyperparameters  # the folder


def test_the_file_of_a_run_that_no_command_can_repeat_is_refused(trained, tmp_path, call):
    content = json.loads((trained / "run.json").read_text())
    path = tmp_path / "run.json"
    path.write_text(json.dumps({**content, "environment_factory": "mine:make"}))
    status, _, err = call("train", "--config", path)
    assert (status, "has environment_factory, which can only be set from Python" in err) == (2, True)


def test_lists_are_json_where_it_is_asked_for(capsys):
    from minerva_acme.cli import main

    def read(*arguments):
        status = main(["list", *arguments, "--json"])
        return status, json.loads(capsys.readouterr().out)

    assert [agent["name"] for agent in read("agents")[1]][: len(registry.AGENTS)] == list(registry.AGENTS)
    assert "CartPole-v1" in read("environments", "cartpole")[1]
    found = next(preset for preset in read("presets", "control")[1] if preset["agent"] == "mpo")
    assert found["changes"]["critic_loss_steps"] == "all"
    assert read("tasks", "InvertedPendulum")[1][0]["scores"]["0"] > 0
    assert read("environments", "no-such-name") == (1, [])
    assert set(read()[1]) == {"agents", "environments", "presets", "tasks"}


def test_an_evaluation_is_json_and_nothing_else_on_standard_output(trained, capsys, monkeypatch):
    from minerva_acme import runs
    from minerva_acme.cli import main

    evaluate = runs.evaluate_checkpoint

    def greet(*arguments, **options):
        print("hello from a package")
        return evaluate(*arguments, **options)

    monkeypatch.setattr(runs, "evaluate_checkpoint", greet)
    assert main(["eval", str(trained), "--episodes", "2", "--json"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert "hello from a package" in captured.err
    assert (found["agent"], found["environment"], found["env_steps"]) == ("mpo", "Pendulum-v1", 60)
    assert len(found["returns"]) == len(found["lengths"]) == 2
    assert found["mean"] == pytest.approx(sum(found["returns"]) / 2)


def test_no_number_becomes_null(capsys):
    output.show_json({"a": float("nan"), "b": [1.5, float("inf")], "c": (True, None)})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [1.5, None], "c": [True, None]}


def test_a_run_that_is_done_says_so_and_how_to_go_on(tmp_path, train, capsys):
    run = tmp_path / "run"
    assert train(run) == 0
    assert "has made all its" not in capsys.readouterr().out
    assert train(run) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert (
        f"This run has made all its 60 steps. To train for longer: minerva resume {run} --num-env-steps 120."
    ) in said
    assert "A learner step is one update from 8 items of replay." in said


def test_a_learner_step_of_ppo_is_named_for_what_it_is():
    builder = registry.find("ppo").builder(registry.find("ppo").presets["default"])
    assert builder.learner_step == (
        "all updates from one rollout of 2,048 environment steps, at most 10 times over it in minibatches of "
        "64"
    )


def test_a_film_of_what_cannot_be_drawn_names_the_cause_before_it_plays(trained, call, monkeypatch):
    def make_factory(description, **options):
        def make(seed, **settings):
            raise TypeError("__init__() got an unexpected keyword argument 'render_mode'")

        return make

    monkeypatch.setattr(recording, "choose_renderer", lambda: None)  # for good, in this process
    monkeypatch.setattr(run_folder.RunDescription, "make_environment_factory", make_factory)
    status, out, err = call("video", trained, "--episodes", 1)
    assert (status, out) == (2, "")
    assert (
        "cannot be drawn: it takes no argument `render_mode`. Add that argument, and a method `render`" in err
    )


COMPLETED = [  # words, what is offered, what is not
    ("minerva tr", {"train"}, {"video"}),
    ("minerva train mp", {"mpo"}, {"ppo"}),
    ("minerva train mpo --retrace-l", {"--retrace-lambda"}, {"--clip-ratio"}),
    ("minerva train ppo --num-env", {"--num-environments", "--num-envs"}, {"--from"}),
    ("minerva train td3 --fr", {"--from-run", "--from"}, {"--env"}),
    ("minerva eval --ep", {"--episodes"}, {"--seed"}),
    ("minerva sweep sac --opt", {"--optuna"}, {"the", "choices;", "None)"}),
    ('minerva export run --format ""', {"pt2", "onnx"}, {"None"}),
]


@pytest.mark.skipif(not shutil.which("bash"), reason="completes in bash")
def test_bash_completes_commands_agents_and_flags(tmp_path, capsys):
    from minerva_acme.cli import main

    assert main(["completion", "bash"]) == 0
    text = capsys.readouterr().out
    assert "complete -o bashdefault -o default -F" in text  # files, where nothing else fits
    for words, _, _ in COMPLETED:
        text += f"\nCOMP_WORDS=({words}); COMP_CWORD={len(words.split()) - 1}; COMPREPLY=()\n"
        text += "_tyro_minerva\necho ${COMPREPLY[@]}\n"
    script = tmp_path / "completion.bash"
    script.write_text(text)
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", str(script)], capture_output=True, text=True, check=True, env={**os.environ, "PATH": path}
    )
    for (words, expected, others), line in zip(COMPLETED, done.stdout.splitlines(), strict=True):
        found = set(line.split())
        assert expected <= found, words
        assert not others & found, words
