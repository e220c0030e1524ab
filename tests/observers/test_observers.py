"""Observers in a loop: what an episode's result says of the steps that were made."""

import dm_env
import numpy as np
import pytest

from minerva_acme import actors, environments, observers, specs, testing, wrappers

NEST = {"arm": specs.BoundedArray((2,), np.float32, -1.0, 1.0), "grip": specs.DiscreteArray(3)}


class Script(dm_env.Environment):
    """Gives the observations it was made with, one a step."""

    def __init__(self, observations, infos=None):
        self.observations, self.infos, self.t = observations, infos, 0

    def reset(self):
        self.t = 0
        return dm_env.restart(self.observations[0])

    def step(self, action):
        self.t += 1
        if self.t == len(self.observations) - 1:
            return dm_env.termination(1.0, self.observations[self.t])
        return dm_env.transition(1.0, self.observations[self.t])

    def observation_spec(self):
        return specs.Array((2,), np.float64)

    def action_spec(self):
        return specs.Array((2,), np.float64)


class InfoScript(Script):
    def get_info(self):
        return self.infos[self.t]


class Acts(testing.FakeActor):
    """Selects the actions it was made with, one after another."""

    def __init__(self, actions):
        super().__init__(None)
        self.left = list(actions)

    def select_action(self, observation):
        return self.left.pop(0)


def play(observer, observations, actions, infos=None):
    make = Script if infos is None else InfoScript
    loop = environments.EnvironmentLoop(
        environment=make(observations, infos), actor=Acts(actions), observers=[observer]
    )
    result = loop.run_episode()
    return {name: value for name, value in result.items() if name in observer.get_metrics()}


def test_the_norm_of_each_action_is_summarised_over_the_episode():
    actions = [np.array([3.0, 4.0]), np.array([0.0, 0.0]), np.array([0.0, 1.0])]
    result = play(observers.ActionNorm(), np.zeros((4, 2)), actions)
    assert result == {"action_norm/mean": 2.0, "action_norm/min": 0.0, "action_norm/max": 5.0}


def test_a_nest_of_actions_has_a_norm_for_each_leaf():
    actions = [{"arm": np.array([3.0, 4.0]), "grip": np.int32(2)}, {"arm": np.zeros(2), "grip": np.int32(0)}]
    result = play(observers.ActionNorm(), np.zeros((3, 2)), actions)
    assert result["action_norm/arm/mean"] == 2.5
    assert result["action_norm/grip/max"] == 2.0


@pytest.mark.parametrize(("dtype", "value"), [(np.uint8, 255), (np.float16, 1e4), (np.float32, 1e30)])
def test_a_norm_does_not_overflow_in_the_dtype_of_the_observation(dtype, value):
    images = np.full((3, 4, 4, 3), value, dtype)
    result = play(observers.ObservationNorm(), images, np.zeros((2, 2)))
    assert result["observation_norm/mean"] == pytest.approx(value * 48**0.5)


def test_the_observations_that_steps_led_to_are_summarised_without_the_first():
    observations = np.array([[100.0, 0.0], [3.0, 4.0], [0.0, 1.0]])
    result = play(observers.ObservationNorm(), observations, np.zeros((2, 2)))
    assert result == {"observation_norm/mean": 3.0, "observation_norm/min": 1.0, "observation_norm/max": 5.0}


def test_each_element_of_an_action_has_its_statistics():
    actions = [np.array([-1.0, 0.5]), np.array([1.0, 0.5])]
    result = play(observers.ActionStatistics(), np.zeros((3, 2)), actions)
    first = {"action/0/mean": 0.0, "action/0/stddev": 1.0, "action/0/min": -1.0, "action/0/max": 1.0}
    second = {"action/1/mean": 0.5, "action/1/stddev": 0.0, "action/1/min": 0.5, "action/1/max": 0.5}
    assert result == first | second


def test_percentiles_are_those_of_numpy_over_the_steps_of_one_episode():
    random = np.random.default_rng(0)
    observer = observers.ObservationStatistics(percentiles=[25, 50, 97.5])
    for length in (9, 6):  # the second episode says nothing of the first
        observations = random.normal(size=(length, 2))
        result = play(observer, observations, np.zeros((length, 2)))
    for index, column in enumerate(observations[1:].T):
        found = [result[f"observation/{index}/{name}"] for name in ("p25", "p50", "p97.5", "stddev", "max")]
        expected = [*np.percentile(column, [25, 50, 97.5]), column.std(), column.max()]
        np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize(
    ("observer", "name"),
    [
        (observers.ActionStatistics(percentiles=[50]), "action/1/p50"),
        (observers.ActionNorm(percentiles=[50]), "action_norm/p50"),
        (observers.Measurement("mine", lambda e, t, action: action[1], percentiles=(50,)), "mine/p50"),
    ],
)
def test_every_summary_has_percentiles_where_they_are_asked_for(observer, name):
    actions = [np.array([0.0, value]) for value in (1.0, 9.0, 2.0)]
    assert play(observer, np.zeros((4, 2)), actions)[name] == 2.0


def test_a_percentile_beyond_100_is_refused():
    with pytest.raises(ValueError, match=r"`percentiles` must be in \[0, 100\] percent, got 101"):
        observers.ActionNorm(percentiles=[50, 101])


def test_a_scalar_action_has_statistics_without_an_index():
    result = play(observers.ActionStatistics(), np.zeros((3, 2)), [np.int32(0), np.int32(2)])
    assert sorted(result) == ["action/max", "action/mean", "action/min", "action/stddev"]
    assert result["action/max"] == 2.0


@pytest.mark.parametrize(
    ("observer", "action", "name"),
    [
        (observers.ActionNorm(), {"a": {"b": np.ones(1)}, "a/b": np.ones(1)}, "action_norm/a/b"),
        (observers.ActionStatistics(), {"a": np.ones(2), "a/1": np.float32(1)}, "action/a/1"),
    ],
)
def test_leaves_that_would_have_one_name_are_refused_instead_of_one_hiding_the_other(observer, action, name):
    with pytest.raises(ValueError, match=f"`{name}` must be the name of one number, got several in a"):
        play(observer, np.zeros((3, 2)), [action, action])


def test_the_numbers_of_the_info_are_reported_over_the_steps_that_had_them():
    infos = [
        {"x": 99.0},  # of the reset
        {"x": 1.0, "text": "left out", "vector": np.zeros(2), "won": np.bool_(False)},
        {"x": np.float32(3.0), "won": True, "rare": 7},
    ]
    result = play(observers.EnvironmentInfo(), np.zeros((3, 2)), np.zeros((2, 2)), infos)
    assert result == {
        "info/x/mean": 2.0, "info/x/min": 1.0, "info/x/max": 3.0, "info/x/last": 3.0, "info/x/sum": 4.0,
        "info/won/mean": 0.5, "info/won/min": 0.0, "info/won/max": 1.0, "info/won/last": 1.0,
        "info/won/sum": 1.0,
        "info/rare/mean": 7.0, "info/rare/min": 7.0, "info/rare/max": 7.0, "info/rare/last": 7.0,
        "info/rare/sum": 7.0,
    }  # fmt: skip


def test_only_the_keys_that_were_asked_for_are_reported():
    infos = [{}, {"x": 1.0, "y": 2.0}, {"y": 4.0}]
    result = play(observers.EnvironmentInfo(["y", "never"]), np.zeros((3, 2)), np.zeros((2, 2)), infos)
    statistics = {"mean": 3.0, "min": 2.0, "max": 4.0, "last": 4.0, "sum": 6.0}
    assert result == {f"info/y/{name}": value for name, value in statistics.items()}


def test_a_key_that_holds_no_number_is_refused_where_it_was_asked_for():
    infos = [{}, {"x": "far"}]
    with pytest.raises(ValueError, match=r"`info\['x'\]` must be one number to be reported, got 'far'"):
        play(observers.EnvironmentInfo(["x"]), np.zeros((2, 2)), np.zeros((1, 2)), infos)


def test_an_environment_without_info_is_refused_by_name():
    with pytest.raises(ValueError, match="`environment` must have a `get_info` method .* got a Script"):
        play(observers.EnvironmentInfo(), np.zeros((2, 2)), np.zeros((1, 2)))


def test_the_info_of_gymnasium_is_reached_through_wrappers():
    environment = wrappers.SinglePrecisionWrapper(environments.GymnasiumEnvironment("FrozenLake-v1", seed=0))
    loop = environments.EnvironmentLoop(
        environment=environment,
        actor=actors.RandomActor(environment.action_spec(), seed=0),
        observers=[observers.EnvironmentInfo()],
    )
    assert loop.run_episode()["info/prob/max"] == pytest.approx(1 / 3)


def test_a_measurement_of_ones_own_sees_environment_timestep_and_action():
    def measure(environment, timestep, action):
        return {"t": environment.t, "sum": timestep.observation.sum() + action.sum(), "torch": np.float32(1)}

    observations, actions = np.array([[0, 0], [1, 1], [2, 2]]), np.array([[10, 0], [20, 0]])
    result = play(observers.Measurement("mine", measure), observations, actions)
    assert result["mine/t/last"] == 2.0
    assert (result["mine/sum/min"], result["mine/sum/max"], result["mine/sum/mean"]) == (12.0, 24.0, 18.0)


def test_a_measurement_of_one_number_goes_by_its_name():
    result = play(observers.Measurement("t", lambda e, t, a: e.t), np.zeros((4, 2)), np.zeros((3, 2)))
    assert result == {"t/mean": 2.0, "t/min": 1.0, "t/max": 3.0, "t/last": 3.0}


@pytest.mark.parametrize(("measured", "found"), [(np.zeros(2), r"ndarray of shape \(2,\)"), ("no", "'no'")])
def test_a_measurement_that_is_no_number_is_refused_by_name(measured, found):
    observer = observers.Measurement("mine", lambda *_: {"height": measured})
    with pytest.raises(ValueError, match=f"`mine/height` must be .*number.* got {found}"):
        play(observer, np.zeros((2, 2)), np.zeros((1, 2)))


@pytest.mark.parametrize(
    "make_observer",
    [
        observers.ActionNorm,
        observers.ActionStatistics,
        observers.ObservationNorm,
        lambda: observers.Measurement("reward", lambda e, timestep, a: timestep.observation[0]),
    ],
)
def test_an_episode_says_nothing_of_the_one_before(make_observer):
    def episode(observer, size):
        return play(observer, np.full((3, 2), size), np.full((2, 2), size))

    observer = make_observer()
    first, second = episode(observer, 9.0), episode(observer, 0.5)
    assert first != second == episode(make_observer(), 0.5)


def test_there_is_nothing_to_report_before_the_first_step():
    assert observers.ActionNorm().get_metrics() == {}


def test_observers_go_together_in_one_loop_over_nests():
    loop = environments.EnvironmentLoop(
        environment=testing.FakeEnvironment(action_spec=NEST, observation_spec=NEST),
        actor=actors.RandomActor(NEST, seed=0),
        observers=[observers.ActionNorm(), observers.ObservationNorm(), observers.ActionStatistics()],
    )
    result = loop.run_episode()
    for name in ("action_norm/grip/max", "observation_norm/arm/mean", "action/arm/1/stddev"):
        assert np.isfinite(result[name])


class Given(observers.SummarisingObserver):
    """Measures the rows that it was made with."""

    statistics = ("mean", "stddev", "min", "max", "last", "sum")

    def __init__(self, rows):
        super().__init__()
        self.left = list(rows)

    def measure(self, environment, timestep, action):
        return self.left.pop(0)


def given(*rows):
    metrics = play(Given(rows), np.zeros((len(rows) + 1, 2)), np.zeros((len(rows), 2)))
    return {name: [metrics[f"{name}/{each}"] for each in Given.statistics] for name in ("a", "b")}


def test_a_name_is_summarised_over_the_steps_that_have_it():
    found = given({"a": 1, "b": True}, {"a": 3}, {"a": 5})
    assert found == {"a": [3.0, (8 / 3) ** 0.5, 1.0, 5.0, 5.0, 9.0], "b": [1.0, 0.0, 1.0, 1.0, 1.0, 1.0]}


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_nan_is_not_hidden_by_the_numbers_around_it(place):
    values = [1.0, np.inf]
    values.insert(place, np.nan)
    found = given(*({"a": value, "b": 0.0} for value in values))
    assert np.isnan(found["a"][:4]).all()
