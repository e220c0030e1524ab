"""Acting by arrays gives the numbers that the module gives."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from minerva_acme import distributions, networks, testing
from minerva_acme.acceleration import acting, array_actor_critic

from . import test_edits as edits

OBSERVATION_SIZE = 7


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def actor_critic(**settings) -> networks.ActorCritic:
    defaults = {
        "normalizer": networks.RunningNorm(OBSERVATION_SIZE),
        "encoder": networks.IdentityEncoder(OBSERVATION_SIZE),
        "encoder_loss": "both",
        "action_size": 3,
        "layer_sizes": (32, 16),
        "value_layer_sizes": (32, 16),
        "torso": "tanh",
        "shared_torso": False,
        "state_dependent_std": False,
        "initial_stddev": 0.5,
        "policy_gain": 1.0,
        "generator": seeded(),
    }
    return networks.make_actor_critic(**(defaults | settings))


def gaussian_policy(*layer_sizes: int) -> networks.GaussianPolicy:
    return networks.GaussianPolicy(OBSERVATION_SIZE, 3, layer_sizes, generator=seeded())


def with_torso(*layers: nn.Module) -> networks.ActorCritic:
    network = actor_critic(layer_sizes=(16,), value_layer_sizes=(16,))
    network.policy_torso = nn.Sequential(*layers)
    return network


POLICIES = {
    "Gaussian policy": lambda: gaussian_policy(32, 32, 16),
    "SimBa": lambda: networks.GaussianPolicy(
        OBSERVATION_SIZE, 3, (16, 16), generator=seeded(), torso=networks.SimBa
    ),
    "bounded mean": lambda: networks.GaussianPolicy(
        OBSERVATION_SIZE,
        3,
        (32,),
        generator=seeded(),
        bounds=(torch.tensor([-1.0, -0.5, 0.0]), torch.tensor([1.0, 3.0, 9.0])),
    ),
    "normalised": lambda: networks.EncodedPolicy(
        networks.NormalizedEncoder(
            networks.RunningNorm(OBSERVATION_SIZE), networks.IdentityEncoder(OBSERVATION_SIZE)
        ),
        gaussian_policy(32, 16),
    ),
    "one layer": lambda: gaussian_policy(32),
    "categorical policy": lambda: networks.CategoricalPolicy(
        OBSERVATION_SIZE, 4, (32, 16), generator=seeded()
    ),
    "wide": lambda: gaussian_policy(256, 256, 256),
    "Gaussian, its own log-std": lambda: actor_critic(),
    "Gaussian, log-std of the state": lambda: actor_critic(state_dependent_std=True),
    "categorical": lambda: actor_critic(action_size=None, num_actions=5),
    "two actions": lambda: actor_critic(action_size=None, num_actions=2),
    "layer norm": lambda: actor_critic(torso="layer_norm"),
    "no normaliser": lambda: actor_critic(normalizer=None),
    "shared": lambda: actor_critic(shared_torso=True),
    "torch's own layers": lambda: with_torso(
        nn.Tanh(), nn.Linear(OBSERVATION_SIZE, 16, bias=False), nn.ReLU(), nn.LayerNorm(16), nn.ELU()
    ),
}


@pytest.fixture(params=list(POLICIES))
def network(request):
    network = POLICIES[request.param]().requires_grad_(False)
    # Far from what weights are initially, so that no bias and no scale can be left out.
    generator = seeded(1)
    for name, tensor in network.state_dict().items():
        if name.endswith(("count", "low", "high")):
            continue
        noise = torch.randn(tensor.shape, generator=generator)
        size = tensor.shape[1] if tensor.ndim == 2 else 4
        tensor.copy_(noise.exp() if name.endswith("var") else tensor + noise / size**0.5)
    return network


def module_policy(network):
    return network.policy if isinstance(network, networks.ActorCritic) else network


def observations(scale: float, num_rows: int) -> np.ndarray:
    return scale * np.random.default_rng(3).standard_normal((num_rows, OBSERVATION_SIZE), np.float32)


def assert_same_numbers(found, expected, rounding: float = 0.0) -> None:
    for array, tensor in zip(found, expected, strict=True):
        assert array.dtype == np.float32
        bound = 1e-6 * max(1.0, float(tensor.abs().max())) + rounding
        np.testing.assert_allclose(array, tensor.numpy(), rtol=0.0, atol=bound)


def rounding_of(network, rows: np.ndarray) -> float:
    """How far the module itself is from its numbers in double precision."""
    single = module_policy(network)(torch.from_numpy(rows.copy()))
    double = module_policy(copy.deepcopy(network).double())(torch.from_numpy(rows).double())
    return max(float((a - b).abs().max()) for a, b in zip(single, double, strict=True))


def test_arrays_give_what_the_module_gives(network):
    twin = acting.Acting(network, seeded())._twin
    assert twin is not None
    forward = twin.parts
    for scale in (0.0, 1e-3, 1.0, 30.0, 1e4):
        rows = observations(scale, 5)
        kept = rows.copy()
        expected = module_policy(network)(torch.from_numpy(rows.copy()))
        rounding = rounding_of(network, rows)
        assert rounding < 1e-3
        assert_same_numbers(forward(rows), expected, rounding)
        for row in range(len(rows)):
            alone = [part[row : row + 1] for part in expected]
            assert_same_numbers(forward(rows[row : row + 1]), alone, rounding)
        np.testing.assert_array_equal(rows, kept)


def test_what_is_drawn_has_the_density_that_the_learner_gives_it(network):
    policy = acting.Acting(network, seeded())
    for rows in observations(1.0, 16), observations(1.0, 1):
        choice = policy.sample(rows)
        distribution = module_policy(network)(torch.from_numpy(rows))
        expected = distribution.log_prob(torch.from_numpy(choice.raw)).numpy()
        assert choice.log_prob.dtype == np.float32
        # What rounding does to a mean weighs the more in a density the smaller the deviation is.
        weight = 1.0
        if isinstance(distribution, distributions.DiagonalGaussian):
            weight = float(((1.0 + distribution.mean.abs()) * torch.exp(-distribution.log_std)).sum(-1).max())
        assert (np.abs(choice.log_prob - expected) <= 1e-6 * (weight + np.abs(expected))).all()
        np.testing.assert_allclose(policy(rows).mode(), distribution.mode(), rtol=1e-6, atol=1e-5)
        assert_same_numbers(choice.parameters, distribution)


@pytest.mark.parametrize("torso", ["tanh", "layer_norm"])
@pytest.mark.parametrize("observation_scale", [0.1, 1.0, 10.0])
def test_both_densities_agree_at_the_smallest_deviation(torso, observation_scale):
    # A standard deviation that training has driven to nothing, in as many dimensions as a humanoid has.
    network = actor_critic(torso=torso, action_size=21, layer_sizes=(256, 256), normalizer=None)
    network.requires_grad_(False).policy_head.log_std.fill_(-100.0)
    rows = observations(observation_scale, 512)
    choice = acting.Acting(network, seeded()).sample(rows)
    learners = network.policy(torch.from_numpy(rows)).log_prob(torch.from_numpy(choice.raw)).numpy()
    difference = choice.log_prob - learners
    assert np.isfinite(difference).all()
    # Nats, and so a ratio's distance to 1. PPO clips ratios beyond 0.2.
    assert np.sqrt(np.square(difference).mean()) < 2e-3
    assert np.abs(difference).max() < 0.01
    if torso == "tanh":
        arrays = array_actor_critic.ArrayActorCritic(network.requires_grad_()).forward(rows, choice.raw)
        assert np.sqrt(np.square(arrays.log_prob - choice.log_prob).mean()) < 2e-3


def test_the_noise_is_that_of_the_distribution():
    rows = np.repeat(observations(1.0, 1), 20_000, axis=0)
    gaussian = acting.Acting(gaussian_policy(8), seeded()).sample(rows)
    z = (gaussian.raw - gaussian.parameters.mean) / np.exp(gaussian.parameters.log_std)
    np.testing.assert_allclose(z.mean(axis=0), 0.0, atol=0.03)
    np.testing.assert_allclose(np.cov(z.T), np.eye(3), atol=0.03)

    network = actor_critic(action_size=None, num_actions=4, policy_gain=3.0)
    category = acting.Acting(network, seeded()).sample(rows)
    expected = network.policy(torch.from_numpy(rows[:1])).logits.softmax(-1)[0].detach()
    found = np.bincount(category.raw, minlength=4) / len(rows)
    assert expected.max() > 2 * expected.min()
    np.testing.assert_allclose(found, expected, atol=0.015)


def test_new_weights_are_acted_on_at_once(network):
    policy = acting.Acting(network, seeded())
    row = observations(1.0, 1)
    before = policy.sample(row).parameters
    policy.set_variables({name: (1.25 * tensor).numpy() for name, tensor in network.state_dict().items()})
    after = policy.sample(row).parameters
    assert not np.allclose(before[0], after[0])
    assert_same_numbers(after, module_policy(policy.module)(torch.from_numpy(row)))
    for tensor in policy.module.state_dict().values():
        tensor /= 2.0
    assert_same_numbers(policy.sample(row).parameters, module_policy(policy.module)(torch.from_numpy(row)))


def test_a_choice_stays_as_it_is_while_others_follow(network):
    policy = acting.Acting(network, seeded())
    rows = observations(1.0, 5)
    first = policy.sample(rows[:1])
    kept = np.array(first.raw), np.array(first.log_prob), np.array(first.parameters[0])
    for row in rows:
        policy.sample(row[None])
    np.testing.assert_array_equal(first.raw, kept[0])
    np.testing.assert_array_equal(first.log_prob, kept[1])
    np.testing.assert_array_equal(first.parameters[0], kept[2])


class Doubling(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2.0 * super().forward(input)


class UserPolicy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = gaussian_policy(8)

    def forward(self, observation: torch.Tensor) -> distributions.DiagonalGaussian:
        return self.inner(observation)


def hooked() -> nn.Module:
    network = gaussian_policy(8)
    network.torso[0].register_forward_hook(lambda module, args, output: output + 1.0)
    return network


def double_precision() -> nn.Module:
    network = gaussian_policy(8)
    network.mean_head.double()
    return network


# Makes each network, and says why it is not known.
UNKNOWN = {
    "a policy of the user's": (UserPolicy, "UserPolicy is not supported"),
    "a layer of the user's": (
        lambda: with_torso(Doubling(OBSERVATION_SIZE, 16)),
        "Doubling is not supported",
    ),
    "an unknown layer": (
        lambda: with_torso(nn.Linear(OBSERVATION_SIZE, 16), nn.Dropout(0.0)),
        "Dropout is not supported",
    ),
    "a torso of another kind": (
        lambda: with_torso(nn.Sequential(nn.Linear(OBSERVATION_SIZE, 16), nn.GELU())),
        "GELU is not supported",
    ),
    "another ELU": (
        lambda: with_torso(nn.Linear(OBSERVATION_SIZE, 16), nn.ELU(alpha=0.5)),
        "an ELU with an alpha other than 1 is not supported",
    ),
    "a LayerNorm without weights": (
        lambda: with_torso(nn.Linear(OBSERVATION_SIZE, 16), nn.LayerNorm(16, elementwise_affine=False)),
        "a LayerNorm without weights is not supported",
    ),
    "hooks": (hooked, "Linear has hooks"),
    "double precision": (double_precision, "a parameter is not float32 on the CPU"),
}


@pytest.mark.parametrize(("make", "reason"), UNKNOWN.values(), ids=UNKNOWN)
def test_what_is_not_known_is_left_to_the_module_and_the_log_says_why(make, reason, said):
    policy = acting.Acting(make(), seeded())
    assert policy._twin is None
    assert said() == [f"acting: torch: {reason}"]


@pytest.mark.parametrize("kind", ["a policy of the user's", "a layer of the user's", "hooks"])
def test_a_users_network_acts_by_its_module(kind):
    network = UNKNOWN[kind][0]()
    policy, again = (acting.Acting(network, seeded()) for _ in range(2))
    rows = observations(1.0, 4)
    choice = policy.sample(rows)
    distribution = module_policy(network)(torch.from_numpy(rows))
    np.testing.assert_array_equal(choice.parameters.mean, distribution.mean.detach())
    np.testing.assert_array_equal(
        choice.log_prob, distribution.log_prob(torch.from_numpy(choice.raw)).detach()
    )
    np.testing.assert_array_equal(policy(rows).mode(), distribution.mode().detach())
    np.testing.assert_array_equal(choice.raw, again.sample(rows).raw)


@pytest.mark.parametrize("make", [lambda: gaussian_policy(8), UserPolicy], ids=["arrays", "module"])
def test_the_noise_can_be_seeded_saved_and_restored(make):
    network, row = make(), observations(1.0, 1)
    policy, again, other = (acting.Acting(network, seeded(seed)) for seed in (0, 0, 1))
    first = policy.sample(row).raw
    np.testing.assert_array_equal(first, again.sample(row).raw)
    assert (first != other.sample(row).raw).any()
    state = testing.through_a_file(policy.noise)
    drawn = [policy.sample(row).raw for _ in range(3)]
    again.sample(row)
    again.restore(state)
    np.testing.assert_array_equal(drawn, [again.sample(row).raw for _ in range(3)])


# Agreement with the module.

WARNING = "acting: plain torch from now on, because the faster way gave other results: "


def assert_acts_as_its_module(policy, rows) -> None:
    """By its outputs, and by the density of what is drawn."""
    expected = module_policy(policy.module)(torch.from_numpy(rows))
    for found, wanted in zip(policy(rows), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    choice = policy.sample(rows)
    log_prob = expected.log_prob(torch.from_numpy(choice.raw))
    np.testing.assert_allclose(choice.log_prob, log_prob.detach(), rtol=1e-4, atol=1e-4)


def is_by_arrays(policy) -> bool:
    return policy._twin is not None


# Each of a policy whose layers are those of `LayerNormMLP`, and whether arrays know what comes of it.
REPLACEMENTS = {
    "a layer": (lambda p: setattr(p.torso, "3", edits.seeded_linear(16)), True),
    "an inserted layer": (lambda p: p.torso.append(edits.seeded_linear(16)), True),
    "an inserted layer that is not known": (lambda p: p.torso.append(nn.Softplus()), False),
    "a layer less": (lambda p: p.torso.__delitem__(4), True),
    "a parameter": (lambda p: setattr(p.mean_head, "weight", nn.Parameter(0.5 * p.mean_head.weight)), True),
    "a parameter of one number, by its equal": (
        lambda p: setattr(p.mean_head, "bias", nn.Parameter(p.mean_head.bias.clone())),
        True,
    ),
    "other data": (lambda p: edits.replace_data(p), True),
    "other data, transposed": (lambda p: edits.transpose(p.torso), True),
    "assigned weights": (lambda p: edits.assign(p), True),
    "shared memory": (lambda p: p.share_memory(), True),
    "ELU's alpha": (lambda p: setattr(p.torso[4], "alpha", 0.3), False),
    "LayerNorm's epsilon": (lambda p: setattr(p.torso[1], "eps", 0.5), True),
    "a hook": (lambda p: p.torso[3].register_forward_hook(edits.change_output), False),
    "a hook before": (lambda p: edits.scaled_by_a_hook(p.torso), False),
    "a forward of an instance": (lambda p: edits.own_forward(p.torso), False),
    "a subclass of a layer": (lambda p: edits.become(p.torso[3], edits.TwiceLinear), False),
    "spectral_norm": (lambda p: edits.normalised_spectrum(p.torso), False),
}


@pytest.mark.parametrize("is_at_first", [True, False], ids=["at first", "later"])
@pytest.mark.parametrize("name", REPLACEMENTS)
def test_what_is_replaced_in_a_policys_module_counts_from_the_next_call_on(name, is_at_first):
    replace, is_known = REPLACEMENTS[name]
    network = networks.GaussianPolicy(OBSERVATION_SIZE, 1, (16, 16, 16), generator=seeded())
    policy, rows = acting.Acting(network, seeded()), observations(1.0, 4)
    if not is_at_first:
        assert_acts_as_its_module(policy, rows)
    with torch.no_grad():
        replace(policy.module)
    for _ in range(2):
        assert_acts_as_its_module(policy, rows)
    assert is_by_arrays(policy) == is_known
    # Also what is written into it afterwards.
    state = {key: (0.5 * value).detach().numpy() for key, value in policy.module.state_dict().items()}
    policy.set_variables(state)
    assert_acts_as_its_module(policy, rows)


@pytest.mark.parametrize("kind", ["missing", "left over", "repeated"])
def test_weights_of_another_network_are_refused_and_none_is_taken(kind):
    policy = acting.Acting(gaussian_policy(16, 16), seeded())
    before = copy.deepcopy(policy.module.state_dict())
    state = {name: tensor.numpy() + 1.0 for name, tensor in before.items()}
    *_, name = state
    if kind == "missing":
        del state[name]
    elif kind == "left over":
        state["more.weight"] = np.ones((2, 2), np.float32)
    else:  # torch's `copy_` takes one row for many
        state[name] = state[name][:1]
    expected = {
        "missing": rf"`{name}` is missing there, \(3,\) here",
        "left over": r"`more.weight` is \(2, 2\) there, missing here",
        "repeated": rf"`{name}` is \(1,\) there, \(3,\) here",
    }
    with pytest.raises(ValueError, match=f"this GaussianPolicy, but {expected[kind]}.* train again"):
        policy.set_variables(state)
    for name, tensor in policy.module.state_dict().items():
        assert tensor.equal(before[name])


def test_weights_that_move_to_shared_memory_are_read_where_they_are(monkeypatch):
    network = gaussian_policy(256, 256)
    policy, row = acting.Acting(network, seeded()), observations(1.0, 1)
    policy(row)
    module = policy.module
    before = [parameter.data_ptr() for parameter in module.parameters()]
    module.share_memory()
    assert all(
        parameter.data_ptr() != place for parameter, place in zip(module.parameters(), before, strict=True)
    )
    compared = []
    compare = acting.Acting._compare
    monkeypatch.setattr(
        acting.Acting, "_compare", lambda self, rows: compared.append(compare(self, rows)) or compared[-1]
    )
    with torch.no_grad():
        module.mean_head.bias.fill_(3.0)
    assert_acts_as_its_module(policy, row)
    assert compared == [True] and is_by_arrays(policy)


def tanh_of_mean(forward):
    return lambda self, x: (policy := forward(self, x))._replace(mean=policy.mean.tanh())


# Of a class: what is edited, by what. The last are of what is drawn.
CLASS_EDITS = {
    "a policy": (networks.GaussianPolicy, "forward", tanh_of_mean),
    "a torso": (networks.LayerNormMLP, "forward", edits.doubled),
    "an activation": (nn.ELU, "forward", edits.doubled),
    "another distribution": (
        networks.GaussianPolicy,
        "forward",
        lambda forward: lambda self, x: OwnGaussian(forward(self, x)),
    ),
    "the density": (distributions.DiagonalGaussian, "log_prob", edits.doubled),
    "the sample": (
        distributions.DiagonalGaussian,
        "sample",
        lambda sample: lambda self, *args: self.mean + 0.5 * (sample(self, *args) - self.mean),
    ),
}


class OwnGaussian(tuple):
    """A distribution of the user's, which is always sure."""

    def __new__(cls, parts):
        return super().__new__(cls, parts)

    def sample(self, generator):
        return self[0]

    def log_prob(self, raw):
        return torch.zeros(len(raw))


@pytest.mark.parametrize("name", CLASS_EDITS)
def test_an_edited_class_acts_and_one_warning_names_the_part(name, monkeypatch, said, caplog):
    edits.edit_function(monkeypatch, *CLASS_EDITS[name])
    rows = observations(1.0, 4)
    found, expected = (
        acting.Acting(gaussian_policy(16, 16), seeded(), accelerated=accelerated)
        for accelerated in (True, False)
    )
    for policy in (found, expected):
        policy.generator.manual_seed(5)
    for _ in range(3):
        for ours, theirs in zip(found.sample(rows), expected.sample(rows), strict=True):
            testing.assert_nests_equal(
                [np.asarray(each) for each in (ours if isinstance(ours, tuple) else [ours])],
                [np.asarray(each) for each in (theirs if isinstance(theirs, tuple) else [theirs])],
                "An edited class must act as without acceleration.",
            )
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1 and warnings[0].startswith(WARNING)


def test_an_edit_that_shows_far_from_the_first_observations_alone_is_found(monkeypatch, said):
    monkeypatch.setattr(networks.RunningNorm, "forward", lambda self, x: (x - self.mean).clamp(-20.0, 20.0))
    policy, rows = acting.Acting(POLICIES["normalised"](), seeded()), observations(1.0, 4)
    assert np.abs(rows).max() < 10.0
    policy(rows)
    assert not is_by_arrays(policy)
    assert said()[-1].startswith(WARNING)


@pytest.mark.parametrize("limits", [{"min": -3.0}, {"max": 0.5}])
def test_an_edit_that_shows_with_other_weights_alone_is_found(monkeypatch, said, limits):
    """Such as a tighter clamp of the deviation, which a new network is far from."""
    forward = networks.GaussianPolicy.forward

    def edited(self, observation):
        mean, log_std = forward(self, observation)
        return distributions.DiagonalGaussian(mean, log_std.clamp(**limits))

    monkeypatch.setattr(networks.GaussianPolicy, "forward", edited)
    policy, rows = acting.Acting(gaussian_policy(16, 16), seeded()), observations(1.0, 4)
    policy(rows)
    assert not is_by_arrays(policy)
    assert said()[-1].startswith(WARNING) and "times the weights differ" in said()[-1]


def test_a_class_that_is_edited_later_acts_from_the_next_call_on(monkeypatch, said):
    policy, rows = acting.Acting(gaussian_policy(16, 16), seeded()), observations(1.0, 4)
    before = policy(rows).mean
    edits.edit_function(monkeypatch, nn.ELU, "forward", edits.doubled)
    assert not torch.allclose(policy(rows).mean, before)
    assert said()[-1].startswith(WARNING)


def test_a_comparison_changes_no_number_of_a_run(monkeypatch):
    drawn = []
    for is_compared in (True, False):
        if not is_compared:
            monkeypatch.setattr(acting.Acting, "_compare", lambda *_: True)
        torch.manual_seed(0)
        policy, rows = acting.Acting(gaussian_policy(16, 16), seeded()), observations(1.0, 4)
        first = policy.sample(rows).raw
        policy.restore(testing.through_a_file(policy.noise))
        drawn.append([first, policy.sample(rows).raw, torch.rand(3).numpy()])
    testing.assert_nests_equal(*drawn, "A comparison left a trace.")


def test_both_ways_are_compared_at_first_and_after_a_restore(monkeypatch):
    compared = []
    compare = acting.Acting._compare

    def counting(self, rows):
        compared.append(compare(self, rows))
        return compared[-1]

    monkeypatch.setattr(acting.Acting, "_compare", counting)
    policy, rows = acting.Acting(gaussian_policy(16, 16), seeded()), observations(1.0, 4)
    for _ in range(3):
        policy.sample(rows)
    assert compared == [True]
    policy.restore(testing.through_a_file(policy.noise))
    for _ in range(3):
        policy.sample(rows)
    assert compared == [True, True]


def test_noise_of_arrays_goes_on_by_torch_where_arrays_are_left():
    row = observations(1.0, 1)
    policies = [acting.Acting(gaussian_policy(8), seeded()) for _ in range(2)]
    for policy in policies:
        policy.sample(row)
        policy.module.torso[0].register_forward_hook(edits.change_output)
    drawn = [[policy.sample(row).raw for _ in range(3)] for policy in policies]
    np.testing.assert_array_equal(*drawn)
    assert len(np.unique(np.concatenate(drawn[0]), axis=0)) == 3
    assert "generator" in policies[0].noise
    # A run that arrays have acted in is gone on with.
    resumed = acting.Acting(UserPolicy(), seeded())
    arrays = acting.Acting(gaussian_policy(8), seeded())
    arrays.sample(row)
    resumed.restore(testing.through_a_file(arrays.noise))
    again = acting.Acting(UserPolicy(), seeded(9))
    again.restore(testing.through_a_file(arrays.noise))
    np.testing.assert_array_equal(resumed.sample(row).raw, again.sample(row).raw)


def test_a_batch_that_is_not_finite_settles_nothing():
    policy, rows = acting.Acting(gaussian_policy(8), seeded()), observations(1.0, 2)
    assert policy(rows * np.nan).mean.isnan().all()
    assert is_by_arrays(policy) and not policy._agreement.holds()
    policy(rows)
    assert policy._agreement.holds()


def test_actions_near_the_middle_of_their_range_agree():
    # What is left of (1 + tanh(x)) - 1 is mostly rounding.
    body = nn.Sequential(
        nn.Linear(OBSERVATION_SIZE, 1), distributions.TanhSquash(-torch.ones(1), torch.ones(1))
    )
    nn.init.constant_(body[0].weight, 1e-7)
    nn.init.zeros_(body[0].bias)
    policy = acting.Acting(networks.EncodedPolicy(networks.IdentityEncoder(OBSERVATION_SIZE), body), seeded())
    policy(observations(1.0, 1))
    assert is_by_arrays(policy) and policy._agreement.holds()


def test_a_copied_policy_acts_by_its_own_weights():
    policy, rows = acting.Acting(gaussian_policy(8), seeded()), observations(1.0, 2)
    policy(rows)
    other = copy.deepcopy(policy)
    state = {key: 2.0 * value.numpy() for key, value in policy._module.state_dict().items()}
    other.set_variables(state)
    before = policy(rows).mean
    assert not torch.allclose(other(rows).mean, before)
    assert_acts_as_its_module(other, rows)


def test_a_part_behind_a_memory_may_be_replaced():
    network = actor_critic(
        memory=networks.make_memory("gru", OBSERVATION_SIZE, 6, generator=seeded()),
        layer_sizes=(8,),
        value_layer_sizes=(8,),
    )
    for accelerated in (True, False):
        policy = acting.Acting(network, seeded(), accelerated=accelerated)
        features, _ = policy.remember(observations(1.0, 2), policy.initial_state(2))
        before = policy(features).mean
        with torch.no_grad():
            policy.module.policy_head = networks.GaussianHead(
                8, 3, state_dependent_std=False, initial_stddev=0.5, gain=1.0, generator=seeded(4)
            ).requires_grad_(False)
        expected = policy.module.without_memory().policy(torch.from_numpy(features)).mean
        assert not torch.allclose(expected, before)
        torch.testing.assert_close(policy(features).mean, expected, rtol=1e-5, atol=1e-6)
