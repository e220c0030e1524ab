"""Who waits for whom."""

from typing import Any

from minerva_acme.distributed import status


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def overview(
    seconds: float, *, learner: float = 0.0, write: float = 0.0, weights: float = 0.0
) -> dict[str, Any]:
    """What nodes say after so many seconds, given the shares of them that they waited."""
    actor = {
        "steps": 50 * seconds,
        "replay_seconds": write * seconds,
        "round_seconds": weights * seconds,
        "weights_age_seconds": 0.25,
        "memory_mb": 300.0,
    }
    return {
        "counts": {"actor_steps": 100 * seconds, "learner_steps": 20 * seconds},
        "status": {
            "actor/0": actor,
            "actor/1": actor,
            "learner": {
                "steps": 20 * seconds,
                "wait_seconds": learner * seconds,
                "inserted": 1000.0,
                "sampled": 3600.0,
                "min_size": 100.0,
                "size": 900.0,
                "max_size": 5000.0,
                "memory_mb": 500.0,
                "stale": 2.0,
            },
        },
    }


RESTARTS = {"learner": 0, "actor/0": 3, "actor/1": 0}


def line(**shares: float) -> str:
    clock = Clock()
    said = status.StatusLine(num_actors=2, clock=clock)
    assert said.update(overview(10, **shares), RESTARTS) is None
    clock.now = 29.0
    assert said.update(overview(39, **shares), RESTARTS) is None
    clock.now = 30.0
    found = said.update(overview(40, **shares), RESTARTS)
    assert found is not None
    clock.now = 31.0
    assert said.update(overview(41, **shares), RESTARTS) is None
    return found


def test_the_side_that_waits_is_named_with_its_share() -> None:
    assert "the learner waits for data 40% of the time, " in line(learner=0.4, write=0.05)
    assert "actors wait to write 70% of the time, " in line(write=0.7)
    assert "actors wait for weights 50% of the time" in line(weights=0.5)
    assert "nothing waits" in line(learner=0.05)


def test_speeds_ratio_memory_and_restarts_are_told() -> None:
    found = line()
    assert "100 environment and 20.0 learner steps/s" in found
    assert "4.00 samples per insert" in found
    assert "oldest weights 0.2 s" in found
    assert "memory 1,100 MB in 3 nodes" in found
    assert "2 stale rollouts dropped" in found and found.endswith("actor/0 restarted 3x")


def test_each_node_has_words_of_its_own() -> None:
    clock = Clock()
    said = status.StatusLine(num_actors=2, clock=clock)
    said.update(overview(10), {**RESTARTS, "replay": 0})
    clock.now = 10.0
    said.update(overview(20), {**RESTARTS, "replay": 0})
    assert said.nodes["actor/0"] == "50 steps/s, weights 0.2 s old, 300 MB, restarted 3x"
    assert said.nodes["learner"] == "20 steps/s, 500 MB, restarted 0x"
    assert said.nodes["replay"] == "no status yet, restarted 0x"
    assert said.metrics["restarts"] == 3


def test_a_node_that_counts_from_0_again_has_no_negative_speed() -> None:
    clock = Clock()
    said = status.StatusLine(num_actors=2, clock=clock)
    said.update(overview(100, learner=0.5), RESTARTS)
    clock.now = 30.0
    found = said.update(overview(1, learner=0.5), RESTARTS)
    assert found is not None and found.startswith("0 environment and 0.0 learner steps/s, nothing waits")
    assert said.nodes["actor/0"].startswith("0 steps/s")
