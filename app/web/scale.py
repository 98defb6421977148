"""Where things lie on bars and time axes, in per cent: plain arithmetic for SVG attributes. No HTML, no clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cache
from zoneinfo import ZoneInfo

from app.web import words
from app.web.views.booking import TimelineRow
from app.web.views.parts import Meter

Number = Decimal | Fraction | int | float


@cache
def zone(name: str) -> ZoneInfo:
    """The zone of that IANA name."""
    return ZoneInfo(name)


def share(part: Number, whole: Number) -> str:
    """`part` of `whole` as an SVG length: `23.75%`, kept between 0 and 100."""
    if not whole:
        return "0%"
    ratio = part / whole if isinstance(part, float) else float(Fraction(part) / Fraction(whole))
    return f"{min(max(ratio, 0.0), 1.0) * 100:.3f}".rstrip("0").rstrip(".") + "%"


@dataclass(frozen=True)
class Place:
    """A bar on a time axis: `x` and `width` as SVG lengths; `visible` False when it lies outside."""

    x: str
    width: str
    visible: bool
    percent: float


def place(start: datetime, end: datetime, left: datetime, right: datetime) -> Place:
    """Where [start, end) lies on an axis from `left` to `right`, cut at its ends."""
    whole = (right - left).total_seconds()
    begins, ends = max(start, left), min(end, right)
    width = max(0.0, (ends - begins).total_seconds())
    return Place(share((begins - left).total_seconds(), whole), share(width, whole), width > 0, width / whole * 100)


def fit(label: str, percent: float) -> str:
    """As much of a label as fits a bar that takes so many per cent of the axis; empty when that says nothing.

    Whole words and no ellipsis: what is read must be part of the bar's full name.
    """
    room = int((percent - 1.4) / 0.62)
    if len(label) <= room:
        return label
    cut = label[: max(room, 0) + 1].rpartition(" ")[0].rstrip(" ,:") or label[:room]
    return cut if room >= 7 else ""


def whole(row: TimelineRow) -> bool:
    """Whether every bar of a node takes all its units: such rows need no lanes. Others' part bookings do not count."""
    return all(bar.count == row.units or bar.kind in ("busy", "faulty") for bar in row.bars)


@dataclass(frozen=True)
class Tick:
    """A mark on a time axis: a day (`major`, labelled at its left) or an hour (labelled in the middle)."""

    x: str
    label: str
    major: bool


def ticks(left: datetime, right: datetime, zone_name: str) -> tuple[Tick, ...]:
    """Local midnights, and hours between them as close as they can be read."""
    tz, whole = zone(zone_name), (right - left).total_seconds()
    days = whole / 86400
    step = 2 if days <= 1.2 else 6 if days <= 7.5 else 12 if days <= 15 else 0
    found, day = [], left.astimezone(tz).date()
    while (midnight := datetime.combine(day, time.min, tz).astimezone(UTC)) < right:
        if midnight >= left:
            found.append(Tick(share((midnight - left).total_seconds(), whole), words.day(day, day.year), True))
        for hour in range(step, 24, step) if step else ():
            instant = datetime.combine(day, time(hour), tz).astimezone(UTC)
            if left < instant < right:
                found.append(Tick(share((instant - left).total_seconds(), whole), f"{hour:02d}", False))
        day += timedelta(days=1)
    return tuple(found)


def heat_step(free: int, of: int) -> int:
    """The step of the heat scale: 0 none, 1 to 4 a quarter each, 5 only when all are free."""
    if free <= 0 or of <= 0:
        return 0
    return min(5, 1 + free * 4 // of)


@dataclass(frozen=True)
class MeterBar:
    """Lengths of a meter's parts; `mark` is the limit when the bar is scaled to what was asked."""

    used: str
    held_x: str
    held: str
    this_x: str
    this: str
    forecast: str | None
    limit_mark: str | None
    before: Fraction | None
    """Available without this booking."""
    available: Fraction | None
    over: Fraction


def meter_bar(meter: Meter) -> MeterBar:
    """A meter's bar. Over the limit, the bar is scaled to the sum and the limit becomes a mark."""
    used, held, this = Fraction(meter.used), Fraction(meter.held), Fraction(meter.this)
    total = used + held + this
    limit = None if meter.limit is None else Fraction(meter.limit)
    over = max(Fraction(0), total - limit) if limit is not None else Fraction(0)
    whole = total if over or limit is None else limit
    return MeterBar(
        used=share(used, whole),
        held_x=share(used, whole),
        held=share(held, whole),
        this_x=share(used + held, whole),
        this=share(this, whole),
        forecast=None if meter.forecast is None else share(Fraction(meter.forecast), whole),
        limit_mark=share(limit, whole) if over and limit is not None else None,
        before=None if limit is None else limit - used - held,
        available=None if limit is None else limit - total,
        over=over,
    )
