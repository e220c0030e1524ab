"""What a hostile HDF5 file says of itself is not believed: it ends in one line, in little memory and time."""

import os

import numpy as np
import pytest

from minerva_acme import datasets
from minerva_acme.datasets import hdf5
from tests.datasets.conftest import SPEC

h5py = pytest.importorskip("h5py", reason="h5py is not installed: pip install 'minerva-acme[datasets]'")

BILLION = 10**9


@pytest.fixture
def path(tmp_path):
    return tmp_path / "walk-v0"


def replace(group, name, **settings):
    """Puts an array that is not written in the place of one."""
    shape = settings.pop("shape", (BILLION, *group[name].shape[1:]))
    dtype = group[name].dtype
    del group[name]
    return group.create_dataset(name, shape, dtype, **settings)


def sparse(file):
    replace(file["episode_0"], "observations", chunks=(1000, 2))


def sparse_and_small(file):
    replace(file["episode_0"], "rewards", shape=(4,), chunks=(4,))


def contiguous_without_data(file):
    replace(file["episode_0"], "observations")


def sparse_and_compressed(file):
    replace(file["episode_0"], "observations", chunks=(1000, 2), compression="gzip")


def bomb(file):
    array = replace(file["episode_0"], "observations", chunks=(2**16, 2), compression="gzip")
    array[: 2**16] = np.zeros((2**16, *array.shape[1:]))


def external_storage(file):
    replace(file["episode_0"], "rewards", shape=(4,), external=[("/dev/zero", 0, h5py.h5f.UNLIMITED)])


def virtual(file):
    layout = h5py.VirtualLayout(shape=(4,), dtype="f4")
    layout[:] = h5py.VirtualSource("elsewhere.hdf5", "x", shape=(4,))
    del file["episode_0/rewards"]
    file["episode_0"].create_virtual_dataset("rewards", layout)


def external_link(file):
    del file["episode_0/rewards"]
    file["episode_0/rewards"] = h5py.ExternalLink("pipe", "/x")


def external_link_to_an_episode(file):
    del file["episode_0"]
    file["episode_0"] = h5py.ExternalLink("pipe", "/x")


def soft_link(file):
    del file["episode_0/rewards"]
    file["episode_0/rewards"] = h5py.SoftLink("/episode_1/rewards")


def group_that_contains_itself(file):
    del file["episode_0/infos"]
    file["episode_0/infos"] = file["episode_0"]


def groups_that_share_their_parts(file):
    del file["episode_0/infos"]
    group = file["episode_0"].create_group("infos")
    for _ in range(40):
        inner = group.create_group("a")
        group["b"] = inner
        group = inner


def deep_groups(file):
    del file["episode_0/infos"]
    name = "/".join(["infos", *"a" * 1000])
    file["episode_0"].create_group(name)


def references(file):
    del file["episode_0/rewards"]
    file["episode_0"].create_dataset("rewards", (4,), h5py.ref_dtype)[:] = file["episode_1"].ref


def arrays_of_any_length(file):
    file["episode_0/infos"].create_dataset("y", (5,), h5py.vlen_dtype(np.float32))


def array_without_a_shape(file):
    del file["episode_0/rewards"]
    file["episode_0/rewards"] = h5py.Empty("f4")


def array_in_place_of_an_episode(file):
    del file["episode_0"]
    file["episode_0"] = np.zeros(3)


HOSTILE = {
    sparse: "must hold its 8,000,000,000 bytes, got 0",
    sparse_and_small: "must hold its 16 bytes, got 0",
    contiguous_without_data: "must hold its 8,000,000,000 bytes, got 0",
    sparse_and_compressed: "must hold its 8,000,000,000 bytes, got 0",
    bomb: "at most 1 GB may be unpacked, got 8 GB more in /episode_0/observations.*--max-unpacked-gigabytes",
    external_storage: "must be in the file itself, got another file",
    virtual: "must be in the file itself, got another file",
    external_link: "'rewards' in /episode_0 must be in the file itself, got a link",
    external_link_to_an_episode: "'episode_0' in / must be in the file itself, got a link",
    soft_link: "'rewards' in /episode_0 must be in the file itself, got a link",
    group_that_contains_itself: "must be in one place, and at most 64 groups deep",
    groups_that_share_their_parts: "must be in one place, and at most 64 groups deep",
    deep_groups: "must be in one place, and at most 64 groups deep",
    references: "must hold numbers or text",
    arrays_of_any_length: "must hold numbers or text",
    array_without_a_shape: "must be an array or a group, got neither",
    array_in_place_of_an_episode: "episode_0 must be a group, got an array",
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("change", HOSTILE, ids=lambda change: change.__name__)
def test_a_hostile_file_is_refused_in_one_line_before_it_is_read(path, make_episode, change):
    datasets.write(path, [make_episode(4, False, x=np.arange(4.0))] * 2, SPEC)
    data = path / "data" / "main_data.hdf5"
    os.mkfifo(data.with_name("pipe"))
    with h5py.File(data, "r+") as file:
        change(file)
    with pytest.raises(ValueError, match=f"must be whole, .*{HOSTILE[change]}") as caught:
        list(datasets.read(path))
    assert "\n" not in str(caught.value)


def test_a_pipe_in_place_of_a_file_is_not_waited_for(path, make_episode):
    datasets.write(path, [make_episode()], SPEC)
    data = path / "data" / "main_data.hdf5"
    data.unlink()
    os.mkfifo(data)
    with pytest.raises(ValueError, match="must be a folder of recorded episodes"):
        datasets.read(path)
    with pytest.raises(OSError, match="not a regular file"):
        hdf5.Reader(data)


def compress(path):
    with h5py.File(path / "data" / "main_data.hdf5", "r+") as file:
        for group in file.values():
            observations = group["observations"][()]
            del group["observations"]
            group.create_dataset("observations", data=observations, compression="gzip", compression_opts=9)


def test_a_compressed_file_is_read_within_its_limit(path, make_episode):
    episodes = [make_episode(2000)._replace(observation=np.zeros((2001, 2), np.float32))] * 3
    datasets.write(path, episodes, SPEC)
    compress(path)
    assert [episode.num_steps for episode in datasets.read(path)] == [2000] * 3
    # Two of the three episodes fit in what is allowed, and each time anew.
    size = (path / "data" / "main_data.hdf5").stat().st_size
    one = 2001 * 2 * 4 + 2000 * (4 + 4 + 1 + 1)
    recording = datasets.read(path, max_unpacked_gigabytes=(2.5 * one - size) / 1e9)
    for _ in range(2):
        with pytest.raises(ValueError, match="episode 2 must be whole, .*allow more: --max-unpacked"):
            list(recording)


def test_an_episode_that_many_names_share_counts_each_time(path, make_episode):
    datasets.write(path, [make_episode(1000)], SPEC)
    data = path / "data"
    with h5py.File(data / "main_data.hdf5", "r+") as file:
        for index in range(1, 50):
            file[f"episode_{index}"] = file["episode_0"]
    metadata = (data / "metadata.json").read_text().replace('"total_episodes": 1', '"total_episodes": 50')
    (data / "metadata.json").write_text(metadata)
    with pytest.raises(ValueError, match="may be unpacked"):
        list(datasets.read(path, max_unpacked_gigabytes=0.0))


def test_text_is_counted_as_it_is_read(path, make_episode):
    datasets.write(path, [make_episode(4, False, x=np.arange(4.0))], SPEC)
    with h5py.File(path / "data" / "main_data.hdf5", "r+") as file:
        file["episode_0/infos"].create_dataset("said", data=["yes"] * 5, dtype=h5py.string_dtype())
    (episode,) = datasets.read(path)
    assert episode.extras["said"].tolist() == [b"yes"] * 4


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("total_steps", "Infinity", "cannot convert float infinity"),
        ("total_steps", "NaN", "finite, got nan"),
        ("total_steps", "1" * 400, "one of 400 digits"),
        ("total_steps", "0", "1 episodes must have a step, got 0"),
        ("total_episodes", "-5", "must have an episode"),
        ("observation_space", "[" * 100_000 + "]" * 100_000, "at most 64 deep"),
        ("observation_space", '"{\\"type\\": \\"Box\\", \\"shape\\": [1e400]}"', "space of `observation`"),
        (
            "observation_space",
            '"{\\"type\\": \\"Discrete\\", \\"n\\": Infinity, \\"start\\": 0}"',
            "space of",
        ),
    ],
)
def test_hostile_metadata_is_refused_in_one_line(path, make_episode, name, text, message):
    datasets.write(path, [make_episode()], SPEC)
    file = path / "data" / "metadata.json"
    lines = [
        f' "{name}": {text},' if line.startswith(f' "{name}"') else line
        for line in file.read_text().splitlines()
    ]
    file.write_text("\n".join(lines))
    with pytest.raises(ValueError, match=f"must be whole, .*{message}") as caught:
        datasets.read(path)
    assert len(str(caught.value)) < 1000
