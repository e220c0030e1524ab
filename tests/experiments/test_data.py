"""Runs that record their episodes, and runs that learn from demonstrations too."""

import dataclasses
import shutil

import numpy as np
import pytest

from minerva_acme import datasets, distributed, experiments, replay, specs, testing
from minerva_acme.agents import mpo, ppo, td3
from minerva_acme.experiments import saver
from minerva_acme.runs import checkpointing
from tests.experiments import test_exact_resume as exact

BY_AGE_AND_PRIORITY = exact.MPO_OF_TODAY


def make_config(directory, builder=exact.MPO, **options):
    return exact.make_config(directory, builder, **options)


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """The folder of a run of `exact.NUM_STEPS` steps, and the data that it recorded."""
    folder = tmp_path_factory.mktemp("recorded")
    config = make_config(folder / "run", record=folder / "data", evaluation_period=0, checkpoint_period=90)
    experiments.run_experiment(config)
    return folder


def arrays(replay_folder):
    with np.load(replay_folder / "memory.npz") as stored:
        return {name: stored[name] for name in stored.files if name != "described"}


@pytest.mark.promise("Replay filled from a recording equals the run's own")
def test_a_runs_replay_equals_the_one_that_is_filled_from_what_it_recorded(tmp_path, recording):
    data = datasets.read(recording / "data")
    # Each once, those at the end of the run and before a checkpoint too.
    assert data.num_steps == exact.NUM_STEPS
    assert all({"log_prob", "raw_action"} == set(episode.extras) for episode in data)
    spec = specs.make_environment_spec(exact.Wanderer(0))
    builder = exact.MPO
    tables = builder.make_replay_tables(spec)
    with replay.MemoryServer(tables, seed=0, checkpoint_directory=str(tmp_path)) as server:
        client = server.client()
        with builder.make_adder(client, spec) as adder:
            datasets.play(data, adder, spec=spec, extras_spec=builder.extras_spec(spec))
        filled = arrays(checkpointing.pathlib.Path(client.checkpoint()))
    checkpoint = checkpointing.latest(recording / "run" / "checkpoints")
    online = arrays(checkpointing.replay_folder(checkpoint))
    assert online.keys() == filled.keys()
    for name in online:
        if "times" not in name:  # how often the run has sampled
            np.testing.assert_array_equal(filled[name], online[name], err_msg=name)


def test_a_recording_says_where_it_is_from(recording):
    settings = datasets.read(recording / "data").settings
    assert settings["seed"] == 0
    assert settings["environment"].endswith("Wanderer")
    assert settings["hyperparameters"]["batch_size"] == 4


@pytest.mark.parametrize(
    "builder",
    [BY_AGE_AND_PRIORITY, dataclasses.replace(exact.TD3.config, num_environments=2)],
    ids=["mpo, fading by priority", "td3, prioritised, 2 environments"],
)
def test_a_killed_run_that_records_becomes_the_run_that_was_not(tmp_path, recording, builder):
    builder = builder if isinstance(builder, mpo.MPOBuilder) else td3.TD3Builder(builder)

    def config(folder):
        return make_config(
            folder,
            builder,
            record=tmp_path / f"data_{folder.name}",
            demonstrations=recording / "data",
            final_demonstration_share=0.0,
        )

    straight = tmp_path / "straight"
    kills = exact.Kills(straight, tmp_path)
    experiments.run_experiment(config(straight), kills)
    folder = kills.folders[len(kills.folders) // 2]
    experiments.run_experiment(config(folder))
    exact.assert_equal(folder, straight, builder, exact.Wanderer)
    one, other = (list(datasets.read(tmp_path / f"data_{run.name}")) for run in (folder, straight))
    testing.assert_nests_equal([e._asdict() for e in one], [e._asdict() for e in other])
    assert sum(episode.num_steps for episode in one) == exact.NUM_STEPS * builder.num_environments
    state = checkpointing.load_state(checkpointing.latest(folder / "checkpoints"))["demonstrations"]
    assert state["path"] == str(recording / "data")
    assert state["checksum"] == datasets.read(recording / "data").checksum()


def test_a_run_without_new_steps_leaves_its_recording_alone(tmp_path):
    options = {"evaluation_period": 0, "record": str(tmp_path / "data"), "num_env_steps": 40}
    config = make_config(tmp_path / "run", **options)
    experiments.run_experiment(config)
    experiments.run_experiment(config)
    assert datasets.read(tmp_path / "data").num_steps == 40
    longer = dataclasses.replace(config, num_env_steps=70)
    with pytest.raises(ValueError, match="data must be a new folder, but exists"):
        experiments.run_experiment(longer)
    experiments.run_experiment(dataclasses.replace(longer, record=tmp_path / "longer"))
    assert datasets.read(tmp_path / "longer").num_steps == 70


def test_a_folder_that_exists_is_told_before_anything_is_played(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    config = make_config(tmp_path / "run", record=tmp_path / "data")
    monkeypatch.setattr(exact.Wanderer, "step", lambda self, action: pytest.fail("it began"))
    with pytest.raises(ValueError, match="data must be a new folder, but exists"):
        experiments.run_experiment(config)


@pytest.mark.promise("A refused start leaves `run.json` and the logs as they were")
def test_a_start_that_is_refused_leaves_all_logged_rows(tmp_path):
    config = make_config(tmp_path / "run", num_env_steps=40, record=tmp_path / "data")
    experiments.run_experiment(config)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    logged = {path: path.read_bytes() for path in sorted((tmp_path / "run").glob("*.csv"))}
    assert any(text.count(b"\n") > 1 for text in logged.values())
    with pytest.raises(ValueError, match="must be a new folder"):
        experiments.run_experiment(config)
    assert logged == {path: path.read_bytes() for path in logged}


def test_a_start_that_is_refused_leaves_the_description_that_the_run_is_resumed_by(tmp_path, recording):
    (tmp_path / "data").mkdir()
    config = make_config(tmp_path / "run", num_env_steps=40, demonstrations=recording / "data")
    experiments.run_experiment(config)
    described = (tmp_path / "run" / "run.json").read_text()
    longer = dataclasses.replace(config, num_env_steps=70)
    for options, error in (
        ({"record": str(tmp_path / "data")}, "must be a new folder"),
        ({"demonstrations": str(tmp_path / "data")}, "must be a folder of recorded episodes"),
    ):
        with pytest.raises(ValueError, match=error):
            experiments.run_experiment(dataclasses.replace(longer, **options))
        assert (tmp_path / "run" / "run.json").read_text() == described
    experiments.run_experiment(longer)
    assert (tmp_path / "run" / "run.json").read_text() != described


def test_a_recorded_run_that_has_reached_its_return_may_be_repeated(tmp_path):
    options = {"record": str(tmp_path / "data"), "stop_at": -1e9, "evaluation_period": 30}
    results = [experiments.run_experiment(make_config(tmp_path / "run", **options)) for _ in range(2)]
    assert results[0].stopped_by and results[1].stopped_by
    assert datasets.read(tmp_path / "data").num_steps == results[0].env_steps == results[1].env_steps == 30


def test_what_a_newer_checkpoint_needs_stays_when_an_older_one_is_resumed(tmp_path, monkeypatch):
    options = {"evaluation_period": 0, "checkpoint_period": 20, "checkpoint_keep": 9}
    config = make_config(tmp_path / "run", num_env_steps=60, record=tmp_path / "data", **options)
    experiments.run_experiment(config)
    older, *_, newest = sorted((tmp_path / "run" / "checkpoints").glob("0*"))
    with monkeypatch.context() as patch:
        patch.setattr(saver.Saver, "save", lambda self, **_: None)  # as if it were killed before
        again = {"num_env_steps": 70, "resume_from": older, "record": str(tmp_path / "lost")}
        experiments.run_experiment(dataclasses.replace(config, **again))
    longer = {"num_env_steps": 70, "resume_from": newest, "record": str(tmp_path / "longer")}
    experiments.run_experiment(dataclasses.replace(config, **longer))
    first, lost, whole = (
        [e._asdict() for e in datasets.read(tmp_path / name)] for name in ("data", "lost", "longer")
    )
    assert sum(len(episode["reward"]) for episode in whole) == 70
    # Without a last save, an episode that is still open is not among them.
    assert int(older.name) < sum(len(episode["reward"]) for episode in lost) <= 70
    testing.assert_nests_equal(whole[: len(first)], first)


def test_what_a_run_has_recorded_is_written_until_its_checkpoint(tmp_path):
    options = {"evaluation_period": 0, "checkpoint_period": 20, "checkpoint_keep": 9}
    run, data = tmp_path / "run", tmp_path / "data"
    experiments.run_experiment(make_config(run, num_env_steps=60, record=data, **options))
    with open(run / "recorded.episodes", "r+b") as file:
        first = file.read(500)
        file.seek(0, 2)
        file.write(first)  # as if it were killed while it recorded more
    oldest = min(path.name for path in (run / "checkpoints").glob("0*"))
    experiments.write_recording(run, tmp_path / "all")
    experiments.write_recording(run, tmp_path / "part", checkpoint=run / "checkpoints" / oldest)
    whole, again = ([e._asdict() for e in datasets.read(folder)] for folder in (data, tmp_path / "all"))
    testing.assert_nests_equal(again, whole)
    assert datasets.read(tmp_path / "all").settings == datasets.read(data).settings
    part = [e._asdict() for e in datasets.read(tmp_path / "part")]
    testing.assert_nests_equal(part, whole[: len(part)])
    assert datasets.read(tmp_path / "part").num_steps == int(oldest) < 60
    with pytest.raises(ValueError, match="all must be a new folder, but exists"):
        experiments.write_recording(run, tmp_path / "all")
    experiments.run_experiment(make_config(tmp_path / "other", num_env_steps=20))
    with pytest.raises(
        ValueError, match="other must have recorded its episodes, but its checkpoint has none"
    ):
        experiments.write_recording(tmp_path / "other", tmp_path / "none")


def test_a_run_that_is_stopped_by_a_callback_has_ended_and_writes_its_recording(tmp_path):
    def stop(progress):
        if progress.env_steps == 25:
            raise experiments.StopRun("enough")

    experiments.run_experiment(make_config(tmp_path / "run", record=tmp_path / "data"), stop)
    assert datasets.read(tmp_path / "data").num_steps == 25


class SharesSeen(mpo.MPOBuilder):
    """Notes how many items of each batch are demonstrations, after how many environment steps, and the share
    of the run that is done for its schedules."""

    def make_dataset(self, client, spec, device):
        for sample in super().make_dataset(client, spec, device):
            num_env_steps = int(self.counter.get_counts()["actor_steps"])
            from_data = int((sample.info.key >= 1 << 63).sum())
            self.seen.append((num_env_steps, from_data, self.share_done(len(self.seen))))
            yield sample

    def make_learner(self, parts):
        self.counter, self.share_done = parts.counter, parts.share_done
        return super().make_learner(parts)


@pytest.mark.parametrize("length", [1, 3])
def test_shares_and_schedules_change_until_the_end_however_short_episodes_are(tmp_path, recording, length):
    # Each episode has a sequence, however few of the 8 steps of a period it has.
    config = dataclasses.replace(exact.MPO.config, sequence_length=8, sequence_period=8, min_replay_size=4)
    builder, num_steps = SharesSeen(config), 60
    builder.seen = []
    options = {"demonstrations": str(recording / "data"), "final_demonstration_share": 0.0}
    result = experiments.run_experiment(
        make_config(
            tmp_path,
            builder,
            num_env_steps=num_steps,
            environment_factory=lambda seed: exact.Wanderer(seed, limit=length),
            evaluation_period=0,
            evaluation_episodes=0,
            **options,
        )
    )
    assert result.learner_steps == len(builder.seen) > 1.5 * builder.num_learner_steps(num_steps)
    steps, from_data, done = zip(*builder.seen, strict=True)
    assert from_data == tuple(round(2 - 2 * step / num_steps) for step in steps)
    assert set(from_data) == {0, 1, 2}
    assert all(share <= step / num_steps for step, share in zip(steps, done, strict=True))
    assert 0.7 < done[-2] < 1.0 and sorted(done) == list(done)


def test_the_share_falls_by_environment_steps_and_no_demonstration_sets_the_pace(tmp_path, recording):
    results = {}
    for name, options in (
        ("without", {}),
        ("with", {"demonstrations": str(recording / "data"), "final_demonstration_share": 0.0}),
    ):
        builder = SharesSeen(dataclasses.replace(exact.MPO.config, min_replay_size=5))
        builder.seen = []
        config = make_config(tmp_path / name, builder, evaluation_period=0, **options)
        results[name] = experiments.run_experiment(config), builder.seen
    (without, _), (result, seen) = results["without"], results["with"]
    assert result.learner_steps == without.learner_steps == len(seen) > 5
    assert all(share == round((0.5 - 0.5 * steps / exact.NUM_STEPS) * 4) for steps, share, _ in seen)
    assert seen[0][1] == 2 and seen[-1][1] == 0
    inserted = [
        checkpointing.load_state(checkpointing.latest(tmp_path / name / "checkpoints"))["inserted"]
        for name in results
    ]
    assert inserted[0] == inserted[1]


def test_demonstrations_that_have_changed_are_told_when_a_run_is_resumed(tmp_path, recording):
    datasets.write(tmp_path / "other", list(datasets.read(recording / "data"))[:3], exact.Wanderer(0)._specs)
    config = make_config(
        tmp_path / "run", demonstrations=recording / "data", num_env_steps=60, evaluation_period=0
    )
    experiments.run_experiment(config)
    changed = dataclasses.replace(config, demonstrations=tmp_path / "other", num_env_steps=90)
    with pytest.raises(
        ValueError, match="Recorded episodes must have the checksum [0-9a-f]{12} of .*data, got"
    ):
        experiments.run_experiment(changed)
    for changes, named in (
        ({"demonstrations": None}, "demonstrations is"),
        ({"demonstration_share": 0.2}, "share is 0.5"),
    ):
        with pytest.raises(ValueError, match=f"holds another run: .*{named}"):
            experiments.run_experiment(dataclasses.replace(config, num_env_steps=90, **changes))
    moved = shutil.copytree(recording / "data", tmp_path / "moved")
    experiments.run_experiment(dataclasses.replace(changed, demonstrations=f"{moved}/"))


@pytest.mark.parametrize("name", ["record", "demonstrations"])
def test_what_needs_a_run_in_one_process_that_plays_is_refused_elsewhere(tmp_path, name):
    with pytest.raises(ValueError, match=f"`{name}` must be None in a run that makes no environment steps"):
        experiments.RunOptions(num_env_steps=0, num_learner_steps=1, **{name: "data"})
    config = make_config(tmp_path / "run", replay="auto", **{name: "data"})
    with pytest.raises(ValueError, match=f"`{name}` must be None for a distributed run, got 'data'"):
        distributed.run_distributed_experiment(config, num_actors=1)


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_is_between_0_and_1(share):
    for name in ("demonstration_share", "final_demonstration_share"):
        with pytest.raises(ValueError, match=rf"`{name}` must be in \[0, 1\]"):
            experiments.RunOptions(num_env_steps=1, **{name: share})


def test_an_agent_that_learns_from_each_item_once_has_no_demonstrations(tmp_path, recording):
    config = make_config(tmp_path / "run", exact.make_ppo(1), demonstrations=recording / "data")
    with pytest.raises(ValueError, match="is a queue, whose items are learned from once"):
        experiments.run_experiment(config)


def test_an_on_policy_agent_is_recorded_with_its_log_probabilities(tmp_path):
    config = make_config(tmp_path / "run", exact.make_ppo(2), record=tmp_path / "data", num_env_steps=56)
    assert isinstance(config.builder, ppo.PPOBuilder)
    experiments.run_experiment(config)
    recorded = datasets.read(tmp_path / "data")
    assert recorded.num_steps == 56
    assert all(np.isfinite(episode.extras["log_prob"]).all() for episode in recorded)


def test_without_h5py_both_options_say_how_to_install_it(monkeypatch):
    from minerva_acme.runs import options

    monkeypatch.setattr(options.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"`record` needs h5py.* pip install 'minerva-acme\[datasets\]'"):
        experiments.RunOptions(num_env_steps=1, record="data")
