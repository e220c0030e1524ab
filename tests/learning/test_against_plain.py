"""The comparison itself is right; what it finds takes hours (`make compare-plain`)."""

import numpy as np

from . import against_plain


def test_windows_lie_within_an_episode_and_end_in_what_followed_it():
    ring = against_plain.Ring(30, 1, 1)
    for step in range(30):
        ring.add(
            step // 10,
            observation=[step],
            next_observation=[step + 0.5],
            action=[0.0],
            raw_action=[1.0],
            reward=step,
            discount=1.0,
            log_prob=-step,
        )
    batch = ring.sample(np.random.default_rng(0), 500, 4)
    begins = batch.reward[:, 0].long()
    assert set(begins.tolist()) == {b for b in range(30) if b % 10 <= 6}
    assert batch.observation.shape == (500, 5, 1)
    for k in range(4):
        assert (batch.reward[:, k] == begins + k).all()
        assert (batch.observation[:, k, 0] == begins + k).all()
        assert (batch.log_prob[:, k] == -(begins + k)).all()
    assert (batch.observation[:, 4, 0] == begins + 3.5).all()


def test_both_train_and_their_rows_are_written_as_they_come(tmp_path, capfd):
    budget = ["--num-env-steps", "1012", "--evaluation-period", "506", "--evaluation-episodes", "1"]
    rows = against_plain.main(["--seeds", "3", *budget, "--directory", str(tmp_path)])
    assert [(row.variant, row.seed, row.env_step) for row in rows] == [
        (variant, 3, env_step) for variant in ("library", "plain") for env_step in (506, 1012)
    ]
    lines = (tmp_path / "rows.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "variant,seed,env_step,avg_return"
    assert len(lines) == 5
    # Before the first update both play with the same weights, from other states: the pole hangs.
    assert all(0.0 <= row.avg_return < 400.0 for row in rows)
    assert "(1 seeds)" in capfd.readouterr().out


def test_the_table_has_means_and_standard_errors():
    rows = [against_plain.Row("plain", seed, 100, value) for seed, value in enumerate([1.0, 2.0, 6.0])]
    assert against_plain.table(rows) == "     100  plain        3.0 ±   1.5  (3 seeds)"
