"""Who works on what, now: leases on due rows. Every SQL statement about them; knows nothing of what the work is.

`next_at` is product time, the lease wall time (the database's own clock, so that all workers share one). A subject is an
allocation: all work on one object of a cluster goes one at a time. While a row is leased, `next_at` is infinity unless
somebody has hurried it since: whoever gives the lease back cannot put that off.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from app.kernel.ids import new_id
from app.plumbing.db import Work


@dataclass(frozen=True, slots=True)
class Lease:
    """One due row taken: whoever holds the token may apply what it found, until somebody else takes the row again."""

    subject: UUID
    tenant_id: UUID
    cluster_id: int
    token: UUID


def claim(work: Work, cluster_id: int, now: datetime, seconds: int) -> Lease | None:
    """Take the next due row of a cluster for `seconds` of wall time, or None.

    None when nothing is due, the cluster's breaker is open, two calls are in flight already, or another worker is
    claiming for this cluster. The order of statements matters: a count inside the claim would be older than others'
    commits.
    """
    asked = work.pg.execute(_ASKED, [now, cluster_id]).fetchone()
    if asked is None or not asked[0]:
        return None
    values = {"cluster": cluster_id, "now": now, "token": new_id(), "seconds": seconds}
    rows = [row for rows in work.together((_TAKE_OVER, values), (_TAKE, values)) for row in rows]
    return Lease(*rows[0], cluster_id, values["token"]) if rows else None


_ASKED = """SELECT failures = 0 OR retry_at IS NULL OR retry_at <= %s FROM clusters WHERE id = %s
               FOR NO KEY UPDATE SKIP LOCKED"""
# A lease that ran out keeps its call slot until somebody takes the row again, so those come first.
_TAKE_OVER = """
UPDATE due SET lease_token = %(token)s, leased_until = clock_timestamp() + make_interval(secs => %(seconds)s),
               next_at = 'infinity'
 WHERE subject = (SELECT subject FROM due WHERE cluster_id = %(cluster)s AND leased_until < clock_timestamp()
                   ORDER BY leased_until LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)
RETURNING subject, tenant_id"""
_TAKE = """
UPDATE due SET lease_token = %(token)s, call_slot = f.slot, next_at = 'infinity',
               leased_until = clock_timestamp() + make_interval(secs => %(seconds)s)
  FROM (SELECT s.slot FROM (VALUES (1::smallint), (2::smallint)) s (slot)
         WHERE NOT EXISTS (SELECT FROM due WHERE cluster_id = %(cluster)s AND call_slot = s.slot)
         ORDER BY s.slot LIMIT 1) f
 WHERE subject = (SELECT subject FROM due WHERE cluster_id = %(cluster)s AND next_at <= %(now)s
                     AND lease_token IS NULL ORDER BY next_at LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)
   AND NOT EXISTS (SELECT FROM due WHERE cluster_id = %(cluster)s AND lease_token = %(token)s)
RETURNING subject, tenant_id"""


def take_slot(work: Work, cluster_id: int, tenant_id: UUID, seconds: int) -> Lease | None:
    """A call slot of a cluster for a call about no object's life (measurements); None when it is taken.

    A row of its own, of no allocation: whoever finds it after its lease ran out finds nothing to do, and removes it.
    Only ever the second slot, so that measurements keep no booking waiting. End it by `give_back` with None.
    """
    lease = Lease(new_id(), tenant_id, cluster_id, new_id())
    taken = work.pg.execute(
        """INSERT INTO due (subject, tenant_id, cluster_id, next_at, lease_token, leased_until, call_slot)
           VALUES (%s, %s, %s, 'infinity', %s, clock_timestamp() + make_interval(secs => %s), 2)
           ON CONFLICT (cluster_id, call_slot) DO NOTHING""",
        [lease.subject, tenant_id, cluster_id, lease.token, seconds],
    )
    return lease if taken.rowcount else None


STILL_OURS = "SELECT true FROM due WHERE subject = %s AND lease_token = %s FOR NO KEY UPDATE"
"""Locks the due row; no row when another worker has taken it since. The last lock of every apply."""


def give_back(work: Work, lease: Lease, next_at: datetime | None) -> None:
    """End the lease and say when to look again; None: there is nothing left to do.

    Whoever has hurried the row meanwhile is served: it is looked at then, if that is earlier.
    """
    if next_at is None:
        work.pg.execute(
            "DELETE FROM due WHERE subject = %s AND lease_token = %s AND next_at = 'infinity'",
            [lease.subject, lease.token],
        )
    work.pg.execute(
        """UPDATE due SET next_at = least(next_at, %s), lease_token = NULL, leased_until = NULL, call_slot = NULL
            WHERE subject = %s AND lease_token = %s""",
        [next_at, lease.subject, lease.token],
    )


def hurry(work: Work, subject: UUID, tenant_id: UUID, cluster_id: int, at: datetime) -> None:
    """Something has changed: look at it at `at` at the latest. Keeps a lease that somebody holds: it is looked at once
    more after that."""
    work.pg.execute(
        """INSERT INTO due (subject, tenant_id, cluster_id, next_at) VALUES (%s, %s, %s, %s)
           ON CONFLICT (subject) DO UPDATE SET next_at = least(due.next_at, excluded.next_at)""",
        [subject, tenant_id, cluster_id, at],
    )


def end_leases(work: Work) -> None:
    """Let every lease run out now. For a process that knows that whoever held them is dead and nobody else at work."""
    work.pg.execute("UPDATE due SET leased_until = clock_timestamp() WHERE leased_until > clock_timestamp()")


def forget(work: Work, subject: UUID) -> None:
    """Nothing will be due any more."""
    work.pg.execute("DELETE FROM due WHERE subject = %s", [subject])


CLUSTERS_DUE = """
SELECT c.id FROM clusters c
 WHERE (c.failures = 0 OR c.retry_at IS NULL OR c.retry_at <= %(now)s)
   AND (EXISTS (SELECT FROM due d WHERE d.cluster_id = c.id AND d.next_at <= %(now)s AND d.lease_token IS NULL)
        OR EXISTS (SELECT FROM due d WHERE d.cluster_id = c.id AND d.call_slot IS NOT NULL
                      AND d.leased_until < clock_timestamp()))
 ORDER BY c.id"""
"""Clusters with work that is due or whose lease ran out, and whose breaker is closed."""


def clusters_of(work: Work, booking_ids: Iterable[UUID]) -> dict[UUID, int]:
    """On which cluster each booking is, whoever's it is."""
    rows = work.pg.execute(
        """SELECT DISTINCT h.booking_id, a.cluster_id FROM holds h JOIN allocations a ON a.id = h.allocation_id
            WHERE h.booking_id = ANY(%s) AND h.left_at IS NULL""",
        [list(booking_ids)],
    )
    return dict(rows.fetchall())


NEXT_INSTANT = """
SELECT least((SELECT d.next_at FROM due d WHERE d.next_at < 'infinity'
                 AND NOT EXISTS (SELECT FROM clusters c WHERE c.id = d.cluster_id AND c.failures > 0)
               ORDER BY d.next_at LIMIT 1),
             (SELECT greatest(min(d.next_at), c.retry_at) FROM clusters c JOIN due d ON d.cluster_id = c.id
               WHERE c.failures > 0 AND d.next_at < 'infinity' GROUP BY c.id ORDER BY 1 LIMIT 1))"""
"""When something can be done next, for a stepped clock: a cluster whose breaker is open is not asked before then."""


def is_open(work: Work, cluster_id: int, now: datetime) -> bool:
    """Whether the cluster's breaker is open: it did not answer, and nobody asks it for a while."""
    return bool(
        work.pg.execute(
            "SELECT FROM clusters WHERE id = %s AND failures > 0 AND retry_at > %s", [cluster_id, now]
        ).rowcount
    )


def put_off(work: Work, cluster_id: int, failures: int, until: datetime, why: str) -> None:
    """Open the breaker of a cluster that did not answer: nobody asks it before `until`."""
    work.pg.execute(
        "UPDATE clusters SET failures = %s, retry_at = %s, last_error = %s WHERE id = %s",
        [failures, until, why, cluster_id],
    )


def close_breaker(work: Work, cluster_id: int) -> None:
    """The cluster answered."""
    work.pg.execute("UPDATE clusters SET failures = 0, last_error = NULL WHERE id = %s AND failures > 0", [cluster_id])
