"""The tool that judges tests by mutants, on a tree of a few lines; and that its list fits this tree."""

import collections
import os
import pathlib
import time

import pytest

from . import __main__ as command
from . import generated, harness, mutants, server

ADD = "def add(a, b):\n    return a + b\n"
TESTS = """
import time

from minerva_acme import agents, sums

def test_sums():
    assert sums.add(2, 3) == 5

def test_of_nothing():
    pass
"""
FILES = {
    "minerva_acme/__init__.py": "",
    "minerva_acme/sums.py": ADD,
    "adders/__init__.py": "",
    "agents/__init__.py": "",
    "tests/test_sums.py": TESTS,
    "tests/test_empty.py": "",
}
SUMS = ("tests/test_sums.py",)


def mutant(name: str, old: str, new: str, tests: tuple[str, ...] = SUMS) -> harness.Mutant:
    return harness.Mutant(name, "minerva_acme/sums.py", old, new, tests)


WRONG = mutant("differences", "a + b", "a - b")
NO_BETTER = mutant("the other way round", "a + b", "b + a")


@pytest.fixture
def tree(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    # Tests of a few lines need no torch, and no plugin but the one that limits their time.
    monkeypatch.setattr(server, "UNCHANGED", ())
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for name, text in FILES.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "tree"


def judge(tree: pathlib.Path, *chosen: harness.Mutant, **named) -> dict[str, harness.Result]:
    results = harness.judge(chosen, root=tree, files=[*FILES], **named)
    return {result.mutant.name: result for result in results}


def test_a_survivor_is_reported_and_gives_exit_status_1(tree, tmp_path, capsys):
    table = tmp_path / "table.txt"
    assert command.run([WRONG, NO_BETTER], root=tree, files=[*FILES], output=table) == 1
    *_, killed, survivor, again, count = table.read_text().splitlines()
    assert again == "    python -m tests.mutants 'the other way round'"
    assert killed.startswith("differences | killed by tests/test_sums.py::test_sums | ")
    assert survivor.startswith("the other way round | SURVIVED | ")
    assert count == "2 mutants: 1 survived, 0 errors."
    assert table.read_text() in capsys.readouterr().out


def test_without_a_survivor_the_exit_status_is_0(tree):
    assert command.run([WRONG], root=tree, files=[*FILES]) == 0


def test_every_mutant_meets_the_tree_as_it_was(tree):
    # The second has as many characters as what the first one left compiled.
    results = judge(tree, WRONG, NO_BETTER, mutant("products", "a + b", "a * b"), jobs=2)
    assert [result.outcome for result in results.values()] == ["killed", "SURVIVED", "killed"]
    assert (tree / "minerva_acme/sums.py").read_text() == ADD


@pytest.mark.parametrize("offset", [-100, 0, 1, 100])
def test_every_text_of_a_file_is_compiled(tmp_path, offset):
    # What is compiled counts for all texts of its length that are of the same second.
    path, start = tmp_path / "sums.py", int(time.time()) + offset
    path.write_text(ADD)
    os.utime(path, (start, start))
    for later in range(1, 4):
        harness._write(path, ADD)
        assert path.stat().st_mtime == start + later


@pytest.mark.parametrize("old, count", [("a - b", 0), ("a", 3)])
def test_a_text_that_is_not_there_exactly_once_is_refused_by_the_mutants_name(tree, old, count):
    with pytest.raises(
        harness.Refused, match=rf"^astray: minerva_acme/sums.py has its old text {count} times"
    ):
        judge(tree, mutant("astray", old, "c"))


def test_a_test_that_is_not_there_is_refused_by_the_mutants_name(tree):
    with pytest.raises(harness.Refused, match=r"^astray: its tests must be there, got .*::test_products"):
        judge(tree, mutant("astray", "a + b", "a - b", ("tests/test_sums.py::test_products",)))


def test_tests_that_fail_anyway_judge_nothing_and_are_named(tree, capsys):
    (tree / "tests/test_sums.py").write_text(TESTS.replace("== 5", "== 6"))
    assert judge(tree, WRONG)["differences"].outcome == "SURVIVED"
    assert "it fails without any mutant: tests/test_sums.py::test_sums\n" in capsys.readouterr().out


def test_the_copies_share_the_tests_without_a_mutant_and_run_none_twice(tree, capsys):
    (tree / "tests/more").mkdir()
    others = ["tests/more/test_one.py", "tests/more/test_two.py"]
    for name in others:
        (tree / name).write_text("def test_it(): assert False\n")
    tests = ("tests/more", others[0], f"{others[1]}::test_it", *SUMS)
    (result,) = harness.judge(
        [mutant("differences", "a + b", "a - b", tests)], root=tree, files=[*FILES, *others], jobs=3
    )
    assert result.detail == "tests/test_sums.py::test_sums"
    out = capsys.readouterr().out
    assert [out.count(f"fails without any mutant: {name}::test_it\n") for name in others] == [1, 1]


def test_tests_that_cannot_be_collected_are_refused(tree):
    (tree / "tests/test_sums.py").write_text("import nothing_of_this_name\n")
    with pytest.raises(harness.Refused, match=r"must run without any mutant, got status 2\.$"):
        judge(tree, WRONG)


@pytest.mark.parametrize("broken", ["return a +", "raise ImportError"])
def test_a_mutant_that_cannot_be_imported_is_an_error(tree, broken):
    result = judge(tree, mutant("unimportable", "def add(a, b):\n    return a + b", broken))["unimportable"]
    assert (result.outcome, result.detail[:8]) == ("ERROR", "status 2")


def test_a_test_that_never_ends_has_noticed(tree, monkeypatch):
    monkeypatch.setattr(harness, "TEST_SECONDS", 0.5)
    endless = mutant("endless", "return a + b", "\n    while True: pass")
    assert judge(tree, endless)["endless"][1:3] == ("killed", "a test's limit of 0.5 s")


def test_a_run_that_never_ends_has_noticed(tree, monkeypatch):
    monkeypatch.setattr(harness, "RUN_SECONDS", 1.0)
    endless = mutant("endless", "return a + b", "\n    while True: pass")
    start = time.monotonic()
    assert judge(tree, endless)["endless"][1:3] == ("killed", "the limit of 1 s")
    assert time.monotonic() - start < 30.0


def test_a_run_on_another_tree_is_an_error(tree):
    # What an install that comes first would do.
    (tree / "tests/conftest.py").write_text(
        f"import sys\nimport minerva_acme\nminerva_acme.__path__[:] = [{str(tree / 'minerva_acme')!r}]\n"
    )
    FILES_HERE = [*FILES, "tests/conftest.py"]
    with pytest.raises(harness.Refused, match=f"got status {server.WRONG_TREE}"):
        harness.judge([WRONG], root=tree, files=FILES_HERE)


def test_a_generated_one_is_judged_where_it_stands_and_run_again_by_its_number(tree):
    (tree / "minerva_acme/sums.py").write_text(f"def other(a, b):\n    return a + b\n\n\n{ADD}")
    made = generated.of_file("minerva_acme/sums.py", tree)
    (wrong,) = [x for x in made if " add: return a + b -> return (a - b) [" in x.name]
    (untested,) = [x for x in made if " other: return a + b -> return (a - b) [" in x.name]
    assert [x.outcome for x in judge(tree, wrong, untested).values()] == ["killed", "SURVIVED"]
    number = untested.name[-9:-1]
    assert harness.rerun(untested) == f"python -m tests.mutants {number}"
    assert command.choose([], made, [number]) == [untested]


def test_a_generated_one_of_another_text_is_refused(tree):
    (wrong,) = [x for x in generated.of_file("minerva_acme/sums.py", tree) if "(a - b)" in x.name]
    (tree / "minerva_acme/sums.py").write_text(f"\n{ADD}")
    with pytest.raises(harness.Refused, match=r"has its old text 0 times"):
        judge(tree, wrong)


def test_no_mutant_is_begun_after_the_time(tree, capsys):
    assert command.run([WRONG, NO_BETTER], root=tree, files=[*FILES], seconds=0.0) == 0
    assert "2 more were not begun, for want of time." in capsys.readouterr().out


def test_words_choose_mutants_by_name_or_file():
    assert command.select([WRONG, NO_BETTER], ["other"]) == [NO_BETTER]
    assert command.select([WRONG, NO_BETTER], ["sums.py"]) == [WRONG, NO_BETTER]
    with pytest.raises(harness.Refused, match="no mutant with .'products'."):
        command.select([WRONG, NO_BETTER], ["other", "products"])


def test_every_mutant_has_its_text_in_its_file_exactly_once_and_its_tests(repository):
    assert not harness.misplaced(mutants.MUTANTS, repository)


def test_every_mutant_has_a_name_of_its_own():
    counts = collections.Counter(mutant.name for mutant in mutants.MUTANTS)
    assert [name for name, count in counts.items() if count > 1] == []
    assert len(counts) >= 75
