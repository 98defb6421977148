"""What random histories have found in verbs, each as small as it gets, on the real database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from app.billing import actions as billing
from app.bookings import extending, moving, sharing
from app.bookings.moving import To
from app.kernel.actor import Actor
from app.kernel.errors import Conflict
from tests.bookings.shelf import bill, rows
from tests.world import H100, START, World, make_world, nodes_csv

HOUR = timedelta(hours=1)


@pytest.fixture
def world(database, tmp_path) -> Iterator[World]:
    made = make_world(database, tmp_path, csv=nodes_csv(1, gpus=1))
    yield made
    made.close()


def test_a_move_of_what_is_over_says_so_as_its_quote_does_and_not_that_there_is_no_room(world: World) -> None:
    over = world.book(start=(START + HOUR).isoformat())
    world.do("cancel", over)
    world.book(start=(START + 2 * HOUR).isoformat())
    to = To(start=START + 2 * HOUR)
    with pytest.raises(Conflict) as quoted, world.work("physics") as work:
        moving.quote_move(work, world.actor("physics-member"), over.id, to)
    with pytest.raises(Conflict) as moved:
        world.do(moving.move, over, to=to)
    assert quoted.value.code == moved.value.code == "wrong_state"


def test_the_quote_of_an_extension_knows_that_the_end_has_passed_before_any_worker_does(world: World) -> None:
    over = world.book(duration="PT1H")
    world.settle()
    world.set_clock(START + HOUR)
    with pytest.raises(Conflict) as quoted, world.work("physics") as work:
        extending.quote_extension(work, world.actor("physics-member"), over.id, HOUR, None)
    with pytest.raises(Conflict) as extended:
        world.do("extend", over, by=HOUR, end=None)
    assert quoted.value.code == extended.value.code == "wrong_state"


def test_a_first_limit_does_not_count_what_was_given_up_and_is_still_being_cleared_away(world: World) -> None:
    world.set_policy(H100, give_up=1800)
    world.backend.faults.slow_start(4000)
    never = world.book(duration="PT2H")
    world.settle()
    world.set_clock(START + timedelta(minutes=30))
    world.backend.faults.call_refused("release", count=50)
    world.settle()
    found = world.look(never)
    assert (found.state, found.left_by, found.provided_at) == ("ENDING", "give_up", None)
    admin = Actor(None, "Admin", world.tenants["physics"], frozenset({"admin"}), frozenset({"operator"}))
    with world.work("physics") as work:
        billing.set_limit(work, admin, units=None, hours=100)
    assert rows(world, "SELECT starts_at, ends_at, rate FROM commitments") == []


def test_a_limit_set_again_does_not_count_twice_what_was_handed_over(world: World) -> None:
    """Handing over cuts the schedule: the second half looked like a piece that nobody had counted."""
    for units in (None, 1):
        admin = Actor(None, "Admin", world.tenants["physics"], frozenset({"admin"}), frozenset({"operator"}))
        person = world.people["physics-lead"]
        for whose in ({}, {"account_id": person}):
            with world.work("physics") as work:
                billing.set_limit(work, admin, units=units, hours=100, **whose)
        if units is None:
            handed = world.book(duration="PT2H")
            world.settle()
            world.set_clock(START + HOUR)
            world.do(sharing.hand_over, handed, to=person)
    counted = rows(
        world, "SELECT subject, sum(quantity) / 840 FROM commitments JOIN scopes s ON s.id = scope_id GROUP BY 1"
    )
    assert sorted(counted) == [("tenant", 7200), ("user", 3600)]


def test_what_lies_between_the_old_end_and_a_later_one_that_reached_the_cluster_too_late_is_not_charged(
    world: World,
) -> None:
    """The cluster ended it in time, and made it anew when it heard of the extension: nobody was on it in between."""
    late = world.book(duration="PT1H")
    world.settle()
    world.set_clock(START + timedelta(minutes=55))
    for verb in ("ensure", "observe"):
        world.backend.faults.call_refused(verb, count=10_000)
    world.do("extend", late, by=HOUR, end=None)
    world.pass_time(timedelta(minutes=30))
    with world.backend._log.look() as cluster:  # it is back
        cluster.call_faults.clear()
    world.pass_time(timedelta(minutes=100))
    (heard,) = (e.at for e in world.backend.entries() if e.command == "change")
    gap = heard - int((START + HOUR).timestamp())
    assert gap > 20 * 60
    bill(world, late)
    charged = dict(rows(world, "SELECT kind, sum(quantity)::bigint / 840 FROM charges GROUP BY 1"))
    assert charged == {"use": 7200, "credit": -gap}


def test_a_late_booking_has_its_new_units_from_now_on_and_not_from_its_start(database, tmp_path) -> None:
    """Until now they were somebody else's: metered from its start, they were metered for both."""
    world = make_world(database, tmp_path, csv=nodes_csv(2, gpus=1))
    try:
        late = world.book(duration="PT2H")
        other = world.book("bio-member", project="atlas", duration="PT15M")
        (node,) = rows(
            world, "SELECT n.name FROM holds h JOIN nodes n ON n.id = node_id WHERE booking_id = %s", late.id
        )[0]
        world.backend.faults.node_dies(node, at=START)
        world.settle()
        world.pass_time(timedelta(minutes=20))
        assert (world.look(late).state, world.look(other).state) == ("ACTIVE", "ENDED")
        found = rows(world, "SELECT n.name, lower(during) FROM holds h JOIN nodes n ON n.id = node_id WHERE live AND booking_id = %s",
                     late.id)  # fmt: skip
        assert found == [("n1" if node == "n0" else "n0", world.look(late).provided_at)]
        assert world.look(late).provided_at > START
    finally:
        world.close()
