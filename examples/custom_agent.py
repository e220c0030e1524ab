"""An agent from scratch: double Q-learning with its own network, learner and actor.

    python examples/custom_agent.py --num-env-steps 30000

The environment adapter, replay, the n-step adder, the dataset and the loop come from the library.
"""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import dm_env
import numpy as np
import torch
import tyro
from torch import nn

from minerva_acme import actors, core, environments, replay, runs, specs, types
from minerva_acme.adders import NStepTransitionAdder
from minerva_acme.replay import dataset as datasets
from minerva_acme.replay import layouts


class QLearner(core.Learner):
    """Regresses Q(s, a) to the n-step return and the target network's value [van Hasselt et al. 2016]."""

    def __init__(self, network: nn.Module, dataset: Iterator[Any], learning_rate: float) -> None:
        self._network, self._target = network, copy.deepcopy(network)
        self._optimizer = torch.optim.Adam(network.parameters(), lr=learning_rate)
        self._dataset, self._served = dataset, copy.deepcopy(network.state_dict())

    def step(self) -> None:
        batch: types.Transition = next(self._dataset).data
        with torch.no_grad():
            best = self._network(batch.next_observation).argmax(dim=1, keepdim=True)
            v = self._target(batch.next_observation).gather(1, best).squeeze(1)
            target = batch.reward + batch.discount * v  # `discount` is 0 at a terminal
        q = self._network(batch.observation).gather(1, batch.action[:, None].long()).squeeze(1)
        self._optimizer.zero_grad()
        nn.functional.smooth_l1_loss(q, target).backward()
        self._optimizer.step()
        for slow, fast in zip(self._target.parameters(), self._network.parameters(), strict=True):
            slow.data.lerp_(fast.data, 0.01)
        self._served = copy.deepcopy(self._network.state_dict())  # a copy, complete also during the next step

    def get_variables(self, names: Sequence[str]) -> list[types.NestedArray]:
        if set(names) - {"network"}:
            raise KeyError(f"Unknown variables in {names}; there is only 'network'.")
        return [{name: tensor.numpy().copy() for name, tensor in self._served.items()} for _ in names]

    def save(self) -> core.State:
        return copy.deepcopy([part.state_dict() for part in self._parts()])

    def restore(self, state: core.State) -> None:
        for part, saved in zip(self._parts(), state, strict=True):
            part.load_state_dict(copy.deepcopy(saved))  # an optimiser keeps what it gets
        self._served = copy.deepcopy(self._network.state_dict())

    def _parts(self) -> list[Any]:
        return [self._network, self._target, self._optimizer]


class QActor(core.Actor):
    """Acts epsilon-greedily with the learner's weights, which it fetches every 10 steps."""

    def __init__(
        self, network: nn.Sequential, learner: core.Learner, adder: core.Adder | None, seed: int
    ) -> None:
        self.epsilon = 0.0
        self._network, self._adder = copy.deepcopy(network), adder
        self._client = actors.VariableClient(learner, ["network"], self._set_variables, update_period=10)
        self._random = np.random.default_rng(seed)

    @torch.no_grad()
    def select_action(self, observation: types.NestedArray) -> types.NestedArray:
        q = self._network(torch.from_numpy(observation))
        explores = self._random.random() < self.epsilon
        return np.int32(self._random.integers(len(q)) if explores else q.argmax().item())

    def observe_first(self, timestep: dm_env.TimeStep) -> None:
        if self._adder is not None:
            self._adder.add_first(timestep)

    def observe(self, action: types.NestedArray, next_timestep: dm_env.TimeStep) -> None:
        if self._adder is not None:
            self._adder.add(action, next_timestep)

    def update(self, wait: bool = False) -> None:
        self._client.update(wait)

    def _set_variables(self, values: list[types.NestedArray]) -> None:
        (state,) = values
        self._network.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()})


def main(num_env_steps: int = 30_000, seed: int = 0) -> runs.Evaluation:
    """Trains on CartPole-v1 and evaluates the greedy policy. The same seed gives the same result."""
    environment = environments.make_training_environment("CartPole-v1", seed=seed)
    spec = specs.make_environment_spec(environment)
    layout = layouts.TransitionLayout(spec)
    signature, limiter = layout.signature, replay.MinSize(1_000)
    table = replay.TableConfig(name="n_step", signature=signature, max_size=50_000, rate_limiter=limiter)
    torch.manual_seed(seed)
    size, num_actions = spec.observations.shape[0], spec.actions.num_values
    network = nn.Sequential(
        nn.Linear(size, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, num_actions)
    )
    with (
        replay.make_server([table], "memory", seed=seed) as server,
        server.client() as client,
        datasets.Dataset(client.sampler("n_step"), layout.unpack, batch_size=128) as dataset,
        NStepTransitionAdder(client=client, table="n_step", layout=layout, n_step=3, discount=0.99) as adder,
    ):
        learner = QLearner(network, dataset, learning_rate=5e-4)
        actor = QActor(network, learner, adder, seed)
        loop = environments.EnvironmentLoop(environment=environment, actor=actor)
        for step in range(num_env_steps):
            actor.epsilon = max(0.05, 1.0 - step / 5_000)
            loop.step()
            if adder.num_inserted >= 1_000 and step % 2 == 0:
                learner.step()
        greedy_actor = QActor(network, learner, adder=None, seed=seed)
        greedy_actor.update(wait=True)
    unseen = environments.make_training_environment("CartPole-v1", seed=seed + 1)
    return runs.evaluate(unseen, greedy_actor, num_episodes=20)


if __name__ == "__main__":
    result = tyro.cli(main)
    print(f"return {result.mean:.1f} ± {result.std:.1f}, at most 500")
