"""Items that fade with age: what is drawn is what the definition says, whatever was written and set.

The definition, as in DR.Q: each insert multiplies the weights of all items that there are by the fading and
gives the new one 1. An item is drawn in proportion to its weight, clipped from below to the floor, times its
priority to the exponent.
"""

import json

import numpy as np
import pytest

from minerva_acme import replay
from minerva_acme.replay import base
from minerva_acme.replay.fading_tree import FadingTree

from .test_store import NUMBER, write_numbers

# Windows shorter than the table, as long, longer, of one item, and a table of one.
SIZES = [
    (50, 0.9, 0.1),
    (50, 0.5, 0.01),
    (22, 0.9, 0.1),
    (7, 0.9, 0.1),
    (30, 0.9999, 0.1),
    (9, 0.05, 0.1),
    (1, 0.9, 0.1),
]


class Definition:
    """All weights as an array, every one of them changed by every insert."""

    def __init__(self, capacity, fading, floor):
        self.fading, self.floor, self.capacity = fading, floor, capacity
        self.numbers, self.fresh, self.faded = np.zeros(0, int), np.zeros(0), np.zeros(0)

    def insert(self, weight):
        number = self.numbers[-1] + 1 if len(self.numbers) else 0
        keep = slice(len(self.numbers) + 1 - self.capacity if len(self.numbers) == self.capacity else 0, None)
        self.numbers = np.append(self.numbers[keep], number)
        self.fresh = np.append(self.fresh[keep], weight)
        self.faded = np.append(self.faded[keep] * self.fading, 1.0)

    def weights(self):
        return self.fresh * np.maximum(self.faded, self.floor)


def played(capacity, fading, floor, num_inserts, generator):
    """Yields a tree and the definition after each of many inserts, with weights that change in between."""
    tree, definition = (
        FadingTree(capacity, fading=fading, floor=floor, newest=-1),
        Definition(capacity, fading, floor),
    )
    for number in range(num_inserts):
        place = number % capacity
        if number >= capacity:
            tree.set(place, 0.0)
        weight = float(generator.integers(0, 4))
        tree.insert(place, weight)
        definition.insert(weight)
        some = generator.integers(0, len(definition.numbers), generator.integers(0, 4))
        values = generator.random(len(some)) * 5.0
        for index, value in zip(some, values, strict=True):
            definition.fresh[index] = value
        tree.set_many(definition.numbers[some] % capacity, values)
        yield tree, definition


@pytest.mark.parametrize("size", SIZES)
def test_weights_are_those_of_the_definition_after_every_insert(size):
    capacity = size[0]
    generator = np.random.default_rng(capacity)
    for tree, definition in played(*size, 4 * capacity + 60, generator):
        expected = definition.weights()
        np.testing.assert_allclose(tree.weights(definition.numbers % capacity), expected, rtol=1e-10)
        np.testing.assert_allclose(tree.total(), expected.sum(), rtol=1e-10)


@pytest.mark.parametrize("size", SIZES)
def test_each_place_has_a_share_of_the_points_as_large_as_its_weight(size):
    capacity = size[0]
    *_, (tree, definition) = played(*size, 3 * capacity + 5, np.random.default_rng(1))
    points = (np.arange(20_000) + 0.5) / 20_000 * tree.total()
    counts = np.bincount(tree.find(points), minlength=capacity)
    expected = np.zeros(capacity)
    expected[definition.numbers % capacity] = definition.weights()
    # The points lie evenly, and a share is one interval: at most one point too many at either end.
    np.testing.assert_allclose(counts, expected / expected.sum() * 20_000, atol=2.0)


@pytest.mark.parametrize("size", SIZES)
def test_the_same_items_give_the_same_draws_to_the_bit_whatever_happened_before(size):
    capacity, fading, floor = size
    generator = np.random.default_rng(2)
    for tree, definition in played(*size, 4 * capacity + 60, generator):
        direct = FadingTree(capacity, fading=fading, floor=floor, newest=int(definition.numbers[-1]))
        direct.set_many(definition.numbers % capacity, definition.fresh)
        assert tree.total() == direct.total()
        points = generator.random(20) * tree.total()
        np.testing.assert_array_equal(tree.find(points), direct.find(points))


def test_with_the_constants_of_dr_q_weights_reach_a_tenth_after_23_025_inserts():
    tree = FadingTree(60_000, fading=0.9999, floor=0.1, newest=59_000)
    tree.set_many(np.arange(59_001), np.ones(59_001))
    for number in range(59_001, 59_101):
        tree.insert(number, 1.0)
    ages = np.array([0, 1, 99, 100, 10_000, 23_024, 23_025, 23_026, 50_000, 59_100])
    np.testing.assert_allclose(
        tree.weights(59_100 - ages), np.maximum(0.9999 ** ages.astype(float), 0.1), rtol=1e-12
    )
    assert 0.9999**23_024 > 0.1 > 0.9999**23_025


def chi_square(numbers, first, weights):
    """Of draws against weights of the items from `first` on; with n items its mean is n - 1."""
    counts = np.bincount(numbers - first, minlength=len(weights))
    expected = len(numbers) * weights / weights.sum()
    return ((counts - expected) ** 2 / expected).sum()


@pytest.mark.parametrize("exponent", [0.0, 0.4])
def test_draws_are_distributed_as_defined(serve_memory, table, exponent):
    config = table(signature=NUMBER, max_size=300, sampler=replay.Prioritized(exponent, 0.97, 0.1))
    client = serve_memory(config).client()
    with client.writer(3) as writer, client.sampler("replay") as sampler:
        write_numbers(writer, 0, 400)
        priorities = np.random.default_rng(3).uniform(1.0, 30.0, 300)
        client.update_priorities("replay", np.arange(100, 400, dtype=np.uint64), priorities)
        info, fields = sampler.sample_batch(100_000)
    numbers, age = fields["window"][:, 0], np.arange(299.0, -1.0, -1.0)

    def weights(fading, floor, exponent):
        return np.maximum(fading**age, floor) * priorities**exponent

    expected = weights(0.97, 0.1, exponent)
    np.testing.assert_allclose(info.probability, (expected / expected.sum())[numbers - 100], rtol=1e-10)
    # Mean 299, standard deviation sqrt(2 * 299) = 24.5.
    assert chi_square(numbers, 100, expected) < 299 + 6 * 24.5
    # What is nearly that has far more, so that the bound tells them apart.
    for fading, floor, more in [(0.965, 0.1, 0.0), (0.97, 0.12, 0.0), (0.97, 0.1, 0.15), (1.0, 0.1, 0.0)]:
        assert chi_square(numbers, 100, weights(fading, floor, exponent + more)) > 299 + 12 * 24.5


def test_draws_follow_what_was_written_since(serve_memory, table):
    config = table(signature=NUMBER, max_size=100, sampler=replay.Prioritized(0.0, 0.9, 0.01))
    client = serve_memory(config).client()
    with client.writer(3) as writer, client.sampler("replay") as sampler:
        for first in (0, 50, 100, 150):
            write_numbers(writer, first, 50)
            info, _ = sampler.sample_batch(1)
            age = np.arange(min(first + 50, 100))
            total = np.maximum(0.9**age, 0.01).sum()
            expected = max(0.9 ** (first + 49 - int(info.key[0])), 0.01) / total
            np.testing.assert_allclose(info.probability, expected)


def newest_priority(client, sampler):
    newest = client.table_info("replay").inserted - 1
    info, _ = sampler.sample_batch(200)
    return float(info.priority[info.key == newest][0])


def test_new_items_get_the_largest_priority_that_any_has_had_also_after_a_restore(
    serve_memory, table, tmp_path
):
    sampler = replay.Prioritized(0.4, new_priority="largest")
    config = table(signature=NUMBER, max_size=4, sampler=sampler)
    client = serve_memory(config, checkpoint_directory=str(tmp_path)).client()
    with client.writer(3) as writer, client.sampler("replay") as draw:
        write_numbers(writer, 0, 2)
        assert newest_priority(client, draw) == 1.0  # the writer's
        client.update_priorities("replay", np.array([0, 1], np.uint64), np.array([5.0, 2.0]))
        write_numbers(writer, 10, 1)
        assert newest_priority(client, draw) == 5.0
        client.update_priorities("replay", np.arange(3, dtype=np.uint64), np.full(3, 0.5))
        write_numbers(writer, 20, 6)  # None that had 5 is left by its key.
        client.update_priorities("replay", np.arange(9, dtype=np.uint64), np.full(9, 0.5))
        path = client.checkpoint()
    restored = serve_memory(config, restore_from=path).client()
    with restored.writer(3) as writer, restored.sampler("replay") as draw:
        assert newest_priority(restored, draw) == 0.5
        write_numbers(writer, 30, 1)
        assert newest_priority(restored, draw) == 5.0


@pytest.mark.parametrize("largest", [float("nan"), -1.0, float("inf")])
def test_a_forged_largest_priority_is_refused(serve_memory, table, tmp_path, largest):
    config = table(signature=NUMBER, sampler=replay.Prioritized(0.4, new_priority="largest"))
    client = serve_memory(config, checkpoint_directory=str(tmp_path)).client()
    with client.writer(3) as writer:
        write_numbers(writer, 0, 2)
    path = f"{client.checkpoint()}/memory.npz"
    with np.load(path) as stored:
        arrays = dict(stored)
    described = json.loads(str(arrays["described"]))
    described["tables"]["replay"]["numbers"]["_largest_priority"] = largest
    np.savez(path, **{**arrays, "described": np.array(json.dumps(described))})
    with pytest.raises(replay.ReplayError, match="is damaged: its numbers (are inconsistent|must be finite)"):
        serve_memory(config, restore_from=path.removesuffix("/memory.npz"))


def test_a_checkpoint_that_fades_otherwise_is_another_table(serve_memory, table, tmp_path):
    config = table(signature=NUMBER, sampler=replay.Prioritized(0.4, 0.99))
    path = serve_memory(config, checkpoint_directory=str(tmp_path)).client().checkpoint()
    other = table(signature=NUMBER, sampler=replay.Prioritized(0.4, 0.999, new_priority="largest"))
    with pytest.raises(
        base.ReplayMismatch,
        match=r"fading=0\.99, floor=0\.1\) against Prioritized\(.*fading=0\.999, .*new_priority=largest",
    ):
        serve_memory(other, restore_from=path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sampler": replay.Prioritized(0.0, 0.0)}, r"`fading` must be in \(0, 1\]"),
        ({"sampler": replay.Prioritized(0.0, 1.1)}, r"`fading` must be in \(0, 1\]"),
        ({"sampler": replay.Prioritized(0.0, 0.9, 1.0)}, r"`floor` in \[1e-6, 1\), got 0.9 and 1.0"),
        ({"sampler": replay.Prioritized(0.0, 0.9, 0.0)}, r"`floor` in \[1e-6, 1\)"),
        ({"sampler": replay.Prioritized(0.0, 0.9), "remover": replay.Lifo()}, r"Use `Fifo\(\)` and 0"),
        ({"sampler": replay.Prioritized(0.0, 0.9), "max_times_sampled": 2}, r"Use `Fifo\(\)` and 0"),
        ({"remover": replay.Prioritized(1.0, 0.9)}, "samplers alone fade"),
        ({"remover": replay.Prioritized(1.0, new_priority="largest")}, "samplers alone fade"),
    ],
)
def test_tables_that_cannot_fade_are_refused(table, changes, message):
    with pytest.raises(ValueError, match=message):
        table(**changes)


def test_a_table_that_nobody_samples_remembers_no_more_than_its_leaves():
    tree = FadingTree(64, fading=0.9, floor=0.1, newest=-1)
    for number in range(5_000):
        if number >= 64:
            tree.set(number % 64, 0.0)
        tree.insert(number % 64, 1.0)
    assert len(tree._young._stale) <= 32 and len(tree._old._stale) <= 64
