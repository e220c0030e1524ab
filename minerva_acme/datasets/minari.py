"""Recorded episodes on disk, in the layout of Minari 0.5: HDF5, with the metadata beside it in JSON.

    pendulum/data/metadata.json      the spaces, the numbers of episodes and steps, the agent's settings
    pendulum/data/main_data.hdf5
        episode_0                    a group for each episode of T steps
            observations             [T + 1, ...]; a group of them if observations are a dict or a tuple
            actions                  [T, ...], likewise
            rewards                  [T]
            terminations             [T]  true only at a true terminal
            truncations              [T]  true where the episode was cut off, by a time limit or otherwise
            infos                    a group of [T + 1, ...]: what the policy recorded with each action, one
                                     row later, as `step` of Gymnasium would return it; row 0 is nan (or 0)

`minari.load_dataset` loads the folder by its name, if that ends in a version such as `-v0`, from
`MINARI_DATASETS_PATH`, and `minari.MinariDataset("pendulum/data")` by its path, whatever its name: in the
metadata, a name without a version gets one. The package `minari` needs numpy 2, which Reverb's environment
cannot have, so files are written and read with h5py alone; see `hdf5` for what is not believed of a file.
"""

import contextlib
import functools
import hashlib
import io
import json
import logging
import os
import pathlib
import re
import shutil
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tree

from minerva_acme import core, specs, types
from minerva_acme.datasets import episodes as episode_forms
from minerva_acme.datasets import hdf5, spaces
from minerva_acme.machine import reading, writing

_logger = logging.getLogger(__name__)

_VERSION = "0.5.3"  # of Minari, whose layout this is
_DATA, _METADATA = "main_data.hdf5", "metadata.json"
_SETTINGS = "minerva_acme"

Progress = Callable[[int, int], None]
"""Is called after each episode with the numbers of episodes and of steps so far."""


class Writer(core.Closeable):
    """Writes episodes as they come. As a context manager, it completes the folder, or removes it on error.

    Until `close`, everything is in a folder `.<name>.new` beside the final one.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        spec: specs.EnvironmentSpec,
        *,
        settings: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Begins a dataset.

        Args:
            path: The folder to make, which must not exist.
            spec: The specs of the environment, as the agent sees it.
            settings: What the metadata say of the data's origin, such as the agent and its config: values
                that JSON can hold.
            progress: Called after each episode.

        Raises:
            ValueError: The folder exists or is being written by another process, or the file cannot hold such
                observations, actions, rewards or settings.
            ModuleNotFoundError: h5py is not installed.
            OSError: The folder cannot be made.
        """
        self._path = check_free(path)
        warn_of_name(self._path)
        self._spec = spec
        self._metadata = _describe(self._path.name, spec, settings or {})
        self._progress = progress
        self._num_episodes = self._num_steps = 0
        self._new = self._path.with_name(f".{self._path.name}.new")
        h5py = hdf5.module()
        with writing.explain(self._path):
            self._new.mkdir(parents=True, exist_ok=True)
            self._unlock = _lock(self._new, self)
            shutil.rmtree(self._new / "data", ignore_errors=True)  # left by a killed process
            (self._new / "data").mkdir()
            # HDF5 would crash when it closes a file that it could not write.
            self._output = writing.Output(self._new / "data" / _DATA)
            self._file: Any = h5py.File(self._output, "w", libver="latest")

    def write(self, recorded: episode_forms.Recorded) -> None:
        """Appends an episode, in a form that `as_episode` takes.

        Raises:
            SpecError: It does not match the spec, or has numbers that are not finite, actions out of bounds,
                or extras that are not numbers of each step. Nothing of it is written.
            OSError: It could not be written.
        """
        with episode_forms.named(self._num_episodes, self._path):
            episode = episode_forms.conform(episode_forms.as_episode(recorded), self._spec)
            infos = _infos(episode)
        with writing.explain(self._path):
            group = self._file.create_group(f"episode_{self._num_episodes}")
            group.attrs["id"] = self._num_episodes
            _add_episode(group, episode, infos)
            self._output.check()
        self._num_episodes += 1
        self._num_steps += episode.num_steps
        if self._progress is not None:
            self._progress(self._num_episodes, self._num_steps)

    def close(self) -> None:
        """Completes the folder. Without an episode, there is none.

        Raises:
            OSError: It could not be written; nothing is left.
        """
        if self._file is None:
            return
        if not self._num_episodes:
            self.discard()
            return
        try:
            with writing.explain(self._path):
                with self._output:
                    self._file.close()
                data = self._new / "data"
                size = (data / _DATA).stat().st_size / 1e6
                counts = {"total_episodes": self._num_episodes, "total_steps": self._num_steps}
                text = json.dumps({**self._metadata, **counts, "dataset_size": round(size, 1)}, indent=1)
                writing.replace(data / _METADATA, [text.encode()])
                os.rename(self._new, check_free(self._path))
        except BaseException:
            self.discard()
            raise
        self._file = None
        self._unlock()

    def discard(self) -> None:
        """Removes what was written so far."""
        if self._file is not None:
            with contextlib.suppress(OSError, RuntimeError):
                self._file.close()
            self._output.close()
            self._file = None
            shutil.rmtree(self._new, ignore_errors=True)
            self._unlock()

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self.close()
        else:
            self.discard()


def write(
    path: str | os.PathLike[str],
    recorded: Iterable[episode_forms.Recorded],
    spec: specs.EnvironmentSpec,
    *,
    settings: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> None:
    """Writes episodes to a new folder, all of them or nothing; see `Writer`."""
    with Writer(path, spec, settings=settings, progress=progress) as writer:
        for episode in recorded:
            writer.write(episode)


def check_free(path: str | os.PathLike[str]) -> pathlib.Path:
    """Returns the path of a folder to be made.

    Raises:
        ValueError: There is something already.
    """
    path = pathlib.Path(path)
    if os.path.lexists(path):
        raise ValueError(f"{path} must be a new folder, but exists. Choose another name, or remove it.")
    return path


def warn_of_name(path: str | os.PathLike[str]) -> None:
    """Logs a warning if Minari cannot load a folder by its name."""
    found = pathlib.Path(path).name
    if (name := _dataset_id(found)) != found:
        _logger.warning(
            "`minari.load_dataset` loads %s only if its name is like %s, with letters, digits, - or _ and a "
            "version at the end: rename the folder, or load it by its path, with `minari.MinariDataset`",
            path,
            name,
        )


def _lock(folder: pathlib.Path, writer: Writer) -> Callable[[], Any]:
    """Keeps other writers out of a folder. Returns a function that lets them in, as the writer's end does.

    Raises:
        ValueError: Another writer has locked it.
    """
    try:
        import fcntl  # not on Windows
    except ImportError:
        return lambda: None
    unlock = weakref.finalize(writer, os.close, descriptor := os.open(folder, os.O_RDONLY))
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        unlock()
        raise ValueError(
            f"{folder} must be free, but another process or `Writer` is writing to it. Wait until that is "
            "complete, or choose another name."
        ) from error
    except OSError:  # a file system without locks
        pass
    return unlock


def check_spec(spec: specs.EnvironmentSpec, settings: Mapping[str, Any]) -> None:
    """Checks that the file can hold the episodes of an environment, and settings.

    Raises:
        ValueError: It cannot; the message names the leaf.
        ModuleNotFoundError: h5py is not installed.
    """
    hdf5.module()
    _describe("", spec, settings)


def _describe(name: str, spec: specs.EnvironmentSpec, settings: Mapping[str, Any]) -> dict[str, Any]:
    if not specs.is_number(spec.rewards):
        raise ValueError(
            f"`reward` must be one number to be recorded, got {specs.describe(spec.rewards)}. Sum it up in "
            "`wrappers.ScalarRewardWrapper`."
        )
    for key, value in settings.items():
        try:
            reading.json_text(json.dumps({key: value}), infinite=True)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"`settings[{key!r}]` must be a value that JSON can hold, got {value!r}: {error}. Convert "
                "it, for example with `float` or `str`."
            ) from error
    return {
        "dataset_id": _dataset_id(name),
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "minari_version": _VERSION,
        "observation_space": spaces.to_json(spec.observations, "observation"),
        "action_space": spaces.to_json(spec.actions, "action"),
        _SETTINGS: dict(settings),
    }


def _dataset_id(name: str) -> str:
    """Returns the name, or the nearest one that Minari takes: letters, digits, - and _, and a version."""
    if re.fullmatch(r"[-\w]+-v\d+", name):
        return name
    return re.sub(r"[^-\w]", "_", name) + "-v0"


def _add_episode(group: Any, episode: episode_forms.Episode, infos: Mapping[str, Any]) -> None:
    ends = np.zeros((2, episode.num_steps), np.bool_)
    ends[:, -1] = episode.terminated, not episode.terminated
    group.attrs["total_steps"] = episode.num_steps
    _add(group, "observations", episode.observation)
    _add(group, "actions", episode.action)
    group["rewards"], group["terminations"], group["truncations"] = episode.reward, *ends
    if infos:
        _add(group, "infos", infos)


def to_bytes(episode: episode_forms.Episode) -> bytes:
    """Returns an HDF5 file of one episode."""
    file = io.BytesIO()
    with hdf5.module().File(file, "w", libver="latest") as group:
        _add_episode(group, episode, _infos(episode))
    return file.getvalue()


def from_bytes(file: io.BytesIO) -> episode_forms.Episode:
    """Returns the episode that `to_bytes` wrote."""
    with hdf5.Reader(file) as reader:
        return _read_episode(reader)


def _add(group: Any, name: str, nest: types.NestedArray) -> None:
    """Adds a nest of arrays to an HDF5 group."""
    if isinstance(nest, tuple | list):
        nest = {f"{spaces.PART}{index}": part for index, part in enumerate(nest)}
    if isinstance(nest, Mapping):
        inner = group.create_group(name)
        for field, part in nest.items():
            _add(inner, field, part)
    else:
        group[name] = nest


def _infos(episode: episode_forms.Episode) -> Mapping[str, Any]:
    """Returns extras [T, ...] one row later, after a row of nan or 0.

    Raises:
        ValueError: They have no names, or are not numbers of each step.
    """
    extras = episode_forms.as_dict(episode.extras)
    return {name: _shifted(name, part, "extras", episode.num_steps) for name, part in extras.items()}


def _shifted(field: str, nest: types.NestedArray, name: str, num_steps: int) -> types.NestedArray:
    spaces.check_name(field, name)
    name = f"{name}[{field!r}]"
    if isinstance(nest, Mapping):
        return {field: _shifted(field, part, name, num_steps) for field, part in nest.items()}
    if isinstance(nest, tuple | list):
        return tuple(_shifted(f"{i}", part, name, num_steps) for i, part in enumerate(nest))
    array = np.asarray(nest)
    if array.dtype.kind not in "biuf" or array.shape[:1] != (num_steps,):
        raise ValueError(
            f"`{name}` must be numbers, a row for each of the {num_steps} steps, got {array.dtype} of shape "
            f"{array.shape}. Convert it, or leave it out."
        )
    first = np.full((1, *array.shape[1:]), np.nan if array.dtype.kind == "f" else 0, array.dtype)
    return np.concatenate([first, array])


@functools.lru_cache
def _sha256(path: pathlib.Path, *version: int) -> str:
    """Returns the SHA-256 of a file, of which `version` tells one content from the next."""
    with reading.open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Recording:
    """Recorded episodes on disk. Iterating reads them one by one, again each time."""

    def __init__(
        self, path: str | os.PathLike[str], *, max_unpacked_gigabytes: float = hdf5.SPARE_BYTES / 1e9
    ) -> None:
        """Reads the metadata; see `read`."""
        self._spare_bytes = 1e9 * max_unpacked_gigabytes
        self.path = pathlib.Path(path)
        """The folder, as it was given."""
        self._folder = _find(self.path)
        with _explain(self.path):
            self.metadata: Mapping[str, Any] = reading.json_file(self._folder / _METADATA, infinite=True)
            """The whole metadata, as Minari has it."""
            self.num_episodes = int(self.metadata["total_episodes"])
            """The number of episodes."""
            self.num_steps = int(self.metadata["total_steps"])
            """The number of transitions in all episodes."""
            self._starts = [
                spaces.starts(self.metadata[f"{name}_space"]) for name in ("observation", "action")
            ]
            self.spec = self._read_spec()
            """The specs of the data. Rewards are floats, float32 if they are stored as whole numbers."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """What `Writer` was given as `settings`; empty for others' files."""
        return self.metadata.get(_SETTINGS, {})

    def __len__(self) -> int:
        return self.num_episodes

    def __iter__(self) -> Iterator[episode_forms.Episode]:
        with _explain(self.path):
            reader = self._open()
        with reader:
            for index in range(self.num_episodes):
                with _explain(f"{self.path}, episode {index}"):
                    episode = _read_episode(reader, f"episode_{index}")
                    observation, action = map(_from_zero, self._starts, episode[:2])
                    reward = episode.reward.astype(self.spec.rewards.dtype)
                yield episode._replace(observation=observation, action=action, reward=reward)

    def _open(self) -> hdf5.Reader:
        return hdf5.Reader(self._folder / _DATA, spare_bytes=self._spare_bytes)

    def checksum(self) -> str:
        """Returns the SHA-256 of the data, in hexadecimal digits. A file that is unchanged is read once."""
        path = self._folder / _DATA
        found = path.stat()
        return _sha256(path, found.st_ino, found.st_size, found.st_mtime_ns)

    def _read_spec(self) -> specs.EnvironmentSpec:
        if self.metadata["data_format"] != "hdf5":
            raise ValueError(f"its format must be hdf5, got {self.metadata['data_format']}")
        if self.num_episodes < 1:
            raise ValueError("it must have an episode, got none")
        if self.num_steps < self.num_episodes:
            raise ValueError(
                f"each of its {self.num_episodes} episodes must have a step, got {self.num_steps}"
            )
        observations, actions = (
            spaces.from_json(self.metadata[f"{name}_space"], name) for name in ("observation", "action")
        )
        if self.metadata.get("jpeg_encoding", True) and _has_images(observations):
            raise ValueError("its images must be stored as they are, with jpeg_encoding=False, got JPEG")
        with self._open() as reader:
            stored = reader.dtype("episode_0", "rewards")
        dtype = np.float32 if stored.kind in "iub" else stored
        return specs.EnvironmentSpec(
            observations=observations,
            actions=actions,
            rewards=specs.Array((), dtype, name="reward"),
        )


def read(
    path: str | os.PathLike[str], *, max_unpacked_gigabytes: float = hdf5.SPARE_BYTES / 1e9
) -> Recording:
    """Opens recorded episodes, this library's or Minari's own, for streaming.

    Args:
        path: The folder that was written, or its `data` folder.
        max_unpacked_gigabytes: How much larger than its file the data may be, as if it is compressed.

    Raises:
        ValueError: There are none, they are damaged, or their form is not read; the message says which.
        ModuleNotFoundError: h5py is not installed.
    """
    return Recording(path, max_unpacked_gigabytes=max_unpacked_gigabytes)


def _find(path: pathlib.Path) -> pathlib.Path:
    for folder in (path / "data", path):
        if (folder / _METADATA).is_file() and (folder / _DATA).is_file():
            return folder
    found = "a folder without them" if path.is_dir() else "a file" if path.exists() else "nothing"
    raise ValueError(
        f"{path} must be a folder of recorded episodes, with {_DATA} and {_METADATA} in it or in its folder "
        f"`data`, got {found}. `minerva train ... --record` and `minerva dataset` write one."
    )


@contextlib.contextmanager
def _explain(place: object) -> Iterator[None]:
    try:
        yield
    except (AttributeError, KeyError, OSError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"{place} must be whole, and in Minari's HDF5 layout of version 0.5, but {reading.why(error)}."
        ) from error


def _has_images(spec: types.NestedSpec) -> bool:
    """Returns whether Minari would store a leaf as JPEG."""
    return any(
        leaf.dtype == np.uint8 and len(leaf.shape) in (2, 3) and min(leaf.shape[:2]) >= 32
        for leaf in tree.flatten(spec)
    )


def _read_episode(reader: hdf5.Reader, *path: str) -> episode_forms.Episode:
    fields = ("observations", "actions", "rewards", "terminations", "truncations", "infos")
    there = reader.names(*path)
    return episode_forms.as_episode(
        {name: _with_tuples(reader.nest(*path, name)) for name in fields if name in there}
    )


def _from_zero(starts: types.NestedArray, nest: types.NestedArray) -> types.NestedArray:
    """Returns discrete numbers as specs have them."""
    if not any(tree.flatten(starts)):
        return nest
    return tree.map_structure(lambda start, leaf: leaf - start if start else leaf, starts, nest)


def _with_tuples(nest: types.NestedArray) -> types.NestedArray:
    if not isinstance(nest, Mapping):
        return nest
    parts = {name: _with_tuples(part) for name, part in nest.items()}
    if parts and all(name.startswith(spaces.PART) for name in parts):
        return tuple(parts[f"{spaces.PART}{index}"] for index in range(len(parts)))
    return parts
