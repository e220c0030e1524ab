"""Runs an experiment in one process: act, add, learn, evaluate, save."""

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
    progress_display,
    rescue,
    saver,
    signals,
    starting,
    stopping,
)
from minerva_acme.experiments import progress as run_progress
from minerva_acme.names import foreign_names, readable
from minerva_acme.replay import base as replay
from minerva_acme.runs import config as experiment_config
from minerva_acme.runs import evaluation


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentResult:
    """The result of a run."""

    directory: pathlib.Path
    env_steps: int
    learner_steps: int
    random: evaluation.Evaluation | None
    """The evaluation of uniformly random actions, or None if the run was interrupted before it, or if the
    actions are unbounded."""
    before: evaluation.Evaluation | None
    """The evaluation of the policy before training, or None if the run was interrupted before it."""
    after: evaluation.Evaluation | None
    """The evaluation of the policy at the end, or None if the run was interrupted."""
    best: tuple[int, evaluation.Evaluation] | None
    """The evaluation with the highest mean during and after training, and its step."""
    interrupted_by: str | None
    """The signal that stopped the run early, or None."""
    stopped_by: str | None = None
    """Why a callback, `stop_at` or `stop_after_minutes` stopped the run early, or None. Unlike after a
    signal, `after` was evaluated."""
    given_up: tuple[str, ...] = ()
    """The actors, and possibly the evaluator, that a distributed run gave up because they failed repeatedly,
    each with the reason. Without its evaluator, a run has no `after`."""

    def __repr__(self) -> str:
        steps = f"{self.env_steps:,} environment steps, {self.learner_steps:,} learner steps"
        rows: dict[str, object] = {name: getattr(self, name) for name in ("random", "before", "after")}
        if self.best is not None:
            rows["best"] = f"{self.best[1]}, after {self.best[0]:,} steps"
        rows |= {name: getattr(self, name) for name in ("interrupted_by", "stopped_by")}
        rows["given_up"] = "; ".join(self.given_up)
        return readable.in_lines(
            f"ExperimentResult in {self.directory}: {steps}", {name: row for name, row in rows.items() if row}
        )

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
        """Makes the result of a run.

        Args:
            config: The experiment's config.
            counts: The run's counts.
            evaluations: The run's evaluations.
            has_evaluated: Whether the latest evaluation is of the final policy.
            **ends: The fields above that describe how the run ended.
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


@foreign_names.translated
def run_experiment(
    config: experiment_config.ExperimentConfig,
    *callbacks: run_progress.Callback,
    progress: progress_display.ShownProgress = "auto",
) -> ExperimentResult:
    """Trains an agent in this process, together with its replay server, and evaluates it.

    Acting and learning take turns: after each environment step the learner makes the steps that the builder
    says are due. After the first SIGINT, SIGTERM or SIGHUP, the current environment step is completed, a
    checkpoint is saved and the function returns. Calling it again resumes from the newest checkpoint in the
    run's directory, or from `resume_from`. An error of the environment, or any other error that leaves the
    state consistent, also saves a checkpoint before it is raised. A run of several processes can be resumed
    too, see `run_distributed_experiment`. Rows that were logged after the checkpoint are removed from the
    logs, since those steps are repeated.

    While the parts are being made there is nothing to save: each of the three signals raises a
    KeyboardInterrupt. While they are being closed everything is saved, and a signal only logs a message.

    A run without environment steps makes the config's `num_learner_steps` instead, one per turn, from the
    builder's dataset; periods, checkpoints and evaluations then count learner steps.

    `stop_at` and `stop_after_minutes` stop the run like a callback that raises `StopRun`. A run that
    has reached its return makes no more steps until the option is changed; one whose time was up gets the
    full time again.

    Args:
        config: The experiment's config.
        *callbacks: Functions that are called often, from this thread, with the run's progress. If one raises
            `StopRun`, the run ends after this turn, with a final evaluation and checkpoint. A later call
            resumes it.
        progress: The display of the run's progress. "auto" shows it where stdout is a terminal or a notebook,
            and prints nothing elsewhere; None never prints anything. A `ProgressDisplay` also prints
            occasional lines where stdout is a file or a pipe.

    Raises:
        ValueError: The agent cannot handle the environment, another run is using the directory, `metric` is
            none that the first evaluation has, or `progress` is something else.
        ReplayError: Replay is deadlocked, for example because the learner waits for items that nothing will
            write.
        KeyboardInterrupt: A second signal came before the run was saved; it names the newest checkpoint.
    """
    errors = rescue.Rescue()
    with (
        progress_display.shown(progress, config) as displays,
        interrupts.like_ctrl_c(),
        errors.original_error(),
        contextlib.ExitStack() as handlers,
        contextlib.ExitStack() as resources,
    ):
        told = run_progress.Callbacks(stopping.StopEarly(config), *callbacks, *displays)
        run = parts.Parts(config, resources)
        pacer = pacing.Pacer(run)
        evaluations = evaluator.Evaluator(run)
        checkpoints = saver.Saver(run, evaluations, pacer)
        reporter = run_progress.Reporter(run, evaluations, told)
        # An error in one of these leaves it half done.
        learn = errors.not_in("learning")(pacer.learn)
        save = errors.not_in("saving")(checkpoints.save)
        save_best = errors.not_in("saving")(checkpoints.save_best)
        if run.beginning.checkpoint is not None:
            checkpoints.restore(run.beginning.checkpoint)
        elif config.from_run is not None:
            starting.take_weights(
                run.learner, config.from_run, config.torch_device, run.spec, has_replay=run.has_old_replay
            )
            run.actor.update(wait=True)
        reporter.report("evaluate")  # the evaluation that the run resumes with may have reached its return
        if run.recorder is not None:
            run.recorder.begin(run.steps < config.num_steps and not told.stopped_by)
        # Only now, so that a start that is refused removes nothing.
        run.logs.cut(
            actor=run.env_steps, learner=run.count("learner_steps"), evaluator=evaluations.logged_until
        )
        run.beginning.note()
        with (
            signals.stop_request_on_signals(checkpoints.newest, until=handlers) as stop,
            errors.save_on_error(run, checkpoints),
        ):

            def goes_on() -> bool:
                return run.steps < config.num_steps and not (stop or told.stopped_by)

            evaluations.evaluate_before_training(stop)
            if goes_on():
                # A stopped run may have missed an evaluation that was due.
                if evaluations.is_due() and _evaluate(evaluations, reporter, stop) and checkpoints.is_best():
                    save()
                # It may also not have learned from everything that it wrote. On-policy agents need the newest
                # weights before the next step.
                learn(stop)
            while goes_on():
                try:
                    episodes = run.play_step()
                except replay.ReplayStopped:  # while waiting for a table to accept an item
                    break
                learn(stop, without_playing=1)
                reporter.report("train", episodes)
                if evaluations.is_due():
                    _evaluate(evaluations, reporter, stop)
                if checkpoints.is_due(between_episodes=run.is_between_episodes(episodes)):
                    reporter.report("save")
                    save()
                    learn(stop)  # from the ends of episodes, as would a run that resumes here
                elif checkpoints.is_best():
                    reporter.report("save")
                    save_best()
            is_new = not stop and _evaluate(evaluations, reporter, stop)
            interrupted_by = stop.signal_name  # a later signal interrupts nothing
            if is_new or interrupted_by or not checkpoints.has_saved:
                reporter.report("save")
                save()
            if run.recorder is not None and not interrupted_by:
                run.recorder.finish()
    return ExperimentResult.of(
        config,
        run.counter.get_counts(),
        evaluations,
        has_evaluated=not interrupted_by,
        interrupted_by=interrupted_by,
        stopped_by=told.stopped_by,
    )


def _evaluate(
    evaluations: evaluator.Evaluator, reporter: run_progress.Reporter, stop: signals.StopRequest
) -> bool:
    reporter.report("evaluate")
    is_new = evaluations.evaluate(stop)
    reporter.report("evaluate")
    return is_new
