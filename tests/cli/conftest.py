import pytest

from minerva_acme.cli import main

TINY = """
    --batch-size 8 --min-replay-size 20 --samples-per-insert 2 --policy-layer-sizes 8 --critic-layer-sizes 8 8
    --num-samples 4 --retrace-mc-actions 2 --evaluation-episodes 1 --log csv --replay memory
"""


def train(directory, *arguments, steps=60):
    command = f"train mpo --env Pendulum-v1 --num-env-steps {steps} --directory"
    return main([*command.split(), str(directory), *TINY.split(), *arguments])


@pytest.fixture(scope="module", autouse=True)
def _short_episodes(short_episodes):
    """With whole episodes, evaluations would make most of the steps."""


@pytest.fixture(name="train")
def train_fixture():
    """Trains for 60 steps: `train(directory, *flags)` gives the exit status."""
    return train


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """The folder of a run of 60 steps, for tests that do not change it."""
    directory = tmp_path_factory.mktemp("trained") / "run"
    assert train(directory) == 0
    return directory


@pytest.fixture
def call(capsys):
    """Calls `minerva`: gives its exit status, what it printed and its errors, on one line each."""

    def call_(*arguments):
        try:
            status = main(list(map(str, arguments)))
        except SystemExit as exit_:  # of the parser
            status = exit_.code
        captured = capsys.readouterr()
        out, err = (" ".join(text.replace("│", " ").split()) for text in (captured.out, captured.err))
        return status, out, err

    return call_
