"""Gymnasium environments as dm_env environments."""

import contextlib
import operator
from collections.abc import Sequence
from typing import Any

import dm_env
import gymnasium

from minerva_acme import core, specs, types
from minerva_acme.environments import gymnasium_spaces, importing, multi_agent, vector
from minerva_acme.wrappers import random_state

_ITS_MODELS = "gymnasium.envs.mujoco"
_STEP_RESULT = "(observation, reward, terminated, truncated, info)"


class GymnasiumEnvironment(specs.SpecMethods, dm_env.Environment, core.Saveable):
    """Makes a Gymnasium environment a dm_env environment.

        terminated   -> LAST, discount 0 (also when truncated in the same step)
        truncated    -> LAST, discount 1
        neither      -> MID,  discount 1

    The observation of a LAST timestep is the true last one. A step before the first reset or after LAST
    ignores its action, resets and returns FIRST.

    Spaces become specs: Box a bounded array (an array if no bound is finite), Discrete a discrete array
    counted from 0 regardless of its start, MultiDiscrete and MultiBinary bounded integer arrays, Text an
    array of strings, Dict and Tuple nests of these. A vector of rewards, which an environment such as those
    of MO-Gymnasium tells by its `reward_space`, becomes a dict of numbers. `GymnasiumFromDmEnv` is the
    inverse. The attribute `environment` is the Gymnasium environment.
    """

    def __init__(
        self,
        environment: gymnasium.Env[Any, Any] | str,
        *,
        seed: int | None = None,
        reward_names: Sequence[str] | None = None,
        **make_kwargs: Any,
    ) -> None:
        """Initialises the adapter.

        Args:
            environment: An environment, or the id of one that is registered in Gymnasium.
            seed: The seed of the first reset, or None for a new one; later resets continue from there.
            reward_names: The names of the K rewards of an environment with a `reward_space`, or None for
                0 ... K - 1.
            **make_kwargs: Arguments of `gymnasium.make`; only with an id.

        Raises:
            ValueError: A space has no dm_env spec, the names do not fit, there are several agents, or it is a
                class or a vector of environments.
        """
        if isinstance(environment, str):
            # Its warnings are for authors of environments; the adapter itself enforces the spaces' dtypes.
            make_kwargs.setdefault("disable_env_checker", True)
            entry_point = getattr(gymnasium.registry.get(environment), "entry_point", None)
            is_its_own = str(entry_point).startswith(_ITS_MODELS)
            with importing.others_model() if is_its_own else contextlib.nullcontext():
                environment = gymnasium.make(environment, **make_kwargs)
        elif make_kwargs:
            raise ValueError(
                f"`make_kwargs` must be empty unless `environment` is an id, got {sorted(make_kwargs)}."
            )
        vector.check_is_single(environment)
        multi_agent.check_is_of_one_agent(environment)
        if gymnasium_spaces.is_of_gym(environment):
            found = f"{type(environment).__name__} of {gymnasium_spaces.OLD_GYM}"
            raise ValueError(f"`environment` must be one of Gymnasium's, got {found}")
        self.environment = environment
        self._specs = gymnasium_spaces.environment_spec(
            environment.observation_space,
            environment.action_space,
            gymnasium_spaces.reward_space(environment),
            reward_names,
        )
        gymnasium_spaces.mark_actions(self, environment.action_space)
        self._next_seed = seed
        self._reset_next_step = True
        self._info: dict[str, Any] = {}

    def reset(self) -> dm_env.TimeStep:
        seed, self._next_seed = self._next_seed, None
        seed = None if seed is None else operator.index(seed)  # Gymnasium refuses numpy's integers
        observation, self._info = _unpack(self.environment.reset(seed=seed), "reset", "(observation, info)")
        self._reset_next_step = False
        return dm_env.restart(self._observation(observation))

    def step(self, action: types.NestedArray) -> dm_env.TimeStep:
        if self._reset_next_step:
            return self.reset()
        gymnasium_action = gymnasium_spaces.to_gymnasium(self.environment.action_space, action)
        result = self.environment.step(gymnasium_action)
        observation, reward, terminated, truncated, self._info = _unpack(result, "step", _STEP_RESULT)
        self._reset_next_step = bool(terminated or truncated)
        if reward is not None:  # numpy would convert None to NaN
            reward = gymnasium_spaces.to_reward(self._specs.rewards, reward)
        if terminated:
            return dm_env.termination(reward, self._observation(observation))
        if truncated:
            return dm_env.truncation(reward, self._observation(observation), discount=1.0)
        return dm_env.transition(reward, self._observation(observation), discount=1.0)

    def get_info(self) -> dict[str, Any]:
        """Returns the `info` of the last step or reset."""
        return self._info

    def render(self) -> Any:
        """Returns Gymnasium's rendering.

        Raises:
            ValueError: The environment was made without a `render_mode`.
        """
        if self.environment.render_mode is None:
            raise ValueError(
                "`render_mode` must be set for `render`, got None. Make the environment with "
                "render_mode='rgb_array', an argument that a class of your own must take, and keep."
            )
        return self.environment.render()

    def control_timestep(self) -> float:
        """Returns the seconds from one frame to the next: 1 / `render_fps` of Gymnasium's metadata.

        If it is missing, the rate is 30 frames per second, as in Gymnasium's own recorder.
        """
        return 1.0 / float(self.environment.metadata.get("render_fps") or 30)

    def seed(self, seed: int) -> None:
        """Seeds the next episode and all later ones."""
        self._next_seed = seed
        self._reset_next_step = True

    def close(self) -> None:
        self.environment.close()

    def save(self) -> core.State:
        """Returns the state of the random generator, `np_random`, without the open episode.

        Both kinds of numpy's generators can be saved, `Generator` and `RandomState`. For any other generator,
        or none, the state is unknown: None is returned, and `run_experiment` warns once.
        """
        random = random_state.save_generator(getattr(self._unwrapped(), "np_random", None))
        return None if random is None else {"next_seed": self._next_seed, "random": random}

    def restore(self, state: core.State) -> None:
        """Restores a saved random generator and drops the episode in progress.

        Raises:
            ValueError: The environment's generator is of a different kind than the saved one.
        """
        self._reset_next_step = True
        if state is None:
            return
        self._next_seed = state["next_seed"]
        inner = self._unwrapped()
        if not random_state.restore_generator(getattr(inner, "np_random", None), state["random"]):
            # Some environments make their generator in the first reset.
            self.environment.reset(seed=0)
            found = getattr(inner, "np_random", None)
            if not random_state.restore_generator(found, state["random"]):
                raise ValueError(
                    f"`np_random` of {type(inner).__name__} must be of the kind that was saved, got a "
                    f"{type(found).__name__}. Resume with the environment, and the versions of its packages, "
                    "that the run began with."
                )

    def _unwrapped(self) -> Any:
        """Returns the environment inside Gymnasium's wrappers; if it has no `unwrapped`, the outer one."""
        return getattr(self.environment, "unwrapped", self.environment)

    def _observation(self, observation: Any) -> types.NestedArray:
        return gymnasium_spaces.from_gymnasium(self.environment.observation_space, observation)


def _unpack(result: Any, method: str, expected: str) -> tuple[Any, ...]:
    """Returns a result of a Gymnasium environment, whose form has changed between versions."""
    if isinstance(result, tuple) and len(result) == expected.count(",") + 1:
        return result
    found = f"{len(result)} values" if isinstance(result, tuple) else f"a {type(result).__name__}"
    advice = "Return that in it, or in a wrapper around it."
    if method == "reset" or found == "4 values":
        old = "(observation, reward, done, info)" if method == "step" else "only the observation"
        advice = (
            f"Gym returned {old} before 0.26: it or a wrapper around it was written for that. Port it, or "
            "convert it to Gymnasium with shimmy's GymV21Environment-v0."
        )
    raise specs.SpecError(
        f"`{method}` of a Gymnasium environment must return {expected}, got {found}. {advice}"
    )
