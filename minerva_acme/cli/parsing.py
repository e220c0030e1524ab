"""Parses the command line into a command of `commands`."""

import contextlib
import copy
import dataclasses
import functools
import io
import os
import pathlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, Literal, NoReturn

import tyro

from minerva_acme import _version, constraints
from minerva_acme.agents import registry
from minerva_acme.cli import choices, commands, config_files, flags, guide, help_pages
from minerva_acme.environments import task_settings
from minerva_acme.runs import env_kwargs, tasks

DEBUG = "--debug"
"""The flag that shows the tracebacks of errors, anywhere among the arguments. `main` removes it."""

_HELP = ("-h", "--help")
_LIKE_AN_ENVIRONMENT = re.compile(r"^(dm_control|gymnasium)/|-v\d+$")
_RUN = "run.json"
_OFFLINE_STEPS = 20_000  # the default number of learner steps on recorded episodes
_TASK = "task"  # the preset that is looked up by agent and environment
# Fields that the defaults of `minerva train` depend on.
_PEEKED = ("preset", "env", "num_env_steps", "num_learner_steps", "dataset", "from_run")


def parse(arguments: Sequence[str]) -> Any:
    """Returns the command with its arguments.

    Raises:
        ValueError: There is no such command, agent, preset or flag, or a value is invalid.
        SystemExit: The parser printed help, or which arguments are missing or superfluous.
    """
    if not arguments:
        print(guide.commands_page(), file=sys.stderr)
        raise SystemExit(2)
    name, *rest = arguments
    if name == "help" and rest:
        return parse([*rest, "--help"])
    if name in (*_HELP, "help"):
        _show(guide.commands_page())
    if name in ("-V", "--version", "version"):
        _show(f"minerva-acme {_version.__version__}")
    if name.startswith("-"):
        raise ValueError(
            f"`minerva` has no flag {name} before a command. For all commands and flags: minerva --help"
        )
    command = commands.COMMANDS[choices.choose("command", name, commands.COMMANDS)]
    typed = f"minerva {name}"
    title = ""
    settings: commands.Settings = ()
    given: Mapping[str, Any] = {}  # by a file, for fields whose flags are not typed
    if command is commands.Train:
        rest = _with_agent_first(rest)
        path, _ = flags.take(rest, "--config")
        file = config_files.read(pathlib.Path(path)) if path else None
        if not (file and file.agent) and _asks_for_help_alone(rest):
            _show(guide.agents_page())
        agent, rest = _agent(rest, typed, file)
        typed += f" {agent}"
        if file:
            hints = dict(flags.of(train_command(agent)))
            _, typed_words = flags.settle(rest, hints, typed)
            given = file.values(hints, {word for word in typed_words if word.startswith("--")}, typed)
        given = _with_data_as_environment(rest, given)
        command = train_command(agent, rest, given)
        title = registry.find(agent).title
    elif command is commands.Sweep and not set(_HELP) & set(rest):
        agent, rest = _agent(_with_agent_first(rest), typed)
        rest, settings = flags.split(rest, dict(flags.of(command)), _swept(agent), f"{typed} {agent}")
    if set(_HELP) & set(rest):
        _show(help_pages.page(command, typed, title))
    hints = dict(flags.of(command))
    positional, settled = flags.settle(rest, hints, typed)
    if (title or command is commands.Sweep) and "--env" not in settled and "env" not in given:
        without_flag = next((word for word in positional if _LIKE_AN_ENVIRONMENT.search(word)), None)
        found = (
            f"'{without_flag}' without its flag: --env {without_flag}"
            if without_flag
            else (
                "none. For example: --env CartPole-v1, or your own: "
                "--env my_module:MyEnvironment. Those that are here: minerva list environments"
            )
        )
        raise ValueError(f"`{typed}` must have an environment, got {found}")
    _check_complete(command, typed, [*positional, *settled])
    # If a flag is given twice, the last one counts.
    parsed = _parse(command, typed, [*positional, *settled])
    if settings:
        parsed = dataclasses.replace(parsed, settings=settings)
    if getattr(parsed, "directory", None) and parsed.directory.name == _RUN:
        parsed = dataclasses.replace(parsed, directory=parsed.directory.parent)
    env_kwargs.read(getattr(parsed, "env_kwargs", ()))
    named = getattr(parsed, "env", None) or getattr(parsed, "environment", None) or ()
    environments = [named] if isinstance(named, str) else named  # their modules may be imported
    if getattr(parsed, "import_code", False) or any(":" in name for name in environments):
        _find_modules_here()
    return parsed


def _check_complete(command: type[Any], typed: str, given: Sequence[str]) -> None:
    """Checks that the arguments without a default are there, positional ones before all flags.

    Raises:
        ValueError: One is missing.
    """
    hints = constraints.type_hints(command)
    for field in dataclasses.fields(command):
        hint, flag = hints[field.name], f"--{field.name.replace('_', '-')}"
        defaults = (field.default, field.default_factory)
        if any(default is not dataclasses.MISSING for default in defaults) or dataclasses.is_dataclass(hint):
            continue
        is_positional = tyro.conf.Positional in getattr(hint, "__metadata__", ())
        is_given = flag in given or (is_positional and given and not given[0].startswith("--"))
        if is_given or flags.read(hint)[1]:  # the commands themselves say what is missing in a list
            continue
        if field.name == "directory":
            raise ValueError(
                f"`{typed}` must have the folder of a run, got none. Those that are here: minerva list runs"
            )
        name = field.name.upper() if is_positional else flag
        raise ValueError(f"`{typed}` must have {name}, got none. For all arguments: {typed} --help")


def _show(page: str) -> NoReturn:
    print(page)
    raise SystemExit(0)


def _with_data_as_environment(arguments: Sequence[str], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns what is given, with the environment that recorded episodes stand for if there is no other."""
    dataset, env = _peek(arguments, given, "dataset", "env")
    return given if dataset is None or env is not None else {**given, "env": task_settings.recorded(dataset)}


def _peek(arguments: Sequence[str], given: Mapping[str, Any], *names: str) -> list[Any]:
    """Returns values by their fields' names: those of flags, or those that are given, or None."""
    found = []
    for name in names:
        written = {f"--{name}", *flags.names(f"--{name.replace('_', '-')}")}
        value, _ = flags.take(arguments, *written)
        found.append(given.get(name) if value is None else value)
    return found


def train_command(
    agent: str, arguments: Sequence[str] = (), given: Mapping[str, Any] | None = None
) -> type[commands.Train]:
    """Returns `Train` with the flags of an agent.

    Args:
        agent: The agent.
        arguments: The typed arguments, whose preset and environment decide the defaults.
        given: Values by their fields' names, which are defaults too.
    """
    if ":" in agent:
        _find_modules_here()
    given = given or {}
    entry = registry.find(agent)
    flags.check_config(entry.config, taken=[flags.AGENT, DEBUG, *dict(flags.of(commands.Train))])
    presets = (*entry.presets, _TASK)
    preset, env, env_steps, learner_steps, dataset, source = _peek(arguments, given, *_PEEKED)
    preset = choices.choose("preset", preset or "default", presets)
    options, steps_by_default = None, ""
    config = find_preset(agent, preset, env)
    if source is not None and hasattr(config, "random_steps"):  # there is a policy that acts
        config = dataclasses.replace(config, random_steps=0)
    config = _with(config, given)
    if type(config).__hash__ is None:  # not frozen, which a dataclass refuses as a default
        hyperparameters = dataclasses.field(default_factory=lambda: config)
    else:
        hyperparameters = dataclasses.field(default=config)
    if env is not None:  # otherwise the parser reports that it is missing
        num_env_steps, why = tasks.default_num_env_steps(agent, env)
        if preset == _TASK:
            num_env_steps = tasks.find(agent, env).num_env_steps
        options = commands.TrainOptions(num_env_steps=num_env_steps)
        if learner_steps is not None or (dataset is not None and env_steps is None):
            options = commands.TrainOptions(num_env_steps=0, num_learner_steps=_OFFLINE_STEPS)
            if env.startswith(task_settings.RECORDED):
                options = dataclasses.replace(options, evaluation_episodes=0)
            if learner_steps is None:
                steps_by_default = "usual for recorded episodes"
        elif env_steps is None:
            steps_by_default = why
    own = constraints.type_hints(commands.Train)
    return dataclasses.make_dataclass(
        "Train",
        [
            ("agent", tyro.conf.Positional[Literal[tuple({**registry.entries(), agent: entry})]]),  # type: ignore[misc]
            *((name, own[name], value) for name, value in given.items() if name in own and name != "preset"),
            ("preset", Literal[presets], given.get("preset", "default")),
            (
                "run",
                commands.TrainOptions,
                dataclasses.field() if options is None else dataclasses.field(default=_with(options, given)),
            ),
            ("hyperparameters", entry.config, hyperparameters),
            ("steps_by_default", tyro.conf.Suppress[str], steps_by_default),
        ],
        bases=(commands.Train,),
        namespace={"__doc__": commands.Train.__doc__},
        frozen=True,
        kw_only=True,
    )


def _with(default: Any, given: Mapping[str, Any]) -> Any:
    """Returns a copy of a dataclass with other values.

    They may be valid only together with what is typed, and are checked when the parser makes it anew of both.
    """
    changed = copy.copy(default)
    for field in dataclasses.fields(default):
        if field.name in given:
            object.__setattr__(changed, field.name, given[field.name])
    return changed


def find_preset(agent: str, preset: str, env: str | None) -> Any:
    """Returns the config of an agent's preset; `task` is the default one if there is no environment.

    Raises:
        ValueError: The preset is `task`, which has no entry for this agent and environment.
    """
    if preset == _TASK and env is not None:
        return tasks.find(agent, env).make_config()
    return registry.find(agent).presets["default" if preset == _TASK else preset]


def _swept(agent: str) -> dict[str, Any]:
    """Returns the flags of `minerva train` that a sweep may vary; for the others it has its own."""
    own = ("--env", "--directory", "--seed", "--distributed", "--num-actors", "--num-learners", "--address")
    return {flag: hint for flag, hint in flags.of(train_command(agent)) if flag not in own}


def _with_agent_first(arguments: Sequence[str]) -> list[str]:
    named, others = flags.take(arguments, flags.AGENT)
    if named is None:
        return others
    if others and not others[0].startswith("-"):
        raise ValueError(f"The agent must be given once, got '{others[0]}' and {flags.AGENT} {named}.")
    return [named, *others]


def _agent(
    arguments: Sequence[str], command: str, file: config_files.ConfigFile | None = None
) -> tuple[str, list[str]]:
    """Returns the agent, and the arguments including it."""
    known = registry.entries()
    named = next((argument for argument in arguments if argument in known), "")  # may follow its flags
    if arguments and not arguments[0].startswith("-"):
        named = arguments[0]
    if file and file.agent:
        return file.choose_agent(named), list(arguments) if named else [file.agent, *arguments]
    if not named:
        raise ValueError(
            f"`{command}` must have an agent, got none; there are {', '.join(known)}. To choose one: minerva "
            "train --help"
        )
    if _LIKE_AN_ENVIRONMENT.search(named):
        raise ValueError(
            f"`{command}` must begin with an agent, got the environment '{named}'. For example: "
            f"{command} ppo --env {named}"
        )
    if ":" not in named:
        advice = f"For your own: {flags.AGENT} my_package.my_module:MyBuilder"
        choices.choose("agent", named, known, advice=advice)
    return named, list(arguments)


def _asks_for_help_alone(arguments: Sequence[str]) -> bool:
    """Returns whether help is requested without naming an agent."""
    named = [a for a in arguments if a in registry.entries() or not a.startswith("-")]
    return bool(set(_HELP) & set(arguments)) and not named


def _find_modules_here() -> None:
    """Lets Python find modules in the current folder too, after all installed ones."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def _parse(command: type[Any], program: str, arguments: Sequence[str]) -> Any:
    """Parses only what was typed, since tyro takes half a millisecond for each flag that a command has."""
    flags_typed = {word.partition("=")[0] for word in arguments if word.startswith("--")}
    typed = dataclasses.make_dataclass("Typed", _typed_fields(command, None, flags_typed), kw_only=True)
    config = (tyro.conf.OmitArgPrefixes,)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            values = vars(tyro.cli(typed, args=arguments, config=config))
    except SystemExit:
        # Of the whole command it prints its own message, in colour.
        return tyro.cli(command, prog=program, args=arguments, config=config)
    return _make(command, None, values)


def _typed_fields(kind: type[Any], default: Any, typed: Set[str]) -> Iterator[tuple[str, Any, Any]]:
    """Yields the name, type and default of each positional argument and of each flag that was typed."""
    for name, hint, value in _fields(kind, default):
        flag = name.replace("_", "-")
        if dataclasses.is_dataclass(hint):
            yield from _typed_fields(hint, value, typed)  # type: ignore[arg-type]
        elif {f"--{flag}", f"--no-{flag}"} & typed or tyro.conf.Positional in getattr(
            hint, "__metadata__", ()
        ):
            if value is dataclasses.MISSING:
                yield name, hint, dataclasses.field()
            else:  # a factory, for it may be a list
                yield name, hint, dataclasses.field(default_factory=functools.partial(copy.copy, value))


def _make(kind: type[Any], default: Any, values: Mapping[str, Any]) -> Any:
    """Makes a dataclass: the values that were typed, by field, and defaults for all others."""
    made = {
        name: _make(hint, value, values) if dataclasses.is_dataclass(hint) else values.get(name, value)  # type: ignore[arg-type]
        for name, hint, value in _fields(kind, default)
    }
    return kind(**{name: value for name, value in made.items() if value is not dataclasses.MISSING})


def _fields(kind: type[Any], default: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yields the name, type and default of each field; defaults come from `default`, or from the class."""
    hints = constraints.type_hints(kind)
    for field in dataclasses.fields(kind):
        if default is not None and default is not dataclasses.MISSING:
            value = getattr(default, field.name)
        elif field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        else:
            value = field.default
        yield field.name, hints[field.name], value
