"""Whose a booking is and who may enter it; limits and charges follow from the second of a hand-over."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

import pytest

from app.backends.contract import Access
from app.bookings import sharing
from app.bookings.access import ways_in
from app.kernel.errors import Conflict, Forbidden, Refused
from tests.bookings.shelf import bill, codes, every_row, rows
from tests.world import START, World, make_world, nodes_csv

HOUR = timedelta(hours=1)


@pytest.fixture
def world(database, tmp_path) -> Iterator[World]:
    made = make_world(database, tmp_path, csv=nodes_csv(1))
    yield made
    made.close()


def enters(world: World, booking, person: str) -> bool:
    return isinstance(ways_in(world.plumbing, world.look(booking), world.people[person]), Access)


def test_only_its_owner_and_leads_enter_until_it_is_shared_and_after_it_is_not_any_more(world: World) -> None:
    a = world.book("physics-lead", units=2, duration="PT4H")
    world.settle()
    assert enters(world, a, "physics-lead")
    assert not enters(world, a, "physics-member")
    world.do(sharing.share, a, "physics-lead", shared=True)
    world.settle()
    assert enters(world, a, "physics-member")
    assert not enters(world, a, "physics-viewer")
    world.do(sharing.share, a, "physics-lead", shared=False)
    world.settle()
    assert not enters(world, a, "physics-member")
    assert rows(world, "SELECT event FROM history WHERE event LIKE '%%share' ORDER BY seq") == [
        ("share",),
        ("unshare",),
    ]


def test_handed_over_what_was_charged_before_stays_and_limits_move(world: World) -> None:
    member, lead = world.people["physics-member"], world.people["physics-lead"]
    world.set_limit("physics", hours=100, account_id=member)
    world.set_limit("physics", hours=100, account_id=lead)
    a = world.book(units=2, duration="PT4H")
    world.settle()
    world.set_clock(START + HOUR)
    with world.work("physics") as work:
        plan = sharing.quote_hand_over(work, world.actor("physics-member"), a.id, lead)
    assert [(e.before, e.after) for e in plan.effects] == [(0, 6 * 3600 * 840)]
    after = world.do(sharing.hand_over, a, to=lead)
    assert (after.account_id, after.booked_by) == (lead, "physics-lead")
    held = "SELECT s.account_id, sum(c.quantity) FROM commitments c JOIN scopes s ON s.id = c.scope_id GROUP BY 1"
    assert dict(rows(world, held)) == {member: 2 * 3600 * 840, lead: 6 * 3600 * 840}
    world.settle()
    assert enters(world, a, "physics-lead")
    assert not enters(world, a, "physics-member")
    world.pass_time(4 * HOUR)
    bill(world, a)
    assert dict(rows(world, "SELECT person, sum(quantity) FROM charges GROUP BY 1")) == {
        "physics-member": Decimal(2 * 3600 * 840),
        "physics-lead": Decimal(6 * 3600 * 840),
    }
    told = rows(world, "SELECT account_id, kind FROM outbox WHERE kind LIKE 'booking_handed%%'")
    assert told == [(lead, "booking_handed_to_you")]


def test_nobody_is_handed_one_that_may_not_book_or_whose_limit_it_would_pass(world: World) -> None:
    world.set_limit("physics", hours=1, account_id=world.people["physics-lead"])
    a = world.book(units=2, duration="PT4H")
    before = every_row(world)
    with pytest.raises(Refused) as refused:
        world.do(sharing.hand_over, a, to=world.people["physics-viewer"])
    assert codes(refused) == {"no_member"}
    with pytest.raises(Refused) as refused:
        world.do(sharing.hand_over, a, to=world.people["physics-lead"])
    assert codes(refused) == {"quota_hours"}
    with pytest.raises(Refused):
        world.do(sharing.hand_over, a, to=world.people["bio-member"])
    with pytest.raises(Conflict):
        world.do(sharing.hand_over, a, to=world.people["physics-member"])
    with pytest.raises(Forbidden):
        world.do(sharing.share, a, "physics-viewer", shared=True)
    with pytest.raises(Conflict):
        world.do(sharing.share, a, shared=True, version=a.version + 1)
    assert every_row(world) == before
