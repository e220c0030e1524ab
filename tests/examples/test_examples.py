"""Every example does what it says, in a setting that takes seconds."""

import ast
import dataclasses
import importlib.util
import pathlib
import re
import runpy
import sys
from types import MappingProxyType

import numpy as np
import pytest
import torch
from torch import nn

from minerva_acme import (
    actors,
    builders,
    counting,
    environments,
    experiments,
    learners,
    networks,
    specs,
    testing,
    types,
)
from minerva_acme.agents import acting, mpo
from minerva_acme.cli import parsing

pytestmark = pytest.mark.usefixtures("short_episodes")
REPOSITORY = pathlib.Path(__file__).parents[2]
EXAMPLES = sorted((REPOSITORY / "examples").glob("*.py"))
SMALL_MPO = dataclasses.replace(
    mpo.PRESETS["control"],
    batch_size=16,
    samples_per_insert=4.0,
    min_replay_size=100,
    policy_layer_sizes=(16,),
    critic_layer_sizes=(16,),
)


# The same as flags.
SMALL_MPO_FLAGS = [
    *("--config.batch-size", "16"),
    *("--config.samples-per-insert", "4"),
    *("--config.min-replay-size", "100"),
    *("--config.policy-layer-sizes", "16"),
    *("--config.critic-layer-sizes", "16"),
]


def load(name):
    spec = importlib.util.spec_from_file_location(name, REPOSITORY / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run(monkeypatch):
    """A function that runs an example as a command and returns what its `main` returned.

    Nothing is written for TensorBoard. There may be fewer episodes in each evaluation, and other
    hyperparameters than the example has.
    """
    run_experiment = experiments.run_experiment

    def run(name, *flags, hyperparameters=MappingProxyType({}), **changes):
        def run_shortly(config, *callbacks, **options):
            builder = type(config.builder)(dataclasses.replace(config.builder.config, **hyperparameters))
            config = dataclasses.replace(config, builder=builder, tensorboard=False, **changes)
            return run_experiment(config, *callbacks, **options)

        path = str(REPOSITORY / "examples" / f"{name}.py")
        monkeypatch.setattr(experiments, "run_experiment", run_shortly)
        monkeypatch.setattr(sys, "argv", [path, *map(str, flags)])
        return runpy.run_path(path, run_name="__main__")["result"]

    return run


custom_adder = load("custom_adder")
custom_agent = load("custom_agent")
custom_environment = load("custom_environment")
dm_env_tools = load("dm_env_tools")
sac = load("sac")
swap_learner = load("swap_learner")
swap_policy_loss = load("swap_policy_loss")


# An agent from scratch.


def make_network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 5))


def test_the_agent_from_scratch_trains(run):
    result = run("custom_agent", "--num-env-steps", 150)
    assert len(result.returns) == 20


@pytest.mark.learning
def test_the_agent_from_scratch_learns_cartpole_in_a_few_thousand_steps(run):
    result = run("custom_agent", "--num-env-steps", 3_000)
    assert len(result.returns) == 20
    assert result.mean > 60.0  # random actions reach about 22; 30,000 steps reach 500


class TestItsLearner(testing.LearnerConformance):
    names = ("network",)

    def make_learner(self):
        random = np.random.default_rng(0)
        batch = types.Transition(
            observation=torch.from_numpy(random.normal(size=(6, 3)).astype(np.float32)),
            action=torch.from_numpy(random.integers(5, size=6).astype(np.int32)),
            reward=torch.ones(6),
            discount=torch.full((6,), 0.9),
            next_observation=torch.from_numpy(random.normal(size=(6, 3)).astype(np.float32)),
        )
        return custom_agent.QLearner(make_network(), testing.RepeatedBatch(batch), learning_rate=1e-2)


class TestItsActor(testing.ActorConformance):
    def make_actor(self):
        learner = custom_agent.QLearner(make_network(), testing.RepeatedBatch(None), learning_rate=1e-2)
        return custom_agent.QActor(make_network(), learner, adder=None, seed=0)

    def make_environment(self):
        return testing.FakeEnvironment(
            observation_spec=specs.Array((3,), np.float32), action_spec=specs.DiscreteArray(5)
        )


# The tour.


def test_the_tour_shows_every_part_and_trains(run, tmp_path, capsys):
    """What it prints of the adder's items is what the rewards of CartPole, 1 a step, come to by hand."""
    episode_return = run("tour", "--num-env-steps", 600, "--directory", tmp_path / "run")
    told = capsys.readouterr().out
    assert [int(number) for number in re.findall(r"^(\d)\. ", told, re.MULTILINE)] == [1, 2, 3, 4, 5, 6, 7]
    length, num_items = map(int, re.search(r"episode of (\d+) steps became (\d+) items", told).groups())
    assert length == num_items
    items = re.findall(r"step +(\d+): reward of 3 steps ([\d.]+), discount after them ([\d.]+)", told)
    three, two = f"{1 + 0.99 + 0.99**2:.2f}", f"{1 + 0.99:.2f}"
    assert items == [
        ("0", three, f"{0.99**3:.2f}"),
        ("1", three, f"{0.99**3:.2f}"),
        (str(length - 2), two, "0.00"),
        (str(length - 1), "1.00", "0.00"),
    ]
    assert float(re.search(r"loss/q_network +([\d.]+)", told).group(1)) > 0
    assert "1 steps, last return none yet" in told and "last return None" not in told
    assert 8 <= episode_return <= 500 and f"one episode: {episode_return:.0f}." in told


# A memory.


@pytest.mark.parametrize(("agent", "kind"), [("vmpo", "lstm"), ("ppo", "none")])
def test_cartpole_without_velocities_trains_with_and_without_memory(run, tmp_path, capsys, agent, kind):
    flags = ["--agent", agent, "--memory", kind, "--directory", tmp_path / "run"]
    small = {"rollout_steps": 64} if agent == "vmpo" else {"rollout_steps": 64, "minibatch_size": 32}
    result = run("memory", *flags, "--num-env-steps", 64, evaluation_episodes=2, hyperparameters=small)
    assert result.learner_steps == 1
    assert 8 <= result.after.mean <= 500
    assert re.search(r"the loaded policy held the pole for [0-9]+ steps", capsys.readouterr().out)


# The MPO experiment with another learner.


def test_the_experiment_trains_with_the_swapped_learner(run, tmp_path):
    flags = ["--env", "Pendulum-v1", "--num-env-steps", 160, "--directory", tmp_path]
    result = run("swap_learner", *flags, *SMALL_MPO_FLAGS, evaluation_episodes=1)
    assert result.learner_steps == 16
    assert result.after.returns != result.before.returns
    header = (tmp_path / "learner.csv").read_text().splitlines()[0].split(",")
    assert "loss/policy" in header
    assert not any(name.startswith(("temperature", "alpha", "kl/")) for name in header)


def test_the_swapped_learner_begins_from_a_run_of_mpo(run, tmp_path, caplog):
    experiments.run_experiment(
        experiments.ExperimentConfig(
            builder=mpo.MPOBuilder(SMALL_MPO),
            environment_factory=lambda seed: environments.make_training_environment("Pendulum-v1", seed=seed),
            directory=tmp_path / "mpo",
            num_env_steps=40,
            evaluation_episodes=0,
            tensorboard=False,
        )
    )
    flags = ["--env", "Pendulum-v1", "--num-env-steps", 40, "--from-run", tmp_path / "mpo"]
    run("swap_learner", *flags, "--directory", tmp_path / "awac", *SMALL_MPO_FLAGS, evaluation_episodes=0)
    taken = [f"{name}: taken" for name in ("policy", "critic", "target_policy", "target_critic")]
    (message,) = (each for each in caplog.messages if each.startswith("started from what fits"))
    lines = [line.strip() for line in message.splitlines()[1:]]
    assert lines == [
        *taken,
        *(f"{name}: left, since it is missing here" for name in ("duals", "temperature_floor")),
        "replay: taken",
    ]


def make_swapped_learner(networks=None, **settings):
    builder = swap_learner.AWACBuilder(dataclasses.replace(SMALL_MPO, **settings))
    environment = environments.make_training_environment("Pendulum-v1", seed=0)
    spec = specs.make_environment_spec(environment)
    random = np.random.default_rng(0)

    def draw(*shape):
        return torch.from_numpy(random.uniform(-1.0, 1.0, shape).astype(np.float32))

    action = draw(16, 5, 1)
    batch = types.Trajectory(
        observation=draw(16, 6, 3),
        action=action,
        reward=draw(16, 5),
        discount=torch.ones(16, 5),
        mask=torch.ones(16, 5),
        extras=acting.BehaviourExtras(log_prob=draw(16, 5), raw_action=action),
    )
    return builder.make_learner(
        builders.LearnerParts(
            networks=networks or builder.make_networks(spec, torch.Generator().manual_seed(0)),
            dataset=testing.RepeatedBatch(batch),
            spec=spec,
            counter=counting.Counter(),
            logger=testing.FakeLogger(),
            generator=torch.Generator().manual_seed(1),
            device=torch.device("cpu"),
        )
    )


class TestItsSwappedLearner(testing.LearnerConformance):
    def make_learner(self):
        return make_swapped_learner()


class Favours(nn.Module):
    """A critic that finds every unit of the action worth the same."""

    def __init__(self, worth):
        super().__init__()
        self.worth = nn.Parameter(torch.tensor(worth))

    def forward(self, observation, action):
        return networks.ScalarPrediction(self.worth * action[..., :1])


@pytest.mark.parametrize("worth", [-10.0, 10.0])
def test_the_swapped_learner_fits_the_actions_weighted_by_their_advantage(worth):
    policy = networks.GaussianPolicy(3, 1, (16,), generator=torch.Generator().manual_seed(0))
    learner = make_swapped_learner(
        mpo.MPONetworks(policy, Favours(worth)), policy_learning_rate=0.03, critic_learning_rate=1e-9
    )
    batch = next(learner._dataset).data
    batch.observation.zero_()  # one state: what is best in it is a weighted mean
    learner.run(num_steps=80)
    actions = batch.action[:, 0, 0]
    weights = torch.softmax(worth * actions / (worth * actions).std(), dim=0)
    expected = (weights @ actions).item()
    assert abs(expected - actions.mean().item()) > 0.3
    assert policy(torch.zeros(1, 3)).mean.item() == pytest.approx(expected, abs=0.05)


# Soft actor-critic on the off-policy kit.

SMALL_SAC = sac.SACConfig(layer_sizes=(16,), batch_size=16, samples_per_insert=16.0, min_replay_size=50)


class Fixed(nn.Module):
    """Says the same of everything, and is counted as a network."""

    def __init__(self, value):
        super().__init__()
        self.value = nn.Parameter(torch.tensor(value))

    def forward(self, *inputs):
        return self.value


class FixedPolicy(nn.Module):
    def __init__(self, log_prob):
        super().__init__()
        self.log_prob = nn.Parameter(torch.tensor(log_prob))

    def forward(self, observation):
        return self

    def sample_and_log_prob(self, generator):
        return torch.zeros(len(self.log_prob), 1), self.log_prob


def sac_scene():
    """Two transitions, the second terminal; two critics, which say [q1, q2] of each."""
    nets = sac.SACNetworks(
        policy=FixedPolicy([-1.0, -3.0]),
        critic=Fixed([[0.0, 1.0], [1.0, 1.0]]),
        target_critic=Fixed([[3.0, 9.0], [2.0, 9.0]]),
        temperature=sac.Temperature(),
    )
    with torch.no_grad():
        nets.temperature.log.copy_(torch.tensor(0.5).log())
    ones = torch.ones(2, 1)
    data = types.Transition(ones, ones, torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.0]), ones)
    return nets, learners.Batch(data, 1.0)


def test_sacs_critics_regress_to_the_softened_value_of_the_smaller_target():
    nets, batch = sac_scene()
    loss = sac.critic_loss(nets, batch, torch.Generator())
    # 1 + 0.5 (min(3, 2) + 0.5 * 1) = 2.25, and 2 at the terminal; errors -2.25 -1, then -1.25 -1.
    assert loss.metrics["q/mean"].item() == pytest.approx(2.125)
    assert loss.value.item() == pytest.approx((2.25**2 + 1.0) / 2 + (1.25**2 + 1.0) / 2)
    loss.value.backward()
    assert nets.target_critic.value.grad is None and nets.policy.log_prob.grad is None
    assert nets.temperature.log.grad is None


def test_sacs_policy_follows_the_smaller_critic_and_keeps_its_entropy():
    nets, batch = sac_scene()
    loss = sac.policy_loss(nets, batch, torch.Generator())
    # 0.5 * -1 - min(0, 1) and 0.5 * -3 - 1
    assert loss.value.item() == pytest.approx((-0.5 - 2.5) / 2)
    loss.value.backward()
    assert nets.policy.log_prob.grad.tolist() == [0.25, 0.25] and nets.temperature.log.grad is None


def test_sacs_temperature_falls_where_the_entropy_is_above_its_target():
    nets, batch = sac_scene()
    sac.temperature_loss(nets, batch, torch.Generator()).value.backward()
    assert nets.temperature.log.grad.item() == pytest.approx(2.0 + 1.0)  # entropy 2, target -1
    assert nets.policy.log_prob.grad is None


def make_sac(config=SMALL_SAC):
    builder = sac.SACBuilder(config)
    environment = environments.make_training_environment("Pendulum-v1", seed=0)
    spec = specs.make_environment_spec(environment)
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(16, *shape, generator=generator)

    batch = types.Transition(draw(3), draw(1).clamp(-1.0, 1.0), draw(), torch.full((16,), 0.9), draw(3))
    networks = builder.make_networks(spec, generator)
    learner = builder.make_learner(
        builders.LearnerParts(
            networks=networks,
            dataset=testing.RepeatedBatch(batch),
            client=None,
            spec=spec,
            counter=counting.Counter(),
            logger=testing.FakeLogger(),
            generator=generator,
            device=torch.device("cpu"),
        )
    )
    return learner, networks


class TestSACsLearner(testing.LearnerConformance):
    names = ("policy", "critic", "target_critic", "temperature")

    def make_learner(self):
        return make_sac()[0]


def test_sacs_target_critics_follow_slowly():
    learner, networks = make_sac(dataclasses.replace(SMALL_SAC, target_rate=0.25, learning_rate=0.01))
    before = [parameter.clone() for parameter in networks.target_critic.parameters()]
    learner.step()
    pairs = zip(before, networks.target_critic.parameters(), networks.critic.parameters(), strict=True)
    for old, slow, fast in pairs:
        torch.testing.assert_close(slow, 0.75 * old + 0.25 * fast)
        assert not slow.requires_grad


@pytest.mark.learning
def test_sac_finds_what_pays_most(tmp_path):
    config = dataclasses.replace(SMALL_SAC, learning_rate=3e-3, layer_sizes=(32,), batch_size=32)
    result = experiments.run_experiment(
        experiments.ExperimentConfig(
            builder=sac.SACBuilder(config),
            environment_factory=lambda seed: Target(),
            directory=tmp_path,
            num_env_steps=500,
            evaluation_period=0,
            evaluation_episodes=20,
            tensorboard=False,
            replay="memory",
        )
    )
    assert result.after.mean > 0.98  # within 0.14 of the target; the untrained policy acts at 0
    assert result.before.mean < 0.9


class Target(testing.FakeEnvironment):
    """Episodes of one step, which pay 1 - (a - 0.5)^2."""

    def __init__(self):
        super().__init__(
            episode_length=1, action_spec=specs.BoundedArray((1,), np.float32, -1.0, 1.0, name="action")
        )

    def step(self, action):
        timestep = super().step(action)
        return timestep._replace(reward=np.float32(1.0 - (action[0] - 0.5) ** 2))


def test_sac_runs_as_a_command(run, tmp_path):
    flags = ["--num-env-steps", 150, "--directory", tmp_path, "--config.layer-sizes", "16"]
    small = ["--config.batch-size", 16, "--config.samples-per-insert", 16, "--config.min-replay-size", 50]
    result = run("sac", *flags, *small, evaluation_episodes=1)
    assert result.learner_steps == 101
    assert result.after.returns != result.before.returns
    header = (tmp_path / "learner.csv").read_text().splitlines()[0].split(",")
    assert {"loss/critic", "loss/policy", "loss/temperature", "policy/entropy", "temperature"} <= {*header}


# MPO with another policy loss.


def test_wpo_trains_as_a_command_with_mpos_other_parts(run, tmp_path):
    flags = ["--env", "Pendulum-v1", "--num-env-steps", 160, "--directory", tmp_path]
    result = run("swap_policy_loss", *flags, *SMALL_MPO_FLAGS, evaluation_episodes=1)
    assert result.learner_steps == 16
    assert result.after.returns != result.before.returns
    header = (tmp_path / "learner.csv").read_text().splitlines()[0].split(",")
    assert {"loss/critic", "loss/policy", "kl/mean_rel", "policy/dq_da"} <= {*header}
    assert "temperature" not in header


# An adder of one's own.


class TestTheCustomAdder(custom_adder.TestMonteCarloAdder):
    """Inherits the conformance class through the example, which runs it by itself too."""


def test_the_custom_adder_writes_the_returns_that_followed(run):
    transitions = run("custom_adder", "--gamma", 0.5)
    length = len(transitions.reward)
    assert length > 5
    # Rewards of 1: 1, 1 + 1/2, 1 + 1/2 + 1/4, ... from the last step to the first.
    expected = 2.0 - 0.5 ** np.arange(length)
    np.testing.assert_allclose(transitions.reward, expected, rtol=1e-6)
    assert not transitions.discount.any()  # the pole fell
    torch.testing.assert_close(
        transitions.next_observation, transitions.next_observation[:1].expand(length, -1)
    )


def test_the_custom_adder_bootstraps_at_a_time_limit():
    environment = testing.FakeEnvironment(episode_length=3, truncates=True)
    server, layout = custom_adder.make_store(specs.make_environment_spec(environment))
    with server, server.client() as client:
        with custom_adder.MonteCarloAdder(client, "returns", layout, gamma=0.5) as adder:
            adder.add_first(environment.reset())
            for _ in range(3):
                action = np.zeros(2, np.float32)
                adder.add(action, environment.step(action))
        _, fields = client.sampler("returns").sample_batch(3)
    batch = layout.unpack({name: torch.as_tensor(rows) for name, rows in fields.items()})
    assert batch.reward.tolist() == [3.0, 2.0 + 1.5, 1.0 + 1.75]  # rewards 1, 2, 3
    assert batch.discount.tolist() == [0.5, 0.25, 0.125]


# An environment of one's own.


class TestTheCustomEnvironment(custom_environment.TestDocking):
    """Inherits the conformance class through the example."""


def test_the_custom_environment_tells_an_accident_from_a_time_limit():
    environment = custom_environment.Docking(seed=0)

    def play(thrust):
        timestep = environment.reset()
        while not timestep.last():
            timestep = environment.step(np.array([thrust]))
        return timestep

    assert play(1.0).discount == 0.0
    assert play(0.0).discount == 1.0


def test_ppo_trains_to_dock(run, tmp_path):
    result = run("custom_environment", "--num-env-steps", 2_048, "--directory", tmp_path)
    assert result.learner_steps > 0
    assert result.after.returns != result.before.returns


@pytest.mark.learning
def test_ppo_learns_to_dock(run, tmp_path):
    result = run("custom_environment", "--num-env-steps", 5_000, "--directory", tmp_path)
    assert result.after.mean > result.random.mean + 5.0


# Tools that know dm_env alone.


class TestTheLoggedEnvironment(dm_env_tools.TestLoggedEnvironment):
    """dm_env's mixin, through the example."""


@pytest.mark.filterwarnings("ignore:.*DISPLAY.*:UserWarning")  # glfw, which the viewer's package imports
def test_a_viewers_runtime_plays_the_trained_policy(run, tmp_path):
    flags = ["--num-env-steps", 200, "--time-limit", 0.5, "--directory", tmp_path]
    rows = run("dm_env_tools", *flags, *SMALL_MPO_FLAGS)
    assert [row["episode_len"] for row in rows] == [50] * len(rows)
    # Random actions, before training and after it, two episodes each; training; the viewer's.
    assert len(rows) == 3 * 2 + 200 // 50 + 1
    assert rows[-1]["episode"] == 1
    assert 0.0 <= rows[-1]["episode_return"] <= 50.0


def test_bsuite_scores_an_agent_and_what_is_finished_is_not_run_again(run, tmp_path):
    pytest.importorskip("bsuite")
    flags = ["--agents", "vmpo", "--experiments", "bandit", "--settings", 3, "--directory", tmp_path]
    scores = run("bsuite_scores", *flags)
    assert 0.5 < scores.loc["bandit", "vmpo"] <= 1.0  # random actions have 0
    assert (tmp_path / "scores.svg").exists()
    (log,) = (tmp_path / "vmpo").iterdir()
    written = log.stat().st_mtime_ns
    assert run("bsuite_scores", *flags).equals(scores)
    assert log.stat().st_mtime_ns == written
    whole = log.read_text().splitlines()
    log.write_text("\n".join(whole[:-1]) + "\n")  # as if it had been cut short
    run("bsuite_scores", *flags)
    assert len(log.read_text().splitlines()) == len(whole)


# Another agent on the same experiment.


@pytest.mark.parametrize("agent", ["vmpo", "ppo"])
def test_an_agent_is_swapped_by_its_builder(agent, run, tmp_path):
    result = run(
        "swap_agents",
        "--agent",
        agent,
        "--num-env-steps",
        256,
        "--directory",
        tmp_path,
        evaluation_episodes=4,
        hyperparameters={"rollout_steps": 256},
    )
    assert result.learner_steps == 1
    assert result.directory == tmp_path / agent
    assert result.after.returns != result.before.returns


# On the command line.


@pytest.mark.parametrize("agent", ["sac:SACBuilder", "swap_learner:AWACBuilder"])
def test_the_builders_of_scripts_are_agents_of_the_command_line(agent, monkeypatch):
    monkeypatch.chdir(REPOSITORY / "examples")
    monkeypatch.setattr(sys, "path", [*sys.path])
    command = parsing.parse(
        f"train --agent {agent} --env Pendulum-v1 --num-env-steps 9 --discount 0.5".split()
    )
    config = command.hyperparameters
    assert (command.agent, config.discount) == (agent, 0.5)
    del sys.modules[agent.partition(":")[0]]


# All of them.


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_says_how_it_is_run(path):
    source = path.read_text()
    assert code_lines(source) <= 120
    assert f"examples/{path.name}" in ast.get_docstring(ast.parse(source))


def code_lines(source):
    """Lines of a file without blank ones, comments and docstrings."""
    docstrings = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)
    ]
    left_out = {line for text in docstrings for line in range(text.lineno, text.end_lineno + 1)}
    return sum(
        bool(line.strip()) and not line.strip().startswith("#") and number not in left_out
        for number, line in enumerate(source.splitlines(), start=1)
    )


def test_the_scripts_have_as_many_lines_as_the_page_on_composing_says():
    page = (REPOSITORY / "docs" / "composing.md").read_text()
    rows = dict(re.findall(r"^\|.*\| `examples/(\w+)\.py` \| (\d+) \|$", page, re.MULTILINE))
    lines = {path.stem: code_lines(path.read_text()) for path in EXAMPLES}
    assert {stem: int(stated) for stem, stated in rows.items()} == lines


def test_every_name_of_this_library_on_the_page_on_migrating_exists():
    page = (REPOSITORY / "docs" / "migrating.md").read_text()
    cells = [line.split("|") for line in page.splitlines() if line.startswith("| ") and " | " in line]
    same = page.split("## Same name, same meaning")[1].split("\n## ")[0]
    text = " ".join([same, *(cell for row in cells for cell in row[2:])])
    packages = "actors|adders|builders|core|counting|environments|experiments|loggers|observers|replay|specs"
    names = re.findall(rf"`((?:{packages}|testing|types|variables|wrappers)\.[\w.]+)[`(]", text)
    assert len(names) >= 40
    for name in names:
        found = importlib.import_module(f"minerva_acme.{name.split('.')[0]}")
        for part in name.split(".")[1:]:
            if part == "dataset" and not hasattr(found, part):
                importlib.import_module("minerva_acme.replay.dataset")
            assert hasattr(found, part), f"{name} on the page on migrating does not exist"
            found = getattr(found, part)


class Behaviour:
    """Acts at random, and takes weights that it has no use for."""

    def __init__(self, num_actions):
        self.received = []
        self._num_actions = num_actions
        self._random = np.random.default_rng(0)

    def __call__(self, observation):
        return actors.PolicyOutput(np.int32(self._random.integers(self._num_actions)))

    def set_variables(self, values):
        self.received.append(values)


def test_the_ported_file_on_the_page_on_migrating_learns(capsys):
    page = (REPOSITORY / "docs" / "migrating.md").read_text()
    (source,) = re.findall(r"```python ported\n(.*?)```", page, re.DOTALL)
    behaviour = Behaviour(num_actions=2)
    names = {
        "MyLearner": lambda network, dataset: custom_agent.QLearner(network, dataset, learning_rate=1e-3),
        "behaviour": behaviour,
        "make_environment": lambda: environments.make("CartPole-v1", seed=0),
        "network": nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)),
        "num_episodes": 40,
    }
    exec(compile(source, "docs/migrating.md", "exec"), names)
    assert names["adder"].num_inserted > 500
    first, last = behaviour.received[0][0]["0.weight"], behaviour.received[-1][0]["0.weight"]
    assert not np.array_equal(first, last)
    assert "episode_return" in capsys.readouterr().out.lower().replace(" ", "_")
