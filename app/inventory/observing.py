"""Writes what was seen of a cluster, or that it was not seen. The caller holds the cluster's row; pools come after it.

Holds the statements for that; what changes is worked out by `looking`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from psycopg.types.range import Range as PgRange

from app.backends.contract import Inventory
from app.inventory.facts import POSITIONS_PER_GPU, Cluster
from app.inventory.looking import FACTS, Change, KnownNode, compare
from app.inventory.policy import Policy
from app.inventory.queries import kinds, with_slices
from app.inventory.rules import kind_words
from app.plumbing.db import Work


def apply_look(work: Work, cluster: Cluster, seen: Inventory, now: datetime) -> tuple[int, list[str]]:
    """Write what a look has shown. Answers how many nodes' capacity changed, and the names of nodes nobody imported."""
    changes, unlisted = compare(_known(work, cluster, now), seen, kind_words(kinds(work).values()))
    touched = {c.node.pool_id for c in changes if c.capacity}
    touched = with_slices(work, touched) if touched else touched
    # what a booking decides under the pool's lock must not change before it is written
    work.pg.execute("SELECT FROM pools WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE", [sorted(touched)])
    _write_nodes(work, changes, seen.observed_at)
    _write_outages(work, [c for c in changes if c.outage_changes], seen.observed_at)
    _write_faults(work, changes, seen.observed_at)
    _write_uses(work, changes, seen.observed_at)
    _write_devices(work, changes, now)
    _raise(work, touched)
    return sum(c.capacity for c in changes), [node.name for node in unlisted]


def not_observed(work: Work, cluster: Cluster, now: datetime) -> int:
    """Take the nodes out of capacity that were not seen for longer than their pool allows; answers how many."""
    pools = work.pg.execute(
        "SELECT id, policy, gap_seconds FROM pools WHERE cluster_id = %s ORDER BY id FOR NO KEY UPDATE", [cluster.id]
    ).fetchall()
    lost: list[tuple[int, datetime]] = []
    touched = set()
    for pool_id, words, gap in pools:
        rows = work.pg.execute(
            """UPDATE nodes SET state = 'unknown', why = 'The cluster does not answer.'
                WHERE pool_id = %s AND removed_at IS NULL AND state <> 'unknown' AND observed_at <= %s
            RETURNING id, observed_at""",
            [pool_id, now - _allowed(words, gap)],
        ).fetchall()
        lost += rows
        touched |= with_slices(work, [pool_id]) if rows else set()
    # it may have gone at any moment after it was last seen
    _end_outages(work, [i for i, _ in lost], [at for _, at in lost])
    _begin_outages(work, [(i, "unknown", at, "The cluster does not answer.") for i, at in lost])
    _raise(work, touched)
    return len(lost)


def _allowed(words: dict[str, Any], gap: int) -> timedelta:
    return Policy.of(words, gap).observed_within


def _known(work: Work, cluster: Cluster, now: datetime) -> list[KnownNode]:
    """The cluster's nodes with what is open about them."""
    faults: dict[int, dict[int, str]] = {}
    for node, gpu, why in work.pg.execute(_OPEN_FAULTS, [cluster.id]):
        faults.setdefault(node, {})[gpu] = why
    uses: dict[int, dict[Any, Any]] = {}
    for row, node, units, what, who, cpu, memory, until in work.pg.execute(_OPEN_USES, [cluster.id]):
        ranges = tuple((r.lower, r.upper) for r in units)
        uses.setdefault(node, {})[(ranges, what, who or "", cpu or 0, memory or 0)] = (row, until)
    devices: dict[int, dict[int, str]] = {}
    for node, gpu, uuid in work.pg.execute(_OPEN_DEVICES, [cluster.id, now]):
        devices.setdefault(node, {})[gpu] = uuid
    rows = work.pg.execute(_NODES, [cluster.id]).fetchall()
    return [
        KnownNode(
            *row[:9],
            facts=dict(zip(FACTS, row[9:], strict=True)),
            faults=faults.get(row[0], {}),
            uses=uses.get(row[0], {}),
            devices=devices.get(row[0], {}),
        )
        for row in rows
    ]


_NODES = f"""SELECT n.id, n.name, n.pool_id, p.kind, n.first_gpu, n.gpus, n.state, n.why, n.observed_at,
                    {", ".join("n." + name for name in FACTS)}
               FROM nodes n JOIN pools p ON p.id = n.pool_id
              WHERE n.cluster_id = %s AND n.removed_at IS NULL ORDER BY n.id"""
_OPEN_FAULTS = """SELECT f.node_id, f.gpu, f.why FROM unit_faults f JOIN nodes n ON n.id = f.node_id
                   WHERE n.cluster_id = %s AND f.until IS NULL"""
_OPEN_USES = """SELECT e.id, e.node_id, e.units, e.what, e.who, e.cpu_milli, e.memory_mib, e.until
                  FROM external_use e JOIN nodes n ON n.id = e.node_id
                 WHERE n.cluster_id = %s AND e.ended_at IS NULL"""
_OPEN_DEVICES = """SELECT s.node_id, s.gpu, d.uuid FROM devices d JOIN slots s ON s.id = d.slot_id
                     JOIN nodes n ON n.id = s.node_id
                   WHERE n.cluster_id = %s AND d.until IS NULL AND s.valid @> %s::timestamptz"""


def _write_nodes(work: Work, changes: Sequence[Change], at: datetime) -> None:
    seen = [c.node.id for c in changes if c.seen]
    work.pg.execute("UPDATE nodes SET observed_at = %s WHERE id = ANY(%s)", [at, seen])
    told = [(c.state, c.why, c.node.id) for c in changes if (c.state, c.why) != (c.node.state, c.node.why)]
    learnt = [(*(c.facts.get(name) for name in FACTS), c.node.id) for c in changes if c.facts]
    with work.pg.cursor() as cursor:
        cursor.executemany("UPDATE nodes SET state = %s, why = %s WHERE id = %s", told)
        sets = ", ".join(f"{name} = coalesce({name}, %s)" for name in FACTS)
        cursor.executemany(f"UPDATE nodes SET {sets} WHERE id = %s", learnt)


def _write_outages(work: Work, changes: Sequence[Change], at: datetime) -> None:
    _end_outages(work, [c.node.id for c in changes], [at] * len(changes))
    _begin_outages(work, [(c.node.id, c.state, at, c.why) for c in changes if c.state != "ready"])


def _end_outages(work: Work, nodes: Sequence[int], at: Sequence[datetime]) -> None:
    work.pg.execute(
        """UPDATE node_outages o SET until = greatest(t.at, o.since)
             FROM unnest(%s::int[], %s::timestamptz[]) t(id, at) WHERE o.node_id = t.id AND o.until IS NULL""",
        [list(nodes), list(at)],
    )


def _begin_outages(work: Work, rows: Iterable[tuple[int, str, datetime, str | None]]) -> None:
    with work.pg.cursor() as cursor:
        cursor.executemany("INSERT INTO node_outages (node_id, state, since, why) VALUES (%s, %s, %s, %s)", list(rows))


def _write_faults(work: Work, changes: Sequence[Change], at: datetime) -> None:
    ended = [gpu for c in changes for gpu in c.faults_end]
    work.pg.execute(
        "UPDATE unit_faults SET until = greatest(%s, since) WHERE until IS NULL AND gpu = ANY(%s)", [at, ended]
    )
    begun = [(c.node.id, gpu, min(since, at), why) for c in changes for gpu, since, why in c.faults_begin]
    with work.pg.cursor() as cursor:
        cursor.executemany("INSERT INTO unit_faults (node_id, gpu, since, why) VALUES (%s, %s, %s, %s)", begun)


def _write_uses(work: Work, changes: Sequence[Change], at: datetime) -> None:
    ended = [row for c in changes for row in c.uses_end]
    work.pg.execute("UPDATE external_use SET ended_at = %s WHERE id = ANY(%s)", [at, ended])
    with work.pg.cursor() as cursor:
        cursor.executemany(
            "UPDATE external_use SET seen_at = %s, until = %s WHERE id = %s",
            [(at, until, row) for c in changes for row, until in c.uses_go_on],
        )
        cursor.executemany(
            """INSERT INTO external_use (node_id, units, since, until, seen_at, what, who, cpu_milli, memory_mib)
               VALUES (%s, %s::int4multirange, %s, %s, %s, %s, nullif(%s, ''), nullif(%s, 0), nullif(%s, 0))""",
            [
                (c.node.id, _multirange(ranges), at, until, at, what, who, cpu, memory)
                for c in changes
                for (ranges, what, who, cpu, memory), until in c.uses_begin
            ],
        )


def _multirange(ranges: Iterable[tuple[int, int]]) -> str:
    return "{" + ",".join(str(PgRange(*r)).replace(" ", "") for r in ranges) + "}"


def _write_devices(work: Work, changes: Sequence[Change], now: datetime) -> None:
    """Cards that came, or took another's place: in each slot of the GPU that is valid now. Old serials stay with dates."""
    new = [(gpu, uuid) for c in changes for gpu, uuid in c.devices]
    if not new:
        return
    values = {"gpus": [gpu for gpu, _ in new], "uuids": [uuid for _, uuid in new], "now": now, "per": POSITIONS_PER_GPU}
    work.pg.execute(
        """UPDATE devices d SET until = greatest(%(now)s, d.since + interval '1 second')
             FROM slots s WHERE s.id = d.slot_id AND d.until IS NULL AND s.gpu = ANY(%(gpus)s::int[])""",
        values,
    )
    work.pg.execute(
        """INSERT INTO devices (slot_id, uuid, since)
           SELECT s.id, t.uuid, %(now)s FROM unnest(%(gpus)s::int[], %(uuids)s::text[]) t(gpu, uuid)
             JOIN slots s ON s.positions && int4range(t.gpu * %(per)s, (t.gpu + 1) * %(per)s) AND s.valid @> %(now)s
           ON CONFLICT DO NOTHING""",
        values,
    )


def _raise(work: Work, pools: Iterable[int]) -> None:
    work.pg.execute(
        "UPDATE pools SET version = version + 1, capacity_version = nextval('capacity_versions') WHERE id = ANY(%s)",
        [sorted(pools)],
    )
