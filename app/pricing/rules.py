"""Which price is in force when, and what a window costs. Pure; knows no database and no booking.

A price counts from its version's `effective_at` until a later one of the same kind counts. A version that leaves a kind
out leaves that kind's price as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from app.kernel.errors import Reason
from app.kernel.money import WHOLE, exact, hours_text, line_amount, quantity
from app.kernel.window import Window

MOST_DECIMALS = 6
"""A price has at most so many decimal places: the database keeps no more and must not round in silence."""
HIGHEST = Decimal(10) ** 9


@dataclass(frozen=True, slots=True)
class Price:
    """The price of one kind in one published version, in money per unit-hour."""

    id: int
    kind: str
    per_hour: Decimal
    effective_at: datetime
    published_at: datetime


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of time over which one price is in force."""

    window: Window
    price_id: int
    per_hour: Decimal


@dataclass(frozen=True, slots=True)
class Part:
    """One line group of a cost: all segments of one unit price. `quantity` as in kernel.money; `amount` is rounded.

    `what` is the charge kind. `length` is how long that price is in force within the window.
    """

    what: str
    quantity: int
    unit_price: Decimal
    amount: Decimal
    length: timedelta


@dataclass(frozen=True, slots=True)
class Cost:
    """What a window costs: the parts in order of time, and their sum. The sum is what the bill will say."""

    parts: tuple[Part, ...]
    amount: Decimal
    currency: str


def schedule(prices: Iterable[Price], kind: str, window: Window, at: datetime) -> tuple[Segment, ...] | None:
    """The window cut where the price of `kind` changes, by what was published at `at`; None when a part has no price.

    In force at an instant: the greatest `effective_at` not after it, and of those the one published last.
    """
    known = [p for p in prices if p.kind == kind and p.published_at <= at and p.effective_at < window.end]
    segments: list[Segment] = []
    for piece in window.cut(p.effective_at for p in known):
        in_force = max(
            (p for p in known if p.effective_at <= piece.start),
            key=lambda p: (p.effective_at, p.published_at, p.id),
            default=None,
        )
        if in_force is None:
            return None
        if segments and segments[-1].price_id == in_force.id:
            piece = Window(segments.pop().window.start, piece.end)
        segments.append(Segment(piece, in_force.id, in_force.per_hour))
    return tuple(segments)


def cost(segments: Iterable[Segment], units: int, currency: str, share840: int = WHOLE) -> Cost:
    """What `units` equal units cost over the segments. Every group of one unit price is rounded once."""
    groups: dict[Decimal, int] = {}
    for segment in segments:
        seconds = segment.window.seconds
        groups[segment.per_hour] = groups.get(segment.per_hour, 0) + seconds
    parts = tuple(
        Part(
            "use",
            amount_of := quantity(units, seconds, share840),
            price,
            line_amount(exact(amount_of, price), currency),
            timedelta(seconds=seconds),
        )
        for price, seconds in groups.items()
    )
    return Cost(parts, sum((p.amount for p in parts), line_amount(Fraction(0), currency)), currency)


def cheapest(costs: Sequence[tuple[str, Cost]]) -> str:
    """The kind that costs least; of equal ones the first by name, so that the answer is always the same."""
    return min(costs, key=lambda pair: (pair[1].amount, pair[0]))[0]


def wrong_prices(prices: dict[str, Decimal], kinds: Iterable[str]) -> tuple[Reason, ...]:
    """What is wrong with the prices of a version before it is published; empty when nothing is."""
    known, reasons = set(kinds), []
    if not prices:
        reasons.append(_wrong("prices_missing", "A version of a price book needs at least one price.", "prices"))
    for kind, price in prices.items():
        field = f"price.{kind}"
        if kind not in known:
            reasons.append(_wrong("unknown_kind", f"There is no kind named {kind}.", field))
        if not price.is_finite() or price < 0 or price >= HIGHEST:
            reasons.append(_wrong("price_out_of_range", f"The price of {kind} must lie between 0 and 10^9.", field))
        elif -int(price.normalize().as_tuple().exponent) > MOST_DECIMALS:
            reasons.append(
                _wrong("price_too_fine", f"The price of {kind} has more than {MOST_DECIMALS} decimal places.", field)
            )
    return tuple(reasons)


def _wrong(code: str, message: str, field: str) -> Reason:
    return Reason(code, message, field=field, in_request=True)


def hours_in_json(quantity: int) -> str:
    """Unit-hours as quotes and statements send them: two decimals, up to six where two are not exact (`0.166667`)."""
    head, _, tail = hours_text(quantity, 6).partition(".")
    return f"{head}.{tail.rstrip('0').ljust(2, '0')}"
