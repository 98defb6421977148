"""Where the capacity went: every second of every unit in exactly one part."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import uuid4

from hypothesis import given, settings
from hypothesis import strategies as st

from app.billing import queries
from app.billing.capacity import PARTS, Claim, Installed, where_it_went
from app.kernel.window import Window
from tests.billing.world import NOW, World, hours

START = datetime(2026, 3, 1, tzinfo=UTC)
HOUR = 3600 * 840


def second(n: int) -> datetime:
    return START + timedelta(seconds=n)


CLAIMS = st.lists(
    st.tuples(st.sampled_from(PARTS), st.integers(0, 3), st.integers(1, 2), st.integers(0, 30), st.integers(1, 30)),
    max_size=8,
)


@settings(deadline=None)
@given(CLAIMS, st.lists(st.tuples(st.integers(0, 10), st.integers(11, 60)), min_size=4, max_size=4))
def test_each_second_of_each_unit_is_in_the_first_part_that_claims_it(claims, spans):
    slots = [Installed("k", 64 * g, 64 * g + 64, Window(second(a), second(b)), 840) for g, (a, b) in enumerate(spans)]
    made = [
        Claim(part, 64 * gpu, 64 * (gpu + count), Window(second(start), second(start + length)))
        for part, gpu, count, start, length in claims
    ]
    expected = dict.fromkeys((*PARTS, "free"), 0)
    for gpu, (first, last) in enumerate(spans):
        for now in range(first, last):
            here = {p for p, g, n, s, length in claims if g <= gpu < g + n and s <= now < s + length}
            expected[next((p for p in PARTS if p in here), "free")] += 840
    found = where_it_went(slots, made, {})["k"]
    assert found.parts == expected
    assert found.installed == sum(found.parts.values()) == 840 * sum(b - a for a, b in spans)


def test_slices_are_claimed_by_their_positions():
    window = Window(second(0), second(10))
    slots = [Installed("k", 8 * n, 8 * n + 8, window, 120) for n in range(7)]
    found = where_it_went(slots, [Claim("reserved", 8, 24, window)], {"k": (600, 300)})["k"]
    assert (found.parts["reserved"], found.used, found.unused, found.unknown) == (2400, 600, 300, 1500)
    assert found.parts["free"] == 5 * 1200


def test_more_use_than_was_reserved_is_never_shown():
    window = Window(second(0), second(10))
    slots = [Installed("k", 0, 64, window, 840)]
    found = where_it_went(slots, [Claim("reserved", 0, 64, window)], {"k": (9000, 100)})["k"]
    assert (found.used, found.unused, found.unknown) == (8400, 0, 0)


def test_the_month_of_a_small_cluster_adds_up(world: World):
    first, second_node = world.add_node(), world.add_node()
    # 8 units x 24 h = 384 unit-hours on two nodes
    booking = world.add_booking(NOW, hours(10), units=4, provided_at=hours(1), released_at=hours(6), state="ENDING")
    world.owner.execute("UPDATE bookings SET emptied_at = %s WHERE id = %s", [hours(6.5), booking])
    tenant, project = world.add_tenant("bio", "Bio Lab")
    world.add_booking(hours(2), hours(4), units=2, first=4, provided_at=hours(2), tenant=tenant, project=project)
    world.owner.execute(
        "INSERT INTO usage VALUES (%s, %s, %s, %s, %s, %s, %s, NULL)",
        [world.tenant, booking, hours(1), hours(2), 3 * HOUR, HOUR, 0],
    )
    world.owner.execute(
        "INSERT INTO unit_faults (node_id, gpu, since, until, why) VALUES (%s, 7, %s, NULL, 'XID 79')",
        [first, hours(20)],
    )
    for state, since, until in (("drained", 0, 3), ("down", 5, 6)):
        world.owner.execute(
            "INSERT INTO node_outages (node_id, state, since, until) VALUES (%s, %s, %s, %s)",
            [second_node, state, hours(since), hours(until)],
        )
    world.owner.execute(
        """INSERT INTO external_use (node_id, units, since, ended_at, seen_at, what)
           VALUES (%s, '{[512,640)}', %s, %s, %s, 'slurm')""",
        [second_node, hours(2), hours(4), hours(4)],
    )
    with world.work() as work, work.read_all():
        kinds, names = queries.capacity(work, Window(NOW, hours(24)))
    found = kinds["h100"]
    assert names["h100"] == "H100"
    assert found.installed // HOUR == 16 * 24
    assert {part: quantity / HOUR for part, quantity in found.parts.items()} == {
        "reserved": 4 * 5 + 2 * 2,
        "maintenance": 8 * 3,
        "failed": 4 * 1 + 4 * 0.5 + 1 * 4 + 8 * 1,  # before provision, until empty, the fault, the node
        "external": 2 * 1,  # the other hour is maintenance
        "free": 16 * 24 - (24 + 24 + 18 + 2),
    }
    assert (found.used // HOUR, found.unused // HOUR, found.unknown // HOUR) == (3, 1, 20)


def test_a_cluster_that_is_not_billed_is_not_counted(world: World):
    world.add_node()
    world.owner.execute("UPDATE clusters SET billed = false")
    with world.work() as work, work.read_all():
        assert queries.capacity(work, Window(NOW, hours(1)))[0] == {}


def test_running_time_that_is_not_metered_yet_is_told(world: World):
    world.add_node()
    second = world.add_price("h100", "2.50", hours(20), NOW)
    prices = [(NOW, hours(20), world.price, "2.00"), (hours(20), hours(40), second, "2.50")]
    booking = world.add_booking(NOW, hours(40), units=2, provided_at=hours(1), prices=prices)
    world.add_booking(hours(10), hours(50), first=4, state="BOOKED")
    with world.work() as work:
        assert queries.not_charged_yet(work, [world.tenant], NOW) == []
        assert queries.not_charged_yet(work, [world.tenant], hours(22)) == [
            (world.tenant, 1, "CHF", Decimal("86.00"))  # 2 units: 19 h at 2.00 and 2 h at 2.50
        ]
    world.set_booking(booking, metered_until=hours(15), released_at=hours(21), state="ENDING")
    with world.work() as work:
        assert queries.not_charged_yet(work, [world.tenant], hours(22)) == [(world.tenant, 1, "CHF", Decimal("25.00"))]


def test_contradictions_are_listed_with_the_money_in_question(world: World):
    world.add_node()
    booking = world.add_booking(NOW, hours(2), units=2, provided_at=NOW)
    world.owner.execute(
        """INSERT INTO interval_conflicts (tenant_id, id, booking_id, at, units, during, evidence)
           VALUES (%s, %s, %s, %s, '{[0,256)}', tstzrange(%s, %s), %s)""",
        [world.tenant, uuid4(), booking, NOW, NOW, hours(1), f'{{"quantity": {4 * HOUR}}}'],
    )
    with world.work() as work:
        ((_, number, window, money, currency),) = queries.contradictions(work, [world.tenant], Window(NOW, hours(9)))
    assert (number, window, str(money), currency) == (1, Window(NOW, hours(1)), "8.00", "CHF")
