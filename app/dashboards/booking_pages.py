"""Routes of the list of bookings and of one booking: pages that join what bookings, use and money know."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from app.bookings import edits
from app.bookings.shown import Speech
from app.dashboards import booking_money, booking_verbs, bookings_list
from app.dashboards.booking_measured import workload_rows
from app.dashboards.booking_shown import booking_page, with_access
from app.dashboards.bookings_list import Asked
from app.web.deps import InTransaction, Parts, Reader
from app.web.page import OnPage
from app.web.views.booking import BookingLive

router = APIRouter(include_in_schema=False)

_Word = Annotated[str, Query(max_length=40)]
_Text = Annotated[str, Query(max_length=200)]
_Number = Annotated[int | None, Query(ge=1, le=10**15)]


@router.get("/bookings")
def list_page(
    page: OnPage, work: InTransaction, actor: Reader, state: _Word = "", mine: _Word = "", q: _Text = "",
    before: _Number = None,
) -> Response:  # fmt: skip
    """Bookings of the chosen project, or of all that the person may see."""
    asked = Asked(state if state in bookings_list.GROUPS else "", bool(mine), q, before)
    return page.show(bookings_list.bookings_page(work, actor, page.project_slug, asked))


@router.get("/bookings.csv")
def list_file(
    page: OnPage, work: InTransaction, actor: Reader, state: _Word = "", mine: _Word = "", q: _Text = ""
) -> Response:
    """The same as a file."""
    asked = Asked(state if state in bookings_list.GROUPS else "", bool(mine), q)
    text = bookings_list.bookings_csv(work, actor, page.project_slug, asked)
    headers = {"Content-Disposition": 'attachment; filename="bookings.csv"'}
    return Response(text, media_type="text/csv; charset=utf-8", headers=headers)


@router.get("/bookings/{number}")
def one_page(page: OnPage, number: str, work: InTransaction, actor: Reader, parts: Parts) -> Response:
    """How long, how much, is it used, and how to get in."""
    booking = edits.find(work, actor, number)
    view = booking_page(work, actor, booking, page.frame.zone)
    return page.show(with_access(view, parts, booking, page.actor.account_id))


@router.get("/bookings/{number}/live")
def live_part(
    page: OnPage, number: str, work: InTransaction, actor: Reader, parts: Parts, seen: _Word = "", cards: _Text = "",
    by: _Word = "",
) -> Response:  # fmt: skip
    """What changes while one looks. The cluster is asked for the way in only when the state is not what was shown.

    `cards` are the verbs' forms that the page shows, `by` is what is chosen in one.
    """
    booking = edits.find(work, actor, number)
    view = booking_page(work, actor, booking, page.frame.zone, by)
    shown = view.state + ("-observed" if view.samples or view.units else "")
    if seen != shown:
        view = with_access(view, parts, booking, page.actor.account_id)
    return page.show(BookingLive(view, seen, tuple(cards.split(",")), by))


@router.get("/bookings/{number}/effect")
def effect_part(
    page: OnPage, number: str, work: InTransaction, actor: Reader, verb: _Word = "", by: _Word = ""
) -> Response:
    """A verb's form with the effect of what is chosen in it."""
    booking = edits.find(work, actor, number)
    now = work.product_now()
    money = booking_money.figures(work, booking, now)
    running = sum(row.tone == "ok" for row in workload_rows(work, booking, now))
    speech = Speech({booking.kind: booking.kind_name}, page.frame.zone, now)
    return page.show(booking_verbs.verb(work, actor, booking, money, running, speech, verb, by))
