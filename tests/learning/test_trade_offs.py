"""Trade-offs of two objectives, and a critic that sees more. `make learn` runs the long part."""

import contextlib

import numpy as np
import pytest

from minerva_acme import plotting
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


@pytest.mark.learning
def test_three_of_five_bounds_are_on_the_front(tmp_path):
    for seed in (0, 1):
        trade_offs.run_front(tmp_path, seed, 30_000)
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
