"""What a process may take is what its machine and its control groups leave it."""

import mmap

import pytest

from minerva_acme.machine import memory

MEMINFO = """MemTotal:       16000000 kB
MemFree:         1000000 kB
MemAvailable:    8000000 kB
HugePages_Total:       0
"""


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A system of files to write; `root(path, text)`."""
    monkeypatch.setattr(memory, "_ROOT", tmp_path)

    def write(path, text):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    write("proc/meminfo", MEMINFO)
    return write


def test_without_control_groups_the_machine_is_the_limit(root):
    assert memory.total_bytes() == 16_384_000_000
    assert memory.free_bytes() == 8_192_000_000


@pytest.mark.parametrize("folder", ["", "user/", "user/job/"])
def test_the_tightest_group_around_the_process_is_the_limit(root, folder):
    root("proc/self/cgroup", "0::/user/job\n")
    for group in ("", "user/", "user/job/"):
        root(f"sys/fs/cgroup/{group}memory.max", "4000000000\n" if group == folder else "max\n")
        root(f"sys/fs/cgroup/{group}memory.current", "3000000000\n")
        root(f"sys/fs/cgroup/{group}memory.stat", "anon 5\ninactive_file 500000000\n")
    assert memory.total_bytes() == 4_000_000_000
    assert memory.free_bytes() == 1_500_000_000  # the cache of files can be given back


def test_a_container_with_the_older_control_groups_has_its_own_limit(root):
    root("proc/self/cgroup", "5:cpu,cpuacct:/docker/a\n4:memory:/docker/a\n1:name=systemd:/x\n")
    root("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000000\n")
    root("sys/fs/cgroup/memory/memory.usage_in_bytes", "1900000000\n")
    root("sys/fs/cgroup/memory/memory.stat", "total_inactive_file 0\n")
    assert memory.total_bytes() == 2_000_000_000
    assert memory.free_bytes() == 100_000_000


def test_here_some_of_the_memory_is_free():
    assert 0 < memory.free_bytes() <= memory.total_bytes()


@pytest.mark.parametrize(
    ("num_bytes", "words"),
    [(5, "5 bytes"), (40_000_000, "40 MB"), (21_168_000_000, "21.2 GB"), (8.8e18, "8,800,000.0 TB")],
)
def test_bytes_are_written_in_words(num_bytes, words):
    assert memory.describe(num_bytes) == words


def test_what_this_process_takes_is_in_pages_and_0_where_the_system_does_not_tell(tmp_path, monkeypatch):
    before = memory.resident_bytes()
    with mmap.mmap(-1, 50_000_000) as filled:  # not from what the process keeps of freed memory
        for start in range(0, len(filled), 1_000_000):
            filled[start : start + 1_000_000] = b"x" * 1_000_000
        assert 40_000_000 < memory.resident_bytes() - before < 80_000_000
    monkeypatch.setattr(memory, "_ROOT", tmp_path)
    assert memory.resident_bytes() == 0
