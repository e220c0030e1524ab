"""Whole runs with several actors, in threads."""

import functools
import io
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
import tree
from rich import console as rich_console

import minerva_acme
from minerva_acme import builders, core, distributed, experiments
from minerva_acme.agents import acting, sac
from minerva_acme.distributed import supervisor, weights
from minerva_acme.experiments import seeds
from minerva_acme.replay import base as replay
from minerva_acme.runs import checkpointing
from tests.distributed import small

pytestmark = [pytest.mark.reverb, pytest.mark.timeout(300), pytest.mark.usefixtures("looks_often")]

# With large batches the learner, which may draw some items ahead of the actors, makes few steps of them.
sac_builder = functools.partial(small.sac_builder, batch_size=64)


def run(config: experiments.ExperimentConfig, *callbacks: Any, num_actors: int = 2, **more: Any) -> Any:
    return distributed.run_distributed_experiment(
        config, *callbacks, num_actors=num_actors, engine="inline", **more
    )


@pytest.mark.promise("The ratio of samples per insert holds across processes")
def test_a_run_over_replay_keeps_its_ratio_evaluates_saves_and_resumes(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[experiments.Progress] = []
    shown = io.StringIO()
    display = experiments.ProgressDisplay(rich_console.Console(file=shown, width=80))
    result = run(small.experiment(tmp_path, sac_builder()), seen.append, progress=display)
    assert f"{result.env_steps} steps: evaluation return" in shown.getvalue()
    assert result.env_steps >= 600 and result.before is not None and result.after is not None
    # 4 samples an insert beyond the first 50, in batches of 64, within the limiter's tolerance.
    tolerance = sac_builder().for_actors(2).make_rate_limiter().error_buffer / 64
    assert abs(result.learner_steps - (result.env_steps - 50) * 4 / 64) <= tolerance
    steps = [progress.env_steps for progress in seen]
    assert steps == sorted(steps) and steps[-1] == result.env_steps
    assert {"actor/0", "actor/1", "learner", "evaluator"} <= seen[-1].nodes.keys()
    assert seen[-1].last_evaluation == result.after and seen[-1].last_episode_return is not None
    # A display tells a new evaluation by its object.
    evaluations = {id(progress.last_evaluation) for progress in seen if progress.last_evaluation is not None}
    assert len(evaluations) <= len(small.rows(tmp_path, "evaluator"))
    episodes = small.rows(tmp_path, "actor")
    counted = [int(row["actor_steps"]) for row in episodes]
    assert len(counted) > 20 and max(counted) <= result.env_steps
    assert small.rows(tmp_path, "evaluator") and small.rows(tmp_path, "learner")
    assert not list(tmp_path.glob(".counts-*")) and not (tmp_path / "checkpoints" / ".replay").exists()
    state = checkpointing.load_state(checkpointing.find(tmp_path))
    assert state["counter"]["actor_steps"] == result.env_steps
    assert minerva_acme.load_policy(tmp_path, environment=small.Ramp(0), builder=sac_builder())

    restored = []
    restore = seeds.GlobalGenerators.restore
    monkeypatch.setattr(
        seeds.GlobalGenerators, "restore", lambda own, state: restore(own, state) or restored.append(state)
    )
    # Fast actors make hundreds of steps between two reports, and so beyond the 600.
    wanted = result.env_steps + 100
    longer = run(small.experiment(tmp_path, sac_builder(), num_env_steps=wanted))
    assert longer.env_steps >= wanted >= 700 and longer.learner_steps > result.learner_steps
    assert longer.before == result.before  # remembered, not played again
    assert torch.equal(restored[0]["torch"], state["generators"]["torch"])  # of the learner's process
    more = [int(row["actor_steps"]) for row in small.rows(tmp_path, "actor")]
    assert len(more) > len(counted) and max(more) <= longer.env_steps
    assert min(more[len(counted) :]) > result.env_steps


TAGS = {"policy": 0.25, "average_policy": 0.5}


class Tagged(small.Wrapped):
    """A learner whose variables tell their names."""

    def get_variables(self, names: Sequence[str]) -> Any:
        found = zip(names, super().get_variables(names), strict=True)
        return [
            tree.map_structure(lambda leaf, tag=TAGS[name]: np.full_like(leaf, tag), x) for name, x in found
        ]

    def poll_variables(self, names: Sequence[str], newer_than: int | None = None) -> Any:
        found = super().poll_variables(names, newer_than)
        return found and found._replace(values=self.get_variables(names))


class TaggingSAC(sac.SACBuilder):
    def make_learner(self, parts: builders.LearnerParts[sac.SACNetworks]) -> core.Learner:
        return Tagged(super().make_learner(parts))


def test_actors_and_the_evaluator_get_the_variables_that_they_name(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[bool, set[float]] = {True: set(), False: set()}
    choose = acting.ModulePolicy.set_variables

    def noted(self: Any, values: Any) -> None:
        seen[self._evaluation] |= {float(leaf.flat[0]) for leaf in tree.flatten(values)}
        choose(self, values)

    monkeypatch.setattr(acting.ModulePolicy, "set_variables", noted)
    builder = TaggingSAC(sac_builder(policy_average_rate=0.1).config)
    result = run(small.experiment(tmp_path, builder), num_actors=1)
    assert result.after is not None
    assert seen == {True: {TAGS["average_policy"]}, False: {TAGS["policy"]}}
    for checkpoint in ("latest", "best"):
        (saved,) = checkpointing.load_state(checkpointing.find(tmp_path, checkpoint))["policy_variables"]
        assert all((leaf == TAGS["average_policy"]).all() for leaf in saved.values())


@pytest.mark.parametrize("builder", [small.ppo_builder(), small.vmpo_builder()], ids=["ppo", "vmpo"])
def test_an_on_policy_agent_learns_from_whole_rounds_of_all_actors(
    tmp_path: pathlib.Path, builder: builders.AgentBuilder
) -> None:
    result = run(small.experiment(tmp_path, builder, num_env_steps=192, checkpoint_period=0))
    # A learner step takes 16 steps of each of 2 actors, all by the weights that the step before it left. The
    # step in which an environment begins its next episode is none.
    assert result.learner_steps == pytest.approx(result.env_steps / 32, abs=2)
    assert result.learner_steps >= 4


@pytest.mark.parametrize(
    "builder",
    [small.impala_builder(memory="lstm", memory_size=4), small.ppo_builder(asynchronous=True)],
    ids=["impala with memory", "ppo"],
)
def test_actors_that_play_on_are_learned_from_one_rollout_at_a_time(
    tmp_path: pathlib.Path, builder: builders.AgentBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited, wait = [], weights.Follower.wait
    monkeypatch.setattr(
        weights.Follower,
        "wait",
        lambda own, newer, seconds: waited.append(newer) or wait(own, newer, seconds),
    )
    result = run(small.experiment(tmp_path, builder, num_env_steps=240, checkpoint_period=0), num_actors=3)
    assert set(waited) == {-1}  # for the first weights alone
    # All but those that are in the queue when the run ends, and the unfinished ones of 3 actors.
    assert result.env_steps / 16 - 6 <= result.learner_steps <= result.env_steps / 16
    rows = small.rows(tmp_path, "learner")
    shares = [float(row["stale/share"]) for row in rows]
    assert max(shares) > 0.0 and all(0.0 <= share <= 1.0 for share in shares)
    ages = [float(row["stale/learner_steps"]) for row in rows]
    assert all((age > 0.0) == (share > 0.0) for age, share in zip(ages, shares, strict=True))
    ratios = [float(row["stale/weight"]) for row in rows]
    assert min(ratios) < 1.0 - 1e-5 and max(ratios) <= 1.0


def test_a_part_that_fails_is_started_again_and_counts_go_on(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_MAX_BACKOFF_SECONDS", 0.0)
    failed: list[int] = []

    class Failing(small.Ramp):
        made = 0

        def __init__(self, seed: int) -> None:
            super().__init__(seed)
            Failing.made += 1
            self._number = Failing.made

        def step(self, action: Any) -> Any:
            # The first of them is made for its specs alone.
            if self._number == 2 and self._step == 10:
                failed.append(self._number)
                raise RuntimeError("the simulator is gone")
            return super().step(action)

    config = small.experiment(
        tmp_path, sac_builder(), num_env_steps=200, evaluation_period=0, environment_factory=Failing
    )
    seen: list[experiments.Progress] = []
    result = run(config, seen.append, num_actors=1)
    assert failed == [2] and result.env_steps >= 200
    assert "restarted 1x" in seen[-1].nodes["actor/0"]


def test_a_part_that_fails_again_and_again_ends_the_run_which_is_saved(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_MAX_BACKOFF_SECONDS", 0.0)

    class Broken(small.Ramp):
        def step(self, action: Any) -> Any:
            if self._step == 10:
                raise RuntimeError("the simulator is gone")
            return super().step(action)

    config = small.experiment(tmp_path, sac_builder(), evaluation_period=0)
    config = experiments.ExperimentConfig(
        **{**vars(config), "environment_factory": Broken, "evaluation_environment_factory": small.Ramp}
    )
    with pytest.raises(distributed.ProgramFailed, match="actor/0 failed 6 times.*the simulator is gone"):
        run(config, num_actors=1)
    state = checkpointing.load_state(checkpointing.find(tmp_path))
    assert 60 <= state["counter"]["actor_steps"] <= 66


def test_a_callback_ends_a_run_with_its_last_evaluation_and_checkpoint(tmp_path: pathlib.Path) -> None:
    def enough(progress: experiments.Progress) -> None:
        if progress.env_steps > 100:
            raise experiments.StopRun("enough")

    result = run(small.experiment(tmp_path, sac_builder(), num_env_steps=100_000), enough)
    assert result.stopped_by == "enough" and result.after is not None
    assert 100 < result.env_steps < 100_000
    assert checkpointing.env_steps(checkpointing.find(tmp_path)) == result.env_steps


@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        ({}, {"num_actors": 0}, "`num_actors` must be >= 1, got 0"),
        ({"replay": "memory"}, {}, "`replay` must be reverb or auto"),
        ({"num_env_steps": 0, "num_learner_steps": 9}, {}, "`num_env_steps` must be >= 1"),
        ({}, {"engine": "threads"}, "`engine` must be ray, inline"),
        ({}, {"address": "auto"}, "`address` must be None for this engine"),
        ({}, {"replay_after_failure": "forget"}, "`replay_after_failure` must be restore or empty"),
    ],
)
def test_what_cannot_be_distributed_is_refused_by_name(
    changes: dict[str, Any], arguments: dict[str, Any], message: str, tmp_path: pathlib.Path
) -> None:
    config = small.experiment(tmp_path / "run", sac_builder(), **changes)
    with pytest.raises(ValueError, match=message):
        distributed.run_distributed_experiment(config, **({"num_actors": 2, "engine": "inline"} | arguments))
    assert not (tmp_path / "run").exists()


def test_an_agent_that_says_nothing_of_several_actors_is_refused(tmp_path: pathlib.Path) -> None:
    builder = sac_builder()
    builder.for_actors = builders.AgentBuilder.for_actors.__get__(builder)  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="SACBuilder must define `for_actors` to run 2 actors"):
        run(small.experiment(tmp_path, builder))


def test_without_reverb_it_is_refused_by_name(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from minerva_acme.replay import backends

    monkeypatch.setattr(backends, "is_reverb_installed", lambda: False)
    with pytest.raises(ValueError, match=r"Reverb, which is not installed.*Python 3\.11"):
        run(small.experiment(tmp_path, sac_builder()))


def test_tables_make_the_faster_side_wait_where_both_run_at_once() -> None:
    environment = small.Ramp(0)
    spec = minerva_acme.specs.make_environment_spec(environment)
    (alone,) = sac_builder().make_replay_tables(spec)
    (beside,) = sac_builder().for_actors(2).make_replay_tables(spec)
    assert isinstance(alone.rate_limiter, replay.MinSize)
    limiter = beside.rate_limiter
    assert isinstance(limiter, replay.SampleToInsertRatio)
    assert limiter[:2] == (4.0, 50) and limiter.error_buffer >= 2 * 512
    (more,) = small.sac_builder(samples_per_insert=64.0).for_actors(2).make_replay_tables(spec)
    assert more.rate_limiter.error_buffer > limiter.error_buffer  # type: ignore[union-attr]
