"""Making a booking, with 100,000 bookings' holds present that fill 70 % of 6,208 GPUs over 14 days.

The use case (`app.bookings.actions.book` in one transaction, committed to disk) and the same reads and writes by psycopg
alone take turns on the same database, each on one connection: prepared statements, one after the other (`bare`), or as
few round trips as the order of the locks allows (`pipelined`). What the bare ones hold was found before the watch runs,
so `_ratio` is everything that Berth adds: searching a place, prices, limits, objects, and its own round trips. A request
is 8 units of one node for an hour, or 1 to 4 units for 1 to 6 hours, at a given start.

`http_ms` is the same over HTTP with a token, one request after the other on one connection; `_per_s` are bookings a second
by 16 threads on the use case in one process, and by 16 connections against one web process. Milliseconds are medians.
"""

from __future__ import annotations

import random
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from app.bookings import actions, offers, queries
from app.bookings.offers import Desk, Offer
from app.bookings.schemas import Ask, BookingIn
from app.inventory import queries as inventory
from app.kernel.actor import Actor
from app.kernel.clock import monotonic
from app.kernel.ids import new_id, short
from app.plumbing.db import Work
from app.plumbing.embedded import EmbeddedPostgres, EmbeddedValkey
from app.plumbing.migrate import upgrade
from app.plumbing.queue import NoQueue
from app.plumbing.roles import APP, OWNER, ensure_roles, url_of
from app.pricing import queries as pricing
from app.quotas import queries as quotas
from app.quotas.rules import Scope, months_of, pieces
from tests.servers import TestDatabase
from tests.trace.clients import Clients
from tests.trace.portal import make_token, web_processes
from tests.world import H100, START, World, make_world, nodes_csv

NAME = "booking"
DAYS = 14
OCCUPANCY = 0.7
CLIENTS = 16
SIZES = {"full": (776, 100_000, 300, 320), "small": (100, 1500, 6, 16)}
"""Nodes, bookings there already, turns, bookings by the sixteen."""


def run(size: str = "full") -> dict[str, float]:
    """Figures as the module says."""
    nodes, present, turns, burst = SIZES[size]
    with site(nodes) as (world, superuser_url):
        holds = fill(superuser_url, world, nodes, present)
        actor = world.actor("physics-member")
        chance = random.Random(5)
        took: dict[str, list[float]] = {"use_case": [], "bare": [], "pipelined": []}
        app_url = world.plumbing.settings.database_url
        with closing(psycopg.connect(app_url, options="-c timezone=UTC")) as connection:
            for turn in range(turns + 5):
                for name in chance.sample(sorted(took), 3):
                    ask = _ask(chance)
                    act = {
                        "use_case": lambda ask=ask: use_case(world, actor, ask),
                        "bare": bare(world, actor, ask, connection, pipelined=False),
                        "pipelined": bare(world, actor, ask, connection, pipelined=True),
                    }[name]
                    began = monotonic()
                    act()
                    if turn >= 5:  # the first ones fill caches and prepare statements
                        took[name].append((monotonic() - began) * 1000)
        medians = {name: median(times) for name, times in took.items()}
        by_threads = _at_once(lambda ask: use_case(world, actor, ask), [_ask(chance) for _ in range(burst)])
        http_ms, by_connections = _over_http(world, actor, chance, turns, burst)
    return {
        "bookings_present": present,
        "holds_present": holds,
        "gpus": nodes * 8,
        "turns": turns,
        **{f"{name}_ms": value for name, value in medians.items()},
        "to_bare_ratio": medians["use_case"] / medians["bare"],
        "to_pipelined_ratio": medians["use_case"] / medians["pipelined"],
        "http_ms": http_ms,
        "http_to_use_case_ratio": http_ms / medians["use_case"],
        "threads_per_s": by_threads,
        "connections_per_s": by_connections,
    }


# --- the place --------------------------------------------------------------------------------------------------------


@contextmanager
def site(nodes: int) -> Iterator[tuple[World, str]]:
    """A portal on a durable embedded server, with a pool of nodes of 8 GPUs and limits on its project."""
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        postgres, valkey = EmbeddedPostgres(folder), EmbeddedValkey(folder)
        superuser = postgres.start()
        stack.callback(postgres.stop)
        valkey_url = valkey.start()
        stack.callback(valkey.stop)
        urls = {user: url_of(superuser, user=user, database="berth") for user in (OWNER, APP, "postgres")}
        ensure_roles(superuser, owner_url=urls[OWNER], app_url=urls[APP])
        upgrade(urls[OWNER])
        database = TestDatabase("berth", urls[APP], urls[OWNER], urls["postgres"])
        world = make_world(database, folder, valkey_url, csv=nodes_csv(nodes, racks=4, leaf=8))
        stack.callback(world.close)
        world.set_limit("physics", units=100_000, hours=1_000_000, project_id=world.projects["plasma"])
        yield world, urls["postgres"]


def fill(superuser_url: str, world: World, nodes: int, bookings: int) -> int:
    """Write bookings with allocations, holds, prices, due rows, and commitments of one in fifty (a project's share); returns
    how many. Each node has lanes of 1 to 8 GPUs, and a lane is held and free by turns."""
    rows = list(_rows(nodes, bookings))
    with psycopg.connect(superuser_url) as owner:
        owner.execute("SET session_replication_role = replica")  # these rows are right; nobody has to look again
        owner.execute(
            "CREATE TEMP TABLE f (n int, b uuid, a uuid, node int, lo int, up int, s timestamptz, e timestamptz)"
        )
        with owner.cursor().copy("COPY f FROM STDIN") as copy:
            for number, (node, low, high, start, end) in enumerate(rows):
                copy.write_row((number, new_id(), new_id(), node, low, high, start, end))
        values = {"tenant": world.tenants["physics"], "project": world.projects["plasma"], "kind": H100, "now": START}
        for statement in _FILL:
            owner.execute(statement, values)
        owner.commit()
        owner.autocommit = True
        owner.execute("VACUUM ANALYZE")
    return len(rows)


_FILL = (
    """INSERT INTO allocations (id, cluster_id, installation, generation, name, gone, wanted, ensured, failures)
       SELECT a, 1, i.id, 1, 'berth-' || i.id || '-' || n || '-g1', false, 1, 0, 0 FROM f, installation i""",
    """INSERT INTO bookings (id, tenant_id, project_id, name, cost_centre, reference, state, kind, cluster_id, pool_id, units,
              share840, starts_at, ends_at, asked, currency, quoted, zone, booked_by, booked_at, version)
       SELECT b, %(tenant)s, %(project)s, 'Run ' || n, '4711', '', 'BOOKED', %(kind)s, 1, 1, (up - lo) / 64, 840, s, e,
              false, 'CHF', 1, 'Europe/Zurich', 'somebody', %(now)s, 1 FROM f""",
    """INSERT INTO booking_prices (tenant_id, booking_id, starts_at, ends_at, price_id, per_hour)
       SELECT %(tenant)s, b, s, e, (SELECT min(id) FROM prices), 2.40 FROM f""",
    """INSERT INTO holds (id, booking_id, allocation_id, node_id, units, during, live, pinned)
       SELECT gen_random_uuid(), b, a, node, int4multirange(int4range(lo, up)), tstzrange(s, e), true, false FROM f""",
    "INSERT INTO due (subject, tenant_id, cluster_id, next_at) SELECT a, %(tenant)s, 1, greatest(s, %(now)s) FROM f",
    """INSERT INTO commitments (tenant_id, scope_id, booking_id, day, starts_at, ends_at, rate, price)
       SELECT %(tenant)s, c.id, b, s::date, s, least(e, s + interval '1 day'), (up - lo) / 64 * 840, 2.40
         FROM f, scopes c WHERE n %% 50 = 0""",
)


def _rows(nodes: int, bookings: int) -> Iterator[tuple[int, int, int, datetime, datetime]]:
    """(node, first position, end position, start, end) on the grid, filling the wanted share."""
    chance = random.Random(3)
    lanes = []
    for node in range(nodes):
        width = chance.choice((1, 2, 4, 8, 8))
        lanes += [(node, 64 * (8 * node + g), 64 * (8 * node + g + width)) for g in range(0, 8, width)]
    slots = DAYS * 96
    mean = OCCUPANCY * slots * len(lanes) / bookings
    for node, low, high in lanes:
        at = -chance.randrange(max(int(mean), 1))
        while at < slots:
            length = 1 + int(chance.expovariate(1 / max(mean - 1, 0.1)))
            start = START + timedelta(minutes=15 * at)
            yield node + 1, low, high, start, start + timedelta(minutes=15 * length)
            at += length + int(chance.expovariate(OCCUPANCY / mean / (1 - OCCUPANCY)) + chance.random())


def _ask(chance: random.Random) -> dict[str, Any]:
    """A request at a given start; small enough to find room."""
    shape = {"units": 8, "within": "node"} if chance.random() < 0.3 else {"units": chance.randint(1, 4)}
    hours = 1 if shape["units"] == 8 else chance.randint(1, 6)
    start = START + timedelta(minutes=15 * chance.randrange(1, DAYS * 96 - 24))
    return {
        "project": "plasma",
        "name": "Run",
        "kind": H100,
        **shape,
        "start": start.isoformat(),
        "duration": f"PT{hours}H",
    }


# --- the same, three ways ---------------------------------------------------------------------------------------------


def use_case(world: World, actor: Actor, body: dict[str, Any]) -> None:
    ask = Ask.of(BookingIn.model_validate(body))
    with world.plumbing.database.work(actor.tenant_id) as work:
        actions.book(work, NoQueue(), actor, ask)


@dataclass(frozen=True, slots=True)
class Found:
    """What the bare statements need to know beforehand."""

    desk: Desk
    offer: Offer
    positions: str
    pool_positions: str


def bare(
    world: World, actor: Actor, body: dict[str, Any], connection: psycopg.Connection, *, pipelined: bool
) -> Callable[[], None]:
    """The statements of one booking, ready to run: the place is found here, outside of the time."""
    ask = Ask.of(BookingIn.model_validate(body))
    with world.plumbing.database.work(actor.tenant_id) as work:
        found = _find(work, actor, ask)
    act = _pipelined if pipelined else _one_by_one
    return lambda: act(connection, found, actor, ask)


def _find(work: Work, actor: Actor, ask: Ask) -> Found:
    desk = offers.open_desk(work, actor, ask.project)
    pools = inventory.pools_for(work, ask.kind)
    offer = next(o for o in offers.find_offers(desk, ask, pools) if isinstance(o, Offer))
    capacity = inventory.capacity_of(work, pools)[offer.pool.id]
    positions = queries.multirange(r for p in offer.placement.parts for r in p.positions)
    return Found(desk, offer, positions, offers.snapshot(work, capacity)[1])


def _one_by_one(connection: psycopg.Connection, found: Found, actor: Actor, ask: Ask) -> None:
    """Each statement waits for its answer."""
    for sql, values in _reads(found, ask):
        connection.execute(sql, values, prepare=True).fetchall()
    scopes = _scopes(connection, found, actor)
    for sql, values in [*_locks(found), *_limits(found, scopes), *_writes(found, actor, ask, scopes)]:
        cursor = connection.execute(sql, values, prepare=True)
        if cursor.description:
            cursor.fetchall()
    connection.commit()


def _pipelined(connection: psycopg.Connection, found: Found, actor: Actor, ask: Ask) -> None:
    """Four round trips: reads, locks, limits, writes."""
    with connection.pipeline():
        for cursor in [connection.execute(sql, values, prepare=True) for sql, values in _reads(found, ask)]:
            cursor.fetchall()
        scopes = _scopes(connection, found, actor)
        for cursor in [
            connection.execute(sql, values, prepare=True) for sql, values in [*_locks(found), *_limits(found, scopes)]
        ]:
            cursor.fetchall()
        for sql, values in _writes(found, actor, ask, scopes):
            connection.execute(sql, values, prepare=True)
        connection.commit()


def _reads(found: Found, ask: Ask) -> list[tuple[str, Any]]:
    project, window = found.desk.project, found.offer.window
    return [
        ("SELECT set_config('app.tenant', %s, true)", [str(project.tenant_id)]),
        (queries.PROJECT, [project.slug, None]),
        ("SELECT berth_now()", None),
        (inventory.POOLS, {"kind": ask.kind, "cluster": None}),
        (pricing.PRICE_LIST, [project.price_group, project.currency, found.desk.now, [found.offer.pool.kind]]),
        (queries.TAKEN_PACKED, [found.pool_positions, window.start, window.end]),
    ]


def _locks(found: Found) -> list[tuple[str, Any]]:
    window = found.offer.window
    return [
        (inventory.LOCK_POOLS, [[found.offer.pool.id]]),
        ("SELECT berth_now()", None),
        (queries.TAKEN, [found.positions, window.start, window.end]),
    ]


def _scopes(connection: psycopg.Connection, found: Found, actor: Actor) -> tuple[Any, ...]:
    """The limits, locked: their ids are needed for what follows."""
    project = found.desk.project
    values = {
        "tenant": project.tenant_id, "project": project.id, "account": actor.account_id, "kinds": [found.offer.pool.kind],
    }  # fmt: skip
    connection.execute(quotas.SHARE_LIMITS, values, prepare=True)
    rows = connection.execute(quotas.LOCK_SCOPES, values, prepare=True).fetchall()
    return tuple(Scope(*row) for row in rows)


def _limits(found: Found, scopes: tuple[Any, ...]) -> list[tuple[str, Any]]:
    desk, offer = found.desk, found.offer
    asked = pieces(offer.segments, desk.zone, offer.placement.units)
    values = quotas.standings_values(
        desk.project.tenant_id, scopes, offer.window, months_of(asked), desk.zone, desk.now
    )
    return [(quotas.STANDINGS, values)]


def _writes(found: Found, actor: Actor, ask: Ask, scopes: tuple[Any, ...]) -> list[tuple[str, Any]]:
    desk, offer, project = found.desk, found.offer, found.desk.project
    booking, allocation = new_id(), new_id()
    asked = pieces(offer.segments, desk.zone, offer.placement.units)
    values = {
        "tenant": project.tenant_id, "id": booking, "project": project.id, "name": ask.name,
        "cost_centre": project.cost_centre, "reference": ask.reference, "kind": offer.pool.kind,
        "cluster": offer.pool.cluster_id, "pool": offer.pool.id, "units": ask.shape.total, "nodes": None, "per_node": None,
        "within": ask.shape.within, "share": 840, "starts": offer.window.start, "ends": offer.window.end,
        "blocked": offer.window.end, "currency": project.currency, "quoted": offer.cost.amount, "zone": project.zone,
        "account": actor.account_id, "actor": actor.label, "owner": actor.account_id, "owner_name": actor.label,
        "near": None, "series": None, "occurs": None, "class": None,
        "now": desk.now, "workload": Jsonb({"kind": "default"}),
        "state": "BOOKED", "event": "book", "why": "", "allocation": allocation, "short": short(allocation),
        "hold_ids": [new_id() for _ in offer.placement.parts],
        "hold_nodes": [p.node_id for p in offer.placement.parts],
        "hold_units": [queries.multirange(p.positions) for p in offer.placement.parts],
        "price_starts": [s.window.start for s in offer.prices], "price_ends": [s.window.end for s in offer.prices],
        "price_ids": [s.price_id for s in offer.prices], "prices": [s.per_hour for s in offer.prices],
        "due": offer.window.start,
    }  # fmt: skip
    return [
        (queries.INSERT, values),
        (quotas.COMMIT, quotas.commit_values(project.tenant_id, scopes, asked, booking)),
        (inventory.RAISE_VERSION, [[offer.pool.id]]),
    ]


# --- many at once -----------------------------------------------------------------------------------------------------


def _at_once(act: Callable[[dict[str, Any]], None], bodies: list[dict[str, Any]]) -> float:
    """Bookings a second of sixteen threads, each taking the next request."""
    left, failures = iter(bodies), []
    turn = threading.Lock()

    def work() -> None:
        try:
            while (body := _next(left, turn)) is not None:
                act(body)
        except BaseException as error:  # raised again below
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(CLIENTS)]
    began = monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return len(bodies) / (monotonic() - began)


def _next(left: Iterator[dict[str, Any]], turn: threading.Lock) -> dict[str, Any] | None:
    with turn:
        return next(left, None)


def _over_http(world: World, actor: Actor, chance: random.Random, turns: int, burst: int) -> tuple[float, float]:
    """Milliseconds of one request after the other, and bookings a second of sixteen connections."""
    tokens = [make_token(world, actor, f"client {i}") for i in range(CLIENTS)]
    with (
        web_processes(world, world.plumbing.settings.data, 1) as ports,
        closing(Clients(ports, tokens)) as clients,
    ):
        times = []
        for turn in range(turns + 5):
            answer = clients.post("/api/v1/bookings", _ask(chance))
            _booked(answer.status, answer.body)
            if turn >= 5:
                times.append(answer.seconds * 1000)
        bodies = [(f"burst {i}", _ask(chance)) for i in range(burst)]
        clients.post_all("/api/v1/bookings", bodies[:CLIENTS])
        began = monotonic()
        answers = clients.post_all("/api/v1/bookings", [(f"{key} again", body) for key, body in bodies])
        seconds = monotonic() - began
    for answer in answers:
        _booked(answer.status, answer.body)
    return median(times), len(answers) / seconds


def _booked(status: int, body: dict[str, Any]) -> None:
    if status != 201:
        raise RuntimeError(f"a request that fits was answered with {status}: {body}")
