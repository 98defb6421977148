"""What of a pool a waiter may be given: freed units count as free for the queue, and for nobody else.

Reads, and in `making_room` moves holds that have not started. It must not know how an offer is written or told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from app.bookings import ground, offers, queries_requests, queries_waiting, rules, waits
from app.bookings.earliest import Prepared, earliest, prepare
from app.bookings.ground import MovedMeanwhile, Site
from app.bookings.offers import Desk
from app.bookings.placement import NoPlace, Placement, place
from app.bookings.queries_waiting import Spare, Waiter
from app.inventory import queries as inventory
from app.inventory.facts import Pool, PoolCapacity
from app.inventory.policy import Policy
from app.kernel.errors import Reason
from app.kernel.window import Window
from app.plumbing.db import Work
from app.pricing.rules import Segment, cost

Found = tuple[Window, Placement, tuple[Segment, ...]]
"""When and where a waiter is served, and at which prices."""


@dataclass(frozen=True, slots=True)
class QueueGround:
    """A pool with its queue and the freed units, as they are in this transaction."""

    capacity: PoolCapacity
    queue: tuple[Waiter, ...]
    spares: tuple[Spare, ...]
    now: datetime

    def for_(self, waiter: UUID | None) -> list[UUID]:
        """The requests whose units a waiter may be given."""
        return [s.request_id for s in self.spares if s.kept_for is None or s.kept_for == waiter]


class Limited(Exception):
    """The waiter's own limits do not let it be served; `reasons` say why."""

    def __init__(self, reasons: Sequence[Reason]) -> None:
        self.reasons = tuple(reasons)


def pool_now(work: Work, pool_id: int) -> Pool:
    """The pool by its own policy."""
    return inventory.pools_with_ids(work, [pool_id])[pool_id]


def see(work: Work, pool_id: int) -> QueueGround:
    """The pool, its queue and the freed units, everybody's."""
    now = work.product_now()
    capacity = inventory.capacity_of(work, [pool_now(work, pool_id)])[pool_id]
    _, _, nodes = offers.snapshot(work, capacity)
    with work.read_all():
        queue, spares = queries_waiting.queue_of(work, pool_id), queries_waiting.spares_of(work, nodes)
    return QueueGround(capacity, queue, spares, now)


def free_for(work: Work, seen: QueueGround, waiter: UUID) -> Prepared:
    """The pool with all that is held but what the waiter may be given."""
    base, _, nodes = offers.snapshot(work, seen.capacity)
    held = queries_waiting.taken_but(work, nodes, seen.now, seen.for_(waiter))
    return prepare(base.with_busy(held.plus(base.busy)))


def first_start(
    ready: Prepared, waiter: Waiter, policy: Policy, now: datetime, not_before: datetime | None = None
) -> datetime | None:
    """The first start at which it fits as things lie."""
    first = max(waiter.earliest, now + policy.lead, not_before or now)
    if first > waiter.last_start:
        return None
    return earliest(ready, waiter.shape, int(waiter.length.total_seconds()), first, waiter.latest, _gap(policy))


def room_by_count(ready: Prepared, waiter: Waiter, policy: Policy, now: datetime) -> bool:
    """Whether there are units enough from its first start on, only not where they are needed."""
    window = _first_window(waiter, policy, now)
    probe = None if window is None else place(ready.pool, waiter.shape, window, _gap(policy))
    enough = isinstance(probe, NoPlace) and (probe.bookkeeping or probe.free.units >= waiter.units)
    return isinstance(probe, NoPlace) and enough and not probe.never


def fitting(desk: Desk, pool: Pool, waiter: Waiter, ready: Prepared) -> Found | None:
    """When, where and at which prices a waiter is served now; None when it does not fit. What somebody has to approve
    begins late enough for that. Raises Limited where there is no price."""
    not_before: datetime | None = None
    while True:
        start = first_start(ready, waiter, pool.policy, desk.now, not_before)
        if start is None:
            return None
        window = Window(start, start + waiter.length)
        placement = place(ready.pool, waiter.shape, window, _gap(pool.policy))
        assert not isinstance(placement, NoPlace)
        segments = _prices(desk, pool, window)
        if not_before is not None or not _too_soon(desk, pool, waiter, window, segments):
            return window, placement, segments
        not_before = waits.first_asked(desk.now, pool.policy)


def making_room(desk: Desk, pool: Pool, waiter: Waiter, seen: QueueGround, spares: Sequence[UUID]) -> Found | None:
    """The same at its first start, holds that have not started giving way, as they would for a booking; they are moved.

    What of the freed units is not needed is let go. None when it does not help: then nothing has changed.
    """
    work, window = desk.work, _first_window(waiter, pool.policy, desk.now)
    if window is None:
        return None
    segments = _prices(desk, pool, window)
    if _too_soon(desk, pool, waiter, window, segments):
        return None
    site = Site(offers.snapshot(work, seen.capacity)[0], desk.now, _gap(pool.policy))
    try:
        with work.pg.transaction():
            queries_requests.drop_holds(work, spares)
            found = ground.place_anyhow(work, site, waiter.shape, window)
            if isinstance(found, NoPlace):
                raise MovedMeanwhile
            ground.make_way(work, found.moves, desk.now)
    except MovedMeanwhile:
        return None
    return window, found.placement, segments


def _first_window(waiter: Waiter, policy: Policy, now: datetime) -> Window | None:
    first = max(waiter.earliest, now + policy.lead)
    return Window(first, first + waiter.length) if first <= waiter.last_start else None


def _prices(desk: Desk, pool: Pool, window: Window) -> tuple[Segment, ...]:
    segments = desk.segments(pool.kind, window)
    if segments is None:
        raise Limited([rules.no_price(pool.kind, desk.project.price_group)])
    return segments


def _too_soon(desk: Desk, pool: Pool, waiter: Waiter, window: Window, segments: tuple[Segment, ...]) -> bool:
    """Whether somebody has to approve it, and would have no time for that when the offer is taken at its last moment."""
    price = cost(segments, waiter.units, desk.project.currency, pool.share840)
    needed = offers.approval_of(desk, pool, window, price, waiter.units)
    taken = desk.now + pool.policy.offer_for
    return needed is not None and waits.answer_by(taken, window.start, pool.policy) is None


def _gap(policy: Policy) -> int:
    return int(policy.gap.total_seconds())
