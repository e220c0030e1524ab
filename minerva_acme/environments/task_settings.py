"""Settings of dm_control's tasks in their ids: repeated actions, and pixels."""

from typing import NamedTuple, Self

import dm_env

from minerva_acme import wrappers

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

    def wrap(self, environment: dm_env.Environment) -> dm_env.Environment:
        """Repeats each action; with pixels, gives stacks of images, uint8 [frames, size, size, 3].

        Raises:
            RuntimeError: This machine cannot draw.
        """
        # The repeat is inside, so that only the images that the agent sees are drawn.
        environment = wrappers.ActionRepeatWrapper(environment, num_repeats=self.repeat)
        if not self.pixels:
            return environment
        environment = wrappers.PixelsWrapper(environment, size=self.size)
        return wrappers.FrameStackWrapper(environment, num_frames=self.frames)
