"""How amounts, lengths and times are written, and where bars lie."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest

from app.web import scale, words
from app.web.views.booking import Bar, TimelineRow
from app.web.views.parts import Meter

ZURICH = "Europe/Zurich"
NOW = datetime(2026, 11, 30, 12, 42, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("value", "digits", "said"),
    [
        (Decimal("1234.5"), 2, "1,234.50"),
        (Decimal("-79.2"), 2, "−79.20"),
        (Fraction(1, 8), 2, "0.13"),
        (Fraction(-1, 8), 2, "−0.13"),
        (Decimal("-0.001"), 2, "0.00"),
        (999_999_999, 0, "999,999,999"),
        (0.05, 1, "0.1"),
    ],
)
def test_numbers_are_rounded_half_away_from_zero(value: Decimal, digits: int, said: str) -> None:
    assert words.number(value, digits) == said


def test_money_has_the_currencys_own_decimals() -> None:
    assert words.money(Decimal("1234.5")) == "CHF 1,234.50"
    assert words.money(Decimal("1234"), "JPY") == "JPY 1,234"
    assert words.money(Decimal("1.5"), "KWD") == "KWD 1.500"


def test_a_price_shows_all_its_decimals_and_at_least_two() -> None:
    assert [words.price(Decimal(p)) for p in ("2.4", "0.0125", "100", "2.400000")] == [
        "2.40",
        "0.0125",
        "100.00",
        "2.40",
    ]


@pytest.mark.parametrize(
    ("span", "said"),
    [
        (6 * HOUR, "6 h"),
        (48 * HOUR, "48 h"),
        (2.5 * HOUR, "2 h 30 min"),
        (timedelta(seconds=41), "41 s"),
        (timedelta(milliseconds=38), "38 ms"),
        (timedelta(seconds=2, milliseconds=900), "2.9 s"),
        (timedelta(0), "0 s"),
    ],
)
def test_lengths(span: timedelta, said: str) -> None:
    assert words.length(span) == said


@pytest.mark.parametrize(
    ("span", "said"),
    [
        (100 * HOUR, "4 d 4 h"),
        (48 * HOUR, "2 d"),
        (timedelta(hours=18, minutes=18, seconds=59), "18 h 18 min"),
        (25 * HOUR, "25 h"),
        (timedelta(seconds=59), "59 s"),
        (-HOUR, "0 s"),
    ],
)
def test_countdowns_are_whole_and_never_below_zero(span: timedelta, said: str) -> None:
    assert words.countdown(span) == said


def test_today_is_said_only_when_it_is() -> None:
    assert words.moment(NOW + 3 * HOUR, ZURICH, NOW) == "today, 16:42"
    assert words.moment(NOW + 11 * HOUR, ZURICH, NOW) == "Tue 1 Dec, 00:42"
    assert words.moment(datetime(2027, 1, 1, tzinfo=UTC), ZURICH, NOW) == "Fri 1 Jan 2027, 01:00"


def test_windows() -> None:
    nine = datetime(2026, 12, 1, 8, tzinfo=UTC)
    assert words.span(nine, nine + 6 * HOUR, ZURICH, NOW) == "Tue 1 Dec, 09:00–15:00 (6 h)"
    assert words.span(nine, nine + 48 * HOUR, ZURICH, NOW) == "Tue 1 Dec, 09:00 – Thu 3 Dec, 09:00 (48 h)"


def test_a_local_time_that_exists_twice_names_its_zone() -> None:
    first = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert words.clock(first, ZURICH) == "02:30 CEST"
    assert words.clock(first + HOUR, ZURICH) == "02:30 CET"
    assert words.clock(first + 2 * HOUR, ZURICH) == "03:30"


def test_ticks_are_local_midnights_also_when_clocks_change() -> None:
    left = datetime(2026, 10, 24, 22, tzinfo=UTC)
    marks = [t for t in scale.ticks(left, left + timedelta(hours=49), ZURICH) if t.major]
    assert [(t.label, t.x) for t in marks] == [("Sun 25 Oct", "0%"), ("Mon 26 Oct", "51.02%")]


def test_places_are_cut_at_the_ends_of_the_axis() -> None:
    left, right = NOW, NOW + 10 * HOUR
    at = scale.place(NOW - HOUR, NOW + HOUR, left, right)
    assert (at.x, at.width, at.visible) == ("0%", "10%", True)
    assert not scale.place(NOW - 2 * HOUR, NOW - HOUR, left, right).visible
    assert not scale.place(right, right + HOUR, left, right).visible


@pytest.mark.parametrize(("free", "step"), [(0, 0), (1, 1), (15, 1), (16, 2), (63, 4), (64, 5)])
def test_heat_is_full_only_when_all_are_free(free: int, step: int) -> None:
    assert scale.heat_step(free, 64) == step


def test_a_meter_over_its_limit_is_scaled_to_what_was_asked() -> None:
    bar = scale.meter_bar(Meter("x", "units", 0, 64, 96, 96))
    assert (bar.over, bar.limit_mark, bar.held, bar.this, bar.available) == (64, "60%", "40%", "60%", -64)


def test_a_meter_without_limit_is_full_and_promises_nothing() -> None:
    bar = scale.meter_bar(Meter("x", "money", Decimal("10")))
    assert (bar.used, bar.available, bar.over) == ("100%", None, 0)


def test_labels_are_cut_at_words_and_part_of_the_name() -> None:
    assert scale.fit("Tokamak surrogate, run 7", 50) == "Tokamak surrogate, run 7"
    assert scale.fit("Tokamak surrogate, run 7", 13) == "Tokamak surrogate"
    assert scale.fit("Tokamak surrogate, run 7", 3) == ""


def test_a_row_has_lanes_only_for_ones_own_parts_of_a_node() -> None:
    def row(kind: str, count: int) -> TimelineRow:
        return TimelineRow("n", 8, (Bar(kind, NOW, NOW + HOUR, 0, count),))  # type: ignore[arg-type]

    assert scale.whole(row("mine", 8))
    assert not scale.whole(row("mine", 2))
    assert scale.whole(row("busy", 2))


def test_days() -> None:
    assert words.day(date(2026, 12, 1), 2026) == "Tue 1 Dec"
    assert words.full_day(date(2026, 11, 6)) == "6 Nov 2026"
    assert words.month(date(2026, 11, 1)) == "November 2026"
    assert words.count(1, "booking") == "1 booking"
    assert words.count(1200, "booking") == "1,200 bookings"
