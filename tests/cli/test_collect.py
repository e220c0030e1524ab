import shutil

from minerva_acme import results


def test_a_run_is_collected_played_and_added_to(trained, tmp_path, call):
    out = tmp_path / "rows"
    status, shown, _ = call("collect", trained, "--output", out, "--name", "tiny", "--episodes", 2)
    assert status == 0
    assert shown == f"tiny: 1 runs read, 1 now in {out}/tiny.csv and {out}/tiny.json"
    (experiment,) = results.read(out / "tiny.csv")
    at = {(row.metric, row.env_step): row.value for row in experiment.rows}
    assert {("avg_return", 0), ("avg_return", 60), ("random_return", 0)} <= at.keys()
    assert at["cpu_seconds", 60] > 0 and at["wall_seconds", 60] > 0 and at["learner_steps", 60] > 0
    assert 0 <= at["cpu_seconds", 0] < at["cpu_seconds", 60]
    assert at["final_return", 60] < 0 <= at["final_return_std", 60]
    # Made again, it is there once.
    status, shown, _ = call("collect", trained, "--output", out, "--name", "tiny")
    assert status == 0 and "1 now in" in shown
    (experiment,) = results.read(out / "tiny.csv")
    assert {row.metric for row in experiment.rows}.isdisjoint({"final_return", "final_return_std"})


def test_what_cannot_be_collected_changes_nothing(trained, tmp_path, call):
    out = tmp_path / "rows"
    shutil.copytree(trained, tmp_path / "again")
    for arguments, message in (
        ((trained, "--name", "a/b"), "The name of an experiment must be"),
        ((trained, "--episodes", -1), "`episodes` must be >= 0, got -1"),
        ((trained, tmp_path / "again"), "are both mpo_"),
        ((), "At least one run must be given"),
    ):
        status, _, err = call("collect", *arguments, "--output", out)
        assert status == 2 and message in err
    assert not out.exists()
