"""Statements about series and classes: their rows, and the bookings that belong to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from app.bookings.facts import Booking
from app.bookings.queries import list_where
from app.kernel import ids
from app.plumbing.db import Work


@dataclass(frozen=True, slots=True)
class Series:
    """A rule in local wall time. `wanted` is the request that each occurrence repeats, without its times."""

    id: UUID
    number: int
    project_id: UUID
    project: str
    name: str
    rule: str
    zone: str
    local_start: datetime
    local_end: datetime
    wanted: dict[str, Any]
    on_conflict: str
    account_id: UUID | None
    made_by: str
    made_at: datetime
    ended_at: datetime | None
    split_from: UUID | None
    version: int

    @property
    def public_id(self) -> str:
        """`sr_…`, as the API says it."""
        return ids.public(ids.SERIES, self.id)

    @property
    def label(self) -> str:
        """`S-12`, as people say it."""
        return f"S-{self.number}"


_SERIES = """
SELECT s.id, s.number, s.project_id, p.slug AS project, s.name, s.rule, s.zone, s.local_start, s.local_end, s.wanted,
       s.on_conflict, s.account_id, s.made_by, s.made_at, s.ended_at, s.split_from, s.version
  FROM series s JOIN projects p ON p.tenant_id = s.tenant_id AND p.id = s.project_id"""


def insert_series(work: Work, new: Series) -> int:
    """Write a series; returns its number."""
    row = work.pg.execute(
        """INSERT INTO series (tenant_id, id, project_id, name, rule, zone, local_start, local_end, wanted, on_conflict,
                               account_id, made_by, made_at, split_from, version)
           VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, 1) RETURNING number""",
        [work.tenant_id, new.id, new.project_id, new.name, new.rule, new.zone, new.local_start, new.local_end,
         Jsonb(new.wanted), new.on_conflict, new.account_id, new.made_by, new.made_at, new.split_from],
    ).fetchone()  # fmt: skip
    assert row is not None
    return row[0]


def find_series(work: Work, series_id: UUID | None, number: int | None = None) -> Series | None:
    """A series of the tenant by id or number, or None."""
    cursor = work.pg.cursor(row_factory=class_row(Series))
    return cursor.execute(f"{_SERIES} WHERE s.id = %s OR s.number = %s", [series_id, number]).fetchone()


def list_series(work: Work, projects: Sequence[UUID] | None) -> list[Series]:
    """Series, newest first. `projects` None: every project of the tenant."""
    cursor = work.pg.cursor(row_factory=class_row(Series))
    every = None if projects is None else list(projects)
    return cursor.execute(
        f"{_SERIES} WHERE %s::uuid[] IS NULL OR s.project_id = ANY(%s) ORDER BY s.number DESC LIMIT 500", [every, every]
    ).fetchall()


def lock_series(work: Work, series_id: UUID) -> Series | None:
    """Lock a series against every other edit of it, and read it as it is then."""
    work.pg.execute("SELECT FROM series WHERE id = %s FOR NO KEY UPDATE", [series_id])
    return find_series(work, series_id)


def end_series(work: Work, series_id: UUID, at: datetime, rule: str | None = None) -> None:
    """The series goes on no further; `rule` is what is left of it, None where nothing changes about that."""
    work.pg.execute(
        "UPDATE series SET ended_at = %s, rule = coalesce(%s, rule), version = version + 1 WHERE id = %s",
        [at, rule, series_id],
    )


def bookings_of_series(work: Work, series_id: UUID) -> list[Booking]:
    """Every booking of a series, in the order in which they occur."""
    return list_where(work, "b.series_id = %s ORDER BY b.occurs_at, b.number", [series_id])


def lock_bookings(work: Work, booking_ids: Sequence[UUID]) -> None:
    """Lock several bookings in the order of their ids."""
    work.pg.execute("SELECT FROM bookings WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE", [list(booking_ids)])


# --- classes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Class:
    """One request for several people; a booking each."""

    id: UUID
    number: int
    project_id: UUID
    project: str
    name: str
    account_id: UUID | None
    made_by: str
    made_at: datetime

    @property
    def public_id(self) -> str:
        """`cl_…`, as the API says it."""
        return ids.public(ids.CLASS, self.id)

    @property
    def label(self) -> str:
        """`C-3`, as people say it."""
        return f"C-{self.number}"


_CLASS = """
SELECT c.id, c.number, c.project_id, p.slug AS project, c.name, c.account_id, c.made_by, c.made_at
  FROM classes c JOIN projects p ON p.tenant_id = c.tenant_id AND p.id = c.project_id"""


def insert_class(
    work: Work, class_id: UUID, project_id: UUID, name: str, account_id: UUID | None, made_by: str, at: datetime
) -> None:
    """Write a class."""
    work.pg.execute(
        """INSERT INTO classes (tenant_id, id, project_id, name, account_id, made_by, made_at)
           VALUES (%s, %s, %s, %s, %s, %s, %s)""",
        [work.tenant_id, class_id, project_id, name, account_id, made_by, at],
    )


def find_class(work: Work, class_id: UUID | None, number: int | None = None) -> Class | None:
    """A class of the tenant by id or number, or None."""
    cursor = work.pg.cursor(row_factory=class_row(Class))
    return cursor.execute(f"{_CLASS} WHERE c.id = %s OR c.number = %s", [class_id, number]).fetchone()


def bookings_of_class(work: Work, class_id: UUID) -> list[Booking]:
    """Every booking of a class, by the name of its person."""
    return list_where(work, "b.class_id = %s ORDER BY b.booked_by, b.number", [class_id])


def members_named(work: Work, project_id: UUID, names: Sequence[str]) -> dict[str, tuple[UUID, str]]:
    """Of these e-mail addresses those of people of the project: address -> account and name."""
    rows = work.pg.execute(
        """SELECT DISTINCT lower(a.email), a.id, a.name FROM accounts a JOIN memberships m ON m.account_id = a.id
            WHERE m.project_id = %s AND m.role IN ('member', 'lead') AND NOT a.disabled AND lower(a.email) = ANY(%s)""",
        [project_id, [name.lower() for name in names]],
    ).fetchall()
    return {email: (account, name) for email, account, name in rows}
