"""What the operator's page of maintenance shows: what is announced, the form, and what it would do to whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar

from app.web.views.parts import Action, Money, Option


@dataclass(frozen=True)
class MaintenanceRow:
    """One that is announced, going on, over, or called off (`state` in words)."""

    name: str
    why: str
    cluster: str
    nodes: str
    start: datetime
    end: datetime
    state: str
    tone: str
    made_by: str
    layout: str = ""
    call_off: Action | None = None


@dataclass(frozen=True)
class FateRow:
    """What becomes of one booking; `choices` are the values of the field `choice:<label>`, one alone is no choice."""

    label: str
    name: str
    whose: str
    booked_by: str
    start: datetime
    end: datetime
    done: str
    detail: str
    choices: tuple[Option, ...]
    back: Money | None = None


@dataclass(frozen=True)
class MaintenancePreview:
    """What it would do. Nothing was changed yet; the digest is posted with the confirmation."""

    sentence: str
    nodes: str
    fates: tuple[FateRow, ...]
    digest: str
    withdrawn: int = 0
    layout: tuple[tuple[str, str], ...] = ()
    """(node, how its GPUs are cut at the end), where that changes."""


@dataclass(frozen=True)
class MaintenanceForm:
    """Posts cluster, level, nodes, start, end, name, why, layout and `step` (preview, commit) to /operator/maintenance."""

    clusters: tuple[Option, ...]
    levels: tuple[Option, ...]
    nodes: str = ""
    start: str = ""
    end: str = ""
    name: str = ""
    why: str = ""
    layout: str = ""
    errors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PowerRow:
    """What a domain may draw; `remove` takes the budget away."""

    cluster: str
    domain: str
    watts: int
    remove: Action | None = None


@dataclass(frozen=True)
class MaintenancePage:
    """GET /operator/maintenance"""

    template: ClassVar[str] = "operator/maintenance.html"
    sentence: str
    rows: tuple[MaintenanceRow, ...]
    form: MaintenanceForm
    may_change: bool
    preview: MaintenancePreview | None = None
    power: tuple[PowerRow, ...] = ()
    """Budgets are set by POST /operator/power-budgets with cluster, level (rack, leaf, cluster), name and watts."""
