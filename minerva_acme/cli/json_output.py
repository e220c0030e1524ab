"""The output of `--json`: one value, and nothing else, on standard output."""

import contextlib
import json
import math
import sys
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Redirects everything printed in the block, including by libraries, to standard error."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def show(value: Any) -> None:
    """Prints a value as JSON, which has no nan and no infinity; they become null."""
    print(json.dumps(_plain(value), indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if hasattr(value, "item"):  # a number of numpy's
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
