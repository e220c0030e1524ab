"""A body of your own: an MJCF file, and a task around it in dm_control's Composer.

    python examples/own_body.py                                      # random actions, to see that it works
    cd examples && minerva train mpo --env own_body:reach --preset modern --num-env-steps 20000

docs/how-to/own-body.md goes on from here: check it, film it, and run the policy without this library.
"""

import pathlib

import dm_env
import numpy as np
from dm_control import composer, mjcf
from dm_control.composer.observation import observable

MODEL = pathlib.Path(__file__).with_name("arm.xml")
REACH = 0.4  # metres, with the elbow straight


class Arm(composer.Entity):
    """The body: what the file holds, and what the body senses of itself."""

    def _build(self) -> None:
        self._model = mjcf.from_path(str(MODEL))
        self.joints = self._model.find_all("joint")

    @property
    def mjcf_model(self) -> mjcf.RootElement:
        return self._model

    def _build_observables(self) -> composer.Observables:
        return ArmObservables(self)


class ArmObservables(composer.Observables):
    def __init__(self, arm: Arm) -> None:
        self._joints = arm.joints
        super().__init__(arm)

    @composer.observable
    def angles(self) -> observable.MJCFFeature:
        return observable.MJCFFeature("qpos", self._joints)

    @composer.observable
    def velocities(self) -> observable.MJCFFeature:
        return observable.MJCFFeature("qvel", self._joints)


class Reach(composer.Task):
    """The hand must reach a target and stay. The reward is 1 on the target, and falls with the distance."""

    def __init__(self) -> None:
        self._arm = Arm()
        model = self._arm.mjcf_model
        self._hand, self._target = model.find("site", "hand"), model.find("body", "target")
        self._to_target = observable.Generic(self._vector)
        self._to_target.enabled = True
        self._arm.observables.enable_all()
        self.control_timestep = 0.04  # seconds of one action: 8 steps of the simulation

    @property
    def root_entity(self) -> composer.Entity:
        return self._arm

    @property
    def task_observables(self) -> dict[str, observable.Generic]:
        return {"to_target": self._to_target}

    def initialize_episode(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        joints = physics.bind(self._arm.joints)
        joints.qpos = random_state.uniform(*joints.range.T)
        radius, angle = random_state.uniform(0.4, 0.9) * REACH, random_state.uniform(-np.pi / 2, np.pi / 2)
        physics.bind(self._target).mocap_pos = radius * np.array([np.cos(angle), np.sin(angle), 0.0])

    def get_reward(self, physics: mjcf.Physics) -> float:
        return float(np.exp(-10.0 * np.linalg.norm(self._vector(physics))))

    def _vector(self, physics: mjcf.Physics) -> np.ndarray:
        """From the hand to the target, in metres."""
        return physics.bind(self._target).xpos - physics.bind(self._hand).xpos


def reach(seed: int, num_steps: int = 100) -> dm_env.Environment:
    """Makes the environment. Its time limit is no terminal state: the last discount is 1."""
    task = Reach()
    return composer.Environment(
        task,
        time_limit=(num_steps - 0.5) * task.control_timestep,  # half a step less: times are sums of floats
        random_state=seed,
        strip_singleton_obs_buffer_dim=True,  # observations of shape (2,), not (1, 2)
        recompile_mjcf_every_episode=False,  # the model is always the same
    )


def main() -> float:
    """Returns the return of an episode of random actions."""
    environment, random = reach(seed=0), np.random.default_rng(0)
    spec, timestep, total = environment.action_spec(), environment.reset(), 0.0
    while not timestep.last():
        timestep = environment.step(random.uniform(spec.minimum, spec.maximum))
        total += timestep.reward
    return total


if __name__ == "__main__":
    result = main()
    print(f"return of random actions: {result:.1f}, at most 100")
