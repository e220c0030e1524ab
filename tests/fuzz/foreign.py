"""Files from somebody else, of every kind that a command reads: no code, nothing outside, one sentence.

A case is a run, a policy (of the Hub, too), recorded episodes, settings, a search or rows of results, one
change of one of its files, and a command that reads it. Half of the changes put into a string or list of a
file what would be another flag, a module or another folder if it were ever read as words of a command.
"""

import json
import pathlib
import random
import shutil
import struct
import tomllib
from collections.abc import Callable
from typing import Any

from . import _server, files

COUNT = 3000

MODULE = "evil_module"
_PPO = """
    --num-env-steps 64 --evaluation-episodes 1 --evaluation-period 0 --checkpoint-period 0 --log csv
    --policy-layer-sizes 4 --value-layer-sizes 4 --replay memory --rollout-steps 32 --minibatch-size 16
    --num-environments 1
"""
_TRAIN = f"train ppo --env CartPole-v1 {_PPO}"
_BC = """
    --num-learner-steps 3 --batch-size 4 --policy-layer-sizes 4 --evaluation-episodes 1 --evaluation-period 0
    --log csv --replay memory
"""
_SEARCH = f"sweep ppo --env CartPole-v1 {_PPO} --torso tanh layer_norm --search learning-rate --optuna"
_SETTINGS = """
agent = "ppo"
env = "CartPole-v1"
num_env_steps = 64
preset = "default"
evaluation_episodes = 1
evaluation_period = 0
log = ["csv"]
replay = "memory"
device = "auto"
[hyperparameters]
policy_layer_sizes = [4]
value_layer_sizes = [4]
critic_observations = []
torso = "tanh"
learning_rate = 1e-3
rollout_steps = 32
minibatch_size = 16
num_environments = 1
[env_kwargs]
sutton_barto_reward = false
"""

# What is changed of each kind, below the folder of a case, and the commands that read it; `{case}` is that
# folder. Words of a command cost a second if they train.
_KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "run": (
        "run.json provenance.json checkpoints/*/manifest.json *.csv",
        (
            "eval {case} --episodes 1",
            "resume {case} --num-env-steps 96",
            "list runs {case}",
            "plot {case} --output {case}/curve",
            "collect {case} --output {case}/rows",
            "export {case} --output {case}/policy.safetensors",
            "dataset {case} --episodes 1 --output {case}/data",
            "publish {case} --no-video --episodes 2",
            "train --config {case}/run.json --directory {case}/again",
            f"train ppo --env CartPole-v1 {_PPO} --from {{case}} --directory {{case}}/next",
        ),
    ),
    "policy": (
        "policy.safetensors",
        (
            "eval {case}/policy.safetensors --episodes 1",
            "verify {case}/policy.safetensors",
            "dataset {case}/policy.safetensors --episodes 1 --output {case}/data",
        ),
    ),
    "data": (
        "data/data/metadata.json data/data/main_data.hdf5",
        (
            f"train bc --dataset {{case}}/data {_BC} --evaluation-episodes 0 --directory {{case}}/run",
            f"train bc --env CartPole-v1 --dataset {{case}}/data {_BC} --directory {{case}}/run",
        ),
    ),
    "settings": ("settings.toml", ("train --config {case}/settings.toml --directory {case}/run",)),
    "search": ("study.json", (f"{_SEARCH} 1 --directory {{case}}",)),
    "rows": (
        "rows/*",
        (
            "report {case}/rows/ppo.csv --range CartPole-v1=0:500 --output {case}/report",
            "collect {case}/run --name ppo --output {case}/rows",
        ),
    ),
}


def check(seed: int) -> str:
    """Tries a case; returns how it ended. Raises AssertionError if that is not as it must be."""
    return _server.server_of("foreign").check(seed)


def prepare(folder: pathlib.Path) -> None:
    """Makes one of each kind."""
    here, run = folder / "here", folder / "run"
    here.mkdir()
    (folder / "outside").mkdir()
    place_module(folder)

    def call(words: str) -> None:
        status, printed = _server.call(folder / "printed", words.split(), here)
        assert status == 0, printed

    data = folder / "data" / "data"
    call(f"{_TRAIN} --directory {run} --record {data}")
    call(f"export {run} --output {folder}/policy/policy.safetensors --episodes 2")
    call(f"collect {run} --name ppo --output {folder}/rows/rows")
    shutil.copytree(run, folder / "rows" / "run")
    (folder / "settings").mkdir()
    (folder / "settings" / "settings.toml").write_text(_SETTINGS)
    call(f"{_SEARCH} 1 --directory {folder}/search")


def place_module(folder: pathlib.Path) -> None:
    """Writes a module that leaves a trace where commands are called, since modules are found there."""
    imported = str(folder / "outside" / "imported")
    (folder / "here" / f"{MODULE}.py").write_text(f"open({imported!r}, 'w').close()\n")


def try_case(folder: pathlib.Path, seed: int) -> _server.Outcome:
    """Changes a file, and calls a command that reads it.

    Every second round through all files puts words into the next string or list of each.
    """
    chance = random.Random(seed)
    every = [
        (kind, file.relative_to(folder / kind))
        for kind, (patterns, _) in _KINDS.items()
        for pattern in patterns.split()
        for file in sorted((folder / kind).glob(pattern))
    ]
    turn, index = divmod(seed, len(every))
    kind, name = every[index]
    case, outside = folder / "case", folder / "outside"
    shutil.rmtree(case, ignore_errors=True)
    shutil.copytree(folder / kind, case)
    others = [case / other for of, other in every if of == kind]
    file, changes = case / name, _changes(case / name)
    if turn % 2 == 0 and put_words in changes:
        change, detail = put_words, put_words(file, chance, others, outside / "executed", turn // 2)
    else:
        change = chance.choice(changes)
        detail = change(file, chance, others, outside / "executed") or ""
    command = chance.choice(_KINDS[kind][1])
    story = f"{change.__name__}{detail} of {kind}: {name}, then {' '.join(command.split())}"
    status, printed = _server.call(folder / "printed", command.format(case=case).split(), folder / "here")
    if found := sorted(outside.rglob("*")):
        shutil.rmtree(outside)
        outside.mkdir()
        return _server.Outcome("fault", f"{found[0].name} is outside after {story}.\n{printed}")
    if status == "stopped" and change in (put_a_value, files.flip_bits):
        return _server.Outcome("long", story)  # It may ask for a billion steps. Ctrl-C must end that.
    return _server.judge(status, printed, story)


def _hostile(outside: pathlib.Path) -> list[Any]:
    """What is put into strings and lists."""
    module, recording = f"{MODULE}:Evil-v0", str(outside / "recording")
    return [
        module,
        f"--env={module}",
        f"0.001 --env {module}",
        ["0.001", "--env", module],
        ["--agent", f"{MODULE}:Builder"],
        f"0.001 --record {recording}",
        ["0.001", "--record", recording],
        [[module]],
    ]


def put_words(
    file: pathlib.Path, chance: random.Random, _: Any, executed: pathlib.Path, turn: int | None = None
) -> str:
    """Into a string or a list of a file, in place of it or at its end. Args: turn: Which, or None for any."""
    content, write = _read(file)
    places = [
        (holder, key) for holder, key in files.places(content) if isinstance(holder[key], str | list | tuple)
    ]
    holder, key = chance.choice(places) if turn is None else places[turn % len(places)]
    value = chance.choice(_hostile(executed.parent))
    holder[key] = [*holder[key], value] if isinstance(holder[key], list) and chance.random() < 0.5 else value
    write(content)
    return f" ({key}: {value})"


def put_a_value(file: pathlib.Path, chance: random.Random, _: Any, executed: pathlib.Path) -> str:
    """In place of another, of any type."""
    content, write = _read(file)
    holder, key = chance.choice(list(files.places(content)))
    value = chance.choice(
        [0, -1, 10**7, 2**31, 10**18, 10**400, 0.5, 1e308, float("nan"), float("inf"), True, None, "", "x",
         "x" * 1000, "../..", "\ud800", "\x1b[2J", "os:abort", [], [[]], [10**9, 10**9], {}, {"x": 1},
         {"": None}]
    )  # fmt: skip
    holder[key] = value
    write(content)
    return f" ({key}: {repr(value)[:50]})"


def nest(file: pathlib.Path, chance: random.Random, _: Any, executed: pathlib.Path) -> str:
    """A value 100,000 deep."""
    content, write = _read(file)
    holder, key = chance.choice(list(files.places(content)))
    holder[key] = "deep"
    write(content)
    text = file.read_bytes()
    file.write_bytes(text.replace(b'"deep"', b"[" * 100_000 + b"]" * 100_000))
    return f" ({key})"


def change_the_data(file: pathlib.Path, chance: random.Random, *unused: Any) -> str:
    """One of the changes of tests/datasets/test_hdf5.py."""
    import h5py

    from tests.datasets import test_hdf5

    change = chance.choice(list(test_hdf5.HOSTILE))
    with h5py.File(file, "r+") as opened:
        change(opened)
    return f" ({change.__name__})"


def _read(file: pathlib.Path) -> tuple[Any, Callable[[Any], object]]:
    """Returns the values of a file, with those of JSON that is in its strings, and a function to write it."""
    if file.suffix == ".toml":
        return tomllib.loads(file.read_text()), lambda content: file.write_text(_as_toml(content))
    if file.suffix == ".json":
        content = _opened(json.loads(file.read_text()))
        return content, lambda content: file.write_text(json.dumps(_closed(content)))
    packed = file.read_bytes()
    (size,) = struct.unpack("<Q", packed[:8])
    header, tensors = _opened(json.loads(packed[8 : 8 + size])), packed[8 + size :]

    def write(content: Any) -> None:
        text = json.dumps(_closed(content)).encode()
        file.write_bytes(struct.pack("<Q", len(text)) + text + tensors)

    return header, write


_INNER = "JSON in a string"


def _opened(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _opened(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_opened(part) for part in value]
    if isinstance(value, str) and value[:1] in ("{", "["):
        return {_INNER: _opened(json.loads(value))}
    return value


def _closed(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_INNER}:
            return json.dumps(_closed(value[_INNER]))
        return {name: _closed(part) for name, part in value.items()}
    return [_closed(part) for part in value] if isinstance(value, list) else value


def _as_toml(content: dict[str, Any]) -> str:
    tables = {name: value for name, value in content.items() if isinstance(value, dict)}
    lines = [f"{name} = {_of_toml(value)}" for name, value in content.items() if name not in tables]
    for name, table in tables.items():
        lines += [f"[{name}]", *(f"{key} = {_of_toml(value)}" for key, value in table.items())]
    return "\n".join(lines)


def _of_toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key)} = {_of_toml(part)}' for key, part in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_of_toml, value))}]"
    if value is None:
        return '"None"'
    return repr(value) if isinstance(value, float) else json.dumps(value)


_CHANGES = [
    *(files.flip_bits, files.cut_off, files.delete, files.lengthen, files.replace_by_noise),
    *(
        files.replace_by_a_folder,
        files.replace_by_another,
        files.replace_by_a_pickle,
        files.replace_by_a_pipe,
    ),
]


def _changes(file: pathlib.Path) -> list[Callable[..., str | None]]:
    """Those that there are for a file; as often as not, one that puts words or values into it."""
    if file.suffix == ".csv":
        return [*_CHANGES, *[files.change_a_number] * len(_CHANGES)]
    if file.suffix == ".hdf5":
        return [*_CHANGES, *[change_the_data] * len(_CHANGES)]
    return [*_CHANGES, *[put_words] * 2 * len(_CHANGES), *[put_a_value] * len(_CHANGES), nest]
