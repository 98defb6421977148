"""Displace: an operator takes the units of somebody's booking away, for a reason that everybody concerned can read.

The platform's verb, across tenants. What was not provided is not charged, no fee is taken, and its people are told; the
tenant's audit and the platform's both say who did it and why. The units are then booked like any others: nobody books
more than there is, whoever asks. One transaction that takes no pool; the caller commits.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from app.accounts import audit
from app.bookings import due, queries, queries_displacing, queries_keys, schedule, waitlist
from app.bookings.edits import Key, caught_up, check_version, look_now, not_in_state, view_now
from app.bookings.facts import Booking
from app.bookings.lifecycle import Event, State, cancel_event, leave
from app.bookings.moves import write_changes
from app.inventory.rules import may_operate
from app.kernel import ids
from app.kernel.actor import Actor
from app.kernel.errors import Conflict, Invalid, NotFound, Reason
from app.kernel.window import Window
from app.plumbing import outbox
from app.plumbing.db import Work
from app.plumbing.queue import Queue

_OPEN = (State.WAITING, State.REQUESTED, State.BOOKED, State.STARTING, State.ACTIVE)


@dataclass(frozen=True, slots=True)
class Displacement:
    """What would become of a booking: how long it has been provided, and what of its price is not charged."""

    booking: Booking
    tenant: str
    at: datetime
    back: Decimal


def quote_displace(work: Work, actor: Actor, label: str) -> Displacement:
    """What displacing would take from whom, without doing it. Raises what the verb itself would."""
    booking, tenant = _find(work, actor, label)
    now = work.product_now()
    state = State(booking.state)
    if state not in (State.WAITING, State.REQUESTED):
        state = view_now(work, booking, now).state
    if state not in _OPEN:
        raise not_in_state(booking, state, "displaced")
    return Displacement(booking, tenant, now, _back(work, booking, now))


def displace(
    work: Work,
    queue: Queue,
    actor: Actor,
    label: str,
    why: str,
    key: Key | None = None,
    version: int | None = None,
) -> Displacement:
    """Take a booking's units away from now on. `why` is read by its people, in its history and in both audits.

    An active one is charged until this second; one that has not begun costs nothing. Raises Invalid without a reason,
    Conflict when there is nothing to take any more.
    """
    why = why.strip()
    if not 3 <= len(why) <= 500:
        said = "Say why, in 3 to 500 characters: the people whose booking it is will read it."
        raise Invalid("why_missing", said, (Reason("why_missing", said, None, None, None, "why", True),))
    found, tenant = _find(work, actor, label)
    if key is not None:
        mine = hashlib.sha256(f"{actor.account_id}\n".encode() + key.body_hash).digest()
        kept = queries_keys.take_key(work, key.key, "displace", mine, found.id)
        if kept is not None:
            if (kept.verb, kept.body_hash, kept.booking_id) != ("displace", mine, found.id):
                raise Conflict("idempotency_key_reused", "This idempotency key was used for another request.")
            return Displacement(found, tenant, found.released_at or work.product_now(), Decimal(0))
    booking = queries.lock_booking(work, found.id)
    assert booking is not None
    check_version(booking, version)
    queries.holds_of(work, booking.id, lock=True)
    now = work.product_now()
    back = _back(work, booking, now)
    if booking.state in (State.WAITING, State.REQUESTED):
        waitlist.give_up(work, actor, booking, now)
    else:
        _take(work, queue, actor, booking, why, now)
    for account in queries_displacing.told(work, booking):
        outbox.tell(
            work, "booking_displaced", now, account, booking.id, key=f"displaced {booking.id}", number=booking.number,
            name=booking.name, by="An operator", why=why,
        )  # fmt: skip
    before, after = {"state": booking.state}, {"at": now.isoformat(), "not_charged": f"{back} {booking.currency}"}
    subject = f"booking {booking.label}"
    audit.record(work, actor, "displace booking", subject, before, after, why)
    audit.record(work, actor, "displace booking", subject, before, after, why, platform=True, tenant_id=work.tenant_id)
    gone = queries.find_booking(work, booking.id)
    assert gone is not None
    return Displacement(gone, tenant, now, back)


def _take(work: Work, queue: Queue, actor: Actor, booking: Booking, why: str, now: datetime) -> None:
    view, state = caught_up(work, booking, now)
    if state not in _OPEN:
        raise not_in_state(booking, state, "displaced")
    event = Event.WITHDRAW if state is State.ACTIVE else cancel_event(view)
    write_changes(work, booking, view, leave(view, event, now, f"Displaced by an operator: {why}"), actor, now)
    allocation = queries.allocation_of(work, booking.id)
    assert allocation is not None
    if event is Event.CANCEL:
        due.forget(work, allocation.id)
    else:
        look_now(work, queue, booking, allocation.id, now)


def _back(work: Work, booking: Booking, now: datetime) -> Decimal:
    """What of the price is not charged: all of it before it is provided, later that of the time from now on."""
    if booking.provided_at is None or now <= booking.provided_at:
        return booking.quoted
    if now >= booking.ends_at:
        return Decimal(0)
    left = schedule.within(queries.segments_of(work, booking.id), Window(now, booking.ends_at))
    return schedule.cost_of(left, booking.units, booking.currency, booking.share840).amount


def _find(work: Work, actor: Actor, label: str) -> tuple[Booking, str]:
    """Anybody's booking by its id or number; the transaction then acts for its tenant."""
    may_operate(actor)
    digits = label.upper().removeprefix("B-")
    number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else None
    with work.read_all():
        row = queries_displacing.tenant_of(work, ids.parse(ids.BOOKING, label), number)
    if row is None:
        raise NotFound("booking_not_found", "There is no such booking.")
    booking_id, tenant_id, tenant = row
    work.act_for(tenant_id)
    booking = queries.find_booking(work, booking_id)
    assert booking is not None
    return booking, tenant
