"""Pages of requests for approval and of the waiting list: the list of what awaits an answer, and the answers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Form, Response

from app.accounts import audit
from app.bookings import approvals, edits, waitlist
from app.bookings.edits import Key
from app.bookings.facts import Booking
from app.bookings.pending import Pending, pending
from app.bookings.shown import Speech, meter_view
from app.inventory import queries as inventory
from app.kernel import ids
from app.kernel.actor import Actor
from app.kernel.errors import Conflict, Invalid, Refused
from app.kernel.money import hours_text
from app.plumbing.db import Work
from app.web import words
from app.web.deps import AnyActor, Booker, InTransaction, Parts, rate_limit
from app.web.page import OnPage, Page
from app.web.views.booking import Shape
from app.web.views.parts import Money, Note
from app.web.views.requests import RequestCard, RequestsPage

router = APIRouter(include_in_schema=False)

_FormKey = Annotated[str, Form(alias="idempotency_key", max_length=200)]
_Why = Annotated[str, Form(max_length=500)]


@router.get("/approvals")
def requests_page(page: OnPage, work: InTransaction, actor: AnyActor) -> Response:
    """What awaits an answer of this person."""
    frame = page.frame
    found = pending(work, actor)
    names = {slug: kind.name for slug, kind in inventory.kinds(work).items()}
    speech = Speech(names, frame.zone, frame.now)
    sentence = f"{words.count(len(found), 'request')} to answer." if found else "Nothing waits for an answer."
    return page.show(RequestsPage(sentence, tuple(_card(one, actor, speech) for one in found)))


@router.post("/approvals/{request_id}/approve", dependencies=[rate_limit("change", 600, 60)])
def approve(
    request_id: str, page: OnPage, work: InTransaction, actor: AnyActor, parts: Parts, why: _Why = ""
) -> Response:
    """Say yes."""
    return _answer(page, work, actor, "approve request", why, lambda: approvals.approve(
        work, parts.queue, actor, ids.parse(ids.REQUEST, request_id), why))  # fmt: skip


@router.post("/approvals/{request_id}/reject", dependencies=[rate_limit("change", 600, 60)])
def reject(
    request_id: str, page: OnPage, work: InTransaction, actor: AnyActor, parts: Parts, why: _Why = ""
) -> Response:
    """Say no, and why."""
    return _answer(page, work, actor, "reject request", why, lambda: approvals.reject(
        work, parts.queue, actor, ids.parse(ids.REQUEST, request_id), why))  # fmt: skip


@router.post("/bookings/{number}/withdraw", dependencies=[rate_limit("change", 600, 60)])
def withdraw(
    number: str, page: OnPage, work: InTransaction, actor: Booker, parts: Parts, key: _FormKey = ""
) -> Response:
    """Take back what was asked for."""

    def act(booking: Booking) -> Note:
        after = approvals.withdraw(work, parts.queue, actor, booking.id, _key(key, "withdraw", booking))
        return Note("ok", "Taken back", f"What was asked for {after.label} is not asked for any more.")

    return _on_booking(page, work, actor, number, act)


@router.post("/bookings/{number}/accept", dependencies=[rate_limit("change", 600, 60)])
def accept(number: str, page: OnPage, work: InTransaction, actor: Booker, parts: Parts, key: _FormKey = "") -> Response:
    """Take what is offered."""

    def act(booking: Booking) -> Note:
        after = waitlist.accept(work, parts.queue, actor, booking.id, _key(key, "accept", booking))
        price = words.money(after.quoted, after.currency)
        if after.state == "REQUESTED":
            return Note("ok", f"Asked for: {after.label} for {price}", "It is booked when somebody has approved it.")
        return Note("ok", f"Booked: {after.label} for {price}")

    return _on_booking(page, work, actor, number, act)


@router.post("/bookings/{number}/decline", dependencies=[rate_limit("change", 600, 60)])
def decline(
    number: str, page: OnPage, work: InTransaction, actor: Booker, parts: Parts, key: _FormKey = ""
) -> Response:
    """Leave it to the next."""

    def act(booking: Booking) -> Note:
        after = waitlist.decline(work, parts.queue, actor, booking.id, _key(key, "decline", booking))
        return Note("ok", f"{after.label} waits no more", "The units go to the next on the list.")

    return _on_booking(page, work, actor, number, act)


def _answer(page: Page, work: Work, actor: Actor, action: str, why: str, act: Callable[[], Booking]) -> Response:
    """Answer and go back to the list; what cannot be answered any more says so there."""
    home = work.tenant_id
    try:
        booking = act()
    except (Conflict, Invalid, Refused) as problem:
        work.restart()
        return page.go("/approvals", Note("bad", "Nothing was answered", problem.detail))
    if booking.tenant_id != home:  # an operator answers in another house: that stands in its audit
        audit.record(work, actor, action, f"booking {booking.label}", why=why)
    done = {"BOOKED": "is booked", "REJECTED": "is rejected"}.get(booking.state, "is answered")
    return page.go("/approvals", Note("ok", f"{booking.label} {done}", f"{booking.booked_by} is told."))


def _on_booking(page: Page, work: Work, actor: Actor, number: str, act: Callable[[Booking], Note]) -> Response:
    """Do it and go back to the booking; what was refused changes nothing and says why there."""
    booking = edits.find(work, actor, number)
    try:
        note = act(booking)
    except (Conflict, Refused) as problem:
        work.restart()
        note = Note("bad", f"{booking.label} was not changed", problem.detail)
    return page.go(f"/bookings/{booking.label}", note)


def _card(one: Pending, actor: Actor, speech: Speech) -> RequestCard:
    booking, request = one.booking, one.request
    public = ids.public(ids.REQUEST, request.id)
    extends = request.verb != "book"
    home = actor.tenant_id == booking.tenant_id
    return RequestCard(
        id=public,
        number=booking.label,
        name=booking.name,
        what="To be extended" if extends else "To be booked",
        whose=booking.project_name if home else f"{booking.project_name}, {one.tenant}",
        person=request.asked_by,
        asked=request.asked_at or booking.booked_at,
        until=request.expires_at,
        shape=Shape(booking.units, booking.kind_name, booking.nodes, booking.per_node),
        cluster=booking.cluster,
        start=one.window.start,
        end=one.window.end,
        hours=hours_text(int(one.unit_hours * 3600 * 840)),
        price=Money(one.amount, booking.currency),
        total=Money(one.total, booking.currency) if extends else None,
        why=speech.say(one.why),
        meters=tuple(meter_view(effect, booking.project_name, speech) for effect in one.effects),
        approve=f"/approvals/{public}/approve",
        reject=f"/approvals/{public}/reject",
        href=f"/bookings/{booking.label}" if home else None,
        answers=one.answers,
    )


def _key(text: str, verb: str, booking: Booking) -> Key | None:
    return Key(text, hashlib.sha256(f"{verb} {booking.number}".encode()).digest()) if text else None
