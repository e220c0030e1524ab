"""What both learners promise."""

import itertools

import numpy as np
import pytest
import torch
import tree

from minerva_acme import testing

NAN, INF = float("nan"), float("inf")


def spoil(rollout, field, value):
    """The rollout with one number replaced."""
    spoilt = getattr(rollout, field).clone()
    spoilt.view(-1)[3] = value
    return rollout._replace(**{field: spoilt})


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("reward", NAN, "the rewards are not finite"),
        ("reward", INF, "the rewards are not finite"),
        ("observation", NAN, "the observations are not finite"),
        ("observation", -INF, "the observations are not finite"),
        ("next_observation", INF, "the next observations are not finite"),
        ("discount", NAN, "the discounts are not finite"),
        ("return_so_far", INF, "the returns are not finite"),
    ],
)
def test_a_rollout_that_is_not_finite_is_skipped_counted_and_logged(
    agent, make_learner, make_rollout, continuous_spec, caplog, field, value, message
):
    builder = agent.builder()
    network = builder.make_networks(continuous_spec, torch.Generator().manual_seed(0))
    good = make_rollout(builder, network, continuous_spec)
    bad = spoil(make_rollout(builder, network, continuous_spec, seed=1), field, value)
    learner, network, rows = make_learner(builder, continuous_spec, iter([good, bad, good]))
    learner.step()
    before = learner.save()
    learner.step()
    after = learner.save()
    assert [row["skipped_batches"] for row in rows] == [0, 1]
    assert f"learner step 1 skipped: {message}" in caplog.text
    assert after.pop("num_steps") == before.pop("num_steps") + 1
    assert (before.pop("skipped"), after.pop("skipped")) == (
        {"total": 0, "in_a_row": 0},
        {"total": 1, "in_a_row": 1},
    )
    for state in (before, after):
        state.pop("generator", None)
    _drop_learning_rates(before)
    _drop_learning_rates(after)
    testing.assert_nests_equal(after, before, "A skipped rollout must leave weights and statistics alone.")
    learner.step()
    assert rows[-1]["skipped_batches"] == 1
    assert learner.save()["skipped"] == {"total": 1, "in_a_row": 0}


def _drop_learning_rates(state):
    for optimizer in [state["optimizer"]] if "optimizer" in state else state["optimizers"].values():
        for group in optimizer["param_groups"]:
            group.pop("lr")


def test_gradients_that_are_not_finite_move_no_weights(
    agent, make_learner, make_rollout, continuous_spec, caplog
):
    builder = agent.builder()
    network = builder.make_networks(continuous_spec, torch.Generator().manual_seed(0))
    rollout = make_rollout(builder, network, continuous_spec)
    # All of them, so that the first minibatch has one.
    extras = rollout.extras._replace(raw_action=torch.full_like(rollout.extras.raw_action, NAN))
    learner, network, rows = make_learner(builder, continuous_spec, iter([rollout._replace(extras=extras)]))
    before = {key: value.clone() for key, value in network.state_dict().items()}
    learner.step()
    assert rows[-1]["skipped_batches"] == 1
    assert "gradients" in caplog.text
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())


def test_too_many_in_a_row_are_an_error(agent, make_learner, make_rollout, continuous_spec):
    builder = agent.builder(max_skipped_batches=2)
    network = builder.make_networks(continuous_spec, torch.Generator().manual_seed(0))
    bad = spoil(make_rollout(builder, network, continuous_spec), "reward", NAN)
    learner, _, rows = make_learner(builder, continuous_spec, itertools.repeat(bad))
    learner.run(num_steps=2)
    with pytest.raises(FloatingPointError, match="rewards are not finite, 3 learner steps in a row"):
        learner.step()
    assert [row["skipped_batches"] for row in rows] == [1, 2]


@pytest.mark.parametrize("shared_torso", [False, True])
@pytest.mark.parametrize("advantage_estimator", ["gae", "dae", "returns"])
def test_every_kind_of_advantage_and_torso_trains(
    agent, make_learner, spec, advantage_estimator, shared_torso
):
    builder = agent.builder(
        advantage_estimator=advantage_estimator,
        shared_torso=shared_torso,
        num_environments=2,
        torso="tanh" if shared_torso else "layer_norm",
        state_dependent_stddev=shared_torso,
        normalize_advantages=shared_torso,
    )
    learner, network, rows = make_learner(builder, spec)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    learner.run(num_steps=3)
    assert rows[-1]["skipped_batches"] == 0
    assert all(np.isfinite(float(value)) for row in rows for value in row.values())
    assert not any(torch.equal(value, before[key]) for key, value in network.named_parameters())


def test_a_restored_learner_makes_the_same_next_steps_bit_for_bit(agent, make_learner, make_rollout, spec):
    builder = agent.builder(num_environments=2)
    behaviour = builder.make_networks(spec, torch.Generator().manual_seed(3))
    rollouts = [make_rollout(builder, behaviour, spec, seed) for seed in range(6)]
    straight, _, _ = make_learner(builder, spec, iter(rollouts), num_env_steps=16 * 10)
    straight.run(num_steps=3)
    state = testing.through_a_file(straight.save())
    resumed, _, rows = make_learner(builder, spec, iter(rollouts[3:]), seed=99, num_env_steps=16 * 10)
    resumed.restore(state)
    for _ in range(3):
        straight.step()
        resumed.step()
        testing.assert_nests_equal(resumed.save(), straight.save(), "Learners must go on alike.")
    assert (
        rows[0]["learning_rate"] == pytest.approx(builder._config.learning_rate * 0.7) or agent.name == "vmpo"
    )


@pytest.mark.parametrize("anneal", [True, False])
def test_the_learning_rate_falls_in_equal_steps_to_0_behind_the_last_update(
    agent, make_learner, continuous_spec, anneal
):
    # A rollout's steps are those of both environments together.
    builder = agent.builder(anneal_learning_rate=anneal, learning_rate=1e-3, num_environments=2)
    learner, _, rows = make_learner(builder, continuous_spec, num_env_steps=16 * 4 + 3)
    learner.run(num_steps=4)
    expected = [1e-3, 0.75e-3, 0.5e-3, 0.25e-3] if anneal else [1e-3] * 4
    assert [row["learning_rate"] for row in rows] == pytest.approx(expected)
    if anneal:
        learner.run(num_steps=2)  # more than were announced: nothing is unlearned
        assert [row["learning_rate"] for row in rows[4:]] == [0.0, 0.0]


def test_without_an_end_in_sight_the_learning_rate_stays(agent, make_learner, continuous_spec):
    learner, _, rows = make_learner(agent.builder(anneal_learning_rate=True), continuous_spec)
    learner.run(num_steps=3)
    assert len({row["learning_rate"] for row in rows}) == 1


def test_the_next_observation_counts_where_an_episode_or_the_rollout_ends(
    agent, make_rollout, continuous_spec
):
    """With one-step targets and no scaling each target can be told by hand."""
    builder = agent.builder(
        advantage_estimator="dae", scale_rewards=False, discount=0.5, num_environments=2, rollout_steps=8
    )
    network = builder.make_networks(continuous_spec, torch.Generator().manual_seed(0))
    rollout = make_rollout(builder, network, continuous_spec)
    last = torch.tensor([[0, 0], [1, 0], [0, 1], [1, 1]], dtype=torch.float32)
    discount = torch.tensor([[1, 1], [1, 1], [1, 0], [1, 1]], dtype=torch.float32)
    next_observation = rollout.next_observation.clone()
    next_observation[1, 0] = next_observation[2, 1] = 7.0  # the true last ones of two episodes
    rollout = rollout._replace(last=last, discount=discount, next_observation=next_observation)
    batch = builder._evaluator(network, continuous_spec, torch.device("cpu")).evaluate(rollout)
    for t, e in itertools.product(range(4), range(2)):
        following = network.value(next_observation[t, e]).item()
        expected = rollout.reward[t, e].item() + 0.5 * discount[t, e].item() * following
        assert batch.target[2 * t + e].item() == pytest.approx(expected, abs=1e-5)
        value = network.value(rollout.observation[t, e]).item()
        assert batch.advantage[2 * t + e].item() == pytest.approx(expected - value, abs=1e-5)


def test_eight_environments_make_the_batch_of_eight_rollouts(agent, make_rollout, spec):
    """Samples of one environment do not depend on who is beside it."""
    builder = agent.builder(num_environments=8, rollout_steps=64, scale_rewards=False)
    network = builder.make_networks(spec, torch.Generator().manual_seed(0))
    rollout = make_rollout(builder, network, spec)
    rollout = rollout._replace(
        last=(torch.rand(8, 8, generator=torch.Generator().manual_seed(5)) < 0.3).float()
    )
    rollout.last[-1] = 1.0
    evaluator = builder._evaluator(network, spec, torch.device("cpu"))
    together = evaluator.evaluate(rollout)
    for index in range(8):
        alone = evaluator.evaluate(tree.map_structure(lambda leaf, e=index: leaf[:, e : e + 1], rollout))
        for name, one, all_ in zip(alone._fields, alone, together, strict=True):
            mine = tree.map_structure(lambda leaf, e=index: leaf.unflatten(0, (8, 8))[:, e], all_)
            tree.map_structure(lambda a, b, name=name: torch.testing.assert_close(a, b, msg=name), one, mine)


class _Contract(testing.LearnerConformance):
    names = ("network",)

    @pytest.fixture(autouse=True)
    def _parts(self, make_learner, make_rollout, continuous_spec):
        self.parts = make_learner, make_rollout, continuous_spec

    def make_learner(self):
        make_learner, make_rollout, spec = self.parts
        builder = self.agent.builder()
        network = builder.make_networks(spec, torch.Generator().manual_seed(0))
        rollout = make_rollout(builder, network, spec)
        learner, _, _ = make_learner(builder, spec, itertools.repeat(rollout))
        return learner


class TestPPOContract(_Contract):
    @pytest.fixture(autouse=True)
    def _agent(self, ppo_agent):
        self.agent = ppo_agent


class TestVMPOContract(_Contract):
    @pytest.fixture(autouse=True)
    def _agent(self, vmpo_agent):
        self.agent = vmpo_agent
