"""What a training shows: a live block of 80 columns on a terminal, a line now and then elsewhere."""

import collections
import statistics
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import NamedTuple, Self

from rich import console as rich_console
from rich import live as rich_live
from rich import progress_bar as rich_bar
from rich import table as rich_table
from rich import text as rich_text

from minerva_acme import experiments

COLUMNS = 80

_SECONDS_BETWEEN_UPDATES = 0.25
_SECONDS_BETWEEN_LINES = 15.0
_SECONDS_OF_SPEED = 30.0
_NUM_RETURNS = 10
_MAX_LOSSES = 4


class _Moment(NamedTuple):
    seconds: float
    env_steps: int
    learner_steps: int


class ProgressDisplay:
    """Shows where a run stands; a context manager, called with each `Progress`.

    train      ━━━━━━━━━━━━━━                      12,345/30,000 steps  0:03:06 left
    speed      95 environment steps/s, 24 learner steps/s, 2,837 made
    returns    last 512.3, mean of the last 10: 498.2, episode 12
    evaluation 455.2 +- 12.1 at 10,000 steps, best 455.2
    losses     policy -0.0123  q 1,946  temperature 0.762  alpha_mean 0.0196
    KL/bound   mean 0.98  stddev 0.40  q 1.01
    replay     12,345 of 1,000,000 items, 63.8 samples per insert
    """

    def __init__(
        self,
        console: rich_console.Console,
        *,
        kl_bounds: Mapping[str, float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Shows nothing yet.

        Args:
            console: where to show it.
            kl_bounds: bounds of KLs that the learner logs as they are, by the metric's name; those
                that are logged relative to theirs end in `_rel` and need none.
            clock: seconds.
        """
        self._console = console
        self._kl_bounds = dict(kl_bounds or {})
        self._clock = clock
        self._live = rich_live.Live(console=console, auto_refresh=False)
        self._moments: collections.deque[_Moment] = collections.deque()
        self._returns: collections.deque[float] = collections.deque(maxlen=_NUM_RETURNS)
        self._num_episodes = 0
        self._evaluation: experiments.Evaluation | None = None
        self._evaluated_at = 0
        self._best = -float("inf")
        self._next_update = -float("inf")
        self._next_line = clock() + _SECONDS_BETWEEN_LINES
        self._phase = ""

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.stop()

    def __call__(self, progress: experiments.Progress) -> None:
        if progress.last_evaluation is not self._evaluation:
            self._note_evaluation(progress)
        if progress.num_episodes != self._num_episodes and progress.last_episode_return is not None:
            self._num_episodes = progress.num_episodes
            self._returns.append(progress.last_episode_return)
        now = self._clock()
        if now < self._next_update and progress.phase == self._phase:
            return
        self._next_update = now + _SECONDS_BETWEEN_UPDATES
        self._phase = progress.phase
        self._note_moment(_Moment(now, progress.env_steps, progress.learner_steps))
        if self._console.is_terminal:
            self._live.update(self.block(progress), refresh=True)
        elif now >= self._next_line:
            self._next_line = now + _SECONDS_BETWEEN_LINES
            self._console.print(self.line(progress), highlight=False, soft_wrap=True)

    def block(self, progress: experiments.Progress) -> rich_table.Table:
        """Returns what a terminal shows."""
        width = min(COLUMNS, self._console.width)
        block = rich_table.Table.grid(padding=(0, 1))
        block.width = width
        block.add_column(no_wrap=True, style="bold", width=10)
        block.add_column(no_wrap=True, overflow="ellipsis", width=width - 11)
        block.add_row(progress.phase, self._bar(progress, width - 11))
        for label, text in self._rows(progress):
            block.add_row(label, text)
        return block

    def line(self, progress: experiments.Progress) -> str:
        """Returns what a file or a pipe gets."""
        env_speed, _ = self._speeds()
        parts = [
            f"{progress.env_steps:>9,}/{progress.num_env_steps:,} steps",
            f"{env_speed:.0f} steps/s",
            f"{progress.learner_steps:,} learner steps",
            f"{self._time_left(progress)} left",
        ]
        if self._returns:
            parts.append(f"return {self._returns[-1]:.1f}")
        parts += [f"{name} {_number(value)}" for name, value in _losses(progress.metrics).items()]
        parts += [f"KL {name}/bound {_number(value)}" for name, value in self._kls(progress.metrics).items()]
        if "replay/size" in progress.metrics:
            parts.append(f"replay {progress.metrics['replay/size']:,.0f}")
        return ", ".join(parts)

    def _note_evaluation(self, progress: experiments.Progress) -> None:
        self._evaluation = progress.last_evaluation
        assert self._evaluation is not None
        # On the first call of a resumed run it is one of before.
        self._evaluated_at = progress.env_steps
        self._best = max(self._best, self._evaluation.mean)
        if not self._console.is_terminal:
            self._console.print(
                f"{progress.env_steps:>9,} steps: evaluation return {self._evaluation.mean:8.1f} "
                f"+- {self._evaluation.std:.1f}",
                highlight=False,
                soft_wrap=True,
            )

    def _note_moment(self, moment: _Moment) -> None:
        self._moments.append(moment)
        while len(self._moments) > 2 and moment.seconds - self._moments[1].seconds >= _SECONDS_OF_SPEED:
            self._moments.popleft()

    def _speeds(self) -> tuple[float, float]:
        """Environment and learner steps a second, of late."""
        if len(self._moments) < 2:
            return 0.0, 0.0
        first, last = self._moments[0], self._moments[-1]
        seconds = max(last.seconds - first.seconds, 1e-9)
        return (
            (last.env_steps - first.env_steps) / seconds,
            (last.learner_steps - first.learner_steps) / seconds,
        )

    def _time_left(self, progress: experiments.Progress) -> str:
        speed, _ = self._speeds()
        left = max(0, progress.num_env_steps - progress.env_steps)
        return _clock_time(left / speed) if speed > 0 else "-:--:--"

    def _bar(self, progress: experiments.Progress, width: int) -> rich_table.Table:
        steps = f"{progress.env_steps:,}/{progress.num_env_steps:,} steps"
        text = f" {steps}  {self._time_left(progress)} left"
        grid = rich_table.Table.grid()
        bar_width = max(1, width - len(text))
        bar = rich_bar.ProgressBar(
            total=progress.num_env_steps,
            completed=min(progress.env_steps, progress.num_env_steps),
            width=bar_width,
            complete_style="cyan",
            finished_style="green",
        )
        grid.add_column(width=bar_width)
        grid.add_column(no_wrap=True)
        grid.add_row(bar, text)
        return grid

    def _rows(self, progress: experiments.Progress) -> list[tuple[str, rich_text.Text]]:
        env_speed, learner_speed = self._speeds()
        metrics = progress.metrics
        rows = {
            "speed": f"{_number(env_speed)} environment steps/s, {_number(learner_speed)} learner steps/s, "
            f"{progress.learner_steps:,} made",
            "returns": "",
            "evaluation": "",
            "losses": "  ".join(f"{name} {_number(value)}" for name, value in _losses(metrics).items()),
            "KL/bound": "  ".join(f"{name} {value:.2f}" for name, value in self._kls(metrics).items()),
            "replay": "",
        }
        if self._returns:
            rows["returns"] = (
                f"last {self._returns[-1]:,.1f}, mean of the last {len(self._returns)}: "
                f"{statistics.fmean(self._returns):,.1f}, episode {progress.num_episodes:,}"
            )
        if self._evaluation is not None:
            rows["evaluation"] = (
                f"{self._evaluation.mean:,.1f} +- {self._evaluation.std:,.1f} at "
                f"{self._evaluated_at:,} steps, best {self._best:,.1f}"
            )
        if "replay/size" in metrics:
            rows["replay"] = (
                f"{metrics['replay/size']:,.0f} of {metrics['replay/max_size']:,.0f} items, "
                f"{metrics['replay/samples_per_insert']:.3g} samples per insert"
            )
        return [(label, rich_text.Text(text)) for label, text in rows.items() if text]

    def _kls(self, metrics: Mapping[str, float]) -> dict[str, float]:
        relative = {
            name.removeprefix("kl/").removesuffix("_rel"): value
            for name, value in metrics.items()
            if name.startswith("kl/") and name.endswith("_rel")
        }
        for name, bound in self._kl_bounds.items():
            if name in metrics:
                relative[name.partition("/")[2]] = metrics[name] / bound
        return relative


def _losses(metrics: Mapping[str, float]) -> dict[str, float]:
    """The losses, the policy's and the critic's before those of the multipliers."""
    losses = {name.removeprefix("loss/"): v for name, v in metrics.items() if name.startswith("loss/")}
    first = [name for name in ("policy", "q", "value", "total") if name in losses]
    names = [*first, *(name for name in losses if name not in first)]
    return {name: losses[name] for name in names[:_MAX_LOSSES]}


def _number(value: float) -> str:
    """Three significant digits, of numbers from a thousand on all before the point."""
    return f"{value:,.0f}" if abs(value) >= 999.5 and abs(value) < 1e9 else f"{value:.3g}"


def _clock_time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
