"""From metered time and frozen prices to charges and statement lines. Pure; knows no database.

Charges are exact: a quantity and a unit price. A *line group* is (booking, charge kind, unit price, cost centre); money
is rounded once a group, cumulatively over the months: what a month's statement says is round(all so far) minus what
earlier months said, so any number of statements adds up to the rounded whole, which is what the quote said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Literal
from uuid import UUID, uuid5
from zoneinfo import ZoneInfo

from app.kernel.money import SCALE, exact, line_amount
from app.kernel.window import Window, local_midnights, month_of
from app.pricing.rules import hours_in_json
from app.usage.rules import Interval, union

_CHARGES = UUID("0d5b3f0e-8f0f-5b8a-9a55-0c4d2a7b9e21")
ChargeKind = Literal["use", "fee", "credit"]


@dataclass(frozen=True, slots=True)
class Priced:
    """A stretch of a booking's frozen price schedule. `units`: how many it is for; None: as many as the booking has."""

    window: Window
    price_id: int
    per_hour: Decimal
    units: int | None = None


@dataclass(frozen=True, slots=True)
class Charge:
    """One row of the ledger: `quantity` (negative for a credit) at `unit_price` per unit-hour, in a local month."""

    id: UUID
    kind: ChargeKind
    interval_id: UUID | None
    price_id: int
    unit_price: Decimal
    window: Window
    quantity: int
    month: date
    why: str


@dataclass(frozen=True, slots=True)
class LostUnit:
    """One unit of a booking and the times at which it was not there. `weight` is its booked share x 840."""

    weight: int
    windows: tuple[Window, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """A line group in one month: its quantity there, and the exact money (quantity x price) up to and before it."""

    tenant_id: UUID
    booking_id: UUID
    kind: ChargeKind
    unit_price: Decimal
    cost_centre: str
    currency: str
    quantity: int
    through: Decimal
    before: Decimal
    number: int
    name: str
    units: int
    unit_kind: str
    unit_kind_name: str
    project: str
    person: str
    starts_at: datetime
    ends_at: datetime
    rows: int

    @property
    def amount(self) -> Decimal:
        """What this month's statement says for the group."""
        through, before = (line_amount(Fraction(x) / SCALE, self.currency) for x in (self.through, self.before))
        return through - before

    @property
    def exact(self) -> Fraction:
        """The month's money, unrounded."""
        return (Fraction(self.through) - Fraction(self.before)) / SCALE


@dataclass(frozen=True, slots=True)
class ExpectedCredit:
    """What a booking that is not over will get back for one price in a month, by its outages so far. Not in the ledger,
    so in no total: both numbers are negative, the amount is rounded as the line will be."""

    booking_id: UUID
    number: int
    name: str
    unit_kind: str
    unit_kind_name: str
    unit_price: Decimal
    quantity: int
    amount: Decimal


@dataclass(frozen=True, slots=True)
class Statement:
    """What a tenant owes for a month: `net` for use and fees, `credits` (negative), and tax. All lines add up to
    net + credits. `expected` are credits of bookings that are not over: said, and not counted."""

    tenant: str
    period: date
    currency: str
    groups: tuple[Group, ...]
    net: Decimal
    credits: Decimal
    tax: Decimal
    number: str | None = None
    state: Literal["draft", "issued"] = "draft"
    expected: tuple[ExpectedCredit, ...] = ()

    @property
    def total(self) -> Decimal:
        """What is to be paid."""
        return self.net + self.credits + self.tax


def use_charges(
    booking_id: UUID, intervals: Iterable[Interval], segments: Sequence[Priced], zone: ZoneInfo
) -> tuple[Charge, ...]:
    """One charge per interval, price and local month. Raises ValueError where the schedule leaves a gap."""
    charges = []
    for interval in intervals:
        rate, rest = divmod(interval.quantity, interval.window.seconds)
        if rest:
            raise ValueError(f"the quantity of interval {interval.id} is not whole units over its time")
        for segment, piece in _priced(interval.window, segments, zone):
            charges.append(
                Charge(
                    _charge_id("use", booking_id, interval.id, segment.price_id, piece.start),
                    "use",
                    interval.id,
                    segment.price_id,
                    segment.per_hour,
                    piece,
                    rate * piece.seconds,
                    _month(piece.start, zone),
                    "reserved, from provision to release",
                )
            )
    return tuple(charges)


def credit_charges(
    booking_id: UUID, lost: Iterable[LostUnit], charged: Window, segments: Sequence[Priced], zone: ZoneInfo
) -> tuple[Charge, ...]:
    """What is taken back because units were not there: of each unit the union of its outages inside the charged time,
    at the price charged for it. One row per price and local month."""
    units = [
        (unit.weight, [w for w in (window.intersect(charged) for window in union(unit.windows)) if w]) for unit in lost
    ]
    charges = []
    for segment, piece in _priced(charged, segments, zone, days=False):
        parts = [(weight, part) for weight, windows in units for part in (w.intersect(piece) for w in windows) if part]
        quantity = sum(weight * part.seconds for weight, part in parts)
        if not quantity:
            continue
        span = Window(min(p.start for _, p in parts), max(p.end for _, p in parts))
        charges.append(
            Charge(
                _charge_id("credit", booking_id, None, segment.price_id, span.start),
                "credit",
                None,
                segment.price_id,
                segment.per_hour,
                span,
                -quantity,
                _month(span.start, zone),
                "units that were not there",
            )
        )
    return tuple(charges)


def fee_charges(
    booking_id: UUID, fees: Iterable[tuple[datetime, Decimal, str]], price_id: int, zone: ZoneInfo
) -> tuple[Charge, ...]:
    """Money owed beside time, (since when, amount, what for) each: one, at the amount as its price, so that it is
    exact; it counts as no hour of use."""
    return tuple(
        Charge(
            _charge_id("fee", booking_id, None, price_id, at),
            "fee",
            None,
            price_id,
            amount,
            Window(at, at + timedelta(seconds=1)),
            SCALE,
            _month(at, zone),
            why,
        )
        for at, amount, why in fees
    )


def rounded(charges: Iterable[Charge], currency: str) -> Decimal:
    """What charges of one booking and kind come to, over all months: each unit price rounded once, as in the ledger."""
    groups: dict[Decimal, Fraction] = {}
    for charge in charges:
        money = exact(charge.quantity, charge.unit_price)
        groups[charge.unit_price] = groups.get(charge.unit_price, Fraction(0)) + money
    return sum((line_amount(m, currency) for m in groups.values()), line_amount(Fraction(0), currency))


def by_price(charges: Iterable[Charge], month: date, currency: str) -> tuple[tuple[Decimal, int, Decimal], ...]:
    """(unit price, quantity, amount) of charges of one booking and kind in a month, as its lines will say them: money is
    rounded cumulatively over the months, so those of earlier months have to be among the charges."""
    through: dict[Decimal, Fraction] = {}
    before: dict[Decimal, Fraction] = {}
    quantities: dict[Decimal, int] = {}
    for charge in charges:
        if charge.month > month:
            continue
        price, money = charge.unit_price, exact(charge.quantity, charge.unit_price)
        through[price] = through.get(price, Fraction(0)) + money
        if charge.month < month:
            before[price] = before.get(price, Fraction(0)) + money
        else:
            quantities[price] = quantities.get(price, 0) + charge.quantity
    return tuple(
        (price, quantity, line_amount(through[price], currency) - line_amount(before.get(price, Fraction(0)), currency))
        for price, quantity in quantities.items()
    )


def statement(
    tenant: str, period: date, currency: str, groups: Iterable[Group], expected: Iterable[ExpectedCredit] = ()
) -> Statement:
    """The draft of a month from its line groups, in the order in which they are given."""
    groups = tuple(groups)
    foreign = {g.currency for g in groups} - {currency}
    if foreign:
        raise ValueError(f"a statement in {currency} cannot hold charges in {', '.join(sorted(foreign))}")
    zero = line_amount(Fraction(0), currency)
    return Statement(
        tenant,
        period,
        currency,
        groups,
        net=sum((g.amount for g in groups if g.kind != "credit"), zero),
        credits=sum((g.amount for g in groups if g.kind == "credit"), zero),
        tax=zero,
        expected=tuple(expected),
    )


def so_far(segments: Iterable[Priced], charged: Window, units: int, share840: int, currency: str) -> Decimal:
    """What the charged time of a booking costs at its frozen prices, rounded by line group: so far, or at the end."""
    groups: dict[Decimal, Fraction] = {}
    for segment in segments:
        part = segment.window.intersect(charged)
        if part is not None:
            money = exact((segment.units or units) * share840 * part.seconds, segment.per_hour)
            groups[segment.per_hour] = groups.get(segment.per_hour, Fraction(0)) + money
    return sum((line_amount(m, currency) for m in groups.values()), line_amount(Fraction(0), currency))


def what(group: Group) -> str:
    """What a line is for, in words."""
    if group.kind == "use":
        return f"{group.name}: {group.units} × {group.unit_kind_name}"
    return f"{'Credit' if group.kind == 'credit' else 'Fee'}: {group.name}, {group.unit_kind_name}"


def statement_json(statement: Statement, booking_name) -> dict[str, object]:
    """The shape that outside programs rely on. `booking_name` makes the public id from a booking's id."""
    return {
        "number": statement.number,
        "state": statement.state,
        "tenant": statement.tenant,
        "period": f"{statement.period:%Y-%m}",
        "currency": statement.currency,
        "lines": [
            {
                "what": what(g),
                "booking": booking_name(g.booking_id),
                "number": f"B-{g.number}",
                "charge": g.kind,
                "kind": g.unit_kind,
                "cost_center": g.cost_centre,
                "project": g.project,
                "unit_hours": hours_in_json(g.quantity),
                "unit_price": str(g.unit_price),
                "amount": str(g.amount),
            }
            for g in statement.groups
        ],
        "expected_credits": [
            {
                "booking": booking_name(e.booking_id),
                "number": f"B-{e.number}",
                "kind": e.unit_kind,
                "unit_hours": hours_in_json(e.quantity),
                "unit_price": str(e.unit_price),
                "amount": str(e.amount),
            }
            for e in statement.expected
        ],
        "net": str(statement.net),
        "credits": str(statement.credits),
        "tax": str(statement.tax),
        "total": str(statement.total),
    }


def _priced(
    window: Window, segments: Sequence[Priced], zone: ZoneInfo, *, days: bool = True
) -> list[tuple[Priced, Window]]:
    """The window in pieces of one price and one local month (or day), in order."""
    midnights = local_midnights(window, zone)
    cuts = midnights if days else [m for m in midnights if m.astimezone(zone).day == 1]
    edges = [e for s in segments for e in (s.window.start, s.window.end)]
    pieces = []
    for piece in window.cut([*cuts, *edges]):
        segment = next((s for s in segments if s.window.contains(piece.start)), None)
        if segment is None:
            raise ValueError(f"no price was frozen for {piece.start}")
        pieces.append((segment, piece))
    return pieces


def _month(instant: datetime, zone: ZoneInfo) -> date:
    year, month = month_of(instant, zone)
    return date(year, month, 1)


def _charge_id(kind: str, booking_id: UUID, interval_id: UUID | None, price_id: int, start: datetime) -> UUID:
    return uuid5(_CHARGES, f"{kind} {booking_id} {interval_id} {price_id} {start.isoformat()}")
