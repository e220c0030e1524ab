"""A profile of the actor loop's step: `profile()`, or `python -m tests.benchmarks.profile_step`.

The parts are timed inside the running loop, where they share the caches.
"""

import argparse
import collections
import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

Profile: TypeAlias = dict[str, float]
"""Microseconds per step, by part: `environment`, `policy`, `adder`, `replay`, `weights`, `loop`."""

PARTS = ("environment", "policy", "adder", "replay", "weights", "loop")


class Watch:
    """Adds up the seconds of functions by part; a call of another part only counts for that part."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.seconds: dict[str, float] = collections.defaultdict(float)
        self._inner = 0.0

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the function with its time added up."""

        def call(*args: Any, **kwargs: Any) -> Any:
            outer, self._inner = self._inner, 0.0
            start = self._clock()
            try:
                return function(*args, **kwargs)
            finally:
                spent = self._clock() - start
                self.seconds[part] += spent - self._inner
                self._inner = outer + spent

        return call

    def wrap(self, part: str, thing: Any, *methods: str) -> None:
        """Times methods of an object from now on."""
        for name in methods:
            setattr(thing, name, self.timed(part, getattr(thing, name)))


@contextlib.contextmanager
def loops(clock: Callable[[], float]) -> Iterator[dict[str, tuple[Callable[[], object], Watch]]]:
    """Yields the plain loop and the library's, each with a watch on its parts.

    Raises:
        frame.Skip: Something is not installed.
    """
    from minerva_acme import specs
    from minerva_acme.agents import mpo

    from . import actor_setup

    config = mpo.MPOConfig()
    builder = mpo.MPOBuilder(config)
    with contextlib.ExitStack() as stack:
        with contextlib.closing(actor_setup.make_environment()) as environment:
            spec = specs.make_environment_spec(environment)
        client = stack.enter_context(actor_setup.make_client(builder, spec))
        plain, ours = Watch(clock), Watch(clock)
        plain_loop = actor_setup.make_plain_loop(config, client, stack)
        _watch_plain(plain_loop, plain)
        loop = actor_setup.make_loop(builder, client, stack)
        _watch(loop, ours)
        yield {
            "plain": (plain.timed("loop", plain_loop.step), plain),
            "ours": (ours.timed("loop", loop.step), ours),
        }


def _watch(loop: Any, watch: Watch) -> None:
    actor = loop._actor
    watch.wrap("environment", loop._environment, "step", "reset")
    watch.wrap("policy", actor, "select_action")
    watch.wrap("weights", actor, "update")
    adder = actor._adder
    watch.wrap("adder", adder, "add_first", "add")
    make_writer = adder._client.writer

    class Client:
        """Makes watched writers; the client itself is shared."""

        def writer(self, *arguments: Any) -> Any:
            writer = make_writer(*arguments)
            watch.wrap("replay", writer, "append", "create_item", "flush", "end_episode")
            return writer

    adder._client = Client()


def _watch_plain(loop: Any, watch: Watch) -> None:
    watch.wrap("environment", loop._environment, "step", "reset")
    loop._acting = watch.timed("policy", loop._acting)
    watch.wrap("adder", loop._writing, "first", "step", "end")
    watch.wrap("replay", loop._writing._writer, "append", "create_item", "flush", "end_episode")


def profile(
    num_rounds: int = 9, num_steps: int = 500, clock: Callable[[], float] = time.perf_counter
) -> Mapping[str, Profile]:
    """Measures the parts of a step, for the plain loop and the library's, in turn.

    Args:
        num_rounds: The number of blocks of each loop, of which the median is returned.
        num_steps: The number of environment steps per block.
        clock: Returns the time in seconds; `time.thread_time` excludes other processes and waiting.

    Returns:
        The parts of a step in microseconds, by loop: `plain` and `ours`. `environment` includes the agent's
        wrappers, but not the flattening of the plain loop; `replay` is the time of the writer; `loop` is the
        rest: episode statistics, counters, timing.

    Raises:
        frame.Skip: Something is not installed.
    """
    with loops(clock) as watched:
        order = list(watched)
        found: dict[str, dict[str, list[float]]] = {name: {part: [] for part in PARTS} for name in order}
        for number in range(num_rounds + 1):
            for name in order:
                step, watch = watched[name]
                watch.seconds.clear()
                for _ in range(num_steps):
                    step()
                if number:  # the first warms up
                    for part in PARTS:
                        found[name][part].append(1e6 * watch.seconds[part] / num_steps)
            order.reverse()
    return {name: {part: statistics.median(parts[part]) for part in PARTS} for name, parts in found.items()}


def main() -> None:
    """Prints the profile as a table."""
    import rich.console
    import rich.table

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cpu", action="store_true", help="CPU time of the loop's thread instead of wall time"
    )
    profiles = profile(clock=time.thread_time if parser.parse_args().cpu else time.perf_counter)
    table = rich.table.Table(title="Microseconds per step: cheetah run, with an item in Reverb per step")
    for column in ("part", *profiles, "ours / plain"):
        table.add_column(column, justify="left" if column == "part" else "right")
    rows = [(part, [values[part] for values in profiles.values()]) for part in PARTS]
    rows.append(("all", [sum(values.values()) for values in profiles.values()]))
    for part, (plain, ours) in rows:
        table.add_row(part, f"{plain:.1f}", f"{ours:.1f}", f"{ours / plain:.2f}" if plain > 0.0 else "")
    rich.console.Console().print(table)


if __name__ == "__main__":
    main()
