"""Whose a booking is and who may enter it: handed over to another member, shared with the project or not any more.

Both bring the cluster's access up to date when next it is looked at. What was charged before a hand-over stays the earlier
person's.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

from app.bookings import queries, queries_edits, schedule
from app.bookings.edits import (
    Key,
    allow,
    caught_up,
    change,
    check_version,
    done_before,
    look_now,
    not_in_state,
    project_of,
    see,
    tell_owner,
    view_now,
)
from app.bookings.facts import Booking
from app.bookings.lifecycle import State
from app.bookings.queries_edits import Member
from app.kernel.actor import Actor
from app.kernel.errors import Conflict, Reason, Refusal, Refused
from app.kernel.window import Window
from app.plumbing import outbox
from app.plumbing.db import Work
from app.plumbing.queue import Queue
from app.quotas import queries as quotas
from app.quotas.rules import Piece, QuotaEffect, Scope, check, months_of

OPEN = (State.BOOKED, State.STARTING, State.ACTIVE)
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class HandOver:
    """A booking in another person's hands: from when on it counts in his or her limits, and what it does to them."""

    booking: Booking
    to: Member
    since: datetime
    effects: tuple[QuotaEffect, ...]


def quote_hand_over(work: Work, actor: Actor, booking_id: UUID, to: UUID) -> HandOver:
    """What handing it over would do. Raises what the hand-over itself would."""
    booking = see(work, actor, booking_id)
    allow(actor, booking)
    now = work.product_now()
    state = view_now(work, booking, now).state
    if state not in OPEN:
        raise not_in_state(booking, state, "handed over")
    scopes = quotas.scopes_for(work, booking.tenant_id, booking.project_id, to, [booking.kind])
    return _plan(work, booking, to, scopes, now)[0]


def hand_over(
    work: Work,
    queue: Queue,
    actor: Actor,
    booking_id: UUID,
    to: UUID,
    key: Key | None = None,
    version: int | None = None,
) -> Booking:
    """Make it another member's, whose limits it counts in from now on. Both are told.

    Raises Refused for somebody who may not book in the project, or whose limits it would pass.
    """
    done = done_before(work, actor, key, "hand_over", booking_id)
    if done is not None:
        return done
    seen = see(work, actor, booking_id)
    allow(actor, seen)
    people = [account for account in (seen.account_id, to) if account is not None]
    scopes = quotas.lock_scopes_of_people(work, seen.tenant_id, seen.project_id, people, seen.kind)
    booking = queries.lock_booking(work, booking_id)
    assert booking is not None
    allow(actor, booking)
    check_version(booking, version)
    if booking.account_id != seen.account_id:
        raise Conflict("edited_meanwhile", f"{booking.label} has just been handed over by somebody else. Look again.")
    queries.holds_of(work, booking_id, lock=True)
    now = work.product_now()
    view, state = caught_up(work, booking, now)
    if state not in OPEN:
        raise not_in_state(booking, state, "handed over")
    own = [s for s in scopes if s.subject == "user" and s.account_id == booking.account_id]
    theirs = tuple(s for s in scopes if s.subject == "user" and s.account_id == to)
    plan, pieces = _plan(work, booking, to, theirs, now)
    if (
        booking.provided_at is not None and plan.since > booking.provided_at
    ):  # what is metered before stays whose it was
        cut = schedule.cut(queries.segments_of(work, booking_id), plan.since)
        queries_edits.put_schedule(work, booking_id, cut)
        queries_edits.look_again(work, booking_id)
    quotas.move_between_people(work, booking_id, plan.since, own, theirs, pieces)
    queries_edits.set_owner(work, booking_id, to, plan.to.name)
    changes = {"person": [booking.booked_by, plan.to.name], "account": [_text(booking.account_id), str(to)]}
    queries.note(work, booking_id, "hand_over", state, state, actor, now, "", changes)
    tell_owner(work, actor, booking, "booking_handed_over", now, to=plan.to.name)
    if to != actor.account_id:
        more = {"number": booking.number, "name": booking.name, "by": actor.label}
        outbox.tell(work, "booking_handed_to_you", now, to, booking.id, **more)
    if view.asked:
        _bring_access(work, queue, booking, now)
    after = queries.find_booking(work, booking_id)
    assert after is not None
    return after


def share(
    work: Work,
    queue: Queue,
    actor: Actor,
    booking_id: UUID,
    shared: bool,
    key: Key | None = None,
    version: int | None = None,
) -> Booking:
    """Let every member of the project enter it, or only whoever has it and the leads. As it is already: nothing changes."""

    def apply(booking: Booking, now: datetime) -> None:
        view, state = caught_up(work, booking, now)
        if state not in OPEN:
            raise not_in_state(booking, state, "shared" if shared else "unshared")
        if queries_edits.is_shared(work, booking_id) == shared:
            return
        queries_edits.set_shared(work, booking_id, shared)
        event = "share" if shared else "unshare"
        queries.note(work, booking_id, event, state, state, actor, now, "", {"shared": [not shared, shared]})
        tell_owner(work, actor, booking, f"booking_{event}d", now)
        if view.asked:
            _bring_access(work, queue, booking, now)

    return change(work, actor, booking_id, key, version, "share" if shared else "unshare", apply)


def no_member(booking: Booking) -> Reason:
    """Why somebody cannot be handed the booking."""
    return Reason("no_member", f"That person may not book in {booking.project_name}.", None, None,
                  "Choose a member or lead of the project.", "to", True)  # fmt: skip


def _plan(
    work: Work, booking: Booking, to: UUID, scopes: tuple[Scope, ...], now: datetime
) -> tuple[HandOver, tuple[Piece, ...]]:
    member = next((m for m in queries_edits.members_of(work, booking.project_id) if m.account_id == to), None)
    if member is None:
        raise Refused(Refusal((no_member(booking),)))
    if to == booking.account_id:
        raise Conflict("same_person", f"{booking.label} is {member.name}'s already.")
    since = max(now, booking.provided_at or booking.starts_at)
    theirs = tuple(s for s in scopes if s.subject == "user")
    rest = Window(since, max(booking.ends_at, since + _SECOND))
    segments = schedule.within(queries.segments_of(work, booking.id), rest)
    pieces = schedule.pieces_of(segments, booking.zone, booking.units, booking.share840)
    zone = ZoneInfo(project_of(work, booking).zone)
    standing = quotas.standings(work, booking.tenant_id, theirs, rest, months_of(pieces), zone, now)
    reasons, effects = check(standing, pieces)
    if reasons:
        raise Refused(Refusal(tuple(reasons)))
    return HandOver(booking, member, since, effects), pieces


def _bring_access(work: Work, queue: Queue, booking: Booking, now: datetime) -> None:
    queries.want_more(work, booking.id)
    allocation = queries.allocation_of(work, booking.id)
    assert allocation is not None
    look_now(work, queue, booking, allocation.id, now)


def _text(account: UUID | None) -> str | None:
    return None if account is None else str(account)
