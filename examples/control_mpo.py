"""MPO with Retrace on a dm_control task, every object built in view in the order data flows.

    python examples/control_mpo.py --env dm_control/cartpole/swingup --num-env-steps 20000

`minerva train mpo` does the same with checkpoints, logs and a progress bar.
"""

import dataclasses

import torch
import tyro

from minerva_acme import actors, counting, environments, experiments, loggers, losses, specs
from minerva_acme.adders import SequenceAdder
from minerva_acme.agents import mpo
from minerva_acme.agents.mpo import acting, targets
from minerva_acme.replay import backends, layouts
from minerva_acme.replay import base as replay
from minerva_acme.replay import dataset as datasets


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What the script can be told."""

    env: str = "dm_control/cartpole/swingup"
    """Environment id."""
    num_env_steps: int = 20_000
    """Environment steps of training."""
    seed: int = 0
    """Of everything but Reverb's sampling."""
    config: mpo.MPOConfig = mpo.PRESETS["control"]
    """Hyperparameters."""


def main(options: Options) -> experiments.Evaluation:
    """Trains and returns the evaluation of the trained policy."""
    config, seed = options.config, options.seed
    device = torch.device("cpu")

    # The environment: single precision, actions in [-1, 1], one observation vector.
    environment = environments.make_training_environment(options.env, seed=seed)
    spec = specs.make_environment_spec(environment)

    # Replay: a table of sequences, each a window of steps stored once.
    layout = layouts.TrajectoryLayout(spec, config.sequence_length, acting.extras_spec(spec))
    table = replay.TableConfig(
        name="sequences",
        signature=layout.signature,
        max_size=config.max_replay_size,
        rate_limiter=replay.MinSize(config.min_replay_size),
    )
    server = backends.make_server([table], seed=seed)  # Reverb where it is installed, else memory
    client = server.client()

    # Learning: batches of sequences to gradient steps.
    networks = mpo.make_networks(spec, config, torch.Generator().manual_seed(seed))
    dataset = datasets.Dataset(
        client.sampler("sequences"), unpack=layout.unpack, batch_size=config.batch_size, device=device
    )
    counter = counting.Counter()
    learner = mpo.MPOLearner(
        networks=networks,
        duals=losses.MPODuals(
            num_dimensions=spec.actions.shape[0],
            init_log_temperature=config.init_log_temperature,
            init_log_alpha_mean=config.init_log_alpha_mean,
            init_log_alpha_stddev=config.init_log_alpha_stddev,
            action_penalty=config.action_penalty,
        ),
        dataset=dataset,
        critic_target=targets.retrace(lambda_=config.retrace_lambda, num_actions=config.retrace_mc_actions),
        config=config,
        action_spec=spec.actions,
        counter=counting.Counter(counter, "learner"),
        logger=loggers.TimeFilter(loggers.TerminalLogger("learner"), seconds=10.0),
        generator=torch.Generator(device).manual_seed(seed + 1),
        device=device,
    )

    # Acting: the policy's samples go to the environment, what follows goes to the adder.
    policy = mpo.BehaviourPolicy(
        networks=networks, spec=spec, generator=torch.Generator().manual_seed(seed + 2)
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

    # One learner step for every few sequences that were written.
    with server, client, dataset, adder:
        learner_steps = 0
        for _ in range(options.num_env_steps):
            loop.step()
            written = adder.num_inserted - config.min_replay_size
            while written >= learner_steps * config.inserts_per_learner_step:
                if learner_steps == 0:
                    adder.flush()  # Sampling waits for what is still on its way.
                learner.step()
                learner_steps += 1

        # What the policy's mean is worth, in an environment of its own.
        greedy = mpo.GreedyPolicy(networks=networks, spec=spec, generator=torch.Generator())
        judge = actors.FeedForwardActor(policy=greedy)
        evaluation_environment = environments.make_training_environment(options.env, seed=seed + 3)
        return experiments.evaluate(evaluation_environment, judge, num_episodes=5)


if __name__ == "__main__":
    result = main(tyro.cli(Options, description=__doc__))
    print(f"evaluation return {result.mean:.1f} +- {result.std:.1f}")
