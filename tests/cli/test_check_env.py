"""`minerva check-env`: good environments pass, and what is wrong with the others has a line."""

import pytest

from minerva_acme.agents import registry
from minerva_acme.cli import check_env, main
from tests.agents import table

MODULE = '''
import dm_env
import gymnasium
import numpy as np
from dm_env import specs


class Good(dm_env.Environment):
    """Episodes of 3 to 7 steps from a random place; the even ones are cut short."""

    def __init__(self, seed):
        self._random = np.random.default_rng(seed)
        self._length = None

    def reset(self):
        self._length, self._steps = int(self._random.integers(3, 8)), 0
        return dm_env.restart(self.observe())

    def observe(self):
        return self._random.normal(size=2).astype(np.float32)

    def step(self, action):
        if self._length is None:
            return self.reset()
        self._steps += 1
        if self._steps < self._length:
            return dm_env.transition(1.0, self.observe())
        return self.end()

    def end(self):
        is_cut, self._length = self._length % 2 == 0, None
        return (dm_env.truncation if is_cut else dm_env.termination)(1.0, self.observe())

    def observation_spec(self):
        return specs.Array((2,), np.float32)

    def action_spec(self):
        return specs.BoundedArray((1,), np.float64, -1, 1)


class Seedless(Good):
    def __init__(self):
        super().__init__(None)


class IgnoresItsSeed(Good):
    def __init__(self, seed):
        super().__init__(None)


class ReusesItsArray(Good):
    array = np.zeros(2, np.float32)

    def observe(self):
        self.array[:] = super().observe()
        return self.array


class ShowsTheNextEpisode(Good):
    first = None

    def reset(self):
        first, self.first = self.first, None
        timestep = super().reset()
        return timestep if first is None else dm_env.restart(first)

    def end(self):
        timestep = super().end()
        self.first = timestep.observation
        return timestep


class WrongDtype(Good):
    def observe(self):
        return super().observe().astype(np.float64)


class Unending(Good):
    def end(self):
        return dm_env.transition(1.0, self.observe())


class TenSteps(Good):
    """A time limit that is told as a true end."""

    def reset(self):
        timestep = super().reset()
        self._length = 10
        return timestep

    def end(self):
        self._length = None
        return dm_env.termination(1.0, self.observe())


class Breaks(Good):
    def step(self, action):
        raise KeyError("joint 7")


class NoSpec(Good):
    def action_spec(self):
        return None


class Mixed(Good):
    def action_spec(self):
        return {"arm": super().action_spec(), "grip": specs.DiscreteArray(2)}


class Gym(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(5)
    action_space = gymnasium.spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return int(self.np_random.integers(5)), {}

    def step(self, action):
        assert self.action_space.contains(action)
        place = int(self.np_random.integers(5))
        return place, 1.0, place == 0, False, {}


class GymMixed(Gym):
    action_space = gymnasium.spaces.Tuple(
        [
            gymnasium.spaces.Discrete(3, start=1),
            gymnasium.spaces.Dict(
                {"arm": gymnasium.spaces.Box(0.0, 4.0, (2,)), "tools": gymnasium.spaces.MultiBinary(2)}
            ),
        ]
    )


class Unbounded(Good):
    def action_spec(self):
        return {"arm": specs.Array((2,), np.float32), "grip": specs.DiscreteArray(2)}


def number():
    return 7
'''


@pytest.fixture
def verdicts(tmp_path, monkeypatch, capsys):
    """Checks an environment of the module: gives the exit status and the lines by the name of the check."""
    (tmp_path / "places_to_check.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)

    def check(name, *flags):
        status = main(["check-env", f"places_to_check:{name}" if name[0].isupper() else name, *flags])
        lines = capsys.readouterr().out.splitlines()
        # The last line sums up; one that begins with spaces is the advice of the line before.
        rows = {line[8:32].strip(): (line[:8].strip(), line[33:]) for line in lines[:-1] if line[0] != " "}
        num_wrong = sum(line.startswith("wrong ") for line in lines[:-1])
        assert f", {num_wrong} wrong. " in lines[-1]
        return status, rows

    return check


@pytest.mark.parametrize("name", ["Good", "Gym", "CartPole-v1", "dm_control/point_mass/easy"])
@pytest.mark.promise("An environment checker, and a profiler")
def test_what_is_right_is_ok_in_every_line(verdicts, name):
    short = ["--env-kwargs", "time_limit=2.0"] if name.startswith("dm_control") else []
    status, rows = verdicts(name, *short)
    assert status == 0
    agents = {agent: rows.pop(agent)[0] for agent in registry.AGENTS}
    assert {judged for judged, _ in rows.values()} == {"ok"}
    assert {*check_env._NAMES.values(), "ends", "observations", "actions"} <= set(rows)
    # Several choices, one choice, one vector.
    of_vectors, of_choices = {*table.VECTORS}, {"dqn", "r2d2"}
    refusing = {
        "Gym": {"mpo", "bc"} | of_vectors | of_choices,
        "CartPole-v1": of_vectors,
        "dm_control/point_mass/easy": of_choices,
        "Good": of_choices,
    }
    assert {agent for agent, judged in agents.items() if judged == "no"} == refusing[name]
    assert set(agents.values()) <= {"ok", "no"}


@pytest.mark.parametrize(
    ("name", "check", "message"),
    [
        (
            "IgnoresItsSeed",
            "seed",
            "Two environments with the same seed must be equal, but timestep 0 differs.",
        ),
        ("ReusesItsArray", "fresh arrays", "Timesteps must have fresh arrays. `step` number 1 changed the "),
        ("ShowsTheNextEpisode", "last observation", "`step` must return with LAST the observation in which"),
        (
            "WrongDtype",
            "shapes, dtypes, bounds",
            "`reset` must conform to the specs: `observation` must",
        ),
        ("Breaks", "ends", "KeyError: 'joint 7' ("),
    ],
)
def test_what_is_wrong_is_named_in_its_line_and_fails(verdicts, name, check, message):
    status, rows = verdicts(name, "--steps", "50")
    assert status == 1
    assert rows[check][0] == "wrong"
    assert rows[check][1].startswith(message)


@pytest.mark.parametrize(
    ("name", "check", "message"),
    [
        ("Seedless", "seed", "not accepted: runs are not reproducible"),
        ("TenSteps", "ends", "3 of 3 episodes terminated (discount 0), each after 10 steps"),
    ],
)  # fmt: skip
def test_what_may_be_a_mistake_is_a_warning(verdicts, name, check, message):
    status, rows = verdicts(name)
    assert (status, rows[check]) == (0, ("warning", message))


def test_an_episode_of_more_steps_is_a_warning_in_one_line_alone(verdicts):
    status, rows = verdicts("Unending", "--steps", "50")
    assert (status, rows["ends"]) == (0, ("warning", "no episode ended within 50 steps"))
    assert rows["order of an episode"][0] == "ok"
    assert [verdict for verdict, _ in rows.values()].count("warning") == 1


def test_how_episodes_end_is_counted(verdicts):
    assert (
        "of 3 episodes terminated (discount 0), the others hit a limit, after"
        in verdicts("Good")[1]["ends"][1]
    )


def test_each_agent_says_why_it_does_not_take_an_environment(verdicts):
    _, rows = verdicts("Gym")
    assert rows["mpo"][1].startswith(
        "MPO needs actions that are one discrete number or one float32 vector, got s"
    )
    assert rows["ppo"][1] == (
        "supported: observations Array(5,) float32; actions BoundedArray(2,) int32 in [0, 1], [0, 2]"
    )


def test_an_environment_without_a_spec_has_a_line_that_says_so(verdicts):
    status, rows = verdicts("NoSpec")
    assert status == 1
    assert rows["for training"][0] == "wrong" and "of `actions` must be a nest" in rows["for training"][1]


def test_what_no_agent_takes_fails(verdicts):
    status, rows = verdicts("Unbounded")
    assert status == 1
    assert rows["for training"] == (
        "wrong",
        "`action_spec`['arm'] must be bounded on both sides to be scaled to [-1, 1], got Array(2,) float32. "
        "Give it bounds in a wrapper around the environment.",
    )


@pytest.mark.parametrize(
    ("name", "actions"),
    [
        ("Mixed", "BoundedArray(1,) float32 in [-1, 1], discrete: BoundedArray(1,) int32 in [0, 1]"),
        ("GymMixed", "BoundedArray(2,) float32 in [-1, 1], discrete: BoundedArray(3,) int32 in [0, 2]"),
    ],
)  # fmt: skip
def test_nests_of_continuous_and_discrete_actions_are_for_mpo_alone(verdicts, name, actions):
    status, rows = verdicts(name)
    assert status == 0
    assert rows["mpo"][0] == "ok" and actions in rows["mpo"][1]
    others = {agent: rows[agent] for agent in ("sac", "ppo", "dqn", "bc")}
    assert {verdict for verdict, _ in others.values()} == {"no"}
    assert "Choose an agent that takes both kinds" in others["ppo"][1]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("places_to_check:number", "must make a dm_env or Gymnasium environment, got 7"),
        ("no_such_module:Env", "There is no module 'no_such_module', which `no_such_module:Env` names."),
        ("CartPole-v77", "must be dm_control/<domain>/<task> or an id of Gymnasium's, got 'CartPole-v77'"),
    ],
)  # fmt: skip
def test_what_is_no_environment_is_refused(verdicts, capsys, name, message):
    assert main(["check-env", name]) == 2
    assert message in capsys.readouterr().err
