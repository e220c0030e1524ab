"""What a run's folder says of the run: `run.json`.

It holds plain values. Agents of this library and environments by id are made from these alone. Code of
somebody else's is named there as `module:name`, and imported only where that is asked for: importing runs it.
"""

import dataclasses
import functools
import json
import pathlib
import re
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any

import dm_env

from minerva_acme import _version, builders, environments, specs, task_settings, types, writing
from minerva_acme.agents import registry
from minerva_acme.environments import origin, task_actions
from minerva_acme.runs import config as experiment_config
from minerva_acme.runs import options, plain_specs

FILE = "run.json"
FORMAT = 2
"""The format that is written. Files of format 1 hold no number and no specs; the command line made them."""


_MAX = {"num_environments": 1 << 16, "evaluation_environments": 1 << 16}
"""What a file may ask for at most: making more takes hours before anything can be said of it."""

MADE_IN_PYTHON = ("observers", "logger_factory", "evaluation_environment_factory")
"""What of an experiment only a call of `run_experiment` can give."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunDescription:
    """What a run is; all but options and specs must be the same for it to be resumed."""

    agent: str
    """Its name, or `module:name` of its builder."""
    environment: str
    """Its id, or `module:name` of what makes it from a seed."""
    seed: int
    hyperparameters: dict[str, Any]
    """The builder's config as plain values; what is none is described by its name."""
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    """The `RunOptions` it was last started with; empty in the folder of an older version."""
    config: str = ""
    """`module:name` of the config's class, where the agent has no name."""
    environment_factory: str = ""
    """`module:name` of the function that makes the environment, where that has no id."""
    environment_settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What `environments.make_training_environment` was given besides the id."""
    environment_specs: dict[str, Any] = dataclasses.field(default_factory=dict)
    """The environment's, see `plain_specs`; empty in the folder of an older version. `task_actions` are those
    inside its wrappers, where they are known."""
    unknown: dict[str, str] = dataclasses.field(default_factory=dict)
    """What of `builder`, `environment` and `MADE_IN_PYTHON` can be made only from Python, and why."""

    @property
    def title(self) -> str:
        """The agent's name as people write it."""
        if self.agent in registry.AGENTS:
            return registry.AGENTS[self.agent].title
        return re.split("[:.]", self.agent)[-1]

    @property
    def base_task(self) -> task_settings.BaseTask:
        """The environment as results name it, and its action repeat: None where it has no id."""
        if not self._has_id():
            return task_settings.BaseTask(self.environment, None)
        return task_settings.split_repeat(self.environment)

    @property
    def _has_code(self) -> bool:
        """Whether the file says where the agent's code is, which is no reason to trust it; else its name."""
        return bool(self.config) or ":" in self.agent

    def content(self) -> dict[str, Any]:
        """What the file holds."""
        return {"format": FORMAT, "version": _version.__version__, **dataclasses.asdict(self)}

    def summary(self) -> dict[str, Any]:
        """What loggers show."""
        names = ("agent", "environment", "seed", "hyperparameters", "options")
        return {name: getattr(self, name) for name in names}

    def write(self, directory: pathlib.Path) -> None:
        """Writes it, if what lies there is the same run or nothing.

        Raises:
            ValueError: the folder holds another run, and the message names what differs; or the file is a
                link.
            OSError: it cannot be written.
        """
        directory.mkdir(parents=True, exist_ok=True)
        writing.refuse_link(directory / FILE)
        if (directory / FILE).exists():
            self.check_same_as(read(directory), directory)
        # Replaced as a whole: whoever reads it meanwhile finds one or the other.
        writing.replace(directory / FILE, [f"{json.dumps(self.content(), indent=2)}\n".encode()])

    def make_config(self, *, import_code: bool = False) -> Any:
        """Makes the agent's config.

        Args:
            import_code: whether a class that is not this library's may be imported.

        Raises:
            ValueError: it may not or cannot be made; the message says what to do.
        """
        if reason := self.unknown.get("builder"):
            raise ValueError(f"This run's agent can be made only from Python: {reason}")
        if self._has_code:
            make: Callable[..., Any] = _import("config", self.config, import_code)
        else:
            make = registry.find(self.agent).config
        try:
            return make(**{name: _with_tuples(value) for name, value in self.hyperparameters.items()})
        except TypeError as error:
            raise ValueError(
                f"The hyperparameters of {self.title} must be those of this version: {error}."
            ) from error

    def make_builder(self, *, import_code: bool = False) -> builders.AgentBuilder[Any]:
        """Makes the agent's builder. Args and errors as of `make_config`."""
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
                f"{type(builder).__name__} must have the config that it is made with as its `config`, for "
                "run.json, but has not: self.config = config"
            )
        return builder

    def make_environment_factory(self, *, import_code: bool = False) -> Callable[..., dm_env.Environment]:
        """Makes a function from a seed to the run's environment, wrapped as in training.

        That of an environment by id takes settings too, as `environments.make` does.

        Args:
            import_code: whether modules that are not this library's may be imported, also those that
                Gymnasium's ids name: `module:Name-v0`.

        Raises:
            ValueError: they may not, or there is no such function.
        """
        if reason := self.unknown.get("environment"):
            raise ValueError(f"This run's environment can be made only from Python: {reason}")
        if self.environment_factory:
            factory: Callable[..., dm_env.Environment] = _import(
                "environment", self.environment_factory, import_code
            )
            return factory
        if ":" in self.environment and not import_code:
            raise _refusal("environment", self.environment)
        return functools.partial(
            environments.make_training_environment, self.environment, **self.environment_settings
        )

    def make_specs(self, *, import_code: bool = False) -> specs.EnvironmentSpec:
        """Makes the environment's specs; only for a run of an older version the environment itself is made.

        Raises:
            ValueError: the file holds none, or as `make_environment_factory`.
        """
        if self.environment_specs:
            return specs.EnvironmentSpec(
                *(
                    plain_specs.unpack(self.environment_specs.get(name))
                    for name in specs.EnvironmentSpec._fields
                )
            )
        environment = self.make_environment_factory(import_code=import_code)(0)
        try:
            return specs.make_environment_spec(environment)
        finally:
            environment.close()

    def make_task_actions(self, *, import_code: bool = False) -> types.NestedSpec:
        """Makes the spec of the task's own actions, inside the wrappers of training.

        The environment itself is made where the file does not have it, as that of an older version.

        Raises:
            ValueError: As `make_environment_factory`, or the environment does not tell.
        """
        if packed := self.environment_specs.get("task_actions"):
            return plain_specs.unpack(packed)
        environment = self.make_environment_factory(import_code=import_code)(0)
        try:
            found = task_actions.find(environment)
        finally:
            environment.close()
        if found is None:
            raise ValueError(task_actions.UNKNOWN)
        return found

    def check_same_as(self, found: "RunDescription", directory: pathlib.Path) -> None:
        """Checks that a run found in a folder is this one, which may be resumed there.

        Raises:
            ValueError: it is another one; the message names what differs.
        """
        defaults = self._defaults()
        asked, there = self._identity(defaults), found._identity(defaults)
        names = sorted(asked | there) if asked["agent"] == there["agent"] else ["agent"]
        if not (self._has_id() and found._has_id()):  # a function may be moved
            asked["environment"] = there["environment"]
        differences = [
            f"{key} is {there.get(key)!r} there, {asked.get(key)!r} here"
            for key in names
            if asked.get(key) != there.get(key)
        ]
        if differences:
            raise ValueError(
                f"{directory} holds another run: {'; '.join(differences)}. "
                f"Choose another directory, or resume it as it is by `minerva resume {directory}`."
            )

    def _has_id(self) -> bool:
        return not self.environment_factory and "environment" not in self.unknown

    def _defaults(self) -> dict[str, Any]:
        """Those of a running agent: a run of an older version lacks the newer hyperparameters."""
        if "builder" in self.unknown:
            return {}
        kind = _import("config", self.config, True) if self._has_code else registry.find(self.agent).config
        return {
            field.name: field.default
            for field in dataclasses.fields(kind)
            if field.default is not dataclasses.MISSING
        }

    def _identity(self, defaults: Mapping[str, Any]) -> dict[str, Any]:
        """Returns what may not change, hyperparameters and all else, as JSON gives it back."""
        agent = self.title if self._has_code else self.agent  # a class may be moved
        own = {name: getattr(self, name) for name in ("environment", "environment_settings", "seed")}
        identity: dict[str, Any] = _plain({**defaults, **self.hyperparameters, **own, "agent": agent})
        return identity


def describe(
    config: experiment_config.ExperimentConfig,
    environment: dm_env.Environment | environments.VectorEnvironment,
) -> RunDescription:
    """Describes a run as far as plain values can.

    Args:
        config: of the run.
        environment: one that its factory made, or a vector of such.
    """
    unknown: dict[str, str] = {}
    for name in MADE_IN_PYTHON:
        if getattr(config, name):
            unknown[name] = f"`{name}` cannot be written down. Give it again, in a call of `run_experiment`."
    try:
        described_specs = {
            name: plain_specs.pack(nest)
            for name, nest in specs.make_environment_spec(environment)._asdict().items()
        }
        if (task := task_actions.find(environment)) is not None:
            described_specs["task_actions"] = plain_specs.pack(task)
    except ValueError:  # specs of another kind: `load_policy` is given them
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
        ValueError: there is no run in that folder, or what lies there describes none.
    """
    path = directory / FILE
    if not path.exists():
        raise ValueError(
            f"There is no run in {directory}: {FILE} is missing. Give the folder of a trained run."
        )
    return parse(path.read_bytes(), path)


def parse(text: str | bytes, path: pathlib.Path) -> RunDescription:
    """Reads a description.

    Args:
        text: JSON.
        path: where it is from, for messages.

    Raises:
        ValueError: it is of a newer format, or describes no run.
    """
    try:
        content = json.loads(text)
        found = content.pop("format", 1)
        version = content.pop("version", "another version")
        if not (isinstance(found, int) and found <= FORMAT):
            raise _TooNewError(
                f"{path} must be of format {FORMAT} or older, got {found}, by minerva-acme {version}. "
                f"This is {_version.__version__}. Use that one or a newer: pip install -U minerva-acme"
            )
        description = RunDescription(**content)
        for name, hint in typing.get_type_hints(RunDescription).items():
            kind, value = typing.get_origin(hint) or hint, getattr(description, name)
            if not isinstance(value, kind):
                raise TypeError(f"`{name}` must be a {kind.__name__}, got {value!r}")
        for name, value in {**description.hyperparameters, **description.options}.items():
            if name in _MAX and isinstance(value, int | float) and not value <= _MAX[name]:
                raise ValueError(f"`{name}` must be <= {_MAX[name]:,}, got {value:,}")
    except _TooNewError:
        raise
    except (AttributeError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} does not describe a run that this version knows: {error}. "
            "Give the folder of another run, or train anew."
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
        if others := [name for name, value in values.items() if not _is_plain(value)]:
            raise ValueError(
                f"`{others[0]}` of its config is no number, string or None, nor a tuple or dict of such."
            )
        registered = _registered_name(kind, type(config))
        return described | (
            {"agent": registered} if registered else {"agent": _path(kind), "config": _path(type(config))}
        )
    except ValueError as error:
        unknown["builder"] = f"{error} Pass the builder to `run_experiment` or `load_policy`."
    return described


def _registered_name(builder: type[Any], config: type[Any]) -> str:
    """Returns the name of the agent that has these classes, or "". Imports no other agent."""
    for name, entry in registry.entries().items():
        named = builder.__qualname__ == entry.builder_name and entry.package in sys.modules
        if named and not entry.problem and entry.builder is builder and entry.config is config:
            return name
    return ""


def _describe_environment(
    factory: experiment_config.EnvironmentFactory,
    environment: dm_env.Environment | environments.VectorEnvironment,
    unknown: dict[str, str],
) -> dict[str, Any]:
    made = origin.of(environment)
    if made is not None and _is_plain(made.settings):
        return {"environment": made.environment_id, "environment_settings": made.settings}
    try:
        return {"environment": (path := _path(factory)), "environment_factory": path}
    except ValueError as error:
        unknown["environment"] = (
            f"{error} It must come from `environments.make_training_environment`, or from a function in a "
            "module of yours that takes a seed."
        )
    named = factory if hasattr(factory, "__qualname__") else type(factory)
    return {"environment": f"{named.__module__}:{named.__qualname__}"}


def _path(thing: Any) -> str:
    """Where a class or a function can be imported from, `module:name`.

    Raises:
        ValueError: nowhere; the message says why.
    """
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not (module and name):
        raise ValueError(f"`{type(thing).__name__}` is neither a class nor a function.")
    if module == "__main__":
        raise ValueError(f"`{name}` is defined in the script itself; move it to a module of its own.")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not thing:
        raise ValueError(f"`{name}` of the module {module} is made within a function.")
    return f"{module}:{name}"


def _import(what: str, path: str, import_code: bool) -> Any:
    """Imports what a run names."""
    if not import_code:
        raise _refusal(what, path)
    return registry.load(path, f"This run's {what}")


def _refusal(what: str, path: str) -> ValueError:
    return ValueError(
        f"This run's {what} is `{path}`, code that its run.json names. Importing that runs it: if you trust "
        "this run, allow it by --import-code (in Python: import_code=True)."
    )


def _plain(value: Any) -> Any:
    """The value as JSON gives it back; anything else becomes a name in angle brackets."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"<{named.__module__}.{named.__qualname__}>"


def _is_plain(value: Any) -> bool:
    """Whether the value comes back from JSON as it was, lists as tuples."""
    try:
        return bool(_with_tuples(json.loads(json.dumps(value))) == value)
    except (TypeError, ValueError):
        return False


def _with_tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_with_tuples(part) for part in value)
    return {name: _with_tuples(part) for name, part in value.items()} if isinstance(value, dict) else value
