"""What the checkpoints of a run hold, when they are written, and how a run resumes from one."""

import logging
import pathlib
from typing import Any

import torch
import tree

from minerva_acme import core
from minerva_acme.experiments import checkpointing, evaluator, pacing, parts

_logger = logging.getLogger(__name__)

_EPISODES_EACH = 10


class Saver:
    """Saves and restores a run."""

    def __init__(self, run: parts.Parts, evaluations: evaluator.Evaluator, pacer: pacing.Pacer) -> None:
        """Saves nothing yet. Args: run, evaluations, pacer: what to save."""
        self.saved_at = 0
        """The environment step of the newest checkpoint."""
        self._episodes_at = 0  # how many had ended there
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

    def is_due(self, *, between_episodes: bool) -> bool:
        """Whether to save while training: after a period, but not amid episodes if that can be.

        For `save` ends those that are open. So it waits for another whole period, and with several
        environments, which seldom are between episodes together, until few of all episodes are cut:
        until ten have ended for each environment, or each alone has made the steps of two periods.
        """
        run = self._run
        unsaved = run.env_steps - self.saved_at
        if not between_episodes:
            num_environments = len(run.adders)
            few_are_cut = self._num_episodes() - self._episodes_at >= _EPISODES_EACH * num_environments
            unsaved //= 2 if few_are_cut else 2 * num_environments
        return 0 < run.config.checkpoint_period <= unsaved

    def save(self) -> None:
        """Ends open episodes and writes a checkpoint.

        A run that resumes has new environments and begins new episodes. So does this one: both go on
        alike. The transitions of the episodes that end are kept.

        Raises:
            OSError: it could not be written.
        """
        run = self._run
        run.end_episodes()
        for adder in run.adders:
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
        self._saved()

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
            environment = state["environment"]
            if environment is None or (isinstance(environment, list) and None in environment):
                _logger.warning(
                    "The environment has no `save`: it begins with the episodes of its seed again, so the "
                    "resumed run differs from one that was not interrupted."
                )
            for adder, adder_state in zip(run.adders, state["adders"], strict=True):
                _restore(adder, adder_state)
            self._evaluations.restore(state)
            if checkpointing.replay_folder(checkpoint) is not None:
                self._pacer.restore(state)
        run.actor.update(wait=True)
        self._saved()
        _logger.info("resumed %s at %d environment steps", checkpoint, self.saved_at)

    def _saved(self) -> None:
        self.saved_at = self._run.env_steps
        self._episodes_at = self._num_episodes()

    def _num_episodes(self) -> int:
        return self._run.count("actor_episodes")


def _save(part: Any) -> core.State:
    # dm_env has no `save`; the environments of `environments.make` do.
    return part.save() if hasattr(part, "save") else None


def _restore(part: Any, state: core.State) -> None:
    if state is not None:
        part.restore(state)
