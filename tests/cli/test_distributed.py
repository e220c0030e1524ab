"""Several actors from the command line."""

import pytest


@pytest.mark.reverb
@pytest.mark.timeout(300)
def test_a_run_with_several_actors_is_trained_resumed_and_evaluated(tmp_path, call, caplog):
    command = "train sac --env Pendulum-v1 --batch-size 8 --min-replay-size 20 --samples-per-insert 2"
    sizes = "--policy-layer-sizes 8 --critic-layer-sizes 8 --evaluation-episodes 1 --log csv"
    flags = [*command.split(), *sizes.split(), "--directory", tmp_path / "run", "--distributed", "inline"]
    status, out, err = call(*flags, "--num-actors", 2, "--num-env-steps", 80)
    assert status == 0, err
    made = int(out.split("after ")[1].split()[0])
    assert made >= 80
    more = ["--num-actors", 1, "--num-learners", 2, "--num-env-steps", made + 50]
    status, out, err = call(*flags, *more)
    assert status == 0, err
    assert f"Resuming at {made:,} steps" in out
    # In one process, and by several once more. The user is told what is lost.
    status, out, err = call("resume", tmp_path / "run", "--num-env-steps", made + 100)
    assert status == 0 and "replay begins empty: Table 'replay'" in caplog.text
    status, out, err = call(*flags, "--num-actors", 1, "--num-env-steps", made + 150)
    assert status == 0 and f"Resuming at {made + 100:,} steps" in out
    assert call("eval", tmp_path / "run", "--episodes", 1)[0] == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--num-actors", "2"], "`num_actors` is only for distributed runs. Add --distributed ray."),
        (["--address", "auto"], "`address` is only for distributed runs"),
        (["--num-learners", "2"], "`num_learners` is only for distributed runs"),
        (
            ["--distributed", "inline", "--num-actors", "1", "--num-learners", "2", "--batch-size", "255"],
            "`batch_size` must be a multiple of the 2 learners",
        ),
        (
            ["--distributed", "inline", "--num-actors", "1", "--num-learners", "0"],
            "`num_learners` must be >= 1, got 0",
        ),
        (
            [
                "--distributed",
                "ray",
                "--num-actors",
                "1",
                "--num-learners",
                "2",
                "--prioritized",
                "--dry-run",
            ],
            "`prioritized` of SAC cannot be True with 2 learners",
        ),
        (["--distributed", "inline"], "`num_actors` must be given for a distributed run: --num-actors 2"),
        (["--distributed", "inline", "--num-actors", "2", "--replay", "memory"], "`replay` must be reverb"),
    ],
)
def test_flags_that_do_not_fit_together_are_refused(tmp_path, monkeypatch, call, flags, message):
    monkeypatch.chdir(tmp_path)
    status, _, err = call("train", "sac", "--env", "Pendulum-v1", "--num-env-steps", "50", *flags)
    assert status == 2 and message in err
    assert not list(tmp_path.iterdir())
