import numpy as np
import pytest

from minerva_acme import specs, testing
from minerva_acme.adders import NStepTransitionAdder, SequenceAdder
from minerva_acme.replay import layouts

SPEC = specs.make_environment_spec(testing.FakeEnvironment())
EXTRAS = specs.Array((), np.float32, name="log_prob")


class AddersContract(testing.AdderConformance):
    @pytest.fixture(autouse=True)
    def _keep_the_store(self, make_store):
        self.make_store = make_store

    def make_environment(self):
        return testing.FakeEnvironment(truncates=True)

    def make_action(self):
        return np.zeros(2, np.float32)

    def make_extras(self):
        return np.float32(-1.0)


class TestSequenceAdder(AddersContract):
    def make_adder(self):
        layout = layouts.TrajectoryLayout(SPEC, 3, EXTRAS)
        client = self.make_store(layout.signature).client
        return SequenceAdder(client=client, table="table", layout=layout, period=1)


class TestNStepTransitionAdder(AddersContract):
    def make_adder(self):
        layout = layouts.TransitionLayout(SPEC, EXTRAS)
        client = self.make_store(layout.signature).client
        return NStepTransitionAdder(client=client, table="table", layout=layout, n_step=3, discount=0.9)
