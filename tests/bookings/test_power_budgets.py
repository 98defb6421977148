"""Power budgets: set by operators, kept by whatever adds a hold, and said in a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from app.bookings import maintenance, queries
from app.bookings.maintenance import Plan
from app.inventory.actions_power import set_budget
from app.kernel.errors import Forbidden, Invalid, Refused
from app.kernel.window import Window
from app.plumbing.db import Work
from tests.world import OPERATOR, START, NoQueue, World, make_world, nodes_csv

HOUR = timedelta(hours=1)


@pytest.fixture
def world(database, tmp_path) -> Iterator[World]:
    """Racks r0 (n0, n1) and r1 (n2, n3); a GPU draws 700 W."""
    made = make_world(database, tmp_path, csv=nodes_csv(4))
    yield made
    made.close()


def budget(world: World, watts: int | None, name: str = "r0", level: str = "rack") -> None:
    with world.work() as work:
        set_budget(work, OPERATOR, "sim", level, name, watts)


def at(hour: float) -> str:
    return (START + hour * HOUR).isoformat()


def refused(world: World, **ask) -> str:
    with pytest.raises(Refused) as caught:
        world.book(**ask)
    assert [r.code for r in caught.value.refusal.reasons] == ["power_short"], caught.value.refusal.reasons
    (reason,) = caught.value.refusal.reasons
    return f"{reason.message} {reason.limit} {reason.asked}"


def test_bookings_go_where_power_is_and_a_refusal_says_limit_and_asked(world: World) -> None:
    budget(world, 5600)
    budget(world, 8400, "r1")
    one = world.book(start=at(10), units=8, within="rack", duration="PT1H")
    two = world.book(start=at(10), units=8, within="rack", duration="PT1H")
    assert {one.state, two.state} == {"BOOKED"}
    said = refused(world, start=at(10), units=8, within="rack", duration="PT1H")
    assert "rack r1 may draw 8,400 W, of which 5,600 W are promised then, and 8 units" in said
    assert said.endswith("8400 W 5600 W")
    assert world.book(start=at(11), units=8, within="rack", duration="PT1H").state == "BOOKED", "later there is power"
    assert world.book(start=at(10), units=4, within="rack", duration="PT1H").state == "BOOKED", "what is left of r1"
    soon = world.quote(start="asap", earliest=at(10), units=8, within="rack", duration="PT1H")
    assert soon.offer.window.start == START + 11 * HOUR


def test_a_cluster_has_one_budget_for_all_its_racks_and_taking_it_away_gives_all_back(world: World) -> None:
    budget(world, 7000, "", "cluster")
    world.book(start=at(10), units=8, duration="PT1H")
    assert "sim may draw 7,000 W" in refused(world, start=at(10), units=4, duration="PT1H")
    assert world.book(start=at(10), units=2, duration="PT1H").state == "BOOKED"
    budget(world, None, "", "cluster")
    assert world.book(start=at(10), units=8, duration="PT1H").state == "BOOKED"


def test_an_extension_and_a_move_keep_to_the_budget(world: World) -> None:
    budget(world, 11_200, "", "cluster")
    early = world.book(start=at(10), units=8, within="node", duration="PT1H")
    world.book("bio-member", project="atlas", start=at(11), units=16, duration="PT1H")
    with pytest.raises(Refused) as caught:
        world.do("extend", early, end=START + 12 * HOUR, by=None)
    assert "power_short" in {r.code for r in caught.value.refusal.reasons}
    assert world.look(early).ends_at == START + 11 * HOUR


def test_what_a_booking_draws_is_given_up_when_it_goes_elsewhere(world: World) -> None:
    budget(world, 5600)
    budget(world, 1, "r1")
    booking = world.book(start=at(10), units=8, within="node", duration="PT1H")
    with world.plumbing.database.work(booking.tenant_id) as work:
        (held,) = queries.holds_of(work, booking.id)
    other = {"n0": "n1", "n1": "n0"}[held.node]
    window = Window(START + 10 * HOUR, START + 11 * HOUR)
    with world.work() as work:
        plan = Plan("sim", "node", (held.node,), window, "New fans", "")
        (fate,) = maintenance.preview(work, NoQueue(), OPERATOR, plan).fates
    assert (fate.done, fate.took) == ("move", (other,)), "rack r0 feeds one node at a time, and it is the only one"


def test_a_budget_is_of_what_is_there_and_known_and_for_operators(world: World) -> None:
    with pytest.raises(Invalid, match="no rack called r9"):
        budget(world, 5600, "r9")
    with world.work("physics") as work, pytest.raises(Forbidden):
        set_budget(work, world.actor("physics-lead"), "sim", "rack", "r0", 1)
    with world.work() as work:
        work.pg.execute("UPDATE nodes SET power_watts = NULL WHERE name = 'n0'")
        work.pg.execute("UPDATE kinds SET node_kw = NULL, tdp_watts = NULL")
    with pytest.raises(Invalid, match="Nobody knows what n0 draw"):
        budget(world, 5600)


def test_without_a_budget_nothing_is_asked_and_with_one_its_lock_comes_before_the_pools(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    together = Work.together

    def spy(work: Work, *statements):
        seen.extend(sql for sql, _ in statements)
        return together(work, *statements)

    monkeypatch.setattr(Work, "together", spy)
    world.book(units=1, start=at(10))
    assert seen
    assert not any("power_budgets" in sql for sql in seen)
    budget(world, 50_000, "", "cluster")
    seen.clear()
    world.book(units=1, start=at(10))
    locks = [sql for sql in seen if "power_budgets" in sql or "FOR NO KEY UPDATE OF p" in sql]
    assert ["power_budgets" in sql for sql in locks] == [True, False]
