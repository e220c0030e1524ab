"""Rows are divided between threads that each compute alone, and nothing shows but the time."""

import os
import threading

import pytest
import torch

from minerva_acme.acceleration import parallel


@pytest.fixture
def two_threads(threads_are_given_back):
    torch.set_num_threads(2)


@pytest.mark.parametrize("num_threads", [None, 1, 3])
@pytest.mark.parametrize("max_rows", [None, 1, 4, 100])
@pytest.mark.parametrize("num_rows", [1, 2, 7, 10])
def test_results_are_those_of_one_call_in_order(two_threads, num_rows, max_rows, num_threads):
    x, y = torch.arange(2.0 * num_rows).view(num_rows, 2), torch.arange(float(num_rows))
    sizes = []

    def function(x, y):
        sizes.append(len(x))
        return x.sum(dim=1) * 10.0 + y

    actual = parallel.map_rows(function, x, y, max_rows=max_rows, num_threads=num_threads)
    assert torch.equal(actual, x.sum(dim=1) * 10.0 + y)
    assert sum(sizes) == num_rows and max(sizes) <= (max_rows or num_rows)


def test_parts_are_shared_out_to_threads_that_compute_alone(two_threads):
    # The barrier is passed only if both threads are in the function at once.
    meeting = threading.Barrier(2, timeout=60.0)
    seen = []

    def function(x):
        meeting.wait()
        seen.append((threading.current_thread(), torch.get_num_threads(), torch.is_grad_enabled()))
        return x

    parallel.map_rows(function, torch.ones(10, 2), max_rows=9)
    assert len({thread for thread, _, _ in seen}) == 2
    assert all(num_threads == 1 and not grad for _, num_threads, grad in seen)
    assert torch.get_num_threads() == 2
    started_later = []
    thread = threading.Thread(target=lambda: started_later.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert started_later == [2]


def test_each_thread_gets_as_many_parts_as_another(two_threads):
    sizes = []
    parallel.map_rows(lambda x: sizes.append(len(x)) or x, torch.ones(10), max_rows=4)
    assert sorted(sizes) == [2, 2, 3, 3]  # three parts would leave a thread waiting


@pytest.mark.parametrize("num_threads", [1, 2])
def test_errors_arrive(two_threads, num_threads):
    def fails(x):
        raise ArithmeticError("in a part")

    with pytest.raises(ArithmeticError, match="in a part"):
        parallel.map_rows(fails, torch.ones(10), max_rows=2, num_threads=num_threads)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_functions_run_together_and_all_of_them_end(two_threads, num_threads):
    torch.set_num_threads(num_threads)
    weights = [torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)]
    ended = []

    def backward(index, fails=False):
        (weights[index] * (index + 1)).sum().backward()
        ended.append(index)
        if fails:
            raise ArithmeticError(f"function {index}")
        return index

    assert parallel.run_together(lambda: backward(0), lambda: backward(1)) == [0, 1]
    assert weights[0].grad.tolist() == [1.0] * 3 and weights[1].grad.tolist() == [2.0] * 3
    with pytest.raises(ArithmeticError, match="function 0"):
        parallel.run_together(lambda: backward(0, fails=True), lambda: backward(1))
    assert sorted(ended) == ([0, 0, 1] if num_threads == 1 else [0, 0, 1, 1])


def test_one_thread_is_given_back(two_threads):
    with pytest.raises(ArithmeticError), parallel.one_thread():
        assert torch.get_num_threads() == 1
        raise ArithmeticError
    assert torch.get_num_threads() == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forking with threads, which is the point
def test_a_forked_child_has_threads_of_its_own(two_threads):
    parallel.map_rows(torch.neg, torch.ones(4), max_rows=1)
    child = os.fork()
    if child == 0:
        # A pool without threads would wait for ever.
        threading.Timer(60.0, os._exit, [2]).start()
        os._exit(0 if parallel.map_rows(torch.neg, torch.ones(4), max_rows=1).sum() == -4.0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_threads_are_started_again_after_they_were_stopped(two_threads):
    for _ in range(2):
        assert parallel.map_rows(torch.neg, torch.ones(4), max_rows=1).sum() == -4.0
        assert any(thread.name.startswith("rows") for thread in threading.enumerate())
        parallel.stop_threads()
        assert not any(thread.name.startswith("rows") for thread in threading.enumerate())


def test_rows_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"got tensors of \[3, 2\] rows and `max_rows` None"):
        parallel.map_rows(torch.add, torch.ones(3), torch.ones(2))
    with pytest.raises(ValueError, match=r"got tensors of \[3\] rows and `max_rows` 0"):
        parallel.map_rows(torch.neg, torch.ones(3), max_rows=0)
    with pytest.raises(ValueError, match=r"got tensors of \[\] rows"):
        parallel.map_rows(torch.neg)
