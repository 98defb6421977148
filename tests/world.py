"""A small company on a simulated cluster, made by the product's own verbs, with a product clock that tests move.

`make_world(database, tmp_path)` gives a `World`; every test that needs bookings starts from one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg

from app.accounts import actions as accounts
from app.bookings import actions, edits, extending, leaving, queries, queries_requests, reconcile_requests
from app.bookings.facts import Booking
from app.bookings.lifecycle import Pace
from app.bookings.reconcile import work_off
from app.bookings.schemas import Ask, BookingIn
from app.inventory import actions as inventory
from app.inventory import queries as inventory_queries
from app.inventory.connections import backend_of
from app.inventory.reconcile import define_on_backend, sync_cluster
from app.kernel.actor import SYSTEM, Actor
from app.plumbing.db import Work
from app.plumbing.queue import NoQueue
from app.plumbing.runtime import Plumbing, make_plumbing
from app.pricing import actions as pricing
from app.quotas import actions as quotas
from app.settings import load_settings

START = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
OPERATOR = Actor(None, "Olga Operator", platform_roles=frozenset({"operator"}))
FINANCE = Actor(None, "Finn Finance", platform_roles=frozenset({"finance"}))
H100 = "h100-sxm-80gb"
H200 = "h200-sxm-141gb"


def nodes_csv(nodes: int = 4, kind: str = H100, gpus: int = 8, prefix: str = "n", racks: int = 2, leaf: int = 2) -> str:
    """A list of equal nodes: `racks` nodes a rack, `leaf` nodes a leaf switch; each node is its own NVLink domain."""
    rows = ["name,kind,gpus,rack,leaf,nvlink,power_watts,cpu_milli,memory_mib"]
    rows += [
        f"{prefix}{i},{kind},{gpus},r{i // racks},l{i // leaf},nv-{prefix}{i},700,96000,1048576" for i in range(nodes)
    ]
    return "\n".join(rows) + "\n"


VERBS: dict[str, Callable[..., Any]] = {
    "cancel": leaving.cancel,
    "release": leaving.release,
    "extend": extending.extend,
}
"""Verbs on a booking by name."""


@dataclass
class World:
    """One installation: its plumbing, a cluster, two tenants with a project each, and people."""

    plumbing: Plumbing
    owner_url: str
    cluster: str
    tenants: dict[str, UUID] = field(default_factory=dict)
    projects: dict[str, UUID] = field(default_factory=dict)
    people: dict[str, UUID] = field(default_factory=dict)

    # -- clock --

    def set_clock(self, at: datetime) -> None:
        """Stop the product clock at an instant, as only tests and the demo may."""
        with psycopg.connect(self.owner_url, autocommit=True) as owner:
            owner.execute("UPDATE clock SET movable = true, frozen = %s", [at])

    def now(self) -> datetime:
        with self.plumbing.database.work() as work:
            return work.product_now()

    def pass_time(self, length: timedelta) -> datetime:
        """Move the clock on, doing what falls due at each instant on the way."""
        until = self.now() + length
        while True:
            self.settle()
            with self.plumbing.database.work() as work:
                due_at = work.pg.execute("SELECT min(next_at) FROM due WHERE lease_token IS NULL").fetchone()[0]
            if due_at is None or due_at >= until:
                break
            self.set_clock(max(due_at, self.now() + timedelta(seconds=1)))
        self.set_clock(until)
        self.settle()
        return until

    def settle(self, pace: Pace | None = None) -> int:
        """Work off whatever is due now, until nothing is."""
        done = 0
        while worked := work_off(self.plumbing, self.cluster_id, pace) + self.answer():
            done += worked
        return done

    def answer(self) -> int:
        """Look at the requests and waiting bookings that are due now."""
        with self.plumbing.database.work() as work:
            found = work.pg.execute(queries_requests.DUE, {"now": work.product_now()}).fetchall()
        for tenant, subject in found:
            reconcile_requests.look(self.plumbing, str(tenant), str(subject))
        return len(found)

    # -- people --

    def actor(self, person: str) -> Actor:
        """A person as signed in to his or her tenant, with the roles that the database says."""
        tenant = next(t for t in self.tenants if person.startswith(t))
        with self.work(tenant) as work:
            rows = work.pg.execute(
                "SELECT project_id, role FROM memberships WHERE account_id = %s", [self.people[person]]
            ).fetchall()
        return Actor(
            self.people[person],
            person,
            self.tenants[tenant],
            frozenset(role for project, role in rows if project is None),
            project_roles={project: role for project, role in rows if project is not None},
            zone="Europe/Zurich",
        )

    @contextmanager
    def work(self, tenant: str | None = None) -> Iterator[Work]:
        with self.plumbing.database.work(None if tenant is None else self.tenants[tenant]) as work:
            yield work

    # -- verbs --

    def ask(self, **words: Any) -> Ask:
        """A request of project plasma for one H100 from now for an hour, with other words where said."""
        body: dict[str, Any] = {"project": "plasma", "name": "Run", "kind": H100, "start": "asap", "duration": "PT1H"}
        if "end" in words:
            del body["duration"]
        if "nodes" not in words and "units" not in words:
            body["units"] = 1
        return Ask.of(BookingIn.model_validate(body | words))

    def book(self, person: str = "physics-member", key: str | None = None, **words: Any) -> Booking:
        actor = self.actor(person)
        with self.plumbing.database.work(actor.tenant_id) as work:
            made = edits.Key(key, repr(sorted(words.items())).encode()) if key else None
            return actions.book(work, NoQueue(), actor, self.ask(**words), made)

    def quote(self, person: str = "physics-member", **words: Any) -> actions.Quote:
        actor = self.actor(person)
        with self.plumbing.database.work(actor.tenant_id) as work:
            return actions.quote(work, actor, self.ask(**words))

    def do(self, verb: str | Callable[..., Any], booking: Booking, person: str = "physics-member", **words: Any) -> Any:
        """One verb on a booking, by name or by its function, in a transaction of its own."""
        act = VERBS[verb] if isinstance(verb, str) else verb
        actor = self.actor(person)
        with self.plumbing.database.work(actor.tenant_id) as work:
            return act(work, NoQueue(), actor, booking.id, **words)

    def look(self, booking: Booking) -> Booking:
        """The booking as it is now."""
        with self.plumbing.database.work(booking.tenant_id) as work:
            found = queries.find_booking(work, booking.id)
        assert found is not None
        return found

    # -- cluster --

    @property
    def cluster_id(self) -> int:
        with self.work() as work:
            return inventory_queries.cluster_named(work, self.cluster).id

    @property
    def backend(self) -> Any:
        """The simulated cluster itself, for faults."""
        with self.work() as work:
            found = inventory_queries.cluster_named(work, self.cluster)
        return backend_of(self.plumbing, found)

    def sync(self) -> None:
        """Look at the cluster now, whether a look is due or not."""
        with self.work() as work:
            inventory.look_now(work, OPERATOR, self.cluster)
        sync_cluster(self.plumbing, self.cluster_id)

    def set_policy(self, pool: str, gap_seconds: int = 0, **words: int | None) -> None:
        with self.work() as work:
            inventory.set_policy(work, OPERATOR, self.cluster, pool, words, gap_seconds)

    def set_limit(self, tenant: str, units: int | None = None, hours: int | None = None, **words: Any) -> None:
        roles = frozenset({"admin"})
        actor = Actor(None, "Admin", self.tenants[tenant], roles, frozenset({"operator"}))
        with self.work(tenant) as work:
            quotas.set_limit(work, actor, units=units, hours=hours, **words)

    def close(self) -> None:
        self.plumbing.close()


def make_world(
    database: Any, folder: Path, valkey_url: str = "redis://127.0.0.1:1/0", csv: str | None = None, at: datetime = START,
    backend: dict[str, Any] | None = None, prices: dict[str, Decimal] | None = None,
) -> World:  # fmt: skip
    """Build it. The clock stands still at `at`."""
    settings = load_settings(environment="test", data=folder, database_url=database.app_url, redis_url=valkey_url)
    plumbing = make_plumbing(settings, queue=NoQueue())
    world = World(plumbing, database.owner_url, "sim")
    world.set_clock(at)
    with plumbing.database.work() as work:
        inventory.make_installation(work)
        inventory.load_catalogue(work)
        config = {"path": str(folder / "sim.sqlite"), "seed": 7, **(backend or {})}
        inventory.connect_cluster(work, OPERATOR, "sim", "simulated", config)
        inventory.import_nodes(work, OPERATOR, "sim", csv or nodes_csv())
        kinds = [row[0] for row in work.pg.execute("SELECT DISTINCT kind FROM pools").fetchall()]
        listed = prices or {kind: Decimal("2.40") for kind in kinds}
        pricing.publish_version(work, FINANCE, "standard", "CHF", at, listed, "first")
    define_on_backend(plumbing, OPERATOR, "sim")
    sync_cluster(plumbing, world.cluster_id)
    for tenant, name, project in (("physics", "Institute of Physics", "plasma"), ("bio", "Bio Lab", "atlas")):
        with plumbing.database.work() as work:
            made = accounts.create_tenant(work, SYSTEM, slug=tenant, name=name)
            world.tenants[tenant] = made.id
            world.projects[project] = accounts.create_project(
                work, SYSTEM, slug=project, name=project.title(), cost_centre="4711"
            ).id
            for role in ("member", "lead", "viewer"):
                person = f"{tenant}-{role}"
                world.people[person] = accounts.create_account(
                    work, SYSTEM, login=f"{role}@{tenant}.example", name=person
                )
                accounts.add_member(work, SYSTEM, world.people[person], role, world.projects[project])
    return world


__all__ = ["FINANCE", "H100", "H200", "OPERATOR", "START", "World", "make_world", "nodes_csv"]
