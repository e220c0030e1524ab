"""What a search varies: declared ranges, ranges of the user, and choices."""

import dataclasses
import pathlib
import re
import typing
from typing import Any

import pytest

from minerva_acme import constraints
from minerva_acme.agents import registry
from minerva_acme.cli import commands, parsing, search_space
from minerva_acme.constraints import Range


def parse(text: str, agent: str = "ppo") -> commands.Sweep:
    base = f"sweep {agent} --env CartPole-v1 --num-env-steps 9 --optuna 3"
    parsed: commands.Sweep = parsing.parse([*base.split(), *text.split()])
    return parsed


def dimensions(text: str, agent: str = "ppo") -> dict[str, search_space.Dimension]:
    return dict(search_space.make_space(parse(text, agent)).dimensions)


@pytest.mark.parametrize("agent", registry.AGENTS)
def test_every_agent_declares_ranges_whose_ends_its_config_accepts(agent: str) -> None:
    entry = registry.find(agent)
    hints = typing.get_type_hints(entry.config, include_extras=True)
    declared = {name: found for name, hint in hints.items() if (found := constraints.search_range(hint))}
    assert len(declared) >= {"bc": 2, "crr": 3, "r2d2": 3}.get(agent, 4) and "discount" in declared
    assert any("learning_rate" in name for name in declared)
    for name, range_ in declared.items():
        default = getattr(entry.presets["default"], name)
        assert range_.low < range_.high and (range_.low > 0 or not range_.log)
        assert name == "entropy_coef" or range_.low <= default <= range_.high
        for end in range_[:2]:  # of the type that the field has
            dataclasses.replace(entry.presets["default"], **{name: type(default)(end)})
    assert set(dimensions("", agent)) == set(declared)


def test_a_range_is_no_condition() -> None:
    assert constraints.search_range(constraints.Positive) is None
    config = registry.find("ppo").config
    assert config(learning_rate=0.5).learning_rate == 0.5


def test_flags_that_are_given_are_not_searched_and_several_values_are_choices() -> None:
    space = search_space.make_space(
        parse("--discount 0.9 --torso tanh layer_norm --preset default control --squash-actions "
              "--no-squash-actions --policy-layer-sizes 8,8 4 --log csv")
    )  # fmt: skip
    assert "discount" not in space.dimensions
    assert space.fixed == (
        ("--num-env-steps", (("--num-env-steps", "9"),)),
        ("--discount", (("--discount", "0.9"),)),
        ("--log", (("--log", "csv"),)),
    )
    assert tuple(space.dimensions["torso"].choices) == ("--torso tanh", "--torso layer_norm")
    assert tuple(space.dimensions["preset"].choices) == ("--preset default", "--preset control")
    assert tuple(space.dimensions["squash_actions"].choices) == ("--squash-actions", "--no-squash-actions")
    assert tuple(space.dimensions["policy_layer_sizes"].choices) == (
        "--policy-layer-sizes 8 8",
        "--policy-layer-sizes 4",
    )
    assert str(space.dimensions["torso"]) == "--torso tanh | --torso layer_norm"
    assert list(space.dimensions) == sorted(space.dimensions)


def test_search_names_the_fields_and_their_ranges() -> None:
    found = dimensions("--search learning-rate num_epochs=2..8 value-coef=1e-2..1:log")
    assert found == {
        "learning_rate": search_space.Dimension(Range(1e-5, 3e-3, log=True)),
        "num_epochs": search_space.Dimension(Range(2, 8), is_whole=True),
        "value_coef": search_space.Dimension(Range(0.01, 1.0, log=True)),
    }
    assert [str(dimension) for dimension in found.values()] == ["1e-05..0.003:log", "2..8", "0.01..1:log"]
    assert found["num_epochs"].ends() == (2, 8) and isinstance(found["num_epochs"].ends()[0], int)


def test_extremes_have_both_ends_and_every_choice() -> None:
    space = search_space.make_space(
        parse("--search num-epochs=2..8 --torso tanh layer_norm --preset control")
    )
    assert list(space.extremes()) == [
        {"num_epochs": 2, "torso": "--torso tanh"},
        {"num_epochs": 8, "torso": "--torso layer_norm"},
    ]


def test_the_runs_of_a_trial_differ_by_the_seed_alone(tmp_path: pathlib.Path) -> None:
    command = parse(f"--seeds 3 4 --search learning-rate --torso tanh layer_norm --directory {tmp_path}")
    space = search_space.make_space(command)
    params = {"learning_rate": 0.00012345678901234567, "torso": "--torso layer_norm"}
    runs = search_space.plan_trial(command, space, 12, params)
    assert [run.train.run.seed for run in runs] == [3, 4]
    assert [run.title for run in runs] == ["trial 12, seed 3", "trial 12, seed 4"]
    assert len({run.directory for run in runs}) == 2
    assert all(run.directory.relative_to(tmp_path).parts[0] == "trial0012" for run in runs)
    for run in runs:
        assert run.train.hyperparameters.learning_rate == params["learning_rate"]  # to the last digit
        assert run.train.hyperparameters.torso == "layer_norm"


def test_the_folder_is_named_after_agent_and_environment() -> None:
    assert search_space.directory_of(parse("")) == pathlib.Path("runs/sweeps/ppo-CartPole-v1-optuna")
    other = parsing.parse(["sweep", "mpo", "--env", "dm_control/cartpole/swingup", "--optuna", "1"])
    assert search_space.directory_of(other).name == "mpo-dm_control-cartpole-swingup-optuna"


MISTAKES: list[tuple[str, str]] = [
    ("--search learning-rat", "There is no setting 'learning-rat'; .* Did you mean 'learning-rate'"),
    ("--search learning-rate=1..", "`search` must be NAME or NAME=LOW..HIGH or .*, got 'learning-rate=1..'"),
    ("--search discount=0.9..high", "must have finite numbers LOW < HIGH, .* got 'discount=0.9..high'"),
    ("--search discount=0.9..0.8", "must have finite numbers LOW < HIGH"),
    ("--search discount=0.9..nan", "must have finite numbers LOW < HIGH"),
    ("--search value-coef=0..1:log", "and LOW > 0 with :log, got 'value-coef=0..1:log'"),
    ("--search torso", "`--torso` is not a number, so it has no range. .* to its flag: --torso"),
    ("--search value-coef", "`--value-coef` declares no range. Give one: --search value-coef=LOW..HIGH"),
    ("--search num-epochs=1.5..3", "`--num-epochs` must be a whole number, got the range 1.5..3"),
    ("--search discount --discount 0.9", "`--discount` must be given either as a flag or in --search"),
    ("--evaluation-period 1 2", "`--evaluation-period` must have one value with --optuna, .* got 2"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_a_mistake_is_told_with_the_way_out(arguments: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        search_space.make_space(parse(arguments))
    assert re.search(message, str(caught.value))


def test_an_agent_without_ranges_says_how_to_give_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(hint: Any) -> None:
        return None

    monkeypatch.setattr(constraints, "search_range", none)
    with pytest.raises(ValueError, match="nothing to search: .* Name one: --search learning-rate="):
        search_space.make_space(parse(""))
