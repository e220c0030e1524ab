"""What is TD3's own: where its target looks, and which critic the policy follows."""

import torch

from minerva_acme import learners, networks
from minerva_acme.agents import td3

from .. import transition_scene as scene


def test_smoothed_actions_stay_within_bounds_whatever_the_critic_does_with_them():
    builder = scene.AGENTS["td3"].make(target_stddev=5.0, target_noise_clip=2.0)
    spec = scene.make_spec()
    nets = builder.make_networks(spec, torch.Generator().manual_seed(0))
    seen = []

    class Looking(torch.nn.Module):
        def forward(self, observation, action):
            seen.append(action)
            return networks.ScalarPrediction(torch.zeros(len(action), 1))

    objective = builder.make_objectives(spec)["critic"]
    batch = scene.make_batch(spec, batch_size=400)
    objective.loss(
        nets._replace(target_critic=Looking()), learners.Batch(batch, 1.0), torch.Generator().manual_seed(0)
    )
    (action,) = seen
    low, high = torch.tensor(scene.LOW), torch.tensor(scene.HIGH)
    assert (action >= low).all() and (action <= high).all()
    # Many of them at the bounds, of which the noise is far beyond.
    assert ((action == low) | (action == high)).float().mean() > 0.5


def test_the_policy_is_trained_in_every_second_step_and_targets_move_with_it():
    builder = td3.TD3Builder(td3.TD3Config(**scene.CONTINUOUS, policy_period=2))
    learner, nets, rows = scene.make_learner(builder, scene.make_spec())

    def weights(name):
        return torch.cat([x.detach().flatten().clone() for x in getattr(nets, name).parameters()])

    moved = []
    for _ in range(4):
        before = {name: weights(name) for name in nets._fields}
        learner.step()
        moved.append({name for name in nets._fields if not torch.equal(before[name], weights(name))})
    assert moved == [{"critic"}, set(nets._fields)] * 2
    assert ["loss/policy" in row for row in rows] == [False, True, True, True]
    losses = [float(row["loss/policy"]) for row in rows[1:]]
    assert losses[0] == losses[1] != losses[2]  # the last one, until the next


def test_the_policy_follows_the_critic_as_it_was_edited():
    class Blind(networks.EncodedCritic):
        def forward(self, observation, *action):
            return super().forward(0.0 * observation, *action)

    spec = scene.make_spec()
    made = scene.AGENTS["td3"].make().make_networks(spec, torch.Generator().manual_seed(0)).critic
    blind, seen = Blind(made.encoder, made.critic), []
    blind.register_forward_hook(lambda *_: seen.append(1))
    data = scene.make_batch(spec)
    first = blind.first(data.observation, torch.zeros(8, 2)).mean()
    torch.testing.assert_close(first, first[:1].expand(8))
    assert made.first(data.observation, torch.zeros(8, 2)).mean().std() > 1e-3
    assert seen
