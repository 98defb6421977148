"""Servers for every test that asks: `database`, `module_database`, `valkey_url`. Nothing else belongs here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

# tests.servers is imported where it is used: pure tests start without the database's libraries
if TYPE_CHECKING:
    from tests.servers import Addresses, Servers, TestDatabase

_servers: Servers | None = None
_addresses: Addresses | None = None


def pytest_configure_node(node) -> None:
    """Under xdist the controller, which outlives its workers, starts the servers and tells each where they are."""
    node.workerinput["servers"] = _start().as_words()


def pytest_unconfigure() -> None:
    global _servers
    if _servers is not None:
        _servers.stop()
        _servers = None


def _start() -> Addresses:
    global _servers, _addresses
    if _addresses is None:
        from tests.servers import Servers

        _servers = Servers()
        _addresses = _servers.start()
    return _addresses


@pytest.fixture(scope="session")
def servers(request: pytest.FixtureRequest) -> Addresses:
    """Where the run's PostgreSQL and Valkey answer; the URL of PostgreSQL is a superuser's."""
    from tests.servers import Addresses

    words = getattr(request.config, "workerinput", {}).get("servers")
    return Addresses(**words) if words else _start()


@pytest.fixture
def database(servers: Addresses) -> Iterator[TestDatabase]:
    """A fresh migrated database for this test alone."""
    yield from _one_database(servers)


@pytest.fixture(scope="module")
def module_database(servers: Addresses) -> Iterator[TestDatabase]:
    """A fresh migrated database that the tests of one module share: for those that only read, or tidy up."""
    yield from _one_database(servers)


def _one_database(servers: Addresses) -> Iterator[TestDatabase]:
    from tests.servers import drop_database, new_database

    made = new_database(servers.superuser_url)
    yield made
    drop_database(servers.superuser_url, made.name)


@pytest.fixture
def valkey_url(servers: Addresses, worker_id: str) -> str:
    """An empty Valkey database; tests that run at the same time have different ones."""
    import redis

    number = int(worker_id.removeprefix("gw")) % 16 if worker_id != "master" else 0
    url = servers.valkey_url.rpartition("/")[0] + f"/{number}"
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    return url
