"""The parts of agents that learn from replay: tables, adders, datasets, acting, a learner of losses."""

from typing import TYPE_CHECKING

from minerva_acme.names import lazy

if TYPE_CHECKING:
    from minerva_acme.agents.acting import ModulePolicy
    from minerva_acme.agents.choosing import (
        Choose,
        argmax,
        epsilon_greedy,
        epsilon_greedy_each,
        gaussian_noise,
        half_range,
        mode,
        random_at_first,
        sample,
    )
    from minerva_acme.agents.off_policy.builder import (
        TABLE,
        Objective,
        OffPolicyBuilder,
        SequenceBuilder,
        TransitionBuilder,
    )
    from minerva_acme.agents.off_policy.config import (
        ActorCriticConfig,
        CriticConfig,
        MemoryConfig,
        OffPolicyConfig,
        PrioritizedConfig,
        RecurrentTransitionConfig,
        SequenceConfig,
        TransitionConfig,
    )
    from minerva_acme.agents.off_policy.networks import (
        TORSOS,
        MakeEncoder,
        MakeMember,
        MakePolicy,
        make_clipped_policy,
        make_critic,
        make_deterministic_policy,
        make_dueling_member,
        make_encoder,
        make_gaussian_policy,
        make_head,
        make_member,
        make_raw_policy,
        regress,
        value_and_gradient,
    )
    from minerva_acme.agents.off_policy.sequences import as_transitions, over_sequences
    from minerva_acme.agents.schedules import Schedule, constant, linear

__all__ = [
    "ActorCriticConfig",
    "Choose",
    "CriticConfig",
    "MakeEncoder",
    "MakeMember",
    "MakePolicy",
    "MemoryConfig",
    "ModulePolicy",
    "Objective",
    "OffPolicyBuilder",
    "OffPolicyConfig",
    "PrioritizedConfig",
    "RecurrentTransitionConfig",
    "Schedule",
    "SequenceBuilder",
    "SequenceConfig",
    "TABLE",
    "TORSOS",
    "TransitionBuilder",
    "TransitionConfig",
    "argmax",
    "as_transitions",
    "constant",
    "epsilon_greedy",
    "epsilon_greedy_each",
    "gaussian_noise",
    "half_range",
    "linear",
    "make_clipped_policy",
    "make_critic",
    "make_deterministic_policy",
    "make_dueling_member",
    "make_encoder",
    "make_gaussian_policy",
    "make_head",
    "make_member",
    "make_raw_policy",
    "mode",
    "over_sequences",
    "random_at_first",
    "regress",
    "sample",
    "value_and_gradient",
]

__getattr__, __dir__ = lazy.attach(__name__, __file__)
