"""A company at work: two tenants, prices, a simulated cluster in two racks, and bookings made by the API."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from app import rounds
from app.bookings.lifecycle import Pace
from app.inventory import actions, queries, reconcile
from app.kernel.actor import SYSTEM, Actor
from app.pricing.actions import publish_version
from tests.accounts.world import World as People
from tests.servers import TestDatabase

START = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
NODES = "name,kind,gpus,rack,leaf\n" + "".join(
    f"n{i:02d},h100-sxm-80gb,8,{'r1' if i < 3 else 'r2'},l1\n" for i in range(6)
)
_HASTE = rounds.Haste(Pace(every=timedelta(hours=1)), frozenset({"reconcile.look", "reconcile.usage"}))
FINANCE = Actor(account_id=None, name="Fritz Finance", platform_roles=frozenset({"finance"}))


class Company:
    """People with tokens, a clock, and what they do."""

    def __init__(self, database: TestDatabase, valkey_url: str, path: Path) -> None:
        self.people = People(database, valkey_url)
        self.plumbing = self.people.plumbing
        self.owner_url = database.owner_url
        self.set_clock(START)
        with self.plumbing.database.work() as work:
            actions.make_installation(work)
            actions.load_catalogue(work)
            actions.connect_cluster(work, SYSTEM, "sim", "simulated", {"path": str(path / "sim.sqlite")})
            actions.import_nodes(work, SYSTEM, "sim", NODES)
            self.cluster = queries.cluster_named(work, "sim")
            tenants = {(t.seen.price_group, t.seen.currency) for t in self.people.tenants.values()}
            for group, currency in tenants:
                prices = {"h100-sxm-80gb": Decimal("2.40")}
                publish_version(work, FINANCE, group, currency, START, prices, "the first")
        reconcile.define_on_backend(self.plumbing, SYSTEM, "sim")
        reconcile.sync_cluster(self.plumbing, self.cluster.id)

    def set_clock(self, at: datetime) -> None:
        """Freeze the product clock."""
        with psycopg.connect(self.owner_url) as connection:
            connection.execute("UPDATE clock SET movable = true, frozen = %s", [at])

    def go_to(self, at: datetime) -> None:
        """Move the clock there by steps, doing what falls due on the way."""
        rounds.do_all(self.plumbing, _HASTE)
        while (following := rounds.next_instant(self.plumbing)) is not None and following <= at:
            self.set_clock(following)
            rounds.do_all(self.plumbing, _HASTE)
        self.set_clock(at)
        rounds.do_all(self.plumbing, replace(_HASTE, without=frozenset({"reconcile.usage"})))

    def person(self, tenant: str, role: str = "member") -> Any:
        """An account of a tenant, by role."""
        return self.people.tenants[tenant].people[role]

    def book(self, tenant: str, name: str, units: int, start: datetime | str = "asap", **more: Any) -> dict[str, Any]:
        """Book by the API."""
        token = self.people.token(self.person(tenant), tenant, "read", "book")
        body = {
            "project": "plasma",
            "name": name,
            "kind": "h100-sxm-80gb",
            "units": units,
            "start": start if isinstance(start, str) else start.isoformat(),
            "duration": "PT6H",
        } | more
        answer = self.people.api(token).post("/api/v1/bookings", json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def browser(self, tenant: str, role: str = "member") -> Any:
        """A browser of somebody."""
        return self.people.browser(self.person(tenant, role))

    def close(self) -> None:
        self.people.close()


@pytest.fixture
def company(database: TestDatabase, valkey_url: str, tmp_path: Path) -> Iterator[Company]:
    """A company at work."""
    made = Company(database, valkey_url, tmp_path)
    yield made
    made.close()


HOUR = timedelta(hours=1)
