"""Notices to people, written in the transaction of what they tell of; sending them as mail is the notices room's work.

Every room may write one. What a kind says is worded in `app/notices/wording.py`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from app.kernel.ids import new_id
from app.plumbing.db import Work

MAILED = frozenset(
    {
        "booking_active",
        "booking_ending",
        "booking_idle",
        "booking_unused",
        "booking_no_show",
        "booking_released_idle",
        "booking_not_provided",
        "booking_at_risk",
        "booking_replaced",
        "booking_degraded",
        "booking_displaced",
        "booking_moved",
        "booking_replanned",
        "booking_shortened",
        "booking_cancelled",
        "booking_released",
        "booking_handed_to_you",
        "booking_runs_on",
        "approval_asked",
        "request_lapsed",
        "units_at_risk",
        "offer_made",
        "wait_booked",
        "request_granted",
        "request_rejected",
    }
)
"""Kinds that also become a mail: what is offered, starts, ends or changes without its person's doing."""


def tell(
    work: Work,
    kind: str,
    at: datetime,
    account_id: UUID | None,
    booking_id: UUID | None,
    *,
    key: str | None = None,
    **payload: Any,
) -> None:
    """Leave a notice of this kind for a person of the transaction's tenant. Vanishes with a rollback.

    `key` names what is told: the same person is told the same thing once, whoever tells it again. A kind of `MAILED`
    also becomes a mail, where mail is sent at all.
    """
    values = {
        "tenant": work.tenant_id,
        "id": new_id(),
        "at": at,
        "account": account_id,
        "kind": kind,
        "booking": booking_id,
        "payload": Jsonb(payload),
        "key": key,
        "wall": work.wall,
    }
    work.pg.execute(_MAILED if kind in MAILED and account_id is not None else _TOLD, values)


_TOLD = """
INSERT INTO outbox (tenant_id, id, at, account_id, kind, booking_id, payload, key)
VALUES (%(tenant)s, %(id)s, %(at)s, %(account)s, %(kind)s, %(booking)s, %(payload)s, %(key)s)
ON CONFLICT (tenant_id, account_id, key) WHERE key IS NOT NULL DO NOTHING"""
_MAILED = f"""
WITH told AS ({_TOLD} RETURNING id)
INSERT INTO mail (notice_id, tenant_id, next_at, tries) SELECT id, %(tenant)s, %(wall)s, 0 FROM told"""


def unread(work: Work, account_id: UUID, everywhere: bool) -> int:
    """How many notices of a person are not read yet, 100 at most; `everywhere`: in every tenant, as the platform's people
    are told things."""
    sql = "SELECT count(*) FROM (SELECT FROM outbox WHERE account_id = %s AND read_at IS NULL LIMIT 100) n"
    if not everywhere:
        return work.pg.execute(sql, [account_id]).fetchone()[0]
    with work.read_all():
        return work.pg.execute(sql, [account_id]).fetchone()[0]
