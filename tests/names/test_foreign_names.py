"""Names of other libraries are explained where they are passed, and the page on Acme's fields is right.

ACME holds the fields of Acme's configs (JAX, 770bc75) and of flybody's (d015e9b), with their defaults.
"""

import copy
import dataclasses
import inspect
import pathlib
import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import minerva_acme
from minerva_acme import agents, distributed, experiments
from minerva_acme.agents import d4pg, dqn, mpo, ppo, sac, td3
from minerva_acme.names import foreign_names

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "migrating.md"
REQUIRED = object()

OF_TABLES = {"replay_table_name": "priority_table", "prefetch_size": 4}
OF_LEARNING = {"samples_per_insert_tolerance_rate": 0.1, "num_sgd_steps_per_step": 1}
ACME: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "ExperimentConfig": (
        experiments.ExperimentConfig,
        dict.fromkeys(
            ["builder", "network_factory", "environment_factory", "max_num_actor_steps", "seed"], REQUIRED
        )
        | dict.fromkeys(
            ["policy_network_factory", "eval_policy_network_factory", "evaluator_factories"], None
        )
        | {"environment_spec": None, "observers": (), "logger_factory": "logs", "checkpointing": "on"},
    ),
    "run_experiment": (
        experiments.run_experiment,
        {"experiment": REQUIRED, "eval_every": 100, "num_eval_episodes": 1},
    ),
    "MPOBuilder": (
        mpo.MPOBuilder,
        {"config": REQUIRED, "sgd_steps_per_learner_step": 8, "max_learner_steps": None},
    ),
    "MPOConfig": (
        mpo.MPOConfig,
        {
            "batch_size": 256,
            "discount": 0.99,
            "discrete_policy": False,
            "experience_type": "FromTransitions(n_step=5)",
            "num_stacked_observations": 1,
            "observation_transform": None,
            "replay_fraction": 1.0,
            "samples_per_insert": 32.0,
            "min_replay_size": 1000,
            "max_replay_size": 1_000_000,
            "online_queue_capacity": 0,
            "critic_type": "MIXTURE_OF_GAUSSIANS",
            "value_tx_pair": "IDENTITY_PAIR",
            "use_retrace": False,
            "retrace_lambda": 0.95,
            "reward_clip": float("inf"),
            "use_online_policy_to_bootstrap": False,
            "use_stale_state": False,
            "num_samples": 20,
            "policy_loss_config": None,
            "policy_eval_stochastic": True,
            "policy_eval_num_val_samples": 128,
            "learning_rate": 1e-4,
            "dual_learning_rate": 1e-2,
            "grad_norm_clip": 40.0,
            "adam_b1": 0.9,
            "adam_b2": 0.999,
            "weight_decay": 0.0,
            "use_cosine_lr_decay": False,
            "cosine_lr_decay_warmup_steps": 3000,
            "target_update_period": 100,
            "target_update_rate": None,
            "variable_update_period": 1000,
            "policy_loss_scale": 1.0,
            "critic_loss_scale": 1.0,
            "model_rollout_length": 0,
            "rollout_policy_loss_scale": 1.0,
            "rollout_bc_policy_loss_scale": 1.0,
            "rollout_critic_loss_scale": 1.0,
            "rollout_reward_loss_scale": 1.0,
            "jit_learner": True,
        },
    ),
    "GaussianPolicyLossConfig": (
        mpo.MPOConfig,
        {
            "epsilon": 0.1,
            "epsilon_penalty": 0.001,
            "epsilon_mean": 0.0025,
            "epsilon_stddev": 1e-6,
            "init_log_temperature": 10.0,
            "init_log_alpha_mean": 10.0,
            "init_log_alpha_stddev": 1000.0,
            "action_penalization": True,
            "per_dim_constraining": True,
        },
    ),
    "make_control_networks": (
        mpo.MPOConfig,
        {
            "policy_layer_sizes": (256, 256, 256),
            "critic_layer_sizes": (512, 512, 256),
            "policy_init_scale": 0.7,
            "mog_init_scale": 1e-3,
            "mog_num_components": 5,
            "categorical_num_bins": 51,
            "vmin": -150.0,
            "vmax": 150.0,
            "min_scale": 1e-6,
        },
    ),
    "flybody's DMPOConfig": (
        mpo.MPOConfig,
        {
            "num_actors": 32,
            "batch_size": 256,
            "prefetch_size": 4,
            "min_replay_size": 10_000,
            "max_replay_size": 4_000_000,
            "samples_per_insert": 32.0,
            "n_step": 5,
            "num_samples": 20,
            "num_learner_steps": 100,
            "clipping": True,
            "discount": 0.99,
            "policy_loss_module": None,
            "policy_optimizer": None,
            "critic_optimizer": None,
            "dual_optimizer": None,
            "target_policy_update_period": 101,
            "target_critic_update_period": 107,
            "actor_update_period": 1000,
            "logger": None,
            "log_every": 60.0,
            "logger_save_csv_data": False,
            "checkpoint_to_load": None,
            "checkpoint_max_to_keep": 1,
            "checkpoint_directory": "~/ray-ckpts/",
            "time_delta_minutes": 30,
            "terminal": "current_terminal",
            "replay_table_name": "priority_table",
            "print_fn": "logging.info",
            "userdata": None,
            "actor_observation_callback": None,
        },
    ),
    "SACConfig": (
        sac.SACConfig,
        {
            "batch_size": 256,
            "learning_rate": 3e-4,
            "reward_scale": 1,
            "discount": 0.99,
            "n_step": 1,
            "entropy_coefficient": None,
            "target_entropy": 0.0,
            "tau": 0.005,
            "min_replay_size": 10_000,
            "max_replay_size": 1_000_000,
            "samples_per_insert": 256.0,
            "input_normalization": None,
            "hidden_layer_sizes": (256, 256),
            "min_scale": 1e-3,
            **OF_TABLES,
            **OF_LEARNING,
        },
    ),
    "TD3Config": (
        td3.TD3Config,
        {
            "batch_size": 256,
            "policy_learning_rate": 3e-4,
            "critic_learning_rate": 3e-4,
            "policy_gradient_clipping": None,
            "discount": 0.99,
            "n_step": 1,
            "sigma": 0.1,
            "delay": 2,
            "target_sigma": 0.2,
            "noise_clip": 0.5,
            "tau": 0.005,
            "min_replay_size": 1000,
            "max_replay_size": 1_000_000,
            "samples_per_insert": 256.0,
            "bc_alpha": None,
            **OF_TABLES,
            **OF_LEARNING,
        },
    ),
    "D4PGConfig": (
        d4pg.D4PGConfig,
        {
            "sigma": 0.3,
            "target_update_period": 100,
            "samples_per_insert": 32.0,
            "n_step": 5,
            "discount": 0.99,
            "batch_size": 256,
            "learning_rate": 1e-4,
            "clipping": True,
            "min_replay_size": 1000,
            "max_replay_size": 1_000_000,
            **OF_TABLES,
            **OF_LEARNING,
        },
    ),
    "DQNConfig": (
        dqn.DQNConfig,
        {
            "epsilon": 0.05,
            "eval_epsilon": None,
            "seed": 1,
            "learning_rate": 1e-3,
            "adam_eps": 1e-8,
            "discount": 0.99,
            "n_step": 5,
            "target_update_period": 100,
            "max_gradient_norm": float("inf"),
            "batch_size": 256,
            "min_replay_size": 1000,
            "max_replay_size": 1_000_000,
            "importance_sampling_exponent": 0.2,
            "priority_exponent": 0.6,
            "samples_per_insert": 0.5,
            **OF_TABLES,
            **OF_LEARNING,
        },
    ),
    "PPOConfig": (
        ppo.PPOConfig,
        {
            "unroll_length": 8,
            "num_minibatches": 8,
            "num_epochs": 2,
            "batch_size": 256,
            "replay_table_name": "priority_table",
            "ppo_clipping_epsilon": 0.2,
            "normalize_advantage": False,
            "normalize_value": False,
            "normalization_ema_tau": 0.995,
            "clip_value": False,
            "value_clipping_epsilon": 0.2,
            "max_abs_reward": None,
            "gae_lambda": 0.95,
            "discount": 0.99,
            "learning_rate": 3e-4,
            "adam_epsilon": 1e-7,
            "entropy_cost": 3e-4,
            "value_cost": 1.0,
            "max_gradient_norm": 0.5,
            "variable_update_period": 1,
            "log_global_norm_metrics": False,
            "metrics_logging_period": 100,
            "pmap_axis_name": "devices",
            "obs_normalization_fns_factory": None,
        },
    ),
}
# The tables of the page, and what each of them is about.
TABLES = {
    "The experiment": ("ExperimentConfig", "run_experiment"),
    "MPO and DMPO": ("MPOConfig", "MPOBuilder", "GaussianPolicyLossConfig", "make_control_networks"),
    "SAC": ("SACConfig",),
    "TD3": ("TD3Config",),
    "D4PG": ("D4PGConfig",),
    "DQN": ("DQNConfig",),
    "PPO": ("PPOConfig",),
    "flybody": ("flybody's DMPOConfig",),
}


def section(table: str) -> str:
    """The section of the page with a table."""
    fields = PAGE.read_text().partition("## The fields of configs")[2]
    (found,) = (part for part in fields.split("### ") if table in part.splitlines()[0])
    return found


def rows(table: str) -> Iterator[list[list[str]]]:
    """Yields the names in the cells of each row: Acme's, ours, Acme's defaults, ours."""
    for line in section(table).splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and cells.pop(0) != table:
            continue
        if line.startswith("| ") and "in Acme" not in line and "in flybody" not in line:
            yield [re.findall(r"`([^`]+)`", cell.partition(" of ")[0]) for cell in cells]


def parameters(taker: Callable[..., Any]) -> dict[str, Any]:
    return {name: value.default for name, value in inspect.signature(taker).parameters.items()}


@pytest.mark.parametrize("acmes", ACME)
def test_every_name_of_acmes_is_taken_or_explained(acmes: str) -> None:
    taker, fields = ACME[acmes]
    known = parameters(taker)
    foreign = [name for name in fields if name not in known]
    with pytest.raises(TypeError) as raised:
        taker(**dict.fromkeys(foreign, 1))
    *lines, page = str(raised.value).splitlines()
    assert page == "For all of Acme's names: docs/migrating.md"
    assert [line.split(". ")[0] for line in lines] == [
        f"`{taker.__name__}` takes no `{name}`" for name in foreign
    ]
    for line in lines:
        if ". Here it is " in line and "either" not in line:
            named = re.findall(r"`(\w+)`", line.partition(". Here it is ")[2])
            assert named and set(named) <= set(known), line


@pytest.mark.parametrize("table", TABLES)
def test_the_page_has_every_field_that_differs(table: str) -> None:
    stated = {name: defaults for acmes, _, defaults, _ in rows(table) for name in acmes}
    for acmes in TABLES[table]:
        taker, fields = ACME[acmes]
        for name, default in fields.items():
            if name not in stated:
                is_same = parameters(taker).get(name, "none") == default or default is REQUIRED
                assert is_same or f"`{name}`" in section(table), name
            elif isinstance(default, bool | int | float | tuple) or default is None:
                assert repr(default) in stated[name], name


@pytest.mark.parametrize("table", TABLES)
def test_the_page_has_our_defaults(table: str) -> None:
    known = parameters(experiments.ExperimentConfig)
    for acmes in TABLES[table]:
        known |= parameters(ACME[acmes][0])
    found = 0
    for _, ours, _, defaults in rows(table):
        named = [name for name in ours if name in known]
        required = [known[name] is inspect.Parameter.empty for name in named]
        if named and not all(required):
            assert [repr(known[name]) for name in named] == defaults
            found += 1
    assert found >= 4


def test_acmes_script_for_dmpo_is_told_all_in_one_message() -> None:
    with pytest.raises(TypeError) as raised:
        mpo.MPOConfig(
            critic_type="categorical",  # type: ignore[call-arg]
            policy_loss_config=None,
            samples_per_insert=64,
            learning_rate=3e-4,
            experience_type=None,
        )
    assert str(raised.value).splitlines() == [
        "`MPOConfig` takes no `critic_type`. Here it is `critic_head`.",
        "`MPOConfig` takes no `policy_loss_config`. Here it is `epsilon`, `epsilon_mean`, `epsilon_stddev`, "
        "`action_penalty` or `epsilon_penalty`.",
        "`MPOConfig` takes no `learning_rate`. Here it is `policy_learning_rate` or `critic_learning_rate`.",
        "`MPOConfig` takes no `experience_type`. Here it is `sequence_length`, `sequence_period` or "
        "`critic_target` (n_step or retrace).",
        "For all of Acme's names: docs/migrating.md",
    ]


def test_names_for_something_else_say_that_this_does_not_take_them() -> None:
    with pytest.raises(TypeError, match="Here it is `env`, which `SACConfig` does not take either"):
        sac.SACConfig(env_id=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="takes no `total_timesteps`. Set `num_env_steps` of"):
        foreign_names.refuse(experiments.run_experiment, ["total_timesteps"])


def test_names_that_no_library_uses_get_pythons_message() -> None:
    with pytest.raises(TypeError, match=r"__init__\(\) got an unexpected keyword argument 'nonsense'"):
        sac.SACConfig(nonsense=1)  # type: ignore[call-arg]


def test_a_builder_of_ones_own_may_take_any_argument() -> None:
    class Own(mpo.MPOBuilder):
        def __init__(self, config: mpo.MPOConfig, **settings: int) -> None:
            super().__init__(config)
            self.settings = settings

    assert Own(mpo.MPOConfig(), sgd_steps_per_learner_step=3).settings == {"sgd_steps_per_learner_step": 3}


def test_a_config_of_ones_own_may_have_a_field_with_any_name() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Own(sac.SACConfig):
        tau: float = 0.5

    assert Own(tau=0.25).tau == 0.25
    with pytest.raises(TypeError, match="`Own` takes no `sigma`"):
        Own(sigma=0.25)  # type: ignore[call-arg]


def test_configs_are_copied_replaced_and_pickled_as_before() -> None:
    config = mpo.MPOConfig(batch_size=32)
    assert copy.deepcopy(config) == config == pickle.loads(pickle.dumps(config))
    assert dataclasses.replace(config, batch_size=256) == mpo.MPOConfig()
    with pytest.raises(TypeError, match="Here it is `critic_head`"):
        dataclasses.replace(config, critic_type="c51")  # type: ignore[call-arg]


def test_a_distributed_run_explains_them_too() -> None:
    with pytest.raises(
        TypeError, match="`run_distributed_experiment` takes no `experiment`. Here it is `config`"
    ):
        distributed.run_distributed_experiment(experiment=None, num_actors=4)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("module", "name", "way_out"),
    [
        (mpo, "CriticType", "Set `critic_head`"),
        (mpo, "DMPOConfig", "DMPO is MPO with a distributional critic"),
        (sac, "target_entropy_from_env_spec", "Leave `target_entropy` of `SACConfig` at None"),
        (sac, "make_networks", "The builder makes the networks, from the fields of its config"),
        (agents, "normalization", "Set `normalize_observations` of `MPOConfig`, `PPOConfig` or `VMPOConfig`"),
        (experiments, "make_distributed_experiment", "Call `distributed.run_distributed_experiment`"),
        (minerva_acme, "EnvironmentLoop", "Import it from `minerva_acme.environments`"),
        (minerva_acme, "Actor", "Import it from `minerva_acme.core`"),
        (minerva_acme, "PPO", "Train with `experiments.run_experiment` and an agent's builder"),
        (agents, "SAC", "Train with `experiments.run_experiment` and an agent's builder"),
    ],
)
def test_names_of_other_libraries_modules_are_explained(module: Any, name: str, way_out: str) -> None:
    with pytest.raises(ImportError, match=f"has no attribute '{name}'. {way_out}"):
        exec(f"from {module.__name__} import {name}")
    exec(
        "from minerva_acme.plotting import terminal"
    )  # a module of ours, with the name of an argument of theirs
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'$"):
        _ = module.nonsense


def test_what_the_advice_names_exists() -> None:
    here = {"SACConfig", "MPOConfig", "PPOConfig", "VMPOConfig", "ExperimentConfig", "num_actors"}
    here |= {"distributed.run_distributed_experiment", "networks.GaussianPolicy"}
    here |= {"minerva_acme.core", "minerva_acme.environments", "minerva_acme.specs", "ppo.PPOBuilder"}
    here |= {"experiments.run_experiment"}
    for config in (mpo.MPOConfig, sac.SACConfig, td3.TD3Config, experiments.ExperimentConfig):
        here |= set(parameters(config))
    for advice in foreign_names.table("advice").values():
        for name in re.findall(r"`([\w.]+)`", advice):
            assert name in here or hasattr(mpo.MPOBuilder, name), name
