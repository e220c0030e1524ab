"""One process: act, add, learn, evaluate, save."""

import contextlib
import dataclasses
import pathlib
import shutil
from collections.abc import Callable, Sequence
from typing import NamedTuple

from minerva_acme import actors, core, counting, specs
from minerva_acme.experiments import (
    checkpointing,
    evaluation,
    evaluator,
    pacing,
    playing,
    progress,
    run_logs,
    saver,
    seeds,
    signals,
)
from minerva_acme.experiments import config as experiment_config
from minerva_acme.replay import backends
from minerva_acme.replay import base as replay


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentResult:
    """The outcome of a run."""

    directory: pathlib.Path
    env_steps: int
    learner_steps: int
    random: evaluation.Evaluation | None
    """Of uniformly random actions; None if the run was interrupted before they were evaluated."""
    before: evaluation.Evaluation | None
    """Of the policy before training; None likewise."""
    after: evaluation.Evaluation | None
    """Of the policy at the end; None if the run was interrupted."""
    best: tuple[int, evaluation.Evaluation] | None
    """The evaluation with the highest mean while and after training, and its environment step."""
    interrupted_by: str | None
    """The signal that stopped the run early, or None."""


class _Parts(NamedTuple):
    """What the loop calls."""

    player: playing.Player
    pacer: pacing.Pacer
    evaluator: evaluator.Evaluator
    saver: saver.Saver
    reporter: progress.Reporter
    counter: counting.Counter

    @property
    def env_steps(self) -> int:
        return progress.read_counts(self.counter).env_steps


def run_experiment(
    config: experiment_config.ExperimentConfig,
    on_progress: Callable[[progress.Progress], None] = lambda progress: None,
) -> ExperimentResult:
    """Trains an agent in this process, with its replay server, and evaluates it.

    Acting and learning take turns: after each environment step the learner makes the steps that the
    builder says are due. The first SIGINT or SIGTERM saves a checkpoint and returns; the same call
    resumes from the newest checkpoint in the run's directory.

    Args:
        config: the experiment.
        on_progress: called often, from this thread, with how far the run has come.

    Raises:
        ValueError: the agent cannot handle the environment.
    """
    with contextlib.ExitStack() as resources:
        parts = _make_parts(config, on_progress, resources)
        with signals.stop_request_on_signals() as stop:
            parts.reporter.report("evaluate")
            parts.evaluator.evaluate_before_training(stop)
            _train(config, parts, stop)
            is_new = not stop and _evaluate(parts, stop)
            if is_new or stop or parts.env_steps != parts.saver.saved_at:
                _save(parts, stopping=True)
    latest = parts.evaluator.latest
    counts = progress.read_counts(parts.counter)
    return ExperimentResult(
        directory=pathlib.Path(config.directory),
        env_steps=counts.env_steps,
        learner_steps=counts.learner_steps,
        random=parts.evaluator.random,
        before=parts.evaluator.before,
        after=latest[1] if latest and not stop else None,
        best=parts.evaluator.best,
        interrupted_by=stop.signal_name,
    )


def _train(config: experiment_config.ExperimentConfig, parts: _Parts, stop: signals.StopRequest) -> None:
    """Plays, learns, evaluates and saves until all environment steps are made, or to the stop."""
    steps = parts.env_steps
    if steps < config.num_env_steps:
        # A run that was stopped may not have learned from all that it wrote. On-policy agents need the
        # newest weights before they make the next step.
        parts.pacer.learn(stop)
    while steps < config.num_env_steps and not stop:
        episodes = parts.player.step()
        parts.pacer.learn(stop)
        parts.reporter.report("train", episodes)
        before, steps = steps, parts.env_steps
        period = config.evaluation_period
        if period and steps // period > before // period:
            _evaluate(parts, stop)
        if parts.saver.is_due(steps, between_episodes=len(episodes) == parts.player.num_environments):
            _save(parts, stopping=False)


def _evaluate(parts: _Parts, stop: signals.StopRequest) -> bool:
    """Evaluates the policy; returns whether there is a new evaluation."""
    parts.reporter.report("evaluate")
    is_new = parts.evaluator.evaluate(parts.env_steps, stop)
    parts.reporter.report("evaluate")
    return is_new


def _save(parts: _Parts, *, stopping: bool) -> None:
    parts.reporter.report("save")
    parts.saver.save(parts.env_steps, stopping=stopping)


def _make_parts(
    config: experiment_config.ExperimentConfig,
    on_progress: Callable[[progress.Progress], None],
    resources: contextlib.ExitStack,
) -> _Parts:
    """Makes the parts in the order in which data flows, and restores them from the newest checkpoint."""
    builder, device = config.builder, config.torch_device
    run_seeds = seeds.Seeds(config.seed)

    # First, so that an agent that cannot act in the environment says so before anything is written.
    environment = playing.make_environment(config, run_seeds)
    resources.callback(environment.close)
    spec = specs.make_environment_spec(environment)  # type: ignore[arg-type]  # a vector's specs read alike
    builder.check_spec(spec)

    checkpointer = checkpointing.Checkpointer(pathlib.Path(config.directory) / "checkpoints")
    checkpoint = checkpointer.latest()
    tables = builder.make_replay_tables(spec)
    client = _open_replay(config, tables, checkpoint, run_seeds, resources)

    counter = counting.Counter()
    logs = resources.enter_context(run_logs.open_logs(config))
    networks = builder.make_networks(spec, run_seeds.generator("networks"))
    dataset = builder.make_dataset(client, spec, device)
    resources.callback(dataset.close)  # type: ignore[attr-defined]
    learner = builder.make_learner(
        networks=networks,
        dataset=dataset,
        spec=spec,
        counter=counting.Counter(counter, "learner"),
        logger=logs.learner,
        generator=run_seeds.generator("learner", device),
        device=device,
        num_env_steps=config.num_env_steps,
    )
    policy = builder.make_policy(networks, spec, run_seeds.generator("policy"))
    adders = [
        resources.enter_context(builder.make_adder(client, spec)) for _ in range(builder.num_environments)
    ]
    player = playing.Player(
        config,
        environment,
        policy=policy,
        variable_source=learner,
        adders=adders,
        counter=counting.Counter(counter, "actor"),
        logger=logs.actor,
    )
    pacer = pacing.Pacer(learner=learner, player=player, learner_steps_due=builder.learner_steps_due)

    def make_judge(purpose: str) -> core.Actor:
        generator = run_seeds.generator(purpose)
        return builder.make_actor(builder.make_policy(networks, spec, generator, evaluation=True), learner)

    run_evaluator = evaluator.Evaluator(
        config,
        actor=make_judge("evaluation"),
        random_actor=actors.RandomActor(spec.actions, seed=run_seeds.number("random")),
        film_actor=make_judge("film") if config.evaluation_video else None,
        counter=counter,
        logs=logs,
        run_seeds=run_seeds,
    )
    reporter = progress.Reporter(
        config,
        on_progress,
        counter=counter,
        run_evaluator=run_evaluator,
        newest_row=logs.newest_row,
        client=client,
        tables=[table.name for table in tables],
    )
    run_saver = saver.Saver(
        checkpointer,
        parts={
            "counter": counter,
            "learner": learner,
            "policy": policy,
            "policy_variables": saver.PolicyVariables(learner, builder.policy_variables),
            "environment": environment,
            "adders": player,
        },
        player=player,
        pacer=pacer,
        run_evaluator=run_evaluator,
        client=client if config.checkpoint_replay else None,
        period=config.checkpoint_period,
    )
    if checkpoint is not None:
        run_saver.restore(checkpoint, device)
    return _Parts(player, pacer, run_evaluator, run_saver, reporter, counter)


def _open_replay(
    config: experiment_config.ExperimentConfig,
    tables: Sequence[replay.TableConfig],
    checkpoint: pathlib.Path | None,
    run_seeds: seeds.Seeds,
    resources: contextlib.ExitStack,
) -> replay.ReplayClient:
    """Starts the replay server, with what the checkpoint holds, and returns a client."""
    # Where the server writes its part of a checkpoint, which is then moved into it.
    scratch = pathlib.Path(config.directory) / ".replay"
    shutil.rmtree(scratch, ignore_errors=True)
    resources.callback(shutil.rmtree, scratch, ignore_errors=True)
    restore_from = checkpointing.replay_folder(checkpoint) if checkpoint else None
    server = resources.enter_context(
        backends.make_server(
            tables,
            config.replay,
            seed=run_seeds.number("replay"),
            device=str(config.torch_device),
            checkpoint_directory=str(scratch),
            restore_from=str(restore_from) if restore_from else None,
        )
    )
    return resources.enter_context(server.client())
