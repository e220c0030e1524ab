import dataclasses
import json
import os

import pytest

from minerva_acme import results
from minerva_acme.results import Context, Experiment, Row, names

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
    updates_per_frame=0.25,
    action_repeat=2,
    notes="Seed 1 failed.",
)


def test_an_experiment_is_read_as_it_was_written(tmp_path):
    files = results.write(tmp_path, EXPERIMENT)
    assert [file.name for file in files] == ["mpo_control.csv", "mpo_control.json"]
    (read,) = results.read(files[0])
    assert sorted(read.rows) == sorted(ROWS)
    assert dataclasses.replace(read, rows=ROWS) == EXPERIMENT
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mpo_control.csv", "mpo_control.json"]


@pytest.mark.parametrize("number", [1, 2])
def test_what_is_there_after_an_interrupt_can_be_read(tmp_path, monkeypatch, number):
    path, _ = results.write(tmp_path, EXPERIMENT)
    more = Row("mpo_control", "a/b", 2, "avg_return", 200, 5.0)
    added = Context(frozenset({("a/b", 2)}), "0.1.0", None, {}, None)
    longer = dataclasses.replace(EXPERIMENT, rows=(*ROWS, more), contexts=(OLD, OTHER, added))
    replace, calls = os.replace, []

    def interrupt(*paths):
        calls.append(paths)
        if len(calls) == number:
            raise KeyboardInterrupt
        replace(*paths)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            results.write(tmp_path, longer)
    (read,) = results.read(path)
    assert sorted(read.rows) == sorted(ROWS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mpo_control.csv", "mpo_control.json"]
    results.write(tmp_path, longer)
    assert sorted(results.read(path)[0].rows) == sorted(longer.rows)


def test_runs_without_a_context_are_written_as_runs_of_which_nothing_is_recorded(tmp_path):
    for contexts in ((), (OLD,)):
        (read,) = results.read(results.write(tmp_path, dataclasses.replace(EXPERIMENT, contexts=contexts))[0])
        missing = {*EXPERIMENT.trainings} - {training for one in contexts for training in one.trainings}
        assert read.contexts == (*contexts, Context(frozenset(missing), None, None, {}, None))


def test_the_files_of_an_experiment_may_have_another_name(tmp_path):
    other = dataclasses.replace(
        EXPERIMENT, exp_name="a b", rows=tuple(row._replace(exp_name="a b") for row in ROWS)
    )
    files = results.write(tmp_path, other, "stored")
    assert [file.name for file in files] == ["stored.csv", "stored.json"]
    (read,) = results.read(files[0])
    assert dataclasses.replace(read, rows=other.rows) == other
    with pytest.raises(ValueError, match="The name of an experiment must be .* got '../x'"):
        results.write(tmp_path, other, "../x")


def test_the_file_beside_the_rows_has_its_format_and_decisions(tmp_path):
    _, beside = results.write(tmp_path, EXPERIMENT)
    content = json.loads(beside.read_text())
    assert (content["format"], content["action_repeat"]) == (2, 2)
    assert content["decisions"] == {"CartPole-v1": 100, "a/b": 100}  # at frame 200, two for each
    unknown = dataclasses.replace(EXPERIMENT, action_repeat=None)
    assert unknown.decisions == {"CartPole-v1": 200, "a/b": 200}


def test_a_list_or_an_object_of_plain_values_takes_one_line(tmp_path):
    odd = {"a/b": "[\n{} ]\n", "CartPole-v1": "]\n }"}  # as text; only the file's own brackets count
    files = results.write(tmp_path, dataclasses.replace(EXPERIMENT, commands=odd, notes="{\n[1,  2]\n}"))
    lines = files[1].read_text().splitlines()
    assert '    "a/b": [0, 1]' in lines and '   "packages": {"torch": "2.13.0"},' in lines
    (read,) = results.read(files[0])
    assert (read.commands, read.notes) == (odd, "{\n[1,  2]\n}")


def test_a_file_of_rows_alone_may_hold_several_experiments(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(results.format_rows([*ROWS, ROWS[0]._replace(exp_name="sac")]))
    found = results.read(path)
    assert [(one.exp_name, len(one.rows)) for one in found] == [("mpo_control", 4), ("sac", 1)]
    assert found[0].contexts == () and found[0].updates_per_frame is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content | {"contexts": 3}, "must say what produced the rows of its CSV file, "),
        (lambda content: content | {"colour": "red"}, "must say what produced .*colour"),
        (lambda content: content | {"format": 3}, "of format 2, got 3. A newer.*pip install -U minerva-acme"),
        (lambda content: content | {"format": 1}, "of format 2, got 1. .*collect its runs again"),
        (lambda content: content | {"format": "new"}, "must say what produced .*"),
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
        updates_per_frame=0.25,
        action_repeat=2,
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


@pytest.mark.parametrize("change", [{"exp_name": "sac"}, {"action_repeat": 4}], ids=str)
def test_different_experiments_are_not_merged(change):
    (name,) = change
    with pytest.raises(ValueError, match=f"must have the same `{name}`, got .*--name"):
        results.merge(EXPERIMENT, dataclasses.replace(EXPERIMENT, **change))


def test_the_runs_in_some_environments_come_with_their_own_commands_and_contexts():
    chosen = results.select(EXPERIMENT, ["a/b"])
    assert chosen == dataclasses.replace(EXPERIMENT, rows=ROWS[:3], contexts=(OLD,))
    other = results.select(EXPERIMENT, ["CartPole-v1", "unknown"])
    assert other == dataclasses.replace(EXPERIMENT, rows=ROWS[3:], contexts=(OTHER,), commands={})
    with pytest.raises(ValueError, match="mpo_control must have a run in one of c, got .* CartPole-v1, a/b"):
        results.select(EXPERIMENT, ["c"])


def test_contexts_of_chosen_runs_do_not_name_the_others():
    both = dataclasses.replace(
        EXPERIMENT, contexts=(OLD._replace(trainings=OLD.trainings | OTHER.trainings),)
    )
    (context,) = results.select(both, ["CartPole-v1"]).contexts
    assert context == OLD._replace(trainings=OTHER.trainings)


def test_a_run_that_failed_early_is_kept_and_lowers_no_number_of_the_others():
    failed = Row("mpo_control", "a/b", 7, "avg_return", 100, 0.0)
    for updates in (0.01, None):
        new = dataclasses.replace(EXPERIMENT, rows=(failed,), contexts=(), updates_per_frame=updates)
        for merged in (results.merge(EXPERIMENT, new), results.merge(new, EXPERIMENT)):
            assert merged.updates_per_frame == 0.25 and failed in merged.rows


def test_a_name_says_what_differs_from_the_preset():
    assert results.make_name("ppo", "default", {}) == "ppo_default"
    changes = {"policy_layer_sizes": (64, 64), "discount": 0.99, "anneal": False, "limit": None}
    name = results.make_name("mpo", "control", changes)
    assert name == "mpo_control+anneal=false+discount=0.99+limit=none+policy_layer_sizes=64-64"


def test_numbers_in_a_name_are_those_of_the_settings():
    values = {"a": 1e-4, "b": 1e6, "c": 0.1 + 0.2, "d": 1.0, "e": (0.5, (1, None))}
    assert (
        results.make_name("x", "y", values) == "x_y+a=0.0001+b=1e+06+c=0.30000000000000004+d=1+e=0.5-1-none"
    )


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a" * 100, "a" * 100),
        ("a" * 101, f"{'a' * 100}-9d079339"),
        ("a/b", "a_b-c14cddc0"),
        ("../a", "a-61b4c98b"),
        ("_a", "a-34fb7160"),
        ("é", "x-4a99557e"),
        ("", "x-e3b0c442"),
    ],
)
def test_any_text_becomes_the_name_of_a_file_that_no_other_text_becomes(text, name):
    assert names.to_file_name(text) == results.check_name(name)


@pytest.mark.parametrize(
    ("name", "action_repeat", "expected"),
    [
        ("mpo_demo", 4, "mpo_demo+repeat=4"),
        ("mpo_demo", 1, "mpo_demo"),
        ("mpo_demo", None, "mpo_demo"),
        ("mpo_demo+repeat=4", 4, "mpo_demo+repeat=4"),
        ("mpo_demo+noise_repeat=4+seed=1", 2, "mpo_demo+noise_repeat=4+repeat=2+seed=1"),
        ("ppo_default+a=1e+06+z=2", 2, "ppo_default+a=1e+06+repeat=2+z=2"),
    ],
)
def test_a_repeat_is_among_the_changes_of_a_name(name, action_repeat, expected):
    assert results.with_repeat(name, action_repeat) == expected


def test_a_repeat_is_where_it_would_be_as_a_change():
    changes = {"noise_repeat": 4, "samples_per_insert": 48.0}
    named = results.with_repeat(results.make_name("mpo", "demo", changes), 2)
    assert named == results.make_name("mpo", "demo", {**changes, "repeat": 2})


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a b", ".hidden", "x" * 122])
def test_a_name_that_cannot_be_a_files_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="The name of an experiment must be at most 121 letters"):
        results.write(tmp_path / "new", dataclasses.replace(EXPERIMENT, exp_name=name))
    assert not list((tmp_path / "new").iterdir())
