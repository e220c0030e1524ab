"""Assertions with informative messages."""

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
import tree

from minerva_acme import core, specs, types
from minerva_acme.replay import base as replay

_MOST_DRAWS = 100  # for each item of a table that is read by sampling
_SECONDS = 10.0  # to wait for one


def assert_nests_equal(actual: Any, expected: Any, what: str = "") -> None:
    """Asserts that two nests of arrays, tensors, numbers and strings are equal bit for bit.

    Args:
        actual: The actual nest.
        expected: The expected nest.
        what: The beginning of the message, such as "`select_action` must not change its observation."

    Raises:
        AssertionError: The nests differ; the message names the leaf and shows both values.
    """
    assert_same_structure(actual, expected, what)
    for (path, left), right in zip(tree.flatten_with_path(actual), tree.flatten(expected), strict=True):
        found, wanted = _to_array(left), _to_array(right)
        if found.shape != wanted.shape or not _same(found, wanted):
            at = f" at {specs.leaf_name('', path)}" if path else ""
            raise AssertionError(f"{what} Expected {wanted!r}{at}, got {found!r}.".lstrip())


def assert_same_structure(actual: Any, expected: Any, what: str) -> None:
    """Asserts that two nests have the same structure; their leaves may differ."""
    try:
        tree.assert_same_structure(actual, expected)
    except (TypeError, ValueError) as error:
        raise AssertionError(f"{what} Expected the structure of {expected!r}, got {actual!r}.") from error


def are_equal(one: Any, other: Any) -> bool:
    """Returns whether two nests have the same leaves, bit for bit."""
    leaves = tree.flatten(one), tree.flatten(other)
    return len(leaves[0]) == len(leaves[1]) and not any(map(differ, *leaves))


def differ(one: Any, other: Any) -> bool:
    """Returns whether two arrays, tensors or numbers differ in any bit."""
    return not _same(_to_array(one), _to_array(other))


@contextlib.contextmanager
def no_value_error(rule: str) -> Iterator[None]:
    """Asserts that the block raises no ValueError; the message is the rule and the error."""
    try:
        yield
    except ValueError as error:
        raise AssertionError(f"{rule}: {error}") from error


def assert_refused(rule: str, method: Callable[..., Any], *arguments: Any, mentions: str = "") -> None:
    """Asserts that a call raises ValueError, with a message that mentions a word."""
    try:
        method(*arguments)
    except ValueError as error:
        assert mentions in str(error), f"{rule} must mention {mentions} in its error, got {error}."
    else:
        raise AssertionError(f"{rule} must raise ValueError, got no error.")


def read_items(
    client: replay.ReplayClient, table: str, unpack: Callable[[Mapping[str, torch.Tensor]], Any]
) -> list[types.NestedArray]:
    """Reads all items of a table, for `AdderConformance.read_items`.

    Args:
        client: The client of the store.
        table: The name of the table. It is sampled until each of its items has come. One whose sampler is
            `Fifo` with `max_times_sampled` 1 gives each once, and removes it.
        unpack: Converts the fields of a batch into a learner's data, such as `layout.unpack`.

    Returns:
        The items as nests of arrays without the batch axis, in the order in which they came: with `Fifo`, as
        they were written.

    Raises:
        ReplayTimeout: The rate limiter allows no sample.
        ReplayError: An item has not come in a hundred draws for each of them: its probability is small.
    """
    items: dict[int, types.NestedArray] = {}
    size, num_draws = client.table_info(table).size, 0
    with client.sampler(table) as sampler:
        while len(items) < size:
            info, fields = sampler.sample_batch(1, _SECONDS)
            batch = unpack({name: torch.as_tensor(rows) for name, rows in fields.items()})
            axis = 1 if isinstance(batch, types.Rollout) else 0
            item = tree.map_structure(lambda leaf, axis=axis: leaf.select(axis, 0).numpy(), batch)
            items.setdefault(int(info.key[0]), item)
            num_draws += 1
            if num_draws == _MOST_DRAWS * size and len(items) < size:
                raise replay.ReplayError(
                    f"Table '{table}' must give each of its {size} items in {num_draws:,} draws, got "
                    f"{len(items)}. Read it with another sampler, such as `Fifo`. Items of a `Ring` have no "
                    "keys."
                )
    return [*items.values()]


def through_a_file(state: core.State) -> core.State:
    """Returns the state as after loading a checkpoint: written, and read without executing any code."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def _to_array(leaf: Any) -> np.ndarray:
    return np.asarray(leaf.detach().cpu() if isinstance(leaf, torch.Tensor) else leaf)


def _same(found: np.ndarray, wanted: np.ndarray) -> bool:
    may_hold_nan = found.dtype.kind in "fc" and wanted.dtype.kind in "fc"
    return bool(np.array_equal(found, wanted, equal_nan=may_hold_nan))
