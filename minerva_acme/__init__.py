"""Reinforcement learning agents from interchangeable parts, in PyTorch.

Train an agent, and load its policy:

    import minerva_acme
    from minerva_acme import environments, experiments
    from minerva_acme.agents import ppo

    result = experiments.run_experiment(
        experiments.ExperimentConfig(
            builder=ppo.PPOBuilder(ppo.PPOConfig()),
            environment_factory=lambda seed: environments.make_training_environment("CartPole-v1", seed=seed),
            directory="runs/first",
            num_env_steps=50_000,
        )
    )
    policy = minerva_acme.load_policy("runs/first")

The packages that most programs need:

    agents        the agents, each with its config, presets and builder
    datasets      records episodes, and fills replay with them
    environments  makes dm_control's and Gymnasium's environments, and adapts your own
    experiments   runs an experiment in this process; `distributed` runs it in several
    plotting      draws learning curves
    runs          evaluates and exports the policies of runs
    video         films policies

The command `minerva` does the same from a shell.
"""

import importlib.util
from typing import TYPE_CHECKING

from minerva_acme._version import __version__
from minerva_acme.machine import threads
from minerva_acme.names import lazy

if TYPE_CHECKING:
    from minerva_acme import (  # noqa: F401 -- offered by `__getattr__`
        acceleration,
        actors,
        adders,
        agents,
        builders,
        core,
        counting,
        datasets,
        distributed,
        distributions,
        environments,
        experiments,
        learners,
        loggers,
        losses,
        machine,
        names,
        networks,
        observers,
        plotting,
        replay,
        results,
        runs,
        specs,
        testing,
        types,
        video,
        wrappers,
    )
    from minerva_acme.runs.policies import load_policy

if importlib.util.find_spec(f"{__name__}.agents") is None:
    # Python was started in a clone that is not installed itself: the folder there comes first.
    raise ModuleNotFoundError(
        f"`minerva_acme` must be a whole package, but {__path__[0]} is a clone's, without "
        "`minerva_acme.agents`, which is in another folder there. Install the clone itself with `pip install "
        '-e ".[tested]"`, or start Python in another folder.'
    )
threads.set_defaults()  # before anything here imports torch, which reads the settings only once

__all__ = ["__version__", "load_policy"]

__getattr__, __dir__ = lazy.attach(__name__, __file__)
