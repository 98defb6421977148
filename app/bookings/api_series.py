"""The JSON routes of series and classes."""

from __future__ import annotations

from typing import Annotated, Any
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Query, Request, Response

from app.bookings import classes, queries_series, rules, series
from app.bookings.api import IdempotencyKey, IfMatch, booking_json, key_of, projects_of, version_of
from app.bookings.classes import ClassMade
from app.bookings.schemas_series import CancelSeriesIn, ChangeSeriesIn, ClassIn, SeriesIn
from app.bookings.series import Made, SeriesAsk, Slot
from app.kernel import ids
from app.web.deps import Booker, InTransaction, Parts, Reader, rate_limit

router = APIRouter(prefix="/api/v1", tags=["bookings"])


@router.post("/series", status_code=201, dependencies=[rate_limit("series", 120, 60)])
def book_series(
    body: SeriesIn, request: Request, response: Response, work: InTransaction, actor: Booker, parts: Parts,
    key: IdempotencyKey = None, dry_run: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Book every occurrence of a rule, each a booking of its own. Refused with every conflict, each with its day."""
    asked = asked_of(body)
    if dry_run:
        response.status_code = 200
        return made_json(series.preview_series(work, parts.queue, actor, asked))
    made = series.book_series(work, parts.queue, actor, asked, key_of(key, request, body.model_dump(mode="json")))
    response.headers["Location"] = f"/api/v1/series/{made.series.public_id}"
    return _answer(response, made)


@router.get("/series")
def list_series(
    work: InTransaction, actor: Reader, project: Annotated[str | None, Query(max_length=80)] = None
) -> dict[str, Any]:
    """Series of the projects that the caller may see, newest first."""
    found = queries_series.list_series(work, projects_of(work, actor, project))
    return {"items": [_series(s) for s in found], "next": None}


@router.get("/series/{series_id}")
def get_series(series_id: str, work: InTransaction, actor: Reader, response: Response) -> dict[str, Any]:
    """One series with its bookings, cancelled ones too."""
    return _answer(response, series.see_series(work, actor, *named(ids.SERIES, "S-", series_id)))


@router.post("/series/{series_id}/change", status_code=201)
def change_series(
    series_id: str, body: ChangeSeriesIn, request: Request, response: Response, work: InTransaction, actor: Booker,
    parts: Parts, key: IdempotencyKey = None, if_match: IfMatch = None, dry_run: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """This and the following occurrences otherwise: the series is split there. Whole, or nothing is changed."""
    found = series.see_series(work, actor, *named(ids.SERIES, "S-", series_id)).series
    if dry_run:
        response.status_code = 200
        return made_json(series.preview_change(work, parts.queue, actor, found.id, asked_of(body), body.since))
    made = series.change_series(
        work, parts.queue, actor, found.id, asked_of(body), body.since,
        key_of(key, request, body.model_dump(mode="json")), version_of(if_match),
    )  # fmt: skip
    response.headers["Location"] = f"/api/v1/series/{made.series.public_id}"
    return _answer(response, made)


@router.post("/series/{series_id}/cancel")
def cancel_series(
    series_id: str, body: CancelSeriesIn, request: Request, response: Response, work: InTransaction, actor: Booker,
    parts: Parts, key: IdempotencyKey = None, if_match: IfMatch = None,
) -> dict[str, Any]:  # fmt: skip
    """Cancel what has not begun, from an occurrence on or all of it."""
    found = series.see_series(work, actor, *named(ids.SERIES, "S-", series_id)).series
    made = key_of(key, request, body.model_dump(mode="json"))
    after = series.cancel_series(work, parts.queue, actor, found.id, body.since, made, version_of(if_match))
    return _answer(response, after)


@router.post("/classes", status_code=201, dependencies=[rate_limit("series", 120, 60)])
def book_class(
    body: ClassIn, request: Request, response: Response, work: InTransaction, actor: Booker, parts: Parts,
    key: IdempotencyKey = None, dry_run: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Book the same for several members at once, a booking each, all or nothing. Leads only."""
    if dry_run:
        response.status_code = 200
        return class_json(classes.preview_class(work, parts.queue, actor, body.to_ask(), body.people))
    made = key_of(key, request, body.model_dump(mode="json"))
    booked = classes.book_class(work, parts.queue, actor, body.to_ask(), body.people, made)
    response.headers["Location"] = f"/api/v1/classes/{booked.one.public_id}"
    return class_json(booked)


@router.get("/classes/{class_id}")
def get_class(class_id: str, work: InTransaction, actor: Reader) -> dict[str, Any]:
    """One class with its bookings."""
    return class_json(classes.see_class(work, actor, *named(ids.CLASS, "C-", class_id)))


@router.post("/classes/{class_id}/cancel")
def cancel_class(
    class_id: str, request: Request, work: InTransaction, actor: Booker, parts: Parts, key: IdempotencyKey = None
) -> dict[str, Any]:
    """Cancel what has not begun of a class, release what has."""
    found = classes.see_class(work, actor, *named(ids.CLASS, "C-", class_id)).one
    return class_json(classes.cancel_class(work, parts.queue, actor, found.id, key_of(key, request, {})))


# --- shapes -----------------------------------------------------------------------------------------------------------


def made_json(made: Made) -> dict[str, Any]:
    """A series with its occurrences, what could not be booked, and the price of all of it."""
    booked = made.booked
    return {
        **_series(made.series),
        "price": {"currency": booked[0].currency, "amount": str(made.total)} if booked else None,
        "occurrences": [_slot(slot, made.series.zone) for slot in made.slots],
        "dropped": [b.public_id for b in made.dropped],
    }


def class_json(made: ClassMade) -> dict[str, Any]:
    """A class with its bookings."""
    one, booked = made.one, made.bookings
    return {
        "id": one.public_id,
        "number": one.label,
        "project": one.project,
        "name": one.name,
        "made_by": one.made_by,
        "made_at": rules.iso(one.made_at),
        "price": {"currency": booked[0].currency, "amount": str(made.total)} if booked else None,
        "bookings": [booking_json(b, None) for b in booked],
    }


def _answer(response: Response, made: Made) -> dict[str, Any]:
    response.headers["ETag"] = f'"{made.series.version}"'
    return made_json(made)


def _series(one: queries_series.Series) -> dict[str, Any]:
    return {
        "id": one.public_id,
        "number": one.label,
        "project": one.project,
        "name": one.name,
        "rule": one.rule,
        "zone": one.zone,
        "local_start": one.local_start.isoformat(timespec="seconds"),
        "local_end": one.local_end.isoformat(timespec="seconds"),
        "wanted": one.wanted,
        "on_conflict": one.on_conflict,
        "made_by": one.made_by,
        "made_at": rules.iso(one.made_at),
        "ended_at": None if one.ended_at is None else rules.iso(one.ended_at),
        "version": one.version,
    }


def _slot(slot: Slot, zone: str) -> dict[str, Any]:
    one, window = slot.occurrence, slot.occurrence.window
    return {
        "local_start": one.local_start.isoformat(timespec="seconds"),
        "local_end": one.local_end.isoformat(timespec="seconds"),
        "start": None if window is None else rules.iso(window.start),
        "end": None if window is None else rules.iso(window.end),
        "twice": series.twice_text(one, ZoneInfo(zone)) or None,
        "booking": None if slot.booking is None else booking_json(slot.booking, None),
        "reasons": [
            {"code": r.code, "message": r.message, "limit": r.limit, "asked": r.asked, "fix": r.fix}
            for r in slot.reasons
        ],
    }


def asked_of(body: SeriesIn) -> SeriesAsk:
    return SeriesAsk(body.to_ask(), body.rule, body.zone, body.local_start, body.local_end, body.on_conflict)


def named(prefix: str, label: str, text: str) -> tuple[Any, int | None]:
    """The id or the number behind an address: `sr_…`, `S-12`, `12`."""
    digits = text.upper().removeprefix(label)
    number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else None
    return ids.parse(prefix, text), number
