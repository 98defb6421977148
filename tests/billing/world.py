"""A small company in a database of one's own, written by SQL as its owner: nothing of the booking path is needed.

The clock is frozen at `NOW` until a test moves it. Units: nodes of eight whole GPUs, or of sevenths.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import psycopg

from app.plumbing.db import Database, Work, make_engine
from tests.servers import TestDatabase

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
_subjects = itertools.count()


class World:
    """Ids of what is there, and ways to add more. `db` works as berth_app, `owner` passes every policy."""

    def __init__(self, database: TestDatabase, *, zone: str = "UTC", currency: str = "CHF") -> None:
        self.urls = database
        self.zone, self.currency = zone, currency
        self.owner = psycopg.connect(database.owner_url, autocommit=True)
        self.owner.execute("SET timezone = 'UTC'")
        self.db = Database(make_engine(database.app_url), lambda: self.wall)
        self.wall = NOW
        self.owner.execute("UPDATE clock SET movable = true, frozen = %s", [NOW])
        self.owner.execute("INSERT INTO installation VALUES (true, 'testtest', %s)", [NOW])
        for slug, name in (("h100", "H100"), ("h200", "H200")):
            self.owner.execute(
                """INSERT INTO kinds (slug, name, vendor, memory_gb, tdp_watts, units_per_node, facts)
                   VALUES (%s, %s, 'NVIDIA', 80, 700, 8, '{}')""",
                [slug, name],
            )
        self.cluster = self._one(
            """INSERT INTO clusters (name, backend, config, writes, failures, billed)
               VALUES ('alps', 'simulated', '{}', true, 0, true) RETURNING id"""
        )
        self.pool = self._one(
            """INSERT INTO pools (cluster_id, name, kind, gap_seconds, policy, version, capacity_version)
               VALUES (%s, 'h100', 'h100', 0, '{}', 1, nextval('capacity_versions')) RETURNING id""",
            [self.cluster],
        )
        self.nodes: list[tuple[int, str, int]] = []
        self.tenant, self.project = self.add_tenant("physics", "Institute of Physics")
        self.account = self.add_account("Robin K.")
        self.price = self.add_price("h100", "2.00", LONG_AGO, LONG_AGO)

    def close(self) -> None:
        self.owner.close()
        self.db.close()

    # --- the clock ---------------------------------------------------------------------------------------------------

    def move_to(self, instant: datetime) -> None:
        """The product clock stands still there."""
        self.owner.execute("UPDATE clock SET frozen = %s", [instant])

    # --- things ------------------------------------------------------------------------------------------------------

    def add_tenant(self, slug: str, name: str) -> tuple[UUID, UUID]:
        tenant, project = uuid4(), uuid4()
        self.owner.execute(
            "INSERT INTO tenants VALUES (%s, %s, %s, %s, %s, 'internal', %s)",
            [tenant, slug, name, self.zone, self.currency, NOW],
        )
        self.owner.execute(
            "INSERT INTO projects VALUES (%s, %s, 'plasma', 'Plasma', '4410', %s, NULL)", [tenant, project, NOW]
        )
        return tenant, project

    def add_account(self, name: str) -> UUID:
        account = uuid4()
        self.owner.execute(
            """INSERT INTO accounts (id, issuer, subject, name, email, zone, disabled, created_at)
               VALUES (%s, 'local', %s, %s, 'a@b.example', 'UTC', false, %s)""",
            [account, f"subject-{next(_subjects)}", name, NOW],
        )
        return account

    def add_price(self, kind: str, per_hour: str, effective: datetime, published: datetime) -> int:
        version = self._one(
            """INSERT INTO price_versions (price_group, currency, effective_at, published_at, published_by, note)
               VALUES ('internal', %s, %s, %s, 'Nina F.', '') RETURNING id""",
            [self.currency, effective, published],
        )
        return self._one(
            "INSERT INTO prices (version_id, kind, per_hour) VALUES (%s, %s, %s) RETURNING id",
            [version, kind, Decimal(per_hour)],
        )

    def add_node(self, gpus: int = 8, slices: int = 1) -> int:
        """A node with so many GPUs, whole or each in so many equal slices; its id."""
        first = 8 * len(self.nodes)
        name = f"node-{len(self.nodes)}"
        node = self._one(
            """INSERT INTO nodes (cluster_id, pool_id, name, first_gpu, gpus, state)
               VALUES (%s, %s, %s, %s, %s, 'ready') RETURNING id""",
            [self.cluster, self.pool, name, first, gpus],
        )
        for gpu in range(first, first + gpus):
            for n in range(slices):
                low, high = (0, 64) if slices == 1 else (8 * n, 8 * n + 8)
                self.owner.execute(
                    """INSERT INTO slots (node_id, gpu, positions, valid, kind, share840)
                       VALUES (%s, %s, int4range(%s, %s), tstzrange('2026-01-01', 'infinity'), 'h100', %s)""",
                    [node, gpu, 64 * gpu + low, 64 * gpu + high, 840 // slices],
                )
        self.nodes.append((node, name, first))
        return node

    def add_booking(
        self,
        start: datetime,
        end: datetime,
        *,
        units: int = 1,
        node: int | None = None,
        first: int = 0,
        share840: int = 840,
        provided_at: datetime | None = None,
        released_at: datetime | None = None,
        state: str = "ACTIVE",
        tenant: UUID | None = None,
        project: UUID | None = None,
        prices: Sequence[tuple[datetime, datetime, int, str]] | None = None,
        zone: str | None = None,
        name: str = "Run",
        cost_centre: str = "4410",
        held: bool = True,
    ) -> UUID:
        """A booking of GPUs from `first` on of a node (or of slices), as the booking path leaves it behind."""
        booking, allocation = uuid4(), uuid4()
        node_id, _, first_gpu = self.nodes[node or 0] if held else (0, "", 0)
        low, high = 64 * (first_gpu + first), 64 * (first_gpu + first + units)
        if share840 != 840:
            low, high = 64 * (first_gpu + first), 64 * (first_gpu + first) + 8 * units
        self.owner.execute(
            """INSERT INTO allocations (id, cluster_id, installation, generation, name, gone, wanted, ensured, failures)
               VALUES (%s, %s, 'testtest', 1, %s, false, 1, 1, 0)""",
            [allocation, self.cluster, f"berth-{allocation}"],
        )
        outcome = "completed" if state == "ENDED" else None
        self.owner.execute(
            """INSERT INTO bookings (id, tenant_id, project_id, name, cost_centre, reference, state, outcome, kind,
                 cluster_id, pool_id, units, share840, starts_at, ends_at, provided_at, released_at, asked, currency,
                 quoted, zone, account_id, booked_by, booked_at, version)
               VALUES (%s, %s, %s, %s, %s, '', %s, %s, 'h100', %s, %s, %s, %s, %s, %s, %s, %s, true, %s, 0, %s, %s,
                       'Robin K.', %s, 1)""",
            [booking, tenant or self.tenant, project or self.project, name, cost_centre, state, outcome, self.cluster,
             self.pool, units, share840, start, end, provided_at, released_at, self.currency, zone or self.zone,
             self.account, NOW],
        )  # fmt: skip
        if held:
            self.owner.execute(
                """INSERT INTO holds (id, booking_id, allocation_id, node_id, units, during, live, pinned)
               VALUES (%s, %s, %s, %s, int4multirange(int4range(%s, %s)), tstzrange(%s, %s), true, true)""",
                [uuid4(), booking, allocation, node_id, low, high, start, end],
            )
        for starts, ends, price_id, per_hour in prices or [(start, end, self.price, "2.00")]:
            self.owner.execute(
                "INSERT INTO booking_prices VALUES (%s, %s, %s, %s, %s, %s)",
                [tenant or self.tenant, booking, starts, ends, price_id, Decimal(per_hour)],
            )
        return booking

    def add_outage(self, booking: UUID, gpu: int, since: datetime, until: datetime | None) -> None:
        self.owner.execute(
            """INSERT INTO outages (tenant_id, id, booking_id, units, since, until, why)
               SELECT tenant_id, %s, id, int4multirange(int4range(%s, %s)), %s, %s, 'node down'
                 FROM bookings WHERE id = %s""",
            [uuid4(), 64 * gpu, 64 * gpu + 64, since, until, booking],
        )

    def set_booking(self, booking: UUID, **values: Any) -> None:
        """Change columns, as the booking path would."""
        sets = ", ".join(f"{name} = %s" for name in values)
        self.owner.execute(f"UPDATE bookings SET {sets} WHERE id = %s", [*values.values(), booking])

    # --- looking -----------------------------------------------------------------------------------------------------

    @contextmanager
    def work(self, tenant: UUID | None = None) -> Iterator[Work]:
        """A transaction as the app, for the tenant."""
        with self.db.work(tenant or self.tenant) as work:
            yield work

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple]:
        return self.owner.execute(sql, values).fetchall()

    def _one(self, sql: str, values: Sequence[Any] = ()) -> Any:
        return self.owner.execute(sql, values).fetchone()[0]


def hours(n: float, of: datetime = NOW) -> datetime:
    """So many hours after `NOW`."""
    return of + timedelta(seconds=round(n * 3600))
