"""What awaits whom: open requests with their effect on money and limits, as those who answer them should see them.

Reads only. Operators read every tenant's; that they did stands in the platform's audit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

from app.accounts import audit
from app.bookings import approvals, asking, queries, queries_requests
from app.bookings.edits import project_of
from app.bookings.facts import Booking, PriceSegment
from app.bookings.queries_requests import Request
from app.kernel.actor import Actor
from app.kernel.errors import Forbidden
from app.kernel.window import Window
from app.plumbing.db import Work
from app.quotas import queries as quotas
from app.quotas.rules import QuotaEffect, Standing, check, months_of, pieces


@dataclass(frozen=True, slots=True)
class Pending:
    """One open request: `window` is what would be booked, or added; `amount` its price, `total` with what is booked.

    `effects`: each limit without and with it. `why`: why somebody has to approve it. `answers`: whether who looks may.
    """

    request: Request
    booking: Booking
    tenant: str
    window: Window
    amount: Decimal
    total: Decimal
    unit_hours: Fraction
    effects: tuple[QuotaEffect, ...]
    why: str
    answers: bool


def may_look(actor: Actor) -> bool:
    """Whether this person answers requests of anybody, or watches those who do."""
    leads = "admin" in actor.tenant_roles or "lead" in actor.project_roles.values()
    return bool(actor.platform_roles & {"operator", "auditor"}) or (actor.tenant_id is not None and leads)


def pending(work: Work, actor: Actor) -> tuple[Pending, ...]:
    """Every open request that the person answers: of the projects led, and for operators those of every tenant.

    Raises Forbidden for whoever answers none.
    """
    if not may_look(actor):
        raise Forbidden("role_missing", "Requests are answered by leads, tenant admins and operators.")
    found: list[Request] = []
    home = work.tenant_id
    if home is not None:
        led = None if "admin" in actor.tenant_roles else [p for p in actor.project_roles if actor.leads(p)]
        if actor.project_id is not None:
            led = [actor.project_id] if actor.leads(actor.project_id) else []
        found += queries_requests.open_approvals(work, "lead", led) if led is None or led else []
    if actor.platform_roles & {"operator", "auditor"}:
        with work.read_all():
            found += queries_requests.open_approvals(work, "operator")
        audit.record(work, actor, "read requests", "all tenants", platform=True)
    every = tuple(_pending(work, actor, request) for request in found)
    work.act_for(home)
    return every


def one_pending(work: Work, actor: Actor, request: Request) -> Pending:
    """One of them, open or not; the transaction acts for its tenant."""
    return _pending(work, actor, request)


def _pending(work: Work, actor: Actor, request: Request) -> Pending:
    work.act_for(request.tenant_id)
    booking = queries.find_booking(work, request.booking_id)
    assert booking is not None
    project = project_of(work, booking)
    segments = _segments(work, request)
    window = Window(segments[0].window.start, segments[-1].window.end)
    amount, total = booking.quoted, booking.quoted
    if request.verb != "book":
        amount, total = Decimal(request.wanted["added"]), Decimal(request.wanted["total"])
    hours = Fraction(booking.units * booking.share840 * window.seconds, 840 * 3600)
    effects = _effects(work, request, booking, window, segments, work.product_now(), project.zone)
    why = request.wanted.get("why", "")
    answers = request.outcome is None and approvals.may_answer(actor, request, booking)
    return Pending(request, booking, project.tenant, window, amount, total, hours, effects, why, answers)


def _segments(work: Work, request: Request) -> list[PriceSegment]:
    if request.verb == "book":
        return list(queries.segments_of(work, request.booking_id))
    return [asking.segment_of(words) for words in request.wanted["segments"]]


def _effects(
    work: Work,
    request: Request,
    booking: Booking,
    window: Window,
    segments: list[PriceSegment],
    now: datetime,
    zone: str,
) -> tuple[QuotaEffect, ...]:
    """Each limit without and with it, whether it is held already or not."""
    scopes = quotas.scopes_for(work, booking.tenant_id, booking.project_id, booking.account_id, [booking.kind])
    asked = pieces(segments, ZoneInfo(zone), booking.units, booking.share840)
    holds = bool(request.wanted.get("holds", True)) and request.outcome is None
    leaving = booking.id if holds and request.verb == "book" else None
    months = months_of(asked)
    standing = quotas.standings(work, booking.tenant_id, scopes, window, months, ZoneInfo(zone), now, leaving)
    if holds and leaving is None:  # an edit's hours are the request's own: they are counted already
        rate = max((p.rate for p in asked), default=0)
        own = {m: sum(p.quantity for p in asked if p.day.replace(day=1) == m) for m in months}
        standing = tuple(
            Standing(
                s.scope,
                {m: replace(t, held=max(0, t.held - own.get(m, 0))) for m, t in s.months.items()} or {},
                max(0, s.peak - rate),
            )
            for s in standing
        )
    return check(standing, asked)[1]
