"""Selectors of somebody's own: all that they need is here, and every part of a table in memory asks them."""

import dataclasses

import numpy as np
import pytest

from minerva_acme import replay, specs, testing
from minerva_acme.agents import dqn

NUMBER = replay.ItemSignature(
    columns={"number": replay.ColumnSpec((), np.dtype(np.int64))},
    fields={"window": replay.FieldSpec("number", 1)},
)


@dataclasses.dataclass(frozen=True)
class Newest(replay.Selector):
    """Chooses uniformly among the newest items."""

    count: int

    def start(self, items):
        return NewestSelection(items, self.count)


class NewestSelection(replay.Selection):
    def __init__(self, items, count):
        self._items, self._count = items, count

    def choose(self, count):
        numbers = self._items.numbers()[-self._count :]
        chosen = numbers[self._items.generator.integers(0, len(numbers), count)]
        return chosen, np.full(count, 1.0 / len(numbers))


@dataclasses.dataclass(frozen=True)
class Least(replay.Selector):
    """Chooses the item of the smallest priority, of several the oldest."""

    def start(self, items):
        return LeastSelection(items)


class LeastSelection(replay.Selection):
    """It keeps what it is told, and never asks for priorities but to begin anew."""

    def __init__(self, items):
        self._items, self._priorities = items, {}

    def choose(self, count):
        least = min(self._priorities, key=lambda number: (self._priorities[number], number))
        return np.full(count, least), np.ones(count)

    def rebuild(self):
        numbers = self._items.numbers()
        found = self._items.priorities(numbers)
        self._priorities = dict(zip(numbers.tolist(), found.tolist(), strict=True))

    def insert(self, number, priority):
        self._priorities[number] = priority

    def update(self, numbers, priorities):
        self._priorities.update(zip(numbers.tolist(), priorities.tolist(), strict=True))

    def remove(self, number):
        del self._priorities[number]


def write_numbers(writer, first, num_items, priority=1.0):
    for number in range(first, first + num_items):
        writer.append({"number": np.array(number)})
        writer.create_item("replay", priority, {"window": replay.Window("number", 0, 1)})
        writer.end_episode()


def numbers_in(client, count=200):
    with client.sampler("replay") as sampler:
        info, fields = sampler.sample_batch(count)
    return info, fields["window"][:, 0].tolist()


def test_an_own_sampler_chooses_and_says_how_probably(serve_memory, table):
    client = serve_memory(table(signature=NUMBER, sampler=Newest(3), max_size=5)).client()
    with client.writer(1) as writer:
        write_numbers(writer, 0, 9)
        info, found = numbers_in(client)
        assert {*found} == {6, 7, 8} and np.all(info.probability == 1.0 / 3.0)
        write_numbers(writer, 9, 1)
    assert {*numbers_in(client)[1]} == {7, 8, 9}


@pytest.mark.parametrize("size", [4, 40])  # the larger one has its items moved as it grows
def test_an_own_remover_drops_what_it_chooses_by_new_priorities_too(serve_memory, table, size, tmp_path):
    config = table(signature=NUMBER, remover=Least(), max_size=size)
    server = serve_memory(config, checkpoint_directory=str(tmp_path))
    client = server.client()
    priorities = np.random.default_rng(0).permutation(3 * size).astype(float)
    kept = {}
    with client.writer(1) as writer:
        for number, priority in enumerate(priorities.tolist()):
            write_numbers(writer, number, 1, priority=priority)
            kept[number] = priority
            if number == 2 * size:  # the most important one becomes the least
                key = max(kept, key=kept.get)
                client.update_priorities("replay", np.array([key], np.uint64), np.array([-0.0]))
                kept[key] = 0.0
            while len(kept) > size:
                del kept[min(kept, key=lambda each: (kept[each], each))]
    assert {*numbers_in(client, 2000)[1]} == kept.keys()
    restored = serve_memory(config, restore_from=client.checkpoint()).client()
    with restored.writer(1) as writer:
        write_numbers(writer, 500, 1, priority=1e6)
    del kept[min(kept, key=kept.get)]
    assert {*numbers_in(restored, 2000)[1]} == {*kept, 500}


def test_settings_of_an_own_selector_are_compared_when_it_is_restored(serve_memory, table, tmp_path):
    config = table(signature=NUMBER, sampler=Newest(3))
    client = serve_memory(config, checkpoint_directory=str(tmp_path)).client()
    path = client.checkpoint()
    serve_memory(config, restore_from=path)
    with pytest.raises(replay.ReplayError, match=r"Newest\(count=3\)"):
        serve_memory(dataclasses.replace(config, sampler=Newest(4)), restore_from=path)


def test_reverb_has_only_selectors_of_its_own(table):
    with pytest.raises(replay.ReplayError, match=r"on Reverb, got Newest\(count=3\).*--replay memory"):
        replay.ReverbServer([table(signature=NUMBER, sampler=Newest(3))])


def test_a_selection_without_a_choice_says_what_is_missing(serve_memory, table):
    class Empty(replay.Selector):
        def start(self, items):
            return replay.Selection()

    client = serve_memory(table(signature=NUMBER, sampler=Empty())).client()
    with client.writer(1) as writer:
        write_numbers(writer, 0, 3)
    with pytest.raises(NotImplementedError, match="Selection must define `choose`"):
        numbers_in(client)


def test_an_agent_takes_an_own_selector_by_one_method():
    class Own(dqn.DQNBuilder):
        def make_selector(self):
            return Newest(7)

    spec = specs.make_environment_spec(testing.FakeEnvironment())
    (config,) = Own(dqn.DQNConfig()).make_replay_tables(spec)
    assert config.sampler == Newest(7)


SELECTORS = {
    "uniform": replay.Uniform(),
    "oldest": replay.Fifo(),
    "newest": replay.Lifo(),
    "priority": replay.Prioritized(0.6),
    "fading": replay.Prioritized(0.5, 0.9, 0.2, "largest"),
    "own": Newest(6),
}


class TestContract(testing.SelectorConformance):
    @pytest.fixture(autouse=True, params=SELECTORS)
    def choose(self, request):
        self.name = request.param

    def make_selector(self):
        return SELECTORS[self.name]


@dataclasses.dataclass(frozen=True)
class Broken(replay.Selector):
    """A uniform choice with one mistake."""

    mistake: str

    def start(self, items):
        return BrokenSelection(items, self.mistake)


class BrokenSelection(replay.Selection):
    def __init__(self, items, mistake):
        self._items, self._mistake, self._num_inserted = items, mistake, 0

    def choose(self, count):
        numbers, probabilities = self._items.uniform(count)
        if self._mistake == "gone":
            numbers = np.where(numbers == numbers.min(), numbers - 1, numbers)
        if self._mistake == "probability":
            probabilities = probabilities / 2.0
        if self._mistake == "seed":
            numbers = np.random.default_rng().choice(self._items.numbers(), count)
        if self._mistake == "restore" and self._num_inserted > 24:  # forgotten by a restore
            numbers = np.full(count, self._items.first)
            probabilities = np.ones(count)
        return numbers, probabilities

    def insert(self, number, priority):
        self._num_inserted += 1


@pytest.mark.parametrize(
    ("mistake", "test"),
    [
        ("gone", "test_only_items_that_are_there_are_chosen"),
        ("probability", "test_probabilities_are_those_of_the_choices"),
        ("seed", "test_a_seed_draws_the_same_again"),
        ("restore", "test_a_restored_table_goes_on_as_the_one_before"),
    ],
)
def test_a_mistake_fails_the_test_of_it(mistake, test):
    class Of(testing.SelectorConformance):
        def make_selector(self):
            return Broken(mistake)

    with pytest.raises(AssertionError, match=r"`choose` must|Choices must|`rebuild` must"):
        getattr(Of(), test)()


class Unequal(replay.Selector):
    def start(self, items):
        return replay.Selection()

    def __eq__(self, other):
        return self is other


def test_selectors_that_are_never_equal_fail_too():
    class Of(testing.SelectorConformance):
        def make_selector(self):
            return Unequal()

    with pytest.raises(AssertionError, match="frozen dataclass"):
        Of().test_its_settings_tell_it_from_others()
