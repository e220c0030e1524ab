"""The description of a run in its folder: `run.json`.

It holds plain values, which suffice to make this library's agents and environments with an id. Other code is
named as `module:name`, and imported only on request, since importing runs it.
"""

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import re
import shlex
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any

import dm_env

from minerva_acme import _version, builders, specs, types
from minerva_acme.agents import registry
from minerva_acme.environments import factories, origin, task_actions, task_observations, task_settings
from minerva_acme.machine import reading, writing
from minerva_acme.runs import config as experiment_config
from minerva_acme.runs import env_kwargs, options, plain_specs, recorded_environment

FILE = "run.json"
FORMAT = 3
"""The format that is written. Files of format 1 have no `format` and no specs; the command line made them.
Those of format 2 lack the hyperparameters of `_ADDED`."""

_ADDED = {"init_log_temperature": {"bounded_mean": False, "temperature": "learned"}}
"""Values that later hyperparameters have in files of older formats, by one that marks the agent, MPO."""


_MAX = {"num_environments": 1 << 16, "evaluation_environments": 1 << 16}
"""The largest values that a file may ask for: making more would take hours before any message."""

_RECORDED_IN = ("dataset", "demonstrations")
"""The options that are folders of recorded episodes."""

MADE_IN_PYTHON = ("observers", "evaluation_observers", "logger_factory", "evaluation_environment_factory")
"""The parts of an experiment that only a call of `run_experiment` can provide."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunDescription:
    """A description of a run. To resume the run, all but options and specs must be the same."""

    agent: str
    """The agent's name, or `module:name` of its builder."""
    environment: str
    """The environment's id, which may be `module:attribute`; or else `environment_factory`."""
    seed: int
    hyperparameters: dict[str, Any]
    """The builder's config as plain values; values that are not plain are replaced by their names."""
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    """The `RunOptions` that the run was last started with; empty for a run of an older version."""
    config: str = ""
    """`module:name` of the config's class, if the agent has no name."""
    environment_factory: str = ""
    """`module:name` of the function that makes the environment, if that has no id."""
    environment_settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    """The arguments of `environments.make_training_environment` other than the id."""
    environment_specs: dict[str, Any] = dataclasses.field(default_factory=dict)
    """The environment's specs, see `plain_specs`; empty for a run of an older version. `task_actions` is the
    spec of the actions inside its wrappers, if known, and `task_observations` that of the observations there,
    if it differs."""
    unknown: dict[str, str] = dataclasses.field(default_factory=dict)
    """Which of `builder`, `environment` and `MADE_IN_PYTHON` can be made only from Python, and why."""

    @property
    def title(self) -> str:
        """The agent's name for display."""
        if self.agent in registry.AGENTS:
            return registry.AGENTS[self.agent].title
        return re.split("[:.]", self.agent)[-1]

    @property
    def task(self) -> str:
        """The environment with its settings, for display."""
        return env_kwargs.with_settings(self.environment, self.environment_settings)

    @property
    def base_task(self) -> task_settings.BaseTask:
        """The environment with its settings, as results name it, and its action repeat: None without id."""
        if not self._has_id():
            return task_settings.BaseTask(self.environment, None)
        task = task_settings.split_repeat(self.environment)
        return task._replace(env_name=env_kwargs.with_settings(task.env_name, self.environment_settings))

    @property
    def names_code(self) -> bool:
        """Whether commands that take the run's folder import code that it names."""
        return self.needs_code or bool(self.environment_factory)

    def command(self, name: str, directory: pathlib.Path, *words: object) -> str:
        """Returns a shell command for this run, with the flag that it needs if the run names code."""
        code = ["--import-code"] if self.names_code else []
        return shlex.join(["minerva", name, *map(str, [directory, *words]), *code])

    @property
    def _has_code(self) -> bool:
        """True if the file names the agent's code instead of a registered agent; it need not be trusted."""
        return bool(self.config) or ":" in self.agent

    @property
    def needs_code(self) -> bool:
        """True if it names code other than this library's, which is imported only on request."""
        return self._has_code or ":" in self.environment

    @property
    def plays(self) -> bool:
        """Whether the run makes environment steps. Otherwise its steps are the learner's."""
        return bool(self.options.get("num_env_steps", 1))

    @property
    def steps_option(self) -> str:
        """The name of the option that says how many steps the run makes."""
        return "num_env_steps" if self.plays else "num_learner_steps"

    @property
    def steps_name(self) -> str:
        """The unit of the run's steps, for display."""
        return "environment steps" if self.plays else "learner steps"

    @property
    def steps_key(self) -> str:
        """The name in the logs of the steps that the run makes, as in `RunOptions.steps_key`."""
        return options.steps_key(self.options.get("num_env_steps", 1))

    def content(self) -> dict[str, Any]:
        """Returns the content of the file."""
        return {"format": FORMAT, "version": _version.__version__, **dataclasses.asdict(self)}

    def summary(self) -> dict[str, Any]:
        """Returns the values that loggers show."""
        names = ("agent", "environment", "seed", "hyperparameters", "options")
        return {name: getattr(self, name) for name in names}

    def data(self) -> dict[str, Any]:
        """Returns the options that a resumed run must not change: what the run learns and starts from."""
        folders = {name: self.options.get(name) for name in (*_RECORDED_IN, "from_run")}
        shares = ("demonstration_share", "final_demonstration_share") if folders["demonstrations"] else ()
        return {
            **{name: path and os.path.normpath(path) for name, path in folders.items()},
            **{name: self.options.get(name) for name in shares},
        }

    def origin(self) -> dict[str, Any]:
        """Returns where recorded episodes of this run come from, for their metadata."""
        names = ("agent", "environment", "environment_settings", "seed", "hyperparameters")
        return {"version": _version.__version__, **{name: getattr(self, name) for name in names}}

    def check_place(self, directory: pathlib.Path) -> None:
        """Checks that a folder is new, or holds this run or no run.

        Raises:
            ValueError: The folder holds another run (the message lists the differences), or the file is a
                link.
        """
        writing.refuse_link(directory / FILE)
        if (directory / FILE).exists():
            self.check_same_as(read(directory), directory)

    def write(self, directory: pathlib.Path) -> None:
        """Writes the description into a folder that is new, or holds this run or no run.

        Raises:
            ValueError: As for `check_place`.
            OSError: The file cannot be written.
        """
        self.check_place(directory)
        directory.mkdir(parents=True, exist_ok=True)
        # Replaced atomically: a concurrent reader finds either the old file or the new one.
        writing.replace(directory / FILE, [f"{json.dumps(self.content(), indent=2)}\n".encode()])

    def make_config(self, *, import_code: bool = False) -> Any:
        """Makes the agent's config.

        Args:
            import_code: Whether a class that is not part of this library may be imported.

        Raises:
            ValueError: The config may not or cannot be made; the message says what to do.
        """
        if reason := self.unknown.get("builder"):
            raise ValueError(f"This run's agent can be made only from Python: {reason}")
        if self._has_code:
            make: Callable[..., Any] = _import("config", self.config, import_code)
        else:
            make = registry.find(self.agent).config
        try:
            return make(
                **{name: env_kwargs.with_tuples(value) for name, value in self.hyperparameters.items()}
            )
        except TypeError as error:
            raise ValueError(
                f"The hyperparameters of {self.title} must fit this version of minerva-acme: {error}."
            ) from error

    def make_builder(self, *, import_code: bool = False) -> builders.AgentBuilder[Any]:
        """Makes the agent's builder. The arguments and errors are the same as for `make_config`."""
        if reason := self.unknown.get("builder"):
            raise ValueError(f"This run's agent can be made only from Python: {reason}")
        if self._has_code:
            make: Callable[..., Any] = _import("builder", self.agent, import_code)
        else:
            make = registry.find(self.agent).builder
        config = self.make_config(import_code=import_code)
        builder = make(config)
        if not isinstance(builder, builders.AgentBuilder):
            raise ValueError(f"`{self.agent}` must make an `AgentBuilder`, got {type(builder).__name__}.")
        if not isinstance(getattr(builder, "config", None), type(config)):
            raise ValueError(
                f"{type(builder).__name__} must store its config as `config`, for run.json, but does not. "
                "Add to its `__init__`: self.config = config"
            )
        return builder

    def make_environment_factory(self, *, import_code: bool = False) -> Callable[..., dm_env.Environment]:
        """Returns a function that makes the run's environment from a seed, wrapped as in training.

        If the environment has an id, the function also takes settings, as `environments.make` does.

        Args:
            import_code: Whether modules that are not part of this library may be imported, including those
                in Gymnasium ids such as `module:Name-v0`.

        Raises:
            ValueError: The code may not be imported, or there is no such function.
        """
        if reason := self.unknown.get("environment"):
            raise ValueError(f"This run's environment can be made only from Python: {reason}")
        if self.environment_factory:
            factory: Callable[..., dm_env.Environment] = _import(
                "environment", self.environment_factory, import_code
            )
            return factory
        if self.environment.startswith(task_settings.RECORDED):
            return recorded_environment.make_factory(self.environment.removeprefix(task_settings.RECORDED))
        if ":" in self.environment and not import_code:
            raise _refusal("environment", self.environment)
        settings = self.training_settings
        return functools.partial(factories.make_for_run, self.environment, **settings)

    @property
    def training_settings(self) -> dict[str, Any]:
        """The arguments of `environments.make_training_environment` for this run other than the id."""
        settings = env_kwargs.with_tuples(self.environment_settings)
        if names := self.hyperparameters.get("critic_observations"):
            names = list(names) if isinstance(names, tuple) else names
            names = reading.fit("critic_observations", names, tuple[str, ...])
            settings = {**settings, "critic_observations": names}
        return settings

    def make_specs(self, *, import_code: bool = False) -> specs.EnvironmentSpec:
        """Returns the environment's specs. Only for a run of an older version is the environment itself made.

        Raises:
            ValueError: The file's specs are malformed, or as for `make_environment_factory`.
        """
        if self.environment_specs:
            return specs.EnvironmentSpec(
                *(
                    plain_specs.unpack(self.environment_specs.get(name))
                    for name in specs.EnvironmentSpec._fields
                )
            )
        with contextlib.closing(self.make_environment_factory(import_code=import_code)(0)) as environment:
            return specs.make_environment_spec(environment)

    def make_task_observations(self) -> types.NestedSpec | None:
        """Returns the spec of the task's own observations, if it is stored and differs from the agent's.

        Raises:
            ValueError: The file's specs are malformed.
        """
        packed = self.environment_specs.get("task_observations")
        return plain_specs.unpack(packed) if packed else None

    def make_task_actions(self, *, import_code: bool = False) -> types.NestedSpec:
        """Returns the spec of the task's own actions, inside the wrappers of training.

        If the file does not have it, for example in a run of an older version, the environment is made.

        Raises:
            ValueError: As for `make_environment_factory`, or a wrapper of another library changes the
                actions, or the run has only recorded episodes, whose actions are the agent's.
        """
        if self.environment.startswith(task_settings.RECORDED):  # older versions stored the agent's
            raise ValueError(
                f"{self.environment} are recorded episodes, whose actions are the agent's. A program can be "
                "exported with `--actions agent --episodes 0`."
            )
        if packed := self.environment_specs.get("task_actions"):
            return plain_specs.unpack(packed)
        with contextlib.closing(self.make_environment_factory(import_code=import_code)(0)) as environment:
            found = task_actions.find(environment)
        if found is None:
            raise ValueError(task_actions.UNKNOWN)
        return found

    def check_same_as(self, found: "RunDescription", directory: pathlib.Path) -> None:
        """Checks that the run found in a folder is this one, so that it may be resumed there.

        Raises:
            ValueError: It is another run; the message lists the differences.
        """
        defaults = self._defaults()
        asked, there = self._identity(defaults), found._identity(defaults)
        names = sorted(asked | there) if asked["agent"] == there["agent"] else ["agent"]
        are_recorded = all(each["environment"].startswith(task_settings.RECORDED) for each in (asked, there))
        if are_recorded or not (self._has_id() and found._has_id()):  # data or a function may be moved
            asked["environment"] = there["environment"]
        for name in _RECORDED_IN:  # checkpoints know it by its checksum
            if asked[name] and there[name]:
                asked[name] = there[name]
        differences = [
            f"{key} is {there.get(key)!r} there, {asked.get(key)!r} here"
            for key in names
            if asked.get(key) != there.get(key)
        ]
        if differences:
            raise ValueError(
                f"{directory} holds another run: {'; '.join(differences)}. Choose another directory, or "
                f"resume that run with `{found.command('resume', directory)}`."
            )

    def _has_id(self) -> bool:
        return not self.environment_factory and "environment" not in self.unknown

    def _defaults(self) -> dict[str, Any]:
        """Returns the defaults of the agent's config: a run of an older version lacks newer fields."""
        if "builder" in self.unknown:
            return {}
        kind = _import("config", self.config, True) if self._has_code else registry.find(self.agent).config
        return {
            field.name: field.default
            for field in dataclasses.fields(kind)
            if field.default is not dataclasses.MISSING
        }

    def _identity(self, defaults: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the values that must not change, including the hyperparameters, as read back from JSON."""
        agent = self.title if self._has_code else self.agent  # a class may be moved
        own = {**self.data(), "agent": agent, "environment": self.environment, "seed": self.seed}
        own["environment_settings"] = self.training_settings
        identity: dict[str, Any] = _plain({**defaults, **self.hyperparameters, **own})
        return identity


def describe(
    config: experiment_config.ExperimentConfig,
    environment: experiment_config.Environment,
) -> RunDescription:
    """Describes a run as far as plain values can.

    Args:
        config: The run's config.
        environment: An environment that its factory made, or a vector or batch of them.
    """
    unknown: dict[str, str] = {}
    for name in MADE_IN_PYTHON:
        if getattr(config, name):
            unknown[name] = f"`{name}` cannot be stored. Pass it again in a call of `run_experiment`."
    try:
        described_specs = {
            name: plain_specs.pack(nest)
            for name, nest in specs.make_environment_spec(environment)._asdict().items()
        }
        if (task := task_actions.find(environment)) is not None:
            described_specs["task_actions"] = plain_specs.pack(task)
        if (given := task_observations.find(environment)) != environment.observation_spec():
            with contextlib.suppress(ValueError):  # other kinds of specs; the policy takes the wrapped ones
                described_specs["task_observations"] = plain_specs.pack(given)
    except ValueError:  # other kinds of specs must be passed to `load_policy`
        described_specs = {}
    return RunDescription(
        **_describe_builder(config.builder, unknown),
        **_describe_environment(config.environment_factory, environment, unknown),
        seed=config.seed,
        options={field.name: getattr(config, field.name) for field in dataclasses.fields(options.RunOptions)},
        environment_specs=described_specs,
        unknown=unknown,
    )


def read(directory: pathlib.Path) -> RunDescription:
    """Reads the description of a run.

    Raises:
        ValueError: There is no run in that folder, or its description is malformed.
    """
    path = directory / FILE
    if not path.exists():
        below = [found for depth in range(1, 5) for found in directory.glob(f"{'*/' * depth}{FILE}")]
        below.sort(key=lambda found: found.stat().st_mtime, reverse=True)
        advice = (
            f"The newest below it is {shlex.quote(str(below[0].parent))}."
            if below
            else ("Give the folder of a trained run.")
        )
        raise ValueError(f"There is no run in {directory}: {FILE} is missing. {advice}")
    with reading.open_file(path) as file:
        return parse(file.read(), path)


def parse(text: str | bytes, path: pathlib.Path) -> RunDescription:
    """Parses a description.

    Args:
        text: The description as JSON.
        path: The path that it was read from, for messages.

    Raises:
        ValueError: It has a newer format, or is malformed.
    """
    try:
        content = reading.json_text(text, infinite=True, nan=True)
        found = content.pop("format", 1)
        version = content.pop("version", "another version")
        if not (isinstance(found, int) and found <= FORMAT):
            raise _TooNewError(
                f"{path} must have format {FORMAT} or older, got {found}, by minerva-acme {version}. This is "
                f"{_version.__version__}. Use that version or a newer one: pip install -U minerva-acme"
            )
        description = RunDescription(**content)
        for name, hint in typing.get_type_hints(RunDescription).items():
            kind, value = typing.get_origin(hint) or hint, getattr(description, name)
            if not isinstance(value, kind):
                raise TypeError(f"`{name}` must be a {kind.__name__}, got {value!r}")
        for mark, values in _ADDED.items():
            if found < FORMAT and mark in description.hyperparameters:
                hyperparameters = {**values, **description.hyperparameters}
                description = dataclasses.replace(description, hyperparameters=hyperparameters)
        named = {options.RENAMED.get(name, name): value for name, value in description.options.items()}
        description = dataclasses.replace(description, options=named)
        for name, value in {**description.hyperparameters, **description.options}.items():
            if name in _MAX and isinstance(value, int | float) and not value <= _MAX[name]:
                raise ValueError(f"`{name}` must be <= {_MAX[name]:,}, got {value:,}")
    except _TooNewError:
        raise
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} does not describe a run that this version can read: {error}. "
            "Use the folder of another run, or train again."
        ) from error
    return description


class _TooNewError(ValueError):
    pass


def _describe_builder(builder: builders.AgentBuilder[Any], unknown: dict[str, str]) -> dict[str, Any]:
    kind = type(builder)
    config: Any = getattr(builder, "config", None)
    fields = dataclasses.fields(config) if dataclasses.is_dataclass(config) else ()
    values = {field.name: getattr(config, field.name) for field in fields if field.init}
    described = {"agent": kind.__name__, "hyperparameters": {k: _plain(value) for k, value in values.items()}}
    try:
        if not dataclasses.is_dataclass(config):
            raise ValueError(f"`{kind.__name__}` has no `config` that is a dataclass.")
        if others := [name for name, value in values.items() if not env_kwargs.is_plain(value)]:
            raise ValueError(
                f"`{others[0]}` of its config is not a number, string or None, or a tuple or dict of them."
            )
        registered = _registered_name(kind, type(config))
        return described | (
            {"agent": registered} if registered else {"agent": _path(kind), "config": _path(type(config))}
        )
    except ValueError as error:
        unknown["builder"] = f"{error} Pass the builder to `run_experiment` or `load_policy`."
    return described


def _registered_name(builder: type[Any], config: type[Any]) -> str:
    """Returns the name of the registered agent with these classes, or "". Imports no other agent."""
    for name, entry in registry.entries().items():
        named = builder.__qualname__ == entry.builder_name and entry.package in sys.modules
        if named and not entry.problem and entry.builder is builder and entry.config is config:
            return name
    return ""


def _describe_environment(
    factory: experiment_config.EnvironmentFactory,
    environment: experiment_config.Environment,
    unknown: dict[str, str],
) -> dict[str, Any]:
    made = origin.of(environment)
    if made is not None and env_kwargs.is_plain(made.settings):
        return {"environment": made.environment_id, "environment_settings": made.settings}
    try:
        return {"environment": (path := _path(factory)), "environment_factory": path}
    except ValueError as error:
        unknown["environment"] = (
            f"{error} Make it with `environments.make_training_environment`, or with a function in your own "
            "module that takes a seed."
        )
    named = factory if hasattr(factory, "__qualname__") else type(factory)
    return {"environment": f"{named.__module__}:{named.__qualname__}"}


def _path(thing: Any) -> str:
    """Returns the path that a class or function can be imported from, `module:name`.

    Raises:
        ValueError: It cannot be imported; the message says why.
    """
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not (module and name):
        raise ValueError(f"`{type(thing).__name__}` is neither a class nor a function.")
    if module == "__main__":
        raise ValueError(f"`{name}` is defined in the script itself; move it to a separate module.")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not thing:
        raise ValueError(f"`{name}` of the module {module} is defined inside a function.")
    return f"{module}:{name}"


def _import(what: str, path: str, import_code: bool) -> Any:
    """Imports the code that a run names."""
    if not import_code:
        raise _refusal(what, path)
    return registry.load(path, f"This run's {what}")


def _refusal(what: str, path: str) -> ValueError:
    return ValueError(
        f"This run's {what} is `{path}`, code that its run.json names. Importing it runs it: if you trust "
        "this run, allow that with --import-code (in Python: import_code=True)."
    )


def _plain(value: Any) -> Any:
    """Returns the value as read back from JSON; anything else becomes a name in angle brackets."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"<{named.__module__}.{named.__qualname__}>"
