"""What the pages of series and classes show: the form for more than one booking, what it would book, and what was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Literal

from app.web.views.parts import Action, Link, Money, Option


@dataclass(frozen=True)
class OneOfSeveral:
    """One occurrence, or one person's booking. `problems` say why it could not be booked; `note` what to know of it."""

    title: str
    start: datetime | None
    end: datetime | None
    label: str = ""
    state: str = ""
    """A state of bookings; empty: it would be possible."""
    price: Money | None = None
    problems: tuple[str, ...] = ()
    note: str = ""
    actions: tuple[Action, ...] = ()
    links: tuple[Link, ...] = ()


@dataclass(frozen=True)
class SeveralPreview:
    """What would be booked. Nothing was booked yet."""

    sentence: str
    rows: tuple[OneOfSeveral, ...]
    total: Money | None
    possible: bool


@dataclass(frozen=True)
class SeveralForm:
    """Posts to /book/series or /book/class with `step` (preview, book). Values are texts as they were typed."""

    projects: tuple[Option, ...]
    kinds: tuple[Option, ...]
    levels: tuple[Option, ...]
    repeats: tuple[Option, ...]
    conflicts: tuple[Option, ...]
    values: Mapping[str, str]
    hidden: tuple[tuple[str, str], ...]
    errors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SeveralPage:
    """GET /book/series, /book/class"""

    template: ClassVar[str] = "book/several.html"
    mode: Literal["series", "class"]
    title: str
    sentence: str
    form: SeveralForm
    preview: SeveralPreview | None = None
    changes: str = ""
    """The label of the series that is changed; empty: a new one is made."""
    teaches: bool = False
    """May book for a class."""


@dataclass(frozen=True)
class SeveralMade:
    """GET /series/{number}, /classes/{number}"""

    template: ClassVar[str] = "book/several_made.html"
    title: str
    sentence: str
    facts: tuple[tuple[str, str], ...]
    rows: tuple[OneOfSeveral, ...]
    total: Money | None
    column: str
    actions: tuple[Action, ...] = ()
