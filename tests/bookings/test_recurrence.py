"""Rules of series as instants: local wall time stays, clocks change, nothing is moved silently."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.bookings.recurrence import MOST, WrongRule, before, occurrences, overlap
from app.kernel.window import instants_of

LONDON, BERLIN, KOLKATA = ZoneInfo("Europe/London"), ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Kolkata")
FAR = datetime(2040, 1, 1, tzinfo=UTC)


def local(text: str) -> datetime:
    return datetime.fromisoformat(text)


def starts(found) -> list[str]:
    return [f"{o.window.start:%m-%d %H:%M}" for o in found]


def test_case_7_weekly_in_london_over_the_change_stays_at_seven_in_the_evening() -> None:
    found = occurrences("FREQ=WEEKLY;COUNT=4", local("2027-10-19T19:00"), local("2027-10-19T21:00"), LONDON, FAR)
    assert starts(found) == ["10-19 18:00", "10-26 18:00", "11-02 19:00", "11-09 19:00"]
    assert {o.window.start.astimezone(LONDON).strftime("%a %H:%M") for o in found} == {"Tue 19:00"}
    assert {o.window.seconds for o in found} == {7200}


def test_case_8_daily_over_a_night_in_which_clocks_change_has_five_or_seven_hours() -> None:
    spring = occurrences("FREQ=DAILY;COUNT=3", local("2027-03-26T23:00"), local("2027-03-27T05:00"), BERLIN, FAR)
    assert [o.window.seconds // 3600 for o in spring] == [6, 5, 6]
    autumn = occurrences("FREQ=DAILY;COUNT=3", local("2027-10-29T23:00"), local("2027-10-30T05:00"), BERLIN, FAR)
    assert [o.window.seconds // 3600 for o in autumn] == [6, 7, 6]
    for one in (*spring, *autumn):
        assert one.window.start.astimezone(BERLIN).replace(tzinfo=None) == one.local_start
        assert one.window.end.astimezone(BERLIN).replace(tzinfo=None) == one.local_end


def test_case_6_a_local_time_that_does_not_exist_is_a_conflict_and_is_never_moved() -> None:
    found = occurrences("FREQ=DAILY;COUNT=3", local("2027-03-27T02:30"), local("2027-03-27T04:00"), BERLIN, FAR)
    assert [o.missing for o in found] == [None, "start", None]
    assert found[1].window is None
    ends = occurrences("FREQ=DAILY;COUNT=3", local("2027-03-27T01:00"), local("2027-03-27T02:30"), BERLIN, FAR)
    assert [o.missing for o in ends] == [None, "end", None]


def test_case_5_a_local_start_that_exists_twice_takes_the_first_and_shows_both() -> None:
    found = occurrences("FREQ=DAILY;COUNT=2", local("2027-10-30T02:30"), local("2027-10-30T04:00"), BERLIN, FAR)
    assert found[0].twice == ()
    assert [f"{t:%H:%M}" for t in found[1].twice] == ["00:30", "01:30"]
    assert found[1].window.start == found[1].twice[0]
    assert found[1].window.seconds == 9000  # 02:30 (the first) to 04:00: two and a half hours


def test_case_9_half_hour_zones() -> None:
    found = occurrences("FREQ=DAILY;COUNT=1", local("2027-05-01T09:00"), local("2027-05-01T10:00"), KOLKATA, FAR)
    assert starts(found) == ["05-01 03:30"]


def test_bug_report_13_weekly_nine_to_five_in_berlin_over_both_changes_is_eight_hours_long() -> None:
    found = occurrences("FREQ=WEEKLY;COUNT=40", local("2026-03-23T09:00"), local("2026-03-23T17:00"), BERLIN, FAR)
    assert {o.window.seconds for o in found} == {8 * 3600}
    assert {o.window.start.hour for o in found} == {7, 8}
    days = occurrences("FREQ=DAILY;COUNT=3", local("2026-03-28T00:00"), local("2026-03-29T00:00"), BERLIN, FAR)
    assert [o.window.seconds // 3600 for o in days] == [24, 23, 24]


def test_case_15_a_weekly_series_of_eight_days_overlaps_itself() -> None:
    found = occurrences("FREQ=WEEKLY;COUNT=3", local("2027-05-03T09:00"), local("2027-05-11T09:00"), BERLIN, FAR)
    assert overlap(found) == (found[0], found[1])
    touching = occurrences("FREQ=WEEKLY;COUNT=3", local("2027-05-03T09:00"), local("2027-05-10T09:00"), BERLIN, FAR)
    assert overlap(touching) is None


def test_a_rule_without_an_end_stops_at_the_horizon_and_one_with_an_end_is_shown_to_it() -> None:
    horizon = datetime(2027, 5, 20, 12, tzinfo=UTC)
    first, last = local("2027-05-03T09:00"), local("2027-05-03T10:00")
    assert len(occurrences("FREQ=WEEKLY", first, last, BERLIN, horizon)) == 3
    assert len(occurrences("FREQ=WEEKLY;COUNT=5", first, last, BERLIN, horizon)) == 5
    assert len(occurrences("FREQ=WEEKLY;UNTIL=20270531", first, last, BERLIN, horizon)) == 5
    assert len(occurrences("FREQ=WEEKLY;UNTIL=20270531T070000Z", first, last, BERLIN, horizon)) == 5
    assert len(occurrences("FREQ=WEEKLY;UNTIL=20270531T065959Z", first, last, BERLIN, horizon)) == 4


def test_what_is_left_of_a_rule_that_is_split_ends_before() -> None:
    first, last = local("2027-05-03T09:00"), local("2027-05-03T10:00")
    whole = occurrences("FREQ=WEEKLY;COUNT=6", first, last, BERLIN, FAR)
    left = occurrences(before("FREQ=WEEKLY;COUNT=6", whole[3].local_start), first, last, BERLIN, FAR)
    assert left == whole[:3]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("", "written as in RFC 5545"),
        ("weekly", "written as in RFC 5545"),
        ("FREQ=HOURLY", "FREQ is one of"),
        ("FREQ=WEEKLY;FREQ=DAILY", "twice"),
        ("FREQ=WEEKLY;COUNT=0", "COUNT is a whole number"),
        ("FREQ=WEEKLY;COUNT=3;UNTIL=20270101", "not both"),
        ("FREQ=WEEKLY;UNTIL=20200101", "before the first start"),
        ("FREQ=WEEKLY;UNTIL=tomorrow", "UNTIL is a day"),
        ("FREQ=WEEKLY;BYDAY=XX", "cannot be read"),
        ("FREQ=WEEKLY;BYEASTER=1", "BYEASTER is not understood"),
        ("FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=31;COUNT=2", "no day at all"),
        (f"FREQ=DAILY;COUNT={MOST + 1}", "at most"),
        ("RRULE:FREQ=DAILY\nEXDATE:20270101", "written as in RFC 5545"),
    ],
)
def test_a_rule_that_cannot_be_kept_says_why(rule: str, said: str) -> None:
    with pytest.raises(WrongRule, match=said):
        occurrences(rule, local("2027-05-03T09:00"), local("2027-05-03T10:00"), BERLIN, FAR)


@given(
    st.datetimes(local("2026-01-01T00:00"), local("2027-12-01T00:00")).map(
        lambda t: t.replace(second=0, microsecond=0)
    ),
    st.integers(15, 60 * 40),
    st.sampled_from(["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "UTC"]),
    st.sampled_from(["FREQ=DAILY;COUNT=20", "FREQ=WEEKLY;COUNT=9;BYDAY=MO,FR", "FREQ=MONTHLY;COUNT=5"]),
)
def test_every_occurrence_shows_the_rules_local_times_or_is_missing(start, minutes, name, rule) -> None:
    zone = ZoneInfo(name)
    for one in occurrences(rule, start, start + timedelta(minutes=minutes), zone, FAR):
        if one.window is None:
            edge = one.local_start if one.missing == "start" else one.local_end
            real = [
                t
                for t in instants_of(edge, zone)
                if one.missing == "start" or t > instants_of(one.local_start, zone)[0]
            ]
            assert not real
        else:
            assert one.window.start.astimezone(zone).replace(tzinfo=None) == one.local_start
            assert one.window.end.astimezone(zone).replace(tzinfo=None) == one.local_end
