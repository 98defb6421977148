"""What a look at a cluster shows beside units and states, from the simulated cluster to a booking."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from app.bookings import queries, queries_edits
from app.inventory import queries as inventory
from app.kernel.errors import Refused
from tests.world import START, World, make_world, nodes_csv

HOUR = timedelta(hours=1)


@pytest.fixture
def world(database, tmp_path) -> Iterator[World]:
    made = make_world(database, tmp_path, csv=nodes_csv(2))
    yield made
    made.close()


def at(hour: float) -> str:
    return (START + hour * HOUR).isoformat()


def place(world: World, booking) -> list[tuple[str, tuple[tuple[int, int], ...]]]:
    with world.plumbing.database.work(booking.tenant_id) as work:
        return [(h.node, h.ranges) for h in queries.holds_of(work, booking.id) if h.live]


def test_case_38_units_whose_share_of_cpu_is_taken_by_others_are_given_to_nobody(world: World) -> None:
    world.backend.faults.foreign_job("n0", (), what="a compile farm", id="farm", cpu_milli=72_000)
    world.sync()
    elsewhere = world.book(start=at(10), units=8, within="node", duration="PT1H")
    assert [node for node, _ in place(world, elsewhere)] == ["n1"], "n0 has cores for 2 GPUs"
    with pytest.raises(Refused) as refused:
        world.book(start=at(10), units=3, duration="PT1H")
    (reason,) = refused.value.refusal.reasons
    assert (reason.code, reason.limit) == ("no_units_free", "2 units")
    assert world.book(start=at(10), units=2, duration="PT1H").state == "BOOKED"
    world.backend.faults.foreign_ends("farm")
    world.pass_time(timedelta(minutes=2))
    world.sync()
    assert world.book(start=at(10), units=6, duration="PT1H").state == "BOOKED"


def test_case_38_memory_of_a_job_counts_beyond_the_share_of_its_own_gpus_and_until_its_limit(world: World) -> None:
    until = START + 5 * HOUR
    world.backend.faults.foreign_job("n0", (0, 1), until, "a big job", cpu_milli=12_000, memory_mib=1048576 // 2)
    world.sync()
    with pytest.raises(Refused):
        world.book(start=at(1), units=13, duration="PT1H")
    assert world.book(start=at(1), units=12, duration="PT1H").state == "BOOKED", "2 are its own, 2 have no memory"
    assert world.book(start=at(5), units=16, duration="PT1H").state == "BOOKED"


def test_use_of_cores_alone_is_nothing_to_claim_and_no_use_of_units(world: World) -> None:
    world.backend.faults.foreign_job("n0", (), what="a compile farm", who="mia", cpu_milli=1_000)
    world.sync()
    with world.work() as work:
        assert queries_edits.uses(work, None, [(world.cluster_id, "mia")]) == ()
        (n0, _) = inventory.nodes_now(work)
    assert (n0.external, n0.free) == (0, 8)


def test_case_65_a_swapped_card_keeps_the_slot_its_bookings_and_both_serials(world: World) -> None:
    booking = world.book(start=at(10), units=8, within="node", duration="PT1H")
    ((node, before),) = place(world, booking)

    def cards() -> list[tuple[str, object, object]]:
        with world.work() as work:
            return work.pg.execute(
                """SELECT d.uuid, d.since, d.until FROM devices d JOIN slots s ON s.id = d.slot_id JOIN nodes n ON n.id = s.node_id
                    WHERE n.name = %s AND s.gpu = n.first_gpu + 3 ORDER BY d.since""",
                [node],
            ).fetchall()

    ((old, since, until),) = cards()
    assert until is None
    swapped = world.pass_time(2 * HOUR)
    world.backend.faults.card_swapped(node, 3)
    world.sync()
    first, second = cards()
    assert first == (old, since, swapped)
    assert (second[1], second[2]) == (swapped, None)
    assert second[0] != old
    assert place(world, booking) == [(node, before)]
    assert world.look(booking).state == "BOOKED"
    with world.work() as work:
        assert work.pg.execute("SELECT count(*) FROM slots").fetchone()[0] == 16
