"""Cancel and release: a booking is given up before it is active, for a fee where the pool has one and it comes late, or
given back while it is.

Each is one transaction that takes no pool's lock: what is freed may be taken by whoever comes next.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from uuid import UUID

from app.bookings import due, queries, queries_edits, waitlist
from app.bookings.edits import (
    Key,
    allow,
    caught_up,
    change,
    look_now,
    not_in_state,
    pool_of,
    see,
    tell_owner,
    view_now,
)
from app.bookings.facts import Booking
from app.bookings.fees import CancelTerms, cancel_terms
from app.bookings.lifecycle import Event, IllegalMove, State, cancel_event, leave, may
from app.bookings.moves import write_changes
from app.kernel.actor import Actor
from app.kernel.errors import Conflict
from app.plumbing.db import Work
from app.plumbing.queue import Queue


def cancel(
    work: Work, queue: Queue, actor: Actor, booking_id: UUID, key: Key | None = None, version: int | None = None
) -> Booking:
    """Give a booking up before it is active. Everything it held goes back at once; charged is at most the fee of
    `quote_cancel`.

    Raises Conflict when it is too late (an active booking is released instead).
    """

    def apply(booking: Booking, now: datetime) -> None:
        if booking.state in (State.WAITING, State.REQUESTED):
            waitlist.give_up(work, actor, booking, now)
            return
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
        view = write_changes(work, booking, view, changes, actor, now)
        _charge_fee(work, booking, view.state, actor, now)
        tell_owner(work, actor, booking, "booking_cancelled", now)
        allocation = queries.allocation_of(work, booking.id)
        assert allocation is not None
        if event is Event.CANCEL:
            due.forget(work, allocation.id)
        else:
            look_now(work, queue, booking, allocation.id, now)

    return change(work, actor, booking_id, key, version, "cancel", apply)


def quote_cancel(work: Work, actor: Actor, booking_id: UUID) -> CancelTerms:
    """What cancelling would cost now, and until when it is free. Raises Conflict when it is too late to cancel."""
    booking = see(work, actor, booking_id)
    allow(actor, booking)
    now = work.product_now()
    if booking.state in (State.WAITING, State.REQUESTED):  # nothing was promised to it yet
        return CancelTerms(booking.quoted - booking.quoted, 0, booking.starts_at)
    view = view_now(work, booking, now)
    if view.state is State.ACTIVE or not may(view.state, cancel_event(view)):
        raise not_in_state(booking, view.state, "cancelled")
    return _terms(work, booking, now)


def _terms(work: Work, booking: Booking, now: datetime) -> CancelTerms:
    pool = pool_of(work, booking)
    terms = cancel_terms(booking, pool.policy, now)
    return terms if pool.billed else replace(terms, fee=terms.fee - terms.fee, percent=0)


def _charge_fee(work: Work, booking: Booking, state: State, actor: Actor, now: datetime) -> None:
    if booking.state not in (State.BOOKED, State.STARTING):
        return
    terms = _terms(work, booking, now)
    if terms.fee:
        said = f"Cancelled late: {terms.percent} % of the price."
        queries_edits.record_fee(work, booking.id, state, terms.fee, said, actor, now)


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
        tell_owner(work, actor, booking, "booking_released", now)
        allocation = queries.allocation_of(work, booking.id)
        assert allocation is not None
        look_now(work, queue, booking, allocation.id, now)

    return change(work, actor, booking_id, key, version, "release", apply)
