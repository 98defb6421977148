"""What the page of notices shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from app.web.views.booking import Notice
from app.web.views.parts import Action, Empty, Link, Pager


@dataclass(frozen=True)
class NoticesPage:
    """GET /notices : everything that a person was told, newest first. `ways`: all, or the unread ones."""

    template: ClassVar[str] = "notices/page.html"
    notices: tuple[Notice, ...]
    ways: tuple[Link, ...]
    unread: int
    mailed: bool
    """Whether this installation also sends mail."""
    pager: Pager = field(default_factory=Pager)
    read: Action = field(default_factory=lambda: Action("Mark all as read", "/notices/read", (("next", "/notices"),)))
    empty: Empty = field(
        default_factory=lambda: Empty(
            "Nothing to know",
            "Warnings before a booking ends, lost units, offers and answers appear here.",
            Link("Home", "/"),
            icon="bell",
        )
    )
