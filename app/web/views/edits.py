"""What the pages show on which a booking is changed, and on which one's own use is claimed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar

from app.web.views.booking import Effect, State, VerbView
from app.web.views.parts import Empty, Link, Option


@dataclass(frozen=True)
class MoveForm:
    """Another time or cluster: `start` (local, `2026-12-01T09:00`), `hours` and `cluster` are sent by GET to see the
    effect, and posted to `href` as they were seen. `asked`: whether an effect was asked for; `blocked` says why it cannot
    be done."""

    href: str
    idempotency_key: str
    start: str
    hours: str
    clusters: tuple[Option, ...]
    effects: tuple[Effect, ...] = ()
    button: str = ""
    blocked: str = ""
    asked: bool = False


@dataclass(frozen=True)
class ChangePage:
    """GET /bookings/{number}/change: everything else that can be done with a booking, each with its effect."""

    template: ClassVar[str] = "booking/change.html"
    number: str
    name: str
    state: State
    start: datetime
    end: datetime
    verbs: tuple[VerbView, ...]
    move: MoveForm | None = None
    nothing: str = ""
    """Why there is nothing to change; empty when there is."""


@dataclass(frozen=True)
class UseRow:
    """What somebody uses without a booking. The form posts project, name and hours to `href`; `effects` are those of the
    hours chosen."""

    href: str
    idempotency_key: str
    node: str
    kind: str
    units: int
    what: str
    since: datetime
    until: datetime | None
    projects: tuple[Option, ...]
    lengths: tuple[Option, ...]
    effects: tuple[Effect, ...] = ()
    button: str = ""
    blocked: str = ""


@dataclass(frozen=True)
class UsesPage:
    """GET /uses: one's own use that nobody has booked."""

    template: ClassVar[str] = "booking/uses.html"
    rows: tuple[UseRow, ...]
    empty: Empty = field(
        default_factory=lambda: Empty(
            "Nothing to claim",
            "You use no units without a booking, as far as the clusters say.",
            Link("Book GPUs", "/book"),
        )
    )
