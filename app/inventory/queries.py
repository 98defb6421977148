"""Every reading statement of the inventory, and the locks on pools. Knows no booking: holds are the bookings' own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Engine

from app.inventory import queries_power
from app.inventory.facts import (
    FOREVER,
    Cluster,
    FedNode,
    HostTaken,
    Kind,
    KindOffered,
    NodeCapacity,
    NodeName,
    NodeNow,
    Pool,
    PoolCapacity,
    PowerBudget,
    Range,
    Taken,
)
from app.inventory.policy import Policy
from app.inventory.queries_power import LOCK_POWER
from app.inventory.slices import Cut, Layout
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

POOL = """SELECT p.id, p.cluster_id, c.name, p.name, p.kind, p.policy, p.gap_seconds, p.version, p.capacity_version,
                  c.writes, c.billed, k.facts->>'slice_of', coalesce((k.facts->>'share840')::int, 840)
             FROM pools p JOIN clusters c ON c.id = p.cluster_id JOIN kinds k ON k.slug = p.kind"""

POOLS = f"""{POOL} WHERE (%(kind)s::text IS NULL OR p.kind = %(kind)s)
  AND (%(cluster)s::text IS NULL OR c.name = %(cluster)s)
 ORDER BY p.id"""
LOCK_POOLS = f"{POOL} WHERE p.id = ANY(%s) ORDER BY p.id FOR NO KEY UPDATE OF p"
RAISE_VERSION = "UPDATE pools SET version = version + 1 WHERE id = ANY(%s)"


def pools_for(work: Work, kind: str | None = None, cluster: str | None = None) -> tuple[Pool, ...]:
    """Pools of a kind (None or "any": of every kind) on a cluster (None: on every one), in order of their ids."""
    return pools_of(work.pg.execute(POOLS, {"kind": None if kind == "any" else kind, "cluster": cluster}))


def pools_of(rows: Iterable[Sequence[Any]]) -> tuple[Pool, ...]:
    """Pools from the rows of POOLS or LOCK_POOLS, for a caller who reads several things in one round trip."""
    return tuple(map(_pool, rows))


def pools_with_ids(work: Work, ids: Iterable[int]) -> dict[int, Pool]:
    """Pools by id, as they are now."""
    return {pool.id: pool for pool in map(_pool, work.pg.execute(f"{POOL} WHERE p.id = ANY(%s)", [list(ids)]))}


def lock_pools(work: Work, ids: Iterable[int]) -> dict[int, Pool]:
    """Lock pools in the order of their ids and read them as they are then. Readers and foreign keys are not held up.
    Power budgets of their clusters are locked before them."""
    ids = sorted(set(ids))
    work.pg.execute(LOCK_POWER, [ids])
    return {pool.id: pool for pool in pools_of(work.pg.execute(LOCK_POOLS, [ids]))}


def raise_version(work: Work, ids: Iterable[int]) -> None:
    """Tell caches that the holds of these pools have changed. The pools are locked."""
    work.pg.execute(RAISE_VERSION, [list(ids)])


def _pool(row: Sequence[Any]) -> Pool:
    number, cluster_id, cluster, name, kind, policy, gap, version, capacity, *rest = row
    return Pool(number, cluster_id, cluster, name, kind, Policy.of(policy, gap), version, capacity, *rest)


def with_slices(work: Work, ids: Iterable[int]) -> set[int]:
    """These pools and those of the slices that their nodes' GPUs are cut into: whatever changes a node concerns all."""
    rows = work.pg.execute(
        """SELECT p.id FROM pools p JOIN kinds k ON k.slug = p.kind JOIN pools q ON q.cluster_id = p.cluster_id
              AND p.name = q.name || '-' || (k.facts->>'profile') WHERE q.id = ANY(%(ids)s)""",
        {"ids": list(ids)},
    )
    return {*ids, *(row[0] for row in rows)}


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
    slots: dict[tuple[int, int], dict[Range, list[tuple[int, int]]]] = {}
    taken: dict[int, list[Taken]] = {i: [] for i in ids}
    faulty = {row[0] for row in work.pg.execute(_FAULTS, {"ids": ids})}
    for pool_id, node_id, lower, upper, begins, ends in work.pg.execute(_SLOTS, {"ids": ids, "now": now}):
        there = slots.setdefault((pool_id, node_id), {}).setdefault((lower, upper), [])
        there.append((0 if begins is None else begins, FOREVER if ends is None else ends))
    for (pool_id, _), units in slots.items():
        for unit, times in units.items():
            taken[pool_id] += ((*unit, since, until) for since, until in absences(times))
    for pool_id, lower, upper, begins, ends in work.pg.execute(_MAINTENANCE, {"ids": ids, "now": now}):
        taken[pool_id].append((lower, upper, begins, ends))
    for pool_id, lower, upper, begins, ends in work.pg.execute(_EXTERNAL, {"ids": ids}):
        taken[pool_id].append((lower, upper, begins, FOREVER if ends is None else ends))
    nodes: dict[int, list[NodeCapacity]] = {i: [] for i in ids}
    for pool_id, node_id, name, first, rack, leaf, nvlink, state in work.pg.execute(_NODES, {"ids": ids, "now": now}):
        ranges = tuple(slots.get((pool_id, node_id), ()))
        offered = sum(1 << i for i, r in enumerate(ranges) if r[0] // 64 not in faulty) if state == "ready" else 0
        nodes[pool_id].append(NodeCapacity(node_id, name, first, ranges, offered, rack, leaf, nvlink, state))
    hosts: dict[int, list[HostTaken]] = {i: [] for i in ids}
    for pool_id, *host, units, begins, ends in work.pg.execute(_HOSTS, {"ids": ids}):
        ranges = tuple((lower, upper) for lower, upper in units)
        hosts[pool_id].append(HostTaken(*host, ranges, begins, FOREVER if ends is None else ends))
    powered = _power(work, {p.cluster_id for p in pools})
    return [
        PoolCapacity(
            p.id,
            p.cluster_id,
            p.kind,
            tuple(nodes[p.id]),
            tuple(taken[p.id]),
            tuple(hosts[p.id]),
            *powered.get(p.cluster_id, ()),
        )
        for p in pools
    ]


def _power(work: Work, clusters: set[int]) -> dict[int, tuple[tuple[PowerBudget, ...], dict[int, FedNode]]]:
    """Budgets of the clusters that have any, and the nodes under them."""
    found = queries_power.budgets(work, clusters)
    of = {c: tuple(b for b in found if b.cluster_id == c) for c in sorted({b.cluster_id for b in found})}
    return {cluster: (every, queries_power.fed_nodes(work, cluster, every)) for cluster, every in of.items()}


def absences(times: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """When a unit is not there, from the times `[since, until)` of its layouts, in epoch seconds from 0 on."""
    found, there = [], 0
    for since, until in sorted(times):
        if since > there:
            found.append((there, since))
        there = max(there, until)
    return [*found, (there, FOREVER)] if there < FOREVER else found


# A node's own pool is that of its whole GPUs. Slices of them are in a pool of their own kind, called like the node's with
# the profile behind it.
_SERVING = """
WITH serving AS (
  SELECT p.id AS pool_id, p.kind, q.id AS node_pool FROM pools p JOIN kinds k ON k.slug = p.kind
    JOIN pools q ON q.cluster_id = p.cluster_id AND (q.id = p.id OR p.name = q.name || '-' || (k.facts->>'profile'))
   WHERE p.id = ANY(%(ids)s))"""
_NODES = f"""{_SERVING}
SELECT v.pool_id, n.id, n.name, n.first_gpu, n.rack, n.leaf, n.nvlink, n.state
  FROM serving v JOIN nodes n ON n.pool_id = v.node_pool
 WHERE n.removed_at IS NULL AND (v.node_pool = v.pool_id OR EXISTS
   (SELECT FROM slots s WHERE s.node_id = n.id AND s.kind = v.kind AND (upper_inf(s.valid) OR upper(s.valid) > %(now)s)))
 ORDER BY v.pool_id, n.id"""
_FAULTS = f"""{_SERVING}
SELECT DISTINCT f.gpu FROM serving v JOIN nodes n ON n.pool_id = v.node_pool JOIN unit_faults f ON f.node_id = n.id
 WHERE f.until IS NULL"""
# Slots that have ended are left out; what has not begun, or will end, is taken at the other times.
_SLOTS = f"""{_SERVING}
SELECT v.pool_id, n.id, lower(s.positions), upper(s.positions),
       CASE WHEN lower(s.valid) > %(now)s THEN extract(epoch FROM lower(s.valid))::bigint END,
       CASE WHEN NOT upper_inf(s.valid) THEN extract(epoch FROM upper(s.valid))::bigint END
  FROM serving v JOIN nodes n ON n.pool_id = v.node_pool JOIN slots s ON s.node_id = n.id AND s.kind = v.kind
 WHERE n.removed_at IS NULL AND (upper_inf(s.valid) OR upper(s.valid) > %(now)s)
 ORDER BY s.positions"""
_MAINTENANCE = f"""{_SERVING}
SELECT v.pool_id, n.first_gpu * 64, (n.first_gpu + n.gpus) * 64,
       extract(epoch FROM lower(m.during))::bigint, extract(epoch FROM upper(m.during))::bigint
  FROM serving v JOIN nodes n ON n.pool_id = v.node_pool JOIN maintenance_nodes x ON x.node_id = n.id
  JOIN maintenances m ON m.id = x.maintenance_id
 WHERE m.cancelled_at IS NULL AND upper(m.during) > %(now)s AND n.removed_at IS NULL ORDER BY m.id, n.id"""
# Past its own limit and still seen: nobody knows when it ends.
_EXTERNAL = f"""{_SERVING}
SELECT v.pool_id, lower(r), upper(r), extract(epoch FROM e.since)::bigint,
       CASE WHEN e.until > e.seen_at THEN extract(epoch FROM e.until)::bigint END
  FROM serving v JOIN nodes n ON n.pool_id = v.node_pool JOIN external_use e ON e.node_id = n.id, unnest(e.units) r
 WHERE e.ended_at IS NULL AND n.removed_at IS NULL ORDER BY e.id, r"""

_HOSTS = f"""{_SERVING}
SELECT v.pool_id, n.id, coalesce(e.cpu_milli, 0), coalesce(e.memory_mib, 0), n.cpu_milli, n.memory_mib,
       ARRAY(SELECT ARRAY[lower(r), upper(r)] FROM unnest(e.units) r), extract(epoch FROM e.since)::bigint,
       CASE WHEN e.until > e.seen_at THEN extract(epoch FROM e.until)::bigint END
  FROM serving v JOIN nodes n ON n.pool_id = v.node_pool JOIN external_use e ON e.node_id = n.id
 WHERE e.ended_at IS NULL AND (e.cpu_milli IS NOT NULL OR e.memory_mib IS NOT NULL) AND n.removed_at IS NULL
 ORDER BY v.pool_id, e.id"""


# --- nodes ------------------------------------------------------------------------------------------------------------


def node_names(work: Work, ids: Iterable[int]) -> dict[int, NodeName]:
    """How nodes are called, also those that were removed."""
    rows = work.pg.execute(
        """SELECT n.id, n.name, c.name, n.cluster_id, n.pool_id, n.first_gpu, n.gpus, n.rack
             FROM nodes n JOIN clusters c ON c.id = n.cluster_id WHERE n.id = ANY(%s)""",
        [list(set(ids))],
    )
    return {row[0]: NodeName(*row) for row in rows}


def nodes_now(
    work: Work,
    *,
    kind: str | None = None,
    cluster: str | None = None,
    state: str | None = None,
    words: str | None = None,
    after: tuple[str, str] | None = None,
    limit: int = 100,
) -> tuple[NodeNow, ...]:
    """Nodes as they are now, by cluster and name, those after the (cluster, name) given. `words` are searched in names
    and racks. What is held is read from the holds, which are nobody's secret: no row says whose they are."""
    now = work.product_now()
    rows = work.pg.execute(
        _NODES_NOW,
        {
            "kind": kind,
            "cluster": cluster,
            "state": state,
            "words": _like(words),
            "after_cluster": after[0] if after else None,
            "after_name": after[1] if after else None,
            "limit": limit,
            "now": now,
        },
    )
    return tuple(NodeNow(*row[:14], None if row[14] is None else tuple(row[14:17])) for row in rows)


_NODES_NOW = """
WITH page AS MATERIALIZED (
  SELECT n.*, c.name AS cluster, p.kind
    FROM nodes n JOIN clusters c ON c.id = n.cluster_id JOIN pools p ON p.id = n.pool_id
   WHERE n.removed_at IS NULL AND (%(kind)s::text IS NULL OR p.kind = %(kind)s OR EXISTS
       (SELECT FROM slots s WHERE s.node_id = n.id AND s.kind = %(kind)s AND s.valid @> %(now)s))
     AND (%(cluster)s::text IS NULL OR c.name = %(cluster)s) AND (%(state)s::text IS NULL OR n.state = %(state)s)
     AND (%(words)s::text IS NULL OR n.name ILIKE %(words)s OR n.rack ILIKE %(words)s)
     AND (%(after_cluster)s::text IS NULL OR (c.name, n.name) > (%(after_cluster)s, %(after_name)s))
   ORDER BY c.name, n.name LIMIT %(limit)s)
SELECT n.id, n.name, n.cluster, n.kind, u.units, u.free, u.external, u.unhealthy, n.state, n.why, n.rack, n.leaf,
       n.nvlink, n.observed_at, m.name, m.starts_at, m.ends_at
  FROM page n
  LEFT JOIN LATERAL (SELECT w.name, lower(w.during) AS starts_at, upper(w.during) AS ends_at
               FROM maintenance_nodes x JOIN maintenances w ON w.id = x.maintenance_id
              WHERE x.node_id = n.id AND w.cancelled_at IS NULL AND upper(w.during) > %(now)s
              ORDER BY lower(w.during), w.id LIMIT 1) m ON true,
  LATERAL (SELECT range_agg(h.units) AS held FROM holds h
            WHERE h.node_id = n.id AND h.live AND upper(h.during) > %(now)s AND lower(h.during) <= %(now)s) h,
  LATERAL (SELECT range_agg(e.units) AS used FROM external_use e WHERE e.node_id = n.id AND e.ended_at IS NULL) e,
  LATERAL (SELECT array_agg(f.gpu) AS gpus FROM unit_faults f WHERE f.node_id = n.id AND f.until IS NULL) f,
  LATERAL (SELECT count(*) AS units,
                  count(*) FILTER (WHERE n.state = 'ready' AND (m.starts_at <= %(now)s) IS NOT TRUE AND (s.gpu = ANY(f.gpus)) IS NOT TRUE
                    AND (s.positions && h.held) IS NOT TRUE AND (s.positions && e.used) IS NOT TRUE) AS free,
                  count(*) FILTER (WHERE s.positions && e.used) AS external,
                  count(*) FILTER (WHERE s.gpu = ANY(f.gpus)) AS unhealthy
             FROM slots s WHERE s.node_id = n.id AND s.valid @> %(now)s) u
 ORDER BY n.cluster, n.name"""


def nodes_listed(
    work: Work,
    *,
    kind: str | None = None,
    cluster: str | None = None,
    state: str | None = None,
    words: str | None = None,
) -> list[tuple[Any, ...]]:
    """Nodes with the columns of `rules.FULL_FORM`, as an import takes them, by cluster and name."""
    return work.pg.execute(
        """SELECT n.name, p.kind, n.gpus, n.rack, n.leaf, n.nvlink, n.power_watts, n.cpu_milli, n.memory_mib,
                  (SELECT string_agg(g.cut, ';' ORDER BY g.gpu) FROM (
                     SELECT s.gpu, s.gpu - n.first_gpu || ':' || string_agg(k.facts->>'profile', '+') AS cut
                       FROM slots s JOIN kinds k ON k.slug = s.kind
                      WHERE s.node_id = n.id AND upper_inf(s.valid) AND k.facts ? 'profile' GROUP BY s.gpu) g)
             FROM nodes n JOIN clusters c ON c.id = n.cluster_id JOIN pools p ON p.id = n.pool_id
            WHERE n.removed_at IS NULL AND (%(kind)s::text IS NULL OR p.kind = %(kind)s)
              AND (%(cluster)s::text IS NULL OR c.name = %(cluster)s)
              AND (%(state)s::text IS NULL OR n.state = %(state)s)
              AND (%(words)s::text IS NULL OR n.name ILIKE %(words)s OR n.rack ILIKE %(words)s)
            ORDER BY c.name, n.name""",
        {"kind": kind, "cluster": cluster, "state": state, "words": _like(words)},
    ).fetchall()


def layouts_of(work: Work, cluster_id: int) -> dict[int, Layout]:
    """How the GPUs of a cluster's nodes are cut by the last layout that is known of them; nodes of whole GPUs are not in."""
    rows = work.pg.execute(
        """SELECT n.id, s.gpu - n.first_gpu, (lower(s.positions) - s.gpu * 64) / 8,
                  (upper(s.positions) - lower(s.positions)) / 8, k.facts->>'profile'
             FROM nodes n JOIN slots s ON s.node_id = n.id JOIN kinds k ON k.slug = s.kind
            WHERE n.cluster_id = %s AND upper_inf(s.valid) AND k.facts->>'profile' IS NOT NULL
            ORDER BY n.id, s.positions""",
        [cluster_id],
    )
    found: dict[int, dict[int, tuple[Cut, ...]]] = {}
    for node, gpu, start, size, profile in rows:
        cuts = found.setdefault(node, {})
        cuts[gpu] = (*cuts.get(gpu, ()), Cut(start, size, profile))
    return found


def _like(words: str | None) -> str | None:
    """A pattern that finds these very words anywhere."""
    if not words:
        return None
    for letter in ("\\", "%", "_"):
        words = words.replace(letter, "\\" + letter)
    return f"%{words}%"


def kinds_offered(work: Work) -> tuple[KindOffered, ...]:
    """What each cluster has of each kind, now."""
    now = work.product_now()
    rows = work.pg.execute(
        """SELECT c.name, s.kind, count(DISTINCT n.id), count(*),
                  count(*) FILTER (WHERE n.state = 'ready' AND f.id IS NULL)
             FROM clusters c JOIN nodes n ON n.cluster_id = c.id AND n.removed_at IS NULL
             JOIN slots s ON s.node_id = n.id AND s.valid @> %s
             LEFT JOIN unit_faults f ON f.gpu = s.gpu AND f.until IS NULL
            GROUP BY c.name, s.kind ORDER BY c.name, s.kind""",
        [now],
    )
    return tuple(KindOffered(*row) for row in rows)


def due_clusters(work: Work) -> list[int]:
    """Clusters whose next look is due by the product clock and that no worker is looking at, the longest due first."""
    rows = work.pg.execute(CLUSTERS_TO_LOOK_AT, {"now": work.product_now(), "wall": work.wall})
    return [row[0] for row in rows]


CLUSTERS_TO_LOOK_AT = """
SELECT id FROM clusters WHERE (retry_at IS NULL OR retry_at <= %(now)s)
   AND (leased_until IS NULL OR leased_until <= %(wall)s) ORDER BY retry_at NULLS FIRST, id"""


def next_look(work: Work) -> Any:
    """When a cluster is due next, on the product clock; None when there is no cluster, or all are due now."""
    return work.pg.execute("SELECT min(retry_at) FROM clusters").fetchone()[0]
