import numpy as np
import pytest
import torch
import tree

from minerva_acme import adders, specs, testing, types
from minerva_acme.replay import layouts

SPEC = specs.make_environment_spec(testing.FakeEnvironment())
EXTRAS = specs.Array((), np.float32, name="log_prob")


class AddersContract(testing.AdderConformance):
    @pytest.fixture(autouse=True)
    def _keep_the_store(self, make_memory_store):
        self.make_store, self.stores = make_memory_store, []

    def make_client(self, layout):
        store = self.make_store(layout.signature)
        self.stores.append((store, layout))
        return store.client

    def read_items(self, adder):
        items = []
        for store, layout in self.stores:  # of all adders so far, but what was read is gone
            for fields in store.read_one_by_one():
                batch = layout.unpack({name: torch.from_numpy(rows) for name, rows in fields.items()})
                axis = int(isinstance(batch, types.Rollout))
                items.append(tree.map_structure(lambda leaf, axis=axis: leaf.select(axis, 0).numpy(), batch))
        return items

    def make_environment(self):
        return testing.FakeEnvironment(truncates=True)

    def make_action(self):
        return np.zeros(2, np.float32)

    def make_extras(self):
        return np.float32(-1.0)

    def make_trajectories(self, sequence_length, **options):
        layout = layouts.TrajectoryLayout(SPEC, sequence_length, EXTRAS, **options)
        return dict(client=self.make_client(layout), table="table", layout=layout)

    def make_transitions(self, extras_spec=EXTRAS):
        layout = layouts.TransitionLayout(SPEC, extras_spec)
        return dict(
            client=self.make_client(layout),
            table="table",
            layout=layout,
            n_step=3,
            discount=0.9,
        )


class TestSequenceAdder(AddersContract):
    def make_adder(self):
        return adders.SequenceAdder(**self.make_trajectories(3), period=1)


class TestSequenceAdderThatWritesShort(AddersContract):
    def make_adder(self):
        trajectories = self.make_trajectories(3, variable_length=True)
        return adders.SequenceAdder(**trajectories, period=2, at_end=adders.write_short)


class TestSequenceAdderThatShiftsBack(AddersContract):
    def make_adder(self):
        return adders.SequenceAdder(**self.make_trajectories(3), period=3, at_end=adders.shift_back)


class TestContinuingSequenceAdder(AddersContract):
    def make_adder(self):
        # Of one step: longer sequences wait for the next episode, where the contract counts items.
        return adders.ContinuingSequenceAdder(**self.make_trajectories(1), period=1)

    def num_items(self, num_steps):
        return num_steps


class TestEpisodeAdder(AddersContract):
    def make_adder(self):
        return adders.EpisodeAdder(**self.make_trajectories(20))

    def num_items(self, num_steps):
        return 1


class TestNStepTransitionAdder(AddersContract):
    def make_adder(self):
        return adders.NStepTransitionAdder(**self.make_transitions())

    def num_items(self, num_steps):
        return num_steps


class TestNStepTransitionAdderThatStartsAsAcmes(AddersContract):
    def make_adder(self):
        return adders.NStepTransitionAdder(**self.make_transitions(), shorter_at_start=True)


class OnReverbToo(AddersContract):
    """Both stores are written to by the same calls: of those that end episodes otherwise, one of each."""

    @pytest.fixture(autouse=True)
    def _keep_the_store(self, make_store):
        self.make_store, self.stores = make_store, []


class TestRolloutAdder(OnReverbToo):
    def make_adder(self):
        # Of one step: longer rollouts wait for the next episode, where the contract counts items.
        layout = layouts.RolloutLayout(SPEC, 1, EXTRAS)
        client = self.make_client(layout)
        return adders.RolloutAdder(client=client, table="table", layout=layout, discount=0.9)

    def num_items(self, num_steps):
        return num_steps


class TestForkingAdder(OnReverbToo):
    def make_adder(self):
        sequences = adders.SequenceAdder(**self.make_trajectories(3), period=1)
        transitions = adders.NStepTransitionAdder(**self.make_transitions())
        return adders.ForkingAdder([sequences, transitions])


class TestExtrasFilter(AddersContract):
    def make_adder(self):
        return adders.ExtrasFilter(adders.NStepTransitionAdder(**self.make_transitions(())), keep=[])

    def num_items(self, num_steps):
        return num_steps
