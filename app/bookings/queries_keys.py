"""Idempotency keys: taken before anything else, rolled back with a refusal, so that only successes stay."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from psycopg.rows import class_row

from app.plumbing.db import Work


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """What stands under an idempotency key."""

    verb: str
    body_hash: bytes
    booking_id: UUID


def take_key(work: Work, key: str, verb: str, body_hash: bytes, booking_id: UUID) -> KeptAnswer | None:
    """Take a key, or wait for whoever has it and return what stands there. The first lock of every verb."""
    taken = work.pg.execute(
        """INSERT INTO idempotency (tenant_id, key, verb, body_hash, booking_id, at)
           VALUES (%s, %s, %s, %s, %s, clock_timestamp()) ON CONFLICT (tenant_id, key) DO NOTHING""",
        [work.tenant_id, key, verb, body_hash, booking_id],
    )
    if taken.rowcount == 1:
        return None
    cursor = work.pg.cursor(row_factory=class_row(KeptAnswer))
    return cursor.execute("SELECT verb, body_hash, booking_id FROM idempotency WHERE key = %s", [key]).fetchone()


def kept_under(work: Work, key: str) -> UUID | None:
    """The booking that stands under an idempotency key."""
    row = work.pg.execute("SELECT booking_id FROM idempotency WHERE key = %s", [key]).fetchone()
    return row[0] if row else None


def forget_keys(work: Work, before: datetime, most: int = 5000) -> int:
    """Remove keys of the tenant that were taken before an instant of the wall clock, so many at a time."""
    return work.pg.execute(
        """DELETE FROM idempotency WHERE (tenant_id, key) IN (
             SELECT tenant_id, key FROM idempotency WHERE tenant_id = berth_tenant() AND at < %s LIMIT %s)""",
        [before, most],
    ).rowcount
