"""How long things may wait, and who has to be asked. Pure: policy and instants in, instants and words out."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Literal

from app.bookings import rules
from app.inventory.policy import Policy
from app.kernel.actor import Actor
from app.kernel.errors import Reason

Approver = Literal["lead", "operator"]

AHEAD = timedelta(hours=1)
"""A request lapses so long before the start that was asked for: whoever asked can still look for something else."""
LOOK = timedelta(minutes=15)
"""How often a waiter is looked at although nothing was freed: nodes come back, use by others ends."""
APPROVERS: dict[str, str] = {"lead": "a lead of the project", "operator": "an operator"}
"""Who answers, in words."""


def approvers(policy: Policy, unit_hours: Fraction, amount: Decimal, actor: Actor, *, leads: bool) -> tuple[Approver, ...]:
    """Who has to say yes, one after the other: a lead for what it costs, an operator (or whom the pool names) for how much
    it takes. `leads`: whoever asks leads the project himself, so a lead has said yes already.
    """
    found: list[Approver] = []
    if policy.approval_money is not None and amount > policy.approval_money:
        found.append("lead")
    if policy.approval_hours is not None and unit_hours > policy.approval_hours:
        found.append(policy.approver)
    return tuple(who for who in dict.fromkeys(found) if not (who == "lead" and leads))


def answer_by(now: datetime, start: datetime, policy: Policy) -> datetime | None:
    """Until when a request can be answered: `approval_for`, at the latest an hour before its start, or up to the start
    where that hour has begun; None when it has started."""
    latest = start - AHEAD if start - AHEAD > now else start
    return min(now + policy.approval_for, latest) if latest > now else None


def offer_until(now: datetime, start: datetime, end: datetime, policy: Policy) -> datetime:
    """Until when an offer of `[start, end)` is held: `offer_for`. What has begun meanwhile is given from then on, as long
    as the shortest booking of the pool is left of it."""
    return min(now + policy.offer_for, max(start, end - policy.min_length))


def no_time_to_ask(who: str, start: datetime, now: datetime) -> Reason:
    """It needs approval, and begins before anybody could give it."""
    return Reason(
        "needs_approval_first",
        f"This needs the approval of {APPROVERS[who]}, and would start before anybody could give it.",
        rules.iso(now), rules.iso(start), "Choose a later start.", "start",
    )  # fmt: skip


def approval_words(who: tuple[Approver, ...], policy: Policy, currency: str) -> str:
    """Why somebody must approve, a sentence for the quote; empty when nobody must."""
    if not who:
        return ""
    limits = []
    if "lead" in who and policy.approval_money is not None:
        limits.append(f"more than {policy.approval_money} {currency}")
    if policy.approver in who and policy.approval_hours is not None:
        limits.append(f"more than {policy.approval_hours} GPU-hours")
    people = " and ".join(APPROVERS[w] for w in who)
    return f"{' or '.join(limits)} takes the approval of {people}. Until then it is asked for, not booked.".capitalize()
