"""Makes room by moving holds that have not started and are not pinned: a place and the holds that give way for it.

Pure. Until a booking starts, which units it has is bookkeeping; what it was promised (how many, when, how close together)
stands. Within a node the answer is exact: no refusal while some fixed assignment exists. From node to node at most
MOST_MOVED holds go, as well as the search can in the steps that it is allowed. It must not know whose the holds are.

Whoever writes an answer locks the holds that move, in the order given, and compares them with what was planned here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from app.bookings.board import Board, Search, Task
from app.bookings.capacity import LEVELS, Flags, Ints, PoolSnapshot, Range, Shape, epoch, joined
from app.bookings.colouring import Block, OutOfSteps, Steps
from app.bookings.held import Held
from app.bookings.placement import (
    NoPlace,
    Placement,
    choose,
    explain,
    free_units,
    most_taken,
    per_node,
    place,
    placed,
)
from app.bookings.power import PoolPower
from app.kernel.window import Window

MOST_MOVED = 8
"""How many holds may change their node for one request."""
STEPS = 3000
"""How many holds are looked at before the search gives up; some ten microseconds each."""
_DOMAINS = 8
"""In how many domains moving holds from node to node is tried."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A hold that gives way: from units of one node to as many of the same or another, as ranges of positions."""

    hold: Any
    node_id: int
    positions: tuple[Range, ...]
    to_node_id: int
    to_positions: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Rearranged:
    """A place, and the holds that must move for it, in the order of their ids (none where it is free as it is)."""

    placement: Placement
    moves: tuple[Moved, ...] = ()


def place_moving(
    pool: PoolSnapshot,
    held: Held,
    shape: Shape,
    window: Window,
    gap: int = 0,
    power: PoolPower | None = None,
    only: Flags | None = None,
    steps: int = STEPS,
) -> Rearranged | NoPlace:
    """Units for a shape, free throughout `[window.start, window.end + gap seconds)` once the moves are made.

    `pool.busy` is what is taken by other than holds (external use, maintenance), `held` are all holds that end after
    now. Where there is a free place it is taken as `place` does, and nobody moves. `only`: a flag for each node of the
    pool, the request goes to no other. A refusal says when only pins stand in the way (`NoPlace.pinned`), and when not
    all was tried (`gave_up`).
    """
    every = pool.with_busy(pool.busy.plus(held.busy))
    plain = place(every, shape, window, gap, power, only)
    if isinstance(plain, Placement):
        return Rearranged(plain)
    if plain.never:
        return plain
    start, end = epoch(window.start), epoch(window.end) + gap
    asked = _Asked(every, shape, start, end, epoch(window.end), power, only)
    return _with_and_without_pins(
        held,
        (held.start < end) & (held.end > start),
        steps,
        plain,
        lambda movable, s: _make_room(asked, pool, held, movable, s),
    )


def extend_moving(
    pool: PoolSnapshot,
    held: Held,
    owner: int,
    window: Window,
    gap: int = 0,
    power: PoolPower | None = None,
    steps: int = STEPS,
) -> Rearranged | NoPlace:
    """The owner's holds until `window.end + gap`: on its own units, others giving way (and its own, if it has not started
    and is not pinned). `window` is the whole new window; `owner` as in `held.owner`. The placement has its units then.
    """
    end = epoch(window.end) + gap
    own = held.owner == owner
    before = int(held.end[own].min())
    longer = held.until(own, end)
    others = pool.with_busy(pool.busy.plus(held.busy_of(~own)))
    mine = Board(pool, longer, np.zeros(len(held), bool))
    units = {node: mine.units_of(np.flatnonzero(own), node) for node in mine.nodes_of(np.flatnonzero(own))}
    free = free_units(others, before, end)
    shape = Shape(units=sum(map(len, units.values())) or 1)
    plain = explain(others, shape, per_node(others, free), before, end)
    if power is not None:
        counts = np.zeros(len(pool.nodes), np.int64)
        counts[list(units)] = [len(u) for u in units.values()]
        room = power.room(before - gap, epoch(window.end))
        if room.binds(counts):
            return replace(plain, power=room.short(shape))
    if all(free[u].all() for u in units.values()):
        return Rearranged(placed(pool, shape, units, _level(pool, list(units))))

    def attempt(movable: Flags, budget: Steps) -> Rearranged | None:
        movable = np.where(own, ~(held.pinned | held.started), movable)
        rest = pool.with_busy(pool.busy.plus(longer.busy_of(~movable & ~own)))
        stuck = np.flatnonzero(own & ~movable)
        still = free_units(rest, before, end)
        if not all(still[mine.units_of(stuck, node)].all() for node in units):
            return None
        search = Search(Board(pool, longer, movable), budget, MOST_MOVED)
        tasks = [Task(Block(-1 - i, 0, before, end), (node,)) for i, node in enumerate(units)]
        if not search.settle_within(tasks):
            return None
        moves = _moves(pool, longer, search)
        now = {node: mine.units_of(stuck, node) for node in units}
        for hold in np.flatnonzero(own & movable).tolist():
            node, unit = search.units_now(hold)
            now[node] = np.union1d(now.get(node, np.empty(0, np.int64)), unit)
        now = {node: u for node, u in now.items() if len(u)}
        return Rearranged(placed(pool, shape, now, _level(pool, list(now))), moves)

    return _with_and_without_pins(held, (held.start < end) & (held.end > before), steps, plain, attempt)


def replace_moving(
    pool: PoolSnapshot,
    held: Held,
    hold: int,
    window: Window,
    gap: int = 0,
    power: PoolPower | None = None,
    steps: int = STEPS,
) -> Rearranged | NoPlace:
    """Other units for one hold (by its index), on other nodes, so that the booking's promise stands: a dead node's share.

    `window` is the time that is left of it. The units it has count as given back. Others may give way.
    """
    siblings = np.flatnonzero((held.owner == held.owner[hold]) & (np.arange(len(held)) != hold))
    near = held.node_id[siblings]
    numbers = np.fromiter((n.node_id for n in pool.nodes), np.int64, len(pool.nodes))
    only = numbers != held.node_id[hold]
    within = None if held.within[hold] < 0 else LEVELS[held.within[hold]]
    if len(near) and within is not None:
        domain = pool.domain_of_nodes(within)
        only &= np.isin(domain, domain[np.isin(numbers, near)])
    if held.apart[hold]:
        only &= ~np.isin(numbers, near)
    units = _installed_in(pool, held, hold)
    rest = held.without(np.arange(len(held)) == hold)
    found = place_moving(pool, rest, Shape(units=units, within="node"), window, gap, power, only, steps)
    if isinstance(found, NoPlace) and not held.apart[hold] and within != "node" and units > 1:
        anywhere = Shape(units=units, within=None if len(near) else within)
        found = place_moving(pool, rest, anywhere, window, gap, power, only, steps)
    return found


def _with_and_without_pins(
    held: Held,
    near: Flags,
    steps: int,
    plain: NoPlace,
    attempt: Callable[[Flags, Steps], Rearranged | None],
) -> Rearranged | NoPlace:
    """Try it with the holds that may move; if that fails, find out whether it is pins alone that stand in the way."""
    budget = Steps(steps)
    gave_up = False
    try:
        found = attempt(~(held.pinned | held.started), budget)
        if found is not None:
            return found
    except OutOfSteps:
        gave_up = True
    pinned = False
    if np.any(held.pinned & ~held.started & near):
        try:
            pinned = attempt(~held.started, Steps(max(steps // 4, budget.left // 2))) is not None
        except OutOfSteps:
            gave_up = True
    return replace(plain, pinned=pinned, gave_up=gave_up)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request as the search needs it. `every`: the pool with all that is taken."""

    every: PoolSnapshot
    shape: Shape
    start: int
    end: int
    used_until: int
    power: PoolPower | None
    only: Flags | None

    def allowed(self, counts: Ints) -> Ints:
        return counts if self.only is None else np.where(self.only, counts, 0)


def _make_room(asked: _Asked, pool: PoolSnapshot, held: Held, movable: Flags, steps: Steps) -> Rearranged | None:
    board = Board(pool, held, movable)
    offered = np.bincount(pool.unit_node, minlength=len(pool.nodes))
    could = asked.allowed(offered - most_taken(board.fixed_pool, asked.start, asked.end))
    if choose(pool, could, asked.shape) is None:
        return None  # not even if all that may move were away
    by_count = asked.allowed(offered - most_taken(asked.every, asked.start, asked.end))
    found, by_count = _within_nodes(asked, pool, held, board, by_count, steps)
    if found is not None:
        return found
    if _most_at_once(asked) + asked.shape.total > int(offered.sum()):
        return None  # at some instant there are too few units, wherever they are
    return _across_nodes(asked, pool, held, board, by_count, could, steps)


def _within_nodes(
    asked: _Asked, pool: PoolSnapshot, held: Held, board: Board, most: Ints, steps: Steps
) -> tuple[Rearranged | None, Ints]:
    """The place that needs no hold to leave its node, and how many units each node could give so (at most)."""
    room = asked.power.room(asked.start, asked.used_until) if asked.power else None
    most = most.copy()
    while (found := choose(pool, most, asked.shape, room)) is not None:
        steps.take(10)
        search = Search(board, steps, 0)
        good = True
        for i, (node, take) in enumerate(sorted(found[0].items())):
            while take and not search.add(node, Block(-1 - i, take, asked.start, asked.end)):
                search.remove(node, -1 - i)
                take -= 1
                most[node], good = take, False
        if good:
            return _finish(asked, pool, held, search), most
    return None, most


def _across_nodes(
    asked: _Asked, pool: PoolSnapshot, held: Held, board: Board, most: Ints, could: Ints, steps: Steps
) -> Rearranged | None:
    """The place that moves fewest holds from node to node, as far as the search gets."""
    shape, search = asked.shape, Search(board, steps, MOST_MOVED, asked.power)
    search.asked_until = asked.used_until
    for moved in (1, 2, 4, MOST_MOVED):
        for nodes in _domains(pool, shape, most, could):
            for tasks in _tasks(asked, nodes, most, could):
                if search.settle(tasks, moved):
                    return _finish(asked, pool, held, search)
    return None


def _domains(pool: PoolSnapshot, shape: Shape, most: Ints, could: Ints) -> list[list[int]]:
    """The nodes of each domain that could serve the shape if enough were moved away, the likeliest first."""
    domain = pool.domain_of_nodes(shape.within)
    order = np.lexsort((np.arange(len(domain)), most, domain))
    found = []
    for nodes in np.split(order, np.flatnonzero(np.diff(domain[order])) + 1):
        if shape.per_node:
            good = nodes[could[nodes] >= shape.per_node]
            lacking = np.sort(np.maximum(shape.per_node - most[good], 0))[: shape.nodes]
            if len(good) >= shape.nodes:
                found.append((int(lacking.sum()), len(good), good))
        elif could[nodes].sum() >= shape.units:
            good = nodes[could[nodes] > 0]
            found.append((shape.units - int(most[good].sum()), len(good), good))
    found.sort(key=lambda row: (*row[:2], int(row[2][0])))
    return [good.tolist() for *_, good in found[:_DOMAINS]]


def _tasks(asked: _Asked, nodes: list[int], most: Ints, could: Ints) -> list[list[Task]]:
    """Ways to cut the request into blocks, one a node, each with the nodes to try in their order."""

    def block(number: int, units: int) -> Block:
        return Block(-1 - number, units, asked.start, asked.end)

    shape = asked.shape
    wanted = shape.per_node or shape.units
    whole = [
        n for n in sorted(nodes, key=lambda n: (max(wanted - int(most[n]), 0), int(most[n]), n)) if could[n] >= wanted
    ]
    if shape.per_node:
        return [[Task(block(i, wanted), tuple(whole), in_order=True) for i in range(shape.nodes)]]
    ways = [[Task(block(0, wanted), tuple(whole))]] if whole else []
    if shape.within != "node" and len(nodes) > 1:
        given, missing, tasks = 0, shape.units, []
        for node in sorted(nodes, key=lambda n: (-int(most[n]), n)):
            take = min(int(most[node]), missing)
            if take > 0:
                tasks.append(Task(block(given, take), (node,)))
                given, missing = given + 1, missing - take
        spare = tuple(sorted(nodes, key=lambda n: (-int(could[n] - most[n]), n)))
        tasks += [Task(block(given + i, 1), spare) for i in range(missing)]
        if missing <= MOST_MOVED:
            ways.append(tasks)
    return ways


def _most_at_once(asked: _Asked) -> int:
    """The most units of the pool that are taken at one instant of the time asked."""
    _, since, until = asked.every.taken(asked.start, asked.end)
    at = np.concatenate([np.maximum(since, asked.start), np.minimum(until, asked.end)])
    step = np.repeat([1, -1], len(since))
    order = np.lexsort((step, at))
    return int(np.cumsum(step[order]).max(initial=0))


def _finish(asked: _Asked, pool: PoolSnapshot, held: Held, search: Search) -> Rearranged:
    units = search.new_units()
    return Rearranged(placed(pool, asked.shape, units, _level(pool, list(units))), _moves(pool, held, search))


def _moves(pool: PoolSnapshot, held: Held, search: Search) -> tuple[Moved, ...]:
    moves = []
    for hold, node, units, kept in search.changed():
        to = joined([*search.ranges(units), *kept])
        moves.append(Moved(held.ids[hold], int(held.node_id[hold]), held.ranges(hold), pool.nodes[node].node_id, to))
    return tuple(sorted(moves, key=lambda m: m.hold))


def _level(pool: PoolSnapshot, nodes: Sequence[int]) -> Any:
    """The closest level that nodes share; None: the pool."""
    return next((lv for lv in LEVELS if len(set(pool.domain_of_nodes(lv)[list(nodes)].tolist())) == 1), None)


def _installed_in(pool: PoolSnapshot, held: Held, hold: int) -> int:
    """How many units of its node a hold has, offered or not."""
    node = next((n for n in pool.nodes if n.node_id == held.node_id[hold]), None)
    ranges = held.ranges(hold)
    units = node.units if node else ()
    return sum(1 for low, high in units if any(a <= low and high <= b for a, b in ranges)) or 1
