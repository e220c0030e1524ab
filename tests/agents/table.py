"""Every agent of the registry, tiny, with batches for it: what the properties of all agents go over."""

import dataclasses
import itertools
from collections.abc import Iterable
from typing import Any

import torch
import tree

from minerva_acme import specs, testing, types
from minerva_acme.agents import acting, on_policy, registry

from . import transition_scene

REPLAY: dict[str, Any] = transition_scene.CONTINUOUS
SEQUENCES: dict[str, Any] = {"batch_size": 4, "samples_per_insert": 4.0, "sequence_length": 5}
ROLLOUTS: dict[str, Any] = {
    "policy_layer_sizes": (8,),
    "value_layer_sizes": (8,),
    "num_environments": 1,
    "rollout_steps": 16,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "mpo": {**REPLAY, **SEQUENCES, "num_samples": 6, "retrace_mc_actions": 3},
    "ppo": {**ROLLOUTS, "minibatch_size": 4, "num_epochs": 2, "target_kl": None},
    "vmpo": {**ROLLOUTS, "m_steps": 2},
    "impala": ROLLOUTS,
    **{name: agent.tiny for name, agent in transition_scene.AGENTS.items()},
    "bc": {**transition_scene.TINY, "policy_layer_sizes": (8,)},
    "r2d2": {
        **transition_scene.TINY,
        **SEQUENCES,
        "sequence_period": 2,
        "burn_in": 2,
        "memory_size": 4,
        "layer_sizes": (8,),
        "num_environments": 1,
        "prioritized": False,
    },
}
DISCRETE = ("dqn", "r2d2")
ON_ROLLOUTS = ("ppo", "vmpo", "impala")
OTHERS = [name for name in registry.AGENTS if name not in ON_ROLLOUTS]
VECTORS = [name for name in OTHERS if registry.AGENTS[name].builder.takes_actions == "continuous"]
RECORDED = [name for name in OTHERS if registry.AGENTS[name].presets["default"].needs_recorded_data]


def make_rollout(builder: Any, network: Any, spec: specs.EnvironmentSpec, seed: int = 0) -> types.Rollout:
    """The rollout that the policy of `builder` collects from random observations."""
    shape = (builder.config.rollout_length, builder.config.num_environments)
    generator = torch.Generator().manual_seed(seed)
    policy = builder.make_policy(network, spec, generator)
    observation = torch.randn(*shape, 3, generator=generator)
    output = policy.batch(observation.flatten(0, 1).numpy())
    reward = torch.randn(shape, generator=generator)
    last = torch.zeros(shape)
    last[-1] = 1.0
    action, extras = tree.map_structure(lambda rows: torch.tensor(rows).unflatten(0, shape), output)[:2]
    return types.Rollout(
        observation=observation,
        action=action,
        reward=reward,
        discount=torch.ones(shape),
        next_observation=torch.cat([observation[1:], torch.randn(1, shape[1], 3, generator=generator)]),
        first=torch.cat([torch.ones(1, shape[1]), last[:-1]]),
        last=last,
        return_so_far=reward.cumsum(dim=0),
        extras=extras,
    )


def make_sequences(builder: Any, spec: specs.EnvironmentSpec, seed: int = 0) -> types.Trajectory:
    """Random sequences, whole and with the states and extras that the agent records."""
    config, generator = builder.config, torch.Generator().manual_seed(seed)
    size = (config.batch_size, config.sequence_length + config.burn_in)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(size[0], *shape, generator=generator)

    if isinstance(spec.actions, specs.DiscreteArray):
        raw = torch.randint(spec.actions.num_values, size, generator=generator, dtype=torch.int32)
        action = raw
    else:
        raw = normal(size[1], *spec.actions.shape)
        action = raw.clamp(*map(torch.from_numpy, specs.bounds(spec.actions)))
    has_extras = bool(builder.extras_spec(spec)) and hasattr(builder.extras_spec(spec), "raw_action")
    return types.Trajectory(
        observation=normal(size[1] + 1, 3),
        action=action,
        reward=normal(size[1]),
        discount=torch.ones(size),
        mask=torch.ones(size),
        extras=acting.BehaviourExtras(normal(size[1]) - 2.0, raw) if has_extras else (),
        state=tuple(normal(*each.shape) for each in builder.state_spec(spec) or ()),
    )


@dataclasses.dataclass(frozen=True)
class Scene:
    """An agent by its name in the registry, with settings of its own if it needs any."""

    name: str
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def spec(self) -> specs.EnvironmentSpec:
        return transition_scene.make_spec(discrete=self.name in DISCRETE)

    def builder(self, *mixins: type, **settings: Any) -> Any:
        """A small builder, with classes of one's own before the agent's."""
        entry = registry.AGENTS[self.name]
        config = entry.config(**{**SETTINGS[self.name], **self.settings, **settings})
        return (type("Own", (*mixins, entry.builder), {}) if mixins else entry.builder)(config)

    def networks(self, builder: Any = None) -> Any:
        return (builder or self.builder()).make_networks(self.spec, torch.Generator().manual_seed(0))

    def make_batch(self, seed: int = 0, **settings: Any) -> Any:
        """A batch of what the agent learns from, with the policy that a new learner of it has."""
        builder = self.builder(**settings)
        if isinstance(builder, on_policy.OnPolicyBuilder):
            return make_rollout(builder, self.networks(builder), self.spec, seed)
        if self.name in ("mpo", "r2d2") or getattr(builder.config, "has_memory", False):
            return make_sequences(builder, self.spec, seed)
        return transition_scene.make_batch(self.spec, seed)

    def make(
        self,
        batches: Iterable[Any] | None = None,
        *,
        builder: Any = None,
        parts: dict[str, Any] | None = None,
        **settings: Any,
    ) -> tuple[Any, list[dict[str, Any]]]:
        """A learner on these batches, or on random ones without end, and the rows that it logs."""
        builder = builder or self.builder(**settings)
        if batches is None:
            batches = (self.make_batch(seed, **settings) for seed in itertools.count())
        learner, _, rows = transition_scene.make_learner(builder, self.spec, batches, **(parts or {}))
        return learner, rows

    def policy(self, builder: Any = None, evaluation: bool = False, seed: int = 0, **arguments: Any) -> Any:
        """The policy of new networks."""
        builder = builder or self.builder()
        generator = torch.Generator().manual_seed(seed)
        return builder.make_policy(
            self.networks(builder), self.spec, generator, evaluation=evaluation, **arguments
        )

    def environment(self, seed: int = 0, **options: Any) -> testing.FakeEnvironment:
        return testing.FakeEnvironment(
            observation_spec=self.spec.observations, action_spec=self.spec.actions, seed=seed, **options
        )


def weights(learner: Any) -> dict[str, torch.Tensor]:
    """All parameters of a learner's modules by name, as they are: later steps change them."""
    return {
        f"{module}.{name}": parameter
        for module, each in learner._modules.items()
        for name, parameter in each.named_parameters()
    }


def state_of(learner: Any) -> dict[str, Any]:
    """All that a learner step changes but for the counts and what was drawn."""
    state = learner.save()
    return {"modules": state["modules"], "optimizers": state["updates"]["optimizers"]}
