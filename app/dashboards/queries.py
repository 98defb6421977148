"""Reading statements that join rooms. Whatever has a tenant's names in it is read under that tenant's row-level
security; holds and the inventory are nobody's secret, and say nothing of whose they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction
from uuid import UUID

from app.bookings.capacity import Busy
from app.kernel.window import Window
from app.plumbing.db import Work

# --- timeline ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HeldRange:
    """A range of positions on a node, taken for a time (epoch seconds). The booking is an opaque id here."""

    node_id: int
    lower: int
    upper: int
    start: int
    end: int
    booking_id: UUID | None
    request_id: UUID | None
    pinned: bool


@dataclass(frozen=True, slots=True)
class OwnBooking:
    """A booking of the tenant acted for: what a bar may say."""

    id: UUID
    number: int
    name: str
    state: str
    project_id: UUID
    account_id: UUID | None
    ends_at: datetime


@dataclass(frozen=True, slots=True)
class Trouble:
    """Time in which units of a node were no capacity, or were in use by others than Berth. `state` is of the node
    ("down", "drained", "unknown"), "maintenance" where it is announced, "faulty" for single units, or "external". Ranges
    are positions; none: the node."""

    node_id: int
    state: str
    ranges: tuple[tuple[int, int], ...]
    start: datetime
    end: datetime | None
    why: str


# A hold that was freed early keeps the time that it occupied; one of a second was cancelled before it began.
_FROM_HOLDS = """FROM holds h, unnest(h.units) r
 WHERE h.node_id = ANY(%(nodes)s) AND upper(h.during) > %(start)s AND lower(h.during) < %(end)s"""
_LIVE = "AND h.live"
_PAST = "AND NOT h.live AND upper(h.during) - lower(h.during) > interval '1 second'"
_HELD = f"""SELECT h.node_id, lower(r), upper(r), extract(epoch FROM lower(h.during))::bigint,
                   extract(epoch FROM upper(h.during))::bigint, h.booking_id, h.request_id, h.pinned {_FROM_HOLDS}"""
_PACKED = f"""SELECT coalesce(string_agg(int4send(lower(r)), ''), ''), coalesce(string_agg(int4send(upper(r)), ''), ''),
                     coalesce(string_agg(int8send(extract(epoch FROM lower(h.during))::bigint), ''), ''),
                     coalesce(string_agg(int8send(extract(epoch FROM upper(h.during))::bigint), ''), '') {_FROM_HOLDS}"""


def held_ranges(work: Work, nodes: Sequence[int], window: Window, now: datetime) -> list[HeldRange]:
    """What is or was held on these nodes in a window, everybody's, in no order."""
    values = {"nodes": list(nodes), "start": window.start, "end": window.end}
    rows = work.pg.execute(f"{_HELD} {_LIVE}", values).fetchall()
    if window.start < now:
        rows += work.pg.execute(f"{_HELD} {_PAST}", values).fetchall()
    return [HeldRange(*row) for row in rows]


def busy_in(work: Work, nodes: Sequence[int], window: Window, now: datetime) -> Busy:
    """The same without whose it is, packed: for counting what is free on thousands of nodes."""
    values = {"nodes": list(nodes), "start": window.start, "end": window.end}
    busy = Busy.of_bytes(*work.pg.execute(f"{_PACKED} {_LIVE}", values).fetchone())
    if window.start < now:
        busy = busy.plus(Busy.of_bytes(*work.pg.execute(f"{_PACKED} {_PAST}", values).fetchone()))
    return busy


def own_bookings(work: Work, held: Iterable[HeldRange]) -> dict[UUID, OwnBooking]:
    """Of these owners those of the tenant acted for, by the id of the booking or of its request."""
    if work.tenant_id is None:
        return {}
    bookings, requests = set(), set()
    for one in held:
        if one.booking_id is not None:
            bookings.add(one.booking_id)
        elif one.request_id is not None:
            requests.add(one.request_id)
    columns = "b.id, b.number, b.name, b.state, b.project_id, b.account_id, b.ends_at"
    rows = work.pg.execute(
        f"""SELECT b.id, {columns} FROM bookings b WHERE b.id = ANY(%s)
             UNION ALL SELECT r.id, {columns} FROM requests r JOIN bookings b ON b.id = r.booking_id
             WHERE r.id = ANY(%s)""",
        [list(bookings), list(requests)],
    )
    return {row[0]: OwnBooking(*row[1:]) for row in rows}


def troubles(work: Work, nodes: Sequence[int], window: Window) -> list[Trouble]:
    """Outages, faults, external use and announced maintenance on these nodes in a window."""
    values = {"nodes": list(nodes), "start": window.start, "end": window.end}
    outages = work.pg.execute(
        """SELECT node_id, state, since, until, coalesce(why, '') FROM node_outages
            WHERE node_id = ANY(%(nodes)s) AND since < %(end)s AND (until IS NULL OR until > %(start)s)""",
        values,
    ).fetchall()
    faults = work.pg.execute(
        """SELECT node_id, gpu, since, until, why FROM unit_faults
            WHERE node_id = ANY(%(nodes)s) AND since < %(end)s AND (until IS NULL OR until > %(start)s)""",
        values,
    ).fetchall()
    external = work.pg.execute(
        """SELECT node_id, ARRAY(SELECT ARRAY[lower(r), upper(r)] FROM unnest(units) r), since,
                  coalesce(ended_at, CASE WHEN until > seen_at THEN until END), what FROM external_use
            WHERE node_id = ANY(%(nodes)s) AND since < %(end)s AND (ended_at IS NULL OR ended_at > %(start)s)""",
        values,
    ).fetchall()
    announced = work.pg.execute(
        """SELECT x.node_id, greatest(lower(m.during), %(start)s), least(upper(m.during), m.cancelled_at, %(end)s), m.name
             FROM maintenance_nodes x JOIN maintenances m ON m.id = x.maintenance_id
            WHERE x.node_id = ANY(%(nodes)s) AND m.during && tstzrange(%(start)s, %(end)s)
              AND (m.cancelled_at IS NULL OR m.cancelled_at > greatest(lower(m.during), %(start)s))""",
        values,
    ).fetchall()
    return [
        *(Trouble(node, "maintenance", (), since, until, name) for node, since, until, name in announced),
        *(Trouble(node, state, (), since, until, why) for node, state, since, until, why in outages),
        *(
            Trouble(node, "faulty", ((64 * gpu, 64 * gpu + 64),), since, until, why)
            for node, gpu, since, until, why in faults
        ),
        *(
            Trouble(node, "external", tuple((lo, up) for lo, up in ranges), since, until, what)
            for node, ranges, since, until, what in external
        ),
    ]


# --- bookings in lists ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Around:
    """What a list says beside a booking: its nodes (planned until pinned), the share of its measured time that was
    used (None: nothing measured yet), and its open conditions as (type, since, why)."""

    nodes: tuple[str, ...]
    planned: bool
    used: Fraction | None
    conditions: tuple[tuple[str, datetime, str], ...]


def around(work: Work, bookings: Sequence[UUID]) -> dict[UUID, Around]:
    """The same for several bookings at once."""
    ids = list(bookings)
    nodes = {
        row[0]: (tuple(row[1]), not row[2])
        for row in work.pg.execute(
            """SELECT h.booking_id, array_agg(DISTINCT n.name ORDER BY n.name), bool_and(h.pinned)
                 FROM holds h JOIN nodes n ON n.id = h.node_id WHERE h.booking_id = ANY(%s) AND h.left_at IS NULL
                GROUP BY h.booking_id""",
            [ids],
        )
    }
    used = {
        row[0]: Fraction(int(row[1]), int(row[2]))
        for row in work.pg.execute(
            """SELECT booking_id, sum(used), sum(used + unused) FROM usage WHERE booking_id = ANY(%s)
                GROUP BY booking_id HAVING sum(used + unused) > 0""",
            [ids],
        )
    }
    open_: dict[UUID, list[tuple[str, datetime, str]]] = {}
    for booking, type_, since, why in work.pg.execute(
        """SELECT booking_id, type, since, why FROM conditions
            WHERE booking_id = ANY(%s) AND until IS NULL ORDER BY since""",
        [ids],
    ):
        open_.setdefault(booking, []).append((type_, since, why))
    return {i: Around(*nodes.get(i, ((), True)), used.get(i), tuple(open_.get(i, ()))) for i in ids}


def rates_now(work: Work, scopes: Sequence[int], now: datetime) -> dict[int, int]:
    """Units x 840 that are taken of each limit at this instant."""
    rows = work.pg.execute(
        """SELECT scope_id, sum(rate)::bigint FROM commitments
            WHERE scope_id = ANY(%s) AND starts_at <= %s AND ends_at > %s GROUP BY scope_id""",
        [list(scopes), now, now],
    )
    return dict(rows.fetchall())


def notices_of(work: Work, account_id: UUID, limit: int) -> list[tuple[str, dict[str, object], datetime]]:
    """The newest notices of a person in the tenant acted for: (kind, payload, at)."""
    return work.pg.execute(
        "SELECT kind, payload, at FROM outbox WHERE account_id = %s ORDER BY at DESC, id DESC LIMIT %s",
        [account_id, limit],
    ).fetchall()


# --- a project's month ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChargeLine:
    """A charge of a project in a month, as the chart of days and the columns of kinds need it."""

    booking_id: UUID
    kind: str
    unit_kind: str
    person: str
    quantity: int
    start: datetime
    end: datetime


def charge_lines(work: Work, project_id: UUID, month: date) -> list[ChargeLine]:
    """Every charge of a project in a month of the tenant acted for."""
    rows = work.pg.execute(
        """SELECT booking_id, kind, unit_kind, person, quantity, starts_at, ends_at FROM charges
            WHERE tenant_id = berth_tenant() AND project_id = %s AND month = %s ORDER BY starts_at, id""",
        [project_id, month],
    )
    return [ChargeLine(*row) for row in rows]


def in_ledger(work: Work, booking_id: UUID) -> tuple[int, bool]:
    """(quantity of charged use, whether there is any charge) of a booking."""
    row = work.pg.execute(
        """SELECT coalesce(sum(quantity) FILTER (WHERE kind = 'use'), 0)::bigint, count(*) > 0 FROM charges
            WHERE booking_id = %s""",
        [booking_id],
    ).fetchone()
    return row[0], row[1]


def months_of_project(work: Work, project_id: UUID) -> list[date]:
    """Months in which the project was charged anything, newest first."""
    rows = work.pg.execute(
        """SELECT DISTINCT month FROM charges WHERE tenant_id = berth_tenant() AND project_id = %s
            ORDER BY month DESC""",
        [project_id],
    )
    return [row[0] for row in rows]


def counts_by_project(work: Work) -> dict[UUID, tuple[int, int]]:
    """(active, coming) bookings of each project of the tenant acted for."""
    rows = work.pg.execute(
        """SELECT project_id, count(*) FILTER (WHERE state IN ('STARTING', 'ACTIVE', 'ENDING')),
                  count(*) FILTER (WHERE state IN ('WAITING', 'REQUESTED', 'BOOKED'))
             FROM bookings WHERE tenant_id = berth_tenant()
              AND state IN ('STARTING', 'ACTIVE', 'ENDING', 'WAITING', 'REQUESTED', 'BOOKED') GROUP BY project_id"""
    )
    return {row[0]: (row[1], row[2]) for row in rows}


def projects_of_bookings(work: Work, bookings: Iterable[UUID]) -> dict[UUID, UUID]:
    """The project of each booking."""
    rows = work.pg.execute("SELECT id, project_id FROM bookings WHERE id = ANY(%s)", [list(bookings)])
    return dict(rows.fetchall())


# --- clusters ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkWaiting:
    """Work that brings a cluster to what bookings say."""

    cluster: str
    due: int
    in_flight: int
    retrying: int
    stuck: int
    oldest: timedelta | None


@dataclass(frozen=True, slots=True)
class Drifting:
    """An object that is not as it should be. No name of a booking: whose it is, is the tenant's."""

    name: str
    seen: str
    since: datetime | None
    error: str | None


def units_booked_now(work: Work, now: datetime) -> dict[int, int]:
    """How many units are held on each cluster at this instant."""
    rows = work.pg.execute(
        """SELECT n.cluster_id, count(DISTINCT s.gpu) FROM holds h JOIN nodes n ON n.id = h.node_id
             JOIN slots s ON s.node_id = n.id AND s.positions && h.units AND s.valid @> %(now)s
            WHERE h.live AND upper(h.during) > %(now)s AND lower(h.during) <= %(now)s GROUP BY n.cluster_id""",
        {"now": now},
    )
    return dict(rows.fetchall())


def work_waiting(work: Work, now: datetime) -> tuple[WorkWaiting, ...]:
    """What is due on each cluster, what is in flight, and what failed before."""
    rows = work.pg.execute(
        """SELECT c.name, count(*) FILTER (WHERE d.next_at <= %(now)s AND d.lease_token IS NULL),
                  count(*) FILTER (WHERE d.lease_token IS NOT NULL AND d.leased_until > %(wall)s),
                  count(*) FILTER (WHERE a.failures BETWEEN 1 AND 4), count(*) FILTER (WHERE a.failures >= 5),
                  %(now)s - min(d.next_at) FILTER (WHERE d.next_at <= %(now)s)
             FROM clusters c LEFT JOIN due d ON d.cluster_id = c.id LEFT JOIN allocations a ON a.id = d.subject
            GROUP BY c.name ORDER BY c.name""",
        {"now": now, "wall": work.wall},
    )
    return tuple(WorkWaiting(*row) for row in rows)


def drifting(work: Work, cluster_id: int) -> list[Drifting]:
    """Objects on a cluster that are degraded, blocked or missing, or that could not be brought about."""
    rows = work.pg.execute(
        """SELECT name, coalesce(seen, 'not seen yet'), seen_at, last_error FROM allocations
            WHERE cluster_id = %s AND NOT gone AND (seen IN ('degraded', 'blocked') OR failures > 0
                  OR (seen IN ('absent', 'gone') AND ensured = wanted AND ensured > 0))
            ORDER BY name LIMIT 50""",
        [cluster_id],
    )
    return [Drifting(*row) for row in rows]
