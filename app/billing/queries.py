"""Every SQL statement of the room. Tenants are named in each, so that it is right for one tenant's transaction and for
platform people who read across (`Work.read_all`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from psycopg.rows import class_row

from app.accounts.queries import TenantSeen
from app.billing.capacity import Claim, Installed, KindCapacity, where_it_went
from app.billing.report import ReportLine, report
from app.billing.rules import (
    Charge,
    ExpectedCredit,
    Group,
    LostUnit,
    Priced,
    Statement,
    by_price,
    credit_charges,
    statement,
)
from app.bookings import queries as bookings
from app.bookings.facts import Booking
from app.kernel.money import SCALE, exact, line_amount
from app.kernel.window import Window, month_window
from app.plumbing.db import Work
from app.pricing.queries import kind_names
from app.quotas.rules import Piece, Scope, pieces
from app.usage.rules import Interval, charge_window


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """A row of the ledger and what it came from: the metered interval, the price's version. `exact` is quantity x price;
    `units` are positions."""

    kind: str
    why: str
    starts_at: datetime
    ends_at: datetime
    month: date
    quantity: int
    unit_price: Decimal
    exact: Decimal
    cost_centre: str
    interval_id: UUID | None
    units: str | None
    evidence: dict[str, Any] | None
    version: int
    published_at: datetime
    published_by: str


charged = bookings.charged
"""What each booking was charged so far: bookings shows it beside each of its own."""

_GROUPS = """
SELECT c.tenant_id, c.booking_id, c.kind, c.unit_price, c.cost_centre, c.currency,
       (sum(c.quantity) FILTER (WHERE c.month = %(month)s))::bigint, sum(c.exact),
       coalesce(sum(c.exact) FILTER (WHERE c.month < %(month)s), 0), b.number, b.name, b.units, c.unit_kind,
       k.name, (array_agg(c.project ORDER BY c.starts_at DESC))[1], (array_agg(c.person ORDER BY c.starts_at DESC))[1],
       min(c.starts_at) FILTER (WHERE c.month = %(month)s), max(c.ends_at) FILTER (WHERE c.month = %(month)s),
       count(*) FILTER (WHERE c.month = %(month)s)
  FROM charges c JOIN bookings b ON b.tenant_id = c.tenant_id AND b.id = c.booking_id
  JOIN kinds k ON k.slug = c.unit_kind
 WHERE c.tenant_id = ANY(%(tenants)s) AND c.month <= %(month)s AND c.booking_id IN (
         SELECT m.booking_id FROM charges m WHERE m.tenant_id = ANY(%(tenants)s) AND m.month = %(month)s)
 GROUP BY c.tenant_id, c.booking_id, c.kind, c.unit_price, c.cost_centre, c.currency, b.number, b.name, b.units,
          c.unit_kind, k.name
HAVING count(*) FILTER (WHERE c.month = %(month)s) > 0
 ORDER BY c.tenant_id, b.number, c.kind DESC, 17, c.unit_price DESC"""


def uncharged_intervals(work: Work, booking_id: UUID) -> tuple[Interval, ...]:
    """Metered time of a booking without a charge, in order."""
    rows = work.pg.execute(
        """SELECT i.id, i.booking_id, i.units::text, lower(i.during), upper(i.during), i.quantity FROM intervals i
            WHERE i.booking_id = %s AND NOT i.void AND NOT EXISTS (SELECT FROM charges c WHERE c.interval_id = i.id)
            ORDER BY i.during, i.units""",
        [booking_id],
    )
    return tuple(Interval(i, b, u, Window(s, e), q) for i, b, u, s, e, q in rows)


def lost_units(work: Work, booking_id: UUID, charged: Window) -> tuple[LostUnit, ...]:
    """Every unit of the booking that was not there at some time, with the times; open outages last to the end."""
    rows = work.pg.execute(
        """SELECT s.id, s.share840, array_agg(ARRAY[o.since, coalesce(o.until, %(end)s)] ORDER BY o.since)
             FROM outages o
             JOIN (SELECT DISTINCT ON (s.id) s.id, s.positions, s.share840 FROM holds h
                     JOIN slots s ON s.node_id = h.node_id AND s.positions <@ h.units AND s.valid && h.during
                    WHERE h.booking_id = %(booking)s) s ON o.units && s.positions
            WHERE o.booking_id = %(booking)s AND o.since < coalesce(o.until, %(end)s)
            GROUP BY s.id, s.share840 ORDER BY s.id""",
        {"booking": booking_id, "end": charged.end},
    )
    return tuple(LostUnit(share, tuple(Window(s, e) for s, e in windows)) for _, share, windows in rows)


def credit_so_far(work: Work, booking: Booking, now: datetime) -> tuple[Charge, ...]:
    """What the ledger would take back if the booking ended now: nothing where it has taken back already, where nothing
    is charged, or where no unit was lost."""
    whole = charge_window(booking.provided_at, booking.ends_at, booking.released_at)
    if whole is None or whole.start >= now or not _credit_is_open(work, booking):
        return ()
    window = Window(whole.start, min(whole.end, now))
    lost = lost_units(work, booking.id, window)
    if not lost:
        return ()
    segments = [Priced(s.window, s.price_id, s.per_hour, s.units) for s in bookings.segments_of(work, booking.id)]
    return credit_charges(booking.id, lost, window, segments, ZoneInfo(booking.zone))


def _credit_is_open(work: Work, booking: Booking) -> bool:
    return (
        is_billed(work, booking.cluster_id)
        and not work.pg.execute(
            "SELECT FROM charges WHERE tenant_id = %s AND booking_id = %s AND kind = 'credit'",
            [booking.tenant_id, booking.id],
        ).rowcount
    )


def expected_credits(work: Work, tenant: TenantSeen, month: date) -> tuple[ExpectedCredit, ...]:
    """What bookings of a month that are not over will get back by their outages so far, a row a booking and price."""
    around = month_window(month.year, month.month, ZoneInfo(tenant.zone))
    rows = work.pg.execute(
        """SELECT id FROM bookings WHERE tenant_id = %(tenant)s AND provided_at IS NOT NULL
              AND id IN (SELECT booking_id FROM outages WHERE tenant_id = %(tenant)s)
              AND NOT EXISTS (SELECT FROM charges c WHERE c.tenant_id = bookings.tenant_id AND c.booking_id = bookings.id
                                 AND c.kind = 'credit')
              AND ends_at > %(start)s AND starts_at < %(end)s ORDER BY number""",
        {"tenant": tenant.id, "start": around.start, "end": around.end},
    ).fetchall()
    if not rows:
        return ()
    now = work.product_now()
    found = (bookings.find_booking(work, booking_id) for (booking_id,) in rows)
    return tuple(
        ExpectedCredit(b.id, b.number, b.name, b.kind, b.kind_name, price, quantity, amount)
        for b in found
        if b is not None
        for price, quantity, amount in by_price(credit_so_far(work, b, now), month, b.currency)
    )


def is_billed(work: Work, cluster_id: int) -> bool:
    """Whether use of this cluster is charged at all."""
    return work.pg.execute("SELECT billed FROM clusters WHERE id = %s", [cluster_id]).fetchone()[0]


def insert_charges(work: Work, booking: Booking, charges: Sequence[Charge]) -> int:
    """Add rows to the ledger with the names of now; those that are there stay as they are. Returns how many are new."""
    if not charges:
        return 0
    done = work.pg.execute(
        """INSERT INTO charges (id, tenant_id, booking_id, interval_id, kind, price_id, unit_kind, cost_centre,
                                project_id, project, person, account_id, reference, currency, starts_at, ends_at,
                                month, quantity, unit_price, why)
           SELECT t.id, %(tenant)s, %(booking)s, t.interval_id, t.kind, t.price_id, %(unit_kind)s, %(cost_centre)s,
                  %(project_id)s, %(project)s, %(person)s, %(account)s, %(reference)s, %(currency)s, t.starts_at,
                  t.ends_at, t.month, t.quantity, t.unit_price, t.why
             FROM unnest(%(ids)s::uuid[], %(intervals)s::uuid[], %(kinds)s::text[], %(price_ids)s::int[],
                         %(starts)s::timestamptz[], %(ends)s::timestamptz[], %(months)s::date[],
                         %(quantities)s::bigint[], %(prices)s::numeric[], %(whys)s::text[])
               AS t (id, interval_id, kind, price_id, starts_at, ends_at, month, quantity, unit_price, why)
           ON CONFLICT DO NOTHING""",
        {
            "tenant": booking.tenant_id,
            "booking": booking.id,
            "unit_kind": booking.kind,
            "cost_centre": booking.cost_centre,
            "project_id": booking.project_id,
            "project": booking.project_name,
            "person": booking.booked_by,
            "account": booking.account_id,
            "reference": booking.reference,
            "currency": booking.currency,
            "ids": [c.id for c in charges],
            "intervals": [c.interval_id for c in charges],
            "kinds": [c.kind for c in charges],
            "price_ids": [c.price_id for c in charges],
            "starts": [c.window.start for c in charges],
            "ends": [c.window.end for c in charges],
            "months": [c.month for c in charges],
            "quantities": [c.quantity for c in charges],
            "prices": [c.unit_price for c in charges],
            "whys": [c.why for c in charges],
        },
    )
    return done.rowcount


def groups_of(work: Work, tenant_ids: Sequence[UUID], month: date) -> tuple[Group, ...]:
    """The line groups of a month, by tenant and booking."""
    rows = work.pg.execute(_GROUPS, {"tenants": list(tenant_ids), "month": month})
    return tuple(Group(*row) for row in rows)


def months_charged(work: Work, tenant_ids: Sequence[UUID]) -> list[tuple[UUID, date]]:
    """(tenant, month) of every month with charges, newest first."""
    return work.pg.execute(
        "SELECT DISTINCT tenant_id, month FROM charges WHERE tenant_id = ANY(%s) ORDER BY month DESC, tenant_id",
        [list(tenant_ids)],
    ).fetchall()


def use_by_booking(
    work: Work, tenant_ids: Sequence[UUID], windows: Mapping[str, Window]
) -> dict[UUID, tuple[int, int, Decimal | None]]:
    """(used, unused, energy in Wh) of each booking in a month, as far as its time is metered. `windows` maps the
    billing zone of a booking to the month there."""
    rows = work.pg.execute(
        """SELECT u.booking_id, sum(u.used)::bigint, sum(u.unused)::bigint, sum(u.energy_wh)
             FROM unnest(%s::text[], %s::timestamptz[], %s::timestamptz[]) m (zone, first, next)
             JOIN bookings b ON b.zone = m.zone AND b.tenant_id = ANY(%s)
                            AND b.ends_at > m.first AND b.starts_at < m.next
             JOIN usage u ON u.tenant_id = b.tenant_id AND u.booking_id = b.id
                         AND u.starts_at >= m.first AND u.starts_at < m.next AND u.ends_at <= b.metered_until
            GROUP BY u.booking_id""",
        [list(windows), [w.start for w in windows.values()], [w.end for w in windows.values()], list(tenant_ids)],
    )
    return {booking: (used, unused, energy) for booking, used, unused, energy in rows}


def zones_of(work: Work, tenant_ids: Sequence[UUID]) -> list[str]:
    """The billing zones of these tenants' bookings."""
    rows = work.pg.execute("SELECT DISTINCT zone FROM bookings WHERE tenant_id = ANY(%s)", [list(tenant_ids)])
    return [zone for (zone,) in rows]


def ledger_of(work: Work, tenant_id: UUID, booking_id: UUID) -> list[LedgerLine]:
    """Every row of a booking's ledger with what it came from, in order of time."""
    cursor = work.pg.cursor(row_factory=class_row(LedgerLine))
    return cursor.execute(
        """SELECT c.kind, c.why, c.starts_at, c.ends_at, c.month, c.quantity, c.unit_price, c.exact, c.cost_centre,
                  c.interval_id, i.units::text AS units, i.evidence, v.id AS version, v.published_at, v.published_by
             FROM charges c JOIN prices p ON p.id = c.price_id JOIN price_versions v ON v.id = p.version_id
             LEFT JOIN intervals i ON i.tenant_id = c.tenant_id AND i.id = c.interval_id
            WHERE c.tenant_id = %s AND c.booking_id = %s ORDER BY c.starts_at, c.kind DESC, c.id""",
        [tenant_id, booking_id],
    ).fetchall()


def booked_in(work: Work, scope: Scope, since: datetime) -> list[tuple[UUID, tuple[Piece, ...]]]:
    """What each booking that falls under a scope commits from `since` on, whether it was counted there or not.

    One that waits commits nothing; one that is asked for does where it holds its units meanwhile.
    """
    found = work.pg.execute(
        """SELECT id, units, share840, zone, least(ends_at, coalesce(released_at, ends_at)), coalesce(provided_at, starts_at)
             FROM bookings WHERE tenant_id = %s AND ends_at > %s AND state <> ALL(%s)
              AND NOT (state IN ('ENDING', 'ENDED') AND provided_at IS NULL)
              AND (state <> 'REQUESTED' OR EXISTS (SELECT FROM holds h WHERE h.booking_id = bookings.id AND h.live))
              AND (%s::uuid IS NULL OR project_id = %s) AND (%s::uuid IS NULL OR account_id = %s)
              AND (%s::text IS NULL OR kind = %s) ORDER BY id FOR NO KEY UPDATE""",
        [work.tenant_id, since, ["CANCELLED", "REJECTED", "LAPSED", "WAITING"], *[scope.project_id] * 2, *[scope.account_id] * 2,
         *[scope.kind] * 2],
    ).fetchall()  # fmt: skip
    out = []
    for booking_id, units, share840, zone, end, start in found:
        counted = Window(max(start, since), end) if max(start, since) < end else None
        cut = [
            replace(s, window=part)
            for s in bookings.segments_of(work, booking_id)
            if counted is not None and (part := s.window.intersect(counted)) is not None
        ]
        rest = [p for s in cut for p in pieces([s], ZoneInfo(zone), s.units or units, share840)]
        out.append((booking_id, tuple(rest)))
    return out


def requested_in(work: Work, scope: Scope) -> list[tuple[UUID, int, int, str, list[dict[str, Any]]]]:
    """(request, units, share840, zone, price schedule as kept) of every open request under a scope that holds units of
    its own: an extension that is asked for, a place that was offered."""
    return work.pg.execute(
        """SELECT r.id, b.units, b.share840, b.zone, r.wanted->'segments'
             FROM requests r JOIN bookings b ON b.tenant_id = r.tenant_id AND b.id = r.booking_id
            WHERE r.tenant_id = %s AND r.outcome IS NULL
              AND EXISTS (SELECT FROM holds h WHERE h.request_id = r.id AND h.live)
              AND (%s::uuid IS NULL OR b.project_id = %s) AND (%s::uuid IS NULL OR b.account_id = %s)
              AND (%s::text IS NULL OR b.kind = %s) ORDER BY r.id FOR NO KEY UPDATE OF r""",
        [work.tenant_id, *[scope.project_id] * 2, *[scope.account_id] * 2, *[scope.kind] * 2],
    ).fetchall()


# --- the month --------------------------------------------------------------------------------------------------------


def capacity(work: Work, period: Window) -> tuple[dict[str, KindCapacity], dict[str, str]]:
    """Where the capacity of billed clusters went in a period that is over, by kind, and the kinds' names.

    Reads across tenants: call it inside `Work.read_all`.
    """
    values = {"start": period.start, "end": period.end}
    slots = work.pg.execute(
        """SELECT s.kind, lower(s.positions), upper(s.positions), greatest(lower(s.valid), %(start)s),
                  least(coalesce(upper(s.valid), %(end)s), %(end)s), s.share840
             FROM slots s JOIN nodes n ON n.id = s.node_id JOIN clusters c ON c.id = n.cluster_id
            WHERE c.billed AND s.valid && tstzrange(%(start)s, %(end)s)""",
        values,
    )
    installed = [Installed(k, lo, up, Window(s, e), share) for k, lo, up, s, e, share in slots if s < e]
    claims = [Claim(part, lo, up, Window(s, e)) for part, lo, up, s, e in work.pg.execute(_CLAIMS, values) if s < e]
    measured = {
        kind: (used, unused)
        for kind, used, unused in work.pg.execute(
            """SELECT b.kind, sum(u.used)::bigint, sum(u.unused)::bigint
                 FROM usage u JOIN bookings b ON b.tenant_id = u.tenant_id AND b.id = u.booking_id
                 JOIN clusters c ON c.id = b.cluster_id
                WHERE c.billed AND u.starts_at >= %(start)s AND u.starts_at < %(end)s GROUP BY b.kind""",
            values,
        )
    }
    return where_it_went(installed, claims, measured), kind_names(work)


# (part, positions, from, until) of everything that took capacity, cut to the period. Units that were held for a booking
# and not charged (before it was provided, or after its release until they were empty) count as failed.
_CLAIMS = """
WITH b AS (
  SELECT b.id, b.starts_at, b.ends_at, b.provided_at, b.state, b.asked,
         least(b.ends_at, coalesce(b.released_at, b.ends_at)) AS over, b.released_at, b.emptied_at
    FROM bookings b WHERE b.starts_at < %(end)s AND (b.ends_at > %(start)s OR b.emptied_at > %(start)s
                                                     OR b.state = 'ENDING')),
taken AS (
  SELECT 'reserved' AS part, id, provided_at AS s, over AS e FROM b WHERE provided_at IS NOT NULL
  UNION ALL
  SELECT 'failed', id, starts_at, coalesce(provided_at, over) FROM b WHERE asked
  UNION ALL
  SELECT 'failed', id, over, coalesce(emptied_at, %(end)s) FROM b
   WHERE asked AND (state = 'ENDING' OR emptied_at IS NOT NULL) AND over >= starts_at)
SELECT t.part, lower(r), upper(r), greatest(t.s, %(start)s), least(t.e, coalesce(h.left_at, t.e), %(end)s)
  FROM taken t JOIN holds h ON h.booking_id = t.id AND h.during && tstzrange(t.s, greatest(t.s, t.e), '[]'),
       unnest(h.units) r
 WHERE t.s < t.e AND t.s < %(end)s AND t.e > %(start)s AND (h.left_at IS NULL OR h.left_at > greatest(t.s, %(start)s))
UNION ALL
SELECT 'failed', lower(r), upper(r), greatest(h.left_at, %(start)s),
       least(CASE WHEN h.live THEN %(end)s ELSE upper(h.during) END, %(end)s)
  FROM b JOIN holds h ON h.booking_id = b.id, unnest(h.units) r
 WHERE b.asked AND h.left_at < %(end)s AND (h.live OR upper(h.during) > greatest(h.left_at, %(start)s))
UNION ALL
SELECT CASE o.state WHEN 'drained' THEN 'maintenance' ELSE 'failed' END, 64 * n.first_gpu, 64 * (n.first_gpu + n.gpus),
       greatest(o.since, %(start)s), least(coalesce(o.until, %(end)s), %(end)s)
  FROM node_outages o JOIN nodes n ON n.id = o.node_id
 WHERE o.since < %(end)s AND coalesce(o.until, %(end)s) > %(start)s
UNION ALL
SELECT 'maintenance', 64 * n.first_gpu, 64 * (n.first_gpu + n.gpus), greatest(lower(m.during), %(start)s),
       least(upper(m.during), m.cancelled_at, %(end)s)
  FROM maintenances m JOIN maintenance_nodes x ON x.maintenance_id = m.id JOIN nodes n ON n.id = x.node_id
 WHERE m.during && tstzrange(%(start)s, %(end)s)
   AND (m.cancelled_at IS NULL OR m.cancelled_at > greatest(lower(m.during), %(start)s))
UNION ALL
SELECT 'failed', 64 * f.gpu, 64 * f.gpu + 64, greatest(f.since, %(start)s), least(coalesce(f.until, %(end)s), %(end)s)
  FROM unit_faults f WHERE f.since < %(end)s AND coalesce(f.until, %(end)s) > %(start)s
UNION ALL
SELECT 'external', lower(r), upper(r), greatest(x.since, %(start)s), least(coalesce(x.ended_at, %(end)s), %(end)s)
  FROM external_use x, unnest(x.units) r
 WHERE x.since < %(end)s AND coalesce(x.ended_at, %(end)s) > %(start)s"""


def contradictions(
    work: Work, tenant_ids: Sequence[UUID], window: Window
) -> list[tuple[UUID, int, Window, Decimal, str]]:
    """Reports that contradict the ledger in a window: (tenant, booking's number, when, rounded money, currency)."""
    rows = work.pg.execute(
        """SELECT x.tenant_id, b.number, lower(x.during), upper(x.during), b.currency,
                  coalesce((x.evidence->>'quantity')::numeric * (
                    SELECT p.per_hour FROM booking_prices p WHERE p.booking_id = b.id AND p.tenant_id = b.tenant_id
                       AND p.starts_at <= lower(x.during) ORDER BY p.starts_at DESC LIMIT 1), 0)
             FROM interval_conflicts x JOIN bookings b ON b.tenant_id = x.tenant_id AND b.id = x.booking_id
            WHERE x.settled_at IS NULL AND x.tenant_id = ANY(%s) AND x.during && tstzrange(%s, %s)
            ORDER BY x.at, x.id""",
        [list(tenant_ids), window.start, window.end],
    )
    return [
        (tenant, number, Window(s, e), line_amount(Fraction(money) / SCALE, currency), currency)
        for tenant, number, s, e, currency, money in rows
    ]


def not_charged_yet(work: Work, tenant_ids: Sequence[UUID], now: datetime) -> list[tuple[UUID, int, str, Decimal]]:
    """(tenant, bookings, currency, money) of provided time up to `now` that is not metered yet: running bookings are
    charged at local midnights and when they end. Rounded once a booking and price."""
    rows = work.pg.execute(
        """SELECT b.tenant_id, b.id, b.currency, p.per_hour, b.share840 * b.units * sum(extract(epoch FROM
                    least(p.ends_at, b.ends_at, b.released_at, %(now)s)
                    - greatest(p.starts_at, b.provided_at, b.metered_until))::bigint)
             FROM bookings b JOIN clusters c ON c.id = b.cluster_id AND c.billed
             JOIN booking_prices p ON p.tenant_id = b.tenant_id AND p.booking_id = b.id
            WHERE b.tenant_id = ANY(%(tenants)s) AND b.state IN ('ACTIVE', 'ENDING') AND b.provided_at IS NOT NULL
              AND least(p.ends_at, b.ends_at, b.released_at, %(now)s)
                  > greatest(p.starts_at, b.provided_at, b.metered_until)
            GROUP BY b.tenant_id, b.id, b.currency, p.per_hour ORDER BY b.tenant_id""",
        {"tenants": list(tenant_ids), "now": now},
    )
    found: dict[tuple[UUID, str], tuple[set[UUID], Decimal]] = {}
    for tenant_id, booking_id, currency, per_hour, quantity in rows:
        seen, money = found.setdefault((tenant_id, currency), (set(), Decimal(0)))
        seen.add(booking_id)
        found[tenant_id, currency] = seen, money + line_amount(exact(int(quantity), per_hour), currency)
    return [(tenant_id, len(seen), currency, money) for (tenant_id, currency), (seen, money) in found.items()]


def statement_of(work: Work, tenant: TenantSeen, month: date) -> Statement:
    """The draft of a tenant's month, from the ledger as it is now, with what is expected to be taken back."""
    expected = expected_credits(work, tenant, month)
    return statement(tenant.name, month, tenant.currency, groups_of(work, [tenant.id], month), expected)


def measured(work: Work, tenant_ids: Sequence[UUID], month: date) -> dict[UUID, tuple[int, int]]:
    """(used, unused) of each booking in a month of its billing zone, as far as it is metered."""
    windows = {z: month_window(month.year, month.month, ZoneInfo(z)) for z in zones_of(work, tenant_ids)}
    return {b: (used, unused) for b, (used, unused, _) in use_by_booking(work, tenant_ids, windows).items()}


def month_report(work: Work, tenant_ids: Sequence[UUID], month: date) -> tuple[ReportLine, ...]:
    """The month by tenant, project, person and kind; its amounts add up to the statements'."""
    return report(groups_of(work, tenant_ids, month), measured(work, tenant_ids, month))
