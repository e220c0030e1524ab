import dataclasses
import json
import logging
import pathlib
import sys
import textwrap

import pytest

from minerva_acme import environments, experiments, observers, specs, testing
from minerva_acme.agents import mpo, ppo
from minerva_acme.runs import run_folder

TINY = ppo.PPOConfig(
    num_environments=1,
    rollout_steps=8,
    minibatch_size=4,
    num_epochs=1,
    policy_layer_sizes=(4,),
    value_layer_sizes=(4,),
)
MODULE = """
    import dataclasses
    import pathlib

    from minerva_acme import environments, testing
    from minerva_acme.agents import ppo

    pathlib.Path(__file__).with_name("imported").touch()


    @dataclasses.dataclass(frozen=True, kw_only=True)
    class MyConfig(ppo.PPOConfig):
        extra: tuple[float, ...] = (1.0, 2.0)
        activation: object = None


    class MyBuilder(ppo.PPOBuilder):
        pass


    class WithoutConfig(ppo.PPOBuilder):
        config = None


    def make_environment(seed):
        return testing.FakeEnvironment(seed=seed)


    def not_a_builder(config):
        return config
"""


@pytest.fixture
def theirs(tmp_path, monkeypatch):
    """A user's module, imported."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "their_agents.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.syspath_prepend(folder)
    yield __import__("their_agents")
    sys.modules.pop("their_agents", None)


def forget(module):
    """Makes it a module that this process never imported."""
    del sys.modules["their_agents"]
    pathlib.Path(module.__file__).with_name("imported").unlink()


def was_imported(module):
    return pathlib.Path(module.__file__).with_name("imported").exists()


def make_config(directory, builder=None, factory=None, **overrides):
    return experiments.ExperimentConfig(
        **{
            "builder": builder or ppo.PPOBuilder(TINY),
            "environment_factory": factory or (lambda seed: testing.FakeEnvironment(seed=seed)),
            "directory": directory,
            "num_env_steps": 8,
            "replay": "memory",
            "tensorboard": False,
            **overrides,
        }
    )


def describe(directory, builder=None, factory=None, **overrides):
    """Describes a run, and reads that from its folder."""
    config = make_config(directory / "run", builder, factory, **overrides)
    environment = config.environment_factory(0)
    run_folder.describe(config, environment).write(directory / "run")
    environment.close()
    return run_folder.read(directory / "run")


def make_cartpole(seed):
    return environments.make_training_environment("CartPole-v1", seed=seed, max_episode_steps=7)


def test_a_run_from_python_is_described_as_one_of_the_command_line(tmp_path):
    description = describe(tmp_path, ppo.PPOBuilder(TINY), make_cartpole, seed=3)
    assert (description.agent, description.config, description.title) == ("ppo", "", "PPO")
    assert (description.environment, description.seed) == ("CartPole-v1", 3)
    assert description.options["num_env_steps"] == 8
    assert description.unknown == {}
    assert description.make_config() == TINY
    builder = description.make_builder()
    assert type(builder) is ppo.PPOBuilder and builder.config == TINY
    with description.make_environment_factory()(0) as environment:
        assert description.make_specs() == specs.make_environment_spec(environment)
        environment.reset()
        assert sum(not environment.step(0).last() for _ in range(7)) < 7


def test_the_specs_need_no_environment(tmp_path):
    description = describe(tmp_path)
    assert "environment" in description.unknown
    assert description.make_specs() == specs.make_environment_spec(testing.FakeEnvironment())


def test_run_experiment_writes_it_and_says_what_only_python_can_continue(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        experiments.run_experiment(make_config(tmp_path, evaluation_episodes=1))
    assert run_folder.read(tmp_path).agent == "ppo"
    start = f"{tmp_path} cannot be continued from its folder alone: "
    (said,) = [text for text in caplog.messages if text.startswith(start)]
    assert "`make_config.<locals>.<lambda>`" in said


def test_code_of_others_is_imported_only_where_that_is_allowed(tmp_path, theirs):
    config = theirs.MyConfig(**dataclasses.asdict(TINY), extra=(3.0,))
    description = describe(tmp_path, theirs.MyBuilder(config), theirs.make_environment)
    assert description.agent == description.environment.replace("make_environment", "MyBuilder")
    assert (description.agent, description.title) == ("their_agents:MyBuilder", "MyBuilder")
    forget(theirs)
    for make in (description.make_builder, description.make_config, description.make_environment_factory):
        with pytest.raises(ValueError, match=r"`their_agents:\w+`.*--import-code.*import_code=True"):
            make()
    assert not was_imported(theirs)
    builder = description.make_builder(import_code=True)
    assert type(builder).__name__ == "MyBuilder" and builder.config.extra == (3.0,)
    with description.make_environment_factory(import_code=True)(0) as environment:
        assert isinstance(environment, testing.FakeEnvironment)
    assert was_imported(theirs)


@pytest.mark.parametrize("agent", ["their_agents:MyBuilder", "their_agents:not_a_builder"])
def test_a_path_in_the_place_of_a_name_is_code_too(agent, tmp_path, theirs):
    description = dataclasses.replace(describe(tmp_path, None, make_cartpole), agent=agent)
    assert description.config == ""
    forget(theirs)
    for make in (description.make_builder, description.make_config):
        with pytest.raises(ValueError, match=r"--import-code"):
            make()
    assert not was_imported(theirs)


def test_an_id_that_names_a_module_is_code_too(tmp_path, theirs):
    description = dataclasses.replace(
        describe(tmp_path, None, make_cartpole), environment="their_agents:A-v0"
    )
    forget(theirs)
    with pytest.raises(ValueError, match=r"environment is `their_agents:A-v0`.*--import-code"):
        description.make_environment_factory()
    assert not was_imported(theirs)
    with pytest.raises(
        ValueError, match="module their_agents .* has no 'A-v0'"
    ):  # registers no such environment
        description.make_environment_factory(import_code=True)(0)
    assert was_imported(theirs)


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("no_such_module:A", "PYTHONPATH"),
        ("their_agents:no_such", "It has MyConfig, MyBuilder"),
        ("their_agents", "PYTHONPATH"),
        ("a b:c", "PYTHONPATH"),
        ("", "PYTHONPATH"),
    ],
)
def test_a_path_that_cannot_be_imported_is_said(path, hint, tmp_path, theirs):
    description = describe(tmp_path, theirs.MyBuilder(TINY), theirs.make_environment)
    description = dataclasses.replace(description, agent=path)
    with pytest.raises(ValueError, match=f"builder is `{path}`, which cannot be imported: .*{hint}"):
        description.make_builder(import_code=True)


def test_what_is_imported_must_make_a_builder(tmp_path, theirs):
    description = describe(tmp_path, theirs.MyBuilder(TINY), theirs.make_environment)
    description = dataclasses.replace(description, agent="their_agents:not_a_builder")
    with pytest.raises(ValueError, match="must make an `AgentBuilder`, got PPOConfig"):
        description.make_builder(import_code=True)


def test_a_config_with_a_function_is_described_as_far_as_it_goes(tmp_path, theirs):
    config = theirs.MyConfig(**dataclasses.asdict(TINY), activation=make_cartpole)
    description = describe(tmp_path, theirs.MyBuilder(config), make_cartpole)
    assert description.hyperparameters["activation"] == f"<{__name__}.make_cartpole>"
    assert description.hyperparameters["policy_layer_sizes"] == [4]
    with pytest.raises(ValueError, match=r"only from Python: `activation` of its config is not a number"):
        description.make_builder(import_code=True)


@pytest.mark.parametrize("name", ["within a function", "in the script", "without a config"])
def test_a_builder_that_no_file_can_name_is_said(name, tmp_path, theirs, monkeypatch):
    class Local(ppo.PPOBuilder):
        pass

    builder, reason = Local(TINY), "`.*Local` of the module .* is defined inside a function"
    if name == "in the script":
        monkeypatch.setattr(theirs.MyBuilder, "__module__", "__main__")
        builder, reason = theirs.MyBuilder(TINY), "`MyBuilder` is defined in the script itself; move it"
    elif name == "without a config":
        builder, reason = theirs.WithoutConfig(TINY), "`WithoutConfig` has no `config` that is a dataclass"
    description = describe(tmp_path, builder, make_cartpole)
    with pytest.raises(ValueError, match=f"made only from Python: {reason}"):
        description.make_builder(import_code=True)


def test_observers_are_not_known_to_the_folder(tmp_path):
    description = describe(tmp_path, None, make_cartpole, observers=[observers.ActionNorm()])
    assert list(description.unknown) == ["observers"]


@pytest.mark.promise("A folder holds one run")
def test_another_run_in_the_folder_is_refused_and_more_steps_are_not(tmp_path):
    describe(tmp_path, None, make_cartpole)
    describe(tmp_path, None, make_cartpole, num_env_steps=99, evaluation_period=1)
    for there, asked, difference in [
        ("ppo", {"builder": mpo.MPOBuilder(mpo.MPOConfig())}, "agent is 'ppo' there, 'mpo' here"),
        ("lr", {"builder": ppo.PPOBuilder(dataclasses.replace(TINY, learning_rate=1.0))}, "learning_rate is"),
        ("seed", {"seed": 1}, "seed is 0 there, 1 here"),
        (
            "environment",
            {"factory": lambda seed: environments.make_training_environment("Acrobot-v1", seed=seed)},
            "environment is 'CartPole-v1' there, 'Acrobot-v1' here",
        ),
    ]:
        with pytest.raises(ValueError, match=f"holds another run: {difference}"):
            describe(tmp_path, **{"factory": make_cartpole, **asked}), there


def test_a_function_that_makes_the_environment_may_be_moved(tmp_path, theirs):
    describe(tmp_path, None, theirs.make_environment)
    description = describe(tmp_path, None, lambda seed: testing.FakeEnvironment(seed=seed))
    assert "environment" in description.unknown


def test_a_file_of_the_format_before_is_read_and_goes_on(tmp_path):
    describe(tmp_path, None, make_cartpole)
    path = tmp_path / "run" / "run.json"
    content = json.loads(path.read_text())
    old = {name: content[name] for name in ("version", "agent", "seed", "hyperparameters", "options")}
    del old["hyperparameters"]["max_skipped_batches"]  # is younger than the run
    path.write_text(json.dumps({**old, "environment": "CartPole-v1"}))
    description = run_folder.read(tmp_path / "run")
    assert description.make_config() == TINY
    with environments.make_training_environment("CartPole-v1") as environment:
        assert description.make_specs() == specs.make_environment_spec(environment)
        config = make_config(tmp_path / "run", None, None)
        asked = run_folder.describe(config, environment)
    asked.write(tmp_path / "run")
    assert json.loads(path.read_text())["format"] == run_folder.FORMAT


def test_an_mpo_of_format_2_keeps_a_mean_without_bounds_and_its_learned_temperature(tmp_path):
    config = mpo.MPOConfig(policy_layer_sizes=(8,), critic_layer_sizes=(8,))
    of_3 = {"environment": "Pendulum-v1", "agent": "mpo", "seed": 0, "format": 3}
    of_3["hyperparameters"] = dataclasses.asdict(config)
    of_2 = {**of_3, "format": 2, "hyperparameters": dict(of_3["hyperparameters"])}
    for name in ("bounded_mean", "temperature"):
        del of_2["hyperparameters"][name]
    path = tmp_path / "run.json"
    assert run_folder.parse(json.dumps(of_3), path).make_config() == config
    expected = dataclasses.replace(config, bounded_mean=False, temperature="learned")
    assert run_folder.parse(json.dumps(of_2), path).make_config() == expected


def test_a_newer_format_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({"format": 9, "version": "7.0", "agents": ["ppo"]}))
    with pytest.raises(
        ValueError,
        match=r"run.json must have format 3 or older, got 9, by minerva-acme 7\.0\. .*pip inst",
    ):
        run_folder.read(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "3",
        "[" * 100_000,
        '{"agent": "ppo"}',
        b"\xff\xfe",
        {"seed": "one"},
        {"options": []},
        {"agent": 3},
        {"hyperparameters": None},
        {"colour": "blue"},
        {"format": "two"},
        {"format": None},
        {"unknown": []},
    ],
)
def test_what_describes_no_run_is_refused_in_a_sentence(content, tmp_path):
    describe(tmp_path, None, make_cartpole)
    path = tmp_path / "run" / "run.json"
    if isinstance(content, dict):
        content = json.dumps({**json.loads(path.read_text()), **content})
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(
        ValueError, match=r"run\.json (does not describe a run|must have format|is a run of the)"
    ):
        run_folder.read(tmp_path / "run")


@pytest.mark.parametrize(
    "hyperparameters", [{"colour": 3}, {"learning_rate": "high"}, {"learning_rate": -1.0}]
)
def test_hyperparameters_that_the_agent_does_not_take_are_a_sentence(hyperparameters, tmp_path):
    description = describe(tmp_path, None, make_cartpole)
    description = dataclasses.replace(description, hyperparameters=hyperparameters)
    with pytest.raises(ValueError, match="colour|learning_rate|hyperparameters of PPO"):
        description.make_builder()


@pytest.mark.parametrize(
    ("part", "name"), [("hyperparameters", "num_environments"), ("options", "evaluation_environments")]
)
@pytest.mark.parametrize("value", [10**7, 1e300, float("inf")])
def test_a_file_that_asks_for_millions_of_environments_is_refused_before_any_is_made(part, name, value):
    content = {"agent": "ppo", "environment": "CartPole-v1", "seed": 0, "hyperparameters": {}}
    text = json.dumps(content | {part: {name: value}})
    with pytest.raises(ValueError, match=f"run.json .*`{name}` must be <= 65,536, got "):
        run_folder.parse(text, pathlib.Path("run.json"))


@pytest.mark.parametrize("names", [[["x"]], "x", 5, {"x": 1}])
def test_names_of_entries_that_are_no_names_are_refused(names):
    described = run_folder.RunDescription(
        agent="ppo", environment="CartPole-v1", seed=0, hyperparameters={"critic_observations": names}
    )
    with pytest.raises(ValueError, match="`critic_observations` must be a list, each text, got"):
        described.make_environment_factory()


def test_an_option_of_an_older_version_is_read_by_its_new_name(tmp_path):
    described = describe(tmp_path, None, make_cartpole).content()
    described["options"]["stop_at_return"] = described["options"].pop("stop_at") or 7.0
    text = json.dumps(described)
    assert run_folder.parse(text, tmp_path).options["stop_at"] == 7.0
