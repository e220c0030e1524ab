import os
import signal
import threading

import pytest

from minerva_acme.experiments import signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_interrupts(number, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])
    before = signal.getsignal(number)
    with signals.stop_request_on_signals() as stop:
        assert not stop
        os.kill(os.getpid(), number)
        assert stop and stop.signal_name == number.name
        now[0] += 0.1
        os.kill(os.getpid(), number)  # as `timeout` sends it, to the process and to its group
        now[0] += 1.0
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_outside_the_main_thread_nothing_is_asked():
    seen = []

    def run():
        with signals.stop_request_on_signals() as stop:
            seen.append(bool(stop))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [False]
