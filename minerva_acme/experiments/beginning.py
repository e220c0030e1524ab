"""Where a run begins: in its folder, with the checkpoint that it resumes from, whoever played before."""

import contextlib
import logging
import pathlib
from typing import NamedTuple

import dm_env

from minerva_acme import environments, specs
from minerva_acme.replay import backends
from minerva_acme.runs import checkpointing, provenance, run_folder, run_lock
from minerva_acme.runs import config as experiment_config

_logger = logging.getLogger(__name__)


class Beginning(NamedTuple):
    """Where a run begins."""

    spec: specs.EnvironmentSpec  # of its environments
    description: run_folder.RunDescription
    checkpoint: pathlib.Path | None  # that it resumes from
    player: checkpointing.Player
    is_taken_over: bool  # from another number of actors: of one process, or of several

    @property
    def replay_files(self) -> str | None:
        """The folder of the checkpoint's replay; None if it has none."""
        files = checkpointing.replay_folder(self.checkpoint) if self.checkpoint else None
        return str(files.resolve()) if files else None


def begin(
    config: experiment_config.ExperimentConfig,
    environment: dm_env.Environment | environments.VectorEnvironment,
    resources: contextlib.ExitStack,
    num_actors: int = 0,
) -> Beginning:
    """Takes hold of a run's folder, writes what the run is, and finds what it resumes from.

    Args:
        config: The experiment.
        environment: An environment of the run, or a vector of them.
        resources: Releases the folder.
        num_actors: The number of actors in processes of their own; 0: this process plays.

    Raises:
        ValueError: The agent cannot handle the environment, the folder holds another run, or another process
            runs it.
        ReplayError: The store that the config names cannot sample the agent's tables as they say.
        DamagedCheckpoint: There is no good checkpoint among those of the run, or the chosen one is damaged.
    """
    directory = pathlib.Path(config.directory)
    # An environment and a vector of them tell their specs alike.
    spec = specs.make_environment_spec(environment)
    # First, so that an agent that cannot act in the environment says so before anything is written.
    config.builder.check_spec(spec)
    if tables := config.builder.make_replay_tables(spec):
        backends.choose(tables, "reverb" if num_actors else config.replay)
    # Before anything is written, and until all that writes is closed.
    resources.enter_context(run_lock.hold(directory))
    description = run_folder.describe(config, environment)
    description.write(directory)
    provenance.note(directory)
    for reason in description.unknown.values():
        _logger.warning("%s cannot be continued from its folder alone: %s", directory, reason)
    checkpoint = checkpointing.find_to_resume(directory, config.resume_from)
    if checkpoint is None:
        return Beginning(spec, description, None, checkpointing.Player(num_actors), False)
    before = checkpointing.player(checkpoint)
    if before.num_actors == num_actors:
        return Beginning(spec, description, checkpoint, before, False)
    counts = checkpointing.load_state(checkpoint)["counter"]
    made = int(counts.get("actor_steps", 0)), int(counts.get("learner_steps", 0))
    _logger.info(
        "%s was made with %s: weights, optimisers, statistics and counts are resumed, and new episodes begin",
        checkpoint,
        f"{before.num_actors} actors in processes of their own" if before.num_actors else "one process",
    )
    return Beginning(spec, description, checkpoint, checkpointing.Player(num_actors, *made), True)
