"""Price schedules and costs. Amounts are those of the cases; the properties use fractions and no code of the app."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from app.kernel.window import Window
from app.pricing.rules import Price, Segment, cost, hours_in_json, schedule, wrong_prices

DAY = datetime(2026, 3, 2, tzinfo=UTC)
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


def at(hour: int, minute: int = 0) -> datetime:
    return DAY + timedelta(hours=hour, minutes=minute)


def price(id: int, per_hour: str, effective: datetime, published: datetime = LONG_AGO, kind: str = "h100") -> Price:
    return Price(id, kind, Decimal(per_hour), effective, published)


TWO = [price(1, "2.00", LONG_AGO), price(2, "2.50", at(13, 30))]


def test_a_price_that_changes_within_the_window_makes_two_parts():
    parts = cost(schedule(TWO, "h100", Window(at(10), at(16)), at(9)), 8, "CHF")
    assert [(p.unit_price, p.amount, p.length) for p in parts.parts] == [
        (Decimal("2.00"), Decimal("56.00"), timedelta(hours=3.5)),
        (Decimal("2.50"), Decimal("50.00"), timedelta(hours=2.5)),
    ]
    assert parts.amount == Decimal("106.00")


def test_a_price_published_after_confirmation_does_not_count():
    later = [TWO[0], price(2, "2.50", at(13, 30), published=at(9, 1))]
    locked = schedule(later, "h100", Window(at(10), at(16)), at(9))
    assert [s.price_id for s in locked] == [1]
    assert cost(locked, 8, "CHF").amount == Decimal("96.00")
    assert [s.price_id for s in schedule(later, "h100", Window(at(10), at(16)), at(9, 1))] == [1, 2]


def test_of_two_versions_for_one_instant_the_one_published_last_counts():
    prices = [price(1, "2", LONG_AGO, at(1)), price(2, "3", LONG_AGO, at(2)), price(3, "4", LONG_AGO, at(0))]
    assert [s.price_id for s in schedule(prices, "h100", Window(at(10), at(11)), at(9))] == [2]


def test_a_version_published_late_for_an_earlier_instant_does_not_end_a_later_one():
    prices = [price(1, "2", LONG_AGO), price(2, "3", at(12), at(0)), price(3, "9", at(11), at(1))]
    found = schedule(prices, "h100", Window(at(10), at(13)), at(9))
    assert [(s.price_id, s.window.start) for s in found] == [(1, at(10)), (3, at(11)), (2, at(12))]


def test_a_kind_without_a_price_in_part_of_the_window_has_no_schedule():
    assert schedule(TWO, "h200", Window(at(10), at(16)), at(9)) is None
    assert schedule([TWO[1]], "h100", Window(at(13), at(14)), at(9)) is None
    assert schedule([TWO[1]], "h100", Window(at(13, 30), at(14)), at(9)) is not None


def test_equal_prices_of_two_versions_are_one_part():
    prices = [price(1, "2.00", LONG_AGO), price(2, "2.0", at(12))]
    parts = cost(schedule(prices, "h100", Window(at(10), at(14)), at(9)), 1, "CHF").parts
    assert [(p.amount, p.length) for p in parts] == [(Decimal("8.00"), timedelta(hours=4))]


def test_slices_cost_their_share_and_seven_of_them_the_whole_card():
    hour, five = (cost([Segment(Window(at(0), at(h)), 1, Decimal("2.80"))], 7, "USD", 120) for h in (1, 5))
    assert hour.amount == Decimal("2.80")
    assert five.amount == Decimal("14.00")
    assert cost([Segment(Window(at(0), at(5)), 1, Decimal("2.80"))], 1, "USD", 360).amount == Decimal("6.00")
    assert cost([Segment(Window(at(0), at(1)), 1, Decimal("2.80"))], 1, "USD", 120).amount == Decimal("0.40")


def test_amounts_have_the_minor_unit_of_their_currency():
    yen = cost([Segment(Window(at(0), at(12, 30)), 1, Decimal("137.3"))], 1, "JPY")
    dinar = cost([Segment(Window(at(0), at(12, 30)), 1, Decimal("0.4567"))], 1, "KWD")
    assert (str(yen.amount), str(dinar.amount)) == ("1716", "5.709")
    assert str(cost([], 1, "CHF").amount) == "0.00"


def test_hours_are_exact_to_a_millionth():
    assert hours_in_json(3024000) == "1.00"
    assert hours_in_json(3024000 // 6) == "0.166667"
    assert hours_in_json(-3024000 * 3 // 2) == "-1.50"


def test_wrong_prices_are_all_named():
    prices = {"h100": Decimal("1.1234567"), "h200": Decimal("-1"), "x": Decimal("1"), "a100": Decimal("NaN")}
    found = {(r.code, r.field) for r in wrong_prices(prices, ["h100", "h200", "a100"])}
    assert found == {
        ("price_too_fine", "price.h100"),
        ("price_out_of_range", "price.h200"),
        ("unknown_kind", "price.x"),
        ("price_out_of_range", "price.a100"),
    }
    assert [r.code for r in wrong_prices({}, [])] == ["prices_missing"]
    assert wrong_prices({"h100": Decimal("0")}, ["h100"]) == ()


PRICES = st.decimals(0, 100, places=6, allow_nan=False, allow_infinity=False)


@settings(deadline=None)
@given(
    st.lists(st.tuples(PRICES, st.integers(-50, 50), st.integers(-50, 50)), min_size=1, max_size=6),
    st.integers(0, 40),
    st.integers(1, 40),
    st.integers(-50, 60),
)
def test_at_every_second_the_schedule_has_the_price_in_force(versions, start, length, published_at):
    zero = datetime(2026, 3, 29, tzinfo=UTC)
    prices = [
        Price(n, "k", p, zero + timedelta(seconds=e), zero + timedelta(seconds=pub))
        for n, (p, e, pub) in enumerate(versions)
    ]
    window = Window(zero + timedelta(seconds=start), zero + timedelta(seconds=start + length))
    found = schedule(prices, "k", window, zero + timedelta(seconds=published_at))
    expected = []
    for second in range(start, start + length):
        known = [(e, pub, n) for n, (_, e, pub) in enumerate(versions) if pub <= published_at and e <= second]
        expected.append(max(known)[2] if known else None)
    if None in expected:
        assert found is None
        return
    assert [s.price_id for s in found for _ in range(s.window.seconds)] == expected


@settings(deadline=None)
@given(
    st.lists(st.tuples(PRICES, st.integers(1, 10**5)), min_size=1, max_size=5), st.integers(1, 999), st.integers(1, 840)
)
def test_a_cost_is_the_sum_of_groups_each_rounded_once_half_away_from_zero(stretches, units, share):
    edge, segments, money = DAY, [], {}
    for n, (per_hour, seconds) in enumerate(stretches):
        segments.append(Segment(Window(edge, edge + timedelta(seconds=seconds)), n, per_hour))
        edge += timedelta(seconds=seconds)
        hours = Fraction(units * seconds * share, 3600 * 840)
        money[per_hour] = money.get(per_hour, 0) + hours * Fraction(per_hour)
    found = cost(segments, units, "CHF", share)
    many = Context(prec=80)
    expected = [
        many.divide(Decimal(m.numerator), Decimal(m.denominator)).quantize(Decimal("0.01"), ROUND_HALF_UP, many)
        for m in money.values()
    ]
    assert [p.amount for p in found.parts] == expected
    assert found.amount == sum(expected)
    assert sum(p.quantity for p in found.parts) == units * share * sum(s for _, s in stretches)
