"""Results as data: rows of runs, their provenance, and published results."""

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
from minerva_acme.results.stored_weights import list_weights

__all__ = [
    "Context",
    "Experiment",
    "METRICS",
    "PublishedResult",
    "Row",
    "check_name",
    "format_rows",
    "list_weights",
    "load",
    "load_published",
    "make_name",
    "merge",
    "parse_rows",
    "read",
    "read_rows",
    "write",
]
