"""Leases on due rows: what is changed while somebody is at work on it is looked at again at once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from app import rounds
from app.bookings import due
from app.bookings.reconcile import work_off
from tests.world import START, World, make_world

LATER = START + timedelta(seconds=5)
HOUR = timedelta(hours=1)


@pytest.fixture
def world(database, tmp_path) -> Iterator[World]:
    made = make_world(database, tmp_path)
    yield made
    made.close()


def claimed(world: World) -> due.Lease:
    with world.work() as work:
        lease = due.claim(work, world.cluster_id, START, 60)
    assert lease is not None
    return lease


def row(world: World) -> tuple | None:
    with world.work() as work:
        return work.pg.execute("SELECT next_at, lease_token, call_slot FROM due").fetchone()


def test_what_is_hurried_under_a_lease_is_not_put_off_by_it(world: World) -> None:
    world.book()
    lease = claimed(world)
    with world.work() as work:
        due.hurry(work, lease.subject, lease.tenant_id, lease.cluster_id, START)
    with world.work() as work:
        due.give_back(work, lease, LATER)
    assert row(world) == (START, None, None)


def test_what_is_hurried_under_a_lease_is_not_forgotten_when_nothing_is_left_to_do(world: World) -> None:
    world.book()
    lease = claimed(world)
    with world.work() as work:
        due.hurry(work, lease.subject, lease.tenant_id, lease.cluster_id, START)
    with world.work() as work:
        due.give_back(work, lease, None)
    assert row(world) == (START, None, None)
    assert claimed(world).subject == lease.subject


def test_what_nobody_hurried_is_due_when_its_lease_says(world: World) -> None:
    world.book()
    lease = claimed(world)
    with world.work() as work:
        due.give_back(work, lease, LATER)
    assert row(world) == (LATER, None, None)
    with world.work() as work:
        assert due.claim(work, world.cluster_id, START, 60) is None
        again = due.claim(work, world.cluster_id, LATER, 60)
        assert again is not None
    with world.work() as work:
        due.give_back(work, again, None)
    assert row(world) is None


def test_a_lease_of_somebody_else_is_not_given_back(world: World) -> None:
    world.book()
    lease = claimed(world)
    with world.work() as work:
        due.end_leases(work)
    other = claimed(world)
    assert (other.subject, other.token) != (lease.subject, lease.token)
    for next_at in (None, LATER):
        with world.work() as work:
            due.give_back(work, lease, next_at)
    with world.work() as work:
        assert work.pg.execute("SELECT lease_token, call_slot FROM due").fetchall() == [(other.token, 1)]


def test_a_leased_row_is_no_instant_to_wait_for(world: World) -> None:
    world.book()
    world.book(start=(START + HOUR).isoformat())
    claimed(world)
    instant = rounds.next_instant(world.plumbing)
    assert instant is not None
    assert START < instant < START + HOUR


def test_a_booking_released_while_its_cluster_is_asked_is_taken_down_in_the_same_round(
    world: World, monkeypatch
) -> None:
    booking = world.book()
    work_off(world.plumbing, world.cluster_id)
    assert world.look(booking).state == "ACTIVE"
    observe, releases = world.backend.observe, iter([True])

    def released_meanwhile(ref):
        seen = observe(ref)
        if next(releases, False):
            world.do("release", booking)
        return seen

    monkeypatch.setattr(world.backend, "observe", released_meanwhile)
    world.set_clock(START + timedelta(minutes=2))
    world.settle()
    assert world.look(booking).state == "ENDED"
