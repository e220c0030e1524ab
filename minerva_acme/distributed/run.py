"""Runs an experiment in several processes, on one machine or many."""

import contextlib
import logging
import os
import pathlib
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any, Literal

import torch

from minerva_acme import builders
from minerva_acme.distributed import counter_node, graph, inline, program, status, supervisor
from minerva_acme.environments import scene
from minerva_acme.experiments import beginning as run_beginning
from minerva_acme.experiments import interrupts, parts, progress_display, seeds, signals, stopping
from minerva_acme.experiments import progress as run_progress
from minerva_acme.experiments import run as one_process
from minerva_acme.machine import threads
from minerva_acme.names import foreign_names
from minerva_acme.replay import backends
from minerva_acme.replay.reverb import ports
from minerva_acme.runs import checkpointing, evaluation
from minerva_acme.runs import config as experiment_config

_logger = logging.getLogger(__name__)

_BUILD_SECONDS = 600.0
_WATCH_SECONDS = 0.25
_OVERVIEW_SECONDS = 0.5
_ACTORS_SECONDS = 4.0  # for actors and the evaluator to stop
_SAVE_SECONDS = 600.0  # without anything written, after which a save is given up
_SAY_SECONDS = 10.0  # between two log lines about a long save
_COUNTER_SECONDS = 30.0  # the longest wait for a counter that is being restarted at the end of a run
_WRITE_SECONDS = 3.0  # the longest wait for a full disk there
_SILENT_SECONDS = 10.0  # the longest wait there for a node that gives no sign of life
_LAST_SECONDS = 3.0
_ANSWER_SECONDS = 2.0  # the timeout of calls to nodes


@foreign_names.translated
def run_distributed_experiment(
    config: experiment_config.ExperimentConfig,
    *callbacks: run_progress.Callback,
    num_actors: int,
    num_learners: int = 1,
    engine: Literal["ray", "inline"] | graph.Engine = "ray",
    address: str | None = None,
    replay_after_failure: program.AfterFailure = "restore",
    progress: progress_display.ShownProgress = "auto",
) -> one_process.ExperimentResult:
    """Trains an agent with one or several learners and several actors, each in its own process.

    The config is the same as for `run_experiment`. Replay runs on Reverb in its own process, and evaluations
    run in parallel with training. This process starts the others, restarts those that die, and reports the
    run's progress. Runs are not reproducible, even with the same seed: the order of writing and learning
    depends on the machines.

    The first SIGINT or SIGTERM saves a checkpoint and ends all processes; the same call resumes from it.
    Before the processes are started, and while they are being ended, a signal raises a KeyboardInterrupt. The
    call also resumes a run of one process, or of another number of actors: the learning state, and replay if
    its tables are the same.

    Args:
        config: The experiment's config. Its agent's `num_environments` applies to each actor.
        *callbacks: Functions that are called twice a second, from this thread, with the run's progress; as
            for `run_experiment`.
        num_actors: The number of actors.
        num_learners: The number of learners. Each takes an equal share of every batch, and all make the same
            steps, along the mean of their gradients. On GPUs each needs its own.
        engine: `ray` for processes on Ray, `inline` for threads of this process, to debug, or another engine.
        address: The address of a Ray cluster, `auto` or `host:port`, or None for this machine alone.
        replay_after_failure: The contents of replay after its process was killed: `restore` for the items of
            the newest checkpoint, or `empty` for none.
        progress: The display of the run's progress, as for `run_experiment`.

    Raises:
        ValueError: The agent cannot handle the environment or supports only one actor or learner, another run
            is using the directory, or something that such a run needs is missing; the message says what.
        ProgramFailed: A process that the run needs has failed repeatedly, the head of the cluster or Ray on
            this machine is lost, or a checkpoint could not be written. The message names the newest
            checkpoint and the steps that it lacks.
        KeyboardInterrupt: A signal came before the run has begun, or a second one before it was saved; the
            message names the newest checkpoint.
    """
    directory = pathlib.Path(config.directory)
    own_seeds = seeds.Seeds(config.seed)
    with _interruptible(directory), contextlib.ExitStack() as resources:
        _check(config, engine, num_actors, num_learners, replay_after_failure)
        the_engine = _find_engine(engine, address)
        environment = parts.make_environment(config, lambda index: own_seeds.number("environment", index))
        displays = resources.enter_context(progress_display.shown(progress, config))
        told = run_progress.Callbacks(stopping.StopEarly(config), *callbacks, *displays)
        with contextlib.closing(environment):
            if not scene.of(environment).has_timesteps:
                raise ValueError(
                    "A distributed run cannot play a batched environment, whose replay is in memory, got "
                    f"{type(environment).__name__}. Train in one process (`run_experiment`)."
                )
            beginning = run_beginning.begin(config, environment, resources, num_actors)
        session = f"{socket.gethostname()}-{os.getpid()}-{time.time_ns()}"
        resources.callback(_remove_left_overs, directory)
        _remove_left_overs(directory)
        resources.callback(the_engine.close)
        host = the_engine.connect(num_actors + num_learners)
        if beginning.checkpoint is not None:
            _logger.info("resuming from %s", beginning.checkpoint)
            checkpointing.continue_from(directory / "checkpoints", beginning.checkpoint)
        # On this machine alone the actors need cores too.
        num_cores = threads.num_cores() - (num_actors if host == "localhost" else 0)
        the_program = program.make_program(
            config,
            beginning.spec,
            num_actors=num_actors,
            num_learners=num_learners,
            port=ports.free_port(),
            host=host,
            session=session,
            after_failure=replay_after_failure,
            learner_threads=threads.recommended(max(1, num_cores // num_learners)),
            beginning=beginning,
        )
        _logger.info("the program:\n%s", the_program)
        beginning.note()
        with signals.stop_request_on_signals(lambda: _newest(directory)) as stop:
            launched = the_engine.launch(the_program)
            resources.callback(launched.close)
            run = _Run(config, the_program, launched, told, stop)
            run.play()
        return run.result()


class _Run:
    """A run whose processes this process supervises."""

    def __init__(
        self,
        config: experiment_config.ExperimentConfig,
        the_program: graph.Program,
        launched: graph.Launched,
        told: run_progress.Callbacks,
        stop: signals.StopRequest,
    ) -> None:
        self._config = config
        self._program = the_program
        self._launched = launched
        self._told = told
        self._stop = stop
        self._supervisor = supervisor.Supervisor(launched, the_program)
        self._supervisor.on_restart = self._note_restart
        self._supervisor.has_worked = self._has_worked
        self._evaluations = evaluation.Evaluations()
        self._overview: dict[str, Any] = {
            "counts": {},
            "facts": {},
            "status": {},
            "row": {},
            "worked": {},
            "episode_return": None,
        }
        self._overview_at = 0.0
        self._status = status.StatusLine(num_actors=len(the_program.of_kind("actor")))
        self._replay_epoch = 0
        self._to_note: dict[str, Any] = {}  # facts that are not sent to the counter yet
        self._unwritten: tuple[float, graph.CannotWrite] | None = None  # since when the disk is full, and why
        self._silent = ""  # what was not waited for at the end
        self._began_at = int(the_program["counter"].arguments["counts"].get("actor_steps", 0))
        # The steps of the run when each node was started.
        self._steps_at_start = {node.name: self._began_at for node in the_program.nodes}
        tables = config.builder.make_replay_tables(the_program["learner"].arguments["spec"])
        self._replay_memory = backends.describe_size(tables, "reverb")

    def play(self) -> None:
        """Plays until all steps are made or the run should stop, then saves and ends all nodes.

        Raises:
            ProgramFailed: The run has failed, or its last step is not in any checkpoint.
        """
        actors = self._names("actor")
        try:
            self._supervisor.start("counter")
            self._start_replay()
            for name in (*self._names("learner"), *actors, "evaluator"):
                if not self._stop:
                    self._supervisor.start(name)
            while (
                not (self._stop or self._told.stopped_by) and self._env_steps() < self._config.num_env_steps
            ):
                self._supervisor.watch(_WATCH_SECONDS)
                self._look("train")
            self._end(actors)
        except Exception as error:
            _logger.info("the run ends: %r", error)
            self._told = run_progress.Callbacks()
            for end in (lambda: self._stop_playing(actors), self._save, self._stop_rest):
                try:
                    end()
                except Exception as another:  # the remaining steps may still succeed
                    _logger.warning("%s", another)
            if isinstance(error, supervisor.ProgramFailed):
                raise supervisor.ProgramFailed(f"{_sentence(error)} {self._saved()}") from error
            _logger.warning("%s", self._saved())
            raise
        if self._num_lost() or "learner" in self._supervisor.end_errors:
            reason = self._supervisor.end_errors.get("learner", self._silent or "saving took too long")
            raise supervisor.ProgramFailed(
                f"The end of the run could not be saved: {_sentence(reason)} {self._saved()}"
            )

    def result(self) -> one_process.ExperimentResult:
        """Returns the result of the run."""
        return one_process.ExperimentResult.of(
            self._config,
            self._overview["counts"],
            self._evaluations,
            has_evaluated=not self._stop and self._supervisor.has_returned("evaluator"),
            interrupted_by=self._stop.signal_name,
            stopped_by=self._told.stopped_by,
            given_up=tuple(f"{name} {why}" for name, why in self._supervisor.given_up.items()),
        )

    def _end(self, actors: list[str]) -> None:
        """Ends the nodes in an order that loses nothing."""
        watched = self._supervisor
        if self._stop:
            watched.stop([*actors, "evaluator"], _ACTORS_SECONDS)
            self._look("save", at_once=True)
            if not (self._overview["worked"] or self._num_lost()):
                return  # no node has done anything yet: they are not waited for while they start
            self._close_counts()
        else:
            watched.stop(actors, _ACTORS_SECONDS)
            self._close_counts()
            self._look("evaluate", at_once=True)
            self._wait_for_learner()
            while watched.is_expected("evaluator") and not self._stop:
                # Repeated, since a restarted evaluator has not received the call.
                with contextlib.suppress(graph.NodeSilence):
                    self._launched.handle("evaluator").call("finish", timeout_seconds=_ANSWER_SECONDS)
                watched.watch(_WATCH_SECONDS)
                self._look("evaluate")
            watched.stop(["evaluator"], _ACTORS_SECONDS)
        self._save()
        self._stop_rest()

    def _stop_playing(self, actors: list[str]) -> None:
        self._supervisor.stop([*actors, "evaluator"], _ACTORS_SECONDS)
        self._close_counts()

    def _stop_rest(self) -> None:
        self._supervisor.stop(["counter", "replay"], _LAST_SECONDS)

    def _close_counts(self) -> None:
        """Stops the counting of steps: an actor that does not end in time may still make one.

        Raises:
            ProgramFailed: The disk is full.
        """
        self._to_note[counter_node.OVER] = True
        deadline = time.monotonic() + _COUNTER_SECONDS
        while self._to_note and self._supervisor.is_expected("counter") and time.monotonic() < deadline:
            self._look("save", at_once=True)
            if self._unwritten is not None and time.monotonic() - self._unwritten[0] > _WRITE_SECONDS:
                raise supervisor.ProgramFailed(_sentence(self._unwritten[1]))
            if not self._to_note or self._is_silent("counter"):
                return
            self._supervisor.watch(_WATCH_SECONDS)

    def _is_silent(self, name: str) -> bool:
        """Returns whether to wait no longer for a node at the end of the run, and notes it."""
        if self._launched.silence(name) <= _SILENT_SECONDS:
            return False
        self._silent = f"{name} has not given a sign of life for {_SILENT_SECONDS:.0f} s"
        _logger.warning("%s; no longer waiting for it", self._silent)
        return True

    def _save(self) -> None:
        """Lets the learner save and end; waits as long as it keeps writing, if it gives a sign of life."""
        watched = self._supervisor
        self._wait_until_learner_is_back()
        self._look("save", at_once=True)
        learners = self._names("learner")
        watched.ask_to_end(learners)
        written, began = self._num_bytes_written(), time.monotonic()
        wrote_at = said_at = began
        while left := watched.wait_for_end(learners, _WATCH_SECONDS):
            self._look("save")
            if any(map(self._is_silent, left)):
                break
            now, before, written = time.monotonic(), written, self._num_bytes_written()
            if written != before:
                wrote_at = now
            if now - wrote_at > _SAVE_SECONDS:
                _logger.warning(
                    "the learner has written nothing for %.0f s; no longer waiting for it", now - wrote_at
                )
                break
            if now - said_at >= _SAY_SECONDS:
                said_at = now
                _logger.warning(
                    "saving for %.0f s, %.1f MB so far; Ctrl-C ends it unfinished", now - began, written / 1e6
                )
        self._look("save", at_once=True)

    def _wait_until_learner_is_back(self) -> None:
        """Waits for a learner that is being restarted, if there is something to save."""
        deadline = time.monotonic() + _BUILD_SECONDS
        while self._num_lost() and self._supervisor.is_expected("learner") and time.monotonic() < deadline:
            try:
                self._launched.handle("learner").call("saved_at", timeout_seconds=_ANSWER_SECONDS)
                return
            except graph.NodeSilence:
                self._supervisor.watch(_WATCH_SECONDS)
            if self._launched.silence("learner") > _SILENT_SECONDS:
                return

    def _num_bytes_written(self) -> int:
        """Returns the size in bytes of the checkpoint that is being written."""
        directory = pathlib.Path(self._config.directory, "checkpoints")
        num_bytes = 0
        for pattern in (".unfinished-*", ".replay"):
            for top in directory.glob(pattern):
                for folder, _, files in os.walk(top):  # which passes over a folder that has just been moved
                    for file in files:
                        with contextlib.suppress(OSError):  # and so may a file be
                            num_bytes += os.path.getsize(os.path.join(folder, file))
        return num_bytes

    def _num_lost(self) -> int:
        """Returns the number of environment steps that the newest checkpoint lacks, own or begun with."""
        newest = checkpointing.latest(pathlib.Path(self._config.directory, "checkpoints"))
        saved = max(self._began_at, checkpointing.env_steps(newest) if newest is not None else 0)
        return max(0, self._env_steps() - saved)

    def _saved(self) -> str:
        """Returns a sentence about the steps of the run that are saved."""
        made, lost = self._env_steps(), self._num_lost()
        if not made:
            return "The run has made no environment steps, so that there is nothing to save."
        newest = _newest(pathlib.Path(self._config.directory))
        kept = "has all of them" if not lost else f"lacks {lost:,} of them"
        return f"The run has made {made:,} environment steps; the newest checkpoint ({newest}) {kept}."

    def _wait_for_learner(self) -> None:
        """Lets the learner make its last step."""
        handle = self._launched.handle("learner")
        while not self._stop:
            with contextlib.suppress(graph.NodeSilence):
                for name in self._names("learner"):
                    self._launched.handle(name).call("finish", timeout_seconds=_ANSWER_SECONDS)
                if handle.call("is_idle", timeout_seconds=_ANSWER_SECONDS):
                    return
            self._supervisor.watch(_WATCH_SECONDS)

    def _start_replay(self) -> None:
        """Starts replay and waits until it is restored, since the other nodes use its tables.

        Raises:
            ProgramFailed: It has not started within ten minutes.
        """
        self._supervisor.start("replay")
        deadline = time.monotonic() + _BUILD_SECONDS
        while not self._stop:
            try:
                self._launched.handle("replay").call("port", timeout_seconds=_ANSWER_SECONDS)
                return
            except graph.NodeSilence as error:
                if time.monotonic() > deadline:
                    raise supervisor.ProgramFailed(
                        f"Node replay has not started within {_BUILD_SECONDS:.0f} s: {error}"
                    ) from error
            self._supervisor.watch(_WATCH_SECONDS)

    def _names(self, kind: str) -> list[str]:
        """Returns the names of the nodes of a kind."""
        return [node.name for node in self._program.of_kind(kind)]

    def _env_steps(self) -> int:
        return int(self._overview["counts"].get("actor_steps", 0))

    def _look(self, phase: str, at_once: bool = False) -> None:
        """Fetches the run's progress from the counter and reports it."""
        now = time.monotonic()
        if now - self._overview_at < _OVERVIEW_SECONDS and not at_once:
            return
        self._overview_at = now
        handle = self._launched.handle("counter")
        try:
            for name, value in list(self._to_note.items()):
                handle.call("put", name, value, timeout_seconds=_ANSWER_SECONDS)
                del self._to_note[name]
                self._unwritten = None
            self._hear()
        except graph.NodeSilence as error:
            if isinstance(error, graph.CannotWrite):
                self._unwritten = self._unwritten or (time.monotonic(), error)
            _logger.debug("%s", error)
            return
        if self._supervisor.given_up != self._overview["facts"].get(counter_node.GIVEN_UP, {}):
            self._to_note[counter_node.GIVEN_UP] = dict(self._supervisor.given_up)
        line = self._status.update(self._overview, self._supervisor.restarts, self._supervisor.given_up)
        if line:
            _logger.info("%s", line)
        self._told(self._progress(phase))

    def _hear(self) -> None:
        """Fetches the run's progress from the counter.

        Raises:
            NodeSilence: The counter did not answer.
        """
        handle = self._launched.handle("counter")
        overview = handle.call("overview", timeout_seconds=_ANSWER_SECONDS)
        status_of = {**self._launched.about(), **overview["status"]}  # a node's own report has priority
        self._overview = {**overview, "status": status_of}
        known = evaluation.Evaluations.of(overview["facts"].get("evaluations") or {})
        before = self._evaluations.latest
        if before is not None and known.latest is not None and known.latest[0] == before[0]:
            known.latest = before  # the same one stays the same object
        self._evaluations = known

    def _progress(self, phase: str) -> run_progress.Progress:
        counts, latest = self._overview["counts"], self._evaluations.latest
        return run_progress.Progress(
            env_steps=self._env_steps(),
            num_env_steps=self._config.num_env_steps,
            learner_steps=int(counts.get("learner_steps", 0)),
            last_episode_return=self._overview["episode_return"],
            last_evaluation=latest and latest[1],
            phase=phase,
            num_episodes=int(counts.get("actor_episodes", 0)),
            metrics={**self._overview["row"], **self._status.metrics},
            replay_memory=self._replay_memory,
            metric=self._config.metric,
            nodes=self._status.nodes,
        )

    def _note_restart(self, name: str) -> None:
        self._steps_at_start[name] = self._env_steps()
        if name == "replay":
            self._replay_epoch += 1
            self._to_note["replay_epoch"] = self._replay_epoch

    def _has_worked(self, name: str, incarnation: int) -> bool:
        """Returns whether an incarnation of a node has done any work; for replay and counter, whether the run
        has made steps since it started."""
        with contextlib.suppress(graph.NodeSilence):
            self._hear()
        if self._program[name].kind in ("replay", "counter"):
            return self._env_steps() > self._steps_at_start[name]
        return bool(self._overview["worked"].get(name, -1) >= incarnation)


@contextlib.contextmanager
def _interruptible(directory: pathlib.Path) -> Iterator[None]:
    """Makes the signals that ask a run to stop end the block too, with a message that says what is saved.

    Within it, a run handles them itself.

    Raises:
        KeyboardInterrupt: A signal has ended the block.
    """
    try:
        with interrupts.like_ctrl_c():
            yield
    except KeyboardInterrupt as error:
        if error.args:
            raise
        raise KeyboardInterrupt(f"stopped; last checkpoint: {_newest(directory)}") from None


def _check(
    config: experiment_config.ExperimentConfig,
    engine: object,
    num_actors: int,
    num_learners: int,
    after_failure: program.AfterFailure,
) -> None:
    """Raises ValueError if such a run is not possible."""
    if num_actors < 1:
        raise ValueError(f"`num_actors` must be >= 1, got {num_actors}.")
    if after_failure not in ("restore", "empty"):
        raise ValueError(f"`replay_after_failure` must be restore or empty, got {after_failure!r}.")
    if not config.num_env_steps:
        raise ValueError(
            "`num_env_steps` must be >= 1 for a distributed run, got 0. A run that learns from a dataset "
            "alone has nothing to distribute: use `run_experiment`."
        )
    for name in ("record", "demonstrations", "from_run"):
        if getattr(config, name) is not None:
            raise ValueError(
                f"`{name}` must be None for a distributed run, got {getattr(config, name)!r}. Train in one "
                "process (`run_experiment`), with `num_environments` for several environments."
            )
    if config.replay == "memory":
        raise ValueError(
            "`replay` must be reverb or auto for a distributed run, got 'memory', which other processes "
            "cannot reach."
        )
    if not backends.is_reverb_installed():
        raise ValueError(
            "A distributed run keeps its replay on Reverb, which is not installed: it has wheels for Python "
            f"3.11 on x86-64 Linux, and this is Python {sys.version_info.major}.{sys.version_info.minor} on "
            f"{sys.platform}. Train in one process (`run_experiment`), or use such an environment."
        )
    if type(config.builder).for_actors is builders.AgentBuilder.for_actors:
        config.builder.for_actors(num_actors)  # raises
    if num_learners != 1:
        config.builder.for_actors(num_actors).for_learners(num_learners)  # raises if it is not possible
        num_gpus = 1 if engine == "inline" else torch.cuda.device_count()
        if config.torch_device.type == "cuda" and num_gpus < num_learners:
            raise ValueError(
                f"`num_learners` must be at most {num_gpus}, the number of GPUs that learners of this engine "
                f"and machine can have, since each needs its own, got {num_learners}. Lower it, or set "
                "`device` to cpu."
            )


def _find_engine(engine: Literal["ray", "inline"] | graph.Engine, address: str | None) -> graph.Engine:
    if isinstance(engine, str):
        if engine == "ray":
            from minerva_acme.distributed import ray_engine

            return ray_engine.RayEngine(address=address)
        if engine != "inline":
            raise ValueError(f"`engine` must be ray, inline or an engine, got {engine!r}.")
        engine = inline.InlineEngine()
    if address is not None:
        raise ValueError(f"`address` must be None for this engine, got {address!r}: it is for Ray clusters.")
    return engine


def _newest(directory: pathlib.Path) -> str:
    newest = checkpointing.latest(directory / "checkpoints")
    return "none yet" if newest is None else f"{newest}"


def _remove_left_overs(directory: pathlib.Path) -> None:
    left = (*directory.glob(".counts-*"), *directory.glob(f"{program.MEETING}*"))
    for path in (*left, directory / program.LEARNER_LOCK):
        path.unlink(missing_ok=True)
    shutil.rmtree(directory / "checkpoints" / ".replay", ignore_errors=True)


def _sentence(reason: object) -> str:
    text = str(reason)
    return text if text.endswith((".", "!", "?")) else f"{text}."
