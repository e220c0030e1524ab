"""Ray holds a program: calls, deaths, ends and places."""

import dataclasses
import logging
import os
import pathlib
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from minerva_acme.distributed import graph
from tests.distributed import echo  # noqa: F401 -- so that Ray's workers find it, too

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(600),
    # Of a start of Ray that a busy machine was too slow for, and that was tried again.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    from minerva_acme.distributed import ray_engine

    engine = ray_engine.RayEngine()
    assert engine.connect(num_cpus=4) == "localhost"
    yield engine
    engine.close()


def node(name: str, **arguments: Any) -> graph.Node:
    return graph.Node(
        name=name,
        factory="tests.distributed.echo:Echo",
        arguments=arguments,
        num_cpus=0.0,
        num_threads=3,
    )


@pytest.fixture
def launch(engine: Any) -> Iterator[Callable[..., graph.Launched]]:
    launched: list[graph.Launched] = []

    def launch(*nodes: graph.Node) -> graph.Launched:
        program = engine.launch(graph.Program(nodes=nodes))
        launched.append(program)
        for started in nodes:
            program.start(started.name, 0)
        return program

    yield launch
    for program in launched:
        program.close()


def call(launched: graph.Launched, name: str, *question: Any) -> Any:
    """Calls a node once it is there; looks after the program meanwhile, as a supervisor does."""
    deadline = time.monotonic() + 120
    while True:
        try:
            return launched.handle(name).call(*question)
        except graph.NodeSilence:
            assert time.monotonic() < deadline
            assert launched.wait(0.1) == []


def wait_for_end(launched: graph.Launched) -> graph.Ended:
    deadline = time.monotonic() + 120
    while not (ended := launched.wait(0.5)):
        assert time.monotonic() < deadline
    (one,) = ended
    return one


def test_nodes_call_each_other_by_name_and_only_what_is_exported(launch: Any) -> None:
    launched = launch(node("a"), node("b"))
    about = call(launched, "b", "about")
    assert about["pid"] != os.getpid() and about["incarnation"] == 0
    assert (about["threads"], about["gpus"]) == ("3", "")
    assert call(launched, "a", "ask", "b") == about
    with pytest.raises(ValueError, match="Node a has no `run`; it exports about, array, ask, fail"):
        call(launched, "a", "run")
    with pytest.raises(KeyError, match="no such thing"):
        call(launched, "a", "fail")
    with pytest.raises(graph.NodeSilence, match="There is no node c"):
        launched.handle("c").call("about")


def test_what_is_shared_is_put_into_the_store_once_for_each_key_and_name(launch: Any) -> None:
    launched = launch(node("a"))
    first, first_mark = call(launched, "a", "array", 1)
    _, named_mark = call(launched, "a", "array", 1, "named")
    assert named_mark != first_mark
    again, again_mark = call(launched, "a", "array", 1)
    other, other_mark = call(launched, "a", "array", 2)
    assert first_mark == again_mark != other_mark
    assert (first[0], again[-1], other[0]) == (1.0, 1.0, 2.0)
    assert not first.flags.writeable  # it lies in memory that all processes read


def test_a_killed_process_is_one_death_and_is_back_when_it_is_started_again(launch: Any) -> None:
    launched = launch(node("a"), node("b"))
    before = call(launched, "a", "about")
    os.kill(before["pid"], signal.SIGKILL)
    ended = wait_for_end(launched)
    assert (ended.name, ended.died) == ("a", True)
    launched.start("a", 1)  # at once: Ray may not have started the process again
    after = call(launched, "a", "about")
    assert after["incarnation"] == 1 and after["pid"] != before["pid"]
    assert call(launched, "b", "ask", "a") == after


def test_an_exception_is_an_end_of_its_own_and_leaves_the_process(launch: Any) -> None:
    launched = launch(node("a", error="broken"))
    ended = wait_for_end(launched)
    assert ended.name == "a" and not ended.died
    assert isinstance(ended.error, ValueError) and str(ended.error) == "broken"
    launched.start("a", 1)
    assert str(wait_for_end(launched).error) == "broken"


def test_a_node_ends_when_it_is_asked_to(launch: Any, tmp_path: pathlib.Path) -> None:
    launched = launch(node("a", farewell=str(tmp_path / "farewell")))
    call(launched, "a", "about")
    launched.stop("a")
    assert wait_for_end(launched) == ("a", None, False)
    assert (tmp_path / "farewell").read_text() == "0\n"


def test_a_terminated_process_ends_its_node_first_and_is_started_again(
    launch: Any, tmp_path: pathlib.Path
) -> None:
    launched = launch(node("a", farewell=str(tmp_path / "farewell")))
    before = call(launched, "a", "about")
    os.kill(before["pid"], signal.SIGTERM)
    ended = wait_for_end(launched)
    assert (ended.name, ended.died) == ("a", True)
    assert (tmp_path / "farewell").read_text() == "0\n"
    launched.start("a", 1)
    assert call(launched, "a", "about")["incarnation"] == 1


def test_a_machine_that_is_going_to_be_shut_down_is_left(
    launch: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = launch(node("a", farewell=str(tmp_path / "farewell")))
    monkeypatch.setattr(launched, "_is_remote", True)
    launched.endure()
    call(launched, "a", "about")
    while "a" not in launched._where:
        assert launched.wait(0.5) == []
    monkeypatch.setattr(launched, "_draining", lambda: {"another"})
    launched.endure()
    assert launched.wait(0.5) == []
    monkeypatch.setattr(launched, "_draining", lambda: {launched._where["a"]})
    launched.endure()
    ended = wait_for_end(launched)
    assert (ended.name, ended.died) == ("a", True)
    assert (tmp_path / "farewell").read_text() == "0\n"


def test_what_a_node_logs_is_logged_here_with_its_name(launch: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    launched = launch(node("a"))
    deadline = time.monotonic() + 120
    while not any(record.getMessage() == "a: run 0 begins" for record in caplog.records):
        assert time.monotonic() < deadline
        launched.wait(0.2)
    assert launched.about()["a"]["memory_mb"] > 10


def test_without_ray_the_engine_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from minerva_acme.distributed import ray_engine

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        ValueError,
        match=r"pip install 'minerva-acme\[ray\]'.* use `--distributed inline` "
        r"\(in Python: engine='inline'\)",
    ):
        ray_engine.RayEngine()


def test_a_node_that_ray_cannot_place_ends_when_it_is_asked_to(launch: Any) -> None:
    too_large = dataclasses.replace(node("echo"), num_cpus=1_000.0)
    launched = launch(too_large)
    assert launched.wait(2.0) == []
    launched.stop("echo")
    began = time.monotonic()
    assert wait_for_end(launched) == graph.Ended("echo", None, died=False)
    assert time.monotonic() - began < 5.0
