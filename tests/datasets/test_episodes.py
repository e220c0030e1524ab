"""Episodes in other forms, and their checks against specs."""

import re

import dm_env
import numpy as np
import pytest

from minerva_acme import datasets, specs, testing
from minerva_acme.datasets import episodes
from tests.datasets.conftest import DISCRETE, SPEC, Wanderer


def as_minari(episode):
    ends = np.zeros((2, episode.num_steps), bool)
    ends[:, -1] = episode.terminated, not episode.terminated
    infos = {name: np.concatenate([value[:1], value]) for name, value in episode.extras.items()}
    return {
        "observations": episode.observation,
        "actions": episode.action,
        "rewards": episode.reward,
        "terminations": ends[0],
        "truncations": ends[1],
        "infos": infos,
    }


def as_timesteps(episode):
    steps = [(None, dm_env.restart(episode.observation[0]))]
    for t, action in enumerate(episode.action):
        is_last = t == episode.num_steps - 1
        discount = 0.0 if is_last and episode.terminated else 1.0
        kind = dm_env.StepType.LAST if is_last else dm_env.StepType.MID
        timestep = dm_env.TimeStep(kind, episode.reward[t], discount, episode.observation[t + 1])
        steps.append((action, timestep, {name: value[t] for name, value in episode.extras.items()}))
    return steps


@pytest.mark.parametrize("terminated", [True, False])
@pytest.mark.parametrize(
    "form",
    [
        lambda episode: episode,
        lambda episode: episode._asdict(),
        as_minari,
        as_timesteps,
    ],
)
def test_an_episode_is_the_same_in_every_form(make_episode, form, terminated):
    episode = make_episode(4, terminated, log_prob=np.arange(4, dtype=np.float32))
    found = datasets.as_episode(form(episode))
    testing.assert_nests_equal(tuple(found), tuple(episode))
    np.testing.assert_array_equal(found.discount, [1.0, 1.0, 1.0, 0.0 if terminated else 1.0])


def test_an_episode_that_was_cut_before_its_last_is_no_terminal():
    first, second = Wanderer().reset(), dm_env.transition(1.0, np.zeros(2), 1.0)
    assert datasets.as_episode([(None, first), (np.zeros(1), second)]).terminated is False


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rewards": None}, r"must have `observation`, `action` and `reward`.* Add reward"),
        ({"terminations": None}, "neither `terminated` nor `terminations`"),
        ({"terminations": np.array([True, False, False])}, "`terminations` .* False before the last"),
        ({"truncations": np.array([False, True, False])}, "`truncations` .* False before the last"),
        ({"truncations": np.array([False, True])}, "one for each of its 3 steps"),
    ],
)
def test_a_wrong_dict_is_refused(make_episode, change, message):
    recorded = {k: v for k, v in {**as_minari(make_episode(3)), **change}.items() if v is not None}
    with pytest.raises(ValueError, match=message):
        datasets.as_episode(recorded)


def test_wrong_timesteps_are_refused(make_episode):
    steps = as_timesteps(make_episode(3, False))
    for wrong in (steps[1:], steps[:1], [step[1:2] for step in steps], 3 * [1]):
        with pytest.raises(ValueError, match="must be a `datasets.Episode`, a dict of arrays, or a sequence"):
            datasets.as_episode(wrong)
    with pytest.raises(ValueError, match="its only LAST and have one FIRST, got LAST"):
        datasets.as_episode([*steps, *steps[1:]])
    with pytest.raises(ValueError, match="its only LAST and have one FIRST, got FIRST"):
        datasets.as_episode([*steps[:2], *steps[:2]])


@pytest.mark.parametrize(("kind", "discount"), [("MID", 0.0), ("MID", 0.9), ("LAST", 0.5)])
def test_a_discount_that_says_more_than_an_end_is_refused(kind, discount):
    timestep = dm_env.TimeStep(dm_env.StepType[kind], 1.0, discount, np.zeros(2))
    steps = [(None, dm_env.restart(np.zeros(2))), (np.zeros(1), timestep)]
    with pytest.raises(ValueError, match=f"must be 1, or 0 at a terminal LAST, .* got {discount} at {kind}"):
        datasets.as_episode(steps)


def test_64_bits_become_32_if_nothing_is_lost_but_digits(make_episode):
    episode = make_episode(3)
    wide = episode._replace(
        observation=episode.observation.astype(np.float64), action=np.array([0, 2, 1], np.int64)
    )
    found = episodes.conform(wide, DISCRETE)
    assert found.action.dtype == np.int32
    np.testing.assert_array_equal(found.observation, episode.observation)
    with pytest.raises(specs.SpecError, match=r"`action` must be int32 of shape \(3,\), got int64"):
        episodes.conform(wide._replace(action=np.array([0, 2, 1 << 40])), DISCRETE)


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, bool])
def test_rewards_that_are_whole_numbers_become_floats(make_episode, dtype):
    reward = np.array([0, 1, 1], dtype)
    found = episodes.conform(make_episode(3)._replace(reward=reward), SPEC).reward
    assert found.dtype == np.float32 and found.tolist() == [0, 1, 1]
    with pytest.raises(specs.SpecError, match=r"`reward` must be float32 of shape \(3,\)"):
        episodes.conform(make_episode(3)._replace(reward=np.array(["0", "1", "1"])), SPEC)


def test_discrete_observations_out_of_range_are_refused(make_episode):
    spec = SPEC._replace(
        observations={"place": specs.DiscreteArray(3), "bound": specs.BoundedArray((), int, 0, 2)}
    )
    for wrong in (-1, 3):
        places, others = np.array([0, 2, 1, 2]), np.array([0, 5, 0, 0])
        episode = make_episode(3)._replace(observation={"place": places, "bound": others})
        assert episodes.conform(episode, spec)
        places[2] = wrong
        with pytest.raises(
            specs.SpecError, match=rf"place.*in \[0, 2\].* got {wrong} at step 2 .* leave it out"
        ):
            episodes.conform(episode, spec)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observation": np.zeros((3, 2), np.float32)}, r"`observation` .* shape \(4, 2\), got .*\(3, 2\)"),
        ({"action": np.zeros((3, 2), np.float32)}, r"`action` .* shape \(3, 1\), got .*\(3, 2\)"),
        ({"action": np.zeros((3, 1), np.int32)}, r"`action` must be float32 .* got int32"),
        ({"reward": np.zeros((3, 1), np.float32)}, r"`reward` .* one for each of its steps, got \(3, 1\)"),
        ({"reward": np.zeros(0, np.float32)}, r"`reward` .* one for each of its steps, got \(0,\)"),
        ({"observation": {"a": np.zeros(1)}}, r"`observation` must be float32 .*, got a dict of \['a'\]"),
    ],
)
def test_an_episode_of_another_spec_is_refused(make_episode, change, message):
    with pytest.raises(specs.SpecError, match=message):
        episodes.conform(make_episode(3)._replace(**change), SPEC)


@pytest.mark.parametrize("form", [lambda episode: episode, lambda episode: episode._asdict()])
def test_an_array_of_terminations_may_be_called_terminated(make_episode, form):
    episode = make_episode(3)
    for terminated in (np.array([False, False, True]), np.zeros(3, bool), np.True_, np.array(False)):
        found = datasets.as_episode(form(episode._replace(terminated=terminated)))
        assert found.terminated is bool(np.ravel(terminated)[-1])
    with pytest.raises(ValueError, match=r"`terminated` .* False before the last, got .* true at \[0\]"):
        datasets.as_episode(form(episode._replace(terminated=np.array([True, False, False]))))


@pytest.mark.parametrize("name", ["truncated", "truncations"])
@pytest.mark.parametrize("terminated", [True, np.array([False, False, True])])
def test_a_truncation_in_the_middle_is_refused_by_either_name(make_episode, terminated, name):
    recorded = {**make_episode(3)._asdict(), "terminated": terminated}
    assert datasets.as_episode({**recorded, name: np.zeros(3, bool)}).terminated is True
    with pytest.raises(ValueError, match=rf"`{name}` .* False before the last, got .* true at \[1\]"):
        datasets.as_episode({**recorded, name: np.array([False, True, False])})
    assert datasets.as_episode({**recorded, "truncated": True}).terminated is True


@pytest.mark.parametrize("value", [np.nan, -np.inf, 1e20, 1e300])
@pytest.mark.parametrize(("name", "index"), [("reward", 1), ("observation", (3, 1)), ("action", (2, 0))])
def test_numbers_that_no_agent_would_be_given_are_refused(make_episode, name, index, value):
    array = getattr(make_episode(3), name).astype(np.float64)
    array[index] = value
    step = index if isinstance(index, int) else index[0]
    with np.errstate(over="ignore"):
        limit = "finite" if not np.isfinite(np.float32(value)) else r"within ±1e\+15"
    message = (
        rf"`{name}` must be {limit}, got .* at step {step} \(counted from 0\).* leave (it|the episode) out"
    )
    with pytest.raises(specs.SpecError, match=message):
        episodes.conform(make_episode(3)._replace(**{name: array}), SPEC)


@pytest.mark.parametrize(
    ("spec", "fine", "wrong", "place"),
    [
        (
            specs.BoundedArray((1,), np.float32, -1, 1),
            [[1.000001], [-1], [0]],
            [[0], [1.001], [0]],
            "[-1, 1]",
        ),
        (
            specs.BoundedArray((2,), np.float32, [-1, 0], [3, np.inf]),
            [[3, 0], [0, 1e9], [0, 5]],
            [[3, 0], [0, -0.01], [9, 9]],
            "[0, inf]",
        ),
        (specs.DiscreteArray(3), [0, 1, 2], [0, 3, 1], "[0, 2]"),
    ],
)
def test_actions_out_of_bounds_are_refused(make_episode, spec, fine, wrong, place):
    spec, episode = SPEC._replace(actions=spec), make_episode(3)
    fine, wrong = (np.array(action, spec.actions.dtype) for action in (fine, wrong))
    np.testing.assert_array_equal(episodes.conform(episode._replace(action=fine), spec).action, fine)
    with pytest.raises(specs.SpecError, match=rf"`action` .* in {re.escape(place)}.* at step 1 .* scale"):
        episodes.conform(episode._replace(action=wrong), spec)


def test_extras_may_be_lists_over_time(make_episode):
    episode = make_episode(3)
    wanted = {"a": np.float64([1.0, 2.0, 3.0]), "b": (np.int64([4, 5, 6]),)}
    extras = {"a": [1.0, 2.0, 3.0], "b": ([4, 5, 6],)}
    found = datasets.as_episode({**episode._asdict(), "extras": extras}).extras
    np.testing.assert_equal(found, wanted)


@pytest.mark.parametrize("value", [3.0, None, "text"])
def test_extras_that_are_not_over_time_are_refused_by_name(tmp_path, make_episode, value):
    wrong = {**make_episode(3)._asdict(), "extras": {"a": value}}
    with pytest.raises(
        specs.SpecError, match=r"episode 0: `extras\['a'\]` must be numbers, a row for each of"
    ):
        datasets.write(tmp_path / "data", [wrong], SPEC)


def test_what_is_no_sequence_is_no_episode():
    with pytest.raises(ValueError, match="or a sequence of .* that begins with .* got NoneType"):
        datasets.as_episode(None)
