"""A batched environment that counts, and the contract of batched environments as tests to inherit.

class TestMyBatchedEnvironment(testing.BatchedEnvironmentConformance):
    def make_environment(self):
        return MyBatchedEnvironment(...)
"""

import abc
from collections.abc import Sequence

import dm_env
import numpy as np
import torch
import tree

from minerva_acme import core, environments, specs, types
from minerva_acme.environments import batched, batched_check
from minerva_acme.machine import generators
from minerva_acme.testing import checks, vector_conformance

_FIRST, _MID, _LAST = (int(step_type) for step_type in dm_env.StepType)


class FakeBatchedEnvironment(batched.BatchedEnvironment, core.Saveable):
    """B environments with episodes of random lengths, half of which end by a terminal, half by a time limit.

    An observation is (index of the environment, number of its episode, number of the step), so that all
    differ. A reward is a random number plus the sum of the action; discounts before the end are random. No
    number is read on the host, and `save` holds the open episodes.
    """

    def __init__(
        self,
        num_environments: int = 7,
        *,
        max_length: int = 6,
        resets_in_next_step: bool = False,
        generator: torch.Generator | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        """Makes the environments.

        Args:
            num_environments: B.
            max_length: The largest number of steps of an episode; the smallest is 1.
            resets_in_next_step: Whether an episode begins in the call after the one that ended the last one.
            generator: Draws lengths, ends, rewards and discounts, on `device`. None: torch's default one.
            device: The device of all tensors.
        """
        environment_spec = specs.EnvironmentSpec(
            observations=specs.Array((3,), np.float32, name="observation"),
            actions=specs.BoundedArray((2,), np.float32, -1.0, 1.0, name="action"),
        )
        super().__init__(num_environments, environment_spec, device)
        self.resets_in_next_step = resets_in_next_step
        self._max_length = max_length
        self._generator = generator
        self._state: dict[str, torch.Tensor] = {}

    def reset(self) -> types.BatchedTimeStep:
        ones = torch.ones(self.num_environments, device=self.device)
        self._state = {
            "episode": self._state["episode"] + 1.0 if self._state else torch.zeros_like(ones),
            "step": torch.zeros_like(ones),
            "length": self._draw_lengths(),
            "has_ended": torch.zeros_like(ones, dtype=torch.bool),
        }
        return self.restart(self._observe(self._state))

    def step(self, actions: types.NestedTensor) -> types.BatchedTimeStep:
        self.check_actions(actions, bool(self._state))
        lengths, reward = self._draw_lengths(), self._draw() + actions.sum(-1)
        discount = 0.5 + 0.5 * self._draw()
        end = (self._draw() < 0.5).float()  # 0 at a terminal, 1 at a time limit
        before = self._state
        begun = {
            "episode": before["episode"] + 1.0,
            "step": torch.zeros_like(before["step"]),
            "length": lengths,
            "has_ended": torch.zeros_like(before["has_ended"]),
        }
        state = {**before, "step": before["step"] + 1.0}
        begins = before["has_ended"]  # only if it resets in the next step
        state = batched.choose(begins, begun, state)
        is_last = (state["step"] >= state["length"]) & ~begins
        step_type = is_last.to(torch.uint8) + _MID
        observation = self._observe(state)
        state["has_ended"] = is_last
        self._state = state if self.resets_in_next_step else batched.choose(is_last, begun, state)
        return types.BatchedTimeStep(
            step_type=step_type.masked_fill(begins, _FIRST),
            reward=reward.masked_fill(begins, 0.0),
            discount=torch.where(is_last, end, discount).masked_fill(begins, 1.0),
            observation=observation,
            newest=observation if self.resets_in_next_step else self._observe(self._state),
        )

    def save(self) -> core.State:
        noise = None if self._generator is None else self._generator.get_state()
        return {"state": {name: part.clone() for name, part in self._state.items()}, "generator": noise}

    def restore(self, state: core.State) -> None:
        self._state = {name: part.to(self.device) for name, part in state["state"].items()}
        if self._generator is not None:
            generators.restore(self._generator, state["generator"])

    def _draw(self) -> torch.Tensor:
        return torch.rand(self.num_environments, generator=self._generator, device=self.device)

    def _draw_lengths(self) -> torch.Tensor:
        return 1.0 + (self._draw() * self._max_length).floor()

    def _observe(self, state: dict[str, torch.Tensor]) -> torch.Tensor:
        index = torch.arange(self.num_environments, dtype=torch.float32, device=self.device)
        return torch.stack([index, state["episode"], state["step"]], dim=-1)


class BatchedEnvironmentConformance(vector_conformance.SeveralConformance):
    """Tests of a batched environment, across the ends of episodes if they are short enough."""

    @abc.abstractmethod
    def make_environment(self) -> environments.BatchedEnvironment:
        """Makes a new batched environment, with short episodes if possible."""

    def make_vector(self) -> environments.VectorEnvironment:
        return _AsVector(self.make_environment())

    def test_a_run_would_not_refuse_its_steps(self) -> None:
        """Every timestep must pass the checks of a run: forms, step types, rewards, discounts, memory."""
        refused: specs.SpecError | None = None
        with self.make_environment() as environment:
            check, vector = batched_check.BatchedSpecCheck(environment), _AsVector(environment)
            try:
                check.first(environment.reset())
                for _ in range(self.num_steps):
                    check.add(environment.step(vector.batch(self._actions(vector))))
                    check.read()
            except specs.SpecError as error:
                refused = error
        assert refused is None, f"A run would refuse a timestep: {refused}"

    def test_a_step_before_the_first_reset_is_refused(self) -> None:
        """`step` must say that `reset` comes first."""
        with self.make_vector() as environment:
            actions = self._actions(environment)
            checks.assert_refused("a step before reset", environment.step, actions, mentions="reset")


class _AsVector(environments.VectorEnvironment):
    """A batch as a vector; on a CPU its arrays share the memory of the batch's tensors."""

    def __init__(self, environment: environments.BatchedEnvironment) -> None:
        super().__init__(environment.num_environments, specs.make_environment_spec(environment))
        self.gives_last_observation = environment.gives_last_observation
        self._environment = environment

    def batch(self, actions: Sequence[types.NestedArray]) -> types.NestedTensor:
        """Returns actions as one batch of tensors."""
        return tree.map_structure(
            lambda *leaves: torch.as_tensor(np.stack(leaves), device=self._environment.device), *actions
        )

    def reset(self) -> list[dm_env.TimeStep]:
        return [arrived[-1] for arrived in self._rows(self._environment.reset())]

    def step(self, actions: Sequence[types.NestedArray]) -> list[tuple[dm_env.TimeStep, ...]]:
        return self._rows(self._environment.step(self.batch(actions)))

    def close(self) -> None:
        self._environment.close()

    def _rows(self, batch: types.BatchedTimeStep) -> list[tuple[dm_env.TimeStep, ...]]:
        """Returns the timesteps of each environment."""
        arrays = tree.map_structure(lambda leaf: leaf.cpu().numpy(), batch)
        arrived: list[tuple[dm_env.TimeStep, ...]] = []
        for index in range(self.num_environments):
            # With the ellipsis, a row of a vector is also an array, of the same memory.
            row = tree.map_structure(lambda leaf, index=index: leaf[index, ...], arrays)
            kind, first = dm_env.StepType(int(row.step_type)), dm_env.restart(row.newest)
            timestep = dm_env.TimeStep(kind, row.reward, row.discount, row.observation)
            if timestep.last() and not self._environment.resets_in_next_step:
                arrived.append((timestep, first))
                continue
            what = "`newest` must be the observation, except after an end in the same step."
            checks.assert_nests_equal(row.newest, row.observation, what)
            arrived.append((first if timestep.first() else timestep,))
        return arrived
