"""The notebook runs, from its first cell to its last.

Its cells are plain Python, so this file executes them itself: a kernel would need thirty more packages.
"""

import ast
import json
import pathlib
import sys
from typing import Any, NamedTuple

import pytest

NOTEBOOK = pathlib.Path(__file__).parents[2] / "examples" / "quickstart.ipynb"
# The same with fewer steps.
SHORTER = {
    "num_env_steps=50_000": "num_env_steps=2_048",
    "evaluation_period=5_000": "evaluation_period=1_024",
}


class Shown(NamedTuple):
    """What a cell shows."""

    kind: str
    text: str
    picture_size: int  # bytes of PNG


def read() -> list[dict[str, Any]]:
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]


def sources() -> list[str]:
    return ["".join(cell["source"]) for cell in read() if cell["cell_type"] == "code"]


def execute(cells: list[str]) -> dict[str, list[Shown]]:
    """Does as a kernel does: cells share their names, and the value of a cell's last expression is shown."""
    names: dict[str, Any] = {"__name__": "__main__"}
    by_kind: dict[str, list[Shown]] = {}
    for cell in cells:
        *body, last = ast.parse(cell).body
        if not isinstance(last, ast.Expr):
            body, last = [*body, last], None
        exec(compile(ast.Module(body, []), "cell", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
            picture = value._repr_png_() if hasattr(value, "_repr_png_") else b""
            kind = type(value).__name__
            by_kind.setdefault(kind, []).append(Shown(kind, repr(value), len(picture)))
    return by_kind


@pytest.mark.promise("Notebooks")
def test_its_cells_train_show_results_and_draw_also_without_reverb(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = sources()
    for long, short in SHORTER.items():
        assert sum(cell.count(long) for cell in cells) == 1
        cells = [cell.replace(long, short) for cell in cells]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "reverb", None)
    by_kind = execute(cells)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 1 and "before training" in printed[0]  # no progress where stdout is a pipe
    assert by_kind["PPOBuilder"][0].text == "PPOBuilder(PPOConfig(num_environments=1))"
    assert "2,048 environment steps" in by_kind["ExperimentResult"][0].text
    assert "evaluator/episode_return" in by_kind["list"][0].text
    assert "LoadedPolicy from" in by_kind["LoadedPolicy"][0].text
    assert "5 episodes" in by_kind["Evaluation"][0].text
    pictures = [*by_kind["NotebookFigure"], *by_kind["Image"]]
    assert len(pictures) == 3 and all(1_000 < one.picture_size < 100_000 for one in pictures)
    description = json.loads((tmp_path / "runs" / "notebook" / "run.json").read_text())
    assert description["environment"] == "CartPole-v1"  # so the commands that it names can continue it


def test_it_is_small_and_holds_no_outputs() -> None:
    assert NOTEBOOK.stat().st_size < 100_000
    for cell in read():
        assert cell["cell_type"] == "markdown" or (cell["outputs"], cell["execution_count"]) == ([], None)


def test_its_cells_are_plain_python_and_its_links_lead_to_files() -> None:
    for source in sources():
        ast.parse(source)  # no magics, so it runs anywhere
    text = "".join(line for cell in read() for line in cell["source"])
    links = [part.partition(")")[0] for part in text.split("](")[1:]]
    assert links and all((NOTEBOOK.parent / link).exists() for link in links)
