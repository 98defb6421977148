"""The record of who did what, when, why, from what to what. Append-only: the database role cannot change a row.

Every room writes it by `record` in the transaction of the deed itself.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from app.kernel.actor import Actor
from app.plumbing.db import Work

# berth_now() stands in VALUES: a volatile function sees the clock as it is at that statement
_TENANT = """INSERT INTO audit (tenant_id, at, product_at, account_id, actor, action, subject, before, after, why)
             VALUES (%s, %s, berth_now(), %s, %s, %s, %s, %s, %s, %s)"""
_PLATFORM = """INSERT INTO platform_audit
                    (tenant_id, at, product_at, account_id, actor, action, subject, before, after, why)
               VALUES (%s, %s, berth_now(), %s, %s, %s, %s, %s, %s, %s)"""


def record(
    work: Work,
    actor: Actor,
    action: str,
    subject: str,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    why: str | None = None,
    *,
    platform: bool = False,
    tenant_id: UUID | None = None,
) -> None:
    """Write one row: into the audit of the tenant acted for; of the platform if there is none or `platform` says so.

    `action` is verb and noun ("publish prices"), `subject` names the thing ("project plasma"). `tenant_id` tells the
    platform's audit whose things were read or changed.
    """
    of_tenant = work.tenant_id is not None and not platform
    work.flush()
    work.pg.execute(
        _TENANT if of_tenant else _PLATFORM,
        [
            work.tenant_id if of_tenant else tenant_id or work.tenant_id,
            work.wall,
            actor.account_id,
            actor.label,
            action,
            subject,
            _json(before),
            _json(after),
            why,
        ],
    )


def _json(value: dict[str, Any] | None) -> Jsonb | None:
    return None if value is None else Jsonb({name: _plain(one) for name, one in value.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, UUID | Decimal):
        return str(value)
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one) for one in value]
    return value
