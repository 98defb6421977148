"""Where a shape fits in a pool over a window, or why it does not.

Pure. It compares positions and instants; it must not know who asks, what it costs, or which rule it serves. A place
found here is fixed units for the whole time, and moves nobody. A refusal that only the choice of units causes is mended
by recolouring holds that have not started (`recolour.py`); so may be others, by moving holds to other nodes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from app.bookings.capacity import (
    FOREVER,
    LEVELS,
    POSITIONS_PER_GPU,
    Flags,
    Ints,
    Level,
    PoolSnapshot,
    Range,
    Shape,
    epoch,
    joined,
)
from app.bookings.power import Layout, PoolPower, PowerRoom, PowerShort
from app.kernel.window import Window

Taken = tuple[Ints, Ints, Ints]
"""When units are taken, as `PoolSnapshot.taken` tells it."""


@dataclass(frozen=True, slots=True)
class Part:
    """The units of a placement that lie on one node, each a range of positions, in order."""

    node_id: int
    units: tuple[Range, ...]

    @property
    def gpus(self) -> tuple[int, ...]:
        """The global numbers of the GPUs that these units are, or are parts of."""
        return tuple(sorted({lower // POSITIONS_PER_GPU for lower, _ in self.units}))

    @property
    def positions(self) -> tuple[Range, ...]:
        """The units as few ranges as possible: what a hold stores as its multirange."""
        return joined(self.units)


@dataclass(frozen=True, slots=True)
class Placement:
    """Units that are free for the whole time asked.

    `level`: the closest level that all of them share, None: the pool. `near`: the preferred level is kept (or none was
    asked).
    """

    pool_id: int
    parts: tuple[Part, ...]
    level: Level | None
    near: bool = True

    @property
    def units(self) -> int:
        """How many in all."""
        return sum(len(p.units) for p in self.parts)


@dataclass(frozen=True, slots=True)
class Room:
    """What a pool has room for, by counting.

    `units` in all; `largest_node`: units of the best node; `whole_nodes`: nodes with all installed units; `nodes`:
    nodes with as many as the shape wants per node; `domain_units` and `domain_nodes`: the same of the best single
    domain at the level asked (of the pool where none was asked).
    """

    units: int
    largest_node: int
    whole_nodes: int
    nodes: int
    domain_units: int
    domain_nodes: int


@dataclass(frozen=True, slots=True)
class NoPlace:
    """It does not fit, and the facts to say why.

    `free`: for the whole window and gap; `offered`: if nothing were taken; `installed`: if also nothing were ill.
    `never`: not even then. `bookkeeping`: enough units of fixed nodes are free at every instant, only no fixed set of
    them throughout. `power`: units would be free, but a power budget stands in the way.

    What recolouring adds: `pinned`: it would fit if pinned holds that have not started could move. `gave_up`: not every
    way of moving holds was tried, for want of time.
    """

    shape: Shape
    free: Room
    offered: Room
    installed: Room
    never: bool
    bookkeeping: bool
    power: PowerShort | None = None
    pinned: bool = False
    gave_up: bool = False

    @property
    def best(self) -> int:
        """The most units of this shape that a single domain of the level asked could give."""
        return self.free.domain_nodes * self.shape.per_node if self.shape.per_node else self.free.domain_units


def place(
    pool: PoolSnapshot,
    shape: Shape,
    window: Window,
    gap: int = 0,
    power: PoolPower | None = None,
    only: Flags | None = None,
) -> Placement | NoPlace:
    """Units for a shape, free throughout `[window.start, window.end + gap seconds)`, or why there are none.

    Takes the smallest domain that fits, and of those the one that it fills best, so that whole nodes and whole domains
    stay whole; a preferred level is tried before wider ones. On a node, the units whose free time it fills best. With
    `power`, no budget is exceeded during the window (the gap draws nothing). `only`: a flag for each node of the pool,
    the others are left out. The same question always gets the same answer.
    """
    start, end = epoch(window.start), epoch(window.end) + gap
    taken = pool.taken(start, end)
    free = np.ones(len(pool.unit_lower), bool)
    free[taken[0]] = False
    if only is not None:
        free &= only[pool.unit_node]
    counts = per_node(pool, free)
    power = power or pool.power
    room = power.room(start, epoch(window.end)) if power else None
    found = choose(pool, counts, shape, room)
    if found is None:
        return explain(pool, shape, counts, start, end, room, taken)
    layout, level = found
    parts = {
        node: tightest(pool, np.flatnonzero(free & (pool.unit_node == node)), take, start, end)
        for node, take in layout.items()
    }
    return placed(pool, shape, parts, level)


def placed(pool: PoolSnapshot, shape: Shape, units: Mapping[int, Ints], level: Level | None) -> Placement:
    """These units (indices in the pool, by the index of their node) as a placement that shares a level."""
    parts = [
        Part(
            pool.nodes[node].node_id, tuple(zip(pool.unit_lower[u].tolist(), pool.unit_upper[u].tolist(), strict=True))
        )
        for node, u in sorted(units.items())
    ]
    near = shape.near is None or len(set(pool.domain_of_nodes(shape.near)[list(units)].tolist())) == 1
    return Placement(pool.pool_id, tuple(parts), level, near)


def free_units(pool: PoolSnapshot, start: int, end: int) -> Flags:
    """For each unit of the pool whether nothing takes it during `[start, end)`, in epoch seconds."""
    free = np.ones(len(pool.unit_lower), bool)
    free[pool.taken(start, end)[0]] = False
    return free


def is_free(pool: PoolSnapshot, parts: Iterable[Part], window: Window, gap: int = 0) -> bool:
    """True when exactly these units are offered and free throughout, as an extension needs them."""
    until = free_until(pool, parts, window)
    return until is not None and until >= epoch(window.end) + gap


def free_until(pool: PoolSnapshot, parts: Iterable[Part], window: Window) -> int | None:
    """Until when (epoch seconds, `FOREVER` if nothing follows) these units stay free from the window's start on; None
    when one is taken already or is not offered any more. A booking may last until then, less the gap."""
    wanted = np.array(sorted(r for part in parts for r in part.units), np.int64).reshape(-1, 2)
    index = np.searchsorted(pool.unit_lower, wanted[:, 0])
    index = np.minimum(index, len(pool.unit_lower) - 1)
    if not len(pool.unit_lower) or np.any(pool.unit_lower[index] != wanted[:, 0]):
        return None
    start = epoch(window.start)
    unit, since, _ = pool.taken(start, FOREVER)
    until = int(np.min(since[np.isin(unit, index)], initial=FOREVER))
    return until if until > start else None


def choose(
    pool: PoolSnapshot, counts: Ints, shape: Shape, room: PowerRoom | None = None
) -> tuple[Layout, Level | None] | None:
    """How many units to take of which nodes, given how many each could give; None when the shape does not fit.

    `room`: what power budgets leave for the time asked.
    """
    if room is not None:
        counts = np.minimum(counts, room.units_of_nodes())
        if not room.binds(counts):
            room = None
    wanted, could = (shape.units, counts) if shape.units else (shape.nodes, (counts >= shape.per_node).astype(np.int64))
    for level, borders in _tries(shape):
        domain = _shared(pool, level, borders)
        sums = np.bincount(domain, could)
        fitting = np.flatnonzero(sums >= wanted)
        if not len(fitting):
            continue
        units = np.bincount(domain, counts)[fitting]
        order = fitting[np.lexsort((fitting, *_around(pool, counts, domain, fitting), units, sums[fitting]))]
        for best in order.tolist() if room is not None else order[:1].tolist():
            nodes = np.flatnonzero((domain == best) & (could > 0))
            if room is not None:
                layout = room.fill(counts, nodes, shape)
            else:
                layout = _fill(counts, nodes, wanted) if shape.units else _pick(pool, counts, nodes, shape)
            if layout is not None:
                return layout, level
    return None


def _tries(shape: Shape) -> list[tuple[Level | None, tuple[Level, ...]]]:
    """Levels in the order in which they are tried, each with the levels at whose borders its domains are cut."""
    widest = LEVELS.index(shape.within) + 1 if shape.within else len(LEVELS)
    required = (shape.within,) if shape.within else ()
    levels: list[Level | None] = [*LEVELS[:widest], *([] if shape.within else [None])]
    near = LEVELS[: LEVELS.index(shape.near) + 1] if shape.near else ()
    return [*((level, (*required, shape.near)) for level in near), *((level, required) for level in levels)]


def _shared(pool: PoolSnapshot, level: Level | None, borders: tuple[Level, ...]) -> Ints:
    """Domains of a level, cut at the borders of those that were asked: a leaf switch may serve two racks."""
    domain = pool.domain_of_nodes(level)
    if level == "node":
        return domain
    for border in borders:
        if border != level:
            domain = np.unique(domain * len(pool.nodes) + pool.domain_of_nodes(border), return_inverse=True)[1]
    return domain


def _around(pool: PoolSnapshot, counts: Ints, domain: Ints, fitting: Ints) -> tuple[Ints, ...]:
    """Ties between domains go to the one whose surroundings are the most broken into already."""
    first = np.zeros(domain.max() + 1, np.int64)
    first[domain[::-1]] = np.arange(len(domain))[::-1]  # the first node of each domain stands for where it lies
    keys = []
    for level in reversed(LEVELS[1:]):
        wider = pool.domain_of_nodes(level)
        keys.append(np.bincount(wider, counts)[wider[first[fitting]]].astype(np.int64))
    return tuple(keys)


def _fill(counts: Ints, nodes: Ints, wanted: int) -> Layout:
    """n units of the nodes of a domain: few nodes, and the last one the one that it fills best."""
    order = nodes[np.lexsort((-nodes, counts[nodes]))].tolist()
    sizes = counts[order].tolist()
    layout: Layout = {}
    while wanted:
        fits = bisect_left(sizes, wanted)
        at = fits if fits < len(sizes) else len(sizes) - 1
        take = min(sizes.pop(at), wanted)
        layout[order.pop(at)] = take
        wanted -= take
    return layout


def _pick(pool: PoolSnapshot, counts: Ints, nodes: Ints, shape: Shape) -> Layout:
    """N nodes of a domain: those that it fills best, and those whose surroundings are broken into already."""
    keys = [np.bincount(d, counts)[d[nodes]] for d in (pool.domain_of_nodes(level) for level in reversed(LEVELS[1:]))]
    order = np.lexsort((nodes, *keys, counts[nodes]))
    return dict.fromkeys(nodes[order[: shape.nodes]].tolist(), shape.per_node)


def tightest(pool: PoolSnapshot, units: Ints, take: int, start: int, end: int) -> Ints:
    """Of a node's free units those that lie free for the shortest time around the window."""
    if take == len(units):
        return units
    lowest, highest = pool.unit_lower[units[0]], pool.unit_upper[units[-1]]
    near = np.flatnonzero((pool.busy.lower < highest) & (pool.busy.upper > lowest))
    lower, upper = pool.busy.lower[near], pool.busy.upper[near]
    slack = []
    for unit in units.tolist():
        on = near[(lower < pool.unit_upper[unit]) & (upper > pool.unit_lower[unit])]
        before = np.max(pool.busy.end[on], initial=-FOREVER, where=pool.busy.end[on] <= start)
        after = np.min(pool.busy.start[on], initial=FOREVER, where=pool.busy.start[on] >= end)
        slack.append((start - int(before) + int(after) - end, unit))
    return np.array(sorted(unit for _, unit in sorted(slack)[:take]), np.int64)


def per_node(pool: PoolSnapshot, units: Flags) -> Ints:
    """How many of these units each node has."""
    return np.bincount(pool.unit_node[units], minlength=len(pool.nodes))


def explain(
    pool: PoolSnapshot,
    shape: Shape,
    counts: Ints,
    start: int,
    end: int,
    room: PowerRoom | None = None,
    taken: Taken | None = None,
) -> NoPlace:
    """Why a shape does not fit where each node could give so many units during `[start, end)`. `taken`: what
    `pool.taken` says of that time, if it is known."""
    offered = np.bincount(pool.unit_node, minlength=len(pool.nodes))
    short = room is not None and choose(pool, counts, shape) is not None
    return NoPlace(
        shape,
        _room(pool, shape, counts),
        _room(pool, shape, offered),
        _room(pool, shape, pool.installed),
        never=choose(pool, pool.installed, shape) is None,
        bookkeeping=not short and choose(pool, offered - most_taken(pool, start, end, taken), shape) is not None,
        power=room.short(shape) if short else None,
    )


def _room(pool: PoolSnapshot, shape: Shape, counts: Ints) -> Room:
    domain = pool.domain_of_nodes(shape.within)
    enough = counts >= (shape.per_node or 1)
    return Room(
        units=int(counts.sum()),
        largest_node=int(counts.max(initial=0)),
        whole_nodes=int(np.sum((counts == pool.installed) & (counts > 0))),
        nodes=int(enough.sum()),
        domain_units=int(np.bincount(domain, counts).max(initial=0)),
        domain_nodes=int(np.bincount(domain, enough).max(initial=0)),
    )


def most_taken(pool: PoolSnapshot, start: int, end: int, taken: Taken | None = None) -> Ints:
    """For each node the largest number of its units that are taken at one instant of `[start, end)`."""
    unit, since, until = taken or pool.taken(start, end)
    node = np.concatenate([pool.unit_node[unit]] * 2)
    at = np.concatenate([np.maximum(since, start), np.minimum(until, end)])
    step = np.repeat([1, -1], len(unit))
    # in order of node and instant, at one instant what ends before what begins
    order = np.argsort((node * (end - start + 1) + at - start) * 2 + (step > 0))
    most = np.zeros(len(pool.nodes), np.int64)
    np.maximum.at(most, node[order], np.cumsum(step[order]))
    return most
