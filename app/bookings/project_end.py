"""What becomes of bookings when their project ends: what has not begun is given up, what runs runs to its end.

A project whose renewal was asked for counts as open until its grace is over. Every open state has its step here, taken
with its notice in one transaction. Release and cancel always work: they only give back.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal
from uuid import UUID

from app.bookings import due, queries, waitlist
from app.bookings.edits import caught_up, look_now
from app.bookings.lifecycle import Event, State, cancel_event, leave
from app.bookings.moves import write_changes
from app.bookings.open_projects import closed
from app.kernel.actor import SYSTEM
from app.plumbing import outbox
from app.plumbing.db import Work
from app.plumbing.queue import Queue

STEPS: Mapping[State, Literal["give up", "run on"]] = MappingProxyType(
    {
        State.WAITING: "give up",
        State.REQUESTED: "give up",
        State.BOOKED: "give up",
        State.STARTING: "give up",
        State.ACTIVE: "run on",
    }
)
"""What happens in each state; nothing in those that are missing: they are over, or being cleaned up."""


DUE = """
SELECT b.tenant_id, b.id FROM projects p JOIN tenants t ON t.tenant_id = p.tenant_id
  JOIN bookings b ON b.tenant_id = p.tenant_id AND b.project_id = p.id
 WHERE p.ended_at + CASE WHEN p.renewal_asked_at IS NULL THEN interval '0'
                         ELSE make_interval(secs => t.renewal_grace_seconds) END <= %(now)s
   AND (b.state IN ('WAITING', 'REQUESTED', 'BOOKED', 'STARTING') OR (b.state = 'ACTIVE' AND b.ends_at > %(now)s AND NOT EXISTS (
        SELECT FROM history h WHERE h.booking_id = b.id AND h.event = 'project_end' AND h.at >= p.ended_at)))
 ORDER BY b.tenant_id, b.id LIMIT 100"""
"""(tenant, booking) of every open booking whose project has ended and that was not dealt with. Inside `read_all`."""


def end_booking(work: Work, queue: Queue, booking_id: UUID) -> bool:
    """Take the step of one booking and tell its owner; False when there was nothing to do any more."""
    booking = queries.lock_booking(work, booking_id)
    if booking is None:
        return False
    queries.holds_of(work, booking_id, lock=True)
    now = work.product_now()
    project = queries.find_project(work, booking.project, booking.project_id)
    if project is None or closed(project, now) is None:
        return False
    why = f"The project {project.name} has ended."
    unseated = booking.state in (State.WAITING, State.REQUESTED)
    if unseated:
        waitlist.give_up(work, SYSTEM, booking, now)
        step = STEPS[State(booking.state)]
    else:
        view, state = caught_up(work, booking, now)
        step = STEPS.get(state)
    if step is None:
        return False
    if unseated:
        pass
    elif step == "give up":
        event = cancel_event(view)
        write_changes(work, booking, view, leave(view, event, now, why), SYSTEM, now)
        allocation = queries.allocation_of(work, booking.id)
        if allocation is not None and event is Event.CANCEL:
            due.forget(work, allocation.id)
        elif allocation is not None:
            look_now(work, queue, booking, allocation.id, now)
    else:
        queries.note(work, booking.id, "project_end", state, state, SYSTEM, now, why)
    kind = "booking_cancelled" if step == "give up" else "booking_runs_on"
    if booking.account_id is not None:
        more = {"number": booking.number, "name": booking.name, "by": "Berth", "why": why}
        outbox.tell(work, kind, now, booking.account_id, booking.id, **more)
    return True
