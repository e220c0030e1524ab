"""The start of a run from what fits of another one."""

import logging
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import torch

from minerva_acme import core, networks, specs
from minerva_acme.networks import weights
from minerva_acme.replay import backends
from minerva_acme.replay import base as replay
from minerva_acme.runs import checkpointing, policies, run_folder

_logger = logging.getLogger(__name__)

_Part = tuple[str, str]  # a module, and its child or own array
_Weights = Mapping[str, torch.Tensor]

_TAKEN = "taken"


def take_weights(
    learner: core.Learner,
    source: str | os.PathLike[str],
    device: torch.device,
    spec: specs.EnvironmentSpec,
    *,
    has_replay: bool = False,
) -> None:
    """Gives a new learner what fits of a run's learner: networks, target networks, statistics, multipliers.

    A part of a module, such as the encoder of a policy, fits if all its arrays have the names and shapes of
    those there. Parts are taken in the module's order up to the first that does not fit, since a head is of
    no use behind another torso. A target network that is not there begins as the network that it follows. If
    anything is left, a warning says line by line what was taken and what was left, and why. The learner's
    optimisers, counts and random numbers stay new.

    Args:
        learner: The learner, which has made no step.
        source: The folder of the run, whose newest checkpoint is taken, or of a checkpoint.
        device: The learner's device.
        spec: The specs of the learner's environment.
        has_replay: Whether `open_replay` has taken the run's replay, for the message.

    Raises:
        ValueError: There is no such run, nothing of it fits, or its actions have other bounds.
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
    policies.check_actions(source, spec)
    ours, theirs = _parts(state["modules"]), _parts(found["modules"])
    fates: dict[_Part, str] = {}
    behind: dict[str, str] = {}  # by module: what becomes of parts behind the first that does not fit
    for part, own in ours.items():
        fates[part] = _misfit(own, theirs.get(part)) or behind.get(part[0], _TAKEN)
        if fates[part] != _TAKEN:
            behind.setdefault(part[0], f"left, since it comes behind {part[1]}")
    sources = {part: theirs[part] for part, fate in fates.items() if fate == _TAKEN}
    for part in [part for part in ours if part not in sources]:
        followed = [other for other in sources if other[1] == part[1] and _are_same(ours[other], ours[part])]
        if part[0] not in found["modules"] and followed:
            sources[part], fates[part] = theirs[followed[0]], f"{_TAKEN} from the {followed[0][0]}"
    fates |= {part: "left, since it is missing here" for part in theirs if part not in ours}
    lines = _describe(fates) + ["replay: taken"] * has_replay
    if not sources:
        raise ValueError(
            f"Some network of {source} must fit this run to start from its weights, but none does "
            f"({'; '.join(lines)}). Use the same agent and preset, on an environment of the same "
            "observations and actions."
        )
    modules = {name: dict(module) for name, module in state["modules"].items()}
    for (name, _), taken in sources.items():
        modules[name].update(taken)
    learner.restore({**state, "modules": modules})
    is_all = all(fate == _TAKEN for fate in fates.values())
    _logger.log(
        logging.INFO if is_all else logging.WARNING,
        "started from %s of %s:\n  %s",
        "all" if is_all else "what fits",
        checkpoint,
        "\n  ".join(lines),
    )


def open_replay(
    make: Callable[[str | None], replay.ReplayServer],
    source: str | os.PathLike[str],
    ours: run_folder.RunDescription,
) -> replay.ReplayServer:
    """Makes the replay of a new run, with the items of another run in the same environment if they fit.

    Args:
        make: The function that makes a server from a checkpoint, or an empty one from None.
        source: The folder of the other run, or of one of its checkpoints.
        ours: The description of the new run.

    Raises:
        ValueError: There is no such run.
        ReplayError: Its replay is damaged.
    """
    folder = policies.run_of(pathlib.Path(source))
    files = checkpointing.replay_folder(checkpointing.find(source, with_replay=True))
    if not (folder / run_folder.FILE).exists() or files is None:
        return make(None)
    theirs = run_folder.read(folder)
    if theirs.options.get("dataset"):  # which it has learned from, so that its replay is empty
        return make(None)
    if theirs.task != ours.task or "environment" in {**theirs.unknown, **ours.unknown}:
        _logger.warning(
            "replay begins empty: the items of %s are from %s, and this run plays in %s%s",
            source,
            theirs.task,
            ours.task,
            ", which may differ" if theirs.task == ours.task else "",
        )
        return make(None)
    return backends.restore_or_begin_empty(make, str(files.resolve()))


def _parts(modules: Mapping[str, _Weights]) -> dict[_Part, dict[str, torch.Tensor]]:
    """Splits the state dicts of modules by the children of these."""
    parts: dict[_Part, dict[str, torch.Tensor]] = {}
    for module, arrays in modules.items():
        for name, array in arrays.items():
            parts.setdefault((module, name.partition(".")[0]), {})[name] = array
    return parts


def _misfit(own: _Weights, theirs: _Weights | None) -> str:
    """Returns why the weights of a part are left, or "" if they fit."""
    if theirs is None:
        return "left, since it is missing there"
    for name, here, there in weights.differences(own, theirs):
        return f"left, since '{name}' is {there} there, {here} here"
    for name, array in own.items():
        is_constant = name.rpartition(".")[2] in networks.CategoricalCriticHead.CONSTANTS
        if is_constant and not torch.equal(array, theirs[name]):
            there, here = (f"from {x.min():g} to {x.max():g}" for x in (theirs[name], array))
            return f"left, since '{name}' is {there} there, {here} here"
    return ""


def _are_same(ours: _Weights, others: _Weights) -> bool:
    return ours.keys() == others.keys() and all(torch.equal(x, others[name]) for name, x in ours.items())


def _describe(fates: Mapping[_Part, str]) -> list[str]:
    """Returns a line for each part, or for a module if all its parts have the same fate."""
    lines = []
    for module in dict.fromkeys(module for module, _ in fates):
        parts = {child: fate for (name, child), fate in fates.items() if name == module}
        if len({*parts.values()}) == 1:
            lines.append(f"{module}: {next(iter(parts.values()))}")
        else:
            lines += [f"{module}.{child}: {fate}" for child, fate in parts.items()]
    return lines
