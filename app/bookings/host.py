"""What others than Berth take of a node's CPU and memory, as units that cannot be offered.

Pure. A booked unit carries its share of its node: of 8 GPUs each has an eighth of the cores and of the memory, and whoever
has 2 of them uses no more than a quarter. So bookings never take CPU or memory from each other, and need not be counted
against each other in them. External use may take more than the share of the units that it has: then as many units as
are no longer covered go with it, for as long as it lasts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from app.bookings.capacity import Busy, NodeUnits, Range


@dataclass(frozen=True, slots=True)
class HostUse:
    """External use of a node for a time (epoch seconds): thousandths of a core, MiB, and the units that it has besides."""

    cpu_milli: int
    memory_mib: int
    units: tuple[Range, ...]
    start: int
    end: int


def uncovered(node: NodeUnits, cpu_milli: int | None, memory_mib: int | None, uses: Iterable[HostUse]) -> Busy:
    """The units of a node that external use leaves without their share of CPU and memory, as busy stretches (without the
    units that it has itself). `cpu_milli` and `memory_mib` are all that the node has; None is not known, and takes nothing.

    Which units go is arbitrary, but always the same: the last ones that external use does not have.
    """
    every = list(uses)
    edges = sorted({t for use in every for t in (use.start, use.end)})
    rows: list[tuple[int, int, int, int]] = []
    for start, end in pairwise(edges):
        now = [use for use in every if use.start <= start < use.end]
        left = len(node.units)
        for total, used in (
            (cpu_milli, sum(use.cpu_milli for use in now)),
            (memory_mib, sum(use.memory_mib for use in now)),
        ):
            if total:
                left = min(left, max(total - used, 0) * len(node.units) // total)
        theirs = [r for use in now for r in use.units]
        others = [u for u in node.units if not any(low < u[1] and high > u[0] for low, high in theirs)]
        rows += [(*unit, start, end) for unit in others[left:]]
    return Busy.of_rows(rows)
