"""The LSTM's part of a learner step is all of its calls, each with its backward pass."""

import contextlib

import pytest

from tests.benchmarks import memory_steps


def test_the_calls_of_a_learner_step_are_found_with_their_sizes_and_backward_passes() -> None:
    config = memory_steps.SAC
    with contextlib.ExitStack() as resources:
        learner = memory_steps.make_learner(memory_steps.BUILDERS["sac", True], resources)
        calls = memory_steps.lstm_calls(learner)
    found = [(shape[0], learned) for _, shape, learned in (call.args for call in calls)]
    # In each of two steps: policy and critic in both losses and the target critic process burn-in and steps,
    # and only the critic of its own loss is learned from.
    assert found.count((config.sequence_length, True)) == 2
    assert found.count((config.sequence_length, False)) == 8
    assert sum(length for length, _ in found) == 2 * (5 * (config.burn_in + config.sequence_length) + 2)


@pytest.mark.parametrize("has_memory", [False, True])
def test_each_learner_is_measured(has_memory: bool) -> None:
    found = memory_steps.measure("r2d2", has_memory, 2)
    assert found.cpu_milliseconds > 0.0
    assert (found.lstm_milliseconds > 1.0) == has_memory
