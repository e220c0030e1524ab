"""The evaluations of a run: played, logged, filmed and remembered."""

import contextlib
import logging
from typing import Any

from minerva_acme import core, counting
from minerva_acme.experiments import config as experiment_config
from minerva_acme.experiments import evaluation, run_logs, seeds, signals

_logger = logging.getLogger(__name__)


class Evaluator(core.Saveable):
    """Evaluates policies in fresh environments, seeded by the environment step they are for.

    Nothing of these environments needs to be saved, and nothing that happens in them changes training.
    """

    random: evaluation.Evaluation | None = None
    """Of uniformly random actions, before training."""
    before: evaluation.Evaluation | None = None
    """Of the policy, before training."""
    latest: tuple[int, evaluation.Evaluation] | None = None
    """The last one while or after training, and its environment step."""
    best: tuple[int, evaluation.Evaluation] | None = None
    """The one of these with the highest mean, and its environment step."""

    def __init__(
        self,
        config: experiment_config.ExperimentConfig,
        *,
        actor: core.Actor,
        random_actor: core.Actor,
        film_actor: core.Actor | None,
        counter: counting.Counter,
        logs: run_logs.RunLogs,
        run_seeds: seeds.Seeds,
    ) -> None:
        """Evaluates nothing yet.

        Args:
            config: says where to play, how many episodes, and how to film.
            actor: follows the learner and selects the actions that the agent is judged by.
            random_actor: acts uniformly at random.
            film_actor: like `actor`, with randomness of its own, so that films change nothing in the
                run; None: no films.
            counter: of the run.
            logs: receive rows and films.
            run_seeds: of the run.
        """
        self._config = config
        self._actor = actor
        self._random_actor = random_actor
        self._film_actor = film_actor
        self._counter = counter
        self._logs = logs
        self._seeds = run_seeds

    def evaluate_before_training(self, stop: signals.StopRequest) -> None:
        """Evaluates random actions and the untrained policy, unless a checkpoint had both."""
        if self.before is not None:
            return
        self.random = self._play(self._random_actor, 0, stop)
        if self.random is not None:
            self.before = self._play(self._actor, 0, stop)
        if self.before is not None:
            self._publish(self.before, 0, stop)

    def evaluate(self, env_steps: int, stop: signals.StopRequest) -> bool:
        """Evaluates the policy, unless that was done at the same environment step.

        Args:
            env_steps: made so far.
            stop: cuts the evaluation short.

        Returns:
            Whether there is a new evaluation.
        """
        if self.latest is not None and self.latest[0] == env_steps:
            return False
        result = self._play(self._actor, env_steps, stop)
        if result is None:
            return False
        self.latest = (env_steps, result)
        if self.best is None or result.mean > self.best[1].mean:
            self.best = self.latest
        self._publish(result, env_steps, stop)
        return True

    def save(self) -> core.State:
        return {
            "random": self.random and tuple(self.random),
            "before": self.before and tuple(self.before),
            "latest": self.latest and (self.latest[0], tuple(self.latest[1])),
            "best": self.best and (self.best[0], tuple(self.best[1])),
        }

    def restore(self, state: core.State) -> None:
        def unpack(packed: Any) -> evaluation.Evaluation | None:
            return packed and evaluation.Evaluation(*map(tuple, packed))

        def unpack_dated(dated: Any) -> Any:
            return dated and (dated[0], unpack(dated[1]))

        self.random, self.before = unpack(state["random"]), unpack(state["before"])
        self.latest, self.best = unpack_dated(state["latest"]), unpack_dated(state["best"])

    def _play(
        self, actor: core.Actor, env_steps: int, stop: signals.StopRequest
    ) -> evaluation.Evaluation | None:
        actor.update(wait=True)
        with contextlib.closing(self._config.environment_factory(self._seed(env_steps))) as environment:
            return evaluation.evaluate(
                environment, actor, self._config.evaluation_episodes, should_stop=lambda: bool(stop)
            )

    def _publish(self, result: evaluation.Evaluation, env_steps: int, stop: signals.StopRequest) -> None:
        counts = {"actor_steps": 0, **self._counter.get_counts()}
        self._logs.evaluator.write({**counts, **result.metrics()})
        _logger.info(
            "%d environment steps: return %.1f +- %.1f over %d episodes",
            env_steps,
            result.mean,
            result.std,
            len(result.returns),
        )
        if self._film_actor is None or stop:
            return
        assert self._config.film_episode is not None
        # The first episode is played once more.
        self._film_actor.update(wait=True)
        try:
            gif = self._config.film_episode(self._film_actor, self._seed(env_steps), lambda: bool(stop))
        except (OSError, ValueError) as error:  # drawing worked before training: no reason to stop
            _logger.warning("no film of the evaluation at %d steps: %s", env_steps, error)
            return
        if gif is not None:
            self._logs.write_film(gif, step=env_steps)

    def _seed(self, env_steps: int) -> int:
        return self._seeds.number("evaluation", env_steps)
