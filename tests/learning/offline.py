"""Scores of agents that learn from recorded episodes alone, on data of this library's own MPO.

python -m tests.learning.offline --folder runs/offline

The data is made first. Each agent's setting is then chosen on seeds that are not reported, and trained on
those that are. It takes hours in one thread, most of them for MPO. With `--agents` the runs of other agents
can be made first. The same command continues after an interruption: data, runs and rows that are there are
not made again. Given a second time meanwhile, it takes part: each process makes runs that no other one is
making. Rows are written to `results` in the folder, as by `minerva collect`. Those that are stored with the
library are final scores without curves, and this prints their tables:

python -m tests.learning.offline --stored
"""

import argparse
import contextlib
import dataclasses
import fcntl
import itertools
import pathlib
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import stats

from minerva_acme import builders, cli, datasets, environments, experiments, results
from minerva_acme.agents import bc, crr, mpo, td3
from minerva_acme.runs import config as run_config
from minerva_acme.runs import evaluation, run_results

PREFIX = "offline_"
STORED = pathlib.Path(results.__file__).parent / "data"
FINAL, DATA = f"{PREFIX}final", f"{PREFIX}data"  # the agent that made the data, and the data itself
# By agent. A run of MPO takes 13 minutes, of the others 3 to 5.
TUNING_SEEDS: Mapping[str, tuple[int, ...]] = {"crr": (100, 101), "td3": (100, 101), "mpo": (100,)}
BC_ALONE = "medium"  # the kind of data of which no other agent is scored
_SECONDS_BETWEEN_LOOKS = 5.0  # at runs that other processes are making
EXPLORE = "+explore"  # in the names of experiments: the policy acts by samples, as the data did


class Task(NamedTuple):
    """A task, and what is made and reported of it."""

    env_name: str
    num_env_steps: int  # of the agent that makes the data
    num_episodes: int  # of medium, and of mixed data
    num_scored: int  # episodes of each final score
    kinds: tuple[str, ...]
    seeds: tuple[int, ...]
    tunes: bool = True  # whether settings are chosen on it
    maker_seed: int = 0  # of the agent that makes the data

    @property
    def name(self) -> str:
        return self.env_name.removeprefix("dm_control/").replace("/", "_")

    def label(self, kind: str) -> str:
        """Returns the name of data within other names: its kind, with its maker's seed if that is not 0."""
        return f"{kind}-v{self.maker_seed}" if self.maker_seed else kind


TASKS = (
    Task("Pendulum-v1", 20_000, 100, 100, ("medium", "replay", "mixed"), (0, 1, 2, 3, 4)),
    Task("dm_control/cartpole/swingup", 50_000, 40, 20, ("medium", "replay", "mixed"), (0, 1, 2, 3, 4)),
    Task("dm_control/walker/walk", 100_000, 40, 20, ("replay",), (0, 1, 2, 3, 4), tunes=False),
)
# What the preset `modern` was when the stored results were made.
MAKER = mpo.MPOBuilder(dataclasses.replace(mpo.PRESETS["simba"], noise_repeat=4))
_HL_GAUSS: dict[str, Any] = {
    "critic_head": "hl_gauss",
    "scale_returns": True,
    "vmin": -5.0,
    "vmax": 5.0,
    "num_bins": 101,
}
_MPO: Mapping[str, Mapping[str, Any]] = {
    "modern": {},
    "modern+action_penalty": {"action_penalty": True},
    "hl_gauss": _HL_GAUSS,
    "hl_gauss+action_penalty": {**_HL_GAUSS, "action_penalty": True},
    "hl_gauss+epsilon_penalty=0.01": {**_HL_GAUSS, "action_penalty": True, "epsilon_penalty": 0.01},
}
# The settings to choose from, by agent.
SETTINGS: Mapping[str, Mapping[str, builders.AgentBuilder[Any]]] = {
    "bc": {"default": bc.BCBuilder(bc.BCConfig())},
    "crr": {
        "binary": crr.CRRBuilder(crr.CRRConfig(weights="binary")),
        **{f"beta={beta:g}": crr.CRRBuilder(crr.CRRConfig(beta=beta)) for beta in (0.1, 1.0, 10.0)},
    },
    "td3": {
        f"bc_alpha={alpha:g}": td3.TD3Builder(td3.TD3Config(bc_alpha=alpha))
        for alpha in (0.5, 2.5, 10.0, 40.0)
    },
    "mpo": {
        name: mpo.MPOBuilder(dataclasses.replace(mpo.PRESETS["simba"], **changes))
        for name, changes in _MPO.items()
    },
}


class Score(NamedTuple):
    """A run that is made and scored."""

    task: Task
    kind: str
    agent: str
    setting: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.agent}+{self.setting}"

    @property
    def run(self) -> str:
        return f"{self.task.label(self.kind)}-{self.name}"


class Study:
    """Makes data, runs and rows in a folder, unless they are there."""

    def __init__(self, folder: pathlib.Path, num_learner_steps: int, device: str = "cpu") -> None:
        self.folder, self.results = folder, folder / "results"
        self._num_learner_steps = num_learner_steps
        self._device = device

    def data(self, task: Task, kind: str) -> pathlib.Path:
        return self.folder / "data" / f"{task.name}-{kind}-v{task.maker_seed}"

    def make_data(self, task: Task) -> None:
        """Trains the agent of a task, and again until a third of what it has learned; plays with both."""
        with self._lock(f"data-{task.name}-{task.maker_seed}", waits=True):
            self._make_data(task)

    def _make_data(self, task: Task) -> None:
        whole = {"record": str(self.data(task, "replay")), "evaluation_period": task.num_env_steps // 20}
        if not self.data(task, "replay").exists():
            _train(self._config(task, "maker", MAKER, task.maker_seed, **whole))
        if task.maker_seed not in self.rows(FINAL, task):
            self._write(self._collect(FINAL, task, self._run(task, "maker", task.maker_seed)))
        low, high = self.bounds(task)
        if "medium" in task.kinds and not self.data(task, "medium").exists():
            options = {
                "evaluation_period": max(1, task.num_env_steps // 100),
                "stop_at": low + (high - low) / 3,
            }
            _train(self._config(task, "medium", MAKER, task.maker_seed, **options))
            self._play(task, "medium", "medium")
        if "mixed" in task.kinds and not self.data(task, "mixed").exists():
            if not self.data(task, "final").exists():
                self._play(task, "final", "maker")
            parts = [datasets.read(self.data(task, kind)) for kind in ("medium", "final")]
            halves = [itertools.islice(part, task.num_episodes // 2) for part in parts]
            datasets.write(self.data(task, "mixed"), itertools.chain(*halves), parts[0].spec)
        for kind in task.kinds:
            if task.maker_seed not in self.rows(f"{DATA}+{kind}", task):
                returns = full_returns(datasets.read(self.data(task, kind)))
                values = {"final_return": np.mean(returns), "final_return_std": np.std(returns)}
                self._add(self._maker(task), f"{DATA}+{kind}", **values)

    def _maker(self, task: Task) -> results.Experiment:
        """Returns the run that made the data: its command, its machine."""
        (final,) = results.read(self.results / f"{FINAL}.csv")
        of_task = results.select(final, [task.env_name])
        place = frozenset({(task.env_name, task.maker_seed)})
        return dataclasses.replace(
            of_task,
            rows=tuple(row for row in of_task.rows if row.seed == task.maker_seed),
            contexts=tuple(c._replace(trainings=place) for c in of_task.contexts if place <= c.trainings),
        )

    def score_all(self, scores: Iterable[Score]) -> None:
        """Makes the scores that are missing, those that another process is making after all others."""
        left = list(scores)
        while left:
            number = len(left)
            for score in left.copy():
                with self._lock(f"{score.task.name}-{score.run}-{score.seed}") as is_mine:
                    if is_mine:
                        self.score(score)
                        left.remove(score)
            if len(left) == number:
                time.sleep(_SECONDS_BETWEEN_LOOKS)

    def score(self, score: Score) -> None:
        """Trains an agent on data, and stores its rows."""
        task, kind, agent, setting, seed = score
        name, label = f"{PREFIX}{score.name}", task.label(kind)
        if seed in self.rows(f"{name}+{label}", task):
            return
        builder = SETTINGS[agent][setting]
        config = self._config(task, score.run, builder, seed, data=self.data(task, kind))
        _train(config)
        found = self._collect(f"{name}+{label}", task, pathlib.Path(config.directory))
        if agent == "bc":
            with environments.make_training_environment(task.env_name, seed=20_000 + seed) as environment:
                played = evaluation.evaluate_checkpoint(
                    config.directory, builder, environment, task.num_scored, seed=seed, explore=True
                )
            values = {"final_return": played.mean, "final_return_std": played.std}
            self._add(found, f"{name}{EXPLORE}+{label}", **values)
        self._write(found)

    def bounds(self, task: Task) -> tuple[float, float]:
        """Returns the returns of scores 0 and 1: random actions, and the agent that made the data."""
        low = self.rows(FINAL, task, metric="random_return")
        return low[task.maker_seed], self.rows(FINAL, task)[task.maker_seed]

    def rows(self, name: str, task: Task, metric: str = "final_return") -> dict[int, float]:
        """Returns the numbers of an experiment by seed."""
        path = self.results / f"{name}.csv"
        rows = results.read(path)[0].rows if path.exists() else ()
        return {row.seed: row.value for row in rows if (row.env_name, row.metric) == (task.env_name, metric)}

    def scores(self, name: str, task: Task, kind: str) -> dict[int, float]:
        """Returns the scores of an agent that learned from the data, by seed."""
        return self._relative(task, self.rows(f"{name}+{task.label(kind)}", task))

    def pooled(self, name: str, task: Task, kind: str) -> dict[tuple[Task, int], float]:
        """Returns the scores of the seeds to report on all data of a kind, by task with maker, and seed."""
        makers = [task._replace(maker_seed=seed) for seed in sorted(self.rows(FINAL, task))]
        return {
            (made, seed): score
            for made in makers
            for seed, score in self.scores(name, made, kind).items()
            if seed in task.seeds
        }

    def data_score(self, task: Task, kind: str) -> float:
        """Returns the score of the data itself."""
        return self._relative(task, self.rows(f"{DATA}+{kind}", task))[task.maker_seed]

    def _relative(self, task: Task, returns: Mapping[int, float]) -> dict[int, float]:
        """Returns the scores of returns, by seed."""
        low, high = self.bounds(task)
        return {seed: (x - low) / (high - low) for seed, x in returns.items()}

    def choose(self, tasks: Sequence[Task], agents: Iterable[str]) -> dict[str, str]:
        """Returns the setting of each agent with the highest mean score on the seeds for tuning."""
        chosen = {}
        for agent in agents:
            scores = self.tuned(tasks, agent)
            chosen[agent] = best(scores) if scores else next(iter(SETTINGS[agent]))
        return chosen

    def tuned(self, tasks: Sequence[Task], agent: str) -> dict[str, list[float]]:
        """Returns the scores of an agent's settings on the seeds for tuning, by setting."""
        scores: dict[str, list[float]] = {}
        for score in tuning(tasks, agent):
            found = self.scores(f"{PREFIX}{score.name}", score.task, score.kind)
            scores.setdefault(score.setting, []).append(found[score.seed])
        return scores

    def _config(
        self,
        task: Task,
        name: str,
        builder: builders.AgentBuilder[Any],
        seed: int,
        data: pathlib.Path | None = None,
        **options: Any,
    ) -> run_config.ExperimentConfig:
        steps = (
            {"num_env_steps": task.num_env_steps}
            if data is None
            else {"num_env_steps": 0, "num_learner_steps": self._num_learner_steps, "dataset": str(data)}
        )
        return experiments.ExperimentConfig(
            builder=builder,
            environment_factory=lambda seed: environments.make_training_environment(task.env_name, seed=seed),
            directory=self._run(task, name, seed),
            seed=seed,
            **{"evaluation_period": 0, **steps, **options},
            device=self._device,
            replay="memory",
            tensorboard=False,
            log_period_seconds=60.0,
        )

    def _run(self, task: Task, name: str, seed: int) -> pathlib.Path:
        return self.folder / task.name / f"{name}-seed{seed}"

    def _play(self, task: Task, kind: str, name: str) -> None:
        run = self._run(task, name, task.maker_seed)
        words = ["dataset", run, "--output", self.data(task, kind), "--episodes"]
        assert cli.main([*map(str, words), str(task.num_episodes)]) == 0

    def _collect(self, name: str, task: Task, run: pathlib.Path) -> results.Experiment:
        (found,) = run_results.collect([run], name=name, num_episodes=task.num_scored)
        return found

    def _add(self, made: results.Experiment, name: str, **values: float) -> None:
        """Stores other numbers of a run, under another name."""
        (place,) = made.trainings
        step = max(row.env_step for row in made.rows)
        rows = tuple(
            results.Row(name, place[0], place[1], metric, step, float(x)) for metric, x in values.items()
        )
        self._write(dataclasses.replace(made, exp_name=name, rows=rows))

    def _write(self, new: results.Experiment) -> None:
        path = self.results / f"{new.exp_name}.csv"
        with self._lock("results", waits=True):
            old = results.read(path) if path.exists() else []
            results.write(path.parent, results.merge(old[0], new) if old else new)

    @contextlib.contextmanager
    def _lock(self, name: str, waits: bool = False) -> Iterator[bool]:
        """Holds a lock among the processes that share the folder. Yields whether it does."""
        path = self.folder / "locks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True


def _train(config: experiments.ExperimentConfig) -> None:
    """Trains to the end.

    Raises:
        KeyboardInterrupt: A signal stopped the run, which is saved and continues when it is called again.
    """
    if experiments.run_experiment(config).interrupted_by:
        raise KeyboardInterrupt


def full_returns(recorded: datasets.Recording) -> list[float]:
    """Returns the returns of the episodes of full length: shorter ones may have been cut off."""
    episodes = [(episode.num_steps, float(np.sum(episode.reward))) for episode in recorded]
    longest = max(length for length, _ in episodes)
    return [value for length, value in episodes if length == longest]


def reported_agents(kind: str, chosen: Mapping[str, str]) -> dict[str, str]:
    """Returns the agents that are scored on a kind of data, with their settings."""
    return {agent: setting for agent, setting in chosen.items() if agent == "bc" or kind != BC_ALONE}


def tuning(tasks: Sequence[Task], agent: str) -> list[Score]:
    """Returns the runs by which the setting of an agent is chosen: none if it has only one."""
    settings = SETTINGS[agent]
    return [
        Score(task, "replay", agent, setting, seed)
        for setting, task, seed in itertools.product(settings, tasks, TUNING_SEEDS.get(agent, ()))
        if task.tunes
    ]


def best(scores: Mapping[str, Sequence[float]]) -> str:
    """Returns the setting with the highest mean, the first of several."""
    return max(scores, key=lambda setting: statistics.fmean(scores[setting]))


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """Returns the mean of paired differences and half the width of its 95 % interval, by Student's t."""
    mean, number = statistics.fmean(differences), len(differences)
    if number < 2:
        return mean, float("nan")
    error = statistics.stdev(differences) / number**0.5
    return mean, float(stats.t.ppf(0.975, number - 1)) * error


def table(rows: Sequence[tuple[str, str, str, float, Mapping[Any, float], Mapping[Any, float]]]) -> str:
    """Returns a Markdown table.

    Args:
        rows: Task, kind of data, agent, score of the data, and the scores of agent and BC by run.
    """
    lines = ["| task | data | score of the data | agent | score | minus BC, 95 % interval | runs |"]
    lines.append("|---" * 7 + "|")
    for task, kind, agent, of_data, own, of_bc in rows:
        pairs = [own[run] - of_bc[run] for run in sorted(own) if run in of_bc]
        mean, half = interval(pairs) if pairs else (float("nan"), float("nan"))
        difference = "" if agent.startswith("BC") or not pairs else f"{mean:+.3f} +- {half:.3f}"
        score = f"{statistics.fmean(own.values()):.3f}" if own else ""
        lines.append(f"| {task} | {kind} | {of_data:.3f} | {agent} | {score} | {difference} | {len(own)} |")
    return "\n".join(lines)


def _rows(study: Study, tasks: Sequence[Task], chosen: Mapping[str, str]) -> Iterator[tuple[Any, ...]]:
    for task in tasks:
        for kind in task.kinds:
            greedy = study.pooled(f"{PREFIX}bc+{chosen['bc']}", task, kind)
            found = {"BC, as the data did": study.pooled(f"{PREFIX}bc+{chosen['bc']}{EXPLORE}", task, kind)}
            for agent, setting in reported_agents(kind, chosen).items():
                own = study.pooled(f"{PREFIX}{agent}+{setting}", task, kind)
                found[f"{agent.upper()}, {setting}"] = own
            for label, own in found.items():
                of_data = statistics.fmean(study.data_score(data, kind) for data, _ in own or greedy)
                yield task.name, kind, label, of_data, own, greedy


def tuning_table(study: Study, tasks: Sequence[Task], agents: Iterable[str]) -> str:
    """Returns a Markdown table of the mean scores of all settings, by task, on the seeds for tuning."""
    tasks = [task for task in tasks if task.tunes]
    lines = [
        f"| agent | setting | {' | '.join(task.name for task in tasks)} |",
        "|---" * (2 + len(tasks)) + "|",
    ]
    for agent in agents:
        by_task = [study.tuned([task], agent) for task in tasks]
        for setting in dict.fromkeys(itertools.chain(*by_task)):
            means = [f"{statistics.fmean(scores[setting]):.3f}" for scores in by_task]
            lines.append(f"| {agent.upper()} | {setting} | {' | '.join(means)} |")
    return "\n".join(lines)


def _make(study: Study, tasks: Sequence[Task], agents: Sequence[str]) -> dict[str, str]:
    torch.set_num_threads(1)
    for task in tasks:
        study.make_data(task)
    if any(task.maker_seed for task in tasks):
        chosen = _stored().choose(TASKS, agents)
    else:
        study.score_all(score for agent in agents for score in tuning(tasks, agent))
        chosen = study.choose(tasks, agents)
    study.score_all(
        Score(task, kind, agent, setting, seed)
        for task in tasks
        for kind, seed in itertools.product(task.kinds, task.seeds)
        for agent, setting in reported_agents(kind, chosen).items()
    )
    return chosen


def _stored() -> Study:
    """Returns the study whose rows are stored with the library, to read them."""
    study = Study(pathlib.Path(), 0)
    study.results = STORED
    return study


def store_scores(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copies the final scores in a folder of rows to another one, without what else is known of the runs."""
    for path in sorted(source.glob(f"{PREFIX}*.csv")):
        (experiment,) = results.read(path)
        rows = tuple(
            row
            for row in experiment.rows
            if row.metric in ("final_return", "final_return_std")
            or (row.metric == "random_return" and experiment.exp_name == FINAL)
        )
        results.write(target, dataclasses.replace(experiment, rows=rows))


def main(arguments: Sequence[str] | None = None) -> str:
    """Makes what is missing, prints the tables of scores and of settings, and returns them."""
    parser = argparse.ArgumentParser(prog="python -m tests.learning.offline", description=__doc__)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("runs/offline"))
    parser.add_argument("--num-learner-steps", type=int, default=20_000)
    parser.add_argument("--episodes", type=int, help="of each final score, if others")
    parser.add_argument(
        "--tasks",
        nargs="+",
        default=[task.name for task in TASKS],
        help="settings are chosen on these, walker walk excepted",
    )
    parser.add_argument("--agents", nargs="+", choices=SETTINGS, default=SETTINGS, help="these and BC")
    parser.add_argument("--seeds", type=int, nargs="+", help="the seeds to report, if others")
    parser.add_argument(
        "--maker-seed",
        type=int,
        default=0,
        help="of the agent that makes the data: with another one than 0, settings are those chosen before",
    )
    parser.add_argument("--num-env-steps", type=int, help="of the agent that makes the data, if others")
    parser.add_argument("--device", default="cpu", help="of the learners")
    parser.add_argument("--stored", action="store_true", help="train nothing: the tables of stored results")
    given = parser.parse_args(arguments)
    options = {
        "num_env_steps": given.num_env_steps,
        "num_scored": given.episodes,
        "seeds": given.seeds and tuple(given.seeds),
    }
    changes: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    tasks = [task._replace(**changes) for task in TASKS if task.name in given.tasks]
    study = Study(given.folder, given.num_learner_steps, given.device)
    agents = [agent for agent in SETTINGS if agent in ("bc", *given.agents)]
    if given.stored:
        study = _stored()
        chosen = study.choose(tasks, agents)
    else:
        chosen = _make(study, [task._replace(maker_seed=given.maker_seed) for task in tasks], agents)
        store_scores(study.results, given.folder / "scores")
    tuned = _stored() if given.maker_seed else study
    tables = table(list(_rows(study, tasks, chosen))), tuning_table(tuned, tasks, agents)
    printed = "\n\n".join(tables)
    print(printed)
    return printed


if __name__ == "__main__":
    main()
