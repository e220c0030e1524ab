"""Nests, integers, images and arrays without bounds through every part, from the environment to a batch.

A dict of observations with an image, an integer and a tuple, an action with two leaves and a reward with
two pass the loop, the actor, the spec checks, the wrappers, the adder, a real Reverb server, the dataset
and a learner.
"""

import dm_env
import numpy as np
import pytest
import torch
import tree

from minerva_acme import actors, core, environments, observers, replay, specs, testing, types, wrappers
from minerva_acme.adders import SequenceAdder
from minerva_acme.replay import layouts
from minerva_acme.replay.dataset import Dataset

T, BATCH = 3, 4
EXTRAS = {"log_prob": {"grip": specs.Array((), np.float32)}}


class GraspPolicy(torch.nn.Module):
    """Looks at every leaf of an observation and moves both leaves of the action."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)
        self.arm = torch.nn.Linear(5, 2)
        self.grip = torch.nn.Linear(2, 3)

    def forward(self, observation: types.NestedTensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The arm's mean [..., 2] and the grip's logits [..., 3]."""
        light = observation["camera"].float().mean(dim=(-3, -2, -1)) / 255.0
        grip = self.grip(torch.stack([light, observation["gear"].float()], dim=-1))
        return torch.tanh(self.arm(torch.cat(observation["joints"], dim=-1))), grip

    @torch.no_grad()
    def choose(self, observation: types.NestedArray) -> actors.PolicyOutput:
        arm, logits = self(tree.map_structure(torch.as_tensor, observation))
        log_probs = torch.log_softmax(logits, dim=-1)
        grip = torch.multinomial(log_probs.exp(), 1, generator=self.generator).squeeze(dim=0)
        action = {"arm": arm.numpy(), "grip": grip.numpy().astype(np.int32)}
        return actors.PolicyOutput(action, {"log_prob": {"grip": log_probs[grip].numpy()}})


class CloningLearner(core.Learner):
    """Makes what was done likelier, on every leaf; `batches` holds what it learned from."""

    def __init__(self, policy: GraspPolicy, dataset: Dataset[types.Trajectory]) -> None:
        self.policy, self.dataset = policy, dataset
        self.optimiser = torch.optim.SGD(policy.parameters(), lr=0.1)
        self.batches: list[types.Trajectory] = []

    def step(self) -> None:
        trajectory = next(self.dataset).data
        self.batches.append(trajectory)
        arm, logits = self.policy(tree.map_structure(lambda leaf: leaf[:, :-1], trajectory.observation))
        chosen = trajectory.action["grip"].long().unsqueeze(dim=-1)
        log_prob = torch.log_softmax(logits, dim=-1).gather(-1, chosen).squeeze(dim=-1)  # [B, T]
        error = (arm - trajectory.action["arm"]).square().sum(dim=-1)  # [B, T]
        loss = ((error - log_prob) * trajectory.mask).sum() / trajectory.mask.sum()
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()

    def get_variables(self, names):
        return [{k: v.numpy().copy() for k, v in self.policy.state_dict().items()} for _ in names]

    def save(self):
        return self.policy.state_dict()

    def restore(self, state):
        self.policy.load_state_dict(state)


def make_environment(truncates: bool = False) -> dm_env.Environment:
    reward = {"task": specs.Array((), np.float32), "effort": specs.Array((2,), np.float64)}
    environment = testing.FakeEnvironment.nested(episode_length=5, truncates=truncates, reward_spec=reward)
    return wrappers.SpecCheckWrapper(wrappers.SinglePrecisionWrapper(environment))


@pytest.mark.reverb
@pytest.mark.parametrize("truncates", [False, True])
def test_a_batch_holds_exactly_what_the_environment_gave_and_took(truncates: bool) -> None:
    environment = make_environment(truncates)
    layout = layouts.TrajectoryLayout(specs.make_environment_spec(environment), T, EXTRAS)
    table = replay.TableConfig(
        name="replay", signature=layout.signature, max_size=100, rate_limiter=replay.MinSize(1),
        sampler=replay.Fifo(), max_times_sampled=1,
    )  # fmt: skip
    policy = GraspPolicy(seed=0)
    with replay.ReverbServer([table]) as server, server.client() as client:
        with SequenceAdder(client=client, table="replay", layout=layout, period=1) as adder:
            actor = actors.FeedForwardActor(policy=policy.choose, adder=adder)
            loop = environments.EnvironmentLoop(
                environment=environment, actor=actor, observers=[observers.ActionNorm()]
            )
            result = loop.run_episode()
        with Dataset(client.sampler("replay"), unpack=layout.unpack, batch_size=5) as dataset:
            batch = dataset.next(timeout_seconds=20).data

    given, taken = environment.timesteps, environment.actions
    zeros = tree.map_structure(np.zeros_like, taken[0])
    for start in range(5):

        def at(nest, t):
            return tree.map_structure(lambda leaf: leaf[start, t].numpy(), nest)  # noqa: B023

        for t in range(T + 1):
            testing.assert_nests_equal(
                at(batch.observation, t), given[min(start + t, 5)].observation, f"Item {start} at {t}."
            )
        for t in range(T):
            happened = start + t < 5
            assert batch.mask[start, t] == float(happened)
            testing.assert_nests_equal(at(batch.action, t), taken[start + t] if happened else zeros)
            step = start + t + 1 if happened else 0
            assert batch.reward["task"][start, t] == step
            assert batch.reward["effort"][start, t].tolist() == [step, step]
            goes_on = happened and (start + t < 4 or truncates)
            assert batch.discount[start, t] == float(goes_on)
            assert (batch.extras["log_prob"]["grip"][start, t] < 0) == happened
    dtypes = tree.map_structure(lambda leaf: leaf.dtype, (batch.observation, batch.action))
    assert dtypes == (
        {"camera": torch.uint8, "gear": torch.int32, "joints": (torch.float32, torch.float32)},
        {"arm": torch.float32, "grip": torch.int32},
    )
    assert result["episode_return/task"] == 15.0
    assert (result["episode_return/effort/0"], result["episode_return/effort/1"]) == (15.0, 15.0)
    assert {"action_norm/arm/mean", "action_norm/grip/mean"} <= result.keys()


@pytest.mark.reverb
def test_an_actor_and_a_learner_of_nests_run_on_one_replay() -> None:
    environment = make_environment()
    layout = layouts.TrajectoryLayout(specs.make_environment_spec(environment), T, EXTRAS)
    table = replay.TableConfig(
        name="replay", signature=layout.signature, max_size=100, rate_limiter=replay.MinSize(BATCH)
    )
    acting, learning = GraspPolicy(seed=0), GraspPolicy(seed=0)
    with (
        replay.ReverbServer([table]) as server,
        server.client() as client,
        SequenceAdder(client=client, table="replay", layout=layout, period=2) as adder,
        Dataset(client.sampler("replay"), unpack=layout.unpack, batch_size=BATCH) as dataset,
    ):
        learner = CloningLearner(learning, dataset)
        weights = actors.VariableClient(
            learner, ["policy"], lambda values: _load(acting, values[0]), update_period=1
        )
        actor = actors.FeedForwardActor(policy=acting.choose, adder=adder, variable_client=weights)
        loop = environments.EnvironmentLoop(environment=environment, actor=actor)
        loop.run(num_episodes=3)
        before = _numbers(acting)
        learner.run(num_steps=3)
        actor.update(wait=True)
        loop.run(num_episodes=1)
    assert len(environment.actions) == 20
    assert not np.array_equal(before, _numbers(acting))
    np.testing.assert_array_equal(_numbers(acting), _numbers(learning))
    for batch in learner.batches:
        assert batch.observation["camera"].shape == (BATCH, T + 1, 4, 4, 3)
        assert batch.action["grip"].shape == (BATCH, T)


class TestActorOfNests(testing.ActorConformance):
    def make_environment(self) -> dm_env.Environment:
        return make_environment()

    def make_actor(self) -> core.Actor:
        return actors.FeedForwardActor(policy=GraspPolicy(seed=0).choose)


class TestAllWrappersOverNests(testing.WrapperConformance):
    """Every wrapper that takes a nest, on top of each other."""

    def make_wrapped(self) -> dm_env.Environment:
        return testing.FakeEnvironment.nested(episode_length=7)

    def wrap(self, environment: dm_env.Environment) -> dm_env.Environment:
        return wrappers.wrap_all(
            environment,
            [
                lambda e: wrappers.ActionRepeatWrapper(e, num_repeats=2),
                lambda e: wrappers.FrameStackWrapper(e, num_frames=2),
                lambda e: wrappers.StepLimitWrapper(e, max_steps=3),
                wrappers.SinglePrecisionWrapper,
                wrappers.SpecCheckWrapper,
            ],
        )


UNBOUNDED = {"position": specs.Array((2,), np.float64), "ticks": specs.Array((), np.int64)}


def test_numbers_without_bounds_become_single_precision_with_their_specs() -> None:
    environment = wrappers.SpecCheckWrapper(
        wrappers.SinglePrecisionWrapper(
            testing.FakeEnvironment(observation_spec=UNBOUNDED, action_spec=specs.Array((2,), np.float64))
        )
    )
    actor = testing.FakeActor(np.full(2, 1e6, np.float32), specs.make_environment_spec(environment))
    result = environments.EnvironmentLoop(environment=environment, actor=actor).run_episode()
    assert result["episode_return"] == 15.0
    assert [str(spec.dtype) for spec in tree.flatten(environment.observation_spec())] == ["float32", "int32"]


@pytest.mark.parametrize(
    ("spec", "leaf"),
    [
        ({"arm": specs.Array((2,), np.float32), "grip": specs.DiscreteArray(3)}, r"\['arm'\]"),
        ((specs.DiscreteArray(3), specs.BoundedArray((), np.float32, 0.0, np.inf)), r"\[1\]"),
    ],
)
def test_a_random_actor_names_the_leaf_that_has_no_bounds(spec: types.NestedSpec, leaf: str) -> None:
    with pytest.raises(ValueError, match=rf"RandomActor needs `action_spec{leaf}` to be discrete or to have"):
        actors.RandomActor(spec, seed=0)


def test_an_environment_of_nests_is_refused_by_the_leaf_that_does_not_fit() -> None:
    with pytest.raises(ValueError, match=r"`observation_spec`\['camera'\] must be a float array"):
        wrappers.ConcatObservationWrapper(testing.FakeEnvironment.nested())


def test_an_action_that_lacks_a_leaf_is_refused_by_every_part_that_sees_it() -> None:
    action = {"arm": np.zeros(2, np.float32)}
    spec = specs.make_environment_spec(testing.FakeEnvironment.nested())
    environment = wrappers.SpecCheckWrapper(testing.FakeEnvironment.nested())
    environment.reset()
    with pytest.raises(ValueError, match=r"`action` must have the fields \['arm', 'grip'\], got .*'arm'\]"):
        environment.step(action)
    layout = layouts.TrajectoryLayout(spec, T)
    fake = testing.FakeEnvironment.nested()
    fake.reset()
    timestep = fake.step({"arm": np.zeros(2, np.float32), "grip": np.int32(0)})
    with pytest.raises(ValueError, match=r"`action` must have the fields \['arm', 'grip'\], got the fields"):
        layout.step(action, timestep)


def _load(module: torch.nn.Module, values: types.NestedArray) -> None:
    module.load_state_dict({name: torch.as_tensor(value) for name, value in values.items()})


def _numbers(module: torch.nn.Module) -> np.ndarray:
    return torch.nn.utils.parameters_to_vector(module.parameters()).detach().numpy().copy()
