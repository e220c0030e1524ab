"""MPO with several objectives: against a float64 loop from the paper, and against MPO with one."""

import dataclasses

import numpy as np
import pytest
import torch

from minerva_acme import losses, networks, specs, types
from minerva_acme.agents import mpo
from minerva_acme.agents.mpo import critics
from minerva_acme.cli import commands, parsing, sweep_plan

from .. import transition_scene
from . import reference
from .scene import Sample
from .test_reference_step import CONFIG, HIGH, LOW, NUM_UPDATES, Case, check_steps

REWARDS = ("speed", "energy")
SCALAR = specs.Array((), np.float32)
SPEC = specs.EnvironmentSpec(
    observations=specs.Array((3,), np.float32),
    actions=specs.BoundedArray((2,), np.float32, LOW, HIGH),
    rewards={"energy": SCALAR, "speed": SCALAR, "other": SCALAR},
    discounts=specs.BoundedArray((), np.float32, 0.0, 1.0),
)
SEVERAL = dataclasses.replace(
    CONFIG, objectives=("speed", "calm", "energy"), objective_epsilons=(0.2, 0.05, 0.4)
)


def calm(observation, actions):
    """Close to a place that depends on the state."""
    return -(actions - observation[:, None, :2]).abs().sum(dim=-1)


class Builder(mpo.MPOBuilder):
    def make_objective_functions(self):
        return {"calm": calm}


class Reference(reference.Reference):
    """Algorithm 3 of Abdolmaleki et al. 2020, with a critic for each reward that has the torso in common."""

    def evaluate(self, batch):
        state = self._generator.get_state()
        found = []
        for self.head, name in enumerate(REWARDS):
            self._generator.set_state(state)  # the same actions are compared by all objectives
            found.append(super().evaluate(batch._replace(reward=batch.reward[name])))
        speed, energy = found
        closeness = torch.zeros_like(speed.q_values)
        for b, n in np.ndindex(*closeness.shape):
            closeness[b, n] = -sum(abs(speed.actions[b, n, d] - batch.observation[b, 0, d]) for d in range(2))
        return speed._replace(
            critic_targets=torch.stack([speed.critic_targets, energy.critic_targets], dim=-1),
            q_values=torch.stack([speed.q_values, closeness, energy.q_values], dim=-1),
        )

    def _target_q(self, observation, action):
        return reference.critic_of(of_head(self.modules["target_critic"], self.head), observation, action)

    def critic_loss(self, weights, targets, loss_of):
        return sum(loss_of(of_head(weights, k), targets[..., k]) for k in range(len(REWARDS)))

    def ranges(self, q_values):
        ranges = {}
        for k, name in ((0, "speed"), (2, "energy")):
            ranges |= {f"q/min/{name}": q_values[..., k].min(), f"q/max/{name}": q_values[..., k].max()}
        return ranges

    def improve(self, q_values, temperature):
        weights, loss, metrics = 0.0, 0.0, {}
        config = self._config
        for k, name in enumerate(config.objectives):
            reward = REWARDS.index(name) if name in REWARDS else None
            epsilon = config.objective_epsilons[k]
            own, own_loss, found = self.objective(name, q_values[..., k], epsilon, temperature[k], reward)
            weights, loss, metrics = weights + own, loss + own_loss, metrics | found
        return weights, loss, metrics

    def rewards(self, batch):
        return [batch.reward[name] for name in REWARDS]

    def name_of_temperature(self, objective):
        return f"temperature/{objective}" if objective in self._config.objectives else "penalty_temperature"

    def temperatures(self, temperature):
        return {f"temperature/{name}": temperature[k] for k, name in enumerate(self._config.objectives)}


def of_head(weights, k):
    return {name: x[k : k + 1] if name.startswith("head.") else x for name, x in weights.items()}


class SeveralCase(Case):
    reference_class = Reference
    builder_class = Builder

    def make_trajectory(self, config, seed):
        batch = super().make_trajectory(config, seed)
        generator = torch.Generator().manual_seed(100 + seed)
        others = {name: torch.randn(batch.reward.shape, generator=generator) for name in ("energy", "other")}
        return batch._replace(reward={"speed": batch.reward, **others})


@pytest.mark.parametrize(
    "changes",
    [
        {"critic_target": "retrace", "critic_loss_steps": "all", "action_penalty": True},
        {"critic_target": "n_step", "m_steps": 2},
        {"critic_target": "one_step", "acceleration": "off"},
        {"temperature": "learned", "action_penalty": True},
        {"temperature_floor": 2.0},
    ],
    ids=["retrace, penalty", "n-step", "one-step", "learned temperatures", "temperatures at their floors"],
)
def test_steps_are_those_of_the_paper(changes):
    check_steps(SPEC, dataclasses.replace(SEVERAL, **changes), SeveralCase)


def make_learner(config, spec, reward, seed=0):
    """A learner with three batches, whose rewards `reward` makes from a tensor."""
    builder = Builder(config)
    builder.check_spec(spec)
    noise = torch.Generator().manual_seed(1)
    is_discrete = isinstance(spec.actions, specs.DiscreteArray)

    def batches():
        while True:
            raw = torch.randn(8, 4, 2, generator=noise)
            if is_discrete:
                raw = torch.randint(3, (8, 4), generator=noise)
            yield Sample(
                types.Trajectory(
                    observation=torch.randn(8, 5, 3, generator=noise),
                    action=raw if is_discrete else raw.clamp(torch.tensor(LOW), torch.tensor(HIGH)),
                    reward=reward(torch.randn(8, 4, generator=noise)),
                    discount=torch.ones(8, 4),
                    mask=(torch.rand(8, 4, generator=noise) < 0.8).float(),
                    extras=mpo.BehaviourExtras(
                        log_prob=torch.randn(8, 4, generator=noise) - 2, raw_action=raw
                    ),
                )
            )

    learner, _, rows = transition_scene.make_learner(
        builder, spec, dataset=batches(), seed=seed, share_done=lambda step: step / NUM_UPDATES
    )
    learner.run(num_steps=3)
    return learner, rows


DISCRETE = SPEC._replace(actions=specs.DiscreteArray(3, dtype=np.int64))


@pytest.mark.parametrize(("spec", "head"), [(SPEC, "two_hot"), (DISCRETE, "scalar"), (DISCRETE, "hl_gauss")])
def test_with_one_objective_it_is_mpo(spec, head):
    one = dataclasses.replace(
        CONFIG, critic_head=head, vmin=-3.0, vmax=3.0, num_bins=7, num_critics=2, adam_epsilon=1e-3
    )
    several = dataclasses.replace(one, objectives=("return",), objective_epsilons=(one.epsilon,))
    spec = spec._replace(rewards=SCALAR)
    plain, _ = make_learner(one, spec, lambda reward: reward)
    found, _ = make_learner(several, spec, lambda reward: reward)
    for name, module in plain.save()["modules"].items():
        for key, tensor in module.items():
            other = found.save()["modules"][name][key]
            torch.testing.assert_close(other.reshape(tensor.shape), tensor, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("head", ["scalar", "two_hot", "hl_gauss"])
def test_each_head_learns_from_its_own_reward_as_it_would_alone(head):
    config = dataclasses.replace(CONFIG, critic_head=head, vmin=-3.0, vmax=3.0, num_bins=7)
    several = dataclasses.replace(config, objectives=REWARDS, objective_epsilons=(0.1, 0.2))
    generator = torch.Generator().manual_seed(0)
    critic = mpo.make_networks(SPEC, several, generator).critic
    alone = mpo.make_networks(SPEC, config, generator).critic
    features, action = torch.randn(4, 5, 3), torch.randn(4, 5, 2)
    targets, mask = torch.randn(4, 5, 2), (torch.rand(4, 5) < 0.6).float()
    prediction = critics.make_critic(critic, SPEC.actions, True).predict(features, action)
    assert prediction.mean().shape == (4, 5, 2)
    loss = critics.critic_loss(critic, prediction, targets, mask)
    loss.backward()
    rows = len(alone.head.weight)
    total = 0.0
    for k in range(2):
        weights = {
            name: tensor[k * rows : (k + 1) * rows] if name in ("head.weight", "head.bias") else tensor
            for name, tensor in critic.state_dict().items()
        }
        alone.load_state_dict(weights)
        alone.zero_grad()
        own = critics.critic_loss(alone, alone(features, action), targets[..., k], mask)
        own.backward()
        total += own.detach()
        torch.testing.assert_close(critic.head.weight.grad[k * rows : (k + 1) * rows], alone.head.weight.grad)
    torch.testing.assert_close(loss.detach(), total)


def test_a_discrete_critic_of_several_returns_is_read_by_action_and_objective():
    head = networks.ScalarHead(4, num_actions=3, num_objectives=2)
    critic = critics.make_critic(
        networks.Critic(torch.nn.Identity(), head, bounds=None), DISCRETE.actions, True
    )
    features, action = torch.randn(5, 4), torch.randint(3, (6, 5))
    with torch.no_grad():
        all_values = head(features).mean()  # [5, 2, 3]
        values = critic(features, action)
        taken = critic.predict(features, action[0]).mean()
    assert values.shape == (6, 5, 2)
    for n, b, k in np.ndindex(6, 5, 2):
        assert values[n, b, k] == all_values[b, k, action[n, b]]
    torch.testing.assert_close(taken, values[0])


def test_a_larger_bound_gives_an_objective_more_say():
    """Two objectives that want opposite actions: the policy follows the one whose weights may differ more."""
    actions = torch.linspace(-1, 1, 21)[None]
    drawn = {}
    for epsilons in ((0.5, 0.01), (0.01, 0.5)):
        weights = 0.0
        for values, epsilon in zip((actions, -100.0 * actions), epsilons, strict=True):
            log_temperature = torch.zeros((), requires_grad=True)
            optimizer = torch.optim.Adam([log_temperature], 0.1)
            for _ in range(100):
                optimizer.zero_grad()
                step = losses.e_step(values, log_temperature.exp(), epsilon)
                (step.temperature_loss / log_temperature.detach().exp()).backward()
                optimizer.step()
            weights = weights + step.weights
        drawn[epsilons] = (weights * actions).sum(dim=1).mean().item() / 2
    assert drawn[0.5, 0.01] > 0.15 and drawn[0.01, 0.5] < -0.15  # whatever the scale of the values


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective_epsilons": (0.1,)}, "one bound for each of the 3 `objectives`, got 1"),
        ({"objective_epsilons": (0.1, 0.0, 0.1)}, "bounds > 0"),
        ({"objectives": ("a", "a", "b")}, "different names"),
        ({"objectives": ("mean", "a", "b")}, "none of discrete, mean, penalty, q, stddev"),
        ({"critic_head": "c51", "critic_target": "n_step"}, "scalar, two_hot or hl_gauss.*got c51"),
        ({"critic_head": "mixture", "critic_target": "n_step"}, "scalar, two_hot or hl_gauss.*got mixture"),
        (
            {"critic_head": "two_hot", "scale_returns": True, "vmin": -5, "vmax": 5, "num_bins": 101},
            "no common scale",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SEVERAL, **changes)


def test_names_that_the_environment_does_not_have_are_refused_with_those_that_it_has():
    config = dataclasses.replace(SEVERAL, objectives=("speed", "calm", "energie"))
    with pytest.raises(ValueError, match=r"\(energy, other, speed\).*\(calm\), got energie"):
        Builder(config).check_spec(SPEC)
    with pytest.raises(ValueError, match=r"\(return\).*got speed, energy"):
        Builder(SEVERAL).check_spec(SPEC._replace(rewards=SCALAR))
    only_functions = dataclasses.replace(SEVERAL, objectives=("calm",), objective_epsilons=(0.1,))
    with pytest.raises(ValueError, match="at least one"):
        Builder(only_functions).check_spec(SPEC)
    with pytest.raises(ValueError, match="other names than the rewards, got energy"):

        class Both(mpo.MPOBuilder):
            def make_objective_functions(self):
                return {"energy": calm, "calm": calm}

        Both(SEVERAL).check_spec(SPEC)
    double = SPEC._replace(rewards={**SPEC.rewards, "energy": specs.Array((), np.float64)})
    with pytest.raises(ValueError, match="ScalarRewardWrapper|SinglePrecisionWrapper"):
        Builder(SEVERAL).check_spec(double)


def test_prioritized_replay_takes_the_largest_error_of_all_rewards():
    target = torch.tensor([[[1.0, -3.0], [2.0, 0.5]]])
    prediction = networks.ScalarPrediction(torch.zeros(1, 2, 2, 1))
    torch.testing.assert_close(critics.td_errors(prediction, target), target.abs())


def test_flags_name_objectives_and_a_sweep_varies_their_bounds():
    words = ["mpo", "--env", "my:Env", "--objectives", "return", "energy"]
    train = parsing.parse(["train", *words, "--objective-epsilons", "0.1", "0.01"])
    assert train.hyperparameters.objectives == ("return", "energy")
    assert train.hyperparameters.objective_epsilons == (0.1, 0.01)
    sweep = parsing.parse(
        ["sweep", *words[:3], "--objectives", "return,energy", "--objective-epsilons", "0.1,0.01", "0.1,1"]
    )
    assert isinstance(sweep, commands.Sweep)
    plan = sweep_plan.make_plan(sweep)
    assert [run.train.hyperparameters.objective_epsilons for run in plan] == [(0.1, 0.01), (0.1, 1.0)]
