"""Bookings, limits and free units as the pages of this room show them: small parts that several pages share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from uuid import UUID

import numpy as np

from app.bookings.earliest import Prepared
from app.bookings.facts import Booking
from app.dashboards.queries import Around, rates_now
from app.kernel.actor import Actor
from app.kernel.money import WHOLE
from app.plumbing.db import Work
from app.quotas import queries as quotas
from app.quotas.rules import Scope, money_text
from app.web import words
from app.web.views.booking import BookingCard, Shape
from app.web.views.parts import Condition, Link, Meter, Money

_CONDITIONS = {"at_risk": "At risk", "late": "Late", "degraded": "Degraded", "blocked": "Blocked", "idle": "Idle"}


def booking_card(booking: Booking, around: Around, charged: Decimal | None, actor: Actor, now: datetime) -> BookingCard:
    """A booking in a list of Now or Next; of somebody else it says whose."""
    href = booking_href(booking)
    runs = booking.state in ("STARTING", "ACTIVE", "ENDING")
    links = [Link("Connect", href, icon="terminal-2")] if booking.state == "ACTIVE" else []
    if actor.books_in(booking.project_id):
        if booking.state == "ACTIVE":
            links += [Link("Extend", f"{href}#verb-extend"), Link("Release", f"{href}#verb-release")]
        elif not runs:
            links.append(Link("Cancel", f"{href}#verb-cancel"))
    return BookingCard(
        number=booking.label,
        name=booking.name,
        href=href,
        state=booking.state,  # type: ignore[arg-type]
        shape=Shape(booking.units, booking.kind_name, booking.nodes, booking.per_node),
        cluster=booking.cluster,
        start=booking.starts_at,
        end=booking.ends_at,
        price=Money(booking.quoted, booking.currency),
        charged=Money(charged or Decimal(0), booking.currency) if runs else None,
        node_names=around.nodes,
        planned=around.planned and not runs,
        used=around.used,
        conditions=conditions(around, now),
        sentence="" if booking.account_id == actor.account_id else f"Booked by {booking.booked_by}.",
        links=tuple(links),
    )


def booking_href(booking: Booking) -> str:
    """A booking's page."""
    return f"/bookings/{booking.label}"


def conditions(around: Around, now: datetime) -> tuple[Condition, ...]:
    """Open conditions with how long they have lasted."""
    return tuple(
        Condition(type_, f"{_CONDITIONS[type_]} {words.countdown(now - since)}", why)  # type: ignore[arg-type]
        for type_, since, why in around.conditions
    )


def limit_meters(
    work: Work, scopes: Iterable[Scope], month: date, now: datetime, kinds: dict[str, str]
) -> tuple[Meter, ...]:
    """A meter for every limit: units at this instant, unit-hours of the month."""
    scopes = list(scopes)
    rates = rates_now(work, [s.id for s in scopes], now)
    meters = []
    for scope in sorted(scopes, key=lambda s: (s.subject != "project", s.kind or "", s.id)):
        of = "units" if scope.kind is None else kinds.get(scope.kind, scope.kind)
        whose = {"project": "", "tenant": f"{scope.name}: ", "user": "You: "}[scope.subject]
        if scope.max_rate is not None:
            used, limit = Fraction(rates.get(scope.id, 0), WHOLE), Fraction(scope.max_rate, WHOLE)
            meters.append(Meter(_label(whose, f"{of} at the same time"), "units", used, limit=limit))
        if scope.max_quantity is not None:
            taken = quotas.month_total(work, scope, month, now)
            hours = "GPU-hours" if scope.kind is None else f"GPU-hours of {of}"
            meters.append(
                Meter(
                    _label(whose, f"{hours}, {words.month(month).split()[0]}"),
                    "hours",
                    Fraction(taken.used, WHOLE),
                    Fraction(taken.held, WHOLE),
                    limit=Fraction(scope.max_quantity, WHOLE),
                )
            )
        spent = quotas.month_money(work, scope, month, now)
        if spent is not None:
            currency = scope.currency or ""
            used, held = (Decimal(money_text(amount, currency)) for amount in (spent.used, spent.held))
            what = currency if scope.kind is None else f"{currency} of {of}"
            label = _label(whose, f"{what}, {words.month(month).split()[0]}")
            meters.append(Meter(label, "money", used, held, limit=scope.max_money, currency=currency))
    return tuple(meters)


def whole_nodes(free: Iterable[Prepared], now: datetime) -> dict[int, int]:
    """How many nodes are free as a whole at this instant, by how many units they have."""
    at, whole = int(now.timestamp()), dict[int, int]()
    for one in free:
        is_free = (one.start <= at) & (one.end > at)
        units = np.zeros(len(one.pool.nodes), np.int64)
        np.add.at(units, one.node[is_free], one.weight[is_free])
        for size in units[(units == one.pool.installed) & (units > 0)].tolist():
            whole[size] = whole.get(size, 0) + 1
    return whole


def scopes_of_project(scopes: Sequence[Scope], project_id: UUID, actor: Actor) -> list[Scope]:
    """The limits that a person's bookings in a project count in: the project's own, the person's, the tenant's."""
    return [
        s
        for s in scopes
        if (s.subject == "tenant")
        or (s.subject == "project" and s.project_id == project_id)
        or (s.subject == "user" and s.account_id == actor.account_id and s.project_id in (None, project_id))
    ]


def _label(whose: str, what: str) -> str:
    return f"{whose}{what}" if whose else words.first_upper(what)
