"""Layouts change only through a maintenance: whoever holds units of the GPUs is told, before and after it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from app.bookings import maintenance, queries_life
from app.bookings.maintenance import Impact, Plan
from app.inventory import actions_maintenance as announcing
from app.inventory import queries as inventory
from app.kernel.errors import Conflict, Invalid, Refused
from app.kernel.window import Window
from tests.world import FINANCE, H100, OPERATOR, START, NoQueue, World, make_world, nodes_csv

HOUR = timedelta(hours=1)
HALF = f"{H100}-3g.40gb"


@pytest.fixture
def world(database, tmp_path) -> Iterator[World]:
    made = make_world(database, tmp_path, csv=nodes_csv(2, gpus=2))
    yield made
    made.close()


def plan(layout: str = "0:3g.40gb*2", nodes: tuple[str, ...] = ("n0",), start: int = 12, **words: Any) -> Plan:
    window = Window(START + start * HOUR, START + (start + 2) * HOUR)
    return Plan("sim", "node", nodes, window, "Slices", "People need small ones.", words.pop("choices", {}), layout)


def do(world: World, wanted: Plan) -> Impact:
    with world.work() as work:
        digest = maintenance.preview(work, NoQueue(), OPERATOR, wanted).digest
    with world.work() as work:
        return maintenance.commit(work, NoQueue(), OPERATOR, wanted, digest)


def priced(world: World) -> None:
    from app.pricing import actions as pricing

    with world.work() as work:
        pricing.publish_version(
            work, FINANCE, "standard", "CHF", START + HOUR, {H100: Decimal(4), HALF: Decimal(4)}, "slices"
        )


def at(hour: float) -> str:
    return (START + hour * HOUR).isoformat()


def test_case_36_a_gpu_is_whole_before_and_slices_after(world: World) -> None:
    impact = do(world, plan())
    assert dict(impact.maintenance.layout) == {"n0": "0:3g.40gb*2"}
    priced(world)
    assert world.book(kind=H100, units=4, start=at(10), duration="PT2H").state == "BOOKED"
    with pytest.raises(Refused):
        world.book(kind=HALF, units=1, start=at(11), duration="PT1H")
    with pytest.raises(Refused):
        world.book(kind=HALF, units=1, start=at(13), duration="PT2H")
    half = world.book(kind=HALF, units=2, start=at(14), duration="PT2H")
    assert (half.state, half.quoted) == ("BOOKED", Decimal("6.86"))
    with pytest.raises(Refused):
        world.book(kind=H100, units=4, start=at(15), duration="PT1H")
    assert world.book(kind=H100, units=3, start=at(15), duration="PT1H").state == "BOOKED"
    world.pass_time(15 * HOUR)
    world.settle()
    assert world.look(half).state == "ACTIVE"


def test_what_is_booked_on_the_gpu_after_the_work_is_concerned_too_and_only_that_gpu(world: World) -> None:
    later = world.book(kind=H100, units=4, start=at(30), duration="PT1H")
    small = [world.book(kind=H100, units=1, start=at(40), duration="PT1H") for _ in range(2)]
    fates = {f.booking.id: f.done for f in do(world, plan()).fates}
    assert fates == {later.id: "cancel", small[0].id: "move"}
    assert world.look(later).state == "CANCELLED"
    assert {world.look(b).state for b in small} == {"BOOKED"}
    with world.work("physics") as work:
        told = work.pg.execute(
            "SELECT a.name, o.payload->>'why', o.payload->>'by' FROM outbox o JOIN accounts a ON a.id = o.account_id"
            " WHERE o.booking_id = %s AND o.kind = 'booking_cancelled' ORDER BY a.name",
            [later.id],
        ).fetchall()
    why = "Slices: People need small ones."
    assert told == [("physics-lead", why, OPERATOR.label), ("physics-member", why, OPERATOR.label)]


def test_units_of_the_layout_to_come_are_not_taken_for_those_that_go(world: World) -> None:
    one = do(world, plan()).maintenance
    priced(world)
    slices = world.book(kind=HALF, units=2, start=at(14), duration="PT2H")
    before = world.book(kind=H100, units=4, start=at(10), duration="PT2H")

    def ails() -> set:
        with world.work() as work, work.read_all():
            return {a.booking_id for a in queries_life.ailing(work, world.cluster_id, world.now())}

    assert ails() == set()
    with world.work() as work:  # nobody may do this; if it happens it is seen
        work.pg.execute("UPDATE slots SET valid = tstzrange(lower(valid), %s) WHERE kind = %s", [one.end + HOUR, HALF])
    assert ails() == {slices.id}
    assert before.state == "BOOKED"


def test_a_preview_leaves_no_slot_and_what_cannot_be_is_said(world: World) -> None:
    def slots() -> list:
        with world.work() as work:
            return work.pg.execute("SELECT id, positions::text, valid::text, kind FROM slots ORDER BY id").fetchall()

    before = slots()
    with world.work() as work:
        maintenance.preview(work, NoQueue(), OPERATOR, plan())
    assert slots() == before
    for layout, said in (("0:4g.40gb*2", "do not fit"), ("5:3g.40gb", "no GPU 5"), ("whole", "cut like that already")):
        with world.work() as work, pytest.raises(Invalid, match=said):
            maintenance.preview(work, NoQueue(), OPERATOR, plan(layout))


def test_called_off_the_gpu_stays_whole_unless_slices_are_booked(world: World) -> None:
    one = do(world, plan()).maintenance
    priced(world)
    booked = world.book(kind=HALF, units=1, start=at(14), duration="PT1H")
    with world.work() as work, pytest.raises(Conflict, match="booked already"):
        announcing.call_off(work, OPERATOR, one.id, one.version)
    world.do("cancel", booked)
    with world.work() as work:
        announcing.call_off(work, OPERATOR, one.id, one.version)
    assert world.book(kind=H100, units=4, start=at(11), duration="PT6H").state == "BOOKED"
    with pytest.raises(Refused):
        world.book(kind=HALF, units=1, start=at(14), duration="PT1H")


def test_it_can_be_made_whole_again_later_and_two_changes_do_not_cross(world: World) -> None:
    do(world, plan())
    with world.work() as work, pytest.raises(Conflict, match="Another layout"):
        maintenance.preview(work, NoQueue(), OPERATOR, plan("0:1g.10gb*7", start=10))
    do(world, plan("0:whole", start=30))
    priced(world)
    assert world.book(kind=H100, units=4, start=at(32), duration="PT1H").state == "BOOKED"
    assert world.book(kind=HALF, units=2, start=at(14), duration="PT16H").state == "BOOKED"
    with pytest.raises(Refused):
        world.book(kind=HALF, units=1, start=at(20), duration="PT15H")
    with world.work() as work:
        pools = inventory.pools_for(work)
        whole = next(c for c in inventory.capacity_of(work, pools).values() if c.kind == H100)
    assert [len(n.units) for n in whole.nodes] == [2, 2], "one unit, whichever layout it is of"
