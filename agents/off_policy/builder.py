"""Makes the parts that all replay-based agents have in common."""

import abc
import copy
import difflib
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, Literal, NamedTuple, Self, TypeVar

import torch
from torch import nn

from minerva_acme import acceleration, builders, core, counting, learners, networks, specs, types
from minerva_acme.agents import acting, actions, choosing, placing, requirements
from minerva_acme.agents.off_policy import checks, sequences
from minerva_acme.agents.off_policy import config as off_policy_config
from minerva_acme.agents.off_policy import networks as kit
from minerva_acme.replay import base as replay
from minerva_acme.replay import selectors

TABLE = "replay"

# The most that Reverb's client may hold: items and batches that a dataset has prefetched, and items that an
# adder has not sent yet.
_ITEMS_AHEAD, _BATCHES_AHEAD, _UNSENT_ITEMS = 512, 3, 32

_CHECKS: Mapping[str, Callable[[str, specs.EnvironmentSpec], None]] = {
    "any": requirements.check_actions,
    "continuous": requirements.check_continuous,
    "discrete": requirements.check_discrete,
    "any or hybrid": functools.partial(requirements.check_actions, takes_hybrid=True),
}

Networks = TypeVar("Networks")
Config = TypeVar("Config", bound=off_policy_config.OffPolicyConfig)
OfTransitions = TypeVar("OfTransitions", bound=off_policy_config.TransitionConfig)
OfSequences = TypeVar("OfSequences", bound=off_policy_config.SequenceConfig)


class Objective(NamedTuple):
    """The training of one module, or of several by one loss."""

    loss: learners.LossFunction
    learning_rate: float
    max_grad_norm: float = math.inf  # the limit to which the gradient's global norm is clipped
    period: int = 1  # learner steps from one of its gradient steps to the next
    modules: Sequence[str] = ()  # the modules that it trains; (): the one with its name


def _check_name(what: str, name: str, modules: Mapping[str, nn.Module]) -> None:
    """Raises ValueError unless there is a module with that name."""
    if name in modules:
        return
    meant = difflib.get_close_matches(name, modules, n=1)
    raise ValueError(
        f"{what} must name modules of the networks ({', '.join(modules)}), got '{name}'."
        + (
            f" Did you mean '{meant[0]}'?"
            if meant
            else " Use one of those names, or add it in `make_networks`."
        )
    )


class OffPolicyBuilder(placing.PlacedBuilder[Networks, Config], Generic[Networks, Config]):
    """A builder of agents with one table of items, drawn uniformly or by priority (`PrioritizedConfig`).

    A subclass of `TransitionBuilder` or `SequenceBuilder` is an agent if it has

        config_class        the dataclass of its hyperparameters
        make_networks       a named tuple of modules, one of which is called "policy"
        make_objectives     the loss that trains each, see `learners.LossLearner`
        update_targets      if there are target networks: by `learners.update_target`

    The policy acts by a sample of the distribution that its module returns, and is evaluated by the mode.
    Override `make_choice` to choose otherwise. An agent with its own learner overrides `make_learner`
    instead of `make_objectives`.
    """

    takes_actions: Literal["any", "continuous", "discrete", "any or hybrid"] | None = None
    """The actions that its networks take, with observations that an encoder can take. None: it may be others,
    which `check_spec` of the agent checks."""

    learner_class: Callable[..., core.Learner] = learners.LossLearner
    """The class of the learner that `make_learner` makes. Set it to use a subclass of the agent's learner."""

    actor_index: int = 0
    """The index of the actor whose policy is made, as `make_policy` sets it for `make_choice`."""

    def check_spec(self, spec: specs.EnvironmentSpec) -> None:
        """Checks the needs of its adder, of most losses and, by `takes_actions`, of its networks."""
        requirements.check_scalar_signals(self.name, spec, takes_several_rewards=self.takes_several_rewards)
        requirements.critic_entries(self.name, spec, self.config)
        if self.config.random_shift:
            requirements.check_images(self.name, spec)
        if self.takes_actions is not None:
            requirements.check_observations(self.name, spec)
            _CHECKS[self.takes_actions](self.name, spec)

    @property
    def takes_several_rewards(self) -> bool:
        """True if the reward may be a dict of numbers."""
        return False

    def make_objectives(self, spec: specs.EnvironmentSpec) -> Mapping[str, Objective]:
        """Returns how the modules are trained, by name, in the order in which their losses are minimised."""
        raise NotImplementedError(
            f"{type(self).__name__} must define `make_objectives`, or `make_learner` for its own learner."
        )

    def update_targets(self, networks: Networks, num_steps: int) -> None:
        """Updates the target networks, if any, after `num_steps` learner steps."""

    def make_choice(self, spec: specs.EnvironmentSpec, evaluation: bool) -> choosing.Choose:
        """Returns the rule that chooses actions from the output of the policy's module."""
        return choosing.mode if evaluation else choosing.sample

    def make_encoder(self, spec: specs.EnvironmentSpec, generator: torch.Generator) -> networks.Encoder:
        """Makes the encoder of observations in front of the torsos.

        It is called once for all networks that share it, and once for each that does not.
        """
        return kit.make_encoder(spec, self.config, generator)

    def whole_encoder(
        self, spec: specs.EnvironmentSpec, generator: torch.Generator, *, for_critic: bool = True
    ) -> networks.Encoder:
        """Makes `make_encoder`'s encoder with all that the config puts around it, for `make_networks`.

        See `make_whole_encoder` of the kit's `networks`. Without `for_critic`, it has no input for the
        entries of the observation that the critic alone sees.
        """
        requirements.critic_entries(self.name, spec, self.config)
        parts = self.make_encoder, self.make_memory
        return kit.make_whole_encoder(spec, self.config, generator, *parts, for_critic=for_critic)

    def policy_and_critic(
        self,
        spec: specs.EnvironmentSpec,
        generator: torch.Generator,
        make_policy: kit.MakePolicy,
        *,
        policy_first: bool = False,
    ) -> tuple[nn.Module, networks.EncodedCritic]:
        """Makes a policy, and critics as a `CriticConfig` describes them, for `make_networks`.

        Each has an encoder of its own, unless the config's `shared_encoder` is set or there is a memory.

        Args:
            spec: The environment's spec.
            generator: Draws the initial weights.
            make_policy: Makes the policy, with the config's `policy_layer_sizes`.
            policy_first: Whether the weights of the policy are drawn first.
        """
        config: Any = self.config
        shares = config.shared_encoder or self._remembers is not None

        def policy_behind(encoder: networks.Encoder) -> nn.Module:
            torso = kit.TORSOS[config.torso]
            return make_policy(spec, config.policy_layer_sizes, generator, torso, encoder)

        encoder = self.whole_encoder(spec, generator, for_critic=not policy_first)
        if policy_first:
            policy = policy_behind(encoder)
            encoder = encoder if shares else self.whole_encoder(spec, generator)
            return policy, kit.make_critic(spec, config, generator, encoder=encoder)
        critic = kit.make_critic(spec, config, generator, encoder=encoder)
        encoder = encoder if shares else self.whole_encoder(spec, generator, for_critic=False)
        return policy_behind(encoder), critic

    def make_replay_tables(self, spec: specs.EnvironmentSpec) -> Sequence[replay.TableConfig]:
        return [
            replay.TableConfig(
                name=TABLE,
                signature=self.make_layout(spec).signature,
                max_size=self.config.max_replay_size,
                rate_limiter=self.make_rate_limiter(),
                sampler=self.make_selector(),
                contents=self.table_contents,
                ring=None
                if self.batch_device is None
                else replay.Ring(self.config.num_environments, self.steps_per_item),
            )
        ]

    def make_batched_adder(
        self, client: replay.ReplayClient, spec: specs.EnvironmentSpec
    ) -> core.BatchedAdder:
        from minerva_acme.adders import BatchedAdder

        return BatchedAdder(
            client=client,
            table=TABLE,
            layout=self.make_layout(spec),
            period=self.steps_per_item,
            discount=self.config.discount,
        )

    def make_selector(self) -> selectors.Selector:
        """Makes the selector of sampled items: uniform or by priority, and by age if items fade."""
        config, priorities = self.config, self._by_priority
        # Ages are counted in items, of which there is one in so many environment steps.
        fading = config.replay_fading**self.steps_per_item, config.replay_fading_floor
        if priorities:
            return selectors.Prioritized(priorities.priority_exponent, *fading, priorities.new_priority)
        return selectors.Uniform() if config.replay_fading == 1.0 else selectors.Prioritized(0.0, *fading)

    def make_rate_limiter(self) -> replay.RateLimiter:
        """Makes the table's rate limiter, from `num_actors` and the config's samples per insert."""
        config = self.config
        if self.num_actors is None:
            return replay.MinSize(config.min_replay_size)
        num_adders = self.num_actors * config.num_environments
        # Prefetched items count as sampled, and unsent ones are not inserted yet: a smaller buffer would
        # block one side.
        taken_ahead = _ITEMS_AHEAD + _BATCHES_AHEAD * config.batch_size
        unsent = config.samples_per_insert * num_adders * _UNSENT_ITEMS
        return replay.SampleToInsertRatio(
            config.samples_per_insert, config.min_replay_size, 2.0 * max(taken_ahead, unsent)
        )

    def make_dataset(
        self, client: replay.ReplayClient, spec: specs.EnvironmentSpec, device: torch.device
    ) -> Iterator[Any]:
        from minerva_acme.replay.dataset import Dataset

        return Dataset(
            client.sampler(TABLE),
            unpack=self.make_layout(spec).unpack,
            batch_size=self.config.batch_size,
            device=device,
        )

    def make_learner(self, parts: builders.LearnerParts[Networks]) -> core.Learner:
        agent, networks = type(self).__name__, parts.networks
        modules = {
            name: module.to(parts.device) for name, module in checks.modules_of(agent, networks).items()
        }
        accelerated = acceleration.Acceleration(self.config.acceleration)
        for name, module in modules.items():
            accelerated.network(name, module)
        with torch.device(parts.device):  # so that tensors of the losses are made there
            objectives = self.make_objectives(parts.spec)
        checks.check_objectives(agent, objectives, Objective)
        groups = {}
        for name, own in self._trained(modules, objectives).items():
            objective = objectives[name]
            parameters = learners.parameter_groups(own, objective.learning_rate, self.config.weight_decay)
            max_norm = min(objective.max_grad_norm, self.config.max_grad_norm or math.inf)
            groups[name] = learners.Group(self.make_optimizer(name, parameters), max_norm)
        checks.check_targets(agent, modules, objectives, self._may_move_targets)
        return self.learner_class(
            networks=networks,
            losses={name: self._loss_of_items(objective.loss) for name, objective in objectives.items()},
            groups=groups,
            periods={name: objective.period for name, objective in objectives.items()},
            update_targets=self.update_targets,
            acceleration=accelerated,
            parts=[*self.learner_parts(modules, groups, parts)],
            **self.learner_arguments(parts),
        )

    def learner_arguments(self, parts: builders.LearnerParts[Networks]) -> dict[str, Any]:
        return {
            **super().learner_arguments(parts),
            "dataset": self.shifted(parts.dataset, parts.spec, parts.generator),
            "priorities": self.make_priorities(parts.client, parts.share_done),
        }

    def learner_parts(
        self,
        modules: Mapping[str, nn.Module],
        groups: Mapping[str, learners.Group],
        parts: builders.LearnerParts[Networks],
    ) -> Iterator[learners.Part]:
        """Yields the parts of the learner that the config asks for.

        Raises:
            ValueError: Observations shall be normalised, and no network does it.
        """
        config = self.config
        yield from self.averages()
        if config.final_learning_rate < 1.0:
            optimizers = [group.optimizer for group in groups.values()]
            yield learners.LinearDecay(
                *optimizers, final_share=config.final_learning_rate, share_done=parts.share_done
            )
        if not config.normalize_observations or networks.make_normalizer(parts.spec.observations) is None:
            return
        burn_in = 0 if self._remembers is None else self._remembers.burn_in
        statistics = learners.ObservationStatistics(modules, burn_in=burn_in)
        if not statistics.updated_encoders:
            raise ValueError(
                f"`normalize_observations` of {type(self).__name__} must be False, since none of its "
                "networks normalises what it sees, got True. Make their encoders by "
                "`self.whole_encoder(spec, generator)` in `make_networks`."
            )
        yield statistics

    def _loss_of_items(self, loss: learners.LossFunction) -> learners.LossFunction:
        """Returns a loss of what the dataset yields, by a loss of `make_objectives`."""
        return loss

    @property
    def _may_move_targets(self) -> bool:
        """True if `update_targets` is defined, or the learner's step is one of its own."""
        is_defined = type(self).update_targets is not OffPolicyBuilder.update_targets
        return is_defined or getattr(self.learner_class, "step", None) is not learners.LossLearner.step

    def _trained(
        self, modules: Mapping[str, nn.Module], objectives: Mapping[str, Objective]
    ) -> Mapping[str, list[nn.Parameter]]:
        """Returns the parameters that each objective trains.

        Raises:
            ValueError: An objective names no module of the networks or has nothing to train, or a trainable
                module has no objective. The message names it, and the way out.
        """
        agent, trained, taken = type(self).__name__, {}, set[nn.Parameter]()
        for name in self.policy_variables:
            _check_name(f"`policy_variables` of {agent}", name, modules)
        for name, objective in objectives.items():
            for part in (name, *objective.modules):
                _check_name(f"The objective '{name}' of {agent}", part, modules)
            parts = nn.ModuleList([modules[part] for part in objective.modules or [name]])
            # Parameters that several modules share, such as an encoder's, are trained by the first loss.
            # Frozen ones belong to their loss too, which trains them once they are unfrozen.
            own = [p for p in parts.parameters() if p not in taken]
            if not own:
                raise ValueError(
                    f"The objective '{name}' of {agent} must train something, but each parameter of "
                    f"{', '.join(objective.modules or [name])} is trained by an earlier objective. Leave the "
                    "objective out."
                )
            taken.update(own)
            trained[name] = own
        for name, module in modules.items():
            if "target" in name or all(p in taken or not p.requires_grad for p in module.parameters()):
                continue
            raise ValueError(
                f"Each trainable module must have an objective, but '{name}' of {agent}'s networks has none: "
                f"there are objectives for {', '.join(trained) or 'nothing'}. Add one in `make_objectives`, "
                "or name the module in another objective's `modules`. If no loss should train it, freeze it "
                f"(requires_grad_(False)) or, if it is a target network, name it target_{name}."
            )
        return trained

    def shifted(
        self, dataset: Iterator[Any], spec: specs.EnvironmentSpec, generator: torch.Generator
    ) -> Iterator[Any]:
        """Returns the dataset, with its images shifted at random if the config has a `random_shift`."""
        if not self.config.random_shift:
            return dataset
        return learners.RandomShift(
            dataset,
            observation_spec=spec.observations,
            num_pixels=self.config.random_shift,
            generator=generator,
        )

    def make_optimizer(self, name: str, parameters: learners.ParameterGroups) -> torch.optim.Optimizer:
        return learners.make_optimizer(parameters)

    def make_policy(
        self,
        networks: Networks,
        spec: specs.EnvironmentSpec,
        generator: torch.Generator,
        evaluation: bool = False,
        counter: counting.Counter | None = None,
        actor_index: int = 0,
    ) -> builders.AgentPolicy:
        builder = copy.copy(self)
        builder.actor_index = actor_index
        return acting.ModulePolicy(
            module=self.policy_module(networks),
            choose=builder.make_choice(spec, evaluation),
            raw_actions=actions.executed(spec.actions),
            generator=generator,
            acceleration=acceleration.Acceleration(self.config.acceleration),
            counter=counter,
            evaluation=evaluation,
            record_state=self._stores_state and not evaluation,
            critic_observations=requirements.critic_entries(self.name, spec, self.config),
            device=self.batch_device,
        )

    def policy_module(self, networks: Networks) -> nn.Module:
        """Returns the module that acts."""
        (name,) = self.policy_variables
        module: nn.Module = getattr(networks, name)
        return module

    @property
    def policy_variables(self) -> Sequence[str]:
        return ["policy"]

    @property
    def variable_update_period(self) -> int:
        return self.config.variable_update_period

    @property
    def learner_step(self) -> str:
        return f"one update from {self.config.batch_size:,} items of replay"

    def learner_steps_due(self, num_inserted: int) -> int:
        # Counted from the first learner step on, so that no steps are due for filling the replay.
        inserted = num_inserted - self.config.min_replay_size
        return int(inserted / self.config.inserts_per_learner_step) + 1 if inserted >= 0 else 0

    def num_learner_steps(self, num_env_steps: int) -> int:
        return self.learner_steps_due(num_env_steps // self.steps_per_item)

    @property
    def steps_per_item(self) -> int:
        """The number of environment steps between the starts of two items."""
        return 1

    @property
    def table_contents(self) -> Mapping[str, str | float]:
        """The settings that the contents of replay depend on; a replay made with others is refused."""
        return {}

    @property
    def _by_priority(self) -> off_policy_config.PrioritizedConfig | None:
        """The config if items are drawn by priority, else None."""
        config: Any = self.config
        is_prioritized = isinstance(config, off_policy_config.PrioritizedConfig) and config.prioritized
        return config if is_prioritized else None

    @property
    def _remembers(self) -> off_policy_config.MemoryConfig | None:
        """The config if the agent has a memory of the episode, else None."""
        config: Any = self.config
        has_memory = isinstance(config, off_policy_config.MemoryConfig) and config.has_memory
        return config if has_memory else None

    @property
    def _stores_state(self) -> bool:
        config = self._remembers
        return config is not None and config.stored_state and not config.needs_recorded_data

    def state_spec(self, spec: specs.EnvironmentSpec) -> types.NestedSpec:
        """Returns the specs of the recurrent state that is stored with each sequence, or () for none."""
        if not self._stores_state:
            return ()
        return acting.state_spec(self.policy_module(self.make_networks(spec, torch.Generator())))

    def make_priorities(
        self, client: replay.ReplayClient | None, share_done: Callable[[int], float] | None
    ) -> learners.Priorities | None:
        """Makes the part that weighs batches and sets priorities, or None if items are drawn uniformly.

        Args:
            client: The client of the replay store.
            share_done: The share of the run that is done after a number of learner steps, or None.

        Raises:
            ValueError: The config draws by priority, and there is no client to set priorities with.
        """
        config = self._by_priority
        if config is None:
            return None
        if client is None:
            raise ValueError(
                f"The `LearnerParts` of {type(self).__name__} must have the replay's `client`, since items "
                "are drawn by priority, got None. Add it, or set `prioritized` to False."
            )
        first = config.importance_exponent

        def exponent(learner_steps: int) -> float:
            return first + (1.0 - first) * share_done(learner_steps) if first and share_done else first

        return learners.Priorities(client=client, table=TABLE, importance_exponent=exponent)

    def extras_spec(self, spec: specs.EnvironmentSpec) -> types.NestedSpec:
        """Returns the specs of the extras that the policy records with each action, or () for none.

        A recurrent state, recorded as `state` of the extras, is () here: its spec is `state_spec`.
        """
        return acting.BehaviourExtras() if self._stores_state else ()

    @abc.abstractmethod
    def make_layout(self, spec: specs.EnvironmentSpec) -> Any:
        """Makes the layout of items in replay, which adder, table and dataset share; see `replay.layouts`."""


class TransitionBuilder(OffPolicyBuilder[Networks, OfTransitions], Generic[Networks, OfTransitions]):
    """Learns from n-step transitions: batches are `types.Transition`.

    With a memory, items are sequences, and the losses get their transitions; see `over_sequences`.
    """

    def for_learners(self, num_learners: int) -> Self:
        if self._remembers is not None:
            raise ValueError(
                f"`memory` of {self.name} must be none with {num_learners} learners, got "
                f"{self._remembers.memory}: its losses are divided by the number of steps in a whole batch. "
                "Train without a memory, or with one learner."
            )
        return super().for_learners(num_learners)

    def make_adder(self, client: replay.ReplayClient, spec: specs.EnvironmentSpec) -> core.Adder:
        if self._remembers is not None:
            return _make_sequence_adder(self, client, spec)
        from minerva_acme.adders import NStepTransitionAdder

        return NStepTransitionAdder(
            client=client,
            table=TABLE,
            layout=self.make_layout(spec),
            n_step=self.config.n_step,
            discount=self.config.discount,
        )

    @property
    def table_contents(self) -> Mapping[str, str | float]:
        if self._remembers is not None:
            return {}
        return {"n_step": self.config.n_step, "discount": self.config.discount}

    @property
    def steps_per_item(self) -> int:
        config: Any = self.config
        return 1 if self._remembers is None else config.sequence_period

    def make_layout(self, spec: specs.EnvironmentSpec) -> Any:
        if self._remembers is not None:
            return _make_sequence_layout(self, spec, self._remembers.burn_in)
        from minerva_acme.replay import layouts

        if self.batch_device is not None:
            config = self.config
            return layouts.BatchedTransitionLayout(
                spec, self.extras_spec(spec), n_step=config.n_step, discount=config.discount
            )
        return layouts.TransitionLayout(spec, self.extras_spec(spec), frame_stack=self.config.frame_stack)

    def _loss_of_items(self, loss: learners.LossFunction) -> learners.LossFunction:
        if self._remembers is None:
            return loss
        return sequences.over_sequences(loss, burn_in=self._remembers.burn_in, discount=self.config.discount)


class SequenceBuilder(OffPolicyBuilder[Networks, OfSequences], Generic[Networks, OfSequences]):
    """Learns from sequences: batches are `types.Trajectory`, with a memory's burn-in steps in front."""

    def make_adder(self, client: replay.ReplayClient, spec: specs.EnvironmentSpec) -> core.Adder:
        return _make_sequence_adder(self, client, spec)

    @property
    def steps_per_item(self) -> int:
        return self.config.sequence_period

    def make_layout(self, spec: specs.EnvironmentSpec) -> Any:
        return _make_sequence_layout(self, spec, 0 if self._remembers is None else self._remembers.burn_in)


def _make_sequence_adder(
    builder: Any, client: replay.ReplayClient, spec: specs.EnvironmentSpec
) -> core.Adder:
    from minerva_acme.adders import SequenceAdder

    return SequenceAdder(
        client=client, table=TABLE, layout=builder.make_layout(spec), period=builder.config.sequence_period
    )


def _make_sequence_layout(builder: Any, spec: specs.EnvironmentSpec, burn_in: int) -> Any:
    from minerva_acme.replay import layouts

    config = builder.config
    if builder.batch_device is not None:
        return layouts.BatchedTrajectoryLayout(spec, config.sequence_length, builder.extras_spec(spec))
    return layouts.TrajectoryLayout(
        spec,
        config.sequence_length,
        builder.extras_spec(spec),
        frame_stack=config.frame_stack,
        burn_in=burn_in,
        state_spec=builder.state_spec(spec),
    )
