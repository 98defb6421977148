"""The JSON route by which an operator takes the units of somebody's booking away."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from app.bookings import displacing, rules
from app.bookings.api import IdempotencyKey, IfMatch, key_of, version_of
from app.bookings.displacing import Displacement
from app.web.deps import InTransaction, Operator, Parts

router = APIRouter(prefix="/api/v1", tags=["bookings"])


class DisplaceIn(BaseModel):
    """Why: its people read it."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"why": "The flood forecast needs the node."}}
    )

    why: str = Field(default="", max_length=500)


@router.post("/bookings/{booking_id}/displace")
def displace(
    booking_id: str, body: DisplaceIn, request: Request, response: Response, work: InTransaction, actor: Operator,
    parts: Parts, key: IdempotencyKey = None, if_match: IfMatch = None, dry_run: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Take a booking's units away from now on, for a reason. Its people are told, and nothing more is charged."""
    if dry_run:
        return _in_json(displacing.quote_displace(work, actor, booking_id))
    made = key_of(key, request, body.model_dump(mode="json"))
    done = displacing.displace(work, parts.queue, actor, booking_id, body.why, made, version_of(if_match))
    response.headers["ETag"] = f'"{done.booking.version}"'
    return _in_json(done)


def _in_json(done: Displacement) -> dict[str, Any]:
    booking = done.booking
    return {
        "id": booking.public_id,
        "number": booking.label,
        "tenant": done.tenant,
        "project": booking.project,
        "state": booking.state,
        "start": rules.iso(booking.starts_at),
        "end": rules.iso(booking.ends_at),
        "at": rules.iso(done.at),
        "not_charged": {"currency": booking.currency, "amount": str(done.back)},
        "version": booking.version,
    }
