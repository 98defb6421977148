"""Bookings that nobody uses, that stand idle or come to their end, on the simulated cluster, minute by minute."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from app import rounds
from app.backends.contract import Ref, Workload
from app.bookings import queries
from app.bookings.facts import Booking
from app.kernel.money import line_amount
from tests.world import START, World, make_world, nodes_csv

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
PRICE = Decimal("2.40")


@pytest.fixture
def world(database, tmp_path) -> Iterator[World]:
    made = make_world(database, tmp_path, csv=nodes_csv(2))
    yield made
    made.close()


def pass_minutes(world: World, minutes: int) -> None:
    """Let time pass as workers live it: everything that is due, measurements and looks too, at least every 3 minutes."""
    until = world.now() + minutes * MINUTE
    while world.now() < until:
        world.set_clock(min(world.now() + 3 * MINUTE, until))
        rounds.do_all(world.plumbing)


def ref_of(world: World, booking: Booking) -> Ref:
    with world.work("physics") as work:
        allocation = queries.allocation_of(work, booking.id)
    assert allocation is not None
    return Ref(allocation.name)


def told(world: World, booking: Booking) -> list[tuple[str, dict[str, Any]]]:
    """The notices of a booking, oldest first."""
    with world.work("physics") as work:
        rows = work.pg.execute(
            "SELECT kind, payload FROM outbox WHERE booking_id = %s ORDER BY at, id", [booking.id]
        ).fetchall()
    return rows


def kinds_told(world: World, booking: Booking) -> list[str]:
    return [kind for kind, _ in told(world, booking)]


def conditions(world: World, booking: Booking) -> list[str]:
    with world.work("physics") as work:
        return [c.type for c in queries.conditions_of(work, booking.id)]


def charged(world: World, booking: Booking) -> Decimal:
    with world.work(next(t for t, i in world.tenants.items() if i == booking.tenant_id)) as work:
        return queries.charged(work, [booking.id]).get(booking.id, Decimal(0))


def money(unit_seconds: int) -> Decimal:
    return line_amount(Fraction(unit_seconds) * Fraction(PRICE) / 3600, "CHF")


def begin(world: World, **words: Any) -> Booking:
    if "nodes" not in words:
        words = {"units": 8} | words
    booking = world.book(**({"duration": "PT4H", "workload": "none"} | words))
    rounds.do_all(world.plumbing)
    assert world.look(booking).state == "ACTIVE"
    return booking


# --- nobody came ------------------------------------------------------------------------------------------------------


def test_case_52_and_55_nobody_came_one_warning_then_released_charged_until_then_and_sold_again(world: World) -> None:
    booking = begin(world)
    pass_minutes(world, 14)
    assert conditions(world, booking) == []
    pass_minutes(world, 3)
    assert conditions(world, booking) == ["idle"]
    kind, words = told(world, booking)[-1]
    assert (kind, words["release_at"]) == ("booking_unused", (START + 30 * MINUTE).isoformat())
    assert Decimal(words["refund"]) > 0
    pass_minutes(world, 16)
    ended = world.look(booking)
    assert (ended.state, ended.outcome) == ("ENDED", "no_show")
    assert START + 30 * MINUTE <= ended.released_at <= START + 33 * MINUTE
    assert kinds_told(world, booking).count("booking_unused") == 1
    assert kinds_told(world, booking).count("booking_no_show") == 1
    sold = [world.book("bio-member", project="atlas", units=8, duration="PT1H") for _ in range(2)]
    rounds.do_all(world.plumbing)
    pass_minutes(world, 90)
    seconds = int((ended.released_at - START).total_seconds())
    assert charged(world, booking) == money(8 * seconds)
    assert sum(charged(world, b) for b in sold) == money(2 * 8 * 3600)
    assert sold[0].starts_at >= ended.emptied_at


def test_case_52_a_checker_that_was_away_finds_it_later(world: World) -> None:
    world.set_policy("h100-sxm-80gb", no_show=15 * 60, no_show_warn=10 * 60)
    booking = begin(world)
    pass_minutes(world, 12)
    assert conditions(world, booking) == ["idle"]
    world.set_clock(START + 18 * MINUTE)  # nobody looked from 10:13 to 10:18
    rounds.do_all(world.plumbing)
    assert world.look(booking).left_by == "no_show"


def test_a_warning_that_was_missed_is_given_before_anything_is_taken(world: World) -> None:
    booking = begin(world)
    world.set_clock(START + 45 * MINUTE)
    rounds.do_all(world.plumbing)
    assert (world.look(booking).state, conditions(world, booking)) == ("ACTIVE", ["idle"])
    assert told(world, booking)[-1][1]["release_at"] == (START + timedelta(minutes=52, seconds=30)).isoformat()
    pass_minutes(world, 6)
    assert world.look(booking).state == "ACTIVE", "there is time to come"
    pass_minutes(world, 6)
    assert world.look(booking).left_by == "no_show"


def test_case_53_time_in_which_the_node_was_down_is_no_no_show(world: World) -> None:
    booking = begin(world)
    with world.work("physics") as work:
        node = queries.holds_of(work, booking.id)[0].node
    world.backend.faults.node_drains(next(n for n in ("n0", "n1") if n != node))
    world.backend.faults.node_dies(node, until=START + 20 * MINUTE)
    pass_minutes(world, 33)
    assert world.look(booking).state == "ACTIVE"
    pass_minutes(world, 20)
    assert world.look(booking).left_by == "no_show", "30 minutes after it was there again"


def test_bug_3_missing_measurements_are_not_idleness(world: World) -> None:
    world.backend.faults.metrics_gap(START, START + 4 * HOUR)
    booking = begin(world)
    pass_minutes(world, 45)
    assert world.look(booking).state == "ACTIVE"
    assert conditions(world, booking) == []
    assert "booking_unused" not in kinds_told(world, booking)


def test_who_comes_after_the_warning_keeps_the_booking(world: World) -> None:
    booking = begin(world)
    pass_minutes(world, 20)
    assert conditions(world, booking) == ["idle"]
    world.backend.launch(ref_of(world, booking), Workload("mine", "training"))
    pass_minutes(world, 3)
    assert conditions(world, booking) == []
    assert world.look(booking).first_used_at is not None
    pass_minutes(world, 20)
    assert world.look(booking).state == "ACTIVE"


def test_a_pool_without_a_limit_releases_nobody(world: World) -> None:
    world.set_policy("h100-sxm-80gb", no_show=None)
    booking = begin(world)
    pass_minutes(world, 40)
    assert (world.look(booking).state, conditions(world, booking)) == ("ACTIVE", ["idle"])


def test_case_55_a_fee_is_owed_only_where_one_is_set(world: World) -> None:
    def fees(booking: Booking) -> list[tuple]:
        with world.work("physics") as work:
            return work.pg.execute(
                "SELECT changes ->> 'amount' FROM history WHERE booking_id = %s AND event = 'fee'", [booking.id]
            ).fetchall()

    first = begin(world)
    pass_minutes(world, 33)
    assert world.look(first).outcome == "no_show"
    assert fees(first) == []
    world.set_policy("h100-sxm-80gb", no_show_fee="5.00")
    second = begin(world)
    pass_minutes(world, 33)
    assert world.look(second).outcome == "no_show"
    assert fees(second) == [("5.00",)]


# --- idle -------------------------------------------------------------------------------------------------------------


def test_case_54_a_process_that_holds_memory_is_warned_about_and_never_released(world: World) -> None:
    world.set_policy("h100-sxm-80gb", idle_warn=10 * 60, idle_release=15 * 60)
    booking = begin(world, workload="training", duration="PT8H")
    pass_minutes(world, 3)
    assert world.look(booking).first_used_at is not None
    world.backend.faults.workload_hangs(ref_of(world, booking), "training-1")
    pass_minutes(world, 12)
    assert conditions(world, booking) == ["idle"]
    kind, words = told(world, booking)[-1]
    assert kind == "booking_idle"
    assert "release_at" not in words
    pass_minutes(world, 30)
    assert world.look(booking).state == "ACTIVE"
    assert kinds_told(world, booking).count("booking_idle") == 1


def test_an_idle_booking_is_released_only_where_the_pool_says_so(world: World) -> None:
    booking = begin(world)
    ref = ref_of(world, booking)
    world.backend.launch(ref, Workload("mine", "training"))
    pass_minutes(world, 5)
    world.backend.stop(ref, "mine")
    pass_minutes(world, 50)
    assert (world.look(booking).state, conditions(world, booking)) == ("ACTIVE", ["idle"])
    world.set_policy("h100-sxm-80gb", idle_release=40 * 60)
    pass_minutes(world, 3)
    ended = world.look(booking)
    assert (ended.outcome, ended.left_by) == ("released", "release")
    assert kinds_told(world, booking).count("booking_released_idle") == 1


# --- the end ----------------------------------------------------------------------------------------------------------


def test_two_warnings_before_the_end_each_told_once(world: World) -> None:
    booking = begin(world, duration="PT1H", workload="training")
    pass_minutes(world, 29)
    assert "booking_ending" not in kinds_told(world, booking)
    pass_minutes(world, 36)
    kinds = kinds_told(world, booking)
    assert [k for k in kinds if k.startswith("booking_end")] == ["booking_ending", "booking_ends_now", "booking_ended"]


def test_a_booking_of_half_an_hour_is_not_warned_at_its_start(world: World) -> None:
    booking = begin(world, duration="PT30M", workload="training")
    pass_minutes(world, 35)
    assert [k for k in kinds_told(world, booking) if k.startswith("booking_end")] == ["booking_ending", "booking_ended"]


def test_case_81_no_warning_where_the_same_person_goes_on_on_the_same_units(world: World) -> None:
    first = begin(world, nodes=2, per_node=8, duration="PT1H", workload="training")
    second = world.book(nodes=2, per_node=8, start=(START + HOUR).isoformat(), duration="PT1H")
    other = world.book("physics-lead", nodes=2, per_node=8, start=(START + 2 * HOUR).isoformat(), duration="PT1H")
    pass_minutes(world, 62)
    assert not any(k in ("booking_ending", "booking_ends_now") for k in kinds_told(world, first))
    assert world.look(second).state == "ACTIVE"
    pass_minutes(world, 55)
    assert kinds_told(world, second).count("booking_ending") == 1, "somebody else comes after"
    assert world.look(other).state in ("BOOKED", "STARTING")


def test_bug_16_a_message_delivered_again_and_again_ends_it_once(world: World) -> None:
    booking = begin(world, duration="PT1H", workload="training")
    pass_minutes(world, 65)
    for _ in range(19):
        rounds.work_off_cluster(world.plumbing, world.cluster_id)
        rounds.meter_booking(world.plumbing, str(booking.tenant_id), str(booking.id))
    assert world.look(booking).outcome == "completed"
    assert charged(world, booking) == booking.quoted
    assert kinds_told(world, booking).count("booking_ended") == 1


def test_case_68_nobody_follows_what_runs_may_run_on_for_the_grace_uncharged(world: World) -> None:
    world.set_policy("h100-sxm-80gb", grace=10 * 60)
    booking = begin(world, duration="PT1H", workload="training")
    pass_minutes(world, 61)
    assert world.look(booking).state == "ENDING"
    run = next(w for w in world.backend.usage(ref_of(world, booking), START, world.now(), 60).workloads)
    assert run.state == "running", "it was not thrown out"
    pass_minutes(world, 12)
    ended = world.look(booking)
    assert (ended.outcome, ended.released_at) == ("completed", START + HOUR)
    assert ended.emptied_at >= START + HOUR + 10 * MINUTE
    assert charged(world, booking) == booking.quoted


def test_case_68_who_follows_at_once_finds_the_units_empty(world: World) -> None:
    world.set_policy("h100-sxm-80gb", grace=10 * 60)
    begin(world, nodes=2, per_node=8, duration="PT1H", workload="training")
    follower = world.book("bio-member", project="atlas", nodes=2, per_node=8, start=(START + HOUR).isoformat())
    pass_minutes(world, 62)
    started = world.look(follower)
    assert (started.state, started.provided_at) == ("ACTIVE", START + HOUR)
