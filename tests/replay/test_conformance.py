"""Every store behind the one interface keeps its contract."""

import pytest

from minerva_acme import replay
from tests.replay import refusals


@pytest.mark.reverb
class TestReverb(refusals.StoreTests):
    def make_server(self, tables, checkpoint_directory=None, restore_from=None):
        return replay.ReverbServer(
            tables, checkpoint_directory=checkpoint_directory, restore_from=restore_from
        )


class TestMemory(refusals.StoreTests):
    def make_server(self, tables, checkpoint_directory=None, restore_from=None):
        return replay.MemoryServer(
            tables, seed=1, checkpoint_directory=checkpoint_directory, restore_from=restore_from
        )


class AsArrays(replay.Sampler):
    """A sampler of tensors on the CPU, as arrays."""

    def __init__(self, sampler):
        self.sampler = sampler

    def sample_batch(self, batch_size, timeout_seconds=None):
        info, fields = self.sampler.sample_batch(batch_size, timeout_seconds)
        return info, {name: field.numpy() for name, field in fields.items()}

    def close(self):
        self.sampler.close()


class TestMemoryOnADevice(refusals.StoreTests):
    def make_server(self, tables, checkpoint_directory=None, restore_from=None):
        server = replay.MemoryServer(
            tables,
            seed=1,
            checkpoint_directory=checkpoint_directory,
            restore_from=restore_from,
            device="cpu",
        )
        make_client = server.client

        def client(*arguments, **options):
            made = make_client(*arguments, **options)
            make_sampler = made.sampler
            made.sampler = lambda table: AsArrays(make_sampler(table))
            return made

        server.client = client
        return server
