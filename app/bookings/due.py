"""Who works on what, now: leases on due rows. Every SQL statement about them; knows nothing of what the work is.

`next_at` is product time, the lease wall time (the database's own clock, so that all workers share one). A subject is an
allocation: all work on one object of a cluster goes one at a time.
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

    None when nothing is due, two calls are in flight already, or another worker is claiming for this cluster.
    The order of statements matters: a count inside the claim would be older than others' commits.
    """
    locked = work.pg.execute("SELECT FROM clusters WHERE id = %s FOR NO KEY UPDATE SKIP LOCKED", [cluster_id]).rowcount
    if not locked:
        return None
    values = {"cluster": cluster_id, "now": now, "token": new_id(), "seconds": seconds}
    # A lease that ran out keeps its call slot until somebody takes the row again, so those come first.
    row = work.pg.execute(
        """UPDATE due SET lease_token = %(token)s, leased_until = clock_timestamp() + make_interval(secs => %(seconds)s)
            WHERE subject = (SELECT subject FROM due WHERE cluster_id = %(cluster)s AND leased_until < clock_timestamp()
                             ORDER BY leased_until LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)
        RETURNING subject, tenant_id""",
        values,
    ).fetchone()
    if row is None:
        row = work.pg.execute(
            """UPDATE due SET lease_token = %(token)s, call_slot = f.slot,
                              leased_until = clock_timestamp() + make_interval(secs => %(seconds)s)
                 FROM (SELECT s.slot FROM (VALUES (1::smallint), (2::smallint)) s (slot)
                        WHERE NOT EXISTS (SELECT FROM due WHERE cluster_id = %(cluster)s AND call_slot = s.slot)
                        ORDER BY s.slot LIMIT 1) f
                WHERE subject = (SELECT subject FROM due WHERE cluster_id = %(cluster)s AND next_at <= %(now)s
                                    AND lease_token IS NULL ORDER BY next_at LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)
            RETURNING subject, tenant_id""",
            values,
        ).fetchone()
    return None if row is None else Lease(row[0], row[1], cluster_id, values["token"])


def take_slot(work: Work, cluster_id: int, tenant_id: UUID, seconds: int) -> Lease | None:
    """A call slot of a cluster for a call about no object's life (measurements); None when it is taken.

    A row of its own, of no allocation: whoever finds it after its lease ran out finds nothing to do, and removes it.
    Only ever the second slot, so that measurements keep no booking waiting. End it by `give_back` with None.
    """
    lease = Lease(new_id(), tenant_id, cluster_id, new_id())
    taken = work.pg.execute(
        """INSERT INTO due (subject, tenant_id, cluster_id, next_at, lease_token, leased_until, call_slot)
           VALUES (%s, %s, %s, %s, %s, clock_timestamp() + make_interval(secs => %s), 2)
           ON CONFLICT (cluster_id, call_slot) DO NOTHING""",
        [lease.subject, tenant_id, cluster_id, work.product_now(), lease.token, seconds],
    )
    return lease if taken.rowcount else None


def still_ours(work: Work, lease: Lease) -> bool:
    """Lock the due row; False when another worker has taken it since. The last lock of every apply."""
    return (
        work.pg.execute(
            "SELECT FROM due WHERE subject = %s AND lease_token = %s FOR NO KEY UPDATE", [lease.subject, lease.token]
        ).rowcount
        == 1
    )


def give_back(work: Work, lease: Lease, next_at: datetime | None) -> None:
    """End the lease and say when to look again; None: there is nothing left to do."""
    if next_at is None:
        work.pg.execute("DELETE FROM due WHERE subject = %s AND lease_token = %s", [lease.subject, lease.token])
    else:
        work.pg.execute(
            """UPDATE due SET next_at = %s, lease_token = NULL, leased_until = NULL, call_slot = NULL
                WHERE subject = %s AND lease_token = %s""",
            [next_at, lease.subject, lease.token],
        )


def hurry(work: Work, subject: UUID, tenant_id: UUID, cluster_id: int, at: datetime) -> None:
    """Something has changed: look at it at `at` at the latest. Keeps a lease that somebody holds."""
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


def clusters_due(work: Work, now: datetime) -> list[int]:
    """Clusters with work that is due or whose lease ran out, and whose breaker is closed."""
    rows = work.pg.execute(
        """SELECT DISTINCT d.cluster_id FROM due d JOIN clusters c ON c.id = d.cluster_id
            WHERE (d.next_at <= %s AND d.lease_token IS NULL OR d.leased_until < clock_timestamp())
              AND (c.failures = 0 OR c.retry_at IS NULL OR c.retry_at <= %s)""",
        [now, now],
    ).fetchall()
    return [row[0] for row in rows]


def clusters_of(work: Work, booking_ids: Iterable[UUID]) -> dict[UUID, int]:
    """On which cluster each booking is, whoever's it is."""
    rows = work.pg.execute(
        """SELECT DISTINCT h.booking_id, a.cluster_id FROM holds h JOIN allocations a ON a.id = h.allocation_id
            WHERE h.booking_id = ANY(%s)""",
        [list(booking_ids)],
    )
    return dict(rows.fetchall())


def next_instant(work: Work) -> datetime | None:
    """When something can be done next, for a stepped clock: a cluster whose breaker is open is not asked before then."""
    return work.pg.execute(
        """SELECT min(CASE WHEN c.failures > 0 THEN greatest(d.next_at, c.retry_at) ELSE d.next_at END)
             FROM due d LEFT JOIN clusters c ON c.id = d.cluster_id"""
    ).fetchone()[0]


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
