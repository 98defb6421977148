"""What the operator's pages show: clusters with their tests, queues and drift; nodes and their import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import ClassVar, Literal

from app.web.views.parts import Action, Empty, Link, Option, Pager, Step, Tone

Enforcement = Literal["hard", "soft", "none"]


@dataclass(frozen=True)
class ClusterRow:
    """A cluster. `writes` is the switch that stops all writes; `switch` turns it over."""

    name: str
    href: str
    detail: str
    connection: str
    tone: Tone
    enforcement: Enforcement
    nodes: int
    units: int
    booked: int
    out_of_service: int
    drift: int
    last_sync: datetime | None
    writes: bool
    actions: tuple[Action, ...] = ()
    current: bool = False


@dataclass(frozen=True)
class ConnectionTest:
    """A connection test step by step; `running` while it goes on (the page looks again every 2 s at `href`)."""

    cluster: str
    at: datetime | None
    summary: str
    steps: tuple[Step, ...]
    again: Action | None = None
    running: bool = False
    href: str = ""


@dataclass(frozen=True)
class CapabilityCell:
    """What one cluster can do: "hard", "soft", "yes", "no", "unknown" and how."""

    value: Literal["hard", "soft", "yes", "no", "unknown"]
    how: str = ""


@dataclass(frozen=True)
class Capability:
    """A row: one cell per cluster of the page, in its order."""

    name: str
    cells: tuple[CapabilityCell, ...]


@dataclass(frozen=True)
class QueueRow:
    """Work that brings a cluster to what bookings say."""

    name: str
    hint: str
    waiting: int
    retrying: int
    stuck: int
    oldest: timedelta | None


@dataclass(frozen=True)
class DriftRow:
    """Where a cluster is not as Berth wants it."""

    what: str
    hint: str
    wanted: str
    observed: str
    since: datetime
    happens: str
    actions: tuple[Action, ...] = ()


@dataclass(frozen=True)
class ClustersPage:
    """GET /operator/clusters?cluster= : is a cluster wrong, and what helps?"""

    template: ClassVar[str] = "operator/clusters.html"
    sentence: str
    clusters: tuple[ClusterRow, ...]
    test: ConnectionTest | None
    capability_clusters: tuple[str, ...]
    capabilities: tuple[Capability, ...]
    queues: tuple[QueueRow, ...]
    drift: tuple[DriftRow, ...]
    actions: tuple[Action, ...] = ()
    connect_href: str | None = None


@dataclass(frozen=True)
class BackendHelp:
    """A kind of cluster that can be connected, and what its settings mean, in its own words."""

    name: str
    text: str


@dataclass(frozen=True)
class ConnectForm:
    """Posts name, backend, settings, secrets (lines of `name = value`), writes, billed, anyway, step ("test" or
    "connect") to /operator/clusters/connect. Secrets are never shown again."""

    backends: tuple[Option, ...]
    name: str = ""
    settings: str = ""
    writes: bool = True
    billed: bool = True
    offer_anyway: bool = False
    """Whether to offer connecting a cluster whose test failed."""
    errors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ConnectPage:
    """GET /operator/clusters/connect: what is wrong with the settings is seen before anything is kept."""

    template: ClassVar[str] = "operator/connect.html"
    form: ConnectForm
    helps: tuple[BackendHelp, ...]
    tested: bool = False
    verdict: str = ""
    tone: Tone = "info"
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class ConnectionTestView:
    """Fragment of the running test."""

    template: ClassVar[str] = "operator/_test.html"
    test: ConnectionTest


@dataclass(frozen=True)
class NodeRow:
    """A node as the API gives it; `observed_at` None: never seen."""

    name: str
    cluster: str
    kind: str
    units: int
    free: int
    external: int
    unhealthy: int
    state: str
    tone: Literal["ok", "warn", "bad", "mute"]
    rack: str
    leaf: str
    nvlink: str
    observed_at: datetime | None
    note: str = ""


@dataclass(frozen=True)
class ImportFault:
    """A line of the file that could not be taken, and why."""

    line: int
    column: str
    message: str


@dataclass(frozen=True)
class ImportResult:
    """What an import did. With errors nothing was changed; `preview` True: nothing was changed yet."""

    file: str
    lines: int
    added: int
    changed: int
    unchanged: int
    units: int
    errors: tuple[ImportFault, ...] = ()
    preview: bool = False
    actions: tuple[Action, ...] = ()


@dataclass(frozen=True)
class ImportForm:
    """Posts cluster, file, pool, dry_run to /operator/inventory/import as multipart."""

    clusters: tuple[Option, ...]
    formats: tuple[tuple[str, str], ...]
    """(name, header line) of each form that is understood."""


@dataclass(frozen=True)
class InventoryPage:
    """GET /operator/inventory?cluster=&kind=&state=&q="""

    template: ClassVar[str] = "operator/inventory.html"
    sentence: str
    clusters: tuple[Link, ...]
    kinds: tuple[Option, ...]
    states: tuple[Option, ...]
    nodes: tuple[NodeRow, ...]
    form: ImportForm
    query: str = ""
    hidden: tuple[tuple[str, str], ...] = ()
    result: ImportResult | None = None
    pager: Pager = field(default_factory=Pager)
    csv: str | None = None
    empty: Empty = field(
        default_factory=lambda: Empty(
            "No node here", "Import a node list, or connect a cluster and let it be observed.", None, "server-2"
        )
    )
