"""MPO with a policy of another distribution: it asks for no more than the protocol."""

import ast
import pathlib

import numpy as np
import torch
from torch import nn

from minerva_acme import distributions
from minerva_acme.agents import mpo

from .scene import SMALL, make_learner, make_trajectory, repeat


class Squashed(nn.Module):
    """MPO's own policy, squashed into the bounds: what is drawn is what is executed."""

    def __init__(self, policy):
        super().__init__()
        self.policy = policy
        self.squash = distributions.TanhSquash(-torch.ones(2), torch.ones(2))

    def forward(self, features):
        return distributions.SquashedGaussian(self.policy(features), self.squash)


def test_a_squashed_policy_learns_and_acts_within_its_bounds(spec):
    networks = mpo.make_networks(spec, SMALL, torch.Generator().manual_seed(0))
    networks = networks._replace(policy=Squashed(networks.policy))
    trajectory = make_trajectory()
    action = trajectory.action.clamp(-0.9, 0.9)
    trajectory = trajectory._replace(action=action, extras=trajectory.extras._replace(raw_action=action))
    before = {name: value.clone() for name, value in networks.policy.state_dict().items()}
    learner, rows = make_learner(spec, repeat(trajectory), networks=networks)
    for _ in range(5):
        learner.step()
    assert rows[-1]["skipped_batches"] == 0
    assert all(np.isfinite(float(value)) for value in rows[-1].values())
    assert {"kl/mean_rel", "kl/stddev_rel", "policy/stddev_min"} <= rows[-1].keys()
    after = networks.policy.state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)

    policy = mpo.MPOBuilder(SMALL).make_policy(networks, spec, torch.Generator().manual_seed(0))
    observation = np.ones(3, np.float32)
    distribution = networks.policy(torch.from_numpy(observation))
    for _ in range(20):
        chosen, extras = policy(observation)
        assert (np.abs(chosen) < 1.0).all()
        np.testing.assert_array_equal(chosen, extras.raw_action)
        log_prob = distribution.log_prob(torch.from_numpy(chosen)).item()
        np.testing.assert_allclose(extras.log_prob, log_prob, rtol=1e-4, atol=1e-4)


def test_no_agent_asks_which_kind_of_distribution_it_has():
    root = pathlib.Path(__file__).parents[3] / "agents"
    calls = [
        ast.unparse(node)
        for file in root.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance"
    ]
    assert calls
    kinds = ("Categorical", "Gaussian", "distributions.")
    of_critics = "CategoricalCriticHead"
    assert not [call for call in calls if any(kind in call.replace(of_critics, "") for kind in kinds)]
