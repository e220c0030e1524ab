"""Whatever a researcher edits, the faster ways give what the edited formula gives, or leave it to torch."""

import contextlib
from typing import Any

import pytest
import torch
import torch.nn.utils.prune
from torch import nn

from minerva_acme import distributions, losses, networks
from minerva_acme.acceleration import agreement, array_ppo
from minerva_acme.networks import actor_critic

from . import test_array_ppo as ppo

pytestmark = pytest.mark.promise("An edited network or formula is what trains and acts")

# Edits of a torso: layers 0, 3 and 5 are linear, 1 is a LayerNorm, 4 and 6 are ELUs.


class TwiceLinear(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2.0 * super().forward(input)


def twice(output: Any) -> Any:
    """Twice a tensor or a prediction of values."""
    if isinstance(output, networks.ScalarPrediction):
        return networks.ScalarPrediction(2.0 * output.value)
    return 2.0 * output


def become(module: nn.Module, kind: type[nn.Module]) -> None:
    module.__class__ = kind


def replace_data(module: nn.Module) -> None:
    for parameter in module.parameters():
        parameter.data = 1.5 * parameter.data


def assign(module: nn.Module) -> None:
    state = {name: 1.5 * value for name, value in module.state_dict().items()}
    module.load_state_dict(state, assign=True)


def transpose(module: Any) -> None:
    module[3].weight.data = module[3].weight.data.T


def tie(module: Any) -> None:
    module[5] = module[3]


def tie_weights(module: Any) -> None:
    module[5].weight = module[3].weight


def own_forward(module: Any) -> None:
    module[3].forward = lambda x: 2.0 * nn.functional.linear(x, module[3].weight, module[3].bias)


def change_output(module: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
    return output + 1.0


def scaled_by_a_hook(module: Any) -> None:
    module[3].register_forward_pre_hook(lambda module, args: (2.0 * args[0],))


def normalised_spectrum(module: Any) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(
            3
        )  # It draws vectors to begin with, and in training it would change them at each call.
        nn.utils.parametrizations.spectral_norm(module[3]).eval()


def old_normalised_weight(module: Any) -> None:
    nn.utils.parametrizations.weight_norm(module[3])
    with torch.no_grad():
        module[3].parametrizations.weight.original0 *= 2.0


def transpose_in_place(module: Any) -> None:
    with torch.no_grad():
        module[3].weight.t_()


def spread_out(module: Any) -> None:
    rows, columns = module[3].weight.shape
    module[3].weight.data = torch.arange(2.0 * rows * columns).sin().view(rows, 2 * columns)[:, ::2]


def one_vector(module: nn.Module) -> None:
    parameters = [*module.parameters()]
    nn.utils.vector_to_parameters(1.5 * nn.utils.parameters_to_vector(parameters), parameters)


TORSO = {
    "ELU's alpha": lambda torso: setattr(torso[4], "alpha", 0.3),
    "LayerNorm's epsilon": lambda torso: setattr(torso[1], "eps", 0.5),
    "LayerNorm without weights": lambda torso: setattr(
        torso, "1", nn.LayerNorm(torso.output_size, elementwise_affine=False)
    ),
    "LayerNorm without a bias": lambda torso: torso[1].register_parameter("bias", None),
    "a layer without a bias": lambda torso: torso[3].register_parameter("bias", None),
    "another activation": lambda torso: setattr(torso, "4", nn.SiLU()),
    "an inserted activation": lambda torso: torso.append(nn.Softplus()),
    "an inserted layer": lambda torso: torso.append(seeded_linear(torso.output_size)),
    "a replaced layer": lambda torso: setattr(torso, "3", seeded_linear(torso.output_size)),
    "a layer removed": lambda torso: torso.__delitem__(4),
    "tied layers": tie,
    "tied weights": tie_weights,
    "a subclass of a layer": lambda torso: become(torso[3], TwiceLinear),
    "a forward of an instance": own_forward,
    "a forward of the torso's own": lambda torso: setattr(torso, "forward", lambda x: 0.5 * torso[0](x)),
    "a hook": lambda torso: torso[3].register_forward_hook(change_output),
    "a hook before": scaled_by_a_hook,
    "spectral_norm": normalised_spectrum,
    "weight_norm": old_normalised_weight,
    "weights as other data": replace_data,
    "weights transposed in place": transpose,
    "weights transposed, the same parameter": transpose_in_place,
    "weights that lie apart": spread_out,
    "weights in one memory": lambda torso: setattr(torso[5].weight, "data", torso[3].weight.data),
    "weights as parts of one vector": one_vector,
    "pruned weights": lambda torso: nn.utils.prune.l1_unstructured(torso[3], "weight", amount=0.5),
    "weights that are assigned": assign,
    "weights in shared memory": lambda torso: torso.share_memory(),
    "a replaced parameter": lambda torso: setattr(
        torso[3], "weight", nn.Parameter(torch.full_like(torso[3].weight, 0.1))
    ),
}


def seeded_linear(size: int, size_out: int | None = None) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return nn.Linear(size, size_out or size)


# Edits of a class: of a name in a module or class, by what takes the place of a function.


def doubled(function):
    return lambda *args, **kwargs: twice(function(*args, **kwargs))


def tanh_of_mean(forward):
    def edited(self, features):
        policy = forward(self, features)
        return policy._replace(mean=policy.mean.tanh())

    return edited


def other_loss(function):
    def edited(**arguments):
        loss = function(**arguments)
        return loss._replace(total=loss.total + arguments["log_prob"].square().mean())

    return edited


def edit_function(monkeypatch, owner, name, edit):
    monkeypatch.setattr(owner, name, edit(getattr(owner, name)))


# PPO.

SIZES = {"layer_sizes": (16, 16, 16), "value_layer_sizes": (16, 16, 16), "torso": "layer_norm"}


def with_penalty(function):
    def edited(**arguments):
        loss = function(**(arguments | {"clip_ratio": 1e6}))
        log_ratio = arguments["log_prob"] - arguments["behaviour_log_prob"]
        return loss._replace(total=loss.total + 5.0 * (log_ratio.expm1() - log_ratio).mean())

    return edited


def with_wider_deviations(function):
    def edited(self, features):
        mean, log_std = function(self, features)
        return distributions.DiagonalGaussian(mean, log_std.clamp(min=-1.0))

    return edited


PPO_FUNCTIONS = {
    "the Gaussian's mean": (actor_critic.GaussianHead, "forward", tanh_of_mean),
    "the torso": (networks.LayerNormMLP, "forward", doubled),
    "the loss": (losses, "ppo_loss", other_loss),
    "the entropy": (distributions.DiagonalGaussian, "entropy", doubled),
    "the density": (distributions.DiagonalGaussian, "log_prob", doubled),
    # Without effect on a first minibatch.
    "another clip ratio": (
        losses,
        "ppo_loss",
        lambda function: lambda **arguments: function(**(arguments | {"clip_ratio": 1e-3})),
    ),
    "a penalty in place of clipping": (losses, "ppo_loss", with_penalty),
    "the value's clipping": (
        losses,
        "ppo_loss",
        lambda function: (
            lambda **arguments: function(**(arguments | {"clip_value": not arguments["clip_value"]}))
        ),
    ),
    "the deviation's clipping": (actor_critic.GaussianHead, "forward", with_wider_deviations),
}


def own_method(network: Any) -> None:
    plain = type(network).from_normalized
    network.from_normalized = lambda x, past=(): plain(network, 2.0 * x, past)


def with_deviations(*shape: int) -> Any:
    """An edit after which the log of the standard deviation is a parameter of this shape."""
    return lambda network: setattr(network.policy_head, "log_std", nn.Parameter(torch.full(shape, -0.5)))


def with_one_deviation(network: Any) -> None:
    network.policy_head.log_std, network.policy_head.log_std_head = None, seeded_linear(16, 1)


PPO_NETWORKS = {
    **{f"torso: {name}": lambda n, edit=edit: edit(n.policy_torso) for name, edit in TORSO.items()},
    "a head of a subclass": lambda network: become(network.value_head, TwiceLinear),
    "a method of an instance": own_method,
    "deviations without states": with_deviations(2),
    "one deviation for all actions": with_deviations(1),
    "deviations with an axis more": with_deviations(1, 2),
    "one deviation in each state": with_one_deviation,
    "one bias for all units": lambda network: setattr(
        network.policy_torso[3], "bias", nn.Parameter(torch.ones(1))
    ),
    "one torso for both": lambda network: setattr(network, "value_torso", network.policy_torso),
    "a frozen layer": lambda network: network.policy_torso[0].requires_grad_(False),
    "a hook of a parameter": lambda network: network.value_head.weight.register_hook(lambda g: 2.0 * g),
    "a hook on the way back": lambda network: network.value_head.register_full_backward_hook(
        lambda module, grad_input, grad_output: tuple(2.0 * g for g in grad_input)
    ),
}


PPO_SCENE = ppo.make()


def make_ppo(is_first=False):
    """As `ppo.make`; the samples of a first minibatch are played by the network itself."""
    settings, _, samples = PPO_SCENE
    network = networks.make_actor_critic(
        normalizer=networks.RunningNorm(5),
        encoder=networks.IdentityEncoder(5),
        encoder_loss="both",
        num_actions=None,
        action_size=2,
        **SIZES,
        shared_torso=False,
        state_dependent_std=False,
        initial_stddev=1.0,
        policy_gain=0.5,
        generator=torch.Generator().manual_seed(0),
    )
    if is_first:
        with torch.no_grad():
            policy, value = network.from_normalized(samples.observation)
        samples = samples._replace(raw_log_prob=policy.log_prob(samples.raw_action), value=value)
    return settings, network, samples


def make_adam(network, **settings):
    # With Adam's own epsilon, gradients that are mostly rounding would make steps of full size.
    settings = {"lr": 1e-3, "eps": 1e-2, "fused": True} | settings
    return torch.optim.Adam([*network.parameters()], **settings)


def train_ppo(by_arrays, edit_before, edit_later=None, make_optimizer=make_adam, is_first=False):
    """Two epochs, of one minibatch to compare and one more; returns what was logged and the weights.

    Without `edit_later`, the first epoch alone.
    """
    settings, network, samples = make_ppo(is_first)
    edit_before(network)
    optimizer = make_optimizer(network)
    seen = agreement.Agreement("PPO's updates")
    rows = []
    for seed in (0, 1) if edit_later else (0,):
        if seed == 1:
            edit_later(network)
            known = {id(p) for group in optimizer.param_groups for p in group["params"]}
            new = [parameter for parameter in network.parameters() if id(parameter) not in known]
            if new:
                optimizer = make_optimizer(network)
        plain = ppo.make_plain(network, optimizer, settings)
        step = contextlib.nullcontext(plain)
        if by_arrays:
            step = array_ppo.make_step(plain, network, optimizer, agreement=seen, **settings)
        rows.append(ppo.run_epoch(step, samples, seed, num_minibatches=2))
    return torch.cat(rows), [parameter.detach().clone() for parameter in network.parameters()]


def nothing(network: nn.Module) -> None:
    pass


def assert_trains_as_by_torch(**run: Any) -> None:
    (rows, weights), (plain_rows, plain_weights) = train_ppo(True, **run), train_ppo(False, **run)
    torch.testing.assert_close(rows, plain_rows, rtol=1e-3, atol=1e-4)
    for found, expected in zip(weights, plain_weights, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("is_later", [False, True], ids=["before", "later"])
@pytest.mark.parametrize("name", PPO_NETWORKS)
def test_an_edited_network_of_ppo_is_trained_as_by_torch(name, is_later):
    edit = PPO_NETWORKS[name]
    assert_trains_as_by_torch(
        edit_before=nothing if is_later else edit, edit_later=edit if is_later else None
    )


@pytest.mark.parametrize("name", PPO_FUNCTIONS)
def test_an_edited_function_of_ppo_is_what_trains(name, monkeypatch, said):
    owner, function, edit = PPO_FUNCTIONS[name]
    edit_function(monkeypatch, owner, function, edit)
    assert_trains_as_by_torch(edit_before=nothing, edit_later=nothing, is_first=True)
    assert said() == [f"PPO's updates: autograd: {function} was replaced"]


@pytest.mark.parametrize("name", PPO_FUNCTIONS)
def test_a_function_of_ppo_that_is_edited_between_minibatches_is_what_trains(name, monkeypatch, said):
    owner, function, edit = PPO_FUNCTIONS[name]
    trained = []
    for by_arrays in (True, False):
        settings, network, samples = make_ppo()
        optimizer = make_adam(network)
        plain = way = ppo.make_plain(network, optimizer, settings)
        with contextlib.ExitStack() as block, monkeypatch.context() as patch:
            if by_arrays:
                seen = agreement.Agreement("PPO's updates")
                way = block.enter_context(
                    array_ppo.make_step(plain, network, optimizer, agreement=seen, **settings)
                )
            rows = [way(samples), way(samples)]
            edit_function(patch, owner, function, edit)
            rows += [way(samples), way(samples)]
        trained.append([*rows, *(parameter.detach() for parameter in network.parameters())])
    for found, expected in zip(*trained, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    ways = ["arrays, with hand-written gradients", f"autograd: {function} was replaced"]
    assert said() == [f"PPO's updates: {way}" for way in ways]


@pytest.mark.usefixtures("said")
def test_what_no_list_names_is_seen_by_comparing_and_a_warning_names_the_part(monkeypatch, caplog):
    edit_function(monkeypatch, nn.utils, "clip_grad_norm_", lambda clip: lambda p, norm: clip(p, 0.1 * norm))
    assert_trains_as_by_torch(edit_before=nothing, edit_later=nothing)
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith(
        "PPO's updates: plain torch from now on, because the faster way gave other results"
    )


@pytest.mark.usefixtures("said")
def test_without_an_edit_arrays_train_from_a_first_minibatch(caplog):
    assert_trains_as_by_torch(edit_before=nothing, edit_later=nothing, is_first=True)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def decoupled(network):
    optimizer = make_adam(network, weight_decay=0.3)
    optimizer.param_groups[0]["decoupled_weight_decay"] = True
    return optimizer


def on_schedule(network):
    optimizer = make_adam(network)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5)
    return optimizer


def with_a_step_of_its_own(network):
    optimizer = make_adam(network)
    optimizer.step = lambda: [parameter.data.mul_(0.9) for parameter in network.parameters()]
    return optimizer


def with_a_scaler(network):
    """As a GradScaler leaves an optimiser while it makes a step."""
    optimizer = make_adam(network)
    optimizer.found_inf, optimizer.grad_scale = torch.zeros(()), torch.full((), 2.0)
    return optimizer


OPTIMIZERS = {
    "weight decay": lambda network: make_adam(network, weight_decay=0.3),
    "maximize": lambda network: make_adam(network, maximize=True),
    "amsgrad": lambda network: make_adam(network, amsgrad=True),
    "other betas": lambda network: make_adam(network, betas=(0.5, 0.9)),
    "decoupled decay": decoupled,
    "a schedule": on_schedule,
    "a step of its own": with_a_step_of_its_own,
    "a scaler": with_a_scaler,
    "a rate that is a tensor": lambda network: make_adam(network, lr=torch.tensor(1e-3)),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_setting_of_adam_is_the_optimisers_own(name, said):
    assert_trains_as_by_torch(edit_before=nothing, edit_later=nothing, make_optimizer=OPTIMIZERS[name])
    # None is first noticed by comparing.
    way = "arrays, with hand-written gradients"
    if name not in ("weight decay", "maximize", "other betas", "decoupled decay"):
        way = "autograd: Adam has several groups, or unsupported hooks, settings or state"
    assert said() == [f"PPO's updates: {way}"]


def transpose_moments(state):
    """Torch's kernel pairs them with the weights by memory."""
    for name in ("exp_avg", "exp_avg_sq"):
        state[name] = state[name].T.contiguous().T


OPTIMIZERS_LATER = {
    "another rate": lambda adam, network: adam.param_groups[0].update(lr=3e-3),
    "a rate that is a tensor": lambda adam, network: adam.param_groups[0].update(lr=torch.tensor(3e-3)),
    "other betas": lambda adam, network: adam.param_groups[0].update(betas=(0.1, 0.5)),
    "weight decay": lambda adam, network: adam.param_groups[0].update(weight_decay=0.3),
    "decoupled decay": lambda adam, network: adam.param_groups[0].update(
        weight_decay=30.0, decoupled_weight_decay=True
    ),
    "maximize": lambda adam, network: adam.param_groups[0].update(maximize=True),
    "no kernel": lambda adam, network: adam.param_groups[0].update(fused=False),
    "a state that is reset": lambda adam, network: adam.state.pop(network.value_head.weight),
    "all states reset": lambda adam, network: adam.state.clear(),
    "a state of another age": lambda adam, network: adam.state[network.value_head.weight].update(
        step=torch.tensor(700.0)
    ),
    "moments that lie in another order": lambda adam, network: transpose_moments(
        adam.state[network.value_torso[3].weight]
    ),
    "a group more": lambda adam, network: adam.add_param_group({"params": [nn.Parameter(torch.ones(2))]}),
}


@pytest.mark.parametrize("name", OPTIMIZERS_LATER)
def test_an_edit_of_adam_between_two_updates_is_obeyed(name):
    made = []

    def make_optimizer(network):
        made.append(make_adam(network))
        return made[-1]

    assert_trains_as_by_torch(
        edit_before=nothing,
        edit_later=lambda network: OPTIMIZERS_LATER[name](made[-1], network),
        make_optimizer=make_optimizer,
    )


def test_a_layer_that_was_frozen_for_a_while_goes_on_with_an_adam_of_its_own_age(said):
    assert_trains_as_by_torch(
        edit_before=lambda network: network.value_head.requires_grad_(False),
        edit_later=lambda network: network.value_head.requires_grad_(True),
    )
    assert said() == [
        "PPO's updates: autograd: a parameter is frozen",
        "PPO's updates: autograd: Adam has several groups, or unsupported hooks, settings or state",
    ]
