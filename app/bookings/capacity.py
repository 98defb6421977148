"""What a pool can give and what is taken of it: the frozen values that placement, the earliest-slot search and the
rules think with. Pure: knows no database, no policy, no price, and not who holds what.

Instants inside are whole seconds since the epoch (int64), so that numpy can compare a hundred thousand of them at once;
whoever calls from outside speaks `Window` and aware datetimes. A *unit* is a range of positions `[lower, upper)`: GPU
number g of the installation owns the positions `[64 g, 64 g + 64)`, a whole GPU takes all of them, a slice a part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from app.kernel.window import Window

if TYPE_CHECKING:
    from app.bookings.power import PoolPower

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Range = tuple[int, int]
Level = Literal["node", "nvlink", "leaf", "rack"]

POSITIONS_PER_GPU = 64
FOREVER = 1 << 40
"""An instant after every real one: the end of use that nobody knows the end of."""
LEVELS: tuple[Level, ...] = ("node", "nvlink", "leaf", "rack")
"""The levels of topology at which units can be required to be together, from the closest to the widest."""


def epoch(instant: datetime) -> int:
    """Whole seconds since 1970 of an aware instant."""
    return int(instant.timestamp())


def instant(seconds: int) -> datetime:
    """The inverse of `epoch`, in UTC."""
    return datetime.fromtimestamp(seconds, UTC)


def joined(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """The same positions as few ranges as possible, in order."""
    merged: list[Range] = []
    for lower, upper in sorted(ranges):
        if merged and merged[-1][1] == lower:
            merged[-1] = (merged[-1][0], upper)
        else:
            merged.append((lower, upper))
    return tuple(merged)


@dataclass(frozen=True, slots=True)
class Shape:
    """How many units, and how they must lie: `units` anywhere, or `nodes` x `per_node` on as many different nodes.

    `within` names the level that all of them must share: required, a promise of the booking. `near` names one that
    they should share: preferred, tried first and given up when nothing fits, so it never causes a refusal or a later
    start. Both may be asked ("in one rack, on one leaf if possible"); `near` is then the closer one. None asks nothing.
    A node whose domain of a level is not known counts as a domain of its own: what is not known is never promised.
    Raises ValueError when it is neither of the two forms, not positive, or `near` is no closer than `within`.
    """

    units: int | None = None
    nodes: int | None = None
    per_node: int | None = None
    within: Level | None = None
    near: Level | None = None

    def __post_init__(self) -> None:
        if (self.units is None) == (self.nodes is None) or (self.nodes is None) != (self.per_node is None):
            raise ValueError("a shape is either units, or nodes x per_node")
        if min(n for n in (self.units, self.nodes, self.per_node) if n is not None) < 1:
            raise ValueError("a shape asks for at least one unit")
        for level in (self.within, self.near):
            if level is not None and level not in LEVELS:
                raise ValueError(f"unknown level {level!r}")
        if self.within and self.near and LEVELS.index(self.near) >= LEVELS.index(self.within):
            raise ValueError(f"a preferred level ({self.near}) is closer than the required one ({self.within})")

    @property
    def total(self) -> int:
        """All units together."""
        return self.units if self.units is not None else self.nodes * self.per_node  # type: ignore[operator]


@dataclass(frozen=True, slots=True)
class Slot:
    """A unit in one layout of its GPU: positions `[lower, upper)`, valid during `[since, until)` in epoch seconds.

    `offered`: the GPU is healthy and the node in service.
    """

    lower: int
    upper: int
    since: int = 0
    until: int = FOREVER
    offered: bool = True


@dataclass(frozen=True, slots=True)
class NodeUnits:
    """A node of a pool: its units as ranges of positions, which of them are offered, and where it stands.

    `offered` is a bit mask over `units` (bit 0 is the first): healthy, node ready, observed, not drained. Units that
    are not offered are installed but no capacity. `absent` are the times `(lower, upper, start, end)` in which a unit
    is not there: not built in yet, removed, or its GPU cut into another layout. It is offered then to nobody.

    A unit carries its share of the node's CPU and memory: whoever books 2 of 8 GPUs has a quarter of the rest, so
    bookings cannot take each other's. What others than Berth take of them takes units away (see `host.py`).
    """

    node_id: int
    units: tuple[Range, ...]
    offered: int
    rack: str | None = None
    leaf: str | None = None
    nvlink: str | None = None
    absent: tuple[tuple[int, int, int, int], ...] = ()

    @classmethod
    def of_slots(
        cls,
        node_id: int,
        slots: Iterable[Slot],
        *,
        rack: str | None = None,
        leaf: str | None = None,
        nvlink: str | None = None,
    ) -> NodeUnits:
        """A node from the slots of *one* kind, of all layouts from now on, in any order.

        A GPU that is cut into slices for a time has no valid whole slot during it, so it is offered whole only before
        and after; its slices are units of their own kinds, in the pools of those kinds. Two slots on the same
        positions at different times are one unit; on positions that overlap otherwise they raise ValueError, as do two
        that are valid at the same time.
        """
        layouts: dict[Range, list[Slot]] = {}
        for slot in sorted(slots, key=lambda s: (s.lower, s.upper, s.since)):
            layouts.setdefault((slot.lower, slot.upper), []).append(slot)
        absent: list[tuple[int, int, int, int]] = []
        for (lower, upper), times in layouts.items():
            there = 0
            for slot in times:
                if slot.since < there:
                    raise ValueError(f"two slots of node {node_id} are valid on positions {lower}..{upper} at once")
                if slot.since > there:
                    absent.append((lower, upper, there, slot.since))
                there = slot.until
            if there < FOREVER:
                absent.append((lower, upper, there, FOREVER))
        offered = sum(1 << i for i, times in enumerate(layouts.values()) if all(s.offered for s in times))
        return cls(node_id, tuple(layouts), offered, rack, leaf, nvlink, tuple(absent))

    @classmethod
    def whole(
        cls,
        node_id: int,
        first_gpu: int,
        gpus: int,
        offered: int | None = None,
        *,
        rack: str | None = None,
        leaf: str | None = None,
        nvlink: str | None = None,
    ) -> NodeUnits:
        """A node of whole GPUs with the global numbers `first_gpu` .. `first_gpu + gpus - 1`; all offered unless
        said."""
        ranges = tuple((POSITIONS_PER_GPU * g, POSITIONS_PER_GPU * (g + 1)) for g in range(first_gpu, first_gpu + gpus))
        return cls(node_id, ranges, (1 << gpus) - 1 if offered is None else offered, rack, leaf, nvlink)


@dataclass(frozen=True, slots=True, eq=False)
class Busy:
    """Taken ranges of positions, each for a time: holds (with their cleaning gap), external use, maintenance.

    Four arrays of equal length; times in epoch seconds, half-open, `FOREVER` where no end is known. They may overlap
    and come in any order.
    """

    lower: Ints
    upper: Ints
    start: Ints
    end: Ints

    @classmethod
    def of_rows(cls, rows: Iterable[tuple[int, int, int, int]]) -> Busy:
        """From rows `(lower, upper, start, end)`; good for hundreds of rows.

        `SELECT lower(r), upper(r), extract(epoch FROM lower(during))::bigint, extract(epoch FROM upper(during))::bigint
        FROM holds, unnest(units) r WHERE live AND …`
        """
        flat = np.fromiter(chain.from_iterable(rows), np.int64)
        return cls(*np.ascontiguousarray(flat.reshape(-1, 4).T))

    @classmethod
    def of_bytes(cls, lower: bytes, upper: bytes, start: bytes, end: bytes) -> Busy:
        """From packed columns in PostgreSQL's own binary form: a hundred thousand holds without a Python object each.

        `SELECT coalesce(string_agg(int4send(lower(r)), ''), '') …, string_agg(int8send(extract(epoch …)::bigint), '')
        …`: positions by int4send, times by int8send, all four in one SELECT so that they keep one order.
        """
        return cls(
            np.frombuffer(lower, ">i4").astype(np.int64),
            np.frombuffer(upper, ">i4").astype(np.int64),
            np.frombuffer(start, ">i8").astype(np.int64),
            np.frombuffer(end, ">i8").astype(np.int64),
        )

    @classmethod
    def nothing(cls) -> Busy:
        """Nothing is taken."""
        return cls(*(np.empty(0, np.int64) for _ in range(4)))

    def touches(self, window: Window) -> bool:
        """Whether any of it lies in the window."""
        return bool(np.any((self.start < epoch(window.end)) & (self.end > epoch(window.start))))

    def plus(self, *others: Busy) -> Busy:
        """All of them together (for instance holds and external use)."""
        every = (self, *others)
        return Busy(*(np.concatenate([getattr(b, name) for b in every]) for name in ("lower", "upper", "start", "end")))

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True, eq=False)
class PoolSnapshot:
    """A pool at one version: its nodes and what is taken of them. Make it with `PoolSnapshot.of`.

    Only *offered* units are in the unit arrays (in order of their positions); `installed` counts all units of each
    node. Busy ranges that touch no offered unit of the pool are harmless, so they may be loaded generously.
    """

    pool_id: int
    cluster_id: int
    kind: str
    nodes: tuple[NodeUnits, ...]
    busy: Busy
    unit_lower: Ints = field(repr=False)
    unit_upper: Ints = field(repr=False)
    unit_node: Ints = field(repr=False)
    installed: Ints = field(repr=False)
    domains: dict[Level, Ints] = field(repr=False)
    power: PoolPower | None = field(default=None, repr=False)
    """Under which power budgets its nodes are: counts wherever none is given."""

    @classmethod
    def of(cls, pool_id: int, cluster_id: int, kind: str, nodes: Sequence[NodeUnits], busy: Busy) -> PoolSnapshot:
        """Build the arrays. Raises ValueError when two units of the pool share a position."""
        ranges = [(i, *r) for i, n in enumerate(nodes) for bit, r in enumerate(n.units) if n.offered >> bit & 1]
        flat = np.fromiter(chain.from_iterable(ranges), np.int64).reshape(-1, 3)
        flat = flat[np.argsort(flat[:, 1], kind="stable")]
        node, lower, upper = (np.ascontiguousarray(c) for c in flat.T)
        if np.any(upper <= lower) or np.any(lower[1:] < upper[:-1]):
            raise ValueError(f"units of pool {pool_id} are empty or share positions")
        return cls(
            pool_id,
            cluster_id,
            kind,
            tuple(nodes),
            _with_absent(nodes, busy),
            lower,
            upper,
            node,
            np.fromiter((len(n.units) for n in nodes), np.int64, len(nodes)),
            {level: _domain_numbers(nodes, level) for level in LEVELS},
        )

    def with_busy(self, busy: Busy) -> PoolSnapshot:
        """The same pool with other use. Units that are not there stay taken."""
        rest = (self.unit_lower, self.unit_upper, self.unit_node, self.installed, self.domains)
        every = _with_absent(self.nodes, busy)
        return PoolSnapshot(self.pool_id, self.cluster_id, self.kind, self.nodes, every, *rest, self.power)

    def under(self, power: PoolPower | None) -> PoolSnapshot:
        """The same pool under power budgets, or under none."""
        return replace(self, power=power)

    def domain_of_nodes(self, level: Level | None) -> Ints:
        """For each node the number of its domain at a level; one number for all where the level is None (the pool)."""
        return np.zeros(len(self.nodes), np.int64) if level is None else self.domains[level]

    def taken(self, start: int, end: int) -> tuple[Ints, Ints, Ints]:
        """`(unit, from, until)`: when each unit is taken, as far as that touches `[start, end)`, in order of unit and
        time. Stretches of one unit neither overlap nor touch, however the busy ranges did."""
        rows = np.flatnonzero((self.busy.start < end) & (self.busy.end > start))
        first = np.searchsorted(self.unit_upper, self.busy.lower[rows], side="right")
        counts = np.maximum(np.searchsorted(self.unit_lower, self.busy.upper[rows], side="left") - first, 0)
        unit = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts - first, counts)
        since, until = np.repeat(self.busy.start[rows], counts), np.repeat(self.busy.end[rows], counts)
        order = np.argsort(unit * FOREVER + since)
        unit, since, until = unit[order], since[order], until[order]
        # The latest end so far on the same unit: units are kept apart by adding a multiple larger than any end.
        latest = np.maximum.accumulate(unit * (2 * FOREVER) + until) - unit * (2 * FOREVER)
        fresh = np.ones(len(unit), bool)
        fresh[1:] = (unit[1:] != unit[:-1]) | (since[1:] > latest[:-1])
        last = np.roll(fresh, -1)  # the last stretch of a run is followed by a fresh one
        return unit[fresh], since[fresh], latest[last]


def _with_absent(nodes: Sequence[NodeUnits], busy: Busy) -> Busy:
    rows = [row for node in nodes if node.absent for row in node.absent]
    return busy.plus(Busy.of_rows(rows)) if rows else busy


def _domain_numbers(nodes: Sequence[NodeUnits], level: Level) -> Ints:
    """Domains numbered in order of first appearance; a node without a value stands alone."""
    numbers: dict[object, int] = {}
    values = ((None if level == "node" else getattr(node, level)) for node in nodes)
    keys = ((i,) if value is None else value for i, value in enumerate(values))
    return np.fromiter((numbers.setdefault(key, len(numbers)) for key in keys), np.int64, len(nodes))
