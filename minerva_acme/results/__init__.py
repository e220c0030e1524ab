"""Results as data: rows of runs, their provenance, and published results."""

from minerva_acme.results.experiment import Context, Experiment, load, merge, read, select, write
from minerva_acme.results.names import check_name, make_name, with_repeat
from minerva_acme.results.published import PublishedResult, load_published
from minerva_acme.results.rows import METRICS, RETURN, RETURN_OF, Row, format_rows, parse_rows, read_rows
from minerva_acme.results.stored_weights import list_weights

__all__ = [
    "Context",
    "Experiment",
    "METRICS",
    "PublishedResult",
    "RETURN",
    "RETURN_OF",
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
    "select",
    "with_repeat",
    "write",
]
