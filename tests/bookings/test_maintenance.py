"""Maintenance: the impact first, one step, and nothing on the nodes while it lasts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from app.bookings import maintenance
from app.bookings.maintenance import Impact, Plan
from app.inventory import actions_maintenance as announcing
from app.inventory.queries_maintenance import maintenances
from app.kernel.errors import Conflict, Forbidden, Invalid, Refused
from app.kernel.window import Window
from tests.world import OPERATOR, START, NoQueue, World, make_world, nodes_csv

HOUR = timedelta(hours=1)


@pytest.fixture
def world(database, tmp_path) -> Iterator[World]:
    made = make_world(database, tmp_path, csv=nodes_csv(2))
    yield made
    made.close()


def plan(nodes: tuple[str, ...] = ("n0",), start: int = 12, hours: int = 4, **words: Any) -> Plan:
    window = Window(START + start * HOUR, START + (start + hours) * HOUR)
    return Plan("sim", words.pop("level", "node"), nodes, window, "New fans", "They are loud.", **words)


def look(world: World, wanted: Plan) -> Impact:
    with world.work() as work:
        return maintenance.preview(work, NoQueue(), OPERATOR, wanted)


def do(world: World, wanted: Plan, digest: str | None = None) -> Impact:
    digest = digest or look(world, wanted).digest
    with world.work() as work:
        return maintenance.commit(work, NoQueue(), OPERATOR, wanted, digest)


def on(world: World, booking) -> set[str]:
    from app.bookings import queries

    with world.plumbing.database.work(booking.tenant_id) as work:
        return {h.node for h in queries.holds_of(work, booking.id) if h.live}


def crossing(world: World, wanted: Plan) -> int:
    """Live holds on the nodes while the work lasts."""
    with world.work() as work:
        return work.pg.execute(
            """SELECT count(*) FROM holds h JOIN nodes n ON n.id = h.node_id
                WHERE n.name = ANY(%s) AND h.live AND h.during && tstzrange(%s, %s)""",
            [list(wanted.nodes), wanted.window.start, wanted.window.end],
        ).fetchone()[0]


def at(hour: float) -> str:
    return (START + hour * HOUR).isoformat()


def test_case_59_a_booking_goes_to_other_nodes_is_shortened_or_cancelled_and_nothing_crosses(world: World) -> None:
    moves = world.book(start=at(13), units=8, within="node", duration="PT1H")
    assert on(world, moves) == {"n0"}
    impact = do(world, plan())
    (fate,) = impact.fates
    assert (fate.done, fate.left, fate.took) == ("move", ("n0",), ("n1",))
    assert on(world, moves) == {"n1"}
    assert world.look(moves).window == moves.window
    assert crossing(world, plan()) == 0


def test_what_cannot_go_elsewhere_is_shortened_to_the_beginning_of_the_work_and_costs_less(world: World) -> None:
    both = world.book(start=at(10), nodes=2, per_node=8, duration="PT4H")
    (fate,) = look(world, plan()).fates
    assert (fate.done, fate.possible) == ("shorten", ("shorten", "cancel"))
    assert fate.back == both.quoted / 2
    do(world, plan())
    after = world.look(both)
    assert (after.ends_at, after.quoted) == (START + 12 * HOUR, both.quoted / 2)
    assert crossing(world, plan()) == 0


def test_an_active_booking_is_shortened_and_runs_until_then(world: World) -> None:
    running = world.book(units=8, within="node", duration="PT20H")
    world.settle()
    assert world.look(running).state == "ACTIVE"
    nodes = tuple(on(world, running))
    (fate,) = do(world, plan(nodes)).fates
    assert fate.done == "shorten"
    world.pass_time(13 * HOUR)
    ended = world.look(running)
    assert (ended.state, ended.outcome, ended.released_at) == ("ENDED", "completed", START + 12 * HOUR)


def test_the_operator_chooses_otherwise_and_only_what_is_possible(world: World) -> None:
    booking = world.book(start=at(13), units=8, within="node", duration="PT1H")
    with pytest.raises(Invalid, match="cannot be shortened"):
        look(world, plan(choices={booking.label: "shorten"}))
    with pytest.raises(Invalid, match="B-999999 has no units"):
        look(world, plan(choices={"B-999999": "cancel"}))
    do(world, plan(choices={booking.label: "cancel"}))
    assert world.look(booking).state == "CANCELLED"
    with world.work("physics") as work:
        told = work.pg.execute(
            "SELECT kind, payload->>'why' FROM outbox WHERE booking_id = %s", [booking.id]
        ).fetchall()
    assert ("booking_cancelled", "New fans: They are loud.") in told


def test_a_preview_changes_nothing_and_a_commit_after_a_change_fails(world: World) -> None:
    world.book(start=at(13), units=8, within="node", duration="PT1H")

    def state() -> list:
        with world.work() as work:
            return work.pg.execute("SELECT id, node_id, live, during::text FROM holds ORDER BY id").fetchall()

    before = state()
    seen = look(world, plan())
    assert state() == before
    assert look(world, plan()).digest == seen.digest, "the same world, the same digest"
    world.book("bio-member", project="atlas", start=at(13), units=8, duration="PT1H")  # takes the spare node
    before = state()
    with pytest.raises(Conflict) as conflict:
        do(world, plan(), seen.digest)
    assert conflict.value.code == "world_changed"
    assert state() == before
    with world.work() as work:
        assert maintenances(work) == ()


def test_case_60_later_bookings_go_around_it_however_far_it_is(world: World) -> None:
    far = plan(start=9 * 24)
    do(world, far)
    assert on(world, world.book(start=at(9 * 24 + 1), units=8, within="node")) == {"n1"}
    with pytest.raises(Refused):
        world.book(start=at(9 * 24 - 1), nodes=2, per_node=8, duration="PT2H")
    long = world.quote(nodes=2, per_node=8, start="asap", earliest=at(9 * 24 - 1), duration="PT2H")
    assert long.offer.window.start == far.window.end
    early = world.book(start=at(9 * 24 - 2), units=8, within="node", duration="PT1H")
    with pytest.raises(Refused):
        world.do(
            "extend",
            world.book(start=at(9 * 24 - 2), units=8, within="node", duration="PT1H"),
            end=far.window.end,
            by=None,
        )
    assert early.state == "BOOKED"


def test_called_off_the_nodes_are_capacity_again(world: World) -> None:
    made = do(world, plan(("n0", "n1"))).maintenance
    with pytest.raises(Refused):
        world.book(start=at(13), units=1)
    with world.work() as work:
        announcing.call_off(work, OPERATOR, made.id, made.version)
    assert world.book(start=at(13), units=1).state == "BOOKED"
    with world.work() as work, pytest.raises(Conflict):
        announcing.call_off(work, OPERATOR, made.id)


def test_two_bookings_do_not_take_the_same_spare(world: World) -> None:
    one, two = (world.book(start=at(13), units=6, within="node", duration="PT1H") for _ in range(2))
    wanted = plan(tuple(on(world, one)))
    fates = do(world, wanted).fates
    assert len(fates) == 1
    assert fates[0].done == "cancel", "the other node has two units left"
    assert world.look(two).state == "BOOKED"


def test_bug_report_6_a_window_longer_than_the_view_is_no_trouble(world: World) -> None:
    do(world, plan(start=24, hours=24 * 5))
    assert on(world, world.book(start=at(48), units=8, within="node")) == {"n1"}
    before = world.book(start=at(22), nodes=2, per_node=8, duration="PT2H")
    assert before.ends_at == START + 24 * HOUR


def test_only_operators_and_only_what_is_there(world: World) -> None:
    with world.work("physics") as work, pytest.raises(Forbidden):
        maintenance.preview(work, NoQueue(), world.actor("physics-lead"), plan())
    with pytest.raises(Invalid, match="no node called n9"):
        look(world, plan(("n0", "n9")))
    with pytest.raises(Invalid, match="over already"):
        look(world, plan(start=-5, hours=2))
    assert len(look(world, plan(("r0",), level="rack")).maintenance.nodes) == 2
