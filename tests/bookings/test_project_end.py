"""What becomes of bookings when their project ends, its renewal and grace."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from app import rounds
from app.accounts import actions as accounts
from app.bookings.lifecycle import FINAL, State
from app.bookings.project_end import STEPS
from app.kernel.actor import SYSTEM
from app.kernel.errors import Refused
from tests.bookings.shelf import bill, codes, rows
from tests.world import START, World, make_world, nodes_csv

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.fixture
def world(database, tmp_path) -> Iterator[World]:
    made = make_world(database, tmp_path, csv=nodes_csv(1))
    yield made
    made.close()


def end_project(world: World, at=None) -> None:
    with world.work("physics") as work:
        accounts.end_project(work, SYSTEM, world.projects["plasma"], at=at)


def told(world: World, booking) -> list[str]:
    return [k for (k,) in rows(world, "SELECT kind FROM outbox WHERE booking_id = %s AND kind IN ('booking_cancelled',"
                               " 'booking_runs_on') ORDER BY at", booking.id)]  # fmt: skip


def do_all(world: World) -> None:
    rounds.do_all(world.plumbing, rounds.Haste(without=frozenset({"reconcile.usage", "reconcile.look"})))


def test_bug_21_every_open_state_has_a_step_and_final_ones_have_none() -> None:
    assert set(STEPS) == set(State) - FINAL - {State.ENDING}


def test_bug_21_at_the_end_what_has_not_begun_is_given_up_what_runs_runs_on_and_each_is_told_once(world: World) -> None:
    end = START + HOUR
    ((pool,),) = rows(world, "SELECT name FROM pools")
    world.set_policy(pool, made_ahead=1800)
    active = world.book(units=1, duration="PT2H")
    world.settle()
    later = world.book(start=(START + 5 * HOUR).isoformat(), units=1, duration="PT1H")
    starting = world.book(start=(end + HOUR / 4).isoformat(), units=1, duration="PT1H")
    end_project(world, end)
    world.set_clock(end - timedelta(minutes=5))
    do_all(world)
    assert world.look(starting).state == "STARTING"
    assert told(world, later) == []
    world.set_clock(end)
    with pytest.raises(Refused) as refused:
        world.book(units=1)
    assert codes(refused) == {"project_ended"}
    for _ in range(3):
        do_all(world)
    assert world.look(later).state == "CANCELLED"
    assert (world.look(starting).state, world.look(starting).outcome) == ("ENDED", "cancelled")
    assert world.look(active).state == "ACTIVE"
    assert [told(world, b) for b in (later, starting, active)] == [
        ["booking_cancelled"],
        ["booking_cancelled"],
        ["booking_runs_on"],
    ]
    with pytest.raises(Refused) as refused:
        world.do("extend", active, by=HOUR, end=None)
    assert "project_ended" in codes(refused)
    world.pass_time(2 * HOUR)
    assert (world.look(active).state, world.look(active).outcome) == ("ENDED", "completed")


def test_bug_22_a_renewal_that_is_asked_for_counts_as_open_until_its_grace_is_over(world: World) -> None:
    kept = world.book(start=(START + 8 * DAY + HOUR).isoformat(), units=1, duration="PT1H")
    end_project(world, START + DAY)
    with pytest.raises(Refused) as refused:
        world.book(start=(START + 2 * DAY).isoformat(), units=1)
    assert codes(refused) == {"project_ends"}
    with world.work("physics") as work:
        accounts.ask_renewal(work, world.actor("physics-lead"), world.projects["plasma"])
    world.set_clock(START + 2 * DAY)
    do_all(world)
    assert world.look(kept).state == "BOOKED"
    assert world.book(units=1, duration="PT1H").state == "BOOKED"
    world.set_clock(START + 8 * DAY)
    with pytest.raises(Refused) as refused:
        world.book(units=1)
    assert codes(refused) == {"project_ended"}
    do_all(world)
    assert world.look(kept).state == "CANCELLED"


def test_renewed_it_goes_on(world: World) -> None:
    end_project(world)
    with pytest.raises(Refused):
        world.book(units=1)
    with world.work("physics") as work:
        accounts.renew_project(work, SYSTEM, world.projects["plasma"], START + DAY)
    world.book(units=1, duration="PT1H")


def test_bug_24_release_always_works_and_the_rest_is_charged(world: World) -> None:
    world.set_limit("physics", hours=100)
    active = world.book(units=8, duration="PT4H")
    world.settle()
    end_project(world)
    world.set_limit("physics", hours=0)
    world.set_clock(START + HOUR)
    world.do("release", active)
    world.settle()
    assert (world.look(active).state, world.look(active).outcome) == ("ENDED", "released")
    bill(world, active)
    assert rows(world, "SELECT sum(quantity) FROM charges") == [(8 * 3600 * 840,)]
    world.book("bio-member", project="atlas", units=8, duration="PT1H")
