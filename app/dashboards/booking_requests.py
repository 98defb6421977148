"""What a booking waits for, on its page: the place in the queue, an offer with its countdown, a request with its answer."""

from __future__ import annotations

from datetime import timedelta

from app.bookings import approvals, edits, queries_requests, waitlist
from app.bookings.facts import Booking
from app.bookings.queries_requests import Request
from app.bookings.shown import Speech, fresh_key
from app.bookings.waitlist import Wait
from app.kernel.actor import Actor
from app.plumbing.db import Work
from app.web import words
from app.web.views.parts import Action, Link, Note

_WHO = {"lead": "a lead of the project", "operator": "an operator"}


def request_notes(work: Work, actor: Actor, booking: Booking, speech: Speech) -> tuple[Note, ...]:
    """What is awaited or was answered; nothing where nothing is."""
    changes = edits.may_change(actor, booking)
    wait = waitlist.wait_of(work, booking)
    if wait is not None:
        return (_offered(booking, wait, changes, speech) if wait.offer else _waits(booking, wait, changes, speech),)
    request = queries_requests.last_request(work, booking.id)
    if request is None or request.waits_for != "approval":
        return ()
    if request.outcome is None:
        return (_asked(actor, booking, request, changes, speech),)
    return _answered(booking, request, speech)


def _waits(booking: Booking, wait: Wait, changes: bool, speech: Speech) -> Note:
    what = f"{words.number(booking.units)} {booking.kind_name} on {booking.cluster}"
    length = words.length(booking.ends_at - booking.starts_at)
    if wait.window.end - wait.window.start == booking.ends_at - booking.starts_at:
        when = words.span(wait.window.start, wait.window.end, speech.zone, speech.now)
    else:
        first, last = (words.moment(i, speech.zone, speech.now) for i in (wait.window.start, wait.window.end))
        when = f"for {length} between {first} and {last}"
    then = "It is booked as soon as it fits." if wait.auto else "When it fits, it is held for you and you are told."
    stop = Action("Stop waiting", f"/bookings/{booking.label}/cancel", (("idempotency_key", fresh_key()),))
    title = f"You are {_nth(wait.place)} of {wait.of} on the waiting list"
    return Note("info", title, f"For {what} {when}. {then} Waiting holds and costs nothing.",
                (stop,) if changes else (), icon="clock")  # fmt: skip


def _offered(booking: Booking, wait: Wait, changes: bool, speech: Speech) -> Note:
    assert wait.offer is not None
    window, _, amount = wait.offer.at(speech.now, booking.units, booking.share840)
    left = words.countdown(wait.offer.until - speech.now)
    when = words.span(window.start, window.end, speech.zone, speech.now)
    price = words.money(amount, booking.currency)
    held = f"{words.number(booking.units)} {booking.kind_name} on {booking.cluster} {when} for {price}."
    key = (("idempotency_key", fresh_key()),)
    actions = (
        Action(f"Take it for {price}", f"/bookings/{booking.label}/accept", key, "primary"),
        Action("Decline", f"/bookings/{booking.label}/decline", (("idempotency_key", fresh_key()),), "danger"),
    )
    return Note("warn", f"Held for you for {left}", f"{held} After that it goes to the next, and you wait no more.",
                actions if changes else (), icon="gift")  # fmt: skip


def _asked(actor: Actor, booking: Booking, request: Request, changes: bool, speech: Speech) -> Note:
    left = words.countdown(max(request.expires_at - speech.now, timedelta(0)))
    title = f"Awaits the approval of {_WHO[request.approver or 'operator']}"
    why = speech.say(str(request.wanted.get("why", "")))
    if request.verb == "extend":
        title = f"The extension until {speech.say(request.wanted['end'])} awaits the approval of {_WHO[request.approver or 'operator']}"
    held = "Its units are held meanwhile." if request.wanted.get("holds", True) else "Nothing is held meanwhile."
    key = (("idempotency_key", fresh_key()),)
    back = Action("Take it back", f"/bookings/{booking.label}/withdraw", key)
    links = (Link("Answer it", "/approvals"),) if approvals.may_answer(actor, request, booking) else ()
    text = f"{why} It lapses in {left} if nobody answers. {held}".strip()
    return Note("info", title, text, (back,) if changes else (), links, icon="user-question")


def _answered(booking: Booking, request: Request, speech: Speech) -> tuple[Note, ...]:
    if request.outcome == "rejected" and (booking.state == "REJECTED" or request.verb != "book"):
        if booking.state not in ("REJECTED", "BOOKED", "STARTING", "ACTIVE"):
            return ()
        what = "" if request.verb == "book" else " to extend it"
        return (Note("bad", f"The request{what} was rejected by {request.answered_by}", speech.say(request.why),
                     links=(Link("Book something else", "/book"),) if booking.state == "REJECTED" else ()),)  # fmt: skip
    if request.outcome == "lapsed" and booking.state == "LAPSED":
        return (
            Note("warn", "Nobody answered in time", "Nothing is held or charged.", links=(Link("Ask again", "/book"),)),
        )
    return ()


def _nth(place: int) -> str:
    ending = "th" if 10 <= place % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{ending}"
