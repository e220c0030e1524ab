"""A tour of the library: makes every part, shows it, and then puts the parts together.

    python examples/tour.py
    python examples/tour.py --num-env-steps 1000

Reading it from top to bottom takes about ten minutes, running it about two. The agent is DQN on CartPole,
because its parts are small. Other agents have the same parts.
"""

import dataclasses

import dm_env
import numpy as np
import torch
import tyro

import minerva_acme
from minerva_acme import builders, core, counting, environments, experiments, loggers, networks, replay, specs
from minerva_acme.adders import NStepTransitionAdder
from minerva_acme.agents import dqn, off_policy
from minerva_acme.replay import dataset as datasets
from minerva_acme.replay import layouts


def make_environment(seed: int) -> dm_env.Environment:
    """Makes an environment by id, with all that agents need: float32, bounds, a random state to save."""
    return environments.make_training_environment("CartPole-v1", seed=seed)


def softmax_of_values(
    prediction: networks.Prediction, generator: torch.Generator, env_steps: int
) -> torch.Tensor:
    """Explores in our own way: better actions are more probable. Values [E, K] to actions [E]."""
    probabilities = torch.softmax(prediction.mean(), dim=-1)
    return torch.multinomial(probabilities, 1, generator=generator).squeeze(1)


class SoftmaxDQN(dqn.DQNBuilder):
    """DQN with another way of exploring."""

    def make_choice(self, spec: specs.EnvironmentSpec, evaluation: bool) -> off_policy.Choose:
        return off_policy.argmax if evaluation else softmax_of_values


def main(num_env_steps: int = 20_000, directory: str = "runs/tour", seed: int = 0) -> float:
    """Shows each part, then trains; returns the return of the loaded policy in one episode.

    Args:
        num_env_steps: The number of environment steps of training.
        directory: The folder of the run; an existing run there is continued.
        seed: The seed of networks, exploration, replay and environments.
    """
    print("1. An environment. A timestep has a type, a reward, a discount and an observation.")
    environment = make_environment(seed)
    spec = specs.make_environment_spec(environment)
    print(f"   observations {spec.observations.shape}, {spec.actions.num_values} actions")
    print("  ", environment.reset())
    print("  ", environment.step(np.int32(1)))

    print("\n2. An adder. It writes experience, here transitions over 3 steps, as items of a table.")
    layout = layouts.TransitionLayout(spec)
    table = replay.TableConfig(
        name="tour",
        signature=layout.signature,
        max_size=1000,
        rate_limiter=replay.Queue(100),  # items come out in the order in which they went in, each once
        sampler=replay.Fifo(),
        max_times_sampled=1,
    )
    with replay.MemoryServer([table], seed=seed) as server, server.client() as client:
        adder = NStepTransitionAdder(client=client, table="tour", layout=layout, n_step=3, discount=0.99)
        length = play_episode(environment, adder)
        adder.flush()
        num_items = client.table_info("tour").size
        print(f"   an episode of {length} steps became {num_items} items, one for each step:")
        sampler = client.sampler("tour")
        batches = datasets.Dataset(
            sampler, unpack=layout.unpack, batch_size=num_items, device=torch.device("cpu")
        )
        with batches:
            batch = next(batches)
        for step in (0, 1, num_items - 2, num_items - 1):
            reward, discount = batch.data.reward[step], batch.data.discount[step]
            print(f"   step {step:3}: reward of 3 steps {reward:.2f}, discount after them {discount:.2f}")
    print("   The pole fell, so nothing follows the last step: its discount is 0, and values end there.")

    print("\n3. A batch. The same items as tensors, with the batch as the first axis.")
    for name, value in batch.data._asdict().items():
        print(f"   {name:16} {list(getattr(value, 'shape', ()))}")

    print("\n4. A learner step. A builder makes the parts of an agent, each by one method.")
    builder = dqn.DQNBuilder(dqn.DQNConfig(min_replay_size=500, samples_per_insert=16.0))
    generator = torch.Generator().manual_seed(seed)
    rows = loggers.NewestRow()
    learner = builder.make_learner(
        builders.LearnerParts(
            networks=builder.make_networks(spec, generator),
            dataset=iter([batch]),
            client=client,
            spec=spec,
            counter=counting.Counter(),
            logger=rows,
            generator=generator,
            device=torch.device("cpu"),
        )
    )
    learner.step()
    for name, number in rows.row.items():
        print(f"   {name:20} {float(number):.4f}")

    print("\n5. The loop. It acts and learns in turns, evaluates, logs and saves; Ctrl-C saves too.")
    print("6. With a swapped part: everything is DQN's, but our own function chooses the actions.")
    result = experiments.run_experiment(
        experiments.ExperimentConfig(
            builder=SoftmaxDQN(builder.config),
            environment_factory=make_environment,
            directory=directory,
            num_env_steps=num_env_steps,
            seed=seed,
            replay="memory",
        ),
        Narrator(),
    )
    for name in ("random", "before", "after"):
        evaluation = getattr(result, name)
        print(f"   {name:6}: return {evaluation.mean:.1f} ± {evaluation.std:.1f}, at most 500")

    print("\n7. A policy, loaded from the run's folder.")
    policy = minerva_acme.load_policy(directory, SoftmaxDQN(builder.config), environment)
    timestep, episode_return = environment.reset(), 0.0
    while not timestep.last():
        timestep = environment.step(policy(timestep.observation).action)
        episode_return += float(timestep.reward)
    print(f"   one episode: {episode_return:.0f}. The files of the run are in {directory}.")
    return episode_return


def play_episode(environment: dm_env.Environment, adder: core.Adder) -> int:
    """Does an actor's work by hand, always with the same action: the pole soon falls."""
    timestep, length = environment.reset(), 0
    adder.add_first(timestep)
    while not timestep.last():
        action = np.int32(1)
        timestep = environment.step(action)
        adder.add(action, timestep)
        length += 1
    return length


@dataclasses.dataclass
class Narrator:
    """A callback that prints the run's progress. By raising `experiments.StopRun` it could end the run."""

    last: int = -1

    def __call__(self, progress: experiments.Progress) -> None:
        tenth = 10 * progress.env_steps // max(progress.num_env_steps, 1)
        if progress.phase == "train" and tenth > self.last:
            self.last = tenth
            last = "none yet" if progress.last_episode_return is None else progress.last_episode_return
            print(f"   {progress.env_steps:6} steps, last return {last}")


if __name__ == "__main__":
    result = tyro.cli(main)
