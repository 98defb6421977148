"""What is set aside for whoever was passed over too often: the part of a wish that is free already. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from app.bookings.capacity import Shape, instant
from app.bookings.earliest import Prepared
from app.bookings.placement import NoPlace, Placement, place
from app.kernel.window import Window

_MOST_STARTS = 48
"""Starts that are tried."""


def most_of(
    ready: Prepared, shape: Shape, first: datetime, last: datetime, length: timedelta, gap: int
) -> tuple[Window, Placement] | None:
    """The window in which the most of a shape is free, the earliest of those, and where; None: nothing is free.

    It starts between `first` and `last`. Where all of the shape fits there is nothing to set aside: it can be offered.
    """
    begins = {instant(int(t)) for t in ready.start if first < instant(int(t)) <= last}
    best: tuple[int, Window, Shape] | None = None
    for start in [s for s in (first, *sorted(begins)) if s <= last][:_MOST_STARTS]:
        window = Window(start, start + length)
        found = place(ready.pool, shape, window, gap)
        if not isinstance(found, NoPlace):
            continue
        part = _part_of(shape, found)
        if part is not None and (best is None or part.total > best[0]):
            best = (part.total, window, part)
    if best is None:
        return None
    placed = place(ready.pool, best[2], best[1], gap)
    return None if isinstance(placed, NoPlace) else (best[1], placed)


def _part_of(shape: Shape, found: NoPlace) -> Shape | None:
    """The largest part of a shape that is free."""
    free = found.free
    if shape.nodes is None:
        return Shape(min(free.domain_units, shape.total), within=shape.within) if free.domain_units else None
    if free.domain_nodes:
        return Shape(nodes=free.domain_nodes, per_node=shape.per_node, within=shape.within)
    return Shape(min(free.largest_node, shape.per_node or 1), within="node") if free.largest_node else None
