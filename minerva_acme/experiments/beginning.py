"""The beginning of a run: its folder, and the checkpoint that it resumes from, whether made by one process
or by several."""

import contextlib
import logging
import math
import pathlib
from typing import Any, NamedTuple

from minerva_acme import builders, constraints, specs
from minerva_acme.replay import backends
from minerva_acme.runs import checkpointing, provenance, run_folder, run_lock
from minerva_acme.runs import config as experiment_config

_logger = logging.getLogger(__name__)


class Beginning(NamedTuple):
    """The beginning of a run."""

    directory: pathlib.Path  # the run's folder
    spec: specs.EnvironmentSpec  # the spec of its environments
    description: run_folder.RunDescription
    checkpoint: pathlib.Path | None  # the checkpoint that it resumes from
    player: checkpointing.Player
    is_taken_over: bool  # whether the checkpoint was made with another number of actors

    @property
    def replay_files(self) -> str | None:
        """The folder of the checkpoint's replay, or None if it has no replay."""
        files = checkpointing.replay_folder(self.checkpoint) if self.checkpoint else None
        return str(files.resolve()) if files else None

    def note(self) -> None:
        """Writes the run's description and versions into its folder, once nothing refuses the run any more.

        A start that is refused leaves the description of the start before it, by which the run is resumed.

        Raises:
            OSError: They cannot be written.
            ValueError: The file of the versions is malformed.
        """
        self.description.write(self.directory)
        provenance.note(self.directory)


def check_agent(
    builder: builders.AgentBuilder[Any],
    spec: specs.EnvironmentSpec,
    backend: backends.Backend,
    dataset: constraints.Path | None = None,
    *,
    num_env_steps: int = 0,
) -> None:
    """Checks that an agent can be trained in an environment, with its batches in this machine's memory.

    Args:
        builder: The agent's builder.
        spec: The specs of the environment, wrapped as in training.
        backend: The store for its replay.
        dataset: The recorded episodes that it is to learn from alone, or None.
        num_env_steps: The environment steps of the run; 0 if they are unknown.

    Raises:
        ValueError: The agent cannot handle the environment, cannot learn from recorded episodes, or a batch
            does not fit into memory.
        ReplayError: The store cannot sample the agent's tables as required.
    """
    try:
        builder.check_spec(spec)
    except ValueError as error:
        if type(error) is not ValueError:
            raise
        raise ValueError(str(error)) from error  # raised here, a user's refusal is told in one line, too
    tables = builder.make_replay_tables(spec)
    if dataset is not None and (not tables or any(table.max_times_sampled for table in tables)):
        name = getattr(builder, "name", type(builder).__name__)
        raise ValueError(
            f"{name} cannot learn from recorded episodes (`dataset` {dataset!r}): it learns once from what "
            "its own newest policy has played. Choose an agent that replays items: `minerva list agents`."
        )
    if tables:
        backends.choose(tables, backend := "memory" if dataset else backend)
        backends.check_batch(
            tables,
            backend,
            getattr(getattr(builder, "config", None), "batch_size", 1),
            most_items=builder.max_inserted(num_env_steps) if num_env_steps else math.inf,
        )


def begin(
    config: experiment_config.ExperimentConfig,
    environment: experiment_config.Environment,
    resources: contextlib.ExitStack,
    num_actors: int = 0,
) -> Beginning:
    """Locks a run's folder, checks what it holds, and finds the checkpoint that the run resumes from.

    Args:
        config: The experiment's config.
        environment: An environment of the run, or a vector or batch of them.
        resources: A stack that unlocks the folder.
        num_actors: The number of actors in separate processes; 0 if this process plays.

    Raises:
        ValueError: The agent cannot handle the environment, the folder holds another run, or another process
            is using it.
        ReplayError: The store that the config names cannot sample the agent's tables as required.
        DamagedCheckpoint: All checkpoints of the run are damaged, or the chosen one is.
    """
    directory = pathlib.Path(config.directory)
    # An environment and a vector of them provide their specs in the same way.
    spec = specs.make_environment_spec(environment)
    # First, so that an agent that cannot act in the environment says so before anything is written.
    check_agent(
        config.builder,
        spec,
        "reverb" if num_actors else config.replay,
        config.dataset,
        num_env_steps=config.num_env_steps,
    )
    # Without steps of its own, it learns from what its `make_dataset` returns.
    if config.num_env_steps and config.lacks_data(getattr(config.builder, "config", None)):
        _logger.warning(
            "%s with these settings learns from recorded episodes, but is given none: it learns from its own "
            "play. Set `dataset` and `num_learner_steps`, or `demonstrations`.",
            getattr(config.builder, "name", type(config.builder).__name__),
        )
    # Held from before anything is written until everything that writes is closed.
    resources.enter_context(run_lock.hold(directory))
    description = run_folder.describe(config, environment)
    description.check_place(directory)
    for reason in description.unknown.values():
        _logger.warning("%s cannot be continued from its folder alone: %s", directory, reason)
    checkpoint = checkpointing.find_to_resume(directory, config.resume_from)
    if checkpoint is None:
        return Beginning(directory, spec, description, None, checkpointing.Player(num_actors), False)
    before = checkpointing.player(checkpoint)
    if before.num_actors == num_actors:
        return Beginning(directory, spec, description, checkpoint, before, False)
    counts = checkpointing.load_state(checkpoint)["counter"]
    made = int(counts.get("actor_steps", 0)), int(counts.get("learner_steps", 0))
    _logger.info(
        "%s was made with %s: weights, optimisers, statistics and counts are resumed, and new episodes begin",
        checkpoint,
        f"{before.num_actors} actors in separate processes" if before.num_actors else "one process",
    )
    return Beginning(directory, spec, description, checkpoint, checkpointing.Player(num_actors, *made), True)
