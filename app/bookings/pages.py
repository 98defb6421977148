"""Pages of booking: the form with its live quote, confirming it, and the verbs on a booking.

Lists and the page of one booking join use and money with it: they are in dashboards.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Form, Query, Response

from app.accounts import queries as accounts
from app.accounts.queries import ProjectSeen
from app.bookings import actions, edits, extending, leaving, offers, queries, queries_edits, schedule, waitlist
from app.bookings.edits import Key
from app.bookings.facts import Booking
from app.bookings.form import BookFields, Read, read
from app.bookings.schemas import Ask, parse_duration
from app.bookings.shown import (
    Speech,
    both_views,
    faults_view,
    field_errors,
    quote_view,
    refused_view,
    shape_words,
)
from app.bookings.shown_form import Shelf, book_form, other_starts, read_shelf
from app.inventory import queries as inventory
from app.kernel.actor import Actor
from app.kernel.errors import Conflict, Forbidden, Problem, Refused
from app.kernel.window import Window
from app.plumbing.db import Work
from app.plumbing.runtime import Plumbing
from app.web import words
from app.web.deps import Booker, InTransaction, Parts, Reader, rate_limit
from app.web.page import OnPage, Page
from app.web.views.booking import BookPage, QuoteView, RefusedView
from app.web.views.parts import Note

router = APIRouter(include_in_schema=False)

_FormKey = Annotated[str, Form(alias="idempotency_key")]
_By = Annotated[str, Form()]
_DEFAULTS = {"shape": "units", "nodes": "1", "per_node": "8", "when": "asap", "hours": "6", "workload": "default"}


@dataclass(frozen=True, slots=True)
class _Visit:
    """Who looks at the form, in which zone and words."""

    page: Page
    work: Work
    actor: Actor
    parts: Plumbing
    projects: tuple[ProjectSeen, ...]
    speech: Speech

    @property
    def zone(self) -> ZoneInfo:
        """The person's."""
        return ZoneInfo(self.speech.zone)


@dataclass(frozen=True, slots=True)
class _Answer:
    """The panel beside the form: a quote or why not, with its status, and sentences for fields."""

    panel: QuoteView | RefusedView
    status: int
    errors: dict[str, str]
    ask: Ask | None = None


@router.get("/book")
def book_page(
    page: OnPage, work: InTransaction, actor: Reader, parts: Parts, sent: Annotated[BookFields, Query()]
) -> Response:
    """The form, filled from the address, with its quote and other starts."""
    visit = _enter(page, work, actor, parts)
    shelf = _shelf(visit)
    fields = _with_defaults(visit, shelf, sent)
    answer = _quoted(visit, fields)
    typed = answer.errors if sent.model_fields_set else {}
    return _page(visit, shelf, fields, answer, typed)


@router.post("/book/quote", dependencies=[rate_limit("quote", 600, 60)])
def quote_now(
    page: OnPage, work: InTransaction, actor: Booker, parts: Parts, sent: Annotated[BookFields, Form()]
) -> Response:
    """The panel for what is typed at the moment."""
    answer = _quoted(_enter(page, work, actor, parts), sent)
    return page.show(answer.panel, answer.status)


@router.post("/book", dependencies=[rate_limit("book", 600, 60)])
def book_now(
    page: OnPage, work: InTransaction, actor: Booker, parts: Parts, sent: Annotated[BookFields, Form()]
) -> Response:
    """Book it and go to its page; or the form again, as it was filled, with the reasons or the new quote."""
    visit = _enter(page, work, actor, parts)
    found = read(sent, visit.zone, named=True)
    if found.body is None:
        return _refused(visit, sent, _unread(visit, sent, found))
    ask = Ask.of(found.body)
    try:
        key = _key(sent.idempotency_key, sent.model_dump())
        if sent.wait:
            booking = waitlist.book_or_wait(work, parts.queue, actor, ask, sent.wait == "auto", key)
        else:
            booking = actions.book(work, parts.queue, actor, ask, key)
    except Refused as refused:
        view = refused_view(work, actor, ask, refused, visit.speech)
        errors = field_errors(refused, sent, visit.speech)
        return _refused(visit, sent, _Answer(view, refused.status, errors))
    except Conflict as conflict:
        work.restart()  # the idempotency key that was taken is given back
        if conflict.code == "quote_changed":
            answer = _quoted(visit, sent, changed=True)
            status = 409 if answer.status == 200 else answer.status
            return _refused(visit, sent, _Answer(answer.panel, status, answer.errors, answer.ask))
        kept = {name: value for name, value in sent.model_dump(exclude={"quote", "idempotency_key"}).items() if value}
        note = Note("warn", "This form was sent before", "It made a booking then. To book another, confirm again.")
        return page.go(f"/book?{urlencode(kept)}", note)
    return page.go(f"/bookings/{booking.label}", _booked(booking, ask, visit.speech))


@router.post("/bookings/{number}/cancel", dependencies=[rate_limit("change", 600, 60)])
def cancel(number: str, page: OnPage, work: InTransaction, actor: Booker, parts: Parts, key: _FormKey = "") -> Response:
    """Give it up before it is active."""

    def act(booking: Booking) -> Note:
        after = leaving.cancel(
            work, parts.queue, actor, booking.id, _key(key, {"verb": "cancel", "booking": booking.number})
        )
        rest = "" if after.state == "CANCELLED" else " Its units are free for others as soon as they are seen empty."
        owed = sum((fee.amount for fee in queries_edits.fees_of(work, after.id)), after.quoted - after.quoted)
        paid = f"You pay {words.money(owed, after.currency)}" if owed else "Nothing is charged"
        return Note("ok", f"{after.label} is cancelled", f"{paid}; its hours went back to {after.project_name}.{rest}")

    return _verb(page, work, actor, number, "cancelled", act)


@router.post("/bookings/{number}/release", dependencies=[rate_limit("change", 600, 60)])
def release(
    number: str, page: OnPage, work: InTransaction, actor: Booker, parts: Parts, key: _FormKey = ""
) -> Response:
    """Give an active booking back now."""

    def act(booking: Booking) -> Note:
        after = leaving.release(
            work, parts.queue, actor, booking.id, _key(key, {"verb": "release", "booking": booking.number})
        )
        return Note("ok", f"{after.label} is released", _given_back(work, after))

    return _verb(page, work, actor, number, "released", act)


@router.post("/bookings/{number}/extend", dependencies=[rate_limit("change", 600, 60)])
def extend(
    number: str, page: OnPage, work: InTransaction, actor: Booker, parts: Parts, by: _By = "", key: _FormKey = ""
) -> Response:
    """A later end on the same units."""
    zone, now = page.frame.zone, page.frame.now

    def act(booking: Booking) -> Note:
        try:
            length = parse_duration(by)
        except ValueError:
            raise Conflict("no_length", "Choose by how much it is extended.") from None
        after = extending.extend(
            work,
            parts.queue,
            actor,
            booking.id,
            length,
            None,
            _key(key, {"verb": "extend", "booking": booking.number, "by": by}),
        )
        if after.ends_at == booking.ends_at:
            return Note("ok", f"Asked to extend {after.label}", "It is extended when somebody has approved it.")
        added = after.quoted - booking.quoted
        money = f"{words.money(added, after.currency)} more, {words.money(after.quoted, after.currency)} in all."
        return Note("ok", f"{after.label} is extended until {words.moment(after.ends_at, zone, now)}", money)

    return _verb(page, work, actor, number, "extended", act)


# --- the form and its answers -----------------------------------------------------------------------------------------


def _enter(page: Page, work: Work, actor: Actor, parts: Plumbing) -> _Visit:
    """Whoever may book somewhere. Reads the frame first: a use case may begin its transaction anew."""
    frame = page.frame
    projects = tuple(p for p in accounts.projects(work) if actor.books_in(p.id))
    if not projects:
        raise Forbidden("role_missing", "You may look but not book. Ask a lead of your project, or a tenant admin.")
    names = {slug: kind.name for slug, kind in inventory.kinds(work).items()}
    return _Visit(page, work, actor, parts, projects, Speech(names, frame.zone, frame.now))


def _shelf(visit: _Visit) -> Shelf:
    known = queries.find_project(visit.work, visit.projects[0].slug, None)
    assert known is not None
    return read_shelf(visit.work, known.price_group, known.currency, visit.work.product_now())


def _with_defaults(visit: _Visit, shelf: Shelf, sent: BookFields) -> BookFields:
    slugs = [p.slug for p in visit.projects]
    chosen = visit.page.project_slug
    kind = next(iter(shelf.offered), "any")
    room = sum(shelf.sizes[p.id] for p in shelf.pools if p.kind == kind)
    return sent.filled(
        **_DEFAULTS,
        project=chosen if chosen in slugs else slugs[0],
        kind=kind,
        units=str(max(1, min(8, room))),
        cost_center=visit.projects[0].cost_centre if len(slugs) == 1 else "",
    )


def _quoted(visit: _Visit, fields: BookFields, *, changed: bool = False) -> _Answer:
    """What the fields would get now."""
    found = read(fields, visit.zone, named=False)
    if found.body is None:
        return _unread(visit, fields, found)
    ask = Ask.of(found.body.model_copy(update={"quote": None}))
    try:
        quote = actions.quote(visit.work, visit.actor, ask)
    except Refused as refused:
        view = refused_view(visit.work, visit.actor, ask, refused, visit.speech)
        return _Answer(view, refused.status, field_errors(refused, fields, visit.speech), ask)
    cluster = inventory.cluster_with_id(visit.work, quote.offer.pool.cluster_id)
    address = visit.parts.settings.address
    view = quote_view(quote, found.body, visit.speech, cluster, address, changed=changed)
    return _Answer(view, 200, {}, ask)


def _unread(visit: _Visit, fields: BookFields, found: Read) -> _Answer:
    instead = ()
    if found.twice:
        whole = read(fields.model_copy(update={"start": found.twice[0].isoformat()}), visit.zone, named=False)
        if whole.body is not None:
            instead = both_views(visit.work, visit.actor, whole.body, found.twice, visit.speech)
    panel = faults_view(found.faults, fields, visit.speech.now, instead)
    return _Answer(panel, 422, dict(found.faults))


def _refused(visit: _Visit, fields: BookFields, answer: _Answer) -> Response:
    return _page(visit, _shelf(visit), fields, answer, answer.errors, refused=isinstance(answer.panel, RefusedView))


def _page(
    visit: _Visit, shelf: Shelf, fields: BookFields, answer: _Answer, errors: dict[str, str], *, refused: bool = False
) -> Response:
    form = book_form(visit.work, shelf, visit.projects, fields, visit.zone, errors)
    starts, title = (), ""
    if isinstance(answer.panel, QuoteView) and answer.ask is not None:
        desk = offers.open_desk(visit.work, visit.actor, answer.ask.project)
        starts = other_starts(desk, answer.ask, fields, answer.panel.start, visit.zone)
        title = f"When else {shape_words(answer.ask.shape, answer.panel.shape.kind)} fit"
    view = BookPage(form, answer.panel, starts, title, refused)
    return visit.page.show(view, answer.status if visit.page.request.method == "POST" else 200)


def _key(text: str, body: dict[str, Any]) -> Key | None:
    """The form's key with what was sent under it; None for a form without one."""
    if not text:
        return None
    said = {name: value for name, value in body.items() if name != "idempotency_key"}
    return Key(text[:200], hashlib.sha256(json.dumps(said, sort_keys=True).encode()).digest())


def _booked(booking: Booking, ask: Ask, speech: Speech) -> Note:
    price = words.money(booking.quoted, booking.currency)
    if booking.state == "WAITING":
        return Note("ok", f"{booking.label} waits", "It holds nothing and costs nothing. You are told what is offered.")
    if booking.state == "REQUESTED":
        return Note("ok", f"Asked for: {booking.label} for {price}", "It is booked when somebody has approved it.")
    start = words.moment(booking.starts_at, speech.zone, speech.now)
    when = "It starts now." if booking.starts_at <= speech.now else f"It starts {start}."
    return Note("ok", f"Booked: {booking.label} for {price}", f"{shape_words(ask.shape, booking.kind_name)}. {when}")


# --- verbs ------------------------------------------------------------------------------------------------------------


def _verb(page: Page, work: Work, actor: Actor, number: str, done: str, act: Any) -> Response:
    """Do it and go back to the booking, with what came of it; what was refused changes nothing and says why there."""
    frame = page.frame
    booking = edits.find(work, actor, number)
    try:
        note = act(booking)
    except (Conflict, Refused) as problem:
        work.restart()
        note = _not_done(problem, booking, done, Speech({booking.kind: booking.kind_name}, frame.zone, frame.now))
    return page.go(f"/bookings/{booking.label}", note)


def _not_done(problem: Problem, booking: Booking, done: str, speech: Speech) -> Note:
    said = problem.detail
    if problem.code == "idempotency_key_reused":
        said = "This form was sent before, with another choice. See below how it is now, and choose again."
    if isinstance(problem, Refused):
        said = " ".join(part for r in problem.refusal.reasons for part in (r.message, r.fix) if part)
    return Note("bad", f"{booking.label} was not {done}", f"{speech.say(said)} Nothing was changed or charged.")


def _given_back(work: Work, booking: Booking) -> str:
    """What a release gave back, by the frozen prices: from the release to the end that was booked."""
    pool = inventory.pools_with_ids(work, [booking.pool_id])[booking.pool_id]
    left = booking.released_at
    if left is None or booking.provided_at is None or left >= booking.ends_at:
        return "It was over already."
    if not pool.billed:
        return "Use of this cluster is not charged."
    segments = queries.segments_of(work, booking.id)

    def price(window: Window) -> Any:
        part = schedule.within(segments, window)
        return schedule.cost_of(part, booking.units, booking.currency, booking.share840).amount

    whole = price(Window(booking.provided_at, booking.ends_at))
    paid = price(Window(booking.provided_at, left)) if booking.provided_at < left else whole - whole
    back, rest = words.money(whole - paid, booking.currency), words.money(paid, booking.currency)
    return f"{back} went back to {booking.project_name}. You pay {rest}."
