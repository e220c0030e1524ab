"""A run's folder has in its name what a resume refuses to change, and nothing else."""

import dataclasses
import pathlib

import pytest

from minerva_acme import results
from minerva_acme.agents import registry
from minerva_acme.cli import parsing, training
from minerva_acme.runs import run_folder, run_names

PPO = registry.AGENTS["ppo"].presets
TRAIN = "ppo --env CartPole-v1 --num-env-steps 9"


def directory_of(text):
    command = parsing.parse(["train", *text.split()])
    return run_names.default_directory(training.describe(command), registry.find(command.agent).presets)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TRAIN, "CartPole-v1/ppo_default-seed0"),
        (f"{TRAIN} --seed 3 --preset control", "CartPole-v1/ppo_control-seed3"),
        (f"{TRAIN} --discount 0.98 --no-clip-value", "CartPole-v1/ppo_default+discount=0.98-seed0"),
        ("ppo --env dm_control/walker/walk --preset task", "dm_control-walker-walk/ppo_control-seed0"),
        (
            "mpo --env dm_control/cartpole/swingup/repeat=4 --critic-layer-sizes 8 9",
            "dm_control-cartpole-swingup-repeat=4/mpo_default+critic_layer_sizes=8-9-seed0",
        ),
        (
            "ppo --env dm_control/walker/walk/pixels,size=64,repeat=8",
            "dm_control-walker-walk-pixels+size=64+repeat=8/ppo_default-seed0",
        ),
        ("bc --dataset data --num-learner-steps 9", "recorded-data/bc_default+dataset=data-seed0"),
        ("td3 --env A-v0 --num-env-steps 9 --from old", "A-v0/td3_default+from_run=old+random_steps=0-seed0"),
        ("ppo --env my_robots.arm:Robot", "my_robots.arm-Robot/ppo_default-seed0"),
        (
            f"{TRAIN} --learning-rate 3.00000001e-4",
            "CartPole-v1/ppo_default+learning_rate=0.000300000001-seed0",
        ),
    ],
)
def test_a_folder_is_named_by_environment_agent_preset_changes_and_seed(text, expected):
    assert directory_of(text) == pathlib.Path("runs", expected)


@pytest.mark.parametrize(
    "options",
    [
        "--num-env-steps 99 --log csv --replay memory --evaluation-period 7 --stop-after-minutes 3",
        "--device cpu --checkpoint-keep 5 --environment-processes --stop-at 400",
        "--preset default --discount 0.99",  # the preset's own value
        "--distributed inline --num-actors 2",
    ],
)
def test_options_of_a_run_which_may_change_are_not_in_its_name(options):
    assert directory_of(f"{TRAIN} {options}") == directory_of(TRAIN)


def test_runs_that_may_not_resume_each_other_have_different_folders():
    base = training.describe(parsing.parse(["train", *TRAIN.split()]))
    others = [
        dataclasses.replace(base, seed=1),
        dataclasses.replace(base, environment="Acrobot-v1"),
        dataclasses.replace(base, environment_settings={"gravity": 1.5}),
        dataclasses.replace(base, environment_settings={"gravity": 2.5}),
    ]
    for field in dataclasses.fields(PPO["default"]):
        value = getattr(PPO["default"], field.name)
        changed = not value if isinstance(value, bool) else 0.123
        if isinstance(value, tuple):  # of sizes, or of no names
            changed = (1, 2, 3) if value else ("some", "names")
        hyperparameters = {**base.hyperparameters, field.name: changed}
        others.append(dataclasses.replace(base, hyperparameters=hyperparameters))
    found = [run_names.default_directory(one, PPO) for one in [base, *others]]
    assert len(set(found)) == len(found) >= 20
    for other in others:
        with pytest.raises(ValueError, match="holds another run"):
            base.check_same_as(other, pathlib.Path("a"))
    assert found[3].parts[1] == "CartPole-v1+gravity=1.5"


def test_a_name_is_that_of_the_nearest_preset_however_the_values_were_given():
    control = dataclasses.asdict(PPO["control"])
    assert run_names.nearest_preset(control, PPO) == ("control", {})
    assert run_names.nearest_preset({**control, "discount": 0.5}, PPO) == ("control", {"discount": 0.5})
    one = {"default": PPO["default"]}
    name, changes = run_names.nearest_preset(control, one)
    assert name == "default" and changes and "discount" not in changes
    assert run_names.nearest_preset({"unknown": None}, PPO) == ("default", {"unknown": None})


def test_many_changes_give_a_folder_of_bounded_length_of_its_own():
    flags = " ".join(
        f"--{name} 0.{number}" for number, name in enumerate(("discount", "gae-lambda", "clip-ratio"), 1)
    )
    flags += f" --policy-layer-sizes {','.join(['64'] * 30)} --value-layer-sizes"
    names = [directory_of(f"{TRAIN} {flags} {size}").name for size in (1, 2)]
    assert len(set(names)) == 2 and all(len(name) == 100 + 9 + 6 for name in names)
    assert names[0].startswith(
        "ppo_default+clip_ratio=0.3+discount=0.1+gae_lambda=0.2+policy_layer_sizes=64-"
    )
    assert names[0].endswith("-8578b24e-seed0")


def test_the_setting_of_an_agent_of_ones_own_has_its_builders_name():
    name = run_names.setting_name(
        "my_package.module:MyBuilder", {"a": 1, "b": (2, 3)}, {"bold": Config()}, c=4
    )
    assert name == "MyBuilder_bold+b=2-3+c=4"


@dataclasses.dataclass(frozen=True)
class Config:
    a: int = 1
    b: tuple[int, ...] = (2,)


def test_long_experiments_can_be_collected_too():
    sizes = [64] * 60
    description = run_folder.RunDescription(
        agent="ppo",
        environment="dm_control/walker/walk/repeat=2",
        seed=0,
        hyperparameters={"policy_layer_sizes": sizes},
    )
    name = run_names.exp_name(description)
    assert results.check_name(name) == name and name.endswith("+repeat=2")
