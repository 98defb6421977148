"""Fills the views of notices. Pure."""

from __future__ import annotations

from datetime import datetime

from app.notices.queries import Notice
from app.notices.wording import say
from app.web import views


def notice_row(notice: Notice, zone: str, now: datetime) -> views.Notice:
    """A notice as a list shows it to its person."""
    said = say(notice.kind, notice.payload, zone, now)
    return views.Notice(said.title, said.text, said.icon, said.href, notice.at, notice.read_at is None)
