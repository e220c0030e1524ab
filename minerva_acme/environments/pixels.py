"""Tasks of dm_control from pixels, as their ids say it."""

from typing import NamedTuple, Self

import dm_env

from minerva_acme import wrappers

_WAY_OUT = "Write pixels, or settings behind it: pixels,repeat=8,frames=3,size=84"


class PixelSettings(NamedTuple):
    """What stands behind a task in its id: `pixels`, or `pixels,repeat=8`."""

    repeat: int = 2  # steps of the task for which an action is repeated
    frames: int = 3  # stacked in an observation
    size: int = 84  # of a frame, pixels on each side

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads the last part of an id.

        Raises:
            ValueError: it is not `pixels`, or its settings are unknown or no numbers from 1 on.
        """
        first, *settings = text.split(",")
        if first != "pixels":
            raise ValueError(
                f"The part of an id behind dm_control's task must be pixels, got '{text}'. {_WAY_OUT}"
            )
        values: dict[str, int] = {}
        for setting in settings:
            name, _, value = setting.partition("=")
            if name not in cls._fields or name in values or not value.isdecimal() or int(value) < 1:
                known = ", ".join(cls._fields)
                raise ValueError(
                    f"The settings of pixels must be {known}, each once with a number >= 1, got '{setting}'. "
                    f"{_WAY_OUT}"
                )
            values[name] = int(value)
        return cls(**values)

    def wrap(self, environment: dm_env.Environment) -> dm_env.Environment:
        """Gives stacks of pictures, uint8 [frames, size, size, 3], one for each repeated action.

        Raises:
            RuntimeError: this machine cannot draw.
        """
        # Repeated inside, so that only what is seen is drawn.
        environment = wrappers.ActionRepeatWrapper(environment, num_repeats=self.repeat)
        environment = wrappers.PixelsWrapper(environment, size=self.size)
        return wrappers.FrameStackWrapper(environment, num_frames=self.frames)
