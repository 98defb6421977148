"""Nodes come in whole or not at all, keep their units' numbers, and cannot be pulled away under a hold."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from app.backends.contract import Order, Place, Ref
from app.inventory import actions, queries, reconcile
from app.inventory.rules import NodesRefused
from app.kernel.ids import new_id
from app.kernel.window import Window
from tests.inventory.world import OPERATOR, RICH, START, World

NODES = RICH + "n1,h100-sxm-80gb,8,r1,l1,v1,700,,\nn2,h100-sxm-80gb,8,r1,l1,v2,700,,\nn3,mi300x-192gb,4,r2,l2,,,,\n"


@pytest.fixture
def known(world: World) -> World:
    world.do(actions.connect_cluster, OPERATOR, "sim", "simulated", {"path": "unused"})
    world.do(actions.import_nodes, OPERATOR, "sim", NODES)
    return world


def everything(world: World) -> list[tuple]:
    return [
        world.rows(f"SELECT * FROM {table} ORDER BY id")
        for table in ("pools", "nodes", "slots", "unit_faults", "node_outages")
    ]


def numbers(world: World) -> dict[str, tuple[int, int]]:
    return {row[0]: (row[1], row[2]) for row in world.rows("SELECT name, first_gpu, gpus FROM nodes")}


def hold(world: World, node: str, gpus: range) -> None:
    """Something holds these units for an hour from now, whoever it is for."""

    def write(work) -> None:
        tenant, project, allocation, booking = uuid4(), uuid4(), new_id(), new_id()
        pg = work.pg
        pg.execute("SELECT set_config('app.tenant', %s, true)", [str(tenant)])
        pg.execute(
            "INSERT INTO tenants VALUES (%s, %s, 'T', 'UTC', 'CHF', 'g', %s)", [tenant, f"t{tenant.hex[:8]}", START]
        )
        pg.execute("INSERT INTO projects VALUES (%s, %s, 'p', 'P', '1', %s, NULL)", [tenant, project, START])
        node_id, first, pool, cluster, kind = pg.execute(
            """SELECT n.id, first_gpu, pool_id, n.cluster_id, kind FROM nodes n JOIN pools p ON p.id = pool_id
                WHERE n.name = %s""",
            [node],
        ).fetchone()
        end = START + timedelta(hours=1)
        pg.execute(
            """INSERT INTO bookings (id, tenant_id, project_id, kind, cluster_id, pool_id, units, starts_at, ends_at,
                 booked_at, name, cost_centre, reference, state, share840, asked, currency, quoted, zone, booked_by,
                 version) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, 'b', '1', '', 'BOOKED', 840, false, 'CHF', 0,
                 'UTC', 'x', 1)""",
            [booking, tenant, project, kind, cluster, pool, len(gpus), START, end, START],
        )
        pg.execute(
            """INSERT INTO allocations (id, cluster_id, installation, generation, name, gone, wanted, ensured, failures)
               VALUES (%s, %s, 'abcdef', 1, %s, false, 1, 0, 0)""",
            [allocation, cluster, str(allocation)],
        )
        pg.execute(
            """INSERT INTO holds (id, booking_id, allocation_id, node_id, units, during, live, pinned)
               VALUES (%s, %s, %s, %s, int4multirange(int4range(%s, %s)), tstzrange(%s, %s), true, false)""",
            [new_id(), booking, allocation, node_id, 64 * (first + gpus.start), 64 * (first + gpus.stop), START, end],
        )

    world.do(write)


def test_nodes_get_consecutive_numbers_and_a_pool_for_each_kind(known: World) -> None:
    assert numbers(known) == {"n1": (0, 8), "n2": (8, 8), "n3": (16, 4)}
    pools = known.do(queries.pools_for, "any")
    assert [(p.name, p.kind, p.cluster) for p in pools] == [
        ("h100-sxm-80gb", "h100-sxm-80gb", "sim"),
        ("mi300x-192gb", "mi300x-192gb", "sim"),
    ]
    slots = known.rows(
        "SELECT gpu, lower(positions), upper(positions), lower(valid), upper_inf(valid) FROM slots ORDER BY gpu"
    )
    assert slots == [(g, 64 * g, 64 * g + 64, START, True) for g in range(20)]


def test_the_same_list_again_changes_nothing(known: World) -> None:
    before = everything(known)
    done = known.do(actions.import_nodes, OPERATOR, "sim", NODES)
    assert (done.added, done.changed, done.unchanged, done.units) == (0, 0, 3, 20)
    assert everything(known) == before


def test_a_faulty_list_and_a_dry_run_change_nothing(known: World) -> None:
    before = everything(known)
    with pytest.raises(NodesRefused):
        known.do(actions.import_nodes, OPERATOR, "sim", NODES + "n4,nonsense,8,,,,,,\n")
    done = known.do(actions.import_nodes, OPERATOR, "sim", NODES + "n4,h200,8,,,,,,\n", dry_run=True)
    assert (done.added, done.unchanged, done.dry_run, done.units) == (1, 3, True, 28)
    assert everything(known) == before
    known.do(actions.import_nodes, OPERATOR, "sim", "name,kind,gpus\nn4,h200,8\n")
    assert numbers(known)["n4"] == (20, 8), "no number was used up"


def test_facts_follow_the_list_where_it_has_the_column(known: World) -> None:
    before = known.do(queries.pools_for, "h100-sxm-80gb")[0]
    known.do(actions.import_nodes, OPERATOR, "sim", "name,kind,gpus,rack\nn1,h100,8,r9\nn2,h100,8,\n")
    rows = known.rows("SELECT name, rack, leaf, nvlink, power_watts FROM nodes WHERE name <> 'n3' ORDER BY name")
    assert rows == [("n1", "r9", "l1", "v1", 700), ("n2", None, "l1", "v2", 700)]
    after = known.do(queries.pools_for, "h100-sxm-80gb")[0]
    assert after.capacity_version > before.capacity_version
    assert after.version == before.version + 1
    assert numbers(known)["n1"] == (0, 8)


def test_fewer_units_end_the_last_ones_and_more_get_new_numbers(known: World) -> None:
    later = START + timedelta(days=1)
    known.set_clock(later)
    known.do(actions.import_nodes, OPERATOR, "sim", "name,kind,gpus\nn1,h100,6\nn2,h100,12\nn3,h200,4\n")
    assert numbers(known) == {"n1": (0, 6), "n2": (20, 12), "n3": (32, 4)}
    ended = known.rows("SELECT gpu FROM slots WHERE upper(valid) = %s ORDER BY gpu", later)
    assert [row[0] for row in ended] == [6, 7, *range(8, 20)]
    valid = known.rows("SELECT gpu, kind FROM slots WHERE valid @> %s::timestamptz ORDER BY gpu", later)
    assert [row[0] for row in valid] == [*range(6), *range(20, 36)]
    assert {row[1] for row in valid if row[0] >= 32} == {"h200-sxm-141gb"}


def test_a_node_with_a_hold_keeps_its_units(known: World) -> None:
    hold(known, "n1", range(2, 4))
    before = everything(known)
    for line in ("n1,h100,9", "n1,h200,8"):
        with pytest.raises(NodesRefused) as refused:
            known.do(actions.import_nodes, OPERATOR, "sim", f"name,kind,gpus\n{line}\n")
        assert "n1 has bookings" in refused.value.faults[0].message
    assert everything(known) == before
    # units that are gone are gone: the hold stays, and whoever has it is at risk
    known.do(actions.import_nodes, OPERATOR, "sim", "name,kind,gpus\nn1,h100,3\n")
    assert known.rows("SELECT count(*) FROM holds WHERE live") == [(1,)]


def test_a_pool_named_takes_one_kind_only(known: World) -> None:
    done = known.do(actions.import_nodes, OPERATOR, "sim", "name,kind,gpus\nx1,h100,8\n", pool="teaching")
    assert done.pools == ("teaching",)
    with pytest.raises(NodesRefused) as refused:
        known.do(actions.import_nodes, OPERATOR, "sim", "name,kind,gpus\nx2,h100,8\nx3,h200,8\n", pool="teaching")
    assert [(f.line, f.column) for f in refused.value.faults] == [(3, "kind")]


def test_two_imports_at_once_share_no_number(world: World) -> None:
    for name in ("a", "b", "c", "d"):
        world.do(actions.connect_cluster, OPERATOR, name, "simulated", {"path": "unused"})

    def run(name: str) -> None:
        lines = "".join(f"{name}{i},h100,8\n" for i in range(40))
        world.do(actions.import_nodes, OPERATOR, name, f"name,kind,gpus\n{lines}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, "abcd"))
    rows = world.rows("SELECT first_gpu FROM nodes ORDER BY first_gpu")
    assert [row[0] for row in rows] == list(range(0, 1280, 8))


def test_capacity_is_read_once_for_a_version(known: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(work):
        pools = queries.pools_for(work, "any")
        return queries.capacity_of(work, pools)

    first = known.do(read)
    monkeypatch.setattr(queries, "_load", lambda *_: pytest.fail("asked again"))
    assert all(known.do(read)[i] is capacity for i, capacity in first.items())
    monkeypatch.undo()
    known.do(actions.import_nodes, OPERATOR, "sim", "name,kind,gpus\nn9,h100,8\n")
    again = known.do(read)
    changed = {i for i in first if again[i] is not first[i]}
    assert changed == {p.id for p in known.do(queries.pools_for, "h100-sxm-80gb")}


def test_a_change_that_was_rolled_back_leaves_nothing_in_the_cache(known: World) -> None:
    def read(work):
        pools = queries.pools_for(work, "h100-sxm-80gb")
        return [len(c.nodes) for c in queries.capacity_of(work, pools).values()]

    class Undo(Exception):
        pass

    def change(work) -> None:
        actions.import_nodes(work, OPERATOR, "sim", "name,kind,gpus\nn9,h100,8\n")
        assert read(work) == [3]
        raise Undo

    with pytest.raises(Undo):
        known.do(change)
    assert known.do(read) == [2]
    known.do(actions.import_nodes, OPERATOR, "sim", "name,kind,gpus\nn7,h100,8\nn8,h100,8\n")
    assert known.do(read) == [4]


def test_strays_are_sorted_by_what_is_known_of_them(world: World, tmp_path: Path) -> None:
    cluster = world.simulated(tmp_path, NODES)
    ours = world.do(queries.installation)
    live, gone, unknown, foreign = (new_id() for _ in range(4))
    backend = world.backend()
    window = Window(START, START + timedelta(hours=1))
    refs = [
        Ref.of(ours, live, 1),
        Ref.of(ours, live, 2),
        Ref.of(ours, gone, 1),
        Ref.of(ours, unknown, 1),
        Ref.of("another1", foreign, 1),
    ]
    for unit, ref in enumerate(refs):
        backend.ensure(Order(ref, "p", "p", (Place("n1", (unit,)),), window))

    def write(work) -> None:
        for allocation, is_gone, generation in ((live, False, 2), (gone, True, 1)):
            work.pg.execute(
                """INSERT INTO allocations (id, cluster_id, installation, generation, name, gone, wanted, ensured,
                     failures) VALUES (%s, %s, %s, %s, %s, %s, 1, 1, 0)""",
                [allocation, cluster.id, ours, generation, Ref.of(ours, allocation, generation).name, is_gone],
            )

    world.do(write)
    found = reconcile.strays(world.plumbing, cluster.id)
    assert found.gone == (Ref.of(ours, gone, 1),)
    assert found.superseded == (Ref.of(ours, live, 1),)
    assert [stray.ref for stray in found.unknown] == [Ref.of(ours, unknown, 1)]
    assert [s["name"] for s in world.cluster().probe["strays"]] == [Ref.of(ours, unknown, 1).name]
    assert backend.observe(Ref.of(ours, unknown, 1)).state == "ready", "nothing was removed"
