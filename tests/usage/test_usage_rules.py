"""Reserved time and its split. The amounts are those of the cases; the properties count second by second."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from app.kernel.window import Window
from app.usage.rules import (
    Reading,
    Split,
    charge_window,
    covered,
    ended,
    energy_wh,
    hours_of,
    interval_id,
    next_end,
    reserved,
    split,
)

ZURICH = ZoneInfo("Europe/Zurich")
START = datetime(2026, 3, 2, 10, tzinfo=UTC)
HOUR = 3600 * 840
GPUS = {("n1", gpu): 840 for gpu in range(4)}


def at(hours: float) -> datetime:
    return START + timedelta(seconds=round(hours * 3600))


def during(start: float, end: float) -> Window:
    return Window(at(start), at(end))


def busy(gpu: int, start: float, end: float, in_use: bool | None = True) -> Reading:
    return Reading(("n1", gpu), during(start, end), in_use)


def test_charged_time_is_from_provision_to_the_earlier_of_end_and_release():
    assert charge_window(at(0), at(4), None) == during(0, 4)
    assert charge_window(at(0.025), at(4), at(1)) == during(0.025, 1)
    assert charge_window(at(0), at(4), at(5)) == during(0, 4)
    assert charge_window(None, at(4), None) is None
    assert charge_window(at(2), at(4), at(1)) is None
    assert charge_window(at(1), at(4), at(1)) is None


def test_pieces_are_cut_at_local_midnights_and_where_the_price_changes():
    window = Window(datetime(2026, 1, 30, 12, tzinfo=UTC), datetime(2026, 2, 1, 6, tzinfo=UTC))
    pieces = reserved(window, ZURICH, [datetime(2026, 1, 31, 7, tzinfo=UTC)])
    assert [p.start for p in pieces[1:]] == [
        datetime(2026, 1, 30, 23, tzinfo=UTC),
        datetime(2026, 1, 31, 7, tzinfo=UTC),
        datetime(2026, 1, 31, 23, tzinfo=UTC),
    ]


def test_only_pieces_that_are_over_and_not_behind_the_cursor_are_metered():
    pieces = (during(0, 1), during(1, 2), during(2, 3))
    assert ended(pieces, at(2)) == pieces[:2]
    assert ended(pieces, at(2.9), since=at(1)) == pieces[1:2]
    assert ended(pieces, at(3), since=at(3)) == ()
    assert (next_end(pieces, at(2)), next_end(pieces, at(3))) == (at(3), None)


def test_an_interval_has_its_id_from_what_it_says():
    booking = UUID(int=1)
    one = interval_id(booking, "{[0,64)}", during(0, 1))
    assert one == interval_id(booking, "{[0,64)}", during(0, 1))
    others = {
        interval_id(UUID(int=2), "{[0,64)}", during(0, 1)),
        interval_id(booking, "{[0,128)}", during(0, 1)),
        interval_id(booking, "{[0,64)}", during(0, 2)),
    }
    assert len(others | {one}) == 4


def test_time_held_by_workloads_is_used_and_the_rest_unused():
    # 4 units x 10 h, workloads held them for 26 unit-hours
    readings = [busy(0, 0, 10), busy(1, 0, 10), busy(2, 0, 6), busy(2, 6, 10, False), busy(3, 0, 10, False)]
    assert split(readings, during(0, 10), GPUS, 40 * HOUR) == Split(26 * HOUR, 14 * HOUR, 0)


def test_a_gap_in_the_measurements_is_unknown_not_idle():
    readings = [r for gpu in range(4) for r in (busy(gpu, 0, 4), busy(gpu, 7, 10, False))]
    assert split(readings, during(0, 10), GPUS, 40 * HOUR) == Split(16 * HOUR, 12 * HOUR, 12 * HOUR)
    assert split([busy(0, 0, 10, None)], during(0, 10), GPUS, 40 * HOUR) == Split(0, 0, 40 * HOUR)


def test_a_skewed_clock_never_makes_more_used_than_reserved():
    found = split([busy(0, -1, 11)], during(0, 10), {("n1", 0): 840}, 10 * HOUR)
    assert found == Split(10 * HOUR, 0, 0, excess=2 * HOUR)


def test_measurements_of_units_that_are_not_booked_count_nowhere():
    assert split([busy(7, 0, 10)], during(0, 10), {("n1", 0): 840}, 10 * HOUR) == Split(0, 0, 10 * HOUR)


def test_a_suspended_workload_leaves_reserved_time_unused():
    # Slurm: 2 GPUs 10:00-14:00, suspended 11:00-12:00
    readings = [r for g in (0, 1) for r in (busy(g, 0, 1), busy(g, 1, 2, False), busy(g, 2, 4))]
    two = {("n1", 0): 840, ("n1", 1): 840}
    assert split(readings, during(0, 4), two, 8 * HOUR) == Split(6 * HOUR, 2 * HOUR, 0)


def test_use_is_kept_by_hour_and_no_row_lies_in_two_local_days():
    kolkata = ZoneInfo("Asia/Kolkata")  # midnight is half past an hour of UTC
    window = Window(datetime(2026, 1, 31, 17, 20, tzinfo=UTC), datetime(2026, 1, 31, 19, 0, tzinfo=UTC))
    rows = hours_of(window, kolkata)
    assert [r.start.strftime("%H:%M") for r in rows] == ["17:20", "18:00", "18:30"]
    assert rows[-1].end == window.end


def test_energy_is_measured_or_not_there():
    assert energy_wh([(3600, 650.0), (1800, 100.0), (60, None)]) == 700
    assert energy_wh([(60, None)]) is None


READINGS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(-10, 60), st.integers(1, 30), st.sampled_from([True, False, None])),
    max_size=15,
)


@settings(deadline=None)
@given(READINGS, st.integers(0, 20), st.integers(1, 40))
def test_used_unused_and_unknown_add_up_to_reserved_whatever_is_measured(readings, start, length):
    def second(n: int) -> datetime:
        return START + timedelta(seconds=n)

    window = Window(second(start), second(start + length))
    weights = {("n1", 0): 840, ("n1", 1): 360}
    found = split(
        [Reading(("n1", g), Window(second(s), second(s + n)), used) for g, s, n, used in readings],
        window,
        weights,
        1200 * length,
    )
    used = unused = 0
    for (_, gpu), weight in weights.items():
        for now in range(start, start + length):
            seen = {u for g, s, n, u in readings if g == gpu and s <= now < s + n}
            used += weight if True in seen else 0
            unused += weight if False in seen and True not in seen else 0
    assert (found.used, found.unused) == (used, unused)
    assert found.used + found.unused + found.unknown == 1200 * length
    assert min(found.used, found.unused, found.unknown) >= 0


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=10))
def test_a_union_counts_each_second_once(spans):
    windows = [Window(START + timedelta(seconds=s), START + timedelta(seconds=s + n)) for s, n in spans]
    assert covered(windows) == len({second for s, n in spans for second in range(s, s + n)})


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 10**6))
def test_hours_cover_the_window_without_gap_or_overlap(offset, seconds):
    window = Window(START + timedelta(seconds=offset), START + timedelta(seconds=offset + seconds))
    rows = hours_of(window, ZURICH)
    assert (rows[0].start, rows[-1].end) == (window.start, window.end)
    assert all(a.end == b.start for a, b in itertools.pairwise(rows))
    assert all(r.seconds <= 3600 for r in rows)
