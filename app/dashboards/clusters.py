"""The operator's clusters: is one wrong, what can each do, what work waits, where is one not as Berth wants it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from app.dashboards import queries
from app.inventory import queries as inventory
from app.inventory.facts import Cluster, KindOffered
from app.kernel.actor import Actor
from app.plumbing.db import Work
from app.web import words
from app.web.views.operator import (
    Capability,
    CapabilityCell,
    ClusterRow,
    ClustersPage,
    ConnectionTest,
    DriftRow,
    QueueRow,
)
from app.web.views.parts import Action, Step, Tone

STUCK_AFTER = 5
"""Failures in a row after which work counts as stuck."""


def clusters_page(work: Work, actor: Actor, chosen: str) -> ClustersPage:
    """Fill the page for an operator or auditor of the platform."""
    now = work.product_now()
    every = inventory.clusters(work)
    offered: dict[str, list[KindOffered]] = {}
    for one in inventory.kinds_offered(work):
        offered.setdefault(one.cluster, []).append(one)
    booked = queries.units_booked_now(work, now)
    waits = queries.work_waiting(work, now)
    drift = [row for c in every for row in _drift(work, c, now)]
    acts = "operator" in actor.platform_roles
    test = next((c for c in every if c.name == chosen), every[0] if every else None)
    return ClustersPage(
        sentence=_sentence(every, now),
        clusters=tuple(
            _row(c, offered.get(c.name, []), booked.get(c.id, 0), _drifting(drift, c), acts, c is test) for c in every
        ),
        test=connection_test(test, acts) if test and (test.probe or test.failures or test.retry_at is None) else None,
        capability_clusters=tuple(c.name for c in every),
        capabilities=_capabilities(every),
        queues=tuple(_queue(w) for w in waits),
        drift=tuple(row for _, row in drift),
        connect_href="/operator/clusters/connect" if acts else None,
    )


def connection_test(cluster: Cluster, acts: bool) -> ConnectionTest:
    """The last test step by step; `running` while a look is due or going on."""
    probe = cluster.probe or {}
    steps = [
        Step("ok" if s["ok"] else "bad", words.first_upper(s["name"]), s["sentence"]) for s in probe.get("steps", ())
    ]
    steps += [Step("warn", "Missing", sentence) for sentence in probe.get("missing", ())]
    if cluster.last_error:
        steps.insert(0, Step("bad", "The last look failed", cluster.last_error))
    wrong = sum(s.state == "bad" for s in steps)
    running = cluster.retry_at is None
    summary = (
        "Looking now …" if running else f"{len(steps) - wrong} passed, {wrong} failed" if steps else "never looked at"
    )
    return ConnectionTest(
        cluster=cluster.name,
        at=cluster.probed_at,
        summary=summary,
        steps=tuple(steps),
        again=Action("Test again", f"/operator/clusters/{cluster.name}/test", icon="refresh") if acts else None,
        running=running,
        href=f"/operator/clusters/{cluster.name}/test",
    )


def _sentence(every: Sequence[Cluster], now: datetime) -> str:
    if not every:
        return "No cluster is connected."
    silent = [c.name for c in every if c.failures]
    if silent:
        verb = "does" if len(silent) == 1 else "do"
        return f"{', '.join(silent)} {verb} not answer. Nothing is promised on what was not seen."
    return "1 cluster. It answers." if len(every) == 1 else f"{words.number(len(every))} clusters. All of them answer."


def _row(
    cluster: Cluster, offered: Sequence[KindOffered], booked: int, drift: int, acts: bool, current: bool
) -> ClusterRow:
    units, in_service = sum(o.units for o in offered), sum(o.in_service for o in offered)
    connection, tone = _connection(cluster)
    probe = cluster.probe or {}
    version = probe.get("version") or ""
    can = probe.get("capabilities") or {}
    name = cluster.name
    actions = (
        Action("Test", f"/operator/clusters/{name}/test", describe=f"Test {name}"),
        Action(
            "Stop writes" if cluster.writes else "Allow writes",
            f"/operator/clusters/{name}/writes",
            (("on", "" if cluster.writes else "1"),),
            describe=f"{'Stop' if cluster.writes else 'Allow'} writes to {name}",
        ),
    )
    return ClusterRow(
        name=name,
        href=f"/operator/clusters?cluster={name}",
        detail=" · ".join(
            part for part in (version or cluster.backend, "" if cluster.billed else "not billed") if part
        ),
        connection=connection,
        tone=tone,
        enforcement=can.get("enforcement", "none"),
        nodes=sum(o.nodes for o in offered),
        units=units,
        booked=booked,
        out_of_service=units - in_service,
        drift=drift,
        last_sync=cluster.synced_at,
        writes=cluster.writes,
        actions=actions if acts else (),
        current=current,
    )


def _connection(cluster: Cluster) -> tuple[str, Tone]:
    if cluster.failures:
        return f"Failed {words.number(cluster.failures)}×", "bad"
    if cluster.synced_at is None:
        return "Not seen yet", "info"
    if (cluster.probe or {}).get("missing"):
        return "Connected, rights missing", "warn"
    return "Connected", "ok"


_CAPABILITIES = (
    ("Keeps others out", "enforcement"),
    ("Parts of a node", "partial_nodes"),
    ("Reservations", "reservations"),
    ("Starts workloads", "launch"),
    ("Measures use", "metrics"),
    ("Accounting", "accounting"),
    ("Topology", "topology"),
    ("MIG slices", "mig"),
    ("All nodes at once", "gang"),
)


def _capabilities(every: Sequence[Cluster]) -> tuple[Capability, ...]:
    if not any((c.probe or {}).get("capabilities") for c in every):
        return ()
    return tuple(
        Capability(label, tuple(_cell((c.probe or {}).get("capabilities"), key) for c in every))
        for label, key in _CAPABILITIES
    )


def _cell(can: Mapping[str, Any] | None, key: str) -> CapabilityCell:
    value = (can or {}).get(key)
    if value is None:
        return CapabilityCell("unknown")
    if isinstance(value, bool):
        return CapabilityCell("yes" if value else "no")
    if value in ("hard", "soft"):
        return CapabilityCell(value)
    return CapabilityCell("no") if value == "none" else CapabilityCell("yes", str(value))


def _queue(waiting: queries.WorkWaiting) -> QueueRow:
    hint = f"{waiting.in_flight} in flight" if waiting.in_flight else ""
    return QueueRow(f"{waiting.cluster}, bookings", hint, waiting.due, waiting.retrying, waiting.stuck, waiting.oldest)


def _drift(work: Work, cluster: Cluster, now: datetime) -> list[tuple[str, DriftRow]]:
    rows = [
        (
            cluster.name,
            DriftRow(
                what=one.name,
                hint=f"{cluster.name}",
                wanted="held, as booked",
                observed=one.seen,
                since=one.since or now,
                happens=one.error or "Looked at again shortly; people see the condition at their booking.",
            ),
        )
        for one in queries.drifting(work, cluster.id)
    ]
    probe = cluster.probe or {}
    for stray in probe.get("strays", ()):
        since = datetime.fromisoformat(stray["since"]) if stray.get("since") else now
        happens = "No booking of this database knows it. Berth leaves it alone: remove it on the cluster by hand."
        rows.append(
            (cluster.name, DriftRow(stray["name"], cluster.name, "nothing", "an object of ours", since, happens))
        )
    for name in probe.get("unlisted", ()):
        happens = "Import it to offer its units."
        seen = cluster.synced_at or now
        rows.append((cluster.name, DriftRow(name, cluster.name, "not in the inventory", "a node", seen, happens)))
    return rows


def _drifting(drift: Sequence[tuple[str, DriftRow]], cluster: Cluster) -> int:
    return sum(name == cluster.name for name, _ in drift)
