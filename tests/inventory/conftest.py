"""A fresh world for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.inventory.world import World
from tests.servers import TestDatabase


@pytest.fixture
def world(database: TestDatabase) -> Iterator[World]:
    """A process over a fresh database, its product clock stopped."""
    made = World(database)
    yield made
    made.close()
