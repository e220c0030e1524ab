"""A report as a self-contained HTML page."""

import base64
import string
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from minerva_acme.plotting.report import Table

_PAGE = string.Template(
    """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p, figcaption { max-width: 48rem; } p.note, figcaption { color: #555; font-size: .9rem; }
figure { margin: 1.5rem 0; } img { max-width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #ddd; vertical-align: top;
  white-space: nowrap; }
th { border-bottom: 2px solid #999; } td:first-child, th:first-child { text-align: left; }
dl { font-size: .85rem; max-width: 56rem; } dt { font-weight: bold; margin-top: .6rem; }
dd { margin: .1rem 0 .1rem 1rem; overflow-wrap: anywhere; }
</style>
</head>
<body>
<h1>$title</h1>
$body
</body>
</html>
"""
)
_LONG = 40  # characters; a column with longer cells is too wide for the table


class Picture(NamedTuple):
    """A figure with its heading."""

    title: str
    caption: str
    svg: str
    files: Mapping[str, str]  # file names in the page's folder, by the name of the format


def make_page(title: str, notes: Sequence[str], pictures: Iterable[Picture], tables: Iterable[Table]) -> str:
    """Returns the page as HTML, which needs no other file and no network. Text is escaped."""
    parts = [f"<p>{escape(note)}</p>" for note in notes]
    parts += map(_picture, pictures)
    parts += map(_table, tables)
    return _PAGE.substitute(title=escape(title), body="\n".join(parts))


def _picture(picture: Picture) -> str:
    # Embedded as a separate document, so that the ids in different figures cannot clash.
    data = base64.b64encode(picture.svg.encode()).decode()
    links = ", ".join(
        f'<a href="{escape(file, quote=True)}">{escape(name)}</a>' for name, file in picture.files.items()
    )
    return (
        f"<h2>{escape(picture.title)}</h2>\n<figure>"
        f'<img alt="{escape(picture.title, quote=True)}" src="data:image/svg+xml;base64,{data}">\n'
        f"<figcaption>{escape(picture.caption)} ({links})</figcaption></figure>"
    )


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
        f'<h2>{escape(table.title)}</h2>\n<p class="note">{escape(table.note)}</p>\n'
        f'<div class="wide"><table>\n<tr>{head}</tr>\n{rows}\n</table></div>'
        + f"\n<dl>{texts}</dl>"
        * bool(below)
    )
