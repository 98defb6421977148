"""Making room by moving holds, on 6,212 GPUs in 1,100 nodes that are nearly full for 14 days.

Requests of 1 to 64 units, at a given time, each on the same pool: most find no free place as it is (`asked` are those),
since holds of a node's GPUs begin and end at all hours. A tenth of the holds is pinned, what has begun is started.
`_ms` are over all questions that find no free place, the refused ones included: that is time spent under the pool's lock.
`_share` are parts of them: fits by moving holds; only pins stand in the way; not every way was tried.
"""

from __future__ import annotations

from datetime import timedelta

import numpy as np

from app.bookings.capacity import Busy, PoolSnapshot, Shape, epoch
from app.bookings.held import Held
from app.bookings.placement import NoPlace, place
from app.bookings.recolour import Rearranged, place_moving
from app.kernel.clock import monotonic
from app.kernel.window import Window
from benchmarks.earliest import START, crowded, occupancy

NAME = "recolour"
SIZES = {"full": (6212, 14, 20_000, 400), "small": (300, 7, 800, 20)}
"""GPUs, days, holds, questions."""
SHAPES = (
    Shape(units=1),
    Shape(units=2, within="node"),
    Shape(units=4, within="node"),
    Shape(units=8, within="node"),
    Shape(units=24, within="leaf"),
    Shape(nodes=2, per_node=8, within="nvlink"),
    Shape(nodes=4, per_node=4, within="rack"),
    Shape(nodes=8, per_node=8),
    Shape(units=64, within="rack"),
)


def run(size: str = "full") -> dict[str, float]:
    """Figures as the module says."""
    gpus, days, holds, questions = SIZES[size]
    nodes, busy = crowded(gpus, days, holds, share=0.85)
    pool = PoolSnapshot.of(1, 1, "h100", nodes, Busy.nothing())
    held = held_of(pool, busy)
    every = pool.with_busy(busy)
    chance = np.random.default_rng(5)
    times, found, pinned, gave_up, moves = [], 0, 0, 0, 0
    asked = 0
    while len(times) < questions and asked < 50 * questions:
        asked += 1
        shape = SHAPES[int(chance.integers(len(SHAPES)))]
        start = START + timedelta(hours=float(chance.integers(1, 24 * (days - 3))))
        window = Window(start, start + timedelta(hours=int(chance.integers(1, 49))))
        if not isinstance(place(every, shape, window), NoPlace):
            continue
        began = monotonic()
        answer = place_moving(pool, held, shape, window)
        times.append((monotonic() - began) * 1000)
        if isinstance(answer, Rearranged):
            found += 1
            moves += len(answer.moves)
        else:
            pinned += answer.pinned
            gave_up += answer.gave_up
    return {
        "gpus": gpus,
        "nodes": len(nodes),
        "holds": len(held),
        "occupancy": occupancy(busy, gpus, days),
        "asked": len(times),
        "found_share": found / len(times),
        "pinned_share": pinned / len(times),
        "gave_up_share": gave_up / len(times),
        "moves_each": moves / max(found, 1),
        "median_ms": float(np.median(times)),
        "p90_ms": float(np.percentile(times, 90)),
        "p99_ms": float(np.percentile(times, 99)),
        "worst_ms": max(times),
    }


def held_of(pool: PoolSnapshot, busy: Busy) -> Held:
    """Each busy row as a booking's hold of its own."""
    chance, many = np.random.default_rng(3), len(busy)
    node = pool.unit_node[np.searchsorted(pool.unit_lower, busy.lower)]
    ids = np.fromiter((n.node_id for n in pool.nodes), np.int64, len(pool.nodes))
    return Held(
        range(many),
        np.arange(many),
        ids[node],
        busy.start,
        busy.end,
        chance.random(many) < 0.1,
        busy.start <= epoch(START),
        np.full(many, -1),
        np.zeros(many, bool),
        np.arange(many),
        busy.lower,
        busy.upper,
    )
