"""Makes the parts of IMPALA."""

from minerva_acme.agents import on_policy
from minerva_acme.agents.impala import config as impala_config
from minerva_acme.agents.impala import learner


class IMPALABuilder(on_policy.OnPolicyBuilder[impala_config.IMPALAConfig]):
    """IMPALA over rollouts. Every part can be swapped by overriding its `make_` method."""

    config_class = impala_config.IMPALAConfig
    learner_class = learner.IMPALALearner
