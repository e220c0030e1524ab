"""Damaged and forged files in a run's folder: a sentence or a correct run, and no code of theirs is run.

A case is a trained run, one change of one of its files, and a command that reads it, in a process of its own
with limits to time and memory. Half of the changes to a checkpoint are made by somebody who knows of its
manifest and corrects that too: the readers behind it must not rely on it.
"""

import hashlib
import io
import json
import os
import pathlib
import pickle
import random
import shutil
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

from . import _server

COUNT = 2000

_TINY = """
    --num-env-steps 260 --evaluation-episodes 1 --evaluation-period 0 --checkpoint-period 130
    --policy-layer-sizes 4
"""
_MPO = f"""
    mpo --env Pendulum-v1 {_TINY} --critic-layer-sizes 4 --batch-size 64 --min-replay-size 64
    --samples-per-insert 4 --num-samples 2 --retrace-mc-actions 2 --max-replay-size 500
"""
_RUNS = {
    "mpo-memory": f"{_MPO} --replay memory",
    "mpo-reverb": f"{_MPO} --replay reverb --log csv",
    "ppo-memory": f"""
        ppo --env CartPole-v1 {_TINY} --value-layer-sizes 4 --replay memory --log csv
        --rollout-steps 32 --minibatch-size 16 --num-environments 1
    """,
}


def check(seed: int) -> str:
    """Tries a case; returns how it ended. Raises AssertionError if that is not as it must be."""
    return _server.server_of("files").check(seed)


def prepare(folder: pathlib.Path) -> None:
    """Trains the runs whose files are changed."""
    for name in _names():
        status, printed = _server.call(
            folder / "printed", ["train", *_RUNS[name].split(), "--directory", folder / name]
        )
        assert status == 0, printed


def _names() -> list[str]:
    from minerva_acme.replay import backends

    return [name for name in _RUNS if "reverb" not in name or backends.is_reverb_installed()]


def try_case(folder: pathlib.Path, seed: int) -> _server.Outcome:
    """Changes a file of a run, and calls a command that reads it."""
    chance = random.Random(seed)
    case, executed = folder / "case", folder / "executed"
    shutil.rmtree(case, ignore_errors=True)
    shutil.copytree(folder / chance.choice(_names()), case)
    files = sorted(path for path in case.rglob("*") if path.is_file())
    logs = [path for path in files if path.suffix == ".csv" or "tensorboard" in path.parts]
    of_run = [path for path in files if path not in logs]
    file = chance.choice(chance.choice([logs, of_run, of_run, of_run]))
    change = chance.choice(_changes(file))
    detail = change(file, chance, files, executed) or ""
    is_forged = chance.random() < 0.5 and file.suffix != ".json" and _correct_manifest(file)
    command = chance.choice(["eval", "resume"] if "checkpoints" in file.parts else ["eval", "resume", "plot"])
    arguments = {
        "resume": ["--num-env-steps", "280"],
        "eval": ["--episodes", "1"],
        "plot": ["--output", folder / "plot"],
    }
    status, printed = _server.call(folder / "printed", [command, case, *arguments[command]])
    changed = f"{change.__name__}{detail} of {file.relative_to(case)}{' and the manifest' * is_forged}"
    story = f"{changed}, then {command}"
    if executed.exists():
        executed.unlink()
        return _server.Outcome("fault", f"Code was executed after {story}.\n{printed}")
    if status == "stopped" and file.name == "run.json":
        return _server.Outcome("long", story)  # It may ask for a billion episodes. Ctrl-C must end that.
    return _server.judge(status, printed, story)


# Changes of a file. Each may use chance, the other files, and the file that code of ours would make.


def flip_bits(file: pathlib.Path, chance: random.Random, *unused: Any) -> None:
    content = bytearray(file.read_bytes())
    for _ in range(chance.choice([1, 1, 2, 64]) if content else 0):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    file.write_bytes(content)


def cut_off(file: pathlib.Path, chance: random.Random, *unused: Any) -> None:
    os.truncate(file, chance.choice([0, chance.randrange(file.stat().st_size + 1)]))


def delete(file: pathlib.Path, *unused: Any) -> None:
    file.unlink()


def lengthen(file: pathlib.Path, chance: random.Random, *unused: Any) -> None:
    with open(file, "ab") as end:
        end.write(chance.randbytes(chance.choice([1, 100, 100_000])))


def replace_by_noise(file: pathlib.Path, chance: random.Random, *unused: Any) -> None:
    file.write_bytes(chance.randbytes(chance.choice([1, 1000, file.stat().st_size])))


def replace_by_a_folder(file: pathlib.Path, *unused: Any) -> None:
    file.unlink()
    file.mkdir()


def replace_by_a_pipe(file: pathlib.Path, *unused: Any) -> None:
    file.unlink()
    os.mkfifo(file)


def replace_by_another(
    file: pathlib.Path, chance: random.Random, files: list[pathlib.Path], *unused: Any
) -> None:
    file.write_bytes(chance.choice(files).read_bytes())


def replace_by_a_pickle(
    file: pathlib.Path, chance: random.Random, files: list[pathlib.Path], executed: pathlib.Path
) -> None:
    hostile = _Hostile(executed)
    kind = chance.choice(["pickle", "torch", "torch in a dict", "npz"])
    with open(file, "wb") as target:
        if kind == "pickle":
            pickle.dump(hostile, target)
        elif kind == "npz":
            np.savez(target, described=np.array([hostile], object))
        else:
            import torch

            torch.save(hostile if kind == "torch" else {"learner": hostile, "counter": hostile}, target)


class _Hostile:
    def __init__(self, executed: pathlib.Path) -> None:
        self._executed = executed

    def __reduce__(self) -> Any:
        return pathlib.Path.touch, (self._executed,)


def change_a_value(
    file: pathlib.Path, chance: random.Random, files: list[pathlib.Path], executed: pathlib.Path
) -> str:
    """Of a file of JSON; returns which."""
    content = json.loads(file.read_text())
    holder, key = chance.choice(list(places(content)))
    code = f"pathlib:Path({str(executed)!r}).touch"
    value = chance.choice(
        [0, -1, 10**7, 2**31, 10**18, 10**400, 0.5, float("nan"), float("inf"), True, None, "", "x" * 1000,
         "../..", code, "os:abort", [], {}, [[]], [10**9, 10**9], {"x": 1}, _DELETED, _DEEP]
    )  # fmt: skip
    if value is _DELETED:
        del holder[key]
    else:
        holder[key] = value
    text = json.dumps(content)
    file.write_text(text.replace(json.dumps(_DEEP), "[" * 100_000 + "]" * 100_000))
    return f" ({key}: {repr(value)[:50]})"


_DELETED, _DEEP = object(), "deeply nested"


def places(content: Any) -> Any:
    for key in list(content) if isinstance(content, dict) else range(len(content)):
        yield content, key
        if isinstance(content[key], dict | list):
            yield from places(content[key])


def change_an_array(file: pathlib.Path, chance: random.Random, *unused: Any) -> None:
    """Of a file of numpy arrays; the rest stays as it is, checksums included."""
    with np.load(file) as stored:
        arrays = dict(stored)
    name = chance.choice(sorted(arrays))
    array = arrays[name]
    if name == "described":
        described = json.loads(str(array))
        holder, key = chance.choice(list(places(described)))
        holder[key] = chance.choice([0, -1, 10**18, 0.5, float("nan"), None, "", [], {}])
        arrays[name] = np.array(json.dumps(described))
    elif chance.random() < 0.3 or not array.size:
        dtype = chance.choice([np.float64, np.int8, np.complex64, "U3"])
        arrays[name] = chance.choice([array.astype(dtype), array[:-1], array[None], np.zeros(0, array.dtype)])
    else:
        array = array.copy()
        value = chance.choice([-1, 0, 1, 1000, 2**31 - 1, -(2**31)])
        array.reshape(-1)[chance.randrange(array.size)] = np.array(value).astype(array.dtype)
        arrays[name] = array
    np.savez(file, **arrays)


def ask_for_terabytes(file: pathlib.Path, chance: random.Random, *unused: Any) -> None:
    """In the header of one of a file's arrays."""
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = io.BytesIO()
    shape = (1 << chance.choice([30, 40, 50, 62]),)
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
    members[chance.choice(sorted(members))] = header.getvalue() + bytes(1000)
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def change_a_tensor(file: pathlib.Path, chance: random.Random, *unused: Any) -> None:
    """Or a number, or a whole branch, of what torch saved."""
    import torch

    state = torch.load(file, weights_only=True)
    holder, key = chance.choice([place for place in places(state) if not isinstance(place[0], tuple)])
    values = [0, -1, 10**18, float("nan"), None, "", [], {}, torch.zeros(3), torch.zeros(0), torch.ones(2, 2)]
    if isinstance(holder[key], torch.Tensor) and chance.random() < 0.5:
        values = [holder[key] * 0 + chance.choice([1, 100]), holder[key].double(), holder[key][None]]
    holder[key] = chance.choice(values)
    torch.save(state, file)


def compress(file: pathlib.Path, chance: random.Random, *unused: Any) -> None:
    """The members of an archive, of which one unpacks to much more than it was."""
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    large = chance.choice(sorted(members))
    members[large] += bytes(chance.choice([0, 1 << 20, 1 << 26]))
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def change_a_number(file: pathlib.Path, chance: random.Random, *unused: Any) -> None:
    """Of a table."""
    lines = [line.split(",") for line in file.read_text().splitlines()]
    line = chance.choice(lines)
    line[chance.randrange(len(line))] = chance.choice(
        ["1e308", "-1e308", "1e-320", "inf", "nan", "", "x", "9" * 400, "-1"]
    )
    file.write_text("".join(f"{','.join(line)}\n" for line in lines))


_ANY: list[Callable[..., str | None]] = [
    flip_bits, cut_off, delete, lengthen, replace_by_noise, replace_by_a_folder, replace_by_a_pipe,
    replace_by_another, replace_by_a_pickle,
]  # fmt: skip


def _changes(file: pathlib.Path) -> list[Callable[..., str | None]]:
    """Those that there are for a file, the ones for its kind as likely as all others together."""
    of_kind: dict[str, list[Callable[..., str | None]]] = {
        ".json": [change_a_value],
        ".npz": [change_an_array, change_an_array, ask_for_terabytes, compress],
        ".pt": [change_a_tensor, change_a_tensor, compress],
        ".csv": [change_a_number],
    }
    own = of_kind.get(file.suffix, [])
    return _ANY + own * (len(_ANY) // len(own) if own else 0)


def _correct_manifest(changed: pathlib.Path) -> bool:
    """Writes anew what the manifest of a changed file's checkpoint says; returns whether it has one."""
    for folder in changed.parents:
        manifest = folder / "manifest.json"
        if not manifest.exists():
            continue
        content = json.loads(manifest.read_text())
        name = changed.relative_to(folder).as_posix()
        content["files"].pop(name, None)
        if changed.is_file():
            found = changed.read_bytes()
            content["files"][name] = {"bytes": len(found), "sha256": hashlib.sha256(found).hexdigest()}
        del content["sha256"]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        manifest.write_text(json.dumps({**content, "sha256": digest}))
        return True
    return False
