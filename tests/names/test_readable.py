"""What a person reads who looks at an object in a session."""

import dataclasses
import importlib
import pathlib

import numpy as np
import pytest
import torch
from torch import nn

import minerva_acme
from minerva_acme import builders, experiments, runs, specs
from minerva_acme.agents import mpo, off_policy, ppo, registry
from minerva_acme.names import readable
from minerva_acme.runs import loaded_policy

WALKER = specs.EnvironmentSpec(
    specs.Array((24,), np.float32),
    specs.BoundedArray((6,), np.float32, -1.0, 1.0),
    specs.Array((), np.float32),
    specs.BoundedArray((), np.float32, 0.0, 1.0),
)
FEW, MANY = runs.Evaluation((9.0, 11.0), (8, 12)), runs.Evaluation((1002.5,), (1000,))


def test_networks_are_a_line_for_each_with_its_size() -> None:
    networks = mpo.MPOBuilder(mpo.MPOConfig()).make_networks(WALKER, torch.Generator())
    sizes = [sum(parameter.numel() for parameter in part.parameters()) for part in networks[:2]]
    assert repr(networks).splitlines() == [
        "MPONetworks",
        f"  policy   GaussianPolicy, {sizes[0]:,} parameters",
        f"  critic   Critic, {sizes[1]:,} parameters",
        "  encoder  IdentityEncoder",
    ]


@pytest.mark.parametrize(
    "kind",
    [
        getattr(importlib.import_module(entry.package), entry.config_name.replace("Config", "Networks"))
        for entry in registry.AGENTS.values()
        if issubclass(entry.builder, off_policy.OffPolicyBuilder)
    ],
)
def test_the_networks_of_every_agent_are_readable(kind: type) -> None:
    networks = kind(*(nn.Linear(2, 3) for _ in kind._fields))  # type: ignore[attr-defined]
    first, *lines = repr(networks).splitlines()
    assert first == kind.__name__
    assert [line.split(maxsplit=1) for line in lines] == [
        [name, "Linear, 9 parameters"]
        for name in kind._fields  # type: ignore[attr-defined]
    ]


def test_a_builder_is_its_config_and_that_what_differs_from_the_defaults() -> None:
    assert repr(ppo.PPOBuilder(ppo.PPOConfig())) == "PPOBuilder(PPOConfig())"
    changed = ppo.PPOConfig(num_environments=1, policy_layer_sizes=(8,))
    assert repr(ppo.PPOBuilder(changed)) == (
        "PPOBuilder(PPOConfig(num_environments=1, policy_layer_sizes=(8,)))"
    )


@dataclasses.dataclass
class Settings:
    needed: int
    kept: float = 0.5
    hidden: int = dataclasses.field(default=1, repr=False)
    sizes: list[int] = dataclasses.field(default_factory=list)


def test_what_has_no_default_is_always_told_and_what_is_hidden_never() -> None:
    assert readable.of_config(Settings(3)) == "Settings(needed=3)"
    assert readable.of_config(Settings(3, 0.25, 2, [4])) == "Settings(needed=3, kept=0.25, sizes=[4])"


@pytest.mark.parametrize(
    ("evaluation", "text"),
    [
        (FEW, "Evaluation(return 10.0 ± 1.0, 2 episodes of 8 to 12 steps)"),
        (MANY, "Evaluation(return 1,002.5, 1 episode of 1,000 steps)"),
        (runs.Evaluation((5.0, 5.0), (7, 7)), "Evaluation(return 5.0 ± 0.0, 2 episodes of 7 steps)"),
    ],
)
def test_an_evaluation_is_its_return_and_its_episodes(evaluation: runs.Evaluation, text: str) -> None:
    assert repr(evaluation) == text


def test_a_result_is_what_it_holds_line_by_line() -> None:
    result = experiments.ExperimentResult(
        directory=pathlib.Path("runs/first"),
        env_steps=50_000,
        learner_steps=1_234,
        random=None,
        before=FEW,
        after=MANY,
        best=(40_000, MANY),
        interrupted_by=None,
        stopped_by="`stop_at`",
        given_up=("actor/1 failed",),
    )
    assert repr(result).splitlines() == [
        "ExperimentResult in runs/first: 50,000 environment steps, 1,234 learner steps",
        "  before      return 10.0 ± 1.0, 2 episodes of 8 to 12 steps",
        "  after       return 1,002.5, 1 episode of 1,000 steps",
        "  best        return 1,002.5, 1 episode of 1,000 steps, after 40,000 steps",
        "  stopped_by  `stop_at`",
        "  given_up    actor/1 failed",
    ]


def test_a_loaded_policy_says_what_it_is_of_and_what_it_takes() -> None:
    policy = minerva_acme.load_policy("ppo_default:CartPole-v1")
    first, *lines = repr(policy).splitlines()
    assert first.startswith("LoadedPolicy from ") and first.endswith(".safetensors")
    assert lines == [
        "  policy        ModulePolicy(ActorCritic, 9,155 parameters, for evaluation)",
        "  observations  Array(4,) float32",
        "  actions       as the agent chose them",
    ]
    exploring = minerva_acme.load_policy("ppo_default:CartPole-v1", explore=True, actions="task")
    assert "parameters, exploring)" in repr(exploring)
    assert repr(exploring).splitlines()[-1] == "  actions       of the task, DiscreteArray with 2 values"


class Plain(builders.AgentPolicy):
    def set_variables(self, values: list[object]) -> None: ...

    def save(self) -> None: ...

    def restore(self, state: object) -> None: ...


def test_a_policy_of_nests_is_readable_too() -> None:
    nest = {"a": specs.Array((2,), np.float32), "b": specs.DiscreteArray(3)}
    text = repr(loaded_policy.LoadedPolicy(Plain(), nest))
    assert text.splitlines() == [
        "LoadedPolicy",
        "  policy        Plain",
        "  observations  {'a': 'Array(2,) float32', 'b': 'DiscreteArray with 3 values'}",
        "  actions       as the agent chose them",
    ]


def test_a_missing_module_of_pythons_own_is_not_blamed_on_a_package() -> None:
    assert readable.missing(ModuleNotFoundError(name="h5py"), "pip install h5py") == (
        "'h5py', which is not installed: pip install h5py"
    )
    told = readable.missing(ModuleNotFoundError(name="_lzma"), "pip install h5py")
    assert told == "'_lzma', a module of Python's own that this Python was built without: use another"
