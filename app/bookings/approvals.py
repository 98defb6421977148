"""Asking for approval and answering: a request is granted, rejected, withdrawn, or lapses. One verb, one transaction.

A request for a new booking is a booking from the start (REQUESTED), with units and quota by default; where the pool says
that requests hold nothing, they are looked for when it is granted. A request to extend holds only what would be added, and
the booking stays as it was until then. It must not know HTTP, forms or workers, and never calls a backend.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from uuid import UUID

from psycopg.errors import ExclusionViolation

from app.bookings import asking, offers, policies, queries, queries_requests, rules
from app.bookings.edits import Key, allow, check_version, done_before, look_now, not_in_state, project_of, see
from app.bookings.facts import Booking
from app.bookings.lifecycle import BookingView, Event, Move, State
from app.bookings.moves import write_changes
from app.bookings.offers import Desk
from app.bookings.open_projects import closed
from app.bookings.placement import NoPlace, place
from app.bookings.queries_requests import Request
from app.inventory import queries as inventory
from app.kernel.actor import SYSTEM, Actor
from app.kernel.errors import Conflict, Forbidden, Invalid, NotFound, Reason, Refusal, Refused
from app.kernel.window import Window
from app.plumbing import outbox
from app.plumbing.db import Work
from app.plumbing.queue import Queue
from app.pricing.rules import Segment
from app.quotas import queries as quotas
from app.quotas.rules import pieces

_EDITABLE = (State.BOOKED, State.STARTING, State.ACTIVE)


# --- answering ----------------------------------------------------------------------------------------------------------


def enter(work: Work, actor: Actor, request_id: UUID | None) -> tuple[Request, Booking]:
    """A request with its booking; the transaction acts for its tenant from here on. NotFound for whoever may not see it:
    the project's people see their own, operators those of every tenant that they answer."""
    found = None
    if request_id is not None and work.tenant_id is not None:
        found = queries_requests.find_request(work, request_id)
    if found is None and request_id is not None and "operator" in actor.platform_roles:
        with work.read_all():
            found = queries_requests.find_request(work, request_id)
        if found is not None and found.approver == "operator":
            work.act_for(found.tenant_id)
        else:
            found = None
    booking = None if found is None else queries.find_booking(work, found.booking_id)
    if (
        found is None
        or booking is None
        or not (_answers(actor, found, booking) or actor.sees_project(booking.project_id))
    ):
        raise NotFound("request_not_found", "There is no such request.")
    return found, booking


def may_answer(actor: Actor, request: Request, booking: Booking) -> bool:
    """Whether this person may approve or reject it. Nobody answers what he or she has asked an operator for."""
    own = request.account_id is not None and request.account_id == actor.account_id
    return _answers(actor, request, booking) and not (own and request.approver == "operator")


def approve(work: Work, queue: Queue, actor: Actor, request_id: UUID | None, why: str = "") -> Booking:
    """Say yes. A booking that was asked for is booked, an extension is made.

    Twice by the same person is once. Raises Conflict when it is answered or has lapsed, and when a request that held
    nothing finds its units taken: that one is on the waiting list then, which is written whatever the caller does.
    """
    request, booking = enter(work, actor, request_id)
    _check_answerer(actor, request, booking)
    if request.outcome == "granted" and request.answered_by == actor.label:
        return booking
    _check_open(request)
    if request.verb == "extend":
        return _extend(work, queue, actor, request, why)
    if not request.wanted.get("holds", True):
        return _book_without_hold(work, queue, actor, request, why)
    locked, request = _lock(work, request)
    now = _still_open(work, request)
    _check_requested(locked)
    _check_project(work, locked, now, locked.ends_at)
    queries.advance(work, locked.id, State.REQUESTED, Event.APPROVE, now, actor, now, why)
    return _granted(work, queue, actor, request, now, why)


def reject(work: Work, queue: Queue, actor: Actor, request_id: UUID | None, why: str) -> Booking:
    """Say no, with a reason that whoever asked will read. What the request held is free at once."""
    if not why.strip():
        said = "Say why: whoever asked will read it."
        raise Invalid("reason_missing", said, (Reason("reason_missing", said, field="why", in_request=True),))
    request, booking = enter(work, actor, request_id)
    _check_answerer(actor, request, booking)
    if request.outcome == "rejected" and request.answered_by == actor.label:
        return booking
    _check_open(request)
    return end_request(work, request, "rejected", actor, why.strip())


def withdraw(
    work: Work, queue: Queue, actor: Actor, booking_id: UUID, key: Key | None = None, version: int | None = None
) -> Booking:
    """Take back what was asked for: the booking that is requested is cancelled, an edit that is requested is forgotten."""
    done = done_before(work, actor, key, "withdraw", booking_id)
    if done is not None:
        return done
    booking = see(work, actor, booking_id)
    allow(actor, booking)
    check_version(booking, version)
    request = queries_requests.open_request(work, booking_id)
    if request is None or request.waits_for != "approval":
        raise Conflict("no_request", f"Nothing is asked for {booking.label} that could be taken back.")
    return end_request(work, request, "withdrawn", actor, "")


def lapse(work: Work, request_id: UUID) -> None:
    """Nobody has answered in time. Nothing when somebody has, or time is left."""
    request = queries_requests.find_request(work, request_id)
    if request is None or request.outcome is not None:
        return
    locked, request = _lock(work, request)
    now = work.product_now()
    if request.outcome is not None or now < request.expires_at:
        return
    end_locked(work, locked, request, "lapsed", SYSTEM, now, "Nobody answered in time.")


def end_request(work: Work, request: Request, outcome: str, actor: Actor, why: str) -> Booking:
    """Close a request that is not granted, with everything that it held. Conflict when somebody has answered it."""
    locked, request = _lock(work, request)
    _check_open(request)
    end_locked(work, locked, request, outcome, actor, work.product_now(), why)
    after = queries.find_booking(work, locked.id)
    assert after is not None
    return after


_NOTES = {"rejected": "reject", "lapsed": "lapse", "withdrawn": "withdraw"}
_EVENTS = {"rejected": Event.REJECT, "lapsed": Event.LAPSE, "withdrawn": Event.CANCEL}


def end_locked(
    work: Work, booking: Booking, request: Request, outcome: str, actor: Actor, now: datetime, why: str
) -> None:
    """Close a request that is not granted. Booking and request are locked, and the request is open."""
    if request.verb == "book":
        _check_requested(booking)
        queries.holds_of(work, booking.id, lock=True)
    else:
        queries_requests.lock_holds_of_requests(work, [request.id])
    queries_requests.close_request(work, request.id, outcome, actor, now, why)
    if request.verb == "book":
        view = BookingView(State(booking.state), booking.window)
        write_changes(work, booking, view, [Move(_EVENTS[outcome], now, why)], actor, now)
    else:
        freed = queries_requests.pieces_of_request(work, request.id)
        queries_requests.drop_holds(work, [request.id])
        quotas.give_back_request(work, request.id)
        queries_requests.pass_on(work, booking, freed, now)
        event = f"{_NOTES[outcome]}_{request.verb}"
        queries.note(work, booking.id, event, booking.state, booking.state, actor, now, why)
    if outcome != "withdrawn":
        _tell(work, request, booking, f"request_{outcome}", now, why)


def _extend(work: Work, queue: Queue, actor: Actor, request: Request, why: str) -> Booking:
    """Make the extension that was asked for: what the request held becomes the booking's."""
    before = queries.find_booking(work, request.booking_id)
    assert before is not None
    scopes = quotas.lock_scopes(work, before.tenant_id, before.project_id, before.account_id, [before.kind])
    pool = policies.lock_pool(work, before)
    locked, request = _lock(work, request)
    queries.holds_of(work, locked.id, lock=True)
    queries_requests.lock_holds_of_requests(work, [request.id])
    now = _still_open(work, request)
    wanted = request.wanted
    state = State(locked.state)
    if state not in _EDITABLE or rules.iso(locked.ends_at) != wanted["was"] or locked.units != wanted["units"]:
        said = f"{locked.label} has changed since this was asked for. It has to be asked anew."
        end_locked(work, locked, request, "lapsed", SYSTEM, now, said)
        work.keep()
        raise Conflict("changed_meanwhile", said)
    end = datetime.fromisoformat(wanted["end"].replace("Z", "+00:00"))
    _check_project(work, locked, now, end)
    segments = [asking.segment_of(words) for words in wanted["segments"]]
    queries_requests.drop_holds(work, [request.id])  # first: the other order would be refused
    try:
        with work.pg.transaction():
            queries.grow_holds(work, locked.id, end + pool.policy.gap)
    except ExclusionViolation:
        raise Conflict("units_taken", f"Units of {locked.label} are taken afterwards. It cannot be extended.") from None
    if wanted["holds"]:
        quotas.hand_over(work, request.id, locked.id, segments[0].window.start)
    else:
        desk = Desk(work, _asker(locked), project_of(work, locked), now, locked.account_id)
        plain = (Segment(s.window, s.price_id, s.per_hour) for s in segments)
        asked = pieces(plain, desk.zone, locked.units, locked.share840)
        reasons, _ = offers.limits_of(desk, pool, locked.account_id, scopes, asked, Window(locked.ends_at, end))
        if reasons:
            raise Refused(Refusal(reasons))
        quotas.commit_pieces(work, locked.tenant_id, scopes, asked, locked.id)
    total = Decimal(wanted["total"])
    queries.extend_booking(work, locked.id, end, total, segments)
    changes = {"end": [wanted["was"], wanted["end"]], "quoted": [str(locked.quoted), str(total)]}
    queries.note(work, locked.id, "extend", state, state, actor, now, why, changes)
    queries.want_more(work, locked.id)
    inventory.raise_version(work, [pool.id])
    if locked.asked:
        allocation = queries.allocation_of(work, locked.id)
        assert allocation is not None
        look_now(work, queue, locked, allocation.id, now)
    queries_requests.close_request(work, request.id, "granted", actor, now, why)
    _tell(work, request, locked, "request_granted", now, why)
    after = queries.find_booking(work, locked.id)
    assert after is not None
    return after


def _book_without_hold(work: Work, queue: Queue, actor: Actor, request: Request, why: str) -> Booking:
    """Units are looked for now. When they are taken the booking waits for them, and the approver is told."""
    before = queries.find_booking(work, request.booking_id)
    assert before is not None
    project = project_of(work, before)
    scopes = quotas.lock_scopes(work, before.tenant_id, before.project_id, before.account_id, [before.kind])
    pool = policies.lock_pool(work, before)
    locked, request = _lock(work, request)
    now = _still_open(work, request)
    _check_requested(locked)
    _check_project(work, locked, now, locked.ends_at)
    desk = Desk(work, _asker(locked), project, now, locked.account_id)
    policy, window = pool.policy, locked.window
    capacity = inventory.capacity_of(work, [pool])[pool.id]
    blocked = Window(window.start, window.end + policy.gap)
    found = place(
        offers.with_holds(work, capacity, blocked), asking.shape_of(locked), window, int(policy.gap.total_seconds())
    )
    segments = queries.segments_of(work, locked.id)
    plain = (Segment(s.window, s.price_id, s.per_hour) for s in segments)
    asked = pieces(plain, desk.zone, locked.units, locked.share840)
    reasons, _ = offers.limits_of(desk, pool, locked.account_id, scopes, asked, window, locked.id)
    if isinstance(found, NoPlace) or reasons:
        said = rules.no_place(found, pool.kind, pool.cluster) if isinstance(found, NoPlace) else reasons[0]
        queries_requests.close_request(work, request.id, "rejected", actor, now, said.message)
        queries.advance(work, locked.id, State.REQUESTED, Event.WAIT, now, actor, now, said.message)
        asking.wait_in_queue(work, locked, window, False, now)
        work.keep()
        raise Conflict("units_taken", f"{said.message} {locked.label} is on the waiting list now.")
    asking.take_units(work, locked, pool, [(p.node_id, p.positions) for p in found.parts], window)
    quotas.commit_pieces(work, locked.tenant_id, scopes, asked, locked.id)
    queries.advance(work, locked.id, State.REQUESTED, Event.APPROVE, now, actor, now, why)
    return _granted(work, queue, actor, request, now, why)


def _granted(work: Work, queue: Queue, actor: Actor, request: Request, now: datetime, why: str) -> Booking:
    queries_requests.close_request(work, request.id, "granted", actor, now, why)
    after = queries.find_booking(work, request.booking_id)
    assert after is not None
    asking.begin_when_due(work, queue, after, now)
    _tell(work, request, after, "request_granted", now, why)
    return after


def _lock(work: Work, request: Request) -> tuple[Booking, Request]:
    """The booking, then its request, as they are then."""
    booking = queries.lock_booking(work, request.booking_id)
    locked = queries_requests.find_request(work, request.id, lock=True)
    assert booking is not None
    assert locked is not None
    return booking, locked


def _still_open(work: Work, request: Request) -> datetime:
    """The instant, when the request can still be granted then."""
    _check_open(request)
    now = work.product_now()
    if now >= request.expires_at:
        raise Conflict(
            "request_lapsed", f"This could be answered until {rules.iso(request.expires_at)}. It has lapsed."
        )
    return now


def _check_open(request: Request) -> None:
    if request.outcome is not None:
        by = f" by {request.answered_by}" if request.answered_by else ""
        raise Conflict("answered_before", f"This request was {request.outcome} before{by}.")


def _check_project(work: Work, booking: Booking, now: datetime, until: datetime) -> None:
    """Nothing is granted in a project that has ended meanwhile."""
    ended = closed(project_of(work, booking), now, until)
    if ended is not None:
        raise Refused(Refusal((ended,)))


def _check_requested(booking: Booking) -> None:
    if booking.state != State.REQUESTED:
        raise not_in_state(booking, State(booking.state), "approved or rejected")


def _answers(actor: Actor, request: Request, booking: Booking) -> bool:
    if request.approver == "operator":
        return "operator" in actor.platform_roles
    return actor.tenant_id == request.tenant_id and actor.leads(booking.project_id)


def _check_answerer(actor: Actor, request: Request, booking: Booking) -> None:
    if request.waits_for != "approval" or not _answers(actor, request, booking):
        who = "An operator" if request.approver == "operator" else f"A lead of {booking.project_name}"
        raise Forbidden("role_missing", f"{who} answers this.")
    if not may_answer(actor, request, booking):
        raise Forbidden("own_request", "You have asked for this yourself. Somebody else answers it.")


def _asker(booking: Booking) -> Actor:
    return Actor(booking.account_id, booking.booked_by, booking.tenant_id)


def _tell(work: Work, request: Request, booking: Booking, kind: str, now: datetime, why: str) -> None:
    account = request.account_id or booking.account_id
    if account is not None:
        outbox.tell(
            work, kind, now, account, booking.id, key=f"{kind}:{request.id}", number=booking.number, name=booking.name,
            verb=request.verb, why=why,
        )  # fmt: skip
