"""The JSON routes of notices."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from app.bookings.rules import iso
from app.notices import actions, queries
from app.notices.pages import cursor, read_cursor
from app.notices.wording import say
from app.web.deps import AnyActor, InTransaction

router = APIRouter(prefix="/api/v1", tags=["notices"])


class ReadIn(BaseModel):
    """Which notices were read; all of them when none are named."""

    model_config = ConfigDict(extra="forbid")
    ids: list[UUID] | None = Field(default=None, max_length=1000)


@router.get("/notices")
def notices(
    work: InTransaction,
    actor: AnyActor,
    unread: bool = False,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: Annotated[str, Query(alias="cursor", max_length=100)] = "",
) -> dict[str, Any]:
    """What the caller was told, newest first, in words and with what they were made of. `next` is the cursor of the
    following page."""
    found = queries.notices(work, actor, limit=limit + 1, before=read_cursor(before), unread=unread)
    now = work.product_now()
    rows = []
    for one in found[:limit]:
        said = say(one.kind, one.payload, actor.zone, now)
        read = None if one.read_at is None else iso(one.read_at)
        about = {key: value for key, value in one.payload.items() if isinstance(value, (str, int, bool))}
        rows.append(
            {
                "id": str(one.id),
                "kind": one.kind,
                "at": iso(one.at),
                "title": said.title,
                "text": said.text,
                "booking": f"B-{one.payload['number']}" if one.payload.get("number") else None,
                "about": about,
                "read_at": read,
            }
        )
    return {"items": rows, "next": cursor(found[limit - 1]) if len(found) > limit else None}


@router.post("/notices/read")
def read(body: ReadIn, work: InTransaction, actor: AnyActor) -> dict[str, int]:
    """Mark notices of the caller as read. Answers how many were new."""
    return {"read": actions.read(work, actor, body.ids)}
