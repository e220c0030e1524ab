"""What the evaluator plays, logs and keeps: each evaluation is of one moment of the run."""

import pathlib
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tree

from minerva_acme import experiments, specs
from minerva_acme.distributed import counter_node, evaluator_node, graph, weights
from minerva_acme.experiments import parts
from minerva_acme.runs import checkpointing, evaluation
from tests.distributed import small

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("looks_often")]
NUM_STEPS = 300


class Learner:
    """Answers as a learner does that is a step further each time it is asked."""

    def __init__(self, variables: Any) -> None:
        self._variables = variables
        self.version = 0
        self.best: list[Any] = []

    def call(self, method: str, *arguments: Any, timeout_seconds: float = 10.0) -> Any:
        if method == "keep_best":
            self.best.append(arguments)
            return None
        self.version += 1
        number = self.version  # each of the weights tells the version
        return number, tree.map_structure(lambda leaf: np.full_like(leaf, number), self._variables)


class Counter:
    """Answers as a counter does to which actors report."""

    def __init__(self, steps: Callable[[int], int]) -> None:  # of the run, by the number of reports
        self._steps = steps
        self.num_reports = 0
        self.rows: list[Any] = []
        self.facts: list[Any] = []

    def call(self, method: str, *arguments: Any, timeout_seconds: float = 10.0) -> Any:
        if method == "put":
            self.facts.append(evaluation.Evaluations.of(arguments[1]))
            return None
        assert method == "report"
        self.rows += [row for _, row in arguments[0].rows]
        self.num_reports += 1
        return counter_node.Reply({"actor_steps": self._steps(self.num_reports)}, {})


class SlowRamp(small.Ramp):
    """In an episode there is time for reports and polls."""

    def step(self, action: Any) -> Any:
        time.sleep(0.01)
        return super().step(action)


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The policy's variables of a run."""
    folder = tmp_path_factory.mktemp("run")
    config = small.experiment(folder, small.sac_builder(), num_env_steps=20, evaluation_period=0)
    experiments.run_experiment(config)
    found = checkpointing.load_state(checkpointing.find(folder))["policy_variables"]
    return tree.map_structure(np.asarray, found)


@pytest.fixture
def evaluate(
    tmp_path: pathlib.Path, variables: Any, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Learner, Counter, list[Any]]]:
    """Runs an evaluator until `is_over`, then lets it finish; returns whom it called, and what it played."""

    def run(steps: Callable[[int], int], is_over: Callable[[Counter], bool]) -> Any:
        learner, counter, sources = Learner(variables), Counter(steps), []
        make = parts.make_evaluation_actor

        def make_noted(run: Any, networks: Any, source: Any, environment: Any) -> Any:
            sources.append(source)
            return make(run, networks, source, environment)

        monkeypatch.setattr(parts, "make_evaluation_actor", make_noted)
        node = graph.Node(name="evaluator", factory="m:f")
        handles = {"learner": learner, "counter": counter}
        part = evaluator_node.EvaluatorNode(
            graph.Context(node, 0, lambda name: handles[name], threading.Event()),
            config=small.experiment(
                tmp_path,
                small.sac_builder(),
                num_env_steps=NUM_STEPS,
                evaluation_period=100,
                environment_factory=SlowRamp,
            ),
            spec=specs.make_environment_spec(small.Ramp(0)),
        )
        thread = threading.Thread(target=part.run)
        thread.start()
        deadline = time.monotonic() + 60
        while not is_over(counter):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        learner.version = 1_000  # the final weights
        part.finish()
        thread.join(60)
        assert not thread.is_alive()
        return learner, counter, sources

    return run


def test_an_evaluation_has_the_weights_and_the_steps_of_its_beginning(evaluate: Any) -> None:
    learner, counter, sources = evaluate(
        lambda num_reports: 10 * num_reports, lambda counter: len(counter.facts) == 2
    )
    assert sources[0] is None and all(isinstance(source, weights.Fixed) for source in sources[1:])
    names = small.sac_builder().policy_variables
    played = [int(tree.flatten(source.get_variables(names))[0].flat[0]) for source in sources[1:]]
    assert played[0] < 100 and played[-1] > 1_000 and learner.version > played[-1]
    # Logged at the step that is remembered, which a resumed run keeps the rows up to.
    logged = [row["actor_steps"] for row in counter.rows]
    noted = [0, *(known.latest[0] for known in counter.facts[1:])]
    assert logged == noted and noted[1] >= 100
    for saved, values in learner.best:
        known = evaluation.Evaluations.of(saved)
        version = played[noted.index(known.latest[0]) - 1]
        assert all((leaf == version).all() for leaf in tree.flatten(values))
    assert learner.best


def test_an_evaluation_that_begins_after_the_last_step_is_of_the_final_weights(
    evaluate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    catch_up = evaluator_node.EvaluatorNode._catch_up
    has_begun = threading.Event()

    def catch_up_late(self: Any, follower: Any) -> bool:
        has_begun.set()
        return catch_up(self, follower)

    monkeypatch.setattr(evaluator_node.EvaluatorNode, "_catch_up", catch_up_late)
    _, counter, sources = evaluate(
        lambda num_reports: NUM_STEPS if has_begun.is_set() else 150,
        lambda counter: has_begun.is_set() and counter.num_reports > 8,
    )
    assert [known.latest and known.latest[0] for known in counter.facts] == [None, NUM_STEPS]
    names = small.sac_builder().policy_variables
    assert int(tree.flatten(sources[-1].get_variables(names))[0].flat[0]) > 1_000
