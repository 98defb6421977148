"""Cancel and release: a booking is given up before it is active, or given back while it is.

Each is one transaction that takes no pool's lock: what is freed may be taken by whoever comes next.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from app.bookings import due, queries
from app.bookings.edits import Key, caught_up, change, look_now, not_in_state
from app.bookings.facts import Booking
from app.bookings.lifecycle import Event, IllegalMove, State, cancel_event, leave
from app.bookings.moves import write_changes
from app.kernel.actor import Actor
from app.kernel.errors import Conflict
from app.plumbing.db import Work
from app.plumbing.queue import Queue


def cancel(
    work: Work, queue: Queue, actor: Actor, booking_id: UUID, key: Key | None = None, version: int | None = None
) -> Booking:
    """Give a booking up before it is active. Nothing is charged and everything it held goes back at once.

    Raises Conflict when it is too late (an active booking is released instead).
    """

    def apply(booking: Booking, now: datetime) -> None:
        view, state = caught_up(work, booking, now)
        event = cancel_event(view)
        if state is State.ACTIVE:
            raise Conflict(
                "too_late_to_cancel", f"{booking.label} is active. Release it instead: it is charged until then."
            )
        try:
            changes = leave(view, event, now, "")
        except IllegalMove:
            raise not_in_state(booking, state, "cancelled") from None
        write_changes(work, booking, view, changes, actor, now)
        allocation = queries.allocation_of(work, booking.id)
        assert allocation is not None
        if event is Event.CANCEL:
            due.forget(work, allocation.id)
        else:
            look_now(work, queue, booking, allocation.id, now)

    return change(work, actor, booking_id, key, version, "cancel", apply)


def release(
    work: Work, queue: Queue, actor: Actor, booking_id: UUID, key: Key | None = None, version: int | None = None
) -> Booking:
    """Give an active booking back now: charged to this second, the rest goes back to the project at once.

    The units are free for others when the cluster says that they are empty.
    """

    def apply(booking: Booking, now: datetime) -> None:
        view, state = caught_up(work, booking, now)
        try:
            changes = leave(view, Event.RELEASE, now, "")
        except IllegalMove:
            raise not_in_state(booking, state, "released") from None
        write_changes(work, booking, view, changes, actor, now)
        allocation = queries.allocation_of(work, booking.id)
        assert allocation is not None
        look_now(work, queue, booking, allocation.id, now)

    return change(work, actor, booking_id, key, version, "release", apply)
