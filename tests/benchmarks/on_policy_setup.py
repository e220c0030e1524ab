"""PPO end to end, in three programs with equal settings: ours, Stable-Baselines3, and a single file.

Each call is an iteration: a rollout of 2048 steps in total and the 320 gradient steps on it. None of the
programs evaluates; each keeps the returns of its episodes. Observations and rewards are normalised.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch

from . import frame, single_file_ppo

ROLLOUT_STEPS = 2048
MINIBATCH_SIZE = 64
NUM_EPOCHS = 10
LAYER_SIZES = (64, 64)


def benchmark(name: str, environment_id: str, num_environments: int, goal: float) -> frame.Benchmark:
    """Returns the benchmark of a Gymnasium task in several environments, with `goal` for our variants."""
    return frame.Benchmark(
        name=name,
        unit="environment step",
        make=functools.partial(_make, environment_id, num_environments),
        reference="Stable-Baselines3",
        goals={"ours, memory": goal, "ours, Reverb": goal},
        units_per_call=ROLLOUT_STEPS,
        threads=(1,),
    )


@contextlib.contextmanager
def _make(environment_id: str, num_environments: int) -> Iterator[frame.Variants]:
    try:
        variants = {"Stable-Baselines3": make_stable_baselines(environment_id, num_environments)}
        single = single_file_ppo.make(
            environment_id, num_environments, ROLLOUT_STEPS, MINIBATCH_SIZE, NUM_EPOCHS, LAYER_SIZES
        )
    except ImportError as error:
        raise frame.Skip(str(error)) from error
    with contextlib.ExitStack() as stack:
        variants["single file"] = single
        variants["ours, memory"] = make_ours(environment_id, num_environments, "memory", stack)
        with contextlib.suppress(ImportError):
            variants["ours, Reverb"] = make_ours(environment_id, num_environments, "reverb", stack)
        # For information, not as a comparison: the same rollouts with V-MPO's 16 gradient steps on each.
        variants["V-MPO, memory"] = make_ours(environment_id, num_environments, "memory", stack, agent="vmpo")
        yield variants


def make_ours(
    environment_id: str,
    num_environments: int,
    replay: str,
    stack: contextlib.ExitStack,
    agent: Literal["ppo", "vmpo"] = "ppo",
) -> Callable[[], None]:
    """Makes an iteration with the parts of `experiments.run_experiment`, in the same order."""
    from minerva_acme import builders, counting, environments, specs
    from minerva_acme.replay import backends

    builder = _make_builder(agent, num_environments)

    def make_environment(seed: int) -> Any:
        return environments.make_training_environment(f"gymnasium/{environment_id}", seed=seed)

    if num_environments == 1:
        environment = make_environment(0)
    else:
        factories = [functools.partial(make_environment, seed) for seed in range(num_environments)]
        environment = environments.make_vector(factories, processes=False)
    stack.callback(environment.close)
    spec = specs.make_environment_spec(environment)
    server = stack.enter_context(
        backends.make_server(builder.make_replay_tables(spec), replay, seed=0, device="cpu")
    )
    client = stack.enter_context(server.client())
    networks = builder.make_networks(spec, torch.Generator().manual_seed(0))
    dataset = builder.make_dataset(client, spec, torch.device("cpu"))
    stack.callback(dataset.close)
    counter = counting.Counter()
    learner = builder.make_learner(
        builders.LearnerParts(
            networks=networks,
            dataset=dataset,
            spec=spec,
            counter=counting.Counter(counter, "learner"),
            logger=_Ignore(),
            generator=torch.Generator().manual_seed(1),
            device=torch.device("cpu"),
        )
    )
    policy = builder.make_policy(networks, spec, torch.Generator().manual_seed(2))
    adders = [stack.enter_context(builder.make_adder(client, spec)) for _ in range(num_environments)]
    common: dict[str, Any] = {"counter": counting.Counter(counter, "actor"), "environment": environment}
    actor: Any
    loop: Any
    if num_environments == 1:
        actor = builder.make_actor(policy, learner, adders[0])
        loop = environments.EnvironmentLoop(actor=actor, **common)
    else:
        actor = builder.make_vector_actor(policy, learner, adders)
        loop = environments.VectorEnvironmentLoop(actor=actor, **common)
    learned = 0

    def iterate() -> None:
        nonlocal learned
        while learned == builder.learner_steps_due(sum(adder.num_inserted for adder in adders)):
            loop.step()
        for adder in adders:
            adder.flush()
        learner.step()
        learned += 1
        actor.update()

    return iterate


def _make_builder(agent: Literal["ppo", "vmpo"], num_environments: int) -> Any:
    from minerva_acme.agents import ppo, vmpo

    sizes: dict[str, Any] = {
        "num_environments": num_environments,
        "rollout_steps": ROLLOUT_STEPS,
        "policy_layer_sizes": LAYER_SIZES,
        "value_layer_sizes": LAYER_SIZES,
        "anneal_learning_rate": False,
    }
    if agent == "ppo":
        config = ppo.PPOConfig(**sizes, num_epochs=NUM_EPOCHS, minibatch_size=MINIBATCH_SIZE, target_kl=None)
        return ppo.PPOBuilder(config)
    return vmpo.VMPOBuilder(vmpo.VMPOConfig(**sizes))


class _Ignore:
    def write(self, values: Any) -> None:
        del values

    def close(self) -> None:
        pass


def make_stable_baselines(environment_id: str, num_environments: int) -> Callable[[], None]:
    """Makes an iteration of Stable-Baselines3.

    Raises:
        ImportError: Stable-Baselines3 or Gymnasium is not installed.
    """
    import gymnasium
    import stable_baselines3
    from stable_baselines3.common import monitor, vec_env

    def make_environment(seed: int) -> Any:
        environment = monitor.Monitor(gymnasium.make(environment_id))
        environment.reset(seed=seed)
        return environment

    environment = vec_env.VecNormalize(
        vec_env.DummyVecEnv([functools.partial(make_environment, seed) for seed in range(num_environments)])
    )
    model = stable_baselines3.PPO(
        "MlpPolicy",
        environment,
        n_steps=ROLLOUT_STEPS // num_environments,
        batch_size=MINIBATCH_SIZE,
        n_epochs=NUM_EPOCHS,
        learning_rate=3e-4,
        clip_range=0.2,
        clip_range_vf=0.2,
        ent_coef=0.0,
        vf_coef=0.5,
        max_grad_norm=0.5,
        target_kl=None,
        policy_kwargs={"net_arch": {"pi": [*LAYER_SIZES], "vf": [*LAYER_SIZES]}},
        seed=0,
        device="cpu",
    )
    return lambda: model.learn(ROLLOUT_STEPS, reset_num_timesteps=False)
