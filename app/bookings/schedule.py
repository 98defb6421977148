"""The price schedule of a booking: what it comes to, and how it is cut when the booking changes. Pure.

A piece of the schedule is for as many units as the booking has, unless it says how many: those are the pieces from
before units were given back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from fractions import Fraction
from zoneinfo import ZoneInfo

from app.bookings.facts import PriceSegment
from app.kernel.money import WHOLE, exact, line_amount, quantity
from app.kernel.window import Window
from app.pricing.rules import Cost, Part
from app.quotas.rules import Piece, pieces


def cost_of(segments: Iterable[PriceSegment], units: int, currency: str, share840: int = WHOLE) -> Cost:
    """What the whole schedule comes to, each unit price rounded once, as on the bill."""
    groups: dict = {}
    lengths: dict = {}
    for s in segments:
        groups[s.per_hour] = groups.get(s.per_hour, 0) + quantity(s.units or units, s.window.seconds, share840)
        lengths.setdefault(s.per_hour, []).append(s.window.end - s.window.start)
    parts = tuple(
        Part(
            "use",
            amount,
            price,
            line_amount(exact(amount, price), currency),
            sum(lengths[price][1:], lengths[price][0]),
        )
        for price, amount in groups.items()
    )
    zero = line_amount(Fraction(0), currency)
    return Cost(parts, sum((p.amount for p in parts), zero), currency)


def within(segments: Iterable[PriceSegment], window: Window) -> tuple[PriceSegment, ...]:
    """The part of the schedule that lies in a window."""
    cut = ((s, s.window.intersect(window)) for s in segments)
    return tuple(replace(s, window=part) for s, part in cut if part is not None)


def shrunk(segments: Iterable[PriceSegment], at: datetime, units: int) -> tuple[PriceSegment, ...]:
    """The schedule cut at an instant; what lies before it is for `units`, where it did not say already."""
    found = []
    for s in segments:
        for part in s.window.cut([at]):
            known = s.units if part.start >= at or s.units is not None else units
            found.append(replace(s, window=part, units=known))
    return tuple(found)


def cut(segments: Iterable[PriceSegment], at: datetime) -> tuple[PriceSegment, ...]:
    """The same schedule in pieces none of which an instant lies in."""
    return tuple(replace(s, window=part) for s in segments for part in s.window.cut([at]))


def pieces_of(segments: Iterable[PriceSegment], zone: str, units: int, share840: int = WHOLE) -> tuple[Piece, ...]:
    """What the schedule takes of limits, by local day and price."""
    return tuple(p for s in segments for p in pieces([s], ZoneInfo(zone), s.units or units, share840))
