"""What one booking has cost, will cost, and how its reserved time was used, in figures that add up. No HTML, no route.

So far and at the end come from events and the frozen prices, as the ledger will have them; what was used comes from
measurements. Unit-seconds count whole units: quantity / 840.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

from app.billing import queries as billing
from app.billing import rules
from app.billing.rules import Priced
from app.bookings import queries as bookings
from app.bookings.facts import Booking
from app.kernel.money import WHOLE, exact, line_amount, quantity
from app.kernel.window import Window
from app.plumbing.db import Work
from app.usage import queries as usage
from app.usage.queries import UsageLine
from app.usage.rules import charge_window
from app.web.views.booking import CostRow, CostView
from app.web.views.parts import Money

_BEFORE = ("WAITING", "REQUESTED", "BOOKED", "STARTING")


@dataclass(frozen=True, slots=True)
class Figures:
    """Money is rounded as on the bill; `charged` and `at_end` are net of what is taken back for lost units.

    `still_to_come` is what a release now would give back. Unit-seconds: reserved = used + unused + unknown, so far.
    `window` is the charged time so far, None before anything is.
    """

    charged: Decimal
    at_end: Decimal
    still_to_come: Decimal
    reserved: int
    used: int
    unused: int
    unknown: int
    unused_cost: Decimal | None
    energy_kwh: Decimal | None
    window: Window | None
    cost: CostView | None


def figures(work: Work, booking: Booking, now: datetime) -> Figures:
    """All of it, as of now."""
    whole = charge_window(booking.provided_at, booking.ends_at, booking.released_at)
    zero = line_amount(Fraction(0), booking.currency)
    if whole is None:
        fees = billing.charged(work, [booking.id]).get(booking.id, zero)  # cancelled too late, for instance
        expected = booking.quoted if booking.state in _BEFORE else fees
        return Figures(fees, expected, expected - fees, 0, 0, 0, 0, None, None, None, None)
    billed = billing.is_billed(work, booking.cluster_id)
    schedule = bookings.segments_of(work, booking.id)
    segments = [Priced(s.window, s.price_id, s.per_hour, s.units) for s in schedule] if billed else []
    steps = [(s.window, s.units or booking.units) for s in schedule]
    end = rules.so_far(segments, whole, booking.units, booking.share840, booking.currency)
    if whole.start >= now:
        cost = _cost(booking, steps, _Split(0, 0, 0, 0, ()), zero, end, zero, zero, whole, final=False)
        return Figures(zero, end, end, 0, 0, 0, 0, None, None, None, cost)
    window = Window(whole.start, min(whole.end, now))
    gross = rules.so_far(segments, window, booking.units, booking.share840, booking.currency)
    credits = _credits(work, booking, window, segments) if billed else zero
    lines = [line for line in usage.usage_of(work, booking.id) if line.window.overlaps(window)]
    split = _split(lines, segments, steps, window, booking, gross)
    ledger = billing.charged(work, [booking.id]).get(booking.id)
    final = booking.state == "ENDED" and booking.metered_until is not None and booking.metered_until >= whole.end
    fees = ledger - gross - credits if final and ledger is not None else zero
    energy = [line.energy_wh for line in lines if line.energy_wh is not None]
    return Figures(
        charged=gross + credits + fees,
        at_end=end + credits + fees,
        still_to_come=end - gross,
        reserved=split.reserved,
        used=split.used,
        unused=split.unused,
        unknown=split.unknown,
        unused_cost=split.unused_cost if billed and split.unused else None,
        energy_kwh=sum(energy, Decimal(0)) / 1000 if energy else None,
        window=window,
        cost=_cost(booking, steps, split, gross, end, credits, fees, whole, final=final),
    )


@dataclass(frozen=True, slots=True)
class _Split:
    reserved: int
    used: int
    unused: int
    unknown: int
    rows: tuple[CostRow, ...]

    @property
    def unused_cost(self) -> Decimal:
        return next((row.amount for row in self.rows if row.mark == "unused"), Decimal(0))


Steps = Sequence[tuple[Window, int]]
"""How many units were booked when: a booking may give some back."""


def _reserved(steps: Steps, window: Window, share840: int) -> int:
    parts = ((step.intersect(window), units) for step, units in steps)
    return sum(quantity(units, part.seconds, share840) for part, units in parts if part is not None)


def _split(
    lines: Sequence[UsageLine],
    segments: Sequence[Priced],
    steps: Steps,
    window: Window,
    booking: Booking,
    gross: Decimal,
) -> _Split:
    """Used, unused and unknown with their money: each rounded from the running sum, so that the rows add up."""
    reserved = _reserved(steps, window, booking.share840)
    used = min(sum(line.split.used for line in lines), reserved)
    unused = min(sum(line.split.unused for line in lines), reserved - used)
    unknown = reserved - used - unused
    money = [
        sum((_price_of(line, getattr(line.split, part), segments) for line in lines), Fraction(0))
        for part in ("used", "unused")
    ]
    parts = [("Used", used, money[0], "used"), ("Reserved, unused", unused, money[1], "unused"),
             ("Use not known", unknown, None, "unknown")]  # fmt: skip
    parts = [part for part in parts if part[1]]
    rows, said, running = [], line_amount(Fraction(0), booking.currency), Fraction(0)
    for label, amount, price, mark in parts:
        running += price or 0
        upto = gross if mark == parts[-1][3] else min(line_amount(running, booking.currency), gross)
        rows.append(CostRow(label, amount // WHOLE, upto - said, mark))  # type: ignore[arg-type]
        said = upto
    return _Split(reserved // WHOLE, used // WHOLE, unused // WHOLE, (reserved - used - unused) // WHOLE, tuple(rows))


def _price_of(line: UsageLine, amount: int, segments: Sequence[Priced]) -> Fraction:
    """The money of a part of a stretch; where the price changes within it, in proportion to time."""
    pieces = ((segment, segment.window.intersect(line.window)) for segment in segments)
    return sum(
        (exact(amount, s.per_hour) * Fraction(piece.seconds, line.window.seconds) for s, piece in pieces if piece),
        Fraction(0),
    )


def _credits(work: Work, booking: Booking, window: Window, segments: Sequence[Priced]) -> Decimal:
    """What is taken back for units that were not there so far; zero or less, rounded by price as the ledger is."""
    lost = billing.lost_units(work, booking.id, window)
    if not lost:
        return line_amount(Fraction(0), booking.currency)
    charges = rules.credit_charges(booking.id, lost, window, segments, ZoneInfo(booking.zone))
    return rules.rounded(charges, booking.currency)


def _cost(
    booking: Booking, steps: Steps, split: _Split, gross: Decimal, end: Decimal, credits: Decimal, fees: Decimal, whole: Window, *,
    final: bool,
) -> CostView:  # fmt: skip
    rows = list(split.rows)
    seconds = _reserved(steps, whole, booking.share840) // WHOLE
    if seconds > split.reserved > 0:
        rows.append(CostRow("So far", split.reserved, gross))
    if credits:
        label = "Taken back" if final else "To be taken back, so far,"
        rows.append(CostRow(f"{label} for units that were not there", None, credits, "fee"))
    if fees:
        rows.append(CostRow("Fees and corrections", None, fees, "fee"))
    if seconds > split.reserved:
        rows.append(CostRow("Still to come", seconds - split.reserved, end - gross, "coming"))
    return CostView(tuple(rows), Money(end + credits + fees, booking.currency), seconds, final)
