from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.billing.world import World
from tests.servers import TestDatabase


@pytest.fixture
def world(database: TestDatabase) -> Iterator[World]:
    made = World(database)
    yield made
    made.close()
