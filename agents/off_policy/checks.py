"""Checks, once and before the first step, of what an agent on the kit makes."""

import math
import numbers
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn


def modules_of(agent: str, networks: Any) -> dict[str, nn.Module]:
    """Returns the modules of what `make_networks` returned, by name.

    Raises:
        TypeError: It is no named tuple of modules.
    """
    modules = networks._asdict() if isinstance(networks, tuple) and hasattr(networks, "_asdict") else {}
    strange = [
        f"{type(each).__name__} as '{name}'"
        for name, each in modules.items()
        if not isinstance(each, nn.Module)
    ]
    if not modules or strange:
        found = ", ".join(strange) or type(networks).__name__
        raise TypeError(
            f"`make_networks` of {agent} must return a named tuple of modules, got {found}. Define one: "
            "class MyNetworks(NamedTuple), with a line `policy: nn.Module` for each module."
        )
    return modules


def check_objectives(agent: str, objectives: Any, kind: type[Any]) -> None:
    """Checks the objectives that `make_objectives` returned, without regard to the modules.

    Args:
        agent: The name of the builder's class, for messages.
        objectives: What it returned.
        kind: The class of an objective.

    Raises:
        TypeError: It is no mapping of objectives.
        ValueError: A number in one of them is out of its range.
    """
    if not isinstance(objectives, Mapping):
        raise TypeError(
            f"`make_objectives` of {agent} must return a dict, got {type(objectives).__name__}. Write "
            '{"policy": off_policy.Objective(loss, learning_rate)}.'
        )
    for name, objective in objectives.items():
        if not isinstance(objective, kind) or not callable(objective.loss):
            found = objective.loss if isinstance(objective, kind) else objective
            raise TypeError(
                f"The objective '{name}' of {agent} must be an `off_policy.Objective` of a loss function, "
                f"got {type(found).__name__}. Write off_policy.Objective(loss, learning_rate)."
            )
        for field, is_right, range_ in (
            ("learning_rate", lambda rate: 0.0 <= rate < math.inf, "a finite number >= 0"),
            ("max_grad_norm", lambda norm: norm > 0.0, "a number > 0; math.inf clips nothing"),
            (
                "period",
                lambda period: isinstance(period, numbers.Integral) and int(period) >= 1,
                "a whole number >= 1",
            ),
        ):
            value = getattr(objective, field)
            if not isinstance(value, numbers.Real | torch.Tensor) or not is_right(value):
                raise ValueError(
                    f"`{field}` of the objective '{name}' of {agent} must be {range_}, got {value!r}."
                )


def check_targets(
    agent: str, modules: Mapping[str, nn.Module], objectives: Mapping[str, Any], moves_targets: bool
) -> None:
    """Checks that target networks are apart from what is trained, and that something moves them.

    Args:
        agent: The name of the builder's class, for messages.
        modules: All modules, by name. Those with "target" in their name that are not trained are targets.
        objectives: The objectives, by name.
        moves_targets: True if the builder or the learner may move targets.

    Raises:
        ValueError: A target is what is trained, or nothing moves it.
    """
    trained = {part for name, objective in objectives.items() for part in objective.modules or [name]}
    taken = {parameter for name in trained for parameter in modules[name].parameters()}
    for name, module in modules.items():
        parameters = [*module.parameters()]
        if "target" not in name or name in trained or not parameters:
            continue
        if any(p.requires_grad for p in parameters) and all(p in taken for p in parameters):
            raise ValueError(
                f"The target network '{name}' of {agent} must have parameters of its own, but all of them "
                "are trained by an objective. Make a copy: learners.make_target(network). To "
                "learn without a target network, leave it out of the networks."
            )
        if not moves_targets:
            raise ValueError(
                f"{agent} must define `update_targets`, since its networks have the target network '{name}', "
                "which nothing would move. Call `learners.update_target` there, or do nothing there if it "
                "should stay as it is."
            )
