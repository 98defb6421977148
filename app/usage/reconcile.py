"""Asks clusters for measurements. No transaction is open while a cluster is asked; asking twice harms nobody."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from uuid import UUID

from app.backends.contract import Backend, BackendError, Ref
from app.bookings import queries as bookings
from app.bookings.actions_life import told_use
from app.inventory.connections import ask
from app.kernel.window import Window
from app.plumbing.db import Database, Work
from app.plumbing.log import get_log
from app.usage import actions, queries, rules
from app.usage.told import is_busy, use_of

log = get_log("usage")
EVERY = timedelta(seconds=60)
"""How often measurements of a booking are collected, by the product clock."""
FINE, COARSE = 60, 900
LEASE = timedelta(seconds=60)
GIVE_UP_AFTER = timedelta(days=7)
"""How long after a booking's end a cluster that does not answer is still asked; the time stays unknown then."""

BackendOf = Callable[[Work, int], Backend]
"""From a cluster's id to its backend; may read what it needs in the transaction given."""
Told = Callable[[Work, UUID, datetime], None]


def collect_one(
    database: Database,
    backend_of: BackendOf,
    tenant_id: UUID,
    booking_id: UUID,
    told: Told = bookings.set_first_used,
    fine_for: timedelta = actions.FINE_FOR,
) -> bool:
    """Collect the measurements of one booking that are missing up to now; True when something was taken in.

    `told(work, booking, first used at)` runs in the transaction that writes, when a workload was seen. Nothing happens
    when somebody else is collecting, or nothing is missing. A cluster that fails is asked again later. Measurements are
    fine for what is younger than `fine_for`, and coarse before.
    """
    with database.work(tenant_id) as work:
        failures = queries.lease_collection(work, booking_id, work.wall + LEASE)
        if failures is None:
            return False
        now = work.product_now()
        booking = bookings.find_booking(work, booking_id)
        thing = queries.measured_until(work, booking_id)
        charged = booking and rules.charge_window(booking.provided_at, booking.ends_at, booking.released_at)
        if booking is None or thing is None or charged is None:
            queries.collect_next(work, booking_id, None, 0)
            return False
        allocation_id, name, cluster_id, until = thing
        since = max(charged.start, until or charged.start)
        end = min(charged.end, now)
        if since >= end:
            _schedule(work, booking_id, charged.end, since, now)
            return False
        missing = Window(since, end)
        backend = backend_of(work, cluster_id)
        step = _step(missing.start, max(now, work.wall), fine_for)
    try:
        answer = ask(backend, lambda: backend.usage(Ref(name), missing.start, missing.end, step))
    except BackendError as error:
        log.warning("measurements could not be collected", booking=booking.label, error=str(error))
        with database.work(tenant_id) as work:
            gone = now > charged.end + GIVE_UP_AFTER
            wait = min(EVERY * 2 ** min(failures, 6), timedelta(minutes=30))
            queries.collect_next(work, booking_id, None if gone else now + wait, failures + 1)
        return False
    with database.work(tenant_id) as work:
        first = actions.take_samples(work, booking_id, missing, answer)
        reached = min(missing.end, answer.until)
        if reached > missing.start:
            queries.set_measured_until(work, allocation_id, reached)
        if first is not None:
            told(work, booking_id, first)
        if reached > missing.start:
            told_use(work, booking_id, reached, use_of, is_busy(answer.samples, reached))
        # read again under the lock of take_samples: it may have been extended or released in between
        booking = bookings.find_booking(work, booking_id)
        charged = rules.charge_window(booking.provided_at, booking.ends_at, booking.released_at)
        _schedule(work, booking_id, charged.end if charged else reached, reached, now)
    return reached > missing.start


def _step(since: datetime, latest: datetime, fine_for: timedelta) -> int:
    """Seconds of a measurement: fine, or coarse for what would be thinned at once. A history that is stepped through
    on the product clock is old by the wall clock."""
    return COARSE if since < latest - fine_for else FINE


def _schedule(work: Work, booking_id: UUID, end: datetime, reached: datetime, now: datetime) -> None:
    """When to ask next, or never again when measurements reach the end of what is charged."""
    complete = reached >= end
    queries.collect_next(work, booking_id, None if complete else now + EVERY, 0)
    if complete:
        queries.forget_finished(work, booking_id)
