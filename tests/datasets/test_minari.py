"""Recorded episodes on disk, in Minari's layout."""

import json
import os
import subprocess

import numpy as np
import pytest

from minerva_acme import datasets, specs, testing
from minerva_acme.datasets import hdf5, minari, spaces
from tests.datasets.conftest import SPEC

h5py = pytest.importorskip("h5py", reason="h5py is not installed: pip install 'minerva-acme[datasets]'")

NESTED = specs.EnvironmentSpec(
    {
        "image": specs.BoundedArray((4, 3, 1), np.uint8, 0, 255),
        "pair": (specs.Array((), np.float32), [specs.DiscreteArray(3), specs.Array((2,), bool)]),
        "count": specs.Array((1,), np.int32),
    },
    specs.BoundedArray((2,), np.float32, [-1.0, -2.0], [1.0, np.inf]),
    specs.Array((), np.float64),
    SPEC.discounts,
)


def draw(spec, length, random):
    if isinstance(spec, dict):
        return {name: draw(part, length, random) for name, part in spec.items()}
    if isinstance(spec, tuple | list):
        return tuple(draw(part, length, random) for part in spec)
    return random.integers(0, 2, (length, *spec.shape)).astype(spec.dtype)


@pytest.fixture
def nested_episodes():
    random = np.random.default_rng(0)
    return [
        datasets.Episode(
            draw(NESTED.observations, length + 1, random),
            draw(NESTED.actions, length, random),
            random.normal(size=length),
            terminated,
            {"log_prob": random.normal(size=length), "state": (random.normal(size=(length, 2)),)},
        )
        for length, terminated in ((3, True), (1, False))
    ]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "walk-v0"


def test_what_was_written_is_read_bit_for_bit(path, nested_episodes):
    counts = []
    datasets.write(
        path, nested_episodes, NESTED, settings={"agent": "mpo"}, progress=lambda *n: counts.append(n)
    )
    assert counts == [(1, 3), (2, 4)]
    found = datasets.read(path)
    assert (len(found), found.num_steps, found.settings) == (2, 4, {"agent": "mpo"})
    for _ in range(2):  # again each time
        for episode, expected in zip(found, nested_episodes, strict=True):
            testing.assert_nests_equal(episode._asdict(), expected._asdict())
    datasets.check_spec(found.spec, NESTED)
    assert (found.spec.rewards.dtype, found.spec.discounts) == (np.float64, SPEC.discounts)
    assert found.spec.observations["image"] == NESTED.observations["image"].replace(name="observation/image")
    assert os.listdir(path.parent) == ["walk-v0"]
    assert datasets.read(path / "data").num_steps == 4


def test_an_episode_that_cannot_be_learned_from_is_named_and_nothing_is_written(path, make_episode):
    good, bad = make_episode(3), make_episode(3)
    for name, value, what in (("reward", np.nan, "finite"), ("action", 2.0, r"in \[-1, 1\]")):
        wrong = getattr(bad, name).copy()
        wrong[2] = value
        with pytest.raises(
            specs.SpecError, match=rf"{path}, episode 1: `{name}` .* {what}.*{value} at step 2"
        ):
            datasets.write(path, [good, bad._replace(**{name: wrong})], SPEC)
        assert not os.listdir(path.parent)


def test_rewards_that_are_stored_as_whole_numbers_are_read_as_floats(path, make_episode):
    counted = SPEC._replace(rewards=specs.Array((), np.int64))
    datasets.write(path, [make_episode(3)._replace(reward=np.array([-1, 0, 20]))], counted)
    found = datasets.read(path)
    assert found.spec.rewards.dtype == np.float32
    ((episode),) = found
    assert episode.reward.dtype == np.float32 and episode.reward.tolist() == [-1, 0, 20]


def test_the_file_is_laid_out_as_minari_does(path, make_episode):
    log_prob = np.float32([-1.0, -2.0, -3.0])
    datasets.write(path, [make_episode(3, False, log_prob=log_prob), make_episode(2)], SPEC)
    with h5py.File(path / "data" / "main_data.hdf5") as file:
        assert list(file) == ["episode_0", "episode_1"]
        first, second = file["episode_0"], file["episode_1"]
        assert dict(first.attrs) == {"id": 0, "total_steps": 3}
        assert {name: part.shape for name, part in first.items() if name != "infos"} == {
            "observations": (4, 2),
            "actions": (3, 1),
            "rewards": (3,),
            "terminations": (3,),
            "truncations": (3,),
        }
        assert first["terminations"][:].tolist() == [False] * 3
        assert first["truncations"][:].tolist() == [False, False, True]
        assert second["terminations"][:].tolist() == [False, True]
        assert second["truncations"][:].tolist() == [False] * 2
        np.testing.assert_array_equal(first["infos"]["log_prob"], [np.nan, *log_prob])
        assert "infos" not in second
    metadata = json.loads((path / "data" / "metadata.json").read_text())
    box = {"type": "Box", "dtype": "float32", "shape": [2], "low": [-np.inf] * 2, "high": [np.inf] * 2}
    assert json.loads(metadata["observation_space"]) == box
    assert (metadata["dataset_id"], metadata["data_format"]) == ("walk-v0", "hdf5")
    assert (metadata["total_episodes"], metadata["total_steps"]) == (2, 5)


def test_files_are_opened_again_for_every_thousand_episodes(path, make_episode, monkeypatch):
    monkeypatch.setattr(hdf5, "_NESTS_OPEN", 10)
    datasets.write(path, [make_episode(steps) for steps in (1, 2, 3, 4, 5)], SPEC)
    opened, open_file = [], h5py.File
    monkeypatch.setattr(h5py, "File", lambda *args: opened.append(open_file(*args)) or opened[-1])
    recording = datasets.read(path)
    opened.clear()
    assert [episode.num_steps for episode in recording] == [1, 2, 3, 4, 5]
    assert len(opened) == 3 and not any(opened)  # they are closed


def test_a_checksum_is_of_the_data(path, make_episode):
    one, other = make_episode(), make_episode()
    sums = []
    for index, episodes in enumerate(([one], [one], [other])):
        datasets.write(path.with_name(str(index)), episodes, SPEC)
        sums.append(datasets.read(path.with_name(str(index))).checksum())
    assert sums[0] == sums[1] != sums[2]


@pytest.mark.promise("A folder of episodes is complete once it has its name")
def test_nothing_has_the_final_name_before_everything_is_written(path, make_episode):
    with datasets.Writer(path, SPEC) as writer:
        writer.write(make_episode())
        assert os.listdir(path.parent) == [".walk-v0.new"]
    assert os.listdir(path.parent) == ["walk-v0"]
    writer.close()  # again


def test_an_error_leaves_nothing(path, make_episode):
    wrong = make_episode()._replace(action=np.zeros((5, 2), np.float32))
    with pytest.raises(specs.SpecError, match="`action`"):
        datasets.write(path, [make_episode(), wrong], SPEC)
    assert os.listdir(path.parent) == []


@pytest.fixture
def run(nursery):
    """Runs a script in a process of its own; gives its exit status and what it wrote."""
    return lambda script, *arguments: nursery.start(script, *arguments).communicate()


FULL = """
import resource, sys
from tests.datasets import conftest

resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
with conftest.datasets.Writer(sys.argv[1], conftest.SPEC) as writer:
    episode = {"observation": [[0.0] * 2] * 9, "action": [[0.5]] * 8, "reward": [1.0] * 8, "terminated": True}
    while True:
        writer.write(episode)
"""


def test_a_file_that_cannot_grow_is_one_error_and_leaves_nothing(path, run):
    """HDF5 crashes where it closes a file that it could not write."""
    status, said = run(FULL, str(path))
    assert status == 1
    assert "OSError: " in said and "walk-v0 cannot be written: File too large" in said
    assert "Error: " not in said.split("cannot be written")[-1]
    assert os.listdir(path.parent) == []


def test_a_folder_of_no_episodes_is_not_made(path):
    datasets.write(path, [], SPEC)
    assert os.listdir(path.parent) == []


def test_what_a_killed_process_left_is_replaced(path, make_episode):
    datasets.Writer(path, SPEC).write(make_episode())
    datasets.write(path, [make_episode()] * 2, SPEC)
    assert len(datasets.read(path)) == 2


def test_a_folder_that_is_being_written_is_refused_to_a_second_writer(path, make_episode, run):
    with datasets.Writer(path, SPEC) as writer:
        writer.write(make_episode(3))
        with pytest.raises(ValueError, match=r"walk-v0.new must be free, but another"):
            datasets.Writer(path, SPEC)
        code = f"from tests.datasets import conftest as c; c.datasets.Writer({str(path)!r}, c.SPEC)"
        _, said = run(code)
        assert ".walk-v0.new must be free, but another process or `Writer` is writing to it" in said
        writer.write(make_episode(4))
    assert [episode.num_steps for episode in datasets.read(path)] == [3, 4]
    for end in (datasets.Writer.close, datasets.Writer.discard):
        other = datasets.Writer(path.with_name("other"), SPEC)
        end(other)
    assert os.listdir(path.parent) == ["walk-v0"]


def test_a_folder_that_exists_is_never_written_to(path, make_episode):
    path.mkdir()
    with pytest.raises(ValueError, match="walk-v0 must be a new folder, but exists"):
        datasets.Writer(path, SPEC)
    path.rmdir()
    with pytest.raises(ValueError, match="but exists"), datasets.Writer(path, SPEC) as writer:
        writer.write(make_episode())
        path.mkdir()
    assert os.listdir(path.parent) == ["walk-v0"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observations": specs.StringArray(())}, "`observation` must be numbers to be recorded"),
        ({"observations": {"a/b": SPEC.rewards}}, "names without '/'.* got 'a/b'"),
        ({"observations": {"a": {"_index_0": SPEC.rewards}}}, r"`observation\['a'\]` .* got '_index_0'"),
        ({"observations": {1: SPEC.rewards}}, "got 1"),
        ({"rewards": (SPEC.rewards,)}, "`reward` must be one number"),
        ({"rewards": SPEC.observations}, "`reward` must be one number"),
    ],
)
def test_what_the_file_cannot_hold_is_refused_at_once(path, change, message):
    with pytest.raises(ValueError, match=message):
        datasets.Writer(path, SPEC._replace(**change))
    assert os.listdir(path.parent) == []


@pytest.mark.parametrize("value", [np.float32(1), {"x": (1, object())}, {(1, 2): 3}])
def test_settings_that_the_file_cannot_hold_are_refused_at_once_by_name(path, value):
    with pytest.raises(ValueError, match=r"`settings\['lr'\]` must be a value that JSON can hold, .* `str`"):
        datasets.Writer(path, SPEC, settings={"seed": 1, "lr": value})
    assert os.listdir(path.parent) == []


def test_extras_without_names_are_refused(path, make_episode):
    with pytest.raises(ValueError, match="Extras must be a named tuple or a dict .* got ndarray"):
        datasets.write(path, [make_episode()._replace(extras=np.zeros(5))], SPEC)
    with pytest.raises(ValueError, match="names without '/'"):
        datasets.write(path, [make_episode(**{"a/b": np.zeros(5)})], SPEC)


@pytest.mark.parametrize(
    "extras",
    [
        {"x": np.zeros(3)},
        {"x": None},
        {"x": 3.0},
        {"x": np.array(["a"] * 5)},
        {"y": np.zeros(5), "x": {"z": (np.zeros(5), np.zeros(6))}},
        {"y": np.zeros(5), "x/z": np.zeros(5)},
    ],
)
def test_extras_that_are_not_numbers_of_each_step_are_refused(path, make_episode, extras):
    with datasets.Writer(path, SPEC) as writer:
        writer.write(make_episode(2))
        with pytest.raises(
            specs.SpecError, match=r"walk-v0, episode 1: .*(extras\['x'\].* 5 steps|got 'x/z')"
        ):
            writer.write(make_episode(5, **extras))
        writer.write(make_episode(5, y=np.arange(5)))
    assert [episode.num_steps for episode in datasets.read(path)] == [2, 5]
    if "x" in extras:
        with pytest.raises(ValueError, match="5 steps"):
            minari.to_bytes(make_episode(5, **extras))


def test_a_path_without_recorded_episodes_says_what_was_found(path):
    for found in ("nothing", "a folder without them", "a file"):
        with pytest.raises(ValueError, match=f"must be a folder of recorded episodes.* got {found}"):
            datasets.read(path)
        if found == "nothing":
            path.mkdir()
        elif path.is_dir():
            path.rmdir()
            path.touch()


def test_damage_is_told_from_another_layout(path, make_episode):
    datasets.write(path, [make_episode()], SPEC)
    data = path / "data"
    metadata = json.loads((data / "metadata.json").read_text())

    def refuses(match, **changes):
        (data / "metadata.json").write_text(json.dumps({**metadata, **changes}))
        with pytest.raises(ValueError, match=f"walk-v0(, episode 1)? must be whole, .*{match}"):
            list(datasets.read(path))

    refuses("its format must be hdf5, got arrow", data_format="arrow")
    refuses("it must have an episode, got none", total_episodes=0)
    refuses("episode_1", total_episodes=2)
    refuses("space of `observation`", observation_space='{"type": "Graph"}')
    image = spaces.to_json(specs.BoundedArray((64, 64, 3), np.uint8, 0, 255), "observation")
    refuses("got JPEG", observation_space=image, jpeg_encoding=True)
    (data / "metadata.json").write_text("{")
    with pytest.raises(ValueError, match="must be whole"):
        datasets.read(path)
    (data / "metadata.json").write_text(json.dumps(metadata))
    (data / "main_data.hdf5").write_bytes((data / "main_data.hdf5").read_bytes()[:500])
    with pytest.raises(ValueError, match="must be whole"):
        datasets.read(path)


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (
            {"type": "MultiDiscrete", "dtype": "int64", "nvec": [2, 3], "start": [0, 5]},
            specs.BoundedArray((2,), np.int64, [0, 5], [1, 7], name="action"),
        ),
        ({"type": "MultiBinary", "n": 3}, specs.BoundedArray((3,), np.int8, 0, 1, name="action")),
        ({"type": "MultiBinary", "n": [2, 3]}, specs.BoundedArray((2, 3), np.int8, 0, 1, name="action")),
        (
            {"type": "Discrete", "dtype": "int64", "start": 0, "n": 4},
            specs.DiscreteArray(4, dtype=np.int64, name="action"),
        ),
        (
            {"type": "Box", "dtype": "float64", "shape": [1], "low": [-np.inf], "high": [2.0]},
            specs.BoundedArray((1,), np.float64, -np.inf, 2.0, name="action"),
        ),
    ],
)
def test_spaces_of_others_are_read_as_specs(space, expected):
    assert spaces.from_json(json.dumps(space), "action") == expected


def test_what_is_counted_from_another_number_than_0_is_counted_from_0(path):
    spec = SPEC._replace(observations={"a": specs.DiscreteArray(9), "b": (SPEC.observations,)})
    spec = spec._replace(actions=specs.DiscreteArray(9))
    episode = datasets.Episode(
        {"a": np.array([3, 4, 7]), "b": (np.ones((3, 2), np.float32),)}, np.array([5, 7]), np.zeros(2), True
    )
    datasets.write(path, [episode], spec)
    file = path / "data" / "metadata.json"
    metadata = json.loads(file.read_text())
    for name, start in (("observation_space", 3), ("action_space", 5)):
        metadata[name] = metadata[name].replace('"start": 0, "n": 9', f'"start": {start}, "n": 5')
    file.write_text(json.dumps(metadata))
    found = datasets.read(path)
    assert found.spec.actions == specs.DiscreteArray(5, name="action")
    ((read),) = found
    assert (read.observation["a"].tolist(), read.action.tolist()) == ([0, 1, 4], [0, 2])
    np.testing.assert_array_equal(read.observation["b"][0], 1)


def test_a_space_without_a_spec_is_refused():
    for space in ({"type": "Text"}, {}):
        with pytest.raises(ValueError, match="The space of `action` must be made of Box, Discrete"):
            spaces.from_json(json.dumps(space), "action")


def test_an_episode_in_bytes_is_the_same(make_episode):
    import io

    episode = make_episode(4, False, log_prob=np.arange(4.0))
    found = minari.from_bytes(io.BytesIO(minari.to_bytes(episode)))
    testing.assert_nests_equal(found._asdict(), episode._asdict())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda file: file["episode_1/terminations"].write_direct(np.ones(4, bool)), "before the last"),
        (lambda file: file.__delitem__("episode_1/rewards"), "Add reward"),
        (lambda file: file.__delitem__("episode_1"), "episode_1"),
    ],
)
def test_damage_of_an_episode_names_it(path, make_episode, change, message):
    datasets.write(path, [make_episode(4)] * 3, SPEC)
    with h5py.File(path / "data" / "main_data.hdf5", "r+") as file:
        change(file)
    with pytest.raises(ValueError, match=rf"walk-v0, episode 1 must be whole, .*{message}"):
        list(datasets.read(path))


@pytest.mark.parametrize(
    ("name", "found"), [("walk", "walk-v0"), ("walk v2", "walk_v2-v0"), ("walk-v", "walk-v-v0")]
)
def test_a_name_that_minari_does_not_take_is_told_and_gets_a_version(
    tmp_path, make_episode, caplog, name, found
):
    datasets.write(tmp_path / name, [make_episode(3)], SPEC)
    metadata = json.loads((tmp_path / name / "data" / "metadata.json").read_text())
    assert metadata["dataset_id"] == found
    assert f"loads {tmp_path / name} only if its name is like {found}" in caplog.text
    assert len(list(datasets.read(tmp_path / name))) == 1


@pytest.mark.parametrize("name", ["walk-v0", "sub_2-walk-v12"])
def test_a_name_that_minari_takes_is_kept(tmp_path, make_episode, caplog, name):
    datasets.write(tmp_path / name, [make_episode(3)], SPEC)
    assert json.loads((tmp_path / name / "data" / "metadata.json").read_text())["dataset_id"] == name
    assert not caplog.text


MINARI = os.environ.get("MINERVA_MINARI_PYTHON", "")
needs_minari = pytest.mark.skipif(
    not MINARI,
    reason="Minari needs numpy 2, so an environment of its own, with minari[hdf5] and pillow: set "
    "MINERVA_MINARI_PYTHON to its Python",
)

LOADS = """
import minari, numpy as np, sys
dataset = minari.load_dataset("walk-v0")
assert (dataset.total_episodes, dataset.total_steps) == (2, 4)
for episode in dataset.iterate_episodes():
    assert dataset.action_space.contains(episode.actions[0])
    image = episode.observations["image"]
    assert image.dtype == np.uint8 and image.shape == (len(episode) + 1, 4, 3, 1)
    assert dataset.observation_space.contains(
        {"image": image[0], "count": episode.observations["count"][0],
         "pair": (episode.observations["pair"][0][0], tuple(x[0] for x in episode.observations["pair"][1]))}
    ), dataset.observation_space
    assert len(episode.infos["log_prob"]) == len(episode) + 1
print([float(episode.rewards.sum()) for episode in dataset.iterate_episodes()])
print([(bool(e.terminations[-1]), bool(e.truncations[-1])) for e in dataset.iterate_episodes()])
"""

WRITES = """
import minari, numpy as np
from gymnasium import spaces
from minari import EpisodeData
from minari.data_collector import EpisodeBuffer
random = np.random.default_rng(0)
buffers = [
    EpisodeBuffer(
        observations={"x": list(random.normal(size=(n + 1, 2)))}, actions=list(random.integers(0, 3, n)),
        rewards=list(np.arange(n) + 0.5), terminations=[False] * (n - 1) + [n == 3],
        truncations=[False] * (n - 1) + [n != 3], infos={"score": list(np.arange(n + 1.0))},
    )
    for n in (3, 5)
]
minari.create_dataset_from_buffers(
    "theirs-v0", buffers, observation_space=spaces.Dict({"x": spaces.Box(-np.inf, np.inf, (2,), np.float64)}),
    action_space=spaces.Discrete(3), author="a", author_email="b", algorithm_name="c", code_permalink="d",
)
"""


def ask_minari(code, folder):
    environment = {**os.environ, "MINARI_DATASETS_PATH": str(folder)}
    result = subprocess.run(
        [MINARI, "-W", "ignore", "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@needs_minari
def test_minari_itself_loads_our_file(path, nested_episodes):
    datasets.write(path, nested_episodes, NESTED)
    rewards, ends = ask_minari(LOADS, path.parent).splitlines()
    assert rewards == str([float(episode.reward.sum()) for episode in nested_episodes])
    assert ends == "[(True, False), (False, True)]"


@needs_minari
def test_minari_itself_loads_a_folder_without_a_version_by_its_path(path, nested_episodes):
    folder = path.with_name("walk")
    datasets.write(folder, nested_episodes, NESTED)
    code = f"import minari; print(minari.MinariDataset({str(folder / 'data')!r}).total_steps)"
    assert ask_minari(code, folder.parent).strip() == "4"
    folder.rename(path)
    ask_minari(LOADS, path.parent)


@needs_minari
def test_a_file_of_minari_itself_is_read(tmp_path):
    ask_minari(WRITES, tmp_path)
    found = datasets.read(tmp_path / "theirs-v0")
    assert (len(found), found.num_steps, found.settings) == (2, 8, {})
    spec = specs.EnvironmentSpec(
        {"x": specs.Array((2,), np.float32)}, specs.DiscreteArray(3), SPEC.rewards, SPEC.discounts
    )
    datasets.check_spec(found.spec, spec)
    first, second = found
    assert (first.terminated, second.terminated) == (True, False)
    np.testing.assert_array_equal(second.reward, np.arange(5) + 0.5)
    np.testing.assert_array_equal(second.extras["score"], np.arange(5.0) + 1)
    assert first.observation["x"].shape == (4, 2)
