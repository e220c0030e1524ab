"""What the checkpoints of a run hold, when they are written, and how a run resumes from one."""

import logging
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import tree

from minerva_acme import core
from minerva_acme.experiments import checkpointing, evaluator, pacing, playing
from minerva_acme.replay import base as replay

_logger = logging.getLogger(__name__)


class Saver:
    """Saves and restores the parts of a run.

    A checkpoint holds the state of each of `parts`, the pacer's counts, the evaluations and the replay.
    """

    def __init__(
        self,
        checkpointer: checkpointing.Checkpointer,
        *,
        parts: Mapping[str, Any],
        player: playing.Player,
        pacer: pacing.Pacer,
        run_evaluator: evaluator.Evaluator,
        client: replay.ReplayClient | None,
        period: int,
    ) -> None:
        """Saves nothing yet.

        Args:
            checkpointer: writes the files.
            parts: with `save` and `restore`, by the names that they have in a checkpoint; parts without
                (as dm_env's own environments) are left out.
            player: has an adder for each state in `adders` of the checkpoint.
            pacer: of the run.
            run_evaluator: of the run.
            client: of the replay; None: it is not saved.
            period: environment steps between checkpoints; 0: none is due while training.
        """
        self._checkpointer = checkpointer
        self._parts = parts
        self._player = player
        self._pacer = pacer
        self._evaluator = run_evaluator
        self._client = client
        self._period = period
        self.saved_at = 0
        """The environment step of the newest checkpoint."""

    def is_due(self, env_steps: int, *, between_episodes: bool) -> bool:
        """Whether to save now.

        Saved while no episode is open, a run resumes as if it had not been interrupted. But a
        checkpoint waits for that no longer than another whole period.
        """
        unsaved = env_steps - self.saved_at
        return 0 < self._period <= (unsaved if between_episodes else unsaved // 2)

    def save(self, env_steps: int, *, stopping: bool) -> None:
        """Writes a checkpoint.

        Args:
            env_steps: made so far.
            stopping: whether the run ends with it. The resumed run begins new episodes, so the open
                ones end here; their transitions are kept.

        Raises:
            OSError: it could not be written.
        """
        if stopping:
            self._player.end_episodes()
        self._player.flush()
        # A resumed run starts with the newest weights, so this one continues with them.
        self._player.update_weights(wait=True)
        state = {name: _save(part) for name, part in self._parts.items()}
        state |= self._pacer.save() | self._evaluator.save()
        replay_files = None if self._client is None else self._client.checkpoint()
        self._checkpointer.save(env_steps, state, replay_files)
        self.saved_at = env_steps

    def restore(self, checkpoint: pathlib.Path, device: torch.device) -> None:
        """Restores the run from a checkpoint, whose replay, if it has one, is already restored.

        Raises:
            ValueError: the checkpoint is of another agent, config, environment or number of them.
        """
        state = checkpointing.load_state(checkpoint, str(device))
        if len(state["adders"]) != self._player.num_environments:
            raise ValueError(
                f"`num_environments` must be {len(state['adders'])} as in {checkpoint}, got "
                f"{self._player.num_environments}. Change it back, or choose another `directory`."
            )
        with checkpointing.explain_misfit(checkpoint):
            for name, part in self._parts.items():
                _restore(part, state[name])
            self._evaluator.restore(state)
            # Without its replay the run fills a new one first, and its pace starts from 0.
            if checkpointing.replay_folder(checkpoint) is not None:
                self._pacer.restore(state)
        self._player.update_weights(wait=True)
        self.saved_at = int(checkpoint.name)
        _logger.info("resumed %s at %d environment steps", checkpoint, self.saved_at)


class PolicyVariables(core.Saveable):
    """The learner's variables that the policy takes, so that a checkpoint can be played without a learner."""

    def __init__(self, learner: core.Learner, names: Sequence[str]) -> None:
        self._learner = learner
        self._names = names

    def save(self) -> core.State:
        values = self._learner.get_variables(self._names)
        return [tree.map_structure(torch.from_numpy, value) for value in values]

    def restore(self, state: core.State) -> None:
        """Does nothing: the learner restores them."""


def _save(part: Any) -> core.State:
    # dm_env has no `save`; the environments of `environments.make` do.
    return part.save() if hasattr(part, "save") else None


def _restore(part: Any, state: core.State) -> None:
    if state is not None:
        part.restore(state)
