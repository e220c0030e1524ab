"""Hooks that mkdocs runs. Their output is not committed, and nothing is downloaded.

- In a page, `<!-- include: README.md -->` is replaced by that file, `<!-- defaults: mpo -->` by a table of
  the agent's config, and `<!-- results -->` by tables of results. Each promise and feature gets the name
  of its test.
- Links may point to any file of the repository, so they also work in a clone. Links to files that are not
  pages become plain text.
- Matplotlib renders equations as SVG, so the pages can show them without scripts.
- The API reference has a page for each public package and each module of the core.
"""

import ast
import dataclasses
import html
import inspect
import io
import itertools
import os
import pathlib
import re
import textwrap
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
_SOURCES = ROOT / "build" / "docs-sources"  # the package folders in their installed layout
_AGENTS = sorted(page.parent.name for page in ROOT.glob("agents/*/README.md"))
# Files outside docs/ that are pages.
PAGE_OF = {
    "README.md": "index.md",
    **{f"agents/{agent}/README.md": f"agents/{agent}.md" for agent in _AGENTS},
}
_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
_PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
# Of the reference in searches: a word in a title counts 1,000 times, and guides come before all such names.
_API_BOOST = 1e-5
# `machine` and `names` only hold modules.
_NOT_PUBLIC = ("minerva_acme.cli", "minerva_acme.machine", "minerva_acme.names")
# Modules that users import from by name, in addition to their packages.
_MODULES_OF_PACKAGES = (
    "minerva_acme.acceleration.parallel",
    "minerva_acme.agents.acting",
    "minerva_acme.agents.actions",
    "minerva_acme.agents.choosing",
    "minerva_acme.agents.mpo.targets",
    "minerva_acme.agents.registry",
    "minerva_acme.environments.task_settings",
    "minerva_acme.machine.generators",
    "minerva_acme.machine.memory",
    "minerva_acme.machine.reading",
    "minerva_acme.machine.threads",
    "minerva_acme.machine.writing",
    "minerva_acme.names.foreign_names",
    "minerva_acme.names.lazy",
    "minerva_acme.names.readable",
    "minerva_acme.runs.checkpointing",
    "minerva_acme.runs.tasks",
    "minerva_acme.replay.dataset",
    "minerva_acme.replay.layouts",
)


def on_startup(**_: Any) -> None:
    """Links the package folders in their installed layout, since tools cannot follow an editable install."""
    package = _SOURCES / "minerva_acme"
    package.mkdir(parents=True, exist_ok=True)
    for path in [*(ROOT / "minerva_acme").iterdir(), ROOT / "adders", ROOT / "agents"]:
        link = package / path.name
        if not link.is_symlink():
            link.symlink_to(path)


def on_config(config: Any) -> None:
    """Adds the agents' pages and those of the API reference to the navigation."""
    from minerva_acme.agents import registry

    (agents,) = (section["Agents"] for section in config.nav if "Agents" in section)
    agents.extend(f"agents/{agent}.md" for agent in registry.AGENTS)
    config.nav.append({"API": [{name: f"api/{name}.md"} for name in public_modules()]})


def on_files(files: Any, config: Any) -> None:
    """Adds the README as the first page, the agents' pages, and the pages of the API reference."""
    from mkdocs.structure import files as mkdocs_files

    pages = {page: f"<!-- include: {source} -->\n" for source, page in PAGE_OF.items()}
    for agent in _AGENTS:
        pages[f"agents/{agent}.md"] += f"\n## Hyperparameters\n<!-- defaults: {agent} -->\n"
    for name, members in public_modules().items():
        pages[f"api/{name}.md"] = _api_page(name, members)
    for path, content in pages.items():
        files.append(mkdocs_files.File.generated(config, path, content=content))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replaces the placeholder comments in a page, fixes its links, and ranks it in searches."""
    path = page.file.src_uri
    if path.startswith("api/"):
        page.meta["search"] = {"boost": _API_BOOST}
    markdown = _rewrite_links(markdown, f"docs/{path}", path)
    markdown = re.sub(
        r"<!-- include: (\S+) -->",
        lambda match: _rewrite_links((ROOT / match[1]).read_text(), match[1], path),
        markdown,
    )
    # A second word after the language, such as `python ported`, is for the tests.
    markdown = re.sub(r"^```(\w+) \w+$", r"```\1", markdown, flags=re.MULTILINE)
    if path in ("promises.md", "expect.md"):
        markdown = name_tests(markdown)
    markdown = re.sub(r"<!-- defaults: (\w+) -->", lambda match: defaults_table(match[1]), markdown)
    return re.sub(r"<!-- results -->", lambda _: results_tables(), markdown)


def on_page_content(html_text: str, **_: Any) -> str:
    """Renders the equations, and marks where code may wrap."""
    html_text = re.sub(
        r"(<pre>(?:<span></span>)?)?<code>.*?</code>",
        lambda match: _wrap(match[0], in_text=not match[1]),
        html_text,
        flags=re.DOTALL,
    )
    html_text = re.sub(
        r'<span class="arithmatex">\\\((.*?)\\\)</span>',
        lambda match: _draw(match[1]),
        html_text,
        flags=re.DOTALL,
    )
    return re.sub(
        r'<div class="arithmatex">\\\[(.*?)\\\]</div>',
        lambda match: "".join(
            f'<p style="margin-left: 2em">{_draw(line)}</p>' for line in match[1].strip().split("\n")
        ),
        html_text,
        flags=re.DOTALL,
    )


def public_modules() -> dict[str, list[str] | None]:
    """Returns the public modules in order, with the public names of each package, or None for a module."""
    files = sorted((ROOT / "minerva_acme").glob("*.py"))
    modules: dict[str, list[str] | None] = {
        f"minerva_acme.{path.stem}": None for path in files if not path.stem.startswith("_")
    }
    packages = sorted(path.parent for path in (ROOT / "minerva_acme").glob("*/__init__.py"))
    for folder in [
        *packages,
        ROOT / "adders",
        *sorted(path.parent for path in (ROOT / "agents").glob("*/__init__.py")),
    ]:
        parts = folder.relative_to(ROOT).parts
        name = ".".join(parts if parts[0] == "minerva_acme" else ("minerva_acme", *parts))
        if name not in _NOT_PUBLIC:
            modules[name] = _listed_names(folder / "__init__.py")
    return modules | dict.fromkeys(_MODULES_OF_PACKAGES)


def defaults_table(agent: str) -> str:
    """Returns a table of the agent's hyperparameters: defaults, presets and docstrings."""
    from minerva_acme.agents import registry

    entry = registry.AGENTS[agent]
    meanings = dict(itertools.chain.from_iterable(_meanings(base) for base in reversed(entry.config.__mro__)))
    default = entry.presets["default"]
    others = [name for name in entry.presets if name != "default"]
    lines = [
        textwrap.dedent(inspect.getdoc(entry.config) or ""),
        "",
        "| " + " | ".join(["hyperparameter", "default", *(f"`{name}`" for name in others), "meaning"]) + " |",
        "|" + "---|" * (3 + len(others)),
    ]
    for field in dataclasses.fields(entry.config):
        value = getattr(default, field.name)
        cells = [f"`{field.name}`", _shown(value)]
        for name in others:
            other = getattr(entry.presets[name], field.name)
            cells.append("" if other == value else _shown(other))
        lines.append("| " + " | ".join([*cells, meanings[field.name].replace("|", "\\|")]) + " |")
    return "\n".join(lines)


def results_tables() -> str:
    """Returns tables of the results in `tasks.toml`, with the command for every row."""
    from minerva_acme.agents import registry
    from minerva_acme.runs import tasks

    lines = []
    for agent in registry.AGENTS:
        entries = [task for task in tasks.load() if task.agent == agent]
        if not entries:
            continue
        lines += [
            f"## {agent}",
            "",
            "| environment | settings | steps | mean | median | each seed |",
            "|---" * 6 + "|",
        ]
        for task in entries:
            settings = " ".join([task.preset, *task.flags])
            seeds = ", ".join(f"{run.seed}: {run.score:,.1f} ± {run.std:,.1f}" for run in task.runs)
            scores = f"{task.mean:,.1f} | {task.median:,.1f} | {seeds}"
            lines.append(f"| {task.environment} | `{settings}` | {task.num_env_steps:,} | {scores} |")
        lines += ["", "The commands, for the first seed of each row:", "", "```"]
        lines += [task.command(task.runs[0].seed) for task in entries]
        lines += ["```", ""]
    return "\n".join(lines)


def promised() -> dict[str, list[str]]:
    """Returns the tests of each promise and feature by the words in their marker, which begin its row."""
    tests: dict[str, list[str]] = {}
    for path in sorted(ROOT.glob("tests/**/test_*.py")):
        for words, name in re.findall(r'\.promise\("([^"]+)"\)(?:\n *def (\w+))?', path.read_text()):
            test = str(path.relative_to(ROOT)) + (f"::{name}" if name else "")
            tests.setdefault(words, []).append(test)
    return tests


def name_tests(markdown: str) -> str:
    """Adds a column with their tests to the tables of promises and features."""
    tests = promised()

    def extend(match: re.Match[str]) -> str:
        row = match[0]
        if row.startswith(("| Promise |", "| | what |")):
            return f"{row} Tested by |"
        if row.startswith("|---"):
            return f"{row}---|"
        begin = re.sub(r"^\| (?:\d+ \| \*\*)?", "", row)
        names = [name for words in tests if begin.startswith(words) for name in tests[words]]
        return f"{row} {'<br>'.join(f'`{name}`' for name in names)} |"

    promises, heading, longer = markdown.partition("\n## Longer tests\n")
    return re.sub(r"^\|.*\|$", extend, promises, flags=re.MULTILINE) + heading + longer


def _shown(value: Any) -> str:
    return (
        f"{value:,}"
        if type(value) is int
        else " ".join(map(str, value))
        if isinstance(value, tuple)
        else f"{value}"
    )


def _meanings(config: type) -> Iterator[tuple[str, str]]:
    """Yields the dataclass's own fields with the docstrings below them."""
    if not dataclasses.is_dataclass(config):
        return
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(config))).body
    for field, text in itertools.pairwise(definition.body):  # type: ignore[attr-defined]
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            yield ast.unparse(field.target), " ".join(str(text.value.value).split())


def _listed_names(path: pathlib.Path) -> list[str]:
    for statement in ast.parse(path.read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            return list(ast.literal_eval(statement.value))
    raise ValueError(f"{path} has no `__all__`: write one.")


def _api_page(name: str, members: list[str] | None) -> str:
    lines = [
        f"# {name}",
        "",
        f"::: {name}",
        "    options:",
        "      show_root_heading: false",
        "      show_root_toc_entry: false",
    ]
    if members is not None:
        lines += [f"      members: {members}", "      show_submodules: false"]
    return "\n".join(lines) + "\n"


def _rewrite_links(markdown: str, source: str, page: str) -> str:
    """Makes links in the file `source` relative to the page `page`; code is left unchanged."""

    def fix(match: re.Match[str]) -> str:
        text, target = match[1], match[2]
        if re.match(r"[a-z]+:", target) or target.startswith("#"):
            return match[0]
        path, hash_sign, anchor = target.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(source), path))
        found = PAGE_OF.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        is_picture = match[0].startswith("!")
        if found is None:
            return match[0] if is_picture else text
        relative = os.path.relpath(found, os.path.dirname(page) or ".")
        return f"{'!' if is_picture else ''}[{text}]({relative}{hash_sign}{anchor})"

    pieces, end = [], 0
    for fence in [*_FENCE.finditer(markdown), None]:
        start = fence.start() if fence else len(markdown)
        pieces.append(_PICTURE.sub(fix, _LINK.sub(fix, markdown[end:start])))
        if fence:
            pieces.append(fence[0])
            end = fence.end()
    return "".join(pieces)


def _wrap(code: str, in_text: bool) -> str:
    """Lets code wrap before a flag, never within one, and in running text after each part of a path."""
    pieces = re.split(r"(<[^>]*>)", code)  # text and tags in turn
    for index in range(0, len(pieces), 2):
        text = re.sub(r"(/|::|_(?=\w))", r"\1<wbr>", pieces[index]) if in_text else pieces[index]
        pieces[index] = re.sub(r"(?<![\w-])(--[a-z][a-z-]*)", r'<span class="flag">\1</span>', text)
    return "".join(pieces)


def _draw(equation: str) -> str:
    """Renders one line of mathematics as SVG, aligned with the surrounding text."""
    import matplotlib
    from matplotlib import mathtext

    source = html.unescape(equation).strip()
    if not source:
        return ""
    picture = io.StringIO()
    # The salt makes the glyph ids of the equations on a page different.
    with matplotlib.rc_context(
        {"svg.hashsalt": source, "mathtext.fontset": "cm", "savefig.transparent": True}
    ):
        depth = mathtext.math_to_image(f"${source}$", picture, dpi=72, format="svg", color="#010203")
    svg = picture.getvalue()
    svg = svg[svg.index("<svg") :].replace("#010203", "currentColor")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    label = html.escape(source, quote=True)
    style = f"vertical-align: {-depth:.1f}pt; overflow: visible"
    return svg.strip().replace("<svg", f'<svg role="img" aria-label="{label}" style="{style}"', 1)
