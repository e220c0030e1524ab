"""Files of format 1, whose steps count decisions and whose environments are named with their repeat."""

import json
import os
import pathlib

import pytest

from minerva_acme import results
from minerva_acme.results import Context, Experiment, Row

RUN = "dm_control/cheetah/run"
PIXELS = "dm_control/cartpole/swingup/pixels"
PACKAGES = {"torch": "2.13.0"}
OLD = {
    "exp_name": "mpo_demo+noise_repeat=4",
    "commands": {
        f"{RUN}/repeat=2": "minerva train mpo --env dm_control/cheetah/run/repeat=2 --num-env-steps 200",
        f"{PIXELS},repeat=8,size=64": "minerva train mpo --env pixels",
        PIXELS: "minerva train mpo --env two",
    },
    "contexts": [
        {
            "trainings": {f"{RUN}/repeat=2": [0, 1], PIXELS: [0]},
            "version": "0.1.0",
            "commit": "abc",
            "packages": PACKAGES,
            "machine": "a laptop",
        },
        {
            "trainings": {f"{PIXELS},repeat=8,size=64": [0]},
            "version": None,
            "commit": None,
            "packages": {},
            "machine": None,
        },
    ],
    "updates_per_step": 0.5,
    "action_repeat": None,
    "notes": "Seed 1 failed.",
}
ROWS = [
    Row(OLD["exp_name"], f"{RUN}/repeat=2", 0, "avg_return", 100, 1.0),
    Row(OLD["exp_name"], f"{RUN}/repeat=2", 0, "avg_return", 200, 2.0),
    Row(OLD["exp_name"], f"{RUN}/repeat=2", 1, "avg_return", 30, 3.0),
    Row(OLD["exp_name"], f"{PIXELS},repeat=8,size=64", 0, "learner_steps", 70, 35.0),
    Row(OLD["exp_name"], PIXELS, 0, "avg_return", 50, 4.0),
]
TWO, EIGHT = "mpo_demo+noise_repeat=4+repeat=2", "mpo_demo+noise_repeat=4+repeat=8"
LAPTOP = ("0.1.0", "abc", PACKAGES, "a laptop")
NEW = {
    TWO: Experiment(
        exp_name=TWO,
        rows=(
            Row(TWO, RUN, 0, "avg_return", 200, 1.0),
            Row(TWO, RUN, 0, "avg_return", 400, 2.0),
            Row(TWO, RUN, 1, "avg_return", 60, 3.0),
            Row(TWO, PIXELS, 0, "avg_return", 100, 4.0),  # pixels alone repeat twice
        ),
        commands={RUN: OLD["commands"][f"{RUN}/repeat=2"], PIXELS: OLD["commands"][PIXELS]},
        contexts=(Context(frozenset({(RUN, 0), (RUN, 1), (PIXELS, 0)}), *LAPTOP),),
        updates_per_frame=0.25,
        action_repeat=2,
        notes="Seed 1 failed.",
    ),
    EIGHT: Experiment(
        exp_name=EIGHT,
        rows=(Row(EIGHT, f"{PIXELS},size=64", 0, "learner_steps", 560, 35.0),),
        commands={f"{PIXELS},size=64": OLD["commands"][f"{PIXELS},repeat=8,size=64"]},
        contexts=(Context(frozenset({(f"{PIXELS},size=64", 0)}), None, None, {}, None),),
        updates_per_frame=0.0625,
        action_repeat=8,
        notes="Seed 1 failed.",
    ),
}


def write_old(directory: pathlib.Path, rows=ROWS, **changes) -> pathlib.Path:
    """Writes files of format 1; returns that of the rows."""
    content = {**OLD, **changes}
    path = directory / f"{content['exp_name']}.csv"
    path.write_text(results.format_rows([row._replace(exp_name=content["exp_name"]) for row in rows]))
    path.with_suffix(".json").write_text(json.dumps(content))
    return path


def with_sorted_rows(experiments):
    return {one.exp_name: Experiment(**{**vars(one), "rows": sorted(one.rows)}) for one in experiments}


EXPECTED = with_sorted_rows(NEW.values())


def test_each_repeat_becomes_an_experiment_whose_steps_are_frames_of_the_base_task(tmp_path):
    assert with_sorted_rows(results.read(write_old(tmp_path))) == EXPECTED


def test_what_was_read_is_written_in_the_format_of_today_and_read_the_same(tmp_path):
    for one in results.read(write_old(tmp_path)):
        written, beside = results.write(tmp_path, one)
        content = beside.read_text()
        (again,) = results.read(written)
        assert with_sorted_rows([again]) == {one.exp_name: EXPECTED[one.exp_name]}
        results.write(tmp_path, again)
        assert beside.read_text() == content


def test_an_environment_without_settings_keeps_name_steps_and_updates(tmp_path):
    rows = [Row("ppo", "CartPole-v1", 0, "avg_return", 70, 1.0)]
    contexts = [{**OLD["contexts"][0], "trainings": {"CartPole-v1": [0]}}]
    for repeat in (1, None):  # None: made by somebody's code
        changes = {"exp_name": "ppo", "commands": {}, "contexts": contexts, "action_repeat": repeat}
        (read,) = results.read(write_old(tmp_path, rows, **changes))
        assert (read.exp_name, read.rows, read.action_repeat) == ("ppo", tuple(rows), repeat)
        assert read.updates_per_frame == 0.5


def test_rows_without_a_file_beside_them_are_converted_where_a_name_says_a_repeat(tmp_path):
    path = tmp_path / "rows.csv"
    today = Row("other", PIXELS, 0, "avg_return", 50, 4.0)
    path.write_text(results.format_rows([*ROWS[:3], today]))
    two, other = results.read(path)
    assert (two.exp_name, two.action_repeat) == (TWO, 2)
    assert set(two.rows) == {row for row in NEW[TWO].rows if row.env_name == RUN}
    assert (other.rows, other.action_repeat) == ((today,), None)


def test_a_folder_is_rewritten_once_and_nothing_is_there_twice(tmp_path):
    old = write_old(tmp_path)
    (tmp_path / "notes.json").write_text("[1]")  # no experiment's
    changed = results.migrate(tmp_path)
    assert {path: {new.name for new in found} for path, found in changed.items()} == {
        old: {f"{TWO}.csv", f"{EIGHT}.csv"}
    }
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {f"{name}.{kind}" for name in (TWO, EIGHT) for kind in ("csv", "json")} | {"notes.json"}
    found = [one for path in tmp_path.glob("*.csv") for one in results.read(path)]
    assert with_sorted_rows(found) == EXPECTED
    assert results.migrate(tmp_path) == {}


def test_new_files_are_there_before_an_old_one_goes(tmp_path, monkeypatch):
    old = write_old(tmp_path)
    files = {old, old.with_suffix(".json")}

    unlink = pathlib.Path.unlink

    def interrupt(path, missing_ok=False):
        if path not in files:  # what a killed process left
            return unlink(path, missing_ok)
        assert all((tmp_path / f"{name}.{kind}").exists() for name in NEW for kind in ("csv", "json"))
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(pathlib.Path, "unlink", interrupt)
        with pytest.raises(KeyboardInterrupt):
            results.migrate(tmp_path)
    results.migrate(tmp_path)  # again
    assert not any(path.exists() for path in files)
    found = [one for path in tmp_path.glob("*.csv") for one in results.read(path)]
    assert with_sorted_rows(found) == EXPECTED


def test_a_file_whose_name_stays_is_replaced_after_all_else_is_written(tmp_path, monkeypatch):
    base = Row(OLD["exp_name"], RUN, 0, "avg_return", 100, 9.0)
    old = write_old(tmp_path, [*ROWS, base], contexts=[*OLD["contexts"], _context(RUN)], action_repeat=1)
    replace, order = os.replace, []
    monkeypatch.setattr(
        os, "replace", lambda path, to: order.append(pathlib.Path(to).stem) or replace(path, to)
    )
    assert [path.stem for path in results.migrate(tmp_path)[old]] == [TWO, EIGHT, old.stem]
    assert order[-2:] == [old.stem] * 2
    (stays,) = results.read(old)
    assert (stays.rows, stays.action_repeat, stays.updates_per_frame) == ((base,), 1, 0.5)


def test_trainings_that_are_there_in_the_format_of_today_stay(tmp_path):
    newer = Experiment(
        exp_name=TWO,
        rows=(Row(TWO, RUN, 0, "avg_return", 800, 9.0),),
        contexts=(Context(frozenset({(RUN, 0)}), *LAPTOP),),
        action_repeat=2,
    )
    results.write(tmp_path, newer)
    write_old(tmp_path)
    results.migrate(tmp_path)
    (merged,) = results.read(tmp_path / f"{TWO}.csv")
    assert {row for row in merged.rows if (row.env_name, row.seed) == (RUN, 0)} == {*newer.rows}
    assert (RUN, 1) in merged.trainings


def test_two_names_of_one_task_with_one_repeat_are_refused(tmp_path):
    rows = [ROWS[4], ROWS[4]._replace(env_name=f"{PIXELS},repeat=2")]
    path = write_old(tmp_path, rows, contexts=[_context(PIXELS), _context(f"{PIXELS},repeat=2")])
    with pytest.raises(ValueError, match="the same task with the same action repeat"):
        results.read(path)


def _context(env_name):
    return {**OLD["contexts"][0], "trainings": {env_name: [0]}}
