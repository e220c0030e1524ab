"""Settings of dm_control's tasks that stand in their ids: repeated actions, and pixels."""

from typing import NamedTuple, Self

import dm_env

from minerva_acme import wrappers

_WAY_OUT = "Write repeat=4, or pixels, or settings behind pixels: pixels,repeat=8,frames=3,size=84"


class TaskSettings(NamedTuple):
    """What stands behind a task in its id: `repeat=4`, `pixels` or `pixels,repeat=8`."""

    pixels: bool = False  # whether pictures take the place of observations
    repeat: int = 1  # steps of the task for which an action is repeated; 2 with pixels, if it is not set
    frames: int = 3  # pictures stacked in an observation
    size: int = 84  # of a picture, pixels on each side

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads the last part of an id.

        Raises:
            ValueError: a setting is unknown, comes twice, needs pixels or is no number from 1 on.
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
        """Repeats each action; with pixels, gives stacks of pictures, uint8 [frames, size, size, 3].

        Raises:
            RuntimeError: this machine cannot draw.
        """
        # Repeated inside, so that only what is seen is drawn.
        environment = wrappers.ActionRepeatWrapper(environment, num_repeats=self.repeat)
        if not self.pixels:
            return environment
        environment = wrappers.PixelsWrapper(environment, size=self.size)
        return wrappers.FrameStackWrapper(environment, num_frames=self.frames)
