"""What the project page shows: usage by member and kind, cost, limits, idle bookings, members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar

from app.web.views.parts import Action, Condition, Empty, Link, Meter, Money, Note


@dataclass(frozen=True)
class Burn:
    """Cumulative cost by day against the budget; `forecast` continues `used` (same days, None where it is not)."""

    days: tuple[date, ...]
    used: tuple[Decimal | None, ...]
    forecast: tuple[Decimal | None, ...]
    budget: Decimal | None
    today: date


@dataclass(frozen=True)
class UsageRow:
    """A member (or kind). `hours` are unit-seconds, one per kind of the page, in its order. used None: not known."""

    label: str
    detail: str
    hours: tuple[int, ...]
    cost: Decimal
    used: Fraction | None


@dataclass(frozen=True)
class DailySeries:
    """Unit-hours a day of one member or kind, for the stacked chart; same order as the rows."""

    label: str
    hours: Sequence[float]


@dataclass(frozen=True)
class IdleBooking:
    """A booking that is idle now, with what releasing it gives back."""

    name: str
    href: str
    condition: Condition
    text: str
    actions: tuple[Action, ...] = ()


@dataclass(frozen=True)
class HeldBooking:
    """An active or coming booking and what it still holds of the budget."""

    name: str
    href: str
    person: str
    units: int
    start: datetime
    end: datetime
    held: Decimal
    active: bool


@dataclass(frozen=True)
class MemberRow:
    """A member and their role ("lead", "member", "viewer")."""

    name: str
    email: str
    role: str


@dataclass(frozen=True)
class ProjectPage:
    """GET /projects/{slug}?month=2026-11&by=member|kind"""

    template: ClassVar[str] = "projects/page.html"
    name: str
    tenant: str
    sentence: str
    """Cost centre, price group, my role."""
    notes: tuple[Note, ...]
    month: date
    months: tuple[Link, ...]
    splits: tuple[Link, ...]
    split_label: str
    """Head of the first column: "Member" or "Kind"."""
    kinds: tuple[str, ...]
    rows: tuple[UsageRow, ...]
    total_hours: tuple[int, ...]
    total: Money
    days: tuple[date, ...]
    daily: tuple[DailySeries, ...]
    limits: tuple[Meter, ...]
    held: tuple[HeldBooking, ...]
    held_total: Money
    members: tuple[MemberRow, ...]
    idle: tuple[IdleBooking, ...] = ()
    idle_sentence: str = ""
    budget: Meter | None = None
    burn: Burn | None = None
    burn_sentence: str = ""
    csv: str | None = None
    empty: Empty = field(
        default_factory=lambda: Empty(
            "Nothing used this month",
            "Usage appears here while a booking of the project is active.",
            Link("Book GPUs", "/book"),
            "chart-bar",
        )
    )


@dataclass(frozen=True)
class ProjectsPage:
    """GET /projects: the projects of the scope that the person may see, with their meters."""

    template: ClassVar[str] = "projects/list.html"
    tenant: str
    projects: tuple[ProjectSummary, ...]


@dataclass(frozen=True)
class ProjectSummary:
    """A project in the list."""

    name: str
    href: str
    role: str
    cost_center: str
    active: int
    booked: int
    month_cost: Money
    month_hours: int
