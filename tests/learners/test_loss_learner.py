"""A learner made of loss functions minimises each, with its own optimiser, and nothing else."""

import copy
import itertools
import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import checkpoint

from minerva_acme import acceleration, counting, learners, replay, testing
from minerva_acme.learners.finite import NonFinite


class Networks(NamedTuple):
    policy: nn.Module
    critic: nn.Module
    target_critic: nn.Module


class Sample(NamedTuple):
    data: torch.Tensor
    info: replay.SampleInfo | None = None


def make_networks(seed=0):
    torch.manual_seed(seed)
    critic = nn.Linear(3, 1)
    return Networks(nn.Linear(3, 1), critic, copy.deepcopy(critic).requires_grad_(False))


def policy_loss(nets, batch, generator):
    # It depends on the critic too, which must not move by it.
    noise = torch.randn(batch.data.shape, generator=generator)
    return learners.Loss((nets.policy(batch.data + noise) * nets.critic(batch.data)).square().mean())


def critic_loss(nets, batch, generator):
    error = (nets.critic(batch.data) - 0.5 * nets.target_critic(batch.data) - 1.0).squeeze(-1)
    loss = (batch.weights * error.square()).mean()
    return learners.Loss(loss, {"q/mean": error.detach().mean()}, error.detach().abs())


def make_learner(losses=None, samples=None, networks=None, seed=0, **overrides):
    networks = networks or make_networks(seed)
    losses = losses or {"critic": critic_loss, "policy": policy_loss}
    torch.manual_seed(0)
    batches = samples or (Sample(batch) for batch in itertools.cycle(torch.randn(4, 8, 3)))
    arguments = {
        "networks": networks,
        "losses": losses,
        "groups": {
            name: learners.Group(torch.optim.SGD(getattr(networks, name).parameters(), lr=0.1), math.inf)
            for name in losses
            if hasattr(networks, name)
        },
        "periods": {},
        "update_targets": lambda nets, num_steps: learners.update_target(
            nets.target_critic, nets.critic, num_steps, rate=0.5
        ),
        "dataset": batches,
        "priorities": None,
        "max_skipped_batches": 1,
        "acceleration": acceleration.Acceleration("auto"),
        "counter": counting.Counter(),
        "logger": testing.FakeLogger(),
        "generator": torch.Generator().manual_seed(seed),
    }
    return learners.LossLearner(**{**arguments, **overrides})


class TestContract(testing.LearnerConformance):
    names = ("policy", "critic", "target_critic")

    def make_learner(self):
        return make_learner(samples=testing.RepeatedBatch(torch.ones(8, 3)))


def state(module):
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


@pytest.mark.parametrize("name", ["policy", "critic"])
def test_a_loss_trains_the_module_of_its_name_alone(name):
    networks = make_networks()
    before = [state(module) for module in networks]
    losses = {"policy": policy_loss, "critic": critic_loss}
    make_learner({name: losses[name]}, networks=networks, update_targets=lambda nets, steps: None).step()
    moved = [
        any(not torch.equal(tensor, old[key]) for key, tensor in module.state_dict().items())
        for module, old in zip(networks, before, strict=True)
    ]
    assert moved == [field == name for field in Networks._fields]


class Recomputed(nn.Module):
    """Layers whose activations are computed again in the backward pass, to save memory."""

    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, inputs):
        return checkpoint.checkpoint(self.layers, inputs, use_reentrant=False)


def test_a_critic_that_is_recomputed_for_its_gradient_trains_the_policy_alike():
    def policy_loss(nets, batch, generator):
        return learners.Loss(nets.critic(nets.policy(batch.data)).square().mean())

    trained = []
    for wrap in (nn.Sequential, Recomputed):
        torch.manual_seed(0)
        layers = [nn.Linear(3, 16), nn.LayerNorm(16), nn.Tanh(), nn.Linear(16, 16), nn.ELU()]
        critic = wrap(nn.Sequential(*layers, nn.Linear(16, 1)))
        networks = Networks(nn.Linear(3, 3), critic, nn.Linear(3, 1))
        learner = make_learner({"policy": policy_loss}, networks=networks, update_targets=lambda *_: None)
        learner.step()
        trained.append([*networks.policy.parameters()])
    torch.testing.assert_close(*trained, rtol=0.0, atol=0.0)


def test_what_a_loss_does_not_train_requires_no_gradient_while_it_is_computed():
    networks = make_networks()
    seen = {}

    def require():
        return [all(parameter.requires_grad for parameter in module.parameters()) for module in networks]

    def seeing(name, loss):
        def compute(nets, batch, generator):
            seen[name] = require()
            return loss(nets, batch, generator)

        return compute

    losses = {"critic": seeing("critic", critic_loss), "policy": seeing("policy", policy_loss)}
    learner = make_learner(losses, networks=networks)
    learner.step()
    assert seen == {"policy": [True, False, False], "critic": [False, True, False]}
    assert require() == [True, True, False]

    def mistake(nets, batch, generator):
        raise ArithmeticError("a mistake")

    with pytest.raises(ArithmeticError, match="a mistake"):
        make_learner({"critic": mistake}, networks=networks).step()
    assert require() == [True, True, False]


def test_one_step_is_a_gradient_step_of_each_loss_in_order_and_then_the_targets_move():
    networks, plain = make_networks(), make_networks()
    torch.manual_seed(0)
    batch = torch.randn(4, 8, 3)[0]
    make_learner(networks=networks).step()
    with torch.enable_grad():
        for name, compute in (("critic", critic_loss), ("policy", policy_loss)):
            loss = compute(plain, learners.Batch(batch, 1.0), torch.Generator().manual_seed(0)).value
            parameters = [*getattr(plain, name).parameters()]
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    parameter -= 0.1 * gradient
    with torch.no_grad():
        for slow, fast in zip(plain.target_critic.parameters(), plain.critic.parameters(), strict=True):
            slow.copy_((slow + fast) / 2.0)
    for ours, theirs in zip(networks, plain, strict=True):
        torch.testing.assert_close(ours.state_dict(), theirs.state_dict())


def test_targets_are_told_how_many_steps_were_made():
    told = []
    learner = make_learner(update_targets=lambda nets, num_steps: told.append(num_steps))
    learner.run(num_steps=3)
    assert told == [1, 2, 3]


def test_each_loss_is_logged_by_its_name_beside_its_metrics():
    logger = testing.FakeLogger()
    make_learner(logger=logger).step()
    (row,) = logger.rows
    names = ["loss/critic", "grad_norm/critic", "q/mean", "loss/policy", "grad_norm/policy"]
    assert row.keys() == {"steps", "walltime", "skipped_batches", *names}


def test_a_loss_that_is_not_finite_makes_no_step_and_the_others_do():
    networks = make_networks()
    with torch.no_grad():
        networks.target_critic.weight.add_(1.0)  # that a target moves shows where it is not there already
    before = [state(module) for module in networks]

    def broken(nets, batch, generator):
        return learners.Loss(policy_loss(nets, batch, generator).value * math.nan)

    logger = testing.FakeLogger()
    make_learner({"critic": critic_loss, "policy": broken}, networks=networks, logger=logger).step()
    moved = [
        any(not torch.equal(tensor, old[key]) for key, tensor in module.state_dict().items())
        for module, old in zip(networks, before, strict=True)
    ]
    assert moved == [False, True, True]
    assert logger.rows[0].keys() - {"steps", "walltime"} == {"skipped_batches"}
    assert logger.rows[0]["skipped_batches"] == 1


@pytest.mark.parametrize(
    ("losses", "groups"),
    [({"actor": policy_loss}, {}), ({"policy": policy_loss}, {})],
    ids=["no module", "no group"],
)
def test_a_loss_without_a_module_or_an_optimiser_is_refused(losses, groups):
    (name,) = losses
    with pytest.raises(
        ValueError, match=f"must have the name of a module and of a group, got '{name}'\\. The modules are"
    ):
        make_learner(losses, groups=groups)


# Priorities.


class Client:
    """Remembers the priorities that it is given."""

    def __init__(self):
        self.updates = []

    def update_priorities(self, table, keys, priorities):
        self.updates.append((table, keys.tolist(), priorities.tolist()))


def make_info(probability=(0.1, 0.2, 0.4)):
    size = len(probability)
    return replay.SampleInfo(
        key=np.arange(5, 5 + size, dtype=np.uint64),
        probability=np.array(probability),
        table_size=np.full(size, 10),
        priority=np.ones(size),
        times_sampled=np.ones(size, np.int32),
    )


def make_priorities(client, importance_exponent=lambda step: 1.0):
    return learners.Priorities(client=client, table="table", importance_exponent=importance_exponent)


def test_losses_see_the_weights_and_their_priorities_are_written_back():
    client, seen = Client(), []

    def loss(nets, batch, generator):
        seen.append(batch.weights.tolist())
        return learners.Loss(nets.policy(batch.data).sum(), {}, torch.tensor([3.0, 0.5, 0.0]))

    samples = itertools.repeat(Sample(torch.ones(3, 3), make_info()))
    exponents = {0: 0.0, 1: 1.0}
    priorities = make_priorities(client, exponents.__getitem__)
    make_learner({"policy": loss}, samples, priorities=priorities).run(num_steps=2)
    # 10 P = 1, 2, 4, to the power of 0, then of -1.
    assert seen == [[1.0, 1.0, 1.0], [1.0, 0.5, 0.25]]
    assert client.updates == [("table", [5, 6, 7], [3.0, 0.5, 0.0])] * 2


def test_priorities_that_are_not_finite_skip_the_batch_and_are_not_written():
    client, networks, logger = Client(), make_networks(), testing.FakeLogger()
    before = state(networks.target_critic)

    def loss(nets, batch, generator):
        return learners.Loss(nets.policy(batch.data).sum(), {}, torch.tensor([1.0, math.nan, 1.0]))

    samples = itertools.repeat(Sample(torch.ones(3, 3), make_info()))
    make_learner(
        {"policy": loss}, samples, networks, priorities=make_priorities(client), logger=logger
    ).step()
    assert client.updates == [] and logger.rows[0]["skipped_batches"] == 1
    testing.assert_nests_equal(state(networks.target_critic), before, "The step ends there.")
    with pytest.raises(NonFinite, match="the priorities are not finite"):
        make_priorities(client).update(make_info(), torch.tensor([math.inf, 1.0, 1.0]))


def test_without_priorities_every_item_counts_alike():
    seen = []

    def loss(nets, batch, generator):
        seen.append(batch.weights)
        return learners.Loss(nets.policy(batch.data).sum(), {}, torch.ones(8))

    make_learner({"policy": loss}).step()
    assert seen == [1.0]


def test_a_step_in_which_no_loss_is_due_changes_nothing_but_the_count():
    networks, logger = make_networks(), testing.FakeLogger()
    before = [state(module) for module in networks]
    learner = make_learner({"policy": policy_loss}, networks=networks, periods={"policy": 2}, logger=logger)
    learner.step()
    for module, old in zip(networks, before, strict=True):
        if module is not networks.target_critic:
            torch.testing.assert_close(state(module), old)
    assert learner.num_steps == 1 and "loss/policy" not in logger.rows[0]


def test_a_loss_may_train_several_groups_each_by_its_optimiser():
    networks, logger = make_networks(), testing.FakeLogger()

    def both(nets, batch, generator):
        value = critic_loss(nets, batch, generator).value + policy_loss(nets, batch, generator).value
        return learners.Loss(value)

    before = [state(module) for module in networks]
    groups = {
        name: learners.Group(torch.optim.SGD(getattr(networks, name).parameters(), lr=rate), math.inf)
        for name, rate in (("critic", 0.1), ("policy", 0.2))
    }
    make_learner(
        {"both": both},
        networks=networks,
        groups=groups,
        trains={"both": ["critic", "policy"]},
        logger=logger,
    ).step()
    for module, old, name, rate in (
        (networks.policy, before[0], "policy", 0.2),
        (networks.critic, before[1], "critic", 0.1),
    ):
        moved = torch.cat([(old[key] - tensor).flatten() for key, tensor in module.state_dict().items()])
        assert float(moved.norm()) == pytest.approx(
            rate * float(logger.rows[0][f"grad_norm/{name}"]), rel=1e-4
        )
    assert "loss/both" in logger.rows[0]


def test_estimates_are_made_once_for_all_losses_and_checked_first():
    seen, values = [], iter([1.0, math.nan])

    def estimate(nets, batch, generator):
        value = torch.tensor(next(values))
        return learners.Estimated(value, {"estimates": value})

    def loss(nets, batch, generator):
        seen.append((batch.due, float(batch.estimates)))
        return policy_loss(nets, batch, generator)

    logger = testing.FakeLogger()
    learner = make_learner({"policy": loss}, estimate=estimate, logger=logger)
    learner.run(num_steps=2)
    assert seen == [({"policy"}, 1.0)]
    assert [row["skipped_batches"] for row in logger.rows] == [0, 1]


def test_the_mean_of_sequences_is_over_the_steps_that_happened():
    values = torch.tensor([[1.0, 2.0, math.nan], [math.inf, math.nan, 6.0]])
    mask = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert learners.Batch(None, 1.0, mask).mean(values) == 3.0
    assert learners.Batch(None, 1.0, torch.zeros(2, 3)).mean(values) == 0.0
    assert learners.Batch(None, 1.0).mean(values[0, :2]) == 1.5


def test_a_loss_with_a_period_is_minimised_on_every_such_batch_from_its_end_on():
    logger, seen = testing.FakeLogger(), []

    def policy(nets, batch, generator):
        seen.append(batch.data)
        return policy_loss(nets, batch, generator)

    learner = make_learner({"critic": critic_loss, "policy": policy}, periods={"policy": 3}, logger=logger)
    learner.run(num_steps=7)
    assert len(seen) == 2
    # The log keeps the last numbers of a loss until the next ones.
    assert ["loss/policy" in row for row in logger.rows] == [step > 2 for step in range(1, 8)]
    policy_losses = [float(row["loss/policy"]) for row in logger.rows[2:]]
    assert len({*policy_losses[:3]}) == len({*policy_losses[3:]}) == 1 and len({*policy_losses}) == 2
    assert len({float(row["loss/critic"]) for row in logger.rows}) == 7


def test_a_restored_learner_goes_on_with_its_periods():
    learner, restored = (make_learner(periods={"policy": 2}, logger=testing.FakeLogger()) for _ in range(2))
    learner.step()
    restored.restore(testing.through_a_file(learner.save()))
    restored.step()
    assert "loss/policy" in restored._logger.rows[0]


def test_a_batch_that_is_not_finite_is_skipped_where_no_gradient_shows_it():
    networks, logger = make_networks(), testing.FakeLogger()
    before = [state(module) for module in networks]

    def clipped(nets, batch, generator):
        return learners.Loss(nets.policy(batch.data.clamp(-1.0, 1.0)).square().mean())

    batch = torch.ones(8, 3)
    batch[2, 1] = math.inf
    samples = itertools.repeat(Sample(batch))
    make_learner({"policy": clipped}, samples, networks=networks, logger=logger).step()
    testing.assert_nests_equal([state(module) for module in networks], before, "Nothing may have moved.")
    assert logger.rows[0].keys() == {"steps", "walltime", "skipped_batches"}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda loss: loss.value, TypeError, "The loss 'critic' must return a `learners.Loss`.*, got Tensor"),
        (lambda loss: loss._replace(value=0.5), TypeError, "The loss 'critic' .* got one of a float"),
        (
            lambda loss: loss._replace(value=loss.value + torch.rand(8)),
            ValueError,
            r"The value of the loss 'critic' must be one number, got the shape \[8\]",
        ),
        (
            lambda loss: loss._replace(value=loss.value.detach()),
            ValueError,
            "The value of the loss 'critic' must depend on what it trains",
        ),
    ],
)
def test_what_no_gradient_can_be_taken_of_is_refused_with_the_losss_name(change, error, message):
    learner = make_learner({"critic": lambda *inputs: change(critic_loss(*inputs))})
    with pytest.raises(error, match=message):
        learner.step()


def test_a_loss_of_frozen_parameters_needs_no_gradient():
    networks = make_networks()
    networks.critic.requires_grad_(False)
    learner = make_learner({"critic": critic_loss}, networks=networks)
    before = copy.deepcopy(networks.critic.state_dict())
    learner.step()
    testing.assert_nests_equal(networks.critic.state_dict(), before, "What is frozen must stay.")
