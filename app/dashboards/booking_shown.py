"""Fills the page of one booking from all rooms that know something of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from app.backends.contract import Access
from app.bookings import queries as bookings
from app.bookings.access import ways_in
from app.bookings.facts import Booking, ConditionLine, Held
from app.bookings.lifecycle import BookingView, State
from app.bookings.shown import Speech, fresh_key, node_words
from app.dashboards import booking_history, booking_measured, booking_money, booking_verbs
from app.dashboards.booking_measured import IDLE_AFTER, Measured
from app.dashboards.booking_money import Figures
from app.dashboards.booking_requests import request_notes
from app.inventory import queries as inventory
from app.kernel.actor import Actor
from app.plumbing.db import Work
from app.plumbing.runtime import Plumbing
from app.web import words
from app.web.views.booking import AccessWay, BookingPage, Shape, VerbView
from app.web.views.parts import Action, Condition, Link, Money, Note

_PLANNED = ("WAITING", "REQUESTED", "BOOKED")
_NEVER = ("CANCELLED", "REJECTED", "LAPSED")
_SOON = timedelta(minutes=30)


def booking_page(work: Work, actor: Actor, booking: Booking, zone: str, by: str = "") -> BookingPage:
    """Everything but the way in, which has to be asked of the cluster: see `with_access`. `by` is what is chosen in a
    verb's form."""
    now = work.product_now()
    kind = inventory.kinds(work)[booking.kind]
    speech = Speech({booking.kind: kind.name}, zone, now)
    held = bookings.holds_of(work, booking.id)
    allocation = bookings.allocation_of(work, booking.id)
    view = BookingView(State(booking.state), booking.window)  # where it waits there is nothing on a cluster yet
    if allocation is not None:
        view = bookings.view_of(work, booking, held, allocation)
    money = booking_money.figures(work, booking, now)
    seen = booking_measured.measured(work, booking, held, view.outages, kind, money.window, now, zone)
    workloads = booking_measured.workload_rows(work, booking, now)
    running = sum(row.tone == "ok" for row in workloads)
    verbs = booking_verbs.verbs(work, actor, booking, money, running, speech, by)
    lines = bookings.history_of(work, booking.id)
    past = bookings.conditions_of(work, booking.id, open_only=False)
    idle = _idle_for(booking, past, seen, now)
    names = () if booking.state in _NEVER else tuple((h.node, len(h.units)) for h in held)
    currency = booking.currency
    return BookingPage(
        number=booking.label,
        name=booking.name,
        state=booking.state,  # type: ignore[arg-type]
        shape=Shape(booking.units, booking.kind_name, booking.nodes, booking.per_node),
        cluster=booking.cluster,
        place=_place(held) if names else "",
        node_names=node_words(names, booking.per_node or kind.units_per_node),
        planned=booking.state in _PLANNED and not all(h.pinned for h in held),
        project=booking.project_name,
        person=booking.booked_by,
        start=booking.starts_at,
        end=booking.released_at if booking.state in ("ENDING", "ENDED") and booking.released_at else booking.ends_at,
        quoted=Money(booking.quoted, currency),
        charged=Money(money.charged, currency),
        at_end=Money(money.at_end, currency),
        reserved=money.reserved,
        used=money.used,
        unknown=money.unknown,
        unused_cost=None if money.unused_cost is None else Money(money.unused_cost, currency),
        energy_kwh=money.energy_kwh,
        energy_measured=money.energy_kwh is not None,
        outcome=booking_history.OUTCOMES.get(booking.outcome or "", ""),
        cost_center=booking.cost_centre,
        reference=booking.reference,
        conditions=_conditions(booking, view, idle, speech),
        notes=(*request_notes(work, actor, booking, speech), *_notes(booking, view, idle, money, verbs, speech)),
        units=seen.units,
        samples=seen.samples,
        sampled_at=seen.sampled_at,
        workloads=workloads,
        verbs=verbs,
        cost=money.cost,
        history=booking_history.steps(booking, lines, past, zone, now),
    )


def with_access(page: BookingPage, plumbing: Plumbing, booking: Booking, account_id: UUID) -> BookingPage:
    """The page with the ways in for a person, as the cluster tells them now."""
    found = ways_in(plumbing, booking, account_id)
    if found is None:
        return page
    if not isinstance(found, Access):
        return replace(page, access=(AccessWay("Not now", found),))
    ways = tuple(
        AccessWay(
            way.title,
            way.note or "Sign in as shown. It works until the booking ends.",
            "\n".join(way.commands),
            Link(f"Open {way.title}", way.url) if way.url and way.url.startswith(("https://", "http://")) else None,
        )
        for way in found.ways
    )
    return replace(page, access=ways or (AccessWay("Not now", "The cluster names no way in."),))


def _place(held: tuple[Held, ...]) -> str:
    """The closest places that all its nodes share."""
    shared = []
    for level in ("rack", "leaf"):
        values = {getattr(h, level) for h in held}
        if len(values) == 1 and None not in values:
            shared.append(f"{level} {values.pop()}")
    return ", ".join(shared)


def _conditions(booking: Booking, view: BookingView, idle: timedelta | None, speech: Speech) -> tuple[Condition, ...]:
    found = []
    for condition, standing in view.conditions.items():
        if condition.value == "idle":
            continue
        label = booking_history.CONDITIONS[condition]
        if condition == "degraded":
            lost = len({o.unit for o in view.outages if o.until is None})
            label = f"Degraded {booking.units - lost} of {booking.units}"
        elif condition == "late":
            label = f"Late {words.countdown(speech.now - standing.since)}"
        found.append(Condition(condition.value, label, standing.why))  # type: ignore[arg-type]
    if idle is not None:
        said = next((s.why for c, s in view.conditions.items() if c.value == "idle"), "")
        why = said or "all units are measured, nothing runs on them"
        found.append(Condition("idle", f"Idle {words.countdown(idle)}", why))
    return tuple(found)


def _idle_for(booking: Booking, past: Iterable[ConditionLine], seen: Measured, now: datetime) -> timedelta | None:
    """For how long nothing has run in it: since the booking says so itself; before it does, by its measurements."""
    if booking.state != "ACTIVE":
        return None
    said = next((line.since for line in past if line.type == "idle" and line.until is None), None)
    if said is not None:  # measurements may have come in since that reach further back
        return now - min(said, seen.idle_since or said)
    if seen.idle_since is None or now - seen.idle_since < IDLE_AFTER:
        return None
    return now - seen.idle_since


def _notes(
    booking: Booking,
    view: BookingView,
    idle: timedelta | None,
    money: Figures,
    verbs: tuple[VerbView, ...],
    speech: Speech,
) -> tuple[Note, ...]:
    """What somebody should do now, and what only has to be known."""
    notes = []
    for condition, standing in view.conditions.items():
        if condition.value == "idle":
            continue
        why = speech.say(standing.why)
        title, helps = {
            "late": ("It is not in place yet", "Time before it is in place is not charged."),
            "blocked": ("It cannot be put in place as things are", "Time before it is in place is not charged."),
            "degraded": ("Some of its units are lost", "Their time is taken back on the bill until they are back."),
            "at_risk": (
                "Its units cannot be given as things are",
                "Berth looks for others. Nothing for you to do yet.",
            ),
        }[condition.value]
        tone = "bad" if condition.value in ("degraded", "blocked") else "warn"
        title = f"{title}, since {words.moment(standing.since, speech.zone, speech.now)}"
        notes.append(Note(tone, title, " ".join(part for part in (why, helps) if part)))  # type: ignore[arg-type]
    changes = {verb.name for verb in verbs if not verb.blocked}
    if idle is not None and "release" in changes:
        back = words.money(money.still_to_come, booking.currency)
        button = f"Release, get {back} back" if money.still_to_come else "Release"
        release = Action(button, f"/bookings/{booking.label}/release", (("idempotency_key", fresh_key()),), "primary")
        since = words.moment(speech.now - idle, speech.zone, speech.now)
        why = next((s.why for c, s in view.conditions.items() if c.value == "idle"), "")
        text = f"Release it now and {back} goes back to {booking.project_name}." if money.still_to_come else ""
        text = f"{why} {text}".strip()
        notes.append(Note("warn", f"“{booking.name}” has been idle since {since}", text, (release,), icon="zzz"))
    left = booking.ends_at - speech.now
    if booking.state == "ACTIVE" and timedelta(0) < left <= _SOON and booking.ends_at - booking.starts_at > _SOON:
        links = (Link("Extend", "#verb-extend"),) if "extend" in changes else ()
        text = "What runs in it is stopped then. Save what has to be kept, or extend it."
        notes.append(Note("warn", f"{booking.label} ends in {words.countdown(left)}", text, links=links))
    if booking.outcome == "not_provided":
        text = "Nothing is charged, and its hours went back to the project."
        notes.append(Note("info", "It was never in place", text, links=(Link("Book again", "/book"),)))
    return tuple(notes)
