"""Environments by id, and the wrappers that agents for flat control expect around them.

An id is `dm_control/<domain>/<task>` for a task of the DeepMind Control Suite, or `gymnasium/<id>`, or only
`<id>`, for anything that Gymnasium has registered. After a task of the suite, `/repeat=4` repeats each action
four times, and `/pixels` gives images instead of observations: `dm_control/cartpole/swingup/pixels,repeat=8`.
Before a colon, an id names a module that is imported: `module:attribute` is a class or function of your own
(see `own`), and `module:Name-v0` is what the module has registered in Gymnasium.
"""

import difflib
import importlib.util
import pathlib
import re
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import dm_env

from minerva_acme import wrappers
from minerva_acme.environments import (
    importing,
    multi_agent,
    origin,
    own,
    process_vector,
    task_settings,
    training_wrappers,
    vector,
)

if TYPE_CHECKING:
    import gymnasium

_DM_CONTROL = "dm_control/"
_GYMNASIUM = "gymnasium/"
_SUITE_TASK = re.compile(r"^@SUITE\.add\(.*\)\ndef (\w+)", re.MULTILINE)
# Packages that groups of Gymnasium's own environments need in addition to Gymnasium.
_NEEDED_PACKAGES = {
    "gymnasium.envs.box2d": "Box2D",
    "gymnasium.envs.mujoco": "mujoco",
    "gymnasium.envs.phys2d": "jax",
    "gymnasium.envs.tabular": "jax",
}
_EXTRAS = {"Box2D": "box2d", "jax": "jax"}  # Gymnasium's extra for a package, if the names differ
_ATARI = re.compile(r"ALE/|\w+(NoFrameskip|Deterministic)-v\d+$|\w+-ram(NoFrameskip|Deterministic)?-v\d+$")
_DOTTED = re.compile(r"([A-Za-z_][\w.]*)\.(\w+)")
_VERSION = re.compile(r"-v(\d+)$")
_MAX_SUGGESTED = 5


def make(environment_id: str, /, seed: int | None = None, **task_kwargs: Any) -> dm_env.Environment:
    """Makes an environment, without wrappers that change its observations, rewards or actions.

    Its random generator can be saved and restored (`save`, `restore`), also through wrappers. If it is saved
    at the end of an episode and restored into an environment made by the same call, the next episodes start
    as they would have without the interruption.

    Args:
        environment_id: `dm_control/<domain>/<task>`, one of Gymnasium's ids, or `module:attribute` of a class
            or function that makes a dm_env or Gymnasium environment. A task of the suite followed by
            `/repeat=4` repeats each action 4 times. With `/pixels` it gives stacks of images, uint8
            [3, 84, 84, 3], and repeats each action twice; `/pixels,repeat=8` repeats it 8 times. `frames` and
            `size` are set in the same way.
        seed: The seed of the episodes, or None for a new one.
        **task_kwargs: Arguments of the dm_control task, of `gymnasium.make`, or of your class or function.

    Raises:
        ValueError: There is no such environment (the message lists similar ids), it does not take one of the
            arguments, or your class or function raised an error or made something else.
        ImportError: The environment needs a package that is not installed.
        RuntimeError: The id asks for pixels, and this machine cannot draw.
    """
    made = _make(environment_id, seed, task_kwargs)
    if not isinstance(made, dm_env.Environment):
        raise ValueError(
            f"`{environment_id}` must make one environment here, got a {type(made).__name__} of "
            f"{made.num_environments}. An agent can be trained in it, and evaluated: minerva train AGENT "
            f"--env {environment_id} --num-envs {made.num_environments}"
        )
    return made


def _make(environment_id: str, seed: int | None, task_kwargs: dict[str, Any]) -> Any:
    """Makes an environment, which is a batched one only if a class or function of the user's makes it."""
    if seed is not None and not 0 <= seed < 2**32:
        raise ValueError(f"`seed` must be None or in [0, 2**32), got {seed}.")
    if (maker := own.find(environment_id)) is not None:
        return own.make(environment_id, maker, seed, task_kwargs)
    make_ = _make_dm_control if environment_id.startswith(_DM_CONTROL) else _make_gymnasium
    try:
        return make_(environment_id, seed, task_kwargs)
    except TypeError as error:
        if not any(f"unexpected keyword argument '{name}'" in str(error) for name in task_kwargs):
            raise
        raise ValueError(f"'{environment_id}' has no argument of that name: {error}.") from error


def make_training_environment(
    environment: "str | dm_env.Environment | gymnasium.Env[Any, Any]",
    /,
    seed: int | None = None,
    *,
    critic_observations: Sequence[str] = (),
    concatenate: bool = True,
    **task_kwargs: Any,
) -> dm_env.Environment:
    """Makes an environment by id, or takes an existing one, and applies the wrappers needed for training.

        text and empty parts in observations     left out
        discrete, boolean and integer parts      float32, see `wrappers.FloatObservationWrapper`
        continuous actions                       scaled to [-1, 1]
        nests of actions                         one vector of each kind, see `wrappers.FlatActionWrapper`
        nests and arrays of rewards              a dict of numbers, see `wrappers.NamedRewardsWrapper`
        observations without images              concatenated to one vector
        64 bits                                  32 bits

    An observation with images stays a nest, which an agent's encoder takes; with `concatenate=False`, so does
    any other, for an encoder of sets or graphs. With `critic_observations`, which names entries of the
    observation that only an agent's critic sees, the observation is a dict of two such parts instead,
    `policy` and `critic`, see `wrappers.CriticObservationWrapper`. All changes are logged at INFO. All
    timesteps of the environment are checked against its specs, see `wrappers.SpecCheck`.

    An existing environment is seeded too: one of Gymnasium's by its first reset, any other by its method
    `seed`, which takes the number.

    Raises:
        ValueError: See `make`; or an action has no bounds, the observation holds no numbers, or the
            environment has several agents, or is a class or a vector of environments; or for an existing
            one, there are task settings, or a seed but no method `seed`.
    """
    name = None
    if isinstance(environment, str):
        name, environment = environment, make(environment, seed, **task_kwargs)
    elif task_kwargs:
        raise ValueError(
            "Task settings must not be given with an existing environment, got "
            f"{sorted(task_kwargs)}. Make the environment with them."
        )
    bare: Any = environment
    if not isinstance(environment, dm_env.Environment):
        vector.check_is_single(environment)
        multi_agent.check_is_of_one_agent(environment)
        if hasattr(environment, "observation_space"):
            from minerva_acme.environments import gymnasium_adapter

            bare = gymnasium_adapter.GymnasiumEnvironment(environment)
    if name is not None:
        return _wrap(bare, name, task_kwargs, critic_observations, concatenate)
    if seed is not None:
        _seed(bare, seed)
    name = type(environment).__name__
    return training_wrappers.wrap(bare, name, critic_observations, concatenate=concatenate)


def make_for_run(
    environment_id: str,
    /,
    seed: int | None = None,
    *,
    critic_observations: Sequence[str] = (),
    concatenate: bool = True,
    **task_kwargs: Any,
) -> Any:
    """Makes the environment that a run names, as `make_training_environment` does.

    If the id names a class or function that makes a batched environment, it is returned as it is, and the
    agent sorts its observations by itself.

    Raises:
        ValueError: See `make_training_environment`.
    """
    made = _make(environment_id, seed, task_kwargs)
    if isinstance(made, dm_env.Environment):
        return _wrap(made, environment_id, task_kwargs, critic_observations, concatenate)
    origin.mark(made, origin.Origin(environment_id, task_kwargs))
    return made


def _wrap(
    environment: dm_env.Environment,
    name: str,
    task_kwargs: dict[str, Any],
    critic_observations: Sequence[str],
    concatenate: bool,
) -> dm_env.Environment:
    """Wraps an environment that was made by its id, and notes where it comes from."""
    made = training_wrappers.wrap(environment, name, critic_observations, concatenate=concatenate)
    wrapping: dict[str, Any] = {} if concatenate else {"concatenate": False}
    if critic_observations:
        wrapping["critic_observations"] = tuple(critic_observations)
    origin.mark(made, origin.Origin(name, task_kwargs | wrapping))
    return made


def _seed(environment: Any, seed: int) -> None:
    """Seeds an existing environment.

    Raises:
        ValueError: It has no method `seed`.
    """
    if not callable(getattr(environment, "seed", None)):
        raise ValueError(
            "`seed` must be None for an existing environment without a method `seed`, got "
            f"{seed} for a {type(environment).__name__}. Make it with its seed, wrap dm_control's in "
            "`wrappers.DmControlRandomState`, or add the method to yours."
        )
    environment.seed(seed)


def make_vector(
    environment_factories: Sequence[Callable[[], dm_env.Environment]], *, processes: bool
) -> vector.InProcessVectorEnvironment | process_vector.ProcessVectorEnvironment:
    """Makes E environments that step together, and whose random states can be saved and restored.

    Args:
        environment_factories: One factory for each environment, with the environment's seed already in it.
        processes: Whether each environment runs in its own process, which is faster if a step takes longer
            than about 0.1 ms and cores are free. The main script is then imported again, so it needs the
            guard `if __name__ == "__main__":`.

    Raises:
        ValueError: There is no factory, or the environments' specs differ.
    """
    if not processes:
        return vector.InProcessVectorEnvironment([make() for make in environment_factories])
    return process_vector.ProcessVectorEnvironment(environment_factories)


def list_environments() -> list[str]:
    """Returns the ids of all suite tasks and of all environments registered in Gymnasium, sorted."""
    import gymnasium

    return sorted([*_list_dm_control(), *gymnasium.registry])


def list_makeable() -> list[str]:
    """Returns the ids of `list_environments` for which everything is installed, sorted.

    No environment is made for this: the packages that each kind needs are known.
    """
    import gymnasium

    found = [
        name
        for name, spec in gymnasium.registry.items()
        # Ids of environments that moved elsewhere have functions that raise an error saying so.
        if isinstance(spec.entry_point, str) and _has_packages(spec.entry_point)
    ]
    return sorted([*found, *_list_dm_control()])


def _has_packages(entry_point: str) -> bool:
    own = entry_point.partition(":")[0].partition(".")[0]
    return all(importlib.util.find_spec(name) for name in filter(None, (_needed(entry_point), own)))


def _needed(entry_point: str) -> str:
    """Returns the package that an environment of Gymnasium's needs in addition to it, or ""."""
    return next((package for kind, package in _NEEDED_PACKAGES.items() if entry_point.startswith(kind)), "")


def _make_dm_control(
    environment_id: str, seed: int | None, task_kwargs: dict[str, Any]
) -> dm_env.Environment:
    suite = _import_suite()
    domain, _, rest = environment_id.removeprefix(_DM_CONTROL).partition("/")
    task, _, behind = rest.partition("/")
    if (domain, task) not in suite.ALL_TASKS:
        raise _unknown(environment_id)
    if "random" in task_kwargs:
        raise ValueError(
            f"`random` of a dm_control task must not be given, got {task_kwargs['random']}: it is the seed. "
            "Use `seed`, on the command line --seed."
        )
    settings = task_settings.TaskSettings.parse(behind) if behind else None
    with importing.others_model():
        environment: dm_env.Environment = suite.load(
            domain, task, task_kwargs={"random": seed, **task_kwargs}
        )
    environment = wrappers.DmControlRandomState(environment)
    return environment if settings is None else _apply(settings, environment)


def _apply(settings: task_settings.TaskSettings, environment: dm_env.Environment) -> dm_env.Environment:
    """Repeats each action; with pixels, gives stacks of images, uint8 [frames, size, size, 3].

    Raises:
        RuntimeError: This machine cannot draw.
    """
    # The repeat is inside, so that only the images that the agent sees are drawn.
    environment = wrappers.ActionRepeatWrapper(environment, num_repeats=settings.repeat)
    if not settings.pixels:
        return environment
    environment = wrappers.PixelsWrapper(environment, size=settings.size)
    return wrappers.FrameStackWrapper(environment, num_frames=settings.frames)


def _make_gymnasium(environment_id: str, seed: int | None, make_kwargs: dict[str, Any]) -> dm_env.Environment:
    import gymnasium
    from gymnasium import error

    from minerva_acme.environments import gymnasium_adapter

    gymnasium_id = environment_id.removeprefix(_GYMNASIUM)
    name = gymnasium_id.rpartition(":")[2]
    if gymnasium_id.count(":") > 1:
        raise _unknown(environment_id)  # Gymnasium would fail to unpack it
    if name not in gymnasium.registry and not _VERSION.search(name) and _newest_version(name):
        raise _unknown(environment_id)  # Gymnasium would take the newest version, whichever that is
    if "render_mode" in make_kwargs:
        importing.load_triton_first()
    try:
        return gymnasium_adapter.GymnasiumEnvironment(gymnasium_id, seed=seed, **make_kwargs)
    except error.DependencyNotInstalled as exception:
        raise ImportError(f"'{environment_id}' needs a package that is missing: {exception}") from exception
    except (error.UnregisteredEnv, error.DeprecatedEnv) as exception:
        raise _unknown(environment_id) from exception
    except ImportError as exception:
        explained = _explain_import(environment_id, exception)
        if explained is None:
            raise
        raise explained from exception
    except error.Error as exception:
        raise ValueError(f"'{environment_id}' cannot be made: {exception}") from exception


def _list_dm_control() -> list[str]:
    """Reads the suite's tasks from its source: importing it loads MuJoCo and fixes the renderer."""
    package = importlib.util.find_spec("dm_control")
    if package is None or importlib.util.find_spec("mujoco") is None:
        return []
    tasks = [
        (module.stem, task)
        for folder in package.submodule_search_locations or ()
        for module in pathlib.Path(folder, "suite").glob("*.py")
        for task in _SUITE_TASK.findall(module.read_text(encoding="utf-8"))
    ]
    return [f"{_DM_CONTROL}{domain}/{task}" for domain, task in sorted(tasks) or _import_suite().ALL_TASKS]


def _explain_import(environment_id: str, error: ImportError) -> Exception | None:
    """Makes an error that says what an environment needs; None if the import error itself says it best."""
    import gymnasium

    gymnasium_id = environment_id.removeprefix(_GYMNASIUM)
    spec = gymnasium.registry.get(gymnasium_id.rpartition(":")[2])
    if getattr(spec and spec.entry_point, "__module__", "").startswith("gymnasium."):
        return _unknown(environment_id)  # a function that raises an error: the environment has moved
    if not (package := _needed("" if spec is None else str(spec.entry_point))):
        return None
    return ImportError(
        f"'{environment_id}' needs '{error.name or package}', which is not installed: "
        f"pip install 'gymnasium[{_EXTRAS.get(package, package)}]'"
    )


def _unknown(environment_id: str) -> Exception:
    """Makes the error for an unknown environment, which suggests similar ones that can be made here."""
    expected = "`environment_id` must be dm_control/<domain>/<task> or an id of Gymnasium's"
    wanted = environment_id.removeprefix(_GYMNASIUM)
    if ":" in wanted and not wanted.startswith(_DM_CONTROL):
        return own.unknown(wanted)
    if _ATARI.match(wanted):
        install = "" if importlib.util.find_spec("ale_py") else "pip install ale-py, then "
        return ImportError(
            f"'{environment_id}' is an Atari game of the package ale-py, whose module must stand before the "
            f"id: {install}ale_py:{wanted}"
        )
    known = _list_dm_control() if environment_id.startswith(_DM_CONTROL) else list_makeable()
    newest = _newest_version(wanted)
    # Without the prefixes, which make all ids look alike.
    wanted = wanted.removeprefix(_DM_CONTROL).lower()
    by_short = {name.removeprefix(_DM_CONTROL).lower(): name for name in known}
    near = difflib.get_close_matches(wanted, by_short, n=_MAX_SUGGESTED)
    near += [short for short in by_short if wanted and wanted in short and short not in near]
    others = [] if newest and not _VERSION.search(wanted) else near[: _MAX_SUGGESTED + 3]
    found = [*newest, *(by_short[short] for short in others)]
    if found:
        hint = f"Did you mean {', '.join(dict.fromkeys(found))}?"
    else:
        hint = (
            "`minerva list environments` shows the ids that can be made here. An environment of another "
            "package, or your own, needs its module before it: package:Name-v0, my_module:MyEnvironment."
        )
    if dotted := _DOTTED.fullmatch(environment_id):
        hint = f"A class or function of yours has a colon before its name: {dotted[1]}:{dotted[2]}"
    return ValueError(f"{expected}, got '{environment_id}'. {hint}")


def _newest_version(gymnasium_id: str) -> list[str]:
    """Returns the newest version of an environment, with any missing package; empty if there is none."""
    import gymnasium

    name = _VERSION.sub("", gymnasium_id)
    versions = [
        spec
        for spec in gymnasium.registry.values()
        if isinstance(spec.entry_point, str)
        and spec.version is not None
        and _VERSION.sub("", spec.id) == name
    ]
    if not versions:
        return []
    spec = max(versions, key=lambda spec: spec.version or 0)
    entry_point = str(spec.entry_point)
    if _has_packages(entry_point):
        return [spec.id]
    missing = _needed(entry_point)
    extra = _EXTRAS.get(missing, missing)
    return [f"{spec.id} (for which: pip install 'gymnasium[{extra}]')" if missing else spec.id]


def _import_suite() -> ModuleType:
    return importing.import_with_renderer("dm_control.suite")
