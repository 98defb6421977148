"""Installations with real processes for the tests of faults; a broker for each module, so that flushing it harms nobody."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.plumbing.embedded import EmbeddedValkey
from app.plumbing.queue import CeleryQueue
from tests.faults.processes import Site, environment_of
from tests.servers import TestDatabase
from tests.world import make_world


@contextmanager
def open_site(database: TestDatabase, folder: Path, valkey_url: str, **words: Any) -> Iterator[Site]:
    """A small company over this database and broker, no process running yet; all are stopped at the end."""
    world = make_world(database, folder, valkey_url, **words)
    environment = environment_of(world, folder, valkey_url, database.app_url)
    site = Site(world, folder, environment, CeleryQueue(valkey_url), database.superuser_url)
    try:
        yield site
    finally:
        site.stop()
        world.close()


@pytest.fixture(scope="module")
def module_folder() -> Iterator[Path]:
    """Not pytest's: pytest shuts its folders to the user that runs PostgreSQL where we are root."""
    made = Path(tempfile.mkdtemp(prefix="berth-faults-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="module")
def valkey(module_folder: Path) -> Iterator[EmbeddedValkey]:
    """A broker of this module's own."""
    server = EmbeddedValkey(module_folder)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def make_site(database: TestDatabase, valkey: EmbeddedValkey, tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Makes the one site of a test, over a fresh database; the broker is empty."""
    import redis

    with redis.Redis.from_url(valkey.url) as client:
        client.flushall()
    opened = []

    def make(**words: Any) -> Site:
        manager = open_site(database, tmp_path, valkey.url, **words)
        opened.append(manager)
        return manager.__enter__()

    yield make
    for manager in opened:
        manager.__exit__(None, None, None)
