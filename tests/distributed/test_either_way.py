"""A run that one process began is continued by several, and the other way round."""

import pathlib
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import tree

from minerva_acme import builders, core, distributed, experiments, specs
from minerva_acme.agents import ppo, sac
from minerva_acme.distributed import replay_node
from minerva_acme.replay import ReverbClient
from minerva_acme.replay import base as replay
from minerva_acme.replay.reverb import ports
from minerva_acme.runs import checkpointing
from tests.distributed import small

pytestmark = [
    pytest.mark.promise("A run of one process continues in several and back"),
    pytest.mark.reverb,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("looks_often"),
]

# Saved at the end alone, and evaluated before it and there.
ONLY_AROUND: dict[str, Any] = {"checkpoint_period": 0, "evaluation_period": 0}

Play = Callable[..., experiments.ExperimentResult]


def play_together(config: experiments.ExperimentConfig, *callbacks: Any) -> experiments.ExperimentResult:
    return distributed.run_distributed_experiment(config, *callbacks, num_actors=2, engine="inline")


class Noted(small.Wrapped):
    """A learner that notes what it was restored to."""

    def __init__(self, learner: core.Learner, restored: list[core.State]) -> None:
        super().__init__(learner)
        self._restored = restored

    def restore(self, state: Any) -> None:
        super().restore(state)
        self._restored.append(self.save())


class Noting(builders.AgentBuilder[Any]):
    """A builder whose learners note what they were restored to, and how long the run is."""

    restored: list[core.State]
    lengths: list[int]  # learner steps of the whole run

    def make_learner(self, parts: builders.LearnerParts[Any]) -> core.Learner:
        assert parts.share_done is not None
        self.lengths.append(round(1 / parts.share_done(1)))
        return Noted(super().make_learner(parts), self.restored)


class NotedSAC(Noting, sac.SACBuilder):
    pass


class NotedPPO(Noting, ppo.PPOBuilder):
    pass


class SameTables(NotedSAC):
    """SAC whose table is the same for one process and for several: nobody waits for anybody."""

    def make_rate_limiter(self) -> replay.RateLimiter:
        return replay.MinSize(self.config.min_replay_size)


def make(kind: type[Any]) -> Any:
    if kind is NotedPPO:
        made: Any = small.ppo_builder(normalize_observations=True)
    else:  # with large batches, the learner makes few steps ahead of the actors
        made = small.sac_builder(batch_size=64 if kind is NotedSAC else 16)
    builder = kind(made.config)
    builder.restored, builder.lengths = [], []
    return builder


def equal(found: Any, expected: Any) -> bool:
    """Whether two states are equal, bit for bit."""

    def same(one: Any, other: Any) -> bool:
        if isinstance(one, torch.Tensor | np.ndarray):
            return bool(torch.equal(torch.as_tensor(one), torch.as_tensor(other)))
        return bool(one == other)

    return all(tree.flatten(tree.map_structure(same, found, expected)))


@pytest.mark.parametrize("kind", [NotedSAC, NotedPPO])
def test_weights_optimisers_statistics_and_counts_are_resumed(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, kind: type[Any]
) -> None:
    builder = make(kind)
    before = experiments.run_experiment(small.experiment(tmp_path, builder, num_env_steps=100, **ONLY_AROUND))
    assert not builder.restored
    for play, num_env_steps in ((play_together, 200), (experiments.run_experiment, 300)):
        caplog.clear()
        builder.restored.clear()
        state = checkpointing.load_state(checkpointing.find(tmp_path))
        after = play(small.experiment(tmp_path, builder, num_env_steps=num_env_steps, **ONLY_AROUND))
        assert len(builder.restored) == 1 and equal(builder.restored[0], state["learner"])
        assert before.learner_steps == state["counter"]["learner_steps"]
        assert after.env_steps >= num_env_steps and after.learner_steps > before.learner_steps
        assert after.before == before.before  # remembered, not played again
        assert after.random == before.random
        counted = [int(row["actor_steps"]) for row in small.rows(tmp_path, "actor")]
        assert counted[0] < before.env_steps < counted[-1]
        assert "begins empty" in caplog.text and "differs from the one expected" in caplog.text
        before = after


def test_replay_is_resumed_where_the_tables_are_the_same(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    builder = make(SameTables)
    before = experiments.run_experiment(small.experiment(tmp_path, builder, num_env_steps=150, **ONLY_AROUND))
    caplog.set_level("INFO")
    for play in (play_together, experiments.run_experiment):
        caplog.clear()
        more = before.env_steps + 50
        after = play(small.experiment(tmp_path, builder, num_env_steps=more, **ONLY_AROUND))
        (restored,) = [line for line in caplog.messages if line.startswith("restored table 'replay' with")]
        assert int(restored.split()[-2]) > before.env_steps - 30 and "begins empty" not in caplog.text
        if play is experiments.run_experiment:
            # Its learner owes steps for what was written here alone.
            made = after.learner_steps - before.learner_steps
            assert made == pytest.approx((after.env_steps - before.env_steps) * 4 / 16, abs=2)
        before = after


def test_a_killed_replay_begins_empty_where_the_newest_checkpoint_is_of_other_tables(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is, until a run that goes over to several processes has saved for the first time."""
    builder = make(NotedSAC)
    config = small.experiment(tmp_path, builder, num_env_steps=100, checkpoint_period=0)
    experiments.run_experiment(config)
    files = checkpointing.replay_folder(checkpointing.find(tmp_path))
    spec = specs.make_environment_spec(small.Ramp(0))
    for actors, is_empty in ((builder, False), (builder.for_actors(2), True)):
        part = replay_node.ReplayNode(
            mock.MagicMock(incarnation=1),
            tables=actors.make_replay_tables(spec),
            port=ports.free_port(),
            public=False,
            scratch=str(tmp_path / "checkpoints" / ".replay"),
            directory=str(tmp_path),
            resume_from=checkpointing.find(tmp_path),
            known=checkpointing.marks(tmp_path / "checkpoints"),
            restore_from=None,
            after_failure="restore",
        )
        with ReverbClient(f"localhost:{part.port()}") as client:
            assert (client.table_info("replay").size == 0) == is_empty
        part.run()
        assert f"replay restarts with {files}" in caplog.text
        assert ("begins empty: Table 'replay' in checkpoint" in caplog.text) == is_empty


@pytest.mark.parametrize(
    ("first", "then"),
    [(experiments.run_experiment, play_together), (play_together, experiments.run_experiment)],
    ids=["one-then-several", "several-then-one"],
)
def test_schedules_end_with_the_run_whoever_plays(tmp_path: pathlib.Path, first: Play, then: Play) -> None:
    builder = make(NotedPPO)
    before = first(small.experiment(tmp_path, builder, num_env_steps=160, **ONLY_AROUND))
    then(small.experiment(tmp_path, builder, num_env_steps=320, **ONLY_AROUND))
    left = 320 - before.env_steps
    steps = {experiments.run_experiment: 16, play_together: 32}  # for a learner step
    assert builder.lengths == [160 // steps[first], before.learner_steps + left // steps[then]]
    # A resume by the same kind keeps to that, however far the run has come.
    then(small.experiment(tmp_path, builder, num_env_steps=352, **ONLY_AROUND))
    assert builder.lengths[2] == before.learner_steps + (352 - before.env_steps) // steps[then]


def test_a_replay_of_another_store_begins_empty(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    builder = make(SameTables)
    in_memory = {"replay": "memory", **ONLY_AROUND}
    experiments.run_experiment(small.experiment(tmp_path, builder, num_env_steps=60, **in_memory))
    play_together(small.experiment(tmp_path, builder, num_env_steps=80, **ONLY_AROUND))
    assert "replay begins empty" in caplog.text and "written by replay in memory" in caplog.text
    caplog.clear()
    experiments.run_experiment(small.experiment(tmp_path, builder, num_env_steps=100, **in_memory))
    assert "replay begins empty" in caplog.text and "written by replay on Reverb" in caplog.text


def test_one_process_keeps_refusing_a_replay_of_other_tables_of_its_own(tmp_path: pathlib.Path) -> None:
    builder = make(NotedSAC)
    experiments.run_experiment(small.experiment(tmp_path, builder, num_env_steps=60, replay="memory"))
    with pytest.raises(replay.ReplayError, match="written by replay in memory: restore it there"):
        experiments.run_experiment(small.experiment(tmp_path, builder, num_env_steps=300))


def test_the_best_of_both_is_kept_and_light_checkpoints_resume_too(tmp_path: pathlib.Path) -> None:
    builder = make(NotedSAC)
    first = play_together(small.experiment(tmp_path, builder, num_env_steps=200, evaluation_period=60))
    assert first.best is not None
    best = checkpointing.find(tmp_path, "best")
    assert checkpointing.player(best) == checkpointing.Player(2)
    best_steps = checkpointing.env_steps(best)  # a better one takes its place, if there is one
    then = small.experiment(tmp_path, builder, num_env_steps=300, resume_from="best")
    result = experiments.run_experiment(then)
    assert result.env_steps == 300 and result.best is not None
    assert result.best[1].mean >= first.best[1].mean
    player = checkpointing.player(checkpointing.find(tmp_path))
    assert player.num_actors == 0 and player.env_steps == best_steps


@pytest.mark.ray
@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_processes_of_their_own_continue_a_run_and_give_it_back(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    builder = small.sac_builder()
    first = experiments.run_experiment(small.experiment(tmp_path, builder, num_env_steps=300))
    then = small.experiment(tmp_path, builder, num_env_steps=600)
    second = distributed.run_distributed_experiment(then, num_actors=1)
    assert second.env_steps == 600 and second.learner_steps > first.learner_steps
    assert "replay: replay begins empty" in caplog.text  # said by its process, heard here
    state = checkpointing.load_state(checkpointing.find(tmp_path))
    assert state["learner"]["num_steps"] == second.learner_steps
    third = experiments.run_experiment(small.experiment(tmp_path, builder, num_env_steps=900))
    assert third.env_steps == 900 and third.learner_steps > second.learner_steps
    assert third.before == second.before == first.before
