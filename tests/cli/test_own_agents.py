"""Agents that are not this library's, on the command line: by where the builder is, and by an entry point."""

import dataclasses
import importlib
import json
import pathlib
import sys
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest

import minerva_acme
from minerva_acme import constraints
from minerva_acme.agents import ppo, registry
from minerva_acme.cli import flags, parsing

MODULE = '''
import dataclasses

from minerva_acme import builders
from minerva_acme.agents import ppo


@dataclasses.dataclass(frozen=True, kw_only=True)
class MyConfig(ppo.PPOConfig):
    """Hyperparameters of my agent."""

    num_environments: int = 1
    rollout_steps: int = 16
    minibatch_size: int = 8
    num_epochs: int = 1
    policy_layer_sizes: tuple[int, ...] = (8,)
    value_layer_sizes: tuple[int, ...] = (8,)
    bonus: float = 0.5
    """A number of mine."""


class MyBuilder(ppo.PPOBuilder):
    config_class = MyConfig


class Choosy(MyBuilder):
    def check_spec(self, spec):
        raise ValueError("I only play chess.")


class Forgetful(ppo.PPOBuilder):
    config_class = MyConfig
    config = None


class Unnamed(builders.AgentBuilder):
    pass


class Wrong(ppo.PPOBuilder):
    config_class = "MyConfig"


@dataclasses.dataclass
class Changeable:
    units: int = 8


class ChangeableBuilder(ppo.PPOBuilder):
    config_class = Changeable


@dataclasses.dataclass(frozen=True, kw_only=True)
class WithFunction(MyConfig):
    activation: type = float


class NotFlags(ppo.PPOBuilder):
    config_class = WithFunction


PRESETS = {"bold": MyConfig(bonus=2.0)}
'''
FLAGS = (
    "--env Pendulum-v1 --num-env-steps 32 --evaluation-episodes 1 --log csv --replay memory --directory run"
)
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def here(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, own_modules_are_forgotten: None
) -> pathlib.Path:
    """The current folder, which holds a module with an agent."""
    (tmp_path / "my_agent.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    importlib.invalidate_caches()
    return tmp_path


def forget(here: pathlib.Path) -> None:
    """Makes this a process that never imported the agent."""
    sys.modules.pop("my_agent", None)
    sys.path[:] = [path for path in sys.path if path != str(here)]


def install(here: pathlib.Path, monkeypatch: pytest.MonkeyPatch, **agents: str) -> pathlib.Path:
    """Installs a package of the agent, as pip would, and returns the folder of its metadata."""
    site = here / "site"
    folder = site / "my_package-1.2.dist-info"
    folder.mkdir(parents=True)
    lines = "".join(f"{name} = {value}\n" for name, value in agents.items())
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: my_package\nVersion: 1.2\n")
    (folder / "entry_points.txt").write_text(f"[minerva_acme.agents]\n{lines}")
    (here / "my_agent.py").rename(site / "my_agent.py")
    monkeypatch.syspath_prepend(site)
    return folder


@pytest.mark.promise("A builder in your own module trains with `--agent module")
def test_a_builder_in_the_current_folder_trains_and_its_run_is_used_by_every_command(
    here: pathlib.Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minerva_acme.video.recording.choose_renderer", lambda: None)
    status, out, err = call("train", "--agent", "my_agent:MyBuilder", *FLAGS.split(), "--bonus", 0.25)
    assert (status, err) == (0, "")
    assert "my_agent:MyBuilder on Pendulum-v1, 32 steps" in out
    content = json.loads(pathlib.Path("run/run.json").read_text())
    assert (content["agent"], content["config"]) == ("my_agent:MyBuilder", "my_agent:MyConfig")
    assert content["hyperparameters"]["bonus"] == 0.25
    for words in (
        "eval run --episodes 1",
        "video run --episodes 1 --format mp4",
        "resume run --num-env-steps 48",
        "export run --format safetensors",
    ):
        forget(here)
        status, _, err = call(*words.split())
        assert status == 2 and "allow that with --import-code" in err and "my_agent" not in sys.modules
        status, _, err = call(*words.split(), "--import-code")
        assert status == 0, err
    forget(here)
    assert call("plot", "run", "--output", "curve.png")[0] == 0
    assert "my_agent" not in sys.modules
    sys.path.append(str(here))
    policy = minerva_acme.load_policy("run", import_code=True)
    assert policy.__class__.__module__.startswith("minerva_acme.")


@pytest.mark.promise("A run resumes after its config got a new field with a default")
def test_the_same_command_resumes_also_once_the_agent_has_a_new_hyperparameter(
    here: pathlib.Path, call: Call
) -> None:
    command = f"train --agent my_agent:MyBuilder {FLAGS}"
    assert call(*command.split())[0] == 0
    forget(here)
    newer = MODULE.replace("    bonus: float = 0.5\n", "    bonus: float = 0.5\n    newer: int = 3\n")
    (here / "my_agent.py").write_text(newer)
    importlib.invalidate_caches()
    status, out, err = call(*command.replace("steps 32", "steps 48").split())
    assert (status, "Resuming at 32 steps" in out) == (0, True), err
    status, _, err = call(*command.split(), "--newer", 4)
    assert (status, "another run: newer is 3 there, 4 here" in err) == (2, True), err
    assert "resume that run with `minerva resume run --import-code`." in err


def test_an_agent_of_an_installed_package_needs_no_leave_to_be_imported(
    here: pathlib.Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = install(here, monkeypatch, mine="my_agent:MyBuilder", broken="no_such_module:X")
    assert "mine my_agent:MyBuilder, from my_package 1.2" in call("list", "agents")[1]
    assert "my_agent" not in sys.modules
    status, _, err = call("train", "mine", *FLAGS.split(), "--preset", "bold")
    assert (status, err) == (0, "")
    content = json.loads(pathlib.Path("run/run.json").read_text())
    assert (content["agent"], content["config"]) == ("mine", "")
    assert content["hyperparameters"]["bonus"] == 2.0
    sys.modules.pop("my_agent")
    assert call("eval", "run", "--episodes", 1)[0] == 0
    assert "my_agent" in sys.modules
    assert minerva_acme.load_policy("run") is not None
    (metadata / "entry_points.txt").unlink()
    monkeypatch.setattr(sys, "path", [*sys.path, "/elsewhere"])  # a new process
    assert call("plot", "run", "--output", "curve.png")[0] == 0
    status, _, err = call("eval", "run", "--episodes", 1)
    known = ", ".join(registry.AGENTS)
    assert (status, f"no agent 'mine'; there are {known}. Install" in err) == (2, True)


def test_where_a_builder_has_a_name_too_its_run_has_that(
    here: pathlib.Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(here, monkeypatch, mine="my_agent:MyBuilder")
    assert call("train", "--agent", "my_agent:MyBuilder", *FLAGS.split())[0] == 0
    assert json.loads(pathlib.Path("run/run.json").read_text())["agent"] == "mine"


def test_a_broken_or_clashing_package_leaves_the_other_agents_as_they_are(
    here: pathlib.Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(here, monkeypatch, broken="no_such_module:X", ppo="my_agent:MyBuilder")
    status, out, _ = call("list")
    assert status == 0
    assert "broken no_such_module:X, from my_package 1.2" in out
    assert "ppo Two agents are named 'ppo'" in out
    assert parsing.parse(f"train mpo {FLAGS}".split()).agent == "mpo"
    status, _, err = call("train", "broken", *FLAGS.split())
    assert status == 2
    assert (
        "The agent 'broken' of my_package 1.2 is `no_such_module:X`, which cannot be imported: No mod" in err
    )
    status, _, err = call("train", "ppo", *FLAGS.split())
    assert status == 2 and "choose one by its path: --agent my_agent:MyBuilder" in err


def test_a_folder_that_holds_the_module_is_named(
    call: Call, tmp_path: pathlib.Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("init", "my_dqn")[0] == 0
    words = "train --agent my_dqn:DQNBuilder --env CartPole-v1 --num-env-steps 9"
    status, _, err = call(*words.split())
    assert status == 2 and "my_dqn has no DQNBuilder, since it is the folder" in err
    assert f"the module my_dqn is inside it: cd {tmp_path / 'my_dqn'}" in err


def test_a_refusal_by_a_builder_of_ones_own_is_one_line(call: Call, tmp_path: pathlib.Path) -> None:
    words = "train --agent my_agent:Choosy --env Pendulum-v1 --num-env-steps 9 --directory"
    status, _, err = call(*words.split(), str(tmp_path / "run"))
    assert status == 2 and err.endswith("minerva: I only play chess.")
    assert not (tmp_path / "run").exists()


def test_flags_have_the_words_and_defaults_of_the_config(call: Call) -> None:
    _, out, _ = call("train", "--agent", "my_agent:MyBuilder", "--help")
    assert "--bonus X A number of mine. (default: 0.5)" in out
    assert "default,bold,task" in out


@pytest.mark.parametrize(
    "words",
    [
        "train --agent my_agent:MyBuilder --env Pendulum-v1 --num-env-steps 9",
        "train --env Pendulum-v1 --num-env-steps=9 --agent=my_agent:MyBuilder",
        "train my_agent:MyBuilder --env Pendulum-v1 --num-env-steps 9",
    ],
)
def test_the_agent_may_stand_anywhere(words: str) -> None:
    command = parsing.parse(words.split())
    assert (command.agent, command.run.num_env_steps) == ("my_agent:MyBuilder", 9)
    assert parsing.parse(words.replace("my_agent:MyBuilder", "ppo").split()).agent == "ppo"


def test_a_config_that_is_not_frozen_has_flags() -> None:
    words = ["train", "--agent", "my_agent:ChangeableBuilder", "--env", "Pendulum-v1", "--num-env-steps", "9"]
    assert parsing.parse(words).hyperparameters.units == 8
    assert parsing.parse([*words, "--units", "3"]).hyperparameters.units == 3


def test_without_a_directory_the_run_is_in_a_folder_of_the_builders_name(call: Call) -> None:
    flags_ = FLAGS.replace("--directory run", "")
    assert call("train", "--agent", "my_agent:MyBuilder", *flags_.split())[0] == 0
    assert pathlib.Path("runs/Pendulum-v1/MyBuilder_default-seed0/run.json").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("mpo --agent my_agent:MyBuilder", "must be given once, got 'mpo' and --agent my_agent:MyBuilder."),
        (
            "--agent my_agnet:MyBuilder",
            "The agent is `my_agnet:MyBuilder`, which cannot be imported: No module",
        ),
        (
            "--agent my_agent:MyBuider",
            "cannot be imported: my_agent has no MyBuider. Did you mean my_agent:MyBuilder?",
        ),
        ("--agent my_agent:Nope", "my_agent has no Nope. It has MyConfig, MyBuilder, "),
        ("--agent my_agent.py:MyBuilder", "A module has no suffix: my_agent:MyBuilder"),
        ("--agent my_agent:MyConfig", "`my_agent:MyConfig` must be a subclass of `AgentBuilder`, got <class"),
        (
            "--agent my_agent",
            f"no agent 'my_agent'; there are {', '.join(registry.AGENTS)}. For your own",
        ),
        (
            "--agent my_agent:Unnamed",
            "Unnamed must set `config_class` to the dataclass of its config, got None. Write `config_class "
            "= MyConfig` in the class.",
        ),
        ("--agent my_agent:Wrong", "Wrong must set `config_class` to the dataclass of its config, got 'My"),
        ("--agent my_agent:Forgetful", "Forgetful must store its config as `config`"),
        (
            "--agent my_agent:NotFlags",
            "`activation` of WithFunction cannot be a flag: it must be an argument of type bool, int, "
            "float, str, Literal, None, or a union or tuple of these, got type.",
        ),
    ],
)
def test_a_mistake_is_told_with_the_way_out(words: str, message: str, call: Call) -> None:
    status, _, err = call("train", *words.split(), *FLAGS.split())
    assert status == 2
    assert message in err


def test_an_error_in_the_agents_own_module_keeps_its_traceback(here: pathlib.Path, call: Call) -> None:
    (here / "my_agent.py").write_text("1 / 0")
    with pytest.raises(ZeroDivisionError):
        call("train", "--agent", "my_agent:MyBuilder", *FLAGS.split())


# Which fields can be flags.


def check_flag(kind: Any, name: str = "field", **field: Any) -> None:
    config = dataclasses.make_dataclass("Config", [(name, kind, dataclasses.field(**field))])
    flags.check_config(config, taken=["--seed", "--no-such"])


@pytest.mark.parametrize(
    "kind",
    [
        *(bool, int, float, str, int | None, int | str, tuple[int, ...], tuple[float, str]),
        *(tuple[int, ...] | None, Literal["a", "b"], Annotated[int, "positive"], constraints.Sizes),
    ],
)
def test_plain_fields_are_flags(kind: Any) -> None:
    check_flag(kind)


@pytest.mark.parametrize(
    "kind",
    [
        *(list[int], dict[str, int], tuple, object, Any, pathlib.Path, ppo.PPOConfig, Callable[[], int]),
        *(tuple[pathlib.Path, ...], int | pathlib.Path, Annotated[bytes, "raw"]),
    ],
)
def test_other_fields_are_named_with_the_ways_to_go_on(kind: Any) -> None:
    with pytest.raises(ValueError, match="`field` of Config cannot be a flag: .*builder.*`run_experiment`"):
        check_flag(kind)


def test_a_field_that_is_no_argument_is_named() -> None:
    with pytest.raises(ValueError, match="`field` of Config cannot be a flag: it must be an argument"):
        check_flag(int, init=False, default=1)


@pytest.mark.parametrize("name", ["seed", "no_such"])
def test_a_field_that_means_another_flag_is_named(name: str) -> None:
    with pytest.raises(
        ValueError, match=f"`{name}` of Config must have another name: --{name.replace('_', '-')}"
    ):
        check_flag(int, name)


def test_types_that_the_module_lacks_are_named() -> None:
    with pytest.raises(ValueError, match="types of Config's fields must be def.*'Missing' is not defined"):
        check_flag("Missing")


def test_the_librarys_own_configs_can_be_flags() -> None:
    for agent in registry.AGENTS:
        assert parsing.train_command(agent)
