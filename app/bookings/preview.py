"""What a change of a policy would touch: bookings that stay as they are but would be refused, or asked for, today.

Pure: bookings, the policies before and after in, words out. The same rules judge them as judge a new booking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

from app.bookings import rules
from app.bookings.rules_load import Load, approval_needed, check_load, is_limited
from app.inventory.policy import Policy, said_as
from app.kernel.actor import Actor
from app.kernel.errors import Reason
from app.kernel.money import WHOLE
from app.kernel.window import Window

FOLLOWED = (
    "late_after", "give_up", "no_show_warn", "no_show", "no_show_fee", "idle_warn", "idle_release", "end_warn",
    "end_warn_last", "grace", "reclaim_lead", "made_ahead", "blip", "offer_for", "skips",
)  # fmt: skip
"""Rules that bookings are followed by once they are made: a change counts for those too that exist."""
Whose = Callable[["Live"], Policy]
_NOBODY = Actor(None, "")


@dataclass(frozen=True, slots=True)
class Live:
    """A booking that has not ended, with whose it is. `rate` is units x 840 x share."""

    id: UUID
    number: int
    tenant_id: UUID
    tenant: str
    tenant_name: str
    project_id: UUID
    project: str
    project_name: str
    account_id: UUID | None
    booked_by: str
    name: str
    state: str
    rate: int
    starts_at: datetime
    ends_at: datetime
    booked_at: datetime
    quoted: Decimal
    currency: str

    @property
    def window(self) -> Window:
        """What was booked."""
        return Window(self.starts_at, self.ends_at)

    @property
    def label(self) -> str:
        """`B-2417`, as people say it."""
        return f"B-{self.number}"


@dataclass(frozen=True, slots=True)
class Touched:
    """A booking that is kept, and what would be said to it today."""

    booking: Live
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Preview:
    """What a change says, and whom it touches.

    `changes`: name, before, after as JSON has them. `refused` would be refused if they were asked for today, `asked`
    would need approval. `followed`: how many live bookings follow the new rules from then on (no-show, warnings, …).
    `closed`: projects with live bookings that could book no more. `contradicts`: whose own words do not go together with
    the new ones. `looked_at`: bookings judged; `more`: there are others.
    """

    changes: tuple[tuple[str, Any, Any], ...]
    refused: tuple[Touched, ...]
    asked: tuple[Touched, ...]
    followed: int
    closed: tuple[str, ...]
    contradicts: tuple[str, ...]
    looked_at: int
    more: bool


def changes_of(before: Policy, after: Policy) -> tuple[tuple[str, Any, Any], ...]:
    """The fields that differ, by name."""
    pairs = ((f.name, getattr(before, f.name), getattr(after, f.name)) for f in fields(Policy))
    return tuple((name, said_as(old), said_as(new)) for name, old, new in pairs if old != new)


def judge(live: Iterable[Live], before: Whose, after: Whose, now: datetime) -> tuple[list[Touched], list[Touched]]:
    """Bookings that would be refused, and those that would need approval, after a change and not before it.

    They are judged in the order in which they were made: of several that pass a limit together the last ones do.
    """
    ours = list(live)
    was, would = _refused(ours, before, now), _refused(ours, after, now)
    refused, asked = [], []
    for booking in ours:
        known = {r.code for r in was[booking.id]}
        new = tuple(r for r in would[booking.id] if r.code not in known)
        if new:
            refused.append(Touched(booking, new))
        elif (need := _needs(booking, after(booking))) and not _needs(booking, before(booking)):
            asked.append(Touched(booking, need))
    return refused, asked


def _refused(live: list[Live], whose: Whose, now: datetime) -> Mapping[UUID, list[Reason]]:
    found: dict[UUID, list[Reason]] = {}
    kept: list[Live] = []
    for booking in live:
        policy, window = whose(booking), booking.window
        reasons = rules.check_open(policy, booking.project_name, "this pool")
        reasons += rules.check_length(window.end - window.start, policy)
        reasons += rules.check_horizon(window.end, policy, max(booking.booked_at, now - policy.horizon))
        if window.start > now:  # what has begun cannot be begun elsewhere
            reasons += [
                r for r in rules.check_start(window.start, policy, booking.booked_at) if r.code != "start_in_past"
            ]
        if is_limited(policy):
            load = _load(kept, booking, policy, now)
            reasons += check_load(policy, load, booking.rate, window, now, booking.account_id is not None)
        found[booking.id] = reasons
        if not any(r.code in _COUNTED for r in reasons):
            kept.append(booking)
    return found


_COUNTED = {"too_many_at_once", "project_too_many_at_once", "too_far_ahead", "tenant_too_far_ahead"}


def _load(kept: list[Live], booking: Live, policy: Policy, now: datetime) -> Load:
    """What stood in the way of a booking when those before it had been made."""
    tenants = [b for b in kept if b.tenant_id == booking.tenant_id]
    own = [b for b in tenants if b.account_id is not None and b.account_id == booking.account_id]
    ours = [b for b in tenants if b.project_id == booking.project_id]
    free = now + policy.ahead_free

    def ahead(of: list[Live]) -> int:
        return sum(b.rate * max(0, int((b.ends_at - max(b.starts_at, free)).total_seconds())) for b in of)

    return Load(_peak(own, booking.window), _peak(ours, booking.window), ahead(own), ahead(tenants))


def _peak(live: list[Live], window: Window) -> int:
    """The largest rate of these bookings at one instant of the window: it is reached where one of them starts."""
    within = [b for b in live if b.window.overlaps(window)]
    starts = {max(b.starts_at, window.start) for b in within}
    return max((sum(b.rate for b in within if b.window.contains(at)) for at in starts), default=0)


def _needs(booking: Live, policy: Policy) -> tuple[Reason, ...]:
    hours = Fraction(booking.rate * booking.window.seconds, WHOLE * 3600)
    need = approval_needed(policy, hours, booking.quoted, booking.currency, _NOBODY, booking.project_id)
    return () if need is None else need.reasons
