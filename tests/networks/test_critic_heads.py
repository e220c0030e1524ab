"""Critic heads: first values, targets, mixtures over actions, ensembles, and that each learns its target."""

import itertools
from typing import Any, Literal

import pytest
import torch
from torch import nn

from minerva_acme import losses, networks

FEATURES = 16
LOW, HIGH = torch.tensor([-1.0, -2.0]), torch.tensor([1.0, 0.5])


def make_generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_features(*leading: int, seed: int = 0) -> torch.Tensor:
    return 10.0 * torch.randn(*leading, FEATURES, generator=make_generator(seed))


def make_categorical(
    projection: Literal["c51", "two_hot", "hl_gauss"] = "c51", seed: int = 0, **changes: Any
) -> networks.CategoricalCriticHead:
    arguments = {"vmin": -5.0, "vmax": 5.0, "num_bins": 51, "generator": make_generator(seed)} | changes
    return networks.CategoricalCriticHead(FEATURES, projection=projection, **arguments)


def make_head(kind: str, seed: int = 0, num_actions: int | None = None) -> Any:
    generator = make_generator(seed)
    if kind == "scalar":
        return networks.ScalarHead(FEATURES, num_actions=num_actions, generator=generator)
    if kind == "mixture":
        return networks.MixtureOfGaussiansHead(
            FEATURES, num_components=3, init_scale=0.5, num_actions=num_actions, generator=generator
        )
    return make_categorical(kind, seed, num_actions=num_actions)  # type: ignore[arg-type]


CATEGORICAL = ("c51", "two_hot", "hl_gauss")
KINDS = ("scalar", *CATEGORICAL, "mixture")
each_kind = pytest.mark.parametrize("kind", KINDS)


# What all heads do.


@each_kind
@pytest.mark.parametrize("leading", [(), (7,), (3, 4)])
def test_there_is_one_value_for_each_row_and_action(kind: str, leading: tuple[int, ...]) -> None:
    assert make_head(kind)(make_features(*leading)).mean().shape == leading
    assert make_head(kind, num_actions=5)(make_features(*leading)).mean().shape == (*leading, 5)


@each_kind
def test_first_values_are_near_zero_and_the_seed_reproduces_them(kind: str) -> None:
    features = torch.randn(64, FEATURES, generator=make_generator())
    assert make_head(kind)(features).mean().abs().max() < 0.2
    torch.testing.assert_close(make_head(kind, 3).state_dict(), make_head(kind, 3).state_dict())
    assert not torch.equal(make_head(kind, 3).weight, make_head(kind, 4).weight)
    global_state = torch.get_rng_state()
    make_head(kind)
    assert torch.equal(torch.get_rng_state(), global_state)


@each_kind
def test_selected_action_is_that_of_a_loop(kind: str) -> None:
    prediction = make_head(kind, num_actions=5)(make_features(3, 4))
    action = torch.randint(5, (3, 4), generator=make_generator())
    selected = prediction.select(action)
    for b, t in itertools.product(range(3), range(4)):
        for one, all_actions in zip(selected, prediction, strict=True):
            assert torch.equal(one[b, t], all_actions[b, t, action[b, t]])


@each_kind
def test_mean_of_a_mixture_is_the_mean_of_the_means(kind: str) -> None:
    prediction = make_head(kind)(make_features(6, 3, 4))
    torch.testing.assert_close(prediction.mixture().mean(), prediction.mean().mean(dim=0))
    prediction = make_head(kind, num_actions=5)(make_features(3, 4))
    probs = torch.randn(3, 4, 5, generator=make_generator()).softmax(dim=-1)
    expected = (probs * prediction.mean()).sum(dim=-1)
    torch.testing.assert_close(prediction.mixture(dim=-1, weights=probs).mean(), expected)
    torch.testing.assert_close(prediction.mixture(dim=2, weights=probs).mean(), expected)


@each_kind
def test_action_of_probability_zero_has_no_part_in_a_mixture(kind: str) -> None:
    prediction = make_head(kind, num_actions=2)(make_features(3))
    only = torch.tensor([0.0, 1.0]).expand(3, 2)
    mixture, taken = prediction.mixture(dim=-1, weights=only), prediction.select(torch.ones(3))
    torch.testing.assert_close(mixture.mean(), taken.mean())


@each_kind
def test_returns_have_the_predictions_mean(kind: str) -> None:
    prediction = make_head(kind)(make_features(3, 4))
    returns = prediction.returns(generator=make_generator(), num_samples=20_000)
    torch.testing.assert_close(returns.weights.sum(dim=-1), torch.ones(3, 4))
    torch.testing.assert_close(
        returns.mean(), prediction.mean(), rtol=0.0, atol=0.05 if kind == "mixture" else 1e-5
    )


@each_kind
def test_head_learns_a_value_that_depends_on_the_state(kind: str) -> None:
    features = torch.randn(64, 2, FEATURES, generator=make_generator())
    target = torch.tanh(features[..., 0]) - 2.0 * features[..., 1].clamp(-1.0, 1.0)
    torso = nn.Sequential(nn.Linear(FEATURES, 64), nn.Tanh())
    networks.linear.initialize_uniform(torso[0], make_generator())
    head: Any = {
        "scalar": networks.ScalarHead(64, generator=make_generator()),
        "mixture": networks.MixtureOfGaussiansHead(
            64, num_components=3, init_scale=1.0, generator=make_generator()
        ),
    }.get(kind) or networks.CategoricalCriticHead(
        64,
        vmin=-5.0,
        vmax=5.0,
        num_bins=51,
        projection=kind,  # type: ignore[arg-type]
        generator=make_generator(),
    )
    optimizer = torch.optim.Adam([*torso.parameters(), *head.parameters()], lr=1e-2)
    for _ in range(150):
        loss = head.loss(head(torso(features)), target, torch.ones(64, 2))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    error = head(torso(features)).mean() - target
    assert error.square().mean() < 0.05 * target.var()


@each_kind
def test_padding_changes_neither_loss_nor_gradient(kind: str) -> None:
    head, features = make_head(kind), make_features(4, 2)
    mask = torch.tensor([1.0, 0.0]).expand(4, 2)
    results = []
    for garbage in (0.0, torch.nan):
        target = networks.ReturnDistribution(
            torch.randn(4, 2, 3, generator=make_generator()), torch.ones(4, 2, 3) / 3
        )
        target.values[:, 1] = garbage
        head.zero_grad()
        loss = head.loss(head(features), target, mask)
        loss.backward()
        results.append((loss.detach(), head.weight.grad.clone()))
    torch.testing.assert_close(results[0], results[1], rtol=0.0, atol=0.0)


# Scalar.


def test_scalar_head_is_a_linear_layer_with_small_weights_bit_by_bit() -> None:
    head = networks.ScalarHead(256, generator=make_generator())
    generator = make_generator()
    layer = networks.uniform_linear(256, 1, generator)
    torch.nn.init.trunc_normal_(layer.weight, std=0.01, a=-0.02, b=0.02, generator=generator)
    torch.nn.init.zeros_(layer.bias)
    torch.testing.assert_close(head.state_dict(), layer.state_dict(), rtol=0.0, atol=0.0)
    features = torch.randn(6, 3, 256)
    prediction, q_t = head(features), layer(features).squeeze(-1)
    assert torch.equal(prediction.mean(), q_t)
    target_t, mask_t = torch.randn(6, 3), (torch.rand(6, 3) > 0.3).float()
    assert torch.equal(head.loss(prediction, target_t, mask_t), losses.critic_loss(q_t, target_t, mask_t))


# Categorical.


def test_atoms_are_bounds_for_c51_and_centres_of_bins_for_hl_gauss() -> None:
    expected = torch.tensor([-1.0, 0.0, 1.0])
    torch.testing.assert_close(make_categorical("c51", vmin=-1.0, vmax=1.0, num_bins=3).atoms, expected)
    torch.testing.assert_close(make_categorical("hl_gauss", vmin=-1.5, vmax=1.5, num_bins=3).atoms, expected)


def test_atoms_even_in_symlog_reach_from_vmin_to_vmax() -> None:
    atoms = make_categorical("two_hot", vmin=-1e4, vmax=1e4, num_bins=255, symlog=True).atoms
    assert atoms[[0, 127, -1]].tolist() == pytest.approx([-1e4, 0.0, 1e4], rel=1e-5)
    torch.testing.assert_close(losses.symlog(atoms).diff(), torch.full((254,), 0.0725191), rtol=1e-3, atol=0)


def test_two_hot_target_of_symlog_atoms_keeps_values_of_any_size() -> None:
    head = make_categorical("two_hot", vmin=-1e4, vmax=1e4, num_bins=255, symlog=True)
    values = torch.randn(64, 3, generator=make_generator()) * torch.tensor([0.01, 1.0, 1000.0])
    torch.testing.assert_close((head.project(values) * head.atoms).sum(dim=-1), values, rtol=1e-4, atol=1e-5)


def test_c51_target_of_a_terminal_step_has_its_mass_at_the_reward() -> None:
    head = make_categorical(vmin=-2.0, vmax=2.0, num_bins=5)
    returns = head(make_features(2)).returns(generator=make_generator(), num_samples=1)
    # The first step ends the episode with reward 0.25, the second continues.
    target = returns.bootstrapped(torch.tensor([0.25, 0.25]), torch.tensor([0.0, 0.9]))
    probs = head.project(target)
    torch.testing.assert_close(probs[0], torch.tensor([0.0, 0.0, 0.75, 0.25, 0.0]))
    assert (probs[1] > 0.0).sum() > 2


@pytest.mark.parametrize("projection", ["two_hot", "hl_gauss"])
def test_other_projections_take_the_mean_of_a_distribution(projection: Any) -> None:
    head = make_categorical(projection)
    target = networks.ReturnDistribution(torch.tensor([[-1.0, 3.0]]), torch.tensor([[0.75, 0.25]]))
    assert torch.equal(head.project(target), head.project(torch.tensor([0.0])))
    assert (make_categorical().project(target)[0] > 0.0).sum() == 2


def test_c51_takes_a_value_for_a_certain_return() -> None:
    values = torch.linspace(-6.0, 6.0, 7)
    assert torch.equal(make_categorical("c51").project(values), make_categorical("two_hot").project(values))


def test_sigma_of_hl_gauss_is_in_bin_widths() -> None:
    head = make_categorical("hl_gauss", sigma_ratio=2.0)
    expected = losses.hl_gauss(torch.tensor([0.3]), torch.linspace(-5.0, 5.0, 52), 2.0 * 10.0 / 51.0)
    torch.testing.assert_close(head.project(torch.tensor([0.3])), expected)


def test_categorical_mixture_has_the_average_probabilities() -> None:
    prediction = make_categorical()(make_features(6, 3))
    torch.testing.assert_close(
        prediction.mixture().logits.softmax(dim=-1), prediction.logits.softmax(dim=-1).mean(dim=0)
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_bins": 1}, r"`num_bins` must be >= 2, got 1\."),
        ({"vmin": 5.0}, r"`vmin` and `vmax` must be finite, vmin < vmax, got 5\.0 and 5\.0\."),
        ({"vmax": float("nan")}, "`vmin` and `vmax` must be finite"),
        ({"sigma_ratio": 0.0}, r"`sigma_ratio` must be > 0, got 0\.0\."),
        ({"projection": "c52"}, r"`projection` must be c51, two_hot or hl_gauss, got c52\."),
        ({"projection": "hl_gauss", "symlog": True}, r"`symlog` needs projection c51 or two_hot"),
        ({"num_actions": 0}, r"`num_actions` must be >= 1, got 0\."),
    ],
)
def test_categorical_settings_that_cannot_be_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_categorical(**changes)


# Mixture of Gaussians.


def test_scale_starts_at_what_was_asked_for() -> None:
    head = networks.MixtureOfGaussiansHead(FEATURES, num_components=5, init_scale=0.3)
    prediction = head(torch.zeros(2, FEATURES))
    torch.testing.assert_close(prediction.scale, torch.full((2, 5), 0.3 + 1e-4))
    assert prediction.logits.shape == prediction.loc.shape == (2, 5)


def test_samples_have_the_shares_means_and_scales_of_the_components() -> None:
    prediction = networks.MixturePrediction(
        logits=torch.tensor([[0.25, 0.75], [1.0, 1e-9]]).log(),
        loc=torch.tensor([[-10.0, 10.0], [3.0, 0.0]]),
        scale=torch.tensor([[1.0, 2.0], [0.5, 1.0]]),
    )
    samples = prediction.returns(generator=make_generator(), num_samples=40_000).values
    low, high = samples[0][samples[0] < 0.0], samples[0][samples[0] > 0.0]
    assert len(low) / 40_000 == pytest.approx(0.25, abs=0.01)
    assert [low.mean().item(), high.mean().item()] == pytest.approx([-10.0, 10.0], abs=0.05)
    assert [low.std().item(), high.std().item()] == pytest.approx([1.0, 2.0], rel=0.02)
    assert [samples[1].mean().item(), samples[1].std().item()] == pytest.approx([3.0, 0.5], abs=0.02)


def test_mixture_of_mixtures_has_the_average_density() -> None:
    prediction = make_head("mixture")(make_features(4, 3))
    returns = torch.linspace(-2.0, 2.0, 9)
    density = losses.mixture_log_prob(returns.expand(4, 3, 9), *prediction).exp().mean(dim=0)
    mixed = losses.mixture_log_prob(returns.expand(3, 9), *prediction.mixture()).exp()
    torch.testing.assert_close(mixed, density)


@pytest.mark.parametrize("changes", [{"num_components": 0}, {"init_scale": 0.0}])
def test_mixture_settings_that_cannot_be_are_named(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        networks.MixtureOfGaussiansHead(FEATURES, **({"num_components": 3, "init_scale": 1.0} | changes))


# Ensembles.


def make_ensemble(kind: str, rule: Literal["mean", "min"], **arguments: Any) -> networks.Ensemble:
    return networks.Ensemble([make_head(kind, seed, **arguments) for seed in (1, 2)], rule=rule)


@each_kind
def test_ensemble_has_the_average_or_the_smaller_value_at_each_state(kind: str) -> None:
    features = make_features(3, 4)
    first, second = (make_head(kind, seed)(features).mean() for seed in (1, 2))
    assert 0 < (first < second).sum() < 12
    average = make_ensemble(kind, "mean")(features).mean()
    torch.testing.assert_close(average, 0.5 * (first + second))
    assert torch.equal(make_ensemble(kind, "min")(features).mean(), torch.minimum(first, second))


@each_kind
def test_minimum_takes_the_whole_distribution_of_the_member_with_the_smaller_mean(kind: str) -> None:
    features = make_features(5)
    members = [make_head(kind, seed)(features) for seed in (1, 2)]
    combined = make_ensemble(kind, "min")(features).combined()
    for state in range(5):
        smaller = min(members, key=lambda member: member.mean()[state])
        for own, expected in zip(combined, smaller, strict=True):
            assert torch.equal(own[state], expected[state])


@each_kind
def test_ensembles_loss_is_the_sum_of_its_members_and_trains_each_as_alone(kind: str) -> None:
    features, target, mask = make_features(3, 4), torch.randn(3, 4), torch.ones(3, 4)
    ensemble = make_ensemble(kind, "min")
    loss = ensemble.loss(ensemble(features), target, mask)
    loss.backward()
    alone = [make_head(kind, seed) for seed in (1, 2)]
    own_losses = [head.loss(head(features), target, mask) for head in alone]
    torch.testing.assert_close(loss, own_losses[0] + own_losses[1])
    for own_loss, head, member in zip(own_losses, alone, ensemble.members, strict=True):
        own_loss.backward()
        assert torch.equal(head.weight.grad, member.weight.grad)


def test_minimum_over_members_comes_before_the_mixture_over_actions() -> None:
    prediction = make_ensemble("c51", "min", num_actions=5)(make_features(3))
    probs = torch.randn(3, 5, generator=make_generator()).softmax(dim=-1)
    smaller = torch.minimum(*(member.mean() for member in prediction.members))
    torch.testing.assert_close(
        prediction.mixture(dim=-1, weights=probs).mean(), (probs * smaller).sum(dim=-1)
    )
    action = torch.tensor([0, 4, 2])
    selected = prediction.select(action)
    assert torch.equal(selected.mean(), smaller.gather(1, action[:, None]).squeeze(1))
    assert len(selected.members) == 2


def test_returns_of_an_ensemble_are_those_of_the_combined_prediction() -> None:
    prediction = make_ensemble("mixture", "mean")(make_features(3))
    own = prediction.returns(generator=make_generator(), num_samples=4)
    combined = prediction.combined().returns(generator=make_generator(), num_samples=4)
    assert torch.equal(own.values, combined.values)
    assert prediction.combined().loc.shape == (3, 6)


def test_ensembles_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`members` must hold at least one critic, got none\."):
        networks.Ensemble([], rule="min")
    with pytest.raises(ValueError, match=r"`rule` must be mean or min, got max\."):
        networks.Ensemble([make_head("scalar")], rule="max")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"`members` must have the same bins"):
        networks.Ensemble([make_categorical(), make_categorical(vmax=6.0)], rule="mean")
