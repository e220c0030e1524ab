"""Demonstrations: recorded episodes as a share of every batch from replay.

Shapes: B batch.
"""

import dataclasses
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from minerva_acme import core, specs, types
from minerva_acme.datasets import episodes as episode_forms
from minerva_acme.datasets import minari, playing
from minerva_acme.replay import base as replay
from minerva_acme.replay import selectors
from minerva_acme.replay.layouts import trajectories
from minerva_acme.replay.memory import client as memory
from minerva_acme.replay.memory import store

_logger = logging.getLogger(__name__)

# Set in the keys of demonstrations. Keys in memory are counts, and Reverb's random ones would have to hit
# the few numbers that follow.
_MARK = 1 << 63


class Demonstrations(core.Closeable, core.Saveable):
    """Recorded episodes in tables of their own, which `mixed_with` draws from along with an agent's replay.

    The tables are those of the agent, filled through its own adder, in the memory of this process whatever
    the agent's store. Nothing that is drawn from them counts in the agent's tables: not for rate limiters,
    not as inserts that pace learning, and no checkpoint of replay holds them. The state is the path and the
    checksum of the file and, as numbers, what later draws depend on.
    """

    def __init__(
        self,
        recorded: minari.Recording | Sequence[episode_forms.Recorded],
        *,
        tables: Sequence[replay.TableConfig],
        make_adder: Callable[[replay.ReplayClient], core.Adder],
        spec: specs.EnvironmentSpec,
        extras_spec: types.NestedSpec = (),
        recorded_spec: specs.EnvironmentSpec | None = None,
        share: Callable[[], float],
        seed: int,
        device: str | None = None,
    ) -> None:
        """Plays the episodes.

        Args:
            recorded: The episodes; see `playing.play`.
            tables: The agent's tables, as its `make_replay_tables` returns them.
            make_adder: Makes the agent's adder that writes to a client, as its `make_adder` does.
            spec: The specs of the environment.
            extras_spec: The specs of the extras that the adder takes, as the agent's `extras_spec`.
            recorded_spec: The specs of the data; see `playing.play`.
            share: Returns the share of demonstrations in the next batch, in [0, 1]; B of them are rounded.
            seed: The seed of the draws.
            device: The device of the agent's store in memory; None if that holds arrays.

        Raises:
            ValueError: The agent's tables are queues or store recurrent states, or there are none; or there
                are no episodes, or too few steps for an item.
            SpecError: The data does not match the spec.
        """
        self._recorded = recorded
        self._share = share
        if not (num_rows := _num_rows(recorded)):
            raise ValueError("`recorded` must have at least one episode, got none.")
        configs = [_own(table, num_rows) for table in check_tables(tables)]
        self._server = store.MemoryServer(configs, seed=seed, device=device)
        self._client = self._server.client()
        with make_adder(self._client) as adder:
            self.played = playing.play(
                recorded, adder, spec=spec, extras_spec=extras_spec, recorded_spec=recorded_spec
            )
            """What was played."""
        for table in configs:
            info = self._client.table_info(table.name)
            if info.size == 0 or info.size < info.inserted:
                raise ValueError(
                    f"The demonstrations must make items for table '{table.name}', and none more than steps, "
                    f"got {info.inserted} from {self.played}. Record longer episodes, or correct the adder."
                )
        self._checksum = recorded.checksum() if isinstance(recorded, minari.Recording) else ""

    def mixed_with(self, client: replay.ReplayClient) -> replay.ReplayClient:
        """Returns a client of an agent's replay whose samplers mix in demonstrations.

        A batch of B holds round(share * B) demonstrations, the last ones. Their probability and the size of
        the table are those within their own table, and `update_priorities` reaches the table of each item.
        """
        return _MixedClient(client, self._client, self._share)

    def save(self) -> core.State:
        draws = {
            name: {
                field: torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value
                for field, value in state.items()
            }
            for name, state in self._server.save_draws().items()
        }
        path = str(self._recorded.path) if isinstance(self._recorded, minari.Recording) else ""
        return {"path": path, "checksum": self._checksum, "draws": draws}

    def restore(self, state: core.State) -> None:
        """Restores the state of the draws.

        Raises:
            ValueError: The state is of other demonstrations.
        """
        check_checksum(state, self._checksum)
        self._server.restore_draws(
            {
                name: {
                    field: value.cpu().numpy() if isinstance(value, torch.Tensor) else value
                    for field, value in draws.items()
                }
                for name, draws in state["draws"].items()
            }
        )

    def close(self) -> None:
        self._server.close()


def check_checksum(state: Mapping[str, Any], checksum: str) -> None:
    """Checks that a run has learned from these recorded episodes.

    Args:
        state: The state of a run's `Demonstrations`.
        checksum: The checksum of the episodes, or "" if they are not from a file.

    Raises:
        ValueError: It has learned from others.
    """
    if state["checksum"] != checksum:
        raise ValueError(
            f"Recorded episodes must have the checksum {state['checksum'][:12]} of "
            f"{state['path'] or 'the checkpoint'}, got {checksum[:12] or 'others'}. Use the same file."
        )


def _num_rows(recorded: minari.Recording | Sequence[episode_forms.Recorded]) -> int:
    if isinstance(recorded, minari.Recording):
        return recorded.num_steps + recorded.num_episodes
    if not isinstance(recorded, Sequence):
        raise ValueError(
            "`recorded` must be what `datasets.read` returns or a sequence of episodes, since it is read "
            f"twice, got {type(recorded).__name__}. Make a list of it."
        )
    return sum(episode_forms.as_episode(each).num_steps + 1 for each in recorded)


def check_tables(tables: Sequence[replay.TableConfig]) -> Sequence[replay.TableConfig]:
    """Returns an agent's tables if demonstrations can be mixed into them.

    Raises:
        ValueError: They cannot.
    """
    for table in tables:
        if table.max_times_sampled or isinstance(table.rate_limiter, replay.Queue):
            raise ValueError(
                f"Demonstrations need an agent that replays items, but '{table.name}' is a queue, whose "
                "items are learned from once. Choose one of the others: `minerva list agents`."
            )
        if any(name.startswith(trajectories.STATE_COLUMNS) for name in table.signature.columns):
            raise ValueError(
                "Recurrent states of recorded episodes are not used, since other weights made them, but "
                f"table '{table.name}' stores states. Set `stored_state` to False: then the memory begins as "
                "in a new episode."
            )
    if not tables:
        raise ValueError("Demonstrations need an agent with a replay table, got none.")
    return tables


def _own(table: replay.TableConfig, max_size: int) -> replay.TableConfig:
    """Returns the config of a table of demonstrations: all fit in, and none is older than others."""
    return dataclasses.replace(
        table,
        max_size=max_size,
        rate_limiter=replay.MinSize(1),
        sampler=table.sampler.ageless(),
        remover=selectors.Fifo(),
        ring=None,
    )


class _MixedClient(replay.ReplayClient):
    """A client of the agent's store; see `Demonstrations.mixed_with`."""

    def __init__(
        self, client: replay.ReplayClient, demonstrations: replay.ReplayClient, share: Callable[[], float]
    ) -> None:
        self._client = client
        self._demonstrations = demonstrations
        self._share = share

    def writer(self, max_window: int, narrow_columns: Collection[str] = ()) -> replay.Writer:
        return self._client.writer(max_window, narrow_columns)

    def sampler(self, table: str) -> replay.Sampler:
        return _MixedSampler(self._client.sampler(table), self._demonstrations.sampler(table), self._share)

    def table_info(self, table: str) -> replay.TableInfo:
        return self._client.table_info(table)

    def check_table(self, config: replay.TableConfig) -> None:
        self._client.check_table(config)

    def memory_bytes(self) -> int | None:
        own, theirs = self._client.memory_bytes(), self._demonstrations.memory_bytes()
        return None if own is None or theirs is None else own + theirs

    def update_priorities(self, table: str, keys: np.ndarray, priorities: np.ndarray) -> None:
        size = self._demonstrations.table_info(table).size
        is_theirs = (keys >= _MARK) & (keys < _MARK + size)
        self._client.update_priorities(table, keys[~is_theirs], priorities[~is_theirs])
        self._demonstrations.update_priorities(table, keys[is_theirs] - _MARK, priorities[is_theirs])

    def checkpoint(self) -> str:
        return self._client.checkpoint()

    def close(self) -> None:
        self._client.close()


class _MixedSampler(replay.Sampler):
    def __init__(
        self, sampler: replay.Sampler, demonstrations: replay.Sampler, share: Callable[[], float]
    ) -> None:
        self._sampler = sampler
        self._demonstrations = demonstrations
        self._share = share
        self._is_first = True

    @property
    def prefetch(self) -> int:
        return self._sampler.prefetch

    def sample_batch(
        self, batch_size: int, timeout_seconds: float | None = None
    ) -> tuple[replay.SampleInfo, dict[str, Any]]:
        num_theirs = self._num_demonstrations(batch_size)
        parts = []
        if num_theirs < batch_size:  # first, since it may raise an error
            parts.append(self._sampler.sample_batch(batch_size - num_theirs, timeout_seconds))
        if num_theirs:
            info, fields = self._demonstrations.sample_batch(num_theirs, timeout_seconds)
            parts.append((info._replace(key=info.key | _MARK), fields))
        if len(parts) == 1:
            return parts[0]
        return memory.join_samples(parts)

    def _num_demonstrations(self, batch_size: int) -> int:
        """Returns how many of a batch are demonstrations.

        Raises:
            ValueError: Their share is not in [0, 1].
        """
        share = self._share()
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"The share of demonstrations must be between 0 and 1, got {share}.")
        number = round(share * batch_size)
        if share and not number and self._is_first:  # later a share may fall to 0
            _logger.warning(
                "a share of %g is less than half an item of a batch of %d: batches hold no demonstrations",
                share,
                batch_size,
            )
        self._is_first = False
        return number

    def close(self) -> None:
        self._sampler.close()
        self._demonstrations.close()
