"""One process: act, add, learn, evaluate, save."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any, Self

from minerva_acme import counting
from minerva_acme.experiments import (
    evaluator,
    interrupts,
    pacing,
    parts,
    progress,
    rescue,
    saver,
    signals,
    stopping,
)
from minerva_acme.replay import base as replay
from minerva_acme.runs import config as experiment_config
from minerva_acme.runs import evaluation


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentResult:
    """The outcome of a run."""

    directory: pathlib.Path
    env_steps: int
    learner_steps: int
    random: evaluation.Evaluation | None
    """Of uniformly random actions; None if the run was interrupted before they were evaluated, or if the
    actions have no bounds to draw within."""
    before: evaluation.Evaluation | None
    """Of the policy before training; None likewise."""
    after: evaluation.Evaluation | None
    """Of the policy at the end; None if the run was interrupted."""
    best: tuple[int, evaluation.Evaluation] | None
    """The evaluation with the highest mean while and after training, and its step."""
    interrupted_by: str | None
    """The signal that stopped the run early, or None."""
    stopped_by: str | None = None
    """Why a callback, `stop_at_return` or `stop_after_minutes` stopped the run early, or None. Other than
    after a signal, `after` was evaluated."""
    given_up: tuple[str, ...] = ()
    """The actors, and the evaluator, that a distributed run has ended without since they failed again and
    again, each with the reason. Without its evaluator a run has no `after`."""

    @classmethod
    def of(
        cls,
        config: experiment_config.ExperimentConfig,
        counts: Mapping[str, counting.Number],
        evaluations: evaluation.Evaluations,
        *,
        has_evaluated: bool,
        **ends: Any,
    ) -> Self:
        """Makes the outcome of a run.

        Args:
            config: The experiment.
            counts: The run's counts.
            evaluations: The run's evaluations.
            has_evaluated: Whether the latest of them is of the policy at the end.
            **ends: How the run ended: the fields above.
        """
        return cls(
            directory=pathlib.Path(config.directory),
            env_steps=int(counts.get("actor_steps", 0)),
            learner_steps=int(counts.get("learner_steps", 0)),
            random=evaluations.random,
            before=evaluations.before,
            after=evaluations.latest[1] if evaluations.latest and has_evaluated else None,
            best=evaluations.best,
            **ends,
        )


def run_experiment(
    config: experiment_config.ExperimentConfig, *callbacks: progress.Callback
) -> ExperimentResult:
    """Trains an agent in this process, with its replay server, and evaluates it.

    Acting and learning take turns: after each environment step the learner makes the steps that the
    builder says are due. The first SIGINT, SIGTERM or SIGHUP saves a checkpoint and returns, once the
    environment's step has returned; the same call resumes from the newest checkpoint in the run's directory,
    or from `resume_from`. An error of the environment, or of anything else that leaves a whole state behind,
    saves too before it surfaces as it is. A run of several processes is resumed too, see
    `run_distributed_experiment`. What was logged after the checkpoint is taken out of the logs, for
    those steps are made again.

    While the parts are made, nothing is there to be saved: each of the three signals is a KeyboardInterrupt.
    While they are closed, all is saved, and a signal is only answered.

    A run without environment steps makes the config's `num_learner_steps` instead, one in each turn, from
    what the builder's dataset gives; periods, checkpoints and evaluations count those.

    `stop_at_return` and `stop_after_minutes` end the run as such a callback does. A run that has reached its
    return makes no more steps, until the option is changed; one whose time was over has all of it again.

    Args:
        config: the experiment.
        *callbacks: called often, from this thread, with how far the run has come. One that raises `StopRun`
            ends the run after this turn, with its last evaluation and checkpoint. A later call resumes it.

    Raises:
        ValueError: the agent cannot handle the environment, or another run is going on in the directory.
        ReplayError: replay cannot go on, as where the learner would wait for what nobody writes.
        KeyboardInterrupt: a second signal came before the run was saved; it names the newest checkpoint.
    """
    told = progress.Callbacks(stopping.StopEarly(config), *callbacks)
    errors = rescue.Rescue()
    with (
        interrupts.like_ctrl_c(),
        errors.original_error(),
        contextlib.ExitStack() as handlers,
        contextlib.ExitStack() as resources,
    ):
        run = parts.Parts(config, resources)
        pacer = pacing.Pacer(run)
        evaluations = evaluator.Evaluator(run)
        checkpoints = saver.Saver(run, evaluations, pacer)
        reporter = progress.Reporter(run, evaluations, told)
        # What an error leaves half done.
        learn = errors.not_in("learning")(pacer.learn)
        save = errors.not_in("saving")(checkpoints.save)
        save_best = errors.not_in("saving")(checkpoints.save_best)
        if run.beginning.checkpoint is not None:
            checkpoints.restore(run.beginning.checkpoint)
        run.logs.cut(
            actor=run.env_steps, learner=run.count("learner_steps"), evaluator=evaluations.logged_until
        )
        with (
            signals.stop_request_on_signals(checkpoints.newest, until=handlers) as stop,
            errors.save_on_error(run, checkpoints),
        ):

            def goes_on() -> bool:
                return run.steps < config.num_steps and not (stop or told.stopped_by)

            reporter.report("evaluate")
            evaluations.evaluate_before_training(stop)
            if goes_on():
                # A run that was stopped may not have made an evaluation that was due.
                if evaluations.is_due() and _evaluate(evaluations, reporter, stop) and checkpoints.is_best():
                    save()
                # Nor may it have learned from all that it wrote. On-policy agents need the newest weights
                # before they make the next step.
                learn(stop)
            while goes_on():
                try:
                    episodes = run.play_step()
                except replay.ReplayStopped:  # while it waited for a table to take an item
                    break
                learn(stop, without_playing=1)
                reporter.report("train", episodes)
                if evaluations.is_due():
                    _evaluate(evaluations, reporter, stop)
                if checkpoints.is_due(between_episodes=len(episodes) == len(run.adders)):
                    reporter.report("save")
                    save()
                    learn(stop)  # from the ends of episodes, as a run that resumes here
                elif checkpoints.is_best():
                    reporter.report("save")
                    save_best()
            is_new = not stop and _evaluate(evaluations, reporter, stop)
            interrupted_by = stop.signal_name  # one that comes later cuts nothing short
            if is_new or interrupted_by or run.steps != checkpoints.saved_at:
                reporter.report("save")
                save()
    return ExperimentResult.of(
        config,
        run.counter.get_counts(),
        evaluations,
        has_evaluated=not interrupted_by,
        interrupted_by=interrupted_by,
        stopped_by=told.stopped_by,
    )


def _evaluate(
    evaluations: evaluator.Evaluator, reporter: progress.Reporter, stop: signals.StopRequest
) -> bool:
    reporter.report("evaluate")
    is_new = evaluations.evaluate(stop)
    reporter.report("evaluate")
    return is_new
