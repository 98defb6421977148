"""Shrinking: an earlier end, fewer units; what is given back, when it is free, what is charged."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

import pytest

from app.bookings import shrinking
from app.bookings.shrinking import Kept
from app.kernel.errors import Conflict, Forbidden, Refused
from tests.bookings.shelf import bill, codes, every_row, rows
from tests.world import START, World, make_world, nodes_csv

HOUR = timedelta(hours=1)


@pytest.fixture
def world(database, tmp_path) -> Iterator[World]:
    made = make_world(database, tmp_path, csv=nodes_csv(2))
    yield made
    made.close()


def at(hours: float) -> str:
    return (START + hours * HOUR).isoformat()


def shrink(world: World, booking, person: str = "physics-member", **words):
    version = words.pop("version", None)
    key = words.pop("key", None)
    return world.do(shrinking.shrink, booking, person, kept=Kept(**words), key=key, version=version)


def test_half_of_its_units_are_given_back_and_others_have_them_at_once(world: World) -> None:
    a = world.book(units=8, within="node", duration="PT4H")
    world.book("bio-member", project="atlas", units=8, within="node", duration="PT4H")
    world.settle()
    world.set_clock(START + HOUR)
    with world.work("physics") as work:
        plan = shrinking.quote_shrink(work, world.actor("physics-member"), a.id, Kept(units=4))
    assert plan.back == Decimal("28.80")  # 4 units x 3 h x 2.40
    after = shrink(world, a, units=4)
    assert (after.units, after.quoted) == (4, Decimal("76.80") - Decimal("28.80"))
    with pytest.raises(Refused):  # not seen empty yet: still blocked
        world.book("bio-member", project="atlas", start=at(1), units=4, duration="PT1H")
    world.settle()
    assert world.look(a).state == "ACTIVE"
    assert sum(len(p.gpus) for p in world.backend.observe(_ref(world, a)).places) == 4
    world.book("bio-member", project="atlas", start=at(1), units=4, duration="PT1H")
    world.pass_time(4 * HOUR)
    ended = world.look(a)
    assert (ended.state, ended.outcome) == ("ENDED", "completed")
    bill(world, a)
    assert rows(world, "SELECT sum(quantity) FROM charges") == [((8 * 1 + 4 * 3) * 3600 * 840,)]
    assert rows(world, "SELECT count(*) FROM interval_conflicts") == [(0,)]
    used = rows(world, "SELECT sum(quantity) FROM intervals WHERE NOT void")
    assert used == [((8 * 1 + 4 * 3) * 3600 * 840,)]


def _ref(world: World, booking):
    from app.backends.contract import Ref

    ((name,),) = rows(world, "SELECT DISTINCT a.name FROM allocations a JOIN holds h ON h.allocation_id = a.id"
                      " WHERE h.booking_id = %s", booking.id)  # fmt: skip
    return Ref(name)


def test_units_on_a_silent_node_are_free_only_when_they_are_seen_empty(world: World) -> None:
    a = world.book(nodes=2, per_node=8, duration="PT4H")
    world.settle()
    world.set_clock(START + HOUR)
    world.backend.faults.node_dies("n1")
    after = shrink(world, a, nodes=1)
    world.settle()
    assert (after.units, after.nodes, after.per_node) == (8, 1, 8)
    left = "SELECT live FROM holds WHERE booking_id = %s AND left_at IS NOT NULL"
    assert rows(world, left, a.id) == [(True,)]
    world.set_clock(START + 2 * HOUR)
    world.backend.faults.node_returns("n1")
    world.set_clock(START + 2 * HOUR + timedelta(minutes=1))
    world.settle()
    assert rows(world, left, a.id) == [(False,)]
    assert world.look(a).state == "ACTIVE"


def test_a_lost_node_is_given_back_before_sound_ones_and_is_no_outage_from_then_on(world: World) -> None:
    a = world.book(nodes=2, per_node=8, duration="PT4H")
    world.settle()
    world.set_clock(START + HOUR)
    world.backend.faults.node_dies("n0")
    world.set_clock(START + HOUR + timedelta(minutes=5))
    world.settle()
    shrink(world, a, nodes=1)
    held = rows(world, "SELECT n.name FROM holds h JOIN nodes n ON n.id = h.node_id WHERE booking_id = %s AND left_at IS NULL",
                a.id)  # fmt: skip
    assert held == [("n1",)]
    assert rows(world, "SELECT count(*) FROM outages WHERE until IS NULL") == [(0,)]


def test_ended_earlier_the_rest_goes_back_and_others_may_follow(world: World) -> None:
    world.set_limit("physics", hours=64)
    a = world.book(nodes=2, per_node=8, duration="PT4H")
    with pytest.raises(Refused):
        world.book(start=at(5), units=8, duration="PT1H")
    with world.work("physics") as work:
        plan = shrinking.quote_shrink(work, world.actor("physics-member"), a.id, Kept(end=START + 2 * HOUR))
    assert [(e.before, e.after) for e in plan.effects] == [(64 * 3600 * 840, 32 * 3600 * 840)]
    after = shrink(world, a, end=START + 2 * HOUR)
    assert after.ends_at == START + 2 * HOUR
    assert after.quoted == a.quoted / 2
    world.book(start=at(5), units=8, duration="PT1H")
    world.book("bio-member", project="atlas", start=at(2), nodes=2, per_node=8, duration="PT1H")


def test_before_the_start_units_are_free_at_once(world: World) -> None:
    a = world.book(start=at(3), units=16, duration="PT1H")
    shrink(world, a, units=8)
    world.book("bio-member", project="atlas", start=at(3), units=8, duration="PT1H")
    world.pass_time(5 * HOUR)
    bill(world, a)
    assert rows(world, "SELECT sum(quantity) FROM charges WHERE booking_id = %s", a.id) == [(8 * 3600 * 840,)]


@pytest.mark.parametrize(
    ("kept", "code"),
    [
        (Kept(units=8), "not_fewer"),
        (Kept(units=0), "not_fewer"),
        (Kept(nodes=1), "no_nodes"),
        (Kept(end=START + 9 * HOUR), "not_earlier"),
        (Kept(end=START + timedelta(minutes=10)), "ends_at_once"),
        (Kept(end=START + timedelta(hours=3, minutes=1)), "length_off_grid"),
    ],
)
def test_what_cannot_be_given_back_is_refused_and_changes_nothing(world: World, kept: Kept, code: str) -> None:
    a = world.book(units=8, duration="PT4H")
    world.settle()
    world.set_clock(START + timedelta(minutes=30))
    world.settle()
    before = every_row(world)
    with pytest.raises(Refused) as refused:
        world.do(shrinking.shrink, a, kept=kept)
    assert codes(refused) == {code}
    assert every_row(world) == before


def test_nodes_are_given_back_whole(world: World) -> None:
    a = world.book(nodes=2, per_node=8, duration="PT4H")
    with pytest.raises(Refused) as refused:
        shrink(world, a, units=12)
    assert codes(refused) == {"whole_nodes"}
    assert shrink(world, a, units=8).nodes == 1


def test_who_may_not_and_who_looked_too_long_ago_change_nothing(world: World) -> None:
    a = world.book(units=8, duration="PT4H")
    before = every_row(world)
    with pytest.raises(Forbidden):
        shrink(world, a, "physics-viewer", units=4)
    with pytest.raises(Conflict):
        shrink(world, a, units=4, version=a.version + 1)
    assert every_row(world) == before


def test_a_cluster_that_cannot_says_so_before_anything_happens(database, tmp_path) -> None:
    world = make_world(database, tmp_path, csv=nodes_csv(1), backend={"in_place": ["end"]})
    a = world.book(units=8, duration="PT4H")
    world.settle()
    before = every_row(world)
    with pytest.raises(Refused) as refused:
        shrink(world, a, units=4)
    assert codes(refused) == {"cluster_cannot"}
    assert every_row(world) == before
    world.close()
