"""Environments by id, adapters from and to Gymnasium, vector environments, and the loops that play them."""

from typing import TYPE_CHECKING

from minerva_acme.names import lazy

if TYPE_CHECKING:
    from minerva_acme.environments.batched import (
        BatchedEnvironment,
        FinalObservations,
        MaskedResets,
        NextStepResets,
        SimulatorEnvironment,
    )
    from minerva_acme.environments.batched_brax import BatchedBrax
    from minerva_acme.environments.batched_loop import BatchedEnvironmentLoop
    from minerva_acme.environments.batched_pendulum import BatchedPendulum
    from minerva_acme.environments.factories import (
        list_environments,
        list_makeable,
        make,
        make_training_environment,
        make_vector,
    )
    from minerva_acme.environments.gymnasium_adapter import GymnasiumEnvironment
    from minerva_acme.environments.gymnasium_batch import make_gymnasium_batch
    from minerva_acme.environments.gymnasium_from_dm_env import GymnasiumFromDmEnv
    from minerva_acme.environments.gymnasium_vector import GymnasiumVectorEnvironment
    from minerva_acme.environments.loop import EnvironmentLoop, EpisodeResult, Observer
    from minerva_acme.environments.process_vector import EnvironmentWorkerError, ProcessVectorEnvironment
    from minerva_acme.environments.vector import InProcessVectorEnvironment, VectorEnvironment
    from minerva_acme.environments.vector_loop import VectorEnvironmentLoop

__all__ = [
    "BatchedBrax",
    "BatchedEnvironment",
    "BatchedEnvironmentLoop",
    "BatchedPendulum",
    "EnvironmentLoop",
    "EnvironmentWorkerError",
    "EpisodeResult",
    "FinalObservations",
    "GymnasiumEnvironment",
    "GymnasiumFromDmEnv",
    "GymnasiumVectorEnvironment",
    "InProcessVectorEnvironment",
    "MaskedResets",
    "NextStepResets",
    "Observer",
    "ProcessVectorEnvironment",
    "SimulatorEnvironment",
    "VectorEnvironment",
    "VectorEnvironmentLoop",
    "list_environments",
    "list_makeable",
    "make",
    "make_gymnasium_batch",
    "make_training_environment",
    "make_vector",
]

__getattr__, __dir__ = lazy.attach(__name__, __file__)
