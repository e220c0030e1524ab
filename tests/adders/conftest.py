"""A store in memory that checks what adders promise, and the real one, behind the same few calls."""

import collections
import dataclasses
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import dm_env
import numpy as np
import pytest
import torch
import tree

from minerva_acme import specs, types
from minerva_acme.replay import base as replay

TABLE = "table"


class Item(NamedTuple):
    table: str
    priority: float
    fields: dict[str, np.ndarray]


class MemoryWriter(replay.Writer):
    """Keeps everything, and asserts that rows, windows and their reach are as announced."""

    def __init__(self, signature: replay.ItemSignature, max_window: int, items: list[Item]) -> None:
        self.signature = signature
        self.max_window = max_window
        self.items = items
        self.rows: dict[str, list[np.ndarray]] = {}  # of this episode
        self.num_appended = 0  # rows of each column, of all episodes
        self.flushed_items = 0
        self.num_episodes = 0
        self.closed = False

    @property
    def priorities(self) -> list[float]:
        return [item.priority for item in self.items]

    def append(self, rows):
        assert rows, "an append without rows"
        self.num_appended += 1
        for name, row in rows.items():
            column = self.signature.columns[name]
            assert (row.shape, row.dtype) == (column.shape, column.dtype), name
            self.rows.setdefault(name, []).append(row)

    def create_item(self, table, priority, fields):
        assert fields.keys() == self.signature.fields.keys()
        item = {}
        for name, window in fields.items():
            spec = self.signature.fields[name]
            assert window.column == spec.column
            assert 1 <= window.length <= spec.length
            assert spec.variable or window.length == spec.length
            rows = self.rows[window.column]
            assert 0 <= window.start <= window.start + window.length <= len(rows)
            assert len(rows) - window.start <= self.max_window, "a window reaches back too far"
            item[name] = np.stack(rows[window.start : window.start + window.length])
        self.items.append(Item(table, priority, item))

    def flush(self):
        self.flushed_items = len(self.items)

    def end_episode(self):
        self.flush()
        self.rows = {}
        self.num_episodes += 1

    def close(self):
        self.closed = True


class MemoryClient(replay.ReplayClient):
    def __init__(self, signature: replay.ItemSignature) -> None:
        self.signature = signature
        self.items: list[Item] = []
        self.writers: list[MemoryWriter] = []

    def writer(self, max_window, narrow_columns=()):
        self.writers.append(MemoryWriter(self.signature, max_window, self.items))
        return self.writers[-1]

    def sampler(self, table):
        raise NotImplementedError

    def table_info(self, table):
        raise NotImplementedError

    def update_priorities(self, table, keys, priorities):
        raise NotImplementedError

    def checkpoint(self):
        raise NotImplementedError

    def close(self):
        pass


class Contents(NamedTuple):
    """What a table holds, oldest first."""

    priorities: list[float]
    fields: dict[str, np.ndarray]  # each [items, length of the longest, *row shape]; none without items


@dataclasses.dataclass
class Store:
    """Tables and their contents; what is read from a table is gone."""

    client: replay.ReplayClient
    read_table: Callable[..., Contents]  # of a table's name, and how many items; all without a number

    def read(self) -> dict[str, np.ndarray]:
        return self.read_table(TABLE).fields

    def read_one_by_one(self) -> list[dict[str, np.ndarray]]:
        """All items by themselves, each field `[1, length, *row shape]` as it is stored."""
        items = []
        while fields := self.read_table(TABLE, 1).fields:
            items.append(fields)
        return items

    def items(self, layout, table: str = TABLE) -> list[Any]:
        """All items in the order in which they were written, each a NamedTuple of arrays."""
        return self.items_and_priorities(layout, table)[0]

    def items_and_priorities(self, layout, table: str = TABLE) -> tuple[list[Any], list[float]]:
        priorities, fields = self.read_table(table)
        if not fields:
            return [], []
        batch = layout.unpack({name: torch.from_numpy(rows) for name, rows in fields.items()})
        for leaf in tree.flatten(batch):
            assert leaf.is_contiguous()
        axis = 1 if isinstance(batch, types.Rollout) else 0
        items = [
            tree.map_structure(lambda leaf, i=i: leaf.select(axis, i).numpy(), batch)
            for i in range(len(priorities))
        ]
        return items, priorities


class Memory(NamedTuple):
    """Makes stores in memory."""

    def make(self, signature: replay.ItemSignature, tables: tuple[str, ...] = (TABLE,)) -> Store:
        client = MemoryClient(signature)

        def read_table(table: str, num_items: int | None = None) -> Contents:
            assert {item.table for item in client.items} <= set(tables)
            items = [item for item in client.items if item.table == table][:num_items]
            client.items[:] = [item for item in client.items if not any(item is read for read in items)]
            names = items[0].fields if items else ()
            return Contents(
                [item.priority for item in items],
                {name: _stack([item.fields[name] for item in items]) for name in names},
            )

        return Store(client, read_table)


def _stack(items: list[np.ndarray]) -> np.ndarray:
    longest = max(map(len, items))
    rest = [(0, 0)] * (items[0].ndim - 1)
    return np.stack([np.pad(rows, [(0, longest - len(rows)), *rest]) for rows in items])


@pytest.fixture(scope="session")
def make_memory_store() -> Callable[[replay.ItemSignature], Store]:
    return Memory().make


@pytest.fixture(params=["memory", pytest.param("reverb", marks=pytest.mark.reverb)])
def make_store(request) -> Iterator[Callable[[replay.ItemSignature], Store]]:
    """A function that makes a store of one table for items of a signature, in memory or on Reverb."""
    if request.param == "memory":
        yield Memory().make
        return
    if importlib.util.find_spec("reverb") is None:
        pytest.skip("Reverb is not installed")
    from minerva_acme.replay.reverb import store

    opened = []

    def make(signature: replay.ItemSignature, tables: tuple[str, ...] = (TABLE,)) -> Store:
        configs = [
            replay.TableConfig(
                name=name,
                signature=signature,
                max_size=1000,
                rate_limiter=replay.MinSize(1),
                sampler=replay.Fifo(),
                max_times_sampled=1,
            )
            for name in tables
        ]
        server = store.ReverbServer(configs)
        client = server.client()
        opened.extend([server, client])

        def read_table(table: str, num_items: int | None = None) -> Contents:
            size = client.table_info(table).size
            if size == 0:
                return Contents([], {})
            with client.sampler(table) as sampler:
                info, fields = sampler.sample_batch(num_items or size)
            return Contents(info.priority.tolist(), fields)

        return Store(client, read_table)

    yield make
    for resource in reversed(opened):
        resource.close()


FLOAT = specs.Array((), np.float32)


@pytest.fixture(scope="session")
def scalar_spec() -> specs.EnvironmentSpec:
    """One float each of observation, action, reward and discount."""
    vector = specs.Array((1,), np.float32)
    return specs.EnvironmentSpec(vector, vector, FLOAT, FLOAT)


@pytest.fixture(scope="session")
def play() -> Callable[..., None]:
    """Plays one episode to an adder: observations start, start + 1, ... and actions start + 100, ...

    `end` is "last" where the environment ends it, "reset" where the adder is told to.
    """

    def play(adder, start, rewards, discounts, end="last") -> None:
        adder.add_first(dm_env.restart(np.float32([start])))
        steps = list(zip(rewards, discounts, strict=True))
        for t, (reward, discount) in enumerate(steps):
            is_last = t == len(steps) - 1 and end == "last"
            adder.add(
                np.float32([start + 100 + t]),
                dm_env.TimeStep(
                    step_type=dm_env.StepType.LAST if is_last else dm_env.StepType.MID,
                    reward=np.float32(reward),
                    discount=np.float32(discount),
                    observation=np.float32([start + t + 1]),
                ),
            )
        if end == "reset":
            adder.reset()

    return play


@pytest.fixture(scope="session")
def rich_spec() -> specs.EnvironmentSpec:
    """A nest of every kind of leaf: an image, a matrix, integers, booleans, two actions, two rewards."""
    return specs.EnvironmentSpec(
        observations=collections.OrderedDict(
            pixels=specs.Array((2, 2, 3), np.uint8),
            pose={"position": specs.Array((2, 2), np.float32), "touching": specs.Array((2,), np.bool_)},
        ),
        actions=(specs.BoundedArray((2,), np.float32, -1, 1), specs.DiscreteArray(5)),
        rewards={"task": FLOAT, "cost": FLOAT},
        discounts=FLOAT,
    )


@pytest.fixture(scope="session")
def rich_episode(rich_spec) -> Callable[..., Any]:
    """Observations, actions, timesteps and extras of an episode in which every number is different."""

    def episode(num_steps: int, final_discount: float, seed: int = 0) -> RichEpisode:
        random = np.random.default_rng(seed)

        def draw(spec: specs.Array) -> np.ndarray:
            if spec.dtype.kind == "f":
                return random.normal(size=spec.shape).astype(spec.dtype)
            return random.integers(0, 2 if spec.dtype == np.bool_ else 5, spec.shape).astype(spec.dtype)

        def nests(spec, count: int) -> list[Any]:
            return [tree.map_structure(draw, spec) for _ in range(count)]

        return RichEpisode(
            observations=nests(rich_spec.observations, num_steps + 1),
            actions=nests(rich_spec.actions, num_steps),
            rewards=nests(rich_spec.rewards, num_steps),
            discounts=[np.float32(1.0)] * (num_steps - 1) + [np.float32(final_discount)],
            extras=nests(EXTRAS_SPEC, num_steps),
        )

    return episode


EXTRAS_SPEC = {"log_prob": FLOAT, "attention": specs.Array((2, 2, 2), np.float32)}


@pytest.fixture(scope="session")
def extras_spec():
    """A scalar and something with three axes."""
    return EXTRAS_SPEC


class RichEpisode(NamedTuple):
    observations: list[Any]
    actions: list[Any]
    rewards: list[Any]
    discounts: list[Any]
    extras: list[Any]

    def play(self, adder) -> None:
        """Plays to an adder from buffers that are overwritten after every call, as environments do."""
        buffer = tree.map_structure(np.array, self.observations[0])
        adder.add_first(dm_env.restart(buffer))
        num_steps = len(self.actions)
        for t in range(num_steps):
            _fill(buffer, self.observations[t + 1])
            action = tree.map_structure(np.array, self.actions[t])
            timestep = dm_env.TimeStep(
                step_type=dm_env.StepType.LAST if t == num_steps - 1 else dm_env.StepType.MID,
                reward=self.rewards[t],
                discount=self.discounts[t],
                observation=buffer,
            )
            adder.add(action, timestep, self.extras[t])
            _fill(action, tree.map_structure(np.zeros_like, action))


def _fill(buffers, values) -> None:
    for buffer, value in zip(tree.flatten(buffers), tree.flatten(values), strict=True):
        buffer[...] = value
