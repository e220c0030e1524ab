"""Support for adders that have only Acme's three methods."""

from typing import Any

import dm_env

from minerva_acme import core, types


def complete(adder: Any) -> core.Adder:
    """Returns an adder as a `core.Adder`. One that only has `add_first`, `add` and `reset` is wrapped.

    The wrapper provides the missing methods: without `flush`, items count as sent; without `close`, nothing
    is released at the end; without `num_inserted`, every call of `add` counts as one item. This count paces
    the learner steps, so an adder that creates more or fewer items must define `num_inserted` itself.
    """
    return adder if isinstance(adder, core.Adder) else _Completed(adder)


class _Completed(core.Adder):
    def __init__(self, adder: Any) -> None:
        self._adder = adder
        self._num_added = 0

    def __getattr__(self, name: str) -> Any:
        # `save` and `restore`, if the adder has them. Private names are looked up before it is set.
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
