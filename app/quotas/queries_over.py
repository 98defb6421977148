"""Where more is booked than a limit says: it was lowered, or set later. Nothing is cancelled for that; it is shown.

The tenant is the transaction's: row-level security shows no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from uuid import UUID

from app.kernel.money import SCALE
from app.plumbing.db import Work
from app.quotas.rules import QuotaEffect, Scope, month_at


@dataclass(frozen=True, slots=True)
class Over:
    """A limit that is passed: `taken` says what and by how much (before and after are alike), `at` when for units.

    `held` are the bookings that make it up and how much each does, as raw numbers; of a month only what is still to come.
    """

    taken: QuotaEffect
    at: datetime | None
    held: tuple[tuple[UUID, int | Decimal], ...]

    @property
    def by(self) -> str:
        """How much it is over, in units, unit-hours or money."""
        return self.taken.plain(self.taken.after - self.taken.limit)

    def beyond(self, newest_first: Sequence[UUID]) -> tuple[UUID, ...]:
        """The bookings that are kept beyond the limit: the newest, until what is left keeps to it.

        Where even without all of them it would be passed, the rest has been used already.
        """
        amounts, left = dict(self.held), self.taken.after - self.taken.limit
        kept = []
        for booking in newest_first:
            if booking in amounts and left > 0:
                kept.append(booking)
                left -= amounts[booking]
        return tuple(kept)


_MONTHS = """
SELECT scope_id, date_trunc('month', day)::date, sum(quantity)::bigint, sum(quantity * price)
  FROM commitments WHERE tenant_id = %s AND day >= %s AND scope_id = ANY(%s) GROUP BY 1, 2 ORDER BY 1, 2"""
_PEAKS = """
SELECT DISTINCT ON (scope_id) scope_id, level, at
  FROM (SELECT scope_id, e.at, sum(e.rate) OVER (PARTITION BY scope_id ORDER BY e.at) AS level
          FROM commitments c CROSS JOIN LATERAL (VALUES (greatest(c.starts_at, %(now)s), c.rate), (c.ends_at, -c.rate)) e (at, rate)
         WHERE c.tenant_id = %(tenant)s AND c.ends_at > %(now)s AND c.scope_id = ANY(%(scopes)s)) l
 ORDER BY scope_id, level DESC, at"""
_AT_THAT_TIME = """
SELECT booking_id, sum(rate) FROM commitments
 WHERE tenant_id = %s AND scope_id = %s AND starts_at <= %s AND ends_at > %s AND booking_id IS NOT NULL
 GROUP BY 1"""
_IN_MONTH = """
SELECT booking_id, sum(rate * extract(epoch FROM ends_at - greatest(starts_at, %(now)s))::bigint * {price})
  FROM commitments
 WHERE tenant_id = %(tenant)s AND scope_id = %(scope)s AND ends_at > %(now)s AND booking_id IS NOT NULL
   AND date_trunc('month', day)::date = %(month)s
 GROUP BY 1"""


def overages(work: Work, scopes: Sequence[Scope], zone: str, now: datetime) -> tuple[Over, ...]:
    """Every limit of these that is passed from this month on (units: from now on), in order of scope and month."""
    by_id = {s.id: s for s in scopes}
    found: list[Over] = []
    rated = [s.id for s in scopes if s.max_rate is not None]
    if rated:
        values = {"tenant": work.tenant_id, "now": now, "scopes": rated}
        for scope_id, level, at in work.pg.execute(_PEAKS, values).fetchall():
            scope = by_id[scope_id]
            if level > scope.max_rate:
                taken = QuotaEffect(scope, "units", int(level), int(level), scope.max_rate or 0)
                rows = work.pg.execute(_AT_THAT_TIME, [work.tenant_id, scope_id, at, at]).fetchall()
                found.append(Over(taken, at, tuple(rows)))
    capped = [s.id for s in scopes if s.max_quantity is not None or s.max_money is not None]
    if capped:
        this = month_at(now, zone)
        for scope_id, month, quantity, money in work.pg.execute(_MONTHS, [work.tenant_id, this, capped]).fetchall():
            scope = by_id[scope_id]
            values = {"tenant": work.tenant_id, "scope": scope_id, "now": now, "month": month}
            if scope.max_quantity is not None and quantity > scope.max_quantity:
                taken = QuotaEffect(scope, "hours", quantity, quantity, scope.max_quantity, month)
                rows = work.pg.execute(_IN_MONTH.format(price="1"), values).fetchall()
                found.append(Over(taken, None, tuple(rows)))
            if scope.max_money is not None and money > scope.max_money * SCALE:
                taken = QuotaEffect(scope, "money", money, money, scope.max_money * SCALE, month)
                rows = work.pg.execute(_IN_MONTH.format(price="price"), values).fetchall()
                found.append(Over(taken, None, tuple(rows)))
    return tuple(sorted(found, key=lambda o: (o.taken.scope.id, o.taken.month or date.min, o.taken.measure)))
