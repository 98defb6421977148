"""The embedded servers of one test run: one PostgreSQL and one Valkey for all of its processes, gone afterwards.

A template database is migrated once; each test that asks for one gets a copy of it in a few hundredths of a second.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from app.plumbing.embedded import EmbeddedPostgres, EmbeddedValkey
from app.plumbing.migrate import upgrade
from app.plumbing.roles import APP, OWNER, ensure_roles, url_of

TEMPLATE = "berth_template"
_numbers = itertools.count()


@dataclass(frozen=True)
class TestDatabase:
    """A migrated, empty database of one's own, and the three ways to come in."""

    __test__ = False  # for pytest, which takes it for a test class

    name: str
    app_url: str
    """berth_app, as web and workers are."""
    owner_url: str
    """berth_owner, who owns the tables and may move the clock."""
    superuser_url: str


@dataclass(frozen=True)
class Addresses:
    """Where the servers of this run answer."""

    superuser_url: str
    valkey_url: str

    def as_words(self) -> dict[str, str]:
        """Plain words, to hand to another process."""
        return asdict(self)


class Servers:
    """Starts and stops them. Whoever starts them has to outlive every test."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="berth-tests-"))
        self._postgres = EmbeddedPostgres(self._folder, durable=False)
        self._valkey = EmbeddedValkey(self._folder)

    def start(self) -> Addresses:
        superuser_url = self._postgres.start()
        valkey_url = self._valkey.start()
        owner_url = url_of(superuser_url, user=OWNER, database=TEMPLATE)
        ensure_roles(superuser_url, owner_url=owner_url, app_url=url_of(superuser_url, user=APP, database=TEMPLATE))
        upgrade(owner_url)
        return Addresses(superuser_url, valkey_url)

    def stop(self) -> None:
        self._valkey.stop()
        self._postgres.stop()
        shutil.rmtree(self._folder)


def new_database(superuser_url: str, *, template: str = TEMPLATE) -> TestDatabase:
    """A copy of the migrated template (or, with template="template0", an empty database of the owner's)."""
    name = f"t{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(superuser_url, autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {} OWNER {}").format(
                sql.Identifier(name), sql.Identifier(template), sql.Identifier(OWNER)
            )
        )
    return TestDatabase(
        name=name,
        app_url=url_of(superuser_url, user=APP, database=name),
        owner_url=url_of(superuser_url, user=OWNER, database=name),
        superuser_url=url_of(superuser_url, user="postgres", database=name),
    )


def drop_database(superuser_url: str, name: str) -> None:
    """Also while somebody is connected to it."""
    with psycopg.connect(superuser_url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
