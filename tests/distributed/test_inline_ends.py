"""How a run ends whose nodes fail, in threads: well only with a checkpoint of its last step."""

import errno
import math
import os
import pathlib
import shutil
import signal
import threading
import time
import types
from typing import Any

import dm_env
import pytest

from minerva_acme import distributed, experiments, specs
from minerva_acme.distributed import (
    actor_node,
    counter_node,
    graph,
    inline,
    learner_node,
    reports,
    run,
    supervisor,
)
from minerva_acme.experiments import stopping
from minerva_acme.replay import waiting
from minerva_acme.replay.reverb import ports
from minerva_acme.runs import checkpointing, evaluation
from tests.distributed import small

pytestmark = [pytest.mark.reverb, pytest.mark.timeout(300), pytest.mark.usefixtures("looks_often")]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_MAX_BACKOFF_SECONDS", 0.0)
    monkeypatch.setattr(inline, "_STOP_SECONDS", 0.3)
    monkeypatch.setattr(actor_node, "_CLOSE_SECONDS", 0.1)
    monkeypatch.setattr(learner_node, "_SAVE_PAUSES", (0.01, 0.02, 0.03))
    monkeypatch.setattr(learner_node, "_LAST_PAUSE", 0.01)


def play(config: experiments.ExperimentConfig, *callbacks: Any, num_actors: int = 1) -> Any:
    return distributed.run_distributed_experiment(config, *callbacks, num_actors=num_actors, engine="inline")


def replaced(config: experiments.ExperimentConfig, **changes: Any) -> experiments.ExperimentConfig:
    return experiments.ExperimentConfig(**{**vars(config), **changes})


def make(tmp_path: pathlib.Path, builder: Any, **changes: Any) -> experiments.ExperimentConfig:
    return small.experiment(
        tmp_path,
        builder,
        **(
            {"num_env_steps": 200, "evaluation_period": 0, "checkpoint_period": 0, "checkpoint_best": False}
            | changes
        ),
    )


class FullDisk:
    """Fails so often, from the first save on that is asked for at this number."""

    def __init__(self, first: int, times: int) -> None:
        self.num_saves = 0
        self.failing = range(first, first + times)

    def __call__(self) -> None:
        self.num_saves += 1
        if self.num_saves in self.failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_the_learner_tries_a_save_again_that_has_failed(tmp_path: pathlib.Path) -> None:
    disk = FullDisk(first=1, times=3)
    result = play(make(tmp_path, small.saving_builder(disk)))
    assert disk.num_saves == 4 and result.env_steps == 200
    assert checkpointing.env_steps(checkpointing.find(tmp_path)) == 200


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, looks_often: None) -> pathlib.Path:
    """The folder of a run of 100 steps, without an evaluation."""
    folder = tmp_path_factory.mktemp("made")
    play(make(folder, small.sac_builder(), num_env_steps=100, evaluation_episodes=0))
    return folder


def test_an_evaluation_that_the_checkpoint_lacks_is_saved_where_no_step_is_left(
    tmp_path: pathlib.Path, made: pathlib.Path
) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True, symlinks=True)
    assert evaluation.Evaluations.of(checkpointing.load_state(checkpointing.find(tmp_path))).latest is None
    result = play(make(tmp_path, small.sac_builder(), num_env_steps=100))
    saved = evaluation.Evaluations.of(checkpointing.load_state(checkpointing.find(tmp_path)))
    assert result.after is not None and saved.latest == (result.env_steps, result.after) == (
        100,
        result.after,
    )


def test_a_run_begins_with_a_checkpoint_in_another_folder(tmp_path: pathlib.Path, made: pathlib.Path) -> None:
    more = {"resume_from": checkpointing.find(made), "evaluation_episodes": 0}
    second = play(make(tmp_path / "b", small.sac_builder(), num_env_steps=100, **more))
    assert second.env_steps == 100
    assert checkpointing.latest(tmp_path / "b" / "checkpoints") is None
    third = play(make(tmp_path / "c", small.sac_builder(), num_env_steps=150, **more))
    assert third.env_steps == 150
    assert checkpointing.env_steps(checkpointing.find(tmp_path / "c")) == 150


def test_a_learner_whose_replay_is_away_is_behind_and_asks_without_end_nor_itself(
    tmp_path: pathlib.Path,
) -> None:
    part = make_learner(tmp_path)
    part._finishing.set()
    asked = []

    def should_stop() -> bool:
        asked.append(time.monotonic())
        return part._is_done()

    with waiting.rules(should_stop):
        assert part._is_behind()
    assert asked == []


def make_learner(tmp_path: pathlib.Path) -> Any:
    node = graph.Node(name="learner", factory="m:f")
    return learner_node.LearnerNode(
        graph.Context(node, 0, lambda name: pytest.fail(name), threading.Event()),
        config=make(tmp_path, small.sac_builder().for_actors(1), checkpoint_best=True),
        spec=specs.make_environment_spec(small.Ramp(0)),
        player=checkpointing.Player(1),
        address=f"localhost:{ports.free_port()}",
        resume_from=None,
    )


def test_best_weights_that_cannot_be_kept_end_nothing(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    part = make_learner(tmp_path)
    part._checkpointer = checkpointing.Checkpointer(tmp_path / "checkpoints")
    part._state = fail
    part.keep_best({"latest": (5, ((1.0,), (20,)))}, [])
    part._keep_best()
    assert caplog.messages == [
        "the best weights so far are not kept separately: [Errno 28] No space left on device"
    ]


@pytest.mark.promise("A run succeeds only if its last step is saved")
def test_a_run_whose_last_save_fails_ends_in_a_sentence_with_what_is_left_of_it(
    tmp_path: pathlib.Path,
) -> None:
    disk = FullDisk(first=0, times=0)

    class SlowUntilSaved(small.Ramp):
        """Never stops: a learner hears only of reported steps, and saves only after a learner step."""

        num_steps = 0

        def step(self, action: Any) -> dm_env.TimeStep:
            self.num_steps += 1
            if self.num_steps > 120 and checkpointing.latest(tmp_path / "checkpoints") is None:
                time.sleep(0.05)
            return super().step(action)

    def fill(progress: experiments.Progress) -> None:
        if progress.phase != "train":
            disk.failing = range(1000)

    config = make(
        tmp_path,
        small.saving_builder(disk),
        environment_factory=SlowUntilSaved,
        checkpoint_period=100,
        num_env_steps=300,
    )
    with pytest.raises(distributed.ProgramFailed) as raised:
        play(config, fill)
    newest = checkpointing.find(tmp_path)
    lost = 300 - checkpointing.env_steps(newest)
    assert 0 < lost < 300
    assert str(raised.value) == (
        "The end of the run could not be saved: [Errno 28] No space left on device. The run has made 300 "
        f"environment steps; the newest checkpoint ({newest}) lacks {lost:,} of them."
    )


def test_a_save_that_fails_for_good_ends_the_run_and_learns_nothing_again(
    tmp_path: pathlib.Path,
) -> None:
    disk = FullDisk(first=2, times=100)
    config = make(tmp_path, small.saving_builder(disk), checkpoint_period=100, num_env_steps=100_000)
    with pytest.raises(distributed.ProgramFailed, match=r"No space left.*the newest checkpoint \(.*\) lacks"):
        play(config)
    assert disk.num_saves == 5  # one that did, and four that did not


@pytest.mark.timeout(90)
def test_a_signal_within_the_pauses_of_a_save_that_fails_ends_them(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learner_node, "_SAVE_PAUSES", (100.0,) * 3)
    disk = FullDisk(first=2, times=100)
    sent: list[bool] = []

    def stop_then(progress: experiments.Progress) -> None:
        if disk.num_saves == 2 and not sent:
            sent.append(True)
            os.kill(os.getpid(), signal.SIGINT)

    config = make(tmp_path, small.saving_builder(disk), checkpoint_period=100, num_env_steps=100_000)
    with pytest.raises(distributed.ProgramFailed, match=r"No space left.*the newest checkpoint \(.*\) lacks"):
        play(config, stop_then)
    assert disk.num_saves == 5


def test_an_actor_that_replay_holds_back_ends_when_nothing_will_be_sampled_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(learner_node, "_SAVE_PAUSES", ())
    held_back: list[str] = []
    explain = waiting.Wait.go_on

    def note(self: waiting.Wait, reason: Any) -> None:
        held_back.append(threading.current_thread().name)
        explain(self, reason)

    def fail() -> None:
        while "actor/0" not in held_back:
            time.sleep(0.01)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(waiting.Wait, "go_on", note)
    config = make(tmp_path, small.saving_builder(fail), checkpoint_period=100, num_env_steps=100_000)
    with pytest.raises(distributed.ProgramFailed, match="No space left"):
        play(config)
    assert "actor/0" not in [thread.name for thread in threading.enumerate()]
    assert any("that table 'replay' did not take: they are lost" in message for message in caplog.messages)
    assert not [message for message in caplog.messages if "actor/0" in message]


def test_a_learner_that_dies_in_its_last_save_is_not_passed_over(tmp_path: pathlib.Path) -> None:
    def die() -> None:
        raise RuntimeError("killed")

    with pytest.raises(
        distributed.ProgramFailed,
        match=r"could not be saved: RuntimeError: killed\. The run has made 100 .*\(none yet\) lacks",
    ):
        play(make(tmp_path, small.saving_builder(die), num_env_steps=100))


@pytest.mark.timeout(60)
def test_a_disk_that_is_full_at_the_end_is_not_waited_for_long(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A counter that answers so is not one that is away, for which the run would wait as long as it takes."""
    for node in (run, learner_node):
        monkeypatch.setattr(node, "_COUNTER_SECONDS", math.inf)
    monkeypatch.setattr(run, "_WRITE_SECONDS", 0.1)
    monkeypatch.setattr(reports, "_LAST_SECONDS", 0.1)
    disk, began = FullDisk(first=1, times=100), []

    def fail(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fill(progress: experiments.Progress) -> None:
        if progress.env_steps >= 100 and not began:
            began.append(progress)
            monkeypatch.setattr(counter_node.CounterNode, "_write_journal", fail)
            raise experiments.StopRun("enough")

    with pytest.raises(
        distributed.ProgramFailed,
        match=r"^The counts and logs .* cannot be written: .*No space.* \(none yet\) lacks [\d,]+ of them\.$",
    ):
        play(make(tmp_path, small.saving_builder(disk), num_env_steps=100_000), fill)
    assert disk.num_saves == 4


@pytest.mark.timeout(60)
def test_a_save_that_takes_long_is_waited_for_with_a_message(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(run, "_SAY_SECONDS", 0.0)

    def save() -> None:
        while not any(message.startswith("saving for ") for message in caplog.messages):
            time.sleep(0.01)

    assert play(make(tmp_path, small.saving_builder(save), num_env_steps=100)).env_steps == 100
    assert checkpointing.env_steps(checkpointing.find(tmp_path)) == 100


def test_a_save_that_writes_is_waited_for_and_one_that_does_not_is_left_behind(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_SAVE_SECONDS", 0.0)  # something must have been written at each look
    is_over = threading.Event()
    looks: list[int] = []
    look = run._Run._num_bytes_written

    def write_and_look(self: run._Run) -> int:
        looks.append(look(self))
        file = tmp_path / "checkpoints" / ".replay" / "test" / f"{len(looks)}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"0")
        if len(looks) == 8:
            is_over.set()
        return look(self)

    def hang() -> None:
        is_over.wait(30.0)
        if len(looks) < 8:
            raise RuntimeError("over")

    with monkeypatch.context() as patch:
        patch.setattr(run._Run, "_num_bytes_written", write_and_look)
        assert play(make(tmp_path, small.saving_builder(hang), num_env_steps=100)).env_steps == 100
    assert len(looks) >= 8
    looks.clear()
    is_over.clear()
    monkeypatch.setattr(reports, "_LAST_SECONDS", 0.1)  # the learner's, which nobody hears any more
    with pytest.raises(distributed.ProgramFailed, match="saving took too long. .* lacks 50 of them"):
        play(make(tmp_path, small.saving_builder(hang), num_env_steps=150))
    is_over.set()
    for thread in threading.enumerate():
        if thread.name == "learner":
            thread.join()


def test_what_is_moved_while_it_is_measured_ends_no_save(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / "checkpoints" / ".replay" / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(b"12")
        (folder / "moved").symlink_to("nowhere")
    scan = os.scandir

    def move_and_scan(path: Any) -> Any:
        if pathlib.Path(path) in folders and not (tmp_path / "moved").exists():
            os.rename(path, tmp_path / "moved")
        return scan(path)

    config: Any = types.SimpleNamespace(_config=types.SimpleNamespace(directory=tmp_path))
    with monkeypatch.context() as patch:  # pytest scans too when it removes the folder
        patch.setattr(os, "scandir", move_and_scan)
        assert run._Run._num_bytes_written(config) == 2


def test_a_learner_that_is_being_started_again_at_the_end_saves_first(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    died: list[int] = []

    def die_once() -> None:
        if not died:
            died.append(1)
            raise RuntimeError("killed")

    def stop_then(progress: experiments.Progress) -> None:
        if died:
            raise experiments.StopRun("enough")

    restore, finish = learner_node.LearnerNode._restore, learner_node.LearnerNode.finish
    is_asked = threading.Event()

    def restore_late(self: Any, learner: Any) -> None:
        is_asked.wait(5.0 * len(died))
        restore(self, learner)

    def note(self: Any) -> None:
        finish(self)
        is_asked.set()

    monkeypatch.setattr(learner_node.LearnerNode, "_restore", restore_late)
    monkeypatch.setattr(learner_node.LearnerNode, "finish", note)
    config = make(tmp_path, small.saving_builder(die_once), checkpoint_period=50, num_env_steps=100_000)
    result = play(config, stop_then)
    assert died == [1] and is_asked.is_set() and result.stopped_by == "enough"
    assert checkpointing.env_steps(checkpointing.find(tmp_path)) == result.env_steps


class Broken(small.Ramp):
    """Fails at its second step in all environments but one: by the order in which they are made."""

    num_made = 0
    healthy: tuple[int, ...] = ()
    waits_for = 0  # as many must have been made before a healthy one goes on

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        type(self).num_made += 1
        self._number = self.num_made

    def step(self, action: Any) -> Any:
        if self._step == 2 and self._number not in self.healthy:
            raise RuntimeError("the simulator is gone")
        while self._number in self.healthy[1:] and type(self).num_made < self.waits_for:
            time.sleep(0.01)
        return super().step(action)


def test_an_evaluator_that_is_given_up_is_told_and_does_not_hang_the_run(
    tmp_path: pathlib.Path,
) -> None:
    class Evaluation(Broken):
        pass

    seen: list[experiments.Progress] = []
    config = replaced(
        make(tmp_path, small.sac_builder(), evaluation_period=50), evaluation_environment_factory=Evaluation
    )
    result = play(config, seen.append)
    assert result.env_steps == 200 and result.after is None
    (told,) = result.given_up
    options = {"num_env_steps": result.env_steps, "evaluation_episodes": 1}
    assert stopping.is_complete(checkpointing.find(tmp_path), options)  # no evaluation is left to make
    assert told.startswith("evaluator failed 6 times, the last time: RuntimeError: the simulator is gone")
    assert seen[-1].nodes["evaluator"].startswith("given up: failed 6 times")
    assert checkpointing.env_steps(checkpointing.find(tmp_path)) == 200


def test_a_run_continues_without_an_actor_that_is_given_up_and_makes_all_its_steps(
    tmp_path: pathlib.Path,
) -> None:
    class Training(Broken):
        healthy = (1, 2)  # the first is made for its specs
        waits_for = 2 + 6  # so that the other is given up before this one has made all steps

    config = replaced(make(tmp_path, small.sac_builder()), environment_factory=Training)
    config = replaced(config, evaluation_environment_factory=small.Ramp)
    result = play(config, num_actors=2)
    assert result.env_steps == 200 and len(result.given_up) == 1
    assert checkpointing.env_steps(checkpointing.find(tmp_path)) == 200


def test_a_run_that_learns_from_rounds_of_all_actors_ends_where_one_is_given_up(
    tmp_path: pathlib.Path,
) -> None:
    class Training(Broken):
        healthy = (1,)  # made for its specs; no actor ever plays

    config = replaced(
        make(tmp_path, small.ppo_builder(), num_env_steps=100_000), environment_factory=Training
    )
    config = replaced(config, evaluation_environment_factory=small.Ramp)
    with pytest.raises(distributed.ProgramFailed, match=r"The run needs each actor, but node actor/. failed"):
        play(config, num_actors=2)


@pytest.mark.parametrize("builder", [small.sac_builder(), small.ppo_builder()], ids=["sac", "ppo"])
def test_actors_make_the_steps_of_the_run_and_at_most_one_of_each_environment_more(
    tmp_path: pathlib.Path, builder: Any
) -> None:
    result = play(make(tmp_path, builder, num_env_steps=151), num_actors=3)
    assert 151 <= result.env_steps <= 151 + 3 * (builder.num_environments - 1)


def test_an_error_of_a_callback_surfaces_once_the_run_is_saved(tmp_path: pathlib.Path) -> None:
    def fail(progress: experiments.Progress) -> None:
        if progress.env_steps > 20:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        play(make(tmp_path, small.sac_builder(), num_env_steps=100_000), fail)
    assert checkpointing.env_steps(checkpointing.find(tmp_path)) > 20
