"""Run DQN, R2D2 and V-MPO on experiments of bsuite, which scores them.

    pip install bsuite "pandas<2"                # bsuite 0.3.6 scores with a pandas before 2
    python examples/bsuite_scores.py --agents dqn --experiments catch --settings 0 1
    python examples/bsuite_scores.py             # all of it; finished runs are not repeated

Source: Osband et al. 2020, "Behaviour suite for reinforcement learning". bsuite only needs dm_env: it wraps
an environment, counts regret and rewards there, and computes the scores from the files that it wrote.
"""

import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any, Literal

import bsuite
import dm_env
import pandas
import tyro
from bsuite import sweep
from bsuite.experiments import summary_analysis
from bsuite.logging import csv_load, csv_logging

from minerva_acme import builders, environments, experiments
from minerva_acme.agents import dqn, r2d2, vmpo

# One configuration of each agent for all experiments, as bsuite asks. Some have only 10,000 steps in all.
BUILDERS: Mapping[str, builders.AgentBuilder[Any]] = {
    "dqn": dqn.DQNBuilder(
        dqn.DQNConfig(epsilon_steps=2_000, min_replay_size=200, batch_size=32, samples_per_insert=8.0)
    ),
    "r2d2": r2d2.R2D2Builder(
        r2d2.R2D2Config(num_environments=1, min_replay_size=20, sequence_length=40, sequence_period=10)
    ),
    "vmpo": vmpo.VMPOBuilder(
        vmpo.VMPOConfig(
            num_environments=1,
            rollout_steps=256,
            policy_layer_sizes=(128, 128),
            value_layer_sizes=(128, 128),
        )
    ),
}
EXPERIMENTS = (
    "bandit",
    "bandit_scale",
    "catch",
    "catch_noise",
    "deep_sea",
    "discounting_chain",
    "memory_len",
    "umbrella_length",
)


def run(agent: str, bsuite_id: str, directory: pathlib.Path, seed: int) -> None:
    """Trains an agent for the number of episodes that bsuite sets; writes bsuite's file to the directory."""
    num_env_steps = sweep.EPISODES[bsuite_id] * _episode_length(bsuite.load_from_id(bsuite_id))

    def make(seed: int) -> dm_env.Environment:
        # bsuite seeds its environments by the setting. The file of an interrupted run is replaced.
        logged = bsuite.load_and_record_to_csv(bsuite_id, str(directory), overwrite=True)
        return environments.make_training_environment(logged)

    with tempfile.TemporaryDirectory() as run_directory:
        experiments.run_experiment(
            experiments.ExperimentConfig(
                builder=BUILDERS[agent],
                environment_factory=make,
                # bsuite scores the training itself, including its beginning.
                evaluation_environment_factory=lambda seed: environments.make_training_environment(
                    bsuite.load_from_id(bsuite_id)
                ),
                evaluation_episodes=1,
                evaluation_period=0,
                checkpoint_period=0,
                directory=run_directory,
                num_env_steps=num_env_steps,
                replay="memory",
                seed=seed,
            )
        )


def _episode_length(environment: dm_env.Environment) -> int:
    """Plays an episode, of an experiment where all have the same length, and returns its number of steps."""
    length, timestep = 0, environment.reset()
    while not timestep.last():
        length, timestep = length + 1, environment.step(environment.action_spec().generate_value())
    return length


def _is_finished(bsuite_id: str, directory: pathlib.Path) -> bool:
    """Returns whether bsuite's file of a run exists, with all its episodes."""
    name = bsuite_id.replace(sweep.SEPARATOR, csv_logging.SAFE_SEPARATOR)
    path = directory / f"{csv_logging.BSUITE_PREFIX}{name}.csv"
    return path.exists() and bool(pandas.read_csv(path).episode.max() >= sweep.EPISODES[bsuite_id])


def main(
    agents: tuple[Literal["dqn", "r2d2", "vmpo"], ...] = ("dqn", "vmpo"),
    experiments: tuple[str, ...] = EXPERIMENTS,
    settings: tuple[int, ...] = (0, 5),
    directory: pathlib.Path = pathlib.Path("runs/bsuite"),
    seed: int = 0,
) -> pandas.DataFrame:
    """Trains, then writes the scores as `scores.csv` and `scores.svg`.

    Args:
        agents: The agents to train, each in every setting.
        experiments: Experiments of bsuite whose episodes all have the same length.
        settings: The numbers of the settings in each experiment, such as sizes or scales; there are about 20.
        directory: The folder for bsuite's files, with a subfolder for each agent.
        seed: The seed of networks and exploration.

    Returns:
        Scores from 0 to 1, with a row for each experiment and a column for each agent.
    """
    for agent in agents:
        for bsuite_id in (f"{experiment}/{number}" for experiment in experiments for number in settings):
            if not _is_finished(bsuite_id, directory / agent):
                run(agent, bsuite_id, directory / agent, seed)
    results, names = csv_load.load_bsuite({agent: str(directory / agent) for agent in agents})
    scores = summary_analysis.bsuite_score(results, names)
    table = scores.pivot(index="bsuite_env", columns="agent_name", values="score")
    table.to_csv(directory / "scores.csv", float_format="%.3f")
    # bsuite's own bar plots do not work with current versions of matplotlib.
    axes = table[::-1].plot.barh(xlabel="score", ylabel="", xlim=(0, 1), figsize=(7, 4))
    axes.legend(bbox_to_anchor=(1, 1), frameon=False, reverse=True)
    axes.figure.savefig(directory / "scores.svg", bbox_inches="tight")
    return table


if __name__ == "__main__":
    result = tyro.cli(main)
    print(result.round(3).to_string())
