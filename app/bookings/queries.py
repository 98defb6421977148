"""Every SQL statement of the room but the leases (due.py). `advance()` is the one writer of a booking's state.

Statements take a `Work` in which the tenant is set. Lock order of the house: idempotency key, quota scopes, power domain,
pools, bookings, holds, due; each in id order, FOR NO KEY UPDATE.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from app.accounts import cluster_users
from app.backends.contract import Observation
from app.bookings.capacity import Busy
from app.bookings.facts import Allocation, Booking, ConditionLine, Held, HistoryLine, PriceSegment, Project
from app.bookings.lifecycle import (
    OUTCOMES,
    BookingView,
    Change,
    Clear,
    Condition,
    Event,
    Lose,
    Move,
    Outage,
    Raise,
    Regain,
    Seen,
    Standing,
    State,
    move,
)
from app.bookings.queries_policies import IN_ORDER, OVERRIDES_OF
from app.kernel.actor import Actor
from app.kernel.ids import new_id, short
from app.kernel.money import SCALE, line_amount
from app.kernel.window import Window
from app.plumbing.db import PRODUCT_NOW, Work

_BOOKING = """
SELECT b.id, b.tenant_id, b.project_id, p.slug AS project, p.name AS project_name, b.number, b.name, b.cost_centre,
       b.reference, b.state, b.outcome, b.kind, k.name AS kind_name, b.cluster_id, c.name AS cluster, b.pool_id, b.units,
       b.nodes, b.per_node, b.within, b.share840, b.starts_at, b.ends_at, b.provided_at, b.released_at, b.left_by,
       b.emptied_at, b.asked, b.currency, b.quoted, b.zone, b.account_id, b.booked_by, b.booked_at, b.workload,
       b.first_used_at, b.metered_until, b.version, b.near, b.shared, b.series_id, b.occurs_at, b.class_id
  FROM bookings b JOIN projects p ON p.tenant_id = b.tenant_id AND p.id = b.project_id
  JOIN kinds k ON k.slug = b.kind JOIN clusters c ON c.id = b.cluster_id"""


# --- projects ---------------------------------------------------------------------------------------------------------


PROJECT = """
SELECT p.tenant_id, p.id, p.slug, p.name, p.cost_centre, p.ended_at, t.name AS tenant, t.zone, t.currency, t.price_group,
       p.renewal_asked_at, t.renewal_grace_seconds
  FROM projects p JOIN tenants t ON t.tenant_id = p.tenant_id WHERE p.slug = %s OR p.id = %s"""


def find_project(work: Work, slug: str, project_id: UUID | None) -> Project | None:
    """A project of the tenant by slug or id, or None."""
    return _one(work, Project, PROJECT, [slug, project_id])


# --- capacity ---------------------------------------------------------------------------------------------------------

TAKEN = """SELECT lower(r), upper(r), extract(epoch FROM lower(during))::bigint, extract(epoch FROM upper(during))::bigint
              FROM holds, unnest(units) r WHERE live AND units && %s::int4multirange AND during && tstzrange(%s, %s)"""
# Thousands of rows come as four columns of bytes: taking rows apart costs more than finding them. Instants come as they
# are kept, and ranges are taken apart before they are counted: either way round it costs twice as much.
_PACKED = """SELECT coalesce(string_agg(int4send(lower(r)), ''), ''), coalesce(string_agg(int4send(upper(r)), ''), ''),
                    coalesce(string_agg(timestamptz_send(lower(during)), ''), ''),
                    coalesce(string_agg(timestamptz_send(upper(during)), ''), '')
               FROM (SELECT unnest(units) AS r, during FROM holds WHERE live AND {}) AS held"""
TAKEN_PACKED = _PACKED.format("units && %s::int4multirange AND during && tstzrange(%s, %s)")
_HORIZON = _PACKED.format("node_id = ANY(%s) AND upper(during) > %s")
_SECONDS_TO_2000 = 946_684_800


def taken(work: Work, positions: str, window: Window) -> Busy:
    """What is held of these positions (text of an int4multirange) in a window: asked by units and time together."""
    return _unpacked(work.pg.execute(TAKEN_PACKED, [positions, window.start, window.end]).fetchone())


def _unpacked(columns: Sequence[bytes]) -> Busy:
    """PostgreSQL counts microseconds from 2000 on."""
    kept = Busy.of_bytes(*columns)
    start, end = (at // 1_000_000 + _SECONDS_TO_2000 for at in (kept.start, kept.end))
    return Busy(kept.lower, kept.upper, start, end)


def taken_by_others(work: Work, positions: str, window: Window, booking_id: UUID) -> Busy:
    """The same without what this booking holds itself."""
    sql = f"{TAKEN} AND booking_id IS DISTINCT FROM %s"
    return Busy.of_rows(work.pg.execute(sql, [positions, window.start, window.end, booking_id]).fetchall())


def taken_from(work: Work, node_ids: Sequence[int], since: datetime) -> Busy:
    """Everything held on these nodes from an instant on, packed."""
    return _unpacked(work.pg.execute(_HORIZON, [list(node_ids), since]).fetchone())


def instant_of(seconds: int) -> datetime:
    """An instant from whole seconds since 1970."""
    return datetime.fromtimestamp(seconds, UTC)


def multirange(ranges: Iterable[tuple[int, int]]) -> str:
    """The text of an int4multirange, touching ranges joined."""
    joined: list[list[int]] = []
    for lower, upper in sorted(ranges):
        if joined and joined[-1][1] >= lower:
            joined[-1][1] = max(joined[-1][1], upper)
        else:
            joined.append([lower, upper])
    return "{" + ",".join(f"[{lower},{upper})" for lower, upper in joined) + "}"


# --- writing a new booking --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewBooking:
    """Everything that is written when a booking is made. `holds` are (node, multirange text); `owner` is an account and its
    name where that is not who books."""

    id: UUID
    allocation_id: UUID
    project: Project
    name: str
    cost_centre: str
    reference: str
    kind: str
    cluster_id: int
    pool_id: int
    units: int
    nodes: int | None
    per_node: int | None
    within: str | None
    share840: int
    window: Window
    blocked_until: datetime
    currency: str
    quoted: Decimal
    workload: dict[str, Any] | None
    holds: tuple[tuple[int, str], ...]
    segments: tuple[PriceSegment, ...]
    due_at: datetime
    near: str | None = None
    series_id: UUID | None = None
    occurs_at: datetime | None = None
    class_id: UUID | None = None
    owner: tuple[UUID, str] | None = None


def insert_booking(
    work: Work,
    new: NewBooking,
    cluster: str,
    actor: Actor,
    now: datetime,
    why: str,
    more: Sequence[tuple[str, Any]] = (),
    event: Event = Event.BOOK,
) -> Booking:
    """Write booking, allocation, holds, price schedule, history and due row in one statement, and in the same round trip
    `more` that needs no answer. Returns the booking as `find_booking` would. `event` ASK: it needs approval first.

    The exclusion constraint is judged here: a unit that is taken raises ExclusionViolation, and the transaction is over.
    """
    state = move(None, event)
    owner = new.owner or (actor.account_id, actor.label)
    values = {
        "tenant": new.project.tenant_id,
        "id": new.id,
        "project": new.project.id,
        "name": new.name,
        "cost_centre": new.cost_centre,
        "reference": new.reference,
        "kind": new.kind,
        "cluster": new.cluster_id,
        "pool": new.pool_id,
        "units": new.units,
        "nodes": new.nodes,
        "per_node": new.per_node,
        "within": new.within,
        "share": new.share840,
        "starts": new.window.start,
        "ends": new.window.end,
        "blocked": new.blocked_until,
        "currency": new.currency,
        "quoted": new.quoted,
        "zone": new.project.zone,
        "account": actor.account_id,
        "actor": actor.label,
        "owner": owner[0],
        "owner_name": owner[1],
        "near": new.near,
        "series": new.series_id,
        "occurs": new.occurs_at,
        "class": new.class_id,
        "now": now,
        "workload": None if new.workload is None else Jsonb(new.workload),
        "state": state,
        "event": event,
        "why": why,
        "allocation": new.allocation_id,
        "short": short(new.allocation_id),
        "hold_ids": [new_id() for _ in new.holds],
        "hold_nodes": [node for node, _ in new.holds],
        "hold_units": [units for _, units in new.holds],
        "price_starts": [s.window.start for s in new.segments],
        "price_ends": [s.window.end for s in new.segments],
        "price_ids": [s.price_id for s in new.segments],
        "prices": [s.per_hour for s in new.segments],
        "due": new.due_at,
    }
    (number, kind_name), *_ = work.together((INSERT, values), *more)[0]
    project = new.project
    return Booking(
        new.id, project.tenant_id, project.id, project.slug, project.name, number, new.name, new.cost_centre, new.reference,
        state.value, None, new.kind, kind_name, new.cluster_id, cluster, new.pool_id, new.units, new.nodes, new.per_node,
        new.within, new.share840, new.window.start, new.window.end, None, None, None, None, False, new.currency, new.quoted,
        project.zone, *owner, now, new.workload, None, None, 1, new.near, False, new.series_id, new.occurs_at, new.class_id,
    )  # fmt: skip


INSERT = """
WITH a AS (
  INSERT INTO allocations (id, cluster_id, installation, generation, name, gone, wanted, ensured, failures)
  SELECT %(allocation)s, %(cluster)s, i.id, 1, 'berth-' || i.id || '-' || %(short)s || '-g1', false, 1, 0, 0
    FROM installation i RETURNING id),
b AS (
  INSERT INTO bookings (id, tenant_id, project_id, name, cost_centre, reference, state, kind, cluster_id, pool_id, units,
    nodes, per_node, within, share840, starts_at, ends_at, asked, currency, quoted, zone, account_id, booked_by, booked_at,
    workload, version, near, series_id, occurs_at, class_id)
  VALUES (%(id)s, %(tenant)s, %(project)s, %(name)s, %(cost_centre)s, %(reference)s, %(state)s, %(kind)s, %(cluster)s,
    %(pool)s, %(units)s, %(nodes)s, %(per_node)s, %(within)s, %(share)s, %(starts)s, %(ends)s, false, %(currency)s,
    %(quoted)s, %(zone)s, %(owner)s, %(owner_name)s, %(now)s, %(workload)s, 1, %(near)s, %(series)s, %(occurs)s, %(class)s)
  RETURNING number),
p AS (
  INSERT INTO booking_prices (tenant_id, booking_id, starts_at, ends_at, price_id, per_hour)
  SELECT %(tenant)s, %(id)s, s, e, i, h
    FROM unnest(%(price_starts)s::timestamptz[], %(price_ends)s::timestamptz[], %(price_ids)s::int[], %(prices)s::numeric[])
         AS u(s, e, i, h)),
h AS (
  INSERT INTO holds (id, booking_id, allocation_id, node_id, units, during, live, pinned)
  SELECT i, %(id)s, %(allocation)s, n, u::int4multirange, tstzrange(%(starts)s, %(blocked)s), true, false
    FROM unnest(%(hold_ids)s::uuid[], %(hold_nodes)s::int[], %(hold_units)s::text[]) AS v(i, n, u)),
w AS (
  INSERT INTO history (tenant_id, booking_id, at, account_id, actor, event, before, after, why)
  VALUES (%(tenant)s, %(id)s, %(now)s, %(account)s, %(actor)s, %(event)s, NULL, %(state)s, %(why)s)),
d AS (
  INSERT INTO due (subject, tenant_id, cluster_id, next_at)
  VALUES (%(allocation)s, %(tenant)s, %(cluster)s, %(due)s))
SELECT b.number, k.name FROM b, kinds k WHERE k.slug = %(kind)s"""


# --- reading ----------------------------------------------------------------------------------------------------------


def find_booking(work: Work, booking_id: UUID) -> Booking | None:
    """A booking that the transaction may see, or None."""
    return _one(work, Booking, f"{_BOOKING} WHERE b.id = %s", [booking_id])


def find_by_number(work: Work, number: int) -> Booking | None:
    """The same by the number that people say."""
    return _one(work, Booking, f"{_BOOKING} WHERE b.number = %s", [number])


def lock_booking(work: Work, booking_id: UUID) -> Booking | None:
    """Lock it against every other change, and read it as it is then."""
    if work.pg.execute("SELECT FROM bookings WHERE id = %s FOR NO KEY UPDATE", [booking_id]).rowcount == 0:
        return None
    return find_booking(work, booking_id)


def list_bookings(
    work: Work,
    *,
    projects: Sequence[UUID] | None,
    states: Sequence[str] = (),
    account_id: UUID | None = None,
    text: str = "",
    window: Window | None = None,
    before: int | None = None,
    limit: int = 50,
    oldest_first: bool = False,
) -> list[Booking]:
    """Bookings, newest number first (or by start, soonest first). `projects` None: every project of the tenant."""
    where, values = ["true"], []
    if projects is not None:
        where.append("b.project_id = ANY(%s)")
        values.append(list(projects))
    if states:
        where.append("b.state = ANY(%s)")
        values.append(list(states))
    if account_id is not None:
        where.append("b.account_id = %s")
        values.append(account_id)
    if text:
        where.append(
            "(b.name ILIKE %s OR 'B-' || b.number = upper(%s) OR b.reference ILIKE %s OR b.booked_by ILIKE %s)"
        )
        like = "%" + text.replace("\\", "\\\\").replace("%", r"\%").replace("_", r"\_") + "%"
        values += [like, text, like, like]
    if window is not None:
        where.append("b.ends_at > %s AND b.starts_at < %s")
        values += [window.start, window.end]
    if before is not None:
        where.append("b.number < %s")
        values.append(before)
    order = "b.starts_at, b.number" if oldest_first else "b.number DESC"
    cursor = work.pg.cursor(row_factory=class_row(Booking))
    return cursor.execute(
        f"{_BOOKING} WHERE {' AND '.join(where)} ORDER BY {order} LIMIT %s", [*values, limit]
    ).fetchall()


def list_where(work: Work, where: str, values: Sequence[Any]) -> list[Booking]:
    """Bookings by a condition (and order) of the caller's own, written over `b`."""
    return work.pg.cursor(row_factory=class_row(Booking)).execute(f"{_BOOKING} WHERE {where}", values).fetchall()


def count_by_state(work: Work, *, projects: Sequence[UUID] | None, account_id: UUID | None = None) -> dict[str, int]:
    """How many bookings are in each state. `projects` None: every project of the tenant."""
    rows = work.pg.execute(
        """SELECT state, count(*) FROM bookings WHERE tenant_id = berth_tenant()
              AND (%(projects)s::uuid[] IS NULL OR project_id = ANY(%(projects)s))
              AND (%(account)s::uuid IS NULL OR account_id = %(account)s) GROUP BY state""",
        {"projects": None if projects is None else list(projects), "account": account_id},
    )
    return dict(rows.fetchall())


def holds_of(work: Work, booking_id: UUID, *, lock: bool = False) -> tuple[Held, ...]:
    """A booking's holds in order of node; locked in id order when they will be written."""
    if lock:
        work.pg.execute("SELECT FROM holds WHERE booking_id = %s ORDER BY id FOR NO KEY UPDATE", [booking_id])
    return _held(work.pg.execute(_HELD.format("%s"), [booking_id]).fetchall())


_HELD = """
SELECT h.id, h.node_id, n.name, n.first_gpu, n.rack, n.leaf,
       ARRAY(SELECT ARRAY[lower(r), upper(r)] FROM unnest(h.units) r), lower(h.during), upper(h.during), h.live, h.pinned,
       h.left_at, (SELECT coalesce((k.facts->>'memory_eighths')::int, 8) * 8 FROM bookings b JOIN kinds k ON k.slug = b.kind
                    WHERE b.id = h.booking_id)
  FROM holds h JOIN nodes n ON n.id = h.node_id WHERE h.booking_id = {} AND h.left_at IS NULL ORDER BY n.name, h.id"""
_HELD_EVER = _HELD.replace(" AND h.left_at IS NULL", "")


def _held(rows: Iterable[tuple]) -> tuple[Held, ...]:
    return tuple(Held(*row[:6], tuple((lo, up) for lo, up in row[6]), *row[7:]) for row in rows)


@dataclass(frozen=True, slots=True)
class Detail:
    """What stands beside the row of a booking; `charged` None: nothing was charged so far."""

    held: tuple[Held, ...]
    segments: tuple[PriceSegment, ...]
    charged: Decimal | None
    conditions: tuple[ConditionLine, ...]
    history: tuple[HistoryLine, ...]


def detail_of(work: Work, booking_id: UUID) -> Detail:
    """Holds, price schedule, charges, open conditions and history of a booking, in one round trip."""
    held, segments, charges, conditions, history = work.together(
        (_HELD.format("%s"), [booking_id]),
        (_SEGMENTS, [booking_id]),
        (_CHARGED, [[booking_id]]),
        (_CONDITIONS.format("%s", "AND until IS NULL"), [booking_id]),
        (_HISTORY, [booking_id]),
    )
    return Detail(
        _held(held),
        _segments(segments),
        _amounts(charges).get(booking_id),
        tuple(ConditionLine(*row) for row in conditions),
        tuple(HistoryLine(*row) for row in history),
    )


def segments_of(work: Work, booking_id: UUID) -> tuple[PriceSegment, ...]:
    """The frozen price schedule, in order."""
    return _segments(work.pg.execute(_SEGMENTS, [booking_id]).fetchall())


_SEGMENTS = """
SELECT starts_at, ends_at, price_id, per_hour, units FROM booking_prices WHERE booking_id = %s ORDER BY starts_at"""


def _segments(rows: Iterable[tuple]) -> tuple[PriceSegment, ...]:
    return tuple(PriceSegment(Window(s, e), *rest) for s, e, *rest in rows)


def charged(work: Work, booking_ids: Iterable[UUID]) -> dict[UUID, Decimal]:
    """What each booking was charged so far, credits taken off, each line group rounded as on its statements.

    Bookings without charges are not in.
    """
    return _amounts(work.pg.execute(_CHARGED, [list(booking_ids)]).fetchall())


_CHARGED = """
SELECT booking_id, currency, sum(exact) FROM charges WHERE booking_id = ANY(%s)
 GROUP BY booking_id, currency, kind, unit_price, cost_centre"""


def _amounts(rows: Iterable[tuple]) -> dict[UUID, Decimal]:
    amounts: dict[UUID, Decimal] = {}
    for booking_id, currency, total in rows:
        amounts[booking_id] = amounts.get(booking_id, Decimal(0)) + line_amount(Fraction(total) / SCALE, currency)
    return amounts


def history_of(work: Work, booking_id: UUID) -> tuple[HistoryLine, ...]:
    """Every change, oldest first."""
    return tuple(_all(work, HistoryLine, _HISTORY, [booking_id]))


_HISTORY = "SELECT at, actor, event, before, after, why, changes FROM history WHERE booking_id = %s ORDER BY seq"
_CONDITIONS = "SELECT type, since, until, why FROM conditions WHERE booking_id = {} {} ORDER BY since, type"


def conditions_of(work: Work, booking_id: UUID, *, open_only: bool = True) -> tuple[ConditionLine, ...]:
    """What holds beside the state now, or ever did."""
    only = "AND until IS NULL" if open_only else ""
    return tuple(_all(work, ConditionLine, _CONDITIONS.format("%s", only), [booking_id]))


def allocation_of(work: Work, booking_id: UUID) -> Allocation | None:
    """The object on the cluster that serves a booking."""
    return _one(
        work,
        Allocation,
        f"SELECT {_ALLOCATION} FROM allocations a WHERE id = (SELECT allocation_id FROM holds "
        "WHERE booking_id = %s ORDER BY left_at NULLS FIRST LIMIT 1)",
        [booking_id],
    )


_ALLOCATION = """a.id, a.cluster_id, a.name, a.generation, a.gone, a.wanted, a.ensured, a.seen, a.seen_at,
                 a.in_place_since, a.empty_since, a.failures, a.last_error"""


@dataclass(frozen=True, slots=True)
class Served:
    """A booking as its object's due row leads to it, locked. `ours`: whether the lease counts; `pools`: rows of its pool.
    `left`: what it gave back and nobody has seen empty yet. `words`: what is said for its project over the pool's policy."""

    booking: Booking
    held: tuple[Held, ...]
    allocation: Allocation
    view: BookingView
    ours: bool
    now: datetime
    pools: list[tuple]
    left: tuple[Held, ...] = ()
    words: Sequence[tuple] = ()


def lock_served(work: Work, allocation_id: UUID, ours: tuple[str, Any], pool: str) -> Served | None:
    """Lock the booking that an object serves, its holds and whatever `ours` locks last, and read them as they are then:
    one round trip. None when the object serves no booking.

    `ours` answers with a row when the lease counts; `pool` is how inventory reads pools.
    """
    of = [allocation_id]
    _, _, kept, clock, bookings, held, allocations, conditions, outages, pools, words = work.together(
        (f"SELECT FROM bookings WHERE id = {_SERVED} FOR NO KEY UPDATE", of),
        (f"SELECT FROM holds WHERE booking_id = {_SERVED} ORDER BY id FOR NO KEY UPDATE", of),
        ours,
        (PRODUCT_NOW, None),
        (f"{_BOOKING} WHERE b.id = {_SERVED}", of),
        (_HELD_EVER.format(_SERVED), of),
        (f"SELECT {_ALLOCATION} FROM allocations a WHERE id = %s", of),
        (_CONDITIONS.format(_SERVED, "AND until IS NULL"), of),
        (_OUTAGES.format(_SERVED), of),
        (f"{pool} WHERE p.id = (SELECT pool_id FROM bookings WHERE id = {_SERVED})", of),
        (f"{OVERRIDES_OF} (SELECT project_id FROM bookings WHERE id = {_SERVED})) {IN_ORDER}", of),
    )
    if not bookings:
        return None
    booking, ever, allocation = Booking(*bookings[0]), _held(held), Allocation(*allocations[0])
    holds, left = tuple(h for h in ever if h.left_at is None), tuple(h for h in ever if h.left_at and h.live)
    view = _view(booking, holds, allocation, conditions, outages)
    return Served(booking, holds, allocation, view, bool(kept), work.product_now_of(clock), pools, left, words)


def lock_metered(work: Work, booking_id: UUID) -> tuple[Booking, tuple[Held, ...], tuple[PriceSegment, ...]] | None:
    """Lock a booking and read it with all that it ever held and its price schedule, in one round trip."""
    of = [booking_id]
    _, bookings, held, segments = work.together(
        ("SELECT FROM bookings WHERE id = %s FOR NO KEY UPDATE", of),
        (f"{_BOOKING} WHERE b.id = %s", of),
        (_HELD_EVER.format("%s"), of),
        (_SEGMENTS, of),
    )
    return (Booking(*bookings[0]), _held(held), _segments(segments)) if bookings else None


_SERVED = "(SELECT booking_id FROM holds WHERE allocation_id = %s AND booking_id IS NOT NULL LIMIT 1)"
_OUTAGES = "SELECT lower(units) / 64, since, until, why FROM outages WHERE booking_id = {} ORDER BY since, units"


def view_of(work: Work, booking: Booking, held: Sequence[Held], allocation: Allocation) -> BookingView:
    """What the life of a booking depends on, as lifecycle.py wants it."""
    conditions, outages = work.together(
        (_CONDITIONS.format("%s", "AND until IS NULL"), [booking.id]), (_OUTAGES.format("%s"), [booking.id])
    )
    return _view(booking, held, allocation, conditions, outages)


def _view(
    booking: Booking,
    held: Sequence[Held],
    allocation: Allocation,
    condition_rows: Iterable[tuple],
    outage_rows: Iterable[tuple],
) -> BookingView:
    conditions = {
        Condition(kind): Standing(since, why)
        for kind, since, _, why in condition_rows
        if kind in Condition.__members__.values()
    }
    outages = tuple(Outage(*row) for row in outage_rows)
    seen = None
    if allocation.seen is not None:
        seen = Seen(allocation.seen, None, allocation.in_place_since, allocation.empty_since)  # type: ignore[arg-type]
    return BookingView(
        state=State(booking.state),
        window=booking.window,
        units=tuple(g for h in held for g in h.gpus),
        provided_at=booking.provided_at,
        left_by=None if booking.left_by is None else Event(booking.left_by),
        left_at=booking.released_at,
        freed_at=booking.emptied_at,
        conditions=conditions,
        outages=outages,
        asked=booking.asked,
        wanted=allocation.wanted,
        ensured=allocation.ensured,
        seen=seen,
        failures=allocation.failures,
    )


# --- writing what changes ---------------------------------------------------------------------------------------------


def advance(
    work: Work,
    booking_id: UUID,
    state: State,
    event: Event,
    at: datetime,
    actor: Actor,
    now: datetime,
    why: str = "",
    changes: dict[str, Any] | None = None,
) -> State:
    """Move a booking by an event and write the history row. The one writer of `bookings.state`.

    The row is locked by the caller, `state` is what it says. Raises IllegalMove when the table has no such move.
    """
    after = move(state, event)
    outcome = "(SELECT CASE left_by " + " ".join(f"WHEN '{e}' THEN '{o}'" for e, o in OUTCOMES.items()) + " END)"
    sets = ["state = %(after)s", "version = version + 1"]
    if event is Event.PROVIDE:
        sets.append("provided_at = %(at)s")
    if event is Event.BEGIN:
        sets.append("asked = true")
    if event in OUTCOMES:
        sets += ["left_by = %(event)s", "released_at = %(at)s"]
    if event is Event.EMPTIED:
        sets += ["emptied_at = %(at)s", f"outcome = {outcome}"]
    work.pg.execute(
        f"UPDATE bookings SET {', '.join(sets)} WHERE id = %(id)s",
        {"after": after, "at": at, "event": event, "id": booking_id},
    )
    note(work, booking_id, event, state, after, actor, now, why, {"at": at.isoformat(), **(changes or {})})
    return after


def note(
    work: Work,
    booking_id: UUID,
    event: str,
    before: str | None,
    after: str,
    actor: Actor,
    now: datetime,
    why: str,
    changes: dict[str, Any] | None = None,
) -> None:
    """One history row: who, when, why, from what to what."""
    work.pg.execute(
        """INSERT INTO history (tenant_id, booking_id, at, account_id, actor, event, before, after, why, changes)
           VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)""",
        [
            work.tenant_id,
            booking_id,
            now,
            actor.account_id,
            actor.label,
            event,
            before,
            after,
            why,
            None if changes is None else Jsonb(changes),
        ],
    )


def apply_changes(
    work: Work, booking_id: UUID, state: State, changes: Iterable[Change], actor: Actor, now: datetime
) -> State:
    """Write what lifecycle.py decided, in order; returns the state after it."""
    changes = tuple(changes)
    if not changes:
        return state
    with work.pg.pipeline():  # writes, none of which waits for an answer
        for change in changes:
            match change:
                case Move(event, at, why):
                    state = advance(work, booking_id, state, event, at, actor, now, why)
                case Raise(condition, since, why):
                    work.pg.execute(
                        """INSERT INTO conditions (tenant_id, id, booking_id, type, since, until, why)
                           VALUES (%s, %s, %s, %s, %s, NULL, %s)
                           ON CONFLICT (booking_id, type) WHERE until IS NULL DO UPDATE SET why = excluded.why""",
                        [work.tenant_id, new_id(), booking_id, condition, since, why],
                    )
                case Clear(condition, at):
                    work.pg.execute(
                        """UPDATE conditions SET until = greatest(since, %s)
                            WHERE booking_id = %s AND type = %s AND until IS NULL""",
                        [at, booking_id, condition],
                    )
                case Lose(outage):
                    work.pg.execute(
                        """INSERT INTO outages (tenant_id, id, booking_id, units, since, until, why)
                           VALUES (%s, %s, %s, %s::int4multirange, %s, %s, %s)""",
                        [
                            work.tenant_id,
                            new_id(),
                            booking_id,
                            multirange([(64 * outage.unit, 64 * outage.unit + 64)]),
                            outage.since,
                            outage.until,
                            outage.why,
                        ],
                    )
                case Regain(unit, since, at):
                    work.pg.execute(
                        """UPDATE outages SET until = %s WHERE booking_id = %s AND since = %s AND until IS NULL
                              AND lower(units) = %s""",
                        [at, booking_id, since, 64 * unit],
                    )
    return state


def pin_holds(work: Work, booking_id: UUID) -> None:
    """From here on the units are those: no recolouring moves them. The holds are locked by the caller."""
    work.pg.execute("UPDATE holds SET pinned = true WHERE booking_id = %s AND live AND NOT pinned", [booking_id])


def free_holds(work: Work, booking_id: UUID, at: datetime) -> None:
    """The units are given back: the holds keep what they occupied, up to `at`, and block nobody any more."""
    work.pg.execute(
        """UPDATE holds SET live = false,
                  during = tstzrange(lower(during), least(upper(during), greatest(%s, lower(during) + interval '1 second')))
            WHERE booking_id = %s AND live""",
        [at, booking_id],
    )


def grow_holds(work: Work, booking_id: UUID, blocked_until: datetime) -> None:
    """Occupy the same units for longer. The pool is locked by the caller; a taken unit raises ExclusionViolation."""
    work.pg.execute(
        "UPDATE holds SET during = tstzrange(lower(during), %s) WHERE booking_id = %s AND live AND left_at IS NULL",
        [blocked_until, booking_id],
    )


def extend_booking(
    work: Work, booking_id: UUID, end: datetime, quoted: Decimal, segments: Sequence[PriceSegment]
) -> None:
    """A later end, the price of all of it, and the schedule of what was added."""
    work.pg.execute(
        "UPDATE bookings SET ends_at = %s, quoted = %s, version = version + 1 WHERE id = %s", [end, quoted, booking_id]
    )
    with work.pg.cursor() as cursor:
        cursor.executemany(
            """INSERT INTO booking_prices (tenant_id, booking_id, starts_at, ends_at, price_id, per_hour)
               VALUES (%s, %s, %s, %s, %s, %s)""",
            [(work.tenant_id, booking_id, s.window.start, s.window.end, s.price_id, s.per_hour) for s in segments],
        )


def close_allocation_of(work: Work, booking_id: UUID) -> None:
    """The allocation of a booking is known and final: whatever a cluster still has of it is a stray."""
    work.pg.execute(
        "UPDATE allocations SET gone = true WHERE id IN (SELECT allocation_id FROM holds WHERE booking_id = %s)",
        [booking_id],
    )


def store_seen(work: Work, allocation_id: UUID, ensured: int, seen: Observation, now: datetime) -> None:
    """The last observation of an object, and which version of it the cluster last took."""
    work.pg.execute(
        """UPDATE allocations SET ensured = greatest(ensured, %s), seen = %s, seen_at = %s, in_place_since = %s,
                  empty_since = %s, failures = 0, last_error = NULL WHERE id = %s""",
        [ensured, seen.state, now, seen.in_place_since, seen.empty_since, allocation_id],
    )


def store_failure(work: Work, allocation_id: UUID, error: str) -> None:
    """A call that failed: counted, with the words for operators."""
    work.pg.execute(
        "UPDATE allocations SET failures = failures + 1, last_error = %s WHERE id = %s", [error[:500], allocation_id]
    )


def people_of(work: Work, booking: Booking) -> tuple[str, ...]:
    """The people who get access, by their user names on the booking's cluster: whose it is and the leads of the project;
    when it is shared, its members too. Whoever has none there yet is given one."""
    rows = work.pg.execute(
        """SELECT a.id FROM accounts a
            WHERE NOT a.disabled AND (a.id = %s OR a.id IN (
                SELECT account_id FROM memberships WHERE project_id = %s AND (role = 'lead' OR role = 'member'
                   AND (SELECT shared FROM bookings WHERE id = %s))))""",
        [booking.account_id, booking.project_id, booking.id],
    ).fetchall()
    names = cluster_users.names_on(work, booking.cluster_id, [row[0] for row in rows])
    return tuple(sorted(names.values()))


def gone_names(work: Work, names: Iterable[str]) -> list[str]:
    """Of these names those that are known and final: what a cluster has of them may be removed."""
    rows = work.pg.execute("SELECT name FROM allocations WHERE gone AND name = ANY(%s)", [list(names)]).fetchall()
    return [row[0] for row in rows]


def want_more(work: Work, booking_id: UUID) -> None:
    """What should be on the cluster has changed: the next look brings it there."""
    work.pg.execute(
        "UPDATE allocations SET wanted = wanted + 1 WHERE id IN (SELECT allocation_id FROM holds WHERE booking_id = %s)",
        [booking_id],
    )


def record_refusal(
    work: Work, now: datetime, project_id: UUID | None, account_id: UUID | None, codes: Sequence[str], wanted: dict
) -> None:
    """For statistics: what was asked and why it could not be."""
    work.pg.execute(
        "INSERT INTO refusals (tenant_id, id, at, project_id, account_id, codes, wanted) VALUES (%s, %s, %s, %s, %s, %s, %s)",
        [work.tenant_id, new_id(), now, project_id, account_id, list(codes), Jsonb(wanted)],
    )


def set_first_used(work: Work, booking_id: UUID, at: datetime) -> None:
    """When a workload first held a unit, as usage tells; the earliest word counts."""
    work.pg.execute("UPDATE bookings SET first_used_at = least(first_used_at, %s) WHERE id = %s", [at, booking_id])


def _one(work: Work, shape: type, sql: str, values: Sequence[Any]) -> Any:
    return work.pg.cursor(row_factory=class_row(shape)).execute(sql, values).fetchone()


def _all(work: Work, shape: type, sql: str, values: Sequence[Any]) -> list[Any]:
    return work.pg.cursor(row_factory=class_row(shape)).execute(sql, values).fetchall()
