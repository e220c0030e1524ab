import contextlib
import ctypes
import multiprocessing
import os
import signal
import threading
import time

import pytest

from minerva_acme import environments
from minerva_acme.experiments import interrupts, signals
from minerva_acme.replay import waiting

NUMBERS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
SAME = interrupts.SAME_REQUEST_SECONDS


def signal_self(number):
    """The kernel may deliver it a moment later, and a KeyboardInterrupt comes by way of the watcher."""
    os.kill(os.getpid(), number)
    time.sleep(0.05)


@contextlib.contextmanager
def no_interrupt():
    """A KeyboardInterrupt would end all tests."""
    try:
        yield
    except KeyboardInterrupt:
        pytest.fail("interrupted")


@pytest.mark.parametrize("number", NUMBERS)
def test_the_first_signal_asks_and_the_second_interrupts(number, monkeypatch):
    monkeypatch.setattr(signals.interrupts, "SAME_REQUEST_SECONDS", 0.3)
    monkeypatch.setattr(signals, "_end_process", lambda: None)  # not the one of the tests
    before = signal.getsignal(number)
    with signals.stop_request_on_signals() as stop:
        assert not stop
        with no_interrupt():
            signal_self(number)
            assert stop and stop.signal_name == number.name
            signal_self(number)  # as `timeout` sends it, to the process and to its group
            time.sleep(0.5)
        with pytest.raises(KeyboardInterrupt):
            signal_self(number)
            time.sleep(10.0)
    assert signal.getsignal(number) is before


def test_both_signals_say_what_there_is_to_resume_from(monkeypatch, caplog):
    monkeypatch.setattr(signals.interrupts, "SAME_REQUEST_SECONDS", 0.05)
    with signals.stop_request_on_signals(lambda: "step 7 in here"):
        signal_self(signal.SIGINT)
        time.sleep(0.2)
        assert caplog.messages == [
            "SIGINT: stopping after this step, then saving; press Ctrl-C again to end now. "
            "Last checkpoint: step 7 in here."
        ]
        with pytest.raises(
            KeyboardInterrupt, match="stopped without saving; last checkpoint: step 7 in here"
        ):
            signal_self(signal.SIGINT)
            time.sleep(10.0)


def test_a_run_whose_folder_is_removed_says_nothing_of_saving(monkeypatch, caplog):
    monkeypatch.setattr(signals.interrupts, "SAME_REQUEST_SECONDS", 0.05)
    with signals.keeping_nothing(), signals.stop_request_on_signals(lambda: "step 7 in here"):
        signal_self(signal.SIGINT)
        time.sleep(0.2)
        assert caplog.messages == ["SIGINT: stopping after this step; press Ctrl-C again to end now."]
        with pytest.raises(KeyboardInterrupt, match="^stopped$"):
            signal_self(signal.SIGINT)
            time.sleep(10.0)


def test_a_question_that_python_delivers_late_does_not_interrupt_again():
    watcher = signals._Watcher(signals.StopRequest(), lambda: "none yet")
    requests = watcher._requests
    for seconds in (0.0, 2.0 * SAME, 3.0 * SAME):
        requests.look(seconds, True)
    with pytest.raises(KeyboardInterrupt):
        watcher._handle(signal.SIGINT, None)
    requests._heard_at -= 2.0 * SAME
    with no_interrupt():
        watcher._handle(signals._ARE_YOU_THERE, None)
    with pytest.raises(KeyboardInterrupt):  # a third Ctrl-C
        watcher._handle(signal.SIGINT, None)


# What a watcher sees: looks at a time, with signals or without, and "h" where the main thread answers.
HEARD, DEAF, WAITS = "heard", "deaf", "waits"


@pytest.mark.parametrize(
    ("tape", "end"),
    [
        # However long the run takes to stop after one request, it is not ended.
        ([(0.0, 1), (1.0, 0), (100.0, 0)], WAITS),
        # Nor where the watcher learns of the signal before or after the main thread has handled it.
        (["h", (0.0, 1), (100.0, 0)], WAITS),
        ([(0.0, 1), "h", (100.0, 0)], WAITS),
        # Echoes are the same request, one call for all of them or a call for each.
        ([(0.0, 1), (0.1, 1), (0.4, 1), (100.0, 0)], WAITS),
        ([(0.0, 1), "h", (0.1, 1), "h", (0.4, 1), "h", (100.0, 0)], WAITS),
        # An echo that the watcher, which was kept from looking, sees late.
        ([(0.0, 1), (7.0, 1), (100.0, 0)], WAITS),
        # One of which the main thread, which was in C code, hears late.
        ([(0.0, 1), (0.1, 1), (0.6, 0), (6.0, 0), "h", (100.0, 0)], WAITS),
        # A second request is heard, also late, also if it is heard once for several signals.
        ([(0.0, 1), (0.6, 0), (2.0, 1), "h", (100.0, 0)], HEARD),
        ([(0.0, 1), (0.6, 0), (2.0, 1), (2.1, 1), (2.2, 1), "h", (2.3, 1), (100.0, 0)], HEARD),
        ([(0.0, 1), (0.6, 0), (2.0, 1), (4.9, 0), "h", (100.0, 0)], HEARD),
        # The main thread's answer to the first says nothing of the second.
        ([(0.0, 1), "h", (0.6, 0), (2.0, 1), (4.9, 0)], WAITS),
        ([(0.0, 1), "h", (0.6, 0), (2.0, 1), (4.9, 0), (5.0, 0)], DEAF),
        # The deaf time begins with the second request, whatever came with it.
        ([(0.0, 1), (0.6, 0), (2.0, 1), (4.0, 1), (4.9, 0)], WAITS),
        ([(0.0, 1), (0.6, 0), (2.0, 1), (4.0, 1), (5.0, 0)], DEAF),
    ],
)
def test_only_a_second_request_that_stays_unheard_ends_the_process(tape, end):
    requests, now = signals.Requests(), 0.0
    ends = set()
    for event in tape:
        if event == "h":
            if requests.hear(now):
                ends.add(HEARD)
        else:
            now, has_arrived = event
            requests.look(now, bool(has_arrived))
        if requests.is_deaf(now):
            ends.add(DEAF)
    assert ends == ({end} - {WAITS})


def test_a_third_signal_interrupts_again_and_an_echo_of_the_second_does_not():
    requests = signals.Requests()
    for now, has_arrived in [(0.0, True), (0.6, False), (2.0, True)]:
        requests.look(now, has_arrived)
    assert [requests.hear(now) for now in (2.0, 2.1, 2.0 + SAME)] == [True, False, True]


def test_the_watcher_looks_when_a_first_request_can_have_no_more_echoes():
    requests = signals.Requests()
    assert requests.next_look(0.0) == pytest.approx(0.5)
    requests.look(10.0, True)
    requests.look(10.4, True)
    assert requests.next_look(10.4) == pytest.approx(0.1)
    requests.look(10.4 + requests.next_look(10.4), False)
    requests.look(10.7, True)
    assert requests.is_second_unheard


@pytest.fixture
def hasty(monkeypatch):
    monkeypatch.setattr(interrupts, "SAME_REQUEST_SECONDS", 0.2)
    monkeypatch.setattr(signals, "_DEAF_SECONDS", 0.2)
    monkeypatch.setattr(signals, "_POLL_SECONDS", 0.02)
    ended = []
    monkeypatch.setattr(signals, "_end_process", lambda: ended.append("ended"))
    return ended


def test_stopping_may_take_longer_than_the_time_after_which_a_thread_is_deaf(hasty):
    with no_interrupt(), signals.stop_request_on_signals() as stop:
        for number in NUMBERS * 5:
            os.kill(os.getpid(), number)
        time.sleep(0.6)
    assert stop
    assert hasty == []


def be_deaf(seconds, *signals_at):
    """Is in C for a while, where it hears no signals, of which some come at these seconds."""
    # Other threads get them.
    numbers = [*NUMBERS, signal.SIGURG]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    timers = [threading.Timer(at, os.kill, (os.getpid(), signal.SIGTERM)) for at in signals_at]
    for timer in timers:
        timer.start()
    try:
        ctypes.CDLL(None).usleep(round(1e6 * seconds))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for timer in timers:
            timer.join()


def test_an_echo_of_which_c_code_hears_late_does_not_end_the_run(hasty):
    with signals.stop_request_on_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        be_deaf(0.7, 0.0)
        time.sleep(0.1)
    assert stop
    assert hasty == []


def test_c_code_that_does_not_hear_of_two_requests_is_ended(hasty, caplog):
    with signals.stop_request_on_signals(lambda: "step 7 in here"):
        with contextlib.suppress(KeyboardInterrupt):  # this process lives on
            be_deaf(1.0, 0.0, 0.5)
        assert set(hasty) == {"ended"}
    assert caplog.messages[:2] == [
        "SIGTERM: stopping after this step, then saving; send it again to end now. "
        "Last checkpoint: step 7 in here.",
        "stopped without saving; last checkpoint: step 7 in here",
    ]


def test_c_code_that_returns_in_time_hears_of_the_second_request(hasty, monkeypatch):
    monkeypatch.setattr(signals, "_DEAF_SECONDS", 30.0)
    with signals.stop_request_on_signals(), pytest.raises(KeyboardInterrupt):
        be_deaf(0.7, 0.0, 0.5)
        time.sleep(10.0)
    assert hasty == []


def test_an_ignored_sighup_stays_ignored_as_under_nohup(monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupts.like_ctrl_c(), signals.stop_request_on_signals() as stop:
            signal_self(signal.SIGHUP)
            assert not stop
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", NUMBERS)
def test_where_nothing_can_be_saved_each_signal_is_a_keyboard_interrupt(number):
    before = signal.getsignal(number)
    with interrupts.like_ctrl_c(), pytest.raises(KeyboardInterrupt):
        signal_self(number)
    assert signal.getsignal(number) is before


def test_an_echo_does_not_interrupt_what_closes_after_the_first(monkeypatch):
    with interrupts.like_ctrl_c():
        with pytest.raises(KeyboardInterrupt):
            signal_self(signal.SIGTERM)
        with no_interrupt():
            signal_self(signal.SIGHUP)
        monkeypatch.setattr(interrupts, "SAME_REQUEST_SECONDS", 0.01)
        with pytest.raises(KeyboardInterrupt):
            signal_self(signal.SIGTERM)


def test_a_handler_of_the_program_is_left_to_it():
    heard = []
    before = signal.signal(signal.SIGTERM, lambda *_: heard.append("own"))
    try:
        with interrupts.like_ctrl_c():
            signal_self(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == ["own"]


def test_after_the_last_save_a_signal_is_answered_and_makes_no_failure(hasty, caplog):
    with contextlib.ExitStack() as handlers:
        with signals.stop_request_on_signals(lambda: "step 9 in here", until=handlers) as stop:
            pass
        for _ in range(2):  # one request
            signal_self(signal.SIGTERM)
        assert not stop
        assert caplog.messages == [
            "SIGTERM: closing the run; send it again to end now. Last checkpoint: step 9 in here."
        ]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_closing_that_hangs_can_be_interrupted(hasty):
    with contextlib.ExitStack() as handlers:
        with signals.stop_request_on_signals(lambda: "step 9 in here", until=handlers):
            signal_self(signal.SIGINT)  # which saves
        signal_self(signal.SIGINT)
        time.sleep(0.3)
        with pytest.raises(KeyboardInterrupt, match="stopped before all was closed; last checkpoint: step 9"):
            signal_self(signal.SIGINT)
            time.sleep(10.0)


@pytest.mark.parametrize("block", [interrupts.like_ctrl_c, signals.stop_request_on_signals])
def test_a_forked_process_ends_by_sigterm_and_tells_its_parent_nothing(block, hasty, caplog):
    with block():
        for _ in range(2):  # not two requests
            process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(30.0,))
            process.start()
            time.sleep(0.3)
            process.terminate()
            process.join()
            assert process.exitcode == -signal.SIGTERM
            process.close()
        time.sleep(0.05)
    assert caplog.messages == []


def test_a_wait_is_ended_by_the_first_signal_and_a_save_is_not():
    with signals.stop_request_on_signals():
        os.kill(os.getpid(), signal.SIGTERM)
        with waiting.rules(is_alone=True):
            waiting.Wait().go_on(waiting.base.ReplayTimeout("Saving."))
        with pytest.raises(waiting.base.ReplayStopped):
            waiting.Wait().go_on(waiting.base.ReplayTimeout("Learning."))


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(signals, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(signals, "_LONG_CALL_SECONDS", 0.06)


class AnyActor:
    """Plays alone or in several environments."""

    def select_action(self, observations):
        return [0.0] if isinstance(observations, list) else 0.0

    def __getattr__(self, name):
        return lambda *arguments, **options: None


def make_loop(environment, slow, in_vector=False):
    """Plays where one method takes long, its first time."""
    method = getattr(environment, slow)
    seconds = [0.3]

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
        time.sleep(0.15)
    # After 0.06 s and 0.12 s, or a little later, and not any more once it has returned.
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
        time.sleep(0.15)
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
