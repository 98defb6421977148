"""Power budgets of racks, rooms, or any set of nodes: what is drawn of them over time, and whether more fits.

Pure. A booking draws its units' power for its window, whatever it computes: a budget is kept by what was promised, not
by what is measured. It must not know bookings: draws are watts over a time, of every kind and pool that a budget feeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from app.bookings.capacity import Busy, Ints, PoolSnapshot, Shape, joined

Layout = dict[int, int]
"""How many units to take of which node (by its index in the pool)."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What a domain may draw at any instant. `name` as people say it: "rack r12"."""

    name: str
    watts: int


@dataclass(frozen=True, slots=True)
class PowerShort:
    """A refusal for power: the budget that comes nearest to enough, its limit, what is drawn of it at the worst instant
    of the window, and what was asked; all in watts."""

    budget: str
    limit: int
    drawn: int
    asked: int


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """Watts drawn of budgets (by their index) over times: four arrays of equal length, half-open, epoch seconds."""

    budget: Ints
    start: Ints
    end: Ints
    watts: Ints

    @classmethod
    def of_rows(cls, rows: Iterable[tuple[int, int, int, int]]) -> Draws:
        """From rows `(budget, start, end, watts)`, in any order."""
        flat = np.fromiter(chain.from_iterable(rows), np.int64)
        return cls(*np.ascontiguousarray(flat.reshape(-1, 4).T))

    def plus(self, rows: Iterable[tuple[int, int, int, int]]) -> Draws:
        """These and more."""
        more = Draws.of_rows(rows)
        return Draws(
            *(np.concatenate([getattr(d, n) for d in (self, more)]) for n in ("budget", "start", "end", "watts"))
        )

    def peaks(self, budgets: int, start: int, end: int) -> Ints:
        """For each budget the most watts drawn of it at one instant of `[start, end)`."""
        rows = np.flatnonzero((self.start < end) & (self.end > start))
        budget = np.concatenate([self.budget[rows]] * 2)
        at = np.concatenate([np.maximum(self.start[rows], start), self.end[rows]])
        step = np.concatenate([self.watts[rows], -self.watts[rows]])
        order = np.lexsort((step, at, budget))  # at one instant what ends comes before what begins
        most = np.zeros(budgets, np.int64)
        np.maximum.at(most, budget[order], np.cumsum(step[order]))
        return most


def fits(draws: Draws, budget: int, limit: int, watts: int, start: int, end: int) -> bool:
    """Whether `watts` more can be drawn of a budget of `limit` watts throughout `[start, end)`."""
    mine = draws.budget == budget
    one = Draws(np.zeros(int(mine.sum()), np.int64), draws.start[mine], draws.end[mine], draws.watts[mine])
    return int(one.peaks(1, start, end)[0]) + watts <= limit


@dataclass(frozen=True, slots=True, eq=False)
class PoolPower:
    """A pool's nodes under their budgets.

    `watts`: for each node of the pool (in its order) what one unit draws, with its share of the node's own needs.
    `layers`: for each layer of budgets (racks, say, and the room around them) the index of each node's budget, -1 where
    it has none. `draws` are everybody's, also those of other pools.
    """

    budgets: Sequence[Budget]
    layers: tuple[Ints, ...]
    watts: Ints
    draws: Draws = field(repr=False)

    def __post_init__(self) -> None:
        if np.any(self.watts < 1):
            raise ValueError("a unit draws at least one watt")

    def room(self, start: int, end: int) -> PowerRoom:
        """What each budget leaves throughout `[start, end)`; less than nothing where it is exceeded already."""
        limits = np.fromiter((b.watts for b in self.budgets), np.int64, len(self.budgets))
        return PowerRoom(self, limits - self.draws.peaks(len(self.budgets), start, end), limits)

    def with_draws(self, rows: Iterable[tuple[int, int, int, int]]) -> PoolPower:
        """The same with more `(node, start, end, watts)` drawn at nodes of the pool (by index)."""
        more = [
            (int(layer[node]), start, end, watts)
            for node, start, end, watts in rows
            for layer in self.layers
            if layer[node] >= 0
        ]
        return PoolPower(self.budgets, self.layers, self.watts, self.draws.plus(more))

    def shut(self, pool: PoolSnapshot, units: int, gap: int = 0) -> Busy:
        """When nodes cannot be fed so many units, as busy stretches of all their units, so that a search over time may
        leave them out. A stretch begins `gap` seconds late: a booking's gap draws nothing, it may lie inside."""
        rows: list[tuple[int, int, int, int]] = []
        for budget, limit in enumerate(self.budgets):
            stretches = [(start + gap, end, drawn) for start, end, drawn in self._profile(budget) if start + gap < end]
            for layer in self.layers:
                for node in np.flatnonzero(layer == budget).tolist():
                    most = limit.watts - units * int(self.watts[node])
                    short = [(start, end) for start, end, drawn in stretches if drawn > most]
                    if short:
                        rows += [(low, high, *s) for low, high in joined(pool.nodes[node].units) for s in short]
        return Busy.of_rows(rows)

    def _profile(self, budget: int) -> list[tuple[int, int, int]]:
        """`(start, end, watts)` of a budget where something is drawn."""
        mine = np.flatnonzero(self.draws.budget == budget)
        at = np.concatenate([self.draws.start[mine], self.draws.end[mine]])
        step = np.concatenate([self.draws.watts[mine], -self.draws.watts[mine]])
        order = np.argsort(at, kind="stable")
        at, drawn = at[order].tolist(), np.cumsum(step[order]).tolist()
        return [(a, b, d) for a, b, d in zip(at, at[1:], drawn, strict=False) if a < b]


@dataclass(frozen=True, slots=True, eq=False)
class PowerRoom:
    """What budgets leave for one window. `left` and `limits` are watts, by the index of the budget."""

    power: PoolPower
    left: Ints
    limits: Ints

    def units_of_nodes(self) -> Ints:
        """How many units each node could be fed if it were the only one that takes more."""
        most = np.full(len(self.power.watts), 1 << 40)
        for layer in self.power.layers:
            known = layer >= 0
            most[known] = np.minimum(most[known], np.maximum(self.left[layer[known]], 0) // self.power.watts[known])
        return most

    def binds(self, counts: Ints) -> bool:
        """Whether some budget could not feed so many units of its nodes together."""
        for layer in self.power.layers:
            known = layer >= 0
            drawn = np.bincount(layer[known], (counts * self.power.watts)[known], len(self.left))
            if np.any(drawn > np.maximum(self.left, 0)):
                return True
        return False

    def fill(self, counts: Ints, nodes: Ints, shape: Shape) -> Layout | None:
        """How many units to take of which of these nodes so that no budget is exceeded, or None.

        First as best fits, then the nodes that draw least first. Where units draw the same, both find a layout whenever
        there is one, for budgets that lie beside or inside each other.
        """
        wanted = shape.units or 0
        # of n units anywhere: few nodes, the smallest that takes all of them or else the largest first
        fitting = np.where(counts[nodes] >= wanted, counts[nodes] - (1 << 40), -counts[nodes])
        for first in (fitting, self.power.watts[nodes]):
            layout = self._take(counts, nodes[np.lexsort((nodes, first))].tolist(), shape)
            if layout is not None:
                return layout
        return None

    def _take(self, counts: Ints, order: list[int], shape: Shape) -> Layout | None:
        left, layout, wanted = self.left.tolist(), Layout(), shape.units or shape.nodes
        for node in order:
            watts = int(self.power.watts[node])
            budgets = [int(layer[node]) for layer in self.power.layers if layer[node] >= 0]
            fed = min((max(left[b], 0) // watts for b in budgets), default=1 << 40)
            take = min(int(counts[node]), wanted, fed) if shape.units else shape.per_node
            if take < 1 or take > fed:
                continue
            for budget in budgets:
                left[budget] -= take * watts
            layout[node] = take
            wanted -= take if shape.units else 1
            if not wanted:
                return layout
        return None

    def short(self, shape: Shape) -> PowerShort:
        """What to say when this is what stands in the way."""
        known = np.unique(np.concatenate([layer[layer >= 0] for layer in self.power.layers]))
        best = int(known[np.argmax(self.left[known])])
        asked = shape.total * int(self.power.watts.min())
        limit, left = int(self.limits[best]), int(self.left[best])
        return PowerShort(self.power.budgets[best].name, limit, limit - left, asked)
