"""Words of tenants and projects that lie over a pool's policy, and what people and projects have booked in a pool, in SQL.

The tenant is the transaction's: row-level security shows no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from app.bookings.preview import Live
from app.bookings.rules_load import Load
from app.inventory.facts import Pool
from app.kernel.ids import new_id
from app.kernel.window import Window
from app.plumbing.db import Work

OVERRIDES_OF = """SELECT o.pool_id, o.words FROM policy_overrides o
 WHERE o.tenant_id = berth_tenant() AND (o.project_id IS NULL OR o.project_id ="""
IN_ORDER = "ORDER BY o.project_id NULLS FIRST"
OVERRIDES = f"""{OVERRIDES_OF} (
   SELECT p.id FROM projects p WHERE p.tenant_id = berth_tenant() AND (p.slug = %s OR p.id = %s))) {IN_ORDER}"""
"""The tenant's words and then a project's, for every pool. Values: the project's slug and id, either may be None."""


def laid_over(pools: Iterable[Pool], rows: Sequence[tuple[int, dict[str, Any]]]) -> tuple[Pool, ...]:
    """Pools with the policy that counts for a project, from the rows of OVERRIDES."""
    if not rows:
        return tuple(pools)
    laid = []
    for pool in pools:
        policy = pool.policy
        for pool_id, words in rows:
            if pool_id == pool.id:
                policy = policy.under(words)
        laid.append(pool if policy is pool.policy else replace(pool, policy=policy))
    return tuple(laid)


# One row: the largest rate of the person's and of the project's bookings at any instant of the window, and what of the
# person's and the tenant's lies after the hours that are free for all. Right only under the pool's lock: whoever adds to
# any of it takes that lock first; who gives back does not, and only makes it less.
_LOAD = """
WITH b AS (
  SELECT account_id = %(account)s AS own, project_id = %(project)s AS ours, units * share840 AS rate, starts_at, ends_at
    FROM bookings
   WHERE tenant_id = %(tenant)s AND pool_id = %(pool)s AND ends_at > %(since)s
     AND state IN ('REQUESTED', 'BOOKED', 'STARTING', 'ACTIVE') AND id IS DISTINCT FROM %(leaving)s),
e AS (
  SELECT own, ours, e.at, e.rate
    FROM b CROSS JOIN LATERAL (VALUES (greatest(starts_at, %(start)s), rate), (ends_at, -rate)) e (at, rate)
   WHERE starts_at < %(end)s AND ends_at > %(start)s)
SELECT (SELECT max(level) FROM (SELECT sum(rate) OVER (ORDER BY at) AS level FROM e WHERE own) l),
       (SELECT max(level) FROM (SELECT sum(rate) OVER (ORDER BY at) AS level FROM e WHERE ours) l),
       (SELECT sum(rate * extract(epoch FROM ends_at - greatest(starts_at, %(free)s))::bigint)
          FROM b WHERE own AND ends_at > %(free)s),
       (SELECT sum(rate * extract(epoch FROM ends_at - greatest(starts_at, %(free)s))::bigint)
          FROM b WHERE ends_at > %(free)s)"""


def load_of(
    work: Work,
    pool_id: int,
    project_id: UUID,
    account_id: UUID | None,
    window: Window,
    free: datetime,
    leaving: UUID | None = None,
) -> Load:
    """What is booked already in a pool, without the booking `leaving`. `free`: until when hours are not counted as ahead."""
    values = {
        "tenant": work.tenant_id,
        "pool": pool_id,
        "project": project_id,
        "account": account_id,
        "since": min(window.start, free),
        "start": window.start,
        "end": window.end,
        "free": free,
        "leaving": leaving,
    }
    return Load(*(int(n or 0) for n in work.pg.execute(_LOAD, values).fetchone()))


# --- the words themselves ---------------------------------------------------------------------------------------------


def find_override(work: Work, pool_id: int, project_id: UUID | None) -> dict[str, Any] | None:
    """The words said for exactly this tenant or project about a pool."""
    row = work.pg.execute(
        """SELECT words FROM policy_overrides WHERE tenant_id = berth_tenant() AND pool_id = %s
              AND project_id IS NOT DISTINCT FROM %s""",
        [pool_id, project_id],
    ).fetchone()
    return None if row is None else row[0]


def store_override(work: Work, pool_id: int, project_id: UUID | None, words: dict[str, Any]) -> None:
    """Say these words instead of what was said; no words: nothing is said any more. The pool is locked."""
    if not words:
        work.pg.execute(
            """DELETE FROM policy_overrides WHERE tenant_id = berth_tenant() AND pool_id = %s
                  AND project_id IS NOT DISTINCT FROM %s""",
            [pool_id, project_id],
        )
        return
    work.pg.execute(
        """INSERT INTO policy_overrides (tenant_id, id, project_id, pool_id, words) VALUES (%s, %s, %s, %s, %s)
           ON CONFLICT ON CONSTRAINT one_override DO UPDATE SET words = excluded.words""",
        [work.tenant_id, new_id(), project_id, pool_id, Jsonb(words)],
    )


# --- what a change would touch ----------------------------------------------------------------------------------------

MOST_LOOKED_AT = 3000
"""Bookings that a preview judges one by one."""

_LIVE = """
SELECT b.id, b.number, b.tenant_id, t.slug, t.name, b.project_id, p.slug, p.name, b.account_id, b.booked_by, b.name, b.state,
       b.units * b.share840, b.starts_at, b.ends_at, b.booked_at, b.quoted, b.currency
  FROM bookings b JOIN projects p ON p.tenant_id = b.tenant_id AND p.id = b.project_id
  JOIN tenants t ON t.tenant_id = b.tenant_id
 WHERE b.pool_id = %(pool)s AND b.ends_at > %(now)s AND b.state IN ('REQUESTED', 'BOOKED', 'STARTING', 'ACTIVE')
   AND (%(tenant)s::uuid IS NULL OR b.tenant_id = %(tenant)s) AND (%(project)s::uuid IS NULL OR b.project_id = %(project)s)
 ORDER BY b.number LIMIT %(most)s"""


def live_in_pool(
    work: Work, pool_id: int, now: datetime, tenant_id: UUID | None, project_id: UUID | None
) -> tuple[tuple[Live, ...], bool]:
    """Bookings in a pool that have not ended, oldest first, and whether there are more. Inside `read_all`: everyone's."""
    values = {"pool": pool_id, "now": now, "tenant": tenant_id, "project": project_id, "most": MOST_LOOKED_AT + 1}
    rows = [Live(*row) for row in work.pg.execute(_LIVE, values)]
    return tuple(rows[:MOST_LOOKED_AT]), len(rows) > MOST_LOOKED_AT


def words_in_pool(work: Work, pool_id: int) -> dict[tuple[UUID, UUID | None], dict[str, Any]]:
    """What is said for every tenant and project about a pool. Inside `read_all`: everyone's."""
    rows = work.pg.execute("SELECT tenant_id, project_id, words FROM policy_overrides WHERE pool_id = %s", [pool_id])
    return {(tenant, project): words for tenant, project, words in rows}


@dataclass(frozen=True, slots=True)
class Said:
    """What is said about a pool, for whom: names for pages."""

    pool_id: int
    tenant: str
    tenant_name: str
    project: str | None
    project_name: str | None
    words: dict[str, Any]


def said_everywhere(work: Work) -> tuple[Said, ...]:
    """Everything said for anybody, by pool, tenant and project. Inside `read_all`."""
    rows = work.pg.execute(
        """SELECT o.pool_id, t.slug, t.name, p.slug, p.name, o.words
             FROM policy_overrides o JOIN tenants t ON t.tenant_id = o.tenant_id
             LEFT JOIN projects p ON p.tenant_id = o.tenant_id AND p.id = o.project_id
            ORDER BY o.pool_id, t.name, p.name NULLS FIRST"""
    )
    return tuple(Said(*row) for row in rows)


def projects_of(work: Work, tenant: str) -> tuple[tuple[str, str], ...]:
    """(slug, name) of a tenant's projects that have not ended. Inside `read_all`."""
    rows = work.pg.execute(
        """SELECT p.slug, p.name FROM projects p JOIN tenants t ON t.tenant_id = p.tenant_id
            WHERE t.slug = %s AND (p.ended_at IS NULL OR p.ended_at > berth_now()) ORDER BY p.name""",
        [tenant],
    )
    return tuple((slug, name) for slug, name in rows)
