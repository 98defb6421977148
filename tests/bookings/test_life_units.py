"""Units that are no capacity, before a booking starts and while it runs, on the simulated cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from app import rounds
from app.accounts import actions as accounts
from app.bookings import queries, replacing
from app.bookings.facts import Booking, Held
from app.kernel.actor import SYSTEM
from tests.bookings.test_life import (
    HOUR,
    MINUTE,
    charged,
    conditions,
    kinds_told,
    money,
    pass_minutes,
    ref_of,
    told,
)
from tests.world import START, World, make_world, nodes_csv

Make = Callable[..., World]
POOL = "h100-sxm-80gb"


@pytest.fixture
def make(database, tmp_path) -> Iterator[Make]:
    made: list[World] = []

    def build(nodes: int = 3, **backend: Any) -> World:
        made.append(make_world(database, tmp_path, csv=nodes_csv(nodes), backend=backend))
        return made[0]

    yield build
    for world in made:
        world.close()


def held(world: World, booking: Booking) -> tuple[Held, ...]:
    with world.work("physics") as work:
        return queries.holds_of(work, booking.id)


def node_of(world: World, booking: Booking) -> str:
    return held(world, booking)[0].node


def blocked(world: World, booking: Booking, node: str) -> bool:
    """Whether a booking still keeps others from a node."""
    with world.work() as work:
        sql = "SELECT FROM holds h JOIN nodes n ON n.id = h.node_id WHERE h.live AND h.booking_id = %s AND n.name = %s"
        return bool(work.pg.execute(sql, [booking.id, node]).rowcount)


def events(world: World, booking: Booking) -> list[str]:
    with world.work("physics") as work:
        return [line.event for line in queries.history_of(work, booking.id)]


# --- before it starts -------------------------------------------------------------------------------------------------


def test_case_42_capacity_that_shrinks_moves_bookings_to_come_or_calls_them_at_risk(make: Make) -> None:
    world = make(2)
    with world.work() as work:
        olga = accounts.create_account(work, SYSTEM, login="olga@berth.example", name="Olga")
        work.pg.execute("INSERT INTO platform_roles VALUES (%s, 'operator', 'local')", [olga])
    first = world.book(nodes=1, per_node=8, start=(START + 6 * HOUR).isoformat(), duration="PT2H")
    second = world.book(units=2, start=(START + 9 * HOUR).isoformat(), duration="PT2H")
    third = world.book(nodes=2, per_node=8, start=(START + 12 * HOUR).isoformat(), duration="PT2H")
    node = node_of(world, first)
    world.backend.faults.node_ill(node, 7)
    pass_minutes(world, 6)
    assert node_of(world, first) != node, "there was another whole node"
    assert conditions(world, first) == []
    assert kinds_told(world, first) == ["booking_replaced"]
    assert conditions(world, second) == [], "its units are well"
    assert conditions(world, third) == ["at_risk"]
    assert "GPU 7" in told(world, third)[0][1]["why"]
    assert kinds_told(world, third) == ["booking_at_risk"]
    with world.work("physics") as work:
        rows = work.pg.execute("SELECT kind, payload FROM outbox WHERE account_id = %s", [olga]).fetchall()
    assert [(kind, p["bookings"]) for kind, p in rows] == [("units_at_risk", third.label)]
    world.backend.faults.gpu_mended(node, 7)
    pass_minutes(world, 3)
    assert conditions(world, third) == []


def test_case_63_a_blip_moves_nothing(make: Make) -> None:
    world = make(2)
    booking = world.book(nodes=1, per_node=8, start=(START + HOUR).isoformat())
    node = node_of(world, booking)
    world.set_clock(START + 10 * MINUTE)
    world.backend.faults.node_dies(node, until=START + 10 * MINUTE + timedelta(seconds=40))
    rounds.do_all(world.plumbing)
    world.set_clock(START + 11 * MINUTE)
    rounds.do_all(world.plumbing)
    pass_minutes(world, 6)
    assert (node_of(world, booking), conditions(world, booking)) == (node, [])
    assert "replace" not in events(world, booking)


def test_case_66_a_start_that_is_refused_goes_elsewhere_and_only_time_in_place_is_charged(make: Make) -> None:
    world = make(2)
    booking = world.book(nodes=1, per_node=8, start=(START + HOUR).isoformat(), duration="PT1H")
    world.set_clock(START + HOUR - 5 * MINUTE)
    world.backend.faults.node_dies(node_of(world, booking), at=world.now())
    before = node_of(world, booking)
    rounds.do_all(world.plumbing)
    pass_minutes(world, 12)
    started = world.look(booking)
    assert started.state == "ACTIVE"
    assert node_of(world, booking) != before
    assert "booking_replaced" in kinds_told(world, booking)
    pass_minutes(world, 70)
    assert charged(world, booking) == money(8 * int((started.ends_at - started.provided_at).total_seconds()))


def test_case_66_where_there_is_nothing_else_it_is_late_and_given_up_uncharged(make: Make) -> None:
    world = make(1)
    world.set_policy(POOL, give_up=20 * 60)
    booking = world.book(nodes=1, per_node=8, start=(START + HOUR).isoformat(), duration="PT4H")
    world.set_clock(START + HOUR - 5 * MINUTE)
    world.backend.faults.node_dies("n0", at=world.now())
    rounds.do_all(world.plumbing)
    pass_minutes(world, 12)
    assert world.look(booking).state == "STARTING"
    assert {"late", "blocked"} <= set(conditions(world, booking))
    pass_minutes(world, 20)
    assert world.look(booking).left_by == "give_up"
    world.backend.faults.node_returns("n0")
    pass_minutes(world, 3)
    ended = world.look(booking)
    assert (ended.state, ended.outcome) == ("ENDED", "not_provided")
    pass_minutes(world, 5)
    assert charged(world, booking) == 0


def test_a_cluster_that_cannot_change_units_has_it_made_anew_under_another_name(make: Make) -> None:
    world = make(2, in_place=["end"])
    booking = world.book(nodes=1, per_node=8, start=(START + HOUR).isoformat(), duration="PT1H")
    world.set_clock(START + HOUR - 8 * MINUTE)
    rounds.do_all(world.plumbing)
    first = ref_of(world, booking)
    world.backend.faults.node_dies(node_of(world, booking), at=world.now())
    pass_minutes(world, 14)
    second = ref_of(world, booking)
    assert world.look(booking).state == "ACTIVE"
    assert (first.generation, second.generation) == (1, 2)
    assert [stray.ref for stray in world.backend.strays()].count(second) == 1
    assert world.backend.observe(first).state != "ready", "the first does not hold units any more"


def test_case_39_a_job_without_an_end_on_ones_units_moves_the_booking(make: Make) -> None:
    world = make(2)
    booking = world.book(units=1, start=(START + HOUR).isoformat())
    hold = held(world, booking)[0]
    world.backend.faults.foreign_job(hold.node, hold.local_gpus)
    pass_minutes(world, 6)
    now = held(world, booking)[0]
    assert (now.node, now.local_gpus) != (hold.node, hold.local_gpus)


# --- while it runs ----------------------------------------------------------------------------------------------------


def test_only_the_dead_node_is_replaced_and_its_time_is_credited(make: Make) -> None:
    world = make(3)
    booking = world.book(nodes=2, per_node=8, duration="PT4H", workload="training")
    rounds.do_all(world.plumbing)
    pass_minutes(world, 30)
    dead, stays = (h.node for h in held(world, booking))
    died = world.now()
    world.backend.faults.node_dies(dead, at=died)
    pass_minutes(world, 9)
    nodes = {h.node for h in held(world, booking)}
    assert stays in nodes
    assert dead not in nodes
    assert len(nodes) == 2
    assert events(world, booking).count("replace") == 1
    assert conditions(world, booking) == []
    pass_minutes(world, 60)
    assert blocked(world, booking, dead), "nobody has seen that it is empty"
    world.backend.faults.node_returns(dead)
    pass_minutes(world, 3)
    assert not blocked(world, booking, dead)
    pass_minutes(world, 3 * 60)
    ended = world.look(booking)
    assert (ended.state, ended.outcome) == ("ENDED", "completed")
    with world.work("physics") as work:
        outages = work.pg.execute(
            "SELECT extract(epoch FROM until - since)::int, since FROM outages WHERE booking_id = %s", [booking.id]
        ).fetchall()
        overlaps = work.pg.execute("SELECT count(*) FROM interval_conflicts").fetchone()[0]
    lost = sum(seconds for seconds, _ in outages)
    assert min(since for _, since in outages) == died
    assert 8 * 120 <= lost <= 8 * 9 * 60
    assert overlaps == 0
    assert charged(world, booking) == money(2 * 8 * 4 * 3600) - money(lost)


def test_without_a_spare_it_is_degraded_and_credited(make: Make) -> None:
    world = make(2)
    booking = world.book(nodes=2, per_node=8, duration="PT1H", workload="training")
    rounds.do_all(world.plumbing)
    pass_minutes(world, 6)
    dead = node_of(world, booking)
    world.backend.faults.node_dies(dead, at=START + 10 * MINUTE, until=START + 40 * MINUTE)
    pass_minutes(world, 24)
    assert conditions(world, booking) == ["degraded"]
    assert dead in {h.node for h in held(world, booking)}
    pass_minutes(world, 50)
    assert charged(world, booking) == money(2 * 8 * 3600) - money(8 * 30 * 60)


def test_case_63_a_node_that_is_back_before_the_blip_is_over_is_not_replaced(make: Make) -> None:
    world = make(3)
    booking = world.book(nodes=2, per_node=8, duration="PT1H", workload="training")
    rounds.do_all(world.plumbing)
    before = {h.node for h in held(world, booking)}
    world.backend.faults.node_dies(node_of(world, booking), until=START + timedelta(seconds=40))
    for seconds in (30, 60, 120, 300):
        world.set_clock(START + timedelta(seconds=seconds))
        rounds.do_all(world.plumbing)
    assert {h.node for h in held(world, booking)} == before


def test_case_64_who_lost_all_nodes_runs_nowhere_unbooked(make: Make) -> None:
    world = make(1)
    booking = world.book(nodes=1, per_node=8, duration="PT2H", workload="training")
    rounds.do_all(world.plumbing)
    world.backend.faults.node_dies("n0", at=START + MINUTE)
    pass_minutes(world, 20)
    assert conditions(world, booking) == ["degraded"]
    places = world.backend.observe(ref_of(world, booking)).places
    assert {p.node for p in places} == {h.node for h in held(world, booking)} == {"n0"}


# --- one after the other ----------------------------------------------------------------------------------------------


def test_case_2_an_end_and_a_start_at_one_instant_are_never_both_active(make: Make) -> None:
    world = make(1)
    first = world.book(nodes=1, per_node=8, duration="PT1H", workload="training")
    second = world.book("physics-lead", nodes=1, per_node=8, start=(START + HOUR).isoformat(), duration="PT1H")
    rounds.do_all(world.plumbing)
    while world.now() < START + HOUR + MINUTE:
        step = START + HOUR - MINUTE if world.now() < START + HOUR - MINUTE else world.now() + timedelta(seconds=2)
        world.set_clock(step)
        rounds.do_all(world.plumbing)
        assert [world.look(b).state for b in (first, second)].count("ACTIVE") <= 1
    assert world.look(first).outcome == "completed"
    assert (world.look(second).state, world.look(second).provided_at) == ("ACTIVE", START + HOUR)


def test_case_67_a_teardown_that_hangs_holds_up_only_who_comes_after_it(make: Make) -> None:
    world = make(2)
    first, _ = (world.book(nodes=1, per_node=8, duration="PT1H") for _ in range(2))
    after = START + HOUR
    nexts = [
        world.book("physics-lead", nodes=1, per_node=8, start=after.isoformat(), duration="PT1H") for _ in range(2)
    ]
    rounds.do_all(world.plumbing)
    world.set_clock(after - MINUTE)
    rounds.do_all(world.plumbing)
    follower = next(b for b in nexts if node_of(world, b) == node_of(world, first))
    other = next(b for b in nexts if b != follower)
    with world.work("physics") as work:  # the first one's end alone is not heard of for a while
        allocation = queries.allocation_of(work, first.id)
        work.pg.execute("UPDATE due SET next_at = %s WHERE subject = %s", [after + 10 * MINUTE, allocation.id])
    for minutes in (0, 1, 3, 6):
        world.set_clock(after + minutes * MINUTE)
        rounds.do_all(world.plumbing)
    assert (world.look(other).state, world.look(other).provided_at) == ("ACTIVE", after)
    assert world.look(follower).state == "STARTING"
    assert "blocked" in conditions(world, follower)
    pass_minutes(world, 9)
    started = world.look(follower)
    assert (started.state, started.provided_at) == ("ACTIVE", after)
    assert conditions(world, follower) == []


def test_a_cluster_that_never_answered_is_given_up_at_the_end_and_nothing_is_charged(make: Make) -> None:
    world = make(1)
    booking = world.book(nodes=1, per_node=8, start=(START + HOUR).isoformat(), duration="PT1H")
    world.set_clock(START + HOUR - 8 * MINUTE)
    world.backend.faults.call_refused("*", "unreachable", count=100_000)
    rounds.do_all(world.plumbing)
    pass_minutes(world, 30)
    assert world.look(booking).state == "STARTING"
    pass_minutes(world, 48)
    left = world.look(booking)
    assert (left.state, left.left_by, left.released_at) == ("ENDING", "give_up", START + 2 * HOUR)
    assert charged(world, booking) == Decimal(0)
    assert "booking_not_provided" in kinds_told(world, booking)


def test_case_74_a_name_that_cannot_be_looked_up_deletes_no_booking(make: Make) -> None:
    world = make(1)
    booking = world.book(nodes=1, per_node=8, duration="PT1H", workload="training")
    rounds.do_all(world.plumbing)
    with world.work("physics") as work:
        work.pg.execute("UPDATE accounts SET email = '' WHERE id = %s", [world.people["physics-member"]])
        work.pg.execute("DELETE FROM memberships WHERE account_id = %s", [world.people["physics-member"]])
    pass_minutes(world, 9)
    assert world.look(booking).state == "ACTIVE"
    assert world.backend.observe(ref_of(world, booking)).state == "ready"


def test_a_start_that_is_blocked_everywhere_does_not_go_back_and_forth_at_one_instant(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by a random history: two nodes that both refuse, and a booking that each look sent to the other one."""
    world = make(2)
    booking = world.book(nodes=1, per_node=8, start=(START + HOUR).isoformat(), duration="PT4H")
    world.set_clock(START + HOUR - 5 * MINUTE)
    world.settle()
    assert world.look(booking).state == "STARTING"
    monkeypatch.setattr(replacing, "needs_others", lambda view, held, pool, now: True)

    def give_others() -> replacing.Replaced | None:
        with world.work("physics") as work:
            return replacing.replace_units(work, booking.id)

    first = node_of(world, booking)
    assert give_others() is not None
    assert node_of(world, booking) != first
    assert give_others() is None, "at the same instant it is looked at first"
    world.set_clock(world.now() + 3 * MINUTE)
    assert give_others() is not None
