"""`minerva train --dry-run`: settings, memory, disk and time, and no folder."""

import dataclasses
import pathlib
import re
import signal
from typing import Any

import pytest
import torch

from minerva_acme import experiments
from minerva_acme.agents import ppo
from minerva_acme.cli import dry_run

DQN = (
    "train dqn --env CartPole-v1 --batch-size 4 --min-replay-size 16 --samples-per-insert 4 "
    "--critic-layer-sizes 8 --no-dueling --n-step 1 --num-env-steps 1000 --replay memory"
)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """Measures for a tenth of a second, in a folder of the test's own."""
    monkeypatch.setattr(dry_run, "_SECONDS", 0.1)
    monkeypatch.setattr(dry_run, "_MAX_SECONDS", 0.3)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()


@pytest.mark.promise("A dry run")
def test_settings_memory_disk_and_time_are_told_and_nothing_is_left(
    tmp_path: pathlib.Path, call: Any
) -> None:
    status, out, err = call(*DQN.split(), "--dry-run", "--preset", "default", "--discount", "0.9")
    assert status == 0, err
    assert [path.name for path in tmp_path.rglob("*")] == ["temporary"]
    assert "dqn on CartPole-v1, 1,000 steps" in out and re.search(r"Folder: runs\S*/CartPole-v1\S*, new", out)
    for setting in ("discount 0.9", "critic_layer_sizes (8,)", "device cpu", "replay memory", "seed 0"):
        assert setting in out
    assert "A learner step is one update from 4 items of replay." in out
    assert "Memory: Replay of 1,000 items takes" in out  # not of the million that fit
    # LayerNorm MLP of 4 inputs and 8 units, and a head of 2 actions; as many in the target.
    (trained, others) = re.search(r"Networks: (\d+) trained weights and (\d+) others", out).groups()  # type: ignore[union-attr]
    assert trained == others and int(trained) < 300
    size = f"{16 * int(trained) + 4 * int(others):.3g}"
    assert f"take {float(size) / 1000:.3g} KB, without activations" in out
    assert re.search(
        r"Disk: checkpoints take at most [\d.]+ KB, with [\d.]+ KB each; [\d.]+ GB are free", out
    )
    assert re.search(
        r"Time: about \d+:\d\d:\d\d, of which \d+:\d\d:\d\d for 3 evaluations\. .* steps per", out
    )


def test_checkpoints_without_replay_take_less(call: Any) -> None:
    def disk(*flags: str) -> list[float]:
        out = call(*DQN.split(), "--dry-run", *flags)[1]
        found = re.search(r"at most ([\d.]+) KB, with ([\d.]+) KB each", out)
        assert found is not None
        return [float(number) for number in found.groups()]

    _, with_replay = disk()
    most, without = disk("--no-checkpoint-replay", "--checkpoint-keep", "3", "--no-checkpoint-best")
    # 1,000 transitions: twice an observation of 4 and action, reward and discount, of 4 bytes each or more.
    assert with_replay - without > 1_000 * 4 * (2 * 4 + 2) / 1_000
    assert most == pytest.approx(4 * without, rel=0.01)  # the oldest of three stays while a fourth is written


@pytest.mark.parametrize(
    ("words", "items"),
    [
        ("train ppo --num-env-steps 40 --num-environments 8 --rollout-steps 16 --minibatch-size 8", 16),
        (DQN.replace("--num-env-steps 1000", "--num-env-steps 10"), 10),
    ],
)
def test_a_run_shorter_than_its_tables_require_is_shown_too(call: Any, words: str, items: int) -> None:
    status, out, err = call(*words.split(), "--env", "CartPole-v1", "--replay", "memory", "--dry-run")
    assert status == 0, err
    assert f"Memory: Replay of {items} items takes" in out and "Time: " in out


def test_the_time_is_unknown_if_nothing_was_learned(call: Any) -> None:
    words = DQN.replace("--num-env-steps 1000", "--num-env-steps 1e7")
    status, out, _ = call(*words.split(), "--dry-run", "--min-replay-size", "100000")
    assert status == 0 and "Time: unknown: no learner step was made while the speed was measured" in out


@pytest.mark.parametrize("agent", ["dqn", "ppo"])
def test_a_run_that_is_too_short_to_learn_is_described_too(agent: str, call: Any) -> None:
    words = f"train {agent} --env CartPole-v1 --num-env-steps 8 --replay memory --dry-run"
    status, out, err = call(*words.split())
    assert status == 0, err
    assert "Time: unknown: no learner step was made" in out
    assert ("nothing is written to replay in so few steps." in out) == (agent == "ppo")
    assert "Replay of 0 items" not in out


def test_a_signal_ends_a_dry_run_without_a_word_of_saving(
    tmp_path: pathlib.Path, call: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which shells may ignore

    def interrupt(clock: object, progress: experiments.Progress) -> None:
        if progress.phase == "train":
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(dry_run._Clock, "__call__", interrupt)
    try:
        status, out, err = call(*DQN.split(), "--dry-run")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (status, err.splitlines()[-1]) == (130, "minerva: stopped")
    assert "Time:" not in out
    told = [message for message in caplog.messages if message.startswith("SIGINT")]
    assert told == ["SIGINT: stopping after this step; press Ctrl-C again to end now."]
    assert [path.name for path in tmp_path.rglob("*")] == ["temporary"]


def test_a_run_that_goes_on_says_where(tmp_path: pathlib.Path, call: Any) -> None:
    words = DQN.replace("--num-env-steps 1000", "--num-env-steps 40 --directory run --log csv")
    assert call(*words.split())[0] == 0
    before = sorted((tmp_path / "run").rglob("*"))
    status, out, _ = call(*words.replace("--num-env-steps 40", "--num-env-steps 1000").split(), "--dry-run")
    assert status == 0 and "Folder: run, resumed at 40 steps" in out and "for 1 evaluations" in out
    assert sorted((tmp_path / "run").rglob("*")) == before


def test_an_agent_that_cannot_be_trained_there_is_told(tmp_path: pathlib.Path, call: Any) -> None:
    status, _, err = call("train", "sac", "--env", "CartPole-v1", "--dry-run")
    assert status == 2 and "SAC" in err
    assert [path.name for path in tmp_path.rglob("*")] == ["temporary"]


@pytest.mark.reverb
def test_several_processes_are_not_measured(call: Any) -> None:
    words = DQN.replace("--replay memory", "--distributed ray --num-actors 2 --dry-run")
    status, out, _ = call(*words.split())
    assert status == 0 and "Time: not estimated for several processes." in out and "replay reverb" in out


def make_config(num_env_steps: int, **options: Any) -> experiments.ExperimentConfig:
    return experiments.ExperimentConfig(
        builder=ppo.PPOBuilder(ppo.PPOConfig()),
        environment_factory=lambda seed: None,  # type: ignore[arg-type, return-value]
        directory="never-made",
        num_env_steps=num_env_steps,
        **options,
    )


def progress(steps: int, learner_steps: int, phase: str = "train") -> experiments.Progress:
    return experiments.Progress(
        env_steps=steps,
        num_env_steps=100_000,
        learner_steps=learner_steps,
        last_episode_return=None,
        last_evaluation=None,
        phase=phase,
    )


def test_the_estimate_counts_steps_with_learning_and_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_run, "_SECONDS", 9.0)
    monkeypatch.setattr(dry_run, "_MAX_SECONDS", 30.0)
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    clock = dry_run._Clock()
    clock(progress(0, 0, "evaluate"))
    now = 104.0  # two episodes: 2 seconds each
    clock(progress(1, 0))
    now = 105.0  # a thousand fast steps without learning
    clock(progress(1_001, 1))
    now = 112.9
    clock(progress(1_801, 2))
    now = 113.001  # enough
    with pytest.raises(experiments.StopRun):
        clock(progress(1_801, 2))
    # From 105.0 to 112.9 there were 800 steps: 9.875 ms each.
    config = make_config(100_000, evaluation_period=10_000, evaluation_episodes=5)
    described = clock.describe(config, 0)
    # 987.5 s of steps, and 12 evaluations of 5 episodes: 120 s.
    assert described.startswith("about 0:18:28, of which 0:02:00 for 12 evaluations.")
    assert "101 steps per second with learning" in described
    # Half of the steps are left, with 5 evaluations: 493.75 s and 50 s.
    assert clock.describe(config, 50_000).startswith("about 0:09:04, of which 0:00:50 for 5 evaluations.")
    rare = dataclasses.replace(config, evaluation_period=0)
    assert "for 3 evaluations" in clock.describe(rare, 0)


def test_one_long_rollout_is_measured_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_run, "_SECONDS", 9.0)
    monkeypatch.setattr(dry_run, "_MAX_SECONDS", 30.0)
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    clock = dry_run._Clock()
    clock(progress(0, 0))
    now = 20.0  # longer than usual, since there was one learner step only
    clock(progress(1_000, 1))
    now = 30.0
    with pytest.raises(experiments.StopRun):
        clock(progress(1_500, 1))
    assert "50 steps per second" in clock.describe(make_config(10_000), 0)


def test_modules_are_found_wherever_the_networks_hold_them() -> None:
    @dataclasses.dataclass
    class Networks:
        policy: torch.nn.Module
        others: dict[str, Any]

    layers = [torch.nn.Linear(1, 1) for _ in range(4)]
    nested = Networks(layers[0], {"critics": [layers[1], (layers[2],)], "scale": 3.0})
    assert list(dry_run._modules((nested, layers[3]))) == layers


@pytest.mark.parametrize("dry_run_flag", [["--dry-run"], []])
def test_a_batch_that_does_not_fit_is_refused_before_anything_is_made(
    tmp_path: pathlib.Path, call: Any, dry_run_flag: list[str]
) -> None:
    words = [*DQN.split(), "--batch-size", "1000000000", "--directory", "run", *dry_run_flag]
    status, _, err = call(*words)
    assert status == 2 and not (tmp_path / "run").exists()
    assert "`batch_size` must be a number of items that fits into this machine's " in err
    assert "of memory, got 1,000,000,000: a batch takes 8" in err and "Lower it." in err
