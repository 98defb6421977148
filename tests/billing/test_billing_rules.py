"""Charges, credits and statements. The amounts are those of the cases; the properties use fractions."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.billing.rules import Charge, Group, LostUnit, Priced, credit_charges, so_far, statement, use_charges
from app.kernel.money import WHOLE
from app.kernel.window import Window
from app.pricing.rules import Segment, cost
from app.usage.rules import Interval, interval_id, reserved

BOOKING, TENANT = UUID(int=7), UUID(int=1)
LONG = Window(datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)


def flat(price: str) -> list[Priced]:
    return [Priced(LONG, 1, Decimal(price))]


def charges_of(window: Window, units: int, segments: list[Priced], zone: str, share: int = WHOLE) -> list[Charge]:
    """What metering and charging make of a booking that was provided for the whole window."""
    tz = ZoneInfo(zone)
    pieces = reserved(window, tz, [s.window.start for s in segments])
    intervals = [Interval(interval_id(BOOKING, "u", p), BOOKING, "u", p, units * share * p.seconds) for p in pieces]
    return list(use_charges(BOOKING, intervals, segments, tz))


def months(charges: list[Charge], currency: str = "CHF") -> dict[date, Decimal]:
    """What each month's statement says."""
    return {
        m: statement("T", m, currency, groups(charges, m, currency)).total for m in sorted({c.month for c in charges})
    }


def groups(charges: list[Charge], month: date, currency: str = "CHF", booking: UUID = BOOKING) -> list[Group]:
    """Line groups as the SQL of queries.py makes them."""
    out = []
    for kind, price in sorted({(c.kind, c.unit_price) for c in charges if c.month == month}):
        rows = [c for c in charges if (c.kind, c.unit_price) == (kind, price)]
        now = [c for c in rows if c.month == month]
        exact = {m: sum((c.quantity * c.unit_price for c in rows if c.month < m), Decimal(0)) for m in (month,)}
        through = exact[month] + sum((c.quantity * c.unit_price for c in now), Decimal(0))
        out.append(
            Group(
                TENANT, booking, kind, price, "4711", currency, sum(c.quantity for c in now), through, exact[month], 1,
                "Run", 1, "h100", "H100", "plasma", "Robin", now[0].window.start, now[-1].window.end, len(now),
            )
        )  # fmt: skip
    return out


def test_a_booking_over_the_end_of_the_month_is_billed_in_both_months():
    charges = charges_of(Window(utc(2026, 1, 30, 12), utc(2026, 2, 2, 6)), 4, flat("2.35"), "UTC")
    assert months(charges) == {date(2026, 1, 1): Decimal("338.40"), date(2026, 2, 1): Decimal("282.00")}
    assert sum(c.quantity for c in charges) == 264 * 3600 * 840


def test_rounding_is_cumulative_over_months_so_that_the_whole_is_right():
    charges = charges_of(Window(utc(2026, 1, 31, 22, 20), utc(2026, 2, 1, 1, 40)), 1, flat("0.05"), "UTC")
    assert list(months(charges).values()) == [Decimal("0.08"), Decimal("0.09")]


def test_an_hour_over_the_end_of_the_month_is_not_two():
    charges = charges_of(Window(utc(2026, 1, 31, 23, 30), utc(2026, 2, 1, 0, 30)), 1, flat("2.00"), "UTC")
    assert list(months(charges).values()) == [Decimal("1.00"), Decimal("1.00")]


def test_a_price_change_makes_two_lines_and_the_quote_is_the_bill():
    change = utc(2026, 3, 2, 13, 30)
    before, after = Window(LONG.start, change), Window(change, LONG.end)
    segments = [Priced(before, 1, Decimal("2.00")), Priced(after, 2, Decimal("2.50"))]
    window = Window(utc(2026, 3, 2, 10), utc(2026, 3, 2, 16))
    found = groups(charges_of(window, 8, segments, "UTC"), date(2026, 3, 1))
    assert [(g.unit_price, g.amount) for g in found] == [(Decimal("2.00"), 56), (Decimal("2.50"), 50)]
    quoted = cost([Segment(window.intersect(s.window), s.price_id, s.per_hour) for s in segments], 8, "CHF")
    assert sum(g.amount for g in found) == quoted.amount == Decimal("106.00")


@pytest.mark.parametrize(
    ("start", "end", "amount"),
    [
        ("2026-03-28T22:00+01:00", "2026-03-29T06:00+02:00", "14.00"),
        ("2026-10-24T22:00+02:00", "2026-10-25T06:00+01:00", "18.00"),
    ],
)
def test_hours_are_absolute_when_the_clocks_change(start, end, amount):
    window = Window(*(datetime.fromisoformat(t).astimezone(UTC) for t in (start, end)))
    assert sum(months(charges_of(window, 1, flat("2.00"), "Europe/Berlin")).values()) == Decimal(amount)


def test_months_are_those_of_the_tenants_zone():
    window = Window(utc(2026, 2, 1, 4), utc(2026, 2, 1, 6))  # 31 Jan 23:00 to 1 Feb 01:00 in New York
    found = charges_of(window, 1, flat("2.00"), "America/New_York")
    assert months(found) == {date(2026, 1, 1): Decimal("2.00"), date(2026, 2, 1): Decimal("2.00")}
    assert found[1].window.start == utc(2026, 2, 1, 5)


def test_small_rows_of_one_group_are_rounded_once():
    # 1,000 rows of 0.004: per-row rounding gives 0.00 or 10.00
    start = utc(2026, 5, 1)
    pieces = [Window(start + timedelta(seconds=n), start + timedelta(seconds=n + 1)) for n in range(1000)]
    intervals = [Interval(interval_id(BOOKING, "u", p), BOOKING, "u", p, 840) for p in pieces]
    found = list(use_charges(BOOKING, intervals, flat("14.4"), ZoneInfo("UTC")))
    assert (len(found), months(found)) == (1000, {date(2026, 5, 1): Decimal("4.00")})


def test_lines_add_up_exactly():
    start = utc(2026, 5, 1)
    ten = []
    for n in range(10):
        booking, window = UUID(int=n), Window(start, start + timedelta(hours=1))
        interval = Interval(interval_id(booking, "u", window), booking, "u", window, 3600 * 840)
        ten += groups(
            list(use_charges(booking, [interval], flat("0.10"), ZoneInfo("UTC"))), date(2026, 5, 1), booking=booking
        )
    said = statement("T", date(2026, 5, 1), "CHF", ten)
    assert (len(said.groups), str(said.net), str(said.tax), str(said.total)) == (10, "1.00", "0.00", "1.00")


def test_a_statement_in_one_currency_takes_no_other():
    window = Window(utc(2026, 5, 1), utc(2026, 5, 2))
    found = groups(charges_of(window, 1, flat("1"), "UTC"), date(2026, 5, 1), "EUR")
    with pytest.raises(ValueError, match="EUR"):
        statement("T", date(2026, 5, 1), "CHF", found)


def test_a_credit_takes_back_the_union_of_outages_once():
    charged = Window(utc(2026, 5, 1), utc(2026, 5, 1, 10))
    lost = [
        LostUnit(840, (Window(utc(2026, 5, 1, 1), utc(2026, 5, 1, 3)), Window(utc(2026, 5, 1, 2), utc(2026, 5, 1, 4))))
    ]
    (credit,) = credit_charges(BOOKING, lost, charged, flat("2.00"), ZoneInfo("UTC"))
    assert (credit.kind, credit.quantity, credit.interval_id) == ("credit", -3 * 3600 * 840, None)
    (group,) = groups([credit], date(2026, 5, 1))
    assert group.amount == Decimal("-6.00")


def test_a_credit_is_for_charged_time_only_and_at_the_price_charged():
    charged = Window(utc(2026, 5, 1, 2), utc(2026, 5, 1, 10))
    lost = [
        LostUnit(840, (Window(utc(2026, 5, 1, 0), utc(2026, 5, 1, 3)), Window(utc(2026, 5, 1, 9), utc(2026, 5, 1, 12))))
    ]
    change = utc(2026, 5, 1, 5)
    segments = [Priced(Window(LONG.start, change), 1, Decimal(2)), Priced(Window(change, LONG.end), 2, Decimal(3))]
    found = credit_charges(BOOKING, lost, charged, segments, ZoneInfo("UTC"))
    assert [(c.price_id, c.quantity // 3024000, c.window.seconds) for c in found] == [(1, -1, 3600), (2, -1, 3600)]
    assert (
        credit_charges(
            BOOKING, [LostUnit(840, (Window(utc(2026, 4, 1), utc(2026, 4, 2)),))], charged, segments, ZoneInfo("UTC")
        )
        == ()
    )


def test_an_outage_over_the_end_of_the_month_is_credited_in_both():
    charged = Window(utc(2026, 1, 31, 20), utc(2026, 2, 1, 10))
    down = Window(utc(2026, 1, 31, 22), utc(2026, 2, 1, 2))
    found = list(credit_charges(BOOKING, [LostUnit(840, (down,))] * 4, charged, flat("1.80"), ZoneInfo("UTC")))
    assert months(found) == {date(2026, 1, 1): Decimal("-14.40"), date(2026, 2, 1): Decimal("-14.40")}


def test_time_without_a_frozen_price_is_an_error_not_free():
    window = Window(utc(2025, 12, 31, 23), utc(2026, 1, 1, 1))
    with pytest.raises(ValueError, match="no price was frozen"):
        charges_of(window, 1, flat("2"), "UTC")


def test_minor_units_of_other_currencies():
    window = Window(utc(2026, 5, 1), utc(2026, 5, 1, 12, 30))
    assert str(months(charges_of(window, 1, flat("137.3"), "UTC"), "JPY")[date(2026, 5, 1)]) == "1716"
    assert str(months(charges_of(window, 1, flat("0.4567"), "UTC"), "KWD")[date(2026, 5, 1)]) == "5.709"


def test_slices_never_cost_more_than_the_card():
    window = Window(utc(2026, 5, 1), utc(2026, 5, 1, 5))
    assert months(charges_of(window, 1, flat("2.80"), "UTC", 360)) == {date(2026, 5, 1): Decimal("6.00")}
    hour = Window(utc(2026, 5, 1), utc(2026, 5, 1, 1))
    assert months(charges_of(hour, 7, flat("2.80"), "UTC", 120)) == {date(2026, 5, 1): Decimal("2.80")}


def test_charges_have_their_ids_from_what_they_say():
    window = Window(utc(2026, 5, 1), utc(2026, 5, 3))
    once, twice = (charges_of(window, 2, flat("2"), "Europe/Zurich") for _ in range(2))
    assert once == twice
    assert len({c.id for c in once}) == len(once) == 3


PRICE = st.decimals(0, 20, places=6, allow_nan=False, allow_infinity=False)


@settings(deadline=None)
@given(
    st.integers(0, 300 * 86400), st.integers(1, 70 * 86400), st.integers(1, 64), st.sampled_from([120, 360, 840]),
    PRICE, PRICE, st.integers(1, 299 * 86400),
    st.sampled_from(["UTC", "Europe/Zurich", "America/New_York", "Asia/Kolkata"]),
    st.sampled_from(["CHF", "JPY", "KWD"]),
)  # fmt: skip
def test_any_number_of_statements_adds_up_to_the_quote(
    offset, seconds, units, share, first, second, change, zone, currency
):
    window = Window(LONG.start + timedelta(seconds=offset), LONG.start + timedelta(seconds=offset + seconds))
    end = LONG.end + timedelta(days=60)
    edge = LONG.start + timedelta(seconds=change)
    segments = [Priced(Window(LONG.start, edge), 1, first), Priced(Window(edge, end), 2, second)]
    charges = charges_of(window, units, segments, zone, share)
    parts = [Segment(w, s.price_id, s.per_hour) for s in segments if (w := s.window.intersect(window))]
    quoted = cost(parts, units, currency, share)
    assert sum(months(charges, currency).values()) == quoted.amount == so_far(segments, window, units, share, currency)
    exact = sum(Fraction(c.quantity) * Fraction(c.unit_price) for c in charges) / 3024000
    smallest = Fraction(1, 10 ** {"CHF": 2, "JPY": 0, "KWD": 3}[currency])
    assert abs(Fraction(quoted.amount) - exact) <= smallest  # two groups, half a unit each
    assert sum(c.quantity for c in charges) == units * share * seconds
