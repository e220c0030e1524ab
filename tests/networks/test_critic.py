import numpy as np
import pytest
import torch

from minerva_acme import networks

LOW, HIGH = torch.tensor([-1.0, -2.0]), torch.tensor([1.0, 0.5])


def make_critic(seed: int = 0, num_actions: int | None = None) -> networks.Critic:
    generator = torch.Generator().manual_seed(seed)
    size = 7 if num_actions is None else 5
    torso = networks.LayerNormMLP(size, (32, 256), generator=generator)
    head = networks.ScalarHead(256, num_actions=num_actions, generator=generator)
    return networks.Critic(torso, head, bounds=(LOW, HIGH) if num_actions is None else None)


def with_bounds(low: torch.Tensor, high: torch.Tensor) -> networks.Critic:
    torso = networks.LayerNormMLP(7, (16,))
    return networks.Critic(torso, networks.ScalarHead(16), bounds=(low, high))


@pytest.mark.parametrize("leading", [(1,), (7,), (3, 4), ()])
def test_there_is_one_value_for_each_pair(leading: tuple[int, ...]) -> None:
    assert make_critic()(torch.randn(*leading, 5), torch.randn(*leading, 2)).mean().shape == leading


def test_expanded_observations_give_the_values_of_copied_ones() -> None:
    critic, observation, action = make_critic(), torch.randn(4, 5), torch.randn(6, 4, 2)
    expected = torch.stack([critic(observation, action[n]).mean() for n in range(6)])
    torch.testing.assert_close(critic(observation.expand(6, 4, 5), action).mean(), expected)
    torch.testing.assert_close(critic(observation, action).mean(), expected)


def test_raw_action_is_valued_as_the_clipped_one_that_is_executed() -> None:
    critic, observation = make_critic(), torch.randn(3, 5)
    raw = torch.tensor([[-9.0, 9.0], [0.3, -5.0], [1.5, 0.0]])
    clipped = torch.tensor([[-1.0, 0.5], [0.3, -2.0], [1.0, 0.0]])
    torch.testing.assert_close(critic(observation, raw), critic(observation, clipped))


def test_action_gets_a_gradient_only_within_its_bounds() -> None:
    action = torch.tensor([[0.3, 9.0]], requires_grad=True)
    make_critic()(torch.randn(1, 5), action).mean().sum().backward()
    assert action.grad is not None
    assert action.grad[0, 0] != 0.0
    assert action.grad[0, 1] == 0.0


def test_head_starts_truncated_normal() -> None:
    head = make_critic().head
    assert head.weight.std().item() == pytest.approx(0.0088, rel=0.1)  # of N(0, 0.01) cut at 2 sigma
    assert head.weight.abs().max().item() <= 0.02
    assert head.bias.item() == 0.0


def test_seed_reproduces_the_network() -> None:
    torch.testing.assert_close(make_critic(3).state_dict(), make_critic(3).state_dict())
    assert not torch.equal(make_critic(3).head.weight, make_critic(4).head.weight)


def test_bounds_are_copies_that_travel_with_the_module() -> None:
    bound = np.array([1.0, 2.0], dtype=np.float64)
    critic = with_bounds(torch.from_numpy(-bound), torch.from_numpy(bound))
    bound[:] = 0.0
    assert critic.state_dict()["high"].tolist() == [1.0, 2.0]
    assert critic.low is not None and critic.low.dtype == torch.float32
    assert critic.to("meta").high.device.type == "meta"


@pytest.mark.parametrize(("low", "high"), [([1.0], [-1.0]), ([-1.0, -1.0], [1.0]), ([[-1.0]], [[1.0]])])
def test_bounds_that_make_no_box_are_refused(low: list[float], high: list[float]) -> None:
    with pytest.raises(ValueError, match="`bounds` must be two vectors of one size, low <= high"):
        with_bounds(torch.tensor(low), torch.tensor(high))


def test_the_loss_is_the_heads() -> None:
    critic, observation, action = make_critic(), torch.randn(3, 4, 5), torch.randn(3, 4, 2)
    prediction, target, mask = critic(observation, action), torch.randn(3, 4), torch.ones(3, 4)
    expected = (prediction.mean() - target).square().mean()
    torch.testing.assert_close(critic.loss(prediction, target, mask), expected)


def test_a_critic_of_discrete_actions_values_all_of_them() -> None:
    critic = make_critic(num_actions=3)
    assert critic(torch.randn(4, 6, 5)).mean().shape == (4, 6, 3)
    assert critic.low is None and not [name for name in critic.state_dict() if name in ("low", "high")]
