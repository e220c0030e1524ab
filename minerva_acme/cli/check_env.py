"""`minerva check-env`: whether an environment follows the rules of dm_env, and which agents support it."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import dm_env
import numpy as np
import tree

from minerva_acme import environments, specs, testing
from minerva_acme.agents import registry
from minerva_acme.cli import commands, output
from minerva_acme.cli.output import Check, Console
from minerva_acme.environments import own
from minerva_acme.names import readable
from minerva_acme.runs import env_kwargs

_NAME_WIDTH = 24
_NUM_EPISODES = 3
_PREFIX = "test_"
# Short names for the checks of `testing.EnvironmentConformance`; others are shown under their own name.
_NAMES = {
    "the_four_specs_are_nests_of_specs_and_stay_the_same": "specs",
    "every_timestep_conforms_to_the_specs": "shapes, dtypes, bounds",
    "reset_returns_first_before_within_and_after_an_episode": "reset",
    "a_step_before_the_first_reset_and_after_last_begins_an_episode": "step without an episode",
    "an_episode_is_first_then_mid_then_last": "order of an episode",
    "discounts_lie_between_0_and_1": "discounts",
    "the_last_observation_is_that_of_the_episode_that_ends": "last observation",
    "what_was_given_out_is_not_changed_later": "fresh arrays",
    "an_action_is_left_as_it_is": "actions left as they are",
    "a_seed_determines_what_happens": "seed",
}

Make = Callable[[int], dm_env.Environment]


def run(command: commands.CheckEnv) -> int:
    """Shows the verdicts; returns 0 if nothing is wrong and some agent supports the environment, else 1."""
    console = Console()
    arguments = env_kwargs.read(command.env_kwargs)
    concatenate = arguments.pop("concatenate", True)

    def make(seed: int) -> dm_env.Environment:
        return environments.make(command.environment, seed, **arguments)

    with _quiet("minerva_acme.environments"):  # the table shows what they would warn about
        with contextlib.closing(make(command.seed)) as environment:
            takes_seed = own.is_seeded(command.environment, environment)
        checks = examine(make, seed=command.seed, max_steps=command.steps, takes_seed=takes_seed)
        counts = output.show_checks(checks, console, name_width=_NAME_WIDTH)
        counts_of_agents = output.show_checks(
            ask_agents(make, command.seed, concatenate=concatenate), console, name_width=_NAME_WIDTH
        )
    num_agents = counts_of_agents["ok"]
    counts["wrong"] += counts_of_agents["wrong"]
    supported = f"{readable.count(num_agents, 'agent')} support{'s' * (num_agents == 1)}"
    console.print(f"{command.environment}: {output.sum_up(counts)} {supported} it.")
    return int(counts["wrong"] > 0 or num_agents == 0)


def examine(make: Make, *, seed: int = 0, max_steps: int = 1000, takes_seed: bool = True) -> Iterator[Check]:
    """Yields the results of all checks of an environment.

    Args:
        make: Makes the environment from a seed.
        seed: The seed of most checks.
        max_steps: The maximum number of steps of an episode; a longer one counts as endless.
        takes_seed: Whether `make` uses the seed.
    """

    with contextlib.closing(make(seed)) as environment:
        for name, spec in specs.make_environment_spec(environment)._asdict().items():
            yield Check(name, "ok", _short(spec))
    known = [f"{_PREFIX}{name}" for name in _NAMES]
    others = [name for name in dir(_Conformance) if name.startswith(_PREFIX) and name not in known]
    for test in known + others:
        words = test.removeprefix(_PREFIX).replace("_", " ")
        name = _NAMES.get(test.removeprefix(_PREFIX), words)
        if name == "seed" and not takes_seed:
            yield Check(name, "warning", "not accepted: runs are not reproducible", "add an argument `seed`")
        else:
            with contextlib.closing(_Conformance(make, seed, max_steps)) as conformance:
                yield _judge(name, words, getattr(conformance, test))
    with contextlib.closing(_Conformance(make, seed, max_steps)) as conformance:
        yield _judge_ends(conformance)


def ask_agents(make: Make, seed: int = 0, *, concatenate: bool = True) -> Iterator[Check]:
    """Yields which agents support an environment, as `make_training_environment` wraps it."""
    try:
        spec, nested = (_specs_for_training(make(seed), joined) for joined in (concatenate, False))
    except ValueError as error:
        yield Check("for training", "wrong", str(error))
        return
    both = tree.is_nested(nested.observations) and spec.observations != nested.observations
    for name, entry in registry.entries().items():
        builder: Any = entry.builder  # a builder's constructor is not part of its interface
        asked = builder(entry.presets["default"])
        if refusal := _refusal(asked, spec):
            yield Check(name, "no", refusal)
            continue
        apart = " or apart (--env-kwargs concatenate=false)" * (both and not _refusal(asked, nested))
        yield Check(
            name,
            "ok",
            f"supported: observations {_short(spec.observations)}{apart}; actions {_short(spec.actions)}",
        )


def _specs_for_training(environment: dm_env.Environment, concatenate: bool) -> specs.EnvironmentSpec:
    with contextlib.closing(
        environments.make_training_environment(environment, concatenate=concatenate)
    ) as made:
        return specs.make_environment_spec(made)


def _refusal(builder: Any, spec: specs.EnvironmentSpec) -> str:
    """Returns why an agent does not support an environment, or "" if it does."""
    try:
        builder.check_spec(spec)
    except ValueError as error:
        return str(error)
    return ""


@contextlib.contextmanager
def _quiet(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _judge(name: str, words: str, check: Callable[[], None]) -> Check:
    try:
        check()
    except AssertionError as error:
        return Check(name, "wrong", str(error))
    except Exception as error:  # whatever the environment raises
        return Check(name, "wrong", own.describe_error(error))
    return Check(name, "ok", words)


def _judge_ends(conformance: "_Conformance") -> Check:
    """Returns how episodes end: by termination or by a limit."""
    try:
        played = conformance.play(_NUM_EPISODES)
    except Exception as error:  # whatever the environment raises
        return Check("ends", "wrong", own.describe_error(error))
    ended = [episode for episode in played if episode[-1].last()]
    if not ended:
        words = f"no episode ended within {conformance.max_steps} steps"
        return Check("ends", "warning", words, "raise --steps, or add a step limit")
    lengths = [len(episode) - 1 for episode in ended]
    are_true = [not any(map(np.any, tree.flatten(episode[-1].discount))) for episode in ended]
    kinds = f"{sum(are_true)} of {len(ended)} episodes terminated (discount 0)"
    if not all(are_true):
        kinds += ", the others hit a limit"
    if all(are_true) and len(lengths) > 1 and len(set(lengths)) == 1 and lengths[0] > 1:
        fix = "if that is a time limit, truncate instead: LAST with discount 1, or `truncated` in Gymnasium"
        return Check("ends", "warning", f"{kinds}, each after {lengths[0]} steps", fix)
    numbers = "-".join(map(str, sorted({min(lengths), max(lengths)})))
    return Check("ends", "ok", f"{kinds}, after {numbers} steps")


class _Conformance(testing.EnvironmentConformance):
    """The environment's conformance tests; closes every environment they made."""

    depends_on_seed = False  # an environment need not be random
    must_end = False  # `_judge_ends` says how episodes end

    def __init__(self, make: Make, seed: int, max_steps: int) -> None:
        self._make, self._seed = make, seed
        self.max_steps = max_steps
        self._made = contextlib.ExitStack()

    def make_environment(self) -> dm_env.Environment:
        return self.make_seeded_environment(self._seed)

    def make_seeded_environment(self, seed: int) -> dm_env.Environment:
        environment = self._make(seed)
        self._made.callback(environment.close)
        return environment

    def play(self, num_episodes: int) -> list[list[dm_env.TimeStep]]:
        """Plays episodes of at most `max_steps` steps in one environment."""
        environment = self.make_environment()
        actor = self.make_actor(environment.action_spec())
        return [self._play(environment, actor=actor) for _ in range(num_episodes)]

    def close(self) -> None:
        self._made.close()


def _short(nest: Any) -> str:
    if isinstance(nest, specs.Array):
        return specs.describe(nest)
    leaves = tree.flatten_with_path(nest)
    parts = [f"{'/'.join(map(str, path))}: {specs.describe(leaf)}" for path, leaf in leaves]
    return "{" + ", ".join(parts) + "}"
