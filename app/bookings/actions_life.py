"""Watches over bookings that are in place: warns, releases what nobody uses, tells of the end.

`watching.py` decides; here it is written. Called by whoever knows something new: usage when measurements have come in,
the reconciler when it looks. A transaction each, in which the booking is locked by the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID

from app.bookings import due, policies, queries, queries_edits, queries_life, watching
from app.bookings.facts import Booking, Held
from app.bookings.lifecycle import BookingView, Condition, Event, Raise, State
from app.bookings.moves import write_changes
from app.bookings.schedule import cost_of, within
from app.bookings.watching import Use
from app.inventory.policy import Policy
from app.kernel.actor import SYSTEM
from app.kernel.window import Window
from app.plumbing import outbox
from app.plumbing.db import Work
from app.plumbing.log import get_log

log = get_log("bookings")

UseOf = Callable[[Work, Booking, tuple[Held, ...], datetime, timedelta], Use]
"""From a booking with its holds, measured up to an instant, to what is known of its use so long back."""
_SPARE = timedelta(minutes=10)


def told_use(work: Work, booking_id: UUID, until: datetime, use_of: UseOf, busy: bool = False) -> Event | None:
    """Measurements of a booking are complete up to `until`: warn, release, or take a warning back. `busy`: something
    computed on its units at the end of them.

    The booking is locked by the caller; a released one is looked at by the next sweep. Answers the event by which it was
    released.
    """
    if busy and not queries_life.is_idle(work, booking_id):
        return None
    booking = queries.find_booking(work, booking_id)
    if booking is None or booking.state != State.ACTIVE:
        return None
    pool = policies.pool_of(work, booking)
    policy = pool.policy
    held = queries.holds_of(work, booking_id, lock=True)
    allocation = queries.allocation_of(work, booking_id)
    assert allocation is not None
    view = queries.view_of(work, booking, held, allocation)
    lengths = (policy.no_show_warn, policy.no_show, policy.idle_warn, policy.idle_release)
    back = max((length for length in lengths if length is not None), default=timedelta(0)) + _SPARE
    use = use_of(work, booking, held, until, back)
    now = work.product_now()
    found = watching.watch(view, policy, use, now, _warned_at(work, booking, view))
    if not found.changes:
        return None
    view = write_changes(work, booking, view, found.changes, SYSTEM, now)
    for change in found.changes:
        if isinstance(change, Raise) and change.condition is Condition.IDLE:
            _tell_idle(work, booking, policy, use, change.since, now)
    if found.released is None:
        return None
    log.info("released what nobody used", booking=booking.label, by=found.released)
    fee = policy.no_show_fee if found.released is Event.NO_SHOW and pool.billed else None
    if fee:
        queries_edits.record_fee(work, booking.id, view.state, fee, "Booked and not used.", SYSTEM, now)
    kind = "booking_no_show" if found.released is Event.NO_SHOW else "booking_released_idle"
    more = {"fee": str(fee), "currency": booking.currency} if fee else {}
    _tell(work, booking, kind, now, f"{kind}:{booking.id}", **more)
    due.hurry(work, allocation.id, booking.tenant_id, booking.cluster_id, now)
    return found.released


def _tell_idle(work: Work, booking: Booking, policy: Policy, use: Use, since: datetime, now: datetime) -> None:
    """One warning a stretch, with what a release now would give back."""
    kind = "booking_unused" if use.first is None else "booking_idle"
    after = policy.no_show if use.first is None else policy.idle_release
    held_on = use.empty_since is None  # somebody holds the units: that is warned of, and never released
    more = {"since": since.isoformat(), "refund": str(still_to_come(work, booking, now)), "currency": booking.currency}
    if after is not None and not held_on:
        before = policy.no_show_warn if use.first is None else policy.idle_warn
        soonest = max(since, use.empty_since or since) + after
        more["release_at"] = max(soonest, now + watching.notice_of(after, before)).isoformat()
    _tell(work, booking, kind, now, _key(kind, booking, since), **more)


def _key(kind: str, booking: Booking, since: datetime) -> str:
    return f"{kind}:{booking.id}:{since.isoformat()}"


def _warned_at(work: Work, booking: Booking, view: BookingView) -> datetime | None:
    """When the booking's person was told that it is idle; None where nobody was."""
    idle = view.conditions.get(Condition.IDLE)
    if idle is None or booking.account_id is None:
        return None
    kinds = ("booking_unused", "booking_idle")
    return queries_life.told_at(work, booking.account_id, [_key(kind, booking, idle.since) for kind in kinds])


def still_to_come(work: Work, booking: Booking, now: datetime) -> Decimal:
    """What the time from now to the booking's end costs: what a release now takes off."""
    if now >= booking.ends_at:
        return Decimal(0)
    left = within(queries.segments_of(work, booking.id), Window(max(now, booking.starts_at), booking.ends_at))
    return cost_of(left, booking.units, booking.currency, booking.share840).amount


def warn_of_end(
    work: Work, booking: Booking, view: BookingView, policy: Policy, looked_at: datetime | None, now: datetime
) -> None:
    """Tell of the end when a warning has come due since the last look; not where the same person goes on on these units."""
    found = watching.warning_due(view, policy, now)
    if found is None or (looked_at is not None and looked_at >= found.at) or queries_life.goes_on(work, booking):
        return
    first = min(watching.warnings(view.window, policy), key=lambda w: w.at)
    kind = "booking_ending" if found == first else "booking_ends_now"
    end = booking.ends_at.isoformat()
    _tell(work, booking, kind, now, f"end:{booking.id}:{end}:{found.name}", ends=end, stops=str(found.name == "stop"))


def _tell(work: Work, booking: Booking, kind: str, now: datetime, key: str, **more: str) -> None:
    outbox.tell(
        work, kind, now, booking.account_id, booking.id, key=key, number=booking.number, name=booking.name,
        project=booking.project_name, zone=booking.zone, **more,
    )  # fmt: skip
