import contextlib
import json
import sys

import numpy as np
import pytest
import safetensors.numpy

import minerva_acme
from minerva_acme import environments, experiments, results, runs
from minerva_acme.agents import ppo
from minerva_acme.runs import policies, verification

NAME = "ppo_default:CartPole-v1"  # installed with the library


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of a policy that is too small to be good."""
    config = ppo.PPOConfig(
        num_environments=1,
        rollout_steps=64,
        minibatch_size=32,
        policy_layer_sizes=(32, 32),
        value_layer_sizes=(4,),
    )
    directory = tmp_path_factory.mktemp("run") / "run"
    experiments.run_experiment(
        experiments.ExperimentConfig(
            builder=ppo.PPOBuilder(config),
            environment_factory=lambda seed: environments.make_training_environment("CartPole-v1", seed=seed),
            directory=directory,
            num_env_steps=128,
            evaluation_period=0,
            evaluation_episodes=1,
            seed=3,
            replay="memory",
            tensorboard=False,
        )
    )
    return directory


@pytest.fixture
def file(run, tmp_path):
    """Its weights in float16, with a score."""
    path = tmp_path / "policy.safetensors"
    runs.export_policy(run, path, half=True)
    verification.score(run, path, 5)
    return path


def test_weights_in_half_the_size_give_the_policy_of_the_rounded_weights(run, tmp_path):
    whole, half = tmp_path / "whole.safetensors", tmp_path / "half.safetensors"
    runs.export_policy(run, whole)
    runs.export_policy(run, half, half=True)
    full, rounded = safetensors.numpy.load_file(whole), safetensors.numpy.load_file(half)
    halved = [name for name in full if rounded[name].dtype == np.float16]
    assert len(halved) >= 6 and all(full[name].dtype == np.float32 for name in halved)
    assert sum(map(np.size, rounded.values())) == sum(map(np.size, full.values()))
    assert half.stat().st_size < 0.8 * whole.stat().st_size
    policy, own = minerva_acme.load_policy(half), minerva_acme.load_policy(run)
    builder = policies.find(half).description.make_builder()
    own.set_variables(
        [
            {
                name.removeprefix(f"{part}."): rounded[name].astype(full[name].dtype)
                for name in full
                if name.startswith(f"{part}.")
            }
            for part in builder.policy_variables
        ]
    )
    observations = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    np.testing.assert_array_equal(policy.batch(observations).action, own.batch(observations).action)


def test_numbers_that_float16_cannot_hold_stay_as_they_are():
    counts, ids = np.array([1.0, 7e4], np.float32), np.array([1, 70_000])
    assert policies._halved(counts) is counts and policies._halved(ids) is ids
    assert policies._halved(np.zeros((0, 3), np.float32)).dtype == np.float16
    with pytest.raises(ValueError, match="`half` must be False if `format` is pt2"):
        runs.export_policy("nowhere", "policy.pt2", format="pt2", half=True)


@pytest.mark.promise("Trained weights")
def test_weights_reach_their_score_again_to_the_digit_in_the_same_episodes(file):
    stored = policies.find(file).score
    assert stored.seed == 10_003 and stored.num_episodes == 5
    verdict = verification.verify(file)
    assert verdict.stored == stored and verdict.is_same
    assert (verdict.played.mean, verdict.played.std) == (stored.mean, stored.std)
    # Other initial states, and more of them.
    other = verification.verify(file, num_episodes=7, seed=1)
    assert len(other.played.returns) == 7 and other.played.returns[:5] != verdict.played.returns


def test_a_wrong_score_is_found_unless_the_tolerance_explains_it(file, call_minerva):
    stored = verification.verify(file).stored
    policies.note_score(file, stored._replace(mean=stored.mean + 60.0))
    verdict = verification.verify(file)
    error = 3 * np.hypot(stored.std, stored.std) / np.sqrt(4)
    assert verdict.tolerance == pytest.approx(error + stored.rounding + 0.005 * (stored.mean + 60.0))
    assert verdict.tolerance < 60.0 and not verdict.is_same
    status, out = call_minerva("verify", file)
    assert status == 1 and "DIFFERS" in out and " same " not in out
    policies.note_score(file, stored._replace(mean=stored.mean + 60.0, rounding=60.0))
    assert verification.verify(file).is_same


def test_rounding_is_by_how_much_the_runs_own_weights_play_otherwise(run, file):
    # Weights of zero always choose the same action.
    tensors = {name: np.zeros_like(value) for name, value in safetensors.numpy.load_file(file).items()}
    with safetensors.safe_open(file, "numpy") as content:
        metadata = content.metadata()
    safetensors.numpy.save_file(tensors, file, metadata)
    noted = verification.score(run, file, 5)
    builder = policies.find(run).description.make_builder()
    with contextlib.closing(
        environments.make_training_environment("CartPole-v1", seed=10_003)
    ) as environment:
        own = runs.evaluate_checkpoint(run, builder, environment, 5)
    assert noted.rounding == abs(noted.mean - own.mean) > 1.0


@pytest.mark.parametrize("number", [0, 1])
def test_one_episode_is_no_score(run, file, number):
    for act in (
        lambda: verification.score(run, file, number),
        lambda: verification.verify(file, num_episodes=number),
    ):
        with pytest.raises(ValueError, match=f"`episodes` must be >= 2, got {number}"):
            act()


def test_weights_without_a_score_cannot_be_verified(run, tmp_path):
    runs.export_policy(run, tmp_path / "a.safetensors")
    with pytest.raises(
        ValueError, match=r"a\.safetensors must have a score .* minerva export RUN --episodes"
    ):
        verification.verify(tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match="run must have a score"):
        verification.verify(run)


@pytest.fixture
def call_minerva(capsys):
    from minerva_acme.cli import main

    def call(*arguments):
        status = main([*map(str, arguments)])
        return status, " ".join("".join(capsys.readouterr()).split())

    return call


def test_an_environment_whose_package_is_missing_is_said_and_others_are_played(
    file, tmp_path, monkeypatch, call_minerva
):
    with safetensors.safe_open(file, "numpy") as content:
        metadata = content.metadata()
    described = {**json.loads(metadata["minerva_acme"]), "environment": "LunarLander-v3"}
    metadata["minerva_acme"] = json.dumps(described)
    safetensors.numpy.save_file(safetensors.numpy.load_file(file), tmp_path / "lander.safetensors", metadata)
    monkeypatch.setitem(sys.modules, "Box2D", None)
    status, out = call_minerva("verify", tmp_path / "lander.safetensors", file)
    assert status == 1 and "not played" in out and " same " in out
    assert "lander.safetensors could not be played: 'LunarLander-v3' needs" in out


def test_stored_weights_are_verified_by_experiment_environment_or_both(call_minerva):
    for words in ([NAME], ["ppo_default", "CartPole-v1"], ["gymnasium/CartPole-v1"]):
        status, out = call_minerva("verify", *words, "--episodes", 2)
        assert status == 0 and out.count(" same") == 1 and "ppo_default:CartPole-v1" in out
    assert call_minerva("verify", "ppo_defalt") == (
        2,
        "minerva: There is no stored experiment, environment or file 'ppo_defalt'; there are "
        f"{', '.join(sorted({part for name in results.list_weights() for part in name.split(':')}))}, "
        f"{', '.join(results.list_weights())}. Did you mean 'ppo_default'?",
    )


def test_stored_weights_have_a_name_for_loading_and_playing(call_minerva):
    policy = minerva_acme.load_policy(NAME)
    assert policy(np.zeros(4, np.float32)).action in (0, 1)
    status, out = call_minerva("eval", NAME, "--episodes", 1)
    assert status == 0 and "ppo on CartPole-v1, 100,000 environment steps: return 500.00" in out
    with pytest.raises(
        ValueError, match="There are no weights 'ppo:CartPole-v1' in the library; it has .*" + NAME
    ):
        minerva_acme.load_policy("ppo:CartPole-v1")


def test_a_run_is_exported_with_its_score(run, tmp_path, call_minerva):
    file = tmp_path / "a.safetensors"
    status, out = call_minerva("export", run, "--half", "--episodes", 3, "--output", file)
    assert status == 0 and "over 3 episodes from unseen initial states" in out
    assert call_minerva("verify", file)[0] == 0


def test_everything_that_is_stored_is_chosen_unless_words_say_which(tmp_path):
    from minerva_acme.cli import verify

    known = {name: tmp_path / str(place) for place, name in enumerate(["a:x", "a:d/y", "b:x"])}
    (tmp_path / "file").touch()
    assert [*verify.choose([], known)] == ["a:x", "a:d/y", "b:x"]
    assert [*verify.choose(["x"], known)] == ["a:x", "b:x"]
    assert [*verify.choose(["a", "x", "d/y"], known)] == ["a:x", "a:d/y"]
    assert [*verify.choose(["b:x", str(tmp_path / "file")], known)] == ["b:x", str(tmp_path / "file")]
    with pytest.raises(ValueError, match=r"no weights of b in d/y; the stored ones are a:x, a:d/y, b:x\."):
        verify.choose(["b", "d/y"], known)
