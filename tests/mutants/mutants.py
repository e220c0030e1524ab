"""The mutants: file by file, what is done wrong there and which tests must notice."""

from typing import NamedTuple

from .harness import Mutant

# Learner steps beside ones written out by hand come first: they notice most.
MPO_LEARNER = (
    "tests/agents/mpo/test_reference_step.py",
    "tests/agents/mpo/test_learner.py",
    "tests/agents/properties/test_learners.py",
)
VMPO_LEARNER = (
    "tests/agents/vmpo/test_reference_step.py",
    "tests/agents/on_policy/test_learners.py",
)
PPO_LEARNER = (
    "tests/agents/ppo/test_reference_step.py",
    "tests/agents/ppo/test_learner.py",
    "tests/agents/properties/test_learners.py",
    "tests/agents/on_policy/test_learners.py",
)
ON_POLICY = (
    "tests/agents/on_policy/test_statistics.py",
    "tests/agents/on_policy/test_first_ratio.py",
    "tests/agents/on_policy/test_learners.py",
    "tests/agents/vmpo/test_reference_step.py",
    "tests/agents/ppo/test_reference_step.py",
)
RUN = ("tests/experiments/test_run.py",)


class Breakage(NamedTuple):
    """A mistake in a file."""

    name: str
    old: str
    new: str


breakage = Breakage


def of(file: str, tests: tuple[str, ...], *breakages: Breakage) -> list[Mutant]:
    """The mutants of a file, all of which the same tests must notice."""
    return [Mutant(name, file, old, new, tests) for name, old, new in breakages]


LOSSES = [
    *of(
        "minerva_acme/losses/critic.py",
        ("tests/losses/test_critic.py",),
        breakage(
            "the critic's mean is over padding too", "happened_t.sum().clamp(min=1)", "happened_t.numel()"
        ),
    ),
    *of(
        "minerva_acme/losses/categorical.py",
        ("tests/losses/test_categorical.py",),
        breakage("HL-Gauss is not normalised", "cdf[..., -1:] - cdf[..., :1]", "2.0"),
        breakage(
            "padding reaches the logits' gradient", "happened, logits, 0.0", "happened | True, logits, 0.0"
        ),
    ),
    *of(
        "minerva_acme/losses/mixture.py",
        ("tests/losses/test_mixture.py",),
        breakage("a return's probability is not used", "weights * log_prob", "log_prob / log_prob.shape[-1]"),
    ),
    *of(
        "minerva_acme/networks/critic_heads.py",
        ("tests/networks/test_critic_heads.py",),
        breakage("the members' mean is the minimum", 'self.rule == "mean"', 'self.rule == "max"'),
        breakage(
            "samples are all of the likeliest component",
            "Categorical(logits).sample(generator)",
            "Categorical(logits).mode()",
        ),
        breakage(
            "an ensemble's loss is a mean",
            "functools.reduce(operator.add, [",
            "functools.reduce(lambda a, b: (a + b) / 2, [",
        ),
    ),
    *of(
        "minerva_acme/losses/duals.py",
        ("tests/losses/test_duals.py",),
        breakage("a multiplier has no lower bound", "return x.clamp(min=bound)", "return x.clone()"),
        breakage(
            "a multiplier is the exponential of its parameter",
            "nn.functional.softplus(raw)",
            "torch.exp(raw)",
        ),
    ),
    *of(
        "minerva_acme/losses/mpo.py",
        ("tests/losses/test_mpo.py",),
        breakage(
            "the E-step's bound has the wrong sign",
            "(epsilon + log_mean_exp_B.mean())",
            "(log_mean_exp_B.mean() - epsilon)",
        ),
        breakage(
            "the KL penalty lacks the stddev", "functools.reduce(operator.add, penalties)", "penalties[0]"
        ),
    ),
    *of(
        "minerva_acme/losses/retrace.py",
        ("tests/losses/test_retrace.py",),
        breakage(
            "Retrace's trace passes padding",
            "happened_t[:, :-1] & happened_t[:, 1:]",
            "happened_t[:, :-1] >= 0",
        ),
        breakage(
            "Retrace's errors count padding",
            "torch.where(happened_t, r_t +",
            "torch.where(mask_t >= 0, r_t +",
        ),
    ),
    *of(
        "minerva_acme/losses/ppo.py",
        ("tests/losses/test_ppo.py",),
        breakage(
            "PPO clips on one side",
            "ratio.clamp(1.0 - clip_ratio, 1.0 + clip_ratio)",
            "ratio.clamp(max=1.0 + clip_ratio)",
        ),
        breakage(
            "PPO's loss trains what was recorded",
            "behaviour_log_prob.detach(), behaviour_value.detach()",
            "behaviour_log_prob, behaviour_value",
        ),
        breakage(
            "PPO's advantages have a gradient", "advantages.detach(), targets.detach()", "advantages, targets"
        ),
        breakage("PPO's KL is the mean log-ratio", "(log_ratio.expm1() - log_ratio)", "(-log_ratio)"),
        breakage(
            "advantages are scaled by the population's deviation",
            "correction=int(unbiased))",
            "correction=0)",
        ),
    ),
    *of(
        "minerva_acme/losses/returns.py",
        ("tests/losses/test_returns.py",),
        breakage(
            "returns go on across the ends of episodes",
            "lambda_ * (1.0 - last_t)\n    trace",
            "lambda_ * torch.ones_like(last_t)\n    trace",
        ),
    ),
    *of(
        "minerva_acme/losses/vmpo.py",
        ("tests/losses/test_vmpo.py",),
        breakage(
            "V-MPO takes the worst samples",
            "candidates.topk(k).indices",
            "candidates.topk(k, largest=False).indices",
        ),
        breakage(
            "V-MPO's bound has the wrong sign",
            "temperature * (epsilon + total",
            "temperature * (-epsilon + total",
        ),
        breakage(
            "V-MPO selects samples that may not count", "masked_fill(restart <= 0.0, -torch.inf)", "clone()"
        ),
        breakage(
            "V-MPO's KL is a mean over all samples",
            "(selected * kl).sum() / selected.sum()",
            "(selected * kl).mean()",
        ),
    ),
]

NETWORKS = [
    *of(
        "minerva_acme/networks/memory.py",
        ("tests/networks/test_memory.py",),
        breakage(
            "a memory goes on into the next episode",
            "view(-1, *[1] * (kept.ndim - 1)), new, kept)",
            "view(-1, *[1] * (kept.ndim - 1)), kept, kept)",
        ),
        breakage(
            "a memory's first step never begins an episode",
            "begins = start > 0",
            "begins = torch.cat([start[:1] < 0, start[1:] > 0])",
        ),
        breakage(
            "all environments forget together",
            "begins = start > 0",
            "begins = (start > 0).any(dim=1, keepdim=True).expand_as(start)",
        ),
        breakage(
            "a memory's gates are orthogonal together",
            "parameter.detach().split(size)",
            "[parameter.detach()]",
        ),
    ),
    *of(
        "minerva_acme/networks/memory.py",
        ("tests/networks/test_memory.py", "tests/networks/test_recurrent.py"),
        breakage(
            "the burn-in warms nothing up",
            "                _, state = self(features[:burn_in], state, start[:burn_in])",
            "                self(features[:burn_in], state, start[:burn_in])",
        ),
    ),
    *of(
        "minerva_acme/networks/recurrent.py",
        ("tests/networks/test_recurrent.py",),
        breakage("an episode in a sequence begins a step late", "(1, 1))", "(2, 0))"),
        breakage("a sequence goes on into the next episode", "~happened[:, :-1] &", "happened[:, :-1] &"),
    ),
    *of(
        "adders/sequence.py",
        ("tests/adders/test_states.py",),
        breakage(
            "a sequence has the state of another row",
            "states[-self._layout.burn_in - self._length]",
            "states[-self._length]",
        ),
        breakage(
            "the last sequence has the state of another row",
            "self._states[1 - self._layout.burn_in - num_rows]",
            "self._states[-num_rows]",
        ),
    ),
    *of(
        "agents/off_policy/sequences.py",
        ("tests/agents/off_policy/test_memory.py",),
        breakage("steps end where they begin", "burn_in=burn_in + 1", "burn_in=burn_in"),
        breakage("padding has weight", "weights = mask * (", "weights = torch.ones_like(mask) * ("),
    ),
    *of(
        "minerva_acme/networks/normalizer.py",
        ("tests/networks/test_normalizer.py",),
        breakage(
            "statistics lack the shift between batches",
            "delta.square() * (weight * (1.0 - weight))",
            "0.0",
        ),
        breakage("the first rows do not set the mean", "rows_mean, self.mean)", "self.mean, self.mean)"),
        breakage(
            "statistics weigh every batch alike",
            "self.mean.copy_(mean + delta * weight)",
            "self.mean.copy_(mean + 0.5 * delta)",
        ),
        breakage(
            "extreme rows enter the statistics", "rows.abs() <= constraints.LARGEST", "rows.abs() <= 1e300"
        ),
        breakage("rows that are left out count", "n = is_taken.sum()", "n = torch.tensor(len(rows))"),
    ),
    *of(
        "minerva_acme/networks/actor_critic.py",
        ("tests/networks/test_actor_critic.py",),
        breakage(
            "the value takes the policy's features",
            "value_features = torso(",
            "torso(",
        ),
    ),
    *of(
        "minerva_acme/networks/encoders.py",
        ("tests/networks/test_encoders.py",),
        breakage(
            "leaves change places", "for encoder, leaf in leaves]", "for encoder, leaf in [*leaves][::-1]]"
        ),
    ),
    *of(
        "minerva_acme/acceleration/array_layers.py",
        ("tests/acceleration/test_array_layers.py",),
        breakage("arrays lack the slope of tanh", "slope *= d_y", "slope[:] = d_y"),
        breakage(
            "arrays pass on what a large ReLU cut", "torch.from_numpy(y), 0)", "torch.from_numpy(y), -1)"
        ),
        breakage(
            "arrays leave out a layer that comes twice",
            "module._modules.values() if",
            "module.children() if",
        ),
    ),
    *of(
        "minerva_acme/acceleration/acting.py",
        ("tests/agents/test_acting_on_arrays.py",),
        breakage(
            "the smallest value is acted upon as the mean",
            "ensemble.members], ensemble.rule",
            'ensemble.members], "mean"',
        ),
    ),
    *of(
        "minerva_acme/acceleration/acting.py",
        ("tests/acceleration/test_acting.py",),
        breakage("acting by arrays draws with log sigma", "raw *= stddev", "raw *= log_std"),
    ),
]

MPO = [
    *of(
        "agents/mpo/losses.py",
        MPO_LEARNER,
        breakage(
            "MPO's policy is trained at the second state",
            "return (slice(None), 0)",
            "return (slice(None), 1)",
        ),
        breakage(
            "MPO's critic learns from padding",
            "prediction, target, steps.mask)",
            "prediction, target, torch.ones_like(steps.mask))",
        ),
        breakage(
            "MPO's critic learns at the following states",
            "(slice(None), slice(num_states)))",
            "(slice(None), slice(-num_states, None)))",
        ),
        breakage(
            "MPO skips a batch for what its padding holds",
            "learners.where_unmasked(steps.mask, critic_targets)",
            "critic_targets",
        ),
        breakage(
            "MPO's policy ignores the bound on its KLs",
            "estimates.improved.loss(online) + losses.kl_penalty(kls, *alphas)",
            "estimates.improved.loss(online)",
        ),
        breakage(
            "MPO's samples are all the same",
            "actions_NSD, log_prior_NS = policy.points(generator, self.config.num_samples)",
            "actions_NSD, log_prior_NS = policy.points(generator, self.config.num_samples)\n"
            "        actions_NSD = actions_NSD[:1].expand(actions_NSD.shape)",
        ),
    ),
    *of(
        "agents/mpo/builder.py",
        MPO_LEARNER,
        breakage(
            "MPO's multipliers follow the policy after its step",
            '["duals", *["policy"] * config.m_steps]',
            '[*["policy"] * config.m_steps, "duals"]',
        ),
        breakage("MPO's Adam has torch's epsilon", "adam_epsilon=config.adam_epsilon", "adam_epsilon=1e-8"),
        breakage("MPO's SGD has no momentum", "sgd_momentum=config.sgd_momentum", "sgd_momentum=0.0"),
    ),
    *of(
        "agents/mpo/parts.py",
        MPO_LEARNER,
        breakage(
            "MPO's targets are copied one step late", "num_steps % period == 0", "num_steps % period == 1"
        ),
    ),
    *of(
        "agents/mpo/critics.py",
        ("tests/agents/mpo/test_discrete.py", "tests/agents/mpo/test_heads.py"),
        breakage(
            "a discrete critic values another action",
            "return self._prediction(features).select(action)",
            "return self._prediction(features).select(0 * action)",
        ),
        breakage(
            "the distribution of a state forgets the policy",
            "weights=points.log_weights.exp().movedim(0, -1)",
            "weights=None",
        ),
    ),
    *of(
        "minerva_acme/distributions/distribution.py",
        ("tests/agents/mpo/test_discrete.py", "tests/agents/mpo/test_targets.py"),
        breakage(
            "a value is that of the best action", "return values.mean(dim=0)", "return values.amax(dim=0)"
        ),
        breakage(
            "exact values forget the policy",
            "(self.log_weights.exp() * values).sum(dim=0)",
            "values.mean(dim=0)",
        ),
    ),
    *of(
        "agents/mpo/optimizers.py",
        MPO_LEARNER,
        breakage(
            "MPO's gradients are not clipped",
            "learners.Group(optimizer, config.max_grad_norm)",
            "learners.Group(optimizer, math.inf)",
        ),
    ),
    *of(
        "agents/mpo/targets.py",
        ("tests/agents/mpo/test_targets.py", "tests/agents/mpo/test_reference_step.py"),
        breakage(
            "Retrace's Q is of the state before",
            "critic(trajectory.observation[:, 1:-1]",
            "critic(trajectory.observation[:, :-2]",
        ),
        breakage(
            "Retrace's ratio is of the clipped action",
            "log_prob(trajectory.extras.raw_action)",
            "log_prob(trajectory.action)",
        ),
        breakage(
            "n-step targets take all steps as made",
            "fold, v_tp1, trajectory.reward, shared=(discount_t, trajectory.mask)",
            "fold, v_tp1, trajectory.reward, shared=(discount_t, torch.ones_like(trajectory.mask))",
        ),
    ),
    *of(
        "minerva_acme/acceleration/target_critic.py",
        ("tests/acceleration/test_target_critic.py",),
        breakage(
            "an edited critic is not called",
            "type(critic).forward not in (_CRITIC, _ENSEMBLE)",
            "False",
        ),
    ),
    *of(
        "agents/mpo/improvement.py",
        MPO_LEARNER,
        breakage("MPO never trains the stddev", "= sum(parts)  # one loss", "= parts.mean  # one loss"),
    ),
    *of(
        "minerva_acme/acceleration/agreement.py",
        ("tests/acceleration/test_agreement.py",),
        breakage(
            "what is not a number agrees", "not difference <= pair.tolerance", "difference > pair.tolerance"
        ),
        breakage("a batch that is not finite breaks the agreement", "bool(x.isfinite().all())", "True"),
        breakage("small tensors hide behind large ones", "_ROUNDING = 1e-3", "_ROUNDING = 1.0"),
    ),
    *of(
        "agents/mpo/builder.py",
        ("tests/agents/mpo/test_reference_step.py", "tests/agents/properties/test_acting.py"),
        breakage(
            "MPO acts by the wrong policy",
            'self.config.acting_policy == "online"',
            'self.config.acting_policy == "target"',
        ),
        breakage(
            "MPO's evaluation explores",
            "choose=self.make_choice(spec, evaluation)",
            "choose=self.make_choice(spec, False)",
        ),
        breakage("MPO's Retrace lacks the config's lambda", "lambda_=config.retrace_lambda", "lambda_=1.0"),
        breakage(
            "MPO's values take the E-step's number of actions",
            "num_actions=config.retrace_mc_actions,\n            num_returns",
            "num_actions=config.num_samples,\n            num_returns",
        ),
    ),
    *of(
        "agents/mpo/config.py",
        ("tests/agents/mpo/test_config.py",),
        breakage(
            "MPO takes a single sampled action",
            'teach nothing)", lambda value: value >= 2',
            'teach nothing)", lambda value: value >= 1',
        ),
    ),
    *of(
        "agents/off_policy/builder.py",
        ("tests/agents/off_policy/test_builder.py", "tests/agents/off_policy/test_priorities.py"),
        breakage(
            "an agent's sequences start side by side", "period=builder.config.sequence_period", "period=1"
        ),
        breakage("an agent's transitions are of one step", "n_step=self.config.n_step", "n_step=1"),
        breakage(
            "the draw lacks the priorities' exponent",
            "selectors.Prioritized(priorities.priority_exponent, ",
            "selectors.Prioritized(1.0, ",
        ),
        breakage(
            "importance weights never correct fully",
            "first + (1.0 - first)",
            "first + (0.9 - first)",
        ),
        breakage(
            "schedules see no steps",
            "counter=counter,\n            evaluation",
            "counter=None,\n            evaluation",
        ),
    ),
    *of(
        "agents/off_policy/networks.py",
        ("tests/agents/off_policy/test_networks.py", "tests/agents/test_transition_agents.py"),
        breakage(
            "an agent's critics always speak by their smallest", "rule=config.critic_ensemble", 'rule="min"'
        ),
        breakage("policies begin far from the middle", "_LAST_LAYER = 3e-3", "_LAST_LAYER = 3.0"),
        breakage("every categorical head is C51's", "projection=config.critic_head", 'projection="c51"'),
    ),
    *of(
        "agents/sac/learner.py",
        ("tests/agents/sac/test_reference_step.py",),
        breakage("SAC's target has no entropy", "entropy_bonus = -nets", "entropy_bonus = 0.0 * nets"),
    ),
    *of(
        "agents/td3/learner.py",
        ("tests/agents/td3/test_reference_step.py", "tests/agents/td3/test_td3.py"),
        breakage(
            "TD3's policy follows all critics",
            "nets.critic.first(data.observation",
            "nets.critic(data.observation",
        ),
    ),
    *of(
        "agents/d4pg/learner.py",
        ("tests/agents/d4pg/test_reference_step.py",),
        breakage(
            "D4PG's gradients by the action are not clipped",
            "max_norm=self.config.max_action_gradient",
            "max_norm=1e9",
        ),
    ),
    *of(
        "agents/r2d2/learner.py",
        ("tests/agents/r2d2/test_reference_step.py",),
        breakage(
            "R2D2's values are not transformed",
            "losses.transformed_n_step_targets(",
            "losses.n_step_targets(",
        ),
        breakage("R2D2's targets are of one step", "mask, config.n_step", "mask, 1"),
        breakage("R2D2's `double` means its opposite", "if config.double", "if not config.double"),
    ),
    *of(
        "agents/bc/learner.py",
        ("tests/agents/bc/test_reference_step.py",),
        breakage(
            "behaviour cloning takes actions at a bound for others",
            "actions.executed_log_prob(policy, data.action, self.low, self.high)",
            "policy.log_prob(data.action)",
        ),
    ),
    *of(
        "minerva_acme/constraints.py",
        ("tests/agents/mpo/test_config.py",),
        breakage("a config takes any layers", "WEIGHT_BYTES * num_weights <=", "0 <="),
    ),
]

ON_POLICY_AGENTS = [
    *of(
        "agents/on_policy/batch.py",
        ("tests/agents/impala/test_reference_step.py",),
        breakage(
            "V-trace corrects one-step advantages by GAE's lambda",
            '"dae": 0.0, ',
            '"dae": config.gae_lambda, ',
        ),
        breakage(
            "no action is stale",
            '"behaviour_log_prob_t": extras.log_prob',
            '"behaviour_log_prob_t": policy.log_prob(extras.raw_action)',
        ),
    ),
    *of(
        "agents/on_policy/batch.py",
        ("tests/agents/ppo/test_reference_step.py",),
        breakage(
            "ratios are to the stale policy",
            'log_prob=log_probs["log_prob_t"], parameters',
            'log_prob=log_probs["behaviour_log_prob_t"], parameters',
        ),
    ),
    *of(
        "agents/on_policy/batch.py",
        ("tests/agents/on_policy/test_memory.py",),
        breakage(
            "a memory's ends are those of the rollout's start",
            "states.append(state)",
            "states.append(past.state)",
        ),
    ),
    *of(
        "agents/acting.py",
        ("tests/agents/on_policy/test_memory.py",),
        breakage(
            "extras hold the state after the step",
            "self._act(features, state if",
            "self._act(features, state_after if",
        ),
    ),
    *of(
        "agents/ppo/learner.py",
        ("tests/agents/on_policy/test_memory.py",),
        breakage(
            "PPO takes environments in their order",
            "order = torch.randperm(num_environments, generator=generator, device=start.device)",
            "order = torch.arange(num_environments)",
        ),
        breakage(
            "PPO gives a minibatch the memory of other environments",
            "tuple(part[chosen] for part in state)",
            "tuple(part[: len(chosen)] for part in state)",
        ),
    ),
    *of(
        "agents/acting.py",
        (
            "tests/agents/mpo/test_acting.py",
            "tests/agents/on_policy/test_acting.py",
            "tests/agents/properties/test_acting.py",
            "tests/agents/on_policy/test_reference_acting.py",
        ),
        breakage(
            "the recorded density is that of the executed action",
            "BehaviourExtras(log_prob, raw",
            "BehaviourExtras(log_prob - np.asarray(self._raw_actions.log_det(torch.as_tensor(raw))), raw",
        ),
        breakage(
            "an agent records the executed action as the raw one",
            "log_prob, raw, recorded",
            "log_prob, self._raw_actions.to_environment(raw), recorded",
        ),
    ),
    *of(
        "agents/choosing.py",
        ("tests/agents/mpo/test_acting.py", "tests/agents/on_policy/test_acting.py"),
        breakage("an agent is evaluated by samples", "else output.mode()", "else output.sample(generator)"),
    ),
    *of(
        "agents/actions.py",
        (
            "tests/agents/on_policy/test_reference_acting.py",
            "tests/agents/on_policy/test_acting.py",
            "tests/agents/mpo/test_acting.py",
            "tests/agents/ppo/test_reference_step.py",
        ),
        breakage(
            "clipped actions leave the bounds",
            "return np.minimum(np.maximum(action, low), high)",
            "return action",
        ),
    ),
    *of(
        "minerva_acme/learners/optimizers.py",
        (
            "tests/agents/on_policy/test_learners.py",
            "tests/agents/mpo/test_reference_step.py",
            "tests/agents/properties/test_learners.py",
        ),
        breakage(
            "weight decay is not decoupled",
            "direct = acceleration.AdamW if decays else",
            "direct = acceleration.Adam if decays else",
        ),
    ),
    *of(
        "minerva_acme/learners/statistics.py",
        ("tests/agents/properties/test_shared_settings.py", "tests/agents/mpo/test_modern.py"),
        breakage(
            "statistics are those of every state",
            "observation = batches.at(observation, (slice(None), self._burn_in))",
            "pass",
        ),
        breakage(
            "statistics are those of the burn-in",
            "(slice(None), self._burn_in)",
            "(slice(None), 0)",
        ),
        breakage(
            "targets begin without statistics",
            "for normalizer in self._targets:",
            "for normalizer in ():",
        ),
        breakage(
            "one network alone has statistics",
            "learner_targets.update_target(norm, updated[name], num_steps)\n        if",
            "pass\n        if",
        ),
    ),
    *of(
        "agents/mpo/losses.py",
        ("tests/agents/mpo/test_reference_memory_step.py", "tests/agents/mpo/test_memory.py"),
        breakage(
            "MPO's target networks see what the online memory remembers",
            "self._encode(nets.target.encoder, observed",
            "self._encode(nets.online.encoder, observed",
        ),
        breakage(
            "MPO learns on the burn-in",
            "burn_in = self.config.burn_in\n",
            "burn_in = 0\n",
        ),
        breakage(
            "MPO's memory begins at zero",
            "networks.sequences(data, burn_in)",
            "networks.sequences(data._replace(state=()), burn_in)",
        ),
    ),
    *of(
        "agents/on_policy/batch.py",
        ON_POLICY,
        breakage("an episode's last value is the next one's first", "v_tp1[rows] = ", "_ = "),
        breakage("GAE's lambda is left out", "lambda_=config.gae_lambda", "lambda_=1.0"),
        breakage(
            "the update of a stale rollout begins with the policy that acted",
            'log_prob=log_probs["log_prob_t"], parameters',
            "parameters",
        ),
        breakage(
            "a stale rollout's KLs are from the policy that acted",
            ", parameters=extras.parameters and policy\n",
            "\n",
        ),
        breakage(
            "the scale of returns is that of rewards",
            '"return_so_far", rollout.return_so_far[',
            '"return_so_far", rollout.reward[',
        ),
        breakage("batches lack the log-determinant", "self._raw_actions.log_det(raw_action)", "0.0"),
    ),
    *of(
        "agents/on_policy/builder.py",
        (
            "tests/agents/on_policy/test_acting.py",
            "tests/agents/on_policy/test_builder.py",
            "tests/agents/on_policy/test_statistics.py",
            "tests/agents/on_policy/test_learners.py",
            "tests/agents/ppo/test_reference_step.py",
        ),
        breakage(
            "the scale of returns has gae_lambda for gamma",
            "layout=self.make_layout(spec), discount=self.config.discount",
            "layout=self.make_layout(spec), discount=self.config.gae_lambda",
        ),
        breakage(
            "on-policy evaluation explores",
            "choosing.mode if evaluation else",
            "choosing.sample if evaluation else",
        ),
        breakage(
            "on-policy Adam has torch's epsilon",
            "adam_epsilon=self.config.adam_epsilon",
            "adam_epsilon=1e-8",
        ),
        breakage(
            "rewards are scaled unasked", "scale_rewards=self.config.scale_rewards", "scale_rewards=True"
        ),
    ),
    *of(
        "agents/ppo/learner.py",
        PPO_LEARNER,
        breakage(
            "PPO takes the density of the executed action for that of the raw one",
            "raw_log_prob=rollout.log_prob,",
            "raw_log_prob=rollout.log_prob - rollout.log_det,",
        ),
        breakage(
            "PPO never shuffles",
            "torch.randperm(len(samples.value), generator=generator, device=samples.value.device)",
            "torch.arange(len(samples.value))",
        ),
        breakage(
            "PPO's minibatches are all samples",
            "num_samples // config.minibatch_size",
            "1",
        ),
    ),
    *of(
        "agents/on_policy/batch.py",
        PPO_LEARNER,
        breakage(
            "PPO's statistics change before its update",
            "def after(self, batch: learners.Batch, metrics: Mapping[str, Any], num_steps: int)",
            "def before(self, batch: learners.Batch, num_steps: int)",
        ),
    ),
    *of(
        "agents/on_policy/builder.py",
        PPO_LEARNER,
        breakage("PPO's learning rate stays", '"parts": [decay, *', '"parts": [*'),
        breakage(
            "PPO's gradient is not clipped",
            "learners.Group(optimizer, config.max_grad_norm)",
            'learners.Group(optimizer, float("inf"))',
        ),
    ),
    *of(
        "minerva_acme/acceleration/array_ppo.py",
        ("tests/acceleration/test_array_ppo.py", "tests/agents/ppo/test_reference_step.py"),
        breakage("PPO on arrays sums instead of means", "advantages * (-1.0 / n)", "-advantages"),
        breakage(
            "PPO's value gradient on arrays has no weight", "error * (value_coef / n)", "error * (1.0 / n)"
        ),
        breakage(
            "Adam on arrays forgets how far it is",
            '"step": self._state["step"].clone()',
            '"step": torch.tensor(0.0)',
        ),
    ),
    *of(
        "minerva_acme/acceleration/array_ppo.py",
        ("tests/acceleration/test_edits.py",),
        breakage(
            "PPO on arrays decays no weights",
            'weight_decay=group["weight_decay"]',
            "weight_decay=0.0",
        ),
        breakage(
            "PPO on arrays descends where the optimiser climbs",
            'maximize=group["maximize"]',
            "maximize=False",
        ),
        breakage(
            "PPO on arrays has decay in the gradient, where it is decoupled",
            'torch._fused_adamw_ if group["decoupled_weight_decay"]',
            "torch._fused_adamw_ if False",
        ),
    ),
    *of(
        "agents/on_policy/builder.py",
        VMPO_LEARNER,
        breakage(
            "V-MPO's gradient is not clipped",
            "learners.Group(optimizer, config.max_grad_norm)",
            'learners.Group(optimizer, float("inf"))',
        ),
    ),
    *of(
        "agents/vmpo/learner.py",
        VMPO_LEARNER,
        breakage("V-MPO takes all samples", "top_k_fraction=config.top_k_fraction", "top_k_fraction=1.0"),
    ),
    *of(
        "minerva_acme/learners/updates.py",
        ("tests/learners/test_updates.py", "tests/learners/test_module_learner.py"),
        breakage(
            "no gradient is clipped on a GPU",
            "(max_norm / (norm + acceleration.CLIPPING_EPSILON)).clamp(max=1.0)",
            "(max_norm / (norm + acceleration.CLIPPING_EPSILON)).clamp(min=1.0)",
        ),
        breakage("a GPU makes steps that are not finite", "(~may_step)", "(may_step & ~may_step)"),
        breakage("a GPU learns from a bad batch", "may_step & self._is_fit", "may_step"),
        breakage(
            "a GPU keeps the statistics of a bad batch",
            "torch.where(is_whole, buffer, value, out=buffer)",
            "pass",
        ),
        breakage("what a GPU skips in a row is forgotten", "torch.maximum(most, in_a_row)", "in_a_row"),
        breakage(
            "steps that are not finite are made", "try:\n            sizes.check()", "try:\n            pass"
        ),
        breakage("a bad gradient is not counted", "self._bad.append(error)", "pass"),
        breakage("statistics of a skipped batch stay", "buffer.copy_(value)", "pass"),
        breakage(
            "who reads sees half a step", "return self._turns.take()", "return contextlib.nullcontext()"
        ),
        breakage(
            "a step is counted twice",
            "            self.is_ahead = False\n            yield",
            "            yield",
        ),
    ),
    *of(
        "minerva_acme/learners/turns.py",
        ("tests/learners/test_turns.py",),
        breakage("who stops waiting keeps his turn", "self._left.add(number)", "pass"),
        breakage("all go at once", "lambda: self._called == number", "lambda: True"),
    ),
    *of(
        "minerva_acme/acceleration/array_ppo.py",
        ("tests/acceleration/test_array_ppo.py",),
        breakage("arrays step along what is not finite", "if grad_norm <= largest_norm:", "if True:"),
    ),
    *of(
        "minerva_acme/learners/finite.py",
        ("tests/learners/test_finite.py",),
        breakage("what is huge is let through", "if not size <= LARGEST:", "if not math.isfinite(size):"),
        breakage(
            "a sum of squares may be as large as a square",
            "specs.square(array.ravel()) <= LARGEST",
            "specs.square(array.ravel()) <= LARGEST * LARGEST * 9.0",
        ),
        breakage("no field is blamed that is nan", "nan_to_num(nan=torch.inf, ", "nan_to_num(nan=0.0, "),
    ),
    *of(
        "minerva_acme/learners/module_learner.py",
        ("tests/learners/test_module_learner.py",),
        breakage(
            "a learner always says that nothing is newer",
            "if newer_than == self.num_steps else",
            "if newer_than is not None else",
        ),
    ),
    *of(
        "minerva_acme/learners/optimizers.py",
        ("tests/learners/test_batches_and_optimizers.py",),
        breakage(
            "Adam has torch's epsilon", "(groups, eps=adam_epsilon, fused=", "(groups, eps=1e-8, fused="
        ),
        breakage("SGD has no momentum", "momentum=sgd_momentum, ", ""),
        breakage(
            "a slice of a wider tensor is taken as it lies",
            "    fused &= all(parameter.is_contiguous() for",
            "    fused &= True or all(parameter.is_contiguous() for",
        ),
        breakage(
            "only the first group's weights decay",
            'any(group.get("weight_decay") for group in groups)',
            'groups[0].get("weight_decay")',
        ),
    ),
    *of(
        "minerva_acme/acceleration/adam.py",
        ("tests/acceleration/test_adam.py",),
        breakage("AdamW decays what has no decay", "weight_decay=0.0, ", ""),
        breakage("Adam is not fused", ", fused=fused", ""),
    ),
    *of(
        "minerva_acme/learners/targets.py",
        ("tests/learners/test_targets.py",),
        breakage("a target takes the rest of the way", "(slow, fast, rate)", "(slow, fast, 1.0 - rate)"),
    ),
    *of(
        "minerva_acme/learners/averages.py",
        ("tests/agents/properties/test_averages.py",),
        breakage(
            "an average begins with the untrained policy",
            "max(self._rate, 1.0 / (num_steps + 1))",
            "self._rate",
        ),
        breakage(
            "an average never forgets", "max(self._rate, 1.0 / (num_steps + 1))", "1.0 / (num_steps + 1)"
        ),
    ),
    *of(
        "minerva_acme/experiments/parts.py",
        ("tests/agents/properties/test_averages.py",),
        breakage(
            "evaluations act by the newest weights",
            "self._source.poll_variables([self._names[name] for name in names], newer_than)",
            "self._source.poll_variables(names, newer_than)",
        ),
    ),
    *of(
        "minerva_acme/learners/loss_learner.py",
        ("tests/learners/test_loss_learner.py",),
        breakage(
            "targets move although the batch was skipped",
            "            self._update_targets(self.networks, self.num_steps + 1)\n"
            "            for part in self._parts:\n"
            "                part.after(batch, metrics, self.num_steps)\n",
            "            for part in self._parts:\n"
            "                part.after(batch, metrics, self.num_steps)\n"
            "        self._update_targets(self.networks, self.num_steps + 1)\n",
        ),
        breakage(
            "losses see no importance weights", "Batch(sample.data, weights,", "Batch(sample.data, 1.0,"
        ),
        breakage("estimates are of no batch", "estimates=found.estimates", "estimates=()"),
        breakage("a loss is minimised when it is not due", "if name in batch.due", "if True"),
        breakage("the log forgets the losses that are not due", "metrics |= self._last", "metrics |= {}"),
    ),
]

ADDERS = [
    *of(
        "adders/base.py",
        ("tests/adders/test_adder_calls.py", "tests/adders/test_priorities.py"),
        breakage(
            "items in a second table do not count",
            "self._num_inserted += 1",
            "self._num_inserted = self._num_inserted or 1",
        ),
        breakage(
            "a table gets another's priority",
            "for table, priority in priorities.items():",
            "for table, priority in zip(priorities, reversed(priorities.values())):",
        ),
    ),
    *of(
        "adders/sequence.py",
        ("tests/adders/test_sequence.py",),
        breakage(
            "an episode's end forgets the period", "episode.num_steps, episode.period)", "episode.num_steps)"
        ),
        breakage(
            "a sequence is shifted back too far",
            "return [episode.first_start]",
            "return [max(0, episode.first_start - 1)]",
        ),
        breakage("sequences start side by side", "self._next_start += self._period", "self._next_start += 1"),
        breakage(
            "an ended episode's sequences are lost", "self._ending = self._ask_at_end()", "self._ending = []"
        ),
    ),
    *of(
        "adders/sequence.py",
        ("tests/adders/test_continuing.py",),
        breakage(
            "continuing sequences never overlap",
            "self._next_start += self._period",
            "self._next_start += self._length",
        ),
    ),
    *of(
        "adders/sequence.py",
        ("tests/adders/test_episode.py",),
        breakage(
            "an episode without a step is written",
            "if self._last_step == 0:\n            return []",
            "if self._last_step == 0:\n            return [0]",
        ),
    ),
    *of(
        "adders/n_step.py",
        ("tests/adders/test_n_step.py", "tests/adders/test_priorities.py"),
        breakage(
            "n-step transitions are one step too long",
            "len(started) == self._n_step",
            "len(started) == self._n_step + 1",
        ),
        breakage(
            "a reset loses n-step transitions",
            "due = self._fold(self._started, len(self._started))",
            "due = []",
        ),
        breakage(
            "n-step images are those of one step",
            "row=self._num_transitions, start=start,",
            "row=self._num_transitions, start=self._num_steps - 1,",
        ),
    ),
    *of(
        "adders/rollout.py",
        ("tests/adders/test_rollout.py",),
        breakage(
            "the steps of an unfinished rollout are not restored",
            "for t in range(num_rows):",
            "for t in range(0):",
        ),
    ),
    *of(
        "adders/forking.py",
        ("tests/adders/test_forking.py",),
        breakage("a fork goes on where an adder refused", "self.reset()\n                raise", "raise"),
        breakage("a fork stops at what has to wait", "timeout = timeout or error\n", "raise\n"),
        breakage(
            "a filter keeps all extras", "return {name: fields[name] for name in self._keep}", "return fields"
        ),
    ),
]

REPLAY = [
    *of(
        "minerva_acme/replay/memory/table.py",
        ("tests/replay/memory/test_store.py", "tests/replay/test_conformance.py"),
        breakage(
            "the newest item is never drawn",
            "(self._generator.random(count) * span).astype",
            "(self._generator.random(count) * max(span - 1, 1)).astype",
        ),
        breakage("selections do not know what leaves", "selection.remove(number)", "pass"),
        breakage(
            "a restored table has the selections of an empty one",
            'numbers["generator"]\n        self._rebuild()',
            'numbers["generator"]',
        ),
    ),
    *of(
        "minerva_acme/replay/selectors.py",
        (
            "tests/replay/memory/test_store.py",
            "tests/replay/memory/test_selectors.py",
            "tests/replay/test_conformance.py",
        ),
        breakage(
            "first in, first out gives the newest",
            "np.full(count, self._items.first)",
            "np.full(count, self._items.end - 1)",
        ),
        breakage(
            "last in, first out gives the oldest",
            "np.full(count, self._items.end - 1)",
            "np.full(count, self._items.first)",
        ),
        breakage(
            "priorities lack their exponent",
            "float(priority**self._selector.exponent) if priority else 0.0",
            "priority",
        ),
        breakage(
            "changed priorities lack their exponent",
            "np.array([self._weight(priority) for priority in priorities.tolist()])",
            "priorities",
        ),
        breakage(
            "a probability is a weight", "self._tree.weights(places) / total", "self._tree.weights(places)"
        ),
        breakage("who left keeps its weight", "self._tree.set(number % self._capacity, 0.0)", "pass"),
    ),
    *of(
        "minerva_acme/replay/messages.py",
        ("tests/replay/memory/test_store.py", "tests/replay/test_conformance.py"),
        breakage("the samples per insert count from zero", "start = float(ratio * min_size)", "start = 0.0"),
        breakage(
            "a queue holds one item too many",
            "Limits(1.0, 1, 0.0, float(capacity))",
            "Limits(1.0, 1, 0.0, float(capacity + 1))",
        ),
    ),
    *of(
        "minerva_acme/replay/reverb/writer.py",
        ("tests/replay/reverb/test_store.py", "tests/replay/test_conformance.py"),
        breakage(
            "Reverb's windows are always the newest rows",
            "list(column.references)[start : start + window.length]",
            "list(column.references)[-window.length :]",
        ),
        breakage(
            "Reverb's rows are the caller's memory",
            "{name: row.copy() for name, row in rows.items()}",
            "dict(rows)",
        ),
    ),
    *of(
        "minerva_acme/replay/reverb/store.py",
        ("tests/replay/reverb/test_store.py", "tests/replay/test_conformance.py"),
        breakage(
            "Reverb forgets how often to sample",
            "max_times_sampled=config.max_times_sampled",
            "max_times_sampled=0",
        ),
    ),
]

LOOPS = [
    *of(
        "minerva_acme/actors/recurrent.py",
        ("tests/actors/test_recurrent.py",),
        breakage(
            "an episode makes other environments forget",
            "new, leaf[index + 1 :]]",
            "new, 0 * leaf[index + 1 :]]",
        ),
        breakage(
            "a recurrent actor remembers nothing",
            "output, self._state = self._policy.step(",
            "output, _ = self._policy.step(",
        ),
    ),
    *of(
        "minerva_acme/actors/feed_forward.py",
        ("tests/actors/test_feed_forward.py",),
        breakage(
            "an actor's extras are used twice",
            "extras, self._extras = self._extras, ()\n        if",
            "extras = self._extras\n        if",
        ),
        breakage(
            "all environments share the first one's extras",
            "extras, self._extras[index] = self._extras[index], ()",
            "extras = self._extras[0]",
        ),
    ),
    *of(
        "minerva_acme/environments/vector_loop.py",
        ("tests/environments/test_vector_loop.py",),
        breakage(
            "steps before a failure are not counted",
            "        finally:  # even if something failed, every observed step is counted\n",
            "        except ZeroDivisionError:\n            pass\n        if True:\n",
        ),
    ),
    *of(
        "minerva_acme/specs.py",
        ("tests/wrappers/test_spec_check.py",),
        breakage(
            "what is huge passes",
            "square(value.ravel()) <= largest * largest",
            "square(value.ravel()) < np.inf",
        ),
    ),
    *of(
        "minerva_acme/specs.py",
        ("tests/test_specs.py",),
        breakage(
            "whole numbers are rounded",
            'return cast if kinds[0] == "f" or (cast == array).all() else array',
            "return cast",
        ),
        breakage(
            "discrete numbers from elsewhere leave their bounds",
            "if self._converts and isinstance(spec, specs.DiscreteArray):",
            "if False:",
        ),
        breakage("a tensor of another device passes", " or value.device.type != kind", ""),
    ),
]

WRAPPERS = [
    *of(
        "minerva_acme/wrappers/action_repeat.py",
        ("tests/wrappers/test_action_repeat.py",),
        breakage(
            "repeats keep the last reward",
            "reward = reward_sum.add(reward, timestep.reward)",
            "reward = timestep.reward",
        ),
    ),
    *of(
        "minerva_acme/wrappers/canonical_action.py",
        ("tests/wrappers/test_canonical_action.py",),
        breakage(
            "canonical actions reach half of the range",
            "0.5 * (spec.maximum - spec.minimum)",
            "0.25 * (spec.maximum - spec.minimum)",
        ),
    ),
    *of(
        "minerva_acme/environments/gymnasium_adapter.py",
        ("tests/environments/test_gymnasium_adapter.py",),
        breakage(
            "truncated and terminated are mixed up",
            "observation, reward, terminated, truncated, self._info",
            "observation, reward, truncated, terminated, self._info",
        ),
        breakage(
            "a seed is used once more",
            "seed, self._next_seed = self._next_seed, None",
            "seed = self._next_seed",
        ),
    ),
    *of(
        "minerva_acme/environments/gymnasium_vector.py",
        ("tests/environments/test_gymnasium_vector.py",),
        breakage(
            "a vector's terminals go on",
            "discounts = 1 - np.asarray(terminated, np.float32)",
            "discounts = np.ones(self.num_environments, np.float32)",
        ),
        breakage(
            "a vector's time limits are terminals",
            "discounts = 1 - np.asarray(terminated, np.float32)",
            "discounts = 1 - np.asarray(self._ended, np.float32)",
        ),
        breakage(
            "a vector's last observation is the next first",
            "reward, discount, lasts[index])",
            "reward, discount, observations[index])",
        ),
    ),
    *of(
        "minerva_acme/wrappers/frame_stack.py",
        ("tests/wrappers/test_frame_stack.py",),
        breakage("frames are stacked newest first", "*self._frames))", "*reversed(self._frames)))"),
    ),
    *of(
        "minerva_acme/wrappers/concat_observation.py",
        ("tests/wrappers/test_concat_observation.py",),
        breakage(
            "observations are joined in the order they come",
            "sorted(spec) if is_flat",
            "list(spec) if is_flat",
        ),
    ),
    *of(
        "minerva_acme/wrappers/step_limit.py",
        ("tests/wrappers/test_step_limit.py",),
        breakage(
            "a step limit is a terminal",
            "timestep._replace(step_type=dm_env.StepType.LAST)",
            "timestep._replace(step_type=dm_env.StepType.LAST, discount=0.0)",
        ),
        breakage(
            "a step limit is one step late",
            "self._num_steps == self._max_steps",
            "self._num_steps == self._max_steps + 1",
        ),
    ),
]

EXPERIMENTS = [
    *of(
        "minerva_acme/distributed/actor_node.py",
        ("tests/distributed/test_inline_ends.py",),
        breakage(
            "an actor that ends waits for replay without an end", "time.monotonic() >= leaves_at", "False"
        ),
    ),
    *of(
        "minerva_acme/runs/policies.py",
        ("tests/runs/test_evaluation.py", "tests/runs/test_policies.py"),
        breakage("a loaded policy has not learned", "policy.set_variables(values)", "list(values)"),
    ),
    *of(
        "minerva_acme/runs/checkpointing.py",
        ("tests/runs/test_checkpointing.py",),
        breakage("a checkpoint counts while it is written", 'f".unfinished-{final.name}"', "final.name"),
    ),
    *of(
        "minerva_acme/experiments/evaluator.py",
        (
            "tests/experiments/test_evaluator.py",
            "tests/experiments/test_exact_resume.py::"
            "test_evaluations_that_draw_from_global_generators_leave_training_alone",
            *RUN,
        ),
        breakage(
            "evaluation plays in the training environment",
            "contextlib.closing(made) as environment",
            "contextlib.nullcontext(self._run.environment) as environment",
        ),
        breakage(
            "an evaluation moves the global generators",
            "return run_seeds.GlobalGenerators(run.config.torch_device).seeded(",
            "return (lambda *_: contextlib.nullcontext())(",
        ),
    ),
    *of(
        "minerva_acme/experiments/run.py",
        ("tests/experiments/test_exact_resume.py", "tests/experiments/test_run_hooks.py", *RUN),
        breakage(
            "an evaluation after the checkpoint stays in the logs",
            "evaluator=evaluations.logged_until",
            "evaluator=run.env_steps",
        ),
    ),
    *of(
        "minerva_acme/loggers/tensorboard.py",
        ("tests/loggers/test_tensorboard.py",),
        breakage("TensorBoard's files keep what is made again", "_cut(path, last)\n        self", "self"),
    ),
    *of(
        "minerva_acme/runs/run_lock.py",
        ("tests/runs/test_run_lock.py", *RUN),
        breakage("a run waits for the lock", "fcntl.LOCK_EX | fcntl.LOCK_NB", "fcntl.LOCK_SH"),
    ),
    *of(
        "minerva_acme/experiments/rescue.py",
        ("tests/experiments/test_rescue.py",),
        breakage("an error in closing hides the one before", "raise self._error", "raise"),
    ),
    *of(
        "minerva_acme/experiments/parts.py",
        ("tests/experiments/test_evaluator.py", "tests/experiments/test_exact_resume.py", *RUN),
        breakage("evaluation explores", "run.spec, generator, evaluation=True)", "run.spec, generator)"),
        breakage(
            "a policy that is evaluated draws what was not saved",
            'generator("evaluation", played.device, index=run.steps)',
            'generator("evaluation", index=id(run))',
        ),
    ),
    *of(
        "minerva_acme/experiments/signals.py",
        ("tests/experiments/test_signals.py",),
        breakage(
            "the second signal is only another request",
            "raise KeyboardInterrupt(self._ended())",
            "return",
        ),
        breakage("one request is enough to be deaf", "self._num, self._first_at = 1, now", "self._num = 2"),
        breakage("an echo of the second interrupts again", "self._heard_at = now", "self._heard_at = 0.0"),
        breakage(
            "a wait outlasts a signal",
            "waiting.rules(lambda: bool(request), is_alone=True)",
            "waiting.rules(is_alone=True)",
        ),
    ),
    *of(
        "minerva_acme/experiments/interrupts.py",
        ("tests/experiments/test_signals.py",),
        breakage("nohup is of no use", "is not signal.SIG_IGN:", "is not None:"),
    ),
    *of(
        "minerva_acme/experiments/saver.py",
        ("tests/experiments/test_saver.py", "tests/experiments/test_exact_resume.py", *RUN),
        breakage(
            "a checkpoint waits for the end of an episode for ever", "unsaved //= 2 if", "unsaved *= 0 if"
        ),
    ),
]

REPORTS = [
    *of(
        "minerva_acme/plotting/statistics.py",
        ("tests/plotting/test_statistics.py",),
        breakage(
            "tasks with more seeds count more",
            "num_scores / (len(by_task) * len(task))",
            "num_scores / num_scores",
        ),
        breakage(
            "only one agent's seeds are resampled",
            "task[rows[:, :, None], columns[:, None, :]]",
            "task[rows[:, :, None], np.arange(task.shape[1])]",
        ),
    ),
    *of(
        "minerva_acme/results/experiment.py",
        ("tests/results/test_experiment.py",),
        breakage(
            "a training that is made again is there twice",
            "replaced = set(new.trainings)",
            "replaced = set()",
        ),
    ),
]

MOVED = [
    *of(
        "agents/choosing.py",
        ("tests/agents/off_policy/test_acting.py",),
        breakage("all environments explore together", "torch.rand(len(best),", "torch.rand(1,"),
    ),
    *of(
        "minerva_acme/replay/layouts/trajectories.py",
        ("tests/adders/test_frame_stacks.py",),
        breakage("stacks reach into the episode before", "(step.first.long() * times)", "(0 * times)"),
    ),
    *of(
        "minerva_acme/replay/layouts/trajectories.py",
        ("tests/adders/test_frame_stacks.py",),
        breakage("padding moves on in stacks", "(happened * times)", "times[None].expand_as(happened)"),
    ),
    *of(
        "minerva_acme/replay/layouts/trajectories.py",
        ("tests/adders/test_frame_stacks.py",),
        breakage(
            "stacks begin with the newest frame",
            "torch.arange(self._frame_stack - 1, -1, -1",
            "torch.arange(self._frame_stack",
        ),
    ),
    *of(
        "minerva_acme/replay/layouts/trajectories.py",
        ("tests/adders/test_frame_stacks.py",),
        breakage("stacks of another order are stored", "newest -= not row", "newest -= 0 * row"),
    ),
    *of(
        "minerva_acme/replay/layouts/transitions.py",
        ("tests/adders/test_frame_stacks.py",),
        breakage(
            "a transition's stack is not checked",
            "before[name][1:], after[name][:-1]",
            "before[name], before[name]",
        ),
    ),
    *of(
        "minerva_acme/replay/layouts/trajectories.py",
        ("tests/replay/test_layouts.py", "tests/adders/test_sequence.py", "tests/adders/test_n_step.py"),
        breakage(
            "padding repeats a whole step",
            "np.zeros(*column) for name, column",
            "rows[name].copy() for name, column",
        ),
    ),
    *of(
        "minerva_acme/replay/layouts/transitions.py",
        ("tests/replay/test_layouts.py", "tests/adders/test_sequence.py", "tests/adders/test_n_step.py"),
        breakage(
            "a transition's parts are in another order",
            "[observation, step.action, {",
            "[step.action, observation, {",
        ),
    ),
    *of(
        "minerva_acme/runs/evaluation.py",
        ("tests/runs/test_evaluation.py", "tests/experiments/test_run_hooks.py"),
        breakage("an evaluation plays one episode", "while max(left) > 0:", "while not episodes:"),
    ),
    *of(
        "minerva_acme/runs/policies.py",
        ("tests/runs/test_evaluation.py", "tests/runs/test_policies.py"),
        breakage(
            "a loaded policy checks nothing",
            "loaded_policy.LoadedPolicy(policy, spec.observations, to_task, from_task, source=str(found))",
            "policy",
        ),
    ),
    *of(
        "minerva_acme/runs/policies.py",
        ("tests/runs/test_evaluation.py", "tests/runs/test_policies.py"),
        breakage("a loaded policy explores", "evaluation=not explore", "evaluation=False"),
    ),
    *of(
        "minerva_acme/runs/run_folder.py",
        ("tests/runs/test_run_folder.py",),
        breakage(
            "a run lacks the hyperparameters that are newer", "defaults = self._defaults()", "defaults = {}"
        ),
    ),
    *of(
        "minerva_acme/runs/run_folder.py",
        ("tests/runs/test_run_folder.py",),
        breakage("a newer format is read", "found <= FORMAT", "found <= 99"),
    ),
    *of(
        "minerva_acme/runs/checkpointing.py",
        ("tests/runs/test_checkpointing.py",),
        breakage("the oldest good checkpoint is used", "in reversed([entry", "in list([entry"),
    ),
    *of(
        "minerva_acme/runs/checkpointing.py",
        ("tests/runs/test_checkpointing.py",),
        breakage("a choice is not noted", "left=entry in left, start", "left=False, start"),
    ),
    *of(
        "minerva_acme/runs/checkpointing.py",
        ("tests/runs/test_checkpointing.py",),
        breakage(
            "the newest checkpoints are dropped",
            "list(newest.values())[-self._keep :]",
            "list(newest.values())[: self._keep]",
        ),
    ),
    *of(
        "minerva_acme/runs/checkpointing.py",
        ("tests/runs/test_checkpointing.py",),
        breakage(
            "half of a removed checkpoint counts", "entry.folder.rename(hidden)", "hidden = entry.folder"
        ),
    ),
    *of(
        "minerva_acme/runs/checkpointing.py",
        ("tests/runs/test_checkpointing.py",),
        breakage("another content of the same size is good", "== digest", "!= ''"),
    ),
    *of(
        "minerva_acme/runs/checkpointing.py",
        ("tests/runs/test_checkpointing.py",),
        breakage(
            "a manifest can be changed",
            'content.pop("sha256") != _digest(content)',
            'not content.pop("sha256")',
        ),
    ),
    *of(
        "minerva_acme/runs/checkpointing.py",
        ("tests/runs/test_checkpointing.py",),
        breakage("the best is the worst", "(e.evaluation, -", "(-e.evaluation, -"),
    ),
    *of(
        "minerva_acme/runs/run_logs.py",
        ("tests/runs/test_run_logs.py", *RUN),
        breakage("rows after the checkpoint stay", "self._csv[label].cut(steps_key, step)", "0"),
    ),
]

SIDE_BY_SIDE = [
    *of(
        "minerva_acme/learners/updates.py",
        ("tests/agents/test_side_by_side.py",),
        breakage("each learner follows its own gradient", "self.ranks.average_([", "list(["),
        breakage(
            "one learner skips a batch alone", "self.ranks is not None and not is_elsewhere", "is_elsewhere"
        ),
    ),
    *of(
        "minerva_acme/learners/statistics.py",
        ("tests/agents/test_side_by_side.py",),
        breakage("statistics are those of a share", "rows = self.ranks.gather(rows)", "pass"),
    ),
    *of(
        "minerva_acme/learners/ranks.py",
        ("tests/learners/test_ranks.py", "tests/agents/test_side_by_side.py"),
        breakage("gradients are summed", "means /= self.size", "pass"),
        breakage("shares with few steps count as much", "weights * own / everyone", "weights + 0 * everyone"),
        breakage("all learners draw the same noise", "if self.rank:", "if False:"),
        breakage("networks may differ", "!= sums).any()", "!= sums).all() and False"),
    ),
    *of(
        "agents/on_policy/learner.py",
        ("tests/agents/test_side_by_side.py",),
        breakage("advantages are normalised over a share", "if self.ranks is None:", "if True:"),
    ),
    *of(
        "agents/ppo/learner.py",
        ("tests/agents/test_side_by_side.py",),
        breakage("each learner stops by its own KL", "self.ranks.average_([rows[-1]])", "pass"),
        breakage("each learner updates PPO's network on arrays", "alone=self.ranks is None", "alone=True"),
    ),
    *of(
        "agents/mpo/losses.py",
        ("tests/agents/test_side_by_side.py",),
        breakage("steps of MPO count by share", "self.ranks.balance(trained_on.mask)", "trained_on.mask"),
    ),
    *of(
        "minerva_acme/learners/loss_learner.py",
        ("tests/agents/test_side_by_side.py",),
        breakage(
            "learners' updates cross each other", "in_order = self.ranks is not None", "in_order = False"
        ),
    ),
    *of(
        "minerva_acme/distributed/shared_dataset.py",
        ("tests/distributed/test_shared_dataset.py",),
        breakage("a learner steps while another waits", "most == _HAS_BATCH", "self._batches"),
        breakage("one that leaves looks done", "most == _LEAVES", "False"),
    ),
]

MUTANTS = [
    *SIDE_BY_SIDE,
    *MOVED,
    *LOSSES,
    *NETWORKS,
    *MPO,
    *ON_POLICY_AGENTS,
    *ADDERS,
    *REPLAY,
    *LOOPS,
    *WRAPPERS,
    *EXPERIMENTS,
    *REPORTS,
]
