"""One stream of timesteps to several adders, and an adder behind which extras are dropped."""

from collections.abc import Callable, Sequence

import dm_env

from minerva_acme import core, types
from minerva_acme.replay import base as replay


class ForkingAdder(core.Adder, core.Saveable):
    """Hands every timestep to several adders: sequences and transitions from one actor, say.

        FIRST  MID  MID  LAST        add_first, add, add, add
          |     |    |    |
          +-----+----+----+--------> adders[0]    its items, as its class draws them
          +-----+----+----+--------> adders[1]    its items

    Each adder writes at FIRST, MID and LAST what it would write alone, for termination and truncation.
    For several tables of the same items, give one adder several tables.

    What the first adder refuses, none has taken. What a later one refuses the ones before it have
    taken already: then all of them end the episode where it stands, as `reset` does, before the error
    is raised. The adder stays usable either way. Where a table holds inserts back, every adder gets
    its timestep before the error is raised.

    Its state is that of the adders that have one (`core.Saveable`); the others start afresh.
    """

    def __init__(self, adders: Sequence[core.Adder]) -> None:
        """Owns the adders, and closes them when it is closed.

        Args:
            adders: at least one; the first is the one to check what all of them take.

        Raises:
            ValueError: there is none.
        """
        if not adders:
            raise ValueError("`adders` must be one adder or more, got none.")
        self._adders = tuple(adders)

    @property
    def num_inserted(self) -> int:
        """Items created since construction, by all adders together."""
        return sum(adder.num_inserted for adder in self._adders)

    def add_first(self, timestep: dm_env.TimeStep) -> None:
        self._hand_out(lambda adder: adder.add_first(timestep))

    def add(
        self,
        action: types.NestedArray,
        next_timestep: dm_env.TimeStep,
        extras: types.NestedArray = (),
    ) -> None:
        self._hand_out(lambda adder: adder.add(action, next_timestep, extras))

    def flush(self) -> None:
        self._for_each(lambda adder: adder.flush())

    def reset(self) -> None:
        self._for_each(lambda adder: adder.reset())

    def close(self) -> None:
        self._for_each(lambda adder: adder.close())

    def save(self) -> core.State:
        return [adder.save() if isinstance(adder, core.Saveable) else None for adder in self._adders]

    def restore(self, state: core.State) -> None:
        """Restores a state of `save`.

        Raises:
            ValueError: it is not of as many adders of these kinds.
        """
        saved, here = ([part is not None for part in states] for states in (state, self.save()))
        if saved != here:
            raise ValueError(
                f"The state must be one of {len(here)} adders, {sum(here)} of which have a state, got one of "
                f"{len(saved)}, {sum(saved)} of which have. Fork to the same adders, in the same order."
            )
        for adder, part in zip(self._adders, state, strict=True):
            if isinstance(adder, core.Saveable):
                adder.restore(part)

    def _hand_out(self, call: Callable[[core.Adder], None]) -> None:
        timeout: replay.ReplayTimeout | None = None
        for index, adder in enumerate(self._adders):
            try:
                call(adder)
            except replay.ReplayTimeout as error:  # The adder has the timestep, and its item is sent later.
                timeout = timeout or error
            except Exception as error:
                if index > 0:
                    error.add_note(f"Adder {index} refused it; the episode is ended in all adders.")
                    self.reset()
                raise
        if timeout is not None:
            raise timeout

    def _for_each(self, call: Callable[[core.Adder], None]) -> None:
        """Calls with every adder, whatever some of them raise; then raises the first error."""
        first_error: Exception | None = None
        for adder in self._adders:
            try:
                call(adder)
            except Exception as error:
                first_error = first_error or error
        if first_error is not None:
            raise first_error


class ExtrasFilter(ForkingAdder):
    """Hands on only those extras that an adder is to write, and drops the others on purpose.

    An adder refuses extras that are not in its spec; this says which of an actor's are not wanted. At
    FIRST, MID and LAST the adder behind it writes what it always writes.

        ExtrasFilter(adder, keep=["log_prob"])    {"log_prob": x, "value": y}  ->  {"log_prob": x}
        ExtrasFilter(adder, keep=[])              anything                     ->  ()
    """

    def __init__(self, adder: core.Adder, keep: Sequence[str]) -> None:
        """Owns the adder, and closes it when it is closed.

        Args:
            adder: whose extras spec is a dict of the kept fields, or `()` without any.
            keep: names of the fields to hand on.
        """
        super().__init__([adder])
        self._keep = tuple(keep)

    def add(
        self,
        action: types.NestedArray,
        next_timestep: dm_env.TimeStep,
        extras: types.NestedArray = (),
    ) -> None:
        super().add(action, next_timestep, self._select(extras))

    def _select(self, extras: types.NestedArray) -> types.NestedArray:
        if not self._keep:
            return ()
        fields = extras._asdict() if hasattr(extras, "_asdict") else extras
        if not isinstance(fields, dict) or not all(name in fields for name in self._keep):
            found = f"those of {sorted(fields)}" if isinstance(fields, dict) else f"a {type(extras).__name__}"
            raise ValueError(
                f"`extras` must have the fields {list(self._keep)}, got {found}. Let the actor record them, "
                "or keep others."
            )
        return {name: fields[name] for name in self._keep}
