"""What tests of verbs look at: every row that a verb may touch, so that a failed one can be seen to have touched none."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from app.billing import actions as billing
from app.bookings.facts import Booking
from app.kernel.errors import Refused
from app.usage import actions as usage
from tests.world import World

TABLES = (
    "allocations",
    "bookings",
    "booking_prices",
    "charges",
    "commitments",
    "conditions",
    "due",
    "external_use",
    "history",
    "holds",
    "hold_moves",
    "idempotency",
    "intervals",
    "metering",
    "outages",
    "outbox",
    "pools",
    "refusals",
    "requests",
    "waiting",
)


def every_row(world: World, *, without: tuple[str, ...] = ("refusals",)) -> dict[str, list[str]]:
    """All rows as text, table by table."""
    with psycopg.connect(world.owner_url) as owner:
        return {
            table: [row[0] for row in owner.execute(f"SELECT t::text FROM {table} t ORDER BY 1")]
            for table in TABLES
            if table not in without
        }


def rows(world: World, sql: str, *values: Any) -> list[tuple]:
    """Rows across tenants, as the owner of the tables sees them."""
    with psycopg.connect(world.owner_url) as owner:
        return owner.execute(sql, values).fetchall()


def codes(refused: pytest.ExceptionInfo[Refused]) -> set[str]:
    return {r.code for r in refused.value.refusal.reasons}


def bill(world: World, booking: Booking) -> None:
    """Meter and charge what is over."""
    with world.plumbing.database.work(booking.tenant_id) as work:
        usage.meter(work, booking.id, work.product_now())
        billing.charge(work, booking.id)
