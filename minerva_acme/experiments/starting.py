"""The start of a run from the weights of another one."""

import logging
import os
from collections.abc import Mapping
from typing import Any

import torch

from minerva_acme import core, networks, specs
from minerva_acme.networks import weights
from minerva_acme.runs import checkpointing, policies

_logger = logging.getLogger(__name__)


def take_weights(
    learner: core.Learner,
    source: str | os.PathLike[str],
    device: torch.device,
    spec: specs.EnvironmentSpec,
) -> None:
    """Gives a new learner the weights of a run's learner, with target networks, statistics and multipliers.

    The learner's optimisers, counts and random numbers stay new.

    Args:
        learner: The learner, which has made no step.
        source: The folder of the run, whose newest checkpoint is taken, or of a checkpoint.
        device: The learner's device.
        spec: The specs of the learner's environment.

    Raises:
        ValueError: There is no such run, its networks are not this learner's (the message says where they
            differ), or its actions have other bounds.
        DamagedCheckpoint: It has no undamaged checkpoint.
    """
    checkpoint = checkpointing.find(source)
    state: Any = core.save_if_saveable(learner)
    found: Any = checkpointing.load_state(checkpoint, str(device)).get("learner")
    for each, whose in ((state, "this agent"), (found, str(checkpoint))):
        if not isinstance(each, Mapping) or not isinstance(each.get("modules"), Mapping):
            raise ValueError(
                f"The learner of {whose} must save its networks as `modules`, as a `learners.ModuleLearner` "
                "does, to start from another run's weights. Restore them in `make_learner`."
            )
    if differences := list(_differences(state["modules"], found["modules"])):
        raise ValueError(
            f"The networks of {source} must be those of this run to start from its weights, but "
            f"{'; '.join(differences[:3])}. Use the same agent and preset, on an environment of the same "
            "observations and actions."
        )
    policies.check_actions(source, spec)
    learner.restore({**state, "modules": found["modules"]})
    _logger.info("started from the weights of %s", checkpoint)


def _differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Returns what differs between the weights of two learners, by module and name."""
    if ours.keys() != theirs.keys():
        return [f"its networks are {', '.join(theirs)} there, {', '.join(ours)} here"]
    differing = [
        f"'{name}' of the {module} is {there} there, {here} here"
        for module, own in ours.items()
        for name, here, there in weights.differences(own, theirs[module])
    ]
    return differing or [
        f"'{name}' of the {module} {_describe(theirs[module][name])} there, {_describe(own[name])} here"
        for module, own in ours.items()
        for name in own
        if name.rpartition(".")[2] in networks.CategoricalCriticHead.CONSTANTS
        and not torch.equal(own[name], theirs[module][name])
    ]


def _describe(constant: torch.Tensor) -> str:
    return f"is from {constant.min():g} to {constant.max():g}"
