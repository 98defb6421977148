"""The JSON routes of requests for approval and of the waiting list: the same use cases as the pages."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from app.accounts import audit
from app.bookings import approvals, edits, queries, waitlist
from app.bookings.api import IdempotencyKey, IfMatch, answer_of, key_of, version_of
from app.bookings.facts import Booking
from app.bookings.pending import one_pending, pending
from app.bookings.schemas import Ask, BookingIn, Line
from app.bookings.shown_requests import pending_json, wait_json
from app.kernel import ids
from app.kernel.actor import Actor
from app.plumbing.db import Work
from app.web.deps import AnyActor, Booker, InTransaction, Parts, Reader, rate_limit, require_actor

router = APIRouter(prefix="/api/v1", tags=["requests"])

Answerer = Annotated[Actor, Depends(require_actor("book"), scope="function")]


class AnswerIn(BaseModel):
    """The body of an answer: why. A rejection must say it."""

    model_config = ConfigDict(extra="forbid")

    why: Annotated[Line, Field(max_length=500)] = ""


@router.get("/approvals")
def list_approvals(work: InTransaction, actor: AnyActor) -> dict[str, Any]:
    """Open requests that the caller answers, the one that lapses first at the head; each with what a yes would do."""
    return {"items": [pending_json(one) for one in pending(work, actor)], "next": None}


@router.get("/approvals/{request_id}")
def show_approval(request_id: str, work: InTransaction, actor: AnyActor) -> dict[str, Any]:
    """One request, open or answered: for who answers it, and for the project's people."""
    request, _ = approvals.enter(work, actor, ids.parse(ids.REQUEST, request_id))
    return pending_json(one_pending(work, actor, request))


@router.post("/approvals/{request_id}/approve", dependencies=[rate_limit("change", 600, 60)])
def approve(
    request_id: str,
    response: Response,
    work: InTransaction,
    actor: Answerer,
    parts: Parts,
    body: AnswerIn | None = None,
) -> dict[str, Any]:
    """Say yes. A booking that was asked for is booked, an extension is made."""
    why = "" if body is None else body.why
    booking = approvals.approve(work, parts.queue, actor, ids.parse(ids.REQUEST, request_id), why)
    return _answered(work, response, actor, "approve request", booking, why)


@router.post("/approvals/{request_id}/reject", dependencies=[rate_limit("change", 600, 60)])
def reject(
    request_id: str, body: AnswerIn, response: Response, work: InTransaction, actor: Answerer, parts: Parts
) -> dict[str, Any]:
    """Say no, and why. What the request held is free at once."""
    booking = approvals.reject(work, parts.queue, actor, ids.parse(ids.REQUEST, request_id), body.why)
    return _answered(work, response, actor, "reject request", booking, body.why)


@router.post("/bookings/{booking_id}/withdraw")
def withdraw(
    booking_id: str, request: Request, response: Response, work: InTransaction, actor: Booker, parts: Parts,
    key: IdempotencyKey = None, if_match: IfMatch = None,
) -> dict[str, Any]:  # fmt: skip
    """Take back what was asked for: the requested booking, or the requested extension."""
    booking = edits.find(work, actor, booking_id)
    made = key_of(key, request, {})
    return answer_of(
        work, response, approvals.withdraw(work, parts.queue, actor, booking.id, made, version_of(if_match))
    )


@router.post("/waitlist", status_code=201, dependencies=[rate_limit("book", 6000, 60)])
def wait(
    body: BookingIn, request: Request, response: Response, work: InTransaction, actor: Booker, parts: Parts,
    key: IdempotencyKey = None,
) -> dict[str, Any]:  # fmt: skip
    """Book, or wait for the units where only other bookings stand in the way: as POST /bookings with `wait`."""
    made = key_of(key, request, body.model_dump(mode="json"))
    booking = waitlist.book_or_wait(work, parts.queue, actor, Ask.of(body), body.auto, made)
    response.headers["Location"] = f"/api/v1/bookings/{booking.public_id}"
    return answer_of(work, response, booking)


@router.get("/waitlist")
def list_waiting(work: InTransaction, actor: Reader) -> dict[str, Any]:
    """The caller's projects' bookings that wait, with their places and offers."""
    projects = None if actor.tenant_roles and actor.project_id is None else list(actor.project_roles)
    if actor.project_id is not None:
        projects = [actor.project_id]
    found = queries.list_bookings(work, projects=projects, states=("WAITING",), limit=500, oldest_first=True)
    items = [(booking, waitlist.wait_of(work, booking)) for booking in found]
    return {
        "items": [
            {"booking": b.public_id, "number": b.label, "name": b.name, "project": b.project, **wait_json(w)}
            for b, w in items
            if w is not None
        ],
        "next": None,
    }


@router.post("/bookings/{booking_id}/accept")
def accept(
    booking_id: str, request: Request, response: Response, work: InTransaction, actor: Booker, parts: Parts,
    key: IdempotencyKey = None, if_match: IfMatch = None,
) -> dict[str, Any]:  # fmt: skip
    """Take what the waiting list offers, at the price that stands with it."""
    booking = edits.find(work, actor, booking_id)
    made = key_of(key, request, {})
    return answer_of(work, response, waitlist.accept(work, parts.queue, actor, booking.id, made, version_of(if_match)))


@router.post("/bookings/{booking_id}/decline")
def decline(
    booking_id: str, request: Request, response: Response, work: InTransaction, actor: Booker, parts: Parts,
    key: IdempotencyKey = None, if_match: IfMatch = None,
) -> dict[str, Any]:  # fmt: skip
    """Leave an offer to the next, and wait no more."""
    booking = edits.find(work, actor, booking_id)
    made = key_of(key, request, {})
    return answer_of(work, response, waitlist.decline(work, parts.queue, actor, booking.id, made, version_of(if_match)))


def _answered(work: Work, response: Response, actor: Actor, action: str, booking: Booking, why: str) -> dict[str, Any]:
    """An operator answers in another house: that stands in its audit."""
    if actor.tenant_id != booking.tenant_id:
        audit.record(work, actor, action, f"booking {booking.label}", why=why)
    return answer_of(work, response, booking)
