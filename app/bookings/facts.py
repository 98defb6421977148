"""Frozen values of the room as rows have them. Pure: what actions, reconcile and other rooms are handed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from app.kernel import ids
from app.kernel.window import Window


@dataclass(frozen=True, slots=True)
class Project:
    """A project and what its tenant decides about time and money."""

    tenant_id: UUID
    id: UUID
    slug: str
    name: str
    cost_centre: str
    ended_at: datetime | None
    tenant: str
    zone: str
    currency: str
    price_group: str
    renewal_asked_at: datetime | None = None
    renewal_grace_seconds: int = 0


@dataclass(frozen=True, slots=True)
class Booking:
    """One row of bookings, with the names that go with it.

    `released_at` and `left_by`: from when nothing is charged any more and by which event; None while it goes on.
    """

    id: UUID
    tenant_id: UUID
    project_id: UUID
    project: str
    project_name: str
    number: int
    name: str
    cost_centre: str
    reference: str
    state: str
    outcome: str | None
    kind: str
    kind_name: str
    cluster_id: int
    cluster: str
    pool_id: int
    units: int
    nodes: int | None
    per_node: int | None
    within: str | None
    share840: int
    starts_at: datetime
    ends_at: datetime
    provided_at: datetime | None
    released_at: datetime | None
    left_by: str | None
    emptied_at: datetime | None
    asked: bool
    currency: str
    quoted: Decimal
    zone: str
    account_id: UUID | None
    booked_by: str
    booked_at: datetime
    workload: dict[str, Any] | None
    first_used_at: datetime | None
    metered_until: datetime | None
    version: int
    near: str | None = None
    shared: bool = False
    series_id: UUID | None = None
    occurs_at: datetime | None = None
    class_id: UUID | None = None

    @property
    def window(self) -> Window:
        """What was booked."""
        return Window(self.starts_at, self.ends_at)

    @property
    def public_id(self) -> str:
        """`bk_…`, as the API says it."""
        return ids.public(ids.BOOKING, self.id)

    @property
    def label(self) -> str:
        """`B-2417`, as people say it."""
        return f"B-{self.number}"


@dataclass(frozen=True, slots=True)
class Held:
    """A hold of a booking: positions of units on one node. `during` ends with the cleaning gap.

    `left_at`: from when these units are no longer the booking's; they stay blocked until they are seen empty.
    """

    id: UUID
    node_id: int
    node: str
    first_gpu: int
    rack: str | None
    leaf: str | None
    ranges: tuple[tuple[int, int], ...]
    start: datetime
    end: datetime
    live: bool
    pinned: bool
    left_at: datetime | None = None
    width: int = 64
    """Positions of one unit: 64 for whole GPUs, less for slices."""

    @property
    def units(self) -> tuple[tuple[int, int], ...]:
        """Its units one by one, as ranges of positions."""
        return tuple((at, at + self.width) for lower, upper in self.ranges for at in range(lower, upper, self.width))

    @property
    def gpus(self) -> tuple[int, ...]:
        """Numbers of the GPUs within the installation, each once."""
        return tuple(sorted({g for lower, upper in self.ranges for g in range(lower // 64, (upper + 63) // 64)}))

    @property
    def local_gpus(self) -> tuple[int, ...]:
        """The same as the node numbers them."""
        return tuple(g - self.first_gpu for g in self.gpus)


@dataclass(frozen=True, slots=True)
class Allocation:
    """What should be and was seen on a cluster."""

    id: UUID
    cluster_id: int
    name: str
    generation: int
    gone: bool
    wanted: int
    ensured: int
    seen: str | None
    seen_at: datetime | None
    in_place_since: datetime | None
    empty_since: datetime | None
    failures: int
    last_error: str | None


@dataclass(frozen=True, slots=True)
class PriceSegment:
    """A piece of the frozen price schedule. `units`: how many it is for; None: as many as the booking has."""

    window: Window
    price_id: int
    per_hour: Decimal
    units: int | None = None


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """Who did what, when, why, from what to what."""

    at: datetime
    actor: str
    event: str
    before: str | None
    after: str
    why: str
    changes: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class ConditionLine:
    """A condition beside the state."""

    type: str
    since: datetime
    until: datetime | None
    why: str
