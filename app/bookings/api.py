"""The JSON routes of bookings: the same use cases as the pages, in the shapes that outside programs rely on."""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response

from app.bookings import actions, edits, extending, leaving, queries, rules, waitlist
from app.bookings.edits import Key
from app.bookings.facts import Booking
from app.bookings.offers import Quote
from app.bookings.schemas import Ask, BookingIn, ExtendIn, Instant
from app.bookings.shown_requests import beside_booking
from app.kernel import ids
from app.kernel.actor import Actor
from app.kernel.errors import Invalid, NotFound, Reason
from app.kernel.money import SCALE, hours_text, line_amount
from app.kernel.window import Window
from app.plumbing.db import Work
from app.web.deps import Booker, InTransaction, Parts, Reader, rate_limit

router = APIRouter(prefix="/api/v1", tags=["bookings"])

IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", min_length=1, max_length=200, description="The same key and body answer alike."),
]
IfMatch = Annotated[str | None, Header(alias="If-Match", description="The ETag that was last seen.")]


@router.post("/quotes", dependencies=[rate_limit("quote", 1200, 60)])
def quote(body: BookingIn, work: InTransaction, actor: Booker) -> dict[str, Any]:
    """What would be booked, when, where and for how much. Promises and holds nothing."""
    return quote_json(actions.quote(work, actor, Ask.of(body)))


@router.post("/bookings", status_code=201, dependencies=[rate_limit("book", 6000, 60)])
def book(
    body: BookingIn,
    request: Request,
    response: Response,
    work: InTransaction,
    actor: Booker,
    parts: Parts,
    key: IdempotencyKey = None,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Book units. Refused with every reason and up to three alternatives that can be posted as they are."""
    ask = Ask.of(body)
    if dry_run:
        response.status_code = 200
        return quote_json(actions.quote(work, actor, ask))
    made = key_of(key, request, body.model_dump(mode="json"))
    if body.wait:
        booked = waitlist.book_or_wait(work, parts.queue, actor, ask, body.auto, made)
    else:
        booked = actions.book(work, parts.queue, actor, ask, made)
    response.headers["Location"] = f"/api/v1/bookings/{booked.public_id}"
    return answer_of(work, response, booked)


@router.get("/bookings")
def list_bookings(
    work: InTransaction,
    actor: Reader,
    project: str | None = None,
    state: Annotated[list[str] | None, Query()] = None,
    start: Annotated[Instant | None, Query(description="Only bookings that end after this.")] = None,
    end: Annotated[Instant | None, Query(description="Only bookings that start before this.")] = None,
    mine: bool = False,
    text: Annotated[str, Query(max_length=200)] = "",
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    cursor: Annotated[str | None, Query(pattern=r"^\d{1,18}$")] = None,
) -> dict[str, Any]:
    """Bookings that the caller may see, newest first. `next` is the cursor of the following page."""
    seen = projects_of(work, actor, project)
    wrong = [s for s in state or () if s not in _STATES]
    if wrong:
        reason = Reason(
            "unknown_state", f"There is no state {wrong[0]!r}. States: {', '.join(_STATES)}.", field="state"
        )
        raise Invalid("invalid", reason.message, (reason,))
    window = None
    if start is not None or end is not None:
        if start is not None and end is not None and end <= start:
            reason = Reason("ends_before_start", "The end lies at or before the start.", field="end", in_request=True)
            raise Invalid("invalid", reason.message, (reason,))
        window = Window(start or _FIRST, end or _LAST)
    found = queries.list_bookings(
        work,
        projects=seen,
        states=state or (),
        account_id=actor.account_id if mine else None,
        text=text,
        window=window,
        before=int(cursor) if cursor else None,
        limit=limit + 1,
    )
    page, more = found[:limit], len(found) > limit
    charged = queries.charged(work, [b.id for b in page])
    return {
        "items": [booking_json(b, charged.get(b.id)) for b in page],
        "next": str(page[-1].number) if more else None,
    }


@router.get("/bookings/{booking_id}")
def get_booking(booking_id: str, work: InTransaction, actor: Reader, response: Response) -> dict[str, Any]:
    """One booking, with its conditions, nodes, price schedule and history."""
    return answer_of(work, response, edits.find(work, actor, booking_id))


@router.post("/bookings/{booking_id}/cancel")
def cancel(
    booking_id: str, request: Request, response: Response, work: InTransaction, actor: Booker, parts: Parts,
    key: IdempotencyKey = None, if_match: IfMatch = None,
) -> dict[str, Any]:  # fmt: skip
    """Give a booking up before it is active. Nothing is charged."""
    booking = edits.find(work, actor, booking_id)
    made = key_of(key, request, {})
    return answer_of(work, response, leaving.cancel(work, parts.queue, actor, booking.id, made, version_of(if_match)))


@router.post("/bookings/{booking_id}/release")
def release(
    booking_id: str, request: Request, response: Response, work: InTransaction, actor: Booker, parts: Parts,
    key: IdempotencyKey = None, if_match: IfMatch = None,
) -> dict[str, Any]:  # fmt: skip
    """Give an active booking back now: charged to this second."""
    booking = edits.find(work, actor, booking_id)
    made = key_of(key, request, {})
    return answer_of(work, response, leaving.release(work, parts.queue, actor, booking.id, made, version_of(if_match)))


@router.post("/bookings/{booking_id}/extend")
def extend(
    booking_id: str, body: ExtendIn, request: Request, response: Response, work: InTransaction, actor: Booker,
    parts: Parts, key: IdempotencyKey = None, if_match: IfMatch = None, dry_run: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Move the end later on the same units. A failed extension changes nothing."""
    booking = edits.find(work, actor, booking_id)
    if dry_run:
        plan = extending.quote_extension(work, actor, booking.id, body.duration, body.end)
        return {
            "end": rules.iso(plan.end),
            "added": {"currency": plan.added.currency, "amount": str(plan.added.amount)},
            "price": {"currency": plan.total.currency, "amount": str(plan.total.amount)},
            "quota": [e.as_json() for e in plan.effects],
        }
    made = key_of(key, request, body.model_dump(mode="json"))
    extended = extending.extend(
        work, parts.queue, actor, booking.id, body.duration, body.end, made, version_of(if_match)
    )
    return answer_of(work, response, extended)


# --- shapes -----------------------------------------------------------------------------------------------------------

_STATES = ("WAITING", "REQUESTED", "BOOKED", "STARTING", "ACTIVE", "ENDING", "ENDED", "CANCELLED", "REJECTED", "LAPSED")
_FIRST = queries.instant_of(0)
_LAST = queries.instant_of(253_370_764_800)


def quote_json(quote: Quote) -> dict[str, Any]:
    """A quote as the API says it: money and exact quantities as text."""
    offer = quote.offer
    return {
        "request": quote.ask.to_post(),
        "start": rules.iso(offer.window.start),
        "end": rules.iso(offer.window.end),
        "kind": offer.pool.kind,
        "cluster": offer.pool.cluster,
        "units": offer.placement.units,
        "nodes": [{"node": name, "units": units, "planned": True} for name, units in quote.node_names],
        "where": quote.place,
        "price": {
            "currency": offer.cost.currency,
            "amount": str(offer.cost.amount),
            "parts": [
                {
                    "what": part.what,
                    "unit_hours": hours_text(part.quantity),
                    "unit_price": str(part.unit_price),
                    "amount": str(part.amount),
                }
                for part in offer.cost.parts
            ],
        },
        "quota": [effect.as_json() for effect in quote.effects],
        "approval": None
        if offer.approval is None
        else {"approver": offer.approval.approver, "why": " ".join(r.message for r in offer.approval.reasons)},
        "energy_kwh": None if quote.energy_kwh is None else str(quote.energy_kwh),
        "terms": list(quote.terms),
        "digest": quote.digest,
    }


def booking_json(booking: Booking, charged: Decimal | None) -> dict[str, Any]:
    """A booking in short, as lists have it."""
    return {
        "id": booking.public_id,
        "number": booking.label,
        "project": booking.project,
        "name": booking.name,
        "state": booking.state,
        "outcome": booking.outcome,
        "kind": booking.kind,
        "cluster": booking.cluster,
        "units": booking.units,
        "shape": None if booking.nodes is None else {"nodes": booking.nodes, "per_node": booking.per_node},
        "within": booking.within,
        "near": booking.near,
        "shared": booking.shared,
        "series": None if booking.series_id is None else ids.public(ids.SERIES, booking.series_id),
        "class": None if booking.class_id is None else ids.public(ids.CLASS, booking.class_id),
        "start": rules.iso(booking.starts_at),
        "end": rules.iso(booking.ends_at),
        "provided_at": None if booking.provided_at is None else rules.iso(booking.provided_at),
        "released_at": None if booking.released_at is None else rules.iso(booking.released_at),
        "price": {"currency": booking.currency, "amount": str(booking.quoted)},
        "charged": {"currency": booking.currency, "amount": str(line_amount(Fraction(charged or 0), booking.currency))},
        "cost_center": booking.cost_centre,
        "reference": booking.reference,
        "booked_by": booking.booked_by,
        "booked_at": rules.iso(booking.booked_at),
        "version": booking.version,
    }


def answer_of(work: Work, response: Response, booking: Booking) -> dict[str, Any]:
    """One booking in full, with its ETag."""
    more = queries.detail_of(work, booking.id)
    planned = booking.state in ("WAITING", "REQUESTED", "BOOKED") and not any(h.pinned for h in more.held)
    response.headers["ETag"] = f'"{booking.version}"'
    return {
        **booking_json(booking, more.charged),
        "nodes": [
            {"node": h.node, "units": len(h.units), "indices": list(h.local_gpus), "planned": planned}
            for h in more.held
        ],
        "prices": [
            {"start": rules.iso(s.window.start), "end": rules.iso(s.window.end), "unit_price": str(s.per_hour)}
            for s in more.segments
        ],
        "conditions": [{"type": c.type, "since": rules.iso(c.since), "why": c.why} for c in more.conditions],
        "history": [
            {
                "at": rules.iso(line.at),
                "actor": line.actor,
                "event": line.event,
                "from": line.before,
                "to": line.after,
                "why": line.why,
                "changes": line.changes,
            }
            for line in more.history
        ],
        "unit_hours": hours_text(booking.units * booking.window.seconds * (SCALE // 3600)),
        **beside_booking(work, booking),
    }


def projects_of(work: Work, actor: Actor, project: str | None) -> list | None:
    """The projects whose bookings are listed; None is all of the tenant."""
    if project is not None:
        found = queries.find_project(work, project, ids.parse(ids.PROJECT, project))
        if found is None or not actor.sees_project(found.id):
            raise NotFound("project_not_found", "There is no such project.")
        return [found.id]
    if actor.project_id is not None:
        return [actor.project_id] if actor.sees_project(actor.project_id) else []
    return None if actor.tenant_roles else list(actor.project_roles)


def key_of(key: str | None, request: Request, body: dict[str, Any]) -> Key | None:
    if key is None:
        return None
    said = json.dumps([request.url.path, body], sort_keys=True, default=str)
    return Key(key, hashlib.sha256(said.encode()).digest())


def version_of(if_match: str | None) -> int | None:
    """The version behind an ETag; something that was never one matches nothing."""
    if if_match is None or if_match.strip() == "*":
        return None
    text = if_match.strip().removeprefix("W/").strip('"')
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
