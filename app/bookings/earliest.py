"""When a shape fits: the earliest start, exact to the second, and how many places there are at each start of a grid.

Pure. `prepare` turns a pool's busy ranges into the gaps between them, which serve every question until the pool's
version changes. It must not know policies: the caller says from when, until when, and on which grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from app.bookings.capacity import Ints, PoolSnapshot, Shape


@dataclass(frozen=True, slots=True)
class Grid:
    """Starts are whole multiples of `seconds` from `origin`."""

    seconds: int
    origin: datetime


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A pool with the gaps between what is taken, sorted for searching. Made by `prepare`; safe to share and to
    cache."""

    pool: PoolSnapshot


def prepare(pool: PoolSnapshot) -> Prepared:
    """Sort what is free of a pool: tens of milliseconds for a hundred thousand holds, then every search is quick."""
    raise NotImplementedError


def earliest(
    pool: PoolSnapshot | Prepared,
    shape: Shape,
    seconds: int,
    not_before: datetime,
    ends_by: datetime,
    gap: int = 0,
    grid: Grid | None = None,
) -> datetime | None:
    """The earliest start at which `place` finds a place for `seconds`, the window ending by `ends_by` (the gap may lie
    beyond); None when there is none. Exact: without a grid every second is considered, with one `not_before` itself and
    the grid's points after it.
    """
    raise NotImplementedError


def longest(pool: PoolSnapshot | Prepared, shape: Shape, start: datetime, gap: int = 0) -> int:
    """The most seconds for which `place` finds a place at exactly this start; 0 when none, huge when nothing
    follows."""
    raise NotImplementedError


def free_starts(
    pool: PoolSnapshot | Prepared,
    shape: Shape,
    seconds: int,
    first: datetime,
    steps: int,
    step: timedelta,
    gap: int = 0,
) -> Ints:
    """For each of `steps` starts (`first`, `first + step` ...) how many such places there are side by side."""
    raise NotImplementedError


def free_profile(pool: PoolSnapshot | Prepared, first: datetime, steps: int, step: timedelta) -> Ints:
    """For each of `steps` stretches `[first + i step, first + (i + 1) step)` how many units are free throughout it."""
    raise NotImplementedError
