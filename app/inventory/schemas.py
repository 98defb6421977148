"""What the inventory's routes take and answer, in the shapes that outside programs rely on."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from fractions import Fraction
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from app.inventory.facts import Cluster, Imported, Kind, KindOffered, NodeNow
from app.kernel.errors import Invalid, Reason


class ClusterIn(BaseModel):
    """A cluster to connect. `secrets` are sealed and never shown again."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=63, examples=["alps"])
    backend: str = Field(max_length=63, examples=["simulated"])
    config: dict[str, Any] = Field(default_factory=dict)
    secrets: dict[str, str] = Field(default_factory=dict)
    writes: bool = True
    billed: bool = True


class WritesIn(BaseModel):
    """The switch that stops all writes to a cluster."""

    model_config = ConfigDict(extra="forbid")

    on: bool


class PolicyIn(BaseModel):
    """A pool's policy: rules by name, lengths in whole seconds, money as text; what is left out is the default."""

    model_config = ConfigDict(extra="forbid")

    policy: dict[str, Any] = Field(examples=[{"max_length": 604800, "grid": 900}])
    gap_seconds: int | None = Field(default=None, ge=0, le=86_400)


def node_json(node: NodeNow) -> dict[str, Any]:
    """A node as `GET /nodes` gives it."""
    return {
        "name": node.name,
        "cluster": node.cluster,
        "kind": node.kind,
        "units": node.units,
        "free": node.free,
        "external": node.external,
        "unhealthy": node.unhealthy,
        "state": node.state,
        "rack": node.rack,
        "leaf": node.leaf,
        "nvlink": node.nvlink,
        "observed_at": instant_text(node.observed_at),
        "maintenance": None
        if node.maintenance is None
        else {
            "name": node.maintenance[0],
            "start": instant_text(node.maintenance[1]),
            "end": instant_text(node.maintenance[2]),
        },
    }


def kind_json(kind: Kind, offered: list[KindOffered]) -> dict[str, Any]:
    """A kind with where it is offered. Exact figures are texts; null is not known."""
    return {
        "slug": kind.slug,
        "name": kind.name,
        "vendor": kind.vendor,
        "memory_gb": None if kind.memory_gb is None else str(kind.memory_gb),
        "tdp_watts": kind.tdp_watts,
        "node_kw": None if kind.node_kw is None else str(kind.node_kw),
        "units_per_node": kind.units_per_node,
        "aliases": list(kind.aliases),
        "slice_of": kind.slice_of,
        "share": str(Fraction(kind.share840, 840)),
        "clusters": [
            {"cluster": o.cluster, "nodes": o.nodes, "units": o.units, "in_service": o.in_service} for o in offered
        ],
    }


def cluster_json(cluster: Cluster, offered: list[KindOffered], *, operator: bool) -> dict[str, Any]:
    """A cluster. People see what it has and how it keeps others out; operators also how it is connected."""
    probe = cluster.probe or {}
    can = probe.get("capabilities") or {}
    shown: dict[str, Any] = {
        "name": cluster.name,
        "kinds": [{"kind": o.kind, "nodes": o.nodes, "units": o.units, "in_service": o.in_service} for o in offered],
        "enforcement": can.get("enforcement"),
        "partial_nodes": can.get("partial_nodes"),
        "billed": cluster.billed,
        "observed_at": instant_text(cluster.synced_at),
    }
    if operator:
        shown |= {
            "backend": cluster.backend,
            "config": dict(cluster.config),
            "writes": cluster.writes,
            "failures": cluster.failures,
            "last_error": cluster.last_error,
            "next_look": instant_text(cluster.retry_at),
            "probed_at": instant_text(cluster.probed_at),
            "probe": dict(probe),
        }
    return shown


def imported_json(done: Imported) -> dict[str, Any]:
    """What an import did, or would do."""
    return {
        "lines": done.lines,
        "skipped": done.skipped,
        "added": done.added,
        "changed": done.changed,
        "unchanged": done.unchanged,
        "units": done.units,
        "pools": list(done.pools),
        "dry_run": done.dry_run,
    }


def instant_text(at: datetime | None) -> str | None:
    """ISO 8601 in UTC."""
    return None if at is None else at.isoformat().replace("+00:00", "Z")


def cursor_after(node: NodeNow) -> str:
    """Where the next page begins, opaque to others."""
    return base64.urlsafe_b64encode(f"{node.cluster}\n{node.name}".encode()).decode().rstrip("=")


def read_cursor(text: str | None) -> tuple[str, str] | None:
    """The inverse of `cursor_after`; `Invalid` for what it never made."""
    if text is None:
        return None
    try:
        words = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
        cluster, name = words.split("\n")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        sentence = "This cursor is not one of ours. Take `next` of the page before as it is."
        raise Invalid("cursor", sentence, (Reason("cursor", sentence, field="cursor", in_request=True),)) from None
    return cluster, name
