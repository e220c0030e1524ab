"""The mutants that are made from the syntax tree, on texts of a few lines."""

import ast
import textwrap

import pytest

from . import __main__ as command
from . import covered, equivalent, generated, harness, tests_of

FILE = "minerva_acme/sums.py"


def made(text: str) -> list[harness.Mutant]:
    return generated.of_text(text, FILE, ("tests/test_sums.py",))


def programs(text: str) -> set[str]:
    return {ast.unparse(ast.parse(mutant.breaks(text))) for mutant in made(text)}


def within(body: str) -> str:
    return f"def f(a, b, c):\n{textwrap.indent(body, '    ')}\n"


@pytest.mark.parametrize(
    "body, changes",
    [
        ("return a + b", ["return a - b", "return a", "return b"]),
        ("return a - b", ["return a + b", "return b - a", "return a"]),
        ("return a / b", ["return a * b", "return b / a"]),
        ("return (a + b) * c", ["return (a - b) * c", "return (a + b) / c", "return a + b", "return c"]),
        ("return -a", ["return a"]),
        ("return a < b", ["return a <= b", "return a >= b", "return a > b", "return True", "return False"]),
        ("return a == b", ["return a != b"]),
        ("return a in b", ["return a not in b"]),
        ("return a < b < c", ["return a < b", "return b < c", "return a <= b < c"]),
        ("return a and b", ["return a or b", "return a", "return b"]),
        ("return not a", ["return a"]),
        ("return a if b else c", ["return a", "return c"]),
        ("if a:\n    raise ValueError('a')\nreturn b", ["if False:\n    raise ValueError('a')\nreturn b"]),
        ("while a:\n    a = b(a)", ["while False:\n    a = b(a)", "if a:\n    a = b(a)"]),
        ("return a[1:]", ["return a[:-1]", "return a[:]", "return a[2:]", "return a"]),
        ("return a[:, :-1]", ["return a[:, 1:]", "return a[:, :]", "return a[:, :-2]"]),
        ("return a[0]", ["return a[1]", "return a[-1]"]),
        ("return a[b]", ["return a[0]"]),
        ("return a.sum(dim=1)", ["return a.mean(dim=1)", "return a.sum(dim=0)", "return a.sum(dim=2)"]),
        ("return a.max()", ["return a.min()"]),
        ("return a - b.detach()", ["return a - b"]),
        ("return a.clamp(min=b)", ["return a", "return a.clamp()"]),
        ("return torch.minimum(a, b)", ["return torch.maximum(a, b)", "return a", "return b"]),
        ("return torch.where(a, b, 0.0)", ["return b", "return torch.where(a, 0.0, b)"]),
        ("return c(a, b)", ["return c(b, a)", "return c(a)"]),
        ("return a.kl(b)", ["return b.kl(a)"]),
        ("return self.norm(a)", ["return a"]),
        ("return range(a)", ["return range(a + 1)", "return range(a - 1)", "return range(1)"]),
        ("return c(a=True)", ["return c(a=False)"]),
        ("return 0.5 * a", ["return 1.0 * a", "return 0.0 * a", "return a"]),
        ("return {'a': a, 'b': b}", ["return {'b': b}", "return {'a': a}"]),
        ("return a.low, a.high", ["return a.high, a.high", "return a.low, a.low", "return a.high, a.low"]),
        ("return c(config.epsilon_mean, config.epsilon)", ["return c(config.epsilon, config.epsilon)"]),
        ("a.b = c\nreturn a", ["pass\nreturn a"]),
        ("a = c(a)\nreturn a", ["pass\nreturn a"]),
        ("a += b\nreturn a", ["a -= b\nreturn a", "a = b\nreturn a", "pass\nreturn a"]),
        ("a.begin(b)\nreturn a", ["pass\nreturn a"]),
        ("with torch.no_grad():\n    return a", ["if True:\n    return a"]),
        ("try:\n    a()\nexcept OSError:\n    b()", ["try:\n    a()\nexcept ZeroDivisionError:\n    b()"]),
        ("return [a for a in b if a]", ["return [a for a in b if True]", "return [a for a in b if False]"]),
    ],
)
def test_a_line_invites_these_mistakes(body, changes):
    wanted = {ast.unparse(ast.parse(within(change))) for change in changes}
    assert wanted - programs(within(body)) == set()


def test_a_no_grad_above_a_function_may_be_forgotten():
    text = "@torch.no_grad()\ndef f(a):\n    return a\n"
    assert [mutant.breaks(text) for mutant in made(text)] == [
        "@(lambda function: function)\ndef f(a):\n    return a\n"
    ]


def test_what_is_said_to_hold_is_claimed_always_and_never():
    text = "def f(a, b) -> bool:\n    return a(b)\n"
    assert {"return True", "return False"} <= {line.splitlines()[1].strip() for line in programs(text)}


def test_a_loop_may_take_the_first_alone():
    (text,) = [x for x in programs(within("for x in a:\n    x()")) if "islice" in x]
    namespace: dict = {}
    exec(text, namespace)
    calls: list[int] = []
    namespace["f"]([lambda: calls.append(1), lambda: calls.append(2)], 0, 0)
    assert calls == [1]


@pytest.mark.parametrize(
    "text",
    [
        '"""Sums of 2 - 1."""\n',
        "import a.b\n",
        '__all__ = ["a", "b"]\n',
        "__getattr__, __dir__ = lazy.attach(__name__, __file__)\n",
        "_PRESET = agents.AConfig(n_step=1, rates=(0.5, 256))\n",
        "_LARGEST = 1e-3\n",
        "if TYPE_CHECKING:\n    import a\n",
        "class Config:\n    rate: float = 0.5\n",
        within("notes.say(a, 1 + 1)"),
        within('raise ValueError(f"{a + b}: " + str(a - 1))'),
        within("assert a < b, a + b"),
        within('return f"{a + b}"'),
        "def f(a: dict[str, int | float]) -> list[int]: ...\n",
        "class A:\n    def __repr__(self):\n        return 'a' + self.b\n",
        within("return zip(a, strict=True)"),
    ],
)
def test_what_no_test_could_call_wrong_is_left_alone(text):
    raised = "raise" in text  # that nothing is raised is a mistake; what is said is none
    assert [mutant.new for mutant in made(text) if not (raised and mutant.new == "pass")] == []


# Files of different kinds; all together take a minute.
@pytest.mark.parametrize("file", ["minerva_acme/losses/retrace.py", "adders/sequence.py"])
def test_every_mutant_of_a_file_is_another_program_with_a_name_of_its_own(repository, file):
    text = (repository / file).read_text(encoding="utf-8")
    found = generated.of_file(file, repository)
    plain = ast.dump(ast.parse(text))
    assert len({mutant.name for mutant in found}) == len(found) >= 80
    assert all(ast.dump(ast.parse(mutant.breaks(text))) != plain for mutant in found)
    assert harness.misplaced(found, repository) == []


def test_the_rest_of_the_text_stays():
    text = "def f(a, b):\n    é = 'ä', a  # ö\n    return ('ü',  a\n        + b)  # é\n"
    changed = {mutant.breaks(text) for mutant in made(text)}
    assert text.replace("a\n        + b", "(a - b)") in changed


def test_names_stay_when_lines_move():
    text = within("return a + b")
    names = [mutant.name for mutant in made(text)]
    assert [mutant.name for mutant in made(f"import x\n\n\n{text}")] == names
    assert f"{FILE} f: return a + b -> return (a - b)" in {name.rpartition(" [")[0] for name in names}


def test_every_file_of_the_library_has_tests_that_must_notice(repository):
    files = generated.library_files(repository)
    assert len(files) > 200
    without = [file for file in files if not tests_of.tests_of(file, repository)]
    assert [file for file in without if generated.of_file(file, repository)] == [
        "minerva_acme/distributed/ray_engine.py",
    ]


def test_the_tests_of_a_file_are_there(repository):
    named = {test for tests in tests_of.MORE.values() for test in tests}
    assert sorted(test for test in named if not (repository / test).exists()) == []


def test_the_file_of_tests_with_the_modules_name_comes_first(tmp_path):
    for name in ("tests/losses/test_mpo.py", "tests/losses/test_shapes.py", "tests/video/test_a.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert tests_of.tests_of("minerva_acme/losses/mpo.py", tmp_path) == (
        "tests/losses/test_mpo.py",
        "tests/losses/test_shapes.py",
    )
    assert tests_of.tests_of("minerva_acme/video/b.py", tmp_path) == ("tests/video",)


def several(*files: str) -> list[harness.Mutant]:
    text = within("return a + b * c")
    return [mutant for file in files for mutant in generated.of_text(text, file, ())]


def test_a_draw_is_the_same_for_a_seed_and_whatever_other_files_there_are():
    both, alone = several("a.py", "b.py"), several("b.py")
    drawn = command.draw(both, 2, seed=1)
    assert [mutant.file for mutant in drawn] == ["a.py", "b.py", "a.py", "b.py"]
    assert [mutant for mutant in drawn if mutant.file == "b.py"] == command.draw(alone, 2, seed=1)
    assert any(command.draw(both, 2, seed=seed) != drawn for seed in range(2, 6))


def test_a_draw_takes_more_of_maths():
    drawn = command.draw(several("minerva_acme/losses/a.py", "minerva_acme/video/a.py"), None, seed=0)
    files = [mutant.file for mutant in drawn]
    assert files.count("minerva_acme/losses/a.py") > files.count("minerva_acme/video/a.py") == 1


def test_words_choose_all_and_the_share_is_said(capsys):
    quoted = [harness.Mutant("a quoted one", "c.py", "a", "b", ())]
    both = several("a.py", "b.py")
    chosen = command.choose(quoted, both, ["a.py"])
    assert chosen == several("a.py")
    n = len(chosen)
    assert f"0 of 1 quoted mutants, and {n} of {2 * n} generated ones (50.0%)" in capsys.readouterr().out
    assert len(command.choose(quoted, both, ["a.py"], sample=1)) == 1
    assert command.choose(quoted, both, [], is_whole=True) == [*quoted, *both]


def test_an_equivalent_one_is_left_out(monkeypatch):
    first, *rest = several("a.py")
    monkeypatch.setattr(equivalent, "EQUIVALENT", {command.equivalent_name(first): "it is right too"})
    assert command.choose([], [first, *rest], ["a.py"]) == rest


def test_every_equivalent_one_is_generated(repository):
    for name in equivalent.EQUIVALENT:
        file = name.partition(" ")[0]
        assert name in {command.equivalent_name(mutant) for mutant in generated.of_file(file, repository)}


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.setattr(equivalent, "EQUIVALENT", {})
    for name, text in {
        "minerva_acme/here.py": "def f(a, b):\n    if a > b:\n        a.stop()\n    return a + b\n",
        "agents/there.py": "def g(a, b):\n    return a * b\n",
        "adders/twice.py": "def h(a, b):\n    return (a % b) + (a % b)\n",
        "tests/test_all.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def quoted(name: str, old: str, new: str) -> harness.Mutant:
    return harness.Mutant(name, "minerva_acme/here.py", old, new, ("tests/test_all.py",))


SUM = quoted("a difference", "return a + b", "return a-b")
NO_STOP = quoted("nothing stops", "a.stop()", "pass")
OWN = quoted("a sum of squares", "a + b", "a * a + b * b")
MOVED = quoted("moved", "return a * b", "return a * a")
GONE = quoted("gone", "a // b", "b // a")
TWICE = quoted("twice", "a % b", "b % a")


def test_quoted_mutants_that_are_generated_are_found_as_programs(tree):
    found = covered.look([SUM, NO_STOP, OWN], tree)
    assert set(found.same) == {"a difference", "nothing stops"}
    assert " f: if a > b: -> if False: [" in found.same["nothing stops"]
    assert not found.moved and not found.stale


def test_quoted_mutants_whose_text_moved_or_went_are_told_apart(tree):
    found = covered.look([MOVED, GONE, TWICE, OWN], tree)
    assert found.moved == {"moved": "agents/there.py"}
    assert [problem.partition(":")[0] for problem in found.stale] == ["gone", "twice"]
    assert not found.same


def test_the_list_is_rewritten_without_them(tree, capsys):
    text = (
        "from tests.mutants.mutants import breakage, of\n\nSUMS = [\n"
        '    *of(\n        "minerva_acme/here.py",\n'
        '        ("tests/test_all.py",),\n'
        + "".join(f"        breakage({m.name!r}, {m.old!r}, {m.new!r}),\n" for m in (SUM, OWN, MOVED))
        + '    ),\n    *of("minerva_acme/here.py", ("tests/test_all.py",), '
        + f"breakage({NO_STOP.name!r}, {NO_STOP.old!r}, {NO_STOP.new!r})),\n]\n\nMUTANTS = [\n    *SUMS,\n]\n"
    )
    list_file = tree / "quoted.py"
    list_file.write_text(text)
    assert command.tidy([SUM, OWN, MOVED, NO_STOP], root=tree, quoted_in=list_file) == 0
    namespace: dict = {}
    exec(list_file.read_text(), namespace)
    assert namespace["MUTANTS"] == [MOVED._replace(file="agents/there.py"), OWN]
    assert "4 quoted: 2 are generated, 1 moved, 0 are stale" in capsys.readouterr().out


def test_an_equivalent_one_that_is_not_generated_any_more_is_an_error(tree, monkeypatch, capsys):
    monkeypatch.setattr(equivalent, "EQUIVALENT", {"minerva_acme/here.py f: a -> b": "it is right too"})
    assert command.tidy([OWN], root=tree, quoted_in=None) == 1
    assert "not generated any more, but in equivalent.py: minerva_acme/here.py" in capsys.readouterr().out


def test_a_stale_one_is_an_error_and_changes_nothing_else(tree, capsys):
    assert command.tidy([OWN, GONE], root=tree, quoted_in=None) == 1
    assert "stale: gone: minerva_acme/here.py has its old text 0 times" in capsys.readouterr().out
