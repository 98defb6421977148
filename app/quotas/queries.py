"""Scopes and commitments in SQL. In the way of every booking: one statement to lock, one to read, one to write.

The tenant is the transaction's: row-level security shows no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

from app.kernel.window import Window
from app.plumbing.db import Work
from app.quotas.rules import Month, Piece, Scope, Standing, Taken, next_month

_COLUMNS = """
SELECT s.id, s.subject, s.kind, s.max_rate, s.max_quantity,
       CASE s.subject WHEN 'tenant' THEN (SELECT t.name FROM tenants t WHERE t.tenant_id = s.tenant_id)
                      WHEN 'project' THEN (SELECT p.name FROM projects p
                                            WHERE p.tenant_id = s.tenant_id AND p.id = s.project_id)
                      ELSE (SELECT a.name FROM accounts a WHERE a.id = s.account_id) END,
       s.project_id, s.account_id, s.max_money,
       CASE WHEN s.max_money IS NOT NULL THEN (SELECT t.currency FROM tenants t WHERE t.tenant_id = s.tenant_id) END
  FROM scopes s
 WHERE """
_SCOPES = f"""{_COLUMNS}s.tenant_id = %(tenant)s AND (s.kind IS NULL OR s.kind = ANY(%(kinds)s))
   AND (s.project_id IS NULL OR s.project_id = %(project)s) AND (s.account_id IS NULL OR s.account_id = %(account)s)
 ORDER BY s.id"""
_ONE_SCOPE = f"""{_COLUMNS}s.tenant_id = %s AND s.project_id IS NOT DISTINCT FROM %s
   AND s.account_id IS NOT DISTINCT FROM %s AND s.kind IS NOT DISTINCT FROM %s"""
LOCK_SCOPES = _SCOPES + " FOR NO KEY UPDATE OF s"
"""Right only after SHARE_LIMITS, in a statement of its own before it."""

# Where there is no limit yet there is no row to lock. So whoever is about to commit units says so first, shared, and the
# one who makes a limit says so alone: it then sees everything that was booked without knowing the limit, and everybody
# after it sees the limit. The keys are a word of ours and the tenant; two tenants that meet in one only wait.
SHARE_LIMITS = "SELECT pg_advisory_xact_lock_shared(hashtext('limits of a tenant'), hashtext(%(tenant)s::uuid::text))"
"""The first of the locks on quota: takes the values of LOCK_SCOPES; for a caller who pipelines both."""
_OWN_LIMITS = "SELECT pg_advisory_xact_lock(hashtext('limits of a tenant'), hashtext(%s::uuid::text))"

# Levels rise only where a commitment starts; the default frame is RANGE, so what ends at an instant is off before the
# level there is read. Measures without a limit are not computed. Only an edit looks at owners (not in the index).
_STANDINGS = """
SELECT s.id,
  CASE WHEN s.rated THEN (SELECT max(level) FROM (
     SELECT sum(e.rate) OVER (ORDER BY e.at) AS level FROM commitments c
       CROSS JOIN LATERAL (VALUES (greatest(c.starts_at, %(start)s), c.rate), (c.ends_at, -c.rate)) e (at, rate)
      WHERE c.tenant_id = %(tenant)s AND c.scope_id = s.id AND c.day BETWEEN %(first_day)s AND %(last_day)s
        AND c.starts_at < %(end)s AND c.ends_at > %(start)s{others}) levels) END,
  CASE WHEN s.capped THEN (SELECT array_agg(ARRAY[t.total, t.used] ORDER BY m.first)
     FROM unnest(%(months)s::date[], %(nexts)s::date[]) m (first, next)
    CROSS JOIN LATERAL (
      SELECT coalesce(sum(c.quantity), 0)::bigint AS total,
             coalesce(sum(c.rate * extract(epoch FROM least(c.ends_at, %(now)s) - c.starts_at)::bigint)
                      FILTER (WHERE c.starts_at < %(now)s), 0)::bigint AS used
        FROM commitments c
       WHERE c.tenant_id = %(tenant)s AND c.scope_id = s.id AND c.day >= m.first AND c.day < m.next{others}) t) END,
  CASE WHEN s.priced THEN (SELECT array_agg(ARRAY[t.total, t.used] ORDER BY m.first)
     FROM unnest(%(months)s::date[], %(nexts)s::date[]) m (first, next)
    CROSS JOIN LATERAL (
      SELECT coalesce(sum(c.quantity * c.price), 0) AS total,
             coalesce(sum(c.rate * extract(epoch FROM least(c.ends_at, %(now)s) - c.starts_at)::bigint * c.price)
                      FILTER (WHERE c.starts_at < %(now)s), 0) AS used
        FROM commitments c
       WHERE c.tenant_id = %(tenant)s AND c.scope_id = s.id AND c.day >= m.first AND c.day < m.next{others}) t) END
  FROM unnest(%(scopes)s::bigint[], %(rated)s::boolean[], %(capped)s::boolean[], %(priced)s::boolean[])
       s (id, rated, capped, priced)"""
STANDINGS = _STANDINGS.format(others="")
STANDINGS_OF_EDIT = _STANDINGS.format(others=" AND c.booking_id IS DISTINCT FROM %(leaving)s")

COMMIT = """
INSERT INTO commitments (tenant_id, scope_id, booking_id, request_id, day, starts_at, ends_at, rate, price)
SELECT %(tenant)s, s.id, %(booking)s, %(request)s, p.day, p.starts_at, p.ends_at, p.rate, p.price
  FROM unnest(%(scopes)s::bigint[]) s (id)
 CROSS JOIN unnest(%(days)s::date[], %(starts)s::timestamptz[], %(ends)s::timestamptz[], %(rates)s::int[],
                   %(prices)s::numeric[]) p (day, starts_at, ends_at, rate, price)"""


def scopes_for(
    work: Work, tenant_id: UUID, project_id: UUID, account_id: UUID | None, kinds: Sequence[str]
) -> tuple[Scope, ...]:
    """The scopes that a booking of one of these kinds counts in, by id, without locking: for quotes and pages."""
    return _scopes(work, _SCOPES, tenant_id, project_id, account_id, kinds)


def lock_scopes(
    work: Work, tenant_id: UUID, project_id: UUID, account_id: UUID | None, kinds: Sequence[str]
) -> tuple[Scope, ...]:
    """The same, locked FOR NO KEY UPDATE in id order until the transaction ends. First of all locks but the key's.

    Until then no first limit is made for the tenant that would not count what this transaction commits.
    """
    work.pg.execute(SHARE_LIMITS, scope_values(tenant_id, project_id, account_id, kinds))
    return _scopes(work, LOCK_SCOPES, tenant_id, project_id, account_id, kinds)


def lock_scopes_of_people(
    work: Work, tenant_id: UUID, project_id: UUID, accounts: Sequence[UUID], kind: str
) -> tuple[Scope, ...]:
    """The scopes of several people in a project, and those that are theirs all together, locked in one id order."""
    values = scope_values(tenant_id, project_id, None, [kind]) | {"accounts": list(accounts)}
    work.pg.execute(SHARE_LIMITS, values)
    sql = LOCK_SCOPES.replace("s.account_id = %(account)s", "s.account_id = ANY(%(accounts)s)")
    return tuple(Scope(*row) for row in work.pg.execute(sql, values))


def own_limits(work: Work) -> None:
    """Wait until nobody is committing units for the tenant, and hold off everybody who wants to, until the transaction
    ends. Stands where the scopes stand in the order of locks: before any of them."""
    work.pg.execute(_OWN_LIMITS, [work.tenant_id])


def find_scope(work: Work, project_id: UUID | None, account_id: UUID | None, kind: str | None) -> Scope | None:
    """The scope of exactly this subject and kind, or None when no limit was ever set."""
    row = work.pg.execute(_ONE_SCOPE, [work.tenant_id, project_id, account_id, kind]).fetchone()
    return None if row is None else Scope(*row)


def all_scopes(work: Work) -> tuple[Scope, ...]:
    """Every limit of the tenant, by id."""
    rows = work.pg.execute(_COLUMNS + "s.tenant_id = %s ORDER BY s.id", [work.tenant_id])
    return tuple(Scope(*row) for row in rows)


def scope_values(tenant: UUID, project: UUID, account: UUID | None, kinds: Sequence[str]) -> dict[str, object]:
    """The values of LOCK_SCOPES, whose rows are Scopes, for a caller who pipelines it."""
    return {"tenant": tenant, "project": project, "account": account, "kinds": list(kinds)}


def _scopes(work: Work, sql: str, tenant: UUID, project: UUID, account: UUID | None, kinds: Sequence[str]):
    return tuple(Scope(*row) for row in work.pg.execute(sql, scope_values(tenant, project, account, kinds)))


def standings_values(
    tenant_id: UUID,
    scopes: Sequence[Scope],
    window: Window,
    months: Sequence[Month],
    zone: ZoneInfo,
    now: datetime,
    leaving: UUID | None = None,
) -> dict[str, object]:
    """The values of STANDINGS (or, with `leaving`, of STANDINGS_OF_EDIT), for a caller who pipelines it."""
    return {
        "tenant": tenant_id,
        "scopes": [s.id for s in scopes],
        "rated": [s.max_rate is not None for s in scopes],
        "capped": [s.max_quantity is not None for s in scopes],
        "priced": [s.max_money is not None for s in scopes],
        "start": window.start,
        "end": window.end,
        "first_day": window.start.astimezone(zone).date(),
        "last_day": (window.end - timedelta(seconds=1)).astimezone(zone).date(),
        "months": list(months),
        "nexts": [next_month(m) for m in months],
        "now": now,
        "leaving": leaving,
    }


def standings_of(scopes: Sequence[Scope], months: Sequence[Month], rows: Iterable[tuple]) -> tuple[Standing, ...]:
    """Standings from the rows of STANDINGS."""

    def by_month(totals: list | None) -> dict[Month, Taken]:
        return {m: Taken(used, total - used) for m, (total, used) in zip(months, totals or (), strict=False)}

    found = {scope: (by_month(taken), int(peak or 0), by_month(spent)) for scope, peak, taken, spent in rows}
    return tuple(Standing(s, *found[s.id]) for s in scopes)


def standings(
    work: Work,
    tenant_id: UUID,
    scopes: Sequence[Scope],
    window: Window,
    months: Sequence[Month],
    zone: ZoneInfo,
    now: datetime,
    leaving: UUID | None = None,
) -> tuple[Standing, ...]:
    """How each scope stands over the window and in the months, in one statement. Right only under `lock_scopes`.

    `now` divides used from held. `leaving` is a booking whose own commitments are about to be replaced.
    """
    if not scopes:
        return ()
    values = standings_values(tenant_id, scopes, window, months, zone, now, leaving)
    sql = STANDINGS if leaving is None else STANDINGS_OF_EDIT
    return standings_of(scopes, months, work.pg.execute(sql, values))


def month_total(work: Work, scope: Scope, month: Month, now: datetime) -> Taken:
    """What of one month is used and held in a scope, as quantities: for pages."""
    total, used = work.pg.execute(
        """SELECT coalesce(sum(quantity), 0)::bigint,
                  coalesce(sum(rate * extract(epoch FROM least(ends_at, %(now)s) - starts_at)::bigint)
                           FILTER (WHERE starts_at < %(now)s), 0)::bigint
             FROM commitments WHERE scope_id = %(scope)s AND day >= %(first)s AND day < %(next)s""",
        {"now": now, "scope": scope.id, "first": month, "next": next_month(month)},
    ).fetchone()
    return Taken(used, total - used)


def month_money(work: Work, scope: Scope, month: Month, now: datetime) -> Taken | None:
    """The same in money x SCALE; None where no money limit is set."""
    if scope.max_money is None:
        return None
    (standing,) = standings(
        work, work.tenant_id, [scope], Window(now, now + timedelta(seconds=1)), [month], ZoneInfo("UTC"), now
    )
    return standing.money.get(month, Taken())


def commit_values(
    tenant_id: UUID,
    scopes: Sequence[Scope],
    pieces: Sequence[Piece],
    booking_id: UUID | None = None,
    request_id: UUID | None = None,
) -> dict[str, object]:
    """The values of COMMIT, for a caller who pipelines it or makes it part of a larger statement."""
    return {
        "tenant": tenant_id,
        "booking": booking_id,
        "request": request_id,
        "scopes": [s.id for s in scopes],
        "days": [p.day for p in pieces],
        "starts": [p.window.start for p in pieces],
        "ends": [p.window.end for p in pieces],
        "rates": [p.rate for p in pieces],
        "prices": [p.price for p in pieces],
    }


def commit_pieces(
    work: Work,
    tenant_id: UUID,
    scopes: Sequence[Scope],
    pieces: Sequence[Piece],
    booking_id: UUID | None = None,
    request_id: UUID | None = None,
) -> None:
    """Write the pieces in every scope, in one statement. Exactly one of booking and request is the owner."""
    if scopes and pieces:
        work.pg.execute(COMMIT, commit_values(tenant_id, scopes, pieces, booking_id, request_id))


def give_back(work: Work, booking_id: UUID, since: datetime) -> None:
    """Give back what a booking holds from `since` on, at once: cancelled, released, shortened. Needs no lock."""
    work.pg.execute(
        """WITH gone AS (DELETE FROM commitments WHERE booking_id = %(booking)s AND starts_at >= %(since)s)
           UPDATE commitments SET ends_at = %(since)s
            WHERE booking_id = %(booking)s AND starts_at < %(since)s AND ends_at > %(since)s""",
        {"booking": booking_id, "since": since},
    )


def give_back_until(work: Work, booking_id: UUID, until: datetime) -> None:
    """Give back what a booking took before `until`: it was provided late. Needs no lock."""
    work.pg.execute(
        """WITH gone AS (DELETE FROM commitments WHERE booking_id = %(booking)s AND ends_at <= %(until)s)
           UPDATE commitments SET starts_at = %(until)s
            WHERE booking_id = %(booking)s AND starts_at < %(until)s AND ends_at > %(until)s""",
        {"booking": booking_id, "until": until},
    )


def lower_rate(work: Work, booking_id: UUID, since: datetime, rate: int) -> None:
    """From `since` on a booking takes only `rate` (units x share840): it gave units back. Needs no lock."""
    work.pg.execute(
        """WITH later AS (
             UPDATE commitments SET rate = %(rate)s WHERE booking_id = %(booking)s AND starts_at >= %(since)s),
           cut AS (
             UPDATE commitments SET ends_at = %(since)s
              WHERE booking_id = %(booking)s AND starts_at < %(since)s AND ends_at > %(since)s)
           INSERT INTO commitments (tenant_id, scope_id, booking_id, request_id, day, starts_at, ends_at, rate, price)
           SELECT tenant_id, scope_id, booking_id, request_id, day, %(since)s, ends_at, %(rate)s, price FROM commitments
            WHERE booking_id = %(booking)s AND starts_at < %(since)s AND ends_at > %(since)s""",
        {"booking": booking_id, "since": since, "rate": rate},
    )


def give_back_request(work: Work, request_id: UUID) -> None:
    """Give back all that a request holds: rejected, lapsed, withdrawn, declined. Needs no lock."""
    work.pg.execute("DELETE FROM commitments WHERE request_id = %s", [request_id])


def hand_over(work: Work, request_id: UUID, booking_id: UUID, since: datetime) -> None:
    """What a request holds from `since` on is its booking's, what lies before goes back. Needs no lock."""
    work.pg.execute("DELETE FROM commitments WHERE request_id = %s AND ends_at <= %s", [request_id, since])
    work.pg.execute(
        """UPDATE commitments SET request_id = NULL, booking_id = %s, starts_at = greatest(starts_at, %s)
            WHERE request_id = %s""",
        [booking_id, since, request_id],
    )


def move_between_people(
    work: Work, booking_id: UUID, since: datetime, old: Sequence[Scope], new: Sequence[Scope], pieces: Sequence[Piece]
) -> None:
    """From `since` on a booking counts in the limits of another person. The scopes are locked."""
    work.pg.execute(
        """WITH gone AS (DELETE FROM commitments
                          WHERE booking_id = %(booking)s AND starts_at >= %(since)s AND scope_id = ANY(%(scopes)s))
           UPDATE commitments SET ends_at = %(since)s
            WHERE booking_id = %(booking)s AND starts_at < %(since)s AND ends_at > %(since)s AND scope_id = ANY(%(scopes)s)""",
        {"booking": booking_id, "since": since, "scopes": [s.id for s in old]},
    )
    commit_pieces(work, work.tenant_id, new, pieces, booking_id)
