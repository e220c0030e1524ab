"""Runs a program on Ray: every node is a Ray actor, in a process of its own, here or on another machine."""

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

from minerva_acme import machine_memory
from minerva_acme.distributed import graph, inline

_logger = logging.getLogger(__name__)

_CONCURRENCY = 16  # calls that a node answers at once, its `run` included
_STORE_BYTES = 256_000_000  # of shared memory on this machine, for weights
_KEPT_LOG_LINES = 200
_PREFIX = "minerva-"
_REACH_SECONDS = 10.0
_MAX_STARTS = 3  # of Ray, which gives up when its processes need more than 30 s
_LOOK_SECONDS = 0.5  # between two looks for a process that Ray starts again
_HEAD_SECONDS = 1.0  # between two looks for the head
_MAX_HEAD_SILENCE = 8.0  # seconds; after 60 Ray ends this process
_DOUBT_SECONDS = 30.0  # in which Ray notices that a machine is lost
_OWNER = "owner"  # the file of a folder of Ray's that is locked for as long as its driver lives
_MAX_SOCKET_FOLDER = 40  # characters; Ray puts sockets below, whose whole path may have 107


class RayEngine:
    """Ray core, on this machine alone or in a cluster that is already there.

    On this machine it is started for the run, and ended with it. In a cluster, replay, learner and counter
    are on the machine that this process is on, where the run's folder is; actors and evaluator are wherever
    there is room, and replay accepts connections of other machines, without authentication.
    """

    def __init__(self, address: str | None = None) -> None:
        """Starts nothing yet.

        Args:
            address: `auto` or `host:port` of a cluster; None: this machine.

        Raises:
            ValueError: Ray is not installed, or nobody listens at the address.
        """
        # Read when Ray is imported.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Answers that nobody waits for any more; what matters is raised where it is asked for.
        os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
        try:
            import ray
        except ImportError:
            raise ValueError(
                "Distributed runs need Ray, which is not installed: pip install 'minerva-acme[ray]'. Threads "
                "of this process, to debug, need none: engine='inline'."
            ) from None
        if address is not None:
            try:
                _check_reachable(address)
            except (OSError, _NoAddressError) as error:
                raise _no_cluster(address, error) from error
        self._ray = ray
        self._address = address
        self._folder: str | None = None
        self._owner = -1  # the descriptor of its file
        self._is_own = False
        self.is_remote = address is not None

    def connect(self, num_cpus: int) -> str:
        """Starts Ray, or finds the cluster; returns the name of this machine for others to reach it.

        Args:
            num_cpus: that all nodes take up together. On this machine alone they share the cores that it has.

        Raises:
            ValueError: there is no such cluster.
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
                    ray.init(address=self._address, **quiet)
                except ConnectionError as error:
                    raise _no_cluster(self._address, error) from error
        host: str = ray.util.get_node_ip_address() if self.is_remote else "localhost"
        return host

    def _start(self, num_cpus: int, quiet: Mapping[str, Any]) -> None:
        """Starts Ray on this machine; again where a busy machine was too slow for it."""
        for attempt in range(1, _MAX_STARTS + 1):
            try:
                self._ray.init(
                    address="local",
                    num_cpus=num_cpus,
                    object_store_memory=_STORE_BYTES,
                    _temp_dir=self._folder,
                    **quiet,
                )
                return
            except Exception as error:  # Ray has no class for it
                for pid in _children_in(str(self._folder)):
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                if "timed out" not in str(error) or attempt == _MAX_STARTS:
                    raise
                _logger.warning("Ray has not started in time, it is tried again: %s", error)

    def launch(self, program: graph.Program) -> "RayProgram":
        """Makes an actor for each node of a program."""
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

    Ray starts an actor's process again; what runs in it is asked for by `start`.
    """

    def __init__(self, ray: Any, program: graph.Program, *, is_remote: bool) -> None:
        self._ray = ray
        self._program = program
        self._is_remote = is_remote
        self._namespace = f"minerva-{uuid.uuid4().hex[:12]}"
        self._home = ray.get_runtime_context().get_node_id()
        self._actors: dict[str, Any] = {}
        self._runs: dict[Any, str] = {}  # by what Ray gives for a call of `run`
        self._logs: dict[Any, str] = {}
        self._starts: dict[Any, tuple[str, int]] = {}  # name and incarnation, until the process is there
        self._absent: list[tuple[float, str, int]] = []  # when to look again for which
        self._stopping: set[str] = set()
        self._where: dict[str, str] = {}  # the machines of the nodes, by Ray's ids
        self._about: dict[str, dict[str, float]] = {}
        self._head = _Head(ray.get_runtime_context().gcs_address)
        self._doubt_until = 0.0  # whether Ray still runs on this machine
        self._is_lost = False
        for node in program.nodes:
            self._actors[node.name] = self._make_actor(node)

    def start(self, name: str, incarnation: int) -> None:
        # A call of a process that Ray is still starting again fails at once: nothing has run then.
        self._starts[self._actors[name].loaded.remote()] = name, incarnation

    def wait(self, timeout_seconds: float) -> list[graph.Ended]:
        ray = self._ray
        now = time.monotonic()
        if self._is_lost:  # what has not been started will not be
            waiting = [*self._starts.values(), *((name, start) for _, name, start in self._absent)]
            self._starts.clear()
            self._absent.clear()
            if waiting:
                return [graph.Ended(name, None, died=False) for name, _ in waiting]
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

    def handle(self, name: str) -> graph.Handle:
        return _Handle(name, self._namespace, self._actors.get(name))  # the head is not asked for it

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

    def about(self) -> dict[str, dict[str, float]]:
        return self._about

    def close(self) -> None:
        self._head.close()
        if self._is_lost:  # there is nobody to ask; processes of a lost cluster end by themselves
            return
        for actor in self._actors.values():
            with contextlib.suppress(Exception):  # it may be gone, and so may Ray
                self._ray.kill(actor, no_restart=True)

    def _check_engine(self) -> None:
        """Raises EngineLost, once, where no node can be started again."""
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
            f"{reason}. Start Ray again, if you started it, then the same command resumes."
        )

    def _make_again(self, name: str) -> None:
        """Makes the actor of a node again that Ray has given up, as where its machine is gone."""
        self._doubt_home(name)
        if not self._is_lost:
            self._actors[name] = self._make_actor(self._program[name])

    def _doubt_home(self, name: str) -> None:
        """Notes that a node has died, with which this machine's part of Ray may be gone."""
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
                max_task_retries=0,  # `run` is called again by the supervisor, calls by the callers
                scheduling_strategy=place,
            )
            .remote(node.name, node.num_threads, node.num_gpus > 0)
        )

    def _run(self, name: str, incarnation: int, answer: Any) -> list[graph.Ended]:
        """Runs a node once its process is there; one that is asked to end before is not run."""
        if name in self._stopping:
            return [graph.Ended(name, None, died=False)]
        try:
            self._ray.get(answer)
        except self._ray.exceptions.RayError as error:
            if isinstance(error, self._ray.exceptions.ActorDiedError):  # for good: its machine is gone
                self._make_again(name)
                return [graph.Ended(name, error, died=True)]
            self._absent.append((time.monotonic() + _LOOK_SECONDS, name, incarnation))
            return []
        payload = cloudpickle.dumps(self._program[name])
        run = self._actors[name].run.remote(payload, incarnation, self._namespace)
        self._runs[run] = name
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
        except exceptions.ActorDiedError as error:  # for good: its machine is gone
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
        self._where[name] = place
        for level, message in lines:
            _logger.log(level, "%s: %s", name, message)
        if name in self._runs.values():
            self._listen(name)

    def _draining(self) -> set[str]:
        try:
            from ray._private import state

            return set(state.state.get_draining_nodes())
        except Exception as error:  # no public way: without it a node that is shut down is found dead
            _logger.debug("Ray does not say which machines are going to be shut down: %r", error)
            return set()


class RayNode:
    """The actor that every node is. Nothing in its `__init__` may fail: Ray would not start it again."""

    def __init__(self, name: str, num_threads: int, sees_gpu: bool) -> None:
        """Args: name: of the node. num_threads: that torch computes with. sees_gpu: whether it has one."""
        # Before torch is imported: Ray gives every process one thread, and what it may see to all.
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
        self._shared: dict[str, tuple[int, Any]] = {}  # what was put into the object store, by method
        self._lines: collections.deque[tuple[int, str]] = collections.deque(maxlen=_KEPT_LOG_LINES)
        self._has_lines = threading.Condition()
        logger = logging.getLogger("minerva_acme")
        logger.setLevel(logging.INFO)
        logger.addHandler(_Keeper(self._keep))
        # Ray's own way to end a worker leaves it hanging where a thread of it does not return.
        signal.signal(signal.SIGTERM, lambda *_: self.leave())

    def run(self, payload: bytes, incarnation: int, namespace: str) -> None:
        """Builds the node and runs it."""
        if self._has_run:
            self._stop, self._ended = threading.Event(), threading.Event()
        self._has_run = True
        node: graph.Node = cloudpickle.loads(payload)
        self._leave_seconds = node.leave_seconds
        context = graph.Context(node, incarnation, lambda name: _Handle(name, namespace), self._stop)
        if "torch" in sys.modules:  # by what was unpickled
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
        key, reference = self._shared.get(method, (None, None))
        if key != answer.key:
            import ray

            reference = ray.put(answer.value)
            self._shared[method] = (answer.key, reference)
        return _ByReference([reference])

    def stop(self) -> None:
        """Asks the node to end."""
        self._stop.set()

    def leave(self) -> None:
        """Ends the node, then the process, which Ray starts again, perhaps elsewhere."""
        self._is_leaving = True
        self._stop.set()
        threading.Thread(target=self._exit, name="leave", daemon=True).start()

    def next_log(self) -> tuple[str, dict[str, float], list[tuple[int, str]]]:
        """Returns, within two seconds, the machine it is on, what it takes, and what it has logged."""
        import ray

        with self._has_lines:
            self._has_lines.wait_for(lambda: self._lines, 2.0)
            lines = list(self._lines)
            self._lines.clear()
        about = {"pid": float(os.getpid()), "memory_mb": machine_memory.resident_bytes() / 1e6}
        return ray.get_runtime_context().get_node_id(), about, lines

    def loaded(self) -> dict[str, Any]:
        """What its process is made of, for tests and for doubts."""
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
    references: list[Any]  # one, which Ray would otherwise replace by its value


class _Handle:
    """Finds a node by its name whenever it calls it."""

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
            self._actor = None  # another one may have taken its place
            raise graph.NodeSilence(
                f"Node {self._name} does not answer ({type(error).__name__}) within {timeout_seconds:g} s."
            ) from None


class _Head(threading.Thread):
    """Looks whether the head of Ray answers.

    Attributes:
        address: The head's address.
        is_silent: Whether it has not answered for a while.
    """

    def __init__(self, address: str) -> None:
        """Begins to look. Args: address: The head's `host:port`."""
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
        """Looks no more."""
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
        f"`address` must be that of a Ray cluster, got {address!r}: {error}. Start one with `ray start "
        "--head`, or leave it out to use this machine alone."
    )


class _NoAddressError(ValueError):
    pass


def _check_reachable(address: str, timeout_seconds: float = _REACH_SECONDS) -> None:
    """Checks that somebody listens at an address, for which Ray itself would wait for minutes.

    Raises:
        OSError: nobody does.
        _NoAddressError: it is no address.
    """
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise _NoAddressError("it is neither `auto` nor host:port")
    socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_seconds).close()


def _children_in(folder: str) -> Iterator[int]:
    """Processes that this one has started and whose command line names a folder."""
    for listing in pathlib.Path("/proc/self/task").glob("*/children"):
        for pid in listing.read_text().split():
            with contextlib.suppress(OSError):
                if folder in pathlib.Path("/proc", pid, "cmdline").read_text():
                    yield int(pid)


def own_folder(folder: str | os.PathLike[str]) -> int:
    """Says in a folder which process it is of, for as long as that lives; returns a descriptor to close."""
    path = pathlib.Path(folder, f".{_OWNER}")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
    path.rename(path.with_name(_OWNER))  # by this name it is locked from the start
    return descriptor


def remove_left_folders() -> None:
    """Removes the folders of this user's processes that were killed and could not remove them."""
    for folder in pathlib.Path(_short_folder() or tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            status = folder.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
                continue
            descriptor = os.open(folder / _OWNER, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:  # removed by now, or none of ours
            continue
        with contextlib.closing(os.fdopen(descriptor)), contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises while its process lives
            for path in folder.iterdir():
                if path.name != _OWNER:  # the last, so that what is left by now is found again
                    shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
            shutil.rmtree(folder)
            _logger.info("removed %s, left by a process that was killed", folder)


def _short_folder() -> str | None:
    """Where temporary files go; None: where they always do."""
    return "/tmp" if len(tempfile.gettempdir()) > _MAX_SOCKET_FOLDER else None
