"""Workers that die, messages that come twice, a portal that was down: the row is the truth."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from app import rounds
from app.bookings import due, reconcile
from app.bookings.reconcile import work_off
from tests.bookings.test_life import HOUR, MINUTE, charged, conditions, money, pass_minutes, ref_of
from tests.world import START, World, make_world, nodes_csv


@pytest.fixture
def world(database, tmp_path) -> Iterator[World]:
    made = make_world(database, tmp_path, csv=nodes_csv(2))
    yield made
    made.close()


def acted(world: World, booking) -> list[str]:
    return [e.command for e in world.backend.entries(ref_of(world, booking)) if e.acted]


@pytest.mark.parametrize("dies_in", ["_ask", "_apply"])
def test_case_27_a_worker_that_died_after_marking_it_starting_is_followed_by_another(
    world: World, dies_in: str, monkeypatch
) -> None:
    booking = world.book(nodes=1, per_node=8, duration="PT1H")

    def die(*_args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(reconcile, dies_in, die)  # before the call was made, or after it and before its answer was kept
        with pytest.raises(KeyboardInterrupt):
            work_off(world.plumbing, world.cluster_id)
    assert world.look(booking).state == "STARTING"
    assert work_off(world.plumbing, world.cluster_id) == 0, "it is still somebody's"
    with world.work() as work:
        due.end_leases(work)
    rounds.do_all(world.plumbing)
    assert world.look(booking).state == "ACTIVE"
    assert acted(world, booking) == ["ensure"]


def test_case_28_a_start_that_is_delivered_twice_is_done_once(world: World) -> None:
    booking = world.book(nodes=1, per_node=8, duration="PT1H")
    for _ in range(2):
        rounds.work_off_cluster(world.plumbing, world.cluster_id)
    assert world.look(booking).state == "ACTIVE"
    assert acted(world, booking) == ["ensure"]
    assert len(world.backend.strays()) == 1


def test_case_29_a_portal_that_was_down_charges_nothing_that_it_did_not_provide(world: World) -> None:
    first = world.book(nodes=1, per_node=8, start=(START + 2 * HOUR).isoformat(), duration="PT1H")
    second = world.book(nodes=1, per_node=8, start=(START + 3 * HOUR).isoformat(), duration="PT4H", workload="training")
    world.set_clock(START + 4 * HOUR)  # nobody worked from 13:00 to 16:00
    rounds.do_all(world.plumbing)
    pass_minutes(world, 3)
    ended = world.look(first)
    assert (ended.state, ended.outcome, ended.provided_at) == ("ENDED", "not_provided", None)
    running = world.look(second)
    assert (running.state, running.provided_at) == ("ACTIVE", START + 4 * HOUR)
    assert running.ends_at == START + 7 * HOUR
    pass_minutes(world, 3 * 60)
    assert charged(world, first) == 0
    assert charged(world, second) == money(8 * 3 * 3600)


def test_case_70_what_is_admitted_and_not_in_place_is_starting_and_told_after_the_limit(world: World) -> None:
    world.backend.faults.slow_start(25 * 60)
    booking = world.book(nodes=1, per_node=8, duration="PT1H", start=(START + HOUR).isoformat())
    world.set_clock(START + HOUR - 10 * MINUTE)
    rounds.do_all(world.plumbing)
    world.set_clock(START + HOUR + timedelta(seconds=30))
    rounds.do_all(world.plumbing)
    assert world.look(booking).state == "STARTING"
    pass_minutes(world, 6)
    assert (world.look(booking).state, conditions(world, booking)) == ("STARTING", ["late"])
    pass_minutes(world, 12)
    started = world.look(booking)
    assert (started.state, started.provided_at) == ("ACTIVE", START + HOUR + 15 * MINUTE)
