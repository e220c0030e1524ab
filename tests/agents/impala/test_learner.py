import numpy as np
import pytest
import torch

from minerva_acme import testing
from minerva_acme.agents import impala

ROW = {
    "steps",
    "walltime",
    "skipped_batches",
    "learning_rate",
    "grad_norm/network",
    "policy/entropy",
    "stale/clipped_share",
    "stale/weight",
    *(f"loss/{name}" for name in ("network", "policy", "value")),
    *(f"value/{name}" for name in ("explained_variance", "mean", "target_mean")),
}


def with_age(rollout, age):
    return rollout._replace(extras=rollout.extras._replace(age=age))


def test_a_step_reports_every_diagnostic(impala_agent, make_learner, make_rollout, spec):
    builder = impala_agent.builder()
    network = builder.make_networks(spec, torch.Generator().manual_seed(0))
    rollout = make_rollout(builder, network, spec)
    age = torch.zeros(16, 1, dtype=torch.int64)
    age[4:8] = 6
    learner, _, rows = make_learner(builder, spec, [rollout, with_age(rollout, age)])
    learner.run(num_steps=2)
    assert set(rows[0]) == ROW and set(rows[1]) == ROW | {"stale/share", "stale/learner_steps"}
    assert all(np.isfinite(float(value)) for row in rows for value in row.values())
    assert (rows[1]["stale/share"], rows[1]["stale/learner_steps"]) == (0.25, 1.5)
    # Without older weights nothing is clipped, whatever rounding says.
    assert float(rows[0]["stale/clipped_share"]) == 0.0
    assert float(rows[0]["stale/weight"]) == pytest.approx(1.0)
    assert 0.0 < float(rows[1]["stale/weight"]) < 1.0


def test_a_rollout_whose_log_probabilities_are_not_finite_is_skipped(
    impala_agent, make_learner, make_rollout, continuous_spec
):
    """The ratio would be infinite, and clipped as any other."""
    builder = impala_agent.builder()
    rollout = make_rollout(
        builder, builder.make_networks(continuous_spec, torch.Generator()), continuous_spec
    )
    rollout.extras.log_prob[3] = -np.inf
    learner, _, rows = make_learner(builder, continuous_spec, [rollout])
    learner.step()
    assert rows[0]["skipped_batches"] == 1


def test_in_one_process_nothing_is_stale_with_a_memory_either(impala_agent, run):
    builder = impala_agent.recording(
        num_environments=2, memory="lstm", memory_size=6, learning_rate=1e-2, entropy_coef=0.1
    )
    run(builder, lambda seed: testing.FakeEnvironment.bounded(episode_length=5, seed=seed), 16 * 3)
    assert len(builder.rows) == 3
    for row in builder.rows:
        assert float(row["stale/weight"]) == pytest.approx(1.0, abs=1e-5)
        assert float(row["stale/clipped_share"]) == 0.0 and "stale/share" not in row
        assert all(np.isfinite(float(value)) for value in row.values())


def test_the_preset_remembers_20_steps():
    memories = {name: preset.memory for name, preset in impala.PRESETS.items()}
    assert memories == {"default": "none", "memory": "lstm"}
    assert impala.PRESETS["memory"].rollout_length == 20
