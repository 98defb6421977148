"""What a cluster does to a booking, on the simulated one: late, lost, taken away, silent; and what it costs then."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest

from app import rounds
from app.backends.contract import Ref
from app.bookings import queries
from app.bookings.facts import Booking
from app.bookings.lifecycle import Pace
from app.kernel.money import line_amount
from tests.world import START, World, make_world, nodes_csv

HOUR = timedelta(hours=1)
PRICE = Decimal("2.40")


@pytest.fixture
def world(database, tmp_path) -> Iterator[World]:
    made = make_world(database, tmp_path, csv=nodes_csv(4))
    yield made
    made.close()


def live(world: World, until: datetime, every: timedelta = timedelta(hours=1)) -> None:
    """Step the clock through everything that falls due, metering and charging included; an active booking is looked at
    `every` so often."""
    haste = rounds.Haste(Pace(every=every), frozenset({"reconcile.look", "reconcile.usage"}))
    while True:
        rounds.do_all(world.plumbing, haste)
        following = rounds.next_instant(world.plumbing)
        if following is None or following >= until:
            break
        world.set_clock(following)
    world.set_clock(until)
    rounds.do_all(world.plumbing, haste)


def charged(world: World, booking: Booking) -> Decimal:
    with world.work("physics") as work:
        return queries.charged(work, [booking.id]).get(booking.id, Decimal(0))


def money(unit_seconds: int) -> Decimal:
    """What so many unit-seconds cost, by this file's own arithmetic."""
    return line_amount(Fraction(unit_seconds) * Fraction(PRICE) / 3600, "CHF")


def ref_of(world: World, booking: Booking) -> Ref:
    with world.work("physics") as work:
        allocation = queries.allocation_of(work, booking.id)
    assert allocation is not None
    return Ref(allocation.name)


def test_quote_is_charge_when_nothing_changes(world: World) -> None:
    booking = world.book(units=8, duration="PT6H")
    live(world, START + 8 * HOUR)
    assert world.look(booking).outcome == "completed"
    assert charged(world, booking) == booking.quoted == Decimal("115.20")


def test_a_start_90_seconds_late_costs_90_seconds_less(world: World) -> None:
    world.backend.faults.slow_start(90)
    booking = world.book(units=8, duration="PT1H", start=(START + HOUR).isoformat())
    # made ten minutes ahead, a slow start would be over by then: the cluster was away until the start itself
    with world.plumbing.database.work() as work:
        work.pg.execute("UPDATE pools SET policy = '{\"made_ahead\": 0}'")
    live(world, START + 3 * HOUR)
    ended = world.look(booking)
    assert ended.provided_at == START + HOUR + timedelta(seconds=90)
    assert charged(world, booking) == money(8 * (3600 - 90))


def test_released_early_only_the_time_until_then_is_charged(world: World) -> None:
    booking = world.book(units=8, duration="PT6H")
    live(world, START + timedelta(minutes=47, seconds=11))
    world.do("release", booking)
    live(world, START + 2 * HOUR)
    assert charged(world, booking) == money(8 * (47 * 60 + 11))


def test_a_node_lost_is_charged_and_credited_by_the_exact_amount(world: World) -> None:
    booking = world.book(nodes=2, per_node=8, duration="PT4H")
    live(world, START + HOUR)
    with world.work("physics") as work:
        node = queries.holds_of(work, booking.id)[0].node
    world.backend.faults.node_dies(node, at=START + HOUR, until=START + 2 * HOUR)
    live(world, START + 6 * HOUR)
    with world.work("physics") as work:
        kinds = dict(
            work.pg.execute(
                "SELECT kind, sum(quantity) / 840 FROM charges WHERE booking_id = %s GROUP BY kind", [booking.id]
            ).fetchall()
        )
    assert kinds == {"use": 16 * 4 * 3600, "credit": -8 * 3600}
    assert charged(world, booking) == money(16 * 4 * 3600) - money(8 * 3600)


def test_a_node_taken_away_behind_berths_back_shows_as_degraded_within_one_look(world: World) -> None:
    booking = world.book(nodes=2, per_node=8, duration="PT4H")
    live(world, START + timedelta(minutes=5), timedelta(minutes=1))
    with world.work("physics") as work:
        node = queries.holds_of(work, booking.id)[0].node
    world.backend.faults.take_away(node, ref_of(world, booking))
    live(world, START + timedelta(minutes=6), timedelta(minutes=1))
    with world.work("physics") as work:
        conditions = queries.conditions_of(work, booking.id)
    assert [c.type for c in conditions] == ["degraded"]
    assert "8 of 16 units are lost" in conditions[0].why


def test_an_answer_lost_after_the_act_is_made_once_and_found(world: World) -> None:
    world.backend.faults.answer_lost("ensure")
    booking = world.book(units=8, duration="PT1H")
    live(world, START + timedelta(minutes=2))
    assert world.look(booking).state == "ACTIVE"
    live(world, START + 2 * HOUR)
    assert world.look(booking).outcome == "completed"
    acts = [e.command for e in world.backend.entries(ref_of(world, booking)) if e.acted]
    assert acts.count("ensure") == 1
    assert world.backend.strays() == ()


def test_a_cluster_that_refuses_until_the_end_provides_nothing_and_charges_nothing(world: World) -> None:
    booking = world.book(units=8, duration="PT15M")
    world.backend.faults.call_refused("ensure", "capacity", count=10_000)
    live(world, START + HOUR)
    ended = world.look(booking)
    assert (ended.state, ended.outcome, ended.provided_at) == ("ENDED", "not_provided", None)
    assert charged(world, booking) == 0
    with world.work("physics") as work:
        assert work.pg.execute("SELECT count(*) FROM commitments").fetchone()[0] == 0
        assert work.pg.execute("SELECT count(*) FROM holds WHERE live").fetchone()[0] == 0


def test_a_cluster_away_for_hours_loses_nothing(world: World) -> None:
    """Case 29, made ahead: the reservation began by itself while nobody could ask, so it was provided and is charged."""
    booking = world.book(units=8, duration="PT4H", start=(START + HOUR).isoformat())
    live(world, START + timedelta(minutes=55))
    world.backend.faults.call_refused("observe", "unreachable", count=40)
    world.backend.faults.call_refused("ensure", "unreachable", count=40)
    live(world, START + 8 * HOUR)
    ended = world.look(booking)
    assert (ended.state, ended.outcome, ended.provided_at) == ("ENDED", "completed", START + HOUR)
    assert charged(world, booking) == booking.quoted


def test_intervals_and_charges_dropped_and_rebuilt_are_the_same_rows(world: World) -> None:
    import psycopg

    first = world.book(nodes=2, per_node=8, duration="PT30H")
    live(world, START + HOUR)
    with world.work("physics") as work:
        node = queries.holds_of(work, first.id)[0].node
    world.backend.faults.node_dies(node, at=START + HOUR, until=START + 2 * HOUR)
    second = world.book(units=3, duration="PT5H")
    live(world, START + 4 * HOUR)
    world.do("release", second)
    live(world, START + 40 * HOUR)

    def rows() -> tuple[list, list]:
        with world.work("physics") as work:
            intervals = work.pg.execute(
                "SELECT id, booking_id, units::text, during::text, quantity FROM intervals"
            ).fetchall()
            charges = work.pg.execute(
                "SELECT id, booking_id, interval_id, kind, price_id, starts_at, ends_at, month, quantity, unit_price FROM charges"
            ).fetchall()
        return sorted(intervals, key=str), sorted(charges, key=str)

    before = rows()
    assert len(before[0]) >= 3
    assert {row[3] for row in before[1]} == {"use", "credit"}
    with psycopg.connect(world.owner_url, autocommit=True) as owner:
        owner.execute("DELETE FROM charges")
        owner.execute("DELETE FROM intervals")
        owner.execute("UPDATE bookings SET metered_until = NULL")
    for booking in (first, second):
        rounds.meter_booking(world.plumbing, str(booking.tenant_id), str(booking.id))
    assert rows() == before


def test_each_command_of_a_booking_stands_in_the_log_and_acted_once(world: World) -> None:
    booking = world.book(units=8, duration="PT1H")
    live(world, START + 2 * HOUR)
    commands = [e.command for e in world.backend.entries(ref_of(world, booking)) if e.acted]
    assert [verb for verb in commands if verb in ("ensure", "release")] == ["ensure", "release"]
