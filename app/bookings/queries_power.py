"""What is drawn of power budgets by everything that is held, whoever holds it. Reads platform tables only; writes nothing."""

from __future__ import annotations

from uuid import UUID

import numpy as np

from app.bookings.power import Budget, Draws, PoolPower
from app.inventory.facts import PoolCapacity
from app.plumbing.db import Work

# The cleaning gap at the end of a hold draws nothing. Positions are 64 a GPU: a slice draws its part of the memory.
_DRAWN = """
SELECT h.node_id, extract(epoch FROM lower(h.during))::bigint,
       extract(epoch FROM greatest(upper(h.during) - make_interval(secs => p.gap_seconds), lower(h.during)))::bigint,
       (SELECT sum(upper(r) - lower(r))::int FROM unnest(h.units) r)
  FROM holds h JOIN nodes n ON n.id = h.node_id JOIN pools p ON p.id = n.pool_id
 WHERE h.live AND h.node_id = ANY(%(nodes)s) AND upper(h.during) > berth_now()
   AND (%(leaving)s::uuid IS NULL OR h.booking_id IS DISTINCT FROM %(leaving)s)"""


def power_of(work: Work, capacity: PoolCapacity, leaving: UUID | None = None) -> PoolPower | None:
    """A pool's nodes under their budgets with what is drawn of these now and later, also in other pools; None where no
    budget is set, which costs nothing. `leaving`: a booking that gives up its place draws nothing."""
    if not capacity.budgets:
        return None
    fed = capacity.fed
    held = work.pg.execute(_DRAWN, {"nodes": list(fed), "leaving": leaving})
    rows = [
        (budget, start, end, -(-positions * fed[node].watts // 64))
        for node, start, end, positions in held
        for budget in fed[node].budgets
        if budget is not None and start < end
    ]
    of = [fed.get(n.node_id) for n in capacity.nodes]
    layers = tuple(
        np.fromiter((-1 if f is None or f.budgets[i] is None else f.budgets[i] for f in of), np.int64, len(of))
        for i in range(3)
    )
    sizes = {upper - lower for n in capacity.nodes for lower, upper in n.units}
    size = max(sizes, default=64)
    watts = np.fromiter((1 if f is None else max(1, -(-size * f.watts // 64)) for f in of), np.int64, len(of))
    names = [Budget(f"{b.level} {b.name}" if b.level != "cluster" else b.name, b.watts) for b in capacity.budgets]
    return PoolPower(names, layers, watts, Draws.of_rows(rows))
