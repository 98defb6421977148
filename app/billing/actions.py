"""Metered time becomes money: charges are added to the ledger, never changed. And limits that count what is booked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from uuid import UUID
from zoneinfo import ZoneInfo

from app.billing import queries, rules
from app.billing.rules import Charge
from app.bookings import queries as bookings
from app.bookings import queries_edits
from app.bookings.asking import segment_of
from app.bookings.facts import Booking
from app.bookings.queries_edits import Handed
from app.kernel.actor import Actor
from app.kernel.errors import NotFound
from app.plumbing.db import Work
from app.quotas import actions as quotas
from app.quotas.rules import Scope, pieces
from app.usage import queries as usage
from app.usage.rules import charge_window


def charge(work: Work, booking_id: UUID) -> int:
    """Charge what was metered of a booking and is not charged yet; returns how many rows are new.

    Once the booking has ended, what it was charged for units that were not there is taken back. Twice, or by two
    workers at once, gives the same rows with the same ids.
    """
    booking = bookings.lock_booking(work, booking_id)
    if booking is None:
        raise NotFound("booking", "There is no such booking.")
    new = 0
    if queries.is_billed(work, booking.cluster_id):
        zone = ZoneInfo(booking.zone)
        schedule = bookings.segments_of(work, booking_id)
        segments = [rules.Priced(s.window, s.price_id, s.per_hour, s.units) for s in schedule]
        intervals = queries.uncharged_intervals(work, booking_id)
        charges = rules.use_charges(booking_id, intervals, segments, zone)
        charged = charge_window(booking.provided_at, booking.ends_at, booking.released_at)
        if booking.state == "ENDED" and charged is not None:
            lost = queries.lost_units(work, booking_id, charged)
            charges += rules.credit_charges(booking_id, lost, charged, segments, zone)
        owed = [(fee.at, fee.amount, fee.why) for fee in queries_edits.fees_of(work, booking_id) if fee.amount]
        if owed and segments:
            charges += rules.fee_charges(booking_id, owed, segments[0].price_id, zone)
        new = sum(
            queries.insert_charges(work, whose, part)
            for whose, part in _by_person(booking, queries_edits.handed_over(work, booking_id), charges)
        )
    if booking.state in ("ENDED", "CANCELLED") or booking.provided_at is None:
        usage.forget_finished(work, booking_id)
    return new


def _by_person(
    booking: Booking, handed: Sequence[Handed], charges: Sequence[Charge]
) -> Iterator[tuple[Booking, list[Charge]]]:
    """Charges with whose the booking was at their time: what lies before a hand-over stays the earlier person's."""
    since = None
    for step in (*handed, None):
        until = None if step is None else step.at
        whose = booking if step is None else replace(booking, account_id=step.account_id, booked_by=step.person)
        part = [
            c
            for c in charges
            if (since is None or c.window.start >= since) and (until is None or c.window.start < until)
        ]
        if part:
            yield whose, part
        since = until


def set_limit(
    work: Work,
    actor: Actor,
    *,
    project_id: UUID | None = None,
    account_id: UUID | None = None,
    kind: str | None = None,
    units: int | None,
    hours: int | None,
    money: Decimal | None = None,
) -> Scope:
    """Set a limit as quotas.actions.set_limit does, and count in what was booked before there was one.

    Counted is everything from 45 days ago on, so that the running month is whole in every zone.
    """
    scope = quotas.set_limit(
        work, actor, project_id=project_id, account_id=account_id, kind=kind, units=units, hours=hours, money=money
    )
    since = work.product_now() - timedelta(days=45)
    quotas.count_in(work, scope, queries.booked_in(work, scope, since))
    asked = (
        (request_id, pieces(map(segment_of, schedule), ZoneInfo(zone), units, share840))
        for request_id, units, share840, zone, schedule in queries.requested_in(work, scope)
    )
    quotas.count_in_requests(work, scope, asked)
    return scope
