"""How long things may wait, and who has to be asked. Pure: policy and instants in, instants and words out."""

from __future__ import annotations

from datetime import datetime, timedelta

from app.bookings import rules
from app.inventory.policy import Policy
from app.kernel.errors import Reason

AHEAD = timedelta(hours=1)
"""A request lapses so long before the start that was asked for: whoever asked can still look for something else."""
LOOK = timedelta(minutes=15)
"""How often a waiter is looked at although nothing was freed: nodes come back, use by others ends."""
SOONEST = 2 * AHEAD
"""So long ahead "as soon as possible" begins where somebody has to approve: an hour is for the answer."""


def answer_by(now: datetime, start: datetime, policy: Policy) -> datetime | None:
    """Until when a request can be answered: `approval_for`, at the latest an hour before its start, or up to the start
    where that hour has begun; None when it has started."""
    latest = start - AHEAD if start - AHEAD > now else start
    return min(now + policy.approval_for, latest) if latest > now else None


def offer_until(now: datetime, start: datetime, end: datetime, policy: Policy) -> datetime:
    """Until when an offer of `[start, end)` is held: `offer_for`. What has begun meanwhile is given from then on, as long
    as the shortest booking of the pool is left of it."""
    return min(now + policy.offer_for, max(start, end - policy.min_length))


def first_asked(now: datetime, policy: Policy) -> datetime:
    """The first start on the grid that is found for "as soon as possible" where somebody has to approve."""
    return rules.snap_instant(now + SOONEST, policy.grid)


def no_time_to_ask(who: str, start: datetime, now: datetime) -> Reason:
    """It needs approval (of `who`, in words), and begins before anybody could give it."""
    return Reason(
        "needs_approval_first",
        f"This needs the approval of {who}, and would start before anybody could give it.",
        rules.iso(now), rules.iso(start), "Choose a later start.", "start",
    )  # fmt: skip
