"""A custom adder, tested by the conformance class that comes with the library.

    python examples/custom_adder.py      # plays an episode into replay and shows what a learner would get
    pytest examples/custom_adder.py      # tests the contract: call order, bad fields, resets, no lost steps

`MonteCarloAdder` waits for the end of the episode and writes each step with its discounted return.
"""

import dm_env
import numpy as np
import tyro

from minerva_acme import actors, core, environments, replay, specs, testing, types
from minerva_acme.adders import BaseAdder, Step
from minerva_acme.replay import dataset as datasets
from minerva_acme.replay import layouts


class MonteCarloAdder(BaseAdder):
    """Writes a transition for every step of an episode when it ends, last step first.

        FIRST  MID  MID  LAST
        o_0    o_1  o_2  o_3
        [=================]      reward r_1 + g r_2 + g^2 r_3, discount g^3 d_3
               [==========]      reward r_2 + g r_3, discount g^2 d_3
                    [=====]      reward r_3, discount g d_3

    After a termination d_3 is 0. After a truncation it is 1, and the target is
    `reward + discount * value(o_3)`.
    """

    def __init__(
        self, client: replay.ReplayClient, table: str, layout: layouts.TransitionLayout, gamma: float
    ) -> None:
        signature = layout.signature
        super().__init__(client=client, table=table, priority=1.0, signature=signature, max_window=1)
        self._table, self._layout, self._gamma = table, layout, gamma

    def write_first(self, writer: replay.Writer, timestep: dm_env.TimeStep) -> None:
        self._observations = [self._layout.first(timestep.observation)]
        self._steps: list[layouts.PackedStep] = []

    def write_step(self, writer: replay.Writer, step: Step) -> None:
        self._steps.append(self._layout.step(*step))  # checks every field
        self._observations.append(self._steps[-1].next_observation)

    def write_end(self, writer: replay.Writer) -> None:
        reward, discount = np.zeros(1), np.ones(1)  # of the following steps; rewards are scalars
        for row, t in enumerate(reversed(range(len(self._steps)))):
            r_t, discount_t = self._layout.fold([self._steps[t]], self._gamma)
            reward, discount = r_t + discount_t * reward, discount_t * discount
            rows = self._layout.transition(
                observation=self._observations[t],
                step=self._steps[t],
                reward=reward,
                discount=discount,
                next_observation=self._observations[-1],
            )
            writer.append(rows)
            self.create_items(writer, self._layout.fields(row, t, t + 1), {self._table: 1.0})
        writer.end_episode()


def make_store(spec: specs.EnvironmentSpec) -> tuple[replay.ReplayServer, layouts.TransitionLayout]:
    """Makes a table of transitions in memory. Each is sampled once, in the order written."""
    layout = layouts.TransitionLayout(spec)
    table = replay.TableConfig(
        name="returns",
        signature=layout.signature,
        max_size=10_000,
        rate_limiter=replay.MinSize(1),
        sampler=replay.Fifo(),
        max_times_sampled=1,
    )
    return replay.make_server([table], "memory", seed=0), layout


class TestMonteCarloAdder(testing.AdderConformance):
    """Inherits the adder tests; only these four methods have to be written."""

    def make_adder(self) -> MonteCarloAdder:
        self._server, self._layout = make_store(specs.make_environment_spec(self.make_environment()))
        return MonteCarloAdder(self._server.client(), "returns", self._layout, gamma=0.9)

    def read_items(self, adder: core.Adder) -> list[types.Transition]:
        return testing.read_items(self._server.client(), "returns", self._layout.unpack)

    def make_environment(self) -> dm_env.Environment:
        return testing.FakeEnvironment(truncates=True)

    def make_action(self) -> np.ndarray:
        return np.zeros(2, np.float32)


def main(env: str = "CartPole-v1", gamma: float = 0.99) -> types.Transition:
    """Plays one episode with a constant action; returns the transitions that a learner gets, last first."""
    environment = environments.make_training_environment(env, seed=0)
    action = environment.action_spec().generate_value()
    server, layout = make_store(specs.make_environment_spec(environment))
    with server, server.client() as client:
        with MonteCarloAdder(client, "returns", layout, gamma) as adder:
            actor = actors.FeedForwardActor(policy=lambda _: actors.PolicyOutput(action), adder=adder)
            length = environments.EnvironmentLoop(environment=environment, actor=actor).run_episode()[
                "episode_length"
            ]
        with datasets.Dataset(client.sampler("returns"), layout.unpack, batch_size=length) as dataset:
            return next(dataset).data


if __name__ == "__main__":
    result = tyro.cli(main)
    print("returns, from the last step to the first:", *np.round(result.reward.numpy(), 2))
