"""Environments and wrappers that break their contract, and what their authors are told."""

import dm_env
import numpy as np
import pytest

from minerva_acme import specs, testing, wrappers

from . import wrong_parts

BROKEN = []
breaks = wrong_parts.noted_in(BROKEN)


class EnvironmentSuite(testing.EnvironmentConformance):
    part = testing.FakeEnvironment
    max_steps = 20

    def make_environment(self):
        return self.part()


class WrapperSuite(testing.WrapperConformance):
    part = wrappers.EnvironmentWrapper

    def wrap(self, environment):
        return self.part(environment)


class Environment(dm_env.Environment):
    """Three steps of zeros; the base of the wrong ones below."""

    reward_at_first = None
    discount = 1.0
    num_steps = 3

    def __init__(self):
        self.t = None

    def observation(self):
        return np.zeros(2, np.float32)

    def reset(self):
        self.t = 0
        return dm_env.TimeStep(dm_env.StepType.FIRST, self.reward_at_first, None, self.observation())

    def step(self, action):
        if self.t is None:
            return self.reset()
        self.t += 1
        step_type = dm_env.StepType.MID
        if self.t == self.num_steps:
            step_type, self.t = dm_env.StepType.LAST, None
        return dm_env.TimeStep(step_type, 1.0, self.discount, self.observation())

    def observation_spec(self):
        return specs.Array((2,), np.float32)

    def action_spec(self):
        return specs.BoundedArray((2,), np.float32, -1.0, 1.0)


@breaks(
    EnvironmentSuite,
    "reset_returns_first_before_within_and_after_an_episode",
    "`reset` before the first episode must return FIRST with reward None, got 0.0.",
)
class RewardsTheFirst(Environment):
    reward_at_first = 0.0


@breaks(
    EnvironmentSuite,
    "every_timestep_conforms_to_the_specs",
    "`reset` must conform to the specs: `observation['state']` must be float32 of shape (2,), got float64",
)
class ComputesInDouble(Environment):
    def observation(self):
        return {"state": np.zeros(2)}

    def observation_spec(self):
        return {"state": specs.Array((2,), np.float32)}


@breaks(
    EnvironmentSuite, "every_timestep_conforms_to_the_specs", "`step` number 2 must conform to the specs:"
)
class Diverges(Environment):
    def observation(self):
        return np.array([0.0, np.nan if self.t == 2 else 1.0], np.float32)


@breaks(
    EnvironmentSuite, "discounts_lie_between_0_and_1", "`step` number 1 must return a discount in [0, 1], got"
)
class DiscountsTooMuch(Environment):
    discount = 1.5

    def discount_spec(self):
        return specs.Array((), np.float64)


@breaks(
    EnvironmentSuite, "an_episode_is_first_then_mid_then_last", "`step` must return LAST at some time, got 20"
)
class NeverEnds(Environment):
    num_steps = -1


@breaks(
    EnvironmentSuite,
    "a_step_before_the_first_reset_and_after_last_begins_an_episode",
    "`step` before the first reset must return FIRST, got MID.",
)
class StopsAtItsEnd(Environment):
    def step(self, action):
        if self.t is None:
            self.t = 0
            return dm_env.transition(1.0, self.observation())
        return super().step(action)


@breaks(
    EnvironmentSuite,
    "what_was_given_out_is_not_changed_later",
    "Timesteps must have fresh arrays. `step` number 1 changed the observation of an earlier one.",
)
class ReusesItsArray(Environment):
    def __init__(self):
        super().__init__()
        self.array = np.zeros(2, np.float32)

    def observation(self):
        self.array += 1
        return self.array


@breaks(
    EnvironmentSuite, "what_was_given_out_is_not_changed_later", "Timesteps must have fresh arrays. `reset`"
)
class WritesAtReset(Environment):
    array = None

    def reset(self):
        if self.array is not None:
            self.array += 1
        return super().reset()

    def observation(self):
        self.array = np.zeros(2, np.float32)
        return self.array


@breaks(
    EnvironmentSuite,
    "what_was_given_out_is_not_changed_later",
    "Timesteps must have fresh arrays. `step` number 2 changed the reward of an earlier one.",
)
class WritesToAllRewards(Environment):
    reward = np.zeros(1)

    def reward_spec(self):
        return specs.Array((1,), np.float64)

    def step(self, action):
        self.reward += 1
        return super().step(action)._replace(reward=self.reward)


@breaks(
    EnvironmentSuite, "what_was_given_out_is_not_changed_later", "Timesteps must have fresh arrays. A later"
)
class ReusesNineArrays(Environment):
    """Takes the arrays of its observations in turn."""

    def __init__(self):
        super().__init__()
        self.ring, self.count = np.zeros((9, 2), np.float32), 0

    def observation(self):
        self.count += 1
        array = self.ring[self.count % 9]
        array[:] = self.count
        return array


class Random(Environment):
    """Shows something new in every step."""

    def __init__(self, seed=0):
        super().__init__()
        self.random = np.random.default_rng(seed)

    def observation(self):
        return self.random.normal(size=2).astype(np.float32)


@breaks(
    EnvironmentSuite, "the_last_observation_is_that_of_the_episode_that_ends", "`step` must return with LAST"
)
class ShowsTheNextEpisode(Random):
    """Resets by itself at the end, as some simulators do."""

    following = None

    def reset(self):
        timestep, self.following = self.following, None
        return timestep or super().reset()

    def step(self, action):
        timestep = super().step(action)
        if not timestep.last():
            return timestep
        self.following = super().reset()
        return timestep._replace(observation=self.following.observation)


class IgnoresItsSeed(Random):
    def __init__(self, seed):
        super().__init__(None)


class AlwaysTheSame(Random):
    def __init__(self, seed):
        super().__init__(0)


class RepeatsItsEpisode(Random):
    """Makes its generator when it is reset."""

    def __init__(self, seed=0):
        super().__init__(seed)
        self.seed = seed

    def reset(self):
        self.random = np.random.default_rng(self.seed)
        return super().reset()


class SeededSuite(EnvironmentSuite):
    def make_seeded_environment(self, seed):
        return self.part(seed)


breaks(
    SeededSuite, "a_seed_determines_what_happens", "Two environments with the same seed must be equal, but"
)(IgnoresItsSeed)
breaks(
    SeededSuite, "a_seed_determines_what_happens", "Environments with different seeds must differ, got the"
)(AlwaysTheSame)
breaks(
    SeededSuite, "a_seed_determines_what_happens", "Episodes of an environment must differ, got the same one"
)(RepeatsItsEpisode)


@breaks(
    WrapperSuite,
    "a_discount_of_0_stays_0_and_one_that_is_not_does_not_become_0",
    "`step` of BootstrapsFromTheEnd must pass on a true end (discount 0) unchanged, got a discount of",
)
class BootstrapsFromTheEnd(wrappers.EnvironmentWrapper):
    def step(self, action):
        timestep = super().step(action)
        return timestep if timestep.first() else timestep._replace(discount=1.0)


@breaks(
    WrapperSuite,
    "a_discount_of_0_stays_0_and_one_that_is_not_does_not_become_0",
    "`step` of EndsTrulyAtALimit must pass on a time limit (discount 1) unchanged, got a discount of 0.0.",
)
class EndsTrulyAtALimit(wrappers.EnvironmentWrapper):
    def step(self, action):
        timestep = super().step(action)
        return timestep._replace(discount=0.0) if timestep.last() else timestep


@breaks(
    WrapperSuite,
    "a_discount_of_0_stays_0_and_one_that_is_not_does_not_become_0",
    "`step` of RoundsDiscounts must pass on a discount of 0.625 unchanged, got",
)
class RoundsDiscounts(wrappers.EnvironmentWrapper):
    digits = 0

    def _convert(self, timestep):
        if timestep.first():
            return timestep
        return timestep._replace(discount=np.round(timestep.discount, self.digits))


@breaks(
    WrapperSuite,
    "a_discount_of_0_stays_0_and_one_that_is_not_does_not_become_0",
    "`step` of RoundsDiscountsToATenth must pass on a discount of 0.640625 unchanged, got",
)
class RoundsDiscountsToATenth(RoundsDiscounts):
    digits = 1


@breaks(
    WrapperSuite, "every_reward_arrives_with_the_step_that_it_is_of", "`step` of LosesRewardsOfSkippedFrames"
)
class LosesRewardsOfSkippedFrames(wrappers.EnvironmentWrapper):
    """Repeats each action, and gives the reward of the last frame."""

    def step(self, action):
        timestep = super().step(action)
        for _ in range(2):
            if timestep.mid():
                timestep = super().step(action)
        return timestep


@breaks(
    WrapperSuite, "every_reward_arrives_with_the_step_that_it_is_of", "`step` of GivesRewardsAStepLate must"
)
class GivesRewardsAStepLate(wrappers.EnvironmentWrapper):
    def _convert(self, timestep):
        late, self.newest = getattr(self, "newest", None), timestep.reward
        return timestep if timestep.first() else timestep._replace(reward=np.float32(late or 0.0))


@breaks(EnvironmentSuite, "an_action_is_left_as_it_is", "`step` must not change its action. Expected array(")
class ClipsInPlace(Environment):
    def step(self, action):
        action *= 0
        return super().step(action)


@breaks(
    EnvironmentSuite, "an_action_is_left_as_it_is", "`step` must not change its action. To clip it, make a"
)
class ClipsToItsBoundsInPlace(Environment):
    def step(self, action):
        np.clip(action, -1.0, 1.0, out=action)
        return super().step(action)


@breaks(
    EnvironmentSuite,
    "the_four_specs_are_nests_of_specs_and_stay_the_same",
    "`observation_spec` must return a nest of dm_env specs, got 2.",
)
class DescribesByHand(Environment):
    def observation_spec(self):
        return (2,)


@breaks(
    EnvironmentSuite,
    "the_four_specs_are_nests_of_specs_and_stay_the_same",
    "`observation_spec` must return the same spec after an episode as before, expected Array(shape=(2,),",
)
class GrowsItsSpec(Environment):
    size = 2

    def observation_spec(self):
        return specs.Array((self.size,), np.float32)

    def step(self, action):
        self.size = 3
        return super().step(action)


@breaks(WrapperSuite, "public_attributes_reach_through", "Opaque must forward public attributes: expected")
class Opaque(dm_env.Environment):
    """Forwards the environment's methods alone."""

    def __init__(self, environment):
        self.wrapped = environment

    def reset(self):
        return self.wrapped.reset()

    def step(self, action):
        return self.wrapped.step(action)

    def observation_spec(self):
        return self.wrapped.observation_spec()

    def action_spec(self):
        return self.wrapped.action_spec()


@breaks(
    WrapperSuite, "private_and_unknown_attributes_do_not", "LooksEverywhere must raise AttributeError for"
)
class LooksEverywhere(wrappers.EnvironmentWrapper):
    def __getattr__(self, name):
        return getattr(self.__dict__["_environment"], name)


@breaks(
    WrapperSuite, "every_timestep_conforms_to_the_specs", "`reset` must conform to the specs: `observation`"
)
class KeepsTheOldSpec(wrappers.EnvironmentWrapper):
    """Doubles the observation, but not its spec."""

    def reset(self):
        return self._double(super().reset())

    def step(self, action):
        return self._double(super().step(action))

    def _double(self, timestep):
        return timestep._replace(observation=np.concatenate([timestep.observation] * 2))


@breaks(WrapperSuite, "a_pickled_copy_goes_on_alike_and_on_its_own", "pickle must copy KeepsALambda, got ")
class KeepsALambda(wrappers.EnvironmentWrapper):
    def __init__(self, environment):
        super().__init__(environment)
        self.scale = lambda x: x


@breaks(
    WrapperSuite, "a_deep_copy_goes_on_alike_and_on_its_own", "A copy.deepcopy copy of CopiesShareTheWrapped"
)
class CopiesShareTheWrapped(wrappers.EnvironmentWrapper):
    def __deepcopy__(self, memo):
        return type(self)(self._environment)


@breaks(
    WrapperSuite, "close_closes_what_is_wrapped", "`close` must close the wrapped environment, expected one"
)
class LeavesItOpen(wrappers.EnvironmentWrapper):
    def close(self):
        pass


@pytest.mark.parametrize(("part", "suite", "test", "message"), BROKEN)
def test_a_broken_contract_is_found_and_named(suite, part, test, message):
    broken = type("Broken", (suite,), {"part": part})()
    with pytest.raises(AssertionError) as caught:
        getattr(broken, f"test_{test}")()
    assert str(caught.value).startswith(message)


class HalvesRewards(wrappers.EnvironmentWrapper):
    """Changes rewards, and is right."""

    def _convert(self, timestep):
        return timestep if timestep.first() else timestep._replace(reward=timestep.reward * np.float32(0.5))


def test_an_endless_environment_is_not_accused_of_a_step_after_its_end():
    endless = type("Endless", (EnvironmentSuite,), {"part": NeverEnds})()
    assert endless.test_a_step_before_the_first_reset_and_after_last_begins_an_episode() is None


def test_every_part_that_the_wrong_ones_are_made_of_is_right():
    of_parts = ((EnvironmentSuite, Environment), (SeededSuite, Random), (WrapperSuite, HalvesRewards))
    for right in (WrapperSuite(), *(type("Right", (suite,), {"part": part})() for suite, part in of_parts)):
        tests = [name for name in dir(right) if name.startswith("test_")]
        assert len(tests) >= 8
        for name in tests:
            getattr(right, name)()
