"""What agents over replay do about images: shifts, shared encoders, stacks of frames."""

import copy
import itertools

import numpy as np
import pytest
import torch
from torch import nn

from minerva_acme import specs, testing, types, wrappers
from minerva_acme.agents import acting, mpo

from .. import transition_scene as scene

IMAGE = specs.BoundedArray((8, 8, 1), np.uint8, 0, 255, name="camera")


def make_spec(name):
    return scene.make_spec(name == "dqn")._replace(observations=IMAGE)


def make_batches(name):
    """Transitions with random images."""
    for seed in itertools.count():
        batch = scene.make_batch(make_spec(name), seed)
        generator = torch.Generator().manual_seed(seed)
        first, second = torch.randint(256, (2, 8, 8, 8, 1), dtype=torch.uint8, generator=generator)
        yield batch._replace(observation=first, next_observation=second)


class Spying:
    """A dataset's batches as a learner's losses get them."""

    def __init__(self, name, **config):
        self.seen = []
        agent, spy = scene.AGENTS[name], self

        class Spied(agent.builder):
            def make_objectives(self, spec):
                objectives = dict(super().make_objectives(spec))
                first, objective = next(iter(objectives.items()))

                def loss(networks, batch, generator):
                    spy.seen.append(batch.data)
                    return objective.loss(networks, batch, generator)

                return {**objectives, first: objective._replace(loss=loss)}

        builder = Spied(agent.config(**{**agent.tiny, **config}))
        self.learner, *_ = scene.make_learner(builder, make_spec(name), make_batches(name))


@pytest.mark.parametrize("name", scene.AGENTS)
def test_the_learner_shifts_images_and_a_restored_one_by_the_same(name):
    spied, plain = Spying(name, random_shift=3), Spying(name)
    for learner in (spied.learner, plain.learner):
        learner.step()
    given = next(make_batches(name))
    for field in ("observation", "next_observation"):
        assert torch.equal(getattr(plain.seen[0], field), getattr(given, field))
        assert not torch.equal(getattr(spied.seen[0], field), getattr(given, field))
    state = spied.learner.save()
    spied.learner.step()
    restored = Spying(name, random_shift=3)
    restored.learner.step()  # of the same batch as the first's
    restored.learner.restore(state)
    restored.learner.step()
    assert torch.equal(restored.seen[1].observation, spied.seen[1].observation)


def test_mpo_shifts_the_images_of_its_sequences():
    spec = make_spec("mpo")
    config = mpo.MPOConfig(
        random_shift=3, policy_layer_sizes=(8,), critic_layer_sizes=(8,), sequence_length=2, batch_size=4
    )
    builder = mpo.MPOBuilder(config)
    networks = builder.make_networks(spec, torch.Generator().manual_seed(0))
    seen = []
    networks.encoder.register_forward_pre_hook(lambda module, arguments: seen.append(arguments[0]))
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(256, (4, 3, 8, 8, 1), dtype=torch.uint8, generator=generator)
    batch = types.Trajectory(
        observation=images,
        action=torch.zeros(4, 2, 2),
        reward=torch.zeros(4, 2),
        discount=torch.ones(4, 2),
        mask=torch.ones(4, 2),
        extras=acting.BehaviourExtras(raw_action=torch.zeros(4, 2, 2), log_prob=torch.zeros(4, 2)),
    )
    learner, *_ = scene.make_learner(builder, spec, [batch], networks)
    learner.step()
    by_target, by_online = seen  # all states, and those that the critic's loss takes
    assert not torch.equal(by_target, images)
    assert torch.equal(by_online, by_target[:, :1])


def test_a_shift_without_an_image_is_refused():
    for name, agent in scene.AGENTS.items():
        with pytest.raises(ValueError, match="`random_shift` of .* needs observations with an image"):
            agent.make(random_shift=4).check_spec(scene.make_spec(name == "dqn"))
    with pytest.raises(ValueError, match="`random_shift` of MPO needs"):
        mpo.MPOBuilder(mpo.MPOConfig(random_shift=4)).check_spec(scene.make_spec())


SHARING = ["sac", "td3", "d4pg"]


@pytest.mark.parametrize("name", SHARING)
def test_a_shared_encoder_is_trained_by_the_critics_loss_alone(name):
    agent, spec = scene.AGENTS[name], make_spec(name)
    config = agent.config(
        **agent.tiny, shared_encoder=True, **({"policy_period": 1} if name == "td3" else {})
    )

    class CriticAlone(agent.builder):
        def make_objectives(self, spec):
            return {"critic": super().make_objectives(spec)["critic"]}

        def make_networks(self, spec, generator):
            networks = super().make_networks(spec, generator)
            others = {key: part for key, part in networks._asdict().items() if "critic" not in key}
            for key, parameter in nn.ModuleDict(others).named_parameters():
                parameter.requires_grad_("encoder" in key and "target" not in key)
            return networks

    def after_a_step(builder):
        learner, networks, _ = scene.make_learner(builder, spec, make_batches(name))
        assert networks.policy.encoder is networks.critic.encoder
        before = copy.deepcopy(networks)
        learner.step()
        return learner, networks, before

    learner, networks, before = after_a_step(agent.builder(config))
    _, expected, _ = after_a_step(CriticAlone(config))
    weights, others = (dict(each.policy.named_parameters()) for each in (networks, before))
    for key, weight in expected.critic.encoder.named_parameters():
        assert torch.equal(weights[f"encoder.{key}"], weight)
    assert all(not torch.equal(weights[key], others[key]) for key in weights if "weight" in key)
    (served,) = learner.get_variables(["policy"])  # what actors see through is the trained one
    assert all(np.array_equal(served[key], weight.detach()) for key, weight in weights.items())


@pytest.mark.parametrize("name", SHARING)
def test_policies_have_encoders_of_their_own_by_default(name):
    networks = scene.AGENTS[name].make().make_networks(make_spec(name), torch.Generator().manual_seed(0))
    assert networks.policy.encoder is not networks.critic.encoder


@pytest.mark.parametrize("name", ["sac", "dqn"])  # a kind of action each
def test_replay_holds_each_frame_of_a_stack_once(name, run):
    agent = scene.AGENTS[name]
    spec = scene.make_spec(agent.discrete)._replace(observations=IMAGE)

    def make_environment(seed):
        inner = testing.FakeEnvironment(
            observation_spec=spec.observations, action_spec=spec.actions, episode_length=4, seed=seed
        )
        return wrappers.FrameStackWrapper(inner, num_frames=2)

    builder = agent.make(frame_stack=2)
    stacked = spec._replace(observations=specs.BoundedArray((2, 8, 8, 1), np.uint8, 0, 255))
    (table,) = builder.make_replay_tables(stacked)
    assert (8, 8, 1) in [column.shape for column in table.signature.columns.values()]
    assert run(builder, make_environment, 20, replay="memory").learner_steps > 0
