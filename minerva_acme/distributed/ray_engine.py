"""Runs a program on Ray: every node is a Ray actor in its own process, here or on another machine."""

import collections
import contextlib
import fcntl
import logging
import os
import pathlib
import shutil
import signal
import socket
import stat
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import cloudpickle

from minerva_acme.distributed import graph, inline
from minerva_acme.machine import memory

_logger = logging.getLogger(__name__)

_CONCURRENCY = 16  # concurrent calls of a node, including its `run`
_STORE_BYTES = 256_000_000  # of shared memory on this machine, for weights
_KEPT_LOG_LINES = 200
_PREFIX = "minerva-"
_REACH_SECONDS = 10.0
_MAX_STARTS = 3  # attempts to start Ray, which gives up if its processes need more than 30 s
_LOOK_SECONDS = 0.5  # between checks for a process that Ray is restarting
_HEAD_SECONDS = 1.0  # between checks of the head
_MAX_HEAD_SILENCE = 8.0  # seconds; after 60 s Ray ends this process
_STOPPED_SECONDS = 6.0  # of silence of a node, which otherwise gives a sign of life every two seconds
_DOUBT_SECONDS = 30.0  # within which Ray notices that a machine is lost
_OWNER = "owner"  # a file in Ray's folder that is locked as long as its driver lives
_MAX_SOCKET_FOLDER = 40  # characters; Ray puts sockets below it, whose whole path may have 107


class RayEngine:
    """An engine on Ray core, on this machine alone or in an existing cluster.

    On this machine, Ray is started for the run and stopped with it. In a cluster, replay, learner and counter
    run on the machine of this process, which has the run's folder; actors and evaluator run wherever there is
    room, and replay accepts connections from other machines, without authentication.
    """

    def __init__(self, address: str | None = None) -> None:
        """Starts nothing yet.

        Args:
            address: The address of a cluster, `auto` or `host:port`, or None for this machine.

        Raises:
            ValueError: Ray is not installed, or nothing listens at the address.
        """
        # Read when Ray is imported.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Ignores errors of answers that are no longer needed; the others are raised when they are read.
        os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
        try:
            import ray
        except ImportError:
            raise ValueError(
                "Distributed runs need Ray, which is not installed: pip install 'minerva-acme[ray]'. To "
                "debug in threads of this process without Ray, use `--distributed inline` (in Python: "
                "engine='inline')."
            ) from None
        if address is not None:
            try:
                _check_reachable(address)
            except (OSError, _NoAddressError) as error:
                raise _no_cluster(address, error) from error
        self._ray = ray
        self._address = address
        self._folder: str | None = None
        self._owner = -1  # the descriptor of the owner file
        self._is_own = False
        self.is_remote = address is not None

    def connect(self, num_cpus: int) -> str:
        """Starts Ray, or connects to the cluster. Returns the name by which others reach this machine.

        Args:
            num_cpus: The CPUs that all nodes occupy together. On this machine alone, they share its cores.

        Raises:
            ValueError: There is no such cluster.
        """
        ray = self._ray
        if not ray.is_initialized():
            self._is_own = True
            quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "include_dashboard": False}
            if self._address is None:
                remove_left_folders()
                self._folder = tempfile.mkdtemp(prefix=_PREFIX, dir=_short_folder())
                self._owner = own_folder(self._folder)
                self._start(num_cpus, quiet)
            else:
                quiet.pop("include_dashboard")
                try:
                    self._init(address=self._address, **quiet)
                except ConnectionError as error:
                    raise _no_cluster(self._address, error) from error
        host: str = ray.util.get_node_ip_address() if self.is_remote else "localhost"
        return host

    def _start(self, num_cpus: int, quiet: Mapping[str, Any]) -> None:
        """Starts Ray on this machine; tries again if the machine was too busy to start it in time."""
        for attempt in range(1, _MAX_STARTS + 1):
            try:
                self._init(
                    address="local",
                    num_cpus=num_cpus,
                    object_store_memory=_STORE_BYTES,
                    _temp_dir=self._folder,
                    **quiet,
                )
                return
            except Exception as error:  # Ray has no class for this error
                for pid in _children_in(str(self._folder)):
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                if "timed out" not in str(error) or attempt == _MAX_STARTS:
                    raise
                _logger.warning("Ray has not started in time; trying again: %s", error)

    def _init(self, **options: Any) -> None:
        """Calls `ray.init`, and leaves SIGTERM as it was: Ray's own handler ends a process without a word."""
        before = signal.getsignal(signal.SIGTERM)
        try:
            self._ray.init(**options)
        except SystemExit as error:  # that handler
            raise KeyboardInterrupt from error
        finally:
            if threading.current_thread() is threading.main_thread() and before is not None:
                signal.signal(signal.SIGTERM, before)

    def launch(self, program: graph.Program) -> "RayProgram":
        """Makes a Ray actor for each node of a program."""
        return RayProgram(self._ray, program, is_remote=self.is_remote)

    def close(self) -> None:
        """Ends Ray, if it was started here."""
        if self._is_own:
            self._is_own = False
            self._ray.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            os.close(self._owner)
            self._folder = None


class RayProgram:
    """A program on Ray; see `graph.Launched`.

    Ray restarts an actor's process; `start` then runs the node in it.
    """

    def __init__(self, ray: Any, program: graph.Program, *, is_remote: bool) -> None:
        self._ray = ray
        self._program = program
        self._is_remote = is_remote
        self._namespace = f"minerva-{uuid.uuid4().hex[:12]}"
        self._home = ray.get_runtime_context().get_node_id()
        self._actors: dict[str, Any] = {}
        self._runs: dict[Any, str] = {}  # node names, by Ray's reference to the call of `run`
        self._logs: dict[Any, str] = {}
        self._starts: dict[Any, tuple[str, int]] = {}  # name and incarnation, until the process is there
        self._absent: list[tuple[float, str, int]] = []  # when to check again, name and incarnation
        self._stopping: set[str] = set()
        self._where: dict[str, str] = {}  # Ray's ids of the nodes' machines
        self._about: dict[str, dict[str, float]] = {}
        self._heard_at: dict[str, float] = {}  # when a node has last given a sign of life
        self._head = _Head(ray.get_runtime_context().gcs_address)
        self._doubt_until = 0.0  # until then, check whether Ray still runs on this machine
        self._is_lost = False
        for node in program.nodes:
            self._actors[node.name] = self._make_actor(node)

    def start(self, name: str, incarnation: int) -> None:
        # A call to a process that Ray is still restarting fails at once: nothing has run then.
        self._starts[self._actors[name].loaded.remote()] = name, incarnation

    def wait(self, timeout_seconds: float) -> list[graph.Ended]:
        ray = self._ray
        now = time.monotonic()
        if never := self._take_those_that_never_start():
            return [graph.Ended(name, None, died=False) for name in never]
        due = [entry for entry in self._absent if entry[0] <= now]
        self._absent = [entry for entry in self._absent if entry[0] > now]
        for _, name, incarnation in due:
            self.start(name, incarnation)
        pending = [*self._runs, *self._logs, *self._starts]
        if not pending:
            time.sleep(timeout_seconds)
            return []
        ready, _ = ray.wait(pending, num_returns=1, timeout=timeout_seconds)
        more, _ = ray.wait(pending, num_returns=len(pending), timeout=0)
        ended = []
        for answer in {*ready, *more}:
            if answer in self._logs:
                self._take_log(self._logs.pop(answer), answer)
            elif answer in self._starts:
                ended += self._run(*self._starts.pop(answer), answer)
            else:
                ended.append(self._end(self._runs.pop(answer), answer))
        return ended

    def _take_those_that_never_start(self) -> list[str]:
        """Removes the nodes that wait for their process and were asked to end: Ray may never place them."""

        def is_in_vain(name: str) -> bool:
            return self._is_lost or name in self._stopping

        never = [*self._starts.values(), *((name, start) for _, name, start in self._absent)]
        self._starts = {answer: start for answer, start in self._starts.items() if not is_in_vain(start[0])}
        self._absent = [entry for entry in self._absent if not is_in_vain(entry[1])]
        return [name for name, _ in never if is_in_vain(name)]

    def handle(self, name: str) -> graph.Handle:
        return _Handle(name, self._namespace, self._actors.get(name))  # without asking the head

    def stop(self, name: str) -> None:
        self._stopping.add(name)
        self._actors[name].stop.remote()

    def endure(self) -> None:
        self._check_engine()
        if not self._is_remote or self._is_lost:
            return
        draining = self._draining()
        for name, place in self._where.items():
            if place in draining:
                _logger.warning("%s leaves a machine that is going to be shut down", name)
                self._actors[name].leave.remote()
        self._where = {name: place for name, place in self._where.items() if place not in draining}

    def silence(self, name: str) -> float:
        return time.monotonic() - self._heard_at[name] if name in self._runs.values() else 0.0

    def about(self) -> dict[str, dict[str, float]]:
        return self._about

    def close(self) -> None:
        self._head.close()
        if self._is_lost:  # processes of a lost cluster end by themselves
            return
        self._kill_stopped()
        for actor in self._actors.values():
            with contextlib.suppress(Exception):  # it may be gone, and so may Ray
                self._ray.kill(actor, no_restart=True)

    def _kill_stopped(self) -> None:
        """Kills the processes on this machine that were stopped: they would not do what Ray asks of them."""
        for name, about in self._about.items():
            if self._where.get(name) == self._home and self.silence(name) > _STOPPED_SECONDS:
                with contextlib.suppress(OSError):
                    os.kill(int(about["pid"]), signal.SIGKILL)

    def _check_engine(self) -> None:
        """Raises EngineLost, once, if no node can be restarted any more."""
        reason = None
        if self._head.is_silent:
            reason = f"The head of Ray at {self._head.address} has not answered for {_MAX_HEAD_SILENCE:.0f} s"
        elif time.monotonic() < self._doubt_until:
            alive = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
            if self._home not in alive:
                reason = "Ray's own process on this machine (its raylet) is gone, and the learner with it"
        if reason is None or self._is_lost:
            return
        self._is_lost = True
        _logger.error("%s.", reason)  # at once: Ray may end this process before the run has ended
        raise graph.EngineLost(
            f"{reason}. Restart Ray if you started it yourself; then the same command resumes the run."
        )

    def _make_again(self, name: str) -> None:
        """Makes a new actor for a node whose actor Ray has given up, for example if its machine is gone."""
        self._doubt_home(name)
        if not self._is_lost:
            self._actors[name] = self._make_actor(self._program[name])

    def _doubt_home(self, name: str) -> None:
        """Records that a node has died: if it was on this machine, Ray here may be gone too."""
        if self._program[name].at_home:
            self._doubt_until = time.monotonic() + _DOUBT_SECONDS

    def _make_actor(self, node: graph.Node) -> Any:
        from ray.util import scheduling_strategies

        place: Any = "SPREAD" if self._is_remote else "DEFAULT"
        if node.at_home:
            place = scheduling_strategies.NodeAffinitySchedulingStrategy(self._home, soft=False)
        return (
            self._ray.remote(RayNode)
            .options(
                name=node.name,
                namespace=self._namespace,
                num_cpus=node.num_cpus,
                num_gpus=node.num_gpus,
                max_concurrency=_CONCURRENCY,
                max_restarts=-1,
                max_task_retries=0,  # the supervisor repeats `run`, callers repeat their calls
                scheduling_strategy=place,
            )
            .remote(node.name, node.num_threads, node.num_gpus > 0)
        )

    def _run(self, name: str, incarnation: int, answer: Any) -> list[graph.Ended]:
        """Runs a node once its process is there."""
        try:
            self._ray.get(answer)
        except self._ray.exceptions.RayError as error:
            if isinstance(error, self._ray.exceptions.ActorDiedError):  # permanently: its machine is gone
                self._make_again(name)
                return [graph.Ended(name, error, died=True)]
            self._absent.append((time.monotonic() + _LOOK_SECONDS, name, incarnation))
            return []
        payload = cloudpickle.dumps(self._program[name])
        run = self._actors[name].run.remote(payload, incarnation, self._namespace)
        self._runs[run] = name
        self._heard_at[name] = time.monotonic()
        self._listen(name)
        return []

    def _end(self, name: str, answer: Any) -> graph.Ended:
        exceptions = self._ray.exceptions
        try:
            self._ray.get(answer)
            return graph.Ended(name, None, died=False)
        except exceptions.RayTaskError as error:
            cause = error.cause
            has_left = isinstance(cause, graph.NodeLeft)
            return graph.Ended(name, cause if isinstance(cause, Exception) else error, died=has_left)
        except exceptions.ActorDiedError as error:  # permanently: its machine is gone
            self._make_again(name)
            return graph.Ended(name, error, died=True)
        except exceptions.RayError as error:
            self._doubt_home(name)
            return graph.Ended(name, error, died=True)

    def _listen(self, name: str) -> None:
        self._logs[self._actors[name].next_log.remote()] = name

    def _take_log(self, name: str, answer: Any) -> None:
        try:
            place, self._about[name], lines = self._ray.get(answer)
        except self._ray.exceptions.RayError:
            return  # it died; the next `start` listens again
        self._where[name], self._heard_at[name] = place, time.monotonic()
        for level, message in lines:
            _logger.log(level, "%s: %s", name, message)
        if name in self._runs.values():
            self._listen(name)

    def _draining(self) -> set[str]:
        try:
            from ray._private import state

            return set(state.state.get_draining_nodes())
        except Exception as error:  # not a public API: without it, nodes there are found dead afterwards
            _logger.debug("Ray does not tell which machines are going to be shut down: %r", error)
            return set()


class RayNode:
    """The Ray actor of a node. Its `__init__` must not fail: Ray would not restart it then."""

    def __init__(self, name: str, num_threads: int, sees_gpu: bool) -> None:
        """Prepares the process.

        Args:
            name: The node's name.
            num_threads: The number of torch's threads.
            sees_gpu: Whether the node has a GPU.
        """
        # Before torch is imported: Ray gives every process one thread, and shows it all visible GPUs.
        os.environ["OMP_NUM_THREADS"] = str(num_threads)
        if not sees_gpu:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        self._name = name
        self._stop = threading.Event()
        self._ended = threading.Event()
        self._part: graph.Part | None = None
        self._has_run = False
        self._leave_seconds = 0.0
        self._is_leaving = False
        # Keys and references to the object store, by method and name.
        self._shared: dict[tuple[str, Any], tuple[int, Any]] = {}
        self._lines: collections.deque[tuple[int, str]] = collections.deque(maxlen=_KEPT_LOG_LINES)
        self._has_lines = threading.Condition()
        logger = logging.getLogger("minerva_acme")
        logger.setLevel(logging.INFO)
        logger.addHandler(_Keeper(self._keep))
        # Ray's own handler leaves a worker hanging if one of its threads does not return.
        signal.signal(signal.SIGTERM, lambda *_: self.leave())

    def run(self, payload: bytes, incarnation: int, namespace: str) -> None:
        """Builds the node and runs it."""
        if self._has_run:
            self._stop, self._ended = threading.Event(), threading.Event()
        self._has_run = True
        node: graph.Node = cloudpickle.loads(payload)
        self._leave_seconds = node.leave_seconds
        context = graph.Context(node, incarnation, lambda name: _Handle(name, namespace), self._stop)
        if "torch" in sys.modules:  # imported by unpickling
            sys.modules["torch"].set_num_threads(node.num_threads)
        try:
            self._part = inline.build(node, context)
            self._part.run()
            if self._is_leaving:
                raise graph.NodeLeft(f"The system has asked the process of {self._name} to end.")
        finally:
            self._part = None
            self._ended.set()

    def call(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """Calls a method that the node exports."""
        answer = inline.call(self._name, self._part, method, arguments)
        if not isinstance(answer, graph.Shared):
            return answer
        key, reference = self._shared.get((method, answer.name), (None, None))
        if key != answer.key:
            import ray

            reference = ray.put(answer.value)
            self._shared[method, answer.name] = (answer.key, reference)
        return _ByReference([reference])

    def stop(self) -> None:
        """Asks the node to end."""
        self._stop.set()

    def leave(self) -> None:
        """Ends the node, then the process, which Ray restarts, possibly on another machine."""
        self._is_leaving = True
        self._stop.set()
        threading.Thread(target=self._exit, name="leave", daemon=True).start()

    def next_log(self) -> tuple[str, dict[str, float], list[tuple[int, str]]]:
        """Returns, within two seconds, the node's machine, its resource use and its new log lines."""
        import ray

        with self._has_lines:
            self._has_lines.wait_for(lambda: self._lines, 2.0)
            lines = list(self._lines)
            self._lines.clear()
        about = {"pid": float(os.getpid()), "memory_mb": memory.resident_bytes() / 1e6}
        return ray.get_runtime_context().get_node_id(), about, lines

    def loaded(self) -> dict[str, Any]:
        """Returns facts about its process; a successful call also shows that the process is there."""
        torch: Any = sys.modules.get("torch")
        return {
            "pid": os.getpid(),
            "runs": self._part is not None,
            "tensorflow": "tensorflow" in sys.modules,
            "torch": torch is not None,
            "torch_threads": torch.get_num_threads() if torch is not None else 0,
            "cuda": torch is not None and torch.cuda.is_initialized(),
        }

    def _exit(self) -> None:
        if self._has_run:
            self._ended.wait(self._leave_seconds)
        os._exit(1)

    def _keep(self, level: int, message: str) -> None:
        with self._has_lines:
            self._lines.append((level, message))
            self._has_lines.notify_all()


class _ByReference(NamedTuple):
    references: list[Any]  # one reference; outside a list Ray would replace it with its value


class _Handle:
    """Looks a node up by its name when it calls it."""

    def __init__(self, name: str, namespace: str, actor: Any = None) -> None:
        self._name = name
        self._namespace = namespace
        self._actor = actor

    def call(self, method: str, *arguments: Any, timeout_seconds: float = 10.0) -> Any:
        import ray

        try:
            if self._actor is None:
                self._actor = ray.get_actor(self._name, namespace=self._namespace)
        except ValueError as error:
            raise graph.NodeSilence(f"There is no node {self._name} now: {error}") from None
        try:
            answer = ray.get(self._actor.call.remote(method, arguments), timeout=timeout_seconds)
            if isinstance(answer, _ByReference):
                answer = ray.get(answer.references[0], timeout=timeout_seconds)
            return answer
        except ray.exceptions.RayTaskError as error:
            raise (error.cause if isinstance(error.cause, Exception) else error) from None
        except ray.exceptions.RayError as error:
            self._actor = None  # it may have been replaced
            raise graph.NodeSilence(
                f"Node {self._name} does not answer ({type(error).__name__}) within {timeout_seconds:g} s."
            ) from None


class _Head(threading.Thread):
    """Checks in a thread whether the head of Ray answers.

    Attributes:
        address: The head's address.
        is_silent: Whether it has not answered for a while.
    """

    def __init__(self, address: str) -> None:
        """Starts the thread.

        Args:
            address: The head's `host:port`.
        """
        super().__init__(name="ray-head", daemon=True)
        self.address = address
        self.is_silent = False
        self._done = threading.Event()
        self.start()

    def run(self) -> None:
        answered_at = time.monotonic()
        while not self._done.wait(_HEAD_SECONDS):
            try:
                _check_reachable(self.address, timeout_seconds=_MAX_HEAD_SILENCE)
            except OSError as error:
                _logger.debug("the head of Ray does not answer: %s", error)
                self.is_silent = time.monotonic() - answered_at >= _MAX_HEAD_SILENCE
            else:
                self.is_silent = False
                answered_at = time.monotonic()

    def close(self) -> None:
        """Stops the checks."""
        self._done.set()
        self.join(_HEAD_SECONDS)


class _Keeper(logging.Handler):
    def __init__(self, keep: Any) -> None:
        super().__init__()
        self._keep = keep

    def emit(self, record: logging.LogRecord) -> None:
        self._keep(record.levelno, record.getMessage())


def _no_cluster(address: str, error: Exception) -> ValueError:
    return ValueError(
        f"`address` must be the address of a Ray cluster, got {address!r}: {error}. Start one with `ray "
        "start --head`, or leave it out to use only this machine."
    )


class _NoAddressError(ValueError):
    pass


def _check_reachable(address: str, timeout_seconds: float = _REACH_SECONDS) -> None:
    """Checks that something listens at an address, since Ray itself would wait for minutes.

    Raises:
        OSError: Nothing listens there.
        _NoAddressError: It is not an address.
    """
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise _NoAddressError("it is neither `auto` nor host:port")
    socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_seconds).close()


def _children_in(folder: str) -> Iterator[int]:
    """Yields the ids of child processes whose command lines contain a folder."""
    for listing in pathlib.Path("/proc/self/task").glob("*/children"):
        for pid in listing.read_text().split():
            with contextlib.suppress(OSError):
                if folder in pathlib.Path("/proc", pid, "cmdline").read_text():
                    yield int(pid)


def own_folder(folder: str | os.PathLike[str]) -> int:
    """Marks a folder as owned by this process while it lives; returns a descriptor to close."""
    path = pathlib.Path(folder, f".{_OWNER}")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
    path.rename(path.with_name(_OWNER))  # under this name it is locked from the start
    return descriptor


def remove_left_folders() -> None:
    """Removes folders that killed processes of this user have left."""
    for folder in pathlib.Path(_short_folder() or tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            status = folder.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
                continue
            descriptor = os.open(folder / _OWNER, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:  # removed meanwhile, or not one of ours
            continue
        with contextlib.closing(os.fdopen(descriptor)), contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises while its process lives
            for path in folder.iterdir():
                if path.name != _OWNER:  # removed last, so that an unfinished removal can be continued
                    shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
            shutil.rmtree(folder)
            _logger.info("removed %s, left by a process that was killed", folder)


def _short_folder() -> str | None:
    """Returns the folder for Ray's files, or None for the default temporary folder if that is short."""
    return "/tmp" if len(tempfile.gettempdir()) > _MAX_SOCKET_FOLDER else None
