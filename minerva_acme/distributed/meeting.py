"""Lets several learners find each other, at the start and after one of them was lost."""

import os
import pathlib
import threading
import time
from typing import NamedTuple

from minerva_acme.distributed import graph, program

_LOOK_SECONDS = 0.2  # between two calls of a learner that waits for the first one


class Meeting(NamedTuple):
    """What several learners begin with."""

    file: str  # through which they connect
    checkpoint: str | None
    incarnation: int  # of learner 0, which is part of the versions of its weights


class Host:
    """The side of learner 0, which the others join. Each of its starts is another meeting."""

    def __init__(
        self, context: graph.Context, *, directory: str, num_learners: int, checkpoint: str | None
    ) -> None:
        """Prepares the meeting, without waiting.

        Args:
            context: The context of learner 0.
            directory: The run's folder, on the machine of all learners.
            num_learners: The number of learners.
            checkpoint: The checkpoint that all begin with, or None.
        """
        name = f"{program.MEETING}{os.getpid()}-{time.time_ns()}"
        self._meeting = Meeting(str(pathlib.Path(directory, name)), checkpoint, context.incarnation)
        self._stop = context.stop
        self._num_others = num_learners - 1
        self._joined: dict[int, int] = {}  # the incarnations of the others, by number
        self._has_lost = False
        self._lock = threading.Lock()

    def join(self, rank: int, incarnation: int) -> Meeting:
        """Returns the meeting, once all are there.

        Raises:
            NodeSilence: Not all are there yet, or learner 0 must begin again first.
        """
        with self._lock:
            if self._joined.setdefault(rank, incarnation) != incarnation:
                self._has_lost = True
            if self._has_lost or self._stop.is_set():
                raise graph.NodeSilence("The learner begins again, or ends.")
            if len(self._joined) < self._num_others:
                raise graph.NodeSilence("The learner waits for the others.")
            return self._meeting

    def file(self) -> str:
        """Returns the file of the meeting."""
        return self._meeting.file

    def wait(self) -> Meeting | None:
        """Waits until all have joined; returns None if learner 0 is asked to end meanwhile.

        Raises:
            NodeLeft: One has joined and was lost.
        """
        while len(self._joined) < self._num_others:
            if self._stop.wait(_LOOK_SECONDS):
                return None
        if self._has_lost:
            raise graph.NodeLeft("Another learner was lost before all were there.")
        return self._meeting

    def close(self) -> None:
        """Removes the file."""
        pathlib.Path(self._meeting.file).unlink(missing_ok=True)


def join(context: graph.Context) -> Meeting | None:
    """Joins learner 0, as the learner of a context; returns None if that is asked to end meanwhile."""
    while True:
        try:
            meeting: Meeting = context.handle("learner").call("join", context.index, context.incarnation)
            return meeting
        except graph.NodeSilence:
            if context.stop.wait(_LOOK_SECONDS):
                return None


def stay(context: graph.Context, file: str) -> None:
    """Waits until a learner that has nothing to learn any more is asked to end.

    Raises:
        NodeLeft: Learner 0 has begun again, and needs the others.
    """
    while not context.stop.wait(_LOOK_SECONDS):
        try:
            newest = context.handle("learner").call("meeting_file")
        except graph.NodeSilence:
            continue
        if newest != file:
            raise graph.NodeLeft("Learner 0 begins again.")
