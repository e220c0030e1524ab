"""MPO with other critic heads and with several critics."""

import copy
import dataclasses

import numpy as np
import pytest
import torch

from minerva_acme import distributions, losses, networks, specs, types
from minerva_acme.agents import mpo
from minerva_acme.agents.mpo import critics, targets

from .scene import SMALL, losses_of, make_learner, make_trajectory, repeat

HEADS = {
    "scalar": {"critic_head": "scalar", "num_critics": 2},
    "c51": {"critic_head": "c51"},
    "two_hot": {"critic_head": "two_hot"},
    "hl_gauss": {"critic_head": "hl_gauss"},
    "mixture": {"critic_head": "mixture"},
    "mean of two mixtures": {"critic_head": "mixture", "num_critics": 2, "critic_ensemble": "mean"},
    "smaller of two c51": {"critic_head": "c51", "num_critics": 2},
}
CONFIG = dataclasses.replace(
    SMALL,
    vmin=-6.0,
    vmax=6.0,
    num_bins=61,
    critic_target="one_step",
    critic_loss_steps="all",
    critic_learning_rate=1e-2,
)
DISCRETE = specs.DiscreteArray(3, name="action")


@pytest.fixture(params=["continuous", "discrete"])
def kind(request):
    return request.param


def scene(kind, spec, config, seed=0, **overrides):
    """A learner and its batch; the critic's targets are those that the config names."""
    trajectory = make_trajectory(seed=seed, **overrides)
    if kind == "discrete":
        spec = spec._replace(actions=DISCRETE)
        action = torch.randint(3, trajectory.reward.shape, generator=torch.Generator().manual_seed(seed))
        extras = trajectory.extras._replace(raw_action=action)
        trajectory = trajectory._replace(action=action.int(), extras=extras)
    generator = torch.Generator().manual_seed(seed)
    discrete = kind == "discrete"
    duals = losses.MPODuals(
        num_dimensions=1 if discrete else 2,
        init_log_temperature=1.0,
        init_log_alpha_mean=1.0,
        init_log_alpha_stddev=None if discrete else 1.0,
        action_penalty=False,
    )
    learner, rows = make_learner(
        spec,
        repeat(trajectory),
        config,
        mpo.MPOBuilder(config).make_critic_target(),
        networks=mpo.make_networks(spec, config, generator),
        duals=duals,
    )
    return learner, rows, trajectory


@pytest.mark.parametrize("head", HEADS)
def test_a_critic_of_each_kind_descends_its_own_loss(spec, kind, head):
    """The targets are drawn as the learner draws them; what they are is derived by hand below."""
    config = dataclasses.replace(
        CONFIG, discount=0.5, optimizer="sgd", sgd_momentum=0.0, max_grad_norm=1e6, **HEADS[head]
    )
    learner, rows, batch = scene(kind, spec, config)
    batch.discount[1, 2], batch.mask[2, 3:] = 0.0, 0.0
    online = learner.networks.online
    policy, critic = copy.deepcopy((online.policy, online.critic))
    generator = torch.Generator().set_state(learner.generator.get_state())
    with torch.no_grad():
        target = mpo.MPOBuilder(config).make_critic_target()(
            batch,
            0.5 * batch.discount,
            policy(batch.observation),
            critics.make_critic(critic, DISCRETE if kind == "discrete" else spec.actions),
            generator,
        )
    observation = batch.observation[:, :-1]
    if kind == "discrete":
        prediction = critic(observation).select(batch.action)
    else:
        prediction = critic(observation, batch.action)
    loss = critic.loss(prediction, target, batch.mask)
    loss.backward()
    learner.step()
    assert float(rows[-1]["loss/critic"]) == pytest.approx(loss.item(), rel=1e-5)
    for (name, old), new in zip(
        critic.named_parameters(), learner.networks.online.critic.parameters(), strict=True
    ):
        expected = old.detach() - config.critic_learning_rate * old.grad
        torch.testing.assert_close(new.detach(), expected, msg=name)
    assert not torch.equal(new, old)


def test_a_distribution_is_bootstrapped_by_hand_where_the_run_of_steps_ends(kind):
    """Bins at 0 and 10. At the end of two steps the second bin has 1/4; r is 1 and 2, gamma 1/2."""
    atoms, logits = torch.tensor([0.0, 10.0]), torch.tensor([0.75, 0.25]).log()
    discrete = kind == "discrete"

    def module(features, *action):
        lead = (*features.shape[:-1], 3) if discrete else action[0].shape[:-1]
        return networks.CategoricalPrediction(logits.expand(*lead, 2), atoms.expand(*lead, 2))

    spec = DISCRETE if discrete else specs.BoundedArray((2,), np.float32, -1.0, 1.0)
    policy = (
        distributions.Categorical(torch.zeros(1, 4, 3))
        if discrete
        else distributions.DiagonalGaussian(torch.zeros(1, 4, 2), torch.zeros(1, 4, 2))
    )
    batch = types.Trajectory(
        observation=torch.zeros(1, 4, 3),
        action=torch.zeros(1, 3, dtype=torch.int64) if discrete else torch.zeros(1, 3, 2),
        reward=torch.tensor([[1.0, 2.0, 7.0]]),
        discount=torch.ones(1, 3),
        mask=torch.tensor([[1.0, 1.0, 0.0]]),
    )
    critic = critics.make_critic(module, spec)
    discount_t = torch.full((1, 3), 0.5)
    generator = torch.Generator().manual_seed(0)
    for target, first, first_of_two in (
        (targets.n_step, [2.0, 4.5], [2.0, 2.0]),
        (targets.one_step, [1.0, 6.0], [1.0, 6.0]),
    ):
        result = target(num_actions=4, num_returns=8)(batch, discount_t, policy, critic, generator)
        # n_step: 1 + 1/2 (2 + 1/2 z); one_step: 1 + 1/2 z. The second step: 2 + 1/2 z for both.
        torch.testing.assert_close(result.values[0, 0], torch.tensor(first))
        torch.testing.assert_close(result.values[0, 1], torch.tensor([2.0, 7.0]))
        torch.testing.assert_close(result.weights[0, :2], torch.tensor([[0.75, 0.25]]).expand(2, 2))
        # Behind a terminal second step is nothing: 1 + 1/2 * 2, and 2.
        at_terminal = discount_t * torch.tensor([1.0, 0.0, 1.0])
        result = target(num_actions=4, num_returns=8)(batch, at_terminal, policy, critic, generator)
        torch.testing.assert_close(result.values[0, 0], torch.tensor(first_of_two))
        torch.testing.assert_close(result.values[0, 1], torch.tensor([2.0, 2.0]))


def test_the_mixture_over_actions_is_weighed_by_the_policy():
    """Two actions with certain returns 0 and 10: the state's distribution is the policy itself."""
    atoms = torch.tensor([0.0, 10.0])
    logits = torch.tensor([[30.0, 0.0], [0.0, 30.0]])
    critic = critics.make_critic(
        lambda features: networks.CategoricalPrediction(
            logits.expand(*features.shape[:-1], 2, 2), atoms.expand(*features.shape[:-1], 2, 2)
        ),
        specs.DiscreteArray(2),
    )
    policy = distributions.Categorical(torch.tensor([[0.8, 0.2]]).log())
    points = policy.points(torch.Generator(), 1)
    state = critic.mixture(torch.zeros(1, 3), points)
    torch.testing.assert_close(state.logits.softmax(dim=-1), torch.tensor([[0.8, 0.2]]), atol=1e-5, rtol=0.0)
    torch.testing.assert_close(state.mean(), torch.tensor([2.0]), atol=1e-4, rtol=0.0)


class OwnCritic(torch.nn.Module):
    """The value of an action is its product with a weight, and with nothing of the state."""

    loss = networks.ScalarHead.loss

    def __init__(self, gives_predictions):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(2))
        self._gives_predictions = gives_predictions

    def forward(self, features, action):
        q = action @ self.weight
        return networks.ScalarPrediction(q.unsqueeze(-1)) if self._gives_predictions else q


def with_own_critic(spec, gives_predictions):
    config = dataclasses.replace(CONFIG, discount=0.0, critic_learning_rate=3e-2)
    own = mpo.make_networks(spec, config, torch.Generator().manual_seed(0))._replace(
        critic=OwnCritic(gives_predictions)
    )
    trajectory = make_trajectory()
    trajectory = trajectory._replace(reward=trajectory.action @ torch.tensor([1.0, -0.5]))
    return make_learner(spec, repeat(trajectory), config, networks=own)


def test_a_critic_of_values_alone_descends_the_scalar_heads_loss(spec):
    """A first step of Adam is one of the learning rate, by the gradient's sign."""
    learner, _ = with_own_critic(spec, gives_predictions=True)
    learner.step()
    torch.testing.assert_close(learner.networks.online.critic.weight.detach(), torch.tensor([0.03, -0.03]))


def test_a_critic_that_gives_a_tensor_is_told_what_to_give(spec):
    learner, _ = with_own_critic(spec, gives_predictions=False)
    with pytest.raises(
        ValueError, match=r"must return a `networks.Prediction`, got a tensor of shape .*unsqueeze"
    ):
        learner.step()


@pytest.mark.parametrize("rule", ["min", "mean"])
def test_values_of_two_critics_are_their_minimum_or_mean(spec, kind, rule):
    config = dataclasses.replace(CONFIG, num_critics=2, critic_ensemble=rule)
    learner, _, batch = scene(kind, spec, config)
    one, two = (
        critics.make_critic(member, DISCRETE if kind == "discrete" else spec.actions)
        for member in learner.networks.online.critic.members
    )
    features, action = batch.observation[:, 0], batch.action[:, 0]
    each = torch.stack([critic(features, action) for critic in (one, two)])
    assert (each[0] - each[1]).abs().min() > 1e-6
    expected = each.amin(dim=0) if rule == "min" else each.mean(dim=0)
    torch.testing.assert_close(losses_of(learner).online_q(features, action), expected)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"critic_head": "c51"},
            "`critic_target` must be n_step or one_step with `critic_head` c51.*two_hot",
        ),
        ({"critic_head": "mixture"}, "`critic_head` mixture, which learns distributions, got retrace"),
        ({"critic_head": "two_hot", "vmin": 1.0, "vmax": 1.0}, "`vmin` must be < `vmax`, got 1.0 and 1.0."),
        ({"critic_head": "dueling"}, "`critic_head` must be one of"),
        ({"num_bins": 1}, "`num_bins` must be >= 2"),
        ({"num_critics": 0}, "`num_critics` must be >= 1"),
    ],
)
def test_heads_that_cannot_learn_what_they_are_given_are_refused(overrides, message):
    with pytest.raises(ValueError, match=message):
        mpo.MPOConfig(**overrides)


@pytest.mark.parametrize("kind", ["continuous", "discrete"])
def test_the_log_says_which_way_the_target_critic_takes(spec, said, kind):
    scene(kind, spec, dataclasses.replace(CONFIG, critic_head="two_hot", num_critics=2))
    assert any(line.startswith("target critic: float32, ") for line in said())
