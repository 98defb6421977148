"""How much one may have in a pool by its policy, and what somebody has to approve. Pure: numbers in, reasons out.

Limits that a tenant's contract sets are quotas; these are the pool's own. Everything is counted in units by their share of
an accelerator's compute: three sevenths of one count 3/7.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Literal
from uuid import UUID

from app.bookings.rules import length_text
from app.inventory.policy import Policy
from app.kernel.actor import Actor
from app.kernel.errors import Reason
from app.kernel.money import SCALE, WHOLE
from app.kernel.window import Window
from app.quotas.rules import plain


@dataclass(frozen=True, slots=True)
class Load:
    """What is booked in a pool already: rates (units x 840) at once, quantities (unit-seconds x 840) ahead."""

    user_peak: int = 0
    project_peak: int = 0
    user_ahead: int = 0
    tenant_ahead: int = 0


@dataclass(frozen=True, slots=True)
class Approval:
    """Somebody has to say yes first: who, why, and how long they have.

    `holds`: the request holds its units and quota meanwhile.
    """

    approver: Literal["lead", "operator"]
    reasons: tuple[Reason, ...]
    lasts: timedelta
    holds: bool

    @property
    def who(self) -> str:
        """Who answers, in words."""
        return "a lead of the project" if self.approver == "lead" else "an operator"


def is_limited(policy: Policy) -> bool:
    """Whether the policy counts what is booked already: only then must it be read."""
    return not (
        policy.max_units_user is None
        and policy.max_units_project is None
        and policy.ahead_hours_user is None
        and policy.ahead_hours_tenant is None
    )


def check_load(policy: Policy, load: Load, rate: int, window: Window, now: datetime, personal: bool) -> list[Reason]:
    """Too many units at once, or too many hours ahead, for `rate` (units x 840) more over a window.

    `personal`: there is a person whose bookings are counted.
    """
    reasons = []
    for whose, limit, taken in (
        ("One person", policy.max_units_user if personal else None, load.user_peak),
        ("One project", policy.max_units_project, load.project_peak),
    ):
        if limit is not None and taken + rate > limit * WHOLE:
            left = max(0, limit - -(-taken // WHOLE))
            have = f" {_units(taken)} are booked for that time already." if taken else ""
            reasons.append(
                Reason("too_many_at_once" if whose == "One person" else "project_too_many_at_once",
                       f"{whose} may have {limit} units of this pool at the same time.{have} You asked for {_units(rate)}.",
                       f"{limit} units", f"{_units(taken + rate)} units",
                       f"Ask for at most {left}, or for another time." if left else "Choose another time.", "units")
            )  # fmt: skip
    free = now + policy.ahead_free
    ahead = rate * max(0, int((window.end - max(window.start, free)).total_seconds()))
    near = length_text(policy.ahead_free)
    for whose, limit, taken in (
        ("One person", policy.ahead_hours_user if personal else None, load.user_ahead),
        ("The tenant", policy.ahead_hours_tenant, load.tenant_ahead),
    ):
        if limit is not None and ahead and taken + ahead > limit * SCALE:
            reasons.append(
                Reason("too_far_ahead" if whose == "One person" else "tenant_too_far_ahead",
                       f"{whose} may hold {limit} GPU-hours of this pool ahead; those of the next {near} are not counted. "
                       f"{_hours(taken)} are held, and {_hours(ahead)} would come on top.",
                       f"{limit} GPU-hours", f"{_hours(taken + ahead)} GPU-hours",
                       f"Book time within the next {near}, less of it, or give something back.", "start")
            )  # fmt: skip
    return reasons


def approval_needed(
    policy: Policy, unit_hours: Fraction, amount: Decimal, currency: str, actor: Actor, project_id: UUID
) -> Approval | None:
    """Whether somebody has to approve a booking of so many GPU-hours (units by share) at that price. None: nobody.

    Who could answer the request is not asked to: a lead where leads approve, an operator where operators do.
    """
    if "operator" in actor.platform_roles or (policy.approver == "lead" and actor.leads(project_id)):
        return None
    reasons = []
    if policy.approval_hours is not None and unit_hours > policy.approval_hours:
        asked = plain(unit_hours)
        reasons.append(
            Reason("approval_hours",
                   f"More than {policy.approval_hours} GPU-hours have to be approved. You asked for {asked}.",
                   f"{policy.approval_hours} GPU-hours", f"{asked} GPU-hours", None, "duration")
        )  # fmt: skip
    if policy.approval_money is not None and amount > policy.approval_money:
        most = f"{policy.approval_money:f} {currency}"
        reasons.append(
            Reason("approval_money", f"More than {most} has to be approved. This costs {amount} {currency}.",
                   most, f"{amount} {currency}", None, "duration")
        )  # fmt: skip
    if not reasons:
        return None
    return Approval(policy.approver, tuple(reasons), policy.approval_for, policy.requests_hold)


def _units(rate: int) -> str:
    return plain(Fraction(rate, WHOLE))


def _hours(quantity: int) -> str:
    return plain(Fraction(quantity, SCALE))
