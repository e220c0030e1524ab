"""Policies of batched environments: they act as those on arrays, on tensors that are never read."""

import contextlib
import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import tree

from minerva_acme import builders, counting, environments, learners, networks, specs, testing
from minerva_acme.agents import actions, choosing
from minerva_acme.agents.acting_on_tensors import ActingOnTensors
from minerva_acme.learners import finite
from minerva_acme.replay.memory import MemoryServer

from ..experiments import test_batched
from ..experiments.test_batched import B, DiscretePendulum
from ..experiments.test_exact_resume import make_vmpo
from . import on_meta
from .on_meta import META

CPU = torch.device("cpu")
CASES = {**test_batched.CASES, "v-mpo": (make_vmpo(B), DiscretePendulum)}


def make_policy(name, device, generator, **arguments):
    builder, factory = CASES[name]
    builder = builder if device is None else builder.for_batches(device)
    spec = specs.make_environment_spec(factory(0))
    nets = builder.make_networks(spec, torch.Generator().manual_seed(0))
    return builder.make_policy(nets, spec, generator, **arguments), spec


@pytest.mark.parametrize("name", CASES)
def test_a_policy_acts_on_tensors_as_it_does_on_arrays(name):
    batched, spec = make_policy(name, CPU, torch.Generator().manual_seed(1), evaluation=True)
    ordinary, _ = make_policy(name, None, torch.Generator().manual_seed(1), evaluation=True)
    changed = {key: value + 0.1 for key, value in ordinary.module.state_dict().items()}
    for policy in (batched, ordinary):
        policy.set_variables([tree.map_structure(torch.Tensor.numpy, changed)])
    observations = 3.0 * torch.randn(32, *spec.observations.shape, generator=torch.Generator().manual_seed(2))
    found, wanted = batched.batch(observations).action, ordinary.batch(observations.numpy()).action
    assert found.dtype == torch.from_numpy(wanted).dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert len(found.unique()) > 1


def test_weights_of_another_network_are_refused():
    policy, _ = make_policy("mpo", CPU, torch.Generator().manual_seed(1), evaluation=True)
    state = {name: tensor.numpy()[:1] for name, tensor in policy.module.state_dict().items()}
    with pytest.raises(ValueError, match="names and shapes of this .* train again"):
        policy.set_variables([state])


@pytest.mark.parametrize("name", ["mpo", "ppo", "v-mpo"])
def test_what_is_recorded_is_the_density_of_what_was_drawn(name):
    policy, spec = make_policy(name, CPU, torch.Generator().manual_seed(1))
    observations = torch.randn(16, *spec.observations.shape)
    saved = policy.save()
    action, extras = policy.batch(observations)
    distribution = networks.policy_of(policy.module)(observations)
    testing.assert_nests_equal(extras.log_prob, distribution.log_prob(extras.raw_action))
    np.testing.assert_array_equal(
        action, actions.raw_actions(spec.actions, squash=False).to_environment(extras.raw_action.numpy())
    )
    if name == "v-mpo":
        testing.assert_nests_equal(tuple(extras.parameters), tuple(distribution))
    policy.restore(saved)
    testing.assert_nests_equal(policy.batch(observations).action, action)


def test_a_module_with_a_memory_is_refused():
    builder, _ = CASES["ppo"]
    config = dataclasses.replace(builder.config, memory="gru")
    network = type(builder)(config).make_networks(
        specs.make_environment_spec(DiscretePendulum(0)), torch.Generator()
    )
    with pytest.raises(ValueError, match="must have no memory, got ActorCritic with one. Set `memory` to"):
        ActingOnTensors(network, torch.Generator(), CPU)


class Played(NamedTuple):
    """An agent in a batched environment, with replay in memory on the environment's device."""

    builder: Any
    spec: specs.EnvironmentSpec
    nets: Any
    client: Any
    loop: environments.BatchedEnvironmentLoop
    adder: Any
    device: torch.device

    def make_learner(self, dataset, generator):
        return self.builder.make_learner(
            builders.LearnerParts(
                networks=self.nets,
                dataset=dataset,
                client=self.client,
                spec=self.spec,
                counter=counting.Counter(),
                logger=testing.FakeLogger(),
                generator=generator,
                device=self.device,
                share_done=lambda step: step / 5,
            )
        )


@contextlib.contextmanager
def playing(builder, environment, generator):
    """Plays ten steps of a batch; the adder's episodes are open."""
    device, spec = environment.device, specs.make_environment_spec(environment)
    builder = builder.for_batches(device)
    nets = builder.make_networks(spec, torch.Generator().manual_seed(0))
    policy = builder.make_policy(nets, spec, generator)
    with MemoryServer(builder.make_replay_tables(spec), seed=0, device=str(device)) as server:
        client = server.client()
        adder = builder.make_batched_adder(client, spec)
        actor = builder.make_batched_actor(policy, adder=adder)
        loop = environments.BatchedEnvironmentLoop(environment, actor)
        for _ in range(10):
            loop.step()
        yield Played(builder, spec, nets, client, loop, adder, device)


@contextlib.contextmanager
def played_on_meta(name):
    """Yields an agent that has played ten steps of a batch, whose episodes have ended."""
    environment = testing.FakeBatchedEnvironment(B, resets_in_next_step=name == "sac", device="meta")
    builder, factory = CASES[name]
    if factory is DiscretePendulum:
        environment = DiscretePendulum(0, device="meta")
    if name == "mpo":  # repeating noise keeps the generator's state, and this device has none
        builder = type(builder)(dataclasses.replace(builder.config, noise_repeat=1))
    with playing(builder, environment, None) as played:
        played.adder.reset()
        yield played


# What goes in and each gradient; MPO reads its returns too, PPO and V-MPO statistics, ends and minibatches.
NUM_READS = {**dict.fromkeys(CASES, 3), "dqn": 2, "mpo": 5, "ppo": 8, "v-mpo": 9}


@pytest.mark.parametrize("name", CASES)
def test_acting_reads_no_number_on_the_host_and_a_learner_by_one_function_alone(name, monkeypatch):
    reads = []

    def read(tensor):
        assert tensor.device == META
        reads.append(tensor.shape)
        return torch.ones(tensor.shape, dtype=tensor.dtype).tolist()  # all is finite

    for module in (finite, learners):
        monkeypatch.setattr(module, "read", read)
    with (
        on_meta.Watch(),
        played_on_meta(name) as played,
        contextlib.closing(played.builder.make_dataset(played.client, played.spec, META)) as dataset,
    ):
        batches = []
        learner = played.make_learner(kept_in(batches, dataset), torch.Generator())
        assert reads == []
        learner.step()
    assert len(reads) == NUM_READS[name]
    assert {leaf.device for leaf in tree.flatten([batch.data for batch in batches])} == {META}


def kept_in(batches, dataset):
    """Yields what a dataset gives, and keeps it."""
    for batch in dataset:
        batches.append(batch)
        yield batch


@pytest.mark.parametrize(
    "choose",
    [
        choosing.epsilon_greedy(lambda step: 0.5),
        choosing.epsilon_greedy_each([0.5] * 4),
        choosing.gaussian_noise(lambda step: 0.1, torch.ones(3)),
        choosing.random_at_first(9, specs.BoundedArray((3,), np.float32, -1.0, 1.0), choosing.mode),
    ],
    ids=["epsilon", "epsilons", "noise", "random"],
)
def test_a_rule_keeps_to_the_device(choose):
    assert choose(torch.zeros(4, 3, device="meta"), None, 0).device == META


@pytest.mark.parametrize(
    ("spec", "squash"),
    [
        (specs.BoundedArray((2,), np.float32, [-1.0, -2.0], [1.0, 0.5]), False),
        (specs.BoundedArray((2,), np.float32, [-1.0, -2.0], [1.0, 0.5]), True),
        (specs.BoundedArray((2,), np.int32, 2, [3, 5]), False),
        (specs.DiscreteArray(3), False),
    ],
    ids=str,
)
def test_raw_actions_keep_to_the_device(spec, squash):
    raw = actions.raw_actions(spec, squash)
    assert raw.on(META).execute(torch.zeros(4, *spec.shape, device="meta")).device == META
    assert raw.execute(torch.zeros(4, *spec.shape)).device == CPU  # it is a copy that has moved
