"""Notices to people, written in the transaction of what they tell of; sending is somebody else's work."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from app.kernel.ids import new_id
from app.plumbing.db import Work


def tell(work: Work, kind: str, at: datetime, account_id: UUID | None, booking_id: UUID | None, **payload: Any) -> None:
    """Leave a notice of this kind for a person of the transaction's tenant. Vanishes with a rollback."""
    work.pg.execute(
        "INSERT INTO outbox (tenant_id, id, at, account_id, kind, booking_id, payload) VALUES (%s, %s, %s, %s, %s, %s, %s)",
        [work.tenant_id, new_id(), at, account_id, kind, booking_id, Jsonb(payload)],
    )
