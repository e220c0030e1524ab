"""MPO whose critic's bins hold returns divided by their running scale."""

import dataclasses

import pytest
import torch

from minerva_acme import networks
from minerva_acme.agents import mpo
from tests.closeness import assert_close_to_norm

from .scene import SMALL, Sample, make_learner, make_trajectory, repeat

SCALING = dataclasses.replace(
    SMALL,
    critic_head="two_hot",
    vmin=-5.0,
    vmax=5.0,
    num_bins=101,
    scale_returns=True,
    critic_loss_steps="all",
    target_critic_update_period=2,
    policy_learning_rate=1e-9,  # whose temperature starts in other units
)


def with_sums(trajectory, factor=1.0, seed=0):
    """The same sequences with rewards times `factor`, and with the sums of rewards before."""
    sums = 3.0 * torch.randn(trajectory.reward.shape, generator=torch.Generator().manual_seed(seed)) + 2.0
    extras = trajectory.extras._replace(running_return=factor * sums)
    return trajectory._replace(reward=factor * trajectory.reward, extras=extras)


def scale_of(learner, name="critic"):
    modules = learner.save()["modules"][name]
    return networks_scale({key.split("scale.")[-1]: x for key, x in modules.items() if "scale." in key})


def networks_scale(state):
    scale = networks.ReturnScale(5.0)
    scale.load_state_dict(state)
    return scale.value.item()


@pytest.mark.parametrize("head", ["two_hot", "hl_gauss"])
@pytest.mark.parametrize("num_critics", [1, 2])
def test_rewards_in_other_units_train_the_same_critic(spec, head, num_critics):
    config = dataclasses.replace(
        SCALING, critic_head=head, num_critics=num_critics, optimizer="sgd", critic_learning_rate=0.1
    )

    def learner_of(factor):
        batches = (Sample(with_sums(make_trajectory(seed=s), factor, s)) for s in range(6))
        return make_learner(spec, batches, config)

    learners, rows = zip(learner_of(1.0), learner_of(1024.0), strict=True)
    start = learners[0].save()["modules"]["critic"]
    for learner in learners:
        learner.run(num_steps=6)
    small, large = (learner.save()["modules"]["critic"] for learner in learners)
    weights = [key for key in small if key.endswith("weight")]
    assert not any(torch.equal(small[key], start[key]) for key in weights)
    for key in weights:
        assert_close_to_norm(small[key] - start[key], large[key] - start[key], 0.02)
    assert scale_of(learners[1]) == pytest.approx(1024.0 * scale_of(learners[0]), rel=1e-4)
    for name in ("q/max", "q/min", "q/scale"):
        assert float(rows[1][-1][name]) == pytest.approx(1024.0 * float(rows[0][-1][name]), rel=2e-2)


def test_the_scale_is_that_of_the_first_steps_and_the_targets_keep_theirs(spec):
    batches = [with_sums(make_trajectory(seed=s), seed=s) for s in range(4)]
    learner, rows = make_learner(spec, map(Sample, batches), SCALING)
    learner.run(num_steps=4)
    for name, num_batches in (("critic", 4), ("target_critic", 2)):
        firsts = torch.cat([batch.extras.running_return[:, 0] for batch in batches[:num_batches]])
        expected = max(firsts.std(correction=0).item(), firsts.abs().max().item() / 5.0)
        assert scale_of(learner, name) == pytest.approx(expected, rel=1e-3)
    assert float(rows[-1]["q/scale"]) == pytest.approx(scale_of(learner))


def test_the_fast_target_critic_has_the_scale_of_the_plain_one(spec):
    losses = []
    for acceleration in ("auto", "off"):
        config = dataclasses.replace(SCALING, torso="simba", acceleration=acceleration)
        batches = (Sample(with_sums(make_trajectory(seed=s), 50.0, s)) for s in range(6))
        learner, rows = make_learner(spec, batches, config)
        learner.run(num_steps=6)
        losses.append([float(row["loss/critic"]) for row in rows])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_batches_without_the_sums_are_refused(spec):
    learner, _ = make_learner(spec, repeat(make_trajectory()), SCALING)
    with pytest.raises(TypeError, match="`extras` of a batch must have .*`running_return`"):
        learner.step()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"critic_head": "scalar"},
            "`scale_returns` must be False with `critic_head` scalar, which has no bins",
        ),
        ({"critic_head": "mixture"}, "`scale_returns` must be False with `critic_head` mixture"),
        ({"vmin": -150.0, "vmax": 150.0}, "101 bins from -150 to 150, each 3 wide. Set `vmin` to -5"),
    ],
)
def test_settings_that_conflict_are_refused(overrides, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SCALING, **overrides)


def test_bins_of_one_deviation_are_narrow_enough():
    config = dataclasses.replace(SCALING, vmin=-50.0, vmax=50.0)
    assert (config.vmax - config.vmin) / (config.num_bins - 1) == 1.0


def test_replay_holds_the_sums_with_the_discount_that_they_were_made_with(spec):
    builder, plain = (
        mpo.MPOBuilder(dataclasses.replace(SCALING, scale_returns=scaled, discount=0.9))
        for scaled in (True, False)
    )
    (table,), (other,) = (each.make_replay_tables(spec) for each in (builder, plain))
    assert dict(table.contents) == {"discount": 0.9}
    assert dict(other.contents) == {}
    rows, plain_rows = (each.signature.columns["float32"].shape for each in (table, other))
    assert rows == (plain_rows[0] + 1,)
