"""A fresh world of people for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.accounts.world import World
from tests.servers import TestDatabase


@pytest.fixture
def world(database: TestDatabase, valkey_url: str) -> Iterator[World]:
    """Two tenants and somebody of every role."""
    made = World(database, valkey_url)
    yield made
    made.close()
