import contextlib
import errno
import fcntl
import logging
import os
import signal
import socket
import subprocess
import sys
import textwrap

import pytest

from minerva_acme.runs import run_lock

HOLDER = """
    import multiprocessing, subprocess, sys, time
    from minerva_acme.runs import run_lock

    with run_lock.hold(sys.argv[1]):
        children = [subprocess.Popen(["sleep", "60"], close_fds=False).pid]
        if "fork" in sys.argv:
            context = multiprocessing.get_context("fork")
            runs = context.Event()
            forked = context.Process(target=lambda: (runs.set(), time.sleep(60)))
            forked.start()
            runs.wait()  # until then it is a copy of this process
            children.append(forked.pid)
        print(*children, flush=True)
        sys.stdin.read()
"""


@contextlib.contextmanager
def holder(folder, *arguments):
    """Another process that holds the folder until it is killed, and the processes that it started."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLDER), str(folder), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    children = []
    with process:
        try:
            children = [int(number) for number in process.stdout.readline().split()]
            assert children
            yield process, children
        finally:
            process.kill()
            for child in children:
                os.kill(child, signal.SIGKILL)


def test_a_second_run_is_refused_and_told_whose_the_folder_is(tmp_path):
    with (
        holder(tmp_path) as (process, _),
        pytest.raises(ValueError, match="must be a folder that no other run writes to") as refused,
        run_lock.hold(tmp_path),
    ):
        pass
    message = str(refused.value)
    assert f"process {process.pid} on {socket.gethostname()}, since 20" in message
    assert sys.executable in message
    assert "Stop that run first, or choose another directory." in message


def test_the_lock_of_a_killed_process_is_taken_over_while_its_children_live(tmp_path, caplog):
    caplog.set_level(logging.INFO, run_lock.__name__)
    with holder(tmp_path, "fork") as (process, children):
        process.kill()
        process.wait()
        for child in children:
            os.kill(child, 0)  # is there
        with run_lock.hold(tmp_path):
            assert f"taken over from process {process.pid} on" in caplog.text


def test_a_file_left_by_a_process_whose_number_lives_on_is_taken_over(tmp_path):
    # After another boot, or where numbers are used again, it says nothing that the process is alive.
    (tmp_path / ".lock").write_text(f"process {os.getpid()} on {socket.gethostname()}")
    with run_lock.hold(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_the_folder_is_free_after_an_error(tmp_path):
    with pytest.raises(RuntimeError, match="a joint broke"), run_lock.hold(tmp_path / "new"):
        raise RuntimeError("a joint broke")
    assert list((tmp_path / "new").iterdir()) == []
    with run_lock.hold(tmp_path / "new"):
        pass


def test_one_process_may_not_run_twice_in_a_folder(tmp_path):
    with run_lock.hold(tmp_path):
        with pytest.raises(ValueError, match=f"in use by process {os.getpid()} on"), run_lock.hold(tmp_path):
            pass
        assert os.listdir(tmp_path) == [".lock"]  # whoever is refused leaves it


@pytest.mark.parametrize("and_another_makes_anew", [False, True])
def test_a_file_that_its_owner_deletes_meanwhile_is_no_lock(tmp_path, monkeypatch, and_another_makes_anew):
    flock, deleted = fcntl.flock, []

    def late(descriptor, operation):
        if not deleted:
            deleted.append(os.remove(tmp_path / ".lock"))  # between the opening and the locking
            if and_another_makes_anew:
                (tmp_path / ".lock").touch()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with (
        run_lock.hold(tmp_path),
        pytest.raises(ValueError, match=f"in use by process {os.getpid()} on"),
        run_lock.hold(tmp_path),
    ):
        pass


def test_a_forked_process_does_not_free_what_its_parent_holds(tmp_path):
    code = f"""
    import os, sys
    from minerva_acme.runs import run_lock
    with run_lock.hold({str(tmp_path)!r}):
        child = os.fork()
        if child:
            assert os.waitpid(child, 0)[1] == 0
            assert os.listdir({str(tmp_path)!r}) == [".lock"]
    """
    assert subprocess.run([sys.executable, "-c", textwrap.dedent(code)]).returncode == 0


def test_where_there_are_no_locks_a_warning_says_so(tmp_path, monkeypatch, caplog):
    def fail(descriptor, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", fail)
    with run_lock.hold(tmp_path):
        pass
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.message.startswith(f"{tmp_path} cannot be locked ([Errno {errno.ENOLCK}]")


def test_a_lock_that_has_another_name_or_is_no_file_is_refused_and_not_cut_off(tmp_path):
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    (tmp_path / ".lock").hardlink_to(theirs)
    with (
        pytest.raises(ValueError, match=r"\.lock must be a regular file that only the run uses, got"),
        run_lock.hold(tmp_path),
    ):
        pass
    assert theirs.read_text() == "theirs"
    (tmp_path / ".lock").unlink()
    os.mkfifo(tmp_path / ".lock")
    with (
        pytest.raises(ValueError, match=r"got one with other hard links or of another kind"),
        run_lock.hold(tmp_path),
    ):
        pass


def test_a_folder_that_is_held_is_waited_for_as_long_as_is_wanted(tmp_path):
    asked = []

    def should_wait():
        asked.append(len(asked))
        if len(asked) == 3:
            first.close()
        return True

    with contextlib.ExitStack() as first:
        first.enter_context(run_lock.hold(tmp_path, file=".learner.lock"))
        with run_lock.hold(tmp_path):  # another lock
            pass
        with run_lock.hold(tmp_path, file=".learner.lock", should_wait=should_wait):
            assert asked == [0, 1, 2]
        first.enter_context(run_lock.hold(tmp_path, file=".learner.lock"))
        patience = iter([True, False])
        with pytest.raises(ValueError, match=f"in use by process {os.getpid()} on"):
            run_lock.hold(tmp_path, file=".learner.lock", should_wait=lambda: next(patience)).__enter__()
    assert not list(tmp_path.iterdir())


def test_whether_a_folder_is_held_is_found_out_from_outside(tmp_path):
    assert not run_lock.is_held(tmp_path) and not run_lock.is_held(tmp_path / "nowhere")
    with holder(tmp_path) as (process, _):
        assert run_lock.is_held(tmp_path)
        process.kill()
        process.wait()
        assert (tmp_path / ".lock").exists() and not run_lock.is_held(tmp_path)
        with run_lock.hold(tmp_path):
            assert run_lock.is_held(tmp_path) and not run_lock.is_held(tmp_path, file=".learner.lock")
        assert not run_lock.is_held(tmp_path)
    (tmp_path / "other").write_text("")
    (tmp_path / ".lock").symlink_to("other")  # of whom, cannot be found out
    assert run_lock.is_held(tmp_path)
    (tmp_path / ".lock").unlink()
    os.mkfifo(tmp_path / ".lock")
    assert not run_lock.is_held(tmp_path)


def test_a_run_begins_although_somebody_looks_at_that_moment(tmp_path, monkeypatch):
    (tmp_path / ".lock").write_text("")
    with open(tmp_path / ".lock") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        slept = []

        def sleep(seconds):
            slept.append(seconds)
            fcntl.flock(looking, fcntl.LOCK_UN)

        monkeypatch.setattr(run_lock.time, "sleep", sleep)
        with run_lock.hold(tmp_path):
            assert slept == [run_lock._LOOK_SECONDS]
