"""Batched environments: the contract, adapters of the ways in which simulators end an episode, the task."""

import functools

import dm_env
import numpy as np
import pytest
import torch
import tree

from minerva_acme import environments, runs, specs, testing
from minerva_acme.environments import batched

FIRST, LAST = int(dm_env.StepType.FIRST), int(dm_env.StepType.LAST)
LENGTHS = (1, 2, 3, 4, 5, 6, 7)
SPEC = specs.EnvironmentSpec(
    observations={"place": specs.Array((2,), np.float32), "count": specs.Array((), np.int32)},
    actions=specs.BoundedArray((1,), np.float32, -1.0, 1.0),
    rewards=specs.Array((), np.float32),
    discounts=specs.BoundedArray((), np.float32, 0.0, 1.0),
)


class Simulator:
    """Environments with episodes of fixed lengths, of which every second one ends by a time limit.

    Like many simulators it writes to the same arrays again, and only its way of resetting differs: "never",
    "same" or "next" step.
    """

    def __init__(self, resets, numpy=False, lengths=LENGTHS):
        self.resets, self.lengths = resets, np.array(lengths)
        self.episode, self.count, self.total = (np.zeros(len(lengths)) for _ in range(3))
        self.convert = np.asarray if numpy else torch.from_numpy
        self.place = np.zeros((len(lengths), 2), np.float32)
        self.is_closed = False

    def observe(self):
        self.place[:] = np.stack([self.episode, self.total], axis=1)
        return {"place": self.convert(self.place), "count": self.convert(self.count.copy())}

    def begin(self, where):
        self.episode += where
        self.count[where], self.total[where] = 0, 0
        return self.observe()

    def reset(self):
        self.ended = np.zeros(len(self.lengths), bool)
        return self.begin(np.ones(len(self.lengths), bool)), {}

    def step(self, actions):
        actions = np.asarray(actions)[:, 0]
        begins = self.ended & (self.resets == "next")
        assert not (self.ended & (self.resets == "never")).any(), "not reset before the next step"
        self.count += ~begins
        self.total += np.where(begins, 0, actions)
        reward = np.where(begins, 0.0, self.total)
        self.begin(begins)
        self.ended = (self.count >= self.lengths) & ~begins
        is_terminal = self.ended & (self.episode % 2 == 0)
        shown, infos = self.observe(), {"count": self.convert(self.count.copy())}
        if self.resets == "same":
            infos |= {
                "final_obs": {
                    name: leaf.copy() for name, leaf in tree.map_structure(np.asarray, shown).items()
                }
            }
            self.has_ended = self.ended.any()
            shown = self.begin(self.ended)
        return shown, *map(self.convert, (reward, is_terminal, self.ended & ~is_terminal)), infos

    def reset_where(self, mask):
        self.ended &= ~mask.numpy()
        return self.begin(mask.numpy())

    def close(self):
        assert not self.is_closed
        self.is_closed = True


def adapt(dialect, numpy=False, lengths=LENGTHS):
    resets = {"masked": "never", "next": "next"}.get(dialect, "same")
    simulator = Simulator(resets, numpy, lengths)
    make = {
        "masked": functools.partial(batched.MaskedResets, reset_where=simulator.reset_where),
        "final": functools.partial(
            batched.FinalObservations, final_observation=lambda infos: infos["final_obs"]
        ),
        "final in some": functools.partial(  # of the steps, as in ManiSkill
            batched.FinalObservations,
            final_observation=lambda infos: infos["final_obs"] if simulator.has_ended else None,
        ),
        "lost": functools.partial(batched.FinalObservations, final_observation=None),
        "next": batched.NextStepResets,
    }[dialect]
    return make(
        simulator,
        SPEC,
        num_environments=len(lengths),
        from_tensor=torch.Tensor.numpy if numpy else None,
        info=lambda infos: {"count": infos["count"]},
    )


def play(environment, num_steps=40):
    """The transitions of each environment: where it was, its action and all that it led to."""
    actions = torch.rand(num_steps, len(LENGTHS), 1, generator=torch.Generator().manual_seed(3)) - 0.5
    streams = [[] for _ in LENGTHS]
    taken = [0 for _ in LENGTHS]
    before = environment.reset()
    for _ in range(num_steps):
        # Every environment gets the next of its own actions, whatever steps the others lost to resets.
        chosen = torch.stack([actions[taken[index], index] for index in range(len(LENGTHS))])
        timestep = environment.step(chosen)
        for index, stream in enumerate(streams):
            if int(timestep.step_type[index]) != FIRST:
                taken[index] += 1
                row = tree.map_structure(lambda leaf: leaf[index].numpy(), timestep._replace(newest=()))  # noqa: B023
                acted_on = tree.map_structure(lambda leaf: leaf[index].numpy(), before.newest)  # noqa: B023
                stream.append((acted_on, chosen[index].numpy(), row))
        before = timestep
    return streams


@pytest.mark.parametrize("dialect", ["masked", "final", "next"])
def test_numbers_of_the_infos_are_metrics_of_an_evaluation(dialect):
    class Still:
        def observe_first(self, timestep):
            pass

        def select_action(self, observations):
            return torch.zeros(len(LENGTHS), 1)

        def observe(self, actions, timestep):
            pass

    n = np.array([*LENGTHS, *LENGTHS])
    for statistic, expected in (("last", n), ("max", n), ("sum", n * (n + 1) / 2), ("mean", (n + 1) / 2)):
        metric = f"-info/count/{statistic}"
        found = runs.evaluate(adapt(dialect), Still(), len(n), metric=metric)
        assert found.lengths == tuple(n)
        np.testing.assert_allclose(found.values(metric), -expected)
        np.testing.assert_allclose(found.measured["info/count/last"], n)


class TestFake(testing.BatchedEnvironmentConformance):
    def make_environment(self):
        return testing.FakeBatchedEnvironment(generator=torch.Generator().manual_seed(0))


class TestFakeThatResetsInTheNextStep(testing.BatchedEnvironmentConformance):
    def make_environment(self):
        generator = torch.Generator().manual_seed(0)
        return testing.FakeBatchedEnvironment(resets_in_next_step=True, generator=generator)


class TestPendulum(testing.BatchedEnvironmentConformance):
    def make_environment(self):
        generator = torch.Generator().manual_seed(0)
        return environments.BatchedPendulum(3, generator=generator, time_limit=7, staggered=True)


class TestMaskedResets(testing.BatchedEnvironmentConformance):
    def make_environment(self):
        return adapt("masked")


class TestFinalObservations(testing.BatchedEnvironmentConformance):
    def make_environment(self):
        return adapt("final", numpy=True)


class TestNextStepResets(testing.BatchedEnvironmentConformance):
    def make_environment(self):
        return adapt("next")


@pytest.mark.parametrize("dialect", ["final", "final in some", "next"])
@pytest.mark.promise("The ways in which simulators end an episode give")
def test_each_way_of_ending_an_episode_shows_the_same_transitions(dialect):
    for expected, found in zip(play(adapt("masked")), play(adapt(dialect)), strict=True):
        assert len(found) > 10
        testing.assert_nests_equal(found, expected[: len(found)])


def test_each_transition_shows_the_true_last_observation_and_how_the_episode_ended():
    for index, stream in enumerate(play(adapt("masked"))):
        for number, (acted_on, action, row) in enumerate(stream):
            episode, step = 1 + number // LENGTHS[index], 1 + number % LENGTHS[index]
            is_last = step == LENGTHS[index]
            total = sum(action[0] for _, action, _ in stream[number - step + 1 : number + 1])
            assert acted_on["count"] == step - 1
            np.testing.assert_allclose(row.observation["place"], [episode, total], rtol=1e-5)
            assert row.observation["count"] == step and row.observation["count"].dtype == np.int32
            np.testing.assert_allclose(row.reward, total, rtol=1e-5)
            assert (row.step_type == LAST) == is_last
            assert row.discount == (0.0 if is_last and episode % 2 == 0 else 1.0)


def test_an_environment_that_loses_its_last_observations_says_so():
    environment = adapt("lost")
    assert not environment.gives_last_observation
    assert adapt("final").gives_last_observation
    kept = play(adapt("final"))
    for expected, found in zip(kept, play(environment), strict=True):
        for (acted_on, _, wanted), (_, _, row) in zip(expected, found, strict=True):
            shown = acted_on if row.step_type == LAST else wanted.observation
            testing.assert_nests_equal(row.observation, shown)
            testing.assert_nests_equal(row[:3], wanted[:3])
    with pytest.raises(AssertionError, match="gives_last_observation"):
        LosesIt().test_the_last_observation_is_that_of_the_episode_that_ends()


class LosesIt(testing.BatchedEnvironmentConformance):
    def make_environment(self):
        return adapt("lost")


class ShowsTheNext(testing.BatchedEnvironmentConformance):
    def make_environment(self):
        environment = adapt("lost")
        environment.gives_last_observation = True
        return environment


class ForgetsToBegin(testing.BatchedEnvironmentConformance):
    def make_environment(self):
        environment = adapt("next")
        environment.resets_in_next_step = False
        return environment


class WritesAgain(testing.BatchedEnvironmentConformance):
    def make_environment(self):
        environment = adapt("masked")
        environment._to_tensor = torch.as_tensor
        return environment


class DoublesDiscounts(testing.BatchedEnvironmentConformance):
    """Its spec has no bounds that would tell."""

    def make_environment(self):
        environment = testing.FakeBatchedEnvironment()
        environment._specs = environment._specs._replace(discounts=specs.Array((), np.float32))
        step = environment.step
        environment.step = lambda actions: (t := step(actions))._replace(discount=2.0 * t.discount)
        return environment


class HasNoNewest(testing.BatchedEnvironmentConformance):
    def make_environment(self):
        environment = testing.FakeBatchedEnvironment()
        step = environment.step
        environment.step = lambda actions: step(actions)._replace(newest=None)
        return environment


@pytest.mark.parametrize(
    ("case", "test", "message"),
    [
        (DoublesDiscounts, "a_run_would_not_refuse_its_steps", r"`discount` must be in \[0, 1\]"),
        (HasNoNewest, "a_run_would_not_refuse_its_steps", "step 1: `newest` must be .* got None"),
        (WritesAgain, "a_run_would_not_refuse_its_steps", "must not be written to after it was returned"),
        (ShowsTheNext, "the_last_observation_is_that_of_the_episode_that_ends", "the previous one"),
        (
            ForgetsToBegin,
            "a_step_hands_out_one_timestep_or_last_and_first",
            "whose newest .* FIRST, got 'FIRST'",
        ),
        (
            WritesAgain,
            "timesteps_conform_to_the_specs_and_are_not_written_into_later",
            "fresh arrays",
        ),
    ],
)
def test_the_contract_finds_what_breaks_it(case, test, message):
    with pytest.raises(AssertionError, match=message):
        getattr(case(), f"test_{test}")()


def test_closing_closes_the_simulator_once():
    environment = adapt("next")
    for _ in range(2):
        environment.close()  # the simulator would refuse a second time
    assert environment.simulator.is_closed


def test_wrong_numbers_are_refused():
    with pytest.raises(ValueError, match="`num_environments` must be >= 1, got 0"):
        environments.BatchedPendulum(0, generator=None)
    with pytest.raises(ValueError, match="`time_limit` must be >= 1 step, got 0"):
        environments.BatchedPendulum(1, generator=None, time_limit=0)
    pendulum = environments.BatchedPendulum(2, generator=None)
    pendulum.reset()
    with pytest.raises(ValueError, match=r"`actions` must hold .* 2 environments, \[2, 1\], got \[2\]"):
        pendulum.step(torch.zeros(2))


def test_a_pendulum_moves_as_gymnasiums():
    gymnasium = pytest.importorskip("gymnasium")
    number, random = 5, np.random.default_rng(0)
    pendulum = environments.BatchedPendulum(number, generator=torch.Generator().manual_seed(1), time_limit=60)
    observation = pendulum.reset().newest
    alone = [gymnasium.make("Pendulum-v1") for _ in range(number)]
    for index, environment in enumerate(alone):
        environment.reset(seed=0)
        cos, sin, speed = observation[index].double().tolist()
        environment.unwrapped.state = np.array([np.arctan2(sin, cos), speed])
    for _ in range(50):
        actions = random.uniform(-3.0, 3.0, (number, 1)).astype(np.float32)  # beyond the bounds, too
        timestep = pendulum.step(torch.from_numpy(actions))
        for index, environment in enumerate(alone):
            expected, reward, *_ = environment.step(actions[index])
            np.testing.assert_allclose(timestep.observation[index].numpy(), expected, atol=2e-4)
            np.testing.assert_allclose(timestep.reward[index].item(), reward, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("staggered", [False, True])
def test_a_pendulums_episodes_end_by_the_time_limit(staggered):
    generator = torch.Generator().manual_seed(2)
    pendulum = environments.BatchedPendulum(50, generator=generator, time_limit=9, staggered=staggered)
    pendulum.reset()
    ends, begun = [], []
    for _ in range(36):
        timestep = pendulum.step(torch.zeros(50, 1))
        ends.append((timestep.step_type == LAST).numpy())
        assert bool((timestep.discount == 1.0).all())
        begun.append(timestep.newest[torch.from_numpy(ends[-1])])
    cos, sin, speed = torch.cat(begun).numpy().T
    assert cos.min() < -0.9 and cos.max() > 0.9 and sin.min() < -0.9 and sin.max() > 0.9
    assert -1.0 <= speed.min() < -0.9 and 0.9 < speed.max() <= 1.0
    ends = np.array(ends)
    assert (ends.sum(axis=0) == 4).all()
    for column in ends.T:
        assert (np.diff(np.flatnonzero(column)) == 9).all()
    assert (len(np.unique(ends.argmax(axis=0))) > 4) == staggered


@pytest.mark.parametrize(
    "make",
    [
        lambda generator: environments.BatchedPendulum(4, generator=generator, time_limit=5, staggered=True),
        lambda generator: testing.FakeBatchedEnvironment(4, generator=generator),
    ],
)
def test_open_episodes_go_on_from_a_saved_state(make):
    def go_on(environment, num_steps):
        return [environment.step(torch.zeros(4, *environment.action_spec().shape)) for _ in range(num_steps)]

    environment = make(torch.Generator().manual_seed(5))
    environment.reset()
    go_on(environment, 7)
    saved = testing.through_a_file(environment.save())
    expected = go_on(environment, 20)
    resumed = make(torch.Generator().manual_seed(6))
    resumed.restore(saved)
    testing.assert_nests_equal(go_on(resumed, 20), expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda: environments.BatchedPendulum(4, generator=None, device="meta", staggered=True),
        lambda: testing.FakeBatchedEnvironment(4, device="meta"),
        lambda: testing.FakeBatchedEnvironment(4, device="meta", resets_in_next_step=True),
    ],
)
def test_a_step_reads_no_number_on_the_host(make):
    environment = make()
    shapes = [leaf.shape for leaf in environment.reset()]
    actions = torch.zeros(4, *environment.action_spec().shape, device="meta")
    timestep = environment.step(actions)
    assert [leaf.shape for leaf in timestep] == shapes
    assert {leaf.device.type for leaf in timestep} == {"meta"}


def test_last_observations_that_are_missing_where_an_episode_ends_are_told():
    environment = adapt("final in some")
    environment._final_observation = lambda infos: None
    environment.reset()
    with pytest.raises(
        specs.SpecError, match="`final_observation` must return .* ends [0-9]+ episodes, got None"
    ):
        for _ in range(max(LENGTHS)):
            environment.step(torch.zeros(len(LENGTHS), 1))
