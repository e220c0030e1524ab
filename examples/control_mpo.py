"""MPO with Retrace on a dm_control task. Every object is built here, in the order in which data flows.

    python examples/control_mpo.py --env dm_control/cartpole/swingup --num-env-steps 20000

`minerva train mpo` does the same with checkpoints, logs and a progress bar.
"""

import dataclasses

import torch
import tyro

from minerva_acme import acceleration, actors, builders, counting, environments, loggers, runs, specs
from minerva_acme.adders import SequenceAdder
from minerva_acme.agents import acting, actions, choosing, mpo
from minerva_acme.replay import backends, layouts
from minerva_acme.replay import base as replay
from minerva_acme.replay import dataset as datasets


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Command-line options."""

    env: str = "dm_control/cartpole/swingup"
    """Environment id."""
    num_env_steps: int = 20_000
    """Environment steps of training."""
    seed: int = 0
    """Seeds everything except Reverb's sampling."""
    config: mpo.MPOConfig = mpo.PRESETS["control"]
    """Hyperparameters."""


def main(options: Options) -> runs.Evaluation:
    """Trains, and returns an evaluation of the trained policy."""
    config, seed, device = options.config, options.seed, torch.device("cpu")

    # The environment: single precision, actions in [-1, 1], one observation vector.
    environment = environments.make_training_environment(options.env, seed=seed)
    spec = specs.make_environment_spec(environment)

    # Replay: a table of sequences. Each is a window of steps; every step is stored only once.
    layout = layouts.TrajectoryLayout(spec, config.sequence_length, acting.extras_spec(spec))
    table = replay.TableConfig(
        name="sequences",
        signature=layout.signature,
        max_size=config.max_replay_size,
        rate_limiter=replay.MinSize(config.min_replay_size),
    )
    server = backends.make_server([table], seed=seed)  # Reverb if it is installed, otherwise memory
    client = server.client()

    # Learning: a batch of sequences for each learner step.
    networks = mpo.make_networks(spec, config, torch.Generator().manual_seed(seed))
    dataset = datasets.Dataset(
        client.sampler("sequences"), unpack=layout.unpack, batch_size=config.batch_size, device=device
    )
    counter = counting.Counter()
    learner = mpo.MPOBuilder(config).make_learner(
        builders.LearnerParts(
            networks=networks,
            dataset=dataset,
            spec=spec,
            counter=counting.Counter(counter, "learner"),
            logger=loggers.TimeFilter(loggers.TerminalLogger("learner"), seconds=10.0),
            generator=torch.Generator(device).manual_seed(seed + 1),
            device=device,
        )
    )

    # Acting: actions are sampled from the policy; the adder writes the resulting steps to replay.
    policy = mpo.ModulePolicy(
        module=networks.policy,
        choose=choosing.sample,
        raw_actions=actions.RawActions(spec.actions),
        generator=torch.Generator().manual_seed(seed + 2),
        acceleration=acceleration.Acceleration(config.acceleration),
        record="choice",
    )
    adder = SequenceAdder(client=client, table="sequences", layout=layout, period=config.sequence_period)
    actor = actors.FeedForwardActor(
        policy=policy,
        adder=adder,
        variable_client=actors.VariableClient(
            learner, ["policy"], policy.set_variables, update_period=config.variable_update_period
        ),
    )
    loop = environments.EnvironmentLoop(
        environment=environment,
        actor=actor,
        counter=counting.Counter(counter, "actor"),
        logger=loggers.TerminalLogger("actor"),
    )

    # One learner step for every few sequences written.
    with server, client, dataset, adder:
        learner_steps = 0
        for _ in range(options.num_env_steps):
            loop.step()
            written = adder.num_inserted - config.min_replay_size
            while written >= learner_steps * config.inserts_per_learner_step:
                if learner_steps == 0:
                    adder.flush()  # The learner waits for these sequences, so send what is still buffered.
                learner.step()
                learner_steps += 1

        # Evaluation of the policy's mean, in a separate environment.
        greedy = mpo.ModulePolicy(
            module=networks.policy,
            choose=choosing.mode,
            raw_actions=actions.RawActions(spec.actions),
            generator=torch.Generator(),
            acceleration=acceleration.Acceleration(config.acceleration),
        )
        evaluation_environment = environments.make_training_environment(options.env, seed=seed + 3)
        return runs.evaluate(evaluation_environment, actors.FeedForwardActor(policy=greedy), num_episodes=5)


if __name__ == "__main__":
    result = main(tyro.cli(Options, description=__doc__))
    print(f"evaluation return {result.mean:.1f} ± {result.std:.1f}")
