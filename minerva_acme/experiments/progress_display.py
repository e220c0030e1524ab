"""The progress display of a run: a block of 80 columns that is updated on a terminal and in a notebook, and
occasional lines elsewhere."""

import collections
import contextlib
import importlib
import io
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, Self, TypeAlias

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from minerva_acme.experiments import progress as run_progress
from minerva_acme.runs import evaluation, options

COLUMNS = 80

_SECONDS_BETWEEN_UPDATES = 0.25
_SECONDS_BETWEEN_LINES = 15.0
_SECONDS_OF_SPEED = 30.0
_SECONDS_TO_ESTIMATE = 5.0  # of training, before the time left is told
_NUM_RETURNS = 10
_MAX_LOSSES = 4
_MAX_METRICS = 4
_MAX_NODES = 12


class _Moment(NamedTuple):
    seconds: float
    env_steps: int
    learner_steps: int


class LiveDisplay:
    """A context manager that shows a live block on a terminal or in a notebook, and nothing elsewhere."""

    def __init__(self, console: Console, *, transient: bool = False) -> None:
        """Args: console: Where to show it. transient: Whether a terminal removes it at the end."""
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=transient)
        self._output: Any = None  # of a notebook's cell

    @property
    def is_live(self) -> bool:
        """Whether there is a terminal or a notebook that can show a block."""
        return self._console.is_terminal or self._console.is_jupyter

    def show(self, block: RenderableType) -> None:
        """Shows a block in place of the last one."""
        if not self._console.is_jupyter:
            self._live.update(block, refresh=True)
            return
        # By the notebook's own means: rich would need ipywidgets.
        text = io.StringIO()
        Console(file=text, width=COLUMNS, force_jupyter=False, color_system=None).print(block)
        content = {"text/plain": "\n".join(line.rstrip() for line in text.getvalue().splitlines())}
        if self._output is None:
            display = importlib.import_module("IPython.display").display
            self._output = display(content, raw=True, display_id=True)
        else:
            self._output.update(content, raw=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()


class ProgressDisplay(LiveDisplay):
    """Shows the progress of a run; called with each `Progress`.

    train      ━━━━━━━━━━━━━━                      12,345/30,000 steps  0:03:06 left
    speed      95 environment steps/s, 24 learner steps/s, 2,837 made
    returns    last 512.3, mean of the last 10: 498.2, episode 12
    evaluation 455.2 ± 12.1 at 10,000 steps, best 455.2
    metrics    info/is_success/last 0.7
    losses     policy -0.0123  critic 1,946  temperature 0.762  alpha_mean 0.0196
    KL/bound   mean 0.98  stddev 0.40  q 1.01
    replay     12,345 of 1,000,000 items, 63.8 samples per insert

    A distributed run also has a row for each node, and a row `waits` that says which node waits for which.
    """

    def __init__(
        self,
        console: Console | None = None,
        *,
        seconds: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepares the display; shows nothing yet.

        Args:
            console: The console on which to show it; None for one on stdout.
            seconds: The time after which the run stops.
            clock: Returns the current time in seconds.
        """
        super().__init__(console or Console(highlight=False, soft_wrap=True))
        self._clock = clock
        self._ends_at = clock() + seconds
        self._moments: collections.deque[_Moment] = collections.deque()
        self._returns: collections.deque[float] = collections.deque(maxlen=_NUM_RETURNS)
        self._num_episodes = 0
        self._evaluation: evaluation.Evaluation | None = None
        self._evaluated_at = 0
        self._best = -float("inf")
        self._phase = ""
        self._is_training = False
        self._next_update = -float("inf")
        self._next_line = clock() + _SECONDS_BETWEEN_LINES

    def __call__(self, progress: run_progress.Progress) -> None:
        if progress.replay_memory and not self._moments:
            self._print(f"{progress.replay_memory}.")
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
        if progress.phase == "train" and not self._is_training:
            self._is_training = True
            self._moments.clear()  # evaluations before the first step say nothing of its speed
        self._moments.append(_Moment(now, progress.env_steps, progress.learner_steps))
        while len(self._moments) > 2 and now - self._moments[1].seconds >= _SECONDS_OF_SPEED:
            self._moments.popleft()
        if self.is_live:
            self.show(self.block(progress))
        elif now >= self._next_line:
            self._next_line = now + _SECONDS_BETWEEN_LINES
            self._print(self.line(progress))
            if "waits" in progress.nodes:
                self._print(progress.nodes["waits"])

    def block(self, progress: run_progress.Progress) -> Table:
        """Returns the block for a terminal."""
        width = min(COLUMNS, self._console.width)
        block = Table.grid(padding=(0, 1))
        block.width = width
        block.add_column(no_wrap=True, style="bold", width=10)
        block.add_column(no_wrap=True, overflow="ellipsis", width=width - 11)
        total, made = progress.num_steps, progress.steps
        text = f" {made:,}/{total:,} steps  {self._time_left(progress)} left"
        bar = ProgressBar(
            total=total,
            completed=min(made, total),
            width=max(1, width - 11 - len(text)),
            complete_style="cyan",
            finished_style="green",
        )
        bar_and_text = Table.grid()
        bar_and_text.add_row(bar, Text(text, no_wrap=True))
        block.add_row(progress.phase, bar_and_text)
        for label, text in self._rows(progress).items():
            block.add_row(label, Text(text))
        return block

    def line(self, progress: run_progress.Progress) -> str:
        """Returns the line for a file or a pipe."""
        env_speed, learner_speed = self._speeds()
        plays = progress.num_env_steps > 0
        parts = [
            f"{progress.steps:>9,}/{progress.num_steps:,} {'' if plays else 'learner '}steps",
            f"{env_speed if plays else learner_speed:.0f} steps/s",
            *([f"{progress.learner_steps:,} learner steps"] if plays else []),
            f"{self._time_left(progress)} left",
        ]
        if self._returns:
            parts.append(f"return {self._returns[-1]:.1f}")
        parts += [f"{name} loss {_number(value)}" for name, value in _losses(progress.metrics)]
        parts += [f"KL {name}/bound {_number(value)}" for name, value in _kls(progress.metrics).items()]
        if plays and "replay/size" in progress.metrics:
            parts.append(f"replay {progress.metrics['replay/size']:,.0f}")
        return ", ".join(parts)

    def _note_evaluation(self, progress: run_progress.Progress) -> None:
        self._evaluation = progress.last_evaluation
        assert self._evaluation is not None
        # On the first call of a resumed run this evaluation is an earlier one.
        self._evaluated_at = progress.steps
        self._best = max(self._best, self._evaluation.score(progress.metric))
        if not self.is_live:
            mean, std = self._evaluation.mean, self._evaluation.std
            returns = f"{progress.steps:>9,} steps: evaluation return {mean:8.1f} ± {std:.1f}"
            self._print(", ".join([returns, *self._metrics(progress)]))

    def _metrics(self, progress: run_progress.Progress) -> list[str]:
        """Returns the first metrics beside the return of the last evaluation; what chooses the best leads."""
        found = {} if self._evaluation is None else self._evaluation.beside_return(progress.metric)
        return [f"{name} {_number(value)}" for name, value in [*found.items()][:_MAX_METRICS]]

    def _print(self, text: str) -> None:
        if self._console.is_jupyter:  # plain text, which every viewer of notebooks shows
            sys.stdout.write(f"{text}\n")
        else:
            self._console.print(text, highlight=False, soft_wrap=True)

    def _speeds(self) -> tuple[float, float]:
        """Returns environment steps and learner steps per second over the last half minute."""
        ends = zip(self._moments[0], self._moments[-1], strict=True)
        seconds, env_steps, learner_steps = (last - first for first, last in ends)
        return (env_steps / seconds, learner_steps / seconds) if seconds > 0 else (0.0, 0.0)

    def _time_left(self, progress: run_progress.Progress) -> str:
        env_speed, learner_speed = self._speeds()
        speed = env_speed if progress.num_env_steps else learner_speed
        seconds = self._moments[-1].seconds - self._moments[0].seconds
        # Steps before the first learner step take a fraction of the later ones' time.
        is_known = speed > 0 and seconds >= _SECONDS_TO_ESTIMATE and progress.learner_steps > 0
        left = max(0, progress.num_steps - progress.steps) / speed if is_known else math.inf
        left = min(left, max(0.0, self._ends_at - self._clock()))
        if left == math.inf:
            return "-:--:--"
        minutes, seconds = divmod(round(left), 60)
        return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"

    def _rows(self, progress: run_progress.Progress) -> dict[str, str]:
        """Returns the text of each row by its label, for all values known so far."""
        env_speed, learner_speed = self._speeds()
        metrics = progress.metrics
        plays = progress.num_env_steps > 0
        environment_speed = f"{_number(env_speed)} environment steps/s, " if plays else ""
        rows = {
            "speed": f"{environment_speed}{_number(learner_speed)} learner steps/s, "
            f"{progress.learner_steps:,} made"
        }
        if self._returns:
            rows["returns"] = (
                f"last {self._returns[-1]:,.1f}, mean of the last {len(self._returns)}: "
                f"{statistics.fmean(self._returns):,.1f}, episode {progress.num_episodes:,}"
            )
        if self._evaluation is not None:
            is_return = progress.metric == options.RETURN
            best = f"{self._best:,.1f}" if is_return else f"{progress.metric} {_number(self._best)}"
            rows["evaluation"] = (
                f"{self._evaluation.mean:,.1f} ± {self._evaluation.std:,.1f} at "
                f"{self._evaluated_at:,} steps, best {best}"
            )
            if found := self._metrics(progress):
                rows["metrics"] = "  ".join(found)
        if losses := _losses(metrics):
            rows["losses"] = "  ".join(f"{name} {_number(value)}" for name, value in losses)
        if kls := _kls(metrics):
            rows["KL/bound"] = "  ".join(f"{name} {value:.2f}" for name, value in kls.items())
        if plays and "replay/size" in metrics:
            rows["replay"] = (
                f"{metrics['replay/size']:,.0f} of {metrics['replay/max_size']:,.0f} items, "
                f"{metrics['replay/samples_per_insert']:.3g} samples per insert"
            )
        nodes = list(progress.nodes.items())
        rows |= dict(nodes[:_MAX_NODES])
        if len(nodes) > _MAX_NODES:
            rows["..."] = f"{len(nodes) - _MAX_NODES} more"
        return rows


ShownProgress: TypeAlias = ProgressDisplay | Literal["auto"] | None
"""The display of a run's progress; "auto" for one where stdout is a terminal or a notebook, None for none."""


@contextlib.contextmanager
def shown(progress: ShownProgress, run: options.RunOptions) -> Iterator[list[ProgressDisplay]]:
    """Shows the progress of a run inside the block.

    Args:
        progress: The display.
        run: The run's options.

    Yields:
        The callbacks to call with the progress, one or none.

    Raises:
        ValueError: `progress` is something else.
    """
    if isinstance(progress, str) and progress == "auto":
        minutes = run.stop_after_minutes
        seconds = math.inf if minutes is None else 60.0 * minutes
        progress = ProgressDisplay(seconds=seconds) if _is_interactive() else None
    if not isinstance(progress, ProgressDisplay | None):
        raise ValueError(
            "`progress` must be 'auto', None for no display, or a ProgressDisplay, got "
            f"{progress!r}. Give other callbacks after the config: run_experiment(config, callback)."
        )
    with progress or contextlib.nullcontext():
        yield [] if progress is None else [progress]


def _is_interactive() -> bool:
    """Whether stdout is a terminal or a notebook. FORCE_COLOR, by which rich sees terminals, is ignored."""
    try:
        return Console().is_jupyter or bool(sys.stdout.isatty())
    except (AttributeError, ValueError):  # it is missing, replaced or closed
        return False


def _losses(metrics: Mapping[str, float]) -> list[tuple[str, float]]:
    """Returns the first few losses: policy and critic come before the multipliers."""
    first = ["policy", "critic", "value", "network"]
    losses = [(name.removeprefix("loss/"), v) for name, v in metrics.items() if name.startswith("loss/")]
    losses.sort(key=lambda loss: first.index(loss[0]) if loss[0] in first else len(first))
    return losses[:_MAX_LOSSES]


def _kls(metrics: Mapping[str, float]) -> dict[str, float]:
    """Returns the KL divergences that are logged relative to their bounds."""
    return {
        name.removeprefix("kl/").removesuffix("_rel"): value
        for name, value in metrics.items()
        if name.startswith("kl/") and name.endswith("_rel")
    }


def _number(value: float) -> str:
    """Formats a number with three significant digits, or without decimals from a thousand on."""
    return f"{value:,.0f}" if 999.5 <= abs(value) < 1e9 else f"{value:.3g}"
