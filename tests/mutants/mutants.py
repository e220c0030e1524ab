"""The mutants: file by file, what is done wrong there and which tests must notice."""

from typing import NamedTuple

from .harness import Mutant

# Learner steps beside ones written out by hand come first: they notice most.
MPO_LEARNER = ("tests/agents/mpo/test_reference_step.py", "tests/agents/mpo/test_learner.py")
VMPO_LEARNER = (
    "tests/agents/vmpo/test_reference_step.py",
    "tests/agents/vmpo/test_learner.py",
    "tests/agents/on_policy/test_learners.py",
)
PPO_LEARNER = (
    "tests/agents/ppo/test_reference_step.py",
    "tests/agents/ppo/test_learner.py",
    "tests/agents/test_skipping.py",
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
        breakage("padding counts in the critic's loss", "mask_t > 0", "mask_t >= 0"),
        breakage("the critic's target has a gradient", "q_t - target_t.detach()", "q_t - target_t"),
        breakage(
            "the critic's mean is over padding too", "happened_t.sum().clamp(min=1)", "happened_t.numel()"
        ),
        breakage("the critic's error is absolute", "error_t.square()", "error_t.abs()"),
        breakage("a distribution's loss counts padding", "happened_t = mask > 0", "happened_t = mask >= 0"),
    ),
    *of(
        "minerva_acme/losses/categorical.py",
        ("tests/losses/test_categorical.py",),
        breakage("returns beyond the atoms are lost", "returns.clamp(atoms[0], atoms[-1])", "returns"),
        breakage("the gaps above and below an atom are swapped", "offset > 0.0", "offset < 0.0"),
        breakage("the Gaussian of HL-Gauss is wider", "math.sqrt(2.0) * sigma", "2.0 * sigma"),
        breakage("HL-Gauss is not normalised", "cdf[..., -1:] - cdf[..., :1]", "2.0"),
        breakage("the target distribution has a gradient", "target_probs.detach()", "target_probs"),
        breakage(
            "padding reaches the logits' gradient", "happened, logits, 0.0", "happened | True, logits, 0.0"
        ),
    ),
    *of(
        "minerva_acme/losses/mixture.py",
        ("tests/losses/test_mixture.py",),
        breakage("the density is not normalised", "- scale.log() - _LOG_SQRT_2PI", "- _LOG_SQRT_2PI"),
        breakage("the target's returns have a gradient", "returns.detach()", "returns"),
        breakage("a return's probability is not used", "weights * log_prob", "log_prob / log_prob.shape[-1]"),
    ),
    *of(
        "minerva_acme/networks/critic_heads.py",
        ("tests/networks/test_critic_heads.py",),
        breakage("the minimum is the maximum", "min(dim=0).indices", "max(dim=0).indices"),
        breakage("a terminal step bootstraps", "discount_t.unsqueeze(-1) * self.values", "self.values"),
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
        "minerva_acme/losses/diagnostics.py",
        ("tests/losses/test_diagnostics.py",),
        breakage("the unexplained variance is reported", "1.0 - ratio, 0.0", "ratio, 0.0"),
        breakage("equal targets count as explained", "1.0 - ratio, 0.0", "1.0 - ratio, 1.0"),
    ),
    *of(
        "minerva_acme/losses/duals.py",
        ("tests/losses/test_duals.py",),
        breakage(
            "V-MPO's temperature starts from its parameter",
            "_inverse_softplus(init_temperature))",
            "init_temperature)",
        ),
        breakage("a multiplier has no lower bound", "return x.clamp(min=bound)", "return x.clone()"),
        breakage(
            "a multiplier below its bound stays there", "(x >= ctx.bound) | (grad < 0.0)", "x >= ctx.bound"
        ),
        breakage(
            "a multiplier falls on below its bound",
            "torch.where((x >= ctx.bound) | (grad < 0.0), grad, 0.0), None",
            "grad, None",
        ),
        breakage(
            "a multiplier is the exponential of its parameter",
            "nn.functional.softplus(raw)",
            "torch.exp(raw)",
        ),
        breakage(
            "alpha of the stddev starts as that of the mean",
            "(num_dimensions,), init_log_alpha_stddev",
            "(num_dimensions,), init_log_alpha_mean",
        ),
    ),
    *of(
        "minerva_acme/losses/mpo.py",
        ("tests/losses/test_mpo.py",),
        breakage("the temperature loss trains Q", "q_BN = q_BN.detach()", "pass"),
        breakage(
            "Q is multiplied by the temperature",
            "(q_BN - max_q_B[:, None]) / temperature\n        log_mean",
            "(q_BN - max_q_B[:, None]) * temperature\n        log_mean",
        ),
        breakage("the temperature loss lacks the maximum", " + max_q_B.mean()", ""),
        breakage("weights sum to 1 over states", ".log_softmax(dim=1)", ".log_softmax(dim=0)"),
        breakage("the E-step lacks log N", "logsumexp(dim=1) + log_prior", "logsumexp(dim=1)"),
        breakage(
            "the E-step's bound has the wrong sign",
            "(epsilon + log_mean_exp_B.mean())",
            "(log_mean_exp_B.mean() - epsilon)",
        ),
        breakage("weights have a gradient", "scaled_q_BN.detach().log_softmax", "scaled_q_BN.log_softmax"),
        breakage("KL to uniform lacks log N", "(log_weights_BN - log_prior)", "log_weights_BN"),
        breakage("the E-step's prior is forgotten", "/ temperature + log_prior", "/ temperature"),
        breakage(
            "an action that is never taken has a weight",
            "scaled_q_BN.masked_fill(never_BN, _NEVER)",
            "scaled_q_BN",
        ),
        breakage(
            "the action penalty rewards", "return -(actions_BND - actions", "return (actions_BND - actions"
        ),
        breakage("the action penalty is a mean over D", ".square().sum(dim=2)", ".square().mean(dim=2)"),
        breakage(
            "MPO's KL is the reverse one", "frozen.kl_per_dimension(part)", "part.kl_per_dimension(frozen)"
        ),
        breakage("MPO's KL is a sum over the batch", "(part).mean(dim=0)", "(part).sum(dim=0)"),
        breakage(
            "MPO's whole KL is a mean over D", "kl.sum(dim=0, keepdim=True)", "kl.mean(dim=0, keepdim=True)"
        ),
        breakage("the KL penalty trains alpha", "alpha.detach() * kl", "alpha * kl"),
        breakage(
            "the KL penalty lacks the stddev", "functools.reduce(operator.add, penalties_K)", "penalties_K[0]"
        ),
        breakage(
            "alpha falls where its bound is broken", "(epsilon - kl.detach())", "(kl.detach() - epsilon)"
        ),
        breakage("the alpha loss trains the policy", "(epsilon - kl.detach())", "(epsilon - kl)"),
        breakage(
            "the alpha loss is a mean over D",
            "(epsilon - kl.detach())).sum()",
            "(epsilon - kl.detach())).mean()",
        ),
        breakage(
            "MPO's likelihood is a mean over actions", "log_prob_NB).sum(dim=0)", "log_prob_NB).mean(dim=0)"
        ),
        breakage("MPO's likelihood has the wrong sign", "return -(weights_BN", "return (weights_BN"),
    ),
    *of(
        "minerva_acme/losses/n_step.py",
        ("tests/losses/test_n_step.py",),
        breakage(
            "one-step targets are not discounted", "return r_t + discount_t * v_tp1", "return r_t + v_tp1"
        ),
        breakage("n-step targets are not discounted", "discount_t[:, t] * target_t", "target_t"),
        breakage(
            "n-step targets read padding", "torch.where(happened_t[:, t + 1]", "torch.where(happened_t[:, t]"
        ),
        breakage("n-step targets leave the last sum out", "target_t.shape[1] - 1", "target_t.shape[1] - 2"),
        breakage(
            "n-step targets have a value per step", "continued, target_t[:, t])", "target_t[:, t], continued)"
        ),
    ),
    *of(
        "minerva_acme/losses/retrace.py",
        ("tests/losses/test_retrace.py",),
        breakage("Retrace's traces are not cut at 1", ".clamp(max=0.0)", ""),
        breakage("Retrace lacks lambda", "c_t = lambda_ * torch", "c_t = torch"),
        breakage(
            "Retrace's ratio is upside down",
            "(log_prob_t - behaviour_log_prob_t)",
            "(behaviour_log_prob_t - log_prob_t)",
        ),
        breakage("Retrace's trace is one step early", "c_t[:, 1:]", "c_t[:, :-1]"),
        breakage("Retrace's trace is not discounted", "discount_t[:, :-1] * c_t", "c_t"),
        breakage(
            "Retrace's discount is one step late", "discount_t[:, :-1] * c_t", "discount_t[:, 1:] * c_t"
        ),
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
        breakage("Retrace's error is the target", "discount_t * v_tp1 - q_t", "discount_t * v_tp1"),
        breakage("Retrace's value is not discounted", "r_t + discount_t * v_tp1", "r_t + v_tp1"),
        breakage("Retrace returns the correction alone", "return q_t + g_t", "return g_t"),
    ),
    *of(
        "minerva_acme/losses/ppo.py",
        ("tests/losses/test_ppo.py",),
        breakage(
            "PPO takes the larger surrogate",
            "is_clipped = ((ratio > clipped_ratio) & (advantages >= 0.0))",
            "is_clipped = ((ratio > clipped_ratio) & (advantages < 0.0))",
        ),
        breakage("PPO lowers the surrogate", "policy_loss = -(torch.where", "policy_loss = (torch.where"),
        breakage(
            "PPO clips on one side",
            "ratio.clamp(1.0 - clip_ratio, 1.0 + clip_ratio)",
            "ratio.clamp(max=1.0 + clip_ratio)",
        ),
        breakage(
            "PPO's ratio is upside down",
            "log_ratio = log_prob - behaviour_log_prob\n    ratio = log_ratio.detach()",
            "log_ratio = behaviour_log_prob - log_prob\n    ratio = log_ratio.detach()",
        ),
        breakage(
            "PPO takes the smaller value error",
            "clipped_error.abs() > error.detach().abs()",
            "clipped_error.abs() < error.detach().abs()",
        ),
        breakage("PPO's value error is not halved", "0.5 * error.square().mean()", "error.square().mean()"),
        breakage(
            "PPO punishes entropy",
            "total=policy_loss + value_coef * value_loss -",
            "total=policy_loss + value_coef * value_loss +",
        ),
        breakage(
            "PPO's value error has no weight",
            "total=policy_loss + value_coef * value_loss",
            "total=policy_loss + value_loss",
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
            "PPO reports the share that is not clipped",
            "(ratio != clipped_ratio).float()",
            "(ratio == clipped_ratio).float()",
        ),
        breakage("advantages keep their mean", "(exact - mean) / (stddev", "exact / (stddev"),
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
        breakage("returns lack the value behind the rollout", "trace_t[-1] = 0.0", "pass"),
        breakage("discounted returns are one step long", "last_t, lambda_=1.0)", "last_t, lambda_=0.0)"),
        breakage(
            "GAE goes on across the ends of episodes",
            "lambda_ * discount_t * (1.0 - last_t))",
            "lambda_ * discount_t)",
        ),
        breakage(
            "GAE lacks lambda", "lambda_ * discount_t * (1.0 - last_t))", "discount_t * (1.0 - last_t))"
        ),
        breakage(
            "GAE's traces are not discounted",
            "lambda_ * discount_t * (1.0 - last_t))",
            "lambda_ * (1.0 - last_t))",
        ),
        breakage(
            "GAE's next value is not discounted",
            "delta_t = r_t + discount_t * v_tp1 - v_t",
            "delta_t = r_t + v_tp1 - v_t",
        ),
        breakage(
            "GAE's target is the advantage",
            "RolloutTargets(advantage_t, v_t + advantage_t)",
            "RolloutTargets(advantage_t, advantage_t)",
        ),
        breakage(
            "one-step advantages keep the value",
            "v_tp1\n    return RolloutTargets(target_t - v_t, target_t)",
            "v_tp1\n    return RolloutTargets(target_t, target_t)",
        ),
        breakage(
            "sums go backward by the wrong decays",
            "decay_t = decay_t[:-span] * decay_t[span:]",
            "decay_t = decay_t[:-span] * decay_t[:-span]",
        ),
        breakage(
            "sums go backward with decays of the next step",
            "decay_t = decay_t[:-1]  #",
            "decay_t = decay_t[1:]  #",
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
            "V-MPO rounds the number of samples up", "math.floor(top_k_fraction", "math.ceil(top_k_fraction"
        ),
        breakage(
            "V-MPO's temperature loss lacks the maximum",
            "(m.sum() + _TINY).log()) + max_score",
            "(m.sum() + _TINY).log())",
        ),
        breakage("V-MPO's temperature loss lacks log k", " - (m.sum() + _TINY).log())", ")"),
        breakage(
            "V-MPO's bound has the wrong sign",
            "temperature * (epsilon + total",
            "temperature * (-epsilon + total",
        ),
        breakage(
            "V-MPO's temperature loss trains the advantages",
            "scores = restart * advantages.detach()",
            "scores = restart * advantages",
        ),
        breakage(
            "V-MPO's weights have a gradient", "(unnormalized / total).detach()", "unnormalized / total"
        ),
        breakage("V-MPO forgets importance weights", "m * importance * s_less_max", "m * s_less_max"),
        breakage("V-MPO forgets restarting weights", "m = selected * restart", "m = selected"),
        breakage(
            "V-MPO selects samples that may not count", "masked_fill(restart <= 0.0, -torch.inf)", "clone()"
        ),
        breakage(
            "V-MPO's policy loss has the wrong sign",
            "return -(weights.detach() * log_prob)",
            "return (weights.detach() * log_prob)",
        ),
        breakage(
            "V-MPO's policy loss trains its weights",
            "-(weights.detach() * log_prob)",
            "-(weights * log_prob)",
        ),
        breakage(
            "V-MPO's KL by the mean lacks a half",
            "(2.0 * (2.0 * frozen.log_std).exp() + _TINY)",
            "((2.0 * frozen.log_std).exp() + _TINY)",
        ),
        breakage(
            "V-MPO's KL by the mean is under the online stddev",
            "(2.0 * frozen.log_std).exp()",
            "(2.0 * online.log_std).exp()",
        ),
        breakage(
            "V-MPO's KL by the stddev is the reverse one",
            "parts._make(frozen.kl(part) for part in parts)",
            "parts._make(part.kl(frozen) for part in parts)",
        ),
        breakage(
            "V-MPO's KL trains the behaviour policy", "frozen = behaviour.detach()", "frozen = behaviour"
        ),
        breakage(
            "V-MPO's KL is a mean over all samples",
            "(selected * x).sum() / selected.sum()",
            "(selected * x).mean()",
        ),
        breakage("V-MPO's value error is not halved", "return 0.5 * (value", "return (value"),
        breakage("V-MPO's value target has a gradient", "(value - target.detach())", "(value - target)"),
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
        "minerva_acme/networks/actor_critic.py",
        ("tests/networks/test_memory.py",),
        breakage(
            "the burn-in has a gradient",
            "with torch.no_grad():\n                _, state",
            "if True:\n                _, state",
        ),
        breakage(
            "the burn-in warms nothing up",
            "                _, state = self.memory(steps[:burn_in], state, start[:burn_in])",
            "                self.memory(steps[:burn_in], state, start[:burn_in])",
        ),
    ),
    *of(
        "minerva_acme/distributions/gaussian.py",
        ("tests/distributions/test_gaussian.py",),
        breakage("the Gaussian density lacks its constant", " - _LOG_SQRT_2PI).sum", ").sum"),
        breakage("the Gaussian density lacks log sigma", "z.square() - self.log_std -", "z.square() -"),
        breakage(
            "a Gaussian sample takes log sigma for sigma",
            "self.log_std.exp() * noise",
            "self.log_std * noise",
        ),
        breakage("Gaussian entropy lacks a half", "_LOG_SQRT_2PI + 0.5)", "_LOG_SQRT_2PI)"),
        breakage(
            "the Gaussian KL takes its own sigma for the mean",
            "torch.exp(-other.log_std)",
            "torch.exp(-self.log_std)",
        ),
        breakage(
            "the Gaussian KL has the ratio upside down",
            "(self.log_std - other.log_std)",
            "(other.log_std - self.log_std)",
        ),
    ),
    *of(
        "minerva_acme/distributions/categorical.py",
        ("tests/distributions/test_categorical.py",),
        breakage("the likeliest action is drawn least", "self.logits - noise", "self.logits + noise"),
        breakage(
            "a category's probability is not normalised",
            "log_p = self.logits.log_softmax(dim=-1)\n        log_p = log_p.expand",
            "log_p = self.logits\n        log_p = log_p.expand",
        ),
        breakage(
            "categorical entropy has the wrong sign",
            "return -(log_p.exp() * log_p)",
            "return (log_p.exp() * log_p)",
        ),
        breakage(
            "the categorical KL is a difference of logits",
            "(log_p - other.logits.log_softmax(dim=-1))",
            "(log_p - other.logits)",
        ),
    ),
    *of(
        "minerva_acme/distributions/squashed.py",
        ("tests/distributions/test_squashed.py",),
        breakage(
            "the log-determinant lacks the scale",
            "return log_slope + torch.log(0.5 * (self.high - self.low))",
            "return log_slope",
        ),
        breakage("the log-determinant lacks a factor of 2", "log_slope = 2.0 * (math", "log_slope = (math"),
        breakage(
            "a squashed action is off by its lower bound",
            "self.low + (torch.tanh(raw) + 1.0)",
            "(torch.tanh(raw) + 1.0)",
        ),
        breakage("a bound's raw action is infinite", "unit.clamp(_MARGIN - 1.0, 1.0 - _MARGIN)", "unit"),
    ),
    *of(
        "minerva_acme/networks/normalizer.py",
        ("tests/networks/test_normalizer.py",),
        breakage(
            "statistics lack the shift between batches",
            "delta.square() * (weight * (1.0 - weight))",
            "0.0",
        ),
        breakage(
            "statistics weigh every batch alike",
            "self.mean.add_(delta * weight)",
            "self.mean.add_(0.5 * delta)",
        ),
        breakage("statistics forget how much they saw", "self.count.copy_(total)", "pass"),
        breakage(
            "normalised observations are not clipped",
            "rsqrt(self.var + MIN_VARIANCE)).clamp(-CLIP, CLIP)",
            "rsqrt(self.var + MIN_VARIANCE))",
        ),
        breakage("normalised observations keep their mean", "((x - self.mean) * torch", "(x * torch"),
        breakage("scaled rewards are not clipped", "(x * inverse_std).clamp(-CLIP, CLIP)", "x * inverse_std"),
        breakage(
            "extreme rows enter the statistics", "rows.abs() <= constraints.LARGEST", "rows.abs() <= 1e300"
        ),
        breakage("rows that are left out count", "n = is_taken.sum()", "n = torch.tensor(len(rows))"),
    ),
    *of(
        "minerva_acme/networks/critic.py",
        ("tests/networks/test_critic.py",),
        breakage(
            "the critic takes actions beyond the bounds", "torch.clamp(action, self.low, self.high)", "action"
        ),
    ),
    *of(
        "minerva_acme/networks/policy.py",
        ("tests/networks/test_policy.py",),
        breakage(
            "the policy's stddev has no limits",
            "self.log_std_head(features).clamp(MIN_LOG_STD, MAX_LOG_STD)",
            "self.log_std_head(features)",
        ),
        breakage(
            "the policy starts with log sigma for sigma",
            "return math.log(initial_stddev)",
            "return initial_stddev",
        ),
    ),
    *of(
        "minerva_acme/networks/actor_critic.py",
        ("tests/networks/test_actor_critic.py",),
        breakage(
            "the value sees what is not normalised",
            "self.value_head(torso(self._encode(self.normalize(observation), past)))",
            "self.value_head(torso(self._encode(observation, past)))",
        ),
        breakage(
            "the value takes the policy's features",
            "value_features = torso(",
            "torso(",
        ),
        breakage(
            "the policy's loss always trains the encoder",
            'encoded.detach() if self._encoder_loss == "value" else encoded',
            "encoded",
        ),
        breakage(
            "the value's loss always trains the encoder",
            'encoded.detach() if self._encoder_loss == "policy" else encoded',
            "encoded",
        ),
    ),
    *of(
        "minerva_acme/networks/encoders.py",
        ("tests/networks/test_encoders.py",),
        breakage("bytes are not scaled", ".float() / _LARGEST_BYTE", ".float()"),
        breakage("channels first are taken as last", "shape[0] < shape[2]", "False"),
        breakage(
            "height and width change places in stacks", "permute(0, 1, 4, 2, 3)", "permute(0, 1, 4, 3, 2)"
        ),
        breakage(
            "leaves change places", "for encoder, leaf in leaves]", "for encoder, leaf in [*leaves][::-1]]"
        ),
    ),
    *of(
        "minerva_acme/networks/normalizer.py",
        ("tests/networks/test_normalizer.py",),
        breakage("images are normalised too", " or encoders.is_image(leaf))", ")"),
    ),
    *of(
        "minerva_acme/acceleration/array_actor_critic.py",
        ("tests/acceleration/test_array_actor_critic.py",),
        breakage("arrays lose the value's part of a shared torso", "d_features += d_value_features", "pass"),
        breakage("arrays train a clamped stddev", "d_log_std *= self._is_within", "pass"),
        breakage(
            "arrays lack a category's entropy gradient",
            "d_logits -= (self._log_p",
            "d_logits += (self._log_p",
        ),
    ),
    *of(
        "minerva_acme/acceleration/array_layers.py",
        ("tests/acceleration/test_array_layers.py",),
        breakage("arrays lack the slope of tanh", "slope *= d_y", "slope[:] = d_y"),
        breakage("arrays lack the slope of ELU", "d_y *= slope", "pass"),
        breakage("arrays pass on what ReLU cut", "d_y *= y > _ZERO", "pass"),
        breakage(
            "arrays pass on what a large ReLU cut", "torch.from_numpy(y), 0)", "torch.from_numpy(y), -1)"
        ),
        breakage("arrays lack the mean's part of a LayerNorm", "d_y -= d_y.dot(self._average)", "pass"),
        breakage("arrays lack the deviation's part of a LayerNorm", "d_y -= self._n * slope", "pass"),
        breakage(
            "arrays leave out a layer that comes twice",
            "module._modules.values() if",
            "module.children() if",
        ),
        breakage("arrays lose the bias of a large product", "None if bias is None else", "None and"),
    ),
    *of(
        "minerva_acme/acceleration/acting.py",
        ("tests/agents/test_acting_on_arrays.py",),
        breakage("a dueling critic acts by its advantages plus their mean", "q -= q.mean(", "q += q.mean("),
        breakage("squashed actions miss their lowest value", "        y += low\n", ""),
        breakage(
            "the smallest value is acted upon as the mean",
            "ensemble.members], ensemble.rule",
            'ensemble.members], "mean"',
        ),
    ),
    *of(
        "minerva_acme/acceleration/acting.py",
        ("tests/acceleration/test_acting.py",),
        breakage("acting by arrays records the wrong density", "z -= log_std", "z += log_std"),
        breakage("acting by arrays draws with log sigma", "raw *= stddev", "raw *= log_std"),
        breakage(
            "acting by arrays restores no noise", 'self._random.bit_generator.state = state["random"]', "pass"
        ),
    ),
]

MPO = [
    *of(
        "agents/mpo/learner.py",
        MPO_LEARNER,
        breakage(
            "MPO's targets are evaluated by the online policy",
            "policy = self._target.policy(features)",
            "policy = self._online.policy(features)",
        ),
        breakage(
            "MPO's targets are evaluated by the online critic",
            "self._acceleration.target_critic(self._target.critic",
            "self._acceleration.target_critic(self._online.critic",
        ),
        breakage(
            "MPO's E-step takes the policy at the second state",
            "policy.at((slice(None), 0))",
            "policy.at((slice(None), 1))",
        ),
        breakage(
            "MPO's E-step values actions at the second state",
            "self._target_q(features[:, 0],",
            "self._target_q(features[:, 1],",
        ),
        breakage(
            "MPO's policy is trained at the second state",
            "features = features[:, 0].detach()",
            "features = features[:, -1].detach()",
        ),
        breakage(
            "MPO's learner never copies rounded weights",
            "online.encoder.state_dict())\n            self._target_critic.refresh()",
            "online.encoder.state_dict())",
        ),
        breakage(
            "MPO's restored learner has old rounded weights",
            "super().restore(state)\n        self._target_critic.restored()",
            "super().restore(state)",
        ),
        breakage("MPO makes one M-step", "range(config.m_steps)", "range(1)"),
        breakage("MPO forgets gamma", "batch.discount * self._config.discount", "batch.discount"),
        breakage(
            "MPO's target policy follows the critic's period",
            "self._num_steps % config.target_policy_update_period",
            "self._num_steps % config.target_critic_update_period",
        ),
        breakage(
            "MPO's target critic follows the policy's period",
            "self._num_steps % config.target_critic_update_period",
            "self._num_steps % config.target_policy_update_period",
        ),
        breakage(
            "MPO's target critic stays", "target.critic.load_state_dict(online.critic.state_dict())", "pass"
        ),
        breakage(
            "MPO's target policy stays", "target.policy.load_state_dict(online.policy.state_dict())", "pass"
        ),
        breakage(
            "MPO's critic learns from all steps always",
            'slice(1 if config.critic_loss_steps == "first" else None)',
            "slice(None)",
        ),
        breakage(
            "MPO's critic learns from padding",
            "prediction, target, steps.mask)",
            "prediction, target, torch.ones_like(steps.mask))",
        ),
        breakage(
            "MPO's critic learns at the following states",
            "(slice(None), slice(-1))))",
            "(slice(None), slice(1, None))))",
        ),
        breakage(
            "MPO has no KL penalty", "sum(likelihood) + losses.kl_penalty(kls, *alphas)", "sum(likelihood)"
        ),
        breakage("MPO never trains the stddev", "sum(likelihood) + losses", "likelihood.mean + losses"),
        breakage("MPO's duals learn at every M-step", "if m_step == 0:", "if True:"),
        breakage(
            "MPO skips a batch for what its padding holds",
            "learners.where_unmasked(batch.mask, critic_targets)",
            "critic_targets",
        ),
        breakage(
            "MPO skips a batch for the rewards of its padding",
            "learners.where_unmasked(batch.mask, batch.reward)",
            "batch.reward",
        ),
        breakage(
            "MPO's samples are all the same",
            "actions_NBD, log_prior_NB = first.points(self._generator, self._config.num_samples)",
            "actions_NBD, log_prior_NB = first.points(self._generator, self._config.num_samples)\n"
            "        actions_NBD = actions_NBD[:1].expand(actions_NBD.shape)",
        ),
        breakage(
            "MPO gives out the target policy",
            '"policy": self._online.acting(),',
            '"policy": self._target.acting(),',
        ),
        breakage("MPO does not save its duals", '                "duals": self._duals,\n', ""),
        breakage(
            "MPO does not save its noise",
            "            generator=generator,\n        )\n\n    def step",
            "        )\n\n    def step",
        ),
    ),
    *of(
        "agents/mpo/improvement.py",
        MPO_LEARNER,
        breakage("MPO drops the penalty's weights", "weights = weights + penalty.weights", "pass"),
        breakage(
            "MPO drops the penalty's temperature loss",
            "temperature_loss = temperature_loss + penalty.temperature_loss",
            "pass",
        ),
        breakage(
            "MPO's penalty has the values' bound",
            "duals.penalty_temperature(), config.epsilon_penalty)",
            "duals.penalty_temperature(), config.epsilon)",
        ),
        breakage(
            "MPO's E-step has the mean's bound",
            "duals.temperature(), config.epsilon,",
            "duals.temperature(), config.epsilon_mean,",
        ),
        breakage(
            "MPO's stddev has the mean's bound",
            '"stddev": config.epsilon_stddev',
            '"stddev": config.epsilon_mean',
        ),
        breakage("MPO's duals learn from the E-step alone", "loss = loss + alpha_loss", "pass"),
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
        breakage("a critic's own loss is forgotten", 'if hasattr(module, "loss"):', "if False:"),
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
        "agents/mpo/learner.py",
        ("tests/agents/mpo/test_encoder.py",),
        breakage(
            "MPO's policy trains the encoder unasked",
            "features = features[:, 0].detach()",
            "features = features[:, 0]",
        ),
        breakage(
            "MPO's target encoder stays",
            "target.encoder.load_state_dict(online.encoder.state_dict())",
            "pass",
        ),
    ),
    *of(
        "minerva_acme/distributions/categorical.py",
        ("tests/distributions/test_protocol.py",),
        breakage(
            "a mask is turned round",
            "torch.where(legal, self.logits, largest + _MASKED)",
            "torch.where(legal, largest + _MASKED, self.logits)",
        ),
    ),
    *of(
        "agents/mpo/optimizers.py",
        MPO_LEARNER,
        breakage(
            "MPO trains the temperature at alpha's rate",
            "config.temperature_learning_rate)",
            "config.alpha_learning_rate)",
        ),
        breakage(
            "MPO trains alpha at the temperature's rate",
            "config.alpha_learning_rate)",
            "config.temperature_learning_rate)",
        ),
        breakage(
            "MPO trains the critic at the policy's rate",
            "config.critic_learning_rate)",
            "config.policy_learning_rate)",
        ),
        breakage(
            "MPO's M-steps share no rate",
            "config.policy_learning_rate / config.m_steps",
            "config.policy_learning_rate",
        ),
        breakage("MPO's Adam has torch's epsilon", "adam_epsilon=config.adam_epsilon", "adam_epsilon=1e-8"),
        breakage("MPO's SGD has no momentum", "sgd_momentum=config.sgd_momentum", "sgd_momentum=0.0"),
        breakage(
            "MPO's gradients are not clipped",
            "learners.Group(optimizer, config.max_grad_norm)",
            "learners.Group(optimizer, math.inf)",
        ),
        breakage("biases and norms decay too", "parameter.ndim > 1]", "parameter.ndim > 0]"),
        breakage(
            "weights have norm 1 at the start alone",
            "optimizer.register_step_post_hook(lambda *_: project(torsos))",
            "pass",
        ),
        breakage(
            "MPO's penalty has no trained temperature",
            "temperatures.append(duals.penalty_temperature)",
            "pass",
        ),
    ),
    *of(
        "agents/mpo/targets.py",
        ("tests/agents/mpo/test_targets.py", "tests/agents/mpo/test_reference_step.py"),
        breakage(
            "V(s') is of the policy at s",
            "policy.at(_TP1), critic, num_actions",
            "policy.at(_T), critic, num_actions",
        ),
        breakage(
            "V(s') is at s",
            "sampled_values(trajectory.observation[_TP1]",
            "sampled_values(trajectory.observation[_T]",
        ),
        breakage(
            "Retrace's Q is of the action before", "trajectory.action[:, 1:])", "trajectory.action[:, :-1])"
        ),
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
            "Retrace's ratio is of the next state", "policy.at(_T).log_prob", "policy.at(_TP1).log_prob"
        ),
        breakage(
            "n-step targets take all steps as made",
            "fold(v_tp1, trajectory.reward, discount_t, trajectory.mask)",
            "fold(v_tp1, trajectory.reward, discount_t, torch.ones_like(trajectory.mask))",
        ),
        breakage("Retrace's values are one step early", "q_after_0, (1, 0)", "q_after_0, (0, 1)"),
    ),
    *of(
        "minerva_acme/acceleration/target_critic.py",
        ("tests/acceleration/test_target_critic.py",),
        breakage("bfloat16 copies are never refreshed", "rounded.copy_(weight)", "pass"),
        breakage(
            "the target critic takes actions beyond the bounds", "torch.clamp(action, low, high)", "action"
        ),
    ),
    *of(
        "minerva_acme/acceleration/target_critic.py",
        ("tests/acceleration/test_edits.py",),
        breakage(
            "a target critic's settings are not looked at",
            "all(map(_has_known_settings, [*critic.torso.modules(), critic.head]))",
            "True",
        ),
        breakage(
            "a target critic is never compared",
            "if self._agreement.holds():",
            "if self._watch.is_unchanged():",
        ),
        breakage(
            "a target critic's replaced parts are not seen", "if not self._watch.is_unchanged():", "if False:"
        ),
        breakage(
            "a disagreeing target critic is taken",
            "Pair(found, wanted, tolerance)):",
            "Pair(found, wanted, tolerance)) or True:",
        ),
    ),
    *of(
        "minerva_acme/acceleration/agreement.py",
        ("tests/acceleration/test_agreement.py",),
        breakage("a hook that comes later is not seen", "if any(self._empty) or", "if"),
        breakage("other data is not seen", "[*map(torch.Tensor.data_ptr, self._tensors)],", ""),
        breakage("a replaced layer is not seen", "all(map(operator.is_, held, self._seen_held))", "True"),
        breakage("an edited class is not seen", "[kind.forward for kind in kinds],", ""),
        breakage(
            "what is not a number agrees", "not difference <= pair.tolerance", "difference > pair.tolerance"
        ),
        breakage("a disagreement is forgotten", "self.is_broken = True", "pass"),
        breakage("a batch that is not finite breaks the agreement", "bool(x.isfinite().all())", "True"),
        breakage("small tensors hide behind large ones", "_ROUNDING = 1e-3", "_ROUNDING = 1.0"),
    ),
    *of(
        "agents/mpo/builder.py",
        ("tests/agents/mpo/test_builder.py", "tests/agents/mpo/test_reference_step.py"),
        breakage(
            "MPO acts by the wrong policy",
            'self._config.acting_policy == "online"',
            'self._config.acting_policy == "target"',
        ),
        breakage(
            "MPO's evaluation explores",
            "            acting.GreedyPolicy\n            if evaluation",
            "            acting.BehaviourPolicy\n            if evaluation",
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
        "agents/off_policy/config.py",
        ("tests/agents/off_policy/test_config.py",),
        breakage("a replay may never fill", "self.min_replay_size > self.max_replay_size", "False"),
        breakage("a period may lose transitions", "self.sequence_period > self.sequence_length", "False"),
    ),
    *of(
        "agents/off_policy/builder.py",
        ("tests/agents/off_policy/test_builder.py", "tests/agents/off_policy/test_priorities.py"),
        breakage(
            "steps are owed for what filled the replay",
            "num_inserted - self._config.min_replay_size",
            "num_inserted",
        ),
        breakage(
            "an agent's sequences start side by side", "period=self._config.sequence_period", "period=1"
        ),
        breakage("an agent's transitions are of one step", "n_step=self._config.n_step", "n_step=1"),
        breakage(
            "the draw lacks the priorities' exponent",
            "replay.Prioritized(priorities.priority_exponent)",
            "replay.Prioritized(1.0)",
        ),
        breakage(
            "importance weights never correct fully",
            "importance_exponent, 1.0, num_learner_steps",
            "importance_exponent, 0.9, num_steps",
        ),
        breakage(
            "schedules see no steps",
            "counter=counter,\n            mode",
            "counter=None,\n            mode",
        ),
    ),
    *of(
        "agents/off_policy/networks.py",
        ("tests/agents/off_policy/test_networks.py", "tests/agents/test_transition_agents.py"),
        breakage(
            "importance weights are not used",
            "torch.ones_like(value) * batch.weights",
            "torch.ones_like(value)",
        ),
        breakage("priorities grow beyond those of new items", ".abs().clamp(max=1.0)", ".abs()"),
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
        breakage(
            "SAC's entropy counts at a terminal",
            "data.reward + data.discount * entropy_bonus",
            "data.reward + entropy_bonus",
        ),
        breakage(
            "SAC's policy trains the temperature",
            "nets.temperature().detach(), -log_prob",
            "nets.temperature(), -log_prob",
        ),
        breakage("SAC's temperature is of no target", "(entropy - self.target_entropy)", "entropy"),
        breakage(
            "SAC bootstraps from the trained critic", "returns = nets.target_critic", "returns = nets.critic"
        ),
    ),
    *of(
        "agents/td3/learner.py",
        ("tests/agents/td3/test_reference_step.py", "tests/agents/td3/test_td3.py"),
        breakage(
            "TD3's noise is not clipped",
            "(self.config.target_stddev * noise).clamp(-clip, clip)",
            "self.config.target_stddev * noise",
        ),
        breakage("TD3's noise is in units of the action", "0.5 * (high - low) * noise", "noise"),
        breakage("TD3's smoothed action leaves its bounds", "* noise).clamp(low, high)", "* noise)"),
        breakage(
            "TD3's policy follows all critics",
            "nets.critic.first(observation",
            "nets.critic(observation",
        ),
        breakage("TD3's target is of the trained policy", "nets.target_policy(data", "nets.policy(data"),
    ),
    *of(
        "agents/d4pg/learner.py",
        ("tests/agents/d4pg/test_reference_step.py",),
        breakage("D4PG's target is of the trained policy", "nets.target_policy(data", "nets.policy(data"),
        breakage(
            "D4PG's gradients by the action are not clipped",
            "max_norm=self.config.max_action_gradient",
            "max_norm=1e9",
        ),
    ),
    *of(
        "minerva_acme/losses/dpg.py",
        ("tests/losses/test_dpg.py",),
        breakage("a policy goes down its critic", "return -(clipped", "return (clipped"),
        breakage("small gradients by the action are blown up", "norm.clamp(min=max_norm)", "norm"),
    ),
    *of(
        "agents/dqn/learner.py",
        ("tests/agents/dqn/test_reference_step.py",),
        breakage("DQN is always double", "if self.config.double else target", "if True else target"),
        breakage("DQN clips no error", ".clamp(-largest, largest)", ""),
        breakage("DQN is never double", "if self.config.double else target", "if False else target"),
    ),
    *of(
        "minerva_acme/networks/critic.py",
        ("tests/agents/dqn/test_reference_step.py", "tests/agents/dqn/test_dqn.py"),
        breakage(
            "advantages do not add up to nothing", "numbers - numbers.mean(dim=-2, keepdim=True)", "numbers"
        ),
    ),
    *of(
        "agents/off_policy/acting.py",
        ("tests/agents/off_policy/test_acting.py",),
        breakage(
            "actions are random for one step too many",
            "if env_steps >= num_steps:",
            "if env_steps > num_steps:",
        ),
        breakage(
            "noise has no scale", "stddev(env_steps) * scale * torch.randn", "stddev(env_steps) * torch.randn"
        ),
        breakage("all environments explore together", "torch.rand(len(best),", "torch.rand(1,"),
        breakage(
            "nobody explores unless all do",
            "min(chances.tolist()) >= share",
            "max(chances.tolist()) >= share",
        ),
        breakage(
            "epsilon is the greedy share",
            "torch.where(chances < share",
            "torch.where(chances >= share",
        ),
        breakage(
            "a module acts by its first weights for ever",
            "weight.copy_(torch.from_numpy(state[name]))",
            "pass",
        ),
        breakage(
            "actions leave their bounds",
            "array if bounds is None else array.clip(*bounds)",
            "array",
        ),
    ),
    *of(
        "minerva_acme/constraints.py",
        ("tests/agents/mpo/test_config.py",),
        breakage("a config takes any number", "if holds(value):", "if True:"),
        breakage("a config takes any layers", "_WEIGHT_BYTES * num_weights <=", "0 <="),
        breakage("a config takes any word", "typing.get_origin(hint) is Literal", "False"),
    ),
]

ON_POLICY_AGENTS = [
    *of(
        "agents/on_policy/batch.py",
        ("tests/agents/on_policy/test_memory.py",),
        breakage("the burn-in is learned from", "past and past._replace(burn_in=self._burn_in)", "past"),
        breakage(
            "a memory's ends are those of the rollout's start",
            "states.append(state)",
            "states.append(past.state)",
        ),
        breakage(
            "a memory is filled with the last step's state",
            "tuple(part[0] for part in rollout.extras.state)",
            "tuple(part[-1] for part in rollout.extras.state)",
        ),
    ),
    *of(
        "agents/acting.py",
        ("tests/agents/on_policy/test_memory.py",),
        breakage(
            "extras hold the state after the step",
            "extras._replace(state=state)",
            "extras._replace(state=tuple(part.numpy() for part in state_after))",
        ),
        breakage(
            "weights do not reach what is behind the memory",
            "        self._policy.set_variables(values)\n",
            "",
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
            "tests/agents/on_policy/test_reference_acting.py",
        ),
        breakage(
            "the recorded density is that of the executed action",
            "BehaviourExtras(log_prob, raw",
            "BehaviourExtras(log_prob - np.asarray(self._raw_actions.log_det(torch.as_tensor(raw))), raw",
        ),
        breakage(
            "an agent is evaluated by samples",
            "self._policy.mode(observations)",
            "self._policy.sample(observations).raw",
        ),
        breakage(
            "an agent acts by its first weights for ever",
            "parameter.copy_(torch.from_numpy(state[name]))",
            "pass",
        ),
        breakage(
            "an agent records the executed action as the raw one",
            "log_prob, raw, recorded",
            "log_prob, action, recorded",
        ),
        breakage(
            "an agent records no parameters",
            "tree.map_structure(np.asarray, parameters) if self._record_parameters else ()",
            "()",
        ),
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
            "on arrays the log-determinant lacks the scale",
            "np.add.reduce(log_slope + self._log_half, -1)",
            "np.add.reduce(log_slope, -1)",
        ),
        breakage(
            "clipped actions leave the bounds",
            "return np.minimum(np.maximum(raw, self._low), self._high)",
            "return raw",
        ),
    ),
    *of(
        "minerva_acme/learners/optimizers.py",
        (
            "tests/agents/on_policy/test_learners.py",
            "tests/agents/mpo/test_reference_step.py",
            "tests/agents/test_optimizers.py",
        ),
        breakage(
            "the learning rate rises", "1.0 - (1.0 - self._final_share)", "1.0 + (1.0 - self._final_share)"
        ),
        breakage("the learning rate falls to 0", "(1.0 - self._final_share) * share_done", "share_done"),
        breakage("the learning rate falls in the log alone", 'group["lr"] = left * first_rate', "pass"),
        breakage(
            "weight decay is not decoupled",
            "(acceleration.AdamW if decays else",
            "(acceleration.Adam if decays else",
        ),
    ),
    *of(
        "minerva_acme/networks/torso.py",
        ("tests/networks/test_torso.py",),
        breakage("a block is not residual", "return x + added", "return added"),
        breakage("a block has no LayerNorm", "self.expand(self.norm(x))", "self.expand(x)"),
        breakage(
            "columns, not units, have norm 1", "dim=1, keepdim=True).clamp", "dim=0, keepdim=True).clamp"
        ),
    ),
    *of(
        "agents/mpo/learner.py",
        ("tests/agents/mpo/test_modern.py",),
        breakage(
            "MPO's statistics are those of every state",
            "firsts = learners.at(batch.observation, (slice(None), 0))",
            "firsts = batch.observation",
        ),
        breakage("MPO's statistics stay", "self._statistics.update(norm, name, rows)", "pass"),
    ),
    *of(
        "agents/acting.py",
        ("tests/agents/mpo/test_modern.py",),
        breakage("noise is new at every step", "if self._num_steps % self._noise_repeat:", "if False:"),
        breakage("noise is never new", "if self._num_steps % self._noise_repeat:", "if self._num_steps:"),
    ),
    *of(
        "agents/on_policy/batch.py",
        ON_POLICY,
        breakage("on-policy targets forget gamma", "rollout.discount * self._discount", "rollout.discount"),
        breakage("an episode's last value is the next one's first", "v_tp1.view(-1)[ends] = ", "_ = "),
        breakage("GAE's lambda is left out", "lambda_=config.gae_lambda", "lambda_=1.0"),
        breakage(
            "the scale of returns stays",
            'self._statistics.update(self._return_norm, "return_so_far", rollout.return_so_far[..., None])',
            "pass",
        ),
        breakage(
            "rewards are not scaled",
            "return self._return_norm.scale(rollout.reward)",
            "return rollout.reward",
        ),
        breakage(
            "the scale of returns is that of rewards",
            '"return_so_far", rollout.return_so_far[',
            '"return_so_far", rollout.reward[',
        ),
        breakage(
            "the learner sees what is not normalised",
            "_flat(self._network.normalize(rollout.observation))",
            "_flat(rollout.observation)",
        ),
        breakage(
            "observation statistics stay",
            "self._statistics.update(norm, name, rows)",
            "pass",
        ),
        breakage("no estimator but GAE is heard", 'config.advantage_estimator == "gae"', "True"),
        breakage("the scale of returns is not saved", '{"return_norm": self._return_norm}', "{}"),
        breakage("batches lack the log-determinant", "self._raw_actions.log_det(raw_action)", "0.0"),
    ),
    *of(
        "minerva_acme/learners/statistics.py",
        ("tests/agents/test_skipping.py",),
        breakage("nobody hears of a normaliser that is blinded", "growth > _SUSPICIOUS_GROWTH", "False"),
        breakage("nobody hears of rows that are left out", "not (left_out or growth", "not (growth"),
    ),
    *of(
        "agents/on_policy/builder.py",
        (
            "tests/agents/on_policy/test_builder.py",
            "tests/agents/on_policy/test_statistics.py",
            "tests/agents/on_policy/test_learners.py",
            "tests/agents/ppo/test_reference_step.py",
        ),
        breakage(
            "the scale of returns has gae_lambda for gamma",
            "layout=self._layout(spec), discount=self._config.discount",
            "layout=self._layout(spec), discount=self._config.gae_lambda",
        ),
        breakage(
            "on-policy evaluation explores",
            "acting.GreedyPolicy if evaluation else",
            "acting.BehaviourPolicy if evaluation else",
        ),
        breakage(
            "on-policy Adam has torch's epsilon",
            "adam_epsilon=self._config.adam_epsilon",
            "adam_epsilon=1e-8",
        ),
        breakage("rollouts are learned from again", "max_times_sampled=1", "max_times_sampled=2"),
        breakage("rollouts are fetched ahead", "prefetch=0", "prefetch=1"),
        breakage(
            "rewards are scaled unasked", "scale_rewards=self._config.scale_rewards", "scale_rewards=True"
        ),
        breakage(
            "the run is taken for one of more updates",
            "num_env_steps // (self._config.rollout_steps *",
            "num_env_steps // (self._config.rollout_length *",
        ),
    ),
    *of(
        "agents/on_policy/config.py",
        ("tests/agents/on_policy/test_config.py",),
        breakage(
            "environments make unequal parts of a rollout",
            "self.rollout_steps % self.num_environments",
            "False",
        ),
        breakage(
            "a shared torso has two sizes",
            "self.shared_torso and self.policy_layer_sizes != self.value_layer_sizes",
            "False",
        ),
    ),
    *of(
        "agents/ppo/learner.py",
        PPO_LEARNER,
        breakage(
            "PPO takes the density of the executed action for that of the raw one",
            "raw_log_prob=batch.log_prob,",
            "raw_log_prob=batch.log_prob - batch.log_det,",
        ),
        breakage(
            "PPO stops early where the KL is small",
            "learners.read(rows[-1][_APPROX_KL]) > config.target_kl",
            "learners.read(rows[-1][_APPROX_KL]) < config.target_kl",
        ),
        breakage("PPO never stops early", "if config.target_kl and learners", "if False and learners"),
        breakage("PPO makes an epoch more", "range(config.num_epochs)", "range(config.num_epochs + 1)"),
        breakage(
            "PPO never shuffles",
            "torch.randperm(len(samples.value), generator=generator, device=samples.value.device)",
            "torch.arange(len(samples.value))",
        ),
        breakage(
            "PPO's minibatches are all samples",
            "len(tree.flatten(samples.observation)[0]) // config.minibatch_size",
            "1",
        ),
        breakage(
            "PPO's statistics change before its update",
            "batch = self._preparer.prepare(rollout)\n"
            "            metrics |= self._improve(batch)\n"
            "            self._preparer.update_observation_statistics(rollout)",
            "self._preparer.update_observation_statistics(rollout)\n"
            "            batch = self._preparer.prepare(rollout)\n"
            "            metrics |= self._improve(batch)",
        ),
        breakage(
            "PPO's gradient is not clipped",
            "learners.Group(self._optimizer, config.max_grad_norm)",
            'learners.Group(self._optimizer, float("inf"))',
        ),
        breakage(
            "PPO does not normalise advantages",
            "advantages = losses.normalize_advantages(advantages, unbiased=True)",
            "pass",
        ),
        breakage(
            "PPO goes on where gradients are not finite",
            'learners.require_finite({"gradients": torch.stack(rows)[:, _NORM]})',
            "pass",
        ),
        breakage(
            "PPO does not save what it shuffles by",
            "            generator=generator,\n        )\n\n    def step",
            "        )\n\n    def step",
        ),
    ),
    *of(
        "minerva_acme/acceleration/array_ppo.py",
        ("tests/acceleration/test_array_ppo.py", "tests/agents/ppo/test_reference_step.py"),
        breakage("a plain step that was compared is not taken back", "            before.restore()\n", ""),
        breakage("PPO on arrays has gradients where it is clipped", "d_log_prob[is_clipped] = 0.0", "pass"),
        breakage("PPO on arrays sums instead of means", "advantages * (-1.0 / n)", "-advantages"),
        breakage(
            "PPO's value gradient on arrays has no weight", "error * (value_coef / n)", "error * (1.0 / n)"
        ),
        breakage(
            "PPO's value gradient on arrays goes on where it is clipped",
            "d_value[value_is_clipped] = 0.0",
            "pass",
        ),
        breakage("PPO on arrays punishes entropy", "entropy=-entropy_coef / n", "entropy=entropy_coef / n"),
        breakage(
            "advantages on arrays are scaled by the population's deviation",
            "/ (len(centred) - 1))",
            "/ len(centred))",
        ),
        breakage("PPO's gradient on arrays is not clipped", "if grad_norm > max_grad_norm:", "if False:"),
        breakage(
            "PPO on arrays does not normalise advantages",
            "normalize(advantages) if normalize_advantages else advantages",
            "advantages",
        ),
        breakage(
            "Adam on arrays forgets how far it is",
            '"step": self._num_steps.clone()',
            '"step": torch.tensor(0.0)',
        ),
        breakage(
            "Adam's state on arrays is not given back",
            '"exp_avg_sq": square.clone()',
            '"exp_avg_sq": mean.clone()',
        ),
    ),
    *of(
        "minerva_acme/acceleration/array_ppo.py",
        ("tests/acceleration/test_edits.py",),
        breakage(
            "PPO on arrays decays no weights",
            '("lr", "weight_decay", "eps", "amsgrad", "maximize")}',
            '("lr", "eps", "amsgrad", "maximize")} | {"weight_decay": 0.0}',
        ),
        breakage(
            "PPO on arrays descends where the optimiser climbs",
            '("lr", "weight_decay", "eps", "amsgrad", "maximize")}',
            '("lr", "weight_decay", "eps", "amsgrad")} | {"maximize": False}',
        ),
        breakage(
            "PPO on arrays takes no part of decoupled decay",
            '_OFF = ("amsgrad", "capturable", "differentiable", "decoupled_weight_decay")',
            '_OFF = ("amsgrad", "capturable", "differentiable")',
        ),
        breakage("PPO on arrays is not compared", "step if agreement.holds() else None", "step"),
    ),
    *of(
        "agents/vmpo/learner.py",
        VMPO_LEARNER,
        breakage(
            "V-MPO has no KL penalty",
            "losses.vmpo_policy_loss(e_step.weights, log_prob) + penalty",
            "losses.vmpo_policy_loss(e_step.weights, log_prob)",
        ),
        breakage(
            "V-MPO's stddev has the mean's bound",
            "duals.alpha_stddev(), config.epsilon_stddev)",
            "duals.alpha_stddev(), config.epsilon_mean)",
        ),
        breakage(
            "V-MPO's stddev has the mean's alpha",
            '"stddev": (duals.alpha_stddev(),',
            '"stddev": (duals.alpha_mean(),',
        ),
        breakage(
            "V-MPO's temperature has the mean's bound",
            "epsilon=config.epsilon_temperature",
            "epsilon=config.epsilon_mean",
        ),
        breakage(
            "V-MPO trains the temperature at alpha's rate",
            "config.temperature_learning_rate, math",
            "config.alpha_learning_rate, math",
        ),
        breakage(
            "V-MPO trains alpha at the temperature's rate",
            "config.alpha_learning_rate, math",
            "config.temperature_learning_rate, math",
        ),
        breakage("V-MPO makes one M-step", "range(self._config.m_steps)", "range(1)"),
        breakage("V-MPO never trains the value", "policy_loss + value_loss)", "policy_loss)"),
        breakage(
            "V-MPO's gradient is not clipped",
            "config.learning_rate, config.max_grad_norm)",
            "config.learning_rate)",
        ),
        breakage(
            "V-MPO's alpha falls where its bound is broken",
            "alpha_loss + alpha * (epsilon - kl.detach())",
            "alpha_loss + alpha * (kl.detach() - epsilon)",
        ),
        breakage("V-MPO never trains alpha", 'self._updates.minimise("alphas", alpha_loss)', "pass"),
        breakage(
            "V-MPO never trains the temperature",
            'self._updates.minimise("temperature", e_step.temperature_loss)',
            "pass",
        ),
        breakage(
            "V-MPO does not normalise advantages",
            "advantage = losses.normalize_advantages(advantage, unbiased=False)",
            "pass",
        ),
        breakage("V-MPO takes all samples", "top_k_fraction=config.top_k_fraction", "top_k_fraction=1.0"),
        breakage("V-MPO does not save its duals", '"duals": duals, ', ""),
    ),
    *of(
        "agents/vmpo/config.py",
        ("tests/agents/vmpo/test_config.py",),
        breakage(
            "V-MPO takes a share that selects nobody",
            "int(self.top_k_fraction * num_samples) < 1",
            "False",
        ),
    ),
    *of(
        "agents/ppo/config.py",
        ("tests/agents/ppo/test_config.py",),
        breakage(
            "PPO takes minibatches above the rollout", "self.minibatch_size > self.rollout_steps", "False"
        ),
    ),
    *of(
        "minerva_acme/learners/updates.py",
        ("tests/learners/test_updates.py", "tests/learners/test_module_learner.py"),
        breakage("a frozen parameter stops training", "if parameter.requires_grad]", "]"),
        breakage(
            "no gradient is clipped on a GPU",
            "(max_norm / (norm + _TORCH_EPSILON)).clamp(max=1.0)",
            "(max_norm / (norm + _TORCH_EPSILON)).clamp(min=1.0)",
        ),
        breakage("small gradients grow on a GPU", "+ _TORCH_EPSILON)).clamp(max=1.0)", "+ _TORCH_EPSILON))"),
        breakage("no gradient is clipped on a CPU", "if share >= 1.0:", "if share < 1.0:"),
        breakage("small gradients grow on a CPU", "if share >= 1.0:", "if False:"),
        breakage(
            "gradients of the step before stay",
            "parameter.grad = None  #",
            "pass  #",
        ),
        breakage(
            "skipped batches add up over the run",
            "self._num_skipped_in_a_row = 0\n        except",
            "pass\n        except",
        ),
        breakage(
            "one skipped batch too few is an error",
            "self._num_skipped_in_a_row > self._max_skipped",
            "self._num_skipped_in_a_row >= self._max_skipped",
        ),
        breakage("skipped batches are not counted", "self._num_skipped += 1", "pass"),
        breakage("a skipped batch leaves what it changed", "restore()\n            metrics", "metrics"),
        breakage("half a step counts as a whole one", "strict=False)) | self._kept", "strict=False))"),
        breakage(
            "half a step counts as a whole one after the next",
            "if not self._kept.keys().isdisjoint(modules):",
            "if False:",
        ),
        breakage(
            "what a step changed is read as it was for ever", "yield\n            self._kept = {}", "yield"
        ),
        breakage("a skipped batch leaves its metrics", "metrics.clear()", "pass"),
        breakage(
            "a gradient that is not finite is learned from",
            "finite.require_finite(self._norms)\n            self",
            "self",
        ),
        breakage(
            "a skipped batch leaves optimisers without a state", "optimizer.state.update(state)", "pass"
        ),
        breakage(
            "what is put back has changed meanwhile",
            "torch._foreach_copy_(self._copies, tensors)",
            "pass",
        ),
        breakage(
            "the optimiser's state that is put back has changed meanwhile",
            "tensors = modules + _state_tensors(states)",
            "tensors = modules",
        ),
        breakage("no optimiser is restored", "group.optimizer.load_state_dict(saved)", "pass"),
        breakage(
            "the count of skipped batches is not restored",
            'self._num_skipped, self._num_skipped_in_a_row = state["skipped"]',
            "pass",
        ),
    ),
    *of(
        "minerva_acme/learners/finite.py",
        ("tests/learners/test_finite.py",),
        breakage("what is not finite is let through", "if not size <= LARGEST:", "if False:"),
        breakage("what is huge is let through", "if not size <= LARGEST:", "if not math.isfinite(size):"),
        breakage(
            "a sum of squares may be as large as a square",
            "packing.square(array.ravel()) <= LARGEST",
            "packing.square(array.ravel()) <= LARGEST * LARGEST * 9.0",
        ),
        breakage("no field is blamed that is nan", "nan_to_num(nan=torch.inf, ", "nan_to_num(nan=0.0, "),
    ),
    *of(
        "minerva_acme/learners/module_learner.py",
        ("tests/learners/test_module_learner.py",),
        breakage("variables are the learner's own memory", ".cpu().numpy().copy()", ".cpu().numpy()"),
        breakage(
            "learner steps are not counted", "increment(steps=1, walltime", "increment(steps=0, walltime"
        ),
        breakage(
            "a learner always says that nothing is newer",
            "if newer_than == self._num_steps else",
            "if newer_than is not None else",
        ),
        breakage("another thread gets half a step's weights", "read(value).detach()", "value.detach()"),
        breakage("a learner's version stays", "self._num_steps += 1", "pass"),
        breakage("no module is restored", 'module.load_state_dict(state["modules"][name])', "pass"),
        breakage("the updates are not restored", 'self._updates.restore(state["updates"])', "pass"),
        breakage(
            "the learner's noise is not restored",
            'self._generator.set_state(state["generator"].cpu())',
            "pass",
        ),
        breakage("the learner's step count is not restored", 'self._num_steps = state["num_steps"]', "pass"),
    ),
    *of(
        "minerva_acme/learners/optimizers.py",
        ("tests/learners/test_batches_and_optimizers.py",),
        breakage("Adam has torch's epsilon", "(groups, eps=adam_epsilon)", "(groups, eps=1e-8)"),
        breakage("SGD has no momentum", "momentum=sgd_momentum, ", ""),
        breakage(
            "a longer run learns at negative rates",
            "min(step / self._num_steps, 1.0)",
            "step / self._num_steps",
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
        breakage("AdamW is Adam", "_kernel = torch._fused_adamw_", "_kernel = torch._fused_adam_"),
        breakage("Adam's steps are not counted", "torch._foreach_add_(num_steps, 1)", "pass"),
        breakage(
            "Adam's two averages are one memory", '"exp_avg_sq": zeros.clone()}', '"exp_avg_sq": zeros}'
        ),
        breakage("no profiler sees Adam's steps", "or torch.autograd._profiler_enabled()", ""),
        breakage(
            "hooks of all optimisers are not called after Adam's steps",
            "or optimizer._global_optimizer_post_hooks",
            "",
        ),
        breakage("Adam decays no weight", 'weight_decay=group["weight_decay"]', "weight_decay=0.0"),
        breakage(
            "torch's compiler is imported",
            "inspect.unwrap(torch.optim.Optimizer.state_dict)",
            "torch.optim.Optimizer.state_dict",
        ),
    ),
    *of(
        "minerva_acme/learners/targets.py",
        ("tests/learners/test_targets.py",),
        breakage("a target takes the rest of the way", "(slow, fast, rate)", "(slow, fast, 1.0 - rate)"),
        breakage("a target follows every step", "if num_steps % period:", "if False:"),
        breakage("a target keeps its first statistics", "torch._foreach_copy_(old, new)", "pass"),
        breakage("a layer that is used twice moves twice", "in dict.fromkeys(tensors) if", "in tensors if"),
    ),
    *of(
        "minerva_acme/learners/loss_learner.py",
        ("tests/learners/test_loss_learner.py",),
        breakage(
            "targets are told one step too few",
            "self._networks, self._num_steps + 1)",
            "self._networks, self._num_steps)",
        ),
        breakage(
            "what is not finite is learned from where no gradient shows it",
            "finite.require_finite(batches.checked_fields(sample.data))",
            "pass",
        ),
        breakage(
            "targets move although the batch was skipped",
            "            self._update_targets(self._networks, self._num_steps + 1)\n",
            "        self._update_targets(self._networks, self._num_steps + 1)\n",
        ),
        breakage("a loss asks for gradients that nobody uses", "parameter.requires_grad_(False)", "pass"),
        breakage("what one loss does not train, none does", "parameter.requires_grad_(True)", "pass"),
        breakage(
            "a delayed loss begins at once",
            "(self._num_steps + 1) % self._periods",
            "self._num_steps % self._periods",
        ),
        breakage(
            "losses see no importance weights", "Batch(sample.data, weights)", "Batch(sample.data, 1.0)"
        ),
        breakage("priorities are never set", "self._priorities.update(sample.info, new_priorities)", "pass"),
    ),
    *of(
        "minerva_acme/learners/samples.py",
        ("tests/learners/test_samples.py",),
        breakage(
            "float64 of a data set stays", "self._dtype if leaf.dtype == torch.float64 else None", "None"
        ),
        breakage(
            "rewards with an axis too many are broadcast", "if is_number and list(", "if False and list("
        ),
        breakage("each sample is looked at", "self._passes = _is_complete(sample, completed)", "pass"),
        breakage("items by priority need no info", "if self._needs_info and", "if False and"),
    ),
    *of(
        "minerva_acme/builders.py",
        ("tests/test_own_builders.py",),
        breakage("a misspelt part is never called", "and name not in known", "and False"),
    ),
    *of(
        "agents/off_policy/builder.py",
        ("tests/agents/off_policy/test_builder.py",),
        breakage("a module without objective is never trained", 'if "target" in name or', "if True or"),
        breakage("the replay of another n_step is read", '"n_step": self._config.n_step, ', ""),
    ),
    *of(
        "minerva_acme/experiments/parts.py",
        ("tests/agents/test_offline_runs.py",),
        breakage("schedules of an offline run never end", "return config.num_learner_steps or ", "return "),
    ),
    *of(
        "minerva_acme/learners/priorities.py",
        ("tests/learners/test_loss_learner.py",),
        breakage(
            "any priority is sent to the store", 'finite.require_finite({"priorities": priorities})', "pass"
        ),
    ),
    *of(
        "minerva_acme/losses/importance.py",
        ("tests/losses/test_importance.py",),
        breakage("the importance weights are not over their largest", "weights / weights.max()", "weights"),
        breakage("the table's size does not count", "table_size.double() * probability", "probability"),
        breakage("what is drawn often counts more", "** -exponent", "** exponent"),
    ),
]

ADDERS = [
    *of(
        "adders/base.py",
        ("tests/adders/test_adder_calls.py", "tests/adders/test_priorities.py"),
        breakage(
            "a LAST step leaves the episode open", "self._has_ended = True\n            self.reset()", "pass"
        ),
        breakage(
            "items in a second table do not count",
            "self._num_inserted += 1",
            "self._num_inserted = self._num_inserted or 1",
        ),
        breakage(
            "an adder that is closed drops what is open",
            "self.reset()\n            self._write_rest",
            "self._write_rest",
        ),
        breakage(
            "a table gets another's priority",
            "for table, priority in priorities.items():",
            "for table, priority in zip(priorities, reversed(priorities.values())):",
        ),
    ),
    *of(
        "minerva_acme/replay/messages.py",
        ("tests/adders/test_adder_calls.py", "tests/adders/test_priorities.py"),
        breakage("a negative priority is taken", "not 0.0 <= priority < float", "not priority < float"),
    ),
    *of(
        "adders/sequence.py",
        ("tests/adders/test_sequence.py",),
        breakage(
            "an episode's end forgets the period", "episode.num_steps, episode.period)", "episode.num_steps)"
        ),
        breakage(
            "a sequence of padding alone is written",
            "range(episode.next_start, episode.num_steps,",
            "range(episode.next_start, episode.num_steps + 1,",
        ),
        breakage(
            "a short sequence is written where nothing is left",
            "episode.num_covered < episode.num_steps",
            "episode.num_covered <= episode.num_steps",
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
        breakage(
            "an episode goes on in the next",
            "self._begin()\n        self._lead(writer, rows)",
            "self._lead(writer, rows)",
        ),
    ),
    *of(
        "adders/sequence.py",
        ("tests/adders/test_continuing.py",),
        breakage("an item in which nothing happened is written", "is_full and last_step > start", "is_full"),
        breakage(
            "continuing sequences never overlap",
            "self._next_start += self._period",
            "self._next_start += self._length",
        ),
    ),
    *of(
        "adders/continuing.py",
        ("tests/adders/test_continuing.py",),
        breakage(
            "what waits at the end is lost", "while self._next_start < self._last_step:", "while False:"
        ),
        breakage(
            "an episode's beginning counts as a step",
            "self._add_row(writer, rows, happened=False)",
            "self._add_row(writer, rows, happened=True)",
        ),
    ),
    *of(
        "adders/episode.py",
        ("tests/adders/test_episode.py",),
        breakage(
            "an episode may be one step too long",
            "self._last_step == self._length",
            "self._last_step > self._length",
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
            "an n-step transition ends one step early",
            "next_observation=steps[-1].step.next_observation",
            "next_observation=steps[0].step.next_observation",
        ),
        breakage(
            "an n-step transition begins late",
            "observation=steps[0].observation,\n            step",
            "observation=steps[-1].observation,\n            step",
        ),
        breakage(
            "a priority sees the next image of one step",
            "next_observation = started[-1].step.next_observation",
            "next_observation = started[0].step.next_observation",
        ),
        breakage("an n-step transition has its last action", "step=steps[0].step", "step=steps[-1].step"),
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
            "the return so far is not discounted", "self._gamma * self._return_so_far", "self._return_so_far"
        ),
        breakage(
            "the return so far goes on in the next episode",
            "self._is_first = True\n        self._return_so_far = 0.0\n\n",
            "self._is_first = True\n\n",
        ),
        breakage(
            "no step but the first begins an episode",
            "self._is_first = True\n        self._return_so_far = 0.0\n\n",
            "self._return_so_far = 0.0\n\n",
        ),
        breakage("every step of a rollout begins an episode", "self._is_first = False", "pass"),
        breakage(
            "a rollout waits for the next step",
            "self._create_items(writer, self._layout.fields(self._num_rows - length), priorities)\n"
            "            writer.flush()",
            "self._create_items(writer, self._layout.fields(self._num_rows - length), priorities)",
        ),
        breakage("the return so far is not restored", 'self._return_so_far = state["return_so_far"]', "pass"),
        breakage("whether an episode began is not restored", 'self._is_first = state["is_first"]', "pass"),
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
        "minerva_acme/replay/layouts.py",
        ("tests/adders/test_frame_stacks.py",),
        breakage("stacks reach into the episode before", "(step.first.long() * times)", "(0 * times)"),
        breakage("padding moves on in stacks", "(happened * times)", "times[None].expand_as(happened)"),
        breakage(
            "stacks begin with the newest frame",
            "torch.arange(self._frame_stack - 1, -1, -1",
            "torch.arange(self._frame_stack",
        ),
        breakage("stacks of another order are stored", "newest -= not row", "newest -= 0 * row"),
        breakage(
            "a transition's stack is not checked",
            "before[name][1:], after[name][:-1]",
            "before[name], before[name]",
        ),
    ),
    *of(
        "adders/continuing.py",
        ("tests/adders/test_frame_stacks.py",),
        breakage("rows come before each episode of a stream", "if not self._num_rows:", "if True:"),
    ),
    *of(
        "minerva_acme/replay/layouts.py",
        ("tests/replay/test_layouts.py", "tests/adders/test_sequence.py", "tests/adders/test_n_step.py"),
        breakage(
            "a sequence's actions are shifted by one",
            "leaf[:, self._frame_stack :]",
            "leaf[:, : -self._frame_stack]",
        ),
        breakage("padding forgets the last observation", "padding[name][:size] = rows[name][:size]", "pass"),
        breakage(
            "padding repeats a whole step",
            "np.zeros(*column) for name, column",
            "rows[name].copy() for name, column",
        ),
        breakage(
            "unpacked padding forgets the last observation",
            "padded[name][:, :, :size] = fields[name][items, nearest, :size]",
            "pass",
        ),
        breakage(
            "the first n-step discount lacks gamma",
            "discount = gamma * steps[0].discounts",
            "discount = steps[0].discounts",
        ),
        breakage(
            "the n-step discount lacks gamma",
            "discount = discount * gamma * step.discounts",
            "discount = discount * step.discounts",
        ),
        breakage(
            "the n-step discount lacks the environment's",
            "discount = discount * gamma * step.discounts",
            "discount = discount * gamma",
        ),
        breakage(
            "the n-step reward is not discounted",
            "discount[self._signals.discount_of_reward] * step.rewards",
            "step.rewards",
        ),
        breakage("the next image is the observation's", "start if column == field else end", "start"),
        breakage(
            "a transition's parts are in another order",
            "[observation, step.action, {",
            "[step.action, observation, {",
        ),
    ),
    *of(
        "minerva_acme/replay/packing.py",
        ("tests/replay/test_packing.py", "tests/adders/test_adder_calls.py"),
        breakage(
            "fields are packed in the order of a dict", "fields = tuple(sorted(spec))", "fields = tuple(spec)"
        ),
        breakage(
            "what is not finite is stored",
            "if not is_storable(row):",
            "if False:",
        ),
        breakage("another shape is stored", "or value.shape != shape", ""),
        breakage("another dtype is stored", "or (value.dtype is not dtype and value.dtype != dtype)", ""),
        breakage(
            "two leaves share a place",
            "start = self._columns[column].shape[0] if column in self._columns else 0",
            "start = 0",
        ),
    ),
    *of(
        "minerva_acme/replay/rollouts.py",
        ("tests/replay/test_rollouts.py", "tests/adders/test_rollout.py"),
        breakage(
            "a rollout's last flag is one step late",
            "last[:-1] = row.first[1:]",
            "last[:-1] = row.first[:-1]",
        ),
        breakage(
            "a rollout's last row is none",
            "last = torch.ones_like(row.first)",
            "last = torch.zeros_like(row.first)",
        ),
        breakage(
            "a rollout's axes are swapped",
            "self._packer.unpack({name: rows.transpose(0, 1)",
            "self._packer.unpack({name: rows",
        ),
        breakage(
            "a rollout's next observation is the observation",
            "next_observation=row.next_observation",
            "next_observation=row.observation",
        ),
    ),
    *of(
        "minerva_acme/replay/memory/checkpoint.py",
        ("tests/replay/memory/test_checkpoint.py",),
        breakage("an array's header is believed", "if num_bytes != found:", "if False:"),
        breakage(
            "arrays may be larger than their file",
            "sum(info.file_size for info in members.values()) > path.stat().st_size",
            "False",
        ),
    ),
    *of(
        "minerva_acme/replay/reverb/ports.py",
        ("tests/replay/reverb/test_faults.py",),
        breakage(
            "a server that starts can be reached",
            "guard.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_REUSEPORT_CBPF, program)",
            "pass",
        ),
    ),
    *of(
        "minerva_acme/replay/memory/sum_tree.py",
        ("tests/replay/memory/test_sum_tree.py",),
        breakage("the sum tree goes left only", "nodes += is_right", "pass"),
        breakage("the sum tree keeps what lies to the left", "left_over -= left * is_right", "pass"),
        breakage("the sum tree's sums are old", "self._stale.extend(leaves.tolist())", "pass"),
        breakage("the sum tree draws what has no weight", "if lost.size:", "if False:"),
    ),
    *of(
        "minerva_acme/replay/memory/table.py",
        ("tests/replay/memory/test_store.py", "tests/replay/test_conformance.py"),
        breakage(
            "first in, first out gives the newest",
            "return np.full(count, self._first)",
            "return np.full(count, self._end - 1)",
        ),
        breakage(
            "last in, first out gives the oldest",
            "return np.full(count, self._end - 1)",
            "return np.full(count, self._first)",
        ),
        breakage(
            "the newest item is never drawn",
            "(self._generator.random(count) * span).astype",
            "(self._generator.random(count) * max(span - 1, 1)).astype",
        ),
        breakage(
            "the limiter lets one insert too many in",
            "(self.inserted + 1) * per_insert",
            "self.inserted * per_insert",
        ),
        breakage(
            "sampling starts one item late",
            "if self.size < min_size:",
            "if self.size <= min_size:",
        ),
        breakage("sampling does not count", "self.sampled += count", "pass"),
        breakage(
            "an item is sampled once too often",
            "times == self.config.max_times_sampled",
            "times > self.config.max_times_sampled",
        ),
        breakage(
            "priorities lack their exponent",
            "priority**selector.exponent if priority else 0.0",
            "priority",
        ),
        breakage(
            "changed priorities lack their exponent",
            "np.where(priorities > 0.0, priorities**exponent, 0.0)",
            "priorities",
        ),
        breakage(
            "changed priorities are not drawn by",
            "tree.set_many(places, _weights(priorities, selector.exponent))",
            "pass",
        ),
        breakage(
            "probabilities are not of the whole", "tree.weights(places) / total", "tree.weights(places)"
        ),
        breakage("an item's next priority is the last one's", "self._times_cells[place] = 0", "pass"),
        breakage(
            "the table's draws are not restored",
            'self._generator.bit_generator.state = numbers["generator"]',
            "pass",
        ),
        breakage(
            "removed items keep their rows",
            "store.release(start, length)\n        self.size -= 1",
            "pass\n        self.size -= 1",
        ),
        breakage("an item of the second draw counts once", "times += _earlier(places)", "pass"),
        breakage("removed items can be drawn", "tree.set(place, 0.0)", "pass"),
    ),
    *of(
        "minerva_acme/replay/memory/rows.py",
        ("tests/replay/memory/test_store.py",),
        breakage(
            "a window ends at its page",
            "places[crossing] += np.where(offsets >= hop << self.shift, jump[:, None], 0)",
            "pass",
        ),
        breakage(
            "the pages of a window are held in part",
            "page = int(self._next[page])\n            self._holds[page] += 1",
            "page = int(self._next[page])",
        ),
    ),
    *of(
        "minerva_acme/replay/memory/rows.py",
        ("tests/replay/memory/test_store.py", "tests/replay/test_conformance.py"),
        breakage("windows reach into the episode before", "self.origin = self.end", "pass"),
        breakage("windows reach beyond what is kept", "or number < self.end - self._max_window", ""),
    ),
    *of(
        "minerva_acme/replay/memory/client.py",
        ("tests/replay/memory/test_store.py", "tests/replay/test_conformance.py"),
        breakage(
            "a full table never holds the writer back",
            "if self.num_pending > self._max_pending:",
            "if False:",
        ),
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
            "Reverb gets an item's fields unsorted",
            "[fields[name] for name in sorted(fields)]",
            "[fields[name] for name in fields]",
        ),
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
            "Reverb samples by the remover's rule",
            "sampler=make_selector(config.sampler)",
            "sampler=make_selector(config.remover)",
        ),
        breakage(
            "Reverb forgets how often to sample",
            "max_times_sampled=config.max_times_sampled",
            "max_times_sampled=0",
        ),
    ),
    *of(
        "minerva_acme/replay/waiting.py",
        ("tests/replay/test_waiting.py",),
        breakage("nobody asks a wait to stop", "if _this_thread.should_stop():", "if False:"),
        breakage(
            "a wait that cannot end goes on", "elif now - self._still_since >= _STILL_SECONDS:", "elif False:"
        ),
        breakage("a wait says nothing", "if now >= self._next_report:", "if False:"),
    ),
    *of(
        "minerva_acme/replay/dataset.py",
        ("tests/replay/test_dataset.py",),
        breakage("the dataset never tells an error", "if isinstance(sample, BaseException):", "if False:"),
        breakage("the dataset never closes its sampler", "self._sampler.close()", "pass"),
    ),
]

LOOPS = [
    *of(
        "minerva_acme/actors/recurrent.py",
        ("tests/actors/test_recurrent.py",),
        breakage("a recurrent actor never forgets", "        self._episodes.begin(index)\n", ""),
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
            "an actor writes no extras",
            "self._adder.add(action, next_timestep, extras)",
            "self._adder.add(action, next_timestep)",
        ),
        breakage(
            "all environments share an adder", "self._adders[index].add(action", "self._adders[0].add(action"
        ),
        breakage(
            "all environments share the first one's extras",
            "extras, self._extras[index] = self._extras[index], ()",
            "extras = self._extras[0]",
        ),
    ),
    *of(
        "minerva_acme/actors/random.py",
        ("tests/actors/test_feed_forward.py",),
        breakage("a random actor never takes the last action", "endpoint=True", "endpoint=False"),
        breakage(
            "a random actor restores nothing", 'self._random.bit_generator.state = state["random"]', "pass"
        ),
    ),
    *of(
        "minerva_acme/actors/variable_client.py",
        ("tests/actors/test_variable_client.py",),
        breakage("variables never arrive", "self._on_update(answer.values)", "pass"),
        breakage(
            "variables arrive one call late", "self._calls >= self._period", "self._calls > self._period"
        ),
        breakage("older variables are taken", "version < self.version", "False"),
        breakage(
            "waiting for variables asks for nothing",
            "if wait or (self._in_flight is None and self._is_due()):",
            "if self._in_flight is None and self._is_due():",
        ),
        breakage(
            "failures add up over the run", "self._num_failures_in_a_row = 0\n        version", "version"
        ),
        breakage("the same variables arrive again", "version != self.version)", "True)"),
    ),
    *of(
        "minerva_acme/environments/loop.py",
        ("tests/environments/test_loop.py",),
        breakage("a loop counts no steps but the last", 'self._counter.tick("steps")', "pass"),
        breakage("a loop's actor never updates", "self._actor.update()", "pass"),
        breakage("the actor sees where the episode began", "episode.timestep = timestep", "pass"),
    ),
    *of(
        "minerva_acme/environments/loop.py",
        ("tests/environments/test_loop.py",),
        breakage(
            "an episode's return is its last reward",
            "self._return = reward if self._length == 0 else self._return + reward",
            "self._return = reward",
        ),
        breakage(
            "an episode's return is in single precision",
            "reward = np.float64(timestep.reward)",
            "reward = timestep.reward",
        ),
    ),
    *of(
        "minerva_acme/environments/vector_loop.py",
        ("tests/environments/test_vector_loop.py",),
        breakage(
            "a vector loop acts on the observations before",
            "self._observations = [timesteps[-1].observation for timesteps in arrived]",
            "pass",
        ),
        breakage(
            "a vector loop acts on LAST",
            "self._observations = [timesteps[-1].observation for timesteps in arrived]",
            "self._observations = [timesteps[0].observation for timesteps in arrived]",
        ),
        breakage("a reset counts as a step", "if timestep.first():  # the action was ignored", "if False:"),
        breakage(
            "an environment gets the first one's action told",
            "self._actor.observe(index, actions[index], timestep)",
            "self._actor.observe(index, actions[0], timestep)",
        ),
        breakage(
            "steps before a failure are not counted",
            "        finally:  # whatever failed, what is counted is what was observed\n",
            "        except ZeroDivisionError:\n            pass\n        if True:\n",
        ),
    ),
    *of(
        "minerva_acme/wrappers/spec_check.py",
        ("tests/wrappers/test_spec_check.py",),
        breakage("what is huge passes", "<= _HUGE * _HUGE:", "<= np.inf:"),
        breakage("episodes are not counted", "self._episode += 1", "pass"),
        breakage("bounds are warned of at every step", 'self._count(field, "bounds") == 1', "True"),
        breakage("what left its bounds is looked at forever", "self._forget_bounds(name, path)", "pass"),
        breakage("a reward of None passes", "if getattr(timestep, name) is None:", "if False:"),
    ),
    *of(
        "minerva_acme/environments/gymnasium_adapter.py",
        ("tests/environments/test_gymnasium_adapter.py",),
        breakage("a reward of None becomes NaN", "if reward is not None:", "if True:"),
    ),
    *of(
        "minerva_acme/cli/main.py",
        ("tests/cli/test_errors.py",),
        breakage("a fault of ours looks like misuse", " or code[step.tb_lasti] == _RAISE", " or True"),
        breakage(
            "an environment's error looks like a refusal", 'module.startswith("minerva_acme.") and ', ""
        ),
    ),
    *of(
        "minerva_acme/environments/vector.py",
        ("tests/environments/test_vector.py",),
        breakage(
            "all environments get one action",
            'self._call(index, "step", actions[index])',
            'self._call(index, "step", actions[0])',
        ),
        breakage(
            "restored environments go on",
            "restore_if_saved(environment, environment_state)\n        self._reset_next_step = True",
            "restore_if_saved(environment, environment_state)",
        ),
    ),
    *of(
        "minerva_acme/counting.py",
        ("tests/test_counting.py",),
        breakage("a child's prefix is left out", "plain = {prefix + name:", "plain = {name:"),
        breakage("a tick forgets what was counted", "root._counts.get(full_name, 0) + 1", "1"),
    ),
]

WRAPPERS = [
    *of(
        "minerva_acme/wrappers/action_repeat.py",
        ("tests/wrappers/test_action_repeat.py",),
        breakage(
            "repeats forget the discount",
            "discount = tree.map_structure(operator.mul, discount, timestep.discount)",
            "pass",
        ),
        breakage("repeats go on in the next episode", "if timestep.last():\n                break", "pass"),
        breakage(
            "repeats keep the last reward",
            "reward = reward_sum.add(reward, timestep.reward)",
            "reward = timestep.reward",
        ),
        breakage("one repeat too many", "range(self._num_repeats - 1)", "range(self._num_repeats)"),
    ),
    *of(
        "minerva_acme/wrappers/leafwise.py",
        ("tests/environments/test_misbehaving.py",),
        breakage("an environment writes into what is stored", "return nest.copy()", "return nest"),
        breakage("an environment writes into a nest that is stored", "value.copy() if", "value if"),
    ),
    *of(
        "minerva_acme/wrappers/calls.py",
        ("tests/environments/test_misbehaving.py",),
        breakage("an environment that exits ends the run", "except SystemExit", "except ZeroDivisionError"),
    ),
    *of(
        "minerva_acme/wrappers/canonical_action.py",
        ("tests/wrappers/test_canonical_action.py",),
        breakage(
            "canonical actions reach half of the range",
            "0.5 * (spec.maximum - spec.minimum)",
            "0.25 * (spec.maximum - spec.minimum)",
        ),
        breakage(
            "canonical actions start at 0",
            "(action + 1) * self._half_range + self._minimum",
            "(action + 1) * self._half_range",
        ),
        breakage("canonical actions leave the bounds", "if self._clip:", "if False:"),
    ),
    *of(
        "minerva_acme/environments/gymnasium_adapter.py",
        ("tests/environments/test_gymnasium_adapter.py",),
        breakage(
            "a time limit is a terminal",
            "self._observation(observation), discount=1.0)\n        return",
            "self._observation(observation), discount=0.0)\n        return",
        ),
        breakage(
            "truncated and terminated are mixed up",
            "observation, reward, terminated, truncated, self._info",
            "observation, reward, truncated, terminated, self._info",
        ),
        breakage("a truncated episode goes on", "bool(terminated or truncated)", "bool(terminated)"),
        breakage(
            "a seed is used once more",
            "seed, self._next_seed = self._next_seed, None",
            "seed = self._next_seed",
        ),
    ),
    *of(
        "minerva_acme/environments/gymnasium_from_dm_env.py",
        ("tests/environments/test_gymnasium_from_dm_env.py",),
        breakage(
            "every end is a terminal to Gymnasium",
            "timestep.last() and timestep.discount == 0",
            "timestep.last()",
        ),
        breakage("no end is a time limit to Gymnasium", "timestep.last() and not terminated", "False"),
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
        breakage(
            "frames are stacked without a copy",
            "tree.map_structure(np.array, timestep.observation)",
            "timestep.observation",
        ),
        breakage("frames of the episode before stay", "self._num_frames if timestep.first() else 1", "1"),
        breakage("frames are stacked newest first", "*self._frames))", "*reversed(self._frames)))"),
    ),
    *of(
        "minerva_acme/wrappers/concat_observation.py",
        ("tests/wrappers/test_concat_observation.py",),
        breakage(
            "observations are joined in the order they come",
            "sorted(selected) if is_flat",
            "list(selected) if is_flat",
        ),
    ),
    *of(
        "minerva_acme/wrappers/delayed_reward.py",
        ("tests/wrappers/test_delayed_reward.py",),
        breakage(
            "a delayed reward is the last one",
            "timestep.reward if self._sum is None else reward_sum.add(self._sum, timestep.reward)",
            "timestep.reward",
        ),
        breakage(
            "what is owed at the end is lost", "if timestep.last() or (self._period", "if (self._period"
        ),
    ),
    *of(
        "minerva_acme/wrappers/noop_starts.py",
        ("tests/wrappers/test_noop_starts.py",),
        breakage("one no-op too few", "self._max_noops, endpoint=True", "max(1, self._max_noops)"),
        breakage("no-ops end an episode", "timestep = super().reset()\n", "pass\n"),
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
            "a step limit goes on counting",
            "self._num_steps = 0\n        self._truncated = False\n        return",
            "self._truncated = False\n        return",
        ),
        breakage(
            "a step limit is one step late",
            "self._num_steps == self._max_steps",
            "self._num_steps == self._max_steps + 1",
        ),
    ),
    *of(
        "minerva_acme/wrappers/single_precision.py",
        ("tests/wrappers/test_single_precision.py",),
        breakage(
            "integers that do not fit wrap around",
            "dtype == np.int32 and not np.array_equal(cast, wide)",
            "False",
        ),
        breakage(
            "actions stay narrow",
            "super().step(self._widen_action(action))",
            "super().step(action)",
        ),
    ),
    *of(
        "minerva_acme/wrappers/episode_statistics.py",
        ("tests/wrappers/test_episode_statistics.py",),
        breakage("statistics tell of an open episode", "if timestep.last():", "if True:"),
        breakage(
            "a return goes on in the next episode",
            "reward_sum.add(self._return, reward) if self._length else reward",
            "reward if self._return is None else reward_sum.add(self._return, reward)",
        ),
    ),
]

EXPERIMENTS = [
    *of(
        "minerva_acme/experiments/evaluation.py",
        ("tests/experiments/test_evaluation.py", "tests/experiments/test_run_hooks.py"),
        breakage(
            "of several environments those with short episodes play most", "if left[index] > 0:", "if True:"
        ),
        breakage("an evaluation plays one episode", "while max(left) > 0:", "while not episodes:"),
    ),
    *of(
        "minerva_acme/experiments/policies.py",
        ("tests/experiments/test_evaluation.py", "tests/experiments/test_policies.py"),
        breakage(
            "a loaded policy checks nothing",
            "return loaded_policy.LoadedPolicy(policy, spec.observations, to_task)",
            "return policy",
        ),
        breakage("a loaded policy explores", "evaluation=not explore", "evaluation=False"),
        breakage("a loaded policy has not learned", "policy.set_variables(values)", "list(values)"),
        breakage(
            "an exported program takes one size of batch alone",
            "leaf: {0: batch}, spec",
            "leaf: {}, spec",
        ),
    ),
    *of(
        "agents/registry.py",
        ("tests/agents/test_registry.py",),
        breakage("a name that two have is the second's", "if other is not None:", "if False:"),
        breakage("presets of another agent count", "if type(preset) is config", "if True"),
    ),
    *of(
        "agents/annotations.py",
        ("tests/agents/test_registry.py",),
        breakage("the config is a builder's second argument", "[1:2]", "[2:3]"),
    ),
    *of(
        "minerva_acme/experiments/run_folder.py",
        ("tests/experiments/test_run_folder.py",),
        breakage(
            "code that a file names is imported unasked", "    if not import_code:\n", "    if False:\n"
        ),
        breakage(
            "a module that an id names is imported unasked",
            'if ":" in self.environment and not import_code',
            "if False",
        ),
        breakage(
            "a path in the place of a name is imported unasked",
            'return bool(self.config) or ":" in self.agent',
            "return bool(self.config)",
        ),
        breakage(
            "a run lacks the hyperparameters that are newer", "defaults = self._defaults()", "defaults = {}"
        ),
        breakage("a newer format is read", "found <= FORMAT", "found <= 99"),
        breakage(
            "a run of another seed is gone on with",
            '"environment_settings", "seed")',
            '"environment_settings")',
        ),
        breakage(
            "a class within a function is named as if it could be imported",
            "if found is not thing",
            "if False",
        ),
    ),
    *of(
        "agents/actions.py",
        ("tests/experiments/test_policies.py",),
        breakage(
            "an exported program leaves the bounds",
            "return raw.clamp(torch.from_numpy(self._low), torch.from_numpy(self._high))",
            "return raw",
        ),
    ),
    *of(
        "minerva_acme/experiments/checkpointing.py",
        ("tests/experiments/test_checkpointing.py",),
        breakage("the oldest checkpoint is the latest", "_scan(directory)[::-1]", "_scan(directory)"),
        breakage("the oldest good checkpoint is used", "in reversed([entry", "in list([entry"),
        breakage(
            "what was left behind is resumed from",
            "_ABANDONED if folder.name in branch.abandoned else",
            "",
        ),
        breakage("a choice is not noted", "_write_branch(directory, _Branch(own", "iter((directory, own"),
        breakage("a name that was left behind is used again", ", *branch.abandoned}", "}"),
        breakage(
            "the newest checkpoints are dropped",
            "list(newest.values())[-self._keep :]",
            "list(newest.values())[: self._keep]",
        ),
        breakage("an unfinished checkpoint stays", "shutil.rmtree(unfinished, ignore_errors=True)", "pass"),
        breakage(
            "a checkpoint loses its replay", "shutil.move(replay_files, unfinished / _REPLAY_FOLDER)", "pass"
        ),
        breakage("a checkpoint counts while it is written", 'f".unfinished-{final.name}"', "final.name"),
        breakage(
            "half of a removed checkpoint counts", "entry.folder.rename(hidden)", "hidden = entry.folder"
        ),
        breakage("files are not on the disk", "os.fsync(file.fileno())\n            files", "files"),
        breakage("the replay is not checked", "and not with_replay", ""),
        breakage("another content of the same size is good", "== digest", "!= ''"),
        breakage(
            "a manifest can be changed",
            'content.pop("sha256") != _digest(content)',
            'not content.pop("sha256")',
        ),
        breakage("every format is read", "found == _FORMAT", "True"),
        breakage("the best is the worst", "(e.evaluation, -", "(-e.evaluation, -"),
        breakage("the best is removed", "_best(entries) if self._keep_best else None", "None"),
        breakage(
            "light checkpoints remove whole ones",
            "light and (entry.is_full or entry.rank == _WHOLE)",
            "False",
        ),
    ),
    *of(
        "minerva_acme/experiments/evaluator.py",
        ("tests/experiments/test_evaluator.py", *RUN),
        breakage(
            "evaluation plays in the training environment",
            "contextlib.closing(made) as environment",
            "contextlib.nullcontext(self._run.environment) as environment",
        ),
        breakage(
            "evaluation has old weights",
            "actor.update(wait=True)\n                num_episodes",
            "num_episodes",
        ),
        breakage(
            "an evaluation moves the global generators",
            "return run_seeds.GlobalGenerators(run.config.torch_device).seeded(",
            "return (lambda *_: contextlib.nullcontext())(",
        ),
        breakage(
            "every evaluation has the same seed",
            "number(purpose, self._run.steps)",
            "number(purpose)",
        ),
        breakage(
            "the best evaluation is the worst",
            "result.mean > self.best[1].mean",
            "result.mean < self.best[1].mean",
        ),
        breakage(
            "the best evaluation is the last one",
            "if self.best is None or result.mean > self.best[1].mean:",
            "if True:",
        ),
        breakage(
            "an evaluation is made again at the same step", "self.latest[0] == self._run.steps", "False"
        ),
        breakage("earlier evaluations are not restored", "self.latest, self.best = dated", "pass"),
        breakage(
            "evaluations are due at every step",
            "self._run.steps // period > max(self.logged_until, 0) // period",
            "True",
        ),
    ),
    *of(
        "minerva_acme/experiments/run.py",
        ("tests/experiments/test_exact_resume.py", "tests/experiments/test_run_hooks.py", *RUN),
        breakage(
            "what a checkpoint wrote is learned from a step later",
            "save()\n                    learn(stop)",
            "save()\n                    pass",
        ),
        breakage("no callback can stop a run", "(stop or reporter.stopped_by)", "stop"),
        breakage(
            "an evaluation that was cut short is left out",
            "an evaluation that was due.\n                if evaluations.is_due()",
            "an evaluation that was due.\n                if False",
        ),
        breakage(
            "an evaluation after the checkpoint stays in the logs",
            "evaluator=evaluations.logged_until",
            "evaluator=run.env_steps",
        ),
    ),
    *of(
        "minerva_acme/experiments/run_logs.py",
        ("tests/experiments/test_run_logs.py", *RUN),
        breakage("rows after the checkpoint stay", "self._csv[label].cut(steps_key, step)", "0"),
        breakage(
            "TensorBoard shows steps twice",
            "self._tensorboard.cut(rows | films, step=max(made, default=0))",
            "pass",
        ),
    ),
    *of(
        "minerva_acme/loggers/tensorboard.py",
        ("tests/loggers/test_tensorboard.py",),
        breakage("TensorBoard's files keep what is made again", "_cut(path, last)\n        self", "self"),
        breakage("TensorBoard loses the checkpoint's step", "purge(step + 1)", "purge(step)"),
        breakage("a kill's half record is kept", "if end > len(content):", "if False:"),
    ),
    *of(
        "minerva_acme/experiments/run_lock.py",
        ("tests/experiments/test_run_lock.py", *RUN),
        breakage("a forked process keeps the lock", "os.register_at_fork(after_in_child=_forget)", "pass"),
        breakage("a forked process frees the lock", "if descriptor in _held:", "if True:"),
        breakage(
            "a lock on a deleted file counts", "os.path.samestat(os.fstat(descriptor), path.stat())", "True"
        ),
        breakage(
            "a lock that is a link is followed", "writing.refuse_link(path)\n        descriptor", "descriptor"
        ),
        breakage("another's file is cut off", "_check_own(descriptor, path)\n            _lock", "_lock"),
        breakage("a run waits for the lock", "fcntl.LOCK_EX | fcntl.LOCK_NB", "fcntl.LOCK_SH"),
    ),
    *of(
        "minerva_acme/experiments/rescue.py",
        ("tests/experiments/test_rescue.py",),
        breakage("half a learner step is saved", "self._half_done = what", "pass"),
        breakage("an error saves nothing", "self._save(error, run, checkpoints)", "pass"),
        breakage("an error in closing hides the one before", "raise self._error", "raise"),
    ),
    *of(
        "minerva_acme/experiments/parts.py",
        ("tests/experiments/test_evaluator.py", "tests/experiments/test_exact_resume.py", *RUN),
        breakage("evaluation explores", "self.spec, generator, evaluation=True)", "self.spec, generator)"),
        breakage("all environments have one seed", 'number("environment", index)', 'number("environment")'),
        breakage(
            "a policy that is evaluated draws what was not saved",
            'generator("evaluation", index=self.steps)',
            'generator("evaluation", index=id(self))',
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
        breakage("an echo is another request", "self._num == 1 and self._is_first_over", "self._num == 1"),
        breakage(
            "a thread that has heard is deaf",
            "return self.is_second_unheard and now - self._second_at",
            "return now - self._second_at",
        ),
        breakage("one request is enough to be deaf", "self._num, self._first_at = 1, now", "self._num = 2"),
        breakage("an echo of the second interrupts again", "self._heard_at = now", "self._heard_at = 0.0"),
        breakage("a signal while closing stops the run", "if not self._is_closing and not", "if not"),
        breakage(
            "the main thread is never asked", "signal.pthread_kill(self._watched, _ARE_YOU_THERE)", "pass"
        ),
        breakage("long calls of an earlier run are reported", "call.started_at >= self._began_at", "True"),
        breakage("a wait outlasts a signal", "waiting.alone(lambda: bool(request))", "waiting.alone()"),
    ),
    *of(
        "minerva_acme/experiments/interrupts.py",
        ("tests/experiments/test_signals.py",),
        breakage("nohup is of no use", "is not signal.SIG_IGN:", "is not None:"),
        breakage("SIGTERM interrupts twice", "if last_at - before >= SAME_REQUEST_SECONDS:", "if True:"),
        breakage("a forked process does not end", "if _before_sigterm:", "if False:"),
    ),
    *of(
        "minerva_acme/experiments/pacing.py",
        ("tests/experiments/test_pacing.py", *RUN),
        breakage(
            "learning ends after one step",
            "while self._learned < due and not stop:",
            "if self._learned < due and not stop:",
        ),
        breakage(
            "learning goes on after a stop",
            "while self._learned < due and not stop:",
            "while self._learned < due:",
        ),
        breakage("the actor never takes new weights", "self._run.actor.update()", "pass"),
        breakage(
            "the counts of inserts and steps are not restored",
            'self._inserted_before, self._learned = state["inserted"], state["learned"]',
            "pass",
        ),
        breakage(
            "a run that cannot learn is begun without a word",
            "not learns_by(num_env_steps)",
            "learns_by(num_env_steps)",
        ),
        breakage("what is on its way is waited for", "adder.flush()", "pass"),
    ),
    *of(
        "minerva_acme/experiments/saver.py",
        ("tests/experiments/test_saver.py", "tests/experiments/test_exact_resume.py", *RUN),
        breakage("every evaluation is the best", "best is None or mean > best", "True"),
        breakage("an old evaluation is that of this step", "latest[0] != self._run.steps", "False"),
        breakage("counts are not saved", '            "counter": run.counter,\n', ""),
        breakage("the learner is not saved", '            "learner": run.learner,\n', ""),
        breakage("the policy's noise is not saved", '            "policy": run.policy,\n', ""),
        breakage("the environment is not saved", '            "environment": run.environment,\n', ""),
        breakage("the state of adders is not restored", "core.restore_if_saved(adder, adder_state)", "pass"),
        breakage(
            "global generators are not restored",
            'core.restore_if_saved(run.generators, state.get("generators"))',
            "pass",
        ),
        breakage("evaluations are not restored", "self._evaluations.restore(state)", "pass"),
        breakage("the pace is not restored", "self._pacer.restore(state)", "pass"),
        breakage(
            "the pace is that of a replay that is gone",
            "if checkpointing.replay_folder(checkpoint) is not None:",
            "if True:",
        ),
        breakage("a run that saves goes on with its open episodes", "run.end_episodes()", "pass"),
        breakage(
            "a checkpoint waits for the end of an episode for ever", "unsaved //= 2 if", "unsaved *= 0 if"
        ),
        breakage("a checkpoint is written amid an episode", "if not between_episodes:", "if False:"),
        breakage(
            "checkpoints of several environments cut most episodes", "2 if few_are_cut else", "2 if True else"
        ),
        breakage(
            "a resumed run acts by the first weights",
            "run.actor.update(wait=True)\n        with checkpointing",
            "with checkpointing",
        ),
    ),
]

REPORTS = [
    *of(
        "minerva_acme/plotting/statistics.py",
        ("tests/plotting/test_statistics.py",),
        breakage("a run at a score is above it", "(task > thresholds)", "(task >= thresholds)"),
        breakage(
            "tasks with more seeds count more",
            "(num_scores / (len(by_task) * len(task)))",
            "(num_scores / num_scores)",
        ),
        breakage("a tie is a win", "np.heaviside(x[:, None] - y, 0.5)", "np.heaviside(x[:, None] - y, 1.0)"),
        breakage(
            "only one agent's seeds are resampled",
            "task[rows[:, :, None], columns[:, None, :]]",
            "task[rows[:, :, None], np.arange(task.shape[1])]",
        ),
        breakage(
            "seeds are drawn across tasks", "first + generator.integers(size,", "generator.integers(size,"
        ),
    ),
    *of(
        "minerva_acme/plotting/report.py",
        ("tests/plotting/test_report.py",),
        breakage(
            "a final score replaces the evaluation",
            '("final_return", "avg_return"):',
            '("avg_return", "final_return"):',
        ),
        breakage("scores are taken where no run is", "if not run.x[0] <= at <= run.x[-1]", "if False"),
        breakage(
            "published results are compared where there are none", "if not _lacking(method, comparison)", ""
        ),
    ),
    *of(
        "minerva_acme/plotting/figure.py",
        ("tests/plotting/test_figure.py",),
        breakage(
            "the legend has what is not seen", "if min(heights) <= high and max(heights) >= low:", "if True:"
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

MUTANTS = [
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
