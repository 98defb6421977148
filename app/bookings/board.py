"""The board on which holds are moved in thought: who is on which node, and which of them may move.

Pure, and for `recolour.py` and `search.py` alone. It is what is true; suppositions are the search's. Nodes and units are
indices in the pool, holds their index in `Held`.
"""

from __future__ import annotations

from copy import copy

import numpy as np

from app.bookings.capacity import Busy, Flags, Ints, PoolSnapshot
from app.bookings.colouring import Block, Steps, Stretch
from app.bookings.held import Held


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
