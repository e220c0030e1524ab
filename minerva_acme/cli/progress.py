"""A progress bar on a terminal, a line now and then elsewhere."""

import time
from types import TracebackType
from typing import Self

from rich import console as rich_console
from rich import progress as rich_progress

from minerva_acme import experiments

_SECONDS_BETWEEN_UPDATES = 0.2
_SECONDS_BETWEEN_LINES = 15.0


class ProgressDisplay:
    """Shows where a run stands; a context manager, called with each `Progress`."""

    def __init__(self, console: rich_console.Console) -> None:
        self._console = console
        self._bar = rich_progress.Progress(
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(bar_width=None),
            rich_progress.TextColumn("{task.completed:,}/{task.total:,}"),
            rich_progress.TimeRemainingColumn(elapsed_when_finished=True),
            rich_progress.TextColumn("{task.fields[state]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task: rich_progress.TaskID | None = None
        self._evaluation: experiments.Evaluation | None = None
        self._next_update = 0.0
        self._next_line = time.monotonic() + _SECONDS_BETWEEN_LINES
        self._first: tuple[float, int] | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def __call__(self, progress: experiments.Progress) -> None:
        now = time.monotonic()
        if progress.last_evaluation is not self._evaluation:
            self._evaluation = progress.last_evaluation
            assert self._evaluation is not None
            self._console.print(
                f"{progress.env_steps:>9,} steps: evaluation return {self._evaluation.mean:8.1f} "
                f"+- {self._evaluation.std:.1f}",
                highlight=False,
            )
        if now < self._next_update and progress.phase == "train":
            return
        self._next_update = now + _SECONDS_BETWEEN_UPDATES
        if self._task is None:
            self._task = self._bar.add_task("", total=progress.num_env_steps, state="")
            self._first = now, progress.env_steps
        self._bar.update(
            self._task,
            completed=progress.env_steps,
            description=progress.phase,
            state=self._state(progress),
        )
        if not self._console.is_terminal and now >= self._next_line:
            self._next_line = now + _SECONDS_BETWEEN_LINES
            speed = self._steps_per_second(progress, now)
            self._console.print(
                f"{progress.env_steps:>9,}/{progress.num_env_steps:,} steps, {speed:.0f} steps/s, "
                f"{progress.learner_steps:,} learner steps, {self._state(progress)}",
                highlight=False,
            )

    def _steps_per_second(self, progress: experiments.Progress, now: float) -> float:
        assert self._first is not None
        started, steps = self._first
        return (progress.env_steps - steps) / max(now - started, 1e-9)

    def _state(self, progress: experiments.Progress) -> str:
        if progress.last_episode_return is None:
            return ""
        return f"episode return {progress.last_episode_return:.1f}"
