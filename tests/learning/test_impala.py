"""The runs of IMPALA next to PPO, in short."""

import pytest

from minerva_acme.results import rows

from . import impala

BRIEF = ["--num-env-steps", "80", "--num-evaluations", "1", "--evaluation-episodes", "1", "--seeds", "3"]


@pytest.mark.reverb
def test_the_runs_are_made_in_one_process_and_with_several_actors(tmp_path):
    for task, agent in (("hidden_cartpole", "impala_memory"), ("actors", "impala_of_2")):
        found = impala.main([*BRIEF, "--tasks", task, "--agents", agent, "--directory", str(tmp_path)])
    assert {row.exp_name for row in found} == {"impala_memory", "impala_of_2"}
    stored = rows.read_rows(tmp_path / "rows.csv")
    assert {row[:-1] for row in stored} == {row[:-1] for row in found}
