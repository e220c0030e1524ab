"""Environments of Brax and MuJoCo Playground as batched environments, in tensors that share JAX's memory."""

import functools
from typing import Any

import dm_env
import numpy as np
import torch
import tree
from torch.utils import dlpack

from minerva_acme import core, specs, types
from minerva_acme.environments import batched

_MID = int(dm_env.StepType.MID)
_SEEDS = 2**32


class BatchedBrax(batched.BatchedEnvironment, core.Saveable):
    """B environments of Brax or MuJoCo Playground, which JAX simulates on one device.

        reset(key) -> state
        step(state, action) -> state    with obs, reward, done and info

    Both have these methods, for one environment. Their wrappers that reset by themselves lose the last
    observation and often repeat the same first state, so this class resets instead, with a new random first
    state for each episode. A step is one compiled function, which also returns the last observations. It
    resets nothing in steps in which no episode ends.

    An episode ends by `done`, a terminal with discount 0, or after `episode_length` steps, a time limit with
    discount 1. A `truncation` in the infos, which Brax's `EpisodeWrapper` sets, is a time limit too.
    `time_out` is ignored: Brax's own environments set it at a fall.

    Actions are within [-1, 1]. Observations have no bounds; a dict of them stays a dict. Tensors share the
    memory of JAX's arrays, which must not be written to. `save` holds the open episodes and the random key.
    """

    def __init__(
        self,
        environment: Any,
        num_environments: int,
        *,
        episode_length: int,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        """Makes the environments. The first steps compile, once for all batches of one environment and size.

        Args:
            environment: One environment, such as `brax.envs.get_environment("ant")` or
                `mujoco_playground.registry.load("CartpoleSwingup")`. It may be vectorised by a wrapper, for
                example to randomise the domain.
            num_environments: B.
            episode_length: The time limit, in steps.
            seed: The seed of the first states and of what the environment draws.
            device: The device of the tensors. JAX must have been installed for it.

        Raises:
            ModuleNotFoundError: JAX is not installed.
            ValueError: The environment resets by itself, or a number is out of range.
        """
        jax = _jax()
        wrappers = _wrapper_names(environment)
        if resetting := [name for name in wrappers if "AutoReset" in name]:
            raise ValueError(
                f"`environment` must not reset by itself, got one with {resetting[0]}, which loses the last "
                "observation of an episode. In Brax, use `envs.get_environment(name)`, or "
                "`envs.create(name, auto_reset=False)`."
            )
        if episode_length < 1:
            raise ValueError(f"`episode_length` must be >= 1 step, got {episode_length}.")
        if not 0 <= seed < _SEEDS:
            raise ValueError(f"`seed` must be in [0, 2**32), got {seed}.")
        is_vectorized = any("Vmap" in name for name in wrappers)
        self._reset, self._step = _compile(environment, is_vectorized, num_environments, episode_length)
        key = jax.random.PRNGKey(seed)
        shapes, first = jax.eval_shape(self._reset, key)
        super().__init__(num_environments, _make_spec(first, int(environment.action_size)), device)
        self._structure = jax.tree.structure(shapes)
        kind = "gpu" if self.device.type == "cuda" else self.device.type
        self._jax_device = jax.devices(kind)[self.device.index or 0]
        self._key = jax.device_put(key, self._jax_device)
        self._state: Any = None  # of all episodes, before the first reset

    def reset(self) -> types.BatchedTimeStep:
        (self._key, *self._state), observation = self._reset(self._key)
        return self.restart(tree.map_structure(dlpack.from_dlpack, observation))

    def step(self, actions: types.NestedTensor) -> types.BatchedTimeStep:
        self.check_actions(actions, self._state is not None)
        # Shared too: they have been read when the tensors below can be, and are not part of the state.
        shared = _jax().numpy.from_dlpack(actions.detach().contiguous())
        (self._key, *self._state), timestep = self._step((self._key, *self._state), shared)
        return tree.map_structure(dlpack.from_dlpack, timestep)

    def save(self) -> core.State:
        leaves = _jax().tree.leaves((self._key, *(self._state or ())))
        return {"leaves": [torch.from_numpy(np.array(leaf)) for leaf in leaves]}

    def restore(self, state: core.State) -> None:
        jax = _jax()
        # Copies, since JAX may share the memory of what it is given.
        leaves = [jax.device_put(leaf.cpu().numpy().copy(), self._jax_device) for leaf in state["leaves"]]
        self._key, self._state = leaves[0], None
        if len(leaves) > 1:
            _, *self._state = jax.tree.unflatten(self._structure, leaves)


@functools.lru_cache(maxsize=16)  # training and all evaluations share what is compiled
def _compile(
    environment: Any, is_vectorized: bool, num_environments: int, episode_length: int
) -> tuple[Any, Any]:
    """Returns the functions that begin an episode everywhere, and that make a step.

    They return (key, steps [B], state) and what it shows: the observation, and the timestep.
    """
    jax = _jax()
    jnp = jax.numpy
    reset, step = environment.reset, environment.step
    if not is_vectorized:
        reset, step = jax.vmap(reset), jax.vmap(step)

    def draw(key: Any) -> tuple[Any, Any]:
        keys = jax.random.split(key, 1 + num_environments)
        return keys[0], reset(keys[1:])

    def begin(key: Any) -> tuple[Any, Any]:
        key, state = draw(key)
        return _strong((key, jnp.zeros(num_environments, jnp.int32), state)), state.obs

    def advance(carry: Any, actions: Any) -> tuple[Any, types.BatchedTimeStep]:
        key, steps, state = carry
        stepped = step(state, actions)
        steps, is_done = steps + 1, stepped.done > 0
        is_last = is_done | (steps >= episode_length)
        is_terminal = is_done & ~(stepped.info.get("truncation", jnp.zeros_like(is_done)) > 0)

        def begin_where_ended(carry: Any) -> Any:
            key, first = draw(carry[0])

            def choose(one: Any, other: Any) -> Any:
                return jnp.where(is_last.reshape(-1, *[1] * (one.ndim - 1)), one, other)

            return key, *jax.tree.map(choose, (jnp.zeros_like(steps), first), carry[1:])

        carry = _strong((key, steps, stepped))
        newest = jax.lax.cond(
            is_last.any(), lambda carry: _strong(begin_where_ended(carry)), lambda carry: carry, carry
        )
        return newest, types.BatchedTimeStep(
            step_type=is_last.astype(jnp.uint8) + jnp.uint8(_MID),
            reward=stepped.reward.astype(jnp.float32),
            discount=1.0 - is_terminal.astype(jnp.float32),
            observation=stepped.obs,
            newest=newest[-1].obs,
        )

    return jax.jit(begin), jax.jit(advance)


def _strong(values: Any) -> Any:
    """Makes the dtypes of arrays their own: those of Python's numbers are weak, and would compile again."""
    jax = _jax()

    def strong(leaf: Any) -> Any:
        return jax.lax.convert_element_type(leaf, jax.numpy.asarray(leaf).dtype)

    return jax.tree.map(strong, values)


def _make_spec(observations: Any, num_actions: int) -> specs.EnvironmentSpec:
    """Makes the specs of one environment from the shapes of all environments' observations."""
    return specs.EnvironmentSpec(
        observations=tree.map_structure(
            lambda leaf: specs.Array(leaf.shape[1:], leaf.dtype, name="observation"), observations
        ),
        actions=specs.BoundedArray((num_actions,), np.float32, -1.0, 1.0, name="action"),
    )


def _wrapper_names(environment: Any) -> list[str]:
    """Returns the names of the classes of the wrappers around an environment, the outermost first."""
    names = []
    while (inner := vars(environment).get("env")) is not None:
        names.append(type(environment).__name__)
        environment = inner
    return names


def _jax() -> Any:
    try:
        import jax
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "Environments of Brax and MuJoCo Playground need JAX, which is not installed: pip install "
            "'minerva-acme[playground]'",
            name="jax",
        ) from error
    return jax
