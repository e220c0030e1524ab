"""The glossary has every number that a run logs, and no number that nothing logs."""

import ast
import csv
import pathlib
import re
from typing import Any

import pytest

from minerva_acme import environments, experiments, wrappers
from minerva_acme.agents import registry
from tests.fields import of_fields

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "metrics.md").read_text()
NAMES = {
    name.strip()
    for row in re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
    for name in re.findall(r"`([^`]+)`", row)
}
# Small, and so that an agent logs as much as it can.
SETTINGS: dict[str, Any] = {
    "batch_size": 4,
    "min_replay_size": 8,
    "samples_per_insert": 0.5,
    "sequence_length": 4,
    "sequence_period": 1,
    "num_environments": 1,
    "rollout_steps": 16,
    "minibatch_size": 8,
    "num_epochs": 1,
    "target_kl": 1.0,
    "layer_sizes": (4,),
    "policy_layer_sizes": (4,),
    "critic_layer_sizes": (4,),
    "value_layer_sizes": (4,),
    "action_penalty": True,
    "target_precision": "bfloat16",
}


def described(name: str) -> bool:
    """Whether the page has a name, as it is or by a pattern such as `grad_norm/*`."""
    patterns = (re.escape(entry).replace(r"\*", r"[\w/]+") for entry in NAMES)
    return any(re.fullmatch(pattern, name) for pattern in patterns)


@pytest.mark.parametrize("agent", registry.AGENTS)
def test_the_glossary_has_every_number_that_a_run_of_the_agent_logs(
    agent: str, tmp_path: pathlib.Path
) -> None:
    entry = registry.AGENTS[agent]
    environment_id = "CartPole-v1" if agent in ("dqn", "r2d2") else "Pendulum-v1"

    def make_environment(seed: int) -> Any:
        environment = environments.make_training_environment(environment_id, seed=seed)
        return wrappers.StepLimitWrapper(environment, max_steps=8)

    experiments.run_experiment(
        experiments.ExperimentConfig(
            builder=entry.builder(entry.config(**of_fields(entry.config, SETTINGS))),
            environment_factory=make_environment,
            directory=tmp_path,
            num_env_steps=32,
            evaluation_episodes=1,
            checkpoint_period=0,
            log_period_seconds=0.0,
            tensorboard=False,
            replay="memory",
        )
    )
    logged = set()
    for label in ("actor", "learner", "evaluator"):
        with (tmp_path / f"{label}.csv").open() as file:
            logged |= set(next(csv.reader(file)))
    assert {"actor_steps", "learner_steps", "episode_return", "skipped_batches"} <= logged
    assert not sorted(name for name in logged if not described(name))


def test_the_glossary_has_every_number_that_the_code_of_a_learner_names() -> None:
    """Those too that only some settings log."""
    named = set()
    learners = (REPOSITORY / "minerva_acme" / "learners").glob("*.py")
    for path in [*(REPOSITORY / "agents").rglob("*.py"), *learners]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if re.fullmatch(r"(loss|kl|policy|q|value|advantage|alpha|grad_norm)/\w*[a-z]", node.value):
                    named.add(node.value)
    assert len(named) >= 30
    assert not sorted(name for name in named if not described(name))


def test_every_number_of_the_glossary_is_named_in_the_code() -> None:
    folders = ("minerva_acme", "adders", "agents")
    code = "\n".join(path.read_text() for folder in folders for path in (REPOSITORY / folder).rglob("*.py"))
    # Of counts, and of a multiplier's loss or distance, the code makes the name of two.
    parts = {
        part
        for name in NAMES
        for part in re.split(r"[/*]+|^(?:actor|learner)_|^loss/alpha_|_rel$", name)
        if part
    }
    assert len(parts) > 50
    beginnings = set()
    for word in set(re.findall(r"\w+", code)):
        beginnings |= {word, *(word[: end.start()] for end in re.finditer("_", word))}
    assert not sorted(parts - beginnings)


def test_every_row_of_the_glossary_says_what_healthy_looks_like() -> None:
    rows = [row.split(" | ") for row in re.findall(r"^\| `.*$", PAGE, re.MULTILINE)]
    assert len(rows) > 40
    said = [row[0] for row in rows if len(row) == 3 and len(row[1]) > 10 and len(row[2]) > 4]
    # Two of them only measure time and what the user asked for.
    assert len(said) >= len(rows) - 3 and all(len(row) == 3 for row in rows)
