"""Checkpoints: folders that are complete or are ignored.

<directory>/000020000/manifest.json     written last; lists the other files and their hashes
<directory>/000020000/state.pt          everything but the replay: tensors, numbers and strings
<directory>/000020000/replay/           the files of the replay store, if replay was saved
<directory>/000020000-1/                the same step, saved again: it replaces the first, which is removed
<directory>/.unfinished-*, .removed-*   being written or being removed: removed when the run starts again

manifest.json is an object with these members:

    format      1. Any other format is refused.
    env_steps   The environment steps that the run had made.
    evaluation  The score of the evaluation at that step, the mean of the run's `metric`, or null. The highest
                marks the "best".
    light       Whether it was saved because it was the best: without replay, in the middle of an episode.
    player      [actors, environment steps, learner steps], see `Player`.
    files       {"state.pt": {"bytes": ..., "sha256": ...}, "replay/...": ...}
    sha256      The hash of the other members, as JSON with sorted keys. Every format has it.

Once a run was resumed from a checkpoint other than the newest, see `continue_from`, empty files mark these:

    start       The checkpoint that the run was resumed from, unless that is in another folder.
    left        A later one, whose steps are repeated. It is never the "latest", and is removed once the run
                has saved, unless it has the best evaluation.

Torch is imported only to write or read a state, since the process that holds replay finds checkpoints too.
Checking a checkpoint reads all its files. Hashing takes about 1 second per GiB on one core, when it is saved
and when it is resumed; loading only the policy checks only state.pt.
"""

import contextlib
import hashlib
import json
import logging
import math
import os
import pathlib
import re
import shutil
import zipfile
from collections.abc import Collection, Iterator, Sequence
from typing import IO, Any, NamedTuple, cast

import tree

from minerva_acme import types
from minerva_acme.machine import reading, writing
from minerva_acme.replay import base as replay

_logger = logging.getLogger(__name__)

_FORMAT = 1
_MANIFEST = "manifest.json"
_STATE_FILE = "state.pt"
_REPLAY_FOLDER = "replay"
_SCRATCH = ".replay"  # the replay server writes here, see `parts.Parts`
_NAME = re.compile("([0-9]+)(?:-([0-9]+))?")  # environment step, how often it was saved again
_START, _LEFT = "start", "left"  # marks, see above
_TOO_MANY = 1 << 63  # environment steps, or bytes of a file


class Player(NamedTuple):
    """The number of actors that play a run, and the run's steps when they began."""

    num_actors: int = 0  # in separate processes next to the learner; 0: one process plays and learns
    env_steps: int = 0
    learner_steps: int = 0


class DamagedCheckpoint(OSError):
    """A file of a checkpoint is missing, or differs from what was written."""


class Checkpointer:
    """Writes the checkpoints of one run. No other process may write to their folder."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        keep: int = 2,
        *,
        keep_best: bool = True,
        player: Player | None = None,
    ) -> None:
        """Makes the folder if needed; it may be a link.

        Args:
            directory: The folder of the checkpoints.
            keep: The number of the newest checkpoints to keep, >= 1.
            keep_best: Whether the one with the best evaluation is kept too.
            player: The run's player; by default one process, from the beginning of the run.

        Raises:
            OSError: The folder cannot be written to.
            ValueError: A path that the run writes to in it is a symbolic link, or `keep` is less than 1.
        """
        if keep < 1:
            raise ValueError(f"`keep` must be >= 1 checkpoint, got {keep}.")
        self.directory = pathlib.Path(directory)
        """The folder of the checkpoints."""
        self._keep = keep
        self._keep_best = keep_best
        self._player = player or Player()
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            _sync(self.directory.parent)
            writing.refuse_link(self.directory / _SCRATCH)
            for pattern in (".unfinished-*", ".removed-*"):
                for left_over in self.directory.glob(pattern):
                    _remove(left_over)
        except OSError as error:
            raise OSError(
                f"Cannot write checkpoints to {self.directory}: "
                f"{error.strerror}. Choose another directory for the run, or check the permissions there."
            ) from error

    def save(
        self,
        env_steps: int,
        state: Any,
        replay_files: str | os.PathLike[str] | None = None,
        *,
        evaluation: float | None = None,
        light: bool = False,
    ) -> None:
        """Writes a checkpoint, then removes those that no longer need to be kept.

        The newest ones (for each step, the one saved last) and the best are kept. Checkpoints of later steps
        belong to steps that are repeated, and are removed too, except the one with the best evaluation.

        Args:
            env_steps: The checkpoint's number of environment steps, which names it. A checkpoint with the
                same number is replaced.
            state: A value that `torch.load(weights_only=True)` can read, see `core.Saveable`.
            replay_files: A folder that is moved into the checkpoint, or copied if it is on another disk.
            evaluation: The score of the policy's evaluation at this step, if there was one.
            light: Whether it is saved only for its evaluation; then only other light ones are removed.

        Raises:
            OSError: The checkpoint could not be written. The older checkpoints stay.
        """
        import torch

        names = map(_NAME.fullmatch, os.listdir(self.directory))
        taken = [int(name[2] or 0) for name in names if name and int(name[1]) == env_steps]
        final = self.directory / (f"{env_steps:09d}" + (f"-{max(taken) + 1}" if taken else ""))
        unfinished = self.directory / f".unfinished-{final.name}"
        try:
            unfinished.mkdir()
            with writing.Output(unfinished / _STATE_FILE) as file:
                torch.save(state, cast(IO[bytes], file))
            if replay_files is not None:
                shutil.move(replay_files, unfinished / _REPLAY_FOLDER)
            said = {"env_steps": env_steps, "evaluation": evaluation, "light": light, "player": self._player}
            _seal(unfinished, said)
            unfinished.rename(final)
            _sync(self.directory)
        except (OSError, RuntimeError) as error:  # torch wraps the first in the second
            shutil.rmtree(unfinished, ignore_errors=True)
            cause = error.__context__ if isinstance(error.__context__, OSError) else error
            entries = _scan(self.directory)
            raise OSError(
                f"The checkpoint {writing.cannot_write(final, cause)}. Free some space or check the "
                "permissions there, then start the run again: it resumes from "
                f"{f'step {entries[-1].env_steps}' if entries else 'its beginning'}."
            ) from error
        if not light:
            for entry in _scan(self.directory):
                if entry.env_steps > env_steps:
                    _note(entry.folder, left=True)
        self._remove_old(light)

    def latest(self) -> pathlib.Path | None:
        """Returns the newest checkpoint, or None."""
        return latest(self.directory)

    def is_best(self, evaluation: float | None) -> bool:
        """Returns whether a score is above every checkpoint's, so that its weights should be kept."""
        if evaluation is None or not self._keep_best:  # true at almost every step, so it reads no file
            return False
        best = _best(_scan(self.directory))
        return best is None or best.evaluation is None or evaluation > best.evaluation

    def steps(self) -> list[int]:
        """Returns the environment steps of the full checkpoints, those that are not light."""
        return sorted({entry.env_steps for entry in _scan(self.directory) if entry.is_full})

    def _remove_old(self, light: bool) -> None:
        entries = _scan(self.directory)
        newest = {entry.env_steps: entry for entry in entries if entry.is_full and entry.rank > _ABANDONED}
        kept = [*list(newest.values())[-self._keep :], _best(entries) if self._keep_best else None]
        for entry in entries:
            # Abandoned checkpoints stay until a full checkpoint of the new branch has been written.
            if entry in kept or (light and (entry.is_full or entry.rank == _WHOLE)):
                continue
            hidden = entry.folder.with_name(f".removed-{entry.folder.name}")
            try:
                _remove(hidden)
                entry.folder.rename(hidden)  # a half-removed folder must not count as a checkpoint
                _remove(hidden)
            except OSError as error:
                _logger.warning("the old checkpoint %s cannot be removed: %s", entry.folder, error.strerror)


class _Manifest(NamedTuple):
    env_steps: int
    evaluation: float | None
    light: bool
    files: dict[str, tuple[int, str]]  # bytes and SHA-256 of each
    player: Player


_ABANDONED, _LIGHT, _WHOLE = range(3)  # ranks of checkpoints


class _Entry(NamedTuple):
    """A folder that is named like a checkpoint. Sorted, the one to resume from comes last."""

    rank: int
    """A run resumes from a light one only if there is no other, or if the run began with it."""
    env_steps: int
    revision: int
    folder: pathlib.Path
    evaluation: float | None
    is_full: bool
    is_start: bool

    @classmethod
    def of(cls, folder: pathlib.Path) -> "_Entry":
        name = _NAME.fullmatch(folder.name)
        assert name
        try:
            manifest = _read_manifest(folder)
        except (DamagedCheckpoint, ValueError):  # reported when it is opened
            manifest = _Manifest(int(name[1]), None, False, {}, Player())
        is_full, is_start = not manifest.light, (folder / _START).exists()
        rank = _ABANDONED if (folder / _LEFT).exists() else _WHOLE if is_full or is_start else _LIGHT
        revision = int(name[2] or 0)
        return cls(rank, manifest.env_steps, revision, folder, manifest.evaluation, is_full, is_start)


def _remove(path: pathlib.Path) -> None:
    """Removes a file or folder if it exists; of a link, only the link itself."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _is_checkpoint(folder: pathlib.Path) -> bool:
    # With only one of these it is a damaged checkpoint. Without both it is not a checkpoint.
    return (folder / _MANIFEST).exists() or (folder / _STATE_FILE).exists()


def _scan(directory: pathlib.Path) -> list[_Entry]:
    folders = (folder for folder in directory.glob("*") if _NAME.fullmatch(folder.name))
    return sorted(_Entry.of(folder) for folder in folders if _is_checkpoint(folder))


def _best(entries: list[_Entry]) -> _Entry | None:
    """Returns the entry with the best evaluation; among equals, the one of the earliest step."""
    evaluated = [entry for entry in entries if entry.evaluation is not None]
    return max(evaluated, key=lambda e: (e.evaluation, -e.env_steps, e.revision), default=None)


def latest(directory: pathlib.Path) -> pathlib.Path | None:
    """Returns the newest checkpoint in a folder, unchecked, or None. Another process may be writing there."""
    return next((entry.folder for entry in _scan(directory)[::-1]), None)


def find(
    path: str | os.PathLike[str],
    which: str | int | os.PathLike[str] = "latest",
    *,
    with_replay: bool = False,
) -> pathlib.Path:
    """Finds a checkpoint of a run and checks that its files are undamaged.

    Args:
        path: The folder of a run, or of a checkpoint, which is then returned.
        which: "latest", "first", "middle", "best", a number of environment steps, or the folder of a
            checkpoint. "latest" is the newest full checkpoint or, if there is none, the newest light one; if
            it is damaged, the one before it, with a warning. After a run was resumed from an older checkpoint
            (see `continue_from`), it is that one or the newest that the run has saved since. "first" is the
            oldest, "middle" the one nearest to half the steps of the newest, and "best" the one with the best
            evaluation.
        with_replay: Whether to check the files of the replay too.

    Raises:
        ValueError: There is no such checkpoint, or it has another format.
        DamagedCheckpoint: There is no undamaged one, or the chosen one is damaged.
    """
    path, which = pathlib.Path(path), str(which)
    if _is_checkpoint(path) and which == "latest":
        _check(path, with_replay)
        return path
    directory = path / "checkpoints"
    entries = _scan(directory)
    if which == "latest":
        if not entries:
            if not path.exists():
                raise ValueError(
                    f"{path} must be a run's folder or a file with a policy, but nothing is there."
                )
            raise ValueError(f"{path} holds no checkpoint yet. Train it first: minerva train ...")
        return _newest_good(path, entries, with_replay)
    best = _best(entries)
    which = str(int(which)) if which.isdecimal() else which
    folders = {str(entry.env_steps): entry.folder for entry in sorted(entries)}
    folders |= {"best": best.folder} if best else {}
    if kept := sorted((entry for entry in entries if entry.rank > _ABANDONED), key=lambda e: e.env_steps):
        middle = min(kept, key=lambda entry: abs(2 * entry.env_steps - kept[-1].env_steps))
        folders |= {"first": kept[0].folder, "middle": middle.folder}
    chosen = folders.get(which, pathlib.Path(which))
    if not _is_checkpoint(chosen):
        raise ValueError(
            f"`checkpoint` must be {', '.join(['latest', *folders])} or the folder of a checkpoint, got "
            f"'{which}'. {directory} holds no other."
        )
    _check(chosen, with_replay)
    return chosen


def find_to_resume(
    path: str | os.PathLike[str], which: str | os.PathLike[str] = "latest"
) -> pathlib.Path | None:
    """Does as `find`, with the replay checked; returns None if `which` is "latest" and there is none yet."""
    if which == "latest" and latest(pathlib.Path(path, "checkpoints")) is None:
        return None
    return find(path, which, with_replay=True)


def marks(directory: pathlib.Path) -> frozenset[tuple[str, int]]:
    """Returns the names of the checkpoints in a folder, and when they were written in nanoseconds.

    The name of a checkpoint that is removed may be used again.
    """
    return frozenset(_mark(entry) for entry in _scan(directory))


def _mark(entry: _Entry) -> tuple[str, int]:
    manifest = entry.folder / _MANIFEST
    return entry.folder.name, manifest.stat().st_mtime_ns if manifest.exists() else 0


def find_to_restart(
    path: str | os.PathLike[str],
    began_with: pathlib.Path | None,
    known: Collection[tuple[str, int]],
    *,
    with_replay: bool = False,
) -> pathlib.Path | None:
    """Finds the checkpoint that a part of a run continues from after it was lost.

    Args:
        path: The folder of the run.
        began_with: The checkpoint that this session of the run began with, which may be in another folder.
        known: The `marks` of the run's checkpoints at that time.
        with_replay: Whether to check the files of the replay too.

    Returns:
        The newest undamaged one that the session has made; if there is none, the one it began with. A light
        one only if it began with none.

    Raises:
        DamagedCheckpoint: All that the session has made are damaged.
    """
    made = [
        entry
        for entry in _scan(pathlib.Path(path, "checkpoints"))
        if _mark(entry) not in known and (entry.rank == _WHOLE or began_with is None)
    ]
    return _newest_good(pathlib.Path(path), made, with_replay) if made else began_with


def continue_from(directory: pathlib.Path, checkpoint: pathlib.Path) -> None:
    """Notes that a run continues from a checkpoint: from now on, no later one is the "latest".

    Call it while the run's folder is locked (`run_lock.hold`), before anything else in it is changed. The
    marks are on the disk when this returns: however the run ends, the next one begins with this checkpoint or
    with a newer one of this run. Nothing is removed before this run has saved, and the later checkpoints
    can still be chosen by their steps until then.

    Args:
        directory: The folder of the run's checkpoints.
        checkpoint: The checkpoint to resume from. If it is in another folder, the "latest" is the newest of
            the run's own that is not later, until the run has saved.

    Raises:
        OSError: A checkpoint cannot be marked.
        ValueError: A checkpoint to mark is a symbolic link.
    """
    entries = _scan(directory)
    own = next((entry for entry in entries if entry.folder.resolve() == checkpoint.resolve()), None)
    if own is not None and own is entries[-1] and own.rank > _ABANDONED:
        return
    made = (env_steps(checkpoint), own.revision if own else math.inf)
    # If the run returns to an abandoned checkpoint, those saved since it branched off are left instead.
    start = next((entry for entry in entries if entry.is_start), None)
    other = own is not None and own.rank == _ABANDONED
    left = [
        entry
        for entry in entries
        if (entry.env_steps, entry.revision) > made
        or (
            (start is not None and entry.rank > _ABANDONED and entry[1:3] > start[1:3])
            if other
            else entry.rank == _ABANDONED
        )
    ]
    # In this order a kill leaves either the checkpoint that was the latest or the chosen one as the latest.
    for entry in sorted(entries, key=lambda entry: (entry is not own, entry.env_steps)):
        _note(entry.folder, left=entry in left, start=entry is own)
    if steps := sorted({entry.env_steps for entry in left if entry.is_full}):
        _logger.warning(
            "%s is not the newest checkpoint: the next save removes the later ones at steps %s, except the "
            "best. Until then they can be chosen by their step",
            checkpoint,
            ", ".join(f"{step:,}" for step in steps),
        )


def _note(folder: pathlib.Path, **marks: bool) -> None:
    """Sets or removes marks of a checkpoint; they are on the disk when this returns."""
    for name, is_set in marks.items():
        if (folder / name).exists() != is_set:
            writing.refuse_link(folder)
            if is_set:
                writing.Appended(folder / name).close()
            else:
                (folder / name).unlink()
            _sync(folder)


def _newest_good(path: pathlib.Path, entries: list[_Entry], with_replay: bool) -> pathlib.Path:
    found = []
    for entry in reversed([entry for entry in entries if entry.rank > _ABANDONED]):
        try:
            _check(entry.folder, with_replay)
        except DamagedCheckpoint as error:
            if not entry.folder.exists():  # removed meanwhile, since the run has saved a newer one
                return find(path, with_replay=with_replay)
            found.append(str(error))
            continue
        if found:
            _logger.warning(
                "%s The checkpoint of step %d is used instead: %d environment steps are lost.",
                " ".join(found),
                entry.env_steps,
                max(0, entries[-1].env_steps - entry.env_steps),
            )
        return entry.folder
    left_behind = sorted({entry.env_steps for entry in entries if entry.rank == _ABANDONED})
    others = f" except those left behind at the steps {left_behind}, which can be chosen by their step"
    raise DamagedCheckpoint(
        f"{' '.join(found)} No other checkpoint is left in {path}{others if left_behind else ''}: copy one "
        "there if you have it, or train again in another folder."
    )


def env_steps(checkpoint: pathlib.Path) -> int:
    """Returns the environment steps that the run had made at a checkpoint."""
    return _read_manifest(checkpoint).env_steps


def load_state(checkpoint: pathlib.Path, device: str = "cpu") -> dict[str, Any]:
    """Loads the state of a checkpoint. No code stored in it is executed.

    Raises:
        DamagedCheckpoint: The state cannot be read, is compressed, or is not a dict.
    """
    import torch

    path = checkpoint / _STATE_FILE
    try:
        _check_stored(path)
        state = torch.load(path, map_location=device, weights_only=True)
    except (DamagedCheckpoint, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        # Torch's own message is left out: it advises executing the code.
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise DamagedCheckpoint(
            f"{path} must hold a dict of tensors, numbers and strings, but cannot be read as such: {reason}. "
            "No code in it was executed. Use another checkpoint, or a copy of this one."
        ) from None
    if not isinstance(state, dict):
        raise DamagedCheckpoint(
            f"{path} must hold a dict, got {type(state).__name__}. Use another checkpoint."
        )
    return state


def _check_stored(path: pathlib.Path) -> None:
    """Checks, before anything is unpacked, that an archive's members are uncompressed, as torch writes them.

    Raises:
        DamagedCheckpoint: A member is compressed, or they are larger than the archive.
        OSError: The file cannot be read.
        zipfile.BadZipFile: The file is not an archive.
    """
    with reading.open_file(path) as file, zipfile.ZipFile(file) as archive:
        members = archive.infolist()
    num_bytes = sum(member.file_size for member in members)
    packed = next((m.filename for m in members if m.compress_type != zipfile.ZIP_STORED), None)
    if packed is not None or num_bytes > path.stat().st_size:
        found = f"'{packed}' is compressed" if packed else f"they have {num_bytes:,} bytes in all"
        raise DamagedCheckpoint(
            f"{path} must hold its members uncompressed, in no more than its own {path.stat().st_size:,} "
            f"bytes, but {found}. Nothing was unpacked. Use another checkpoint, or a copy of this one."
        )


def policy_state(variables: Sequence[types.NestedArray]) -> dict[str, Any]:
    """Returns the part of a state that `load_policy` reads, which needs no learner.

    Args:
        variables: The variables that the policy acts with, as the learner returns them.
    """
    import torch

    return {"policy_variables": [tree.map_structure(torch.from_numpy, value) for value in variables]}


def replay_folder(checkpoint: pathlib.Path) -> pathlib.Path | None:
    """Returns the folder of a checkpoint's replay, or None if it was saved without replay."""
    has_replay = any(name.startswith(f"{_REPLAY_FOLDER}/") for name in _read_manifest(checkpoint).files)
    return checkpoint / _REPLAY_FOLDER if has_replay else None


def is_light(checkpoint: pathlib.Path) -> bool:
    """Returns whether a checkpoint was saved only for its evaluation, see `Checkpointer.save`."""
    return _read_manifest(checkpoint).light


def player(checkpoint: pathlib.Path) -> Player:
    """Returns the player of the run of a checkpoint.

    Raises:
        DamagedCheckpoint: The checkpoint cannot be read.
    """
    return _read_manifest(checkpoint).player


@contextlib.contextmanager
def explain_misfit(checkpoint: pathlib.Path) -> Iterator[None]:
    """Explains errors of the wrapped block, which restores parts: the checkpoint belongs to other parts.

    Raises:
        ValueError: Replaces other exceptions of the parts. ReplayErrors and ValueErrors are more specific and
            are passed on.
    """
    try:
        yield
    except (replay.ReplayError, ValueError):
        raise
    except Exception as error:  # a file with other contents can cause any error
        missing = isinstance(error, KeyError) and len(error.args) == 1
        found = f"{error} is missing" if missing else str(error)
        # torch lists every difference.
        found = " ".join(line.strip() for line in found.splitlines()[:2]).removesuffix(".")
        raise ValueError(
            f"{checkpoint} must belong to this agent, config and environment, but belongs to another "
            f"({found}). Use the builder, and observations and actions, that it was trained with, or another "
            "folder."
        ) from error


def _seal(folder: pathlib.Path, said: dict[str, Any]) -> None:
    """Writes the manifest and flushes all the files that it lists to the disk."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            _sync(path)
            continue
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
            files[path.relative_to(folder).as_posix()] = {"bytes": file.tell(), "sha256": digest}
    content = {"format": _FORMAT, **said, "files": files}
    with writing.Output(folder / _MANIFEST) as file:
        file.write(json.dumps({**content, "sha256": _digest(content)}, indent=1).encode())
    _sync(folder)


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _sync(folder: pathlib.Path) -> None:
    """Flushes the entries of a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_manifest(folder: pathlib.Path) -> _Manifest:
    """Reads a manifest. Raises DamagedCheckpoint, or ValueError if it is intact but has another format."""
    path = folder / _MANIFEST
    try:
        content = reading.json_file(path)
        if content.pop("sha256") != _digest(content):
            raise ValueError
        found = content.pop("format")
        if found == _FORMAT:
            evaluation = content["evaluation"]
            written = {name: (int(file["bytes"]), file["sha256"]) for name, file in content["files"].items()}
            counts = (int(content["env_steps"]), *(num_bytes for num_bytes, _ in written.values()))
            if not all(0 <= count < _TOO_MANY for count in counts):
                raise ValueError
            return _Manifest(
                int(content["env_steps"]),
                None if evaluation is None else float(evaluation),
                bool(content["light"]),
                written,
                Player(*map(int, content["player"])),
            )
    except OSError as error:
        raise DamagedCheckpoint(f"{path} cannot be read: {error.strerror}.") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DamagedCheckpoint(f"{path} is damaged: it differs from what was written.") from error
    raise ValueError(
        f"The checkpoint {folder} must have format {_FORMAT}, got {found}. Use the version of minerva-acme "
        "that wrote it, or a newer one."
    )


def _check(folder: pathlib.Path, with_replay: bool) -> None:
    """Checks the files. Raises as `_read_manifest`, and DamagedCheckpoint if a file has changed."""
    for name, (expected_bytes, digest) in _read_manifest(folder).files.items():
        if name != _STATE_FILE and not with_replay:
            continue
        path = folder / name
        try:
            with reading.open_file(path) as file:
                num_bytes = os.fstat(file.fileno()).st_size
                is_same = num_bytes == expected_bytes and (
                    hashlib.file_digest(file, "sha256").hexdigest() == digest
                )
        except OSError as error:
            raise DamagedCheckpoint(f"{path} cannot be read: {error.strerror}.") from error
        if not is_same:
            raise DamagedCheckpoint(
                f"{path} is damaged: its {num_bytes:,} bytes differ from the {expected_bytes:,} that were "
                "written."
            )
