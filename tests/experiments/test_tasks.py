import math

import gymnasium
import pytest

from minerva_acme import environments
from minerva_acme.agents import ppo, registry
from minerva_acme.experiments import tasks

ENTRY = """
[[task]]
agent = "ppo"
environment = "CartPole-v1"
preset = "control"
num_env_steps = 1_000
settings = { gae_lambda = 0.9, policy_layer_sizes = [32, 16], anneal_learning_rate = false }
runs = [
    { seed = 3, score = 10, std = 1.5 },
    { seed = 4, score = 40.0, std = 0.0 },
    { seed = 7, score = 20, std = 2 },
]
"""
every_task = pytest.mark.parametrize(
    "task", tasks.load(), ids=lambda task: f"{task.agent}-{task.environment}"
)


@every_task
def test_an_entry_of_the_file_makes_a_config_that_differs_from_its_preset_by_its_settings(task):
    config = task.make_config()
    preset = registry.AGENTS[task.agent].presets[task.preset]
    assert type(config) is registry.AGENTS[task.agent].config
    differing = {name for name, value in vars(preset).items() if getattr(config, name) != value}
    assert differing == set(task.settings)  # a setting that changes nothing would mislead


@every_task
def test_an_entry_of_the_file_says_how_long_it_trains_and_what_came_of_it(task):
    assert type(task.num_env_steps) is int and task.num_env_steps >= 1
    assert task.runs
    seeds = [run.seed for run in task.runs]
    assert all(type(seed) is int and seed >= 0 for seed in seeds) and len(set(seeds)) == len(seeds)
    assert all(math.isfinite(run.score) and 0.0 <= run.std < math.inf for run in task.runs)


def test_no_two_entries_of_the_file_are_of_one_agent_and_environment():
    pairs = [(task.agent, task.environment) for task in tasks.load()]
    assert len(set(pairs)) == len(pairs)


def test_a_key_that_is_missing_or_unknown_is_an_error():
    for wrong in (ENTRY.replace("preset", "presets"), ENTRY.replace("seed = 3,", "")):
        with pytest.raises(TypeError, match="preset|seed"):
            tasks.parse(wrong)


@every_task
def test_an_entry_of_the_file_is_of_an_environment_that_there_is(task):
    assert task.environment in environments.list_environments()


@every_task
def test_an_entry_of_the_file_is_found_by_its_agent_and_environment(task):
    assert tasks.find(task.agent, task.environment) is task
    if not task.environment.startswith("dm_control/"):
        assert tasks.find(task.agent, f"gymnasium/{task.environment}") is task


def test_the_file_has_the_runs_that_the_pages_state():
    scores = {(task.agent, task.environment): [run.score for run in task.runs] for task in tasks.load()}
    assert scores["vmpo", "CartPole-v1"] == [500.0, 487.7, 500.0]
    assert scores["ppo", "dm_control/cartpole/swingup"] == [851.7, 863.6, 818.5]
    assert scores["mpo", "dm_control/cartpole/swingup"] == [855.5, 873.3, 853.5]


def test_there_is_an_entry_for_every_task_of_both_suites():
    environments.make("dm_control/cartpole/swingup")  # makes dm_control importable without a display
    from dm_control import suite

    of_dm_control = {f"dm_control/{domain}/{task}" for domain, task in suite.BENCHMARKING}
    of_gymnasium = {
        name
        for name, spec in gymnasium.registry.items()
        if "mujoco" in str(spec.entry_point) and spec.version == 5
    }
    assert len(of_dm_control) == 28
    assert len(of_gymnasium) == 11
    assert of_dm_control | of_gymnasium <= {task.environment for task in tasks.load()}


def test_an_entry_is_read_with_what_it_says():
    (task,) = tasks.parse(ENTRY)
    assert task.make_config() == ppo.PPOConfig(
        num_environments=4,
        rollout_steps=4096,
        minibatch_size=128,
        gae_lambda=0.9,
        policy_layer_sizes=(32, 16),
        anneal_learning_rate=False,
    )
    assert task.runs[0] == tasks.Run(seed=3, score=10.0, std=1.5)
    assert task.mean == pytest.approx(70 / 3)
    assert task.median == 20.0
    assert task.command(5) == (
        "minerva train ppo --env CartPole-v1 --preset control --gae-lambda 0.9 --policy-layer-sizes 32 16 "
        "--no-anneal-learning-rate --num-env-steps 1000 --seed 5"
    )


def test_an_entry_cannot_be_changed_behind_its_readers():
    (task,) = tasks.parse(ENTRY)
    with pytest.raises(TypeError, match="does not support item assignment"):
        task.settings["gae_lambda"] = 0.5


@pytest.fixture
def known(monkeypatch):
    """These entries instead of the file's."""
    text = ENTRY + ENTRY.replace("CartPole-v1", "dm_control/walker/walk")
    monkeypatch.setattr(tasks, "load", lambda: tasks.parse(text))


@pytest.mark.parametrize(
    ("environment", "hint"),
    [
        ("cartpole-v1", "Did you mean 'CartPole-v1'? "),
        ("dm_control/walker/wlak", "Did you mean 'dm_control/walker/walk'? "),
        ("dm_control/fish/swim", ""),
    ],
)
def test_where_there_is_no_entry_the_known_and_the_near_ones_are_named(known, environment, hint):
    with pytest.raises(ValueError) as raised:
        tasks.find("ppo", environment)
    assert str(raised.value) == (
        f"ppo has no task preset for '{environment}'; it has CartPole-v1, dm_control/walker/walk. {hint}"
        "For any environment there are the presets default, control, minerva."
    )


def test_an_agent_without_entries_says_so(known):
    with pytest.raises(ValueError, match=r"^mpo has no task preset for 'CartPole-v1'; it has none\. For any"):
        tasks.find("mpo", "CartPole-v1")
