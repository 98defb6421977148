"""Suppositions about who could be where: makes room for blocks by sending holds to other nodes, and takes it back.

Pure, and a part of `recolour.py`, which alone uses it. Nodes are indices in the pool, holds their index in `Held`; what is
asked for has a negative key. The order in which things are tried is fixed, and every step is counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from app.bookings.board import Board
from app.bookings.capacity import LEVELS, Ints, Range
from app.bookings.colouring import Block, Steps, Stretch, colour, lacks
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
