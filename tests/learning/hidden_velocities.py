r"""dm_control's cartpole without the velocities in its observations.

minerva train mpo --preset memory --env tests.learning.hidden_velocities:swingup --env-kwargs repeat=4 \
    --num-env-steps 50000
"""

from typing import Any

import dm_env

from minerva_acme import environments, wrappers


def swingup(seed: int, num_frames: int = 1, repeat: int = 1) -> dm_env.Environment:
    """Makes the swingup, observed by the last positions of the cart and cosines and sines of the pole.

    Args:
        seed: The seed of the initial states.
        num_frames: How many of the last observations the agent sees.
        repeat: For how many frames an action is held.
    """
    environment = environments.make(f"dm_control/cartpole/swingup/repeat={repeat}", seed=seed)
    hidden = wrappers.ObservationTransformWrapper(
        environment, transform=_position, spec=environment.observation_spec()["position"]
    )
    return wrappers.FrameStackWrapper(hidden, num_frames=num_frames) if num_frames > 1 else hidden


def _position(observation: Any) -> Any:
    return observation["position"]
