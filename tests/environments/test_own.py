"""Environments that are named by the code that makes them, `module:attribute`."""

import importlib
import logging
import sys

import gymnasium
import numpy as np
import pytest

from minerva_acme import environments
from minerva_acme.environments import factories, origin, own
from tests.environments import own_modules


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """The current folder, with modules of a user."""
    for name, text in own_modules.MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(own, "_unseeded", set())
    importlib.invalidate_caches()
    yield tmp_path
    for name in own_modules.MODULES:
        sys.modules.pop(name, None)
    gymnasium.registry.pop("Mine-v0", None)


def first(name, seed, **arguments):
    with environments.make(name, seed, **arguments) as environment:
        return environment.reset().observation


@pytest.mark.parametrize(
    "name",
    [
        "my_robot:Robot",
        "my_robot:make",
        "my_robot:SeededLater",
        "my_gym:Walker",
        "my_gym:make",
        "my_gym:Mine-v0",
        "gymnasium/my_gym:Mine-v0",
    ],
)
def test_a_class_or_function_of_either_library_is_made_with_its_seed(name):
    one, again, other = (first(name, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
    environment = environments.make(name, 0)
    assert own.is_seeded(name, environment)
    environments.make_training_environment(name, 0).close()


def test_arguments_reach_the_class():
    assert environments.make("my_robot:Robot", 0, gravity=3.0).gravity == 3.0
    assert environments.make("my_robot:make", 0, gravity=3.0).gravity == 3.0
    environment = environments.make("my_gym:Walker", 0, length=2)
    environment.reset()
    assert [environment.step(0).last() for _ in range(2)] == [False, True]


def test_an_attribute_comes_before_what_gymnasium_has_registered():
    assert type(environments.make("my_gym:Walker", 0).environment).__name__ == "Walker"
    with pytest.raises(ValueError, match="has no 'Walker', and has registered no id"):
        environments.make("gymnasium/my_gym:Walker", 0)


def test_a_batched_environment_is_made_for_a_run_alone_as_it_is(caplog):
    one, again, other = (
        factories.make_for_run("my_batch:pendulums", seed, critic_observations=("x",), number=3)
        for seed in (1, 1, 2)
    )
    assert isinstance(one, environments.BatchedPendulum) and one.num_environments == 3
    assert origin.of(one) == origin.Origin("my_batch:pendulums", {"number": 3})
    first, same, third = (made.reset().newest.tolist() for made in (one, again, other))
    assert first == same != third
    assert not caplog.messages
    factories.make_for_run("my_batch:seedless", 1)
    assert caplog.messages == [
        "`my_batch:seedless` takes no `seed`: its episodes cannot be repeated. Add that argument."
    ]
    for make in (environments.make, environments.make_training_environment):
        with pytest.raises(
            ValueError, match="must make one environment here, got a BatchedPendulum of 4. .* 4$"
        ):
            make("my_batch:pendulums", 0)


def test_an_environment_for_a_run_is_otherwise_the_one_for_training():
    one, other = (
        make("my_robot:Robot", 3) for make in (factories.make_for_run, environments.make_training_environment)
    )
    assert type(one) is type(other) and origin.of(one) == origin.of(other)
    assert one.action_spec() == other.action_spec()
    np.testing.assert_array_equal(one.reset().observation, other.reset().observation)
    with pytest.raises(ValueError, match=r"`seed` must be None or in \[0, 2"):
        factories.make_for_run("my_robot:Robot", -1)


def test_an_environment_without_a_seed_is_made_and_told_of_once(caplog):
    with caplog.at_level(logging.WARNING):
        environment = environments.make("my_robot:Seedless", 0)
        environments.make("my_robot:Seedless", 1)
    said = "`my_robot:Seedless` takes no `seed`: its episodes cannot be repeated. Add that argument."
    assert caplog.messages == [said]
    assert not own.is_seeded("my_robot:Seedless", environment)
    assert own.is_seeded("CartPole-v1", environment)


def test_which_arguments_are_accepted_is_read_from_the_signature():
    assert own.accepts("my_robot:Robot", "gravity") and not own.accepts("my_robot:Robot", "render_mode")
    assert own.accepts("my_gym:make", "anything") and own.accepts("CartPole-v1", "render_mode")


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        (
            "my_robt:Robot",
            {},
            "no module 'my_robt', which `my_robt:Robot` names. Did you mean my_robot:Robot?",
        ),
        (
            "nowhere:Robot",
            {},
            "no module 'nowhere', .* Install its package, run the command in its folder, or",
        ),
        ("./my_robot.py:Robot", {}, "A module has no suffix: my_robot:Robot"),
        ("gym:CartPole-v1", {}, "Gymnasium has CartPole-v1 without a module before it"),
        (
            "needs:X",
            {},
            "`needs:X` cannot be imported: it needs the module 'not_there', which is not installed",
        ),
        (
            "divides:X",
            {},
            r"cannot be imported: ZeroDivisionError: .* \(.*divides.py, line 1\). Correct that; --debug",
        ),
        (
            "my_robot:Robto",
            {},
            r"my_robot \(.*my_robot.py\) has no 'Robto', .* Did you mean my_robot:Robot\?",
        ),
        ("my_gym:Mine", {}, r"has no 'Mine', and has registered no id .* Did you mean my_gym:Mine-v0\?"),
        ("my_robot:zzz", {}, "It has Robot, Seedless, "),
        ("my_robot:robot:walk", {}, r"has no 'robot:walk', and has registered no id"),
        (
            "my_robot:robot",
            {},
            "must be a class or function .*, got an environment, but training and evaluation",
        ),
        ("my_robot:number", {}, "must be a class or function that makes an environment, got 7"),
        (
            "my_robot:nothing",
            {},
            "must make a dm_env or Gymnasium environment, got None. Return one, or let the",
        ),
        ("my_robot:several", {}, "must make one environment, got a CartPoleVectorEnv of several"),
        (
            "my_robot:raises",
            {},
            r"could not be made: KeyError: 'joint 7' \(.*my_robot.py, line \d+\). Correct that",
        ),
        (
            "my_robot:needs_model",
            {},
            "needs more arguments: missing a required argument: 'model'. Give it with --env",
        ),
        (
            "my_robot:Robot",
            {"gravty": 1},
            "`my_robot:Robot` has no argument 'gravty'. Did you mean 'gravity'?",
        ),
        ("my_robot:Robot", {"xyz": 1}, "has no argument 'xyz'. It has seed, gravity"),
        (
            "CartPole-v1",
            {"foo": 1},
            "'CartPole-v1' has no argument of that name: .* unexpected keyword argument 'foo'",
        ),
        ("dm_control/cartpole/swingup", {"foo": 1}, "has no argument of that name: .* 'foo'"),
        ("dm_control/a:b/c", {}, "must be dm_control/<domain>/<task> or an id of Gymnasium's"),
    ],
)
def test_what_makes_no_environment_is_told_in_a_sentence_with_the_way_out(name, arguments, message):
    with pytest.raises(ValueError, match=message):
        environments.make(name, 0, **arguments)
