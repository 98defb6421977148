"""When a shape fits: the earliest start, exact to the second, and how many places there are at each start of a grid.

Pure. `prepare` turns a pool's busy ranges into the gaps between them, which serve every question until the pool's
version changes. It must not know policies: the caller says from when, until when, and on which grid.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np

from app.bookings.capacity import FOREVER, Flags, Ints, PoolSnapshot, Shape, epoch, instant
from app.bookings.placement import Placement, place
from app.bookings.power import PoolPower
from app.kernel.window import Window

FIRST_LOOK = 12 * 3600
"""Seconds of starts that are searched first; each further look is four times as long. Most answers are near."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Starts are whole multiples of `seconds` from `origin`."""

    seconds: int
    origin: datetime

    def up(self, instant_: datetime) -> datetime:
        """The first point of the grid that is not before an instant."""
        return instant(int(self.snap(np.int64(epoch(instant_)))))

    def snap(self, seconds: Ints | np.int64) -> Ints:
        """Epoch seconds, each moved up to the grid."""
        origin = epoch(self.origin)
        return origin - (origin - seconds) // self.seconds * self.seconds


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A pool with the gaps between what is taken of it. Made by `prepare`; never changed, so safe to share and to
    cache.

    A row is a stretch `[start, end)`, in order of node (by its index) and start: `weight` units are free during it,
    each of them all the time and no longer.
    """

    pool: PoolSnapshot
    node: Ints = field(repr=False)
    start: Ints = field(repr=False)
    end: Ints = field(repr=False)
    weight: Ints = field(repr=False)


def prepare(pool: PoolSnapshot) -> Prepared:
    """Sort what is free of a pool: some tens of milliseconds for a hundred thousand holds, then every search is
    quick."""
    unit, since, until = pool.taken(0, FOREVER)
    units = len(pool.unit_lower)
    # Each unit has one gap more than stretches: before the first, between two, after the last.
    start, end = np.zeros(len(unit) + units, np.int64), np.full(len(unit) + units, FOREVER)
    before = np.arange(len(unit)) + unit
    end[before], start[before + 1] = since, until
    node = pool.unit_node[np.repeat(np.arange(units), np.bincount(unit, minlength=units) + 1)]
    real = np.flatnonzero(start < end)
    # Units of a node that are taken together are free together: one row for all of them.
    order = real[np.argsort(node[real] * (2 * FOREVER) + start[real], kind="stable")]
    node, start, end = node[order], start[order], end[order]
    fresh = np.ones(len(order), bool)
    fresh[1:] = (node[1:] != node[:-1]) | (start[1:] != start[:-1]) | (end[1:] != end[:-1])
    first = np.flatnonzero(fresh)
    weight = np.diff(first, append=len(order))
    return Prepared(pool, node[first], start[first], end[first], weight)


def earliest(
    pool: PoolSnapshot | Prepared,
    shape: Shape,
    seconds: int,
    not_before: datetime,
    ends_by: datetime,
    gap: int = 0,
    grid: Grid | None = None,
    power: PoolPower | None = None,
) -> datetime | None:
    """The earliest start at which `place` finds a place for `seconds`, the window ending by `ends_by` (the gap may lie
    beyond); None when there is none. Exact: without a grid every second is considered, with one `not_before` itself and
    the grid's points after it. A preferred level is worth no wait. `power`: as in `place`.
    """
    power = power or _prepared(pool).pool.power
    if power is not None:
        return _under_power(_prepared(pool).pool, shape, seconds, not_before, ends_by, gap, grid, power)
    free = _prepared(pool)
    first, last, need = epoch(not_before), epoch(ends_by) - seconds, seconds + gap
    long = np.flatnonzero((free.end - free.start >= need) & (free.end - need >= first) & (free.start <= last))
    node, weight = free.node[long], free.weight[long]
    # A unit can be started on from `opens` to `closes`, both included.
    opens, closes = np.maximum(free.start[long], first), np.minimum(free.end[long] - need, last)
    if grid is not None:
        opens = np.where(opens > first, grid.snap(opens), first)
    for since, until in _looks(first, last):
        near = np.flatnonzero((opens <= until) & (closes >= since) & (opens <= closes))
        begins, stops = np.maximum(opens[near], since), np.minimum(closes[near], until)
        found = _first(free.pool, shape, node[near], begins, stops, weight[near])
        if found is not None:
            return instant(found)
    return None


def _under_power(
    pool: PoolSnapshot,
    shape: Shape,
    seconds: int,
    not_before: datetime,
    ends_by: datetime,
    gap: int,
    grid: Grid | None,
    power: PoolPower,
) -> datetime | None:
    """The same, looking again after each start that power forbids: at the next instant at which something is set free."""
    free = prepare(pool.with_busy(pool.busy.plus(power.shut(pool, shape.per_node or 1, gap))).under(None))
    since = not_before
    while (found := earliest(free, shape, seconds, since, ends_by, gap, grid)) is not None:
        window = Window(found, found + timedelta(seconds=seconds))
        if isinstance(place(pool, shape, window, gap, power), Placement):
            return found
        after = epoch(found)
        freed = [int(ends[ends > after].min(initial=FOREVER)) for ends in (power.draws.end, free.start)]
        if min(freed) == FOREVER:
            return None
        since = instant(min(freed)) if grid is None else grid.up(instant(min(freed)))
        if since + timedelta(seconds=seconds) > ends_by:
            return None
    return None


def longest(pool: PoolSnapshot | Prepared, shape: Shape, start: datetime, gap: int = 0) -> int:
    """The most seconds for which `place` finds a place at exactly this start; 0 when none, huge when nothing
    follows."""
    free, at = _prepared(pool), epoch(start)
    now = (free.start <= at) & (free.end > at)
    node, until = np.repeat(free.node[now], free.weight[now]), np.repeat(free.end[now], free.weight[now])
    domain = free.pool.domain_of_nodes(shape.within)
    if shape.units:
        _, until = _ranked(domain[node], until, shape.units)
    else:
        node, until = _ranked(node, until, shape.per_node)
        _, until = _ranked(domain[node], until, shape.nodes)
    return max(int(until.max(initial=0)) - at - gap, 0)


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
    free, domain = _prepared(pool), _prepared(pool).pool.domain_of_nodes(shape.within)
    if shape.units:
        return (_on_grid(free, domain, seconds + gap, first, steps, step) // shape.units).sum(axis=0)
    every = np.arange(len(free.pool.nodes))
    blocks = _on_grid(free, every, seconds + gap, first, steps, step) // shape.per_node
    order = np.argsort(domain, kind="stable")
    blocks, borders = blocks[order], np.searchsorted(domain[order], np.arange(domain.max(initial=-1) + 1))
    if not len(borders):
        return np.zeros(steps, np.int64)
    places = np.add.reduceat(blocks, borders) // shape.nodes
    # p places of N nodes need sum(min(blocks, p)) >= N p, since a place takes no node twice: go down to where it holds.
    while True:
        used = np.minimum(blocks, places[domain[order]])
        fewer = np.add.reduceat(used, borders) // shape.nodes
        if np.array_equal(fewer, places):
            return places.sum(axis=0)
        places = fewer


def free_profile(pool: PoolSnapshot | Prepared, first: datetime, steps: int, step: timedelta) -> Ints:
    """For each of `steps` stretches `[first + i step, first + (i + 1) step)` how many units are free throughout it."""
    return free_starts(pool, Shape(units=1), int(step.total_seconds()), first, steps, step)


def _prepared(pool: PoolSnapshot | Prepared) -> Prepared:
    return pool if isinstance(pool, Prepared) else prepare(pool)


def _looks(first: int, last: int) -> Iterator[tuple[int, int]]:
    """`[first, last]` in pieces, each longer than the one before."""
    length = FIRST_LOOK
    while first <= last:
        yield first, min(first + length, last)
        first, length = first + length + 1, length * 4


def _first(pool: PoolSnapshot, shape: Shape, node: Ints, opens: Ints, closes: Ints, weight: Ints) -> int | None:
    """The first instant at which enough units of a domain, or enough nodes with enough units, can be started on."""
    if shape.per_node:
        node, opens, closes = _together(node, opens, closes, weight, shape.per_node)
        weight = np.ones(len(node), np.int64)
    domain = pool.domain_of_nodes(shape.within)[node]
    _, begins, _ = _together(domain, opens, closes, weight, shape.units or shape.nodes)
    return int(begins.min()) if len(begins) else None


def _together(group: Ints, opens: Ints, closes: Ints, weight: Ints, wanted: int) -> tuple[Ints, Ints, Ints]:
    """`(group, first, last)`: the stretches (both ends included) in which a group's weights come to `wanted` or more.

    One sweep over all groups at once: every group's weights are taken off again before the next begins. At one instant
    what ends is taken off first, so the sum is never above the truth.
    """
    enough = np.bincount(group, weight)[group] >= wanted if len(group) else np.zeros(0, bool)
    group, opens, closes, weight = group[enough], opens[enough], closes[enough], weight[enough]
    base = int(opens.min(initial=FOREVER))
    size = int(closes.max(initial=base)) - base + 2
    keys = np.concatenate([((group * size) + opens - base) * 2 + 1, ((group * size) + closes - base + 1) * 2])
    order = np.argsort(keys, kind="stable")
    sums = np.cumsum(np.concatenate([weight, -weight])[order])
    reached: Flags = sums >= wanted
    was = np.concatenate([[False], reached[:-1]])
    starts, stops = keys[order[reached & ~was]] // 2, keys[order[was & ~reached]] // 2
    return starts // size, starts % size + base, stops % size + base - 1


def _ranked(group: Ints, values: Ints, rank: int) -> tuple[Ints, Ints]:
    """For each group that has as many, its `rank`-th largest value."""
    order = np.lexsort((-values, group))
    group, values = group[order], values[order]
    place = np.arange(len(group)) - np.searchsorted(group, group)
    at = place == rank - 1
    return group[at], values[at]


def _on_grid(free: Prepared, group_of_node: Ints, need: int, first: datetime, steps: int, step: timedelta) -> Ints:
    """`[group, i]`: how many units of the group are free throughout `[first + i step, first + i step + need)`."""
    origin, pace = epoch(first), int(step.total_seconds())
    from_step = np.maximum(-((origin - free.start) // pace), 0)
    to_step = np.minimum((free.end - need - origin) // pace, steps - 1)
    some = np.flatnonzero((from_step <= to_step) & (free.end - free.start >= need))
    groups, wide = int(group_of_node.max(initial=-1)) + 1, steps + 1
    row, weight = group_of_node[free.node[some]] * wide, free.weight[some]
    change = np.bincount(row + from_step[some], weight, groups * wide)
    change -= np.bincount(row + to_step[some] + 1, weight, groups * wide)
    return np.cumsum(change.reshape(groups, wide)[:, :steps], axis=1).astype(np.int64)
