"""Writes and takes back maintenance rows. What becomes of bookings is decided by whoever calls: bookings/maintenance.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from psycopg.types.json import Jsonb

from app.accounts import audit
from app.inventory.layouts import Recut, take_back, write_layout
from app.inventory.queries import lock_pools, with_slices
from app.inventory.queries_maintenance import Maintenance, maintenance_with_id
from app.inventory.rules import may_operate
from app.kernel.actor import Actor
from app.kernel.errors import Conflict
from app.kernel.window import Window
from app.plumbing.db import Work


def announce(
    work: Work,
    actor: Actor,
    cluster_id: int,
    node_ids: Iterable[int],
    window: Window,
    name: str,
    why: str,
    recuts: Sequence[Recut] = (),
) -> Maintenance:
    """Nodes are no capacity for a time, and at its end their GPUs are cut as `recuts` say. The pools of the nodes are
    locked by the caller; their caches learn of it."""
    may_operate(actor)
    nodes = sorted(node_ids)
    layout = None
    if recuts:
        write_layout(work, recuts, window)
        gpus = [r.first_gpu + gpu for r in recuts for gpu in r.gpus]
        layout = Jsonb({"gpus": gpus, "nodes": {r.name: r.text for r in recuts}})
    row = work.pg.execute(
        """INSERT INTO maintenances (cluster_id, name, why, during, layout, made_by, made_at, version)
           VALUES (%s, %s, %s, tstzrange(%s, %s), %s, %s, berth_now(), 1) RETURNING id""",
        [cluster_id, name, why, window.start, window.end, layout, actor.label],
    ).fetchone()
    assert row is not None
    work.pg.execute("INSERT INTO maintenance_nodes SELECT %s, unnest(%s::int[])", [row[0], nodes])
    _changed(work, row[0])
    made = maintenance_with_id(work, row[0])
    audit.record(
        work, actor, "announce maintenance", f"cluster {made.cluster}", None,
        {"name": name, "start": window.start.isoformat(), "end": window.end.isoformat(), "nodes": list(made.nodes),
         "layout": dict(made.layout)},
        why, platform=True,
    )  # fmt: skip
    return made


def call_off(work: Work, actor: Actor, number: int, version: int | None = None) -> Maintenance:
    """The nodes are capacity again. Raises Conflict when it is over, called off, or was changed meanwhile."""
    may_operate(actor)
    one = maintenance_with_id(work, number)
    if one.layout:  # its slots are everybody's who books there: pools first
        pools = work.pg.execute(_POOLS, [number]).fetchall()
        lock_pools(work, with_slices(work, [row[0] for row in pools]))
    one = maintenance_with_id(work, number, lock=True)
    now = work.product_now()
    if version is not None and version != one.version:
        raise Conflict("edited_meanwhile", f"{one.name} has changed since you looked. Look again, then decide.")
    if one.cancelled_at is not None or one.end <= now:
        raise Conflict("maintenance_over", f"{one.name} is {'called off' if one.cancelled_at else 'over'} already.")
    layout = work.pg.execute("SELECT layout FROM maintenances WHERE id = %s", [number]).fetchone()[0]
    if layout:
        take_back(work, layout, one.window)
    work.pg.execute("UPDATE maintenances SET cancelled_at = %s, version = version + 1 WHERE id = %s", [now, number])
    _changed(work, number)
    audit.record(work, actor, "call off maintenance", f"cluster {one.cluster}", {"name": one.name}, None, platform=True)
    return maintenance_with_id(work, number)


_POOLS = (
    "SELECT DISTINCT n.pool_id FROM maintenance_nodes m JOIN nodes n ON n.id = m.node_id WHERE m.maintenance_id = %s"
)


def _changed(work: Work, number: int) -> None:
    pools = work.pg.execute(_POOLS, [number])
    work.pg.execute(
        """UPDATE pools SET version = version + 1, capacity_version = nextval('capacity_versions')
            WHERE id = ANY(%s)""",
        [sorted(with_slices(work, [row[0] for row in pools]))],
    )
