"""The board on which holds are moved in thought: who is on which node, and the search that makes room.

Pure, and a part of `recolour.py`, which alone uses it. `Board` is what is true; `Search` is a supposition about it that
can be taken back. Nodes and units are indices in the pool, holds their index in `Held`; what is asked for has a negative
key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from app.bookings.capacity import LEVELS, Flags, Ints, PoolSnapshot, Range
from app.bookings.colouring import Block, Steps, Stretch, colour
from app.bookings.held import Held
from app.bookings.placement import most_taken
from app.bookings.power import PoolPower

_TARGETS = 40
"""How many nodes are tried for a hold that gives way."""
_SETS = 60
"""How many sets of holds are tried to be sent away from one node."""


@dataclass(frozen=True, slots=True)
class Task:
    """A block that needs a node, one of `nodes` in this order. `in_order`: none before the node of the task before it,
    since both ask the same."""

    block: Block
    nodes: tuple[int, ...] | None
    in_order: bool = False


class Board:
    """A pool's nodes with what is fixed on them and the holds that may move."""

    def __init__(self, pool: PoolSnapshot, held: Held, movable: Flags) -> None:
        self.pool, self.held = pool, held
        self._hold, self._unit, inside = _on_units(pool, held.lower, held.upper, held.hold)
        node = np.full(len(held), -1)
        node[self._hold] = pool.unit_node[self._unit]
        whole = np.ones(len(held), bool)
        # a hold that covers a unit only in part, or lies on two nodes, is of another layout: it stays where it is
        whole[self._hold[~inside]] = False
        whole[self._hold[pool.unit_node[self._unit] != node[self._hold]]] = False
        self.movable = movable & whole & (node >= 0)
        self.node = node
        covered = np.bincount(self._hold, pool.unit_upper[self._unit] - pool.unit_lower[self._unit], len(held))
        self.partly_ill = covered < np.bincount(held.hold, held.upper - held.lower, len(held))
        self.fixed_pool = pool.with_busy(pool.busy.plus(held.busy_of(~self.movable)))
        self._by_node = _Index(np.where(self.movable, node, len(pool.nodes)), len(pool.nodes))
        self._by_hold = _Index(self._hold, len(held))
        self._by_owner = _Index(held.owner, int(held.owner.max(initial=-1)) + 1)
        self._units_by_node = _Index(pool.unit_node, len(pool.nodes))
        busy = self.fixed_pool.busy
        rows, unit, _ = _on_units(pool, busy.lower, busy.upper, np.arange(len(busy)))
        self._fixed = _Index(unit, len(pool.unit_lower))
        self._fixed_start, self._fixed_end = busy.start[rows], busy.end[rows]
        self._counts: dict[tuple[int, int], tuple[Ints, Ints]] = {}

    def units(self, node: int) -> list[int]:
        """The offered units of a node, in order."""
        return sorted(self._units_by_node.of(node).tolist())

    def units_of(self, holds: Ints, node: int) -> Ints:
        """The offered units that these holds have of a node."""
        units = [self._unit[self._by_hold.of(h)] for h in holds.tolist()]
        every = np.concatenate([*units, np.empty(0, np.int64)]).astype(np.int64)
        return np.unique(every[self.pool.unit_node[every] == node])

    def nodes_of(self, holds: Ints) -> list[int]:
        """The nodes of the pool on which these holds have offered units."""
        return sorted({int(n) for n in self.node[holds] if n >= 0})

    def siblings(self, hold: int) -> list[int]:
        """The other holds of the same owner."""
        return [h for h in self._by_owner.of(int(self.held.owner[hold])).tolist() if h != hold]

    def blocks(self, node: int) -> dict[int, Block]:
        """The holds of a node that may move."""
        place = {unit: i for i, unit in enumerate(self.units(node))}
        found = {}
        for hold in self._by_node.of(node).tolist():
            now = tuple(sorted(place[u] for u in self._unit[self._by_hold.of(hold)].tolist()))
            found[hold] = Block(hold, len(now), int(self.held.start[hold]), int(self.held.end[hold]), now)
        return found

    def fixed(self, node: int) -> list[list[Stretch]]:
        """For each unit of a node when it is taken by what does not move."""
        found = []
        for unit in self.units(node):
            rows = self._fixed.of(unit)
            merged: list[Stretch] = []
            for start, end in sorted(
                zip(self._fixed_start[rows].tolist(), self._fixed_end[rows].tolist(), strict=True)
            ):
                if merged and start <= merged[-1][1]:
                    merged[-1] = (merged[-1][0], max(merged[-1][1], end))
                else:
                    merged.append((start, end))
            found.append(merged)
        return found

    def counts(self, start: int, end: int, steps: Steps) -> tuple[Ints, Ints]:
        """For each node how many units it has throughout a time, by counting: as it is, and if all that may move were
        away."""
        if (start, end) not in self._counts:
            steps.take(100)
            offered = np.bincount(self.pool.unit_node, minlength=len(self.pool.nodes))
            every = self.pool.with_busy(self.pool.busy.plus(self.held.busy))
            self._counts[start, end] = (
                offered - most_taken(every, start, end),
                offered - most_taken(self.fixed_pool, start, end),
            )
        return self._counts[start, end]


@dataclass
class _Node:
    """A node as the search supposes it: its blocks, and when something about them is not as on the board."""

    fixed: list[list[Stretch]]
    blocks: dict[int, Block]
    original: dict[int, Block]
    changes: list[Stretch] = field(default_factory=list)


class Search:
    """Suppositions about a board: blocks added to nodes, holds moved away. At most `most` holds leave their nodes."""

    def __init__(self, board: Board, steps: Steps, most: int, power: PoolPower | None = None) -> None:
        self.board, self.steps, self.most, self.power = board, steps, most, power
        self.asked_until: int | None = None
        self.nodes: dict[int, _Node] = {}
        self.where: dict[int, int] = {}
        self._known: dict[tuple, dict[int, tuple[int, ...]] | None] = {}

    # --- suppositions ---

    def add(self, node: int, block: Block) -> bool:
        """Suppose a block on a node; whether there are units for all then."""
        there = self._node(node)
        there.blocks[block.key] = block
        there.changes.append((block.start, block.end))
        return self.colours(node) is not None

    def remove(self, node: int, key: int) -> None:
        """Suppose a block away from a node."""
        there = self._node(node)
        block = there.blocks.pop(key)
        if key in there.original:
            there.changes.append((block.start, block.end))
        else:
            there.changes.remove((block.start, block.end))

    def _put_back(self, node: int, block: Block) -> None:
        there = self._node(node)
        there.blocks[block.key] = block
        there.changes.remove((block.start, block.end))

    def colours(self, node: int) -> dict[int, tuple[int, ...]] | None:
        """The units of the blocks of a node as supposed, of those that the changes touch; None when it cannot be."""
        there = self._node(node)
        if not there.changes:
            return {}
        gone = there.original.keys() - there.blocks.keys()
        come = sorted((b.key, b.units, b.start, b.end) for k, b in there.blocks.items() if k not in there.original)
        question = (node, tuple(sorted(gone)), tuple(come))
        if question not in self._known:
            change = (min(s for s, _ in there.changes), max(e for _, e in there.changes))
            self._known[question] = colour(there.fixed, list(there.blocks.values()), change, self.steps)
        return self._known[question]

    def _node(self, node: int) -> _Node:
        if node not in self.nodes:
            blocks = self.board.blocks(node)
            self.nodes[node] = _Node(self.board.fixed(node), blocks, dict(blocks))
        return self.nodes[node]

    # --- the search ---

    def settle_within(self, tasks: list[Task]) -> bool:
        """As `settle`, with as few moves as it finds."""
        return any(self.settle(tasks, most) for most in (0, 1, 2, 4, 8) if most <= self.most)

    def settle(self, tasks: list[Task], most: int) -> bool:
        """Find nodes for all blocks, sending at most so many holds from their nodes to others. What it finds stays
        supposed; when it finds nothing, all is as before."""
        return self._settle(tasks, most, {})

    def _settle(self, tasks: list[Task], most: int, asked: dict[int, int]) -> bool:
        if not tasks:
            return self._power_allows()
        task, rest = tasks[0], tasks[1:]
        block = task.block
        for node in self._candidates(task, asked):
            self.steps.take()
            fits = self.add(node, block)
            if block.key < 0:
                asked[block.key] = node
            else:
                self.where[block.key] = node
            if fits:
                if self._settle(rest, most, asked):
                    return True
            elif most:
                for leaving in self._leaving(node, block, most):
                    homes = [(int(self.board.node[h]), self._node(int(self.board.node[h])).blocks[h]) for h in leaving]
                    for home, hold in homes:
                        self.remove(home, hold.key)
                        self.where[hold.key] = -1
                    good = self.colours(node) is not None
                    more = [Task(Block(b.key, b.units, b.start, b.end), None) for _, b in homes]
                    if good and self._settle([*more, *rest], most - len(leaving), asked):
                        return True
                    for home, hold in homes:
                        self._put_back(home, hold)
                        del self.where[hold.key]
            self.remove(node, block.key)
            if block.key < 0:
                del asked[block.key]
            else:
                self.where[block.key] = -1
        return False

    def _candidates(self, task: Task, asked: dict[int, int]) -> Iterator[int]:
        """Nodes to try for a block, the likeliest first."""
        block = task.block
        if task.nodes is not None:
            nodes = task.nodes
            before = asked.get(block.key + 1)
            if task.in_order and before is not None:
                nodes = nodes[nodes.index(before) + 1 :]
            yield from nodes
            return
        free, could = self.board.counts(block.start, block.end, self.steps)
        good = np.flatnonzero(could >= block.units)
        lacking = np.maximum(block.units - free[good], 0)
        order = good[np.lexsort((good, free[good], lacking))][:_TARGETS].tolist()
        yield from (node for node in order if self._allowed(block, node))

    def _allowed(self, block: Block, node: int) -> bool:
        """Whether a hold may go to a node: another one than its own, near its siblings where that was promised."""
        board, hold = self.board, block.key
        if node == int(board.node[hold]) or board.partly_ill[hold]:
            return False
        within = int(board.held.within[hold])
        if within < 0 and not board.held.apart[hold]:
            return True
        domain = board.pool.domain_of_nodes(LEVELS[within]) if within >= 0 else None
        for other in board.siblings(hold):
            there = self.where.get(other, int(board.node[other]))
            if there < 0:
                continue
            if board.held.apart[hold] and there == node:
                return False
            if domain is not None and domain[there] != domain[node]:
                return False
        return True

    def _leaving(self, node: int, block: Block, most: int) -> Iterator[tuple[int, ...]]:
        """Sets of holds that could leave a node to make room for a block, the smallest first. A hold goes alone, or with
        all its siblings where they must stay together."""
        board = self.board
        there = self._node(node)
        groups: list[tuple[int, ...]] = []
        for key, other in there.blocks.items():
            if key < 0 or key in self.where or board.partly_ill[key]:
                continue
            if other.start < block.end and other.end > block.start:
                groups.append((key,))
                family = board.siblings(key)
                if family and board.held.within[key] >= 0:
                    free = all(board.movable[s] and s not in self.where and not board.partly_ill[s] for s in family)
                    if free and len(family) < most:
                        groups.append((key, *family))
        groups.sort(key=lambda g: (len(g), sum(there.blocks[h].units for h in g if h in there.blocks), g))
        tried = 0
        for size in range(1, most + 1):
            for chosen in combinations(groups, size):
                holds = tuple(sorted({h for group in chosen for h in group}))
                if len(holds) < sum(map(len, chosen)) or len(holds) > most:
                    continue
                tried += 1
                if tried > _SETS:
                    return
                yield holds

    def _power_allows(self) -> bool:
        """Whether every budget is kept by what is asked and by the holds that went to other nodes."""
        if self.power is None:
            return True
        power, watts = self.power, self.power.watts
        for hold, node in self.where.items():
            home = int(self.board.node[hold])
            same = all(layer[node] in (-1, layer[home]) for layer in power.layers) and watts[node] <= watts[home]
            if not same:
                block = self.nodes[node].blocks[hold]
                if block.units > power.room(block.start, block.end).units_of_nodes()[node]:
                    return False
                power = power.with_draws([(node, block.start, block.end, block.units * int(watts[node]))])
        counts = np.zeros(len(watts), np.int64)
        start = end = 0
        for node, there in self.nodes.items():
            for key, block in there.blocks.items():
                if key < 0:
                    counts[node] += block.units
                    start, end = block.start, self.asked_until or block.end
        return start == end or not power.room(start, end).binds(counts)

    # --- what was found ---

    def units_now(self, hold: int) -> tuple[int, Ints]:
        """The node of a hold that may move, and its units, as supposed."""
        node = self.where.get(hold, int(self.board.node[hold]))
        units = np.array(self.board.units(node), np.int64)
        there = self._node(node)
        colours = self.colours(node) or {}
        return node, units[list(colours.get(hold, there.blocks[hold].now))]

    def new_units(self) -> dict[int, Ints]:
        """The units of what was asked for, by node."""
        found: dict[int, list[int]] = {}
        for node, there in self.nodes.items():
            units, colours = self.board.units(node), self.colours(node) or {}
            for key in there.blocks:
                if key < 0:
                    found.setdefault(node, []).extend(units[i] for i in colours[key])
        return {node: np.array(sorted(units), np.int64) for node, units in found.items() if units}

    def changed(self) -> Iterator[tuple[int, int, Ints, tuple[Range, ...]]]:
        """`(hold, node, units, positions that stay)` of every hold whose node or units are not as on the board."""
        for node, there in self.nodes.items():
            units, colours = np.array(self.board.units(node), np.int64), self.colours(node) or {}
            for key, new in colours.items():
                if key >= 0 and set(new) != set(there.blocks[key].now):
                    yield key, node, units[sorted(new)], self._kept(key) if key not in self.where else ()

    def ranges(self, units: Ints) -> list[Range]:
        """Units as ranges of positions."""
        pool = self.board.pool
        return list(zip(pool.unit_lower[units].tolist(), pool.unit_upper[units].tolist(), strict=True))

    def _kept(self, hold: int) -> tuple[Range, ...]:
        """Positions of a hold on units that are not offered: they stay what they are."""
        if not self.board.partly_ill[hold]:
            return ()
        mine = self.ranges(self.board.units_of(np.array([hold]), int(self.board.node[hold])))
        rest: list[Range] = []
        for lower, upper in self.board.held.ranges(hold):
            at = lower
            for low, high in mine:
                if low < upper and high > lower:
                    if low > at:
                        rest.append((at, low))
                    at = high
            if at < upper:
                rest.append((at, upper))
        return tuple(rest)


class _Index:
    """The rows of each group, found quickly."""

    def __init__(self, group: Ints, groups: int) -> None:
        self._order = np.argsort(group, kind="stable")
        self._borders = np.searchsorted(group[self._order], np.arange(groups + 1))

    def of(self, group: int) -> Ints:
        return self._order[self._borders[group] : self._borders[group + 1]]


def _on_units(pool: PoolSnapshot, lower: Ints, upper: Ints, row: Ints) -> tuple[Ints, Ints, Flags]:
    """`(row, unit, inside)` for every offered unit that a range touches; `inside`: the range covers all of it."""
    first = np.searchsorted(pool.unit_upper, lower, side="right")
    counts = np.maximum(np.searchsorted(pool.unit_lower, upper, side="left") - first, 0)
    unit = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts - first, counts)
    inside = (pool.unit_lower[unit] >= np.repeat(lower, counts)) & (pool.unit_upper[unit] <= np.repeat(upper, counts))
    return np.repeat(row, counts), unit, inside
