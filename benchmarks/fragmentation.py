"""How full a cluster gets: the same requests for 1 to 8 GPUs of one node, in the same order, placed in several ways.

- `first`, `best`, `worst`: the first node with enough free units, the one with fewest, the one with most; on it the first
  units. These are the baselines.
- `ours`: as the product places, moving nobody. `moving`: with holds giving way (nobody has started, nobody is pinned).

`at_once_*_share`: requests that stay for ever, until as many units were asked as there are: the share of all units that is
taken then. `timed_*_share`: requests for 1 to 48 hours within a week, until as many unit-hours were asked as there are:
the share of them that is booked. `timed_*_large_share`: of the requests for 8 GPUs among those, how many got a place.

Without `--data` the requests are a sample of our own, drawn from a fixed seed; with it (a folder with
`traces/alibaba_v2023`) also the published list of that cluster in its order, on its nodes (`trace_*`; timed on every
twentieth node, with times drawn from a fixed seed, as the list has none). A request for a part of a GPU is for one.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import cycle
from pathlib import Path

import numpy as np

from app.bookings.capacity import Busy, NodeUnits, PoolSnapshot, Range, Shape, epoch
from app.bookings.held import Held
from app.bookings.placement import NoPlace, place
from app.bookings.recolour import Rearranged, place_moving
from app.kernel.window import Window
from benchmarks.earliest import START

NAME = "fragmentation"
SIZES = {"full": 40, "small": 8}
"""Nodes of the cluster of our own sample."""
DAYS = 7
SLOTS = DAYS * 96
FOLDER = "traces/alibaba_v2023"
WAYS = ("first", "best", "worst", "ours", "moving")
Request = tuple[int, int, int]
"""GPUs, first slot of 15 minutes, number of slots."""


def run(size: str = "full", data: Path | None = None) -> dict[str, float]:
    """Figures as the module says."""
    chance = np.random.default_rng(11)
    nodes = chance.choice([8, 8, 8, 4, 2], SIZES[size]).tolist()
    demand = chance.choice([1, 2, 4, 8], 40 * SIZES[size], p=[0.55, 0.15, 0.12, 0.18]).tolist()
    figures = {f"sample_{k}": v for k, v in compare(nodes, nodes, demand).items()}
    if data is None:
        print("  the published list is skipped: give its folder by --data")
        return figures
    nodes, demand = published(data / FOLDER)
    return figures | {f"trace_{k}": v for k, v in compare(nodes, nodes[::20], demand).items()}


def published(folder: Path) -> tuple[list[int], list[int]]:
    """GPUs of each node, and of each request, in the order of the lists."""
    with open(folder / "openb_node_list_gpu_node.csv", newline="") as file:
        nodes = [int(row["gpu"]) for row in csv.DictReader(file)]
    with gzip.open(folder / "openb_pod_list_multigpu50.csv.gz", "rt", newline="") as file:
        demand = [int(row["num_gpu"]) for row in csv.DictReader(file)]
    return nodes, [gpus for gpus in demand if gpus]


def compare(nodes: list[int], fewer: list[int], demand: list[int]) -> dict[str, float]:
    """Every way on the same requests: at once on all nodes, timed on some."""
    figures: dict[str, float] = {"nodes": len(nodes), "gpus": sum(nodes), "timed_gpus": sum(fewer)}
    at_once = list(until_full(((gpus, 0, SLOTS) for gpus in demand), sum(nodes)))
    for way in WAYS[:-1]:
        figures[f"at_once_{way}_share"] = replay(nodes, at_once, way)[0]
    timed = list(until_full(with_times(demand), sum(fewer)))
    figures["timed_requests"] = len(timed)
    for way in WAYS:
        figures[f"timed_{way}_share"], figures[f"timed_{way}_large_share"] = replay(fewer, timed, way)
    for kind, ours in (("at_once", "ours"), ("timed", "ours"), ("timed", "moving")):
        best = max(figures[f"{kind}_{way}_share"] for way in WAYS[:3])
        figures[f"{kind}_{ours}_to_best_baseline_ratio"] = figures[f"{kind}_{ours}_share"] / best
    return figures


def with_times(demand: list[int], seed: int = 13) -> Iterator[Request]:
    """The requests over and over, each at some time of the week for 1 to 48 hours, short ones more often."""
    chance = np.random.default_rng(seed)
    for gpus in cycle(demand):
        slots = int(np.clip(chance.lognormal(np.log(24), 1.0), 4, 192))
        yield gpus, int(chance.integers(0, SLOTS - slots + 1)), slots


def until_full(requests: Iterator[Request], gpus: int) -> Iterator[Request]:
    """As many of them as ask for all there is."""
    asked = 0
    for request in requests:
        asked += request[0] * request[2]
        if asked > gpus * SLOTS:
            return
        yield request


def replay(sizes: list[int], requests: list[Request], way: str) -> tuple[float, float]:
    """The share of all unit-hours that was booked, and of the requests for 8 GPUs that got a place."""
    first = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    nodes = [NodeUnits.whole(i, first[i], size) for i, size in enumerate(sizes)]
    pool, book = PoolSnapshot.of(1, 1, "gpu", nodes, Busy.nothing()), Book()
    packed = large = large_placed = 0
    for gpus, slot, slots in requests:
        window = Window(START + slot * QUARTER, START + (slot + slots) * QUARTER)
        placed = PLACERS[way](pool, book, gpus, window)
        packed += gpus * slots * placed
        large, large_placed = large + (gpus == 8), large_placed + (placed and gpus == 8)
    return packed / (sum(sizes) * SLOTS), large_placed / max(large, 1)


QUARTER = timedelta(minutes=15)


class Book:
    """What has been placed: growing columns of single units, each with the number of its request."""

    def __init__(self) -> None:
        self.columns = np.zeros((6, 1024), np.int64)
        self.rows = self.holds = 0

    def add(self, node: int, units: list[Range], window: Window) -> None:
        if self.rows + len(units) > self.columns.shape[1]:
            self.columns = np.concatenate([self.columns, np.zeros_like(self.columns)], axis=1)
        for lower, upper in units:
            facts = (lower, upper, epoch(window.start), epoch(window.end), self.holds, node)
            self.columns[:, self.rows] = facts
            self.rows += 1
        self.holds += 1

    def busy(self) -> Busy:
        return Busy(*self.columns[:4, : self.rows])

    def held(self) -> Held:
        lower, upper, start, end, hold, node = self.columns[:, : self.rows]
        one = np.searchsorted(hold, np.arange(self.holds))
        none = np.zeros(self.holds, bool)
        return Held(
            range(self.holds), np.arange(self.holds), node[one], start[one], end[one], none, none,
            np.full(self.holds, -1), none, hold, lower, upper,
        )  # fmt: skip

    def move(self, hold: int, node: int, units: list[Range]) -> None:
        mine = np.searchsorted(self.columns[4, : self.rows], [hold, hold + 1])
        self.columns[:2, mine[0] : mine[1]] = np.array(units).T
        self.columns[5, mine[0] : mine[1]] = node


def _baseline(choose: Callable[[np.ndarray, np.ndarray], int]) -> Callable[[PoolSnapshot, Book, int, Window], bool]:
    def placer(pool: PoolSnapshot, book: Book, gpus: int, window: Window) -> bool:
        free, busy = np.ones(len(pool.unit_lower), bool), book.busy()
        there = (busy.start < epoch(window.end)) & (busy.end > epoch(window.start))
        free[busy.lower[there] // 64] = False
        counts = np.bincount(pool.unit_node[free], minlength=len(pool.nodes))
        fitting = np.flatnonzero(counts >= gpus)
        if not len(fitting):
            return False
        node = choose(fitting, counts[fitting])
        units = np.flatnonzero(free & (pool.unit_node == node))[:gpus]
        book.add(node, [(64 * u, 64 * u + 64) for u in units.tolist()], window)
        return True

    return placer


def _ours(pool: PoolSnapshot, book: Book, gpus: int, window: Window) -> bool:
    found = place(pool.with_busy(book.busy()), Shape(units=gpus, within="node"), window)
    if isinstance(found, NoPlace):
        return False
    book.add(found.parts[0].node_id, list(found.parts[0].units), window)
    return True


def _moving(pool: PoolSnapshot, book: Book, gpus: int, window: Window) -> bool:
    if _ours(pool, book, gpus, window):
        return True
    found = place_moving(pool, book.held(), Shape(units=gpus, within="node"), window)
    if not isinstance(found, Rearranged):
        return False
    for move in found.moves:
        units = [(p, p + 64) for lower, upper in move.to_positions for p in range(lower, upper, 64)]
        book.move(move.hold, move.to_node_id, units)
    book.add(found.placement.parts[0].node_id, list(found.placement.parts[0].units), window)
    return True


PLACERS: dict[str, Callable[[PoolSnapshot, Book, int, Window], bool]] = {
    "first": _baseline(lambda fitting, counts: int(fitting[0])),
    "best": _baseline(lambda fitting, counts: int(fitting[np.argmin(counts)])),
    "worst": _baseline(lambda fitting, counts: int(fitting[np.argmax(counts)])),
    "ours": _ours,
    "moving": _moving,
}
