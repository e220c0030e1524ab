"""How much memory full tables take is said when they are made, on both stores."""

import numpy as np
import pytest

from minerva_acme import replay
from minerva_acme.machine import memory
from minerva_acme.replay import backends, sizes
from minerva_acme.replay.memory import rows

FRAMES = replay.ItemSignature(
    columns={"frame": replay.ColumnSpec((84, 84, 3), np.dtype(np.uint8))},
    fields={"frames": replay.FieldSpec("frame", 5)},
)
GB = 1_000_000_000


@pytest.fixture(params=["memory", pytest.param("reverb", marks=pytest.mark.reverb)])
def backend(request):
    return request.param


@pytest.fixture
def has(monkeypatch):
    """Gives the machine some memory: `has(free=..., total=...)`, in bytes."""

    def function(free, total):
        monkeypatch.setattr(memory, "free_bytes", lambda: free)
        monkeypatch.setattr(memory, "total_bytes", lambda: total)

    return function


def frames(max_size=1_000_000):
    return replay.TableConfig(
        name="replay", signature=FRAMES, max_size=max_size, rate_limiter=replay.MinSize(1)
    )


def test_a_million_frames_are_21_gb_or_more():
    assert sizes.full_size([frames()], 0) == (21_168_000_000, 5 * 21_168_000_000)
    assert sizes.full_size([frames(), frames(10)], 1000).least == 21_168_000_000 + 211_680 + 1_000_010_000


def test_replay_that_cannot_become_full_is_warned_of(backend, has, caplog):
    has(free=16 * GB, total=24 * GB)
    with backends.make_server([frames()], backend, seed=1):
        (record,) = [record for record in caplog.records if record.name == "minerva_acme.replay.sizes"]
    assert record.levelname == "WARNING"
    least, most = {"memory": ("21.2", "106"), "reverb": ("22.2", "107")}[backend]
    assert record.getMessage() == (
        f"Replay of 1,000,000 items takes {least} GB to {most} GB when it is full; 16 GB of this machine's "
        "24 GB are free. A longer run does not fit: lower `max_size` (an agent's `max_replay_size`), or "
        "store smaller observations."
    )


def test_replay_that_fits_is_told_but_not_warned_of(backend, has, caplog):
    has(free=23 * GB, total=24 * GB)
    caplog.set_level("INFO")
    with backends.make_server([frames()], backend, seed=1):
        (record,) = [record for record in caplog.records if record.name == "minerva_acme.replay.sizes"]
    assert record.levelname == "INFO" and "24 GB are free." in record.getMessage()


def test_small_replay_is_not_worth_a_word(backend, has, caplog):
    has(free=23 * GB, total=24 * GB)
    caplog.set_level("DEBUG")
    with backends.make_server([frames(100)], backend, seed=1):
        assert not [record for record in caplog.records if record.name == "minerva_acme.replay.sizes"]


@pytest.mark.promise("`minerva train` prints the memory of a full replay")
def test_replay_in_memory_that_cannot_grow_is_an_error(has, monkeypatch):
    monkeypatch.setattr(rows, "_CHECKED_BYTES", 1 << 20)
    has(free=2_000_000, total=24 * GB)
    with replay.MemoryServer([frames(1000)], seed=1) as server, server.client().writer(5) as writer:
        message = (
            "Replay in memory has 2.03 MB of rows and needs as much again, briefly, to grow, but only 2 MB "
            "of this machine's 24 GB"
        )
        with pytest.raises(replay.ReplayError, match=message):
            for t in range(1000):
                writer.append({"frame": np.zeros((84, 84, 3), np.uint8)})
                if t >= 4:
                    writer.create_item("replay", 1.0, {"frames": replay.Window("frame", t - 4, 5)})
        assert 0 < server.client().table_info("replay").size < 1000


def test_a_batch_that_does_not_fit_beside_the_replay_is_refused_with_its_size(backend, has):
    has(free=1 * GB, total=24 * GB)
    replay_bytes = 10_000 * (84 * 84 * 3 + {"memory": 32, "reverb": 1000}[backend])
    backends.check_batch([frames(10_000)], backend, 200_000)
    with pytest.raises(ValueError) as caught:
        backends.check_batch([frames(10_000)], backend, 1_000_000_000)
    assert str(caught.value) == (
        "`batch_size` must be a number of items that fits into this machine's 24 GB of memory, got "
        "1,000,000,000: a batch takes 105.9 TB, and the full replay beside it "
        f"{memory.describe(replay_bytes)}. Lower it."
    )
    # Of a replay that is written in part, that part counts.
    backends.check_batch([frames()], backend, 200_000, most_items=10)
    with pytest.raises(ValueError, match="a batch takes 21.2 GB, and the full replay beside it 21.2 GB"):
        sizes.check_batch([frames()], 0, 200_000)


def test_beside_a_replay_that_does_not_fit_itself_only_the_batch_counts(has):
    has(free=1 * GB, total=16 * GB)
    sizes.check_batch([frames()], 0, 100_000)  # a run may end before it is full
    with pytest.raises(ValueError, match="a batch takes 21.2 GB, and the full replay beside it 0 bytes"):
        sizes.check_batch([frames()], 0, 200_000)
