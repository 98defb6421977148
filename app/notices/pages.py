"""The page of notices, and marking them as read."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Form, Query, Response

from app.notices import actions, queries
from app.notices.shown import notice_row
from app.plumbing import outbox
from app.web.deps import AnyActor, InTransaction, Parts
from app.web.page import OnPage, local_address
from app.web.views.notices import NoticesPage
from app.web.views.parts import Link, Pager

router = APIRouter(include_in_schema=False)
_PAGE = 50


@router.get("/notices")
def notices_page(
    page: OnPage,
    work: InTransaction,
    actor: AnyActor,
    parts: Parts,
    show: Annotated[str, Query(max_length=20)] = "",
    before: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """What one was told, newest first."""
    new = show == "new"
    found = queries.notices(work, actor, limit=_PAGE + 1, before=read_cursor(before), unread=new)
    more = f"&before={cursor(found[_PAGE - 1])}" if len(found) > _PAGE else ""
    address = f"/notices?show={'new' if new else 'all'}"
    now = work.product_now()
    unread = outbox.unread(work, actor.account_id, bool(actor.platform_roles)) if actor.account_id else 0
    return page.show(
        NoticesPage(
            notices=tuple(notice_row(one, actor.zone, now) for one in found[:_PAGE]),
            ways=(Link("All", "/notices", not new), Link("New", "/notices?show=new", new)),
            unread=unread,
            mailed=parts.settings.smtp_host is not None,
            pager=Pager(next=f"{address}{more}" if more else None),
        )
    )


@router.post("/notices/read")
def mark_read(
    page: OnPage,
    work: InTransaction,
    actor: AnyActor,
    following: Annotated[str, Form(alias="next", max_length=200)] = "",
) -> Response:
    """Mark all of one's notices as read."""
    actions.read(work, actor)
    return page.go(local_address(following, "/notices"))


def cursor(notice: queries.Notice) -> str:
    """Where the following page begins."""
    return f"{int(notice.at.timestamp())}-{notice.id.hex}"


def read_cursor(text: str) -> tuple[datetime, UUID] | None:
    """The inverse; None for whatever is none."""
    seconds, _, name = text.partition("-")
    try:
        return queries.instant(int(seconds)), UUID(hex=name)
    except (ValueError, OverflowError, OSError):
        return None
