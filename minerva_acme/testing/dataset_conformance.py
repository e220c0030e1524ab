"""The requirements of a learner on its dataset, as tests that your own dataset can inherit.

class TestMyDataset(testing.DatasetConformance):
    def make_dataset(self):
        return MyDataset(self.make_items(), batch_size=self.batch_size)

    def make_items(self):
        return [types.Transition(...), ...]
"""

import abc
import contextlib
import copy
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
import tree

from minerva_acme import types
from minerva_acme.testing import checks

T = TypeVar("T")


class DatasetConformance(abc.ABC):
    """Tests of a dataset: samples of a few known items, and closing."""

    batch_size: int = 4
    """The number of items in a batch, B."""

    batch_axis: int = 0
    """The axis of B in every tensor of `data`: 1 for a `types.Rollout`, whose first axis is time."""

    num_samples: int = 50
    """The number of samples in which every item occurs at least once, drawn without further inserts."""

    device: str = "cpu"
    """The device of the tensors."""

    timeout_seconds: float = 10.0
    """The maximum time of a call; a longer one counts as an endless wait."""

    @abc.abstractmethod
    def make_dataset(self) -> Iterator[Any]:
        """Makes a new dataset with `batch_size` items per sample, over exactly the items of `make_items`."""

    @abc.abstractmethod
    def make_items(self) -> Sequence[types.NestedArray]:
        """Returns about five items, equal at each call: nests of arrays without the batch axis."""

    def make_waiting_dataset(self) -> Iterator[Any] | None:
        """Makes a new dataset over an empty store, on which `next` waits, or None to skip its test."""
        return None

    def test_samples_have_the_structure_shapes_and_dtypes_of_their_items(self) -> None:
        """`data` must be a nest like an item's, of tensors on the device with B items on the batch axis."""
        item = self.make_items()[0]
        with self._open() as dataset:
            for sample in self._draw(dataset, 3):
                data = _data(sample)
                what = "`data` must have the structure of an item."
                checks.assert_same_structure(data, item, what)
                pairs = zip(tree.flatten_with_path(data), tree.flatten(item), strict=True)
                for (path, found), array in pairs:
                    shape = [*np.shape(array)]
                    shape.insert(self.batch_axis, self.batch_size)
                    dtype = torch.as_tensor(array).dtype
                    at = f"expected {dtype} {shape} on {self.device} at {path}"
                    assert isinstance(found, torch.Tensor), f"`data` must hold tensors, {at}, got {found!r}."
                    assert (
                        found.device.type == torch.device(self.device).type
                        and [*found.shape] == shape
                        and found.dtype == dtype
                    ), (
                        f"`data` must hold {self.batch_size} items as they were inserted, {at}, got "
                        f"{found.dtype} {[*found.shape]} on {found.device}."
                    )
                    assert not found.requires_grad, (
                        f"`data` must hold plain tensors, without a gradient, {at}, got one that requires it."
                    )

    def test_what_was_inserted_comes_out_and_nothing_else(self) -> None:
        """Every sampled item must equal an inserted one bit for bit, and every inserted item must occur."""
        items = self.make_items()
        is_missing = [True] * len(items)
        with self._open() as dataset:
            for sample in self._draw(dataset, self.num_samples):
                for found in self._items(sample):
                    alike = [index for index, item in enumerate(items) if checks.are_equal(found, item)]
                    assert alike, f"A sample must only have items that were inserted, got {found!r}."
                    for index in alike:
                        is_missing[index] = False
        assert not any(is_missing), (
            f"Every inserted item must be sampled, but of items 0 to {len(items) - 1} these were not in "
            f"{self.num_samples} samples: {np.flatnonzero(is_missing).tolist()}. If this is by chance, raise "
            "`num_samples`."
        )

    def test_a_sample_is_not_changed_by_later_ones_or_by_close(self) -> None:
        """A learner may keep a sample: neither later samples nor `close` may write into its tensors."""
        with self._open() as dataset:
            kept = self._draw(dataset, 8)
            copies = [tree.map_structure(_copy, _data(sample)) for sample in kept]
            self._draw(dataset, self.num_samples - 8)
        for number, (sample, copied) in enumerate(zip(kept, copies, strict=True), start=1):
            what = f"A sample must have fresh tensors, but number {number} was changed by a later one."
            checks.assert_nests_equal(_data(sample), copied, what)

    def test_consecutive_samples_share_no_memory(self) -> None:
        """A learner may write into its sample: the next one must have other tensors."""
        with self._open() as dataset:
            samples = [tree.flatten(_data(sample)) for sample in self._draw(dataset, 4)]
        for one, other in itertools.pairwise(samples):
            shared = [left for left, right in zip(one, other, strict=True) if _share(left, right)]
            assert not shared, (
                f"Samples must have fresh tensors, got two that share the memory of {shared[0]!r}."
            )

    def test_the_items_of_a_sample_share_no_memory(self) -> None:
        """A learner may write into one item of its sample: the others must not change."""
        with self._open() as dataset:
            for sample in self._draw(dataset, 4):
                for path, leaf in tree.flatten_with_path(_data(sample)):
                    is_shared = any(
                        stride == 0 and size > 1
                        for stride, size in zip(leaf.stride(), leaf.shape, strict=True)
                    )
                    assert not is_shared, (
                        f"Each number of a sample must have its own memory, got a tensor {[*leaf.shape]} "
                        f"with the strides {[*leaf.stride()]} at {path}. Use `repeat`, not `expand`."
                    )

    def test_info_is_of_the_items_of_the_sample(self) -> None:
        """`info`, if present, must have B entries in the order of `data`, and each item must keep its key."""
        seen: dict[int, types.NestedArray] = {}
        with self._open() as dataset:
            for sample in self._draw(dataset, self.num_samples):
                info = getattr(sample, "info", None)
                if info is None:
                    return
                for name, values in info._asdict().items():
                    assert np.shape(values) == (self.batch_size,), (
                        f"`info.{name}` must have an entry for each of the {self.batch_size} items, got "
                        f"shape {np.shape(values)}."
                    )
                assert np.asarray(info.key).dtype.kind in "iu", (
                    "`info.key` must be whole numbers, which priorities are set by, got "
                    f"{np.asarray(info.key).dtype}: large keys would become others."
                )
                assert np.all(np.asarray(info.table_size) >= 1), (
                    f"`info.table_size` must be >= 1 where items were sampled, got {info.table_size}."
                )
                probability = np.asarray(info.probability)
                assert np.all((probability > 0) & (probability <= 1)), (
                    f"`info.probability` must be in (0, 1] for a sampled item, got {probability}."
                )
                for key, item in zip(np.asarray(info.key).tolist(), self._items(sample), strict=True):
                    what = f"`info.key` must belong to the item at its index, but {key} was another item's."
                    checks.assert_nests_equal(item, seen.setdefault(key, item), what)

    def test_it_never_ends_or_stays_ended(self) -> None:
        """A dataset must return samples, and once it raises StopIteration it must always raise it."""
        with self._open() as dataset:
            assert hasattr(dataset, "__iter__") and iter(dataset) is dataset, (
                "A dataset must be its own iterator, so that `for sample in dataset` works and continues, "
                f"got a {type(dataset).__name__} whose `__iter__` returns something else, or is missing."
            )
            found = self._draw(dataset, self.num_samples)
            assert found, "A dataset must return samples, got StopIteration at once."
            if len(found) < self.num_samples:
                again = self._draw(dataset, 1)
                assert not again, "A dataset must end only once, got a sample after StopIteration."

    def test_close_may_come_twice_and_nothing_comes_after_it(self) -> None:
        """`close`, if it exists, must end the dataset's threads; `next` must then raise, not wait."""
        before = set(threading.enumerate())
        dataset = self.make_dataset()
        if not hasattr(dataset, "close"):
            return
        assert self._draw(dataset, 1), "A dataset must return samples, got StopIteration at once."
        for attempt in ("first", "second"):
            try:
                dataset.close()
            except Exception as error:
                raise AssertionError(f"The {attempt} `close` must not raise, got {error!r}.") from error
        try:
            after = self._in_time("call `next` on a closed dataset", lambda: next(dataset))
        except AssertionError:
            raise
        except Exception:  # including StopIteration
            pass
        else:
            raise AssertionError(f"A closed dataset must return nothing more, got {after!r}.")
        deadline = time.monotonic() + self.timeout_seconds
        while (left := set(threading.enumerate()) - before) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not left, f"`close` must end the dataset's threads, got {[thread.name for thread in left]}."

    def test_close_releases_a_thread_that_waits(self) -> None:
        """`close` from another thread must end a learner's wait for its next sample."""
        dataset = self.make_waiting_dataset()
        if dataset is None:
            return
        timer = threading.Timer(0.1, dataset.close)  # type: ignore[attr-defined]
        timer.start()
        found: list[Any] = []
        try:
            self._in_time(
                "wait for a sample of a dataset that is closed", lambda: found.append(next(dataset))
            )
        except AssertionError:
            raise
        except Exception:  # including StopIteration
            pass
        finally:
            timer.join()
        assert not found, f"`make_waiting_dataset` must make an empty dataset, got {found[0]!r}."

    @contextlib.contextmanager
    def _open(self) -> Iterator[Iterator[Any]]:
        dataset = self.make_dataset()
        try:
            yield dataset
        finally:
            getattr(dataset, "close", lambda: None)()

    def _draw(self, dataset: Iterator[Any], number: int) -> list[Any]:
        """Returns `number` samples, or fewer if the dataset ends."""
        found: list[Any] = []
        for _ in range(number):
            try:
                found.append(self._in_time("draw a sample", lambda: next(dataset)))
            except StopIteration:
                break
        return found

    def _in_time(self, what: str, call: Callable[[], T]) -> T:
        """Calls a function in another thread, so that an endless wait fails instead of hanging."""
        results: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(call())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(self.timeout_seconds)
        assert not thread.is_alive(), (
            f"To {what} must not take forever, got nothing in {self.timeout_seconds:g} seconds."
        )
        if errors:
            raise errors[0]
        return results[0]

    def _items(self, sample: Any) -> list[types.NestedArray]:
        """Returns the items of a sample, as arrays without the batch axis."""
        arrays = tree.map_structure(lambda leaf: leaf.detach().cpu().numpy(), _data(sample))
        return [
            tree.map_structure(lambda leaf, index=index: leaf.take(index, self.batch_axis), arrays)
            for index in range(self.batch_size)
        ]


def _data(sample: Any) -> Any:
    """Returns the data of a sample, which may be a pair with an `info` or only data."""
    is_bare = isinstance(sample, np.ndarray | torch.Tensor)  # whose attribute `data` is something else
    return sample if is_bare else getattr(sample, "data", sample)


def _copy(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, torch.Tensor) else copy.deepcopy(leaf)


def _share(one: torch.Tensor, other: torch.Tensor) -> bool:
    pointers = {tensor.untyped_storage().data_ptr() for tensor in (one, other)}
    return one.numel() > 0 and len(pointers) == 1
