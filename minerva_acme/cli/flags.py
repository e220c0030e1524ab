"""Flags as people write them: brought to their own names and checked before the parser sees them.

`1e5` is a whole number and `64,64` are two. The parser's own words for a wrong value are about types.
"""

import contextlib
import dataclasses
import sys
import types
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import tyro

from minerva_acme.cli import choices

AGENT = "--agent"
"""Names the agent of `minerva train` too: people write it before where a builder is."""

OTHER_NAMES = {"--num-envs": "--num-environments", "--environment": "--env"}
ELSEWHERE: Mapping[str, tuple[str, ...]] = types.MappingProxyType(
    {
        "--total-timesteps": ("--num-env-steps",),
        "--timesteps": ("--num-env-steps",),
        "--num-timesteps": ("--num-env-steps",),
        "--n-timesteps": ("--num-env-steps",),
        "--total-steps": ("--num-env-steps",),
        "--total-frames": ("--num-env-steps",),
        "--steps": ("--num-env-steps",),
        "--env-id": ("--env",),
        "--env-name": ("--env",),
        "--gym-id": ("--env",),
        "--task": ("--env",),
        "--domain": ("--env",),
        "--algo": (AGENT,),
        "--algorithm": (AGENT,),
        "--learning-rate": ("--policy-learning-rate", "--critic-learning-rate"),
        "--lr": ("--learning-rate", "--policy-learning-rate", "--critic-learning-rate"),
        "--policy-lr": ("--policy-learning-rate", "--learning-rate"),
        "--q-lr": ("--critic-learning-rate", "--learning-rate"),
        "--anneal-lr": ("--anneal-learning-rate",),
        "--gamma": ("--discount",),
        "--n-envs": ("--num-environments",),
        "--n-steps": ("--rollout-steps (of all environments together)", "--n-step"),
        "--num-steps": ("--num-env-steps", "--rollout-steps (of all environments together)"),
        "--n-epochs": ("--num-epochs",),
        "--update-epochs": ("--num-epochs",),
        "--batch-size": ("--minibatch-size", "--rollout-steps"),
        "--num-minibatches": ("--minibatch-size (steps in each)",),
        "--clip-range": ("--clip-ratio",),
        "--clip-coef": ("--clip-ratio",),
        "--clip-vloss": ("--clip-value",),
        "--ent-coef": ("--entropy-coef", "--initial-temperature"),
        "--vf-coef": ("--value-coef",),
        "--norm-adv": ("--normalize-advantages",),
        "--use-sde": ("--init-stddev",),
        "--buffer-size": ("--max-replay-size",),
        "--replay-size": ("--max-replay-size",),
        "--learning-starts": ("--min-replay-size",),
        "--train-freq": ("--samples-per-insert (batch_size / samples_per_insert items a learner step)",),
        "--train-frequency": ("--samples-per-insert (batch_size / samples_per_insert items a learner step)",),
        "--gradient-steps": ("--samples-per-insert (batch_size / samples_per_insert items a learner step)",),
        "--utd-ratio": ("--samples-per-insert (batch_size / samples_per_insert items a learner step)",),
        "--tau": ("--target-rate", "--target-critic-update-period", "--target-update-period"),
        "--policy-delay": ("--policy-period",),
        "--policy-frequency": ("--policy-period",),
        "--exploration-noise": ("--exploration-stddev",),
        "--exploration-final-eps": ("--final-epsilon",),
        "--end-e": ("--final-epsilon",),
        "--start-e": ("--initial-epsilon",),
        "--net-arch": ("--policy-layer-sizes", "--critic-layer-sizes", "--value-layer-sizes"),
        "--hidden-sizes": ("--policy-layer-sizes", "--critic-layer-sizes", "--value-layer-sizes"),
        "--layer-sizes": ("--policy-layer-sizes", "--critic-layer-sizes", "--value-layer-sizes"),
        "--hidden-size": ("--policy-layer-sizes", "--critic-layer-sizes", "--value-layer-sizes"),
        "--eval-freq": ("--evaluation-period",),
        "--eval-every": ("--evaluation-period",),
        "--eval-episodes": ("--evaluation-episodes", "--episodes"),
        "--n-eval-episodes": ("--evaluation-episodes", "--episodes"),
        "--num-episodes": ("--episodes", "--evaluation-episodes"),
        "--n-episodes": ("--episodes", "--evaluation-episodes"),
        "--save-freq": ("--checkpoint-period",),
        "--save-every": ("--checkpoint-period",),
        "--log-dir": ("--directory",),
        "--logdir": ("--directory",),
        "--log-path": ("--directory",),
        "--log-folder": ("--directory",),
        "--save-path": ("--directory", "--out", "--output"),
        "--save-dir": ("--directory", "--out", "--output"),
        "--out-dir": ("--directory", "--out", "--output"),
        "--output-dir": ("--directory", "--out", "--output"),
        "--exp-name": ("--directory",),
        "--tensorboard-log": ("--log tensorboard", "--directory"),
        "--tensorboard": ("--log tensorboard",),
        "--wandb": ("--log wandb",),
        "--track": ("--log wandb",),
        "--capture-video": ("--evaluation-video",),
        "--cuda": ("--device cuda",),
        "--gpu": ("--device cuda",),
        "--config-file": ("--config",),
        "--deterministic": ("--no-explore (it is so by default)",),
    }
)
"""What Stable-Baselines3, CleanRL and others call a flag, and what it may be here: the flag, then what to
know. Those that a command has are shown."""

_BY_COMMAS = ("--log", "--format", "--published", "--against")
_NUMBERS: dict[Any, str] = {int: "a whole number", float: "a number"}


def of(command: type[Any]) -> Iterator[tuple[str, Any]]:
    """Yields the flags that a command's fields become, nested ones without a prefix, and their types."""
    hints = typing.get_type_hints(command, include_extras=True)
    for field in dataclasses.fields(command):
        hint = hints[field.name]
        marks = getattr(hint, "__metadata__", ())
        name = field.name.replace("_", "-")
        if dataclasses.is_dataclass(hint):
            yield from of(hint)  # type: ignore[arg-type]
        elif tyro.conf.Suppress not in marks and tyro.conf.Positional not in marks:
            yield f"--{name}", hint
            if hint is bool:
                yield f"--no-{name}", bool


def check_config(config: type[Any], *, taken: Collection[str]) -> None:
    """Checks that an agent's config can be flags, whose values `run.json` gives back.

    Args:
        config: a dataclass.
        taken: flags with another meaning.

    Raises:
        ValueError: a field has no such type, or its flag is taken; the message names it.
    """
    try:
        hints = typing.get_type_hints(config, include_extras=True)
    except NameError as error:
        raise ValueError(
            f"The types of {config.__name__}'s fields must be names that its module has, but {error}. Import "
            "them also where not only type checkers look."
        ) from error
    for field in dataclasses.fields(config):
        if not (field.init and _is_plain(hints[field.name])):
            kind = getattr(field.type, "__name__", field.type)
            raise ValueError(
                f"`{field.name}` of {config.__name__} cannot be a flag: it must be an argument, and a bool, "
                f"int, float, str, Literal, None, or a union or tuple of such, got {kind}. Make it in the "
                "builder, or in a property of the config, from fields that are; or train from Python by "
                "`run_experiment`."
            )
        if (flag := f"--{field.name.replace('_', '-')}") in taken:
            raise ValueError(
                f"`{field.name}` of {config.__name__} must have another name: {flag} is a flag of "
                "`minerva train` itself."
            )


def _is_plain(hint: Any) -> bool:
    """Whether values of this type are flags that JSON gives back as they were."""
    kind, parts = typing.get_origin(hint), typing.get_args(hint)
    if kind is Annotated:
        return _is_plain(parts[0])
    if kind in (tuple, typing.Union, types.UnionType):
        return all(part is ... or _is_plain(part) for part in parts)
    return kind is Literal or hint in (*_NUMBERS, bool, str, types.NoneType)


def settle(arguments: Sequence[str], hints: Mapping[str, Any], command: str) -> list[str]:
    """Returns the arguments with flags by their own names, and with what commas separate split.

    Args:
        arguments: as they were typed, behind the command.
        hints: the command's flags and the types of their values.
        command: for messages.

    Raises:
        ValueError: the command has no such flag, or a value is none of its flag's; the message has the
            similar ones.
    """
    settled: list[str] = []
    flag, kind, left, many, may_be_none = "", None, 0, False, False
    for argument in arguments:
        values = [argument]
        if argument.startswith("--") and len(argument) > 2:
            written, equals, value = argument.partition("=")
            flag = _find(written.replace("_", "-"), hints, command)
            kind, many, may_be_none = _read(hints.get(flag))
            left = sys.maxsize if many else 1  # what follows is positional
            settled.append(flag)
            values = [value] if equals else []
        if left and (flag in _BY_COMMAS or (many and kind in _NUMBERS)):
            values = [part for value in values for part in value.strip("()[]").split(",") if part]
        for value in values:
            if left and not (may_be_none and value == "None"):
                value = _read_value(flag, value, kind)
            left = max(0, left - 1)
            settled.append(value)
    return settled


def without(settled: Sequence[str], others: Sequence[str]) -> list[str]:
    """Returns the settled arguments without those flags, and their values, that others have too."""
    named = {_positive(argument) for argument in others if argument.startswith("--")}
    left: list[str] = []
    is_kept = True
    for argument in settled:
        if argument.startswith("--"):
            is_kept = _positive(argument) not in named
        if is_kept:
            left.append(argument)
    return left


def _positive(flag: str) -> str:
    return f"--{flag.removeprefix('--no-')}" if flag.startswith("--no-") else flag


def split(
    arguments: Sequence[str], own: Mapping[str, Any], others: Mapping[str, Any], command: str
) -> tuple[list[str], tuple[tuple[str, tuple[tuple[str, ...], ...]], ...]]:
    """Takes the flags of another command, with lists of values, out of a command's arguments.

    Args:
        arguments: as they were typed, behind the command.
        own: the command's flags and the types of their values.
        others: the other command's.
        command: for messages.

    Returns:
        The command's own arguments. And for each other flag the words of every value to try, the flag among
        them; where one value is several, commas have separated them.

    Raises:
        ValueError: neither command has such a flag, or one has no value.
    """
    left: list[str] = []
    found: dict[str, list[tuple[str, ...]]] = {}
    flag, splits = "", False
    for argument in arguments:
        values = [argument]
        if argument.startswith("--") and len(argument) > 2:
            written, equals, value = argument.partition("=")
            flag = _find(written.replace("_", "-"), {**others, **own}, command)
            if flag not in others or flag in own:
                flag, values = "", [argument]
            elif others[flag] is bool:
                found.setdefault(flag.replace("--no-", "--"), []).append((flag,))
                continue
            else:
                found.setdefault(flag, [])
                _, splits, _ = _read(others[flag])
                values = [value] if equals else []
        if flag and others[flag] is not bool:
            found[flag] += [(flag, *(value.split(",") if splits else [value])) for value in values]
        else:
            left += values
    for flag, values_ in found.items():
        if not values_:
            raise ValueError(f"`{flag}` must have a value, or several to try each of them, got none.")
    return left, tuple((flag, tuple(values_)) for flag, values_ in found.items())


def _find(flag: str, hints: Mapping[str, Any], command: str) -> str:
    if flag not in hints and OTHER_NAMES.get(flag) in hints:
        return OTHER_NAMES[flag]
    if flag in hints or flag == "--help":
        return flag
    known = (*hints, AGENT) if "--env" in hints else hints
    here = [name for name in ELSEWHERE.get(flag, ()) if name.partition(" ")[0] in known]
    if here:
        raise ValueError(f"`{command}` has no flag {flag}. Here it is {' or '.join(here)}.")
    hint = choices.near(flag, sorted(hints), at_most=3) or f"There are: {command} --help"
    raise ValueError(f"`{command}` has no flag {flag}. {hint}")


def _read(hint: Any) -> tuple[Any, bool, bool]:
    """Returns the type of a value, whether there may be several, and whether None is one."""
    if typing.get_origin(hint) is Annotated:
        hint = typing.get_args(hint)[0]
    parts = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    kinds = [part for part in parts if part is not types.NoneType]
    kind = kinds[0] if len(kinds) == 1 else None
    many = typing.get_origin(kind) is tuple
    return typing.get_args(kind)[0] if many else kind, many, len(kinds) < len(parts)


def _read_value(flag: str, value: str, kind: Any) -> str:
    """Returns a value as the parser reads it, or raises ValueError where it is none of its type."""
    if kind in _NUMBERS:
        try:
            if kind is int:
                return str(_whole(value))
            float(value)
        except ValueError:
            raise ValueError(f"`{flag}` must be {_NUMBERS[kind]}, got '{value}'.") from None
    elif typing.get_origin(kind) is Literal:
        known = [str(choice) for choice in typing.get_args(kind)]
        if value not in known:
            message = f"`{flag}` must be one of {', '.join(known)}, got '{value}'."
            raise ValueError(f"{message} {choices.near(value, known)}".rstrip())
    return value


def _whole(value: str) -> int:
    """Reads a whole number, also one with an exponent: 1e5, 2.5e6."""
    with contextlib.suppress(ValueError):
        return int(value)
    number = float(value)
    if "e" not in value.lower() or not number.is_integer():
        raise ValueError(value)
    return int(number)
