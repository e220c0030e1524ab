"""Makes the parts that on-policy agents have in common."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Literal, Self, TypeVar

import torch

from minerva_acme import acceleration, builders, core, counting, learners, networks, specs, types
from minerva_acme.agents import acting, actions, choosing, placing, requirements
from minerva_acme.agents.on_policy import batch, rounds
from minerva_acme.agents.on_policy import config as on_policy_config
from minerva_acme.replay import base as replay
from minerva_acme.replay import selectors

TABLE = "rollouts"

# The first policy is nearly the same in every state [Andrychowicz et al. 2021, arXiv:2006.05990].
_POLICY_GAIN = 0.01

Config = TypeVar("Config", bound=on_policy_config.OnPolicyConfig)


class OnPolicyBuilder(placing.PlacedBuilder[networks.ActorCritic, Config], Generic[Config]):
    """A builder of agents that learn from rollouts of several environments, which a queue hands on.

    An item is a rollout of one environment and is sampled once. A learner step takes one item of each
    environment, so that it learns only from the newest policy's actions. Subclasses set `learner_class`.

    With several actors in other processes (`for_actors`), each actor plays a rollout in each of its
    environments, then waits for the updated weights; the learner takes the rollouts of all actors, see
    `rounds`. If the config is `asynchronous`, no actor waits, and a learner step takes as many rollouts as in
    one process, whichever actors they come from.
    """

    learner_class: Callable[..., core.Learner]
    """The class of the learner that `make_learner` makes. Set it to use a subclass of the agent's learner."""

    records_parameters: bool = False
    """Whether the policy records its distribution with each action, which some losses need."""

    def check_spec(self, spec: specs.EnvironmentSpec) -> None:
        requirements.check_observations(self.name, spec)
        requirements.critic_entries(self.name, spec, self.config)
        requirements.check_scalar_signals(self.name, spec)
        requirements.check_actions(self.name, spec, takes_choices=True)

    def make_networks(self, spec: specs.EnvironmentSpec, generator: torch.Generator) -> networks.ActorCritic:
        config = self.config
        num_actions: int | tuple[int, ...] | None = None
        if isinstance(spec.actions, specs.DiscreteArray):
            num_actions = spec.actions.num_values
        elif spec.actions.dtype.kind in "iu":
            num_actions = actions.num_values(spec.actions)
        entries = requirements.critic_entries(self.name, spec, config)
        encoder = networks.make_parted_encoder(
            spec.observations,
            entries,
            lambda part: self.make_encoder(spec._replace(observations=part), generator),
        )
        normalizer = None
        if config.normalize_observations:
            normalizer = networks.make_normalizer(spec.observations, each_entry=bool(entries))
        return networks.make_actor_critic(
            normalizer=normalizer,
            encoder=encoder,
            memory=self.make_memory(encoder.output_size, generator) if config.has_memory else None,
            encoder_loss=config.encoder_loss,
            num_actions=num_actions,
            action_size=spec.actions.shape[0] if num_actions is None else None,
            layer_sizes=config.policy_layer_sizes,
            value_layer_sizes=config.value_layer_sizes,
            torso=config.torso,
            shared_torso=config.shared_torso,
            state_dependent_std=config.state_dependent_stddev,
            initial_stddev=config.init_stddev,
            policy_gain=_POLICY_GAIN,
            generator=generator,
        )

    def make_encoder(self, spec: specs.EnvironmentSpec, generator: torch.Generator) -> networks.Encoder:
        """Makes the encoder of observations in front of the torsos, shared by policy and value."""
        return networks.make_encoder(spec.observations, generator=generator)

    def for_learners(self, num_learners: int) -> Self:
        builder = super().for_learners(num_learners)
        self._share_of_rollouts(num_learners)  # raises
        return builder

    def make_replay_tables(self, spec: specs.EnvironmentSpec) -> Sequence[replay.TableConfig]:
        # Room for the items of an environment that is ahead of the others, so that no writer ever waits.
        capacity = 4 * self.config.num_environments * (self.num_actors or 1)
        if self.num_actors is not None and not self.needs_every_actor:
            capacity = 2 * self.config.num_environments  # Here they wait: a long queue makes old rollouts.
        return [
            replay.TableConfig(
                name=TABLE,
                signature=self.make_layout(spec).signature,
                max_size=capacity,
                rate_limiter=replay.Queue(capacity),
                sampler=selectors.Fifo(),
                max_times_sampled=1,
                contents={"discount": self.config.discount},  # of `return_so_far`
                ring=None
                if self.batch_device is None
                else replay.Ring(self.config.num_environments, self.config.rollout_length, by_episode=False),
            )
        ]

    def make_adder(self, client: replay.ReplayClient, spec: specs.EnvironmentSpec) -> core.Adder:
        from minerva_acme.adders import RolloutAdder

        adder = RolloutAdder(
            client=client, table=TABLE, layout=self.make_layout(spec), discount=self.config.discount
        )
        if self.num_actors is None:
            return adder
        return rounds.StampingAdder(adder, in_rounds=self.needs_every_actor)

    def make_batched_adder(
        self, client: replay.ReplayClient, spec: specs.EnvironmentSpec
    ) -> core.BatchedAdder:
        from minerva_acme.adders import BatchedAdder

        layout, gamma = self.make_layout(spec), self.config.discount
        return BatchedAdder(client=client, table=TABLE, layout=layout, discount=gamma)

    def make_dataset(
        self, client: replay.ReplayClient, spec: specs.EnvironmentSpec, device: torch.device
    ) -> Iterator[Any]:
        num_rollouts = self._share_of_rollouts(self.num_learners)
        if self.needs_every_actor:
            unpack, num_actors = self.make_layout(spec).unpack, self._actors_in_a_step
            if self.num_learners > 1:
                unpack, num_actors = rounds.of_any_actor(unpack), 1
            return rounds.RoundDataset(
                client.sampler(TABLE),
                unpack,
                num_actors=num_actors,
                rollouts_each=num_rollouts // num_actors,
                device=device,
            )
        from minerva_acme.replay.dataset import Dataset

        dataset = Dataset(
            client.sampler(TABLE),
            unpack=self.make_layout(spec).unpack,
            batch_size=num_rollouts,
            # The next rollout does not exist yet, and a queue gives each item once.
            prefetch=0,
            device=device,
        )
        return rounds.QueueDataset(dataset) if self.num_actors is not None else dataset

    def make_policy(
        self,
        networks: networks.ActorCritic,
        spec: specs.EnvironmentSpec,
        generator: torch.Generator,
        evaluation: bool = False,
        counter: counting.Counter | None = None,
        actor_index: int = 0,
    ) -> builders.AgentPolicy:
        record: Literal["choice", "parameters"] = "parameters" if self.records_parameters else "choice"
        return acting.ModulePolicy(
            module=networks,
            choose=choosing.mode if evaluation else choosing.sample,
            raw_actions=self._raw_actions(spec),
            generator=generator,
            acceleration=acceleration.Acceleration(self.config.acceleration),
            evaluation=evaluation,
            record="nothing" if evaluation else record,
            record_state=not evaluation,
            critic_observations=requirements.critic_entries(self.name, spec, self.config),
            device=self.batch_device,
        )

    def make_learner(self, parts: builders.LearnerParts[networks.ActorCritic]) -> core.Learner:
        return self.learner_class(**self.learner_arguments(parts))

    def learner_arguments(self, parts: builders.LearnerParts[networks.ActorCritic]) -> dict[str, Any]:
        """Returns the arguments of `learner_class`: all of `RolloutLearner`'s except the losses."""
        config = self.config
        accelerated = acceleration.Acceleration(config.acceleration)
        network = accelerated.network("network", parts.networks.to(parts.device))
        of_network = [*network.parameters()], config.learning_rate, config.weight_decay
        optimizer = self.make_optimizer("network", learners.parameter_groups(*of_network))
        preparer = self.rollout_preparer(network, parts.spec, parts.device)
        final_share = 0.0 if config.anneal_learning_rate else 1.0
        decay = learners.LinearDecay(optimizer, final_share=final_share, share_done=parts.share_done)
        return {
            **super().learner_arguments(parts),
            "networks": network,
            "config": config,
            "preparer": preparer,
            "groups": {"network": learners.Group(optimizer, config.max_grad_norm)},
            "parts": [decay, *self.averages()],
            "acceleration": accelerated,
        }

    def make_optimizer(self, name: str, parameters: learners.ParameterGroups) -> torch.optim.Optimizer:
        return learners.make_optimizer(parameters, adam_epsilon=self.config.adam_epsilon)

    @property
    def policy_variables(self) -> Sequence[str]:
        return ["network"]

    @property
    def variable_update_period(self) -> int:
        return 1  # A rollout is made by one policy, the newest.

    @property
    def learner_step(self) -> str:
        of_each = f" of each of {self.num_actors} actors" if self.needs_every_actor else ""
        return f"all updates from one rollout of {self.config.rollout_steps:,} environment steps{of_each}"

    def learner_steps_due(self, num_inserted: int) -> int:
        return num_inserted // self.config.num_environments

    def max_inserted(self, num_env_steps: int) -> int:
        config = self.config
        return num_env_steps // config.num_environments // config.rollout_length * config.num_environments

    def num_learner_steps(self, num_env_steps: int) -> int:
        return num_env_steps // (self.config.rollout_steps * self._actors_in_a_step)

    @property
    def _actors_in_a_step(self) -> int:
        """The number of actors whose rollouts are learned from together."""
        return (self.num_actors or 1) if self.needs_every_actor else 1

    def _share_of_rollouts(self, num_learners: int) -> int:
        """Returns the number of rollouts that each of several learners takes in each step.

        Raises:
            ValueError: The shares of several learners would differ.
        """
        num_actors = self._actors_in_a_step
        name = "num_environments" + " * num_actors" * (num_actors > 1)
        return requirements.share(name, num_actors * self.config.num_environments, num_learners)

    @property
    def needs_every_actor(self) -> bool:
        return self.num_actors is not None and not self.config.asynchronous

    def rollout_preparer(
        self, network: networks.ActorCritic, spec: specs.EnvironmentSpec, device: torch.device
    ) -> batch.RolloutPreparer:
        """Makes the part that turns rollouts into batches, with the network's values, on its device."""
        return batch.RolloutPreparer(
            network=network,
            raw_actions=self._raw_actions(spec),
            estimator=batch.advantage_estimator(self.config),
            discount=self.config.discount,
            burn_in=self.config.burn_in,
            correction_lambda=batch.correction_lambda(self.config),
            scale_rewards=self.config.scale_rewards,
            device=device,
        )

    def _raw_actions(self, spec: specs.EnvironmentSpec) -> actions.RawActions:
        return actions.raw_actions(spec.actions, squash=self.config.squash_actions)

    def make_layout(self, spec: specs.EnvironmentSpec) -> Any:
        """Makes the layout of rollouts in replay, which adder, table and dataset share."""
        from minerva_acme.replay import layouts

        extras = acting.extras_spec(spec, self.records_parameters, self._memory_spec(spec))
        if self.batch_device is not None:
            return layouts.BatchedRolloutLayout(spec, self.config.rollout_length, extras)
        return layouts.RolloutLayout(
            spec,
            self.config.rollout_length,
            extras if self.num_actors is None else rounds.stamped_spec(extras),
        )

    def _memory_spec(self, spec: specs.EnvironmentSpec) -> types.NestedSpec:
        """Returns the spec of the recurrent state of one environment; () without memory."""
        if not self.config.has_memory:
            return ()
        return acting.state_spec(self.make_networks(spec, torch.Generator()))
