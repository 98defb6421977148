"""What can be done with a booking, each verb with its effect before anything happens."""

from __future__ import annotations

from datetime import datetime, timedelta

from app.bookings import edits, extending, leaving
from app.bookings.facts import Booking
from app.bookings.schemas import duration_text, parse_duration
from app.bookings.shown import Speech, fresh_key
from app.dashboards.booking_money import Figures
from app.inventory import queries as inventory
from app.kernel.actor import Actor
from app.kernel.errors import Conflict, NotFound, Refused
from app.plumbing.db import Work
from app.web import words
from app.web.views.booking import Effect, VerbView
from app.web.views.parts import Money, Option

_LENGTHS = tuple(timedelta(minutes=m) for m in (15, 30, 60, 120, 240, 360, 720, 1440, 2880, 5760, 10080))
_MOST_LENGTHS = 12
_VERBS = {"BOOKED": ("extend", "cancel"), "STARTING": ("extend", "cancel"), "ACTIVE": ("extend", "release")}


def verbs(
    work: Work, actor: Actor, booking: Booking, money: Figures, running: int, speech: Speech, by: str = ""
) -> tuple[VerbView, ...]:
    """Those of the booking's state; for people who may not change it, why not. `by` is what is chosen in one."""
    names = _VERBS.get(booking.state, ())
    if not names:
        return ()
    if not edits.may_change(actor, booking):
        said = f"{booking.booked_by} booked it. That person, or a lead of {booking.project_name}, may change it."
        name = names[-1]
        return (VerbView(name, words.first_upper(name), _href(booking, name), "", "", blocked=said),)  # type: ignore[arg-type]
    return tuple(verb(work, actor, booking, money, running, speech, name, by) for name in names)


def verb(
    work: Work, actor: Actor, booking: Booking, money: Figures, running: int, speech: Speech, name: str, by: str = ""
) -> VerbView:
    """One of them. NotFound for a name that is none, or none at this state or for this person."""
    if name not in _VERBS.get(booking.state, ()) or not edits.may_change(actor, booking):
        raise NotFound("no_such_verb", "This cannot be done with the booking now.")
    if name == "extend":
        return _extend(work, actor, booking, by, speech)
    units = words.count(booking.units, "unit")
    if name == "cancel":
        return _cancel(work, actor, booking, units)
    stops = words.count(running, "running workload") if running else "nothing: no workload runs"
    billed = bool(money.at_end or money.still_to_come)
    back, pay = _money(booking, money.still_to_come), _money(booking, money.charged)
    effects = (Effect("Gives back", back), Effect("You pay", pay), Effect("Stops", stops))
    effects = effects if billed else effects[2:]
    what = f"Release all {units}" if booking.units > 1 else "Release the unit"
    gain = f", get {words.money(back.amount, back.currency)} back" if billed else ""
    return VerbView("release", "Release now", _href(booking, "release"), what + gain, fresh_key(), effects, "danger")


def _cancel(work: Work, actor: Actor, booking: Booking, units: str) -> VerbView:
    try:
        terms = leaving.quote_cancel(work, actor, booking.id)
    except Conflict as late:  # it has just begun: a worker, or the clock, was quicker than this page
        return VerbView("cancel", "Cancel", _href(booking, "cancel"), "", fresh_key(), blocked=late.detail)
    effects: tuple[Effect, ...] = (Effect("You pay", _money(booking, terms.fee)), Effect("Frees", units))
    if terms.percent and terms.free_until is not None:
        effects = (*effects, Effect("Free until", terms.free_until))
    said = f"Cancel for {words.money(terms.fee, booking.currency)}" if terms.fee else "Cancel, nothing is charged"
    return VerbView("cancel", "Cancel", _href(booking, "cancel"), said, fresh_key(), effects, "danger")


def _extend(work: Work, actor: Actor, booking: Booking, by: str, speech: Speech) -> VerbView:
    limit = extending.extension_limit(work, booking)
    lengths = _lengths(work, booking, limit)
    href, key = _href(booking, "extend"), fresh_key()
    if not lengths:
        said = _why_not(work, actor, booking, speech)
        return VerbView("extend", "Extend", href, "", key, blocked=said)
    chosen = _chosen(by, lengths)
    ends = {it: words.moment(booking.ends_at + it, speech.zone, speech.now) for it in lengths}
    options = tuple(Option(duration_text(it), f"{words.length(it)}, until {ends[it]}", it == chosen) for it in lengths)
    possible = Effect("Possible until", limit)
    effects, blocked, button = (possible,), "", ""
    try:
        plan = extending.quote_extension(work, actor, booking.id, chosen, None)
    except (Refused, Conflict) as refused:
        blocked = _said(refused, speech)
    else:
        added, total = _money(booking, plan.added.amount), _money(booking, plan.total.amount)
        effects = (Effect("Adds", added), Effect("At the end", total), possible)
        verb = "Extend" if plan.approval is None else "Ask to extend"
        button = f"{verb} for {words.money(added.amount, added.currency)}"
    return VerbView("extend", "Extend by", href, button, key, effects, "primary", "by", options,
                    f"/bookings/{booking.label}/effect?verb=extend", blocked)  # fmt: skip


def _lengths(work: Work, booking: Booking, limit: datetime) -> tuple[timedelta, ...]:
    """Lengths that its units are free for and the pool allows; the longest possible one is among them."""
    grid = inventory.pools_with_ids(work, [booking.pool_id])[booking.pool_id].policy.grid
    room = (limit - booking.ends_at) // grid * grid
    usual = [it for it in _LENGTHS if it <= room and not it % grid]
    if room > timedelta(0) and room not in usual:
        usual = [*usual, room]
    return tuple(usual[-_MOST_LENGTHS:])


def _chosen(by: str, lengths: tuple[timedelta, ...]) -> timedelta:
    try:
        asked = parse_duration(by)
    except ValueError:
        asked = None
    if asked in lengths:
        return asked  # type: ignore[return-value]
    return next((it for it in lengths if it >= timedelta(hours=1)), lengths[-1])


def _why_not(work: Work, actor: Actor, booking: Booking, speech: Speech) -> str:
    grid = inventory.pools_with_ids(work, [booking.pool_id])[booking.pool_id].policy.grid
    try:
        extending.quote_extension(work, actor, booking.id, grid, None)
    except (Refused, Conflict) as refused:
        return _said(refused, speech)
    return "its units are taken afterwards."


def _said(refused: Refused | Conflict, speech: Speech) -> str:
    if isinstance(refused, Conflict):
        return refused.detail
    return " ".join(speech.say(reason.message) for reason in refused.refusal.reasons)


def _href(booking: Booking, name: str) -> str:
    return f"/bookings/{booking.label}/{name}"


def _money(booking: Booking, amount) -> Money:
    return Money(amount, booking.currency)
