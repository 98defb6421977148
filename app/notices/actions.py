"""What people do with their notices."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from app.kernel.actor import Actor
from app.notices import queries
from app.plumbing.db import Work


def read(work: Work, actor: Actor, ids: Sequence[UUID] | None = None) -> int:
    """Mark one's own notices as read, these or all; answers how many were new. Ids of others' change nothing."""
    return queries.mark_read(work, actor, work.product_now(), ids)


def read_until(work: Work, instant: datetime) -> None:
    """Mark everything older as read, whoever of the tenant it was for: of a history that nobody was there to read."""
    queries.mark_until(work, instant)
