"""EnvPool's environments in their dm_env form, as a vector environment."""

from collections.abc import Mapping, Sequence
from typing import Any

import dm_env
import numpy as np
import tree

from minerva_acme import specs, types
from minerva_acme.environments import vector
from minerva_acme.wrappers import single_precision, spec_check

_OF_THE_POOL = ("env_id", "players")  # fields of every observation that tell its environment and players


class EnvPoolEnvironment(vector.VectorEnvironment):
    """Makes `envpool.make(..., env_type="dm")` a vector environment.

    EnvPool resets an environment in the step after its LAST, as dm_env does, so that the last observation is
    the true one. An observation is a dict of the task's fields, or the field itself if there is only one.
    Everything is narrowed to 32 bits.

    **Time limits.** EnvPool's Gymnasium-like tasks give discount 0 at a time limit, as at a true end. So an
    episode that reaches `max_episode_steps` of the pool's config counts as truncated there, with discount 1.
    An episode that truly ends in exactly that step cannot be told apart; EnvPool's Gymnasium form
    (`GymnasiumVectorEnvironment`) does distinguish it.

    The attribute `pool` is EnvPool's pool.
    """

    def __init__(self, pool: Any) -> None:
        """Takes ownership of the pool, and closes it in `close`. Its seed is set in `envpool.make`.

        Raises:
            ValueError: It is not a pool in dm_env's form, steps only some of its environments at a time, or
                has several players.
        """
        config = getattr(pool, "config", None)
        if config is None or not isinstance(pool, dm_env.Environment):
            raise ValueError(
                f"`pool` must be made by envpool.make(..., env_type='dm'), got {type(pool).__name__}. For "
                "env_type='gymnasium' use GymnasiumVectorEnvironment."
            )
        check_config(config)
        self.pool = pool
        self._limit = config.get("max_episode_steps", 0)
        self._action_spec = pool.action_spec()
        wide = specs.EnvironmentSpec(
            observations=tree.map_structure(_without_wrong_bounds, _shown(pool.observation_spec())),
            actions=self._action_spec,
            rewards=specs.Array((), np.float32, name="reward"),
            discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount"),
        )
        narrow = tree.map_structure(single_precision.narrow_spec, wide)
        super().__init__(int(config["num_envs"]), narrow)
        name = type(pool).__name__
        self._checks = [
            spec_check.SpecCheck(narrow, name=name, strict=False) for _ in range(self.num_environments)
        ]
        for index, check in enumerate(self._checks):
            check.set_index(index)
        self._lengths = np.zeros(self.num_environments, np.int64)  # steps of each open episode
        self._reset_next_step = True
        self._closed = False

    def reset(self) -> list[dm_env.TimeStep]:
        self._reset_next_step = True
        firsts = [timesteps[0] for timesteps in self._rows(self.pool.reset())]
        self._reset_next_step = False
        return firsts

    def step(self, actions: Sequence[types.NestedArray]) -> list[tuple[dm_env.TimeStep, ...]]:
        self._check_actions(actions)
        if self._reset_next_step:
            return [(timestep,) for timestep in self.reset()]
        self._reset_next_step = True  # until all environments have made the step
        batch = np.array(actions, self._action_spec.dtype)
        arrived = self._rows(self.pool.step(batch))
        self._reset_next_step = False
        return arrived

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.pool.close()

    def _rows(self, batch: dm_env.TimeStep) -> list[tuple[dm_env.TimeStep, ...]]:
        """Returns the timestep of each environment."""
        observations = single_precision.narrow(_shown(batch.observation))
        step_types = np.asarray(batch.step_type)
        self._lengths = np.where(step_types == dm_env.StepType.FIRST, 0, self._lengths + 1)
        is_cut = (step_types == dm_env.StepType.LAST) & (self._lengths == self._limit)
        rewards = np.asarray(batch.reward, np.float32)
        discounts = np.where(is_cut, 1.0, batch.discount).astype(np.float32)
        arrived: list[tuple[dm_env.TimeStep, ...]] = []
        for index, step_type in enumerate(step_types.tolist()):
            # With the ellipsis, a row of a vector is also an array.
            observation = tree.map_structure(lambda leaf, i=index: leaf[i, ...], observations)
            if step_type == dm_env.StepType.FIRST:
                timestep = dm_env.restart(observation)
            else:
                timestep = dm_env.TimeStep(
                    dm_env.StepType(step_type), rewards[index], discounts[index], observation
                )
            self._checks[index](timestep)
            arrived.append((timestep,))
        return arrived


def check_config(config: Mapping[str, Any]) -> None:
    """Checks the config of a pool in any form.

    Raises:
        ValueError: It steps only some of its environments at a time, or has several players.
    """
    if config["batch_size"] not in (0, config["num_envs"]) or config.get("max_num_players", 1) != 1:
        raise ValueError(
            "A pool must step all of its environments, with one player each, got batch_size "
            f"{config['batch_size']} of {config['num_envs']} and {config.get('max_num_players')} players. "
            "Make it without `batch_size`."
        )


def _shown(state: Any) -> types.NestedArray:
    """Returns the task's part of a state or of its spec."""
    fields = {name: part for name, part in state._asdict().items() if name not in _OF_THE_POOL}
    return next(iter(fields.values())) if len(fields) == 1 else fields


def _without_wrong_bounds(spec: specs.Array) -> specs.Array:
    """Removes EnvPool's wrong lower bounds: the smallest positive number, where there should be no bound."""
    if isinstance(spec, specs.BoundedArray) and spec.dtype.kind == "f":
        low, _ = specs.bounds(spec)
        if (low == np.finfo(np.float64).tiny).any() or (low == np.finfo(np.float32).tiny).any():
            return specs.Array(spec.shape, spec.dtype, name=spec.name)
    return spec
