"""Limits that are passed, in words: how much is booked beyond them, and by which bookings. For pages and programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from app.plumbing.db import Work
from app.quotas.queries_over import overages
from app.quotas.rules import Scope


@dataclass(frozen=True, slots=True)
class Passed:
    """One limit that is passed: what of, how much is taken, the limit, by how much, and labels of the bookings kept."""

    what: str
    taken: str
    limit: str
    by: str
    kept: tuple[str, ...]
    at: datetime | None


def passed_limits(work: Work, scopes: Sequence[Scope], now: datetime) -> dict[int, tuple[Passed, ...]]:
    """What is passed of these limits of the tenant, by scope. Nothing that was booked is taken back for it."""
    (zone,) = work.pg.execute("SELECT zone FROM tenants WHERE tenant_id = %s", [work.tenant_id]).fetchone()
    over = overages(work, scopes, zone, now)
    ids = list({booking for one in over for booking, _ in one.held})
    rows = work.pg.execute("SELECT id, number FROM bookings WHERE id = ANY(%s) ORDER BY number DESC", [ids]).fetchall()
    labels = {booking: f"B-{number}" for booking, number in rows}
    found: dict[int, tuple[Passed, ...]] = {}
    for one in over:
        taken = one.taken
        said = Passed(
            taken.what,
            taken.plain(taken.after),
            taken.plain(taken.limit),
            one.by,
            tuple(labels[b] for b in one.beyond(list(labels))),
            one.at,
        )
        found[taken.scope.id] = (*found.get(taken.scope.id, ()), said)
    return found
