"""Names that other libraries use for arguments, flags and functions, with their equivalents here.

The names are those of Acme, of flybody, which trains with Acme's DMPO on Ray, of Stable-Baselines3 and of
CleanRL. `docs/migrating.md` compares the fields of Acme's configs with ours, including the defaults.
"""

import functools
import inspect
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ParamSpec, Self, TypeVar

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

_REPLAY_RATIO = ("samples_per_insert (batch_size / samples_per_insert items a learner step)",)
_LAYER_SIZES = ("policy_layer_sizes", "critic_layer_sizes", "value_layer_sizes")
_POLICY_LOSS = ("epsilon", "epsilon_mean", "epsilon_stddev", "action_penalty", "epsilon_penalty")
_CHECKPOINTS = ("directory", "checkpoint_period", "checkpoint_keep", "checkpoint_replay")
_EVALUATORS = ("evaluation_period", "evaluation_episodes", "evaluation_environment_factory")


def _by_name(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a table with one entry for each of the names that its keys list."""
    return types.MappingProxyType({name: entry for names, entry in table.items() for name in names.split()})


ELSEWHERE: Mapping[str, tuple[str, ...]] = _by_name(
    {
        "total_timesteps timesteps num_timesteps n_timesteps": ("num_env_steps",),
        "total_steps steps max_num_actor_steps max_actor_steps": ("num_env_steps",),
        "total_frames": ("num_env_steps (decisions: frames over the action repeat)",),
        "max_num_learner_steps": ("num_learner_steps",),
        "env_id env_name gym_id task domain": ("env",),
        "algo algorithm": ("agent",),
        "experiment": ("config",),
        "learning_rate": ("policy_learning_rate", "critic_learning_rate"),
        "lr": ("learning_rate", "policy_learning_rate", "critic_learning_rate"),
        "policy_lr policy_learning_rate policy_optimizer": ("policy_learning_rate", "learning_rate"),
        "q_lr critic_learning_rate critic_optimizer": ("critic_learning_rate", "learning_rate"),
        "dual_learning_rate dual_optimizer": ("temperature_learning_rate", "alpha_learning_rate"),
        "anneal_lr": ("anneal_learning_rate",),
        "use_cosine_lr_decay": ("final_learning_rate", "anneal_learning_rate"),
        "adam_eps": ("adam_epsilon",),
        "grad_norm_clip max_gradient_norm policy_gradient_clipping clipping": ("max_grad_norm",),
        "gamma additional_discount": ("discount",),
        "n_envs": ("num_environments",),
        "n_step": ("sequence_length (with critic_target n_step)",),
        "n_steps": ("rollout_steps (of all environments together)", "n_step"),
        "num_steps": ("num_env_steps", "rollout_steps (of all environments together)"),
        "experience_type": ("sequence_length", "sequence_period", "critic_target (n_step or retrace)"),
        "unroll_length": ("rollout_steps (of all environments together)",),
        "n_epochs update_epochs": ("num_epochs",),
        "batch_size": ("minibatch_size", "rollout_steps"),
        "num_minibatches": ("minibatch_size (steps in each)",),
        "clip_range clip_coef ppo_clipping_epsilon": ("clip_ratio",),
        "clip_vloss": ("clip_value",),
        "value_clipping_epsilon": ("clip_ratio (also of the value)",),
        "ent_coef entropy_cost": ("entropy_coef", "initial_temperature"),
        "entropy_coefficient alpha": ("initial_temperature (which then adapts)",),
        "vf_coef value_cost": ("value_coef",),
        "norm_adv normalize_advantage": ("normalize_advantages",),
        "normalize_value": ("scale_rewards",),
        "normalize": ("normalize_observations", "scale_rewards"),
        "input_normalization obs_normalization_fns_factory": ("normalize_observations",),
        "use_sde": ("init_stddev",),
        "policy_init_scale": ("init_stddev",),
        "mog_init_scale": ("init_scale",),
        "mog_num_components": ("num_components",),
        "categorical_num_bins num_atoms n_atoms": ("num_bins",),
        "v_min": ("vmin",),
        "v_max": ("vmax",),
        "n_critics": ("num_critics",),
        "critic_type": ("critic_head",),
        "use_retrace": ("critic_target (retrace)",),
        "policy_loss_config policy_loss_module policy_loss_factory": _POLICY_LOSS,
        "action_penalization": ("action_penalty",),
        "per_dim_constraining": ("per_dimension_constraint",),
        "policy_eval_num_val_samples": ("retrace_mc_actions",),
        "num_stacked_observations": ("frame_stack",),
        "observation_transform observation_augmentation": ("random_shift (of images)",),
        "buffer_size replay_size": ("max_replay_size",),
        "learning_starts": ("min_replay_size",),
        "importance_sampling_exponent": ("importance_exponent",),
        "train_freq train_frequency gradient_steps utd_ratio": _REPLAY_RATIO,
        "sgd_steps_per_learner_step num_sgd_steps_per_step": _REPLAY_RATIO,
        "tau target_update_rate": ("target_rate", "target_critic_update_period", "target_update_period"),
        "target_network_frequency target_update_interval": (
            "target_rate",
            "target_critic_update_period",
            "target_update_period",
        ),
        "target_update_period": ("target_policy_update_period", "target_critic_update_period"),
        "actor_update_period": ("variable_update_period",),
        "policy_delay policy_frequency delay": ("policy_period",),
        "exploration_noise sigma": ("exploration_stddev",),
        "target_sigma policy_noise target_policy_noise": ("target_stddev",),
        "noise_clip": ("target_noise_clip",),
        "exploration_final_eps end_e epsilon": ("final_epsilon",),
        "start_e": ("initial_epsilon",),
        "exploration_fraction": ("epsilon_steps (a number of steps)",),
        "policy_kwargs net_arch hidden_sizes layer_sizes hidden_size hidden_layer_sizes": _LAYER_SIZES,
        "jit_learner": ("acceleration",),
        "eval_freq eval_every": ("evaluation_period",),
        "eval_episodes n_eval_episodes num_eval_episodes": ("evaluation_episodes", "episodes"),
        "num_episodes n_episodes": ("episodes", "evaluation_episodes"),
        "evaluator_factories": _EVALUATORS,
        "save_freq save_every time_delta_minutes": ("checkpoint_period",),
        "checkpointing": _CHECKPOINTS,
        "checkpoint_max_to_keep max_to_keep": ("checkpoint_keep",),
        "checkpoint_to_load": ("resume_from",),
        "log_every": ("log_period_seconds",),
        "logger": ("logger_factory",),
        "log_dir logdir log_path log_folder exp_name checkpoint_directory": ("directory",),
        "save_path save_dir out out_dir output_dir": ("directory", "output"),
        "tensorboard_log": ("log tensorboard", "directory"),
        "tensorboard": ("log tensorboard",),
        "wandb track": ("log wandb",),
        "capture_video": ("evaluation_video",),
        "cuda gpu": ("device cuda",),
        "no_cuda": ("device cpu",),
        "config_file conf_file": ("config",),
        "deterministic": ("no_explore (the default)",),
        "stochastic": ("explore",),
        "load_best": ("checkpoint best",),
        "load_checkpoint": ("checkpoint",),
        "trained_agent": ("from_run",),
        "vec_env": ("environment_processes",),
        "n_eval_envs": ("evaluation_environments",),
        "log_interval": ("log_period_seconds",),
        "save_replay_buffer": ("checkpoint_replay (the default)",),
        "n_jobs": ("jobs",),
        "n_trials": ("optuna",),
    }
)
"""Names of other libraries, with ours: a name, then an optional remark. Only names that a command, a config
or a function has are suggested for it."""

_NO_ROLLOUTS = "Leave it out: no agent here learns a model of the environment."
_NOT_NEEDED = "Leave it out: nothing here needs it."
_OWN_STEPS = "Each loss has its own optimizer here: change its learning rate instead."
_WRAP_REWARDS = "Change the rewards by a wrapper around the environment."

ADVICE: Mapping[str, str] = _by_name(
    {
        "network_factory": "The builder makes the networks, with the layer sizes of its config. To use your "
        "own networks, override its `make_networks`.",
        "policy_network_factory eval_policy_network_factory": "Override the builder's `make_policy`.",
        "policy_network critic_network observation_network": "Override the builder's `make_networks`.",
        "environment_spec": "Leave it out: it is read from the environment.",
        "demonstration_dataset_factory": "Override the builder's `make_dataset`.",
        "num_actors num_actors_per_node": "Pass `num_actors` to `distributed.run_distributed_experiment`.",
        "eval_every num_eval_episodes": "Set `evaluation_period` and `evaluation_episodes` of "
        "`ExperimentConfig`.",
        "total_timesteps timesteps num_timesteps n_timesteps max_num_actor_steps": "Set `num_env_steps` of "
        "`ExperimentConfig`.",
        "seed": "Set `seed` of `ExperimentConfig`.",
        "sgd_steps_per_learner_step": "Set `samples_per_insert` of the config: there is one gradient step "
        "in a learner step.",
        "max_learner_steps num_learner_steps": "Leave it out: the steps follow from `num_env_steps` of "
        "`ExperimentConfig`.",
        "discrete_policy": "Leave it out: it follows from the environment's actions.",
        "replay_fraction online_queue_capacity": "Leave it out: all batches are drawn from replay.",
        "value_tx_pair reward_scale reward_clip max_abs_reward": _WRAP_REWARDS,
        "use_online_policy_to_bootstrap policy_eval_stochastic": "Leave it out: values are those of the "
        "target policy, with sampled actions.",
        "use_stale_state": "Here it is `stored_state`, for networks with a `memory`.",
        "adam_b1 adam_b2": "Override the builder's `make_optimizer`.",
        "weight_decay": "Override the builder's `make_optimizer`.",
        "cosine_lr_decay_warmup_steps": "Leave it out: learning rates have no warm-up.",
        "policy_loss_scale critic_loss_scale": _OWN_STEPS,
        "model_rollout_length rollout_policy_loss_scale rollout_bc_policy_loss_scale": _NO_ROLLOUTS,
        "rollout_critic_loss_scale rollout_reward_loss_scale": _NO_ROLLOUTS,
        "min_scale": "Leave it out: standard deviations stay in [0.00092, 7.38], see "
        "`networks.GaussianPolicy`.",
        "variable_update_period": "Leave it out: the actors get new weights after each update.",
        "eval_epsilon": "Leave it out: evaluations always take the best action.",
        "bc_alpha": "Leave it out: to learn from data, use TD3 with `bc_alpha`, CRR or BC.",
        "normalization_ema_tau": "Leave it out: statistics are of all data so far.",
        "replay_table_name prefetch_size samples_per_insert_tolerance_rate num_caches": _NOT_NEEDED,
        "log_global_norm_metrics metrics_logging_period pmap_axis_name": _NOT_NEEDED,
        "add_uid checkpoint logger_save_csv_data terminal print_fn counter": _NOT_NEEDED,
        "userdata actor_observation_callback": _NOT_NEEDED,
        # Functions and classes of their modules.
        "Actor Adder Learner Saveable VariableSource Worker": "Import it from `minerva_acme.core`.",
        "EnvironmentLoop": "Import it from `minerva_acme.environments`.",
        "EnvironmentSpec make_environment_spec": "Import it from `minerva_acme.specs`.",
        "A2C DDPG DQN PPO SAC TD3": "Train with `experiments.run_experiment` and an agent's builder, such as "
        "`ppo.PPOBuilder`.",
        "CriticType": 'Set `critic_head` of `MPOConfig`: "c51" is CATEGORICAL, "mixture" is '
        'MIXTURE_OF_GAUSSIANS, "two_hot" is CATEGORICAL_2HOT, "scalar" is NONDISTRIBUTIONAL.',
        "FromTransitions FromSequences": "Set `sequence_length`, `sequence_period` and `critic_target` of "
        "`MPOConfig`.",
        "GaussianPolicyLossConfig CategoricalPolicyLossConfig": "Its settings are fields of `MPOConfig`.",
        "make_control_networks": "The builder makes the networks, from the fields of `MPOConfig`.",
        "make_networks": "The builder makes the networks, from the fields of its config.",
        "NormalizationBuilder normalization": "Set `normalize_observations` of `MPOConfig`, `PPOConfig` or "
        "`VMPOConfig`.",
        "DMPOConfig DistributionalMPO DistributedDistributionalMPO": "DMPO is MPO with a distributional "
        'critic: MPOBuilder(PRESETS["dmpo"]).',
        "target_entropy_from_env_spec": "Leave `target_entropy` of `SACConfig` at None, which is -1 per "
        "dimension.",
        "CheckpointingConfig": "Its settings are fields of `ExperimentConfig`.",
        "make_distributed_experiment": "Call `distributed.run_distributed_experiment`.",
    }
)
"""What to do about names of other libraries that have no equivalent where they are used."""

_SWEEP = "To search for settings: minerva sweep AGENT --env ENVIRONMENT --optuna N"
_IS_SHOWN = "Leave it out: a run always shows its progress."

FLAG_ADVICE: Mapping[str, str] = _by_name(
    {
        "policy": "Leave it out: the networks follow from the environment's observations and actions.",
        "autotune": "Leave it out: SAC's temperature always adapts.",
        "wandb_project_name wandb_project": "Set WANDB_PROJECT, and log with: --log csv,wandb",
        "wandb_entity": "Set WANDB_ENTITY, and log with: --log csv,wandb",
        "torch_deterministic": "Leave it out: on a CPU, --seed and --replay memory repeat a run.",
        "num_threads": "Set OMP_NUM_THREADS.",
        "save_model": "Leave it out: checkpoints are saved. To a single file: minerva export RUN",
        "upload_model hf_entity": "When the run is complete: minerva publish RUN --to OWNER/NAME",
        "optimize optimize_hyperparameters sampler pruner study_name": _SWEEP,
        "hyperparams hyperparameters": "Give each as a flag of its own, or in a file: --config FILE",
        "verbose progress progress_bar": _IS_SHOWN,
        "uuid exp_id": "Leave it out: each run has a folder, --directory.",
        "gym_packages": "Name the module: --env my_module:MyEnvironment",
        "render render_mode no_render": "To film a run: minerva video RUN",
        "checkpoint_to_load": "To start with a run's weights: --from RUN. To continue: minerva resume RUN",
    }
)
"""What to do about flags of other libraries that have no equivalent among ours."""

SHORT_FLAGS: Mapping[str, str] = {
    "-n": "n_timesteps",
    "-f": "log_folder",
    "-i": "trained_agent",
    "-P": "progress",
    "-tb": "tensorboard_log",
    "-params": "hyperparams",
    "-conf": "conf_file",
    "-optimize": "optimize",
}
"""The short flags of Stable-Baselines3's Zoo, with its names in full."""

NEAREST: Mapping[str, str] = _by_name(
    {
        "enjoy play test rollout": "eval",
        "record_video render film": "video",
        "optimize tune": "sweep",
        "fit learn run": "train",
        "a2c trpo ppo_lstm ppo_mask ppo_atari ppo_continuous_action": "ppo",
        "a3c": "impala",
        "tqc crossq sac_atari sac_continuous_action": "sac",
        "c51 rainbow dqn_atari": "dqn",
        "cql awac": "crr",
    }
)
"""Commands and agents of other libraries, with the one here that comes nearest."""


def refuse(taker: Callable[..., Any], given: Collection[str]) -> None:
    """Explains the names of other libraries among the named arguments of a call.

    Args:
        taker: The class or function that is called.
        given: The names of the arguments.

    Raises:
        TypeError: Some of these are names of another library, and `taker` has no such parameters. The message
            has a line for each, with the equivalent.
    """
    foreign = [name for name in given if name in ELSEWHERE or name in ADVICE]
    known = inspect.signature(taker).parameters if foreign else {}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        return
    lines = [
        f"`{taker.__name__}` takes no `{name}`. {_way_out(name, taker.__name__, known)}"
        for name in foreign
        if name not in known
    ]
    if lines:
        raise TypeError("\n".join([*lines, "For all of Acme's names: docs/migrating.md"]))


def _way_out(name: str, taker: str, known: Collection[str]) -> str:
    """Returns the equivalent of a name, as a sentence.

    Args:
        name: Another library's name.
        taker: The name of the class or function that is called.
        known: Its parameters.
    """
    parts = [entry.partition(" ") for entry in ELSEWHERE.get(name, ())]
    ours = {f"`{own}`{space}{remark}": own for own, space, remark in parts}
    here = [text for text, own in ours.items() if own in known]
    if here:
        return f"Here it is {_either(here)}."
    return ADVICE.get(name) or f"Here it is {_either([*ours])}, which `{taker}` does not take either."


def _either(names: Sequence[str]) -> str:
    """Joins names by commas, and the last two by "or"."""
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


class Translated:
    """A base class whose subclasses explain the names of other libraries in their constructors' arguments.

    A subclass must have an `__init__`, as a dataclass has.
    """

    def __new__(cls, *args: Any, **named: Any) -> Self:
        refuse(cls, named)
        return super().__new__(cls)


def translated(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Returns the function with a check that explains the names of other libraries; see `refuse`."""

    @functools.wraps(function)
    def call(*args: _Parameters.args, **named: _Parameters.kwargs) -> _Result:
        refuse(function, named)
        return function(*args, **named)

    return call
