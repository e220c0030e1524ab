import json
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


def test_a_folder_with_files_of_an_older_format_is_rewritten_and_said(trained, tmp_path, call):
    out = tmp_path / "rows"
    assert call("collect", trained, "--output", out, "--name", "tiny")[0] == 0
    (new,) = results.read(out / "tiny.csv")
    # As such a folder was before: without a format, and a repeat in the environment's name.
    content = json.loads((out / "tiny.json").read_text())
    del content["format"], content["decisions"]
    content["updates_per_step"] = content.pop("updates_per_frame")
    (out / "tiny.json").write_text(json.dumps(content))
    task = "dm_control/cheetah/run/repeat=2"
    context = {**content["contexts"][0], "trainings": {task: [0]}}
    content |= {"exp_name": "mine", "commands": {}, "contexts": [context], "action_repeat": None}
    (out / "mine.json").write_text(json.dumps(content))
    (out / "mine.csv").write_text(results.format_rows([results.Row("mine", task, 0, "avg_return", 300, 1.0)]))
    status, shown, _ = call("collect", trained, "--output", out, "--name", "tiny")
    assert status == 0
    for old, now in (("mine", "mine+repeat=2"), ("tiny", "tiny")):
        said = f"{out}/{old}.csv was of an older format, whose steps counted decisions; with frames it is now"
        assert f"{said} {out}/{now}.csv" in shown
    assert {path.name for path in out.glob("*.csv")} == {"mine+repeat=2.csv", "tiny.csv"}
    (mine,), (tiny,) = (results.read(out / f"{name}.csv") for name in ("mine+repeat=2", "tiny"))
    assert mine.rows == (results.Row("mine+repeat=2", "dm_control/cheetah/run", 0, "avg_return", 600, 1.0),)
    assert tiny.trainings == new.trainings and tiny.updates_per_frame == new.updates_per_frame
    assert "older format" not in call("collect", trained, "--output", out, "--name", "tiny")[1]


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
