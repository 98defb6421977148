"""Until when something can be booked in a project. Pure.

A project whose renewal was asked for counts as open until its grace is over.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from app.bookings import rules
from app.bookings.facts import Project
from app.kernel.errors import Reason


def ends_at(project: Project) -> datetime | None:
    """When nothing new is booked in it any more: its end, or the end of the grace while a renewal is asked for."""
    if project.ended_at is None or project.renewal_asked_at is None:
        return project.ended_at
    return project.ended_at + timedelta(seconds=project.renewal_grace_seconds)


def closed(project: Project, now: datetime, until: datetime | None = None) -> Reason | None:
    """Why nothing can be booked in the project now, or not for as long as `until`."""
    end = ends_at(project)
    if end is None or (now < end and (until is None or until <= end)):
        return None
    if now >= end:
        return Reason("project_ended", f"The project {project.name} has ended.", rules.iso(end), None,
                      "Ask a tenant admin to renew it.", "project")  # fmt: skip
    return Reason("project_ends", f"The project {project.name} ends {rules.iso(end)}.", rules.iso(end),
                  rules.iso(until or now), "End it by then, or ask a tenant admin to renew the project.", "end")  # fmt: skip
