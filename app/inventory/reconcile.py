"""Looks at clusters: claim, ask the backend with no transaction open, apply. Nothing is promised on what was not seen.

Knows no booking. Objects that no booking owns are told (`strays`), not removed: that is the bookings' to do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from psycopg.types.json import Jsonb

from app.accounts import audit
from app.backends.contract import Backend, BackendError, Inventory, Probe, Ref, Stray
from app.inventory.connections import ask, backend_of
from app.inventory.facts import Cluster
from app.inventory.observing import apply_look, not_observed
from app.inventory.queries import cluster_named, cluster_with_id, installation
from app.inventory.rules import may_operate
from app.kernel.actor import Actor
from app.plumbing.db import Work
from app.plumbing.log import get_log
from app.plumbing.runtime import Plumbing

log = get_log("inventory")

LOOK_EVERY = timedelta(seconds=60)
PROBE_EVERY = timedelta(minutes=10)
_FIRST_RETRY, _LONGEST_RETRY = timedelta(seconds=15), timedelta(minutes=2)
_LEASE = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Looked:
    """What one look came to. `error` is a sentence; then nothing new is known. `changed` counts nodes whose capacity
    changed, `unlisted` names nodes that the cluster has and the inventory has not."""

    cluster: str
    error: str | None = None
    nodes: int = 0
    changed: int = 0
    unlisted: tuple[str, ...] = ()


def sync_cluster(plumbing: Plumbing, cluster_id: int) -> Looked | None:
    """Look at a cluster if a look is due and nobody else is looking; None when not.

    A failed look raises the back-off (product time); units that were not seen for the pool's `observed_within` are no
    capacity until they are seen again.
    """
    token = uuid4()
    cluster = _claim(plumbing, cluster_id, token)
    if cluster is None:
        return None
    try:
        backend = backend_of(plumbing, cluster)
        probe = _probe(plumbing, backend, cluster)
        seen = ask(backend, backend.inventory)
    except BackendError as error:
        log.warning("cluster not seen", cluster=cluster.name, kind=error.kind, why=error.sentence, raw=error.raw[:500])
        with plumbing.database.work() as work:
            _failed(work, cluster, token, error)
        return Looked(cluster.name, error.sentence)
    with plumbing.database.work() as work:
        return _seen(work, cluster, token, seen, probe)


def define_on_backend(plumbing: Plumbing, actor: Actor, cluster_name: str) -> int:
    """Build the inventory's nodes of a simulated cluster in its own log, and answer how many. An operator's step, made
    on purpose: Berth never changes the nodes of a real cluster, whose backends have no such verb (`unsupported`)."""
    from app.backends.simulated import NodeSpec

    may_operate(actor)
    with plumbing.database.work() as work:
        cluster = cluster_named(work, cluster_name)
        rows = work.pg.execute(_DEFINED, [cluster.id]).fetchall()
        audit.record(work, actor, "define nodes", f"cluster {cluster_name}", None, {"nodes": len(rows)}, platform=True)
    backend = backend_of(plumbing, cluster)
    define: Callable[[list[NodeSpec]], None] | None = getattr(backend, "define", None)
    if define is None:
        raise BackendError("unsupported", f"The nodes of {cluster_name} are its own: Berth only looks at them.")
    specs = [NodeSpec(*row) for row in rows]
    ask(backend, lambda: define(specs))
    with plumbing.database.work() as work:
        work.pg.execute("UPDATE clusters SET retry_at = NULL WHERE id = %s", [cluster.id])
    return len(specs)


_DEFINED = """SELECT n.name, p.kind, n.gpus, n.rack, n.leaf, n.nvlink, coalesce(n.power_watts, k.tdp_watts),
                     (k.memory_gb * 1000000000 / 1048576)::int, n.cpu_milli, n.memory_mib
                FROM nodes n JOIN pools p ON p.id = n.pool_id JOIN kinds k ON k.slug = p.kind
               WHERE n.cluster_id = %s AND n.removed_at IS NULL ORDER BY n.id"""


@dataclass(frozen=True, slots=True)
class Strays:
    """Objects on a cluster with this installation's id that no live booking owns.

    `gone`: of allocations that are known and final; the bookings release them. `superseded`: earlier generations of a
    live allocation. `unknown`: of no allocation that this database knows; an operator decides, nothing removes them.
    Objects of other installations are in none of these.
    """

    gone: tuple[Ref, ...]
    superseded: tuple[Ref, ...]
    unknown: tuple[Stray, ...]


def strays(plumbing: Plumbing, cluster_id: int) -> Strays:
    """Ask a cluster what it has of ours, and sort it. The unknown ones are kept for the operator's page.

    Raises `BackendError` when the cluster cannot be asked.
    """
    with plumbing.database.work() as work:
        cluster, ours = cluster_with_id(work, cluster_id), installation(work)
    backend = backend_of(plumbing, cluster)
    found = [stray for stray in ask(backend, backend.strays) if stray.ref.installation == ours]
    with plumbing.database.work() as work:
        ids = [stray.ref.allocation for stray in found]
        rows = work.pg.execute("SELECT id, gone, generation FROM allocations WHERE id = ANY(%s)", [ids])
        known = {row[0]: (row[1], row[2]) for row in rows}
        unknown = tuple(s for s in found if s.ref.allocation not in known)
        listed = [{"name": s.ref.name, "since": s.since.isoformat() if s.since else None} for s in unknown]
        work.pg.execute(
            """UPDATE clusters SET probe = coalesce(probe, '{}') || %s
                WHERE id = %s AND probe->'strays' IS DISTINCT FROM %s""",
            [Jsonb({"strays": listed}), cluster_id, Jsonb(listed)],
        )
    return Strays(
        gone=tuple(s.ref for s in found if s.ref.allocation in known and known[s.ref.allocation][0]),
        superseded=tuple(
            s.ref
            for s in found
            if s.ref.allocation in known
            and not known[s.ref.allocation][0]
            and (s.ref.generation or 0) < known[s.ref.allocation][1]
        ),
        unknown=unknown,
    )


def _claim(plumbing: Plumbing, cluster_id: int, token: UUID) -> Cluster | None:
    """Lease the cluster for one look. The lease is wall time and longer than two calls can take."""
    with plumbing.database.work() as work:
        now = work.product_now()
        row = work.pg.execute(
            """UPDATE clusters SET lease_token = %(token)s, leased_until = %(until)s
                WHERE id = %(id)s AND (retry_at IS NULL OR retry_at <= %(now)s)
                  AND (leased_until IS NULL OR leased_until <= %(wall)s) RETURNING id""",
            {"token": token, "until": work.wall + _LEASE, "id": cluster_id, "now": now, "wall": work.wall},
        ).fetchone()
        return cluster_with_id(work, cluster_id) if row else None


def _probe(plumbing: Plumbing, backend: Backend, cluster: Cluster) -> Probe | None:
    """What the cluster can do; None while the last answer is young enough. Asked for at once: asked."""
    with plumbing.database.work() as work:
        now = work.product_now()
    young = cluster.probed_at is not None and timedelta(0) <= now - cluster.probed_at < PROBE_EVERY
    if young and cluster.failures == 0 and cluster.retry_at is not None:
        return None
    return ask(backend, backend.probe)


def _seen(work: Work, cluster: Cluster, token: UUID, seen: Inventory, probe: Probe | None) -> Looked:
    if not _still_ours(work, cluster, token):
        return Looked(cluster.name, "Another worker looks at this cluster now.")
    now = work.product_now()
    changed, unlisted = apply_look(work, cluster, seen, now)
    names = tuple(sorted(unlisted))
    work.pg.execute(
        """UPDATE clusters SET synced_at = %(now)s, failures = 0, last_error = NULL, retry_at = %(next)s,
                  lease_token = NULL, leased_until = NULL, probe = coalesce(probe, '{}') || %(probe)s,
                  probed_at = CASE WHEN %(probed)s THEN %(now)s ELSE probed_at END WHERE id = %(id)s""",
        {
            "now": now,
            "next": now + LOOK_EVERY,
            "probe": Jsonb({**(_words(probe) if probe else {}), "unlisted": list(names[:100]), "source": seen.source}),
            "probed": probe is not None,
            "id": cluster.id,
        },
    )
    return Looked(cluster.name, None, len(seen.nodes), changed, names)


def _failed(work: Work, cluster: Cluster, token: UUID, error: BackendError) -> None:
    if not _still_ours(work, cluster, token):
        return
    now = work.product_now()
    wait = min(_FIRST_RETRY * 2 ** min(cluster.failures, 10), _LONGEST_RETRY)
    work.pg.execute(
        """UPDATE clusters SET failures = failures + 1, last_error = %s, retry_at = %s, lease_token = NULL,
                  leased_until = NULL WHERE id = %s""",
        [error.sentence, now + wait, cluster.id],
    )
    not_observed(work, cluster, now)


def _still_ours(work: Work, cluster: Cluster, token: UUID) -> bool:
    """Lock the cluster, and see whether the lease is still this one. Before the pools, as everywhere."""
    return (
        work.pg.execute(
            "SELECT FROM clusters WHERE id = %s AND lease_token = %s FOR NO KEY UPDATE", [cluster.id, token]
        ).rowcount
        == 1
    )


def _words(probe: Probe) -> dict[str, Any]:
    """A probe as the database keeps it."""
    can = probe.capabilities
    return {
        "ok": probe.ok,
        "version": probe.version,
        "identity": probe.identity,
        "missing": list(probe.missing),
        "steps": [{"name": s.name, "ok": s.ok, "sentence": s.sentence} for s in probe.steps],
        "capabilities": can
        and {
            "partial_nodes": can.partial_nodes,
            "mig": can.mig,
            "reservations": can.reservations,
            "enforcement": can.enforcement,
            "accounting": can.accounting,
            "metrics": can.metrics,
            "launch": can.launch,
            "topology": can.topology,
            "gang": can.gang,
            "queueing": can.queueing,
            "in_place": sorted(can.in_place),
        },
    }
