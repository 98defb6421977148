"""Extending: who comes after gives way where no promise is broken; what is refused leaves everything as it was."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

import pytest

from app.bookings import extending
from app.kernel.errors import Conflict, Refused
from app.pricing import actions as pricing
from tests.bookings.shelf import bill, codes, every_row, rows
from tests.world import FINANCE, H100, START, World, make_world, nodes_csv

HOUR = timedelta(hours=1)
ALL_DAY = {"units": 8, "within": "node", "duration": "PT12H"}


@pytest.fixture
def world(database, tmp_path) -> Iterator[World]:
    made = make_world(database, tmp_path, csv=nodes_csv(1, gpus=2))
    yield made
    made.close()


def at(hours: float) -> str:
    return (START + hours * HOUR).isoformat()


def units(world: World, booking) -> set[int]:
    return {g for (g,) in rows(world, "SELECT lower(r) / 64 FROM holds, unnest(units) r WHERE live AND booking_id = %s",
                               booking.id)}  # fmt: skip


def neighbours(world: World):
    """A runs for an hour on one unit; B follows on the same unit an hour later; the other unit is free then."""
    a = world.book(units=1, duration="PT1H")
    filler = world.book(units=1, duration="PT1H")
    world.settle()
    b = world.book("bio-member", project="atlas", start=at(1), units=1, duration="PT2H")
    if units(world, b) != units(world, a):
        a, filler = filler, a
    assert units(world, a) == units(world, b)
    return a, b


def test_case_45_who_comes_after_gives_way_when_other_units_are_equal_and_free(world: World) -> None:
    a, b = neighbours(world)
    was = units(world, b)
    with world.work("physics") as work:
        quoted = extending.quote_extension(work, world.actor("physics-member"), a.id, HOUR, None)
    assert len(quoted.moves) == 1
    after = world.do("extend", a, by=HOUR, end=None)
    assert after.ends_at == a.ends_at + HOUR
    assert units(world, a) == was
    assert units(world, b).isdisjoint(was)
    moved = world.look(b)
    assert (moved.starts_at, moved.ends_at, moved.quoted, moved.state) == (b.starts_at, b.ends_at, b.quoted, "BOOKED")
    assert rows(world, "SELECT count(*) FROM hold_moves") == [(1,)]
    world.pass_time(2 * HOUR)
    assert world.look(b).state == "ACTIVE"


def test_case_46_with_nothing_else_free_it_says_until_when_and_changes_nothing(world: World) -> None:
    a, _ = neighbours(world)
    world.book("bio-member", project="atlas", start=at(1), units=1, duration="PT2H")
    before = every_row(world)
    with pytest.raises(Refused) as refused:
        world.do("extend", a, by=HOUR, end=None)
    assert codes(refused) == {"units_taken_after"}
    assert refused.value.refusal.reasons[0].limit == (START + HOUR).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert every_row(world) == before


def test_case_45_whoever_is_being_put_in_place_stays_and_the_refusal_says_so(world: World) -> None:
    a, b = neighbours(world)
    world.set_clock(START + timedelta(minutes=55))
    world.settle()
    assert world.look(b).state == "STARTING"
    before = every_row(world)
    with pytest.raises(Refused) as refused:
        world.do("extend", a, by=HOUR, end=None)
    assert "could give way" in refused.value.refusal.reasons[0].message
    assert every_row(world) == before


def test_case_47_over_quota_the_end_stays_and_the_reason_comes_before_it(world: World) -> None:
    world.set_limit("physics", hours=1)
    a = world.book(units=1, duration="PT1H")
    world.settle()
    before = every_row(world)
    with world.work("physics") as work, pytest.raises(Refused) as refused:
        extending.quote_extension(work, world.actor("physics-member"), a.id, HOUR, None)
    assert codes(refused) == {"quota_hours"}
    with pytest.raises(Refused):
        world.do("extend", a, by=HOUR, end=None)
    assert every_row(world) == before


def test_case_49_and_bug_2_what_was_booked_under_longer_rules_may_be_shortened_but_not_lengthened(world: World) -> None:
    from app.bookings import shrinking
    from app.bookings.shrinking import Kept

    a = world.book(units=1, duration="P3D")
    world.settle()
    (pool,) = rows(world, "SELECT name FROM pools")[0]
    world.set_policy(pool, max_length=8 * 3600)
    with pytest.raises(Refused) as refused:
        world.book(units=1, duration="PT9H")
    assert codes(refused) == {"too_long"}
    with pytest.raises(Refused) as refused:
        world.do("extend", a, by=HOUR, end=None)
    assert codes(refused) == {"too_long"}
    assert refused.value.status == 422
    after = world.do(shrinking.shrink, a, kept=Kept(end=a.ends_at - HOUR))
    assert after.ends_at == a.ends_at - HOUR


def test_case_77_what_was_booked_keeps_its_price_and_what_is_added_has_the_new_one(world: World) -> None:
    a = world.book(units=1, duration="PT1H")
    world.settle()
    assert a.quoted == Decimal("2.40")
    world.set_clock(START + HOUR / 2)
    with world.work() as work:
        pricing.publish_version(work, FINANCE, "standard", "CHF", world.now(), {H100: Decimal("3.00")}, "dearer")
    after = world.do("extend", a, by=HOUR, end=None)
    assert after.quoted == Decimal("5.40")
    world.pass_time(3 * HOUR)
    bill(world, a)
    charged = rows(world, "SELECT unit_price, sum(quantity) FROM charges GROUP BY 1 ORDER BY 1")
    assert charged == [(Decimal("2.40"), 3600 * 840), (Decimal("3.00"), 3600 * 840)]


def test_extend_and_a_stale_page_do_not_meet(world: World) -> None:
    a = world.book(units=1, duration="PT1H")
    world.do("extend", a, by=HOUR, end=None, version=a.version)
    before = every_row(world)
    with pytest.raises(Conflict):
        world.do("extend", a, by=HOUR, end=None, version=a.version)
    assert every_row(world) == before


def test_extended_by_a_lead_its_owner_is_told_by_whom(world: World) -> None:
    a = world.book(units=1, duration="PT1H")
    world.do("extend", a, "physics-lead", by=HOUR, end=None)
    assert rows(world, "SELECT payload ->> 'by' FROM outbox WHERE kind = 'booking_extended'") == [("physics-lead",)]
    world.do("extend", a, by=HOUR, end=None)
    assert rows(world, "SELECT count(*) FROM outbox WHERE kind = 'booking_extended'") == [(1,)]
