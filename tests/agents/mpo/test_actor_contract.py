import torch

from minerva_acme import specs, testing
from minerva_acme.agents import mpo

CONFIG = mpo.MPOConfig(policy_layer_sizes=(8,), critic_layer_sizes=(8,))


class TestContract(testing.ActorConformance):
    def make_environment(self):
        return testing.FakeEnvironment()

    def make_actor(self):
        builder = mpo.MPOBuilder(CONFIG)
        spec = specs.make_environment_spec(self.make_environment())
        networks = builder.make_networks(spec, torch.Generator().manual_seed(0))
        return builder.make_actor(builder.make_policy(networks, spec, torch.Generator().manual_seed(1)))
