"""Fills the views of the pages on which a booking is changed, and on which one's own use is claimed. Writes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

from app.accounts import queries as accounts
from app.bookings import claiming, edits, moving, queries_edits, sharing, shrinking
from app.bookings.facts import Booking
from app.bookings.form import BookFields, hours_text, read
from app.bookings.moving import To
from app.bookings.own_use import OwnUse
from app.bookings.schemas import duration_text, parse_duration
from app.bookings.shown import Speech, fresh_key
from app.inventory import queries as inventory
from app.kernel.actor import Actor
from app.kernel.errors import Problem, Refused
from app.plumbing.db import Work
from app.quotas.rules import QuotaEffect
from app.web import words
from app.web.views.booking import Effect, VerbView
from app.web.views.edits import ChangePage, MoveForm, UseRow, UsesPage
from app.web.views.parts import Money, Option

VERBS = ("shrink", "units", "hand_over", "share")
_OPEN = ("BOOKED", "STARTING", "ACTIVE")
_LENGTHS = tuple(timedelta(minutes=m) for m in (15, 30, 60, 120, 240, 360, 720, 1440, 2880, 5760))
_CLAIMS = ("PT1H", "PT2H", "PT4H", "PT8H", "P1D")
_MOST_UNITS = 16


@dataclass(frozen=True, slots=True)
class Tried:
    """A move as it was typed: local start, hours, cluster."""

    start: str
    hours: str
    cluster: str


def change_page(work: Work, actor: Actor, booking: Booking, tried: Tried | None, speech: Speech) -> ChangePage:
    """Everything that can be changed now, each with its effect; or why nothing can."""
    nothing = ""
    if booking.state not in _OPEN:
        nothing = f"{booking.label} is {booking.state.lower()}: nothing can be changed here."
    elif not edits.may_change(actor, booking):
        nothing = f"{booking.booked_by} has it. That person, or a lead of {booking.project_name}, may change it."
    verbs, form = (), None
    if not nothing:
        found = (verb(work, actor, booking, name, "", speech) for name in VERBS)
        verbs = tuple(v for v in found if v is not None)
        form = _move(work, actor, booking, tried, speech) if booking.state == "BOOKED" else None
    return ChangePage(
        booking.label, booking.name, booking.state, booking.starts_at, booking.ends_at, verbs, form, nothing  # type: ignore[arg-type]
    )  # fmt: skip


def verb(work: Work, actor: Actor, booking: Booking, name: str, by: str, speech: Speech) -> VerbView | None:
    """One form with the effect of what is chosen in it; None where there is nothing to choose."""
    if name not in VERBS or booking.state not in _OPEN or not edits.may_change(actor, booking):
        return None
    if name == "shrink":
        return _shorter(work, actor, booking, by, speech)
    if name == "units":
        return _fewer(work, actor, booking, by, speech)
    return _hand_over(work, actor, booking, by, speech) if name == "hand_over" else _share(work, booking)


def read_move(tried: Tried, speech: Speech) -> To | str:
    """What was typed as a place and time to move to; a sentence when it cannot be read."""
    fields = BookFields(
        project="-", kind="-", shape="units", units="1", when="exact", start=tried.start, hours=tried.hours
    )
    found = read(fields, ZoneInfo(speech.zone), named=False)
    if found.body is None:
        return " ".join(found.faults.values())
    return To(found.body.start, found.body.duration, tried.cluster or None)


def _shorter(work: Work, actor: Actor, booking: Booking, by: str, speech: Speech) -> VerbView | None:
    grid = inventory.pools_with_ids(work, [booking.pool_id])[booking.pool_id].policy.grid
    left = booking.ends_at - max(booking.starts_at, speech.now)
    lengths = [it for it in _LENGTHS if it < left and not it % grid]
    if not lengths:
        return None
    chosen = _chosen(by, lengths)
    ends = {it: words.moment(booking.ends_at - it, speech.zone, speech.now) for it in lengths}
    options = tuple(
        Option(duration_text(it), f"{words.length(it)} earlier, {ends[it]}", it == chosen) for it in lengths
    )
    kept = shrinking.Kept(end=booking.ends_at - chosen)
    return _shrunk(work, actor, booking, "shrink", "End earlier by", kept, options, speech)


def _fewer(work: Work, actor: Actor, booking: Booking, by: str, speech: Speech) -> VerbView | None:
    step = booking.per_node if booking.per_node is not None and booking.nodes != 1 else 1
    counts = list(range(step, booking.units, step or 1))[::-1]
    if not counts:
        return None
    if len(counts) > _MOST_UNITS:
        counts = sorted({counts[i * (len(counts) - 1) // (_MOST_UNITS - 1)] for i in range(_MOST_UNITS)}, reverse=True)
    asked = int(by) if by.isascii() and by.isdigit() and len(by) < 8 else booking.units // 2
    chosen = asked if asked in counts else min(counts, key=lambda n: abs(n - booking.units // 2))
    options = tuple(
        Option(str(n), f"{words.count(n, 'unit')}, gives {booking.units - n} back", n == chosen) for n in counts
    )
    return _shrunk(work, actor, booking, "units", "Keep", shrinking.Kept(units=chosen), options, speech)


def _shrunk(
    work: Work, actor: Actor, booking: Booking, name: str, title: str, kept: shrinking.Kept,
    options: tuple[Option, ...], speech: Speech,
) -> VerbView:  # fmt: skip
    effects, blocked, button = (), "", ""
    try:
        plan = shrinking.quote_shrink(work, actor, booking.id, kept)
    except Problem as problem:
        blocked = _said(problem, speech)
    else:
        back = Money(plan.back, booking.currency)
        effects = (
            Effect("Gives back", back),
            Effect("At the end", Money(plan.total.amount, booking.currency)),
            *_hours(plan.effects),
            *(Effect("Leaves", f"{leave.held.node}: {leave.units}") for leave in plan.leaves[:4]),
        )
        button = f"Give {words.money(plan.back, booking.currency)} back"
    return VerbView(
        name, title, f"/bookings/{booking.label}/{name}", button, fresh_key(), effects, "primary", "by", options,  # type: ignore[arg-type]
        f"/bookings/{booking.label}/change/{name}", blocked,
    )  # fmt: skip


def _hand_over(work: Work, actor: Actor, booking: Booking, by: str, speech: Speech) -> VerbView | None:
    others = [m for m in queries_edits.members_of(work, booking.project_id) if m.account_id != booking.account_id]
    if not others:
        return None
    chosen = next((m for m in others if str(m.account_id) == by), others[0])
    options = tuple(Option(str(m.account_id), m.name, m is chosen) for m in others)
    effects, blocked = (), ""
    try:
        plan = sharing.quote_hand_over(work, actor, booking.id, UUID(str(chosen.account_id)))
    except Problem as problem:
        blocked = _said(problem, speech)
    else:
        effects = (Effect("Counts in", f"{chosen.name}'s limits from then on"), *_hours(plan.effects))
    return VerbView(
        "hand_over", "Hand over to", f"/bookings/{booking.label}/hand_over", f"Hand over to {chosen.name}",  # type: ignore[arg-type]
        fresh_key(), effects, "plain", "by", options, f"/bookings/{booking.label}/change/hand_over", blocked,
    )  # fmt: skip


def _share(work: Work, booking: Booking) -> VerbView:
    if booking.shared:
        effects = (Effect("May enter then", f"{booking.booked_by} and leads of {booking.project_name}"),)
        name, title, button = "unshare", "Shared with the project", "Stop sharing"
    else:
        effects = (Effect("May enter then", f"every member of {booking.project_name}"),)
        name, title, button = "share", "Share with the project", "Share"
    return VerbView(name, title, f"/bookings/{booking.label}/{name}", button, fresh_key(), effects)  # type: ignore[arg-type]


def _move(work: Work, actor: Actor, booking: Booking, tried: Tried | None, speech: Speech) -> MoveForm:
    zone = ZoneInfo(speech.zone)
    typed = tried or Tried(
        f"{booking.starts_at.astimezone(zone):%Y-%m-%dT%H:%M}",
        hours_text(int((booking.ends_at - booking.starts_at).total_seconds())),
        booking.cluster,
    )
    pools = inventory.pools_for(work, booking.kind, None)
    names = sorted({p.cluster for p in pools if p.writes})
    choices = [*names, "any"] if len(names) > 1 else names
    clusters = tuple(Option(n, "Any of them" if n == "any" else n, n == typed.cluster) for n in choices)
    effects, button, blocked = (), "", ""
    if tried is not None:
        to = read_move(tried, speech)
        try:
            if isinstance(to, str):
                blocked = to
            else:
                plan = moving.quote_move(work, actor, booking.id, to)
                offer = plan.offer
                effects = (
                    Effect("Starts", offer.window.start),
                    Effect("Ends", offer.window.end),
                    Effect("On", offer.pool.cluster),
                    Effect("More, or less", Money(plan.change, booking.currency)),
                    Effect("In all", Money(offer.cost.amount, offer.cost.currency)),
                    *_hours(plan.effects),
                )
                button = f"Move for {words.money(offer.cost.amount, offer.cost.currency)} in all"
        except Problem as problem:
            blocked = _said(problem, speech)
    return MoveForm(
        f"/bookings/{booking.label}/move", fresh_key(), typed.start, typed.hours, clusters, effects, button, blocked,
        tried is not None,
    )  # fmt: skip


def uses_page(work: Work, actor: Actor, project: str, duration: str, zone: str, now: datetime) -> UsesPage:
    """What the person uses without a booking, with the effect of claiming it in a project for a time."""
    projects = [p for p in accounts.projects(work) if actor.books_in(p.id)]
    uses = claiming.own_uses(work, actor) if projects else ()
    names = {slug: kind.name for slug, kind in inventory.kinds(work).items()}
    slug = project if project in [p.slug for p in projects] else projects[0].slug if projects else ""
    length = duration if duration in _CLAIMS else "PT4H"
    choices = tuple(Option(p.slug, p.name, p.slug == slug) for p in projects)
    lengths = tuple(Option(it, words.length(parse_duration(it)), it == length) for it in _CLAIMS)
    speech = Speech(names, zone, now)
    return UsesPage(tuple(_use(work, actor, use, slug, length, (choices, lengths), speech) for use in uses))


def _use(work: Work, actor: Actor, use: OwnUse, project: str, length: str, options: tuple, speech: Speech) -> UseRow:
    effects, button, blocked = (), "", ""
    units = sum((upper + 63) // 64 - lower // 64 for lower, upper in use.positions)
    try:
        plan = claiming.quote_claim(work, actor, use.id, claiming.Wish(project, "Claimed", parse_duration(length)))
    except Problem as problem:
        blocked = _said(problem, speech)
    else:
        price = plan.offer.cost
        until = plan.offer.window.end
        effects = (Effect("Costs", Money(price.amount, price.currency)), Effect("Until", until), *_hours(plan.effects))
        button = f"Claim for {words.money(price.amount, price.currency)}"
    return UseRow(
        f"/uses/{use.id}/claim", fresh_key(), use.node, speech.names.get(use.kind, use.kind), units, use.what, use.since,
        use.until, *options, effects, button, blocked,
    )  # fmt: skip


def _hours(effects: tuple[QuotaEffect, ...]) -> tuple[Effect, ...]:
    """What a change does to limits, in words: before, then."""
    rows = [e.as_json() for e in effects]
    return tuple(Effect(f"{r['scope']}: {r['what']}", f"{r['before']} → {r['after']} of {r['limit']}") for r in rows)


def _chosen(by: str, lengths: list[timedelta]) -> timedelta:
    try:
        asked = parse_duration(by)
    except ValueError:
        asked = None
    return asked if asked in lengths else lengths[0]  # type: ignore[return-value]


def _said(problem: Problem, speech: Speech) -> str:
    if isinstance(problem, Refused):
        return speech.say(" ".join(part for r in problem.refusal.reasons for part in (r.message, r.fix) if part))
    return speech.say(problem.detail)
