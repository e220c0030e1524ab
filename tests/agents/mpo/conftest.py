import numpy as np
import pytest

from minerva_acme import specs


@pytest.fixture
def spec():
    return specs.EnvironmentSpec(
        observations=specs.Array((3,), np.float32, name="observation"),
        actions=specs.BoundedArray((2,), np.float32, -1.0, 1.0, name="action"),
        rewards=specs.Array((), np.float32, name="reward"),
        discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount"),
    )
