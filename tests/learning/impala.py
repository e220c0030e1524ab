"""IMPALA next to PPO, and with several actors.

    python -m tests.learning.impala --tasks catch hidden_cartpole --seeds 0 1 2    # Catch needs bsuite
    python -m tests.learning.impala --tasks actors --seeds 0 1 2                   # 1, 2 and 4 of them

Each run has a folder and continues there if it was stopped. The rows of all finished runs are written to
`rows.csv`, in the form of `minerva_acme.results`.
"""

import functools
from collections.abc import Mapping, Sequence

import dm_env

from minerva_acme import environments
from minerva_acme.agents import impala, ppo
from minerva_acme.results import rows

from . import memory


def catch(seed: int) -> dm_env.Environment:
    """Makes bsuite's Catch, whose observation is an image of 10 x 5 numbers."""
    from bsuite.environments import catch as bsuite_catch

    return environments.make_training_environment(bsuite_catch.Catch(seed=seed))


HIDDEN = memory.TASKS["cartpole"]
TASKS: Mapping[str, memory.Task] = {
    "catch": memory.Task(
        "bsuite's Catch",
        catch,
        100_000,
        {
            "impala": impala.IMPALABuilder(impala.PRESETS["default"]),
            "ppo": ppo.PPOBuilder(ppo.PRESETS["default"]),
        },
    ),
    "hidden_cartpole": memory.Task(
        HIDDEN.env,
        HIDDEN.make_environment,
        HIDDEN.num_env_steps,
        {
            "impala_memory": impala.IMPALABuilder(impala.PRESETS["memory"]),
            "ppo_memory": ppo.PPOBuilder(ppo.PRESETS["memory"]),
        },
    ),
    "actors": memory.Task(
        "CartPole-v1",
        functools.partial(environments.make_training_environment, "CartPole-v1"),
        100_000,
        {f"impala_of_{number}": impala.IMPALABuilder(impala.PRESETS["default"]) for number in (1, 2, 4)},
        {f"impala_of_{number}": number for number in (1, 2, 4)},
    ),
}


def main(arguments: Sequence[str] | None = None) -> list[rows.Row]:
    """Trains, writes the rows after each run, and prints the last returns."""
    return memory.main(arguments, TASKS, "impala", __doc__)


if __name__ == "__main__":
    main()
