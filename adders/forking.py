"""An adder that passes timesteps to several adders, and one that drops extras."""

from collections.abc import Callable, Sequence

import dm_env

from minerva_acme import core, types
from minerva_acme.replay import base as replay


class ForkingAdder(core.Adder, core.Saveable):
    """Passes every timestep to several adders, for example to write both sequences and transitions.

        FIRST  MID  MID  LAST        add_first, add, add, add
          |     |    |    |
          +-----+----+----+--------> adders[0]    its items, as its class draws them
          +-----+----+----+--------> adders[1]    its items

    At FIRST, MID and LAST, each adder writes what it would write alone, for termination and truncation.
    To write the same items to several tables, give one adder several tables.

    If the first adder rejects a timestep, no adder has added it. If a later one does, those before it have
    already added it: then all adders end the episode after its latest step, as `reset` does, before the
    error is raised. The adder stays usable in both cases. If a table holds inserts back, every adder gets
    the timestep before the error is raised.

    The state holds the states of those adders that have `save`. The others start fresh.
    """

    def __init__(self, adders: Sequence[core.Adder]) -> None:
        """Takes ownership of the adders: closing this adder closes them.

        Args:
            adders: One or more adders. The first should check everything that the others require.

        Raises:
            ValueError: There are no adders.
        """
        if not adders:
            raise ValueError("`adders` must be one adder or more, got none.")
        self._adders = tuple(adders)

    @property
    def num_inserted(self) -> int:
        """The number of items that all adders together have created since construction."""
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
        return [core.save_if_saveable(adder) for adder in self._adders]

    def restore(self, state: core.State) -> None:
        """Restores a state that `save` returned.

        Raises:
            ValueError: The state has a different number of adders, or different ones have a state.
        """
        saved, here = ([part is not None for part in states] for states in (state, self.save()))
        if saved != here:
            raise ValueError(
                f"The state must be for {len(here)} adders, {sum(here)} of which have a state, got one for "
                f"{len(saved)}, {sum(saved)} of which have. Use the same adders, in the same order."
            )
        for adder, part in zip(self._adders, state, strict=True):
            core.restore_if_saved(adder, part)

    def _hand_out(self, call: Callable[[core.Adder], None]) -> None:
        timeout: replay.ReplayTimeout | None = None
        for index, adder in enumerate(self._adders):
            try:
                call(adder)
            except replay.ReplayTimeout as error:  # The adder has the timestep, and its item is sent later.
                timeout = timeout or error
            except Exception as error:
                if index > 0:
                    error.add_note(f"Adder {index} rejected it; the episode is ended in all adders.")
                    self.reset()
                raise
        if timeout is not None:
            raise timeout

    def _for_each(self, call: Callable[[core.Adder], None]) -> None:
        """Makes a call with every adder, even if some raise an error; then raises the first error."""
        first_error: Exception | None = None
        for adder in self._adders:
            try:
                call(adder)
            except Exception as error:
                first_error = first_error or error
        if first_error is not None:
            raise first_error


class ExtrasFilter(ForkingAdder):
    """Passes only some extras on to an adder, and drops the others.

    An adder rejects extras that are not in its spec. This one drops those of an actor's extras that the
    adder should not write. At FIRST, MID and LAST the inner adder writes what it always writes.

        ExtrasFilter(adder, keep=["log_prob"])    {"log_prob": x, "value": y}  ->  {"log_prob": x}
        ExtrasFilter(adder, keep=[])              anything                     ->  ()
    """

    def __init__(self, adder: core.Adder, keep: Sequence[str]) -> None:
        """Takes ownership of the adder: closing this adder closes it.

        Args:
            adder: The adder to write with. Its extras spec is a dict of the kept fields, or `()` if none.
            keep: The names of the fields to keep.
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
            found = f"fields {sorted(fields)}" if isinstance(fields, dict) else f"a {type(extras).__name__}"
            raise ValueError(
                f"`extras` must have the fields {list(self._keep)}, got {found}. Record them in the policy, "
                "or change `keep`."
            )
        return {name: fields[name] for name in self._keep}
