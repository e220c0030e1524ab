import dataclasses
import json

import pytest

from minerva_acme import results
from minerva_acme.results import Context, Experiment, Row

ROWS = (
    Row("mpo_control", "a/b", 0, "avg_return", 100, 3.0),
    Row("mpo_control", "a/b", 0, "avg_return", 200, 4.0),
    Row("mpo_control", "a/b", 1, "avg_return", 200, 0.5),
    Row("mpo_control", "CartPole-v1", 0, "avg_return", 200, 6.0),
)
OLD = Context(frozenset({("a/b", 0), ("a/b", 1)}), "0.1.0", "abc", {"torch": "2.13.0"}, "a laptop")
OTHER = Context(frozenset({("CartPole-v1", 0)}), "0.1.0", None, {}, None)
EXPERIMENT = Experiment(
    exp_name="mpo_control",
    rows=ROWS,
    commands={"a/b": "minerva train mpo --seed {seed}"},
    contexts=(OLD, OTHER),
    updates_per_step=0.25,
    action_repeat=1,
    notes="Seed 1 failed.",
)


def by_key(experiment):
    return sorted(experiment.rows), set(map(str, experiment.contexts))


def test_an_experiment_is_read_as_it_was_written(tmp_path):
    files = results.write(tmp_path, EXPERIMENT)
    assert [file.name for file in files] == ["mpo_control.csv", "mpo_control.json"]
    (read,) = results.read(files[0])
    assert sorted(read.rows) == sorted(ROWS)
    assert dataclasses.replace(read, rows=ROWS) == EXPERIMENT
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mpo_control.csv", "mpo_control.json"]


def test_a_file_of_rows_alone_may_hold_several_experiments(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(results.format_rows([*ROWS, ROWS[0]._replace(exp_name="sac")]))
    found = results.read(path)
    assert [(one.exp_name, len(one.rows)) for one in found] == [("mpo_control", 4), ("sac", 1)]
    assert found[0].contexts == () and found[0].updates_per_step is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content | {"contexts": 3}, "must say what produced the rows of its CSV file, "),
        (lambda content: content | {"colour": "red"}, "must say what produced .*colour"),
        (lambda content: content | {"exp_name": "sac"}, "must only have rows of sac, got mpo_control"),
        (
            lambda content: content | {"contexts": content["contexts"][1:]},
            r"must have a context for every run, got none for \[\('a/b', 0\), \('a/b', 1\)\]",
        ),
    ],
)
def test_a_file_beside_that_does_not_fit_the_rows_is_refused(tmp_path, change, message):
    table, beside = results.write(tmp_path, EXPERIMENT)
    beside.write_text(json.dumps(change(json.loads(beside.read_text()))))
    with pytest.raises(ValueError, match=message):
        results.read(table)


def test_new_trainings_are_added_and_one_made_again_replaces_the_old_one():
    again = Row("mpo_control", "a/b", 0, "avg_return", 200, 9.0)
    added = Row("mpo_control", "a/b", 2, "avg_return", 200, 8.0)
    new = Experiment(
        exp_name="mpo_control",
        rows=(again, added),
        commands={"a/b": "minerva train mpo --seed {seed} --new"},
        contexts=(OLD._replace(trainings=frozenset({("a/b", 2)})), OTHER._replace(trainings={("a/b", 0)})),
        updates_per_step=0.25,
        action_repeat=1,
        notes="Seed 1 failed.",
    )
    merged = results.merge(EXPERIMENT, new)
    assert set(merged.rows) == {ROWS[2], ROWS[3], again, added}
    assert merged.commands == new.commands and merged.notes == "Seed 1 failed."
    # Each context once, with the trainings that it now has.
    assert {context.machine: context.trainings for context in merged.contexts} == {
        "a laptop": {("a/b", 1), ("a/b", 2)},
        None: {("CartPole-v1", 0), ("a/b", 0)},
    }


@pytest.mark.parametrize("change", [{"exp_name": "sac"}, {"action_repeat": 2}], ids=str)
def test_different_experiments_are_not_merged(change):
    (name,) = change
    with pytest.raises(ValueError, match=f"must have the same `{name}`, got .*--name"):
        results.merge(EXPERIMENT, dataclasses.replace(EXPERIMENT, **change))


def test_a_run_that_failed_early_is_kept_and_lowers_no_number_of_the_others():
    failed = Row("mpo_control", "a/b", 7, "avg_return", 100, 0.0)
    for updates in (0.01, None):
        new = dataclasses.replace(EXPERIMENT, rows=(failed,), contexts=(), updates_per_step=updates)
        for merged in (results.merge(EXPERIMENT, new), results.merge(new, EXPERIMENT)):
            assert merged.updates_per_step == 0.25 and failed in merged.rows


def test_a_name_says_what_differs_from_the_preset():
    assert results.make_name("ppo", "default", {}) == "ppo_default"
    changes = {"policy_layer_sizes": (64, 64), "discount": 0.99, "anneal": False, "limit": None}
    name = results.make_name("mpo", "control", changes)
    assert name == "mpo_control+anneal=false+discount=0.99+limit=none+policy_layer_sizes=64-64"


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a b", ".hidden", "x" * 122])
def test_a_name_that_cannot_be_a_files_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="The name of an experiment must be at most 121 letters"):
        results.write(tmp_path / "new", dataclasses.replace(EXPERIMENT, exp_name=name))
    assert not list((tmp_path / "new").iterdir())
