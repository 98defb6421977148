"""Every SQL statement of the room: notices as their person reads them, and the queue of mail.

Notices are rows of a tenant; `mail` is a platform table of opaque ids, on the wall clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from app.kernel.actor import Actor
from app.kernel.ids import new_id
from app.plumbing.db import Work


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice of one person."""

    id: UUID
    tenant_id: UUID
    kind: str
    payload: dict[str, Any]
    at: datetime
    read_at: datetime | None


def _across(work: Work, actor: Actor) -> Any:
    """People of the platform are told things in many tenants: their own notices are read across them."""
    return work.read_all() if actor.platform_roles else nullcontext()


def notices(
    work: Work, actor: Actor, *, limit: int, before: tuple[datetime, UUID] | None = None, unread: bool = False
) -> list[Notice]:
    """A person's notices, newest first; `before`: only those older than this one (its instant and id)."""
    if actor.account_id is None:
        return []
    where = "AND read_at IS NULL" if unread else ""
    values: dict[str, Any] = {"account": actor.account_id, "limit": limit}
    if before is not None:
        where += " AND (at, id) < (%(at)s, %(id)s)"
        values |= {"at": before[0], "id": before[1]}
    with _across(work, actor):
        rows = work.pg.execute(
            f"""SELECT id, tenant_id, kind, payload, at, read_at FROM outbox WHERE account_id = %(account)s {where}
                 ORDER BY at DESC, id DESC LIMIT %(limit)s""",
            values,
        ).fetchall()
    return [Notice(*row) for row in rows]


def instant(seconds: int) -> datetime:
    """An instant from whole seconds since 1970."""
    return datetime.fromtimestamp(seconds, UTC)


def mark_read(work: Work, actor: Actor, now: datetime, ids: Sequence[UUID] | None = None) -> int:
    """Mark a person's notices as read: those with these ids, or all; answers how many were not read before."""
    if actor.account_id is None:
        return 0
    values = {"account": actor.account_id, "ids": None if ids is None else list(ids), "now": now}
    where = "account_id = %(account)s AND read_at IS NULL AND (%(ids)s::uuid[] IS NULL OR id = ANY(%(ids)s))"
    with _across(work, actor):
        tenants = [r[0] for r in work.pg.execute(f"SELECT DISTINCT tenant_id FROM outbox WHERE {where}", values)]
    whose, marked = work.tenant_id, 0
    for tenant_id in tenants:
        if tenant_id != work.tenant_id:
            work.act_for(tenant_id)
        marked += work.pg.execute(f"UPDATE outbox SET read_at = %(now)s WHERE {where}", values).rowcount
    if work.tenant_id != whose:
        work.act_for(whose)
    return marked


def mark_until(work: Work, instant: datetime) -> None:
    """Mark what the tenant's people were told before an instant as read."""
    work.pg.execute("UPDATE outbox SET read_at = at WHERE at < %s AND read_at IS NULL", [instant])


# --- mail -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claimed:
    """A notice that is to be sent, taken: whoever has the token may say what became of it."""

    notice_id: UUID
    tenant_id: UUID
    tries: int
    token: UUID


@dataclass(frozen=True, slots=True)
class Letter:
    """What a mail is made of: the notice, and whose it is. `to` is empty where no mail can be sent."""

    notice_id: UUID
    kind: str
    payload: dict[str, Any]
    at: datetime
    sent_at: datetime | None
    to: str
    person: str
    zone: str


MAIL_DUE = """
SELECT EXISTS (SELECT FROM mail WHERE next_at <= %(wall)s AND (leased_until IS NULL OR leased_until <= %(wall)s))"""
"""Whether any mail waits to be sent."""


def claim(work: Work, most: int, lease: timedelta) -> list[Claimed]:
    """Take mail that is due, the longest waiting first; others take other rows meanwhile."""
    token = new_id()
    rows = work.pg.execute(
        """UPDATE mail SET lease_token = %(token)s, leased_until = %(until)s WHERE notice_id IN (
             SELECT notice_id FROM mail WHERE next_at <= %(wall)s AND (leased_until IS NULL OR leased_until <= %(wall)s)
              ORDER BY next_at, notice_id LIMIT %(most)s FOR NO KEY UPDATE SKIP LOCKED)
           RETURNING notice_id, tenant_id, tries""",
        {"token": token, "until": work.wall + lease, "wall": work.wall, "most": most},
    )
    return [Claimed(*row, token) for row in sorted(rows.fetchall())]


def letter_of(work: Work, notice_id: UUID) -> Letter | None:
    """The notice of the tenant acted for, with its person; None when it is gone."""
    row = work.pg.execute(
        """SELECT o.id, o.kind, o.payload, o.at, o.sent_at, CASE WHEN a.disabled THEN '' ELSE a.email END, a.name,
                  coalesce(a.zone, 'UTC') FROM outbox o JOIN accounts a ON a.id = o.account_id WHERE o.id = %s""",
        [notice_id],
    ).fetchone()
    return Letter(*row) if row else None


def sent(work: Work, claimed: Claimed) -> None:
    """The mail was taken by the server. The tenant is the notice's."""
    work.pg.execute("UPDATE outbox SET sent_at = %s WHERE id = %s", [work.wall, claimed.notice_id])
    forget(work, claimed)


def forget(work: Work, claimed: Claimed) -> None:
    """There is nothing to send, or nobody to send it to: the notice stands in the page."""
    work.pg.execute("DELETE FROM mail WHERE notice_id = %s AND lease_token = %s", [claimed.notice_id, claimed.token])


def put_off(work: Work, claimed: Iterable[Claimed], until: datetime, error: str, tried: int = 1) -> None:
    """Give mail back, to be tried again then."""
    mine = list(claimed)
    work.pg.execute(
        """UPDATE mail SET next_at = %s, tries = tries + %s, last_error = %s, lease_token = NULL, leased_until = NULL
            WHERE notice_id = ANY(%s) AND lease_token = ANY(%s)""",
        [until, tried, error[:500], [c.notice_id for c in mine], [c.token for c in mine]],
    )


def put_all_off(work: Work, until: datetime) -> None:
    """The server does not answer: nothing else is tried before then either."""
    work.pg.execute("UPDATE mail SET next_at = %s WHERE next_at <= %s AND lease_token IS NULL", [until, work.wall])


def forget_mail(work: Work, before: datetime) -> int:
    """Drop what waits since before an instant of the wall clock: for an installation that sends no mail."""
    return work.pg.execute("DELETE FROM mail WHERE next_at < %s AND lease_token IS NULL", [before]).rowcount
