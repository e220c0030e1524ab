"""Makes the program of an experiment."""

import dataclasses
import pathlib
from typing import Literal, TypeAlias

from minerva_acme import specs
from minerva_acme.distributed import graph
from minerva_acme.experiments import beginning as run_beginning
from minerva_acme.runs import checkpointing, evaluation
from minerva_acme.runs import config as experiment_config

AfterFailure: TypeAlias = Literal["restore", "empty"]
"""The contents of replay after its process was killed: the newest checkpoint's items, or nothing."""

LEARNER_LOCK = ".learner.lock"
"""The file in the run's folder that keeps a second learner out."""

MEETING = ".learners-"
"""The beginning of the names of the files in the run's folder through which several learners meet."""

_PACKAGE = "minerva_acme.distributed"


def make_program(
    config: experiment_config.ExperimentConfig,
    spec: specs.EnvironmentSpec,
    *,
    num_actors: int,
    num_learners: int = 1,
    port: int = 0,
    host: str = "localhost",
    session: str = "0",
    after_failure: AfterFailure = "restore",
    learner_threads: int = 1,
    beginning: run_beginning.Beginning | None = None,
) -> graph.Program:
    """Makes the program of an experiment: counter, replay, learners, N actors and an evaluator.

    Args:
        config: The experiment's config, as for `run_experiment`.
        spec: The spec of its environments.
        num_actors: The number of actors, N.
        num_learners: The number of learners, which share every batch.
        port: The port of replay.
        host: The name of replay's machine, by which others reach it.
        session: A name that distinguishes this start of the run from others.
        after_failure: The contents of replay after it was restarted.
        learner_threads: The number of torch's threads in each learner.
        beginning: The beginning of the run, or None to start from scratch.

    Raises:
        ValueError: `num_actors` or `num_learners` is below 1, or the agent supports only one of them.
    """
    if num_actors < 1:
        raise ValueError(f"`num_actors` must be >= 1, got {num_actors}.")
    state = checkpointing.load_state(beginning.checkpoint) if beginning and beginning.checkpoint else {}
    counts = state.get("counter", {})
    env_steps = int(counts.get("actor_steps", 0))
    known = evaluation.Evaluations.of(state)
    known.check_metric(config.metric)
    config = dataclasses.replace(config, builder=config.builder.for_actors(num_actors))
    if num_learners != 1:
        config.builder.for_learners(num_learners)  # raises
    directory = pathlib.Path(config.directory).resolve()
    config = dataclasses.replace(config, directory=str(directory))
    address = f"{host}:{port}"
    common = {"config": config, "spec": spec}
    began_with = {
        "resume_from": beginning and beginning.checkpoint and beginning.checkpoint.resolve(),
        "known": checkpointing.marks(directory / "checkpoints"),
    }
    is_cuda = config.torch_device.type == "cuda"
    # The first ones serve the later ones; a machine short of memory ends the oldest nodes last.
    nodes = [
        graph.Node(
            name="counter",
            factory=f"{_PACKAGE}.counter_node:CounterNode",
            arguments={
                "config": dataclasses.replace(
                    config, film_episode=None, evaluation_video=False, log_period_seconds=0.0
                ),
                "description": beginning.description.summary() if beginning else {},
                "journal": str(directory / f".counts-{session}.json"),
                "counts": dict(counts),
                "facts": {"evaluations": known.save()},
                "num_actors": num_actors,
                "cut": {
                    "actor": env_steps,
                    "learner": int(counts.get("learner_steps", 0)),
                    "evaluator": known.logged_until,
                },
            },
            at_home=True,
            num_cpus=0.0,
        ),
        graph.Node(
            name="replay",
            factory=f"{_PACKAGE}.replay_node:ReplayNode",
            arguments={
                "tables": tuple(config.builder.make_replay_tables(spec)),
                "port": port,
                "public": host != "localhost",
                "scratch": str(directory / "checkpoints" / ".replay"),
                "directory": str(directory),
                **began_with,
                "restore_from": beginning and beginning.replay_files,
                "after_failure": after_failure,
            },
            at_home=True,
            num_cpus=0.0,
        ),
        *(
            graph.Node(
                name=f"learner/{index}" if index else "learner",
                factory=f"{_PACKAGE}.learner_node:LearnerNode",
                arguments={
                    **common,
                    "player": beginning.player if beginning else checkpointing.Player(num_actors),
                    "address": address,
                    **began_with,
                    "num_learners": num_learners,
                },
                calls=("counter", "replay", "learner") if index else ("counter", "replay"),
                at_home=True,
                num_gpus=1.0 if is_cuda else 0.0,
                num_threads=learner_threads,
                leave_seconds=600.0,  # it saves
            )
            for index in range(num_learners)
        ),
        *(
            graph.Node(
                name=f"actor/{index}",
                factory=f"{_PACKAGE}.actor_node:ActorNode",
                arguments={
                    **common,
                    "num_actors": num_actors,
                    "address": address,
                    "began_at": env_steps,
                },
                calls=("counter", "replay", "learner"),
                num_cpus=1.0,
                needed="each" if config.builder.needs_every_actor else "one",
            )
            for index in range(num_actors)
        ),
        graph.Node(
            name="evaluator",
            factory=f"{_PACKAGE}.evaluator_node:EvaluatorNode",
            arguments=common,
            calls=("counter", "learner"),
            num_cpus=0.0,
            needed="none",
        ),
    ]
    return graph.Program(nodes=tuple(nodes))
