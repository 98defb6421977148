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

from app.bookings.board import Board
from app.bookings.capacity import LEVELS, Flags, Ints, PoolSnapshot, Range, Shape, epoch, joined
from app.bookings.colouring import Block, OutOfSteps, Steps
from app.bookings.held import Held
from app.bookings.placement import (
    NoPlace,
    Placement,
    Taken,
    choose,
    explain,
    free_units,
    most_taken,
    per_node,
    place,
    placed,
    tightest,
)
from app.bookings.power import Layout, PoolPower
from app.bookings.search import Search, Task
from app.kernel.window import Window

MOST_MOVED = 8
"""How many holds may change their node for one request."""
STEPS = 1200
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
    now. Where there is a free place it is taken as `place` does, and nobody moves: a preferred level is no reason to.
    `only`: a flag for each node of the pool, the request goes to no other. A refusal says when only pins stand in the way
    (`NoPlace.pinned`), and when not all was tried (`gave_up`).
    """
    power = power or pool.power
    every = pool.with_busy(pool.busy.plus(held.busy))
    plain = place(every, shape, window, gap, power, only)
    if isinstance(plain, Placement):
        return Rearranged(plain)
    if plain.never:
        return plain
    start, end = epoch(window.start), epoch(window.end) + gap
    near = (held.start < end) & (held.end > start)
    asked = _Asked(pool, held, near, shape, start, end, epoch(window.end), power, only, every, every.taken(start, end))
    if asked.taken_at_worst() + shape.total > len(pool.unit_lower):
        return plain  # at some instant there are too few units, wherever they are
    return _with_and_without_pins(held, near, steps, plain, asked.make_room)


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
    mine = Board(pool, longer, ~(held.pinned | held.started))
    units = {node: mine.units_of(np.flatnonzero(own), node) for node in mine.nodes_of(np.flatnonzero(own))}
    free = free_units(others, before, end)
    shape = Shape(units=sum(map(len, units.values())) or 1)
    plain = explain(others, shape, per_node(others, free), before, end)
    if sum(map(len, units.values())) < sum(_installed_in(pool, held, hold) for hold in np.flatnonzero(own).tolist()):
        return plain  # a unit that is out of service is promised to nobody for longer, free or not
    power = power or pool.power
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
        search = Search(mine.letting(movable), budget)
        tasks = [Task(Block(-1 - i, 0, before, end), (node,)) for i, node in enumerate(units)]
        if not any(search.settle(tasks, moved) for moved in (0, 1, 2, 4, MOST_MOVED)):
            return None
        moves = _moves(search)
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
            pinned = attempt(~held.started, Steps(max(steps // 4, budget.left))) is not None
        except OutOfSteps:
            gave_up = True
    return replace(plain, pinned=pinned, gave_up=gave_up)


@dataclass(slots=True)
class _Asked:
    """A request as the search needs it, and what is worked out for it once. `near`: the holds that share time with it;
    `every`: the pool with all that is taken, and `taken` what that is."""

    pool: PoolSnapshot
    held: Held
    near: Flags
    shape: Shape
    start: int
    end: int
    used_until: int
    power: PoolPower | None
    only: Flags | None
    every: PoolSnapshot
    taken: Taken
    board: Board | None = None

    def taken_at_worst(self) -> int:
        """The most units of the pool that are taken at one instant of the time asked."""
        _, since, until = self.taken
        at = np.concatenate([np.maximum(since, self.start), np.minimum(until, self.end)]) - self.start
        step = np.repeat([1, -1], len(since))
        return int(np.cumsum(step[np.argsort(at * 2 + (step > 0))]).max(initial=0))

    def left(self, pool: PoolSnapshot, taken: Taken | None = None) -> Ints:
        """By counting, how many units each node could give beside what is taken in this pool."""
        offered = np.bincount(pool.unit_node, minlength=len(pool.nodes))
        return self.allowed(offered - most_taken(pool, self.start, self.end, taken))

    def free_units(self) -> Flags:
        """The units that are free throughout as it is."""
        free = np.ones(len(self.pool.unit_lower), bool)
        free[self.taken[0]] = False
        return free

    def free(self) -> Ints:
        """How many of them each node has."""
        return self.allowed(per_node(self.pool, self.free_units()))

    def allowed(self, counts: Ints) -> Ints:
        return counts if self.only is None else np.where(self.only, counts, 0)

    def make_room(self, movable: Flags, steps: Steps) -> Rearranged | None:
        """The place that is found when these holds may move. Raises OutOfSteps."""
        fixed = self.pool.with_busy(self.pool.busy.plus(self.held.busy_of(~movable & self.near)))
        could = self.left(fixed)
        if choose(self.pool, could, self.shape) is None:
            return None  # not even if all that may move were away
        self.board = self.board or Board(self.pool, self.held, movable)
        most = self.left(self.every, self.taken)
        search = Search(self.board.letting(movable), steps, self.power, self.used_until)
        layout = _within_nodes(self, search, most)
        if layout is not None:
            return _finish(self, search, layout)
        domains = _domains(self.pool, self.shape, most, could)
        ways = [(least, tasks) for least, nodes in domains for tasks in _tasks(self, nodes, most, could)]
        for moved in (1, 2, 4, MOST_MOVED):
            for least, tasks in ways:
                if least <= moved and search.settle(tasks, moved):
                    return _finish(self, search)
        return None


def _within_nodes(asked: _Asked, search: Search, most: Ints) -> Layout | None:
    """The place that needs no hold to leave its node, if there is one, supposed as far as holds change units for it: what
    is returned are the units of the other nodes. `most`: how many units each node could give by counting; becomes the
    truth wherever that was found to be less."""
    pool = search.board.pool
    room = asked.power.room(asked.start, asked.used_until) if asked.power else None
    sure = asked.free()
    wanted, more = asked.shape.per_node or 1, 1
    known: set[int] = set()

    def fits(node: int, units: int) -> bool:
        return search.add(node, Block(-1 - node, units, asked.start, asked.end))

    while (found := choose(pool, most, asked.shape, room)) is not None:
        search.steps.take(60)
        easy = {node: take for node, take in found[0].items() if take <= sure[node]}
        hard = [node for node in found[0] if node not in easy]
        tried = []
        good = True
        while good and len(tried) < len(hard):
            tried.append(hard[len(tried)])
            good = fits(tried[-1], found[0][tried[-1]])
        if good:
            return easy
        for node in tried:
            search.remove(node, -1 - node)
        # find out the truth about these, and about some that would come next
        doubtful = np.flatnonzero((most > sure) & (most >= wanted))
        doubtful = [n for n in doubtful[np.lexsort((doubtful, most[doubtful]))].tolist() if n not in known]
        for node in [*tried, *[n for n in doubtful if n not in tried][:more]]:
            while most[node] > sure[node]:
                enough = fits(node, int(most[node]))
                search.remove(node, -1 - node)
                if enough:
                    break
                most[node] -= 1
            known.add(node)
        more *= 2
    return None


def _domains(pool: PoolSnapshot, shape: Shape, most: Ints, could: Ints) -> list[tuple[int, list[int]]]:
    """The nodes of each domain that could serve the shape if enough were moved away, with how many holds must leave at
    least; the likeliest first."""
    domain = pool.domain_of_nodes(shape.within)
    good = np.flatnonzero(could >= (shape.per_node or 1))
    of, size, largest = domain[good], int(domain.max(initial=0)) + 1, max(int(pool.installed.max(initial=1)), 1)
    if shape.per_node:
        lacking = np.maximum(shape.per_node - most[good], 0)
        order = np.lexsort((lacking, of))
        rank = np.arange(len(good)) - np.searchsorted(of[order], of[order])
        first = order[rank < shape.nodes]
        short = np.bincount(of[first], lacking[first], size)
        leave = np.bincount(of[first], -(-lacking[first] // largest), size)
        fitting = np.flatnonzero(np.bincount(of, minlength=size) >= shape.nodes)
    else:
        short = shape.units - np.bincount(of, most[good], size)
        leave = -(-short // largest)
        fitting = np.flatnonzero(np.bincount(of, could[good], size) >= shape.units)
    fitting = fitting[leave[fitting] <= MOST_MOVED]
    nodes = np.bincount(of, minlength=size)
    best = fitting[np.lexsort((fitting, nodes[fitting], short[fitting]))][:_DOMAINS]
    return [(int(leave[d]), good[of == d].tolist()) for d in best.tolist()]


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


def _finish(asked: _Asked, search: Search, easy: Layout | None = None) -> Rearranged:
    units, pool = search.new_units(), search.board.pool
    for node, take in (easy or {}).items():
        free = np.flatnonzero(asked.free_units() & (pool.unit_node == node))
        units[node] = tightest(asked.every, free, take, asked.start, asked.end)
    return Rearranged(placed(pool, asked.shape, units, _level(pool, list(units))), _moves(search))


def _moves(search: Search) -> tuple[Moved, ...]:
    pool, held = search.board.pool, search.board.held
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
