"""The functions that read what a test needs."""

import dataclasses

import numpy as np
import pytest

from minerva_acme import replay, specs, testing
from minerva_acme.adders import NStepTransitionAdder
from minerva_acme.replay.layouts import TransitionLayout


@pytest.mark.parametrize("make_server", [replay.MemoryServer, replay.ReverbServer])
def test_all_items_of_a_table_that_is_sampled_uniformly_are_read(make_server):
    environment = testing.FakeEnvironment()
    layout = TransitionLayout(specs.make_environment_spec(environment))
    table = replay.TableConfig(
        name="table", signature=layout.signature, max_size=100, rate_limiter=replay.MinSize(1)
    )
    options = {"seed": 0} if make_server is replay.MemoryServer else {}
    with make_server([table], **options) as server, server.client() as client:
        adder = NStepTransitionAdder(client=client, table="table", layout=layout, n_step=1, discount=1.0)
        with adder:
            adder.add_first(environment.reset())
            for _ in range(5):
                adder.add(np.zeros(2, np.float32), environment.step(np.zeros(2, np.float32)))
        items = testing.read_items(client, "table", layout.unpack)
        assert sorted(item.reward for item in items) == [1.0, 2.0, 3.0, 4.0, 5.0]
        assert client.table_info("table").size == 5


def test_items_that_hardly_ever_come_are_an_error():
    @dataclasses.dataclass(frozen=True)
    class First(replay.Selector):
        def start(self, items):
            return OnlyFirst(items)

    class OnlyFirst(replay.Selection):
        def __init__(self, items):
            self._items = items

        def choose(self, count):
            return np.repeat(self._items.numbers()[:1], count), np.ones(count)

    environment = testing.FakeEnvironment()
    layout = TransitionLayout(specs.make_environment_spec(environment))
    table = replay.TableConfig(
        name="table",
        signature=layout.signature,
        max_size=100,
        rate_limiter=replay.MinSize(1),
        sampler=First(),
    )
    with replay.MemoryServer([table], seed=0) as server, server.client() as client:
        with NStepTransitionAdder(
            client=client, table="table", layout=layout, n_step=1, discount=1.0
        ) as adder:
            adder.add_first(environment.reset())
            for _ in range(2):
                adder.add(np.zeros(2, np.float32), environment.step(np.zeros(2, np.float32)))
        with pytest.raises(replay.ReplayError, match="each of its 2 items in 200 draws, got 1"):
            testing.read_items(client, "table", layout.unpack)
