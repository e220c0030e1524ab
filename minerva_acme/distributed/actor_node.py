"""The node that plays."""

import contextlib
import dataclasses
import logging
import math
import time
from typing import Any

import torch

from minerva_acme import core, specs
from minerva_acme.agents.on_policy import rounds
from minerva_acme.distributed import graph, reports, weights
from minerva_acme.environments import scene
from minerva_acme.experiments import parts, seeds
from minerva_acme.replay import base as replay
from minerva_acme.replay import waiting
from minerva_acme.replay.reverb import store
from minerva_acme.runs import config as experiment_config
from minerva_acme.runs import evaluation

_logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.1  # between polls for newer weights
_ROLLOUT_POLL_SECONDS = 0.02  # the same for on-policy agents, whose weights must not be old
_LOOK_SECONDS = 0.5
_CLOSE_SECONDS = 2.0  # for replay to take the last items of an actor that was asked to stop
# Calls of all actors together, to the learner and to the counter each. A call takes either of them half a
# millisecond of CPU time, so this is a quarter of a core: docs/performance.md.
_CALLS_PER_SECOND = 500


@dataclasses.dataclass(eq=False, kw_only=True)
class ActorNode(graph.Part):
    """Plays in its own environments, writes to replay, and follows the learner's weights.

    After it has delivered its part of a round, an on-policy agent's actor waits for the resulting weights. If
    replay loses its items meanwhile, the actor delivers again.
    """

    config: experiment_config.ExperimentConfig
    """The run's config, whose builder is the one for this number of actors."""
    spec: specs.EnvironmentSpec
    """The spec of the environments."""
    num_actors: int
    """The number of actors; the more there are, the less often each polls and reports."""
    address: str
    """The `host:port` of replay."""
    began_at: int
    """The environment steps that the run began with."""

    def __post_init__(self) -> None:
        self._least_period = self.num_actors / _CALLS_PER_SECOND  # seconds
        # Neither a resumed run nor a restarted actor plays the same episodes again.
        self._session = f"{self.began_at}.{self.context.incarnation}"
        self._replay_seconds = 0.0
        self._round_seconds = 0.0

    def run(self) -> None:
        context, config, builder = self.context, self.config, self.config.builder
        own_seeds = seeds.Seeds(config.seed)
        num_environments = builder.num_environments
        first = context.index * num_environments
        is_stopped = context.stop.is_set
        leaves_at = 0.0
        with (
            # The inner one, below, ends with play: what closes then waits for replay too, but not long.
            waiting.rules(lambda: is_stopped() and time.monotonic() >= leaves_at),
            contextlib.ExitStack() as resources,
        ):
            environment = parts.make_environment(
                config, lambda index: own_seeds.number(f"environment {self._session}", first + index)
            )
            resources.callback(environment.close)
            _check_same(specs.make_environment_spec(environment), self.spec, context.name)
            networks = builder.make_networks(self.spec, own_seeds.generator("networks"))
            client = store.ReverbClient(self.address, timeout_seconds=math.inf)
            played = scene.of(environment)
            made = parts.make_adders(config, played, client, self.spec, resources)
            stamping = [adder for adder in made if isinstance(adder, rounds.StampingAdder)]
            adders = [_TimedAdder(adder) for adder in made]
            follower = weights.Follower(
                context.handle("learner"),
                builder.policy_variables,
                period_seconds=max(_ROLLOUT_POLL_SECONDS if stamping else _POLL_SECONDS, self._least_period),
                stop=context.stop,
            )
            resources.callback(follower.close)
            reporter = reports.Reporter(
                context, period_seconds=max(reports.PERIOD_SECONDS, self._least_period)
            )
            reporter.status = lambda: self._status(reporter, follower, adders)
            reporter.wants = num_environments
            policy = builder.make_policy(
                networks,
                self.spec,
                own_seeds.generator(f"policy {self._session}", index=context.index),
                counter=reporter.counter,
                actor_index=context.index,
            )
            actor, loop = parts.make_actor_and_loop(
                config,
                scene=played,
                policy=policy,
                variable_source=follower,
                adders=adders,
                counter=reporter.counter,
                logger=reporter.logger("actor"),
            )
            while not follower.wait(-1, _LOOK_SECONDS):
                if is_stopped():
                    return
            reporter.start()
            resources.callback(reporter.close)
            actor.update(wait=True)
            # A rate limiter holds all actors back alike: the first one tells of it.
            rules = waiting.rules(is_stopped, tells_of_limiters=context.index == 0)
            with rules, contextlib.suppress(replay.ReplayStopped):
                self._play(loop, actor, adders, stamping, follower, reporter)
            leaves_at = time.monotonic() + _CLOSE_SECONDS

    def _play(
        self,
        loop: Any,
        actor: evaluation.Actor,
        adders: "list[_TimedAdder]",
        stamping: list[rounds.StampingAdder],
        follower: weights.Follower,
        reporter: reports.Reporter,
    ) -> None:
        stop, num_env_steps = self.context.stop, self.config.num_env_steps
        in_rounds = any(adder.in_rounds for adder in stamping)
        delivered, epoch = 0, reporter.facts.get("replay_epoch", 0)  # rollouts with the current weights
        while reporter.may_play(num_env_steps):
            version = follower.taken
            for adder in stamping:
                adder.stamp = (self.context.index, version)
            before = _num_inserted(adders)
            loop.step()
            reporter.has_worked = True
            if not in_rounds:
                continue
            delivered += _num_inserted(adders) - before
            if follower.taken == version and delivered >= len(adders):
                began = time.monotonic()
                # If it waits past its next report, an actor returns its lease to the others.
                wants, reporter.wants = reporter.wants, 0
                while not (stop.is_set() or follower.wait(version, _LOOK_SECONDS)):
                    if reporter.facts.get("replay_epoch", 0) != epoch:  # delivered rollouts may be lost
                        break
                reporter.wants = wants
                self._round_seconds += time.monotonic() - began
                actor.update(wait=True)
                delivered, epoch = 0, reporter.facts.get("replay_epoch", 0)
            elif follower.taken != version:
                delivered = 0

    def _status(
        self, reporter: reports.Reporter, follower: weights.Follower, adders: "list[_TimedAdder]"
    ) -> dict[str, float]:
        return {
            "steps": reporter.counter.own().get("actor_steps", 0),
            "version": rounds.learner_steps(max(follower.taken, 0)),
            "weights_age_seconds": follower.age_seconds,
            "weights_failures": follower.num_failures,
            "replay_seconds": sum(adder.seconds for adder in adders),
            "round_seconds": self._round_seconds,
            "torch_threads": torch.get_num_threads(),
            "num_inserted": _num_inserted(adders),
        }


class _TimedAdder(core.Adder):
    """Measures the time spent writing, most of which is waiting if the learner is slower."""

    def __init__(self, adder: core.Adder) -> None:
        self.adder = adder
        self.seconds = 0.0

    def add_first(self, timestep: Any) -> None:
        self.adder.add_first(timestep)

    def add(self, action: Any, next_timestep: Any, extras: Any = ()) -> None:
        began = time.perf_counter()
        try:
            self.adder.add(action, next_timestep, extras)
        finally:
            self.seconds += time.perf_counter() - began

    @property
    def num_inserted(self) -> int:
        return self.adder.num_inserted

    def flush(self) -> None:
        self.adder.flush()

    def reset(self) -> None:
        self.adder.reset()

    def close(self) -> None:
        self.adder.close()


def _num_inserted(adders: list[_TimedAdder]) -> int:
    return sum(adder.num_inserted for adder in adders)


def _check_same(found: specs.EnvironmentSpec, expected: specs.EnvironmentSpec, name: str) -> None:
    if found != expected:
        raise ValueError(
            f"`environment_factory` must make environments with the specs {expected} in every process, got "
            f"{found} in {name}. Let them depend only on the seed."
        )
