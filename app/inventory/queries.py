"""Every reading statement of the inventory, and the locks on pools. Knows no booking: holds are the bookings' own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Engine

from app.inventory.facts import FOREVER, Cluster, Kind, NodeCapacity, NodeName, Pool, PoolCapacity, Range, Taken
from app.inventory.policy import Policy
from app.kernel.errors import NotFound
from app.plumbing.db import Work

# --- kinds, clusters, the installation --------------------------------------------------------------------------------


def kinds(work: Work) -> dict[str, Kind]:
    """All kinds by slug, in order of their slugs."""
    rows = work.pg.execute(
        "SELECT slug, name, vendor, memory_gb, tdp_watts, node_kw, units_per_node, facts FROM kinds ORDER BY slug"
    )
    return {row[0]: Kind(*row) for row in rows}


_CLUSTER = """SELECT id, name, backend, config, writes, billed, probe, probed_at, synced_at, failures, retry_at,
                     last_error FROM clusters"""


def clusters(work: Work) -> tuple[Cluster, ...]:
    """All clusters by name."""
    return tuple(Cluster(*row) for row in work.pg.execute(f"{_CLUSTER} ORDER BY name"))


def cluster_named(work: Work, name: str) -> Cluster:
    """The cluster of that name; `NotFound` when there is none."""
    row = work.pg.execute(f"{_CLUSTER} WHERE name = %s", [name]).fetchone()
    if row is None:
        raise NotFound("cluster_not_found", f"There is no cluster called {name[:80]}.")
    return Cluster(*row)


def cluster_with_id(work: Work, cluster_id: int) -> Cluster:
    """The cluster with that number; `NotFound` when there is none."""
    row = work.pg.execute(f"{_CLUSTER} WHERE id = %s", [cluster_id]).fetchone()
    if row is None:
        raise NotFound("cluster_not_found", f"There is no cluster with number {cluster_id}.")
    return Cluster(*row)


def sealed_secret(work: Work, cluster_id: int) -> bytes | None:
    """The cluster's secrets as they are kept: sealed."""
    row = work.pg.execute("SELECT secret FROM clusters WHERE id = %s", [cluster_id]).fetchone()
    return None if row is None or row[0] is None else bytes(row[0])


def installation(work: Work) -> str:
    """This installation's id, which stands in the name of every object on a cluster."""
    row = work.pg.execute("SELECT id FROM installation").fetchone()
    if row is None:
        raise NotFound("no_installation", "This installation has no id yet: `berth migrate` gives it one.")
    return row[0]


# --- pools ------------------------------------------------------------------------------------------------------------

_POOL = """SELECT p.id, p.cluster_id, c.name, p.name, p.kind, p.policy, p.gap_seconds, p.version, p.capacity_version,
                  c.writes, c.billed
             FROM pools p JOIN clusters c ON c.id = p.cluster_id"""


def pools_for(work: Work, kind: str | None = None, cluster: str | None = None) -> tuple[Pool, ...]:
    """Pools of a kind (None or "any": of every kind) on a cluster (None: on every one), in order of their ids."""
    rows = work.pg.execute(
        f"""{_POOL} WHERE (%(kind)s::text IS NULL OR p.kind = %(kind)s)
              AND (%(cluster)s::text IS NULL OR c.name = %(cluster)s)
            ORDER BY p.id""",
        {"kind": None if kind == "any" else kind, "cluster": cluster},
    )
    return tuple(map(_pool, rows))


def pools_with_ids(work: Work, ids: Iterable[int]) -> dict[int, Pool]:
    """Pools by id, as they are now."""
    return {pool.id: pool for pool in map(_pool, work.pg.execute(f"{_POOL} WHERE p.id = ANY(%s)", [list(ids)]))}


def lock_pools(work: Work, ids: Iterable[int]) -> dict[int, Pool]:
    """Lock pools in the order of their ids and read them as they are then. Readers and foreign keys are not held up."""
    rows = work.pg.execute(f"{_POOL} WHERE p.id = ANY(%s) ORDER BY p.id FOR NO KEY UPDATE OF p", [sorted(set(ids))])
    return {pool.id: pool for pool in map(_pool, rows)}


def raise_version(work: Work, ids: Iterable[int]) -> None:
    """Tell caches that the holds of these pools have changed. The pools are locked."""
    work.pg.execute("UPDATE pools SET version = version + 1 WHERE id = ANY(%s)", [list(ids)])


def _pool(row: Sequence[Any]) -> Pool:
    number, cluster_id, cluster, name, kind, policy, gap, version, capacity, writes, billed = row
    return Pool(number, cluster_id, cluster, name, kind, Policy.of(policy, gap), version, capacity, writes, billed)


# --- what a pool can give ---------------------------------------------------------------------------------------------

# Only the newest of each pool is kept; a capacity version never means two things (it is from a sequence).
_known: WeakKeyDictionary[Engine, dict[int, tuple[int, PoolCapacity]]] = WeakKeyDictionary()


def capacity_of(work: Work, pools: Iterable[Pool]) -> dict[int, PoolCapacity]:
    """What each pool can give, without holds. No statement is made for pools whose capacity version is known already.

    Whether a node counts is what was written about it when it was last looked at; the clock alone changes nothing here.
    """
    wanted = list(pools)
    known = _known.setdefault(work.connection.engine, {})
    found = {p.id: known[p.id][1] for p in wanted if p.id in known and known[p.id][0] == p.capacity_version}
    missing = [p for p in wanted if p.id not in found]
    if missing:
        for pool, capacity in zip(missing, _load(work, missing), strict=True):
            known[pool.id] = (pool.capacity_version, capacity)
            found[pool.id] = capacity
    return found


def _load(work: Work, pools: Sequence[Pool]) -> list[PoolCapacity]:
    ids, now = [p.id for p in pools], work.product_now()
    units: dict[int, list[Range]] = {}
    taken: dict[int, list[Taken]] = {i: [] for i in ids}
    faulty = {row[0] for row in work.pg.execute(_FAULTS, [ids])}
    for pool_id, node_id, lower, upper, begins, ends in work.pg.execute(_SLOTS, {"ids": ids, "now": now}):
        units.setdefault(node_id, []).append((lower, upper))
        if begins is not None:
            taken[pool_id].append((lower, upper, 0, begins))
        if ends is not None:
            taken[pool_id].append((lower, upper, ends, FOREVER))
    for pool_id, lower, upper, begins, ends in work.pg.execute(_EXTERNAL, [ids]):
        taken[pool_id].append((lower, upper, begins, FOREVER if ends is None else ends))
    nodes: dict[int, list[NodeCapacity]] = {i: [] for i in ids}
    for pool_id, node_id, name, first, rack, leaf, nvlink, state in work.pg.execute(_NODES, [ids]):
        ranges = tuple(units.get(node_id, ()))
        offered = sum(1 << i for i, r in enumerate(ranges) if r[0] // 64 not in faulty) if state == "ready" else 0
        nodes[pool_id].append(NodeCapacity(node_id, name, first, ranges, offered, rack, leaf, nvlink, state))
    return [PoolCapacity(p.id, p.cluster_id, p.kind, tuple(nodes[p.id]), tuple(taken[p.id])) for p in pools]


_NODES = """SELECT pool_id, id, name, first_gpu, rack, leaf, nvlink, state FROM nodes
             WHERE pool_id = ANY(%s) AND removed_at IS NULL ORDER BY pool_id, id"""
_FAULTS = """SELECT f.gpu FROM unit_faults f JOIN nodes n ON n.id = f.node_id
              WHERE f.until IS NULL AND n.pool_id = ANY(%s)"""
# Slots that have ended are left out; what has not begun, or will end, is taken at the other times.
_SLOTS = """SELECT n.pool_id, n.id, lower(s.positions), upper(s.positions),
                   CASE WHEN lower(s.valid) > %(now)s THEN extract(epoch FROM lower(s.valid))::bigint END,
                   CASE WHEN NOT upper_inf(s.valid) THEN extract(epoch FROM upper(s.valid))::bigint END
              FROM nodes n JOIN slots s ON s.node_id = n.id
             WHERE n.pool_id = ANY(%(ids)s) AND n.removed_at IS NULL
               AND (upper_inf(s.valid) OR upper(s.valid) > %(now)s)
             ORDER BY s.positions"""
# Past its own limit and still seen: nobody knows when it ends.
_EXTERNAL = """SELECT n.pool_id, lower(r), upper(r), extract(epoch FROM e.since)::bigint,
                      CASE WHEN e.until > e.seen_at THEN extract(epoch FROM e.until)::bigint END
                 FROM external_use e JOIN nodes n ON n.id = e.node_id, unnest(e.units) r
                WHERE e.ended_at IS NULL AND n.pool_id = ANY(%s) AND n.removed_at IS NULL ORDER BY e.id, r"""


# --- nodes ------------------------------------------------------------------------------------------------------------


def node_names(work: Work, ids: Iterable[int]) -> dict[int, NodeName]:
    """How nodes are called, also those that were removed."""
    rows = work.pg.execute(
        """SELECT n.id, n.name, c.name, n.cluster_id, n.pool_id, n.first_gpu, n.gpus, n.rack
             FROM nodes n JOIN clusters c ON c.id = n.cluster_id WHERE n.id = ANY(%s)""",
        [list(set(ids))],
    )
    return {row[0]: NodeName(*row) for row in rows}


def due_clusters(work: Work) -> list[int]:
    """Clusters whose next look is due by the product clock and that no worker is looking at, the longest due first."""
    now = work.product_now()
    rows = work.pg.execute(
        """SELECT id FROM clusters WHERE (retry_at IS NULL OR retry_at <= %s)
              AND (leased_until IS NULL OR leased_until <= %s) ORDER BY retry_at NULLS FIRST, id""",
        [now, work.wall],
    )
    return [row[0] for row in rows]


def next_look(work: Work) -> Any:
    """When a cluster is due next, on the product clock; None when there is no cluster, or all are due now."""
    return work.pg.execute("SELECT min(retry_at) FROM clusters").fetchone()[0]
