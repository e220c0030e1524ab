"""Requirements of several agents on an environment's spec, with their error messages."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tree

from minerva_acme import networks, specs

_MOST_VALUES = 10_000
"""The largest number of values of a discrete choice: every choice gets the logits of the largest one."""
# Settings and their values that need whole batches, and the reason.
_OF_WHOLE_BATCHES = (
    ("acceleration", "compile", "a compiled loss does not wait for other learners"),
    ("prioritized", True, "weights are relative to the largest one of the whole batch"),
    ("critic_torso", "batch_norm", "batch norm takes the statistics of the whole batch"),
)


def check_vector(agent: str, name: str, spec: Any, way_out: str) -> None:
    """Checks that a spec is one float32 vector.

    Raises:
        ValueError: It is not; the message names the agent and ends with `way_out`.
    """
    if (
        not isinstance(spec, specs.Array)
        or spec.dtype != np.float32
        or len(spec.shape) != 1
        or not spec.shape[0]
    ):
        raise ValueError(f"{agent} needs {name} that are one float32 vector, got {describe(spec)}. {way_out}")


def check_batches(agent: str, config: Any) -> None:
    """Checks that a config suits a batched environment, whose steps are stored in a ring.

    Raises:
        ValueError: It has a memory or stacks frames in replay; the message names the setting.
    """
    for name, plain in (("memory", "none"), ("frame_stack", 1)):
        if (found := getattr(config, name, plain)) != plain:
            raise ValueError(
                f"`{name}` of {agent} must be {plain} in a batched environment, whose replay has neither "
                f"recurrent states nor single frames, got {found}. Play environments that are not batched."
            )


def check_learners(agent: str, config: Any, num_learners: int) -> None:
    """Checks that a config suits several learners, each of which sees only its share of a batch.

    Raises:
        ValueError: A setting needs the whole batch; the message names it.
    """
    if num_learners < 1:
        raise ValueError(f"`num_learners` must be >= 1, got {num_learners}.")
    for name, refused, why in _OF_WHOLE_BATCHES:
        if getattr(config, name, None) == refused:
            raise needs_whole_batch(agent, name, refused, num_learners, why)


def needs_whole_batch(agent: str, name: str, value: object, num_learners: int, why: str) -> ValueError:
    """Returns the error that a setting cannot have this value with several learners.

    Args:
        agent: The agent's name.
        name: The setting's name.
        value: The setting's value.
        num_learners: The number of learners.
        why: The reason, a sentence without its end.
    """
    return ValueError(
        f"`{name}` of {agent} cannot be {value} with {num_learners} learners: {why}. Change it, or train "
        "with one learner."
    )


def share(name: str, number: int, num_learners: int) -> int:
    """Returns the share of each learner in a number.

    Raises:
        ValueError: The shares would differ.
    """
    if number % num_learners:
        raise ValueError(
            f"`{name}` must be a multiple of the {num_learners} learners, which take equal shares of it, got "
            f"{number}. Change one of them."
        )
    return number // num_learners


def check_observations(agent: str, spec: specs.EnvironmentSpec) -> None:
    """Checks that observations are numbers of any shape, or a nest of them, that an encoder can take.

    Raises:
        ValueError: A leaf is empty, holds 64-bit floats, or holds no numbers; or there are no leaves.
    """
    leaves = tree.flatten_with_path(spec.observations)
    if not leaves:
        raise ValueError(
            f"{agent} needs observations of at least one number, got {describe(spec.observations)}. Give the "
            "environment an observation; a constant is enough."
        )
    for path, leaf in leaves:
        name = specs.leaf_name("observation", path)
        if not isinstance(leaf, specs.Array) or leaf.dtype.kind not in "biuf":
            raise ValueError(
                f"{agent} needs observations that are numbers, got {specs.describe(leaf)} as `{name}`. Turn "
                "it into numbers, or leave it out, in a wrapper of the environment."
            )
        if leaf.dtype.kind == "f" and leaf.dtype != np.float32:
            raise ValueError(
                f"{agent} needs observations in float32 or in integers, got {specs.describe(leaf)} as "
                f"`{name}`. Wrap the environment, or each one before `make_vector` joins them: "
                "SinglePrecisionWrapper casts float64."
            )
        if 0 in leaf.shape:
            raise ValueError(
                f"{agent} needs observations that hold numbers, got {specs.describe(leaf)} as `{name}`. "
                "Leave it out in a wrapper of the environment."
            )


def critic_entries(agent: str, spec: specs.EnvironmentSpec, config: Any) -> tuple[str, ...]:
    """Returns the entries of the observation that only the agent's critic sees, `critic_observations`.

    Raises:
        ValueError: There are no such entries.
    """
    names = getattr(config, "critic_observations", ())
    try:
        return networks.critic_entries(spec.observations, names)
    except ValueError as error:
        raise ValueError(f"{agent}: {error}") from error


def check_images(agent: str, spec: specs.EnvironmentSpec) -> None:
    """Checks that the observation, or a part of it, is an image, as `random_shift` needs.

    Raises:
        ValueError: No part is an image.
    """
    if not any(networks.is_image(leaf) for leaf in tree.flatten(spec.observations)):
        raise ValueError(
            f"`random_shift` of {agent} needs observations with an image of bytes, got "
            f"{describe(spec.observations)}. Set it to 0."
        )


def check_actions(
    agent: str, spec: specs.EnvironmentSpec, *, takes_choices: bool = False, takes_hybrid: bool = False
) -> None:
    """Checks that actions are one discrete number or one float32 vector with finite bounds.

    Args:
        agent: The agent's name, for messages.
        spec: The environment's spec.
        takes_choices: Whether they may also be a vector of several discrete choices.
        takes_hybrid: Whether hybrid actions are accepted too; see `specs.is_hybrid`.

    Raises:
        ValueError: They are not.
    """
    if isinstance(spec.actions, specs.DiscreteArray):
        return
    if _are_choices(spec.actions):
        if not takes_choices:
            raise ValueError(
                f"{agent} needs actions that are one discrete number or one float32 vector, got several "
                f"discrete choices, {describe(spec.actions)}. Choose an on-policy agent, or number the "
                "combinations in a wrapper of the environment."
            )
        _check_choices(agent, spec.actions)
        return
    if takes_hybrid and specs.is_hybrid(spec.actions):
        check_actions(agent, spec._replace(actions=spec.actions["continuous"]))
        _check_choices(agent, spec.actions["discrete"])
        return
    if not isinstance(spec.actions, specs.Array):
        way_out = "Mixed and nested actions must be joined in a wrapper of the environment."
        if takes_hybrid:
            way_out = "FlatActionWrapper joins nests of actions with bounds, also of both kinds."
        elif specs.is_hybrid(spec.actions):
            way_out = (
                "Choose an agent that takes both kinds (`minerva list agents`), or join them in a wrapper."
            )
        raise ValueError(
            f"{agent} needs actions that are one discrete number or one float32 vector, got "
            f"{describe(spec.actions)}. {way_out}"
        )
    check_vector(
        agent,
        "actions",
        spec.actions,
        "SinglePrecisionWrapper casts floats; a single discrete action must have a DiscreteArray as its spec"
        + (", several a vector of bounded integers." if takes_choices else "."),
    )
    check_bounded(agent, spec)


def check_continuous(agent: str, spec: specs.EnvironmentSpec) -> None:
    """Checks that actions are one float32 vector with finite bounds.

    Raises:
        ValueError: They are not.
    """
    if isinstance(spec.actions, specs.DiscreteArray):
        raise ValueError(
            f"{agent} needs continuous actions, got {describe(spec.actions)}. Choose an agent that takes "
            "discrete ones: `minerva list agents`."
        )
    check_actions(agent, spec)


def check_discrete(agent: str, spec: specs.EnvironmentSpec) -> None:
    """Checks that actions are one discrete number.

    Raises:
        ValueError: They are not.
    """
    if not isinstance(spec.actions, specs.DiscreteArray):
        raise ValueError(
            f"{agent} needs one discrete action, got {describe(spec.actions)}. Choose an agent that takes "
            "continuous ones (`minerva list agents`), or make the action a choice in a wrapper of the "
            "environment."
        )


def _are_choices(spec: Any) -> bool:
    return isinstance(spec, specs.BoundedArray) and spec.dtype.kind in "iu" and len(spec.shape) == 1


def _check_choices(agent: str, spec: specs.BoundedArray) -> None:
    low, high = specs.bounds(spec)
    sizes = high.astype(object) - low + 1  # Python's integers do not overflow
    if not sizes.size or not (sizes >= 1).all() or not (sizes <= _MOST_VALUES).all():
        raise ValueError(
            f"{agent} needs discrete choices of 1 to {_MOST_VALUES} values each, got {describe(spec)}. Make "
            "them coarser in a wrapper of the environment."
        )


def check_bounded(agent: str, spec: specs.EnvironmentSpec) -> None:
    """Checks that actions have finite bounds.

    Raises:
        ValueError: They do not.
    """
    bounded = False
    if isinstance(spec.actions, specs.BoundedArray):
        low, high = specs.bounds(spec.actions)
        bounded = bool(np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all())
    if not bounded:
        raise ValueError(
            f"{agent} needs actions with finite bounds, low below high, got "
            f"{describe(spec.actions)}. Bound them in the environment's action_spec."
        )


def check_scalar_signals(
    agent: str, spec: specs.EnvironmentSpec, *, takes_several_rewards: bool = False
) -> None:
    """Checks that reward and discount are one float32 number each.

    Args:
        agent: The agent's name, for messages.
        spec: The environment's spec.
        takes_several_rewards: True if the reward may also be a dict of such numbers.

    Raises:
        ValueError: They are not.
    """
    rewards = [*spec.rewards.values()] if _is_dict(spec.rewards) and takes_several_rewards else [spec.rewards]
    for name, signal in (*(("rewards", reward) for reward in rewards), ("discounts", spec.discounts)):
        if not isinstance(signal, specs.Array) or signal.dtype != np.float32 or signal.shape != ():
            raise ValueError(
                f"{agent} needs {name} that are one float32 number, got {describe(signal)}. Wrap the "
                "environment, or each one before `make_vector` joins them: SinglePrecisionWrapper casts; "
                "ScalarRewardWrapper sums several rewards with weights."
            )


def _is_dict(spec: Any) -> bool:
    return isinstance(spec, Mapping) and len(spec) > 0


def describe(spec: Any) -> str:
    """Describes a spec, or a nest of specs, in a few words."""
    return specs.describe(spec) if isinstance(spec, specs.Array) else f"a nest, {spec!r}"
