"""The node that holds replay: a Reverb server, in a process without torch and TensorFlow."""

import logging
import pathlib
import shutil
from collections.abc import Collection, Sequence

from minerva_acme.distributed import graph
from minerva_acme.replay import backends
from minerva_acme.replay import base as replay
from minerva_acme.replay.reverb import store
from minerva_acme.runs import checkpointing

_logger = logging.getLogger(__name__)


class ReplayNode(graph.Part):
    """Holds the tables, at the same port during the whole run, so that clients find it again.

    After its process was killed, it is restored from the newest checkpoint, or starts empty.
    """

    exports = ("port",)

    def __init__(
        self,
        context: graph.Context,
        *,
        tables: Sequence[replay.TableConfig],
        port: int,
        public: bool,
        scratch: str,
        directory: str,
        resume_from: pathlib.Path | None,
        known: Collection[tuple[str, int]],
        restore_from: str | None,
        after_failure: str,
    ) -> None:
        """Starts the server.

        Args:
            context: The node's context.
            tables: The tables to hold.
            port: The port to listen on.
            public: Whether other machines can connect.
            scratch: The folder that it writes checkpoints into.
            directory: The run's folder.
            resume_from: The checkpoint that the run began with, or None.
            known: The `marks` of the run's checkpoints at that time.
            restore_from: The files to restore, or None to start empty.
            after_failure: `restore` or `empty`: the contents after a restart.

        Raises:
            ReplayError: The files cannot be restored.
        """
        super().__init__(context)
        self._port = port
        if context.incarnation:
            # The checkpoint that the learner would resume from.
            newest = None
            if after_failure == "restore":
                newest = checkpointing.find_to_restart(directory, resume_from, known, with_replay=True)
            files = checkpointing.replay_folder(newest) if newest is not None else None
            restore_from = None if files is None else str(files.resolve())
            _logger.warning("replay restarts %s", f"with {restore_from}" if restore_from else "empty")
        shutil.rmtree(scratch, ignore_errors=True)
        self._server = backends.restore_or_begin_empty(
            lambda files: store.ReverbServer(
                tables, port, checkpoint_directory=scratch, restore_from=files, public=public
            ),
            restore_from,
        )
        self._scratch = scratch

    def run(self) -> None:
        self.context.stop.wait()
        self._server.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def port(self) -> int:
        """Returns the port that it listens on."""
        return self._port
