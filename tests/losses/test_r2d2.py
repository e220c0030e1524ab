"""R2D2's loss against numbers made once with rlax 0.1.9 (`transformed_n_step_q_learning`), in float64."""

from typing import NamedTuple

import pytest
import torch
from torch import nn

from minerva_acme import learners, losses, networks, types
from minerva_acme.agents import r2d2

# Values of 7 observations and 3 actions, by the trained network and by its target, and 6 steps between them.
SEQUENCES = [
    {
        "q": [
            [3.249, -1.224, -1.056],
            [-2.146, 1.731, -4.603],
            [3.49, -1.522, 0.638],
            [-0.499, 2.924, -4.12],
            [-0.645, -0.768, 2.268],
            [-2.2, -0.345, -1.756],
            [0.084, 1.166, -2.201],
        ],
        "target_q": [
            [2.289, 1.803, 1.005],
            [1.802, -1.367, -0.246],
            [-1.872, -0.536, 1.061],
            [-1.383, -0.794, -1.374],
            [-1.69, -1.342, -0.025],
            [-2.235, 0.469, 3.32],
            [1.484, -0.384, -1.775],
        ],
        "action": [1, 1, 0, 0, 1, 1],
        "reward": [0.324, 3.046, 2.879, -0.382, 2.096, -6.676],
        "discount": [0.997] * 6,
    },
    {
        "q": [
            [-0.834, -0.113, -4.272],
            [3.281, -3.587, -1.683],
            [1.006, -2.491, -2.116],
            [-1.818, 1.103, 4.584],
            [0.083, -2.236, 1.078],
            [-1.192, -0.038, 2.35],
            [-1.496, 0.018, -1.756],
        ],
        "target_q": [
            [-0.313, 0.513, -1.978],
            [-0.678, -0.472, -1.275],
            [-2.375, -2.842, -0.307],
            [-0.538, 4.463, -4.87],
            [0.225, 0.741, 2.719],
            [1.004, -1.688, 0.0],
            [1.085, -0.627, 1.542],
        ],
        "action": [0, 0, 2, 2, 0, 2],
        "reward": [0.585, 4.548, 0.177, 1.815, -0.661, -2.066],
        "discount": [0.997, 0.997, 0.0, 0.997, 0.5, 0.997],
    },
]
# The errors of both sequences, by n and whether the trained network chooses the next action.
ERRORS = {
    (1, True): [
        [
            -0.07006431061440965,
            -3.002167779772522,
            -3.1950598546683926,
            0.3017510738812433,
            1.8320980218091854,
            -1.5928064991713906,
        ],
        [
            0.3430877701477161,
            -4.883297732565988,
            2.2010733084092418,
            -1.630809277539429,
            -0.37245888950789335,
            -3.5223116219068897,
        ],
    ],
    (3, True): [
        [
            2.471230391314072,
            -0.1786362191535591,
            -1.890859640897063,
            -1.1208395687173707,
            -0.7805821528466306,
            -1.5928064991713906,
        ],
        [
            2.348338059875825,
            -1.883689273411781,
            2.2010733084092418,
            -4.884649385059551,
            -0.9596607645637261,
            -3.5223116219068897,
        ],
    ],
    (5, False): [
        [
            5.364369200529874,
            -0.06303336621525957,
            -2.4747989496457787,
            0.5809593668843062,
            1.015120992838657,
            -0.25238839723642537,
        ],
        [
            2.348338059875825,
            -1.883689273411781,
            2.2010733084092418,
            -3.624930012089461,
            0.337497888854583,
            -1.2605360274972552,
        ],
    ],
    (9, True): [
        [
            1.4252431831705412,
            -1.6733948419917024,
            -4.477005857741426,
            -1.1208395687173707,
            -0.7805821528466306,
            -1.5928064991713906,
        ],
        [
            2.348338059875825,
            -1.883689273411781,
            2.2010733084092418,
            -4.884649385059551,
            -0.9596607645637261,
            -3.5223116219068897,
        ],
    ],
}
# Half the sums of squared errors, and .9 max + .1 mean of their sizes.
SUMS = {
    (1, True): [12.605498638173996, 22.006986678901566],
    (3, True): [7.058431553634497, 25.547564095522795],
    (5, False): [18.168372142574864, 14.375337062683162],
    (9, True): [14.638886129288705, 25.547564095522795],
}
PRIORITIES = {
    (1, True): [3.0421196615335058, 4.610851935977342],
    (3, True): [2.3580232600509996, 4.659513153440713],
    (5, False): [4.990443451699392, 3.4567047537161506],
    (9, True): [4.213803140361268, 4.659513153440713],
}
CASES = pytest.mark.parametrize(("num_steps", "double"), ERRORS)


def column(name):
    return torch.tensor([sequence[name] for sequence in SEQUENCES], dtype=torch.float64)


class Says(nn.Module):
    """Values whatever the observations, as parameters."""

    def __init__(self, values):
        super().__init__()
        self.values = nn.Parameter(values)

    def forward(self, steps):
        return networks.ScalarPrediction(self.values[:, steps.past.burn_in :, :, None])


class Networks(NamedTuple):
    q_network: nn.Module
    target_network: nn.Module


def compute(num_steps, double, burn_in=0, pad=0, weights=1.0):
    """R2D2's loss, where the sequences have steps before and after them that mean nothing."""

    def padded(x, fill):
        front = torch.full((2, burn_in, *x.shape[2:]), fill, dtype=x.dtype)
        return torch.cat([front, x, torch.full((2, pad, *x.shape[2:]), fill, dtype=x.dtype)], dim=1)

    nets = Networks(*(Says(padded(column(name), 77.0)) for name in ("q", "target_q")))
    data = types.Trajectory(
        observation=torch.zeros(2, burn_in + 7 + pad, 1),
        action=padded(column("action").int(), 2),
        reward=padded(column("reward"), 55.0),
        discount=padded(column("discount") / 0.99, 33.0),
        mask=padded(torch.ones(2, 6, dtype=torch.float64), 0.0),
    )
    config = r2d2.R2D2Config(n_step=num_steps, double=double, burn_in=burn_in, discount=0.99)
    loss = r2d2.R2D2Losses(config).q_network(nets, learners.Batch(data, weights), None)
    loss.value.backward()
    assert nets.target_network.values.grad is None
    return loss, nets.q_network.values.grad


@CASES
@pytest.mark.parametrize(("burn_in", "pad"), [(0, 0), (3, 2)])
@pytest.mark.promise("V-trace's targets, and the losses of IMPALA and R2D2")
def test_loss_gradient_and_priorities_are_those_of_rlax(num_steps, double, burn_in, pad):
    weights = torch.tensor([0.25, 1.0], dtype=torch.float64)
    loss, gradient = compute(num_steps, double, burn_in, pad, weights)
    case = num_steps, double
    sums, priorities, errors = (
        torch.tensor(of[case], dtype=torch.float64) for of in (SUMS, PRIORITIES, ERRORS)
    )
    exact = {"rtol": 1e-6, "atol": 1e-9}
    torch.testing.assert_close(loss.value.detach(), (weights * sums).mean(), **exact)
    torch.testing.assert_close(loss.priorities, priorities, **exact)
    # The gradient of each taken action's value is its error, and that of all others 0.
    learned = gradient[:, burn_in : burn_in + 6]
    taken = torch.nn.functional.one_hot(column("action").long(), 3)
    torch.testing.assert_close(learned, -0.5 * weights[:, None, None] * errors[..., None] * taken, **exact)
    assert (gradient[:, :burn_in] == 0).all() and (gradient[:, burn_in + 6 :] == 0).all()


def test_values_are_compressed_as_by_rlax():
    x = torch.tensor([-1e4, -30.0, -1.0, -1e-3, 0.0, 0.5, 7.0, 1e5], dtype=torch.float64)
    compressed = [
        -109.00499987500625,
        -4.597764362830022,
        -0.41521356237309515,
        -0.0005008750624609638,
        0.0,
        0.22524487139158894,
        1.8354271247461902,
        415.2293471517152,
    ]
    expanded = [
        -7299281.555164479,
        -904.7255445489269,
        -2.988056701675955,
        -0.001997002006018045,
        0.0,
        1.2462627648760685,
        62.011658903385985,
        90488457.81531984,
    ]
    exact = {"rtol": 1e-6, "atol": 1e-12}
    torch.testing.assert_close(losses.signed_hyperbolic(x), torch.tensor(compressed).double(), **exact)
    torch.testing.assert_close(losses.signed_parabolic(x), torch.tensor(expanded).double(), **exact)


def test_in_single_precision_too_what_was_compressed_is_expanded_to_itself():
    x = torch.cat([torch.logspace(-3, 6, 200), -torch.logspace(-3, 6, 200)])
    torch.testing.assert_close(losses.signed_parabolic(losses.signed_hyperbolic(x)), x, rtol=2e-6, atol=1e-6)


def test_a_sequence_without_steps_has_no_loss_and_no_priority():
    error = torch.full((2, 3), torch.nan, requires_grad=True)
    mask = torch.zeros(2, 3)
    loss = losses.sequence_loss(error, mask, torch.ones(2))
    loss.backward()
    assert loss == 0 and (error.grad == 0).all()
    assert losses.sequence_priorities(error, mask, 0.9).tolist() == [0.0, 0.0]


def test_the_mean_of_a_priority_is_over_the_steps_that_happened():
    error, mask = torch.tensor([[1.0, -3.0, 8.0]]), torch.tensor([[1.0, 1.0, 0.0]])
    for share, expected in ((1.0, 3.0), (0.0, 2.0), (0.25, 2.25)):
        torch.testing.assert_close(losses.sequence_priorities(error, mask, share), torch.tensor([expected]))


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="weights"):
        losses.sequence_loss(torch.ones(2, 3), torch.ones(2, 3), torch.ones(3))
    with pytest.raises(ValueError, match="mask_t"):
        losses.sequence_priorities(torch.ones(2, 3), torch.ones(2, 2), 0.9)
