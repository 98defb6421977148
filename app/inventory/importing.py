"""Brings nodes of a list into the inventory, all or none. New ones are no capacity until the cluster shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from psycopg.types.json import Jsonb

from app.accounts import audit
from app.inventory.facts import POSITIONS_PER_GPU, Cluster, Imported, Kind
from app.inventory.queries import cluster_named, kinds, layouts_of, with_slices
from app.inventory.rules import Fault, NodeList, NodesRefused, WantedNode, kind_words, may_operate, parse_nodes
from app.inventory.slices import Cut, Layout, profiles, slice_kind, slices_named
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
    layout: Layout


def import_nodes(
    work: Work, actor: Actor, cluster: str, text: str | bytes, *, pool: str | None = None, dry_run: bool = False
) -> Imported:
    """Take nodes from a CSV list (forms: `rules.LIST_FORM`, `rules.FULL_FORM`); nodes not in it stay as they are.

    Nodes go into the pool named, or into one per kind that is called like the kind. Columns that the list lacks keep
    what is known. With `dry_run` nothing changes. Raises `NodesRefused` with every fault; then nothing has changed.
    """
    may_operate(actor)
    known_kinds = kinds(work)
    listed = parse_nodes(text, kind_words(known_kinds.values()), known_kinds)
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
        units=sum(n.gpus + sum(len(cuts) - 1 for cuts in n.layout.values()) for n in plan.listed),
        pools=tuple(sorted({name for n in plan.listed for name, _ in _pools_of(n, pool)})),
        dry_run=dry_run,
    )
    if dry_run:
        return done
    add_slice_kinds(work, known_kinds, ((n.kind, n.layout) for n in plan.listed))
    pools = _pools(work, found, plan.listed, pool)
    touched = _carry_out(work, found, plan, pools, pool)
    if touched:
        work.pg.execute(
            """UPDATE pools SET version = version + 1, capacity_version = nextval('capacity_versions')
                WHERE id = ANY(%s)""",
            [sorted(with_slices(work, touched))],
        )
        work.pg.execute("UPDATE clusters SET retry_at = NULL WHERE id = %s", [found.id])
    counts = {"added": done.added, "changed": done.changed, "unchanged": done.unchanged, "units": done.units}
    audit.record(work, actor, "import nodes", f"cluster {cluster}", None, counts, platform=True)
    return done


@dataclass(frozen=True, slots=True)
class _Plan:
    """`renewed`: nodes that get units of new numbers; `changed`: nodes that keep theirs, but for those they lose.
    `listed`: all of the list, with what is known of them where the list does not say."""

    added: list[WantedNode]
    renewed: list[tuple[_Node, WantedNode]]
    changed: list[tuple[_Node, WantedNode]]
    unchanged: int
    listed: list[WantedNode]


def _plan(work: Work, cluster: Cluster, listed: NodeList, pool: str | None) -> _Plan:
    """What to do with each node, or `NodesRefused`."""
    known = _known(work, cluster)
    plan, unchanged, faults = _Plan([], [], [], 0, []), 0, _pool_faults(work, cluster, listed, pool)
    held = _held(work, cluster)
    for wanted in listed.nodes:
        old = known.get(wanted.name)
        if old is None:
            plan.added.append(wanted)
            plan.listed.append(wanted)
            continue
        layout = wanted.layout
        wanted = _with_known(wanted, old, listed.columns)
        plan.listed.append(wanted)
        moves = old.pool != (pool or wanted.kind)
        if old.removed or wanted.kind != old.kind or wanted.gpus > old.gpus or moves:
            if old.id in held:
                what = "another pool" if moves and wanted.kind == old.kind else "other units"
                sentence = f"{wanted.name} has bookings and cannot get {what} before they have ended or moved."
                faults.append(Fault(wanted.line, "", sentence))
            plan.renewed.append((old, wanted))
        elif "layout" in listed.columns and layout != old.layout:
            sentence = (
                f"How the GPUs of {wanted.name} are cut changes in a maintenance, which tells whoever has booked them."
            )
            faults.append(Fault(wanted.line, "layout", sentence))
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
    cut = layouts_of(work, cluster.id)
    rows = work.pg.execute(
        f"""SELECT n.id, n.name, p.kind, p.name, n.first_gpu, n.gpus, n.removed_at IS NOT NULL,
                   {", ".join("n." + f for f in _FACTS)}
              FROM nodes n JOIN pools p ON p.id = n.pool_id WHERE n.cluster_id = %s""",
        [cluster.id],
    )
    return {row[1]: _Node(*row[:6], tuple(row[7:]), row[6], cut.get(row[0], {})) for row in rows}


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
    if "layout" not in columns and wanted.kind == old.kind:
        kept["layout"] = {gpu: cuts for gpu, cuts in old.layout.items() if gpu < wanted.gpus}
    return replace(wanted, **kept)


def _facts(node: WantedNode) -> tuple[str | int | None, ...]:
    return tuple(getattr(node, name) for name in _FACTS)


def _pools(work: Work, cluster: Cluster, nodes: Iterable[WantedNode], pool: str | None) -> dict[str, int]:
    """Ids of the cluster's pools by name, those that were missing made."""
    for name, kind in sorted({named for n in nodes for named in _pools_of(n, pool)}):
        work.pg.execute(
            """INSERT INTO pools (cluster_id, name, kind, gap_seconds, policy, version, capacity_version)
               VALUES (%s, %s, %s, 0, '{}', 1, nextval('capacity_versions'))
               ON CONFLICT (cluster_id, name) DO NOTHING""",
            [cluster.id, name, kind],
        )
    return dict(work.pg.execute("SELECT name, id FROM pools WHERE cluster_id = %s", [cluster.id]).fetchall())


def _pools_of(node: WantedNode, pool: str | None) -> list[tuple[str, str]]:
    """(name, kind) of the pool of its whole GPUs, and of one for each kind of slice."""
    name = pool or node.kind
    cut = slices_named([node.layout])
    return [(name, node.kind), *((f"{name}-{profile}", f"{node.kind}-{profile}") for profile in cut)]


def add_slice_kinds(work: Work, known: Mapping[str, Kind], layouts: Iterable[tuple[str, Layout]]) -> None:
    """Make the kinds known that these layouts (with the kind of the GPUs) cut; they are facts of the catalogue."""
    wanted = {(slug, profile) for slug, layout in layouts for profile in slices_named([layout])}
    made = [slice_kind(known[slug], profiles(known[slug])[profile]) for slug, profile in sorted(wanted)]
    _write(
        work,
        """INSERT INTO kinds (slug, name, vendor, memory_gb, tdp_watts, node_kw, units_per_node, facts)
           VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (slug) DO NOTHING""",
        [
            (k.slug, k.name, k.vendor, k.memory_gb, k.tdp_watts, k.node_kw, k.units_per_node, Jsonb(dict(k.facts)))
            for k in made
        ],
    )


def slots_of(first_gpu: int, gpus: Iterable[int], kind: Kind, layout: Layout) -> list[tuple[int, int, int, str, int]]:
    """(GPU, first position, end of positions, kind, share of 840) of every unit of these GPUs (indices on the node)."""
    rows = []
    for gpu in gpus:
        number = first_gpu + gpu
        cuts: Iterable[Cut | None] = layout.get(gpu) or (None,)
        for cut in cuts:
            if cut is None:
                rows.append((number, number * POSITIONS_PER_GPU, (number + 1) * POSITIONS_PER_GPU, kind.slug, 840))
            else:
                share = profiles(kind)[cut.profile].share840
                rows.append((number, *cut.positions(number), f"{kind.slug}-{cut.profile}", share))
    return rows


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
    known = kinds(work)
    add_slots(
        work,
        now,
        [
            (ids[n.name], *slot)
            for n, first in zip(made, numbers, strict=True)
            for slot in slots_of(first, range(n.gpus), known[n.kind], n.layout)
        ],
    )
    work.pg.execute(
        """INSERT INTO node_outages (node_id, state, since, why) SELECT id, 'unknown', %s, %s FROM unnest(%s::int[]) id
           ON CONFLICT (node_id) WHERE until IS NULL DO NOTHING""",
        [now, NOT_SEEN, list(ids.values())],
    )
    changed = {pools[pool or n.kind] for n in made} | {pools[old.pool] for old, _ in plan.changed}
    return changed | {pools[name] for name in old_pools if name in pools}


def add_slots(work: Work, since: object, rows: Sequence[tuple[int, int, int, int, str, int]]) -> None:
    """Units (node, and as `slots_of` gives them) that are there from an instant on."""
    node, gpu, lower, upper, kind, share = ([row[i] for row in rows] for i in range(6))
    work.pg.execute(
        """INSERT INTO slots (node_id, gpu, positions, valid, kind, share840)
           SELECT node, gpu, int4range(lower, upper), tstzrange(%s, NULL), kind, share
             FROM unnest(%s::int[], %s::int[], %s::int[], %s::int[], %s::text[], %s::int[])
                    t(node, gpu, lower, upper, kind, share)""",
        [since, node, gpu, lower, upper, kind, share],
    )


def _end_slots(work: Work, nodes: Sequence[tuple[int, int]], now: object) -> None:
    """From now on these nodes have only their first so many units (node id, units)."""
    if not nodes:
        return
    work.pg.execute(
        """UPDATE slots s SET valid = tstzrange(lower(s.valid), greatest(%(now)s, lower(s.valid) + interval '1 second'))
             FROM unnest(%(ids)s::int[], %(keep)s::int[]) t(id, keep) JOIN nodes n ON n.id = t.id
            WHERE s.node_id = t.id AND s.gpu >= n.first_gpu + t.keep AND (upper_inf(s.valid) OR upper(s.valid) > %(now)s)""",
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
