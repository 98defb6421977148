"""How a person gets into a booking, as pages and the API ask for it. The cluster is asked by reconcile.py."""

from __future__ import annotations

from uuid import UUID

from app.backends.contract import Access
from app.bookings import reconcile
from app.bookings.facts import Booking
from app.plumbing.runtime import Plumbing


def ways_in(plumbing: Plumbing, booking: Booking, account_id: UUID) -> Access | str | None:
    """The ways in for a person, or a sentence why there is none now; None when nobody gets in at this state of
    the booking."""
    if booking.state != "ACTIVE":
        return None
    return reconcile.access_for(plumbing, booking, account_id)
