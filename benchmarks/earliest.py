"""The earliest start of a shape over 6,212 GPUs and 90 days, with 100,000 holds at 70 % occupancy; and (`large_`) over
80,000 GPUs with as many holds on each.

Each question is answered four ways in the same process, and the four answers must be equal:

- `uncached_ms`: from the arrays of holds, nothing kept.
- `prepared_ms`: with the sorted gaps of the pool's version at hand, as a second quote is.
- `grid_ms`: a plain recomputation with numpy on a grid of 15 minutes: a table of units x slots, filled and searched.
- `grid_kept_ms`: the same with the table at hand (it takes `grid_mb`).

Milliseconds are medians over the questions, each the best of a few tries (other programs on the machine only add);
`_worst_ms` is the slowest question. `_ratio` is a quotient of medians of this run.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import product
from statistics import median
from typing import TypeVar

import numpy as np

from app.bookings.capacity import Busy, NodeUnits, PoolSnapshot, Shape, epoch
from app.bookings.earliest import earliest, free_starts, prepare
from app.bookings.placement import place
from app.kernel.clock import monotonic
from app.kernel.window import Window

NAME = "earliest"
START = datetime(2026, 12, 1, tzinfo=UTC)
SLOT = 900
SIZES = {"full": (6212, 90, 100_000), "small": (300, 14, 800)}
LARGE = (80_000, 90, 1_290_000)
"""GPUs, days, holds."""
Answer = TypeVar("Answer")


def run(size: str = "full") -> dict[str, float]:
    """Figures as the module says."""
    figures = measure(*SIZES[size], hours=(1, 6, 24))
    if size == "full":
        figures |= {f"large_{key}": value for key, value in measure(*LARGE, hours=(6,)).items()}
    return figures


def measure(gpus: int, days: int, holds: int, hours: tuple[int, ...]) -> dict[str, float]:
    """The figures of one size, asked for each shape and these lengths."""
    nodes, busy = crowded(gpus, days, holds)
    pool, built = timed(lambda: PoolSnapshot.of(1, 1, "h100", nodes, busy), 3)
    ready, prepared = timed(lambda: prepare(pool), 3)
    table, filled = timed(lambda: fill(pool, days), 1)
    ends_by = START + timedelta(days=days)
    figures: dict[str, list[float]] = {"uncached": [], "prepared": [], "grid": [], "grid_kept": []}
    for shape, length in product(QUESTIONS, hours):
        ask = (shape, length * 3600, START, ends_by)
        one, t = timed(lambda ask=ask: earliest(pool, *ask), 3)
        figures["uncached"].append(t)
        two, t = timed(lambda ask=ask: earliest(ready, *ask), 5)
        figures["prepared"].append(t)
        three, t = timed(lambda ask=ask: search(pool, table, *ask[:2]), 1)
        figures["grid_kept"].append(t)
        figures["grid"].append(t + filled)
        if not one == two == three:
            raise AssertionError(f"{shape} for {length} h: {one}, prepared {two}, on the grid {three}")
    stay = Window(START + timedelta(days=1), START + timedelta(days=1, hours=6))
    heat = (ready, Shape(nodes=2, per_node=8, within="leaf"), 6 * 3600, START, 24 * min(14, days), timedelta(hours=1))
    medians = {name: median(times) for name, times in figures.items()}
    return {
        "gpus": gpus,
        "nodes": len(nodes),
        "holds": len(busy),
        "days": days,
        "occupancy": occupancy(busy, gpus, days),
        "questions": len(figures["prepared"]),
        **{f"{name}_ms": value for name, value in medians.items()},
        **{f"{name}_worst_ms": max(times) for name, times in figures.items()},
        "snapshot_ms": built,
        "prepare_ms": prepared,
        "place_ms": timed(lambda: place(pool, Shape(nodes=2, per_node=8), stay), 5)[1],
        "heat_of_14_days_ms": timed(lambda: free_starts(*heat), 3)[1],
        "grid_mb": table.nbytes / 1e6,
        "uncached_to_prepared_ratio": medians["uncached"] / medians["prepared"],
        "grid_to_uncached_ratio": medians["grid"] / medians["uncached"],
        "grid_to_prepared_ratio": medians["grid"] / medians["prepared"],
        "grid_kept_to_prepared_ratio": medians["grid_kept"] / medians["prepared"],
    }


QUESTIONS = (
    Shape(units=1),
    Shape(units=8, within="node"),
    Shape(units=64),
    Shape(units=16, within="rack"),
    Shape(nodes=2, per_node=8, within="leaf"),
    Shape(nodes=4, per_node=4, within="rack"),
    Shape(nodes=16, per_node=8),
    Shape(units=1500),
)


def crowded(gpus: int, days: int, holds: int, seed: int = 7, share: float = 0.7) -> tuple[list[NodeUnits], Busy]:
    """Nodes of 8, 4 and 2 GPUs in leaves of 4 and racks of 8, and about so many holds that fill so much (70 %) of the days.

    Each node is divided into lanes of whole GPUs; a lane is held and free by turns. All on the grid of 15 minutes.
    """
    chance = np.random.default_rng(seed)
    nodes, lanes, first = [], [], 0
    while first < gpus:
        size = min(int(chance.choice([8, 8, 8, 4, 2])), gpus - first)
        place_ = len(nodes)
        where = {"rack": f"r{place_ // 8}", "leaf": f"l{place_ // 4}", "nvlink": f"n{place_ // 2}"}
        nodes.append(NodeUnits.whole(place_, first, size, **where))
        width = int(chance.choice([size, max(size // 2, 1), 1 if size < 8 else 2]))
        lanes += [(first + g, min(first + g + width, first + size)) for g in range(0, size, width)]
        first += size
    slots = days * 86400 // SLOT
    mean = share * slots * len(lanes) / holds  # slots of a hold
    rows = []
    for low, high in lanes:
        now = -int(chance.integers(0, max(int(mean), 1)))
        while now < slots:
            length = 1 + int(chance.exponential(max(mean - 1, 0.1)))
            rows.append((64 * low, 64 * high, epoch(START) + now * SLOT, epoch(START) + (now + length) * SLOT))
            now += length + int(chance.exponential(mean * (1 - share) / share) + chance.random())
    return nodes, Busy.of_rows(rows)


def occupancy(busy: Busy, gpus: int, days: int) -> float:
    """The share of all GPU time that is held."""
    start, end = epoch(START), epoch(START) + days * 86400
    seconds = np.maximum(np.minimum(busy.end, end) - np.maximum(busy.start, start), 0)
    return float(((busy.upper - busy.lower) // 64 * seconds).sum() / (gpus * (end - start)))


def fill(pool: PoolSnapshot, days: int) -> np.ndarray:
    """`[unit, slot]`: how many slots before this one are taken; one more column than slots."""
    slots = days * 86400 // SLOT
    table = np.zeros((len(pool.unit_lower), slots + 1), np.int16)
    busy, origin = pool.busy, epoch(START)
    first = np.maximum((busy.start - origin) // SLOT, 0)
    last = np.clip(-((origin - busy.end) // SLOT), 0, slots)
    low, high = busy.lower // 64, busy.upper // 64
    for a, b, x, y in zip(low.tolist(), high.tolist(), (first + 1).tolist(), (last + 1).tolist(), strict=True):
        table[a:b, x:y] = 1
    return np.cumsum(table, axis=1, out=table)


def search(pool: PoolSnapshot, table: np.ndarray, shape: Shape, seconds: int) -> datetime | None:
    """The first slot at which the shape fits, by looking at every slot."""
    need = seconds // SLOT
    free = table[:, need:] == table[:, :-need]
    nodes = np.flatnonzero(np.diff(pool.unit_node, prepend=-1))
    counts = np.add.reduceat(free, nodes, axis=0, dtype=np.int16)
    if shape.per_node:
        counts = (counts >= shape.per_node).astype(np.int16)
    domain = pool.domain_of_nodes(shape.within)
    sums = np.add.reduceat(counts, np.flatnonzero(np.diff(domain, prepend=-1)), axis=0, dtype=np.int32)
    fits = np.flatnonzero((sums >= (shape.units or shape.nodes)).any(axis=0))
    return START + timedelta(seconds=int(fits[0]) * SLOT) if len(fits) else None


def timed(ask: Callable[[], Answer], times: int) -> tuple[Answer, float]:
    """The answer, and the fewest milliseconds that it took."""
    took = []
    for _ in range(times):
        began = monotonic()
        answer = ask()
        took.append((monotonic() - began) * 1000)
    return answer, min(took)
