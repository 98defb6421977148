"""A person's own use of units, taken out of what stands in the way of that person's booking. Pure.

The inventory counts every use that Berth did not make as taken; inside a booking of the one who has it, it is not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from app.bookings.capacity import Busy, Range, epoch
from app.kernel.window import Window


@dataclass(frozen=True, slots=True)
class OwnUse:
    """Units that a person uses without a booking. `positions` as a hold has them; `until`: the use's own limit."""

    id: int
    node_id: int
    node: str
    pool_id: int
    cluster_id: int
    kind: str
    positions: tuple[tuple[int, int], ...]
    since: datetime
    until: datetime | None
    what: str
    who: str | None


def without(busy: Busy, uses: Iterable[OwnUse]) -> Busy:
    """What is taken by anything but these uses."""
    own = {(lower, upper, epoch(use.since)) for use in uses for lower, upper in use.positions}
    if not own or not len(busy):
        return busy
    rows = zip(busy.lower.tolist(), busy.upper.tolist(), busy.start.tolist(), strict=True)
    keep = np.fromiter((row not in own for row in rows), bool, len(busy))
    return Busy(busy.lower[keep], busy.upper[keep], busy.start[keep], busy.end[keep])


def first_taken(busy: Busy, positions: Iterable[Range], window: Window) -> int | None:
    """When any of these positions is first taken in a window, in epoch seconds; None when never."""
    begins, ends = epoch(window.start), epoch(window.end)
    taken = np.zeros(len(busy), bool)
    for lower, upper in positions:
        taken |= (busy.lower < upper) & (busy.upper > lower)
    taken &= (busy.start < ends) & (busy.end > begins)
    return max(int(busy.start[taken].min()), begins) if taken.any() else None
