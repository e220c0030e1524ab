"""Runs tests against copies of the tree with one mistake in them."""

import concurrent.futures
import contextlib
import functools
import itertools
import json
import math
import os
import pathlib
import queue
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from . import server

PACKAGES = ("minerva_acme", "adders", "agents")  # of the tree, as they lie there
RUN_SECONDS = 600.0
_ALL_SECONDS = 3600.0
_OPTIONS = [
    "-q",
    "--tb=no",
    "-rfE",
    "-p",
    "timeout",
    "-p",
    "no:cacheprovider",
    "-m",
    "not learning and not ray",
]
# Pytest would rewrite the assertions of plugins that the server has imported already.
_OPTIONS += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
TEST_SECONDS = 60.0


class Mutant(NamedTuple):
    """A mistake, and the tests that must notice it."""

    name: str  # what is wrong, in a few words
    file: str  # from the tree's root
    old: str  # stands there exactly once, or at a place
    new: str
    tests: tuple[str, ...]  # files or test ids, from the tree's root
    at: int | None = None  # where the old text begins, for a generated one

    def breaks(self, text: str) -> str:
        """The file's text with the mistake in it."""
        if self.at is None:
            return text.replace(self.old, self.new)
        return text[: self.at] + self.new + text[self.at + len(self.old) :]


class Result(NamedTuple):
    """What became of a mutant."""

    mutant: Mutant
    outcome: str  # "killed", "SURVIVED" or "ERROR"
    detail: str  # the test that noticed, or what went wrong
    seconds: float


class Run(NamedTuple):
    """What became of some tests."""

    status: int  # pytest's, or one of `server`
    failed: list[str]  # the tests that failed
    output: str


class Refused(Exception):
    """The mutants cannot be judged; the message says why."""


def tracked_files(root: pathlib.Path) -> list[str]:
    """The files of a clone, those included that are new and not ignored, from its root."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if done.returncode:
        raise Refused(f"`{' '.join(command)}` failed, but a clone is needed: {done.stderr.strip()}")
    return sorted({name for name in done.stdout.split("\0") if name and (root / name).is_file()})


class Copy:
    """A copy of the tree, and a process that runs its tests."""

    def __init__(self, root: pathlib.Path, files: Iterable[str], folder: pathlib.Path) -> None:
        """Copies the files into the folder, which must be empty."""
        self.root = folder / "tree"
        self._output = folder / "output"
        for name in files:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, self.root / name)
        # The packages as they install. These links come before the editable install, which leads to the
        # original. -P: not to search the current folder, where they lie otherwise.
        package = folder / "site" / PACKAGES[0]
        package.mkdir(parents=True)
        for path in [*(self.root / PACKAGES[0]).iterdir(), *(self.root / name for name in PACKAGES[1:])]:
            (package / path.name).symlink_to(path)
        # What a test hands to a process of its own is found there by the test's module.
        (package.parent / "tests").symlink_to(self.root / "tests")
        self._server = subprocess.Popen(
            [sys.executable, "-P", server.__file__, str(self.root), *server.UNCHANGED],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": str(package.parent)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        """Ends the process."""
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.terminate()
        self._server.wait()
        self._server.stdin.close()
        self._server.stdout.close()

    @contextlib.contextmanager
    def broken_by(self, mutant: Mutant) -> Iterator[None]:
        """The copy with the mistake in it."""
        path = self.root / mutant.file
        text = path.read_text(encoding="utf-8")
        _write(path, mutant.breaks(text))
        try:
            yield
        finally:
            _write(path, text)

    def test(
        self, tests: Sequence[str], seconds: float, *options: str, test_seconds: float | None = None
    ) -> Run:
        """Runs tests in the copy, with options of pytest's."""
        limit = TEST_SECONDS if test_seconds is None else test_seconds
        # A limit by a thread: a call blocked in C++ never lets a signal handler run.
        arguments = [*options, *_OPTIONS, f"--timeout={limit:g}", "--timeout-method=thread", *tests]
        request = {"arguments": arguments, "output": str(self._output), "seconds": seconds}
        assert self._server.stdin is not None and self._server.stdout is not None
        print(json.dumps(request), file=self._server.stdin, flush=True)
        status = int(self._server.stdout.readline())
        output = self._output.read_text(encoding="utf-8", errors="replace")
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+::.*?)(?: - |$)", output, re.MULTILINE)
        return Run(status, failed, output)


def _write(path: pathlib.Path, text: str) -> None:
    # A compiled file counts as fresh while its source has the same size and the same whole seconds: every
    # text of a file gets a later second than the one before.
    seconds = int(path.stat().st_mtime) + 1
    path.write_text(text, encoding="utf-8")
    os.utime(path, (seconds, seconds))


def misplaced(mutants: Iterable[Mutant], root: pathlib.Path) -> list[str]:
    """Says of every mutant whose text or tests are not where they should be what is wrong."""
    problems = []
    for mutant in mutants:
        path = root / mutant.file
        text = path.read_text(encoding="utf-8") if path.is_file() else None
        if text is None:
            count = None
        elif mutant.at is None:
            count = text.count(mutant.old)
        else:
            count = int(text.startswith(mutant.old, mutant.at))
        if count is None:
            problems.append(f"{mutant.name}: there is no file {mutant.file}.")
        elif count != 1:
            problems.append(f"{mutant.name}: {mutant.file} has its old text {count} times: {mutant.old!r}.")
        if mutant.old == mutant.new:
            problems.append(f"{mutant.name}: its new text is the old one.")
        missing = [test for test in mutant.tests if not _exists(test, root)]
        if missing or not mutant.tests:
            problems.append(f"{mutant.name}: its tests must be there, got {missing or 'none'}.")
    return problems


def _exists(test: str, root: pathlib.Path) -> bool:
    """Whether there is such a file, and in it, where an id names one, such a function."""
    file, _, name = test.partition("::")
    path = root / file
    if not name:
        return path.exists()
    return path.is_file() and f"def {name.partition('[')[0]}(" in path.read_text(encoding="utf-8")


def judge(
    mutants: Sequence[Mutant],
    *,
    root: pathlib.Path,
    files: Sequence[str],
    jobs: int = 1,
    seconds: float = math.inf,
    show: Callable[[str], None] = print,
) -> list[Result]:
    """Breaks a copy of the tree by one mutant after the other and runs its tests.

    Args:
        mutants: in the order of the results.
        root: of the tree.
        files: of the tree, from its root; what is not among them is not copied.
        jobs: mutants that are judged at a time.
        seconds: the time after which no other mutant is begun.
        show: is told of each result as it comes.

    Raises:
        Refused: a mutant's text is not found exactly once, or its tests do not run without it.
    """
    problems = misplaced(mutants, root)
    if problems:
        raise Refused("\n".join(problems))
    deadline = time.monotonic() + seconds
    with contextlib.ExitStack() as resources:
        folder = resources.enter_context(tempfile.TemporaryDirectory(prefix="mutants-"))
        copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        made = []
        for job in range(jobs):
            place = pathlib.Path(folder).resolve() / str(job)
            place.mkdir()
            made.append(resources.enter_context(contextlib.closing(Copy(root, files, place))))
            copies.put(made[-1])
        failing = _failing_anyway(made, mutants, show) if mutants else []
        numbers = itertools.count(1)

        def judge_one(mutant: Mutant) -> Result | None:
            copy = copies.get()
            start = time.monotonic()
            if start >= deadline:
                copies.put(copy)
                return None
            try:
                with copy.broken_by(mutant):
                    run = copy.test(mutant.tests, RUN_SECONDS, "-x", *failing)
            finally:
                copies.put(copy)
            result = Result(mutant, *_read(run), time.monotonic() - start)
            show(f"[{next(numbers)}/{len(mutants)}] {_line(result)}")
            return result

        pool = concurrent.futures.ThreadPoolExecutor(jobs)
        try:
            return [result for result in pool.map(judge_one, mutants) if result is not None]
        finally:
            pool.shutdown(cancel_futures=True)


def _failing_anyway(
    copies: Sequence[Copy], mutants: Sequence[Mutant], show: Callable[[str], None]
) -> list[str]:
    """Options that leave out the tests that fail without any mutant: that they fail says nothing.

    On a machine without some instructions, or a busy one, a few may; the others still judge. Each copy runs
    its share of the tests.
    """
    named = {test for mutant in mutants for test in mutant.tests}
    # A test of a file or a folder that is run whole would run twice.
    tests = sorted(test for test in named if named.isdisjoint(_whole(test)))
    show(f"The tests of {len(mutants)} mutants without any of them ...")
    # Without a share, pytest would run everything.
    shares = [tests[index :: len(copies)] for index in range(min(len(copies), len(tests)))]
    test = functools.partial(Copy.test, seconds=_ALL_SECONDS, test_seconds=_ALL_SECONDS)
    with concurrent.futures.ThreadPoolExecutor(len(shares)) as pool:
        runs = list(pool.map(test, copies, shares))
    for run in runs:
        if run.status not in (0, 1):
            raise Refused(f"{run.output}\nThe tests must run without any mutant, got status {run.status}.")
    failed = sorted(name for run in runs for name in run.failed)
    for name in failed:
        show(f"Left out, for it fails without any mutant: {name}")
    return [f"--deselect={name}" for name in failed]


def _whole(test: str) -> list[str]:
    """The file of a test, unless it is the test, and the folders in which it lies."""
    file, _, name = test.partition("::")
    return [*([file] if name else []), *(parent.as_posix() for parent in pathlib.PurePosixPath(file).parents)]


def _read(run: Run) -> tuple[str, str]:
    if run.status == server.TIMED_OUT:
        return "killed", f"the limit of {RUN_SECONDS:g} s"
    if run.status == 0:
        return "SURVIVED", ""
    if run.status == 1 and run.failed:
        return "killed", run.failed[0]
    if run.status == 1 and "+++ Timeout +++" in run.output:
        return "killed", f"a test's limit of {TEST_SECONDS:g} s"
    last = (run.output.strip().splitlines() or ["no output"])[-1]
    return "ERROR", f"status {run.status}: {last}"


def table(results: Sequence[Result]) -> str:
    """All results, the survivors last."""
    ordered = sorted(results, key=lambda result: ("killed", "ERROR", "SURVIVED").index(result.outcome))
    lines = [_line(result) for result in ordered]
    lines += [f"    {rerun(result.mutant)}" for result in ordered if result.outcome != "killed"]
    counts = {kind: sum(result.outcome == kind for result in results) for kind in ("SURVIVED", "ERROR")}
    lines.append(f"{len(results)} mutants: {counts['SURVIVED']} survived, {counts['ERROR']} errors.")
    return "\n".join(lines)


def rerun(mutant: Mutant) -> str:
    """The command that judges a mutant alone: a generated one by the number at its name's end."""
    word = mutant.name if mutant.at is None else mutant.name.rpartition(" [")[2].rstrip("]")
    return f"python -m tests.mutants {shlex.quote(word)}"


def _line(result: Result) -> str:
    by = f"by {result.detail}" if result.outcome == "killed" else result.detail
    return f"{result.mutant.name} | {result.outcome} {by}".rstrip() + f" | {result.seconds:.1f} s"
