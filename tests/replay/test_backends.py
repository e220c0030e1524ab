"""Which store a run gets, and what it is told."""

import dataclasses
import logging
import sys

import pytest

from minerva_acme import replay
from minerva_acme.replay import backends

pytestmark = pytest.mark.promise("A table that Reverb cannot sample as asked is refused")


@pytest.fixture
def without_reverb(monkeypatch):
    monkeypatch.setitem(sys.modules, "reverb", None)


@pytest.fixture
def make(table):
    """Makes a server that is closed with the test: `make(backend="memory", ...)`."""
    servers = []

    def function(*tables, **options):
        servers.append(replay.make_server(tables or [table()], seed=0, **options))
        return servers[-1]

    yield function
    for server in servers:
        server.close()


def test_without_reverb_auto_takes_memory_and_says_so_once(make, without_reverb, caplog):
    caplog.set_level(logging.INFO, "minerva_acme")
    assert isinstance(make(), replay.MemoryServer)
    assert caplog.messages == [
        "Reverb is not installed: replay is kept in this process's memory, where other processes cannot "
        "reach it"
    ]


def test_without_reverb_asking_for_it_is_an_error_with_the_way_out(make, without_reverb):
    with pytest.raises(
        replay.ReplayError,
        match="needs Reverb, which is not installed. .* Python 3.11 on x86-64 Linux.*backend='memory'",
    ):
        make(backend="reverb")


@pytest.mark.parametrize("missing", ["reverb", "tensorflow"])
def test_reverb_counts_as_installed_with_all_that_it_needs(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    assert not backends.is_reverb_installed()


def test_finding_out_imports_nothing(monkeypatch):
    for name in ("reverb", "tensorflow"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    backends.is_reverb_installed()
    assert "tensorflow" not in sys.modules and "reverb" not in sys.modules


@pytest.mark.reverb
def test_with_reverb_auto_takes_it_without_a_word(make, caplog):
    caplog.set_level(logging.INFO, "minerva_acme")
    assert isinstance(make(), replay.ReverbServer)
    assert not caplog.messages


def test_memory_is_had_for_the_asking_without_a_word(make, caplog):
    caplog.set_level(logging.INFO, "minerva_acme")
    server = make(backend="memory")
    assert isinstance(server, replay.MemoryServer)
    assert server.address == "in memory"
    assert not caplog.messages


FADING = replay.Prioritized(0.0, fading=0.9999)


@pytest.mark.parametrize("sampler", [FADING, replay.Prioritized(0.4, new_priority="largest")])
def test_reverb_refuses_a_sampler_that_it_does_not_know_and_names_the_way_out(table, monkeypatch, sampler):
    monkeypatch.setattr(backends, "is_reverb_installed", lambda: True)
    for make in (
        lambda tables: replay.make_server(tables, "reverb", seed=0),
        replay.ReverbServer,
        lambda tables: backends.describe_size(tables, "reverb"),
    ):
        with pytest.raises(
            replay.ReplayError,
            match=r"Table 'replay' must be sampled uniformly, .* to be on Reverb, got Prioritized\(exponent.*"
            "in a run of one process: --replay memory, in Python replay='memory'",
        ):
            make([table(name="other"), table(sampler=sampler)])


def test_auto_takes_memory_for_a_sampler_that_reverb_does_not_know_and_says_so(
    make, table, monkeypatch, caplog
):
    monkeypatch.setattr(backends, "is_reverb_installed", lambda: True)
    caplog.set_level(logging.INFO, "minerva_acme")
    assert isinstance(make(table(sampler=FADING)), replay.MemoryServer)
    assert caplog.messages == [
        "Reverb cannot sample as the config says: replay is kept in this process's memory, where other "
        "processes cannot reach it"
    ]
    size = backends.describe_size([table(sampler=FADING)], "auto")
    assert size.split(";")[0] == backends.describe_size([table()], "memory").split(";")[0]


def test_an_unknown_backend_is_refused(make):
    with pytest.raises(ValueError, match="`backend` must be one of auto, reverb, memory, got 'redis'."):
        make(backend="redis")


@pytest.mark.parametrize(
    ("wrote", "reads", "message"),
    [
        ("reverb", "memory", "no file 'memory.npz'. It was written by replay on Reverb: .*backend='reverb'"),
        ("memory", "reverb", "no file 'DONE'. It was written by replay in memory: .*backend='memory'"),
    ],
)
@pytest.mark.reverb
def test_a_checkpoint_of_the_other_store_is_refused(make, write, tmp_path, wrote, reads, message):
    client = make(backend=wrote, checkpoint_directory=str(tmp_path)).client()
    write(client, num_items=2)
    path = client.checkpoint()
    with pytest.raises(replay.ReplayError, match=message):
        make(backend=reads, restore_from=path)


def test_everything_reaches_the_server_in_memory(make, table, write, tmp_path):
    first = make(table(max_size=7), backend="memory", checkpoint_directory=str(tmp_path))
    write(first.client(), num_items=3)
    path = first.client().checkpoint()
    second = make(table(max_size=7), backend="memory", restore_from=path)
    assert second.client().table_info("replay") == first.client().table_info("replay")
    with pytest.raises(replay.ReplayError, match="`max_size` 7 against 8"):
        make(dataclasses.replace(table(max_size=8)), backend="memory", restore_from=path)
