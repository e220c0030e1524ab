"""What must be remembered is learned with a memory alone. `make learn` runs the long part."""

import pytest

from minerva_acme.results import rows

from . import memory


def test_the_runs_are_made_continued_and_stored_as_rows(tmp_path):
    arguments = ["--tasks", "cartpole", "pendulum", "--seeds", "3", "--directory", str(tmp_path)]
    found = memory.main([*arguments, "--num-env-steps", "40"])
    assert {row.exp_name for row in found} == {"r2d2", "dqn", "sac_memory", "sac"}
    assert {row.metric for row in found} == {"avg_return", "final_return", "final_return_std"}
    assert {row.seed for row in found} == {3}
    stored = rows.read_rows(tmp_path / "rows.csv")
    assert {row[:-1] for row in stored} == {row[:-1] for row in found}
    again = memory.main([*arguments, "--num-env-steps", "40", "--agents", "dqn", "--tasks", "cartpole"])
    assert {row[:-1] for row in again} == {row[:-1] for row in found}


@pytest.mark.learning
@pytest.mark.parametrize(
    ("task", "agent", "seeds", "least"),
    [("cartpole", "r2d2", [0, 1, 2], 475.0), ("pendulum", "sac_memory", [0, 1], -300.0)],
)
def test_what_is_not_shown_is_remembered(tmp_path, task, agent, seeds, least):
    arguments = ["--tasks", task, "--agents", agent, "--directory", str(tmp_path)]
    found = memory.main([*arguments, "--seeds", *map(str, seeds)])
    final = [row.value for row in found if row.metric == "final_return"]
    assert len(final) == len(seeds)
    assert sum(final) / len(final) >= least
