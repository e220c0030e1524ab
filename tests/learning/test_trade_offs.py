"""Trade-offs of two objectives, and a critic that sees more. `make learn` runs the long part."""

import contextlib
import functools
import types

import numpy as np
import pytest
import torch

from minerva_acme import plotting, wrappers
from minerva_acme.runs import run_results

from . import trade_offs


def test_the_environments_show_what_is_compared():
    with contextlib.closing(trade_offs.make_costly(0)) as environment:
        environment.reset()
        reward = environment.step(np.full(1, 0.5, np.float32)).reward
        assert sorted(reward) == ["cost", "return"] and reward["cost"] == -0.25
    sizes = []
    for is_seen in (True, False):
        with contextlib.closing(trade_offs.make_hidden(0, is_seen)) as environment:
            observation = environment.reset().observation
            parts = observation if is_seen else {"policy": observation}
            sizes.append({name: part.shape for name, part in parts.items()})
            first = parts["policy"]
            assert np.array_equal(first[:3], first[3:6])
    assert sizes == [{"policy": (9,), "critic": (3,)}, {"policy": (9,)}]


def test_the_critics_error_is_its_distance_from_the_soft_return(tape):
    # With rewards 1, 2, 3, a discount of 1/2, a log-probability of -1 and a temperature of 1/10, the soft
    # returns are 1 + (2 + .1 + (3 + .1) / 2) / 2 = 2.825, 2 + (3 + .1) / 2 = 3.55 and 3.
    def number(value):
        return torch.tensor([value])

    policy = types.SimpleNamespace(sample_and_log_prob=lambda generator: (number([0.0]), number(-1.0)))
    prediction = types.SimpleNamespace(mean=lambda: number(2.0))
    nets = types.SimpleNamespace(
        policy=lambda observation: policy,
        critic=lambda observation, action: prediction,
        temperature=lambda: torch.tensor(0.1),
    )
    error = trade_offs.critic_error(nets, tape([1.0, 2.0, 3.0]), 0.5, num_episodes=2, num_tail_steps=1)
    assert error == pytest.approx((((2.825 - 2.0) ** 2 + (3.55 - 2.0) ** 2) / 2) ** 0.5, rel=1e-6)


def test_both_critics_are_measured_once_for_a_seed(tmp_path, monkeypatch):
    def cut(make, seed):
        return wrappers.StepLimitWrapper(make(seed), max_steps=20)

    for name in ("make_seen", "make_unseen"):
        monkeypatch.setattr(trade_offs, name, functools.partial(cut, getattr(trade_offs, name)))
    small = {"policy_layer_sizes": (8,), "critic_layer_sizes": (8,), "min_replay_size": 32, "random_steps": 0}
    small |= {"num_evaluations": 1, "num_episodes": 1, "num_tail_steps": 5}
    measured = trade_offs.run_hidden(tmp_path, 0, 40, **small)
    assert measured.keys() == {"seen", "unseen"}
    assert all(found["critic_error"] > 0.0 and found["area"] >= 0.0 for found in measured.values())
    assert trade_offs.run_hidden(tmp_path, 0, 40, **small) == measured


def test_the_front_has_a_run_for_each_bound_of_the_cost(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(trade_offs, "_run", lambda builder, *others: made.append((builder.config, others[1])))
    trade_offs.run_front(tmp_path, 0, 5, batch_size=7)
    assert [config.objective_epsilons[1] for config, _ in made] == [*trade_offs.COST_EPSILONS]
    assert {(config.objectives, config.batch_size) for config, _ in made} == {(("return", "cost"), 7)}
    assert len({folder for _, folder in made}) == 5


@pytest.mark.learning
def test_three_of_five_bounds_are_on_the_front(tmp_path):
    for seed in (0, 1):
        trade_offs.run_front(tmp_path, seed, trade_offs.NUM_STEPS["front"])
    experiments = [
        experiment
        for epsilon in trade_offs.COST_EPSILONS
        for experiment in run_results.collect(
            sorted(tmp_path.glob(f"cost{epsilon:g}-*")), name=f"cost{epsilon:g}", import_code=True
        )
    ]
    (front,) = plotting.make_fronts(experiments)
    print(front, flush=True)
    assert sum(not point.is_dominated for point in front.points) >= 3
