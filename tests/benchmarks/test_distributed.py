import os
import time

from tests.distributed import killing

from . import distributed


def test_numbers_are_medians_also_within_mappings():
    rows = [{"a": a, "by": {"x": 10 * a, f"only {a}": 1.0}} for a in (1.0, 5.0, 2.0)]
    assert distributed._median(rows) == {"a": 2.0, "by": {"x": 20.0}}


def test_what_is_no_node_is_added_up_as_other():
    assert distributed._add_up({1: 1.0, 2: 2.0, 3: 4.0}, {1: "learner"}) == {"learner": 1.0, "other": 6.0}


def test_a_process_is_measured():
    pid = os.getpid()
    before, own = distributed._cpu_seconds(pid), time.process_time()
    while time.process_time() - own < 0.2:
        pass
    assert abs(distributed._cpu_seconds(pid) - before - (time.process_time() - own)) < 0.1
    assert distributed._memory_mb(pid) > 10
    assert 0 < distributed._age_seconds() < 86_400
    assert distributed._cpu_seconds(2**22 + 1) == 0.0 == distributed._memory_mb(2**22 + 1)


def test_processes_with_the_mark_are_found(monkeypatch):
    import subprocess
    import sys

    monkeypatch.setenv(killing.MARK, "mark of a test")
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 30
        while distributed._marked() != [os.getpid(), process.pid]:  # until it has its own environment
            assert time.monotonic() < deadline
    finally:
        process.communicate(b"\n")
    assert distributed._marked() == [os.getpid()]
