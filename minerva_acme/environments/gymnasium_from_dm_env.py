"""dm_env environments as Gymnasium environments."""

from collections.abc import Callable
from typing import Any

import dm_env
import gymnasium
import numpy as np
import tree

from minerva_acme import specs
from minerva_acme.environments import gymnasium_spaces
from minerva_acme.wrappers import rendering


class GymnasiumFromDmEnv(gymnasium.Env[Any, Any]):
    """Makes a dm_env environment a Gymnasium environment.

        LAST, discount 0        -> terminated
        LAST, discount above 0  -> truncated
        MID                     -> neither

    Gymnasium has no discount between 0 and 1: `info["discount"]` holds the environment's own, along with the
    entries of its `get_info()` if it has one. For the conversion of specs to spaces see `gymnasium_spaces`;
    observations keep their dtype. The attribute `environment` is the dm_env environment.
    """

    def __init__(
        self,
        environment: dm_env.Environment,
        *,
        render_mode: str | None = None,
        render: Callable[[dm_env.Environment], np.ndarray] = rendering.render_frame,
    ) -> None:
        """Initialises the adapter.

        Args:
            environment: A dm_env environment with one scalar reward and one scalar discount. A seed for
                `reset` needs its method `seed`, which environments from `environments.make` have.
            render_mode: None, or "rgb_array" for frames at 1 / control_timestep per second.
            render: Draws the environment, uint8 [height, width, 3].

        Raises:
            ValueError: A spec has no space, the reward or discount is not a scalar, or the environment
                cannot render in this mode.
        """
        _check_scalar("reward_spec", environment.reward_spec())
        _check_scalar("discount_spec", environment.discount_spec())
        self.metadata = {"render_modes": []}
        if hasattr(environment, "control_timestep"):
            frame_rate = rendering.frames_per_second(environment)
            self.metadata = {"render_modes": ["rgb_array"], "render_fps": frame_rate}
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(
                f"`render_mode` must be None or one of {self.metadata['render_modes']}, got '{render_mode}'. "
                "Rendering needs an environment with a `control_timestep`, as dm_control's do."
            )
        self.observation_space = gymnasium_spaces.to_space(environment.observation_spec(), "observation")
        self.action_space = gymnasium_spaces.to_space(environment.action_spec(), "action")
        self.render_mode = render_mode
        self.environment = environment
        self._action_spec = environment.action_spec()
        self._render = render
        self._needs_reset = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode; a seed determines this episode and the following ones.

        Raises:
            ValueError: The environment cannot be seeded, or there are options, which dm_env does not have.
        """
        super().reset(seed=seed)
        if options:
            raise ValueError(f"`options` must be empty, since dm_env's `reset` takes none, got {options}.")
        if seed is not None:
            self._seed(seed)
        timestep = self.environment.reset()
        self._needs_reset = False
        return self._observation(timestep), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Makes one step.

        Raises:
            gymnasium.error.ResetNeeded: No episode is open.
        """
        if self._needs_reset:
            # dm_env would start the next episode and ignore the action, which Gymnasium has no way to tell.
            raise gymnasium.error.ResetNeeded("`step` must follow a `reset`, got no open episode.")
        timestep = self.environment.step(
            tree.map_structure_up_to(self._action_spec, _as_spec, self._action_spec, action)
        )
        terminated = bool(timestep.last() and timestep.discount == 0)
        truncated = timestep.last() and not terminated
        self._needs_reset = timestep.last()
        info = self._info() | {"discount": float(timestep.discount)}
        return self._observation(timestep), float(timestep.reward), terminated, truncated, info

    def render(self) -> Any:
        """Returns a frame, uint8 [height, width, 3], or None without a render mode."""
        return None if self.render_mode is None else self._render(self.environment)

    def close(self) -> None:
        self.environment.close()

    def _observation(self, timestep: dm_env.TimeStep) -> Any:
        return gymnasium_spaces.to_gymnasium(self.observation_space, timestep.observation)

    def _info(self) -> dict[str, Any]:
        return dict(self.environment.get_info()) if hasattr(self.environment, "get_info") else {}

    def _seed(self, seed: int) -> None:
        if not hasattr(self.environment, "seed"):
            raise ValueError(
                f"`seed` must be None for an environment without a method `seed`, got {seed}. Make it with "
                "`environments.make`, wrap dm_control's in DmControlRandomState, or add the method to yours."
            )
        self.environment.seed(seed)


def _as_spec(spec: specs.Array, value: Any) -> np.ndarray:
    return np.array(value, dtype=spec.dtype)  # a copy, which the environment may write to


def _check_scalar(name: str, spec: Any) -> None:
    if not isinstance(spec, specs.Array) or spec.shape:
        raise ValueError(
            f"`{name}` must be one scalar for Gymnasium, got {tree.map_structure(specs.describe, spec)}. "
            "Reduce it in a wrapper around the dm_env environment, rewards in ScalarRewardWrapper."
        )
