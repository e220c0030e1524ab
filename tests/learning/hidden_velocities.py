"""dm_control's cartpole without the velocities in its observations.

minerva train mpo --preset memory --env tests.learning.hidden_velocities:swingup --num-env-steps 50000
"""

from typing import Any

import dm_env

from minerva_acme import environments, wrappers


def swingup(seed: int, num_frames: int = 1) -> dm_env.Environment:
    """Makes the swingup, observed by the last positions of the cart and cosines and sines of the pole."""
    environment = environments.make("dm_control/cartpole/swingup", seed=seed)
    hidden = wrappers.ObservationTransformWrapper(
        environment, transform=_position, spec=environment.observation_spec()["position"]
    )
    return wrappers.FrameStackWrapper(hidden, num_frames=num_frames) if num_frames > 1 else hidden


def _position(observation: Any) -> Any:
    return observation["position"]
