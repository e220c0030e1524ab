"""The program of an experiment, as a value."""

import dataclasses
import pathlib
import threading
from typing import Any
from unittest import mock

import cloudpickle
import pytest

from minerva_acme import specs
from minerva_acme.distributed import actor_node, graph, inline, program
from tests.distributed import small


def make(tmp_path: pathlib.Path, num_actors: int = 3, **arguments: Any) -> graph.Program:
    config = small.experiment(tmp_path, small.sac_builder())
    spec = specs.make_environment_spec(small.Ramp(0))
    return program.make_program(config, spec, num_actors=num_actors, port=1234, **arguments)


def test_an_experiment_is_a_program_of_its_nodes(tmp_path: pathlib.Path) -> None:
    made = make(tmp_path)
    assert [node.name for node in made.nodes] == [
        "counter",
        "replay",
        "learner",
        "actor/0",
        "actor/1",
        "actor/2",
        "evaluator",
    ]
    assert [node.index for node in made.of_kind("actor")] == [0, 1, 2]
    assert {node.name for node in made.nodes if node.at_home} == {"counter", "replay", "learner"}
    assert made["actor/1"].calls == ("counter", "replay", "learner")


def test_a_program_can_be_printed(tmp_path: pathlib.Path) -> None:
    lines = str(make(tmp_path, num_actors=1, learner_threads=7)).splitlines()
    assert len(lines) == 6
    assert lines[3].split() == ["learner", "1", "0", "7", "home", "counter,", "replay"]


def test_nodes_are_given_specs_and_paths_and_no_arrays(tmp_path: pathlib.Path) -> None:
    for node in make(tmp_path).nodes:
        assert len(cloudpickle.dumps(node)) < 20_000, node.name


def test_the_node_of_replay_is_given_nothing_that_needs_torch(tmp_path: pathlib.Path) -> None:
    assert b"torch" not in cloudpickle.dumps(make(tmp_path)["replay"])
    assert "config" not in make(tmp_path)["replay"].arguments


def test_the_experiment_itself_is_left_as_it_is(tmp_path: pathlib.Path) -> None:
    config = small.experiment(tmp_path, small.sac_builder())
    before = dict(vars(config))
    program.make_program(config, specs.make_environment_spec(small.Ramp(0)), num_actors=2)
    assert vars(config) == before
    assert config.builder.num_actors is None  # type: ignore[attr-defined]


def test_nodes_have_names_of_their_own_and_call_nodes_that_there_are() -> None:
    node = graph.Node(name="a", factory="m:f")
    with pytest.raises(ValueError, match="The names of nodes must differ, got a twice"):
        graph.Program(nodes=(node, node))
    with pytest.raises(ValueError, match="a calls b, but the program has a"):
        graph.Program(nodes=(dataclasses.replace(node, calls=("b",)),))


def test_without_actors_there_is_no_program(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="`num_actors` must be >= 1, got 0"):
        make(tmp_path, num_actors=0)


class Echo(graph.Part):
    """Answers, and ends when it is told to."""

    exports = ("echo",)

    def __init__(self, context: graph.Context, *, error: str = "") -> None:
        self._context = context
        self._error = error

    def run(self) -> None:
        if self._error:
            raise ValueError(self._error)
        self._context.stop.wait()

    def echo(self, value: int) -> graph.Shared:
        return graph.Shared(1, (self._context.incarnation, value))

    def hidden(self) -> None:
        pass


def launch(**arguments: Any) -> inline.InlineProgram:
    node = graph.Node(name="echo", factory=f"{__name__}:Echo", arguments=arguments)
    return inline.InlineEngine().launch(graph.Program(nodes=(node,)))


def answer(handle: graph.Handle) -> Any:
    while True:
        try:
            return handle.call("echo", 5)
        except graph.NodeSilence:
            continue


def test_a_handle_finds_a_node_that_was_started_again() -> None:
    launched = launch()
    handle = launched.handle("echo")
    with pytest.raises(graph.NodeSilence, match="Node echo is starting"):
        handle.call("echo", 5)
    for incarnation in range(2):
        launched.start("echo", incarnation)
        assert answer(handle) == (incarnation, 5)
        with pytest.raises(ValueError, match="Node echo has no `hidden`; it exports echo"):
            handle.call("hidden")
        launched.stop("echo")
        assert launched.wait(10.0) == [("echo", None, False)]
    launched.close()


def test_an_exception_of_a_node_is_its_end() -> None:
    launched = launch(error="broken")
    launched.start("echo", 0)
    ((name, error, died),) = launched.wait(10.0)
    assert (name, str(error), died) == ("echo", "broken", False)
    assert launched.wait(0.0) == []
    launched.close()


@pytest.mark.parametrize(
    ("num_actors", "builder", "seconds"),
    [
        (1, small.sac_builder(), 0.1),
        (4096, small.sac_builder(), 4096 / 500),
        (1, small.ppo_builder(), 0.02),
        (256, small.ppo_builder(), 256 / 500),
    ],
)
def test_of_many_actors_each_asks_the_learner_less_often(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, num_actors: int, builder: Any, seconds: float
) -> None:
    class AskedError(Exception):
        """Ends the node."""

    def follow(handle: Any, names: Any, *, period_seconds: float, stop: Any) -> None:
        asked.append(period_seconds)
        raise AskedError

    asked: list[float] = []
    monkeypatch.setattr(actor_node.weights, "Follower", follow)
    monkeypatch.setattr(actor_node.store, "ReverbClient", mock.MagicMock())
    config = small.experiment(tmp_path, builder)
    spec = specs.make_environment_spec(small.Ramp(0))
    node = program.make_program(config, spec, num_actors=num_actors)["actor/0"]
    context = graph.Context(node, 0, mock.MagicMock(), threading.Event())
    with pytest.raises(AskedError):
        inline.build(node, context).run()
    assert asked == [seconds]


def test_a_learner_step_of_an_on_policy_agent_says_whose_rollouts_it_takes() -> None:
    builder = small.vmpo_builder()
    assert builder.learner_step == "all updates from one rollout of 16 environment steps"
    assert builder.for_actors(3).learner_step == f"{builder.learner_step} of each of 3 actors"
