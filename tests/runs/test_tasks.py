import math

import gymnasium
import pytest

from minerva_acme import environments, results
from minerva_acme.agents import ppo, registry
from minerva_acme.runs import tasks

ENTRY = """
[[task]]
agent = "ppo"
environment = "CartPole-v1"
preset = "control"
num_env_steps = 1_000
settings = { gae_lambda = 0.9, policy_layer_sizes = [32, 16], anneal_learning_rate = false }
"""
NAME = "ppo_control+anneal_learning_rate=false+gae_lambda=0.9+policy_layer_sizes=32-16"


def rows_of(env_name="CartPole-v1", env_step=1_000, exp_name=NAME, **scores):
    """Rows of runs' scores and their standard deviations, by `seed3` and so on."""
    return [
        results.Row(exp_name, env_name, int(seed.removeprefix("seed")), metric, env_step, value)
        for seed, values in scores.items()
        for metric, value in zip(("final_return", "final_return_std"), values, strict=True)
    ]


ROWS = rows_of(seed7=(20.0, 2.0), seed3=(10.0, 1.5), seed4=(40.0, 0.0))


def test_an_entry_of_the_file_changes_its_preset_by_its_settings():
    for task in tasks.load():
        config, agent = task.make_config(), registry.AGENTS[task.agent]
        assert type(config) is agent.config, task
        preset = vars(agent.presets[task.preset])
        differing = {name for name, value in preset.items() if getattr(config, name) != value}
        assert differing == set(task.settings), task  # a setting that changes nothing would mislead


def test_an_entry_of_the_file_says_how_long_it_trains_and_what_came_of_it():
    for task in tasks.load():
        assert type(task.num_env_steps) is int and task.num_env_steps >= 1, task
        seeds = [run.seed for run in task.runs]
        assert seeds and len(set(seeds)) == len(seeds), task
        assert all(type(seed) is int and seed >= 0 for seed in seeds), task
        assert all(math.isfinite(run.score) and 0.0 <= run.std < math.inf for run in task.runs), task


def test_no_two_entries_of_the_file_are_of_one_agent_and_environment():
    pairs = [(task.agent, task.environment) for task in tasks.load()]
    assert len(set(pairs)) == len(pairs)


def test_a_key_that_is_missing_or_unknown_is_an_error():
    for wrong in (ENTRY.replace("preset", "presets"), ENTRY.replace("num_env_steps = 1_000", "")):
        with pytest.raises(TypeError, match="preset|num_env_steps"):
            tasks.parse(wrong, ROWS)


def test_an_entry_of_the_file_is_of_an_environment_that_there_is():
    assert {task.environment for task in tasks.load()} <= {*environments.list_environments()}


def test_an_entry_of_the_file_is_found_by_its_agent_and_environment():
    for task in tasks.load():
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
    (task,) = tasks.parse(ENTRY, ROWS)
    assert task.make_config() == ppo.PPOConfig(
        num_environments=4,
        rollout_steps=4096,
        minibatch_size=128,
        gae_lambda=0.9,
        policy_layer_sizes=(32, 16),
        anneal_learning_rate=False,
    )
    assert task.exp_name == NAME
    assert task.runs == (tasks.Run(3, 10.0, 1.5), tasks.Run(4, 40.0, 0.0), tasks.Run(7, 20.0, 2.0))
    assert task.mean == pytest.approx(70 / 3)
    assert task.median == 20.0
    assert task.command(5) == (
        "minerva train ppo --env CartPole-v1 --preset control --gae-lambda 0.9 --policy-layer-sizes 32 16 "
        "--no-anneal-learning-rate --num-env-steps 1000 --seed 5"
    )


def test_an_entry_has_no_runs_of_other_settings_environments_or_lengths():
    one = (5.0, 0.5)
    others = rows_of("CartPole-v0", seed0=one) + rows_of(env_step=999, seed1=one)
    others += rows_of(exp_name="ppo_control", seed2=one)
    others.append(results.Row(NAME, "CartPole-v1", 8, "avg_return", 1_000, 3.0))
    (task,) = tasks.parse(ENTRY, [*others, *ROWS])
    assert [run.seed for run in task.runs] == [3, 4, 7]


def test_an_entry_that_repeats_actions_has_runs_at_its_decisions_in_frames():
    swingup = "dm_control/cartpole/swingup"
    entry = ENTRY.replace("CartPole-v1", f"{swingup}/repeat=4")
    name = results.with_repeat(NAME, 4)
    rows = [
        *rows_of(swingup, 4_000, name, seed0=(1.0, 0.5)),
        *rows_of(swingup, 1_000, name, seed1=(2.0, 0.5)),
        *rows_of(swingup, 4_000, seed2=(3.0, 0.5)),
    ]
    (task,) = tasks.parse(entry, rows)
    assert [run.seed for run in task.runs] == [0]


def test_an_entry_cannot_be_changed_behind_its_readers():
    (task,) = tasks.parse(ENTRY, ROWS)
    with pytest.raises(TypeError, match="does not support item assignment"):
        task.settings["gae_lambda"] = 0.5


@pytest.fixture
def known(monkeypatch):
    """These entries instead of the file's."""
    text = ENTRY + ENTRY.replace("CartPole-v1", "dm_control/walker/walk")
    monkeypatch.setattr(tasks, "load", lambda: tasks.parse(text, ROWS))


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
        "For any environment there are the presets default, control, memory, minerva."
    )


def test_an_agent_without_entries_says_so(known):
    with pytest.raises(ValueError, match=r"^mpo has no task preset for 'CartPole-v1'; it has none\. For any"):
        tasks.find("mpo", "CartPole-v1")
