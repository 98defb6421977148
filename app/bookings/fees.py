"""What it costs to cancel: nothing, or a part of the price when it comes too late. Pure.

By the policy of the pool: free for a while after booking, and until some notice before the start.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction

from app.bookings.facts import Booking
from app.inventory.policy import Policy
from app.kernel.money import line_amount


@dataclass(frozen=True, slots=True)
class CancelTerms:
    """What cancelling costs now, and until when it is free (None: it is not any more)."""

    fee: Decimal
    percent: int
    free_until: datetime | None


def cancel_terms(booking: Booking, policy: Policy, now: datetime) -> CancelTerms:
    """Free within `free_cancel` of booking and until `cancel_notice` before the start, whichever is later; free too once
    the start has come and it is not in place: then it was not the person who was late."""
    free = max(booking.booked_at + policy.free_cancel, booking.starts_at - policy.cancel_notice)
    nothing = line_amount(Fraction(0), booking.currency)
    if not policy.cancel_fee_percent or now <= free or now >= booking.starts_at:
        return CancelTerms(nothing, policy.cancel_fee_percent, free)
    fee = line_amount(Fraction(booking.quoted) * policy.cancel_fee_percent / 100, booking.currency)
    return CancelTerms(fee, policy.cancel_fee_percent, None)
