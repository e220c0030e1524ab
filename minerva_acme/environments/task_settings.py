"""Settings of dm_control's tasks in their ids: repeated actions, and pixels.

This module only handles text: stored results are read without a simulator and without numpy.
"""

import os
from typing import NamedTuple, Self

RECORDED = "recorded/"
"""The beginning of the id of an environment that only has the specs of recorded episodes, in the folder that
follows."""


def recorded(folder: str | os.PathLike[str]) -> str:
    """Returns the id of the environment of recorded episodes in a folder."""
    return f"{RECORDED}{os.path.normpath(folder)}"


_WAY_OUT = "Write repeat=4, or pixels, or settings after pixels: pixels,repeat=8,frames=3,size=84"


class TaskSettings(NamedTuple):
    """The settings after a task in its id: `repeat=4`, `pixels` or `pixels,repeat=8`."""

    pixels: bool = False  # whether observations are replaced by images
    repeat: int = 1  # steps of the task for which an action is repeated; with pixels, 2 by default
    frames: int = 3  # images stacked in an observation
    size: int = 84  # pixels on each side of an image

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads the last part of an id.

        Raises:
            ValueError: A setting is unknown, given twice, needs pixels or is not a number >= 1.
        """
        settings = text.split(",")
        pixels = settings[0] == "pixels"
        if pixels:
            settings = settings[1:]
        known = ["repeat", "frames", "size"] if pixels else ["repeat"]
        given: dict[str, int] = {}
        for setting in settings:
            name, _, value = setting.partition("=")
            if name not in known or name in given or not value.isdecimal() or int(value) < 1:
                what = "pixels" if pixels else "a task of dm_control without pixels"
                raise ValueError(
                    f"The settings of {what} must be {', '.join(known)}, each once with a number >= 1, got "
                    f"'{setting}'. {_WAY_OUT}"
                )
            given[name] = int(value)
        return cls(pixels=pixels, **({"repeat": 2 if pixels else 1} | given))


class BaseTask(NamedTuple):
    """An environment as results name it, and the number of its steps for which a decision lasts."""

    env_name: str  # without the action repeat; Gymnasium's ids without `gymnasium/`
    action_repeat: int | None  # None: unknown, because the user's own code makes the environment


def split_repeat(environment_id: str) -> BaseTask:
    """Splits an environment's id into its base task and its action repeat; all other settings stay.

        dm_control/cheetah/run                          dm_control/cheetah/run             1
        dm_control/cheetah/run/repeat=2                 dm_control/cheetah/run             2
        dm_control/cheetah/run/pixels                   dm_control/cheetah/run/pixels      2
        dm_control/cheetah/run/pixels,repeat=8,size=64  dm_control/cheetah/run/pixels,...  8
        gymnasium/CartPole-v1                           CartPole-v1                        1

    Raises:
        ValueError: The settings of a dm_control task cannot be read.
    """
    name = environment_id.removeprefix("gymnasium/")
    *task, settings = name.split("/", 3)
    if len(task) < 3 or task[0] != "dm_control" or not settings:
        return BaseTask(name, 1)
    others = ",".join(one for one in settings.split(",") if not one.startswith("repeat="))
    return BaseTask("/".join([*task, *filter(None, [others])]), TaskSettings.parse(settings).repeat)
