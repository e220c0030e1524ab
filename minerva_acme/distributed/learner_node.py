"""The node that learns, serves weights and writes the checkpoints."""

import contextlib
import dataclasses
import logging
import math
import pathlib
import threading
import time
from collections.abc import Collection, Sequence
from typing import Any

import tree

from minerva_acme import core, counting, learners, loggers, specs
from minerva_acme.agents.on_policy import rounds
from minerva_acme.distributed import counter_node, graph, meeting, program, reports, shared_dataset, weights
from minerva_acme.experiments import parts, saver, seeds
from minerva_acme.replay import base as replay
from minerva_acme.replay import waiting
from minerva_acme.replay.reverb import store
from minerva_acme.runs import checkpointing, evaluation, run_lock
from minerva_acme.runs import config as experiment_config

_logger = logging.getLogger(__name__)

_LOCK_SECONDS = 30.0  # the longest wait for the end of a learner that was given up
_IDLE_SECONDS = 0.05
_ANSWER_SECONDS = 1.0  # of replay, when asked for the state of its tables
_LEAVE_SECONDS = 5.0  # after another learner left, for this one to be asked to end, as at the end of a run
_SAVE_PAUSES = (1.0, 4.0, 10.0)  # seconds before each retry of a failed save
_LAST_PAUSE = 1.0  # the same once the run ends, which somebody may be waiting for
_COUNTER_SECONDS = 30.0  # the longest wait of the last save for the counter


@dataclasses.dataclass(eq=False, kw_only=True)
class LearnerNode(graph.Part):
    """Learns from replay, as fast as its rate limiter lets it.

    It writes the run's checkpoints: weights, counts, evaluations and, if configured, replay. After a restart
    it resumes from the newest. A learner that was given up but still lives cannot write there: the folder is
    locked.

    If there are several, each is a node, and learns from its share of every batch; all make the same steps.
    Number 0 serves the weights and writes the checkpoints. If one is lost, so is the step that they make: all
    begin again, from the checkpoint that number 0 tells the others.
    """

    exports = ("poll", "finish", "is_idle", "keep_best", "saved_at", "join", "meeting_file")

    config: experiment_config.ExperimentConfig
    """The run's config, whose builder is the one for the player's actors."""
    spec: specs.EnvironmentSpec
    """The spec of the environments."""
    player: checkpointing.Player
    """The run's player."""
    address: str
    """The `host:port` of replay."""
    resume_from: pathlib.Path | None
    """The checkpoint to begin with, or None; after a restart it is the newest that was made since."""
    known: Collection[tuple[str, int]] = ()
    """The `marks` of the run's checkpoints at the beginning."""
    num_learners: int = 1
    """The number of learners; the context's index is the number of this one."""

    def __post_init__(self) -> None:
        self._rank = self.context.index
        self._host: meeting.Host | None = None
        self._ranks: learners.Ranks | None = None
        self._shared: shared_dataset.SharedDataset | None = None
        self._finishing = threading.Event()
        self._idle = threading.Event()
        self._learner: core.Learner | None = None
        self._dataset: Any = None
        self._num_steps = 0  # of this incarnation, for a learner that counts no versions
        # The last answers by the names of the weights, each with its version in the learner's own numbering.
        self._newest: dict[tuple[str, ...], tuple[int | None, graph.Shared]] = {}
        self._poll_lock = threading.Lock()
        self._best: list[tuple[evaluation.Evaluations, Any]] = []  # to be saved, with the variables
        self._saved_at = 0
        self._evaluated = 0  # the step of the last evaluation that is saved
        self._waited = 0.0

    def run(self) -> None:
        try:
            self._run()
        except learners.LearnerLost as error:
            raise graph.NodeLeft(f"{error} All learners begin again from the newest checkpoint.") from error

    def _run(self) -> None:
        config, builder = self.config, self.config.builder
        own_seeds = seeds.Seeds(config.seed)
        with contextlib.ExitStack() as resources:
            deadline = time.monotonic() + _LOCK_SECONDS
            if self._rank == 0:
                resources.enter_context(
                    run_lock.hold(
                        config.directory,
                        file=program.LEARNER_LOCK,
                        should_wait=lambda: time.monotonic() < deadline and not self.context.stop.is_set(),
                    )
                )
            if not self._meet(resources):
                return
            self._generators = seeds.GlobalGenerators(config.torch_device)
            resources.enter_context(self._generators.seeded(own_seeds))
            self._checkpointer = parts.make_checkpointer(config, self.player)
            self._client = store.ReverbClient(self.address, timeout_seconds=math.inf)
            self._reporter = reports.Reporter(self.context, alone=True)
            self._reporter.status = self._status
            resources.callback(self._reporter.close)
            # Filtered here, not where the rows are written: reading the numbers of every step takes time.
            logger: loggers.Logger = loggers.TimeFilter(
                self._reporter.logger("learner"), config.log_period_seconds
            )
            if self._rank:
                logger = loggers.Dispatcher([])
            resources.enter_context(logger)
            counter = self._reporter.counter if self._rank == 0 else counting.Counter()
            learner, self._dataset = parts.make_learner(
                config,
                self.player,
                networks=builder.make_networks(self.spec, own_seeds.generator("networks")),
                spec=self.spec,
                client=self._client,
                run_seeds=own_seeds,
                counter=counter,
                logger=logger,
                resources=resources,
                ranks=self._ranks,
                share=self._share,
            )
            self._restore(learner)
            if self._saved_at >= config.num_env_steps:  # nothing is left to play
                self._finishing.set()
            self._reporter.start()
            self._learner = learner  # from here on the node answers calls
            self._learn(learner, counter)
            self._part()
            self._idle.set()
            if self._rank:
                meeting.stay(self.context, self._begin.file)
                return
            while not self.context.stop.wait(_IDLE_SECONDS):
                self._keep_best()
            self._keep_best()
            # If it was stopped before it knew the run's counts, there is nothing new to save.
            self._hear(_COUNTER_SECONDS)
            evaluated = self._evaluations().logged_until
            if self._env_steps() > self._saved_at or self._num_steps or evaluated > self._evaluated:
                self._save()

    def poll(self, names: Sequence[str], newer_than: int) -> graph.Shared | None:
        """Returns the version and variables of the last completed step, or None if they are not newer.

        Raises:
            NodeSilence: The learner is being made.
        """
        learner = self._learner
        if learner is None:
            raise graph.NodeSilence("The learner is starting.")
        with self._poll_lock:
            key = tuple(names)
            own_version, newest = self._newest.get(key, (None, None))
            answer = learner.poll_variables(names, own_version)
            if answer is not None:
                steps = answer.version if answer.version is not None else self._num_steps
                number = weights.version(self._begin.incarnation, steps)
                newest = graph.Shared(number, (number, answer.values), name=key)
                self._newest[key] = answer.version, newest
            assert newest is not None
            return newest if newest.key > newer_than else None

    def finish(self) -> None:
        """Lets the learner make only the steps that are still due for the written items."""
        self._finishing.set()

    def is_idle(self) -> bool:
        """Returns whether the last step has been made."""
        return self._idle.is_set()

    def keep_best(self, evaluations: core.State, variables: Any) -> None:
        """Keeps the weights of the latest evaluation, which is the best so far, in a light checkpoint."""
        copied = tree.map_structure(_copied, list(variables))
        self._best.append((evaluation.Evaluations.of(evaluations), copied))

    def saved_at(self) -> int:
        """Returns the environment steps of the newest checkpoint.

        Raises:
            NodeSilence: The learner is being made, and has nothing to save yet.
        """
        if self._learner is None:
            raise graph.NodeSilence("The learner is starting.")
        return self._saved_at

    def join(self, rank: int, incarnation: int) -> meeting.Meeting:
        """Returns what all learners begin with; see `meeting.Host`. Called by the others."""
        return self._the_host().join(rank, incarnation)

    def meeting_file(self) -> str:
        """Returns the file through which all learners have connected, or are going to."""
        return self._the_host().file()

    def _the_host(self) -> meeting.Host:
        if self._host is None:
            raise graph.NodeSilence("The learner is starting.")
        return self._host

    def _meet(self, resources: contextlib.ExitStack) -> bool:
        """Waits for the other learners, if there are any. Returns False if this one is asked to end."""
        checkpoint = self._find_checkpoint() if self._rank == 0 else None
        begin: meeting.Meeting | None = meeting.Meeting("", checkpoint, self.context.incarnation)
        if self.num_learners > 1 and self._rank == 0:
            self._host = meeting.Host(
                self.context,
                directory=str(self.config.directory),
                num_learners=self.num_learners,
                checkpoint=checkpoint,
            )
            resources.callback(self._host.close)
            begin = self._host.wait()
        elif self._rank:
            begin = meeting.join(self.context)
        if begin is None:
            return False
        self._begin = begin
        if self.num_learners > 1:
            self._ranks = resources.enter_context(
                learners.Ranks(begin.file, self._rank, self.num_learners, device=self.config.torch_device)
            )
        return True

    def _share(self, dataset: Any) -> Any:
        """Returns what the learner takes its batches from."""
        if self._ranks is None:
            return dataset
        self._shared = shared_dataset.SharedDataset(
            dataset, self._ranks, leaves=self.context.stop.is_set, is_done=self._is_done
        )
        return self._shared

    def _part(self) -> None:
        """Begins again if another learner leaves, unless the whole run ends.

        Raises:
            NodeLeft: One leaves. What was learned is saved.
        """
        if self._shared is None or not self._shared.is_left or self.context.stop.wait(_LEAVE_SECONDS):
            return
        if self._rank == 0:
            self._hear(0.0)
            self._save()
        raise graph.NodeLeft("Another learner leaves its machine. All begin again, with what was learned.")

    def _is_done(self) -> bool:
        return self._finishing.is_set() and not self._is_behind()

    def _learn(self, learner: core.Learner, counter: counting.Counter) -> None:
        def should_stop() -> bool:
            return self.context.stop.is_set() or self._is_done()

        with waiting.rules(should_stop):
            # Several learners stop together, before a batch.
            while self._ranks is not None or not should_stop():
                if isinstance(self._dataset, rounds.RoundDataset | rounds.QueueDataset):
                    self._dataset.version = self._version(learner)
                try:
                    with counter.at_least_once("learner_steps"):  # by a learner that counts nothing
                        learner.step()
                except replay.ReplayStopped:
                    break
                except replay.ReplaySilence as error:  # it may come back
                    _logger.warning("%s", error)
                    continue
                except StopIteration as error:
                    raise ValueError("`make_dataset` must return an endless iterator.") from error
                self._num_steps += 1
                self._reporter.has_worked = True
                self._keep_best()
                period = self.config.checkpoint_period
                if self._rank == 0 and period and self._env_steps() - self._saved_at >= period:
                    self._hear(0.0)
                    self._save()

    def _is_behind(self) -> bool:
        """Returns whether steps are due for the written items. By now, nothing writes any more."""
        for table in self._tables():
            limiter = table.rate_limiter
            if isinstance(limiter, replay.SampleToInsertRatio):
                try:
                    # This is asked in each wait of the learner too: it must not wait long, nor ask itself.
                    with waiting.rules(self.context.stop.is_set):
                        client = store.ReverbClient(self.address, answer_seconds=_ANSWER_SECONDS)
                        info = client.table_info(table.name)
                except replay.ReplaySilence:  # it may come back, and the steps are still due
                    return True
                except replay.ReplayError:
                    return False
                if info.sampled < limiter.samples_per_insert * (info.inserted - limiter.min_size):
                    return True
        return False

    def _version(self, learner: core.Learner) -> int:
        newest = self.poll(self.config.builder.policy_variables, -1)
        assert newest is not None
        return newest.key

    def _env_steps(self) -> int:
        return int(self._reporter.counter.get_count("actor_steps"))

    def _hear(self, seconds: float) -> None:
        """Fetches the counts of the other nodes.

        Args:
            seconds: The time to wait if the counter does not answer. A full disk is not waited for.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                self._reporter.send()
                return
            except graph.NodeSilence as error:
                if isinstance(error, graph.CannotWrite) or time.monotonic() >= deadline:
                    _logger.warning("this checkpoint may miss the newest environment steps: %s", error)
                    return
                time.sleep(_IDLE_SECONDS)

    def _save(self) -> None:
        """Writes a checkpoint of the whole run, and tries again if that fails.

        Raises:
            NodeDoomed: The checkpoint cannot be written. A restart would also lose the progress since the
                previous checkpoint.
        """
        for pause in (*_SAVE_PAUSES, None):
            try:
                self._write(is_last_try=pause is None)
                return
            except (OSError, replay.ReplayError) as error:
                if pause is None:
                    raise graph.NodeDoomed(str(error)) from error
                _logger.warning("%s Trying again soon.", error)
                if self.context.stop.wait(pause):
                    time.sleep(_LAST_PAUSE)

    def _write(self, is_last_try: bool) -> None:
        with waiting.rules(is_alone=True):  # not ended by a request to stop, which is a request to save
            try:
                files = self._client.checkpoint() if self.config.checkpoint_replay else None
            except replay.ReplayError as error:
                if not is_last_try:
                    raise
                _logger.warning("this checkpoint is without replay: %s", error)
                files = None
        env_steps = self._env_steps()
        evaluations = self._evaluations()
        state = self._state(env_steps, evaluations)
        self._checkpointer.save(env_steps, state, files, evaluation=evaluations.score_at(env_steps))
        self._saved_at, self._evaluated = env_steps, max(0, evaluations.logged_until)
        _logger.info("saved at %d environment steps", env_steps)

    def _evaluations(self) -> evaluation.Evaluations:
        return evaluation.Evaluations.of(self._reporter.facts.get("evaluations") or {})

    def _keep_best(self) -> None:
        while self._best:
            evaluations, variables = self._best.pop(0)
            assert evaluations.latest is not None
            env_steps, _ = evaluations.latest
            score = evaluations.score_at(env_steps)
            if self._checkpointer.is_best(score):
                try:
                    state = self._state(env_steps, evaluations) | checkpointing.policy_state(variables)
                    self._checkpointer.save(env_steps, state, evaluation=score, light=True)
                except OSError as error:  # training continues, and the next checkpoint may fit
                    _logger.warning("the best weights so far are not kept separately: %s", error)

    def _state(self, env_steps: int, evaluations: evaluation.Evaluations) -> core.State:
        assert self._learner is not None
        state = saver.learning_state(
            self.config,
            self._learner,
            self._dataset,
            self._reporter.counter.get_counts() | {"actor_steps": env_steps},
            self._generators,
            evaluations.save(),
        )
        # A run that has given it up has no last evaluation left to make.
        has_evaluator = "evaluator" not in self._reporter.facts.get(counter_node.GIVEN_UP, ())
        return {**state, "has_evaluator": has_evaluator}

    def _find_checkpoint(self) -> str | None:
        """Returns the checkpoint to begin with, or None."""
        checkpoint = self.resume_from
        if self.context.incarnation:
            checkpoint = checkpointing.find_to_restart(self.config.directory, checkpoint, self.known)
            if checkpoint is None:
                _logger.warning("the learner starts again from the beginning: there was no checkpoint yet")
        return None if checkpoint is None else str(checkpoint)

    def _restore(self, learner: core.Learner) -> None:
        if not self._begin.checkpoint:
            return
        checkpoint = pathlib.Path(self._begin.checkpoint)
        state = checkpointing.load_state(checkpoint, str(self.config.torch_device))
        with checkpointing.explain_misfit(checkpoint):
            learner.restore(state["learner"])
            saver.restore_own(self.config, self._dataset, state)
            if self._rank == 0:  # which alone reports them
                self._reporter.counter.restore(
                    {name: value for name, value in state["counter"].items() if name.startswith("learner_")}
                )
            self._generators.restore(state["generators"])
        self._saved_at = int(state["counter"].get("actor_steps", 0))
        self._evaluated = max(0, evaluation.Evaluations.of(state).logged_until)
        _logger.info("the learner resumes from %s", checkpoint)

    def _status(self) -> dict[str, float]:
        if self._rank:
            return {"steps": self._num_steps}
        status = {
            "steps": self._reporter.counter.own().get("learner_steps", 0),
            "wait_seconds": float(getattr(self._dataset, "wait_seconds", 0.0)),
        }
        if isinstance(self._dataset, rounds.RoundDataset):
            status |= {"stale": self._dataset.num_stale, "surplus": self._dataset.num_surplus}
        with contextlib.suppress(replay.ReplayError):
            # One request for all tables, which does not wait for a server that is away.
            tables = store.ReverbClient(self.address, answer_seconds=_ANSWER_SECONDS)
            infos = [tables.table_info(table.name) for table in self._tables()]
            status |= {
                "inserted": sum(info.inserted for info in infos),
                "sampled": sum(info.sampled for info in infos),
                "size": sum(info.size for info in infos),
                "max_size": sum(info.max_size for info in infos),
                "min_size": sum(info.min_size for info in infos),
            }
        return status

    def _tables(self) -> Sequence[replay.TableConfig]:
        return self.config.builder.make_replay_tables(self.spec)


def _copied(leaf: Any) -> Any:
    return leaf.copy() if hasattr(leaf, "copy") else leaf
