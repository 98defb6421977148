"""Tells a booking that recolouring has moved it: a line of its history, and a notice where device names were more than a
plan. The moves themselves are others' transactions; this is drained later, each booking as its own tenant.
"""

from __future__ import annotations

from uuid import UUID

from app.bookings import queries, queries_ground
from app.kernel.actor import SYSTEM
from app.plumbing import outbox
from app.plumbing.db import Work

MOVED = queries_ground.MOVED


def tell_moved(work: Work, booking_id: UUID) -> int:
    """Write what was moved of a booking into its history; how many moves that were."""
    booking = queries.lock_booking(work, booking_id)
    if booking is None:
        return 0
    moves = queries_ground.take_moves(work, booking_id)
    if not moves:
        return 0
    now = work.product_now()
    changes = {"units": [sorted({u for m in moves for u in m.was}), sorted({u for m in moves for u in m.becomes})]}
    why = "Others were let in; what was promised stays."
    queries.note(work, booking_id, "replan", booking.state, booking.state, SYSTEM, moves[-1].at, why, changes)
    # nodes of a booking that nothing was asked for are shown as planned: nobody was promised those
    if booking.asked and booking.account_id is not None:
        more = {"number": booking.number, "name": booking.name, "why": why}
        outbox.tell(work, "booking_replanned", now, booking.account_id, booking_id, **more)
    return len(moves)
