"""The dataset over a sampler of numbers, and over a real server."""

import queue
import threading
import time

import numpy as np
import pytest
import torch

from minerva_acme import replay
from minerva_acme.replay import waiting
from minerva_acme.replay.dataset import Dataset


class CountingSampler(replay.Sampler):
    """Gives batches of the numbers 0, 0, .. and 1, 1, .. and so on, as long as it is fed."""

    def __init__(self, num_batches: int = 10**9) -> None:
        self.results: queue.Queue = queue.Queue()
        self.num_batches = num_batches
        self.num_sampled = 0
        self.threads: set[threading.Thread] = set()
        self.num_closed = 0

    def sample_batch(self, batch_size, timeout_seconds=None):
        self.threads.add(threading.current_thread())
        if self.num_sampled >= self.num_batches:
            time.sleep(min(0.01, timeout_seconds or 1.0))
            raise replay.ReplayTimeout("Waiting for numbers.")
        number = self.num_sampled
        self.num_sampled += 1
        ones = np.ones(batch_size)
        info = replay.SampleInfo(ones, ones, ones, ones, ones)
        return info, {"number": np.full((batch_size, 2), number, np.float32)}

    def close(self):
        self.num_closed += 1


class FailingSampler(CountingSampler):
    def sample_batch(self, batch_size, timeout_seconds=None):
        if self.num_sampled == 1:
            self.num_sampled += 1
            raise replay.ReplayError("The disk is full.")
        return super().sample_batch(batch_size, timeout_seconds)


def number(fields):
    return fields["number"]


def wait_until(condition, seconds=5.0):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    return condition()


@pytest.fixture(params=[0, 2])
def prefetch(request):
    return request.param


def test_batches_come_in_order_as_tensors_on_the_device(prefetch):
    with Dataset(CountingSampler(), number, 4, prefetch=prefetch, device=torch.device("cpu")) as dataset:
        for expected, sample in zip(range(20), dataset, strict=False):
            assert sample.data.shape == (4, 2)
            assert sample.data.is_contiguous()
            assert (sample.data == expected).all()
            assert sample.info.key.shape == (4,)


def test_a_tensor_shares_the_samplers_memory():
    sampler = CountingSampler()
    array = np.zeros((4, 2), np.float32)
    sampler.sample_batch = lambda batch_size, timeout_seconds=None: (None, {"number": array})
    with Dataset(sampler, number, 4, prefetch=0) as dataset:
        array[:] = 7.0
        assert np.shares_memory(next(dataset).data.numpy(), array)


def test_no_more_is_sampled_ahead_than_was_asked_for():
    sampler = CountingSampler()
    with Dataset(sampler, number, 1, prefetch=3) as dataset:
        assert sampler.num_sampled == 0
        next(dataset)
        # Three wait ready, and one waits for its place.
        assert wait_until(lambda: sampler.num_sampled == 5)
        time.sleep(0.05)
        assert sampler.num_sampled == 5


def test_without_prefetch_the_caller_samples():
    sampler = CountingSampler()
    with Dataset(sampler, number, 1, prefetch=0) as dataset:
        next(dataset)
    assert sampler.threads == {threading.current_thread()}
    assert sampler.num_sampled == 1


def test_a_sampling_error_surfaces_and_the_next_call_tries_again(prefetch):
    with Dataset(FailingSampler(), number, 1, prefetch=prefetch) as dataset:
        assert next(dataset).data[0, 0] == 0
        with pytest.raises(replay.ReplayError, match="The disk is full."):
            next(dataset)
        assert next(dataset).data[0, 0] == 2


def test_an_error_in_unpack_surfaces(prefetch):
    def unpack(fields):
        raise KeyError("step")

    dataset = Dataset(CountingSampler(), unpack, 1, prefetch=prefetch)
    with dataset, pytest.raises(KeyError, match="step"):
        next(dataset)


def test_a_timeout_says_what_was_waited_for(prefetch):
    with Dataset(CountingSampler(num_batches=1), number, 1, prefetch=prefetch) as dataset:
        next(dataset)
        with pytest.raises(replay.ReplayTimeout, match="Waiting for numbers."):
            dataset.next(timeout_seconds=0.1)


def test_a_closed_dataset_gives_no_batch_and_its_sampler_is_closed(prefetch):
    sampler = CountingSampler()
    dataset = Dataset(sampler, number, 1, prefetch=prefetch)
    next(dataset)
    dataset.close()
    dataset.close()
    assert sampler.num_closed >= 1
    with pytest.raises(replay.ReplayError, match="The dataset is closed"):
        next(dataset)


def test_closing_ends_another_threads_wait():
    dataset = Dataset(CountingSampler(num_batches=0), number, 1)
    timer = threading.Timer(0.1, dataset.close)
    timer.start()
    start = time.monotonic()
    with pytest.raises(replay.ReplayError, match="The dataset is closed"):
        next(dataset)
    assert time.monotonic() - start < 1.1
    timer.join()


def test_closing_wakes_the_thread_that_waits_for_a_place_for_its_batch(monkeypatch):
    monkeypatch.setattr(waiting, "SLICE_SECONDS", 600.0)
    sampler = CountingSampler()
    dataset = Dataset(sampler, number, 1, prefetch=1)
    next(dataset)
    assert wait_until(lambda: sampler.num_sampled == 3)  # one given, one ready, one in the thread
    monkeypatch.setattr(waiting, "SLICE_SECONDS", 5.0)
    dataset.close()
    assert not any(thread.is_alive() for thread in sampler.threads)


def test_the_thread_ends_with_the_dataset():
    before = set(threading.enumerate())
    with Dataset(CountingSampler(), number, 1) as dataset:
        next(dataset)
        assert set(threading.enumerate()) - before
    assert wait_until(lambda: not set(threading.enumerate()) - before)


def test_the_time_waited_is_counted(prefetch):
    with Dataset(CountingSampler(num_batches=0), number, 1, prefetch=prefetch) as dataset:
        assert dataset.wait_seconds == 0.0
        with pytest.raises(replay.ReplayTimeout):
            dataset.next(timeout_seconds=0.2)
        assert 0.0 < dataset.wait_seconds < 2.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "`batch_size` must be >= 1 item, got 0."),
        ({"batch_size": 1, "prefetch": -1}, "`prefetch` must be >= 0 batches, got -1."),
    ],
)
def test_sizes_that_are_none_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Dataset(CountingSampler(), number, **options)


@pytest.mark.reverb
def test_batches_of_a_real_table_reach_the_learner(serve, table, write, prefetch):
    client = serve(table()).client()
    write(client, num_items=20)
    with Dataset(client.sampler("replay"), lambda fields: fields, 8, prefetch=prefetch) as dataset:
        for sample, _ in zip(dataset, range(10), strict=False):
            step = sample.data["step"]
            assert (step.shape, step.dtype) == ((8, 3, 2), torch.float32)
            assert (torch.diff(step[..., 0], dim=1) == 1).all()
            assert sample.data["image"].dtype == torch.uint8


@pytest.mark.reverb
def test_a_dataset_over_an_empty_table_says_what_it_waits_for_and_closes_at_once(
    serve, table, prefetch, monkeypatch
):
    monkeypatch.setattr(waiting, "SLICE_SECONDS", 0.05)
    client = serve(table(rate_limiter=replay.MinSize(5))).client()
    dataset = Dataset(client.sampler("replay"), lambda fields: fields, 8, prefetch=prefetch)
    with pytest.raises(replay.ReplayTimeout, match="Waiting for 5 items in table 'replay', has 0."):
        dataset.next(timeout_seconds=0.3)
    start = time.monotonic()
    dataset.close()
    assert time.monotonic() - start < 1.0


@pytest.mark.reverb
def test_a_dead_server_reaches_the_learner(server_process, write):
    # A busy machine's server may take a second to answer.
    with replay.ReverbClient(server_process.address, answer_seconds=30.0) as patient:
        write(patient, num_items=5)
    client = replay.ReverbClient(server_process.address, timeout_seconds=0.5, answer_seconds=0.5)
    with Dataset(client.sampler("replay", exact=True), lambda fields: fields, 100) as dataset:
        next(dataset)
        server_process.kill()
        with pytest.raises(replay.ReplayError, match="does not answer"):
            for _ in range(1000):
                dataset.next(timeout_seconds=6.0)
