"""Servers in memory."""

import pytest

from minerva_acme import replay


@pytest.fixture
def serve_memory():
    """Makes servers that are closed with the test: `serve_memory(table, seed=0, ...)`."""
    servers = []

    def function(*tables, seed=0, **options):
        servers.append(replay.MemoryServer(tables, seed=seed, **options))
        return servers[-1]

    yield function
    for server in servers:
        server.close()
