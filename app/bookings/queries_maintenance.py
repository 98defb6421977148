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
 WHERE h.live AND h.left_at IS NULL AND h.node_id = ANY(%(nodes)s)
   AND (h.during && tstzrange(%(start)s, %(end)s)
        OR (upper(h.during) > %(start)s AND h.units && %(recut)s::int4multirange))
 GROUP BY b.id, b.tenant_id, t.name ORDER BY b.id"""


def concerned(work: Work, node_ids: Iterable[int], window: Window, recut: str = "{}") -> tuple[Concerned, ...]:
    """Whoever holds units there then, in the order of ids; and, of GPUs that are cut anew (a multirange of positions),
    ever after. The nodes' pools are locked, so that it stays true."""
    values = {"nodes": list(node_ids), "start": window.start, "end": window.end, "recut": recut}
    with work.read_all():
        rows = work.pg.execute(_CONCERNED, values).fetchall()
    return tuple(Concerned(*row) for row in rows)


def requests_holding(
    work: Work, booking_id: UUID, node_ids: Iterable[int], window: Window, recut: str = "{}"
) -> list[UUID]:
    """Open requests of a booking that hold units there then (of GPUs that are cut anew: or later)."""
    rows = work.pg.execute(
        """SELECT DISTINCT r.id FROM requests r JOIN holds h ON h.request_id = r.id
            WHERE r.booking_id = %(booking)s AND r.outcome IS NULL AND h.live AND h.node_id = ANY(%(nodes)s)
              AND (h.during && tstzrange(%(start)s, %(end)s)
                   OR (upper(h.during) > %(start)s AND h.units && %(recut)s::int4multirange)) ORDER BY r.id""",
        {"booking": booking_id, "nodes": list(node_ids), "start": window.start, "end": window.end, "recut": recut},
    ).fetchall()
    return [row[0] for row in rows]
