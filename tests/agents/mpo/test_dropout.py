"""A policy with dropout learns with it; its target, and the policy that the KLs bound, are without."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from minerva_acme import networks, specs
from minerva_acme.agents import mpo
from minerva_acme.agents.mpo import modes

from .scene import SMALL, make_learner, make_trajectory, repeat

# The online networks stay equal to their targets, up to rounding.
STILL = dataclasses.replace(SMALL, policy_learning_rate=1e-12, critic_learning_rate=1e-12, m_steps=2)


class OwnDropout(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.5, training=self.training)


class Encoder(nn.Sequential):
    output_size = 8


def make(spec, dropout, config=STILL, *, in_encoder=False):
    """A learner with dropout behind the first layer, of the policy or of the encoder."""
    generator = torch.Generator().manual_seed(0)
    body = Encoder(nn.Linear(3, 8), nn.ReLU(), dropout)
    head = networks.GaussianPolicy(8, 2, (8,), generator=generator)
    if in_encoder:
        of_features = spec._replace(observations=specs.Array((8,), np.float32))
        made = mpo.make_networks(of_features, config, generator)._replace(policy=head, encoder=body)
    else:
        made = mpo.make_networks(spec, config, generator)._replace(policy=nn.Sequential(body, head))
    learner, rows = make_learner(spec, repeat(make_trajectory()), config, networks=made)
    return learner, rows, made


@pytest.mark.parametrize("in_encoder", [False, True])
@pytest.mark.parametrize("encoder_loss", ["critic", "both"])
@pytest.mark.parametrize("dropout", [nn.Dropout(0.5), OwnDropout()], ids=["torch's", "own"])
def test_equal_weights_have_no_kl(spec, dropout, encoder_loss, in_encoder):
    config = dataclasses.replace(STILL, encoder_loss=encoder_loss, target_policy_update_period=2)
    learner, rows, made = make(spec, dropout, config, in_encoder=in_encoder)
    for _ in range(3):
        learner.step()
    learner.restore(learner.save())
    learner.step()
    assert max(row[f"kl/{name}_rel"] for row in rows for name in ("mean", "stddev")) < 1e-6
    assert made.policy.training
    assert not any(part.training for module in learner.networks.target for part in module.modules())


def test_the_step_of_the_critic_is_in_no_kl(spec):
    config = dataclasses.replace(
        SMALL, policy_learning_rate=1e-12, target_policy_update_period=1, target_critic_update_period=1
    )
    learner, rows, _ = make(spec, nn.Dropout(0.0), config, in_encoder=True)
    for _ in range(3):
        learner.step()
    assert max(row[f"kl/{name}_rel"] for row in rows for name in ("mean", "stddev")) < 1e-6


class Derived(nn.Dropout):
    def forward(self, x):
        return super().forward(x)


class Helped(nn.Module):
    def forward(self, x):
        return x + self._noise(x)

    def _noise(self, x):
        return torch.randn_like(x) if self.training else 0.0


class Inside(nn.Module):
    def forward(self, x):
        return (lambda: nn.functional.dropout(x, 0.5, self.training))()


def decorated(function):
    return lambda *args: function(*args)


class Decorated(nn.Module):
    @decorated
    def forward(self, x):
        return nn.functional.dropout(x, 0.5, self.training)


def drop(module, x):
    return nn.functional.dropout(x, 0.5, module.training) if x.ndim else drop(module, x[None])


class Calling(nn.Module):
    def forward(self, x):
        return drop(self, x)


class Asking(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.5, getattr(self, "training"))  # noqa: B009


class Same(nn.Module):
    same_in_training = True

    def forward(self, x):
        return x


class Wrong(nn.Dropout):
    same_in_training = True  # which is not believed of a layer that is known


@pytest.mark.parametrize(
    "kind", [nn.Dropout, nn.RReLU, Wrong, OwnDropout, Derived, Helped, Inside, Decorated, Calling, Asking]
)
def test_parts_for_training_are_found(kind):
    part = kind()
    known = nn.Sequential(nn.Linear(2, 2), part, Same()), nn.LSTM(2, 2), nn.LayerNorm(2)
    parts = modes.parts_for_training(*known)
    assert parts == [part]
    with modes.as_in_acting(parts):
        assert not part.training
    assert part.training


def test_the_loss_of_the_policy_is_with_dropout(spec):
    lost = []
    for rate in (0.0, 0.5):
        learner, rows, _ = make(spec, nn.Dropout(rate))
        learner.step()
        lost.append(rows[0]["loss/policy"])
    assert lost[0] != lost[1]


def test_without_such_parts_each_loss_evaluates_the_policy_once(spec):
    made = mpo.make_networks(spec, SMALL, torch.Generator().manual_seed(0))
    calls = []
    made.policy.register_forward_hook(lambda *_: calls.append(1))
    learner, _ = make_learner(spec, repeat(make_trajectory()), networks=made)
    learner.step()
    assert len(calls) == 3  # for the duals and the policy, and once as the target, a copy with its hook
