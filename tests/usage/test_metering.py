"""Metering on the real database: once, from events, whoever meters and how often."""

from __future__ import annotations

import threading
from datetime import timedelta
from itertools import pairwise

import pytest

from app.kernel.window import Window
from app.usage import actions, queries, rules
from app.usage.rules import Interval
from tests.billing.world import NOW, World, hours

HOUR = 3600 * 840


def meter(world: World, booking, now):
    with world.work() as work:
        return actions.meter(work, booking, now)


def intervals(world: World, booking):
    return world.rows(
        """SELECT id, units::text, lower(during), upper(during), quantity FROM intervals
            WHERE booking_id = %s ORDER BY during""",
        [booking],
    )


def conflicts(world: World):
    return world.rows("SELECT booking_id, lower(during), evidence FROM interval_conflicts")


def test_reserved_time_runs_from_provision_to_release_to_the_second(world):
    world.add_node()
    late = NOW + timedelta(seconds=90)
    booking = world.add_booking(NOW, hours(4), units=8, provided_at=late)
    assert meter(world, booking, hours(1)).new == ()  # the day is not over, nor the booking
    world.set_booking(booking, released_at=hours(1), state="ENDING")
    meter(world, booking, hours(1.5))
    assert [row[1:] for row in intervals(world, booking)] == [("{[0,512)}", late, hours(1), 8 * 840 * 3510)]


def test_a_booking_that_was_never_provided_is_not_metered(world):
    world.add_node()
    booking = world.add_booking(NOW, hours(4))
    assert meter(world, booking, hours(9)).new == ()
    assert intervals(world, booking) == []


def test_pieces_end_at_midnights_and_the_cursor_moves_with_them(world):
    world.add_node()
    booking = world.add_booking(NOW, hours(48), provided_at=NOW)
    assert len(meter(world, booking, hours(20)).new) == 1
    assert world.rows("SELECT metered_until FROM bookings") == [(hours(15),)]
    assert world.rows("SELECT next_at FROM metering") == [(hours(39),)]
    meter(world, booking, hours(48))
    assert [row[4] // HOUR for row in intervals(world, booking)] == [15, 24, 9]


def test_what_is_to_be_metered_is_found_without_naming_a_tenant(world):
    world.add_node()
    booking = world.add_booking(NOW, hours(4), state="STARTING")
    with world.db.work() as work:
        assert queries.due_meterings(work, hours(9)) == []
    world.set_booking(booking, provided_at=NOW, state="ACTIVE")
    with world.db.work() as work:
        assert queries.due_meterings(work, NOW) == [(world.tenant, booking)]
    meter(world, booking, hours(1))
    with world.db.work() as work:
        assert queries.due_meterings(work, hours(3)) == []
        assert queries.due_meterings(work, hours(4)) == [(world.tenant, booking)]
    world.set_booking(booking, released_at=hours(2), state="ENDING")
    with world.db.work() as work:
        assert queries.due_meterings(work, hours(2)) == [(world.tenant, booking)]


def test_a_worker_that_dies_before_saving_its_cursor_costs_nothing(world):
    world.add_node()
    price, change = world.price, [hours(n) for n in range(25)]
    segments = [(a, b, price, "2.00") for a, b in pairwise(change)]
    booking = world.add_booking(NOW, hours(24), provided_at=NOW, prices=segments)
    with world.work() as work:
        actions.meter(work, booking, hours(13))
    world.set_booking(booking, metered_until=hours(12))  # as if hour 13 was written and the cursor was not
    meter(world, booking, hours(24))
    assert len(intervals(world, booking)) == 24
    world.set_booking(booking, metered_until=None)
    again = meter(world, booking, hours(24))
    assert (len(again.new), len(again.repeated), again.conflicting) == (0, 24, ())
    assert sum(row[4] for row in intervals(world, booking)) == 24 * HOUR


def test_intervals_dropped_and_metered_again_are_the_same_rows(world):
    world.add_node()
    booking = world.add_booking(NOW, hours(40), units=2, provided_at=NOW)
    meter(world, booking, hours(20))
    world.set_booking(booking, released_at=hours(30), state="ENDING")
    meter(world, booking, hours(31))
    before = intervals(world, booking)
    world.owner.execute("DELETE FROM intervals")
    world.set_booking(booking, metered_until=None, state="ENDED", outcome="released")
    world.owner.execute("UPDATE holds SET live = false, during = tstzrange(lower(during), %s)", [hours(30.1)])
    meter(world, booking, hours(99))
    assert intervals(world, booking) == before
    assert len(before) == 2


def test_the_same_time_reported_by_two_meters_is_one_row(world):
    world.add_node()
    booking = world.add_booking(NOW, hours(1), provided_at=NOW)
    meter(world, booking, hours(1))
    (row,) = intervals(world, booking)
    window = Window(NOW, hours(1))
    same = Interval(rules.interval_id(booking, "{[0,64)}", window), booking, "{[0,64)}", window, HOUR)
    with world.work() as work:
        written = actions.record_intervals(work, [same], NOW, {"source": "slurm"})
    assert written.repeated == (row[0],)
    assert len(intervals(world, booking)) == 1
    assert conflicts(world) == []


@pytest.mark.parametrize(("units", "start", "end"), [("{[0,128)}", 0, 1), ("{[0,64)}", 0, 2), ("{[0,64)}", 0.5, 1)])
def test_a_report_that_differs_is_a_conflict_and_never_a_sum(world, units, start, end):
    world.add_node()
    booking = world.add_booking(NOW, hours(4), provided_at=NOW, released_at=hours(1), state="ENDING")
    meter(world, booking, hours(1))
    before, window = intervals(world, booking), Window(hours(start), hours(end))
    other = Interval(rules.interval_id(booking, units, window), booking, units, window, 2 * HOUR)
    for _ in range(2):
        with world.work() as work:
            assert actions.record_intervals(work, [other], NOW, {"source": "slurm"}).conflicting == (other.id,)
    assert intervals(world, booking) == before
    assert [(c[0], c[2]["source"]) for c in conflicts(world)] == [(booking, "slurm")]
    assert world.rows("SELECT id FROM interval_conflicts WHERE settled_at IS NULL") == [(other.id,)]


def test_another_tenants_claim_on_metered_units_is_a_conflict_too(world):
    world.add_node()
    mine = world.add_booking(NOW, hours(1), provided_at=NOW)
    meter(world, mine, hours(1))
    tenant, project = world.add_tenant("bio", "Bio Lab")
    theirs = world.add_booking(NOW, hours(1), first=1, provided_at=NOW, tenant=tenant, project=project)
    window = Window(NOW, hours(1))
    claim = Interval(rules.interval_id(theirs, "{[0,64)}", window), theirs, "{[0,64)}", window, HOUR)
    with world.work(tenant) as work:
        assert actions.record_intervals(work, [claim], NOW, {"source": "slurm"}).conflicting == (claim.id,)
    assert len(intervals(world, mine)) == 1
    assert intervals(world, theirs) == []


def test_eight_workers_at_once_write_each_interval_once(world):
    world.add_node()
    booking = world.add_booking(NOW, hours(72), units=8, provided_at=NOW)
    gate, errors = threading.Barrier(8), []

    def one() -> None:
        gate.wait()
        try:
            meter(world, booking, hours(72))
        except Exception as error:  # told below, in the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=one) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert errors == []
    assert [row[4] // HOUR for row in intervals(world, booking)] == [8 * n for n in (15, 24, 24, 9)]
    assert conflicts(world) == []


def test_slices_are_metered_by_their_share(world):
    world.add_node(gpus=1, slices=7)
    booking = world.add_booking(NOW, hours(5), units=3, share840=120, provided_at=NOW)
    meter(world, booking, hours(5))
    assert [row[4] for row in intervals(world, booking)] == [5 * 3600 * 360]
