"""Kills the processes of a distributed run, and finds what is left of them."""

import contextlib
import os
import pathlib
import signal
import time
from collections.abc import Callable
from typing import Any

from minerva_acme import experiments
from minerva_acme.runs import checkpointing

MARK = "MINERVA_TEST_RUN"
"""A variable of the environment that marks all processes of a run."""

_ANSWER_SECONDS = 10.0


def processes(mark: str) -> dict[int, str]:
    """The processes with a mark, but this one, and what they run."""
    found = {}
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdecimal() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                    found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
    return found


def wait_until(condition: Callable[[], Any], seconds: float) -> Any:
    """Waits for a condition and returns its value; fails if it does not come true."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.1)
    return value


def ask(name: str) -> dict[str, Any]:
    """Asks a node of the one program on Ray what it is made of; nothing where it is being started again."""
    import ray

    (namespace,) = {actor["namespace"] for actor in ray.util.list_named_actors(all_namespaces=True)}
    try:
        actor = ray.get_actor(name, namespace=namespace)
        answer: dict[str, Any] = ray.get(actor.loaded.remote(), timeout=_ANSWER_SECONDS)
    except (ray.exceptions.RayError, ValueError):
        return {}
    return answer


class Killer:
    """A callback that kills one node after the other, each once the run goes on without the last."""

    def __init__(
        self,
        names: list[str],
        directory: pathlib.Path,
        how: int = signal.SIGKILL,
        restarts_of_each: int = 1,
    ) -> None:
        """Args: restarts_of_each: The nodes that a death restarts, all learners if one of several dies."""
        self.left = names
        self._restarts_of_each = restarts_of_each
        self._learned_since: float | None = None  # the fewest learner steps since those restarts
        self._how = how
        self.killed: list[str] = []
        self.progress: list[experiments.Progress] = []
        self.loaded: dict[str, dict[str, Any]] = {}
        self._directory = directory
        self._goal = 0, 0  # environment and learner steps from which on the run counts as going on

    def __call__(self, progress: experiments.Progress) -> None:
        self.progress.append(progress)
        if progress.phase != "train" or progress.last_evaluation is None:
            return
        restarted = progress.metrics.get("restarts", 0.0)
        is_over = progress.env_steps > self._goal[0] and progress.learner_steps > self._goal[1]
        if restarted < self._restarts_of_each * len(self.killed):
            self._learned_since = None
            return
        # Learners that have not met again yet would not miss the next one.
        since = progress.learner_steps if self._learned_since is None else self._learned_since
        self._learned_since = min(progress.learner_steps, since)
        if not is_over or progress.learner_steps < self._learned_since + 5:
            return
        if checkpointing.latest(self._directory / "checkpoints") is None:
            return
        if not self.loaded:
            loaded = {name: ask(name) for name in progress.nodes if name != "waits"}
            if not all(loaded.values()):
                return
            self.loaded = loaded
        if not self.left:
            raise experiments.StopRun("all were killed")
        about = ask(self.left[0])
        # The death of one that Ray is still starting again is not counted as another restart.
        if not about.get("runs"):
            return
        name = self.left.pop(0)
        os.kill(about["pid"], self._how)
        self.killed.append(name)
        self._learned_since = None
        # Learners begin again where their checkpoint stood.
        learned = 0 if name.startswith("learner") else progress.learner_steps + 10
        self._goal = progress.env_steps + 200, learned
