"""The benchmarks of a GPU also run on a CPU."""

from tests.benchmarks import devices


def test_learners_and_pendulums_are_timed(capsys):
    devices.main(["--devices", "cpu", "--learners", "dqn", "--sizes", "8", "--blocks", "1"])
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line[:30].strip() for line in lines] == [
        "dqn",
        *(f"8 pendulums, {name}" for name in ("batch", "batch, learner", "task", "policy")),
    ]
    assert all(" us (" in line for line in lines)
