"""Recording while playing: the adder, and the recorder of a run that may be stopped."""

import os

import dm_env
import numpy as np
import pytest

from minerva_acme import adders, core, datasets, replay, specs, testing
from minerva_acme.replay import base as replay_base
from minerva_acme.replay import layouts
from tests.datasets.conftest import SPEC, Wanderer

ACTION = np.float32([0.5])


@pytest.fixture
def recorded():
    return []


def test_each_episode_is_handed_on_when_it_ends(recorded):
    environment = Wanderer(seed=1)
    adder = datasets.RecordingAdder(recorded.append)
    returns = []
    for _ in range(6):
        timestep = environment.reset()
        adder.add_first(timestep)
        returns.append([])
        while not timestep.last():
            timestep = environment.step(ACTION)
            adder.add(ACTION, timestep, {"log_prob": np.float32(timestep.reward)})
            returns[-1].append(timestep.reward)
        assert len(recorded) == len(returns)
    for episode, rewards in zip(recorded, returns, strict=True):
        assert episode.reward.tolist() == rewards == episode.extras["log_prob"].tolist()
        assert (
            len(np.unique(episode.observation[:, 0])) == len(rewards) + 1
        )  # the environment's array is its own
        assert episode.action.shape == (len(rewards), 1)
    assert {episode.terminated for episode in recorded} == {True, False}
    assert adder.num_inserted == 0


@pytest.mark.parametrize("end", ["reset", "close", "add_first"])
def test_an_episode_that_is_cut_off_is_recorded_and_one_without_a_step_is_not(recorded, end):
    environment = Wanderer(seed=2)
    adder = datasets.RecordingAdder(recorded.append)
    adder.add_first(environment.reset())
    adder.reset()
    assert recorded == []
    adder.add_first(environment.reset())
    adder.add(
        ACTION, environment.step(ACTION)._replace(step_type=dm_env.StepType.MID, discount=np.float32(1))
    )
    getattr(adder, end)(*[environment.reset()] * (end == "add_first"))
    adder.reset()
    ((episode),) = recorded
    assert (episode.num_steps, episode.terminated) == (1, False)


def test_a_discount_that_cannot_be_recorded_is_refused_before_anything_is_added(recorded):
    inner = Inner()
    adder = datasets.RecordingAdder(recorded.append, inner)
    adder.add_first(dm_env.restart(np.zeros(2)))
    with pytest.raises(ValueError, match="got 0.5 at MID"):
        adder.add(ACTION, dm_env.transition(np.float32(1), np.zeros(2), 0.5))
    assert inner.calls == ["add_first"]


class Inner(core.Adder, core.Saveable):
    """Notes its calls, and refuses or holds back if it is told to."""

    num_inserted = 7

    def __init__(self):
        self.calls, self.error, self.state = [], None, "fresh"

    def add_first(self, timestep):
        self.calls.append("add_first")

    def add(self, action, next_timestep, extras=()):
        self.calls.append("add")
        if self.error:
            raise self.error

    def flush(self):
        self.calls.append("flush")

    def reset(self):
        self.calls.append("reset")

    def close(self):
        self.calls.append("close")

    def save(self):
        return self.state

    def restore(self, state):
        self.state = state


def test_the_inner_adder_gets_every_call_and_its_state_is_the_state(recorded):
    inner = Inner()
    adder = datasets.RecordingAdder(recorded.append, inner)
    first, step = dm_env.restart(np.zeros(2)), dm_env.transition(np.float32(1), np.ones(2), 1.0)
    adder.add_first(first)
    adder.add(ACTION, step)
    adder.flush()
    adder.reset()
    adder.close()
    assert inner.calls == ["add_first", "add", "flush", "reset", "close"]
    assert adder.num_inserted == 7
    assert core.save_if_saveable(adder) == "fresh"
    core.restore_if_saved(adder, "restored")
    assert inner.state == "restored"
    assert core.save_if_saveable(datasets.RecordingAdder(recorded.append)) is None


@pytest.mark.parametrize(
    ("error", "num_steps"), [(replay_base.ReplayTimeout("held back"), 2), (ValueError("refused"), 1)]
)
def test_a_step_is_recorded_if_the_inner_adder_has_added_it(recorded, error, num_steps):
    inner = Inner()
    adder = datasets.RecordingAdder(recorded.append, inner)
    adder.add_first(dm_env.restart(np.zeros(2)))
    adder.add(ACTION, dm_env.transition(np.float32(1), np.ones(2), 1.0))
    inner.error = error
    with pytest.raises(type(error)):
        adder.add(ACTION, dm_env.transition(np.float32(2), np.ones(2), 1.0))
    adder.reset()
    assert [episode.num_steps for episode in recorded] == [num_steps]


@pytest.mark.parametrize("again", ["reset", "close"])
def test_an_episode_that_could_not_be_written_is_recorded_when_the_run_is_saved(recorded, again):
    def record(episode):
        if not full:
            return recorded.append(episode)
        raise full.pop()

    full = [OSError("no space left")]
    adder = datasets.RecordingAdder(record, Inner())
    adder.add_first(dm_env.restart(np.zeros(2)))
    with pytest.raises(OSError, match="no space left"):
        adder.add(ACTION, dm_env.termination(np.float32(1), np.ones(2)))
    getattr(adder, again)()
    adder.reset()
    ((episode),) = recorded
    assert (episode.num_steps, episode.terminated) == (1, True)
    full = [specs.SpecError("never")]
    adder.add_first(dm_env.restart(np.zeros(2)))
    with pytest.raises(specs.SpecError):
        adder.add(ACTION, dm_env.termination(np.float32(1), np.ones(2)))
    adder.reset()
    assert len(recorded) == 1


class TestRecordingAdder(testing.AdderConformance):
    @pytest.fixture(autouse=True)
    def _keep_the_stores(self):
        self.stores = []
        yield
        for server, _, _ in self.stores:
            server.close()

    def make_adder(self):
        spec = specs.make_environment_spec(self.make_environment())
        layout = layouts.TransitionLayout(spec, specs.Array((), np.float32, name="log_prob"))
        table = replay.TableConfig(
            name="table",
            signature=layout.signature,
            max_size=1000,
            rate_limiter=replay.MinSize(1),
            sampler=replay.Fifo(),
            max_times_sampled=1,
        )
        server = replay.MemoryServer([table], seed=0)
        client = server.client()
        self.stores.append((server, client, layout))
        inner = adders.NStepTransitionAdder(
            client=client, table="table", layout=layout, n_step=3, discount=0.9
        )
        return datasets.RecordingAdder(lambda episode: None, NamesExtras(inner))

    def read_items(self, adder):
        return [
            item
            for _, client, layout in self.stores
            for item in testing.read_items(client, "table", layout.unpack)
        ]

    def num_items(self, num_steps):
        return num_steps

    def make_environment(self):
        return testing.FakeEnvironment(truncates=True)

    def make_action(self):
        return np.zeros(2, np.float32)

    def make_extras(self):
        return {"log_prob": np.float32(-1.0)}


class NamesExtras(adders.ForkingAdder):
    """Takes the one extra out of its dict."""

    def __init__(self, adder):
        super().__init__([adder])

    def add(self, action, next_timestep, extras=()):
        super().add(action, next_timestep, extras["log_prob"] if isinstance(extras, dict) else extras)


@pytest.fixture
def make_recorder(tmp_path):
    made = []

    def make(name="data"):
        made.append(datasets.Recorder(tmp_path / name, tmp_path / "log", SPEC, settings={"agent": "mine"}))
        return made[-1]

    yield make
    for recorder in made:
        recorder.close()


def test_a_recorder_that_is_resumed_goes_on_behind_the_episodes_of_its_checkpoint(
    tmp_path, make_recorder, make_episode
):
    kept, lost, later = make_episode(3, log_prob=np.ones(3)), make_episode(4), make_episode(5, False)
    recorder = make_recorder()
    recorder.begin(True)
    recorder.record(kept)
    state = testing.through_a_file(recorder.save())
    recorder.record(lost)
    recorder.close()
    resumed = make_recorder()
    resumed.restore(state)
    resumed.begin(True)
    resumed.record(later)
    assert not (tmp_path / "data").exists()
    resumed.finish()
    found = datasets.read(tmp_path / "data")
    assert found.settings == {"agent": "mine"}
    testing.assert_nests_equal([e._asdict() for e in found], [kept._asdict(), later._asdict()])


def test_a_complete_recording_is_written_once_and_again_under_another_name(
    tmp_path, make_recorder, make_episode
):
    recorder = make_recorder()
    recorder.begin(True)
    recorder.record(make_episode())
    recorder.finish()
    state = recorder.save()
    again = make_recorder()
    again.restore(state)
    again.begin(False)  # the run has made all its steps
    again.finish()
    with pytest.raises(ValueError, match="data must be a new folder, but exists"):
        again.begin(True)
    other = make_recorder("other")
    other.restore(state)
    other.begin(True)
    other.finish()
    assert len(datasets.read(tmp_path / "other")) == 1


def test_what_a_checkpoint_has_not_recorded_is_left_out_and_what_is_missing_is_told(
    tmp_path, make_recorder, make_episode, caplog
):
    early, late, new = make_episode(2), make_episode(3), make_episode(4)
    recorder = make_recorder()
    recorder.record(early)
    states = [recorder.save()]
    recorder.record(late)
    states.append(recorder.save())
    for state, kept in ((states[0], [early]), (None, []), (states[1], [early, late]), (states[0], [early])):
        recorder.restore(state)
        recorder.record(new)
        resumed = testing.through_a_file(recorder.save())
        recorder.restore(resumed)
        found = [episode._asdict() for episode in recorder._episodes()]
        testing.assert_nests_equal(found, [episode._asdict() for episode in [*kept, new]])
        assert recorder.save() == resumed
    assert "made without recording: only new episodes" in caplog.text
    (tmp_path / "log").write_bytes(b"")
    with pytest.raises(ValueError, match=r"log must hold the [\d,]+ bytes .* got 0\. Put the file back"):
        recorder.restore(states[1])


def test_a_checkpoint_knows_of_no_episode_that_is_not_on_the_disk(make_recorder, make_episode, monkeypatch):
    synced, fsync = [], os.fsync

    def noted(descriptor):
        fsync(descriptor)
        synced.append(os.fstat(descriptor).st_size)

    recorder = make_recorder()
    recorder.record(make_episode())
    monkeypatch.setattr(os, "fsync", noted)
    ((_, end),) = recorder.save()["spans"]
    assert synced == [end] and end > 0


def test_an_environment_that_cannot_be_recorded_is_refused_at_once(tmp_path):
    spec = SPEC._replace(rewards=(SPEC.rewards,))
    with pytest.raises(ValueError, match="`reward` must be one number to be recorded"):
        datasets.Recorder(tmp_path / "data", tmp_path / "log", spec, {})
    with pytest.raises(ValueError, match=r"`settings\['x'\]` must be a value that JSON can hold"):
        datasets.Recorder(tmp_path / "data", tmp_path / "log", SPEC, {"x": object()})
    assert not (tmp_path / "log").exists()


def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_recorded(tmp_path, make_recorder):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file/data cannot be written: File exists"):
        make_recorder("file/data").begin(True)
    make_recorder("new/folder/data").begin(True)
    assert [path.name for path in (tmp_path / "new").rglob("*")] == ["folder"]


def test_what_cannot_be_written_at_the_end_is_kept_and_the_way_out_is_told(
    tmp_path, make_recorder, make_episode
):
    recorder = make_recorder()
    recorder.begin(True)
    recorder.record(make_episode())
    (tmp_path / "data").touch()
    with pytest.raises(
        ValueError, match="data must be a new folder.* are kept in .*log: .* another `record`"
    ):
        recorder.finish()


def test_a_recording_without_an_episode_says_that_there_is_none(tmp_path, make_recorder, caplog):
    recorder = make_recorder()
    recorder.begin(True)
    recorder.finish()
    assert "no episode was recorded" in caplog.text and not (tmp_path / "data").exists()
