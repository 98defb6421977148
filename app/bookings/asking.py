"""Writing down what waits: a booking that is asked for, an extension that is, a place in the queue; and seating it.

Whoever calls has the locks and has decided; answers are `approvals.py` and `waitlist.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from psycopg.errors import ExclusionViolation

from app.bookings import due, queries, queries_requests, queries_waiting, rules
from app.bookings.capacity import Shape
from app.bookings.edits import look_now, pool_of
from app.bookings.facts import Booking, PriceSegment
from app.bookings.lifecycle import Event, State
from app.bookings.offers import Desk, Offer
from app.bookings.queries_requests import Piece, Unseated
from app.bookings.rules_load import Approval
from app.bookings.schemas import Ask
from app.bookings.waits import answer_by, no_time_to_ask
from app.inventory import queries as inventory
from app.inventory.facts import Pool
from app.inventory.policy import Policy
from app.kernel.actor import Actor
from app.kernel.errors import Conflict, Reason, Refusal, Refused
from app.kernel.window import Window
from app.plumbing import outbox
from app.plumbing.db import Work
from app.plumbing.queue import Queue
from app.pricing.rules import Segment
from app.quotas import queries as quotas
from app.quotas.rules import Scope, pieces


def ask_to_book(
    work: Work, booking: Booking, approval: Approval, policy: Policy, actor: Actor, now: datetime, *, holds: bool = True
) -> UUID:
    """The request behind a booking that has just become REQUESTED."""
    until = answer_by(now, booking.starts_at, policy)
    assert until is not None  # checked before it was written
    return _ask(work, booking, "book", {"holds": holds}, approval, until, actor, now)


def request_without_units(desk: Desk, ask: Ask, offer: Offer, booking_id: UUID, approval: Approval) -> Booking:
    """A request that holds nothing: the row of the booking with its price, and the request. Under the pool's lock."""
    work, actor, now = desk.work, desk.actor, desk.now
    write_unseated(desk, ask, offer.pool, State.REQUESTED, booking_id, offer.window, offer.cost.amount)
    queries_requests.seat(work, booking_id, offer.window, offer.cost.amount, offer.prices)
    queries.note(work, booking_id, Event.ASK, None, State.REQUESTED, actor, now, "")
    booking = queries.find_booking(work, booking_id)
    assert booking is not None
    ask_to_book(work, booking, approval, offer.pool.policy, actor, now, holds=False)
    return booking


def write_unseated(
    desk: Desk, ask: Ask, pool: Pool, state: State, booking_id: UUID, window: Window, quoted: Decimal
) -> None:
    """The row of a booking that has no units yet, as it was asked for."""
    project = desk.project
    row = Unseated(
        booking_id,
        project.id,
        ask.name,
        ask.cost_centre if ask.cost_centre is not None else project.cost_centre,
        ask.reference,
        state,
        pool.kind,
        pool.cluster_id,
        pool.id,
        ask.shape,
        window,
        project.currency,
        quoted,
        project.zone,
        {"kind": ask.workload},
        (desk.actor.account_id, desk.actor.label) if ask.owner is None else (ask.owner.account_id, ask.owner.name),
        ask.series_id,
        ask.occurs_at,
        ask.class_id,
    )
    queries_requests.insert_unseated(desk.work, row, desk.now)


def ask_to_extend(
    desk: Desk,
    booking: Booking,
    pool: Pool,
    end: datetime,
    segments: Sequence[PriceSegment],
    money: tuple[Decimal, Decimal],
    approval: Approval,
    scopes: Sequence[Scope],
) -> UUID:
    """The request for a later end, with units and quota of what would be added. `money` is added and total.

    Scopes, pool, booking and holds are locked. Raises Refused when the units are taken.
    """
    work, now, policy = desk.work, desk.now, pool.policy
    until = answer_by(now, booking.ends_at, policy)
    if until is None:
        raise Refused(Refusal((no_time_to_ask(approval.who, booking.ends_at, now),)))
    if queries_requests.open_request(work, booking.id) is not None:
        raise Conflict("request_open", f"{booking.label} has a request that is not answered yet. Withdraw it first.")
    added, total = money
    wanted: dict[str, Any] = {
        "holds": policy.requests_hold,
        "was": rules.iso(booking.ends_at),
        "end": rules.iso(end),
        "units": booking.units,
        "added": str(added),
        "total": str(total),
        "segments": [segment_words(s) for s in segments],
    }
    request_id = _ask(work, booking, "extend", wanted, approval, until, desk.actor, now)
    if policy.requests_hold:
        held = queries_requests.pieces_of_booking(work, booking.id, staying=True)
        more = [Piece(p.node_id, p.units, p.end, end + policy.gap, p.allocation_id) for p in held]
        try:
            with work.pg.transaction():
                queries_requests.add_holds(work, request_id, more)
        except ExclusionViolation:
            said = f"Units of {booking.label} are taken afterwards."
            raise Refused(Refusal((Reason("units_taken_after", said, field="end"),))) from None
        plain = (Segment(s.window, s.price_id, s.per_hour) for s in segments)
        asked = pieces(plain, desk.zone, booking.units, booking.share840)
        quotas.commit_pieces(work, booking.tenant_id, scopes, asked, None, request_id)
        inventory.raise_version(work, [pool.id])
    changes = {"end": [rules.iso(booking.ends_at), rules.iso(end)]}
    queries.note(work, booking.id, "ask_extend", booking.state, booking.state, desk.actor, now, "", changes)
    return request_id


def wait_in_queue(work: Work, booking: Booking, window: Window, auto: bool, now: datetime) -> None:
    """Put a booking that has just become WAITING at the end of its pool's queue; it is looked at at once."""
    queries_waiting.join_queue(work, booking.id, booking.pool_id, booking.units, window, auto, now)
    queries_requests.remind(work, booking.id, now)
    place_now = queries_waiting.place_in_queue(work, booking.id)
    assert place_now is not None
    tell_place(work, booking, place_now, now)


def tell_place(work: Work, booking: Booking, place_now: tuple[int, int], now: datetime) -> None:
    """Each place is told once."""
    nth, of = place_now
    if booking.account_id is not None:
        outbox.tell(
            work, "wait_place", now, booking.account_id, booking.id, key=f"place:{booking.id}:{nth}",
            number=booking.number, name=booking.name, place=nth, of=of,
        )  # fmt: skip


def take_units(
    work: Work, booking: Booking, pool: Pool, parts: Sequence[tuple[int, Sequence[tuple[int, int]]]], window: Window
) -> UUID:
    """Holds and an allocation for a booking that had none. The pool is locked; raises Conflict when a unit is taken."""
    allocation_id = queries_requests.make_allocation(work, booking.cluster_id)
    until = window.end + pool.policy.gap
    held = [Piece(node, tuple(units), window.start, until, allocation_id) for node, units in parts]
    try:
        with work.pg.transaction():
            queries_requests.occupy(work, booking.id, allocation_id, held)
    except ExclusionViolation:
        raise Conflict("units_taken", f"Somebody else has just taken units of {booking.label}.") from None
    inventory.raise_version(work, [pool.id])
    return allocation_id


def begin_when_due(work: Work, queue: Queue, booking: Booking, now: datetime) -> None:
    """A booking that is booked from now on is made on its cluster in time."""
    allocation = queries.allocation_of(work, booking.id)
    assert allocation is not None
    at = booking.starts_at - pool_of(work, booking).policy.made_ahead
    if at <= now:
        look_now(work, queue, booking, allocation.id, now)
    else:
        due.hurry(work, allocation.id, booking.tenant_id, booking.cluster_id, at)


def shape_of(booking: Booking) -> Shape:
    """What a booking asks of nodes."""
    return queries_waiting.shape_of(booking.units, booking.nodes, booking.per_node, booking.within, booking.near)


def segment_words(segment: PriceSegment) -> dict[str, Any]:
    """A piece of a price schedule as a request keeps it."""
    start, end = segment.window.start, segment.window.end
    return {
        "start": rules.iso(start),
        "end": rules.iso(end),
        "price": segment.price_id,
        "per_hour": str(segment.per_hour),
    }


def segment_of(words: dict[str, Any]) -> PriceSegment:
    """The inverse of `segment_words`."""
    start, end = (datetime.fromisoformat(words[name].replace("Z", "+00:00")) for name in ("start", "end"))
    return PriceSegment(Window(start, end), words["price"], Decimal(words["per_hour"]))


def _ask(
    work: Work,
    booking: Booking,
    verb: str,
    wanted: dict[str, Any],
    approval: Approval,
    until: datetime,
    actor: Actor,
    now: datetime,
) -> UUID:
    who, why = approval.approver, " ".join(reason.message for reason in approval.reasons)
    words = wanted | {"why": why}
    request_id = queries_requests.insert_request(
        work, booking.id, "approval", verb, words, until, actor, now, approver=who
    )
    for account in queries_requests.approvers_of(work, who, booking.project_id):
        if account != actor.account_id:
            outbox.tell(
                work, "approval_asked", now, account, booking.id, key=f"asked:{request_id}", number=booking.number,
                name=booking.name, verb=verb, by=actor.label, until=rules.iso(until),
            )  # fmt: skip
    return request_id
