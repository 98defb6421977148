"""A world of people for the web's tests: one for each module, or a fresh one for each test that asks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.accounts.world import World
from tests.servers import Addresses, TestDatabase


@pytest.fixture(scope="module")
def world(module_database: TestDatabase, servers: Addresses, worker_id: str) -> Iterator[World]:
    """Two tenants and somebody of every role, shared by the tests of one module."""
    # not the Valkey database that `valkey_url` empties for each of its tests
    number = 8 + (int(worker_id.removeprefix("gw")) % 8 if worker_id != "master" else 0)
    made = World(module_database, servers.valkey_url.rpartition("/")[0] + f"/{number}")
    yield made
    made.close()
