"""Nothing waits for ever: servers that die, tables that block, Ctrl-C."""

import contextlib
import logging
import pathlib
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import types
from concurrent import futures

import numpy as np
import pytest

from minerva_acme import replay
from minerva_acme.replay import waiting
from minerva_acme.replay.reverb import ports, sampler, store

pytestmark = pytest.mark.reverb

CLOSE_SECONDS = 1.0
INTERRUPT_SECONDS = 2.0
EXIT_SECONDS = 10.0  # mostly torch's, on a busy machine


@contextlib.contextmanager
def within(seconds):
    start = time.monotonic()
    yield
    assert time.monotonic() - start < seconds


def later(seconds, function):
    timer = threading.Timer(seconds, function)
    timer.start()
    return timer


def test_a_sampler_waits_for_the_tables_minimum_and_says_so(serve, table, write, caplog, monkeypatch):
    monkeypatch.setattr(waiting, "_REPORT_SECONDS", 0.0)
    monkeypatch.setattr(waiting, "SLICE_SECONDS", 0.05)
    caplog.set_level(logging.WARNING, "minerva_acme")
    client = serve(table(rate_limiter=replay.MinSize(10))).client()
    write(client, num_items=3)
    with client.sampler("replay") as sampler:
        with pytest.raises(replay.ReplayTimeout, match="Waiting for 10 items in table 'replay', has 3."):
            sampler.sample_batch(2, timeout_seconds=0.2)
        timer = later(0.3, lambda: write(client, first=3, num_items=7))
        info, _ = sampler.sample_batch(2)
        timer.join()
    assert info.table_size.tolist() == [10, 10]
    assert "Waiting for 10 items in table 'replay', has 3. Waited 0 s so far." in caplog.messages


def test_a_sampler_held_back_by_the_ratio_says_so(serve, table, write):
    limiter = replay.SampleToInsertRatio(samples_per_insert=2.0, min_size=2, error_buffer=4.0)
    client = serve(table(rate_limiter=limiter)).client()
    write(client, num_items=3)
    with client.sampler("replay") as sampler:
        sampler.sample_batch(6)
        with pytest.raises(
            replay.ReplayTimeout, match="Table 'replay' holds samples back: 3 inserted, 6 sampled"
        ):
            sampler.sample_batch(6, timeout_seconds=0.3)


def test_a_writer_held_back_by_the_ratio_says_so_and_loses_nothing(serve, table, write_with):
    limiter = replay.SampleToInsertRatio(samples_per_insert=1.0, min_size=2, error_buffer=4.0)
    server = serve(table(rate_limiter=limiter))
    client = replay.ReverbClient(server.address, timeout_seconds=0.3)
    with client.writer(3) as writer:
        with pytest.raises(
            replay.ReplayTimeout, match="Table 'replay' holds inserts back: 6 inserted, 0 sampled"
        ):
            write_with(writer, num_items=100)
        with client.sampler("replay", exact=True) as sampler:
            sampler.sample_batch(8)
            writer.flush()
    assert client.table_info("replay").inserted > 6


def test_a_full_queue_holds_its_writer_back(serve, table, write):
    queue = table(rate_limiter=replay.Queue(5), sampler=replay.Fifo(), max_times_sampled=1)
    server = serve(queue)
    client = replay.ReverbClient(server.address, timeout_seconds=0.2)
    with pytest.raises(
        replay.ReplayTimeout, match="Table 'replay' holds inserts back: 5 inserted, 0 sampled"
    ):
        write(client, num_items=20)


def test_closing_a_sampler_ends_another_threads_wait(serve, table):
    client = serve(table()).client()
    sampler = client.sampler("replay")
    timer = later(0.2, sampler.close)
    with (
        within(0.2 + CLOSE_SECONDS),
        pytest.raises(replay.ReplayError, match="sampler of table 'replay' is closed"),
    ):
        sampler.sample_batch(1)
    timer.join()


def test_a_sampler_blocked_inside_reverb_closes_at_once(serve, table, write):
    limiter = replay.SampleToInsertRatio(samples_per_insert=1.0, min_size=1, error_buffer=2.0)
    client = serve(table(rate_limiter=limiter)).client()
    write(client, num_items=2)
    sampler = client.sampler("replay")
    with pytest.raises(replay.ReplayTimeout):
        sampler.sample_batch(50, timeout_seconds=0.3)
    with within(CLOSE_SECONDS):
        sampler.close()
    with pytest.raises(replay.ReplayError, match="is closed"):
        sampler.sample_batch(1)


def test_a_sampler_that_is_blocked_fetching_ahead_stops_nobody_when_it_closes(serve, table, write):
    limiter = replay.SampleToInsertRatio(samples_per_insert=1.0, min_size=1, error_buffer=20.0)
    client = serve(table(rate_limiter=limiter)).client()
    write(client, num_items=5)
    sampler = client.sampler("replay")
    sampler.sample_batch(4)
    with within(CLOSE_SECONDS):
        sampler.close()
        time.sleep(0.1)
    assert client.table_info("replay").size == 5  # Others are answered.


LIMITERS = {
    "too few": replay.MinSize(200),
    "ratio": replay.SampleToInsertRatio(samples_per_insert=0.25, min_size=2, error_buffer=2.0),
    "ahead": replay.SampleToInsertRatio(samples_per_insert=4.0, min_size=2, error_buffer=100.0),
}


class Threads:
    """Counts this process's threads, Python's and C++'s, and measures its CPU time while it is idle."""

    OF_A_TABLE = 33  # as many live while a table of a server that has stopped is still held
    _FOLDER = pathlib.Path("/proc/self/task")

    def __init__(self):
        self._before = len(list(self._FOLDER.iterdir()))

    def check_they_end(self):
        deadline = time.monotonic() + 5.0
        # gRPC keeps a few for its next call.
        while (left := len(list(self._FOLDER.iterdir())) - self._before) >= self.OF_A_TABLE:
            assert time.monotonic() < deadline, f"{left} threads are left"
            time.sleep(0.02)
        began, cpu = time.monotonic(), time.process_time()
        time.sleep(0.3)
        assert time.process_time() - cpu < 0.5 * (time.monotonic() - began)


@pytest.mark.parametrize("limiter", LIMITERS)
def test_with_its_server_a_blocked_sampler_ends_and_takes_no_core(table, write, limiter):
    threads = Threads()
    server = replay.ReverbServer([table(name="other"), table(rate_limiter=LIMITERS[limiter])])
    with server.client() as client:
        write(client, num_items=3)
        blocked = [client.sampler("replay") for _ in range(2)]
        for sampler in blocked:
            with contextlib.suppress(replay.ReplayTimeout):
                sampler.sample_batch(100, timeout_seconds=0.2)
    with within(4.0):
        server.close()
    assert not any(sampler.is_running() for sampler in blocked)
    del client, server
    threads.check_they_end()


def test_a_sampler_that_nothing_wakes_is_told_when_its_server_stops(table, monkeypatch, caplog):
    stuck = types.SimpleNamespace(table="replay", is_running=lambda: True)
    monkeypatch.setattr(sampler, "close_all_of", lambda address: [stuck])
    monkeypatch.setattr(store, "_WAKE_SECONDS", 0.1)
    replay.ReverbServer([table()]).close()
    assert caplog.messages == [
        "a sampler of table 'replay' still waits for items; it may occupy a core until this process ends"
    ]


def test_a_queues_threads_end_with_its_server(table, write):
    threads = Threads()
    queue = table(rate_limiter=replay.Queue(50), sampler=replay.Fifo(), max_times_sampled=1)
    with replay.ReverbServer([queue]) as server, server.client() as client:
        write(client, num_items=7)
        with client.sampler("replay") as sampler:
            sampler.sample_batch(3)
            sampler.sample_batch(4)
    del client, server
    threads.check_they_end()


def test_a_blocked_writer_closes_at_once_and_says_what_is_lost(serve, table, write_with, caplog):
    queue = table(rate_limiter=replay.Queue(5), sampler=replay.Fifo(), max_times_sampled=1)
    client = replay.ReverbClient(serve(queue).address, timeout_seconds=0.2)
    writer = client.writer(3)
    with pytest.raises(replay.ReplayTimeout):
        write_with(writer, num_items=20)
    with within(CLOSE_SECONDS):
        writer.close()
        writer.close()
    assert "items that table 'replay' did not take: they are lost" in caplog.text
    with pytest.raises(replay.ReplayError, match="The writer is closed"):
        writer.append({"float32": np.zeros(2, np.float32)})


def test_a_server_closes_at_once_under_blocked_users(table, write_with):
    queue = table(rate_limiter=replay.Queue(5), sampler=replay.Fifo(), max_times_sampled=1)
    server = replay.ReverbServer([table(name="empty"), queue])
    client = replay.ReverbClient(server.address, timeout_seconds=0.2, answer_seconds=2.0)
    sampler, writer = client.sampler("empty"), client.writer(3)
    for blocked in (lambda: sampler.sample_batch(1, 0.1), lambda: write_with(writer, num_items=20)):
        with pytest.raises(replay.ReplayTimeout):
            blocked()
    with within(CLOSE_SECONDS):
        server.close()
        server.close()
    with within(2 * CLOSE_SECONDS):
        writer.close()
        sampler.close()


def test_a_killed_server_is_an_error_and_no_hang(server_process, write, write_with):
    # As long as its start takes, on a busy machine too.
    client = replay.ReverbClient(server_process.address, timeout_seconds=0.5, answer_seconds=100.0)
    write(client, num_items=20)
    sampler, writer = client.sampler("replay"), client.writer(3)
    sampler.sample_batch(1)
    server_process.kill()
    client._connection.answer_seconds = 0.3

    def sample_all_that_is_left():
        while True:
            sampler.sample_batch(200)

    uses = (
        sample_all_that_is_left,
        lambda: write_with(writer, num_items=100),
        lambda: client.table_info("replay"),
        lambda: client.update_priorities("replay", np.ones(1, np.uint64), np.ones(1)),
        client.checkpoint,
        lambda: client.writer(3),
    )
    with within(8.0), futures.ThreadPoolExecutor(len(uses)) as users:
        for failure in [users.submit(use).exception for use in uses]:
            with pytest.raises(
                replay.ReplayError, match=f"server at {server_process.address} does not answer"
            ):
                raise failure()
    with within(2 * CLOSE_SECONDS):
        sampler.close()
        writer.close()


_INTERRUPTED = """
    import dataclasses, os, signal
    # A shell that runs the tests in the background has Ctrl-C ignored, which children inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # Reverb's commentary
    from tests.replay import conftest
    from minerva_acme import replay
    from minerva_acme.replay.dataset import Dataset
    queue = dataclasses.replace(
        conftest.TABLE, rate_limiter=replay.Queue(5), sampler=replay.Fifo(), max_times_sampled=1)
    server = replay.ReverbServer([queue])
    client = server.client()
    writer, samplers = client.writer(3), [client.sampler("replay") for _ in range(3)]
    def batches(prefetch): return Dataset(samplers.pop(), lambda fields: fields, 1, prefetch=prefetch)
    waits = {
        "items": lambda: samplers.pop().sample_batch(1),
        "a batch": lambda: next(batches(prefetch=0)),
        "a batch ahead": lambda: next(batches(prefetch=2)),
        "a reader": lambda: conftest.write_items(writer, num_items=20),
    }
    for name, wait in waits.items():
        try:
            print("waiting for", name, flush=True)
            wait()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
"""


def test_ctrl_c_ends_a_wait(nursery):
    process = nursery.start(textwrap.dedent(_INTERRUPTED))
    with process.stdout:
        # A process that hears nothing is killed, so that reading from it ends.
        killer = later(60.0, process.kill)
        try:
            for wait in ("items", "a batch", "a batch ahead", "a reader"):
                assert process.stdout.readline() == f"waiting for {wait}\n"
                time.sleep(0.3)
                with within(INTERRUPT_SECONDS):
                    process.send_signal(signal.SIGINT)
                    assert process.stdout.readline() == "interrupted\n"
            # Nothing was closed: the interpreter ends all the same.
            assert process.wait(timeout=EXIT_SECONDS) == 0
        finally:
            killer.cancel()
            process.kill()


_SERVER_DIES = """
    import atexit, sys
    atexit.register(lambda: print(sampler.is_running(), flush=True))  # called last
    from minerva_acme import replay
    client = replay.ReverbClient({address!r}, answer_seconds=60.0)
    sampler = client.sampler("replay", exact=True)
    sampler.sample_batch(4)
    print("sampled", flush=True)
    sys.stdin.readline()
    client._connection.answer_seconds = 0.1
    try:
        sampler.sample_batch(4, timeout_seconds=0.1)
    except replay.ReplayTimeout:
        print("silent", flush=True)
"""


def test_a_process_whose_server_died_ends_without_an_abort(server_process, write):
    write(replay.ReverbClient(server_process.address, answer_seconds=60.0), num_items=5)
    script = textwrap.dedent(_SERVER_DIES).format(address=server_process.address)
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe, text=True) as process:
        killer = later(60.0, process.kill)
        try:
            assert process.stdout.readline() == "sampled\n"
            server_process.kill()
            said, _ = process.communicate("\n")
        finally:
            killer.cancel()
            process.kill()
    # The thread that asked the dead server has ended before the interpreter did.
    assert said == "silent\nFalse\n"
    assert process.returncode == 0


def test_no_port_is_chosen_twice_in_a_process(monkeypatch):
    first = ports.free_port()
    offered = iter([first, first, 1])

    class Socket:
        def __enter__(self):
            return self

        def __exit__(self, *unused):
            pass

        def getsockname(self):
            return "", next(offered)

    monkeypatch.setattr(socket, "create_server", lambda *unused, **unused_too: Socket())
    assert ports.free_port() == 1
    ports._handed_out.discard(1)


def test_a_port_in_use_is_refused(serve, table):
    server = serve(table())
    with pytest.raises(replay.ReplayError, match=f"`port` must be a free one, got {server.port}.*pass None"):
        replay.ReverbServer([table()], port=server.port)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_port_in_use_on_one_address_alone_is_refused(table, address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(replay.ReplayError, match="`port` must be a free one"):
            replay.ReverbServer([table()], port=port)


def test_a_port_can_be_used_again_at_once(serve, table, write):
    first = serve(table())
    write(first.client(), num_items=3)
    first.close()
    second = serve(table(), port=first.port)
    assert second.client().table_info("replay").size == 0


HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


def answers(address, port):
    """Whether a server of gRPC's at an address answers a client."""
    try:
        with socket.create_connection((address, port), timeout=0.3) as connection:
            connection.sendall(HELLO)
            return bool(connection.recv(1))
    except OSError:
        return False


def addresses_of_this_machine():
    """Those that other machines would use; none without a network."""
    found = []
    for family, other in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with socket.socket(family, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
            probe.connect((other, 9))  # sends nothing
            found.append(probe.getsockname()[0])
    return found


def test_a_server_that_starts_answers_nobody_and_then_this_machine_alone(serve, table, monkeypatch):
    answered = {}
    bind = ports._bind_to_loopback

    def ask_then_bind(port, but):
        for address in ("127.0.0.1", "::1", *addresses_of_this_machine()):
            answered[address] = answers(address, port)
        return bind(port, but)

    monkeypatch.setattr(ports, "_bind_to_loopback", ask_then_bind)
    port = serve(table()).port
    assert answered and not any(answered.values())
    assert answers("127.0.0.1", port)
    assert [address for address in addresses_of_this_machine() if answers(address, port)] == []
    public = serve(table(), public=True).port
    assert all(answers(address, public) for address in ("127.0.0.1", *addresses_of_this_machine()))


def test_a_port_that_others_can_reach_is_warned_of(serve, table, monkeypatch, caplog):
    monkeypatch.setattr(ports, "_SO_ATTACH_REUSEPORT_CBPF", 9999)
    monkeypatch.setattr(socket, "SO_BINDTODEVICE", 9999)
    port = serve(table()).port
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert f"other machines can reach port {port} while its server starts" in warnings[0]
    assert warnings[-1].startswith(f"other machines can reach port {port}, without authentication; close it")


def test_other_machines_are_kept_out_unless_invited(serve, table):
    def devices(port):
        found = set()
        for descriptor in pathlib.Path("/proc/self/fd").iterdir():
            try:
                candidate = socket.socket(fileno=int(descriptor.name))
            except OSError:
                continue
            try:
                if candidate.family == socket.AF_INET6 and candidate.getsockname()[1] == port:
                    if candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        name = candidate.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16)
                        found.add(name.rstrip(b"\0"))
            except OSError:  # closed meanwhile, by a thread of Reverb's
                continue
            finally:
                candidate.detach()
        return found

    assert devices(serve(table()).port) == {b"lo"}
    assert devices(serve(table(), public=True).port) == {b""}
