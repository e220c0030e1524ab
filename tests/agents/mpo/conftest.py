import pytest

from . import scene


@pytest.fixture
def spec():
    return scene.SPEC
