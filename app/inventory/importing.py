"""Brings nodes of a list into the inventory, all or none. New ones are no capacity until the cluster shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from app.accounts import audit
from app.inventory.facts import POSITIONS_PER_GPU, Cluster, Imported
from app.inventory.queries import cluster_named, kinds
from app.inventory.rules import Fault, NodeList, NodesRefused, WantedNode, kind_words, may_operate, parse_nodes
from app.kernel.actor import Actor
from app.plumbing.db import Work

_FACTS = ("rack", "leaf", "nvlink", "power_watts", "cpu_milli", "memory_mib")
NOT_SEEN = "Not seen on the cluster yet."


@dataclass(frozen=True, slots=True)
class _Node:
    """A node as the database has it."""

    id: int
    name: str
    kind: str
    pool: str
    first_gpu: int
    gpus: int
    facts: tuple[str | int | None, ...]
    removed: bool


def import_nodes(
    work: Work, actor: Actor, cluster: str, text: str | bytes, *, pool: str | None = None, dry_run: bool = False
) -> Imported:
    """Take nodes from a CSV list (forms: `rules.LIST_FORM`, `rules.FULL_FORM`); nodes not in it stay as they are.

    Nodes go into the pool named, or into one per kind that is called like the kind. Columns that the list lacks keep
    what is known. With `dry_run` nothing changes. Raises `NodesRefused` with every fault; then nothing has changed.
    """
    may_operate(actor)
    listed = parse_nodes(text, kind_words(kinds(work).values()))
    found = cluster_named(work, cluster)
    # one import at a time for a cluster; the pools' locks keep bookings from what is being changed
    work.pg.execute("SELECT FROM clusters WHERE id = %s FOR NO KEY UPDATE", [found.id])
    work.pg.execute("SELECT FROM pools WHERE cluster_id = %s ORDER BY id FOR NO KEY UPDATE", [found.id])
    plan = _plan(work, found, listed, pool)
    done = Imported(
        lines=len(listed.nodes) + listed.skipped,
        skipped=listed.skipped,
        added=len(plan.added) + sum(1 for old, _ in plan.renewed if old.removed),
        changed=len(plan.changed) + sum(1 for old, _ in plan.renewed if not old.removed),
        unchanged=plan.unchanged,
        units=sum(n.gpus for n in listed.nodes),
        pools=tuple(sorted({pool or n.kind for n in listed.nodes})),
        dry_run=dry_run,
    )
    if dry_run:
        return done
    pools = _pools(work, found, listed.nodes, pool)
    touched = _carry_out(work, found, plan, pools, pool)
    if touched:
        work.pg.execute(
            """UPDATE pools SET version = version + 1, capacity_version = nextval('capacity_versions')
                WHERE id = ANY(%s)""",
            [sorted(touched)],
        )
        work.pg.execute("UPDATE clusters SET retry_at = NULL WHERE id = %s", [found.id])
    counts = {"added": done.added, "changed": done.changed, "unchanged": done.unchanged, "units": done.units}
    audit.record(work, actor, "import nodes", f"cluster {cluster}", None, counts, platform=True)
    return done


@dataclass(frozen=True, slots=True)
class _Plan:
    """`renewed`: nodes that get units of new numbers; `changed`: nodes that keep theirs, but for those they lose."""

    added: list[WantedNode]
    renewed: list[tuple[_Node, WantedNode]]
    changed: list[tuple[_Node, WantedNode]]
    unchanged: int


def _plan(work: Work, cluster: Cluster, listed: NodeList, pool: str | None) -> _Plan:
    """What to do with each node, or `NodesRefused`."""
    known = _known(work, cluster)
    plan, unchanged, faults = _Plan([], [], [], 0), 0, _pool_faults(work, cluster, listed, pool)
    held = _held(work, cluster)
    for wanted in listed.nodes:
        old = known.get(wanted.name)
        if old is None:
            plan.added.append(wanted)
            continue
        wanted = _with_known(wanted, old, listed.columns)
        moves = old.pool != (pool or wanted.kind)
        if old.removed or wanted.kind != old.kind or wanted.gpus > old.gpus or moves:
            if old.id in held:
                what = "another pool" if moves and wanted.kind == old.kind else "other units"
                sentence = f"{wanted.name} has bookings and cannot get {what} before they have ended or moved."
                faults.append(Fault(wanted.line, "", sentence))
            plan.renewed.append((old, wanted))
        elif wanted.gpus < old.gpus or _facts(wanted) != old.facts:
            plan.changed.append((old, wanted))
        else:
            unchanged += 1
    if faults:
        raise NodesRefused(faults)
    return replace(plan, unchanged=unchanged)


def _pool_faults(work: Work, cluster: Cluster, listed: NodeList, pool: str | None) -> list[Fault]:
    """Faults of nodes whose pool is of another kind."""
    of = dict(work.pg.execute("SELECT name, kind FROM pools WHERE cluster_id = %s", [cluster.id]).fetchall())
    if pool is not None and (len(pool) > 63 or not pool.isprintable() or not pool.strip()):
        return [Fault(0, "", "A pool's name has 1 to 63 printable characters.")]
    if pool is not None and pool not in of:
        of[pool] = listed.nodes[0].kind
    faults = []
    for node in listed.nodes:
        name = pool or node.kind
        if of.get(name, node.kind) != node.kind:
            faults.append(Fault(node.line, "kind", f"Pool {name} has {of[name]}; {node.name} is {node.kind}."))
    return faults


def _known(work: Work, cluster: Cluster) -> dict[str, _Node]:
    rows = work.pg.execute(
        f"""SELECT n.id, n.name, p.kind, p.name, n.first_gpu, n.gpus, n.removed_at IS NOT NULL,
                   {", ".join("n." + f for f in _FACTS)}
              FROM nodes n JOIN pools p ON p.id = n.pool_id WHERE n.cluster_id = %s""",
        [cluster.id],
    )
    return {row[1]: _Node(*row[:6], facts=tuple(row[7:]), removed=row[6]) for row in rows}


def _held(work: Work, cluster: Cluster) -> set[int]:
    """Nodes on which something is held now or later."""
    now = work.product_now()
    rows = work.pg.execute(
        """SELECT DISTINCT n.id FROM nodes n JOIN holds h ON h.node_id = n.id
            WHERE n.cluster_id = %s AND h.live AND upper(h.during) > %s""",
        [cluster.id, now],
    )
    return {row[0] for row in rows}


def _with_known(wanted: WantedNode, old: _Node, columns: Sequence[str]) -> WantedNode:
    """The node as listed, and as known where the list has no such column."""
    kept = {name: value for name, value in zip(_FACTS, old.facts, strict=True) if name not in columns}
    return replace(wanted, **kept)


def _facts(node: WantedNode) -> tuple[str | int | None, ...]:
    return tuple(getattr(node, name) for name in _FACTS)


def _pools(work: Work, cluster: Cluster, nodes: Iterable[WantedNode], pool: str | None) -> dict[str, int]:
    """Ids of the cluster's pools by name, those that were missing made."""
    for name, kind in sorted({(pool or n.kind, n.kind) for n in nodes}):
        work.pg.execute(
            """INSERT INTO pools (cluster_id, name, kind, gap_seconds, policy, version, capacity_version)
               VALUES (%s, %s, %s, 0, '{}', 1, nextval('capacity_versions'))
               ON CONFLICT (cluster_id, name) DO NOTHING""",
            [cluster.id, name, kind],
        )
    return dict(work.pg.execute("SELECT name, id FROM pools WHERE cluster_id = %s", [cluster.id]).fetchall())


def _carry_out(work: Work, cluster: Cluster, plan: _Plan, pools: Mapping[str, int], pool: str | None) -> set[int]:
    """Write the plan; answers the pools whose capacity changed."""
    now = work.product_now()
    old_pools = {old.pool for old, _ in (*plan.renewed, *plan.changed)}
    _end_slots(work, [(old.id, 0) for old, _ in plan.renewed], now)
    _end_slots(work, [(old.id, new.gpus) for old, new in plan.changed if new.gpus < old.gpus], now)
    # a pool's units side by side: a question about the pool is then a question about one range of positions
    plan.added.sort(key=lambda node: pool or node.kind)
    numbers = _gpu_numbers(work, [new.gpus for new in (*plan.added, *(new for _, new in plan.renewed))])
    firsts = iter(numbers)
    _write(
        work,
        _INSERT,
        [(cluster.id, pools[pool or n.kind], n.name, next(firsts), n.gpus, *_facts(n), NOT_SEEN) for n in plan.added],
    )
    _write(
        work,
        _RENEW,
        [(pools[pool or n.kind], next(firsts), n.gpus, *_facts(n), NOT_SEEN, o.id) for o, n in plan.renewed],
    )
    _write(work, _CHANGE, [(n.gpus, *_facts(n), o.id) for o, n in plan.changed])
    names = [n.name for n in plan.added] + [n.name for _, n in plan.renewed]
    ids = dict(
        work.pg.execute("SELECT name, id FROM nodes WHERE cluster_id = %s AND name = ANY(%s)", [cluster.id, names])
    )
    made = [*plan.added, *(new for _, new in plan.renewed)]
    work.pg.execute(
        """INSERT INTO slots (node_id, gpu, positions, valid, kind, share840)
           SELECT node, gpu, int4range(gpu * %(per)s, (gpu + 1) * %(per)s), tstzrange(%(now)s, NULL), kind, 840
             FROM unnest(%(nodes)s::int[], %(firsts)s::int[], %(gpus)s::int[], %(kinds)s::text[])
                    t(node, first, gpus, kind),
                  generate_series(first, first + gpus - 1) gpu""",
        {
            "per": POSITIONS_PER_GPU,
            "now": now,
            "nodes": [ids[n.name] for n in made],
            "firsts": numbers,
            "gpus": [n.gpus for n in made],
            "kinds": [n.kind for n in made],
        },
    )
    work.pg.execute(
        """INSERT INTO node_outages (node_id, state, since, why) SELECT id, 'unknown', %s, %s FROM unnest(%s::int[]) id
           ON CONFLICT (node_id) WHERE until IS NULL DO NOTHING""",
        [now, NOT_SEEN, list(ids.values())],
    )
    changed = {pools[pool or n.kind] for n in made} | {pools[old.pool] for old, _ in plan.changed}
    return changed | {pools[name] for name in old_pools if name in pools}


def _end_slots(work: Work, nodes: Sequence[tuple[int, int]], now: object) -> None:
    """From now on these nodes have only their first so many units (node id, units)."""
    if not nodes:
        return
    work.pg.execute(
        """UPDATE slots s SET valid = tstzrange(lower(s.valid), greatest(%(now)s, lower(s.valid) + interval '1 second'))
             FROM unnest(%(ids)s::int[], %(keep)s::int[]) t(id, keep) JOIN nodes n ON n.id = t.id
            WHERE s.node_id = t.id AND s.gpu >= n.first_gpu + t.keep AND upper_inf(s.valid)""",
        {"now": now, "ids": [i for i, _ in nodes], "keep": [k for _, k in nodes]},
    )
    work.pg.execute(
        """UPDATE unit_faults f SET until = greatest(%(now)s, f.since)
             FROM unnest(%(ids)s::int[], %(keep)s::int[]) t(id, keep) JOIN nodes n ON n.id = t.id
            WHERE f.node_id = t.id AND f.gpu >= n.first_gpu + t.keep AND f.until IS NULL""",
        {"now": now, "ids": [i for i, _ in nodes], "keep": [k for _, k in nodes]},
    )


def _gpu_numbers(work: Work, counts: Sequence[int]) -> list[int]:
    """For each count the first of so many consecutive numbers that were never given before."""
    if not counts:
        return []
    # two imports at once would share out the sequence between them
    work.pg.execute("SELECT pg_advisory_xact_lock(hashtext('gpu_numbers'))")
    rows = work.pg.execute("SELECT nextval('gpu_numbers')::int FROM generate_series(1, %s)", [sum(counts)])
    numbers = sorted(row[0] for row in rows)
    firsts, at = [], 0
    for count in counts:
        firsts.append(numbers[at])
        at += count
    return firsts


_COLUMNS = ", ".join(_FACTS)
_INSERT = f"""INSERT INTO nodes (cluster_id, pool_id, name, first_gpu, gpus, {_COLUMNS}, why, state)
              VALUES (%s, %s, %s, %s, %s, {", ".join(["%s"] * len(_FACTS))}, %s, 'unknown')"""
_RENEW = f"""UPDATE nodes SET pool_id = %s, first_gpu = %s, gpus = %s, {", ".join(f + " = %s" for f in _FACTS)},
               why = %s, state = 'unknown', observed_at = NULL, removed_at = NULL WHERE id = %s"""
_CHANGE = f"UPDATE nodes SET gpus = %s, {', '.join(f + ' = %s' for f in _FACTS)} WHERE id = %s"


def _write(work: Work, statement: str, rows: list[tuple[object, ...]]) -> None:
    if rows:
        with work.pg.cursor() as cursor:
            cursor.executemany(statement, rows)
