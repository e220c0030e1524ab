"""A report as a self-contained HTML page, and its texts and tables as Markdown."""

import base64
import pathlib
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from minerva_acme.plotting.report import Table

_PAGE = pathlib.Path(__file__).with_suffix(".html")
_LONG = 40  # characters; a column with longer cells is too wide for the table
_PIXELS_PER_POINT = 96 / 72
_ENLARGED = 1.4  # on the page: text of 8 points, made for a column of a paper, is as large as that of tables


class Picture(NamedTuple):
    """A figure with its caption."""

    title: str  # for those who cannot see it
    caption: str
    svg: str
    files: Mapping[str, str]  # file names in the page's folder, by the name of the format


class Section(NamedTuple):
    """A part of the page under one heading: figures, texts and a table, in this order."""

    title: str
    pictures: Sequence[Picture] = ()
    texts: Sequence[str] = ()
    table: Table | None = None


def make_page(title: str, sections: Iterable[Section]) -> str:
    """Returns the page as HTML, which needs no other file and no network. Text is escaped."""
    page = string.Template(_PAGE.read_text(encoding="utf-8"))
    return page.substitute(title=escape(title), body="\n".join(map(_section, sections)))


def make_markdown(title: str, sections: Iterable[Section]) -> str:
    """Returns the texts and tables of a report as Markdown, without its figures."""
    parts = [f"# {title}"]
    for section in sections:
        if section.texts or section.table is not None:
            parts.append(f"## {section.title}")
            parts += section.texts
        if section.table is not None:
            lines = [section.table.columns, ["---"] * len(section.table.columns), *section.table.rows]
            cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
            parts.append("\n".join(f"| {' | '.join(line)} |" for line in cells))
            parts.append(section.table.note)
    return "\n\n".join(parts) + "\n"


def _section(section: Section) -> str:
    parts = [f"<h2>{escape(section.title)}</h2>"]
    parts += map(_picture, section.pictures)
    parts += [f"<p>{escape(text)}</p>" for text in section.texts]
    if section.table is not None:
        parts.append(_table(section.table))
    return "\n".join(parts)


def _picture(picture: Picture) -> str:
    # Embedded as a separate document, so that the ids in different figures cannot clash.
    data = base64.b64encode(picture.svg.encode()).decode()
    links = ", ".join(
        f'<a href="{escape(file, quote=True)}">{escape(name)}</a>' for name, file in picture.files.items()
    )
    return (
        f'<figure><div class="wide"><img{_size(picture.svg)} alt="{escape(picture.title, quote=True)}" '
        f'src="data:image/svg+xml;base64,{data}"></div>\n'
        f"<figcaption>{escape(picture.caption)} ({links})</figcaption></figure>"
    )


def _size(svg: str) -> str:
    """Returns the width on the page: enlarged, and on narrow screens not smaller than the figure itself."""
    width = re.search(r'<svg[^>]*? width="([\d.]+)pt"', svg)
    if width is None:
        return ""
    pixels = float(width[1]) * _PIXELS_PER_POINT
    return f' style="width: {_ENLARGED * pixels:.0f}px; min-width: {pixels:.0f}px"'


def _table(table: Table) -> str:
    """Returns a table as HTML; columns with long texts become lists below it, one per row."""
    columns = range(len(table.columns))
    below = [i for i in columns if i and any(len(row[i]) > _LONG for row in table.rows)]
    beside = [i for i in columns if i not in below]
    head = "".join(f"<th>{escape(table.columns[i])}</th>" for i in beside)
    rows = "\n".join(
        f"<tr>{''.join(f'<td>{escape(row[i])}</td>' for i in beside)}</tr>" for row in table.rows
    )
    texts = "\n".join(
        f"<dt>{escape(row[0])}</dt>"
        + "".join(f"<dd><i>{escape(table.columns[i])}:</i> {escape(row[i])}</dd>" for i in below if row[i])
        for row in table.rows
    )
    return (
        f'<p class="note">{escape(table.note)}</p>\n'
        f'<div class="wide" tabindex="0"><table>\n<tr>{head}</tr>\n{rows}\n</table></div>'
        + f"\n<dl>{texts}</dl>"
        * bool(below)
    )
