"""Which policy counts for whom: the pool's, with the tenant's words laid over it and the project's over those.

Everyone who judges a booking by its pool's policy gets the pool from here, so that page, API and worker keep to the same.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from app.bookings import queries_policies as queries
from app.bookings import rules_load
from app.bookings.facts import Booking
from app.bookings.queries_policies import OVERRIDES, laid_over
from app.inventory import queries as inventory
from app.inventory.facts import Pool
from app.kernel.errors import Reason
from app.kernel.window import Window
from app.plumbing.db import Work

__all__ = ["OVERRIDES", "effective", "laid_over", "lock_pool", "over_load", "pool_of", "pools_of_project"]


def effective(work: Work, pool: Pool, project_id: UUID | None) -> Pool:
    """A pool with the policy that counts for a project of the tenant (None: for the tenant)."""
    return laid_over([pool], work.pg.execute(OVERRIDES, [None, project_id]).fetchall())[0]


def pools_of_project(work: Work, project_id: UUID) -> tuple[Pool, ...]:
    """Every pool in order of their ids, each with the policy that counts for a project of the tenant."""
    words = work.pg.execute(OVERRIDES, [None, project_id]).fetchall()
    return laid_over(inventory.pools_for(work), words)


def pool_of(work: Work, booking: Booking) -> Pool:
    """The pool of a booking as it is now, with the policy that counts for the booking."""
    return _pool(work, booking, f"{inventory.POOL} WHERE p.id = ANY(%s)")


def lock_pool(work: Work, booking: Booking) -> Pool:
    """The same, locked, after the power budgets of its cluster."""
    work.pg.execute(inventory.LOCK_POWER, [[booking.pool_id]])
    return _pool(work, booking, inventory.LOCK_POOLS)


def _pool(work: Work, booking: Booking, sql: str) -> Pool:
    pools, words = work.together((sql, [[booking.pool_id]]), (OVERRIDES, [None, booking.project_id]))
    return laid_over(inventory.pools_of(pools), words)[0]


def over_load(
    work: Work,
    pool: Pool,
    project_id: UUID,
    account_id: UUID | None,
    rate: int,
    window: Window,
    now: datetime,
    leaving: UUID | None = None,
) -> list[Reason]:
    """What the pool's own limits say to `rate` (units x 840 x share) more over a window, without the booking `leaving`.

    Right only under the pool's lock; reads nothing where the policy has no such limit.
    """
    policy = pool.policy
    if not rules_load.is_limited(policy):
        return []
    load = queries.load_of(work, pool.id, project_id, account_id, window, now + policy.ahead_free, leaving)
    return rules_load.check_load(policy, load, rate, window, now, account_id is not None)
