"""Pages of series and classes: the form, what it would book, booking it, and what became of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Literal
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Form, Query, Response

from app.accounts import queries as accounts
from app.accounts.queries import ProjectSeen
from app.bookings import classes, series
from app.bookings.api_series import asked_of, named
from app.bookings.classes import ClassMade
from app.bookings.edits import Key
from app.bookings.facts import Booking
from app.bookings.series import Made, SeriesAsk, Slot
from app.bookings.several_form import CONFLICTS, MEANS, REPEATS, SeveralFields, read_class, read_series
from app.bookings.shown import Speech, fresh_key
from app.inventory import queries as inventory
from app.kernel import ids
from app.kernel.actor import Actor
from app.kernel.errors import Conflict, Forbidden, Refused
from app.plumbing.db import Work
from app.web import words
from app.web.deps import Booker, InTransaction, Parts, Reader, rate_limit
from app.web.page import OnPage, Page
from app.web.views import several as views
from app.web.views.parts import Action, Link, Money, Note, Option

router = APIRouter(include_in_schema=False)

_LEVELS = {"": "Anywhere", "node": "Same node", "nvlink": "NVLink domain", "leaf": "Leaf switch", "rack": "Rack"}


@router.get("/book/series")
def series_form(page: OnPage, work: InTransaction, actor: Reader, sent: Annotated[SeveralFields, Query()]) -> Response:
    """The form of a booking that repeats, empty or for a series that is changed."""
    projects = _projects(work, actor)
    if sent.series:
        sent = _of_series(series.see_series(work, actor, *named(ids.SERIES, "S-", sent.series)), sent.since)
    return page.show(_page(page, work, "series", projects, _defaults(page, projects, sent)))


@router.post("/book/series", dependencies=[rate_limit("series", 120, 60)])
def series_now(
    page: OnPage, work: InTransaction, actor: Booker, parts: Parts, sent: Annotated[SeveralFields, Form()]
) -> Response:
    """Show every occurrence with its price or its conflict, or book them."""
    projects, speech = _projects(work, actor), _speech(page, work)
    body, errors = read_series(sent)
    if body is None:
        return page.show(_page(page, work, "series", projects, sent, errors), 422)
    asked = asked_of(body)
    found = series.see_series(work, actor, *named(ids.SERIES, "S-", sent.series)).series if sent.series else None
    since = datetime.fromisoformat(sent.since) if sent.since else None
    try:
        if sent.step == "book" and found is not None:
            made = series.change_series(work, parts.queue, actor, found.id, asked, since, _key(sent))
        elif sent.step == "book":
            made = series.book_series(work, parts.queue, actor, asked, _key(sent))
        else:
            if found is not None:
                made = series.preview_change(work, parts.queue, actor, found.id, asked, since)
            else:
                made = series.preview_series(work, parts.queue, actor, asked)
            return page.show(_page(page, work, "series", projects, sent, {}, _preview(made, asked, speech)))
    except Refused as refused:
        work.restart()
        return page.show(_page(page, work, "series", projects, sent, _faults(refused, speech)), refused.status)
    except Conflict as conflict:
        work.restart()
        return page.show(_page(page, work, "series", projects, sent, {"": conflict.detail}), 409)
    total = words.money(made.total, made.booked[0].currency)
    note = Note("ok", f"{made.series.label}: {words.count(len(made.booked), 'booking')} for {total}",
                _left_out(made) or "Each is a booking of its own.")  # fmt: skip
    return page.go(f"/series/{made.series.label}", note)


@router.get("/book/class")
def class_form(page: OnPage, work: InTransaction, actor: Reader, sent: Annotated[SeveralFields, Query()]) -> Response:
    """The form of bookings for a class."""
    projects = _projects(work, actor, lead=True)
    return page.show(_page(page, work, "class", projects, _defaults(page, projects, sent)))


@router.post("/book/class", dependencies=[rate_limit("series", 120, 60)])
def class_now(
    page: OnPage, work: InTransaction, actor: Booker, parts: Parts, sent: Annotated[SeveralFields, Form()]
) -> Response:
    """Show what each person would get, or book it."""
    projects, speech = _projects(work, actor, lead=True), _speech(page, work)
    ask, errors = read_class(sent, ZoneInfo(page.frame.zone))
    people = sent.people.replace(",", "\n").replace(";", "\n").split("\n")
    if ask is None:
        return page.show(_page(page, work, "class", projects, sent, errors), 422)
    try:
        if sent.step != "book":
            shown = classes.preview_class(work, parts.queue, actor, ask, people)
            return page.show(_page(page, work, "class", projects, sent, {}, _preview_class(shown)))
        made = classes.book_class(work, parts.queue, actor, ask, people, _key(sent))
    except Refused as refused:
        work.restart()
        return page.show(_page(page, work, "class", projects, sent, _faults(refused, speech)), refused.status)
    except Conflict as conflict:
        work.restart()
        return page.show(_page(page, work, "class", projects, sent, {"": conflict.detail}), 409)
    total = words.money(made.total, made.bookings[0].currency)
    note = Note("ok", f"{made.one.label}: {words.count(len(made.bookings), 'booking')} for {total}",
                "Each belongs to its person.")  # fmt: skip
    return page.go(f"/classes/{made.one.label}", note)


@router.get("/series/{series_id}")
def series_page(series_id: str, page: OnPage, work: InTransaction, actor: Reader) -> Response:
    """A series with its bookings, and what can be done with this and the following ones."""
    made = series.see_series(work, actor, *named(ids.SERIES, "S-", series_id))
    one = made.series
    own = one.account_id is not None and one.account_id == actor.account_id
    may = actor.may("book") and (actor.leads(one.project_id) or (own and actor.books_in(one.project_id)))
    facts = (
        ("Rule", one.rule), ("Zone", one.zone), ("Project", one.project), ("Made by", one.made_by),
        *((("Ended", words.moment(one.ended_at, page.frame.zone, page.frame.now)),) if one.ended_at else ()),
    )  # fmt: skip
    rows = tuple(_made_row(slot, one.label, may) for slot in made.slots)
    whole = (_cancel_action(one.label, None, "Cancel all that has not begun"),) if may and _open(made.slots) else ()
    total = _total([s.booking for s in made.slots if s.booking is not None and s.booking.state not in _GONE])
    sentence = "Each occurrence is a booking of its own; what is changed here changes those that have not begun."
    return page.show(views.SeveralMade(f"{one.label} {one.name}", sentence, facts, rows, total, "Day", whole))


@router.post("/series/{series_id}/cancel", dependencies=[rate_limit("change", 600, 60)])
def cancel_series(
    series_id: str, page: OnPage, work: InTransaction, actor: Booker, parts: Parts,
    since: Annotated[str, Form(max_length=40)] = "", idempotency_key: Annotated[str, Form(max_length=200)] = "",
) -> Response:  # fmt: skip
    """Cancel this and the following occurrences, or all that have not begun."""
    one = series.see_series(work, actor, *named(ids.SERIES, "S-", series_id)).series
    key = _key_of(idempotency_key, {"cancel": one.number, "since": since})
    try:
        instant = datetime.fromisoformat(since) if since else None
        after = series.cancel_series(work, parts.queue, actor, one.id, instant, key)
        note = Note(
            "ok", f"{words.first_upper(words.count(len(after.dropped), 'booking'))} of {one.label} cancelled", ""
        )
    except (Conflict, ValueError) as problem:
        work.restart()
        note = Note("bad", "Nothing was cancelled", str(getattr(problem, "detail", "Choose an occurrence.")))
    return page.go(f"/series/{one.label}", note)


@router.get("/classes/{class_id}")
def class_page(class_id: str, page: OnPage, work: InTransaction, actor: Reader) -> Response:
    """A class with its bookings."""
    made = classes.see_class(work, actor, *named(ids.CLASS, "C-", class_id))
    one = made.one
    going = any(b.state not in (*_GONE, "ENDING", "ENDED") for b in made.bookings)
    acts = ()
    if actor.leads(one.project_id) and actor.may("book") and going:
        acts = (
            Action("End all of them", f"/classes/{one.label}/cancel", (("idempotency_key", fresh_key()),), "danger"),
        )
    facts = (("Project", one.project), ("Made by", one.made_by))
    sentence = (
        "Each booking belongs to its person and counts in the project's limits; what becomes of it is the lead's."
    )
    rows = tuple(_booking_row(b.booked_by, b) for b in made.bookings)
    total = _total([b for b in made.bookings if b.state not in _GONE])
    return page.show(views.SeveralMade(f"{one.label} {one.name}", sentence, facts, rows, total, "Person", acts))


@router.post("/classes/{class_id}/cancel", dependencies=[rate_limit("change", 600, 60)])
def cancel_class(
    class_id: str, page: OnPage, work: InTransaction, actor: Booker, parts: Parts,
    idempotency_key: Annotated[str, Form(max_length=200)] = "",
) -> Response:  # fmt: skip
    """Cancel what has not begun of a class, release what has."""
    one = classes.see_class(work, actor, *named(ids.CLASS, "C-", class_id)).one
    try:
        classes.cancel_class(work, parts.queue, actor, one.id, _key_of(idempotency_key, {"class": one.number}))
        note = Note("ok", f"{one.label} is ended", "What had begun is released and charged until now.")
    except Conflict as conflict:
        work.restart()
        note = Note("bad", "Nothing was changed", conflict.detail)
    return page.go(f"/classes/{one.label}", note)


def _faults(refused: Refused, speech: Speech) -> dict[str, str]:
    """Reasons that lie in one field beside it, all others above the form."""
    errors: dict[str, str] = {}
    rest = []
    for reason in refused.refusal.reasons:
        field = MEANS.get(reason.field or "", reason.field or "")
        said = speech.say(f"{reason.message} {reason.fix or ''}".strip())
        if reason.in_request and field in SeveralFields.model_fields and field not in errors:
            errors[field] = said
        else:
            rest.append(said)
    if rest:
        errors[""] = " ".join(rest[:6]) + (f" And {len(rest) - 6} more reasons." if len(rest) > 6 else "")
    return errors


# --- showing ----------------------------------------------------------------------------------------------------------

_GONE = ("CANCELLED", "REJECTED", "LAPSED")


def _page(
    page: Page, work: Work, mode: Literal["series", "class"], projects: tuple[ProjectSeen, ...], sent: SeveralFields,
    errors: Mapping[str, str] | None = None, preview: views.SeveralPreview | None = None,
) -> views.SeveralPage:  # fmt: skip
    kinds = inventory.kinds(work)
    teaches = any(page.actor.leads(p.id) for p in projects)
    offered = sorted({p.kind for p in inventory.pools_for(work) if p.writes}, key=lambda slug: kinds[slug].name)
    hidden = [("zone", sent.zone or page.frame.zone), ("idempotency_key", sent.idempotency_key or fresh_key())]
    if sent.series:
        hidden += [("series", sent.series), ("since", sent.since)]
    values = sent.model_dump() | {"zone": sent.zone or page.frame.zone}
    label = f"S-{sent.series.upper().removeprefix('S-')}" if sent.series else ""
    titles = {
        "series": f"Change {label} from here on" if label else "A booking that repeats",
        "class": "Bookings for a class",
    }
    sentences = {
        "series": "The occurrences that have not begun are booked anew, all of them or none."
        if label
        else "Each occurrence is a booking of its own, placed and priced at its own time. Nothing is booked until you confirm.",
        "class": "The same for several people at one time: a booking each, all of them or none.",
    }
    form = views.SeveralForm(
        tuple(Option(p.slug, p.name, p.slug == sent.project) for p in projects),
        (*(Option(s, kinds[s].name, s == sent.kind) for s in offered), Option("any", "Any kind", sent.kind == "any")),
        tuple(Option(level, label_, level == sent.within) for level, label_ in _LEVELS.items()),
        tuple(Option(rule, label_, rule == sent.repeat) for rule, label_ in REPEATS.items()),
        tuple(Option(c, label_, c == (sent.on_conflict or "none")) for c, label_ in CONFLICTS.items()),
        values, tuple(hidden), errors or {},
    )  # fmt: skip
    return views.SeveralPage(mode, titles[mode], sentences[mode], form, preview, label, teaches)


def _preview(made: Made, asked: SeriesAsk, speech: Speech) -> views.SeveralPreview:
    zone = ZoneInfo(asked.zone)
    rows = tuple(_row(slot, zone, speech) for slot in made.slots)
    fits, wrong = len(made.booked), len(made.conflicts)
    said = f"{words.first_upper(words.count(fits, 'occurrence'))} can be booked."
    if wrong:
        said += f" {words.first_upper(words.count(wrong, 'occurrence'))} cannot: " + (
            "they are left out." if asked.on_conflict == "skip" else "nothing is booked unless the others may be."
        )
    if made.dropped:
        gone = words.first_upper(words.count(len(made.dropped), "booking"))
        said += f" {gone} of the series {'is' if len(made.dropped) == 1 else 'are'} cancelled for them."
    possible = bool(fits) and (not wrong or asked.on_conflict == "skip")
    return views.SeveralPreview(said, rows, _total(list(made.booked)), possible)


def _preview_class(made: ClassMade) -> views.SeveralPreview:
    said = f"There is room for all {len(made.bookings)}."
    return views.SeveralPreview(said, tuple(_booking_row(b.booked_by, b, made=False) for b in made.bookings),
                                _total(list(made.bookings)), True)  # fmt: skip


def _row(slot: Slot, zone: ZoneInfo, speech: Speech) -> views.OneOfSeveral:
    one, booking = slot.occurrence, slot.booking
    twice = series.twice_text(one, zone)
    return views.OneOfSeveral(
        series.day_text(one.local_start),
        one.window.start if one.window else None,
        one.window.end if one.window else None,
        price=None if booking is None else Money(booking.quoted, booking.currency),
        problems=tuple(speech.say(r.message) for r in slot.reasons),
        note=f"It exists twice: {twice}. The first is taken." if twice else "",
    )


def _made_row(slot: Slot, label: str, may: bool) -> views.OneOfSeveral:
    booking = slot.booking
    assert booking is not None
    row = _booking_row(series.day_text(slot.occurrence.local_start), booking)
    if not may or booking.state not in series.OPEN or booking.occurs_at is None:
        return row
    since = booking.occurs_at.isoformat()
    acts = (_cancel_action(label, since, "Cancel from here on"),)
    links = (Link("Change from here on", f"/book/series?{urlencode({'series': label, 'since': since})}"),)
    return replace(row, actions=acts, links=links)


def _booking_row(title: str, booking: Booking, *, made: bool = True) -> views.OneOfSeveral:
    return views.OneOfSeveral(
        title, booking.starts_at, booking.ends_at, booking.label if made else "", booking.state if made else "",
        Money(booking.quoted, booking.currency),
    )  # fmt: skip


def _cancel_action(label: str, since: str | None, said: str) -> Action:
    fields = [("idempotency_key", fresh_key()), *((("since", since),) if since else ())]
    return Action(
        said, f"/series/{label}/cancel", tuple(fields), "danger", describe=f"{said}: {label} {since or ''}".strip()
    )


def _open(slots: tuple[Slot, ...]) -> bool:
    return any(s.booking is not None and s.booking.state in series.OPEN for s in slots)


def _total(bookings: list[Booking]) -> Money | None:
    if not bookings:
        return None
    return Money(sum((b.quoted for b in bookings), bookings[0].quoted - bookings[0].quoted), bookings[0].currency)


def _left_out(made: Made) -> str:
    days = [series.day_text(slot.occurrence.local_start) for slot in made.conflicts]
    return f"Left out: {'; '.join(days[:5])}{' and others' if len(days) > 5 else ''}." if days else ""


# --- who and which ----------------------------------------------------------------------------------------------------


def _projects(work: Work, actor: Actor, *, lead: bool = False) -> tuple[ProjectSeen, ...]:
    found = tuple(p for p in accounts.projects(work) if (actor.leads(p.id) if lead else actor.books_in(p.id)))
    if not found:
        who = "leads a project" if lead else "may book"
        raise Forbidden("role_missing", f"This is for whoever {who}. Ask a lead of your project, or a tenant admin.")
    return found


def _speech(page: Page, work: Work) -> Speech:
    names = {slug: kind.name for slug, kind in inventory.kinds(work).items()}
    return Speech(names, page.frame.zone, page.frame.now)


def _defaults(page: Page, projects: tuple[ProjectSeen, ...], sent: SeveralFields) -> SeveralFields:
    slugs = [p.slug for p in projects]
    first = page.project_slug if page.project_slug in slugs else slugs[0]
    fixed = {"project": first, "units": "8", "count": "4", "repeat": "WEEKLY", "hours": "2", "on_conflict": "none"}
    return sent.model_copy(update={name: value for name, value in fixed.items() if not getattr(sent, name)})


def _of_series(made: Made, since: str) -> SeveralFields:
    one = made.series
    wanted = {k: str(v) for k, v in one.wanted.items() if k in SeveralFields.model_fields and v is not None}
    start = next((s.occurrence for s in made.slots if s.booking is not None and s.booking.occurs_at is not None
                  and s.booking.occurs_at.isoformat() == since), None)  # fmt: skip
    local_start, local_end = (start.local_start, start.local_end) if start else (one.local_start, one.local_end)
    return SeveralFields(**(wanted | {
        "series": one.label, "since": since, "rule": one.rule, "zone": one.zone,
        "local_start": local_start.isoformat(timespec="minutes"), "local_end": local_end.isoformat(timespec="minutes"),
    }))  # fmt: skip


def _key(sent: SeveralFields) -> Key | None:
    return _key_of(sent.idempotency_key, sent.model_dump(exclude={"idempotency_key", "step"}))


def _key_of(text: str, body: dict[str, Any]) -> Key | None:
    if not text:
        return None
    return Key(text[:200], hashlib.sha256(json.dumps(body, sort_keys=True).encode()).digest())
