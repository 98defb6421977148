"""Finds a place on the ground as it is, and makes way on it: holds that have not started and are not pinned may move.

The door between placement, which is pure, and the holds of everybody. Without the pool's lock what it finds is a guess;
with it, `make_way` writes the moves. It must not know prices, quotas or who asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

import numpy as np

from app.bookings import queries_ground
from app.bookings.capacity import LEVELS, PoolSnapshot, Shape
from app.bookings.held import Held
from app.bookings.placement import NoPlace
from app.bookings.power import PoolPower
from app.bookings.queries_ground import Ground
from app.bookings.recolour import Moved, Rearranged, extend_moving, place_moving
from app.kernel.window import Window
from app.plumbing.db import Work


class MovedMeanwhile(Exception):
    """A hold that was to give way is not where it was, or may not move any more: plan again."""


@dataclass(frozen=True, slots=True)
class Site:
    """A pool without holds (`offers.snapshot`), the instant, its cleaning gap in seconds, its power budgets."""

    pool: PoolSnapshot
    now: datetime
    gap: int = 0
    power: PoolPower | None = None


def place_anyhow(
    work: Work, site: Site, shape: Shape, window: Window, leaving: UUID | None = None
) -> Rearranged | NoPlace:
    """A place for a shape, others giving way where they must. `leaving`: a booking that gives up its own place."""
    ground = _survey(work, site, leaving)
    held = ground.held
    if ground.own is not None:
        held = held.without(held.owner == ground.own)
    return place_moving(site.pool, held, shape, window, site.gap, site.power)


def stay_longer(work: Work, site: Site, booking_id: UUID, window: Window) -> Rearranged | NoPlace | None:
    """A booking's own units until the end of `window`, others giving way where they must. None: it holds nothing."""
    ground = _survey(work, site, booking_id)
    if ground.own is None:
        return None
    return extend_moving(site.pool, ground.held, ground.own, window, site.gap, site.power)


def longest_stay(
    work: Work, site: Site, booking_id: UUID, start: datetime, ends: Sequence[datetime]
) -> datetime | None:
    """The latest of these ends until which a booking could keep its units, others giving way; None: not even the first.
    `ends` are in order."""
    ground = _survey(work, site, booking_id) if ends else None
    if ground is None or ground.own is None:
        return None
    found, low, high = None, 0, len(ends)
    while low < high:
        at = (low + high) // 2
        window = Window(start, ends[at])
        if isinstance(extend_moving(site.pool, ground.held, ground.own, window, site.gap, site.power), NoPlace):
            high = at
        else:
            found, low = ends[at], at + 1
    return found


def make_way(work: Work, moves: tuple[Moved, ...], now: datetime) -> None:
    """Write the moves: the pool is locked, the holds are locked here. Raises MovedMeanwhile; then nothing is written
    that the caller may keep."""
    if not moves:
        return
    if not queries_ground.lock_moved(work, moves) or not queries_ground.write_moves(work, moves, now):
        raise MovedMeanwhile


def _survey(work: Work, site: Site, booking_id: UUID | None) -> Ground:
    """Everybody's holds, with the closeness that each keeps today."""
    ground = queries_ground.ground_of(work, [n.node_id for n in site.pool.nodes], site.now, booking_id)
    wished = np.flatnonzero(ground.near >= 0)
    if not len(wished):
        return ground
    within = _with_wishes(site.pool, ground.held, ground.near, wished)
    return replace(ground, held=replace(ground.held, within=within))


def _with_wishes(pool: PoolSnapshot, held: Held, near: np.ndarray, wished: np.ndarray) -> np.ndarray:
    """A closeness that was only preferred stays where it is kept today."""
    index = {n.node_id: i for i, n in enumerate(pool.nodes)}
    within = held.within.copy()
    for owner in np.unique(held.owner[wished]).tolist():
        own = np.flatnonzero(held.owner == owner)
        nodes = [index[n] for n in held.node_id[own].tolist() if n in index]
        level = int(near[own[0]])
        if len(set(pool.domain_of_nodes(LEVELS[level])[nodes].tolist())) == 1:
            within[own] = level
    return within
