"""Requests and waiting as the API and pages say them: the same words for both."""

from __future__ import annotations

from typing import Any

from app.bookings import queries_requests, rules, waitlist
from app.bookings.facts import Booking
from app.bookings.pending import Pending
from app.bookings.queries_requests import Request
from app.bookings.waitlist import Wait
from app.kernel import ids
from app.kernel.money import hours_text
from app.plumbing.db import Work


def request_json(request: Request) -> dict[str, Any]:
    """A request for approval in short."""
    return {
        "id": ids.public(ids.REQUEST, request.id),
        "verb": request.verb,
        "approver": request.approver,
        "asked_by": request.asked_by,
        "asked_at": None if request.asked_at is None else rules.iso(request.asked_at),
        "expires_at": rules.iso(request.expires_at),
        "outcome": request.outcome,
        "answered_by": request.answered_by,
        "answered_at": None if request.answered_at is None else rules.iso(request.answered_at),
        "why": request.why,
        "end": request.wanted.get("end"),
    }


def pending_json(one: Pending) -> dict[str, Any]:
    """A request with its booking and what saying yes would do."""
    booking = one.booking
    return {
        **request_json(one.request),
        "needs_approval": one.why,
        "tenant": one.tenant,
        "project": booking.project,
        "booking": booking.public_id,
        "number": booking.label,
        "name": booking.name,
        "kind": booking.kind,
        "cluster": booking.cluster,
        "units": booking.units,
        "start": rules.iso(one.window.start),
        "end": rules.iso(one.window.end),
        "unit_hours": hours_text(int(one.unit_hours * 3600 * 840)),
        "price": {"currency": booking.currency, "amount": str(one.amount)},
        "price_in_all": {"currency": booking.currency, "amount": str(one.total)},
        "quota": [effect.as_json() for effect in one.effects],
        "may_answer": one.answers,
    }


def wait_json(wait: Wait) -> dict[str, Any]:
    """Where a booking stands in the queue, with its offer."""
    offer = wait.offer
    return {
        "place": wait.place,
        "of": wait.of,
        "earliest": rules.iso(wait.window.start),
        "latest": rules.iso(wait.window.end),
        "auto": wait.auto,
        "offer": None
        if offer is None
        else {
            "start": rules.iso(offer.window.start),
            "end": rules.iso(offer.window.end),
            "price": {"currency": offer.currency, "amount": str(offer.amount)},
            "until": rules.iso(offer.until),
        },
    }


def beside_booking(work: Work, booking: Booking) -> dict[str, Any]:
    """What stands beside a booking in the API: its newest request for approval, and its place in the queue."""
    request = queries_requests.last_request(work, booking.id)
    asked = None if request is None or request.waits_for != "approval" else request_json(request)
    wait = waitlist.wait_of(work, booking)
    return {"request": asked, "waiting": None if wait is None else wait_json(wait)}
