"""SQL about what stands around a booking in its life: who was on its units before, who comes after, what ails them.

Holds and nodes are nobody's secret; whatever has a tenant's words in it is read under row-level security, or by
`Work.read_all` where the caller says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from app.bookings.facts import Booking
from app.plumbing.db import Work

# --- before and after -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Before:
    """Who was on a booking's units before it. `still`: units that are not seen empty yet; `empty_since`: when the last
    were that are."""

    still: bool
    empty_since: datetime | None


_MINE = "(SELECT range_agg(u.r) FROM holds m, unnest(m.units) u (r) WHERE m.booking_id = %(id)s AND m.live AND m.left_at IS NULL)"


def before(work: Work, booking: Booking) -> Before:
    """What the units of a booking wait for: a hold that is over and still lives was not seen empty."""
    row = work.pg.execute(
        f"""SELECT EXISTS (SELECT FROM holds h WHERE h.live AND h.units && {_MINE} AND upper(h.during) <= %(start)s
                              AND h.during && tstzrange(NULL, %(start)s) AND h.booking_id IS DISTINCT FROM %(id)s),
                   (SELECT max(a.empty_since) FROM holds h JOIN allocations a ON a.id = h.allocation_id AND a.gone
                     WHERE NOT h.live AND h.pinned AND h.units && {_MINE}
                       AND h.node_id IN (SELECT node_id FROM holds WHERE booking_id = %(id)s AND live)
                       AND upper(h.during) > %(start)s::timestamptz - interval '1 day' AND upper(h.during) <= %(start)s
                       AND h.booking_id IS DISTINCT FROM %(id)s)""",
        {"id": booking.id, "start": booking.starts_at},
    ).fetchone()
    return Before(*row)


def is_idle(work: Work, booking_id: UUID) -> bool:
    """Whether a booking is called idle now."""
    sql = "SELECT FROM conditions WHERE booking_id = %s AND type = 'idle' AND until IS NULL"
    return work.pg.execute(sql, [booking_id]).rowcount == 1


def follows_at(work: Work, booking: Booking) -> datetime | None:
    """When somebody else needs one of the booking's units after its end; None: nobody does."""
    return work.pg.execute(
        f"""SELECT min(lower(h.during)) FROM holds h
             WHERE h.live AND h.units && {_MINE} AND h.booking_id IS DISTINCT FROM %(id)s
               AND h.during && tstzrange(%(end)s, %(end)s::timestamptz + interval '2 days')""",
        {"id": booking.id, "end": booking.ends_at},
    ).fetchone()[0]


def goes_on(work: Work, booking: Booking) -> bool:
    """Whether the same person and project have all of these units in a booking that begins when this one ends."""
    return bool(
        work.pg.execute(
            f"""SELECT FROM bookings n JOIN holds h ON h.booking_id = n.id AND h.live AND h.left_at IS NULL
                 WHERE n.tenant_id = %(tenant)s AND n.project_id = %(project)s AND n.account_id = %(account)s
                   AND n.starts_at = %(end)s AND n.state IN ('BOOKED', 'STARTING') AND n.id <> %(id)s
                 GROUP BY n.id HAVING (SELECT range_agg(u.r) FROM unnest(array_agg(h.units)) x (m), unnest(x.m) u (r)) @> {_MINE}""",
            {
                "tenant": booking.tenant_id,
                "project": booking.project_id,
                "account": booking.account_id,
                "end": booking.ends_at,
                "id": booking.id,
            },
        ).rowcount
    )


# --- capacity that shrank ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ailing:
    """A booking to come (or that is starting) with units that are no capacity: whose, since when, and why."""

    tenant_id: UUID
    booking_id: UUID
    since: datetime
    why: str
    node: str


# One row for each booking and reason, begun at the few nodes and units that ail: units on a node that is out, units with a
# fault, units in use by others at the time of the booking, slots that will be gone.
_AILING = """
WITH out_of_service AS (
  SELECT n.id AS node_id, n.name, int4multirange(int4range(n.first_gpu * 64, (n.first_gpu + n.gpus) * 64)) AS units,
         coalesce(o.since, n.removed_at, %(now)s) AS since, NULL::timestamptz AS until,
         'Node ' || n.name || ' is ' || CASE WHEN n.removed_at IS NOT NULL THEN 'no longer there.' ELSE
           CASE n.state WHEN 'down' THEN 'down' WHEN 'drained' THEN 'drained' ELSE 'not seen' END
           || coalesce(': ' || nullif(n.why, ''), '.') END AS why
    FROM nodes n LEFT JOIN node_outages o ON o.node_id = n.id AND o.until IS NULL
   WHERE n.cluster_id = %(cluster)s AND (n.removed_at IS NOT NULL OR n.state <> 'ready')
  UNION ALL
  SELECT n.id, n.name, int4multirange(int4range(f.gpu * 64, f.gpu * 64 + 64)), f.since, NULL,
         'GPU ' || f.gpu - n.first_gpu || ' of node ' || n.name || ': ' || f.why
    FROM unit_faults f JOIN nodes n ON n.id = f.node_id WHERE n.cluster_id = %(cluster)s AND f.until IS NULL
  UNION ALL
  SELECT n.id, n.name, e.units, e.since, e.until, 'Units of node ' || n.name || ' are in use by others: ' || e.what || '.'
    FROM external_use e JOIN nodes n ON n.id = e.node_id WHERE n.cluster_id = %(cluster)s AND e.ended_at IS NULL)
SELECT b.tenant_id, b.id, o.since, o.why, o.name
  FROM out_of_service o
  JOIN holds h ON h.node_id = o.node_id AND h.live AND h.left_at IS NULL AND upper(h.during) > %(now)s AND h.units && o.units
              AND (o.until IS NULL OR o.until > lower(h.during))
  JOIN bookings b ON b.id = h.booking_id
 WHERE b.state IN ('REQUESTED', 'BOOKED', 'STARTING') AND b.ends_at > %(now)s
UNION ALL
SELECT b.tenant_id, b.id, greatest(upper(s.valid), lower(h.during)), 'Units of node ' || n.name || ' are taken out.', n.name
  FROM slots s JOIN nodes n ON n.id = s.node_id
  JOIN holds h ON h.node_id = n.id AND h.live AND h.left_at IS NULL AND upper(h.during) > upper(s.valid)
              AND s.positions && h.units
  JOIN bookings b ON b.id = h.booking_id
 WHERE n.cluster_id = %(cluster)s AND NOT upper_inf(s.valid)
   -- on the same GPU there may be units of another layout by then, which are the ones that are held
   AND h.units <@ coalesce((SELECT range_agg(x.positions) FROM slots x
                             WHERE x.node_id = h.node_id AND x.kind = b.kind AND x.positions && h.units
                               AND x.valid @> tstzrange(greatest(lower(h.during), %(now)s), b.ends_at)), '{}') IS FALSE
   AND b.state IN ('REQUESTED', 'BOOKED', 'STARTING') AND b.ends_at > %(now)s
 ORDER BY 1, 2, 3"""


def ailing(work: Work, cluster_id: int, now: datetime) -> list[Ailing]:
    """Every booking of a cluster that has not begun and whose units are no capacity as things are, and why; several rows
    for one that has several reasons. Reads across tenants: call it inside `read_all`."""
    return [Ailing(*row) for row in work.pg.execute(_AILING, {"cluster": cluster_id, "now": now}).fetchall()]


def at_risk(work: Work, cluster_id: int) -> list[tuple[UUID, UUID]]:
    """(tenant, booking) of a cluster that are called at risk now. Call it inside `read_all`."""
    return work.pg.execute(
        """SELECT c.tenant_id, c.booking_id FROM conditions c JOIN bookings b ON b.id = c.booking_id
            WHERE c.type = 'at_risk' AND c.until IS NULL AND b.cluster_id = %s ORDER BY 1, 2""",
        [cluster_id],
    ).fetchall()


def operators(work: Work) -> list[UUID]:
    """The accounts of the platform's operators."""
    rows = work.pg.execute(
        """SELECT r.account_id FROM platform_roles r JOIN accounts a ON a.id = r.account_id
            WHERE r.role = 'operator' AND NOT a.disabled ORDER BY 1"""
    )
    return [row[0] for row in rows.fetchall()]


def told_at(work: Work, account_id: UUID, keys: list[str]) -> datetime | None:
    """When a person was first told one of these things."""
    return work.pg.execute(
        "SELECT min(at) FROM outbox WHERE tenant_id = %s AND account_id = %s AND key = ANY(%s)",
        [work.tenant_id, account_id, keys],
    ).fetchone()[0]


# --- other units ------------------------------------------------------------------------------------------------------


def leave_units(work: Work, hold_ids: list[UUID], at: datetime, running: bool) -> None:
    """These holds are the booking's no longer, from `at` on. Those of one that runs stay blocked until the cluster says
    that nothing of it is on them; one that has not begun never had them. Locked by the caller."""
    if running:
        work.pg.execute("UPDATE holds SET left_at = %s WHERE id = ANY(%s)", [at, hold_ids])
        return
    work.pg.execute(
        """UPDATE holds SET live = false, left_at = greatest(%(at)s, lower(during)),
                  during = tstzrange(lower(during), least(upper(during), greatest(%(at)s, lower(during) + interval '1 second')))
            WHERE id = ANY(%(ids)s)""",
        {"ids": hold_ids, "at": at},
    )


def take_units(
    work: Work,
    booking_id: UUID,
    allocation_id: UUID,
    holds: list[tuple[UUID, int, str]],
    start: datetime,
    end: datetime,
    pinned: bool,
) -> None:
    """Hold other units for a booking: (id, node, multirange text) each. The pool is locked by the caller."""
    work.pg.execute(
        """INSERT INTO holds (id, booking_id, allocation_id, node_id, units, during, live, pinned)
           SELECT i, %s, %s, n, u::int4multirange, tstzrange(%s, %s), true, %s
             FROM unnest(%s::uuid[], %s::int[], %s::text[]) AS v(i, n, u)""",
        [
            booking_id,
            allocation_id,
            start,
            end,
            pinned,
            [i for i, _, _ in holds],
            [n for _, n, _ in holds],
            [u for _, _, u in holds],
        ],
    )


def next_generation(work: Work, allocation_id: UUID) -> None:
    """The object on the cluster is made anew under another name: nothing is known of it yet."""
    work.pg.execute(
        """UPDATE allocations SET generation = generation + 1, wanted = wanted + 1, ensured = 0, seen = NULL,
                  in_place_since = NULL, empty_since = NULL, failures = 0,
                  name = regexp_replace(name, '-g[0-9]+$', '-g' || (generation + 1)) WHERE id = %s""",
        [allocation_id],
    )


def changed(work: Work, booking_id: UUID) -> None:
    """The row of the booking says something else than before: whoever looked before has to look again."""
    work.pg.execute("UPDATE bookings SET version = version + 1 WHERE id = %s", [booking_id])


def replaced_at(work: Work, booking_id: UUID) -> datetime | None:
    """When the booking was last given other units; None: never."""
    row = work.pg.execute(
        "SELECT max(at) FROM history WHERE booking_id = %s AND event = 'replace'", [booking_id]
    ).fetchone()
    return row[0] if row else None
