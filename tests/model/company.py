"""The company that the long history is about: two tenants on a small simulated cluster, moved through time step by step.

It calls the product's use cases, one transaction each, and its rounds; what is random is `history.py`'s, what must hold is
`promises.py`'s.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg

from app import rounds
from app.accounts import actions as accounts
from app.bookings import actions_policies
from app.bookings.edits import Key
from app.bookings.lifecycle import Pace
from app.kernel.actor import SYSTEM, Actor
from app.kernel.errors import Problem, Refused
from app.plumbing.db import Work
from app.usage import queries as usage_queries
from tests.world import FINANCE, H100, H200, OPERATOR, World, make_world, nodes_csv

PACE = Pace(soon=timedelta(minutes=5), every=timedelta(hours=2), back_off=timedelta(minutes=30))
"""Looks are rarer than in a running installation: the clock jumps anyway."""
SEEING = frozenset({"reconcile.look", "reconcile.usage", "mail.send"})
PEOPLE = ("physics-member", "physics-lead", "bio-member", "bio-lead")
VIEWERS = ("physics-viewer", "bio-viewer")
PROJECTS = {"physics": ("plasma", "spin"), "bio": ("atlas", "cells")}
TABLES = (
    "allocations", "bookings", "booking_prices", "charges", "commitments", "conditions", "due", "external_use", "history",
    "holds", "hold_moves", "idempotency", "intervals", "maintenances", "metering", "outages", "outbox", "policy_overrides",
    "pools", "requests", "scopes", "series", "classes", "waiting",
)  # fmt: skip
"""Everything that a verb may write, but for `refusals`: a refused booking leaves a row there on purpose."""


@dataclass(frozen=True)
class Row:
    """A booking as its row says, read without the product."""

    id: UUID
    number: int
    tenant_id: UUID
    tenant: str
    project_id: UUID
    project: str
    state: str
    kind: str
    units: int
    nodes: int | None
    per_node: int | None
    within: str | None
    starts_at: datetime
    ends_at: datetime
    provided_at: datetime | None
    account_id: UUID | None
    version: int
    class_id: UUID | None
    series_id: UUID | None


class Company:
    """The world with a connection of the tables' owner beside it: what the product must not know is read there."""

    def __init__(self, database: Any, folder: Path, valkey_url: str = "redis://127.0.0.1:1/0") -> None:
        csv = nodes_csv(3, gpus=4) + nodes_csv(1, kind=H200, gpus=4, prefix="m").split("\n", 1)[1]
        self.world: World = make_world(database, folder, valkey_url, csv=csv)
        self.owner = psycopg.connect(database.owner_url, autocommit=True)
        self.owner.execute("SET TIME ZONE 'UTC'")
        self.now: datetime = self.world.now()
        for tenant, (_, second) in PROJECTS.items():
            with self.world.work(tenant) as work:
                made = accounts.create_project(work, SYSTEM, slug=second, name=second.title(), cost_centre="8080").id
                self.world.projects[second] = made
                for role in ("member", "lead", "viewer"):
                    accounts.add_member(work, SYSTEM, self.world.people[f"{tenant}-{role}"], role, made)
        for pool in (H100, H200):
            self.world.set_policy(pool, observed_within=86_400)
        self.actors: dict[str, Actor] = {p: self.world.actor(p) for p in (*PEOPLE, *VIEWERS)}
        self.cluster_id = self.world.cluster_id
        self.backend = self.world.backend
        self.backend._sleep = lambda seconds: None  # a slow call costs the history no time
        self.tenant_of = {id: name for name, id in self.world.tenants.items()}
        self.as_operator(  # so that there is something to answer from the beginning; later rules change it
            lambda w, a: actions_policies.set_policy(
                w, a, "sim", H100, {"approval_hours": 8, "approver": "lead"}, None, "bio"
            )
        )
        self.look()

    def close(self) -> None:
        self.owner.close()
        self.world.close()

    # -- acting --

    def run(self, who: str | Actor, act: Callable[..., Any], tenant: UUID | None = None) -> Any:
        """`act(work, actor)` in a transaction of the actor's tenant; the Problem that it raised instead of an answer."""
        actor = self.actors[who] if isinstance(who, str) else who
        try:
            with self.world.plumbing.database.work(tenant or actor.tenant_id) as work:
                return act(work, actor)
        except Problem as problem:
            return problem

    def as_operator(self, act: Callable[[Work, Actor], Any], tenant: str | None = None) -> Any:
        return self.run(OPERATOR, act, None if tenant is None else self.world.tenants[tenant])

    def finance(self) -> Actor:
        return FINANCE

    # -- time --

    def set_clock(self, at: datetime) -> None:
        self.owner.execute("UPDATE clock SET movable = true, frozen = %s", [at])
        self.now = at

    def settle(self, seeing: bool = False) -> None:
        """Do everything that is due now; `seeing`: the cluster is looked at and measurements are collected, too."""
        without = frozenset({"mail.send"}) if seeing else SEEING
        rounds.do_all(self.world.plumbing, rounds.Haste(PACE, without, fine_for=timedelta(0)))

    def pass_time(self, length: timedelta, seeing: bool) -> None:
        """Step through every instant at which something is due, to `length` from now. `seeing`: as in `settle`, there."""
        until = self.now + length
        while True:
            self.settle()
            following = rounds.next_instant(self.world.plumbing)
            if following is None or following >= until:
                break
            self.set_clock(max(following, self.now + timedelta(seconds=1)))
        self.set_clock(until)
        self.settle(seeing)

    def look(self) -> None:
        """Have the cluster looked at now."""
        self.owner.execute("UPDATE clusters SET retry_at = NULL, failures = 0")
        rounds.look_at_cluster(self.world.plumbing, self.cluster_id)

    def measure(self) -> None:
        """Have what is used measured up to now, whether it is due or not."""
        with self.world.work() as work:
            due = work.pg.execute(
                usage_queries.DUE_COLLECTIONS, {"now": self.now, "waited": timedelta(0), "most": 500, "wall": work.wall}
            ).fetchall()
        rounds.collect_usage(self.world.plumbing, self.cluster_id, [[str(t), str(b)] for t, b in due])

    # -- reading beside the product --

    def rows(self, sql: str, *values: Any) -> list[tuple]:
        return self.owner.execute(sql, values).fetchall()

    def bookings(self, where: str = "true", *values: Any) -> list[Row]:
        found = self.rows(
            f"""SELECT b.id, b.number, b.tenant_id, t.slug, b.project_id, p.slug, b.state, b.kind, b.units, b.nodes, b.per_node,
                       b.within, b.starts_at, b.ends_at, b.provided_at, b.account_id, b.version, b.class_id, b.series_id
                  FROM bookings b JOIN tenants t USING (tenant_id) JOIN projects p ON p.id = b.project_id
                 WHERE {where} ORDER BY b.number""",
            *values,
        )
        return [Row(*row) for row in found]

    def mark(self) -> tuple[int, dict[str, int]]:
        """Where the database stands: the next transaction's number, and how many rows each table has."""
        row = self.owner.execute(_MARK).fetchone()
        assert row is not None
        return row[0], dict(zip(TABLES, row[1:], strict=True))

    def written_since(self, mark: tuple[int, dict[str, int]]) -> list[str]:
        """The tables in which a row was inserted, changed or deleted since."""
        xid, counts = mark
        row = self.owner.execute(_WRITTEN, {"xid": xid}).fetchone()
        assert row is not None
        pairs = zip(TABLES, row[: len(TABLES)], row[len(TABLES) :], strict=True)
        return [table for table, newer, many in pairs if newer or many != counts[table]]


_MARK = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint, " + ", ".join(
    f"(SELECT count(*) FROM {table})" for table in TABLES
)
_WRITTEN = "SELECT {}, {}".format(
    ", ".join(f"EXISTS (SELECT FROM {table} WHERE xmin::text::bigint >= %(xid)s)" for table in TABLES),
    ", ".join(f"(SELECT count(*) FROM {table})" for table in TABLES),
)


def codes(problem: Problem) -> set[str]:
    """The codes of a refusal, or of another problem."""
    return {r.code for r in problem.refusal.reasons} if isinstance(problem, Refused) else {problem.code}


def key_of(text: str) -> Key:
    return Key(text, hashlib.sha256(text.encode()).digest())
