"""What a booking takes from each limit, and whether it fits. Pure; knows no database.

A commitment is one booking x scope x local day x price. Its `rate` is units x share840 (so a 3/7 slice counts 360 of
840); its quantity is rate x seconds, as in kernel.money. What has elapsed of it is *used*, the rest is *held*: nothing
is rewritten because time passes. Local days are those of the tenant's billing zone, cut here and nowhere in SQL. Money is
quantity x price, exact, at the prices that the bookings have; it is divided by SCALE only to be shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Literal, Protocol
from uuid import UUID
from zoneinfo import ZoneInfo

from app.kernel.errors import Reason
from app.kernel.money import SCALE, WHOLE, line_amount
from app.kernel.window import Window, split_days


class Priced(Protocol):
    """A stretch of time with its price per unit-hour."""

    @property
    def window(self) -> Window: ...

    @property
    def per_hour(self) -> Decimal: ...


Month = date
"""The first day of a calendar month in the tenant's billing zone."""

_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
           "November", "December")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose limit it is and over which kind (None: all kinds together).

    `max_rate`: units at once x 840; `max_quantity`: a month's unit-hours x SCALE; `max_money`: a month's money in the
    tenant's `currency`; None where there is no limit. `name` is how it is called in sentences ("Institute of Physics").
    """

    id: int
    subject: Literal["tenant", "project", "user"]
    kind: str | None
    max_rate: int | None
    max_quantity: int | None
    name: str = ""
    project_id: UUID | None = None
    account_id: UUID | None = None
    max_money: Decimal | None = None
    currency: str | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of a booking on one local day under one price: a row of commitments in every scope."""

    day: date
    window: Window
    rate: int
    price: Decimal

    @property
    def quantity(self) -> int:
        """Unit-seconds x 840 x share."""
        return self.rate * self.window.seconds

    @property
    def money(self) -> Decimal:
        """Quantity x price: money x SCALE."""
        return self.quantity * self.price


@dataclass(frozen=True, slots=True)
class Taken:
    """What of a month is used (elapsed) and held (still to come), as quantities or as quantity x price."""

    used: int | Decimal = 0
    held: int | Decimal = 0

    @property
    def total(self) -> int | Decimal:
        """Used and held: what counts against the limit."""
        return self.used + self.held


@dataclass(frozen=True, slots=True)
class Standing:
    """One scope as it stands: months of the window asked for, and the largest overlapping rate within it; money of months."""

    scope: Scope
    months: Mapping[Month, Taken] = field(default_factory=dict)
    peak: int = 0
    money: Mapping[Month, Taken] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QuotaEffect:
    """What a booking does to one limit: raw numbers, rates for "units", quantities for "hours", money x SCALE for "money".

    `before` and `after` are used + held without and with the booking. `month` is None for units.
    """

    scope: Scope
    measure: Literal["units", "hours", "money"]
    before: int | Decimal
    after: int | Decimal
    limit: int | Decimal
    month: Month | None = None
    used: int | Decimal = 0

    @property
    def what(self) -> str:
        """The limit in words: `H100 at the same time`, `GPU-hours in December 2026`."""
        of = "" if self.scope.kind is None else f" of {self.scope.kind}"
        if self.month is None:
            return f"units{of} at the same time"
        hours = self.scope.currency if self.measure == "money" else "GPU-hours"
        return f"{hours}{of} in {_MONTHS[self.month.month - 1]} {self.month.year}"

    def plain(self, amount: int | Decimal) -> str:
        """One of the raw numbers as people read it: units, unit-hours, or money in the tenant's currency."""
        if self.measure == "money":
            return money_text(amount, self.scope.currency or "")
        return plain(Fraction(amount) / (WHOLE if self.month is None else SCALE))

    def as_json(self) -> dict[str, str]:
        """The shape of a quote's `quota` rows: exact quantities as text, in units, unit-hours or money."""
        return {
            "scope": f"{self.scope.subject} {self.scope.name}".strip(),
            "what": self.what,
            "before": self.plain(self.before),
            "after": self.plain(self.after),
            "limit": self.plain(self.limit),
        }


def pieces(segments: Iterable[Priced], zone: ZoneInfo, units: int, share840: int = WHOLE) -> tuple[Piece, ...]:
    """What `units` units over the price segments commit: cut at local midnights and where the price changes."""
    return tuple(
        Piece(day, window, units * share840, segment.per_hour)
        for segment in segments
        for day, window in split_days(segment.window, zone)
    )


def months_of(pieces: Iterable[Piece]) -> tuple[Month, ...]:
    """The calendar months that the pieces fall into, in order."""
    return tuple(sorted({p.day.replace(day=1) for p in pieces}))


def month_at(instant: datetime, zone: str) -> Month:
    """The calendar month of an instant in a zone."""
    return instant.astimezone(ZoneInfo(zone)).date().replace(day=1)


def next_month(month: Month) -> Month:
    """The first day of the month after."""
    return date(month.year + month.month // 12, month.month % 12 + 1, 1)


def check(standings: Sequence[Standing], asked: Sequence[Piece]) -> tuple[tuple[Reason, ...], tuple[QuotaEffect, ...]]:
    """Every limit that the pieces would pass, and what they do to each limit.

    The standings are those without the pieces: for an edit, without what the booking itself holds and gives up.
    """
    reasons: list[Reason] = []
    effects: list[QuotaEffect] = []
    rate = max((p.rate for p in asked), default=0)
    by_month: dict[Month, int] = {}
    money: dict[Month, Decimal] = {}
    for piece in asked:
        month = piece.day.replace(day=1)
        by_month[month] = by_month.get(month, 0) + piece.quantity
        money[month] = money.get(month, Decimal(0)) + piece.money
    for standing in standings:
        scope = standing.scope
        if scope.max_rate is not None and rate:
            effect = QuotaEffect(scope, "units", standing.peak, standing.peak + rate, scope.max_rate)
            effects.append(effect)
            if effect.after > effect.limit:
                reasons.append(_too_many_units(effect))
        if scope.max_quantity is not None:
            for month, quantity in sorted(by_month.items()):
                taken = standing.months.get(month, Taken())
                effect = QuotaEffect(
                    scope, "hours", taken.total, taken.total + quantity, scope.max_quantity, month, taken.used
                )
                effects.append(effect)
                if effect.after > effect.limit:
                    reasons.append(_too_many_hours(effect))
        if scope.max_money is not None:
            for month, amount in sorted(money.items()):
                spent = standing.money.get(month, Taken())
                limit = scope.max_money * SCALE
                effect = QuotaEffect(scope, "money", spent.total, spent.total + amount, limit, month, spent.used)
                effects.append(effect)
                if effect.after > effect.limit and amount:
                    reasons.append(_too_much_money(effect))
    return tuple(reasons), tuple(effects)


def plain(value: Fraction, digits: int = 2) -> str:
    """An exact number as text without superfluous zeros, at most `digits` decimals: `96`, `2.5`, `-100`."""
    scaled = abs(value) * 10**digits
    whole = (2 * scaled.numerator + scaled.denominator) // (2 * scaled.denominator)
    text = f"{whole // 10**digits}.{whole % 10**digits:0{digits}d}".rstrip("0").rstrip(".")
    return f"-{text}" if value < 0 and whole else text


def money_text(amount: int | Decimal, currency: str) -> str:
    """Money x SCALE as people read it, rounded once to the currency's minor unit."""
    return str(line_amount(Fraction(amount) / SCALE, currency))


_WHOSE = {"tenant": "tenant", "project": "project", "user": "person"}


def _whose(scope: Scope) -> str:
    return f"{_WHOSE[scope.subject]} {scope.name}".rstrip()


def _too_many_units(effect: QuotaEffect) -> Reason:
    limit, now = plain(Fraction(effect.limit, WHOLE)), plain(Fraction(effect.before, WHOLE))
    after, asked = plain(Fraction(effect.after, WHOLE)), plain(Fraction(effect.after - effect.before, WHOLE))
    kind = "" if effect.scope.kind is None else f" {effect.scope.kind}"
    together = f"Together with the {now} booked for that time it" if effect.before else "It"
    fits = max(0, (effect.limit - effect.before) // WHOLE)
    return Reason(
        "quota_units",
        f"Too many{kind} units at the same time: the {_whose(effect.scope)} may have {limit}. "
        f"{together} would be {after}.",
        limit=f"{limit} units",
        asked=f"{asked} units",
        fix=f"At most {fits} more fit in that time." if fits else "Choose another time, or ask for a higher limit.",
        field="units",
    )


def _too_much_money(effect: QuotaEffect) -> Reason:
    currency = effect.scope.currency
    left, over = effect.plain(effect.limit - effect.before), effect.before > effect.limit
    available = f"{left} available, over-committed" if over else f"{left} available"
    return Reason(
        "quota_money",
        f"Too much {effect.what}: of {effect.plain(effect.limit)} {currency} of the {_whose(effect.scope)}, "
        f"{effect.plain(effect.used)} are used and {effect.plain(effect.before - effect.used)} are held by bookings, so "
        f"{available}.",
        limit=f"{left} {currency} available",
        asked=f"{effect.plain(effect.after - effect.before)} {currency}",
        fix="Book less, shorter or a cheaper kind, cancel what is not needed, or ask for a higher limit.",
        field="duration",
    )


def _too_many_hours(effect: QuotaEffect) -> Reason:
    limit, used = plain(Fraction(effect.limit, SCALE)), plain(Fraction(effect.used, SCALE))
    held = plain(Fraction(effect.before - effect.used, SCALE))
    left = plain(Fraction(effect.limit - effect.before, SCALE))
    asked = plain(Fraction(effect.after - effect.before, SCALE))
    over = effect.before > effect.limit
    available = f"{left} available, over-committed" if over else f"{left} available"
    return Reason(
        "quota_hours",
        f"Too many {effect.what}: of {limit} GPU-hours of the {_whose(effect.scope)}, {used} are used and {held} are "
        f"held by bookings, so {available}.",
        limit=f"{left} GPU-hours available",
        asked=f"{asked} GPU-hours",
        fix="Book less or shorter, cancel what is not needed, or ask for a higher limit.",
        field="duration",
    )
