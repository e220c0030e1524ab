"""The node that holds replay: a Reverb server, in a process without torch and TensorFlow."""

import logging
import shutil
from collections.abc import Sequence

from minerva_acme.distributed import graph
from minerva_acme.replay import backends
from minerva_acme.replay import base as replay
from minerva_acme.replay.reverb import store
from minerva_acme.runs import checkpointing

_logger = logging.getLogger(__name__)


class ReplayNode(graph.Part):
    """Holds the tables, at one port for as long as the run lasts, so that clients find it again.

    When its process was killed it comes back with what the newest checkpoint holds, or empty.
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
        restore_from: str | None,
        after_failure: str,
    ) -> None:
        """Starts the server.

        Args:
            context: of the node.
            tables: to hold.
            port: where to listen.
            public: whether other machines can connect.
            scratch: the folder that it writes checkpoints into.
            directory: The run's folder.
            restore_from: the files to begin with, or None.
            after_failure: `restore` or `empty`: what it begins with when it is started again.

        Raises:
            ReplayError: it cannot begin with that.
        """
        self._context = context
        self._port = port
        if context.incarnation:
            # The one that the learner would resume from.
            newest = checkpointing.find_to_resume(directory) if after_failure == "restore" else None
            files = checkpointing.replay_folder(newest) if newest is not None else None
            restore_from = None if files is None else str(files.resolve())
            _logger.warning("replay comes back %s", f"with {restore_from}" if restore_from else "empty")
        shutil.rmtree(scratch, ignore_errors=True)
        self._server = backends.restore_or_begin_empty(
            lambda files: store.ReverbServer(
                tables, port, checkpoint_directory=scratch, restore_from=files, public=public
            ),
            restore_from,
        )
        self._scratch = scratch

    def run(self) -> None:
        self._context.stop.wait()
        self._server.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def port(self) -> int:
        """Where it listens."""
        return self._port
