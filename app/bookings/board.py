"""The board on which holds are moved in thought: who is on which node, and the search that makes room.

Pure, and a part of `recolour.py`, which alone uses it. `Board` is what is true; `Search` is a supposition about it that
can be taken back. Nodes and units are indices in the pool, holds their index in `Held`; what is asked for has a negative
key.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from app.bookings.capacity import LEVELS, Busy, Flags, Ints, PoolSnapshot, Range
from app.bookings.colouring import Block, Steps, Stretch, colour, lacks
from app.bookings.held import Held
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
        self.pool, self.held, self._asked = pool, held, movable
        first, last, inside, row = _unit_rows(pool, held.busy.plus(pool.busy))
        self._first, self._last = first, last
        every = held.busy.plus(pool.busy)
        self._start, self._end = every.start[row], every.end[row]
        self._hold = np.concatenate([held.hold, np.full(len(pool.busy), -1)])[row]
        self._node = pool.unit_node[first] if len(first) else first
        mine = np.flatnonzero(self._hold >= 0)
        hold = self._hold[mine]
        self.node = np.full(len(held), -1)
        self.node[hold] = self._node[mine]
        # a hold that covers a unit only in part, or lies on two nodes, is of another layout: it stays where it is
        whole = self.node >= 0
        whole[hold[~inside[mine] | (self._node[mine] != self.node[hold])]] = False
        length = np.concatenate([[0], np.cumsum(pool.unit_upper - pool.unit_lower)])
        covered = np.bincount(hold, (length[last] - length[first])[mine], len(held))
        self.partly_ill = covered < np.bincount(held.hold, held.upper - held.lower, len(held))
        self._whole = whole
        self.movable = movable & whole
        self._rows_by_node = _Index(self._node, len(pool.nodes))
        self._units_by_node = _Index(pool.unit_node, len(pool.nodes))
        self._by_owner: _Index | None = None
        self._free: dict[tuple[int, int], tuple[Ints, Ints]] = {}

    def letting(self, movable: Flags) -> Board:
        """The same where others may move."""
        other = copy(self)
        other.movable, other._free = movable & self._whole, {}
        return other

    def fixed_pool(self) -> PoolSnapshot:
        """The pool with only that taken which does not move."""
        return self.pool.with_busy(self.pool.busy.plus(self.held.busy_of(~self.movable)))

    def units(self, node: int) -> list[int]:
        """The offered units of a node, in order."""
        return self._units_by_node.of(node).tolist()

    def units_of(self, holds: Ints, node: int) -> Ints:
        """The offered units that these holds have of a node."""
        rows = self._rows_by_node.of(node)
        rows = rows[np.isin(self._hold[rows], holds)]
        units = [u for a, b in zip(self._first[rows], self._last[rows], strict=True) for u in range(a, b)]
        return np.unique(np.array(units, np.int64))

    def nodes_of(self, holds: Ints) -> list[int]:
        """The nodes of the pool on which these holds have offered units."""
        return sorted({int(n) for n in self.node[holds] if n >= 0})

    def siblings(self, hold: int) -> list[int]:
        """The other holds of the same owner."""
        if self._by_owner is None:
            self._by_owner = _Index(self.held.owner, int(self.held.owner.max(initial=-1)) + 1)
        return [h for h in self._by_owner.of(int(self.held.owner[hold])).tolist() if h != hold]

    def load(self, node: int, steps: Steps) -> tuple[list[list[Stretch]], dict[int, Block]]:
        """Of a node: for each unit when it is taken by what does not move; and the holds that may."""
        rows = self._rows_by_node.of(node)
        steps.take(10 + len(rows) // 8)
        place = {unit: i for i, unit in enumerate(self.units(node))}
        fixed: list[list[Stretch]] = [[] for _ in place]
        has: dict[int, list[int]] = {}
        times: dict[int, Stretch] = {}
        columns = (self._first, self._last, self._start, self._end, self._hold)
        for first, last, start, end, hold in zip(*(c[rows].tolist() for c in columns), strict=True):
            units = [place[u] for u in range(first, last)]
            if hold >= 0 and self.movable[hold]:
                has.setdefault(hold, []).extend(units)
                times[hold] = (start, end)
            else:
                for unit in units:
                    fixed[unit].append((start, end))
        blocks = {h: Block(h, len(units), *times[h], tuple(sorted(units))) for h, units in has.items()}
        return [_merged(stretches) for stretches in fixed], dict(sorted(blocks.items(), key=lambda b: b[1].start))

    def free(self, start: int, end: int, steps: Steps) -> tuple[Ints, Ints]:
        """For each node how many units nothing takes throughout a time; and how many nothing takes that does not move."""
        if (start, end) not in self._free:
            steps.take(30)
            rows = (self._start < end) & (self._end > start)
            moves = self._hold >= 0
            moves[moves] = self.movable[self._hold[moves]]
            self._free[start, end] = (self._untouched(rows), self._untouched(rows & ~moves))
        return self._free[start, end]

    def _untouched(self, rows: Flags) -> Ints:
        units = len(self.pool.unit_lower)
        change = np.bincount(self._first[rows], minlength=units + 1) - np.bincount(
            self._last[rows], minlength=units + 1
        )
        free = np.cumsum(change[:units]) == 0
        return np.bincount(self.pool.unit_node[free], minlength=len(self.pool.nodes))


@dataclass
class _Node:
    """A node as the search supposes it: its blocks, and when something about them is not as on the board."""

    fixed: list[list[Stretch]]
    blocks: dict[int, Block]
    original: dict[int, Block]
    changes: list[Stretch] = field(default_factory=list)


class Search:
    """Suppositions about a board: blocks added to nodes, holds moved away."""

    def __init__(
        self, board: Board, steps: Steps, power: PoolPower | None = None, asked_until: int | None = None
    ) -> None:
        self.board, self.steps, self.power, self.asked_until = board, steps, power, asked_until
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
            fixed, blocks = self.board.load(node, self.steps)
            self.nodes[node] = _Node(fixed, blocks, dict(blocks))
        return self.nodes[node]

    # --- the search ---

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
        free, could = self.board.free(block.start, block.end, self.steps)
        lacking, short = np.maximum(block.units - free, 0), np.maximum(block.units - could, 0)
        order = np.lexsort((np.arange(len(free)), free, short, lacking))
        tried = 0
        for node in order.tolist():
            if self._allowed(block, node):
                yield node
                tried += 1
                if tried == _TARGETS:
                    return

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
        lacking = lacks(there.fixed, list(there.blocks.values()), (block.start, block.end))
        groups.sort(key=lambda g: (len(g), sum(there.blocks[h].units for h in g if h in there.blocks), g))
        tried = 0
        for size in range(1, most + 1):
            for chosen in combinations(groups, size):
                holds = tuple(sorted({h for group in chosen for h in group}))
                if len(holds) < sum(map(len, chosen)) or len(holds) > most:
                    continue
                if sum(there.blocks[h].units for h in holds if h in there.blocks) < lacking:
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


def _unit_rows(pool: PoolSnapshot, busy: Busy) -> tuple[Ints, Ints, Flags, Ints]:
    """`(first, last, inside, row)` for every range that touches offered units: those from `first` to before `last`, all of
    one node. `inside`: it covers all of each. A range over several nodes is cut."""
    first = np.searchsorted(pool.unit_upper, busy.lower, side="right")
    last = np.searchsorted(pool.unit_lower, busy.upper, side="left")
    row = np.flatnonzero(last > first)
    first, last = first[row], last[row]
    # where the node of a unit is not that of the one before it, counted up: equal numbers are one run of units
    run = np.cumsum(np.diff(pool.unit_node, prepend=pool.unit_node[:1]) != 0)
    over = np.flatnonzero(run[first] != run[last - 1]) if len(first) else row
    inside = (pool.unit_lower[first] >= busy.lower[row]) & (pool.unit_upper[last - 1] <= busy.upper[row])
    if len(over):
        counts = last[over] - first[over]
        single = (
            np.repeat(first[over], counts) + np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        )
        rest = np.ones(len(row), bool)
        rest[over] = False
        first, last = np.concatenate([first[rest], single]), np.concatenate([last[rest], single + 1])
        inside = np.concatenate([inside[rest], np.repeat(inside[over], counts)])
        row = np.concatenate([row[rest], np.repeat(row[over], counts)])
    return first, last, inside, row


def _merged(stretches: list[Stretch]) -> list[Stretch]:
    merged: list[Stretch] = []
    for start, end in sorted(stretches):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged
