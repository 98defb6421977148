"""Power budgets: what domains of a cluster may draw, what a unit of each node draws, and the lock on them. Knows no booking.

A budget is kept by what was promised: a booked GPU draws its node's watts for all of its window, whatever it computes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from app.inventory.facts import FedNode, PowerBudget
from app.plumbing.db import Work

Level = Literal["rack", "leaf", "cluster"]
LEVELS: tuple[Level, ...] = ("rack", "leaf", "cluster")

LOCK_POWER = """SELECT FROM power_budgets WHERE cluster_id IN (SELECT cluster_id FROM pools WHERE id = ANY(%s))
                 ORDER BY id FOR NO KEY UPDATE"""
"""After the quota scopes, before the pools: whoever adds a hold on a cluster with budgets."""

# What one GPU draws: as somebody has said for the node, else its share of such a node, else the card alone.
WATTS = "coalesce(n.power_watts, ceil(k.node_kw * 1000 / k.units_per_node)::int, k.tdp_watts)"
_BUDGETS = """SELECT b.id, b.cluster_id, c.name, b.level, b.name, b.watts
                FROM power_budgets b JOIN clusters c ON c.id = b.cluster_id"""
_FED = f"""SELECT n.id, {WATTS}, n.rack, n.leaf FROM nodes n JOIN pools p ON p.id = n.pool_id JOIN kinds k ON k.slug = p.kind
            WHERE n.cluster_id = %s AND n.removed_at IS NULL ORDER BY n.id"""


def budgets(work: Work, cluster_ids: Iterable[int] | None = None) -> tuple[PowerBudget, ...]:
    """Those of some clusters (None: of all), by cluster and id."""
    rows = work.pg.execute(
        f"{_BUDGETS} WHERE %(ids)s::int[] IS NULL OR b.cluster_id = ANY(%(ids)s) ORDER BY c.name, b.id",
        {"ids": None if cluster_ids is None else list(cluster_ids)},
    )
    return tuple(PowerBudget(*row) for row in rows)


def fed_nodes(work: Work, cluster_id: int, budgets: tuple[PowerBudget, ...]) -> dict[int, FedNode]:
    """The nodes of a cluster that have a budget, by id."""
    index = {(b.level, b.name if b.level != "cluster" else ""): i for i, b in enumerate(budgets)}
    found = {}
    for node_id, watts, rack, leaf in work.pg.execute(_FED, [cluster_id]):
        of = (index.get(("rack", rack)), index.get(("leaf", leaf)), index.get(("cluster", "")))
        if any(i is not None for i in of):
            found[node_id] = FedNode(node_id, watts or 1, of)
    return found


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain that can have a budget: its nodes, what all of their GPUs draw, and nodes of which nobody knows that."""

    level: Level
    name: str
    nodes: int
    watts: int
    unknown: tuple[str, ...]


def domain(work: Work, cluster_id: int, level: Level, name: str) -> Domain | None:
    """One of them, None where the cluster has no such thing."""
    column = {"rack": "n.rack", "leaf": "n.leaf", "cluster": "NULL::text"}[level]
    rows = work.pg.execute(
        f"""SELECT n.name, n.gpus, {WATTS} FROM nodes n JOIN pools p ON p.id = n.pool_id JOIN kinds k ON k.slug = p.kind
             WHERE n.cluster_id = %s AND n.removed_at IS NULL AND (%s OR {column} = %s) ORDER BY n.name""",
        [cluster_id, level == "cluster", name],
    ).fetchall()
    if not rows:
        return None
    drawn = sum(gpus * (watts or 0) for _, gpus, watts in rows)
    return Domain(level, name, len(rows), drawn, tuple(node for node, _, watts in rows if watts is None))
