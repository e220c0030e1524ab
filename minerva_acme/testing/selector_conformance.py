"""The contract of replay selectors as tests."""

import abc
import tempfile

import numpy as np

from minerva_acme import replay

_SIGNATURE = replay.ItemSignature(
    columns={"number": replay.ColumnSpec((), np.dtype(np.int64))},
    fields={"number": replay.FieldSpec("number", 1)},
)
_SIZE = 20
_NUM_DRAWS = 4000


class SelectorConformance(abc.ABC):
    """Tests of a `replay.Selector` as a sampler, in a table of 20 items in memory."""

    @abc.abstractmethod
    def make_selector(self) -> replay.Selector:
        """Makes a selector, with equal settings each time."""

    def _server(self, folder: str, restore_from: str | None = None, seed: int = 0) -> replay.MemoryServer:
        table = replay.TableConfig(
            name="replay",
            signature=_SIGNATURE,
            max_size=_SIZE,
            rate_limiter=replay.MinSize(1),
            sampler=self.make_selector(),
        )
        return replay.MemoryServer([table], checkpoint_directory=folder, restore_from=restore_from, seed=seed)

    @staticmethod
    def _write(client: replay.ReplayClient, first: int, count: int) -> None:
        """Writes items with these numbers, of priorities from 0 to 4."""
        with client.writer(1) as writer:
            for number in range(first, first + count):
                writer.append({"number": np.array(number)})
                writer.create_item("replay", float(number % 5), {"number": replay.Window("number", 0, 1)})
                writer.end_episode()
            writer.flush()

    @staticmethod
    def _draw(client: replay.ReplayClient, count: int) -> tuple[replay.SampleInfo, np.ndarray]:
        """Draws items one after the other; returns their info, and their numbers, [count]."""
        with client.sampler("replay") as sampler:
            info, fields = sampler.sample_batch(count)
        return info, np.asarray(fields["number"])[:, 0]

    def test_only_items_that_are_there_are_chosen(self) -> None:
        with tempfile.TemporaryDirectory() as folder, self._server(folder) as server:
            client = server.client()
            for first, count in ((0, 3), (3, _SIZE), (3 + _SIZE, 2 * _SIZE)):
                self._write(client, first, count)
                info, _ = self._draw(client, 200)
                there = range(max(0, first + count - _SIZE), first + count)
                gone = sorted({*info.key.tolist()} - {*there})
                assert not gone, f"`choose` must choose items that are in the table, got {gone} of {there}."

    def test_probabilities_are_those_of_the_choices(self) -> None:
        with tempfile.TemporaryDirectory() as folder, self._server(folder) as server:
            client = server.client()
            self._write(client, 0, _SIZE + 3)
            keys = np.arange(5, 9, dtype=np.uint64)
            client.update_priorities("replay", keys, np.array([0.0, 9.0, 2.5, 1.0]))
            info, numbers = self._draw(client, _NUM_DRAWS)
            for number in {*numbers.tolist()}:
                given, is_it = info.probability[numbers == number], numbers == number
                # Five standard deviations of the share of as many draws.
                most = 5.0 * np.sqrt(given.mean() * (1.0 - given.mean()) / _NUM_DRAWS) + 1e-9
                assert abs(is_it.mean() - given.mean()) <= most, (
                    f"`choose` must return the probability of each choice, got {given.mean():g} for an item "
                    f"that was {is_it.mean():g} of {_NUM_DRAWS:,} choices."
                )

    def test_a_seed_draws_the_same_again(self) -> None:
        found = []
        for _ in range(2):
            with tempfile.TemporaryDirectory() as folder, self._server(folder, seed=3) as server:
                client = server.client()
                self._write(client, 0, _SIZE + 3)
                found.append(self._draw(client, 100)[1].tolist())
        assert found[0] == found[1], "Choices must draw from the table's `generator` alone: a seed differs."

    def test_a_restored_table_goes_on_as_the_one_before(self) -> None:
        with tempfile.TemporaryDirectory() as folder, self._server(folder) as server:
            client = server.client()
            self._write(client, 0, _SIZE + 3)
            client.update_priorities("replay", np.arange(9, 12, dtype=np.uint64), np.array([7.0, 0.0, 3.0]))
            path, expected = client.checkpoint(), []
            with self._server(folder, restore_from=path, seed=9) as restored:
                for each in (client, restored.client()):
                    self._write(each, 100, 5)
                    info, numbers = self._draw(each, 200)
                    expected.append((numbers.tolist(), info.probability.tolist()))
        assert expected[0] == expected[1], (
            "`rebuild` must lead to the choices of a table that was not restored, got others."
        )

    def test_its_settings_tell_it_from_others(self) -> None:
        one, other = self.make_selector(), self.make_selector()
        assert one == other and one.describe() == other.describe(), (
            "Selectors of equal settings must be equal: make the class a frozen dataclass."
        )
