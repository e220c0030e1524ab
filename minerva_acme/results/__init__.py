"""Results as data: rows of trainings, what produced them, and what others have published."""

from minerva_acme.results.experiment import (
    Context,
    Experiment,
    check_name,
    load,
    make_name,
    merge,
    read,
    write,
)
from minerva_acme.results.published import PublishedResult, load_published
from minerva_acme.results.rows import METRICS, Row, format_rows, parse_rows, read_rows

__all__ = [
    "Context",
    "Experiment",
    "METRICS",
    "PublishedResult",
    "Row",
    "check_name",
    "format_rows",
    "load",
    "load_published",
    "make_name",
    "merge",
    "parse_rows",
    "read",
    "read_rows",
    "write",
]
