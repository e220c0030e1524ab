"""Prioritised replay from end to end, on both stores.

Four items, whose TD errors are 1, 2, 3 and 4, since nothing is learned: the learning rate is 0 and the first
values are 0. With priorities |TD error| and alpha 1 they are drawn with 0.1, 0.2, 0.3 and 0.4.
"""

import numpy as np
import pytest
import torch

from minerva_acme import builders, counting, replay, specs, testing
from minerva_acme.agents import off_policy

from . import scene

REWARDS = np.array(scene.REWARDS)


class Recorder:
    """A dataset that keeps what it gave."""

    def __init__(self, dataset):
        self.dataset = dataset
        self.samples = []

    def __next__(self):
        self.samples.append(next(self.dataset))
        return self.samples[-1]


@pytest.fixture(params=["memory", pytest.param("reverb", marks=pytest.mark.reverb)])
def learn(request):
    """Yields a function that makes a learner on the four items, and returns it with what it is given."""
    open_parts = []

    def make(**config):
        builder = scene.QBuilder(
            scene.QConfig(learning_rate=0.0, batch_size=64, samples_per_insert=64.0, **config)
        )
        environment = scene.Doors()
        spec = specs.make_environment_spec(environment)
        server = replay.make_server(builder.make_replay_tables(spec), request.param, seed=0)
        client = server.client()
        with builder.make_adder(client, spec) as adder:
            for _ in REWARDS:
                adder.add_first(environment.reset())
                adder.add(np.int32(0), environment.step(0))
            adder.flush()
        dataset = builder.make_dataset(client, spec, torch.device("cpu"))
        open_parts.extend([server, client, dataset])
        recorder = Recorder(dataset)
        generator = torch.Generator().manual_seed(0)
        learner = builder.make_learner(
            builders.LearnerParts(
                networks=builder.make_networks(spec, generator),
                dataset=recorder,
                client=client,
                spec=spec,
                counter=counting.Counter(),
                logger=testing.FakeLogger(),
                generator=generator,
                device=torch.device("cpu"),
            )
        )
        return learner, recorder.samples

    yield make
    for part in reversed(open_parts):
        part.close()


def is_drawn_by(learner, samples, probability_of):
    """Steps past what was drawn ahead; says whether a batch then was drawn with these probabilities."""
    for _ in range(100):
        learner.step()
        info, data = samples[-1]
        if np.allclose(info.probability, probability_of(data.reward.numpy())):
            return True
    return False


def test_new_items_are_drawn_alike(learn):
    learner, samples = learn(priority_exponent=1.0)
    learner.step()
    info, _ = samples[0]
    np.testing.assert_allclose(info.probability, 0.25)
    np.testing.assert_allclose(info.priority, 1.0)


@pytest.mark.promise("Items are sampled in proportion to priority^alpha")
def test_items_are_drawn_by_their_td_errors_once_these_are_known(learn):
    learner, samples = learn(priority_exponent=1.0, importance_exponent=1.0)
    assert is_drawn_by(learner, samples, lambda reward: reward / 10.0)
    samples.clear()
    learner.run(num_steps=50)
    reward = np.concatenate([data.reward.numpy() for _, data in samples])
    counts = np.array([(reward == value).sum() for value in REWARDS])
    # 3200 draws, each a Bernoulli of 0.1 to 0.4: a standard deviation is at most sqrt(3200 / 4) = 28.
    np.testing.assert_allclose(counts, 3200 * REWARDS / 10.0, atol=5 * 28)
    for info, data in samples:
        np.testing.assert_allclose(info.priority, data.reward.numpy())


def test_the_exponent_flattens_the_draw(learn):
    learner, samples = learn(priority_exponent=0.5)
    # 1, sqrt 2, sqrt 3 and 2 over their sum.
    assert is_drawn_by(learner, samples, lambda reward: np.sqrt(reward) / np.sqrt(REWARDS).sum())


def test_weights_undo_what_priorities_do_to_the_loss(learn):
    learner, samples = learn(priority_exponent=1.0, importance_exponent=1.0)
    assert is_drawn_by(learner, samples, lambda reward: reward / 10.0)
    info, data = samples[-1]
    weights = learner._priorities.weights(info, 0).numpy()
    # (4 P)^-1 over the largest, that of P = 0.1: 1, 1/2, 1/3, 1/4.
    np.testing.assert_allclose(weights, 1.0 / data.reward.numpy(), rtol=1e-6)


def importance_exponents(num_learner_steps, steps, first=0.4):
    share_done = num_learner_steps and off_policy.linear(0.0, 1.0, num_learner_steps)
    builder = scene.QBuilder(scene.QConfig(importance_exponent=first))
    exponent = builder.make_priorities(object(), share_done)._importance_exponent
    return [exponent(step) for step in steps]


def test_the_importance_exponent_rises_to_1_at_the_end_of_the_run():
    # A learner step an item, from the fourth on.
    assert scene.QBuilder(scene.QConfig()).num_learner_steps(103) == 100
    assert importance_exponents(100, [0, 50, 100, 150]) == pytest.approx([0.4, 0.7, 1.0, 1.0])


def test_an_importance_exponent_of_0_stays_0():
    assert importance_exponents(100, [0, 50, 100], first=0.0) == [0.0, 0.0, 0.0]


def test_where_no_end_is_known_it_stays():
    assert importance_exponents(None, [0, 1000]) == [0.4, 0.4]


def test_a_prioritised_agent_learns_in_a_run(run):
    result = run(scene.QBuilder(scene.QConfig(learning_rate=0.3)), lambda seed: scene.Doors(), 200)
    assert result.learner_steps == 197
    state = torch.load(next(result.directory.glob("checkpoints/*/state.pt")), weights_only=True)
    values = state["learner"]["modules"]["q_network"]["weight"]
    # Both actions of a room pay the same, which exploring finds out.
    np.testing.assert_allclose(values.numpy(), np.stack([REWARDS, REWARDS]), atol=0.2)


def test_batches_of_both_stores_say_the_same_of_their_items(learn):
    learner, samples = learn(priority_exponent=1.0)
    learner.step()
    info, _ = samples[0]
    kinds = {name: (value.dtype, value.shape) for name, value in info._asdict().items()}
    assert kinds == {
        "key": (np.uint64, (64,)),
        "probability": (np.float64, (64,)),
        "table_size": (np.int64, (64,)),
        "priority": (np.float64, (64,)),
        "times_sampled": (np.int32, (64,)),
    }
    assert set(info.table_size.tolist()) == {4}
    assert len(set(info.key.tolist())) == 4
