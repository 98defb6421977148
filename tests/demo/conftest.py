"""A short history of the demo, lived on a database of its own by the same function as the real one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from app.demo.history import Span
from app.demo.run import keep_span, live_history
from app.settings import Settings, load_settings
from tests.servers import Addresses, TestDatabase, drop_database, new_database

ENDS = datetime(2025, 11, 28, 15, 0, tzinfo=UTC)
"""Past by the wall clock too, as in a real demo."""
SPAN = Span(ENDS - timedelta(days=3), ENDS, 24)


@dataclass(frozen=True)
class Lived:
    """A folder and a database in which a history was lived."""

    folder: Path
    database: TestDatabase
    settings: Settings

    def environment(self) -> dict[str, str]:
        """Of a process that works on it as the demo's do."""
        return {**self.settings.as_environment(), "DATABASE_OWNER_URL": self.database.owner_url}

    def rows(self, sql: str, *values: object) -> list[tuple]:
        """What an administrator reads, past every policy."""
        with psycopg.connect(self.database.superuser_url) as connection:
            return connection.execute(sql, values).fetchall()


@pytest.fixture(scope="module")
def new_life(servers: Addresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Lived]]:
    """Makes folders with a database each, in which nothing has happened yet; the span is fixed."""
    made: list[TestDatabase] = []

    def new(name: str) -> Lived:
        folder = tmp_path_factory.mktemp(name)
        database = new_database(servers.superuser_url)
        made.append(database)
        keep_span(folder, SPAN)
        settings = load_settings(data=folder).with_values(
            database_url=database.app_url, database_owner_url=database.owner_url, redis_url=servers.valkey_url
        )
        return Lived(folder, database, settings)

    yield new
    for database in made:
        drop_database(servers.superuser_url, database.name)


@pytest.fixture(scope="module")
def lived(new_life: Callable[[str], Lived]) -> Lived:
    """A history that nothing has disturbed."""
    life = new_life("whole")
    live_history(life.settings)
    return life


def start_history(life: Lived, out: Path) -> subprocess.Popen:
    """The history in a process of its own, as `berth demo` starts it."""
    with out.open("w") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "app.cli", "demo-history"],
            env=life.environment(),
            stdout=said,
            stderr=subprocess.STDOUT,
        )
