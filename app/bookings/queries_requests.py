"""SQL of whatever waits: requests for approval, the queue of waiters, units that were freed for them, offers.

`requests` are a tenant's; `waiting` and `holds` are platform tables, read for everyone. Requests of other tenants are read
inside `work.read_all()` and written after `work.act_for`. Lock order: pools, bookings, requests, holds, due.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from app.bookings.capacity import Shape
from app.bookings.facts import Booking, PriceSegment
from app.bookings.queries import multirange
from app.kernel.actor import Actor
from app.kernel.ids import new_id, short
from app.kernel.window import Window
from app.plumbing.db import Work

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Request:
    """One row of requests.

    `waits_for`: approval, waiter (freed units, to be given on), answer (an offer to a waiter). `wanted`: what was asked or
    offered, in plain words. `expires_at`: when it lapses. `outcome` None while it is open.
    """

    id: UUID
    tenant_id: UUID
    booking_id: UUID
    waits_for: str
    verb: str
    approver: str | None
    wanted: dict[str, Any]
    expires_at: datetime
    outcome: str | None
    asked_at: datetime | None
    account_id: UUID | None
    asked_by: str
    answered_at: datetime | None
    answered_by: str | None
    why: str


_REQUEST = """
SELECT r.id, r.tenant_id, r.booking_id, r.waits_for, r.verb, r.approver, r.wanted, r.expires_at, r.outcome, r.asked_at,
       r.account_id, r.asked_by, r.answered_at, r.answered_by, r.why
  FROM requests r"""


def find_request(work: Work, request_id: UUID, *, lock: bool = False) -> Request | None:
    """A request that the transaction may see; locked after its booking when it will be answered."""
    return _request(work, f"{_REQUEST} WHERE r.id = %s{' FOR NO KEY UPDATE' if lock else ''}", [request_id])


def open_request(work: Work, booking_id: UUID, *, lock: bool = False) -> Request | None:
    """The one request of a booking that awaits an answer of people: an approval, or an offer's."""
    sql = f"{_REQUEST} WHERE r.booking_id = %s AND r.outcome IS NULL AND r.waits_for <> 'waiter'"
    return _request(work, f"{sql}{' FOR NO KEY UPDATE' if lock else ''}", [booking_id])


def last_request(work: Work, booking_id: UUID) -> Request | None:
    """The newest request of a booking that people answer, open or not."""
    sql = f"{_REQUEST} WHERE r.booking_id = %s AND r.waits_for <> 'waiter' ORDER BY r.outcome IS NULL DESC, r.id DESC LIMIT 1"
    return _request(work, sql, [booking_id])


def open_approvals(work: Work, approver: str, projects: Sequence[UUID] | None = None) -> list[Request]:
    """Open requests that this kind of approver answers, first the one that lapses first. Inside `read_all`: every
    tenant's."""
    return (
        work.pg.cursor(row_factory=class_row(Request))
        .execute(
            f"""{_REQUEST} JOIN bookings b ON b.tenant_id = r.tenant_id AND b.id = r.booking_id
            WHERE r.outcome IS NULL AND r.waits_for = 'approval' AND r.approver = %(approver)s
              AND (%(projects)s::uuid[] IS NULL OR b.project_id = ANY(%(projects)s))
            ORDER BY r.expires_at, r.id LIMIT 500""",
            {"approver": approver, "projects": None if projects is None else list(projects)},
        )
        .fetchall()
    )


def insert_request(
    work: Work,
    booking_id: UUID,
    waits_for: str,
    verb: str,
    wanted: dict[str, Any],
    expires_at: datetime,
    actor: Actor,
    now: datetime,
    *,
    approver: str | None = None,
    why: str = "",
    due_at: datetime | None = None,
) -> UUID:
    """Write a request and when it falls due (None: when it lapses). Whoever calls has locked the booking."""
    request_id = new_id()
    work.pg.execute(
        """INSERT INTO requests (id, tenant_id, booking_id, waits_for, verb, approver, wanted, expires_at, asked_at,
                                 account_id, asked_by, why)
           VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)""",
        [
            request_id,
            work.tenant_id,
            booking_id,
            waits_for,
            verb,
            approver,
            Jsonb(wanted),
            expires_at,
            now,
            actor.account_id,
            actor.label,
            why,
        ],
    )
    remind(work, request_id, due_at or expires_at)
    return request_id


def close_request(
    work: Work, request_id: UUID, outcome: str, actor: Actor, now: datetime, why: str | None = None
) -> bool:
    """Answer an open request; False when somebody else has. Nothing of it is due any more."""
    closed = work.pg.execute(
        """UPDATE requests SET outcome = %s, answered_at = %s, answered_by = %s, why = coalesce(%s, why)
            WHERE id = %s AND outcome IS NULL""",
        [outcome, now, actor.label, why, request_id],
    ).rowcount
    work.pg.execute("DELETE FROM due WHERE subject = %s", [request_id])
    return bool(closed)


def withdraw_edits(work: Work, booking_id: UUID, now: datetime) -> None:
    """A booking that is over has nothing to be edited: its request to be extended or moved goes, with what it holds."""
    work.pg.execute(
        """WITH gone AS (UPDATE requests SET outcome = 'withdrawn', answered_at = %(now)s, answered_by = 'Berth'
                          WHERE booking_id = %(booking)s AND outcome IS NULL AND verb IN ('extend', 'move') RETURNING id),
                units AS (UPDATE holds SET live = false FROM gone WHERE holds.request_id = gone.id AND live),
                hours AS (DELETE FROM commitments USING gone WHERE commitments.request_id = gone.id)
           DELETE FROM due USING gone WHERE due.subject = gone.id""",
        {"now": now, "booking": booking_id},
    )


# --- what falls due -----------------------------------------------------------------------------------------------------

DUE = """
SELECT tenant_id, subject FROM due
 WHERE cluster_id IS NULL AND lease_token IS NULL AND next_at <= %(now)s ORDER BY next_at LIMIT 500"""
"""Requests and waiting bookings that have to be looked at: they are on no cluster."""


def is_due(work: Work, subject: UUID, now: datetime) -> bool:
    """Whether it still has to be looked at now."""
    return bool(work.pg.execute("SELECT FROM due WHERE subject = %s AND next_at <= %s", [subject, now]).rowcount)


def remind(work: Work, subject: UUID, at: datetime) -> None:
    """Look at a request or a waiting booking of the transaction's tenant at an instant, and not before."""
    work.pg.execute(
        """INSERT INTO due (subject, tenant_id, cluster_id, next_at) VALUES (%s, %s, NULL, %s)
           ON CONFLICT (subject) DO UPDATE SET next_at = excluded.next_at""",
        [subject, work.tenant_id, at],
    )


# --- holds of requests --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Piece:
    """Units of one node for a time, cleaning gap included, and the object that they were or will be a part of."""

    node_id: int
    units: tuple[Range, ...]
    start: datetime
    end: datetime
    allocation_id: UUID


_PIECES = """
SELECT h.node_id, ARRAY(SELECT ARRAY[lower(r), upper(r)] FROM unnest(h.units) r), lower(h.during), upper(h.during),
       h.allocation_id
  FROM holds h WHERE """


def pieces_of_booking(work: Work, booking_id: UUID, *, staying: bool = False) -> tuple[Piece, ...]:
    """What a booking occupies: what it frees when it goes. `staying`: without units that it has given back already."""
    only = "AND h.left_at IS NULL" if staying else ""
    return _pieces(work.pg.execute(f"{_PIECES} h.booking_id = %s AND h.live {only} ORDER BY h.id", [booking_id]))


def pieces_of_request(work: Work, request_id: UUID) -> tuple[Piece, ...]:
    """What a request occupies."""
    return _pieces(work.pg.execute(f"{_PIECES} h.request_id = %s AND h.live ORDER BY h.id", [request_id]))


def lock_holds_of_requests(work: Work, request_ids: Sequence[UUID]) -> None:
    """Before they are written: in id order."""
    work.pg.execute(
        "SELECT FROM holds WHERE request_id = ANY(%s) AND live ORDER BY id FOR NO KEY UPDATE", [list(request_ids)]
    )


def add_holds(work: Work, request_id: UUID, pieces: Iterable[Piece]) -> int:
    """Occupy units for a request; how many nodes. A taken unit raises ExclusionViolation. Units that are no slots of
    their node any more (lost, cut anew) are left out: there is nothing to hold."""
    rows = list(pieces)
    return work.pg.execute(
        """INSERT INTO holds (id, request_id, allocation_id, node_id, units, during, live, pinned)
           SELECT i, %(request)s, a, n, u::int4multirange, tstzrange(s, e), true, false
             FROM unnest(%(ids)s::uuid[], %(allocations)s::uuid[], %(nodes)s::int[], %(units)s::text[],
                         %(starts)s::timestamptz[], %(ends)s::timestamptz[]) v (i, a, n, u, s, e)
            WHERE u::int4multirange = (SELECT range_agg(x.positions) FROM slots x WHERE x.node_id = n
                                          AND x.positions && u::int4multirange AND x.valid @> tstzrange(s, e))""",
        {
            "request": request_id,
            "ids": [new_id() for _ in rows],
            "allocations": [p.allocation_id for p in rows],
            "nodes": [p.node_id for p in rows],
            "units": [multirange(p.units) for p in rows],
            "starts": [p.start for p in rows],
            "ends": [p.end for p in rows],
        },
    ).rowcount


def drop_holds(work: Work, request_ids: Sequence[UUID]) -> None:
    """A request occupies nothing any more. Needs no pool."""
    work.pg.execute("UPDATE holds SET live = false WHERE request_id = ANY(%s) AND live", [list(request_ids)])


def take_over_holds(work: Work, request_id: UUID, booking_id: UUID, start: datetime) -> None:
    """What the request occupied is the booking's, from `start` on. The pool is locked by the caller."""
    work.pg.execute(
        """UPDATE holds SET booking_id = %s, request_id = NULL,
                            during = tstzrange(greatest(lower(during), %s), upper(during))
            WHERE request_id = %s AND live""",
        [booking_id, start, request_id],
    )


def pass_on(work: Work, booking: Booking, pieces: Iterable[Piece], now: datetime) -> UUID | None:
    """Keep units that a booking has just given up for whoever waits in its pool; None when nobody does.

    Call it in the transaction that freed them, after the holds were freed: nobody else gets in between, no pool is needed,
    and the row that falls due finds them a new owner or lets them go.
    """
    left = [Piece(p.node_id, p.units, max(p.start, now), p.end, p.allocation_id) for p in pieces if p.end > now]
    if not left:
        return None
    end = max(p.end for p in left)
    waits = "SELECT FROM waiting WHERE pool_id = %s AND latest > %s AND earliest < %s LIMIT 1"
    if work.pg.execute(waits, [booking.pool_id, now, end]).fetchone() is None:
        return None
    request_id = insert_request(work, booking.id, "waiter", "offer", {}, end, _BERTH, now, due_at=now)
    add_holds(work, request_id, left)
    return request_id


_BERTH = Actor(None, "Berth")


# --- a booking without units --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unseated:
    """A booking that has no units yet: it waits, or its request holds nothing. `window` is what was wished."""

    id: UUID
    project_id: UUID
    name: str
    cost_centre: str
    reference: str
    state: str
    kind: str
    cluster_id: int
    pool_id: int
    shape: Shape
    window: Window
    currency: str
    quoted: Decimal
    zone: str
    workload: dict[str, Any] | None
    owner: tuple[UUID | None, str]
    series_id: UUID | None = None
    occurs_at: datetime | None = None
    class_id: UUID | None = None


def insert_unseated(work: Work, new: Unseated, now: datetime) -> None:
    """Write the row of a booking without holds, allocation and prices; its history row is the caller's."""
    work.pg.execute(
        """INSERT INTO bookings (id, tenant_id, project_id, name, cost_centre, reference, state, kind, cluster_id, pool_id,
             units, nodes, per_node, within, share840, starts_at, ends_at, asked, currency, quoted, zone, account_id,
             booked_by, booked_at, workload, version, near,
             series_id, occurs_at, class_id)
           VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s,
                   (SELECT coalesce((facts->>'share840')::int, 840) FROM kinds WHERE slug = %s), %s, %s, false, %s, %s, %s, %s, %s, %s, %s,
                   1, %s, %s, %s, %s)""",
        [
            new.id,
            work.tenant_id,
            new.project_id,
            new.name,
            new.cost_centre,
            new.reference,
            new.state,
            new.kind,
            new.cluster_id,
            new.pool_id,
            new.shape.total,
            new.shape.nodes,
            new.shape.per_node,
            new.shape.within,
            new.kind,
            new.window.start,
            new.window.end,
            new.currency,
            new.quoted,
            new.zone,
            *new.owner,
            now,
            None if new.workload is None else Jsonb(new.workload),
            new.shape.near,
            new.series_id,
            new.occurs_at,
            new.class_id,
        ],
    )


def make_allocation(work: Work, cluster_id: int) -> UUID:
    """A name for what will stand on the cluster."""
    allocation_id = new_id()
    work.pg.execute(
        """INSERT INTO allocations (id, cluster_id, installation, generation, name, gone, wanted, ensured, failures)
           SELECT %s, %s, i.id, 1, 'berth-' || i.id || '-' || %s || '-g1', false, 1, 0, 0 FROM installation i""",
        [allocation_id, cluster_id, short(allocation_id)],
    )
    return allocation_id


def close_allocation(work: Work, allocation_id: UUID) -> None:
    """Nothing will ever stand on the cluster under this name."""
    work.pg.execute("UPDATE allocations SET gone = true WHERE id = %s", [allocation_id])


def seat(work: Work, booking_id: UUID, window: Window, quoted: Decimal, segments: Sequence[PriceSegment]) -> None:
    """The window, the price and the price schedule of a booking that gets units now, in place of what was wished."""
    work.pg.execute(
        "UPDATE bookings SET starts_at = %s, ends_at = %s, quoted = %s, version = version + 1 WHERE id = %s",
        [window.start, window.end, quoted, booking_id],
    )
    work.pg.execute("DELETE FROM booking_prices WHERE booking_id = %s", [booking_id])
    with work.pg.cursor() as cursor:
        cursor.executemany(
            """INSERT INTO booking_prices (tenant_id, booking_id, starts_at, ends_at, price_id, per_hour)
               VALUES (%s, %s, %s, %s, %s, %s)""",
            [(work.tenant_id, booking_id, s.window.start, s.window.end, s.price_id, s.per_hour) for s in segments],
        )


def occupy(work: Work, booking_id: UUID, allocation_id: UUID, pieces: Iterable[Piece]) -> None:
    """Holds of a booking that had none. The pool is locked by the caller; a taken unit raises ExclusionViolation."""
    rows = list(pieces)
    work.pg.execute(
        """INSERT INTO holds (id, booking_id, allocation_id, node_id, units, during, live, pinned)
           SELECT i, %(booking)s, %(allocation)s, n, u::int4multirange, tstzrange(s, e), true, false
             FROM unnest(%(ids)s::uuid[], %(nodes)s::int[], %(units)s::text[], %(starts)s::timestamptz[],
                         %(ends)s::timestamptz[]) v (i, n, u, s, e)""",
        {
            "booking": booking_id,
            "allocation": allocation_id,
            "ids": [new_id() for _ in rows],
            "nodes": [p.node_id for p in rows],
            "units": [multirange(p.units) for p in rows],
            "starts": [p.start for p in rows],
            "ends": [p.end for p in rows],
        },
    )


# --- the queue ----------------------------------------------------------------------------------------------------------


def approvers_of(work: Work, approver: str, project_id: UUID) -> list[UUID]:
    """The accounts that may answer a request of a project."""
    if approver == "lead":
        sql = """SELECT account_id FROM memberships WHERE (project_id = %s AND role = 'lead')
                     OR (project_id IS NULL AND role = 'admin')"""
        return sorted({row[0] for row in work.pg.execute(sql, [project_id])})
    return [row[0] for row in work.pg.execute("SELECT account_id FROM platform_roles WHERE role = 'operator'")]


def roles_of(work: Work, account_id: UUID | None) -> list[tuple[UUID | None, str]]:
    """(project, role) of a person in the transaction's tenant; project None: over all of it."""
    return work.pg.execute(
        "SELECT project_id, role FROM memberships WHERE account_id = %s AND tenant_id = berth_tenant()", [account_id]
    ).fetchall()


def ranges(rows: Iterable[Sequence[int]]) -> tuple[Range, ...]:
    return tuple((lower, upper) for lower, upper in rows)


def _pieces(rows: Iterable[tuple]) -> tuple[Piece, ...]:
    return tuple(Piece(node, ranges(units), start, end, allocation) for node, units, start, end, allocation in rows)


def _request(work: Work, sql: str, values: Sequence[Any]) -> Request | None:
    return work.pg.cursor(row_factory=class_row(Request)).execute(sql, values).fetchone()
