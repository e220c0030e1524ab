"""The node that evaluates."""

import contextlib
import dataclasses
import logging
import threading

from minerva_acme import counting, loggers, specs
from minerva_acme.distributed import graph, reports, weights
from minerva_acme.experiments import evaluator, parts, seeds, signals
from minerva_acme.runs import config as experiment_config
from minerva_acme.runs import evaluation

_logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.2


@dataclasses.dataclass(eq=False, kw_only=True)
class EvaluatorNode(graph.Part):
    """Evaluates the newest weights after each period, in parallel with training, and at the end.

    Its results are stored as a fact in the counter's node: they survive the evaluator, and are saved in
    checkpoints.
    """

    exports = ("finish",)

    config: experiment_config.ExperimentConfig
    """The run's config."""
    spec: specs.EnvironmentSpec
    """The spec of the training environments."""

    def __post_init__(self) -> None:
        self._finishing = threading.Event()

    def finish(self) -> None:
        """Lets the node evaluate the newest weights once more and then end."""
        self._finishing.set()

    def run(self) -> None:
        context = self.context
        with contextlib.ExitStack() as resources:
            reporter = reports.Reporter(context)
            resources.callback(reporter.close)
            reporter.start()  # brings the facts
            follower = weights.Follower(
                context.handle("learner"),
                self.config.builder.evaluation_variables,
                period_seconds=_POLL_SECONDS,
                stop=context.stop,
            )
            resources.callback(follower.close)
            run = _Run(self.config, self.spec, reporter, context.handle("counter"))
            evaluations = evaluator.Evaluator(run)
            if (known := reporter.facts.get("evaluations")) is not None:
                evaluations.restore(known)
            try:
                self._evaluate(run, evaluations, reporter, follower)
            except evaluator.UnknownMetric as error:
                raise graph.NodeDoomed(str(error)) from error

    def _evaluate(
        self,
        run: "_Run",
        evaluations: evaluator.Evaluator,
        reporter: reports.Reporter,
        follower: weights.Follower,
    ) -> None:
        stop = _Stop(self.context.stop)
        had = evaluations.before is not None
        evaluations.evaluate_before_training(stop)
        if not had:
            reporter.has_worked = True
            self._note(evaluations)
        while not stop:
            is_last = self._finishing.is_set()
            run.begin()
            if (is_last or self._is_due(run, evaluations)) and self._catch_up(follower):
                with contextlib.suppress(graph.NodeSilence):
                    reporter.send()  # the reply has the current step
                run.begin(follower)
                # The steps may have ended meanwhile: the last evaluation is made of the final weights.
                if (is_last or self._is_due(run, evaluations)) and evaluations.evaluate(stop):
                    reporter.has_worked = True
                    self._note(evaluations)
                    self._offer_best(evaluations, run)
            if is_last:
                break
            self._finishing.wait(_POLL_SECONDS)

    def _is_due(self, run: "_Run", evaluations: evaluator.Evaluator) -> bool:
        return run.steps < self.config.num_env_steps and evaluations.is_due()

    def _catch_up(self, follower: weights.Follower) -> bool:
        """Waits for weights, at the end the final ones. Returns False if the node is asked to stop."""
        while not (self.context.stop.is_set() or follower.wait(-1, _POLL_SECONDS)):
            pass
        return not self.context.stop.wait(2 * _POLL_SECONDS)  # `follower` may be one poll behind

    def _note(self, evaluations: evaluator.Evaluator) -> None:
        """Sends the evaluations to the counter's node, until it answers."""
        while not self.context.stop.is_set():
            try:
                self.context.handle("counter").call("put", "evaluations", evaluations.save())
                return
            except graph.NodeSilence as error:
                _logger.warning("an evaluation is waiting to be stored: %s", error)
                self.context.stop.wait(_POLL_SECONDS)

    def _offer_best(self, evaluations: evaluator.Evaluator, run: "_Run") -> None:
        if not self.config.checkpoint_best or evaluations.latest != evaluations.best:
            return
        assert run.source is not None
        values = run.source.get_variables(self.config.builder.evaluation_variables)
        try:
            self.context.handle("learner").call("keep_best", evaluations.save(), values)
        except graph.NodeSilence as error:
            _logger.warning("the best weights so far are not kept separately: %s", error)


class _Run:
    """The parts of a run that `Evaluator` needs; see `evaluator.EvaluatedRun`."""

    def __init__(
        self,
        config: experiment_config.ExperimentConfig,
        spec: specs.EnvironmentSpec,
        reporter: reports.Reporter,
        handle: graph.Handle,
    ) -> None:
        self.config = config
        self.spec = spec
        self.seeds = seeds.Seeds(config.seed)
        self.source: weights.Fixed | None = None
        self.steps = 0
        self.counter = counting.Counter()
        self._shared = reporter.counter
        self.logs = _Logs(reporter.logger("evaluator"), handle)
        self._networks = config.builder.make_networks(spec, self.seeds.generator("networks"))

    def begin(self, follower: weights.Follower | None = None) -> None:
        """Begins an evaluation, which has the counts and the weights of now, whatever comes meanwhile.

        Args:
            follower: The source of the weights, or None to leave them as they are.
        """
        self.counter.restore(self._shared.get_counts())
        self.steps = int(self.counter.get_count("actor_steps"))
        if follower is not None:
            self.source = weights.Fixed(follower, self.config.builder.evaluation_variables)

    def make_evaluation_actor(
        self, environment: experiment_config.Environment | None = None
    ) -> evaluation.Actor:
        return parts.make_evaluation_actor(self, self._networks, self.source, environment)


class _Logs:
    def __init__(self, logger: loggers.Logger, handle: graph.Handle) -> None:
        self.evaluator = logger
        self._handle = handle

    def write_film(self, gif: bytes, *, step: int) -> None:
        try:
            self._handle.call("write_film", gif, step)
        except graph.NodeSilence as error:
            _logger.warning("the video of the evaluation at %d steps is lost: %s", step, error)


class _Stop(signals.StopRequest):
    """A stop request that follows the node's event."""

    def __init__(self, event: threading.Event) -> None:
        super().__init__()
        self._event = event

    def __bool__(self) -> bool:
        return self._event.is_set()
