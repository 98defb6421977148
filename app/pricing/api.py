"""Price books over the API: read by everybody, published by the platform's finance."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from app.kernel.errors import Invalid, Reason
from app.pricing import actions, queries
from app.web.deps import AnyActor, InTransaction, PlatformFinance

router = APIRouter(prefix="/api/v1", tags=["prices"])


class NewPrices(BaseModel):
    """A version to publish: prices per unit-hour by slug of kind, as text; `effective_at` with its offset."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "price_group": "internal",
                "currency": "CHF",
                "effective_at": "2027-01-01T00:00:00+01:00",
                "prices": {"h100-sxm-80gb": "2.40"},
                "note": "new electricity contract",
            }
        },
    )

    price_group: str = Field(min_length=1, max_length=63)
    currency: str = Field(min_length=3, max_length=3)
    effective_at: datetime
    prices: dict[str, Decimal] = Field(max_length=1000)
    note: str = Field(default="", max_length=200)


@router.get("/prices")
def list_prices(
    work: InTransaction,
    _actor: AnyActor,
    group: Annotated[str, Query(max_length=63)],
    currency: Annotated[str, Query(max_length=3)],
) -> dict[str, Any]:
    """Every published version of a book, the one that counts latest first."""
    return {"items": [_in_json(v) for v in queries.versions(work, group, currency)], "next": None}


@router.post("/prices", status_code=201)
def publish_prices(body: NewPrices, work: InTransaction, actor: PlatformFinance) -> dict[str, Any]:
    """Publish a version. Bookings that are confirmed keep their prices."""
    if body.effective_at.tzinfo is None:
        said = "A time needs its offset, such as 2027-01-01T00:00:00+01:00."
        raise Invalid("offset_missing", said, (Reason("offset_missing", said, field="effective_at", in_request=True),))
    version = actions.publish_version(
        work, actor, body.price_group, body.currency, body.effective_at, body.prices, body.note
    )
    published = queries.versions(work, body.price_group, body.currency)
    return next(_in_json(v) for v in published if v.id == version)


def _in_json(version: queries.Version) -> dict[str, Any]:
    return {
        "version": version.id,
        "price_group": version.price_group,
        "currency": version.currency,
        "effective_at": version.effective_at.isoformat(),
        "published_at": version.published_at.isoformat(),
        "published_by": version.published_by,
        "note": version.note,
        "prices": {kind: str(price) for kind, price in version.prices.items()},
    }
