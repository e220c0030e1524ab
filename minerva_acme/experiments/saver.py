"""What the checkpoints of a run hold, when they are written, and how a run resumes from one."""

import logging
import pathlib
from typing import Any

import torch
import tree

from minerva_acme import core
from minerva_acme.experiments import checkpointing, evaluator, pacing, parts
from minerva_acme.replay import waiting

_logger = logging.getLogger(__name__)


class Saver:
    """Saves and restores a run."""

    def __init__(self, run: parts.Parts, evaluations: evaluator.Evaluator, pacer: pacing.Pacer) -> None:
        """Saves nothing yet. Args: run, evaluations, pacer: what to save."""
        self.saved_at = 0
        """The environment step of the newest checkpoint."""
        self._run = run
        self._evaluations = evaluations
        self._pacer = pacer
        # By their names in a checkpoint.
        self._saveables: dict[str, Any] = {
            "counter": run.counter,
            "learner": run.learner,
            "policy": run.policy,
            "environment": run.environment,
        }

    def newest(self) -> str:
        """Says what the run can be resumed from."""
        return f"step {self.saved_at:,} in {self._run.config.directory}" if self.saved_at else "none yet"

    def is_due(self, *, between_episodes: bool) -> bool:
        """Whether to save while training.

        Saved while no episode is open, a run resumes as if it had not been interrupted. But a checkpoint
        waits for that no longer than another whole period.
        """
        unsaved = self._run.env_steps - self.saved_at
        return 0 < self._run.config.checkpoint_period <= (unsaved if between_episodes else unsaved // 2)

    @waiting.alone()  # not ended by a request to stop, which is a request to save
    def save(self, *, stopping: bool) -> None:
        """Writes a checkpoint.

        Args:
            stopping: whether the run ends here. It begins new episodes when it resumes, so the open ones
                end where they are; their transitions are kept.

        Raises:
            OSError: it could not be written.
        """
        run = self._run
        for adder in run.adders:
            if stopping:
                adder.reset()
            adder.flush()
        # A resumed run starts with the newest weights, so this one continues with them.
        run.actor.update(wait=True)
        variables = run.learner.get_variables(run.config.builder.policy_variables)
        state = {
            **{name: _save(part) for name, part in self._saveables.items()},
            "adders": [_save(adder) for adder in run.adders],
            **self._evaluations.save(),
            **self._pacer.save(),
            # For `load_policy`, which has no learner.
            "policy_variables": [tree.map_structure(torch.from_numpy, value) for value in variables],
        }
        replay_files = run.client.checkpoint() if run.config.checkpoint_replay else None
        run.checkpointer.save(run.env_steps, state, replay_files)
        self.saved_at = run.env_steps

    def restore(self, checkpoint: pathlib.Path) -> None:
        """Restores the run from a checkpoint, whose replay, if it has one, is already restored.

        Raises:
            ValueError: the checkpoint is of another agent, config or environment.
        """
        run = self._run
        state = checkpointing.load_state(checkpoint, str(run.config.torch_device))
        if len(state["adders"]) != len(run.adders):
            raise ValueError(
                f"`num_environments` must be {len(state['adders'])} as in {checkpoint}, got "
                f"{len(run.adders)}. Change it back, or choose another `directory`."
            )
        with checkpointing.explain_misfit(checkpoint):
            for name, part in self._saveables.items():
                _restore(part, state[name])
            for adder, adder_state in zip(run.adders, state["adders"], strict=True):
                _restore(adder, adder_state)
                adder.reset()  # the environment begins a new episode
            self._evaluations.restore(state)
            if checkpointing.replay_folder(checkpoint) is not None:
                self._pacer.restore(state)
        run.actor.update(wait=True)
        self.saved_at = run.env_steps
        _logger.info("resumed %s at %d environment steps", checkpoint, self.saved_at)


def _save(part: Any) -> core.State:
    # dm_env has no `save`; the environments of `environments.make` do.
    return part.save() if hasattr(part, "save") else None


def _restore(part: Any, state: core.State) -> None:
    if state is not None:
        part.restore(state)
