"""Adders with Acme's three methods, where a run needs a few more."""

from typing import Any

import dm_env

from minerva_acme import core, types


def complete(adder: Any) -> core.Adder:
    """Returns an adder as a `core.Adder`; one that has `add_first`, `add` and `reset` alone is wrapped.

    What such an adder lacks is filled in: without `flush` its items count as sent, without `close` nothing is
    released at the end, and without `num_inserted` every call of `add` counts as one item. Learner steps are
    paced by that count, so an adder that creates more or fewer items must have `num_inserted` itself.
    """
    return adder if isinstance(adder, core.Adder) else _Completed(adder)


class _Completed(core.Adder):
    def __init__(self, adder: Any) -> None:
        self._adder = adder
        self._num_added = 0

    def __getattr__(self, name: str) -> Any:
        # `save` and `restore`, if it has them; private names are asked for before there is an adder.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._adder, name)

    def add_first(self, timestep: dm_env.TimeStep) -> None:
        self._adder.add_first(timestep)

    def add(
        self,
        action: types.NestedArray,
        next_timestep: dm_env.TimeStep,
        extras: types.NestedArray = (),
    ) -> None:
        self._adder.add(action, next_timestep, extras)
        self._num_added += 1

    @property
    def num_inserted(self) -> int:
        return int(getattr(self._adder, "num_inserted", self._num_added))

    def flush(self) -> None:
        self._call_if_there("flush")

    def reset(self) -> None:
        self._adder.reset()

    def close(self) -> None:
        self._call_if_there("close")

    def _call_if_there(self, method: str) -> None:
        if hasattr(self._adder, method):
            getattr(self._adder, method)()
