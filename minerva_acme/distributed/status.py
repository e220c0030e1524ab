"""A status line for distributed runs: speeds, waiting times and memory."""

import time
import types
from collections.abc import Callable, Mapping
from typing import Any

PERIOD_SECONDS = 30.0
"""The time between two lines."""

_SPEED_SECONDS = 2.0  # the minimum time over which a node's speed is measured
_SHARE = 0.1  # a side that waits for at least this share of its time is shown as waiting


class StatusLine:
    """Makes a line twice a minute: the speed and memory of the nodes, and which side waits.

    Attributes:
        metrics: The newest numbers, for displays.
        nodes: The state of each node in words, for displays.
    """

    def __init__(self, num_actors: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Makes no line yet.

        Args:
            num_actors: The number of actors.
            clock: Returns the time in seconds.
        """
        self.metrics: dict[str, float] = {}
        self.nodes: dict[str, str] = {}
        self._num_actors = num_actors
        self._clock = clock
        self._last: tuple[float, dict[str, float]] | None = None
        self._waits = ""
        self._steps: dict[str, tuple[float, float, float]] = {}  # by node: time, steps, steps per second

    def update(
        self,
        overview: Mapping[str, Any],
        restarts: Mapping[str, int],
        given_up: Mapping[str, str] = types.MappingProxyType({}),
    ) -> str | None:
        """Updates `metrics` and `nodes`; returns a line if one is due, otherwise None.

        Args:
            overview: The overview of the run from the counter's node.
            restarts: The number of restarts of each node.
            given_up: The reasons why nodes were given up, by name.
        """
        now = self._clock()
        actors = {name: said for name, said in overview["status"].items() if name.startswith("actor/")}
        learner = overview["status"].get("learner", {})
        inserted = learner.get("inserted", 0.0)
        # The first `min_size` items fill the table before anything is drawn.
        beyond = inserted - learner.get("min_size", 0.0)
        self.metrics = {
            "replay/size": learner.get("size", 0.0),
            "replay/max_size": learner.get("max_size", 0.0),
            "replay/samples_per_insert": learner.get("sampled", 0.0) / beyond if beyond > 0 else 0.0,
            "memory_mb": sum(said.get("memory_mb", 0.0) for said in overview["status"].values()),
            "restarts": float(sum(restarts.values())),
        }
        sums = {
            "env_steps": float(overview["counts"].get("actor_steps", 0)),
            "learner_steps": float(overview["counts"].get("learner_steps", 0)),
            "learner": learner.get("wait_seconds", 0.0),
            "write": sum(said.get("replay_seconds", 0.0) for said in actors.values()),
            "round": sum(said.get("round_seconds", 0.0) for said in actors.values()),
        }
        self.nodes = self._describe(now, overview["status"], restarts)
        self.nodes |= {name: f"given up: {why}" for name, why in given_up.items()}
        if self._last is None:
            self._last = now, sums
        seconds = now - self._last[0]
        if seconds < PERIOD_SECONDS:
            return None
        # A restarted node counts its seconds from 0.
        rates = {name: max(0.0, value - self._last[1][name]) / seconds for name, value in sums.items()}
        self._last = now, sums
        line = self._line(rates, overview["status"], actors, learner, restarts)
        line += "".join(f", {name} is given up" for name in given_up)
        self._waits = line
        return line

    def _describe(
        self, now: float, said: Mapping[str, Mapping[str, float]], restarts: Mapping[str, int]
    ) -> dict[str, str]:
        nodes = {"waits": self._waits} if self._waits else {}
        for name in restarts:
            one = said.get(name)
            parts = []
            if one is None:
                parts.append("no status yet")
            elif "steps" in one:
                before, steps, _ = self._steps.get(name, (now, one["steps"], 0.0))
                if now - before >= _SPEED_SECONDS or name not in self._steps:
                    speed = max(0.0, one["steps"] - steps) / max(now - before, _SPEED_SECONDS)
                    self._steps[name] = now, one["steps"], speed
                parts.append(f"{self._steps[name][2]:.0f} steps/s")
            if one is not None and "weights_age_seconds" in one:
                parts.append(f"weights {one['weights_age_seconds']:.1f} s old")
            if one is not None:
                parts.append(f"{one.get('memory_mb', 0.0):,.0f} MB")
            parts.append(f"restarted {restarts[name]}x")
            nodes[name] = ", ".join(parts)
        return nodes

    def _line(
        self,
        rates: Mapping[str, float],
        said: Mapping[str, Mapping[str, float]],
        actors: Mapping[str, Mapping[str, float]],
        learner: Mapping[str, float],
        restarts: Mapping[str, int],
    ) -> str:
        waits = {
            "the learner waits for data": min(1.0, rates["learner"]),
            "actors wait to write": min(1.0, rates["write"] / self._num_actors),
            "actors wait for weights": min(1.0, rates["round"] / self._num_actors),
        }
        who = [f"{name} {share:.0%} of the time" for name, share in waits.items() if share >= _SHARE]
        age = max((one.get("weights_age_seconds", 0.0) for one in actors.values()), default=0.0)
        parts = [
            f"{rates['env_steps']:.0f} environment and {rates['learner_steps']:.1f} learner steps/s",
            " and ".join(who) or "nothing waits",
            f"{self.metrics['replay/samples_per_insert']:.2f} samples per insert",
            f"oldest weights {age:.1f} s",
            f"memory {self.metrics['memory_mb']:,.0f} MB in {len(said)} nodes",
        ]
        dropped = {name: int(learner[name]) for name in ("stale", "surplus") if learner.get(name)}
        parts += [f"{number} {name} rollouts dropped" for name, number in dropped.items()]
        parts += [f"{name} restarted {number}x" for name, number in restarts.items() if number]
        return ", ".join(parts)
