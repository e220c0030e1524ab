"""Gymnasium's and EnvPool's vector environments as batched environments, in tensors."""

from typing import Any

import numpy as np
import torch
import tree
from gymnasium import vector as gymnasium_vector

from minerva_acme import specs, types
from minerva_acme.environments import batched, gymnasium_spaces

_SAME_STEP = gymnasium_vector.AutoresetMode.SAME_STEP
_DISABLED = gymnasium_vector.AutoresetMode.DISABLED


def make_gymnasium_batch(
    vector_environment: gymnasium_vector.VectorEnv[Any, Any, Any],
    *,
    seed: int | None = None,
    device: torch.device | str = "cpu",
) -> batched.SimulatorEnvironment:
    """Makes one of Gymnasium's vector environments, or a pool of EnvPool, a batched environment.

        autoreset mode   adapter             last observations
        NEXT_STEP        NextStepResets      are what `step` returns
        SAME_STEP        FinalObservations   `final_obs` in the infos
        DISABLED         MaskedResets        are what `step` returns; it is reset here, by `reset_mask`
        EnvPool          MaskedResets        the same, before it would reset by itself in the next step

    Spaces are converted as in `GymnasiumVectorEnvironment`, to 32 bits.

    These vectors compute on the host, and Gymnasium's one environment at a time, so a batch makes them no
    faster: it saves what an ordinary run does for each environment.

    Args:
        vector_environment: The vector, which the batched environment owns and closes. A pool is one of
            `envpool.make(..., env_type="gymnasium")`. In one of Gymnasium's wrappers, it has NEXT_STEP.
        seed: The first reset seeds environment i with `seed + i`; later resets continue from there. None
            gives new seeds. The seed of a pool is set in `envpool.make`.
        device: The device of the tensors.

    Raises:
        ValueError: A space has no dm_env spec, there are several rewards, or the autoreset mode is missing. A
            pool has another form, steps only some of its environments at a time, has several players, or is
            given a seed.
    """
    is_pool = _is_pool(vector_environment, seed)
    mode = _DISABLED if is_pool else gymnasium_spaces.autoreset_mode(vector_environment)
    simulator = _Simulator(vector_environment, mode, seed, resets_rows=is_pool)
    environment_spec = gymnasium_spaces.vector_spec(vector_environment)
    if isinstance(environment_spec.rewards, dict):
        raise ValueError(
            f"`vector_environment` must have one reward, got {len(environment_spec.rewards)} by its "
            "`reward_space`. Use `GymnasiumVectorEnvironment`, which gives them as a dict."
        )
    arguments: dict[str, Any] = {
        "simulator": simulator,
        "environment_spec": environment_spec,
        "num_environments": int(vector_environment.num_envs),
        "device": device,
        "from_tensor": lambda actions: actions.cpu().numpy(),
    }
    made: batched.SimulatorEnvironment
    if mode == gymnasium_vector.AutoresetMode.NEXT_STEP:
        made = batched.NextStepResets(**arguments)
    elif mode == _SAME_STEP:
        made = batched.FinalObservations(**arguments, final_observation=lambda infos: infos["final_obs"])
    else:
        made = batched.MaskedResets(**arguments, reset_where=simulator.reset_where)
    gymnasium_spaces.mark_actions(made, vector_environment.single_action_space)
    return made


def _is_pool(vector_environment: Any, seed: int | None) -> bool:
    """Returns whether a vector is a pool of EnvPool, in no wrapper.

    Raises:
        ValueError: It contains a pool that cannot be a batched environment, or that is given a seed.
    """
    inner = getattr(vector_environment, "unwrapped", vector_environment)
    config = getattr(inner, "config", None)
    if not isinstance(config, dict) or not {"num_envs", "batch_size"} <= config.keys():
        return False
    if not isinstance(inner, gymnasium_vector.VectorEnv):
        raise ValueError(
            "`vector_environment` must be one of Gymnasium's, or a pool made by "
            f"envpool.make(..., env_type='gymnasium'), got {type(inner).__name__}. Every task has that form, "
            "which tells time limits from true ends."
        )
    if config["batch_size"] not in (0, config["num_envs"]) or config.get("max_num_players", 1) != 1:
        raise ValueError(
            "A pool must step all of its environments, with one player each, got batch_size "
            f"{config['batch_size']} of {config['num_envs']} and {config.get('max_num_players')} players. "
            "Make it without `batch_size`."
        )
    if seed is not None:
        raise ValueError(
            f"`seed` must be None for a pool, which would ignore it, got {seed}. Pass it to envpool.make."
        )
    return inner is vector_environment


class _Simulator:
    """A vector with the methods that `SimulatorEnvironment` calls, on arrays that conform to the specs."""

    def __init__(
        self,
        vector_environment: gymnasium_vector.VectorEnv[Any, Any, Any],
        mode: gymnasium_vector.AutoresetMode,
        seed: int | None,
        *,
        resets_rows: bool,
    ) -> None:
        self._vector = vector_environment
        self._resets_rows = resets_rows  # a reset returns those of `env_id` alone
        self._mode = mode
        self._next_seed = seed
        self._newest: types.NestedArray = None

    def reset(self) -> tuple[types.NestedArray, Any]:
        observation, infos = self._vector.reset(seed=self._next_seed)
        self._next_seed = None
        self._newest = gymnasium_spaces.from_vector(self._vector, observation)
        return self._newest, infos

    def step(self, actions: types.NestedArray) -> tuple[Any, ...]:
        actions = gymnasium_spaces.to_gymnasium(self._vector.single_action_space, actions)
        observation, reward, terminated, truncated, infos = self._vector.step(actions)
        self._newest = gymnasium_spaces.from_vector(self._vector, observation)
        if self._mode == _SAME_STEP:
            infos = {"final_obs": self._last(np.logical_or(terminated, truncated), infos)}
        return self._newest, reward, terminated, truncated, infos

    def reset_where(self, mask: torch.Tensor) -> types.NestedArray:
        where = mask.cpu().numpy()
        if where.any():  # Gymnasium refuses an empty mask
            observation, infos = self._vector.reset(options={"reset_mask": where})
            begun = gymnasium_spaces.from_vector(self._vector, observation)
            if self._resets_rows:
                _set_rows(self._newest, infos["env_id"], begun)  # the batch has copied what it returned
            else:
                self._newest = begun
        return self._newest

    def close(self) -> None:
        self._vector.close()

    def _last(self, has_ended: np.ndarray[Any, Any], infos: dict[str, Any]) -> types.NestedArray:
        """Returns the last observations where an episode has ended, and elsewhere the newest ones."""
        last = tree.map_structure(np.copy, self._newest)
        for index in np.flatnonzero(has_ended):
            if "final_obs" not in infos or infos["final_obs"][index] is None:
                raise specs.SpecError(
                    f"In the mode SAME_STEP, the infos of {type(self._vector.unwrapped).__name__} must hold "
                    f"`final_obs`, the last observation of an episode, got {sorted(infos)}. Choose the mode "
                    "NEXT_STEP or DISABLED, or add `final_obs`."
                )
            _set_rows(last, index, gymnasium_spaces.from_vector(self._vector, infos["final_obs"][index]))
        return last


def _set_rows(batch: types.NestedArray, rows: Any, values: types.NestedArray) -> None:
    tree.map_structure(lambda leaf, own: leaf.__setitem__(rows, own), batch, values)
