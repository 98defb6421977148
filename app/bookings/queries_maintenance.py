"""Which bookings and requests hold units of some nodes in a window. Reads across tenants; writes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from app.kernel.window import Window
from app.plumbing.db import Work


@dataclass(frozen=True, slots=True)
class Concerned:
    """A booking with units on the nodes in the window, its own or held for its request; whose it is, in words."""

    booking_id: UUID
    tenant_id: UUID
    tenant: str
    own: bool


_CONCERNED = """
SELECT b.id, b.tenant_id, t.name, bool_or(h.booking_id IS NOT NULL)
  FROM holds h LEFT JOIN requests r ON r.id = h.request_id JOIN bookings b ON b.id = coalesce(h.booking_id, r.booking_id)
  JOIN tenants t ON t.tenant_id = b.tenant_id
 WHERE h.live AND h.left_at IS NULL AND h.node_id = ANY(%s) AND h.during && tstzrange(%s, %s)
 GROUP BY b.id, b.tenant_id, t.name ORDER BY b.id"""


def concerned(work: Work, node_ids: Iterable[int], window: Window) -> tuple[Concerned, ...]:
    """Whoever holds units there then, in the order of ids. The nodes' pools are locked, so that it stays true."""
    with work.read_all():
        rows = work.pg.execute(_CONCERNED, [list(node_ids), window.start, window.end]).fetchall()
    return tuple(Concerned(*row) for row in rows)


def requests_holding(work: Work, booking_id: UUID, node_ids: Iterable[int], window: Window) -> list[UUID]:
    """Open requests of a booking that hold units there then."""
    rows = work.pg.execute(
        """SELECT DISTINCT r.id FROM requests r JOIN holds h ON h.request_id = r.id
            WHERE r.booking_id = %s AND r.outcome IS NULL AND h.live AND h.node_id = ANY(%s)
              AND h.during && tstzrange(%s, %s) ORDER BY r.id""",
        [booking_id, list(node_ids), window.start, window.end],
    ).fetchall()
    return [row[0] for row in rows]
