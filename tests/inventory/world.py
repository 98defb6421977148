"""A process over a fresh database, a clock that tests set, and simulated clusters with nodes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import redis

from app.backends.contract import Backend
from app.inventory import actions, reconcile
from app.inventory.connections import backend_of
from app.inventory.facts import Cluster
from app.inventory.queries import cluster_named
from app.kernel.actor import SYSTEM, Actor
from app.plumbing.db import Database, make_engine
from app.plumbing.queue import NoQueue
from app.plumbing.runtime import Plumbing, _backends
from app.settings import Settings
from tests.servers import TestDatabase

START = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
OPERATOR = Actor(account_id=None, name="Olga Operator", platform_roles=frozenset({"operator"}))
RICH = "name,kind,gpus,rack,leaf,nvlink,power_watts,cpu_milli,memory_mib\n"


class World:
    """One process and its product clock."""

    def __init__(self, database: TestDatabase) -> None:
        self.urls = database
        self.wall_at = START
        self.plumbing = Plumbing(
            settings=Settings(environment="test", database_url=database.app_url, secret_key="k" * 40),
            database=Database(make_engine(database.app_url), lambda: self.wall_at),
            queue=NoQueue(),
            wall=lambda: self.wall_at,
            redis=redis.Redis(port=1),
            backends=_backends,
        )
        self.set_clock(START)
        with self.plumbing.database.work() as work:
            actions.make_installation(work)
            actions.load_catalogue(work)

    def set_clock(self, at: datetime) -> None:
        """Freeze the product clock at an instant, as the owner may."""
        with psycopg.connect(self.urls.owner_url) as connection:
            connection.execute("UPDATE clock SET movable = true, frozen = %s", [at])

    def do(self, verb: Callable[..., Any], *words: Any, **more: Any) -> Any:
        """One verb in a transaction of its own."""
        with self.plumbing.database.work() as work:
            return verb(work, *words, **more)

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """What a statement answers."""
        return self.do(lambda work: work.pg.execute(statement, list(values)).fetchall())

    def cluster(self, name: str = "sim") -> Cluster:
        """The cluster as it is now."""
        return self.do(cluster_named, name)

    def backend(self, name: str = "sim") -> Backend:
        """Its backend."""
        return backend_of(self.plumbing, self.cluster(name))

    def simulated(self, path: Path, nodes: str, name: str = "sim", **config: Any) -> Cluster:
        """A simulated cluster with these nodes (CSV), looked at once."""
        self.do(
            actions.connect_cluster,
            OPERATOR,
            name,
            "simulated",
            {"path": str(path / f"{name}.sqlite"), "seed": 7, **config},
        )
        self.do(actions.import_nodes, OPERATOR, name, nodes)
        reconcile.define_on_backend(self.plumbing, SYSTEM, name)
        looked = self.look(name)
        assert looked is not None
        assert looked.error is None
        return self.cluster(name)

    def look(self, name: str = "sim") -> reconcile.Looked | None:
        """Look at it, if that is due."""
        return reconcile.sync_cluster(self.plumbing, self.cluster(name).id)

    def close(self) -> None:
        """Give connections back."""
        self.plumbing.close()
