"""Every agent with `acceleration` compile: its losses train as without it, and a resumed run is the same run.

Some by `aot_eager` here, which writes no C++; all by inductor in `make test-compile`.
"""

import importlib.util
import itertools
import sys

import pytest
import torch

from minerva_acme import testing

from . import table, transition_scene

pytestmark = pytest.mark.promise("`--acceleration compile` trains as without it")

LOSSES = {
    **{name: [*agent.make().make_objectives(agent.spec)] for name, agent in transition_scene.AGENTS.items()},
    "ppo": ["network"],
    "vmpo": ["network"],
    "impala": ["network"],
    "mpo": ["critic", "policy"],
}


def make(name, mode, **settings):
    """A small learner of an agent, and the rows that it logs."""
    if name == "ppo":  # 16 samples in three minibatches, of 6, 5 and 5
        settings = {"minibatch_size": 5, "num_epochs": 1, **settings}
    scene = table.Scene(name, settings)
    batches = (scene.make_batch(seed, acceleration="off") for seed in itertools.count())
    return scene.make(batches, acceleration=mode)


@pytest.fixture
def by_aot_eager(monkeypatch):
    monkeypatch.setenv("MINERVA_COMPILE_BACKEND", "aot_eager")


def without_time(rows):
    return [{name: float(x) for name, x in row.items() if name != "walltime"} for row in rows]


def assert_trains_as_by_torch(name, num_steps=3, **settings):
    results = []
    for mode in ("compile", "off"):
        learner, rows = make(name, mode, **settings)
        learner.run(num_steps=num_steps)
        state = learner.save()
        ways = state.pop("ways", {})
        assert ways == (dict.fromkeys(LOSSES[name], "compiled") if mode == "compile" else {})
        assert rows[-1]["skipped_batches"] == 0
        results.append([state, without_time(rows)])
    torch.testing.assert_close(*results, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(  # an agent on the kit, and one that is not
    "name", ["dqn", *(pytest.param(name, marks=pytest.mark.compile) for name in ("ppo", "vmpo", "mpo"))]
)
@pytest.mark.usefixtures("by_aot_eager")
def test_compiled_losses_train_as_plain_ones(name):
    assert_trains_as_by_torch(name)


@pytest.mark.usefixtures("by_aot_eager")
def test_a_memory_of_ppo_runs_plainly_which_is_said_in_one_line(run, said):
    builder = table.Scene("ppo").builder(acceleration="compile", memory="gru", minibatch_size=16)
    run(builder, lambda seed: testing.FakeEnvironment(), 48)
    (line,) = [line for line in said() if line.startswith("network loss")]
    assert "plain torch from now on, because it cannot be compiled" in line


MPO_PLAIN = {
    "multipliers": ({}, "duals", "it is of a few numbers"),
    "all states": ({"policy_loss_steps": "all"}, "policy", "it is of as many states as happened"),
    "batch norm": ({"critic_torso": "batch_norm"}, "critic", "it sees as many pairs as happened"),
}


@pytest.mark.parametrize("case", MPO_PLAIN)
@pytest.mark.usefixtures("by_aot_eager")
def test_losses_of_mpo_that_cannot_be_compiled_are_not_and_the_log_says_why(case, said):
    settings, loss, reason = MPO_PLAIN[case]
    make("mpo", "compile", **settings)
    (line,) = [line for line in said() if line.startswith(f"{loss} loss: plain torch")]
    assert reason in line


def own_agent(repository, monkeypatch):
    """The agent of examples/sac.py, of three losses."""
    spec = importlib.util.spec_from_file_location("example_sac", repository / "examples" / "sac.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # where torch.compile looks for what it calls
    spec.loader.exec_module(module)
    return module


def make_own_learner(module, mode):
    config = module.SACConfig(**transition_scene.TINY, layer_sizes=(8, 8), acceleration=mode)
    return transition_scene.make_learner(module.SACBuilder(config), transition_scene.make_spec())


@pytest.mark.compile  # of three losses, each compiled for seconds
@pytest.mark.usefixtures("by_aot_eager")
def test_an_agent_of_ones_own_on_the_kit_is_compiled_too(repository, monkeypatch):
    module, results = own_agent(repository, monkeypatch), []
    for mode in ("compile", "off"):
        learner, _, rows = make_own_learner(module, mode)
        learner.run(num_steps=2)
        state = learner.save()
        ways = state.pop("ways", {})
        assert set(ways.values()) == ({"compiled"} if mode == "compile" else set())
        results.append([state, without_time(rows)])
    torch.testing.assert_close(*results, rtol=1e-4, atol=2e-5)


# By inductor: `make test-compile`.

VARIANTS = {
    **{name: (name, {}) for name in LOSSES},
    "dqn, prioritised bins": ("dqn", {"critic_head": "c51", "double": True}),
    "sac, mixture": ("sac", {"critic_head": "mixture", "num_critics": 2}),
    "sac, one encoder": ("sac", {"shared_encoder": True}),
    "mpo, modern": ("mpo", {"torso": "simba", "normalize_observations": True, "critic_loss_steps": "all"}),
    "mpo, bins": ("mpo", {"critic_head": "two_hot", "action_penalty": True, "m_steps": 2}),
    "td3, simba": ("td3", {"torso": "simba", "policy_layer_sizes": (8, 8)}),
    "ppo, squashed": ("ppo", {"squash_actions": True, "torso": "layer_norm", "state_dependent_stddev": True}),
}


@pytest.mark.compile
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_compiled_by_inductor_train_as_plain_ones(variant):
    name, settings = VARIANTS[variant]
    assert_trains_as_by_torch(name, num_steps=4, **settings)


@pytest.mark.compile
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", LOSSES)
def test_a_resumed_learner_compiled_by_inductor_is_the_uninterrupted_one_bit_for_bit(name):
    learner, other = (make(name, "compile")[0] for _ in range(2))
    learner.run(num_steps=2)
    other.run(num_steps=2)  # Its batches are the next ones too.
    with torch.no_grad():
        for module in other._modules.values():
            for parameter in module.parameters():
                parameter.add_(1.0)
    other.restore(testing.through_a_file(learner.save()))
    learner.run(num_steps=2)
    other.run(num_steps=2)
    assert learner.save()["ways"] == dict.fromkeys(LOSSES[name], "compiled")
    testing.assert_nests_equal(other.save(), learner.save(), "The restored learner is another.")
