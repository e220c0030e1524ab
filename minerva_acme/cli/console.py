"""The console that commands print on."""

import rich.console


class Console(rich.console.Console):
    """A console that prints text as it is, in lines of any length.

    What users typed is no markup: Rich would draw the `:Robot:` of `my_robot:Robot: 15 ok` as a face, and
    leave out the `[seed]` of a path.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        """Args: stderr: Whether to print on standard error."""
        super().__init__(highlight=False, soft_wrap=True, markup=False, emoji=False, stderr=stderr)
