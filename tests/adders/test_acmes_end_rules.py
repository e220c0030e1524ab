"""What each rule for the end of an episode writes, beside Acme's rule of which docs/migrating.md says so.

Acme's sequences have T + 1 rows where ours have T transitions. Acme writes one when T + 1 steps have been
made, then every `period` steps, and then, once the last row stands (N + 1 of them in N steps):

    WRITE       the last T + 1 rows; nothing of an episode that has fewer
    ZERO_PAD    the next that is due, filled up with rows of 0
    TRUNCATE    the same without what is filled up
"""

import re
from pathlib import Path

import pytest

from minerva_acme import adders
from minerva_acme.replay import layouts

PAGE = Path(__file__).parents[2] / "docs" / "migrating.md"


def zero_pad(episode):
    """As the page gives it."""
    return [episode.next_start] if episode.num_covered < episode.num_steps else []


def acmes(rule: str, num_steps: int, length: int, period: int) -> list[int]:
    """The steps at which Acme's sequences start."""
    rows = length + 1
    due = [step - rows for step in range(rows, num_steps + 1) if (step - rows) % period == 0]
    if rule == "WRITE":
        return due if num_steps + 1 < rows else [*due, num_steps + 1 - rows]
    next_due = next(start for start in range(0, num_steps + period, period) if start + rows >= num_steps + 1)
    return [*due, next_due]


def ours(at_end, num_steps: int, length: int, period: int, spec, make_store, play) -> list[int]:
    variable = at_end is adders.write_short
    layout = layouts.TrajectoryLayout(spec, length, variable_length=variable)
    store = make_store(layout.signature)
    with adders.SequenceAdder(
        client=store.client, table="table", layout=layout, period=period, at_end=at_end
    ) as adder:
        play(adder, 0, [1.0] * num_steps, [1.0] * num_steps)
        return [int(item.observation[0, 0]) for item in store.items(layout)]


CASES = [(n, t, p) for n in range(1, 9) for t in (1, 2, 3, 4) for p in range(1, t + 1)]


@pytest.mark.parametrize(
    ("at_end", "rule"),
    [(zero_pad, "ZERO_PAD"), (adders.write_short, "TRUNCATE"), (adders.shift_back, "WRITE")],
    ids=["zero_pad", "write_short", "shift_back"],
)
def test_sequences_start_where_acmes_do(make_memory_store, scalar_spec, play, at_end, rule):
    for num_steps, length, period in CASES:
        found = ours(at_end, num_steps, length, period, scalar_spec, make_memory_store, play)
        expected = acmes(rule, num_steps, length, period)
        if rule == "WRITE" and num_steps < length:
            assert (found, expected) == ([0], [])  # a short episode is kept
        else:
            assert found == expected, (num_steps, length, period)


def test_padding_every_start_writes_what_zero_pad_does_and_the_rest(make_memory_store, scalar_spec, play):
    has_more = set()
    for num_steps, length, period in CASES:
        found = ours(adders.pad_every_start, num_steps, length, period, scalar_spec, make_memory_store, play)
        expected = acmes("ZERO_PAD", num_steps, length, period)
        assert found[: len(expected)] == expected
        assert found == list(range(0, num_steps, period))
        has_more.add((len(found) > len(expected), period < length))
    # More only where sequences overlap.
    assert has_more == {(False, False), (False, True), (True, True)}


def test_the_example_of_the_page_is_what_is_written(make_memory_store, scalar_spec, play):
    rows = re.findall(
        r"^\| `(\w+)` \| `(\w+)` \| ([\d ]+|none) \| ([\d ]+) \|", PAGE.read_text(), re.MULTILINE
    )
    assert [row[:2] for row in rows] == [
        ("ZERO_PAD", "pad_every_start"),
        ("TRUNCATE", "write_short"),
        ("WRITE", "shift_back"),
    ]
    for rule, name, theirs, here in rows:
        assert acmes(rule, 5, 3, 1) == [int(start) for start in theirs.split()]
        found = ours(getattr(adders, name), 5, 3, 1, scalar_spec, make_memory_store, play)
        assert found == [int(start) for start in here.split()]
