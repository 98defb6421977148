"""Whose booking it is, across tenants, and who is told when it is taken away, in SQL."""

from __future__ import annotations

from uuid import UUID

from app.bookings.facts import Booking
from app.plumbing.db import Work


def tenant_of(work: Work, booking_id: UUID | None, number: int | None) -> tuple[UUID, UUID, str] | None:
    """(booking, tenant, the tenant's name) of a booking by id or number. Inside `read_all`: anybody's."""
    return work.pg.execute(
        """SELECT b.id, b.tenant_id, t.name FROM bookings b JOIN tenants t ON t.tenant_id = b.tenant_id
            WHERE b.id = %s OR b.number = %s""",
        [booking_id, number],
    ).fetchone()


def told(work: Work, booking: Booking) -> tuple[UUID, ...]:
    """Whoever booked it, and the leads of its project."""
    rows = work.pg.execute(
        """SELECT DISTINCT a.id FROM accounts a
            WHERE NOT a.disabled AND (a.id = %s OR a.id IN (
                SELECT account_id FROM memberships WHERE project_id = %s AND role = 'lead')) ORDER BY a.id""",
        [booking.account_id, booking.project_id],
    )
    return tuple(row[0] for row in rows)
