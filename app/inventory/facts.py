"""The frozen values in which the inventory speaks to other rooms. Pure; knows no database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from app.inventory.policy import Policy

POSITIONS_PER_GPU = 64
FOREVER = 1 << 40
"""Epoch second after every real one: the end of what nobody knows the end of."""
Range = tuple[int, int]
Taken = tuple[int, int, int, int]
"""Positions `[lower, upper)` taken from one epoch second to another, half-open."""


@dataclass(frozen=True, slots=True)
class Kind:
    """An accelerator kind. GB are 10^9 bytes; memory and watts are of one unit. None is not known.

    `facts` holds the rest of the catalogue: aliases, form factor, bandwidth, link, partitions, source, confidence.
    """

    slug: str
    name: str
    vendor: str
    memory_gb: Decimal | None
    tdp_watts: int | None
    node_kw: Decimal | None
    units_per_node: int
    facts: Mapping[str, Any] = field(compare=False)

    @property
    def aliases(self) -> tuple[str, ...]:
        """Other words for it: those of clusters and traces."""
        return tuple(self.facts.get("aliases", ()))

    @property
    def slice_of(self) -> str | None:
        """The kind of the GPU of which units of this kind are slices; None: they are whole."""
        return self.facts.get("slice_of")

    @property
    def share840(self) -> int:
        """The share of a GPU's computing that a unit has, in 840ths."""
        return int(self.facts.get("share840", 840))


@dataclass(frozen=True, slots=True)
class Cluster:
    """One scheduler with its nodes. `writes` off: Berth looks and changes nothing. `billed` off: use is never charged.

    `synced_at`, `probed_at`: the last good look, by the product clock. `failures` counts looks that failed since then,
    `last_error` is the last one's sentence, `retry_at` when the next look is due (None: at once).
    """

    id: int
    name: str
    backend: str
    config: Mapping[str, Any]
    writes: bool
    billed: bool
    probe: Mapping[str, Any] | None
    probed_at: datetime | None
    synced_at: datetime | None
    failures: int
    retry_at: datetime | None
    last_error: str | None


@dataclass(frozen=True, slots=True)
class Pool:
    """Units of one kind on one cluster under one policy. `slice_of`: its units are slices of that kind, each `share840`
    of a whole one.

    `version` rises with every change of holds or capacity, `capacity_version` changes only when nodes, units or what is
    seen of them do, and never comes back.
    """

    id: int
    cluster_id: int
    cluster: str
    name: str
    kind: str
    policy: Policy
    version: int
    capacity_version: int
    writes: bool
    billed: bool
    slice_of: str | None = None
    share840: int = 840


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """A node with its units as ranges of positions, in order. `offered` is a bit mask over `units` (bit 0 the first):
    node ready and observed, unit without fault. Units that are not offered are installed, but no capacity."""

    node_id: int
    name: str
    first_gpu: int
    units: tuple[Range, ...]
    offered: int
    rack: str | None
    leaf: str | None
    nvlink: str | None
    state: str


@dataclass(frozen=True, slots=True)
class PowerBudget:
    """What the nodes of a rack, leaf or cluster may draw together, in watts."""

    id: int
    cluster_id: int
    cluster: str
    level: str
    name: str
    watts: int


@dataclass(frozen=True, slots=True)
class FedNode:
    """What one GPU of a node draws, in watts, and the node's budgets as indices: of its rack, its leaf, its cluster."""

    node_id: int
    watts: int
    budgets: tuple[int | None, int | None, int | None]


@dataclass(frozen=True, slots=True)
class HostTaken:
    """What external use has of a node's CPU (thousandths of a core) and memory (MiB), of how much in all (None: nobody
    knows), with which units, from one epoch second to another."""

    node_id: int
    cpu_milli: int
    memory_mib: int
    all_cpu_milli: int | None
    all_memory_mib: int | None
    units: tuple[Range, ...]
    start: int
    end: int


@dataclass(frozen=True, eq=False)
class PoolCapacity:
    """What a pool can give at one capacity version, without holds. Compared and hashed by identity, so that others can
    keep what they derive from it in a WeakKeyDictionary.

    `taken` is external use, and the times in which a unit is not there yet or no more. `hosts`: what it takes of the
    nodes beside units. `budgets`: power budgets of the cluster; `fed`: what the nodes under them draw, those of other pools too.
    """

    pool_id: int
    cluster_id: int
    kind: str
    nodes: tuple[NodeCapacity, ...]
    taken: tuple[Taken, ...]
    hosts: tuple[HostTaken, ...] = ()
    budgets: tuple[PowerBudget, ...] = ()
    fed: Mapping[int, FedNode] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeName:
    """How a node is called and which GPUs it has (`first_gpu` .. `first_gpu + gpus - 1`)."""

    id: int
    name: str
    cluster: str
    cluster_id: int
    pool_id: int
    first_gpu: int
    gpus: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import of nodes did, or with `dry_run` would do. `lines` are the lines of nodes read, `skipped` those
    without a GPU; `units` are those of all nodes named in the file."""

    lines: int
    skipped: int
    added: int
    changed: int
    unchanged: int
    units: int
    pools: tuple[str, ...]
    dry_run: bool


@dataclass(frozen=True, slots=True)
class NodeNow:
    """A node as it is now. `free` units can be booked from now on for some time; `external` are in use by others than
    Berth; `unhealthy` have an open fault. A node that is not ready, or in maintenance, has no free units, whatever its units are."""

    id: int
    name: str
    cluster: str
    kind: str
    units: int
    free: int
    external: int
    unhealthy: int
    state: str
    why: str | None
    rack: str | None
    leaf: str | None
    nvlink: str | None
    observed_at: datetime | None
    maintenance: tuple[str, datetime, datetime] | None = None
    """What is done on it, from when until when: now, or next as far as it is announced."""

    def worked_on(self, now: datetime) -> bool:
        """Whether maintenance is going on."""
        return self.maintenance is not None and self.maintenance[1] <= now


@dataclass(frozen=True, slots=True)
class KindOffered:
    """How many units of a kind a cluster has installed, and how many of them are in service."""

    cluster: str
    kind: str
    nodes: int
    units: int
    in_service: int
