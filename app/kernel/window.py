"""Half-open intervals of UTC instants in whole seconds, and how local days cut them. Knows no database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """`[start, end)`: the start is included, the end is not. Both aware, UTC, whole seconds, start < end."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        for instant in (self.start, self.end):
            if instant.tzinfo is not UTC and instant.utcoffset() != timedelta(0):
                raise ValueError(f"a window's instants are in UTC, not {instant!r}")
            if instant.microsecond:
                raise ValueError(f"a window's instants are whole seconds, not {instant!r}")
        if self.start >= self.end:
            raise ValueError(f"a window starts before it ends: {self.start} .. {self.end}")

    @property
    def seconds(self) -> int:
        """Length in seconds."""
        return int((self.end - self.start).total_seconds())

    def overlaps(self, other: Window) -> bool:
        """True when some instant lies in both; windows that touch do not overlap."""
        return self.start < other.end and other.start < self.end

    def contains(self, instant: datetime) -> bool:
        """True when the instant lies inside; the end does not."""
        return self.start <= instant < self.end

    def intersect(self, other: Window) -> Window | None:
        """The part in both, or None."""
        start, end = max(self.start, other.start), min(self.end, other.end)
        return Window(start, end) if start < end else None

    def cut(self, instants: Iterable[datetime]) -> Iterator[Window]:
        """The pieces of this window between the given instants, in order; instants outside are ignored."""
        edges = [self.start, *sorted({i for i in instants if self.start < i < self.end}), self.end]
        for start, end in pairwise(edges):
            yield Window(start, end)


def local_midnight(day: date, zone: ZoneInfo) -> datetime:
    """The first instant of a local day, in UTC (where midnight does not exist: the first instant after the jump)."""
    return datetime.combine(day, time.min, zone).astimezone(UTC)


def local_midnights(window: Window, zone: ZoneInfo) -> list[datetime]:
    """The local midnights inside the window (its start excluded), as UTC instants in order."""
    day = window.start.astimezone(zone).date() + timedelta(days=1)
    midnights = []
    while (midnight := local_midnight(day, zone)) < window.end:
        if midnight > window.start:
            midnights.append(midnight)
        day += timedelta(days=1)
    return midnights


def instants_of(local: datetime, zone: ZoneInfo) -> tuple[datetime, ...]:
    """The UTC instants at which clocks there show this local time: none, one, or two in order."""
    found = []
    for fold in (0, 1):
        instant = local.replace(tzinfo=zone, fold=fold).astimezone(UTC)
        if instant.astimezone(zone).replace(tzinfo=None, fold=0) == local and instant not in found:
            found.append(instant)
    return tuple(found)


def split_days(window: Window, zone: ZoneInfo) -> list[tuple[date, Window]]:
    """The window cut at local midnights, each piece with its local day. Days have 23 to 26 hours."""
    return [(p.start.astimezone(zone).date(), p) for p in window.cut(local_midnights(window, zone))]


def month_window(year: int, month: int, zone: ZoneInfo) -> Window:
    """A calendar month in the given zone, as UTC instants."""
    following = date(year + month // 12, month % 12 + 1, 1)
    return Window(local_midnight(date(year, month, 1), zone), local_midnight(following, zone))


def month_of(instant: datetime, zone: ZoneInfo) -> tuple[int, int]:
    """(year, month) of an instant in the given zone."""
    local = instant.astimezone(zone)
    return local.year, local.month
