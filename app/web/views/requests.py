"""What the page of requests shows: who asks for what, what a yes would do, and the two answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar

from app.web.views.booking import Shape
from app.web.views.parts import Empty, Link, Meter, Money


@dataclass(frozen=True)
class RequestCard:
    """One open request. `what`: what is asked for, in words; `whose`: project and tenant; `approve` and `reject` are where
    the answers are posted, with `why`. `total` is set where something is booked already."""

    id: str
    number: str
    name: str
    what: str
    whose: str
    person: str
    asked: datetime
    until: datetime
    shape: Shape
    cluster: str
    start: datetime
    end: datetime
    hours: str
    price: Money
    total: Money | None
    why: str
    meters: tuple[Meter, ...]
    approve: str
    reject: str
    href: str | None = None
    answers: bool = True


@dataclass(frozen=True)
class RequestsPage:
    """GET /approvals : everything that awaits an answer of the person, the one that lapses first at the head."""

    template: ClassVar[str] = "approvals/page.html"
    sentence: str
    requests: tuple[RequestCard, ...]
    empty: Empty = field(
        default_factory=lambda: Empty(
            "Nothing to answer",
            "What needs approval appears here, with its effect on money and limits.",
            Link("Home", "/"),
            icon="user-question",
        )
    )
