"""The plain actor loop and the library's loop, for comparison: same task and sizes, tables of one server."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from minerva_acme import core, counting, environments, specs, types
from minerva_acme.agents import mpo
from minerva_acme.replay import base as replay
from minerva_acme.replay.reverb import store

from . import frame, plain_actor

TASK = "dm_control/cheetah/run"
PLAIN_TABLE = "plain"


class Source(core.VariableSource):
    """A learner that has made one step and makes no more."""

    def __init__(self, networks: mpo.MPONetworks) -> None:
        self._state = {name: value.numpy() for name, value in networks.policy.state_dict().items()}

    def get_variables(self, names: Sequence[str]) -> list[types.NestedArray]:
        return [self._state for _ in names]

    def poll_variables(
        self, names: Sequence[str], newer_than: int | None = None
    ) -> core.VersionedVariables | None:
        return None if newer_than == 1 else core.VersionedVariables(1, self.get_variables(names))


@contextlib.contextmanager
def make_client(builder: mpo.MPOBuilder, spec: specs.EnvironmentSpec) -> Iterator[replay.ReplayClient]:
    """Yields a client of a Reverb server in this process, with tables for the agent and the plain loop.

    Raises:
        frame.Skip: Reverb is not installed.
    """
    (table,) = builder.make_replay_tables(spec)
    fields = table.signature
    plain_table = replay.TableConfig(
        name=PLAIN_TABLE, signature=fields, max_size=table.max_size, rate_limiter=replay.MinSize(1)
    )
    try:
        server = store.ReverbServer([table, plain_table])
    except ImportError as error:
        raise frame.Skip(str(error)) from error
    with server, server.client() as client:
        yield client


def make_environment() -> Any:
    """Makes the task as agents see it.

    Raises:
        frame.Skip: dm_control is not installed.
    """
    try:
        return environments.make_training_environment(TASK, seed=1)
    except ImportError as error:
        raise frame.Skip(str(error)) from error


def make_loop(
    builder: mpo.MPOBuilder, client: replay.ReplayClient | None, stack: contextlib.ExitStack
) -> environments.EnvironmentLoop:
    """Makes the library's loop, complete except for a logger; without a client it writes nothing."""
    environment = make_environment()
    stack.callback(environment.close)
    spec = specs.make_environment_spec(environment)
    networks = builder.make_networks(spec, torch.Generator().manual_seed(1))
    policy = builder.make_policy(networks, spec, torch.Generator().manual_seed(2))
    adder = None if client is None else stack.enter_context(builder.make_adder(client, spec))
    actor = builder.make_actor(policy, Source(networks), adder)
    counter = counting.Counter(counting.Counter(), "actor")
    return environments.EnvironmentLoop(environment=environment, actor=actor, counter=counter)


def make_plain_loop(
    config: mpo.MPOConfig, client: replay.ReplayClient | None, stack: contextlib.ExitStack, acts: bool = True
) -> plain_actor.PlainLoop:
    """Makes the plain loop, on the unwrapped task; without a client it writes nothing."""
    make_environment().close()  # raises if something is not installed
    environment = environments.make(TASK, seed=1)
    stack.callback(environment.close)
    spec = environment.observation_spec()
    observation_size = sum(part.shape[0] if part.shape else 1 for part in spec.values())
    action_size = environment.action_spec().shape[0]
    acting = plain_actor.PlainActing(observation_size, action_size, config.policy_layer_sizes)
    writing = None
    if client is not None:
        import reverb

        num_rows = config.sequence_length + 1
        writer = reverb.Client(client.address).trajectory_writer(num_keep_alive_refs=num_rows)
        writer.configure((0,), num_keep_alive_refs=num_rows, max_chunk_length=num_rows)
        stack.callback(writer.close)
        writing = plain_actor.PlainWriting(writer, PLAIN_TABLE, num_rows)
    return plain_actor.PlainLoop(environment, acting if acts else None, writing)
