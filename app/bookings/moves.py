"""Writes what lifecycle and evidence decided, with everything that follows from it, for verbs and reconciler alike.

Pins holds when the cluster is asked, gives units and quota back, leaves notices. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from app.bookings import queries, queries_requests
from app.bookings.facts import Booking
from app.bookings.lifecycle import OUTCOMES, BookingView, Change, Condition, Event, Move, Raise, State, follow
from app.kernel.actor import Actor
from app.plumbing import outbox
from app.plumbing.db import Work
from app.quotas import queries as quotas

_LEAVING = frozenset({Event.CANCEL, Event.END, *OUTCOMES})
"""Events after which nothing is left to be edited."""


def write_changes(
    work: Work, booking: Booking, view: BookingView, changes: Iterable[Change], actor: Actor, now: datetime
) -> BookingView:
    """Write the changes in order; answers the view after them. Booking and holds are locked by the caller."""
    changes = tuple(changes)
    queries.apply_changes(work, booking.id, view.state, changes, actor, now)
    for change in changes:
        match change:
            case Move(event, at, why):
                _follow_up(work, booking, event, at, why, now)
            case Raise(Condition.DEGRADED | Condition.LATE | Condition.BLOCKED as condition, since, why):
                if condition not in view.conditions and not _said_already(view, changes, condition):
                    key = f"{condition}:{booking.id}:{since.isoformat()}"
                    _tell(work, booking, f"booking_{condition}", now, key, why=why)
            case _:
                pass
    return follow(view, changes)


def _said_already(view: BookingView, changes: tuple[Change, ...], condition: Condition) -> bool:
    """That it is late where it is told why it cannot start; and that units of one that is over are not empty yet."""
    if condition is Condition.BLOCKED:
        return view.state is State.ENDING
    blocked = any(isinstance(c, Raise) and c.condition is Condition.BLOCKED for c in changes)
    return condition is Condition.LATE and (blocked or Condition.BLOCKED in view.conditions)


def _follow_up(work: Work, booking: Booking, event: Event, at: datetime, why: str, now: datetime) -> None:
    """What a move brings with it beside the state."""
    if event in _LEAVING:
        queries_requests.withdraw_edits(work, booking.id, now)
    match event:
        case Event.BEGIN:
            queries.pin_holds(work, booking.id)
        case Event.PROVIDE:
            if at > booking.starts_at:  # time that was not provided is neither charged nor counted
                quotas.give_back_until(work, booking.id, at)
            _tell(work, booking, "booking_active", now, f"active:{booking.id}")
        case (
            Event.CANCEL | Event.REJECT | Event.LAPSE
        ):  # nothing was ever asked of a cluster: the units are free at once
            quotas.give_back(work, booking.id, booking.starts_at)
            freed = queries_requests.pieces_of_booking(work, booking.id)
            queries.free_holds(work, booking.id, now)
            queries.close_allocation_of(work, booking.id)
            queries_requests.pass_on(work, booking, freed, now)
        case Event.WITHDRAW | Event.RELEASE | Event.NO_SHOW | Event.FAIL:
            quotas.give_back(work, booking.id, at if booking.provided_at is not None else booking.starts_at)
        case Event.GIVE_UP:
            quotas.give_back(work, booking.id, booking.starts_at)
            _tell(work, booking, "booking_not_provided", now, f"not_provided:{booking.id}", why=why)
        case Event.EMPTIED:
            freed = queries_requests.pieces_of_booking(work, booking.id)
            queries.free_holds(work, booking.id, at)
            queries.close_allocation_of(work, booking.id)
            queries_requests.pass_on(work, booking, freed, now)
            _tell(work, booking, "booking_ended", now, f"ended:{booking.id}")
        case _:
            pass


def _tell(work: Work, booking: Booking, kind: str, now: datetime, key: str, **more: str) -> None:
    if booking.account_id is not None:
        outbox.tell(
            work, kind, now, booking.account_id, booking.id, key=key, number=booking.number, name=booking.name, **more
        )  # fmt: skip
