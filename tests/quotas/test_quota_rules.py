"""What bookings take from limits. The amounts are those of the cases."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from app.kernel.money import SCALE, WHOLE
from app.kernel.window import Window
from app.pricing.rules import Segment
from app.quotas.rules import Piece, Scope, Standing, Taken, check, months_of, next_month, pieces, plain
from tests.quotas.reference import largest_overlap

ZURICH = ZoneInfo("Europe/Zurich")
DECEMBER = date(2026, 12, 1)
START = datetime(2026, 12, 3, 9, tzinfo=UTC)


def scope(max_units: int | None = None, max_hours: int | None = None, kind: str | None = None) -> Scope:
    rate, quantity = (None if n is None else n * m for n, m in ((max_units, WHOLE), (max_hours, SCALE)))
    return Scope(1, "project", kind, rate, quantity, "Plasma")


def asked(units: int, hours: int, share: int = WHOLE) -> tuple[Piece, ...]:
    window = Window(START, START + timedelta(hours=hours))
    return pieces([Segment(window, 1, Decimal("2"))], ZURICH, units, share)


def december(used: int, held: int) -> dict[date, Taken]:
    return {DECEMBER: Taken(used * SCALE, held * SCALE)}


def test_hours_used_and_held_are_told_apart_in_the_refusal():
    reasons, effects = check([Standing(scope(max_hours=1000), december(400, 500))], asked(8, 12))
    assert reasons == ()
    assert effects[0].as_json() == {
        "scope": "project Plasma",
        "what": "GPU-hours in December 2026",
        "before": "900",
        "after": "996",
        "limit": "1000",
    }
    reasons, _ = check([Standing(scope(max_hours=1000), december(400, 596))], asked(1, 5))
    assert [(r.code, r.limit, r.asked) for r in reasons] == [("quota_hours", "4 GPU-hours available", "5 GPU-hours")]
    assert "400 are used and 596 are held by bookings, so 4 available" in reasons[0].message


def test_an_extension_that_needs_more_than_is_left_is_refused_whole():
    reasons, _ = check([Standing(scope(max_hours=1000), december(400, 560))], asked(8, 6))
    assert [(r.limit, r.asked) for r in reasons] == [("40 GPU-hours available", "48 GPU-hours")]
    assert check([Standing(scope(max_hours=1000), december(400, 560))], asked(8, 5))[0] == ()


def test_a_lowered_limit_shows_as_over_committed():
    reasons, effects = check([Standing(scope(max_hours=800), december(400, 500))], asked(1, 1))
    assert [r.limit for r in reasons] == ["-100 GPU-hours available"]
    assert "over-committed" in reasons[0].message
    assert (effects[0].limit - effects[0].before) // SCALE == -100


def test_units_at_once_count_the_largest_overlap():
    reasons, effects = check([Standing(scope(max_units=96), peak=64 * WHOLE)], asked(96, 1))
    assert [(r.code, r.limit, r.asked) for r in reasons] == [("quota_units", "96 units", "96 units")]
    assert "Together with the 64 booked for that time it would be 160." in reasons[0].message
    assert reasons[0].fix == "At most 32 more fit in that time."
    assert (effects[0].what, effects[0].as_json()["after"]) == ("units at the same time", "160")
    assert check([Standing(scope(max_units=96), peak=64 * WHOLE)], asked(32, 1))[0] == ()


def test_slices_count_their_share():
    seven = asked(7, 1, share=120)
    assert check([Standing(scope(max_units=1, max_hours=1))], seven)[0] == ()
    reasons, _ = check([Standing(scope(max_units=1, max_hours=1))], asked(8, 1, share=120))
    assert [r.code for r in reasons] == ["quota_units", "quota_hours"]
    assert reasons[0].asked == "1.14 units"


def test_money_is_a_limit_with_its_effect_in_the_currency():
    budget = Scope(1, "user", None, None, None, "Robin K.", max_money=Decimal("1000"), currency="CHF")
    before = Standing(budget, money={DECEMBER: Taken(Decimal(400) * SCALE, Decimal("583.20") * SCALE)})
    reasons, effects = check([before], asked(2, 4))  # 8 unit-hours at 2.00
    assert reasons == ()
    assert effects[0].as_json() == {
        "scope": "user Robin K.",
        "what": "CHF in December 2026",
        "before": "983.20",
        "after": "999.20",
        "limit": "1000.00",
    }
    (reason,), _ = check([before], asked(3, 4))
    assert (reason.code, reason.limit, reason.asked) == ("quota_money", "16.80 CHF available", "24.00 CHF")
    assert "400.00 are used and 583.20 are held by bookings, so 16.80 available" in reason.message
    lowered = Standing(replace(budget, max_money=Decimal(500)), money=before.money)
    assert check([lowered], asked(1, 1))[0][0].limit == "-483.20 CHF available"
    free = pieces([Segment(Window(START, START + timedelta(hours=4)), 1, Decimal(0))], ZURICH, 2)
    assert check([lowered], free)[0] == ()


DAYS_AROUND = st.sampled_from([datetime(2026, 3, 28, 20, tzinfo=UTC), datetime(2026, 10, 24, 20, tzinfo=UTC),
                               datetime(2026, 10, 31, 20, tzinfo=UTC), datetime(2027, 3, 27, 20, tzinfo=UTC)])  # fmt: skip


@settings(deadline=None, max_examples=40)
@given(DAYS_AROUND, st.integers(0, 60 * 30), st.integers(1, 60 * 60), st.integers(0, 60 * 60), st.integers(1, 9))
def test_pieces_add_up_to_every_local_minute_by_itself(day, first, minutes, changes_at, units):
    """Brute force: each minute asked by itself which local month it lies in and what it costs, over days of 23 and 25 h."""
    start = day + timedelta(minutes=first)
    window = Window(start, start + timedelta(minutes=minutes))
    changed = start + timedelta(minutes=changes_at)
    segments = [Segment(w, n, Decimal(n + 1)) for n, w in enumerate(window.cut([changed]))]
    rate, hours, money = units * WHOLE, {}, {}
    for minute in range(minutes):
        at = start + timedelta(minutes=minute)
        local = at.astimezone(ZURICH)
        month = date(local.year, local.month, 1)
        price = next(s.per_hour for s in segments if s.window.contains(at))
        hours[month] = hours.get(month, 0) + 60 * rate
        money[month] = money.get(month, Decimal(0)) + 60 * rate * price
    scope = Scope(1, "tenant", None, None, 10**12, max_money=Decimal(10**9), currency="CHF")
    found = pieces(segments, ZURICH, units)
    _, effects = check([Standing(scope)], found)
    assert {e.month: e.after for e in effects if e.measure == "hours"} == hours
    assert {e.month: e.after for e in effects if e.measure == "money"} == money
    for piece in found:  # and no piece crosses a local midnight
        last = piece.window.end - timedelta(seconds=1)
        assert piece.window.start.astimezone(ZURICH).date() == piece.day == last.astimezone(ZURICH).date()


def test_every_limit_that_is_passed_is_a_reason_and_no_limit_is_none():
    both = [Standing(scope(max_units=1, max_hours=1)), Standing(scope(max_units=2)), Standing(scope())]
    assert [r.code for r in check(both, asked(8, 1))[0]] == ["quota_units", "quota_hours", "quota_units"]
    assert check([Standing(scope())], asked(8, 1)) == ((), ())


def test_the_days_around_the_clock_change_have_their_real_length():
    window = Window(datetime(2026, 10, 24, 12, tzinfo=UTC), datetime(2026, 10, 27, 12, tzinfo=UTC))
    found = pieces([Segment(window, 1, Decimal(1))], ZURICH, 1)
    assert [(p.day.day, p.window.seconds // 3600) for p in found] == [(24, 10), (25, 25), (26, 24), (27, 13)]


def test_a_booking_over_the_end_of_the_month_counts_in_both():
    window = Window(datetime(2026, 12, 31, 20, tzinfo=UTC), datetime(2027, 1, 1, 2, tzinfo=UTC))
    found = pieces([Segment(window, 1, Decimal(1))], ZURICH, 1)
    assert months_of(found) == (date(2026, 12, 1), date(2027, 1, 1))
    _, effects = check([Standing(scope(max_hours=100))], found)
    assert [(e.month.month, e.after // SCALE) for e in effects] == [(12, 3), (1, 3)]


def test_months_follow_each_other_over_the_year():
    assert next_month(date(2026, 12, 1)) == date(2027, 1, 1)
    assert next_month(date(2026, 1, 1)) == date(2026, 2, 1)


def test_numbers_are_plain():
    from fractions import Fraction

    assert [plain(Fraction(n)) for n in (96, 0, -100)] == ["96", "0", "-100"]
    assert [plain(Fraction(n, 3)) for n in (1, -2)] == ["0.33", "-0.67"]


SPANS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 30), st.integers(1, 9)), max_size=12)


@settings(deadline=None)
@given(SPANS, st.integers(0, 50), st.integers(1, 40))
def test_the_largest_overlap_is_that_of_the_fullest_second(spans, start, length):
    rows = [(START + timedelta(seconds=s), START + timedelta(seconds=s + n), rate) for s, n, rate in spans]
    window = Window(START + timedelta(seconds=start), START + timedelta(seconds=start + length))
    fullest = max(sum(rate for s, n, rate in spans if s <= second < s + n) for second in range(start, start + length))
    assert largest_overlap(rows, window) == fullest


@settings(deadline=None)
@given(st.integers(0, 10**7), st.integers(1, 10**6), st.integers(1, 64), st.sampled_from([120, 360, 840]))
def test_pieces_lie_in_one_day_each_and_keep_every_second(offset, seconds, units, share):
    window = Window(START + timedelta(seconds=offset), START + timedelta(seconds=offset + seconds))
    middle = window.start + timedelta(seconds=seconds // 2)
    segments = [Segment(w, n, Decimal(n)) for n, w in enumerate(window.cut([middle]))]
    found = pieces(segments, ZURICH, units, share)
    assert sum(p.quantity for p in found) == units * share * seconds
    for piece in found:
        last = piece.window.end - timedelta(seconds=1)
        assert piece.window.start.astimezone(ZURICH).date() == piece.day == last.astimezone(ZURICH).date()
        assert piece.window.seconds <= 26 * 3600
