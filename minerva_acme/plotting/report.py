"""The content of a report on experiments, before anything is written or drawn.

    T environments that all experiments share, S seeds of one of them.

Steps count frames: the environment's own steps, which are decisions times the action repeat. Scores are
returns on a common scale: 0 to 1 is the range of returns of a suite.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from minerva_acme import results
from minerva_acme.plotting import curves, front, panels, statistics
from minerva_acme.runs import run_curves

Ranges = Mapping[str, tuple[float, float]]
"""The lowest and highest return by environment."""

_SUITES = {"dm_control/": (0.0, 1000.0)}
_NUM_THRESHOLDS = 101  # in the figure of a profile
_SHOWN_THRESHOLDS = np.linspace(0.1, 0.9, 9)  # in the table of profiles
_MOST_LISTED = 3  # environments; of more, only the number is shown
_MORE = 1.25  # ratio of updates from which they are named; a run that ends early has fewer per frame
_NOTHING = "-"


class Table(NamedTuple):
    """A table with a title and a note that explains it."""

    title: str
    note: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    figure: str = ""  # the name of the figure that shows the same


class Bar(NamedTuple):
    """An estimate with its confidence interval."""

    label: str
    value: float
    interval: tuple[float, float] | None


_UNITS = {
    "frames": "Frames are the environment's own steps; repeat: frames for which an action lasts; updates: "
    "learner steps per frame.",
    "learner steps": "These runs make no environment steps.",
}


class Report(NamedTuple):
    """Everything that a report shows."""

    notes: Sequence[str]  # results that were left out, and other caveats
    tables: Sequence[Table]
    aggregate: panels.Panel | None  # None if there is only one environment
    by_environment: Sequence[panels.Panel]
    scores: Sequence[Bar]
    profiles: Mapping[str, statistics.Profile]
    improvements: Sequence[Bar]
    fronts: Sequence[front.Front] = ()  # of each pair of rewards, where an environment has several
    x_label: str = panels.FRAMES  # of the curves


class _Method(NamedTuple):
    """An experiment, or a published result, whose mean over seeds stands for a run."""

    source: results.Experiment | results.PublishedResult
    runs: Mapping[str, Mapping[int, run_curves.Curve]]  # by environment and seed

    @property
    def name(self) -> str:
        return self.source.exp_name

    @property
    def title(self) -> str:
        return getattr(self.source, "title", self.name)

    def effort(self) -> list[str]:
        """Returns the action repeat and the updates per frame, for display."""
        numbers = self.source.action_repeat, self.source.updates_per_frame
        return [_NOTHING if number is None else f"{number:g}" for number in numbers]


class _Comparison(NamedTuple):
    """What is compared, and at which steps."""

    methods: Sequence[_Method]  # of the experiments
    published: Sequence[_Method]
    steps: Mapping[str, int]  # by environment
    unit: str  # frames or learner steps
    metric: str

    @property
    def compared(self) -> list[_Method]:
        """The published results that have a value in every environment."""
        return [method for method in self.published if not self.lacking(method)]

    def reaches(self, method: _Method, env: str) -> bool:
        """Returns whether a published result has a value in an environment."""
        return any(run.x[0] <= self.steps[env] <= run.x[-1] for run in method.runs.get(env, {}).values())

    def lacking(self, method: _Method) -> list[str]:
        """Returns the environments in which it has none."""
        return [env for env in self.steps if not self.reaches(method, env)]

    def at(self) -> str:
        """Returns the steps, for a title."""
        lowest, highest = min(self.steps.values()), max(self.steps.values())
        return f" at {f'{lowest:,} to ' * (lowest < highest)}{highest:,} {self.unit}"


def make_report(
    experiments: Sequence[results.Experiment],
    *,
    against: Sequence[str] = (),
    ranges: Ranges | None = None,
    step: int | None = None,
    min_seeds: int = 1,
    seed: int = 0,
    metric: str = results.RETURN,
) -> Report:
    """Compares experiments with each other, and with published results.

    Args:
        experiments: The experiments, at least one.
        against: The names of published results.
        ranges: The ranges of returns for environments whose suite has no known range.
        step: The number of frames at which scores are compared, or None for the last frame that every run in
            an environment has reached.
        min_seeds: The number of seeds from which the runs of an experiment in an environment are used, >= 1.
        seed: The seed of all bootstraps.
        metric: The metric of the rows that is compared. Published results and known ranges are of returns:
            with another metric there can be none of the first, and `ranges` has those of all environments.

    Raises:
        ValueError: An experiment does not have the metric, a range is unknown or invalid, there is no such
            published result, or nothing can be compared.
    """
    if not experiments:
        raise ValueError("`experiments` must hold at least one, got none.")
    if min_seeds < 1:
        raise ValueError(f"`min_seeds` must be >= 1, got {min_seeds}.")
    if metric != results.RETURN:
        check_against(against, metric)
    generator = np.random.default_rng(seed)
    methods, kept, few = [], [], []
    for one in experiments:
        runs = read_runs(one, metric)
        enough = {env: found for env, found in runs.items() if len(found) >= min_seeds}
        if not enough:
            raise ValueError(
                f"{one.exp_name} must have an environment with at least {min_seeds} seeds, got at most "
                f"{max(map(len, runs.values()))}. Train more seeds, or lower `min_seeds`."
            )
        kept.append(results.select(one, enough))
        methods.append(_Method(kept[-1], enough))
        if left_out := [panels.make_title(env) for env in runs if env not in enough]:
            few.append(
                f"Left out, with fewer than {min_seeds} seeds of {one.exp_name}: {', '.join(left_out)}."
            )
    unit = _check_unit(experiments)
    if against and unit != "frames":
        few.append(f"Not compared with published results, which count frames, not {unit}.")
    published = [_published(name) for name in against if unit == "frames"]
    shared = [env for env in methods[0].runs if all(env in method.runs for method in methods)]
    if not shared:
        raise ValueError(
            f"The experiments must have an environment in common, got none for "
            f"{', '.join(method.name for method in methods)}. Report them separately."
        )
    steps, notes = _choose_steps(methods, shared, step, unit)
    shown = _Comparison(methods, published, steps, unit, metric)
    limits = {env: find_range(env, ranges or {}, metric) for env in steps}
    by_name = {method.name: _scores(method, steps, limits) for method in [*methods, *shown.compared]}
    # Of a single run there is no distribution, and two of them are better or worse.
    is_of_one_run = all(sum(map(len, by_name[method.name])) == 1 for method in methods)
    profiles = {
        method.name: statistics.performance_profile(
            by_name[method.name], np.linspace(0.0, 1.0, _NUM_THRESHOLDS), generator=generator
        )
        for method in methods
        if not is_of_one_run
    }
    improvements = [
        _improvement(one.name, other.name, by_name, generator)
        for one, other in itertools.combinations(methods, 2)
        if not is_of_one_run
    ]
    fronts = front.make_fronts(kept) if metric == results.RETURN else []
    bars = [_iqm(method.name, by_name[method.name], generator) for method in methods]
    tables = [
        _score_table(shown, bars, by_name),
        *([_profile_table(profiles)] if profiles else []),
        *([_improvement_table(improvements)] if improvements else []),
        _environment_table(shown),
        *(_front_table(one, index) for index, one in enumerate(fronts)),
        _experiment_table(kept),
        *([_source_table(published)] if published else []),
    ]
    return Report(
        notes=[*few, *notes, *_notes(shown)],
        tables=tables,
        aggregate=_aggregate(shown, limits, generator) if len(steps) > 1 else None,
        by_environment=list(_panels(shown, kept, generator)),
        scores=bars,
        profiles=profiles,
        improvements=improvements,
        fronts=fronts,
        x_label=unit.capitalize(),
    )


def _check_unit(experiments: Sequence[results.Experiment]) -> str:
    """Returns what the steps of all experiments count.

    Raises:
        ValueError: Some count frames, others learner steps.
    """
    by_unit = {one.counts: one.exp_name for one in experiments}
    if len(by_unit) > 1:
        raise ValueError(
            "The experiments must all count frames, or all learner steps, as runs without environment steps "
            f"do, got {' and '.join(f'{unit} of {name}' for unit, name in by_unit.items())}. "
            "Report them separately, or plot them with --x updates or --x wall."
        )
    return next(iter(by_unit))


def _notes(shown: _Comparison) -> Iterator[str]:
    """Yields the caveats that a reader must know to judge the numbers."""
    methods, envs = shown.methods, list(shown.steps)
    for method in methods:
        for env, runs in method.runs.items():
            if not curves.have_common_steps([*runs.values()]):
                yield f"The runs of {method.name} on {env} have no step in common: not drawn."
    everywhere = [env for env in methods[0].runs if all(env in method.runs for method in methods)]
    if lone := sorted({env for method in methods for env in method.runs} - {*everywhere}):
        yield f"Only some of the experiments have runs on {', '.join(lone)}: not compared."
    if all(len(method.runs[env]) == 1 for method in methods for env in envs):
        yield (
            "Without intervals: each experiment has a single seed, which says nothing about the variance. "
            "Train several, each with another --seed."
        )
    elif alone := sum(any(len(method.runs[env]) == 1 for method in methods) for env in envs):
        yield (
            f"Intervals are too narrow: in {alone} of {len(envs)} environments one of the experiments has a "
            "single seed, which says nothing about the variance."
        )
    if len(envs) > 1:
        yield from _ends(shown)
    lacking = {method.title: shown.lacking(method) for method in shown.published}
    if left_out := [f"{title} ({_list(missing)})" for title, missing in lacking.items() if missing]:
        yield f"Not compared, because nothing was published at these frames: {'; '.join(left_out)}."
    between = {
        method.title: [
            env
            for env in envs
            if shown.reaches(method, env) and shown.steps[env] not in method.runs[env][0].x
        ]
        for method in shown.published
    }
    if interpolated := [f"{title} ({_list(found)})" for title, found in between.items() if found]:
        yield f"Interpolated, between the published frames before and after: {'; '.join(interpolated)}."
    yield from _unequal(shown)


def _ends(shown: _Comparison) -> Iterator[str]:
    """Yields a note for each curve over all environments that ends before its runs, or is missing.

    A published curve that ends behind all runs needs none.
    """
    where, longest = f"{len(shown.steps)} environments", 0.0
    for method in shown.methods:
        runs = {f"{env} seed {seed}": run for env in shown.steps for seed, run in method.runs[env].items()}
        longest = max(longest, *(run.x[-1] for run in runs.values()))
        if note := panels.describe_end(f"{method.name} on {where}", runs, shown.unit):
            yield note
    for method in shown.compared:
        runs = {env: method.runs[env][0] for env in shown.steps}
        note = panels.describe_end(f"{method.title}, published on {where}", runs, shown.unit)
        if note and min(run.x[-1] for run in runs.values()) < longest:
            yield note


def _unequal(shown: _Comparison) -> Iterator[str]:
    """Yields a note for each known difference in how often agents decide or learn per frame."""
    efforts = [
        (method.title, method.source.action_repeat, method.source.updates_per_frame)
        for method in (*shown.methods, *shown.published)
    ]
    by_repeat: dict[int, list[str]] = {}
    for name, repeat, _ in efforts:
        if repeat is not None:
            by_repeat.setdefault(repeat, []).append(name)
    if len(by_repeat) > 1:
        repeats = "; ".join(f"{repeat} of {', '.join(of)}" for repeat, of in sorted(by_repeat.items()))
        yield (
            f"The action repeats differ: {repeats}. Frames are compared, the environment's own steps; a "
            "larger repeat makes fewer decisions of them."
        )
    known = [(updates, name) for name, _, updates in efforts[: len(shown.methods)] if updates is not None]
    if known:
        fewest, of = min(known)
        more = [f"{name} {updates:g}" for name, _, updates in efforts if (updates or 0.0) > _MORE * fewest]
        if more:
            yield f"More updates a frame than {of}, which makes {fewest:g}: {', '.join(more)}."


def read_runs(
    experiment: results.Experiment, metric: str = results.RETURN
) -> dict[str, dict[int, run_curves.Curve]]:
    """Returns the return of every run at its evaluations, or another metric, by environment and seed.

    If a run was not evaluated at its last step during training, its final return is the last point.

    Raises:
        ValueError: There are no returns, or there is no such metric.
    """
    points: dict[str, dict[int, dict[int, float]]] = {}
    names = ("final_return", metric) if metric == results.RETURN else (metric,)
    for name in names:  # the second has precedence
        for row in experiment.rows:
            if row.metric == name:
                points.setdefault(row.env_name, {}).setdefault(row.seed, {})[row.env_step] = row.value
    if not points:
        raise ValueError(
            f"{experiment.exp_name} must have rows of `{'` or `'.join(names[::-1])}`, got "
            f"{', '.join(sorted({row.metric for row in experiment.rows})) or 'no row'}."
        )
    return {
        env: {
            seed: run_curves.Curve(*np.array(sorted(found.items()), float).T)
            for seed, found in sorted(by_seed.items())
        }
        for env, by_seed in sorted(points.items())
    }


def _published(name: str) -> _Method:
    check_against([name])
    source, runs = results.load_published()[name], {}
    for env in source.points:
        (found,) = curves.published_curves(env, [name])
        runs[env] = {0: found.curve}
    return _Method(source, runs)


def check_against(names: Sequence[str], metric: str = results.RETURN) -> None:
    """Checks the names of published results, with which a metric is to be compared.

    Raises:
        ValueError: There is no such published result, or it is of returns and the metric is another.
    """
    known = results.load_published()
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"`against` must be among {', '.join(known)} or none, got '{unknown[0]}'.")
    if names and metric != results.RETURN:
        raise ValueError(f"`against` must be none with `metric` {metric}: published results are returns.")


def find_range(env: str, ranges: Ranges, metric: str = results.RETURN) -> tuple[float, float]:
    """Returns the lowest and highest return of an environment: the given range, or that of its suite.

    Of another metric, only a given range is known.

    Raises:
        ValueError: The range is unknown or empty.
    """
    known = _known_range(env, metric)
    found = ranges.get(env, known)
    if found is None:
        raise ValueError(
            f"The range of {_what(metric)} of {env} must be known, to put scores on a scale from 0 to 1. Set "
            f"it: --range {env}=LOWEST:HIGHEST"
        )
    if not found[0] < found[1]:
        what = f"The range of {_what(metric)} of {env}"
        raise ValueError(f"{what} must increase, got {found[0]:g} to {found[1]:g}.")
    return found


def _known_range(env: str, metric: str) -> tuple[float, float] | None:
    suites = _SUITES.items() if metric == results.RETURN else ()
    return next((limits for prefix, limits in suites if env.startswith(prefix)), None)


def _what(metric: str) -> str:
    return "returns" if metric == results.RETURN else metric


def _choose_steps(
    methods: Sequence[_Method], shared: Sequence[str], step: int | None, unit: str
) -> tuple[dict[str, int], list[str]]:
    """Returns the steps by environment, without those in which a run has no value, and notes on them."""
    steps, notes = {}, []
    for env in shared:
        runs = [(method.name, seed, run) for method in methods for seed, run in method.runs[env].items()]
        at = int(min(run.x[-1] for *_, run in runs)) if step is None else step
        lacking = [(name, seed) for name, seed, run in runs if not run.x[0] <= at <= run.x[-1]]
        if lacking:
            shown = ", ".join(f"{name} seed {seed}" for name, seed in lacking)
            notes.append(f"{env} is not compared: no value at {at:,} {unit} for {shown}.")
            continue
        steps[env] = at
        early = [f"{name} seed {seed}" for name, seed, run in runs if run.x[-1] == at]
        if step is None and (longest := int(max(run.x[-1] for *_, run in runs))) > at:
            notes.append(
                f"{env} is compared at {at:,} {unit}, where {early[0]} ends; others reach {longest:,}."
            )
    if not steps:
        raise ValueError(
            "There must be an environment in which all runs have a value at the same step, got none. "
            + " ".join(notes)
        )
    return steps, notes


def _scores(method: _Method, steps: Mapping[str, int], limits: Ranges) -> list[np.ndarray]:
    """Returns T arrays [S] of normalised scores."""
    return [
        _normalise(np.array([np.interp(at, *run) for run in method.runs[env].values()]), limits[env])
        for env, at in steps.items()
    ]


def _normalise(returns: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
    low, high = limits
    return (returns - low) / (high - low)


def _iqm(name: str, by_task: Sequence[np.ndarray], generator: np.random.Generator) -> Bar:
    weights = statistics.task_weights(by_task)
    value = float(statistics.interquartile_mean(np.concatenate(by_task), weights))
    interval = statistics.bootstrap_interval([task[:, None] for task in by_task], generator=generator)
    return Bar(name, value, None if interval is None else (float(interval.low[0]), float(interval.high[0])))


def _improvement(
    one: str, other: str, by_name: Mapping[str, Sequence[np.ndarray]], generator: np.random.Generator
) -> Bar:
    found = statistics.probability_of_improvement(by_name[one], by_name[other], generator=generator)
    return Bar(f"{one} > {other}", *found)


def _aggregate(shown: _Comparison, limits: Ranges, generator: np.random.Generator) -> panels.Panel | None:
    """Returns a panel of all environments together, up to the last step that all runs have reached."""

    def scaled(method: _Method) -> list[list[run_curves.Curve]]:
        return [
            [
                run_curves.Curve(run.x, _normalise(run.values, limits[env]))
                for run in method.runs[env].values()
            ]
            for env in limits
        ]

    groups, behind = [], []
    for method in shown.methods:
        runs = scaled(method)
        if curves.have_common_steps([run for task in runs for run in task]):
            groups.append(panels.make_group(method.name, runs, generator))
    for method in shown.compared:
        of_all = [run for task in scaled(method) for run in task]
        if curves.have_common_steps(of_all):
            common = curves.at_common_steps(of_all)
            mean = statistics.interquartile_mean(common.values.T)
            behind.append((f"{method.title}, published", run_curves.Curve(common.x, mean)))
    return panels.Panel(f"{len(limits)} environments", groups, behind) if groups else None


def _panels(
    shown: _Comparison, experiments: Sequence[results.Experiment], generator: np.random.Generator
) -> Iterator[panels.Panel]:
    for env in sorted({env for method in shown.methods for env in method.runs}):
        groups = [
            panels.make_group(method.name, [list(method.runs[env].values())], generator)
            for method in shown.methods
            if env in method.runs and curves.have_common_steps([*method.runs[env].values()])
        ]
        if not groups:
            continue
        behind = [
            (f"{method.title}, published", method.runs[env][0])
            for method in shown.published
            if env in method.runs
        ]
        randoms = [
            row.value
            for one in experiments
            for row in one.rows
            if (row.env_name, row.metric, shown.metric) == (env, "random_return", results.RETURN)
        ]
        random = float(np.mean(randoms)) if randoms else None
        limits = _known_range(env, shown.metric)
        yield panels.Panel(panels.make_title(env), groups, behind, random, limits)


def _score_table(
    shown: _Comparison, bars: Sequence[Bar], by_name: Mapping[str, Sequence[np.ndarray]]
) -> Table:
    rows, others = [], shown.compared
    for method, bar in zip([*shown.methods, *others], [*bars, *[None] * len(others)], strict=True):
        tasks = by_name[method.name]
        means = np.array([task.mean() for task in tasks])
        runs = str(sum(map(len, tasks)))
        of_runs = [runs, f"{bar.value:.3f}", _interval(bar.interval)] if bar else [_NOTHING] * 3
        of_means = [f"{np.mean(means):.3f}", f"{statistics.interquartile_mean(means):.3f}"]
        rows.append([method.title, *of_runs, *of_means, *method.effort()])
    number = len(shown.steps)
    columns = ["", "runs", "IQM", "95% interval", "mean", "IQM of means", "repeat", "updates"]
    interval = (
        f" The interval is the 95% stratified percentile bootstrap interval of the IQM "
        f"({statistics.NUM_RESAMPLES} resamples); of two or three seeds in one environment it is the range."
    )
    if not any(bar.interval for bar in bars):
        at, interval = columns.index("95% interval"), ""
        columns, *rows = ([*row[:at], *row[at + 1 :]] for row in [columns, *rows])
    of_means_alone = (
        " For published results only the means over seeds are known: compare them by mean and IQM of means."
        if others
        else ""
    )
    return Table(
        f"Scores on {number} environment{'s' * (number > 1)}{shown.at()}",
        f"Scores: {_what(shown.metric)} normalised to 0 to 1. IQM: interquartile mean over runs and "
        "environments; all environments have equal weight, whatever their number of seeds."
        f"{interval}{of_means_alone} {_UNITS[shown.unit]}",
        columns,
        rows,
        figure="scores",
    )


def _profile_table(profiles: Mapping[str, statistics.Profile]) -> Table:
    rows = [
        [name, *(f"{share:.2f}" for share in np.interp(_SHOWN_THRESHOLDS, *profile[:2]))]
        for name, profile in profiles.items()
    ]
    return Table(
        "Performance profile",
        "The share of runs with a normalised score above each threshold; all environments have equal weight.",
        ["", *(f">{threshold:.1f}" for threshold in _SHOWN_THRESHOLDS)],
        rows,
        figure="performance_profile",
    )


def _improvement_table(improvements: Sequence[Bar]) -> Table:
    rows = [[bar.label, f"{bar.value:.2f}", _interval(bar.interval, 2)] for bar in improvements]
    return Table(
        "Probability of improvement",
        "The probability that a run of the first is better than a run of the second, averaged over the "
        "environments; a tie counts as half. With a 95% bootstrap interval.",
        ["", "probability", "95% interval"],
        rows,
        figure="improvement",
    )


def _environment_table(shown: _Comparison) -> Table:
    rows, at_one = [], len(set(shown.steps.values())) == 1
    title = "Returns" if shown.metric == results.RETURN else shown.metric
    for env, at in shown.steps.items():
        cells = []
        for method in shown.methods:
            found = [float(np.interp(at, *run)) for run in method.runs[env].values()]
            mean = float(statistics.interquartile_mean(np.array(found)))
            seeds = f" [{_short(min(found))}, {_short(max(found))}]" if len(found) > 1 else ""
            cells.append(f"{_short(mean)}{seeds}")
        for method in shown.published:
            reaches = shown.reaches(method, env)
            cells.append(_short(float(np.interp(at, *method.runs[env][0]))) if reaches else _NOTHING)
        rows.append([panels.make_title(env), *([] if at_one else [f"{at:,}"]), *cells])
    names = [method.title for method in (*shown.methods, *shown.published)]
    return Table(
        f"{title} by environment{shown.at() if at_one else ''}",
        "Interquartile mean over the seeds (mean for fewer than four), with lowest and highest"
        f"{'; for published results, the mean over seeds' if shown.published else ''}.",
        ["environment", *([] if at_one else [shown.unit]), *names],
        rows,
        figure="environments",
    )


def _front_table(one: front.Front, index: int) -> Table:
    rows = [
        [
            point.label,
            str(point.num_seeds),
            _short(point.x),
            _short(point.y),
            "yes" if point.is_dominated else "no",
        ]
        for point in one.points
    ]
    low_x, low_y = map(_short, one.reference)
    return Table(
        f"Trade-off on {panels.make_title(one.env_name)}: {one.x_name} and {one.y_name}",
        "Returns by each reward at the last evaluation, mean over the seeds. Dominated: another experiment "
        f"is at least as good by both and better by one. Hypervolume {one.hypervolume:,.4g}: the area that "
        f"the means dominate above the lowest returns of all runs, {low_x} and {low_y}.",
        ["", "seeds", one.x_name, one.y_name, "dominated"],
        rows,
        figure=f"front_{index}",
    )


def _experiment_table(experiments: Sequence[results.Experiment]) -> Table:
    rows = []
    for one in experiments:
        contexts = one.contexts or (results.Context(frozenset(), None, None, {}, None),)
        versions = dict.fromkeys(" ".join(filter(None, c[1:3])) or "unknown" for c in contexts)
        packages = dict.fromkeys(
            ", ".join(f"{name} {version}" for name, version in c.packages.items()) or "unknown"
            for c in contexts
        )
        rows.append(
            [
                one.exp_name,
                str(len(one.trainings)),
                ", ".join(f"{panels.make_title(env)} {number:,}" for env, number in one.decisions.items()),
                *_Method(one, {}).effort(),
                _median(one, "wall_seconds"),
                _median(one, "cpu_seconds"),
                "; ".join(dict.fromkeys(c.machine or "unknown" for c in contexts)),
                "; ".join(versions),
                "; ".join(packages),
                "; ".join(one.commands.values()) or "unknown",
                one.notes,
            ]
        )
    return Table(
        "What produced them",
        "Decisions: of the longest run in each environment; action repeat: frames for which each decision "
        "lasts. Updates: learner steps. Times: median over the runs, in seconds.",
        [
            *("", "runs", "decisions", "action repeat", "updates a frame", "wall time", "CPU time"),
            *("machine", "version", "packages", "commands", "notes"),
        ],
        rows,
    )


def _source_table(published: Sequence[_Method]) -> Table:
    rows = []
    for method in published:
        one = results.load_published()[method.name]
        rows.append([one.title, one.source, one.commit, one.licence, *method.effort(), one.notes])
    return Table(
        "Published results",
        "Means over seeds, from public raw data. Frames are the environment's own steps.",
        ["", "source", "commit", "licence", "action repeat", "updates a frame", "notes"],
        rows,
    )


def _median(experiment: results.Experiment, metric: str) -> str:
    last: dict[tuple[str, int], tuple[int, float]] = {}
    for row in experiment.rows:
        if row.metric == metric:
            place = row.env_name, row.seed
            last[place] = max(last.get(place, (-1, 0.0)), (row.env_step, row.value))
    return f"{np.median([value for _, value in last.values()]):,.0f}" if last else _NOTHING


def _list(environments: Sequence[str]) -> str:
    if len(environments) > _MOST_LISTED:
        return f"{len(environments)} environments"
    return ", ".join(environments)


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


def _interval(interval: tuple[float, float] | None, digits: int = 3) -> str:
    return _NOTHING if interval is None else f"{interval[0]:.{digits}f} to {interval[1]:.{digits}f}"
