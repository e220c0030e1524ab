"""Our datasets are what learners need, and datasets that are not are named."""

import contextlib
import itertools
import threading
import time

import numpy as np
import pytest
import torch

from minerva_acme import adders, replay, specs, testing, types
from minerva_acme.replay import layouts, waiting
from minerva_acme.replay.dataset import Dataset, ReplaySample

from . import wrong_parts

BROKEN = []
breaks = wrong_parts.noted_in(BROKEN)


NUM_ITEMS = 5


@pytest.fixture(autouse=True)
def looks_often(monkeypatch):
    """Threads that wait for a store look more often than usual whether to go on."""
    monkeypatch.setattr(waiting, "SLICE_SECONDS", 0.05)


def make_episode(seed=0):
    environment = testing.FakeEnvironment(episode_length=NUM_ITEMS, seed=seed)
    actions = [np.full(2, 0.1 * number, np.float32) for number in range(NUM_ITEMS)]
    return [environment.reset(), *map(environment.step, actions)], actions


class OwnDataset(testing.DatasetConformance):
    """The dataset of replay, over transitions of one episode."""

    prefetch = None

    @pytest.fixture(autouse=True)
    def _close_what_is_opened(self):
        with contextlib.ExitStack() as self.opened:
            yield

    def make_items(self):
        timesteps, actions = make_episode()
        return [
            types.Transition(before.observation, action, after.reward, after.discount, after.observation)
            for before, action, after in zip(timesteps, actions, timesteps[1:], strict=False)
        ]

    def make_dataset(self):
        client, layout = self.make_client()
        timesteps, actions = make_episode()
        with adders.NStepTransitionAdder(
            client=client, table="table", layout=layout, n_step=1, discount=1.0
        ) as adder:
            adder.add_first(timesteps[0])
            for action, timestep in zip(actions, timesteps[1:], strict=True):
                adder.add(action, timestep)
        return self.sample(client, layout)

    def make_waiting_dataset(self):
        return self.sample(*self.make_client())

    def sample(self, client, layout):
        sampler = client.sampler("table")
        return Dataset(sampler, layout.unpack, self.batch_size, prefetch=self.prefetch)

    def make_client(self):
        layout = layouts.TransitionLayout(specs.make_environment_spec(testing.FakeEnvironment()))
        table = replay.TableConfig(
            name="table", signature=layout.signature, max_size=100, rate_limiter=replay.MinSize(1)
        )
        server = self.opened.enter_context(self.make_server([table]))
        return self.opened.enter_context(server.client()), layout


class TestMemory(OwnDataset):
    def make_server(self, tables):
        return replay.MemoryServer(tables, seed=0)


class TestMemoryWithPrefetch(TestMemory):
    prefetch = 2


@pytest.mark.reverb
class TestReverb(OwnDataset):
    def make_server(self, tables):
        return replay.ReverbServer(tables)


class Batches:
    """A dataset as a user may write it: items drawn from a list, without `info`."""

    def __init__(self, items, batch_size):
        self.items, self.batch_size = items, batch_size
        self.random, self.is_closed = np.random.default_rng(0), False

    def __iter__(self):
        return self

    def __next__(self):
        if self.is_closed:
            raise StopIteration
        return self.make(self.random.integers(len(self.items), size=self.batch_size))

    def make(self, indices):
        return torch.stack([torch.as_tensor(self.items[index]) for index in indices])

    def close(self):
        self.is_closed = True


class UserSuite(testing.DatasetConformance):
    part = Batches

    def make_items(self):
        return [np.full(3, number, np.float32) for number in range(NUM_ITEMS)]

    def make_dataset(self):
        return self.part(self.make_items(), self.batch_size)

    def make_waiting_dataset(self):
        return self.part.wait() if hasattr(self.part, "wait") else None


class TestUsers(UserSuite):
    pass


class TestUsersThatEnds(UserSuite):
    def make_dataset(self):
        return itertools.islice(super().make_dataset(), 30)


class WithInfo(Batches):
    def make(self, indices):
        ones = np.ones(len(indices))
        return ReplaySample(
            replay.SampleInfo(indices.astype(np.uint64), ones / NUM_ITEMS, ones, ones, ones),
            super().make(indices),
        )


class TestUsersWithInfo(UserSuite):
    part = WithInfo


@breaks("info_is_of_the_items_of_the_sample", "`info.key` must belong to the item at its index, but")
class MixesUpKeys(WithInfo):
    def make(self, indices):
        sample = super().make(indices)
        return sample._replace(info=sample.info._replace(key=sample.info.key[::-1]))


@breaks(
    "info_is_of_the_items_of_the_sample", "`info.probability` must be in (0, 1] for a sampled item, got [0."
)
class ProbabilitiesOfZero(WithInfo):
    def make(self, indices):
        sample = super().make(indices)
        return sample._replace(info=sample.info._replace(probability=np.zeros(len(indices))))


@breaks(
    "info_is_of_the_items_of_the_sample", "`info.priority` must have an entry for each of the 4 items, got"
)
class InfoOfOne(WithInfo):
    def make(self, indices):
        sample = super().make(indices)
        return sample._replace(info=sample.info._replace(priority=np.ones(1)))


@breaks(
    "info_is_of_the_items_of_the_sample", "`info.key` must be whole numbers, which priorities are set by, got"
)
class KeysAreFloats(WithInfo):
    def make(self, indices):
        sample = super().make(indices)
        return sample._replace(info=sample.info._replace(key=indices.astype(np.float32)))


@breaks(
    "info_is_of_the_items_of_the_sample", "`info.table_size` must be >= 1 where items were sampled, got [0 0"
)
class SaysThatTheTableIsEmpty(WithInfo):
    def make(self, indices):
        sample = super().make(indices)
        return sample._replace(info=sample.info._replace(table_size=np.zeros(len(indices), np.int64)))


@breaks(
    "samples_have_the_structure_shapes_and_dtypes_of_their_items", "`data` must hold plain tensors, without a"
)
class GivesGradients(Batches):
    def make(self, indices):
        return super().make(indices).requires_grad_()


@breaks(
    "the_items_of_a_sample_share_no_memory", "Each number of a sample must have its own memory, got a tensor"
)
class ExpandsAnItem(Batches):
    """Saves memory where an item fills a batch alone."""

    def make(self, indices):
        return torch.as_tensor(self.items[indices[0]]).expand(len(indices), 3)


@breaks("it_never_ends_or_stays_ended", "A dataset must be its own iterator, so that `for sample in dataset`")
class BeginsEveryLoop(Batches):
    """Each `for` draws the same samples again."""

    def __iter__(self):
        return type(self)(self.items, self.batch_size)


@breaks("samples_have_the_structure_shapes_and_dtypes_of_their_items", "`data` must hold tensors, expected")
class GivesArrays(Batches):
    def make(self, indices):
        return super().make(indices).numpy()


@breaks(
    "samples_have_the_structure_shapes_and_dtypes_of_their_items",
    "`data` must hold 4 items as they were inserted, expected torch.float32 [4, 3] on cpu at (), got "
    "torch.float64 [4, 3] on cpu.",
)
class GivesDoubles(Batches):
    def make(self, indices):
        return super().make(indices).double()


@breaks("samples_have_the_structure_shapes_and_dtypes_of_their_items", "`data` must have the structure of an")
class GivesADict(Batches):
    def make(self, indices):
        return {"numbers": super().make(indices)}


@breaks(
    "samples_have_the_structure_shapes_and_dtypes_of_their_items",
    "`data` must hold 4 items as they were inserted, expected torch.float32 [4, 3] on cpu at (), got "
    "torch.float32 [3, 3] on cpu.",
)
class GivesTooFew(Batches):
    def make(self, indices):
        return super().make(indices[1:])


@breaks(
    "what_was_inserted_comes_out_and_nothing_else", "A sample must only have items that were inserted, got"
)
class ChangesItems(Batches):
    def make(self, indices):
        return super().make(indices) + 0.5


@breaks(
    "what_was_inserted_comes_out_and_nothing_else", "Every inserted item must be sampled, but of items 0 to 4"
)
class LosesTheLastItem(Batches):
    def make(self, indices):
        return super().make(indices % (NUM_ITEMS - 1))


@breaks(
    "a_sample_is_not_changed_by_later_ones_or_by_close", "A sample must have fresh tensors, but number 1 was"
)
class ReusesFourBuffers(Batches):
    def __init__(self, items, batch_size):
        super().__init__(items, batch_size)
        self.buffers = itertools.cycle(torch.zeros(4, batch_size, 3).unbind())

    def make(self, indices):
        return next(self.buffers).copy_(super().make(indices))


@breaks(
    "consecutive_samples_share_no_memory", "Samples must have fresh tensors, got two that share the memory of"
)
class GivesOneTensor(Batches):
    batch = torch.zeros(4, 3)

    def make(self, indices):
        return self.batch


@breaks("it_never_ends_or_stays_ended", "A dataset must end only once, got a sample after StopIteration.")
class BeginsAgain(Batches):
    count = 0

    def make(self, indices):
        self.count += 1
        if self.count == 20:
            raise StopIteration
        return super().make(indices)


@breaks("it_never_ends_or_stays_ended", "A dataset must return samples, got StopIteration at once.")
class IsEmpty(Batches):
    def make(self, indices):
        raise StopIteration


@breaks("close_may_come_twice_and_nothing_comes_after_it", "The second `close` must not raise, got")
class ClosesOnce(Batches):
    def close(self):
        if self.is_closed:
            raise RuntimeError("closed already")
        super().close()


@breaks("close_may_come_twice_and_nothing_comes_after_it", "A closed dataset must return nothing more, got")
class GivesWhenClosed(Batches):
    def close(self):
        pass


@breaks("close_may_come_twice_and_nothing_comes_after_it", "To call `next` on a closed dataset must not take")
@breaks(
    "close_releases_a_thread_that_waits", "To wait for a sample of a dataset that is closed must not take"
)
class Waits(Batches):
    """Waits when it is closed, or where there is nothing."""

    @classmethod
    def wait(cls):
        dataset = cls([], 4)
        dataset.is_closed = True
        return dataset

    def __next__(self):
        while self.is_closed:
            time.sleep(0.01)
            if stopped.is_set():
                raise StopIteration
        return super().__next__()


@breaks(
    "close_may_come_twice_and_nothing_comes_after_it", "`close` must end the dataset's threads, got ['left']."
)
class LeavesItsThread(Batches):
    def __init__(self, items, batch_size):
        super().__init__(items, batch_size)
        threading.Thread(target=stopped.wait, name="left", daemon=True).start()


stopped = threading.Event()


@pytest.fixture
def stop():
    stopped.clear()
    before = set(threading.enumerate())
    yield
    stopped.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(5.0)


@pytest.mark.usefixtures("stop")
@pytest.mark.parametrize(("part", "test", "message"), BROKEN)
def test_a_broken_dataset_is_found_and_named(part, test, message):
    broken = type("Broken", (UserSuite,), {"part": part, "timeout_seconds": 0.5})()
    with pytest.raises(AssertionError) as caught:
        getattr(broken, f"test_{test}")()
    assert str(caught.value).startswith(message)
