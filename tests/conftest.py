"""What every test gets: one torch thread, the list of source files, a guard against what is left behind."""

import contextlib
import gc
import importlib.util
import logging
import multiprocessing.forkserver
import os
import pathlib
import re
import resource
import shutil
import signal
import sys
import threading
import time
import types
import unittest
from collections.abc import Callable, Iterator
from typing import Any

import dm_env
import gymnasium
import numpy as np
import pytest
import torch
import tree
from absl.testing import absltest
from dm_env import specs, test_utils

import minerva_acme  # noqa: F401 -- sets the environment that torch reads when it loads
from minerva_acme.environments import factories
from minerva_acme.machine import threads
from minerva_acme.replay import backends
from tests.nursery import Nursery

# Tests compute the same on every machine: what needs a GPU runs by `make test-gpu`. CUDA reads this when it
# is first used.
_IS_ON_GPU = os.environ.get("MINERVA_TEST_GPU") == "1"
if not _IS_ON_GPU:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

_GRACE_SECONDS = 2.0
_NODES = ("actor", "evaluator", "learner", "replay")  # an inline run's, which are daemons
_MAX_WORKERS = 8  # each needs up to 1.5 GB of memory
_MEMORY = pathlib.Path("/dev/shm")
_MEMORY_BYTES = 2 << 30  # many times what the folders of tests that run take


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = {
        "gpu": not _IS_ON_GPU and "it needs a GPU, and runs by `make test-gpu`",
        "reverb": not backends.is_reverb_installed()
        and "Reverb is not installed: it has wheels for Python 3.11 on x86-64 Linux",
        "ray": importlib.util.find_spec("ray") is None
        and "Ray is not installed: pip install 'minerva-acme[ray]'",
    }
    for item in items:
        for marker, reason in missing.items():
            if reason and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


def _golden_cases(file: str) -> list[dict[str, torch.Tensor]]:
    folder = os.environ.get("MINERVA_GOLDEN_DIR") or pathlib.Path(__file__).resolve().parent / "golden"
    with np.load(pathlib.Path(folder, file)) as arrays:
        cases: list[dict[str, torch.Tensor]] = [{} for _ in range(int(arrays["num_cases"]))]
        for key in arrays.files:
            if key != "num_cases":
                case, name = key.removeprefix("case").split("/")
                cases[int(case)][name] = torch.from_numpy(np.asarray(arrays[key]))
    return cases


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    # A test marked `golden(file)` runs with every `case` of that file.
    marker = metafunc.definition.get_closest_marker("golden")
    if marker is not None:
        metafunc.parametrize("case", _golden_cases(*marker.args))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    # xdist would count the machine's cores, those too that this process must not use. Tests of signals, of
    # faults and of inline runs mostly wait: twice as many workers keep the cores busy.
    return min(2 * threads.num_cores(), _MAX_WORKERS)


def pytest_configure() -> None:
    # A shell has signals ignored for what it runs in the background or by nohup, which children inherit.
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    # Thousands of small folders, whose files are synced: a disk takes up to seven times as long.
    if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _MEMORY_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))
    # Several threads gain nothing on tensors this small, and slow each other on a busy machine.
    torch.set_num_threads(1)
    # No test cuts the power, and to wait for the disk takes a quarter of a short run's time. Tests of what is
    # made safe count the calls.
    os.fsync = lambda descriptor: None
    _import_suite = factories._import_suite

    def import_suite_with_a_small_sky() -> types.ModuleType:
        # To draw 4 million pixels takes nine tenths of the time of making a task of dm_control's.
        suite = _import_suite()
        sky = "./common/skybox.xml"
        suite.common.ASSETS[sky] = suite.common.ASSETS[sky].replace(b'"800"', b'"8"')
        return suite

    factories._import_suite = import_suite_with_a_small_sky
    # Thousands of tests are collected faster, and need not be looked at again.
    gc.disable()


def pytest_sessionstart(session: pytest.Session) -> None:
    # In a new clone, every process would rewrite the assertions of all files, half of what collecting takes:
    # instead each rewrites a part ahead, which the others find in `__pycache__`.
    config, folder = session.config, pathlib.Path(__file__).resolve().parent
    worker, hook = getattr(config, "workerinput", None), config.pluginmanager.rewrite_hook
    is_whole = [pathlib.Path(each).resolve() for each in config.args] == [folder]
    if worker is None or not is_whole or sys.dont_write_bytecode or not hasattr(hook, "exec_module"):
        return
    ignored = {pathlib.Path(each).resolve() for each in config.getoption("ignore") or ()}
    files = [path for path in folder.rglob("test_*.py") if ignored.isdisjoint((path, *path.parents))]
    for path in sorted(files)[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        module = types.ModuleType(path.stem)
        module.__spec__ = importlib.util.spec_from_file_location(path.stem, path)
        module.__dict__["__builtins__"] = {}  # without which the first import or class fails: nothing runs
        with contextlib.suppress(ImportError, NameError):
            hook.exec_module(module)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(5_000)  # 5 % of all tests' time would else be the search for cycles
    gc.enable()


@pytest.fixture(scope="session")
def repository() -> pathlib.Path:
    """The repository's root."""
    return pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def source_files(repository: pathlib.Path) -> dict[str, pathlib.Path]:
    """Every module of the project by its installed name; a package by its `__init__.py`."""
    folders = {
        "minerva_acme": repository / "minerva_acme",
        "minerva_acme.adders": repository / "adders",
        "minerva_acme.agents": repository / "agents",
    }
    files = {}
    for package, folder in folders.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            if parts[-1] == "__init__":
                parts = parts[:-1]
            files[".".join((package, *parts))] = path
    return files


def _own_threads() -> set[threading.Thread]:
    return {
        thread
        for thread in threading.enumerate()
        if (not thread.daemon or thread.name.partition("/")[0] in _NODES)
        and not thread.name.startswith("pytest_timeout")
    }


def _own_children() -> dict[int, str]:
    """This process's children and what they run; empty where the system does not tell (not Linux)."""
    children = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if parent != os.getpid():
                continue
            command = (process / "cmdline").read_text().replace("\0", " ").strip()
        except OSError:  # gone already
            continue
        # Helpers, which live as long as the process.
        if "multiprocessing.resource_tracker" not in command and "nursery" not in command:
            children[int(process.name)] = command
    return children


@pytest.fixture
def threads_are_given_back() -> Iterator[None]:
    """For a test that sets torch's number of threads."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def short_episodes() -> Iterator[None]:
    """For a file in whose runs 20 steps of Pendulum are as good as its 200."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gymnasium.spec("Pendulum-v1"), "max_episode_steps", 20)
        yield


@pytest.fixture(scope="module")
def short_tasks() -> Iterator[None]:
    """For a file in whose runs 0.4 s of the tasks of dm_control's suite are as good as their 10 to 20."""
    import_suite = factories._import_suite

    def import_short_suite() -> Any:
        suite = import_suite()

        def load(*words: str, task_kwargs: dict[str, Any]) -> Any:
            return suite.load(*words, task_kwargs={**task_kwargs, "time_limit": 0.4})

        return types.SimpleNamespace(ALL_TASKS=suite.ALL_TASKS, load=load)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(factories, "_import_suite", import_short_suite)
        yield


@pytest.fixture(scope="module")
def fork_server(request: pytest.FixtureRequest) -> Iterator[None]:
    """For a file that starts environments in processes: from a server that has imported what they need.

    They start in a tenth of the time, and the server ends with the file. `PRELOADED` of the file has more.
    """
    own = ("factories", "gymnasium_adapter", "process_vector")
    multiprocessing.set_forkserver_preload(
        [
            "gymnasium.envs.classic_control",
            "minerva_acme.wrappers",
            *(f"minerva_acme.environments.{module}" for module in own),
            *getattr(request.module, "PRELOADED", []),
        ]
    )
    yield
    multiprocessing.forkserver._forkserver._stop()  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def nursery(request: pytest.FixtureRequest) -> Iterator[Nursery]:
    """Processes that have imported the files whose tests ask for it, and what else a run imports."""
    files = {item.module.__name__ for item in request.session.items if "nursery" in item.fixturenames}
    lazy = ("acceleration", "adders", "cli.main", "environments.factories", "experiments.run")
    with contextlib.closing(Nursery(*(f"minerva_acme.{name}" for name in lazy), *sorted(files))) as nursery:
        yield nursery


@pytest.fixture
def own_modules_are_forgotten(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For a test that imports modules of its folder: afterwards, nothing of them is left in the process."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = {*sys.modules}
    yield
    own = {name for path in tmp_path.rglob("*.py") for name in (path.stem, path.parent.name)}
    for module in {*sys.modules} - before:
        if module.partition(".")[0] in own:
            del sys.modules[module]
    for name, spec in [*gymnasium.registry.items()]:
        module = getattr(spec.entry_point, "__module__", str(spec.entry_point))
        if re.split("[.:]", module)[0] in own:
            del gymnasium.registry[name]


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Returns what `acceleration` has said within the test, as if nothing had been said before."""
    from minerva_acme.acceleration import notes

    monkeypatch.setattr(notes, "_said", set())
    caplog.set_level(logging.INFO, logger="minerva_acme.acceleration")
    return lambda: [
        record.getMessage() for record in caplog.records if record.name == "minerva_acme.acceleration"
    ]


@pytest.fixture(scope="module", autouse=True)
def leaves_no_thread_or_process_behind() -> Iterator[None]:
    """Fails the last test of a file if, with its fixtures closed, something still runs."""
    threads, children = _own_threads(), _own_children().keys()
    yield
    if parallel := sys.modules.get("minerva_acme.acceleration.parallel"):
        parallel.stop_threads()  # kept for the next learner step, and no file's own
    deadline = time.monotonic() + _GRACE_SECONDS
    while True:
        left = [f"thread '{thread.name}'" for thread in _own_threads() - threads]
        left += [f"process {pid}: {line}" for pid, line in _own_children().items() if pid not in children]
        if not left or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    assert not left, f"This file's tests left behind: {'; '.join(left)}."


@pytest.fixture
def unpainted(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Returns a function after which figures are made, and written to files without a picture."""
    from matplotlib import figure

    def write(drawn: figure.Figure, file: pathlib.Path, **_: Any) -> None:
        file.write_text("<svg></svg>")

    return lambda: monkeypatch.setattr(figure.Figure, "savefig", write)


class ScriptedEnvironment(dm_env.Environment):
    """Gives the same observation always, ends after two steps and remembers the actions it got."""

    def __init__(
        self,
        observation: Any = 0.0,
        observation_spec: Any = None,
        action_spec: Any = None,
        reward: Any = 0.5,
        reward_spec: Any = None,
    ) -> None:
        self.observation = observation
        self.actions: list[Any] = []
        self.closed = False
        self._observation_spec = observation_spec or specs.Array((), np.float64)
        self._action_spec = action_spec or specs.BoundedArray((1,), np.float64, -1, 1)
        self._reward = reward
        self._reward_spec = reward_spec or specs.Array((), np.float64, name="reward")
        self._steps: int | None = None

    def reset(self) -> dm_env.TimeStep:
        self._steps = 0
        return dm_env.restart(self.observation)

    def step(self, action: Any) -> dm_env.TimeStep:
        if self._steps is None or self._steps == 2:
            return self.reset()
        self.actions.append(action)
        self._steps += 1
        if self._steps == 2:
            return dm_env.truncation(self._reward, self.observation, discount=1.0)
        return dm_env.transition(self._reward, self.observation, discount=1.0)

    def observation_spec(self) -> Any:
        return self._observation_spec

    def action_spec(self) -> Any:
        return self._action_spec

    def reward_spec(self) -> Any:
        return self._reward_spec

    def close(self) -> None:
        self.closed = True

    def greet(self, name: str) -> str:
        return f"hello {name}"


@pytest.fixture
def scripted() -> type[ScriptedEnvironment]:
    return ScriptedEnvironment


class TapeEnvironment(dm_env.Environment):
    """Plays the same rewards and discounts in every episode and remembers the actions.

    The observation is [episodes so far, steps in the episode], in an array that it writes into anew.
    """

    def __init__(self, rewards: Any, discounts: Any = None, reward_spec: Any = None) -> None:
        self.rewards = rewards
        self.discounts = discounts or [1.0] * (len(rewards) - 1) + [0.0]
        self.actions: list[Any] = []
        self._observation = np.zeros(2)
        self._step: int | None = None
        self._reward_spec = reward_spec or specs.Array((), np.float64, name="reward")

    def reset(self) -> dm_env.TimeStep:
        self._step = 0
        self._observation[:] = self._observation[0] + 1, 0
        return dm_env.restart(self._observation)

    def step(self, action: Any) -> dm_env.TimeStep:
        if self._step is None or self._step == len(self.rewards):
            return self.reset()
        self.actions.append(action)
        reward, discount = self.rewards[self._step], self.discounts[self._step]
        self._step += 1
        self._observation[1] = self._step
        last = self._step == len(self.rewards)
        step_type = dm_env.StepType.LAST if last else dm_env.StepType.MID
        return dm_env.TimeStep(step_type, reward, discount, self._observation)

    def observation_spec(self) -> Any:
        return specs.BoundedArray((2,), np.float64, 0, [np.inf, len(self.rewards)], name="observation")

    def action_spec(self) -> Any:
        return specs.DiscreteArray(3, dtype=np.int32)

    def reward_spec(self) -> Any:
        return self._reward_spec

    def control_timestep(self) -> float:
        return 0.25


@pytest.fixture
def tape() -> type[TapeEnvironment]:
    return TapeEnvironment


def _sample_action(spec: Any, random: np.random.Generator) -> Any:
    """An action that conforms, from the bounded leaves' whole range."""

    def sample(leaf: Any) -> Any:
        low, high = (np.broadcast_to(bound, leaf.shape) for bound in (leaf.minimum, leaf.maximum))
        if np.issubdtype(leaf.dtype, np.floating):
            return random.uniform(np.maximum(low, -1e3), np.minimum(high, 1e3)).astype(leaf.dtype)
        return random.integers(low, high, endpoint=True).astype(leaf.dtype)[()]

    return tree.map_structure(sample, spec)


@pytest.fixture
def sample_action() -> Callable[[Any, np.random.Generator], Any]:
    return _sample_action


@pytest.fixture
def check_dm_env() -> Callable[..., None]:
    """Runs dm_env's own checker with actions that reach the end of an episode."""

    def check(make: Callable[[], dm_env.Environment], max_steps: int = 300) -> None:
        class Check(test_utils.EnvironmentTestMixin, absltest.TestCase):
            saw_last = False

            def make_object_under_test(self) -> dm_env.Environment:
                return make()

            def make_action_sequence(self) -> Any:
                # One step beyond LAST, which must give FIRST.
                random = np.random.default_rng(0)
                steps_beyond = 0
                for _ in range(max_steps):
                    yield _sample_action(self.environment.action_spec(), random)
                    steps_beyond += self.over
                    if steps_beyond == 2:
                        break

            def step_environment(self, action: Any = None) -> dm_env.TimeStep:
                timestep = super().step_environment(action)
                self.over = getattr(self, "over", False) or timestep.last()
                Check.saw_last |= timestep.last()
                return timestep

            def reset_environment(self) -> dm_env.TimeStep:
                self.over = False
                return super().reset_environment()

        result = unittest.TestResult()
        unittest.defaultTestLoader.loadTestsFromTestCase(Check).run(result)
        assert result.testsRun >= 4
        assert result.wasSuccessful(), "\n".join(text for _, text in result.failures + result.errors)
        assert Check.saw_last, f"no episode ended within {max_steps} steps"

    return check


@pytest.fixture
def disk_that_ends_at() -> Callable[[int], contextlib.AbstractContextManager[None]]:
    """Makes a context in which a file takes so many bytes and then no more, as on a full disk."""

    @contextlib.contextmanager
    def limited(num_bytes: int) -> Iterator[None]:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limited
