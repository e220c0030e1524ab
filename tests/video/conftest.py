import os

import pytest

from minerva_acme.video import recording


@pytest.fixture
def environment_variables_stay():
    """What draws chooses how the process does, which is for good there and not here."""
    kept = dict(os.environ)
    # As in a process of its own; here MuJoCo may be imported already, and then nothing is chosen.
    recording.choose_renderer()
    os.environ.setdefault("MUJOCO_GL", "egl")
    yield
    os.environ.clear()
    os.environ.update(kept)
