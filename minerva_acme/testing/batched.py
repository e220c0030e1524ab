"""A batched environment that counts, and the contract of batched environments as tests to inherit.

class TestMyBatchedEnvironment(testing.BatchedEnvironmentConformance):
    def make_environment(self):
        return MyBatchedEnvironment(...)
"""

import abc

import dm_env
import numpy as np
import torch
import tree

from minerva_acme import core, environments, generators, specs, types
from minerva_acme.environments import batched, batched_check
from minerva_acme.testing import checks

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
            rewards=specs.Array((), np.float32, name="reward"),
            discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount"),
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
        observation = self._observe(self._state)
        step_type = torch.full_like(ones, _FIRST, dtype=torch.uint8)
        return types.BatchedTimeStep(step_type, torch.zeros_like(ones), ones, observation, observation)

    def step(self, actions: types.NestedTensor) -> types.BatchedTimeStep:
        self.check_actions(actions)
        if not self._state:
            raise ValueError("No episode is open. Call `reset` before the first `step`.")
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


class BatchedEnvironmentConformance(abc.ABC):
    """Tests of a batched environment, across the ends of episodes if they are short enough."""

    num_steps: int = 60
    """The number of steps of a test; each environment should end an episode within them."""

    @abc.abstractmethod
    def make_environment(self) -> environments.BatchedEnvironment:
        """Makes a new batched environment, with short episodes if possible."""

    def test_reset_brings_first_everywhere(self) -> None:
        """`reset` must bring FIRST in every environment, whose observation is the newest."""
        with self.make_environment() as environment:
            for _ in range(2):
                timestep = environment.reset()
                found = timestep.step_type.tolist()
                assert found == [_FIRST] * environment.num_environments, (
                    f"`reset` must bring FIRST (0) in every environment, got the step types {found}."
                )
                what = "`newest` must be the observation at FIRST."
                checks.assert_nests_equal(timestep.newest, timestep.observation, what)

    def test_a_run_would_not_refuse_its_steps(self) -> None:
        """Every timestep must pass the checks of a run: forms, step types, rewards, discounts, memory."""
        refused: specs.SpecError | None = None
        with self.make_environment() as environment:
            check = batched_check.BatchedSpecCheck(environment)
            try:
                check.first(environment.reset())
                for _ in range(self.num_steps):
                    check.add(environment.step(self._actions(environment)))
                    check.read()
            except specs.SpecError as error:
                refused = error
        assert refused is None, f"A run would refuse a timestep: {refused}"

    def test_a_step_type_may_follow_the_one_before(self) -> None:
        """MID or LAST must follow FIRST and MID; what follows LAST is told by `resets_in_next_step`."""
        with self.make_environment() as environment:
            before = environment.reset()
            has_ended = torch.zeros(environment.num_environments, dtype=torch.bool)
            for _ in range(self.num_steps):
                timestep = environment.step(self._actions(environment))
                step_type = timestep.step_type.cpu()
                follows_last = before.step_type.cpu() == _LAST
                must_be_first = follows_last & environment.resets_in_next_step
                assert bool((step_type <= _LAST).all()), (
                    f"Step types must be 0, 1 or 2, got {step_type.tolist()}."
                )
                assert bool(((step_type == _FIRST) == must_be_first).all()), (
                    "`step` must bring FIRST exactly after LAST in an environment that "
                    f"`resets_in_next_step`, here {environment.resets_in_next_step}; got "
                    f"{step_type.tolist()} after {before.step_type.tolist()}."
                )
                has_ended |= step_type == _LAST
                before = timestep
            assert bool(has_ended.all()), (
                f"Every environment must end an episode within `num_steps` = {self.num_steps}, to test its "
                f"end; raise it or shorten the episodes. Ended: {has_ended.tolist()}."
            )

    def test_timesteps_conform_to_the_specs_and_are_not_written_into_later(self) -> None:
        """Tensors must have the specs' shapes, dtypes and bounds on one device, and must not change later."""
        with self.make_environment() as environment:
            kept = [environment.reset()]
            copies = [tree.map_structure(torch.clone, kept[0])]
            for _ in range(self.num_steps):
                kept.append(environment.step(self._actions(environment)))
                copies.append(tree.map_structure(torch.clone, kept[-1]))
            spec = specs.make_environment_spec(environment)
            number, device = environment.num_environments, environment.device
        for timestep, copied in zip(kept, copies, strict=True):
            what = "`step` must return fresh tensors, but a later call changed a timestep."
            checks.assert_nests_equal(timestep, copied, what)
            for leaf in tree.flatten(timestep):
                assert leaf.device.type == device.type, f"Tensors must be on {device}, got {leaf.device}."
                assert leaf.shape[:1] == (number,), f"Expected [{number}, ...], got {list(leaf.shape)}."
            assert timestep.step_type.dtype == torch.uint8, f"Not uint8: {timestep.step_type.dtype}."
            rows = tree.map_structure(lambda leaf: leaf.cpu().numpy(), timestep)
            for index in range(number):
                row = tree.map_structure(lambda leaf, index=index: leaf[index], rows)
                specs.check_conforms("observation", row.observation, spec.observations)
                specs.check_conforms("newest", row.newest, spec.observations)
                specs.check_conforms("reward", row.reward, spec.rewards)
                specs.check_conforms("discount", row.discount, spec.discounts)

    def test_the_last_observation_is_that_of_the_episode_that_ends(self) -> None:
        """LAST must show where the episode ended, and only `newest` may show the next one's beginning."""
        with self.make_environment() as environment:
            assert environment.gives_last_observation, (
                f"{type(environment).__name__} must return the true observation at LAST, but says that it "
                "does not (`gives_last_observation` is False). Agents that bootstrap refuse it."
            )
            before = environment.reset()
            are_next, are_repeated, changes = [], [], []
            for _ in range(self.num_steps):
                timestep = environment.step(self._actions(environment))
                for index in range(environment.num_environments):
                    acted_on, shown, newest = (
                        tree.map_structure(lambda leaf, index=index: leaf[index], nest)
                        for nest in (before.newest, timestep.observation, timestep.newest)
                    )
                    if int(timestep.step_type[index]) != _LAST:
                        what = "`newest` must be the observation, except after an end in the same step."
                        checks.assert_nests_equal(newest, shown, what)
                        changes.append(not checks.are_equal(shown, acted_on))
                    else:
                        are_next.append(checks.are_equal(shown, newest))
                        are_repeated.append(checks.are_equal(shown, acted_on))
                before = timestep
            resets_at_once = not environment.resets_in_next_step
        assert are_next, f"An episode must end within `num_steps` = {self.num_steps}; raise it."
        assert not resets_at_once or not all(are_next), (
            "`observation` must show at LAST where the episode ended, got the next episode's first one, in "
            "every episode. A simulator that resets in the same step must also return the observation before "
            "the reset; without it, `gives_last_observation` is False."
        )
        assert not all(are_repeated) or not all(changes), (
            "`observation` must show at LAST where the episode ended, got the previous one again, in every "
            "episode."
        )

    def test_other_shapes_of_actions_are_refused(self) -> None:
        """`step` must refuse fewer or more actions than there are environments."""
        with self.make_environment() as environment:
            environment.reset()
            actions = self._actions(environment)
            for number in (environment.num_environments - 1, environment.num_environments + 1):
                wrong = tree.map_structure(
                    lambda leaf, number=number: leaf[:1].expand(number, *leaf.shape[1:]), actions
                )
                checks.assert_refused(f"{number} actions", environment.step, wrong, mentions="actions")

    def test_a_step_before_the_first_reset_is_refused(self) -> None:
        """`step` must say that `reset` comes first."""
        with self.make_environment() as environment:
            actions = self._actions(environment)
            checks.assert_refused("a step before reset", environment.step, actions, mentions="reset")

    def test_it_can_be_closed_twice(self) -> None:
        """`close` must be safe to call again."""
        environment = self.make_environment()
        num_closed = 0
        for _ in range(2):
            environment.close()
            num_closed += 1
        assert num_closed == 2

    def _actions(self, environment: environments.BatchedEnvironment) -> types.NestedTensor:
        """Draws random actions, with torch's default generator."""

        def draw(spec: specs.BoundedArray) -> torch.Tensor:
            shape = (environment.num_environments, *spec.shape)
            low, high = specs.bounds(spec)
            if spec.dtype.kind in "iu":
                drawn = low + np.random.default_rng().integers(0, high - low + 1, shape)
            else:
                drawn = low + (high - low) * np.random.default_rng().random(shape)
            return torch.as_tensor(drawn.astype(spec.dtype), device=environment.device)

        return tree.map_structure(draw, environment.action_spec())
