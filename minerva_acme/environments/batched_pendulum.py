"""A pendulum to swing up, B of them in tensors: a small task for tests, examples and measurements."""

import math

import numpy as np
import torch

from minerva_acme import core, specs, types
from minerva_acme.environments import batched
from minerva_acme.machine import generators

_GRAVITY, _STEP_SECONDS = 10.0, 0.05
_MAX_SPEED, _MAX_TORQUE = 8.0, 2.0
_SPECS = specs.EnvironmentSpec(
    observations=specs.BoundedArray(
        (3,), np.float32, [-1.0, -1.0, -_MAX_SPEED], [1.0, 1.0, _MAX_SPEED], name="observation"
    ),
    actions=specs.BoundedArray((1,), np.float32, -_MAX_TORQUE, _MAX_TORQUE, name="action"),
)


class BatchedPendulum(batched.BatchedEnvironment, core.Saveable):
    """B pendulums with the equations, rewards and time limit of Gymnasium's Pendulum-v1.

    A rod of 1 m and 1 kg hangs from a motor that is too weak to lift it directly. With the angle th from the
    upright position, the speed w and the torque u, clipped to [-2, 2] Nm, each step of 0.05 s is

        reward = -(th^2 + 0.1 w^2 + 0.001 u^2)                  th in [-pi, pi), before the step
        w <- clip(w + 0.05 (3 g / 2 sin th + 3 u), -8, 8)       g = 10 m / s^2
        th <- th + 0.05 w

    The observation is (cos th, sin th, w). An episode begins with th in [-pi, pi) and w in [-1, 1) and ends
    by its time limit, never by a terminal. A random policy scores about -1,200; the best known ones about
    -150.

    No number is read on the host. `save` holds the episodes in progress.

    Source: Gymnasium's `classic_control/pendulum.py`.
    """

    def __init__(
        self,
        num_environments: int,
        *,
        generator: torch.Generator | None,
        device: torch.device | str = "cpu",
        time_limit: int = 200,
        staggered: bool = False,
    ) -> None:
        """Makes the pendulums.

        Args:
            num_environments: B.
            generator: Draws the first states, on `device`. None: torch's default one.
            device: The device of all tensors.
            time_limit: The number of steps of an episode.
            staggered: Whether the first episodes have random lengths, so that not all end in the same step.

        Raises:
            ValueError: A number is below 1.
        """
        super().__init__(num_environments, _SPECS, device)
        if time_limit < 1:
            raise ValueError(f"`time_limit` must be >= 1 step, got {time_limit}.")
        self._generator = generator
        self._time_limit = time_limit
        self._staggered = staggered
        self._state: tuple[torch.Tensor, ...] = ()  # angle, speed and number of steps, [B] each

    def reset(self) -> types.BatchedTimeStep:
        steps = torch.zeros(self.num_environments, dtype=torch.int64, device=self.device)
        if self._staggered:
            steps = (self._draw(0.0, 1.0) * self._time_limit).long()
        self._state = (*self._first_states(), steps)
        return self.restart(self._observe(*self._state[:2]))

    def step(self, actions: types.NestedTensor) -> types.BatchedTimeStep:
        self.check_actions(actions, bool(self._state))
        angle, speed, steps = self._state
        torque = actions[:, 0].clamp(-_MAX_TORQUE, _MAX_TORQUE)
        upright = (angle + math.pi) % (2.0 * math.pi) - math.pi
        reward = -(upright.square() + 0.1 * speed.square() + 0.001 * torque.square())
        speed = speed + _STEP_SECONDS * (1.5 * _GRAVITY * angle.sin() + 3.0 * torque)
        speed = speed.clamp(-_MAX_SPEED, _MAX_SPEED)
        angle = angle + _STEP_SECONDS * speed
        steps = steps + 1
        is_last = steps >= self._time_limit
        observation = self._observe(angle, speed)
        first = (*self._first_states(), torch.zeros_like(steps))
        self._state = batched.choose(is_last, first, (angle, speed, steps))
        return types.BatchedTimeStep(
            step_type=is_last.to(torch.uint8) + 1,
            reward=reward,
            discount=torch.ones_like(reward),
            observation=observation,
            newest=batched.choose(is_last, self._observe(*first[:2]), observation),
        )

    def save(self) -> core.State:
        noise = None if self._generator is None else self._generator.get_state()
        return {"state": [part.clone() for part in self._state], "generator": noise}

    def restore(self, state: core.State) -> None:
        self._state = tuple(part.to(self.device) for part in state["state"])
        if self._generator is not None:
            generators.restore(self._generator, state["generator"])

    def _first_states(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self._draw(-math.pi, math.pi), self._draw(-1.0, 1.0)

    def _draw(self, low: float, high: float) -> torch.Tensor:
        share = torch.rand(self.num_environments, generator=self._generator, device=self.device)
        return low + (high - low) * share

    def _observe(self, angle: torch.Tensor, speed: torch.Tensor) -> torch.Tensor:
        return torch.stack([angle.cos(), angle.sin(), speed], dim=-1)
