"""Target networks follow the online ones."""

import copy

import pytest
import torch
from torch import nn

from minerva_acme import learners


def pair():
    online = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    target = copy.deepcopy(online).requires_grad_(False)
    with torch.no_grad():
        for parameter in online.parameters():
            parameter.fill_(8.0)
        for parameter in target.parameters():
            parameter.fill_(4.0)
    online[1].running_mean.fill_(3.0)
    online[1].num_batches_tracked.fill_(7)
    return target, online


def values(module):
    return {value for parameter in module.parameters() for value in parameter.flatten().tolist()}


def test_a_rate_goes_that_far_each_time():
    target, online = pair()
    learners.update_target(target, online, 1, rate=0.25)
    assert values(target) == {5.0}  # 3/4 of 4 and 1/4 of 8
    learners.update_target(target, online, 2, rate=0.25)
    assert values(target) == {5.75}
    assert values(online) == {8.0}


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_buffers_are_copied(rate):
    target, online = pair()
    learners.update_target(target, online, 1, rate=rate)
    assert target[1].running_mean.tolist() == [3.0, 3.0] and target[1].num_batches_tracked == 7


def test_a_copy_is_made_every_period_and_in_between_nothing_is_moved():
    target, online = pair()
    copied = []
    for num_steps in range(1, 7):
        with torch.no_grad():
            online[0].bias.fill_(num_steps)
        learners.update_target(target, online, num_steps, period=3)
        copied.append(target[0].bias[0].item())
    assert copied == [4.0, 4.0, 3.0, 3.0, 3.0, 6.0]


def test_a_copy_shares_no_memory_with_the_online_network():
    target, online = pair()
    learners.update_target(target, online, 0)
    with torch.no_grad():
        online[0].weight.zero_()
    assert target[0].weight.tolist() == [[8.0, 8.0], [8.0, 8.0]]


def test_what_two_layers_share_goes_the_way_once():
    target, online = (nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)) for _ in range(2))
    for module, value in ((target, 4.0), (online, 8.0)):
        module[1].weight = module[0].weight
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.fill_(value)
    learners.update_target(target, online, 1, rate=0.25)
    assert values(target) == {5.0}
