"""SQL of the waiting list: the queue of a pool, everybody's, and freed units that await somebody in it.

`waiting` is a platform table: whoever gives units away must see other tenants' waiters. What their bookings want is read
inside `work.read_all()`, and written after `work.act_for`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg.rows import class_row

from app.bookings.capacity import Busy, Shape
from app.bookings.queries import multirange
from app.bookings.queries_requests import Piece, Range, add_holds, ranges, remind
from app.kernel.window import Window
from app.plumbing.db import Work


@dataclass(frozen=True, slots=True)
class Waiter:
    """A booking that waits for units of a pool: some time between `earliest` and `latest`, `length` of it.

    `offered`: it has an offer that is not answered yet.
    """

    booking_id: UUID
    tenant_id: UUID
    pool_id: int
    since: datetime
    skips: int
    units: int
    earliest: datetime
    latest: datetime
    auto: bool
    project_id: UUID
    nodes: int | None
    per_node: int | None
    within: str | None
    near: str | None
    length: timedelta
    offered: bool

    @property
    def shape(self) -> Shape:
        """What it needs."""
        return shape_of(self.units, self.nodes, self.per_node, self.within, self.near)

    @property
    def last_start(self) -> datetime:
        """After this it is too late."""
        return self.latest - self.length


def shape_of(units: int, nodes: int | None, per_node: int | None, within: Any, near: Any) -> Shape:
    """A booking's columns as a shape."""
    return Shape(units if nodes is None else None, nodes, per_node, within, near)


_WAITERS = """
SELECT w.booking_id, w.tenant_id, w.pool_id, w.since, w.skips, w.units, w.earliest, w.latest, w.auto, b.project_id, b.nodes,
       b.per_node, b.within, b.near, b.ends_at - b.starts_at AS length,
       EXISTS (SELECT FROM requests r WHERE r.booking_id = w.booking_id AND r.outcome IS NULL AND r.waits_for = 'answer')
         AS offered
  FROM waiting w JOIN bookings b ON b.id = w.booking_id WHERE """


def queue_of(work: Work, pool_id: int) -> tuple[Waiter, ...]:
    """Everybody who waits for a pool, in their order. Inside `read_all`."""
    return tuple(_waiters(work, f"{_WAITERS} w.pool_id = %s ORDER BY w.since, w.booking_id", [pool_id]))


def waiter(work: Work, booking_id: UUID) -> Waiter | None:
    """One of them, of the transaction's tenant."""
    found = _waiters(work, f"{_WAITERS} w.booking_id = %s", [booking_id])
    return found[0] if found else None


def join_queue(
    work: Work, booking_id: UUID, pool_id: int, units: int, window: Window, auto: bool, now: datetime
) -> None:
    """Stand at the end."""
    work.pg.execute(
        """INSERT INTO waiting (booking_id, tenant_id, pool_id, since, skips, units, earliest, latest, auto)
           VALUES (%s, %s, %s, %s, 0, %s, %s, %s, %s)""",
        [booking_id, work.tenant_id, pool_id, now, units, window.start, window.end, auto],
    )


def leave_queue(work: Work, booking_id: UUID, now: datetime) -> None:
    """Wait no more. What was kept for it goes to the others: it is looked at now."""
    work.pg.execute("DELETE FROM waiting WHERE booking_id = %s", [booking_id])
    work.pg.execute("DELETE FROM due WHERE subject = %s", [booking_id])
    kept = work.pg.execute(
        "SELECT id FROM requests WHERE booking_id = %s AND outcome IS NULL AND waits_for = 'waiter'", [booking_id]
    ).fetchall()
    for (request_id,) in kept:
        remind(work, request_id, now)


def place_in_queue(work: Work, booking_id: UUID) -> tuple[int, int] | None:
    """The place of a waiter and how many wait for its pool; None when it does not wait. `waiting` is everybody's."""
    return work.pg.execute(
        """SELECT (SELECT count(*) FROM waiting o WHERE o.pool_id = w.pool_id
                      AND (o.since, o.booking_id) <= (w.since, w.booking_id)),
                  (SELECT count(*) FROM waiting o WHERE o.pool_id = w.pool_id)
             FROM waiting w WHERE w.booking_id = %s""",
        [booking_id],
    ).fetchone()


def skip(work: Work, booking_ids: Sequence[UUID]) -> None:
    """Somebody who came later was served before them."""
    if booking_ids:
        work.pg.execute("UPDATE waiting SET skips = skips + 1 WHERE booking_id = ANY(%s)", [list(booking_ids)])


@dataclass(frozen=True, slots=True)
class Spare:
    """Freed units that await a waiter. `kept_for`: the waiter for whom they are kept, None: whoever is first."""

    request_id: UUID
    tenant_id: UUID
    kept_for: UUID | None


def spares_of(work: Work, node_ids: Sequence[int]) -> tuple[Spare, ...]:
    """Freed units on these nodes, whoever freed them. Inside `read_all`."""
    rows = work.pg.execute(
        """SELECT DISTINCT r.id, r.tenant_id, w.booking_id
             FROM holds h JOIN requests r ON r.id = h.request_id LEFT JOIN waiting w ON w.booking_id = r.booking_id
              AND NOT EXISTS (SELECT FROM requests a WHERE a.booking_id = w.booking_id AND a.outcome IS NULL
                                 AND a.waits_for = 'answer')
            WHERE h.live AND h.node_id = ANY(%s) AND r.waits_for = 'waiter' AND r.outcome IS NULL ORDER BY r.id""",
        [list(node_ids)],
    ).fetchall()
    return tuple(Spare(*row) for row in rows)


def taken_but(work: Work, node_ids: Sequence[int], since: datetime, spares: Sequence[UUID]) -> Busy:
    """Everything held on these nodes from an instant on, without what these requests hold."""
    rows = work.pg.execute(
        """SELECT lower(r), upper(r), extract(epoch FROM lower(during))::bigint, extract(epoch FROM upper(during))::bigint
             FROM holds, unnest(units) r WHERE live AND node_id = ANY(%s) AND upper(during) > %s
              AND (request_id IS NULL OR request_id <> ALL(%s))""",
        [list(node_ids), since, list(spares)],
    )
    return Busy.of_rows(rows.fetchall())


def cut_spares(work: Work, request_ids: Sequence[UUID], node_id: int, units: Sequence[Range], window: Window) -> None:
    """Take these units and this time out of what the requests hold; the rest stays theirs. Holds are locked."""
    during = "tstzrange(%(start)s, %(end)s)"
    values = {"requests": list(request_ids), "node": node_id, "units": multirange(units), "start": window.start,
              "end": window.end}  # fmt: skip
    rows = work.pg.execute(
        f"""UPDATE holds SET live = false WHERE request_id = ANY(%(requests)s) AND live AND node_id = %(node)s
               AND units && %(units)s::int4multirange AND during && {during}
            RETURNING request_id, allocation_id, node_id,
              ARRAY(SELECT ARRAY[lower(r), upper(r)] FROM unnest(units - %(units)s::int4multirange) r),
              ARRAY(SELECT ARRAY[lower(r), upper(r)] FROM unnest(units * %(units)s::int4multirange) r),
              lower(during), upper(during)""",
        values,
    ).fetchall()
    for request_id, allocation, node, other, same, start, end in rows:
        left = []
        if other:
            left.append(Piece(node, ranges(other), start, end, allocation))
        if start < window.start:
            left.append(Piece(node, ranges(same), start, window.start, allocation))
        if window.end < end:
            left.append(Piece(node, ranges(same), window.end, end, allocation))
        if left:
            add_holds(work, request_id, left)


def put_off(work: Work, booking_ids: Sequence[UUID], now: datetime, at: datetime) -> None:
    """Those that are due have just been looked at with all the others: not again before `at`. Rows that somebody else has
    in hand are left to him."""
    work.pg.execute(
        """UPDATE due SET next_at = %s WHERE subject IN (
             SELECT subject FROM due WHERE subject = ANY(%s) AND cluster_id IS NULL AND next_at <= %s
              ORDER BY subject FOR NO KEY UPDATE SKIP LOCKED)""",
        [at, list(booking_ids), now],
    )


def told_places(work: Work, pool_id: int) -> list[tuple[UUID, UUID]]:
    """(tenant, booking) of everybody in a pool's queue, in their order."""
    return work.pg.execute(
        "SELECT tenant_id, booking_id FROM waiting WHERE pool_id = %s ORDER BY since, booking_id", [pool_id]
    ).fetchall()


def _waiters(work: Work, sql: str, values: Sequence[Any]) -> list[Waiter]:
    return work.pg.cursor(row_factory=class_row(Waiter)).execute(sql, values).fetchall()
