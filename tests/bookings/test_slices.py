"""Slices from the list of nodes to the bill: units of their own kind, on GPUs that nobody gets whole meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

import pytest
from fastapi.testclient import TestClient

from app import rounds
from app.accounts import actions as tokens
from app.backends.contract import Ref, Slice
from app.bookings import queries
from app.inventory import actions as inventory
from app.inventory import queries as inventory_queries
from app.inventory.rules import NodesRefused
from app.kernel.errors import Refused
from tests.bookings.test_pages import FORM, People, text_of
from tests.world import H100, OPERATOR, START, World, make_world

HOUR = timedelta(hours=1)
HALF = f"{H100}-3g.40gb"
CSV = f"""name,kind,gpus,layout
n0,{H100},2,0:3g.40gb+3g.40gb
n1,{H100},2,
"""


@pytest.fixture
def world(database, tmp_path) -> Iterator[World]:
    made = make_world(database, tmp_path, csv=CSV, prices={H100: Decimal(4), HALF: Decimal("4.20")})
    yield made
    made.close()


def at(hour: float) -> str:
    return (START + hour * HOUR).isoformat()


def test_slices_are_units_of_a_kind_of_their_own_with_a_pool(world: World) -> None:
    with world.work() as work:
        pools = {p.kind: p for p in inventory_queries.pools_for(work)}
        capacity = inventory_queries.capacity_of(work, pools.values())
        half = inventory_queries.kinds(work)[HALF]
    assert {kind: (p.slice_of, p.share840) for kind, p in pools.items()} == {H100: (None, 840), HALF: (H100, 360)}
    units = {kind: {n.name: n.units for n in capacity[p.id].nodes} for kind, p in pools.items()}
    assert {name: len(u) for name, u in units[H100].items()} == {"n0": 1, "n1": 2}
    (n0,) = units[HALF].values()
    first = n0[0][0]
    assert n0 == ((first, first + 32), (first + 32, first + 64))
    assert (half.memory_gb, half.share840) == (40, 360)


def test_case_36_a_gpu_of_which_a_slice_is_booked_is_not_given_whole(world: World) -> None:
    world.book(kind=HALF, units=1, start=at(10), duration="PT2H")
    with pytest.raises(Refused) as refused:
        world.book(kind=H100, units=4, start=at(11), duration="PT2H")
    (reason,) = refused.value.refusal.reasons
    assert (reason.code, reason.limit) == ("too_many_units", "3 units")
    whole = world.book(kind=H100, units=3, start=at(11), duration="PT2H")
    assert whole.state == "BOOKED", "the GPUs that are not cut"
    assert world.book(kind=HALF, units=1, start=at(11), duration="PT2H").state == "BOOKED"
    with pytest.raises(Refused):
        world.book(kind=HALF, units=1, start=at(11), duration="PT1H")


def test_a_slice_costs_and_counts_its_share(world: World) -> None:
    world.set_limit("physics", units=1)
    quote = world.quote(kind=HALF, units=2, start=at(10), duration="PT1H")
    assert quote.offer.cost.amount == Decimal("3.60"), "2 slices x 3/7 x 4.20"
    booking = world.book(kind=HALF, units=2, start=at(10), duration="PT1H")
    assert (booking.share840, booking.quoted) == (360, Decimal("3.60"))
    with pytest.raises(Refused) as refused:
        world.book(kind=H100, units=1, start=at(10), duration="PT1H")
    assert "quota" in refused.value.refusal.reasons[0].code


def test_any_kind_is_a_whole_gpu_and_a_slice_is_no_alternative_to_one(world: World) -> None:
    assert world.quote(kind="any", units=1, start=at(10), duration="PT1H").offer.pool.kind == H100
    with pytest.raises(Refused) as refused:
        world.book(kind=H100, units=4, start=at(10), duration="PT1H")
    assert all(a.request["kind"] == H100 for a in refused.value.refusal.alternatives)


def test_a_slice_is_given_on_the_cluster_used_measured_and_charged(world: World) -> None:
    booking = world.book(kind=HALF, units=2, start=at(1), duration="PT2H")
    other = world.book(kind=H100, units=1, start=at(1), duration="PT2H")
    world.pass_time(HOUR + timedelta(minutes=10))
    world.settle()
    assert (world.look(booking).state, world.look(other).state) == ("ACTIVE", "ACTIVE")
    with world.plumbing.database.work(booking.tenant_id) as work:
        (held,) = queries.holds_of(work, booking.id)
        allocation = queries.allocation_of(work, booking.id)
    assert (held.width, len(held.units), held.local_gpus) == (32, 2, (0,))
    seen = world.backend.observe(Ref(allocation.name))
    assert [(p.node, p.gpus, p.slices) for p in seen.places] == [("n0", (), (Slice(0, 0, 4), Slice(0, 4, 4)))]
    world.pass_time(2 * HOUR)
    world.settle()
    ended = world.look(booking)
    assert (ended.state, ended.outcome) == ("ENDED", "completed")
    world.pass_time(HOUR)
    rounds.do_all(world.plumbing)
    with world.plumbing.database.work(booking.tenant_id) as work:
        assert queries.charged(work, [booking.id, other.id]) == {booking.id: Decimal("7.20"), other.id: Decimal("8.00")}
        measured = work.pg.execute("SELECT DISTINCT gpus FROM samples WHERE booking_id = %s", [booking.id]).fetchall()
    assert measured == [([0],)], "one GPU, whose slices are measured together"


def test_how_gpus_are_cut_changes_only_by_maintenance(world: World) -> None:
    with world.work() as work, pytest.raises(NodesRefused) as refused:
        inventory.import_nodes(work, OPERATOR, "sim", f"name,kind,gpus,layout\nn1,{H100},2,3g.40gb\n")
    assert "maintenance" in refused.value.faults[0].message
    with world.work() as work:
        same = inventory.import_nodes(work, OPERATOR, "sim", CSV)
        assert (same.unchanged, same.units) == (2, 5)
        listed = inventory_queries.nodes_listed(work)
    assert [row[-1] for row in listed] == ["0:3g.40gb+3g.40gb", None]
    with world.work() as work, pytest.raises(NodesRefused) as refused:
        inventory.import_nodes(
            work,
            OPERATOR,
            "sim",
            f"name,kind,gpus,layout\nn7,{H100},2,2:3g.40gb\nn8,{H100},1,4g.40gb*2\nn9,g2,1,1g.5gb\n",
        )
    assert [f.column for f in refused.value.faults] == ["layout"] * 3


def test_pages_say_what_a_slice_is_and_costs(database, tmp_path, valkey_url) -> None:
    world = make_world(database, tmp_path, valkey_url, csv=CSV, prices={H100: Decimal(4), HALF: Decimal("4.20")})
    try:
        browse = People(world)
        member = browse()
        form = text_of(member.see("/book"))
        assert "H100-SXM-80GB 3g.40gb" in form
        said = {"kind": HALF, "units": "2", "within": "", "hours": "1"}
        quoted = text_of(member.submit("/book/quote", **FORM | said))
        assert "CHF 3.60" in quoted
        booking = world.book(kind=HALF, units=2, start=at(1), duration="PT2H")
        world.book(kind=H100, units=1, start=at(1), duration="PT2H")
        world.pass_time(HOUR + timedelta(minutes=20))
        world.settle()
        rounds.do_all(world.plumbing)
        page = text_of(member.see(f"/bookings/{booking.label}"))
        assert "H100-SXM-80GB 3g.40gb" in page
        assert "n0" in page
        shown = member.see("/timeline")
        assert "n0 3g.40gb" in text_of(shown)
        with world.plumbing.database.work(booking.tenant_id) as work:
            token = tokens.create_token(work, world.actor("physics-member"), label="t", scopes=("read", "book"))
        program = TestClient(browse.app, headers={"Authorization": f"Bearer {token.secret}"})
        seen = program.get(f"/api/v1/bookings/{booking.public_id}").json()
        assert [(n["node"], n["units"], n["indices"]) for n in seen["nodes"]] == [("n0", 2, [0])]
        kinds = {
            k["slug"]: (k["slice_of"], k["share"]) for k in program.get("/api/v1/kinds?offered=true").json()["items"]
        }
        assert kinds == {H100: (None, "1"), HALF: (H100, "3/7")}
    finally:
        world.close()
