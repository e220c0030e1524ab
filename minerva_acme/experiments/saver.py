"""Saves the checkpoints of a run when they are due, and resumes a run from one."""

import logging
import pathlib
from collections.abc import Mapping
from typing import Any

from minerva_acme import core
from minerva_acme.experiments import pacing, parts, seeds
from minerva_acme.replay import waiting
from minerva_acme.runs import checkpointing, evaluation
from minerva_acme.runs import config as experiment_config

_logger = logging.getLogger(__name__)

_EPISODES_EACH = 10


class Saver:
    """Saves and restores a run."""

    def __init__(self, run: parts.Parts, evaluations: evaluation.Evaluations, pacer: pacing.Pacer) -> None:
        """Saves nothing yet.

        Args:
            run: The run to save.
            evaluations: The run's evaluations.
            pacer: The run's pacer.
        """
        self.saved_at = 0
        """The step of the newest checkpoint."""
        self._episodes_at = 0  # the number of episodes that had ended at that step
        self._is_light = False  # whether it has no replay
        self._has_warned = False
        self._run = run
        self._evaluations = evaluations
        self._pacer = pacer
        parts_with_data = {"recording": run.recorder, "demonstrations": run.demonstrations}
        self._with_data = {name: part for name, part in parts_with_data.items() if part is not None}

    @property
    def has_saved(self) -> bool:
        """True if there is a full checkpoint of the run's last step."""
        return self.saved_at == self._run.steps and not self._is_light

    def newest(self) -> str:
        """Returns a description of the checkpoint that the run can be resumed from."""
        return (
            f"step {self.saved_at:,} in {self._run.checkpointer.directory}" if self.saved_at else "none yet"
        )

    def is_due(self, *, between_episodes: bool) -> bool:
        """Returns whether to save during training: after a period, if possible between episodes.

        `save` ends open episodes. So a save that is due waits for up to another whole period. Several
        environments are seldom between episodes at the same time, so from then on it waits only until few of
        all episodes are cut short: until ten have ended for each environment, or each environment alone has
        made the steps of two periods.
        """
        run = self._run
        unsaved = run.steps - self.saved_at
        if not between_episodes:
            num_environments = run.config.builder.num_environments
            few_are_cut = self._num_episodes() - self._episodes_at >= _EPISODES_EACH * num_environments
            unsaved //= 2 if few_are_cut else 2 * num_environments
        return 0 < run.config.checkpoint_period <= unsaved

    def is_best(self) -> bool:
        """Returns whether the policy was evaluated at this step, with a better result than any checkpoint."""
        return self._run.checkpointer.is_best(self._evaluations.score_at(self._run.steps))

    @waiting.rules(is_alone=True)  # not ended by a request to stop, which is a request to save
    def save(self, *, after_error: bool = False) -> None:
        """Ends open episodes and writes a checkpoint.

        A resumed run begins new episodes in all environments. This run does the same, so both continue in the
        same way. The transitions of the ended episodes are kept.

        Args:
            after_error: Whether the environments may have failed; then their random states are saved only
                if they can still be read.

        Raises:
            OSError: The checkpoint could not be written.
        """
        run = self._run
        run.end_episodes()
        for adder in run.adders:
            adder.flush()
        # A resumed run starts with the newest weights, so this one continues with them too.
        run.actor.update(wait=True)
        replay_files = run.client.checkpoint() if run.config.checkpoint_replay else None
        run.checkpointer.save(
            run.steps,
            self._state(after_error),
            replay_files,
            evaluation=self._evaluations.score_at(run.steps),
        )
        self._saved()

    def save_best(self) -> None:
        """Writes a light checkpoint of the policy that was just evaluated, without affecting the run.

        It has no replay and, in the middle of an episode, not the steps that the adders hold. A run that
        resumes from it first fills a new replay.

        Raises:
            OSError: The checkpoint could not be written.
        """
        run = self._run
        score = self._evaluations.score_at(run.steps)
        run.checkpointer.save(run.steps, self._state(), evaluation=score, light=True)

    def _state(self, after_error: bool = False) -> core.State:
        run = self._run
        environment = _save(run.environment, may_fail=after_error)
        if not run.scene.holds_several:
            # As of a vector of one, which it may be resumed as, in a process of its own.
            environment = [environment]
        if run.adders and not after_error and _is_unknown(environment) and not self._has_warned:
            self._has_warned = True
            _logger.warning(
                "the random state of the environment is not saved, because it has no `save` (or `np_random` "
                "of a Gymnasium environment is neither a numpy Generator nor a RandomState): a resumed run "
                "repeats the first episodes of its seed, unlike an uninterrupted one"
            )
        return {
            "policy": core.save_if_saveable(run.policy),
            "environments": environment,
            "adders": [core.save_if_saveable(adder) for adder in run.adders],
            **learning_state(
                run.config,
                run.learner,
                run.dataset,
                run.counter.save(),
                run.generators,
                self._evaluations.save(),
            ),
            **self._pacer.save(),
            **{name: part.save() for name, part in self._with_data.items()},
        }

    def restore(self, checkpoint: pathlib.Path) -> None:
        """Restores the run from a checkpoint. Its replay, if it has one, must already be restored.

        From a checkpoint that several processes have made, only the learning state is restored: it does not
        contain their environments, adders and policies.

        Raises:
            ValueError: The checkpoint belongs to another agent, config or environment.
            OSError: The note that the run continues from this checkpoint cannot be written.
        """
        run = self._run
        state = checkpointing.load_state(checkpoint, str(run.config.torch_device))
        is_own = not checkpointing.player(checkpoint).num_actors
        with checkpointing.explain_misfit(checkpoint):
            if is_own and len(state["adders"]) != len(run.adders):
                raise ValueError(
                    f"`num_environments` must be {len(state['adders'])} as in {checkpoint}, got "
                    f"{len(run.adders)} (0 for a run without environment steps). Change it back, or choose "
                    "another `directory`."
                )
            run.counter.restore(state["counter"])
            core.restore_if_saved(run.learner, state["learner"])
            restore_own(run.config, run.dataset, state)
            if is_own:
                self._restore_playing(checkpoint, state)
            self._evaluations.restore(state)
            if run.recorder is not None:
                run.recorder.restore(state.get("recording"))
            if run.demonstrations is not None:
                core.restore_if_saved(run.demonstrations, state.get("demonstrations"))
            if run.has_old_replay:
                self._pacer.restore(state)
        run.actor.update(wait=True)
        with checkpointing.explain_misfit(checkpoint):
            # Restored last: making and restoring the parts may draw from them.
            run.generators.restore(state["generators"])
        self._saved(is_light=checkpointing.is_light(checkpoint))
        if self._is_light:
            _logger.warning("%s holds no replay: a new one is filled before learning continues", checkpoint)
        checkpointing.continue_from(run.checkpointer.directory, checkpoint)
        _logger.info("resumed %s at %d steps", checkpoint, self.saved_at)

    def _restore_playing(self, checkpoint: pathlib.Path, state: Mapping[str, Any]) -> None:
        run = self._run
        core.restore_if_saved(run.policy, state["policy"])
        environment = state["environments"]
        if run.adders and _is_unknown(environment):
            _logger.warning(
                "%s has no random state of the environment, which could not be read or had failed: the run "
                "repeats the first episodes of its seed, unlike an uninterrupted one",
                checkpoint,
            )
        if environment is not None and not run.scene.holds_several:
            (environment,) = environment
        core.restore_if_saved(run.environment, environment)
        for adder, adder_state in zip(run.adders, state["adders"], strict=True):
            core.restore_if_saved(adder, adder_state)
            adder.reset()  # in a light checkpoint its episode is open, but the environment begins a new one

    def _saved(self, *, is_light: bool = False) -> None:
        self.saved_at, self._is_light = self._run.steps, is_light
        self._episodes_at = self._num_episodes()

    def _num_episodes(self) -> int:
        return self._run.count("actor_episodes")


def learning_state(
    config: experiment_config.ExperimentConfig,
    learner: core.Learner,
    dataset: Any,
    counts: core.State,
    generators: seeds.GlobalGenerators,
    evaluations: core.State,
) -> core.State:
    """Returns the learning state of a run, which is the same whether one process or several play it.

    Args:
        config: The experiment's config.
        learner: The run's learner.
        dataset: The dataset that it learns from, which may be `Saveable`.
        counts: The run's counts.
        generators: The global generators of the learner's process.
        evaluations: The state of the run's evaluations.
    """
    variables = learner.get_variables(config.builder.evaluation_variables)
    return {
        "counter": counts,
        "learner": core.save_if_saveable(learner),
        "dataset": core.save_if_saveable(dataset),
        "saveables": {name: part.save() for name, part in config.builder.saveables.items()},
        "generators": generators.save(),
        **evaluations,
        **checkpointing.policy_state(variables),
    }


def restore_own(config: experiment_config.ExperimentConfig, dataset: Any, state: Mapping[str, Any]) -> None:
    """Restores the dataset and the builder's `saveables`, where the learning state has them."""
    core.restore_if_saved(dataset, state.get("dataset"))
    for name, part in config.builder.saveables.items():
        core.restore_if_saved(part, state.get("saveables", {}).get(name))


def _is_unknown(environment: core.State) -> bool:
    """Returns whether the state of the environment, of one in a vector or inside a wrapper, is missing."""
    if isinstance(environment, list):
        return any(map(_is_unknown, environment))
    return environment is None or (
        isinstance(environment, dict) and _is_unknown(environment.get("environment", 0))
    )


def _save(part: Any, *, may_fail: bool = False) -> core.State:
    try:
        return core.save_if_saveable(part)
    except Exception as error:
        if not may_fail:
            raise
        _logger.warning(
            "random states of the environments are not saved; they will start from their seeds: %s", error
        )
        return None
