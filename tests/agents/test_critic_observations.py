"""Observations that only the critic sees, for each agent that has such."""

import contextlib
import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
import tree

from minerva_acme import environments, experiments, networks, runs, specs, testing, wrappers
from minerva_acme.agents import off_policy, registry
from minerva_acme.runs import policies, programs
from tests.fields import of_fields

HIDDEN = ("hint",)
FLOAT = specs.Array((), np.float32)
OBSERVATIONS = {
    "hint": specs.Array((2,), np.float32),
    "place": specs.Array((3,), np.float32),
    "speed": specs.Array((), np.float32),
}
SPEC = specs.EnvironmentSpec(
    OBSERVATIONS,
    specs.BoundedArray((2,), np.float32, -1.0, 1.0),
    FLOAT,
    specs.BoundedArray((), np.float32, 0.0, 1.0),
)
OFF_POLICY: dict[str, Any] = dict(
    policy_layer_sizes=(8,), critic_layer_sizes=(8,), batch_size=4, min_replay_size=8, samples_per_insert=1.0
)
ON_POLICY: dict[str, Any] = dict(
    policy_layer_sizes=(8,), value_layer_sizes=(8,), num_environments=2, rollout_steps=16
)
SETTINGS: dict[str, dict[str, Any]] = {
    "ppo": ON_POLICY | dict(minibatch_size=8, num_epochs=1),
    "vmpo": ON_POLICY,
    "mpo": OFF_POLICY | dict(normalize_observations=True),
    **{
        name: of_fields(entry.config, OFF_POLICY | dict(random_steps=0))
        for name, entry in registry.AGENTS.items()
        if issubclass(entry.config, off_policy.ActorCriticConfig)
    },
}
ONE_OF_EACH_KIT = ("ppo", "mpo", "td3")
each_agent = pytest.mark.parametrize("agent", SETTINGS)


def make_builder(agent, names=HIDDEN, **changes):
    entry = registry.AGENTS[agent]
    return entry.builder(entry.config(**(SETTINGS[agent] | dict(critic_observations=names) | changes)))


def observations(seed=0, **changes):
    random = np.random.default_rng(seed)
    batch = {name: np.float32(random.normal(size=(5, *leaf.shape))) for name, leaf in OBSERVATIONS.items()}
    return batch | {name: np.float32(value) for name, value in changes.items()}


def tensors(batch):
    return tree.map_structure(torch.from_numpy, batch)


def policy_module(builder, nets):
    """The policy as a function of observations."""
    if isinstance(nets, networks.ActorCritic):
        return nets.policy
    return builder.policy_module(nets)


def values(nets, batch):
    batch, action = tensors(batch), torch.full((5, 2), 0.3)
    with torch.no_grad():
        if isinstance(nets, networks.ActorCritic):
            return nets.value(batch)
        if hasattr(nets, "encoder"):
            return nets.critic(nets.encoder(batch), action).mean()
        return nets.critic(batch, action).mean()


def weights_of_policy(builder, nets, batch):
    """The parameters that the policy's output depends on, and the gradient by its inputs."""
    inputs = {name: leaf.requires_grad_() for name, leaf in tensors(batch).items()}
    output = policy_module(builder, nets)(inputs)
    parts = [part for part in tree.flatten(output) if getattr(part, "requires_grad", False)]
    sum(part.square().sum() for part in parts).backward()
    modules = [nets] if isinstance(nets, torch.nn.Module) else [*nets]
    found = {parameter for net in modules for parameter in net.parameters() if parameter.grad is not None}
    return sorted(tuple(parameter.shape) for parameter in found), {n: x.grad for n, x in inputs.items()}


@each_agent
@pytest.mark.promise("Entries in `critic_observations` do not affect the policy")
def test_what_the_critic_sees_changes_the_critic_and_nothing_of_the_policy(agent):
    builder, generator = make_builder(agent), torch.Generator().manual_seed(0)
    builder.check_spec(SPEC)
    nets = builder.make_networks(SPEC, generator)
    batch, other = observations(), observations(hint=np.full((5, 2), 3.0))
    without = {name: leaf for name, leaf in batch.items() if name != "hint"}
    assert (values(nets, batch) != values(nets, other)).all()

    policy = builder.make_policy(nets, SPEC, generator, evaluation=True)
    actions = policy.batch(batch).action
    for changed in (other, without):
        np.testing.assert_array_equal(policy.batch(changed).action, actions)
    elsewhere = observations(place=np.ones((5, 3)))
    assert (policy.batch(elsewhere).action != actions).any()

    acting = policy_module(builder, nets)
    outputs = [acting(tensors(each)) for each in (batch, other, without)]
    if not isinstance(outputs[0], torch.Tensor):
        raw = outputs[0].sample(torch.Generator().manual_seed(0)).detach()
        log_probs = [output.log_prob(raw) for output in outputs]
        assert torch.equal(log_probs[0], log_probs[1]) and torch.equal(log_probs[0], log_probs[2])

    # The same policy as where there is no such entry.
    seen = SPEC._replace(observations={n: leaf for n, leaf in OBSERVATIONS.items() if n != "hint"})
    plain = make_builder(agent, names=())
    shapes, gradients = weights_of_policy(builder, nets, batch)
    plain_shapes, _ = weights_of_policy(plain, plain.make_networks(seen, generator), without)
    assert shapes == plain_shapes and gradients["place"].any()
    assert gradients["hint"] is None or not gradients["hint"].any()

    inputs = programs.make_inputs(policy, SPEC.observations)
    assert sorted(inputs[0]) == ["place", "speed"]
    if agent not in ONE_OF_EACH_KIT:  # an export takes as long as all of the above
        return
    program = programs.export(policy.as_module(), inputs).module()
    np.testing.assert_allclose(program(tensors(without)).numpy(), actions, rtol=1e-5, atol=1e-6)


class Hidden(testing.FakeEnvironment):
    """Observations by name, random and different in size."""

    def __init__(self, seed=0):
        self._draws = np.random.default_rng(seed)
        super().__init__(observation_spec=OBSERVATIONS, seed=seed)

    def _drawn(self, timestep):
        drawn = {
            name: np.asarray(self._draws.normal(5.0, 2.0, size=leaf.shape), np.float32)
            for name, leaf in OBSERVATIONS.items()
        }
        return timestep._replace(observation=drawn)

    def reset(self):
        return self._drawn(super().reset())

    def step(self, action):
        return self._drawn(super().step(action))


def make_environment(seed):
    return environments.make_training_environment(Hidden(seed), critic_observations=HIDDEN)


@pytest.fixture(scope="module", params=ONE_OF_EACH_KIT)
def trained(request, tmp_path_factory):
    """A run that was resumed."""
    config = experiments.ExperimentConfig(
        builder=make_builder(request.param),
        environment_factory=make_environment,
        directory=tmp_path_factory.mktemp("run"),
        num_env_steps=32,
        evaluation_period=0,
        evaluation_episodes=1,
        tensorboard=False,
        replay="memory",
    )
    assert experiments.run_experiment(config).learner_steps > 0
    longer = dataclasses.replace(config, num_env_steps=48)
    assert experiments.run_experiment(longer).env_steps == 48
    return longer


def test_a_run_learns_is_resumed_and_loaded_with_and_without_the_critics_part(trained):
    with contextlib.closing(make_environment(7)) as environment:
        spec, observation = environment.observation_spec(), environment.reset().observation
        assert {name: leaf.shape for name, leaf in spec.items()} == {"policy": (4,), "critic": (2,)}
        policy = policies.load_policy(trained.directory, trained.builder, environment)
    action = policy(observation).action
    np.testing.assert_array_equal(policy({"policy": observation["policy"]}).action, action)
    with pytest.raises(specs.SpecError, match="policy"):
        policy({"critic": observation["critic"]})


@pytest.mark.parametrize("interface", ["agent", "task"])
def test_a_program_is_compared_in_episodes_without_the_critics_part(interface):
    with contextlib.closing(make_environment(0)) as environment:
        spec = specs.make_environment_spec(environment)
    builder, generator = make_builder("td3"), torch.Generator().manual_seed(0)
    policy = builder.make_policy(builder.make_networks(spec, generator), spec, generator, evaluation=True)

    def program(batch):
        if interface == "task":
            assert sorted(batch) == ["place", "speed"]
            batch = {"policy": np.concatenate([batch["place"], batch["speed"][:, None]], axis=1)}
        assert sorted(batch) == ["policy"]
        return policy.batch(batch).action

    comparison = programs.compare(program, policy, make_environment, interface, 1)
    assert comparison.largest == 0.0 and comparison.num_steps > 8


def test_statistics_are_of_each_part():
    norm = networks.make_normalizer(OBSERVATIONS, each_entry=True)
    batch = tensors(observations())
    for name, part, rows in norm.parts("observation", batch):
        part.update(rows)
        assert name in ("observation['hint']", "observation['place']", "observation['speed']")
    normed = norm(batch)
    for name, leaf in normed.items():
        torch.testing.assert_close(leaf.mean(dim=0), torch.zeros(leaf.shape[1:]), atol=1e-3, rtol=0)
        assert leaf.shape == batch[name].shape
    part = {name: batch[name] for name in ("place", "speed")}
    for name, leaf in norm(part).items():
        assert torch.equal(leaf, normed[name])
    assert sorted(norm(part)) == ["place", "speed"]
    alone = norm.without(["hint"])
    assert sorted(alone(batch)) == ["place", "speed"] and torch.equal(alone(batch)["place"], normed["place"])


def test_a_run_of_an_id_sorts_what_it_names_everywhere(tmp_path):
    names = ("velocity",)
    environment = environments.make_training_environment(
        "dm_control/cartpole/swingup", seed=0, critic_observations=names
    )
    with contextlib.closing(environment):
        assert {n: x.shape for n, x in environment.observation_spec().items()} == {
            "policy": (3,),
            "critic": (2,),
        }
        recorded, recorder = programs.record(environment, "task")
        assert recorded.observation_spec() == environment.observation_spec()
        assert sorted(recorder.shown(recorder.observation_spec())) == ["position"]
    builder = make_builder("sac", names=names)
    config = experiments.ExperimentConfig(
        builder=builder,
        environment_factory=lambda seed: environments.make_training_environment(
            "dm_control/cartpole/swingup", seed=seed, critic_observations=names
        ),
        directory=tmp_path,
        num_env_steps=16,
        evaluation_episodes=0,
        evaluation_period=0,
        tensorboard=False,
        replay="memory",
    )
    experiments.run_experiment(config)
    policy = policies.load_policy(tmp_path)  # from run.json alone
    assert policy({"policy": np.zeros(3)}).action.shape == (1,)
    policies.export_policy(tmp_path, tmp_path / "policy.pt2", format="pt2", actions="task")
    program = programs.load(str(tmp_path / "policy.pt2"))
    assert program({"position": np.zeros((2, 3))}).shape == (2, 1)


class Deployed(testing.FakeEnvironment):
    """The robot itself, whose hint nobody knows."""

    def __init__(self, seed=0):
        seen = {name: leaf for name, leaf in OBSERVATIONS.items() if name not in HIDDEN}
        super().__init__(seed=seed, observation_spec=seen, action_spec=SPEC.actions, episode_length=4)


def make_sorted(make, seed=0):
    return environments.make_training_environment(make(seed=seed), critic_observations=HIDDEN)


def test_a_policy_acts_in_an_environment_that_lacks_the_critics_entries(trained, tmp_path):
    builder, directory = trained.builder, trained.directory
    with contextlib.closing(make_sorted(Deployed)) as environment:
        assert {name: leaf.shape for name, leaf in environment.observation_spec().items()} == {"policy": (4,)}
        policy = policies.load_policy(directory, environment=environment)
        assert len(runs.evaluate_checkpoint(directory, builder, environment, 2).returns) == 2
        observation = environment.reset().observation
        with contextlib.closing(make_environment(7)) as complete:
            known = policies.load_policy(directory, builder, complete)
        np.testing.assert_array_equal(policy(observation).action, known(observation).action)
        # No critic is trained there.
        with pytest.raises(
            ValueError, match=f"{builder.name}: the environment must have hint for the critic"
        ):
            builder.check_spec(specs.make_environment_spec(environment))
        experiment = dataclasses.replace(
            trained, directory=tmp_path / "new", environment_factory=lambda seed: make_sorted(Deployed, seed)
        )
        with pytest.raises(ValueError, match="must have hint for the critic"):
            experiments.run_experiment(experiment)
    bare = Deployed(seed=3)
    own = bare.reset().observation
    expected = policy({"policy": np.concatenate([own["place"], own["speed"][None]])}).action
    for taken in (own, own | {"hint": np.full(2, np.nan)}):
        np.testing.assert_array_equal(policy(taken).action, expected)
        batch = {name: np.stack([leaf, leaf]) for name, leaf in taken.items()}
        np.testing.assert_allclose(policy.batch(batch).action, [expected, expected], atol=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: make_builder("mpo", names=("hidden",)).check_spec(SPEC),
            "MPO.*hint, place, speed.*got hidden",
        ),
        (lambda: make_builder("td3", names=(*OBSERVATIONS,)).check_spec(SPEC), "leave others to the policy"),
        (
            lambda: make_builder("ppo").check_spec(SPEC._replace(observations=OBSERVATIONS["hint"])),
            "PPO.*unless observations are a dict.*got hint for Array",
        ),
        (
            lambda: wrappers.CriticObservationWrapper(testing.FakeEnvironment(), critic_observations=["a"]),
            "unless observations are a dict",
        ),
        (lambda: make_builder("ppo", shared_torso=True), "`shared_torso`, which the policy shares"),
        (lambda: make_builder("vmpo", memory="lstm"), "`memory` lstm, which the policy shares"),
        (lambda: make_builder("sac", shared_encoder=True), "`shared_encoder`, which the policy shares"),
        (
            lambda: make_builder("mpo", memory="gru", critic_loss_steps="all"),
            "`memory` gru, which the policy",
        ),
        (lambda: make_builder("sac", names=("a", "a")), "different names"),
    ],
)
def test_names_and_settings_that_do_not_fit_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
