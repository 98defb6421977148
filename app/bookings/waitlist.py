"""The waiting list from a person's side: wait for units, take what is offered, decline it, stop waiting.

A booking that waits holds nothing and promises nothing; it stands in the queue of one pool. Who is served with what is
`reconcile_requests.py`. One verb, one function, one transaction; the caller commits.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from app.bookings import (
    actions,
    approvals,
    asking,
    offers,
    policies,
    queries,
    queries_requests,
    queries_waiting,
    rules,
    waits,
    wanted,
)
from app.bookings.edits import Key, allow, check_version, done_before, project_of, see
from app.bookings.facts import Booking, PriceSegment
from app.bookings.lifecycle import BookingView, Event, Move, State
from app.bookings.moves import write_changes
from app.bookings.offers import Desk, Offer
from app.bookings.queries_requests import Request
from app.bookings.schemas import Ask
from app.inventory import queries as inventory
from app.inventory.facts import Pool
from app.kernel.actor import SYSTEM, Actor
from app.kernel.errors import Conflict, Refusal, Refused
from app.kernel.ids import new_id
from app.kernel.money import WHOLE
from app.kernel.window import Window
from app.plumbing import outbox
from app.plumbing.db import Work
from app.plumbing.queue import Queue, send_after_commit
from app.pricing.rules import Segment, cost
from app.quotas import queries as quotas

LOOK = "requests.look"
"""The task that looks at one request or one waiting booking."""
WAITABLE = frozenset({"no_units_free", "no_time_found", "no_power"})
"""Reasons that go away when somebody else gives something back."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Where a waiting booking stands: its place of how many, what it waits for, and the offer that it has, if any."""

    place: int
    of: int
    window: Window
    auto: bool
    skips: int
    offer: WaitOffer | None


@dataclass(frozen=True, slots=True)
class WaitOffer:
    """Units held for a waiter: when, for how much, and until when the answer is awaited."""

    request_id: UUID
    window: Window
    amount: Decimal
    currency: str
    until: datetime
    segments: tuple[PriceSegment, ...]

    def at(self, now: datetime, units: int, share840: int = WHOLE) -> tuple[Window, tuple[PriceSegment, ...], Decimal]:
        """What is left of it now, with its price: what has begun is given from now on."""
        window = Window(max(self.window.start, now), self.window.end)
        parts = ((s.window.intersect(window), s) for s in self.segments)
        left = tuple(PriceSegment(part, s.price_id, s.per_hour) for part, s in parts if part is not None)
        plain = [Segment(s.window, s.price_id, s.per_hour) for s in left]
        return window, left, cost(plain, units, self.currency, share840).amount


# --- waiting ------------------------------------------------------------------------------------------------------------


def book_or_wait(
    work: Work, queue: Queue, actor: Actor, ask: Ask, auto: bool = False, key: Key | None = None
) -> Booking:
    """Book it; where only others' bookings stand in the way, wait for it instead.

    Raises Refused as `actions.book` does where waiting would not help. With `auto` it is booked as soon as it fits, else
    offered. The same key and body again answers with the same booking.
    """
    try:
        return actions.book(work, queue, actor, ask, key)
    except Refused as refused:
        if any(r.code not in WAITABLE and not r.in_request for r in refused.refusal.reasons):
            raise
        waiting = _wait(work, queue, actor, ask, auto, key)
        if waiting is None:
            raise
        return waiting


def may_wait(refused: Refused) -> bool:
    """Whether waiting could help, as far as the reasons tell."""
    reasons = refused.refusal.reasons
    return any(r.code in WAITABLE for r in reasons) and all(r.code in WAITABLE or r.in_request for r in reasons)


def _wait(work: Work, queue: Queue, actor: Actor, ask: Ask, auto: bool, key: Key | None) -> Booking | None:
    """Stand in the queue of the first pool that only others' bookings keep from serving it; None when there is none."""
    booking_id = new_id()
    done = done_before(work, actor, key, "book", booking_id)
    if done is not None:
        return done
    desk = offers.open_desk(work, actor, ask.project, ask.exactly)
    chosen: Pool | None = None
    for found in offers.find_offers(desk, ask, offers.pools_asked(desk, ask)):
        if isinstance(found, Offer):
            return None  # it fits: what was refused is something that waiting does not mend
        if chosen is None and found[1] and all(r.code in WAITABLE for r in found[1]):
            chosen = found[0]
    if chosen is None:
        return None
    inventory.lock_pools(work, [chosen.id])
    desk = Desk(work, actor, desk.project, work.product_now(), actor.account_id)
    first, last = (
        wanted.bounds(ask, chosen.policy, desk.now) if ask.start is None else (ask.start, ask.start + ask.length)
    )
    window = Window(first, last)
    wished = Window(window.start, window.start + ask.length)
    segments = desk.segments(chosen.kind, wished)
    if segments is None or wished.end > window.end:
        return None
    price = cost(segments, ask.shape.total, desk.project.currency, chosen.share840)
    asking.write_unseated(desk, ask, chosen, State.WAITING, booking_id, wished, price.amount)
    said = f"{rules.iso(window.start)} .. {rules.iso(window.end)}"
    queries.note(work, booking_id, Event.WAIT, None, State.WAITING, actor, desk.now, "", {"window": said, "auto": auto})
    booking = queries.find_booking(work, booking_id)
    assert booking is not None
    asking.wait_in_queue(work, booking, window, auto, desk.now)
    send_after_commit(work, queue, LOOK, str(booking.tenant_id), str(booking_id))
    return booking


def wait_of(work: Work, booking: Booking) -> Wait | None:
    """Where a booking stands in the queue; None when it does not wait."""
    place = queries_waiting.place_in_queue(work, booking.id) if booking.state == State.WAITING else None
    waiter = queries_waiting.waiter(work, booking.id) if place else None
    if place is None or waiter is None:
        return None
    request = queries_requests.open_request(work, booking.id)
    offer = None if request is None or request.waits_for != "answer" else offer_of(request, booking.currency)
    return Wait(*place, Window(waiter.earliest, waiter.latest), waiter.auto, waiter.skips, offer)


def offer_of(request: Request, currency: str) -> WaitOffer:
    """An offer from its row."""
    segments = tuple(asking.segment_of(words) for words in request.wanted["segments"])
    window = Window(segments[0].window.start, segments[-1].window.end)
    amount = Decimal(request.wanted["amount"])
    return WaitOffer(request.id, window, amount, currency, request.expires_at, segments)


# --- answering an offer -------------------------------------------------------------------------------------------------


def accept(
    work: Work, queue: Queue, actor: Actor, booking_id: UUID, key: Key | None = None, version: int | None = None
) -> Booking:
    """Take what is offered, at the price that was offered with it. It is booked, or asked for where it needs approval.

    Raises Conflict when there is no offer or it is over.
    """
    done = done_before(work, actor, key, "accept", booking_id)
    if done is not None:
        return done
    booking = see(work, actor, booking_id)
    allow(actor, booking)
    quotas.lock_scopes(work, booking.tenant_id, booking.project_id, booking.account_id, [booking.kind])
    pool = policies.lock_pool(work, booking)
    locked, request = _lock_offer(work, booking)
    check_version(locked, version)
    now = work.product_now()
    if now >= request.expires_at:
        raise Conflict("offer_lapsed", f"The offer stood until {rules.iso(request.expires_at)}. It is over.")
    return take(work, queue, actor, locked, request, pool, now)


def take(
    work: Work, queue: Queue, actor: Actor, booking: Booking, request: Request, pool: Pool, now: datetime
) -> Booking:
    """What an offer holds becomes the booking's. Scopes, pool, booking, request and holds are locked."""
    window, segments, amount = offer_of(request, booking.currency).at(now, booking.units, booking.share840)
    desk = Desk(work, actor, project_of(work, booking), now, booking.account_id)
    plain = [Segment(s.window, s.price_id, s.per_hour) for s in segments]
    price = cost(plain, booking.units, booking.currency, booking.share840)
    approval = offers.approval_of(desk, pool, window, price, booking.units)
    if approval is not None and waits.answer_by(now, window.start, pool.policy) is None:
        raise Refused(Refusal((waits.no_time_to_ask(approval.who, window.start, now),)))
    queries_requests.take_over_holds(work, request.id, booking.id, window.start)
    quotas.hand_over(work, request.id, booking.id, window.start)
    queries_requests.seat(work, booking.id, window, amount, segments)
    queries_requests.close_request(work, request.id, "granted", actor, now)
    queries_waiting.leave_queue(work, booking.id, now)
    event = Event.BOOK if approval is None else Event.ASK
    queries.advance(work, booking.id, State.WAITING, event, now, actor, now)
    inventory.raise_version(work, [pool.id])
    after = queries.find_booking(work, booking.id)
    assert after is not None
    if approval is None:
        asking.begin_when_due(work, queue, after, now)
    else:
        asking.ask_to_book(work, after, approval, pool.policy, actor, now)
    return after


def decline(
    work: Work, queue: Queue, actor: Actor, booking_id: UUID, key: Key | None = None, version: int | None = None
) -> Booking:
    """Do not take what is offered, and wait no more: it goes to the next at once."""
    done = done_before(work, actor, key, "decline", booking_id)
    if done is not None:
        return done
    booking = see(work, actor, booking_id)
    allow(actor, booking)
    locked, request = _lock_offer(work, booking)
    check_version(locked, version)
    end_offer(work, locked, request, "rejected", Event.CANCEL, actor, work.product_now(), "The offer was declined.")
    after = queries.find_booking(work, booking_id)
    assert after is not None
    return after


def give_up(work: Work, actor: Actor, booking: Booking, now: datetime) -> None:
    """Cancel a booking that is not booked yet: it waits, has an offer, or is asked for. It is locked by the caller."""
    request = queries_requests.open_request(work, booking.id, lock=True)
    if booking.state == State.REQUESTED:
        if request is None:
            raise Conflict("no_request", f"{booking.label} is being answered just now. Look again.")
        approvals.end_locked(work, booking, request, "withdrawn", actor, now, "")
    elif request is not None:
        end_offer(work, booking, request, "withdrawn", Event.CANCEL, actor, now, "")
    else:
        _stop(work, booking, Event.CANCEL, actor, now, "")


def expire(work: Work, booking_id: UUID) -> None:
    """The answer to an offer did not come in time. Nothing when it did, or time is left."""
    booking = queries.lock_booking(work, booking_id)
    request = queries_requests.open_request(work, booking_id, lock=True)
    now = work.product_now()
    if booking is None or request is None or request.waits_for != "answer" or now < request.expires_at:
        return
    end_offer(work, booking, request, "lapsed", Event.LAPSE, SYSTEM, now, "The offer was not answered in time.")
    _tell(work, booking, "offer_lapsed", now, f"offer_lapsed:{request.id}")


def lapse_wait(work: Work, booking_id: UUID) -> None:
    """Its latest start has gone by. Nothing when it has an offer, waits no more, or time is left."""
    booking = queries.lock_booking(work, booking_id)
    waiter = queries_waiting.waiter(work, booking_id)
    now = work.product_now()
    if booking is None or waiter is None or waiter.offered or now < waiter.last_start:
        return
    _stop(work, booking, Event.LAPSE, SYSTEM, now, "No units became free in time.")
    _tell(work, booking, "wait_lapsed", now, f"wait_lapsed:{booking.id}")


def end_offer(
    work: Work, booking: Booking, request: Request, outcome: str, event: Event, actor: Actor, now: datetime, why: str
) -> None:
    """Close an offer that is not taken, and wait no more; its units go to the next. Booking and request are locked."""
    queries_requests.lock_holds_of_requests(work, [request.id])
    freed = queries_requests.pieces_of_request(work, request.id)
    queries_requests.drop_holds(work, [request.id])
    quotas.give_back_request(work, request.id)
    for allocation_id in {p.allocation_id for p in freed}:
        queries_requests.close_allocation(work, allocation_id)
    queries_requests.close_request(work, request.id, outcome, actor, now, why)
    _stop(work, booking, event, actor, now, why)
    queries_requests.pass_on(work, booking, freed, now)


def _stop(work: Work, booking: Booking, event: Event, actor: Actor, now: datetime, why: str) -> None:
    queries_waiting.leave_queue(work, booking.id, now)
    write_changes(work, booking, BookingView(State.WAITING, booking.window), [Move(event, now, why)], actor, now)


def _lock_offer(work: Work, booking: Booking) -> tuple[Booking, Request]:
    locked = queries.lock_booking(work, booking.id)
    request = queries_requests.open_request(work, booking.id, lock=True)
    assert locked is not None
    if request is None or request.waits_for != "answer":
        raise Conflict("no_offer", f"{booking.label} has no offer that could be answered.")
    queries_requests.lock_holds_of_requests(work, [request.id])
    return locked, request


def _tell(work: Work, booking: Booking, kind: str, now: datetime, key: str) -> None:
    if booking.account_id is not None:
        outbox.tell(
            work, kind, now, booking.account_id, booking.id, key=key, number=booking.number, name=booking.name
        )  # fmt: skip
