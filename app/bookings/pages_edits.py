"""Pages of the verbs that change a booking, and of claiming one's own use. Every form shows its effect before it is sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Form, Path, Query, Response

from app.bookings import claiming, edits, moving, sharing, shown_edits, shrinking
from app.bookings.edits import Key
from app.bookings.facts import Booking
from app.bookings.schemas import parse_duration
from app.bookings.shown import Speech
from app.bookings.shown_edits import Tried
from app.kernel.actor import Actor
from app.kernel.errors import Conflict, NotFound, Problem, Refused
from app.plumbing.db import Work
from app.web import words
from app.web.deps import Booker, InTransaction, Parts, Reader, rate_limit
from app.web.page import OnPage, Page
from app.web.views.parts import Note

router = APIRouter(include_in_schema=False)

_Key = Annotated[str, Form(alias="idempotency_key")]
_By = Annotated[str, Form(max_length=80)]
_Word = Annotated[str, Query(max_length=80)]
_FormWord = Annotated[str, Form(max_length=80)]
_CHANGES = [rate_limit("change", 600, 60)]


@router.get("/bookings/{number}/change")
def change_page(
    number: str, page: OnPage, work: InTransaction, actor: Reader, start: _Word = "", hours: _Word = "",
    cluster: _Word = "",
) -> Response:  # fmt: skip
    """All that can be changed beside the end: with a start, hours and cluster the effect of a move to there."""
    booking = edits.find(work, actor, number)
    tried = Tried(start, hours, cluster) if start or hours or cluster else None
    return page.show(shown_edits.change_page(work, actor, booking, tried, _speech(page, booking)))


@router.get("/bookings/{number}/change/{verb}")
def change_effect(number: str, verb: str, page: OnPage, work: InTransaction, actor: Reader, by: _Word = "") -> Response:
    """The form of one verb with the effect of what is chosen in it."""
    booking = edits.find(work, actor, number)
    found = shown_edits.verb(work, actor, booking, verb, by, _speech(page, booking))
    if found is None:
        raise NotFound("no_such_verb", "This cannot be done with the booking now.")
    return page.show(found)


@router.post("/bookings/{number}/shrink", dependencies=_CHANGES)
def shrink(
    number: str, page: OnPage, work: InTransaction, actor: Booker, parts: Parts, by: _By = "", key: _Key = ""
) -> Response:
    """End it earlier."""

    def act(booking: Booking) -> Note:
        try:
            kept = shrinking.Kept(end=booking.ends_at - parse_duration(by))
        except ValueError:
            raise Conflict("no_length", "Choose by how much it is shortened.") from None
        made = _key(key, {"verb": "shrink", "booking": booking.number, "by": by})
        after = shrinking.shrink(work, parts.queue, actor, booking.id, kept, made)
        end = words.moment(after.ends_at, page.frame.zone, page.frame.now)
        return Note("ok", f"{after.label} ends {end} now", _back(booking, after))

    return _verb(page, work, actor, number, "shortened", act)


@router.post("/bookings/{number}/units", dependencies=_CHANGES)
def give_units_back(
    number: str, page: OnPage, work: InTransaction, actor: Booker, parts: Parts, by: _By = "", key: _Key = ""
) -> Response:
    """Keep fewer units."""

    def act(booking: Booking) -> Note:
        if not (by.isascii() and by.isdigit()):
            raise Conflict("no_units", "Choose how many units it keeps.")
        made = _key(key, {"verb": "units", "booking": booking.number, "by": by})
        after = shrinking.shrink(work, parts.queue, actor, booking.id, shrinking.Kept(units=int(by)), made)
        rest = " Others have them as soon as they are seen empty." if booking.asked else ""
        return Note("ok", f"{after.label} keeps {words.count(after.units, 'unit')}", _back(booking, after) + rest)

    return _verb(page, work, actor, number, "made smaller", act)


@router.post("/bookings/{number}/move", dependencies=_CHANGES)
def move(
    number: str, page: OnPage, work: InTransaction, actor: Booker, parts: Parts, start: _FormWord = "",
    hours: _FormWord = "", cluster: _FormWord = "", key: _Key = "",
) -> Response:  # fmt: skip
    """To another time or cluster."""

    def act(booking: Booking) -> Note:
        to = shown_edits.read_move(Tried(start, hours, cluster), _speech(page, booking))
        if isinstance(to, str):
            raise Conflict("no_time", to)
        words_of = {"verb": "move", "booking": booking.number, "to": [start, hours, cluster]}
        after = moving.move(work, parts.queue, actor, booking.id, to, _key(key, words_of))
        begin = words.moment(after.starts_at, page.frame.zone, page.frame.now)
        price = words.money(after.quoted, after.currency)
        return Note("ok", f"{after.label} starts {begin} on {after.cluster} now", f"It costs {price} in all.")

    return _verb(page, work, actor, number, "moved", act)


@router.post("/bookings/{number}/hand_over", dependencies=_CHANGES)
def hand_over(
    number: str, page: OnPage, work: InTransaction, actor: Booker, parts: Parts, by: _By = "", key: _Key = ""
) -> Response:
    """Make it another member's."""

    def act(booking: Booking) -> Note:
        try:
            to = UUID(by)
        except ValueError:
            raise Conflict("no_person", "Choose to whom it is handed over.") from None
        made = _key(key, {"verb": "hand_over", "booking": booking.number, "by": by})
        after = sharing.hand_over(work, parts.queue, actor, booking.id, to, made)
        return Note("ok", f"{after.label} is {after.booked_by}'s now", "It counts in that person's limits from now on.")

    return _verb(page, work, actor, number, "handed over", act)


@router.post("/bookings/{number}/share", dependencies=_CHANGES)
def share(number: str, page: OnPage, work: InTransaction, actor: Booker, parts: Parts, key: _Key = "") -> Response:
    """Let every member of the project enter it."""
    return _share(page, work, actor, parts, number, key, True)


@router.post("/bookings/{number}/unshare", dependencies=_CHANGES)
def unshare(number: str, page: OnPage, work: InTransaction, actor: Booker, parts: Parts, key: _Key = "") -> Response:
    """Let only whoever has it, and the leads, enter it."""
    return _share(page, work, actor, parts, number, key, False)


@router.get("/uses")
def uses_page(page: OnPage, work: InTransaction, actor: Reader, project: _Word = "", duration: _Word = "") -> Response:
    """What one uses without a booking, with what claiming it would cost."""
    chosen = project or page.project_slug or ""
    return page.show(shown_edits.uses_page(work, actor, chosen, duration, page.frame.zone, page.frame.now))


@router.post("/uses/{use_id}/claim", dependencies=_CHANGES)
def claim(
    use_id: Annotated[int, Path(ge=1, le=10**15)], page: OnPage, work: InTransaction, actor: Booker, parts: Parts,
    project: _FormWord = "", duration: _FormWord = "", key: _Key = "",
) -> Response:  # fmt: skip
    """Book the units that one uses already."""
    frame = page.frame
    try:
        try:
            length = parse_duration(duration)
        except ValueError:
            raise Conflict("no_length", "Choose for how long.") from None
        wish = claiming.Wish(project, "Claimed", length)
        made = _key(key, {"verb": "claim", "use": use_id, "project": project, "duration": duration})
        booked = claiming.claim(work, parts.queue, actor, use_id, wish, made)
    except (Conflict, Refused) as problem:
        work.restart()
        return page.go("/uses", _not_done(problem, "It", "claimed", Speech({}, frame.zone, frame.now)))
    end = words.moment(booked.ends_at, frame.zone, frame.now)
    note = Note("ok", f"{booked.label} is yours until {end}", words.money(booked.quoted, booked.currency) + " in all.")
    return page.go(f"/bookings/{booked.label}", note)


def _share(page: Page, work: Work, actor: Actor, parts: Any, number: str, key: str, shared: bool) -> Response:
    def act(booking: Booking) -> Note:
        made = _key(key, {"verb": "share", "booking": booking.number, "shared": shared})
        after = sharing.share(work, parts.queue, actor, booking.id, shared, made)
        who = f"Every member of {after.project_name}" if shared else f"Only {after.booked_by} and leads of the project"
        return Note("ok", f"{after.label} is {'shared' if shared else 'not shared any more'}", f"{who} may enter it.")

    return _verb(page, work, actor, number, "shared" if shared else "unshared", act)


def _speech(page: Page, booking: Booking) -> Speech:
    return Speech({booking.kind: booking.kind_name}, page.frame.zone, page.frame.now)


def _verb(page: Page, work: Work, actor: Actor, number: str, done: str, act: Callable[[Booking], Note]) -> Response:
    """Do it and go back to the booking, with what came of it; what was refused changes nothing and says why there."""
    speech_of = page.frame  # read before a use case may begin its transaction anew
    booking = edits.find(work, actor, number)
    try:
        note = act(booking)
    except (Conflict, Refused) as problem:
        work.restart()
        speech = Speech({booking.kind: booking.kind_name}, speech_of.zone, speech_of.now)
        note = _not_done(problem, booking.label, done, speech)
    return page.go(f"/bookings/{booking.label}", note)


def _not_done(problem: Problem, what: str, done: str, speech: Speech) -> Note:
    said = problem.detail
    if problem.code == "idempotency_key_reused":
        said = "This form was sent before, with another choice. See how it is now, and choose again."
    if isinstance(problem, Refused):
        said = " ".join(part for r in problem.refusal.reasons for part in (r.message, r.fix) if part)
    return Note("bad", f"{what} was not {done}", f"{speech.say(said)} Nothing was changed or charged.")


def _back(before: Booking, after: Booking) -> str:
    back = words.money(before.quoted - after.quoted, after.currency)
    return f"{back} went back to {after.project_name}; it costs {words.money(after.quoted, after.currency)} in all."


def _key(text: str, body: dict[str, Any]) -> Key | None:
    """The form's key with what was sent under it; None for a form without one."""
    if not text:
        return None
    return Key(text[:200], hashlib.sha256(json.dumps(body, sort_keys=True).encode()).digest())
