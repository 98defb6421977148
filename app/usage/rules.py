"""What of a booking is charged time, in which pieces, and how measurements split it. Pure; knows no database.

Reserved time comes from events alone: from the instant a booking was provided to its end or release, to the second.
Samples never change it; they say what of it was used. A gap in them is *unknown*, which is not idle.
Quantities as in kernel.money: unit-seconds x 840 x share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID, uuid5
from zoneinfo import ZoneInfo

from app.kernel.window import Window, local_midnights

_INTERVALS = UUID("6b1f6a52-0a52-5a0e-9d8c-4a6f0c1f5d11")
HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Interval:
    """Reserved units over a time. `units` is the text of a multirange of positions; equal intervals have equal ids."""

    id: UUID
    booking_id: UUID
    units: str
    window: Window
    quantity: int


@dataclass(frozen=True, slots=True)
class Reading:
    """Whether a workload held one GPU over a stretch; `in_use` None: not known. `weight` is the GPU's share x 840."""

    gpu: tuple[str | int, int]
    window: Window
    in_use: bool | None


@dataclass(frozen=True, slots=True)
class Split:
    """Reserved quantity by what is known of it. The three parts add up to what was reserved.

    `excess`: quantity that was reported in use outside the piece (a skewed clock); counted nowhere.
    """

    used: int
    unused: int
    unknown: int
    excess: int = 0


def charge_window(provided_at: datetime | None, ends_at: datetime, released_at: datetime | None) -> Window | None:
    """From provided to the end or the release, whichever is first; None when there is nothing to charge."""
    end = ends_at if released_at is None else min(ends_at, released_at)
    if provided_at is None or end <= provided_at:
        return None
    return Window(provided_at, end)


def reserved(window: Window, zone: ZoneInfo, cuts: Iterable[datetime]) -> tuple[Window, ...]:
    """The charged time in the pieces in which it is written: cut at local midnights and where the price changes.

    The cuts do not depend on when one looks, so a rebuild gives the same pieces.
    """
    return tuple(window.cut([*local_midnights(window, zone), *cuts]))


def ended(pieces: Sequence[Window], now: datetime, since: datetime | None = None) -> tuple[Window, ...]:
    """The pieces that are over at `now` and not yet behind the cursor `since`."""
    return tuple(p for p in pieces if p.end <= now and (since is None or p.end > since))


def next_end(pieces: Sequence[Window], now: datetime) -> datetime | None:
    """When the next piece is over; None when all are."""
    return next((p.end for p in pieces if p.end > now), None)


def interval_id(booking_id: UUID, units: str, window: Window) -> UUID:
    """The id of an interval, from what it says."""
    return uuid5(_INTERVALS, f"{booking_id} {units} {window.start.isoformat()} {window.end.isoformat()}")


def hours_of(window: Window, zone: ZoneInfo) -> tuple[Window, ...]:
    """The stretches by which use is kept: hours of UTC, cut at local midnights so that no row lies in two months."""
    first = window.start.replace(minute=0, second=0)
    count = int((window.end - first) / HOUR) + 1
    return tuple(window.cut([*(first + n * HOUR for n in range(count + 1)), *local_midnights(window, zone)]))


def split(
    readings: Iterable[Reading], window: Window, weights: Mapping[tuple[str | int, int], int], reserved_quantity: int
) -> Split:
    """Split what was reserved in the window into used, unused and unknown.

    `weights` maps each booked GPU to its booked share x 840. Where readings of a GPU contradict each other, in use
    counts: the union is taken, so nothing is counted twice and used never passes what was reserved.
    """
    busy: dict[tuple[str | int, int], list[Window]] = {gpu: [] for gpu in weights}
    idle: dict[tuple[str | int, int], list[Window]] = {gpu: [] for gpu in weights}
    excess = 0
    for reading in readings:
        if reading.gpu not in weights or reading.in_use is None:
            continue
        inside = reading.window.intersect(window)
        if inside is not None:
            (busy if reading.in_use else idle)[reading.gpu].append(inside)
        if reading.in_use:
            seconds = reading.window.seconds - (inside.seconds if inside else 0)
            excess += seconds * weights[reading.gpu]
    used = known = 0
    for gpu, weight in weights.items():
        used += covered(busy[gpu]) * weight
        known += covered(busy[gpu] + idle[gpu]) * weight
    used, known = min(used, reserved_quantity), min(known, reserved_quantity)
    return Split(used, known - used, reserved_quantity - known, excess)


def covered(windows: Iterable[Window]) -> int:
    """Seconds in the union of the windows."""
    return sum(w.seconds for w in union(windows))


def union(windows: Iterable[Window]) -> list[Window]:
    """The windows in order of time, those that overlap or touch joined."""
    joined: list[Window] = []
    for window in sorted(windows):
        if joined and joined[-1].end >= window.start:
            if window.end > joined[-1].end:
                joined[-1] = Window(joined[-1].start, window.end)
        else:
            joined.append(window)
    return joined


def energy_wh(stretches: Iterable[tuple[int, float | None]]) -> float | None:
    """Watt-hours of (seconds, mean watts); None when no power was measured. What is not measured is not guessed."""
    measured = [(seconds, watts) for seconds, watts in stretches if watts is not None]
    return sum(seconds * watts for seconds, watts in measured) / 3600 if measured else None
