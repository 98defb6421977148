"""The least time that stays free between two bookings on a unit, or none at all: no slivers that nobody can use.

Pure. A unit on which a window would leave less than `min_gap` to whatever holds it before or after is no place for that
window. Windows that touch leave nothing, and are welcome; so is whatever begins now, since the past cannot be booked.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from app.bookings.capacity import Busy, Ints, PoolSnapshot, Shape, epoch, instant
from app.bookings.earliest import Grid, Prepared, earliest
from app.bookings.placement import NoPlace, place
from app.bookings.rules import iso, length_text
from app.inventory.policy import Policy
from app.kernel.errors import Reason
from app.kernel.window import Window

_TRIES = 200
"""Starts that are looked at for one that leaves no sliver: two days on a grid of a quarter of an hour."""


@dataclass(frozen=True, slots=True)
class Sliver:
    """What a window would leave on some unit: until when the one before holds it, or from when the one after does."""

    left: timedelta
    ended: datetime | None
    begins: datetime | None


def neat(pool: PoolSnapshot, window: Window, policy: Policy, now: datetime) -> PoolSnapshot:
    """The pool, with the units taken on which the window would leave a sliver. It holds what is taken `min_gap` around."""
    if not policy.min_gap:
        return pool
    before, after = _beside(pool, window, policy, now)
    units = np.unique(np.concatenate([before[0], after[0]]))
    if not len(units):
        return pool
    whole = np.full(len(units), epoch(window.start)), np.full(len(units), epoch(window.end))
    return pool.with_busy(pool.busy.plus(Busy(pool.unit_lower[units], pool.unit_upper[units], *whole)))


def soonest(
    ready: Prepared,
    shape: Shape,
    length: timedelta,
    not_before: datetime,
    until: datetime,
    gap: int,
    grid: Grid | None = None,
    rest: tuple[Policy, datetime] | None = None,
) -> datetime | None:
    """The earliest start that fits and ends by `until`.

    `rest`: policy and instant; where it leaves a least time between bookings, the first of some starts that do.
    """
    seconds = int(length.total_seconds())
    start = earliest(ready, shape, seconds, not_before, until, gap, grid)
    if rest is None or not rest[0].min_gap:
        return start
    for _ in range(_TRIES):
        if start is None:
            return None
        window = Window(start, start + length)
        if not isinstance(place(neat(ready.pool, window, *rest), shape, window, gap), NoPlace):
            return start
        start = earliest(ready, shape, seconds, start + timedelta(seconds=1), until, gap, grid)
    return None


def slivers(pool: PoolSnapshot, window: Window, policy: Policy, now: datetime) -> tuple[Sliver, ...]:
    """What the window would leave on units of the pool, the shortest first; each length and edge once."""
    if not policy.min_gap:
        return ()
    start, end = epoch(window.start), epoch(window.end + policy.gap)
    (_, ended), (_, begins) = _beside(pool, window, policy, now)
    found = {Sliver(timedelta(seconds=start - int(t)), instant(int(t)), None) for t in np.unique(ended)}
    found |= {Sliver(timedelta(seconds=int(t) - end), None, instant(int(t))) for t in np.unique(begins)}
    return tuple(sorted(found, key=lambda s: (s.left, s.ended is None)))


def check_gap(found: Sliver, policy: Policy) -> Reason:
    """The reason for a sliver, with the nearest edge that leaves none."""
    least, left = length_text(policy.min_gap), length_text(found.left)
    if found.ended is not None:
        where, fix = "before", f"Start at {iso(found.ended)}, or from {iso(found.ended + policy.min_gap)} on."
    else:
        assert found.begins is not None
        where = "after"
        last = found.begins - policy.gap
        fix = f"End at {iso(last)}, or by {iso(last - policy.min_gap)}."
    return Reason(
        "gap_too_short",
        f"Between two bookings on a unit at least {least} stay free, or nothing. This would leave {left} {where} it.",
        least, left, fix, "start",
    )  # fmt: skip


def gap_after(free: datetime, end: datetime, policy: Policy) -> Sliver | None:
    """What an end would leave until `free`, when its units are somebody else's; None when that is nothing or enough."""
    left = free - (end + policy.gap)
    return Sliver(left, None, free) if timedelta(0) < left < policy.min_gap else None


def _beside(
    pool: PoolSnapshot, window: Window, policy: Policy, now: datetime
) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
    """(units, until when they are taken before) and (units, from when they are taken after), where that leaves a sliver."""
    least = int(policy.min_gap.total_seconds())
    start, end = epoch(window.start), epoch(window.end + policy.gap)
    unit, since, until = pool.taken(start - least, end + least)
    ended = until <= start
    last = ended & (np.roll(unit, -1) != unit)  # in order of unit and time: the last of a unit that has ended
    last[:-1] |= ended[:-1] & ~ended[1:] & (unit[1:] == unit[:-1])
    if len(last):
        last[-1] = ended[-1]
    comes = since >= end
    first = comes & (np.roll(unit, 1) != unit)
    first[1:] |= comes[1:] & ~comes[:-1] & (unit[1:] == unit[:-1])
    if len(first):
        first[0] = comes[0]
    before = last & (until < start) & (until > start - least) & (until > epoch(now))
    after = first & (since > end) & (since < end + least)
    return (unit[before], until[before]), (unit[after], since[after])
