import os
import signal
import threading
import time

import pytest

from minerva_acme import environments
from minerva_acme.experiments import signals
from minerva_acme.replay import waiting


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


def test_both_signals_say_what_there_is_to_resume_from(monkeypatch, caplog):
    now = [100.0]
    monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])
    with signals.stop_request_on_signals(lambda: "step 7 in here"):
        os.kill(os.getpid(), signal.SIGINT)
        assert caplog.messages == [
            "SIGINT: stopping after this step, then saving; press Ctrl-C again to end now. "
            "Last checkpoint: step 7 in here."
        ]
        now[0] += 1.0
        with pytest.raises(
            KeyboardInterrupt, match="stopped without saving; last checkpoint: step 7 in here"
        ):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_wait_is_ended_by_the_first_signal_and_a_save_is_not():
    with signals.stop_request_on_signals():
        os.kill(os.getpid(), signal.SIGTERM)
        with waiting.alone():
            waiting.Wait().go_on(waiting.base.ReplayTimeout("Saving."))
        with pytest.raises(waiting.base.ReplayStopped):
            waiting.Wait().go_on(waiting.base.ReplayTimeout("Learning."))


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(signals, "_POLL_SECONDS", 0.02)
    monkeypatch.setattr(signals, "_LONG_CALL_SECONDS", 0.2)


class AnyActor:
    """Plays alone or in several environments."""

    def select_action(self, observations):
        return [0.0] if isinstance(observations, list) else 0.0

    def __getattr__(self, name):
        return lambda *arguments, **options: None


def make_loop(environment, slow, in_vector=False):
    """Plays where one method takes a second, its first time."""
    method = getattr(environment, slow)
    seconds = [1.0]

    def take_long(*arguments):
        time.sleep(seconds.pop() if seconds else 0.0)
        return method(*arguments)

    setattr(environment, slow, take_long)
    if in_vector:
        vector = environments.InProcessVectorEnvironment([environment])
        return environments.VectorEnvironmentLoop(environment=vector, actor=AnyActor())
    return environments.EnvironmentLoop(environment=environment, actor=AnyActor())


@pytest.mark.parametrize("in_vector", [False, True])
@pytest.mark.parametrize("slow", ["step", "reset"])
@pytest.mark.usefixtures("impatient")
def test_a_step_or_reset_that_takes_long_is_reported_with_its_place(scripted, caplog, slow, in_vector):
    loop = make_loop(scripted(), slow, in_vector)
    with signals.stop_request_on_signals():
        loop.run(num_steps=4)
        time.sleep(0.5)
    # After 0.2 s and 0.4 s, or a little later, and not any more once it has returned.
    assert 1 <= len(caplog.messages) <= 3
    for message in caplog.messages:
        assert message.startswith(f"`{slow}` of the environment has not returned for ")
        assert f" s; the run is at {__file__}:" in message and message.endswith(", in take_long.")


@pytest.mark.usefixtures("impatient")
def test_an_environment_that_failed_before_is_not_reported(scripted, caplog):
    environment = scripted()
    loop = make_loop(environment, "step")
    environment.reset = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        loop.step()
    with signals.stop_request_on_signals():
        time.sleep(0.4)
    assert not caplog.messages


def test_outside_the_main_thread_nothing_is_asked():
    seen = []

    def run():
        with signals.stop_request_on_signals() as stop:
            seen.append(bool(stop))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [False]
