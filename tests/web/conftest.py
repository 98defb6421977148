"""A world of people for the web's tests: one for each module, or a fresh one for each test that asks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.accounts.world import World
from tests.servers import Addresses, TestDatabase


@pytest.fixture(scope="module")
def world(module_database: TestDatabase, servers: Addresses) -> Iterator[World]:
    """Two tenants and somebody of every role, shared by the tests of one module."""
    made = World(module_database, servers.valkey_url)
    yield made
    made.close()
