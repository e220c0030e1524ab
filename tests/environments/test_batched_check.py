"""The timesteps of batched environments are checked, all B of them together."""

import numpy as np
import pytest
import torch
import tree

from minerva_acme import core, environments, runs, specs, testing
from minerva_acme.environments import batched_check

B = 5
NAN, INF = float("nan"), float("inf")


class Breaking(testing.FakeBatchedEnvironment):
    """Returns what `change(timestep, step)` makes of each timestep; step 0 is the reset's."""

    def __init__(self, change, **settings):
        super().__init__(B, generator=torch.Generator().manual_seed(0), **settings)
        self._change = change
        self.num_calls = 0

    def reset(self):
        return self._change(super().reset(), 0)

    def step(self, actions):
        self.num_calls += 1
        return self._change(super().step(actions), self.num_calls)


class Zeros(core.BatchedActor):
    def select_action(self, observations):
        return torch.zeros(B, 2)

    def observe_first(self, timestep):
        pass

    def observe(self, actions, next_timestep):
        pass

    def update(self, wait=False):
        pass


class Notes(Zeros):
    """Notes what it observes."""

    def __init__(self):
        self.observed = []

    def observe_first(self, timestep):
        self.observed.append("first")

    def observe(self, actions, next_timestep):
        self.observed.append("step")


def set_row(name, value, *, step, index=3):
    """Changes a number of one environment in one step."""

    def change(timestep, now):
        if now != step:
            return timestep
        row = getattr(timestep, name).clone()
        row[index] = value
        return timestep._replace(**{name: row})

    return change


def play(environment, num_steps=100):
    environments.BatchedEnvironmentLoop(environment, Zeros()).run(num_steps=num_steps * B)


@pytest.mark.parametrize("step", [1, 2, 3, 57, 100])
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("reward", NAN, "`reward` must be finite, got nan"),
        ("reward", INF, "`reward` must be finite, got inf"),
        ("reward", -1e16, r"`reward` must be within ±1e\+15, got -1"),
        ("discount", 2.0, r"`discount` must be in \[0, 1\], .* got 2.0"),
        ("discount", -0.1, r"`discount` must be in \[0, 1\], .* got -0.1"),
        ("discount", NAN, "`discount` must be finite, got nan"),
        ("step_type", 7, r"`step_type` must be in \[0, 2\], .* got 7"),
        ("step_type", 0, r"`step_type` must not be FIRST \(0\) after .*, got 0"),
    ],
)
def test_a_wrong_number_is_told_with_the_environment_and_the_step(name, value, message, step):
    environment = Breaking(set_row(name, value, step=step))
    with pytest.raises(specs.SpecError, match=f"^Breaking, environment 3, step {step}: {message}"):
        play(environment)


def test_the_earliest_wrong_number_is_told():
    first, then = set_row("reward", NAN, step=40, index=1), set_row("discount", 3.0, step=20, index=4)
    environment = Breaking(lambda timestep, step: first(then(timestep, step), step))
    with pytest.raises(specs.SpecError, match="environment 4, step 20: `discount`"):
        play(environment)


def test_steps_that_are_left_are_read_at_the_end_of_all_episodes():
    loop = environments.BatchedEnvironmentLoop(Breaking(set_row("reward", NAN, step=7)), Zeros())
    loop.run(num_steps=10 * B)
    with pytest.raises(batched_check.LateSpecError, match="environment 3, step 7: `reward`"):
        loop.reset()
    loop.run(num_steps=10 * B)  # new episodes may follow
    loop.reset()


@pytest.mark.parametrize("resets_in_next_step", [False, True])
def test_first_for_ever_is_no_episode(resets_in_next_step):
    environment = Breaking(
        lambda timestep, step: timestep._replace(step_type=torch.zeros_like(timestep.step_type)),
        resets_in_next_step=resets_in_next_step,
    )
    with pytest.raises(specs.SpecError, match="environment 0, step 1: .* must not be FIRST"):
        play(environment)


def test_an_episode_that_does_not_begin_after_its_end_is_told():
    def forget(timestep, step):
        return timestep._replace(step_type=timestep.step_type.clamp(min=1)) if step else timestep

    environment = Breaking(forget, resets_in_next_step=True)
    with pytest.raises(specs.SpecError, match=r"must be FIRST \(0\) after LAST .*, got 1"):
        play(environment)


def replaced(**changes):
    return lambda timestep, step: timestep._replace(
        **{name: make(timestep) for name, make in changes.items()}
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            replaced(step_type=lambda t: t.step_type.bool()),
            r"`step_type` must be a tensor, uint8 of shape \(5,\) on cpu, got bool of shape \(5,\) on cpu",
        ),
        (replaced(newest=lambda t: None), r"`newest` must be a tensor, .* \(5, 3\) .*, got None"),
        (replaced(newest=lambda t: t.newest[0]), r"`newest` .* \(5, 3\) .*, got .* \(3,\)"),
        (replaced(observation=lambda t: t.observation[:3]), r"`observation` .* \(5, 3\) .*, got .* \(3, 3\)"),
        (replaced(observation=lambda t: t.observation.double()), "`observation` .* got float64"),
        (replaced(observation=lambda t: {"x": t.observation}), r"`observation` .* got a dict of \['x'\]"),
        (replaced(reward=lambda t: t.reward[:, None]), r"`reward` .* got float32 of shape \(5, 1\)"),
        (replaced(reward=lambda t: t.reward.mean()), r"`reward` .* got float32 of shape \(\)"),
        (replaced(reward=lambda t: t.reward.numpy()), "`reward` .* a tensor, .* got a numpy array"),
        (replaced(discount=lambda t: 1.0), "`discount` .* got 1.0"),
        (replaced(discount=lambda t: t.discount.to("meta")), "`discount` .* on cpu, .* on meta"),
        (lambda timestep, step: tuple(timestep), "`types.BatchedTimeStep` must be returned, got a tuple"),
    ],
)
def test_tensors_of_another_form_are_refused_before_they_are_observed(change, message):
    loop = environments.BatchedEnvironmentLoop(Breaking(change), actor := Notes())
    with pytest.raises(specs.SpecError, match=f"^Breaking, `reset`: {message}"):
        loop.step()
    assert not actor.observed
    # The same where the reset is right.
    broken = Breaking(lambda timestep, step: change(timestep, step) if step else timestep)
    loop = environments.BatchedEnvironmentLoop(broken, actor := Notes())
    with pytest.raises(specs.SpecError, match=f"^Breaking, step 1: {message}"):
        loop.step()
    assert actor.observed == ["first"]


def test_a_form_that_changes_in_mid_run_is_told_with_its_step():
    environment = Breaking(
        lambda timestep, step: timestep._replace(reward=timestep.reward[0]) if step == 30 else timestep
    )
    with pytest.raises(batched_check.LateSpecError, match=r"step 30: `reward` .* got float32 of shape \(\)"):
        play(environment)


class Reusing:
    """Copies a part of each timestep into the same memory, as simulators do."""

    def __init__(self, name, from_step=0):
        self._name, self._from_step = name, from_step
        self._memory = None

    def __call__(self, timestep, step):
        if step < self._from_step:
            return timestep
        nest = getattr(timestep, self._name)
        if self._memory is None:
            self._memory = nest.clone()
        self._memory.numpy()[:] = nest.numpy()
        return timestep._replace(**{self._name: self._memory})


@pytest.mark.parametrize("name", ["step_type", "reward", "discount", "observation", "newest"])
def test_tensors_that_are_written_to_again_are_found(name):
    # Step types that stay MID are no other ones.
    environment = Breaking(Reusing(name), max_length=1 if name == "step_type" else 6)
    with pytest.raises(specs.SpecError, match=rf"environment \d, .*: `{name}` must not be written to after"):
        play(environment)


def test_memory_that_is_used_again_later_is_found_in_the_next_period():
    environment = Breaking(Reusing("observation", from_step=50))
    with pytest.raises(specs.SpecError, match="step 101: `observation` must not be written to"):
        play(environment, 200)


def test_the_same_tensor_for_what_never_changes_is_no_mistake():
    same = torch.ones(B)
    environment = Breaking(lambda timestep, step: timestep._replace(discount=same))
    play(environment, 250)
    assert environment.num_calls == 250


def test_nan_in_observations_is_no_change():
    def blind(timestep, step):
        return timestep._replace(observation=torch.full_like(timestep.observation, NAN))

    environment = Breaking(blind)
    play(environment, 250)
    assert environment.num_calls == 250


class Nested(testing.FakeBatchedEnvironment):
    """Observes a dict with an image, and a part without numbers."""

    def __init__(self, mistake=False):
        super().__init__(B)
        self._mistake = mistake
        self._specs = self._specs._replace(
            observations={
                "image": specs.Array((2, 2), np.uint8),
                "nothing": specs.Array((0,), np.float32),
                "on": specs.Array((), np.bool_),
            }
        )

    def reset(self):
        return self._observed(super().reset())

    def step(self, actions):
        return self._observed(super().step(actions))

    def _observed(self, timestep):
        nest = {
            "image": torch.zeros(B, 2, 2, dtype=torch.uint8),
            "nothing": torch.zeros(B, 0),
            "on": torch.ones(B, dtype=torch.bool),
        }
        if self._mistake:
            nest["on"] = nest["on"][0]
        return timestep._replace(observation=nest, newest=tree.map_structure(torch.clone, nest))


def test_nests_are_checked_by_leaf():
    play(Nested(), 150)
    with pytest.raises(specs.SpecError, match=r"`reset`: `observation\['on'\]` .* bool of shape \(5,\)"):
        play(Nested(mistake=True))


def test_an_evaluation_checks_its_steps_too():
    with pytest.raises(specs.SpecError, match="environment 3, step 9: `reward` must be finite"):
        runs.evaluate(Breaking(set_row("reward", NAN, step=9)), Zeros(), 30)


@pytest.mark.parametrize("resets_in_next_step", [False, True])
def test_the_device_is_read_twice_in_the_first_hundred_steps(monkeypatch, resets_in_next_step):
    reads = []
    read = batched_check.BatchedSpecCheck.read
    monkeypatch.setattr(
        batched_check.BatchedSpecCheck, "read", lambda self: (reads.append(self._step), read(self))
    )
    environment = testing.FakeBatchedEnvironment(B, resets_in_next_step=resets_in_next_step)
    play(environment, 350)
    assert reads == [2, 100, 200, 300]
