"""What holds for the policy of every agent: what it executes, explores, takes over and refuses."""

import ast
import dataclasses
import inspect

import numpy as np
import pytest
import torch
import tree

from minerva_acme import specs, testing
from minerva_acme.agents import mpo, registry

from .. import table

OBSERVATIONS = np.random.default_rng(0).standard_normal((20, 3), np.float32)


# Or r2d2 would nearly always take the best action of a random network, and the others never the policy's.
RANDOMNESS = {
    "r2d2": {"first_epsilon": 1.0, "epsilon_exponent": 0.0},
    "sac": {"random_steps": 0},
    "td3": {"random_steps": 0},
}


# The others' policies are these.
ACTING = ("mpo", "ppo", "vmpo", "sac", "td3", "dqn", "r2d2", "bc")


class TestContract(testing.ActorConformance):
    @pytest.fixture(autouse=True, params=ACTING)
    def _take(self, request):
        self.scene = table.Scene(request.param, RANDOMNESS.get(request.param, {}))

    def make_environment(self):
        return self.scene.environment()

    def make_actor(self):
        return self.make_actor_with(None)

    def make_actor_with(self, adder):
        return self.make_actor_of(None, adder)

    def make_source(self):
        return None if self.scene.name in table.DISCRETE else self.scene.make()[0]  # they are all random

    def make_actor_of(self, source, adder=None):
        builder = self.scene.builder()
        return builder.make_actor(self.scene.policy(builder), source, adder)


WITH_MEMORY = {"memory": "lstm", "memory_size": 6}
MEMORIES = {"ppo": {**WITH_MEMORY, "minibatch_size": 16}, "vmpo": WITH_MEMORY}


class TestContractWithAMemory(TestContract):
    @pytest.fixture(autouse=True, params=MEMORIES)
    def _take(self, request):
        self.scene = table.Scene(request.param, MEMORIES[request.param])


SCENES = {
    **{name: table.Scene(name) for name in registry.AGENTS},
    "mpo, repeated noise": table.Scene("mpo", {"noise_repeat": 4}),
    "ppo, squashed": table.Scene("ppo", {"squash_actions": True}),
}


def step(policy, observations=OBSERVATIONS):
    output, _ = policy.step(observations, policy.initial_state(len(observations)))
    return output


@pytest.mark.parametrize("case", SCENES)
def test_it_explores_in_training_and_takes_one_action_in_evaluation(case):
    scene, alike = SCENES[case], np.repeat(OBSERVATIONS[:1], 200, axis=0)
    builder = scene.builder()
    greedy = step(scene.policy(builder, evaluation=True), alike)
    assert np.ptp(greedy.action, axis=0).max() < 1e-5 and greedy.extras == ()
    chosen = step(scene.policy(builder), alike).action
    explores = scene.name not in (*table.RECORDED, "r2d2")  # on their own data, and one of many environments
    assert not explores or np.ptp(chosen, axis=0).max() > 1e-3
    for action in (*chosen[:5], *greedy.action[:5]):
        specs.check_conforms("action", action, scene.spec.actions)


@pytest.mark.parametrize("case", SCENES)
def test_one_observation_is_acted_on_as_a_batch_of_one(case):
    scene = SCENES[case]
    batched, single = (scene.policy(evaluation=True) for _ in range(2))
    np.testing.assert_array_equal(single(OBSERVATIONS[0]).action, step(batched, OBSERVATIONS[:1]).action[0])


def test_acting_has_weights_of_its_own_and_takes_those_that_it_is_given(learner_scene):
    builder = learner_scene.builder()
    networks = learner_scene.networks(builder)
    generator = torch.Generator().manual_seed(0)
    policy = builder.make_policy(networks, learner_scene.spec, generator, evaluation=True)
    before = step(policy).action
    learner, *_ = table.transition_scene.make_learner(
        builder, learner_scene.spec, [learner_scene.make_batch()], networks
    )
    with torch.no_grad():
        for weight in table.weights(learner).values():
            weight += 0.5 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
    np.testing.assert_array_equal(step(policy).action, before)
    variables = learner.get_variables(builder.policy_variables)
    policy.set_variables(variables)
    assert (step(policy).action != before).any()
    for name, tensor in policy.module.state_dict().items():
        np.testing.assert_array_equal(tensor, variables[0][name])


def test_only_the_policy_for_evaluation_is_a_program(learner_scene):
    with pytest.raises(ValueError, match="Only a policy for evaluation .* this one explores"):
        learner_scene.policy().as_module()


# What agents ask of an environment, by one sentence each; the titles are the registry's.

SCALAR = specs.Array((), np.float32)
BOUNDED = specs.BoundedArray


NO_AGENT_TAKES = [
    ("rewards", specs.Array((2,), np.float32), r"rewards that are one float32 number, got Array\(2,\)"),
    ("rewards", [SCALAR], "rewards .*got a nest"),
    ("discounts", specs.Array((), np.float64), r"discounts .*got Array\(\) float64.*SinglePrecision"),
    ("observations", specs.Array((3,), np.float64), "observations in float32 or in integers"),
    ("observations", (), "observations of at least one number"),
    ("observations", {"a": specs.StringArray(())}, r"observations that are numbers, .*\['a'\]"),
]


def test_an_environment_that_no_agent_takes_is_refused_by_name(learner_scene):
    title, builder = registry.AGENTS[learner_scene.name].title, learner_scene.builder()
    for field, bad, message in NO_AGENT_TAKES:
        with pytest.raises(ValueError, match=f"^{title} needs .*{message}"):
            builder.check_spec(learner_scene.spec._replace(**{field: bad}))


NEST = "one float32 vector, got a nest, .*(must be joined in a wrapper|FlatActionWrapper joins nests)"
REFUSED = {
    "a nest": ({"arm": BOUNDED((2,), np.float32, -1.0, 1.0), "grip": specs.DiscreteArray(3)}, NEST),
    "a list": ([specs.DiscreteArray(3)], "got a nest"),
    "integers of no shape": (BOUNDED((), np.int32, 0, 3), r"got BoundedArray\(\) int32 in \[0, 3\]"),
    "no shape": (BOUNDED((), np.float32, -1.0, 1.0), r"got BoundedArray\(\) float32"),
    "float64": (BOUNDED((2,), np.float64, -1.0, 1.0), r"got BoundedArray\(2,\) float64 .*SinglePrecision"),
    "nothing": (BOUNDED((0,), np.float32, -1.0, 1.0), "one float32 vector, got BoundedArray"),
    "no bounds": (specs.Array((2,), np.float32), r"finite bounds, low below high, got Array\(2,\) float32"),
    "no bound": (BOUNDED((2,), np.float32, -1.0, np.inf), r"finite bounds, .* in \[-1, inf\]"),
    "equal bounds": (BOUNDED((1,), np.float32, 1.0, 1.0), "low below high, got BoundedArray"),
}


@pytest.mark.parametrize("name", ["mpo", "ppo", *table.VECTORS])
def test_actions_that_no_agent_takes_are_refused(name):
    title, scene = registry.AGENTS[name].title, table.Scene(name)
    builder = scene.builder()
    for bad, message in REFUSED.values():
        with pytest.raises(ValueError, match=f"^{title} needs .*{'' if name in table.VECTORS else message}"):
            builder.check_spec(scene.spec._replace(actions=bad))


@pytest.mark.parametrize(
    ("name", "actions", "message"),
    [
        *(
            (name, specs.DiscreteArray(3), "continuous actions, got DiscreteArray with 3 .*list")
            for name in table.VECTORS
        ),
        (
            "dqn",
            BOUNDED((2,), np.float32, -1, 1),
            "one discrete action, got BoundedArray.*`minerva list agents`",
        ),
        ("dqn", (specs.DiscreteArray(2),), "one discrete action, got a nest"),
        ("r2d2", BOUNDED((2,), np.float32, -1, 1), "one discrete action"),
        (
            "mpo",
            BOUNDED((2,), np.int32, 0, 3),
            r"got several discrete choices, .* in \[0, 3\]\. Choose an on-policy",
        ),
        ("ppo", BOUNDED((2,), np.int32, 0, [3, 99_999]), r"choices of 1 to 10000 values .* \[0, 99999\]"),
    ],
)
def test_actions_of_another_kind_are_refused_with_the_way_out(name, actions, message):
    scene = table.Scene(name)
    with pytest.raises(ValueError, match=f"^{registry.AGENTS[name].title} needs .*{message}"):
        scene.builder().check_spec(scene.spec._replace(actions=actions))


ANY_NEST = [
    specs.Array((), np.bool_),
    specs.DiscreteArray(7),
    specs.Array((8, 8, 3), np.uint8),
    {"camera": specs.Array((8, 8, 3), np.uint8), "speed": [specs.Array((2, 2), np.int64)]},
]


def test_observations_of_any_nest_are_acted_on(learner_scene):
    builder, generator = learner_scene.builder(), torch.Generator().manual_seed(0)
    for observations in ANY_NEST:
        spec = learner_scene.spec._replace(observations=observations)
        builder.check_spec(spec)
        policy = builder.make_policy(builder.make_networks(spec, generator), spec, generator, evaluation=True)
        rows = tree.map_structure(lambda leaf: np.zeros((2, *leaf.shape), leaf.dtype), observations)
        for action in policy.step(rows, policy.initial_state(2))[0].action:
            spec.actions.validate(action)


# Configs.


def config_classes():
    """The classes of all agents' configs, and those that they are made of."""
    found = [each for entry in registry.AGENTS.values() for each in entry.config.__mro__]
    return [each for each in dict.fromkeys(found) if dataclasses.is_dataclass(each)]


def check_documented(cls):
    (node,) = ast.parse(inspect.getsource(cls)).body
    documented = {
        field.target.id
        for field, text in zip(node.body, node.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }
    inherited = {
        field.name
        for base in cls.__mro__[1:]
        if dataclasses.is_dataclass(base)
        for field in dataclasses.fields(base)
    }
    own = {name for name in cls.__annotations__ if name not in inherited}
    assert own <= documented <= {field.name for field in dataclasses.fields(cls)}, cls


def test_every_field_of_a_config_is_documented_where_it_is_declared():
    for cls in config_classes():
        check_documented(cls)


def test_a_config_cannot_be_changed():
    for entry in registry.AGENTS.values():
        with pytest.raises(dataclasses.FrozenInstanceError):
            entry.config().discount = 0.5


def test_actors_of_mpo_act_by_the_policy_that_the_config_names():
    for acting_policy, variables in (("online", "policy"), ("target", "target_policy")):
        builder = table.Scene("mpo").builder(acting_policy=acting_policy)
        assert isinstance(builder, mpo.MPOBuilder) and builder.policy_variables == [variables]
